//! The connection between the consumer's threads and the poll cores: rings, and no shared state.
//!
//! * Work: one SPSC ring per initiator queue, per receive queue and per CQ (`rtrb`), because NDKPI
//!   obliges the consumer to serialize its calls on each.
//! * Control: one bounded MPSC list, to the first core, for everything else.
//! * Mappings of logical addresses: one bounded ring per core (`crate::lam`).
//! * Doorbells: one bounded MPSC ring per core; an object is in it at most once.
//! * News: one bit per core, by which it asks the first one to look at its lane (`crate::lane`).

use crate::abi::{NDK_ADAPTER_INFO, NDK_VERSION, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES};
use crate::bytes::pages::{POOL_LISTS, PageLists};
use crate::counters::Counters;
use crate::lam::shared::{LamRing, LamRings};
use crate::limits::{Limits, MAX_PAGES};
use crate::message::Control;
use crate::object::done::CloseDone;
use crate::object::id::{ObjectId, RingerKey};
use crate::object::request::Close;
use crate::passage::Passage;
use crate::platform::{Platform, with_memory};
use crate::sync::modelled::{AtomicBool, AtomicU64, AtomicUsize};
use crate::sync::{Bells, Doorbell, Full, Inbox, Letter, Sleep, Taken, take};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::task::Waker;
use netadapter_glue::Received;
use once_cell::race::OnceBox;
use rocev2::wire;

/// Objects that exist at a time, per shard, if its limits say no other number. Each holds the memory of the message of its close from its
/// creation on, so a close never fails for want of room.
pub(crate) const OBJECTS_MAX: usize = if cfg!(all(loom, test)) { 2 } else { 1 << 21 };
/// Objects at a time whose doorbells may ring: QPs, and as many CQs, SRQs and listeners together. The ring
/// of doorbells of each core has a place for each.
pub(crate) const RINGERS_MAX: usize = if cfg!(all(loom, test)) {
    2
} else if cfg!(miri) {
    1 << 8
} else {
    1 << 16
};
/// Other control messages on their way at a time. They have places of their own, so that a provider
/// full of objects still serves those that it has.
const REQUESTS_MAX: usize = if cfg!(all(loom, test)) { 1 } else { 1 << 14 };

/// Units on their way to a core from the others that received them, at most.
const PASSED_MAX: usize = 64;

/// The memory of a message's letter beside the message.
const LETTER: usize = 64;

/// The rings between the poll cores of an adapter and their users: the consumer's calls, and the home that runs them.
pub struct Shard {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    control: Inbox<Control>,
    /// Objects that may still be created.
    objects: AtomicUsize,
    /// Messages that may still be sent, but for closes.
    requests: AtomicUsize,
    /// The answer of [`Platform::takes_turns`].
    takes_turns: bool,
    pub(crate) lams: LamRings,
    /// Made for the first fast-register region.
    page_pool: OnceBox<Arc<PageLists>>,
    doors: Box<[Arc<Door>]>,
    /// The cores that the desk is to look at, a bit each.
    news: AtomicU64,
    /// Where the next object goes that may be anywhere.
    next_core: AtomicUsize,
    /// The home has asked for the end.
    stopped: AtomicBool,
}

/// The bell of an object: the way to its core, and its name there.
pub(crate) struct Bell {
    door: Arc<Door>,
    pub(crate) key: RingerKey,
}

impl Bell {
    pub(crate) const fn new(door: Arc<Door>, key: RingerKey) -> Self {
        Self { door, key }
    }

    /// The core of the object.
    pub(crate) fn core(&self) -> u8 {
        self.door.core
    }
}

/// The way to one core.
#[repr(align(64))]
pub(crate) struct Door {
    core: u8,
    bells: Bells,
    lams: Arc<LamRing>,
    /// The desk has changed the lane.
    changed: AtomicBool,
    /// Frames that came to other cores; none where there is one core.
    passage: Option<Box<Passage>>,
    sleep: Sleep,
    waker: Waker,
}

impl Door {
    /// Doorbells that ring now; later ones wait for the next turn.
    pub(crate) fn ringing(&self) -> usize {
        self.bells.len()
    }

    /// Takes an object whose doorbell rang.
    #[inline]
    pub(crate) fn next_doorbell(&self) -> Option<RingerKey> {
        self.bells.pop()
    }

    /// Whether a doorbell or a mapping of logical addresses waits for the core.
    #[inline]
    pub(crate) fn has_posts(&self) -> bool {
        !self.bells.is_empty() || !self.lams.is_empty()
    }

    /// Whether there may be units that others have passed on.
    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.passage.as_deref().is_some_and(|passage| !passage.is_empty())
    }

    /// Wakes the core if it sleeps.
    fn wake(&self) {
        if self.sleep.must_wake() {
            self.waker.wake_by_ref();
        }
    }
}

// A value that is made passes through the stack of its maker.

#[inline(never)]
fn doors(wakers: &[Waker], lams: &LamRings, unit_len: usize) -> Box<[Arc<Door>]> {
    let door = |(core, waker): (usize, &Waker)| Door {
        // Fewer than 2^8.
        core: core as u8,
        lams: Arc::clone(lams.of(core)),
        bells: Bells::new(2 * RINGERS_MAX),
        changed: AtomicBool::new(false),
        passage: if wakers.len() > 1 { Passage::new(PASSED_MAX, unit_len) } else { None },
        sleep: Sleep::default(),
        waker: waker.clone(),
    };
    wakers.iter().enumerate().map(door).map(Arc::new).collect()
}

impl Shard {
    /// A shard whose cores are woken by `wakers`, one each, whose transport counts into `transport`, and whose units have at most
    /// `unit_len` bytes.
    pub(crate) fn new(
        platform: Box<dyn Platform>,
        limits: Limits,
        wakers: &[Waker],
        transport: Vec<Arc<rocev2::counters::Counters>>,
        unit_len: usize,
    ) -> Self {
        let lams = LamRings::new(wakers.len());
        Self {
            takes_turns: platform.takes_turns(),
            platform,
            limits,
            counters: Counters::new(transport),
            control: Inbox::default(),
            objects: AtomicUsize::new(limits.objects),
            requests: AtomicUsize::new(REQUESTS_MAX),
            page_pool: OnceBox::new(),
            doors: doors(wakers, &lams, unit_len),
            lams,
            news: AtomicU64::new(0),
            next_core: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// The poll cores of the adapter.
    pub(crate) fn cores(&self) -> usize {
        self.doors.len()
    }

    /// The attributes of the adapter at this version.
    pub(crate) fn info(&self, version: NDK_VERSION) -> NDK_ADAPTER_INFO {
        self.limits.info(version, self.cores())
    }

    /// The core for an object that is to be near these processors, or may be anywhere.
    pub(crate) fn core_near(&self, processors: Option<(u16, u64)>) -> u8 {
        let cores = self.cores();
        let near = processors.and_then(|(group, mask)| self.platform.core_near(group, mask, cores));
        let core = near.unwrap_or_else(|| self.next_core.fetch_add(1, Ordering::Relaxed));
        // Fewer than 2^8.
        (core % cores) as u8
    }

    /// The way to a core.
    #[inline]
    pub(crate) fn door(&self, core: u8) -> &Arc<Door> {
        &self.doors[usize::from(core)]
    }

    /// Boxes a part of a message; an error where there is no memory for it.
    pub(crate) fn boxed<T>(&self, value: T) -> Result<Box<T>, NTSTATUS> {
        let bytes = size_of::<T>() + align_of::<T>();
        let boxed = with_memory(&*self.platform, bytes, || Box::new(value));
        boxed.ok_or(STATUS_INSUFFICIENT_RESOURCES)
    }

    /// The page lists that all fast-register regions share; an error where there is no memory for them.
    pub(crate) fn page_pool(&self) -> Result<Arc<PageLists>, NTSTATUS> {
        let make = || {
            let pool = PageLists::new(POOL_LISTS, MAX_PAGES as usize);
            self.boxed(Arc::new(pool.ok_or(STATUS_INSUFFICIENT_RESOURCES)?))
        };
        self.page_pool.get_or_try_init(make).map(Arc::clone)
    }

    /// Sends a message that takes a place of its own.
    pub(crate) fn request(&self, message: impl Into<Control>) -> Result<(), Full> {
        let letter = self.reserve_request()?;
        self.send(letter, message.into());
        Ok(())
    }

    /// Sends a message of the home, which has no other way if it is refused its memory: a few words, and so never refused.
    pub(crate) fn tell(&self, message: impl Into<Control>) -> Result<(), Full> {
        take(&self.requests)?;
        self.send(Letter::new(), message.into());
        Ok(())
    }

    /// Sends what `make` gives, if there is a place for it; `make` is called only then.
    pub(crate) fn request_if<M: Into<Control>, E>(
        &self,
        make: impl FnOnce() -> Result<M, E>,
    ) -> Result<Result<(), E>, Full> {
        let letter = self.reserve_request()?;
        Ok(match make() {
            Ok(message) => {
                self.send(letter, message.into());
                Ok(())
            }
            Err(error) => {
                self.requests.fetch_add(1, Ordering::Release);
                Err(error)
            }
        })
    }

    /// Takes the place of a message, and its memory.
    fn reserve_request(&self) -> Result<Letter<Control>, Full> {
        take(&self.requests)?;
        let letter = with_memory(&*self.platform, size_of::<Control>() + LETTER, Letter::new);
        letter.ok_or_else(|| {
            self.requests.fetch_add(1, Ordering::Release);
            Full
        })
    }

    /// Takes the place of an object that is to be created.
    pub(crate) fn reserve_object(&self) -> Result<(), Full> {
        take(&self.objects)
    }

    /// Gives the place of an object back: it is freed, or was never created.
    pub(crate) fn release_object(&self) {
        self.objects.fetch_add(1, Ordering::Release);
    }

    /// Objects that exist, and those on their way.
    pub fn open_objects(&self) -> usize {
        self.limits.objects - self.objects.load(Ordering::Relaxed)
    }

    /// Closes an object, by the letter that it holds.
    pub(crate) fn close(&self, letter: Letter<Control>, object: ObjectId, done: CloseDone) {
        self.send(letter, Close { object, done }.into());
    }

    fn send(&self, letter: Letter<Control>, message: Control) {
        self.control.post(letter, message);
        self.wake(0);
    }

    /// Takes a control message: of those that were `taken` before, and then of those that wait. Its place is
    /// free again; that of a close goes with the object.
    pub(crate) fn next_control(&self, taken: &mut Taken<Control>) -> Option<Control> {
        let message = taken.next().or_else(|| {
            *taken = self.control.take();
            taken.next()
        })?;
        if !matches!(message, Control::Close(_)) {
            self.requests.fetch_add(1, Ordering::Release);
        }
        Some(message)
    }

    /// Whether a core, of so many, is to handle a unit that it has received. It passes the unit on to another core which that is
    /// for, and does both where it is for several: each then takes its own part.
    #[inline(always)]
    pub(crate) fn keeps(&self, (core, cores): (u8, usize), unit: &Received<'_>) -> bool {
        let to = wire::core_of(unit.frame, cores);
        unit.segments.is_none() && to == usize::from(core) || self.steer(core, to, unit)
    }

    #[inline(never)]
    fn steer(&self, core: u8, to: usize, unit: &Received<'_>) -> bool {
        let (frame, segment_len) = (unit.frame, unit.segments.map(|of| of.segment_len));
        let cores = self.cores();
        if wire::is_for_several(frame, segment_len, cores) {
            (0..cores).for_each(|to| self.pass(core, to as u8, frame, segment_len));
            return true;
        }
        self.pass(core, to as u8, frame, segment_len);
        to == usize::from(core)
    }

    /// Passes a unit on to another core. One that finds no room is dropped, and counted as by an edge.
    fn pass(&self, from: u8, to: u8, frame: &[u8], segment_len: Option<usize>) {
        if from == to {
            return;
        }
        let passage = self.door(to).passage.as_deref();
        if passage.is_some_and(|passage| passage.send(frame, segment_len)) {
            self.wake(to);
        } else {
            self.counters.unpassed.add();
        }
    }

    /// The units that others have passed on to a core, if there may be some.
    pub(crate) fn passed(&self, core: u8) -> Option<&Passage> {
        self.door(core).passage.as_deref().filter(|passage| !passage.is_empty())
    }

    /// Tells the core of an object with this bell that it has something in its rings, or `reasons`. The object is not
    /// touched once the core may have seen it.
    #[inline]
    pub(crate) fn ring(&self, bell: &Bell, doorbell: &Doorbell, reasons: u8) {
        if doorbell.ring(reasons) {
            self.ring_first(bell);
        }
    }

    /// Puts an object whose doorbell did not ring before into the ring, and wakes the core for it and for all that is rung
    /// for until the core answers.
    #[inline(never)]
    fn ring_first(&self, Bell { door, key }: &Bell) {
        // At most one entry per object, and no more objects that ring than places.
        if self.takes_turns {
            door.bells.push(*key);
        } else {
            self.push_undisturbed(door, *key);
        }
        door.wake();
    }

    #[inline(never)]
    fn push_undisturbed(&self, door: &Door, key: RingerKey) {
        self.platform.undisturbed(&mut || door.bells.push(key));
    }

    /// Whether the desk has a message to obey, or another core to look at.
    pub(crate) fn has_letters(&self) -> bool {
        !self.control.is_empty() || self.news.load(Ordering::Relaxed) != 0
    }

    /// Whether a doorbell or a mapping waits for a core, or the desk has changed its lane.
    pub(crate) fn has_work(&self, core: u8) -> bool {
        let door = self.door(core);
        door.has_posts() || door.changed.load(Ordering::Relaxed) || door.has_passed()
    }

    /// A core has news for the desk.
    pub(crate) fn tell_news(&self, core: u8) {
        if self.news.fetch_or(1 << core, Ordering::AcqRel) & 1 << core == 0 {
            self.wake(0);
        }
    }

    /// Takes the cores that have news, a bit each.
    pub(crate) fn take_news(&self) -> u64 {
        let none = self.news.load(Ordering::Relaxed) == 0;
        if none { 0 } else { self.news.swap(0, Ordering::AcqRel) }
    }

    /// The desk has changed the lane of a core, which is to look at it.
    pub(crate) fn tell_changed(&self, core: u8) {
        self.door(core).changed.store(true, Ordering::Release);
        self.wake(core);
    }

    /// A core looks at its lane.
    pub(crate) fn take_changed(&self, core: u8) -> bool {
        let changed = &self.door(core).changed;
        changed.load(Ordering::Relaxed) && changed.swap(false, Ordering::Acquire)
    }

    /// Ends the cores.
    pub(crate) fn end(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Whether the cores are to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// A core is about to sleep. It must look for work once more after this.
    pub(crate) fn announce_sleep(&self, core: u8, sleeping: bool) {
        self.door(core).sleep.announce(sleeping);
    }

    /// Wakes a core if it sleeps; a running core sees the ring by itself, so the busy path makes
    /// no system call.
    pub(crate) fn wake(&self, core: u8) {
        self.door(core).wake();
    }

    /// Wakes every core that sleeps.
    pub(crate) fn wake_all(&self) {
        (0..self.cores()).for_each(|core| self.wake(core as u8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MDL, NDK_VERSION};
    use crate::adapter::request::OpenAdapter;
    use crate::platform::Mapped;
    use netadapter_glue::Segments;
    use rocev2::env::Instant;

    /// Counts the steps that it runs undisturbed.
    struct Steps(Arc<AtomicUsize>);

    impl Platform for Steps {
        fn now(&self) -> Instant {
            Instant::default()
        }

        fn map(&self, _mdl: &MDL) -> Option<Mapped> {
            None
        }

        fn undisturbed(&self, step: &mut dyn FnMut()) {
            step();
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The core gets none behind a place that a thread has taken and not filled: on Windows the core may have
    /// interrupted that thread.
    #[test]
    fn nothing_comes_between_while_a_ring_is_filled() {
        let steps = Arc::new(AtomicUsize::new(0));
        let platform = Box::new(Steps(Arc::clone(&steps)));
        let shard = Shard::new(
            platform,
            Limits::default(),
            core::slice::from_ref(Waker::noop()),
            Vec::new(),
            0,
        );
        let message = || OpenAdapter { version: NDK_VERSION::default(), opened: Box::new(drop) };
        assert_eq!(shard.request(message()), Ok(()));
        assert_eq!(shard.request_if(|| Ok::<_, ()>(message())), Ok(Ok(())));
        let bell = Bell::new(Arc::clone(shard.door(0)), RingerKey::default());
        shard.ring(&bell, &Doorbell::default(), 0);
        assert_eq!(steps.load(Ordering::Relaxed), 1);
        let mut taken = Taken::default();
        while shard.next_control(&mut taken).is_some() {}
        assert_eq!(shard.door(0).next_doorbell(), Some(RingerKey::default()));
        assert!(!shard.has_letters() && !shard.has_work(0));
    }

    /// Without memory.
    struct Poor;

    impl Platform for Poor {
        fn now(&self) -> Instant {
            Instant::default()
        }

        fn map(&self, _mdl: &MDL) -> Option<Mapped> {
            None
        }

        fn with_memory(&self, _bytes: usize, _work: &mut dyn FnMut()) -> bool {
            false
        }
    }

    /// A home that is refused memory can neither wait for it nor do without its messages.
    #[test]
    fn a_message_of_the_home_is_never_refused() {
        let wakers = [Waker::noop().clone()];
        let shard = Shard::new(Box::new(Poor), Limits::default(), &wakers, Vec::new(), 0);
        let opens = OpenAdapter { version: NDK_VERSION::default(), opened: Box::new(drop) };
        assert_eq!(shard.request(opens), Err(Full));
        assert_eq!((shard.stop(), shard.check_paths()), (Ok(()), Ok(())));
        assert_eq!(shard.set_addresses(alloc::vec![], 0), Ok(()));
        let mut taken = Taken::default();
        assert_eq!(core::iter::from_fn(|| shard.next_control(&mut taken)).count(), 3);
    }

    #[test]
    fn a_message_that_is_not_made_takes_no_place() {
        let wakers = [Waker::noop().clone()];
        let platform = Box::new(Steps(Arc::default()));
        let shard = Shard::new(platform, Limits::default(), &wakers, Vec::new(), 0);
        assert_eq!(shard.request_if(|| Err::<OpenAdapter, _>(7)), Ok(Err(7)));
        assert_eq!(shard.requests.load(Ordering::Relaxed), REQUESTS_MAX);
    }

    /// A unit of packets to these queue pairs.
    fn unit(qpns: &[u32]) -> Vec<u8> {
        let mut unit = alloc::vec![0; 42];
        // IPv4 of no options, UDP to RoCEv2.
        unit[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
        unit[36..38].copy_from_slice(&4791_u16.to_be_bytes());
        for qpn in qpns {
            unit.extend_from_slice([[0; 4], qpn.to_be_bytes(), [0; 4], [0; 4]].as_flattened());
        }
        unit
    }

    /// Goal: a unit reaches each core that has a queue pair in it, once, and one that finds no room is counted.
    #[test]
    fn a_unit_comes_to_each_core_that_it_is_for() {
        const OTHER: u32 = 0x80_0000;
        let wakers = [(); 2].map(|()| Waker::noop().clone());
        let shard = Shard::new(Box::new(Poor), Limits::default(), &wakers, Vec::new(), 74);
        let segments = Some(Segments { header_len: 42, segment_len: 16 });
        let passed = |core| {
            let mut count = 0;
            if let Some(passage) = shard.passed(core) {
                passage.drain(&mut |_, _| count += 1);
            }
            count
        };
        for (qpns, kept, passed_on) in [
            ([2, 3], true, 0),
            ([OTHER, OTHER], false, 1),
            ([2, OTHER], true, 1),
            ([OTHER, 2], true, 1),
        ] {
            let frame = &unit(&qpns)[..];
            assert_eq!(shard.keeps((0, 2), &Received { frame, segments }), kept, "{qpns:x?}");
            assert_eq!([passed(0), passed(1)], [0, passed_on], "{qpns:x?}");
        }
        let dropped = || shard.counters.snapshot().edge.receive;
        assert_eq!(dropped(), 0);
        let frame = &unit(&[OTHER])[..];
        for _ in 0..=PASSED_MAX {
            assert!(!shard.keeps((0, 2), &Received { frame, segments: None }));
        }
        assert_eq!((passed(1), dropped()), (PASSED_MAX, 1));
    }
}
