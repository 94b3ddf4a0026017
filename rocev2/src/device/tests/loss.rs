//! Goal: loss and reordering cost few packets. Method: two devices over a link with a rate, a delay and
//! seeded faults; packets sent are compared with those that the same work takes over a link without faults.
//! Acknowledgements are not counted.

use super::*;
use std::collections::BTreeMap;

/// Packets that wait for the link to be free.
const QUEUE: u64 = 16;
const MESSAGES: u64 = 240;

#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// Of 1000 packets, lost.
    pub(super) loss: u32,
    /// Of 1000 packets, overtaken by some of those behind it.
    pub(super) late: u32,
    /// By how many at most.
    pub(super) places: u32,
    /// Only acknowledgements are lost.
    pub(super) acks_only: bool,
    /// Of 1000 packets, not delayed at all: they overtake everything on the link.
    pub(super) early: u32,
    pub(super) delay_us: u64,
    /// The link takes so long for a packet.
    pub(super) packet_ns: u64,
}

pub(super) const NONE: Faults = Faults {
    loss: 0,
    late: 0,
    places: 1,
    acks_only: false,
    early: 0,
    delay_us: 20,
    packet_ns: 1_000,
};

/// A link in one building.
const NEAR: Faults = Faults { loss: 30, late: 50, places: 8, ..NONE };

/// As a network emulator does it, over a distance.
const FAR: Faults = Faults { loss: 30, early: 50, delay_us: 2_000, ..NONE };

/// The packets in flight in one direction.
#[derive(Default)]
struct Link {
    free_at: u64,
    frames: BTreeMap<(u64, u64), Vec<u8>>,
    count: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Send,
    Write,
    Read,
    Mixed,
}

const KINDS: [Kind; 4] = [Kind::Send, Kind::Write, Kind::Read, Kind::Mixed];

/// Two devices at work over such a link.
pub(super) struct Run {
    pub(super) world: World,
    links: [Link; 2],
    rng: Rng,
    faults: Faults,
    /// First PSN, responses, and the PSN requested last, of each READ request.
    reads: Vec<(Psn, u32, Psn)>,
}

impl Run {
    pub(super) fn of(world: World, faults: Faults, seed: u8) -> Self {
        let rng = Rng::from_seed([seed; 32]);
        Self { world, links: Default::default(), rng, faults, reads: Vec::new() }
    }

    /// Packets that the work takes, without acknowledgements.
    fn packets(kind: Kind, faults: Faults, peer_holds: bool, seed: u8) -> usize {
        let mut configs = [config(false, 0), config(false, 1)];
        if !peer_holds {
            configs[1].window.reorder_bytes = 0;
        }
        let (mut world, [client, server], _) = World::of(configs).join(false);
        // The handshake took a round trip, too.
        world.now = world.now + Duration::from_micros(2 * faults.delay_us);
        let mut run = Self::of(world, faults, seed);
        let mut posted = 0;
        while (run.world.done[0].len() as u64) < MESSAGES {
            while posted < MESSAGES && posted - (run.world.done[0].len() as u64) < 16 {
                run.post(kind, client, server, posted);
                posted += 1;
            }
            run.step();
        }
        let ok = |node: usize| run.world.done[node].iter().all(|c| c.status == WcStatus::Success);
        assert!(ok(0) && ok(1), "{kind:?} {faults:?} {seed}");
        assert!(run.world.done[0].iter().map(|done| done.id).eq(0..MESSAGES));
        let sent = run.world.sent.iter().flatten();
        sent.filter(|(opcode, _)| !acknowledges(*opcode)).count()
    }

    fn post(&mut self, kind: Kind, client: Qpn, server: Qpn, id: u64) {
        let len = [65_536, 5_000, 100, 12_288][id as usize % 4];
        let kind = match (kind, id % 3) {
            (Kind::Mixed, 0) => Kind::Send,
            (Kind::Mixed, 1) => Kind::Write,
            (Kind::Mixed, _) => Kind::Read,
            (kind, _) => kind,
        };
        let world = &mut self.world;
        let va = BASE + 100_000;
        let op = match kind {
            Kind::Write => SendOp::Write { va, rkey: world.keys[1] },
            Kind::Read => SendOp::Read { va, rkey: world.keys[1] },
            Kind::Send | Kind::Mixed => {
                let sgl = world.sgl(1, 200_000, len);
                world.devices[1].post_recv(server, RecvWr { id, sgl }).unwrap();
                SendOp::Send
            }
        };
        world.post(client, id, op, len);
    }

    /// Sends what the links have room for, then goes to the next event.
    pub(super) fn step(&mut self) {
        let now = self.world.now.as_nanos();
        let queue = QUEUE * self.faults.packet_ns;
        for from in [0, 1] {
            while self.links[from].free_at < now + queue {
                let mut buf = vec![0; 65_000];
                let (device, memory) =
                    (&mut self.world.devices[from], &mut self.world.memory[from]);
                let Some(unit) = device.poll_transmit(self.world.now, &mut buf, 4, memory) else {
                    break;
                };
                for frame in split(&buf[..unit.len], &unit) {
                    self.carry(from, frame);
                }
            }
        }
        let arrivals = self.links.iter().filter_map(|link| link.frames.keys().next());
        let free = self.links.iter().map(|link| link.free_at.saturating_sub(queue - 1));
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

    /// Towards a peer that drops, as rxe does, which answers no duplicate READ request for a PSN below that of the last one.
    fn check_read(&mut self, psn: Psn, answers: u32) {
        let inside = |first: Psn, answers: u32| psn.since(first).cast_unsigned() < answers;
        match self.reads.iter_mut().rev().find(|(first, answers, _)| inside(*first, *answers)) {
            Some((_, _, last)) => {
                assert!(psn.since(*last) >= 0, "{psn:?} after {last:?}");
                *last = psn;
            }
            None => self.reads.push((psn, answers, psn)),
        }
    }

    fn carry(&mut self, from: usize, frame: Vec<u8>) {
        let Packet { bth, ext, .. } = Packet::parse(&frame).unwrap();
        if let (Opcode::ReadRequest, Ext::Reth(reth)) = (bth.opcode, ext)
            && self.world.devices[1].config.window.reorder_bytes == 0
        {
            self.check_read(bth.psn, reth.len.div_ceil(1024).max(1));
        }
        self.world.sent[from].push((bth.opcode, bth.psn));
        let link = &mut self.links[from];
        link.free_at = link.free_at.max(self.world.now.as_nanos()) + self.faults.packet_ns;
        let Faults { loss, late, places, acks_only, early, delay_us, packet_ns } = self.faults;
        if self.rng.below(1000) < loss && (!acks_only || acknowledges(bth.opcode)) {
            return;
        }
        let mut at = link.free_at;
        if self.rng.below(1000) >= early {
            at += delay_us * 1000;
        }
        if self.rng.below(1000) < late {
            at += u64::from(self.rng.below(places) + 1) * packet_ns + packet_ns / 2;
        }
        link.frames.insert((at, link.count), frame);
        link.count += 1;
    }
}

/// Whether a packet acknowledges, or says what is missing, and no more.
fn acknowledges(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Acknowledge | Opcode::GapReport)
}

/// Packets sent for each that was needed.
fn cost(kind: Kind, faults: Faults, peer_holds: bool) -> f64 {
    let needed = Run::packets(kind, NONE, peer_holds, 0);
    let sent: usize = (1..=3).map(|seed| Run::packets(kind, faults, peer_holds, seed)).sum();
    let cost = sent as f64 / (3 * needed) as f64;
    std::println!("{kind:?} {faults:?}, peer holds: {peer_holds}: {cost:.3}");
    cost
}

#[test]
fn sys_07_between_two_of_ours_loss_costs_little_more_than_what_was_lost() {
    for kind in KINDS {
        for faults in [NEAR, FAR] {
            assert!(cost(kind, faults, true) <= 1.3, "{kind:?}");
        }
    }
}

#[test]
fn sys_07_a_peer_that_drops_what_comes_early_costs_less_than_twice() {
    for kind in KINDS {
        for faults in [NEAR, FAR] {
            assert!(cost(kind, faults, false) <= 2.0, "{kind:?}");
        }
    }
}

#[test]
fn sys_04_reordering_alone_causes_no_resend() {
    for kind in KINDS {
        for places in [1, 16, 64] {
            let faults = Faults { late: 100, places, ..NONE };
            assert_eq!(cost(kind, faults, true), 1.0, "{kind:?} {places}");
        }
    }
    // The same faults meet a peer without a reorder buffer.
    assert!(cost(Kind::Write, Faults { late: 100, places: 16, ..NONE }, false) > 1.05);
}

#[test]
fn sys_03_lost_acknowledgements_cost_next_to_nothing() {
    for kind in KINDS {
        for peer_holds in [true, false] {
            let faults = Faults { loss: 300, acks_only: true, ..NONE };
            assert!(cost(kind, faults, peer_holds) <= 1.05, "{kind:?}");
        }
    }
}
