//! The attributes that an adapter reports to NDIS when it starts.
#![allow(unsafe_code, reason = "calls NDIS")]

use super::Adapter;
use crate::abi::imports::NdisMSetMiniportAttributes;
use crate::abi::*;
use crate::sorting::MULTICAST_MAX;
use crate::upper::{ndk, oid};
use alloc::sync::Arc;
use core::ptr::null_mut;
use driver::{Limits, VERSION};

impl Adapter {
    pub(super) fn set_registration(self: &Arc<Self>) -> Result<(), NDIS_STATUS> {
        let size = NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1;
        let mut attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
            Header: header(NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, 1, size),
            MiniportAdapterContext: Arc::as_ptr(self).cast_mut().cast(),
            // A halt would wait for NDK consumers, which do not close because the system sleeps.
            AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM
                | NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK
                | NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND,
            CheckForHangTimeInSeconds: 0,
            InterfaceType: NdisInterfaceInternal,
        };
        self.set_attributes((&raw mut attributes).cast())
    }

    pub(super) fn set_general(&self) -> Result<(), NDIS_STATUS> {
        let (mac_options, filters) = (oid::mac_options(self.config.tagging), oid::PACKET_FILTERS);
        let mut address = [0; NDIS_MAX_PHYS_ADDRESS_LENGTH];
        address[..6].copy_from_slice(&self.mac);
        let oids = oid::supported(self.has_qos());
        let mut attributes = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
            Header: header(
                NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
                2,
                size_of::<NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES>(),
            ),
            Flags: 0,
            MediaType: NdisMedium802_3,
            PhysicalMediumType: NdisPhysicalMedium802_3,
            MtuSize: self.config.mtu as ULONG,
            MaxXmitLinkSpeed: MAX_SPEED,
            XmitLinkSpeed: NDIS_LINK_SPEED_UNKNOWN,
            MaxRcvLinkSpeed: MAX_SPEED,
            RcvLinkSpeed: NDIS_LINK_SPEED_UNKNOWN,
            // This holds until the first restart, which reports the state of the NIC.
            MediaConnectState: MediaConnectStateDisconnected,
            MediaDuplexState: MediaDuplexStateFull,
            LookaheadSize: self.config.mtu as ULONG,
            PowerManagementCapabilities: null_mut(),
            MacOptions: mac_options,
            SupportedPacketFilters: filters,
            MaxMulticastListSize: MULTICAST_MAX as ULONG,
            MacAddressLength: 6,
            PermanentMacAddress: address,
            CurrentMacAddress: address,
            RecvScaleCapabilities: null_mut(),
            AccessType: NET_IF_ACCESS_BROADCAST,
            DirectionType: NET_IF_DIRECTION_SENDRECEIVE,
            ConnectionType: NET_IF_CONNECTION_DEDICATED,
            IfType: IF_TYPE_ETHERNET_CSMACD,
            IfConnectorPresent: FALSE,
            SupportedStatistics: oid::STATISTICS,
            SupportedPauseFunctions: 0,
            DataBackFillSize: 0,
            ContextBackFillSize: 0,
            SupportedOidList: oids.as_ptr().cast_mut(),
            SupportedOidListLength: size_of_val(oids) as ULONG,
            AutoNegotiationFlags: 0,
            PowerManagementCapabilitiesEx: null_mut(),
        };
        self.set_attributes((&raw mut attributes).cast())
    }

    /// Registers NDIS QoS, where the keyword is there; one of 0 leaves no capability
    /// ([`CurrentQosCapabilities`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndis/ns-ndis-_ndis_miniport_adapter_hardware_assist_attributes)).
    /// Without ETS and PFC these are less than the pages ask for: an adapter whose capabilities NDIS does not take starts without QoS.
    pub(super) fn set_hardware_assist(&self) -> Result<(), NDIS_STATUS> {
        let Some(enabled) = self.config.qos else { return Ok(()) };
        let mut hardware = QOS;
        let mut current = if enabled { QOS } else { NO_QOS };
        let mut attributes = NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES {
            Header: header(
                NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES,
                NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_3,
                size_of::<NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES>(),
            ),
            HDSplitAttributes: null_mut(),
            HardwareReceiveFilterCapabilities: null_mut(),
            CurrentReceiveFilterCapabilities: null_mut(),
            HardwareNicSwitchCapabilities: null_mut(),
            CurrentNicSwitchCapabilities: null_mut(),
            HardwareSriovCapabilities: null_mut(),
            CurrentSriovCapabilities: null_mut(),
            HardwareQosCapabilities: &mut hardware,
            CurrentQosCapabilities: &mut current,
        };
        match self.set_attributes((&raw mut attributes).cast()) {
            Err(NDIS_STATUS_RESOURCES) => return Err(NDIS_STATUS_RESOURCES),
            Ok(()) if enabled => self.qos.enable(),
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }

    pub(super) fn set_ndk(&self) -> Result<(), NDIS_STATUS> {
        let limits = Limits::default();
        let mut info = limits.info(VERSION, self.config.poll_cores);
        let mut capabilities = NDIS_NDK_CAPABILITIES {
            Header: header(
                NDIS_OBJECT_TYPE_DEFAULT,
                NDIS_NDK_CAPABILITIES_REVISION_1,
                size_of::<NDIS_NDK_CAPABILITIES>(),
            ),
            Flags: 0,
            MaxQpCount: limits.qps as ULONG,
            MaxCqCount: limits.qps as ULONG,
            MaxMrCount: limits.mrs as ULONG,
            MaxPdCount: limits.mrs as ULONG,
            MaxInboundReadLimit: 0,
            MaxOutboundReadLimit: 0,
            MaxMwCount: limits.mrs as ULONG,
            MaxSrqCount: limits.qps as ULONG,
            MissingCounterMask: ndk::MISSING_COUNTERS,
            NdkInfo: &mut info,
        };
        let mut attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
            Header: header(
                NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
                NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
                size_of::<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>(),
            ),
            Enabled: self.config.network_direct.into(),
            NdkCapabilities: &mut capabilities,
        };
        self.set_attributes((&raw mut attributes).cast())
    }

    /// `attributes` begins with its header, and lives during the call.
    fn set_attributes(&self, attributes: *mut NDIS_OBJECT_HEADER) -> Result<(), NDIS_STATUS> {
        // SAFETY: the callers above.
        unsafe { NdisMSetMiniportAttributes(self.handle, attributes) }.ok()
    }
}

/// The highest speed that is reported before the NIC is known: 100 Gbit/s.
const MAX_SPEED: u64 = 100_000_000_000;

/// The capabilities: priorities may be divided into classes as one likes, as nothing depends on it.
const QOS: NDIS_QOS_CAPABILITIES = NDIS_QOS_CAPABILITIES {
    MaxNumTrafficClasses: NDIS_QOS_MAXIMUM_TRAFFIC_CLASSES as ULONG,
    ..NO_QOS
};

/// Those of an adapter whose QoS is switched off.
const NO_QOS: NDIS_QOS_CAPABILITIES = NDIS_QOS_CAPABILITIES {
    Header: header(
        NDIS_OBJECT_TYPE_QOS_CAPABILITIES,
        NDIS_QOS_CAPABILITIES_REVISION_1,
        size_of::<NDIS_QOS_CAPABILITIES>(),
    ),
    Flags: 0,
    MaxNumTrafficClasses: 0,
    MaxNumEtsCapableTrafficClasses: 0,
    MaxNumPfcEnabledTrafficClasses: 0,
};
