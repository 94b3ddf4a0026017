//! The NTSTATUS of the transport's results.

pub(crate) mod reason;

use crate::abi::*;
use rocev2::cm::CmError;
use rocev2::qp::{WcKind, WcStatus};
use rocev2::wire::mad::RejReason;

/// The status of a completed work request.
pub(crate) const fn completion(kind: WcKind, status: WcStatus) -> NTSTATUS {
    match status {
        WcStatus::Success => STATUS_SUCCESS,
        WcStatus::LocalLength if kind.is_receive() => STATUS_BUFFER_OVERFLOW,
        WcStatus::LocalLength => STATUS_DATA_OVERRUN,
        WcStatus::LocalProtection
        | WcStatus::LocalAccess
        | WcStatus::MemoryBind
        | WcStatus::RemoteAccess => STATUS_ACCESS_VIOLATION,
        WcStatus::MemoryManagement => STATUS_INVALID_DEVICE_REQUEST,
        WcStatus::Flushed => STATUS_CANCELLED,
        WcStatus::RemoteInvalidRequest | WcStatus::RemoteOperation => STATUS_REMOTE_RESOURCES,
        WcStatus::TransportRetryExceeded | WcStatus::RnrRetryExceeded => STATUS_IO_TIMEOUT,
        WcStatus::PathLost => STATUS_NETWORK_UNREACHABLE,
        WcStatus::BadResponse | WcStatus::LocalQpOperation => STATUS_INTERNAL_ERROR,
    }
}

/// The operation type of a completed work request.
pub(crate) const fn operation(kind: WcKind) -> NDK_OPERATION_TYPE {
    match kind {
        WcKind::Send => NdkOperationTypeSend,
        WcKind::Write => NdkOperationTypeWrite,
        WcKind::Read => NdkOperationTypeRead,
        WcKind::FastRegister => NdkOperationTypeFastRegister,
        WcKind::Invalidate => NdkOperationTypeInvalidate,
        WcKind::Bind => NdkOperationTypeBind,
        WcKind::Receive => NdkOperationTypeReceive,
        WcKind::ReceiveInvalidate(_) => NdkOperationTypeReceiveAndInvalidate,
    }
}

/// The status of a connection attempt that the peer refused.
pub(crate) fn refusal(reason: RejReason) -> NTSTATUS {
    match reason {
        RejReason::TIMEOUT => STATUS_IO_TIMEOUT,
        RejReason::STALE_CONNECTION => STATUS_CONNECTION_ABORTED,
        _ => STATUS_CONNECTION_REFUSED,
    }
}

/// The status of an accept or a confirmation that connection management refused: a connection that
/// is no longer in the state for it was given up by the peer, whether or not we were told already.
pub(crate) const fn answer_error(error: CmError) -> NTSTATUS {
    match error {
        CmError::UnknownId | CmError::State => STATUS_CONNECTION_ABORTED,
        CmError::AddressInUse
        | CmError::NoPorts
        | CmError::Address
        | CmError::PrivateData
        | CmError::Connected
        | CmError::Full => cm_error(error),
    }
}

/// The status of a call that connection management refused.
pub(crate) const fn cm_error(error: CmError) -> NTSTATUS {
    match error {
        CmError::AddressInUse => STATUS_SHARING_VIOLATION,
        CmError::NoPorts => STATUS_TOO_MANY_ADDRESSES,
        CmError::Address => STATUS_INVALID_ADDRESS,
        CmError::PrivateData => STATUS_INVALID_BUFFER_SIZE,
        CmError::Connected => STATUS_ADDRESS_ALREADY_EXISTS,
        CmError::Full => STATUS_INSUFFICIENT_RESOURCES,
        CmError::UnknownId | CmError::State => STATUS_CONNECTION_INVALID,
    }
}
