//! What the consumers of the simulation ask of a foreign host, in the words in which they ask it of
//! a provider; and its turns.

use super::keys::{Mapping, Piece};
use super::requester::{Op, Wqe};
use super::responder::STRICT;
use super::{Foreign, Quirks};
use crate::kit::numbered::Event;
use crate::kit::raw::{Object, Post};
use crate::sim::edge::lock;
use crate::sim::end::{End, Phase};
use crate::sim::memory::Region;
use crate::sim::world::{Step, World, require};
use driver::abi::*;
use std::hash::Hash;
use std::net::SocketAddr;

/// Frames that a foreign host takes in a turn, at most.
const BURST: usize = 32;

impl World {
    /// A host is foreign.
    pub(crate) fn is_foreign(&self, host: usize) -> bool {
        self.hosts[host].quirks.is_some()
    }

    /// The peer of an end is foreign.
    pub(crate) fn has_foreign_peer(&self, end: usize) -> bool {
        self.ends[end].peer.is_some_and(|peer| self.is_foreign(self.ends[peer].host))
    }

    /// Starts a foreign host.
    pub(crate) fn start_foreign(&mut self, host: usize, quirks: Quirks) {
        let rng = self.rng.fork();
        let this = &self.hosts[host];
        let mut foreign =
            Foreign::new(host, this.ips[0], this.mtu, quirks, this.incarnation - 1, rng);
        for (at, other) in self.hosts.iter().enumerate() {
            other.ips.iter().for_each(|&ip| foreign.meet(ip, self.net.nic(at)));
        }
        self.hosts[host].foreign = Some(foreign);
        self.hosts[host].call(self.now);
    }

    /// Asks a foreign host something, which takes effect in its next turn.
    fn ask<R>(&mut self, host: usize, what: impl FnOnce(&mut Foreign, u64) -> R) -> Option<R> {
        let this = &mut self.hosts[host];
        let clock = this.clock.read(self.now);
        let result = this.foreign.as_mut().map(|foreign| what(foreign, clock))?;
        this.call(self.now);
        self.listen_to(host);
        Some(result)
    }

    fn ask_end<R>(&mut self, end: usize, what: impl FnOnce(&mut Foreign, u64) -> R) -> Option<R> {
        self.ask(self.ends[end].host, what)
    }

    /// Takes what a foreign host has to tell its consumers.
    fn listen_to(&mut self, host: usize) {
        let Some(foreign) = &mut self.hosts[host].foreign else { return };
        foreign.met.drain(..).for_each(|did| self.report.deeds[did as usize] += 1);
        self.events.extend(foreign.events.drain(..));
        for (end, why) in std::mem::take(&mut foreign.excuses) {
            self.excuse(end, why);
        }
    }

    /// A turn of a foreign host.
    pub(crate) fn turn_foreign(&mut self, host: usize) -> Step {
        let room_at = self.net.has_room_at(host);
        if room_at > self.now {
            // Its one queue is full, and everything waits.
            self.hosts[host].cores[0].turn_at = Some(room_at);
            return Ok(());
        }
        self.report.turns += 1;
        let clock = self.hosts[host].clock.read(self.now);
        let mut taken = 0;
        let this = &mut self.hosts[host];
        while taken < BURST
            && let Some(foreign) = &mut this.foreign
            && !foreign.is_reading()
            && let Some(frame) = lock(&this.cores[0].port).inbox.pop_front()
        {
            self.watch.taken(clock, &frame);
            let (late, excused) = (self.net.was_late(&frame), foreign.excuses.len());
            foreign.take(clock, &frame);
            // What was asked again for no need is neither the network's copy nor held back by it.
            if !late && !self.copies && foreign.excuses[excused..].iter().any(|one| one.1 == STRICT)
            {
                foreign.excuses.truncate(excused);
            }
            taken += 1;
        }
        let Some(foreign) = &mut this.foreign else { return Ok(()) };
        let more = foreign.poll(clock) | !lock(&this.cores[0].port).inbox.is_empty();
        let frames = std::mem::take(&mut foreign.out);
        let (next, slow) = (foreign.next(), foreign.quirks.slow);
        require!(foreign.fault.is_none(), "host {host} was sent {:?}", foreign.fault);
        if taken > 0 && slow > 0 {
            this.stalled = this.stalled.max(self.now + self.rng.u64() % slow);
        }
        let next = next.map(|next| this.clock.when(next).max(self.now + 1));
        let soon = more.then_some(self.now + 1000);
        this.cores[0].turn_at = soon.into_iter().chain(next).min();
        for frame in frames {
            require!(frame.len() <= self.hosts[host].mtu + 14, "host {host} exceeds its MTU");
            self.watch.sent(clock, &frame)?;
            self.report.frames += 1;
            (self.now, host, &frame).hash(&mut self.hasher);
            self.net.send(self.now, host, &frame);
        }
        self.listen_to(host);
        Ok(())
    }

    // ---- memory --------------------------------------------------------------------------------

    /// A key for a region of a foreign host; one that is dead at first if it is to be mapped.
    pub(crate) fn foreign_key(
        &mut self,
        host: usize,
        region: &Region,
        flags: u32,
        passing: bool,
    ) -> Option<u32> {
        let rights = [NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE]
            .map(|right| flags & right == right);
        let shared = region.shared();
        self.ask(host, |foreign, _| foreign.keys.make(shared, rights, passing))
    }

    // ---- queue pairs ---------------------------------------------------------------------------

    /// A queue pair of a foreign host; false: the host is none.
    pub(crate) fn foreign_qp(&mut self, host: usize, end: usize, depths: [u32; 2]) -> bool {
        self.ask(host, |foreign, _| foreign.create_qp(end, depths)).is_some()
    }

    /// Posts to a foreign queue pair; `None`: it is none.
    pub(crate) fn post_foreign(
        &mut self,
        end: usize,
        id: usize,
        what: Post<'_>,
        flags: u32,
    ) -> Option<NTSTATUS> {
        if !self.is_foreign(self.ends[end].host) {
            return None;
        }
        let status = self.ask_end(end, |foreign, _| match what {
            Post::Receive(sgl) => foreign.post_receive(end, id, pieces(sgl)),
            what => foreign.post_request(end, wqe(id, what, flags)),
        });
        Some(status.unwrap_or(STATUS_CONNECTION_INVALID))
    }

    /// Completions of a foreign end; `None`: it is none.
    pub(crate) fn foreign_results(
        &mut self,
        end: usize,
        which: usize,
    ) -> Option<Vec<NDK_RESULT_EX>> {
        let host = self.ends[end].host;
        let foreign = self.hosts[host].foreign.as_mut();
        let results = foreign.map(|foreign| foreign.results(end, which));
        self.is_foreign(host).then(|| results.unwrap_or_default())
    }

    /// Flushes a foreign queue pair; false: it is none.
    pub(crate) fn flush_foreign(&mut self, end: usize) -> bool {
        self.ask_end(end, |foreign, now| foreign.flush(now, end)).is_some()
    }

    /// Closes everything of a foreign end at once.
    pub(crate) fn close_foreign(&mut self, end: usize) -> Step {
        self.excuse(end, "closed");
        self.note(|_| format!("end {end} closes, foreign"));
        self.ask_end(end, |foreign, now| foreign.flush(now, end));
        self.check_ended(end)?;
        self.ask_end(end, |foreign, now| foreign.destroy(now, end));
        let this = &self.ends[end];
        let windows = this.grants.iter().filter_map(|grant| grant.window);
        let regions = this.regions.iter().map(|region| region.token);
        let tokens: Vec<_> = windows.map(|window| window.0.addr() as u32).chain(regions).collect();
        self.ask_end(end, |foreign, _| tokens.iter().for_each(|&key| foreign.keys.forget(key)));
        let tokens = &mut self.tokens;
        self.events.retain(|event| match event {
            Event::Left(left) => *left != end,
            Event::Requested(token, _) => {
                tokens.get(token).is_none_or(|(of, what)| *of != end || what.is_of_host())
            }
            _ => true,
        });
        tokens.retain(|_, (of, what)| *of != end || what.is_of_host());
        self.crash_end(end)?;
        self.ends[end].phase = Phase::Closed;
        Ok(())
    }

    // ---- connections ---------------------------------------------------------------------------

    /// Connects from a foreign host; false: it is none.
    pub(crate) fn connect_foreign(
        &mut self,
        end: usize,
        remote: SocketAddr,
        limits: [u32; 2],
        data: &[u8],
        token: usize,
    ) -> bool {
        let to = remote.ip();
        self.ask_end(end, |foreign, now| foreign.connect(now, (end, token), to, limits, data))
            .is_some()
    }

    /// Confirms a connection that a foreign host asked for; false: it is none.
    pub(crate) fn complete_foreign(&mut self, end: usize, token: usize) -> bool {
        self.ask_end(end, |foreign, now| foreign.complete_connect(now, end, token)).is_some()
    }

    /// Accepts on a foreign host; false: it is none.
    pub(crate) fn accept_foreign(
        &mut self,
        end: usize,
        limits: [u32; 2],
        data: &[u8],
        token: usize,
    ) -> bool {
        let number = self.ends[end].connector.0.addr();
        self.ask_end(end, |foreign, now| foreign.accept(now, number, (end, token), limits, data))
            .is_some()
    }

    /// Rejects on a foreign host; false: it is none.
    pub(crate) fn reject_foreign(&mut self, host: usize, connector: Object<NDK_CONNECTOR>) -> bool {
        let number = connector.0.addr();
        self.ask(host, |foreign, _| foreign.reject(number)).is_some()
    }

    /// Disconnects from a foreign host; false: it is none.
    pub(crate) fn disconnect_foreign(&mut self, end: usize, token: usize) -> bool {
        self.ask_end(end, |foreign, now| {
            foreign.leave(now, end, Some(token));
            // Linux takes the queue pair out of use first.
            foreign.flush(now, end);
        })
        .is_some()
    }

    /// What a foreign connection was asked or answered with, and from where; `None`: it is none.
    pub(crate) fn foreign_data(
        &self,
        host: usize,
        connector: Object<NDK_CONNECTOR>,
    ) -> Option<([u32; 2], Vec<u8>, SocketAddr)> {
        let foreign = self.hosts[host].foreign.as_ref()?;
        let (limits, data, ip, port) = foreign.connection_data(connector.0.addr())?;
        Some((limits, data, SocketAddr::new(ip, port)))
    }

    /// The same of an end.
    pub(crate) fn foreign_data_of(&self, end: usize) -> Option<([u32; 2], Vec<u8>)> {
        let End { host, .. } = self.ends[end];
        let foreign = self.hosts[host].foreign.as_ref()?;
        let number = foreign.number_of(end)?;
        foreign.connection_data(number).map(|(limits, data, ..)| (limits, data))
    }
}

fn pieces(sgl: &[NDK_SGE]) -> Vec<Piece> {
    let piece = |sge: &NDK_SGE| Piece {
        token: sge.MemoryRegionToken,
        address: sge.virtual_address().addr() as u64,
        len: u64::from(sge.Length),
    };
    sgl.iter().map(piece).collect()
}

fn wqe(id: usize, what: Post<'_>, flags: u32) -> Wqe {
    let rights = [NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE]
        .map(|right| flags & right == right);
    let (kind, op, list) = match what {
        Post::Receive(list) | Post::Send(list) => (NdkOperationTypeSend, Op::Send(None), list),
        Post::SendAndInvalidate(list, token) => (NdkOperationTypeSend, Op::Send(Some(token)), list),
        Post::Write(list, remote) => {
            (NdkOperationTypeWrite, Op::Write(remote.address, remote.token), list)
        }
        Post::Read(list, remote) => {
            let ends = flags & NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE != 0;
            let ends = ends.then(|| list.first().map(|sge| sge.MemoryRegionToken)).flatten();
            (NdkOperationTypeRead, Op::Read(remote.address, remote.token, ends), list)
        }
        Post::FastRegister { mr, pages, len, base, .. } => {
            let token = mr.0.addr() as u32;
            let page = pages.first().map_or(0, |page| page.QuadPart.cast_unsigned());
            let start = Some(page + base % PAGE_SIZE as u64);
            let len = len as u64;
            let mapping = Mapping { token, region: token, base, start, len, rights };
            (NdkOperationTypeFastRegister, Op::Map(mapping), &[][..])
        }
        Post::Bind { mr, mw, address, len } => {
            let [region, token] = [mr.0.addr(), mw.0.addr()].map(|token| token as u32);
            let (base, start, len) = (address, None, len as u64);
            let mapping = Mapping { token, region, base, start, len, rights };
            (NdkOperationTypeBind, Op::Map(mapping), &[][..])
        }
        Post::InvalidateMr(mr) => {
            (NdkOperationTypeInvalidate, Op::Invalidate(mr.0.addr() as u32), &[][..])
        }
        Post::InvalidateMw(mw) => {
            (NdkOperationTypeInvalidate, Op::Invalidate(mw.0.addr() as u32), &[][..])
        }
    };
    Wqe::new(id, kind, flags, op, pieces(list))
}
