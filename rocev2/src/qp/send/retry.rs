//! The retransmission timers: when to probe the peer, when to resend without evidence, and when to give up.

use crate::env::{Duration, Instant, code_duration};

/// The shortest probe timeout: below it, a busy host's own scheduling looks like loss. A host that is busy for
/// longer raises it by its late responses.
const PROBE_MIN: Duration = Duration::from_micros(300);
/// The longest floor that late responses give the probe timeout.
const FLOOR_MAX: Duration = Duration::from_millis(64);
/// A decaying maximum halves after this long.
const HALF_LIFE_NS: u64 = 10_000_000_000;
/// The first doublings of the wait. A lost probe leaves nothing but the timer, as the peer sends only one
/// NAK per gap, so a path that loses much needs many probes soon.
const BACKOFF_SOON: u32 = 2;
/// After this many tries without a response the cause is not loss: the wait doubles each time, up to the
/// negotiated timeout, as that decides when to give up.
const SILENT_AFTER: u32 = 8;
/// The probe timeout before the first round trip is measured, at most. The first doublings end there, too: ten probes a second
/// burden no path, and of a lost one only the next tells.
const PROBE_INITIAL: Duration = Duration::from_millis(100);
/// That timeout in units of a time that a round trip took at most: the factor that the first measured one would have.
const SEED_ROUND_TRIPS: u64 = 3;
/// The retransmission timeout: so many typical round trips, twice the longest one, and at least `RTO_MIN`.
/// After `RTO_SAME` timeouts in a row it doubles each time.
const RTO_ROUND_TRIPS: u32 = 10;
const RTO_MIN: Duration = Duration::from_millis(500);
const RTO_SAME: u32 = 3;
/// The life of a packet and its response in the network: at least and at most. In between it is a multiple
/// of the expected round trip, or of the longest one seen.
const LIFE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(4)];
const LIFE_EXPECTED: u32 = 2;
const LIFE_LONGEST: u32 = 4;

/// Duration of a 5-bit timeout code: 4.096 us * 2^code; `None` for 0, which means never
/// (IBTA ch. 9, Transport Timer).
pub(crate) fn timeout(code: u8) -> Option<Duration> {
    (code != 0).then(|| code_duration(code.min(31)))
}

/// The round trips of requests of one kind, and an estimate of the next (RFC 6298). It is made anew with each acknowledgement, so its times
/// are plain numbers.
#[derive(Clone, Copy, Debug)]
struct RttEstimate {
    /// [`UNKNOWN_NS`] before the first.
    smoothed_ns: u64,
    variation_ns: u64,
    longest: DecayingMax,
}

/// The longest time seen, which decays.
#[derive(Clone, Copy, Debug)]
struct DecayingMax {
    time_ns: u64,
    at: Instant,
}

/// A longer round trip counts as this one, so that no sum overflows: 18 years.
const RTT_MAX_NS: u64 = 1 << 59;
/// No round trip was measured.
const UNKNOWN_NS: u64 = u64::MAX;

/// The nanoseconds of a duration; as many as there can be, if it has more.
const fn nanos(duration: Duration) -> u64 {
    const SECOND_NS: u64 = 1_000_000_000;
    duration.as_secs().saturating_mul(SECOND_NS).saturating_add(duration.subsec_nanos() as u64)
}

/// The longest probe timeout, with this negotiated one.
const fn ceiling_ns(negotiated_ns: u64) -> u64 {
    let ns = if negotiated_ns > 0 { negotiated_ns } else { nanos(Duration::from_secs(1)) };
    if ns > nanos(PROBE_MIN) { ns } else { nanos(PROBE_MIN) }
}

const fn after(now: Instant, ns: u64) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_add(ns))
}

/// The retransmission timers of one QP.
///
/// They run on measured round trips, of READs apart from those of SENDs and WRITEs (as RFC 6298 does for
/// TCP), because the negotiated timeout, half a second on Linux, is far too long for it. A peer that is
/// slow for once is not a loss: when the first timer expires, the requester only sends a probe (a tail loss
/// probe, RFC 8985), which costs a packet and repeats nothing. The retransmission timeout, after which a
/// packet is resent without any evidence, is much longer. A response that shows a timer to have expired
/// early raises its floor and undoes the back-off (in the spirit of RFC 3522, RFC 4015 and RFC 5682).
///
/// The negotiated timeout and retry count decide only when to give up: after `timeout * (retries + 1)`
/// without progress, and not before that many tries were made.
///
/// The fields that each acknowledgement of a SEND or WRITE needs stand first, in two cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RetryTimer {
    deadline: Option<Instant>,
    /// The last progress; when the REQ or REP was sent, as long as the timer is to be seeded by that.
    progress_at: Instant,
    /// The start of the retransmission timeout: the last progress or resend.
    quiet_since: Instant,
    /// Tries without progress, and those of them that were retransmission timeouts.
    tries: u32,
    timeouts: u32,
    retries: u32,
    /// The oldest request is a READ.
    read: bool,
    /// No packet has left since the REQ or REP.
    seeding: bool,
    /// The longest probe timeout.
    ceiling_ns: u64,
    floor: DecayingMax,
    /// The shortest round trip; [`UNKNOWN_NS`] before the first.
    fastest_ns: u64,
    /// Of SENDs and WRITEs, and of READs.
    rtts: [RttEstimate; 2],
    /// The last two round trips of SENDs and WRITEs, with those of resent packets.
    latest_ns: [u64; 2],
    initial_ns: u64,
    /// The negotiated timeout; 0 for none.
    negotiated_ns: u64,
}

/// The outcome of [`RetryTimer::expired`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expiry {
    /// The timer has not expired.
    None,
    /// The probe timeout: send a probe.
    Probe,
    /// The retransmission timeout: it is too late for a response, so resend the oldest request.
    Resend,
    /// The retries are used up.
    GiveUp,
}

impl RttEstimate {
    const UNKNOWN: Self =
        Self { smoothed_ns: UNKNOWN_NS, variation_ns: 0, longest: DecayingMax::NOTHING };

    #[inline]
    fn sample(&mut self, now: Instant, rtt_ns: u64) {
        let rtt_ns = rtt_ns.min(RTT_MAX_NS);
        if self.smoothed_ns == UNKNOWN_NS {
            (self.smoothed_ns, self.variation_ns) = (rtt_ns, rtt_ns / 2);
        } else {
            self.variation_ns = (self.variation_ns * 3 + self.smoothed_ns.abs_diff(rtt_ns)) / 4;
            self.smoothed_ns = (self.smoothed_ns * 7 + rtt_ns) / 8;
        }
        self.longest.raise(now, rtt_ns);
    }

    /// The time that a response may take.
    #[inline]
    const fn expected_ns(&self) -> Option<u64> {
        match self.smoothed_ns {
            UNKNOWN_NS => None,
            smoothed_ns => Some(smoothed_ns + self.variation_ns * 4),
        }
    }

    /// The retransmission timeout: no response takes as long.
    fn rto(&self, now: Instant) -> Duration {
        let known = self.smoothed_ns != UNKNOWN_NS;
        let smoothed = Duration::from_nanos(if known { self.smoothed_ns } else { 0 });
        let longest = Duration::from_nanos(self.longest.at(now));
        RTO_MIN.max(smoothed * RTO_ROUND_TRIPS).max(longest * 2)
    }
}

impl DecayingMax {
    const NOTHING: Self = Self { time_ns: 0, at: Instant::from_nanos(0) };

    fn raise(&mut self, now: Instant, time_ns: u64) {
        // It decays, so that its age need not be known where it is passed anyway.
        if time_ns >= self.time_ns || time_ns >= self.at(now) {
            *self = Self { time_ns, at: now };
        }
    }

    #[inline]
    fn at(&self, now: Instant) -> u64 {
        if self.time_ns == 0 {
            return 0;
        }
        let age_ns = now.nanos_since(self.at);
        if age_ns < HALF_LIFE_NS {
            self.time_ns
        } else {
            self.time_ns >> (age_ns / HALF_LIFE_NS).min(31)
        }
    }
}

impl RetryTimer {
    /// A stopped timer.
    pub(crate) const fn new() -> Self {
        Self {
            deadline: None,
            progress_at: Instant::from_nanos(0),
            quiet_since: Instant::from_nanos(0),
            tries: 0,
            timeouts: 0,
            retries: 0,
            read: false,
            seeding: false,
            ceiling_ns: ceiling_ns(0),
            floor: DecayingMax::NOTHING,
            fastest_ns: UNKNOWN_NS,
            rtts: [RttEstimate::UNKNOWN; 2],
            latest_ns: [0; 2],
            initial_ns: nanos(PROBE_INITIAL),
            negotiated_ns: 0,
        }
    }

    /// Sets what the connection agreed on: a timeout code and a retry count of 0..=7.
    pub(crate) fn connect(&mut self, timeout_code: u8, retries: u8) {
        self.negotiated_ns = timeout(timeout_code).map_or(0, nanos);
        self.ceiling_ns = ceiling_ns(self.negotiated_ns);
        self.retries = u32::from(retries.min(7));
    }

    /// Notes that REQ or REP was sent: the time until the first packet leaves seeds the estimate.
    pub(crate) fn seed_rtt(&mut self, now: Instant) {
        (self.seeding, self.progress_at) = (true, now);
    }

    /// When [`Self::expired`] has work.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Starts the timer for a packet that left, if it does not run. `read` tells whether the oldest request
    /// is a READ.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, read: impl FnOnce() -> bool) {
        if self.deadline.is_none() {
            self.start(now, read);
        }
    }

    /// The same of one that does not run.
    #[inline]
    pub(crate) fn start(&mut self, now: Instant, read: impl FnOnce() -> bool) {
        if self.seeding {
            self.seed(now);
        }
        (self.progress_at, self.quiet_since, self.read) = (now, now, read());
        self.rearm(now);
    }

    #[cold]
    fn seed(&mut self, now: Instant) {
        self.seeding = false;
        self.took_at_most(now.nanos_since(self.progress_at));
    }

    /// Tries without progress so far.
    pub(crate) const fn tries(&self) -> u32 {
        self.tries
    }

    /// Restarts the timer: a packet was resent on evidence, so its response takes a round trip from now.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.quiet_since = now;
        self.rearm(now);
    }

    /// Acts on an acknowledgement. `outstanding` tells whether more is in flight, and `read` whether the
    /// oldest of it is a READ.
    #[inline]
    pub(crate) fn progress(
        &mut self,
        now: Instant,
        outstanding: bool,
        read: impl FnOnce() -> bool,
    ) {
        if outstanding {
            self.goes_on(now, read());
        } else {
            // All else begins anew with the next packet.
            (self.tries, self.timeouts, self.deadline) = (0, 0, None);
        }
    }

    fn goes_on(&mut self, now: Instant, read: bool) {
        let same = self.tries == 0 && self.progress_at == now && self.read == read;
        if same && self.deadline.is_some() {
            // One of several in a burst.
            return;
        }
        (self.tries, self.timeouts) = (0, 0);
        (self.progress_at, self.quiet_since, self.read) = (now, now, read);
        self.rearm(now);
    }

    /// Takes a round trip that was measured on a packet sent once (Karn's rule).
    #[inline]
    pub(crate) fn sample(&mut self, now: Instant, rtt_ns: u64, read: bool) {
        self.rtts[usize::from(read)].sample(now, rtt_ns);
        self.fastest_ns = self.fastest_ns.min(rtt_ns);
        if !read {
            self.resend_answered(rtt_ns);
        }
    }

    /// Notes how long the response to a resent packet took. It may be to the first copy, and counts only for
    /// [`Self::is_slow`].
    #[inline]
    pub(crate) const fn resend_answered(&mut self, after_ns: u64) {
        self.latest_ns = [self.latest_ns[1], after_ns];
    }

    /// Notes how long the answer to a probe took, which was sent once.
    pub(crate) fn probe_answered(&mut self, after_ns: u64) {
        self.fastest_ns = self.fastest_ns.min(after_ns);
        self.took_at_most(after_ns);
    }

    /// Takes a time that some round trip took at most: the handshake's, of a probe, or of a packet whose response waited for what was
    /// lost. The shortest of them stands for a measured one as long as there is none: where losses are frequent, hardly any packet
    /// is measured.
    pub(crate) fn took_at_most(&mut self, ns: u64) {
        self.initial_ns = self.initial_ns.min(ns.saturating_mul(SEED_ROUND_TRIPS));
    }

    /// Whether packets with our data have to wait on the path: the last two round trips took more than one and a half
    /// times the shortest one. One alone may only have lost its response.
    pub(crate) fn is_slow(&self) -> bool {
        let [before_ns, last_ns] = self.latest_ns;
        // More than any, where none is known.
        before_ns.min(last_ns) > self.fastest_ns.saturating_add(self.fastest_ns / 2)
    }

    /// Whether a response that came this long after a resend or a probe is to an older copy: it took less than
    /// half of the shortest round trip. A probe and a short packet carry less than what was measured, so their
    /// responses are somewhat quicker.
    pub(crate) const fn is_too_soon(&self, after_ns: u64) -> bool {
        self.fastest_ns != UNKNOWN_NS && after_ns < self.fastest_ns / 2
    }

    /// Acts on a response that shows that the timer expired early: the first copy was only late.
    pub(crate) fn was_early(&mut self, now: Instant) {
        let late = now.saturating_since(self.progress_at) * 2;
        self.floor.raise(now, nanos(late.min(FLOOR_MAX)));
        (self.tries, self.timeouts) = (0, 0);
    }

    /// Moves the first probe timeout to where it is after a response was requested, at `at`: it may have been requested long after
    /// the first packet left.
    pub(crate) fn put_off(&mut self, now: Instant, at: Instant) {
        let due = after(at, self.wait_ns(now));
        let due = self.gives_up_at().map_or(due, |end| due.min(end));
        if self.tries == 0 && due > now {
            self.deadline = Some(due);
        }
    }

    /// Moves the whole schedule to `until`, the end of an RNR pause. The peer is there, so the back-off
    /// ends.
    pub(crate) fn pause(&mut self, until: Instant) {
        (self.tries, self.timeouts) = (0, 0);
        (self.progress_at, self.quiet_since) = (until, until);
        self.deadline = None;
    }

    /// Checks the timer, and backs off if it has expired.
    pub(crate) fn expired(&mut self, now: Instant) -> Expiry {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Expiry::None;
        }
        if self.gives_up_at().is_some_and(|at| now >= at) {
            self.deadline = None;
            return Expiry::GiveUp;
        }
        self.tries = self.tries.saturating_add(1);
        let rto = now >= self.rto_at(now);
        if rto {
            self.quiet_since = now;
            self.timeouts += 1;
        }
        self.rearm(now);
        if rto { Expiry::Resend } else { Expiry::Probe }
    }

    /// The probe timeout without back-off.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.wait_ns(now))
    }

    #[inline]
    fn wait_ns(&self, now: Instant) -> u64 {
        let expected_ns = |read: bool| self.rtts[usize::from(read)].expected_ns();
        let expected = expected_ns(self.read).or_else(|| expected_ns(!self.read));
        let floor_ns = self.floor.at(now).max(nanos(PROBE_MIN));
        expected.unwrap_or(self.initial_ns).max(floor_ns).min(self.ceiling_ns)
    }

    /// The longest that a packet which leaves now, or its response, may be in the network.
    pub(crate) fn life(&self, now: Instant) -> Duration {
        let [data, read] = self.rtts.map(|rtt| rtt.longest.at(now));
        let longest = Duration::from_nanos(data.max(read)).saturating_mul(LIFE_LONGEST);
        (self.wait(now) * LIFE_EXPECTED).max(longest).clamp(LIFE[0], LIFE[1])
    }

    /// When the retransmission timeout ends: well before giving up.
    fn rto_at(&self, now: Instant) -> Instant {
        let rto = self.rtts[usize::from(self.read)].rto(now);
        let rto = rto.saturating_mul(1 << self.timeouts.saturating_sub(RTO_SAME).min(16));
        let half = self.gives_up_after_ns().map(|ns| Duration::from_nanos(ns / 2));
        self.quiet_since + half.map_or(rto, |half| rto.min(half))
    }

    /// When to give up; `None` until the negotiated retries were made.
    fn gives_up_at(&self) -> Option<Instant> {
        let ns = self.gives_up_after_ns().filter(|_| self.tries >= self.retries)?;
        Some(after(self.progress_at, ns))
    }

    /// The time without progress after which the timer gives up, if it ever does.
    fn gives_up_after_ns(&self) -> Option<u64> {
        let ns = self.negotiated_ns.saturating_mul(u64::from(self.retries) + 1);
        (ns > 0).then_some(ns)
    }

    #[inline(always)]
    fn rearm(&mut self, now: Instant) {
        let wait_ns = self.wait_ns(now);
        if self.tries == 0 && self.retries > 0 {
            self.deadline = Some(after(now, wait_ns));
        } else {
            self.back_off(now, wait_ns);
        }
    }

    #[inline(never)]
    fn back_off(&mut self, now: Instant, wait_ns: u64) {
        let soonest = after(now, wait_ns);
        let known = self.rtts.iter().any(|rtt| rtt.smoothed_ns != UNKNOWN_NS);
        let longest_ns = if known { u64::MAX } else { wait_ns.max(nanos(PROBE_INITIAL)) };
        let soon_ns = wait_ns.saturating_mul(1 << self.tries.min(BACKOFF_SOON)).min(longest_ns);
        let doublings = self.tries.saturating_sub(SILENT_AFTER).min(16);
        let wait_ns = soon_ns.saturating_mul(1 << doublings).min(self.ceiling_ns);
        let next = after(now, wait_ns);
        let next = if self.tries > 0 { next.min(self.rto_at(now).max(soonest)) } else { next };
        // Giving up is not delayed, except for the round trip of the last try.
        self.deadline = Some(self.gives_up_at().map_or(next, |at| next.min(at.max(soonest))));
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
        timer.sent(at(0), || false);
        let mut now = at(0);
        let resends = loop {
            now = timer.deadline().unwrap_or(now);
            match timer.expired(now) {
                Expiry::GiveUp => break now,
                Expiry::Probe | Expiry::Resend => assert!(now < at(300)),
                Expiry::None => unreachable!(),
            }
        };
        assert!(resends >= at(201) && resends < at(300), "{resends:?}");
    }

    #[test]
    fn a_short_negotiated_timeout_still_gets_its_retries() {
        let mut timer = RetryTimer::new();
        timer.connect(1, 3);
        timer.sent(at(0), || false);
        for _ in 0..3 {
            assert_ne!(timer.expired(timer.deadline().unwrap()), Expiry::GiveUp);
        }
        assert_eq!(timer.expired(timer.deadline().unwrap()), Expiry::GiveUp);
    }

    #[test]
    fn backoff_is_bounded() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(at(0), nanos(Duration::from_micros(50)), false);
        timer.sent(at(0), || false);
        let mut waits = std::vec::Vec::new();
        let mut now = at(0);
        while timer.expired(now) != Expiry::GiveUp {
            let next = timer.deadline().unwrap();
            waits.push(next.saturating_since(now).as_nanos() / PROBE_MIN.as_nanos());
            now = next;
        }
        // A few soon, as what was sent again may be lost too; few in all, as nobody may be there.
        assert_eq!(waits[..12], [1, 2, 4, 4, 4, 4, 4, 4, 4, 8, 16, 32], "{waits:?}");
        assert!(waits.len() < 30, "{waits:?}");
        let silence = timeout(17).unwrap() * 8;
        assert!((silence..=silence + PROBE_MIN).contains(&now.saturating_since(at(0))), "{now:?}");
    }

    /// The wait for a probe where nothing is known of the path is no reason to wait longer for the next.
    #[test]
    fn an_unknown_path_is_probed_ten_times_a_second() {
        let mut timer = RetryTimer::new();
        timer.connect(20, 7);
        timer.sent(at(0), || false);
        for tenth in 1..=SILENT_AFTER {
            let now = at(u64::from(tenth) * 100);
            assert_eq!(timer.deadline(), Some(now));
            assert_ne!(timer.expired(now), Expiry::None);
        }
    }

    /// A response to the last resend may still be on its way, so the next one waits longer.
    #[test]
    fn resends_back_off() {
        let mut timer = RetryTimer::new();
        timer.connect(20, 7);
        timer.sample(at(0), nanos(Duration::from_micros(50)), false);
        timer.sent(at(0), || false);
        let (mut waits, mut last) = (std::vec::Vec::new(), at(0));
        while waits.len() < 6 {
            let now = timer.deadline().unwrap();
            if timer.expired(now) == Expiry::Resend {
                waits.push(now.saturating_since(last).as_millis());
                last = now;
            }
        }
        assert_eq!(waits, [500, 500, 500, 500, 1000, 2000]);
    }

    #[test]
    fn a_maximum_that_is_reached_again_lasts_from_then() {
        let half_life = HALF_LIFE_NS / 1_000_000;
        let mut longest = DecayingMax::NOTHING;
        longest.raise(at(0), 8);
        longest.raise(at(half_life - 1), 8);
        assert_eq!(longest.at(at(2 * half_life - 2)), 8);
        assert_eq!(longest.at(at(2 * half_life - 1)), 4);
    }

    #[test]
    fn progress_restores_the_retries() {
        let mut timer = RetryTimer::new();
        timer.connect(14, 1);
        timer.sent(at(0), || false);
        for step in 1..100 {
            timer.progress(at(step * 100), true, || false);
        }
        assert_eq!(timer.expired(at(9_901)), Expiry::None);
        timer.progress(at(10_000), false, || false);
        assert_eq!(timer.deadline(), None);
    }

    #[test]
    fn the_handshake_says_how_long_a_round_trip_may_be() {
        for (took_ms, expected_ms) in [(0, 0), (1, 3), (20, 60), (50, 100), (90_000, 100)] {
            let mut timer = RetryTimer::new();
            timer.connect(17, 7);
            timer.seed_rtt(at(5));
            timer.sent(at(5 + took_ms), || false);
            timer.sent(at(9_000_000), || false);
            let expected = Duration::from_millis(expected_ms).max(PROBE_MIN);
            assert_eq!(timer.deadline(), Some(at(5 + took_ms) + expected));
            timer.sample(at(0), nanos(Duration::from_millis(7)), false);
            timer.restart(at(100));
            assert_eq!(timer.deadline(), Some(at(121)), "a measure is better");
        }
    }

    #[test]
    fn the_shortest_time_of_a_round_trip_stands_for_a_measured_one() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        for (took_ms, expected_ms) in [(50, 100), (20, 60), (30, 60), (10, 30)] {
            timer.took_at_most(nanos(Duration::from_millis(took_ms)));
            assert_eq!(timer.wait(at(0)).as_millis(), expected_ms);
        }
        timer.probe_answered(nanos(Duration::from_millis(1)));
        assert_eq!(timer.wait(at(0)).as_millis(), 3);
        timer.sample(at(0), nanos(Duration::from_millis(7)), false);
        timer.took_at_most(0);
        assert_eq!(timer.wait(at(0)).as_millis(), 21, "a measure is better");
    }

    /// One long round trip alone may have lost its response; those of READs carry data, and tell nothing.
    #[test]
    fn two_long_round_trips_in_a_row_show_a_slow_path() {
        let mut timer = RetryTimer::new();
        let us = |us: u64| us * 1000;
        let slow =
            [(100, false), (150, false), (151, false), (150, false), (151, false), (151, true)];
        for (rtt, expected) in slow {
            timer.sample(at(0), us(rtt), false);
            timer.sample(at(0), us(900), true);
            assert_eq!(timer.is_slow(), expected, "{rtt}");
        }
        timer.resend_answered(us(150));
        assert!(!timer.is_slow());
    }

    #[test]
    fn a_measured_round_trip_shortens_the_timer() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(at(0), nanos(Duration::from_micros(50)), false);
        timer.sent(at(0), || false);
        assert_eq!(timer.deadline(), Some(at(0) + PROBE_MIN));
    }

    /// RFC 3522 and RFC 4015 in spirit: an answer that was only late raises the floor, restores the
    /// back-off, and is forgotten in time.
    #[test]
    fn a_late_answer_raises_the_floor_for_a_while() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(at(0), nanos(Duration::from_micros(50)), false);
        timer.sent(at(0), || false);
        assert_eq!(timer.expired(at(1)), Expiry::Probe);
        assert_eq!(timer.tries(), 1);
        timer.was_early(at(10));
        timer.progress(at(10), true, || false);
        assert_eq!((timer.tries(), timer.deadline()), (0, Some(at(30))));
        timer.was_early(at(9_000));
        assert_eq!(timer.wait(at(9_000)), FLOOR_MAX);
        assert_eq!(timer.wait(at(9_000 + 10_000)), FLOOR_MAX / 2);
        assert_eq!(timer.wait(at(9_000 + 100_000)), PROBE_MIN);
    }

    #[test]
    fn a_copy_is_waited_for_as_long_as_the_slowest_answers_take() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        for (longest, life) in [(1, 10), (150, 600), (900, 3600), (3000, 4000)] {
            timer.sample(at(0), nanos(Duration::from_millis(longest)), true);
            (0..100).for_each(|_| timer.sample(at(0), nanos(Duration::from_micros(50)), true));
            assert_eq!(timer.life(at(0)).as_millis(), life);
        }
    }

    /// The retransmission timeout is ten typical round trips and twice the longest, of READs apart, and
    /// stays below the time to give up.
    #[test]
    fn nothing_is_repeated_without_evidence_before_it_is_too_late_for_an_answer() {
        let wait = |round_trips: &[u64], code, retries| {
            let mut timer = RetryTimer::new();
            timer.connect(code, retries);
            for ms in round_trips {
                timer.sample(at(0), nanos(Duration::from_millis(*ms)), true);
                timer.sample(at(0), nanos(Duration::from_micros(20)), false);
            }
            timer.sent(at(0), || true);
            loop {
                let now = timer.deadline().unwrap();
                if timer.expired(now) != Expiry::Probe {
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
