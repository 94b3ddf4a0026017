//! The ring between the thread that posts initiator requests and the core that executes them.
//!
//! A request is written once, where it stays until it ends: one cache line with up to two elements, and
//! another line for each four more. The number of lines is that of the queue's largest request, so the memory
//! follows what the queue was created for. The lines are atomics, because two threads touch them; the counts
//! say whose an entry is, so all other accesses are relaxed.

use super::work::{MAX_MESSAGE, MAX_SGE, PostError, SendOp, SendWr, Sge, WcKind, WcStatus};
use crate::env::RegionId;
use crate::ids::{Lkey, Rkey};
use crate::mr::{Access, Bind, Mapping};
use alloc::boxed::Box;
use alloc::sync::Arc;
use atomic::{AtomicU32, AtomicU64};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(not(all(loom, test)))]
use core::sync::atomic;
#[cfg(all(loom, test))]
use loom::sync::atomic;

/// Words of a line.
const WORDS: usize = 8;
/// The words of an entry: the caller's name; operation, flags, number of elements, state and key; the peer's
/// address; the length. Two words for each element follow.
const ID: usize = 0;
const HEAD: usize = 1;
const VA: usize = 2;
const LEN: usize = 3;
const ELEMENTS: usize = 4;

/// The fields of [`HEAD`]: operation and flags in a byte each, then the number of elements, the state, which
/// is the core's, and from bit 32 on a key.
const SOLICITED: u64 = 1 << 8;
const READ_FENCE: u64 = 1 << 9;
const SILENT: u64 = 1 << 10;
const COUNT_SHIFT: u32 = 16;
const EXECUTED: u64 = 1 << 24;
const FAULT_SHIFT: u32 = 25;
const KEY_SHIFT: u32 = 32;

/// The operations, in the low byte of [`HEAD`].
const SEND: u8 = 0;
const SEND_INVALIDATE: u8 = 1;
const WRITE: u8 = 2;
const READ: u8 = 3;
const READ_INVALIDATE: u8 = 4;
const FAST_REGISTER: u8 = 5;
const INVALIDATE: u8 = 6;
const BIND: u8 = 7;

/// Faults found while sending, in the order of their codes from 1 on.
const FAULTS: [WcStatus; 4] = [
    WcStatus::LocalProtection,
    WcStatus::LocalQpOperation,
    WcStatus::MemoryManagement,
    WcStatus::MemoryBind,
];

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

/// A count with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicU32);

#[derive(Debug)]
struct Ring {
    lines: Box<[Line]>,
    /// Lines of an entry.
    stride: usize,
    depth: u32,
    /// Entries ever posted, written by the poster.
    posted: Count,
    /// Entries ever ended, written by the core.
    ended: Count,
}

impl Ring {
    fn entry(&self, place: u32) -> &[Line] {
        let begin = place as usize * self.stride;
        self.lines.get(begin..begin + self.stride).unwrap_or_default()
    }

    const fn after(&self, place: u32) -> u32 {
        if place + 1 == self.depth { 0 } else { place + 1 }
    }
}

/// Lines of a request with this many elements.
const fn stride(max_sge: usize) -> usize {
    let sge = if max_sge < MAX_SGE { max_sge } else { MAX_SGE };
    (ELEMENTS + 2 * sge).div_ceil(WORDS)
}

/// The end of an initiator queue where requests are posted. It may be on another thread than the
/// [`Device`](crate::Device), which has to hear of a post by
/// [`Device::ring_doorbell`](crate::Device::ring_doorbell).
#[derive(Debug)]
pub struct SendPoster {
    ring: Arc<Ring>,
    /// Of the next request.
    place: u32,
    posted: u32,
    /// As last looked at.
    ended: u32,
}

impl SendPoster {
    /// The memory of a queue for `depth` requests of at most `max_sge` elements.
    pub const fn queue_bytes(depth: usize, max_sge: usize) -> usize {
        size_of::<Ring>() + 2 * align_of::<Ring>() + depth * stride(max_sge) * size_of::<Line>()
    }

    /// Whether another request fits.
    pub fn has_room(&mut self) -> bool {
        if self.posted.wrapping_sub(self.ended) >= self.ring.depth {
            self.ended = self.ring.ended.0.load(Acquire);
        }
        self.posted.wrapping_sub(self.ended) < self.ring.depth
    }

    /// The place of the next request among those that the queue holds. It is free of a request if there is
    /// room.
    pub const fn place(&self) -> usize {
        self.place as usize
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], or [`PostError::TooManyElements`]: nothing was queued.
    pub fn post<S: IntoIterator<Item = Sge>>(&mut self, wr: SendWr<S>) -> Result<(), PostError> {
        if !self.has_room() {
            return Err(PostError::QueueFull);
        }
        write(self.ring.entry(self.place), wr)?;
        self.place = self.ring.after(self.place);
        self.posted = self.posted.wrapping_add(1);
        self.ring.posted.0.store(self.posted, Release);
        Ok(())
    }
}

/// Writes an entry, which is not published yet.
fn write<S: IntoIterator<Item = Sge>>(entry: &[Line], wr: SendWr<S>) -> Result<(), PostError> {
    let set = |word: usize, value: u64| {
        let line = entry.get(word / WORDS).ok_or(PostError::TooManyElements)?;
        line.0[word % WORDS].store(value, Relaxed);
        Ok(())
    };
    let (mut count, mut len) = (0, 0);
    let (op, key, va) = match wr.op {
        SendOp::Send => (SEND, 0, 0),
        SendOp::SendInvalidate(key) => (SEND_INVALIDATE, key.get(), 0),
        SendOp::Write { va, rkey } => (WRITE, rkey.get(), va),
        SendOp::Read { va, rkey } => (READ, rkey.get(), va),
        SendOp::ReadInvalidate { va, rkey } => (READ_INVALIDATE, rkey.get(), va),
        SendOp::FastRegister { key, mapping } => {
            let Mapping { region, offset, base, len: mapped, access } = mapping;
            set(LEN, base)?;
            set(ELEMENTS, u64::from(region.0) | u64::from(offset) << 32)?;
            set(ELEMENTS + 1, mapped)?;
            set(ELEMENTS + 2, access.bits().into())?;
            (FAST_REGISTER, key.get(), 0)
        }
        SendOp::Invalidate(key) => (INVALIDATE, key.get(), 0),
        SendOp::Bind(Bind { window, region, va, len: bound, access }) => {
            set(LEN, bound)?;
            set(ELEMENTS, region.get().into())?;
            set(ELEMENTS + 2, access.bits().into())?;
            (BIND, window.get(), va)
        }
    };
    if op < FAST_REGISTER {
        for sge in wr.sgl {
            set(ELEMENTS + 2 * count, sge.addr)?;
            set(ELEMENTS + 2 * count + 1, u64::from(sge.len) | u64::from(sge.lkey.get()) << 32)?;
            (count, len) = (count + 1, len + u64::from(sge.len));
        }
        set(LEN, len)?;
    }
    let flag = |on, flag| if on { flag } else { 0 };
    let flags =
        flag(wr.solicited, SOLICITED) | flag(wr.read_fence, READ_FENCE) | flag(wr.silent, SILENT);
    set(ID, wr.id)?;
    set(VA, va)?;
    set(HEAD, u64::from(op) | flags | (count as u64) << COUNT_SHIFT | u64::from(key) << KEY_SHIFT)
}

/// The core's end: the entries that it has heard of, oldest first.
#[derive(Debug)]
pub(crate) struct WorkRing {
    ring: Arc<Ring>,
    /// Of the oldest entry.
    first: u32,
    len: u32,
    ended: u32,
    /// Entries ever seen by [`Self::next_window_request`].
    scanned: u32,
}

impl WorkRing {
    /// A ring for `depth` requests of at most `max_sge` elements.
    pub(crate) fn new(depth: usize, max_sge: usize) -> (SendPoster, Self) {
        // Far fewer than 2^32 requests fit the memory.
        let (stride, depth) = (stride(max_sge), depth as u32);
        let lines = (0..depth as usize * stride).map(|_| Line::default()).collect();
        let (posted, ended) = (Count::default(), Count::default());
        let ring = Arc::new(Ring { lines, stride, depth, posted, ended });
        let poster = SendPoster { ring: Arc::clone(&ring), place: 0, posted: 0, ended: 0 };
        (poster, Self { ring, first: 0, len: 0, ended: 0, scanned: 0 })
    }

    /// Takes note of what was posted; returns the number of new entries.
    pub(crate) fn update(&mut self) -> usize {
        let posted = self.ring.posted.0.load(Acquire);
        let new = posted.wrapping_sub(self.ended).wrapping_sub(self.len);
        self.len += new;
        new as usize
    }

    /// The entry with `index` older ones.
    pub(crate) fn get(&self, index: usize) -> Option<Wqe<'_>> {
        let index = u32::try_from(index).ok().filter(|index| *index < self.len)?;
        let place = self.first + index;
        let place = if place < self.ring.depth { place } else { place - self.ring.depth };
        Some(Wqe(self.ring.entry(place)))
    }

    /// The operation of the next entry, of those not seen yet, that binds or may end a window.
    pub(crate) fn next_window_request(&mut self) -> Option<SendOp> {
        // Entries may have ended unseen.
        let mut index = self.scanned.wrapping_sub(self.ended).cast_signed().max(0).cast_unsigned();
        let found = loop {
            let Some(wqe) = self.get(index as usize) else { break None };
            index += 1;
            if wqe.concerns_windows() {
                break Some(wqe.op());
            }
        };
        self.scanned = self.ended.wrapping_add(index);
        found
    }

    /// Gives the oldest entry back to the poster.
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.len > 0);
        self.first = self.ring.after(self.first);
        self.len -= 1;
        self.ended = self.ended.wrapping_add(1);
        self.ring.ended.0.store(self.ended, Release);
    }
}

/// A request in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe<'a>(&'a [Line]);

impl<'a> Wqe<'a> {
    fn word(self, word: usize) -> u64 {
        self.0.get(word / WORDS).map_or(0, |line| line.0[word % WORDS].load(Relaxed))
    }

    fn code(self) -> u8 {
        self.word(HEAD) as u8
    }

    fn has(self, flag: u64) -> bool {
        self.word(HEAD) & flag != 0
    }

    fn mark(self, bits: u64) {
        if let Some(line) = self.0.first() {
            line.0[HEAD].store(line.0[HEAD].load(Relaxed) | bits, Relaxed);
        }
    }

    /// The caller's name for it.
    pub(crate) fn id(self) -> u64 {
        self.word(ID)
    }

    /// The operation.
    pub(crate) fn op(self) -> SendOp {
        let (head, va) = (self.word(HEAD), self.word(VA));
        let key = Rkey::new((head >> KEY_SHIFT) as u32);
        match head as u8 {
            SEND_INVALIDATE => SendOp::SendInvalidate(key),
            WRITE => SendOp::Write { va, rkey: key },
            READ => SendOp::Read { va, rkey: key },
            READ_INVALIDATE => SendOp::ReadInvalidate { va, rkey: key },
            FAST_REGISTER => SendOp::FastRegister { key, mapping: self.mapping() },
            INVALIDATE => SendOp::Invalidate(key),
            BIND => SendOp::Bind(Bind {
                window: key,
                region: Lkey::new(self.word(ELEMENTS) as u32),
                va,
                len: self.word(LEN),
                access: self.access(),
            }),
            _ => SendOp::Send,
        }
    }

    fn mapping(self) -> Mapping {
        let region = self.word(ELEMENTS);
        Mapping {
            region: RegionId(region as u32),
            offset: (region >> 32) as u32,
            base: self.word(LEN),
            len: self.word(ELEMENTS + 1),
            access: self.access(),
        }
    }

    fn access(self) -> Access {
        Access::from_bits(self.word(ELEMENTS + 2) as u8)
    }

    /// Whether it is a READ.
    pub(crate) fn is_read(self) -> bool {
        matches!(self.code(), READ | READ_INVALIDATE)
    }

    /// Whether it only touches our own keys: no packet leaves.
    pub(crate) fn is_local(self) -> bool {
        self.code() >= FAST_REGISTER
    }

    /// Whether it binds or may end a window.
    pub(crate) fn concerns_windows(self) -> bool {
        self.code() >= INVALIDATE
    }

    /// The kind of its completion.
    pub(crate) fn kind(self) -> WcKind {
        match self.code() {
            WRITE => WcKind::Write,
            READ | READ_INVALIDATE => WcKind::Read,
            FAST_REGISTER => WcKind::FastRegister,
            INVALIDATE => WcKind::Invalidate,
            BIND => WcKind::Bind,
            _ => WcKind::Send,
        }
    }

    /// Bytes of the message.
    pub(crate) fn len(self) -> u64 {
        if self.is_local() { 0 } else { self.word(LEN) }
    }

    /// The peer is asked for a solicited event.
    pub(crate) fn solicited(self) -> bool {
        self.has(SOLICITED)
    }

    /// It waits for earlier READs.
    pub(crate) fn read_fence(self) -> bool {
        self.has(READ_FENCE)
    }

    /// Only failure is reported.
    pub(crate) fn silent(self) -> bool {
        self.has(SILENT)
    }

    /// The elements.
    pub(crate) fn elements(self) -> impl Iterator<Item = Sge> + Clone + 'a {
        let count = (self.word(HEAD) >> COUNT_SHIFT) as u8;
        (0..usize::from(count)).map(move |n| {
            let len = self.word(ELEMENTS + 2 * n + 1);
            let addr = self.word(ELEMENTS + 2 * n);
            Sge { addr, len: len as u32, lkey: Lkey::new((len >> 32) as u32) }
        })
    }

    /// The key that a READ invalidates once it is complete.
    pub(crate) fn ended_key(self) -> Option<Rkey> {
        let first = if self.code() == READ_INVALIDATE { self.elements().next() } else { None };
        first.map(|sge| Rkey::new(sge.lkey.get()))
    }

    /// A local error found while sending; reported once all earlier requests are complete.
    pub(crate) fn fault(self) -> Option<WcStatus> {
        if self.len() > MAX_MESSAGE {
            return Some(WcStatus::LocalLength);
        }
        let code = (self.word(HEAD) >> FAULT_SHIFT) as usize % 8;
        FAULTS.get(code.checked_sub(1)?).copied()
    }

    /// Notes a local error.
    pub(crate) fn set_fault(self, status: WcStatus) {
        let index = FAULTS.iter().position(|fault| *fault == status);
        debug_assert!(index.is_some(), "{status:?} is no local error");
        self.mark((index.unwrap_or_default() as u64 + 1) << FAULT_SHIFT);
    }

    /// A request that touches only our own keys has taken effect, and must not take effect again.
    pub(crate) fn executed(self) -> bool {
        self.has(EXECUTED)
    }

    /// Notes that it has.
    pub(crate) fn set_executed(self) {
        self.mark(EXECUTED);
    }
}
