//! How the core names an object, and how a pointer of the consumer is kept.

use crate::abi::PVOID;
use core::ptr::with_exposed_provenance_mut;

slotmap::new_key_type! {
    /// Names an object; never another one after it was freed.
    pub(crate) struct ObjectId;

    /// Names an object of a core that has a doorbell.
    pub(crate) struct RingerKey;
}

/// An object of a core that has a doorbell, in the table of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ringer {
    Qp(QpKey),
    Cq(CqKey),
    Srq(SrqKey),
    Listener(ListenerKey),
}

/// The name of an object in the table of its kind on a core.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct At<K> {
    pub(crate) core: u8,
    pub(crate) key: K,
}

macro_rules! kinds {
    ($($kind:ident, $key:ident, $place:ty $(, $of:ident)?;)+) => {
        slotmap::new_key_type! {$(
            /// Names an object in the table of its kind.
            pub(crate) struct $key;
        )+}

        /// Where an object is kept: in the table of its kind, under this key.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Place {
            $($kind($place),)+
        }

        impl Place {$($(
            /// The key of an object of this kind.
            pub(crate) const fn $of(self) -> Option<$place> {
                if let Self::$kind(key) = self { Some(key) } else { None }
            }
        )?)+}
    };
}

kinds! {
    Adapter, AdapterKey, AdapterKey;
    Pd, PdKey, PdKey, pd;
    Cq, CqKey, At<CqKey>, cq;
    Srq, SrqKey, At<SrqKey>, srq;
    Qp, QpKey, At<QpKey>, qp;
    Mr, MrKey, MrKey, mr;
    Mw, MwKey, MwKey, mw;
    Connector, ConnectorKey, ConnectorKey, connector;
    Listener, ListenerKey, ListenerKey, listener;
    Endpoint, EndpointKey, EndpointKey, endpoint;
}

/// A pointer of the consumer that is only ever handed back to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Context(usize);

impl Context {
    pub(crate) fn new(pointer: PVOID) -> Self {
        Self(pointer.expose_provenance())
    }

    pub(crate) fn get(self) -> PVOID {
        with_exposed_provenance_mut(self.0)
    }

    /// As a work request carries it.
    pub(crate) const fn as_u64(self) -> u64 {
        self.0 as u64
    }

    pub(crate) const fn from_u64(value: u64) -> Self {
        Self(value as usize)
    }
}
