//! How long anything may take, and how much may be sent again, by what the world is: its round trip,
//! its links, the timers that were agreed on. It counts from the last thing that ended.

use super::end::{End, Phase};
use super::judge::Kind;
use super::trial::Trial;
use super::world::{MS, Part, Step, World, require};
use rocev2::cm::CmConfig;
use rocev2::env::code_duration;

/// A consumer looks after its queues this often at least, while it heals, and answers a connect within
/// that.
const CONSUMER: u64 = 50 * MS;
const ANSWER: u64 = 2_000 * MS;
/// Between two turns of a host that has work, at most, and how long one may stand still.
const TURN: u64 = 3_000;
const STALL: u64 = 20 * MS;
/// A foreign host says only after 4.6 s once more what was lost while it connected, and asks for pauses
/// of 655 ms while its consumer posts its receives.
const FOREIGN: u64 = (4_700 + 4 * 655) * MS;

/// A REQ is not sent again before.
const QUICK: u64 = 500 * MS;

/// How long it takes to find a neighbour that is elsewhere, from the first doubt.
const MOVED: u64 = 3_000 * MS;

impl World {
    /// Nobody waits longer than policy allows.
    pub(crate) fn check_waits(&mut self) -> Step {
        for at in 0..self.ends.len() {
            let end = &self.ends[at];
            // What a foreign host does is not for us to judge.
            if end.is_settled() || self.is_foreign(end.host) {
                continue;
            }
            let (waits, most) = (self.now - end.moved, self.patience(end));
            self.report.waited = self.report.waited.max(waits * 1000 / most);
            require!(
                waits <= most,
                "end {at} waits for {} ms, and {} are enough: {}",
                waits / MS,
                most / MS,
                self.ends[at].describe()
            );
        }
        Ok(())
    }

    /// A connect has ended, and nobody but the world may be the reason.
    pub(crate) fn count_connect(&mut self, end: usize, answered: bool) {
        let this = &self.ends[end];
        if this.excuse.is_some() || self.is_foreign(this.host) || self.part == Part::Teardown {
            return;
        }
        let quick = answered && self.now - this.made < QUICK;
        let honest = &mut self.report.honest;
        honest.asked += 1;
        honest.answered += u64::from(answered);
        honest.quick += u64::from(quick);
    }

    /// How long an end may wait, in ns.
    fn patience(&self, end: &End) -> u64 {
        // A foreign host may stand still for a while after each frame.
        let slow =
            self.hosts.iter().filter_map(|host| host.quirks.as_ref().map(|quirks| quirks.slow));
        let round = 2 * (self.net.transit() + TURN) + slow.max().unwrap_or(0);
        let cm = CmConfig::default();
        let ns = |duration: std::time::Duration| duration.as_nanos() as u64;
        // The clock of a host may be slow.
        let slow = |time: u64| time + time / 50;
        let foreign = self.hosts.iter().any(|host| host.quirks.is_some());
        let base = STALL + 4 * CONSUMER + 64 * round + self.transfer(end, round);
        let base = if foreign { base + FOREIGN } else { base };
        let service = ns(code_duration(cm.service_timeout_code));
        // Whoever is asked for time by an MRA repeats nothing before that is over.
        let granted = foreign && self.watch.judge.count(Kind::Mra) > 0;
        let base = if granted { base + slow(service) } else { base };
        // A peer that has another NIC is asked for once nothing was heard from it, or from elsewhere, a
        // second after it was last, where it was and then everywhere.
        let base = if self.moves { base + MOVED + slow(2 * self.timeout()) } else { base };
        let asks = ns(cm.connect_limit) + service + ANSWER;
        base + slow(match end.phase {
            // The timer may have backed off as far as it does when the network comes back.
            Phase::Up if self.is_sound(end) => 2 * self.timeout(),
            // A late copy of an answer, an RNR NAK's too, is an answer, and the retries begin anew.
            Phase::Up => (u64::from(self.retries()) + 1) * self.timeout() + self.chaos.latest(),
            Phase::Connecting
            | Phase::Offered
            | Phase::Requested
            | Phase::Accepting
            | Phase::Completing => asks,
            Phase::Down | Phase::Closing => ns(cm.disconnect_limit).max(asks),
            Phase::Closed | Phase::Crashed => 0,
        })
    }

    /// The peer is there, and nothing stands against any request.
    fn is_sound(&self, end: &End) -> bool {
        let lives = |peer: usize| self.ends[peer].phase == Phase::Up;
        self.patient && end.excuse.is_none() && end.peer.is_some_and(lives)
    }

    /// The longest timeout that two sides agreed on: who connects adds the time that the peer takes to answer.
    fn timeout(&self) -> u64 {
        let delay = CmConfig::default().target_ack_delay_code;
        let codes = self.hosts.iter().map(|host| host.config.ack_timeout_code);
        let code = codes.max().unwrap_or(0);
        // A sum of powers of two, rounded up (Linux, cm_ack_timeout).
        let sum = code.max(delay) + u8::from(code.min(delay) + 1 >= code.max(delay));
        code_duration(sum).as_nanos() as u64
    }

    /// The most that any side asked for.
    fn retries(&self) -> u8 {
        self.hosts.iter().map(|host| host.config.retry_count).max().unwrap_or(0)
    }

    /// How long the longest message takes where all move one: by the slowest link, and by the
    /// smallest window.
    fn transfer(&self, end: &End, round: u64) -> u64 {
        let longest = self.ends.iter().map(|end| end.flow.slot_len as u64).max().unwrap_or(0);
        let of_end = end.flow.slot_len as u64;
        let windows = self.hosts.iter().map(|host| {
            let window = host.config.window;
            u64::from(window.bytes.min(window.read_chunk)).max(256)
        });
        let by_window = of_end / windows.min().unwrap_or(256) * round;
        let rate = self.net.slowest().unwrap_or(u64::MAX);
        let all = longest as u128 * 2 * self.ends.len() as u128;
        by_window + (all * 1_000_000_000 / u128::from(rate)) as u64
    }

    /// As much is sent again as what is lost explains.
    pub(crate) fn check_resends(&self) -> Step {
        if self.trial == Some(Trial::Reordering) {
            return self.watch.check_resends(200, 1);
        }
        let lossy = u64::from(self.chaos.lossy().min(600));
        // Who has no congestion control overflows the queues of slow links.
        let floods = self.net.slowest().is_some()
            && self.hosts.iter().any(|host| host.config.dcqcn.is_none());
        let share = if floods { 300 } else { 200 } * 1000 / (1000 - lossy);
        self.watch.check_resends(share, 10)
    }
}
