//! What a connection opens with.

use crate::env::Rng;
use crate::psn::{Msn, Psn};

/// What the connections of a device open with. The default is for products. A test opens close to
/// what it wants to see, as a wrap is 2^24 packets or messages away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Opening {
    /// First PSNs are drawn from the last so many before the wrap, at least 1; `None` draws from all,
    /// so that nobody can guess them.
    pub psns_to_wrap: Option<u32>,
    /// MSN of a responder that has executed nothing yet: 0, as C9-148 has it.
    pub msn: Msn,
    /// RNR retries asked of the peer and made towards it, 0..=7. The default is 7, without limit,
    /// because NDK consumers post their receives after accept has returned.
    pub rnr_retry: u8,
}

impl Default for Opening {
    fn default() -> Self {
        Self { psns_to_wrap: None, msn: Msn::new(0), rnr_retry: 7 }
    }
}

impl Opening {
    /// A first PSN.
    pub(super) fn psn(&self, rng: &mut Rng) -> Psn {
        let drawn = rng.u32();
        match self.psns_to_wrap {
            None => Psn::new(drawn),
            Some(psns) => Psn::new(u32::MAX - drawn % psns.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_psns_are_anywhere_or_just_before_the_wrap() {
        let mut rng = Rng::from_seed([3; 32]);
        let opening = Opening::default();
        assert!((0..100).any(|_| opening.psn(&mut rng).get() < 1 << 22));
        let opening = Opening { psns_to_wrap: Some(3), ..opening };
        let drawn: alloc::collections::BTreeSet<_> =
            (0..100).map(|_| opening.psn(&mut rng).get()).collect();
        assert!(drawn.into_iter().eq(0xff_fffd..=0xff_ffff));
    }
}
