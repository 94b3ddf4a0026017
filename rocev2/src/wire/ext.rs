//! The extended transport headers (IBTA ch. 9) and which of them follow an opcode.

use super::{Aeth, DropReason, Opcode};
use crate::ids::{Qpn, Rkey};

/// The extended headers of a packet, which the opcode determines; see [`Opcode`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Ext {
    /// None follow.
    None,
    /// WRITE, first packet; READ request; ATOMIC WRITE.
    Reth(Reth),
    /// WRITE_ONLY with immediate data.
    RethImm(Reth, u32),
    /// Immediate data, as the four bytes read in network order.
    Imm(u32),
    /// The key that a SEND with Invalidate invalidates.
    Ieth(Rkey),
    /// Acknowledge; READ response, all but the middle.
    Aeth(Aeth),
    /// Compare-and-swap, fetch-and-add.
    AtomicEth(AtomicEth),
    /// Atomic acknowledge: the word's original value.
    AtomicAck(Aeth, u64),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate data.
    DethImm(Deth, u32),
    /// FLUSH (annex A19).
    Flush(Feth, Reth),
    /// The 16 reserved bytes of a congestion notification packet (annex A17).
    Cnp,
}

/// RDMA Extended Transport Header: remote memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Reth {
    /// Remote virtual address.
    pub va: u64,
    /// The key of the remote memory.
    pub rkey: Rkey,
    /// Bytes of the whole message.
    pub len: u32,
}

/// Atomic Extended Transport Header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AtomicEth {
    /// Remote virtual address of the 64-bit word.
    pub va: u64,
    /// The key of the remote memory.
    pub rkey: Rkey,
    /// The value to store (compare-and-swap) or to add (fetch-and-add).
    pub swap_or_add: u64,
    /// The value to compare with; 0 for fetch-and-add.
    pub compare: u64,
}

/// Datagram Extended Transport Header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Deth {
    /// The key that the receiving QP demands.
    pub qkey: u32,
    /// The sending QP.
    pub src_qpn: Qpn,
}

/// FLUSH Extended Transport Header (annex A19).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Feth {
    /// Placement type, 4 bits.
    pub placement: u8,
    /// Selectivity level, 2 bits.
    pub selectivity: u8,
}

/// The kinds of the extended headers, without their contents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    None,
    Reth,
    RethImm,
    Imm,
    Ieth,
    Aeth,
    AtomicEth,
    AtomicAck,
    Deth,
    DethImm,
    Flush,
    Cnp,
}

impl Ext {
    /// Splits the headers that follow `opcode` off `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Truncated`] where `bytes` ends before they do.
    pub fn parse(opcode: Opcode, bytes: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        Ok(match opcode.shape() {
            Shape::None => (Self::None, bytes),
            Shape::Reth => {
                let (reth, rest) = take(bytes)?;
                (Self::Reth(Reth::parse(reth)), rest)
            }
            Shape::RethImm => {
                let (reth, rest) = take(bytes)?;
                let (imm, rest) = take(rest)?;
                (Self::RethImm(Reth::parse(reth), u32::from_be_bytes(*imm)), rest)
            }
            Shape::Imm => {
                let (imm, rest) = take(bytes)?;
                (Self::Imm(u32::from_be_bytes(*imm)), rest)
            }
            Shape::Ieth => {
                let (rkey, rest) = take(bytes)?;
                (Self::Ieth(Rkey::new(u32::from_be_bytes(*rkey))), rest)
            }
            Shape::Aeth => {
                let (aeth, rest) = take(bytes)?;
                (Self::Aeth(Aeth::parse(aeth)), rest)
            }
            Shape::AtomicEth => {
                let (atomic, rest) = take(bytes)?;
                (Self::AtomicEth(AtomicEth::parse(atomic)), rest)
            }
            Shape::AtomicAck => {
                let (aeth, rest) = take(bytes)?;
                let (original, rest) = take(rest)?;
                (Self::AtomicAck(Aeth::parse(aeth), u64::from_be_bytes(*original)), rest)
            }
            Shape::Deth => {
                let (deth, rest) = take(bytes)?;
                (Self::Deth(Deth::parse(deth)), rest)
            }
            Shape::DethImm => {
                let (deth, rest) = take(bytes)?;
                let (imm, rest) = take(rest)?;
                (Self::DethImm(Deth::parse(deth), u32::from_be_bytes(*imm)), rest)
            }
            Shape::Flush => {
                let (feth, rest) = take(bytes)?;
                let (reth, rest) = take(rest)?;
                (Self::Flush(Feth::parse(feth), Reth::parse(reth)), rest)
            }
            Shape::Cnp => {
                let (_reserved, rest) = take::<CNP_RESERVED_LEN>(bytes)?;
                (Self::Cnp, rest)
            }
        })
    }

    /// Writes the headers to the start of `out` and returns the rest.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Ext::len`].
    pub fn emit<'b>(&self, out: &'b mut [u8]) -> &'b mut [u8] {
        match self {
            Self::None => out,
            Self::Reth(reth) => put(out, reth.emit()),
            Self::RethImm(reth, imm) => put(put(out, reth.emit()), imm.to_be_bytes()),
            Self::Imm(imm) => put(out, imm.to_be_bytes()),
            Self::Ieth(rkey) => put(out, rkey.get().to_be_bytes()),
            Self::Aeth(aeth) => put(out, aeth.emit()),
            Self::AtomicEth(atomic) => put(out, atomic.emit()),
            Self::AtomicAck(aeth, original) => put(put(out, aeth.emit()), original.to_be_bytes()),
            Self::Deth(deth) => put(out, deth.emit()),
            Self::DethImm(deth, imm) => put(put(out, deth.emit()), imm.to_be_bytes()),
            Self::Flush(feth, reth) => put(put(out, feth.emit()), reth.emit()),
            Self::Cnp => put(out, [0; CNP_RESERVED_LEN]),
        }
    }

    /// Bytes on the wire, 0 to 28.
    #[expect(clippy::len_without_is_empty, reason = "a wire length, not that of a collection")]
    pub const fn len(&self) -> usize {
        self.shape().len()
    }

    /// Whether these are the headers that follow `opcode`.
    pub fn matches(&self, opcode: Opcode) -> bool {
        self.shape() == opcode.shape()
    }

    /// The RETH, if there is one.
    pub const fn reth(&self) -> Option<Reth> {
        let (Self::Reth(reth) | Self::RethImm(reth, _) | Self::Flush(_, reth)) = self else {
            return None;
        };
        Some(*reth)
    }

    /// The AETH, if there is one.
    pub const fn aeth(&self) -> Option<Aeth> {
        let (Self::Aeth(aeth) | Self::AtomicAck(aeth, _)) = self else { return None };
        Some(*aeth)
    }

    /// The DETH, if there is one.
    pub const fn deth(&self) -> Option<Deth> {
        let (Self::Deth(deth) | Self::DethImm(deth, _)) = self else { return None };
        Some(*deth)
    }

    /// The immediate data, if there is any.
    pub const fn imm(&self) -> Option<u32> {
        let (Self::Imm(imm) | Self::RethImm(_, imm) | Self::DethImm(_, imm)) = self else {
            return None;
        };
        Some(*imm)
    }

    const fn shape(&self) -> Shape {
        match self {
            Self::None => Shape::None,
            Self::Reth(_) => Shape::Reth,
            Self::RethImm(..) => Shape::RethImm,
            Self::Imm(_) => Shape::Imm,
            Self::Ieth(_) => Shape::Ieth,
            Self::Aeth(_) => Shape::Aeth,
            Self::AtomicEth(_) => Shape::AtomicEth,
            Self::AtomicAck(..) => Shape::AtomicAck,
            Self::Deth(_) => Shape::Deth,
            Self::DethImm(..) => Shape::DethImm,
            Self::Flush(..) => Shape::Flush,
            Self::Cnp => Shape::Cnp,
        }
    }
}

impl Shape {
    pub(super) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Imm | Self::Ieth | Self::Aeth => 4,
            Self::Deth => Deth::LEN,
            Self::AtomicAck | Self::DethImm => 12,
            Self::Reth => Reth::LEN,
            Self::RethImm | Self::Flush => Reth::LEN + 4,
            Self::AtomicEth => AtomicEth::LEN,
            Self::Cnp => CNP_RESERVED_LEN,
        }
    }
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    pub(super) fn parse(header: &[u8; Self::LEN]) -> Self {
        let [v0, v1, v2, v3, v4, v5, v6, v7, k0, k1, k2, k3, l0, l1, l2, l3] = *header;
        Self {
            va: u64::from_be_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
            rkey: Rkey::new(u32::from_be_bytes([k0, k1, k2, k3])),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    pub(super) fn emit(&self) -> [u8; Self::LEN] {
        let [v0, v1, v2, v3, v4, v5, v6, v7] = self.va.to_be_bytes();
        let [k0, k1, k2, k3] = self.rkey.get().to_be_bytes();
        let [l0, l1, l2, l3] = self.len.to_be_bytes();
        [v0, v1, v2, v3, v4, v5, v6, v7, k0, k1, k2, k3, l0, l1, l2, l3]
    }
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    fn parse(header: &[u8; Self::LEN]) -> Self {
        let [
            v0,
            v1,
            v2,
            v3,
            v4,
            v5,
            v6,
            v7, // virtual address
            k0,
            k1,
            k2,
            k3, // R_Key
            s0,
            s1,
            s2,
            s3,
            s4,
            s5,
            s6,
            s7, // swap or add
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7, // compare
        ] = *header;
        Self {
            va: u64::from_be_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
            rkey: Rkey::new(u32::from_be_bytes([k0, k1, k2, k3])),
            swap_or_add: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            compare: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        }
    }

    fn emit(&self) -> [u8; Self::LEN] {
        let mut header = [0; Self::LEN];
        let rest = put(&mut header, self.va.to_be_bytes());
        let rest = put(rest, self.rkey.get().to_be_bytes());
        let rest = put(rest, self.swap_or_add.to_be_bytes());
        put(rest, self.compare.to_be_bytes());
        header
    }
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    fn parse(header: &[u8; Self::LEN]) -> Self {
        let [k0, k1, k2, k3, _reserved, q0, q1, q2] = *header;
        Self {
            qkey: u32::from_be_bytes([k0, k1, k2, k3]),
            src_qpn: Qpn::new(u32::from_be_bytes([0, q0, q1, q2])),
        }
    }

    fn emit(&self) -> [u8; Self::LEN] {
        let [k0, k1, k2, k3] = self.qkey.to_be_bytes();
        let [_, q0, q1, q2] = self.src_qpn.get().to_be_bytes();
        [k0, k1, k2, k3, 0, q0, q1, q2]
    }
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    fn parse(header: &[u8; Self::LEN]) -> Self {
        let [.., flags] = *header;
        Self { placement: flags & 0x0f, selectivity: (flags >> 4) & 0x03 }
    }

    fn emit(&self) -> [u8; Self::LEN] {
        [0, 0, 0, (self.selectivity & 0x03) << 4 | (self.placement & 0x0f)]
    }
}

/// Reserved bytes that stand between the BTH and the ICRC of a CNP.
const CNP_RESERVED_LEN: usize = 16;

fn take<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), DropReason> {
    bytes.split_first_chunk().ok_or(DropReason::Truncated)
}

/// Writes `bytes` to the start of `out` and returns the rest. The caller has made the room.
pub(super) fn put<const N: usize>(out: &mut [u8], bytes: [u8; N]) -> &mut [u8] {
    let (head, rest) = out.split_first_chunk_mut().expect("the caller checked the room");
    *head = bytes;
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const RETH: Reth =
        Reth { va: 0x0102_0304_0506_0708, rkey: Rkey::new(0x090a_0b0c), len: 0x0d0e_0f10 };
    const RETH_BYTES: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    const DETH: Deth = Deth { qkey: 0x8001_0000, src_qpn: Qpn::new(0x12_3456) };
    const DETH_BYTES: [u8; 8] = [0x80, 1, 0, 0, 0, 0x12, 0x34, 0x56];

    /// Each header beside its bytes, as the figures of IBTA ch. 9, annexes A17 and A19 place them.
    fn layouts() -> [(Opcode, Ext, Vec<u8>); 12] {
        let aeth = Aeth::parse(&[0x1f, 0x11, 0x22, 0x33]);
        let ack = [0x1f, 0x11, 0x22, 0x33];
        let imm = [0xa1, 0xa2, 0xa3, 0xa4];
        let value = u32::from_be_bytes(imm);
        let atomic = AtomicEth {
            va: RETH.va,
            rkey: RETH.rkey,
            swap_or_add: 0x1112_1314_1516_1718,
            compare: 0x191a_1b1c_1d1e_1f20,
        };
        let atomic_bytes: Vec<u8> = (1..=12).chain(0x11..=0x20).collect();
        let feth = Feth { placement: 0x3, selectivity: 0x2 };
        [
            (Opcode::SendOnly, Ext::None, [].into()),
            (Opcode::WriteFirst, Ext::Reth(RETH), RETH_BYTES.into()),
            (Opcode::WriteOnlyImm, Ext::RethImm(RETH, value), [&RETH_BYTES[..], &imm].concat()),
            (Opcode::SendLastImm, Ext::Imm(value), imm.into()),
            (Opcode::SendOnlyInv, Ext::Ieth(Rkey::new(value)), imm.into()),
            (Opcode::Acknowledge, Ext::Aeth(aeth), ack.into()),
            (Opcode::CompareSwap, Ext::AtomicEth(atomic), atomic_bytes),
            (
                Opcode::AtomicAcknowledge,
                Ext::AtomicAck(aeth, RETH.va),
                [&ack[..], &RETH_BYTES[..8]].concat(),
            ),
            (Opcode::UdSendOnly, Ext::Deth(DETH), DETH_BYTES.into()),
            (Opcode::UdSendOnlyImm, Ext::DethImm(DETH, value), [&DETH_BYTES[..], &imm].concat()),
            (Opcode::Flush, Ext::Flush(feth, RETH), [&[0, 0, 0, 0x23], &RETH_BYTES[..]].concat()),
            (Opcode::Cnp, Ext::Cnp, [0; 16].into()),
        ]
    }

    #[test]
    fn every_header_has_its_layout() {
        for (opcode, ext, bytes) in layouts() {
            assert_eq!(ext.len(), bytes.len(), "{ext:?}");
            let mut out = [0xee; 40];
            assert_eq!(ext.emit(&mut out).len(), 40 - bytes.len());
            assert_eq!(out[..bytes.len()], bytes, "{ext:?}");
            assert!(out[bytes.len()..].iter().all(|byte| *byte == 0xee), "{ext:?}");
            // The bytes behind the headers stay as they are.
            let followed = [&bytes[..], b"payload"].concat();
            assert_eq!(Ext::parse(opcode, &followed), Ok((ext, &b"payload"[..])));
            for len in 0..bytes.len() {
                let parsed = Ext::parse(opcode, &bytes[..len]);
                assert_eq!(parsed, Err(DropReason::Truncated), "{ext:?} of {len} bytes");
            }
        }
    }

    #[test]
    fn headers_follow_their_opcodes_only() {
        let layouts = layouts();
        for (at, (opcode, ..)) in layouts.iter().enumerate() {
            for (other, (_, ext, _)) in layouts.iter().enumerate() {
                assert_eq!(ext.matches(*opcode), at == other, "{ext:?} after {opcode:?}");
            }
        }
    }

    /// Reserved bits are zero when sent and ignored when received.
    #[test]
    fn reserved_bits_are_ignored() {
        let mut flush = [0xff; 20];
        flush[4..].copy_from_slice(&RETH_BYTES);
        let feth = Feth { placement: 0xf, selectivity: 3 };
        assert_eq!(Ext::parse(Opcode::Flush, &flush), Ok((Ext::Flush(feth, RETH), &[][..])));
        let mut deth = DETH_BYTES;
        deth[4] = 0xff;
        assert_eq!(Ext::parse(Opcode::UdSendOnly, &deth), Ok((Ext::Deth(DETH), &[][..])));
        assert_eq!(Ext::parse(Opcode::Cnp, &[0xff; 16]), Ok((Ext::Cnp, &[][..])));
    }

    #[test]
    fn a_part_is_found_in_whatever_carries_it() {
        for (_, ext, bytes) in layouts() {
            let (reth, deth) = (ext.reth().is_some(), ext.deth().is_some());
            assert_eq!(reth, matches!(bytes.len(), 16 | 20) && ext != Ext::Cnp, "{ext:?}");
            assert_eq!(deth, matches!(ext, Ext::Deth(_) | Ext::DethImm(..)));
            let answers = matches!(ext, Ext::Aeth(_) | Ext::AtomicAck(..));
            assert_eq!(ext.aeth().is_some(), answers, "{ext:?}");
            let carries = bytes.ends_with(&[0xa1, 0xa2, 0xa3, 0xa4]);
            let imm = (carries && !matches!(ext, Ext::Ieth(_))).then_some(0xa1a2_a3a4);
            assert_eq!(ext.imm(), imm, "{ext:?}");
        }
    }
}
