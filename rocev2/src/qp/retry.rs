//! When to ask the peer what it has, when to send again without evidence, and when to give up.

use crate::env::{Duration, Instant, code_duration};

/// The shortest time after which the peer is asked: below it, a busy host's own scheduling looks like
/// loss.
const ASK_MIN: Duration = Duration::from_millis(1);
/// The longest that a peer which answers late makes of it.
const FLOOR_MAX: Duration = Duration::from_millis(64);
/// What was learnt of late answers counts half after this long.
const HALF_LIFE_NS: u64 = 10_000_000_000;
/// The wait doubles this often at once. A question that is lost leaves nothing but the timer (the peer
/// says only one NAK per gap), so that a path that loses much needs many, soon.
const BACKOFF_SOON: u32 = 2;
/// After this many tries without an answer it is not loss: the wait doubles each time, up to the
/// negotiated one, as that decides when to give up.
const SILENT_AFTER: u32 = 8;
/// The wait before the first round trip is measured, at most.
const ASK_INITIAL: Duration = Duration::from_millis(100);
/// That wait over the time in which the connection was made, which took a round trip at least: as
/// long as the first one measured would make it.
const HANDSHAKES: u32 = 3;
/// What is sent again without evidence waits for so many typical round trips, twice the longest one, and
/// this long at least. After a few times in vain it waits twice as long each time.
const BLIND_TYPICAL: u32 = 10;
const BLIND_MIN: Duration = Duration::from_millis(500);
const BLIND_FEW: u32 = 3;
/// How long the answer to a packet may be under way, at least and at most; between them it is as long as
/// an answer is expected to take, or the longest one seen took, several times over.
const LIFE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(4)];
const LIFE_EXPECTED: u32 = 2;
const LIFE_LONGEST: u32 = 4;

/// Duration of a 5-bit timeout code: 4.096 us * 2^code; `None` for 0, which means never
/// (IBTA ch. 9, Transport Timer).
pub fn timeout(code: u8) -> Option<Duration> {
    (code != 0).then(|| code_duration(code.min(31)))
}

/// How long the peer takes to answer requests of one kind.
#[derive(Clone, Copy, Debug)]
struct Service {
    known: bool,
    smoothed: Duration,
    variation: Duration,
    longest: Learnt,
}

/// A time that was once seen, and fades.
#[derive(Clone, Copy, Debug)]
struct Learnt {
    time: Duration,
    at: Instant,
}

/// The retransmission timers of one QP.
///
/// They run on measured round trips, of READs apart from those of SENDs and WRITEs (as RFC 6298 does for
/// TCP), because the negotiated timeout, half a second on Linux, is far too long for it. A peer that is
/// slow for once is not a loss: when the first timer runs out the peer is only asked what it has (a
/// tail loss probe, RFC 8985), which costs a packet and repeats nothing. What is sent again without any
/// evidence waits much longer. An answer that shows a timer to have been early raises its floor and
/// restores the back-off (in the spirit of RFC 3522, RFC 4015 and RFC 5682).
///
/// The negotiated timeout and retry count decide only when to give up: after
/// `timeout * (retries + 1)` without progress, and not before that many tries were made.
#[derive(Debug)]
pub struct RetryTimer {
    negotiated: Option<Duration>,
    /// Half of the time after which it gives up.
    half: Option<Duration>,
    retries: u32,
    /// When the connection was asked for or granted, until the first packet leaves.
    handshake_at: Option<Instant>,
    initial: Duration,
    services: [Service; 2],
    /// The shortest round trip.
    fastest: Option<Duration>,
    floor: Learnt,
    /// The oldest request is a READ.
    read: bool,
    /// Tries without progress, and those of them that sent something again without evidence.
    tries: u32,
    blinds: u32,
    progress_at: Instant,
    /// Since when nothing came, and nothing was sent again without evidence.
    quiet_since: Instant,
    deadline: Option<Instant>,
}

/// What an expired timer asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// Not yet.
    None,
    /// Ask the peer what it has.
    Ask,
    /// Nothing tells whether it is lost, and it is too late for an answer: send the oldest request
    /// again.
    Resend,
    /// The retries are used up.
    GiveUp,
}

impl Service {
    const UNKNOWN: Self = Self {
        known: false,
        smoothed: Duration::ZERO,
        variation: Duration::ZERO,
        longest: Learnt::NOTHING,
    };

    fn sample(&mut self, now: Instant, rtt: Duration) {
        if !self.known {
            (self.smoothed, self.variation) = (rtt, rtt / 2);
        } else {
            self.variation = (self.variation * 3 + self.smoothed.abs_diff(rtt)) / 4;
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        }
        self.known = true;
        self.longest.raise(now, rtt);
    }

    /// How long an answer may take.
    fn expected(&self) -> Option<Duration> {
        self.known.then(|| self.smoothed + self.variation * 4)
    }

    /// How long none takes.
    fn blind(&self, now: Instant) -> Duration {
        BLIND_MIN.max(self.smoothed * BLIND_TYPICAL).max(self.longest.now(now) * 2)
    }
}

impl Learnt {
    const NOTHING: Self = Self { time: Duration::ZERO, at: Instant::from_nanos(0) };

    fn raise(&mut self, now: Instant, time: Duration) {
        if time >= self.now(now) {
            *self = Self { time, at: now };
        }
    }

    fn now(&self, now: Instant) -> Duration {
        let halvings = now.as_nanos().saturating_sub(self.at.as_nanos()) / HALF_LIFE_NS;
        if halvings == 0 { self.time } else { self.time / (1 << halvings.min(31)) }
    }
}

impl RetryTimer {
    /// A stopped timer.
    pub const fn new() -> Self {
        Self {
            negotiated: None,
            half: None,
            retries: 0,
            handshake_at: None,
            initial: ASK_INITIAL,
            services: [Service::UNKNOWN; 2],
            fastest: None,
            floor: Learnt::NOTHING,
            read: false,
            tries: 0,
            blinds: 0,
            progress_at: Instant::from_nanos(0),
            quiet_since: Instant::from_nanos(0),
            deadline: None,
        }
    }

    /// Sets what the connection agreed on: a timeout code and a retry count of 0..=7.
    pub fn connect(&mut self, timeout_code: u8, retries: u8) {
        self.negotiated = timeout(timeout_code);
        self.retries = u32::from(retries.min(7));
        self.half = self.negotiated.map(|timeout| timeout * (self.retries + 1) / 2);
    }

    /// The peer was asked for the connection, or granted it, and nothing is sent before its answer.
    pub fn handshake(&mut self, now: Instant) {
        self.handshake_at = Some(now);
    }

    /// When [`Self::expired`] is worth asking.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// A packet left; starts the timer if it does not run. `read`: the oldest request is a READ.
    pub fn sent(&mut self, now: Instant, read: bool) {
        if let Some(began) = self.handshake_at.take() {
            let took = now.saturating_since(began);
            self.initial = took.saturating_mul(HANDSHAKES).min(ASK_INITIAL);
        }
        if self.deadline.is_none() {
            (self.progress_at, self.quiet_since, self.read) = (now, now, read);
            self.rearm(now);
        }
    }

    /// Tries without progress so far.
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// Something was sent again that the peer asked for: its answer takes a round trip from now.
    pub fn restart(&mut self, now: Instant) {
        self.quiet_since = now;
        self.rearm(now);
    }

    /// The peer acknowledged something; `outstanding` tells whether more is in flight, and `read` whether
    /// the oldest of it is a READ.
    pub fn progress(&mut self, now: Instant, outstanding: bool, read: bool) {
        (self.tries, self.blinds) = (0, 0);
        (self.progress_at, self.quiet_since, self.read) = (now, now, read);
        if outstanding { self.rearm(now) } else { self.deadline = None }
    }

    /// A round trip was measured on a packet that was sent once (Karn's rule).
    pub fn sample(&mut self, now: Instant, rtt: Duration, read: bool) {
        self.services[usize::from(read)].sample(now, rtt);
        self.fastest = Some(self.fastest.map_or(rtt, |fastest| fastest.min(rtt)));
    }

    /// Whether an answer that came this long after a packet was sent again is to its first copy: no
    /// round trip was ever as short.
    pub fn is_too_soon(&self, after: Duration) -> bool {
        self.fastest.is_some_and(|fastest| after < fastest)
    }

    /// An answer shows that the timer ran out early: the first copy was only late.
    pub fn was_early(&mut self, now: Instant) {
        let late = now.saturating_since(self.progress_at) * 2;
        self.floor.raise(now, late.min(FLOOR_MAX));
        (self.tries, self.blinds) = (0, 0);
    }

    /// Pushes the whole schedule to `until`: the peer asked for a pause. It is there, so that nothing is
    /// backed off any more.
    pub fn pause(&mut self, until: Instant) {
        (self.tries, self.blinds) = (0, 0);
        (self.progress_at, self.quiet_since) = (until, until);
        self.deadline = None;
    }

    /// Whether the timer ran out, and what follows.
    pub fn expired(&mut self, now: Instant) -> Expiry {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Expiry::None;
        }
        if self.gives_up_at().is_some_and(|at| now >= at) {
            self.deadline = None;
            return Expiry::GiveUp;
        }
        self.tries = self.tries.saturating_add(1);
        let blind = now >= self.blind_at(now);
        if blind {
            self.quiet_since = now;
            self.blinds += 1;
        }
        self.rearm(now);
        if blind { Expiry::Resend } else { Expiry::Ask }
    }

    /// How long an answer may take before the peer is asked.
    pub fn wait(&self, now: Instant) -> Duration {
        let [data, read] = self.services.map(|service| service.expected());
        let expected = if self.read { read.or(data) } else { data.or(read) };
        let floor = self.floor.now(now).max(ASK_MIN);
        expected.unwrap_or(self.initial).max(floor).min(self.ceiling())
    }

    /// How long a packet that leaves now, or its answer, may be under way.
    pub fn life(&self, now: Instant) -> Duration {
        let [data, read] = self.services.map(|service| service.longest.now(now));
        let longest = data.max(read).saturating_mul(LIFE_LONGEST);
        (self.wait(now) * LIFE_EXPECTED).max(longest).clamp(LIFE[0], LIFE[1])
    }

    /// When something may be sent again without evidence: well before giving up.
    fn blind_at(&self, now: Instant) -> Instant {
        let blind = self.services[usize::from(self.read)].blind(now);
        let blind = blind.saturating_mul(1 << self.blinds.saturating_sub(BLIND_FEW).min(16));
        self.quiet_since + self.half.map_or(blind, |half| blind.min(half))
    }

    fn ceiling(&self) -> Duration {
        self.negotiated.unwrap_or(Duration::from_secs(1)).max(ASK_MIN)
    }

    /// When nothing is sent again any more, if the retries that were agreed on are made.
    fn gives_up_at(&self) -> Option<Instant> {
        let patience = self.negotiated.filter(|_| self.tries >= self.retries)?;
        Some(self.progress_at + patience * (self.retries + 1))
    }

    fn rearm(&mut self, now: Instant) {
        let doublings =
            self.tries.min(BACKOFF_SOON) + self.tries.saturating_sub(SILENT_AFTER).min(16);
        let wait = self.wait(now);
        let next = now + wait.saturating_mul(1 << doublings).min(self.ceiling());
        let next = if self.tries > 0 { next.min(self.blind_at(now).max(now + wait)) } else { next };
        // Giving up is not put off, but by the round trip of what was just sent.
        self.deadline = Some(self.gives_up_at().map_or(next, |at| next.min(at.max(now + wait))));
    }
}

impl Default for RetryTimer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn codes_mean_what_the_table_says() {
        assert_eq!(timeout(0), None);
        assert_eq!(timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(timeout(14).unwrap().as_millis(), 67);
        assert_eq!(timeout(31).unwrap().as_secs(), 8796);
    }

    #[test]
    fn gives_up_after_the_negotiated_time_and_not_before() {
        let mut timer = RetryTimer::new();
        timer.connect(14, 2);
        timer.sent(at(0), false);
        let mut now = at(0);
        let resends = loop {
            now = timer.deadline().unwrap_or(now);
            match timer.expired(now) {
                Expiry::GiveUp => break now,
                Expiry::Ask | Expiry::Resend => assert!(now < at(300)),
                Expiry::None => unreachable!(),
            }
        };
        assert!(resends >= at(201) && resends < at(300), "{resends:?}");
    }

    #[test]
    fn a_short_negotiated_timeout_still_gets_its_retries() {
        let mut timer = RetryTimer::new();
        timer.connect(1, 3);
        timer.sent(at(0), false);
        for _ in 0..3 {
            assert_ne!(timer.expired(timer.deadline().unwrap()), Expiry::GiveUp);
        }
        assert_eq!(timer.expired(timer.deadline().unwrap()), Expiry::GiveUp);
    }

    #[test]
    fn backoff_is_bounded() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(at(0), Duration::from_micros(50), false);
        timer.sent(at(0), false);
        let mut waits = std::vec::Vec::new();
        let mut now = at(0);
        while timer.expired(now) != Expiry::GiveUp {
            let next = timer.deadline().unwrap();
            waits.push(next.saturating_since(now).as_millis());
            now = next;
        }
        // A few soon, as what was sent again may be lost too; few in all, as nobody may be there.
        assert_eq!(waits[..12], [1, 2, 4, 4, 4, 4, 4, 4, 4, 8, 16, 32], "{waits:?}");
        assert!(waits.len() < 30, "{waits:?}");
        let patience = timeout(17).unwrap() * 8;
        assert!((patience..=patience + ASK_MIN).contains(&now.saturating_since(at(0))), "{now:?}");
    }

    #[test]
    fn progress_restores_the_retries() {
        let mut timer = RetryTimer::new();
        timer.connect(14, 1);
        timer.sent(at(0), false);
        for step in 1..100 {
            timer.progress(at(step * 100), true, false);
        }
        assert_eq!(timer.expired(at(9_901)), Expiry::None);
        timer.progress(at(10_000), false, false);
        assert_eq!(timer.deadline(), None);
    }

    #[test]
    fn the_handshake_says_how_long_a_round_trip_may_be() {
        for (took_ms, expected_ms) in [(0, 1), (1, 3), (20, 60), (50, 100), (90_000, 100)] {
            let mut timer = RetryTimer::new();
            timer.connect(17, 7);
            timer.handshake(at(5));
            timer.sent(at(5 + took_ms), false);
            timer.sent(at(9_000_000), false);
            assert_eq!(timer.deadline(), Some(at(5 + took_ms + expected_ms)));
            timer.sample(at(0), Duration::from_millis(7), false);
            timer.restart(at(100));
            assert_eq!(timer.deadline(), Some(at(121)), "a measure is better");
        }
    }

    #[test]
    fn a_measured_round_trip_shortens_the_timer() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(at(0), Duration::from_micros(50), false);
        timer.sent(at(0), false);
        assert_eq!(timer.deadline(), Some(at(1)));
    }

    /// RFC 3522 and RFC 4015 in spirit: an answer that was only late raises the floor, restores the
    /// back-off, and is forgotten in time.
    #[test]
    fn a_late_answer_raises_the_floor_for_a_while() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(at(0), Duration::from_micros(50), false);
        timer.sent(at(0), false);
        assert_eq!(timer.expired(at(1)), Expiry::Ask);
        assert_eq!(timer.tries(), 1);
        timer.was_early(at(10));
        timer.progress(at(10), true, false);
        assert_eq!((timer.tries(), timer.deadline()), (0, Some(at(30))));
        timer.was_early(at(9_000));
        assert_eq!(timer.wait(at(9_000)), FLOOR_MAX);
        assert_eq!(timer.wait(at(9_000 + 10_000)), FLOOR_MAX / 2);
        assert_eq!(timer.wait(at(9_000 + 100_000)), ASK_MIN);
    }

    #[test]
    fn a_copy_is_waited_for_as_long_as_the_slowest_answers_take() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        for (longest, life) in [(1, 10), (150, 600), (900, 3600), (3000, 4000)] {
            timer.sample(at(0), Duration::from_millis(longest), true);
            (0..100).for_each(|_| timer.sample(at(0), Duration::from_micros(50), true));
            assert_eq!(timer.life(at(0)).as_millis(), life);
        }
    }

    /// What is repeated without evidence waits for ten typical round trips and twice the longest, of READs
    /// apart, and stays below the time to give up.
    #[test]
    fn nothing_is_repeated_without_evidence_before_it_is_too_late_for_an_answer() {
        let wait = |round_trips: &[u64], code, retries| {
            let mut timer = RetryTimer::new();
            timer.connect(code, retries);
            for ms in round_trips {
                timer.sample(at(0), Duration::from_millis(*ms), true);
                timer.sample(at(0), Duration::from_micros(20), false);
            }
            timer.sent(at(0), true);
            loop {
                let now = timer.deadline().unwrap();
                if timer.expired(now) != Expiry::Ask {
                    return now.as_nanos() / 1_000_000;
                }
            }
        };
        assert_eq!(wait(&[], 17, 7), 500);
        assert_eq!(wait(&[1; 8], 17, 7), 500);
        assert_eq!(wait(&[80; 20], 17, 7), 800);
        assert_eq!(wait(&[3, 3, 3, 3, 390, 3, 3, 3], 17, 7), 780);
        assert_eq!(wait(&[80; 8], 14, 1), 67, "half of two timeouts");
    }
}
