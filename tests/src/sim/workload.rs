//! What an established end posts, and how each request must end: once, in order, with the right
//! bytes, and never with a failure that nobody caused.
//!
//! Fast registration, memory windows, shared receive queues and inline data have their place here:
//! a kind in [`Kind`], a branch in [`World::post_one`] and one in [`World::succeed`].

use super::consumer::{EXPOSED, INBOUND, LOCAL, Phase};
use super::memory::{Place, Region, fill};
use super::ndk::{self, Request};
use super::world::{Part, Step, World, require};
use driver::abi::*;
use rocev2::env::Rng;

/// How an end works, and how far it is.
pub struct Flow {
    pub slot_len: usize,
    /// Receives and requests.
    pub depths: [u32; 2],
    pub cq_depths: [u32; 2],
    /// Its CQs are smaller than what they must hold.
    pub tiny_cq: bool,
    /// READs.
    pub inbound: u32,
    pub outbound: u32,
    /// Between two turns of its consumer, at most, in ns.
    pub pace: u64,
    /// It looks at its CQs only when it is notified.
    notified: bool,
    silent: u32,
    defer: u32,
    careless: bool,
    /// Requests that it still posts.
    budget: u32,
    batch: u32,
    /// While it heals: since when nothing has happened.
    patience: u64,
    /// Its last request was posted.
    pub finished: bool,
    deferred: bool,
    /// The payloads of its SENDs, in order.
    sends: Vec<Vec<u8>>,
    /// SENDs that the peer must have received.
    acked: usize,
    /// SENDs of the peer that it has received.
    delivered: usize,
    next_id: usize,
    failed: [bool; 2],
}

impl Flow {
    /// A random one.
    pub fn new(rng: &mut Rng, misuse: bool) -> Self {
        let depths = [1 << rng.below(5), 1 << rng.below(6)];
        let tiny_cq = misuse && rng.below(10) == 0;
        // A request that has ended makes room for another before its completion is read.
        let spare = if tiny_cq { 0 } else { 2 * (depths[0] + depths[1]) };
        Self {
            slot_len: 64 << rng.below(9),
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
}

/// What was asked for.
#[derive(Clone, Debug)]
enum Kind {
    /// The number of the SEND.
    Send(usize),
    /// A piece of the peer's memory; `None`: memory that is not there.
    Write(Option<Place>),
    /// As above, what it holds, and whether a SEND of the same bytes follows.
    Read(Option<Place>, Vec<u8>, bool),
}

/// An initiator request that has not ended.
#[derive(Clone, Debug)]
pub struct Initiator {
    id: usize,
    kind: Kind,
    silent: bool,
    place: Place,
}

/// A receive that has not ended.
#[derive(Clone, Debug)]
pub struct Received {
    id: usize,
    place: Place,
}

const RECEIVES: usize = 0;
const REQUESTS: usize = 1;

impl World {
    /// A turn of the consumer of an established end.
    pub fn work(&mut self, end: usize) -> Step {
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

    /// Takes what the CQs hold, and arms them again.
    pub fn drain(&mut self, end: usize) -> Step {
        for which in 0..2 {
            while self.ends[end].open_cqs[which] {
                let results = ndk::results(self.ends[end].cqs[which]);
                if results.is_empty() {
                    break;
                }
                results.iter().try_for_each(|result| self.complete(end, result))?;
            }
            let this = &mut self.ends[end];
            if this.open_cqs[which] && this.flow.notified && this.phase == Phase::Up {
                this.armed[which] = true;
                ndk::arm(this.cqs[which], NDK_CQ_NOTIFY_ANY);
            }
        }
        Ok(())
    }

    /// Compares a region with what it must hold, by way of what its owner does with it.
    pub fn check_region(
        &mut self,
        end: usize,
        which: usize,
        how: impl FnOnce(&mut Region) -> Step,
    ) -> Step {
        let name = ["local", "receive", "exposed"][which];
        how(&mut self.ends[end].regions[which])
            .map_err(|what| format!("end {end}, {name} memory: {what}"))
    }

    pub fn check_memory(&mut self) -> Step {
        for end in 0..self.ends.len() {
            for which in [LOCAL, INBOUND, EXPOSED] {
                self.check_region(end, which, |region| region.check())?;
            }
        }
        Ok(())
    }

    /// Whatever the peer's provider called delivered was delivered: the completion comes before the
    /// ACK.
    pub fn check_delivered(&self, end: usize) -> Step {
        let this = &self.ends[end];
        let Some(peer) = this.peer.filter(|&peer| self.ends[peer].peer == Some(end)) else {
            return Ok(());
        };
        let (delivered, acked) = (this.flow.delivered, self.ends[peer].flow.acked);
        require!(
            delivered >= acked || this.flow.tiny_cq || !this.open_cqs[RECEIVES],
            "end {end}: {delivered} SENDs delivered of {acked} acknowledged"
        );
        Ok(())
    }

    /// A QP has closed: everything posted on it has ended, and the consumer was told.
    pub fn check_ended(&mut self, end: usize) -> Step {
        self.drain(end)?;
        let this = &self.ends[end];
        if this.flow.tiny_cq {
            return Ok(());
        }
        let receives = if this.open_cqs[RECEIVES] { this.receives.len() } else { 0 };
        let open = this.open_cqs[REQUESTS];
        let requests = this.initiator.iter().filter(|request| open && !request.silent).count();
        require!(
            receives + requests == 0,
            "end {end}: {receives} receives and {requests} requests outlive their QP"
        );
        Ok(())
    }

    pub fn check_deliveries(&mut self) -> Step {
        for end in 0..self.ends.len() {
            if self.ends[end].phase == Phase::Up {
                self.drain(end)?;
                self.check_delivered(end)?;
            }
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
    pub fn post_receives(&mut self, end: usize) -> Step {
        let depth = self.ends[end].flow.depths[RECEIVES] as usize;
        let lazy = self.part == Part::Chaos && self.rng.below(3) == 0;
        let wanted = if lazy { self.rng.below(depth as u32 + 1) as usize } else { depth };
        while self.ends[end].receives.len() < wanted && !self.ends[end].flow.failed[RECEIVES] {
            let id = self.new_id(end);
            let short = self.ends[end].flow.careless && self.rng.below(100) == 0;
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
                let far = Place { slot: usize::MAX, range: 0..0 };
                self.ends[end].flow.finished = self.send(end, far, Vec::new(), 0)?;
            }
            return Ok(());
        };
        self.ends[end].flow.finished = self.send(end, place, Vec::new(), 0)?;
        Ok(())
    }

    /// Posts a random request.
    fn post_one(&mut self, end: usize) -> Step {
        let slot_len = self.ends[end].regions[LOCAL].slot_len();
        let most = if self.rng.below(3) == 0 { slot_len } else { slot_len.min(300) };
        let len = if self.rng.below(12) == 0 { 0 } else { self.rng.below(most as u32 + 1) as usize };
        let peer = self.ends[end].peer.ok_or("established with nobody")?;
        let careless = self.ends[end].flow.careless && self.rng.below(60) == 0;
        let remote_len = self.ends[peer].regions[EXPOSED].slot_len();
        let remote = len.min(remote_len);
        let receivable = len.min(self.ends[peer].flow.slot_len);
        match self.rng.below(10) {
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
            4..7 => {
                let Some(place) = self.take_local(end, remote) else { return Ok(()) };
                self.write(end, peer, place, careless)
            }
            roll => {
                let chained = roll == 9 && remote <= self.ends[peer].flow.slot_len;
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
        let posted = self.post(end, Request::Send, kind, place, flags)?;
        if posted {
            self.ends[end].flow.sends.push(data);
        }
        Ok(posted)
    }

    fn send_invalidate(&mut self, end: usize, place: Place, data: Vec<u8>, flags: u32) -> Step {
        let token = self.ends[end].peer.map_or(0, |peer| self.ends[peer].regions[EXPOSED].token);
        let kind = Kind::Send(self.ends[end].flow.sends.len());
        if self.post(end, Request::SendInvalidate(token), kind, place, flags)? {
            self.ends[end].flow.sends.push(data);
        }
        Ok(())
    }

    /// An address that is the peer's, or not.
    fn remote(&mut self, peer: usize, place: &Place, careless: bool) -> (u64, u32) {
        let region = &self.ends[peer].regions[EXPOSED];
        let (address, token) = (region.address(place), region.token);
        match self.rng.below(3) {
            _ if !careless => (address, token),
            0 => (address, token ^ 1 << self.rng.below(32)),
            1 => (address.wrapping_add(1 << 24), token),
            _ => (u64::MAX - 3, token),
        }
    }

    fn write(&mut self, end: usize, peer: usize, place: Place, careless: bool) -> Step {
        let flags = self.flags(end);
        let Some(target) = self.ends[peer].regions[EXPOSED].take(place.range.len(), &mut self.rng)
        else {
            self.ends[end].regions[LOCAL].release(&place);
            return Ok(());
        };
        let (address, token) = self.remote(peer, &target, careless);
        let data = self.ends[end].regions[LOCAL].model(&place).to_vec();
        if careless {
            self.excuse(end, "a WRITE to where it may not");
        } else {
            self.ends[peer].regions[EXPOSED].expect(&target, Some(data));
        }
        let kind = Kind::Write(Some(target.clone()));
        if !self.post(end, Request::Write(address, token), kind, place, flags)? {
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
        let flags = self.flags(end);
        let Some(source) = self.ends[peer].regions[EXPOSED].take(place.range.len(), &mut self.rng)
        else {
            self.ends[end].regions[LOCAL].release(&place);
            return Ok(());
        };
        let (address, token) = self.remote(peer, &source, careless);
        let data = self.ends[peer].regions[EXPOSED].model(&source).to_vec();
        if careless {
            self.excuse(end, "a READ from where it may not");
        }
        self.ends[end].regions[LOCAL].expect(&place, Some(data.clone()));
        // Two requests, or none: the second one needs room, too.
        let room = self.ends[end].initiator.len() + 2 <= self.ends[end].flow.depths[REQUESTS] as usize;
        let chained = chained && room;
        let kind = Kind::Read(Some(source.clone()), data.clone(), chained);
        if !self.post(end, Request::Read(address, token), kind, place.clone(), flags)? {
            self.ends[peer].regions[EXPOSED].release(&source);
        } else if chained {
            let flags = self.flags(end) | NDK_OP_FLAG_READ_FENCE;
            let sent = self.send_fenced(end, place, data, flags)?;
            require!(sent || self.ends[end].excuse.is_some() || !self.patient, "no room for a SEND");
        }
        Ok(())
    }

    /// A SEND of what the READ before it brings.
    fn send_fenced(&mut self, end: usize, place: Place, data: Vec<u8>, flags: u32) -> Step<bool> {
        let kind = Kind::Send(self.ends[end].flow.sends.len());
        let id = self.new_id(end);
        let sgl = self.ends[end].regions[LOCAL].sgl(&place, &mut self.rng);
        let status = ndk::post(self.ends[end].qp, Request::Send, id, &sgl, flags);
        if status != STATUS_SUCCESS {
            return self.refused(end, status).map(|()| false);
        }
        self.accepted(end, Initiator { id, kind, silent: is_silent(flags), place }, flags);
        self.ends[end].flow.sends.push(data);
        Ok(true)
    }

    /// Posts a request; false: there is no room, or no connection any more. Its slot is free then.
    fn post(
        &mut self,
        end: usize,
        request: Request,
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
        let status = ndk::post(self.ends[end].qp, request, id, &sgl, flags);
        if status != STATUS_SUCCESS {
            self.ends[end].regions[LOCAL].release(&place);
            return self.refused(end, status).map(|()| false);
        }
        self.accepted(end, Initiator { id, kind, silent: is_silent(flags), place }, flags);
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
        require!(status == STATUS_CONNECTION_INVALID, "end {end}: a request is refused with {status}");
        let may = this.excuse.is_some() || !self.patient;
        require!(may, "end {end}: a request is refused with {status} for no reason");
        this.flow.failed[REQUESTS] = true;
        Ok(())
    }

    // ---- completions ---------------------------------------------------------------------------

    fn complete(&mut self, end: usize, result: &NDK_RESULT_EX) -> Step {
        let NDK_RESULT_EX { Status: status, Type: kind, .. } = *result;
        let id = result.RequestContext.addr();
        self.note(|_| format!("end {end} request {id} {kind:?} {status} {}", result.BytesTransferred));
        self.mark(&(end, id, status.0));
        self.report.completions += 1;
        self.report.successes += u64::from(status == STATUS_SUCCESS);
        require!(result.QPContext.addr() == end, "end {end}: a completion of another QP");
        let is_receive =
            kind == NdkOperationTypeReceive || kind == NdkOperationTypeReceiveAndInvalidate;
        let queue = if is_receive { RECEIVES } else { REQUESTS };
        let ended = status == STATUS_SUCCESS && self.ends[end].flow.failed[queue];
        // A connection that was refused a request may still finish those before it.
        require!(!ended || !is_receive, "end {end}: request {id} succeeds after one failed");
        if status != STATUS_SUCCESS {
            self.check_failure(end, id, status)?;
            self.ends[end].flow.failed[queue] = true;
        }
        if is_receive {
            self.complete_receive(end, id, result)
        } else {
            self.complete_request(end, id, result)
        }
    }

    fn check_failure(&self, end: usize, id: usize, status: NTSTATUS) -> Step {
        let excused = self.ends[end].excuse.is_some();
        let may = match status {
            STATUS_CANCELLED | STATUS_IO_TIMEOUT => excused || !self.patient,
            // Only a consumer's mistake, or what it closed, gives these.
            STATUS_ACCESS_VIOLATION
            | STATUS_REMOTE_RESOURCES
            | STATUS_BUFFER_OVERFLOW
            | STATUS_INTERNAL_ERROR => excused,
            _ => false,
        };
        require!(may, "end {end}: request {id} ends with {status} for no reason");
        Ok(())
    }

    fn complete_receive(&mut self, end: usize, id: usize, result: &NDK_RESULT_EX) -> Step {
        let front = self.ends[end].receives.pop_front();
        let front = front.filter(|front| front.id == id);
        let receive = front.ok_or_else(|| format!("end {end}: receive {id} out of order"))?;
        if result.Status != STATUS_SUCCESS {
            return self.check_region(end, INBOUND, |region| region.abandon(&receive.place));
        }
        let peer = self.ends[end].peer.ok_or("a SEND from nobody")?;
        let number = self.ends[end].flow.delivered;
        let sent = self.ends[peer].flow.sends.get(number).cloned();
        let sent = sent.ok_or_else(|| format!("end {end}: SEND {number} was never sent"))?;
        let len = result.BytesTransferred as usize;
        require!(len == sent.len(), "end {end}: SEND {number} has {len} bytes of {}", sent.len());
        self.ends[end].flow.delivered += 1;
        self.check_region(end, INBOUND, |region| region.finish(&receive.place, &sent))
    }

    fn complete_request(&mut self, end: usize, id: usize, result: &NDK_RESULT_EX) -> Step {
        let success = result.Status == STATUS_SUCCESS;
        loop {
            let front = self.ends[end].initiator.pop_front();
            let request = front.ok_or_else(|| format!("end {end}: request {id} ends twice"))?;
            if request.id != id {
                require!(request.silent, "end {end}: {id} ends before {}", request.id);
                self.succeed(end, request)?;
                continue;
            }
            let right = match request.kind {
                Kind::Send(_) => NdkOperationTypeSend,
                Kind::Write(_) => NdkOperationTypeWrite,
                Kind::Read(..) => NdkOperationTypeRead,
            };
            require!(result.Type == right, "end {end}: {id} ends as {:?}", result.Type);
            require!(!success || !request.silent, "end {end}: {id} tells of its success");
            return if success { self.succeed(end, request) } else { self.fail(end, request) };
        }
    }

    fn succeed(&mut self, end: usize, request: Initiator) -> Step {
        let peer = self.ends[end].peer.ok_or("a success with nobody")?;
        let place = request.place;
        match request.kind {
            Kind::Send(number) => {
                self.ends[end].flow.acked = number + 1;
                self.check_region(end, LOCAL, |region| region.finish(&place, &[]))
            }
            Kind::Write(target) => {
                let data = self.ends[end].regions[LOCAL].model(&place).to_vec();
                let target = target.ok_or("a WRITE to nowhere succeeds")?;
                self.check_region(peer, EXPOSED, |region| region.finish(&target, &data))?;
                self.check_region(end, LOCAL, |region| region.finish(&place, &[]))
            }
            Kind::Read(source, data, chained) => {
                let source = source.ok_or("a READ from nowhere succeeds")?;
                self.ends[peer].regions[EXPOSED].release(&source);
                let settle = if chained { Region::settle } else { Region::finish };
                self.check_region(end, LOCAL, |region| settle(region, &place, &data))
            }
        }
    }

    fn fail(&mut self, end: usize, request: Initiator) -> Step {
        let peer = self.ends[end].peer.ok_or("a failure with nobody")?;
        if let Kind::Read(Some(source), ..) = &request.kind {
            self.ends[peer].regions[EXPOSED].release(source);
        }
        // The target of a WRITE stays in use: what is under way may still arrive.
        self.check_region(end, LOCAL, |region| region.abandon(&request.place))
    }
}

const fn is_silent(flags: u32) -> bool {
    flags & NDK_OP_FLAG_SILENT_SUCCESS != 0
}
