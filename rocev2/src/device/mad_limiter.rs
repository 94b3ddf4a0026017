//! The limit on connection management: a flood of CM messages leaves the work of the device to the connections that exist, and of
//! its own work a share to each who asks in earnest.
//!
//! Messages that name a connection have a share of their own, which no flood of requests touches. In either share, the senders
//! of one hash of the source address have at most a quarter. A REQ that finds no token is remembered ([`Greylist`]): when it comes again it
//! takes tokens that one that comes for the first time leaves.

use super::greylist::Greylist;
use crate::cm::CmConfig;
use crate::env::{Instant, Rng};
use crate::index::Secret;
use crate::path::address_words;
use crate::wire::{About, MadHead};
use alloc::vec::Vec;
use core::net::IpAddr;

/// Units of queue pairs that leave between two CM messages, while both wait.
const UNITS_BETWEEN: u32 = 8;
/// Groups of senders, by a hash of their address that is another in each second.
const GROUPS: usize = 64;
const EPOCH_NS: u64 = 1_000_000_000;
/// The part of a share that one group may have.
const GROUP_PART: u64 = 4;
/// The part of the burst, beside it, that is for repeated requests.
const RESERVED_PART: u64 = 4;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The tokens at `since`, in nanoseconds.
    credit_ns: u64,
    since: Instant,
}

/// The price of a token, in nanoseconds of the time in which the bucket gains it, and the most that a bucket holds.
#[derive(Clone, Copy, Debug)]
struct Tariff {
    cost_ns: u64,
    burst_ns: u64,
}

impl Bucket {
    const fn full(tariff: Tariff) -> Self {
        Self { credit_ns: tariff.burst_ns, since: Instant::from_nanos(0) }
    }

    /// Whether there is a token that does not belong to the last `reserved_ns`.
    fn has(&mut self, now: Instant, tariff: Tariff, reserved_ns: u64) -> bool {
        let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
        self.since = self.since.max(now);
        self.credit_ns = self.credit_ns.saturating_add(passed).min(tariff.burst_ns);
        self.credit_ns >= tariff.cost_ns.saturating_add(reserved_ns)
    }

    const fn take(&mut self, tariff: Tariff) {
        self.credit_ns = self.credit_ns.saturating_sub(tariff.cost_ns);
    }
}

/// Messages of one kind: so many of all senders, and so many of each group.
#[derive(Debug)]
struct Share {
    all: Bucket,
    of_all: Tariff,
    groups: Vec<Bucket>,
    of_group: Tariff,
}

impl Share {
    fn new(config: &CmConfig) -> Self {
        let cost_ns = 1_000_000_000 / u64::from(config.max_rate.max(1));
        let burst = u64::from(config.max_burst.max(1));
        let tariff =
            |cost_ns| Tariff { cost_ns, burst_ns: cost_ns * (burst + burst / RESERVED_PART) };
        let (of_all, of_group) = (tariff(cost_ns), tariff(cost_ns * GROUP_PART));
        let groups = core::iter::repeat_n(Bucket::full(of_group), GROUPS).collect();
        Self { all: Bucket::full(of_all), of_all, groups, of_group }
    }

    /// Whether there is a token for a sender of `group`: one of all, or one that is not reserved.
    fn has(&mut self, now: Instant, group: usize, reserved: bool) -> bool {
        let reserve = |tariff: Tariff| {
            let parts = RESERVED_PART + 1;
            if reserved { 0 } else { tariff.burst_ns / parts }
        };
        let of_all = self.all.has(now, self.of_all, reserve(self.of_all));
        let group = self.groups.get_mut(group);
        of_all && group.is_none_or(|group| group.has(now, self.of_group, reserve(self.of_group)))
    }

    fn take(&mut self, group: usize) {
        self.all.take(self.of_all);
        if let Some(group) = self.groups.get_mut(group) {
            group.take(self.of_group);
        }
    }
}

/// A message that was allowed, until it is worked on.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    names_connection: bool,
    group: usize,
    /// Of a REQ.
    request: Option<u32>,
    repeated: bool,
}

/// Token buckets for received CM messages, and turns for sent ones: one after so many units of queue
/// pairs.
#[derive(Debug)]
pub(super) struct MadLimiter {
    secret: Secret,
    /// Messages that name a connection.
    named: Share,
    /// Requests, and whatever else comes from somebody unknown.
    unknown: Share,
    greylist: Greylist,
    /// The message that was allowed last.
    allowed: Option<Allowed>,
    /// Units of queue pairs since the last message was sent.
    units: u32,
    /// No received message is allowed.
    closed: bool,
}

impl MadLimiter {
    pub(super) fn new(config: &CmConfig, rng: &mut Rng) -> Self {
        Self {
            secret: Secret::new(rng),
            named: Share::new(config),
            unknown: Share::new(config),
            greylist: Greylist::default(),
            allowed: None,
            units: UNITS_BETWEEN,
            closed: false,
        }
    }

    /// Whether there is a token for a received message. It may name a connection that the device has with its sender.
    #[inline(never)]
    pub(super) fn allows(&mut self, now: Instant, head: &MadHead, names_connection: bool) -> bool {
        if self.closed {
            return false;
        }
        let group = self.group(now, head.src);
        let request = match head.about {
            About::Request(id) => Some(self.hash(head.src, id.get().into())),
            About::Connection(_) | About::Other => None,
        };
        let repeated = request.is_some_and(|hash| self.greylist.has(now, hash));
        let allowed = match names_connection {
            true => self.named.has(now, group, true),
            false => self.unknown.has(now, group, repeated),
        };
        self.allowed = allowed.then_some(Allowed { names_connection, group, request, repeated });
        if let Some(hash) = request.filter(|_| !allowed) {
            self.greylist.remember(now, hash);
        }
        allowed
    }

    fn hash(&self, src: IpAddr, word: u64) -> u32 {
        let [high, low] = address_words(src);
        self.secret.hash([high, low, word])
    }

    /// The group of a sender. One that shares a group with a flood is in another a second later.
    fn group(&self, now: Instant, src: IpAddr) -> usize {
        self.hash(src, !(now.as_nanos() / EPOCH_NS)) as usize % GROUPS
    }

    /// Allows no received message from now on, or again as many as the rate allows.
    pub(super) const fn set_closed(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Takes the token of the message that was received and allowed. Returns whether it is a REQ that was refused a while ago.
    pub(super) fn received(&mut self) -> bool {
        let Some(Allowed { names_connection, group, repeated, .. }) = self.allowed else {
            return false;
        };
        let share = if names_connection { &mut self.named } else { &mut self.unknown };
        share.take(group);
        repeated
    }

    /// Remembers the REQ that was received: it found no room, and its peer will repeat it.
    pub(super) fn put_off(&mut self, now: Instant) {
        if let Some(Allowed { request: Some(hash), .. }) = self.allowed {
            self.greylist.remember(now, hash);
        }
    }

    /// Whether a CM message leaves before packets of queue pairs.
    pub(super) const fn sends_first(&self) -> bool {
        self.units >= UNITS_BETWEEN
    }

    /// Notes that a CM message was sent.
    pub(super) const fn sent(&mut self) {
        self.units = 0;
    }

    /// Units of queue pairs that may leave before it.
    pub(super) const fn units_before(&self) -> usize {
        UNITS_BETWEEN.saturating_sub(self.units) as usize
    }

    /// Notes that units of a queue pair were sent.
    pub(super) const fn qp_sent(&mut self, units: usize) {
        self.units = self.units.saturating_add(units as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Duration;
    use crate::ids::CommId;

    fn limiter(config: &CmConfig) -> MadLimiter {
        MadLimiter::new(config, &mut Rng::from_seed([7; 32]))
    }

    /// REQ `n`, from an address of its own.
    fn request(n: u32) -> MadHead {
        MadHead { src: IpAddr::V4(n.into()), about: About::Request(CommId::new(n)) }
    }

    /// The messages that are allowed, of `count` that come at once.
    fn allowed(
        limiter: &mut MadLimiter,
        now: Instant,
        count: u32,
        head: impl Fn(u32) -> MadHead,
    ) -> u32 {
        let known = |head: &MadHead| matches!(head.about, About::Connection(_));
        let mut allowed = 0;
        for head in (0..count).map(head) {
            if limiter.allows(now, &head, known(&head)) {
                limiter.received();
                allowed += 1;
            }
        }
        allowed
    }

    #[test]
    fn a_burst_then_the_rate() {
        let config = CmConfig { max_rate: 1000, max_burst: 12, ..CmConfig::default() };
        let mut limiter = limiter(&config);
        let mut now = Instant::from_nanos(5);
        assert_eq!(allowed(&mut limiter, now, 100, request), 12);
        for round in 1..20 {
            now = now + Duration::from_micros(2_500);
            // Two, and every other time the half that was left makes a third.
            let others = |n| request(1000 * round + n);
            assert!((2..=3).contains(&allowed(&mut limiter, now, 100, others)));
        }
        // Silence saves up no more than a burst, and a clock that goes back nothing.
        let later = now + Duration::from_secs(100);
        assert_eq!(allowed(&mut limiter, later, 100, request), 12);
        assert_eq!(allowed(&mut limiter, now, 100, request), 0);
    }

    #[test]
    fn one_source_has_a_quarter_and_requests_take_nothing_of_connections() {
        let config = CmConfig { max_rate: 1000, max_burst: 12, ..CmConfig::default() };
        let mut limiter = limiter(&config);
        let src = IpAddr::V4(7.into());
        let mut now = Instant::from_nanos(5);
        let of_one = |n| MadHead { src, ..request(n) };
        assert_eq!(allowed(&mut limiter, now, 100, of_one), 12);
        let (mut took, mut others) = (0, 0);
        for round in 0..100 {
            now = now + Duration::from_millis(10);
            took += allowed(&mut limiter, now, 100, of_one);
            others += allowed(&mut limiter, now, 7, |n| request(0x100 + 7 * round + n));
        }
        assert!((230..=262).contains(&took), "{took}");
        assert!(others >= 670, "{others} of 700");
        // Nor do those of connections take from each other, but for the share of all.
        let named = |n| MadHead { src, about: About::Connection(CommId::new(n)) };
        allowed(&mut limiter, now, 1000, request);
        assert_eq!(allowed(&mut limiter, now, 100, named), 15);
        assert_eq!(allowed(&mut limiter, now, 100, request), 0);
    }

    #[test]
    fn what_is_repeated_goes_first() {
        let config = CmConfig { max_rate: 1000, max_burst: 12, ..CmConfig::default() };
        let mut limiter = limiter(&config);
        let mut now = Instant::from_nanos(5);
        let honest = request(9_999_999);
        allowed(&mut limiter, now, 1000, request);
        assert!(!limiter.allows(now, &honest, false) && !limiter.allows(now, &honest, false));
        for round in 1..300 {
            now = now + Duration::from_millis(10);
            allowed(&mut limiter, now, 1000, |n| request(1000 * round + n));
        }
        assert!(limiter.allows(now, &honest, false));
        assert!(limiter.received(), "it is known as one that was refused");
        // It was not allowed because of the token alone.
        assert!(!limiter.allows(now, &request(9_999_998), false));
    }

    #[test]
    fn one_message_between_units() {
        let mut limiter = limiter(&CmConfig::default());
        let mut sent = std::vec::Vec::new();
        for _ in 0..20 {
            sent.push(limiter.sends_first());
            if limiter.sends_first() { limiter.sent() } else { limiter.qp_sent(1) }
        }
        let messages = [0, 9, 18];
        assert!(
            sent.iter().enumerate().all(|(i, first)| *first == messages.contains(&i)),
            "{sent:?}"
        );
    }
}
