//! The opening values of connections.

use crate::env::Rng;
use crate::psn::{Msn, Psn};

/// The first values of the connections of a device. The default is for products. A test opens near the
/// values that it examines, as a wrap is 2^24 packets or messages away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Opening {
    /// The first PSN is one of the last so many before the wrap, at least 1; with `None` it is any PSN, so
    /// that nobody can guess it.
    pub psns_to_wrap: Option<u32>,
    /// The MSN of a new responder: 0, as C9-148 requires.
    pub msn: Msn,
}

impl Default for Opening {
    fn default() -> Self {
        Self { psns_to_wrap: None, msn: Msn::new(0) }
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
