//! Goal: two devices of ours acknowledge several queue pairs by one packet, and nobody else is sent one, or heeded who sends
//! one. Method: WRITEs over several queue pairs, and lists that are lost, forged, or sent to others.

use super::*;
use crate::psn::Msn;
use crate::wire::ack_list::{ACKS_MAX, Ack};
use crate::wire::{Aeth, Syndrome};

/// Two devices, and queue pairs that are connected with each other.
struct Pairs {
    world: World,
    qps: Vec<[Qpn; 2]>,
    /// The PSN of the last packet of each client.
    newest: Vec<Psn>,
}

impl Pairs {
    /// So many, each of which has been heard.
    fn of(configs: [DeviceConfig; 2], count: usize) -> Self {
        let configs = configs.map(|config| DeviceConfig { max_qps: 128, ..config });
        let (mut world, qps, _) = World::of(configs).join(false);
        let mut qps = vec![qps];
        while qps.len() < count {
            let [client, server] = [world.qp(0), world.qp(1)];
            let active = world.connect(false, client);
            world.accept(server, active);
            qps.push([client, server]);
        }
        world.max_packets = 1;
        let newest = vec![Psn::default(); count];
        let mut pairs = Self { world, qps, newest };
        for pair in 0..count {
            pairs.write(pair);
            pairs.world.now = pairs.world.now + Duration::from_micros(20);
            pairs.world.run();
        }
        pairs.forget();
        pairs
    }

    fn new(count: usize) -> Self {
        Self::of([config(false, 0), config(false, 1)], count)
    }

    fn forget(&mut self) {
        self.world.sent = Default::default();
        self.world.done = Default::default();
    }

    /// Sends a WRITE of one packet.
    fn write(&mut self, pair: usize) {
        self.world.post(self.qps[pair][0], pair as u64, self.world.write(), 64);
        self.world.transmit(0);
        self.newest[pair] = self.world.sent[0].last().unwrap().1;
    }

    /// A WRITE over each comes to the server. Returns the kinds of its answers.
    fn write_all(&mut self) -> Vec<Opcode> {
        (0..self.qps.len()).for_each(|pair| self.write(pair));
        self.world.deliver(1);
        self.world.transmit(1);
        self.world.sent[1].iter().map(|(opcode, _)| *opcode).collect()
    }

    /// All that was written is complete, and nothing is in flight.
    fn ends(&mut self) {
        self.world.deliver(0);
        assert_eq!(self.world.done[0].len(), self.qps.len());
        assert!(self.world.done[0].iter().all(|done| done.status == WcStatus::Success));
        self.world.run_for(Duration::from_secs(1));
        let device = &mut self.world.devices[0];
        assert!(device.poll_timeout().is_none(), "nothing is in flight");
    }

    /// An ACK of the newest packet of a pair.
    fn ack(&self, pair: usize) -> Ack {
        Ack { dest_qpn: self.qps[pair][0], psn: self.newest[pair], msn: Msn::new(9) }
    }

    /// Delivers a list to the client, from the server or in its name.
    fn told(&mut self, src: Option<IpAddr>, first: Ack, others: &[Ack]) {
        let mut encap = self.headers(first);
        encap.src = src.unwrap_or(encap.src);
        self.told_by(encap, first, others);
    }

    /// The headers of what the server sends to the queue pair of an ACK.
    fn headers(&self, first: Ack) -> crate::wire::Encap {
        let of = |pair: &&[Qpn; 2]| pair[0] == first.dest_qpn;
        let [_, server] = self.qps.iter().find(of).unwrap_or(&self.qps[0]);
        self.world.devices[1].slot(*server).unwrap().1.qp.peer().unwrap().encap
    }

    /// The same with other headers.
    fn told_by(&mut self, encap: crate::wire::Encap, first: Ack, others: &[Ack]) {
        let payload: Vec<u8> = others.iter().flat_map(|ack| ack.emit()).collect();
        let (mut buf, template) = (vec![0; 2000], Template::new(&encap));
        let mut unit = UnitWriter::new(&mut buf, &template, 1);
        let bth = Bth::new(Opcode::AckList, first.dest_qpn, first.psn);
        let Ok(()) = unit.push(&bth, &Ext::Aeth(first.aeth()), payload.len(), |out| {
            out.copy_from_slice(&payload);
            Ok::<(), core::convert::Infallible>(())
        });
        let len = unit.finish().len;
        self.world.wires[0].push_back(buf[..len].to_vec());
        self.world.deliver(0);
    }

    /// WRITEs over all that the server has executed; their ACKs are lost.
    fn unacknowledged(&mut self) {
        self.write_all();
        self.world.wires[0].clear();
    }

    fn done(&self) -> Vec<u64> {
        self.world.done[0].iter().map(|done| done.id).collect()
    }
}

/// Goal: no ACK leaves in the class of another connection.
#[test]
fn a_list_is_of_one_class() {
    use crate::class::{TrafficClass, TrafficClasses};
    let mut pairs = Pairs::new(2);
    let class = TrafficClass { priority: 3, dscp: 26 };
    let classes = TrafficClasses { default: Some(class), ports: vec![] };
    // The server answers in the class of each request.
    pairs.world.devices[0].set_traffic_classes(classes);
    for pair in 2..4 {
        let [client, server] = [pairs.world.qp(0), pairs.world.qp(1)];
        let active = pairs.world.connect(false, client);
        pairs.world.accept(server, active);
        pairs.qps.push([client, server]);
        pairs.newest.push(Psn::default());
        pairs.write(pair);
        pairs.world.run();
    }
    pairs.forget();
    assert_eq!(pairs.write_all(), [Opcode::AckList; 2]);
    let tags = pairs.world.wires[0].iter().map(|frame| Packet::parse(frame).unwrap().encap.vlan);
    assert_eq!(tags.collect::<Vec<_>>(), [None, Some(3 << 13)]);
    pairs.ends();
}

#[test]
fn acks_of_several_queue_pairs_leave_in_one_packet() {
    for count in [2, 3, ACKS_MAX + 1] {
        let mut pairs = Pairs::new(count);
        assert_eq!(pairs.write_all(), [Opcode::AckList], "{count}");
        pairs.ends();
    }
}

#[test]
fn a_list_is_bounded() {
    let mut pairs = Pairs::new(2 * (1 + ACKS_MAX) + 1);
    let [list, alone] = [Opcode::AckList, Opcode::Acknowledge];
    assert_eq!(pairs.write_all(), [list, list, alone]);
    let listed = |frame: &Vec<u8>| Ack::parse(Packet::parse(frame).unwrap().payload).count();
    assert_eq!(pairs.world.wires[0].iter().map(listed).max(), Some(ACKS_MAX));
    pairs.ends();
    let small = [0, 1].map(|node| DeviceConfig { mtu: 256 + 80, ..config(false, node) });
    let mut pairs = Pairs::of(small, ACKS_MAX);
    assert_eq!(pairs.write_all(), [Opcode::AckList; 2]);
    let len = pairs.world.wires[0].iter().map(Vec::len).max();
    assert!(len.is_some_and(|len| len <= 14 + 256 + 80), "{len:?}");
    pairs.ends();
}

/// A packet that asks for none is answered by none.
#[test]
fn an_ack_that_left_in_a_list_is_owed_no_more() {
    let mut pairs = Pairs::new(3);
    assert_eq!(pairs.write_all(), [Opcode::AckList]);
    pairs.world.post(pairs.qps[0][0], 3, pairs.world.write(), 2 * 1024);
    pairs.world.transmit(0);
    let last = pairs.world.wires[1].pop_back().unwrap();
    pairs.world.deliver(1);
    assert!(!pairs.world.transmit(1), "{:?}", pairs.world.sent[1]);
    pairs.world.wires[1].push_back(last);
    pairs.world.run();
    assert_eq!(pairs.done().len(), 4);
}

/// Goal: a peer of several cores is told of queue pairs of one of them by each packet, as the first QPN says which gets it.
/// Method: clients of one and two core bits, whose QPNs are drawn at random. All bits of a QPN are the same core of one core.
#[test]
fn a_list_is_for_one_core() {
    for bits in [0, 1, 2] {
        let mut configs = [config(false, 0), config(false, 1)];
        configs[0].cm.core_bits = bits;
        let mut pairs = Pairs::of(configs, 16);
        let core = |qpn: Qpn| qpn.core(1 << bits);
        // As the WRITEs come, so are the answers: one for each row of queue pairs of a core.
        pairs.qps.sort_by_key(|[client, _]| core(*client));
        let mut cores: Vec<_> = pairs.qps.iter().map(|[client, _]| core(*client)).collect();
        cores.dedup();
        assert_eq!(cores.len() > 1, bits > 0, "seeds that draw several");
        let sent = pairs.write_all();
        assert_eq!(sent.len(), cores.len(), "{sent:?}");
        let mut listed = 0;
        for (frame, core_of_row) in pairs.world.wires[0].iter().zip(cores) {
            let list = Packet::parse(frame).unwrap();
            let others = Ack::parse(list.payload).map(|ack| ack.dest_qpn);
            for qpn in others.chain([list.bth.dest_qpn]) {
                assert_eq!(core(qpn), core_of_row);
                listed += 1;
            }
        }
        assert_eq!(listed, 16);
        pairs.ends();
    }
}

/// The headers of one that has sent before are known.
#[test]
fn a_list_is_for_a_queue_pair_that_knows_its_headers() {
    let mut pairs = Pairs::new(4);
    for [_, server] in &pairs.qps[..2] {
        let slot = pairs.world.devices[1].slot_index(*server);
        pairs.world.devices[1].qps[slot].as_deref_mut().unwrap().template = None;
    }
    assert_eq!(pairs.write_all(), [Opcode::AckList]);
    let list = Packet::parse(&pairs.world.wires[0][0]).unwrap();
    assert_eq!(list.bth.dest_qpn, pairs.qps[2][0]);
    pairs.ends();
}

/// A list has one destination.
#[test]
fn a_list_ends_where_another_peer_is_owed() {
    let mut pairs = Pairs::new(3);
    let slot = pairs.world.devices[1].slot_index(pairs.qps[2][1]);
    pairs.world.devices[1].qps[slot].as_deref_mut().unwrap().path = None;
    assert_eq!(pairs.write_all(), [Opcode::AckList]);
    let list = Packet::parse(&pairs.world.wires[0][0]).unwrap();
    assert_eq!(Ack::parse(list.payload).count(), 1, "beside the first");
}

#[test]
fn one_ack_is_no_list() {
    let mut pairs = Pairs::new(2);
    pairs.write(1);
    pairs.world.run();
    assert_eq!(pairs.world.sent[1], [(Opcode::Acknowledge, pairs.newest[1])]);
}

/// A device that does not show that it is one of ours knows no list.
#[test]
fn others_get_no_list() {
    for stranger in [0, 1] {
        let mut configs = [config(false, 0), config(false, 1)];
        configs[stranger].window.reorder_bytes = 0;
        let mut pairs = Pairs::of(configs, 3);
        assert_eq!(pairs.write_all(), [Opcode::Acknowledge; 3], "{stranger}");
        pairs.ends();
    }
}

/// An ACK and a READ response travel as ever, and each once.
#[test]
fn a_list_ends_where_something_else_is_owed() {
    let mut pairs = Pairs::new(4);
    let read = SendOp::Read { va: BASE, rkey: pairs.world.keys[1] };
    pairs.write(0);
    pairs.write(1);
    pairs.world.post(pairs.qps[2][0], 2, read, 64);
    pairs.write(3);
    pairs.world.transmit(0);
    pairs.world.deliver(1);
    pairs.world.transmit(1);
    let sent: Vec<_> = pairs.world.sent[1].iter().map(|(opcode, _)| *opcode).collect();
    assert_eq!(sent, [Opcode::AckList, Opcode::ReadResponseOnly, Opcode::Acknowledge]);
    pairs.ends();
}

#[test]
fn a_list_that_is_lost_costs_a_probe_of_each() {
    let mut pairs = Pairs::new(3);
    pairs.unacknowledged();
    assert_eq!(pairs.done(), []);
    pairs.world.run_for(Duration::from_millis(2));
    pairs.ends();
    let written = pairs.world.sent[0].len();
    assert_eq!(written, 2 * 3, "a WRITE and a probe of each");
}

/// A queue pair that waits for a READ, too, takes the ACK by the general way.
#[test]
fn an_ack_of_a_list_may_go_the_general_way() {
    let mut pairs = Pairs::new(3);
    let read = SendOp::Read { va: BASE, rkey: pairs.world.keys[1] };
    pairs.world.post(pairs.qps[1][0], 7, read, 64);
    pairs.world.transmit(0);
    pairs.world.wires[1].clear();
    pairs.write(0);
    pairs.world.deliver(1);
    pairs.world.transmit(1);
    pairs.world.wires[0].clear();
    let [first, other] = [pairs.ack(0), pairs.ack(1)];
    let before = pairs.world.devices[0].counters().get(Counter::RcvdPkts);
    pairs.told(None, other, &[first, first]);
    assert_eq!(pairs.done(), [0]);
    assert_eq!(pairs.world.devices[0].counters().get(Counter::RcvdPkts), before + 1);
    assert_eq!(pairs.world.drops(0), [], "an ACK that comes again is no packet");
    pairs.world.run_for(Duration::from_secs(1));
    assert_eq!(pairs.done(), [0, 7]);
}

/// Each ACK of a list is the first packet of its queue pair.
#[test]
fn an_ack_of_a_list_stands_for_a_lost_rtu() {
    let mut world = World::new(false);
    world.listen(false);
    let servers = [(); 2].map(|()| {
        let qps = [world.qp(0), world.qp(1)];
        world.join_without_rtu(qps);
        qps[1]
    });
    for server in servers {
        let op = SendOp::Write { va: BASE + 100_000, rkey: world.keys[0] };
        let sgl = world.sgl(1, 0, 64);
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
        world.devices[1].post_send(server, wr).unwrap();
    }
    world.sent = Default::default();
    world.run();
    assert!(matches!(world.sent[0][..], [(Opcode::AckList, _)]), "{:?}", world.sent[0]);
    let established = |event: &Event| matches!(event, Event::Cm(CmEvent::Established { .. }));
    assert_eq!(world.events[1].iter().filter(|event| established(event)).count(), 2);
}

/// An entry is believed as far as a packet of its own would be.
#[test]
fn a_list_acknowledges_nothing_that_its_sender_may_not() {
    let mut pairs = Pairs::new(3);
    pairs.unacknowledged();
    let [first, second, third] = [0, 1, 2].map(|pair| pairs.ack(pair));
    let stranger = Some(address(false, 6));
    pairs.told(stranger, first, &[second]);
    assert_eq!(pairs.world.drops(0), [(DropReason::AddressMismatch, 1)]);
    let ahead = Ack { psn: second.psn.add(1), ..second };
    let unknown = Ack { dest_qpn: Qpn::new(third.dest_qpn.get() ^ 0x80_0000), ..third };
    pairs.told(None, first, &[ahead, unknown]);
    assert_eq!(pairs.done(), [0]);
    pairs.told(None, first, &[second]);
    assert_eq!(pairs.done(), [0, 1], "the first says nothing new");
    pairs.told(None, unknown, &[third]);
    assert_eq!(pairs.done(), [0, 1], "it is for nobody");
    // A queue pair of another peer.
    let slot = pairs.world.devices[0].slot_index(third.dest_qpn);
    let entry = pairs.world.devices[0].qps[slot].as_deref_mut().unwrap();
    let path = entry.path.take();
    pairs.told(None, second, &[third]);
    assert_eq!(pairs.done(), [0, 1]);
    pairs.world.devices[0].qps[slot].as_deref_mut().unwrap().path = path;
    pairs.told(None, second, &[third]);
    assert_eq!(pairs.done(), [0, 1, 2]);
}

/// A list makes dozens of guesses, for one queue pair or for many: none counts that does not come as the packets of the
/// first one's peer do, and of the first no more than if it came alone.
#[test]
fn a_list_of_a_stranger_acknowledges_nothing() {
    let mut pairs = Pairs::new(3);
    let world = &mut pairs.world;
    (0..8).for_each(|id| world.post(pairs.qps[0][0], id, world.write(), 64));
    world.transmit(0);
    world.wires[1].clear();
    let newest = world.sent[0].last().unwrap().1;
    pairs.unacknowledged();
    let first = Ack { psn: newest.back(100), ..pairs.ack(0) };
    let sweep: Vec<_> = (0..64).map(|n| Ack { psn: newest.back(50).add(n), ..first }).collect();
    let others = [pairs.ack(1), pairs.ack(2)];
    let encap = pairs.headers(first);
    let strangers = [
        crate::wire::Encap { src_mac: Mac([2, 0x99, 0, 0, 0, 9]), ..encap },
        crate::wire::Encap { vlan: Some(666), ..encap },
        crate::wire::Encap { hop_limit: 1, ..encap },
        crate::wire::Encap { src_port: encap.src_port ^ 1, ..encap },
    ];
    for (n, stranger) in (1..).zip(strangers) {
        sweep.chunks(32).for_each(|guesses| pairs.told_by(stranger, first, guesses));
        pairs.told_by(stranger, first, &others);
        assert_eq!(pairs.done(), []);
        assert_eq!(pairs.world.drops(0), [(DropReason::FlowMismatch, 3 * n)]);
    }
    pairs.told(None, pairs.ack(1), &[pairs.ack(2)]);
    let mut done = pairs.done();
    done.sort_unstable();
    assert_eq!(done, [1, 2]);
}

#[test]
fn a_list_from_others_means_nothing() {
    let mut configs = [config(false, 0), config(false, 1)];
    configs[1].window.reorder_bytes = 0;
    let mut pairs = Pairs::of(configs, 2);
    pairs.unacknowledged();
    let [first, second] = [0, 1].map(|pair| pairs.ack(pair));
    pairs.told(None, first, &[second]);
    assert_eq!(pairs.world.drops(0), [(DropReason::UnknownOpcode, 1)]);
    assert_eq!(pairs.done(), []);
}

/// A NAK travels alone.
#[test]
fn a_nak_in_a_list_is_ignored() {
    let nak = Aeth { syndrome: Syndrome::from_byte(0x60), msn: Msn::new(1) }.emit();
    let mut bytes = Ack { dest_qpn: Qpn::new(7), psn: Psn::new(1), msn: Msn::new(1) }.emit();
    bytes[8..].copy_from_slice(&nak);
    assert_eq!(Ack::parse(&bytes).count(), 0);
}
