//! Congestion control of one QP: what it tells its peer, and what tells it to slow down.
//!
//! A switch that fills up marks packets (IP ECN 11). Who receives a marked packet notifies its sender
//! by a CNP (annex A17, Congestion Notification Packet); who receives a CNP sends slower. Where no CNP
//! has come for a while, perhaps nothing on the path marks, and loss has to tell. Both directions of
//! a QP share one [`Rate`]: requests, and answers to READs. Acknowledgements and CNPs are not paced.

use super::rate::Rate;
use crate::env::{Duration, Instant};
use crate::ids::Qpn;
use crate::psn::Psn;
use crate::wire::{Bth, Opcode};

/// A QP notifies its peer at most once in this time, however much is marked (N of DCQCN).
pub const CNP_INTERVAL: Duration = Duration::from_micros(50);
/// For this long after a CNP marks are taken to tell of all congestion, and loss of something else.
const ECN_SPEAKS: Duration = Duration::from_millis(100);
/// A loss so long after a cut tells that the cut was too small, even if the packet was under way at
/// the time: fast recovery is over by then.
const EPISODE_MAX: Duration = Duration::from_micros(275);

/// The two low bits of a traffic class.
const ECN_MASK: u8 = 0b11;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;
/// Of a CNP: DSCP 48, where switches have their priority for it, and capable of being marked.
const CNP_TRAFFIC_CLASS: u8 = 48 << 2 | ECT_0;

/// Rates of DCQCN, in bytes of packets per second.
#[derive(Clone, Copy, Debug)]
pub struct DcqcnConfig {
    /// That of the link, as long as [`set_line_rate`](crate::device::Device::set_line_rate) has not
    /// told another. A QP starts above any rate, and after congestion at half of this.
    pub line_rate: u64,
    /// What is left to a QP however congested its path is.
    pub min_rate: u64,
}

impl Default for DcqcnConfig {
    /// 10 Gb/s and 10 Mb/s.
    fn default() -> Self {
        Self { line_rate: 1_250_000_000, min_rate: 1_250_000 }
    }
}

/// That something was lost, as the engines learn it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    /// Of our requests, the packet `at`; the last one so far is before `end`.
    Request {
        /// The packet.
        at: Psn,
        /// One past the last one sent.
        end: Psn,
    },
    /// Of our answers to READs, the same.
    Answer {
        /// The packet.
        at: Psn,
        /// One past the last one owed.
        end: Psn,
    },
    /// Nothing came back for a retransmission timeout.
    Silence,
}

/// Congestion control of one QP.
#[derive(Debug)]
pub struct Congestion {
    enabled: bool,
    rate: Rate,
    cnp_owed: bool,
    cnp_sent_at: Option<Instant>,
    cnp_came_at: Option<Instant>,
    /// What was sent before here, and lost, was lost in the episode that began then: of requests, of
    /// answers.
    episodes: [Option<(Psn, Instant)>; 2],
}

impl Congestion {
    /// Nothing is congested; `None`: and nothing ever will be.
    pub fn new(config: Option<DcqcnConfig>) -> Self {
        Self {
            enabled: config.is_some(),
            rate: Rate::new(config.unwrap_or_default()),
            cnp_owed: false,
            cnp_sent_at: None,
            cnp_came_at: None,
            episodes: [None; 2],
        }
    }

    /// The traffic class of what leaves next, where the path's is `path`. Only its DSCP is the path's
    /// to choose.
    pub const fn traffic_class(&self, path: u8) -> u8 {
        match (self.cnp_owed, self.enabled) {
            (true, _) => CNP_TRAFFIC_CLASS,
            (false, true) => path & !ECN_MASK | ECT_0,
            (false, false) => path & !ECN_MASK,
        }
    }

    /// A packet with data came under this traffic class; whether it was marked.
    pub fn received(&mut self, now: Instant, traffic_class: u8) -> bool {
        let marked = traffic_class & ECN_MASK == CE;
        let due = |sent: Instant| now.saturating_since(sent) >= CNP_INTERVAL;
        if self.enabled && marked && self.cnp_sent_at.is_none_or(due) {
            self.cnp_owed = true;
            self.cnp_sent_at = Some(now);
        }
        marked
    }

    /// Whether a CNP leaves next.
    pub const fn owes_cnp(&self) -> bool {
        self.cnp_owed
    }

    /// The CNP that was owed to `peer` (annex A17: no partition, event or acknowledgement).
    pub fn take_cnp(&mut self, peer: Qpn) -> Option<Bth> {
        if !core::mem::take(&mut self.cnp_owed) {
            return None;
        }
        let bth = Bth::new(Opcode::Cnp, peer, Psn::default());
        Some(Bth { migrated: false, becn: true, ..bth })
    }

    /// The peer was sent something marked. `false`: and we do not care.
    pub fn handle_cnp(&mut self, now: Instant) -> bool {
        if self.enabled {
            self.cnp_came_at = Some(now);
            self.rate.cut(now);
        }
        self.enabled
    }

    /// Something was lost. All that was under way then is one episode.
    pub fn handle_loss(&mut self, now: Instant, loss: Loss) {
        let recent = |at: Instant, limit| now.saturating_since(at) < limit;
        let [requests, answers] = &mut self.episodes;
        let packet = match loss {
            Loss::Request { at, end } => Some((requests, at, end)),
            Loss::Answer { at, end } => Some((answers, at, end)),
            Loss::Silence => None,
        };
        if let Some((episode, at, end)) = packet {
            let same = |(psn, since)| at.since(psn) < 0 && recent(since, EPISODE_MAX);
            if episode.is_some_and(same) {
                return;
            }
            *episode = Some((end, now));
        }
        if self.enabled && !self.cnp_came_at.is_some_and(|at| recent(at, ECN_SPEAKS)) {
            self.rate.cut_by_loss(now);
        }
    }

    /// The rate, and the pace.
    pub const fn rate(&self) -> &Rate {
        &self.rate
    }

    /// The rate, and the pace.
    pub const fn rate_mut(&mut self) -> &mut Rate {
        &mut self.rate
    }

    /// The link has another rate now, in bytes per second.
    pub fn set_line_rate(&mut self, line_rate: u64) {
        self.rate.set_line(line_rate);
    }

    /// The QP has failed: what it still owes leaves at once, and notifications do not.
    pub fn stop(&mut self) {
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
    fn what_was_under_way_at_a_loss_is_lost_with_it() {
        let mut congestion = on();
        let mut lose = |us, loss| {
            let before = congestion.rate_mut().current(at(us)).unwrap_or(LINE);
            congestion.handle_loss(at(us), loss);
            congestion.rate_mut().current(at(us)).unwrap() < before
        };
        assert!(lose(1000, request(5, 10)));
        assert!(!lose(1010, request(9, 30)));
        // An answer has the peer's PSNs, and is another matter.
        let answer = Loss::Answer { at: Psn::new(7), end: Psn::new(9) };
        assert!(lose(1020, answer));
        assert!(!lose(1030, answer));
        assert!(lose(1040, request(10, 30)));
        assert!(lose(1050, Loss::Silence));
        // Half of all PSNs later the old end seems to be ahead again.
        assert!(lose(500_000, request(10, 30)));
    }

    #[test]
    fn where_marks_speak_loss_is_silent() {
        let mut congestion = on();
        assert!(congestion.handle_cnp(at(1)));
        congestion.handle_loss(at(20), Loss::Silence);
        congestion.handle_loss(at(30), request(1, 2));
        assert_eq!(congestion.rate_mut().current(at(30)), Some(LINE / 2));
        congestion.handle_loss(at(100_001), Loss::Silence);
        let cut = congestion.rate_mut().current(at(100_001));
        assert!(cut.is_some_and(|rate| rate < LINE / 2), "released, cut anew");
    }

    #[test]
    fn off_means_off() {
        let mut congestion = Congestion::new(None);
        assert!(!congestion.handle_cnp(at(1)));
        congestion.handle_loss(at(1), Loss::Silence);
        assert!(congestion.received(at(1), CE) && !congestion.owes_cnp());
        assert_eq!(congestion.rate_mut().current(at(1)), None);
        assert_eq!(congestion.traffic_class(0x6b), 0x68);
        assert_eq!(on().traffic_class(0x6b), 0x6a);
    }
}
