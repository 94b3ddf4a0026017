//! Work requests, their completions, and the two queues of a QP.

use crate::env::Memory;
use crate::ids::{Lkey, Rkey};
use crate::mr::{Access, MrTable, PdId};
use crate::psn::Psn;
use alloc::collections::VecDeque;
use heapless::{Deque, Vec};
use resend::Marks;

mod resend;

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
}

/// A request on the initiator (send) queue.
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
    /// Do not start before earlier READs are complete (10.8.3.3).
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
}

/// Which request a completion ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WcKind {
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// READ.
    Read,
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
}

/// Completions on their way out. It holds room for every request that is posted, and as much again
/// for those that were posted in place of completed ones since the owner last took them all: so
/// completing never allocates.
#[derive(Debug, Default)]
pub struct Completions {
    queue: VecDeque<Completion>,
    reserved: usize,
}

impl Completions {
    /// Makes room for `requests` more outstanding requests.
    pub fn reserve(&mut self, requests: usize) {
        self.reserved += requests;
        self.queue.reserve((2 * self.reserved).saturating_sub(self.queue.len()));
    }

    /// Gives the room of `requests` back.
    pub fn unreserve(&mut self, requests: usize) {
        self.reserved = self.reserved.saturating_sub(requests);
    }

    /// Appends one.
    pub fn push(&mut self, completion: Completion) {
        self.queue.push_back(completion);
    }

    /// How many fit without allocating.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Removes the oldest.
    pub fn pop(&mut self) -> Option<Completion> {
        self.queue.pop_front()
    }
}

/// A scatter/gather list did not cover a range, or an element of it failed its check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LocalFault;

/// Copies `out.len()` bytes, from `offset` of the list on, into `out`.
///
/// # Errors
/// [`LocalFault`]: an element's key, rights or bounds, or the list is too short.
pub fn gather<M: Memory>(
    sgl: &[Sge],
    offset: u64,
    out: &mut [u8],
    pd: PdId,
    mrs: &MrTable,
    memory: &mut M,
) -> Result<(), LocalFault> {
    let mut filled = 0;
    for piece in pieces(sgl, offset, out.len()) {
        let target = mrs
            .local(pd, piece.lkey, piece.addr, u64::from(piece.len), Access::LOCAL_READ)
            .map_err(|_| LocalFault)?;
        let region = mrs.region(&target).ok_or(LocalFault)?;
        let end = filled + piece.len as usize;
        memory.read(region, target.offset, &mut out[filled..end]).map_err(|_| LocalFault)?;
        filled = end;
    }
    if filled == out.len() { Ok(()) } else { Err(LocalFault) }
}

/// Copies `data` to `offset` of the list.
///
/// # Errors
/// [`LocalFault`]: an element's key, rights or bounds, or the list is too short.
pub fn scatter<M: Memory>(
    sgl: &[Sge],
    offset: u64,
    data: &[u8],
    pd: PdId,
    mrs: &MrTable,
    memory: &mut M,
) -> Result<(), LocalFault> {
    let mut written = 0;
    for piece in pieces(sgl, offset, data.len()) {
        let target = mrs
            .local(pd, piece.lkey, piece.addr, u64::from(piece.len), Access::LOCAL_WRITE)
            .map_err(|_| LocalFault)?;
        let region = mrs.region(&target).ok_or(LocalFault)?;
        let end = written + piece.len as usize;
        memory.write(region, target.offset, &data[written..end]).map_err(|_| LocalFault)?;
        written = end;
    }
    if written == data.len() { Ok(()) } else { Err(LocalFault) }
}

/// Checks that every element may take inbound data.
///
/// # Errors
/// [`LocalFault`]: an element's key, rights or bounds.
pub fn check_sink(sgl: &[Sge], pd: PdId, mrs: &MrTable) -> Result<(), LocalFault> {
    for sge in sgl.iter().filter(|sge| sge.len > 0) {
        mrs.local(pd, sge.lkey, sge.addr, u64::from(sge.len), Access::LOCAL_WRITE)
            .map_err(|_| LocalFault)?;
    }
    Ok(())
}

/// The parts of the elements that cover `len` bytes from `offset` on.
fn pieces(sgl: &[Sge], offset: u64, len: usize) -> impl Iterator<Item = Sge> + '_ {
    let mut skip = offset;
    let mut left = len as u64;
    sgl.iter().filter_map(move |sge| {
        let sge_len = u64::from(sge.len);
        if left == 0 || skip >= sge_len {
            skip = skip.saturating_sub(sge_len);
            return None;
        }
        let take = left.min(sge_len - skip);
        // `take` is at most the element's own 32-bit length.
        let piece = Sge { addr: sge.addr.wrapping_add(skip), len: take as u32, lkey: sge.lkey };
        skip = 0;
        left -= take;
        Some(piece)
    })
}

/// A request on the send queue, with its place in PSN space.
#[derive(Debug)]
pub struct SendWqe {
    /// The request.
    pub wr: SendWr,
    /// Message length in bytes.
    pub len: u64,
    /// PSNs that it takes: packets sent, or for a READ packets received.
    pub packets: u32,
    /// A local failure found while sending; reported once all earlier requests are done.
    pub fault: Option<WcStatus>,
}

impl SendWqe {
    /// Whether the peer answers with data.
    pub const fn is_read(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. })
    }

    const fn kind(&self) -> WcKind {
        match self.wr.op {
            SendOp::Send | SendOp::SendInvalidate(_) => WcKind::Send,
            SendOp::Write { .. } => WcKind::Write,
            SendOp::Read { .. } => WcKind::Read,
        }
    }

    /// Its completion with `status`.
    pub const fn completion(&self, owner: u64, status: WcStatus) -> Completion {
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
        }
    }

    /// Fixes the PSN of the first packet (the peer named it in REQ or REP).
    pub fn start_at(&mut self, psn: Psn) {
        (self.una, self.next, self.highest) = (psn, psn, psn);
        self.marks.clear(psn);
    }

    /// Requests queued.
    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Appends a request cut into packets of `pmtu` bytes.
    ///
    /// # Errors
    /// `depth` requests are queued.
    pub fn push(&mut self, wr: SendWr, pmtu: u64) -> Result<(), PostError> {
        if self.wqes.len() == self.depth {
            return Err(PostError::QueueFull);
        }
        let len = sg_len(&wr.sgl);
        let fault = (len > MAX_MESSAGE).then_some(WcStatus::LocalLength);
        // At most 2^31 / 256 = 2^23 packets; an over-long message is never sent.
        let packets = len.min(MAX_MESSAGE).div_ceil(pmtu).max(1) as u32;
        self.wqes.push_back(SendWqe { wr, len, packets, fault });
        Ok(())
    }

    /// The oldest unacknowledged PSN.
    pub const fn una(&self) -> Psn {
        self.una
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

    /// The request that the next packet belongs to, and which packet of it.
    pub fn at_cursor(&mut self) -> Option<(&mut SendWqe, u32)> {
        let Place { wqe, packet } = self.marks.run.map_or(self.cursor, |run| run.place);
        self.wqes.get_mut(wqe).map(|wqe| (wqe, packet))
    }

    /// Moves the cursor over `packets` PSNs just sent; a READ request takes those of its responses.
    pub fn sent(&mut self, packets: u32, read: bool) {
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
        if let Some(head) = self.wqes.front().filter(|head| self.una_packet >= head.packets) {
            out.push(head.completion(self.owner, WcStatus::Success));
            self.pop_head();
        }
        while self.read_ends.front().is_some_and(|end| end.since(self.una) <= 0) {
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

    /// Completes as flushed every request that ends before `psn`.
    pub fn flush_before(&mut self, psn: Psn, out: &mut Completions) {
        while let Some(head) = self.wqes.front() {
            let left = head.packets - self.una_packet;
            if i64::from(psn.since(self.una)) < i64::from(left) {
                return;
            }
            out.push(head.completion(self.owner, WcStatus::Flushed));
            self.una = self.una.add(left);
            self.pop_head();
        }
    }

    /// Completes the oldest request with an error.
    pub fn fail_head(&mut self, status: WcStatus, out: &mut Completions) {
        if let Some(head) = self.wqes.front() {
            out.push(head.completion(self.owner, status));
            self.pop_head();
        }
    }

    /// Completes everything as flushed, in order.
    pub fn flush(&mut self, out: &mut Completions) {
        for wqe in self.wqes.drain(..) {
            out.push(wqe.completion(self.owner, WcStatus::Flushed));
        }
        self.cursor = Place::default();
        self.una_packet = 0;
        self.read_ends.clear();
        (self.una, self.next) = (self.highest, self.highest);
        self.marks.clear(self.highest);
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

/// The receive queue.
#[derive(Debug)]
pub struct RecvQueue {
    owner: u64,
    wrs: VecDeque<RecvWr>,
    depth: usize,
}

impl RecvQueue {
    /// An empty queue for `depth` requests.
    pub fn new(owner: u64, depth: usize) -> Self {
        Self { owner, wrs: VecDeque::with_capacity(depth), depth }
    }

    /// Appends a request.
    ///
    /// # Errors
    /// `depth` requests are queued.
    pub fn push(&mut self, wr: RecvWr) -> Result<(), PostError> {
        if self.wrs.len() == self.depth {
            return Err(PostError::QueueFull);
        }
        self.wrs.push_back(wr);
        Ok(())
    }

    /// The receive that takes the next message.
    pub fn head(&self) -> Option<&RecvWr> {
        self.wrs.front()
    }

    /// Requests queued.
    pub fn len(&self) -> usize {
        self.wrs.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.wrs.is_empty()
    }

    /// Completes the oldest receive.
    pub fn complete(&mut self, done: Received, out: &mut Completions) {
        if let Some(wr) = self.wrs.pop_front() {
            out.push(Completion {
                owner: self.owner,
                id: wr.id,
                kind: done.invalidated.map_or(WcKind::Receive, WcKind::ReceiveInvalidate),
                status: done.status,
                len: done.len,
                solicited: done.solicited,
                silent: false,
            });
        }
    }

    /// Completes everything as flushed, in order.
    pub fn flush(&mut self, out: &mut Completions) {
        while !self.wrs.is_empty() {
            self.complete(Received::failed(WcStatus::Flushed), out);
        }
    }
}

/// How a receive ended.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Status.
    pub status: WcStatus,
    /// Bytes of the message.
    pub len: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// The key that the message invalidated.
    pub invalidated: Option<Rkey>,
}

impl Received {
    /// A receive that ends with an error.
    pub const fn failed(status: WcStatus) -> Self {
        Self { status, len: 0, solicited: false, invalidated: None }
    }
}
