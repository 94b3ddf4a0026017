//! Pool: who holds what, what was written past its end, and what happens when there is none.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
#[cfg(unix)]
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

use super::irql::{self, DISPATCH};
use super::{Pointer, lock};

/// Behind every block, to be found unchanged.
const FENCE: [u8; 16] = *b"fence-behind-it!";
const FRESH: u8 = 0xCD;
const STALE: u8 = 0xDD;

struct Block {
    len: usize,
    layout: Layout,
    tag: [u8; 4],
    number: usize,
    /// It is a consumer's, whose leaks are no breach.
    #[cfg_attr(windows, expect(dead_code, reason = "consumers of others run in a Linux process"))]
    is_consumers: bool,
}

static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// How many more resources can be had before one is refused; negative: all.
static LEFT: AtomicIsize = AtomicIsize::new(-1);
/// Whether everything after the first that is refused is refused too.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);
/// Whether it is pool that is refused.
static KIND: AtomicBool = AtomicBool::new(false);
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Resources asked for since the last [`refuse_after`].
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// What was asked for since [`record`].
static RECORD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// What a request is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resource {
    /// Bytes of pool.
    Pool,
    /// Everything else: lists, MDLs, threads, handles, registrations.
    Object,
}

/// Refuses the resource of this kind that is asked for after `count` others of it; none if `None`.
pub fn refuse_after(kind: Resource, count: Option<usize>) {
    EXHAUSTED.store(false, Ordering::SeqCst);
    set(kind, count);
}

/// The pool is exhausted after `count` more allocations.
pub fn exhaust_after(count: usize) {
    EXHAUSTED.store(true, Ordering::SeqCst);
    set(Resource::Pool, Some(count));
}

fn set(kind: Resource, count: Option<usize>) {
    KIND.store(kind == Resource::Pool, Ordering::SeqCst);
    ASKED.store(0, Ordering::SeqCst);
    REFUSED.store(false, Ordering::SeqCst);
    LEFT.store(count.map_or(-1, |count| count as isize), Ordering::SeqCst);
}

/// How many resources of that kind were asked for since, and whether one was refused.
pub fn asked() -> (usize, bool) {
    (ASKED.load(Ordering::SeqCst), REFUSED.load(Ordering::SeqCst))
}

/// Writes down what is asked for of this kind, and refuses nothing.
pub fn record(kind: Resource) {
    refuse_after(kind, None);
    *RECORD.lock().unwrap() = Some(Vec::new());
}

/// What was asked for since [`record`], in its order.
pub fn recorded() -> Vec<String> {
    RECORD.lock().unwrap().take().unwrap_or_default()
}

/// Whether this request for an object is refused.
pub fn refuses(what: &str) -> bool {
    is_due(Resource::Object, what)
}

fn is_due(kind: Resource, what: &str) -> bool {
    if KIND.load(Ordering::SeqCst) != (kind == Resource::Pool) {
        return false;
    }
    ASKED.fetch_add(1, Ordering::SeqCst);
    if let Some(record) = &mut *RECORD.lock().unwrap() {
        record.push(what.to_owned());
    }
    let exhausted = EXHAUSTED.load(Ordering::SeqCst);
    let due = LEFT
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            0 if exhausted => Some(0),
            left => (left >= 0).then_some(left - 1),
        })
        .is_ok_and(|left| left == 0);
    if due && !REFUSED.swap(true, Ordering::SeqCst) {
        say!("refused: {what}");
    }
    due
}

/// Blocks and bytes that are held.
pub fn held() -> (usize, usize) {
    let blocks = BLOCKS.lock().unwrap();
    (blocks.len(), blocks.values().map(|block| block.len).sum())
}

/// A block is a consumer's, if it is one.
#[cfg(unix)]
pub(crate) fn give_to_consumer(start: Pointer) {
    if let Some(block) = BLOCKS.lock().unwrap().get_mut(&(start as usize)) {
        block.is_consumers = true;
    }
}

/// Strikes off what a consumer still holds; how many blocks that were.
#[cfg(unix)]
pub(crate) fn forget_consumers() -> usize {
    let mut blocks = BLOCKS.lock().unwrap();
    let before = blocks.len();
    blocks.retain(|_, block| !block.is_consumers);
    before - blocks.len()
}

/// Reports every block that is still held, and forgets it.
pub fn report_leaks() {
    let blocks = std::mem::take(&mut *BLOCKS.lock().unwrap());
    for (address, block) in &blocks {
        let tag = String::from_utf8_lossy(&block.tag);
        breach!(
            "{} bytes of pool leak: tag {tag:?}, allocation {} at {address:#x}",
            block.len,
            block.number
        );
    }
}

pub(crate) fn take(len: usize, tag: u32, zero: bool, lines: bool) -> Pointer {
    irql::at_most(DISPATCH, "ExAllocatePool");
    if len == 0 {
        breach!("an empty pool allocation");
    }
    if tag == 0 {
        breach!("a pool allocation without a tag");
    }
    if is_due(Resource::Pool, &format!("{len} bytes of pool")) {
        return std::ptr::null_mut();
    }
    let align = match (len >= 4096, lines) {
        (true, _) => 4096,
        (false, true) => 64,
        (false, false) => 16,
    };
    let layout = Layout::from_size_align(len + FENCE.len(), align).unwrap();
    unsafe {
        let start = alloc(layout);
        start.write_bytes(if zero { 0 } else { FRESH }, len);
        start.add(len).cast::<[u8; 16]>().write_unaligned(FENCE);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let block = Block { len, layout, tag: tag.to_le_bytes(), number, is_consumers: false };
        BLOCKS.lock().unwrap().insert(start as usize, block);
        start
    }
}

/// `tag` 0: any.
fn give(start: Pointer, tag: u32) {
    let Some(block) = strike(start, tag) else { return };
    unsafe {
        start.write_bytes(STALE, block.len);
        dealloc(start, block.layout);
    }
}

/// Frees a block whose owner may use it once more: nobody else gets the memory for long, and it is as it was, or filled with `fill`.
#[cfg(unix)]
pub(crate) fn retire(start: Pointer, fill: Option<u8>) {
    static RETIRED: Mutex<VecDeque<(usize, Layout)>> = Mutex::new(VecDeque::new());
    const MOST: usize = 4096;
    let Some(block) = strike(start, 0) else { return };
    if let Some(fill) = fill {
        unsafe { start.write_bytes(fill, block.len) };
    }
    let mut retired = RETIRED.lock().unwrap();
    retired.push_back((start as usize, block.layout));
    if retired.len() > MOST
        && let Some((start, layout)) = retired.pop_front()
    {
        unsafe { dealloc(start as Pointer, layout) };
    }
}

/// Strikes a block off the books, and judges it. `tag` 0: any.
fn strike(start: Pointer, tag: u32) -> Option<Block> {
    irql::at_most(DISPATCH, "ExFreePool");
    let Some(block) = BLOCKS.lock().unwrap().remove(&(start as usize)) else {
        breach!("pool at {start:?} is freed, which is not held");
        return None;
    };
    lock::forget(start as usize..start as usize + block.len);
    if tag != 0 && tag.to_le_bytes() != block.tag {
        breach!("pool of tag {:?} is freed as {:?}", block.tag, tag.to_le_bytes());
    }
    if unsafe { start.add(block.len).cast::<[u8; 16]>().read_unaligned() } != FENCE {
        breach!("pool was written past its {} bytes, tag {:?}", block.len, block.tag);
    }
    Some(block)
}

const FLAG_UNINITIALIZED: u64 = 2;
const FLAG_CACHE_ALIGNED: u64 = 8;
const FLAG_NON_PAGED: u64 = 0x40;
const FLAG_NON_PAGED_EXECUTE: u64 = 0x80;

exports! { "ntoskrnl.exe":
    fn ExAllocatePool2(flags: u64, len: usize, tag: u32) -> Pointer {
        if flags & FLAG_NON_PAGED_EXECUTE != 0 { breach!("executable pool"); }
        if flags & FLAG_NON_PAGED == 0 { breach!("pool that is not non-paged: flags {flags:#x}"); }
        take(len, tag, flags & FLAG_UNINITIALIZED == 0, flags & FLAG_CACHE_ALIGNED != 0)
    }
    fn ExAllocatePool3(flags: u64, len: usize, tag: u32, _parameters: Pointer, _count: u32) -> Pointer {
        take(len, tag, flags & FLAG_UNINITIALIZED == 0, flags & FLAG_CACHE_ALIGNED != 0)
    }
    fn ExAllocatePoolWithTag(kind: u32, len: usize, tag: u32) -> Pointer {
        if ![512, 516].contains(&kind) { breach!("pool type {kind}, not NonPagedPoolNx"); }
        take(len, tag, false, kind == 516)
    }
    fn ExAllocatePoolZero(kind: u32, len: usize, tag: u32) -> Pointer {
        if ![512, 516].contains(&kind) { breach!("pool type {kind}, not NonPagedPoolNx"); }
        take(len, tag, true, kind == 516)
    }
    fn ExFreePool(start: Pointer) { give(start, 0) }
    fn ExFreePoolWithTag(start: Pointer, tag: u32) { give(start, tag) }
    fn ExFreePool2(start: Pointer, tag: u32, _parameters: Pointer, _count: u32) { give(start, tag) }
    fn NdisAllocateMemoryWithTagPriority(_handle: Pointer, len: u32, tag: u32, _priority: i32) -> Pointer {
        take(len as usize, tag, false, false)
    }
    fn NdisFreeMemory(start: Pointer, _len: u32, _flags: u32) { give(start, 0) }
    fn NdisFreeMemoryWithTagPriority(_handle: Pointer, start: Pointer, tag: u32) { give(start, tag) }
}
