//! Memory regions: registration of MDL chains, and the bytes behind them.

use super::{
    Control, Object, RequestDone, ndk_close, ndk_query_extension, not_supported as ns, request,
};
use crate::abi::*;
use crate::platform::{Mapped, Platform, with_memory};
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use rocev2::env::{Fault, Memory, RegionId};
use rocev2::mr::Access;

/// A memory region.
pub(crate) type MrObject = Object<NDK_MR, MrShared>;

/// What both sides see of a region.
pub(crate) struct MrShared {
    pub(crate) fast_register: bool,
    /// The token, local and remote alike; 0 while nothing is registered.
    pub(crate) token: AtomicU32,
}

/// The table of every memory region.
pub(crate) static DISPATCH: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: ndk_close,
    NdkQueryExtension: ndk_query_extension,
    NdkRegisterMr: ndk_register_mr,
    NdkDeregisterMr: ndk_deregister_mr,
    NdkInitializeFastRegisterMr: ns::initialize_fast_register_mr,
    NdkGetRemoteTokenFromMr: ndk_get_token_from_mr,
    NdkGetLocalTokenFromMr: ndk_get_token_from_mr,
};

/// A registration on its way to the core.
pub(crate) struct Register {
    pub(crate) mapping: Mapping,
    pub(crate) base: u64,
    pub(crate) access: Access,
}

/// Where the bytes of a registration are, in order.
#[derive(Debug)]
pub(crate) struct Mapping {
    pieces: Vec<Piece>,
    len: u64,
    /// What reaches the pieces, until the region is gone.
    mapped: Vec<Mapped>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Distance of its first byte from the start of the region.
    start: u64,
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointers name memory that the consumer keeps locked and mapped for every CPU.
unsafe impl Send for Mapping {}

impl Mapping {
    /// What [`Self::new`] allocates, at most: two lists that grow by doubling, so that each copy is
    /// at most as large as all before it.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(super) unsafe fn bytes(mdl: *const MDL, len: usize) -> usize {
        let (mut count, mut reached, mut next) = (4, 0, mdl);
        // SAFETY: the caller's promise; null ends the chain.
        while let Some(mdl) = unsafe { next.as_ref() }
            && reached < len
        {
            count += 1;
            reached = reached.saturating_add(mdl.ByteCount as usize);
            next = mdl.Next;
        }
        4 * count * (size_of::<Piece>() + size_of::<Mapped>())
    }

    /// Maps the first `len` bytes of an MDL chain.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: the chain is shorter than `len`, or not virtually contiguous.
    /// `STATUS_INSUFFICIENT_RESOURCES`: no mapping could be made.
    ///
    /// # Safety
    /// `mdl` is null or a chain of valid MDLs whose pages stay locked while the mapping lives.
    pub(crate) unsafe fn new(
        mdl: *const MDL,
        len: usize,
        platform: &dyn Platform,
    ) -> Result<Self, NTSTATUS> {
        let mut mapping = Self { pieces: Vec::new(), len: 0, mapped: Vec::new() };
        let mut next = mdl;
        let mut expected = None;
        while mapping.len < len as u64 {
            // SAFETY: the caller's promise; null ends the chain.
            let Some(mdl) = (unsafe { next.as_ref() }) else {
                return Err(STATUS_INVALID_PARAMETER);
            };
            let va = mdl.virtual_address().addr();
            if expected.is_some_and(|expected| expected != va) {
                return Err(STATUS_INVALID_PARAMETER);
            }
            let mapped = platform.map(mdl).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
            let address = mapped.address();
            let piece_len = (mdl.ByteCount as usize).min(len - mapping.len as usize);
            mapping.pieces.push(Piece { start: mapping.len, address, len: piece_len });
            mapping.mapped.push(mapped);
            mapping.len += piece_len as u64;
            expected = Some(va.wrapping_add(mdl.ByteCount as usize));
            next = mdl.Next;
        }
        Ok(mapping)
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Calls `each` with the pieces of `offset .. offset + len`: address, and place in the range.
    pub(crate) fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        if offset > self.len || len as u64 > self.len - offset {
            return Err(Fault);
        }
        let first = self.pieces.partition_point(|piece| piece.start + piece.len as u64 <= offset);
        let mut done = 0;
        for piece in self.pieces.iter().skip(first) {
            if done == len {
                break;
            }
            let skip = (offset + done as u64 - piece.start) as usize;
            let take = (piece.len - skip).min(len - done);
            each(piece.address.as_ptr().wrapping_add(skip), done, take);
            done += take;
        }
        Ok(())
    }
}

/// The bytes of all registrations: the device's [`Memory`].
#[derive(Default)]
pub(crate) struct Regions {
    slots: Vec<Option<Mapping>>,
    free: Vec<u32>,
}

impl Regions {
    pub(crate) fn insert(&mut self, mapping: Mapping) -> RegionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(mapping);
        RegionId(slot)
    }

    pub(crate) fn remove(&mut self, region: RegionId) {
        if self.slots.get_mut(region.0 as usize).and_then(Option::take).is_some() {
            self.free.push(region.0);
        }
    }

    fn mapping(&self, region: RegionId) -> Result<&Mapping, Fault> {
        self.slots.get(region.0 as usize).and_then(Option::as_ref).ok_or(Fault)
    }
}

impl Memory for Regions {
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.mapping(region)?.pieces(offset, out.len(), |address, at, len| {
            // SAFETY: the piece lies inside a mapping that lives until it is removed here, and
            // `out` is memory of ours. The consumer may write these bytes meanwhile, as with any
            // DMA: what is read then is unspecified, and nothing else depends on it.
            unsafe { core::ptr::copy(address, out[at..at + len].as_mut_ptr(), len) };
        })
    }

    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.mapping(region)?.pieces(offset, data.len(), |address, at, len| {
            // SAFETY: as for `read`.
            unsafe { core::ptr::copy(data[at..at + len].as_ptr(), address, len) };
        })
    }
}

const fn access(flags: ULONG) -> Access {
    let mut bits = Access::LOCAL_READ;
    if flags & NDK_MR_FLAG_ALLOW_LOCAL_WRITE != 0 {
        bits = bits.with(Access::LOCAL_WRITE);
    }
    if flags & NDK_MR_FLAG_ALLOW_REMOTE_READ != 0 {
        bits = bits.with(Access::REMOTE_READ);
    }
    // The flag contains ALLOW_LOCAL_WRITE, which alone must not grant it.
    if flags & NDK_MR_FLAG_ALLOW_REMOTE_WRITE == NDK_MR_FLAG_ALLOW_REMOTE_WRITE {
        bits = bits.with(Access::REMOTE_WRITE);
    }
    bits
}

/// [`NDK_FN_REGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_register_mr).
/// IRQL <= DISPATCH_LEVEL. The base address is the MDL's virtual address, which is only a label.
///
/// # Safety
/// `mr` is open; `mdl` is a chain of locked MDLs that stays so until the region is deregistered.
unsafe extern "system" fn ndk_register_mr(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: SIZE_T,
    flags: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the region open until this call returns.
    let mr = unsafe { MrObject::from_ndk(mr) };
    if mdl.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    if mr.shared.fast_register {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    let platform = &*mr.base.shard.platform;
    // SAFETY: the consumer's promise about the chain.
    let bytes = unsafe { Mapping::bytes(mdl, length) };
    // SAFETY: as above.
    let mapping = with_memory(platform, bytes, || unsafe { Mapping::new(mdl, length, platform) });
    let mapping = match mapping.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES)) {
        Ok(mapping) => mapping,
        Err(status) => return status,
    };
    // SAFETY: not null, so valid by the consumer's promise.
    let base = unsafe { &*mdl }.virtual_address().addr() as u64;
    let what = match mr.base.shard.boxed(Register { mapping, base, access: access(flags) }) {
        Ok(what) => what,
        Err(status) => return status,
    };
    let done = RequestDone::new(completion, context);
    request(mr.base.shard(), Control::RegisterMr { mr: mr.base.id, what, done })
}

/// [`NDK_FN_DEREGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_deregister_mr).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `mr` is open.
unsafe extern "system" fn ndk_deregister_mr(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the region open until this call returns.
    let mr = unsafe { MrObject::from_ndk(mr) };
    let done = RequestDone::new(completion, context);
    request(mr.base.shard(), Control::DeregisterMr { mr: mr.base.id, done })
}

/// [`NDK_FN_GET_REMOTE_TOKEN_FROM_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_remote_token_from_mr)
/// and its local twin: one token serves both. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `mr` is open.
unsafe extern "system" fn ndk_get_token_from_mr(mr: *mut NDK_MR) -> UINT32 {
    // SAFETY: the consumer keeps the region open until this call returns.
    let mr = unsafe { MrObject::from_ndk(mr) };
    mr.shared.token.load(Ordering::Acquire)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    /// A mapping of one piece after the other.
    pub(crate) fn mapping(buffers: &mut [Vec<u8>]) -> Mapping {
        let mut start = 0;
        let pieces = buffers
            .iter_mut()
            .map(|buffer| {
                let piece = Piece {
                    start,
                    address: NonNull::new(buffer.as_mut_ptr()).unwrap(),
                    len: buffer.len(),
                };
                start += buffer.len() as u64;
                piece
            })
            .collect();
        Mapping { pieces, len: start, mapped: Vec::new() }
    }

    #[test]
    fn a_range_over_several_pieces_is_one_range() {
        let mut buffers = [vec![0; 3], vec![0; 5], vec![0; 4]];
        let mut regions = Regions::default();
        let region = regions.insert(mapping(&mut buffers));
        let data: Vec<u8> = (1..=8).collect();
        regions.write(region, 2, &data).unwrap();
        assert_eq!(buffers, [vec![0, 0, 1], vec![2, 3, 4, 5, 6], vec![7, 8, 0, 0]]);
        let mut out = [0; 8];
        regions.read(region, 2, &mut out).unwrap();
        assert_eq!(out.as_slice(), data);
    }

    #[test]
    fn nothing_outside_is_touched() {
        let mut buffers = [vec![7; 4]];
        let mut regions = Regions::default();
        let region = regions.insert(mapping(&mut buffers));
        for (offset, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 1)] {
            assert_eq!(regions.write(region, offset, &vec![0; len]), Err(Fault), "{offset}+{len}");
        }
        regions.remove(region);
        assert_eq!(regions.write(region, 0, &[1]), Err(Fault));
        assert_eq!(buffers, [vec![7; 4]]);
    }

    #[test]
    fn remote_write_needs_both_of_its_bits() {
        assert!(!access(4).contains(Access::REMOTE_WRITE));
        assert!(!access(NDK_MR_FLAG_ALLOW_LOCAL_WRITE).contains(Access::REMOTE_WRITE));
        assert!(access(NDK_MR_FLAG_ALLOW_REMOTE_WRITE).contains(Access::REMOTE_WRITE));
    }
}
