//! What goes wrong, and when: drawn up before a run begins.

use super::Deed;
use super::edge::lock;
use super::memory::Region;
use super::net::{Bursts, Faults};
use super::trial::Trial;
use super::world::{MS, PORT, Step, World};
use crate::switch::PortConfig;
use rocev2::env::Rng;
use std::net::{IpAddr, SocketAddr};

/// What happens to hosts and network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Cut(usize, usize, bool),
    Link(usize, bool),
    Crash(usize),
    Restart(usize),
    Jump(usize, u64),
    Stall(usize, u64),
    /// A direction of an edge fails, or does no longer.
    Fail(usize, usize, bool),
    /// An edge has no room for so long.
    Fill(usize, u64),
    /// A link has this rate from here on.
    Speed(usize, u64),
    Connect(usize, usize),
    /// A third party forges as many datagrams, at most.
    Forge(u32),
    /// A host has another NIC from here on, has an address no longer, and has it again.
    NewNic(usize),
    Lose(usize, IpAddr),
    Regain(usize, IpAddr),
    /// Somebody claims the address of a peer.
    Claim,
}

impl World {
    /// Draws up what will go wrong, and who connects when.
    pub(crate) fn plan(&mut self, count: usize, upheaval: bool, mishaps: bool) {
        let end = (self.chaos_ends - self.lead) / MS;
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
        let still = self.lossless || self.trial == Some(Trial::Reordering);
        let stalls = if still { 0 } else { self.rng.below(3) };
        for _ in 0..stalls {
            let host = self.rng.below(count as u32) as usize;
            let (at, long) = (self.some_time(end), u64::from(self.rng.below(20)) * MS);
            self.schedule(at, Act::Stall(host, long));
        }
        let forges = self.trial.is_none() && !self.lossless;
        for _ in 0..if forges { self.rng.below(6) } else { 0 } {
            let (at, storm) = (self.some_time(end), self.rng.below(8) == 0);
            self.schedule(at, Act::Forge(if storm { 200 } else { 8 }));
        }
        for _ in 0..if mishaps { 1 + self.rng.below(3) } else { 0 } {
            self.plan_mishap(count, end);
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

    /// What an adapter does, and no connection ends for.
    fn plan_mishap(&mut self, count: usize, end: u64) {
        let host = self.rng.below(count as u32) as usize;
        let (at, long) = (self.some_time(end), (1 + u64::from(self.rng.below(200))) * MS);
        match self.rng.below(4) {
            direction @ 0..2 => {
                self.both(at, long, |on| Act::Fail(host, direction as usize, on));
            }
            2 => self.schedule(at, Act::Fill(host, long)),
            _ => {
                let rate = RATES[self.rng.below(RATES.len() as u32) as usize];
                self.schedule(at, Act::Speed(host, rate));
            }
        }
    }

    fn some_time(&mut self, within_ms: u64) -> u64 {
        self.now + self.lead + self.rng.u64() % (within_ms.max(1) * MS)
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
            Act::Forge(most) => self.forge(most),
            Act::NewNic(host) => self.new_nic(host),
            Act::Lose(host, ip) => self.lose_address(host, ip)?,
            Act::Regain(host, ip) => self.regain_address(host, ip)?,
            Act::Claim => self.claim_address(),
            Act::Jump(host, by) => {
                self.hosts[host].clock.ahead += by;
                for at in 0..self.hosts[host].ips.len() {
                    self.watch.judge.jump(self.hosts[host].ips[at], by);
                }
                self.hosts[host].call(self.now);
            }
            Act::Fail(host, direction, on) => {
                for core in &self.hosts[host].cores {
                    lock(&core.port).fails[direction] = on;
                }
                self.hosts[host].call(self.now);
            }
            Act::Fill(host, long) => self.hosts[host].full = self.now + long,
            Act::Speed(host, rate) => {
                self.net.set_rate(host, rate);
                let this = &self.hosts[host];
                let rate = self.net.rate(host).filter(|_| this.knows_speed);
                for core in &this.cores {
                    lock(&core.port).speed = rate.map(|rate| rate * 8);
                }
                if rate.is_some() {
                    self.did(Deed::NewSpeed);
                }
            }
            Act::Stall(host, long) => self.hosts[host].stalled = self.now + long,
            Act::Connect(from, to) => {
                let host = &self.hosts[from];
                let up = host.provider.is_some() || host.foreign.is_some();
                // A foreign host has one address only, and others may have lost some.
                let far = &self.hosts[to];
                let reaches = |ip: &&IpAddr| {
                    let fits = |own: &IpAddr| own.is_ipv4() == ip.is_ipv4();
                    !far.lost.contains(ip)
                        && host.ips.iter().any(|own| fits(own) && !host.lost.contains(own))
                };
                let ips: Vec<_> = far.ips.iter().filter(reaches).collect();
                if up && !ips.is_empty() {
                    let ip = *ips[self.rng.below(ips.len() as u32) as usize];
                    let remote = SocketAddr::new(ip, PORT);
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
        this.lost.clear();
        this.listeners.clear();
        this.endpoint = None;
        this.cores.iter_mut().for_each(|core| core.turn_at = None);
        for &ip in &self.hosts[host].ips {
            self.watch.judge.forget(ip);
        }
        self.check_pool(host, Region::freeze)?;
        self.hosts[host].pool = None;
        self.forget_guests(host);
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
    if rng.below(4) == 0 {
        faults.bursts = Some(Bursts {
            good: MS * u64::from(1 + rng.below(100)),
            bad: 10_000 << rng.below(10),
            loss: 200 + rng.below(801),
        });
    }
    faults
}

/// Bytes per second: 100 Mb/s to 25 Gb/s.
const RATES: [u64; 4] = [12_500_000, 125_000_000, 1_250_000_000, 3_125_000_000];

/// How fast the hosts' links are, and how much waits before them; none: no frame takes time.
pub(crate) fn links(rng: &mut Rng, hosts: usize) -> Vec<PortConfig> {
    let uneven = rng.below(2) == 0;
    let some_rate = |rng: &mut Rng| RATES[rng.below(RATES.len() as u32) as usize];
    let (common, buffer) = (some_rate(rng), 16 << (10 + rng.below(7)));
    let marks = rng.below(3) > 0;
    let hosts = if rng.below(2) == 0 { hosts } else { 0 };
    let link = |_| {
        // A slow one is what the others fill.
        let rate = if uneven { some_rate(rng).min(some_rate(rng)) } else { common };
        PortConfig { rate, buffer, marks }
    };
    (0..hosts).map(link).collect()
}
