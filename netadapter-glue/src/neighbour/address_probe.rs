//! Whether another host has an address that we are about to take: the address probe of RFC 5227, 2.1.1, and duplicate
//! address detection of RFC 4862, 5.4, in less time than theirs.

use super::FRAME_MAX_LEN;
use super::ask::Question;
use super::message::{self, Message};
use crate::host::MacAddress;
use crate::{Edge, EdgeError, Transmit};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

/// An address of ours, and another host that has it or is about to take it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Conflict {
    /// The address.
    pub ip: IpAddr,
    /// The Ethernet address of the host.
    pub mac: [u8; 6],
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, mac } = *self;
        let mac = MacAddress(mac);
        write!(
            f,
            "the address {ip} is taken: the host at {mac} has it, or is about to take it; use another \
             address, or remove it from that host (probe=off behind the edge asks nobody)"
        )
    }
}

impl core::error::Error for Conflict {}

/// Probes for `addresses` on an edge that nobody else uses yet, in a VLAN. Returns the conflicts, of which there are none
/// after silence of [`PROBES`] times [`PAUSE_NS`]. Frames that are about something else are lost.
///
/// # Errors
/// The edge's.
pub fn conflicts(
    edge: &mut impl Edge,
    vlan: Option<u16>,
    addresses: &[IpAddr],
) -> Result<Vec<Conflict>, EdgeError> {
    let origin = Instant::now();
    let mut probe = AddressProbe::new(edge.link().mac, vlan, addresses);
    while !probe.poll(origin.elapsed().as_nanos() as u64, edge)? {
        thread::sleep(NAP);
    }
    Ok(probe.conflicts.into_iter().collect())
}

/// Addresses that are probed for.
struct AddressProbe<'a> {
    mac: [u8; 6],
    vlan: Option<u16>,
    addresses: &'a [IpAddr],
    /// Those that are still to be asked for in this round.
    unasked: &'a [IpAddr],
    rounds: u32,
    round_end_ns: u64,
    conflicts: BTreeSet<Conflict>,
}

impl<'a> AddressProbe<'a> {
    fn new(mac: [u8; 6], vlan: Option<u16>, addresses: &'a [IpAddr]) -> Self {
        let conflicts = BTreeSet::new();
        Self { mac, vlan, addresses, unasked: &[], rounds: 0, round_end_ns: 0, conflicts }
    }

    /// Hears what came, and asks what is due. Returns whether it is over: after the last round, or the first one with a
    /// conflict.
    fn poll(&mut self, now_ns: u64, edge: &mut impl Edge) -> Result<bool, EdgeError> {
        edge.receive_each(BUDGET, |unit| {
            let conflict = self.conflict(unit.frame);
            let conflict = conflict.filter(|_| self.conflicts.len() < CONFLICTS_MAX);
            self.conflicts.extend(conflict);
        })?;
        if now_ns >= self.round_end_ns {
            if self.rounds == PROBES || !self.conflicts.is_empty() {
                return Ok(true);
            }
            self.rounds += 1;
            self.round_end_ns = now_ns + PAUSE_NS;
            self.unasked = self.addresses;
        }
        edge.transmit_each(self.unasked.len(), |buffer| {
            let (&ip, unasked) = self.unasked.split_first()?;
            self.unasked = unasked;
            let buffer = &mut buffer[..FRAME_MAX_LEN];
            let len = Question::Taken { ip }.write(buffer, self.mac, self.vlan);
            Some(Transmit { len, segments: None })
        })?;
        Ok(false)
    }

    /// The conflict that a frame shows. One of our own that came back shows none.
    fn conflict(&self, frame: &[u8]) -> Option<Conflict> {
        // In another VLAN the address is another one.
        if message::is_udp(frame) || message::vlan(frame) != self.vlan {
            return None;
        }
        let (ip, mac) = match message::parse(frame)? {
            // RFC 5227, 2.1.1, and RFC 4862, 5.4.3: another host probes for it at the same time.
            Message::Query { target, from: None, mac } => (target, mac),
            message => message.sender()?,
        };
        (mac != self.mac && self.addresses.contains(&ip)).then_some(Conflict { ip, mac })
    }
}

/// Probes for an address.
pub const PROBES: u32 = 3;
/// The time after each. RFC 5227 waits seconds, for hosts that are slow to answer; those on a link with RDMA are not.
pub const PAUSE_NS: u64 = 80_000_000;
/// Between two looks at the edge.
const NAP: Duration = Duration::from_millis(1);
/// Frames of one look.
const BUDGET: usize = 1024;
/// A flood of lies is not remembered.
const CONFLICTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::Neighbours;
    use super::*;
    use crate::memory::{MemoryConfig, MemoryEdge, pair};
    use alloc::string::ToString;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn ips() -> [IpAddr; 2] {
        ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap())
    }

    /// Probes for `ips()` in a VLAN, on a clock that only the probe looks at. Each frame that it sends goes to `peer`, with
    /// which it answers. Returns the conflicts, the frames sent, and the time that passed.
    fn probe(
        vlan: Option<u16>,
        mut peer: impl FnMut(&[u8]) -> Vec<Vec<u8>>,
    ) -> (Vec<Conflict>, usize, u64) {
        let (mut edge, mut wire) = pair(MemoryConfig::default());
        let addresses = ips();
        let mut probe = AddressProbe::new(OWN, vlan, &addresses);
        let (mut now_ns, mut sent) = (0, 0);
        while !probe.poll(now_ns, &mut edge).unwrap() {
            let mut answers = Vec::new();
            sent += wire.receive_each(64, |unit| answers.extend(peer(unit.frame))).unwrap();
            answers.iter().for_each(|answer| send(&mut wire, answer));
            now_ns += PAUSE_NS / 4;
        }
        (probe.conflicts.into_iter().collect(), sent, now_ns)
    }

    fn send(edge: &mut MemoryEdge, frame: &[u8]) {
        let mut frames = [frame].into_iter();
        edge.transmit_each(1, |buffer| {
            let frame = frames.next()?;
            buffer[..frame.len()].copy_from_slice(frame);
            Some(Transmit { len: frame.len(), segments: None })
        })
        .unwrap();
    }

    /// The frames with which a host that has `addresses` answers one.
    fn answers(host: &mut Neighbours, frame: &[u8]) -> Vec<Vec<u8>> {
        host.handle_frame(0, frame);
        let mut buffer = [0; FRAME_MAX_LEN];
        core::iter::from_fn(|| host.poll_transmit(&mut buffer).map(|len| buffer[..len].to_vec()))
            .collect()
    }

    fn question(question: Question, mac: [u8; 6], vlan: Option<u16>) -> Vec<u8> {
        let mut buffer = [0; FRAME_MAX_LEN];
        let len = question.write(&mut buffer, mac, vlan);
        buffer[..len].to_vec()
    }

    /// Goal: an address that a host has is told with the host's Ethernet address, after the first round.
    #[test]
    fn an_address_of_another_host_is_taken() {
        for ip in ips() {
            for vlan in [None, Some(7)] {
                let mut host = Neighbours::new(PEER, &[ip]);
                let found = probe(vlan, |frame| answers(&mut host, frame));
                assert_eq!(found, (Vec::from([Conflict { ip, mac: PEER }]), 2, PAUSE_NS));
            }
        }
        let told = Conflict { ip: ips()[0], mac: PEER }.to_string();
        assert!(told.contains("10.0.0.1") && told.contains("02:00:00:00:00:02"), "{told}");
    }

    /// RFC 5227, 2.1.1: all frames that are sent from the address, and probes of others for it.
    #[test]
    fn a_host_that_uses_or_probes_for_an_address_takes_it() {
        let others = ["10.0.0.9", "fd00::9"].map(|ip| ip.parse().unwrap());
        for (ip, other) in ips().into_iter().zip(others) {
            for asked in
                [Question::Taken { ip }, Question::Place { own_ip: ip, ip: other, at: None }]
            {
                let (found, ..) = probe(None, |_| Vec::from([question(asked, PEER, None)]));
                assert_eq!(found, [Conflict { ip, mac: PEER }], "{asked:?}");
            }
        }
    }

    /// Goal: silence, our own frames that a hub sends back, hosts with other addresses, frames of other VLANs, and what is no
    /// message leave an address free, after so many probes and so long.
    #[test]
    fn an_address_without_another_host_is_free() {
        let free = (Vec::new(), 2 * PROBES as usize, u64::from(PROBES) * PAUSE_NS);
        assert_eq!(probe(None, |_| Vec::new()), free);
        assert_eq!(probe(None, |frame| Vec::from([frame.to_vec()])), free);
        let mut host = Neighbours::new(PEER, &["10.0.0.2".parse().unwrap()]);
        let [ip, other] = ips();
        for frames in [
            [question(Question::Taken { ip }, PEER, Some(7)), Vec::from([0; 14])],
            [question(Question::Taken { ip: other }, OWN, None), Vec::from([0xff; 60])],
            ["10.0.0.2", "fd00::2"]
                .map(|ip| question(Question::Taken { ip: ip.parse().unwrap() }, PEER, None)),
        ] {
            assert_eq!(probe(None, |_| frames.to_vec()), free);
        }
        assert_eq!(probe(None, |frame| answers(&mut host, frame)), free);
    }

    /// Goal: a link full of other frames ends the probes no later, and neither does an edge that takes none.
    #[test]
    fn nothing_prolongs_the_probes() {
        let (mut edge, mut wire) = pair(MemoryConfig { depth: 1, ..MemoryConfig::default() });
        let addresses = ips();
        let mut probe = AddressProbe::new(OWN, None, &addresses);
        let mut polls = 0;
        while !probe.poll(polls * PAUSE_NS, &mut edge).unwrap() {
            send(&mut wire, &[0x55; 60]);
            polls += 1;
        }
        assert_eq!((polls, probe.conflicts.len()), (u64::from(PROBES), 0));
        // One round, whose answers are a flood.
        let mut probe = AddressProbe::new(OWN, None, &addresses);
        let (mut edge, mut wire) = pair(MemoryConfig::default());
        assert_eq!(probe.poll(0, &mut edge), Ok(false));
        for host in 0..20 {
            let taken = Question::Taken { ip: addresses[0] };
            send(&mut wire, &question(taken, [2, 0, 0, 0, 1, host], None));
        }
        assert_eq!(probe.poll(PAUSE_NS, &mut edge), Ok(true));
        assert_eq!(probe.conflicts.len(), CONFLICTS_MAX);
    }
}
