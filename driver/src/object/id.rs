//! How the core names an object, and how a pointer of the consumer is kept.

use crate::abi::PVOID;
use core::ptr::with_exposed_provenance_mut;

slotmap::new_key_type! {
    /// Names an object; never another one after it was freed.
    pub(crate) struct ObjectId;
}

macro_rules! kinds {
    ($($kind:ident, $key:ident $(, $of:ident)?;)+) => {
        slotmap::new_key_type! {$(
            /// Names an object in the table of its kind.
            pub(crate) struct $key;
        )+}

        /// Where the core keeps an object: in the table of its kind, under this key.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Place {
            $($kind($key),)+
        }

        impl Place {$($(
            /// The key of an object of this kind.
            pub(crate) const fn $of(self) -> Option<$key> {
                if let Self::$kind(key) = self { Some(key) } else { None }
            }
        )?)+}
    };
}

kinds! {
    Adapter, AdapterKey;
    Pd, PdKey, pd;
    Cq, CqKey, cq;
    Srq, SrqKey, srq;
    Qp, QpKey, qp;
    Mr, MrKey, mr;
    Mw, MwKey, mw;
    Connector, ConnectorKey, connector;
    Listener, ListenerKey, listener;
    Endpoint, EndpointKey, endpoint;
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
