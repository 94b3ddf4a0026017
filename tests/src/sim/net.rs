//! The network between the providers: what it loses, repeats, delays and damages.

use crate::switch::{Passage, Port, PortConfig, wire_ns};
use driver::ProviderConfig;
use rocev2::Opening;
use rocev2::env::Rng;
use rocev2::psn::Msn;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a NIC keeps while its link is busy; with more there is no room for another.
const NIC_BUFFER: u64 = 64 << 10;

/// A requester waits so long after it has sent a READ again, before its consumer may end the key: 10 ms,
/// by a clock that gains a hundredth (`rocev2/TRANSPORT.md`, READs sent twice). A copy that the network
/// holds back for longer comes too late, and no requester can know.
const COPY_LIFE: u64 = 10_000_000 * 100 / 101;

/// How long a spike holds a frame back, in windows, and a frame comes once more, in ms; at most.
const SPIKE_MAX: u32 = 50;
const GHOST_MS: u32 = 2000;

/// How the network behaves; chances are per 1000.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Lost.
    pub(crate) loss: u32,
    /// Delivered twice.
    pub(crate) duplicate: u32,
    /// Held back behind others.
    pub(crate) reorder: u32,
    /// Damaged in one to eight bits.
    pub(crate) corrupt: u32,
    /// Cut short.
    pub(crate) truncate: u32,
    /// Held back for long.
    pub(crate) spike: u32,
    /// Delivered once more, much later.
    pub(crate) ghost: u32,
    /// One way, in ns.
    pub(crate) delay: u64,
    /// How far a frame is held back, in ns.
    pub(crate) window: u64,
    /// Losses that come together.
    pub(crate) bursts: Option<Bursts>,
}

/// Gilbert's and Elliott's channel: good for a while, then bad, in which so many of 1000 are lost. How
/// long each lasts is uniform, up to twice these times in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bursts {
    pub(crate) good: u64,
    pub(crate) bad: u64,
    pub(crate) loss: u32,
}

impl Bursts {
    /// Of 1000 frames, in the long run.
    const fn lossy(self) -> u32 {
        (self.loss as u64 * self.bad / (self.good + self.bad)) as u32 + 1
    }
}

/// A direction between two hosts: it is bad, until then.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    bad: bool,
    until: u64,
}

impl Channel {
    fn is_bad(&mut self, at: u64, bursts: Bursts, rng: &mut Rng) -> bool {
        // Long silence: anything may be now.
        if at > self.until + 20 * (bursts.good + bursts.bad) {
            self.until = at;
        }
        while self.until <= at {
            self.bad = !self.bad;
            let mean = if self.bad { bursts.bad } else { bursts.good };
            self.until += 1 + rng.u64() % (2 * mean);
        }
        self.bad
    }
}

impl Faults {
    /// The share of frames that do not arrive as they were sent, per 1000.
    pub(crate) const fn lossy(&self) -> u32 {
        let bursts = match self.bursts {
            Some(bursts) => bursts.lossy(),
            None => 0,
        };
        self.loss + self.corrupt + self.truncate + bursts
    }

    /// Frames arrive late, twice or not at all.
    pub(crate) const fn any(&self) -> bool {
        self.lossy() + self.duplicate + self.reorder + self.spike + self.ghost > 0
    }

    /// How much later than its due a frame may arrive, in ns.
    pub(crate) const fn latest(&self) -> u64 {
        let held = if self.reorder + self.duplicate > 0 { 2 * self.window } else { 0 };
        let spike = if self.spike > 0 { SPIKE_MAX as u64 * self.window } else { 0 };
        let ghost = if self.ghost > 0 { GHOST_MS as u64 * 1_000_000 } else { 0 };
        held + spike + ghost
    }

    /// With this window.
    pub(crate) const fn within(self, window: u64) -> Self {
        Self { window, ..self }
    }

    /// A network with which each connect gets through.
    pub(crate) fn mild(&self) -> Self {
        let Self { loss, corrupt, truncate, .. } = *self;
        let (loss, corrupt, truncate) = (loss.min(20), corrupt.min(10), truncate.min(10));
        Self { loss, corrupt, truncate, bursts: None, ..self.clone() }
    }

    /// A network without faults and with the same delay.
    pub(crate) fn healed(&self) -> Self {
        Self { delay: self.delay, ..Self::default() }
    }
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// Lost in a burst, dropped by a full port, marked by one that fills up.
    pub(crate) burst: u64,
    pub(crate) full: u64,
    pub(crate) marked: u64,
}

/// A host's link to the switch and back.
struct Wire {
    /// The last frame of the host is on it until then.
    busy: u64,
    back: Port,
}

/// A frame on its way, and where it comes next.
struct Flying {
    from: usize,
    to: usize,
    /// To the switch's port before that host, not to the host.
    queues: bool,
    /// It was held back for [`COPY_LIFE`], or longer.
    late: bool,
    frame: Vec<u8>,
}

/// Frames on their way between hosts, in the order of their arrival.
pub(crate) struct Net {
    rng: Rng,
    /// Now.
    pub(crate) faults: Faults,
    /// By arrival and number.
    flying: BTreeMap<(u64, u64), Flying>,
    number: u64,
    /// Frames that have arrived late.
    late: BTreeSet<Vec<u8>>,
    /// `cut[from][to]`: nothing gets through.
    pub(crate) cut: Vec<Vec<bool>>,
    parted: bool,
    channels: Vec<Vec<Channel>>,
    /// Of each host; none: no frame takes time.
    wires: Vec<Wire>,
    /// The address of each host's NIC, and how many were replaced.
    nics: Vec<[u8; 6]>,
    replaced: u16,
    pub(crate) met: Met,
}

impl Net {
    /// A network without partitions; `links`: of every host, or of none.
    pub(crate) fn new(hosts: usize, faults: Faults, links: &[PortConfig], rng: Rng) -> Self {
        let wire = |&config: &PortConfig| Wire { busy: 0, back: Port::new(config) };
        Self {
            rng,
            faults,
            flying: BTreeMap::new(),
            number: 0,
            late: BTreeSet::new(),
            cut: vec![vec![false; hosts]; hosts],
            parted: false,
            channels: vec![vec![Channel::default(); hosts]; hosts],
            wires: links.iter().map(wire).collect(),
            nics: (0..hosts).map(mac).collect(),
            replaced: 0,
            met: Met::default(),
        }
    }

    /// No faults from now on; what is on its way keeps its delay.
    pub(crate) fn heal(&mut self) {
        self.faults = self.faults.healed();
        self.cut.iter_mut().flatten().for_each(|cut| *cut = self.parted);
    }

    /// Nothing gets through any more, whatever heals.
    pub(crate) fn part_for_ever(&mut self) {
        self.parted = true;
        self.flying.clear();
        self.heal();
    }

    /// The address of a host's NIC.
    pub(crate) fn nic(&self, host: usize) -> [u8; 6] {
        self.nics[host]
    }

    /// Whether a host has another NIC than at first.
    pub(crate) fn has_moved(&self, host: usize) -> bool {
        self.nics[host] != mac(host)
    }

    /// A host gets another NIC. Its system goes on with the address that it knows: what it sends and
    /// gets is rewritten here.
    pub(crate) fn replace_nic(&mut self, host: usize) -> [u8; 6] {
        self.replaced += 1;
        // Of the same sum as the one before, so that checksums over it still hold.
        let [a, b, ..] = mac(host);
        let [[c, d], [e, f]] =
            [self.replaced << 4, !(self.replaced << 4) + host as u16 + 1].map(u16::to_be_bytes);
        self.nics[host] = [a, b, c, d, e, f];
        self.nics[host]
    }

    /// When the next frame arrives somewhere.
    pub(crate) fn next(&self) -> Option<u64> {
        self.flying.first_key_value().map(|(&(at, _), _)| at)
    }

    /// A frame that has arrived by `now`, and where.
    pub(crate) fn arrive(&mut self, now: u64) -> Option<(usize, Vec<u8>)> {
        loop {
            let entry = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
            let ((at, _), mut flying) = entry.remove_entry();
            if flying.queues {
                self.queue(at, flying);
                continue;
            }
            let (own, nic) = (mac(flying.to), self.nics[flying.to]);
            // The NIC that it is for may be gone.
            if flying.frame[0] & 1 != 0 || flying.frame[..6] == nic {
                rewrite(&mut flying.frame, [0, ARP_TARGET, ARP_TARGET], nic, own);
                if flying.late {
                    self.late.insert(flying.frame.clone());
                }
                return Some((flying.to, flying.frame));
            }
        }
    }

    /// Whether a frame that has arrived was held back for [`COPY_LIFE`], or longer.
    pub(crate) fn was_late(&mut self, frame: &[u8]) -> bool {
        self.late.remove(frame)
    }

    /// Bytes per second of a host's link, both ways.
    pub(crate) fn rate(&self, host: usize) -> Option<u64> {
        Some(self.wires.get(host)?.back.config().rate)
    }

    /// A host's link has another speed from here on.
    pub(crate) fn set_rate(&mut self, host: usize, rate: u64) {
        if let Some(wire) = self.wires.get_mut(host) {
            wire.back.set_rate(rate);
        }
    }

    /// When the NIC of a host has room for another frame.
    pub(crate) fn has_room_at(&self, host: usize) -> u64 {
        let Some(Wire { busy, back }) = self.wires.get(host) else { return 0 };
        busy.saturating_sub(NIC_BUFFER * 1_000_000_000 / back.config().rate)
    }

    /// The longest that a frame takes from a host to another when both links are full, in ns.
    pub(crate) fn transit(&self) -> u64 {
        let waits = |Wire { back, .. }: &Wire| {
            let config = back.config();
            (NIC_BUFFER + config.buffer) * 1_000_000_000 / config.rate
        };
        self.faults.delay + self.wires.iter().map(waits).max().unwrap_or(0)
    }

    /// Bytes per second of the slowest link.
    pub(crate) fn slowest(&self) -> Option<u64> {
        self.wires.iter().map(|wire| wire.back.config().rate).min()
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.below(1000) < per_mille
    }

    /// Sends a frame of `from` to whom its Ethernet address names.
    pub(crate) fn send(&mut self, now: u64, from: usize, frame: &[u8]) {
        let mut frame = frame.to_vec();
        rewrite(&mut frame, [6, ARP_SENDER, ND_OPTION], mac(from), self.nics[from]);
        let all = frame[0] & 1 != 0;
        let at = self.wires.get_mut(from).map(|Wire { busy, back }| {
            *busy = now.max(*busy) + wire_ns(frame.len(), back.config().rate);
            *busy + self.faults.delay / 2
        });
        for to in 0..self.cut.len() {
            if to != from && (all || frame[..6] == self.nics[to]) && !self.cut[from][to] {
                let flying =
                    Flying { from, to, queues: at.is_some(), late: false, frame: frame.clone() };
                match at {
                    Some(at) => self.fly(at, flying),
                    None => self.go(now + self.faults.delay, flying),
                }
            }
        }
    }

    /// Somebody else has sent a frame to a host, which arrives.
    pub(crate) fn inject(&mut self, at: u64, to: usize, frame: Vec<u8>) {
        self.fly(at, Flying { from: to, to, queues: false, late: false, frame });
    }

    /// A frame comes to the port of the switch before its host.
    fn queue(&mut self, now: u64, mut flying: Flying) {
        match self.wires[flying.to].back.pass(now, &mut flying.frame, &mut self.rng) {
            Passage::Dropped => self.met.full += 1,
            Passage::Leaves { at, marked } => {
                self.met.marked += u64::from(marked);
                let rest = self.faults.delay - self.faults.delay / 2;
                self.go(at + rest, Flying { queues: false, ..flying });
            }
        }
    }

    /// The last part of the way, where things go wrong; without them it ends at `at`.
    fn go(&mut self, mut at: u64, mut flying: Flying) {
        let Faults { loss, duplicate, reorder, corrupt, truncate, spike, ghost, window, .. } =
            self.faults;
        let Flying { from, to, ref frame, .. } = flying;
        if let Some(bursts) = self.faults.bursts
            && self.channels[from][to].is_bad(at, bursts, &mut self.rng)
            && self.chance(bursts.loss)
        {
            self.met.burst += 1;
            return;
        }
        if self.chance(loss) {
            return;
        }
        // Ethernet's own check catches the rest of what happens on a real wire; what gets past it
        // must not be an address resolution, which has no check of its own.
        let is_ip = matches!(frame[12..14], [0x08, 0x00] | [0x86, 0xdd]);
        let is_neighbour = frame.get(20) == Some(&58);
        if is_ip && !is_neighbour {
            if self.chance(corrupt) {
                self.damage(&mut flying.frame);
            }
            if self.chance(truncate) {
                let len = 14 + self.rng.below(flying.frame.len() as u32 - 14) as usize;
                flying.frame.truncate(len);
            }
        }
        let due = at;
        if self.chance(reorder) {
            at += 1 + self.rng.u64() % window.max(1);
        }
        if self.chance(spike) {
            at += window * (1 + u64::from(self.rng.below(SPIKE_MAX)));
        }
        let again =
            |frame: &Vec<u8>| Flying { from, to, queues: false, late: false, frame: frame.clone() };
        if self.chance(duplicate) {
            let later = at + self.rng.u64() % (window + 1);
            self.fly(later, again(&flying.frame));
        }
        if self.chance(ghost) {
            let later = at + 1_000_000 * u64::from(self.rng.below(GHOST_MS));
            self.fly(later, again(&flying.frame));
        }
        flying.late = at - due >= COPY_LIFE;
        self.fly(at, flying);
    }

    fn damage(&mut self, frame: &mut [u8]) {
        for _ in 0..1 + self.rng.below(8) {
            let at = 14 + self.rng.below(frame.len() as u32 - 14) as usize;
            frame[at] ^= 1 << self.rng.below(8);
        }
    }

    fn fly(&mut self, at: u64, flying: Flying) {
        self.number += 1;
        self.flying.insert((at, self.number), flying);
    }
}

/// Places of Ethernet addresses: ARP's, and that of the option of neighbour discovery.
const ARP_SENDER: usize = 22;
const ARP_TARGET: usize = 32;
const ND_OPTION: usize = 80;

/// Puts another Ethernet address in place of one, in the header and where ARP or neighbour discovery tell
/// it: the places of [header, ARP, option].
fn rewrite(frame: &mut [u8], [header, arp, option]: [usize; 3], from: [u8; 6], to: [u8; 6]) {
    let told = match (&frame[12..14], frame.get(20)) {
        ([0x08, 0x06], _) => arp,
        ([0x86, 0xdd], Some(58)) => option,
        _ => header,
    };
    for at in [header, told] {
        if let Some(place) = frame.get_mut(at..at + 6).filter(|place| **place == from) {
            place.copy_from_slice(&to);
        }
    }
}

/// The Ethernet address that a host knows to be its own.
pub(crate) const fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, host as u8 + 1]
}

/// Connection timers and windows that a small simulation can wait for.
pub(crate) fn config(ips: Vec<std::net::IpAddr>, rng: &mut Rng, patient: bool) -> ProviderConfig {
    let mut config = ProviderConfig::new(ips);
    config.ack_timeout_code = if patient { 17 } else { 10 + rng.below(5) as u8 };
    config.retry_count = if patient { 7 } else { rng.below(8) as u8 };
    config.window.bytes = 1 << (10 + rng.below(10));
    config.window.read_chunk = 1 << (10 + rng.below(6));
    config.window.reorder_bytes = [0, 1 << (10 + rng.below(10)), 512 << 10][rng.below(3) as usize];
    config.opening = opening(rng);
    if rng.below(6) == 0 {
        config.dcqcn = None;
    }
    config.short_ways = rng.below(6) > 0;
    config
}

/// Numbers that are soon to wrap, in some worlds.
fn opening(rng: &mut Rng) -> Opening {
    let psns_to_wrap = (rng.below(4) == 0).then(|| 1 << rng.below(9));
    let messages_to_wrap = if rng.below(4) == 0 { 1 << rng.below(7) } else { 0 };
    let msn = Msn::new(0_u32.wrapping_sub(messages_to_wrap));
    Opening { psns_to_wrap, msn }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: losses come together, and are as many as announced.
    #[test]
    fn a_channel_is_bad_for_a_while_and_seldom() {
        let bursts = Bursts { good: 90_000, bad: 10_000, loss: 1000 };
        let (mut channel, mut rng) = (Channel::default(), Rng::from_seed([4; 32]));
        let bad: Vec<_> =
            (1..100_000).map(|at| channel.is_bad(at * 100, bursts, &mut rng)).collect();
        let share = bad.iter().filter(|&&bad| bad).count() * 1000 / bad.len();
        let changes = bad.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((70..130).contains(&share), "{share} of 1000 are bad, and {} said", bursts.lossy());
        assert!((100..300).contains(&changes), "{changes} changes in 10 ms");
    }

    /// Goal: a frame is late that the network held back for long, and once only.
    #[test]
    fn a_frame_is_late_that_was_held_back_for_long() {
        for (window, late) in [(COPY_LIFE, true), (COPY_LIFE / 51, false)] {
            let faults = Faults { spike: 1000, window, ..Faults::default() };
            let mut net = Net::new(2, faults, &[], Rng::from_seed([5; 32]));
            for _ in 0..100 {
                net.send(0, 0, &[mac(1), mac(0), [0; 6]].concat());
                let (_, frame) = net.arrive(u64::MAX).unwrap();
                assert_eq!([net.was_late(&frame), net.was_late(&frame)], [late, false]);
            }
        }
    }
}
