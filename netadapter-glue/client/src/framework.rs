//! The calls of KMDF and NetAdapterCx. Both give a driver a table of functions when it is loaded; the number of a
//! function is its place there, and its first argument are the driver's globals.
//!
//! The numbers are those of KMDF 1.15 and NetAdapterCx 2.0; later versions only append.
#![allow(unsafe_code, reason = "calls functions whose types only their numbers tell")]
#![allow(non_snake_case, non_upper_case_globals, reason = "C names")]

use crate::abi::*;
use alloc::boxed::Box;
use core::ffi::CStr;
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use netadapter_glue::netadapter::abi::{NET_EXTENSION, NET_EXTENSION_QUERY, NET_RING_COLLECTION};

/// The entries of KMDF's table, and of NetAdapterCx's.
pub const WDF_FUNCTION_COUNT: usize = 444;
/// See [`WDF_FUNCTION_COUNT`].
pub const NET_FUNCTION_COUNT: usize = 75;

/// The pointer to KMDF's table: `WdfVersionBind` stores it.
pub static WDF_FUNCTIONS: AtomicPtr<Function> = AtomicPtr::new(null_mut());
/// The driver's globals of KMDF: `WdfVersionBind` stores them.
pub static WDF_GLOBALS: AtomicPtr<WDF_DRIVER_GLOBALS> = AtomicPtr::new(null_mut());
/// NetAdapterCx's table: `WdfVersionBindClass` has it filled.
pub static NET_FUNCTIONS: [AtomicPtr<core::ffi::c_void>; NET_FUNCTION_COUNT] =
    [const { AtomicPtr::new(null_mut()) }; NET_FUNCTION_COUNT];
/// The driver's globals of NetAdapterCx: `WdfVersionBindClass` has them stored.
pub static NET_GLOBALS: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(null_mut());

fn wdf_function(index: usize) -> Function {
    assert!(index < WDF_FUNCTION_COUNT, "a function of the table");
    let table = WDF_FUNCTIONS.load(Ordering::Relaxed);
    assert!(!table.is_null(), "the driver is bound before it is entered");
    // SAFETY: the table has that many entries, and stays.
    unsafe { table.wrapping_add(index).read() }
}

fn wdf_globals() -> PVOID {
    WDF_GLOBALS.load(Ordering::Relaxed).cast()
}

fn net_function(index: usize) -> Function {
    let function = NET_FUNCTIONS[index].load(Ordering::Relaxed);
    assert!(!function.is_null(), "the driver is bound before it is entered");
    function
}

fn net_globals() -> PVOID {
    NET_GLOBALS.load(Ordering::Relaxed)
}

/// A constant with the number of each function, and a function that calls it.
macro_rules! functions {
    ($table:ident, $globals:ident: $(
        $(#[$doc:meta])*
        $index:literal $number:ident $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {$(
        #[doc = concat!("The place of `", stringify!($name), "` in its table.")]
        pub const $number: usize = $index;

        $(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) $(-> $result)? {
            type Typed = unsafe extern "system" fn(PVOID, $($type),*) $(-> $result)?;
            // SAFETY: the function at this place has this type.
            let function = unsafe { core::mem::transmute::<Function, Typed>($table($index)) };
            // SAFETY: handles and pointers of init structures come from the frameworks; references live
            // during the call.
            unsafe { function($globals(), $($argument),*) }
        }
    )*};
}

functions! { wdf_function, wdf_globals:
    /// PASSIVE_LEVEL.
    116 WdfDriverCreateTableIndex WdfDriverCreate(
        driver: PVOID, registry_path: PVOID, attributes: PVOID, config: &mut WDF_DRIVER_CONFIG,
        handle: PVOID,
    ) -> NTSTATUS;
    /// IRQL <= DISPATCH_LEVEL.
    55 WdfDeviceInitSetPnpPowerEventCallbacksTableIndex WdfDeviceInitSetPnpPowerEventCallbacks(
        init: PVOID, callbacks: &mut WDF_PNPPOWER_EVENT_CALLBACKS,
    );
    /// PASSIVE_LEVEL.
    75 WdfDeviceCreateTableIndex WdfDeviceCreate(
        init: &mut PVOID, attributes: &mut WDF_OBJECT_ATTRIBUTES, device: &mut WDFDEVICE,
    ) -> NTSTATUS;
    /// Any IRQL.
    202 WdfObjectGetTypedContextWorkerTableIndex WdfObjectGetTypedContextWorker(
        object: WDFOBJECT, kind: *const WDF_OBJECT_CONTEXT_TYPE_INFO,
    ) -> PVOID;
}

functions! { net_function, net_globals:
    /// PASSIVE_LEVEL.
    46 NetDeviceInitConfigTableIndex NetDeviceInitConfig(init: PVOID) -> NTSTATUS;
    /// PASSIVE_LEVEL.
    0 NetAdapterInitAllocateTableIndex NetAdapterInitAllocate(device: WDFDEVICE) -> PVOID;
    /// PASSIVE_LEVEL.
    1 NetAdapterInitFreeTableIndex NetAdapterInitFree(init: PVOID);
    /// PASSIVE_LEVEL.
    2 NetAdapterInitSetDatapathCallbacksTableIndex NetAdapterInitSetDatapathCallbacks(
        init: PVOID, callbacks: &mut NET_ADAPTER_DATAPATH_CALLBACKS,
    );
    /// PASSIVE_LEVEL.
    3 NetAdapterCreateTableIndex NetAdapterCreate(
        init: PVOID, attributes: &mut WDF_OBJECT_ATTRIBUTES, adapter: &mut NETADAPTER,
    ) -> NTSTATUS;
    /// PASSIVE_LEVEL.
    4 NetAdapterStartTableIndex NetAdapterStart(adapter: NETADAPTER) -> NTSTATUS;
    /// PASSIVE_LEVEL.
    5 NetAdapterStopTableIndex NetAdapterStop(adapter: NETADAPTER);
    /// PASSIVE_LEVEL.
    6 NetAdapterSetLinkLayerCapabilitiesTableIndex NetAdapterSetLinkLayerCapabilities(
        adapter: NETADAPTER, capabilities: &mut NET_ADAPTER_LINK_LAYER_CAPABILITIES,
    );
    /// PASSIVE_LEVEL.
    7 NetAdapterSetLinkLayerMtuSizeTableIndex NetAdapterSetLinkLayerMtuSize(
        adapter: NETADAPTER, mtu: u32,
    );
    /// PASSIVE_LEVEL.
    14 NetAdapterSetDataPathCapabilitiesTableIndex NetAdapterSetDataPathCapabilities(
        adapter: NETADAPTER, transmit: &mut NET_ADAPTER_TX_CAPABILITIES,
        receive: &mut NET_ADAPTER_RX_CAPABILITIES,
    );
    /// IRQL <= DISPATCH_LEVEL.
    15 NetAdapterSetLinkStateTableIndex NetAdapterSetLinkState(
        adapter: NETADAPTER, state: &mut NET_ADAPTER_LINK_STATE,
    );
    /// PASSIVE_LEVEL.
    18 NetAdapterSetPermanentLinkLayerAddressTableIndex NetAdapterSetPermanentLinkLayerAddress(
        adapter: NETADAPTER, address: &mut NET_ADAPTER_LINK_LAYER_ADDRESS,
    );
    /// PASSIVE_LEVEL.
    19 NetAdapterSetCurrentLinkLayerAddressTableIndex NetAdapterSetCurrentLinkLayerAddress(
        adapter: NETADAPTER, address: &mut NET_ADAPTER_LINK_LAYER_ADDRESS,
    );
    /// PASSIVE_LEVEL.
    58 NetRxQueueCreateTableIndex NetRxQueueCreate(
        init: PVOID, attributes: &mut WDF_OBJECT_ATTRIBUTES, config: &mut NET_PACKET_QUEUE_CONFIG,
        queue: &mut NETPACKETQUEUE,
    ) -> NTSTATUS;
    /// Any IRQL.
    59 NetRxQueueNotifyMoreReceivedPacketsAvailableTableIndex
        NetRxQueueNotifyMoreReceivedPacketsAvailable(queue: NETPACKETQUEUE);
    /// PASSIVE_LEVEL.
    61 NetRxQueueGetRingCollectionTableIndex NetRxQueueGetRingCollection(queue: NETPACKETQUEUE)
        -> *const NET_RING_COLLECTION;
    /// PASSIVE_LEVEL.
    62 NetRxQueueGetExtensionTableIndex NetRxQueueGetExtension(
        queue: NETPACKETQUEUE, query: &NET_EXTENSION_QUERY, extension: &mut NET_EXTENSION,
    );
    /// PASSIVE_LEVEL.
    63 NetTxQueueCreateTableIndex NetTxQueueCreate(
        init: PVOID, attributes: &mut WDF_OBJECT_ATTRIBUTES, config: &mut NET_PACKET_QUEUE_CONFIG,
        queue: &mut NETPACKETQUEUE,
    ) -> NTSTATUS;
    /// Any IRQL.
    64 NetTxQueueNotifyMoreCompletedPacketsAvailableTableIndex
        NetTxQueueNotifyMoreCompletedPacketsAvailable(queue: NETPACKETQUEUE);
    /// PASSIVE_LEVEL.
    66 NetTxQueueGetRingCollectionTableIndex NetTxQueueGetRingCollection(queue: NETPACKETQUEUE)
        -> *const NET_RING_COLLECTION;
    /// PASSIVE_LEVEL.
    67 NetTxQueueGetExtensionTableIndex NetTxQueueGetExtension(
        queue: NETPACKETQUEUE, query: &NET_EXTENSION_QUERY, extension: &mut NET_EXTENSION,
    );
}

/// A kind of context of WDF objects: a pointer to a `T`, which the driver allocates itself.
#[derive(Debug)]
pub(crate) struct ContextType<T> {
    info: WDF_OBJECT_CONTEXT_TYPE_INFO,
    content: PhantomData<fn(T)>,
}

// SAFETY: constant.
unsafe impl<T> Sync for ContextType<T> {}

impl<T> ContextType<T> {
    /// The kind that is declared as `itself`.
    pub(crate) const fn new(name: &'static CStr, itself: &'static Self) -> Self {
        let info = WDF_OBJECT_CONTEXT_TYPE_INFO {
            Size: size_of::<WDF_OBJECT_CONTEXT_TYPE_INFO>() as u32,
            ContextName: name.as_ptr(),
            ContextSize: size_of::<*mut T>(),
            UniqueType: &raw const itself.info,
            EvtDriverGetUniqueContextType: null_mut(),
        };
        Self { info, content: PhantomData }
    }

    /// `WDF_OBJECT_ATTRIBUTES_INIT_CONTEXT_TYPE`, with the callback that [`take`](Self::take)s the content.
    pub(crate) fn attributes(
        &'static self,
        cleanup: EVT_WDF_OBJECT_CONTEXT_CLEANUP,
    ) -> WDF_OBJECT_ATTRIBUTES {
        WDF_OBJECT_ATTRIBUTES {
            Size: size_of::<WDF_OBJECT_ATTRIBUTES>() as u32,
            EvtCleanupCallback: Some(cleanup),
            EvtDestroyCallback: null_mut(),
            ExecutionLevel: WdfExecutionLevelInheritFromParent,
            SynchronizationScope: WdfSynchronizationScopeInheritFromParent,
            ParentObject: null_mut(),
            ContextSizeOverride: 0,
            ContextTypeInfo: &raw const self.info,
        }
    }

    /// Gives an object its content. A new object has none.
    pub(crate) fn put(&'static self, object: PVOID, content: Box<T>) {
        // SAFETY: the place is the object's context, and WDF has zeroed it.
        unsafe { self.place(object).write(Box::into_raw(content)) };
    }

    /// Takes the content away, for the object's cleanup.
    pub(crate) fn take(&'static self, object: PVOID) -> Option<Box<T>> {
        // SAFETY: as in `put`.
        let content = unsafe { self.place(object).replace(null_mut()) };
        // SAFETY: `put` made it of a box.
        (!content.is_null()).then(|| unsafe { Box::from_raw(content) })
    }

    /// The content of an object that has one.
    pub(crate) fn get(&'static self, object: PVOID) -> *mut T {
        // SAFETY: as in `put`.
        let content = unsafe { self.place(object).read() };
        assert!(!content.is_null(), "the object is whole before it is used");
        content
    }

    fn place(&'static self, object: PVOID) -> *mut *mut T {
        WdfObjectGetTypedContextWorker(WDFOBJECT(object), &raw const self.info).cast()
    }
}
