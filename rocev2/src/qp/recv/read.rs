//! Responder resources: the READ requests whose responses are being sent, and the record of earlier ones,
//! from which a lost response is sent again (IBTA ch. 9, Responder Resources).

use crate::env::{Duration, Fault, Instant, Memory};
use crate::ids::Rkey;
use crate::mr::{Access, AccessError, MrTable, Target};
use crate::psn::{Msn, Psn};
use crate::qp::copy::Source;
use crate::qp::unit_watch::UnitWatch;
use crate::qp::work::MAX_READS;
use crate::qp::{KeyContext, PeerQp};
use crate::wire::mad::Make;
use crate::wire::{
    Aeth, Bth, CommonExt, CommonHeaders, Ext, Frames, Opcode, Place, Reth, Syndrome, UnitRun,
    UnitWriter,
};
use alloc::collections::VecDeque;

mod units;

/// How long copies of a READ whose key has ended are dropped. The peer most likely ended the key once it had the data, and a
/// copy was on its way. A peer that still waits repeats its request for longer, half a second apart at most where it is of
/// our make, and is told.
const COPIES_PASS: Duration = Duration::from_millis(500);

/// Responses in progress, so many at most, or one for each READ.
const REPLIES: usize = 16;

/// A READ request that was accepted.
#[derive(Clone, Copy, Debug)]
struct Record {
    first: Psn,
    packets: u32,
    reth: Reth,
    msn: Msn,
}

/// A response in progress.
#[derive(Clone, Copy, Debug)]
struct Reply {
    /// The first PSN of this response, whose packet is FIRST or ONLY.
    first: Psn,
    next: Psn,
    end: Psn,
    /// The first packet of it that was not sent before.
    fresh: Psn,
    /// The part of the READ that this response covers.
    reth: Reth,
    /// The checked place in memory; `None` for a READ of zero bytes, and where the key has ended.
    target: Option<Target>,
    msn: Msn,
    replay: bool,
}

/// The memory of a response is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Revoked {
    /// The PSN of the response that could not be made.
    pub psn: Psn,
    /// The key that the request named.
    pub key: Rkey,
    /// The request is a duplicate: only the peer knows whether it still waits for the response.
    pub again: bool,
}

/// The READs of the peer of one QP.
#[derive(Debug)]
pub(crate) struct ReadResponder {
    depth: usize,
    /// At most `depth`.
    records: VecDeque<Record>,
    /// At most [`Self::replies_max`].
    replies: VecDeque<Reply>,
    /// Some of them may be responses to duplicates.
    replays: bool,
    /// A unit whose fate is not known yet.
    watched: Option<UnitWatch>,
    /// The peer's make.
    make: Make,
    /// The READ whose key has ended that the peer asked for again, and since when.
    asked_in_vain: Option<(Psn, Instant)>,
}

impl ReadResponder {
    /// No resources until [`Self::connect`].
    pub(crate) const fn new() -> Self {
        Self {
            depth: 0,
            records: VecDeque::new(),
            replies: VecDeque::new(),
            replays: false,
            watched: None,
            make: Make::Other,
            asked_in_vain: None,
        }
    }

    /// Sets the number of READs that the peer may have in flight, and takes the memory for them. Where that is
    /// refused, READs are refused: a peer's message brings a connection here, and may find no memory.
    pub(crate) fn connect(&mut self, inbound: u8, make: Make) {
        self.make = make;
        self.depth = usize::from(inbound).min(MAX_READS);
        let granted = self.records.try_reserve_exact(self.depth).is_ok()
            && self.replies.try_reserve_exact(self.replies_max()).is_ok();
        if !granted {
            *self = Self::new();
        }
    }

    /// Twice as many as READs, as the peer may ask again, where these are few.
    fn replies_max(&self) -> usize {
        (2 * self.depth).min(REPLIES).max(self.depth)
    }

    /// Whether the connection allows READs of the peer at all.
    pub(crate) const fn offered(&self) -> bool {
        self.depth > 0
    }

    /// Whether a response is owed.
    pub(crate) fn busy(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The PSN of the response that leaves next, if one is owed.
    pub(crate) fn next_psn(&self) -> Option<Psn> {
        self.replies.front().map(|reply| reply.next)
    }

    /// Drops everything owed.
    pub(crate) fn clear(&mut self) {
        self.replies.clear();
        self.records.clear();
    }

    /// Accepts a new READ whose key and range were checked.
    ///
    /// A peer that keeps to the negotiated depth sends it only once it has the whole response to the READ
    /// that is `depth` back. So that READ needs neither its record nor a response that a duplicate request
    /// may have started again. Refusing the new READ for lack of room would fail a connection that did
    /// nothing wrong.
    #[inline(always)]
    pub(crate) fn accept(
        &mut self,
        first: Psn,
        packets: u32,
        reth: Reth,
        target: Option<Target>,
        msn: Msn,
    ) {
        if self.depth == 0 {
            return;
        }
        while self.records.len() >= self.depth {
            self.records.pop_front();
        }
        self.drop_overtaken();
        if self.replies.len() >= self.replies_max() {
            self.replies.pop_front();
        }
        let record = Record { first, packets, reth, msn };
        let reply = record.reply(first, reth, target, false, packets);
        self.records.push_back(record);
        self.replies.push_back(reply);
    }

    /// Drops the responses that are older than every record. Without duplicates they are in order.
    fn drop_overtaken(&mut self) {
        let oldest = self.records.front().map(|record| record.first);
        let lasts = |reply: &Reply| oldest.is_some_and(|oldest| reply.first.since(oldest) >= 0);
        if self.replays || !self.replies.front().is_none_or(lasts) {
            self.replies.retain(lasts);
            self.replays &= !self.replies.is_empty();
        }
    }

    /// Whether a duplicate READ request asks for what one of the peer's did.
    pub(crate) fn remembers(&self, psn: Psn, reth: Reth, pmtu: u64) -> bool {
        self.record_of(psn, reth, pmtu).is_some()
    }

    /// The READ that a duplicate request asks for again, or for a part of.
    fn record_of(&self, psn: Psn, reth: Reth, pmtu: u64) -> Option<Record> {
        let record = self.records.iter().find(|record| record.covers(psn)).copied()?;
        let skipped = u64::from(psn.since(record.first).cast_unsigned()) * pmtu;
        let left = u64::from(record.reth.len).saturating_sub(skipped);
        let inside = u64::from(reth.len) <= left && reth.va == record.reth.va.wrapping_add(skipped);
        (reth.rkey == record.reth.rkey && inside).then_some(record)
    }

    /// Handles a duplicate READ request: its response is sent again from the memory as it is now; where its key has ended, a
    /// NAK, if the peer goes on asking. A request that was never recorded, or differs from its record, changes nothing
    /// (C9-105).
    pub(crate) fn replay(
        &mut self,
        now: Instant,
        psn: Psn,
        reth: Reth,
        pmtu: u64,
        keys: &KeyContext<'_>,
    ) -> bool {
        let Some(record) = self.record_of(psn, reth, pmtu) else { return false };
        let packets = u64::from(reth.len).div_ceil(pmtu).max(1) as u32;
        let end = psn.add(packets);
        if let Some(unit) = &mut self.watched {
            unit.asked_for(psn, packets, self.make);
        }
        let mut owed = self.replies.iter_mut();
        if let Some(reply) = owed.find(|reply| reply.covers(psn) && reply.end.since(end) >= 0)
            && reply.rewind_to(psn, end)
        {
            self.replays = true;
            return true;
        }
        let target = check(reth, keys);
        if target.is_err() && !self.peer_waits(now, record.first) {
            return false;
        }
        // Without a place `fill` refuses it, behind the responses that are owed before it.
        let target = target.unwrap_or(None);
        self.insert(record.reply(psn, reth, target, true, packets))
    }

    /// Whether the peer still waits for the READ at `first`, whose key has ended and which it asks for again. Linux's rxe asks
    /// again for READs that it completes before the copy has left, and takes a NAK for such a copy for one about the READ that
    /// it is receiving then. It asks for a READ that it waits for before it asks for any behind it.
    fn peer_waits(&mut self, now: Instant, first: Psn) -> bool {
        match self.asked_in_vain {
            Some((psn, since)) if psn == first => now >= since + COPIES_PASS,
            Some((psn, since)) if first.since(psn) > 0 && now < since + COPIES_PASS => false,
            _ => {
                self.asked_in_vain = Some((first, now));
                false
            }
        }
    }

    /// Writes responses into `unit`. Returns the number of packets.
    ///
    /// # Errors
    /// [`Revoked`] where the key has ended since the request was accepted: rights are checked again for
    /// each packet.
    pub(crate) fn fill<M: Memory>(
        &mut self,
        peer: &PeerQp,
        keys: &KeyContext<'_>,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
    ) -> Result<usize, Revoked> {
        let pmtu = peer.pmtu.bytes() as u64;
        let mut written = 0;
        while written < max_packets
            && let Some(reply) = self.replies.front_mut()
        {
            // Where units are lost, a response that was lost with one still comes.
            let again = reply.again();
            if again && written > 0 {
                break;
            }
            let (opcode, ext) = reply.header();
            let payload_len = u64::from(reply.reth.len).saturating_sub(reply.done(pmtu)).min(pmtu);
            if !unit.fits(ext.len(), payload_len as usize) {
                break;
            }
            let bth = Bth::new(opcode, peer.qpn, reply.next);
            let pushed = unit.push(&bth, &ext, payload_len as usize, |payload| {
                reply.read(payload, pmtu, keys, memory)
            });
            if pushed.is_err() {
                let Reply { next, replay, reth, target, .. } = *reply;
                // Half a copy: the key has ended while it was sent.
                if replay && target.is_some() {
                    self.replies.pop_front();
                    continue;
                }
                // The packets in the unit leave first; the next call comes here again.
                if written > 0 {
                    break;
                }
                self.replies.pop_front();
                return Err(Revoked { psn: next, key: reth.rkey, again: replay });
            }
            written += 1;
            reply.next = reply.next.add(1);
            if reply.next == reply.end {
                self.replies.pop_front();
            }
            if again {
                break;
            }
        }
        Ok(written)
    }

    /// The short way of [`Self::fill`], up to the first response that has to go the general way.
    #[inline]
    pub(crate) fn fill_common<M: Memory, F: Frames>(
        &mut self,
        peer: &PeerQp,
        keys: &KeyContext<'_>,
        memory: &mut M,
        run: &mut UnitRun<'_, F>,
    ) {
        if run.is_single() {
            self.fill_units::<true, _, _>(peer, keys, memory, run);
        } else if !self.responds_again() {
            self.fill_units::<false, _, _>(peer, keys, memory, run);
        }
    }

    #[inline(always)]
    fn fill_units<const SINGLE: bool, M: Memory, F: Frames>(
        &mut self,
        peer: &PeerQp,
        keys: &KeyContext<'_>,
        memory: &mut M,
        run: &mut UnitRun<'_, F>,
    ) {
        while !run.is_spent()
            && let Some(reply) = self.replies.front_mut()
            && reply.write_common::<SINGLE, _, _>(peer, keys.mrs, memory, run).is_some()
        {
            reply.next = reply.next.add(1);
            if reply.next == reply.end {
                self.replies.pop_front();
                if !SINGLE && self.responds_again() {
                    return;
                }
            }
        }
    }

    /// Inserts a response in PSN order, because a requester takes a later one as the loss of an earlier
    /// one. Each READ in flight has at most two, its response and a part of it again, so duplicates cannot
    /// make more owed.
    fn insert(&mut self, reply: Reply) -> bool {
        if self.replies.len() >= self.replies_max() {
            return false;
        }
        self.replays = true;
        let place = self.replies.iter().position(|other| other.next.since(reply.next) > 0);
        self.replies.insert(place.unwrap_or(self.replies.len()), reply);
        true
    }
}

impl Default for ReadResponder {
    fn default() -> Self {
        Self::new()
    }
}

impl Record {
    fn covers(&self, psn: Psn) -> bool {
        (0..i64::from(self.packets)).contains(&i64::from(psn.since(self.first)))
    }

    fn reply(
        &self,
        first: Psn,
        reth: Reth,
        target: Option<Target>,
        replay: bool,
        packets: u32,
    ) -> Reply {
        let end = first.add(packets);
        let fresh = if replay { end } else { first };
        Reply { first, next: first, end, fresh, reth, target, msn: self.msn, replay }
    }
}

impl Reply {
    fn covers(&self, psn: Psn) -> bool {
        psn.since(self.first) >= 0 && psn.since(self.end) < 0
    }

    /// Goes back to `psn` if that part has left already; the rest comes anyway. Returns false if everything
    /// up to `end` has left: then that part is sent again by itself, and the rest only once.
    fn rewind_to(&mut self, psn: Psn, end: Psn) -> bool {
        if end.since(self.next) < 0 {
            return false;
        }
        if psn.since(self.next) < 0 {
            self.fresh = if self.again() { self.fresh } else { self.next };
            self.next = psn;
        }
        true
    }

    /// Whether the next packet was sent before.
    fn again(&self) -> bool {
        self.fresh.since(self.next) > 0
    }

    /// Bytes of this response before `next`.
    fn done(&self, pmtu: u64) -> u64 {
        u64::from(self.next.since(self.first).cast_unsigned()) * pmtu
    }

    /// Writes the next packet, if it has data; the run is not spent. `None` where it has to go the general way.
    #[inline(never)]
    fn write_common<const SINGLE: bool, M: Memory, F: Frames>(
        &self,
        peer: &PeerQp,
        mrs: &MrTable,
        memory: &mut M,
        run: &mut UnitRun<'_, F>,
    ) -> Option<()> {
        let pmtu = peer.pmtu.bytes() as u64;
        let (place, done) = (self.packet_place(), self.done(pmtu));
        let len = u64::from(self.reth.len).saturating_sub(done).min(pmtu) as usize;
        let target = self.target.filter(|_| len > 0)?;
        let (region, offset) = (mrs.region(&target)?, target.offset + done);
        let ext = match place {
            Place::Middle => CommonExt::None,
            Place::First | Place::Last | Place::Only => CommonExt::Ack(self.msn),
        };
        let headers = || CommonHeaders {
            opcode: Opcode::read_response(place),
            dest_qpn: peer.qpn,
            psn: self.next,
            solicited: false,
            ack_req: false,
            ext,
        };
        run.push_common::<SINGLE>((ext.len(), len), headers, Source { memory, region, offset })
    }

    const fn aeth(&self) -> Aeth {
        Aeth { syndrome: Syndrome::ACK, msn: self.msn }
    }

    /// The place of the next packet.
    #[inline]
    fn packet_place(&self) -> Place {
        Place::of(self.next == self.first, self.next.add(1) == self.end)
    }

    fn header(&self) -> (Opcode, Ext) {
        let place = self.packet_place();
        let ext = match place {
            Place::Middle => Ext::None,
            Place::First | Place::Last | Place::Only => Ext::Aeth(self.aeth()),
        };
        (Opcode::read_response(place), ext)
    }

    fn read<M: Memory>(
        &self,
        payload: &mut [u8],
        pmtu: u64,
        keys: &KeyContext<'_>,
        memory: &mut M,
    ) -> Result<(), Fault> {
        let Some(target) = self.target else {
            return if self.reth.len == 0 { Ok(()) } else { Err(Fault) };
        };
        let region = keys.mrs.region(&target).ok_or(Fault)?;
        memory.read(region, target.offset + self.done(pmtu), payload)
    }
}

/// Checks a READ's key and range; zero bytes need no key (C9-88).
///
/// # Errors
/// [`AccessError`]: the check that failed.
#[inline(always)]
pub(crate) fn check(reth: Reth, keys: &KeyContext<'_>) -> Result<Option<Target>, AccessError> {
    if reth.len == 0 {
        return Ok(None);
    }
    keys.remote(reth.rkey, reth.va, u64::from(reth.len), Access::REMOTE_READ).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;
    use crate::ids::Qpn;
    use crate::mr::{PdId, Registrar};

    /// A duplicate that starts a response again does not use up the depth: the READ that follows shows that
    /// the peer has that response.
    #[test]
    fn an_answer_given_again_makes_room_for_a_new_read() {
        let mrs = Registrar::new(Rng::from_seed([1; 32]), 1, 1).table(0);
        let keys = KeyContext { pd: PdId(1), qpn: Qpn::new(2), mrs: &mrs };
        let nothing = Reth { va: 0, rkey: Rkey::new(1), len: 0 };
        let now = Instant::from_nanos(0);
        let mut reads = ReadResponder::new();
        reads.connect(2, Make::Other);
        for psn in 0..2 {
            reads.accept(Psn::new(psn), 1, nothing, None, Msn::new(psn));
        }
        reads.replies.clear();
        for psn in 0..2 {
            assert!(reads.replay(now, Psn::new(psn), nothing, 1024, &keys));
        }
        reads.accept(Psn::new(2), 1, nothing, None, Msn::new(2));
        let owed: std::vec::Vec<u32> =
            reads.replies.iter().map(|reply| reply.first.get()).collect();
        assert_eq!(owed, [1, 2]);
        assert!(!reads.replay(now, Psn::new(0), nothing, 1024, &keys));
    }
}
