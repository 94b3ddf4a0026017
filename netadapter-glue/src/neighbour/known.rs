//! The neighbours that have answered a query of ours.

use super::Link;
use super::query::Class;
use alloc::vec::Vec;
use core::net::IpAddr;

/// A neighbour that has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbour {
    pub(super) ip: IpAddr,
    pub(super) link: Link,
    /// The address of ours that asked it.
    pub(super) local_ip: IpAddr,
    /// The time of its last answer.
    pub(super) confirmed_ns: u64,
}

impl Neighbour {
    pub(super) const fn is_stale(&self, now_ns: u64) -> bool {
        now_ns >= self.confirmed_ns.saturating_add(REACHABLE_NS)
    }

    const fn is_forgotten(&self, now_ns: u64) -> bool {
        now_ns >= self.confirmed_ns.saturating_add(LIFETIME_NS)
    }
}

/// All of them. A frame alone adds none: a host that asks for us teaches nothing, as its sender can invent it.
#[derive(Debug)]
pub(super) struct Known {
    /// In the order of their addresses. It grows with them, up to [`KNOWN_MAX`].
    neighbours: Vec<Neighbour>,
}

impl Known {
    pub(super) const fn new() -> Self {
        Self { neighbours: Vec::new() }
    }

    fn find(&self, ip: IpAddr) -> Result<usize, usize> {
        self.neighbours.binary_search_by_key(&ip, |neighbour| neighbour.ip)
    }

    /// The neighbour, whatever its age.
    pub(super) fn get(&self, ip: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(self.find(ip).ok()?)
    }

    /// The neighbour, if it was confirmed in the last ten minutes.
    pub(super) fn lookup(&self, now_ns: u64, ip: IpAddr) -> Option<&Neighbour> {
        self.get(ip).filter(|neighbour| !neighbour.is_forgotten(now_ns))
    }

    /// Learns an answer. A full table forgets the neighbour that was confirmed first; for one that a hint asked for, only if
    /// its time is over, so that hosts which strangers invent displace none. Where there is no memory, nothing is learned.
    pub(super) fn learn(&mut self, neighbour: Neighbour, class: Class) {
        if let Ok(at) = self.find(neighbour.ip) {
            self.neighbours[at] = neighbour;
            return;
        }
        if self.neighbours.len() == KNOWN_MAX && !self.forget_first(neighbour.confirmed_ns, class) {
            return;
        }
        if let Err(at) = self.find(neighbour.ip)
            && self.neighbours.try_reserve(1).is_ok()
        {
            self.neighbours.insert(at, neighbour);
        }
    }

    /// Forgets the neighbour that was confirmed first. Returns whether it might.
    fn forget_first(&mut self, now_ns: u64, class: Class) -> bool {
        let ages = self.neighbours.iter().enumerate();
        let first = ages.min_by_key(|(_, neighbour)| neighbour.confirmed_ns);
        let Some((at, first)) = first else { return false };
        let may = match class {
            Class::Connect | Class::Doubt => true,
            Class::Hint => first.is_forgotten(now_ns),
        };
        if may {
            self.neighbours.remove(at);
        }
        may
    }

    pub(super) fn remove(&mut self, ip: IpAddr) {
        if let Ok(at) = self.find(ip) {
            self.neighbours.remove(at);
        }
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.neighbours.len()
    }
}

/// Neighbours that are remembered.
pub(super) const KNOWN_MAX: usize = 1024;
/// The time for which a neighbour that answered is reachable at its place (RFC 4861, 10).
const REACHABLE_NS: u64 = 30_000_000_000;
/// The time for which a neighbour is remembered.
pub(super) const LIFETIME_NS: u64 = 600_000_000_000;
