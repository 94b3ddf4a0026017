//! What client and server tell each other, each in one SEND of 64 bytes.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use ndk_consumer::Remote;

use super::Mismatches;
use super::plan::Limit;

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

/// What the server must know before a run, of one queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) operation: Operation,
    /// Ping and pong, or one READ after the other.
    pub(crate) latency: bool,
    /// The server sends, too.
    pub(crate) bidirectional: bool,
    pub(crate) verify: bool,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages that an end holds at once.
    pub(crate) slots: u32,
    /// Messages that an end posts at once.
    pub(crate) depth: u16,
    pub(crate) seed: u64,
    /// The queue pairs of one run have this in common.
    pub(crate) run: u32,
    pub(crate) queue_pairs: u16,
    /// Messages of each end, or 0 where the client says when it is over.
    pub(crate) messages: u64,
    pub(crate) warmup: Option<Limit>,
    /// Bits per second of each end, or 0.
    pub(crate) rate: u64,
    /// Requests of a list, of which all but the last one are deferred.
    pub(crate) list: u16,
    /// Of so many requests one completes aloud.
    pub(crate) silent: u16,
}

impl Parameters {
    /// True if slots are handed back: always for SEND, whose receives they are. A READ whose latency counts finds
    /// the same messages again and again, so that nothing goes on beside it.
    pub(crate) fn has_credits(&self) -> bool {
        let read_alone = self.latency && self.operation == Operation::Read;
        (self.verify || self.operation == Operation::Send) && !read_alone
    }

    /// Messages per credit: at most four credits are on their way.
    pub(crate) fn batch(&self) -> u64 {
        u64::from(self.slots).div_ceil(4).max(1)
    }

    /// Both ends answer each other, one message at a time.
    pub(crate) fn is_ping_pong(&self) -> bool {
        self.latency && self.operation != Operation::Read
    }

    /// Those of the server's own messages.
    pub(crate) fn of_server(&self) -> Self {
        Self { seed: !self.seed, ..*self }
    }

    /// Whether they are those of another queue pair of the same run, with a share of its own.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let Self { seed, messages, warmup, rate, .. } = *other;
        Self { seed, messages, warmup, rate, ..*self } == *other
    }

    /// Three numbers of 16 bits beside the kind of the message, and the words behind it.
    fn encode(&self) -> ([u16; 3], [u64; WORDS]) {
        let flags = [
            self.latency,
            self.bidirectional,
            self.verify,
            matches!(self.warmup, Some(Limit::Time(_))),
        ];
        let flags = (0..).zip(flags).fold(0, |bits, (place, flag)| bits | u16::from(flag) << place);
        let warmup = match self.warmup {
            None => 0,
            Some(Limit::Messages(messages)) => messages,
            Some(Limit::Time(time)) => time.as_nanos() as u64,
        };
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let counts = u32::from(self.depth) << 16 | u32::from(self.queue_pairs);
        let words = [
            pair(self.size, self.slots),
            pair(self.run, counts),
            self.seed,
            self.messages,
            warmup,
            self.rate,
        ];
        ([(self.operation as u16) << 8 | flags, self.list, self.silent], words)
    }

    fn decode(
        [mode, list, silent]: [u16; 3],
        [sizes, run, seed, messages, warmup, rate]: [u64; WORDS],
    ) -> Option<Self> {
        let [high, low] = [|word: u64| (word >> 32) as u32, |word: u64| word as u32];
        let mut known = [Operation::Send, Operation::Write, Operation::Read].into_iter();
        let flag = |place: u16| mode & 1 << place != 0;
        Some(Self {
            operation: known.find(|operation| *operation as u16 == mode >> 8)?,
            latency: flag(0),
            bidirectional: flag(1),
            verify: flag(2),
            size: high(sizes),
            slots: low(sizes),
            depth: (low(run) >> 16) as u16,
            seed,
            run: high(run),
            queue_pairs: low(run) as u16,
            messages,
            warmup: match (flag(3), warmup) {
                (false, 0) => None,
                (false, messages) => Some(Limit::Messages(messages)),
                (true, ns) => Some(Limit::Time(Duration::from_nanos(ns))),
            },
            rate,
            list,
            silent,
        })
    }
}

/// One message of control.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Control {
    /// Client: prepare for this.
    Start(Parameters),
    /// Server: that is more than I have, or another version of this protocol.
    Refused,
    /// Here is my ring: the server's, and the client's where the server sends, too.
    Ready(Remote),
    /// The next `count` messages are written, or read.
    Turn { count: u64 },
    /// The next `count` slots are free, or filled anew.
    Credit { count: u64 },
    /// That was all, and took so long; the user may have wanted it to end.
    Done { messages: u64, uncounted: u64, elapsed_ns: u64, interrupted: bool },
    /// So many messages counted, and what was wrong with them.
    Summary { messages: u64, mismatches: Mismatches },
}

/// Why bytes are no control message of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoControl {
    /// They are data, or nonsense.
    Other,
    /// The peer speaks this version of the protocol.
    Version(u8),
}

impl Control {
    /// Bytes of every message, in each version of the protocol.
    pub(crate) const LEN: usize = 8 * (2 + WORDS);

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let (kind, words) = match *self {
            Self::Start(parameters) => {
                let ([a, b, c], words) = parameters.encode();
                (pack([a, b, c, START as u16]), words)
            }
            Self::Refused => (REFUSED, padded([])),
            Self::Ready(ring) => (READY, padded([ring.address, u64::from(ring.token)])),
            Self::Turn { count } => (TURN, padded([count])),
            Self::Credit { count } => (CREDIT, padded([count])),
            Self::Done { messages, uncounted, elapsed_ns, interrupted } => {
                (DONE, padded([messages, uncounted, elapsed_ns, u64::from(interrupted)]))
            }
            Self::Summary { messages, mismatches: m } => {
                (SUMMARY, padded([messages, m.count, m.message, m.offset]))
            }
        };
        let mut bytes = [0; Self::LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip([MAGIC, kind].into_iter().chain(words)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NoControl> {
        if let Some((magic, _)) = bytes.split_first_chunk::<8>()
            && let [name @ .., version] = *magic
            && name == NAME
            && version != VERSION
            && bytes.len() == Self::LEN
        {
            return Err(NoControl::Version(version));
        }
        Self::decode_known(bytes).ok_or(NoControl::Other)
    }

    fn decode_known(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let mut words = [0; Self::LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        let [MAGIC, kind, words @ ..] = words else { return None };
        let [a, b, c, d, ..] = words;
        let [x, y, z, low] = unpack(kind);
        if low == START as u16 {
            return Parameters::decode([x, y, z], words).map(Self::Start);
        }
        Some(match kind {
            REFUSED => Self::Refused,
            READY => Self::Ready(Remote { address: a, token: u32::try_from(b).ok()? }),
            TURN => Self::Turn { count: a },
            CREDIT => Self::Credit { count: a },
            DONE => Self::Done { messages: a, uncounted: b, elapsed_ns: c, interrupted: d != 0 },
            SUMMARY => {
                let mismatches = Mismatches { count: b, message: c, offset: d };
                Self::Summary { messages: a, mismatches }
            }
            _ => return None,
        })
    }
}

pub(super) fn pack(numbers: [u16; 4]) -> u64 {
    numbers.into_iter().fold(0, |word, number| word << 16 | u64::from(number))
}

pub(super) fn unpack(word: u64) -> [u16; 4] {
    [48, 32, 16, 0].map(|shift| (word >> shift) as u16)
}

fn padded<const N: usize>(words: [u64; N]) -> [u64; WORDS] {
    let mut all = [0; WORDS];
    all[..N].copy_from_slice(&words);
    all
}

/// Tells control from data: a name, and the version of this protocol.
const NAME: [u8; 7] = *b"ndkperf";
pub(crate) const VERSION: u8 = 3;
pub(super) const MAGIC: u64 = {
    let [a, b, c, d, e, f, g] = NAME;
    u64::from_be_bytes([a, b, c, d, e, f, g, VERSION])
};
/// Words of a message behind its kind.
const WORDS: usize = 6;
const START: u64 = 1;
const READY: u64 = 2;
const TURN: u64 = 3;
const CREDIT: u64 = 4;
const DONE: u64 = 5;
const SUMMARY: u64 = 6;
const REFUSED: u64 = 7;

#[cfg(test)]
impl Parameters {
    /// Those of a run as it is without any flag.
    pub(crate) fn example(operation: Operation, size: u32, slots: u32) -> Self {
        Self {
            operation,
            latency: false,
            bidirectional: false,
            verify: true,
            size,
            slots,
            depth: 1,
            seed: 0,
            run: 0,
            queue_pairs: 1,
            messages: 0,
            warmup: None,
            rate: 0,
            list: 1,
            silent: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_round_trip() {
        let parameters = Parameters {
            bidirectional: true,
            seed: u64::MAX,
            run: 1 << 31,
            queue_pairs: 7,
            messages: 1 << 40,
            rate: 100_000_000_000,
            list: 4,
            silent: 8,
            ..Parameters::example(Operation::Read, 65536, 64)
        };
        let warmed = |limit| Parameters { warmup: Some(limit), latency: true, ..parameters };
        let mismatches = Mismatches { count: 1, message: 2, offset: 3 };
        for control in [
            Control::Start(parameters),
            Control::Start(warmed(Limit::Messages(9))),
            Control::Start(warmed(Limit::Time(Duration::from_millis(9)))),
            Control::Refused,
            Control::Ready(Remote { address: 1 << 63, token: u32::MAX }),
            Control::Turn { count: 16 },
            Control::Credit { count: 17 },
            Control::Done { messages: 18, uncounted: 2, elapsed_ns: 1 << 50, interrupted: true },
            Control::Summary { messages: 19, mismatches },
        ] {
            assert_eq!(Control::decode(&control.encode()), Ok(control));
        }
    }

    #[test]
    fn queue_pairs_of_a_run_differ_in_their_shares_alone() {
        let first = Parameters::example(Operation::Send, 64, 8);
        let second = Parameters { seed: 1 << 32, messages: 9, rate: 7, ..first };
        assert!(first.is_beside(&second) && first.is_beside(&first));
        for other in [
            Parameters { size: 65, ..second },
            Parameters { depth: 2, ..second },
            Parameters { run: 1, ..second },
            Parameters { operation: Operation::Read, ..second },
        ] {
            assert!(!first.is_beside(&other), "{other:?}");
        }
    }

    #[test]
    fn nonsense_is_no_control_message() {
        let none = Err(NoControl::Other);
        assert_eq!(Control::decode(&[]), none);
        assert_eq!(Control::decode(&[0; Control::LEN]), none);
        let good = Control::Turn { count: 1 }.encode();
        assert_eq!(Control::decode(&good[..63]), none);
        let mut bad = good;
        bad[15] = 99;
        assert_eq!(Control::decode(&bad), none, "unknown kind");
        let mut bad = Control::Ready(Remote { address: 0, token: 0 }).encode();
        bad[24] = 1;
        assert_eq!(Control::decode(&bad), none, "a token of more than 32 bits");
    }

    /// Goal: another version is told as such, whatever it means to say.
    #[test]
    fn another_version_is_known_by_its_number() {
        let mut bytes = Control::Turn { count: 1 }.encode();
        for version in [2, 4] {
            bytes[7] = version;
            assert_eq!(Control::decode(&bytes), Err(NoControl::Version(version)));
        }
    }

    #[test]
    fn at_most_four_credits_are_on_their_way() {
        for slots in 1..100 {
            let parameters = Parameters::example(Operation::Send, 1, slots);
            assert!(u64::from(slots).div_ceil(parameters.batch()) <= 4);
        }
    }
}
