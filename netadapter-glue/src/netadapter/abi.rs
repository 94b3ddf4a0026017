//! The rings of NetAdapterCx 2: `NET_RING` and its elements.
//!
//! They are declared here, and not in a driver, because the edge walks them. The layouts are asserted. The
//! documentation names the members and tells their rules:
//! [`NET_RING`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ring/ns-ring-_net_ring),
//! [`NET_PACKET`](https://learn.microsoft.com/windows-hardware/drivers/ddi/packet/ns-packet-_net_packet),
//! [`NET_PACKET_LAYOUT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/packet/ns-packet-_net_packet_layout),
//! [`NET_FRAGMENT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/fragment/ns-fragment-_net_fragment),
//! [`NET_EXTENSION`](https://learn.microsoft.com/windows-hardware/drivers/ddi/extension/ns-extension-_net_extension).
//! The numbers are those of version 2.0 and later; the preview versions 1.x had others.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(missing_docs, reason = "members are documented by the pages of the C headers")]

use core::ffi::c_void;
use core::mem::offset_of;

/// `SYSTEM_CACHE_ALIGNMENT_SIZE`: the place of the first element of a ring, and its alignment.
pub const SYSTEM_CACHE_ALIGNMENT_SIZE: usize = if cfg!(target_arch = "aarch64") { 128 } else { 64 };

/// A circular buffer of packets or of fragments. The elements follow it in memory.
///
/// The client driver moves `BeginIndex` and `NextIndex`, and may use `Scratch`; all else is the system's.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(64)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(128)))]
pub struct NET_RING {
    pub OSReserved1: u16,
    pub ElementStride: u16,
    pub NumberOfElements: u32,
    pub ElementIndexMask: u32,
    pub EndIndex: u32,
    /// Its first half is `OSReserved0` of a union.
    pub OSReserved2: [*mut c_void; 4],
    pub BeginIndex: u32,
    pub NextIndex: u32,
    pub Scratch: *mut c_void,
}

/// The rings of one packet queue. A newer NetAdapterCx has more of them behind these.
#[derive(Debug)]
#[repr(C)]
pub struct NET_RING_COLLECTION {
    /// The packet ring, then the fragment ring (`NET_RING_TYPE`).
    pub Rings: [*mut NET_RING; 2],
}

/// One frame: a row of elements of the fragment ring. Extensions may follow it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct NET_PACKET {
    pub FragmentIndex: u32,
    pub FragmentCount: u16,
    pub Layout: NET_PACKET_LAYOUT,
    /// `Ignore`, `Scratch` and six reserved bits.
    pub Flags: u8,
}

impl NET_PACKET {
    /// `Ignore`: the packet is neither sent nor indicated.
    pub const IGNORE: u8 = 0x01;
    /// `Scratch`: the client driver's own.
    pub const SCRATCH: u8 = 0x02;

    #[must_use]
    pub const fn ignore(&self) -> bool {
        self.Flags & Self::IGNORE != 0
    }

    #[must_use]
    pub const fn scratch(&self) -> bool {
        self.Flags & Self::SCRATCH != 0
    }
}

/// The headers of a packet, as bits: lengths of 7, 9 and 8 bits, types of 4 bits each, 4 reserved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(transparent)]
pub struct NET_PACKET_LAYOUT(pub [u8; 5]);

pub const NetPacketLayer2TypeUnspecified: u8 = 0;
pub const NetPacketLayer2TypeNull: u8 = 1;
pub const NetPacketLayer2TypeEthernet: u8 = 2;
pub const NetPacketLayer3TypeUnspecified: u8 = 0;
pub const NetPacketLayer3TypeIPv4UnspecifiedOptions: u8 = 1;
pub const NetPacketLayer3TypeIPv4WithOptions: u8 = 2;
pub const NetPacketLayer3TypeIPv4NoOptions: u8 = 3;
pub const NetPacketLayer3TypeIPv6UnspecifiedExtensions: u8 = 4;
pub const NetPacketLayer3TypeIPv6WithExtensions: u8 = 5;
pub const NetPacketLayer3TypeIPv6NoExtensions: u8 = 6;
pub const NetPacketLayer4TypeUnspecified: u8 = 0;
pub const NetPacketLayer4TypeTcp: u8 = 1;
pub const NetPacketLayer4TypeUdp: u8 = 2;
pub const NetPacketLayer4TypeIPFragment: u8 = 3;
pub const NetPacketLayer4TypeIPNotFragment: u8 = 4;

impl NET_PACKET_LAYOUT {
    /// An Ethernet frame of which nothing is said but the length of its first header.
    #[must_use]
    pub const fn ethernet(header_len: u8) -> Self {
        Self([header_len & 0x7f, 0, 0, NetPacketLayer2TypeEthernet, 0])
    }

    #[must_use]
    pub const fn layer2_header_len(self) -> u8 {
        self.0[0] & 0x7f
    }

    #[must_use]
    pub const fn layer3_header_len(self) -> u16 {
        u16::from_le_bytes([self.0[0], self.0[1]]) >> 7
    }

    #[must_use]
    pub const fn layer4_header_len(self) -> u8 {
        self.0[2]
    }

    #[must_use]
    pub const fn layer2_type(self) -> u8 {
        self.0[3] & 0x0f
    }

    #[must_use]
    pub const fn layer3_type(self) -> u8 {
        self.0[3] >> 4
    }

    #[must_use]
    pub const fn layer4_type(self) -> u8 {
        self.0[4] & 0x0f
    }

    /// `Reserved0`.
    #[must_use]
    pub const fn reserved(self) -> u8 {
        self.0[4] >> 4
    }
}

/// One buffer of a packet, as bits: 26 of `ValidLength`, 26 of `Capacity`, 10 of `Offset`, `Scratch`,
/// `OsReserved_Bounced`. Extensions follow it, the buffer's address among them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(transparent)]
pub struct NET_FRAGMENT(pub u64);

impl NET_FRAGMENT {
    const LENGTH_MASK: u64 = (1 << 26) - 1;
    const OFFSET_MASK: u64 = (1 << 10) - 1;
    /// `Scratch`: the client driver's own.
    pub const SCRATCH: u64 = 1 << 62;
    /// `OsReserved_Bounced`.
    pub const BOUNCED: u64 = 1 << 63;
    /// The most that a fragment holds.
    pub const CAPACITY_MAX: usize = Self::LENGTH_MASK as usize;

    #[must_use]
    pub const fn new(valid_len: usize, capacity: usize, offset: usize) -> Self {
        let lengths =
            (valid_len as u64 & Self::LENGTH_MASK) | (capacity as u64 & Self::LENGTH_MASK) << 26;
        Self(lengths | (offset as u64 & Self::OFFSET_MASK) << 52)
    }

    #[must_use]
    pub const fn valid_len(self) -> usize {
        (self.0 & Self::LENGTH_MASK) as usize
    }

    #[must_use]
    pub const fn capacity(self) -> usize {
        (self.0 >> 26 & Self::LENGTH_MASK) as usize
    }

    #[must_use]
    pub const fn offset(self) -> usize {
        (self.0 >> 52 & Self::OFFSET_MASK) as usize
    }

    /// The same buffer with other data: all of its other bits stay.
    #[must_use]
    pub const fn with_data(self, valid_len: usize, offset: usize) -> Self {
        let kept = self.0 & (Self::LENGTH_MASK << 26 | Self::SCRATCH | Self::BOUNCED);
        Self(kept | Self::new(valid_len, 0, offset).0)
    }
}

/// Where the elements of one extension lie. `Reserved` holds the place of the first and their distance, as the
/// documented `NetExtensionGetData` uses them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_EXTENSION {
    pub Reserved: [*mut c_void; 4],
    /// A union of `BOOLEAN` and a pointer.
    pub Enabled: usize,
}

impl NET_EXTENSION {
    /// An extension that no queue has.
    pub const NONE: Self = Self { Reserved: [core::ptr::null_mut(); 4], Enabled: 0 };

    /// `NetExtensionGetData`: the extension of the element at `index`.
    #[must_use]
    pub fn data(&self, index: u32) -> *mut c_void {
        self.Reserved[0].wrapping_byte_add(self.Reserved[1].addr() * index as usize)
    }
}

/// The extension [`NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_NAME`]: where the buffer of a fragment begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_FRAGMENT_VIRTUAL_ADDRESS {
    pub VirtualAddress: *mut c_void,
}

/// The name of the extension, for [`NET_EXTENSION_QUERY`].
pub const NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_NAME: &str = "ms_fragment_virtualaddress";
pub const NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_VERSION_1: u32 = 1;

/// The question for an extension.
#[derive(Debug)]
#[repr(C)]
pub struct NET_EXTENSION_QUERY {
    pub Size: u32,
    /// UTF-16, with a zero at the end.
    pub Name: *const u16,
    pub Version: u32,
    pub Type: u32,
}

/// `NetExtensionTypeFragment` of `NET_EXTENSION_TYPE`.
pub const NetExtensionTypeFragment: u32 = 2;

macro_rules! layout {
    ($name:ident, $size:expr, $($member:ident: $offset:expr),* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(offset_of!($name, $member) == $offset);)*
        };
    };
}

// The first element stands right behind.
layout!(
    NET_RING, SYSTEM_CACHE_ALIGNMENT_SIZE,
    OSReserved1: 0, ElementStride: 2, NumberOfElements: 4, ElementIndexMask: 8, EndIndex: 12,
    OSReserved2: 16, BeginIndex: 48, NextIndex: 52, Scratch: 56,
);
layout!(NET_RING_COLLECTION, 16, Rings: 0);
layout!(NET_PACKET, 12, FragmentIndex: 0, FragmentCount: 4, Layout: 6, Flags: 11);
layout!(NET_PACKET_LAYOUT, 5,);
layout!(NET_FRAGMENT, 8,);
layout!(NET_EXTENSION, 40, Reserved: 0, Enabled: 32);
layout!(NET_FRAGMENT_VIRTUAL_ADDRESS, 8, VirtualAddress: 0);
layout!(NET_EXTENSION_QUERY, 24, Size: 0, Name: 8, Version: 16, Type: 20);

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the bits: each member is all ones, once.
    #[test]
    fn the_bits_of_a_fragment_are_disjoint_and_complete() {
        let members = [
            NET_FRAGMENT::new(usize::MAX, 0, 0).0,
            NET_FRAGMENT::new(0, usize::MAX, 0).0,
            NET_FRAGMENT::new(0, 0, usize::MAX).0,
            NET_FRAGMENT::SCRATCH,
            NET_FRAGMENT::BOUNCED,
        ];
        assert_eq!(members.map(u64::count_ones), [26, 26, 10, 1, 1]);
        assert_eq!(members.iter().fold(0, |all, bits| all | bits), u64::MAX);
        let fragment = NET_FRAGMENT(NET_FRAGMENT::new(7, 2048, 9).0 | NET_FRAGMENT::BOUNCED);
        let other = fragment.with_data(60, 0);
        assert_eq!((other.valid_len(), other.capacity(), other.offset()), (60, 2048, 0));
        assert_eq!(other.0 & NET_FRAGMENT::BOUNCED, NET_FRAGMENT::BOUNCED);
    }

    #[test]
    fn the_members_of_a_layout_are_where_a_c_compiler_puts_them() {
        // 7 bits of 14, 9 bits of 20, 8 bits of 8, then four halves of bytes.
        let layout = NET_PACKET_LAYOUT([14 | (20 << 7) as u8, (20 << 7 >> 8) as u8, 8, 0x32, 0x52]);
        assert_eq!(
            (layout.layer2_header_len(), layout.layer3_header_len(), layout.layer4_header_len()),
            (14, 20, 8)
        );
        assert_eq!((layout.layer2_type(), layout.layer3_type()), (2, 3));
        assert_eq!((layout.layer4_type(), layout.reserved()), (2, 5));
        let ethernet = NET_PACKET_LAYOUT::ethernet(14);
        assert_eq!((ethernet.layer2_header_len(), ethernet.layer2_type()), (14, 2));
    }
}
