//! How many packets a forger needs who sees none of the connection's: computed from the code, and told in SECURITY.md.

use rocev2::ids::Qpn;
use rocev2::psn::Psn;
use rocev2::qp::Window;
use rocev2::wire::ack_list::ACKS_MAX;
use rocev2::wire::{Pmtu, source_port};
use std::collections::BTreeSet;
use std::path::Path;

/// The smallest frames in a second of a link of 10 Gb/s.
const FRAMES_PER_SECOND: u64 = 14_880_952;
/// Connections between two hosts, of which any will do.
const CONNECTIONS: u64 = 64;
const PMTUS: [Pmtu; 3] = [Pmtu::B256, Pmtu::B1024, Pmtu::B4096];

/// What a forger who knows the QPN guesses at.
struct Deed {
    what: String,
    /// PSNs that do.
    psns: u64,
    /// Guesses in a packet.
    guesses: u64,
    /// It has to come as the peer's packets do.
    origin: bool,
}

fn deeds() -> Vec<Deed> {
    let all = u64::from(Psn::new(u32::MAX).get()) + 1;
    let deed = |what: &str, psns| Deed { what: what.into(), psns, guesses: 1, origin: true };
    let mut deeds = vec![
        Deed { origin: false, ..deed("the expected request, executed", 1) },
        Deed {
            origin: false,
            ..deed("an ACK of the oldest packet in flight, or the READ data that come next", 1)
        },
        deed("the expected request, where it ends the connection", 1),
    ];
    let Window { bytes, reorder_bytes, .. } = Window::default();
    for pmtu in PMTUS {
        let packets = reorder_bytes as usize / pmtu.bytes() - 1;
        let what = format!("an early request, path MTU {}", pmtu.bytes());
        deeds.push(deed(&what, packets as u64));
    }
    for pmtu in PMTUS {
        let packets = bytes as usize / pmtu.bytes();
        let what = format!("an ACK or NAK of any packet in flight, path MTU {}", pmtu.bytes());
        deeds.push(deed(&what, packets as u64));
        let what = format!("the same in lists of ACKs, path MTU {}", pmtu.bytes());
        let guesses = ACKS_MAX.min(pmtu.bytes() / 12) as u64 + 1;
        deeds.push(Deed { guesses, ..deed(&what, packets as u64) });
    }
    deeds.push(deed("a congestion notification", all));
    deeds
}

/// Values of what a forger on the link does not know of the peer's headers: the UDP ports that our peers draw from. The
/// Ethernet addresses, VLAN and hop limit count as known.
fn origins() -> u64 {
    let ports: BTreeSet<_> =
        (0..1 << 20).map(|label| source_port(label, Qpn::new(2), Qpn::new(3))).collect();
    ports.len() as u64
}

/// A number as the table has it.
fn grouped(number: impl ToString) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    groups.join(&b","[..]).into_iter().map(char::from).collect()
}

fn time(packets: u64) -> String {
    match u128::from(packets) * 1000 / u128::from(FRAMES_PER_SECOND) {
        0 => "under 1 ms".into(),
        ms @ 1..1000 => format!("{ms} ms"),
        ms @ 1000..600_000 => format!("{} s", ms / 1000),
        ms => format!("{} h", grouped(ms / 3_600_000)),
    }
}

fn table() -> Vec<String> {
    let psns = u64::from(Psn::new(u32::MAX).get()) + 1;
    let qpns = u64::from(Qpn::new(u32::MAX).get()) + 1;
    let mut lines = vec![
        "| Packet | PSNs that do | Packets for one hit | At 10 Gb/s | QPN unknown, one of 64 connections |"
            .to_owned(),
        "| --- | --- | --- | --- | --- |".to_owned(),
    ];
    for Deed { what, psns: good, guesses, origin } in deeds() {
        let headers = if origin { origins() } else { 1 };
        let packets = psns / good * headers / guesses;
        let (of, blind) = (grouped(good), time(packets * (qpns / CONNECTIONS)));
        let (packets, takes) = (grouped(packets), time(packets));
        lines.push(format!("| {what} | {of} | {packets} | {takes} | {blind} |"));
    }
    lines
}

/// SECURITY.md says what the code makes of it.
#[test]
fn the_packets_that_a_forger_needs_are_those_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let section = text.split("## ").find(|part| part.starts_with("Forged packets, in numbers"));
    let told: Vec<_> = section.unwrap().lines().filter(|line| line.starts_with('|')).collect();
    let right = table();
    assert_eq!(told, right, "the section's table should be:\n{}", right.join("\n"));
}
