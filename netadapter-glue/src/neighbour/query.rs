//! A query that waits for its answer.

use super::{Link, message};
use core::net::IpAddr;

/// The outcome of an expired timer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Silence {
    /// The query is sent again, or is not due.
    GoesOn,
    /// There is no answer.
    GivenUp,
}

/// The reason for a query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// A connect waits for the answer.
    Connect,
    /// Packets to the address have no response, or its place is stale.
    Doubt,
    /// A frame, which anybody can send. Nobody waits for the answer.
    Hint,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) ip: IpAddr,
    pub(super) class: Class,
    /// The source address.
    pub(super) local_ip: IpAddr,
    /// The place of the neighbour, where it is queried first.
    probe: Option<Link>,
    /// It was queried there, or is.
    probed: bool,
    /// The VLANs in which all hosts are queried, in turn.
    vlans: [Option<u16>; 2],
    sent: u8,
    pub(super) next_ns: u64,
    /// The query waits to be sent.
    pub(super) due: bool,
}

impl Query {
    pub(super) fn new(
        now_ns: u64,
        class: Class,
        ip: IpAddr,
        local_ip: IpAddr,
        probe: Option<Link>,
        vlans: [Option<u16>; 2],
    ) -> Self {
        let next_ns = now_ns.saturating_add(RETRY_NS);
        let probed = probe.is_some();
        Self { ip, class, local_ip, probe, probed, vlans, sent: 1, next_ns, due: true }
    }

    /// The query begins at `start_ns`.
    pub(super) const fn from(self, start_ns: u64) -> Self {
        Self { next_ns: start_ns, sent: 0, due: false, ..self }
    }

    /// Whether an answer from that place counts. While a neighbour is queried at its place, no other host
    /// can answer for it; and an answer before the query belongs to an earlier one (RFC 4861, 7.3.1).
    pub(super) fn takes(&self, link: Link) -> bool {
        self.sent > 0 && self.probe.is_none_or(|probe| probe == link)
    }

    /// A packet of the neighbour has come from `place` before its answer: it is queried there before all hosts are again, once.
    pub(super) fn turn_to(&mut self, now_ns: u64, place: Link) {
        if !self.probed {
            let Self { ip, class, local_ip, vlans, .. } = *self;
            *self = Self::new(now_ns, class, ip, local_ip, Some(place), vlans);
        }
    }

    /// A query that others have begun becomes one of `class`, with all of its time: it may have been repeated often, or wait
    /// at a place that a stranger has named.
    pub(super) fn take_over(&mut self, now_ns: u64, class: Class) {
        let Self { ip, local_ip, vlans, .. } = *self;
        *self = Self::new(now_ns, class, ip, local_ip, None, vlans);
    }

    /// Takes a hint that the neighbour may be elsewhere.
    pub(super) fn hint(&mut self, source: Option<Link>) {
        if let Some(source) = source {
            self.vlans[1] = source.vlan;
        }
    }

    pub(super) fn handle_timeout(&mut self, now_ns: u64) -> Silence {
        if now_ns < self.next_ns {
            return Silence::GoesOn;
        }
        match self.probe {
            Some(_) if self.sent < PROBES => self.sent += 1,
            Some(_) => (self.probe, self.sent) = (None, 1),
            None if self.sent < TRIES => self.sent += 1,
            None => return Silence::GivenUp,
        }
        self.next_ns = now_ns.saturating_add(RETRY_NS);
        self.due = true;
        Silence::GoesOn
    }

    /// Writes the frame of the query. Returns the length.
    pub(super) fn write(&mut self, buffer: &mut [u8], own_mac: [u8; 6]) -> usize {
        self.due = false;
        let to = self.probe.map(|link| link.mac);
        let vlan = match self.probe {
            Some(link) => link.vlan,
            None => self.vlans[usize::from(self.sent + 1) % 2],
        };
        let len = message::query(buffer, own_mac, self.local_ip, self.ip, to);
        message::tag(buffer, len, vlan)
    }
}

/// Time between two frames of one query.
const RETRY_NS: u64 = 250_000_000;
/// Frames to a silent neighbour, before all hosts are queried.
const PROBES: u8 = 3;
/// Frames to all hosts, before the address is unreachable.
const TRIES: u8 = 8;
