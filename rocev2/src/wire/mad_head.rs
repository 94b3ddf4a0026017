//! The beginning of a datagram to QP 1, from which it is decided whether to work on it.

use super::Bth;
use super::mad::{REQ, SIDR_REQ};
use crate::ids::{CommId, Qpn};
use core::net::IpAddr;

/// The sender of a datagram to QP 1, and what it is about, as it says. Nothing of it is checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MadHead {
    /// The IP source.
    pub(crate) src: IpAddr,
    /// The subject.
    pub(crate) about: About,
}

/// The subject of a datagram to QP 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum About {
    /// A REQ, with its sender's ID.
    Request(CommId),
    /// A message that names an ID of ours: all but requests do.
    Connection(CommId),
    /// Anything else.
    Other,
}

impl MadHead {
    /// That of a packet of `src`, from its BTH on; `None` where it is for another QP.
    pub(crate) fn of(src: IpAddr, bytes: &[u8]) -> Option<Self> {
        let (bth, rest) = bytes.split_first_chunk::<{ Bth::LEN }>()?;
        let &[_, _, _, _, _, q0, q1, q2, ..] = bth;
        if Qpn::new(u32::from_be_bytes([0, q0, q1, q2])) != Qpn::GSI {
            return None;
        }
        Some(Self { src, about: about(rest).unwrap_or(About::Other) })
    }
}

/// The subject of a datagram, from its DETH on.
fn about(bytes: &[u8]) -> Option<About> {
    let mad: &[u8; 32] = bytes.get(DETH_LEN..)?.first_chunk()?;
    let attribute = u16::from_be_bytes([mad[16], mad[17]]);
    let id = |at: usize| {
        CommId::new(u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]))
    };
    Some(match attribute {
        REQ => About::Request(id(24)),
        SIDR_REQ => About::Other,
        _ => About::Connection(id(28)),
    })
}

const DETH_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mad::{CmMessage, Drep, MAD_LEN, MadHeader, SidrReq, emit_mad};
    use std::vec::Vec;

    const SRC: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));

    fn bytes(qpn: Qpn, message: &CmMessage) -> Vec<u8> {
        let mut mad = [0; MAD_LEN];
        emit_mad(&MadHeader::default(), message, &mut mad);
        let mut bytes = [[0; Bth::LEN].as_slice(), &[0; DETH_LEN], &mad].concat();
        bytes[4..8].copy_from_slice(&qpn.get().to_be_bytes());
        bytes
    }

    #[test]
    fn a_message_names_our_id() {
        let ids = (CommId::new(0x1122_3344), CommId::new(0x5566_7788));
        let drep = Drep { local_comm_id: ids.0, remote_comm_id: ids.1, private_data: [0; 224] };
        let bytes = bytes(Qpn::GSI, &CmMessage::Drep(drep));
        let head = MadHead { src: SRC, about: About::Connection(ids.1) };
        assert_eq!(MadHead::of(SRC, &bytes), Some(head));
        // As far as it goes.
        for len in 0..bytes.len() {
            let about = MadHead::of(SRC, &bytes[..len]).map(|head| head.about);
            let expected = match len {
                ..Bth::LEN => None,
                Bth::LEN..52 => Some(About::Other),
                _ => Some(head.about),
            };
            assert_eq!(about, expected, "{len} bytes");
        }
    }

    #[test]
    fn another_queue_pair_is_none_and_another_request_is_about_nothing() {
        let sidr = SidrReq { request_id: 1, pkey: 0xffff, service_id: 7, private_data: [0; 216] };
        let message = CmMessage::SidrReq(sidr);
        let head = MadHead { src: SRC, about: About::Other };
        assert_eq!(MadHead::of(SRC, &bytes(Qpn::GSI, &message)), Some(head));
        assert_eq!(MadHead::of(SRC, &bytes(Qpn::new(0x01_0001), &message)), None);
    }
}
