//! The Base Transport Header (IBTA ch. 9, Base Transport Header).

use super::{DropReason, Opcode};
use crate::ids::Qpn;
use crate::psn::Psn;

/// The header of every packet. [`dissect`](super::dissect()) shows one of any opcode as `Bth<u8>`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Bth<O = Opcode> {
    /// The opcode.
    pub opcode: O,
    /// SE: the receiver's completion is a solicited event.
    pub solicited: bool,
    /// M: the path migration state. Hardware sends 1; no receiver here reads it.
    pub migrated: bool,
    /// Pad bytes between payload and ICRC, 0 to 3.
    pub pad_count: u8,
    /// The partition key; [`Bth::DEFAULT_PKEY`] on RoCE.
    pub pkey: u16,
    /// Forward congestion notification. RoCEv2 uses the IP header's ECN bits instead.
    pub fecn: bool,
    /// Backward congestion notification, set in a CNP.
    pub becn: bool,
    /// The queue pair that the packet is for.
    pub dest_qpn: Qpn,
    /// A: the packet requests an acknowledgement.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// The default partition, as a full member.
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// A header with the flags that most packets have: M set, all others clear.
    pub const fn new(opcode: Opcode, dest_qpn: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad_count: 0,
            pkey: Self::DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }

    /// Reads a header. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`DropReason::UnknownOpcode`] or [`DropReason::TransportVersion`].
    pub fn parse(header: &[u8; Self::LEN]) -> Result<Self, DropReason> {
        let [opcode, flags, ..] = *header;
        let opcode = Opcode::try_from(opcode)?;
        if flags & 0x0f != 0 {
            return Err(DropReason::TransportVersion);
        }
        Ok(Bth::read(opcode, header))
    }

    /// Whether the partition key is that of the default partition: full and limited members match, reserved keys do not.
    pub(crate) fn is_of_default_partition(&self) -> bool {
        self.pkey & 0x7fff == Self::DEFAULT_PKEY & 0x7fff
    }

    /// The header as bytes.
    #[inline(always)]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.pad_count & 0x03) << 4;
        let congestion = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        let words = [
            (self.opcode as u32) << 24 | u32::from(flags) << 16 | u32::from(self.pkey),
            u32::from(congestion) << 24 | self.dest_qpn.get(),
            u32::from(self.ack_req) << 31 | self.psn.get(),
        ];
        let mut header = [0; Self::LEN];
        for (bytes, word) in header.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
        header
    }
}

impl<O> Bth<O> {
    /// The fields of a header whose first byte stands for `opcode`.
    pub(super) fn read(opcode: O, header: &[u8; Bth::LEN]) -> Self {
        let [_, flags, p0, p1, congestion, q0, q1, q2, ack, s0, s1, s2] = *header;
        Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad_count: (flags >> 4) & 0x03,
            pkey: u16::from_be_bytes([p0, p1]),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            dest_qpn: Qpn::new(u32::from_be_bytes([0, q0, q1, q2])),
            ack_req: ack & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, s0, s1, s2])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CNP: [u8; 12] = [0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0];

    #[test]
    fn a_hardware_cnp() {
        let bth = Bth::parse(&CNP).unwrap();
        assert_eq!(bth.opcode, Opcode::Cnp);
        assert_eq!((bth.fecn, bth.becn), (false, true));
        assert_eq!(bth.dest_qpn, Qpn::new(0x118));
        assert_eq!(bth.emit(), CNP);
    }

    #[test]
    fn every_flag_survives() {
        for flags in 0..=u8::MAX {
            let mut header = CNP;
            header[1] = flags & 0xf0;
            header[4] = flags & 0xc0;
            header[8] = flags & 0x80;
            assert_eq!(Bth::parse(&header).unwrap().emit(), header);
        }
    }

    /// The opcode is judged before anything else, so that no length depends on an unknown one.
    #[test]
    fn unknown_opcode_before_version() {
        let mut header = CNP;
        header[1] = 0x01;
        assert_eq!(Bth::parse(&header), Err(DropReason::TransportVersion));
        header[0] = 0xff;
        assert_eq!(Bth::parse(&header), Err(DropReason::UnknownOpcode));
    }
}
