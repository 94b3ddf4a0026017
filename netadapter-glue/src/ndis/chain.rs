//! Walks over chains of net buffer lists, and over the bytes of one frame.

use super::abi::{Ieee8021QNetBufferListInfo, MDL, NET_BUFFER, NET_BUFFER_LIST};
use core::ptr::{null_mut, without_provenance_mut};

/// A chain of lists under construction, in order.
#[derive(Debug)]
pub struct Chain {
    head: *mut NET_BUFFER_LIST,
    tail: *mut NET_BUFFER_LIST,
    len: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// An empty chain.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: null_mut(), tail: null_mut(), len: 0 }
    }

    /// The first list, for the call that takes the chain; null where it is empty.
    #[must_use]
    pub const fn head(&self) -> *mut NET_BUFFER_LIST {
        self.head
    }

    /// Lists in the chain.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether the chain is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends one list, whatever it was linked to before.
    ///
    /// # Safety
    /// `nbl` and all lists of the chain are valid and nobody else's.
    pub unsafe fn push(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: the caller's promise.
        unsafe { (*nbl).Next = null_mut() };
        if self.tail.is_null() {
            self.head = nbl;
        } else {
            // SAFETY: as above; the tail is a list of the chain.
            unsafe { (*self.tail).Next = nbl };
        }
        self.tail = nbl;
        self.len += 1;
    }
}

/// Calls `each` with every list of a chain. The successor is read before the call, so `each` may pass its
/// list on.
///
/// # Safety
/// `head` is null or a chain of valid lists that are the caller's.
pub unsafe fn for_each(head: *mut NET_BUFFER_LIST, mut each: impl FnMut(*mut NET_BUFFER_LIST)) {
    let mut next = head;
    while !next.is_null() {
        let nbl = next;
        // SAFETY: the caller's promise.
        next = unsafe { (*nbl).Next };
        each(nbl);
    }
}

/// Maps an MDL that has no system address yet; null where that fails.
pub type MapMdl<'a> = &'a dyn Fn(*mut MDL) -> *mut u8;

/// The bytes of one frame, piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    mdl: *mut MDL,
    offset: usize,
    len: usize,
}

impl Frame {
    /// The frame of a net buffer.
    ///
    /// # Safety
    /// `nb` is valid and stays unchanged while the value is used.
    #[must_use]
    pub unsafe fn of(nb: *const NET_BUFFER) -> Self {
        // SAFETY: the caller's promise.
        let nb = unsafe { &*nb };
        // `DataLength` is a ULONG in a union with a SIZE_T: the upper half means nothing.
        let len = nb.DataLength & 0xffff_ffff;
        Self { mdl: nb.CurrentMdl, offset: nb.CurrentMdlOffset as usize, len }
    }

    /// Bytes from the destination address on.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rest of the frame behind its first `len` bytes.
    #[must_use]
    pub const fn behind(self, len: usize) -> Self {
        Self { mdl: self.mdl, offset: self.offset + len, len: self.len.saturating_sub(len) }
    }

    /// Its first `len` bytes, or all of it.
    #[must_use]
    pub fn first(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// The address of the frame, if it lies in one piece.
    ///
    /// # Safety
    /// The MDLs are valid.
    #[must_use]
    pub unsafe fn contiguous(&self, map: MapMdl<'_>) -> Option<*const u8> {
        // SAFETY: the caller's promise.
        let mdl = unsafe { self.mdl.as_ref() }?;
        if (mdl.ByteCount as usize).checked_sub(self.offset)? < self.len {
            return None;
        }
        let address = system_address(self.mdl, mdl, map);
        (!address.is_null()).then(|| address.wrapping_add(self.offset).cast_const())
    }

    /// Copies the first bytes of the frame into `out`. Returns their number, which is less than the length
    /// of `out` where the frame is shorter or cannot be mapped.
    ///
    /// # Safety
    /// The MDLs are valid, and the memory that they describe is readable.
    #[must_use]
    pub unsafe fn copy_to(&self, out: &mut [u8], map: MapMdl<'_>) -> usize {
        let wanted = self.len.min(out.len());
        let (mut done, mut offset, mut next) = (0, self.offset, self.mdl);
        while done < wanted {
            // SAFETY: the caller's promise; null ends the chain.
            let Some(mdl) = (unsafe { next.as_ref() }) else { break };
            let here = (mdl.ByteCount as usize).saturating_sub(offset).min(wanted - done);
            if here > 0 {
                let address = system_address(next, mdl, map);
                if address.is_null() {
                    break;
                }
                let from = address.wrapping_add(offset);
                // SAFETY: `here` bytes of the MDL from `offset` on, and as many of `out`.
                unsafe { core::ptr::copy_nonoverlapping(from, out[done..].as_mut_ptr(), here) };
                done += here;
            }
            offset = offset.saturating_sub(mdl.ByteCount as usize);
            next = mdl.Next;
        }
        done
    }
}

fn system_address(pointer: *mut MDL, mdl: &MDL, map: MapMdl<'_>) -> *mut u8 {
    mdl.system_address().unwrap_or_else(|| map(pointer))
}

/// The tag of a frame whose VLAN tag travels beside it, as `NDIS_NET_BUFFER_LIST_8021Q_INFO`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tag(u16);

impl Tag {
    /// From the tag control information of a tag in the frame.
    #[must_use]
    pub const fn from_tci(tci: u16) -> Self {
        Self(tci)
    }

    /// The two bytes behind the tag's EtherType.
    #[must_use]
    pub const fn tci(self) -> u16 {
        self.0
    }

    /// User priority in bits 0 to 2, canonical format in bit 3, VLAN in bits 4 to 15.
    #[must_use]
    pub const fn to_info(self) -> usize {
        let (priority, canonical, vlan) = (self.0 >> 13, self.0 >> 12 & 1, self.0 & 0xfff);
        (priority | canonical << 3 | vlan << 4) as usize
    }

    /// The tag of an out-of-band value; `None`: neither priority nor VLAN.
    #[must_use]
    pub const fn from_info(info: usize) -> Option<Self> {
        let info = info as u16;
        if info == 0 {
            return None;
        }
        Some(Self((info & 7) << 13 | (info >> 3 & 1) << 12 | info >> 4))
    }

    /// The tag beside a list's frames.
    ///
    /// # Safety
    /// `nbl` is valid.
    #[must_use]
    pub unsafe fn beside(nbl: *const NET_BUFFER_LIST) -> Option<Self> {
        // SAFETY: the caller's promise.
        let info = unsafe { (*nbl).NetBufferListInfo[Ieee8021QNetBufferListInfo] };
        Self::from_info(info.addr())
    }
}

/// Puts `tag` beside a list's frames, in the place of the one that is there.
///
/// # Safety
/// `nbl` is valid, and the caller's.
pub unsafe fn put_beside(nbl: *mut NET_BUFFER_LIST, tag: Option<Tag>) {
    let info = without_provenance_mut(tag.map_or(0, Tag::to_info));
    // SAFETY: the caller's promise.
    unsafe { (*nbl).NetBufferListInfo[Ieee8021QNetBufferListInfo] = info };
}

/// Puts `tag` into the untagged frame of `len` bytes at the start of `buffer`; returns the new
/// length, or `None` where there is no room or no Ethernet header.
pub fn insert_tag(buffer: &mut [u8], len: usize, tag: Tag) -> Option<usize> {
    let tagged = len + TAG_LEN;
    if len < MACS_LEN || tagged > buffer.len() {
        return None;
    }
    buffer.copy_within(MACS_LEN..len, MACS_LEN + TAG_LEN);
    buffer[MACS_LEN..MACS_LEN + 2].copy_from_slice(&TPID);
    buffer[MACS_LEN + 2..MACS_LEN + TAG_LEN].copy_from_slice(&tag.tci().to_be_bytes());
    Some(tagged)
}

/// Whether the frame has a tag.
pub(crate) fn is_tagged(frame: &[u8]) -> bool {
    frame.get(MACS_LEN..MACS_LEN + 2) == Some(&TPID)
}

/// Takes the tag out of a frame: the addresses move up to the EtherType, so the frame then begins
/// [`TAG_LEN`] bytes later.
pub fn remove_tag(frame: &mut [u8]) -> Option<Tag> {
    let [.., tpid0, tpid1, tci0, tci1] = *frame.first_chunk::<{ MACS_LEN + TAG_LEN }>()?;
    if [tpid0, tpid1] != TPID {
        return None;
    }
    frame.copy_within(..MACS_LEN, TAG_LEN);
    Some(Tag::from_tci(u16::from_be_bytes([tci0, tci1])))
}

/// Bytes of a VLAN tag.
pub const TAG_LEN: usize = 4;
/// Bytes of the two addresses before it.
const MACS_LEN: usize = 12;
/// EtherType of an IEEE 802.1Q tag.
const TPID: [u8; 2] = [0x81, 0x00];
