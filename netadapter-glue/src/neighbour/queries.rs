//! The queries that wait for their answers, and the connects that wait for their turn.
//!
//! Queries of one class take no place of another class: whatever frames and silent paths ask for, a connect finds its own.

use super::Link;
use super::query::{Class, Query, Silence};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

/// A connect without a query of its own, as all places of its class are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) ip: IpAddr,
    pub(super) local_ip: IpAddr,
}

#[derive(Debug)]
pub(super) struct Queries {
    /// One for each address, in their order. It grows with those of connects: data does not allocate, nor do frames.
    open: Vec<Query>,
    /// The first to come is the first to be asked for. It grows with them.
    waiting: VecDeque<Waiting>,
    summary: Summary,
    /// Of queries that a stranger can cause.
    strangers: Bucket,
}

/// A summary of all open queries, so that a turn in which none has work walks none.
#[derive(Debug)]
struct Summary {
    /// The next timer.
    next_ns: Option<u64>,
    /// A query may wait to be sent.
    is_due: bool,
    /// Places taken, by class.
    taken: [usize; 3],
}

impl Queries {
    pub(super) fn new() -> Self {
        let summary = Summary { next_ns: None, is_due: false, taken: [0; 3] };
        let open = Vec::with_capacity(DOUBTS_MAX + HINTS_MAX);
        Self { open, waiting: VecDeque::new(), summary, strangers: Bucket::new() }
    }

    fn find(&self, ip: IpAddr) -> Result<usize, usize> {
        self.open.binary_search_by_key(&ip, |query| query.ip)
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.find(ip).is_ok()
    }

    /// Changes the query for `ip`, if there is one.
    pub(super) fn change<T>(
        &mut self,
        ip: IpAddr,
        change: impl FnOnce(&mut Query) -> T,
    ) -> Option<T> {
        let at = self.find(ip).ok()?;
        let changed = change(&mut self.open[at]);
        self.summarize();
        Some(changed)
    }

    /// Takes a hint about a neighbour that is being asked. Returns false where it is not.
    pub(super) fn hint(&mut self, ip: IpAddr, source: Option<Link>) -> bool {
        let Ok(at) = self.find(ip) else { return false };
        self.open[at].hint(source);
        true
    }

    /// Whether there is a place for one more of this class.
    pub(super) const fn has_place(&self, class: Class) -> bool {
        self.summary.taken[class as usize] < class.places()
    }

    /// Whether one more query may be sent for the sake of strangers. It is counted.
    pub(super) fn admits_stranger(&mut self, now_ns: u64) -> bool {
        self.strangers.take(now_ns)
    }

    /// Adds a query, for whose class there is a place and for whose address there is none. Returns false where there is no
    /// memory.
    pub(super) fn add(&mut self, query: Query) -> bool {
        let Err(at) = self.find(query.ip) else { return true };
        if !self.reserve(query.class) {
            return false;
        }
        self.open.insert(at, query);
        self.summarize();
        true
    }

    /// Makes room for a query: for that of a connect beside all that doubts and hints may take, which then find theirs. Returns
    /// false where there is no memory.
    fn reserve(&mut self, class: Class) -> bool {
        let [_, doubts, hints] = self.summary.taken;
        let others = match class {
            Class::Connect => DOUBTS_MAX + HINTS_MAX - doubts - hints,
            Class::Doubt | Class::Hint => 0,
        };
        self.open.try_reserve(others + 1).is_ok()
    }

    /// Ends the query that an answer from `link` answers, if there is one.
    pub(super) fn answer(&mut self, ip: IpAddr, link: Link) -> Option<Query> {
        let at = self.find(ip).ok().filter(|at| self.open[*at].takes(link))?;
        let query = self.open.remove(at);
        self.summarize();
        Some(query)
    }

    /// Ends queries that `goes_on` says no to, of which `ended` is told.
    pub(super) fn retain(
        &mut self,
        mut goes_on: impl FnMut(&mut Query) -> bool,
        mut ended: impl FnMut(&Query),
    ) {
        self.open.retain_mut(|query| {
            let stays = goes_on(query);
            if !stays {
                ended(query);
            }
            stays
        });
        self.summarize();
    }

    /// Repeats queries whose timers have expired. Those without an answer end, of which `ended` is told.
    pub(super) fn handle_timeout(&mut self, now_ns: u64, ended: impl FnMut(&Query)) {
        if self.summary.next_ns.is_some_and(|at| now_ns >= at) {
            self.retain(|query| query.handle_timeout(now_ns) == Silence::GoesOn, ended);
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::next_waiting`] has work.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        if self.has_turn() { Some(0) } else { self.summary.next_ns }
    }

    /// Whether a query may wait to be sent.
    #[inline]
    pub(super) const fn may_be_due(&self) -> bool {
        self.summary.is_due
    }

    /// The next query of a connect that waits to be sent.
    pub(super) fn next_connect(&mut self) -> Option<&mut Query> {
        if !self.summary.is_due {
            return None;
        }
        self.open.iter_mut().find(|query| query.due && query.class == Class::Connect)
    }

    /// The next query that waits to be sent.
    pub(super) fn next(&mut self) -> Option<&mut Query> {
        if !self.summary.is_due {
            return None;
        }
        let Self { open, summary, .. } = self;
        let due = open.iter_mut().find(|query| query.due);
        summary.is_due = due.is_some();
        due
    }

    /// Lets a connect wait for its turn. Returns false where as many wait as may, or there is no memory.
    pub(super) fn wait(&mut self, connect: Waiting) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX && self.waiting.try_reserve(1).is_ok();
        if has_room {
            self.waiting.push_back(connect);
        }
        has_room
    }

    fn has_turn(&self) -> bool {
        !self.waiting.is_empty() && self.has_place(Class::Connect)
    }

    /// The connect whose turn it is, if there is a place for it.
    pub(super) fn next_waiting(&mut self) -> Option<Waiting> {
        if self.has_turn() { self.waiting.pop_front() } else { None }
    }

    /// Connects that wait for an answer or for their turn.
    pub(super) fn connects(&self) -> usize {
        self.summary.taken[Class::Connect as usize] + self.waiting.len()
    }

    fn summarize(&mut self) {
        let mut taken = [0; 3];
        for query in &self.open {
            taken[query.class as usize] += 1;
        }
        self.summary = Summary {
            next_ns: self.open.iter().map(|query| query.next_ns).min(),
            is_due: self.open.iter().any(|query| query.due),
            taken,
        };
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }
}

impl Class {
    /// Queries of the class that may be open at once.
    pub(super) const fn places(self) -> usize {
        match self {
            Self::Connect => CONNECTS_MAX,
            Self::Doubt => DOUBTS_MAX,
            Self::Hint => HINTS_MAX,
        }
    }
}

/// A token bucket, kept as the time at which it is full again.
#[derive(Debug)]
struct Bucket {
    full_ns: u64,
}

impl Bucket {
    const fn new() -> Self {
        Self { full_ns: 0 }
    }

    fn take(&mut self, now_ns: u64) -> bool {
        let missing_ns = self.full_ns.saturating_sub(now_ns);
        let has_token = missing_ns <= (STRANGERS_BURST - 1) * STRANGERS_INTERVAL_NS;
        if has_token {
            self.full_ns = now_ns.saturating_add(missing_ns + STRANGERS_INTERVAL_NS);
        }
        has_token
    }
}

/// Connects that are asked for at once.
pub(super) const CONNECTS_MAX: usize = 1024;
/// Silent paths that are asked for at once. A path that stays silent is asked for again.
pub(super) const DOUBTS_MAX: usize = 256;
/// Queries at once for which a frame is the only reason.
pub(super) const HINTS_MAX: usize = 32;
/// Connects that wait for their turn: as many as there can be connections.
pub(super) const WAITING_MAX: usize = 65_536;
/// Queries that strangers can cause: so many at once, and the time until one more.
pub(super) const STRANGERS_BURST: u64 = 64;
pub(super) const STRANGERS_INTERVAL_NS: u64 = 1_000_000_000 / 64;
