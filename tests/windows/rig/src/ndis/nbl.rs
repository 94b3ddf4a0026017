//! Net buffer lists: their memory, their bytes, and who owns them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use super::{Header, member};
use crate::ntos::irql::{self, DISPATCH, PASSIVE};
use crate::ntos::mdl::{self, Mdl, NON_PAGED};
use crate::ntos::{Pointer, pool};

/// `NET_BUFFER`.
#[repr(C, align(16))]
pub struct NetBuffer {
    pub next: *mut NetBuffer,
    pub current_mdl: *mut Mdl,
    pub current_offset: u32,
    pub len: usize,
    pub mdl_chain: *mut Mdl,
    pub offset: u32,
    header_end: u32,
    checksum_bias: u16,
    reserved: u16,
    pool: Pointer,
    ndis: [usize; 2],
    protocol: [usize; 6],
    miniport: [usize; 4],
    physical: u64,
    shared: usize,
}
const _: () = assert!(size_of::<NetBuffer>() == 0xB0);

const INFO_COUNT: usize = 32;
/// Place of the verdict on checksums among the out-of-band values of a received list.
pub const CHECKSUM: usize = 0;
/// Place of the hash of a received frame.
pub const HASH: usize = 8;
/// Place of the number and length of joined datagrams, in bits 0 to 15 and 16 to 31.
pub const URO: usize = 17;
/// Place of a unit's segmentation: segment length in bits 0 to 19, UDP header from bit 20 on, IPv6 in bit 31.
pub const USO: usize = 22;
/// Place of the VLAN tag among the out-of-band values: priority in bits 0 to 2, VLAN from bit 4 on.
pub const VLAN: usize = 4;
/// Place of the mark by which a send is cancelled.
pub const CANCEL: usize = 5;

/// `NET_BUFFER_LIST`.
#[repr(C, align(16))]
pub struct Nbl {
    pub next: *mut Nbl,
    pub first: *mut NetBuffer,
    context: Pointer,
    parent: *mut Nbl,
    pool: Pointer,
    gap: usize,
    ndis: [usize; 2],
    protocol: [usize; 4],
    miniport: [usize; 2],
    scratch: usize,
    pub source: Pointer,
    nbl_flags: u32,
    children: i32,
    flags: u32,
    pub status: i32,
    pub info: [usize; INFO_COUNT],
}
const _: () = assert!(std::mem::offset_of!(Nbl, info) == 0x90);

/// The out-of-band values of NDIS 6.80 to 6.87: a driver below may leave something in each, and acts on each.
const MEANT: std::ops::Range<usize> = 0..27;

impl Nbl {
    /// Its frames are of this host: `NDIS_NBL_FLAGS_IS_LOOPBACK_PACKET`.
    pub fn mark_looped(&mut self) {
        self.nbl_flags |= 0x8000;
    }

    /// What a NIC leaves behind beside a sent frame.
    pub fn litter(&mut self) {
        self.info[MEANT].fill(0x5A1E);
    }

    /// Values beside a frame on which the next NIC would act.
    pub fn leftovers(&self) -> Vec<usize> {
        MEANT.filter(|&place| place != CANCEL && self.info[place] == 0x5A1E).collect()
    }
}

/// A list and the buffer that lies behind it.
#[repr(C, align(16))]
struct Pair {
    list: Nbl,
    buffer: NetBuffer,
    /// `NET_BUFFER_LIST_CONTEXT` and its data.
    context: [usize; 10],
}

struct Pool {
    tag: u32,
    lists: usize,
    with_buffers: bool,
    context: u16,
}

type Pools = HashMap<usize, Pool>;
static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
/// Lists of the image, by their pool.
static LISTS: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);
/// Lists of ours that the image has to give back, and to whom.
static LENT: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);
/// Lists of the image that we hold, and for whom.
static BORROWED: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

pub fn report_leaks() {
    for pool in std::mem::take(&mut *POOLS.lock().unwrap()).into_values() {
        let tag = pool.tag.to_le_bytes();
        breach!("a pool of net buffer lists leaks: tag {:?}", String::from_utf8_lossy(&tag));
    }
    for (what, map) in
        [("allocated", &LISTS), ("lent to the image", &LENT), ("taken from it", &BORROWED)]
    {
        let left = std::mem::take(&mut *map.lock().unwrap());
        if !left.is_empty() {
            breach!("{} net buffer lists are still {what}", left.len());
        }
    }
}

/// Notes a list of ours that the image may keep until it returns it to `edge`.
pub fn lend(list: *mut Nbl, edge: usize) {
    LENT.lock().unwrap().insert(list as usize, edge);
}

/// A list of ours comes back.
pub fn returned(list: *mut Nbl, edge: usize) -> bool {
    match LENT.lock().unwrap().remove(&(list as usize)) {
        Some(owner) if owner == edge => true,
        Some(_) => {
            breach!("a net buffer list is returned to another edge than it came from");
            false
        }
        None => {
            breach!("a net buffer list is returned that was not lent");
            false
        }
    }
}

pub fn lent(edge: usize) -> usize {
    LENT.lock().unwrap().values().filter(|&&owner| owner == edge).count()
}

/// A list of the image is ours until it is completed.
pub fn borrow(list: *mut Nbl, edge: usize) {
    if BORROWED.lock().unwrap().insert(list as usize, edge).is_some() {
        breach!("a net buffer list is sent that is still in flight");
    }
}

pub fn give_back(list: *mut Nbl) {
    BORROWED.lock().unwrap().remove(&(list as usize));
}

pub fn borrowed(edge: usize) -> usize {
    BORROWED.lock().unwrap().values().filter(|&&owner| owner == edge).count()
}

/// The lists of a chain.
pub unsafe fn chain(mut list: *mut Nbl) -> Vec<*mut Nbl> {
    let mut all = Vec::new();
    while !list.is_null() {
        all.push(list);
        list = (*list).next;
    }
    all
}

/// Joins lists; the first, or NULL.
pub unsafe fn join(lists: &[*mut Nbl]) -> *mut Nbl {
    for (place, &list) in lists.iter().enumerate() {
        (*list).next = lists.get(place + 1).copied().unwrap_or_default();
    }
    lists.first().copied().unwrap_or_default()
}

/// The bytes of each net buffer of a list.
pub unsafe fn frames(list: *mut Nbl) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = (*list).first;
    while !buffer.is_null() {
        all.push(bytes(&*buffer));
        buffer = (*buffer).next;
    }
    all
}

unsafe fn bytes(buffer: &NetBuffer) -> Vec<u8> {
    let mut frame = Vec::with_capacity(buffer.len);
    let mut mdl = buffer.current_mdl;
    let mut offset = buffer.current_offset as usize;
    while frame.len() < buffer.len {
        if mdl.is_null() {
            breach!("a net buffer of {} bytes has MDLs for {}", buffer.len, frame.len());
            break;
        }
        // Who reads a frame that a NIC lent may map what is not mapped yet; ours always is.
        if (*mdl).mapped.is_null() && (*mdl).flags & mdl::PARTIAL == 0 {
            breach!("a net buffer's MDL has no system address: flags {:#x}", (*mdl).flags);
            break;
        }
        let count = ((*mdl).count as usize).saturating_sub(offset).min(buffer.len - frame.len());
        frame.extend_from_slice(std::slice::from_raw_parts(mdl::bytes_of(mdl).add(offset), count));
        offset = offset.saturating_sub((*mdl).count as usize);
        mdl = (*mdl).next;
    }
    frame
}

/// A list of ours with one frame, which lies in pieces of at most `piece` bytes, and a headroom. The
/// MDLs have these flags: `NON_PAGED` with a system address, `PARTIAL` without.
pub fn make(frame: &[u8], piece: usize, flags: i16, source: Pointer) -> *mut Nbl {
    make_behind(false, frame, piece, flags, source)
}

/// The same, where the headroom may lie `apart`, in an MDL of its own.
pub fn make_behind(
    apart: bool,
    frame: &[u8],
    piece: usize,
    flags: i16,
    source: Pointer,
) -> *mut Nbl {
    const HEADROOM: usize = 6;
    unsafe {
        let mut pieces = Vec::new();
        let none: &[u8] = &[];
        let parts = apart.then_some(none).into_iter().chain(frame.chunks(piece));
        for (place, part) in parts.enumerate() {
            let headroom = if place == 0 { HEADROOM } else { 0 };
            let memory: &'static mut [u8] = [&vec![0xEE; headroom], part].concat().leak();
            pieces.push(mdl::make(memory.as_mut_ptr(), memory.len(), flags));
        }
        for pair in pieces.windows(2) {
            (*pair[0]).next = pair[1];
        }
        let pair = allocate();
        (*pair).list.source = source;
        (*pair).list.first = &raw mut (*pair).buffer;
        point(&mut (*pair).buffer, pieces[0], HEADROOM as u32, frame.len());
        &raw mut (*pair).list
    }
}

/// A list of ours that lies in MDLs of these bytes, and says that it has `len` of them, in all bits of its member.
pub fn make_of(parts: &[&[u8]], len: usize, flags: i16, source: Pointer) -> *mut Nbl {
    let lay = |part: &&[u8]| {
        // No byte lies somewhere, too.
        static SOMEWHERE: u8 = 0;
        let memory = match part.len() {
            0 => (&raw const SOMEWHERE).cast_mut(),
            _ => part.to_vec().leak().as_mut_ptr(),
        };
        mdl::make(memory, part.len(), flags)
    };
    let pieces: Vec<_> = parts.iter().map(lay).collect();
    unsafe {
        for pair in pieces.windows(2) {
            (*pair[0]).next = pair[1];
        }
        let pair = allocate();
        (*pair).list.source = source;
        (*pair).list.first = &raw mut (*pair).buffer;
        point(&mut (*pair).buffer, pieces.first().copied().unwrap_or_default(), 0, len);
        &raw mut (*pair).list
    }
}

/// Frees what [`make`] made.
pub unsafe fn unmake(list: *mut Nbl) {
    let mut mdl = (*(*list).first).mdl_chain;
    while !mdl.is_null() {
        let next = (*mdl).next;
        let len = (*mdl).count as usize;
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(mdl::bytes_of(mdl), len)));
        mdl::free(mdl);
        mdl = next;
    }
    // A use after it was given back shows.
    list.cast::<u8>().write_bytes(0xDD, size_of::<Pair>());
    dealloc(list.cast(), Layout::new::<Pair>());
}

fn allocate() -> *mut Pair {
    unsafe { alloc_zeroed(Layout::new::<Pair>()).cast() }
}

unsafe fn point(buffer: &mut NetBuffer, chain: *mut Mdl, offset: u32, len: usize) {
    buffer.mdl_chain = chain;
    buffer.offset = offset;
    buffer.len = len;
    let (mut mdl, mut left) = (chain, offset);
    while !mdl.is_null() && left >= (*mdl).count && left > 0 {
        left -= (*mdl).count;
        mdl = (*mdl).next;
    }
    buffer.current_mdl = mdl;
    buffer.current_offset = left;
}

unsafe fn list_of(
    pool: Pointer,
    chain: *mut Mdl,
    offset: u32,
    len: usize,
    with_buffer: bool,
) -> *mut Nbl {
    irql::at_most(DISPATCH, "NdisAllocateNetBufferList");
    {
        let mut pools = POOLS.lock().unwrap();
        let Some(known) = pools.get_mut(&(pool as usize)) else {
            breach!("a net buffer list from an unknown pool");
            return std::ptr::null_mut();
        };
        if with_buffer != known.with_buffers {
            breach!("the pool's fAllocateNetBuffer is {}", known.with_buffers);
        }
        if pool::refuses("net buffer list") {
            return std::ptr::null_mut();
        }
        known.lists += 1;
    }
    let pair = allocate();
    let context_data = (&raw mut (*pair).context).cast::<u8>();
    (*pair).list.context = context_data;
    (*pair).list.pool = pool;
    if with_buffer {
        (*pair).list.first = &raw mut (*pair).buffer;
        (*pair).buffer.pool = pool;
        point(&mut (*pair).buffer, chain, offset, len);
    }
    LISTS.lock().unwrap().insert(pair as usize, pool as usize);
    &raw mut (*pair).list
}

exports! { "ndis.sys":
    fn NdisAllocateNetBufferListPool(_handle: Pointer, parameters: Pointer) -> Pointer {
        irql::at_most(PASSIVE, "NdisAllocateNetBufferListPool");
        member::<Header>(parameters, 0).check("NET_BUFFER_LIST_POOL_PARAMETERS", 0x80, &[(1, 16), (2, 20)]);
        let (with_buffers, context, tag) = (member::<u8>(parameters, 5) != 0, member::<u16>(parameters, 6), member::<u32>(parameters, 8));
        if tag == 0 { breach!("a pool of net buffer lists without a tag"); }
        if context % 16 != 0 { breach!("a context of {context} bytes is not aligned"); }
        if context > 48 { breach!("the stand-in has no room for a context of {context} bytes"); }
        if pool::refuses("net buffer list pool") { return std::ptr::null_mut(); }
        let handle = Box::into_raw(Box::new(0_u64)).cast::<u8>();
        POOLS.lock().unwrap().insert(handle as usize, Pool { tag, lists: 0, with_buffers, context });
        handle
    }
    fn NdisFreeNetBufferListPool(handle: Pointer) {
        irql::at_most(PASSIVE, "NdisFreeNetBufferListPool");
        match POOLS.lock().unwrap().remove(&(handle as usize)) {
            Some(pool) if pool.lists > 0 => breach!("a pool is freed with {} lists in use", pool.lists),
            Some(_) => drop(Box::from_raw(handle.cast::<u64>())),
            None => breach!("an unknown pool of net buffer lists is freed"),
        }
    }
    fn NdisAllocateNetBufferAndNetBufferList(pool: Pointer, context: u16, _backfill: u16, chain: *mut Mdl, offset: u32, len: usize) -> *mut Nbl {
        if POOLS.lock().unwrap().get(&(pool as usize)).is_some_and(|pool| context > pool.context) {
            breach!("a context of {context} bytes is larger than the pool's");
        }
        list_of(pool, chain, offset, len, true)
    }
    fn NdisAllocateNetBufferList(pool: Pointer, _context: u16, _backfill: u16) -> *mut Nbl {
        list_of(pool, std::ptr::null_mut(), 0, 0, false)
    }
    fn NdisFreeNetBufferList(list: *mut Nbl) {
        irql::at_most(DISPATCH, "NdisFreeNetBufferList");
        if BORROWED.lock().unwrap().contains_key(&(list as usize)) {
            breach!("a net buffer list is freed while it is in flight");
        }
        let Some(pool) = LISTS.lock().unwrap().remove(&(list as usize)) else {
            breach!("a net buffer list is freed that is not allocated");
            return;
        };
        if let Some(pool) = POOLS.lock().unwrap().get_mut(&pool) { pool.lists -= 1; }
        list.cast::<u8>().write_bytes(0xDD, size_of::<Pair>());
        dealloc(list.cast(), Layout::new::<Pair>());
    }
    /// Net buffers of its own over the original's MDLs.
    fn NdisAllocateCloneNetBufferList(original: *mut Nbl, _lists: Pointer, _buffers: Pointer, flags: u32) -> *mut Nbl {
        irql::at_most(DISPATCH, "NdisAllocateCloneNetBufferList");
        const USE_ORIGINAL_MDLS: u32 = 2;
        if flags != USE_ORIGINAL_MDLS { breach!("a clone with flags {flags:#x}"); }
        if pool::refuses("clone") { return std::ptr::null_mut(); }
        let pair = allocate();
        (*pair).list.parent = original;
        let mut place = &raw mut (*pair).list.first;
        let mut from = (*original).first;
        while !from.is_null() {
            let to = alloc_zeroed(Layout::new::<NetBuffer>()).cast::<NetBuffer>();
            point(&mut *to, (*from).mdl_chain, (*from).offset, (*from).len);
            place.write(to);
            place = &raw mut (*to).next;
            from = (*from).next;
        }
        LISTS.lock().unwrap().insert(pair as usize, 0);
        &raw mut (*pair).list
    }
    fn NdisFreeCloneNetBufferList(clone: *mut Nbl, _flags: u32) {
        irql::at_most(DISPATCH, "NdisFreeCloneNetBufferList");
        if BORROWED.lock().unwrap().contains_key(&(clone as usize)) { breach!("a clone is freed while it is in flight"); }
        if LISTS.lock().unwrap().remove(&(clone as usize)) != Some(0) {
            breach!("a clone is freed that is not allocated");
            return;
        }
        let mut buffer = (*clone).first;
        while !buffer.is_null() {
            let next = (*buffer).next;
            dealloc(buffer.cast(), Layout::new::<NetBuffer>());
            buffer = next;
        }
        clone.cast::<u8>().write_bytes(0xDD, size_of::<Pair>());
        dealloc(clone.cast(), Layout::new::<Pair>());
    }
    fn NdisCopySendNetBufferListInfo(to: &mut Nbl, from: &Nbl) { to.info = from.info; }
    fn NdisCopyReceiveNetBufferListInfo(to: &mut Nbl, from: &Nbl) { to.info = from.info; }
    fn NdisAllocateMdl(_handle: Pointer, address: Pointer, len: u32) -> *mut Mdl {
        irql::at_most(DISPATCH, "NdisAllocateMdl");
        mdl::allocate(address, len as usize, NON_PAGED)
    }
    fn NdisFreeMdl(mdl: *mut Mdl) {
        irql::at_most(DISPATCH, "NdisFreeMdl");
        mdl::release(mdl);
    }
    fn NdisGetDataBuffer(buffer: &NetBuffer, needed: u32, storage: Pointer, _multiple: u32, _offset: u32) -> Pointer {
        let needed = needed as usize;
        if needed > buffer.len { return std::ptr::null_mut(); }
        let mdl = &*buffer.current_mdl;
        if mdl.count as usize - buffer.current_offset as usize >= needed {
            return mdl.mapped.add(buffer.current_offset as usize);
        }
        if storage.is_null() { return storage; }
        storage.copy_from(bytes(buffer).as_ptr(), needed);
        storage
    }
    fn NdisAdvanceNetBufferDataStart(buffer: &mut NetBuffer, delta: u32, _free: u8, _handler: Pointer) {
        let (chain, offset, len) = (buffer.mdl_chain, buffer.offset + delta, buffer.len - delta as usize);
        point(buffer, chain, offset, len);
    }
    fn NdisRetreatNetBufferDataStart(buffer: &mut NetBuffer, delta: u32, _backfill: u32, _handler: Pointer) -> i32 {
        if delta > buffer.offset { return super::RESOURCES; }
        let (chain, offset, len) = (buffer.mdl_chain, buffer.offset - delta, buffer.len + delta as usize);
        point(buffer, chain, offset, len);
        super::SUCCESS
    }
}
