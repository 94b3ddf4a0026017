//! The state of a completion queue that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::shared::{Context, Object};
use crate::shard::Bell;
use crate::sync::modelled::{AtomicU8, AtomicU32, fence, rtrb};
use crate::sync::{Doorbell, Exclusive};
use crate::upcall::Calling;
use core::sync::atomic::{AtomicU64, Ordering};
use rocev2::env::{Duration, Instant};

/// A completion queue.
pub(crate) type CqObject = Object<NDK_CQ, CqShared>;

/// An entry of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) status: NTSTATUS,
    pub(crate) bytes: u32,
    pub(crate) qp_context: Context,
    pub(crate) request_context: Context,
    pub(crate) operation: NDK_OPERATION_TYPE,
    pub(crate) token: u32,
    /// See [`crate::status::reason`].
    pub(crate) error_code: u32,
}

/// The shared state of a CQ.
pub(crate) struct CqShared {
    /// The consumer serializes its calls; see [`Exclusive`].
    pub(crate) results: Exclusive<Results>,
    pub(crate) polls: Polls,
    /// Entries ever taken.
    pub(crate) taken: AtomicU32,
    /// Entries that it may hold.
    pub(crate) depth: AtomicU32,
    /// Interval and count; see [`moderate`].
    pub(crate) moderation: AtomicU64,
    pub(crate) calling: Calling,
    pub(crate) arm: Arm,
    /// Calls that lead to a notification, and are not over: those that arm or change the moderation.
    pub(crate) inside: AtomicU32,
    pub(crate) bell: Bell,
    pub(crate) doorbell: Doorbell,
}

impl CqShared {
    /// Whether a call is inside that touches the CQ after the core may have seen it, or its notification.
    pub(crate) fn is_entered(&self) -> bool {
        let called = self.results.is_entered() || self.inside.load(Ordering::Acquire) > 0;
        called || self.calling.is_inside()
    }
}

/// Rings that may wait to take the place of the one before: each is at least twice as deep, so that
/// no CQ has more in its life.
pub(crate) const SUCCESSORS: usize = u32::BITS as usize;

/// The consumer's end of a CQ: a ring, and the deeper ones that a resize has put behind it.
pub(crate) struct Results {
    ring: rtrb::Consumer<Cqe>,
    successors: rtrb::Consumer<rtrb::Consumer<Cqe>>,
}

impl Results {
    pub(crate) fn new(
        ring: rtrb::Consumer<Cqe>,
        successors: rtrb::Consumer<rtrb::Consumer<Cqe>>,
    ) -> Self {
        Self { ring, successors }
    }

    /// Takes the oldest entries, `max` at most, and calls `each` with each. Returns how many there were.
    pub(super) fn take(&mut self, max: usize, mut each: impl FnMut(Cqe)) -> u32 {
        let mut taken = 0;
        loop {
            // A ring with a successor gets nothing more, so it is looked at once more after that was seen.
            let ends = !self.successors.is_empty();
            let count = self.ring.slots().min(max - taken);
            if let Ok(chunk) = self.ring.read_chunk(count) {
                chunk.into_iter().for_each(&mut each);
            }
            taken += count;
            if taken == max || !ends {
                // No more than the ULONG of a call.
                return taken as u32;
            }
            let Ok(next) = self.successors.pop() else { return taken as u32 };
            self.ring = next;
        }
    }
}

/// Whether a consumer polls, rather than wait for notifications: it has found nothing so often since it last armed.
#[derive(Debug, Default)]
pub(crate) struct Polls(AtomicU8);

/// A consumer that waits for notifications finds nothing once or twice before it arms.
const POLLS: u8 = 16;

impl Polls {
    /// Counts a poll that found nothing; whether the consumer polls. The consumer serializes its calls.
    #[inline]
    pub(super) fn is_empty_again(&self) -> bool {
        let polls = self.0.load(Ordering::Relaxed);
        if polls < POLLS {
            self.0.store(polls + 1, Ordering::Relaxed);
        }
        polls == POLLS
    }

    /// The consumer will wait for a notification; whether it has polled.
    pub(super) fn end(&self) -> bool {
        let polls = self.0.load(Ordering::Relaxed);
        if polls > 0 {
            self.0.store(0, Ordering::Relaxed);
        }
        polls == POLLS
    }
}

/// The decision of moderation about a notification that is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Moderation {
    /// It is made.
    Notify,
    /// It waits until then, or for completions.
    Until(Instant),
    /// It waits for completions alone.
    ForCount,
}

pub(super) const fn pack(interval: ULONG, count: ULONG) -> u64 {
    (interval as u64) << 32 | count as u64
}

/// Whether a notification waits, with `unnotified` completions since the last one, the first of them at
/// `since`.
///
/// It waits until `count` completions are there or the oldest is `interval` microseconds old. An
/// interval of 0, or a count of 0 or 1, turns moderation off. An interval of `MAXULONG` leaves it to
/// the count; a count of `MAXULONG` or above the depth leaves it to the interval. Should a resize
/// have left neither, nothing waits.
pub(crate) fn moderate(
    settings: u64,
    depth: u32,
    unnotified: u32,
    since: Instant,
    now: Instant,
) -> Moderation {
    let (interval, count) = ((settings >> 32) as ULONG, settings as ULONG);
    let by_count = count <= depth;
    if interval == 0 || count <= 1 || (by_count && unnotified >= count) {
        return Moderation::Notify;
    }
    if interval == MAXULONG {
        return if by_count { Moderation::ForCount } else { Moderation::Notify };
    }
    let until = since + Duration::from_micros(u64::from(interval));
    if until <= now { Moderation::Notify } else { Moderation::Until(until) }
}

/// The agreement about the next notification.
///
/// The consumer arms and then looks for completions; the core adds completions and then looks for the arm. With
/// a fence between the two steps on both sides at least one of them sees the other, so that no
/// notification is lost (ndkpi, Completion Handling Requirements).
#[derive(Debug, Default)]
pub(crate) struct Arm {
    /// 0, or 1 + the strongest type armed since the last notification.
    armed: AtomicU8,
    /// The kinds of completions that were added since the last notification.
    pending: AtomicU8,
    /// Entries that the consumer had taken when it armed.
    taken: AtomicU32,
}

/// A completion was added.
pub(crate) const PENDING_ANY: u8 = 1;
/// A solicited or failed completion was added.
pub(crate) const PENDING_SOLICITED: u8 = 2;
/// The CQ failed.
pub(crate) const PENDING_ERROR: u8 = 4;

const ARM_ERRORS: u8 = 1;
const ARM_SOLICITED: u8 = 2;
const ARM_ANY: u8 = 3;

impl Arm {
    /// Arms, never weaker than before, after so many entries were taken. True: the core has to look.
    pub(super) fn arm(&self, kind: ULONG, taken: u32) -> bool {
        let strength = match kind {
            NDK_CQ_NOTIFY_ERRORS => ARM_ERRORS,
            NDK_CQ_NOTIFY_SOLICITED => ARM_SOLICITED,
            // Any other number of a consumer asks for all notifications.
            _ => ARM_ANY,
        };
        self.taken.store(taken, Ordering::Relaxed);
        // Release: a thread that sees the arm also sees what was taken before, and that its call is inside the CQ
        // (`CqShared::inside`), and does not free the CQ under it.
        self.armed.fetch_max(strength, Ordering::Release);
        fence(Ordering::SeqCst);
        satisfied(strength, self.pending.load(Ordering::Relaxed))
    }

    /// Adds completions of these kinds. True: the core has to look at the end of its turn.
    pub(crate) fn add(&self, kinds: u8) -> bool {
        self.pending.fetch_or(kinds, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        satisfied(self.armed.load(Ordering::Relaxed), self.pending.load(Ordering::Relaxed))
    }

    /// Whether a notification is due.
    pub(crate) fn is_due(&self) -> bool {
        satisfied(self.armed.load(Ordering::Acquire), self.pending.load(Ordering::Acquire))
    }

    /// Whether an arm of a CQ from which all was taken waits for what comes next. The core alone asks, as it alone adds, and
    /// only of an arm that is due; `added` entries were added ever.
    ///
    /// A completion after the arm is told of even where the consumer has taken it since (ndkpi, Completion Handling Requirements:
    /// The Rules for Notification Callbacks).
    pub(crate) fn waits_for_next(&self, added: u32) -> bool {
        let waits = self.taken.load(Ordering::Relaxed) == added;
        if waits {
            self.pending.store(0, Ordering::Relaxed);
        }
        waits
    }

    /// Disarms if a notification is due; the caller then makes it.
    pub(crate) fn take(&self) -> bool {
        let due = self.is_due();
        if due {
            // The kinds first: what is added from here on belongs to the next notification.
            self.pending.store(0, Ordering::Relaxed);
            self.armed.store(0, Ordering::Release);
        }
        due
    }
}

const fn satisfied(armed: u8, pending: u8) -> bool {
    match armed {
        ARM_ANY => pending != 0,
        ARM_SOLICITED => pending & (PENDING_SOLICITED | PENDING_ERROR) != 0,
        ARM_ERRORS => pending & PENDING_ERROR != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn entry(bytes: u32) -> Cqe {
        Cqe {
            status: STATUS_SUCCESS,
            bytes,
            qp_context: Context::from_u64(0),
            request_context: Context::from_u64(0),
            operation: NdkOperationTypeSend,
            token: 0,
            error_code: 0,
        }
    }

    #[test]
    fn arms_merge_to_the_strongest() {
        let kinds = [NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_CQ_NOTIFY_ANY];
        for first in 0..kinds.len() {
            for second in 0..kinds.len() {
                let arm = Arm::default();
                arm.arm(kinds[first], 0);
                arm.arm(kinds[second], 0);
                assert_eq!(usize::from(arm.armed.load(Ordering::Relaxed)), first.max(second) + 1);
            }
        }
    }

    /// A consumer that waits for less still hears that its CQ has failed.
    #[test]
    fn each_arm_hears_what_is_as_urgent() {
        let kinds = [NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_CQ_NOTIFY_ANY];
        let news = [PENDING_ERROR, PENDING_SOLICITED, PENDING_ANY];
        for (weakest, news) in news.into_iter().enumerate() {
            for (strength, kind) in kinds.into_iter().enumerate() {
                let arm = Arm::default();
                assert!(!arm.arm(kind, 0));
                assert_eq!(arm.add(news), strength >= weakest, "{strength} hears {weakest}");
            }
        }
    }

    #[test]
    fn a_completion_before_the_arm_notifies_at_once_and_only_once() {
        let arm = Arm::default();
        assert!(!arm.add(PENDING_ANY));
        assert!(arm.arm(NDK_CQ_NOTIFY_ANY, 0));
        assert!(arm.take());
        assert!(!arm.take());
        assert!(!arm.arm(NDK_CQ_NOTIFY_ANY, 1));
        assert!(arm.add(PENDING_ANY));
    }

    #[test]
    fn who_finds_nothing_again_and_again_polls() {
        let polls = Polls::default();
        for _ in 0..2 {
            for _ in 0..POLLS {
                assert!(!polls.is_empty_again());
            }
            assert!(polls.is_empty_again() && polls.is_empty_again() && polls.end());
            assert!(!polls.end());
        }
        assert!(!polls.is_empty_again() && !polls.end() && !polls.is_empty_again());
    }

    #[test]
    fn moderation_waits_for_the_count_or_the_interval() {
        let at = Instant::from_nanos;
        let moderate = |interval, count, unnotified, now| {
            moderate(pack(interval, count), 100, unnotified, at(1_000), at(now))
        };
        let until = Moderation::Until(at(21_000));
        // Off.
        for (interval, count) in [(0, 50), (20, 0), (20, 1), (0, MAXULONG), (MAXULONG, 1)] {
            assert_eq!(
                moderate(interval, count, 1, 1_000),
                Moderation::Notify,
                "{interval} {count}"
            );
        }
        // Both.
        assert_eq!(moderate(20, 5, 4, 20_999), until);
        assert_eq!(moderate(20, 5, 5, 1_000), Moderation::Notify);
        assert_eq!(moderate(20, 5, 4, 21_000), Moderation::Notify);
        // The interval alone.
        for count in [MAXULONG, 101] {
            assert_eq!(moderate(20, count, 100, 1_000), until);
        }
        // The count alone.
        assert_eq!(moderate(MAXULONG, 100, 99, u64::MAX), Moderation::ForCount);
        assert_eq!(moderate(MAXULONG, 100, 100, 1_000), Moderation::Notify);
        // Neither, after a resize.
        assert_eq!(moderate(MAXULONG, 101, 1, 1_000), Moderation::Notify);
    }

    #[test]
    fn entries_stay_in_order_over_successors() {
        let (mut ring, results) = rtrb::RingBuffer::new(2);
        let (mut rings, successors) = rtrb::RingBuffer::new(SUCCESSORS);
        let mut results = Results::new(results, successors);
        let mut taken = || {
            let mut taken = None;
            results.take(1, |cqe| taken = Some(cqe.bytes));
            taken
        };
        ring.push(entry(0)).unwrap();
        assert_eq!(taken(), Some(0));
        for (capacity, first) in [(4, 1), (8, 3), (16, 5)] {
            ring.push(entry(first)).unwrap();
            ring.push(entry(first + 1)).unwrap();
            let (next, consumer) = rtrb::RingBuffer::new(capacity);
            rings.push(consumer).unwrap();
            ring = next;
        }
        ring.push(entry(7)).unwrap();
        for bytes in 1..=7 {
            assert_eq!(taken(), Some(bytes));
        }
        assert_eq!(taken(), None);
        ring.push(entry(8)).unwrap();
        assert_eq!(taken(), Some(8));
    }

    #[test]
    fn a_plain_completion_does_not_satisfy_a_solicited_arm() {
        let arm = Arm::default();
        arm.arm(NDK_CQ_NOTIFY_SOLICITED, 0);
        assert!(!arm.add(PENDING_ANY));
        assert!(arm.add(PENDING_ANY | PENDING_SOLICITED));
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;
    use crate::sync::loom_model::Bell;
    use crate::sync::modelled::AtomicBool;
    use alloc::sync::Arc;
    use loom::cell::UnsafeCell;

    /// A completion and an arm that meet give one notification, whichever comes first.
    #[test]
    fn an_arm_and_a_completion_meet_once() {
        loom::model(|| {
            let arm = Arc::new(Arm::default());
            let consumer = Arc::clone(&arm);
            let rings = loom::thread::spawn(move || consumer.arm(NDK_CQ_NOTIFY_ANY, 0));
            let mut notified = 0;
            for _ in 0..2 {
                if arm.add(PENDING_ANY) && arm.take() {
                    notified += 1;
                }
            }
            if rings.join().unwrap() && arm.take() {
                notified += 1;
            }
            assert_eq!(notified, 1);
        });
    }

    /// Once the core has seen an arm, it sees its call inside the CQ until that has let go: what
    /// the call still touches is not freed.
    #[test]
    fn a_notification_sees_the_call_that_armed() {
        loom::model(|| {
            let cq = Arc::new((Arm::default(), AtomicU32::new(0), UnsafeCell::new(())));
            let consumer = Arc::clone(&cq);
            let call = loom::thread::spawn(move || {
                let (arm, inside, object) = &*consumer;
                inside.fetch_add(1, Ordering::Relaxed);
                arm.arm(NDK_CQ_NOTIFY_ANY, 0);
                object.with(|_| ());
                inside.fetch_sub(1, Ordering::Release);
            });
            let (arm, inside, object) = &*cq;
            arm.add(PENDING_ANY);
            if arm.take() && inside.load(Ordering::Acquire) == 0 {
                object.with_mut(|_| ());
            }
            call.join().unwrap();
        });
    }

    /// Completions come in order over rings that a resize puts behind one another.
    #[test]
    fn no_completion_is_overtaken_by_a_resize() {
        loom::model(|| {
            let (mut ring, results) = rtrb::RingBuffer::new(2);
            let (mut rings, successors) = rtrb::RingBuffer::new(SUCCESSORS);
            let consumer = loom::thread::spawn(move || {
                let mut results = Results::new(results, successors);
                for bytes in 0..3 {
                    while results.take(1, |cqe| assert_eq!(cqe.bytes, bytes)) == 0 {
                        loom::thread::yield_now();
                    }
                }
            });
            ring.push(tests::entry(0)).unwrap();
            ring.push(tests::entry(1)).unwrap();
            let (mut deeper, results) = rtrb::RingBuffer::new(4);
            rings.push(results).map_err(drop).unwrap();
            deeper.push(tests::entry(2)).unwrap();
            consumer.join().unwrap();
        });
    }

    /// A consumer that takes what is there, arms, and then waits for the notification gets every
    /// completion: its own look after the arm is not needed.
    #[test]
    fn a_consumer_that_arms_and_waits_misses_no_completion() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (mut ring, results) = rtrb::RingBuffer::new(2);
            let (_rings, successors) = rtrb::RingBuffer::new(SUCCESSORS);
            let (arm, done) = (Arm::default(), AtomicBool::new(false));
            let cq = Arc::new((arm, done, Bell::default(), Bell::default()));
            let its_cq = Arc::clone(&cq);
            let consumer = loom::thread::spawn(move || {
                let (arm, done, doorbell, notified) = &*its_cq;
                let mut results = Results::new(results, successors);
                let mut taken = 0;
                loop {
                    taken += results.take(2, drop);
                    if taken == 2 {
                        break;
                    }
                    if arm.arm(NDK_CQ_NOTIFY_ANY, taken) {
                        doorbell.ring();
                    }
                    notified.wait();
                }
                done.store(true, Ordering::Relaxed);
                doorbell.ring();
            });
            let (arm, done, doorbell, notified) = &*cq;
            let notify = |added| {
                if arm.is_due() && !arm.waits_for_next(added) && arm.take() {
                    notified.ring();
                }
            };
            for bytes in 0..2 {
                ring.push(tests::entry(bytes)).unwrap();
                if arm.add(PENDING_ANY) {
                    notify(bytes + 1);
                }
            }
            while !done.load(Ordering::Relaxed) {
                doorbell.wait();
                notify(2);
            }
            consumer.join().unwrap();
        });
    }
}
