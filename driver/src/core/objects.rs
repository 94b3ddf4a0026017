//! The life of every object: creation, antecedents and successors, asynchronous close.
//!
//! A close is finished once no successor is open and nothing of the object is pending; its
//! completion is the last that the consumer hears of it, and an antecedent is finished only after
//! that callback has returned (ndkpi, Object Lifetime Requirements).

use super::connections::ConnectorCore;
use super::cqs::CqCore;
use super::endpoints::{ListenerCore, SharedEndpointCore};
use super::memory::{MrCore, MwCore};
use super::queues::{QpCore, SrqCore};
use super::{State, Upcall};
use crate::abi::*;
use crate::ndk::adapter::{self, AdapterObject};
use crate::ndk::pd::PdObject;
use crate::ndk::{Base, CloseDone, Context, Create, CreateDone, Object, ObjectId, connector};
use alloc::boxed::Box;
use alloc::sync::Arc;
use rocev2::env::Instant;
use rocev2::mr::PdId;
use slotmap::SlotMap;

/// All objects of a core.
pub(super) type Objects = SlotMap<ObjectId, Entry>;

/// An object, and what holds it.
pub(super) struct Entry {
    /// What its adapter was opened at.
    version: NDK_VERSION,
    pub(super) kind: Kind,
    /// Antecedents, each of which counts this object as a successor.
    pub(super) parents: heapless::Vec<ObjectId, 4>,
    /// Successors that are still open.
    children: u32,
    /// The close that was asked for.
    pub(super) closing: Option<CloseDone>,
    /// The close completion is on its way.
    finishing: bool,
}

/// What the core knows of an object.
pub(super) enum Kind {
    Adapter(#[expect(dead_code, reason = "keeps it alive")] Arc<AdapterObject>),
    Pd(Arc<PdObject>, PdId),
    Cq(CqCore),
    Mr(MrCore),
    Mw(MwCore),
    Srq(Box<SrqCore>),
    Qp(Box<QpCore>),
    Connector(Box<ConnectorCore>),
    Listener(ListenerCore),
    SharedEndpoint(SharedEndpointCore),
}

impl Kind {
    /// Whether a call of the consumer is still inside the object.
    fn is_entered(&self) -> bool {
        match self {
            Self::Cq(cq) => cq.object.shared.is_entered(),
            Self::Qp(qp) => qp.is_entered(),
            Self::Srq(srq) => srq.is_entered(),
            Self::Adapter(_)
            | Self::Pd(..)
            | Self::Mr(_)
            | Self::Mw(_)
            | Self::Connector(_)
            | Self::Listener(_)
            | Self::SharedEndpoint(_) => false,
        }
    }
}

impl State {
    /// Enters an object under its antecedents, at the version of the first.
    pub(super) fn insert(
        &mut self,
        parents: &[ObjectId],
        make: impl FnOnce(Base) -> Kind,
    ) -> ObjectId {
        let parent = parents.first().and_then(|&parent| self.objects.get(parent));
        let version = parent.map_or(adapter::VERSION, |parent| parent.version);
        self.insert_at(version, parents, make)
    }

    fn insert_at(
        &mut self,
        version: NDK_VERSION,
        parents: &[ObjectId],
        make: impl FnOnce(Base) -> Kind,
    ) -> ObjectId {
        let shard = Arc::clone(&self.shard);
        let id = self.objects.insert_with_key(|id| Entry {
            kind: make(Base::new(id, version, shard)),
            version,
            parents: heapless::Vec::new(),
            children: 0,
            closing: None,
            finishing: false,
        });
        for &parent in parents {
            self.add_parent(id, parent);
        }
        id
    }

    /// Makes `parent` an antecedent of `child`.
    pub(super) fn add_parent(&mut self, child: ObjectId, parent: ObjectId) {
        let Some(entry) = self.objects.get_mut(child) else { return };
        // The widest object, an accepted connector, has three.
        let added = entry.parents.push(parent);
        debug_assert!(added.is_ok());
        if let Some(parent) = self.objects.get_mut(parent) {
            parent.children += 1;
        }
    }

    /// Undoes [`Self::add_parent`].
    pub(super) fn remove_parent(&mut self, child: ObjectId, parent: ObjectId) {
        let Some(entry) = self.objects.get_mut(child) else { return };
        if let Some(place) = entry.parents.iter().position(|&id| id == parent) {
            entry.parents.swap_remove(place);
            self.drop_child(parent);
        }
    }

    fn drop_child(&mut self, parent: ObjectId) {
        if let Some(entry) = self.objects.get_mut(parent) {
            entry.children -= 1;
            self.try_finish(parent);
        }
    }

    pub(super) fn open_adapter(
        &mut self,
        version: NDK_VERSION,
        opened: Box<dyn FnOnce(*mut NDK_ADAPTER) + Send>,
    ) {
        if self.shard.reserve_object().is_err() {
            return opened(core::ptr::null_mut());
        }
        let mut pointer = core::ptr::null_mut();
        self.insert_at(version, &[], |base| {
            let object = Arc::new(Object {
                ndk: NDK_ADAPTER::new(version, &adapter::DISPATCH),
                base,
                shared: (),
            });
            pointer = object.as_ndk();
            Kind::Adapter(object)
        });
        opened(pointer);
    }

    pub(super) fn create(&mut self, parent: ObjectId, what: Create, done: CreateDone) {
        let (status, object) = match self.create_object(parent, what) {
            Ok(object) => (STATUS_SUCCESS, object),
            Err(status) => {
                // The place of the close that will not come.
                self.shard.release_object();
                (status, Context::new(core::ptr::null_mut()))
            }
        };
        self.upcalls.push_back(Upcall::Created { done, status, object });
    }

    fn create_object(&mut self, parent: ObjectId, what: Create) -> Result<Context, NTSTATUS> {
        if self.objects.get(parent).is_none_or(|entry| entry.closing.is_some()) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        match what {
            Create::Pd => self.create_pd(parent),
            Create::Cq(what) => Ok(self.create_cq(parent, &what)),
            Create::Mr { fast_register } => self.create_mr(parent, fast_register),
            Create::Mw => self.create_mw(parent),
            Create::Srq(what) => self.create_srq(parent, &what),
            Create::Qp(what) => self.create_qp(parent, &what),
            Create::Connector => Ok(self.create_connector(&[parent], ConnectorCore::new).1),
            Create::Listener { event, context } => Ok(self.create_listener(parent, event, context)),
            Create::SharedEndpoint { local } => self.create_shared_endpoint(parent, local),
        }
    }

    pub(super) fn create_connector(
        &mut self,
        parents: &[ObjectId],
        make: impl FnOnce(Arc<connector::ConnectorObject>) -> ConnectorCore,
    ) -> (ObjectId, Context) {
        let mut pointer = core::ptr::null_mut();
        let id = self.insert(parents, |base| {
            let ndk = NDK_CONNECTOR::new(base.version, &connector::DISPATCH);
            let object =
                Arc::new(Object { ndk, base, shared: connector::ConnectorShared::default() });
            pointer = object.as_ndk();
            Kind::Connector(Box::new(make(object)))
        });
        (id, Context::new(pointer.cast()))
    }

    // ---- close --------------------------------------------------------------------------------

    pub(super) fn close(&mut self, now: Instant, id: ObjectId, done: CloseDone) {
        let Some(entry) = self.objects.get_mut(id) else { return };
        if entry.closing.is_some() {
            return;
        }
        entry.closing = Some(done);
        match &entry.kind {
            Kind::Adapter(_) | Kind::Pd(..) | Kind::Cq(_) | Kind::Srq(_) => {}
            Kind::Mr(_) => self.close_mr(id),
            Kind::Mw(_) => self.close_mw(id),
            Kind::Qp(_) => self.flush_qp(id),
            Kind::Connector(_) => self.close_connector(now, id),
            Kind::Listener(_) => self.close_listener(id),
            Kind::SharedEndpoint(_) => self.close_shared_endpoint(id),
        }
        self.try_finish(id);
    }

    fn try_finish(&mut self, id: ObjectId) {
        let Some(entry) = self.objects.get_mut(id) else { return };
        if entry.closing.is_some() && entry.children == 0 && !entry.finishing {
            entry.finishing = true;
            self.upcalls.push_back(Upcall::Closed { object: id });
        }
    }

    /// Ends a close: the callback, then the object, then its hold on its antecedents.
    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(super) fn finish_close(&mut self, id: ObjectId) {
        let Some(entry) = self.objects.get_mut(id) else { return };
        if entry.kind.is_entered() {
            // A call that made its own completion possible has not returned yet.
            self.upcalls.push_back(Upcall::Closed { object: id });
            return;
        }
        let done = entry.closing.take();
        // Removed first: nothing of the object is touched after its owner heard that it is gone.
        let parents = self.take(id);
        self.shard.release_object();
        match done {
            Some(CloseDone::Callback(callback, context)) => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get()) };
            }
            Some(CloseDone::Signal(signal)) => signal(),
            None => {}
        }
        for parent in parents {
            self.drop_child(parent);
        }
    }

    /// Removes an object that was never handed out.
    pub(super) fn remove(&mut self, id: ObjectId) {
        for parent in self.take(id) {
            self.drop_child(parent);
        }
    }

    fn take(&mut self, id: ObjectId) -> heapless::Vec<ObjectId, 4> {
        let Some(entry) = self.objects.remove(id) else { return heapless::Vec::new() };
        match entry.kind {
            Kind::Qp(qp) => self.destroy_qp(*qp),
            Kind::Srq(srq) => self.destroy_srq(&srq),
            Kind::Pd(object, _) => self.free_key(object.shared.privileged),
            Kind::Adapter(_) => self.regions.lams.forget(id, &self.shard.lams),
            Kind::Cq(_) => self.held.retain(|&(_, cq)| cq != id),
            Kind::Mr(_)
            | Kind::Mw(_)
            | Kind::Connector(_)
            | Kind::Listener(_)
            | Kind::SharedEndpoint(_) => {}
        }
        entry.parents
    }
}
