//! How requests end, and what must be true then.

use super::consumer::{EXPOSED, INBOUND, LOCAL, Phase};
use super::memory::Region;
use super::ndk;
use super::workload::{Initiator, Kind, RECEIVES, REQUESTS};
use super::world::{Step, World, require};
use driver::abi::*;

impl World {
    /// Takes what the CQs hold, and arms them again.
    pub(crate) fn drain(&mut self, end: usize) -> Step {
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
    pub(crate) fn check_region(
        &mut self,
        end: usize,
        which: usize,
        how: impl FnOnce(&mut Region) -> Step,
    ) -> Step {
        let name = ["local", "receive", "exposed"][which];
        how(&mut self.ends[end].regions[which])
            .map_err(|what| format!("end {end}, {name} memory: {what}"))
    }

    pub(crate) fn check_memory(&mut self) -> Step {
        for end in 0..self.ends.len() {
            for which in [LOCAL, INBOUND, EXPOSED] {
                self.check_region(end, which, |region| region.check())?;
            }
        }
        Ok(())
    }

    /// Whatever the peer's provider called delivered was delivered: the completion comes before the
    /// ACK.
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
        let number = self.ends[end].flow.delivered;
        let peer = self.ends[end].peer;
        let sent = peer.and_then(|peer| self.ends[peer].flow.sends.get(number).cloned());
        if result.Status != STATUS_SUCCESS {
            let status = result.Status;
            let long = sent.is_some_and(|sent| sent.len() > receive.place.range.len());
            let told = status == STATUS_BUFFER_OVERFLOW;
            require!(
                long || !told,
                "end {end}: receive {id} is long enough, and ends with {status}"
            );
            let short = status == STATUS_CANCELLED || !long || told;
            require!(short, "end {end}: receive {id} is too short, and ends with {status}");
            return self.check_region(end, INBOUND, |region| region.abandon(&receive.place));
        }
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
