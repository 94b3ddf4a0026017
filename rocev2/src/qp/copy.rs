//! Copies between packets and scatter/gather lists. Each copy checks each element.

use super::work::Sge;
use crate::env::{Memory, RegionId};
use crate::mr::{Access, MrTable, PdId};
use crate::wire::Payload;

/// A scatter/gather list did not cover a range, or an element of it failed its check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LocalFault;

/// Checked memory that a packet is to carry.
pub(crate) struct Source<'a, M> {
    pub memory: &'a mut M,
    pub region: RegionId,
    pub offset: u64,
}

impl<M: Memory> Payload for Source<'_, M> {
    #[inline(always)]
    fn write(self, out: &mut [u8]) -> Option<()> {
        self.memory.read(self.region, self.offset, out).ok()
    }
}

/// Copies `out.len()` bytes, from `offset` of the list on, into `out`.
///
/// # Errors
/// [`LocalFault`]: an element's key, rights or bounds, or the list is too short.
pub(crate) fn gather<M: Memory>(
    sgl: impl Iterator<Item = Sge>,
    offset: u64,
    out: &mut [u8],
    pd: PdId,
    mrs: &MrTable,
    memory: &mut M,
) -> Result<(), LocalFault> {
    let mut filled = 0;
    for piece in pieces(sgl, offset, out.len()) {
        let (region, at) = mrs
            .local(pd, piece.lkey, piece.addr, u64::from(piece.len), Access::LOCAL_READ)
            .map_err(|_| LocalFault)?;
        let end = filled + piece.len as usize;
        memory.read(region, at, &mut out[filled..end]).map_err(|_| LocalFault)?;
        filled = end;
    }
    if filled == out.len() { Ok(()) } else { Err(LocalFault) }
}

/// Copies `data` to `offset` of the list.
///
/// # Errors
/// [`LocalFault`]: an element's key, rights or bounds, or the list is too short.
pub(crate) fn scatter<M: Memory>(
    sgl: impl Iterator<Item = Sge>,
    offset: u64,
    data: &[u8],
    pd: PdId,
    mrs: &MrTable,
    memory: &mut M,
) -> Result<(), LocalFault> {
    let mut written = 0;
    for piece in pieces(sgl, offset, data.len()) {
        let (region, at) = mrs
            .local(pd, piece.lkey, piece.addr, u64::from(piece.len), Access::LOCAL_WRITE)
            .map_err(|_| LocalFault)?;
        let end = written + piece.len as usize;
        memory.write(region, at, &data[written..end]).map_err(|_| LocalFault)?;
        written = end;
    }
    if written == data.len() { Ok(()) } else { Err(LocalFault) }
}

/// Checks that every element may take inbound data.
///
/// # Errors
/// [`LocalFault`]: an element's key, rights or bounds.
pub(crate) fn check_sink(
    sgl: impl Iterator<Item = Sge>,
    pd: PdId,
    mrs: &MrTable,
) -> Result<(), LocalFault> {
    for sge in sgl.filter(|sge| sge.len > 0) {
        mrs.local(pd, sge.lkey, sge.addr, u64::from(sge.len), Access::LOCAL_WRITE)
            .map_err(|_| LocalFault)?;
    }
    Ok(())
}

/// The parts of the elements that cover `len` bytes from `offset` on.
fn pieces(sgl: impl Iterator<Item = Sge>, offset: u64, len: usize) -> impl Iterator<Item = Sge> {
    let mut skip = offset;
    let mut left = len as u64;
    sgl.filter_map(move |sge| {
        let sge_len = u64::from(sge.len);
        if left == 0 || skip >= sge_len {
            skip = skip.saturating_sub(sge_len);
            return None;
        }
        let take = left.min(sge_len - skip);
        // `take` is at most the element's own 32-bit length.
        let piece = Sge { addr: sge.addr.wrapping_add(skip), len: take as u32, lkey: sge.lkey };
        skip = 0;
        left -= take;
        Some(piece)
    })
}
