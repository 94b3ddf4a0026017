//! Completion queues, between the device's completions and the consumer's notification.

use super::call::DISPATCH;
use super::request::{CreateCq, ResizeCq};
use super::shared::{
    self, Arm, CqObject, CqShared, Cqe, Moderation, PENDING_ERROR, Polls, Results,
};
use crate::abi::*;
use crate::cx::Cx;
use crate::object::id::{At, Context, CqKey, ObjectId, Place, Ringer, RingerKey};
use crate::object::shared::Object;
use crate::platform::Trace;
use crate::request::{Creation, Request};
use crate::shard::Shard;
use crate::sync::modelled::{AtomicU32, rtrb};
use crate::sync::{Doorbell, Exclusive};
use crate::upcall::{Calling, Notice};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use rocev2::env::Instant;
use slotmap::SlotMap;

pub(crate) struct CqCore {
    object: Arc<CqObject>,
    ring: rtrb::Producer<Cqe>,
    /// Where the consumer finds the ring that takes the place of `ring`.
    rings: rtrb::Producer<rtrb::Consumer<Cqe>>,
    notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    context: Context,
    /// Entries that it may hold.
    depth: u32,
    /// Entries ever added.
    added: u32,
    /// Entries that the consumer had taken when we last looked.
    taken: u32,
    /// Entries added since the last notification, and when the first of them was.
    unnotified: u32,
    unnotified_since: Option<Instant>,
    /// It overran; nothing is added any more.
    failed: bool,
    /// The kinds of entries added that the arm has not heard of.
    news: u8,
    /// Its notification may be due, and will be looked at.
    dirty: bool,
}

/// Room of the ring that a CQ gets for a depth that its own has no room for.
const fn deeper_ring(depth: u32) -> usize {
    (depth as usize).next_power_of_two()
}

impl CqCore {
    /// Entries that the consumer has not taken, now.
    fn fill(&mut self) -> u32 {
        self.taken = self.object.shared.taken.load(Ordering::Acquire);
        self.added.wrapping_sub(self.taken)
    }

    /// Adds entries, `most` of them at most, as far as it may hold more; they are published together. Notes their kinds.
    /// Returns whether it may hold as many.
    #[inline(always)]
    fn push(
        &mut self,
        now: Instant,
        most: usize,
        entries: impl Iterator<Item = (u8, Cqe)>,
    ) -> bool {
        let mut fill = self.added.wrapping_sub(self.taken);
        if fill as usize + most > self.depth as usize {
            fill = self.fill();
        }
        let room = self.depth.saturating_sub(fill) as usize;
        let Ok(slots) = self.ring.write_chunk_uninit(room.min(most)) else { return false };
        let mut kinds = 0;
        let added = slots.fill_from_iter(entries.map(|(kind, entry)| {
            kinds |= kind;
            entry
        }));
        self.news |= kinds;
        if added > 0 {
            let added = added as u32;
            self.added = self.added.wrapping_add(added);
            self.unnotified = self.unnotified.saturating_add(added);
            self.unnotified_since.get_or_insert(now);
        }
        most <= room
    }

    /// Changes how many entries it may hold; see `ndk_resize_cq`.
    ///
    /// A ring that is deep enough stays. A deeper one takes its place at once on our side; the
    /// consumer goes over to it when it has emptied the one before.
    fn resize(&mut self, depth: u32) -> NTSTATUS {
        if self.failed {
            return STATUS_INVALID_DEVICE_STATE;
        }
        if self.fill() > depth {
            return STATUS_BUFFER_OVERFLOW;
        }
        if depth as usize > self.ring.buffer().capacity() {
            let (ring, results) = rtrb::RingBuffer::new(deeper_ring(depth));
            if self.rings.push(results).is_err() {
                return STATUS_INSUFFICIENT_RESOURCES;
            }
            self.ring = ring;
        }
        self.depth = depth;
        self.object.shared.depth.store(depth, Ordering::Release);
        STATUS_SUCCESS
    }

    /// The decision of moderation about a notification that is due.
    fn moderate(&self, now: Instant) -> Moderation {
        if self.failed {
            return Moderation::Notify;
        }
        let settings = self.object.shared.moderation.load(Ordering::Acquire);
        let since = self.unnotified_since.unwrap_or(now);
        shared::moderate(settings, self.depth, self.unnotified, since, now)
    }
}

/// The context of completions on their way to their CQs.
pub(crate) struct Delivery<'a> {
    /// The time of this turn.
    pub(crate) now: Instant,
    pub(crate) shard: &'a Shard,
}

/// The completion queues of a core, and the completions of its queue pairs for those of others.
pub(crate) struct Cqs {
    core: u8,
    table: SlotMap<CqKey, CqCore>,
    /// Completions for CQs of other cores, which the desk takes there.
    abroad: Vec<(At<CqKey>, (u8, Cqe))>,
    /// The room that all of them may take.
    abroad_room: usize,
    /// Those with entries that their arms have not heard of.
    fed: Vec<CqKey>,
    /// Those that have overrun, and whose QPs have to follow.
    overrun: Vec<CqKey>,
    /// Those whose notification may be due.
    dirty: VecDeque<CqKey>,
    /// Those whose notification moderation delays until then, each once.
    moderated: Vec<(Instant, CqKey)>,
}

impl Cqs {
    pub(crate) fn new(core: u8) -> Self {
        Self {
            core,
            table: SlotMap::default(),
            abroad: Vec::new(),
            abroad_room: 0,
            fed: Vec::new(),
            overrun: Vec::new(),
            dirty: VecDeque::new(),
            moderated: Vec::new(),
        }
    }

    /// Enters a CQ.
    fn insert(&mut self, cq: CqCore) -> At<CqKey> {
        let key = self.table.insert(cq);
        // Every CQ may be dirty or moderated at once, and neither may allocate.
        let cqs = self.table.len();
        self.moderated.reserve(cqs.saturating_sub(self.moderated.len()));
        // A CQ in the lists may be closed already.
        self.dirty.reserve(cqs);
        self.fed.reserve(cqs);
        self.overrun.reserve(cqs);
        At { core: self.core, key }
    }

    /// Makes room for so many completions that may wait for CQs of other cores.
    pub(crate) fn make_room_abroad(&mut self, completions: usize) {
        self.abroad_room += completions;
        self.abroad.reserve(self.abroad_room.saturating_sub(self.abroad.len()));
    }

    /// The memory that [`Self::make_room_abroad`] may take.
    pub(crate) fn room_bytes(&self, completions: usize) -> usize {
        2 * (self.abroad_room + completions) * size_of::<(At<CqKey>, (u8, Cqe))>()
    }

    /// Undoes [`Self::make_room_abroad`].
    pub(crate) fn give_room_abroad(&mut self, completions: usize) {
        self.abroad_room -= completions;
    }

    /// Whether the desk is to take completions to other cores, or to end what is on a CQ that has overrun.
    pub(crate) fn has_news(&self) -> bool {
        !self.overrun.is_empty() || !self.abroad.is_empty()
    }

    /// The completions for CQs of other cores, whose room comes back by [`Self::put_abroad`].
    pub(crate) fn take_abroad(&mut self) -> Vec<(At<CqKey>, (u8, Cqe))> {
        core::mem::take(&mut self.abroad)
    }

    /// Gives back the room of what was taken.
    pub(crate) fn put_abroad(&mut self, mut abroad: Vec<(At<CqKey>, (u8, Cqe))>) {
        abroad.clear();
        self.abroad = abroad;
    }

    /// Whether a QP may complete on a CQ: one that has overrun takes no completion.
    pub(crate) fn is_usable(&self, key: CqKey) -> bool {
        self.table.get(key).is_some_and(|cq| !cq.failed)
    }

    pub(crate) fn resize(&mut self, key: CqKey, depth: u32) -> NTSTATUS {
        let Some(cq) = self.table.get_mut(key) else { return STATUS_INVALID_PARAMETER };
        let status = cq.resize(depth.max(1));
        if status == STATUS_SUCCESS {
            // Moderation by count may have become meaningless.
            self.mark_dirty(key);
        }
        status
    }

    /// The consumer has armed a CQ or changed its moderation.
    pub(crate) fn service(&mut self, key: CqKey) {
        if let Some(cq) = self.table.get(key) {
            cq.object.shared.doorbell.answer();
            self.mark_dirty(key);
        }
    }

    /// Looks at the CQ's notification at the end of the turn, once.
    fn mark_dirty(&mut self, key: CqKey) {
        if let Some(cq) = self.table.get_mut(key)
            && !core::mem::replace(&mut cq.dirty, true)
        {
            self.dirty.push_back(key);
        }
    }

    /// Adds entries with their kinds, `most` of them at most, of which [`Self::tell`] tells the CQ's arm. Returns whether it
    /// may hold as many; else those that `entries` is left with make it overrun.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        now: Instant,
        key: CqKey,
        most: usize,
        entries: impl Iterator<Item = (u8, Cqe)>,
    ) -> bool {
        let Some(cq) = self.table.get_mut(key).filter(|cq| !cq.failed) else { return true };
        let told = cq.news == 0;
        let fits = cq.push(now, most, entries);
        if told && cq.news != 0 {
            self.fed.push(key);
        }
        fits
    }

    /// Keeps an entry for a CQ of another core, whose room shows there.
    pub(crate) fn carry(&mut self, at: At<CqKey>, entry: (u8, Cqe)) {
        self.abroad.push((at, entry));
    }

    /// A CQ has no room for an entry: it is dead, as every QP on it.
    #[cold]
    pub(crate) fn overrun(&mut self, shard: &Shard, key: CqKey) {
        let Some(cq) = self.table.get_mut(key) else { return };
        cq.failed = true;
        shard.counters.cq_errors.add();
        shard.platform.trace(&Trace::CqOverrun { depth: cq.depth });
        if cq.news == 0 {
            self.fed.push(key);
        }
        cq.news |= PENDING_ERROR;
        self.overrun.push(key);
    }

    /// A CQ that has just overrun.
    pub(crate) fn pop_overrun(&mut self) -> Option<At<CqKey>> {
        self.overrun.pop().map(|key| At { core: self.core, key })
    }

    /// Tells the arms what was added, once for all completions of a run.
    pub(crate) fn tell(&mut self) {
        while let Some(key) = self.fed.pop() {
            let Some(cq) = self.table.get_mut(key) else { continue };
            let news = core::mem::take(&mut cq.news);
            if cq.object.shared.arm.add(news) {
                self.mark_dirty(key);
            }
        }
    }

    /// Looks again at the CQs whose notification moderation has delayed until now.
    pub(crate) fn release_moderated(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(&(until, key)) = self.moderated.get(index) {
            if until <= now {
                self.moderated.swap_remove(index);
                self.mark_dirty(key);
            } else {
                index += 1;
            }
        }
    }

    /// When the first notification that moderation delays is due.
    pub(crate) fn moderated_until(&self) -> Option<Instant> {
        self.moderated.iter().map(|(until, _)| *until).min()
    }

    /// Delays a due notification until then.
    fn delay(&mut self, key: CqKey, until: Instant) {
        match self.moderated.iter_mut().find(|(_, cq)| *cq == key) {
            Some(moderated) => moderated.0 = until,
            None => self.moderated.push((until, key)),
        }
    }

    /// Whether there is a notification to look at.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Makes the notifications that are due; how many were looked at.
    pub(crate) fn notify(&mut self, now: Instant) -> usize {
        let dirty = self.dirty.len();
        for _ in 0..dirty {
            if let Some(key) = self.dirty.pop_front()
                && let Some(notice) = self.due(now, key)
            {
                notice.call();
            }
        }
        dirty
    }

    /// The next notification that is due, and its CQ; `None`: no other is.
    pub(crate) fn next_notice(&mut self, now: Instant) -> Option<(Notice, &Arc<CqObject>)> {
        let (notice, key) = loop {
            let key = self.dirty.pop_front()?;
            if let Some(notice) = self.due(now, key) {
                break (notice, key);
            }
        };
        Some((notice, &self.table.get(key)?.object))
    }

    /// The notification of a CQ that was dirty, if it is due: the arm is taken.
    #[inline(always)]
    fn due(&mut self, now: Instant, key: CqKey) -> Option<Notice> {
        let cq = self.table.get_mut(key)?;
        cq.dirty = false;
        if !cq.object.shared.arm.is_due() || cq.object.base.is_closing() {
            return None;
        }
        if !cq.failed && cq.object.shared.arm.waits_for_next(cq.added) {
            (cq.unnotified, cq.unnotified_since) = (0, None);
            return None;
        }
        match cq.moderate(now) {
            Moderation::Notify => {}
            Moderation::Until(until) => {
                self.delay(key, until);
                return None;
            }
            // The completion that it waits for leads here again.
            Moderation::ForCount => return None,
        }
        if !cq.object.shared.arm.take() {
            return None;
        }
        (cq.unnotified, cq.unnotified_since) = (0, None);
        let status = if cq.failed { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS };
        let (callback, context) = (cq.notification, cq.context);
        self.moderated.retain(|&(_, cq)| cq != key);
        Some(Notice { callback, context, status })
    }

    /// Whether a call of the consumer is still inside.
    pub(crate) fn is_entered(&self, key: CqKey) -> bool {
        self.table.get(key).is_some_and(|cq| cq.object.shared.is_entered())
    }

    /// Forgets a closed CQ, and gives back its bell.
    pub(crate) fn remove(&mut self, key: CqKey) -> Option<RingerKey> {
        self.moderated.retain(|&(_, cq)| cq != key);
        self.table.remove(key).map(|cq| cq.object.shared.bell.key)
    }
}

/// Creates a CQ on its core.
pub(crate) fn create(cx: &mut Cx, adapter: ObjectId, what: &CreateCq) -> Context {
    let &CreateCq { core, notification, context, .. } = what;
    let depth = what.depth.max(1);
    let (ring, results) = rtrb::RingBuffer::new(depth as usize);
    let (rings, successors) = rtrb::RingBuffer::new(shared::SUCCESSORS);
    let mut pointer = ::core::ptr::null_mut();
    cx.insert_on(core, &[adapter], |base, lane| {
        let bell = lane.new_bell();
        let ringer = bell.key;
        let shared = CqShared {
            results: Exclusive::new(Results::new(results, successors)),
            polls: Polls::default(),
            taken: AtomicU32::new(0),
            depth: AtomicU32::new(depth),
            moderation: AtomicU64::new(0),
            calling: Calling::default(),
            arm: Arm::default(),
            inside: AtomicU32::new(0),
            bell,
            doorbell: Doorbell::default(),
        };
        let ndk = NDK_CQ::new(base.version, &DISPATCH);
        let object = Arc::new(Object { ndk, base, shared });
        pointer = object.as_ndk();
        let at = lane.cqs.insert(CqCore {
            object,
            ring,
            rings,
            notification,
            context,
            depth,
            added: 0,
            taken: 0,
            unnotified: 0,
            unnotified_since: None,
            failed: false,
            news: 0,
            dirty: false,
        });
        lane.hang(ringer, Ringer::Cq(at.key));
        Place::Cq(at)
    });
    cx.ringers += 1;
    Context::new(pointer.cast())
}

/// Forgets a closed CQ.
pub(crate) fn remove(cx: &mut Cx, At { core, key }: At<CqKey>) {
    let lane = cx.lane(core);
    if let Some(bell) = lane.cqs.remove(key) {
        lane.take_down(bell);
        cx.ringers -= 1;
    }
}

impl Creation for CreateCq {
    type Objects<'a> = ();

    fn bytes(&self, cx: &mut Cx) -> usize {
        self.depth as usize * size_of::<Cqe>() + cx.lane(self.core).growth()
    }

    fn create(self, cx: &mut Cx, adapter: ObjectId, (): ()) -> Result<Context, NTSTATUS> {
        Ok(create(cx, adapter, &self))
    }
}

impl Request for ResizeCq {
    type Objects<'a> = ();

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(deeper_ring(self.depth) * size_of::<Cqe>())
    }

    fn run(self, cx: &mut Cx, (): ()) {
        let status = match cx.lifetimes.place(self.cq).and_then(Place::cq) {
            Some(At { core, key }) => cx.lane(core).cqs.resize(key, self.depth),
            None => STATUS_INVALID_PARAMETER,
        };
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
