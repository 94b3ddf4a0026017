//! An initiator request in its ring, and the end where it is posted.

use crate::env::RegionId;
use crate::ids::{Lkey, Rkey};
use crate::mr::{Access, Bind, Mapping};
use crate::qp::ring::{Entry, Poster, Slot, Whole, WorkRing, ring_bytes};
use crate::qp::work::{
    Completion, MAX_MESSAGE, Owner, PostError, SendOp, SendWr, Sge, WcKind, WcStatus,
};
use crate::wire::Reth;

/// The words of a request: the caller's name; operation, flags, number of elements, state and key; the peer's
/// address; the length. Two words for each element follow.
const ID: usize = 0;
const HEAD: usize = 1;
const VA: usize = 2;
const LEN: usize = 3;
const ELEMENTS: usize = 4;

/// The fields of [`HEAD`]: operation and flags in a byte each, then the number of elements, the state, which
/// is the core's, and from bit 32 on a key.
const FLAGS_SHIFT: u32 = 8;
const SILENT: u64 = 1 << FLAGS_SHIFT;
const READ_FENCE: u64 = 2 << FLAGS_SHIFT;
const SOLICITED: u64 = 4 << FLAGS_SHIFT;
const COUNT_SHIFT: u32 = 16;
const EXECUTED: u64 = 1 << 24;
const FAULT_SHIFT: u32 = 25;
const STATUS_SHIFT: u32 = 28;
const STATUS: u64 = 0xf << STATUS_SHIFT;
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

/// The end of an initiator queue where requests are posted. It may be on another thread than the
/// [`Device`](crate::Device), which has to hear of a post by
/// [`Engine::ring_doorbell`](crate::Engine::ring_doorbell).
#[derive(Debug)]
pub struct SendPoster(Poster);

impl SendPoster {
    /// The memory of a queue for `depth` requests of at most `max_sge` elements.
    pub const fn queue_bytes(depth: usize, max_sge: usize) -> usize {
        ring_bytes::<Whole>(depth, ELEMENTS, max_sge)
    }

    /// The place of the next request, if there is room for it.
    #[inline(always)]
    pub fn slot(&mut self) -> Option<SendSlot<'_>> {
        self.0.slot().map(SendSlot)
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], or [`PostError::TooManyElements`]: nothing was queued.
    pub fn post<S: IntoIterator<Item = Sge>>(&mut self, wr: SendWr<S>) -> Result<(), PostError> {
        self.slot().ok_or(PostError::QueueFull)?.post(wr)
    }
}

/// The free place of an initiator request.
#[derive(Debug)]
pub struct SendSlot<'a>(Slot<'a>);

impl SendSlot<'_> {
    /// Its number among the places of the queue.
    pub fn place(&self) -> usize {
        self.0.place()
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`PostError::TooManyElements`]: nothing was queued.
    #[inline(always)]
    pub fn post<S: IntoIterator<Item = Sge>>(self, wr: SendWr<S>) -> Result<(), PostError> {
        let on_windows = matches!(wr.op, SendOp::Invalidate(_) | SendOp::Bind(_));
        write(self.0.entry(), wr)?;
        if on_windows {
            self.0.mark();
        }
        self.0.publish();
        Ok(())
    }
}

/// Writes an entry, which is not published yet.
#[inline(always)]
fn write<S: IntoIterator<Item = Sge>>(entry: Entry<'_>, wr: SendWr<S>) -> Result<(), PostError> {
    let (mut count, set) = (0, |word, value| entry.set(word, value));
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
        let (elements, len) = entry.set_elements(ELEMENTS, wr.sgl)?;
        count = elements;
        set(LEN, len)?;
    }
    let flags = u64::from(wr.silent) | u64::from(wr.read_fence) << 1 | u64::from(wr.solicited) << 2;
    set(ID, wr.id)?;
    set(VA, va)?;
    set(
        HEAD,
        u64::from(op) | flags << FLAGS_SHIFT | count << COUNT_SHIFT | u64::from(key) << KEY_SHIFT,
    )
}

/// A request of one element that nothing holds back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    /// SEND, WRITE or READ.
    pub(super) op: SingleOp,
    /// The remote memory of a WRITE or READ.
    pub(super) reth: Reth,
    /// The source, or the sink of a READ.
    pub(super) sge: Sge,
    /// The peer is asked for a solicited event.
    pub(super) solicited: bool,
}

/// The operation of such a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SingleOp {
    Send,
    Write,
    Read,
}

/// A ring for initiator requests, and the end where they are posted.
pub(super) fn ring(depth: usize, max_sge: usize) -> (SendPoster, WorkRing) {
    let (poster, ring) = WorkRing::new(depth, ELEMENTS, max_sge);
    (SendPoster(poster), ring)
}

/// A request in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe<'a>(pub(super) Entry<'a>);

impl<'a> Wqe<'a> {
    fn word(self, word: usize) -> u64 {
        self.0.word(word)
    }

    fn code(self) -> u8 {
        self.word(HEAD) as u8
    }

    fn has(self, flag: u64) -> bool {
        self.word(HEAD) & flag != 0
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

    /// The request, if it is a SEND, WRITE or READ of one element, which is [`Self::first`], without a fence or a fault.
    #[inline]
    pub(super) fn single(self, sge: Sge) -> Option<Single> {
        const ONE: u64 = 1 << COUNT_SHIFT;
        const SEND_ONE: u64 = SEND as u64 | ONE;
        const WRITE_ONE: u64 = WRITE as u64 | ONE;
        const READ_ONE: u64 = READ as u64 | ONE;
        let head = self.word(HEAD);
        let rkey = Rkey::new((head >> KEY_SHIFT) as u32);
        let reth = Reth { va: self.word(VA), rkey, len: sge.len };
        let op = match head & (0xff | READ_FENCE | 0xff << COUNT_SHIFT | 0b111 << FAULT_SHIFT) {
            SEND_ONE => SingleOp::Send,
            WRITE_ONE => SingleOp::Write,
            READ_ONE => SingleOp::Read,
            _ => return None,
        };
        // A WRITE causes no event (IBTA ch. 9, Solicited Event).
        let solicited = op == SingleOp::Send && head & SOLICITED != 0;
        Some(Single { op, reth, sge, solicited })
    }

    /// The first element; that of an earlier request where it has none.
    #[inline]
    pub(super) fn first(self) -> Sge {
        self.0.element(ELEMENTS)
    }

    /// The sink, if it is a READ into one element.
    pub(super) fn single_read(self) -> Option<Sge> {
        const READ_ONE: u64 = READ as u64 | 1 << COUNT_SHIFT;
        let one = self.word(HEAD) & (0xff | 0xff << COUNT_SHIFT) == READ_ONE;
        one.then(|| self.0.element(ELEMENTS))
    }

    /// Whether it is a SEND or WRITE of one packet of at most 2^`pmtu_shift` bytes.
    #[inline]
    pub(super) fn is_single(self, pmtu_shift: u32) -> bool {
        self.code() <= WRITE && self.word(LEN) <= 1 << pmtu_shift
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

    /// The elements.
    pub(crate) fn elements(self) -> impl Iterator<Item = Sge> + Clone + 'a {
        let count = (self.word(HEAD) >> COUNT_SHIFT) as u8;
        self.0.elements(ELEMENTS, count.into())
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
        self.0.mark(HEAD, (index.unwrap_or_default() as u64 + 1) << FAULT_SHIFT);
    }

    /// Its end, once it has ended.
    #[inline(always)]
    pub(crate) fn completion(self, owner: u64) -> Completion {
        let head = self.word(HEAD);
        let kind = match head as u8 {
            WRITE => WcKind::Write,
            READ | READ_INVALIDATE => WcKind::Read,
            FAST_REGISTER => WcKind::FastRegister,
            INVALIDATE => WcKind::Invalidate,
            BIND => WcKind::Bind,
            _ => WcKind::Send,
        };
        let status = WcStatus::from_code((head & STATUS) >> STATUS_SHIFT);
        // An error always produces a completion (10.7.3.1).
        let silent = head & (SILENT | STATUS) == SILENT;
        let (owner, id) = (Owner::Qp(owner), self.id());
        Completion { owner, id, kind, status, len: 0, solicited: false, silent }
    }

    /// Notes the outcome.
    pub(crate) fn set_status(self, status: WcStatus) {
        self.0.mark(HEAD, status.code() << STATUS_SHIFT);
    }

    /// A request that touches only our own keys has taken effect, and must not take effect again.
    pub(crate) fn executed(self) -> bool {
        self.has(EXECUTED)
    }

    /// Notes that it has.
    pub(crate) fn set_executed(self) {
        self.0.mark(HEAD, EXECUTED);
    }
}

#[cfg(all(not(loom), test))]
mod tests {
    use super::*;

    fn key(n: u32) -> Rkey {
        Rkey::new(0xffff_fff0 + n)
    }

    /// Each operation with each flag comes out as it went in.
    #[test]
    fn requests_come_out_as_they_went_in() {
        let (va, rkey) = (u64::MAX - 3, key(1));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mapping =
            Mapping { region: RegionId(u32::MAX), offset: 9, base: 1 << 60, len: u64::MAX, access };
        let bind = Bind { window: key(2), region: Lkey::new(7), va, len: 1 << 40, access };
        let kinds = [
            (SendOp::Send, WcKind::Send),
            (SendOp::SendInvalidate(key(3)), WcKind::Send),
            (SendOp::Write { va, rkey }, WcKind::Write),
            (SendOp::Read { va, rkey }, WcKind::Read),
            (SendOp::ReadInvalidate { va, rkey }, WcKind::Read),
            (SendOp::FastRegister { key: key(4), mapping }, WcKind::FastRegister),
            (SendOp::Invalidate(key(5)), WcKind::Invalidate),
            (SendOp::Bind(bind), WcKind::Bind),
        ];
        let (mut poster, mut ring) = ring(1, 3);
        let sgl = [1, 2, 3].map(|n| Sge { addr: va, len: u32::MAX - n, lkey: Lkey::new(n) });
        for (op, kind) in kinds {
            for flags in 0..8 {
                let [solicited, read_fence, silent] = [1, 2, 4].map(|flag| flags & flag != 0);
                poster.post(SendWr { id: va, op, sgl, solicited, read_fence, silent }).unwrap();
                ring.update();
                let wqe = Wqe(ring.get(0).unwrap());
                let done = wqe.completion(5);
                assert_eq!((wqe.id(), wqe.op()), (va, op));
                assert_eq!((done.owner, done.id, done.kind), (Owner::Qp(5), va, kind));
                assert_eq!(done.status, WcStatus::Success);
                let found = (wqe.solicited(), wqe.read_fence(), done.silent);
                assert_eq!(found, (solicited, read_fence, silent));
                let local = matches!(
                    op,
                    SendOp::FastRegister { .. } | SendOp::Invalidate(_) | SendOp::Bind(_)
                );
                assert_eq!((wqe.is_local(), wqe.is_read()), (local, op.is_read()));
                let ends = matches!(op, SendOp::ReadInvalidate { .. });
                assert_eq!(wqe.ended_key(), ends.then_some(Rkey::new(1)));
                let windows = matches!(op, SendOp::Invalidate(_) | SendOp::Bind(_));
                assert_eq!(wqe.concerns_windows(), windows);
                if local {
                    assert_eq!((wqe.len(), wqe.elements().count(), wqe.fault()), (0, 0, None));
                } else {
                    assert!(wqe.elements().eq(sgl));
                    assert_eq!(wqe.len(), 3 * u64::from(u32::MAX) - 6);
                    assert_eq!(wqe.fault(), Some(WcStatus::LocalLength), "longer than a message");
                }
                ring.pop(1);
            }
        }
    }

    /// The core's notes on a request are its own, and gone with it.
    #[test]
    fn notes_change_nothing_else() {
        let (mut poster, mut ring) = ring(1, 1);
        for fault in FAULTS {
            let op = SendOp::Invalidate(key(1));
            let sgl: [Sge; 0] = [];
            let wr = SendWr { id: 1, op, sgl, solicited: true, read_fence: false, silent: true };
            poster.post(wr).unwrap();
            ring.update();
            let wqe = Wqe(ring.get(0).unwrap());
            assert_eq!((wqe.executed(), wqe.fault()), (false, None));
            wqe.set_executed();
            wqe.set_fault(fault);
            assert_eq!((wqe.executed(), wqe.fault(), wqe.op()), (true, Some(fault), op));
            let found = (wqe.solicited(), wqe.read_fence(), wqe.completion(0).silent);
            assert_eq!(found, (true, false, true));
            ring.pop(1);
        }
    }
}
