//! The pairs of adapters and NICs.
//!
//! Joining and parting the halves, and stopping and starting the lower one, take turns: NDIS serializes
//! them for one NIC or one adapter, not for both.

use crate::abi::*;
use crate::lower::binding::Binding;
use crate::os::reserve;
use crate::os::sync::{SpinLock, Turn};
use crate::upper::adapter::Adapter;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The global state of the image.
pub(crate) struct Driver {
    pub(crate) miniport: AtomicPtr<c_void>,
    pub(crate) protocol: AtomicPtr<c_void>,
    adapters: SpinLock<Vec<Arc<Adapter>>>,
    bindings: SpinLock<Vec<Arc<Binding>>>,
    /// The standing reserve, from load to unload.
    pub(crate) reserve: SpinLock<Option<reserve::Open>>,
    /// The turn to join and part; from load to unload.
    pub(crate) turn: SpinLock<Option<Arc<Turn>>>,
}

pub(crate) static DRIVER: Driver = Driver {
    miniport: AtomicPtr::new(null_mut()),
    protocol: AtomicPtr::new(null_mut()),
    adapters: SpinLock::new(Vec::new()),
    bindings: SpinLock::new(Vec::new()),
    reserve: SpinLock::new(None),
    turn: SpinLock::new(None),
};

impl Driver {
    pub(crate) fn protocol(&self) -> NDIS_HANDLE {
        self.protocol.load(Ordering::Acquire)
    }

    /// Runs `work` while no other thread joins or parts adapters and NICs, or stops or starts a NIC.
    /// PASSIVE_LEVEL, not from within `work`.
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.turn.lock().clone();
        match turn {
            Some(turn) => turn.run(work),
            None => unreachable!("NDIS calls between load and unload only"),
        }
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

    pub(crate) fn remove_adapter(&self, adapter: &Arc<Adapter>) {
        let removed = {
            let mut adapters = self.adapters.lock();
            let at = adapters.iter().position(|other| Arc::ptr_eq(other, adapter));
            at.map(|at| adapters.swap_remove(at))
        };
        // Dropped here, not under the lock.
        drop(removed);
    }

    /// The adapter at a place of the list, which other threads may change meanwhile.
    pub(crate) fn adapter_at(&self, index: usize) -> Option<Arc<Adapter>> {
        self.adapters.lock().get(index).cloned()
    }

    /// The adapter that wants the NIC of this name.
    pub(crate) fn adapter_for(&self, name: &[u16]) -> Option<Arc<Adapter>> {
        self.adapters.lock().iter().find(|adapter| adapter.wants(name)).cloned()
    }

    /// Whether an interface is one of ours.
    pub(crate) fn is_own(&self, luid: NET_LUID) -> bool {
        self.adapters.lock().iter().any(|adapter| adapter.luid == luid)
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
