//! Where an object's kind decides about its life: its creation, its close, its end.

use super::state::State;
use crate::abi::*;
use crate::message::Create;
use crate::object::done::{CloseDone, CreateDone};
use crate::object::id::{Context, ObjectId, Place};
use crate::upcall::Upcall;
use core::ptr::null_mut;

impl State {
    pub(super) fn create(&mut self, parent: ObjectId, what: Create, done: CreateDone) {
        let (status, object) = match self.create_object(parent, what) {
            Ok(object) => (STATUS_SUCCESS, object),
            Err(status) => {
                // The place of the close that will not come.
                self.cx.shard.release_object();
                (status, Context::new(null_mut()))
            }
        };
        self.cx.upcalls.push_back(Upcall::Created { done, status, object });
    }

    fn create_object(&mut self, parent: ObjectId, what: Create) -> Result<Context, NTSTATUS> {
        let Self { cx, pds, .. } = self;
        if !cx.lifetimes.is_open(parent) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        match what {
            Create::Pd => pds.create(cx, parent),
            Create::Cq(what) => Ok(self.cqs.create(cx, parent, &what)),
            Create::Mr { fast_register } => {
                Ok(self.mrs.create(cx, pds.member(cx, parent)?, fast_register))
            }
            Create::Mw => self.mws.create(cx, pds.member(cx, parent)?),
            Create::Srq(what) => Ok(self.srqs.create(cx, pds.member(cx, parent)?, &what)),
            Create::Qp(what) => {
                let domain = pds.member(cx, parent)?;
                self.qps.create(cx, domain, (&self.cqs, &self.srqs), &what)
            }
            Create::Connector => Ok(self.connectors.create(cx, parent)),
            Create::Listener { event, context } => {
                Ok(self.listeners.create(cx, parent, event, context))
            }
            Create::SharedEndpoint { local } => self.endpoints.create(cx, parent, local),
        }
    }

    pub(super) fn close(&mut self, id: ObjectId, done: CloseDone) {
        let Self { cx, .. } = self;
        let Some(place) = cx.lifetimes.close(id, done) else { return };
        match place {
            Place::Adapter(_) | Place::Pd(_) | Place::Cq(_) | Place::Srq(_) => {}
            Place::Mr(key) => self.mrs.close(cx, key),
            Place::Mw(key) => self.mws.close(cx, key),
            Place::Qp(key) => self.qps.flush(cx, key),
            Place::Connector(key) => self.connectors.close(cx, &mut self.qps, key),
            Place::Listener(key) => self.listeners.close(cx, key),
            Place::Endpoint(key) => self.endpoints.close(cx, key),
        }
        cx.finish(id);
    }

    /// Ends a close: the callback, then the object's hold on its antecedents.
    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(super) fn finish_close(&mut self, id: ObjectId) {
        let Some(place) = self.cx.lifetimes.place(id) else { return };
        if self.is_entered(place) {
            // A call that made its own completion possible has not returned yet.
            self.cx.upcalls.push_back(Upcall::Closed { object: id });
            return;
        }
        let Some((done, parents)) = self.cx.lifetimes.remove(id) else { return };
        // Removed first: nothing of the object is touched after its owner heard that it is gone.
        self.remove(place);
        self.cx.shard.release_object();
        match done {
            Some(CloseDone::Callback(callback, context)) => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get()) };
            }
            Some(CloseDone::Signal(signal)) => signal(),
            None => {}
        }
        self.cx.drop_child(parents);
    }

    /// Whether a call of the consumer is still inside the object.
    fn is_entered(&self, place: Place) -> bool {
        match place {
            Place::Cq(key) => self.cqs.is_entered(key),
            Place::Qp(key) => self.qps.is_entered(key),
            Place::Srq(key) => self.srqs.is_entered(key),
            Place::Adapter(_)
            | Place::Pd(_)
            | Place::Mr(_)
            | Place::Mw(_)
            | Place::Connector(_)
            | Place::Listener(_)
            | Place::Endpoint(_) => false,
        }
    }

    /// Forgets an object, and ends what it has in the device.
    fn remove(&mut self, place: Place) {
        let Self { cx, .. } = self;
        match place {
            Place::Adapter(key) => self.adapters.remove(cx, key),
            Place::Pd(key) => self.pds.remove(cx, key),
            Place::Cq(key) => self.cqs.remove(key),
            Place::Srq(key) => self.srqs.remove(cx, key),
            Place::Qp(key) => self.qps.remove(cx, key),
            Place::Mr(key) => self.mrs.remove(key),
            Place::Mw(key) => self.mws.remove(key),
            Place::Connector(key) => self.connectors.remove(key),
            Place::Listener(key) => self.listeners.remove(key),
            Place::Endpoint(key) => self.endpoints.remove(key),
        }
    }
}
