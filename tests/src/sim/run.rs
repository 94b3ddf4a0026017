//! A run: its parts one after the other, and in each whatever happens next.

use super::edge::{Crossing, lock};
use super::end::{End, Phase, What};
use super::judge::Kind;
use super::packet::look;
use super::script::Act;
use super::stranger::Strange;
use super::world::{Host, LIVENESS, Part, Step, World, require};
use super::{Deed, Report};
use crate::kit::numbered::{self, Event};
use driver::Stepped;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Turns of a run, at most. Most runs take some thousands. A foreign peer that READs 13 MB through a port that
/// drops what is more than 64 KiB, and asks for the rest each time, took four million.
const TURNS_MAX: u64 = 20_000_000;

/// That of every host.
const HOP_LIMIT: u8 = 64;

impl World {
    /// Runs the seed to its end.
    pub(crate) fn run(mut self) -> Step<Report> {
        let result = self.run_parts();
        self.note(|world| format!("{result:?}; requests {:?}", world.watch.requests));
        result.map_err(|what| format!("{what} (at {} us, {:?})", self.now / 1000, self.part))?;
        self.report.hash = self.hasher.finish();
        self.report.elapsed = self.now;
        self.report.requests = self.watch.requests;
        if self.stranger.as_ref().is_some_and(Strange::speaks) {
            self.did(Deed::StrangeSeed);
        }
        if self.lossless && self.explained.is_none() {
            self.did(Deed::Lossless);
        }
        let met = |deed: Deed| self.report.deeds[deed as usize] > 0;
        if met(Deed::ForeignPassive) || met(Deed::ForeignActive) {
            self.did(Deed::ForeignSeed);
        }
        let (net, watch) = (self.net.met, &self.watch);
        for (deed, count) in [
            (Deed::BurstLoss, net.burst),
            (Deed::FullPort, net.full),
            (Deed::Marked, net.marked),
            (Deed::Notified, watch.cnps),
            (Deed::PsnWrap, watch.psn_wraps),
            (Deed::MsnWrap, watch.msn_wraps),
            (Deed::JudgedReq, watch.judge.count(Kind::Req)),
            (Deed::JudgedMra, watch.judge.count(Kind::Mra)),
            (Deed::JudgedRej, watch.judge.count(Kind::Rej)),
            (Deed::JudgedRep, watch.judge.count(Kind::Rep)),
            (Deed::JudgedRtu, watch.judge.count(Kind::Rtu)),
            (Deed::JudgedDreq, watch.judge.count(Kind::Dreq)),
            (Deed::JudgedDrep, watch.judge.count(Kind::Drep)),
            (Deed::JudgedSidrRep, watch.judge.count(Kind::SidrRep)),
            (Deed::JudgedAgain, watch.judge.again),
        ] {
            self.report.deeds[deed as usize] += count;
        }
        Ok(self.report)
    }

    fn run_parts(&mut self) -> Step {
        while self.now < self.chaos_ends {
            self.advance(self.chaos_ends)?;
        }
        self.report.honest.done = self.report.successes;
        self.check_early()?;
        self.part = Part::Healing;
        self.note(|_| "healing".into());
        self.heal();
        for (_, act) in std::mem::take(&mut self.script) {
            if matches!(act, Act::Restart(_) | Act::Regain(..)) {
                self.act(act)?;
            }
        }
        self.settle_down("a request", |world| world.waiting().is_none())?;
        self.check_trial()?;
        self.check_memory()?;
        self.check_deliveries()?;
        self.check_pools()?;
        self.check_listed()?;
        self.check_lossless()?;
        self.teardown()?;
        self.silence()?;
        self.check_resends()
    }

    /// Nothing fails any more that was not made to fail for ever.
    fn heal(&mut self) {
        self.chaos = self.net.faults.clone();
        self.net.heal();
        for host in &mut self.hosts {
            host.cores.iter().for_each(|core| lock(&core.port).fails = [false; 2]);
            host.full = 0;
            if host.provider.is_some() {
                host.call(self.now);
            }
        }
    }

    /// Advances until `done`.
    fn settle_down(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Step {
        let limit = self.now + LIVENESS;
        let now = self.now;
        self.ends.iter_mut().for_each(|end| (end.act_at, end.moved) = (Some(now), now));
        while !done(self) {
            let waits = self.waiting();
            self.check_waits()?;
            require!(
                self.now < limit && self.advance(limit)?,
                "{what} never ends: {:?}",
                waits.map(|end| (end, self.ends[end].describe()))
            );
        }
        Ok(())
    }

    /// An end with something outstanding. A foreign one may wait for ever for a peer that is gone.
    fn waiting(&self) -> Option<usize> {
        let lives = |peer: usize| {
            let peer = &self.ends[peer];
            peer.phase == Phase::Up && !peer.flushed
        };
        let alone = |end: &End| self.is_foreign(end.host) && !end.peer.is_some_and(lives);
        let settled = |end: &End| end.is_settled() || end.phase == Phase::Up && alone(end);
        self.ends.iter().position(|end| !settled(end))
    }

    fn teardown(&mut self) -> Step {
        self.part = Part::Teardown;
        self.note(|_| "teardown".into());
        for end in 0..self.ends.len() {
            self.begin_close(end)?;
        }
        for host in 0..self.hosts.len() {
            for listener in std::mem::take(&mut self.hosts[host].listeners) {
                self.close(host, What::CloseStray, listener)?;
            }
            self.unshare(host)?;
        }
        self.close_guests()?;
        self.settle_down("a close", |world| world.tokens.is_empty() && world.all_closed())?;
        for host in 0..self.hosts.len() {
            self.close_adapter(host)?;
        }
        Ok(())
    }

    fn all_closed(&self) -> bool {
        self.ends.iter().all(|end| matches!(end.phase, Phase::Closed | Phase::Crashed))
    }

    #[allow(unsafe_code, reason = "the adapter is closed")]
    fn close_adapter(&mut self, host: usize) -> Step {
        let this = &self.hosts[host];
        let Some(provider) = &this.provider else { return Ok(()) };
        let closed = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&closed);
        // SAFETY: closed once, after everything under it.
        unsafe {
            provider.close_adapter(this.adapter.0, move || tell.store(true, Ordering::Relaxed))
        };
        (0..4).try_for_each(|_| self.turn_asking(host))?;
        require!(closed.load(Ordering::Relaxed), "the adapter of host {host} does not close");
        let left = self.hosts[host].provider.as_ref().map_or(0, Stepped::open_objects);
        require!(left == 0, "host {host} has {left} objects left");
        Ok(())
    }

    /// Nothing is open: connection management may linger, and then no timer may be left.
    fn silence(&mut self) -> Step {
        let limit = self.now + LIVENESS;
        while self.advance(limit)? {
            require!(self.now < limit, "a timer runs for ever");
        }
        self.check_memory()
    }

    /// Goes to the next thing that happens, at most until `limit`. False: nothing will happen.
    fn advance(&mut self, limit: u64) -> Step<bool> {
        self.try_trial()?;
        self.wake_hosts();
        let turns = self.hosts.iter().filter_map(Host::next_turn);
        let acts = self.ends.iter().filter_map(|end| end.act_at);
        let refills = self.hosts.iter().filter_map(|host| host.pool.as_ref()?.act_at);
        let script = self.script.first_key_value().map(|(&(at, _), _)| at);
        let next = turns.chain(acts).chain(refills).chain(script).chain(self.stranger_at());
        let next = next.chain(self.net.next()).min();
        let Some(next) = next else {
            self.now = limit;
            return Ok(false);
        };
        self.now = self.now.max(next.min(limit));
        if let Some((_, clock)) = &self.pcap {
            clock.store(self.now, Ordering::Relaxed);
        }
        while let Some((host, frame)) = self.net.arrive(self.now) {
            self.deliver(host, frame);
        }
        while let Some(entry) = self.script.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let act = entry.remove();
            self.act(act)?;
            // While it waited for objects others were called back, and must hear of it before they act.
            self.handle_events()?;
        }
        self.act_strange();
        for host in 0..self.hosts.len() {
            for core in 0..self.hosts[host].cores.len() {
                if self.hosts[host].is_due(core, self.now) {
                    self.turn(host, core)?;
                    self.handle_events()?;
                }
            }
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].pool.as_ref().is_some_and(|pool| pool.is_due(self.now)) {
                self.refill(host)?;
                self.handle_events()?;
            }
        }
        for end in 0..self.ends.len() {
            if self.ends[end].act_at.is_some_and(|at| at <= self.now) {
                self.ends[end].act_at = None;
                self.act_as(end)?;
                self.handle_events()?;
            }
        }
        require!(self.report.turns < TURNS_MAX, "no end after {TURNS_MAX} turns");
        Ok(true)
    }

    pub(crate) fn cross(&mut self, host: usize, clock: u64, crossed: Vec<Crossing>) -> Step {
        let mtu = self.hosts[host].mtu;
        for crossing in crossed {
            match crossing {
                Crossing::Taken(frame) => {
                    if self.was_forged(&frame) {
                        self.watch.taken_forged(&frame);
                    } else {
                        self.doubt(&frame);
                        self.watch.taken(clock, &frame);
                    }
                }
                Crossing::Sent(ref frame) | Crossing::Lost(ref frame) => {
                    require!(frame.len() <= mtu + 14, "host {host} exceeds its MTU");
                    self.check_source(host, frame)?;
                    if !self.told_stranger(host, frame)? {
                        self.watch.sent(clock, frame)?;
                    }
                    self.report.frames += 1;
                    (self.now, host, frame).hash(&mut self.hasher);
                    if matches!(crossing, Crossing::Sent(_)) {
                        self.net.send(self.now, host, frame);
                    }
                }
            }
        }
        Ok(())
    }

    /// What was damaged where it says where it comes from may be dropped. An answer of a host that has another NIC, or from the one
    /// before, may not be believed.
    fn doubt(&mut self, frame: &[u8]) {
        if self.is_from_nowhere(frame) {
            self.watch.maybe_lost(frame);
        }
        if !self.moves {
            return;
        }
        let Some(Ok(seen)) = look(frame) else { return };
        let from = self.hosts.iter().position(|host| host.ips.contains(&seen.src));
        if from.is_some_and(|from| self.net.has_moved(from)) {
            self.watch.maybe_disbelieved(&seen);
        }
    }

    /// Whether a frame was damaged where it says where it comes from, which no checksum covers.
    fn is_from_nowhere(&self, frame: &[u8]) -> bool {
        const IPV6: [u8; 2] = [0x86, 0xdd];
        let Some(frame) = frame.first_chunk::<22>() else { return false };
        let known = (0..self.hosts.len()).any(|host| frame[6..12] == self.net.nic(host));
        !known || frame[12..14] == IPV6 && frame[14 + 7] != HOP_LIMIT
    }

    /// Keeps what somebody waits for apart from what consumers will look at.
    pub(crate) fn sort_events(&mut self) -> Step {
        while let Some(event) = numbered::next_event() {
            match event {
                Event::Created(token, result) => {
                    require!(self.created.insert(token, result).is_none(), "created twice");
                }
                Event::Requested(token, status)
                    if matches!(self.tokens.get(&token), Some((_, What::Awaited))) =>
                {
                    self.tokens.remove(&token);
                    self.ended.insert(token, status);
                }
                event => self.events.push_back(event),
            }
        }
        Ok(())
    }

    pub(crate) fn handle_events(&mut self) -> Step {
        while let Some(event) = self.events.pop_front() {
            self.note(|_| format!("{event:x?}"));
            self.handle_event(event)?;
        }
        Ok(())
    }

    pub(crate) fn did(&mut self, deed: Deed) {
        self.report.deeds[deed as usize] += 1;
    }

    /// Mixes something into the trace.
    pub(crate) fn mark(&mut self, what: &impl Hash) {
        (self.now, what).hash(&mut self.hasher);
    }
}
