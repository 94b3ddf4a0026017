//! A question that waits for its answer.

use super::{Link, message};
use core::net::IpAddr;

/// What an expired timer leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Silence {
    /// It is asked again, or is not due.
    GoesOn,
    /// Nobody answers.
    GivenUp,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) ip: IpAddr,
    /// In whose name it is asked.
    pub(super) local_ip: IpAddr,
    /// Where the neighbour was: it is asked there first.
    probe: Option<Link>,
    /// Where everybody is asked, in turn.
    vlans: [Option<u16>; 2],
    sent: u8,
    pub(super) next_ns: u64,
    /// To be sent.
    pub(super) due: bool,
}

impl Query {
    pub(super) fn new(
        now_ns: u64,
        ip: IpAddr,
        local_ip: IpAddr,
        probe: Option<Link>,
        vlans: [Option<u16>; 2],
    ) -> Self {
        let next_ns = now_ns.saturating_add(RETRY_NS);
        Self { ip, local_ip, probe, vlans, sent: 1, next_ns, due: true }
    }

    /// It is asked from then on, and nothing is sent before.
    pub(super) const fn from(self, start_ns: u64) -> Self {
        Self { next_ns: start_ns, sent: 0, due: false, ..self }
    }

    /// Whether an answer from there is the one that is waited for. While a neighbour is asked where it
    /// was, nobody answers in its place.
    pub(super) fn takes(&self, link: Link) -> bool {
        self.probe.is_none_or(|probe| probe == link)
    }

    /// It may be elsewhere.
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

    /// Writes its frame; returns the length.
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

/// Time between two frames of one question.
const RETRY_NS: u64 = 250_000_000;
/// Frames to a neighbour that is silent, before everybody is asked.
const PROBES: u8 = 3;
/// Frames to everybody, before the address is unreachable.
const TRIES: u8 = 8;
