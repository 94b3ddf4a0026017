//! The context of the desk: the transport and the lanes, the bytes, the lives of all objects, and the reports to the
//! consumer.

use crate::abi::*;
use crate::adapter::shared::VERSION;
use crate::bytes::Names;
use crate::lane::{Lane, Lanes};
use crate::object::core::Lifetimes;
use crate::object::done::RequestDone;
use crate::object::id::{At, CqKey, ObjectId, Place, QpKey, SrqKey};
use crate::object::shared::Base;
use crate::paths::Paths;
use crate::platform::Trace;
use crate::qp::core::QpCore;
use crate::shard::Shard;
use crate::upcall::Upcall;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::net::IpAddr;
use rocev2::env::{Instant, RegionId};
use rocev2::ids::Rkey;
use rocev2::mr::Registration;
use rocev2::qp::SrqId;
use rocev2::{Device, Front};
use slotmap::{Key, SlotMap};

/// Calls into the consumer for which there is room from the start: more than the requests of a turn make.
const UPCALLS: usize = 1024;

/// The memory of any request beside its queues: the object, nodes of trees, and so on.
const REQUEST_BYTES: usize = 64 << 10;
/// The memory of the core's small tables for each object when they grow: they double, and the entries of an
/// object in all of them are no larger than half of this. Regions and windows are in none of them.
const GROWTH_BYTES: usize = 256;

/// The memory of a table that takes one entry more: one that is full doubles.
pub(crate) fn growth<K: Key, V>(table: &SlotMap<K, V>) -> usize {
    let full = table.len() == table.capacity();
    if full { 2 * (table.len() + 1).max(4) * (size_of::<V>() + 2 * size_of::<u32>()) } else { 0 }
}

/// The context of a turn of the desk.
pub(crate) struct Cx {
    /// The time of this turn.
    pub(crate) now: Instant,
    pub(crate) shard: Arc<Shard>,
    /// Its connections, and the lanes with its queue pairs.
    pub(crate) device: Device<Lanes>,
    pub(crate) names: Names,
    /// Queue pairs of all lanes.
    pub(crate) qps: usize,
    /// Objects of all lanes whose doorbells may ring, but for queue pairs.
    pub(crate) ringers: usize,
    pub(crate) lifetimes: Lifetimes,
    /// The region or window of every key that a consumer knows.
    pub(crate) tokens: BTreeMap<Rkey, ObjectId>,
    pub(crate) paths: Paths,
    pub(crate) upcalls: VecDeque<Upcall>,
    /// The edge is to learn that the device has other addresses.
    pub(crate) readdressed: bool,
}

impl Cx {
    // A value that is made passes through the stack of its maker.
    #[inline(never)]
    pub(crate) fn new(
        shard: Arc<Shard>,
        front: Box<Front>,
        lanes: Lanes,
        names: Names,
        paths: Paths,
    ) -> Self {
        Self {
            now: Instant::default(),
            shard,
            device: Device { front: *front, engines: lanes },
            names,
            qps: 0,
            ringers: 0,
            lifetimes: Lifetimes::default(),
            tokens: BTreeMap::new(),
            paths,
            upcalls: VecDeque::with_capacity(UPCALLS),
            readdressed: false,
        }
    }

    // ---- lanes --------------------------------------------------------------------------------

    /// The lane of a core; see [`Lanes::lane`].
    pub(crate) fn lane(&mut self, core: u8) -> &mut Lane {
        self.device.engines.lane(core)
    }

    /// Calls `each` with the lane of every core.
    pub(crate) fn for_each_lane(&mut self, mut each: impl FnMut(&mut Lane)) {
        (0..self.shard.cores()).for_each(|core| each(self.lane(core as u8)));
    }

    /// A QP.
    pub(crate) fn qp(&mut self, At { core, key }: At<QpKey>) -> Option<&mut QpCore> {
        self.lane(core).qps.get_mut(key)
    }

    /// Cancels everything that is posted on a QP.
    pub(crate) fn flush_qp(&mut self, At { core, key }: At<QpKey>) {
        self.lane(core).flush_qp(key);
    }

    /// The CQ that a QP is to complete on: open, and not overrun.
    pub(crate) fn usable_cq(&mut self, id: ObjectId) -> Result<At<CqKey>, NTSTATUS> {
        let at = self.lifetimes.place(id).and_then(Place::cq);
        let at = at.filter(|_| self.lifetimes.is_open(id)).ok_or(STATUS_INVALID_PARAMETER)?;
        let usable = self.lane(at.core).cqs.is_usable(at.key);
        if usable { Ok(at) } else { Err(STATUS_INVALID_PARAMETER) }
    }

    /// An SRQ that is not being closed, and its name in its engine.
    pub(crate) fn open_srq(&mut self, id: ObjectId) -> Result<(At<SrqKey>, SrqId), NTSTATUS> {
        let at = self.lifetimes.place(id).and_then(Place::srq);
        let at = at.filter(|_| self.lifetimes.is_open(id)).ok_or(STATUS_INVALID_PARAMETER)?;
        let id = self.lane(at.core).srqs.id(at.key).ok_or(STATUS_INVALID_PARAMETER)?;
        Ok((at, id))
    }

    // ---- lives --------------------------------------------------------------------------------

    /// Enters an object under its antecedents, at the version of the first.
    pub(crate) fn insert(
        &mut self,
        parents: &[ObjectId],
        make: impl FnOnce(Base) -> Place,
    ) -> ObjectId {
        let version = parents.first().and_then(|&parent| self.lifetimes.version(parent));
        let id = self.insert_at(version.unwrap_or(VERSION), make);
        for &parent in parents {
            self.lifetimes.add_parent(id, parent);
        }
        id
    }

    /// The same for an object of a core.
    pub(crate) fn insert_on(
        &mut self,
        core: u8,
        parents: &[ObjectId],
        make: impl FnOnce(Base, &mut Lane) -> Place,
    ) {
        let Self { lifetimes, device, shard, .. } = self;
        let version = parents.first().and_then(|&parent| lifetimes.version(parent));
        let version = version.unwrap_or(VERSION);
        let (shard, lane) = (Arc::clone(shard), device.engines.lane(core));
        let id = lifetimes.insert(version, |id| make(Base::new(id, version, shard), lane));
        parents.iter().for_each(|&parent| lifetimes.add_parent(id, parent));
    }

    /// Enters an object that has no antecedent.
    pub(crate) fn insert_at(
        &mut self,
        version: NDK_VERSION,
        make: impl FnOnce(Base) -> Place,
    ) -> ObjectId {
        let shard = Arc::clone(&self.shard);
        self.lifetimes.insert(version, |id| make(Base::new(id, version, shard)))
    }

    /// Undoes [`Lifetimes::add_parent`].
    pub(crate) fn remove_parent(&mut self, child: ObjectId, parent: ObjectId) {
        let finished = self.lifetimes.remove_parent(child, parent);
        self.closed(finished);
    }

    /// See [`Lifetimes::bind`].
    pub(crate) fn bind(&mut self, child: ObjectId, parent: Option<ObjectId>) {
        let finished = self.lifetimes.bind(child, parent);
        self.closed(finished);
    }

    /// Completes a close, if nothing holds the object any more.
    pub(crate) fn finish(&mut self, id: ObjectId) {
        let finished = self.lifetimes.finish(id);
        self.closed(finished);
    }

    /// A successor of these is gone.
    pub(crate) fn drop_child(&mut self, parents: impl Iterator<Item = ObjectId>) {
        for parent in parents {
            let finished = self.lifetimes.drop_child(parent);
            self.closed(finished);
        }
    }

    /// Makes room for so many calls into the consumer beside those that a turn's requests make.
    pub(crate) fn make_room(&mut self, upcalls: usize) {
        self.upcalls.reserve((UPCALLS + upcalls).saturating_sub(self.upcalls.len()));
    }

    fn closed(&mut self, finished: Option<ObjectId>) {
        if let Some(object) = finished {
            self.upcalls.push_back(Upcall::Closed { object });
        }
    }

    // ---- what all objects ask for -------------------------------------------------------------

    /// The memory of a request beside the memory that it asks for itself, and but for the table of its object's
    /// kind; `keyed` objects are regions and windows.
    pub(crate) fn request_bytes(&mut self, keyed: usize) -> usize {
        let others = self.lifetimes.len().saturating_sub(keyed);
        let tables = self.lifetimes.growth() + self.names.growth() + self.device.key_bytes();
        REQUEST_BYTES + GROWTH_BYTES * others + tables
    }

    /// Ends a request.
    pub(crate) fn request_done(&mut self, done: RequestDone, status: NTSTATUS) {
        self.upcalls.push_back(Upcall::Requested { done, status });
    }

    /// Ends a request for which there is no memory.
    pub(crate) fn refuse(&mut self, done: RequestDone) {
        self.request_done(done, STATUS_INSUFFICIENT_RESOURCES);
    }

    pub(crate) fn trace(&self, event: &Trace<'_>) {
        self.shard.platform.trace(event);
    }

    /// Whether an address is one of ours.
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.device.engines.own.engine.config().addresses.contains(&address)
    }

    /// Gives a key up that the core holds.
    pub(crate) fn free_key(&mut self, key: Rkey) {
        let freed = self.device.deregister(key);
        debug_assert!(freed.is_ok());
    }

    /// Gives a key to a region that has none; `None`: the region is gone, as there is none for it.
    #[allow(unsafe_code, reason = "a region goes with its key")]
    pub(crate) fn register(&mut self, registration: Registration) -> Option<Rkey> {
        let key = self.device.register(registration);
        if key.is_none() {
            // SAFETY: no key has named it, and its name goes no further.
            unsafe { self.names.remove(registration.region) };
        }
        key
    }

    /// Gives the one key of a region up, and the region.
    #[allow(unsafe_code, reason = "a region goes with its key")]
    pub(crate) fn deregister(&mut self, key: Rkey, region: RegionId) {
        self.free_key(key);
        // SAFETY: its key has ended, and with it all uses but the end of a mapping of its list.
        unsafe { self.names.remove(region) };
    }
}
