//! The ACK list: the ACKs of several queue pairs to one peer, in one packet.
//!
//! Where each of many queue pairs has a message, each has an ACK, and these cost as much as the messages. Two of ours, once both
//! have shown [their make](super::mad::Make), use a packet of the manufacturer's opcode range instead (IBTA ch. 9, OpCode,
//! 110xxxxx). It is an ACK of the queue pair that it is for. Behind its AETH are [`Ack`]s of others between the same
//! addresses, with what an ACK of their own would say; a list that is lost is as many lost ACKs. All are for queue pairs of one
//! core of the peer, which shows [how many bits of a QPN](super::mad::MadHeader::core_bits) name it.

use super::{Aeth, Syndrome};
use crate::ids::Qpn;
use crate::psn::{Msn, Psn};

/// ACKs behind the first, at most.
pub const ACKS_MAX: usize = 31;

/// An ACK of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ack {
    /// The queue pair that it is for.
    pub dest_qpn: Qpn,
    /// The newest packet that is acknowledged.
    pub psn: Psn,
    /// Messages that the responder has completed.
    pub msn: Msn,
}

impl Ack {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// The ACKs of a list with this payload. Bytes behind them are ignored, and so is what is no ACK: a NAK travels alone.
    #[inline]
    pub fn parse(payload: &[u8]) -> impl Iterator<Item = Self> {
        let (acks, _) = payload.as_chunks::<{ Self::LEN }>();
        acks.iter().take(ACKS_MAX).filter_map(|ack| {
            let [_, _, _, _, _, p0, p1, p2, aeth @ ..] = ack;
            let Aeth { syndrome, msn } = Aeth::parse(aeth);
            let dest_qpn = Self::qpn_of(ack);
            let psn = Psn::new(u32::from_be_bytes([0, *p0, *p1, *p2]));
            matches!(syndrome, Syndrome::Ack { .. }).then_some(Self { dest_qpn, psn, msn })
        })
    }

    /// The destination of an ACK as [`Self::emit`] gives it.
    #[inline]
    pub fn qpn_of([qpn @ .., _, _, _, _, _, _, _, _]: &[u8; Self::LEN]) -> Qpn {
        Qpn::new(u32::from_be_bytes(*qpn))
    }

    /// The ACK as bytes.
    #[inline]
    pub fn emit(self) -> [u8; Self::LEN] {
        let [q0, q1, q2, q3] = self.dest_qpn.get().to_be_bytes();
        let [p0, p1, p2, p3] = self.psn.get().to_be_bytes();
        let [a0, a1, a2, a3] = self.aeth().emit();
        [q0, q1, q2, q3, p0, p1, p2, p3, a0, a1, a2, a3]
    }

    /// The header that says the same in a packet of its own.
    pub const fn aeth(self) -> Aeth {
        Aeth { syndrome: Syndrome::ACK, msn: self.msn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn acks_come_back_and_nothing_else_is_read() {
        let acks = [(0x0a_0b0c, 1, 2), (3, 0xff_ffff, 0xff_fffe)].map(|(qpn, psn, msn)| Ack {
            dest_qpn: Qpn::new(qpn),
            psn: Psn::new(psn),
            msn: Msn::new(msn),
        });
        let mut bytes: Vec<u8> = acks.iter().flat_map(|ack| ack.emit()).collect();
        assert_eq!(bytes[..12], [0, 10, 11, 12, 0, 0, 0, 1, 0x1f, 0, 0, 2]);
        for rest in 0..Ack::LEN {
            assert_eq!(Ack::parse(&bytes).collect::<Vec<_>>(), acks, "{rest}");
            bytes.push(9);
        }
        for byte in 0..=u8::MAX {
            bytes[8] = byte;
            let acks = usize::from(byte < 0x20);
            assert_eq!(Ack::parse(&bytes[..2 * Ack::LEN]).count(), acks + 1, "{byte:#x}");
        }
        assert_eq!(Ack::parse(&[0; Ack::LEN * (ACKS_MAX + 1)]).count(), ACKS_MAX);
    }
}
