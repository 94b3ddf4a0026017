//! The environment that the caller supplies: time, randomness and memory.
//!
//! The crate reads no clock, draws no entropy and follows no pointer, so the same inputs always give the
//! same packets.

use alloc::boxed::Box;
use core::ops::{Add, Sub};
pub use core::time::Duration;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// A point on the caller's monotonic clock, in nanoseconds since an origin of its choice.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant(u64);

impl Instant {
    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; zero where `earlier` is later.
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The earlier of two deadlines.
    #[inline]
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Time from `earlier` to `self`; zero where `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The duration of a 5-bit timeout code of the wire: 4.096 us * 2^code (IBTA ch. 9, Transport Timer).
pub const fn code_duration(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}

/// The source of every unpredictable number: QPNs, PSNs, communication IDs, keys.
///
/// It is a stream cipher, because a peer that sees some of these numbers must not be able to predict the
/// next. The caller gives its 256-bit seed; a test gives a fixed one and replays a run.
#[derive(Clone, Debug)]
pub struct Rng(
    /// In a box: it has a third of a kilobyte, and a device has several, which its maker moves.
    Box<ChaCha12Rng>,
);

impl Rng {
    /// A generator that always yields the same numbers for the same seed.
    #[inline(never)]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(Box::new(ChaCha12Rng::from_seed(seed)))
    }

    /// An independent generator for another part of the device.
    pub fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Self::from_seed(seed)
    }

    /// 32 uniform bits.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 uniform bits.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`, sufficiently uniform for these uses. `bound` is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // Multiply-shift: the bias is below 2^-32 * bound.
        ((u64::from(self.u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// Names the bytes of a registration to [`Memory`]. The caller of the registration chooses it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RegionId(pub u32);

/// The caller no longer has those bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the memory of the registration is not there")]
pub struct Fault;

/// Access to registered memory, called only after key, rights and range were checked.
pub trait Memory {
    /// Copies `out.len()` bytes at `offset` of `region` into `out`.
    ///
    /// # Errors
    /// [`Fault`] where the range is not backed; `out` may then be partly written.
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault>;

    /// Copies `data` to `offset` of `region`, in ascending address order.
    ///
    /// # Errors
    /// [`Fault`] where the range is not backed; a prefix may then have been written.
    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault>;
}
