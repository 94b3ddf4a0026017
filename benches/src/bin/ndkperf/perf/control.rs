//! What client and server tell each other, each in one SEND of 64 bytes.

use std::fmt;

use clap::ValueEnum;
use ndk_consumer::Remote;

use super::Mismatches;

/// What a run measures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Operation {
    /// SEND into posted receives
    Send,
    /// RDMA WRITE into the server's memory
    Write,
    /// RDMA READ of the server's memory
    Read,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        })
    }
}

/// What the server must know before a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) operation: Operation,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages that the server holds at once.
    pub(crate) slots: u32,
    pub(crate) seed: u64,
    pub(crate) verify: bool,
}

impl Parameters {
    /// True if slots are handed back: always for SEND, whose receives they are.
    pub(crate) fn has_credits(&self) -> bool {
        self.verify || self.operation == Operation::Send
    }

    /// Messages per credit: at most four credits are on their way.
    pub(crate) fn batch(&self) -> u64 {
        u64::from(self.slots).div_ceil(4).max(1)
    }
}

/// One message of control.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Control {
    /// Client: prepare for this.
    Start(Parameters),
    /// Server: here is the ring.
    Ready(Remote),
    /// Client: the next `count` messages are written, or read.
    Turn { count: u64 },
    /// Server: the next `count` slots are free, or filled anew.
    Credit { count: u64 },
    /// Client: that was all.
    Done { messages: u64 },
    /// Server: so many messages counted, and what was wrong with them.
    Summary { messages: u64, mismatches: Mismatches },
}

impl Control {
    /// Bytes of every message.
    pub(crate) const LEN: usize = 64;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let words = match *self {
            Self::Start(p) => [
                START,
                p.operation as u64,
                u64::from(p.size),
                u64::from(p.slots),
                p.seed,
                u64::from(p.verify),
                0,
            ],
            Self::Ready(ring) => [READY, ring.address, u64::from(ring.token), 0, 0, 0, 0],
            Self::Turn { count } => [TURN, count, 0, 0, 0, 0, 0],
            Self::Credit { count } => [CREDIT, count, 0, 0, 0, 0, 0],
            Self::Done { messages } => [DONE, messages, 0, 0, 0, 0, 0],
            Self::Summary { messages, mismatches: m } => {
                [SUMMARY, messages, m.count, m.message, m.offset, 0, 0]
            }
        };
        let mut bytes = [0; Self::LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip([MAGIC].into_iter().chain(words)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// `None` if `bytes` are no control message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let mut words = [0; Self::LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        let [MAGIC, kind, a, b, c, d, e, _] = words else { return None };
        Some(match kind {
            START => Self::Start(Parameters {
                operation: [Operation::Send, Operation::Write, Operation::Read]
                    .into_iter()
                    .find(|operation| *operation as u64 == a)?,
                size: u32::try_from(b).ok()?,
                slots: u32::try_from(c).ok()?,
                seed: d,
                verify: e != 0,
            }),
            READY => Self::Ready(Remote { address: a, token: u32::try_from(b).ok()? }),
            TURN => Self::Turn { count: a },
            CREDIT => Self::Credit { count: a },
            DONE => Self::Done { messages: a },
            SUMMARY => {
                let mismatches = Mismatches { count: b, message: c, offset: d };
                Self::Summary { messages: a, mismatches }
            }
            _ => return None,
        })
    }
}

/// Tells control from data: "ndkperf" and the version of this protocol.
const MAGIC: u64 = u64::from_be_bytes(*b"ndkperf\x01");
const START: u64 = 1;
const READY: u64 = 2;
const TURN: u64 = 3;
const CREDIT: u64 = 4;
const DONE: u64 = 5;
const SUMMARY: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_round_trip() {
        let operation = Operation::Read;
        let parameters =
            Parameters { operation, size: 65536, slots: 64, seed: u64::MAX, verify: true };
        let mismatches = Mismatches { count: 1, message: 2, offset: 3 };
        for control in [
            Control::Start(parameters),
            Control::Ready(Remote { address: 1 << 63, token: u32::MAX }),
            Control::Turn { count: 16 },
            Control::Credit { count: 17 },
            Control::Done { messages: 18 },
            Control::Summary { messages: 19, mismatches },
        ] {
            assert_eq!(Control::decode(&control.encode()), Some(control));
        }
    }

    #[test]
    fn nonsense_is_no_control_message() {
        assert_eq!(Control::decode(&[]), None);
        assert_eq!(Control::decode(&[0; 64]), None);
        let good = Control::Turn { count: 1 }.encode();
        assert_eq!(Control::decode(&good[..63]), None);
        let mut bad = good;
        bad[15] = 99;
        assert_eq!(Control::decode(&bad), None, "unknown kind");
        let mut bad = Control::Ready(Remote { address: 0, token: 0 }).encode();
        bad[24] = 1;
        assert_eq!(Control::decode(&bad), None, "a token of more than 32 bits");
    }

    #[test]
    fn at_most_four_credits_are_on_their_way() {
        for slots in 1..100 {
            let operation = Operation::Send;
            let parameters = Parameters { operation, size: 1, slots, seed: 0, verify: true };
            assert!(u64::from(slots).div_ceil(parameters.batch()) <= 4);
        }
    }
}
