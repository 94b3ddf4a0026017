//! The driver, its devices and their adapters, in the order of
//! [device and adapter initialization](https://learn.microsoft.com/windows-hardware/drivers/netcx/device-and-adapter-initialization).
#![allow(unsafe_code, reason = "called by KMDF and NetAdapterCx")]

use crate::abi::*;
use crate::framework::*;
use crate::queue::{create_receive_queue, create_transmit_queue};
use crate::resident::Resident;
use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use netadapter_glue::netadapter::{
    NetAdapterConfig, NetAdapterEdge, ReceiveWire, TransmitWire, open,
};

/// The choices of a vendor.
#[derive(Debug)]
pub struct Client {
    /// The Ethernet address of the adapter.
    pub mac: [u8; 6],
    /// The other end of the wire.
    pub edge: NetAdapterConfig,
    /// In bits per second.
    pub link_speed: u64,
    /// Makes the owner of a new adapter's edge.
    pub attach: fn(NETADAPTER, NetAdapterEdge) -> Box<dyn Resident>,
}

static CLIENT: AtomicPtr<Client> = AtomicPtr::new(null_mut());

fn client() -> &'static Client {
    let client = CLIENT.load(Ordering::Acquire);
    assert!(!client.is_null(), "the driver was created");
    // SAFETY: `create` stored a reference that lives for ever.
    unsafe { &*client }
}

/// `DriverEntry` of a driver that is bound to its frameworks. `driver` and `registry_path` are its arguments.
/// PASSIVE_LEVEL.
pub fn create(driver: PVOID, registry_path: PVOID, client: &'static Client) -> NTSTATUS {
    CLIENT.store(core::ptr::from_ref(client).cast_mut(), Ordering::Release);
    let mut config = WDF_DRIVER_CONFIG {
        Size: size_of::<WDF_DRIVER_CONFIG>() as u32,
        EvtDriverDeviceAdd: Some(evt_driver_device_add),
        EvtDriverUnload: null_mut(),
        DriverInitFlags: 0,
        DriverPoolTag: 0,
    };
    WdfDriverCreate(driver, registry_path, null_mut(), &mut config, null_mut())
}

/// Of a device: its adapter.
struct Device {
    adapter: NETADAPTER,
}

/// Of an adapter: the ends of the wire while no queue has them.
pub(crate) struct Adapter {
    pub(crate) transmit: Slot<TransmitEnd>,
    pub(crate) receive: Slot<ReceiveWire>,
}

/// The end of the wire that a transmit queue takes, and the resident, which its calls run.
pub(crate) struct TransmitEnd {
    pub(crate) wire: TransmitWire,
    pub(crate) resident: Box<dyn Resident>,
}

/// A place for one `T`, from which any thread may take it.
pub(crate) struct Slot<T>(AtomicPtr<T>);

impl<T> Slot<T> {
    fn new(content: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(content))))
    }

    pub(crate) fn take(&self) -> Option<T> {
        let content = self.0.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: a box of `put` or `new`, which nobody else took.
        (!content.is_null()).then(|| *unsafe { Box::from_raw(content) })
    }

    pub(crate) fn put(&self, content: T) {
        let other = self.0.swap(Box::into_raw(Box::new(content)), Ordering::AcqRel);
        debug_assert!(other.is_null(), "a wire has one end");
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

static DEVICE: ContextType<Device> = ContextType::new(c"Device", &DEVICE);
static ADAPTER: ContextType<Adapter> = ContextType::new(c"Adapter", &ADAPTER);

/// The content of an adapter.
pub(crate) fn adapter_of(adapter: NETADAPTER) -> &'static Adapter {
    // SAFETY: an adapter outlives its queues and their calls, which alone ask; it is only read.
    unsafe { &*ADAPTER.get(adapter.0) }
}

/// [`EvtDriverDeviceAdd`](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdfdriver/nc-wdfdriver-evt_wdf_driver_device_add).
/// PASSIVE_LEVEL.
///
/// # Safety
/// Called by KMDF with the init structure of a new device.
unsafe extern "system" fn evt_driver_device_add(_driver: WDFDRIVER, init: PVOID) -> NTSTATUS {
    match add_device(init) {
        Ok(()) => STATUS_SUCCESS,
        Err(status) => status,
    }
}

fn add_device(mut init: PVOID) -> Result<(), NTSTATUS> {
    NetDeviceInitConfig(init).ok()?;
    let mut callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        Size: size_of::<WDF_PNPPOWER_EVENT_CALLBACKS>() as u32,
        EvtDeviceD0: [null_mut(); 4],
        EvtDevicePrepareHardware: Some(evt_device_prepare_hardware),
        EvtDeviceReleaseHardware: Some(evt_device_release_hardware),
        EvtDeviceOthers: [null_mut(); 11],
    };
    WdfDeviceInitSetPnpPowerEventCallbacks(init, &mut callbacks);
    let mut device = WDFDEVICE(null_mut());
    WdfDeviceCreate(&mut init, &mut DEVICE.attributes(clean_device), &mut device).ok()?;
    let adapter = create_adapter(device)?;
    DEVICE.put(device.0, Box::new(Device { adapter }));
    Ok(())
}

fn create_adapter(device: WDFDEVICE) -> Result<NETADAPTER, NTSTATUS> {
    let init = NetAdapterInitAllocate(device);
    if init.is_null() {
        return Err(STATUS_INSUFFICIENT_RESOURCES);
    }
    let mut callbacks = NET_ADAPTER_DATAPATH_CALLBACKS {
        Size: size_of::<NET_ADAPTER_DATAPATH_CALLBACKS>() as u32,
        EvtAdapterCreateTxQueue: Some(create_transmit_queue),
        EvtAdapterCreateRxQueue: Some(create_receive_queue),
    };
    NetAdapterInitSetDatapathCallbacks(init, &mut callbacks);
    let mut adapter = NETADAPTER(null_mut());
    let created = NetAdapterCreate(init, &mut ADAPTER.attributes(clean_adapter), &mut adapter).ok();
    // It is freed in either case.
    NetAdapterInitFree(init);
    created?;
    let client = client();
    let (edge, wire, receive) = open(client.edge);
    let resident = (client.attach)(adapter, edge);
    let transmit = Slot::new(TransmitEnd { wire, resident });
    ADAPTER.put(adapter.0, Box::new(Adapter { transmit, receive: Slot::new(receive) }));
    Ok(adapter)
}

/// [`EvtDevicePrepareHardware`](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdfdevice/nc-wdfdevice-evt_wdf_device_prepare_hardware):
/// tells the adapter's capabilities and starts it. PASSIVE_LEVEL.
///
/// # Safety
/// Called by KMDF for a device of this driver.
unsafe extern "system" fn evt_device_prepare_hardware(
    device: WDFDEVICE,
    _raw: PVOID,
    _translated: PVOID,
) -> NTSTATUS {
    // SAFETY: the device is whole, and is only read.
    let Device { adapter } = unsafe { &*DEVICE.get(device.0) };
    set_capabilities(*adapter, client());
    NetAdapterStart(*adapter)
}

/// [`EvtDeviceReleaseHardware`](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdfdevice/nc-wdfdevice-evt_wdf_device_release_hardware):
/// stops the adapter. PASSIVE_LEVEL.
///
/// # Safety
/// Called by KMDF for a device of this driver.
unsafe extern "system" fn evt_device_release_hardware(
    device: WDFDEVICE,
    _translated: PVOID,
) -> NTSTATUS {
    // SAFETY: the device is whole, and is only read.
    let Device { adapter } = unsafe { &*DEVICE.get(device.0) };
    NetAdapterStop(*adapter);
    STATUS_SUCCESS
}

fn set_capabilities(adapter: NETADAPTER, client: &Client) {
    let mut address = NET_ADAPTER_LINK_LAYER_ADDRESS { Length: 6, Address: [0; 32] };
    address.Address[..6].copy_from_slice(&client.mac);
    NetAdapterSetPermanentLinkLayerAddress(adapter, &mut address);
    NetAdapterSetCurrentLinkLayerAddress(adapter, &mut address);
    let speed = client.link_speed;
    let mut link_layer = NET_ADAPTER_LINK_LAYER_CAPABILITIES {
        Size: size_of::<NET_ADAPTER_LINK_LAYER_CAPABILITIES>() as u32,
        MaxTxLinkSpeed: speed,
        MaxRxLinkSpeed: speed,
    };
    NetAdapterSetLinkLayerCapabilities(adapter, &mut link_layer);
    NetAdapterSetLinkLayerMtuSize(adapter, client.edge.mtu as u32);
    let (mut transmit, mut receive) = datapath_capabilities(client);
    NetAdapterSetDataPathCapabilities(adapter, &mut transmit, &mut receive);
    let mut state = NET_ADAPTER_LINK_STATE {
        Size: size_of::<NET_ADAPTER_LINK_STATE>() as u32,
        TxLinkSpeed: speed,
        RxLinkSpeed: speed,
        MediaConnectState: MediaConnectStateConnected,
        MediaDuplexState: MediaDuplexStateFull,
        SupportedPauseFunctions: NetAdapterPauseFunctionTypeUnsupported,
        AutoNegotiationFlags: 0,
    };
    NetAdapterSetLinkState(adapter, &mut state);
}

/// One queue each way. The system allocates and attaches all buffers, and maps none for a device.
fn datapath_capabilities(
    client: &Client,
) -> (NET_ADAPTER_TX_CAPABILITIES, NET_ADAPTER_RX_CAPABILITIES) {
    let transmit = NET_ADAPTER_TX_CAPABILITIES {
        Size: size_of::<NET_ADAPTER_TX_CAPABILITIES>() as u32,
        MappingRequirement: NetMemoryMappingRequirementNone,
        PayloadBackfill: 0,
        // No limit.
        MaximumNumberOfFragments: usize::MAX,
        FragmentBufferAlignment: 1,
        FragmentRingNumberOfElementsHint: 0,
        MaximumNumberOfQueues: 1,
        DmaCapabilities: null_mut(),
    };
    let receive = NET_ADAPTER_RX_CAPABILITIES {
        Size: size_of::<NET_ADAPTER_RX_CAPABILITIES>() as u32,
        AllocationMode: NetRxFragmentBufferAllocationModeSystem,
        AttachmentMode: NetRxFragmentBufferAttachmentModeSystem,
        FragmentRingNumberOfElementsHint: 0,
        MaximumFrameSize: client.edge.mtu + ETHERNET_MAX_LEN,
        MaximumNumberOfQueues: 1,
        MappingRequirement: NetMemoryMappingRequirementNone,
        FragmentBufferAlignment: 1,
        DmaCapabilities: null_mut(),
    };
    (transmit, receive)
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;

/// # Safety
/// Called once by KMDF for a device, when it goes.
unsafe extern "system" fn clean_device(device: WDFOBJECT) {
    drop(DEVICE.take(device.0));
}

/// # Safety
/// Called once by KMDF for an adapter, when it goes. Its queues went before.
unsafe extern "system" fn clean_adapter(adapter: WDFOBJECT) {
    drop(ADAPTER.take(adapter.0));
}
