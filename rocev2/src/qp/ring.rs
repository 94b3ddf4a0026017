//! The rings between the threads that post work requests and the core that executes them.
//!
//! A request is written once, where it stays until it ends: in lines, the first with the first elements. A line
//! is a cache line, or half of one where a request of one element needs no more. The number of lines is that of
//! the queue's largest request, so the memory follows what the queue was created for. The lines are atomics,
//! because two threads touch them; the counts say whose an entry is, so all other accesses are relaxed.

use super::work::{MAX_SGE, PostError, Sge};
use crate::ids::Lkey;
use alloc::boxed::Box;
use alloc::sync::Arc;
use atomic::{AtomicU32, AtomicU64};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(not(all(loom, test)))]
use core::sync::atomic;
#[cfg(all(loom, test))]
use loom::sync::atomic;

/// A line of a ring. An entry begins with one, and consists of several where it is longer.
pub(super) trait Line: Default {
    /// Its words.
    const WORDS: usize;

    /// One of its words.
    fn get(&self, word: usize) -> Option<&AtomicU64>;
}

/// A cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Whole([AtomicU64; 8]);

/// Half a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(super) struct Half([AtomicU64; 4]);

impl Line for Whole {
    const WORDS: usize = 8;

    #[inline(always)]
    fn get(&self, word: usize) -> Option<&AtomicU64> {
        self.0.get(word)
    }
}

impl Line for Half {
    const WORDS: usize = 4;

    #[inline(always)]
    fn get(&self, word: usize) -> Option<&AtomicU64> {
        self.0.get(word)
    }
}

/// A count with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicU32);

#[derive(Debug)]
struct Ring<L> {
    lines: Box<[L]>,
    /// Lines of an entry.
    stride: usize,
    depth: u32,
    /// Entries ever posted, written by the poster.
    posted: Count,
    /// The same when the newest entry of a certain kind was, written by the poster before that count.
    marked: AtomicU32,
    /// Entries ever ended, written by the core.
    ended: Count,
}

impl<L> Ring<L> {
    /// The entry that begins with this line.
    #[inline(always)]
    fn entry(&self, begin: usize) -> Entry<'_, L> {
        Entry { ring: self, begin, head: &self.lines[begin] }
    }

    /// The first line of the entry behind the one that begins with this.
    #[inline(always)]
    const fn behind(&self, begin: usize) -> usize {
        let next = begin + self.stride;
        if next == self.lines.len() { 0 } else { next }
    }
}

/// Lines of a request with this many elements, the first in word `elements_at`.
const fn stride<L: Line>(elements_at: usize, max_sge: usize) -> usize {
    let sge = if max_sge < MAX_SGE { max_sge } else { MAX_SGE };
    (elements_at + 2 * sge).div_ceil(L::WORDS)
}

/// The bits of a flag in a word.
pub(super) const fn flag(on: bool, bits: u64) -> u64 {
    if on { bits } else { 0 }
}

/// The memory of a ring for `depth` requests of at most `max_sge` elements.
pub(super) const fn ring_bytes<L: Line>(depth: usize, elements_at: usize, max_sge: usize) -> usize {
    let lines = depth * stride::<L>(elements_at, max_sge) * size_of::<L>();
    size_of::<Ring<L>>() + 2 * align_of::<Ring<L>>() + lines
}

/// The lines of a request.
#[derive(Debug)]
pub(super) struct Entry<'a, L = Whole> {
    ring: &'a Ring<L>,
    /// The first line's place in the ring.
    begin: usize,
    head: &'a L,
}

impl<L> Clone for Entry<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Entry<'_, L> {}

impl<'a, L: Line> Entry<'a, L> {
    #[inline(always)]
    fn cell(self, word: usize) -> Option<&'a AtomicU64> {
        // Most requests need no more.
        if word < L::WORDS { self.head.get(word) } else { self.cell_behind(word) }
    }

    fn cell_behind(self, word: usize) -> Option<&'a AtomicU64> {
        let line = Some(word / L::WORDS).filter(|line| *line < self.ring.stride)?;
        self.ring.lines.get(self.begin + line)?.get(word % L::WORDS)
    }

    /// A word; 0 behind the end.
    pub(super) fn word(self, word: usize) -> u64 {
        self.cell(word).map_or(0, |cell| cell.load(Relaxed))
    }

    /// Writes a word.
    ///
    /// # Errors
    /// [`PostError::TooManyElements`]: it is behind the end.
    pub(super) fn set(self, word: usize, value: u64) -> Result<(), PostError> {
        let cell = self.cell(word).ok_or(PostError::TooManyElements)?;
        cell.store(value, Relaxed);
        Ok(())
    }

    /// Sets bits of a word, which are the core's.
    pub(super) fn mark(self, word: usize, bits: u64) {
        let marked = self.set(word, self.word(word) | bits);
        debug_assert!(marked.is_ok(), "a word of the first line");
    }

    /// Writes elements from word `at` on. Returns their number, and the sum of their lengths.
    ///
    /// # Errors
    /// [`PostError::TooManyElements`].
    #[inline(always)]
    pub(super) fn set_elements(
        self,
        at: usize,
        sgl: impl IntoIterator<Item = Sge>,
    ) -> Result<(u64, u64), PostError> {
        let (mut word, mut len) = (at, 0);
        for sge in sgl {
            self.set(word, sge.addr)?;
            self.set(word + 1, u64::from(sge.len) | u64::from(sge.lkey.get()) << 32)?;
            (word, len) = (word + 2, len + u64::from(sge.len));
        }
        Ok(((word - at) as u64 / 2, len))
    }

    /// The elements from word `at` on.
    pub(super) fn elements(
        self,
        at: usize,
        count: usize,
    ) -> impl Iterator<Item = Sge> + Clone + 'a {
        (0..count).map(move |n| self.element(at + 2 * n))
    }

    /// The element from word `at` on.
    pub(super) fn element(self, at: usize) -> Sge {
        let (addr, len) = (self.word(at), self.word(at + 1));
        Sge { addr, len: len as u32, lkey: Lkey::new((len >> 32) as u32) }
    }
}

/// The end where requests are posted.
#[derive(Debug)]
pub(super) struct Poster<L = Whole> {
    ring: Arc<Ring<L>>,
    /// The first line of the next request.
    begin: usize,
    posted: u32,
    /// Requests for which there is room, as far as the poster has looked.
    room: u32,
}

impl<L> Poster<L> {
    /// The place of the next request, if there is room for it.
    #[inline]
    pub(super) fn slot(&mut self) -> Option<Slot<'_, L>> {
        (self.room > 0 || self.look()).then_some(Slot(self))
    }

    /// Looks how many entries have ended. Returns whether there is room.
    #[inline(always)]
    fn look(&mut self) -> bool {
        let queued = self.posted.wrapping_sub(self.ring.ended.0.load(Acquire));
        self.room = self.ring.depth - queued;
        self.room > 0
    }
}

/// The free place of a request, to be written and then published.
#[derive(Debug)]
pub(super) struct Slot<'a, L = Whole>(&'a mut Poster<L>);

impl<L> Slot<'_, L> {
    /// Its number among the places of the ring.
    pub(super) fn place(&self) -> usize {
        self.0.begin / self.0.ring.stride
    }

    /// The lines to write.
    #[inline(always)]
    pub(super) fn entry(&self) -> Entry<'_, L> {
        self.0.ring.entry(self.0.begin)
    }

    /// Marks the request as one that the core looks for.
    pub(super) fn mark(&self) {
        self.0.ring.marked.store(self.0.posted.wrapping_add(1), Relaxed);
    }

    /// Publishes the request that was written.
    #[inline(always)]
    pub(super) fn publish(self) {
        let Poster { ring, begin, posted, room } = self.0;
        *begin = ring.behind(*begin);
        *posted = posted.wrapping_add(1);
        *room -= 1;
        ring.posted.0.store(*posted, Release);
    }
}

/// The core's end: the entries that it has heard of, oldest first.
#[derive(Debug)]
pub(super) struct WorkRing<L = Whole> {
    ring: Arc<Ring<L>>,
    /// Of the oldest entry.
    first: u32,
    len: u32,
    ended: u32,
}

impl<L: Line> WorkRing<L> {
    /// A ring for `depth` requests of at most `max_sge` elements, which begin in word `elements_at`.
    pub(super) fn new(depth: usize, elements_at: usize, max_sge: usize) -> (Poster<L>, Self) {
        // Far fewer than 2^32 requests fit the memory.
        let (stride, depth) = (stride::<L>(elements_at, max_sge), depth as u32);
        let lines = (0..depth as usize * stride).map(|_| L::default()).collect();
        let (posted, ended) = (Count::default(), Count::default());
        let ring =
            Arc::new(Ring { lines, stride, depth, posted, marked: AtomicU32::new(0), ended });
        let poster = Poster { ring: Arc::clone(&ring), begin: 0, posted: 0, room: depth };
        (poster, Self { ring, first: 0, len: 0, ended: 0 })
    }

    /// Takes note of what was posted. Returns whether there are new entries.
    pub(super) fn update(&mut self) -> bool {
        let posted = self.ring.posted.0.load(Acquire);
        let len = posted.wrapping_sub(self.ended);
        core::mem::replace(&mut self.len, len) != len
    }

    /// Entries ever posted up to the newest that was marked, modulo 2^32.
    pub(super) fn marked(&self) -> u32 {
        self.ring.marked.load(Relaxed)
    }

    /// Whether the poster is gone, so that nothing more is posted than [`Self::update`] finds from here on.
    pub(super) fn is_abandoned(&mut self) -> bool {
        Arc::get_mut(&mut self.ring).is_some()
    }

    /// Entries that were heard of and have not ended.
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Entries that have ended, modulo 2^32.
    pub(super) const fn ended(&self) -> u32 {
        self.ended
    }

    /// The entry with `index` older ones.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Entry<'_, L>> {
        if index >= self.len as usize {
            return None;
        }
        // No more than there are, far fewer than 2^32.
        let place = self.first + index as u32;
        let place = if place < self.ring.depth { place } else { place - self.ring.depth };
        Some(self.ring.entry(place as usize * self.ring.stride))
    }

    /// Takes the oldest entry, as `read` reads it.
    #[inline(always)]
    pub(super) fn take<T>(&mut self, read: impl FnOnce(Entry<'_, L>) -> T) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let item = read(self.ring.entry(self.first as usize * self.ring.stride));
        self.pop(1);
        Some(item)
    }

    /// Takes the `count` oldest entries, as `read` reads them.
    #[inline(always)]
    pub(super) fn drain<T, F>(&mut self, count: usize, read: F) -> impl Iterator<Item = T>
    where
        F: FnMut(Entry<'_, L>) -> T,
    {
        let begin = self.first as usize * self.ring.stride;
        let ended = self.forget(count);
        let ring = &*self.ring;
        Drain { ring, lines: &ring.lines, stride: ring.stride, begin, left: count, ended, read }
    }

    /// The entries from the one with `index` older ones on.
    #[inline]
    pub(super) fn entries(&self, index: usize) -> Entries<'_, L> {
        let begin = self.get(index).map_or(0, |entry| entry.begin);
        Entries { ring: &self.ring, begin, left: self.len().saturating_sub(index) }
    }

    /// Gives the `count` oldest entries back to the poster.
    pub(super) fn pop(&mut self, count: usize) {
        let ended = self.forget(count);
        self.ring.ended.0.store(ended, Release);
    }

    /// Counts the `count` oldest entries as ended. Returns how many have, as the poster is to hear.
    fn forget(&mut self, count: usize) -> u32 {
        // No more than there are, far fewer than 2^32.
        let count = count as u32;
        debug_assert!(count <= self.len);
        let first = self.first + count;
        self.first = if first < self.ring.depth { first } else { first - self.ring.depth };
        self.len -= count;
        self.ended = self.ended.wrapping_add(count);
        self.ended
    }
}

/// The oldest entries, which [`WorkRing`] has forgotten. With the last, or when this is dropped, all go back to the poster.
struct Drain<'a, L, F> {
    ring: &'a Ring<L>,
    /// Lines and stride of the ring, which need not be loaded again for each entry.
    lines: &'a [L],
    stride: usize,
    /// The first line of the next entry.
    begin: usize,
    left: usize,
    /// The entries that have ended, these included.
    ended: u32,
    read: F,
}

impl<L, F> Drain<'_, L, F> {
    fn give_back(&self) {
        self.ring.ended.0.store(self.ended, Release);
    }
}

impl<L, T, F: FnMut(Entry<'_, L>) -> T> Iterator for Drain<'_, L, F> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let Self { ring, lines, stride, begin, .. } = *self;
        let item = (self.read)(Entry { ring, begin, head: &lines[begin] });
        let next = begin + stride;
        self.begin = if next == lines.len() { 0 } else { next };
        if self.left == 0 {
            self.give_back();
        }
        Some(item)
    }
}

impl<L, F> Drop for Drain<'_, L, F> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.give_back();
        }
    }
}

/// Entries, oldest first.
pub(super) struct Entries<'a, L = Whole> {
    ring: &'a Ring<L>,
    /// The first line of the next one.
    begin: usize,
    left: usize,
}

impl<'a, L> Iterator for Entries<'a, L> {
    type Item = Entry<'a, L>;

    #[inline(always)]
    fn next(&mut self) -> Option<Entry<'a, L>> {
        self.left = self.left.checked_sub(1)?;
        let Self { ring, begin, .. } = *self;
        self.begin = ring.behind(begin);
        Some(Entry { ring, begin, head: &ring.lines[begin] })
    }
}

#[cfg(test)]
impl<L> Poster<L> {
    /// Queues the request that `write` writes.
    fn post(
        &mut self,
        write: impl FnOnce(Entry<'_, L>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let slot = self.slot().ok_or(PostError::QueueFull)?;
        write(slot.entry())?;
        slot.publish();
        Ok(())
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;

    /// Every order of the steps of a thread that posts and the core: entries come whole and in order, and a
    /// place is written again only when its entry has ended.
    #[test]
    fn loom_entries_come_whole_and_in_order() {
        const COUNT: u64 = 3;
        loom::model(|| {
            let (mut poster, mut ring) = WorkRing::<Half>::new(2, 0, 1);
            let posts = loom::thread::spawn(move || {
                let mut next = 0;
                while next < COUNT {
                    let posted = poster.post(|entry| {
                        entry.set(0, next)?;
                        entry.set(1, next)
                    });
                    match posted {
                        Ok(()) => next += 1,
                        Err(_) => loom::thread::yield_now(),
                    }
                }
            });
            let mut next = 0;
            while next < COUNT {
                if !ring.update() {
                    loom::thread::yield_now();
                }
                while let Some(entry) = ring.get(0) {
                    assert_eq!([entry.word(0), entry.word(1)], [next; 2]);
                    entry.mark(1, 1 << 63);
                    ring.pop(1);
                    next += 1;
                }
            }
            posts.join().unwrap();
        });
    }
}

#[cfg(all(not(loom), test))]
mod tests;
