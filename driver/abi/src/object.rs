//! The objects of the interface: a header and a dispatch table, then the provider's own state.

use core::cell::UnsafeCell;

use super::*;

/// The type of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub struct NDK_OBJECT_TYPE(pub i32);
pub const NdkObjectTypeUndefined: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(0);
pub const NdkObjectTypeAdapter: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(1);
pub const NdkObjectTypeQp: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(2);
pub const NdkObjectTypeCq: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(3);
pub const NdkObjectTypeMr: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(4);
pub const NdkObjectTypeMw: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(5);
pub const NdkObjectTypePd: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(6);
pub const NdkObjectTypeSharedEndpoint: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(7);
pub const NdkObjectTypeConnector: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(8);
pub const NdkObjectTypeListener: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(9);
pub const NdkObjectTypeSrq: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(10);
pub const NdkObjectTypeMax: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE(11);

/// Belongs to the layer between provider and consumer while the object lives.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDK_OBJECT_HEADER_RESERVED_BLOCK {
    pub rf: [PVOID; 4],
}
layout!(NDK_OBJECT_HEADER_RESERVED_BLOCK, 0x20 { rf: 0 });

/// The beginning of every object.
#[derive(Debug)]
#[repr(C)]
pub struct NDK_OBJECT_HEADER {
    /// The version at which the provider runs this adapter.
    pub Version: NDK_VERSION,
    pub ObjectType: NDK_OBJECT_TYPE,
    /// Zero at creation; others write it afterwards.
    pub NdkReserved: UnsafeCell<NDK_OBJECT_HEADER_RESERVED_BLOCK>,
}
layout!(NDK_OBJECT_HEADER, 0x28 { Version: 0, ObjectType: 4, NdkReserved: 8 });

impl NDK_OBJECT_HEADER {
    /// The header of a new object.
    #[must_use]
    pub const fn new(Version: NDK_VERSION, ObjectType: NDK_OBJECT_TYPE) -> Self {
        let block = NDK_OBJECT_HEADER_RESERVED_BLOCK { rf: [core::ptr::null_mut(); 4] };
        Self { Version, ObjectType, NdkReserved: UnsafeCell::new(block) }
    }
}

// SAFETY: nothing on the provider's side reads or writes `NdkReserved` while the object lives, so
// the two plain fields are all that is shared.
unsafe impl Send for NDK_OBJECT_HEADER {}
// SAFETY: as above.
unsafe impl Sync for NDK_OBJECT_HEADER {}

/// A C object of one type.
///
/// # Safety
/// It begins with an [`NDK_OBJECT_HEADER`].
pub unsafe trait NdkObject {
    /// The type in its header.
    const TYPE: NDK_OBJECT_TYPE;
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $kind:ident, $dispatch:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            pub Header: NDK_OBJECT_HEADER,
            /// Set once by the provider and never read back: the layer above may replace it.
            pub Dispatch: UnsafeCell<*const $dispatch>,
        }
        layout!($name, 0x30 { Header: 0, Dispatch: 0x28 });

        // SAFETY: as the layout says.
        unsafe impl NdkObject for $name {
            const TYPE: NDK_OBJECT_TYPE = $kind;
        }

        impl $name {
            /// A new object at `version` with the provider's table.
            #[must_use]
            pub const fn new(version: NDK_VERSION, dispatch: &'static $dispatch) -> Self {
                let Header = NDK_OBJECT_HEADER::new(version, $kind);
                Self { Header, Dispatch: UnsafeCell::new(dispatch) }
            }
        }

        // SAFETY: the provider never touches `Dispatch` after creation; who replaces it orders
        // that before its own calls.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )+};
}

objects! {
    /// An open adapter: parent of everything.
    NDK_ADAPTER: NdkObjectTypeAdapter, NDK_ADAPTER_DISPATCH;
    /// A queue pair.
    NDK_QP: NdkObjectTypeQp, NDK_QP_DISPATCH;
    /// A completion queue.
    NDK_CQ: NdkObjectTypeCq, NDK_CQ_DISPATCH;
    /// A memory region.
    NDK_MR: NdkObjectTypeMr, NDK_MR_DISPATCH;
    /// A memory window.
    NDK_MW: NdkObjectTypeMw, NDK_MW_DISPATCH;
    /// A protection domain.
    NDK_PD: NdkObjectTypePd, NDK_PD_DISPATCH;
    /// A local address and port for several outgoing connections.
    NDK_SHARED_ENDPOINT: NdkObjectTypeSharedEndpoint, NDK_SHARED_ENDPOINT_DISPATCH;
    /// One end of a connection.
    NDK_CONNECTOR: NdkObjectTypeConnector, NDK_CONNECTOR_DISPATCH;
    /// Waits for incoming connections.
    NDK_LISTENER: NdkObjectTypeListener, NDK_LISTENER_DISPATCH;
    /// A shared receive queue.
    NDK_SRQ: NdkObjectTypeSrq, NDK_SRQ_DISPATCH;
}
