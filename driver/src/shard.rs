//! The connection between the consumer's threads and the poll core: rings, and no shared state.
//!
//! * Work: one SPSC ring per initiator queue, per receive queue and per CQ (`rtrb`), because NDKPI
//!   obliges the consumer to serialize its calls on each.
//! * Control: one bounded MPSC list per shard for everything else.
//! * Mappings of logical addresses: one bounded ring per core (`crate::lam`).
//! * Doorbells: one bounded MPSC ring per shard; an object is in it at most once.

use crate::abi::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES};
use crate::bytes::pages::{POOL_LISTS, PageLists};
use crate::counters::Counters;
use crate::lam::shared::LamRings;
use crate::limits::{Limits, MAX_PAGES};
use crate::message::Control;
use crate::object::done::CloseDone;
use crate::object::id::ObjectId;
use crate::object::request::Close;
use crate::platform::{Platform, with_memory};
use crate::sync::modelled::AtomicUsize;
use crate::sync::{Bells, Doorbell, Full, Inbox, Letter, Sleep, Taken, take};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::task::Waker;
use once_cell::race::OnceBox;

/// Objects that exist at a time, per shard, if its limits say no other number. Each holds the memory of the message of its close from its
/// creation on, so a close never fails for want of room.
pub(crate) const OBJECTS_MAX: usize = if cfg!(all(loom, test)) { 2 } else { 1 << 21 };
/// Objects at a time whose doorbells may ring: QPs, and as many CQs, SRQs and listeners together. The ring
/// of doorbells has a place for each.
pub(crate) const RINGERS_MAX: usize = if cfg!(all(loom, test)) { 2 } else { 1 << 16 };
/// Other control messages on their way at a time. They have places of their own, so that a provider
/// full of objects still serves those that it has.
const REQUESTS_MAX: usize = if cfg!(all(loom, test)) { 1 } else { 1 << 14 };

/// The memory of a message's letter beside the message.
const LETTER: usize = 64;

/// The rings between one poll core and its users: the consumer's calls, and the home that runs it.
pub struct Shard {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    control: Inbox<Control>,
    /// Objects that may still be created.
    objects: AtomicUsize,
    /// Messages that may still be sent, but for closes.
    requests: AtomicUsize,
    doorbells: Bells,
    /// The answer of [`Platform::takes_turns`].
    takes_turns: bool,
    pub(crate) lams: LamRings,
    /// Made for the first fast-register region.
    page_pool: OnceBox<Arc<PageLists>>,
    sleep: Sleep,
    waker: Waker,
}

impl Shard {
    /// A shard whose core is woken by `waker`, and whose transport counts into `transport`.
    pub(crate) fn new(
        platform: Box<dyn Platform>,
        limits: Limits,
        waker: Waker,
        transport: Arc<rocev2::counters::Counters>,
    ) -> Self {
        Self {
            takes_turns: platform.takes_turns(),
            platform,
            limits,
            counters: Counters::new(transport),
            control: Inbox::default(),
            objects: AtomicUsize::new(limits.objects),
            requests: AtomicUsize::new(REQUESTS_MAX),
            doorbells: Bells::new(2 * RINGERS_MAX),
            lams: LamRings::new(1),
            page_pool: OnceBox::new(),
            sleep: Sleep::default(),
            waker,
        }
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
        self.wake();
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

    /// Tells the core that `object` has something in its rings, or `reasons`. The object is not
    /// touched once the core may have seen it.
    #[inline]
    pub(crate) fn ring(&self, object: ObjectId, doorbell: &Doorbell, reasons: u8) {
        if doorbell.ring(reasons) {
            self.ring_first(object);
        }
    }

    /// Puts an object whose doorbell did not ring before into the ring, and wakes the core for it and for all that is rung
    /// for until the core answers.
    #[inline(never)]
    fn ring_first(&self, object: ObjectId) {
        // At most one entry per object, and no more objects that ring than places.
        if self.takes_turns {
            self.doorbells.push(object);
        } else {
            self.push_undisturbed(object);
        }
        self.wake();
    }

    #[inline(never)]
    fn push_undisturbed(&self, object: ObjectId) {
        self.platform.undisturbed(&mut || self.doorbells.push(object));
    }

    /// Doorbells that ring now; later ones wait for the next turn.
    pub(crate) fn ringing(&self) -> usize {
        self.doorbells.len()
    }

    /// Takes an object whose doorbell rang.
    pub(crate) fn next_doorbell(&self) -> Option<ObjectId> {
        self.doorbells.pop()
    }

    /// Whether a doorbell or a mapping of logical addresses waits.
    #[inline]
    pub(crate) fn has_posts(&self) -> bool {
        !self.doorbells.is_empty() || !self.lams.of(0).is_empty()
    }

    /// Whether a message, a doorbell or a mapping waits.
    pub(crate) fn has_work(&self) -> bool {
        !self.control.is_empty() || self.has_posts()
    }

    /// The core is about to sleep. It must look at [`Self::has_work`] once more after this.
    pub(crate) fn announce_sleep(&self, sleeping: bool) {
        self.sleep.announce(sleeping);
    }

    /// Wakes the core if it sleeps; a running core sees the ring by itself, so the busy path makes
    /// no system call.
    pub(crate) fn wake(&self) {
        if self.sleep.must_wake() {
            self.waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MDL, NDK_VERSION};
    use crate::adapter::request::OpenAdapter;
    use crate::platform::Mapped;
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
        let shard = Shard::new(platform, Limits::default(), Waker::noop().clone(), Arc::default());
        let message = || OpenAdapter { version: NDK_VERSION::default(), opened: Box::new(drop) };
        assert_eq!(shard.request(message()), Ok(()));
        assert_eq!(shard.request_if(|| Ok::<_, ()>(message())), Ok(Ok(())));
        shard.ring(ObjectId::default(), &Doorbell::default(), 0);
        assert_eq!(steps.load(Ordering::Relaxed), 1);
        let mut taken = Taken::default();
        while shard.next_control(&mut taken).is_some() {}
        assert_eq!(shard.next_doorbell(), Some(ObjectId::default()));
        assert!(!shard.has_work());
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
        let (waker, limits) = (Waker::noop().clone(), Limits::default());
        let shard = Shard::new(Box::new(Poor), limits, waker, Arc::default());
        let opens = OpenAdapter { version: NDK_VERSION::default(), opened: Box::new(drop) };
        assert_eq!(shard.request(opens), Err(Full));
        assert_eq!((shard.stop(), shard.check_paths()), (Ok(()), Ok(())));
        assert_eq!(shard.set_addresses(alloc::vec![]), Ok(()));
        let mut taken = Taken::default();
        assert_eq!(core::iter::from_fn(|| shard.next_control(&mut taken)).count(), 3);
    }
}
