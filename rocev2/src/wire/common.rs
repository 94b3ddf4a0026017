//! The short way of the packets that most often come and leave.

use super::ext::put;
use super::flow::{Flow, Known};
use super::{Aeth, Bth, ICRC_LEN, Opcode, Payload, Place, Reth, Syndrome, pad_count};
use crate::ids::Qpn;
use crate::psn::{Msn, Psn};

/// A packet of a SEND or WRITE, without immediate or invalidation and with payload; a READ request, or a packet of a
/// response to one, with payload; an ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common<'a> {
    /// The operation.
    pub op: CommonOp,
    bth: &'a [u8; Bth::LEN],
    /// The bytes from there to the last pad byte.
    rest: &'a [u8],
    /// The payload, pad bytes removed.
    pub payload: &'a [u8],
}

/// The operation of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CommonOp {
    /// SEND.
    Send(Place),
    /// WRITE of one packet.
    Write,
    /// The first packet of a longer WRITE.
    WriteFirst,
    /// A later packet of a WRITE; whether it is the last.
    WriteNext(bool),
    /// READ.
    Read,
    /// The response to a READ. Its data acknowledge, whatever its syndrome.
    Response(Place),
    /// An ACK, and no NAK.
    Ack,
}

/// The parts of a common packet. All packets of this opcode, length and pad count have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    op: CommonOp,
    /// Where the payload begins, and where it ends, behind the begin of the BTH.
    payload: (usize, usize),
}

impl Layout {
    /// That of a packet whose BTH begins with these bytes, and with so many bytes from there to the ICRC.
    pub(super) fn of(opcode: u8, flags: u8, len: usize) -> Option<Self> {
        let (op, ext_len) = op_of(Opcode::try_from(opcode).ok()?)?;
        let pad_count = usize::from((flags >> 4) & 0x03);
        let (begin, end) = (Bth::LEN + ext_len, len.checked_sub(ICRC_LEN + pad_count)?);
        let bare = matches!(op, CommonOp::Read | CommonOp::Ack);
        let fits = if bare { begin == end } else { begin < end };
        fits.then_some(Self { op, payload: (begin, end) })
    }
}

/// A credit count: no NAK has a syndrome as small (IBTA ch. 9, AETH).
const ACK_SYNDROME_MAX: u8 = 0x1f;

impl<'a> Common<'a> {
    /// The packet that `known` is, if it is a good one of this kind, and bears no mark of congestion. Nothing is said
    /// about any other.
    #[inline(always)]
    pub(crate) fn of(known: &Known<'_, 'a>) -> Option<Self> {
        // Version, partition key and QPN are those of the flow, and so is the layout, which no marked packet has.
        Self::in_layout(known.layout()?, known.bytes, |covered| known.seed.icrc_unmarked(covered))
    }

    /// The packet from the BTH to the ICRC that has this layout, if it is a good one. `icrc_of` gives the ICRC.
    #[inline(always)]
    pub(super) fn in_layout(
        layout: &Layout,
        bytes: &'a [u8],
        icrc_of: impl FnOnce(&[u8]) -> [u8; ICRC_LEN],
    ) -> Option<Self> {
        let (covered, icrc) = bytes.split_last_chunk::<ICRC_LEN>()?;
        let (bth, rest) = covered.split_first_chunk()?;
        if icrc_of(covered) != *icrc {
            return None;
        }
        let (op, (begin, end)) = (layout.op, layout.payload);
        let refuses = op == CommonOp::Ack && *rest.first()? > ACK_SYNDROME_MAX;
        let common = Self { op, bth, rest, payload: covered.get(begin..end)? };
        (!refuses).then_some(common)
    }

    /// The packet sequence number.
    pub(crate) fn psn(&self) -> Psn {
        Psn::new(self.bth.last_chunk().copied().map_or(0, u32::from_be_bytes))
    }

    /// The packet requests an acknowledgement.
    pub(crate) const fn ack_req(&self) -> bool {
        let &[.., ack, _, _, _] = self.bth;
        ack & 0x80 != 0
    }

    /// The receiver's completion is a solicited event.
    pub(crate) const fn solicited(&self) -> bool {
        let &[_, flags, ..] = self.bth;
        flags & 0x80 != 0
    }

    /// The memory that a READ, or the first packet of a WRITE, names.
    #[inline(always)]
    pub(crate) fn reth(&self) -> Option<Reth> {
        self.rest.first_chunk().map(Reth::parse)
    }

    /// Whether it is for the requester.
    pub(crate) const fn answers(&self) -> bool {
        self.is_response() || matches!(self.op, CommonOp::Ack)
    }

    /// Whether it has data of a READ.
    pub(crate) const fn is_response(&self) -> bool {
        matches!(self.op, CommonOp::Response(_))
    }
}

/// A received unit: its bytes, and the length of its segments if it is more than one frame.
pub(crate) type Frame<'f> = (&'f [u8], Option<usize>);

/// Packets that are looked at one after the other, as far as they are common ones for one queue pair.
pub(crate) trait CommonRun<'a> {
    /// The next packet; `None` where the next one is another, or has a mark of congestion.
    fn look(&mut self) -> Option<Common<'a>>;

    /// Takes the packet that was looked at, and looks at the next.
    fn take(&mut self) -> Option<Common<'a>>;
}

/// Frames that are looked at one after the other, as far as they are common packets of one flow.
pub(crate) struct Inbound<'r, 'f, I> {
    flow: &'r mut Flow,
    /// The frame that is looked at.
    frame: &'f [u8],
    /// Once they have ended otherwise: what came in place of a frame.
    end: Option<Option<Frame<'f>>>,
    rest: &'r mut I,
    /// Packets that were taken, and their bytes from the BTH to the ICRC.
    packets: usize,
    bytes: usize,
    /// The frame is a common packet with the right ICRC.
    right: bool,
}

impl<'r, 'f, I: Iterator<Item = Frame<'f>>> Inbound<'r, 'f, I> {
    /// `first`, which was found to be such a packet if it is `right`, and the frames behind it.
    pub(crate) const fn new(
        flow: &'r mut Flow,
        (first, right): (&'f [u8], bool),
        rest: &'r mut I,
    ) -> Self {
        Self { flow, frame: first, end: None, rest, packets: 0, bytes: 0, right }
    }

    /// Packets that were taken, and their bytes from the Ethernet header to the ICRC.
    pub(crate) const fn taken(&self) -> (usize, usize) {
        (self.packets, self.packets * self.flow.header_len() + self.bytes)
    }

    /// The first frame that was not taken, and whether its ICRC is known to be right.
    pub(crate) fn next(&self) -> (Option<Frame<'f>>, bool) {
        self.end.map_or((Some((self.frame, None)), self.right), |end| (end, false))
    }
}

impl<'f, I: Iterator<Item = Frame<'f>>> CommonRun<'f> for Inbound<'_, 'f, I> {
    #[inline(always)]
    fn look(&mut self) -> Option<Common<'f>> {
        let common = self.flow.look(self.frame);
        self.right = common.is_some();
        common
    }

    #[inline(always)]
    fn take(&mut self) -> Option<Common<'f>> {
        self.packets += 1;
        self.bytes += self.flow.last_len();
        match self.rest.next() {
            Some((frame, None)) => {
                self.frame = frame;
                self.look()
            }
            end => {
                self.end = Some(end);
                None
            }
        }
    }
}

/// The operation of an opcode, and the bytes of its extended header.
const fn op_of(opcode: Opcode) -> Option<(CommonOp, usize)> {
    Some(match opcode {
        Opcode::SendFirst | Opcode::SendMiddle | Opcode::SendLast | Opcode::SendOnly => {
            (CommonOp::Send(opcode.place()), 0)
        }
        Opcode::WriteOnly => (CommonOp::Write, Reth::LEN),
        Opcode::WriteFirst => (CommonOp::WriteFirst, Reth::LEN),
        Opcode::WriteMiddle => (CommonOp::WriteNext(false), 0),
        Opcode::WriteLast => (CommonOp::WriteNext(true), 0),
        Opcode::ReadRequest => (CommonOp::Read, Reth::LEN),
        Opcode::ReadResponseMiddle => (CommonOp::Response(Place::Middle), 0),
        Opcode::ReadResponseFirst | Opcode::ReadResponseLast | Opcode::ReadResponseOnly => {
            (CommonOp::Response(opcode.place()), Aeth::LEN)
        }
        Opcode::Acknowledge => (CommonOp::Ack, Aeth::LEN),
        Opcode::SendLastImm
        | Opcode::SendOnlyImm
        | Opcode::WriteLastImm
        | Opcode::WriteOnlyImm
        | Opcode::AtomicAcknowledge
        | Opcode::CompareSwap
        | Opcode::FetchAdd
        | Opcode::SendLastInv
        | Opcode::SendOnlyInv
        | Opcode::Flush
        | Opcode::AtomicWrite
        | Opcode::UdSendOnly
        | Opcode::UdSendOnlyImm
        | Opcode::Cnp
        | Opcode::GapReport
        | Opcode::AckList => return None,
    })
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

    /// The fields of a common packet, those of the header behind the BTH last.
    type Fields<'a> = (CommonOp, Psn, [bool; 2], &'a [u8], Option<Reth>);

    fn fields_of<'a>(common: &Common<'a>) -> Fields<'a> {
        let names = matches!(common.op, CommonOp::Write | CommonOp::WriteFirst | CommonOp::Read);
        let (flags, reth) = ([common.ack_req(), common.solicited()], common.reth());
        (common.op, common.psn(), flags, common.payload, reth.filter(|_| names))
    }

    /// The same by the general way, if a frame is of this kind.
    fn common_of<'a>(packet: &Packet<'a>) -> Option<Fields<'a>> {
        let Packet { encap, bth, ext, payload } = *packet;
        let (place, acks) = (bth.opcode.place(), Syndrome::Ack { credits: 31 });
        let (op, reth) = match (bth.opcode.operation(), ext) {
            (Operation::Send, Ext::None) => (CommonOp::Send(place), None),
            (Operation::Write, Ext::Reth(reth)) if place == Place::Only => {
                (CommonOp::Write, Some(reth))
            }
            (Operation::Write, Ext::Reth(reth)) => (CommonOp::WriteFirst, Some(reth)),
            (Operation::Write, Ext::None) => (CommonOp::WriteNext(place == Place::Last), None),
            (Operation::ReadRequest, Ext::Reth(reth)) => (CommonOp::Read, Some(reth)),
            (Operation::ReadResponse, Ext::Aeth(_) | Ext::None) => {
                (CommonOp::Response(place), None)
            }
            (Operation::Acknowledge, Ext::Aeth(Aeth { syndrome, .. })) if syndrome == acks => {
                (CommonOp::Ack, None)
            }
            _ => return None,
        };
        let Bth { psn, ack_req, solicited, pkey, .. } = bth;
        let bare = matches!(op, CommonOp::Read | CommonOp::Ack);
        let marked = encap.traffic_class & 3 == 3;
        let usual = !marked && pkey & 0x7fff == 0x7fff && payload.is_empty() == bare;
        usual.then_some((op, psn, [ack_req, solicited], payload, reth))
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
        let ack = frame_of(&bth_of(Opcode::Acknowledge), &ext_of(KINDS[13].1), &[]);
        let mut flow = Flow::of(&ack, &Packet::parse(&ack).unwrap()).unwrap();
        for byte in 0..=u8::MAX {
            let aeth = Aeth::parse(&[byte, 0, 0, 5]);
            let acks = matches!(aeth.syndrome, Syndrome::Ack { .. });
            let frame = frame_of(&bth_of(Opcode::Acknowledge), &Ext::Aeth(aeth), &[]);
            let known = flow.check(&frame).unwrap();
            assert_eq!(Common::of(&known).is_some(), acks, "{byte:#x}");
        }
    }

    /// A packet of one of [`KINDS`], with these flags and so many bytes, as a frame of which a bit may be wrong.
    type Sent = (prop::sample::Index, [bool; 4], usize, Option<(prop::sample::Index, u32)>);

    fn sent() -> impl Strategy<Value = Vec<Sent>> {
        let damage = prop::option::of((any::<prop::sample::Index>(), 0_u32..8));
        // Lengths are often the same.
        let len = prop_oneof![Just(4_usize), 0_usize..70];
        prop::collection::vec((any::<prop::sample::Index>(), any::<[bool; 4]>(), len, damage), 1..9)
    }

    proptest! {
        /// The short way takes a packet as the general way does, whatever came before, or leaves it to that; and it
        /// leaves few.
        #[test]
        fn a_common_packet_is_read_as_any_packet(sent in sent()) {
            let mut flow = None;
            for (kind, flags, len, damage) in sent {
                let &(opcode, ext) = kind.get(&KINDS);
                let ext = ext_of(ext);
                let bare = matches!(opcode, Opcode::ReadRequest | Opcode::Acknowledge);
                let mut bth = bth_of(opcode);
                [bth.solicited, bth.ack_req, bth.migrated, bth.becn] = flags;
                let payload: Vec<u8> = (0..if bare { 0 } else { len as u8 }).collect();
                let mut frame = frame_of(&bth, &ext, &payload);
                let flow = flow.get_or_insert_with(|| {
                    Flow::of(&frame, &Packet::parse(&frame).unwrap()).unwrap()
                });
                let sound = damage.is_none();
                if let Some((at, bit)) = damage {
                    *at.get_mut(&mut frame) ^= 1 << bit;
                }
                let known = flow.check(&frame);
                let common = known.as_ref().and_then(Common::of);
                let packet = Packet::parse(&frame).ok();
                let by_flow = known.as_ref().and_then(|known| known.packet(false));
                prop_assert!(by_flow.is_none() || by_flow == packet);
                prop_assert_eq!(sound && by_flow.is_some(), sound);
                let common = common.as_ref().map(fields_of);
                let expected = packet.as_ref().and_then(common_of);
                prop_assert!(common.is_none() || common == expected);
                let usual = (bare || len > 0) && !bth.becn;
                prop_assert_eq!(sound && usual, sound && common.is_some());
            }
        }
    }
}
