//! Memory as NetAdapterCx shares it: rings, buffers between guards, and images of rings at one moment.

use core::ptr::NonNull;
use netadapter_glue::netadapter::abi::*;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::vec::Vec;

/// Zeroed memory that others write to, by pointers of their own.
pub(super) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it belongs to no thread; its writers take turns.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, 128).expect("a length of a test");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, layout }
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.layout.size());
        self.base.as_ptr().wrapping_add(offset)
    }

    pub(super) fn copy(&self) -> Vec<u8> {
        // SAFETY: all of it is initialised, and no call is in progress.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.layout.size()) }.to_vec()
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        let to = self.base.as_ptr().wrapping_add(offset);
        // SAFETY: the place lies in the memory, and no call is in progress.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A ring of the system.
pub(super) struct OwnedRing {
    memory: Memory,
    pub(super) size: u32,
    stride: usize,
}

const END_INDEX: usize = 12;
/// The members before it are the system's.
const BEGIN_INDEX: usize = 48;
const NEXT_INDEX: usize = 52;
const HEADER: usize = size_of::<NET_RING>();

impl OwnedRing {
    pub(super) fn new(stride: usize, size: u32) -> Self {
        assert!(size.is_power_of_two() && size > 1, "a size of a ring");
        let memory = Memory::new(HEADER + stride * size as usize);
        memory.write(2, &(stride as u16).to_le_bytes());
        memory.write(4, &size.to_le_bytes());
        memory.write(8, &(size - 1).to_le_bytes());
        Self { memory, size, stride }
    }

    pub(super) fn as_ptr(&self) -> *mut NET_RING {
        self.memory.at(0).cast()
    }

    pub(super) fn element(&self, index: u32) -> *mut u8 {
        assert!(index < self.size);
        self.memory.at(HEADER + self.stride * index as usize)
    }

    /// All indices become 0, as at the start of a queue.
    pub(super) fn reset(&self) {
        self.memory.write(END_INDEX, &[0; 4]);
        self.memory.write(BEGIN_INDEX, &[0; 8]);
    }

    pub(super) fn set_end(&self, index: u32) {
        self.memory.write(END_INDEX, &index.to_le_bytes());
    }

    /// Any member of the header, for a driver that breaks a rule.
    pub(super) fn set_member(&self, offset: usize, value: u32) {
        self.memory.write(offset, &value.to_le_bytes());
    }

    pub(super) fn set_element(&self, index: u32, bytes: &[u8]) {
        assert!(bytes.len() <= self.stride);
        self.memory.write(HEADER + self.stride * index as usize, bytes);
    }

    pub(super) fn image(&self) -> Image {
        Image { bytes: self.memory.copy(), size: self.size, stride: self.stride }
    }
}

/// A ring at one moment.
#[derive(Clone)]
pub(super) struct Image {
    bytes: Vec<u8>,
    size: u32,
    stride: usize,
}

impl Image {
    /// The members that a driver never writes.
    pub(super) fn system_members(&self) -> &[u8] {
        &self.bytes[..BEGIN_INDEX]
    }

    fn number(&self, offset: usize) -> u32 {
        let bytes = self.bytes[offset..offset + 4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes"))
    }

    pub(super) fn begin(&self) -> u32 {
        self.number(BEGIN_INDEX)
    }

    pub(super) fn next(&self) -> u32 {
        self.number(NEXT_INDEX)
    }

    pub(super) fn end(&self) -> u32 {
        self.number(END_INDEX)
    }

    pub(super) fn advance(&self, index: u32, by: u32) -> u32 {
        index.wrapping_add(by) & (self.size - 1)
    }

    pub(super) fn count(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & (self.size - 1)
    }

    /// The indices from `from` up to `to`.
    pub(super) fn range(&self, from: u32, to: u32) -> impl Iterator<Item = u32> {
        (0..self.count(from, to)).map(move |nth| self.advance(from, nth))
    }

    /// Whether an index is the driver's.
    pub(super) fn owns(&self, index: u32) -> bool {
        index < self.size && self.count(self.begin(), index) < self.count(self.begin(), self.end())
    }

    pub(super) fn element(&self, index: u32) -> &[u8] {
        &self.bytes[HEADER + self.stride * index as usize..][..self.stride]
    }

    pub(super) fn packet(&self, index: u32) -> NET_PACKET {
        let bytes = self.element(index);
        NET_PACKET {
            FragmentIndex: u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")),
            FragmentCount: u16::from_le_bytes(bytes[4..6].try_into().expect("two bytes")),
            Layout: NET_PACKET_LAYOUT(bytes[6..11].try_into().expect("five bytes")),
            Flags: bytes[11],
        }
    }

    pub(super) fn fragment(&self, index: u32) -> NET_FRAGMENT {
        NET_FRAGMENT(u64::from_le_bytes(self.element(index)[..8].try_into().expect("eight bytes")))
    }
}

/// The bytes of a packet in its ring.
pub(super) fn packet_bytes(packet: &NET_PACKET) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&packet.FragmentIndex.to_le_bytes());
    bytes[4..6].copy_from_slice(&packet.FragmentCount.to_le_bytes());
    bytes[6..11].copy_from_slice(&packet.Layout.0);
    bytes[11] = packet.Flags;
    bytes
}

/// A buffer with guards around it.
pub(super) struct Buffer {
    memory: Memory,
    capacity: usize,
}

const GUARD: [u8; 64] = [0xa5; 64];

impl Buffer {
    pub(super) fn new(capacity: usize) -> Self {
        let memory = Memory::new(capacity + 2 * GUARD.len());
        memory.write(0, &GUARD);
        memory.write(GUARD.len() + capacity, &GUARD);
        Self { memory, capacity }
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.memory.at(GUARD.len())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.memory.copy()[GUARD.len()..][..self.capacity].to_vec()
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.capacity);
        self.memory.write(GUARD.len() + offset, bytes);
    }

    /// So that a driver that reads it after it went back reads nonsense.
    pub(super) fn spoil(&self) {
        self.memory.write(GUARD.len(), &std::vec![0xdd; self.capacity]);
    }

    pub(super) fn guards_hold(&self) -> bool {
        let bytes = self.memory.copy();
        bytes.starts_with(&GUARD) && bytes.ends_with(&GUARD)
    }
}
