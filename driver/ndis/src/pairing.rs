//! The pairs of adapters and NICs.
//!
//! Joining and parting the halves, and stopping and starting the lower one, take turns: NDIS serializes
//! them for one NIC or one adapter, not for both. No turn lasts until a NIC has given frames back, as it may keep them for as
//! long as it likes: who waits for that has closed the gate in one turn, and goes on in another.
//!
//! A NIC serves one adapter, which keeps it until it halts or the NIC goes. Others that want it wait, and the first of them gets it
//! then.

use crate::abi::*;
use crate::lower::binding::Binding;
use crate::os::breadcrumb::Breadcrumb;
use crate::os::reserve;
use crate::os::sync::{SpinLock, Turn};
use crate::os::thread::{Jobs, Order, Worker};
use crate::stage::Stage;
use crate::upper::adapter::Adapter;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use driver::platform::Resolve;

/// The global state of the image.
pub(crate) struct Driver {
    /// The I/O manager's object of this driver.
    pub(crate) object: AtomicPtr<c_void>,
    pub(crate) miniport: AtomicPtr<c_void>,
    pub(crate) protocol: AtomicPtr<c_void>,
    adapters: SpinLock<Vec<Arc<Adapter>>>,
    bindings: SpinLock<Vec<Arc<Binding>>>,
    /// The standing reserve, from load to unload.
    pub(crate) reserve: SpinLock<Option<reserve::Open>>,
    /// The turn to join and part; from load to unload.
    pub(crate) turn: SpinLock<Option<Arc<Turn>>>,
    /// The threads of all adapters; from load to unload.
    pub(crate) threads: SpinLock<Option<Threads>>,
    /// The trace of stages on the disk; from load to unload.
    pub(crate) breadcrumb: SpinLock<Option<Arc<Breadcrumb>>>,
    /// NICs that went without power before they were asked to merge segments again, as they did over IPv4 and over IPv6.
    owed: SpinLock<heapless::Vec<(NET_LUID, [bool; 2]), OWED_MAX>>,
    /// The control device, as long as there are adapters.
    pub(crate) control: AtomicPtr<c_void>,
}

/// Threads for work that waits for others. They belong to the driver, so that no halt of an adapter waits for them: TCP/IP
/// takes seconds to find that a peer is dead, and NDIS may offer bindings only after that very halt.
pub(crate) struct Threads {
    /// One after the other: looks at addresses and paths, offers of bindings.
    chores: Worker,
    /// One after the other: looks at TCP/IP's neighbours, which take no time.
    looks: Worker,
    /// Neighbours that connects wait for. These and the others side by side, as a dead peer takes seconds.
    connects: Worker,
    /// Those of silent paths.
    renewals: Worker,
    /// Those of paths that came into use, which a stranger's frame may have opened.
    confirmations: Worker,
}

impl Threads {
    /// PASSIVE_LEVEL.
    pub(crate) fn start() -> Result<Self, NTSTATUS> {
        use Order::{Newest, Oldest};
        Ok(Self {
            chores: Worker::start(&[Oldest], 256)?,
            looks: Worker::start(&[Oldest], 256)?,
            // Half of them begin with the newest, which may be alive where all others are dead.
            connects: Worker::start(
                &[Oldest, Oldest, Oldest, Oldest, Newest, Newest, Newest, Newest],
                4096,
            )?,
            renewals: Worker::start(&[Oldest, Newest], 256)?,
            confirmations: Worker::start(&[Oldest, Newest], 64)?,
        })
    }
}

pub(crate) static DRIVER: Driver = Driver {
    object: AtomicPtr::new(null_mut()),
    miniport: AtomicPtr::new(null_mut()),
    protocol: AtomicPtr::new(null_mut()),
    adapters: SpinLock::new(Vec::new()),
    bindings: SpinLock::new(Vec::new()),
    reserve: SpinLock::new(None),
    turn: SpinLock::new(None),
    threads: SpinLock::new(None),
    breadcrumb: SpinLock::new(None),
    owed: SpinLock::new(heapless::Vec::new()),
    control: AtomicPtr::new(null_mut()),
};

/// More of them stay as they are until they restart.
const OWED_MAX: usize = 64;

impl Driver {
    pub(crate) fn protocol(&self) -> NDIS_HANDLE {
        self.protocol.load(Ordering::Acquire)
    }

    /// Runs `work`, which waits for no frame, while no other thread joins or parts adapters and NICs, or stops or starts a NIC.
    /// PASSIVE_LEVEL, not from within `work`.
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.turn.lock().clone();
        match turn {
            Some(turn) => turn.run(work),
            None => unreachable!("NDIS calls between load and unload only"),
        }
    }

    /// Notes the stage whose work begins. PASSIVE_LEVEL.
    pub(crate) fn reach(&self, stage: Stage) {
        let breadcrumb = self.breadcrumb.lock().clone();
        if let Some(breadcrumb) = breadcrumb {
            breadcrumb.note(stage);
        }
    }

    /// The number of the last stage; 0: none. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn stage(&self) -> u32 {
        self.breadcrumb.lock().as_ref().map_or(0, |breadcrumb| breadcrumb.last())
    }

    /// The queue of chores. Between load and unload.
    pub(crate) fn chores(&self) -> Option<Jobs> {
        self.threads.lock().as_ref().map(|threads| threads.chores.jobs())
    }

    /// The queue of resolutions of this kind. Between load and unload.
    pub(crate) fn resolvers(&self, how: Resolve) -> Option<Jobs> {
        let threads = self.threads.lock();
        let threads = threads.as_ref()?;
        let worker = match how {
            Resolve::Look => &threads.looks,
            Resolve::Ask => &threads.connects,
            Resolve::Confirm => &threads.confirmations,
            Resolve::Renew => &threads.renewals,
        };
        Some(worker.jobs())
    }

    /// Drops the statics, because the image is unloaded.
    pub(crate) fn forget_all(&self) {
        let adapters = core::mem::take(&mut *self.adapters.lock());
        let bindings = core::mem::take(&mut *self.bindings.lock());
        debug_assert!(adapters.is_empty() && bindings.is_empty(), "NDIS halts and unbinds first");
    }

    pub(crate) fn add_adapter(&self, adapter: Arc<Adapter>) {
        self.adapters.lock().push(adapter);
    }

    /// Removes an adapter, which nobody reads any more when this returns. PASSIVE_LEVEL.
    pub(crate) fn remove_adapter(&self, adapter: &Arc<Adapter>) {
        let removed = {
            let mut adapters = self.adapters.lock();
            let at = adapters.iter().position(|other| Arc::ptr_eq(other, adapter));
            at.map(|at| adapters.swap_remove(at))
        };
        // Dropped here, not under the lock.
        drop(removed);
        adapter.readers.close();
        adapter.readers.wait_empty();
    }

    pub(crate) fn has_adapters(&self) -> bool {
        !self.adapters.lock().is_empty()
    }

    /// Reads the adapter at a place of the list, which other threads may change meanwhile; `None` behind the last. Its halt
    /// waits for it, and no lock is held. PASSIVE_LEVEL.
    pub(crate) fn with_adapter<T>(
        &self,
        index: usize,
        read: impl FnOnce(&Arc<Adapter>) -> T,
    ) -> Option<T> {
        let (adapter, readers) = {
            let adapters = self.adapters.lock();
            let adapter = adapters.get(index)?;
            // Under the lock, so that its removal finds it inside.
            if !adapter.readers.enter(1) {
                return None;
            }
            (Arc::clone(adapter), Arc::clone(&adapter.readers))
        };
        let value = read(&adapter);
        // Dropped before the gate is left: the halt drops the last count.
        drop(adapter);
        readers.leave(1);
        Some(value)
    }

    /// The `nth` adapter of those that want the NIC of this name and have none. In turn.
    pub(crate) fn waiting_for(&self, name: &[u16], nth: usize) -> Option<Arc<Adapter>> {
        let waits = |adapter: &&Arc<Adapter>| adapter.wants(name) && !adapter.is_attached();
        self.adapters.lock().iter().filter(waits).nth(nth).cloned()
    }

    /// The adapter of an interface, if it is one of ours.
    pub(crate) fn adapter_of(&self, luid: NET_LUID) -> Option<Arc<Adapter>> {
        self.adapters.lock().iter().find(|adapter| adapter.luid == luid).cloned()
    }

    /// Whether an interface is one of ours.
    pub(crate) fn is_own(&self, luid: NET_LUID) -> bool {
        self.adapters.lock().iter().any(|adapter| adapter.luid == luid)
    }

    /// Notes what a NIC without power was not asked for.
    pub(crate) fn owe_merging(&self, luid: NET_LUID, merged: [bool; 2]) {
        if merged.contains(&true) {
            let _ = self.owed.lock().push((luid, merged));
        }
    }

    /// Takes back what was noted of a NIC.
    pub(crate) fn owed_merging(&self, luid: NET_LUID) -> [bool; 2] {
        let mut owed = self.owed.lock();
        let at = owed.iter().position(|(of, _)| *of == luid);
        at.map_or([false; 2], |at| owed.swap_remove(at).1)
    }

    pub(crate) fn add_binding(&self, binding: Arc<Binding>) {
        self.bindings.lock().push(binding);
    }

    pub(crate) fn remove_binding(&self, binding: &Arc<Binding>) {
        let removed = {
            let mut bindings = self.bindings.lock();
            let at = bindings.iter().position(|other| Arc::ptr_eq(other, binding));
            at.map(|at| bindings.swap_remove(at))
        };
        // Dropped here, not under the lock.
        drop(removed);
    }

    /// The binding to the NIC that an adapter wants.
    pub(crate) fn binding_for(&self, adapter: &Adapter) -> Option<Arc<Binding>> {
        self.bindings.lock().iter().find(|binding| adapter.wants(binding.name())).cloned()
    }
}
