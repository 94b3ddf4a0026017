//! Shared receive queues: the poll core's end of their rings.

use super::call::DISPATCH;
use super::request::{CreateSrq, ModifySrq};
use super::shared::{Receives, SUCCESSORS, SrqObject, SrqShared};
use crate::abi::*;
use crate::cx::Cx;
use crate::object::id::{Context, ObjectId, Place, SrqKey};
use crate::object::shared::Object;
use crate::pd::core::Pds;
use crate::queue::Slots;
use crate::request::{Creation, Request};
use crate::sync::modelled::rtrb;
use crate::sync::{Doorbell, Exclusive};
use alloc::boxed::Box;
use alloc::sync::Arc;
use rocev2::Device;
use rocev2::mr::PdId;
use rocev2::qp::{MAX_SGE, RecvPoster, SrqConfig, SrqId};
use slotmap::{Key as _, KeyData, SlotMap};

pub(crate) struct SrqCore {
    object: Arc<SrqObject>,
    /// Its name in the device.
    id: SrqId,
    /// Where the consumer finds the ring that takes the place of the one that it posts to.
    rings: rtrb::Producer<RecvPoster>,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    context: Context,
}

impl SrqCore {
    fn modify(&mut self, device: &mut Device, depth: u32, threshold: u32) -> NTSTATUS {
        device.ring_srq_doorbell(self.id);
        let slots = &self.object.shared.slots;
        // The slot of a receive that a QP has taken is free when that has ended.
        let posted = device.srq_posted(self.id).unwrap_or_default();
        if depth != 0 && depth < posted.wrapping_sub(slots.retired()) {
            return STATUS_BUFFER_OVERFLOW;
        }
        let kept = |number: u32| (number != 0).then_some(number as usize);
        let modified = device.modify_srq(self.id, kept(depth), kept(threshold));
        debug_assert!(modified.is_ok());
        if let Some(ring) = device.take_srq_poster(self.id) {
            let pushed = self.rings.push(ring);
            debug_assert!(pushed.is_ok());
        }
        if depth != 0 {
            slots.set_depth(depth);
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
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        (parent, pd): (ObjectId, PdId),
        what: &CreateSrq,
    ) -> Result<Context, NTSTATUS> {
        let CreateSrq { max_sge, notification, context, .. } = *what;
        let (depth, threshold) = (what.depth as usize, what.threshold as usize);
        let id = cx.device.create_srq(SrqConfig {
            owner: 0,
            pd,
            depth,
            max_sge: max_sge as usize,
            threshold,
        });
        let ring = cx.device.take_srq_poster(id).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let (rings, successors) = rtrb::RingBuffer::new(SUCCESSORS);
        let (mut key, mut pointer) = (SrqKey::null(), core::ptr::null_mut());
        cx.insert(&[parent], |base| {
            let shared = SrqShared {
                receive: Exclusive::new(Receives::new(ring, successors, max_sge)),
                slots: Slots::new(what.depth),
                doorbell: Doorbell::default(),
            };
            let ndk = NDK_SRQ::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared });
            pointer = object.as_ndk();
            let srq = SrqCore { object, id, rings, notification, context };
            key = self.table.insert(Box::new(srq));
            Place::Srq(key)
        });
        cx.device.set_srq_owner(id, key.data().as_ffi());
        Ok(Context::new(pointer.cast()))
    }

    fn key(cx: &Cx, id: ObjectId) -> Option<SrqKey> {
        cx.lifetimes.place(id)?.srq()
    }

    /// An SRQ that is not being closed: its key, and the device's name.
    pub(crate) fn open(&self, cx: &Cx, id: ObjectId) -> Result<(SrqKey, SrqId), NTSTATUS> {
        let key = Self::key(cx, id).filter(|_| cx.lifetimes.is_open(id));
        let found = key.and_then(|key| Some((key, self.table.get(key)?.id)));
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
            cx.device.ring_srq_doorbell(srq.id);
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
        if let Some(srq) = self.table.remove(key) {
            let destroyed = cx.device.destroy_srq(srq.id);
            debug_assert!(destroyed.is_ok());
        }
    }
}

impl Creation for CreateSrq {
    type Objects<'a> = (&'a Pds, &'a mut Srqs);

    fn bytes(&self, cx: &Cx) -> usize {
        let depth = self.depth as usize;
        RecvPoster::queue_bytes(depth, self.max_sge as usize) + cx.device.room_bytes(depth, 0)
    }

    fn create(
        self,
        cx: &mut Cx,
        pd: ObjectId,
        (pds, srqs): (&Pds, &mut Srqs),
    ) -> Result<Context, NTSTATUS> {
        srqs.create(cx, pds.member(cx, pd)?, &self)
    }
}

impl Request for ModifySrq {
    type Objects<'a> = &'a mut Srqs;

    /// A ring of the new depth, for the widest receives that there are.
    fn bytes(&self, cx: &Cx) -> Option<usize> {
        let depth = self.depth as usize;
        let ring = RecvPoster::queue_bytes(depth.next_power_of_two(), MAX_SGE);
        Some(ring + cx.device.room_bytes(depth, 0))
    }

    fn run(self, cx: &mut Cx, srqs: &mut Srqs) {
        let status = srqs.modify(cx, self.srq, self.depth, self.threshold);
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
