//! A shared receive queue for its consumer: posting, changing.

use super::request::ModifySrq;
use super::shared::SrqObject;
use crate::abi::*;
use crate::object::call::{ndk_close, ndk_query_extension, request};
use crate::object::done::RequestDone;
use crate::object::entry::{Sgl, entry};

/// The table of every SRQ.
pub(crate) static DISPATCH: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: ndk_close::<NDK_SRQ>,
    NdkQueryExtension: ndk_query_extension,
    NdkModifySrq: ndk_modify_srq,
    NdkSrqReceive: ndk_srq_receive,
};

impl SrqObject {
    fn post(&self, context: PVOID, sgl: Sgl<'_>) -> Result<NTSTATUS, NTSTATUS> {
        let mut queue = self.shared.receive.enter().ok_or(STATUS_INVALID_DEVICE_REQUEST)?;
        let posted = queue.post(context, sgl, &self.shared.slots);
        self.base.shard.ring(&self.shared.bell, &self.shared.doorbell, 0);
        posted.map(|()| STATUS_SUCCESS)
    }
}

entry! {
    /// [`NDK_FN_MODIFY_SRQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_modify_srq).
    /// IRQL <= DISPATCH_LEVEL. A depth of 0 keeps the depth, a threshold of 0 the threshold and its arm.
    /// A depth below the receives that are queued ends with `STATUS_BUFFER_OVERFLOW` and changes nothing
    /// (as in the user-mode interface).
    fn ndk_modify_srq(
        srq: &SrqObject,
        depth: ULONG,
        threshold: ULONG,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        if depth > srq.base.shard.limits.srq_depth {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let done = RequestDone::new(completion, context)?;
        request(srq.base.shard(), ModifySrq { srq: srq.base.id, depth, threshold, done })
    }
}

entry! {
    /// [`NDK_FN_SRQ_RECEIVE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_srq_receive).
    /// IRQL <= DISPATCH_LEVEL; lock-free, as the consumer serializes its posts.
    fn ndk_srq_receive(
        srq: &SrqObject,
        context: PVOID,
        sgl: Sgl<'_> = Sgl::new(sgl: *const NDK_SGE, count: ULONG),
    ) -> NTSTATUS {
        srq.post(context, sgl)
    }
}
