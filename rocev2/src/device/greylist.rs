//! Requests that were refused for want of room a moment ago: one that comes again is from somebody who waits for the answer.
//!
//! A forger of addresses who wants to be many asks once from each, while a peer repeats its REQ until it is answered: after half a
//! second the first time, four seconds at most (ours, Linux). So a repeated REQ goes before those that come for the first time. What
//! is kept of a REQ is 16 bits of a keyed hash of its source and ID, for three generations, of which the youngest does not count
//! yet: the copies that a forger sends at once are no repetitions. Where there is no room for a tag, its REQ is new when it
//! comes again.

use crate::env::{Duration, Instant};
use alloc::vec::Vec;

/// A REQ counts as repeated one to three generations after it was refused, so at each interval of a peer from 2.5 s to 5 s.
const GENERATION: Duration = Duration::from_millis(2500);
const GENERATIONS: usize = 3;
/// Tags of one hash that are kept, and hashes; half a megabyte a generation.
const WAYS: usize = 8;
const BUCKETS: usize = 1 << 15;

/// The tags of one generation. It takes memory with its first one, and keeps it.
#[derive(Debug, Default)]
struct Tags {
    buckets: Vec<[u16; WAYS]>,
    has_any: bool,
}

impl Tags {
    fn clear(&mut self) {
        if core::mem::take(&mut self.has_any) {
            self.buckets.fill([0; WAYS]);
        }
    }

    fn contain(&self, hash: u32) -> bool {
        self.has_any && self.buckets.get(bucket(hash)).is_some_and(|ways| ways.contains(&tag(hash)))
    }

    fn add(&mut self, hash: u32) {
        if self.buckets.is_empty() {
            if self.buckets.try_reserve_exact(BUCKETS).is_err() {
                return;
            }
            self.buckets.resize(BUCKETS, [0; WAYS]);
        }
        let tag = tag(hash);
        let Some(ways) = self.buckets.get_mut(bucket(hash)) else { return };
        if let Some(way) = ways.iter_mut().find(|way| **way == 0 || **way == tag) {
            *way = tag;
            self.has_any = true;
        }
    }
}

const fn bucket(hash: u32) -> usize {
    hash as usize % BUCKETS
}

/// Bits of the hash that choose no bucket; never 0, which is no tag.
const fn tag(hash: u32) -> u16 {
    let tag = (hash >> 16) as u16;
    if tag == 0 { 1 } else { tag }
}

/// The requests that were refused in the last seconds, by their hashes.
#[derive(Debug, Default)]
pub(super) struct Greylist {
    generations: [Tags; GENERATIONS],
    /// The place of the youngest generation, and its beginning.
    young: usize,
    since: Instant,
}

impl Greylist {
    /// Keeps a request that was refused.
    pub(super) fn remember(&mut self, now: Instant, hash: u32) {
        self.turn(now);
        self.generations[self.young].add(hash);
    }

    /// Whether a request was refused before, and not just now. One of 4,000 others is taken for one that was, where all places are
    /// taken.
    pub(super) fn has(&mut self, now: Instant, hash: u32) -> bool {
        self.turn(now);
        let young = self.young;
        self.generations.iter().enumerate().any(|(at, tags)| at != young && tags.contain(hash))
    }

    /// Begins the generations that are due.
    fn turn(&mut self, now: Instant) {
        for _ in 0..GENERATIONS {
            if now.saturating_since(self.since) < GENERATION {
                return;
            }
            self.young = (self.young + 1) % GENERATIONS;
            self.generations[self.young].clear();
            self.since = self.since + GENERATION;
        }
        // A long silence has ended them all.
        self.since = self.since.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_request_is_repeated_after_a_while_and_not_for_ever() {
        let mut list = Greylist::default();
        assert!(!list.has(at(0), 7));
        for begin in [0, 10_000, 99_999, 1_000_000] {
            list.has(at(begin), 7);
            list.remember(at(begin), 7);
            // Whatever the generation's age is: at once never, at a peer's interval always, later never again.
            assert!(!list.has(at(begin), 7));
            assert!([2500, 4300, 4831].iter().all(|ms| list.has(at(begin + ms), 7)), "{begin}");
            assert!(!list.has(at(begin + 2500), 8));
            assert!(!list.has(at(begin + 7500), 7));
        }
    }

    /// Goal: where far more is refused than there is room for, what has found room is kept, and few others are taken for it.
    #[test]
    fn a_full_list_confuses_few() {
        let mut list = Greylist::default();
        let hash = |n: u32| n.wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b);
        for n in 0..1_000_000 {
            list.remember(at(0), hash(n));
        }
        let kept = (0..1_000_000).filter(|n| list.has(at(2500), hash(*n))).count();
        assert!((240_000..280_000).contains(&kept), "{kept}");
        let confused = (1_000_000..2_000_000).filter(|n| list.has(at(2500), hash(*n))).count();
        assert!(confused < 500, "{confused}");
        assert!((0..1000).all(|n| list.has(at(2500), hash(n))), "the first are kept");
    }
}
