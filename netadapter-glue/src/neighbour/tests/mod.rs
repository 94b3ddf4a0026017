//! Two hosts on a link, and what they learn of each other.

mod answers;
mod flood;
mod forged;

use super::known::LIFETIME_NS;
use super::*;
use crate::memory::{MemoryEdge, pair};
use crate::{Edge, Transmit};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn at(host: usize) -> Link {
    Link { mac: MACS[host], vlan: None }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host(index: usize) -> Neighbours {
    let v4 = IpAddr::from([10, 0, 0, 1 + index as u8]);
    let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1 + index as u16]);
    Neighbours::new(MACS[index], &[v4, v6])
}

fn frames(host: &mut Neighbours) -> Vec<Vec<u8>> {
    let mut buffer = [0; FRAME_MAX_LEN];
    core::iter::from_fn(|| host.poll_transmit(&mut buffer).map(|len| buffer[..len].to_vec()))
        .collect()
}

/// Moves frames between two hosts until both are quiet.
fn settle(now_ns: u64, hosts: &mut [Neighbours; 2], edges: &mut [MemoryEdge; 2]) {
    let mut moved = 1;
    while moved > 0 {
        moved = 0;
        for (host, edge) in hosts.iter_mut().zip(&mut *edges) {
            edge.transmit_each(64, |buffer| {
                let len = host.poll_transmit(buffer)?;
                Some(Transmit { len, segments: None })
            })
            .unwrap();
        }
        for (host, edge) in hosts.iter_mut().zip(&mut *edges) {
            moved += edge
                .receive_each(64, |received| {
                    let packet = SlicedPacket::from_ethernet(received.frame).unwrap();
                    if let Some(TransportSlice::Icmpv6(icmp)) = &packet.transport {
                        let Some(NetSlice::Ipv6(ip)) = &packet.net else { panic!() };
                        let (from, to) = (ip.header().source(), ip.header().destination());
                        assert!(icmp.is_checksum_valid(from, to));
                        assert_eq!(ip.header().hop_limit(), 255);
                    }
                    assert!(host.handle_frame(now_ns, received.frame));
                })
                .unwrap();
        }
    }
}

#[test]
fn two_hosts_find_each_other() {
    let (a, b) = pair(crate::memory::MemoryConfig::default());
    let (mut hosts, mut edges) = ([host(0), host(1)], [a, b]);
    let link_local = [0, 1].map(|i| IpAddr::V6(link_local(MACS[i])));
    assert_eq!(link_local[1], ip("fe80::ff:fe00:2"));
    for (local, remote) in [
        (ip("10.0.0.1"), ip("10.0.0.2")),
        (ip("fd00::1"), ip("fd00::2")),
        (link_local[0], link_local[1]),
    ] {
        assert_eq!(hosts[0].lookup(0, remote), None);
        hosts[0].resolve(0, local, remote);
        assert_eq!(hosts[0].poll_event(), None);
        settle(0, &mut hosts, &mut edges);
        let resolution = Resolution { ip: remote, result: Ok(at(1)) };
        assert_eq!(hosts[0].poll_event(), Some(resolution));
        assert_eq!(hosts[0].lookup(0, remote), Some(at(1)));
        assert_eq!(hosts[1].lookup(0, local), None, "a query teaches nothing");
        assert_eq!(hosts[0].lookup(LIFETIME_NS, remote), None, "it grows old");
        hosts[0].resolve(1, local, remote);
        assert_eq!(hosts[0].poll_event(), Some(resolution), "known");
        assert_eq!(hosts[0].poll_timeout(), None);
    }
}

#[test]
fn nobody_answers() {
    let mut host = host(0);
    host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"));
    host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"));
    let mut sent = frames(&mut host).len();
    while let Some(now_ns) = host.poll_timeout() {
        assert_eq!(host.poll_event(), None);
        host.handle_timeout(now_ns);
        sent += frames(&mut host).len();
        assert!(now_ns <= 2_000_000_000);
    }
    assert_eq!(sent, 8);
    let unreachable = Resolution { ip: ip("10.0.0.9"), result: Err(Unreachable) };
    assert_eq!(host.poll_event(), Some(unreachable));
    assert_eq!(host.poll_event(), None);
}

/// A host that lives only since the last frame of an older connect's query is found by a later connect.
#[test]
fn each_connect_asks() {
    let mut hosts = [host(0), host(1)];
    let ips = [ip("10.0.0.1"), ip("10.0.0.2")];
    hosts[0].resolve(0, ips[0], ips[1]);
    for quarter in 0..8 {
        hosts[0].handle_timeout(quarter * 250_000_000);
        assert_eq!(frames(&mut hosts[0]).len(), 1, "nobody answers yet");
    }
    hosts[0].resolve(1_900_000_000, ips[0], ips[1]);
    hosts[0].resolve(1_900_000_000, ips[0], ips[1]);
    let asked = frames(&mut hosts[0]);
    assert_eq!(asked.len(), 1, "one frame for all that came at once");
    assert!(hosts[1].handle_frame(1_900_000_000, &asked[0]));
    let answers = frames(&mut hosts[1]);
    assert!(hosts[0].handle_frame(1_900_000_000, &answers[0]));
    assert_eq!(hosts[0].poll_event(), Some(Resolution { ip: ips[1], result: Ok(at(1)) }));
}

/// A removed address is no longer answered for, nor queried from; a new one is. A query from the old
/// one may go on from another, too.
#[test]
fn addresses_come_and_go() {
    let mut host = host(0);
    host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"));
    host.resolve(0, ip("fd00::1"), ip("fd00::9"));
    assert_eq!(frames(&mut host).len(), 2);
    host.set_addresses(&[ip("10.0.0.7"), ip("fd00::1")]);
    assert_eq!(host.poll_event(), None);
    let due = host.poll_timeout().unwrap();
    host.handle_timeout(due);
    let from = |frame: Vec<u8>| match message::parse(&frame) {
        Some(Message::Query { from, .. }) => from.unwrap(),
        other => panic!("{other:?}"),
    };
    let asked: Vec<_> = frames(&mut host).into_iter().map(from).collect();
    assert_eq!(asked, [ip("10.0.0.7"), ip("fd00::1")]);
    let mut query = [0; FRAME_MAX_LEN];
    for (target, answered) in [("10.0.0.1", false), ("10.0.0.7", true)] {
        let len = message::query(&mut query, MACS[1], ip("10.0.0.2"), ip(target), None);
        assert_eq!(host.handle_frame(1, &query[..len]), answered, "{target}");
        assert_eq!(frames(&mut host).len(), usize::from(answered), "{target}");
    }
    assert!(host.addresses.contains(&IpAddr::V6(link_local(MACS[0]))));
    host.set_addresses(&[ip("fd00::1")]);
    let given_up = Resolution { ip: ip("10.0.0.9"), result: Err(Unreachable) };
    assert_eq!((host.poll_event(), host.poll_event()), (Some(given_up), None));
}

const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const SECOND: u64 = 1_000_000_000;

/// Host 0 with host 1 found, in both families.
fn acquainted() -> Neighbours {
    let mut host = host(0);
    for (own, other) in PAIRS {
        host.resolve(0, ip(own), ip(other));
        assert_eq!(frames(&mut host).len(), 1);
        assert!(host.handle_frame(0, &answered(other, own, MACS[1], None)));
        let found = Resolution { ip: ip(other), result: Ok(at(1)) };
        assert_eq!(host.poll_event(), Some(found));
    }
    host
}

fn is_question(frame: &[u8]) -> bool {
    matches!(message::parse(frame), Some(Message::Query { .. }))
}

const PAIRS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];

/// The answer for `other` that says `mac`.
fn answered(other: &str, own: &str, mac: [u8; 6], vlan: Option<u16>) -> Vec<u8> {
    let mut frame = [0; FRAME_MAX_LEN];
    let len = message::answer(&mut frame, mac, ip(other), Some(ip(own)), MACS[0]);
    let len = message::tag(&mut frame, len, vlan);
    frame[..len].to_vec()
}

/// The frames of an attacker that claims the address of a neighbour.
fn forgeries(own: &str, other: &str) -> Vec<Vec<u8>> {
    let mut frame = [0; FRAME_MAX_LEN];
    let asked = message::query(&mut frame, STRANGER, ip(other), ip(own), None);
    let asked = frame[..asked].to_vec();
    let gratuitous = match ip(other) {
        // RFC 5227, 3: to all, its sender and target the same.
        IpAddr::V4(_) => message::query(&mut frame, STRANGER, ip(other), ip(other), None),
        // RFC 4861, 7.2.6: to all nodes.
        IpAddr::V6(_) => message::answer(&mut frame, STRANGER, ip(other), None, MACS[0]),
    };
    let gratuitous = frame[..gratuitous].to_vec();
    alloc::vec![answered(other, own, STRANGER, None), asked, gratuitous]
}

/// Questions leave in the VLAN of the host; who asks with a tag is answered with it.
#[test]
fn tags_are_sent_and_returned() {
    for (own, other) in PAIRS {
        let mut host = host(0).in_vlan(Some(5));
        host.resolve(0, ip(own), ip(other));
        let asked = frames(&mut host);
        assert_eq!((asked.len(), message::vlan(&asked[0])), (1, Some(5)));
        assert!(host.handle_frame(0, &answered(other, own, MACS[1], Some(5))));
        let found = Link { mac: MACS[1], vlan: Some(5) };
        assert_eq!(host.poll_event().unwrap().result, Ok(found));
        for vlan in [None, Some(9)] {
            let mut frame = [0; FRAME_MAX_LEN];
            let len = message::query(&mut frame, STRANGER, ip(other), ip(own), None);
            let len = message::tag(&mut frame, len, vlan);
            let mut host = self::host(0);
            assert!(host.handle_frame(0, &frame[..len]));
            let answers = frames(&mut host);
            assert_eq!((answers.len(), message::vlan(&answers[0])), (1, vlan));
        }
    }
}

#[test]
fn what_cannot_be_asked_for_is_unreachable() {
    let mut host = host(0);
    for text in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "fd00::9", "ff02::1"] {
        host.resolve(0, ip("10.0.0.1"), ip(text));
        assert_eq!(host.poll_event().unwrap().result, Err(Unreachable), "{text}");
    }
    host.resolve(0, ip("10.0.0.1"), ip("10.0.0.1"));
    assert_eq!(host.poll_event().unwrap().result, Ok(at(0)));
}

#[test]
fn an_answer_that_nobody_asked_for_teaches_nothing() {
    let mut host = host(0);
    let mut frame = [0; FRAME_MAX_LEN];
    for (own, other) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let len = message::answer(&mut frame, MACS[1], ip(other), Some(ip(own)), MACS[0]);
        assert!(host.handle_frame(0, &frame[..len]));
        assert_eq!(host.lookup(0, ip(other)), None);
    }
}

#[test]
fn questions_for_others_are_not_ours() {
    let mut host = host(0);
    let mut frame = [0; FRAME_MAX_LEN];
    for (from, target) in [("10.0.0.2", "10.0.0.3"), ("fd00::2", "fd00::3")] {
        let len = message::query(&mut frame, MACS[1], ip(from), ip(target), None);
        assert!(!host.handle_frame(0, &frame[..len]));
        assert_eq!(host.lookup(0, ip(from)), None);
    }
    assert!(frames(&mut host).is_empty());
}
