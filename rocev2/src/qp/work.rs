//! Work requests, their completions, and the two queues of a QP.

use crate::env::Instant;
use crate::ids::{Lkey, Rkey};
use crate::mr::{Bind, Mapping, Released};
use crate::psn::Psn;
use alloc::collections::VecDeque;
use copies::{Again, Copies};
use heapless::{Deque, Vec};
use resend::Marks;

mod copies;
mod resend;
pub use resend::Cause;

/// Scatter/gather elements in one work request, at most.
pub const MAX_SGE: usize = 16;
/// READ requests in flight per QP and direction, at most.
pub const MAX_READS: usize = 16;
/// Bytes in one message, at most (IBTA ch. 9, Message Length).
pub const MAX_MESSAGE: u64 = 1 << 31;

/// A piece of local memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sge {
    /// Address inside the registration of `lkey`.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The key.
    pub lkey: Lkey,
}

/// The pieces of one message, in order.
pub type SgList = Vec<Sge, MAX_SGE>;

/// Sum of the lengths in bytes.
pub fn sg_len(sgl: &[Sge]) -> u64 {
    sgl.iter().map(|sge| u64::from(sge.len)).sum()
}

/// What an initiator request asks for.
///
/// The last three touch only our own keys: no packet leaves, and their [`SendWr::sgl`] is not looked
/// at. They take effect in the order of the queue, so a request posted behind one already finds its
/// effect. One that fails fails the QP (IBTA ch. 10, Memory Management Operation Error).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendOp {
    /// SEND into a receive of the peer.
    Send,
    /// SEND, and invalidate a key of the peer.
    SendInvalidate(Rkey),
    /// WRITE into the peer's memory.
    Write {
        /// The peer's address.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// READ from the peer's memory.
    Read {
        /// The peer's address.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// READ, and invalidate the key of the first element of the sink once the data is there. That
    /// key must be one that can be invalidated. A request behind it that maps the key again has to be
    /// fenced.
    ReadInvalidate {
        /// The peer's address.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// Makes a fast-register region name memory. Takes effect once every earlier request has been
    /// sent. It must not name any yet.
    FastRegister {
        /// The region's key.
        key: Rkey,
        /// What it will name.
        mapping: Mapping,
    },
    /// Ends what a fast-register region or window names, which must be something. Waits until every
    /// earlier request is complete, as those may use the key (10.6.5.1), fenced or not.
    Invalidate(Rkey),
    /// Binds a window. Takes effect once every earlier request has been sent.
    Bind(Bind),
}

impl SendOp {
    /// Whether it reads the peer's memory.
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::ReadInvalidate { .. })
    }
}

/// A request on the initiator (send) queue.
///
/// Inline data needs nothing of its own here: the poster copies the bytes into a registration that
/// it keeps for that, and names them by an ordinary element; they are its own again with the
/// completion.
#[derive(Clone, Debug)]
pub struct SendWr {
    /// The caller's name for it, returned in the completion.
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// Source of a SEND or WRITE, sink of a READ.
    pub sgl: SgList,
    /// Ask the peer for a solicited event.
    pub solicited: bool,
    /// Do not start before earlier READs are complete (10.8.3.3). Any request may ask for it.
    pub read_fence: bool,
    /// Report only failure.
    pub silent: bool,
}

/// A request on the receive queue.
#[derive(Clone, Debug)]
pub struct RecvWr {
    /// The caller's name for it.
    pub id: u64,
    /// Where the message goes.
    pub sgl: SgList,
}

/// How a work request ended (IBTA ch. 11, Completion Return Status).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WcStatus {
    /// Done.
    Success,
    /// A receive shorter than the message.
    LocalLength,
    /// The request itself cannot be executed on this QP.
    LocalQpOperation,
    /// A scatter/gather element failed its key, rights or bounds.
    LocalProtection,
    /// A fast registration or an invalidation that the key's state, kind or rights forbid.
    MemoryManagement,
    /// A window could not be bound.
    MemoryBind,
    /// Cancelled: the QP is in the error state.
    Flushed,
    /// The peer answered with something that does not fit the request.
    BadResponse,
    /// The memory of a WRITE with immediate failed while its receive was held (C9-222.1).
    LocalAccess,
    /// The peer found the request invalid, or a peer's request was invalid for this receive.
    RemoteInvalidRequest,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer failed to execute the request.
    RemoteOperation,
    /// No answer within the negotiated retries.
    TransportRetryExceeded,
    /// The peer had no receive for longer than the negotiated retries.
    RnrRetryExceeded,
    /// The way to the peer is gone for good, as when the local address was taken away.
    PathLost,
}

/// Which request a completion ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WcKind {
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// READ, with or without invalidation of the sink.
    Read,
    /// Fast registration.
    FastRegister,
    /// Local invalidation.
    Invalidate,
    /// Binding of a window.
    Bind,
    /// A receive.
    Receive,
    /// A receive whose message invalidated this key.
    ReceiveInvalidate(Rkey),
}

impl WcKind {
    /// Whether the receive queue held the request.
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveInvalidate(_))
    }
}

/// The end of a work request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The caller's name for the queue pair.
    pub owner: u64,
    /// The caller's name of the request.
    pub id: u64,
    /// Which request it was.
    pub kind: WcKind,
    /// How it ended.
    pub status: WcStatus,
    /// Bytes received; 0 for initiator requests.
    pub len: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// Success that the consumer does not want to see: only the queue slot becomes free.
    pub silent: bool,
}

/// Why a request was not queued.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PostError {
    /// No such QP.
    UnknownQp,
    /// The QP is not connected yet.
    NotConnected,
    /// The queue holds as many requests as it was created for.
    QueueFull,
    /// No such shared receive queue.
    UnknownSrq,
    /// The QP takes its receives from a shared queue.
    SharedReceives,
    /// The connection was agreed on without READs of ours.
    NoReads,
}

/// Completions on their way out, and regions that fast registrations give back. It holds room for
/// every request that is posted, and as much again for those that were posted in place of completed
/// ones since the owner last took them all: so completing never allocates.
#[derive(Debug, Default)]
pub struct Completions {
    queue: VecDeque<Completion>,
    released: VecDeque<Released>,
    reserved: usize,
    mappings: usize,
}

impl Completions {
    /// No room for requests yet, and for `mappings` keys that may be mapped, which they can be
    /// without a request outstanding.
    pub fn new(mappings: usize) -> Self {
        let released = VecDeque::with_capacity(mappings);
        Self { released, mappings, ..Self::default() }
    }

    /// Makes room for `requests` more outstanding requests.
    pub fn reserve(&mut self, requests: usize) {
        self.reserved += requests;
        self.queue.reserve((2 * self.reserved).saturating_sub(self.queue.len()));
        let room = 2 * self.reserved + self.mappings;
        self.released.reserve(room.saturating_sub(self.released.len()));
    }

    /// Bytes that [`Self::reserve`] may ask for at once: what grows doubles, and has room for four.
    pub fn room_bytes(&self, requests: usize) -> usize {
        let queue = 2 * (self.reserved + requests);
        let grown = |room: usize, has: usize| if room > has { room.max(2 * has).max(4) } else { 0 };
        grown(queue, self.queue.capacity()) * size_of::<Completion>()
            + grown(queue + self.mappings, self.released.capacity()) * size_of::<Released>()
    }

    /// Gives the room of `requests` back.
    pub fn unreserve(&mut self, requests: usize) {
        self.reserved = self.reserved.saturating_sub(requests);
    }

    /// Appends one.
    pub fn push(&mut self, completion: Completion) {
        self.queue.push_back(completion);
    }

    /// Notes that the bytes of a region are no longer in use.
    pub fn release(&mut self, released: Released) {
        self.released.push_back(released);
    }

    /// Removes the oldest region given back.
    pub fn pop_released(&mut self) -> Option<Released> {
        self.released.pop_front()
    }

    /// How many completions, and how many regions given back, fit without allocating.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.queue.capacity(), self.released.capacity())
    }

    /// Removes the oldest.
    pub fn pop(&mut self) -> Option<Completion> {
        self.queue.pop_front()
    }
}

/// A request on the send queue, with its place in PSN space.
#[derive(Debug)]
pub struct SendWqe {
    /// The request.
    pub wr: SendWr,
    /// Message length in bytes.
    pub len: u64,
    /// PSNs that it takes: packets sent, or for a READ packets received. None for one that touches
    /// only our own keys.
    pub packets: u32,
    /// A local failure found while sending; reported once all earlier requests are done.
    pub fault: Option<WcStatus>,
    /// A request that touches only our own keys has taken effect, and must not again.
    pub executed: bool,
}

impl SendWqe {
    /// Whether the peer answers with data.
    pub const fn is_read(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. } | SendOp::ReadInvalidate { .. })
    }

    const fn kind(&self) -> WcKind {
        match self.wr.op {
            SendOp::Send | SendOp::SendInvalidate(_) => WcKind::Send,
            SendOp::Write { .. } => WcKind::Write,
            SendOp::Read { .. } | SendOp::ReadInvalidate { .. } => WcKind::Read,
            SendOp::FastRegister { .. } => WcKind::FastRegister,
            SendOp::Invalidate(_) => WcKind::Invalidate,
            SendOp::Bind(_) => WcKind::Bind,
        }
    }

    /// Completes it with `status`; a mapping that was never made gives its bytes back.
    fn end(&self, owner: u64, status: WcStatus, out: &mut Completions) {
        if let (SendOp::FastRegister { key, mapping }, false) = (&self.wr.op, self.executed) {
            out.release(Released { key: *key, region: mapping.region });
        }
        out.push(self.completion(owner, status));
    }

    /// The key that it invalidates as a READ, once it is complete.
    pub fn ended_key(&self) -> Option<Rkey> {
        let invalidates = matches!(self.wr.op, SendOp::ReadInvalidate { .. });
        self.wr.sgl.first().filter(|_| invalidates).map(|sge| Rkey::new(sge.lkey.get()))
    }

    fn completion(&self, owner: u64, status: WcStatus) -> Completion {
        Completion {
            owner,
            id: self.wr.id,
            kind: self.kind(),
            status,
            len: 0,
            solicited: false,
            // An error always produces a completion (10.7.3.1).
            silent: self.wr.silent && matches!(status, WcStatus::Success),
        }
    }
}

/// A place in the send queue: a request, and a packet of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Place {
    /// Index of the request, 0 the oldest.
    pub wqe: usize,
    /// Packet inside it.
    pub packet: u32,
}

/// What an acknowledgement moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Acked {
    /// At least one packet was newly acknowledged.
    pub progress: bool,
    /// An unfinished READ lies below the acknowledged PSN: its response was lost.
    pub lost_read: bool,
}

/// The send queue: requests from the oldest unfinished to the newest posted, and two marks in
/// PSN space, the oldest unacknowledged packet and the next one to send.
#[derive(Debug)]
pub struct SendQueue {
    owner: u64,
    wqes: VecDeque<SendWqe>,
    depth: usize,
    una: Psn,
    una_packet: u32,
    next: Psn,
    cursor: Place,
    highest: Psn,
    /// One past the last response PSN of each READ request in flight, oldest first.
    read_ends: Deque<Psn, MAX_READS>,
    marks: Marks,
    /// Keys that completed READs invalidate; their data and their end are one step to the owner.
    ended_keys: Deque<Rkey, MAX_READS>,
    copies: Copies,
    /// What is done behind a READ of which a copy may be under way, and where its PSNs end.
    parked: VecDeque<(Completion, Psn)>,
    /// One past the last READ request that was answered.
    read_floor: Psn,
    /// The SEND or WRITE that was acknowledged last.
    last_data: Option<Psn>,
}

impl SendQueue {
    /// An empty queue for `depth` requests.
    pub fn new(owner: u64, depth: usize) -> Self {
        Self {
            owner,
            wqes: VecDeque::with_capacity(depth),
            depth,
            una: Psn::default(),
            una_packet: 0,
            next: Psn::default(),
            cursor: Place::default(),
            highest: Psn::default(),
            read_ends: Deque::new(),
            marks: Marks::new(),
            ended_keys: Deque::new(),
            copies: Copies::new(),
            parked: VecDeque::with_capacity(depth),
            read_floor: Psn::default(),
            last_data: None,
        }
    }

    /// Fixes the PSN of the first packet (the peer named it in REQ or REP).
    pub fn start_at(&mut self, psn: Psn) {
        (self.una, self.next, self.highest, self.read_floor) = (psn, psn, psn, psn);
        self.marks.clear(psn);
    }

    /// Appends a request cut into packets of `pmtu` bytes.
    ///
    /// # Errors
    /// `depth` requests are queued.
    pub fn push(&mut self, wr: SendWr, pmtu: u64) -> Result<(), PostError> {
        if self.wqes.len() + self.parked.len() == self.depth {
            return Err(PostError::QueueFull);
        }
        let (len, packets) = match wr.op {
            SendOp::FastRegister { .. } | SendOp::Invalidate(_) | SendOp::Bind(_) => (0, 0),
            _ => {
                let len = sg_len(&wr.sgl);
                // At most 2^31 / 256 = 2^23 packets; an over-long message is never sent.
                (len, len.min(MAX_MESSAGE).div_ceil(pmtu).max(1) as u32)
            }
        };
        let fault = (len > MAX_MESSAGE).then_some(WcStatus::LocalLength);
        self.wqes.push_back(SendWqe { wr, len, packets, fault, executed: false });
        Ok(())
    }

    /// The oldest unacknowledged PSN.
    pub const fn una(&self) -> Psn {
        self.una
    }

    /// The SEND or WRITE that was acknowledged last. The ACK of a duplicate names it, and not a READ behind
    /// it, where the peer is rxe.
    pub const fn last_data(&self) -> Option<Psn> {
        self.last_data
    }

    /// The PSN of the next packet to send.
    pub const fn next(&self) -> Psn {
        self.next
    }

    /// PSNs sent and not acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.next.since(self.una).max(0).cast_unsigned()
    }

    /// Whether any PSN that was ever sent is unacknowledged.
    pub fn outstanding(&self) -> bool {
        self.highest.since(self.una) > 0
    }

    /// Whether the next packet was sent before.
    pub fn resending(&self) -> bool {
        self.marks.run.is_some() || self.next.since(self.highest) < 0
    }

    /// Whether `psn` names a packet sent and not acknowledged; anything else is stale or forged.
    pub fn expects(&self, psn: Psn) -> bool {
        psn.since(self.una) >= 0 && psn.since(self.highest) < 0
    }

    /// READ requests in flight.
    pub fn reads_in_flight(&self) -> usize {
        self.read_ends.len()
    }

    /// The oldest request and how many packets of it are acknowledged.
    pub fn head(&self) -> Option<(&SendWqe, u32)> {
        self.wqes.front().map(|wqe| (wqe, self.una_packet))
    }

    /// The request that the next packet belongs to, and which packet of it; or the next request that
    /// has no packets and has not taken effect.
    pub fn at_cursor(&mut self) -> Option<(&mut SendWqe, u32)> {
        if let Some(run) = self.marks.run {
            return self.wqes.get_mut(run.place.wqe).map(|wqe| (wqe, run.place.packet));
        }
        while self.wqes.get(self.cursor.wqe).is_some_and(|wqe| wqe.executed) {
            self.cursor = Place { wqe: self.cursor.wqe + 1, packet: 0 };
        }
        let packet = self.cursor.packet;
        self.wqes.get_mut(self.cursor.wqe).map(|wqe| (wqe, packet))
    }

    /// Moves the cursor over `packets` PSNs just sent; a READ request takes those of its responses. A
    /// copy of what left `now` has arrived by `spent_by`, or was lost.
    pub fn sent(&mut self, packets: u32, read: bool, now: Instant, spent_by: Instant) {
        self.sent_again(packets, read, now, spent_by);
        if self.run_sent(packets) {
            return;
        }
        self.marks.newest = self.next;
        self.next = self.next.add(packets);
        if self.next.since(self.highest) > 0 {
            self.highest = self.next;
        }
        if read {
            // The requester keeps at most MAX_READS in flight.
            let pushed = self.read_ends.push_back(self.next);
            debug_assert!(pushed.is_ok());
        }
        self.cursor.packet += packets;
        if self.wqes.get(self.cursor.wqe).is_some_and(|wqe| self.cursor.packet >= wqe.packets) {
            self.cursor = Place { wqe: self.cursor.wqe + 1, packet: 0 };
        }
        // Behind a READ that was asked for again.
        self.skip_acked();
    }

    /// Whether everything before the request at the cursor is complete.
    pub fn cursor_at_head(&self) -> bool {
        self.cursor == Place::default()
    }

    /// The request at the cursor, which has no packets, has taken effect.
    pub fn executed(&mut self, out: &mut Completions) {
        if let Some((wqe, _)) = self.at_cursor() {
            wqe.executed = true;
        }
        self.complete_executed(out);
    }

    /// The next key that a completed READ invalidates.
    pub fn pop_ended_key(&mut self) -> Option<Rkey> {
        self.ended_keys.pop_front()
    }

    /// Acknowledges every packet before `psn`, but moves over a READ only by its data.
    pub fn acknowledge(&mut self, psn: Psn, out: &mut Completions) -> Acked {
        let mut acked = Acked { progress: psn.since(self.marks.acked) > 0, lost_read: false };
        if acked.progress {
            self.marks.acked = psn;
        }
        loop {
            let ahead = psn.since(self.una);
            let Some(head) = self.wqes.front().filter(|_| ahead > 0) else { break };
            if head.is_read() {
                acked.lost_read = true;
                break;
            }
            acked.progress = true;
            self.advance(ahead.cast_unsigned().min(head.packets - self.una_packet), out);
        }
        if acked.progress {
            self.skip_acked();
            self.trim_run();
        }
        acked
    }

    /// Moves the oldest unacknowledged mark over the answer to a READ that just came, and over all
    /// that came before it without effect: data behind it, and acknowledgements behind that.
    pub fn answered(&mut self, out: &mut Completions) {
        self.advance(1, out);
        loop {
            if self.marks.acked.since(self.una) > 0 {
                self.acknowledge(self.marks.acked, out);
            }
            if !self.take_early() {
                break;
            }
            self.advance(1, out);
        }
        self.trim_run();
    }

    /// Moves the oldest unacknowledged mark by packets of the oldest request, and completes it at
    /// its end.
    fn advance(&mut self, packets: u32, out: &mut Completions) {
        self.una = self.una.add(packets);
        self.una_packet += packets;
        if packets > 0 && self.wqes.front().is_some_and(|head| !head.is_read()) {
            self.last_data = Some(self.una.prev());
        }
        let head = self.wqes.front().filter(|head| self.una_packet >= head.packets);
        if let Some(head) = head {
            debug_assert!(head.packets > 0 || head.executed, "what was not done does not succeed");
            self.succeed(out);
            if let Some(key) = self.wqes.front().and_then(SendWqe::ended_key) {
                // At most MAX_READS are in flight, and the QP takes these after each packet.
                let pushed = self.ended_keys.push_back(key);
                debug_assert!(pushed.is_ok());
            }
            self.pop_head();
            self.complete_executed(out);
        }
        while let Some(end) = self.read_ends.front().filter(|end| end.since(self.una) <= 0) {
            self.read_floor = *end;
            self.read_ends.pop_front();
        }
        if self.marks.acked.since(self.una) < 0 {
            self.marks.acked = self.una;
        }
        // An acknowledgement may overtake the cursor after a restart: what it covers is not resent.
        if self.next.since(self.una) < 0 {
            self.next = self.una;
            self.cursor = Place { wqe: 0, packet: self.una_packet };
        }
    }

    /// Completes the oldest request, unless it has to wait: see [`copies`].
    fn succeed(&mut self, out: &mut Completions) {
        let Some(head) = self.wqes.front() else { return };
        if self.parked.is_empty() && !(head.is_read() && self.copies.before(self.una)) {
            return head.end(self.owner, WcStatus::Success, out);
        }
        self.parked.push_back((head.completion(self.owner, WcStatus::Success), self.una));
    }

    /// Whether a READ is done and not complete, as a copy of its request may be under way. A fence waits
    /// for it.
    pub fn parks(&self) -> bool {
        !self.parked.is_empty()
    }

    /// When [`Self::unpark`] has work, if no answer comes.
    pub fn parked_until(&self) -> Option<Instant> {
        self.copies.deadline().filter(|_| self.parks())
    }

    /// Completes what no copy keeps waiting any more.
    pub fn unpark(&mut self, now: Instant, out: &mut Completions) {
        self.copies.overtaken(self.known_end());
        self.copies.expire(now);
        while let Some((done, end)) = self.parked.front()
            && !self.copies.before(*end)
        {
            out.push(*done);
            self.parked.pop_front();
        }
    }

    /// What is parked is done whatever happens to the rest.
    fn unpark_all(&mut self, out: &mut Completions) {
        self.parked.drain(..).for_each(|(done, _)| out.push(done));
    }

    /// Completes as flushed every request that ends before `psn`.
    pub fn flush_before(&mut self, psn: Psn, out: &mut Completions) {
        self.unpark_all(out);
        while let Some(head) = self.wqes.front() {
            let left = head.packets - self.una_packet;
            if i64::from(psn.since(self.una)) < i64::from(left) {
                return;
            }
            head.end(self.owner, WcStatus::Flushed, out);
            self.una = self.una.add(left);
            self.pop_head();
        }
    }

    /// Completes the oldest request with an error.
    pub fn fail_head(&mut self, status: WcStatus, out: &mut Completions) {
        self.unpark_all(out);
        if let Some(head) = self.wqes.front() {
            head.end(self.owner, status, out);
            self.pop_head();
        }
    }

    /// Completes everything as flushed, in order.
    pub fn flush(&mut self, out: &mut Completions) {
        self.unpark_all(out);
        for wqe in self.wqes.drain(..) {
            wqe.end(self.owner, WcStatus::Flushed, out);
        }
        self.cursor = Place::default();
        self.una_packet = 0;
        self.read_ends.clear();
        self.copies.clear();
        (self.una, self.next) = (self.highest, self.highest);
        self.marks.clear(self.highest);
    }

    /// Completes the oldest requests that have taken effect without a packet.
    fn complete_executed(&mut self, out: &mut Completions) {
        while self.wqes.front().is_some_and(|head| head.executed) {
            self.succeed(out);
            self.pop_head();
        }
    }

    fn pop_head(&mut self) {
        self.wqes.pop_front();
        self.una_packet = 0;
        self.cursor.wqe = self.cursor.wqe.saturating_sub(1);
        if let Some(run) = &mut self.marks.run {
            run.place.wqe = run.place.wqe.saturating_sub(1);
        }
    }
}
