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

impl Qpn {
    /// QP 1, the General Service Interface, which carries connection management.
    pub const GSI: Self = Self(1);

    /// Whether a connection can have this end: QP 0 and QP 1 are for management, and 0xFFFFFF names a
    /// multicast group (IBTA ch. 10, QP numbers).
    pub const fn is_connectable(self) -> bool {
        self.0 > 1 && self.0 < u32::MAX >> 8
    }
}
