//! The tables of the objects of every kind.

use crate::adapter::core::Adapters;
use crate::connector::core::Connectors;
use crate::cx::Cx;
use crate::endpoint::core::Endpoints;
use crate::listener::core::Listeners;
use crate::mr::core::Mrs;
use crate::mw::core::Mws;
use crate::object::id::{At, Place};
use crate::pd::core::Pds;
use crate::platform::request::Endpoint;
use crate::{cq, qp, srq};
use alloc::vec::Vec;

/// The objects of every kind.
#[derive(Default)]
pub(crate) struct Objects {
    pub(super) adapters: Adapters,
    pub(super) pds: Pds,
    pub(super) mrs: Mrs,
    pub(super) mws: Mws,
    pub(super) connectors: Connectors,
    pub(super) listeners: Listeners,
    pub(super) endpoints: Endpoints,
}

/// Lends a request the tables that it works on.
macro_rules! lend {
    ($($Tables:ty: |$objects:ident| $lent:expr;)+) => {$(
        impl<'a> From<&'a mut Objects> for $Tables {
            fn from($objects: &'a mut Objects) -> Self {
                $lent
            }
        }
    )+};
}

lend! {
    (): |_objects| ();
    &'a mut Adapters: |objects| &mut objects.adapters;
    &'a mut Pds: |objects| &mut objects.pds;
    &'a mut Mrs: |objects| &mut objects.mrs;
    &'a mut Connectors: |objects| &mut objects.connectors;
    &'a mut Listeners: |objects| &mut objects.listeners;
    &'a mut Endpoints: |objects| &mut objects.endpoints;
    (&'a Pds, &'a mut Mrs): |objects| (&objects.pds, &mut objects.mrs);
    (&'a Pds, &'a mut Mws): |objects| (&objects.pds, &mut objects.mws);
    &'a Pds: |objects| &objects.pds;
    (&'a mut Connectors, &'a Endpoints, &'a Listeners):
        |objects| (&mut objects.connectors, &objects.endpoints, &objects.listeners);
}

impl Objects {
    /// The memory of any request beside the memory that it asks for itself.
    pub(super) fn request_bytes(&self, cx: &mut Cx) -> usize {
        let keyed = [self.mrs.growth(), self.mws.growth()];
        let growth: usize = keyed.iter().map(|(_, bytes)| bytes).sum();
        growth + cx.request_bytes(keyed.iter().map(|(count, _)| count).sum())
    }

    /// Ends what an object has begun, as it is to be closed.
    pub(super) fn close(&mut self, cx: &mut Cx, place: Place) {
        match place {
            Place::Adapter(_) | Place::Pd(_) | Place::Cq(_) | Place::Srq(_) => {}
            Place::Mr(key) => self.mrs.close(cx, key),
            Place::Mw(key) => self.mws.close(cx, key),
            Place::Qp(at) => cx.flush_qp(at),
            Place::Connector(key) => self.connectors.close(cx, key),
            Place::Listener(key) => self.listeners.close(cx, key),
            Place::Endpoint(key) => self.endpoints.close(cx, key),
        }
    }

    /// Forgets an object, and ends what it has in the device.
    pub(super) fn remove(&mut self, cx: &mut Cx, place: Place) {
        match place {
            Place::Adapter(key) => self.adapters.remove(cx, key),
            Place::Pd(key) => self.pds.remove(cx, key),
            Place::Cq(at) => cq::core::remove(cx, at),
            Place::Srq(at) => srq::core::remove(cx, at),
            Place::Qp(at) => qp::core::remove(cx, at),
            Place::Mr(key) => self.mrs.remove(key),
            Place::Mw(key) => self.mws.remove(key),
            Place::Connector(key) => self.connectors.remove(key),
            Place::Listener(key) => self.listeners.remove(cx, key),
            Place::Endpoint(key) => self.endpoints.remove(key),
        }
    }

    /// The sockets that are listened at, shared, and connected.
    pub(super) fn endpoints(&self, cx: &mut Cx) -> Vec<Endpoint> {
        let connected = self.connectors.established(cx).map(Endpoint::Connection);
        let listening = self.listeners.locals().map(Endpoint::Listener);
        let shared = self.endpoints.locals().map(Endpoint::Shared);
        connected.chain(listening).chain(shared).collect()
    }
}

/// Whether a call of the consumer is still inside the object.
pub(super) fn is_entered(cx: &mut Cx, place: Place) -> bool {
    match place {
        Place::Cq(At { core, key }) => cx.lane(core).cqs.is_entered(key),
        Place::Qp(At { core, key }) => cx.lane(core).qps.is_entered(key),
        Place::Srq(At { core, key }) => cx.lane(core).srqs.is_entered(key),
        Place::Adapter(_)
        | Place::Pd(_)
        | Place::Mr(_)
        | Place::Mw(_)
        | Place::Connector(_)
        | Place::Listener(_)
        | Place::Endpoint(_) => false,
    }
}
