//! The reason why a queue pair went to the error state by itself, for diagnosis.

use super::work::WcStatus;
use crate::ids::Rkey;
use crate::psn::Psn;
use crate::wire::NakCode;

/// The error that ended a queue pair, and with it its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// Our oldest request failed.
    #[error("the request at PSN {:#08x} failed: {status}", psn.get())]
    Request {
        /// The status of its completion: a NAK of the peer, a timeout, or an error of our own.
        status: WcStatus,
        /// The packet that was refused or had no response, or the first that could not be sent.
        psn: Psn,
    },
    /// We refused a request of the peer by a NAK that ends the connection.
    #[error(transparent)]
    Refused(Refused),
}

/// A NAK of ours that ends the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the peer's request at PSN {:#08x} was refused: {code:?}", psn.get())]
#[non_exhaustive]
pub struct Refused {
    /// The code of the NAK.
    pub code: NakCode,
    /// The packet that is refused, or the first response that could not be sent.
    pub psn: Psn,
    /// The key that the request names, if it names one.
    pub key: Option<Rkey>,
}

impl Failure {
    /// The NAK, and whether we sent it; `None` where none ended the connection.
    pub const fn nak(self) -> Option<(NakCode, bool)> {
        match self {
            Self::Request { status, .. } => match received(status) {
                Some(code) => Some((code, false)),
                None => None,
            },
            Self::Refused(refused) => Some((refused.code, true)),
        }
    }

    /// The PSN of the packet.
    pub const fn psn(self) -> Psn {
        match self {
            Self::Request { psn, .. } => psn,
            Self::Refused(refused) => refused.psn,
        }
    }
}

/// The NAK of the peer that gives a request this status.
const fn received(status: WcStatus) -> Option<NakCode> {
    match status {
        WcStatus::RemoteInvalidRequest => Some(NakCode::InvalidRequest),
        WcStatus::RemoteAccess => Some(NakCode::RemoteAccess),
        WcStatus::RemoteOperation => Some(NakCode::RemoteOperational),
        WcStatus::Success
        | WcStatus::LocalLength
        | WcStatus::LocalQpOperation
        | WcStatus::LocalProtection
        | WcStatus::MemoryManagement
        | WcStatus::MemoryBind
        | WcStatus::Flushed
        | WcStatus::BadResponse
        | WcStatus::LocalAccess
        | WcStatus::TransportRetryExceeded
        | WcStatus::RnrRetryExceeded
        | WcStatus::PathLost => None,
    }
}
