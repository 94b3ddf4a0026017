//! A stand-in for KMDF and NetAdapterCx: their tables, filled with functions of this file. An object is a block of the
//! test's memory, and a handle its address.

use super::owner::{Kind, RingOwner, Sizes};
use crate::abi::*;
use crate::framework::*;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use netadapter_glue::netadapter::abi::*;
use std::boxed::Box;
use std::sync::{LazyLock, Mutex, Once, OnceLock};
use std::thread::Thread;
use std::vec;
use std::vec::Vec;

/// An object of either framework.
#[derive(Default)]
pub(super) struct Object {
    context: Mutex<Option<Context>>,
    /// Of a device: its adapter and the callbacks.
    pub(super) adapter: OnceLock<NETADAPTER>,
    pub(super) datapath: OnceLock<[EVT_NET_ADAPTER_CREATE_QUEUE; 2]>,
    pub(super) hardware: OnceLock<Hardware>,
    /// Of an adapter: bits of what the driver told about it.
    pub(super) told: AtomicU32,
    pub(super) started: AtomicBool,
    /// Of a queue.
    pub(super) queue: Option<PacketQueue>,
}

pub(super) type Hardware = (EVT_WDF_DEVICE_PREPARE_HARDWARE, EVT_WDF_DEVICE_RELEASE_HARDWARE);

struct Context {
    kind: usize,
    memory: Box<[usize]>,
    cleanup: Option<EVT_WDF_OBJECT_CONTEXT_CLEANUP>,
}

/// A packet queue: the calls that its driver named, and its rings.
pub(super) struct PacketQueue {
    pub(super) config: NET_PACKET_QUEUE_CONFIG,
    pub(super) owner: UnsafeCell<RingOwner>,
    /// The driver may notify.
    pub(super) enabled: AtomicBool,
    pub(super) notified: AtomicBool,
    /// Notifications without permission.
    pub(super) unasked: AtomicU32,
    pub(super) poller: Mutex<Option<Thread>>,
}

/// Bits for all that must be told before an adapter starts.
pub(super) const DATAPATH: u32 = 1;
pub(super) const LINK_LAYER: u32 = 2;
pub(super) const MTU: u32 = 4;

/// The init structures, which only the frameworks look into.
struct DeviceInit {
    configured: bool,
    hardware: Option<Hardware>,
}

struct AdapterInit {
    device: WDFDEVICE,
    datapath: Option<[EVT_NET_ADAPTER_CREATE_QUEUE; 2]>,
}

struct QueueInit {
    kind: Kind,
    sizes: Sizes,
    created: PVOID,
}

static DEVICE_ADD: AtomicUsize = AtomicUsize::new(0);

impl Object {
    fn handle(attributes: &WDF_OBJECT_ATTRIBUTES, queue: Option<PacketQueue>) -> PVOID {
        assert_eq!(attributes.Size as usize, size_of::<WDF_OBJECT_ATTRIBUTES>());
        // SAFETY: the driver's type info lives for ever.
        let info = unsafe { &*attributes.ContextTypeInfo };
        assert_eq!(info.Size as usize, size_of::<WDF_OBJECT_CONTEXT_TYPE_INFO>());
        assert_eq!(info.UniqueType, attributes.ContextTypeInfo, "the type names itself");
        let context = Context {
            kind: info.UniqueType.addr(),
            memory: vec![0; info.ContextSize.div_ceil(size_of::<usize>())].into(),
            cleanup: attributes.EvtCleanupCallback,
        };
        let object = Self { context: Mutex::new(Some(context)), queue, ..Self::default() };
        Box::into_raw(Box::new(object)).cast()
    }

    /// The object behind a handle.
    pub(super) fn of<'a>(handle: PVOID) -> &'a Self {
        // SAFETY: handles are addresses of objects, which `delete` alone ends.
        unsafe { &*handle.cast::<Self>() }
    }

    /// Deletes an object as a framework does: its cleanup, then its memory.
    pub(super) fn delete(handle: PVOID) {
        let cleanup =
            Self::of(handle).context.lock().unwrap().as_ref().and_then(|context| context.cleanup);
        if let Some(cleanup) = cleanup {
            // SAFETY: the driver's callback, for its object.
            unsafe { cleanup(WDFOBJECT(handle)) };
        }
        // SAFETY: made by `handle`, and no call names it any more.
        drop(unsafe { Box::from_raw(handle.cast::<Self>()) });
    }

    pub(super) fn packet_queue(&self) -> &PacketQueue {
        self.queue.as_ref().expect("a packet queue")
    }
}

/// Has the driver add a device. The result is the device's handle.
pub(super) fn add_device() -> Result<PVOID, NTSTATUS> {
    let address = DEVICE_ADD.load(Ordering::Acquire);
    assert_ne!(address, 0, "the driver was created");
    let function = core::ptr::with_exposed_provenance::<()>(address);
    // SAFETY: `driver_create` stored a function of this type.
    let add = unsafe { core::mem::transmute::<*const (), EVT_WDF_DRIVER_DEVICE_ADD>(function) };
    let mut init = DeviceInit { configured: false, hardware: None };
    LAST_DEVICE.with(|last| last.set(null_mut()));
    // SAFETY: the driver's callback, with an init structure of this stand-in.
    unsafe { add(WDFDRIVER(null_mut()), (&raw mut init).cast()) }.ok()?;
    let device = LAST_DEVICE.with(core::cell::Cell::get);
    let hardware = init.hardware.expect("callbacks for its hardware");
    assert!(Object::of(device).hardware.set(hardware).is_ok());
    Ok(device)
}

std::thread_local! {
    static LAST_DEVICE: core::cell::Cell<PVOID> = const { core::cell::Cell::new(null_mut()) };
}

/// Has the driver create a queue. The result is its handle.
pub(super) fn create_queue(
    create: EVT_NET_ADAPTER_CREATE_QUEUE,
    adapter: NETADAPTER,
    kind: Kind,
    sizes: Sizes,
) -> Result<PVOID, NTSTATUS> {
    let mut init = QueueInit { kind, sizes, created: null_mut() };
    // SAFETY: the driver's callback, with an adapter of its own and an init structure of this stand-in.
    unsafe { create(adapter, (&raw mut init).cast()) }.ok()?;
    Ok(init.created)
}

unsafe extern "system" fn driver_create(
    _globals: PVOID,
    _driver: PVOID,
    _path: PVOID,
    _attributes: PVOID,
    config: &mut WDF_DRIVER_CONFIG,
    _handle: PVOID,
) -> NTSTATUS {
    assert_eq!(config.Size as usize, size_of::<WDF_DRIVER_CONFIG>());
    let add = config.EvtDriverDeviceAdd.expect("a callback for devices") as *const ();
    DEVICE_ADD.store(add.expose_provenance(), Ordering::Release);
    STATUS_SUCCESS
}

unsafe extern "system" fn init_set_hardware(
    _globals: PVOID,
    init: *mut DeviceInit,
    callbacks: &mut WDF_PNPPOWER_EVENT_CALLBACKS,
) {
    assert_eq!(callbacks.Size as usize, size_of::<WDF_PNPPOWER_EVENT_CALLBACKS>());
    let prepare = callbacks.EvtDevicePrepareHardware.expect("a start");
    let release = callbacks.EvtDeviceReleaseHardware.expect("a stop");
    // SAFETY: the init structure of `add_device`.
    unsafe { (*init).hardware = Some((prepare, release)) };
}

unsafe extern "system" fn device_create(
    _globals: PVOID,
    init: &mut *mut DeviceInit,
    attributes: &mut WDF_OBJECT_ATTRIBUTES,
    device: &mut WDFDEVICE,
) -> NTSTATUS {
    // SAFETY: the init structure of `add_device`.
    assert!(unsafe { (**init).configured }, "NetDeviceInitConfig comes first");
    *init = null_mut();
    device.0 = Object::handle(attributes, None);
    LAST_DEVICE.with(|last| last.set(device.0));
    STATUS_SUCCESS
}

unsafe extern "system" fn get_context(
    _globals: PVOID,
    object: WDFOBJECT,
    kind: *const WDF_OBJECT_CONTEXT_TYPE_INFO,
) -> PVOID {
    let mut context = Object::of(object.0).context.lock().unwrap();
    let context = context.as_mut().expect("an object with a context");
    assert_eq!(context.kind, kind.addr(), "a context of this kind");
    context.memory.as_mut_ptr().cast()
}

unsafe extern "system" fn device_init_config(_globals: PVOID, init: *mut DeviceInit) -> NTSTATUS {
    // SAFETY: the init structure of `add_device`.
    unsafe { (*init).configured = true };
    STATUS_SUCCESS
}

unsafe extern "system" fn adapter_init_allocate(_globals: PVOID, device: WDFDEVICE) -> PVOID {
    Box::into_raw(Box::new(AdapterInit { device, datapath: None })).cast()
}

unsafe extern "system" fn adapter_init_free(_globals: PVOID, init: *mut AdapterInit) {
    // SAFETY: made by `adapter_init_allocate`.
    drop(unsafe { Box::from_raw(init) });
}

unsafe extern "system" fn adapter_init_set_datapath(
    _globals: PVOID,
    init: *mut AdapterInit,
    callbacks: &mut NET_ADAPTER_DATAPATH_CALLBACKS,
) {
    assert_eq!(callbacks.Size as usize, size_of::<NET_ADAPTER_DATAPATH_CALLBACKS>());
    let transmit = callbacks.EvtAdapterCreateTxQueue.expect("a transmit queue");
    let receive = callbacks.EvtAdapterCreateRxQueue.expect("a receive queue");
    // SAFETY: made by `adapter_init_allocate`.
    unsafe { (*init).datapath = Some([transmit, receive]) };
}

unsafe extern "system" fn adapter_create(
    _globals: PVOID,
    init: *mut AdapterInit,
    attributes: &mut WDF_OBJECT_ATTRIBUTES,
    adapter: &mut NETADAPTER,
) -> NTSTATUS {
    adapter.0 = Object::handle(attributes, None);
    // SAFETY: made by `adapter_init_allocate`.
    let AdapterInit { device, datapath } = unsafe { &*init };
    let device = Object::of(device.0);
    let first = device.adapter.set(*adapter).is_ok()
        && device.datapath.set(datapath.expect("callbacks for queues")).is_ok();
    assert!(first, "one adapter");
    STATUS_SUCCESS
}

fn tell(adapter: NETADAPTER, bit: u32) {
    Object::of(adapter.0).told.fetch_or(bit, Ordering::Relaxed);
}

unsafe extern "system" fn set_link_layer(
    _globals: PVOID,
    adapter: NETADAPTER,
    capabilities: &mut NET_ADAPTER_LINK_LAYER_CAPABILITIES,
) {
    assert_eq!(capabilities.Size as usize, size_of::<NET_ADAPTER_LINK_LAYER_CAPABILITIES>());
    tell(adapter, LINK_LAYER);
}

unsafe extern "system" fn set_mtu(_globals: PVOID, adapter: NETADAPTER, mtu: u32) {
    assert!(mtu > 0);
    tell(adapter, MTU);
}

unsafe extern "system" fn set_datapath(
    _globals: PVOID,
    adapter: NETADAPTER,
    transmit: &mut NET_ADAPTER_TX_CAPABILITIES,
    receive: &mut NET_ADAPTER_RX_CAPABILITIES,
) {
    assert_eq!(transmit.Size as usize, size_of::<NET_ADAPTER_TX_CAPABILITIES>());
    assert_eq!(receive.Size as usize, size_of::<NET_ADAPTER_RX_CAPABILITIES>());
    tell(adapter, DATAPATH);
}

unsafe extern "system" fn set_link_state(
    _globals: PVOID,
    _adapter: NETADAPTER,
    state: &mut NET_ADAPTER_LINK_STATE,
) {
    assert_eq!(state.Size as usize, size_of::<NET_ADAPTER_LINK_STATE>());
}

unsafe extern "system" fn set_address(
    _globals: PVOID,
    _adapter: NETADAPTER,
    address: &mut NET_ADAPTER_LINK_LAYER_ADDRESS,
) {
    assert_eq!(address.Length, 6);
}

unsafe extern "system" fn adapter_start(_globals: PVOID, adapter: NETADAPTER) -> NTSTATUS {
    let adapter = Object::of(adapter.0);
    assert_eq!(adapter.told.load(Ordering::Relaxed), DATAPATH | LINK_LAYER | MTU);
    adapter.started.store(true, Ordering::Relaxed);
    STATUS_SUCCESS
}

unsafe extern "system" fn adapter_stop(_globals: PVOID, adapter: NETADAPTER) {
    Object::of(adapter.0).started.store(false, Ordering::Relaxed);
}

unsafe extern "system" fn queue_create(
    _globals: PVOID,
    init: *mut QueueInit,
    attributes: &mut WDF_OBJECT_ATTRIBUTES,
    config: &mut NET_PACKET_QUEUE_CONFIG,
    queue: &mut NETPACKETQUEUE,
) -> NTSTATUS {
    assert_eq!(config.Size as usize, size_of::<NET_PACKET_QUEUE_CONFIG>());
    // SAFETY: the init structure of `create_queue`.
    let init = unsafe { &mut *init };
    let packet_queue = PacketQueue {
        config: *config,
        owner: UnsafeCell::new(RingOwner::new(init.kind, init.sizes)),
        enabled: AtomicBool::new(false),
        notified: AtomicBool::new(false),
        unasked: AtomicU32::new(0),
        poller: Mutex::new(None),
    };
    queue.0 = Object::handle(attributes, Some(packet_queue));
    init.created = queue.0;
    STATUS_SUCCESS
}

unsafe extern "system" fn queue_rings(
    _globals: PVOID,
    queue: NETPACKETQUEUE,
) -> *const NET_RING_COLLECTION {
    // SAFETY: the queue is being created; nobody else has its rings.
    unsafe { (*Object::of(queue.0).packet_queue().owner.get()).collection() }
}

unsafe extern "system" fn queue_extension(
    _globals: PVOID,
    queue: NETPACKETQUEUE,
    query: &NET_EXTENSION_QUERY,
    extension: &mut NET_EXTENSION,
) {
    assert_eq!(query.Size as usize, size_of::<NET_EXTENSION_QUERY>());
    let len = NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_NAME.len();
    // SAFETY: the driver's string, as long as the only name that is known here, or it ends the test.
    let name = unsafe { core::slice::from_raw_parts(query.Name, len + 1) };
    let known: Vec<u16> =
        NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_NAME.encode_utf16().chain([0]).collect();
    assert_eq!((name, query.Version, query.Type), (&*known, 1, NetExtensionTypeFragment));
    // SAFETY: as in `queue_rings`.
    *extension = unsafe { (*Object::of(queue.0).packet_queue().owner.get()).addresses() };
}

unsafe extern "system" fn queue_notify(_globals: PVOID, queue: NETPACKETQUEUE) {
    let queue = Object::of(queue.0).packet_queue();
    if !queue.enabled.swap(false, Ordering::SeqCst) {
        queue.unasked.fetch_add(1, Ordering::Relaxed);
    }
    queue.notified.store(true, Ordering::SeqCst);
    if let Some(poller) = &*queue.poller.lock().unwrap() {
        poller.unpark();
    }
}

/// A notification of a queue, with permission or without.
pub(super) fn notify(queue: PVOID) {
    // SAFETY: the queue lives.
    unsafe { queue_notify(null_mut(), NETPACKETQUEUE(queue)) };
}

unsafe extern "system" fn missing() {
    panic!("a function that this stand-in does not have");
}

/// Binds the driver, as `WdfVersionBind` and `WdfVersionBindClass` do.
pub(super) fn bind() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let table = vec![missing as *mut c_void; WDF_FUNCTION_COUNT].leak();
        table[WdfDriverCreateTableIndex] = driver_create as *mut c_void;
        table[WdfDeviceInitSetPnpPowerEventCallbacksTableIndex] = init_set_hardware as *mut c_void;
        table[WdfDeviceCreateTableIndex] = device_create as *mut c_void;
        table[WdfObjectGetTypedContextWorkerTableIndex] = get_context as *mut c_void;
        WDF_FUNCTIONS.store(table.as_mut_ptr(), Ordering::Release);
        for function in &NET_FUNCTIONS {
            function.store(missing as *mut c_void, Ordering::Release);
        }
        for (index, function) in &*NET_TABLE {
            let function = core::ptr::with_exposed_provenance_mut(*function);
            NET_FUNCTIONS[*index].store(function, Ordering::Release);
        }
    });
}

static NET_TABLE: LazyLock<Vec<(usize, usize)>> = LazyLock::new(|| {
    let table: [(usize, *const c_void); 20] = [
        (NetDeviceInitConfigTableIndex, device_init_config as _),
        (NetAdapterInitAllocateTableIndex, adapter_init_allocate as _),
        (NetAdapterInitFreeTableIndex, adapter_init_free as _),
        (NetAdapterInitSetDatapathCallbacksTableIndex, adapter_init_set_datapath as _),
        (NetAdapterCreateTableIndex, adapter_create as _),
        (NetAdapterStartTableIndex, adapter_start as _),
        (NetAdapterStopTableIndex, adapter_stop as _),
        (NetAdapterSetLinkLayerCapabilitiesTableIndex, set_link_layer as _),
        (NetAdapterSetLinkLayerMtuSizeTableIndex, set_mtu as _),
        (NetAdapterSetDataPathCapabilitiesTableIndex, set_datapath as _),
        (NetAdapterSetLinkStateTableIndex, set_link_state as _),
        (NetAdapterSetPermanentLinkLayerAddressTableIndex, set_address as _),
        (NetAdapterSetCurrentLinkLayerAddressTableIndex, set_address as _),
        (NetRxQueueCreateTableIndex, queue_create as _),
        (NetTxQueueCreateTableIndex, queue_create as _),
        (NetRxQueueGetRingCollectionTableIndex, queue_rings as _),
        (NetTxQueueGetRingCollectionTableIndex, queue_rings as _),
        (NetRxQueueGetExtensionTableIndex, queue_extension as _),
        (NetTxQueueGetExtensionTableIndex, queue_extension as _),
        (NetRxQueueNotifyMoreReceivedPacketsAvailableTableIndex, queue_notify as _),
    ];
    let notify = (NetTxQueueNotifyMoreCompletedPacketsAvailableTableIndex, queue_notify as _);
    table
        .into_iter()
        .chain([notify])
        .map(|(index, function): (usize, *const c_void)| (index, function.expose_provenance()))
        .collect()
});
