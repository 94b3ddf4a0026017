use super::*;
use crate::Edge as _;
use crate::af_packet::tests::{receive_frames, run, send_unit, veth};
use crate::segment::tests::unit;
use core::sync::atomic::{AtomicBool, Ordering};
use etherparse::PacketBuilder;
use std::{println, thread};

const PORT: u16 = 4791;
/// The destination QPN of a RoCEv2 packet, which stands at byte 5.
const FIELD: CoreField = CoreField { udp_port: PORT, byte: 5 };

/// A datagram whose byte 5 is `byte`, with the number `n` at the end.
fn datagram(v6: bool, port: u16, byte: u8, n: u8) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]);
    let ip = if v6 {
        ethernet.ipv6([7; 16], [8; 16], 64)
    } else {
        ethernet.ipv4([198, 51, 100, 1], [198, 51, 100, 2], 64)
    };
    let mut frame = Vec::new();
    let mut payload = [0xa5; 24];
    (payload[FIELD.byte], payload[23]) = (byte, n);
    ip.udp(50_000, port).write(&mut frame, &payload).unwrap();
    frame
}

fn changed(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[at] = value;
    frame
}

/// Frames and the cores that they are for, of two, of three and of five. The last byte numbers them.
fn cases() -> Vec<(Vec<u8>, [u8; 3])> {
    let named = [
        (0x00, [0, 0, 0]),
        (0x1f, [0, 0, 0]),
        (0x20, [0, 0, 1]),
        (0x7f, [0, 1, 3]),
        (0x80, [1, 2, 4]),
        (0xbf, [1, 2, 0]),
        (0xc0, [1, 0, 0]),
        (0xff, [1, 0, 0]),
    ];
    let named = named
        .into_iter()
        .flat_map(|(byte, cores)| [false, true].map(|v6| (datagram(v6, PORT, byte, 0), cores)));
    let [v4, v6] = [false, true].map(|v6| datagram(v6, PORT, 0x80, 0));
    let tagged = [&v4[..12], &[0x81, 0, 0, 5], &v4[12..]].concat();
    let mut arp = v4.clone();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let others = [
        arp,
        datagram(false, PORT + 1, 0x80, 0),
        datagram(true, PORT + 1, 0x80, 0),
        changed(v4.clone(), 14, 0x46),
        changed(v4.clone(), 20, 0x20),
        changed(v4.clone(), 21, 1),
        changed(v4.clone(), 23, 6),
        changed(v6.clone(), 20, 44),
        // Without the byte.
        v4[..47].to_vec(),
    ];
    let others = others.into_iter().map(|frame| (frame, [0, 0, 0]));
    let may_be_in_pieces = changed(v4, 20, 0x40);
    let mut cases: Vec<_> =
        named.chain(others).chain([(tagged, [1, 2, 4]), (may_be_in_pieces, [1, 2, 4])]).collect();
    for (number, (frame, _)) in cases.iter_mut().enumerate() {
        *frame.last_mut().unwrap() = number as u8;
    }
    cases
}

/// Sends all cases from the other end of a veth pair; each comes to the edge of its core, in order, and to no other.
fn each_comes_to_its_core(from: &mut AfPacket, edges: &mut [AfPacket], column: usize) {
    let cases = cases();
    cases.iter().for_each(|(frame, _)| send_unit(from, frame, None));
    for (core, edge) in edges.iter_mut().enumerate() {
        let of_core = cases.iter().filter(|(_, cores)| usize::from(cores[column]) == core);
        let expected: Vec<u8> = of_core.map(|(frame, _)| *frame.last().unwrap()).collect();
        let is_ours = |frame: &[u8]| frame[..12] == cases[0].0[..12];
        let frames = receive_frames(edge, expected.len(), is_ours);
        let numbers: Vec<u8> = frames.iter().map(|(frame, _)| *frame.last().unwrap()).collect();
        assert_eq!(numbers, expected, "core {core} of {}", column + 2);
        edge.receive_each(64, |unit| assert!(!is_ours(unit.frame), "core {core}: one too many"))
            .unwrap();
    }
}

/// Goal: the kernel gives each frame to its core, however many there are. Method: every kind of frame over a veth pair, with and
/// without offload, and once more after the link was down, when the sockets have left the group and joined it again.
#[test]
fn each_frame_comes_to_its_core() {
    for (column, cores) in [2, 3, 5].into_iter().enumerate() {
        for offload in [false, true] {
            let Some(veth) = veth(&std::format!("g{cores}{}", u8::from(offload))) else { return };
            let [a, b] = &veth.0;
            let mut from = AfPacket::open(a).unwrap();
            let mut edges = AfPacket::open_group(b, offload, cores, FIELD).unwrap();
            assert_eq!(edges.len(), cores);
            assert!(edges.iter().all(|edge| edge.link() == edges[0].link()));
            each_comes_to_its_core(&mut from, &mut edges, column);
            run("ip", &std::format!("link set {b} down")).unwrap();
            edges.iter_mut().for_each(AfPacket::take_error);
            veth.up().unwrap();
            from.take_error();
            each_comes_to_its_core(&mut from, &mut edges, column);
        }
    }
}

/// Method: frames of the first core come all the time while the group is opened.
#[test]
fn no_edge_gets_frames_of_before_it_joined() {
    let Some(veth) = veth("gj") else { return };
    let mut from = AfPacket::open(&veth.0[0]).unwrap();
    let frame = datagram(false, PORT, 0, 0);
    let (begun, done) = (AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        let (frame, begun) = (&frame, &begun);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                send_unit(&mut from, frame, None);
                begun.store(true, Ordering::Relaxed);
            }
        });
        while !begun.load(Ordering::Relaxed) {}
        let edges = AfPacket::open_group(&veth.0[1], false, 5, FIELD);
        let first = edges.map(|mut edges| {
            let counts = edges.iter_mut().map(|edge| {
                let mut count = 0;
                edge.receive_each(64, |seen| count += usize::from(seen.frame == frame)).unwrap();
                count
            });
            counts.collect::<Vec<_>>()
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(first.unwrap()[1..], [0; 4]);
    });
}

/// A unit passes undivided, and goes where its first packet does.
#[test]
fn a_unit_comes_to_the_core_of_its_first_packet() {
    let Some(veth) = veth("gu") else { return };
    let mut from = AfPacket::open_with_offload(&veth.0[0]).unwrap();
    let mut edges = AfPacket::open_group(&veth.0[1], true, 3, FIELD).unwrap();
    let (mut bytes, segments) = unit(false, 20_500, 1000);
    for (byte, core) in [(0x80, 2), (0x40, 1), (0, 0)] {
        bytes[segments.header_len + FIELD.byte] = byte;
        send_unit(&mut from, &bytes, Some(segments));
        let received = receive_frames(&mut edges[core], 1, |seen| seen[..12] == bytes[..12]);
        assert_eq!(received, [(bytes.clone(), Some(segments))], "core {core}");
    }
}

/// Frames that an edge of a group, or somebody else, sends over its interface come to none of them.
#[test]
fn a_group_does_not_hear_what_leaves() {
    let Some(veth) = veth("gs") else { return };
    let mut edges = AfPacket::open_group(&veth.0[0], false, 2, FIELD).unwrap();
    let mut to = AfPacket::open(&veth.0[1]).unwrap();
    let frame = datagram(false, PORT, 0x80, 0);
    let mut other = AfPacket::open(&veth.0[0]).unwrap();
    for edge in edges.iter_mut().chain([&mut other]) {
        send_unit(edge, &frame, None);
    }
    assert_eq!(receive_frames(&mut to, 3, |seen| *seen == frame).len(), 3);
    for edge in &mut edges {
        edge.receive_each(64, |unit| assert_ne!(unit.frame, frame)).unwrap();
    }
}

/// Two groups on one interface are two providers: each gets all.
#[test]
fn groups_are_apart() {
    let Some(veth) = veth("ga") else { return };
    let mut from = AfPacket::open(&veth.0[0]).unwrap();
    let mut groups =
        [2, 3, 1].map(|cores| AfPacket::open_group(&veth.0[1], false, cores, FIELD).unwrap());
    let frame = datagram(true, PORT, 0x7f, 0);
    send_unit(&mut from, &frame, None);
    for (group, core) in groups.iter_mut().zip([0, 1, 0]) {
        assert_eq!(receive_frames(&mut group[core], 1, |seen| *seen == frame).len(), 1);
    }
}

#[test]
fn a_group_has_a_core_and_a_bound() {
    for cores in [0, CORES_MAX + 1] {
        let error = AfPacket::open_group("lo", false, cores, FIELD).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    match AfPacket::open_group("nosuchinterface", false, 2, FIELD) {
        Err(error) => println!("{error}"),
        Ok(edges) => panic!("{edges:?}"),
    }
}
