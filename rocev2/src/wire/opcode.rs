//! BTH opcodes: transport, operation and place in a message (IBTA ch. 9, OpCode), and two of the manufacturer's range.

use super::DropReason;
use super::ext::Shape;

/// The opcodes that this crate knows: RC, the two UD sends, the CNP, [the gap report](super::gap_report) and [the ACK
/// list](super::ack_list).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum Opcode {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInv = 0x16,
    SendOnlyInv = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
    UdSendOnly = 0x64,
    UdSendOnlyImm = 0x65,
    Cnp = 0x81,
    GapReport = 0xc0,
    AckList = 0xc1,
}

/// The operation of a packet, apart from its place in the message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum Operation {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
    Cnp,
    GapReport,
}

/// The place of a packet in its message. An operation of always one packet has [`Place::Only`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl Place {
    /// The place of a packet that begins its message, ends it, both or neither.
    #[inline]
    pub const fn of(first: bool, last: bool) -> Self {
        match (first, last) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    /// Whether the packet begins its message.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether the packet ends its message.
    pub const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

impl Opcode {
    /// The RC SEND at `place`, without immediate data or invalidation.
    pub const fn send(place: Place) -> Self {
        match place {
            Place::First => Self::SendFirst,
            Place::Middle => Self::SendMiddle,
            Place::Last => Self::SendLast,
            Place::Only => Self::SendOnly,
        }
    }

    /// The RC RDMA WRITE at `place`, without immediate data.
    pub const fn write(place: Place) -> Self {
        match place {
            Place::First => Self::WriteFirst,
            Place::Middle => Self::WriteMiddle,
            Place::Last => Self::WriteLast,
            Place::Only => Self::WriteOnly,
        }
    }

    /// The RDMA READ response at `place`.
    pub const fn read_response(place: Place) -> Self {
        match place {
            Place::First => Self::ReadResponseFirst,
            Place::Middle => Self::ReadResponseMiddle,
            Place::Last => Self::ReadResponseLast,
            Place::Only => Self::ReadResponseOnly,
        }
    }

    /// The same packet of a message with immediate data: only the message's last packet differs.
    #[must_use]
    pub const fn with_imm(self) -> Self {
        match self {
            Self::SendLast => Self::SendLastImm,
            Self::SendOnly => Self::SendOnlyImm,
            Self::WriteLast => Self::WriteLastImm,
            Self::WriteOnly => Self::WriteOnlyImm,
            Self::UdSendOnly => Self::UdSendOnlyImm,
            other => other,
        }
    }

    /// The same packet of a SEND with Invalidate: only the message's last packet differs.
    #[must_use]
    pub const fn with_inv(self) -> Self {
        match self {
            Self::SendLast => Self::SendLastInv,
            Self::SendOnly => Self::SendOnlyInv,
            other => other,
        }
    }

    /// The operation.
    pub const fn operation(self) -> Operation {
        match self {
            Self::SendFirst | Self::SendMiddle | Self::SendLast | Self::SendOnly => Operation::Send,
            Self::SendLastImm | Self::SendOnlyImm => Operation::Send,
            Self::SendLastInv | Self::SendOnlyInv => Operation::Send,
            Self::UdSendOnly | Self::UdSendOnlyImm => Operation::Send,
            Self::WriteFirst | Self::WriteMiddle | Self::WriteLast => Operation::Write,
            Self::WriteOnly | Self::WriteLastImm | Self::WriteOnlyImm => Operation::Write,
            Self::ReadRequest => Operation::ReadRequest,
            Self::ReadResponseFirst | Self::ReadResponseMiddle => Operation::ReadResponse,
            Self::ReadResponseLast | Self::ReadResponseOnly => Operation::ReadResponse,
            Self::Acknowledge => Operation::Acknowledge,
            Self::AtomicAcknowledge => Operation::AtomicAcknowledge,
            Self::CompareSwap => Operation::CompareSwap,
            Self::FetchAdd => Operation::FetchAdd,
            Self::Flush => Operation::Flush,
            Self::AtomicWrite => Operation::AtomicWrite,
            Self::Cnp => Operation::Cnp,
            Self::GapReport => Operation::GapReport,
            Self::AckList => Operation::Acknowledge,
        }
    }

    /// The place in the message.
    pub const fn place(self) -> Place {
        match self {
            Self::SendFirst | Self::WriteFirst | Self::ReadResponseFirst => Place::First,
            Self::SendMiddle | Self::WriteMiddle | Self::ReadResponseMiddle => Place::Middle,
            Self::SendLast | Self::SendLastImm | Self::SendLastInv => Place::Last,
            Self::WriteLast | Self::WriteLastImm | Self::ReadResponseLast => Place::Last,
            Self::SendOnly | Self::SendOnlyImm | Self::SendOnlyInv => Place::Only,
            Self::WriteOnly | Self::WriteOnlyImm | Self::ReadResponseOnly => Place::Only,
            Self::ReadRequest | Self::CompareSwap | Self::FetchAdd => Place::Only,
            Self::Acknowledge | Self::AtomicAcknowledge | Self::AckList => Place::Only,
            Self::Flush | Self::AtomicWrite | Self::Cnp | Self::GapReport => Place::Only,
            Self::UdSendOnly | Self::UdSendOnlyImm => Place::Only,
        }
    }

    /// Whether the packet is for a queue pair of a Reliable Connection: its transport is that, or it is a CNP, a
    /// gap report or an ACK list.
    pub const fn is_connected(self) -> bool {
        (self as u8) >> 5 == 0 || matches!(self, Self::Cnp | Self::GapReport | Self::AckList)
    }

    /// Whether a responder executes the packet. UD sends count; a CNP does not.
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self, Self::Cnp)
    }

    /// Whether the packet is a response.
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse
                | Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::GapReport
        )
    }

    /// Whether the packet carries immediate data.
    pub const fn has_imm(self) -> bool {
        matches!(self.shape(), Shape::Imm | Shape::RethImm | Shape::DethImm)
    }

    /// Bytes of extended headers between the BTH and the payload.
    pub const fn ext_len(self) -> usize {
        self.shape().len()
    }

    /// The extended headers that follow the BTH.
    pub(super) const fn shape(self) -> Shape {
        match self {
            Self::SendFirst | Self::SendMiddle | Self::SendLast | Self::SendOnly => Shape::None,
            Self::WriteMiddle | Self::WriteLast | Self::ReadResponseMiddle => Shape::None,
            Self::GapReport => Shape::None,
            Self::SendLastImm | Self::SendOnlyImm | Self::WriteLastImm => Shape::Imm,
            Self::SendLastInv | Self::SendOnlyInv => Shape::Ieth,
            Self::WriteFirst | Self::WriteOnly | Self::ReadRequest => Shape::Reth,
            Self::AtomicWrite => Shape::Reth,
            Self::WriteOnlyImm => Shape::RethImm,
            Self::ReadResponseFirst | Self::ReadResponseLast => Shape::Aeth,
            Self::ReadResponseOnly | Self::Acknowledge | Self::AckList => Shape::Aeth,
            Self::AtomicAcknowledge => Shape::AtomicAck,
            Self::CompareSwap | Self::FetchAdd => Shape::AtomicEth,
            Self::Flush => Shape::Flush,
            Self::UdSendOnly => Shape::Deth,
            Self::UdSendOnlyImm => Shape::DethImm,
            Self::Cnp => Shape::Cnp,
        }
    }
}

impl TryFrom<u8> for Opcode {
    type Error = DropReason;

    fn try_from(byte: u8) -> Result<Self, DropReason> {
        Ok(match byte {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast,
            0x03 => Self::SendLastImm,
            0x04 => Self::SendOnly,
            0x05 => Self::SendOnlyImm,
            0x06 => Self::WriteFirst,
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast,
            0x09 => Self::WriteLastImm,
            0x0a => Self::WriteOnly,
            0x0b => Self::WriteOnlyImm,
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadResponseFirst,
            0x0e => Self::ReadResponseMiddle,
            0x0f => Self::ReadResponseLast,
            0x10 => Self::ReadResponseOnly,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x16 => Self::SendLastInv,
            0x17 => Self::SendOnlyInv,
            0x1c => Self::Flush,
            0x1d => Self::AtomicWrite,
            0x64 => Self::UdSendOnly,
            0x65 => Self::UdSendOnlyImm,
            0x81 => Self::Cnp,
            0xc0 => Self::GapReport,
            0xc1 => Self::AckList,
            _ => return Err(DropReason::UnknownOpcode),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opcode, bytes of BTH and extended headers, after the table in IBTA ch. 9.
    const HEADER_LEN: [(u8, usize); 30] = [
        (0x00, 12),
        (0x01, 12),
        (0x02, 12),
        (0x03, 16),
        (0x04, 12),
        (0x05, 16),
        (0x06, 28),
        (0x07, 12),
        (0x08, 12),
        (0x09, 16),
        (0x0a, 28),
        (0x0b, 32),
        (0x0c, 28),
        (0x0d, 16),
        (0x0e, 12),
        (0x0f, 16),
        (0x10, 16),
        (0x11, 16),
        (0x12, 24),
        (0x13, 40),
        (0x14, 40),
        (0x16, 16),
        (0x17, 16),
        (0x1c, 32),
        (0x1d, 28),
        (0x64, 20),
        (0x65, 24),
        (0x81, 28),
        (0xc0, 12),
        (0xc1, 16),
    ];

    #[test]
    fn known_opcodes_and_no_others() {
        for byte in 0..=u8::MAX {
            let known = HEADER_LEN.iter().find(|(opcode, _)| *opcode == byte);
            match (Opcode::try_from(byte), known) {
                (Ok(opcode), Some((_, len))) => {
                    assert_eq!(opcode as u8, byte);
                    assert_eq!(12 + opcode.ext_len(), *len, "{opcode:?}");
                }
                (Err(reason), None) => assert_eq!(reason, DropReason::UnknownOpcode),
                (parsed, known) => panic!("{byte:#04x}: {parsed:?}, expected {known:?}"),
            }
        }
    }

    #[test]
    fn responses_are_0d_to_12_and_those_of_our_own() {
        for opcode in (0..=u8::MAX).filter_map(|byte| Opcode::try_from(byte).ok()) {
            assert_eq!(opcode.is_response(), matches!(opcode as u8, 0x0d..=0x12 | 0xc0 | 0xc1));
            assert_eq!(opcode.is_request(), !opcode.is_response() && opcode != Opcode::Cnp);
        }
    }

    #[test]
    fn built_opcodes_have_their_operation_and_place() {
        for place in [Place::First, Place::Middle, Place::Last, Place::Only] {
            let built = [
                (Opcode::send(place), Operation::Send),
                (Opcode::send(place).with_imm(), Operation::Send),
                (Opcode::send(place).with_inv(), Operation::Send),
                (Opcode::write(place), Operation::Write),
                (Opcode::write(place).with_imm(), Operation::Write),
                (Opcode::read_response(place), Operation::ReadResponse),
            ];
            for (opcode, operation) in built {
                assert_eq!((opcode.operation(), opcode.place()), (operation, place), "{opcode:?}");
            }
            assert_eq!(Opcode::send(place).with_imm().has_imm(), place.is_last());
            assert_eq!(Opcode::write(place).with_imm().has_imm(), place.is_last());
        }
    }
}
