//! Goal: each staged fault is named, alone, and a healthy path gets no finding.
//! Method: the doctor and its peer in one process, joined in memory; between them a wire with one fault.

mod nothing_passes;
mod peers;
mod wire;

use std::net::IpAddr;

use clap::Parser;
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::host::BoxEdge;
use netadapter_glue::memory::{self, MemoryConfig, MemoryEdge};

use super::tap::{checksum, ip_header};
use super::{Path, Peer, Report, examine};
use crate::cli::{Cli, Command};
use peers::{Running, hesitating, kernel, nagging, rejecting, rping, serving, twins};
use wire::{Wire, is_data, is_roce, is_tagged};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn path() -> Path {
    let Command::Loopback(args) = Cli::try_parse_from(["ndkperf"]).unwrap().into_command() else {
        panic!()
    };
    Path {
        own_ip: ip("10.0.0.1"),
        peer: ip("10.0.0.2"),
        port: 18515,
        program: Peer::Ndkperf,
        vlan: None,
        sees_tags: true,
        probe_off: false,
        transport: args.transport,
    }
}

fn link(mtu: usize) -> (MemoryEdge, MemoryEdge) {
    memory::pair(MemoryConfig { mtu, max_segments: 1, ..MemoryConfig::default() })
}

/// Examines a path whose peer serves, and whose wire is made of our edge.
fn through(path: &Path, wire: impl FnOnce(MemoryEdge) -> BoxEdge) -> Report {
    let (ours, theirs) = link(4200);
    let _peer = serving(theirs, &[path.peer], path.port);
    examine(wire(ours), path).unwrap()
}

/// The same of a peer of any kind.
fn with(path: &Path, peer: impl FnOnce(MemoryEdge) -> Running) -> Report {
    let (ours, theirs) = link(4200);
    let _peer = peer(theirs);
    examine(Box::new(ours), path).unwrap()
}

fn assert_found(report: &Report, code: &str) {
    assert_eq!(report.codes(), [code], "{report:#?}");
}

fn told(report: &Report) -> String {
    let mut text = Vec::new();
    report.write(&mut text, "").unwrap();
    String::from_utf8(text).unwrap()
}

// ---- healthy paths -----------------------------------------------------------------------------

#[test]
fn a_healthy_path_has_no_finding() {
    let report = through(&path(), |edge| Box::new(edge));
    assert_eq!(report.codes(), [""; 0], "{report:#?}");
    let text = told(&report);
    for words in
        ["256 of 256 came back", "256 to 4096 bytes pass to", "bytes pass from", "CNPs from"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.ends_with("no fault was found\n"), "{text}");
}

#[test]
fn a_healthy_path_of_ip6_in_a_vlan_has_no_finding() {
    let path = Path { own_ip: ip("fd00::1"), peer: ip("fd00::2"), vlan: Some(7), ..path() };
    let report = through(&path, |edge| Box::new(Wire::new(edge).out(|frame| is_tagged(frame, 7))));
    assert_eq!(report.codes(), [""; 0], "{report:#?}");
}

#[test]
fn a_healthy_path_to_rping_has_no_finding() {
    let path = Path { program: Peer::Rping, ..path() };
    let report = with(&path, |edge| rping(edge, path.peer, path.port));
    assert_eq!(report.codes(), [""; 0], "{report:#?}");
    assert!(told(&report).contains("ping: 1 B, 1024 B, 65535 B"), "{report:#?}");
}

// ---- staged faults -----------------------------------------------------------------------------

#[test]
fn an_address_that_is_taken_is_named() {
    let path = path();
    let report = with(&path, |edge| serving(edge, &[path.peer, path.own_ip], path.port));
    assert_found(&report, "address-taken");
}

#[test]
fn an_address_that_nobody_shall_ask_for_is_not_examined() {
    let path = Path { probe_off: true, ..path() };
    let report = through(&path, |edge| Box::new(edge));
    assert_eq!(report.codes(), [""; 0], "{report:#?}");
    assert!(told(&report).contains("skipped address"), "{report:#?}");
}

#[test]
fn an_address_without_a_host_is_named() {
    let path = path();
    let report = with(&path, |edge| serving(edge, &[ip("10.0.0.9")], path.port));
    assert_found(&report, "no-neighbour");
}

#[test]
fn a_peer_in_another_vlan_is_named() {
    let report =
        through(&path(), |edge| Box::new(Wire::new(edge).out(|frame| is_tagged(frame, 1234))));
    assert_found(&report, "wrong-vlan");
    assert!(told(&report).contains("answers in VLAN 1234"), "{report:#?}");
}

#[test]
fn a_path_that_carries_no_unicast_to_the_peer_is_named() {
    let report = through(&path(), |edge| Box::new(Wire::new(edge).out(|frame| frame[0] & 1 == 1)));
    assert_found(&report, "one-way-path");
}

#[test]
fn a_path_that_carries_frames_from_the_peer_alone_is_named() {
    let (ours, theirs) = link(4200);
    let path = path();
    let _peer = nagging(theirs, path.peer, path.own_ip);
    let report = examine(Box::new(Wire::new(ours).out(|_| false)), &path).unwrap();
    assert_found(&report, "one-way-path");
}

#[test]
fn a_peer_that_sleeps_is_named() {
    let is_arp = |frame: &mut Vec<u8>| ip_header(frame).is_none();
    let report = through(&path(), |edge| Box::new(Wire::new(edge).out(is_arp)));
    assert_found(&report, "peer-down");
}

#[test]
fn a_peer_that_goes_down_in_the_middle_is_named() {
    let mut left = 60;
    let dies = move |frame: &mut Vec<u8>| {
        left -= u32::from(is_roce(frame) && left > 0);
        left > 0
    };
    let report = through(&path(), |edge| Box::new(Wire::new(edge).out(dies)));
    assert_found(&report, "peer-down");
}

#[test]
fn a_filtered_port_is_named() {
    let report = through(&path(), |edge| Box::new(Wire::new(edge).out(|frame| !is_roce(frame))));
    assert_found(&report, "filtered-port");
}

/// Connection management passes, and the server, whose side gives up first, disconnects.
#[test]
fn a_path_that_carries_no_data_is_named() {
    type Lose = fn(Wire<MemoryEdge>) -> Wire<MemoryEdge>;
    let both: Lose = |wire| wire.out(|frame| !is_data(frame)).back(|frame| !is_data(frame));
    let out: Lose = |wire| wire.out(|frame| !is_data(frame));
    let back: Lose = |wire| wire.back(|frame| !is_data(frame));
    for lose in [both, out, back] {
        let report = through(&path(), |edge| Box::new(lose(Wire::new(edge))));
        assert_found(&report, "operation-failed");
    }
}

#[test]
fn a_peer_without_roce_is_named() {
    let path = path();
    let report = with(&path, |edge| kernel(edge, path.peer, UNREACHABLE_PORT));
    assert_found(&report, "no-roce");
}

#[test]
fn a_filter_that_says_so_is_named() {
    let path = path();
    let report = with(&path, |edge| kernel(edge, path.peer, ADMINISTRATIVELY_PROHIBITED));
    assert_found(&report, "filtered-port");
}

#[test]
fn a_port_without_listener_is_named() {
    let path = path();
    let report = with(&path, |edge| serving(edge, &[path.peer], path.port + 1));
    assert_found(&report, "no-listener");
    assert!(told(&report).contains("reason 8, invalid service ID"), "{report:#?}");
}

#[test]
fn a_listener_that_rejects_is_named() {
    let path = path();
    let report = with(&path, |edge| rejecting(edge, path.peer, path.port));
    assert_found(&report, "rejected");
}

#[test]
fn a_listener_that_does_not_accept_is_named() {
    let path = path();
    let report = with(&path, |edge| hesitating(edge, path.peer, path.port));
    assert_found(&report, "not-accepted");
}

#[test]
fn two_hosts_with_the_address_of_the_peer_are_named() {
    let path = path();
    let report = with(&path, |edge| twins(edge, path.peer));
    assert_eq!(report.codes()[..1], ["several-neighbours"], "{report:#?}");
}

#[test]
fn a_hole_on_the_way_to_the_peer_is_named_with_its_size() {
    let report =
        through(&path(), |edge| Box::new(Wire::new(edge).out(|frame| frame.len() <= 1514)));
    assert_found(&report, "mtu-hole");
    let text = told(&report);
    let words =
        "by their size: to 10.0.0.2, IP packets of 1500 bytes pass and those of 2092 do not";
    assert!(text.contains(words), "{text}");
}

#[test]
fn a_hole_on_the_way_back_is_named_with_its_size() {
    let report =
        through(&path(), |edge| Box::new(Wire::new(edge).back(|frame| frame.len() <= 1514)));
    assert_found(&report, "mtu-hole");
    let text = told(&report);
    // The headers of a READ response are four bytes longer.
    let words =
        "by their size: from 10.0.0.2, IP packets of 1500 bytes pass and those of 2096 do not";
    assert!(text.contains(words), "{text}");
}

/// The server READs and WRITEs the same data: its words in between tell which of them vanished.
#[test]
fn a_hole_on_either_way_of_rping_is_named() {
    let path = Path { program: Peer::Rping, ..path() };
    for (is_out, words) in [(true, "size: to 10.0.0.2,"), (false, "size: from 10.0.0.2,")] {
        let (ours, theirs) = link(4200);
        let _peer = rping(theirs, path.peer, path.port);
        let narrow = |frame: &mut Vec<u8>| frame.len() <= 1514;
        let wire = Wire::new(ours);
        let wire = if is_out { wire.out(narrow) } else { wire.back(narrow) };
        let report = examine(Box::new(wire), &path).unwrap();
        assert_found(&report, "mtu-hole");
        assert!(told(&report).contains(words), "{report:#?}");
    }
}

#[test]
fn loss_is_named() {
    let faults = Faults { seed: 1, loss: 0.04, ..Faults::default() };
    let report = through(&path(), |edge| Box::new(FaultInjector::new(edge, faults)));
    assert_found(&report, "loss");
}

#[test]
fn reordering_is_named() {
    let faults = Faults { seed: 1, reorder: 0.05, ..Faults::default() };
    let report = through(&path(), |edge| Box::new(FaultInjector::new(edge, faults)));
    assert_found(&report, "reordering");
}

/// As a virtual NIC does that takes segmentation and drops what it should segment. Packets are lost, and neither queue nor
/// cable is the reason.
#[test]
fn a_device_that_loses_units_is_named() {
    let path = path();
    let (ours, theirs) = memory::pair(MemoryConfig { max_segments: 16, ..MemoryConfig::default() });
    let _peer = serving(theirs, &[path.peer], path.port);
    let report = examine(Box::new(Wire::new(ours).losing_units()), &path).unwrap();
    assert_found(&report, "units-lost");
    let text = told(&report);
    for words in ["to mend it: leave units off: no --offload", "`RoCESegmentation` 0", "ethtool -K"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Units that pass are no fault, whatever else is lost.
#[test]
fn loss_of_packets_is_no_loss_of_units() {
    let path = path();
    let (ours, theirs) = memory::pair(MemoryConfig { max_segments: 16, ..MemoryConfig::default() });
    let _peer = serving(theirs, &[path.peer], path.port);
    let faults = Faults { loss: 0.02, ..Faults::default() };
    let report = examine(Box::new(FaultInjector::new(ours, faults)), &path).unwrap();
    assert_found(&report, "loss");
}

/// A tunnel that writes a traffic class of its own.
#[test]
fn erased_marks_are_named() {
    let erase = |frame: &mut Vec<u8>| {
        if let Some((at, true)) = ip_header(frame) {
            frame[at + 1] &= !0b11;
            checksum(&mut frame[at..at + 20]);
        }
        true
    };
    let report = through(&path(), |edge| Box::new(Wire::new(edge).out(erase)));
    assert_found(&report, "marks-erased");
}

const UNREACHABLE_PORT: u8 = 3;
const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
