//! The choices of a seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::fmt;

/// How a call ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// The call returns the final status. Where its end does not come soon, as that of a close that waits for other
    /// closes, or where the call is made in a callback, the end comes by the callback.
    Inline,
    /// The callback comes first, on the thread of the call, which then returns `STATUS_PENDING`.
    Before,
    /// The call returns `STATUS_PENDING`, and the callback comes when the provider has it.
    Pending,
    /// The same, but the callback comes by another thread.
    Elsewhere,
    /// The same, and so many ticks later. A tick is a millisecond, or a turn of a provider that is stepped.
    Late(u8),
    /// A creation is refused for want of resources, at once.
    Refused,
    /// A creation is refused by its callback.
    RefusedLater,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline"),
            Self::Before => f.write_str("callback before the return"),
            Self::Pending => f.write_str("pending"),
            Self::Elsewhere => f.write_str("pending, by another thread"),
            Self::Late(ticks) => write!(f, "pending, {ticks} ticks late"),
            Self::Refused => f.write_str("refused"),
            Self::RefusedLater => f.write_str("refused by the callback"),
        }
    }
}

/// A choice that was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The function.
    pub call: &'static str,
    /// The call's place among those of the function, from 0.
    pub nth: u64,
    /// The way that was chosen.
    pub way: Way,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}: {}", self.call, self.nth, self.way)
    }
}

/// The ways that a function may end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// The provider ends it by itself.
    Own { creates: bool },
    /// It needs the peer, or further calls of the consumer, so nothing waits for it.
    Remote,
}

/// Draws the ways of one seed: the n-th call of a function always gets the same.
pub(super) struct Dice {
    seed: u64,
    /// Of each function: how many calls it has had, and its own sequence.
    functions: BTreeMap<&'static str, (u64, ChaCha8Rng)>,
    /// Of a hundred creations.
    refused: u32,
    /// Ticks that a callback may be late.
    late: u8,
}

impl Dice {
    pub(super) const fn new(seed: u64, refused: u32, late: u8) -> Self {
        Self { seed, functions: BTreeMap::new(), refused, late }
    }

    /// The way of the next call of a function.
    pub(super) fn draw(&mut self, call: &'static str, class: Class) -> Choice {
        let (count, rng) = self.functions.entry(call).or_insert_with(|| (0, rng(self.seed, call)));
        let nth = *count;
        *count += 1;
        // As many numbers for each call, so that a choice does not depend on those before it.
        let [refuse, way, ticks] = [(); 3].map(|()| rng.next_u32());
        let ticks = 1 + (ticks % u32::from(self.late.max(1))) as u8;
        let way =
            match (class, way % 5) {
                (Class::Own { creates: true }, way) if refuse % 100 < self.refused => {
                    if way % 2 == 0 { Way::Refused } else { Way::RefusedLater }
                }
                (Class::Own { .. }, 0) => Way::Inline,
                (Class::Own { .. }, 1) => Way::Before,
                (_, 2) => Way::Elsewhere,
                (_, 3) => Way::Late(ticks),
                _ => Way::Pending,
            };
        Choice { call, nth, way }
    }
}

/// The sequence of a word.
pub(super) fn rng(seed: u64, word: &str) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // FNV-1a: any number of its own does for a stream.
    let stream = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    rng.set_stream(stream);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATES: Class = Class::Own { creates: true };

    #[test]
    fn the_nth_call_of_a_function_has_one_way() {
        let mut first = Dice::new(7, 20, 4);
        let mut second = Dice::new(7, 20, 4);
        let ways: Vec<_> = (0..200).map(|_| first.draw("NdkCreateCq", CREATES)).collect();
        for expected in &ways {
            second.draw("NdkCreatePd", CREATES);
            assert_eq!(second.draw("NdkCreateCq", CREATES), *expected, "other calls in between");
        }
        let kinds = |test: fn(&Way) -> bool| ways.iter().filter(|choice| test(&choice.way)).count();
        assert!(kinds(|way| matches!(way, Way::Refused | Way::RefusedLater)) > 10);
        assert!(kinds(|way| *way == Way::Inline) > 10 && kinds(|way| *way == Way::Before) > 10);
        assert!(kinds(|way| matches!(way, Way::Late(1..=4))) > 10);
        assert_ne!(Dice::new(8, 20, 4).draw("NdkCreateCq", CREATES).way, Way::Late(9));
    }

    #[test]
    fn nothing_waits_for_a_peer() {
        let mut dice = Dice::new(3, 100, 4);
        for _ in 0..200 {
            let way = dice.draw("NdkConnect", Class::Remote).way;
            assert!(matches!(way, Way::Pending | Way::Elsewhere | Way::Late(_)), "{way}");
        }
    }
}
