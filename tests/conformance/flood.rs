//! Floods of connection requests from everywhere, while a connection is in use.
//!
//! A device works on [`CmConfig::max_rate`] requests of connection management a second, after a burst,
//! and drops the others unread; of what it sends, one unit in nine is such a message while queue pairs
//! have something to send.

use crate::packet::{look, number, opcode};
use crate::peer::*;
use rocev2::Event;
use rocev2::cm::{CmConfig, CmEvent, ConnId, ReadLimits};
use rocev2::counters::Counter;
use rocev2::env::Duration;
use rocev2::ids::{CommId, Qpn};
use rocev2::psn::Psn;
use rocev2::qp::{QpState, SendOp};
use rocev2::wire::mad::{CmMessage, IpCm, Req, gid};
use rocev2::wire::{Bth, DropReason, Encap, Ext, Opcode, Reth};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const MICROSECOND: Duration = Duration::from_micros(1);
/// In one second.
const REQUESTS: u32 = 100_000;
/// What the device may hold more for any flood: 4096 ended connections that it remembers, 1024
/// messages to send, the backlog, and 1.5 MiB of what was refused. What is not confirmed yet has none of a connection's larger stores.
const MEMORY: isize = 6 << 20;

/// Makes forged requests.
struct Forger {
    req: Req,
    encap: Encap,
}

impl Forger {
    fn new(world: &World) -> Self {
        Self { req: req(&world.encap, 1000, TERMS), encap: world.encap }
    }

    /// REQ `n`, from an address of its own. Every third asks for a service that nobody offers.
    fn request(&self, n: u32) -> Vec<u8> {
        let src = match self.encap.src {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits((0xfd01 << 112) + u128::from(n))),
        };
        let mut req = self.req.clone();
        req.service_id += u64::from(n % 3 == 2);
        forged(&self.encap, req, src, n)
    }
}

/// REQ `n` of a forger of addresses, as if `src` had sent it: `req` by other names.
pub(crate) fn forged(encap: &Encap, mut req: Req, src: IpAddr, n: u32) -> Vec<u8> {
    let noise = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    req.local_comm_id = CommId::new((noise >> 32) as u32);
    (req.local_qpn, req.starting_psn) = (Qpn::new(noise as u32 | 2), Psn::new(noise as u32));
    (req.ca_guid, req.primary.local_gid) = (noise, gid(src));
    let ip_cm = IpCm { src_port: n as u16, src, dst: encap.dst };
    req.private_data[..IpCm::LEN].copy_from_slice(&ip_cm.emit());
    mad(&Encap { src, ..*encap }, &CmMessage::Req(req))
}

/// A consumer that answers requests one way or the other, most of them late.
#[derive(Default)]
struct Consumer {
    asked: VecDeque<ConnId>,
    half_open: Vec<(ConnId, Qpn)>,
    /// Half-open connections that ended.
    ended: usize,
}

impl Consumer {
    fn act(&mut self, world: &mut World) {
        for event in std::mem::take(&mut world.events) {
            match event {
                Event::Cm(CmEvent::ConnectRequest { conn, .. }) => self.asked.push_back(conn),
                Event::Cm(CmEvent::TimedOut { conn } | CmEvent::Refused { conn, .. }) => {
                    self.end(world, conn);
                }
                Event::Cm(CmEvent::Closed { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        if self.asked.len() > 6 {
            self.answer(world);
        }
    }

    /// Accepts while there are queue pairs, and rejects.
    fn answer(&mut self, world: &mut World) {
        let Some(conn) = self.asked.pop_front() else { return };
        if self.half_open.len() < 6 {
            let config = qp(9, PD, None);
            let qpn = world.d.create_qp(&config).unwrap();
            let limits = ReadLimits { inbound: 4, outbound: 4 };
            world.d.accept(world.now, conn, qpn, limits, b"").unwrap();
            self.half_open.push((conn, qpn));
        } else {
            world.d.reject(world.now, conn, b"").unwrap();
            world.d.release(world.now, conn);
        }
    }

    fn end(&mut self, world: &mut World, conn: ConnId) {
        let at = self.half_open.iter().position(|(half_open, _)| *half_open == conn).unwrap();
        let (_, qpn) = self.half_open.swap_remove(at);
        world.d.release(world.now, conn);
        world.d.destroy_qp(qpn);
        self.ended += 1;
    }
}

/// What leaves D, up to `packets`: acknowledgements and requests to P, and how many messages of
/// connection management to anyone.
fn transmit(world: &mut World, packets: usize) -> (Vec<i32>, Vec<i32>, usize) {
    let (mut acks, mut requests, mut messages) = (Vec::new(), Vec::new(), 0);
    let mut buf = [0; 2000];
    for _ in 0..packets {
        let unit = world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory);
        let Some(unit) = unit else { break };
        let seen = look(&buf[..unit.len]).expect("RoCE").expect("a good packet");
        match seen.opcode {
            opcode::UD_SEND_ONLY => messages += 1,
            opcode::ACKNOWLEDGE => {
                assert_eq!(number(seen.ext, 0, 1) as u8, ACK);
                acks.push(Psn::new(seen.psn).since(world.end.first[0]));
            }
            _ => requests.push(Psn::new(seen.psn).since(world.end.first[1])),
        }
    }
    world.collect();
    (acks, requests, messages)
}

/// RoCE packets that came, those included that were dropped unread.
fn arrived(world: &World) -> u64 {
    world.d.counters().get(Counter::RcvdPkts) + refused(world)
}

fn refused(world: &World) -> u64 {
    world.d.counters().get(Counter::DropCmShare)
}

/// Goal: 10^5 requests in a second, each tenth of them again byte for byte, cost memory within a bound
/// and time within the share; those that are accepted and never confirmed end; the connection
/// there is does not notice; within a second the listener serves again, and in the end nothing is left.
#[test]
fn cm_30_a_flood_of_requests_is_bounded_in_memory_and_in_time() {
    each(|mut world| {
        let (forger, mut consumer) = (Forger::new(&world), Consumer::default());
        world.events.clear();
        let (empty, received) = (tests::alloc::held(), arrived(&world));
        let (mut most, mut at) = (0, 0);
        for n in 0..REQUESTS {
            world.now = world.now + MICROSECOND * 10;
            world.d.handle_timeout(world.now);
            world.give(&forger.request(if n % 10 == 9 { n - 5 } else { n }));
            consumer.act(&mut world);
            if n % 16 == 0 {
                world.receive(1, 100);
                world.send(at, 100);
                assert_eq!(world.statuses(), [(1, OK)]);
                world.done.clear();
                assert_eq!(transmit(&mut world, 64).0, [at]);
                at += 1;
            }
            most = most.max(tests::alloc::held() - empty);
        }
        assert!(most < MEMORY, "{most} bytes");
        // All that were worked on are within the rate and the burst of the share.
        let worked_on = u64::from(REQUESTS) - refused(&world);
        let CmConfig { max_rate, max_burst, .. } = world.d.config().cm;
        assert_eq!(arrived(&world) - received, u64::from(REQUESTS) + at as u64);
        assert!((1..=u64::from(max_rate + max_burst)).contains(&worked_on), "{worked_on}");
        assert_eq!((consumer.half_open.len(), world.state()), (6, QpState::Rts));

        // A second later somebody who means it is served.
        world.pass(Duration::from_secs(1));
        while !consumer.asked.is_empty() {
            consumer.answer(&mut world);
        }
        transmit(&mut world, usize::MAX);
        consumer.act(&mut world);
        let other = world.another(100, PD, None);
        let first = std::mem::replace(&mut world.end, other);
        world.works(0);

        // Half-open connections are given up, and what is remembered is forgotten.
        world.end = first;
        while world.d.poll_timeout().is_some() {
            world.wait();
            consumer.act(&mut world);
            transmit(&mut world, usize::MAX);
        }
        consumer.act(&mut world);
        assert_eq!((consumer.half_open.len(), consumer.ended), (0, 6));
        assert_eq!(world.state(), QpState::Rts);
        // But for the second connection, and what tables keep for the next flood.
        let left = tests::alloc::held() - empty;
        assert!(left < 3 << 20, "{left} bytes");
        eprintln!("{worked_on} of {REQUESTS} worked on, at most {most} bytes, {left} bytes left");
    });
}

/// A connection costs little before its peer is proven, and no more afterwards: what comes behind a gap waits
/// in a pool that the device has from the start.
#[test]
fn a_connection_takes_little_memory_and_keeps_what_comes_early() {
    each(|mut world| {
        let request = Forger::new(&world).request(0);
        let qpn = world.d.create_qp(&qp(9, PD, None)).unwrap();
        world.events.clear();
        let before = tests::alloc::held();
        world.give(&request);
        let Some(Event::Cm(CmEvent::ConnectRequest { conn, .. })) = world.events.pop() else {
            panic!("no request")
        };
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        world.d.accept(world.now, conn, qpn, limits, b"").unwrap();
        let half_open = tests::alloc::held() - before;
        assert!(half_open < 16 << 10, "{half_open} bytes");
        assert_eq!(transmit(&mut world, usize::MAX).2, 1, "REP");
        world.end = world.another(3, PD, None);
        let confirmed = tests::alloc::held() - before - half_open;
        // With the queue pair at the other end, and receives for both.
        assert!(confirmed < 48 << 10, "{confirmed} bytes");
        (0..2).for_each(|id| world.receive(id, 10));
        world.send(1, 10);
        world.send(0, 10);
        assert_eq!(world.acks().last().map(|ack| (ack.0, ack.1)), Some((ACK, 1)));
    });
}

/// How long a turn of D is, and how many packets it works on in one, each way: 800,000 a second.
const TURN: Duration = Duration::from_micros(20);
const PACKETS: f64 = 16.0;
/// What it takes to drop a packet unread, as a part of what it takes to work on one. It was a fifteenth
/// of a WRITE of 1 KiB in a release build; `what_a_packet_of_a_flood_costs` prints it.
const UNREAD: f64 = 0.125;
const TURNS: usize = 5_000;

/// Packets that a busy connection moves to D and from D in so many turns, while `flood` requests come in
/// each. D's NIC keeps what D does not get to, in order.
fn moved(mut world: World, flood: u32) -> [usize; 2] {
    let (forger, key) = (Forger::new(&world), world.key);
    let (mut nic, mut forged) = (VecDeque::new(), 0);
    let (mut next, mut acked, mut posted, mut completed) = (0, -1, 0, 0);
    for _ in 0..TURNS {
        world.pass(TURN);
        world.events.clear();
        // P keeps a window of WRITEs in flight; the flood comes between them.
        let writes = 32 - (next - acked - 1);
        for n in 0..writes.max(flood as i32) {
            if n < flood as i32 {
                nic.push_back(forger.request(forged));
                forged += 1;
            }
            if n < writes {
                let reth = Ext::Reth(Reth { va: BASE, rkey: key, len: P as u32 });
                let bth = world.bth(next, Opcode::WriteOnly);
                nic.push_back(frame(&world.encap, &bth, &reth, &[7; P]));
                next += 1;
            }
        }
        let mut budget = PACKETS;
        while budget >= 1.0
            && let Some(frame) = nic.pop_front()
        {
            let unread = refused(&world);
            world.give(&frame);
            budget -= if refused(&world) > unread { UNREAD } else { 1.0 };
        }
        // D keeps a window of SENDs in flight.
        completed += world.done.len();
        world.done.clear();
        while posted < completed + 32 {
            world.post(1, SendOp::Send, 2 * P);
            posted += 1;
        }
        let (acks, requests, _) = transmit(&mut world, PACKETS as usize);
        acked = acks.into_iter().chain([acked]).max().unwrap();
        if let Some(&newest) = requests.last() {
            let psn = Psn::new(world.end.first[1].get().wrapping_add_signed(newest));
            let bth = Bth::new(Opcode::Acknowledge, world.end.qpn, psn);
            nic.push_back(frame(&world.encap, &bth, &aeth(ACK), &[]));
        }
    }
    assert_eq!(world.state(), QpState::Rts);
    assert!(nic.len() < 1000, "{} frames wait", nic.len());
    [(acked + 1) as usize, 2 * completed]
}

/// Goal: a connection that keeps D busy loses less than 20 % of its throughput to 10^5 requests a second
/// from everywhere, each way; and to 10^6, both ways together.
/// Method: D works on so many packets a turn, and no more; what the connection moves is counted, with
/// the flood and without. Nothing here depends on how fast this machine is.
#[test]
fn cm_30_a_flood_leaves_four_fifths_of_the_work_to_connections() {
    each(|world| {
        let v6 = world.encap.src.is_ipv6();
        let alone = moved(world, 0);
        for flood in [2, 20] {
            let flooded = moved(World::new(v6, TERMS), flood);
            eprintln!("{flood} requests a turn: {flooded:?} of {alone:?} packets");
            let left = |moved: &[usize]| moved.iter().sum::<usize>() as f64;
            assert!(left(&flooded) >= 0.8 * left(&alone), "{flooded:?} of {alone:?}");
            if flood == 2 {
                assert!(flooded.iter().zip(&alone).all(|(&now, &was)| now * 10 >= was * 8));
            }
        }
    });
}

/// Beyond the share nothing of a message is looked at but its headers: not even the ICRC.
#[test]
fn a_request_beyond_the_share_is_dropped_unread() {
    each(|mut world| {
        let forger = Forger::new(&world);
        let burst = world.d.config().cm.max_burst;
        // What the connection that there is took of the share has come back since.
        for n in 0..burst {
            world.give(&forger.request(n));
        }
        transmit(&mut world, usize::MAX);
        world.events.clear();
        assert_eq!(refused(&world), 0);
        let mut frame = forger.request(burst);
        let end = frame.len();
        frame[end - 1] ^= 1;
        world.is_dropped(DropReason::CmShare, |world| world.give(&frame));
        // Other packets are worked on as ever, and a little later the next message is.
        world.works(0);
        world.pass(MICROSECOND * 50);
        world.is_dropped(DropReason::Icrc, |world| world.give(&frame));
        frame[end - 1] ^= 1;
        let before = refused(&world);
        world.give(&frame);
        world.give(&forger.request(burst + 1));
        assert_eq!(refused(&world), before + 1);
    });
}

/// Prints what a packet costs, with what D sends for it; nothing about time is asserted, as machines
/// differ.
#[test]
fn what_a_packet_of_a_flood_costs() {
    const COUNT: u32 = 20_000;
    let all = |reason: DropReason| {
        let mut drops = [0; DropReason::COUNT];
        drops[reason.index()] = u64::from(COUNT);
        drops
    };
    each(|mut world| {
        let (forger, key) = (Forger::new(&world), world.key);
        let requests: Vec<_> = (0..COUNT).map(|n| forger.request(n)).collect();
        let write = |n: u32, qpn: Qpn| {
            let reth = Ext::Reth(Reth { va: BASE, rkey: key, len: P as u32 });
            let bth = Bth { dest_qpn: qpn, ..world.bth(n as i32, Opcode::WriteOnly) };
            frame(&world.encap, &bth, &reth, &[7; P])
        };
        let unknown = Qpn::new(world.end.qpn.get() ^ 0x80_0000);
        let writes: Vec<_> = (0..COUNT).map(|n| write(n, world.end.qpn)).collect();
        let astray: Vec<_> = (0..COUNT).map(|n| write(n, unknown)).collect();
        let cases = [
            ("a WRITE of 1 KiB", writes, 50, [0; _]),
            ("a WRITE to a queue pair that is not there", astray, 50, all(DropReason::UnknownQpn)),
            ("a REQ that is worked on", requests.clone(), 50, [0; _]),
            // Takes what is left of the burst.
            ("a REQ, most of them beyond the share", requests.clone(), 0, [0; _]),
            ("a REQ beyond the share", requests, 0, all(DropReason::CmShare)),
        ];
        for (what, frames, micros, expected) in cases {
            let before = world.counted_drops();
            let (begin, mut buf) = (Instant::now(), [0; 2000]);
            for frame in &frames {
                world.now = world.now + MICROSECOND * micros;
                world.d.handle_frame(world.now, frame, None, &mut world.memory);
                let (now, memory) = (world.now, &mut world.memory);
                while world.d.poll_transmit(now, &mut buf, 1, memory).is_some() {}
                while world.d.poll_event().is_some() {}
            }
            eprintln!("{:6} ns: {what}", begin.elapsed().as_nanos() / u128::from(COUNT));
            let after = world.counted_drops();
            let drops =
                DropReason::ALL.map(|reason| after[reason.index()] - before[reason.index()]);
            if !what.contains("most") {
                assert_eq!(drops, expected, "{what}");
            }
        }
    });
}
