//! NDIS QoS: the classes of egress traffic for Data Center Bridging, NDIS 6.30 and later. x64 sizes.

use super::*;

pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES: u8 = 0xAF;
pub const NDIS_OBJECT_TYPE_QOS_CAPABILITIES: u8 = 0xB5;
pub const NDIS_OBJECT_TYPE_QOS_PARAMETERS: u8 = 0xB6;
pub const NDIS_OBJECT_TYPE_QOS_CLASSIFICATION_ELEMENT: u8 = 0xB7;

pub const NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_3: u8 = 3;
pub const NDIS_QOS_CAPABILITIES_REVISION_1: u8 = 1;
pub const NDIS_QOS_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_QOS_CLASSIFICATION_ELEMENT_REVISION_1: u8 = 1;

/// A method request; NDIS answers all queries about QoS itself.
pub const OID_QOS_PARAMETERS: NDIS_OID = 0xFC05_0003;
/// The status code of changed operational parameters.
pub const NDIS_STATUS_QOS_OPERATIONAL_PARAMETERS_CHANGE: u32 = 0x4002_00A0;

/// Third attributes: what the hardware helps with. Here QoS alone.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub HDSplitAttributes: PVOID,
    pub HardwareReceiveFilterCapabilities: PVOID,
    pub CurrentReceiveFilterCapabilities: PVOID,
    pub HardwareNicSwitchCapabilities: PVOID,
    pub CurrentNicSwitchCapabilities: PVOID,
    pub HardwareSriovCapabilities: PVOID,
    pub CurrentSriovCapabilities: PVOID,
    pub HardwareQosCapabilities: *mut NDIS_QOS_CAPABILITIES,
    pub CurrentQosCapabilities: *mut NDIS_QOS_CAPABILITIES,
}
layout!(NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES, 0x50 {
    HDSplitAttributes: 8, HardwareReceiveFilterCapabilities: 0x10,
    HardwareNicSwitchCapabilities: 0x20, HardwareSriovCapabilities: 0x30,
    HardwareQosCapabilities: 0x40, CurrentQosCapabilities: 0x48,
});

/// The abilities of an adapter's QoS.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_QOS_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub MaxNumTrafficClasses: ULONG,
    pub MaxNumEtsCapableTrafficClasses: ULONG,
    pub MaxNumPfcEnabledTrafficClasses: ULONG,
}
layout!(NDIS_QOS_CAPABILITIES, 20 {
    Flags: 4, MaxNumTrafficClasses: 8, MaxNumEtsCapableTrafficClasses: 12,
    MaxNumPfcEnabledTrafficClasses: 16,
});

pub const NDIS_QOS_MAXIMUM_PRIORITIES: usize = 8;
pub const NDIS_QOS_MAXIMUM_TRAFFIC_CLASSES: usize = 8;

/// The parameters of an adapter's QoS. The elements of its classification follow at an offset.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_QOS_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub NumTrafficClasses: ULONG,
    pub PriorityAssignmentTable: [u8; NDIS_QOS_MAXIMUM_PRIORITIES],
    pub TcBandwidthAssignmentTable: [u8; NDIS_QOS_MAXIMUM_TRAFFIC_CLASSES],
    pub TsaAssignmentTable: [u8; NDIS_QOS_MAXIMUM_TRAFFIC_CLASSES],
    pub PfcEnable: ULONG,
    pub NumClassificationElements: ULONG,
    pub ClassificationElementSize: ULONG,
    pub FirstClassificationElementOffset: ULONG,
}
layout!(NDIS_QOS_PARAMETERS, 52 {
    Flags: 4, NumTrafficClasses: 8, PriorityAssignmentTable: 12, TcBandwidthAssignmentTable: 20,
    TsaAssignmentTable: 28, PfcEnable: 36, NumClassificationElements: 40,
    ClassificationElementSize: 44, FirstClassificationElementOffset: 48,
});
pub const NDIS_QOS_PARAMETERS_ETS_CONFIGURED: ULONG = 0x2;
pub const NDIS_QOS_PARAMETERS_PFC_CONFIGURED: ULONG = 0x200;
pub const NDIS_QOS_PARAMETERS_CLASSIFICATION_CHANGED: ULONG = 0x1_0000;
pub const NDIS_QOS_PARAMETERS_CLASSIFICATION_CONFIGURED: ULONG = 0x2_0000;
// Algorithms of transmission selection.
pub const NDIS_QOS_TSA_STRICT: u8 = 0;
pub const NDIS_QOS_TSA_ETS: u8 = 2;

/// A condition on packets, and the priority of those that meet it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct NDIS_QOS_CLASSIFICATION_ELEMENT {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub ConditionSelector: USHORT,
    pub ConditionField: USHORT,
    pub ActionSelector: USHORT,
    pub ActionField: USHORT,
}
layout!(NDIS_QOS_CLASSIFICATION_ELEMENT, 16 {
    Flags: 4, ConditionSelector: 8, ConditionField: 10, ActionSelector: 12, ActionField: 14,
});
pub const NDIS_QOS_CLASSIFICATION_SET_BY_MINIPORT_MASK: ULONG = 0xFF00_0000;
pub const NDIS_QOS_CLASSIFICATION_ENFORCED_BY_MINIPORT: ULONG = 0x0100_0000;
pub const NDIS_QOS_CONDITION_RESERVED: USHORT = 0;
pub const NDIS_QOS_CONDITION_DEFAULT: USHORT = 1;
pub const NDIS_QOS_CONDITION_NETDIRECT_PORT: USHORT = 6;
pub const NDIS_QOS_CONDITION_MAXIMUM: USHORT = 7;
pub const NDIS_QOS_ACTION_PRIORITY: USHORT = 0;
