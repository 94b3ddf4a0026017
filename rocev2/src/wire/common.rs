//! The short way of the packets that most often come: a request that is one packet.

use super::ext::put;
use super::flow::Known;
use super::{Aeth, Bth, ICRC_LEN, Opcode, Reth};
use crate::ids::Qpn;
use crate::psn::Psn;

/// A SEND or WRITE of one packet, without immediate and with payload; a READ request, or a response of one packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Common<'a> {
    /// The packet sequence number.
    pub psn: Psn,
    /// The packet requests an acknowledgement.
    pub ack_req: bool,
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// The operation.
    pub op: CommonOp,
    /// The payload, pad bytes removed.
    pub payload: &'a [u8],
}

/// The operation of a request, and the memory that it names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CommonOp {
    /// SEND.
    Send,
    /// WRITE.
    Write(Reth),
    /// READ.
    Read(Reth),
    /// The whole response to a READ. Its data acknowledge, whatever its syndrome.
    Response,
}

const SEND_ONLY: u8 = Opcode::SendOnly as u8;
const WRITE_ONLY: u8 = Opcode::WriteOnly as u8;
const READ_REQUEST: u8 = Opcode::ReadRequest as u8;
const READ_RESPONSE: u8 = Opcode::ReadResponseOnly as u8;

impl<'a> Common<'a> {
    /// The packet that `known` is, if it is a good one of this kind. Nothing is said about any other.
    #[inline(always)]
    pub(crate) fn of(known: &Known<'_, 'a>) -> Option<Self> {
        let (covered, icrc) = known.bytes.split_last_chunk::<ICRC_LEN>()?;
        // Version, partition key and QPN are those of the flow.
        let (&[opcode, flags, _, _, _, _, _, _, ack, s0, s1, s2], rest) =
            covered.split_first_chunk::<{ Bth::LEN }>()?;
        let (op, body) = match opcode {
            WRITE_ONLY | READ_REQUEST => {
                let (bytes, body) = rest.split_first_chunk::<{ Reth::LEN }>()?;
                let reth = Reth::parse(bytes);
                let write = opcode == WRITE_ONLY;
                (if write { CommonOp::Write(reth) } else { CommonOp::Read(reth) }, body)
            }
            SEND_ONLY => (CommonOp::Send, rest),
            READ_RESPONSE => (CommonOp::Response, rest.get(Aeth::LEN..)?),
            _ => return None,
        };
        let pad_count = usize::from((flags >> 4) & 0x03);
        let payload = body.get(..body.len().checked_sub(pad_count)?)?;
        let usual = payload.is_empty() == (opcode == READ_REQUEST);
        if !usual || known.seed.icrc(covered) != *icrc {
            return None;
        }
        Some(Self {
            psn: Psn::new(u32::from_be_bytes([0, s0, s1, s2])),
            ack_req: ack & 0x80 != 0,
            solicited: flags & 0x80 != 0,
            op,
            payload,
        })
    }
}

/// The headers of such a packet of ours. It is the last of its message, and so requests an ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonHeaders {
    /// The queue pair that the packet is for.
    pub dest_qpn: Qpn,
    /// The packet sequence number.
    pub psn: Psn,
    /// The receiver's completion is to be a solicited event.
    pub solicited: bool,
    /// The destination of a WRITE.
    pub reth: Option<Reth>,
}

impl CommonHeaders {
    /// Bytes behind the BTH.
    pub(super) const fn ext_len(&self) -> usize {
        if self.reth.is_some() { Reth::LEN } else { 0 }
    }

    /// Writes the headers to the start of `out` and returns the rest.
    pub(super) fn emit<'b>(&self, pad_count: u8, out: &'b mut [u8]) -> &'b mut [u8] {
        let opcode = if self.reth.is_some() { Opcode::WriteOnly } else { Opcode::SendOnly };
        let mut bth = Bth::new(opcode, self.dest_qpn, self.psn);
        (bth.solicited, bth.ack_req, bth.pad_count) = (self.solicited, true, pad_count);
        let rest = put(out, bth.emit());
        match self.reth {
            Some(reth) => put(rest, reth.emit()),
            None => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rkey;
    use crate::psn::Msn;
    use crate::wire::{Ext, Flow, Packet, Syndrome, Template, UnitWriter, example_encap};
    use core::convert::Infallible;
    use proptest::prelude::*;
    use std::vec::Vec;

    const RETH: Reth = Reth { va: u64::MAX - 9, rkey: Rkey::new(0x8000_0001), len: 3 };

    fn frame_of(bth: &Bth, ext: &Ext, payload: &[u8]) -> Vec<u8> {
        let (mut buf, template) = ([0xaa; 300], Template::new(&example_encap(false, None)));
        let mut unit = UnitWriter::new(&mut buf, &template, 7);
        let Ok(()) = unit.push(bth, ext, payload.len(), |out| {
            out.copy_from_slice(payload);
            Ok::<(), Infallible>(())
        });
        let len = unit.finish().len;
        buf[..len].to_vec()
    }

    fn headers(reth: Option<Reth>) -> (Bth, Ext) {
        let opcode = if reth.is_some() { Opcode::WriteOnly } else { Opcode::SendOnly };
        let bth = Bth::new(opcode, Qpn::new(0x12_3456), Psn::new(0xff_fffe));
        (bth, reth.map_or(Ext::None, Ext::Reth))
    }

    /// The same by the general way, if a frame is of this kind.
    fn common_of<'a>(packet: &Packet<'a>) -> Option<Common<'a>> {
        let Packet { bth, ext, payload, .. } = *packet;
        let op = match (bth.opcode, ext) {
            (Opcode::SendOnly, Ext::None) => CommonOp::Send,
            (Opcode::WriteOnly, Ext::Reth(reth)) => CommonOp::Write(reth),
            (Opcode::ReadRequest, Ext::Reth(reth)) => CommonOp::Read(reth),
            (Opcode::ReadResponseOnly, Ext::Aeth(_)) => CommonOp::Response,
            _ => return None,
        };
        let Bth { psn, ack_req, solicited, pkey, .. } = bth;
        let read = matches!(op, CommonOp::Read(_));
        let usual = pkey & 0x7fff == 0x7fff && payload.is_empty() == read;
        usual.then_some(Common { psn, ack_req, solicited, op, payload })
    }

    #[test]
    fn a_common_packet_is_written_as_any_packet() {
        for (reth, solicited, len) in
            [(None, true, 1), (None, false, 64), (Some(RETH), false, 3), (Some(RETH), true, 8)]
        {
            let payload: Vec<u8> = (1..=len).collect();
            let (mut bth, ext) = headers(reth);
            (bth.solicited, bth.ack_req) = (solicited, true);
            let (mut buf, template) = ([0x55; 300], Template::new(&example_encap(false, None)));
            let mut unit = UnitWriter::new(&mut buf, &template, 7);
            let common = CommonHeaders { dest_qpn: bth.dest_qpn, psn: bth.psn, solicited, reth };
            let pushed = unit.push_common(&common, payload.len(), |out| {
                out.copy_from_slice(&payload);
                Some(())
            });
            assert_eq!(pushed, Some(()));
            assert_eq!(unit.push_common(&common, 200, |_| unreachable!()), None, "no room");
            assert_eq!(unit.push_common(&common, 1, |_| None), None, "no bytes");
            let len = unit.finish().len;
            assert_eq!(buf[..len], frame_of(&bth, &ext, &payload));
        }
    }

    proptest! {
        /// The short way takes a packet as the general way does, or leaves it to that; and it leaves few.
        #[test]
        fn a_common_packet_is_read_as_any_packet(
            kind in 0_u8..4,
            flags: [bool; 4],
            len in 0_usize..70,
            damage in prop::option::of((any::<prop::sample::Index>(), 0_u32..8)),
        ) {
            let (mut bth, mut ext) = headers((kind > 0).then_some(RETH));
            let (read, len) = (kind == 2, if kind == 2 { 0 } else { len });
            if read {
                bth.opcode = Opcode::ReadRequest;
            } else if kind == 3 {
                bth.opcode = Opcode::ReadResponseOnly;
                ext = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: Msn::new(5) });
            }
            [bth.solicited, bth.ack_req, bth.migrated, bth.becn] = flags;
            let first = frame_of(&bth, &ext, if read { &[] } else { &[1] });
            let flow = Flow::of(&first, &Packet::parse(&first).unwrap()).unwrap();
            let mut frame = frame_of(&bth, &ext, &(0..len as u8).collect::<Vec<_>>());
            let sound = damage.is_none();
            if let Some((at, bit)) = damage {
                *at.get_mut(&mut frame) ^= 1 << bit;
            }
            let common = flow.check(&frame).and_then(|known| Common::of(&known));
            let packet = Packet::parse(&frame);
            let expected = packet.ok().as_ref().and_then(common_of);
            prop_assert!(common.is_none() || common == expected);
            prop_assert_eq!(sound && (read || len > 0), sound && common.is_some());
        }
    }
}
