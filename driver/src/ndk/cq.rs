//! Completion queues: results, arming and the notification.

use super::{Context, Object, ndk_close, ndk_query_extension, not_supported as ns};
use crate::abi::*;
use crate::ring::modelled::{AtomicU8, fence};
use crate::ring::{Doorbell, Exclusive};
use core::sync::atomic::Ordering;

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
}

/// What to create.
pub(crate) struct CreateCq {
    pub(crate) depth: u32,
    pub(crate) notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    pub(crate) context: Context,
}

/// What both sides see of a CQ.
pub(crate) struct CqShared {
    /// The consumer serializes its calls; see [`Exclusive`].
    pub(crate) results: Exclusive<rtrb::Consumer<Cqe>>,
    pub(crate) arm: Arm,
    pub(crate) doorbell: Doorbell,
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

    /// Disarms if a notification is due; the caller then makes it.
    pub(crate) fn take(&self) -> bool {
        let due = satisfied(self.armed.load(Ordering::Acquire), self.news.load(Ordering::Acquire));
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
    NdkCloseCq: ndk_close,
    NdkQueryExtension: ndk_query_extension,
    NdkResizeCq: ns::resize_cq,
    NdkArmCq: ndk_arm_cq,
    NdkGetCqResults: ndk_get_cq_results,
    NdkControlCqInterruptModeration: ns::control_cq_interrupt_moderation,
    NdkGetCqResultsEx: ndk_get_cq_results_ex,
};

impl CqObject {
    /// Moves up to `count` results out, each by `put`; returns how many.
    fn drain(&self, count: ULONG, mut put: impl FnMut(usize, Cqe)) -> ULONG {
        // A second concurrent call is a consumer's mistake and finds nothing.
        let Some(mut results) = self.shared.results.enter() else { return 0 };
        let mut taken = 0;
        while taken < count
            && let Ok(cqe) = results.pop()
        {
            put(taken as usize, cqe);
            taken += 1;
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
    let cq = unsafe { CqObject::from_ndk(cq) };
    // Entered, so that the CQ is not freed under this call by a notification that closes it.
    let entered = cq.shared.results.enter();
    if cq.shared.arm.arm(kind) {
        cq.base.shard.ring(cq.base.id, &cq.shared.doorbell, 0);
    }
    drop(entered);
}

/// [`NDK_FN_GET_CQ_RESULTS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_cq_results).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `cq` is open; `results` is writable for `count` elements.
unsafe extern "system" fn ndk_get_cq_results(
    cq: *mut NDK_CQ,
    results: *mut NDK_RESULT,
    count: ULONG,
) -> ULONG {
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let cq = unsafe { CqObject::from_ndk(cq) };
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
/// # Safety
/// `cq` is open; `results` is writable for `count` elements.
unsafe extern "system" fn ndk_get_cq_results_ex(
    cq: *mut NDK_CQ,
    results: *mut NDK_RESULT_EX,
    count: ULONG,
) -> ULONG {
    // SAFETY: the consumer keeps the CQ open until this call returns.
    let cq = unsafe { CqObject::from_ndk(cq) };
    cq.drain(count, |at, cqe| {
        let result = NDK_RESULT_EX {
            Status: cqe.status,
            BytesTransferred: cqe.bytes,
            QPContext: cqe.qp_context.get(),
            RequestContext: cqe.request_context.get(),
            Type: cqe.operation,
            ProviderErrorCode: 0,
            TypeSpecificCompletionOutput: cqe.token as ULONG_PTR,
        };
        // SAFETY: `at` is below `count`.
        unsafe { results.wrapping_add(at).write(result) };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
