//! The context of the poll core's half of every object: the transport, the bytes, the lives of all objects,
//! and the reports to the consumer.

use crate::abi::*;
use crate::adapter::shared::VERSION;
use crate::bytes::{Names, Regions};
use crate::object::core::Lifetimes;
use crate::object::done::RequestDone;
use crate::object::id::{ObjectId, Place};
use crate::object::shared::Base;
use crate::paths::Paths;
use crate::platform::Trace;
use crate::shard::Shard;
use crate::upcall::Upcall;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::net::IpAddr;
use rocev2::Device;
use rocev2::env::{Instant, RegionId};
use rocev2::ids::Rkey;
use rocev2::mr::Registration;
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

/// The context of a turn.
pub(crate) struct Cx {
    /// The time of this turn.
    pub(crate) now: Instant,
    pub(crate) shard: Arc<Shard>,
    /// In a box, as it is too large to be passed on a kernel's stack.
    pub(crate) device: Box<Device>,
    pub(crate) bytes: Regions,
    pub(crate) names: Names,
    pub(crate) lifetimes: Lifetimes,
    /// The region or window of every key that a consumer knows.
    pub(crate) tokens: BTreeMap<Rkey, ObjectId>,
    pub(crate) paths: Paths,
    pub(crate) upcalls: VecDeque<Upcall>,
    /// The edge is to learn that the device has other addresses.
    pub(crate) readdressed: bool,
    /// The home has asked for the end.
    pub(crate) stopped: bool,
}

impl Cx {
    pub(crate) fn new(shard: Arc<Shard>, device: Box<Device>, paths: Paths) -> Self {
        let names = Names::default();
        let bytes = Regions::new(&names, Arc::clone(shard.lams.of(0)));
        Self {
            now: Instant::default(),
            shard,
            device,
            bytes,
            names,
            lifetimes: Lifetimes::default(),
            tokens: BTreeMap::new(),
            paths,
            upcalls: VecDeque::with_capacity(UPCALLS),
            readdressed: false,
            stopped: false,
        }
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
    pub(crate) fn request_bytes(&self, keyed: usize) -> usize {
        let others = self.lifetimes.len().saturating_sub(keyed);
        let tables = self.lifetimes.growth() + self.names.growth() + self.device.growth_bytes();
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

    pub(crate) fn trace(&self, event: &Trace) {
        self.shard.platform.trace(event);
    }

    /// Whether an address is one of ours.
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.device.config().addresses.contains(&address)
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

    /// Gives a key up that the core holds.
    pub(crate) fn free_key(&mut self, key: Rkey) {
        let freed = self.device.deregister(key);
        debug_assert!(freed.is_ok());
    }
}
