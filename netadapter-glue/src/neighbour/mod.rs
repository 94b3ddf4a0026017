//! Address resolution where no operating system owns the address: ARP and IPv6 neighbour discovery.
//!
//! Sans-IO: frames in by [`Neighbours::handle_frame`], frames out by [`Neighbours::poll_transmit`],
//! time as an argument. Answers for its own addresses, asks for others, and answers pings so that
//! a user can tell whether the edge works. No VLAN tags, no redirects, no routers: every address is
//! on the link ([`Neighbours::next_hop`]). It joins no multicast group by MLD, so a switch that
//! snoops must flood.

mod message;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use message::Message;
pub use message::link_local;

/// Nobody answered for the address, or it cannot be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unreachable;

/// How a call of [`Neighbours::resolve`] ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resolution {
    /// The address that was asked for.
    pub ip: IpAddr,
    /// Its Ethernet address.
    pub result: Result<[u8; 6], Unreachable>,
}

/// The Ethernet addresses of the hosts on a link.
///
/// Bounds: 1024 neighbours, of which a full cache forgets the one nearest to its end when another
/// was asked for and ignores one that only announced itself; 64 queries at a time; 16 answers and
/// 128 resolutions that nobody has fetched, beyond which they are dropped.
#[derive(Debug)]
pub struct Neighbours {
    mac: [u8; 6],
    addresses: Vec<IpAddr>,
    known: BTreeMap<IpAddr, Known>,
    queries: Vec<Query>,
    answers: VecDeque<Answer>,
    events: VecDeque<Resolution>,
}

impl Neighbours {
    /// Answers for `addresses` with `mac`; with an IPv6 address among them, for the link-local
    /// address of `mac` too ([`link_local`]).
    pub fn new(mac: [u8; 6], addresses: &[IpAddr]) -> Self {
        Self {
            mac,
            addresses: with_link_local(mac, addresses),
            known: BTreeMap::new(),
            queries: Vec::with_capacity(QUERIES_MAX),
            answers: VecDeque::with_capacity(ANSWERS_MAX),
            events: VecDeque::with_capacity(EVENTS_MAX),
        }
    }

    /// Answers for `addresses` from now on. What is being asked for in the name of another is given up.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.addresses = with_link_local(self.mac, addresses);
        let mut index = 0;
        while let Some(query) = self.queries.get(index) {
            let ip = query.ip;
            if self.addresses.contains(&query.local_ip) {
                index += 1;
            } else {
                self.queries.swap_remove(index);
                self.report(ip, Err(Unreachable));
            }
        }
    }

    /// Takes a received frame; true where it was a query, an answer or a ping for us.
    ///
    /// Only such a frame teaches anything: what a stranger announces to all is ignored.
    pub fn handle_frame(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        let for_us = frame.starts_with(&self.mac) || frame.first().is_some_and(|b| b & 1 != 0);
        let Some(message) = for_us.then(|| message::parse(frame)).flatten() else { return false };
        let (Message::Query { target: to, .. }
        | Message::Answer { to, .. }
        | Message::Echo { to, .. }) = message;
        if !self.addresses.contains(&to) {
            return false;
        }
        match message {
            Message::Query { target, from, mac } => {
                // A duplicate address detection comes from nobody, and gets its answer all the same.
                if let Some(from) = from {
                    self.learn(now_ns, from, mac);
                }
                let own = self.mac;
                self.answer(|bytes| message::answer(bytes, own, target, from, mac));
            }
            Message::Answer { from, mac, .. } => {
                if self.known.contains_key(&from) || self.is_asked(from) {
                    self.learn(now_ns, from, mac);
                }
            }
            Message::Echo { .. } => {
                let own = self.mac;
                self.answer(|bytes| message::echo_reply(bytes, own, &message));
            }
        }
        true
    }

    /// Where packets to `ip` go first. Always `ip` itself: every address is on the link.
    pub fn next_hop(&self, ip: IpAddr) -> IpAddr {
        ip
    }

    /// The Ethernet address of `ip`, if it is known and at most a minute old.
    pub fn lookup(&self, now_ns: u64, ip: IpAddr) -> Option<[u8; 6]> {
        if self.addresses.contains(&ip) {
            return Some(self.mac);
        }
        self.known.get(&ip).filter(|known| now_ns < known.expiry_ns).map(|known| known.mac)
    }

    /// Asks for the Ethernet address of `ip` in the name of `local_ip`. The result comes by
    /// [`poll_event`](Self::poll_event): at once where it is known, after two seconds at most.
    pub fn resolve(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr) {
        if let Some(mac) = self.lookup(now_ns, ip) {
            return self.report(ip, Ok(mac));
        }
        if self.is_asked(ip) {
            return;
        }
        let can_ask = is_unicast(ip) && ip.is_ipv4() == local_ip.is_ipv4();
        if !can_ask || self.queries.len() == QUERIES_MAX {
            return self.report(ip, Err(Unreachable));
        }
        let next_ns = now_ns.saturating_add(RETRY_NS);
        self.queries.push(Query { ip, local_ip, sent: 1, next_ns, due: true });
    }

    /// The next resolution that ended.
    pub fn poll_event(&mut self) -> Option<Resolution> {
        self.events.pop_front()
    }

    /// Writes the next frame to send to the start of `buffer`, which has room for
    /// [`FRAME_MAX_LEN`] bytes; returns its length.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if let Some(answer) = self.answers.pop_front() {
            buffer[..answer.len()].copy_from_slice(&answer);
            return Some(answer.len());
        }
        let query = self.queries.iter_mut().find(|query| query.due)?;
        query.due = false;
        Some(message::query(buffer, self.mac, query.local_ip, query.ip))
    }

    /// Repeats queries without an answer and gives up old ones.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let mut index = 0;
        while let Some(query) = self.queries.get_mut(index) {
            index += 1;
            if now_ns < query.next_ns {
                continue;
            }
            if query.sent < TRIES {
                query.sent += 1;
                query.next_ns = now_ns.saturating_add(RETRY_NS);
                query.due = true;
                continue;
            }
            let ip = query.ip;
            index -= 1;
            self.queries.swap_remove(index);
            self.report(ip, Err(Unreachable));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.queries.iter().map(|query| query.next_ns).min()
    }

    fn is_asked(&self, ip: IpAddr) -> bool {
        self.queries.iter().any(|query| query.ip == ip)
    }

    fn learn(&mut self, now_ns: u64, ip: IpAddr, mac: [u8; 6]) {
        // An address of ours in somebody else's hands is a conflict, not a neighbour.
        if !is_unicast(ip) || self.addresses.contains(&ip) {
            return;
        }
        let asked = self.queries.iter().position(|query| query.ip == ip);
        if asked.is_some() || self.known.contains_key(&ip) || self.known.len() < KNOWN_MAX {
            self.make_room(ip);
            let expiry_ns = now_ns.saturating_add(LIFETIME_NS);
            self.known.insert(ip, Known { mac, expiry_ns });
        }
        if let Some(asked) = asked {
            self.queries.swap_remove(asked);
            self.report(ip, Ok(mac));
        }
    }

    fn make_room(&mut self, ip: IpAddr) {
        if self.known.len() < KNOWN_MAX || self.known.contains_key(&ip) {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, known)| known.expiry_ns);
        if let Some(oldest) = oldest.map(|(&ip, _)| ip) {
            self.known.remove(&oldest);
        }
    }

    /// The latest news of an address replaces older news that nobody has fetched.
    fn report(&mut self, ip: IpAddr, result: Result<[u8; 6], Unreachable>) {
        self.events.retain(|event| event.ip != ip);
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(Resolution { ip, result });
        }
    }

    fn answer(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        if self.answers.len() == ANSWERS_MAX {
            return;
        }
        let mut answer = Answer::from_array([0; FRAME_MAX_LEN]);
        let len = write(&mut answer);
        answer.truncate(len);
        self.answers.push_back(answer);
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    mac: [u8; 6],
    expiry_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Query {
    ip: IpAddr,
    local_ip: IpAddr,
    sent: u8,
    next_ns: u64,
    /// To be sent by `poll_transmit`.
    due: bool,
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

fn is_unicast(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_multicast() && !ip.is_unspecified() && !is_broadcast
}

/// The multicast group in which a host listens for questions about `ip` (RFC 4291, 2.7.1).
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
/// Time between two queries for the same address.
const RETRY_NS: u64 = 250_000_000;
/// Queries for one address before it is unreachable.
const TRIES: u8 = 8;
const LIFETIME_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryEdge, pair};
    use crate::{Edge, Transmit};
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

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
                edge.transmit(64, &mut |buffer| {
                    let len = host.poll_transmit(buffer)?;
                    Some(Transmit { len, segments: None })
                })
                .unwrap();
            }
            for (host, edge) in hosts.iter_mut().zip(&mut *edges) {
                moved += edge
                    .receive(64, &mut |received| {
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
            let resolution = Resolution { ip: remote, result: Ok(MACS[1]) };
            assert_eq!(hosts[0].poll_event(), Some(resolution));
            assert_eq!(hosts[0].lookup(0, remote), Some(MACS[1]));
            // The one that was asked need not ask.
            assert_eq!(hosts[1].lookup(0, local), Some(MACS[0]));
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

    /// An address that was taken away is no longer answered for, nor asked from; a new one is.
    #[test]
    fn addresses_come_and_go() {
        let mut host = host(0);
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.9"));
        host.resolve(0, ip("fd00::1"), ip("fd00::9"));
        assert_eq!(frames(&mut host).len(), 2);
        host.set_addresses(&[ip("10.0.0.7"), ip("fd00::1")]);
        let given_up = Resolution { ip: ip("10.0.0.9"), result: Err(Unreachable) };
        assert_eq!((host.poll_event(), host.poll_event()), (Some(given_up), None));
        let mut query = [0; FRAME_MAX_LEN];
        for (target, answered) in [("10.0.0.1", false), ("10.0.0.7", true)] {
            let len = message::query(&mut query, MACS[1], ip("10.0.0.2"), ip(target));
            assert_eq!(host.handle_frame(1, &query[..len]), answered, "{target}");
            assert_eq!(frames(&mut host).len(), usize::from(answered), "{target}");
        }
        assert!(host.addresses.contains(&IpAddr::V6(link_local(MACS[0]))));
    }

    #[test]
    fn what_cannot_be_asked_for_is_unreachable() {
        let mut host = host(0);
        for text in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "fd00::9", "ff02::1"] {
            host.resolve(0, ip("10.0.0.1"), ip(text));
            assert_eq!(host.poll_event().unwrap().result, Err(Unreachable), "{text}");
        }
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.1"));
        assert_eq!(host.poll_event().unwrap().result, Ok(MACS[0]));
    }

    #[test]
    fn queries_and_events_are_bounded() {
        let mut host = host(0);
        for i in 0..1000_u32 {
            host.resolve(0, ip("10.0.0.1"), IpAddr::from((0x0b00_0000 + i).to_be_bytes()));
        }
        assert_eq!((host.queries.len(), host.events.len()), (QUERIES_MAX, EVENTS_MAX));
    }

    #[test]
    fn strangers_do_not_fill_the_cache() {
        let mut host = host(0);
        let mut query = [0; FRAME_MAX_LEN];
        for i in 0..2000_u32 {
            let from = IpAddr::from((0x0b00_0000 + i).to_be_bytes());
            let len = message::query(&mut query, MACS[1], from, ip("10.0.0.1"));
            assert!(host.handle_frame(0, &query[..len]));
        }
        assert_eq!((host.known.len(), host.answers.len()), (KNOWN_MAX, ANSWERS_MAX));
        host.resolve(0, ip("10.0.0.1"), ip("10.0.0.2"));
        let len =
            message::answer(&mut query, MACS[1], ip("10.0.0.2"), Some(ip("10.0.0.1")), MACS[0]);
        assert!(host.handle_frame(0, &query[..len]));
        assert_eq!(host.lookup(0, ip("10.0.0.2")), Some(MACS[1]), "who was asked finds room");
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
            let len = message::query(&mut frame, MACS[1], ip(from), ip(target));
            assert!(!host.handle_frame(0, &frame[..len]));
            assert_eq!(host.lookup(0, ip(from)), None);
        }
        assert!(frames(&mut host).is_empty());
    }

    #[test]
    fn a_routed_or_damaged_solicitation_is_ignored() {
        let mut host = host(0);
        let mut frame = [0; FRAME_MAX_LEN];
        let len = message::query(&mut frame, MACS[1], ip("fd00::2"), ip("fd00::1"));
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
        let len = message::query(&mut frame, MACS[1], ip("::"), ip("fd00::1"));
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
                message::query(&mut frame, MACS[1], ip(other), ip(own))
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
