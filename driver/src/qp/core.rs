//! Queue pairs: the poll core's end of their rings.

use super::call::DISPATCH;
use super::request::CreateQp;
use super::shared::{Inline, QpObject, QpShared};
use crate::abi::*;
use crate::bytes::inline::InlineSlots;
use crate::cq::core::{Cqs, Delivery};
use crate::cq::shared::{Cqe, PENDING_ANY, PENDING_SOLICITED};
use crate::cx::Cx;
use crate::mw::core::Windows;
use crate::object::core::Parents;
use crate::object::id::{At, ConnectorKey, Context, CqKey, ObjectId, Place, QpKey, Ringer, SrqKey};
use crate::object::shared::{Base, Object};
use crate::pd::core::Pds;
use crate::platform::Trace;
use crate::request::Creation;
use crate::shard::Bell;
use crate::srq::core::Srqs;
use crate::status::{self, reason};
use crate::sync::{Doorbell, Exclusive, FLUSH, RECEIVES};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use rocev2::Engine;
use rocev2::env::RegionId;
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration};
use rocev2::qp::{
    Completion, Failure, Finished, Owner, QpConfig, RecvPoster, SendPoster, WcKind, WcStatus,
};
use slotmap::{Key as _, KeyData, SlotMap};

/// The memory of a slot of inline data beside the data.
const INLINE_SLOT_BYTES: usize = 64;

pub(crate) struct QpCore {
    pub(crate) object: Arc<QpObject>,
    pub(crate) qpn: Qpn,
    initiator_cq: At<CqKey>,
    receive_cq: At<CqKey>,
    /// One of its CQs is of another core.
    has_abroad: bool,
    /// Its completions that may wait for CQs of other cores, but for receives of an SRQ.
    abroad: u32,
    srq: Option<SrqKey>,
    context: Context,
    /// The connector that it serves; a QP is connected once in its life.
    pub(crate) connector: Option<ConnectorKey>,
    inline: Option<(Rkey, RegionId)>,
    /// One of its CQs has overrun.
    lost_cq: bool,
}

impl QpCore {
    /// Tells the engine what was posted, and keeps in `windows` what the desk is to tie to its region. A QP that is not
    /// connected takes initiator requests only from a consumer that raced with its own disconnect, and those end flushed with
    /// the QP.
    #[inline]
    fn drain(&self, engine: &mut Engine, windows: &mut Windows, reasons: u8) {
        let concerned = if reasons & RECEIVES != 0 {
            engine.ring_doorbell(self.qpn)
        } else {
            engine.ring_send_doorbell(self.qpn)
        };
        if concerned {
            self.note_windows(engine, windows);
        }
    }

    #[inline(never)]
    fn note_windows(&self, engine: &mut Engine, windows: &mut Windows) {
        while let Some(op) = engine.next_window_request(self.qpn) {
            windows.note(op);
        }
    }

    /// Cancels everything that is posted.
    pub(crate) fn flush(&mut self, engine: &mut Engine, windows: &mut Windows) {
        self.object.shared.connected.store(false, Ordering::Release);
        self.drain(engine, windows, RECEIVES);
        engine.flush_qp(self.qpn);
    }

    /// The same, as one of its CQs has overrun.
    pub(crate) fn lose_cq(&mut self, engine: &mut Engine, windows: &mut Windows) {
        self.lost_cq = true;
        self.flush(engine, windows);
    }

    /// The reason for which it ended, as its consumer gets it; 0 where none did.
    pub(crate) fn reason(&self, engine: &Engine) -> u32 {
        self.reason_of(engine.qp_failure(self.qpn))
    }

    /// The same, if the transport names this failure.
    fn reason_of(&self, failure: Option<Failure>) -> u32 {
        match failure {
            Some(failure) => reason::code(failure),
            None if self.lost_cq => reason::CQ_OVERRUN,
            None => 0,
        }
    }

    /// The entry for a completion of a request that has succeeded, and its meaning for a consumer that has armed the CQ.
    #[inline(always)]
    fn success(&self, completion: &Completion) -> (u8, Cqe) {
        self.entry_of(completion, (STATUS_SUCCESS, 0), completion.solicited)
    }

    /// The same for any completion.
    #[inline(always)]
    fn entry(
        &self,
        cx: &Delivery<'_>,
        failure: Option<Failure>,
        completion: &Completion,
    ) -> (u8, Cqe) {
        let &Completion { kind, status, .. } = completion;
        if status == WcStatus::Success {
            return self.success(completion);
        }
        self.entry_of(completion, self.error(cx, failure, kind, status), true)
    }

    /// The entry for a completion with this status and error code.
    #[inline(always)]
    fn entry_of(
        &self,
        completion: &Completion,
        (status, error_code): (NTSTATUS, u32),
        urgent: bool,
    ) -> (u8, Cqe) {
        let &Completion { kind, len, id, .. } = completion;
        let token = match kind {
            WcKind::ReceiveInvalidate(key) => key.get(),
            _ => 0,
        };
        let cqe = Cqe {
            status,
            bytes: len,
            qp_context: self.context,
            request_context: Context::from_u64(id),
            operation: status::operation(kind),
            token,
            error_code,
        };
        (if urgent { PENDING_ANY | PENDING_SOLICITED } else { PENDING_ANY }, cqe)
    }

    /// The status of a request that has not succeeded, and the reason.
    #[cold]
    #[inline(never)]
    fn error(
        &self,
        cx: &Delivery<'_>,
        failure: Option<Failure>,
        kind: WcKind,
        status: WcStatus,
    ) -> (NTSTATUS, u32) {
        let (flushed, status) = (status == WcStatus::Flushed, status::completion(kind, status));
        if !flushed {
            cx.shard.platform.trace(&Trace::RequestFailed { qpn: self.qpn, status });
        }
        (status, self.reason_of(failure))
    }

    /// The CQ of one of its queues.
    const fn cq(&self, receives: bool) -> At<CqKey> {
        if receives { self.receive_cq } else { self.initiator_cq }
    }

    /// Gives the CQ of a queue, which is of this core, its completions, as `entry` makes entries of them.
    #[inline(always)]
    fn push(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        queue: &Finished,
        mut completions: impl Iterator<Item = Completion>,
        entry: impl Fn(&Completion) -> (u8, Cqe),
    ) {
        let At { key: cq, .. } = self.cq(queue.receives);
        let shown = completions.by_ref().filter(|completion| !completion.silent);
        let fits = cqs.push(cx.now, cq, queue.count, shown.map(|completion| entry(&completion)));
        if !fits && completions.any(|completion| !completion.silent) {
            cqs.overrun(cx.shard, cq);
        }
    }

    /// The same where some may have failed, or the CQ is of another core. Not inlined, as that is seldom.
    #[inline(never)]
    fn push_any(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        queue: &Finished,
        completions: impl Iterator<Item = Completion>,
    ) {
        let entry = |completion: &Completion| self.entry(cx, queue.failure, completion);
        if self.is_abroad(queue.receives) {
            completions.for_each(|completion| self.carry(cqs, &completion, entry(&completion)));
        } else {
            self.push(cx, cqs, queue, completions, entry);
        }
    }

    /// Whether the CQ of one of its queues is of another core.
    fn is_abroad(&self, receives: bool) -> bool {
        self.has_abroad && self.cq(receives).core != self.object.shared.bell.core()
    }

    /// Has an entry taken to a CQ of another core.
    #[cold]
    #[inline(never)]
    fn carry(&self, cqs: &mut Cqs, completion: &Completion, entry: (u8, Cqe)) {
        if !completion.silent {
            cqs.carry(self.cq(completion.kind.is_receive()), entry);
        }
    }
}

/// The queue pairs.
#[derive(Default)]
pub(crate) struct Qps {
    table: SlotMap<QpKey, Box<QpCore>>,
}

/// The parts of a new QP: its bell, its name in the engine, the posting ends, and the sources of its memory, its completions and
/// its receives.
struct Parts {
    bell: Bell,
    abroad: u32,
    qpn: Qpn,
    initiator: SendPoster,
    receive: Option<RecvPoster>,
    pd: PdId,
    initiator_cq: At<CqKey>,
    receive_cq: At<CqKey>,
    srq: Option<SrqKey>,
    inline: Option<(Inline, RegionId)>,
}

/// Creates a QP on the core of its SRQ, or else of the CQ of its initiator requests.
fn create(
    cx: &mut Cx,
    (parent, pd): (ObjectId, PdId),
    what: &CreateQp,
) -> Result<Context, NTSTATUS> {
    let receive_cq = cx.usable_cq(what.receive_cq)?;
    let initiator_cq = cx.usable_cq(what.initiator_cq)?;
    let srq = what.srq.map(|id| cx.open_srq(id)).transpose()?;
    let core = srq.map_or(initiator_cq.core, |(at, _)| at.core);
    if cx.qps >= cx.shard.limits.qps {
        return Err(STATUS_INSUFFICIENT_RESOURCES);
    }
    let config = QpConfig {
        owner: 0,
        pd,
        send_depth: what.initiator_depth as usize,
        send_sge: what.initiator_sge as usize,
        recv_depth: what.receive_depth as usize,
        recv_sge: what.receive_sge as usize,
        srq: srq.map(|(_, id)| id),
    };
    let engine = &mut cx.lane(core).engine;
    let qpn = engine.create_qp(&config).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
    let initiator = engine.take_send_poster(qpn);
    let receive = engine.take_recv_poster(qpn);
    let inline = create_inline(cx, pd, what);
    let inline = inline.inspect_err(|_| cx.lane(core).engine.destroy_qp(qpn))?;
    let initiator = initiator.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
    let lane = cx.lane(core);
    let completions = [(initiator_cq, what.initiator_depth), (receive_cq, what.receive_depth)];
    let abroad = completions.into_iter().filter(|(cq, _)| cq.core != core);
    let abroad = abroad.map(|(_, depth)| depth).sum::<u32>();
    lane.cqs.make_room_abroad(abroad as usize);
    let bell = lane.new_bell();
    let ringer = bell.key;
    let srq = srq.map(|(at, _)| at.key);
    let parts =
        Parts { bell, abroad, qpn, initiator, receive, pd, initiator_cq, receive_cq, srq, inline };
    let parents: Parents =
        [parent, what.receive_cq, what.initiator_cq].into_iter().chain(what.srq).collect();
    let mut pointer = core::ptr::null_mut();
    cx.insert_on(core, &parents, |base, lane| {
        let qp = new_qp(base, parts, what);
        pointer = qp.object.as_ndk();
        let key = lane.qps.table.insert(Box::new(qp));
        lane.engine.set_qp_owner(qpn, key.data().as_ffi());
        lane.hang(ringer, Ringer::Qp(key));
        Place::Qp(At { core, key })
    });
    cx.qps += 1;
    Ok(Context::new(pointer.cast()))
}

/// Forgets a closed QP, and ends what it has in the engine.
pub(crate) fn remove(cx: &mut Cx, At { core, key }: At<QpKey>) {
    let lane = cx.lane(core);
    let Some(qp) = lane.qps.table.remove(key) else { return };
    lane.engine.destroy_qp(qp.qpn);
    lane.take_down(qp.object.shared.bell.key);
    lane.cqs.give_room_abroad(qp.abroad as usize);
    cx.qps -= 1;
    if let Some((key, region)) = qp.inline {
        cx.deregister(key, region);
    }
}

impl Qps {
    pub(crate) fn get(&self, key: QpKey) -> Option<&QpCore> {
        self.table.get(key).map(|qp| &**qp)
    }

    pub(crate) fn get_mut(&mut self, key: QpKey) -> Option<&mut QpCore> {
        self.table.get_mut(key).map(|qp| &mut **qp)
    }

    /// Moves what was posted on a QP into the engine; the consumer may want it flushed.
    pub(crate) fn service(&mut self, engine: &mut Engine, windows: &mut Windows, key: QpKey) {
        let Some(qp) = self.table.get_mut(key) else { return };
        let reasons = qp.object.shared.doorbell.answer();
        qp.drain(engine, windows, reasons);
        if reasons & FLUSH != 0 {
            qp.flush(engine, windows);
        }
    }

    /// Gives the CQ of one queue of a QP its completions, `queue.count` of them at most.
    #[inline(always)]
    pub(crate) fn complete(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        queue: &Finished,
        completions: impl Iterator<Item = Completion>,
    ) {
        let Some(qp) = self.table.get(QpKey::from(KeyData::from_ffi(queue.owner))) else { return };
        if queue.succeeded && !qp.has_abroad {
            qp.push(cx, cqs, queue, completions, |completion| qp.success(completion));
        } else {
            qp.push_any(cx, cqs, queue, completions);
        }
    }

    /// The CQ of one queue of a QP, its entry for a completion, and what that means for a consumer that has armed it; `None`
    /// where that is to see nothing, or its CQ is of another core, to which it is taken.
    #[inline(always)]
    pub(crate) fn entry(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        queue: &Finished,
        completion: &Completion,
    ) -> Option<(CqKey, u8, Cqe)> {
        let qp = self.table.get(QpKey::from(KeyData::from_ffi(queue.owner)))?;
        let (kind, entry) = qp.entry(cx, queue.failure, completion);
        if qp.is_abroad(queue.receives) {
            qp.carry(cqs, completion, (kind, entry));
            return None;
        }
        (!completion.silent).then_some((qp.cq(queue.receives).key, kind, entry))
    }

    /// The same for a receive that came from a shared queue.
    pub(crate) fn shared_entry(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        (engine, srqs): (&Engine, &Srqs),
        completion: &Completion,
    ) -> Option<(CqKey, u8, Cqe)> {
        // Receives that an SRQ held when it ended have no QP to complete on.
        let Owner::Qp(owner) = completion.owner else { return None };
        let qp = self.table.get(QpKey::from(KeyData::from_ffi(owner)))?;
        // The slot is free before the consumer can see why.
        if let Some(slots) = qp.srq.and_then(|srq| srqs.slots(srq)) {
            slots.retire();
        }
        let (kind, entry) = qp.entry(cx, engine.qp_failure(qp.qpn), completion);
        if qp.is_abroad(true) {
            qp.carry(cqs, completion, (kind, entry));
            return None;
        }
        Some((qp.receive_cq.key, kind, entry))
    }

    /// Those that complete on a CQ.
    pub(crate) fn on(&self, cq: At<CqKey>) -> Vec<QpKey> {
        let is_on_it = |qp: &QpCore| qp.receive_cq == cq || qp.initiator_cq == cq;
        self.table.iter().filter(|(_, qp)| is_on_it(qp)).map(|(key, _)| key).collect()
    }

    /// Whether a call of the consumer is still inside.
    pub(crate) fn is_entered(&self, key: QpKey) -> bool {
        self.table.get(key).is_some_and(|qp| {
            let shared = &qp.object.shared;
            shared.initiator.is_entered() || shared.receive.is_entered()
        })
    }
}

impl CreateQp {
    /// The core that it is to live on: that of its SRQ, or else of the CQ of its initiator requests. `None`: it has a mistake.
    fn core(&self, cx: &mut Cx) -> Option<u8> {
        match self.srq {
            Some(srq) => cx.open_srq(srq).ok().map(|(at, _)| at.core),
            None => cx.usable_cq(self.initiator_cq).ok().map(|at| at.core),
        }
    }
}

impl Creation for CreateQp {
    type Objects<'a> = &'a Pds;

    fn bytes(&self, cx: &mut Cx) -> usize {
        let (initiator, receive) = (self.initiator_depth as usize, self.receive_depth as usize);
        let inline = self.inline_len as usize + INLINE_SLOT_BYTES;
        SendPoster::queue_bytes(initiator, self.initiator_sge as usize)
            + initiator * inline
            + RecvPoster::queue_bytes(receive, self.receive_sge as usize)
            + self.core(cx).map_or(0, |core| {
                let several = cx.shard.cores() > 1;
                let lane = cx.lane(core);
                let abroad = if several { lane.cqs.room_bytes(initiator + receive) } else { 0 };
                lane.engine.qp_bytes(initiator) + lane.growth() + abroad
            })
    }

    fn create(self, cx: &mut Cx, pd: ObjectId, pds: &Pds) -> Result<Context, NTSTATUS> {
        create(cx, pds.member(cx, pd)?, &self)
    }
}

/// A QP that the engine does not know yet.
fn new_qp(base: Base, parts: Parts, what: &CreateQp) -> QpCore {
    let Parts { bell, abroad, qpn, initiator, receive, pd, initiator_cq, receive_cq, srq, inline } =
        parts;
    let has_abroad = [initiator_cq, receive_cq].iter().any(|cq| cq.core != bell.core());
    let inline_key = inline.as_ref().map(|(inline, region)| (inline.key, *region));
    let shared = QpShared {
        pd,
        initiator: Exclusive::new(initiator),
        initiator_sge: what.initiator_sge as usize,
        receive: Exclusive::new(receive),
        receive_sge: what.receive_sge as usize,
        inline: inline.map(|(inline, _)| inline),
        connected: AtomicBool::new(false),
        reads: AtomicBool::new(false),
        bell,
        doorbell: Doorbell::default(),
    };
    let ndk = NDK_QP::new(base.version, &DISPATCH);
    QpCore {
        object: Arc::new(Object { ndk, base, shared }),
        qpn,
        initiator_cq,
        receive_cq,
        has_abroad,
        abroad,
        srq,
        context: what.context,
        connector: None,
        inline: inline_key.map(|(key, region)| (Rkey::new(key.get()), region)),
        lost_cq: false,
    }
}

/// The room for inline data of a QP that is to have some, registered for itself alone.
fn create_inline(
    cx: &mut Cx,
    pd: PdId,
    what: &CreateQp,
) -> Result<Option<(Inline, RegionId)>, NTSTATUS> {
    let (count, slot_len) = (what.initiator_depth as usize, what.inline_len as usize);
    if count == 0 || slot_len == 0 {
        return Ok(None);
    }
    let slots = InlineSlots::new(count, slot_len).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
    let slots = Arc::new(slots);
    let region = cx.names.insert_inline(Arc::clone(&slots));
    let len = slots.offset(count);
    let registration = Registration { pd, region, base: 0, len, access: Access::LOCAL_READ };
    let Some(key) = cx.register(registration) else {
        return Err(STATUS_INSUFFICIENT_RESOURCES);
    };
    Ok(Some((Inline { slots, key: Lkey::new(key.get()) }, region)))
}
