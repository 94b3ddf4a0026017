//! What lies between the consumer's threads and the poll core: rings, and no shared state.
//!
//! * Work: one SPSC ring per initiator queue, per receive queue and per CQ (`rtrb`), because NDKPI
//!   obliges the consumer to serialize its calls on each.
//! * Control: one bounded MPSC ring per shard for everything else.
//! * Mappings of logical addresses: one bounded ring per shard (`crate::ndk::lam`).
//! * Doorbells: one bounded MPSC ring per shard; an object is in it at most once.

use crate::abi::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES};
use crate::ndk::adapter::Limits;
use crate::ndk::counters::Counters;
use crate::ndk::lam::LamRing;
use crate::ndk::{CloseDone, Control, ObjectId};
use crate::platform::{Platform, with_memory};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;
use core::task::Waker;
use modelled::{ArrayQueue, AtomicPtr, AtomicUsize, fence};

/// Objects that exist at a time, per shard. Each holds one place of the control ring for its close
/// from its creation on, so a close never fails for want of room.
const OBJECTS_MAX: usize = if cfg!(all(loom, test)) { 2 } else { 1 << 15 };
/// Other control messages on their way at a time. They have places of their own, so that a provider
/// full of objects still serves those that it has.
const REQUESTS_MAX: usize = if cfg!(all(loom, test)) { 1 } else { 1 << 14 };

/// A value that one caller at a time may use, by the consumer's own promise. A consumer that breaks
/// the promise is turned away instead of racing.
///
/// It is also the sign that a call is inside: an object is not freed while it is entered.
#[derive(Debug)]
pub(crate) struct Exclusive<T> {
    entered: modelled::AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `entered` admits one thread at a time to the value.
#[allow(unsafe_code, reason = "the flag makes the cell exclusive")]
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { entered: modelled::AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another call is using it.
    pub(crate) fn enter(&self) -> Option<Entered<'_, T>> {
        let first =
            self.entered.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Lazily: a guard that is made for a caller turned away would free the place of the first.
        first.is_ok().then(|| Entered(self, PhantomData))
    }

    /// Whether a call is inside.
    pub(crate) fn is_entered(&self) -> bool {
        self.entered.load(Ordering::Acquire)
    }
}

/// Access to the value of an [`Exclusive`] until it is dropped.
pub(crate) struct Entered<'a, T>(&'a Exclusive<T>, PhantomData<&'a mut T>);

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only one guard exists at a time.
        unsafe { &*self.0.value.get() }
    }
}

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one guard exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.0.entered.store(false, Ordering::Release);
    }
}

/// A value that the core replaces now and then, while consumers copy it.
///
/// A value that was replaced lives on behind the new one until a replacement finds no reader.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    current: AtomicPtr<Node<T>>,
    readers: AtomicUsize,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    older: AtomicPtr<Self>,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { current: AtomicPtr::new(core::ptr::null_mut()), readers: AtomicUsize::new(0) }
    }
}

#[allow(unsafe_code, reason = "readers and the one writer agree on who frees")]
impl<T: Clone> Latest<T> {
    /// A copy; `None` while there is no value.
    pub(crate) fn get(&self) -> Option<T> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: of the two fences one is first. If it is this one, the writer sees this reader and
        // frees nothing; else this load saw what the writer put in place of what it frees.
        let value = unsafe { current.as_ref() }.map(|node| node.value.clone());
        self.readers.fetch_sub(1, Ordering::Release);
        value
    }

    /// Replaces the value.
    ///
    /// # Safety
    /// Only one thread replaces.
    pub(crate) unsafe fn set(&self, value: T) {
        let older = self.current.load(Ordering::Relaxed);
        let node = Box::into_raw(Box::new(Node { value, older: AtomicPtr::new(older) }));
        self.current.store(node, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.readers.load(Ordering::Acquire) == 0 {
            // SAFETY: ours, and only we look at `older`.
            let older = unsafe { &(*node).older }.swap(core::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: nobody reads what was replaced, and nobody can begin to.
            unsafe { free(older) };
        }
    }
}

impl<T> Drop for Latest<T> {
    #[allow(unsafe_code, reason = "the last owner frees")]
    fn drop(&mut self) {
        // SAFETY: nobody else has the value any more.
        unsafe { free(self.current.load(Ordering::Relaxed)) };
    }
}

/// Frees a chain of values.
///
/// # Safety
/// The chain came from [`Latest::set`], and nobody reaches it any more.
#[allow(unsafe_code, reason = "the boxes were given away as pointers")]
unsafe fn free<T>(mut chain: *mut Node<T>) {
    while !chain.is_null() {
        // SAFETY: the caller's promise.
        let node = unsafe { Box::from_raw(chain) };
        chain = node.older.load(Ordering::Relaxed);
    }
}

/// An object's own half of its doorbell: whether it rings, and what for.
#[derive(Debug, Default)]
pub(crate) struct Doorbell(modelled::AtomicU8);

/// The object is in the ring of doorbells.
const RINGING: u8 = 1;
/// The QP has to be flushed.
pub(crate) const FLUSH: u8 = 2;

impl Doorbell {
    /// Adds reasons; true if it did not ring before. One step: the core cannot answer a part of it.
    fn ring(&self, reasons: u8) -> bool {
        self.0.fetch_or(RINGING | reasons, Ordering::AcqRel) & RINGING == 0
    }

    /// Stops ringing; the reasons. What was put into the object's rings before is visible now.
    pub(crate) fn answer(&self) -> u8 {
        self.0.swap(0, Ordering::AcqRel)
    }
}

/// The agreement about sleep.
///
/// The core announces that it will sleep and then looks for work; others add work and then look for
/// the announcement. With a fence between the two steps on both sides at least one of them sees the
/// other, so that no wake is lost.
#[derive(Debug, Default)]
pub(crate) struct Sleep(modelled::AtomicBool);

impl Sleep {
    /// The core is about to sleep and must look for work once more after this, or is awake.
    fn announce(&self, sleeping: bool) {
        self.0.store(sleeping, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// After work was added: whether the core has to be woken.
    fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

/// What lies between the threads, as loom can look into it:
/// `RUSTFLAGS="--cfg loom" cargo test -p driver --lib -- loom token`.
pub(crate) mod modelled {
    #[cfg(all(loom, test))]
    pub(crate) use super::loom_queues::{ArrayQueue, rtrb};
    #[cfg(not(all(loom, test)))]
    pub(crate) use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, fence,
    };
    #[cfg(not(all(loom, test)))]
    pub(crate) use crossbeam_queue::ArrayQueue;
    #[cfg(all(loom, test))]
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, fence,
    };
    #[cfg(not(all(loom, test)))]
    pub(crate) mod rtrb {
        pub(crate) use ::rtrb::{Consumer, Producer, RingBuffer};
    }
}

#[cfg(all(loom, test))]
mod loom_queues;

#[cfg(all(loom, test))]
pub(crate) mod loom_model;

/// The consumer's side of one poll core.
pub(crate) struct Shard {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    control: ArrayQueue<Control>,
    /// Objects that may still be created.
    objects: AtomicUsize,
    /// Free places of `control` that belong to no object.
    requests: AtomicUsize,
    doorbells: ArrayQueue<ObjectId>,
    pub(crate) lams: LamRing,
    sleep: Sleep,
    waker: Waker,
}

/// The control ring has no room: the caller reports insufficient resources.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Full;

impl Shard {
    /// A shard whose core is woken by `waker`, and whose transport counts into `transport`.
    pub(crate) fn new(
        platform: Box<dyn Platform>,
        limits: Limits,
        waker: Waker,
        transport: Arc<rocev2::counters::Counters>,
    ) -> Self {
        Self {
            platform,
            limits,
            counters: Counters::new(transport),
            control: ArrayQueue::new(OBJECTS_MAX + REQUESTS_MAX),
            objects: AtomicUsize::new(OBJECTS_MAX),
            requests: AtomicUsize::new(REQUESTS_MAX),
            doorbells: ArrayQueue::new(OBJECTS_MAX),
            lams: LamRing::default(),
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

    /// Sends a message that takes a place of its own.
    pub(crate) fn request(&self, message: Control) -> Result<(), Full> {
        take(&self.requests)?;
        self.send(message);
        Ok(())
    }

    /// Sends what `make` gives, if there is a place for it; `make` is called only then.
    pub(crate) fn request_if<E>(
        &self,
        make: impl FnOnce() -> Result<Control, E>,
    ) -> Result<Result<(), E>, Full> {
        take(&self.requests)?;
        Ok(match make() {
            Ok(message) => {
                self.send(message);
                Ok(())
            }
            Err(error) => {
                self.requests.fetch_add(1, Ordering::Release);
                Err(error)
            }
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
    #[cfg(target_os = "linux")]
    pub(crate) fn open_objects(&self) -> usize {
        OBJECTS_MAX - self.objects.load(Ordering::Relaxed)
    }

    /// Closes an object, in the place that it holds.
    pub(crate) fn close(&self, object: ObjectId, done: CloseDone) {
        self.send(Control::Close { object, done });
    }

    fn send(&self, message: Control) {
        let pushed = push(&*self.platform, &self.control, message);
        assert!(pushed, "every message has a place");
        self.wake();
    }

    /// Takes a control message. Its place is free again; that of a close goes with the object.
    pub(crate) fn next_control(&self) -> Option<Control> {
        let message = self.control.pop()?;
        if !matches!(message, Control::Close { .. }) {
            self.requests.fetch_add(1, Ordering::Release);
        }
        Some(message)
    }

    /// Tells the core that `object` has something in its rings, or `reasons`. The object is not
    /// touched once the core may have seen it.
    pub(crate) fn ring(&self, object: ObjectId, doorbell: &Doorbell, reasons: u8) {
        if doorbell.ring(reasons) {
            // At most one entry per object, and no more objects than places.
            let pushed = push(&*self.platform, &self.doorbells, object);
            debug_assert!(pushed);
        }
        self.wake();
    }

    /// Doorbells that ring now; whoever rings later waits for the next look.
    pub(crate) fn ringing(&self) -> usize {
        self.doorbells.len()
    }

    /// Takes an object whose doorbell rang.
    pub(crate) fn next_doorbell(&self) -> Option<ObjectId> {
        self.doorbells.pop()
    }

    /// Whether a message or a doorbell waits.
    pub(crate) fn has_work(&self) -> bool {
        !self.control.is_empty() || !self.doorbells.is_empty() || !self.lams.is_empty()
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

/// Appends to a ring that the core reads; false if there is no room. A reader waits for who has taken a
/// place and not filled it, so that nothing may come between the two.
fn push<T>(platform: &dyn Platform, ring: &ArrayQueue<T>, value: T) -> bool {
    let (mut value, mut pushed) = (Some(value), false);
    platform.undisturbed(&mut || {
        pushed = value.take().is_some_and(|value| ring.push(value).is_ok());
    });
    pushed
}

/// Takes one of `places`. Who takes one that was given back also sees that the ring has room again.
pub(crate) fn take(places: &AtomicUsize) -> Result<(), Full> {
    let less = |places: usize| places.checked_sub(1);
    places.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).map(drop).map_err(|_| Full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MDL, NDK_VERSION};
    use crate::platform::Mapped;
    use rocev2::env::Instant;

    #[test]
    fn the_latest_value_is_read_while_others_replace_it() {
        let latest = Latest::default();
        assert_eq!(latest.get(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..200_u32 {
                    // SAFETY: the only thread that replaces.
                    #[allow(unsafe_code, reason = "the one writer")]
                    unsafe {
                        latest.set(Box::new(value));
                    };
                }
            });
            let mut last = 0;
            while last < 199 {
                let value = latest.get().map_or(0, |value| *value);
                assert!(value >= last);
                last = value;
            }
        });
        assert_eq!(latest.get(), Some(Box::new(199)));
    }

    #[test]
    fn a_doorbell_rings_once_and_keeps_every_reason() {
        let doorbell = Doorbell::default();
        assert!(doorbell.ring(0));
        assert!(!doorbell.ring(FLUSH));
        assert_eq!(doorbell.answer(), RINGING | FLUSH);
        assert!(doorbell.ring(0));
        assert_eq!(doorbell.answer(), RINGING);
    }

    #[test]
    fn a_second_caller_is_turned_away() {
        let exclusive = Exclusive::new(1);
        let mut first = exclusive.enter().unwrap();
        *first += 1;
        assert!(exclusive.enter().is_none() && exclusive.is_entered());
        drop(first);
        assert_eq!(*exclusive.enter().unwrap(), 2);
    }

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

    /// The core waits for whoever has begun to put something into a ring: on Windows it may be what
    /// interrupted him.
    #[test]
    fn nothing_comes_between_while_a_ring_is_filled() {
        let steps = Arc::new(AtomicUsize::new(0));
        let platform = Box::new(Steps(Arc::clone(&steps)));
        let shard = Shard::new(platform, Limits::default(), Waker::noop().clone(), Arc::default());
        let message =
            || Control::OpenAdapter { version: NDK_VERSION::default(), opened: Box::new(drop) };
        assert_eq!(shard.request(message()), Ok(()));
        assert_eq!(shard.request_if(|| Ok::<_, ()>(message())), Ok(Ok(())));
        shard.ring(ObjectId::default(), &Doorbell::default(), 0);
        assert_eq!(steps.load(Ordering::Relaxed), 3);
        while shard.next_control().is_some() {}
        assert_eq!(shard.next_doorbell(), Some(ObjectId::default()));
        assert!(!shard.has_work());
    }
}
