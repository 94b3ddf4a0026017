//! The ACK Extended Transport Header: credits, RNR NAK and NAK (IBTA ch. 9, AETH).

use crate::psn::Msn;
use core::time::Duration;

/// The verdict of a responder about the packet whose PSN the response carries.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Aeth {
    /// Acknowledged or refused.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed.
    pub msn: Msn,
}

/// The first byte of an AETH.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Syndrome {
    /// Received in order.
    Ack {
        /// The credit count code, 0 to 31; [`Syndrome::NO_CREDITS`] tells nothing about credits.
        credits: u8,
    },
    /// The responder has no receive posted: try again after the timer.
    RnrNak(RnrTimer),
    /// Refused.
    Nak(NakCode),
    /// A byte without a defined meaning, as received.
    Reserved(u8),
}

/// The reason for which a responder refuses a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum NakCode {
    PsnSequence = 0,
    InvalidRequest = 1,
    RemoteAccess = 2,
    RemoteOperational = 3,
    InvalidRd = 4,
}

/// The wait after an RNR NAK, as its 5-bit code.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RnrTimer(u8);

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads a header.
    pub fn parse(header: &[u8; Self::LEN]) -> Self {
        let [syndrome, m0, m1, m2] = *header;
        Self {
            syndrome: Syndrome::from_byte(syndrome),
            msn: Msn::new(u32::from_be_bytes([0, m0, m1, m2])),
        }
    }

    /// The header as bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let [_, m0, m1, m2] = self.msn.get().to_be_bytes();
        [self.syndrome.byte(), m0, m1, m2]
    }
}

impl Syndrome {
    /// The credit code of a responder that does not count credits.
    pub const NO_CREDITS: u8 = 0x1f;
    /// An acknowledgement without credits, the only one that is sent.
    pub const ACK: Self = Self::Ack { credits: Self::NO_CREDITS };

    /// Reads the byte: class in bits 7 to 5, value in bits 4 to 0.
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match (byte >> 5, value) {
            (0b000, credits) => Self::Ack { credits },
            (0b001, code) => Self::RnrNak(RnrTimer(code)),
            (0b011, 0) => Self::Nak(NakCode::PsnSequence),
            (0b011, 1) => Self::Nak(NakCode::InvalidRequest),
            (0b011, 2) => Self::Nak(NakCode::RemoteAccess),
            (0b011, 3) => Self::Nak(NakCode::RemoteOperational),
            (0b011, 4) => Self::Nak(NakCode::InvalidRd),
            _ => Self::Reserved(byte),
        }
    }

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak(timer) => 0x20 | timer.code(),
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

impl RnrTimer {
    /// The timer of the low 5 bits of `code`. Code 0 is the longest.
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time to wait.
    pub fn duration(self) -> Duration {
        let [longest, ..] = RNR_TIMER_10_US;
        let tens_us = RNR_TIMER_10_US.get(usize::from(self.0)).copied().unwrap_or(longest);
        Duration::from_micros(u64::from(tens_us) * 10)
    }
}

/// RNR timer values by code, in units of 10 microseconds.
const RNR_TIMER_10_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_survives() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn classes() {
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack { credits: Syndrome::NO_CREDITS });
        assert_eq!(Syndrome::from_byte(0x2c), Syndrome::RnrNak(RnrTimer::new(12)));
        assert_eq!(Syndrome::from_byte(0x60), Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(Syndrome::from_byte(0x64), Syndrome::Nak(NakCode::InvalidRd));
        for byte in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0xff] {
            assert_eq!(Syndrome::from_byte(byte), Syndrome::Reserved(byte));
        }
    }

    #[test]
    fn rnr_timers() {
        for (code, us) in [(0, 655_360), (1, 10), (12, 640), (25, 61_440), (31, 491_520)] {
            assert_eq!(RnrTimer::new(code).duration(), Duration::from_micros(us), "code {code}");
        }
    }
}
