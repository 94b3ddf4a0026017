//! Queue pairs: the poll core's end of their rings.

use super::call::DISPATCH;
use super::request::CreateQp;
use super::shared::{Inline, QpObject, QpShared};
use crate::abi::*;
use crate::bytes::inline::InlineSlots;
use crate::cq::core::{Cqs, Delivery};
use crate::cq::shared::{Cqe, PENDING_ANY, PENDING_SOLICITED};
use crate::cx::Cx;
use crate::mw::core::follow;
use crate::object::core::Parents;
use crate::object::id::{ConnectorKey, Context, CqKey, ObjectId, Place, QpKey, SrqKey};
use crate::object::shared::{Base, Object};
use crate::pd::core::Pds;
use crate::platform::Trace;
use crate::request::Creation;
use crate::srq::core::Srqs;
use crate::status::{self, reason};
use crate::sync::{Doorbell, Exclusive, FLUSH, RECEIVES};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use rocev2::Device;
use rocev2::counters::QpCounters;
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
    initiator_cq: CqKey,
    receive_cq: CqKey,
    srq: Option<SrqKey>,
    context: Context,
    /// The connector that it serves; a QP is connected once in its life.
    pub(crate) connector: Option<ConnectorKey>,
    inline: Option<(Rkey, RegionId)>,
    /// One of its CQs has overrun.
    lost_cq: bool,
}

impl QpCore {
    /// Tells the device what was posted, and ties windows to their regions. A QP that is not connected takes
    /// initiator requests only from a consumer that raced with its own disconnect, and those end flushed with
    /// the QP.
    #[inline]
    fn drain(&self, cx: &mut Cx, reasons: u8) {
        let windows = if reasons & RECEIVES != 0 {
            cx.device.ring_doorbell(self.qpn)
        } else {
            cx.device.ring_send_doorbell(self.qpn)
        };
        if windows {
            self.follow_windows(cx);
        }
    }

    #[inline(never)]
    fn follow_windows(&self, cx: &mut Cx) {
        while let Some(op) = cx.device.next_window_request(self.qpn) {
            follow(cx, &op);
        }
    }

    /// Cancels everything that is posted.
    fn flush(&mut self, cx: &mut Cx) {
        self.object.shared.connected.store(false, Ordering::Release);
        self.drain(cx, RECEIVES);
        cx.device.flush_qp(self.qpn);
    }

    /// Ends what it has in the device.
    fn destroy(self, cx: &mut Cx) {
        cx.device.destroy_qp(self.qpn);
        if let Some((key, region)) = self.inline {
            cx.deregister(key, region);
        }
    }

    /// The reason for which it ended, as its consumer gets it; 0 where none did.
    pub(crate) fn reason(&self, device: &Device) -> u32 {
        self.reason_of(device.qp_failure(self.qpn))
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
    const fn cq(&self, queue: &Finished) -> CqKey {
        if queue.receives { self.receive_cq } else { self.initiator_cq }
    }

    /// Gives the CQ of a queue its completions, as `entry` makes entries of them.
    #[inline(always)]
    fn push(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        queue: &Finished,
        mut completions: impl Iterator<Item = Completion>,
        entry: impl Fn(&Completion) -> (u8, Cqe),
    ) {
        let cq = self.cq(queue);
        let shown = completions.by_ref().filter(|completion| !completion.silent);
        let fits = cqs.push(cx.now, cq, queue.count, shown.map(|completion| entry(&completion)));
        if !fits && completions.any(|completion| !completion.silent) {
            cqs.overrun(cx.shard, cq);
        }
    }

    /// The same where some may have failed. Not inlined, as that is seldom.
    #[inline(never)]
    fn push_any(
        &self,
        cx: &Delivery<'_>,
        cqs: &mut Cqs,
        queue: &Finished,
        completions: impl Iterator<Item = Completion>,
    ) {
        let entry = |completion: &Completion| self.entry(cx, queue.failure, completion);
        self.push(cx, cqs, queue, completions, entry);
    }
}

/// The queue pairs.
#[derive(Default)]
pub(crate) struct Qps {
    table: SlotMap<QpKey, Box<QpCore>>,
}

/// The parts of a new QP: its name in the device, the posting ends, and the sources of its memory, its completions and its
/// receives.
struct Parts {
    qpn: Qpn,
    initiator: SendPoster,
    receive: Option<RecvPoster>,
    pd: PdId,
    initiator_cq: CqKey,
    receive_cq: CqKey,
    srq: Option<SrqKey>,
    inline: Option<(Inline, RegionId)>,
}

impl Qps {
    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        (parent, pd): (ObjectId, PdId),
        (cqs, srqs): (&Cqs, &Srqs),
        what: &CreateQp,
    ) -> Result<Context, NTSTATUS> {
        let receive_cq = cqs.usable(cx, what.receive_cq)?;
        let initiator_cq = cqs.usable(cx, what.initiator_cq)?;
        let srq = what.srq.map(|id| srqs.open(cx, id)).transpose()?;
        let config = QpConfig {
            owner: 0,
            pd,
            send_depth: what.initiator_depth as usize,
            send_sge: what.initiator_sge as usize,
            recv_depth: what.receive_depth as usize,
            recv_sge: what.receive_sge as usize,
            srq: srq.map(|(_, id)| id),
        };
        let qpn = cx.device.create_qp(&config).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let inline = create_inline(cx, pd, what).inspect_err(|_| cx.device.destroy_qp(qpn))?;
        let initiator = cx.device.take_send_poster(qpn).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let receive = cx.device.take_recv_poster(qpn);
        let srq = srq.map(|(key, _)| key);
        let parts = Parts { qpn, initiator, receive, pd, initiator_cq, receive_cq, srq, inline };
        let parents: Parents =
            [parent, what.receive_cq, what.initiator_cq].into_iter().chain(what.srq).collect();
        let (mut key, mut pointer) = (QpKey::null(), core::ptr::null_mut());
        cx.insert(&parents, |base| {
            let qp = new_qp(base, parts, what);
            pointer = qp.object.as_ndk();
            key = self.table.insert(Box::new(qp));
            Place::Qp(key)
        });
        cx.device.set_qp_owner(qpn, key.data().as_ffi());
        Ok(Context::new(pointer.cast()))
    }

    pub(crate) fn key(cx: &Cx, id: ObjectId) -> Option<QpKey> {
        cx.lifetimes.place(id)?.qp()
    }

    pub(crate) fn get(&self, key: QpKey) -> Option<&QpCore> {
        self.table.get(key).map(|qp| &**qp)
    }

    pub(crate) fn get_mut(&mut self, key: QpKey) -> Option<&mut QpCore> {
        self.table.get_mut(key).map(|qp| &mut **qp)
    }

    /// Moves what was posted on a QP into the device; the consumer may want it flushed.
    pub(crate) fn service(&mut self, cx: &mut Cx, key: QpKey) {
        let Some(qp) = self.table.get_mut(key) else { return };
        let reasons = qp.object.shared.doorbell.answer();
        qp.drain(cx, reasons);
        if reasons & FLUSH != 0 {
            qp.flush(cx);
        }
    }

    /// Cancels everything that is posted on a QP.
    pub(crate) fn flush(&mut self, cx: &mut Cx, key: QpKey) {
        if let Some(qp) = self.table.get_mut(key) {
            qp.flush(cx);
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
        if queue.succeeded {
            qp.push(cx, cqs, queue, completions, |completion| qp.success(completion));
        } else {
            qp.push_any(cx, cqs, queue, completions);
        }
    }

    /// The CQ of one queue of a QP, its entry for a completion, and what that means for a consumer that has armed it; `None`
    /// where that is to see nothing.
    #[inline(always)]
    pub(crate) fn entry(
        &self,
        cx: &Delivery<'_>,
        queue: &Finished,
        completion: &Completion,
    ) -> Option<(CqKey, u8, Cqe)> {
        let qp = self.table.get(QpKey::from(KeyData::from_ffi(queue.owner)))?;
        let (kind, entry) = qp.entry(cx, queue.failure, completion);
        (!completion.silent).then_some((qp.cq(queue), kind, entry))
    }

    /// The same for a receive that came from a shared queue.
    pub(crate) fn shared_entry(
        &self,
        cx: &Delivery<'_>,
        device: &Device,
        srqs: &Srqs,
        completion: &Completion,
    ) -> Option<(CqKey, u8, Cqe)> {
        // Receives that an SRQ held when it ended have no QP to complete on.
        let Owner::Qp(owner) = completion.owner else { return None };
        let qp = self.table.get(QpKey::from(KeyData::from_ffi(owner)))?;
        // The slot is free before the consumer can see why.
        if let Some(slots) = qp.srq.and_then(|srq| srqs.slots(srq)) {
            slots.retire();
        }
        let (kind, entry) = qp.entry(cx, device.qp_failure(qp.qpn), completion);
        Some((qp.receive_cq, kind, entry))
    }

    /// Those that complete on a CQ.
    pub(crate) fn on(&self, cq: CqKey) -> Vec<QpKey> {
        let is_on_it = |qp: &QpCore| qp.receive_cq == cq || qp.initiator_cq == cq;
        self.table.iter().filter(|(_, qp)| is_on_it(qp)).map(|(key, _)| key).collect()
    }

    /// A CQ of a QP has overrun, and takes the QP with it (IBTA ch. 10, CQ errors).
    pub(crate) fn lose_cq(&mut self, cx: &mut Cx, key: QpKey) {
        if let Some(qp) = self.table.get_mut(key) {
            qp.lost_cq = true;
            qp.flush(cx);
        }
    }

    /// The QPN and the counters of a QP.
    pub(crate) fn counters<'a>(
        &self,
        device: &'a Device,
        key: QpKey,
    ) -> Option<(Qpn, &'a Arc<QpCounters>)> {
        let qp = self.table.get(key)?;
        Some((qp.qpn, device.qp_counters(qp.qpn)?))
    }

    /// Whether a call of the consumer is still inside.
    pub(crate) fn is_entered(&self, key: QpKey) -> bool {
        self.table.get(key).is_some_and(|qp| {
            let shared = &qp.object.shared;
            shared.initiator.is_entered() || shared.receive.is_entered()
        })
    }

    /// Forgets a closed QP.
    pub(crate) fn remove(&mut self, cx: &mut Cx, key: QpKey) {
        if let Some(qp) = self.table.remove(key) {
            qp.destroy(cx);
        }
    }
}

impl Creation for CreateQp {
    type Objects<'a> = (&'a Pds, &'a Cqs, &'a Srqs, &'a mut Qps);

    fn bytes(&self, cx: &Cx) -> usize {
        let (initiator, receive) = (self.initiator_depth as usize, self.receive_depth as usize);
        let inline = self.inline_len as usize + INLINE_SLOT_BYTES;
        SendPoster::queue_bytes(initiator, self.initiator_sge as usize)
            + initiator * inline
            + RecvPoster::queue_bytes(receive, self.receive_sge as usize)
            + cx.device.room_bytes(0, initiator)
    }

    fn create(
        self,
        cx: &mut Cx,
        pd: ObjectId,
        (pds, cqs, srqs, qps): (&Pds, &Cqs, &Srqs, &mut Qps),
    ) -> Result<Context, NTSTATUS> {
        qps.create(cx, pds.member(cx, pd)?, (cqs, srqs), &self)
    }
}

/// A QP that the device does not know yet.
fn new_qp(base: Base, parts: Parts, what: &CreateQp) -> QpCore {
    let Parts { qpn, initiator, receive, pd, initiator_cq, receive_cq, srq, inline } = parts;
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
        doorbell: Doorbell::default(),
    };
    let ndk = NDK_QP::new(base.version, &DISPATCH);
    QpCore {
        object: Arc::new(Object { ndk, base, shared }),
        qpn,
        initiator_cq,
        receive_cq,
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
