use super::*;
use proptest::prelude::*;

/// A device that refuses frames from some length on, and all while its queue is full, at a time that the test decides.
struct Device {
    refusal: Refusal,
    now: Instant,
    /// Frames of this length and longer never leave.
    narrow_len: usize,
    /// Nothing leaves before this time.
    full_until: Instant,
    offers: u32,
}

impl Device {
    fn new(narrow_len: usize) -> Self {
        let now = Instant::now();
        Self { refusal: Refusal::new(), now, narrow_len, full_until: now, offers: 0 }
    }

    /// Offers a frame, as an edge does, until it leaves or is given up. Returns whether it left, and the time that it took.
    fn send(&mut self, len: usize) -> (bool, Duration) {
        let begin = self.now;
        loop {
            assert!(self.refusal.is_due(|| self.now));
            self.offers += 1;
            let left = len < self.narrow_len && self.now >= self.full_until;
            if left {
                self.refusal.has_left(|| len);
            }
            if left || !self.refusal.stays(len, self.now) {
                assert_eq!(self.refusal.retry_after(), None, "the next frame is offered at once");
                return (left, self.now - begin);
            }
            self.now += self.refusal.retry_after().expect("a time to sleep for");
        }
    }

    fn fill(&mut self, time: Duration) {
        self.full_until = self.now + time;
    }
}

#[test]
fn a_full_queue_is_waited_for() {
    let mut device = Device::new(usize::MAX);
    for millis in [1, 50, 99, 7] {
        device.fill(Duration::from_millis(millis));
        assert_eq!(device.send(4158), (true, Duration::from_millis(millis)));
    }
    assert_eq!(device.send(4158), (true, Duration::ZERO));
}

/// Each frame that leaves begins the time anew: a slow shaper is full for ever, and moves.
#[test]
fn a_queue_that_moves_is_waited_for_without_end() {
    let mut device = Device::new(usize::MAX);
    for _ in 0..1000 {
        device.fill(Duration::from_millis(90));
        assert!(device.send(4158).0);
    }
}

#[test]
fn a_refused_frame_is_given_up_after_the_bound_and_those_as_long_at_once() {
    let mut device = Device::new(1515);
    assert_eq!(device.send(4158), (false, PATIENCE));
    let most = (PATIENCE.as_micros() / RETRY.as_micros()) as u32 + 1;
    assert!(device.offers <= most, "{} offers", device.offers);
    for len in [4158, 4159, 4158] {
        assert_eq!(device.send(60), (true, Duration::ZERO));
        assert_eq!(device.send(len), (false, Duration::ZERO));
    }
    // A shorter one may have met a full queue.
    device.fill(Duration::from_millis(20));
    assert_eq!(device.send(1514), (true, Duration::from_millis(20)));
}

/// A peer asks for lengths, each one less, so that none is as long as one that was given up.
#[test]
fn waits_in_vain_end_whatever_lengths_follow() {
    let mut device = Device::new(1515);
    let waited: Duration = (1515..4200).rev().map(|len| device.send(len).1).sum();
    assert!(waited < 2 * PATIENCE, "{waited:?}");
    // Nor does a long frame that leaves between them bring the waits back.
    for _ in 0..100 {
        device.narrow_len = usize::MAX;
        assert!(device.send(4200).0);
        device.narrow_len = 1515;
        assert_eq!(device.send(1600), (false, Duration::ZERO));
    }
    device.now += MEMORY;
    device.narrow_len = usize::MAX;
    assert!(device.send(4200).0);
    device.fill(PATIENCE / 2);
    assert_eq!(device.send(4158), (true, PATIENCE / 2), "a full queue is waited for again");
}

#[test]
fn a_raised_mtu_ends_the_refusals() {
    let mut device = Device::new(1515);
    assert!(!device.send(2000).0 && !device.send(4158).0);
    device.narrow_len = usize::MAX;
    assert_eq!(device.send(4158), (true, Duration::ZERO));
    device.fill(RETRY);
    assert_eq!(device.send(4158), (true, RETRY), "it may be full now");
}

#[test]
fn frames_that_are_never_refused_read_no_clock() {
    let mut refusal = Refusal::new();
    assert!(refusal.is_due(|| unreachable!("no wait")));
    refusal.has_left(|| unreachable!("nothing is remembered"));
    assert_eq!(refusal.retry_after(), None);
}

#[test]
fn what_cannot_be_given_up_is_offered_again_in_time() {
    let (mut refusal, now) = (Refusal::new(), Instant::now());
    let later = now + 10 * PATIENCE;
    assert_eq!((refusal.put_off(now), refusal.put_off(later)), (now, now));
    assert!(!refusal.is_due(|| later) && refusal.is_due(|| later + RETRY));
    assert_eq!(refusal.retry_after(), Some(RETRY));
}

proptest! {
    /// Whatever is refused, and when, all waits in vain of [`MEMORY`] are shorter than twice [`PATIENCE`] together.
    #[test]
    fn waits_in_vain_are_bounded(frames in prop::collection::vec((60_usize..4200, any::<bool>(), 0_u64..40), 1..400)) {
        let mut device = Device::new(usize::MAX);
        let (begin, mut waited) = (device.now, Duration::ZERO);
        for (len, narrow, pause) in frames {
            device.narrow_len = if narrow { 0 } else { usize::MAX };
            let (left, took) = device.send(len);
            prop_assert_eq!(left, !narrow);
            waited += took;
            device.now += Duration::from_millis(pause);
        }
        let windows = (device.now - begin).as_secs_f64() / MEMORY.as_secs_f64();
        let most = 2 * PATIENCE * (windows as u32 + 1);
        prop_assert!(waited < most, "{:?} of {:?}", waited, device.now - begin);
    }
}
