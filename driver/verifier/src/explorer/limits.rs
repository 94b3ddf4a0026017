//! Adapters that can do less: what they tell, and what they refuse.

use crate::layer::{Ask, Operation, Post};
use driver::abi::*;

/// The limits that an adapter tells, never above those of the provider behind it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Limits {
    /// Few elements, short queues, one READ at a time, 16 pages a registration, no shared receive queue, no inline data,
    /// no window, nothing optional.
    Small,
    /// The numbers of a ConnectX-3 as its driver tells them.
    ConnectX3,
    /// The provider's own.
    #[default]
    Maximal,
}

impl Limits {
    /// The name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::ConnectX3 => "connectx3",
            Self::Maximal => "maximal",
        }
    }

    /// The capabilities of an adapter with these limits, before a provider with `info`.
    pub(super) fn apply(self, info: &NDK_ADAPTER_INFO) -> NDK_ADAPTER_INFO {
        let most = match self {
            Self::Maximal => return *info,
            Self::Small => SMALL,
            Self::ConnectX3 => CONNECTX3,
        };
        NDK_ADAPTER_INFO {
            MaxRegistrationSize: info.MaxRegistrationSize.min(most.MaxRegistrationSize),
            MaxWindowSize: info.MaxWindowSize.min(most.MaxWindowSize),
            FRMRPageCount: info.FRMRPageCount.min(most.FRMRPageCount),
            MaxInitiatorRequestSge: info.MaxInitiatorRequestSge.min(most.MaxInitiatorRequestSge),
            MaxReceiveRequestSge: info.MaxReceiveRequestSge.min(most.MaxReceiveRequestSge),
            MaxReadRequestSge: info.MaxReadRequestSge.min(most.MaxReadRequestSge),
            MaxTransferLength: info.MaxTransferLength.min(most.MaxTransferLength),
            MaxInlineDataSize: info.MaxInlineDataSize.min(most.MaxInlineDataSize),
            MaxInboundReadLimit: info.MaxInboundReadLimit.min(most.MaxInboundReadLimit),
            MaxOutboundReadLimit: info.MaxOutboundReadLimit.min(most.MaxOutboundReadLimit),
            MaxReceiveQueueDepth: info.MaxReceiveQueueDepth.min(most.MaxReceiveQueueDepth),
            MaxInitiatorQueueDepth: info.MaxInitiatorQueueDepth.min(most.MaxInitiatorQueueDepth),
            MaxSrqDepth: info.MaxSrqDepth.min(most.MaxSrqDepth),
            MaxCqDepth: info.MaxCqDepth.min(most.MaxCqDepth),
            MaxCallerData: info.MaxCallerData.min(most.MaxCallerData),
            MaxCalleeData: info.MaxCalleeData.min(most.MaxCalleeData),
            AdapterFlags: info.AdapterFlags & most.AdapterFlags,
            ..*info
        }
    }
}

/// The limits of both.
const COMMON: NDK_ADAPTER_INFO = NDK_ADAPTER_INFO {
    Version: NDK_VERSION { Major: 0, Minor: 0 },
    VendorId: 0,
    DeviceId: 0,
    MaxRegistrationSize: usize::MAX,
    MaxWindowSize: 0,
    FRMRPageCount: 511,
    MaxInitiatorRequestSge: 32,
    MaxReceiveRequestSge: 32,
    MaxReadRequestSge: 32,
    MaxTransferLength: 1 << 30,
    MaxInlineDataSize: ULONG::MAX,
    MaxInboundReadLimit: 16,
    MaxOutboundReadLimit: 128,
    MaxReceiveQueueDepth: 16_351,
    MaxInitiatorQueueDepth: 16_351,
    MaxSrqDepth: ULONG::MAX,
    MaxCqDepth: 4_194_303,
    LargeRequestThreshold: 0,
    MaxCallerData: 56,
    MaxCalleeData: 148,
    AdapterFlags: ULONG::MAX,
    RdmaTechnology: NdkUndefined,
};

const CONNECTX3: NDK_ADAPTER_INFO = COMMON;

const SMALL: NDK_ADAPTER_INFO = NDK_ADAPTER_INFO {
    MaxRegistrationSize: 16 << 20,
    FRMRPageCount: 16,
    MaxInitiatorRequestSge: 3,
    MaxReceiveRequestSge: 2,
    MaxReadRequestSge: 1,
    MaxTransferLength: 1 << 20,
    MaxInlineDataSize: 0,
    MaxInboundReadLimit: 1,
    MaxOutboundReadLimit: 1,
    MaxReceiveQueueDepth: 64,
    MaxInitiatorQueueDepth: 64,
    MaxSrqDepth: 0,
    MaxCqDepth: 256,
    AdapterFlags: NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED,
    ..COMMON
};

/// Refuses a call that asks for more than the adapter tells, with the status that the function's page lists; caps the
/// READs of a connection, of which a consumer may ask for any number.
pub(super) fn check(info: &NDK_ADAPTER_INFO, ask: &mut Ask<'_>) -> Result<(), NTSTATUS> {
    let has = |flag| info.AdapterFlags & flag != 0;
    let (wrong, status) = match ask {
        Ask::CreateCq { depth } => (*depth > info.MaxCqDepth, STATUS_INVALID_PARAMETER),
        Ask::Resize { .. } if !has(NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED) => {
            (true, STATUS_NOT_SUPPORTED)
        }
        Ask::Resize { depth } => (*depth > info.MaxCqDepth, STATUS_INVALID_PARAMETER),
        Ask::CreateSrq { depth, sge } => {
            let wrong = *depth > info.MaxSrqDepth || *sge > info.MaxReceiveRequestSge;
            (wrong, STATUS_INVALID_PARAMETER)
        }
        Ask::Modify { depth } => (*depth > info.MaxSrqDepth, STATUS_INVALID_PARAMETER),
        Ask::CreateQp(ask) => {
            let wrong = ask.depths[0] > info.MaxReceiveQueueDepth
                || ask.depths[1] > info.MaxInitiatorQueueDepth
                || ask.sges[0] > info.MaxReceiveRequestSge
                || ask.sges[1] > info.MaxInitiatorRequestSge
                || ask.inline > info.MaxInlineDataSize;
            (wrong, STATUS_INVALID_PARAMETER)
        }
        Ask::Register { len, .. } => (*len > info.MaxRegistrationSize, STATUS_INVALID_PARAMETER),
        Ask::Initialize { pages } => (*pages > info.FRMRPageCount, STATUS_IMPLEMENTATION_LIMIT),
        Ask::Moderate => {
            let flag = NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED;
            (!has(flag), STATUS_NOT_SUPPORTED)
        }
        Ask::Connect { limits, data, .. } => {
            cap(info, limits);
            (*data > info.MaxCallerData, STATUS_INVALID_BUFFER_SIZE)
        }
        Ask::Accept { limits, data, .. } => {
            cap(info, limits);
            (*data > info.MaxCalleeData, STATUS_INVALID_BUFFER_SIZE)
        }
        Ask::Reject { data } => (*data > info.MaxCalleeData, STATUS_INVALID_BUFFER_SIZE),
        Ask::Post(post) => return check_post(info, post),
        Ask::Plain
        | Ask::Info { .. }
        | Ask::Create
        | Ask::CreateMr { .. }
        | Ask::BuildLam { .. }
        | Ask::ReleaseLam { .. }
        | Ask::Deregister
        | Ask::Poll { .. }
        | Ask::Request
        | Ask::Flush
        | Ask::Close => return Ok(()),
    };
    if wrong { Err(status) } else { Ok(()) }
}

fn cap(info: &NDK_ADAPTER_INFO, limits: &mut [&mut ULONG; 2]) {
    let [inbound, outbound] = limits;
    **inbound = (**inbound).min(info.MaxInboundReadLimit);
    **outbound = (**outbound).min(info.MaxOutboundReadLimit);
}

fn check_post(info: &NDK_ADAPTER_INFO, post: &Post<'_>) -> Result<(), NTSTATUS> {
    let reads = matches!(post.operation, Operation::Read);
    if reads && post.sgl.len() > info.MaxReadRequestSge as usize {
        return Err(STATUS_DATA_OVERRUN);
    }
    let window = match post.operation {
        Operation::Bind { len, .. } => len,
        _ => 0,
    };
    if window > info.MaxWindowSize {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let len: u64 = post.sgl.iter().map(|sge| u64::from(sge.Length)).sum();
    if len > info.MaxTransferLength.into() { Err(STATUS_BUFFER_OVERFLOW) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_above_the_providers() {
        let provider = driver::Limits::default().info(NDK_VERSION { Major: 2, Minor: 1 }, 1);
        for limits in [Limits::Small, Limits::ConnectX3, Limits::Maximal] {
            let told = limits.apply(&provider);
            assert!(told.MaxCqDepth <= provider.MaxCqDepth, "{limits:?}");
            assert!(told.FRMRPageCount >= 16 && told.FRMRPageCount <= provider.FRMRPageCount);
            assert!(told.MaxInitiatorRequestSge <= provider.MaxInitiatorRequestSge);
            assert_eq!(told.AdapterFlags & !provider.AdapterFlags, 0);
        }
        let small = Limits::Small.apply(&provider);
        assert_eq!((small.MaxSrqDepth, small.MaxReadRequestSge, small.MaxWindowSize), (0, 1, 0));
    }

    #[test]
    fn more_than_the_adapter_tells_is_refused() {
        let provider = driver::Limits::default().info(NDK_VERSION { Major: 2, Minor: 1 }, 1);
        let small = Limits::Small.apply(&provider);
        let refused = |mut ask: Ask<'_>| check(&small, &mut ask);
        assert_eq!(refused(Ask::CreateCq { depth: 256 }), Ok(()));
        assert_eq!(refused(Ask::CreateCq { depth: 257 }), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(refused(Ask::Resize { depth: 1 }), Err(STATUS_NOT_SUPPORTED));
        assert_eq!(refused(Ask::Moderate), Err(STATUS_NOT_SUPPORTED));
        assert_eq!(refused(Ask::Initialize { pages: 17 }), Err(STATUS_IMPLEMENTATION_LIMIT));
        assert_eq!(refused(Ask::Reject { data: 149 }), Err(STATUS_INVALID_BUFFER_SIZE));
        let (mut inbound, mut outbound) = (16, 16);
        let qp = std::ptr::null_mut();
        let limits = [&mut inbound, &mut outbound];
        assert_eq!(refused(Ask::Accept { qp, limits, data: 0 }), Ok(()));
        assert_eq!((inbound, outbound), (1, 1), "capped without a word");
    }
}
