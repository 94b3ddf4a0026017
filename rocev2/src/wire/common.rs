//! The short way of the packets that most often come and leave.

use super::ext::put;
use super::flow::{Flow, Known, Like};
use super::{Aeth, Bth, ICRC_LEN, Opcode, Payload, Place, Reth, Syndrome, is_marked, pad_count};
use crate::ids::Qpn;
use crate::psn::{Msn, Psn};

/// A packet of a SEND or WRITE, without immediate or invalidation and with payload; a READ request, or a packet of a
/// response to one, with payload; an ACK.
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

/// The operation of a packet, and the memory that it names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CommonOp {
    /// SEND.
    Send(Place),
    /// WRITE of one packet.
    Write(Reth),
    /// The first packet of a longer WRITE.
    WriteFirst(Reth),
    /// A later packet of a WRITE; whether it is the last.
    WriteNext(bool),
    /// READ.
    Read(Reth),
    /// The response to a READ. Its data acknowledge, whatever its syndrome.
    Response(Place),
    /// An ACK, and no NAK.
    Ack,
}

/// The opcodes as bytes, to match on.
mod byte {
    use super::Opcode;

    pub(super) const SEND_FIRST: u8 = Opcode::SendFirst as u8;
    pub(super) const SEND_MIDDLE: u8 = Opcode::SendMiddle as u8;
    pub(super) const SEND_LAST: u8 = Opcode::SendLast as u8;
    pub(super) const SEND_ONLY: u8 = Opcode::SendOnly as u8;
    pub(super) const WRITE_FIRST: u8 = Opcode::WriteFirst as u8;
    pub(super) const WRITE_MIDDLE: u8 = Opcode::WriteMiddle as u8;
    pub(super) const WRITE_LAST: u8 = Opcode::WriteLast as u8;
    pub(super) const WRITE_ONLY: u8 = Opcode::WriteOnly as u8;
    pub(super) const READ_REQUEST: u8 = Opcode::ReadRequest as u8;
    pub(super) const RESPONSE_FIRST: u8 = Opcode::ReadResponseFirst as u8;
    pub(super) const RESPONSE_MIDDLE: u8 = Opcode::ReadResponseMiddle as u8;
    pub(super) const RESPONSE_LAST: u8 = Opcode::ReadResponseLast as u8;
    pub(super) const RESPONSE_ONLY: u8 = Opcode::ReadResponseOnly as u8;
    pub(super) const ACKNOWLEDGE: u8 = Opcode::Acknowledge as u8;
}

/// A credit count: no NAK has a syndrome as small (IBTA ch. 9, AETH).
const ACK_SYNDROME_MAX: u8 = 0x1f;

impl<'a> Common<'a> {
    /// The packet that `known` is, if it is a good one of this kind. Nothing is said about any other.
    #[inline(always)]
    pub(crate) fn of(known: &Known<'_, 'a>) -> Option<Self> {
        let (covered, icrc) = known.bytes.split_last_chunk::<ICRC_LEN>()?;
        // Version, partition key and QPN are those of the flow.
        let (&[opcode, flags, _, _, _, _, _, _, ack, s0, s1, s2], rest) =
            covered.split_first_chunk::<{ Bth::LEN }>()?;
        let (op, body) = op_of(opcode, rest)?;
        let pad_count = usize::from((flags >> 4) & 0x03);
        let payload = body.get(..body.len().checked_sub(pad_count)?)?;
        let bare = matches!(op, CommonOp::Read(_) | CommonOp::Ack);
        if payload.is_empty() != bare || known.seed.icrc(covered) != *icrc {
            return None;
        }
        let word = u32::from_be_bytes([ack, s0, s1, s2]);
        Some(Self {
            psn: Psn::new(word),
            ack_req: word >> 31 != 0,
            solicited: flags & 0x80 != 0,
            op,
            payload,
        })
    }
}

impl Common<'_> {
    /// Whether it is for the requester.
    pub(crate) const fn answers(&self) -> bool {
        matches!(self.op, CommonOp::Response(_) | CommonOp::Ack)
    }
}

/// A received unit: its bytes, and the length of its segments if it is more than one frame.
pub(crate) type Frame<'f> = (&'f [u8], Option<usize>);

/// Frames that are looked at one after the other, as far as they are common packets of one flow.
pub(crate) struct Inbound<'r, 'f, I> {
    flow: &'r Flow,
    last: Like,
    next: Option<Frame<'f>>,
    rest: &'r mut I,
    /// Bytes of the packet that was looked at.
    wire_len: usize,
    /// Packets that were taken, and their bytes.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl<'r, 'f, I: Iterator<Item = Frame<'f>>> Inbound<'r, 'f, I> {
    /// `first`, and the frames behind it.
    pub(crate) const fn new(flow: &'r Flow, first: Frame<'f>, rest: &'r mut I) -> Self {
        let (last, next) = (flow.like(), Some(first));
        Self { flow, last, next, rest, wire_len: 0, packets: 0, bytes: 0 }
    }

    /// The next packet; `None` where the next frame is no common packet of the flow, or has a mark of congestion.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Option<Common<'f>> {
        let Some((frame, None)) = self.next else { return None };
        let known = self.flow.check_like(frame, &mut self.last)?;
        self.wire_len = known.wire_len();
        Common::of(&known).filter(|_| !is_marked(known.traffic_class()))
    }

    /// Takes the packet that was looked at, and looks at the next.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Common<'f>> {
        self.packets += 1;
        self.bytes += self.wire_len as u64;
        self.next = self.rest.next();
        self.look()
    }

    /// The first frame that was not taken.
    pub(crate) const fn next(&self) -> Option<Frame<'f>> {
        self.next
    }
}

/// The operation of an opcode with these bytes behind the BTH, and the bytes behind the extended header.
#[inline(always)]
fn op_of(opcode: u8, rest: &[u8]) -> Option<(CommonOp, &[u8])> {
    let op = match opcode {
        byte::WRITE_ONLY | byte::READ_REQUEST | byte::WRITE_FIRST => {
            let (bytes, body) = rest.split_first_chunk::<{ Reth::LEN }>()?;
            let reth = Reth::parse(bytes);
            let op = match opcode {
                byte::WRITE_ONLY => CommonOp::Write(reth),
                byte::WRITE_FIRST => CommonOp::WriteFirst(reth),
                _ => CommonOp::Read(reth),
            };
            return Some((op, body));
        }
        byte::RESPONSE_FIRST => {
            return Some((CommonOp::Response(Place::First), rest.get(Aeth::LEN..)?));
        }
        byte::RESPONSE_LAST => {
            return Some((CommonOp::Response(Place::Last), rest.get(Aeth::LEN..)?));
        }
        byte::RESPONSE_ONLY => {
            return Some((CommonOp::Response(Place::Only), rest.get(Aeth::LEN..)?));
        }
        byte::ACKNOWLEDGE => {
            let (aeth, body) = rest.split_first_chunk::<{ Aeth::LEN }>()?;
            return (aeth[0] <= ACK_SYNDROME_MAX).then_some((CommonOp::Ack, body));
        }
        byte::RESPONSE_MIDDLE => CommonOp::Response(Place::Middle),
        byte::SEND_ONLY => CommonOp::Send(Place::Only),
        byte::SEND_FIRST => CommonOp::Send(Place::First),
        byte::SEND_MIDDLE => CommonOp::Send(Place::Middle),
        byte::SEND_LAST => CommonOp::Send(Place::Last),
        byte::WRITE_MIDDLE => CommonOp::WriteNext(false),
        byte::WRITE_LAST => CommonOp::WriteNext(true),
        _ => return None,
    };
    Some((op, rest))
}

/// The headers of such a packet of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonHeaders {
    /// The opcode.
    pub opcode: Opcode,
    /// The queue pair that the packet is for.
    pub dest_qpn: Qpn,
    /// The packet sequence number.
    pub psn: Psn,
    /// The receiver's completion is to be a solicited event.
    pub solicited: bool,
    /// The packet requests an acknowledgement.
    pub ack_req: bool,
    /// The header behind the BTH.
    pub ext: CommonExt,
}

/// The extended headers of common packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommonExt {
    /// None.
    None,
    /// The remote memory of a WRITE or READ.
    Reth(Reth),
    /// An AETH that acknowledges, and counts these messages.
    Ack(Msn),
}

impl CommonExt {
    /// Bytes on the wire.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Reth(_) => Reth::LEN,
            Self::Ack(_) => Aeth::LEN,
        }
    }
}

impl CommonHeaders {
    /// Writes the packet from the BTH to the last pad byte, all of `out`. `None` where the payload fails.
    ///
    /// # Panics
    /// Where `out` is not as long as the packet.
    #[inline(always)]
    pub(super) fn write(
        &self,
        out: &mut [u8],
        payload_len: usize,
        payload: impl Payload,
    ) -> Option<()> {
        let (out, pad) = self.emit(pad_count(payload_len), out).split_at_mut(payload_len);
        if !pad.is_empty() {
            pad.fill(0);
        }
        payload.write(out)
    }

    /// Writes the headers to the start of `out` and returns the rest.
    #[inline(always)]
    fn emit<'b>(&self, pad_count: u8, out: &'b mut [u8]) -> &'b mut [u8] {
        let mut bth = Bth::new(self.opcode, self.dest_qpn, self.psn);
        (bth.solicited, bth.ack_req, bth.pad_count) = (self.solicited, self.ack_req, pad_count);
        let rest = put(out, bth.emit());
        match self.ext {
            CommonExt::None => rest,
            CommonExt::Reth(reth) => put(rest, reth.emit()),
            CommonExt::Ack(msn) => put(rest, Aeth { syndrome: Syndrome::ACK, msn }.emit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rkey;
    use crate::wire::{Ext, Flow, Operation, Packet, Template, UnitWriter, example_encap};
    use core::convert::Infallible;
    use proptest::prelude::*;
    use std::vec::Vec;

    const RETH: Reth = Reth { va: u64::MAX - 9, rkey: Rkey::new(0x8000_0001), len: 3 };

    impl<F: FnOnce(&mut [u8]) -> Option<()>> Payload for F {
        fn write(self, out: &mut [u8]) -> Option<()> {
            self(out)
        }
    }

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

    /// Every kind of common packet, with the headers behind the BTH.
    const KINDS: [(Opcode, CommonExt); 14] = {
        const ACK: CommonExt = CommonExt::Ack(Msn::new(5));
        [
            (Opcode::SendFirst, CommonExt::None),
            (Opcode::SendMiddle, CommonExt::None),
            (Opcode::SendLast, CommonExt::None),
            (Opcode::SendOnly, CommonExt::None),
            (Opcode::WriteFirst, CommonExt::Reth(RETH)),
            (Opcode::WriteMiddle, CommonExt::None),
            (Opcode::WriteLast, CommonExt::None),
            (Opcode::WriteOnly, CommonExt::Reth(RETH)),
            (Opcode::ReadRequest, CommonExt::Reth(RETH)),
            (Opcode::ReadResponseFirst, ACK),
            (Opcode::ReadResponseMiddle, CommonExt::None),
            (Opcode::ReadResponseLast, ACK),
            (Opcode::ReadResponseOnly, ACK),
            (Opcode::Acknowledge, ACK),
        ]
    };

    fn bth_of(opcode: Opcode) -> Bth {
        Bth::new(opcode, Qpn::new(0x12_3456), Psn::new(0xff_fffe))
    }

    fn ext_of(ext: CommonExt) -> Ext {
        match ext {
            CommonExt::None => Ext::None,
            CommonExt::Reth(reth) => Ext::Reth(reth),
            CommonExt::Ack(msn) => Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn }),
        }
    }

    /// The same by the general way, if a frame is of this kind.
    fn common_of<'a>(packet: &Packet<'a>) -> Option<Common<'a>> {
        let Packet { bth, ext, payload, .. } = *packet;
        let (place, acks) = (bth.opcode.place(), Syndrome::Ack { credits: 31 });
        let op = match (bth.opcode.operation(), ext) {
            (Operation::Send, Ext::None) => CommonOp::Send(place),
            (Operation::Write, Ext::Reth(reth)) if place == Place::Only => CommonOp::Write(reth),
            (Operation::Write, Ext::Reth(reth)) => CommonOp::WriteFirst(reth),
            (Operation::Write, Ext::None) => CommonOp::WriteNext(place == Place::Last),
            (Operation::ReadRequest, Ext::Reth(reth)) => CommonOp::Read(reth),
            (Operation::ReadResponse, Ext::Aeth(_) | Ext::None) => CommonOp::Response(place),
            (Operation::Acknowledge, Ext::Aeth(Aeth { syndrome, .. })) if syndrome == acks => {
                CommonOp::Ack
            }
            _ => return None,
        };
        let Bth { psn, ack_req, solicited, pkey, .. } = bth;
        let bare = matches!(op, CommonOp::Read(_) | CommonOp::Ack);
        let usual = pkey & 0x7fff == 0x7fff && payload.is_empty() == bare;
        usual.then_some(Common { psn, ack_req, solicited, op, payload })
    }

    #[test]
    fn a_common_packet_is_written_as_any_packet() {
        for ((opcode, ext), (solicited, len)) in
            KINDS.into_iter().zip([true, false].into_iter().zip([1, 64]).cycle())
        {
            for ack_req in [true, false] {
                let payload: Vec<u8> = (1..=len).collect();
                let Bth { dest_qpn, psn, .. } = bth_of(opcode);
                let common = CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
                let bth = Bth { solicited, ack_req, ..bth_of(opcode) };
                let (mut buf, template) = ([0x55; 300], Template::new(&example_encap(false, None)));
                let mut unit = UnitWriter::new(&mut buf, &template, 7);
                let pushed = unit.push_common(&common, payload.len(), |out: &mut [u8]| {
                    out.copy_from_slice(&payload);
                    Some(())
                });
                assert_eq!(pushed, Some(()));
                assert_eq!(
                    unit.push_common(&common, 200, |_: &mut [u8]| unreachable!()),
                    None,
                    "no room"
                );
                assert_eq!(unit.push_common(&common, 1, |_: &mut [u8]| None), None, "no bytes");
                let len = unit.finish().len;
                assert_eq!(buf[..len], frame_of(&bth, &ext_of(ext), &payload));
            }
        }
    }

    #[test]
    fn a_nak_is_not_common() {
        for byte in 0..=u8::MAX {
            let aeth = [byte, 0, 0, 0];
            let acks = matches!(Aeth::parse(&aeth).syndrome, Syndrome::Ack { .. });
            assert_eq!(op_of(byte::ACKNOWLEDGE, &aeth).is_some(), acks, "{byte:#x}");
        }
    }

    proptest! {
        /// The short way takes a packet as the general way does, or leaves it to that; and it leaves few.
        #[test]
        fn a_common_packet_is_read_as_any_packet(
            kind: prop::sample::Index,
            flags: [bool; 4],
            len in 0_usize..70,
            damage in prop::option::of((any::<prop::sample::Index>(), 0_u32..8)),
        ) {
            let &(opcode, ext) = kind.get(&KINDS);
            let ext = ext_of(ext);
            let bare = matches!(opcode, Opcode::ReadRequest | Opcode::Acknowledge);
            let mut bth = bth_of(opcode);
            [bth.solicited, bth.ack_req, bth.migrated, bth.becn] = flags;
            let first = frame_of(&bth, &ext, if bare { &[] } else { &[1] });
            let flow = Flow::of(&first, &Packet::parse(&first).unwrap()).unwrap();
            let payload: Vec<u8> = (0..if bare { 0 } else { len as u8 }).collect();
            let mut frame = frame_of(&bth, &ext, &payload);
            let sound = damage.is_none();
            if let Some((at, bit)) = damage {
                *at.get_mut(&mut frame) ^= 1 << bit;
            }
            let common = flow.check(&frame).and_then(|known| Common::of(&known));
            let packet = Packet::parse(&frame);
            let expected = packet.ok().as_ref().and_then(common_of);
            prop_assert!(common.is_none() || common == expected);
            prop_assert_eq!(sound && (bare || len > 0), sound && common.is_some());
        }
    }
}
