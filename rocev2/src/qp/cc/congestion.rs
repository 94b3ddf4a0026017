//! Congestion control of one QP: the notifications that it sends, and the signals that slow it down.
//!
//! A switch whose queue grows marks packets (IP ECN 11). The receiver of a marked packet notifies its
//! sender by a CNP (annex A17, Congestion Notification Packet), and the receiver of a CNP sends slower.
//! Where no CNP has come for a while, the path may not mark at all, and loss is the signal; the completer
//! reports none that it puts down to chance. Both directions of a QP share one [`Rate`]: requests and READ
//! responses. Acknowledgements and CNPs are not paced.

use super::rate::Rate;
use crate::env::{Duration, Instant};
use crate::ids::Qpn;
use crate::psn::Psn;
use crate::wire::is_marked;
use crate::wire::{Bth, Opcode};

/// A QP sends at most one CNP in this time, however many packets are marked (N of DCQCN).
pub(crate) const CNP_INTERVAL: Duration = Duration::from_micros(50);
/// For this long after a CNP marks report all congestion, and a loss has another cause.
const ECN_SPEAKS: Duration = Duration::from_millis(100);
/// A loss this long after a cut shows that the cut was too small, even if the packet was in the network at
/// that time: fast recovery is over by then.
const EPISODE_MAX: Duration = Duration::from_micros(275);

/// A loss takes this part off the rate that the QP returns to: one that may be chance, one that shows a queue that overflows,
/// and one of responses.
const LOSS_CUT: u64 = 4;
const OVERFLOW_CUT: u64 = 3;
const RESPONSE_CUT: u64 = 5;

/// The two low bits of a traffic class.
const ECN_MASK: u8 = 0b11;
const ECT_0: u8 = 0b10;
/// The traffic class of a CNP: DSCP 48, to which switches give priority, and ECN-capable.
const CNP_TRAFFIC_CLASS: u8 = 48 << 2 | ECT_0;

/// Rates of DCQCN, in bytes of packets per second.
#[derive(Clone, Copy, Debug)]
pub struct DcqcnConfig {
    /// The link's rate, until [`set_line_rate`](crate::Engine::set_line_rate) reports another. A QP
    /// starts unpaced, and after congestion at half of this.
    pub line_rate: u64,
    /// The smallest rate of a QP, however congested its path is.
    pub min_rate: u64,
}

impl Default for DcqcnConfig {
    /// 10 Gb/s and 10 Mb/s.
    fn default() -> Self {
        Self { line_rate: 1_250_000_000, min_rate: 1_250_000 }
    }
}

/// A loss, as the engines detect it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Loss {
    /// Of our requests the packet `at` was lost; the last one sent so far is before `end`.
    Request {
        /// The packet.
        at: Psn,
        /// One past the last one sent.
        end: Psn,
    },
    /// The same, and the pattern of the losses shows congestion.
    Overflow {
        /// The packet.
        at: Psn,
        /// One past the last one sent.
        end: Psn,
    },
    /// Of our READ responses the packet `at` was lost.
    Response {
        /// The packet.
        at: Psn,
        /// One past the last one owed.
        end: Psn,
        /// Bytes that have left behind it, where the peer may tell of losses late.
        behind: Option<u64>,
    },
    /// The same, but no other response was owed any more: a queue that overflowed may have drained since, so that the peer
    /// cannot tell it from chance. It counts while packets are paced.
    Unexplained {
        /// The packet.
        at: Psn,
        /// One past the last one owed.
        end: Psn,
    },
    /// The retransmission timer expired.
    Timeout,
}

/// Congestion control of one QP.
#[derive(Debug)]
pub(crate) struct Congestion {
    enabled: bool,
    rate: Rate,
    cnp_owed: bool,
    cnp_sent_at: Option<Instant>,
    cnp_came_at: Option<Instant>,
    /// The episodes of requests and of responses: packets before this PSN that were lost belong to the
    /// episode that began then.
    episodes: [Option<(Psn, Instant)>; 2],
}

impl Congestion {
    /// Congestion control without congestion so far; disabled for `None`.
    pub(crate) fn new(config: Option<DcqcnConfig>) -> Self {
        Self {
            enabled: config.is_some(),
            rate: Rate::new(config.unwrap_or_default()),
            cnp_owed: false,
            cnp_sent_at: None,
            cnp_came_at: None,
            episodes: [None; 2],
        }
    }

    /// The traffic class of the next packet, where the path's is `path`. Only its DSCP is the path's to
    /// choose.
    pub(crate) const fn traffic_class(&self, path: u8) -> u8 {
        if self.cnp_owed { CNP_TRAFFIC_CLASS } else { self.class_of_data(path) }
    }

    /// The traffic class of packets that are no CNP.
    pub(crate) const fn class_of_data(&self, path: u8) -> u8 {
        if self.enabled { path & !ECN_MASK | ECT_0 } else { path & !ECN_MASK }
    }

    /// Takes the traffic class of a packet with data. Returns whether it was marked.
    pub(crate) fn received(&mut self, now: Instant, traffic_class: u8) -> bool {
        let marked = is_marked(traffic_class);
        let due = |sent: Instant| now.saturating_since(sent) >= CNP_INTERVAL;
        if self.enabled && marked && self.cnp_sent_at.is_none_or(due) {
            self.cnp_owed = true;
            self.cnp_sent_at = Some(now);
        }
        marked
    }

    /// Whether a CNP is to be sent next.
    pub(crate) const fn owes_cnp(&self) -> bool {
        self.cnp_owed
    }

    /// The CNP that is owed to `peer` (annex A17: no partition, event or acknowledgement).
    pub(crate) fn take_cnp(&mut self, peer: Qpn) -> Option<Bth> {
        if !core::mem::take(&mut self.cnp_owed) {
            return None;
        }
        let bth = Bth::new(Opcode::Cnp, peer, Psn::default());
        Some(Bth { migrated: false, becn: true, ..bth })
    }

    /// Acts on a CNP. Returns false where congestion control is disabled.
    pub(crate) fn handle_cnp(&mut self, now: Instant) -> bool {
        if self.enabled {
            self.cnp_came_at = Some(now);
            self.rate.cut_by_notification(now);
        }
        self.enabled
    }

    /// Acts on a loss. All packets in flight at the first loss belong to one episode.
    pub(crate) fn handle_loss(&mut self, now: Instant, loss: Loss) {
        let recent = |at: Instant, limit| now.saturating_since(at) < limit;
        let [requests, responses] = &mut self.episodes;
        let packet = match loss {
            Loss::Request { at, end } | Loss::Overflow { at, end } => Some((requests, at, end)),
            Loss::Unexplained { .. } if !self.rate.is_active() => return,
            Loss::Response { at, end, .. } | Loss::Unexplained { at, end } => {
                Some((responses, at, end))
            }
            Loss::Timeout => None,
        };
        let part = match loss {
            Loss::Request { .. } | Loss::Timeout => LOSS_CUT,
            Loss::Overflow { .. } => OVERFLOW_CUT,
            Loss::Response { .. } | Loss::Unexplained { .. } => RESPONSE_CUT,
        };
        if let Some((episode, at, end)) = packet {
            let same = |(psn, since)| at.since(psn) < 0 && recent(since, EPISODE_MAX);
            if episode.is_some_and(same) {
                return;
            }
            *episode = Some((end, now));
        }
        if self.enabled && !self.cnp_came_at.is_some_and(|at| recent(at, ECN_SPEAKS)) {
            let behind = match loss {
                Loss::Response { behind, .. } => behind,
                _ => None,
            };
            self.rate.cut_by_loss(now, part, behind);
        }
    }

    /// The rate and the pacing.
    pub(crate) const fn rate(&self) -> &Rate {
        &self.rate
    }

    /// The rate and the pacing.
    pub(crate) const fn rate_mut(&mut self) -> &mut Rate {
        &mut self.rate
    }

    /// Sets the link's rate, in bytes per second.
    pub(crate) fn set_line_rate(&mut self, line_rate: u64) {
        self.rate.set_line(line_rate);
    }

    /// Stops: the QP has failed. Its last NAK leaves at once, and no CNP does.
    pub(crate) fn stop(&mut self) {
        self.cnp_owed = false;
        self.rate.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 1_250_000_000;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    fn on() -> Congestion {
        Congestion::new(Some(DcqcnConfig { line_rate: LINE, min_rate: 1 }))
    }

    fn request(at: u32, end: u32) -> Loss {
        Loss::Request { at: Psn::new(at), end: Psn::new(end) }
    }

    #[test]
    fn packets_in_flight_at_a_loss_are_of_that_loss() {
        let mut congestion = on();
        let mut lose = |us, loss| {
            let before = congestion.rate_mut().current(at(us)).unwrap_or(LINE);
            congestion.handle_loss(at(us), loss);
            congestion.rate_mut().current(at(us)).unwrap() < before
        };
        assert!(lose(1000, request(5, 10)));
        assert!(!lose(1010, request(9, 30)));
        // An answer has the peer's PSNs, and is another matter.
        let answer = Loss::Response { at: Psn::new(7), end: Psn::new(9), behind: None };
        assert!(lose(1020, answer));
        assert!(!lose(1030, answer));
        assert!(lose(1040, request(10, 30)));
        assert!(lose(1050, Loss::Timeout));
        // Half of all PSNs later the old end seems to be ahead again.
        assert!(lose(500_000, request(10, 30)));
    }

    #[test]
    fn an_unexplained_loss_counts_while_packets_are_paced() {
        let mut congestion = on();
        let mut rate_after = |us, loss| {
            congestion.handle_loss(at(us), loss);
            congestion.rate_mut().current(at(us))
        };
        let unexplained = |at, end| Loss::Unexplained { at: Psn::new(at), end: Psn::new(end) };
        assert_eq!(rate_after(1000, unexplained(3, 4)), None);
        let cut =
            rate_after(1010, Loss::Response { at: Psn::new(5), end: Psn::new(9), behind: None });
        assert!(cut.is_some());
        assert_eq!(rate_after(1010, unexplained(8, 9)), cut, "of the same episode");
        assert!(rate_after(1020, unexplained(9, 20)) < cut);
    }

    #[test]
    fn a_loss_that_shows_congestion_takes_more_than_chance_and_one_of_responses_less() {
        let (at_psn, end) = (Psn::new(1), Psn::new(2));
        let rate_after = |loss| {
            let mut congestion = on();
            congestion.handle_loss(at(1), loss);
            congestion.rate_mut().current(at(1)).unwrap()
        };
        assert_eq!(rate_after(request(1, 2)), LINE / 4 * 3 / 2);
        assert_eq!(rate_after(Loss::Timeout), LINE / 4 * 3 / 2);
        assert_eq!(rate_after(Loss::Overflow { at: at_psn, end }), (LINE - LINE / 3) / 2);
        assert_eq!(rate_after(Loss::Response { at: at_psn, end, behind: None }), LINE / 5 * 4 / 2);
    }

    #[test]
    fn where_marks_speak_loss_is_silent() {
        let mut congestion = on();
        assert!(congestion.handle_cnp(at(1)));
        congestion.handle_loss(at(20), Loss::Timeout);
        congestion.handle_loss(at(30), request(1, 2));
        assert_eq!(congestion.rate_mut().current(at(30)), Some(LINE / 2));
        congestion.handle_loss(at(100_001), Loss::Timeout);
        let cut = congestion.rate_mut().current(at(100_001));
        assert!(cut.is_some_and(|rate| rate < LINE / 2), "released, cut anew");
    }

    #[test]
    fn off_means_off() {
        let mut congestion = Congestion::new(None);
        assert!(!congestion.handle_cnp(at(1)));
        congestion.handle_loss(at(1), Loss::Timeout);
        assert!(congestion.received(at(1), 0b11) && !congestion.owes_cnp());
        assert_eq!(congestion.rate_mut().current(at(1)), None);
        assert_eq!(congestion.traffic_class(0x6b), 0x68);
        assert_eq!(on().traffic_class(0x6b), 0x6a);
    }
}
