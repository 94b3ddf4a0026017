//! The send queue: requests with their places in PSN space.

use super::entry::{self, SendPoster, Wqe};
use crate::env::Instant;
use crate::ids::Rkey;
use crate::psn::Psn;
use crate::qp::ring::WorkRing;
use crate::qp::work::{Completions, MAX_MESSAGE, MAX_READS, SendOp, Sge};
use crate::wire::Pmtu;
use crate::wire::mad::Make;
use copies::{Again, Copies};
use heapless::Deque;
use scoreboard::Scoreboard;

mod copies;
mod ends;
mod gaps;
mod new;
mod scoreboard;
pub(crate) use gaps::Found;
pub(crate) use new::{NewPacket, Sent};
pub(crate) use scoreboard::Cause;

/// The PSN that rxe reports as its last SEND or WRITE before there was one: the PSN before 0. Ours reports that before the
/// first.
const NO_DATA: Psn = Psn::new(0xff_ffff);

/// A place in the send queue: a request, and a packet of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Place {
    /// Index of the request, 0 the oldest.
    pub wqe: usize,
    /// Packet inside it.
    pub packet: u32,
}

/// The effect of an acknowledgement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Acked {
    /// At least one packet was newly acknowledged.
    pub progress: bool,
    /// An unfinished READ lies below the acknowledged PSN: a response to it is missing.
    pub lost_read: bool,
}

/// The packet of a response that comes next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextResponse {
    /// The sink of the whole READ.
    pub sink: Sge,
    /// Bytes of it that have come.
    pub done: u64,
    /// Its last packet.
    pub last: bool,
}

/// The send queue: requests from the oldest unfinished to the newest posted, and two places in PSN
/// space, `una`, the oldest unacknowledged packet, and `next`, the next one to send.
///
/// The fields that each packet needs stand first, so that it is in few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendQueue {
    ring: WorkRing,
    /// The oldest entries of the ring that have ended, and whose completions are to be taken.
    done: usize,
    /// The entries behind them that have succeeded, and wait for the copies of a READ.
    parked: usize,
    cursor: Place,
    owner: u64,
    una: Psn,
    una_packet: u32,
    next: Psn,
    highest: Psn,
    /// The first PSN of the connection.
    first: Psn,
    /// Bytes of a full packet, as a power of two.
    pmtu_shift: u32,
    /// The last packet of a SEND or WRITE that was acknowledged.
    last_data: Psn,
    /// Entries ever seen by [`Self::next_window_request`].
    scanned: u32,
    /// READ requests in flight, which `read_ends` holds.
    reads: u32,
    scoreboard: Scoreboard,
    /// One past the last response PSN of each READ request in flight, oldest first.
    read_ends: Deque<Psn, MAX_READS>,
    copies: Copies,
    /// The first PSN of the oldest entry that waits for the copies of a READ.
    parked_at: Psn,
    /// One past the last READ request that has all its responses.
    read_floor: Psn,
    /// Keys that completed READs invalidate. To the owner, the data and the end of the key are one step.
    ended_keys: Deque<Rkey, MAX_READS>,
}

/// Notes that a READ was requested, whose last response has the PSN before `end`.
fn read_sent(read_ends: &mut Deque<Psn, MAX_READS>, reads: &mut u32, end: Psn) {
    // The requester keeps at most MAX_READS in flight.
    let pushed = read_ends.push_back(end);
    debug_assert!(pushed.is_ok());
    *reads += 1;
}

impl SendQueue {
    /// An empty queue for `depth` requests of at most `max_sge` elements, and where they are posted.
    pub(crate) fn new(owner: u64, depth: usize, max_sge: usize) -> (SendPoster, Self) {
        let (poster, ring) = entry::ring(depth, max_sge);
        let queue = Self {
            owner,
            ring,
            scanned: 0,
            reads: 0,
            done: 0,
            parked: 0,
            parked_at: Psn::default(),
            first: Psn::default(),
            pmtu_shift: 0,
            una: Psn::default(),
            una_packet: 0,
            next: Psn::default(),
            cursor: Place::default(),
            highest: Psn::default(),
            read_ends: Deque::new(),
            scoreboard: Scoreboard::new(),
            ended_keys: Deque::new(),
            copies: Copies::new(),
            read_floor: Psn::default(),
            last_data: NO_DATA,
        };
        (poster, queue)
    }

    /// The name in completions.
    pub(crate) const fn owner(&self) -> u64 {
        self.owner
    }

    /// Sets the name in completions.
    pub(crate) const fn set_owner(&mut self, owner: u64) {
        self.owner = owner;
    }

    /// Sets the PSN of the first packet, which REQ or REP named, the size of a packet, and the peer's make.
    pub(crate) fn start_at(&mut self, psn: Psn, pmtu: Pmtu, make: Make) {
        self.copies.set_make(make);
        (self.first, self.una, self.next, self.highest, self.read_floor) =
            (psn, psn, psn, psn, psn);
        self.pmtu_shift = pmtu.bytes().trailing_zeros();
        self.scoreboard.clear(psn);
    }

    /// Reserves memory for what may be missing of `psns` in flight.
    pub(crate) fn reserve_missing(&mut self, psns: u32, make: Make) {
        self.reserve_early(psns);
        if make == Make::Keeper {
            self.reserve_gaps(psns);
        }
    }

    /// Takes the memory that READs need. Returns false where it is refused.
    #[must_use]
    pub(crate) fn reserve_reads(&mut self) -> bool {
        self.copies.reserve()
    }

    /// Takes note of what was posted. Returns whether there are new requests.
    pub(crate) fn update(&mut self) -> bool {
        self.ring.update()
    }

    /// Whether [`Self::next_window_request`] may have a request. Nearly always it has none.
    #[inline]
    pub(crate) fn has_window_requests(&self) -> bool {
        self.ring.marked().wrapping_sub(self.scanned).cast_signed() > 0
    }

    /// The next request, of those not seen yet, that binds or may end a window.
    pub(crate) fn next_window_request(&mut self) -> Option<SendOp> {
        if !self.has_window_requests() {
            return None;
        }
        // Entries may have ended unseen.
        let ended = self.ring.ended();
        let mut index = self.scanned.wrapping_sub(ended).cast_signed().max(0).cast_unsigned();
        let found = loop {
            let Some(wqe) = self.ring.get(index as usize).map(Wqe) else { break None };
            index += 1;
            if wqe.concerns_windows() {
                break Some(wqe.op());
            }
        };
        self.scanned = ended.wrapping_add(index);
        found
    }

    /// The request with `index` older ones that have not succeeded.
    fn wqe(&self, index: usize) -> Option<Wqe<'_>> {
        self.ring.get(self.done + self.parked + index).map(Wqe)
    }

    fn oldest(&self) -> Option<Wqe<'_>> {
        self.wqe(0)
    }

    /// The number of PSNs of a request: packets sent, or packets of the response to a READ. 0 for a request
    /// that touches only our own keys.
    pub(crate) fn packets(&self, wqe: Wqe<'_>) -> u32 {
        if wqe.is_local() {
            return 0;
        }
        // At most 2^31 / 256 = 2^23 packets; an over-long message is never sent.
        let len = wqe.len().clamp(1, MAX_MESSAGE);
        ((len - 1) >> self.pmtu_shift) as u32 + 1
    }

    /// The oldest unacknowledged PSN.
    pub(crate) const fn una(&self) -> Psn {
        self.una
    }

    /// Whether the ACK of a duplicate has this PSN from a peer that has executed nothing in flight: the last one before, or the
    /// last of a SEND or WRITE where READs are behind it.
    pub(crate) fn acks_nothing(&self, psn: Psn) -> bool {
        let before_all = psn == self.first.prev() && self.last_data == NO_DATA;
        psn == self.una.prev() || psn == self.last_data || before_all
    }

    /// The PSN of the next packet to send.
    pub(crate) const fn next(&self) -> Psn {
        self.next
    }

    /// Whether the packet, or response, was sent or asked for, and is not finished. A PSN that was noted long ago may lie on
    /// either side of these.
    pub(crate) const fn is_open(&self, psn: Psn) -> bool {
        psn.since(self.una) >= 0 && self.highest.since(psn) > 0
    }

    /// PSNs sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        self.next.since(self.una).max(0).cast_unsigned()
    }

    /// Whether a PSN that was sent is unacknowledged, before or after going back.
    pub(crate) fn outstanding(&self) -> bool {
        self.highest.since(self.una) > 0
    }

    /// Whether the next packet is a resend.
    pub(crate) fn resending(&self) -> bool {
        self.scoreboard.resend.is_some() || self.next.since(self.highest) < 0
    }

    /// Whether `psn` is sent and not acknowledged; any other is stale or forged.
    pub(crate) fn expects(&self, psn: Psn) -> bool {
        psn.since(self.una) >= 0 && psn.since(self.highest) < 0
    }

    /// READ requests in flight.
    pub(crate) const fn reads_in_flight(&self) -> usize {
        self.reads as usize
    }

    /// The oldest request and the number of its packets that are acknowledged.
    pub(crate) fn head(&self) -> Option<(Wqe<'_>, u32)> {
        self.oldest().map(|wqe| (wqe, self.una_packet))
    }

    /// The request and the packet that leave next; or the next request without packets that has not taken
    /// effect.
    pub(crate) fn at_cursor(&self) -> Option<(Wqe<'_>, u32)> {
        let place = self.scoreboard.resend.map_or(self.cursor, |range| range.place);
        self.wqe(place.wqe).map(|wqe| (wqe, place.packet))
    }

    /// Whether there is a request at the cursor.
    #[inline]
    pub(crate) const fn has_more(&self) -> bool {
        self.done + self.parked + self.cursor.wqe < self.ring.len()
    }

    /// Moves the cursor over requests without packets that have taken effect.
    pub(crate) fn skip_executed(&mut self) {
        while self.wqe(self.cursor.wqe).is_some_and(Wqe::executed) {
            self.cursor = Place { wqe: self.cursor.wqe + 1, packet: 0 };
        }
    }

    /// Moves the cursor over `packets` PSNs just sent; a READ request takes those of its responses. A copy
    /// that left `now` has arrived by `spent_by`, or was lost.
    pub(crate) fn sent(&mut self, packets: u32, read: bool, now: Instant, spent_by: Instant) {
        self.sent_again(packets, read, now, spent_by);
        if self.resend_sent(packets) {
            return;
        }
        self.next = self.next.add(packets);
        if self.next.since(self.highest) > 0 {
            self.highest = self.next;
        }
        if read {
            read_sent(&mut self.read_ends, &mut self.reads, self.next);
        }
        self.cursor.packet += packets;
        if self.wqe(self.cursor.wqe).is_some_and(|wqe| self.cursor.packet >= self.packets(wqe)) {
            self.cursor = Place { wqe: self.cursor.wqe + 1, packet: 0 };
        }
        // The acknowledged packets may stand behind a READ that was requested again.
        self.skip_acked();
    }

    /// Whether everything before the request at the cursor is complete.
    pub(crate) fn cursor_at_head(&self) -> bool {
        self.cursor == Place::default()
    }

    /// Notes that the request at the cursor, which has no packets, has taken effect.
    pub(crate) fn executed(&mut self, out: &mut Completions) {
        if let Some((wqe, _)) = self.at_cursor() {
            wqe.set_executed();
        }
        self.complete_executed(out);
    }

    /// The next key that a completed READ invalidates.
    pub(crate) fn pop_ended_key(&mut self) -> Option<Rkey> {
        self.ended_keys.pop_front()
    }

    /// Acknowledges every packet before `psn`. Only its data moves the queue over a READ.
    pub(crate) fn acknowledge(&mut self, psn: Psn, out: &mut Completions) -> Acked {
        let mut acked = Acked { progress: psn.since(self.scoreboard.acked) > 0, lost_read: false };
        if acked.progress {
            self.scoreboard.acked = psn;
        }
        acked.progress |= self.acknowledge_singles(psn, out);
        loop {
            let ahead = psn.since(self.una);
            let Some(head) = self.oldest().filter(|_| ahead > 0) else { break };
            if head.is_read() {
                acked.lost_read = true;
                break;
            }
            acked.progress = true;
            let left = self.packets(head) - self.una_packet;
            self.advance(ahead.cast_unsigned().min(left), out);
        }
        if acked.progress {
            self.skip_acked();
            self.trim_resend();
        }
        acked
    }

    /// The short way of [`Self::acknowledge`], over requests of one packet up to the first other one. Returns whether
    /// there was any.
    fn acknowledge_singles(&mut self, psn: Psn, out: &mut Completions) -> bool {
        let ahead = psn.since(self.una).max(0).cast_unsigned();
        if self.parked > 0 || self.una_packet > 0 {
            return false;
        }
        let singles = (0..ahead as usize)
            .take_while(|n| self.wqe(*n).is_some_and(|wqe| wqe.is_single(self.pmtu_shift)))
            .count();
        if singles == 0 {
            return false;
        }
        self.done += singles;
        // As many as PSNs.
        self.una = self.una.add(singles as u32);
        self.last_data = self.una.prev();
        self.leave_heads(singles);
        self.complete_executed(out);
        self.catch_up();
        true
    }

    /// The shortest way of [`Self::acknowledge`], for a queue that [is calm](Self::is_calm) and has no READ in flight:
    /// `psn` is the newest packet, so that every request before the cursor succeeds. Returns the number of packets, and whether there is a request at the
    /// cursor; `None` where it is another, has been acknowledged, or has not ended its request.
    #[inline]
    pub(crate) fn acknowledge_newest(
        &mut self,
        psn: Psn,
        out: &mut Completions,
    ) -> Option<(u32, bool)> {
        let (end, before) = (psn.add(1), self.una);
        if end != self.next || end == before || self.cursor.packet > 0 {
            return None;
        }
        self.done += self.cursor.wqe;
        self.cursor.wqe = 0;
        (self.una, self.una_packet, self.scoreboard.acked, self.last_data) = (end, 0, end, psn);
        let mut more = self.has_more();
        if more {
            self.complete_executed(out);
            more = self.has_more();
        }
        Some((end.since(before).cast_unsigned(), more))
    }

    /// The next packet of the response to the oldest request, if that is a READ into one element, `psn` and `len` are those
    /// of the packet, and nothing was sent twice.
    pub(crate) fn next_response(&self, psn: Psn, len: u64) -> Option<NextResponse> {
        let expected = psn == self.una && self.una != self.highest;
        let plain = self.parked == 0 && self.copies.is_empty() && self.scoreboard.is_plain(psn);
        let oldest = self.oldest().filter(|_| expected && plain)?;
        let (sink, done) = (oldest.single_read()?, u64::from(self.una_packet) << self.pmtu_shift);
        let left = oldest.len().checked_sub(done).filter(|left| *left > 0)?;
        let pmtu = 1 << self.pmtu_shift;
        (left.min(pmtu) == len).then_some(NextResponse { sink, done, last: left <= pmtu })
    }

    /// Moves `una` over the packet of [`Self::next_response`], and completes the request with its last.
    pub(crate) fn next_response_taken(&mut self, last: bool, out: &mut Completions) {
        self.una = self.una.add(1);
        self.una_packet += 1;
        if last {
            self.done += 1;
            self.leave_head();
            self.complete_executed(out);
        }
        self.catch_up();
    }

    /// Moves `una` over a READ response that just came, and over everything behind it that came before:
    /// READ data out of order, and acknowledgements.
    pub(crate) fn read_response_taken(&mut self, out: &mut Completions) {
        self.advance(1, out);
        loop {
            if self.scoreboard.acked.since(self.una) > 0 {
                self.acknowledge(self.scoreboard.acked, out);
            }
            if !self.take_early() {
                break;
            }
            self.advance(1, out);
        }
        self.trim_resend();
    }

    /// Moves `una` by packets of the oldest request, and completes that request at its end.
    fn advance(&mut self, packets: u32, out: &mut Completions) {
        self.una = self.una.add(packets);
        self.una_packet += packets;
        if packets > 0 && self.oldest().is_some_and(|head| !head.is_read()) {
            self.last_data = self.una.prev();
        }
        let head = self.oldest().filter(|head| self.una_packet >= self.packets(*head));
        if let Some(head) = head {
            debug_assert!(
                !head.is_local() || head.executed(),
                "what was not done does not succeed"
            );
            if let Some(key) = head.ended_key() {
                // At most MAX_READS are in flight, and the QP takes these keys after each packet.
                let pushed = self.ended_keys.push_back(key);
                debug_assert!(pushed.is_ok());
            }
            self.succeed(out);
            self.complete_executed(out);
        }
        self.catch_up();
    }

    /// Moves all that `una` has overtaken.
    fn catch_up(&mut self) {
        while self.reads > 0
            && let Some(end) = self.read_ends.front().filter(|end| end.since(self.una) <= 0)
        {
            self.read_floor = *end;
            self.read_ends.pop_front();
            self.reads -= 1;
        }
        if self.scoreboard.acked.since(self.una) < 0 {
            self.scoreboard.acked = self.una;
        }
        // After going back, an acknowledgement may overtake the cursor: the packets that it covers are not
        // resent.
        if self.next.since(self.una) < 0 {
            self.next = self.una;
            self.cursor = Place { wqe: 0, packet: self.una_packet };
        }
    }

    /// Moves all places over the oldest request, which has ended or is parked.
    fn leave_head(&mut self) {
        self.leave_heads(1);
    }

    fn leave_heads(&mut self, requests: usize) {
        self.una_packet = 0;
        self.cursor.wqe = self.cursor.wqe.saturating_sub(requests);
        if let Some(range) = &mut self.scoreboard.resend {
            range.place.wqe = range.place.wqe.saturating_sub(requests);
        }
    }
}
