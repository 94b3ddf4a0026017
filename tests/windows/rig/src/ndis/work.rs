//! Work items.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::ntos::irql::{self, DISPATCH, PASSIVE};
use crate::ntos::{Pointer, lock, pool};

static ITEMS: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);
static QUEUED: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);
static BUSY: AtomicUsize = AtomicUsize::new(0);

pub fn report_leaks() {
    let left = std::mem::take(&mut *ITEMS.lock().unwrap());
    if !left.is_empty() {
        breach!("{} work items leak", left.len());
    }
    if busy() > 0 {
        breach!("{} work items still run", busy());
    }
}

/// Work items that are queued or run.
pub fn busy() -> usize {
    BUSY.load(Ordering::SeqCst)
}

pub(crate) fn allocate() -> Pointer {
    irql::at_most(DISPATCH, "work item allocation");
    if pool::refuses("work item") {
        return std::ptr::null_mut();
    }
    let item = Box::into_raw(Box::new(0_u64)).cast::<u8>();
    ITEMS.lock().unwrap().insert(item as usize);
    item
}

pub(crate) fn free(item: Pointer) {
    irql::at_most(DISPATCH, "work item release");
    if QUEUED.lock().unwrap().contains(&(item as usize)) {
        breach!("a work item is freed while it is queued");
    }
    if !ITEMS.lock().unwrap().remove(&(item as usize)) {
        breach!("a work item is freed that is not allocated");
        return;
    }
    drop(unsafe { Box::from_raw(item.cast::<u64>()) });
}

pub(crate) fn queue(item: Pointer, run: impl FnOnce() + Send + 'static) {
    irql::at_most(DISPATCH, "work item queue");
    let key = item as usize;
    if !ITEMS.lock().unwrap().contains(&key) {
        breach!("a work item is queued that is not allocated");
        return;
    }
    if !QUEUED.lock().unwrap().insert(key) {
        breach!("a work item is queued twice");
        return;
    }
    BUSY.fetch_add(1, Ordering::SeqCst);
    std::thread::spawn(move || {
        // From here on the routine may queue it again, or free it.
        QUEUED.lock().unwrap().remove(&key);
        irql::run_at(PASSIVE, "a work item", run);
        lock::none_held("a work item");
        BUSY.fetch_sub(1, Ordering::SeqCst);
    });
}

pub(crate) struct Send2(pub(crate) Pointer, pub(crate) Pointer);
unsafe impl Send for Send2 {}

exports! { "ndis.sys":
    fn NdisAllocateIoWorkItem(_handle: Pointer) -> Pointer { allocate() }
    fn NdisFreeIoWorkItem(item: Pointer) { free(item) }
    fn NdisQueueIoWorkItem(item: Pointer, routine: unsafe extern "win64" fn(Pointer, Pointer), context: Pointer) {
        let pair = Send2(context, item);
        queue(item, move || {
            let pair = pair;
            unsafe { routine(pair.0, pair.1) }
        });
    }
}
