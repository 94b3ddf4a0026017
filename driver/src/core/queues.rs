//! Queue pairs and shared receive queues: the core's end of their rings.

use super::objects::{Entry, Kind};
use super::{State, Upcall, owner};
use crate::abi::*;
use crate::ndk::qp::{self, CreateQp, Inline, QpObject, QpShared};
use crate::ndk::queue::{Queue, Slots};
use crate::ndk::regions::InlineSlots;
use crate::ndk::srq::{self, CreateSrq, SrqObject, SrqShared};
use crate::ndk::{Context, Object, ObjectId, reason};
use crate::ring::modelled::rtrb;
use crate::ring::{Doorbell, Exclusive};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use rocev2::device::Device;
use rocev2::env::RegionId;
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration};
use rocev2::qp::QpConfig;
use rocev2::qp::receive::{SrqConfig, SrqId};
use rocev2::qp::work::{RecvWr, SendOp, SendWr};
use slotmap::KeyData;

pub(super) struct QpCore {
    pub(super) object: Arc<QpObject>,
    pub(super) qpn: Qpn,
    initiator: rtrb::Consumer<SendWr>,
    receive: rtrb::Consumer<RecvWr>,
    pub(super) initiator_cq: ObjectId,
    pub(super) receive_cq: ObjectId,
    pub(super) srq: Option<ObjectId>,
    pub(super) context: Context,
    /// The connector that it serves; a QP is connected once in its life.
    pub(super) connector: Option<ObjectId>,
    inline: Option<(Rkey, RegionId)>,
    /// One of its CQs has overrun.
    pub(super) lost_cq: bool,
}

impl QpCore {
    /// Moves what was posted into the device. The rings are no deeper than the device's queues, so
    /// nothing is refused; a QP that is not connected takes initiator requests only from a consumer
    /// that raced with its own disconnect, and those end flushed with the QP.
    ///
    /// Stops behind a request that others have to follow, and returns it; see
    /// [`State::follow_window`].
    fn drain(&mut self, device: &mut Device) -> Option<SendOp> {
        while let Ok(wr) = self.receive.pop() {
            let posted = device.post_recv(self.qpn, wr);
            debug_assert!(posted.is_ok());
        }
        while let Ok(wr) = self.initiator.pop() {
            let op = wr.op;
            let posted = device.post_send(self.qpn, wr);
            debug_assert!(posted.is_ok());
            if matches!(op, SendOp::Bind(_) | SendOp::Invalidate(_)) {
                return Some(op);
            }
        }
        None
    }

    pub(super) fn is_entered(&self) -> bool {
        self.object.shared.initiator.is_entered() || self.object.shared.receive.is_entered()
    }
}

pub(super) struct SrqCore {
    pub(super) object: Arc<SrqObject>,
    /// Its name in the device, which has it from its creation on.
    id: Option<SrqId>,
    receive: rtrb::Consumer<RecvWr>,
    /// Receives moved into the device, modulo 2^32.
    taken: u32,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    context: Context,
}

impl SrqCore {
    /// Moves what was posted into the device, whose queue is as deep as the ring.
    pub(super) fn drain(&mut self, device: &mut Device) {
        let Some(id) = self.id else { return };
        while let Ok(wr) = self.receive.pop() {
            let posted = device.post_srq_recv(id, wr);
            debug_assert!(posted.is_ok());
            self.taken = self.taken.wrapping_add(1);
        }
    }

    pub(super) fn is_entered(&self) -> bool {
        self.object.shared.receive.is_entered()
    }
}

impl State {
    // ---- queue pairs --------------------------------------------------------------------------

    pub(super) fn create_qp(
        &mut self,
        parent: ObjectId,
        what: &CreateQp,
    ) -> Result<Context, NTSTATUS> {
        let pd = self.pd(parent)?;
        let CreateQp { receive_cq, initiator_cq, receive_depth, initiator_depth, .. } = *what;
        // One that has overrun takes no completion any more.
        let is_cq = |id| {
            let entry = self.objects.get(id);
            entry.is_some_and(|entry| {
                entry.closing.is_none() && matches!(&entry.kind, Kind::Cq(cq) if !cq.has_failed())
            })
        };
        if !is_cq(receive_cq) || !is_cq(initiator_cq) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let srq = what.srq.map(|id| self.open_srq(id).ok_or(STATUS_INVALID_PARAMETER));
        let srq = srq.transpose()?;
        let inline = self.create_inline(pd, what)?;
        let inline_key = inline.as_ref().map(|(inline, region)| (inline.key, *region));
        let (initiator_ring, initiator) = rtrb::RingBuffer::new((initiator_depth as usize).max(1));
        let (receive_ring, receive) = rtrb::RingBuffer::new((receive_depth as usize).max(1));
        let mut pointer = core::ptr::null_mut();
        let parents: heapless::Vec<ObjectId, 4> =
            [parent, receive_cq, initiator_cq].into_iter().chain(what.srq).collect();
        let id = self.insert(&parents, |base| {
            let shared = QpShared {
                pd,
                initiator: Exclusive::new(Queue::new(initiator_ring, what.initiator_sge)),
                receive: Exclusive::new(Queue::new(receive_ring, what.receive_sge)),
                initiator_slots: Slots::new(initiator_depth),
                receive_slots: Slots::new(receive_depth),
                inline: inline.map(|(inline, _)| inline),
                has_srq: srq.is_some(),
                connected: AtomicBool::new(false),
                reads: AtomicBool::new(false),
                doorbell: Doorbell::default(),
            };
            let ndk = NDK_QP::new(base.version, &qp::DISPATCH);
            let object = Arc::new(Object { ndk, base, shared });
            pointer = object.as_ndk();
            Kind::Qp(Box::new(QpCore {
                object,
                qpn: Qpn::default(),
                initiator,
                receive,
                initiator_cq,
                receive_cq,
                srq: what.srq,
                context: what.context,
                connector: None,
                inline: inline_key.map(|(key, region)| (Rkey::new(key.get()), region)),
                lost_cq: false,
            }))
        });
        let config = QpConfig {
            owner: owner(id),
            pd,
            send_depth: initiator_depth as usize,
            recv_depth: receive_depth as usize,
            srq,
        };
        let Some(qpn) = self.device.create_qp(&config) else {
            self.remove(id);
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        };
        if let Some(qp) = self.qp(id) {
            qp.qpn = qpn;
        }
        Ok(Context::new(pointer.cast()))
    }

    /// The room for inline data of a QP that is to have some, registered for itself alone.
    fn create_inline(
        &mut self,
        pd: PdId,
        what: &CreateQp,
    ) -> Result<Option<(Inline, RegionId)>, NTSTATUS> {
        let (count, slot_len) = (what.initiator_depth as usize, what.inline_len as usize);
        if count == 0 || slot_len == 0 {
            return Ok(None);
        }
        let slots = InlineSlots::new(count, slot_len).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let slots = Arc::new(slots);
        let region = self.regions.insert_inline(Arc::clone(&slots));
        let len = slots.offset(count);
        let registration = Registration { pd, region, base: 0, len, access: Access::LOCAL_READ };
        let Some(key) = self.device.register(registration) else {
            self.regions.remove(region);
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        };
        Ok(Some((Inline { slots, key: Lkey::new(key.get()) }, region)))
    }

    pub(super) fn qp(&mut self, id: ObjectId) -> Option<&mut QpCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Qp(qp)) => Some(qp),
            _ => None,
        }
    }

    /// What ended a QP, as its consumer is told; 0 where nothing did.
    pub(super) fn reason(&self, qp: &QpCore) -> u32 {
        match self.device.qp_failure(qp.qpn) {
            Some(failure) => reason::code(failure),
            None if qp.lost_cq => reason::CQ_OVERRUN,
            None => 0,
        }
    }

    /// Moves what was posted on a QP into the device.
    pub(super) fn drain_qp(&mut self, id: ObjectId) {
        loop {
            let Self { objects, device, .. } = self;
            let Some(Kind::Qp(qp)) = objects.get_mut(id).map(|entry| &mut entry.kind) else {
                return;
            };
            let Some(op) = qp.drain(device) else { return };
            self.follow_window(&op);
        }
    }

    /// Cancels everything that is posted on a QP.
    pub(super) fn flush_qp(&mut self, id: ObjectId) {
        let Some(qp) = self.qp(id) else { return };
        qp.object.shared.connected.store(false, Ordering::Release);
        let qpn = qp.qpn;
        self.device.flush_qp(qpn);
        // In the error state now, so that what is in the rings ends flushed as well.
        self.drain_qp(id);
    }

    /// Ends what a closed QP has in the device.
    pub(super) fn destroy_qp(&mut self, mut qp: QpCore) {
        // What a consumer posted against its own flush gives back what it holds.
        while qp.drain(&mut self.device).is_some() {}
        self.device.destroy_qp(qp.qpn);
        if let Some((key, region)) = qp.inline {
            self.free_key(key);
            self.regions.remove(region);
        }
    }

    // ---- shared receive queues ----------------------------------------------------------------

    pub(super) fn create_srq(
        &mut self,
        parent: ObjectId,
        what: &CreateSrq,
    ) -> Result<Context, NTSTATUS> {
        let pd = self.pd(parent)?;
        // As deep as it can become, so that a change of depth moves nothing.
        let depth = self.shard.limits.srq_depth as usize;
        let (ring, receive) = rtrb::RingBuffer::new(depth);
        let mut pointer = core::ptr::null_mut();
        let id = self.insert(&[parent], |base| {
            let shared = SrqShared {
                receive: Exclusive::new(Queue::new(ring, what.max_sge)),
                slots: Slots::new(what.depth),
                doorbell: Doorbell::default(),
            };
            let ndk = NDK_SRQ::new(base.version, &srq::DISPATCH);
            let object = Arc::new(Object { ndk, base, shared });
            pointer = object.as_ndk();
            let CreateSrq { notification, context, .. } = *what;
            let srq = SrqCore { object, id: None, receive, taken: 0, notification, context };
            Kind::Srq(Box::new(srq))
        });
        let threshold = what.threshold as usize;
        let config = SrqConfig { owner: owner(id), pd, depth, threshold };
        let created = self.device.create_srq(config);
        if let Some(srq) = self.srq(id) {
            srq.id = Some(created);
        }
        Ok(Context::new(pointer.cast()))
    }

    fn srq(&mut self, id: ObjectId) -> Option<&mut SrqCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Srq(srq)) => Some(srq),
            _ => None,
        }
    }

    /// The device's name of an SRQ that is not being closed.
    fn open_srq(&self, id: ObjectId) -> Option<SrqId> {
        match self.objects.get(id) {
            Some(Entry { kind: Kind::Srq(srq), closing: None, .. }) => srq.id,
            _ => None,
        }
    }

    /// The slots of the queue that a QP's receives come from.
    pub(super) fn srq_slots(&self, id: ObjectId) -> Option<&Slots> {
        match self.objects.get(id).map(|entry| &entry.kind) {
            Some(Kind::Srq(srq)) => Some(&srq.object.shared.slots),
            _ => None,
        }
    }

    pub(super) fn modify_srq(&mut self, id: ObjectId, depth: u32, threshold: u32) -> NTSTATUS {
        let Self { objects, device, .. } = self;
        let Some(Kind::Srq(srq)) = objects.get_mut(id).map(|entry| &mut entry.kind) else {
            return STATUS_INVALID_PARAMETER;
        };
        srq.drain(device);
        let slots = &srq.object.shared.slots;
        if depth != 0 {
            if depth < srq.taken.wrapping_sub(slots.retired()) {
                return STATUS_BUFFER_OVERFLOW;
            }
            slots.set_depth(depth);
        }
        if threshold != 0
            && let Some(id) = srq.id
        {
            let armed = device.modify_srq(id, None, Some(threshold as usize));
            debug_assert!(armed.is_ok());
        }
        STATUS_SUCCESS
    }

    /// An SRQ fell below its threshold: its notification is due at the end of the turn.
    pub(super) fn handle_low_srq(&mut self, owner: u64) {
        let srq = ObjectId::from(KeyData::from_ffi(owner));
        self.upcalls.push_back(Upcall::SrqLow { srq });
    }

    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(super) fn notify_srq(&mut self, id: ObjectId) {
        let Some(Entry { kind: Kind::Srq(srq), closing: None, .. }) = self.objects.get(id) else {
            return;
        };
        if let (Some(callback), context) = (srq.notification, srq.context) {
            // SAFETY: the consumer's callback with the consumer's context; one at a time, as only
            // this thread makes them.
            unsafe { callback(context.get(), STATUS_SUCCESS) };
        }
    }

    /// Ends a closed SRQ in the device. No QP is left to tell of what was queued.
    pub(super) fn destroy_srq(&mut self, srq: &SrqCore) {
        if let Some(id) = srq.id {
            let destroyed = self.device.destroy_srq(id);
            debug_assert!(destroyed.is_ok());
        }
    }
}
