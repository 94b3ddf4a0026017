//! Frames and units of the poll core on their way out.

use super::abi::{NET_BUFFER_LIST, NET_BUFFER_LIST_INFO_COUNT, UdpSegmentationOffloadInfo};
use super::chain::{self, Chain, TAG_LEN};
use super::units::{Offers, UDP_LEN, Version, segmentation_info};
use super::{Lower, OWNER_SLOT, PORT_SLOT};
use crate::auto_traits::auto_traits;
use crate::segment::{patch, split};
use crate::{SHORT_RUN, Segments, Slot, Transmit};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::{null_mut, without_provenance_mut};

/// Segments of a unit, at most.
pub(super) const UNIT_MAX_SEGMENTS: usize = 32;
/// Bytes of a unit, at most: fewer than NICs take, because the buffers are there from the start.
pub const UNIT_MAX_LEN: usize = 32 << 10;
/// Shortest headers of a unit: Ethernet, IPv4, UDP.
const HEADERS_MIN_LEN: usize = 42;

/// Places of buffers.
pub(super) type Places = heapless::Vec<u32, SHORT_RUN>;

/// The buffers of an edge: those for frames, and behind them those for units.
pub(super) struct SendBuffers {
    all: Vec<SendBuffer>,
    /// The number of those for frames.
    frames: usize,
    /// Bytes of a frame's buffer.
    frame_len: usize,
    /// Places of buffers that may be filled, last in first out.
    free_frames: Vec<u32>,
    free_units: Vec<u32>,
}

struct SendBuffer {
    bytes: Box<[u8]>,
    nbl: *mut NET_BUFFER_LIST,
}

// SAFETY: a list belongs to the driver, not to a thread.
unsafe impl Send for SendBuffer {}

auto_traits! {
    SendBuffers: (Send, !Sync);
    Outgoing: (!Send, !Sync);
}

/// Lists to be sent, and their traffic.
pub(super) struct Outgoing {
    pub(super) chain: Chain,
    /// Frames on the wire.
    pub(super) frames: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Frames for which there was no buffer.
    pub(super) given_up: u64,
}

impl SendBuffers {
    /// None yet, with room for so many.
    pub(super) fn new(frames: usize, frame_len: usize, units: usize) -> Self {
        Self {
            all: Vec::with_capacity(frames + units),
            frames,
            frame_len,
            free_frames: Vec::with_capacity(frames),
            free_units: Vec::with_capacity(units),
        }
    }

    /// Adds one more of the port with this number, for a frame or, once there are those, for a unit; `None` for lack of lists.
    /// PASSIVE_LEVEL.
    pub(super) fn add(&mut self, lower: &dyn Lower, port: usize) -> Option<()> {
        let place = self.all.len();
        let len = if place < self.frames { self.frame_len } else { UNIT_MAX_LEN };
        let mut bytes: Box<[u8]> = vec![0; len].into();
        let nbl = lower.allocate(bytes.as_mut_ptr(), len);
        if nbl.is_null() {
            return None;
        }
        // SAFETY: just allocated, and ours.
        let owner = unsafe { &mut (*nbl).ProtocolReserved };
        owner[OWNER_SLOT] = without_provenance_mut(place);
        owner[PORT_SLOT] = without_provenance_mut(port);
        self.all.push(SendBuffer { bytes, nbl });
        self.release(place as u32);
        Some(())
    }

    /// Frees all that are at home. PASSIVE_LEVEL.
    pub(super) fn free(&mut self, lower: &dyn Lower) {
        let mut home = vec![false; self.all.len()];
        for &place in self.free_frames.iter().chain(&self.free_units) {
            home[place as usize] = true;
        }
        for (buffer, home) in self.all.drain(..).zip(home) {
            if home {
                lower.free(buffer.nbl);
            } else {
                debug_assert!(home, "a send outlives its edge");
                core::mem::forget(buffer);
            }
        }
    }

    /// The number of those that are not free.
    pub(super) fn out(&self) -> usize {
        self.all.len() - self.free_frames.len() - self.free_units.len()
    }

    /// Makes a buffer free.
    pub(super) fn release(&mut self, place: u32) {
        let is_frame = (place as usize) < self.frames;
        let free = if is_frame { &mut self.free_frames } else { &mut self.free_units };
        free.push(place);
    }

    /// Bytes of a unit that a NIC with these offers may divide; 0 where a frame is all.
    pub(super) fn room(&self, offers: &Offers) -> usize {
        let room = UNIT_MAX_LEN.min(HEADERS_MIN_LEN + offers.max_len());
        if offers.max_len() > 0 && room > self.frame_len { room } else { 0 }
    }

    /// Takes up to `count` free buffers; with `room` for units, those first.
    pub(super) fn lend(&mut self, count: usize, room: usize) -> Places {
        let mut lent = Places::new();
        while lent.len() < count {
            let unit = if room > 0 { self.free_units.pop() } else { None };
            let Some(place) = unit.or_else(|| self.free_frames.pop()) else { break };
            // No run is longer than the list.
            let _ = lent.push(place);
        }
        lent
    }

    /// Has `fill` write into lent buffers, of which a unit takes `room` bytes, and describe in `units` what it has written.
    /// Returns their number.
    pub(super) fn fill(
        &mut self,
        lent: &Places,
        room: usize,
        units: &mut [Transmit; SHORT_RUN],
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> usize {
        let Self { all, frame_len, .. } = self;
        let room = room.max(*frame_len);
        let places = || lent.iter().map(|place| *place as usize);
        // Taken out, because safe code lends no two elements of a list by their places.
        let mut run: heapless::Vec<Box<[u8]>, SHORT_RUN> =
            places().map(|place| core::mem::take(&mut all[place].bytes)).collect();
        let lend = |(bytes, unit)| {
            let (bytes, unit): (&mut Box<[u8]>, _) = (bytes, unit);
            let len = bytes.len().min(room);
            Slot { buffer: &mut bytes[..len], unit }
        };
        let mut slots: heapless::Vec<Slot<'_>, SHORT_RUN> =
            run.iter_mut().zip(units).map(lend).collect();
        let filled = if lent.is_empty() { 0 } else { fill(&mut slots) };
        drop(slots);
        for (place, bytes) in places().zip(run) {
            all[place].bytes = bytes;
        }
        filled
    }

    /// Puts a filled buffer on its way: a unit to the NIC as it is, as far as that divides it, the rest as frames.
    pub(super) fn send(&mut self, place: u32, unit: Transmit, offers: &Offers, out: &mut Outgoing) {
        let several = |segments: &Segments| segments.count(unit.len) > 1;
        match unit.segments.filter(several) {
            Some(segments) => self.send_unit(place, unit.len, segments, offers, out),
            None => self.send_frame(place, unit.len, out),
        }
    }

    fn send_frame(&mut self, place: u32, len: usize, out: &mut Outgoing) {
        let buffer = &mut self.all[place as usize];
        buffer.dress(len);
        out.push(buffer.nbl, 1, len);
    }

    #[inline(never)]
    fn send_unit(
        &mut self,
        place: u32,
        len: usize,
        segments: Segments,
        offers: &Offers,
        out: &mut Outgoing,
    ) {
        let Segments { header_len, segment_len } = segments;
        let bytes = &self.all[place as usize].bytes[..len];
        let version = Version::of(&bytes[..header_len]);
        let tagged = chain::is_tagged(bytes);
        let divided = version
            .map_or(0, |version| offers.of(version).divides(segment_len, len - header_len, tagged));
        // Taken from the unit before its headers change, and sent behind it.
        let rest = self.split_off(place, len, segments, divided, out);
        if let (Some(version), 1..) = (version, divided) {
            let unit_len = len.min(header_len + divided * segment_len);
            let buffer = &mut self.all[place as usize];
            buffer.dress_unit(unit_len, segments, version);
            out.push(buffer.nbl, divided, unit_len + (divided - 1) * header_len);
        } else {
            self.release(place);
        }
        for (place, len) in rest {
            self.send_frame(place, len, out);
        }
    }

    /// Copies the segments of a unit from number `from` on into buffers for frames; their places and lengths.
    fn split_off(
        &mut self,
        place: u32,
        len: usize,
        segments: Segments,
        from: usize,
        out: &mut Outgoing,
    ) -> heapless::Vec<(u32, usize), UNIT_MAX_SEGMENTS> {
        let mut rest = heapless::Vec::new();
        if from == segments.count(len) {
            return rest;
        }
        let bytes = core::mem::take(&mut self.all[place as usize].bytes);
        for segment in split(&bytes[..len], Some(segments)).starting_at(from) {
            // The one place of the unit's segments that may find no buffer: the transport sends again what is lost.
            let Some(frame) = self.free_frames.pop() else {
                out.given_up += 1;
                continue;
            };
            let len = segment.copy_to(&mut self.all[frame as usize].bytes);
            // No unit has more segments than the list has room for.
            let _ = rest.push((frame, len));
        }
        self.all[place as usize].bytes = bytes;
        rest
    }
}

impl Outgoing {
    pub(super) const fn new() -> Self {
        Self { chain: Chain::new(), frames: 0, bytes: 0, given_up: 0 }
    }

    /// Appends a list that becomes so many frames of so many bytes in all.
    fn push(&mut self, nbl: *mut NET_BUFFER_LIST, frames: usize, bytes: usize) {
        // SAFETY: the list is ours until it is sent, as are those before it.
        unsafe { self.chain.push(nbl) };
        self.frames += frames as u64;
        self.bytes += bytes as u64;
    }
}

impl SendBuffer {
    /// Describes a frame of `len` bytes at the start of the buffer. A tag travels beside it, where
    /// every NIC that inserts tags looks for it. Returns the offset at which the frame then begins.
    fn dress(&mut self, len: usize) -> usize {
        assert!(len <= self.bytes.len(), "a unit fits into the buffer that was lent");
        let tag = chain::remove_tag(&mut self.bytes[..len]);
        let offset = if tag.is_some() { TAG_LEN } else { 0 };
        // SAFETY: the list is ours, with the net buffer that it was allocated with.
        let nbl = unsafe { &mut *self.nbl };
        nbl.Next = null_mut();
        // A driver below may have left values on which another would act: no NIC shall compute anything
        // here but what it is told below.
        (nbl.NblFlags, nbl.Status) = (0, 0);
        nbl.NetBufferListInfo = [null_mut(); NET_BUFFER_LIST_INFO_COUNT];
        // SAFETY: as above.
        unsafe { chain::put_beside(nbl, tag) };
        // SAFETY: as above.
        let nb = unsafe { &mut *nbl.FirstNetBuffer };
        nb.DataOffset = offset as u32;
        nb.DataLength = len - offset;
        nb.CurrentMdl = nb.MdlChain;
        nb.CurrentMdlOffset = offset as u32;
        offset
    }

    /// Describes a unit of `len` bytes, which the NIC divides. Its headers are those of one datagram; a UDP checksum of zero has the
    /// NIC compute none, and it counts the IPv4 identification on, as the ICRC of each segment expects.
    fn dress_unit(&mut self, len: usize, segments: Segments, version: Version) {
        let Segments { header_len, segment_len } = segments;
        patch(&mut self.bytes[..header_len], 0, len - header_len);
        let udp = header_len - UDP_LEN - self.dress(len);
        let info = without_provenance_mut(segmentation_info(segment_len, udp, version));
        // SAFETY: the list is ours.
        unsafe { (*self.nbl).NetBufferListInfo[UdpSegmentationOffloadInfo] = info };
    }
}
