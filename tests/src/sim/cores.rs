//! The cores of a host: which of them gets a frame, and their turns, each at its own time.

use super::Deed;
use super::edge::{Crossing, Port, lock};
use super::end::{End, What};
use super::foreign::Quirks;
use super::meter::counted;
use super::trial::Trial;
use super::world::{Host, Step, World, require};
use crate::kit::numbered::Event;
use driver::{Stepped, Turn};
use rocev2::env::{Instant, Rng};
use rocev2::wire::core_of;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

/// A core of a host: its edge, and when it has a turn.
#[derive(Default)]
pub(crate) struct Core {
    pub(crate) port: Arc<Mutex<Port>>,
    pub(crate) sleeping: bool,
    /// A consumer has asked for something without an end, a flush or a rejection, since the last turn.
    pub(crate) asked: bool,
    /// When it has its next turn.
    pub(crate) turn_at: Option<u64>,
    /// It sleeps, and a timer of its provider is due then.
    pub(crate) timer_at: Option<u64>,
    /// Frames that have crossed its edge and turns that were busy, and timers for which it woke and had nothing to do.
    pub(crate) worked: u64,
    pub(crate) idle_timers: u64,
}

impl Core {
    /// It has a turn, at the latest then.
    fn call(&mut self, at: u64) {
        self.turn_at = Some(self.turn_at.unwrap_or(at).min(at));
    }
}

impl Host {
    /// Its cores have a turn each, at the latest then.
    pub(crate) fn call(&mut self, at: u64) {
        self.cores.iter_mut().for_each(|core| core.call(at));
    }

    /// When one of its cores has a turn.
    pub(crate) fn next_turn(&self) -> Option<u64> {
        let next = self.cores.iter().filter_map(|core| core.turn_at).min();
        next.map(|at| at.max(self.stalled))
    }

    /// Whether a core has a turn now.
    pub(crate) fn is_due(&self, core: usize, now: u64) -> bool {
        self.cores[core].turn_at.is_some_and(|at| at.max(self.stalled) <= now)
    }

    /// A consumer has asked for something that has no end.
    pub(crate) fn note_asked(&mut self) {
        self.cores.iter_mut().for_each(|core| core.asked = true);
    }

    /// The core whose queue a frame comes into.
    fn core_of(&self, frame: &[u8]) -> usize {
        if !self.hashes {
            return core_of(frame, self.cores.len());
        }
        // Addresses and ports.
        let flow = if frame[12..14] == [0x08, 0x00] { 26..38 } else { 22..58 };
        let mut hasher = DefaultHasher::new();
        frame.get(flow).hash(&mut hasher);
        hasher.finish() as usize % self.cores.len()
    }
}

impl World {
    /// Draws up how many cores the hosts have; by a generator of its own, so that worlds of single cores stay as they are
    /// without it.
    pub(crate) fn plan_cores(&mut self, mut rng: Rng) {
        if rng.below(2) == 0 {
            for host in &mut self.hosts {
                let several = host.quirks.is_none() && rng.below(3) > 0;
                let cores = if several { 2 + rng.below(3) as usize } else { 1 };
                host.cores.resize_with(cores, Core::default);
                host.hashes = several && rng.below(3) == 0;
                host.ips.iter().for_each(|&ip| self.watch.cores(ip, cores));
            }
        }
        let cores: Vec<_> = self.hosts.iter().map(|host| (host.cores.len(), host.hashes)).collect();
        self.note(|_| format!("cores {cores:?}"));
        self.core_rng = rng;
    }

    /// A core for an object of a host that has several; none where the object may be anywhere.
    pub(crate) fn some_core(&mut self, host: usize) -> Option<usize> {
        let cores = self.hosts[host].cores.len();
        let near = cores > 1 && self.core_rng.below(4) > 0;
        near.then(|| self.core_rng.below(cores as u32) as usize)
    }

    /// The cores for the receive CQ and the initiator CQ of an end: mostly one for both.
    pub(crate) fn some_cores(&mut self, host: usize) -> [Option<usize>; 2] {
        let initiator = self.some_core(host);
        let apart = self.hosts[host].cores.len() > 1 && self.core_rng.below(3) == 0;
        [if apart { self.some_core(host) } else { initiator }, initiator]
    }

    /// What kind of cores a connection has, as far as its consumer has chosen them.
    pub(crate) fn did_spread(&mut self, end: usize) {
        let End { host, near, pooled, .. } = self.ends[end];
        let [receive, initiator] = near;
        for (deed, did) in [
            (Deed::OtherCore, !pooled && initiator > Some(0)),
            (Deed::Hashed, self.hosts[host].hashes),
            (
                Deed::Abroad,
                !pooled && receive.is_some() && initiator.is_some_and(|_| receive != initiator),
            ),
        ] {
            self.report.deeds[deed as usize] += u64::from(did);
        }
    }

    /// The receives of an end may complete on another core than its queue pair's.
    pub(crate) fn may_be_abroad(&self, end: usize) -> bool {
        let End { host, near: [receive, initiator], pooled, .. } = self.ends[end];
        let together = !pooled && receive.is_some() && receive == initiator;
        self.hosts[host].cores.len() > 1 && !together
    }

    /// A frame has arrived at a host.
    pub(crate) fn deliver(&mut self, host: usize, frame: Vec<u8>) {
        let this = &self.hosts[host];
        if this.provider.is_none() && this.foreign.is_none() || self.withholds(&frame) {
            return;
        }
        let this = &mut self.hosts[host];
        let core = this.core_of(&frame);
        let core = &mut this.cores[core];
        let mut port = lock(&core.port);
        if port.inbox.len() < this.inbox_max {
            port.inbox.push_back(frame);
            drop(port);
            core.call(self.now);
        } else {
            drop(port);
            self.explain("a full inbox");
        }
    }

    /// A consumer's call, or another core, may have woken a core that sleeps.
    pub(crate) fn wake_hosts(&mut self) {
        for host in &mut self.hosts {
            let Some(provider) = &host.provider else { continue };
            for (at, core) in host.cores.iter_mut().enumerate() {
                if core.sleeping && provider.is_woken(at) {
                    core.call(self.now);
                }
            }
        }
    }

    /// One turn of a core of a host's provider, and what came of it.
    pub(crate) fn turn(&mut self, host: usize, core: usize) -> Step {
        if self.hosts[host].foreign.is_some() {
            return self.turn_foreign(host);
        }
        let this = &mut self.hosts[host];
        let several = this.cores.len() > 1;
        let (own, at) = (&mut this.cores[core], core);
        let Some(provider) = &mut this.provider else {
            own.turn_at = None;
            return Ok(());
        };
        self.report.turns += 1;
        let asked = std::mem::take(&mut own.asked);
        let clock = this.clock.read(self.now);
        let room_at = this.full.max(self.net.has_room_at(host));
        let has_mail = {
            let mut port = lock(&own.port);
            port.room = if room_at > self.now { 0 } else { this.room };
            port.has_mail()
        };
        let called = provider.is_woken(at) || has_mail || asked || self.asking;
        let timer = own.timer_at.take().filter(|&at| at <= self.now && !called);
        if own.sleeping && (provider.is_woken(at) || has_mail) {
            provider.announce_sleep(at, false);
            own.sleeping = false;
        }
        // The edge itself loses nothing; what comes back to an own address is for any core, too.
        let lost = |provider: &Stepped| if several { provider.counters().edge.receive } else { 0 };
        let lost_before = lost(provider);
        let (turn, allocations) = counted(|| provider.poll_core(at, Instant::from_nanos(clock)));
        let lost = lost(provider) - lost_before;
        // The first core does what the others leave to it.
        this.cores[0].asked |= asked && core > 0;
        let crossed = self.end_turn(host, core, &turn, room_at);
        let own = &mut self.hosts[host].cores[core];
        own.worked += crossed.len() as u64 + u64::from(turn.busy);
        own.idle_timers += u64::from(timer.is_some() && crossed.is_empty() && !turn.busy);
        // What came to another core may be anything.
        let only_data = crossed.iter().all(Crossing::is_data) && !self.hosts[host].hashes;
        if lost > 0 {
            self.lose_some(host, core, &crossed, lost);
        }
        self.cross(host, clock, crossed)?;
        self.sort_events()?;
        let quiet = only_data && !asked && !self.asking && self.is_quiet(host);
        require!(
            !quiet || allocations == 0,
            "host {host}: {allocations} allocations in a turn with nothing but data"
        );
        self.report.quiet += u64::from(quiet);
        Ok(())
    }

    /// So many of the frames that a core has taken found no room on the way to their own cores.
    fn lose_some(&mut self, host: usize, core: usize, crossed: &[Crossing], lost: u64) {
        self.report.deeds[Deed::Unpassed as usize] += lost;
        self.explain("a full way between cores");
        let cores = self.hosts[host].cores.len();
        for crossing in crossed {
            if let Crossing::Taken(frame) = crossing
                && core_of(frame, cores) != core
            {
                self.watch.maybe_lost(frame);
            }
        }
    }

    /// A core has had a turn: when the next is, and what crossed its edge.
    fn end_turn(&mut self, host: usize, core: usize, turn: &Turn, room_at: u64) -> Vec<Crossing> {
        let this = &mut self.hosts[host];
        let (own, at) = (&mut this.cores[core], core);
        let (crossed, lacked, fails) = {
            let mut port = lock(&own.port);
            let coalesced = std::mem::take(&mut port.coalesced);
            let [receives, sends] = std::mem::take(&mut port.failed);
            for (deed, count) in [
                (Deed::Joined, coalesced),
                (Deed::ReceiveFails, receives),
                (Deed::SendFails, sends),
                (Deed::NoRoom, u64::from(port.lacked && this.full > self.now)),
            ] {
                self.report.deeds[deed as usize] += count;
            }
            (std::mem::take(&mut port.crossed), port.lacked, port.fails.contains(&true))
        };
        let clock = this.clock;
        let next = turn.next.map(|next| clock.when(next.as_nanos()).max(self.now + 1));
        // It sleeps until there is room, if that takes long.
        let lacks = lacked && room_at <= self.now + 10_000;
        let soon = self.now + 1000 + u64::from(self.rng.below(2000));
        let Some(provider) = &mut this.provider else { return crossed };
        own.turn_at = if fails {
            // Its poller tries again.
            Some(self.now + u64::from(1 + self.rng.below(1000)) * 1000)
        } else if turn.busy || lacks {
            Some(soon)
        } else if own.sleeping {
            own.timer_at = next;
            next.into_iter().chain(lacked.then_some(room_at)).min()
        } else {
            own.sleeping = true;
            provider.announce_sleep(at, true);
            Some(self.now)
        };
        if own.sleeping && (turn.busy || lacks) {
            own.sleeping = false;
            provider.announce_sleep(at, false);
        }
        crossed
    }

    /// Nothing is being created, connected or closed on a host, as far as can be seen: what it does
    /// with itself cannot. A CQ that overruns takes others with it, and is not data.
    fn is_quiet(&self, host: usize) -> bool {
        let steady = |end: &End| end.host != host || (end.to != Some(host) && !end.flow.tiny_cq);
        let of_host = |&(owner, what): &(usize, What)| match what.is_of_host() {
            true => owner == host,
            false => self.ends[owner].host == host,
        };
        let told = |event: &Event| matches!(event, Event::Notified(..) | Event::Low(..));
        // Connection management gives up without a packet.
        let deaf = |host: &Host| host.quirks.as_ref().is_some_and(Quirks::is_deaf);
        let breaks =
            self.moves || self.trial.is_some_and(Trial::breaks) || self.hosts.iter().any(deaf);
        // A stranger is deaf, too.
        let breaks = breaks || self.has_guests();
        !breaks
            && !self.tokens.values().any(of_host)
            && self.events.iter().all(told)
            && self.ends.iter().all(steady)
    }
}
