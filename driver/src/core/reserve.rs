//! Memory for what a consumer or a peer asks for.
//!
//! A kernel has no way back from a collection that is refused memory. So before the core does what
//! may allocate, it has as much set aside as that can take; where this is refused, so is the request.

use super::cqs::deeper_ring;
use super::{State, Upcall};
use crate::abi::*;
use crate::ndk::adapter::Limits;
use crate::ndk::cq::Cqe;
use crate::ndk::{Context, Control, Create};
use alloc::sync::Arc;
use core::ptr::null_mut;
use rocev2::env::Instant;
use rocev2::qp::work::{RecvWr, SendWr};

/// What any request may take beside its queues: the object, nodes of trees, and so on.
const REQUEST_BYTES: usize = 64 << 10;
/// What a table of the core may take for each of its entries when it grows: it doubles, and no entry
/// is larger than half of this.
const GROWTH_BYTES: usize = 512;
/// What a slot of inline data takes beside the data.
const INLINE_SLOT_BYTES: usize = 64;

impl State {
    /// Does what a message asks for, if there is memory for it.
    pub(super) fn handle_control(&mut self, now: Instant, message: Control) {
        let Some(bytes) = self.bytes_of(&message) else { return self.obey(now, message) };
        let shard = Arc::clone(&self.shard);
        let mut message = Some(message);
        let mut work = || {
            if let Some(message) = message.take() {
                self.obey(now, message);
            }
        };
        shard.platform.with_memory(bytes, &mut work);
        if let Some(message) = message {
            self.refuse(message);
        }
    }

    /// What a request may take beside what it asks for itself.
    pub(super) fn request_bytes(&self) -> usize {
        REQUEST_BYTES + GROWTH_BYTES * self.objects.len()
    }

    /// What a message may take; `None`: it must not fail, and takes next to nothing.
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
                let limits = &self.shard.limits;
                queue_bytes(what, limits) + self.device.room_bytes(requests(what, limits))
            }
            Control::ResizeCq { depth, .. } => deeper_ring(*depth) * size_of::<Cqe>(),
            Control::ModifySrq { depth, .. } => self.device.room_bytes(*depth as usize),
            Control::Close { .. }
            | Control::DeregisterMr { .. }
            | Control::Reject { .. }
            | Control::Disconnect { .. }
            | Control::SetAddresses { .. }
            | Control::Resolved { .. }
            | Control::CheckPaths
            | Control::Stop => return None,
        };
        Some(own + self.request_bytes())
    }

    /// Ends a request for which there is no memory.
    fn refuse(&mut self, message: Control) {
        let status = STATUS_INSUFFICIENT_RESOURCES;
        match message {
            Control::OpenAdapter { opened, .. } => opened(null_mut()),
            Control::Create { done, .. } => {
                self.shard.release_object();
                let object = Context::new(null_mut());
                self.upcalls.push_back(Upcall::Created { done, status, object });
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
            | Control::Disconnect { done, .. } => self.request_done(done, status),
            Control::List { listed } => listed(None),
            Control::Close { .. }
            | Control::Reject { .. }
            | Control::SetAddresses { .. }
            | Control::Resolved { .. }
            | Control::CheckPaths
            | Control::Stop => {}
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

/// What the queues of an object take: the ring of each and, behind a QP's rings, the device's own
/// queues, whose entries are those of the rings with what the transport notes of them.
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
