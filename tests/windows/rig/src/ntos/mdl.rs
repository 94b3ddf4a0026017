//! Memory descriptor lists.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::irql::{self, APC, DISPATCH};
use super::{Pointer, pool};

/// `MDL`; the page frame numbers follow.
#[derive(Debug)]
#[repr(C)]
pub struct Mdl {
    pub next: *mut Mdl,
    pub size: i16,
    pub flags: i16,
    process: Pointer,
    pub mapped: Pointer,
    pub start: Pointer,
    pub count: u32,
    pub offset: u32,
}
const _: () = assert!(size_of::<Mdl>() == 0x30);

pub const MAPPED: i16 = 1;
pub const LOCKED: i16 = 2;
pub const NON_PAGED: i16 = 4;
pub const PARTIAL: i16 = 0x10;
const PARTIAL_MAPPED: i16 = 0x20;
const PAGE: usize = 4096;

static LISTS: Mutex<BTreeMap<usize, Layout>> = Mutex::new(BTreeMap::new());
static MAPPINGS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Mappings that were made so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

pub fn mappings_made() -> usize {
    MADE.load(Ordering::Relaxed)
}

/// Where the bytes are, whoever may know it.
pub unsafe fn bytes_of(mdl: *const Mdl) -> Pointer {
    (*mdl).start.add((*mdl).offset as usize)
}

pub fn report_leaks() {
    for (mdl, _) in std::mem::take(&mut *LISTS.lock().unwrap()) {
        breach!("an MDL at {mdl:#x} leaks");
    }
    for (address, count) in std::mem::take(&mut *MAPPINGS.lock().unwrap()) {
        breach!("{count} mappings of {address:#x} leak");
    }
}

/// An MDL for `len` bytes at `address`, without a place among the books.
pub fn make(address: Pointer, len: usize, flags: i16) -> *mut Mdl {
    let offset = address as usize % PAGE;
    let pages = (offset + len).div_ceil(PAGE).max(1);
    let layout = layout(pages);
    unsafe {
        let mdl = alloc_zeroed(layout).cast::<Mdl>();
        mdl.write(Mdl {
            next: std::ptr::null_mut(),
            size: layout.size() as i16,
            flags,
            process: std::ptr::null_mut(),
            mapped: if flags & (NON_PAGED | MAPPED) != 0 { address } else { std::ptr::null_mut() },
            start: address.sub(offset),
            count: len as u32,
            offset: offset as u32,
        });
        // Page frame numbers: never to be used, so that a use is seen.
        for page in 0..pages {
            mdl.add(1).cast::<usize>().add(page).write((address as usize >> 12) + page);
        }
        mdl
    }
}

pub unsafe fn free(mdl: *mut Mdl) {
    if (*mdl).flags & PARTIAL_MAPPED != 0 {
        unmap((*mdl).mapped);
    }
    let pages = ((*mdl).offset as usize + (*mdl).count as usize).div_ceil(PAGE).max(1);
    dealloc(mdl.cast(), layout(pages));
}

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(size_of::<Mdl>() + 8 * pages, 16).unwrap()
}

pub fn allocate(address: Pointer, len: usize, flags: i16) -> *mut Mdl {
    if pool::refuses("MDL") {
        return std::ptr::null_mut();
    }
    let mdl = make(address, len, flags);
    let pages = (address as usize % PAGE + len).div_ceil(PAGE).max(1);
    LISTS.lock().unwrap().insert(mdl as usize, layout(pages));
    mdl
}

pub unsafe fn release(mdl: *mut Mdl) {
    let Some(layout) = LISTS.lock().unwrap().remove(&(mdl as usize)) else {
        breach!("an MDL is freed that is not allocated");
        return;
    };
    // IoFreeMdl undoes the mapping of a partial MDL.
    if (*mdl).flags & PARTIAL_MAPPED != 0 {
        unmap((*mdl).mapped);
    } else if (*mdl).flags & MAPPED != 0 && (*mdl).flags & NON_PAGED == 0 {
        breach!("an MDL is freed while it is mapped");
    }
    mdl.cast::<u8>().write_bytes(0xDD, layout.size());
    dealloc(mdl.cast(), layout);
}

fn unmap(address: Pointer) {
    let mut mappings = MAPPINGS.lock().unwrap();
    match mappings.get_mut(&(address as usize)) {
        Some(1) => drop(mappings.remove(&(address as usize))),
        Some(count) => *count -= 1,
        None => breach!("{address:?} is unmapped, which is not mapped"),
    }
}

unsafe fn map(mdl: &mut Mdl, kernel: i8) -> Pointer {
    irql::at_most(if kernel == 0 { DISPATCH } else { APC }, "MmMapLockedPagesSpecifyCache");
    if mdl.flags & (MAPPED | NON_PAGED) != 0 {
        breach!("an MDL with a system address is mapped again: flags {:#x}", mdl.flags);
    }
    if mdl.flags & (LOCKED | PARTIAL) == 0 {
        breach!("an MDL is mapped whose pages are not locked: flags {:#x}", mdl.flags);
    }
    if pool::refuses("mapping") {
        return std::ptr::null_mut();
    }
    // One address space: every mapping is the memory itself.
    mdl.mapped = mdl.start.add(mdl.offset as usize);
    mdl.flags |= MAPPED | if mdl.flags & PARTIAL != 0 { PARTIAL_MAPPED } else { 0 };
    MADE.fetch_add(1, Ordering::Relaxed);
    *MAPPINGS.lock().unwrap().entry(mdl.mapped as usize).or_insert(0) += 1;
    mdl.mapped
}

exports! { "ntoskrnl.exe":
    fn IoAllocateMdl(address: Pointer, len: u32, secondary: u8, charge: u8, irp: Pointer) -> *mut Mdl {
        irql::at_most(DISPATCH, "IoAllocateMdl");
        if secondary != 0 || charge != 0 || !irp.is_null() { breach!("IoAllocateMdl with unexpected arguments"); }
        allocate(address, len as usize, 0)
    }
    fn IoFreeMdl(mdl: *mut Mdl) {
        irql::at_most(DISPATCH, "IoFreeMdl");
        release(mdl);
    }
    fn IoBuildPartialMdl(source: &Mdl, target: &mut Mdl, address: Pointer, len: u32) {
        irql::at_most(DISPATCH, "IoBuildPartialMdl");
        let start = source.start as usize + source.offset as usize;
        let end = start + source.count as usize;
        let from = address as usize;
        let len = if len == 0 { end - from } else { len as usize };
        if from < start || from + len > end {
            breach!("a partial MDL of {from:#x}+{len:#x} leaves its source {start:#x}..{end:#x}");
        }
        let room = (target.size as usize - size_of::<Mdl>()) / 8;
        if (from % PAGE + len).div_ceil(PAGE) > room { breach!("a partial MDL is too small for its pages"); }
        target.start = (from & !(PAGE - 1)) as Pointer;
        target.offset = (from % PAGE) as u32;
        target.count = len as u32;
        target.flags = PARTIAL | (source.flags & (MAPPED | NON_PAGED));
        target.mapped = if source.flags & (MAPPED | NON_PAGED) != 0 {
            source.mapped.add(from - start)
        } else {
            std::ptr::null_mut()
        };
    }
    fn MmBuildMdlForNonPagedPool(mdl: &mut Mdl) {
        irql::at_most(DISPATCH, "MmBuildMdlForNonPagedPool");
        mdl.flags |= NON_PAGED;
        mdl.mapped = mdl.start.add(mdl.offset as usize);
    }
    fn MmMapLockedPagesSpecifyCache(mdl: &mut Mdl, mode: i8, cache: i32, wanted: Pointer, bug_check: u32, priority: u32) -> Pointer {
        if mode != 0 || cache != 1 || !wanted.is_null() || bug_check != 0 {
            breach!("MmMapLockedPagesSpecifyCache({mode}, {cache}, {wanted:?}, {bug_check})");
        }
        // MdlMappingNoExecute
        if priority & 0x4000_0000 == 0 { breach!("an executable mapping: priority {priority:#x}"); }
        map(mdl, mode)
    }
    fn MmUnmapLockedPages(address: Pointer, mdl: &mut Mdl) {
        irql::at_most(DISPATCH, "MmUnmapLockedPages");
        unmap(address);
        mdl.flags &= !(MAPPED | PARTIAL_MAPPED);
    }
    fn MmProbeAndLockPages(mdl: &mut Mdl, _mode: i8, _access: i32) { mdl.flags |= LOCKED; }
    fn MmUnlockPages(mdl: &mut Mdl) { mdl.flags &= !LOCKED; }
}
