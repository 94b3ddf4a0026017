//! The life of an object of whatever kind: its creation, its close, its end.

use super::desk::Desk;
use super::objects::{Objects, is_entered};
use crate::abi::*;
use crate::cx::Cx;
use crate::message::{Create, New, each_new};
use crate::object::done::{CloseDone, CreateDone};
use crate::object::id::{Context, ObjectId};
use crate::object::request::Close;
use crate::request::{Creation, Request};
use crate::shard::RINGERS_MAX;
use crate::upcall::Upcall;
use core::ptr::null_mut;

impl Request for Create {
    type Objects<'a> = &'a mut Objects;

    fn bytes(&self, cx: &mut Cx) -> Option<usize> {
        Some(each_new!(&*self.what, new => new.bytes(cx)))
    }

    fn run(self, cx: &mut Cx, objects: &mut Objects) {
        let Self { parent, what, done } = self;
        let rings = matches!(*what, New::CreateCq(_) | New::CreateSrq(_) | New::CreateListener(_));
        let created = if rings && cx.ringers >= RINGERS_MAX {
            Err(STATUS_INSUFFICIENT_RESOURCES)
        } else if cx.lifetimes.is_open(parent) {
            each_new!(*what, new => create(new, cx, parent, objects))
        } else {
            Err(STATUS_INVALID_PARAMETER)
        };
        finish_create(cx, created, done);
    }

    fn refuse(self, cx: &mut Cx) {
        finish_create(cx, Err(STATUS_INSUFFICIENT_RESOURCES), self.done);
    }
}

/// The new object, created with the tables that it works on.
fn create<'a, N>(
    new: N,
    cx: &mut Cx,
    parent: ObjectId,
    objects: &'a mut Objects,
) -> Result<Context, NTSTATUS>
where
    N: Creation<Objects<'a>: From<&'a mut Objects>>,
{
    new.create(cx, parent, objects.into())
}

/// Ends a creation.
fn finish_create(cx: &mut Cx, created: Result<Context, NTSTATUS>, done: CreateDone) {
    let (status, object) = match created {
        Ok(object) => (STATUS_SUCCESS, object),
        Err(status) => {
            // The place of the close that will not come.
            cx.shard.release_object();
            (status, Context::new(null_mut()))
        }
    };
    cx.upcalls.push_back(Upcall::Created { done, status, object });
}

impl Request for Close {
    type Objects<'a> = &'a mut Objects;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, objects: &mut Objects) {
        let Self { object, done } = self;
        let Some(place) = cx.lifetimes.close(object, done) else { return };
        objects.close(cx, place);
        cx.finish(object);
    }

    fn refuse(self, _: &mut Cx) {}
}

impl Desk {
    /// Ends a close: the callback, then the object's hold on its antecedents.
    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(super) fn finish_close(&mut self, id: ObjectId) {
        let Some(place) = self.cx.lifetimes.place(id) else { return };
        if is_entered(&mut self.cx, place) {
            // A call that made its own completion possible has not returned yet.
            self.cx.upcalls.push_back(Upcall::Closed { object: id });
            return;
        }
        let Some((done, parents)) = self.cx.lifetimes.remove(id) else { return };
        // Removed first: nothing of the object is touched after its owner heard that it is gone.
        self.objects.remove(&mut self.cx, place);
        self.cx.shard.release_object();
        self.cx.device.engines.give_back();
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
