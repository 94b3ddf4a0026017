//! Address resolution where no operating system owns the address: ARP and IPv6 neighbour discovery.
//!
//! Sans-IO: frames in by [`Neighbours::handle_frame`], frames out by [`Neighbours::poll_transmit`], time as
//! an argument. It answers for its own addresses, queries others, and answers pings so that a user can tell
//! whether the edge works. Frames with a VLAN tag are answered in their VLAN. There are no redirects and no
//! routers: every address is on the link ([`Neighbours::next_hop`]). It joins no multicast group by MLD, so
//! a switch that snoops must flood.
//!
//! A known address becomes stale (RFC 4861, 7.3). It is queried again when a user begins to use it or
//! doubts it, first by unicast at its place, then by broadcast. So a neighbour is found elsewhere only when
//! it no longer answers at its old place: a frame that announces a known neighbour is never more than a
//! reason to query, as anybody can send one.

#[cfg(target_os = "linux")]
pub mod address_probe;
#[cfg(target_os = "linux")]
pub mod ask;
mod message;
mod query;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use message::Message;
pub use message::link_local;
use query::{Query, Silence};

/// There was no answer for the address, or it cannot be queried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unreachable;

/// The place of a neighbour on the link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its VLAN, 1 to 4094. `None`: frames without a tag, or with one that names a priority alone.
    pub vlan: Option<u16>,
}

/// The outcome of a query for an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resolution {
    /// The address that was queried.
    pub ip: IpAddr,
    /// Its place.
    pub result: Result<Link, Unreachable>,
}

/// Writes the answer to `frame`, if that is a query, to the start of `buffer`, which has room for [`FRAME_MAX_LEN`] bytes:
/// its target is at the address that `mac_of` has for it. Returns the length.
///
/// For an edge behind which an operating system knows the neighbours.
#[cfg(target_os = "linux")]
pub(crate) fn answer_any(
    frame: &[u8],
    mac_of: impl FnOnce(IpAddr) -> [u8; 6],
    buffer: &mut [u8],
) -> Option<usize> {
    let Message::Query { target, from, mac } = message::parse(frame)? else { return None };
    Some(message::answer(buffer, mac_of(target), target, from, mac))
}

/// The Ethernet addresses of the hosts on a link.
///
/// Bounds: 1024 neighbours (a full cache forgets the one that was confirmed first in favour of a queried
/// one, and ignores one that only announced itself); 64 queries at a time, of 3 unicast and 8 broadcast
/// frames; one series of unicast frames to a neighbour in a second; 16 answers and 128 resolutions that
/// wait to be fetched, beyond which they are dropped.
#[derive(Debug)]
pub struct Neighbours {
    mac: [u8; 6],
    /// The VLAN of queries.
    vlan: Option<u16>,
    addresses: Vec<IpAddr>,
    known: BTreeMap<IpAddr, Known>,
    queries: Vec<Query>,
    answers: VecDeque<Answer>,
    events: VecDeque<Resolution>,
    conflicts: u64,
}

impl Neighbours {
    /// Answers for `addresses` with `mac`; with an IPv6 address among them, for the link-local
    /// address of `mac` too ([`link_local`]).
    pub fn new(mac: [u8; 6], addresses: &[IpAddr]) -> Self {
        Self {
            mac,
            vlan: None,
            addresses: with_link_local(mac, addresses),
            known: BTreeMap::new(),
            queries: Vec::with_capacity(QUERIES_MAX),
            answers: VecDeque::with_capacity(ANSWERS_MAX),
            events: VecDeque::with_capacity(EVENTS_MAX),
            conflicts: 0,
        }
    }

    /// Sends queries for unknown neighbours in this VLAN.
    #[must_use]
    pub fn in_vlan(self, vlan: Option<u16>) -> Self {
        Self { vlan, ..self }
    }

    /// Answers for `addresses` from now on. A query from a removed address goes on from one of these, or is
    /// given up where none is of its family.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.addresses = with_link_local(self.mac, addresses);
        let mut index = 0;
        while let Some(query) = self.queries.get_mut(index) {
            let ip = query.ip;
            if let Some(own) = own_address(&self.addresses, query.local_ip, ip) {
                query.local_ip = own;
                index += 1;
            } else {
                self.queries.swap_remove(index);
                self.report(ip, Err(Unreachable));
            }
        }
    }

    /// Handles a received frame. Returns true for a query, an answer or a ping for us, or an announcement
    /// of a known neighbour.
    #[inline]
    pub fn handle_frame(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        !message::is_udp(frame) && self.handle_other(now_ns, frame)
    }

    /// Handles a frame that is no plain UDP.
    fn handle_other(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        let for_us = frame.starts_with(&self.mac) || frame.first().is_some_and(|b| b & 1 != 0);
        let Some(message) = for_us.then(|| message::parse(frame)).flatten() else { return false };
        let vlan = message::vlan(frame);
        let is_ours = |(ip, mac)| mac != self.mac && self.addresses.contains(&ip);
        self.conflicts += u64::from(message.sender().is_some_and(is_ours));
        if !self.addresses.contains(&message.to()) {
            return self.hear_announcement(now_ns, &message, vlan);
        }
        match message {
            Message::Query { target, from, mac } => {
                // Duplicate address detection has no source address, and gets its answer all the same.
                if let Some(from) = from {
                    self.hear_query(now_ns, target, from, Link { mac, vlan });
                }
                let own = self.mac;
                self.answer(vlan, |bytes| message::answer(bytes, own, target, from, mac));
            }
            Message::Answer { from, mac, .. } => {
                self.hear_answer(now_ns, from, Link { mac, vlan });
            }
            Message::Echo { .. } => {
                let own = self.mac;
                self.answer(vlan, |bytes| message::echo_reply(bytes, own, &message));
            }
        }
        true
    }

    /// The next hop to `ip`: always `ip` itself, as every address is on the link.
    pub fn next_hop(&self, ip: IpAddr) -> IpAddr {
        ip
    }

    /// The place of `ip`, if it is known and was confirmed or heard in the last ten minutes.
    pub fn lookup(&self, now_ns: u64, ip: IpAddr) -> Option<Link> {
        if self.addresses.contains(&ip) {
            return Some(Link { mac: self.mac, vlan: self.vlan });
        }
        let known = self.known.get(&ip)?;
        (now_ns < known.heard_ns.saturating_add(LIFETIME_NS)).then_some(known.link)
    }

    /// Resolves `ip` from `local_ip`. `source` is the origin of a packet of `ip`, and is queried before all
    /// hosts. The result comes by [`poll_event`](Self::poll_event): at once where it is known, after three
    /// seconds at most. A stale address is returned, and confirmed as well, which may lead to a second
    /// result.
    pub fn resolve(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr, source: Option<Link>) {
        let Some(link) = self.lookup(now_ns, ip) else {
            return self.ask(now_ns, local_ip, ip, source, source);
        };
        self.report(ip, Ok(link));
        let stale = self.known.get(&ip).is_some_and(|known| known.is_stale(now_ns));
        if stale && !self.is_asked(ip) {
            self.probe(now_ns, ip, source);
        }
    }

    /// Confirms the place of `ip`: its user has no response from it, or heard it from `source`. A result
    /// follows. A neighbour that was confirmed within the last second is queried when that is over: it may
    /// have moved since.
    pub fn doubt(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr, source: Option<Link>) {
        if self.addresses.contains(&ip) {
            return;
        }
        if self.known.contains_key(&ip) {
            self.probe(now_ns, ip, source);
        } else {
            self.ask(now_ns, local_ip, ip, source, None);
        }
    }

    /// Frames for us or all in which another host says that an address of ours is its own (RFC 5227, 2.4).
    pub const fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// The outcome of the next query that ended.
    pub fn poll_event(&mut self) -> Option<Resolution> {
        self.events.pop_front()
    }

    /// Whether there may be a frame to send: [`Self::poll_transmit`] has none otherwise.
    #[inline]
    pub fn may_transmit(&self) -> bool {
        !(self.answers.is_empty() && self.queries.is_empty())
    }

    /// Writes the next frame to send to the start of `buffer`, which has room for
    /// [`FRAME_MAX_LEN`] bytes; returns its length.
    #[inline]
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.may_transmit().then(|| self.write_next(buffer)).flatten()
    }

    fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if let Some(answer) = self.answers.pop_front() {
            buffer[..answer.len()].copy_from_slice(&answer);
            return Some(answer.len());
        }
        let query = self.queries.iter_mut().find(|query| query.due)?;
        Some(query.write(buffer, self.mac))
    }

    /// Repeats queries without an answer and gives up old ones.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let mut index = 0;
        while let Some(query) = self.queries.get_mut(index) {
            if query.handle_timeout(now_ns) == Silence::GoesOn {
                index += 1;
                continue;
            }
            let ip = query.ip;
            self.queries.swap_remove(index);
            self.known.remove(&ip);
            self.report(ip, Err(Unreachable));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has work.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.queries.iter().map(|query| query.next_ns).min()
    }

    fn is_asked(&self, ip: IpAddr) -> bool {
        self.queries.iter().any(|query| query.ip == ip)
    }

    // ---- what is heard ------------------------------------------------------------------------

    /// Handles an announcement to all hosts: it counts for a known neighbour only, and is a hint at best.
    fn hear_announcement(&mut self, now_ns: u64, message: &Message<'_>, vlan: Option<u16>) -> bool {
        let Some((from, mac)) = message.announcement() else { return false };
        if !self.known.contains_key(&from) {
            return false;
        }
        self.hint(now_ns, from, Link { mac, vlan });
        true
    }

    /// Answers a neighbour's query for `target`, which is ours.
    fn hear_query(&mut self, now_ns: u64, target: IpAddr, ip: IpAddr, link: Link) {
        // An address of ours at another host is a conflict, not a neighbour.
        if !is_unicast(ip) || self.addresses.contains(&ip) {
            return;
        }
        if self.is_asked(ip) || self.known.contains_key(&ip) {
            self.hear_answer(now_ns, ip, link);
        } else if self.known.len() < KNOWN_MAX {
            let known = Known { link, local_ip: target, heard_ns: now_ns, confirmed_ns: None };
            self.known.insert(ip, known);
        }
    }

    fn hear_answer(&mut self, now_ns: u64, ip: IpAddr, link: Link) {
        if let Some(at) = self.queries.iter().position(|query| query.ip == ip && query.takes(link))
        {
            let Query { local_ip, .. } = self.queries.swap_remove(at);
            self.make_room(ip);
            let confirmed_ns = Some(now_ns);
            self.known.insert(ip, Known { link, local_ip, heard_ns: now_ns, confirmed_ns });
            self.report(ip, Ok(link));
        } else {
            self.hint(now_ns, ip, link);
        }
    }

    /// Takes a hint that a known neighbour may be elsewhere.
    fn hint(&mut self, now_ns: u64, ip: IpAddr, link: Link) {
        if self.known.get(&ip).is_some_and(|known| known.link != link) {
            self.probe(now_ns, ip, Some(link));
        }
    }

    // ---- what is asked ------------------------------------------------------------------------

    /// Starts a query to all hosts for an unknown neighbour; to the place `probe` first, if there is one.
    fn ask(
        &mut self,
        now_ns: u64,
        local_ip: IpAddr,
        ip: IpAddr,
        source: Option<Link>,
        probe: Option<Link>,
    ) {
        if let Some(query) = self.queries.iter_mut().find(|query| query.ip == ip) {
            if let Some(place) = probe {
                query.turn_to(now_ns, place);
            }
            return;
        }
        let can_ask = is_unicast(ip) && ip.is_ipv4() == local_ip.is_ipv4();
        if !can_ask || self.queries.len() == QUERIES_MAX {
            return self.report(ip, Err(Unreachable));
        }
        let vlans = [source.map_or(self.vlan, |source| source.vlan), self.vlan];
        self.queries.push(Query::new(now_ns, ip, local_ip, probe, vlans));
    }

    /// Probes a known neighbour at its place. If it is silent, all hosts are queried, in the VLAN of
    /// `source`, too.
    fn probe(&mut self, now_ns: u64, ip: IpAddr, source: Option<Link>) {
        if let Some(query) = self.queries.iter_mut().find(|query| query.ip == ip) {
            return query.hint(source);
        }
        let Some(known) = self.known.get(&ip).copied() else { return };
        let start_ns = known.confirmed_ns.map_or(0, |at| at.saturating_add(PROBE_INTERVAL_NS));
        let Some(local_ip) = own_address(&self.addresses, known.local_ip, ip) else { return };
        if self.queries.len() < QUERIES_MAX {
            let vlans = [known.link.vlan, source.map_or(self.vlan, |source| source.vlan)];
            let query = Query::new(now_ns, ip, local_ip, Some(known.link), vlans);
            let query = if now_ns < start_ns { query.from(start_ns) } else { query };
            self.queries.push(query);
        }
    }

    fn make_room(&mut self, ip: IpAddr) {
        if self.known.len() < KNOWN_MAX || self.known.contains_key(&ip) {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, known)| known.confirmed_ns);
        if let Some(oldest) = oldest.map(|(&ip, _)| ip) {
            self.known.remove(&oldest);
        }
    }

    /// Reports an outcome. It replaces an older one of the same address that waits to be fetched.
    fn report(&mut self, ip: IpAddr, result: Result<Link, Unreachable>) {
        self.events.retain(|event| event.ip != ip);
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(Resolution { ip, result });
        }
    }

    fn answer(&mut self, vlan: Option<u16>, write: impl FnOnce(&mut [u8]) -> usize) {
        if self.answers.len() == ANSWERS_MAX {
            return;
        }
        let mut answer = Answer::from_array([0; FRAME_MAX_LEN]);
        let len = write(&mut answer);
        let len = message::tag(&mut answer, len, vlan);
        answer.truncate(len);
        self.answers.push_back(answer);
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    link: Link,
    /// The address of ours that queried it, or that it queried.
    local_ip: IpAddr,
    heard_ns: u64,
    /// The time of its last answer, if there was one.
    confirmed_ns: Option<u64>,
}

impl Known {
    fn is_stale(&self, now_ns: u64) -> bool {
        self.confirmed_ns.is_none_or(|at| now_ns >= at.saturating_add(REACHABLE_NS))
    }
}

type Answer = heapless::Vec<u8, FRAME_MAX_LEN>;

fn with_link_local(mac: [u8; 6], addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses = addresses.to_vec();
    let link_local = IpAddr::V6(link_local(mac));
    if addresses.iter().any(IpAddr::is_ipv6) && !addresses.contains(&link_local) {
        addresses.push(link_local);
    }
    addresses
}

/// The source address of a query for `ip`: `before`, or where that is gone another one of the family.
fn own_address(own: &[IpAddr], before: IpAddr, ip: IpAddr) -> Option<IpAddr> {
    let fits = |own: &&IpAddr| own.is_ipv4() == ip.is_ipv4();
    own.iter().find(|own| **own == before).or_else(|| own.iter().find(fits)).copied()
}

fn is_unicast(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_multicast() && !ip.is_unspecified() && !is_broadcast
}

/// The multicast group in which a host receives queries for `ip` (RFC 4291, 2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Longest frame that [`Neighbours::poll_transmit`] writes.
pub const FRAME_MAX_LEN: usize = 256;
const KNOWN_MAX: usize = 1024;
const QUERIES_MAX: usize = 64;
const ANSWERS_MAX: usize = 16;
const EVENTS_MAX: usize = 128;
/// The time for which a neighbour that answered is reachable at its place (RFC 4861, 10).
const REACHABLE_NS: u64 = 30_000_000_000;
/// The time for which a neighbour is remembered.
const LIFETIME_NS: u64 = 600_000_000_000;
/// The least time from an answer to the next query of the same neighbour, whatever frames announce.
const PROBE_INTERVAL_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
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
            hosts[0].resolve(0, local, remote, None);
            assert_eq!(hosts[0].poll_event(), None);
            settle(0, &mut hosts, &mut edges);
            let resolution = Resolution { ip: remote, result: Ok(at(1)) };
            assert_eq!(hosts[0].poll_event(), Some(resolution));
            assert_eq!(hosts[0].lookup(0, remote), Some(at(1)));
            // The one that was asked need not ask.
            assert_eq!(hosts[1].lookup(0, local), Some(at(0)));
            assert_eq!(hosts[0].lookup(LIFETIME_NS, remote), None, "it grows old");
            hosts[0].resolve(1, local, remote, None);
            assert_eq!(hosts[0].poll_event(), Some(resolution), "known");
            assert_eq!(hosts[0].poll_timeout(), None);
        }
    }

    #[test]
    fn nobody_answers() {
        let mut host = host(0);
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"), None);
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"), None);
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

    /// A removed address is no longer answered for, nor queried from; a new one is. A query from the old
    /// one may go on from another, too.
    #[test]
    fn addresses_come_and_go() {
        let mut host = host(0);
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"), None);
        host.resolve(0, ip("fd00::1"), ip("fd00::9"), None);
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
            host.resolve(0, ip(own), ip(other), None);
            assert_eq!(frames(&mut host).len(), 1);
            assert!(host.handle_frame(0, &answered(other, own, MACS[1], None)));
            let found = Resolution { ip: ip(other), result: Ok(at(1)) };
            assert_eq!(host.poll_event(), Some(found));
        }
        host
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

    /// RFC 5227, 2.4: frames of another host with our address are counted; our own that come back, and probes, are not.
    #[test]
    fn a_host_with_our_address_is_counted() {
        for (own, other) in PAIRS {
            let mut host = host(0);
            for (mac, count) in [(MACS[0], 0), (STRANGER, 2)] {
                let mut frame = [0; FRAME_MAX_LEN];
                let asked = message::query(&mut frame, mac, ip(own), ip(other), None);
                host.handle_frame(0, &frame[..asked]);
                host.handle_frame(0, &answered(own, own, mac, None));
                let probe = message::address_probe(&mut frame, mac, ip(own));
                host.handle_frame(0, &frame[..probe]);
                assert_eq!(host.conflicts(), count, "{own}");
            }
        }
    }

    /// One forged frame, of whatever kind, moves nothing: the neighbour is asked where it was, and says
    /// that it is there (RFC 4861, 7.3.3).
    #[test]
    fn a_forged_announcement_moves_nothing() {
        for (own, other) in PAIRS {
            for forgery in forgeries(own, other) {
                let mut host = acquainted();
                // Not again at once, as it just answered, but a second after that.
                assert!(host.handle_frame(SECOND / 2, &forgery));
                assert!(!frames(&mut host).iter().any(|frame| is_question(frame)));
                let due = host.poll_timeout().expect("it is asked");
                assert!(due <= 2 * SECOND && due > SECOND / 2, "{due}");
                host.handle_timeout(due);
                assert!(host.handle_frame(2 * SECOND, &forgery));
                let asked = frames(&mut host);
                assert_eq!(asked.iter().filter(|frame| is_question(frame)).count(), 1);
                assert!(
                    asked.iter().any(|frame| is_question(frame) && frame.starts_with(&MACS[1]))
                );
                // He insists, and the neighbour answers.
                host.handle_frame(2 * SECOND, &forgery);
                assert!(host.handle_frame(2 * SECOND, &answered(other, own, STRANGER, None)));
                assert_eq!(
                    (host.poll_event(), host.lookup(2 * SECOND, ip(other))),
                    (None, Some(at(1)))
                );
                assert!(host.handle_frame(2 * SECOND, &answered(other, own, MACS[1], None)));
                let still = Resolution { ip: ip(other), result: Ok(at(1)) };
                assert_eq!((host.poll_event(), host.poll_timeout()), (Some(still), None));
            }
        }
    }

    fn is_question(frame: &[u8]) -> bool {
        matches!(message::parse(frame), Some(Message::Query { .. }))
    }

    /// A flood of forgeries costs one frame in a second, and three where the neighbour is silent.
    #[test]
    fn a_flood_of_announcements_asks_little() {
        let (own, other) = PAIRS[0];
        let mut host = acquainted();
        let gratuitous = forgeries(own, other).pop().unwrap();
        let mut asked = 0;
        for ms in 0..10_000 {
            let now_ns = ms * 1_000_000;
            host.handle_timeout(now_ns);
            host.handle_frame(now_ns, &gratuitous);
            for frame in frames(&mut host) {
                asked += u32::from(is_question(&frame));
                host.handle_frame(now_ns, &answered(other, own, MACS[1], None));
            }
        }
        assert_eq!((asked, host.lookup(0, ip(other))), (9, Some(at(1))));
    }

    /// A neighbour that is doubted and silent is asked three times where it was, then everywhere; the
    /// answer is believed, and is there well before a connection would be given up.
    #[test]
    fn a_neighbour_that_moved_is_found() {
        for (own, other) in PAIRS {
            for vlan in [None, Some(7)] {
                let mut host = acquainted();
                let source = Link { mac: STRANGER, vlan };
                host.doubt(5 * SECOND, ip(own), ip(other), vlan.is_some().then_some(source));
                let (mut now_ns, mut unicast) = (5 * SECOND, 0);
                let asked = loop {
                    let asked = frames(&mut host);
                    let [frame] = &asked[..] else { panic!("{asked:?}") };
                    if !frame.starts_with(&MACS[1]) && message::vlan(frame) == vlan {
                        break asked;
                    }
                    unicast += u32::from(frame.starts_with(&MACS[1]));
                    now_ns = host.poll_timeout().unwrap();
                    host.handle_timeout(now_ns);
                };
                assert_eq!(unicast, 3);
                assert!(now_ns <= 6 * SECOND, "{now_ns}");
                assert!(is_question(&asked[0]) && asked[0][0] & 1 == 1, "to everybody");
                assert!(host.handle_frame(now_ns, &answered(other, own, STRANGER, vlan)));
                let moved = Resolution { ip: ip(other), result: Ok(source) };
                assert_eq!((host.poll_event(), host.poll_timeout()), (Some(moved), None));
                assert_eq!(host.lookup(now_ns, ip(other)), Some(source));
            }
        }
    }

    /// An answer that the network held back says where the neighbour was before it was doubted: it ends no
    /// question that has not been asked.
    #[test]
    fn an_answer_before_the_question_ends_nothing() {
        for (own, other) in PAIRS {
            let mut host = acquainted();
            host.doubt(SECOND / 4, ip(own), ip(other), Some(Link { mac: STRANGER, vlan: None }));
            assert!(frames(&mut host).is_empty(), "it has just answered");
            assert!(host.handle_frame(SECOND / 2, &answered(other, own, MACS[1], None)));
            let due = host.poll_timeout().expect("it is asked all the same");
            host.handle_timeout(due);
            let asked = frames(&mut host);
            assert!(asked.len() == 1 && asked[0].starts_with(&MACS[1]), "{asked:?}");
            assert!(host.handle_frame(due, &answered(other, own, MACS[1], None)));
            let still = Resolution { ip: ip(other), result: Ok(at(1)) };
            assert_eq!((host.poll_event(), host.poll_timeout()), (Some(still), None));
        }
    }

    /// Nobody answers in the place of a neighbour whose packet has just come: it is asked where that came from.
    #[test]
    fn a_neighbour_that_was_heard_is_asked_there_first() {
        is_asked_there(
            |host, own, other| {
                host.resolve(0, own, other, Some(at(1)));
                0
            },
            |_, _, _, _| (),
        );
    }

    /// The same where all hosts are being asked when the packet comes. Packets from elsewhere do not prolong the question.
    #[test]
    fn a_neighbour_that_is_heard_before_it_answers_is_asked_there() {
        is_asked_there(
            |host, own, other| {
                host.resolve(0, own, other, None);
                assert!(frames(host)[0][0] & 1 == 1, "to all hosts");
                host.resolve(1, own, other, Some(at(1)));
                1
            },
            |host, now_ns, own, other| {
                host.resolve(now_ns, own, other, Some(Link { mac: STRANGER, vlan: None }));
            },
        );
    }

    /// That the neighbour is asked where `hear`, which returns the time, has heard it, and is found within a second, there or
    /// not, whatever strangers answer; `again` comes after each timer.
    fn is_asked_there(
        hear: fn(&mut Neighbours, IpAddr, IpAddr) -> u64,
        again: fn(&mut Neighbours, u64, IpAddr, IpAddr),
    ) {
        for (own, other) in PAIRS {
            for there in [true, false] {
                let mut host = host(0);
                let mut now_ns = hear(&mut host, ip(own), ip(other));
                let asked = frames(&mut host);
                assert!(asked.len() == 1 && asked[0].starts_with(&MACS[1]), "{asked:?}");
                for forgery in forgeries(own, other) {
                    host.handle_frame(now_ns, &forgery);
                }
                assert_eq!(host.poll_event(), None);
                frames(&mut host);
                while !there && !frames(&mut host).iter().any(|frame| frame[0] & 1 == 1) {
                    now_ns = host.poll_timeout().unwrap();
                    host.handle_timeout(now_ns);
                    again(&mut host, now_ns, ip(own), ip(other));
                }
                assert!(host.handle_frame(now_ns, &answered(other, own, MACS[1], None)));
                let found = Resolution { ip: ip(other), result: Ok(at(1)) };
                assert_eq!((host.poll_event(), host.poll_timeout()), (Some(found), None));
                assert!(now_ns <= SECOND, "{now_ns}");
            }
        }
    }

    /// A stale address is used and confirmed as well; a fresh one is not queried again.
    #[test]
    fn what_is_stale_is_confirmed_when_it_is_used() {
        for (own, other) in PAIRS {
            let mut host = acquainted();
            for (now_ns, asks) in [(29 * SECOND, 0), (31 * SECOND, 1), (40 * SECOND, 0)] {
                host.resolve(now_ns, ip(own), ip(other), None);
                assert_eq!(host.poll_event().unwrap().result, Ok(at(1)));
                let asked = frames(&mut host);
                assert_eq!(asked.len(), asks);
                assert!(asked.iter().all(|frame| frame.starts_with(&MACS[1])));
                host.handle_frame(now_ns, &answered(other, own, MACS[1], None));
                while host.poll_event().is_some() {}
            }
        }
    }

    /// Questions leave in the VLAN of the host; who asks with a tag is answered with it.
    #[test]
    fn tags_are_sent_and_returned() {
        for (own, other) in PAIRS {
            let mut host = host(0).in_vlan(Some(5));
            host.resolve(0, ip(own), ip(other), None);
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
                assert_eq!(host.lookup(0, ip(other)), Some(Link { mac: STRANGER, vlan }));
            }
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_unreachable() {
        let mut host = host(0);
        for text in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "fd00::9", "ff02::1"] {
            host.resolve(0, ip("10.0.0.1"), ip(text), None);
            assert_eq!(host.poll_event().unwrap().result, Err(Unreachable), "{text}");
        }
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.1"), None);
        assert_eq!(host.poll_event().unwrap().result, Ok(at(0)));
    }

    #[test]
    fn queries_and_events_are_bounded() {
        let mut host = host(0);
        for i in 0..1000_u32 {
            host.resolve(0, ip("10.0.0.1"), IpAddr::from((0x0b00_0000 + i).to_be_bytes()), None);
        }
        assert_eq!((host.queries.len(), host.events.len()), (QUERIES_MAX, EVENTS_MAX));
    }

    #[test]
    fn strangers_do_not_fill_the_cache() {
        let mut host = host(0);
        let mut query = [0; FRAME_MAX_LEN];
        for i in 0..2000_u32 {
            let from = IpAddr::from((0x0b00_0000 + i).to_be_bytes());
            let len = message::query(&mut query, MACS[1], from, ip("10.0.0.1"), None);
            assert!(host.handle_frame(0, &query[..len]));
        }
        assert_eq!((host.known.len(), host.answers.len()), (KNOWN_MAX, ANSWERS_MAX));
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.2"), None);
        let len =
            message::answer(&mut query, MACS[1], ip("10.0.0.2"), Some(ip("10.0.0.1")), MACS[0]);
        assert!(host.handle_frame(0, &query[..len]));
        assert_eq!(host.lookup(0, ip("10.0.0.2")), Some(at(1)), "who was asked finds room");
        assert_eq!(host.known.len(), KNOWN_MAX);
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

    #[test]
    fn a_routed_or_damaged_solicitation_is_ignored() {
        let mut host = host(0);
        let mut frame = [0; FRAME_MAX_LEN];
        let len = message::query(&mut frame, MACS[1], ip("fd00::2"), ip("fd00::1"), None);
        // Hop limit (RFC 4861, 7.1.1), checksum, code.
        for (at, value) in [(21, 254), (56, frame[56] ^ 1), (55, 1)] {
            let mut bad = frame;
            bad[at] = value;
            assert!(!host.handle_frame(0, &bad[..len]), "byte {at}");
        }
        assert!(host.handle_frame(0, &frame[..len]));
    }

    #[test]
    fn duplicate_address_detection_is_answered_to_all() {
        let mut host = host(0);
        let mut frame = [0; FRAME_MAX_LEN];
        let len = message::query(&mut frame, MACS[1], ip("::"), ip("fd00::1"), None);
        // The option with our address is not allowed in a solicitation from nobody.
        assert!(!host.handle_frame(0, &frame[..len]));
        let target = ip("fd00::1");
        let IpAddr::V6(target_v6) = target else { panic!() };
        let builder = PacketBuilder::ethernet2(MACS[1], [0x33, 0x33, 0xff, 0, 0, 1])
            .ipv6([0; 16], solicited_node(target_v6).octets(), 255)
            .icmpv6(etherparse::Icmpv6Type::NeighborSolicitation);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &target_v6.octets()).unwrap();
        assert!(host.handle_frame(0, &bytes));
        let [answer] = &frames(&mut host)[..] else { panic!() };
        assert_eq!(answer[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(answer[58], 0x20, "override, but not solicited");
    }

    #[test]
    fn pings_are_answered() {
        let mut host = host(0);
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2(MACS[1], MACS[0])
            .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
            .icmpv4_echo_request(7, 9)
            .write(&mut bytes, &[5; 57])
            .unwrap();
        assert!(host.handle_frame(0, &bytes));
        bytes.clear();
        let IpAddr::V6(link_local_1) = IpAddr::V6(link_local(MACS[1])) else { panic!() };
        PacketBuilder::ethernet2(MACS[1], MACS[0])
            .ipv6(link_local_1.octets(), link_local(MACS[0]).octets(), 64)
            .icmpv6_echo_request(7, 9)
            .write(&mut bytes, &[5; 57])
            .unwrap();
        assert!(host.handle_frame(0, &bytes));
        for frame in frames(&mut host) {
            assert!(frame.starts_with(&MACS[1]));
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            match (packet.net, packet.transport) {
                (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
                    assert_eq!(ip.header().destination(), [10, 0, 0, 2]);
                    let header = icmp.header();
                    assert_eq!(header.checksum, header.icmp_type.calc_checksum(&[5; 57]));
                    assert_eq!((icmp.type_u8(), icmp.payload()), (0, &[5; 57][..]));
                }
                (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                    let (from, to) = (ip.header().source(), ip.header().destination());
                    assert_eq!(to, link_local_1.octets());
                    assert!(icmp.is_checksum_valid(from, to));
                    assert_eq!((icmp.type_u8(), icmp.payload()), (129, &[5; 57][..]));
                }
                other => panic!("{other:?}"),
            }
        }
        bytes.clear();
        PacketBuilder::ethernet2(MACS[1], MACS[0])
            .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
            .icmpv4_echo_request(7, 9)
            .write(&mut bytes, &[5; 1000])
            .unwrap();
        assert!(!host.handle_frame(0, &bytes), "too long to keep");
    }

    proptest! {
        /// No frame makes a host panic, and none makes it speak more than its queue holds.
        #[test]
        fn any_frame_is_survived(
            v6: bool,
            answer: bool,
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            damage in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
            cut in 0usize..=100,
        ) {
            let mut host = host(0);
            let _ = host.handle_frame(0, &bytes);
            let mut frame = [0; FRAME_MAX_LEN];
            let (own, other) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
            let len = if answer {
                message::answer(&mut frame, MACS[1], ip(other), Some(ip(own)), MACS[0])
            } else {
                message::query(&mut frame, MACS[1], ip(other), ip(own), None)
            };
            for (at, value) in damage {
                frame[at] = value;
            }
            let _ = host.handle_frame(0, &frame[..len.min(cut)]);
            let _ = host.handle_frame(0, &frame[..len]);
            prop_assert!(frames(&mut host).len() <= ANSWERS_MAX);
        }
    }
}
