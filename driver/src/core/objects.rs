//! The life of every object: creation, antecedents and successors, asynchronous close.
//!
//! A close is finished once no successor is open and nothing of the object is pending; its
//! completion is the last that the consumer hears of it, and an antecedent is finished only after
//! that callback has returned (ndkpi, Object Lifetime Requirements).

use super::connections::ConnectorCore;
use super::cqs::CqCore;
use super::endpoints::{ListenerCore, SharedEndpointCore};
use super::{State, Upcall, owner};
use crate::abi::*;
use crate::ndk::adapter::{self, AdapterObject};
use crate::ndk::mr::{self, MrObject, MrShared, Register};
use crate::ndk::pd::{self, PdObject};
use crate::ndk::qp::{self, CreateQp, QpObject, QpShared, Queue};
use crate::ndk::{Base, CloseDone, Context, Create, CreateDone, Object, ObjectId, connector};
use crate::ring::{Doorbell, Exclusive};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rocev2::device::Device;
use rocev2::env::{Instant, RegionId};
use rocev2::ids::{Qpn, Rkey};
use rocev2::mr::{PdId, Registration};
use rocev2::qp::QpConfig;
use rocev2::qp::work::{RecvWr, SendWr};
use slotmap::SlotMap;

/// All objects of a core.
pub(super) type Objects = SlotMap<ObjectId, Entry>;

/// An object, and what holds it.
pub(super) struct Entry {
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
    Pd(#[expect(dead_code, reason = "keeps it alive")] Arc<PdObject>, PdId),
    Cq(CqCore),
    Mr(MrCore),
    Qp(Box<QpCore>),
    Connector(Box<ConnectorCore>),
    Listener(ListenerCore),
    SharedEndpoint(SharedEndpointCore),
}

pub(super) struct MrCore {
    object: Arc<MrObject>,
    pd: PdId,
    registered: Option<(Rkey, RegionId)>,
}

pub(super) struct QpCore {
    pub(super) object: Arc<QpObject>,
    pub(super) qpn: Qpn,
    initiator: rtrb::Consumer<SendWr>,
    receive: rtrb::Consumer<RecvWr>,
    pub(super) initiator_cq: ObjectId,
    pub(super) receive_cq: ObjectId,
    pub(super) context: Context,
    /// The connector that it serves; a QP is connected once in its life.
    pub(super) connector: Option<ObjectId>,
}

impl QpCore {
    /// Moves what was posted into the device. The rings are no deeper than the device's queues, so
    /// nothing is refused; a QP that is not connected takes initiator requests only from a consumer
    /// that raced with its own disconnect, and those end flushed with the QP.
    pub(super) fn drain(&mut self, device: &mut Device) {
        while let Ok(wr) = self.receive.pop() {
            let posted = device.post_recv(self.qpn, wr);
            debug_assert!(posted.is_ok());
        }
        while let Ok(wr) = self.initiator.pop() {
            let posted = device.post_send(self.qpn, wr);
            debug_assert!(posted.is_ok());
        }
    }

    fn is_entered(&self) -> bool {
        self.object.shared.initiator.is_entered() || self.object.shared.receive.is_entered()
    }
}

impl Kind {
    /// Whether a call of the consumer is still inside the object.
    fn is_entered(&self) -> bool {
        match self {
            Self::Cq(cq) => cq.object.shared.is_entered(),
            Self::Qp(qp) => qp.is_entered(),
            Self::Adapter(_)
            | Self::Pd(..)
            | Self::Mr(_)
            | Self::Connector(_)
            | Self::Listener(_)
            | Self::SharedEndpoint(_) => false,
        }
    }
}

impl State {
    /// Enters an object under its antecedents.
    pub(super) fn insert(
        &mut self,
        parents: &[ObjectId],
        make: impl FnOnce(Base) -> Kind,
    ) -> ObjectId {
        let shard = Arc::clone(&self.shard);
        let id = self.objects.insert_with_key(|id| Entry {
            kind: make(Base::new(id, shard)),
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
        self.insert(&[], |base| {
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
            Create::Pd => Ok(self.create_pd(parent)),
            Create::Cq(what) => Ok(self.create_cq(parent, &what)),
            Create::Mr { fast_register } => self.create_mr(parent, fast_register),
            Create::Qp(what) => self.create_qp(parent, &what),
            Create::Connector => Ok(self.create_connector(&[parent], ConnectorCore::new).1),
            Create::Listener { event, context } => Ok(self.create_listener(parent, event, context)),
            Create::SharedEndpoint { local } => self.create_shared_endpoint(parent, local),
        }
    }

    fn create_pd(&mut self, adapter: ObjectId) -> Context {
        let pd = PdId(self.next_pd);
        self.next_pd = self.next_pd.wrapping_add(1);
        let mut pointer = core::ptr::null_mut();
        self.insert(&[adapter], |base| {
            let object = Arc::new(Object {
                ndk: NDK_PD::new(adapter::VERSION, &pd::DISPATCH),
                base,
                shared: (),
            });
            pointer = object.as_ndk();
            Kind::Pd(object, pd)
        });
        Context::new(pointer.cast())
    }

    fn pd(&self, id: ObjectId) -> Result<PdId, NTSTATUS> {
        match self.objects.get(id).map(|entry| &entry.kind) {
            Some(Kind::Pd(_, pd)) => Ok(*pd),
            _ => Err(STATUS_INVALID_PARAMETER),
        }
    }

    fn create_mr(&mut self, parent: ObjectId, fast_register: bool) -> Result<Context, NTSTATUS> {
        let pd = self.pd(parent)?;
        let mut pointer = core::ptr::null_mut();
        self.insert(&[parent], |base| {
            let shared = MrShared { fast_register, token: AtomicU32::new(0) };
            let object = Arc::new(Object {
                ndk: NDK_MR::new(adapter::VERSION, &mr::DISPATCH),
                base,
                shared,
            });
            pointer = object.as_ndk();
            Kind::Mr(MrCore { object, pd, registered: None })
        });
        Ok(Context::new(pointer.cast()))
    }

    fn create_qp(&mut self, parent: ObjectId, what: &CreateQp) -> Result<Context, NTSTATUS> {
        let pd = self.pd(parent)?;
        let is_cq = |id| {
            matches!(self.objects.get(id), Some(Entry { kind: Kind::Cq(_), closing: None, .. }))
        };
        if !is_cq(what.receive_cq) || !is_cq(what.initiator_cq) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let CreateQp { receive_cq, initiator_cq, context, receive_depth, initiator_depth, .. } =
            *what;
        let (initiator_ring, initiator) = rtrb::RingBuffer::new((initiator_depth as usize).max(1));
        let (receive_ring, receive) = rtrb::RingBuffer::new((receive_depth as usize).max(1));
        let mut pointer = core::ptr::null_mut();
        let id = self.insert(&[parent, receive_cq, initiator_cq], |base| {
            let shared = QpShared {
                initiator: Exclusive::new(Queue::new(
                    initiator_ring,
                    initiator_depth,
                    what.initiator_sge,
                )),
                receive: Exclusive::new(Queue::new(receive_ring, receive_depth, what.receive_sge)),
                initiator_retired: AtomicU32::new(0),
                receive_retired: AtomicU32::new(0),
                connected: AtomicBool::new(false),
                doorbell: Doorbell::default(),
            };
            let object = Arc::new(Object {
                ndk: NDK_QP::new(adapter::VERSION, &qp::DISPATCH),
                base,
                shared,
            });
            pointer = object.as_ndk();
            let qpn = Qpn::default();
            Kind::Qp(Box::new(QpCore {
                object,
                qpn,
                initiator,
                receive,
                initiator_cq,
                receive_cq,
                context,
                connector: None,
            }))
        });
        let config = QpConfig {
            owner: owner(id),
            pd,
            send_depth: initiator_depth as usize,
            recv_depth: receive_depth as usize,
            srq: None,
        };
        let Some(qpn) = self.device.create_qp(&config) else {
            self.remove(id);
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        };
        if let Some(Kind::Qp(qp)) = self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            qp.qpn = qpn;
        }
        Ok(Context::new(pointer.cast()))
    }

    pub(super) fn create_connector(
        &mut self,
        parents: &[ObjectId],
        make: impl FnOnce(Arc<connector::ConnectorObject>) -> ConnectorCore,
    ) -> (ObjectId, Context) {
        let mut pointer = core::ptr::null_mut();
        let id = self.insert(parents, |base| {
            let ndk = NDK_CONNECTOR::new(adapter::VERSION, &connector::DISPATCH);
            let object =
                Arc::new(Object { ndk, base, shared: connector::ConnectorShared::default() });
            pointer = object.as_ndk();
            Kind::Connector(Box::new(make(object)))
        });
        (id, Context::new(pointer.cast()))
    }

    // ---- memory regions -----------------------------------------------------------------------

    fn mr(&mut self, id: ObjectId) -> Option<&mut MrCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Mr(mr)) => Some(mr),
            _ => None,
        }
    }

    pub(super) fn register_mr(&mut self, id: ObjectId, what: Register) -> NTSTATUS {
        let Some(mr) = self.mr(id) else { return STATUS_INVALID_PARAMETER };
        if mr.registered.is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let pd = mr.pd;
        let len = what.mapping.len();
        let region = self.regions.insert(what.mapping);
        let registration = Registration { pd, region, base: what.base, len, access: what.access };
        let Some(key) = self.device.register(registration) else {
            self.regions.remove(region);
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        if let Some(mr) = self.mr(id) {
            mr.registered = Some((key, region));
            mr.object.shared.token.store(key.get(), Ordering::Release);
        }
        STATUS_SUCCESS
    }

    pub(super) fn deregister_mr(&mut self, id: ObjectId) -> NTSTATUS {
        let Some(mr) = self.mr(id) else { return STATUS_INVALID_PARAMETER };
        let Some((key, region)) = mr.registered.take() else { return STATUS_INVALID_DEVICE_STATE };
        mr.object.shared.token.store(0, Ordering::Release);
        // The key names a live registration, as this object held it.
        let deregistered = self.device.deregister(key);
        debug_assert!(deregistered.is_ok());
        self.regions.remove(region);
        STATUS_SUCCESS
    }

    // ---- queue pairs --------------------------------------------------------------------------

    pub(super) fn qp(&mut self, id: ObjectId) -> Option<&mut QpCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Qp(qp)) => Some(qp),
            _ => None,
        }
    }

    /// Cancels everything that is posted on a QP.
    pub(super) fn flush_qp(&mut self, id: ObjectId) {
        let State { objects, device, .. } = self;
        if let Some(Kind::Qp(qp)) = objects.get_mut(id).map(|entry| &mut entry.kind) {
            qp.object.shared.connected.store(false, Ordering::Release);
            device.flush_qp(qp.qpn);
            // In the error state now, so that what is in the rings ends flushed as well.
            qp.drain(device);
        }
    }

    // ---- close --------------------------------------------------------------------------------

    pub(super) fn close(&mut self, now: Instant, id: ObjectId, done: CloseDone) {
        let Some(entry) = self.objects.get_mut(id) else { return };
        if entry.closing.is_some() {
            return;
        }
        entry.closing = Some(done);
        match &entry.kind {
            Kind::Adapter(_) | Kind::Pd(..) | Kind::Cq(_) => {}
            Kind::Mr(_) => {
                // Not registered is as good.
                let _ = self.deregister_mr(id);
            }
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
            Some(CloseDone::Callback(Some(callback), context)) => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get()) };
            }
            Some(CloseDone::Signal(signal)) => signal(),
            Some(CloseDone::Callback(None, _)) | None => {}
        }
        for parent in parents {
            self.drop_child(parent);
        }
    }

    /// Removes an object that was never handed out.
    fn remove(&mut self, id: ObjectId) {
        for parent in self.take(id) {
            self.drop_child(parent);
        }
    }

    fn take(&mut self, id: ObjectId) -> heapless::Vec<ObjectId, 4> {
        let Some(entry) = self.objects.remove(id) else { return heapless::Vec::new() };
        match &entry.kind {
            Kind::Qp(qp) => self.device.destroy_qp(qp.qpn),
            Kind::Adapter(_) => self.lams.forget(id, &self.shard.lams),
            Kind::Cq(_) => self.held.retain(|&(_, cq)| cq != id),
            Kind::Pd(..)
            | Kind::Mr(_)
            | Kind::Connector(_)
            | Kind::Listener(_)
            | Kind::SharedEndpoint(_) => {}
        }
        entry.parents
    }
}
