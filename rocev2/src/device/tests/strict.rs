//! Goal: towards a slow and strict peer no packet is resent without need, and no copy of a READ reaches it
//! once the READ's key has ended: rxe answers such a duplicate by a fatal NAK. Method: two devices over a
//! seeded link in virtual time, the peer one without a reorder buffer; pairs of a READ and the SEND that
//! invalidates its key, as storage protocols post them.

use super::*;
use crate::mr::{Mapping, Reserve};
use std::collections::{BTreeMap, BTreeSet};

const SLOTS: u64 = 4;
/// A key that has ended stays so for a while.
const KEYS: usize = 64;
const LEN: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Link {
    /// Of 1000 packets of the requester, delayed by up to `late_us`.
    late: u32,
    late_us: u32,
    /// The peer's responses take this long, drawn anew for each, in order.
    service_us: [u32; 2],
    /// Of 1000 responses, those that take up to 8 ms more.
    slow: u32,
}

struct Run {
    world: World,
    qps: [Qpn; 2],
    link: Link,
    rng: Rng,
    frames: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    count: u64,
    /// The peer responds in order.
    answered_at: u64,
    /// Those of the slots, and then those that ended, the longest ago first.
    keys: VecDeque<Rkey>,
    /// First PSNs of READ responses.
    answered: BTreeSet<u32>,
    sendings: Sendings,
    /// The length in the last of them to arrive.
    length: u32,
    /// PSNs that the requester sent, and how many of them twice; probes are none of them.
    sent: BTreeSet<u32>,
    twice: usize,
    /// Copies that ended the connection, where the peer is strict; those that would have, where not.
    stale: usize,
    strict: bool,
}

/// The packets that left under a new PSN.
#[derive(Default)]
struct Sendings {
    /// Requests that name memory, and have not arrived.
    fresh: BTreeSet<u32>,
    /// One past the newest PSN.
    highest: Option<Psn>,
}

impl Sendings {
    fn note(&mut self, psn: Psn, ext: Ext) {
        if self.highest.is_some_and(|highest| psn.since(highest) < 0) {
            return;
        }
        let mut packets = 1;
        if let Ext::Reth(reth) = ext {
            self.fresh.insert(psn.get());
            packets = reth.len.div_ceil(1024).max(1);
        }
        self.highest = Some(psn.add(packets));
    }
}

impl Run {
    /// The peer drops what comes early, and is strict.
    fn new(link: Link, seed: u8) -> Self {
        let mut configs = [config(false, 0), config(false, 1)];
        configs[1].window.reorder_bytes = 0;
        Self::of(configs, link, seed)
    }

    fn of(mut configs: [DeviceConfig; 2], link: Link, seed: u8) -> Self {
        let strict = configs[1].window.reorder_bytes == 0;
        // A key is opened at once, whatever was lost.
        configs.iter_mut().for_each(|config| (config.dcqcn, config.max_mrs) = (None, 2 * KEYS));
        let (mut world, qps, _) = World::of(configs).join(false);
        let keys = (0..KEYS).map(|_| {
            world.devices[1].reserve(PD, Reserve::FastRegister(Access::REMOTE_READ)).unwrap()
        });
        let keys = keys.collect();
        let rng = Rng::from_seed([seed; 32]);
        let frames = BTreeMap::new();
        let (answered, sent) = (BTreeSet::new(), BTreeSet::new());
        Self {
            world,
            qps,
            link,
            rng,
            frames,
            count: 0,
            answered_at: 0,
            keys,
            answered,
            sendings: Sendings::default(),
            length: 1,
            sent,
            twice: 0,
            stale: 0,
            strict,
        }
    }

    /// Opens a slot's key and READs through it.
    fn read(&mut self, slot: u64) {
        // The slot's last key has ended.
        let next = self.keys.remove(SLOTS as usize).unwrap();
        let ended = core::mem::replace(&mut self.keys[slot as usize], next);
        self.keys.push_back(ended);
        let key = next;
        let (region, access, len) = (RegionId(0), Access::REMOTE_READ, LEN as u64);
        let mapping = Mapping { region, offset: 0, base: BASE, len, access };
        let op = SendOp::FastRegister { key, mapping };
        let sgl = SgList::new();
        let wr = SendWr { id: 0, op, sgl, solicited: false, read_fence: false, silent: true };
        self.world.devices[1].post_send(self.qps[1], wr).unwrap();
        self.transmit(1);
        self.world.post(self.qps[0], slot, SendOp::Read { va: BASE, rkey: key }, LEN);
    }

    fn send_inv(&mut self, slot: u64) {
        let sgl = self.world.sgl(1, 200_000, 64);
        self.world.devices[1].post_recv(self.qps[1], RecvWr { id: 0, sgl }).unwrap();
        let op = SendOp::SendInvalidate(self.keys[slot as usize]);
        self.world.post(self.qps[0], SLOTS + slot, op, 64);
    }

    /// Does `pairs` of a READ and a SEND, `depth` at a time; whether the connection lived.
    fn pairs(&mut self, pairs: usize, depth: u64) -> bool {
        (0..depth).for_each(|slot| self.read(slot));
        let (mut posted, mut done) = (depth as usize, 0);
        while done < pairs && !self.is_killed() {
            self.step();
            for completion in core::mem::take(&mut self.world.done[0]) {
                assert_eq!(completion.status, WcStatus::Success);
                if completion.id < SLOTS {
                    self.send_inv(completion.id);
                    continue;
                }
                done += 1;
                if posted < pairs {
                    self.read(completion.id - SLOTS);
                    posted += 1;
                }
            }
        }
        !self.is_killed()
    }

    const fn is_killed(&self) -> bool {
        self.strict && self.stale > 0
    }

    fn transmit(&mut self, from: usize) {
        let mut buf = vec![0; 65_000];
        let World { devices, memory, now, .. } = &mut self.world;
        while let Some(unit) = devices[from].poll_transmit(*now, &mut buf, 1, &mut memory[from]) {
            let frame = buf[..unit.len].to_vec();
            let Packet { bth, payload, ext, .. } = Packet::parse(&frame).unwrap();
            let mut at = now.as_nanos() + 20_000;
            let psn = bth.psn.get();
            if from == 0 && bth.opcode.is_request() {
                let probe = bth.opcode == Opcode::WriteOnly && payload.is_empty();
                self.twice += usize::from(!self.sent.insert(psn) && !probe);
                self.sendings.note(bth.psn, ext);
                if self.rng.below(1000) < self.link.late {
                    at += 1000 * u64::from(self.rng.below(self.link.late_us) + 1);
                }
            } else if from == 1 {
                if bth.opcode != Opcode::Acknowledge {
                    self.answered.insert(psn);
                }
                let [least, most] = self.link.service_us;
                let slow = if self.rng.below(1000) < self.link.slow { 8_000 } else { 1 };
                let took = least + self.rng.below(most - least + 1) + self.rng.below(slow);
                self.answered_at = self.answered_at.max(at + 1000 * u64::from(took));
                at = self.answered_at;
            }
            self.frames.insert((at, self.count), (1 - from, frame));
            self.count += 1;
        }
    }

    fn step(&mut self) {
        self.transmit(0);
        self.transmit(1);
        let arrival = self.frames.keys().next().map(|(at, _)| *at);
        let timeouts = self.world.devices.iter_mut().filter_map(Device::poll_timeout);
        let next = arrival.into_iter().chain(timeouts.map(Instant::as_nanos)).min().unwrap();
        self.world.now = Instant::from_nanos(next.max(self.world.now.as_nanos()));
        while let Some(entry) = self.frames.first_entry().filter(|entry| entry.key().0 <= next) {
            let (to, frame) = entry.remove();
            self.stale += usize::from(to == 1 && self.is_fatal(&frame));
            self.world.wires[to].push_back(frame);
            self.world.deliver(to);
        }
        for node in [0, 1] {
            self.world.devices[node].handle_timeout(self.world.now);
            self.world.deliver(node);
        }
    }

    /// Whether this is a READ that was answered before and comes again when its key has ended: rxe
    /// answers it by NAK, remote access error, and its queue pair is dead from then on. So it is where
    /// the newest request that named memory asked for none, whatever became of the key: rxe keeps that
    /// length and finds no region by it.
    fn is_fatal(&mut self, frame: &[u8]) -> bool {
        let Packet { bth, ext, .. } = Packet::parse(frame).unwrap();
        let Ext::Reth(reth) = ext else { return false };
        if self.sendings.fresh.remove(&bth.psn.get()) {
            self.length = reth.len;
        }
        let again = bth.opcode == Opcode::ReadRequest && self.answered.contains(&bth.psn.get());
        let (mrs, len) = (&self.world.devices[1].mrs, u64::from(reth.len));
        let access = Access::REMOTE_READ;
        let dead = mrs.remote(PD, self.qps[1], reth.rkey, reth.va, len, access).is_err();
        again && (dead || self.length == 0)
    }
}

/// A storage target behind a link that puts 2 % of its packets, or 5 %, out of order, and a host that is
/// slow at times.
#[test]
fn a_stale_read_kills_no_connection() {
    for seed in 0..60 {
        let late = [20, 50, 200][usize::from(seed % 3)];
        let link = Link { late, late_us: 5_000, service_us: [50, 300], slow: 50 };
        assert!(Run::new(link, seed).pairs(300, SLOTS), "seed {seed}");
    }
}

/// Two of ours do not wait for the copies of a READ, as a stale one ends nothing: the NAK names a request that is
/// complete (IBTA ch. 9, duplicate READ).
#[test]
fn a_stale_read_ends_nothing_between_two_of_ours() {
    let mut stale = 0;
    for seed in 0..20 {
        let link = Link { late: 100, late_us: 5_000, service_us: [50, 300], slow: 50 };
        let mut run = Run::of([config(false, 0), config(false, 1)], link, seed);
        assert!(run.pairs(300, SLOTS), "seed {seed}");
        assert_eq!(
            [0, 1].map(|node| run.world.devices[node].qp_state(run.qps[node])),
            [Some(crate::qp::QpState::Rts); 2]
        );
        stale += run.stale;
    }
    assert!(stale > 20, "{stale}");
}

#[test]
fn a_read_whose_answer_is_late_is_not_asked_again() {
    let mut run = Run::new(Link { late: 0, late_us: 1, service_us: [10, 20], slow: 0 }, 1);
    assert!(run.pairs(20, 1));
    run.link.service_us = [20_000, 20_000];
    assert!(run.pairs(1, 1));
    assert_eq!(run.twice, 0);
}

/// From the first request on, a probe comes before any resend.
#[test]
fn a_peer_whose_service_time_jitters_gets_nothing_twice() {
    for seed in 0..20 {
        for depth in [1, SLOTS] {
            let mut run =
                Run::new(Link { late: 0, late_us: 1, service_us: [500, 30_000], slow: 0 }, seed);
            assert!(run.pairs(100, depth));
            assert_eq!(run.twice, 0, "seed {seed}, depth {depth}");
        }
    }
}
