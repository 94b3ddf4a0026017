//! A poll core's table of logical addresses.

use super::shared::{Lam, LamRing, Message};
use crate::abi::*;
use crate::object::id::ObjectId;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use rocev2::env::Fault;

/// The mappings that a core knows.
pub(crate) struct Lams {
    by_start: BTreeMap<u64, Arc<Lam>>,
    ring: Arc<LamRing>,
}

impl Lams {
    /// The table of the core that has this ring.
    pub(crate) const fn new(ring: Arc<LamRing>) -> Self {
        Self { by_start: BTreeMap::new(), ring }
    }

    /// Learns what was built and released until now.
    pub(crate) fn update(&mut self) {
        // Bounded, however fast others build meanwhile.
        for _ in 0..self.ring.len() {
            match self.ring.pop() {
                Some(Message::Built(lam)) => {
                    self.by_start.insert(lam.start, lam);
                }
                Some(Message::Released(address)) => self.remove(address),
                Some(Message::Retained(memory)) => drop(memory),
                None => return,
            }
        }
    }

    fn remove(&mut self, address: u64) {
        // The first byte is on the first page.
        let on_page = address..address.saturating_add(PAGE_SIZE as u64);
        if let Some((&start, _)) = self.by_start.range(on_page).next() {
            self.by_start.remove(&start);
        }
    }

    /// An adapter is closed: what its consumer has not released goes with it.
    pub(crate) fn forget(&mut self, adapter: ObjectId) {
        self.update();
        self.by_start.retain(|_, lam| lam.adapter != adapter);
    }

    /// Calls `each` with the pieces of the `len` bytes from logical address `address`: where they
    /// are, their place in the range, and their length.
    ///
    /// A mapping that is not known may wait in the ring: the doorbell that the core has answered tells of those that were
    /// built before its posts, but a peer's packet for a mapping that another core's post has named rings none.
    ///
    /// # Errors
    /// They do not all lie inside one mapping. Nothing was called.
    pub(crate) fn pieces(
        &mut self,
        address: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let found = self.known(address, len, &mut each);
        if found.is_ok() || self.ring.is_empty() {
            return found;
        }
        self.update();
        self.known(address, len, each)
    }

    fn known(
        &self,
        address: u64,
        len: usize,
        each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let (start, lam) = self.by_start.range(..=address).next_back().ok_or(Fault)?;
        lam.mapping.pieces(address - start, len, each)
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "reads the buffers of the test")]
mod tests {
    use super::super::shared::{LAMS_MAX, LamRings};
    use super::*;
    use crate::bytes::mapping::tests::mapping;
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn bytes(lams: &mut Lams, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        let read = lams.pieces(address, len, |from, at, len| {
            // SAFETY: the buffers of the test outlive their mappings.
            unsafe { from.copy_to(out[at..].as_mut_ptr(), len) };
        });
        read.ok().map(|()| out)
    }

    /// The rings of some cores, and the tables of the cores.
    fn shard<const CORES: usize>() -> (LamRings, [Lams; CORES]) {
        let rings = LamRings::new(CORES);
        let lams = core::array::from_fn(|core| Lams::new(Arc::clone(rings.of(core))));
        (rings, lams)
    }

    fn adapter(number: u64) -> ObjectId {
        ObjectId::from(slotmap::KeyData::from_ffi(number << 32 | 1))
    }

    #[test]
    fn an_access_lies_inside_one_mapping() {
        let (rings, [mut lams]) = shard();
        let mut buffers = [vec![1; 100], vec![2; 8092], vec![3; 10]];
        let mapping = mapping(&mut buffers);
        let first = rings.build(adapter(1), 0x234, 3, mapping).unwrap();
        let start = first + 0x234;
        assert_eq!(bytes(&mut lams, start + 99, 2), Some(vec![1, 2]));
        assert_eq!(
            bytes(&mut lams, start, 8202).unwrap()[8190..],
            [2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
        );
        assert_eq!(bytes(&mut lams, start - 1, 1), None, "before the first byte");
        assert_eq!(bytes(&mut lams, start, 8203), None, "behind the last byte");
        assert_eq!(bytes(&mut lams, u64::MAX, 2), None);
        assert_eq!(bytes(&mut lams, 0, 1), None);
    }

    #[test]
    fn mappings_are_no_neighbours_and_addresses_never_come_again() {
        let (rings, [mut lams]) = shard();
        let mut buffers = [vec![1; PAGE_SIZE]];
        let first = rings.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        let second = rings.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        assert_eq!(second - first, 2 * PAGE);
        lams.update();
        assert_eq!(bytes(&mut lams, first + PAGE - 1, 2), None);
        rings.release(first);
        rings.release(first);
        rings.release(12345);
        lams.update();
        assert_eq!(bytes(&mut lams, first, 1), None);
        assert_eq!(bytes(&mut lams, second, 1), Some(vec![1]));
        let third = rings.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        assert!(third > second);
    }

    #[test]
    fn a_closed_adapter_leaves_room_for_as_many_as_before() {
        let (rings, [mut lams]) = shard();
        let build = |owner| rings.build(adapter(owner), 0, 1, mapping(&mut [])).is_some();
        assert!(build(2));
        for _ in 1..LAMS_MAX {
            assert!(build(1));
        }
        assert!(!build(1));
        lams.forget(adapter(1));
        assert_eq!(lams.by_start.len(), 1);
        for _ in 1..LAMS_MAX {
            assert!(build(1));
        }
        assert!(!build(1));
    }

    #[test]
    fn releases_of_what_never_was_do_no_harm() {
        let (rings, [mut lams]) = shard();
        for address in 0..4 * LAMS_MAX as u64 {
            rings.release(address);
        }
        assert_eq!(rings.build(adapter(1), 0, 1, mapping(&mut [])), None);
        lams.update();
        assert!(rings.build(adapter(1), 0, 1, mapping(&mut [])).is_some());
        assert_eq!(rings.free(), LAMS_MAX - 1);
    }

    /// A message that one core alone has no room for takes no room of the others.
    #[test]
    fn a_message_that_is_refused_takes_no_place() {
        let (rings, [mut first, mut second]) = shard();
        let release = |count: usize| (0..count as u64).for_each(|at| rings.release(at));
        release(3 * LAMS_MAX);
        first.update();
        // The second one is full.
        release(3 * LAMS_MAX);
        assert!(rings.of(0).is_empty());
        second.update();
        release(3 * LAMS_MAX);
        assert_eq!([0, 1].map(|core| rings.of(core).len()), [3 * LAMS_MAX; 2]);
    }

    /// A peer's packet may come to one core for what a post on another has named.
    #[test]
    fn every_core_finds_what_was_built() {
        let (rings, mut cores) = shard::<3>();
        let mut buffers = [vec![7; 9]];
        let address = rings.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        for lams in &mut cores {
            assert_eq!(bytes(lams, address + 8, 1), Some(vec![7]));
        }
        rings.release(address);
        for (core, lams) in cores.iter_mut().enumerate() {
            assert_eq!(rings.free(), LAMS_MAX - 1, "core {core} has it");
            lams.update();
            assert_eq!(bytes(lams, address, 1), None);
        }
        assert_eq!(rings.free(), LAMS_MAX, "all have forgotten it");
    }

    /// Memory outlives what any core knows of it, and no more.
    #[test]
    fn memory_is_kept_until_the_last_core_has_looked() {
        let (rings, [mut first, mut last]) = shard();
        let memory = Arc::new(());
        let mut buffers = [vec![7]];
        let address = rings.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        last.update();
        rings.release(address);
        rings.keep(Box::new(Arc::clone(&memory)));
        first.update();
        assert_eq!(bytes(&mut last, address, 1), Some(vec![7]), "it has not looked");
        assert_eq!(Arc::strong_count(&memory), 2);
        last.update();
        assert_eq!((bytes(&mut last, address, 1), Arc::strong_count(&memory)), (None, 1));
        // It goes with the rings, too.
        rings.keep(Box::new(Arc::clone(&memory)));
        drop((rings, first));
        assert_eq!(Arc::strong_count(&memory), 2);
        drop(last);
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn a_core_with_a_full_ring_keeps_the_others_from_hearing() {
        let (rings, [mut first, mut slow, mut last]) = shard();
        for address in 0..3 * LAMS_MAX as u64 {
            rings.release(address);
            first.update();
            last.update();
        }
        // So often that a place which was kept each time would be missed below.
        for _ in 0..2 * LAMS_MAX {
            assert_eq!(rings.build(adapter(1), 0, 1, mapping(&mut [])), None);
        }
        assert!(rings.of(0).is_empty() && rings.of(2).is_empty());
        assert_eq!(rings.free(), LAMS_MAX);
        slow.update();
        let mut buffers = [vec![7]];
        let address = rings.build(adapter(1), 0, 1, mapping(&mut buffers)).unwrap();
        for lams in [&mut first, &mut slow, &mut last] {
            assert_eq!(bytes(lams, address, 1), Some(vec![7]));
        }
    }
}
