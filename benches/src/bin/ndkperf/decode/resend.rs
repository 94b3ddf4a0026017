//! The causes of packets that are sent again.

use std::collections::VecDeque;

/// The cause of a packet that is sent again.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Cause {
    NakSequence,
    RnrNak,
    GapReport,
    ImpliedNak,
    ProbeAnswer,
    /// After silence.
    Timeout,
    Unknown,
}

impl Cause {
    pub(super) const ALL: [Self; 7] = [
        Self::NakSequence,
        Self::RnrNak,
        Self::GapReport,
        Self::ImpliedNak,
        Self::ProbeAnswer,
        Self::Timeout,
        Self::Unknown,
    ];

    /// The name in a document.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NakSequence => "nak_sequence",
            Self::RnrNak => "rnr_nak",
            Self::GapReport => "gap_report",
            Self::ImpliedNak => "implied_nak",
            Self::ProbeAnswer => "probe_answer",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }

    /// The words behind a count.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::NakSequence => "by NAK sequence",
            Self::RnrNak => "by RNR NAK",
            Self::GapReport => "by gap report",
            Self::ImpliedNak => "by implied NAK",
            Self::ProbeAnswer => "by the answer to a probe",
            Self::Timeout => "by timeout",
            Self::Unknown => "for no reason seen",
        }
    }
}

/// Something that makes a requester send again.
#[derive(Clone, Copy, Debug)]
struct Signal {
    cause: Cause,
    /// The positions that it may make it send again.
    from: i64,
    until: i64,
    at_ns: u64,
    is_used: bool,
}

/// The signals of a direction, and the packets that they made it send again.
#[derive(Debug, Default)]
pub(super) struct Causes {
    recent: VecDeque<Signal>,
    counts: [u64; Cause::ALL.len()],
    /// The silences before a timeout.
    pub(super) silence_ns: Option<(u64, u64)>,
}

impl Causes {
    pub(super) fn counts(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().zip(self.counts)
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All from `from` to `until` may have to be sent again.
    pub(super) fn signal(&mut self, cause: Cause, from: i64, until: i64, at_ns: u64) {
        // Behind a packet that was not ready to be received the others are out of sequence, by which nothing is said.
        let waits = |signal: &Signal| {
            signal.cause == Cause::RnrNak && signal.from == from && !signal.is_used
        };
        if cause == Cause::NakSequence && self.recent.back().is_some_and(waits) {
            return;
        }
        if self.recent.len() >= SIGNALS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Signal { cause, from, until, at_ns, is_used: false });
    }

    /// The cause for which a position is sent again that was last sent at `last_ns`; after `quiet_ns` nothing was
    /// acknowledged. It is counted by [`Self::count`].
    pub(super) fn find(
        &mut self,
        at: i64,
        last_ns: u64,
        quiet_ns: u64,
        until: i64,
        now_ns: u64,
    ) -> Cause {
        for signal in self.recent.iter_mut().rev() {
            if !(signal.from..signal.until).contains(&at) || last_ns > signal.at_ns {
                continue;
            }
            let waits = matches!(signal.cause, Cause::RnrNak | Cause::Timeout);
            // One that nobody heeded for so long was lost behind the place of the capture.
            if !signal.is_used && !waits && now_ns.saturating_sub(signal.at_ns) >= UNHEEDED_NS {
                break;
            }
            signal.is_used = true;
            return signal.cause;
        }
        let silence_ns = now_ns.saturating_sub(last_ns.max(quiet_ns));
        if silence_ns < SILENCE_NS {
            return Cause::Unknown;
        }
        let (least, most) = self.silence_ns.unwrap_or((silence_ns, silence_ns));
        self.silence_ns = Some((least.min(silence_ns), most.max(silence_ns)));
        self.signal(Cause::Timeout, at, until.max(at + 1), now_ns);
        Cause::Timeout
    }

    pub(super) fn count(&mut self, cause: Cause) {
        self.counts[cause as usize] += 1;
    }
}

/// Signals that are remembered.
const SIGNALS_MAX: usize = 8;
/// No requester waits for less before it gives up on an answer.
const SILENCE_NS: u64 = 200_000;
/// No requester takes longer to heed a NAK.
const UNHEEDED_NS: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_explains_each_packet_once() {
        let mut causes = Causes::default();
        causes.signal(Cause::NakSequence, 3, 6, 1000);
        assert_eq!(causes.find(3, 900, 0, 6, 1100), Cause::NakSequence);
        assert_eq!(causes.find(5, 900, 0, 6, 1200), Cause::NakSequence);
        assert_eq!(causes.find(2, 900, 0, 6, 1200), Cause::Unknown, "before it");
        assert_eq!(causes.find(3, 1100, 0, 6, 1300), Cause::Unknown, "sent since");
        assert_eq!(causes.find(3, 1100, 1100, 6, 501_100), Cause::Timeout);
        assert_eq!(causes.silence_ns, Some((500_000, 500_000)));
        assert_eq!(causes.find(4, 1150, 1150, 6, 501_200), Cause::Timeout, "the packets behind it");
    }

    #[test]
    fn a_receiver_that_is_not_ready_outweighs_the_sequence_behind_it() {
        let mut causes = Causes::default();
        causes.signal(Cause::RnrNak, 0, 3, 1000);
        causes.signal(Cause::NakSequence, 0, 3, 1010);
        assert_eq!(causes.find(0, 900, 0, 3, 60_000_000), Cause::RnrNak);
    }

    #[test]
    fn a_nak_that_is_not_heeded_is_no_cause() {
        let mut causes = Causes::default();
        causes.signal(Cause::ImpliedNak, 0, 3, 1000);
        assert_eq!(causes.find(0, 900, 1000, 3, 17_000_000), Cause::Timeout);
    }
}
