//! Shared receive queues: the poll core's end of their rings.

use super::call::DISPATCH;
use super::request::{CreateSrq, ModifySrq};
use super::shared::{SrqObject, SrqShared};
use crate::abi::*;
use crate::cx::Cx;
use crate::object::id::{Context, ObjectId, Place, SrqKey};
use crate::object::shared::Object;
use crate::pd::core::Pds;
use crate::queue::{Queue, Slots};
use crate::request::{Creation, Request};
use crate::sync::modelled::rtrb;
use crate::sync::{Doorbell, Exclusive};
use alloc::boxed::Box;
use alloc::sync::Arc;
use rocev2::Device;
use rocev2::mr::PdId;
use rocev2::qp::{RecvWr, SrqConfig, SrqId};
use slotmap::{Key as _, KeyData, SlotMap};

pub(crate) struct SrqCore {
    object: Arc<SrqObject>,
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
    fn drain(&mut self, device: &mut Device) {
        let Some(id) = self.id else { return };
        while let Ok(wr) = self.receive.pop() {
            let posted = device.post_srq_recv(id, wr);
            debug_assert!(posted.is_ok());
            self.taken = self.taken.wrapping_add(1);
        }
    }

    fn modify(&mut self, device: &mut Device, depth: u32, threshold: u32) -> NTSTATUS {
        self.drain(device);
        let slots = &self.object.shared.slots;
        if depth != 0 {
            if depth < self.taken.wrapping_sub(slots.retired()) {
                return STATUS_BUFFER_OVERFLOW;
            }
            slots.set_depth(depth);
        }
        if threshold != 0
            && let Some(id) = self.id
        {
            let armed = device.modify_srq(id, None, Some(threshold as usize));
            debug_assert!(armed.is_ok());
        }
        STATUS_SUCCESS
    }
}

/// The shared receive queues.
#[derive(Default)]
pub(crate) struct Srqs {
    table: SlotMap<SrqKey, Box<SrqCore>>,
}

impl Srqs {
    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        (parent, pd): (ObjectId, PdId),
        what: &CreateSrq,
    ) -> Context {
        // As deep as it can become, so that a change of depth moves nothing.
        let depth = cx.shard.limits.srq_depth as usize;
        let (ring, receive) = rtrb::RingBuffer::new(depth);
        let (mut key, mut pointer) = (SrqKey::null(), core::ptr::null_mut());
        cx.insert(&[parent], |base| {
            let shared = SrqShared {
                receive: Exclusive::new(Queue::new(ring, what.max_sge)),
                slots: Slots::new(what.depth),
                doorbell: Doorbell::default(),
            };
            let ndk = NDK_SRQ::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared });
            pointer = object.as_ndk();
            let CreateSrq { notification, context, .. } = *what;
            let srq = SrqCore { object, id: None, receive, taken: 0, notification, context };
            key = self.table.insert(Box::new(srq));
            Place::Srq(key)
        });
        let (owner, threshold) = (key.data().as_ffi(), what.threshold as usize);
        let created = cx.device.create_srq(SrqConfig { owner, pd, depth, threshold });
        if let Some(srq) = self.table.get_mut(key) {
            srq.id = Some(created);
        }
        Context::new(pointer.cast())
    }

    fn key(cx: &Cx, id: ObjectId) -> Option<SrqKey> {
        cx.lifetimes.place(id)?.srq()
    }

    /// An SRQ that is not being closed: its key, and the device's name.
    pub(crate) fn open(&self, cx: &Cx, id: ObjectId) -> Result<(SrqKey, SrqId), NTSTATUS> {
        let key = Self::key(cx, id).filter(|_| cx.lifetimes.is_open(id));
        let found = key.and_then(|key| Some((key, self.table.get(key)?.id?)));
        found.ok_or(STATUS_INVALID_PARAMETER)
    }

    /// The slots of the queue that a QP's receives come from.
    pub(crate) fn slots(&self, key: SrqKey) -> Option<&Slots> {
        self.table.get(key).map(|srq| &srq.object.shared.slots)
    }

    pub(crate) fn modify(
        &mut self,
        cx: &mut Cx,
        id: ObjectId,
        depth: u32,
        threshold: u32,
    ) -> NTSTATUS {
        let srq = Self::key(cx, id).and_then(|key| self.table.get_mut(key));
        srq.map_or(STATUS_INVALID_PARAMETER, |srq| srq.modify(&mut cx.device, depth, threshold))
    }

    /// The consumer has posted.
    pub(crate) fn service(&mut self, cx: &mut Cx, key: SrqKey) {
        if let Some(srq) = self.table.get_mut(key) {
            srq.object.shared.doorbell.answer();
            srq.drain(&mut cx.device);
        }
    }

    /// Tells the consumer that the SRQ of this name in the device fell below its threshold.
    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(crate) fn notify(&self, cx: &Cx, owner: u64) {
        let key = SrqKey::from(KeyData::from_ffi(owner));
        let Some(srq) = self.table.get(key) else { return };
        if !cx.lifetimes.is_open(srq.object.base.id) {
            return;
        }
        if let (Some(callback), context) = (srq.notification, srq.context) {
            // SAFETY: the consumer's callback with the consumer's context; one at a time, as only
            // this thread makes them.
            unsafe { callback(context.get(), STATUS_SUCCESS) };
        }
    }

    /// Whether a call of the consumer is still inside.
    pub(crate) fn is_entered(&self, key: SrqKey) -> bool {
        self.table.get(key).is_some_and(|srq| srq.object.shared.receive.is_entered())
    }

    /// Forgets a closed SRQ. No QP is left to tell of what was queued.
    pub(crate) fn remove(&mut self, cx: &mut Cx, key: SrqKey) {
        if let Some(id) = self.table.remove(key).and_then(|srq| srq.id) {
            let destroyed = cx.device.destroy_srq(id);
            debug_assert!(destroyed.is_ok());
        }
    }
}

impl Creation for CreateSrq {
    type Objects<'a> = (&'a Pds, &'a mut Srqs);

    /// The ring, and the device's own queue behind it, whose entries are those of the ring with the transport's notes of
    /// them.
    fn bytes(&self, cx: &Cx) -> usize {
        let depth = cx.shard.limits.srq_depth as usize;
        depth * 3 * size_of::<RecvWr>() + cx.device.room_bytes(depth, 0)
    }

    fn create(
        self,
        cx: &mut Cx,
        pd: ObjectId,
        (pds, srqs): (&Pds, &mut Srqs),
    ) -> Result<Context, NTSTATUS> {
        Ok(srqs.create(cx, pds.member(cx, pd)?, &self))
    }
}

impl Request for ModifySrq {
    type Objects<'a> = &'a mut Srqs;

    fn bytes(&self, cx: &Cx) -> Option<usize> {
        Some(cx.device.room_bytes(self.depth as usize, 0))
    }

    fn run(self, cx: &mut Cx, srqs: &mut Srqs) {
        let status = srqs.modify(cx, self.srq, self.depth, self.threshold);
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
