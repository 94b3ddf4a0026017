//! The memory behind tokens: registered regions, fast registrations, logical addresses.

use crate::layer::Record;
use driver::abi::*;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Consecutive bytes under consecutive labels.
#[derive(Clone, Copy, Debug)]
struct Span {
    len: u64,
    /// The address in this process.
    at: usize,
    /// The mapping that the labels belong to; 0 for none.
    lam: u64,
}

/// Labels, the addresses by which elements name bytes, and where the bytes are.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, Span>);

impl Spans {
    fn push(&mut self, label: u64, len: u64, at: usize, lam: u64) {
        if let Some((&last, span)) = self.0.range_mut(..=label).next_back()
            && last + span.len == label
            && span.at + span.len as usize == at
            && span.lam == lam
        {
            span.len += len;
        } else if len > 0 {
            self.0.insert(label, Span { len, at, lam });
        }
    }

    /// The bytes under `len` labels; `None` if one of them has none.
    fn find(&self, label: u64, len: u64) -> Option<Vec<(usize, usize, u64)>> {
        let mut found = Vec::new();
        let (mut next, end) = (label, label.checked_add(len)?);
        while next < end {
            let (&from, span) = self.0.range(..=next).next_back()?;
            let part =
                (from + span.len).checked_sub(next).filter(|&left| left > 0)?.min(end - next);
            found.push((span.at + (next - from) as usize, part as usize, span.lam));
            next += part;
        }
        Some(found)
    }

    /// Whether any of its bytes lies in `range`.
    fn touches(&self, range: &Range<usize>) -> bool {
        self.0.values().any(|span| overlap(&(span.at..span.at + span.len as usize), range))
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A chain of MDLs, as the consumer passes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// The label of the first byte.
    base: u64,
    /// The bytes, in order.
    bytes: Vec<(usize, u64)>,
    /// The structures.
    mdls: Vec<Range<usize>>,
}

impl Chain {
    /// The first `len` bytes of a chain.
    ///
    /// # Safety
    /// `mdl` is null or begins a chain of readable MDLs.
    pub(super) unsafe fn read(mdl: *const MDL, len: SIZE_T) -> Self {
        let (mut chain, mut left, mut next) = (Self::default(), len as u64, mdl);
        // SAFETY: the caller's promise.
        while let Some(mdl) = unsafe { next.as_ref() } {
            if chain.mdls.is_empty() {
                chain.base = mdl.virtual_address().addr() as u64;
            }
            let at = mdl.system_address().map_or(mdl.virtual_address().addr(), |at| at.addr());
            let part = left.min(mdl.ByteCount.into());
            chain.bytes.push((at, part));
            let start = next.addr();
            chain.mdls.push(start..start + size_of::<MDL>());
            left -= part;
            next = mdl.Next;
        }
        chain
    }
}

/// The state of a region, as far as elements may name it.
#[derive(Clone, Debug)]
pub(super) enum Mapping {
    /// It was never registered, or that has ended.
    None,
    /// The consumer cannot know, and so do we.
    Unknown,
    Live(Live),
}

/// A registration.
#[derive(Clone, Debug)]
pub(super) struct Live {
    base: u64,
    len: u64,
    local_write: bool,
    bytes: Spans,
    lams: Vec<u64>,
    mdls: Vec<Range<usize>>,
    /// The QP of a fast registration; else 0.
    by: u64,
}

impl Live {
    fn contains(&self, address: u64, len: u64) -> bool {
        len <= self.len && address >= self.base && address - self.base <= self.len - len
    }
}

/// A region, as long as it is open.
pub(super) struct Region {
    pub(super) record: Arc<Record>,
    pub(super) pd: u64,
    pub(super) fast: bool,
    pub(super) mapping: Mapping,
    tokens: [u32; 2],
}

/// Logical addresses of a buffer.
struct Lam {
    id: u64,
    adapter: u64,
    structure: Range<usize>,
    mdls: Vec<Range<usize>>,
    labels: Vec<u64>,
}

/// The object that a token belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Region(u64),
    Domain(u64),
}

/// All memory that the adapters of one opener reach.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) regions: BTreeMap<u64, Region>,
    tokens: BTreeMap<u32, Owner>,
    lams: Vec<Lam>,
    logical: Spans,
    last_lam: u64,
    process: Option<File>,
}

/// The user of memory, in the words of a report.
pub(super) enum User {
    Region(Arc<Record>),
    Lam,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region(region) => region.fmt(f),
            Self::Lam => f.write_str("a mapping"),
        }
    }
}

/// The fault of an element.
pub(super) enum Wrong {
    NoToken,
    OtherDomain,
    Dead(Arc<Record>),
    Beyond(Option<Arc<Record>>),
    ReadOnly(Arc<Record>),
}

/// Memory of an element: address and length, and the id of its mapping, 0 for none.
pub(super) type Bytes = Vec<(usize, usize, u64)>;

impl Memory {
    pub(super) fn new() -> Self {
        Self { process: File::open("/proc/self/mem").ok(), ..Self::default() }
    }

    pub(super) fn add_region(&mut self, record: &Arc<Record>, pd: u64, fast: bool) {
        let record = Arc::clone(record);
        let id = record.id;
        let region = Region { record, pd, fast, mapping: Mapping::None, tokens: [0; 2] };
        self.regions.insert(id, region);
    }

    pub(super) fn add_domain(&mut self, pd: u64, token: u32) {
        self.tokens.insert(token, Owner::Domain(pd));
    }

    /// An object is closed, and so are its tokens.
    pub(super) fn forget(&mut self, id: u64) {
        self.regions.remove(&id);
        self.tokens.retain(|_, owner| match owner {
            Owner::Region(region) => *region != id,
            Owner::Domain(pd) => *pd != id,
        });
    }

    /// A region has its tokens.
    pub(super) fn name(&mut self, id: u64) {
        let Some(region) = self.regions.get_mut(&id) else { return };
        region.tokens = region.record.region_tokens();
        self.tokens.extend(region.tokens.map(|token| (token, Owner::Region(id))));
    }

    /// `NdkRegisterMr` has succeeded.
    pub(super) fn register(&mut self, id: u64, chain: Chain, len: SIZE_T, flags: ULONG) {
        self.name(id);
        let Some(region) = self.regions.get_mut(&id) else { return };
        let mut bytes = Spans::default();
        let mut label = chain.base;
        for (at, part) in chain.bytes {
            bytes.push(label, part, at, 0);
            label += part;
        }
        region.mapping = Mapping::Live(Live {
            base: chain.base,
            len: len as u64,
            local_write: flags & NDK_MR_FLAG_ALLOW_LOCAL_WRITE != 0,
            bytes,
            lams: Vec::new(),
            mdls: chain.mdls,
            by: 0,
        });
    }

    /// The pages of a fast registration, as far as they are known, ready for [`Memory::map`].
    pub(super) fn pages(
        &self,
        pages: &[NDK_LOGICAL_ADDRESS],
        base: u64,
        len: u64,
        flags: ULONG,
        by: u64,
    ) -> Mapping {
        let (mut bytes, mut lams) = (Spans::default(), Vec::new());
        let (mut label, end) = (base, base.saturating_add(len));
        for page in pages {
            let skip = label % PAGE_SIZE as u64;
            let part = (PAGE_SIZE as u64 - skip).min(end.saturating_sub(label));
            let page = page.QuadPart.cast_unsigned();
            for (at, part, lam) in self.logical.find(page + skip, part).unwrap_or_default() {
                bytes.push(label, part as u64, at, lam);
                lams.push(lam);
            }
            label += part;
        }
        lams.dedup();
        let local_write = flags & NDK_OP_FLAG_ALLOW_LOCAL_WRITE != 0;
        Mapping::Live(Live { base, len, local_write, bytes, lams, mdls: Vec::new(), by })
    }

    /// The mapping of a region has changed; the one before, of a region that is open.
    pub(super) fn map(&mut self, id: u64, mapping: Mapping) -> Option<Mapping> {
        let region = self.regions.get_mut(&id)?;
        Some(std::mem::replace(&mut region.mapping, mapping))
    }

    /// A token was invalidated by the peer.
    pub(super) fn invalidate(&mut self, token: u32) {
        if let Some(&Owner::Region(id)) = self.tokens.get(&token) {
            self.map(id, Mapping::None);
        }
    }

    /// The peer may have invalidated any fast registration of a domain.
    pub(super) fn doubt(&mut self, pd: u64) {
        for region in self.regions.values_mut().filter(|region| region.pd == pd && region.fast) {
            region.mapping = Mapping::Unknown;
        }
    }

    /// `NdkBuildLAM` has succeeded.
    ///
    /// # Safety
    /// The provider has filled `lam`.
    pub(super) unsafe fn build_lam(
        &mut self,
        adapter: u64,
        chain: Chain,
        lam: *const NDK_LOGICAL_ADDRESS_MAPPING,
    ) {
        // SAFETY: the caller's promise.
        let count = unsafe { (*lam).AdapterPageCount };
        let pages = lam.wrapping_add(1).cast::<NDK_LOGICAL_ADDRESS>();
        // SAFETY: as above; the pages stand behind the structure.
        let pages = unsafe { slice(pages, count) };
        self.last_lam += 1;
        let id = self.last_lam;
        let mut skip = chain.base % PAGE_SIZE as u64;
        let mut places = pages.iter().map(|page| page.QuadPart.cast_unsigned());
        let (mut page, mut labels) = (places.next(), Vec::new());
        for (mut at, mut left) in chain.bytes {
            while let Some(address) = page
                && left > 0
            {
                let part = left.min(PAGE_SIZE as u64 - skip);
                labels.push(address + skip);
                self.logical.push(address + skip, part, at, id);
                (at, left, skip) = (at + part as usize, left - part, skip + part);
                if skip == PAGE_SIZE as u64 {
                    (page, skip) = (places.next(), 0);
                }
            }
        }
        let start = lam.addr();
        let size = NDK_LOGICAL_ADDRESS_MAPPING::size_for(count as usize);
        let structure = start..start + size;
        self.lams.push(Lam { id, adapter, structure, mdls: chain.mdls, labels });
    }

    /// The mapping that a structure holds.
    pub(super) fn lam(&self, lam: *const NDK_LOGICAL_ADDRESS_MAPPING) -> Option<u64> {
        self.lams.iter().find(|known| known.structure.start == lam.addr()).map(|known| known.id)
    }

    /// The regions that are registered over a mapping, and the QPs by which they were.
    pub(super) fn regions_over(&self, lam: u64) -> impl Iterator<Item = (&Arc<Record>, u64)> {
        self.regions.values().filter_map(move |region| match &region.mapping {
            Mapping::Live(live) if live.lams.contains(&lam) => Some((&region.record, live.by)),
            Mapping::Live(_) | Mapping::None | Mapping::Unknown => None,
        })
    }

    /// `NdkReleaseLAM` of one, or the close of its adapter.
    pub(super) fn release(&mut self, id: u64) {
        if let Some(place) = self.lams.iter().position(|lam| lam.id == id) {
            for label in self.lams.swap_remove(place).labels {
                self.logical.0.remove(&label);
            }
        }
    }

    /// The mappings of an adapter that were not released.
    pub(super) fn lams_of(&self, adapter: u64) -> Vec<u64> {
        let of = self.lams.iter().filter(|lam| lam.adapter == adapter);
        of.map(|lam| lam.id).collect()
    }

    /// Whether a mapping was not released.
    pub(super) fn is_mapped(&self, lam: u64) -> bool {
        self.lams.iter().any(|known| known.id == lam)
    }

    /// The region of an element, and the bytes that it names, as far as they are known.
    pub(super) fn element(
        &self,
        pd: u64,
        sge: &NDK_SGE,
        writes: bool,
    ) -> Result<(Option<u64>, Option<Bytes>), Wrong> {
        let owner = self.tokens.get(&sge.MemoryRegionToken).ok_or(Wrong::NoToken)?;
        let len = u64::from(sge.Length);
        let id = match *owner {
            Owner::Domain(owner) if owner != pd => return Err(Wrong::OtherDomain),
            Owner::Domain(_) => {
                let address = sge.logical_address().QuadPart.cast_unsigned();
                let bytes = self.logical.find(address, len).ok_or(Wrong::Beyond(None))?;
                return Ok((None, Some(bytes)));
            }
            Owner::Region(id) => id,
        };
        let Some(region) = self.regions.get(&id) else { return Err(Wrong::NoToken) };
        if region.pd != pd {
            return Err(Wrong::OtherDomain);
        }
        let live = match &region.mapping {
            Mapping::Unknown => return Ok((Some(id), None)),
            Mapping::None => return Err(Wrong::Dead(Arc::clone(&region.record))),
            Mapping::Live(live) => live,
        };
        let address = sge.virtual_address().addr() as u64;
        if !live.contains(address, len) {
            return Err(Wrong::Beyond(Some(Arc::clone(&region.record))));
        }
        if writes && !live.local_write {
            return Err(Wrong::ReadOnly(Arc::clone(&region.record)));
        }
        Ok((Some(id), live.bytes.find(address, len)))
    }

    /// The region, if these bytes do not lie inside.
    pub(super) fn left(&self, id: u64, address: u64, len: u64) -> Option<Arc<Record>> {
        let region = self.regions.get(&id)?;
        match &region.mapping {
            Mapping::Live(live) if !live.contains(address, len) => Some(Arc::clone(&region.record)),
            Mapping::Live(_) | Mapping::None | Mapping::Unknown => None,
        }
    }

    /// Whether the bytes of a request lie in `range`.
    pub(super) fn touches(bytes: &Bytes, range: &Range<usize>) -> bool {
        bytes.iter().any(|&(at, len, _)| overlap(&(at..at + len), range))
    }

    /// The users of memory that the consumer frees: as bytes, as an MDL, as the structure of a mapping.
    pub(super) fn users(&self, range: &Range<usize>) -> [Option<User>; 3] {
        let live = |region: &Region, test: &dyn Fn(&Live) -> bool| match &region.mapping {
            Mapping::Live(live) => test(live),
            Mapping::None | Mapping::Unknown => false,
        };
        let region = |test: &dyn Fn(&Live) -> bool| {
            let found = self.regions.values().find(|region| live(region, test));
            found.map(|region| User::Region(Arc::clone(&region.record)))
        };
        let among = |mdls: &[Range<usize>]| mdls.iter().any(|mdl| overlap(mdl, range));
        let bytes = region(&|live| live.bytes.touches(range));
        let bytes = bytes.or_else(|| self.logical.touches(range).then_some(User::Lam));
        let mdl = region(&|live| among(&live.mdls));
        let mdl = mdl.or_else(|| self.lams.iter().any(|lam| among(&lam.mdls)).then_some(User::Lam));
        let structure = self.lams.iter().any(|lam| overlap(&lam.structure, range));
        [bytes, mdl, structure.then_some(User::Lam)]
    }

    /// A checksum of bytes; an error where they cannot be read. `None` where nothing can.
    ///
    /// The kernel copies them, as memory that the consumer has freed may be gone.
    pub(super) fn sum(&self, bytes: &Bytes) -> Option<Result<u32, ()>> {
        let process = self.process.as_ref()?;
        let (mut hasher, mut room) = (crc32fast::Hasher::new(), [0; 4096]);
        for &(at, len, _) in bytes {
            for from in (0..len).step_by(room.len()) {
                let part = &mut room[..(len - from).min(4096)];
                if process.read_exact_at(part, (at + from) as u64).is_err() {
                    return Some(Err(()));
                }
                hasher.update(part);
            }
        }
        Some(Ok(hasher.finalize()))
    }
}
