//! Goal: where units of several packets are lost and single packets pass, a device soon sends these alone, and tries a unit
//! again later; chance and bursts bring it to that for a short time at most.
//! Method: two devices in virtual time over a link with a rate and a delay, which loses units by a rule, and packets by
//! chance; times are compared with those of the same work where each packet leaves alone.

use super::*;
use crate::env::Rng;
use crate::wire::{Frames, Operation};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A packet takes so long on the link, and so many may wait for it.
const PACKET_NS: u64 = 1_000;
const QUEUE: u64 = 64;
const DELAY_NS: u64 = 20_000;
/// Packets of one unit.
const SEGMENTS: usize = 16;
/// Bytes of a message.
const MESSAGE: usize = 65_536;
/// Requests at once.
const DEPTH: u64 = 8;

/// The units that a node's NIC loses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Nic {
    Sound,
    /// All.
    LosesUnits,
    /// Those of more packets.
    LosesLongerThan(usize),
    /// Of 1000 units, so many, whole.
    LosesSome(u32),
    /// All that leave within so many microseconds of each thousand, single packets too.
    Stalls(u64),
}

/// The packets that are under way to a node.
#[derive(Default)]
struct Link {
    free_at: u64,
    frames: BTreeMap<(u64, u64), Vec<u8>>,
    count: u64,
}

struct Run {
    world: World,
    qps: Vec<[Qpn; 2]>,
    links: [Link; 2],
    nics: [Nic; 2],
    rng: Rng,
    /// Of 1000 packets, lost.
    loss: u32,
    read: bool,
    posted: u64,
    /// The PSNs of data that have left each node.
    left: [BTreeSet<u32>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Load {
    read: bool,
    /// The peer keeps what is behind a gap, and says so.
    keeps: bool,
    seed: u8,
}

const WRITES: Load = Load { read: false, keeps: true, seed: 1 };
const READS: Load = Load { read: true, ..WRITES };
const LOADS: [Load; 4] =
    [WRITES, READS, Load { keeps: false, ..WRITES }, Load { keeps: false, ..READS }];

impl Run {
    /// Over NICs that lose the same units; `segments` packets of one unit.
    fn new(load: Load, nic: Nic, segments: usize) -> Self {
        let mut configs = [0, 1].map(|node| DeviceConfig { dcqcn: None, ..config(false, node) });
        if !load.keeps {
            configs.iter_mut().for_each(|config| config.window.reorder_bytes = 0);
        }
        let (mut world, qps, _) = World::of(configs).join(false);
        world.now = world.now + Duration::from_nanos(2 * DELAY_NS);
        world.max_packets = segments;
        Self {
            world,
            qps: vec![qps],
            links: Default::default(),
            nics: [nic; 2],
            rng: Rng::from_seed([load.seed; 32]),
            loss: 0,
            read: load.read,
            posted: 0,
            left: Default::default(),
        }
    }

    /// The node whose units matter: that with the data.
    fn sender(&self) -> usize {
        usize::from(self.read)
    }

    fn count(&self, counter: Counter) -> u64 {
        self.world.devices[self.sender()].counters().get(counter)
    }

    fn now_ns(&self) -> u64 {
        self.world.now.as_nanos()
    }

    fn ended(&self) -> u64 {
        self.world.done[0].len() as u64
    }

    /// Keeps as many requests posted as there may be, until so many more have ended. Returns the time that it took.
    fn transfer(&mut self, messages: u64) -> u64 {
        let (begin, end) = (self.now_ns(), self.ended() + messages);
        while self.ended() < end {
            while self.posted < end && self.posted - self.ended() < DEPTH {
                self.post(0, MESSAGE);
            }
            self.step();
        }
        assert!(self.world.done[0].iter().all(|done| done.status == WcStatus::Success));
        self.now_ns() - begin
    }

    fn post(&mut self, pair: usize, len: usize) {
        let (va, rkey) = (BASE + 100_000, self.world.keys[1]);
        let op = if self.read { SendOp::Read { va, rkey } } else { SendOp::Write { va, rkey } };
        self.world.post(self.qps[pair][0], self.posted, op, len);
        self.posted += 1;
    }

    /// Lets time pass without new work.
    fn rest(&mut self, time: Duration) {
        self.world.now = self.world.now + time;
    }

    /// Sends what the links have room for, then goes to the next event.
    fn step(&mut self) {
        let now = self.now_ns();
        for from in [0, 1] {
            while self.links[from].free_at < now + QUEUE * PACKET_NS {
                let mut buf = vec![0; 65_000];
                let World { devices, memory, max_packets, now, .. } = &mut self.world;
                let (device, memory) = (&mut devices[from], &mut memory[from]);
                let Some(unit) = device.poll_transmit(*now, &mut buf, *max_packets, memory) else {
                    break;
                };
                self.carry(from, &buf[..unit.len], &unit);
            }
        }
        let arrivals = self.links.iter().filter_map(|link| link.frames.keys().next());
        let free = self.links.iter().map(|link| link.free_at.saturating_sub(QUEUE * PACKET_NS - 1));
        let timeouts = self.world.devices.iter_mut().filter_map(Device::poll_timeout);
        let events = arrivals.map(|(at, _)| *at).chain(timeouts.map(Instant::as_nanos));
        let next = events.chain(free.filter(|at| *at > now)).min().expect("work is not done");
        self.world.now = Instant::from_nanos(next.max(now));
        for to in [0, 1] {
            let world = &mut self.world;
            let frames = &mut self.links[1 - to].frames;
            while let Some(frame) = frames.first_entry().filter(|entry| entry.key().0 <= next) {
                world.wires[to].push_back(frame.remove());
            }
            world.deliver(to);
            world.devices[to].handle_timeout(world.now);
            world.deliver(to);
        }
    }

    fn carry(&mut self, from: usize, bytes: &[u8], unit: &Unit) {
        let now = self.now_ns();
        let lost = match self.nics[from] {
            Nic::Sound => false,
            Nic::LosesUnits => unit.segments > 1,
            Nic::LosesLongerThan(packets) => unit.segments > packets,
            Nic::LosesSome(part) => unit.segments > 1 && self.rng.below(1000) < part,
            Nic::Stalls(us) => now / 1000 % 1000 < us,
        };
        for frame in split(bytes, unit) {
            let Packet { bth, payload, .. } = Packet::parse(&frame).unwrap();
            // An ACK, a report and a probe have the PSNs of others.
            let data = matches!(bth.opcode.operation(), Operation::Write | Operation::ReadResponse)
                && !payload.is_empty();
            let again = data && !self.left[from].insert(bth.psn.get());
            assert!(unit.segments == 1 || !again, "what is sent again leaves alone");
            let link = &mut self.links[from];
            link.free_at = link.free_at.max(now) + PACKET_NS;
            if !lost && self.rng.below(1000) >= self.loss {
                link.frames.insert((link.free_at + DELAY_NS, link.count), frame);
                link.count += 1;
            }
        }
    }
}

/// The time that the work takes where each packet leaves alone.
fn alone_ns(load: Load, messages: u64) -> u64 {
    Run::new(load, Nic::Sound, 1).transfer(messages)
}

/// Each kind of peer, and both directions.
#[test]
fn where_units_are_lost_single_packets_carry_as_much_as_without() {
    for load in LOADS {
        let mut run = Run::new(load, Nic::LosesUnits, SEGMENTS);
        // Within a second of the first loss ...
        let begin_ns = run.now_ns();
        while run.count(Counter::UnitsOffPath) == 0 {
            run.transfer(1);
        }
        let took_ns = run.now_ns() - begin_ns;
        assert!(took_ns < 1_000_000_000, "{load:?}: {took_ns} ns");
        assert_eq!((run.count(Counter::UnitsOffPath), run.count(Counter::UnitsOffLink)), (1, 0));
        assert_eq!(run.count(Counter::UnitsLost), 4, "{load:?}");
        // ... it is as if there were none.
        let sent = run.count(Counter::UnitsSent);
        let (with_ns, alone_ns) = (run.transfer(400), alone_ns(load, 400));
        assert_eq!(run.count(Counter::UnitsSent), sent);
        assert!(alone_ns * 10 >= with_ns * 9, "{load:?}: {with_ns} ns, not {alone_ns}");
        std::println!("{load:?}: after {took_ns} ns {with_ns} ns, alone {alone_ns}");
    }
}

/// The trials cost little, and become rare.
#[test]
fn one_unit_is_tried_now_and_then() {
    for load in LOADS {
        let mut run = Run::new(load, Nic::LosesUnits, SEGMENTS);
        run.transfer(200);
        let (sent, off) = (run.count(Counter::UnitsSent), run.count(Counter::UnitsOffPath));
        assert_eq!(off, 1, "{load:?}");
        for (n, wait_s) in [(1, 4), (2, 8), (3, 16)] {
            run.rest(Duration::from_secs(wait_s - 1));
            run.transfer(50);
            assert_eq!(run.count(Counter::UnitsSent), sent + n - 1, "{load:?}: too soon");
            run.rest(Duration::from_secs(1));
            run.transfer(200);
            assert_eq!(run.count(Counter::UnitsSent), sent + n, "{load:?}");
            assert_eq!(run.count(Counter::UnitsOffPath), 1 + n, "{load:?}");
        }
        // With the second one that path is all that there is.
        assert!(run.count(Counter::UnitsOffLink) > 0, "{load:?}");
        // The NIC is mended.
        run.nics = [Nic::Sound; 2];
        run.rest(Duration::from_secs(256));
        run.transfer(400);
        let before = run.count(Counter::UnitsSent);
        run.transfer(20);
        assert!(run.count(Counter::UnitsSent) > before + 20, "{load:?}: they are used again");
    }
}

/// A device between may carry what fits one of its buffers.
#[test]
fn short_units_that_pass_do_not_hide_that_long_ones_are_lost() {
    let mut run = Run::new(WRITES, Nic::LosesLongerThan(3), SEGMENTS);
    for _ in 0..40 {
        run.post(0, 3 * 1024);
        run.transfer(4);
    }
    assert_eq!(run.count(Counter::UnitsOffPath), 1);
}

/// An outage takes what leaves within it, single packets and units.
#[test]
fn short_outages_give_no_units_up() {
    for load in LOADS {
        let mut run = Run::new(load, Nic::Stalls(30), SEGMENTS);
        run.transfer(300);
        assert_eq!(run.count(Counter::UnitsOffPath), 0, "{load:?}");
    }
}

/// A path has given units up, and the units of a second one are lost, too: what they have in common loses them.
#[test]
fn once_two_paths_lose_units_a_third_begins_without() {
    let addresses = [2, 3, 4].map(|last| IpAddr::from([10, 0, 0, last]));
    let configs = [0, 1].map(|node| DeviceConfig {
        dcqcn: None,
        addresses: if node == 0 { vec![address(false, 0)] } else { addresses.to_vec() },
        ..config(false, node)
    });
    let mut world = World::of(configs);
    let mut qps = Vec::new();
    for remote in addresses {
        let pair = [world.qp(0), world.qp(1)];
        world.devices[1].bind_port(remote, PORT).unwrap();
        world.devices[1].listen(SocketAddr::new(remote, PORT), 4).unwrap();
        let conn = world.connect_to(remote, pair[0]);
        world.accept(pair[1], conn);
        qps.push(pair);
    }
    let mut run = Run::new(WRITES, Nic::LosesUnits, SEGMENTS);
    (run.world, run.qps) = (world, qps);
    run.world.max_packets = SEGMENTS;
    let mut off = Vec::new();
    for pair in 0..3 {
        let before = run.count(Counter::UnitsSent);
        for _ in 0..60 {
            run.post(pair, MESSAGE);
            while run.ended() < run.posted {
                run.step();
            }
        }
        off.push((run.count(Counter::UnitsOffPath), run.count(Counter::UnitsOffLink)));
        assert_eq!(run.count(Counter::UnitsSent) == before, pair == 2, "{off:?}");
    }
    assert_eq!(off, [(1, 0), (1, 1), (1, 1)]);
}

/// The buffers of one run, and the packets of each unit in them.
struct Buffers {
    free: usize,
    buf: Vec<u8>,
    segments: Vec<usize>,
}

impl Frames for Buffers {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        if self.segments.len() < self.free { Some(&mut self.buf) } else { None }
    }

    fn keep(&mut self, unit: &Unit) {
        self.segments.push(unit.segments);
    }
}

/// However many buffers an edge lends at once.
#[test]
fn one_unit_is_tried_at_a_time() {
    let mut run = Run::new(WRITES, Nic::LosesUnits, SEGMENTS);
    while run.count(Counter::UnitsOffPath) == 0 {
        run.transfer(1);
    }
    run.rest(Duration::from_secs(4));
    (0..DEPTH).for_each(|_| run.post(0, MESSAGE));
    let World { devices, memory, now, .. } = &mut run.world;
    let mut frames = Buffers { free: 32, buf: vec![0; 65_000], segments: Vec::new() };
    while devices[0].poll_transmit_run(*now, &mut frames, SEGMENTS, &mut memory[0]) {}
    let units = frames.segments.iter().filter(|segments| **segments > 1).count();
    assert_eq!((units, frames.segments.len()), (1, 32));
}

/// A peer whose packets come by several ways may have any Ethernet address, and ours is ours all the same.
#[test]
fn a_unit_for_another_host_is_dropped_whatever_the_peers_ways_are() {
    let (mut world, [client, _], _) = World::connected(false);
    world.max_packets = 1;
    for way in 0..8 {
        world.post(client, u64::from(way), world.write(), 64);
        world.transmit(0);
        for frame in &mut world.wires[1] {
            frame[11] = way;
        }
        world.run();
    }
    world.post(client, 8, world.write(), 8 * 1024);
    let mut buf = vec![0; 65_000];
    let (device, memory) = (&mut world.devices[0], &mut world.memory[0]);
    let unit = device.poll_transmit(world.now, &mut buf, 8, memory).unwrap();
    buf[5] ^= 0x10;
    let before = world.memory[1].0[0].clone();
    let (device, memory) = (&mut world.devices[1], &mut world.memory[1]);
    device.handle_frame(world.now, &buf[..unit.len], Some(unit.segment_len), memory);
    assert_eq!(world.drops(1), [(DropReason::EthernetAddress, unit.segments as u64)]);
    assert!(world.memory[1].0[0] == before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever chance takes: packets, whole units that a queue drops, all that leaves within a moment. Of a peer that drops what
    /// is behind a missing packet, the loss of a unit's first one looks like that of all.
    #[test]
    fn chance_gives_no_units_up(
        load in prop::sample::select(&LOADS[..]),
        seed in any::<u8>(),
        loss in 0..=100_u32,
        nic in prop::sample::select(&[Nic::Sound, Nic::LosesSome(20), Nic::Stalls(50)][..]),
    ) {
        let mut run = Run::new(Load { seed, ..load }, nic, SEGMENTS);
        run.loss = if load.keeps { loss } else { loss / 4 };
        run.transfer(100);
        prop_assert_eq!((run.count(Counter::UnitsOffPath), run.count(Counter::UnitsOffLink)), (0, 0));
    }
}
