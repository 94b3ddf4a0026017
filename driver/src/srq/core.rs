//! Shared receive queues: the poll core's end of their rings.

use super::call::DISPATCH;
use super::request::{CreateSrq, ModifySrq};
use super::shared::{Receives, SUCCESSORS, SrqObject, SrqShared};
use crate::abi::*;
use crate::cx::Cx;
use crate::lane::Lane;
use crate::object::id::{At, Context, ObjectId, Place, Ringer, SrqKey};
use crate::object::shared::Object;
use crate::pd::core::Pds;
use crate::queue::Slots;
use crate::request::{Creation, Request};
use crate::sync::modelled::rtrb;
use crate::sync::{Doorbell, Exclusive};
use crate::upcall::{Calling, Notice};
use alloc::boxed::Box;
use alloc::sync::Arc;
use rocev2::Engine;
use rocev2::mr::PdId;
use rocev2::qp::{MAX_SGE, RecvPoster, SrqConfig, SrqId};
use slotmap::{Key as _, KeyData, SlotMap};

pub(crate) struct SrqCore {
    object: Arc<SrqObject>,
    /// Its name in the engine.
    id: SrqId,
    /// Where the consumer finds the ring that takes the place of the one that it posts to.
    rings: rtrb::Producer<RecvPoster>,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    context: Context,
}

impl SrqCore {
    fn modify(&mut self, engine: &mut Engine, depth: u32, threshold: u32) -> NTSTATUS {
        engine.ring_srq_doorbell(self.id);
        let slots = &self.object.shared.slots;
        // The slot of a receive that a QP has taken is free when that has ended.
        let posted = engine.srq_posted(self.id).unwrap_or_default();
        if depth != 0 && depth < posted.wrapping_sub(slots.retired()) {
            return STATUS_BUFFER_OVERFLOW;
        }
        let kept = |number: u32| (number != 0).then_some(number as usize);
        let modified = engine.modify_srq(self.id, kept(depth), kept(threshold));
        debug_assert!(modified.is_ok());
        if let Some(ring) = engine.take_srq_poster(self.id) {
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
    /// Its name in the engine.
    pub(crate) fn id(&self, key: SrqKey) -> Option<SrqId> {
        self.table.get(key).map(|srq| srq.id)
    }

    /// The slots of the queue that a QP's receives come from.
    pub(crate) fn slots(&self, key: SrqKey) -> Option<&Slots> {
        self.table.get(key).map(|srq| &srq.object.shared.slots)
    }

    fn modify(&mut self, engine: &mut Engine, key: SrqKey, depth: u32, threshold: u32) -> NTSTATUS {
        let srq = self.table.get_mut(key);
        srq.map_or(STATUS_INVALID_PARAMETER, |srq| srq.modify(engine, depth, threshold))
    }

    /// The consumer has posted.
    pub(crate) fn service(&mut self, engine: &mut Engine, key: SrqKey) {
        if let Some(srq) = self.table.get_mut(key) {
            srq.object.shared.doorbell.answer();
            engine.ring_srq_doorbell(srq.id);
        }
    }

    /// The notification of the SRQ of this name in the engine, which fell below its threshold, and the SRQ.
    pub(crate) fn notice(&self, owner: u64) -> Option<(Notice, &Arc<SrqObject>)> {
        let key = SrqKey::from(KeyData::from_ffi(owner));
        let srq = self.table.get(key).filter(|srq| !srq.object.base.is_closing())?;
        let (callback, context) = (srq.notification?, srq.context);
        Some((Notice { callback, context, status: STATUS_SUCCESS }, &srq.object))
    }

    /// Whether a call of the consumer is still inside.
    pub(crate) fn is_entered(&self, key: SrqKey) -> bool {
        self.table.get(key).is_some_and(|srq| {
            let shared = &srq.object.shared;
            shared.receive.is_entered() || shared.calling.is_inside()
        })
    }
}

/// Creates an SRQ on its core.
fn create(
    cx: &mut Cx,
    (parent, pd): (ObjectId, PdId),
    what: &CreateSrq,
) -> Result<Context, NTSTATUS> {
    let CreateSrq { core, max_sge, notification, context, .. } = *what;
    let (depth, threshold) = (what.depth as usize, what.threshold as usize);
    let several = cx.shard.cores() > 1;
    let lane = cx.lane(core);
    let max_sges = max_sge as usize;
    let config = SrqConfig { owner: 0, pd, depth, max_sge: max_sges, threshold };
    let id = lane.engine.create_srq(config);
    let ring = lane.engine.take_srq_poster(id).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
    if several {
        lane.cqs.make_room_abroad(depth);
    }
    let (rings, successors) = rtrb::RingBuffer::new(SUCCESSORS);
    let mut pointer = ::core::ptr::null_mut();
    cx.insert_on(core, &[parent], |base, lane| {
        let bell = lane.new_bell();
        let ringer = bell.key;
        let shared = SrqShared {
            receive: Exclusive::new(Receives::new(ring, successors, max_sge)),
            slots: Slots::new(what.depth),
            calling: Calling::default(),
            bell,
            doorbell: Doorbell::default(),
        };
        let ndk = NDK_SRQ::new(base.version, &DISPATCH);
        let object = Arc::new(Object { ndk, base, shared });
        pointer = object.as_ndk();
        let srq = SrqCore { object, id, rings, notification, context };
        let key = lane.srqs.table.insert(Box::new(srq));
        lane.engine.set_srq_owner(id, key.data().as_ffi());
        lane.hang(ringer, Ringer::Srq(key));
        Place::Srq(At { core, key })
    });
    cx.ringers += 1;
    Ok(Context::new(pointer.cast()))
}

/// Forgets a closed SRQ. No QP is left to tell of what was queued.
pub(crate) fn remove(cx: &mut Cx, At { core, key }: At<SrqKey>) {
    let several = cx.shard.cores() > 1;
    let lane = cx.lane(core);
    let Some(srq) = lane.srqs.table.remove(key) else { return };
    let destroyed = lane.engine.destroy_srq(srq.id);
    debug_assert!(destroyed.is_ok());
    lane.take_down(srq.object.shared.bell.key);
    if several {
        lane.cqs.give_room_abroad(srq.object.shared.slots.depth() as usize);
    }
    cx.ringers -= 1;
}

impl Creation for CreateSrq {
    type Objects<'a> = &'a Pds;

    fn bytes(&self, cx: &mut Cx) -> usize {
        let (depth, several) = (self.depth as usize, cx.shard.cores() > 1);
        let lane = cx.lane(self.core);
        let abroad = if several { lane.cqs.room_bytes(depth) } else { 0 };
        RecvPoster::queue_bytes(depth, self.max_sge as usize)
            + lane.engine.room_bytes(depth, 0)
            + lane.growth()
            + abroad
    }

    fn create(self, cx: &mut Cx, pd: ObjectId, pds: &Pds) -> Result<Context, NTSTATUS> {
        create(cx, pds.member(cx, pd)?, &self)
    }
}

impl Request for ModifySrq {
    type Objects<'a> = ();

    /// A ring of the new depth, for the widest receives that there are.
    fn bytes(&self, cx: &mut Cx) -> Option<usize> {
        let depth = self.depth as usize;
        let ring = RecvPoster::queue_bytes(depth.next_power_of_two(), MAX_SGE);
        let several = cx.shard.cores() > 1;
        let Some(At { core, .. }) = cx.lifetimes.place(self.srq).and_then(Place::srq) else {
            return Some(0);
        };
        let lane = cx.lane(core);
        let abroad = if several { lane.cqs.room_bytes(depth) } else { 0 };
        Some(ring + lane.engine.room_bytes(depth, 0) + abroad)
    }

    fn run(self, cx: &mut Cx, (): ()) {
        let several = cx.shard.cores() > 1;
        let status = match cx.lifetimes.place(self.srq).and_then(Place::srq) {
            Some(At { core, key }) => {
                let Lane { engine, srqs, cqs, .. } = cx.lane(core);
                let before = srqs.slots(key).map_or(0, Slots::depth);
                let status = srqs.modify(engine, key, self.depth, self.threshold);
                if several && status == STATUS_SUCCESS && self.depth != 0 {
                    cqs.give_room_abroad(before as usize);
                    cqs.make_room_abroad(self.depth as usize);
                }
                status
            }
            None => STATUS_INVALID_PARAMETER,
        };
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
