//! Completion queues: results, arming and the notification.

use super::{Context, Control, Object, RequestDone, ndk_close, ndk_query_extension, request};
use crate::abi::*;
use crate::ring::modelled::{AtomicU8, AtomicU32, fence, rtrb};
use crate::ring::{Doorbell, Exclusive};
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
    /// See [`super::reason`].
    pub(crate) error_code: u32,
}

/// What to create.
pub(crate) struct CreateCq {
    pub(crate) depth: u32,
    pub(crate) notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    pub(crate) context: Context,
}

/// What both sides see of a CQ.
pub(crate) struct CqShared {
    /// The consumer serializes its calls; see [`Exclusive`].
    pub(crate) results: Exclusive<Results>,
    /// Entries ever taken.
    pub(crate) taken: AtomicU32,
    /// Entries that it may hold.
    pub(crate) depth: AtomicU32,
    /// Interval and count; see [`hold`].
    pub(crate) moderation: AtomicU64,
    /// Entered while moderation is changed.
    pub(crate) moderating: Exclusive<()>,
    pub(crate) arm: Arm,
    pub(crate) doorbell: Doorbell,
}

impl CqShared {
    /// Whether a call is inside that touches the CQ after the core may have seen it.
    pub(crate) fn is_entered(&self) -> bool {
        self.results.is_entered() || self.moderating.is_entered()
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

    /// The oldest entry.
    fn pop(&mut self) -> Option<Cqe> {
        loop {
            if let Ok(cqe) = self.ring.pop() {
                return Some(cqe);
            }
            if self.successors.is_empty() {
                return None;
            }
            // A ring with a successor gets nothing more; what it got before is seen now.
            if let Ok(cqe) = self.ring.pop() {
                return Some(cqe);
            }
            self.ring = self.successors.pop().ok()?;
        }
    }
}

/// What moderation makes of a notification that is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hold {
    /// It is made.
    No,
    /// It waits until then, or for completions.
    Until(Instant),
    /// It waits for completions alone.
    ForCount,
}

const fn pack(interval: ULONG, count: ULONG) -> u64 {
    (interval as u64) << 32 | count as u64
}

/// Whether a notification waits, with `fresh` completions since the last one, the first of them at
/// `since`.
///
/// It waits until `count` completions are there or the oldest is `interval` microseconds old. An
/// interval of 0, or a count of 0 or 1, turns moderation off. An interval of `MAXULONG` leaves it to
/// the count; a count of `MAXULONG` or above the depth leaves it to the interval. Should a resize
/// have left neither, nothing waits.
pub(crate) fn hold(settings: u64, depth: u32, fresh: u32, since: Instant, now: Instant) -> Hold {
    let (interval, count) = ((settings >> 32) as ULONG, settings as ULONG);
    let by_count = count <= depth;
    if interval == 0 || count <= 1 || (by_count && fresh >= count) {
        return Hold::No;
    }
    if interval == MAXULONG {
        return if by_count { Hold::ForCount } else { Hold::No };
    }
    let until = since + Duration::from_micros(u64::from(interval));
    if until <= now { Hold::No } else { Hold::Until(until) }
}

/// The agreement about the next notification.
///
/// The consumer arms and then looks for news; the core makes news and then looks for the arm. With
/// a fence between the two steps on both sides at least one of them sees the other, so that no
/// notification is lost (ndkpi, Completion Handling Requirements).
#[derive(Debug, Default)]
pub(crate) struct Arm {
    /// 0, or 1 + the strongest type armed since the last notification.
    armed: AtomicU8,
    /// What was added since the last notification.
    news: AtomicU8,
}

/// A completion was added.
pub(crate) const NEWS_ANY: u8 = 1;
/// A solicited or failed completion was added.
pub(crate) const NEWS_SOLICITED: u8 = 2;
/// The CQ failed.
pub(crate) const NEWS_ERROR: u8 = 4;

const ARM_ERRORS: u8 = 1;
const ARM_SOLICITED: u8 = 2;
const ARM_ANY: u8 = 3;

impl Arm {
    /// Arms, never weaker than before. True: the core has to look.
    fn arm(&self, kind: ULONG) -> bool {
        let strength = match kind {
            NDK_CQ_NOTIFY_ERRORS => ARM_ERRORS,
            NDK_CQ_NOTIFY_SOLICITED => ARM_SOLICITED,
            // Whatever a consumer means by another number, it wants to be told.
            _ => ARM_ANY,
        };
        // Release: whoever sees the arm also sees that its call is inside the CQ (`Exclusive`), and
        // does not free the CQ under it.
        self.armed.fetch_max(strength, Ordering::Release);
        fence(Ordering::SeqCst);
        satisfied(strength, self.news.load(Ordering::Relaxed))
    }

    /// Notes what was added. True: the core has to look at the end of its turn.
    pub(crate) fn add(&self, news: u8) -> bool {
        self.news.fetch_or(news, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        satisfied(self.armed.load(Ordering::Relaxed), self.news.load(Ordering::Relaxed))
    }

    /// Whether a notification is due.
    pub(crate) fn is_due(&self) -> bool {
        satisfied(self.armed.load(Ordering::Acquire), self.news.load(Ordering::Acquire))
    }

    /// Disarms if a notification is due; the caller then makes it.
    pub(crate) fn take(&self) -> bool {
        let due = self.is_due();
        if due {
            // News first: what is added from here on belongs to the next notification.
            self.news.store(0, Ordering::Relaxed);
            self.armed.store(0, Ordering::Release);
        }
        due
    }
}

const fn satisfied(armed: u8, news: u8) -> bool {
    match armed {
        ARM_ANY => news != 0,
        ARM_SOLICITED => news & (NEWS_SOLICITED | NEWS_ERROR) != 0,
        ARM_ERRORS => news & NEWS_ERROR != 0,
        _ => false,
    }
}

/// The table of every CQ.
pub(crate) static DISPATCH: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: ndk_close::<NDK_CQ>,
    NdkQueryExtension: ndk_query_extension,
    NdkResizeCq: ndk_resize_cq,
    NdkArmCq: ndk_arm_cq,
    NdkGetCqResults: ndk_get_cq_results,
    NdkControlCqInterruptModeration: ndk_control_cq_interrupt_moderation,
    NdkGetCqResultsEx: ndk_get_cq_results_ex,
};

impl CqObject {
    /// Moves up to `count` results out, each by `put`; returns how many.
    fn drain(&self, count: ULONG, mut put: impl FnMut(usize, Cqe)) -> ULONG {
        // A second concurrent call is a consumer's mistake and finds nothing.
        let Some(mut results) = self.shared.results.enter() else { return 0 };
        let mut taken = 0;
        while taken < count
            && let Some(cqe) = results.pop()
        {
            put(taken as usize, cqe);
            taken += 1;
        }
        if taken > 0 {
            self.shared.taken.fetch_add(taken, Ordering::Release);
        }
        taken
    }
}

/// [`NDK_FN_ARM_CQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_arm_cq).
/// IRQL <= DISPATCH_LEVEL. The notification always comes from the core, never from inside.
///
/// # Safety
/// `cq` is open.
unsafe extern "system" fn ndk_arm_cq(cq: *mut NDK_CQ, kind: ULONG) {
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let Ok(cq) = (unsafe { CqObject::check(cq) }) else { return };
    // Entered, so that the CQ is not freed under this call by a notification that closes it.
    let entered = cq.shared.results.enter();
    if cq.shared.arm.arm(kind) {
        cq.base.shard.ring(cq.base.id, &cq.shared.doorbell, 0);
    }
    drop(entered);
}

/// [`NDK_FN_RESIZE_CQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_resize_cq).
/// IRQL <= DISPATCH_LEVEL.
///
/// `STATUS_INVALID_PARAMETER` for a depth above the adapter's limit. Otherwise it pends, and ends
/// with `STATUS_BUFFER_OVERFLOW` if more completions than `depth` wait for the consumer, with
/// `STATUS_INVALID_DEVICE_STATE` if the CQ has failed, and nothing has changed then. No completion
/// is lost or overtaken by another, and polling goes on meanwhile. As on creation, 0 counts as 1.
///
/// # Safety
/// `cq` is open.
unsafe extern "system" fn ndk_resize_cq(
    cq: *mut NDK_CQ,
    depth: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let cq = or_return!(unsafe { CqObject::check(cq) });
    if depth > cq.base.shard.limits.cq_depth {
        return STATUS_INVALID_PARAMETER;
    }
    let done = or_return!(RequestDone::new(completion, context));
    request(cq.base.shard(), Control::ResizeCq { cq: cq.base.id, depth, done })
}

/// [`NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_control_cq_interrupt_moderation).
/// IRQL <= DISPATCH_LEVEL.
///
/// Delays notifications only, never what polling sees, and never the news that the CQ has failed;
/// [`hold`] has the rules. Settings hold from the core's next turn on, for a notification that
/// already waits too. `STATUS_INVALID_PARAMETER_MIX` if neither interval nor count would end a wait.
///
/// # Safety
/// `cq` is open.
unsafe extern "system" fn ndk_control_cq_interrupt_moderation(
    cq: *mut NDK_CQ,
    interval: ULONG,
    count: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let cq = or_return!(unsafe { CqObject::check(cq) });
    // MAXULONG is above any depth.
    if interval == MAXULONG && count > cq.shared.depth.load(Ordering::Acquire) {
        return STATUS_INVALID_PARAMETER_MIX;
    }
    // Entered, so that the CQ is not freed under this call by a notification that closes it.
    let Some(entered) = cq.shared.moderating.enter() else { return STATUS_INVALID_DEVICE_REQUEST };
    cq.shared.moderation.store(pack(interval, count), Ordering::Release);
    cq.base.shard.ring(cq.base.id, &cq.shared.doorbell, 0);
    drop(entered);
    STATUS_SUCCESS
}

/// [`NDK_FN_GET_CQ_RESULTS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_cq_results).
/// IRQL <= DISPATCH_LEVEL.
///
/// A null array takes nothing.
///
/// # Safety
/// `cq` is open; `results` is null or writable for `count` elements.
unsafe extern "system" fn ndk_get_cq_results(
    cq: *mut NDK_CQ,
    results: *mut NDK_RESULT,
    count: ULONG,
) -> ULONG {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let Ok(cq) = (unsafe { CqObject::check(cq) }) else { return 0 };
    cq.drain(count, |at, cqe| {
        let result = NDK_RESULT {
            Status: cqe.status,
            BytesTransferred: cqe.bytes,
            QPContext: cqe.qp_context.get(),
            RequestContext: cqe.request_context.get(),
        };
        // SAFETY: `at` is below `count`.
        unsafe { results.wrapping_add(at).write(result) };
    })
}

/// [`NDK_FN_GET_CQ_RESULTS_EX`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_cq_results_ex).
/// IRQL <= DISPATCH_LEVEL.
///
/// A null array takes nothing.
///
/// # Safety
/// `cq` is open; `results` is null or writable for `count` elements.
unsafe extern "system" fn ndk_get_cq_results_ex(
    cq: *mut NDK_CQ,
    results: *mut NDK_RESULT_EX,
    count: ULONG,
) -> ULONG {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let Ok(cq) = (unsafe { CqObject::check(cq) }) else { return 0 };
    let told = cq.base.check_2_1().is_ok();
    cq.drain(count, |at, cqe| {
        let result = NDK_RESULT_EX {
            Status: cqe.status,
            BytesTransferred: cqe.bytes,
            QPContext: cqe.qp_context.get(),
            RequestContext: cqe.request_context.get(),
            Type: cqe.operation,
            // Before 2.1 there is none.
            ProviderErrorCode: if told { cqe.error_code } else { 0 },
            TypeSpecificCompletionOutput: cqe.token as ULONG_PTR,
        };
        // SAFETY: `at` is below `count`.
        unsafe { results.wrapping_add(at).write(result) };
    })
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
                arm.arm(kinds[first]);
                arm.arm(kinds[second]);
                assert_eq!(usize::from(arm.armed.load(Ordering::Relaxed)), first.max(second) + 1);
            }
        }
    }

    #[test]
    fn news_before_the_arm_notify_at_once_and_only_once() {
        let arm = Arm::default();
        assert!(!arm.add(NEWS_ANY));
        assert!(arm.arm(NDK_CQ_NOTIFY_ANY));
        assert!(arm.take());
        assert!(!arm.take());
        assert!(!arm.arm(NDK_CQ_NOTIFY_ANY));
        assert!(arm.add(NEWS_ANY));
    }

    #[test]
    fn moderation_waits_for_the_count_or_the_interval() {
        let at = Instant::from_nanos;
        let hold = |interval, count, fresh, now| {
            hold(pack(interval, count), 100, fresh, at(1_000), at(now))
        };
        let until = Hold::Until(at(21_000));
        // Off.
        for (interval, count) in [(0, 50), (20, 0), (20, 1), (0, MAXULONG), (MAXULONG, 1)] {
            assert_eq!(hold(interval, count, 1, 1_000), Hold::No, "{interval} {count}");
        }
        // Both.
        assert_eq!(hold(20, 5, 4, 20_999), until);
        assert_eq!(hold(20, 5, 5, 1_000), Hold::No);
        assert_eq!(hold(20, 5, 4, 21_000), Hold::No);
        // The interval alone.
        for count in [MAXULONG, 101] {
            assert_eq!(hold(20, count, 100, 1_000), until);
        }
        // The count alone.
        assert_eq!(hold(MAXULONG, 100, 99, u64::MAX), Hold::ForCount);
        assert_eq!(hold(MAXULONG, 100, 100, 1_000), Hold::No);
        // Neither, after a resize.
        assert_eq!(hold(MAXULONG, 101, 1, 1_000), Hold::No);
    }

    #[test]
    fn entries_stay_in_order_over_successors() {
        let (mut ring, results) = rtrb::RingBuffer::new(2);
        let (mut rings, successors) = rtrb::RingBuffer::new(SUCCESSORS);
        let mut results = Results::new(results, successors);
        let mut taken = || results.pop().map(|cqe| cqe.bytes);
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
        arm.arm(NDK_CQ_NOTIFY_SOLICITED);
        assert!(!arm.add(NEWS_ANY));
        assert!(arm.add(NEWS_ANY | NEWS_SOLICITED));
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;
    use crate::ring::loom_model::Bell;
    use crate::ring::modelled::AtomicBool;
    use alloc::sync::Arc;
    use loom::cell::UnsafeCell;

    /// A completion and an arm that meet give one notification, whoever comes first.
    #[test]
    fn an_arm_and_a_completion_meet_once() {
        loom::model(|| {
            let arm = Arc::new(Arm::default());
            let consumer = Arc::clone(&arm);
            let rings = loom::thread::spawn(move || consumer.arm(NDK_CQ_NOTIFY_ANY));
            let mut notified = 0;
            for _ in 0..2 {
                if arm.add(NEWS_ANY) && arm.take() {
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
            let cq = Arc::new((Arm::default(), AtomicBool::new(false), UnsafeCell::new(())));
            let consumer = Arc::clone(&cq);
            let call = loom::thread::spawn(move || {
                let (arm, entered, object) = &*consumer;
                entered.swap(true, Ordering::Acquire);
                arm.arm(NDK_CQ_NOTIFY_ANY);
                object.with(|_| ());
                entered.store(false, Ordering::Release);
            });
            let (arm, entered, object) = &*cq;
            arm.add(NEWS_ANY);
            if arm.take() && !entered.load(Ordering::Acquire) {
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
                    let cqe = loop {
                        match results.pop() {
                            Some(cqe) => break cqe,
                            None => loom::thread::yield_now(),
                        }
                    };
                    assert_eq!(cqe.bytes, bytes);
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
    fn who_arms_and_waits_misses_no_completion() {
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
                    while results.pop().is_some() {
                        taken += 1;
                    }
                    if taken == 2 {
                        break;
                    }
                    if arm.arm(NDK_CQ_NOTIFY_ANY) {
                        doorbell.ring();
                    }
                    notified.wait();
                }
                done.store(true, Ordering::Relaxed);
                doorbell.ring();
            });
            let (arm, done, doorbell, notified) = &*cq;
            let notify = || {
                if arm.take() {
                    notified.ring();
                }
            };
            for bytes in 0..2 {
                ring.push(tests::entry(bytes)).unwrap();
                if arm.add(NEWS_ANY) {
                    notify();
                }
            }
            while !done.load(Ordering::Relaxed) {
                doorbell.wait();
                notify();
            }
            consumer.join().unwrap();
        });
    }
}
