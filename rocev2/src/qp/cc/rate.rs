//! The rate of one QP: DCQCN's reaction point, and the token bucket that paces the packets.
//!
//! A QP sends unpaced until congestion is signalled. From then on it has a rate: each signal cuts it, and
//! time and bytes without a signal raise it again, until it is the link's and pacing ends (Zhu et al.,
//! "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015). Nothing here runs by a timer: each
//! call makes up for the time since the last one. All arithmetic is on integers, because a kernel has no
//! others.
//!
//! Two things differ from the paper. Where many respond to one, each is idle between its responses: so
//! while a QP sends nothing, its rate does not rise and its bucket does not fill. And a loss is rarer than
//! a mark, so alpha, an average of marks, cannot weigh it: a loss halves the rate, and takes a part off the
//! rate that it returns to.

use super::congestion::{CNP_INTERVAL, DcqcnConfig};
use crate::env::{Duration, Instant};

/// The value 1 of alpha.
const ONE: u64 = 1 << 20;
/// The gain g of alpha's average, as a shift: 1/256.
const GAIN: u32 = 8;
/// Each such time without a signal lowers alpha once and raises the rate once (K and T of the paper).
const TICK: Duration = Duration::from_micros(55);
/// The number of rises towards the rate before the cut, after which the target rises, too (F of the paper).
const FAST_RECOVERY: u32 = 5;
/// The link's rate divided by the additive rise of the target; and the hyper rise in additive ones.
const ADDITIVE: u64 = 1000;
const HYPER: u64 = 10;
/// Signals closer together cut the rate once.
const CUT_INTERVAL: Duration = Duration::from_micros(4);
/// The depth of the bucket: how late a sender may be and still catch up. A host's timer is late by this
/// much, and a link's buffers hold that many bytes.
const BUCKET_DEPTH: Duration = Duration::from_micros(100);
/// The packets that may leave together though the bucket has just filled, as a unit of several packets
/// costs less.
const QUANTUM: Duration = Duration::from_micros(8);

/// The actual rate of a QP is measured over at least this long.
const MEASURE: Duration = Duration::from_millis(1);

/// A rate is held for so many times as long as the news of a loss took, or would take at most.
const HOLD: u32 = 2;
const LATE_MAX: Duration = Duration::from_secs(1);

/// Idle gaps shorter than this do not count towards the recovery of the rate.
const PAUSE: Duration = Duration::from_millis(10);
const SECOND_NS: u64 = 1_000_000_000;

/// How fast a QP may send. Rates are bytes of packets per second.
#[derive(Debug)]
pub(crate) struct Rate {
    line: u64,
    min: u64,
    /// The configured minimum; on a slower link the link's rate counts.
    config_min: u64,
    /// Packets are paced. Otherwise there is no congestion, and nothing below counts.
    active: bool,
    current: u64,
    target: u64,
    /// The recent congestion of the path, 0 to [`ONE`].
    alpha: u64,
    cut_at: Instant,
    ticked_at: Instant,
    /// Bytes sent since `byte_rises` grew.
    bytes: u64,
    tick_rises: u32,
    byte_rises: u32,
    /// Nothing raises the rate before.
    held_until: Instant,
    /// When the bucket has a token again; a time in the past is credit.
    paced_until: Instant,
    blocked: bool,
    /// When the last wait for a token ended. A packet at that instant may use the burst.
    unblocked_at: Instant,
    sent_at: Instant,
    /// The start of the running measurement, and its bytes.
    measured_from: Instant,
    measured_bytes: u64,
    /// The bytes of the last measurement, and its nanoseconds; 0 if there was none. Only a cut divides them.
    last_bytes: u64,
    last_ns: u32,
}

impl Rate {
    /// A rate without pacing. The rates of `config` are brought between 1 and 2^40.
    pub(crate) fn new(config: DcqcnConfig) -> Self {
        let line = sensible(config.line_rate);
        Self {
            line,
            min: config.min_rate.clamp(1, line),
            config_min: config.min_rate,
            active: false,
            current: line,
            target: line,
            alpha: ONE,
            cut_at: Instant::default(),
            ticked_at: Instant::default(),
            bytes: 0,
            tick_rises: 0,
            byte_rises: 0,
            held_until: Instant::default(),
            paced_until: Instant::default(),
            blocked: false,
            unblocked_at: Instant::default(),
            sent_at: Instant::default(),
            measured_from: Instant::default(),
            measured_bytes: 0,
            last_bytes: 0,
            last_ns: 0,
        }
    }

    /// Sets the link's rate, in bytes per second. Pacing goes on within it.
    pub(crate) fn set_line(&mut self, line_rate: u64) {
        self.line = sensible(line_rate);
        self.min = self.config_min.clamp(1, self.line);
        for rate in [&mut self.current, &mut self.target] {
            *rate = (*rate).clamp(self.min, self.line);
        }
        // The old measurement tells nothing about the new link.
        (self.last_ns, self.measured_bytes) = (0, 0);
    }

    /// The current rate in bytes per second; `None` without pacing.
    pub(crate) fn current(&mut self, now: Instant) -> Option<u64> {
        self.catch_up(now);
        self.active.then_some(self.current)
    }

    /// Cuts the rate for a loss, and takes a `part`th off the one that the QP returns to. The window may have held the QP back until now, and no stream of marks
    /// brings it down from the link's rate: so the cut applies to the rate that it actually sent at.
    ///
    /// `behind`: bytes that have left behind a response, where the news of its loss may have come late. The rate is held until
    /// that of another one would be here. Where it takes a peer's timeout, the rate would be the link's again before, and fill the
    /// same queue as often as that drains.
    pub(crate) fn cut_by_loss(&mut self, now: Instant, part: u64, behind: Option<u64>) {
        if self.cut(now) {
            let sent = self.measured().clamp(self.min, self.target);
            if let Some(behind) = behind {
                let sending = Duration::from_nanos(behind.saturating_mul(SECOND_NS) / sent);
                let late = now.saturating_since(self.sent_at) + sending;
                self.held_until = self.held_until.max(now + HOLD * late.min(LATE_MAX));
            }
            self.target = (sent - sent / part).max(self.min);
            self.current = (self.target / 2).max(self.min);
        }
    }

    /// Ends a measurement, and begins another.
    fn measure(&mut self, now: Instant) {
        let ns = now.nanos_since(self.measured_from);
        // An idle time tells nothing about the path.
        let pause = ns >= 10 * MEASURE.as_nanos() as u64;
        (self.last_bytes, self.last_ns) = (self.measured_bytes, if pause { 0 } else { ns as u32 });
        (self.measured_from, self.measured_bytes) = (now, 0);
    }

    /// The rate that the last measurement found; that of the link, if there was none.
    fn measured(&self) -> u64 {
        // No link carries so much in that time that the product overflows.
        let product = self.last_bytes.saturating_mul(SECOND_NS);
        product.checked_div(self.last_ns.into()).unwrap_or(self.line)
    }

    /// Cuts the rate for a notification, once in the time in which a notification point sends one (N of the paper). Hardware may send
    /// one every 4 us, and a forger as many as the link carries.
    pub(crate) fn cut_by_notification(&mut self, now: Instant) {
        if !self.active || now.saturating_since(self.cut_at) >= CNP_INTERVAL {
            self.cut(now);
        }
    }

    /// Cuts the rate for a signal of congestion. Returns false where the last cut covers it.
    pub(crate) fn cut(&mut self, now: Instant) -> bool {
        self.catch_up(now);
        if self.active && now.saturating_since(self.cut_at) < CUT_INTERVAL {
            return false;
        }
        if !self.active {
            self.active = true;
            (self.current, self.alpha, self.paced_until) = (self.line, ONE, now);
        }
        self.target = self.current;
        self.current = (self.current - self.current * self.alpha / ONE / 2).max(self.min);
        self.alpha += (ONE - self.alpha) >> GAIN;
        (self.cut_at, self.ticked_at) = (now, now);
        (self.bytes, self.tick_rises, self.byte_rises) = (0, 0, 0);
        true
    }

    /// Whether packets are paced.
    pub(crate) const fn is_active(&self) -> bool {
        self.active
    }

    /// Whether a paced packet has to wait for [`Self::deadline`].
    pub(crate) const fn blocked(&self) -> bool {
        self.blocked
    }

    /// When [`Self::handle_timeout`] has work.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.blocked.then_some(self.paced_until)
    }

    /// Lets packets leave once there is a token. Returns the length of the wait that ended.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Duration> {
        if !self.blocked || self.paced_until > now {
            return None;
        }
        (self.blocked, self.unblocked_at) = (false, now);
        Some(now.saturating_since(self.sent_at))
    }

    /// The number of packets of `packet_len` bytes that may leave in one unit.
    pub(crate) fn allowed(&mut self, now: Instant, packet_len: usize) -> usize {
        let Some(current) = self.current(now) else { return usize::MAX };
        let saved = now.saturating_since(self.paced_until).min(self.burst(now)) + QUANTUM;
        let bytes = u128::from(current) * saved.as_nanos() / u128::from(SECOND_NS);
        (bytes as usize / packet_len.max(1)).max(1)
    }

    /// Notes that `bytes` of packets have left.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize) {
        let bytes = bytes as u64;
        self.measured_bytes += bytes;
        if now.nanos_since(self.measured_from) >= MEASURE.as_nanos() as u64 {
            self.measure(now);
        }
        if self.active {
            self.pay(now, bytes);
        }
        self.sent_at = now;
    }

    /// Takes tokens out of the bucket for `bytes` of packets.
    fn pay(&mut self, now: Instant, bytes: u64) {
        self.catch_up(now);
        let cap = self.burst(now);
        self.sent_at = now;
        if !self.active {
            return;
        }
        let cost = Duration::from_nanos((bytes * SECOND_NS).div_ceil(self.current));
        self.paced_until = self.paced_until.max(now - cap) + cost;
        self.blocked = self.paced_until > now;
        self.bytes += bytes;
        if self.bytes >= self.byte_reset() && now >= self.held_until {
            self.bytes = 0;
            self.byte_rises += 1;
            self.rise();
        }
    }

    /// Ends pacing, for good or until the next signal.
    pub(crate) fn release(&mut self) {
        (self.active, self.blocked) = (false, false);
    }

    /// The burst that is allowed now. Only a sender that had to wait may use it: if idle senders could,
    /// many that begin together would fill the queue at once.
    fn burst(&self, now: Instant) -> Duration {
        if self.unblocked_at == now { BUCKET_DEPTH } else { Duration::ZERO }
    }

    /// The bytes that raise the rate once: 2 ms of the link (B of the paper), and more than a unit.
    const fn byte_reset(&self) -> u64 {
        let bytes = self.line / 500;
        if bytes > 1 << 16 { bytes } else { 1 << 16 }
    }

    /// Makes up for the ticks since the last call. The loop ends at the link's rate at the latest, some
    /// thousand ticks away.
    fn catch_up(&mut self, now: Instant) {
        self.ticked_at = self.ticked_at.max(self.held_until.min(now));
        while self.active && now.saturating_since(self.ticked_at) >= TICK {
            let busy_until = self.sent_at.max(self.paced_until);
            let idle = self.ticked_at.saturating_since(busy_until);
            self.ticked_at = self.ticked_at + TICK;
            if idle > Duration::ZERO && idle < PAUSE {
                continue;
            }
            self.alpha -= self.alpha >> GAIN;
            self.tick_rises += 1;
            self.rise();
        }
    }

    fn rise(&mut self) {
        let additive = self.line / ADDITIVE;
        let (ticks, bytes) = (self.tick_rises, self.byte_rises);
        let step = if ticks.max(bytes) < FAST_RECOVERY {
            0
        } else if ticks.min(bytes) > FAST_RECOVERY {
            u64::from(ticks.min(bytes) - FAST_RECOVERY).saturating_mul(HYPER * additive)
        } else {
            additive
        };
        self.target = self.target.saturating_add(step).min(self.line);
        self.current = (self.current + self.target).div_ceil(2);
        if self.current + additive >= self.line {
            self.release();
        }
    }
}

/// Brings a rate between its least useful value and 2^40.
fn sensible(line_rate: u64) -> u64 {
    line_rate.clamp(ADDITIVE, 1 << 40)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: u64 = 1_250_000_000;
    const MIN: u64 = 1_250_000;
    const LOSS_CUT: u64 = 4;
    const CNP_INTERVAL: u64 = 50_000;
    const TICK_NS: u64 = TICK.as_nanos() as u64;

    fn rate() -> Rate {
        Rate::new(DcqcnConfig { line_rate: LINE, min_rate: MIN })
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    /// There is something to send all the time.
    fn always_sends(rate: &mut Rate) {
        rate.paced_until = at(SECOND_NS);
    }

    #[test]
    fn without_a_signal_there_is_no_pace() {
        let mut rate = rate();
        for step in 0..1000 {
            assert_eq!(rate.allowed(at(step), 4096), usize::MAX);
            rate.sent(at(step), 65_000);
            assert!(!rate.blocked() && rate.deadline().is_none());
        }
        assert_eq!(rate.current(at(1000)), None);
    }

    #[test]
    fn the_first_signal_halves_and_each_further_one_cuts_by_half_of_alpha() {
        let mut rate = rate();
        rate.cut(at(0));
        assert_eq!((rate.current, rate.target, rate.alpha), (LINE / 2, LINE, ONE));
        rate.alpha = ONE / 4;
        rate.cut(at(CNP_INTERVAL));
        assert_eq!(rate.target, LINE / 2);
        assert_eq!(rate.current, LINE / 2 - LINE / 16);
        assert_eq!(rate.alpha, ONE / 4 + ONE * 3 / 4 / 256);
    }

    #[test]
    fn signals_at_once_are_one_signal() {
        let mut rate = rate();
        for ns in [0, 1, 3_999] {
            rate.cut(at(ns));
        }
        assert_eq!(rate.current, LINE / 2);
        rate.cut(at(4_000));
        assert_eq!(rate.current, LINE / 4);
    }

    /// Ten in 50 us do not bring a rate to its least.
    #[test]
    fn notifications_at_once_are_one_in_50_us() {
        let mut rate = rate();
        (0..10).for_each(|n| rate.cut_by_notification(at(n * 5_000)));
        assert_eq!(rate.current, LINE / 2);
        rate.cut_by_notification(at(CNP_INTERVAL));
        assert_eq!(rate.current, LINE / 4);
    }

    #[test]
    fn alpha_falls_by_its_gain_each_tick_without_a_signal() {
        let mut rate = rate();
        rate.cut(at(7));
        always_sends(&mut rate);
        assert!(rate.current(at(7 + TICK_NS - 1)).is_some());
        assert_eq!(rate.alpha, ONE);
        assert!(rate.current(at(7 + 2 * TICK_NS)).is_some());
        let once = ONE - ONE / 256;
        assert_eq!(rate.alpha, once - once / 256);
    }

    #[test]
    fn fast_recovery_halves_the_distance_to_the_rate_before_the_cut() {
        let mut rate = rate();
        rate.cut(at(0));
        rate.cut(at(CNP_INTERVAL));
        always_sends(&mut rate);
        let mut expected = LINE / 4;
        for tick in 1..u64::from(FAST_RECOVERY) {
            expected = (expected + LINE / 2).div_ceil(2);
            assert_eq!(rate.current(at(CNP_INTERVAL + tick * TICK_NS)), Some(expected));
            assert_eq!(rate.target, LINE / 2);
        }
    }

    #[test]
    fn then_the_target_rises_by_addition() {
        let mut rate = rate();
        rate.cut(at(0));
        rate.cut(at(CNP_INTERVAL));
        always_sends(&mut rate);
        for tick in u64::from(FAST_RECOVERY)..100 {
            rate.catch_up(at(CNP_INTERVAL + tick * TICK_NS));
            let steps = tick - u64::from(FAST_RECOVERY) + 1;
            assert_eq!(rate.target, LINE / 2 + steps * (LINE / ADDITIVE));
        }
    }

    /// Ticks alone rise by addition only; bytes as well, and each step is longer than the last.
    #[test]
    fn then_by_more_and_more_where_both_time_and_bytes_say_so() {
        let mut rate = rate();
        rate.cut(at(0));
        rate.cut(at(CNP_INTERVAL));
        always_sends(&mut rate);
        let now = at(CNP_INTERVAL + 6 * TICK_NS);
        rate.catch_up(now);
        let send = |rate: &mut Rate| {
            let before = (rate.target, rate.byte_rises);
            while rate.byte_rises == before.1 {
                rate.sent(now, 50_000);
            }
            rate.target - before.0
        };
        let additive = LINE / ADDITIVE;
        for _ in 0..5 {
            assert_eq!(send(&mut rate), additive);
        }
        assert_eq!(send(&mut rate), HYPER * additive);
        rate.catch_up(at(CNP_INTERVAL + 7 * TICK_NS));
        assert_eq!(send(&mut rate), 2 * HYPER * additive);
    }

    #[test]
    fn a_loss_cuts_what_was_really_sent_unless_that_is_long_ago() {
        let mut rate = rate();
        let send = |rate: &mut Rate, us: u64| rate.sent(at(us * 1000), 1250);
        (10_000..14_000).step_by(10).for_each(|us| send(&mut rate, us));
        rate.cut_by_loss(at(14_000_000), LOSS_CUT, None);
        let sent = LINE / 10 / LOSS_CUT * (LOSS_CUT - 1);
        assert!((sent - 1000..sent + 1000).contains(&rate.target), "{}", rate.target);
        assert_eq!(rate.current, rate.target / 2);
        rate.release();
        send(&mut rate, 1_000_000);
        rate.cut_by_loss(at(SECOND_NS), LOSS_CUT, None);
        assert_eq!(rate.target, LINE - LINE / LOSS_CUT);
    }

    #[test]
    fn a_link_that_changes_bounds_the_rate_anew() {
        let mut rate = rate();
        rate.cut(at(0));
        rate.set_line(MIN / 2);
        assert_eq!(rate.current(at(1)), Some(MIN / 2), "the link is slower than the least rate");
        rate.set_line(10 * LINE);
        assert_eq!(rate.current(at(1)), Some(MIN), "it goes on from there");
        always_sends(&mut rate);
        assert_eq!(rate.current(at(SECOND_NS / 2)), None, "up to the link's rate");
        rate.cut(at(SECOND_NS));
        assert_eq!(rate.current, 5 * LINE);
    }

    #[test]
    fn a_loss_cuts_as_much_however_long_ago_the_last_one_was() {
        let mut rate = rate();
        rate.cut_by_loss(at(0), LOSS_CUT, None);
        always_sends(&mut rate);
        let now = at(100 * TICK_NS);
        rate.catch_up(now);
        assert!(rate.alpha < ONE / 4 * 3);
        let before = rate.current;
        rate.cut_by_loss(now, LOSS_CUT, None);
        assert_eq!(rate.current, (before - before / LOSS_CUT) / 2);
        rate.cut_by_loss(now, LOSS_CUT, None);
        assert_eq!(rate.current, (before - before / LOSS_CUT) / 2, "losses at once are one");
    }

    /// A peer that keeps nothing of a burst asks for the rest once its timer has expired, long after the queue that overflowed has
    /// drained.
    #[test]
    fn news_that_comes_late_slows_down_until_none_comes() {
        let (mut rate, mut now) = (rate(), 0);
        for _ in 0..10 {
            for _ in 0..5000 {
                rate.handle_timeout(at(now));
                if !rate.blocked() {
                    rate.sent(at(now), 1250);
                }
                now += 1000;
            }
            now += 500_000_000;
            rate.cut_by_loss(at(now), LOSS_CUT, Some(0));
        }
        let slow = rate.current;
        assert!(slow < LINE / 200, "{slow}");
        always_sends(&mut rate);
        assert_eq!(rate.current(at(now + 990_000_000)), Some(slow));
        rate.paced_until = at(now + 2 * SECOND_NS);
        assert_eq!(rate.current(at(now + 2 * SECOND_NS)), None);
    }

    #[test]
    fn news_is_as_late_as_what_has_left_since() {
        for (behind, held_ms) in [(Some(LINE / 10), 200), (Some(u64::MAX), 2000), (None, 0)] {
            let mut rate = rate();
            rate.cut_by_loss(at(0), LOSS_CUT, behind);
            always_sends(&mut rate);
            let slow = rate.current;
            let held = held_ms * 1_000_000;
            assert_eq!(rate.current(at(held)), Some(slow), "{behind:?}");
            assert!(rate.current(at(held + 2 * TICK_NS)).unwrap() > slow, "{behind:?}");
        }
    }

    /// A sender that waits for a response learns nothing of the path. Where many ask one at the same time,
    /// as in each round of an incast, the path would be full again at once.
    #[test]
    fn a_rate_does_not_rise_while_nothing_is_sent_unless_for_long() {
        let mut rate = rate();
        rate.cut(at(0));
        rate.cut(at(CNP_INTERVAL));
        rate.sent(at(CNP_INTERVAL), 1000);
        let pause = PAUSE.as_nanos() as u64;
        let risen = rate.current(at(CNP_INTERVAL + 2 * TICK_NS)).unwrap();
        assert!(risen > LINE / 4);
        assert_eq!(rate.current(at(pause)), Some(risen));
        assert!(rate.current(at(2 * pause)).unwrap() > risen);
        assert_eq!(rate.current(at(10 * pause)), None);
    }

    #[test]
    fn an_idle_sender_saves_no_tokens() {
        let mut rate = rate();
        rate.cut(at(0));
        rate.cut(at(CNP_INTERVAL));
        rate.sent(at(CNP_INTERVAL), 1000);
        rate.handle_timeout(at(CNP_INTERVAL + 10_000));
        assert!(!rate.blocked());
        let now = at(CNP_INTERVAL + 90_000);
        let quantum = rate.current(now).unwrap() * QUANTUM.as_nanos() as u64 / SECOND_NS;
        assert_eq!(rate.allowed(now, 100) as u64, quantum / 100);
        rate.sent(now, quantum as usize);
        assert!(rate.blocked());
    }

    #[test]
    fn sys_11_a_signal_every_50_us_brings_the_least_rate_and_silence_the_link_back() {
        let mut rate = rate();
        let mut now = 0;
        for _ in 0..20 {
            rate.cut(at(now));
            now += CNP_INTERVAL;
        }
        assert_eq!(rate.current(at(now)), Some(MIN));
        let mut last = MIN;
        while let Some(current) = rate.current(at(now)) {
            assert!(current >= last && current <= LINE);
            last = current;
            now += TICK_NS;
            assert!(now < SECOND_NS / 10, "still at {current}");
        }
        assert_eq!(rate.allowed(at(now), 1), usize::MAX);
    }

    #[test]
    fn sending_keeps_to_the_rate_and_a_late_sender_catches_up_a_little() {
        let mut rate = rate();
        rate.cut(at(0));
        // 5000 bytes at 625 MB/s take 8 us.
        rate.sent(at(0), 5000);
        assert_eq!(rate.deadline(), Some(at(8_000)));
        rate.handle_timeout(at(7_999));
        assert!(rate.blocked());
        rate.handle_timeout(at(8_000));
        assert!(!rate.blocked());
        // 200 us later the bucket has what 100 us are worth, and 8 us of a unit, and no more.
        rate.sent(at(8_000), 5000);
        let now = at(216_000);
        rate.handle_timeout(now);
        let current = rate.current(now).unwrap();
        let packets = rate.allowed(now, 1000);
        assert_eq!(packets as u64, current * 108 / 1_000_000 / 1000);
        rate.sent(now, packets * 1000);
        assert!(rate.blocked());
    }

    /// For any steps, a rate is within its bounds, and a paced QP sends no more than it allows.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(u64),
        Cut,
        Lose(Option<u64>),
        Line(u64),
        Send(usize),
    }

    fn steps() -> impl Strategy<Value = std::vec::Vec<Step>> {
        let step = prop_oneof![
            (0..200_000_u64).prop_map(Step::Wait),
            (0..100_000_000_u64).prop_map(Step::Wait),
            Just(Step::Cut),
            any::<Option<u64>>().prop_map(Step::Lose),
            any::<u64>().prop_map(Step::Line),
            (1..65_536_usize).prop_map(Step::Send),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn the_rate_stays_between_least_and_link(
            line in 0..u64::MAX, min in 0..u64::MAX, steps in steps(),
        ) {
            let mut rate = Rate::new(DcqcnConfig { line_rate: line, min_rate: min });
            let mut now = at(0);
            for step in steps {
                match step {
                    Step::Wait(ns) => now = now + Duration::from_nanos(ns),
                    Step::Cut => drop(rate.cut(now)),
                    Step::Line(line) => rate.set_line(line),
                    Step::Lose(behind) => rate.cut_by_loss(now, LOSS_CUT, behind),
                    Step::Send(bytes) => rate.sent(now, bytes),
                }
                let current = rate.current(now).unwrap_or(rate.line);
                prop_assert!((rate.min..=rate.line).contains(&current));
                prop_assert!(current <= rate.target.max(rate.line) && rate.alpha <= ONE);
            }
        }

        #[test]
        fn a_paced_sender_never_exceeds_the_link(gaps in proptest::collection::vec(0..300_000_u64, 1..300)) {
            let mut rate = rate();
            let (mut now, mut sent) = (0, 0);
            for (i, gap) in gaps.iter().enumerate() {
                now += gap;
                if i % 10 == 0 {
                    rate.cut(at(now));
                }
                rate.handle_timeout(at(now));
                while !rate.blocked() {
                    let packets = rate.allowed(at(now), 4096);
                    if packets == usize::MAX {
                        break;
                    }
                    rate.sent(at(now), packets * 4096);
                    sent += packets as u64 * 4096;
                }
                let slack = BUCKET_DEPTH + QUANTUM + QUANTUM;
                let most = (now + slack.as_nanos() as u64) as u128 * u128::from(LINE) / u128::from(SECOND_NS);
                prop_assert!(u128::from(sent) <= most + 2 * 4096);
            }
        }
    }
}
