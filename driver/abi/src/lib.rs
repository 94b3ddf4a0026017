//! The C side of the provider: `ndkpi.h` and `ndkinfo.h`, and what they need of Windows' base types.
//!
//! Names, order and layout are those of the headers; every size and offset is asserted at compile
//! time. C enumerations are transparent integers, because a consumer may pass any number, and
//! every callback is an `Option`, because it may pass NULL even where the page says it must not.
#![allow(unsafe_code, reason = "raw pointers of a C interface")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(missing_docs, reason = "members are documented by the pages of the C headers")]
#![no_std]

#[cfg(test)]
extern crate std;

use core::ffi::c_void;

/// Proves the size of a C structure and the offsets of its members.
#[doc(hidden)]
#[macro_export]
macro_rules! layout {
    ($name:ident, $size:literal { $($member:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $member) == $offset);)*
        };
    };
}

mod dispatch;
mod object;
mod sockaddr;
mod status;

pub use dispatch::*;
pub use netadapter_glue::ndis::abi::{
    MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, MDL_SOURCE_IS_NONPAGED_POOL,
};
pub use object::*;
pub use sockaddr::*;
pub use status::*;

pub type BOOLEAN = u8;
pub type USHORT = u16;
/// 32 bits also where the host's `c_ulong` is wider.
pub type ULONG = u32;
pub type UINT32 = u32;
pub type UINT64 = u64;
pub type ULONG64 = u64;
pub type ULONG_PTR = usize;
pub type SIZE_T = usize;
pub type PVOID = *mut c_void;

/// `TRUE`; any other non-zero value means the same.
pub const TRUE: BOOLEAN = 1;
pub const FALSE: BOOLEAN = 0;
/// "No limit" in interrupt moderation.
pub const MAXULONG: ULONG = ULONG::MAX;
/// Bytes in a page of an MDL, an FRMR or a logical address mapping.
pub const PAGE_SIZE: usize = 4096;

/// Identifies an extension interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct GUID {
    pub Data1: u32,
    pub Data2: u16,
    pub Data3: u16,
    pub Data4: [u8; 8],
}
layout!(GUID, 0x10 { Data1: 0, Data2: 4, Data3: 6, Data4: 8 });

/// A set of processors within one group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct GROUP_AFFINITY {
    pub Mask: usize,
    pub Group: USHORT,
    pub Reserved: [USHORT; 3],
}
layout!(GROUP_AFFINITY, 0x10 { Mask: 0, Group: 8, Reserved: 0xA });

/// A bus address as the adapter sees it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
#[repr(C)]
pub struct PHYSICAL_ADDRESS {
    pub QuadPart: i64,
}
layout!(PHYSICAL_ADDRESS, 8 { QuadPart: 0 });

pub type NDK_LOGICAL_ADDRESS = PHYSICAL_ADDRESS;

/// An interface version, passed by value.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
#[repr(C)]
pub struct NDK_VERSION {
    pub Major: USHORT,
    pub Minor: USHORT,
}
layout!(NDK_VERSION, 4 { Major: 0, Minor: 2 });

/// The address of a scatter/gather element: which one it is, the token decides.
#[derive(Clone, Copy)]
#[repr(C)]
pub union NDK_SGE_ADDRESS {
    pub VirtualAddress: PVOID,
    pub LogicalAddress: NDK_LOGICAL_ADDRESS,
}

/// One scatter/gather element.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NDK_SGE {
    /// An anonymous union in C.
    pub Address: NDK_SGE_ADDRESS,
    pub Length: ULONG,
    pub MemoryRegionToken: UINT32,
}
layout!(NDK_SGE, 0x10 { Address: 0, Length: 8, MemoryRegionToken: 0xC });

impl NDK_SGE {
    /// An element inside a registered region, or of an inline request.
    #[must_use]
    pub const fn from_virtual(address: PVOID, length: ULONG, token: UINT32) -> Self {
        let Address = NDK_SGE_ADDRESS { VirtualAddress: address };
        Self { Address, Length: length, MemoryRegionToken: token }
    }

    /// An element named by the privileged token.
    #[must_use]
    pub const fn from_logical(address: NDK_LOGICAL_ADDRESS, length: ULONG, token: UINT32) -> Self {
        let Address = NDK_SGE_ADDRESS { LogicalAddress: address };
        Self { Address, Length: length, MemoryRegionToken: token }
    }

    #[must_use]
    pub fn virtual_address(&self) -> PVOID {
        // SAFETY: both variants are eight plain bytes; any of them make a pointer value.
        unsafe { self.Address.VirtualAddress }
    }

    #[must_use]
    pub fn logical_address(&self) -> NDK_LOGICAL_ADDRESS {
        // SAFETY: both variants are eight plain bytes; any of them make an integer.
        unsafe { self.Address.LogicalAddress }
    }
}

impl core::fmt::Debug for NDK_SGE {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NDK_SGE")
            .field("Address", &self.virtual_address())
            .field("Length", &self.Length)
            .field("MemoryRegionToken", &self.MemoryRegionToken)
            .finish()
    }
}

/// A completion.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDK_RESULT {
    pub Status: NTSTATUS,
    /// Meaningful for receives only.
    pub BytesTransferred: ULONG,
    pub QPContext: PVOID,
    pub RequestContext: PVOID,
}
layout!(NDK_RESULT, 0x18 { Status: 0, BytesTransferred: 4, QPContext: 8, RequestContext: 0x10 });

impl NDK_RESULT {
    /// Something to fill an array with.
    pub const EMPTY: Self = Self {
        Status: STATUS_SUCCESS,
        BytesTransferred: 0,
        QPContext: core::ptr::null_mut(),
        RequestContext: core::ptr::null_mut(),
    };
}

/// A completion that names its operation (1.2).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDK_RESULT_EX {
    pub Status: NTSTATUS,
    /// Meaningful for receives only.
    pub BytesTransferred: ULONG,
    pub QPContext: PVOID,
    pub RequestContext: PVOID,
    pub Type: NDK_OPERATION_TYPE,
    /// Padding before 2.1; 0 on success, and 0 = none given on failure.
    pub ProviderErrorCode: ULONG,
    /// The invalidated token of a `ReceiveAndInvalidate`.
    pub TypeSpecificCompletionOutput: ULONG_PTR,
}
layout!(NDK_RESULT_EX, 0x28 {
    Status: 0, BytesTransferred: 4, QPContext: 8, RequestContext: 0x10, Type: 0x18,
    ProviderErrorCode: 0x1C, TypeSpecificCompletionOutput: 0x20,
});

impl NDK_RESULT_EX {
    /// Something to fill an array with.
    pub const EMPTY: Self = Self {
        Status: STATUS_SUCCESS,
        BytesTransferred: 0,
        QPContext: core::ptr::null_mut(),
        RequestContext: core::ptr::null_mut(),
        Type: NDK_OPERATION_TYPE(0),
        ProviderErrorCode: 0,
        TypeSpecificCompletionOutput: 0,
    };
}

/// Bus addresses of a locked buffer. The consumer allocates it with its pages behind it.
#[derive(Debug)]
#[repr(C)]
pub struct NDK_LOGICAL_ADDRESS_MAPPING {
    /// The provider's own.
    pub AdapterContext: PVOID,
    pub AdapterPageCount: ULONG,
    /// `AdapterPageCount` entries, each page-aligned.
    pub AdapterPageArray: [NDK_LOGICAL_ADDRESS; 0],
}
layout!(NDK_LOGICAL_ADDRESS_MAPPING, 0x10 {
    AdapterContext: 0, AdapterPageCount: 8, AdapterPageArray: 0x10,
});

impl NDK_LOGICAL_ADDRESS_MAPPING {
    /// Bytes that a mapping of `pages` pages takes.
    #[must_use]
    pub const fn size_for(pages: usize) -> usize {
        size_of::<Self>() + pages * size_of::<NDK_LOGICAL_ADDRESS>()
    }
}

/// Where a queried extension puts its table.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDK_EXTENSION_INTERFACE {
    pub Dispatch: *const c_void,
}
layout!(NDK_EXTENSION_INTERFACE, 8 { Dispatch: 0 });

/// The capabilities of the adapter (`ndkinfo.h`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_ADAPTER_INFO {
    pub Version: NDK_VERSION,
    pub VendorId: UINT32,
    pub DeviceId: UINT32,
    pub MaxRegistrationSize: SIZE_T,
    pub MaxWindowSize: SIZE_T,
    pub FRMRPageCount: ULONG,
    pub MaxInitiatorRequestSge: ULONG,
    pub MaxReceiveRequestSge: ULONG,
    pub MaxReadRequestSge: ULONG,
    pub MaxTransferLength: ULONG,
    pub MaxInlineDataSize: ULONG,
    pub MaxInboundReadLimit: ULONG,
    pub MaxOutboundReadLimit: ULONG,
    pub MaxReceiveQueueDepth: ULONG,
    pub MaxInitiatorQueueDepth: ULONG,
    pub MaxSrqDepth: ULONG,
    pub MaxCqDepth: ULONG,
    pub LargeRequestThreshold: ULONG,
    pub MaxCallerData: ULONG,
    pub MaxCalleeData: ULONG,
    pub AdapterFlags: ULONG,
    /// Absent from the structure of 1.x, which ends at [`NDK_ADAPTER_INFO_V1_SIZE`].
    pub RdmaTechnology: NDK_RDMA_TECHNOLOGY,
}
layout!(NDK_ADAPTER_INFO, 0x68 {
    Version: 0, VendorId: 4, DeviceId: 8, MaxRegistrationSize: 0x10, MaxWindowSize: 0x18,
    FRMRPageCount: 0x20, MaxInitiatorRequestSge: 0x24, MaxReceiveRequestSge: 0x28,
    MaxReadRequestSge: 0x2C, MaxTransferLength: 0x30, MaxInlineDataSize: 0x34,
    MaxInboundReadLimit: 0x38, MaxOutboundReadLimit: 0x3C, MaxReceiveQueueDepth: 0x40,
    MaxInitiatorQueueDepth: 0x44, MaxSrqDepth: 0x48, MaxCqDepth: 0x4C,
    LargeRequestThreshold: 0x50, MaxCallerData: 0x54, MaxCalleeData: 0x58, AdapterFlags: 0x5C,
    RdmaTechnology: 0x60,
});
/// Bytes of [`NDK_ADAPTER_INFO`] as consumers of 1.x know it.
pub const NDK_ADAPTER_INFO_V1_SIZE: usize = 0x60;

pub const NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED: ULONG = 0x0000_0001;
pub const NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED: ULONG = 0x0000_0002;
pub const NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED: ULONG = 0x0000_0004;
pub const NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED: ULONG = 0x0000_0008;
pub const NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED: ULONG = 0x0000_0010;
pub const NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED: ULONG = 0x0000_0100;
pub const NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED: ULONG = 0x0001_0000;

/// The technology underneath; also the values of the `*NetworkDirectTechnology` keyword.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(transparent)]
pub struct NDK_RDMA_TECHNOLOGY(pub i32);
pub const NdkUndefined: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(0);
pub const NdkiWarp: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(1);
pub const NdkInfiniBand: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(2);
pub const NdkRoCE: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(3);
pub const NdkRoCEv2: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(4);
pub const NdkMaxTechnology: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(5);

/// The operation of a completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub struct NDK_OPERATION_TYPE(pub i32);
pub const NdkOperationTypeReceive: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0001);
pub const NdkOperationTypeReceiveAndInvalidate: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x8001);
pub const NdkOperationTypeSend: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0002);
pub const NdkOperationTypeFastRegister: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0004);
pub const NdkOperationTypeBind: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0008);
pub const NdkOperationTypeInvalidate: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0010);
pub const NdkOperationTypeRead: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0020);
pub const NdkOperationTypeWrite: NDK_OPERATION_TYPE = NDK_OPERATION_TYPE(0x0040);

impl NDK_OPERATION_TYPE {
    /// True for both kinds of receive.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        self.0 & NdkOperationTypeReceive.0 != 0
    }
}

// Flags of work requests.
pub const NDK_OP_FLAG_SILENT_SUCCESS: ULONG = 0x001;
pub const NDK_OP_FLAG_READ_FENCE: ULONG = 0x002;
pub const NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT: ULONG = 0x004;
pub const NDK_OP_FLAG_ALLOW_REMOTE_READ: ULONG = 0x008;
pub const NDK_OP_FLAG_ALLOW_LOCAL_WRITE: ULONG = 0x010;
/// Contains [`NDK_OP_FLAG_ALLOW_LOCAL_WRITE`]: test for all of its bits.
pub const NDK_OP_FLAG_ALLOW_REMOTE_WRITE: ULONG = 0x030;
pub const NDK_OP_FLAG_INLINE: ULONG = 0x040;
pub const NDK_OP_FLAG_RDMA_READ_SINK: ULONG = 0x080;
/// As in the header; the page of `NdkRead` prints the value of [`NDK_OP_FLAG_DEFER`].
pub const NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE: ULONG = 0x100;
pub const NDK_OP_FLAG_DEFER: ULONG = 0x200;

// Flags of `NdkRegisterMr`.
pub const NDK_MR_FLAG_ALLOW_LOCAL_READ: ULONG = 0;
pub const NDK_MR_FLAG_ALLOW_LOCAL_WRITE: ULONG = 1;
pub const NDK_MR_FLAG_ALLOW_REMOTE_READ: ULONG = 2;
/// Contains [`NDK_MR_FLAG_ALLOW_LOCAL_WRITE`]: test for all of its bits.
pub const NDK_MR_FLAG_ALLOW_REMOTE_WRITE: ULONG = 5;
pub const NDK_MR_FLAG_RDMA_READ_SINK: ULONG = 8;

// The completions that `NdkArmCq` waits for, by strength: errors < solicited < any.
pub const NDK_CQ_NOTIFY_ERRORS: ULONG = 0;
pub const NDK_CQ_NOTIFY_ANY: ULONG = 1;
pub const NDK_CQ_NOTIFY_SOLICITED: ULONG = 2;

/// The elements of a C array; NULL counts as none.
///
/// # Safety
/// `data` is NULL or valid for reads of `len` elements, unchanged for `'a`.
#[must_use]
pub unsafe fn slice<'a, T>(data: *const T, len: ULONG) -> &'a [T] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for `len` elements.
    unsafe { core::slice::from_raw_parts(data, len as usize) }
}

/// The elements of a C array to fill; NULL counts as none.
///
/// # Safety
/// `data` is NULL or valid for reads and writes of `len` initialized elements, with no other access during
/// `'a`.
#[must_use]
pub unsafe fn slice_mut<'a, T>(data: *mut T, len: ULONG) -> &'a mut [T] {
    if data.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller vouches for `len` elements.
    unsafe { core::slice::from_raw_parts_mut(data, len as usize) }
}
