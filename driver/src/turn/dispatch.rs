//! The messages of the consumers and the home: each to the object that it is for, if there is memory.
//!
//! In the kernel an allocation of a collection that is refused is a bug check. So the worst case is set aside
//! before a message is obeyed; where that is refused, the request ends with
//! `STATUS_INSUFFICIENT_RESOURCES`.

use super::objects::Objects;
use super::state::State;
use crate::abi::*;
use crate::cq::core::deeper_ring;
use crate::cq::shared::Cqe;
use crate::limits::Limits;
use crate::message::{Control, Create};
use crate::object::id::Context;
use crate::upcall::Upcall;
use alloc::sync::Arc;
use core::ptr::null_mut;
use rocev2::qp::{RecvWr, SendWr};

/// Control messages taken in one turn.
const CONTROL_BUDGET: usize = 64;
/// The memory of a slot of inline data beside the data.
const INLINE_SLOT_BYTES: usize = 64;

impl State {
    pub(super) fn drain_control(&mut self) -> bool {
        let mut taken = 0;
        while taken < CONTROL_BUDGET
            && let Some(message) = self.cx.shard.next_control()
        {
            self.handle_control(message);
            taken += 1;
        }
        taken > 0
    }

    /// Does what a message asks for, if there is memory for it.
    fn handle_control(&mut self, message: Control) {
        let Some(bytes) = self.bytes_of(&message) else { return self.dispatch(message) };
        let shard = Arc::clone(&self.cx.shard);
        let mut message = Some(message);
        let mut work = || {
            if let Some(message) = message.take() {
                self.dispatch(message);
            }
        };
        shard.platform.with_memory(bytes, &mut work);
        if let Some(message) = message {
            self.refuse(message);
        }
    }

    /// The memory of a message; `None` where it must not fail, and takes next to nothing.
    fn bytes_of(&self, message: &Control) -> Option<usize> {
        let own = match message {
            Control::OpenAdapter { .. }
            | Control::RegisterMr { .. }
            | Control::InitializeFastRegisterMr { .. }
            | Control::Connect { .. }
            | Control::CompleteConnect { .. }
            | Control::Accept { .. }
            | Control::Listen { .. }
            | Control::List { .. } => 0,
            Control::Create { what, .. } => {
                let limits = &self.cx.shard.limits;
                queue_bytes(what, limits) + self.cx.device.room_bytes(requests(what, limits))
            }
            Control::ResizeCq { depth, .. } => deeper_ring(*depth) * size_of::<Cqe>(),
            Control::ModifySrq { depth, .. } => self.cx.device.room_bytes(*depth as usize),
            Control::Close { .. }
            | Control::DeregisterMr { .. }
            | Control::Reject { .. }
            | Control::Disconnect { .. }
            | Control::SetAddresses { .. }
            | Control::Resolved { .. }
            | Control::CheckPaths
            | Control::Stop => return None,
        };
        Some(own + self.cx.request_bytes())
    }

    /// Ends a request for which there is no memory.
    fn refuse(&mut self, message: Control) {
        let status = STATUS_INSUFFICIENT_RESOURCES;
        match message {
            Control::OpenAdapter { opened, .. } => opened(null_mut()),
            Control::Create { done, .. } => {
                self.cx.shard.release_object();
                let object = Context::new(null_mut());
                self.cx.upcalls.push_back(Upcall::Created { done, status, object });
            }
            Control::ResizeCq { done, .. }
            | Control::RegisterMr { done, .. }
            | Control::InitializeFastRegisterMr { done, .. }
            | Control::ModifySrq { done, .. }
            | Control::Connect { done, .. }
            | Control::CompleteConnect { done, .. }
            | Control::Accept { done, .. }
            | Control::Listen { done, .. }
            | Control::DeregisterMr { done, .. }
            | Control::Disconnect { done, .. } => self.cx.request_done(done, status),
            Control::List { listed } => listed(None),
            Control::Close { .. }
            | Control::Reject { .. }
            | Control::SetAddresses { .. }
            | Control::Resolved { .. }
            | Control::CheckPaths
            | Control::Stop => {}
        }
    }

    fn dispatch(&mut self, message: Control) {
        let Self { cx, objects, .. } = self;
        let Objects { qps, connectors, .. } = objects;
        match message {
            Control::OpenAdapter { version, opened } => objects.adapters.open(cx, version, opened),
            Control::Create { parent, what, done } => self.create(parent, *what, done),
            Control::Close { object, done } => self.close(object, done),
            Control::ResizeCq { cq, depth, done } => {
                let status = objects.cqs.resize(cx, cq, depth);
                cx.request_done(done, status);
            }
            Control::RegisterMr { mr, what, done } => {
                let status = objects.mrs.register(cx, mr, *what);
                cx.request_done(done, status);
            }
            Control::InitializeFastRegisterMr { mr, what, done } => {
                let status = objects.mrs.initialize(cx, mr, *what);
                cx.request_done(done, status);
            }
            Control::ModifySrq { srq, depth, threshold, done } => {
                let status = objects.srqs.modify(cx, srq, depth, threshold);
                cx.request_done(done, status);
            }
            Control::DeregisterMr { mr, done } => {
                let status = objects.mrs.deregister(cx, mr);
                cx.request_done(done, status);
            }
            Control::Connect { connector, what, done } => {
                connectors.connect(cx, (qps, &objects.endpoints), connector, what, done);
            }
            Control::CompleteConnect { connector, event, done } => {
                connectors.complete_connect(cx, qps, connector, event, done);
            }
            Control::Accept { connector, what, done } => {
                connectors.accept(cx, qps, connector, &what, done);
            }
            Control::Reject { connector, private_data } => {
                connectors.reject(cx, connector, &private_data);
            }
            Control::Disconnect { connector, done } => {
                connectors.disconnect(cx, qps, connector, done);
            }
            Control::Listen { listener, local, done } => {
                let status = objects.listeners.listen(cx, listener, local);
                cx.request_done(done, status);
            }
            Control::SetAddresses { addresses } => {
                cx.paths.neighbours.set_addresses(&addresses);
                connectors.fail_without_address(cx, qps, &addresses);
                cx.device.set_addresses(cx.now, addresses);
            }
            Control::Resolved { remote, mac } => {
                connectors.finish_resolution(cx, qps, remote, mac, |tci| tci);
            }
            Control::CheckPaths => cx.paths.restart_checks(),
            Control::List { listed } => listed(Some(objects.endpoints(cx))),
            Control::Stop => cx.stopped = true,
        }
    }
}

/// Requests that may be outstanding on an object's queues.
fn requests(what: &Create, limits: &Limits) -> usize {
    match what {
        Create::Qp(qp) => qp.initiator_depth as usize + qp.receive_depth as usize,
        Create::Srq(_) => limits.srq_depth as usize,
        _ => 0,
    }
}

/// The memory of an object's queues: the ring of each and, behind a QP's rings, the device's own queues,
/// whose entries are those of the rings with the transport's notes of them.
fn queue_bytes(what: &Create, limits: &Limits) -> usize {
    match what {
        Create::Cq(cq) => cq.depth as usize * size_of::<Cqe>(),
        Create::Qp(qp) => {
            let inline = qp.inline_len as usize + INLINE_SLOT_BYTES;
            qp.initiator_depth as usize * (3 * size_of::<SendWr>() + inline)
                + qp.receive_depth as usize * 3 * size_of::<RecvWr>()
        }
        Create::Srq(_) => limits.srq_depth as usize * 3 * size_of::<RecvWr>(),
        Create::Pd
        | Create::Mr { .. }
        | Create::Mw
        | Create::Connector
        | Create::Listener { .. }
        | Create::SharedEndpoint { .. } => 0,
    }
}
