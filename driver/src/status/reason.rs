//! Why a connection failed, as one number for a consumer: `ProviderErrorCode` of each completion that
//! the failure made no success, and `ProviderDisconnectReason` of the disconnect event (NDK 2.1).
//!
//! 0: none is given. Nothing failed, or a consumer flushed, disconnected or closed. Otherwise:
//!
//! | Bits | |
//! |---|---|
//! | 31..28 | what happened: the constants below |
//! | 27..24 | of a NAK, its code: 1 invalid request, 2 remote access, 3 remote operational error; of a fault of our own, its kind: 1 length, 2 queue pair, 3 key, rights or bounds of an element, 4 fast registration or invalidation, 5 bind |
//! | 23..0 | the PSN of the packet that it was about |

use rocev2::qp::{Failure, WcStatus};

/// The peer answered a request of ours with a NAK.
const NAK_RECEIVED: u32 = 1;
/// We answered a request of the peer with a NAK.
const NAK_SENT: u32 = 2;
/// The peer did not answer within the retries.
const UNANSWERED: u32 = 3;
/// The peer had no receive for longer than the retries.
const NOT_READY: u32 = 4;
/// The peer's answer did not fit its request.
const BAD_RESPONSE: u32 = 5;
/// A request of our own could not be executed.
const LOCAL: u32 = 6;

/// A CQ had no room for a completion, and took its queue pairs with it. It has no PSN.
pub(crate) const CQ_OVERRUN: u32 = 7 << 28;

/// The way to the peer is gone for good: our address was taken away.
const PATH_LOST: u32 = 8;

/// The number of a failure.
pub(crate) const fn code(failure: Failure) -> u32 {
    let (what, detail) = match failure {
        Failure::Refused(refused) => (NAK_SENT, refused.code as u32),
        Failure::Request { status, .. } => match (failure.nak(), status) {
            (Some((code, _)), _) => (NAK_RECEIVED, code as u32),
            (None, status) => own(status),
        },
    };
    what << 28 | (detail & 0xf) << 24 | failure.psn().get()
}

/// The failure without a NAK, and its kind.
const fn own(status: WcStatus) -> (u32, u32) {
    match status {
        WcStatus::TransportRetryExceeded => (UNANSWERED, 0),
        WcStatus::RnrRetryExceeded => (NOT_READY, 0),
        WcStatus::PathLost => (PATH_LOST, 0),
        WcStatus::LocalLength => (LOCAL, 1),
        WcStatus::LocalQpOperation => (LOCAL, 2),
        WcStatus::LocalProtection | WcStatus::LocalAccess => (LOCAL, 3),
        WcStatus::MemoryManagement => (LOCAL, 4),
        WcStatus::MemoryBind => (LOCAL, 5),
        WcStatus::BadResponse
        // Not without a NAK, and no failures.
        | WcStatus::RemoteInvalidRequest
        | WcStatus::RemoteAccess
        | WcStatus::RemoteOperation
        | WcStatus::Success
        | WcStatus::Flushed => (BAD_RESPONSE, 0),
    }
}
