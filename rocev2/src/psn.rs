//! 24-bit sequence numbers and their serial arithmetic (IBTA ch. 9, Packet Sequence Numbers).

/// One past the largest 24-bit value.
const MODULUS: u32 = 1 << 24;

/// A Packet Sequence Number. Counts packets of one direction of a QP modulo 2^24.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Psn(u32);

impl Psn {
    /// The PSN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value % MODULUS)
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `packets` later, across the wrap at 2^24.
    #[must_use]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The PSN `packets` before, across the wrap.
    #[must_use]
    pub const fn back(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// The PSN before this one.
    #[must_use]
    pub const fn prev(self) -> Self {
        self.add(MODULUS - 1)
    }

    /// Signed distance from `base` to `self`, in -2^23 .. 2^23.
    ///
    /// ```
    /// use rocev2::psn::Psn;
    ///
    /// let last = Psn::new(0xff_ffff);
    /// assert_eq!(last.add(3).get(), 2);
    /// assert_eq!(last.add(3).since(last), 3);
    /// ```
    pub const fn since(self, base: Self) -> i32 {
        // The shift pair sign-extends the 24-bit difference.
        (self.0.wrapping_sub(base.0) << 8).cast_signed() >> 8
    }
}

/// A Message Sequence Number: messages completed by a responder, modulo 2^24 (C9-148).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Msn(u32);

impl Msn {
    /// The MSN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value % MODULUS)
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The MSN one message later.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }

    /// The MSN `messages` before.
    #[must_use]
    pub const fn back(self, messages: u32) -> Self {
        Self::new(self.0.wrapping_sub(messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// PSN order survives the wrap at 2^24.
        #[test]
        fn distance_inverts_add(base in 0u32..MODULUS, packets in 0u32..MODULUS / 2) {
            let base = Psn::new(base);
            prop_assert_eq!(base.add(packets).since(base), packets.cast_signed());
        }
    }

    #[test]
    fn half_the_space_ahead_is_behind() {
        let base = Psn::new(0xff_ff00);
        assert_eq!(base.add((1 << 23) - 1).since(base), (1 << 23) - 1);
        assert_eq!(base.add(1 << 23).since(base), -(1 << 23));
    }

    #[test]
    fn message_numbers_wrap() {
        assert_eq!(Msn::new(0xff_ffff).next(), Msn::new(0));
        assert_eq!(Msn::new(0x300_0005).next().get(), 6);
        assert_eq!(Msn::new(1).back(3), Msn::new(0xff_fffe));
    }
}
