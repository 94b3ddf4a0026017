//! A completion queue for its consumer: results, arming, moderation, resizing.

use super::request::ResizeCq;
use super::shared::{CqObject, Cqe, pack};
use crate::abi::*;
use crate::object::call::{ndk_close, ndk_query_extension, request};
use crate::object::done::RequestDone;
use crate::object::entry::{entry, places};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

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
    /// Moves results out, one to each place, as long as there are any; returns how many.
    fn drain<T>(&self, places: &mut [MaybeUninit<T>], result: impl Fn(Cqe) -> T) -> ULONG {
        // A second concurrent call is a consumer's mistake and finds nothing.
        let Some(mut results) = self.shared.results.enter() else { return 0 };
        let mut take = || {
            let mut free = places.iter_mut();
            results.take(free.len(), |cqe| {
                if let Some(place) = free.next() {
                    place.write(result(cqe));
                }
            })
        };
        let mut taken = take();
        // Inside the call, so that the CQ is not freed meanwhile.
        if taken == 0
            && self.shared.polls.is_empty_again()
            && self.base.shard.platform.poll_core(self.shared.bell.core())
        {
            taken = take();
        }
        if taken > 0 {
            self.shared.taken.fetch_add(taken, Ordering::Release);
        }
        taken
    }
}

entry! {
    /// [`NDK_FN_ARM_CQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_arm_cq).
    /// IRQL <= DISPATCH_LEVEL. The notification always comes from the core, never from inside.
    fn ndk_arm_cq(cq: &CqObject, kind: ULONG) {
        // Inside, so that the CQ is not freed under this call by a notification that closes it. The results are not entered: the
        // notification may come, and take them, before this call is over.
        cq.shared.inside.fetch_add(1, Ordering::Relaxed);
        if cq.shared.arm.arm(kind, cq.shared.taken.load(Ordering::Relaxed)) {
            cq.base.shard.ring(&cq.shared.bell, &cq.shared.doorbell, 0);
        }
        if cq.shared.polls.end() {
            cq.base.shard.platform.stop_polling(cq.shared.bell.core());
        }
        cq.shared.inside.fetch_sub(1, Ordering::Release);
        Ok(())
    }
}

entry! {
    /// [`NDK_FN_RESIZE_CQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_resize_cq).
    /// IRQL <= DISPATCH_LEVEL.
    ///
    /// `STATUS_INVALID_PARAMETER` for a depth above the adapter's limit. Otherwise it pends, and ends
    /// with `STATUS_BUFFER_OVERFLOW` if more completions than `depth` wait for the consumer, with
    /// `STATUS_INVALID_DEVICE_STATE` if the CQ has failed, and nothing has changed then. No completion
    /// is lost or overtaken by another, and polling goes on meanwhile. As on creation, 0 counts as 1.
    fn ndk_resize_cq(
        cq: &CqObject,
        depth: ULONG,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        if depth > cq.base.shard.limits.cq_depth {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let done = RequestDone::new(completion, context)?;
        request(cq.base.shard(), ResizeCq { cq: cq.base.id, depth, done })
    }
}

entry! {
    /// [`NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_control_cq_interrupt_moderation).
    /// IRQL <= DISPATCH_LEVEL.
    ///
    /// Delays notifications only, never what polling sees, and never the one that the CQ has failed;
    /// [`moderate`] has the rules. Settings hold from the core's next turn on, for a notification that
    /// already waits too. `STATUS_INVALID_PARAMETER_MIX` if neither interval nor count would end a wait.
    fn ndk_control_cq_interrupt_moderation(
        cq: &CqObject,
        interval: ULONG,
        count: ULONG,
    ) -> NTSTATUS {
        // MAXULONG is above any depth.
        if interval == MAXULONG && count > cq.shared.depth.load(Ordering::Acquire) {
            return Err(STATUS_INVALID_PARAMETER_MIX);
        }
        // As in `ndk_arm_cq`: the notification that this call lets go may make the next such call.
        cq.shared.inside.fetch_add(1, Ordering::Relaxed);
        cq.shared.moderation.store(pack(interval, count), Ordering::Release);
        cq.base.shard.ring(&cq.shared.bell, &cq.shared.doorbell, 0);
        cq.shared.inside.fetch_sub(1, Ordering::Release);
        Ok(STATUS_SUCCESS)
    }
}

entry! {
    /// [`NDK_FN_GET_CQ_RESULTS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_cq_results).
    /// IRQL <= DISPATCH_LEVEL.
    ///
    /// A null array takes nothing.
    fn ndk_get_cq_results(
        cq: &CqObject,
        results: &mut [MaybeUninit<NDK_RESULT>] = places(results: *mut NDK_RESULT, count: ULONG),
    ) -> ULONG {
        Ok(cq.drain(results, |cqe| NDK_RESULT {
            Status: cqe.status,
            BytesTransferred: cqe.bytes,
            QPContext: cqe.qp_context.get(),
            RequestContext: cqe.request_context.get(),
        }))
    }
}

entry! {
    /// [`NDK_FN_GET_CQ_RESULTS_EX`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_cq_results_ex).
    /// IRQL <= DISPATCH_LEVEL.
    ///
    /// A null array takes nothing.
    fn ndk_get_cq_results_ex(
        cq: &CqObject,
        results: &mut [MaybeUninit<NDK_RESULT_EX>] = places(results: *mut NDK_RESULT_EX, count: ULONG),
    ) -> ULONG {
        let told = cq.base.check_2_1().is_ok();
        Ok(cq.drain(results, |cqe| NDK_RESULT_EX {
            Status: cqe.status,
            BytesTransferred: cqe.bytes,
            QPContext: cqe.qp_context.get(),
            RequestContext: cqe.request_context.get(),
            Type: cqe.operation,
            // Before 2.1 there is none.
            ProviderErrorCode: if told { cqe.error_code } else { 0 },
            TypeSpecificCompletionOutput: cqe.token as ULONG_PTR,
        }))
    }
}
