//! What an established end posts, and how each request must end: once, in order, with the right
//! bytes, and never with a failure that nobody caused.
//!
//! A new kind of request is a kind in [`Kind`], a branch in [`World::post_one`] and one in
//! [`World::succeed`].

use super::end::{EXPOSED, INBOUND, LOCAL, Phase};
use super::flow::{Bytes, Data, Initiator, Kind, NOWHERE, RECEIVES, REQUESTS, Received};
use super::grant::{READ, WRITE};
use super::memory::{Place, fill};
use super::meter::counted;
use super::trial::{Trial, Work};
use super::world::{Part, Step, World, require};
use crate::kit::raw::Post;
use driver::abi::*;
use ndk_consumer::Remote;

impl World {
    /// A turn of the consumer of an established end.
    pub(crate) fn work(&mut self, end: usize) -> Step {
        let successes = self.report.successes;
        if !self.ends[end].flow.notified || !self.ends[end].armed[0] || !self.ends[end].armed[1] {
            self.drain(end)?;
        }
        if self.ends[end].flow.failed.contains(&true) {
            // It is over, told or not; of a CQ that overran nothing more may come.
            self.ends[end].phase = Phase::Down;
            return self.act_as(end);
        }
        self.post_receives(end)?;
        match self.part {
            Part::Chaos => self.post_some(end)?,
            Part::Healing | Part::Teardown => self.post_last(end)?,
        }
        if self.ends[end].phase != Phase::Up {
            return Ok(());
        }
        let moved = self.report.successes > successes;
        let this = &mut self.ends[end];
        if self.part == Part::Chaos {
            let pace = this.flow.pace;
            this.act_at = Some(self.now + 1 + self.rng.u64() % pace);
        } else if !this.flow.notified || !this.flow.finished {
            let flow = &mut this.flow;
            flow.patience = if moved { 100_000 } else { (flow.patience * 2).min(50_000_000) };
            this.act_at = Some(self.now + flow.patience);
        }
        Ok(())
    }

    // ---- posting -------------------------------------------------------------------------------

    fn new_id(&mut self, end: usize) -> usize {
        let flow = &mut self.ends[end].flow;
        flow.next_id += 1;
        flow.next_id
    }

    /// Posts receives up to the depth, or fewer.
    pub(crate) fn post_receives(&mut self, end: usize) -> Step {
        let depth = self.ends[end].flow.depths[RECEIVES] as usize;
        let lazy = self.part == Part::Chaos && self.rng.below(3) == 0 && !self.storage;
        if self.ends[end].pooled {
            return self.fill_some(self.ends[end].host, lazy);
        }
        let wanted = if lazy { self.rng.below(depth as u32 + 1) as usize } else { depth };
        while self.ends[end].receives.len() < wanted && !self.ends[end].flow.failed[RECEIVES] {
            let id = self.new_id(end);
            let short = self.ends[end].flow.careless && self.rng.below(20) == 0;
            let region = &mut self.ends[end].regions[INBOUND];
            let len = if short { region.slot_len() / 2 } else { region.slot_len() };
            let Some(place) = region.take(len, &mut self.rng) else { return Ok(()) };
            region.expect(&place, None);
            let sgl = region.sgl(&place, &mut self.rng);
            if short {
                self.excuse(end, "a receive that is too short");
            }
            let status = self.post_counted(end, id, Post::Receive(&sgl), 0)?;
            require!(status == STATUS_SUCCESS, "end {end}: a receive is refused with {status}");
            self.ends[end].receives.push_back(Received { id, place });
        }
        Ok(())
    }

    fn post_some(&mut self, end: usize) -> Step {
        for _ in 0..self.rng.below(self.ends[end].flow.batch + 1) {
            let this = &self.ends[end];
            let told = this.initiator.iter().filter(|request| !request.silent).count();
            // As many as its CQ holds, whatever has ended meanwhile.
            let room = told < this.flow.depths[REQUESTS] as usize;
            if this.flow.budget > 0 && this.phase == Phase::Up && room {
                self.ends[end].flow.budget -= 1;
                self.post_one(end)?;
            }
        }
        // Where much is to be done, it lasts.
        let long = self.storage || self.ends[end].flow.bulk || self.has_gaps();
        let leaves = if long { 40_000 } else { 800 };
        // Copies that a consumer causes who leaves would be nobody's mistake.
        match self.rng.below(if self.lossless { u32::MAX } else { leaves }) {
            0 => self.disconnect(end)?,
            1 => {
                self.excuse(end, "flushed");
                self.flush(end);
            }
            2 => self.begin_close(end)?,
            3..10 if self.ends[end].flow.careless => self.withdraw(end)?,
            _ => {}
        }
        Ok(())
    }

    /// One last request, which takes with it what was deferred and tells of what is silent.
    fn post_last(&mut self, end: usize) -> Step {
        let flow = &self.ends[end].flow;
        if flow.finished {
            return Ok(());
        }
        // To learn that a peer is gone takes a request.
        let asks = self.trial.is_some_and(Trial::breaks) && !flow.asked;
        let idle = !flow.deferred && self.ends[end].initiator.is_empty() && !asks;
        if idle || flow.failed[REQUESTS] {
            self.ends[end].flow.finished = true;
            return Ok(());
        }
        self.ends[end].flow.asked = true;
        let Some(place) = self.ends[end].regions[LOCAL].take(0, &mut self.rng) else {
            // Others that are under way will tell.
            let told = self.ends[end].initiator.back().is_some_and(|last| !last.silent);
            self.ends[end].flow.finished = told && !self.ends[end].flow.deferred;
            if !self.ends[end].flow.finished {
                let from = (LOCAL, NOWHERE);
                self.ends[end].flow.finished = self.send(end, Data::Send, from, Vec::new(), 0)?;
            }
            return Ok(());
        };
        self.ends[end].flow.finished = self.send(end, Data::Send, (LOCAL, place), Vec::new(), 0)?;
        Ok(())
    }

    /// Bytes of a receive of an end, at most.
    pub(crate) fn receive_len(&self, end: usize) -> usize {
        let this = &self.ends[end];
        let pool = self.hosts[this.host].pool.as_ref().filter(|_| this.pooled);
        pool.map_or(this.flow.slot_len, super::pool::Pool::slot_len)
    }

    /// Posts a random request.
    fn post_one(&mut self, end: usize) -> Step {
        let slot_len = self.ends[end].regions[LOCAL].slot_len();
        let bulk = self.ends[end].flow.bulk;
        let most = if bulk || self.rng.below(3) == 0 { slot_len } else { slot_len.min(300) };
        let len =
            if self.rng.below(12) == 0 { 0 } else { self.rng.below(most as u32 + 1) as usize };
        let peer = self.ends[end].peer.ok_or("established with nobody")?;
        let careless = self.ends[end].flow.careless && self.rng.below(20) == 0;
        let remote_len = self.ends[peer].regions[EXPOSED].slot_len();
        if self.ends[end].flow.careless_keys {
            let right = self.rng.below(2) as usize;
            let rude = self.rng.below(2) == 0 && self.end_used(end)?;
            let strays = self.rng.below(6) == 0;
            if rude || strays && self.intrude_grant(end, peer, remote_len.min(len), right)? {
                return Ok(());
            }
        }
        let remote = len.min(remote_len);
        let receivable = len.min(self.receive_len(peer));
        let inline = self.rng.below(3) == 0 && !self.is_foreign(self.ends[end].host);
        let rolls = match self.trial {
            Some(Trial::LinkDown(work)) => work.rolls(),
            _ => Work::All.rolls(),
        };
        let mut roll = rolls.start + self.rng.below(rolls.end - rolls.start);
        if self.storage && self.rng.below(4) > 0 {
            roll = match (self.is_foreign(self.ends[end].host), self.has_foreign_peer(end)) {
                (true, _) => 11,
                (_, true) => [7, 8, 10, 10][self.rng.below(4) as usize],
                _ => roll,
            };
        }
        match roll {
            0..4 if careless => self.send_invalidate(end, peer),
            0..4 if inline => self.send_inline(end, receivable),
            0..4 => self.send_new(end, receivable, 0).map(drop),
            4..7 if careless => self.intrude(end, peer, remote, WRITE),
            4..7 if inline => self.write_inline(end, peer, remote),
            4..7 => self.write(end, peer, remote),
            7..10 if careless => self.intrude(end, peer, remote, READ),
            roll @ 7..10 => {
                let chained = roll == 9 && remote <= self.receive_len(peer);
                self.read(end, peer, remote, chained)
            }
            10 => self.end_of_peer(end, peer),
            _ => self.tend(end, peer),
        }
    }

    /// A local slot with something new in it.
    fn take_local(&mut self, end: usize, len: usize) -> Option<Place> {
        let place = self.ends[end].regions[LOCAL].take(len, &mut self.rng)?;
        let mut data = vec![0; len];
        fill(&mut data, &mut self.rng);
        self.ends[end].regions[LOCAL].put(&place, &data);
        Some(place)
    }

    pub(crate) fn flags(&mut self, end: usize) -> u32 {
        let (silent, defer) = (self.ends[end].flow.silent, self.ends[end].flow.defer);
        let mut flags = 0;
        for (flag, chance) in [
            (NDK_OP_FLAG_SILENT_SUCCESS, silent),
            (NDK_OP_FLAG_DEFER, defer),
            (NDK_OP_FLAG_READ_FENCE, 2),
            (NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, 2),
        ] {
            if self.rng.below(10) < chance {
                flags |= flag;
            }
        }
        flags
    }

    /// Posts a SEND of something new; false: there is no room.
    pub(crate) fn send_new(&mut self, end: usize, len: usize, flags: u32) -> Step<bool> {
        let Some(place) = self.take_local(end, len) else { return Ok(false) };
        let flags = self.flags(end) | flags;
        let data = self.ends[end].regions[LOCAL].model(&place).to_vec();
        self.send(end, Data::Send, (LOCAL, place), data, flags)
    }

    /// Posts a SEND of what lies in a region; false: there is no room.
    pub(crate) fn send(
        &mut self,
        end: usize,
        how: Data,
        from: (usize, Place),
        data: Vec<u8>,
        flags: u32,
    ) -> Step<bool> {
        let kind = Kind::Send(self.ends[end].flow.sends.len());
        let posted = self.post(end, how, kind, from, flags)?;
        if posted {
            self.ends[end].flow.sends.push(data);
        }
        Ok(posted)
    }

    /// Posts the end of a key that no peer can end.
    fn send_invalidate(&mut self, end: usize, peer: usize) -> Step {
        let (kind, flags) = (Kind::Refused(NdkOperationTypeSend), self.flags(end));
        let how = Data::SendInvalidate(self.ends[peer].regions[EXPOSED].token);
        self.excuse(end, "an invalidation of what cannot be invalidated");
        if self.post(end, how, kind, (LOCAL, NOWHERE), flags)? {
            self.ends[end].flow.sends.push(Vec::new());
        }
        Ok(())
    }

    fn send_inline(&mut self, end: usize, len: usize) -> Step {
        let kind = Kind::Send(self.ends[end].flow.sends.len());
        if let Some(data) = self.post_inline(end, Data::Send, len, |_| kind)? {
            self.ends[end].flow.sends.push(data);
        }
        Ok(())
    }

    fn write_inline(&mut self, end: usize, peer: usize, len: usize) -> Step {
        let len = len.min(self.ends[end].flow.inline_len);
        let Some((which, target)) = self.reach(peer, len, WRITE) else { return Ok(()) };
        let how = Data::Write(self.remote(peer, which, &target));
        let kind = |data: &[u8]| Kind::Write(which, target.clone(), Bytes(data.to_vec()));
        match self.post_inline(end, how, len, kind)? {
            Some(data) => self.ends[peer].regions[which].expect(&target, Some(data)),
            None => self.let_go(peer, which, &target),
        }
        Ok(())
    }

    /// Posts a request with inline data, from memory that changes at once: the bytes, if it was
    /// accepted. More than the queue pair was made for is refused.
    fn post_inline(
        &mut self,
        end: usize,
        how: Data,
        len: usize,
        kind: impl FnOnce(&[u8]) -> Kind,
    ) -> Step<Option<Vec<u8>>> {
        let most = self.ends[end].flow.inline_len;
        let mut bytes = vec![0; len];
        fill(&mut bytes, &mut self.rng);
        let data = bytes.clone();
        // As many elements as it likes, with tokens that mean nothing.
        let piece = 1 + self.rng.below(len as u32 + 1) as usize;
        let sgl: Vec<_> = bytes
            .chunks_mut(piece.max(len.div_ceil(20)))
            .map(|piece| NDK_SGE::from_virtual(piece.as_mut_ptr().cast(), piece.len() as u32, 7))
            .collect();
        let flags = self.flags(end) | NDK_OP_FLAG_INLINE;
        let id = self.new_id(end);
        let status = self.post_counted(end, id, how.over(&sgl), flags)?;
        fill(&mut bytes, &mut self.rng);
        if len > most && status == STATUS_BUFFER_OVERFLOW {
            // What fails lets go of what was deferred.
            self.ends[end].flow.deferred = false;
            return Ok(None);
        }
        if status != STATUS_SUCCESS {
            return self.refused(end, status).map(|()| None);
        }
        require!(len <= most, "end {end}: {len} bytes inline, and only {most} were asked for");
        self.accepted(end, Initiator::new(id, kind(&data), flags), flags);
        Ok(Some(data))
    }

    /// Posts an access to what a peer never offers.
    fn intrude(&mut self, end: usize, peer: usize, len: usize, right: usize) -> Step {
        let Some(place) = self.take_local(end, len.max(1)) else { return Ok(()) };
        let remote = self.forbidden(peer, &place);
        self.post_intrusion(end, place, remote, right)
    }

    /// Posts an access to a grant of the peer that is none, or none for this; false: there is none.
    fn intrude_grant(&mut self, end: usize, peer: usize, len: usize, right: usize) -> Step<bool> {
        let Some(place) = self.take_local(end, len.max(1)) else { return Ok(false) };
        match self.misuse(peer, right) {
            Some(remote) => self.post_intrusion(end, place, remote, right).map(|()| true),
            None => {
                self.ends[end].regions[LOCAL].release(&place);
                Ok(false)
            }
        }
    }

    /// Posts what must be refused. An access to no bytes would be granted.
    fn post_intrusion(&mut self, end: usize, place: Place, remote: Remote, right: usize) -> Step {
        let flags = self.flags(end);
        self.excuse(end, "an access to where it may not");
        let (how, kind) = if right == WRITE {
            (Data::Write(remote), NdkOperationTypeWrite)
        } else {
            (Data::Read(remote), NdkOperationTypeRead)
        };
        self.post(end, how, Kind::Refused(kind), (LOCAL, place), flags).map(drop)
    }

    fn write(&mut self, end: usize, peer: usize, len: usize) -> Step {
        let Some((which, target)) = self.reach(peer, len, WRITE) else { return Ok(()) };
        let Some(place) = self.take_local(end, len) else {
            self.let_go(peer, which, &target);
            return Ok(());
        };
        let (flags, how) = (self.flags(end), Data::Write(self.remote(peer, which, &target)));
        let data = self.ends[end].regions[LOCAL].model(&place).to_vec();
        self.ends[peer].regions[which].expect(&target, Some(data.clone()));
        let kind = Kind::Write(which, target.clone(), Bytes(data));
        if !self.post(end, how, kind, (LOCAL, place), flags)? {
            self.let_go(peer, which, &target);
        }
        Ok(())
    }

    fn read(&mut self, end: usize, peer: usize, len: usize, chained: bool) -> Step {
        let Some((which, source)) = self.reach(peer, len, READ) else { return Ok(()) };
        let Some(place) = self.ends[end].regions[LOCAL].take(len, &mut self.rng) else {
            self.let_go(peer, which, &source);
            return Ok(());
        };
        let (flags, how) = (self.flags(end), Data::Read(self.remote(peer, which, &source)));
        let data = self.ends[peer].regions[which].model(&source).to_vec();
        self.ends[end].regions[LOCAL].expect(&place, Some(data.clone()));
        // Two requests, or none: the second one needs room, too.
        let room =
            self.ends[end].initiator.len() + 2 <= self.ends[end].flow.depths[REQUESTS] as usize;
        let chained = chained && room;
        let kind = Kind::Read(which, source.clone(), Bytes(data.clone()), chained);
        if !self.post(end, how, kind, (LOCAL, place.clone()), flags)? {
            self.let_go(peer, which, &source);
        } else if chained {
            let flags = self.flags(end) | NDK_OP_FLAG_READ_FENCE;
            let sent = self.send_fenced(end, place, data, flags)?;
            require!(
                sent || self.ends[end].excuse.is_some() || !self.patient,
                "no room for a SEND"
            );
        }
        Ok(())
    }

    /// A SEND of what the READ before it brings.
    fn send_fenced(&mut self, end: usize, place: Place, data: Vec<u8>, flags: u32) -> Step<bool> {
        let kind = Kind::Send(self.ends[end].flow.sends.len());
        let id = self.new_id(end);
        let sgl = self.ends[end].regions[LOCAL].sgl(&place, &mut self.rng);
        let status = self.post_counted(end, id, Post::Send(&sgl), flags)?;
        if status != STATUS_SUCCESS {
            return self.refused(end, status).map(|()| false);
        }
        self.accepted(end, Initiator { place, ..Initiator::new(id, kind, flags) }, flags);
        self.ends[end].flow.sends.push(data);
        Ok(true)
    }

    /// Posts a request; false: there is no room, or no connection any more. Its slot is free then.
    pub(crate) fn post(
        &mut self,
        end: usize,
        how: Data,
        kind: Kind,
        (region, place): (usize, Place),
        flags: u32,
    ) -> Step<bool> {
        let id = self.new_id(end);
        let sgl = if place.range.is_empty() {
            Vec::new()
        } else {
            self.ends[end].regions[region].sgl(&place, &mut self.rng)
        };
        let status = self.post_counted(end, id, how.over(&sgl), flags)?;
        if status != STATUS_SUCCESS {
            self.ends[end].regions[region].release(&place);
            return self.refused(end, status).map(|()| false);
        }
        self.accepted(end, Initiator { region, place, ..Initiator::new(id, kind, flags) }, flags);
        Ok(true)
    }

    /// Posts a request without data; false: as with [`Self::post`].
    pub(crate) fn post_plain(
        &mut self,
        end: usize,
        what: Post<'_>,
        kind: Kind,
        flags: u32,
    ) -> Step<bool> {
        let id = self.new_id(end);
        let status = self.post_counted(end, id, what, flags)?;
        if status != STATUS_SUCCESS {
            return self.refused(end, status).map(|()| false);
        }
        self.accepted(end, Initiator::new(id, kind, flags), flags);
        Ok(true)
    }

    /// Posts, which allocates nothing.
    fn post_counted(
        &mut self,
        end: usize,
        id: usize,
        what: Post<'_>,
        flags: u32,
    ) -> Step<NTSTATUS> {
        if let Some(status) = self.post_foreign(end, id, what, flags) {
            return Ok(status);
        }
        let (status, allocations) = counted(|| self.ends[end].qp.post(id, what, flags));
        require!(allocations == 0, "end {end}: a post makes {allocations} allocations");
        Ok(status)
    }

    fn accepted(&mut self, end: usize, request: Initiator, flags: u32) {
        self.ends[end].flow.deferred = flags & NDK_OP_FLAG_DEFER != 0;
        self.note(|_| format!("end {end} posts {request:?}"));
        self.ends[end].initiator.push_back(request);
    }

    fn refused(&mut self, end: usize, status: NTSTATUS) -> Step {
        let this = &mut self.ends[end];
        // A request that fails lets go of those that were deferred.
        this.flow.deferred = false;
        if status == STATUS_NO_MORE_ENTRIES {
            let full = this.initiator.len() >= this.flow.depths[REQUESTS] as usize;
            require!(full, "end {end}: no room with {} requests", this.initiator.len());
            return Ok(());
        }
        require!(
            status == STATUS_CONNECTION_INVALID,
            "end {end}: a request is refused with {status}"
        );
        let may = this.excuse.is_some() || !self.patient;
        require!(may, "end {end}: a request is refused with {status} for no reason");
        this.flow.failed[REQUESTS] = true;
        Ok(())
    }
}
