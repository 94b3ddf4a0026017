//! What goes wrong, and when: drawn up before a run begins.

use super::memory::Region;
use super::net::Faults;
use super::trial::Trial;
use super::world::{MS, PORT, Step, World};
use rocev2::env::Rng;
use std::net::SocketAddr;

/// What happens to hosts and network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Cut(usize, usize, bool),
    Link(usize, bool),
    Crash(usize),
    Restart(usize),
    Jump(usize, u64),
    Stall(usize, u64),
    Connect(usize, usize),
}

impl World {
    /// Draws up what will go wrong, and who connects when.
    pub(crate) fn plan(&mut self, count: usize, upheaval: bool) {
        let end = self.chaos_ends / MS;
        for _ in 0..1 + self.rng.below(6) {
            let from = self.rng.below(count as u32) as usize;
            // Now and then with itself, which no packet leaves the host for.
            let step =
                if self.rng.below(6) == 0 { 0 } else { 1 + self.rng.below(count as u32 - 1) };
            // A foreign host does not.
            let step = if self.is_foreign(from) { step.max(1) } else { step };
            let to = (from + step as usize) % count;
            let at = self.some_time(end / 2);
            self.schedule(at, Act::Connect(from, to));
        }
        let stalls = if self.trial == Some(Trial::Reordering) { 0 } else { self.rng.below(3) };
        for _ in 0..stalls {
            let host = self.rng.below(count as u32) as usize;
            let (at, long) = (self.some_time(end), u64::from(self.rng.below(20)) * MS);
            self.schedule(at, Act::Stall(host, long));
        }
        for _ in 0..if upheaval { 1 + self.rng.below(4) } else { 0 } {
            let host = self.rng.below(count as u32) as usize;
            let other = (host + 1) % count;
            let (at, long) = (self.some_time(end), 1 + u64::from(self.rng.below(300)) * MS);
            match self.rng.below(6) {
                0 => self.both(at, long, |on| Act::Cut(host, other, on)),
                1 => {
                    self.both(at, long, |on| Act::Cut(host, other, on));
                    self.both(at, long, |on| Act::Cut(other, host, on));
                }
                2 => self.both(at, long, |on| Act::Link(host, on)),
                3 => self.schedule(at, Act::Jump(host, long * 10)),
                _ => {
                    self.schedule(at, Act::Crash(host));
                    self.schedule(at + long, Act::Restart(host));
                    self.schedule(at + long + MS, Act::Connect(other, host));
                }
            }
        }
    }

    fn some_time(&mut self, within_ms: u64) -> u64 {
        self.now + self.rng.u64() % (within_ms.max(1) * MS)
    }

    fn both(&mut self, at: u64, long: u64, act: impl Fn(bool) -> Act) {
        self.schedule(at, act(true));
        self.schedule(at + long, act(false));
    }

    pub(crate) fn schedule(&mut self, at: u64, act: Act) {
        // Acts of the same time come in the order of their planning.
        self.acts += 1;
        self.script.insert((at, self.acts), act);
    }

    pub(crate) fn act(&mut self, act: Act) -> Step {
        self.note(|_| format!("{act:?}"));
        match act {
            Act::Cut(from, to, on) => self.net.cut[from][to] = on,
            Act::Link(host, on) => {
                for other in 0..self.hosts.len() {
                    self.net.cut[host][other] = on;
                    self.net.cut[other][host] = on;
                }
            }
            Act::Crash(host) => self.crash(host)?,
            Act::Restart(host)
                if self.hosts[host].provider.is_none() && self.hosts[host].foreign.is_none() =>
            {
                self.start(host)?;
            }
            Act::Restart(_) => {}
            Act::Jump(host, by) => {
                self.hosts[host].ahead += by;
                self.hosts[host].turn_at = Some(self.now);
            }
            Act::Stall(host, long) => self.hosts[host].stalled = self.now + long,
            Act::Connect(from, to) => {
                let host = &self.hosts[from];
                let up = host.provider.is_some() || host.foreign.is_some();
                if up {
                    let remote = SocketAddr::new(self.hosts[to].ip, PORT);
                    self.connect(from, to, remote)?;
                }
            }
        }
        Ok(())
    }

    /// Everything on a host is gone, without a word to anybody.
    fn crash(&mut self, host: usize) -> Step {
        self.handle_events()?;
        let this = &mut self.hosts[host];
        (this.provider, this.foreign) = (None, None);
        (this.listener, this.endpoint) = (None, None);
        this.turn_at = None;
        self.check_pool(host, Region::freeze)?;
        self.hosts[host].pool = None;
        let ends = &self.ends;
        self.tokens.retain(|_, (owner, what)| {
            if what.is_of_host() { *owner != host } else { ends[*owner].host != host }
        });
        for end in 0..self.ends.len() {
            if self.ends[end].host == host {
                self.crash_end(end)?;
            }
        }
        Ok(())
    }
}

/// How bad the network is.
pub(crate) fn faults(rng: &mut Rng) -> Faults {
    let mut faults = Faults { delay: 1000 + u64::from(rng.below(50_000)), ..Faults::default() };
    faults.window = faults.delay * u64::from(1 + rng.below(20));
    if rng.below(4) == 0 {
        return faults;
    }
    let mild = rng.below(2) == 0;
    let mut some = |most: u32| if rng.below(2) == 0 { rng.below(most) } else { 0 };
    faults.loss = some(if mild { 40 } else { 300 });
    faults.duplicate = some(300);
    faults.reorder = some(300);
    faults.corrupt = some(if mild { 40 } else { 150 });
    faults.truncate = some(if mild { 20 } else { 80 });
    faults.spike = some(20);
    faults.ghost = some(40);
    faults
}
