//! Why a queue pair went to the error state by itself, for whoever has to find out.

use super::work::WcStatus;
use crate::ids::Rkey;
use crate::psn::Psn;
use crate::wire::NakCode;

/// What ended a queue pair, and with it its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// Our oldest request failed.
    Request {
        /// As its completion has it: a NAK of the peer, its silence, or a fault of our own.
        status: WcStatus,
        /// The packet that was refused or not answered, or the first that could not be sent.
        psn: Psn,
    },
    /// We answered a request of the peer with a NAK that ends the connection.
    Refused(Refused),
}

/// A NAK of ours that ends the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// What the peer is told.
    pub code: NakCode,
    /// The packet that is refused, or the first answer that could not be given.
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

    /// The packet that it was about.
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
