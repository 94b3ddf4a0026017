//! The kernel as the machine of the flight.
#![allow(unsafe_code, reason = "calls the kernel")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use ndkflight::{Line, Machine};

use crate::abi::imports::*;
use crate::abi::*;
use crate::registry;

/// The machine, from load to unload.
pub(crate) struct Kernel {
    bell: UnsafeCell<MaybeUninit<KEVENT>>,
    is_ending: AtomicBool,
}

// SAFETY: the kernel serializes every use of an event.
unsafe impl Sync for Kernel {}

pub(crate) static KERNEL: Kernel =
    Kernel { bell: UnsafeCell::new(MaybeUninit::zeroed()), is_ending: AtomicBool::new(false) };

/// The tag that pool tools show: "NdkF".
const TAG: ULONG = u32::from_le_bytes(*b"NdkF");

impl Kernel {
    /// Before any use. PASSIVE_LEVEL.
    pub(crate) fn init(&self) {
        // SAFETY: memory for an event, which nobody uses yet.
        unsafe { KeInitializeEvent(self.bell.get().cast(), SynchronizationEvent, FALSE) };
    }

    /// Has the flight end before its next step.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }
}

// SAFETY: blocks of the pool, and MDLs over them, valid until they are freed.
unsafe impl Machine for Kernel {
    fn allocate(&self, bytes: usize) -> *mut u8 {
        // SAFETY: any size may be asked for. From a page on a block begins at one.
        let block = unsafe { ExAllocatePoolWithTag(NonPagedPoolNx, bytes, TAG) }.cast::<u8>();
        if !block.is_null() {
            // SAFETY: the block has this length.
            unsafe { block.write_bytes(0, bytes) };
        }
        block
    }

    unsafe fn free(&self, start: *mut u8, _bytes: usize) {
        // SAFETY: a block of the pool with this tag.
        unsafe { ExFreePoolWithTag(start.cast(), TAG) };
    }

    fn describe(&self, start: *mut u8, len: u32) -> *mut MDL {
        // SAFETY: only room for the pages is made.
        let mdl = unsafe { IoAllocateMdl(start.cast(), len, FALSE, FALSE, null_mut()) };
        if !mdl.is_null() {
            // SAFETY: it describes non-paged pool.
            unsafe { MmBuildMdlForNonPagedPool(mdl) };
        }
        mdl
    }

    unsafe fn forget(&self, mdl: *mut MDL) {
        // SAFETY: from `describe`, and nobody uses it any more.
        unsafe { IoFreeMdl(mdl) };
    }

    fn now_ns(&self) -> u64 {
        let mut frequency = 0;
        // SAFETY: the frequency is a place of ours.
        let count = unsafe { KeQueryPerformanceCounter(&mut frequency) };
        let [count, frequency] = [count, frequency].map(|number| number.unsigned_abs().into());
        let nanos: u128 = count * 1_000_000_000 / u128::max(frequency, 1);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn ring(&self) {
        // SAFETY: an initialized event.
        unsafe { KeSetEvent(self.bell.get().cast(), 0, FALSE) };
    }

    fn wait(&self, limit_ns: u64) {
        // A negative time is relative, in units of 100 ns.
        let mut due = -i64::try_from(limit_ns.div_ceil(100)).unwrap_or(i64::MAX);
        let bell = self.bell.get().cast();
        // SAFETY: an initialized event, which lives as long as the image.
        let _ = unsafe { KeWaitForSingleObject(bell, Executive, KernelMode, FALSE, &mut due) };
    }

    fn tell(&self, step: usize, verdict: &str) {
        registry::set(Line::of(format_args!("Step{step:03}")).as_str(), verdict);
        registry::set("Steps", Line::of(step + 1).as_str());
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }
}

/// Gives no memory: the flight asks the machine, and looks at the answer.
struct Nothing;

#[global_allocator]
static NOTHING: Nothing = Nothing;

// SAFETY: it hands out nothing.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        null_mut()
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}
