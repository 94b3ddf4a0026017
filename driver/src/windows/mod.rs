//! The driver in NDIS: a virtual Ethernet miniport that provides NDK, over a protocol bound to the
//! NIC that its configuration names.
//!
//! ```text
//!   TCP/IP, SMB Direct
//!        |  entry, miniport, oid, ndk          upper half: Adapter
//!        |  configuration joins the halves     LowerAdapter = interface GUID of the NIC
//!        |  protocol, binding                  lower half: Binding
//!       NIC
//! ```
//! Ordinary frames pass in both directions as clones; RoCEv2 frames to our addresses end in the poll
//! core. Either half may come first and go first. A [`Gate`](crate::platform::windows::sync::Gate)
//! at each half counts what is under way, and its owner waits for the last of it before it answers
//! NDIS. What joins and parts the halves, and what stops and starts the lower one, takes turns:
//! NDIS serializes it for one NIC or one adapter, not for both.
#![allow(non_upper_case_globals, reason = "C names in patterns")]

mod adapter;
mod binding;
mod config;
mod counters;
mod entry;
mod ip;
mod lists;
mod log;
mod miniport;
mod ndk;
mod oid;
mod protocol;

use crate::abi::*;
use crate::platform::windows::reserve;
use crate::platform::windows::sync::{SpinLock, Turn};
use adapter::Adapter;
use alloc::sync::Arc;
use alloc::vec::Vec;
use binding::Binding;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// All that is global to the image.
struct Driver {
    miniport: AtomicPtr<c_void>,
    protocol: AtomicPtr<c_void>,
    adapters: SpinLock<Vec<Arc<Adapter>>>,
    bindings: SpinLock<Vec<Arc<Binding>>>,
    /// From load to unload.
    reserve: SpinLock<Option<reserve::Open>>,
    /// Of joining and parting; from load to unload.
    turn: SpinLock<Option<Arc<Turn>>>,
}

static DRIVER: Driver = Driver {
    miniport: AtomicPtr::new(null_mut()),
    protocol: AtomicPtr::new(null_mut()),
    adapters: SpinLock::new(Vec::new()),
    bindings: SpinLock::new(Vec::new()),
    reserve: SpinLock::new(None),
    turn: SpinLock::new(None),
};

impl Driver {
    fn protocol(&self) -> NDIS_HANDLE {
        self.protocol.load(Ordering::Acquire)
    }

    /// Runs `work` while nobody else joins or parts adapters and NICs, or stops or starts a NIC.
    /// PASSIVE_LEVEL, not from within `work`.
    fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.turn.lock().clone();
        match turn {
            Some(turn) => turn.run(work),
            None => unreachable!("NDIS calls between load and unload only"),
        }
    }

    /// The image goes: its statics are dropped by nobody else.
    fn forget_all(&self) {
        let adapters = core::mem::take(&mut *self.adapters.lock());
        let bindings = core::mem::take(&mut *self.bindings.lock());
        debug_assert!(adapters.is_empty() && bindings.is_empty(), "NDIS halts and unbinds first");
    }

    fn add_adapter(&self, adapter: Arc<Adapter>) {
        self.adapters.lock().push(adapter);
    }

    fn remove_adapter(&self, adapter: &Arc<Adapter>) {
        let removed = {
            let mut adapters = self.adapters.lock();
            let at = adapters.iter().position(|other| Arc::ptr_eq(other, adapter));
            at.map(|at| adapters.swap_remove(at))
        };
        // Dropped here, not under the lock.
        drop(removed);
    }

    /// The adapter at a place of the list, which others may change meanwhile.
    fn adapter_at(&self, index: usize) -> Option<Arc<Adapter>> {
        self.adapters.lock().get(index).cloned()
    }

    /// The adapter that wants the NIC of this name.
    fn adapter_for(&self, name: &[u16]) -> Option<Arc<Adapter>> {
        self.adapters.lock().iter().find(|adapter| adapter.wants(name)).cloned()
    }

    /// Whether an interface is one of ours.
    fn is_own(&self, luid: NET_LUID) -> bool {
        self.adapters.lock().iter().any(|adapter| adapter.luid == luid)
    }

    fn add_binding(&self, binding: Arc<Binding>) {
        self.bindings.lock().push(binding);
    }

    fn remove_binding(&self, binding: &Arc<Binding>) {
        let removed = {
            let mut bindings = self.bindings.lock();
            let at = bindings.iter().position(|other| Arc::ptr_eq(other, binding));
            at.map(|at| bindings.swap_remove(at))
        };
        // Dropped here, not under the lock.
        drop(removed);
    }

    /// The binding to the NIC that an adapter wants.
    fn binding_for(&self, adapter: &Adapter) -> Option<Arc<Binding>> {
        self.bindings.lock().iter().find(|binding| adapter.wants(binding.name())).cloned()
    }
}

/// The header of an NDIS structure.
const fn header(kind: u8, revision: u8, size: usize) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size as u16 }
}
