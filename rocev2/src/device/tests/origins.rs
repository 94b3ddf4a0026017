//! Goal: a peer whose headers change loses at most a twentieth of its goodput for it. Method: the same transfers between two
//! devices of ours, in virtual time, over wires that change headers as hardware and routers do, and over one that does not.

use super::*;
use crate::wire::Encap;

/// A nanosecond for each byte: 8 Gb/s.
const DELAY: Duration = Duration::from_micros(10);
/// WRITEs or READs of one transfer, and bytes of each.
const REQUESTS: u64 = 1200;
const LEN: usize = 48 << 10;

/// The change of a wire in the `n`th packet, which leaves at `now`.
type Change = fn(n: u64, now: Instant, encap: &mut Encap);

fn nothing(_: u64, _: Instant, _: &mut Encap) {}

/// Another UDP port for each packet.
fn port(n: u64, _: Instant, encap: &mut Encap) {
    encap.src_port = 0xc000 | (n.wrapping_mul(0x9e37_79b9) >> 7) as u16 & 0x3fff;
}

/// Each packet takes one of four ways.
fn spread(n: u64, _: Instant, encap: &mut Encap) {
    let way = (n.wrapping_mul(0x9e37_79b9) >> 9) as u8 & 3;
    (encap.src_mac, encap.hop_limit) = (Mac([2, 0x52, 0, 0, 0, way]), 60 + way);
}

/// Another router each 40 ms.
fn path(_: u64, now: Instant, encap: &mut Encap) {
    let way = (now.as_nanos() / 40_000_000) as u8 & 1;
    (encap.src_mac, encap.hop_limit) = (Mac([2, 0x52, 0, 0, 0, way]), 60 + way);
}

/// A wire with a rate and a delay.
struct Line {
    change: Change,
    packets: u64,
    busy: Instant,
    flying: VecDeque<(Instant, Vec<u8>)>,
}

impl Line {
    fn new(change: Change) -> Self {
        Self { change, packets: 0, busy: Instant::default(), flying: VecDeque::new() }
    }

    fn send(&mut self, now: Instant, frame: &[u8]) {
        let mut packet = Packet::parse(frame).unwrap();
        self.packets += 1;
        // Connection management goes its own way.
        if packet.bth.dest_qpn != Qpn::GSI {
            (self.change)(self.packets, now, &mut packet.encap);
        }
        self.busy = self.busy.max(now) + Duration::from_nanos(frame.len() as u64);
        self.flying.push_back((self.busy + DELAY, emit(&packet)));
    }
}

/// How long `REQUESTS` take from the first device, where the packets of each are changed so.
fn transfer(read: bool, changes: [Change; 2]) -> Duration {
    let configs = [0, 1].map(|node| DeviceConfig { dcqcn: None, ..config(false, node) });
    let (mut world, [client, _], _) = World::of(configs).join(false);
    world.max_packets = 1;
    let mut lines = changes.map(Line::new);
    let rkey = world.keys[1];
    let op = if read { SendOp::Read { va: BASE, rkey } } else { world.write() };
    let (began, mut posted) = (world.now, 0);
    loop {
        while posted < REQUESTS && posted < world.done[0].len() as u64 + 16 {
            world.post(client, posted, op, LEN);
            posted += 1;
        }
        for from in [0, 1] {
            world.transmit(from);
            for frame in core::mem::take(&mut world.wires[1 - from]) {
                lines[from].send(world.now, &frame);
            }
        }
        if world.done[0].len() as u64 == REQUESTS {
            assert!(world.done[0].iter().all(|done| done.status == WcStatus::Success));
            return world.now.saturating_since(began);
        }
        let arrival = lines.iter().filter_map(|line| Some(line.flying.front()?.0)).min();
        let timer = world.devices.iter_mut().filter_map(Device::poll_timeout).min();
        world.now = Instant::earlier(arrival, timer).expect("something is to come").max(world.now);
        for from in [0, 1] {
            while let Some((_, frame)) = lines[from].flying.pop_front_if(|(at, _)| *at <= world.now)
            {
                world.wires[1 - from].push_back(frame);
            }
            world.deliver(1 - from);
        }
        world.devices.iter_mut().for_each(|device| device.handle_timeout(world.now));
    }
}

#[test]
fn a_peer_whose_headers_change_loses_at_most_a_twentieth() {
    for read in [false, true] {
        let still = transfer(read, [nothing; 2]);
        let changes: [(&str, Change); 3] = [("port", port), ("spread", spread), ("path", path)];
        for (name, change) in changes {
            let sides = [("requester", [change, nothing]), ("responder", [nothing, change])];
            for (who, changes) in sides.into_iter().chain([("both", [change; 2])]) {
                let took = transfer(read, changes);
                assert!(
                    took * 20 <= still * 21,
                    "{name}, {who}, READs {read}: {took:?} for {still:?}"
                );
            }
        }
    }
}

#[test]
fn the_port_of_a_peer_of_our_make_is_known_before_its_first_packet() {
    let (mut world, [client, _], _) = World::connected(false);
    world.post(client, 1, world.write(), 3000);
    world.transmit(0);
    let early = world.wires[1].remove(1).unwrap();
    let sent = core::mem::take(&mut world.wires[1]);
    let mut packet = Packet::parse(&early).unwrap();
    packet.encap.src_port ^= 1;
    world.wires[1].push_back(emit(&packet));
    world.deliver(1);
    assert_eq!(world.drops(1), [(DropReason::FlowMismatch, 1)]);
    world.wires[1] = sent;
    world.wires[1].push_back(early);
    world.run();
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
}
