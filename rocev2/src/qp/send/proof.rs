//! The answers whose number shows that they are the peer's, whatever else they say of their origin; see
//! [`PeerOrigin`](crate::qp::origin).

use super::completer::{Completer, fits};
use super::probe::Probe;
use super::queue::SendQueue;
use crate::psn::Psn;
use crate::qp::PeerQp;
use crate::wire::{Aeth, Ext, NakCode, Operation, Packet, Syndrome};

impl Completer {
    /// Whether the number of an answer is the only one that the peer's next answer can have. `asked` tells that a probe has
    /// no answer.
    pub(crate) fn proves(
        &self,
        packet: &Packet<'_>,
        asked: bool,
        sq: &SendQueue,
        peer: &PeerQp,
    ) -> bool {
        let psn = packet.bth.psn;
        match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::ReadResponse, _) => {
                let next = sq.head().filter(|(wqe, _)| wqe.is_read() && is_oldest(psn, sq));
                next.is_some_and(|(wqe, done)| fits(packet, wqe, done, sq, peer))
            }
            (Operation::Acknowledge, Ext::Aeth(Aeth { syndrome: Syndrome::Ack { .. }, .. })) => {
                let read = sq.head().is_some_and(|(wqe, _)| wqe.is_read());
                let all = sq.expects(psn) && !sq.expects(psn.add(1));
                !read && is_oldest(psn, sq) || asked && (all || Probe::answers(&packet.bth, sq))
            }
            _ => false,
        }
    }
}

/// Whether an answer would end the connection.
pub(crate) fn is_fatal(packet: &Packet<'_>) -> bool {
    match (packet.bth.opcode.operation(), packet.ext) {
        (Operation::Acknowledge, Ext::Aeth(Aeth { syndrome, .. })) => match syndrome {
            Syndrome::Ack { .. } | Syndrome::RnrNak(_) | Syndrome::Nak(NakCode::PsnSequence) => {
                false
            }
            Syndrome::Nak(
                NakCode::InvalidRequest
                | NakCode::RemoteAccess
                | NakCode::RemoteOperational
                | NakCode::InvalidRd,
            )
            | Syndrome::Reserved(_) => true,
        },
        (Operation::GapReport, _) => false,
        // READ data that do not fit, and what answers no request of ours.
        _ => true,
    }
}

fn is_oldest(psn: Psn, sq: &SendQueue) -> bool {
    sq.expects(psn) && psn == sq.una()
}
