//! The identifiers on the wire: queue pairs, keys, connections.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $bits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(u32);

        impl $name {
            /// Keeps the low bits that the field has on the wire.
            pub const fn new(value: u32) -> Self {
                Self(value & (u32::MAX >> (32 - $bits)))
            }

            /// The value in host order.
            pub const fn get(self) -> u32 {
                self.0
            }
        }
    };
}

id! {
    /// A queue pair number, 24 bits.
    Qpn, 24
}
id! {
    /// A key that names memory to a remote peer (R_Key, NDK's remote token).
    Rkey, 32
}
id! {
    /// A key that names memory in a local scatter/gather element (L_Key, NDK's local token).
    Lkey, 32
}
id! {
    /// A communication ID: names one side of a connection (IBTA ch. 12).
    CommId, 32
}

/// Cores of a device, at most: a mapping of memory has a bit for each.
pub const MAX_CORES: usize = 64;

/// The upper bits of a QPN that name its core, where a device has so many: 0 with one core, and up to 6.
///
/// `cores` is 1 to [`MAX_CORES`].
pub const fn core_bits(cores: usize) -> u32 {
    debug_assert!(1 <= cores && cores <= MAX_CORES);
    cores.next_power_of_two().trailing_zeros()
}

impl Qpn {
    /// QP 1, the General Service Interface, which carries connection management.
    pub const GSI: Self = Self(1);

    /// Whether a connection can have this end: QP 0 and QP 1 are for management, and 0xFFFFFF names a
    /// multicast group (IBTA ch. 10, QP numbers).
    pub const fn is_connectable(self) -> bool {
        self.0 > 1 && self.0 < u32::MAX >> 8
    }

    /// The core of a device with so many that has the queue pair: the upper [`core_bits`] name it. Where `cores` is no power of
    /// two, some bits name a core that there is not, and the value is `cores` or more.
    #[inline]
    pub const fn core(self, cores: usize) -> usize {
        (self.0 >> (24 - core_bits(cores))) as usize
    }

    /// The number of a queue pair of `core`, one of `cores`: the lower bits are those of `low`.
    #[must_use]
    pub const fn of_core(core: usize, cores: usize, low: u32) -> Self {
        let low_bits = 24 - core_bits(cores);
        Self::new((core as u32) << low_bits | low & ((1 << low_bits) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_bits_of_a_qpn_name_its_core() {
        for cores in 1..=MAX_CORES {
            assert!(1 << core_bits(cores) >= cores && 1 << core_bits(cores) < 2 * cores);
            for core in 0..cores {
                for low in [0, 1, 0x2_5a5a, 0xff_ffff, u32::MAX] {
                    let qpn = Qpn::of_core(core, cores, low);
                    assert_eq!(qpn.core(cores), core, "{qpn:?} of {cores}");
                    let low_bits = 24 - core_bits(cores);
                    assert_eq!((qpn.get() ^ low) << (32 - low_bits), 0, "the others are free");
                }
            }
        }
        assert_eq!(Qpn::of_core(0, 1, 0xab_cdef), Qpn::new(0xab_cdef), "all, with one core");
        assert_eq!(Qpn::of_core(2, 3, 0x12_3456), Qpn::new(0x92_3456));
        assert_eq!(Qpn::new(0xc0_0000).core(3), 3, "no core has it");
        assert_eq!(Qpn::GSI.core(MAX_CORES), 0);
    }
}
