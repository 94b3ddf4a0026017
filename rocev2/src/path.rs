//! Paths: the next hop and VLAN of the packets between two addresses.
//!
//! Queue pairs and connections name their path by its place in one table, and read the hop there for each
//! packet. So when a peer moves, or a router takes over for another, all of them follow at once. The table
//! decides nothing: its owner resolves a path when it comes into use, resolves it again when it is doubted,
//! and reports the outcome. A received frame is never more than a reason for doubt, because anybody can
//! send one.

use crate::env::{Duration, Instant, Rng};
use crate::index::{Index, Secret};
use crate::units::{Allowance, Fate, LOST_OF_LINK, LOST_OF_PATH, UnitUse};
use crate::wire::{Encap, Hop, Mac};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU32;

/// The two ends of a path.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Path {
    /// An address of ours.
    pub local: IpAddr,
    /// An address of the peer.
    pub remote: IpAddr,
}

/// The origin of a packet, as its frame claims.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Source {
    /// Ethernet source.
    pub mac: Mac,
    /// The VLAN ID; `None` without a tag, and for a tag of a priority alone: packets of one peer may have several.
    pub vlan: Option<u16>,
}

impl Source {
    pub(crate) const fn of(encap: &Encap) -> Self {
        Self { mac: encap.src_mac, vlan: vlan_of(encap.vlan) }
    }

    /// That of the packets of a peer that is its own hop.
    const fn at(hop: &Hop) -> Self {
        Self { mac: hop.dst_mac, vlan: vlan_of(hop.vlan) }
    }
}

/// The VLAN that tag control information names.
const fn vlan_of(tci: Option<u16>) -> Option<u16> {
    const VLAN_ID: u16 = 0x0fff;
    match tci {
        Some(tci) if tci & VLAN_ID != 0 => Some(tci & VLAN_ID),
        _ => None,
    }
}

/// A path that its owner should resolve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PathEvent {
    /// The path, which is in use.
    pub path: Path,
    /// The hop in force.
    pub hop: Hop,
    /// The origin of the latest valid packet, if one came. It may be a lie.
    pub source: Option<Source>,
    /// The reason.
    pub why: PathNews,
}

/// The reason to resolve a path.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PathNews {
    /// The path has its first user. Its hop is that of the connect or, if the peer was first, of the peer's
    /// frame.
    Opened,
    /// Packets of the peer come from elsewhere than before, if the last one does not lie.
    Moved,
    /// Packets to the peer have no response.
    Silent,
}

/// A path's place in the table, plus 1, for as long as it has users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PathIndex(NonZeroU32);

impl PathIndex {
    const fn new(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    const fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug)]
struct Entry {
    path: Path,
    hop: Hop,
    source: Option<Source>,
    users: u32,
    /// The time of the last doubt.
    doubted_at: Option<Instant>,
    /// The event that waits in the queue.
    news: Option<PathNews>,
    units: UnitUse,
}

impl Entry {
    fn may_doubt(&self, now: Instant) -> bool {
        self.doubted_at.is_none_or(|at| now >= at + DOUBT_INTERVAL)
    }
}

/// The words of an address, for the hash of a key.
pub(crate) fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// All paths in use. Their users are connections and queue pairs, whose limits bound the table. It grows with a
/// path that comes into use, and refuses that where there is no memory.
#[derive(Debug)]
pub(crate) struct Paths {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    secret: Secret,
    by_ends: Index,
    /// Paths with an event, each once.
    news: VecDeque<PathIndex>,
    /// Hops that ever changed.
    changes: u32,
    /// A number that is another after each change of a [`Source`], and never 0.
    origins: NonZeroU32,
    /// The use of units over all paths.
    units: UnitUse,
}

/// Where units were given up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct GivenUp {
    /// Over the path of the unit that was lost.
    pub path: bool,
    /// Over all.
    pub all: bool,
}

impl Paths {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            secret: Secret::new(rng),
            by_ends: Index::default(),
            news: VecDeque::new(),
            changes: 0,
            origins: NonZeroU32::MIN,
            units: UnitUse::new(LOST_OF_LINK),
        }
    }

    /// Adds a user to a path. `hop` is for a new path; an existing one keeps its hop, and is doubted if
    /// `hop` differs. `None`: no memory.
    pub(crate) fn acquire(&mut self, path: Path, hop: Hop) -> Option<PathIndex> {
        if let Some(index) = self.find(path) {
            self.retain(index);
            let source = Source::at(&hop);
            let known = self.hop(index);
            if (known.src_mac, Source::at(&known)) != (hop.src_mac, source) {
                self.set_source(index, Some(source));
                self.tell(index, PathNews::Moved);
            }
            return Some(index);
        }
        self.make_room()?;
        let units = UnitUse::new(LOST_OF_PATH);
        let entry =
            Entry { path, hop, source: None, users: 1, doubted_at: None, news: None, units };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                PathIndex::new(index)
            }
            None => {
                self.entries.push(Some(entry));
                let place = u32::try_from(self.entries.len() - 1);
                PathIndex::new(place.expect("limits keep users below"))
            }
        };
        self.by_ends.insert(self.hash(path), index.place());
        self.tell(index, PathNews::Opened);
        Some(index)
    }

    /// Adds a user to a path that its owner knows already, from another core's table: a new one is no news.
    pub(crate) fn join(&mut self, path: Path, hop: Hop) -> Option<PathIndex> {
        let known = self.find(path).is_some();
        let index = self.acquire(path, hop)?;
        if !known {
            self.entry_mut(index).news = None;
            self.news.pop_back();
        }
        Some(index)
    }

    /// Whether [`Self::poll`] has an event.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Makes room for one path more, and for its end and its doubts, so that these allocate nothing.
    fn make_room(&mut self) -> Option<()> {
        if self.free.is_empty() && self.entries.len() == self.entries.capacity() {
            let room = (2 * self.entries.len()).max(4);
            self.free.try_reserve_exact(room).ok()?;
            self.by_ends.make_room(room)?;
            self.news.try_reserve_exact(room - self.news.len()).ok()?;
            self.entries.try_reserve_exact(room - self.entries.len()).ok()?;
        }
        Some(())
    }

    fn hash(&self, path: Path) -> u32 {
        let ([a, b], [c, d]) = (address_words(path.local), address_words(path.remote));
        self.secret.hash([a, b, c, d])
    }

    /// Adds a user to a path in use.
    pub(crate) fn retain(&mut self, index: PathIndex) {
        self.entry_mut(index).users += 1;
    }

    /// Removes a user. The last one frees the path.
    pub(crate) fn release(&mut self, index: PathIndex) {
        let entry = self.entry_mut(index);
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        let (path, told) = (entry.path, entry.news.is_some());
        if told {
            self.news.retain(|waiting| *waiting != index);
        }
        self.by_ends.remove(self.hash(path), index.place());
        self.set_source(index, None);
        self.entries[index.place()] = None;
        self.free.push(index.place() as u32);
    }

    /// The hop in force.
    pub(crate) fn hop(&self, index: PathIndex) -> Hop {
        self.entry(index).hop
    }

    /// Finds a path in use.
    pub(crate) fn find(&self, path: Path) -> Option<PathIndex> {
        let mut found = self
            .by_ends
            .find(self.hash(path))
            .filter(|place| self.entries[*place].as_ref().is_some_and(|entry| entry.path == path));
        found.next().map(|place| PathIndex::new(place as u32))
    }

    /// All paths in use, with their hops.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Path, Hop)> {
        self.entries.iter().flatten().map(|entry| (entry.path, entry.hop))
    }

    /// Sets the hop. Returns whether it changed. A peer that still sends from elsewhere raises a doubt.
    pub(crate) fn set(&mut self, index: PathIndex, hop: Hop) -> bool {
        let entry = self.entry_mut(index);
        let changes = core::mem::replace(&mut entry.hop, hop) != hop;
        if changes {
            self.set_source(index, None);
            self.changes = self.changes.wrapping_add(1);
        }
        changes
    }

    /// A number that is another after each change of a hop.
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// A number that is another after each change of an origin. As long as it stays, what was heard once need not be told
    /// again.
    pub(crate) const fn origins(&self) -> NonZeroU32 {
        self.origins
    }

    fn set_source(&mut self, index: PathIndex, source: Option<Source>) {
        self.entry_mut(index).source = source;
        self.origins = self.origins.checked_add(1).unwrap_or(NonZeroU32::MIN);
    }

    /// Takes the origin of a valid packet of the peer. Returns whether packets of the path come from there.
    #[inline]
    pub(crate) fn heard(&mut self, now: Instant, index: PathIndex, source: Source) -> bool {
        if self.entry(index).source != Some(source) {
            self.heard_elsewhere(now, index, source);
        }
        self.entry(index).source == Some(source)
    }

    /// Takes the origin of a packet, which is not that of the one before.
    fn heard_elsewhere(&mut self, now: Instant, index: PathIndex, source: Source) {
        let entry = self.entry_mut(index);
        // The packet need not come from the hop: a router sends as itself and is reached by its virtual
        // address. That raises one doubt.
        if entry.source.is_none() && source == Source::at(&entry.hop) {
            self.set_source(index, Some(source));
        } else if entry.may_doubt(now) {
            // A doubt that comes too soon after another one is raised again by the next packet.
            self.set_source(index, Some(source));
            self.doubt(now, index, PathNews::Moved);
        }
    }

    /// Raises a doubt: the hop may no longer lead to the peer.
    pub(crate) fn doubt(&mut self, now: Instant, index: PathIndex, why: PathNews) {
        let entry = self.entry_mut(index);
        if entry.may_doubt(now) {
            entry.doubted_at = Some(now);
            self.tell(index, why);
        }
    }

    /// The next path with an event.
    pub(crate) fn poll(&mut self) -> Option<PathEvent> {
        let index = self.news.pop_front()?;
        let entry = self.entry_mut(index);
        let Entry { path, hop, source, .. } = *entry;
        let why = entry.news.take()?;
        Some(PathEvent { path, hop, source, why })
    }

    /// The units that may leave over a path now.
    #[inline]
    pub(crate) fn unit_allowance(&mut self, now: Instant, index: PathIndex) -> Allowance {
        let of_path = &mut self.entry_mut(index).units;
        if of_path.is_sound() && self.units.is_sound() {
            return Allowance::All;
        }
        let of_path = self.entry_mut(index).units.allowance(now);
        of_path.min(self.units.allowance(now))
    }

    /// Notes that a unit has left over a path.
    pub(crate) fn unit_left(&mut self, now: Instant, index: PathIndex) {
        self.entry_mut(index).units.left(now);
        self.units.left(now);
    }

    /// Notes the fate of a unit that left over a path.
    pub(crate) fn judge_unit(&mut self, now: Instant, index: PathIndex, fate: &Fate) -> GivenUp {
        let path = self.entry_mut(index).units.judge(now, fate);
        // A path that gives units up is news of the link, whenever they left. As long as the link is sound, one lost unit is not.
        let news = if path { Fate { sent_at: now, ..*fate } } else { *fate };
        let all = (path || !self.units.is_sound()) && self.units.judge(now, &news);
        GivenUp { path, all }
    }

    fn tell(&mut self, index: PathIndex, news: PathNews) {
        let entry = self.entry_mut(index);
        match entry.news {
            None => {
                entry.news = Some(news);
                self.news.push_back(index);
            }
            // A new path is resolved anyway.
            Some(PathNews::Opened) => {}
            Some(before) => entry.news = Some(before.max(news)),
        }
    }

    fn entry(&self, index: PathIndex) -> &Entry {
        self.entries[index.place()].as_ref().expect("a path with users is in the table")
    }

    fn entry_mut(&mut self, index: PathIndex) -> &mut Entry {
        self.entries[index.place()].as_mut().expect("a path with users is in the table")
    }
}

/// Time between two doubts about a path, at least.
const DOUBT_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn path(remote: u8) -> Path {
        Path { local: IpAddr::from([10, 0, 0, 1]), remote: IpAddr::from([10, 0, 0, remote]) }
    }

    fn new() -> Paths {
        Paths::new(&mut Rng::from_seed([7; 32]))
    }

    fn hop(last: u8) -> Hop {
        Hop { src_mac: Mac([2; 6]), dst_mac: Mac([2, 0, 0, 0, 0, last]), vlan: None }
    }

    fn source(last: u8) -> Source {
        Source { mac: hop(last).dst_mac, vlan: None }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn news(paths: &mut Paths) -> Vec<(Path, PathNews)> {
        core::iter::from_fn(|| paths.poll()).map(|event| (event.path, event.why)).collect()
    }

    #[test]
    fn a_path_lives_as_long_as_it_has_users() {
        let mut paths = new();
        let first = paths.acquire(path(2), hop(2)).unwrap();
        assert_eq!(paths.acquire(path(2), hop(2)).unwrap(), first);
        let other = paths.acquire(path(3), hop(3)).unwrap();
        assert_ne!(other, first);
        paths.retain(other);
        for _ in 0..2 {
            assert!(paths.find(path(2)) == Some(first) && paths.find(path(3)) == Some(other));
            paths.release(first);
            paths.release(other);
        }
        assert_eq!((paths.find(path(2)), paths.iter().count()), (None, 0));
        assert_eq!(paths.poll(), None, "news of a path that is gone");
        // Its place is used again.
        for _ in 0..1000 {
            let index = paths.acquire(path(4), hop(4)).unwrap();
            paths.release(index);
        }
        assert_eq!((paths.entries.len(), paths.free.len(), paths.news.len()), (2, 2, 0));
        assert_eq!(paths.by_ends.find(paths.hash(path(4))).count(), 0, "it is gone from the index");
    }

    #[test]
    fn received_frames_change_no_hop() {
        let mut paths = new();
        let index = paths.acquire(path(2), hop(2)).unwrap();
        assert_eq!(news(&mut paths), [(path(2), PathNews::Opened)]);
        // A router answers as itself, and is asked for once.
        paths.heard(at(1), index, source(7));
        assert_eq!(news(&mut paths), [(path(2), PathNews::Moved)]);
        paths.heard(at(1002), index, source(7));
        assert_eq!(news(&mut paths), []);
        paths.heard(at(2003), index, source(8));
        let event = paths.poll().unwrap();
        assert_eq!((event.why, event.hop), (PathNews::Moved, hop(2)));
        assert_eq!(event.source, Some(source(8)));
        // Another connection over the same path names another hop: a doubt too.
        assert_eq!(paths.acquire(path(2), hop(9)).unwrap(), index);
        assert_eq!(news(&mut paths), [(path(2), PathNews::Moved)]);
        assert_eq!(paths.hop(index), hop(2));
        assert!(paths.set(index, hop(9)) && !paths.set(index, hop(9)));
        assert_eq!(paths.hop(index), hop(9));
    }

    #[test]
    fn an_origin_that_stays_need_not_be_told_again() {
        let mut paths = new();
        let index = paths.acquire(path(2), hop(2)).unwrap();
        assert!(paths.heard(at(1), index, source(2)));
        let origins = paths.origins();
        assert!(paths.heard(at(2), index, source(2)));
        assert_eq!(paths.origins(), origins);
        assert!(paths.heard(at(3), index, source(7)), "the first doubt");
        assert_ne!(paths.origins(), origins);
        assert!(
            !paths.heard(at(4), index, source(2)),
            "a doubt that comes too soon is raised again"
        );
        let origins = paths.origins();
        paths.set(index, hop(7));
        assert_ne!(paths.origins(), origins);
    }

    /// Somebody has claimed its address.
    #[test]
    fn a_peer_that_is_still_heard_where_it_was_raises_a_doubt() {
        let mut paths = new();
        let index = paths.acquire(path(2), hop(2)).unwrap();
        news(&mut paths);
        paths.heard(at(1), index, source(2));
        paths.set(index, hop(9));
        assert_eq!(news(&mut paths), []);
        paths.heard(at(2), index, source(2));
        assert_eq!(news(&mut paths), [(path(2), PathNews::Moved)]);
    }

    #[test]
    fn doubts_are_few_however_many_frames_come() {
        let mut paths = new();
        let index = paths.acquire(path(2), hop(2)).unwrap();
        news(&mut paths);
        let mut doubts = 0;
        for ms in 0..4000 {
            paths.heard(at(ms), index, source(ms as u8));
            paths.doubt(at(ms), index, PathNews::Silent);
            doubts += news(&mut paths).len();
        }
        assert_eq!(doubts, 4);
        // Unfetched, they are one.
        for ms in 4000..9000 {
            paths.doubt(at(ms), index, PathNews::Silent);
        }
        assert_eq!(paths.news.len(), 1);
    }
}
