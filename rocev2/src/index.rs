//! Places in a table, by the hash of a key of what is there.
//!
//! The keys stay in the table: an index names the places whose key may be the one that is looked for, and its
//! owner compares. Room for all entries is made while the table grows, so that an entry, which a packet may
//! cause, takes no memory. An entry that goes leaves no mark, so entries may come and go for ever.

use crate::env::Rng;
use alloc::vec::Vec;

/// A secret number of keys, so that peers cannot choose keys whose entries lie together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret(u64, u64);

impl Secret {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self(rng.u64(), rng.u64() | 1)
    }

    /// The hash of a key's words.
    pub(crate) fn hash(self, words: impl IntoIterator<Item = u64>) -> u32 {
        let hash = words.into_iter().fold(self.0, |sum, word| {
            let product = u128::from(sum ^ word) * u128::from(self.1);
            (product >> 64) as u64 ^ product as u64
        });
        (hash >> 32) as u32 ^ hash as u32
    }
}

/// An entry, or the room for one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Cell {
    hash: u32,
    place: u32,
}

const EMPTY: Cell = Cell { hash: 0, place: u32::MAX };

/// Cells for so many entries: half of them stay empty, so that the next gap is near.
const fn cells(entries: usize) -> usize {
    if entries == 0 { 0 } else { (2 * entries).next_power_of_two() }
}

/// A hash table of places. An entry lies at its home, which its hash names, or behind it without a gap.
#[derive(Debug, Default)]
pub(crate) struct Index {
    cells: Vec<Cell>,
    entries: usize,
}

impl Index {
    /// Makes room for so many entries in all. `None`: no memory, and nothing has changed.
    pub(crate) fn make_room(&mut self, entries: usize) -> Option<()> {
        let cells = cells(entries);
        if cells > self.cells.len() {
            let mut larger = Vec::new();
            larger.try_reserve_exact(cells).ok()?;
            larger.resize(cells, EMPTY);
            let before = core::mem::replace(&mut self.cells, larger);
            self.entries = 0;
            before.into_iter().filter(|cell| *cell != EMPTY).for_each(|cell| self.put(cell));
        }
        Some(())
    }

    /// Bytes that room for so many entries takes where there is not so much.
    pub(crate) fn growth_bytes(&self, entries: usize) -> usize {
        let cells = cells(entries);
        if cells > self.cells.len() { cells * size_of::<Cell>() } else { 0 }
    }

    /// Whether there is no room for another entry.
    pub(crate) const fn is_full(&self) -> bool {
        self.entries >= self.cells.len() / 2
    }

    /// Adds an entry, for which there is room, unless it is there.
    pub(crate) fn insert(&mut self, hash: u32, place: usize) {
        // Tables have far fewer places than 2^32.
        self.put(Cell { hash, place: place as u32 });
    }

    fn put(&mut self, cell: Cell) {
        let mut places = self.behind(cell.hash);
        let place = places.find(|at| self.cells[*at] == EMPTY || self.cells[*at] == cell);
        let place = place.expect("the owner has made room");
        self.entries += usize::from(self.cells[place] == EMPTY);
        self.cells[place] = cell;
    }

    /// The places whose keys have this hash.
    pub(crate) fn find(&self, hash: u32) -> impl Iterator<Item = usize> {
        let cells = self.behind(hash).map(|at| self.cells[at]).take_while(|cell| *cell != EMPTY);
        cells.filter(move |cell| cell.hash == hash).map(|cell| cell.place as usize)
    }

    /// Removes an entry. One that is not there is ignored.
    pub(crate) fn remove(&mut self, hash: u32, place: usize) {
        let cell = Cell { hash, place: place as u32 };
        let mut entries = self.behind(hash).take_while(|at| self.cells[*at] != EMPTY);
        let Some(mut gap) = entries.find(|at| self.cells[*at] == cell) else { return };
        // Those behind move up into the gap, as far as it is not before their home.
        for at in self.behind(gap as u32).skip(1) {
            let moved = self.cells[at];
            if moved == EMPTY {
                break;
            }
            if self.distance(moved.hash as usize, at) >= self.distance(gap, at) {
                self.cells[gap] = moved;
                gap = at;
            }
        }
        self.cells[gap] = EMPTY;
        self.entries -= 1;
    }

    /// Removes the entries, hash and place, that are not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32, usize) -> bool) {
        for at in 0..self.cells.len() {
            // Another may move up into the gap.
            while self.cells[at] != EMPTY {
                let Cell { hash, place } = self.cells[at];
                if keep(hash, place as usize) {
                    break;
                }
                self.remove(hash, place as usize);
            }
        }
    }

    /// All cells, from the home of a hash on.
    fn behind(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let cells = self.cells.len();
        (0..cells).map(move |step| (hash as usize + step) & (cells - 1))
    }

    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.cells.len() - 1)
    }

    /// Whether there is no entry.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| *cell == EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// An index finds what was put in and not taken out, however entries come and go.
        #[test]
        fn entries_are_found_until_they_are_removed(
            steps in prop::collection::vec((0_u32..12, 0_usize..4, any::<bool>()), 0..200),
        ) {
            let (mut index, mut model) = (Index::default(), BTreeSet::new());
            index.make_room(3).unwrap();
            for (hash, place, adds) in steps {
                if adds && model.insert((hash, place)) {
                    index.make_room(model.len()).unwrap();
                    index.insert(hash, place);
                } else if !adds {
                    model.remove(&(hash, place));
                    index.remove(hash, place);
                }
                for hash in 0..12 {
                    let found: BTreeSet<_> = index.find(hash).collect();
                    let known = model.iter().filter(|entry| entry.0 == hash);
                    prop_assert_eq!(found, known.map(|entry| entry.1).collect());
                }
            }
        }
    }

    proptest! {
        /// Of any entries those stay that are to be kept, and the room of the others is there again.
        #[test]
        fn entries_are_kept_or_removed(
            entries in prop::collection::btree_set((0_u32..40, 0_usize..4), 0..20),
            kept in 0_u32..40,
        ) {
            let mut index = Index::default();
            index.make_room(entries.len()).unwrap();
            for (hash, place) in &entries {
                index.insert(*hash, *place);
                index.insert(*hash, *place);
            }
            index.retain(|hash, place| hash < kept && place != 2);
            let mut left = 0;
            for (hash, place) in &entries {
                let found = index.find(*hash).filter(|found| found == place).count();
                prop_assert_eq!(found, usize::from(*hash < kept && *place != 2));
                left += found;
            }
            prop_assert_eq!(index.entries, left);
        }
    }

    #[test]
    fn an_index_without_room_finds_nothing() {
        let mut index = Index::default();
        assert_eq!(index.find(7).count(), 0);
        index.remove(7, 0);
        assert!(index.is_empty());
    }

    #[test]
    fn each_word_and_each_secret_counts() {
        let secrets = [7, 8].map(|seed| Secret::new(&mut crate::env::Rng::from_seed([seed; 32])));
        let keys = [[0, 0], [0, 1], [1, 0], [1, 1], [u64::MAX, 0]];
        let hashes: BTreeSet<_> =
            secrets.iter().flat_map(|secret| keys.map(|key| secret.hash(key))).collect();
        assert_eq!(hashes.len(), 10);
    }
}
