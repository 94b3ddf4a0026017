//! The gap report: which packets a responder of ours misses, to a requester of ours.
//!
//! A sequence NAK names one missing packet, so that a standard requester repairs one gap per round trip. Two of ours, once
//! both have shown [their make](super::mad::Make), use a packet of the manufacturer's opcode range instead (IBTA ch. 9,
//! OpCode, 110xxxxx). Its PSN is that of the first missing packet, as in the NAK whose place it takes. Behind the BTH are
//! [`Gap`]s, from there on: so many packets are missing, and so many behind them have come. Nothing is said about what is
//! behind the last one. The solicited event bit says that the report answers a duplicate, which may be a probe.

/// Gaps of a report, at most: it fits the smallest path MTU.
pub const GAPS_MAX: usize = 64;

/// A gap, and the packets behind it that have come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Gap {
    /// PSNs that are missing.
    pub missing: u16,
    /// PSNs behind them that have come.
    pub came: u16,
}

impl Gap {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The gaps of a report with this payload. Bytes behind them are ignored.
    pub fn parse(payload: &[u8]) -> impl Iterator<Item = Self> + Clone {
        let (gaps, _) = payload.as_chunks();
        gaps.iter().take(GAPS_MAX).map(|[m0, m1, c0, c1]| Self {
            missing: u16::from_be_bytes([*m0, *m1]),
            came: u16::from_be_bytes([*c0, *c1]),
        })
    }

    /// PSNs that it takes, with those that have come.
    pub const fn covered(self) -> u32 {
        self.missing as u32 + self.came as u32
    }

    /// The gap as bytes.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let ([m0, m1], [c0, c1]) = (self.missing.to_be_bytes(), self.came.to_be_bytes());
        [m0, m1, c0, c1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn gaps_come_back_and_nothing_else_is_read() {
        let gaps = [Gap { missing: 1, came: 0x203 }, Gap { missing: 0xfffe, came: 0 }];
        let mut bytes: Vec<u8> = gaps.iter().flat_map(|gap| gap.emit()).collect();
        assert_eq!(bytes, [0, 1, 2, 3, 0xff, 0xfe, 0, 0]);
        for rest in 0..4 {
            assert_eq!(Gap::parse(&bytes).collect::<Vec<_>>(), gaps, "{rest}");
            bytes.push(9);
        }
        assert_eq!(Gap::parse(&[0; 4 * GAPS_MAX + 4]).count(), GAPS_MAX);
    }
}
