//! Logical address mappings (LAM): buffers that a scatter/gather element names by page.
//!
//! A logical address is private to this provider: it names a mapping, not a physical page, and means
//! nothing but through the table that the poll core keeps ([`Lams`]). An address is never given out
//! twice, a page without a mapping lies behind each mapping, and an access must lie inside one
//! mapping; so a stale, invented or overlong element fails instead of meeting foreign memory.
//!
//! * A consumer may do arithmetic inside a mapping: merge neighbouring pages, add a page offset. All
//!   pages of one mapping are neighbours here, whatever the MDLs' physical pages are.
//! * The bytes before the first and behind the last of the buffer cannot be reached, though their
//!   pages are in the page array.
//! * Building never pends: the completion is optional in the header, and nothing says that the out
//!   parameters may be written after `STATUS_PENDING`. The mapping reaches the core by a ring of its
//!   own, which the core reads after every look into the rings of posts: what was built before a
//!   post is known before the post is worked on, and what was released is not.

use super::adapter::AdapterObject;
use super::regions::Mapping;
use super::{ObjectId, store};
use crate::abi::*;
use crate::platform::with_memory;
use crate::ring::modelled::{ArrayQueue, AtomicUsize};
use crate::ring::take;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ptr::without_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use rocev2::env::Fault;

/// Mappings at a time, per shard.
const LAMS_MAX: usize = if cfg!(miri) { 1 << 4 } else { 1 << 14 };
/// The first page that is given out: far above any small number and any physical address, so that
/// what a consumer passes by mistake names nothing.
const FIRST_PAGE: u64 = 1 << 36;

/// A mapping on its way to the core.
struct Lam {
    adapter: ObjectId,
    /// The logical address of the first byte.
    start: u64,
    mapping: Mapping,
}

enum Message {
    Built(Box<Lam>),
    /// By the address of its first page.
    Released(u64),
}

/// What lies between the consumers that build and release, and the core's table.
pub(crate) struct LamRing {
    messages: ArrayQueue<Message>,
    /// Mappings that may still be built.
    free: AtomicUsize,
    /// The next page to give out.
    next: AtomicU64,
}

impl Default for LamRing {
    fn default() -> Self {
        Self {
            // Each mapping is told of twice.
            messages: ArrayQueue::new(2 * LAMS_MAX),
            free: AtomicUsize::new(LAMS_MAX),
            next: AtomicU64::new(FIRST_PAGE),
        }
    }
}

impl LamRing {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Gives `pages` logical pages to a mapping whose first byte is `fbo` bytes into them. Returns
    /// the address of the first page; `None`: there is no room for another mapping.
    /// The caller is undisturbed, as for a release: see [`Platform::undisturbed`].
    fn build(&self, adapter: ObjectId, fbo: u32, pages: u32, mapping: Mapping) -> Option<u64> {
        take(&self.free).ok()?;
        // One more than asked for, so that two mappings are never neighbours.
        let page = self.next.fetch_add(u64::from(pages) + 1, Ordering::Relaxed);
        let address = page * PAGE_SIZE as u64;
        let lam = Box::new(Lam { adapter, start: address + u64::from(fbo), mapping });
        if self.messages.push(Message::Built(lam)).is_err() {
            // Only releases of what never was can have filled it.
            self.free.fetch_add(1, Ordering::Release);
            return None;
        }
        Some(address)
    }

    /// A release that finds no room, because releases of what never was have filled the ring, is
    /// lost; its mapping then lives as long as its adapter.
    fn release(&self, address: u64) {
        let _ = self.messages.push(Message::Released(address));
    }
}

/// All mappings, by the address of their first byte. The core's.
#[derive(Default)]
pub(crate) struct Lams {
    by_start: BTreeMap<u64, Box<Lam>>,
}

impl Lams {
    /// Learns what was built and released until now.
    pub(crate) fn update(&mut self, ring: &LamRing) {
        // Bounded, however fast others build meanwhile.
        for _ in 0..ring.messages.len() {
            match ring.messages.pop() {
                Some(Message::Built(lam)) => {
                    self.by_start.insert(lam.start, lam);
                }
                Some(Message::Released(address)) => self.remove(address, ring),
                None => return,
            }
        }
    }

    fn remove(&mut self, address: u64, ring: &LamRing) {
        // The first byte is on the first page.
        let on_page = address..address.saturating_add(PAGE_SIZE as u64);
        if let Some((&start, _)) = self.by_start.range(on_page).next() {
            self.by_start.remove(&start);
            ring.free.fetch_add(1, Ordering::Release);
        }
    }

    /// An adapter is closed: what its consumer has not released goes with it.
    pub(crate) fn forget(&mut self, adapter: ObjectId, ring: &LamRing) {
        self.update(ring);
        let before = self.by_start.len();
        self.by_start.retain(|_, lam| lam.adapter != adapter);
        ring.free.fetch_add(before - self.by_start.len(), Ordering::Release);
    }

    /// Calls `each` with the pieces of the `len` bytes from logical address `address`: where they
    /// are, their place in the range, and their length.
    ///
    /// # Errors
    /// They do not all lie inside one mapping. Nothing was called.
    pub(crate) fn pieces(
        &self,
        address: u64,
        len: usize,
        each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let (start, lam) = self.by_start.range(..=address).next_back().ok_or(Fault)?;
        lam.mapping.pieces(address - start, len, each)
    }
}

/// [`NDK_FN_BUILD_LAM`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_build_lam):
/// maps the first `length` bytes of an MDL chain. IRQL <= DISPATCH_LEVEL.
///
/// Ends inline: `STATUS_SUCCESS` with the mapping, its size and the offset of the first byte stored;
/// `STATUS_BUFFER_TOO_SMALL` with the size that is needed, also for a null mapping;
/// `STATUS_INVALID_PARAMETER` for a chain that is shorter than `length` or not virtually contiguous,
/// for a length of 0 and for a null argument that must not be;
/// `STATUS_INSUFFICIENT_RESOURCES` where the provider has no place or the system no mapping.
///
/// # Safety
/// `adapter` is open; `mdl` is null or a chain of locked MDLs that stays so until the mapping is
/// released; `size` and `fbo` are null or valid, and `lam` null or writable for `*size` bytes.
pub(crate) unsafe extern "system" fn ndk_build_lam(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: SIZE_T,
    _completion: Option<NDK_FN_REQUEST_COMPLETION>,
    _context: PVOID,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut ULONG,
    fbo: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    // SAFETY: the consumer's promise.
    let Some(first) = (unsafe { mdl.as_ref() }) else { return STATUS_INVALID_PARAMETER };
    if size.is_null() || fbo.is_null() || length == 0 {
        return STATUS_INVALID_PARAMETER;
    }
    let offset = (first.virtual_address().addr() % PAGE_SIZE) as u32;
    let Some((pages, needed)) = extent(offset, length) else { return STATUS_INVALID_PARAMETER };
    // SAFETY: not null, so valid by the consumer's promise.
    let room = unsafe { size.read() };
    // SAFETY: as above.
    unsafe { store(size, needed) };
    if lam.is_null() || room < needed {
        return STATUS_BUFFER_TOO_SMALL;
    }
    let shard = &adapter.base.shard;
    let platform = &*shard.platform;
    // SAFETY: the consumer's promise about the chain.
    let bytes = unsafe { Mapping::bytes(mdl, length) } + 2 * size_of::<Lam>();
    let build = || {
        // SAFETY: as above.
        let mapping = unsafe { Mapping::new(mdl, length, platform) }?;
        let address = shard.lams.build(adapter.base.id, offset, pages, mapping);
        address.ok_or(STATUS_INSUFFICIENT_RESOURCES)
    };
    let built = with_memory(platform, bytes, build);
    let address = or_return!(built.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES)));
    // SAFETY: the consumer's buffer has room for the header and `pages` entries.
    unsafe { fill(lam, address, pages) };
    // SAFETY: not null, so valid by the consumer's promise.
    unsafe { store(fbo, offset) };
    STATUS_SUCCESS
}

/// Pages over `length` bytes from `offset` of the first one, and bytes of a mapping that lists them.
/// `None`: more than the interface can tell.
fn extent(offset: u32, length: usize) -> Option<(u32, ULONG)> {
    let pages = length.checked_add(offset as usize)?.div_ceil(PAGE_SIZE);
    let needed = pages.checked_mul(size_of::<NDK_LOGICAL_ADDRESS>())?;
    let needed = needed.checked_add(NDK_LOGICAL_ADDRESS_MAPPING::size_for(0))?;
    Some((pages.try_into().ok()?, needed.try_into().ok()?))
}

/// # Safety
/// `lam` is writable for a mapping of `pages` pages.
unsafe fn fill(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, address: u64, pages: u32) {
    // The address again, not a pointer: what comes back with a release is only looked up.
    let context = without_provenance_mut(address as usize);
    // SAFETY: the caller's promise.
    unsafe { (*lam).AdapterContext = context };
    // SAFETY: as above.
    unsafe { (*lam).AdapterPageCount = pages };
    // SAFETY: as above; only the address of the member is taken.
    let array = unsafe { &raw mut (*lam).AdapterPageArray }.cast::<NDK_LOGICAL_ADDRESS>();
    for page in 0..pages as usize {
        let address = (address + (page * PAGE_SIZE) as u64).cast_signed();
        // SAFETY: `page` is below `pages`.
        unsafe { array.wrapping_add(page).write(NDK_LOGICAL_ADDRESS { QuadPart: address }) };
    }
}

/// [`NDK_FN_RELEASE_LAM`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_release_lam):
/// ends a mapping. IRQL <= DISPATCH_LEVEL.
///
/// No request that is posted after this call can use it. The consumer promises that none is
/// outstanding; one that is all the same may still reach the pages until the core has looked, as
/// with any DMA. A second release of the same mapping does nothing.
///
/// # Safety
/// `adapter` is open; `lam` is null or was filled by [`ndk_build_lam`] and is writable.
pub(crate) unsafe extern "system" fn ndk_release_lam(
    adapter: *mut NDK_ADAPTER,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
) {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let Ok(adapter) = (unsafe { AdapterObject::check(adapter) }) else { return };
    // SAFETY: the consumer's promise.
    let Some(lam) = (unsafe { lam.as_mut() }) else { return };
    let context = core::mem::replace(&mut lam.AdapterContext, core::ptr::null_mut());
    if context.is_null() {
        return;
    }
    let shard = &adapter.base.shard;
    shard.platform.undisturbed(&mut || shard.lams.release(context.addr() as u64));
    shard.wake();
}

#[cfg(test)]
mod tests {
    use super::super::regions::tests::mapping;
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn bytes(lams: &Lams, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        let read = lams.pieces(address, len, |from, at, len| {
            // SAFETY: the buffers of the test outlive their mappings.
            unsafe { from.copy_to(out[at..].as_mut_ptr(), len) };
        });
        read.ok().map(|()| out)
    }

    fn adapter(number: u64) -> ObjectId {
        ObjectId::from(slotmap::KeyData::from_ffi(number << 32 | 1))
    }

    #[test]
    fn an_access_lies_inside_one_mapping() {
        let (ring, mut lams) = (LamRing::default(), Lams::default());
        let mut buffers = [vec![1; 100], vec![2; 8092], vec![3; 10]];
        let mapping = mapping(&mut buffers);
        let first = ring.build(adapter(1), 0x234, 3, mapping).unwrap();
        assert_eq!(bytes(&lams, first + 0x234, 1), None, "not known yet");
        lams.update(&ring);
        let start = first + 0x234;
        assert_eq!(bytes(&lams, start + 99, 2), Some(vec![1, 2]));
        assert_eq!(
            bytes(&lams, start, 8202).unwrap()[8190..],
            [2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
        );
        assert_eq!(bytes(&lams, start - 1, 1), None, "before the first byte");
        assert_eq!(bytes(&lams, start, 8203), None, "behind the last byte");
        assert_eq!(bytes(&lams, u64::MAX, 2), None);
        assert_eq!(bytes(&lams, 0, 1), None);
    }

    #[test]
    fn mappings_are_no_neighbours_and_addresses_never_come_again() {
        let (ring, mut lams) = (LamRing::default(), Lams::default());
        let mut buffers = [vec![1; PAGE_SIZE]];
        let first = ring.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        let second = ring.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        assert_eq!(second - first, 2 * PAGE);
        lams.update(&ring);
        assert_eq!(bytes(&lams, first + PAGE - 1, 2), None);
        ring.release(first);
        ring.release(first);
        ring.release(12345);
        lams.update(&ring);
        assert_eq!(bytes(&lams, first, 1), None);
        assert_eq!(bytes(&lams, second, 1), Some(vec![1]));
        let third = ring.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        assert!(third > second);
    }

    #[test]
    fn a_closed_adapter_leaves_room_for_as_many_as_before() {
        let (ring, mut lams) = (LamRing::default(), Lams::default());
        let build = |owner| ring.build(adapter(owner), 0, 1, mapping(&mut [])).is_some();
        assert!(build(2));
        for _ in 1..LAMS_MAX {
            assert!(build(1));
        }
        assert!(!build(1));
        lams.forget(adapter(1), &ring);
        assert_eq!(lams.by_start.len(), 1);
        for _ in 1..LAMS_MAX {
            assert!(build(1));
        }
        assert!(!build(1));
    }

    #[test]
    fn releases_of_what_never_was_do_no_harm() {
        let (ring, mut lams) = (LamRing::default(), Lams::default());
        for address in 0..3 * LAMS_MAX as u64 {
            ring.release(address);
        }
        assert_eq!(ring.build(adapter(1), 0, 1, mapping(&mut [])), None);
        lams.update(&ring);
        assert!(ring.build(adapter(1), 0, 1, mapping(&mut [])).is_some());
        assert_eq!(ring.free.load(Ordering::Relaxed), LAMS_MAX - 1);
    }

    #[test]
    fn an_extent_counts_the_pages_that_are_touched() {
        assert_eq!(extent(0, 1), Some((1, 24)));
        assert_eq!(extent(4095, 2), Some((2, 32)));
        assert_eq!(extent(0, 8192), Some((2, 32)));
        assert_eq!(extent(1, usize::MAX), None);
        assert_eq!(extent(0, 1 << 42), None);
    }
}
