//! The limits of the adapter.

use crate::abi::*;
use crate::shard::OBJECTS_MAX;
use rocev2::qp::{MAX_READS, MAX_SGE};

/// Bytes of inline data in one request, at most. Small enough that a queue of the largest depth takes
/// a megabyte for them.
pub(crate) const MAX_INLINE: u32 = 256;

/// Pages of one fast registration, at most; also what the adapter reports as the size to use. Enough
/// for 2 MiB less a page that begin anywhere in their first page.
pub(crate) const MAX_PAGES: u32 = 512;

/// Bytes of private data in a connect: the 92 of a CM REQ less the 36 of the IP CM header.
pub(crate) const MAX_CALLER_DATA: usize = 56;
/// Bytes of private data in an accept or a reject: the smaller of REP's 196 and REJ's 148.
pub(crate) const MAX_CALLEE_DATA: usize = 148;

/// Bytes of one registration, and of a window, at most: nearly a TiB. Consumers take such a number
/// for a `ULONG` or a `LONG`, so its low half is large and positive too.
pub(crate) const MAX_REGISTRATION: usize = (1 << 40) - (1 << 31) - PAGE_SIZE;

/// Bytes of one request over all its elements, at most: as on hardware, and positive as a `LONG`,
/// which the 2^31 of the protocol are not.
pub(crate) const MAX_TRANSFER: u32 = 1 << 30;

/// The limits of the adapter. Memory for a queue is allocated when it is created, so the depths are modest:
/// a QP of full depth takes 1 MiB with 4 elements a request and 2.6 MiB with 16, an SRQ half as much, a CQ 1 MiB, a
/// fast-register region up to 4 KiB, and the first one 256 KiB for all.
///
/// QPs and keys have limits of their own, for all adapter instances of a provider together. A key
/// goes to each registration, initialised fast-register region, window and domain, and to each QP
/// that takes inline data. Everything else is only counted. Beyond any limit a creation or registration ends
/// with `STATUS_INSUFFICIENT_RESOURCES`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests of an initiator queue, and of a receive queue.
    pub queue_depth: u32,
    /// Requests of a shared receive queue.
    pub srq_depth: u32,
    /// Completions of a CQ.
    pub cq_depth: u32,
    /// Queue pairs.
    pub qps: usize,
    /// Keys.
    pub mrs: usize,
    /// Objects of all kinds, each from its creation until its close has completed (`crate::shard`).
    pub objects: usize,
    /// Bytes for packets that come before an earlier one, of all QPs together: enough for the full windows of
    /// 32 QPs that miss a packet at the same time. They are allocated when the adapter starts.
    pub reorder_pool: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_depth: 4096,
            srq_depth: 4096,
            cq_depth: 32_768,
            qps: 1 << 16,
            mrs: 1 << 20,
            objects: OBJECTS_MAX,
            reorder_pool: 16 << 20,
        }
    }
}

impl Limits {
    /// The result of [`NDK_FN_QUERY_ADAPTER_INFO`] of an adapter with so many poll cores.
    #[must_use]
    pub fn info(&self, version: NDK_VERSION, cores: usize) -> NDK_ADAPTER_INFO {
        // It promises that connections run in parallel.
        let engines = if cores > 1 { NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED } else { 0 };
        NDK_ADAPTER_INFO {
            Version: version,
            // No OUI is assigned to this project.
            VendorId: 0,
            DeviceId: 1,
            MaxRegistrationSize: MAX_REGISTRATION,
            MaxWindowSize: MAX_REGISTRATION,
            FRMRPageCount: MAX_PAGES,
            MaxInitiatorRequestSge: MAX_SGE as u32,
            MaxReceiveRequestSge: MAX_SGE as u32,
            MaxReadRequestSge: MAX_SGE as u32,
            MaxTransferLength: MAX_TRANSFER,
            MaxInlineDataSize: MAX_INLINE,
            MaxInboundReadLimit: MAX_READS as u32,
            MaxOutboundReadLimit: MAX_READS as u32,
            MaxReceiveQueueDepth: self.queue_depth,
            MaxInitiatorQueueDepth: self.queue_depth,
            MaxSrqDepth: self.srq_depth,
            MaxCqDepth: self.cq_depth,
            LargeRequestThreshold: 8192,
            MaxCallerData: MAX_CALLER_DATA as u32,
            MaxCalleeData: MAX_CALLEE_DATA as u32,
            AdapterFlags: engines
                | NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
                | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
                | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
                | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
                | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
            RdmaTechnology: NdkRoCEv2,
        }
    }
}
