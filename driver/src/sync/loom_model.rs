//! The models that loom explores: every order of the steps of two or three threads, and every value that
//! the memory model lets a load see. The code is the driver's own; the queues under it are those of
//! `loom_queues`. `RUSTFLAGS="--cfg loom" cargo test -p driver --lib -- loom`
#![allow(unsafe_code, reason = "a consumer's callbacks are C functions")]

use super::modelled::rtrb;
use super::*;
use crate::abi::{MDL, NTSTATUS, PVOID};
use crate::limits::Limits;
use crate::message::Control;
use crate::mr::request::DeregisterMr;
use crate::object::done::{CloseDone, RequestDone};
use crate::object::id::RingerKey;
use crate::object::shared::{Context, ObjectId};
use crate::platform::Mapped;
use crate::platform::Platform;
use crate::queue::Slots;
use crate::shard::{OBJECTS_MAX, Shard};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::sync::atomic::Ordering;
use core::task::Waker;
use loom::sync::atomic::AtomicUsize as Counter;
use loom::sync::{Condvar, Mutex};
use rocev2::env::Instant;

/// The event that a thread waits for. If it is set before, the thread does not wait.
#[derive(Default)]
pub(crate) struct Bell(Mutex<bool>, Condvar);

impl Bell {
    pub(crate) fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    pub(crate) fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// Nothing that a model asks for.
struct NoPlatform;

impl Platform for NoPlatform {
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn map(&self, _mdl: &MDL) -> Option<Mapped> {
        None
    }
}

/// A shard, and what its core sleeps on.
fn shard() -> (Arc<Shard>, Arc<Bell>) {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    (
        Arc::new(Shard::new(
            Box::new(NoPlatform),
            Limits::default(),
            &[waker],
            alloc::vec::Vec::new(),
            0,
        )),
        bell,
    )
}

/// Sleeps as the homes of the core do: announces it, looks once more, and waits to be woken.
/// The bell of an object of the only core.
fn bell_of(shard: &Shard) -> crate::shard::Bell {
    crate::shard::Bell::new(Arc::clone(shard.door(0)), RingerKey::default())
}

fn sleep(shard: &Shard, bell: &Bell) {
    shard.announce_sleep(0, true);
    if !shard.has_letters() && !shard.has_work(0) {
        bell.wait();
    }
    shard.announce_sleep(0, false);
}

/// The orders with at most `preemptions` switches away from a thread that could go on.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

unsafe extern "system" fn unheard(_: PVOID, _: NTSTATUS) {}

unsafe extern "system" fn closed(_: PVOID) {}

fn message() -> DeregisterMr {
    let done = RequestDone::new(Some(unheard), core::ptr::null_mut()).unwrap();
    DeregisterMr { mr: ObjectId::default(), done }
}

/// A core that falls asleep takes the requests that are posted and rung for meanwhile, in order; a queue of
/// one place takes the next request when the first has ended. A lost wake is a deadlock.
#[test]
fn every_post_is_taken() {
    explore(3, || {
        let (shard, bell) = shard();
        let (mut ring, mut posted) = rtrb::RingBuffer::new(2);
        let qp = Arc::new((Doorbell::default(), Slots::new(1)));
        let (its_shard, its_qp) = (Arc::clone(&shard), Arc::clone(&qp));
        let consumer = loom::thread::spawn(move || {
            let (doorbell, slots) = &*its_qp;
            let mut next = 0;
            while next < 2 {
                if slots.check_room(next).is_err() {
                    loom::thread::yield_now();
                    continue;
                }
                assert!(ring.push(next).is_ok(), "there is room for a whole depth");
                its_shard.ring(&bell_of(&its_shard), doorbell, 0);
                next += 1;
            }
        });
        let (doorbell, slots) = &*qp;
        let mut taken = 0;
        while taken < 2 {
            while shard.door(0).next_doorbell().is_some() {
                doorbell.answer();
                while let Ok(request) = posted.pop() {
                    assert_eq!(request, taken);
                    taken += 1;
                    slots.retire();
                }
            }
            if taken < 2 {
                sleep(&shard, &bell);
            }
        }
        consumer.join().unwrap();
    });
}

/// The places of control messages: the core gets every accepted message, though several threads post.
#[test]
fn a_message_with_a_place_has_room() {
    explore(3, || {
        let (shard, _) = shard();
        // Full: every object closes, and a request waits.
        for _ in 0..OBJECTS_MAX {
            shard.reserve_object().unwrap();
            close(&shard);
        }
        shard.request(message()).unwrap();
        let requests = Arc::clone(&shard);
        let requester =
            loom::thread::spawn(move || usize::from(requests.request(message()).is_ok()));
        let objects = Arc::clone(&shard);
        let closer = loom::thread::spawn(move || {
            let reserved = objects.reserve_object().is_ok();
            if reserved {
                close(&objects);
            }
            usize::from(reserved)
        });
        let (mut taken, mut letters) = (0, Taken::default());
        let mut take = || {
            while let Some(message) = shard.next_control(&mut letters) {
                taken += 1;
                if matches!(message, Control::Close(_)) {
                    // As when its object is freed.
                    shard.release_object();
                }
            }
        };
        take();
        let sent = requester.join().unwrap() + closer.join().unwrap();
        take();
        assert_eq!(taken, OBJECTS_MAX + 1 + sent);
    });
}

fn close(shard: &Shard) {
    shard.close(
        Letter::new(),
        ObjectId::default(),
        CloseDone::Callback(closed, Context::from_u64(0)),
    );
}

/// Where it is dropped or copied, loom objects to another thread that may be at it.
struct Watched(Option<Arc<loom::cell::UnsafeCell<()>>>);

#[allow(unsafe_code, reason = "what no thread may share is what is tried")]
// SAFETY: nothing is in the cell, and loom looks at each access itself.
unsafe impl Send for Watched {}
#[allow(unsafe_code, reason = "what no thread may share is what is tried")]
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Clone for Watched {
    fn clone(&self) -> Self {
        self.0.iter().for_each(|cell| cell.with(|_| ()));
        Self(None)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.iter().for_each(|cell| cell.with_mut(|_| ()));
    }
}

/// A value is not freed while a thread copies it.
#[test]
fn a_replaced_value_outlives_its_readers() {
    explore(2, || {
        let watched = || Watched(Some(Arc::new(loom::cell::UnsafeCell::new(()))));
        let latest = Arc::new(Latest::default());
        let set = |latest: &Latest<Watched>| {
            #[allow(unsafe_code, reason = "the one writer")]
            // SAFETY: only this thread replaces.
            unsafe {
                latest.set(Room::new(), watched());
            };
        };
        set(&latest);
        let readers = [(); 2].map(|()| {
            let latest = Arc::clone(&latest);
            loom::thread::spawn(move || assert!(latest.get().is_some()))
        });
        set(&latest);
        set(&latest);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Work that is added while the core goes to sleep is found by the core, or wakes it, once.
#[test]
fn no_wake_is_lost() {
    loom::model(|| {
        let shared =
            Arc::new((Sleep::default(), [(); 2].map(|()| modelled::AtomicBool::new(false))));
        let adders = [0, 1].map(|adder| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                let (sleep, work) = &*shared;
                work[adder].store(true, Ordering::Relaxed);
                sleep.must_wake()
            })
        });
        let (sleep, work) = &*shared;
        sleep.announce(true);
        let found = work.iter().all(|work| work.load(Ordering::Relaxed));
        let wakes =
            adders.map(|adder| adder.join().unwrap()).iter().filter(|wakes| **wakes).count();
        assert!(wakes == 1 || wakes == 0 && found);
    });
}

/// An entry that is put in before a doorbell rings is seen when it is served, or it rings again; an object
/// is never in the ring of doorbells twice.
#[test]
fn no_ring_of_a_doorbell_is_lost() {
    loom::model(|| {
        let shared = Arc::new((Doorbell::default(), Counter::new(0), Counter::new(0)));
        let adder = Arc::clone(&shared);
        let added = loom::thread::spawn(move || {
            let (doorbell, items, rung) = &*adder;
            for _ in 0..2 {
                items.fetch_add(1, Ordering::Relaxed);
                if doorbell.ring(0) {
                    assert_eq!(rung.fetch_add(1, Ordering::Release), 0, "in the ring twice");
                }
            }
        });
        let (doorbell, items, rung) = &*shared;
        let mut seen = 0;
        let mut answer = || {
            if rung.load(Ordering::Acquire) > 0 {
                rung.fetch_sub(1, Ordering::Relaxed);
                doorbell.answer();
                seen = items.load(Ordering::Relaxed);
            }
            seen
        };
        answer();
        answer();
        added.join().unwrap();
        assert_eq!(answer(), 2);
    });
}

/// An object that two threads ring for comes out of a ring that has just its place, as often as it rings.
#[test]
fn no_object_that_rings_is_lost() {
    explore(3, || {
        let shared = Arc::new((Bells::new(1), Doorbell::default(), Counter::new(0)));
        let adders = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                let (bells, doorbell, items) = &*shared;
                items.fetch_add(1, Ordering::Relaxed);
                if doorbell.ring(0) {
                    bells.push(RingerKey::default());
                }
            })
        });
        let (bells, doorbell, items) = &*shared;
        let mut seen = 0;
        while seen < 2 {
            if bells.pop().is_some() {
                doorbell.answer();
                seen = items.load(Ordering::Relaxed);
            } else {
                loom::thread::yield_now();
            }
        }
        for adder in adders {
            adder.join().unwrap();
        }
    });
}

/// Of callers that meet, one is let in; where both are, the second sees what the first left.
#[test]
fn one_caller_is_let_in() {
    loom::model(|| {
        // loom objects to two that are inside.
        let exclusive = Arc::new(Exclusive::new(loom::cell::UnsafeCell::new(0)));
        let other = Arc::clone(&exclusive);
        let call = |exclusive: &Exclusive<loom::cell::UnsafeCell<usize>>| {
            let Some(entered) = exclusive.enter() else { return 0 };
            #[allow(unsafe_code, reason = "what the model is about")]
            // SAFETY: loom checks that nobody else is inside.
            entered.with_mut(|value| unsafe { *value += 1 });
            1
        };
        let calls = loom::thread::spawn(move || call(&other));
        let mine = call(&exclusive);
        assert!(mine + calls.join().unwrap() > 0);
        assert!(!exclusive.is_entered());
    });
}
