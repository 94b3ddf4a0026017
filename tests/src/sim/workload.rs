//! What an established end posts, and how each request must end: once, in order, with the right
//! bytes, and never with a failure that nobody caused.
//!
//! A new kind of request is a kind in [`Kind`], a branch in [`World::post_one`] and one in
//! [`World::succeed`].

use super::end::{EXPOSED, INBOUND, LOCAL, Phase};
use super::memory::{Place, fill};
use super::world::{Part, Step, World, require};
use crate::raw::Post;
use driver::abi::*;
use ndkperf::Remote;
use rocev2::env::Rng;

/// How an end works, and how far it is.
pub(crate) struct Flow {
    pub(crate) slot_len: usize,
    /// Bytes of inline data, at most.
    pub(crate) inline_len: usize,
    /// Receives and requests.
    pub(crate) depths: [u32; 2],
    pub(crate) cq_depths: [u32; 2],
    /// Its CQs are smaller than what they must hold.
    pub(crate) tiny_cq: bool,
    /// READs.
    pub(crate) inbound: u32,
    pub(crate) outbound: u32,
    /// Between two turns of its consumer, at most, in ns.
    pub(crate) pace: u64,
    /// It looks at its CQs only when it is notified.
    pub(crate) notified: bool,
    pub(crate) silent: u32,
    defer: u32,
    careless: bool,
    /// Requests that it still posts.
    budget: u32,
    batch: u32,
    /// While it heals: since when nothing has happened.
    patience: u64,
    /// Its last request was posted.
    pub(crate) finished: bool,
    pub(crate) deferred: bool,
    /// The payloads of its SENDs, in order.
    pub(crate) sends: Vec<Vec<u8>>,
    /// SENDs that the peer must have received.
    pub(crate) acked: usize,
    /// SENDs of the peer that it has received.
    pub(crate) delivered: usize,
    next_id: usize,
    pub(crate) failed: [bool; 2],
}

impl Flow {
    /// A random one.
    pub(crate) fn new(rng: &mut Rng, misuse: bool) -> Self {
        let depths = [1 << rng.below(5), 1 << rng.below(6)];
        let tiny_cq = misuse && rng.below(10) == 0;
        // A request that has ended makes room for another before its completion is read.
        let spare = if tiny_cq { 0 } else { 2 * (depths[0] + depths[1]) };
        Self {
            slot_len: 64 << rng.below(9),
            inline_len: [0, 1, 64, 256][rng.below(4) as usize],
            depths,
            cq_depths: [1 + spare, 1 + spare],
            tiny_cq,
            inbound: 1 + rng.below(18),
            outbound: 1 + rng.below(18),
            pace: [5_000, 50_000, 2_000_000][rng.below(3) as usize],
            notified: rng.below(3) > 0,
            silent: [0, 3, 8][rng.below(3) as usize],
            defer: [0, 3, 8][rng.below(3) as usize],
            careless: misuse && rng.below(2) == 0,
            budget: 1 + rng.below(400),
            batch: 1 + rng.below(8),
            patience: 100_000,
            finished: false,
            deferred: false,
            sends: Vec::new(),
            acked: 0,
            delivered: 0,
            next_id: 0,
            failed: [false; 2],
        }
    }

    /// Its receives come from a pool, of which it may be given this many before it reads of any.
    pub(crate) const fn use_pool(&mut self, slots: usize) {
        self.tiny_cq = false;
        self.depths[RECEIVES] = 1;
        self.cq_depths = [1 + slots as u32, 1 + 2 * (1 + self.depths[REQUESTS])];
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// The number of the SEND.
    Send(usize),
    /// Region and piece of the peer's memory, and what it will hold.
    Write(usize, Place, Vec<u8>),
    /// Region and piece of the peer's memory, what it holds, and whether a SEND of the same bytes
    /// follows.
    Read(usize, Place, Vec<u8>, bool),
    /// What must be refused.
    Refused(NDK_OPERATION_TYPE),
}

/// An initiator request that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Initiator {
    pub(crate) id: usize,
    pub(crate) kind: Kind,
    pub(crate) silent: bool,
    /// Its data was inline.
    pub(crate) inline: bool,
    /// Its own memory: region and place.
    pub(crate) region: usize,
    pub(crate) place: Place,
}

/// A request with data.
#[derive(Clone, Copy, Debug)]
enum Data {
    Send,
    SendInvalidate(u32),
    Write(Remote),
    Read(Remote),
}

impl Data {
    const fn over(self, sgl: &[NDK_SGE]) -> Post<'_> {
        match self {
            Self::Send => Post::Send(sgl),
            Self::SendInvalidate(token) => Post::SendAndInvalidate(sgl, token),
            Self::Write(remote) => Post::Write(sgl, remote),
            Self::Read(remote) => Post::Read(sgl, remote),
        }
    }
}

/// No place of any region.
const NOWHERE: Place = Place { slot: usize::MAX, range: 0..0 };

/// A receive that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) id: usize,
    pub(crate) place: Place,
}

pub(crate) const RECEIVES: usize = 0;
pub(crate) const REQUESTS: usize = 1;

impl World {
    /// A turn of the consumer of an established end.
    pub(crate) fn work(&mut self, end: usize) -> Step {
        if self.ends[end].flow.failed.contains(&true) {
            // It is over, told or not.
            self.ends[end].phase = Phase::Down;
            return self.act_as(end);
        }
        let successes = self.report.successes;
        if !self.ends[end].flow.notified || !self.ends[end].armed[0] || !self.ends[end].armed[1] {
            self.drain(end)?;
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
        let lazy = self.part == Part::Chaos && self.rng.below(3) == 0;
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
            let qp = self.ends[end].qp;
            let status = qp.receive(id, &sgl);
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
        match self.rng.below(800) {
            0 => self.disconnect(end)?,
            1 => {
                self.excuse(end, "flushed");
                self.ends[end].qp.flush();
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
        let idle = !flow.deferred && self.ends[end].initiator.is_empty();
        if idle || flow.failed[REQUESTS] {
            self.ends[end].flow.finished = true;
            return Ok(());
        }
        let Some(place) = self.ends[end].regions[LOCAL].take(0, &mut self.rng) else {
            // Others that are under way will tell.
            let told = self.ends[end].initiator.back().is_some_and(|last| !last.silent);
            self.ends[end].flow.finished = told && !self.ends[end].flow.deferred;
            if !self.ends[end].flow.finished {
                self.ends[end].flow.finished = self.send(end, NOWHERE, Vec::new(), 0)?;
            }
            return Ok(());
        };
        self.ends[end].flow.finished = self.send(end, place, Vec::new(), 0)?;
        Ok(())
    }

    /// Bytes of a receive of an end, at most.
    fn receive_len(&self, end: usize) -> usize {
        let this = &self.ends[end];
        let pool = self.hosts[this.host].pool.as_ref().filter(|_| this.pooled);
        pool.map_or(this.flow.slot_len, super::pool::Pool::slot_len)
    }

    /// Posts a random request.
    fn post_one(&mut self, end: usize) -> Step {
        let slot_len = self.ends[end].regions[LOCAL].slot_len();
        let most = if self.rng.below(3) == 0 { slot_len } else { slot_len.min(300) };
        let len =
            if self.rng.below(12) == 0 { 0 } else { self.rng.below(most as u32 + 1) as usize };
        let peer = self.ends[end].peer.ok_or("established with nobody")?;
        let careless = self.ends[end].flow.careless && self.rng.below(30) == 0;
        let remote_len = self.ends[peer].regions[EXPOSED].slot_len();
        let remote = len.min(remote_len);
        let receivable = len.min(self.receive_len(peer));
        let inline = self.rng.below(3) == 0;
        match self.rng.below(10) {
            0..4 if inline && !careless => self.send_inline(end, receivable),
            0..4 => {
                let Some(place) = self.take_local(end, receivable) else { return Ok(()) };
                let flags = self.flags(end);
                let data = self.ends[end].regions[LOCAL].model(&place).to_vec();
                if careless {
                    self.excuse(end, "an invalidation of what cannot be invalidated");
                    return self.send_invalidate(end, place, data, flags);
                }
                self.send(end, place, data, flags).map(drop)
            }
            4..7 if inline && !careless => self.write_inline(end, peer, remote),
            4..7 => {
                let Some(place) = self.take_local(end, remote) else { return Ok(()) };
                self.write(end, peer, place, careless)
            }
            roll => {
                let chained = roll == 9 && remote <= self.receive_len(peer);
                let Some(place) = self.ends[end].regions[LOCAL].take(remote, &mut self.rng) else {
                    return Ok(());
                };
                self.read(end, peer, place, careless, chained)
            }
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

    fn flags(&mut self, end: usize) -> u32 {
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

    /// Posts a SEND; false: there is no room.
    fn send(&mut self, end: usize, place: Place, data: Vec<u8>, flags: u32) -> Step<bool> {
        let kind = Kind::Send(self.ends[end].flow.sends.len());
        let posted = self.post(end, Data::Send, kind, place, flags)?;
        if posted {
            self.ends[end].flow.sends.push(data);
        }
        Ok(posted)
    }

    fn send_invalidate(&mut self, end: usize, place: Place, data: Vec<u8>, flags: u32) -> Step {
        let token = self.ends[end].peer.map_or(0, |peer| self.ends[peer].regions[EXPOSED].token);
        let kind = Kind::Refused(NdkOperationTypeSend);
        if self.post(end, Data::SendInvalidate(token), kind, place, flags)? {
            self.ends[end].flow.sends.push(data);
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
        let Some(target) = self.ends[peer].regions[EXPOSED].take(len, &mut self.rng) else {
            return Ok(());
        };
        let remote = self.remote(peer, EXPOSED, &target);
        let kind = |data: &[u8]| Kind::Write(EXPOSED, target.clone(), data.to_vec());
        let region = &mut self.ends[peer].regions[EXPOSED];
        region.release(&target);
        let posted = self.post_inline(end, Data::Write(remote), len, kind)?;
        if let Some(data) = posted {
            self.ends[peer].regions[EXPOSED].expect(&target, Some(data));
        }
        Ok(())
    }

    /// Posts a request with inline data, from memory that changes at once: the bytes, if it was
    /// accepted. More than the queue pair was made for is refused.
    fn post_inline(
        &mut self,
        end: usize,
        request: Data,
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
        let status = self.ends[end].qp.post(id, request.over(&sgl), flags);
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
        let (silent, place) = (is_silent(flags), NOWHERE);
        self.accepted(
            end,
            Initiator { id, kind: kind(&data), silent, inline: true, region: LOCAL, place },
            flags,
        );
        Ok(Some(data))
    }

    /// How the peer's memory is named.
    fn remote(&self, peer: usize, region: usize, place: &Place) -> Remote {
        let region = &self.ends[peer].regions[region];
        Remote { address: region.address(place), token: region.token }
    }

    /// An address that the peer does not offer.
    fn forbidden(&mut self, peer: usize, place: &Place) -> Remote {
        let Remote { address, token } = self.remote(peer, EXPOSED, place);
        match self.rng.below(4) {
            0 => Remote { address, token: token ^ 1 << self.rng.below(32) },
            1 => Remote { address: address.wrapping_add(1 << 24), token },
            2 => Remote { address: u64::MAX - 3, token },
            // Registered, and not for peers.
            _ => self.remote(peer, LOCAL, &Place { slot: 0, range: place.range.clone() }),
        }
    }

    /// Posts an access to what may not be accessed, unless it is one of no bytes, which is granted.
    fn intrude(
        &mut self,
        end: usize,
        place: Place,
        remote: Remote,
        kind: NDK_OPERATION_TYPE,
    ) -> Step {
        if place.range.is_empty() {
            self.ends[end].regions[LOCAL].release(&place);
            return Ok(());
        }
        let flags = self.flags(end);
        self.excuse(end, "an access to where it may not");
        let writes = kind == NdkOperationTypeWrite;
        let request = if writes { Data::Write(remote) } else { Data::Read(remote) };
        self.post(end, request, Kind::Refused(kind), place, flags).map(drop)
    }

    fn write(&mut self, end: usize, peer: usize, place: Place, careless: bool) -> Step {
        if careless {
            let remote = self.forbidden(peer, &place);
            return self.intrude(end, place, remote, NdkOperationTypeWrite);
        }
        let flags = self.flags(end);
        let Some(target) = self.ends[peer].regions[EXPOSED].take(place.range.len(), &mut self.rng)
        else {
            self.ends[end].regions[LOCAL].release(&place);
            return Ok(());
        };
        let remote = self.remote(peer, EXPOSED, &target);
        let data = self.ends[end].regions[LOCAL].model(&place).to_vec();
        self.ends[peer].regions[EXPOSED].expect(&target, Some(data.clone()));
        let kind = Kind::Write(EXPOSED, target.clone(), data);
        if !self.post(end, Data::Write(remote), kind, place, flags)? {
            self.ends[peer].regions[EXPOSED].release(&target);
        }
        Ok(())
    }

    fn read(
        &mut self,
        end: usize,
        peer: usize,
        place: Place,
        careless: bool,
        chained: bool,
    ) -> Step {
        if careless {
            let remote = self.forbidden(peer, &place);
            return self.intrude(end, place, remote, NdkOperationTypeRead);
        }
        let flags = self.flags(end);
        let Some(source) = self.ends[peer].regions[EXPOSED].take(place.range.len(), &mut self.rng)
        else {
            self.ends[end].regions[LOCAL].release(&place);
            return Ok(());
        };
        let remote = self.remote(peer, EXPOSED, &source);
        let data = self.ends[peer].regions[EXPOSED].model(&source).to_vec();
        self.ends[end].regions[LOCAL].expect(&place, Some(data.clone()));
        // Two requests, or none: the second one needs room, too.
        let room =
            self.ends[end].initiator.len() + 2 <= self.ends[end].flow.depths[REQUESTS] as usize;
        let chained = chained && room;
        let kind = Kind::Read(EXPOSED, source.clone(), data.clone(), chained);
        if !self.post(end, Data::Read(remote), kind, place.clone(), flags)? {
            self.ends[peer].regions[EXPOSED].release(&source);
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
        let status = self.ends[end].qp.post(id, Post::Send(&sgl), flags);
        if status != STATUS_SUCCESS {
            return self.refused(end, status).map(|()| false);
        }
        let silent = is_silent(flags);
        self.accepted(
            end,
            Initiator { id, kind, silent, inline: false, region: LOCAL, place },
            flags,
        );
        self.ends[end].flow.sends.push(data);
        Ok(true)
    }

    /// Posts a request; false: there is no room, or no connection any more. Its slot is free then.
    fn post(
        &mut self,
        end: usize,
        request: Data,
        kind: Kind,
        place: Place,
        flags: u32,
    ) -> Step<bool> {
        let id = self.new_id(end);
        let sgl = if place.range.is_empty() {
            Vec::new()
        } else {
            self.ends[end].regions[LOCAL].sgl(&place, &mut self.rng)
        };
        let status = self.ends[end].qp.post(id, request.over(&sgl), flags);
        if status != STATUS_SUCCESS {
            self.ends[end].regions[LOCAL].release(&place);
            return self.refused(end, status).map(|()| false);
        }
        let silent = is_silent(flags);
        self.accepted(
            end,
            Initiator { id, kind, silent, inline: false, region: LOCAL, place },
            flags,
        );
        Ok(true)
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

const fn is_silent(flags: u32) -> bool {
    flags & NDK_OP_FLAG_SILENT_SUCCESS != 0
}
