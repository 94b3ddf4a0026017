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
//!
//! Queries have places by their reasons ([`Neighbours::resolve`], [`doubt`](Neighbours::doubt),
//! [`hint`](Neighbours::hint)): a connect never finds the place taken by what frames or silent paths have caused. Only a
//! host that answered a query is remembered.

#[cfg(target_os = "linux")]
pub mod address_probe;
#[cfg(target_os = "linux")]
pub mod ask;
mod known;
mod message;
mod queries;
mod query;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use known::{Known, Neighbour};
use message::Message;
pub use message::link_local;
use queries::{CONNECTS_MAX, Queries, WAITING_MAX, Waiting};
use query::{Class, Query};

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
/// Bounds: 1,024 neighbours that answered (a full cache forgets the one that was confirmed first, but not for one that only
/// a frame asked for). Queries at a time, of 3 unicast and 8 broadcast frames: 1,024 of connects, 256 of doubts, 32 of hints;
/// the connects beyond wait for their turn, 65,536 at most. Of the queries that strangers can cause, hints and doubts of
/// unknown addresses, 64 a second and 64 at once. One series of unicast frames to a neighbour in a second. 16 answers wait
/// to be sent, and 128 resolutions, and those of all connects, to be fetched, beyond which they are dropped.
#[derive(Debug)]
pub struct Neighbours {
    mac: [u8; 6],
    /// The VLAN of queries.
    vlan: Option<u16>,
    addresses: Vec<IpAddr>,
    known: Known,
    queries: Queries,
    answers: VecDeque<Answer>,
    events: Events,
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
            known: Known::new(),
            queries: Queries::new(),
            answers: VecDeque::with_capacity(ANSWERS_MAX),
            events: Events(VecDeque::with_capacity(EVENTS_MAX)),
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
        let Self { addresses, queries, events, .. } = self;
        let moves = |query: &mut Query| {
            let own = own_address(addresses, query.local_ip, query.ip);
            query.local_ip = own.unwrap_or(query.local_ip);
            own.is_some()
        };
        queries.retain(moves, |query| events.report(query.class, query.ip, Err(Unreachable)));
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
                    self.hear_query(now_ns, from, Link { mac, vlan });
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

    /// The place of `ip`, if it is ours or was confirmed in the last ten minutes.
    pub fn lookup(&self, now_ns: u64, ip: IpAddr) -> Option<Link> {
        if self.addresses.contains(&ip) {
            return Some(Link { mac: self.mac, vlan: self.vlan });
        }
        self.known.lookup(now_ns, ip).map(|known| known.link)
    }

    /// Resolves `ip` from `local_ip` for a connect. The result comes by [`poll_event`](Self::poll_event): at once where it is
    /// known, after three seconds at most, and where more than 1,024 are looked for in its turn. A stale address is returned,
    /// and confirmed as well, which may lead to a second result.
    pub fn resolve(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr) {
        // Its result is owed from now on, and finds room whatever comes.
        if !self.events.reserve(self.queries.connects() + 1) {
            return self.events.report(Class::Connect, ip, Err(Unreachable));
        }
        if self.return_known(now_ns, ip, None, Class::Connect)
            || self.ask(now_ns, Class::Connect, (local_ip, ip), None, None)
        {
            return;
        }
        let may_wait = can_ask(local_ip, ip) && !self.queries.has_place(Class::Connect);
        if !(may_wait && self.queries.wait(Waiting { ip, local_ip })) {
            self.events.report(Class::Connect, ip, Err(Unreachable));
        }
    }

    /// Resolves `ip` from `local_ip` for a path that a packet from `source` has opened, where it is queried before all hosts
    /// are. Anybody can send such a packet, so this is no more than a hint: a result comes as for [`resolve`](Self::resolve),
    /// or none where too many are looked for.
    pub fn confirm(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr, source: Link) {
        if !self.return_known(now_ns, ip, Some(source), Class::Hint) {
            self.ask(now_ns, Class::Hint, (local_ip, ip), Some(source), Some(source));
        }
    }

    /// Confirms the place of `ip`: packets to it have no response; the last packet of it came from `source`. A result
    /// follows, but for those beyond the bounds: a path that stays silent is doubted again. A neighbour that was confirmed
    /// within the last second is queried when that is over: it may have moved since.
    pub fn doubt(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr, source: Option<Link>) {
        self.question(now_ns, Class::Doubt, (local_ip, ip), source);
    }

    /// Confirms the place of `ip`, as a packet of it came from `source`. Else as [`doubt`](Self::doubt).
    pub fn hint(&mut self, now_ns: u64, local_ip: IpAddr, ip: IpAddr, source: Option<Link>) {
        self.question(now_ns, Class::Hint, (local_ip, ip), source);
    }

    /// Frames for us or all in which another host says that an address of ours is its own (RFC 5227, 2.4).
    pub const fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// The outcome of the next query that ended.
    pub fn poll_event(&mut self) -> Option<Resolution> {
        self.events.0.pop_front()
    }

    /// Whether there may be a frame to send: [`Self::poll_transmit`] has none otherwise.
    #[inline]
    pub fn may_transmit(&self) -> bool {
        !self.answers.is_empty() || self.queries.may_be_due()
    }

    /// Writes the next frame to send to the start of `buffer`, which has room for
    /// [`FRAME_MAX_LEN`] bytes; returns its length.
    #[inline]
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.may_transmit().then(|| self.write_next(buffer)).flatten()
    }

    /// Connects come first: a flood of queries for us is a flood of answers.
    fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if let Some(query) = self.queries.next_connect() {
            return Some(query.write(buffer, self.mac));
        }
        if let Some(answer) = self.answers.pop_front() {
            buffer[..answer.len()].copy_from_slice(&answer);
            return Some(answer.len());
        }
        self.queries.next().map(|query| query.write(buffer, self.mac))
    }

    /// Repeats queries without an answer, gives up old ones, and begins those of connects whose turn has come.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let Self { queries, known, events, .. } = self;
        queries.handle_timeout(now_ns, |query| {
            known.remove(query.ip);
            events.report(query.class, query.ip, Err(Unreachable));
        });
        for _ in 0..CONNECTS_MAX {
            let Some(Waiting { ip, local_ip }) = self.queries.next_waiting() else { return };
            // An address of ours may be gone since: that one cannot be asked from.
            let local_ip = own_address(&self.addresses, local_ip, ip).unwrap_or(local_ip);
            self.resolve(now_ns, local_ip, ip);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has work.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.queries.poll_timeout()
    }

    // ---- what is heard ------------------------------------------------------------------------

    /// Handles an announcement to all hosts: it counts for a known neighbour only, and is a hint at best.
    fn hear_announcement(&mut self, now_ns: u64, message: &Message<'_>, vlan: Option<u16>) -> bool {
        let Some((from, mac)) = message.announcement() else { return false };
        let is_known = self.known.get(from).is_some();
        if is_known {
            self.hear_elsewhere(now_ns, from, Link { mac, vlan });
        }
        is_known
    }

    /// Takes the place of a host that asks for an address of ours. It ends a query of that host, and else is a hint at best:
    /// a host that was not asked is not remembered.
    fn hear_query(&mut self, now_ns: u64, ip: IpAddr, link: Link) {
        // An address of ours at another host is a conflict, not a neighbour.
        if is_unicast(ip) && !self.addresses.contains(&ip) {
            self.hear_answer(now_ns, ip, link);
        }
    }

    fn hear_answer(&mut self, now_ns: u64, ip: IpAddr, link: Link) {
        match self.queries.answer(ip, link) {
            Some(Query { local_ip, class, .. }) => {
                let confirmed = Neighbour { ip, link, local_ip, confirmed_ns: now_ns };
                self.known.learn(confirmed, class);
                self.events.report(class, ip, Ok(link));
            }
            None => self.hear_elsewhere(now_ns, ip, link),
        }
    }

    /// Takes a frame by which a known neighbour may be elsewhere.
    fn hear_elsewhere(&mut self, now_ns: u64, ip: IpAddr, link: Link) {
        if let Some(known) = self.known.get(ip).copied().filter(|known| known.link != link) {
            self.probe(now_ns, Class::Hint, &known, Some(link));
        }
    }

    // ---- what is asked ------------------------------------------------------------------------

    /// Returns the place of `ip`, if it is known, and confirms it where it is stale. Returns whether it is known.
    fn return_known(
        &mut self,
        now_ns: u64,
        ip: IpAddr,
        source: Option<Link>,
        class: Class,
    ) -> bool {
        let Some(link) = self.lookup(now_ns, ip) else { return false };
        self.events.report(class, ip, Ok(link));
        let stale = self.known.get(ip).copied().filter(|known| known.is_stale(now_ns));
        if let Some(known) = stale
            && !self.queries.contains(ip)
        {
            // The connect has what it waited for.
            let class = if class == Class::Connect { Class::Doubt } else { class };
            self.probe(now_ns, class, &known, source);
        }
        true
    }

    fn question(
        &mut self,
        now_ns: u64,
        class: Class,
        (local_ip, ip): (IpAddr, IpAddr),
        source: Option<Link>,
    ) {
        if self.addresses.contains(&ip) {
            return;
        }
        match self.known.get(ip).copied() {
            Some(known) => self.probe(now_ns, class, &known, source),
            None => {
                self.ask(now_ns, class, (local_ip, ip), source, None);
            }
        }
    }

    /// Starts a query to all hosts for an unknown neighbour; to the place `probe` first, if there is one. Returns false where
    /// there is no place for it now, or never will be. A connect that shares the query of another one has a frame of its own:
    /// that query may have sent its last one to a host that lives only since.
    fn ask(
        &mut self,
        now_ns: u64,
        class: Class,
        (local_ip, ip): (IpAddr, IpAddr),
        source: Option<Link>,
        probe: Option<Link>,
    ) -> bool {
        let has_place = self.queries.has_place(class);
        let is_connect = class == Class::Connect;
        let open = self.queries.change(ip, |query| {
            if let Some(place) = probe {
                query.turn_to(now_ns, place);
            }
            match query.class {
                Class::Connect if is_connect => query.due = true,
                Class::Doubt | Class::Hint if is_connect && has_place => {
                    query.take_over(now_ns, class);
                }
                Class::Connect | Class::Doubt | Class::Hint => {}
            }
            query.class
        });
        if let Some(open) = open {
            return open == class;
        }
        if !can_ask(local_ip, ip) || !has_place {
            return false;
        }
        if !is_connect && !self.queries.admits_stranger(now_ns) {
            return false;
        }
        let vlans = [source.map_or(self.vlan, |source| source.vlan), self.vlan];
        self.queries.add(Query::new(now_ns, class, ip, local_ip, probe, vlans))
    }

    /// Probes a known neighbour at its place. If it is silent, all hosts are queried, in the VLAN of
    /// `source`, too.
    fn probe(&mut self, now_ns: u64, class: Class, known: &Neighbour, source: Option<Link>) {
        let Neighbour { ip, link, .. } = *known;
        if self.queries.hint(ip, source) || !self.queries.has_place(class) {
            return;
        }
        let Some(local_ip) = own_address(&self.addresses, known.local_ip, ip) else { return };
        if class == Class::Hint && !self.queries.admits_stranger(now_ns) {
            return;
        }
        let start_ns = known.confirmed_ns.saturating_add(PROBE_INTERVAL_NS);
        let vlans = [link.vlan, source.map_or(self.vlan, |source| source.vlan)];
        let query = Query::new(now_ns, class, ip, local_ip, Some(link), vlans);
        // Where there is no memory, the neighbour is not asked, as where there is no place.
        self.queries.add(if now_ns < start_ns { query.from(start_ns) } else { query });
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

/// The outcomes that wait to be fetched, in their order.
#[derive(Debug)]
struct Events(VecDeque<Resolution>);

impl Events {
    /// Makes room for the results of so many connects. Returns false where there is no memory, or as many wait to be fetched
    /// as there can be connects.
    fn reserve(&mut self, connects: usize) -> bool {
        self.0.len() < WAITING_MAX && self.0.try_reserve(EVENTS_MAX + connects).is_ok()
    }

    /// Reports an outcome. One that no connect waits for is dropped where many wait to be fetched.
    fn report(&mut self, class: Class, ip: IpAddr, result: Result<Link, Unreachable>) {
        let room = match class {
            Class::Connect => self.0.capacity(),
            Class::Doubt | Class::Hint => EVENTS_MAX,
        };
        if self.0.len() < room {
            self.0.push_back(Resolution { ip, result });
        }
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

fn can_ask(local_ip: IpAddr, ip: IpAddr) -> bool {
    is_unicast(ip) && ip.is_ipv4() == local_ip.is_ipv4()
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
const ANSWERS_MAX: usize = 16;
const EVENTS_MAX: usize = 128;
/// The least time from an answer to the next query of the same neighbour, whatever frames announce.
const PROBE_INTERVAL_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
