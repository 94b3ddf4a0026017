//! How requests end, and what must be true then.

use super::Deed;
use super::end::{End, INBOUND, Phase};
use super::flow::{Bytes, Initiator, Kind, RECEIVES, REQUESTS};
use super::memory::{Place, Region};
use super::world::{Step, World, require};
use crate::kit::numbered;
use driver::abi::*;

impl World {
    /// Takes what the CQs hold, and arms them again.
    pub(crate) fn drain(&mut self, end: usize) -> Step {
        for which in 0..2 {
            while self.ends[end].open_cqs[which] {
                let results = match self.foreign_results(end, which) {
                    Some(results) => results,
                    None => numbered::results(self.ends[end].cqs[which]),
                };
                if results.is_empty() {
                    break;
                }
                results.iter().try_for_each(|result| self.complete(end, result))?;
            }
            let this = &mut self.ends[end];
            if this.open_cqs[which] && this.flow.notified && this.phase == Phase::Up {
                this.armed[which] = true;
                numbered::arm(this.cqs[which], NDK_CQ_NOTIFY_ANY);
            }
        }
        Ok(())
    }

    /// A host lists each connection that nothing has ended.
    pub(crate) fn check_listed(&mut self) -> Step {
        let lives = |end: &End| {
            let ended = end.flushed || end.disconnected || end.cut_off || end.excuse.is_some();
            end.phase == Phase::Up && !ended
        };
        for host in 0..self.hosts.len() {
            let own = self.ends.iter().filter(|end| end.host == host && lives(end));
            let live =
                own.filter(|end| end.peer.is_some_and(|peer| lives(&self.ends[peer]))).count();
            let Some(provider) = &mut self.hosts[host].provider else { continue };
            let listed = provider.connections().len();
            require!(listed >= live, "host {host} lists {listed} of {live} connections");
        }
        Ok(())
    }

    /// Compares a region with what it must hold, by way of what its owner does with it.
    pub(crate) fn check_region(
        &mut self,
        end: usize,
        which: usize,
        how: impl FnOnce(&mut Region) -> Step,
    ) -> Step {
        let name = ["local", "receive", "exposed"].get(which).copied().unwrap_or("granted");
        how(&mut self.ends[end].regions[which])
            .map_err(|what| format!("end {end}, {name} memory: {what}"))
    }

    pub(crate) fn check_memory(&mut self) -> Step {
        for end in 0..self.ends.len() {
            for which in 0..self.ends[end].regions.len() {
                self.check_region(end, which, |region| region.check())?;
            }
        }
        (0..self.hosts.len()).try_for_each(|host| self.check_pool(host, |region| region.check()))
    }

    /// Whatever the peer's provider called delivered was delivered: the completion comes before the
    /// ACK, but for one to a CQ of another core, which the first core takes there later.
    pub(crate) fn check_delivered(&self, end: usize) -> Step {
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
    pub(crate) fn check_ended(&mut self, end: usize) -> Step {
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

    pub(crate) fn check_deliveries(&mut self) -> Step {
        for end in 0..self.ends.len() {
            if self.ends[end].phase == Phase::Up {
                self.drain(end)?;
                self.check_delivered(end)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, end: usize, result: &NDK_RESULT_EX) -> Step {
        let NDK_RESULT_EX { Status: status, Type: kind, .. } = *result;
        let id = result.RequestContext.addr();
        self.note(|_| {
            format!("end {end} request {id} {kind:?} {status} {}", result.BytesTransferred)
        });
        self.mark(&(end, id, status.0));
        self.ends[end].moved = self.now;
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
            | STATUS_INVALID_DEVICE_REQUEST
            | STATUS_INTERNAL_ERROR => excused,
            STATUS_NETWORK_UNREACHABLE => self.ends[end].cut_off,
            _ => false,
        };
        require!(may, "end {end}: request {id} ends with {status} for no reason");
        Ok(())
    }

    fn complete_receive(&mut self, end: usize, id: usize, result: &NDK_RESULT_EX) -> Step {
        let place = self.take_receive(end, id)?;
        let number = self.ends[end].flow.delivered;
        let peer = self.ends[end].peer;
        let sent = peer.and_then(|peer| self.ends[peer].flow.sends.get(number).cloned());
        if result.Status != STATUS_SUCCESS {
            let status = result.Status;
            let long = sent.is_some_and(|sent| sent.len() > place.range.len());
            require!(!long || !self.ends[end].pooled, "end {end}: receive {id} is too short");
            let told = status == STATUS_BUFFER_OVERFLOW;
            require!(
                long || !told,
                "end {end}: receive {id} is long enough, and ends with {status}"
            );
            // The regions of a consumer that leaves may be gone before the length is looked at.
            let gone = status == STATUS_ACCESS_VIOLATION && self.ends[end].excuse.is_some();
            let short = status == STATUS_CANCELLED || !long || told || gone;
            require!(short, "end {end}: receive {id} is too short, and ends with {status}");
            return self.check_inbound(end, |region| region.abandon(&place));
        }
        let sent = sent.ok_or_else(|| format!("end {end}: SEND {number} was never sent"))?;
        let len = result.BytesTransferred as usize;
        require!(len == sent.len(), "end {end}: SEND {number} has {len} bytes of {}", sent.len());
        self.ends[end].flow.delivered += 1;
        let peer = peer.ok_or("received from nobody")?;
        self.hear(end, peer, number, result)?;
        if self.ends[end].pooled {
            self.did(Deed::SharedReceive);
        }
        self.check_inbound(end, |region| region.finish(&place, &sent))
    }

    /// The place of a receive that has ended: those of a queue end in the order of their posts.
    fn take_receive(&mut self, end: usize, id: usize) -> Step<Place> {
        let this = &mut self.ends[end];
        if !this.pooled {
            let front = this.receives.pop_front().filter(|front| front.id == id);
            let front = front.ok_or_else(|| format!("end {end}: receive {id} out of order"))?;
            return Ok(front.place);
        }
        require!(id > this.last_pooled, "end {end}: shared receive {id} out of order");
        this.last_pooled = id;
        let place = self.hosts[this.host].pool.as_mut().and_then(|pool| pool.take(id));
        place.ok_or_else(|| format!("end {end}: shared receive {id} ends twice"))
    }

    /// As [`Self::check_region`], of where an end receives.
    fn check_inbound(&mut self, end: usize, how: impl FnOnce(&mut Region) -> Step) -> Step {
        if self.ends[end].pooled {
            return self.check_pool(self.ends[end].host, how);
        }
        self.check_region(end, INBOUND, how)
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
                Kind::Write(..) => NdkOperationTypeWrite,
                Kind::Read(..) => NdkOperationTypeRead,
                Kind::Refused(kind) => kind,
                Kind::Map(at, _) if self.ends[end].grants[at].window.is_some() => {
                    NdkOperationTypeBind
                }
                Kind::Map(..) => NdkOperationTypeFastRegister,
                Kind::End(..) => NdkOperationTypeInvalidate,
            };
            require!(result.Type == right, "end {end}: {id} ends as {:?}", result.Type);
            require!(!success || !request.silent, "end {end}: {id} tells of its success");
            return if success { self.succeed(end, request) } else { self.fail(end, request) };
        }
    }

    fn succeed(&mut self, end: usize, request: Initiator) -> Step {
        let peer = self.ends[end].peer.ok_or("a success with nobody")?;
        let Initiator { region, place, inline, ends, .. } = request;
        if inline {
            self.did(Deed::Inline);
        }
        self.stop_own_use(end, region);
        if place.range.len() >= 1 << 20 {
            self.did(Deed::Long);
        }
        match request.kind {
            Kind::Send(number) => {
                self.ends[end].flow.acked = number + 1;
                self.check_region(end, region, |region| region.finish(&place, &[]))
            }
            Kind::Write(which, target, Bytes(data)) => {
                self.check_region(peer, which, |region| region.finish(&target, &data))?;
                self.stop_use(peer, which);
                self.check_region(end, region, |region| region.finish(&place, &[]))
            }
            Kind::Read(which, source, Bytes(data), chained) => {
                self.let_go(peer, which, &source);
                let settle = if chained { Region::settle } else { Region::finish };
                self.check_region(end, region, |region| settle(region, &place, &data))?;
                if let Some(at) = ends {
                    self.did(Deed::ReadInvalidates);
                    self.close_grant(end, at)?;
                }
                Ok(())
            }
            Kind::Map(at, time) => {
                self.open_grant(end, at, time);
                Ok(())
            }
            Kind::End(at, time) => {
                self.did(Deed::Invalidate);
                self.close_grant(end, (at, time))
            }
            Kind::Refused(kind) => Err(format!("end {end}: {kind:?} of what may not be succeeds")),
        }
    }

    fn fail(&mut self, end: usize, request: Initiator) -> Step {
        let peer = self.ends[end].peer.ok_or("a failure with nobody")?;
        if matches!(request.kind, Kind::Refused(_)) {
            self.did(Deed::Refused);
        }
        self.stop_own_use(end, request.region);
        match &request.kind {
            Kind::Read(which, source, ..) => self.let_go(peer, *which, source),
            Kind::Write(which, ..) => self.stop_use(peer, *which),
            Kind::Send(_) | Kind::Refused(_) | Kind::Map(..) | Kind::End(..) => {}
        }
        // The target of a WRITE stays in use: what is under way may still arrive.
        self.check_region(end, request.region, |region| region.abandon(&request.place))
    }
}
