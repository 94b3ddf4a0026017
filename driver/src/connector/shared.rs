//! The state of a connector that the consumer's thread and the poll core share.

use super::request::CalleeData;
use crate::abi::*;
use crate::limits::MAX_CALLEE_DATA;
use crate::object::shared::Object;
use crate::sync::Latest;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU8, Ordering};
use rocev2::cm::{PrivateData, ReadLimits};

/// A connector.
pub(crate) type ConnectorObject = Object<NDK_CONNECTOR, ConnectorShared>;

/// Private data as a consumer gets it: never more than the adapter says. A REP has room for 48 bytes
/// more than a consumer of this interface can send; what another peer puts there is cut, as a
/// consumer that sizes its buffer by `MaxCalleeData` and never asks could not take it.
pub(crate) type PeerData = CalleeData;

/// The part of a peer's private data that a consumer gets.
pub(crate) fn peer_data(data: &PrivateData) -> PeerData {
    data.iter().copied().take(MAX_CALLEE_DATA).collect()
}

/// The shared state of a connector.
#[derive(Default)]
pub(crate) struct ConnectorShared {
    /// Set when the peer's request or answer arrives; a refusal gives way to what a later attempt
    /// brings.
    pub(crate) info: Latest<Info>,
    /// A [`Stage`], for the calls that answer at once.
    pub(crate) stage: AtomicU8,
}

/// The values of the peer.
#[derive(Clone)]
pub(crate) struct Info {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PeerData,
}

/// How far a connector is, as its consumer may know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Nothing was asked yet, or it failed.
    Idle = 0,
    /// The consumer may reject: an incoming request, or an answer not yet confirmed.
    Rejectable = 1,
    /// Connecting, accepting or connected.
    Busy = 2,
    /// The peer has gone.
    Gone = 3,
}

impl ConnectorShared {
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Takes the one chance to reject, or tells why there is none.
    pub(super) fn leave_rejectable(&self) -> Result<(), NTSTATUS> {
        let (from, to) = (Stage::Rejectable as u8, Stage::Idle as u8);
        match self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(gone) if gone == Stage::Gone as u8 => Err(STATUS_CONNECTION_ABORTED),
            Err(_) => Err(STATUS_CONNECTION_INVALID),
        }
    }
}

const _: () = assert!(core::mem::offset_of!(ConnectorObject, base) == 0x30);
