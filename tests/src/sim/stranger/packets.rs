//! Packets in the name of a peer of a live connection, by somebody who knows all but how that one's packets come: by another
//! Ethernet address, or from another UDP port.

use super::{MAC, Strange, Stranger};
use crate::sim::Deed;
use crate::sim::foreign::wire::{Packet, Route, frame, psn};
use crate::sim::net::mac;
use crate::sim::packet::{LISTED_LEN, opcode};
use crate::sim::watch::Name;
use crate::sim::world::World;

/// So much further than what was sent is mostly no packet that its responder expects when it comes.
const AHEAD: u64 = 8;
/// Notifications of each connection in a millisecond, and connections that are notified.
const NOTIFICATIONS: u32 = 10;
const NOTIFIED: usize = 2;

/// What it knows of a live connection.
#[derive(Clone, Copy)]
struct Known {
    victim: usize,
    /// The peer does not show that it is ours: its port is whatever its first packet has.
    any_port: bool,
    route: Route,
    qpns: [u32; 2],
}

impl Known {
    /// The victim's end, and its peer's.
    const fn ends(&self) -> [Name; 2] {
        let Self { route: Route { ips: [far, near], .. }, qpns: [far_qpn, near_qpn], .. } = *self;
        [(near, near_qpn), (far, far_qpn)]
    }
}

/// What a forged packet names: a request to a queue pair from another, or the answer to it; or nothing.
#[derive(Clone, Copy)]
pub(super) struct Forged {
    to: Name,
    from: Name,
    at: Option<u64>,
    answer: bool,
}

impl World {
    /// Whether an arriving frame is forged, and may be the very packet that its victim expects: that one is executed, whoever
    /// sent it, so nobody gets it. While a probe has no answer that is the ACK of all that was sent, too, and one that comes a
    /// second time.
    pub(crate) fn withholds(&mut self, frame: &[u8]) -> bool {
        let Some(strange) = &mut self.stranger else { return false };
        let Some(&Forged { to, from, at, answer }) = strange.forged.get(frame) else {
            return false;
        };
        let Some(at) = at else { return false };
        let never = self.watch.between(to, from).is_some_and(|(_, [acked, arrived, sent])| {
            if answer {
                at > arrived && at + 1 != sent && strange.answered.insert((from, at))
            } else {
                at > sent || at < acked
            }
        });
        if !never {
            strange.forged.remove(frame);
        }
        !never
    }

    /// Live connections of hosts of ours, by each of their ends.
    fn overhear(&self) -> Vec<Known> {
        let host_of = |ip| self.hosts.iter().position(|host| host.ips.contains(&ip));
        let known = |(near, far): ((std::net::IpAddr, u32), (std::net::IpAddr, u32))| {
            let (victim, at) = (host_of(near.0)?, host_of(far.0)?);
            let this = &self.hosts[victim];
            // Where addresses and ports choose the core, nobody knows what comes first.
            let other = victim != at && this.provider.is_some() && !this.hashes;
            let macs = [self.net.nic(at), self.net.nic(victim)];
            let route = Route { macs, ips: [far.0, near.0] };
            let (any_port, qpns) = (!self.watch.keeps(far.0), [far.1, near.1]);
            other.then_some(Known { victim, any_port, route, qpns })
        };
        self.watch.pairs().filter_map(known).collect()
    }

    /// Sends a packet in the name of a peer, and lets nobody learn from it.
    fn say_as(
        &mut self,
        strange: &mut Strange,
        known: &Known,
        marks: u8,
        (packet, forged): (&Packet, Forged),
    ) {
        let mut route = known.route;
        if known.any_port || strange.rng.below(2) == 0 {
            route.macs[0] = MAC;
        }
        let mut bytes = frame(&route, packet);
        let header = if route.ips[0].is_ipv4() { 20 } else { 40 };
        bytes[14 + header + 8 + 4] = marks;
        let mut taken = bytes.clone();
        taken[..6].copy_from_slice(&mac(known.victim));
        strange.forged.insert(taken, forged);
        let after = u64::from(strange.rng.below(200_000));
        self.say(strange, known.victim, after, bytes);
    }

    /// Something about a connection.
    pub(super) fn forge_some(&mut self, strange: &mut Strange) {
        let all = self.overhear();
        let Some(known) = all.get(strange.rng.below(all.len().max(1) as u32) as usize) else {
            return;
        };
        let packet = if strange.rng.below(2) == 0 {
            self.forge_request(strange, known)
        } else {
            self.forge_answer(strange, known)
        };
        if let Some(packet) = packet {
            self.say_as(strange, known, 0, (&packet.0, packet.1));
            self.did(Deed::StrangePacket);
        }
    }

    /// A SEND that its peer has not sent yet, or one of other bytes that it has sent long ago.
    fn forge_request(&self, strange: &mut Strange, known: &Known) -> Option<(Packet, Forged)> {
        let [near, far] = known.ends();
        let (first, [acked, _, sent]) = self.watch.between(near, far)?;
        let early = strange.rng.below(3) > 0;
        let at = if early { sent + AHEAD + u64::from(strange.rng.below(32)) } else { acked };
        let at = at.checked_sub(u64::from(!early))?;
        let packet = Packet {
            opcode: 0x04,
            ack_req: strange.rng.below(2) == 0,
            qpn: near.1,
            psn: psn(first, at),
            payload: vec![0xee; strange.rng.below(65) as usize],
            ..Packet::default()
        };
        Some((packet, Forged { to: near, from: far, at: Some(at), answer: false }))
    }

    /// An ACK, a NAK, a gap report or a list of ACKs about what is under way.
    fn forge_answer(&self, strange: &mut Strange, known: &Known) -> Option<(Packet, Forged)> {
        let [near, far] = known.ends();
        let (first, [acked, _, sent]) = self.watch.between(far, near)?;
        // One that names but the oldest is the one that is expected.
        let open = u32::try_from(sent.checked_sub(acked + 1)?).ok().filter(|&open| open > 0)?;
        let at = acked + 1 + u64::from(strange.rng.below(open));
        let syndromes = [0x1f, 0x60, 0x61, 0x62, 0x63, 0x21];
        let (mut code, mut payload) = (opcode::ACKNOWLEDGE, Vec::new());
        let mut ext = vec![syndromes[strange.rng.below(6) as usize], 0, 0, 1];
        match strange.rng.below(4) {
            0 => {
                (code, ext) = (opcode::GAP_REPORT, Vec::new());
                payload = vec![0, 1, 0, 1 + strange.rng.below(3) as u8];
            }
            1 => {
                (code, ext[0]) = (opcode::ACK_LIST, 0x1f);
                payload = vec![0; LISTED_LEN];
                payload[..4].copy_from_slice(&near.1.to_be_bytes());
                payload[4..8].copy_from_slice(&psn(first, at).to_be_bytes());
                payload[8..12].copy_from_slice(&[0x1f, 0, 0, 1]);
            }
            _ => {}
        }
        let (qpn, psn) = (near.1, psn(first, at));
        let packet = Packet { opcode: code, qpn, psn, ext, payload, ..Packet::default() };
        Some((packet, Forged { to: far, from: near, at: Some(at), answer: true }))
    }

    /// Connections are told that the network is congested.
    pub(super) fn notify_some(&mut self, strange: &mut Strange) {
        debug_assert_eq!(strange.kind, Stranger::Notifies);
        for known in self.overhear().into_iter().take(NOTIFIED) {
            for _ in 0..NOTIFICATIONS {
                let (code, qpn, ext) = (opcode::CNP, known.qpns[1], vec![0; 16]);
                let packet = Packet { opcode: code, qpn, ext, ..Packet::default() };
                let [near, far] = known.ends();
                let forged = Forged { to: near, from: far, at: None, answer: false };
                self.say_as(strange, &known, 0x40, (&packet, forged));
                self.did(Deed::StrangeCnp);
            }
        }
    }
}
