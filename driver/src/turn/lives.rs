//! Where an object's kind decides about its life: its creation, its close, its end.

use super::objects::Objects;
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
        let Self { cx, objects, .. } = self;
        let Objects { pds, .. } = objects;
        if !cx.lifetimes.is_open(parent) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        match what {
            Create::Pd => pds.create(cx, parent),
            Create::Cq(what) => Ok(objects.cqs.create(cx, parent, &what)),
            Create::Mr { fast_register } => {
                Ok(objects.mrs.create(cx, pds.member(cx, parent)?, fast_register))
            }
            Create::Mw => objects.mws.create(cx, pds.member(cx, parent)?),
            Create::Srq(what) => Ok(objects.srqs.create(cx, pds.member(cx, parent)?, &what)),
            Create::Qp(what) => {
                let domain = pds.member(cx, parent)?;
                objects.qps.create(cx, domain, (&objects.cqs, &objects.srqs), &what)
            }
            Create::Connector => Ok(objects.connectors.create(cx, parent)),
            Create::Listener { event, context } => {
                Ok(objects.listeners.create(cx, parent, event, context))
            }
            Create::SharedEndpoint { local } => objects.endpoints.create(cx, parent, local),
        }
    }

    pub(super) fn close(&mut self, id: ObjectId, done: CloseDone) {
        let Self { cx, objects, .. } = self;
        let Some(place) = cx.lifetimes.close(id, done) else { return };
        match place {
            Place::Adapter(_) | Place::Pd(_) | Place::Cq(_) | Place::Srq(_) => {}
            Place::Mr(key) => objects.mrs.close(cx, key),
            Place::Mw(key) => objects.mws.close(cx, key),
            Place::Qp(key) => objects.qps.flush(cx, key),
            Place::Connector(key) => objects.connectors.close(cx, &mut objects.qps, key),
            Place::Listener(key) => objects.listeners.close(cx, key),
            Place::Endpoint(key) => objects.endpoints.close(cx, key),
        }
        cx.finish(id);
    }

    /// Ends a close: the callback, then the object's hold on its antecedents.
    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(super) fn finish_close(&mut self, id: ObjectId) {
        let Some(place) = self.cx.lifetimes.place(id) else { return };
        if self.objects.is_entered(place) {
            // A call that made its own completion possible has not returned yet.
            self.cx.upcalls.push_back(Upcall::Closed { object: id });
            return;
        }
        let Some((done, parents)) = self.cx.lifetimes.remove(id) else { return };
        // Removed first: nothing of the object is touched after its owner heard that it is gone.
        self.objects.remove(&mut self.cx, place);
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
}
