//! The packets of NDIS: MDLs, net buffers, and lists of them.
//!
//! They are declared here, and not in the driver, because the edge walks them. The layouts are asserted.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(missing_docs, reason = "members are documented by the pages of the C headers")]

use core::ffi::c_void;
use core::mem::offset_of;

/// A memory descriptor list: one buffer, page by page. The page frame numbers follow it in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MDL {
    pub Next: *mut MDL,
    pub Size: i16,
    pub MdlFlags: i16,
    pub Process: *mut c_void,
    /// The system address of the first byte; valid if [`MDL_MAPPED_TO_SYSTEM_VA`] or
    /// [`MDL_SOURCE_IS_NONPAGED_POOL`] is set.
    pub MappedSystemVa: *mut c_void,
    /// The page of the buffer's first byte, in the address space it was described from.
    pub StartVa: *mut c_void,
    pub ByteCount: u32,
    pub ByteOffset: u32,
}

pub const MDL_MAPPED_TO_SYSTEM_VA: i16 = 0x0001;
pub const MDL_PAGES_LOCKED: i16 = 0x0002;
pub const MDL_SOURCE_IS_NONPAGED_POOL: i16 = 0x0004;

impl MDL {
    /// `MmGetMdlVirtualAddress`: an index into the region, never to be dereferenced.
    #[must_use]
    pub fn virtual_address(&self) -> *mut c_void {
        self.StartVa.wrapping_byte_add(self.ByteOffset as usize)
    }

    /// The system address of the first byte, if it has one without a new mapping.
    #[must_use]
    pub fn system_address(&self) -> Option<*mut u8> {
        let mapped = self.MdlFlags & (MDL_MAPPED_TO_SYSTEM_VA | MDL_SOURCE_IS_NONPAGED_POOL) != 0;
        (mapped && !self.MappedSystemVa.is_null()).then(|| self.MappedSystemVa.cast())
    }
}

/// One frame: `DataLength` bytes of an MDL chain from `DataOffset` on, which is `CurrentMdlOffset`
/// in `CurrentMdl`.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct NET_BUFFER {
    pub Next: *mut NET_BUFFER,
    pub CurrentMdl: *mut MDL,
    pub CurrentMdlOffset: u32,
    /// A union of `ULONG` and `SIZE_T` in C.
    pub DataLength: usize,
    pub MdlChain: *mut MDL,
    pub DataOffset: u32,
    /// The members up to here share a union with a 16-byte aligned list header.
    pub HeaderPadding: u32,
    pub ChecksumBias: u16,
    pub Reserved: u16,
    pub NdisPoolHandle: *mut c_void,
    pub NdisReserved: [*mut c_void; 2],
    pub ProtocolReserved: [*mut c_void; 6],
    pub MiniportReserved: [*mut c_void; 4],
    pub DataPhysicalAddress: i64,
    pub SharedMemoryInfo: *mut c_void,
}

/// Frames that travel together. NDIS allocates it; a newer one may have more `NetBufferListInfo` than is here.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct NET_BUFFER_LIST {
    pub Next: *mut NET_BUFFER_LIST,
    pub FirstNetBuffer: *mut NET_BUFFER,
    pub Context: *mut c_void,
    pub ParentNetBufferList: *mut NET_BUFFER_LIST,
    pub NdisPoolHandle: *mut c_void,
    pub Reserved: *mut c_void,
    pub NdisReserved: [*mut c_void; 2],
    pub ProtocolReserved: [*mut c_void; 4],
    pub MiniportReserved: [*mut c_void; 2],
    pub Scratch: *mut c_void,
    pub SourceHandle: *mut c_void,
    pub NblFlags: u32,
    pub ChildRefCount: i32,
    pub Flags: u32,
    pub Status: i32,
    /// The out-of-band values.
    pub NetBufferListInfo: [*mut c_void; NET_BUFFER_LIST_INFO_COUNT],
}

/// `MaxNetBufferListInfo` of NDIS 6.80 and later on 64 bits, which every supported Windows has.
pub const NET_BUFFER_LIST_INFO_COUNT: usize = 27;
// `NDIS_NET_BUFFER_LIST_INFO`, on 64 bits.
pub const TcpIpChecksumNetBufferListInfo: usize = 0;
pub const Ieee8021QNetBufferListInfo: usize = 4;
/// Of a received list, from NDIS 6.84 on.
pub const UdpRecvSegCoalesceOffloadInfo: usize = 17;
/// Of a sent list, from NDIS 6.83 on.
pub const UdpSegmentationOffloadInfo: usize = 22;

const _: () = {
    assert!(size_of::<MDL>() == 0x30);
    assert!(offset_of!(MDL, MdlFlags) == 0xA);
    assert!(offset_of!(MDL, MappedSystemVa) == 0x18);
    assert!(offset_of!(MDL, StartVa) == 0x20);
    assert!(offset_of!(MDL, ByteCount) == 0x28);
    assert!(offset_of!(MDL, ByteOffset) == 0x2C);
    assert!(size_of::<NET_BUFFER>() == 0xB0);
    assert!(offset_of!(NET_BUFFER, CurrentMdlOffset) == 0x10);
    assert!(offset_of!(NET_BUFFER, DataLength) == 0x18);
    assert!(offset_of!(NET_BUFFER, MdlChain) == 0x20);
    assert!(offset_of!(NET_BUFFER, DataOffset) == 0x28);
    assert!(offset_of!(NET_BUFFER, ChecksumBias) == 0x30);
    assert!(offset_of!(NET_BUFFER, NdisPoolHandle) == 0x38);
    assert!(offset_of!(NET_BUFFER, NdisReserved) == 0x40);
    assert!(offset_of!(NET_BUFFER, ProtocolReserved) == 0x50);
    assert!(offset_of!(NET_BUFFER, MiniportReserved) == 0x80);
    assert!(offset_of!(NET_BUFFER, DataPhysicalAddress) == 0xA0);
    assert!(offset_of!(NET_BUFFER_LIST, FirstNetBuffer) == 8);
    assert!(offset_of!(NET_BUFFER_LIST, Context) == 0x10);
    assert!(offset_of!(NET_BUFFER_LIST, ParentNetBufferList) == 0x18);
    assert!(offset_of!(NET_BUFFER_LIST, NdisPoolHandle) == 0x20);
    assert!(offset_of!(NET_BUFFER_LIST, NdisReserved) == 0x30);
    assert!(offset_of!(NET_BUFFER_LIST, ProtocolReserved) == 0x40);
    assert!(offset_of!(NET_BUFFER_LIST, MiniportReserved) == 0x60);
    assert!(offset_of!(NET_BUFFER_LIST, Scratch) == 0x70);
    assert!(offset_of!(NET_BUFFER_LIST, SourceHandle) == 0x78);
    assert!(offset_of!(NET_BUFFER_LIST, NblFlags) == 0x80);
    assert!(offset_of!(NET_BUFFER_LIST, ChildRefCount) == 0x84);
    assert!(offset_of!(NET_BUFFER_LIST, Flags) == 0x88);
    assert!(offset_of!(NET_BUFFER_LIST, Status) == 0x8C);
    assert!(offset_of!(NET_BUFFER_LIST, NetBufferListInfo) == 0x90);
    assert!(size_of::<NET_BUFFER_LIST>() == 0x170);
};
