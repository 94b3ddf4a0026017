//! The names of regions: a table that the desk changes, and that all cores read.
#![allow(unsafe_code, reason = "who frees a region is agreed with the keys of the transport")]

use super::mapping::Mapping;
use super::pages::PageLists;
use super::{Region, inline::InlineSlots};
use crate::sync::modelled::AtomicPtr;
use crate::sync::{Latest, Room};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use once_cell::race::OnceBox;
use rocev2::env::RegionId;

/// Places of the first array.
const FIRST: usize = if cfg!(all(loom, test)) { 1 } else { 64 };
/// Closed regions that [`Names::sweep`] looks at.
const SWEPT: usize = 16;

/// In every place that has no region, so that a core need not ask for that.
pub(super) static NOTHING: Region = Region::Nothing;

/// The region that has a name.
pub(super) struct Place(AtomicPtr<Region>, PhantomData<Region>);

impl Place {
    const fn nothing() -> *mut Region {
        (&raw const NOTHING).cast_mut()
    }

    fn new(region: *mut Region) -> Self {
        Self(AtomicPtr::new(region), PhantomData)
    }

    fn load(&self) -> *mut Region {
        self.0.load(Ordering::Acquire)
    }

    /// The region, for as long as the caller may use it: see [`Names::remove`].
    #[inline(always)]
    pub(super) fn region(&self) -> &Region {
        // SAFETY: it lives until it is removed, which is done when nobody has it any more.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Frees a region that has no place any more.
    ///
    /// # Safety
    /// It came from a place, and no other frees it.
    unsafe fn free(region: *mut Region) {
        if region != Self::nothing() {
            // SAFETY: the caller's promise; all others are from a box.
            drop(unsafe { Box::from_raw(region) });
        }
    }
}

/// The part of the table that the desk and the cores share.
#[derive(Default)]
pub(super) struct Table {
    /// The newest array, which has all places. A core may have an older one, until it meets a name that it has not.
    pub(super) newest: Latest<Arc<[Place]>>,
    /// The pool of page lists, once a fast-register region was initialised.
    pub(super) pool: OnceBox<Arc<PageLists>>,
}

impl Drop for Table {
    fn drop(&mut self) {
        for place in self.newest.get().iter().flat_map(|places| places.iter()) {
            // SAFETY: neither the desk nor a core is there any more.
            unsafe { Place::free(place.load()) };
        }
    }
}

/// Gives regions their names, for the desk.
#[derive(Default)]
pub(crate) struct Names {
    table: Arc<Table>,
    /// All arrays that a core may have: each has the places of the one before, and as many again.
    arrays: Vec<Arc<[Place]>>,
    /// Places that had a region before.
    free: Vec<u32>,
    /// Closed regions whose lists are in use: they go when their mapping has ended.
    orphans: VecDeque<u32>,
    /// The first place that never had a region.
    next: usize,
}

impl Names {
    /// The table, for a core.
    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    pub(crate) fn insert(&mut self, mapping: Mapping) -> RegionId {
        self.insert_region(Region::Mapped(mapping))
    }

    pub(crate) fn insert_inline(&mut self, slots: Arc<InlineSlots>) -> RegionId {
        self.insert_region(Region::Inline(slots))
    }

    /// Names the list of a fast-register region, which may take others from `pool`, the one of the provider.
    pub(crate) fn insert_list(&mut self, list: Arc<PageLists>, pool: &Arc<PageLists>) -> RegionId {
        self.table.pool.get_or_init(|| Box::new(Arc::clone(pool)));
        self.insert_region(Region::Pages(list))
    }

    fn insert_region(&mut self, region: Region) -> RegionId {
        let name = self.free.pop().unwrap_or_else(|| {
            if self.next == self.places().len() {
                self.grow();
            }
            self.next += 1;
            (self.next - 1) as u32
        });
        self.set(name, Box::into_raw(Box::new(region)));
        RegionId(name)
    }

    /// The newest array.
    fn places(&self) -> &[Place] {
        self.arrays.last().map_or(&[], |places| places)
    }

    fn grow(&mut self) {
        let old = self.places();
        let len = (2 * old.len()).max(FIRST);
        let region = |at| old.get(at).map_or(Place::nothing(), Place::load);
        let places: Arc<[Place]> = (0..len).map(|at| Place::new(region(at))).collect();
        // A place is given back where nothing may be allocated: when a request ends.
        self.free.reserve_exact(len - self.free.len());
        self.orphans.reserve_exact(len - self.orphans.len());
        // SAFETY: the one owner of the names sets it.
        unsafe { self.table.newest.set(Room::new(), Arc::clone(&places)) };
        self.arrays.push(places);
    }

    /// The memory that one more may take: the places, and the lists of those that are given back, double.
    pub(crate) fn growth(&self) -> usize {
        let places = self.places().len();
        let full = self.free.is_empty() && self.next == places;
        let place = size_of::<Place>() + 2 * size_of::<u32>();
        if full { (2 * places).max(FIRST) * place } else { 0 }
    }

    fn set(&self, name: u32, region: *mut Region) {
        for places in &self.arrays {
            if let Some(place) = places.get(name as usize) {
                place.0.store(region, Ordering::Release);
            }
        }
    }

    /// Forgets a region at once; one whose page list is in use goes when its mapping has ended, and [`Self::sweep`] sees
    /// that.
    ///
    /// # Safety
    /// It is removed once, and no core uses it any more or ever again: no key names it, and no core is still at work on
    /// what it has found by one, which the end of a key in the transport waits for. Of a list in use its release is still
    /// to come, from the core on which the mapping ends.
    pub(crate) unsafe fn remove(&mut self, region: RegionId) {
        let RegionId(name) = region;
        match self.region(name) {
            Region::Pages(list) if !list.is_free(0) => self.orphans.push_back(name),
            Region::Nothing => {}
            // SAFETY: the caller's promise.
            _ => unsafe { self.free(name) },
        }
    }

    /// Forgets closed regions whose mappings have ended since, if any. The desk calls it in each of its turns.
    #[inline(always)]
    pub(crate) fn sweep(&mut self) {
        if !self.orphans.is_empty() {
            self.sweep_some();
        }
    }

    #[inline(never)]
    fn sweep_some(&mut self) {
        for _ in 0..self.orphans.len().min(SWEPT) {
            let Some(name) = self.orphans.pop_front() else { return };
            match self.region(name) {
                Region::Pages(list) if !list.is_free(0) => self.orphans.push_back(name),
                Region::Nothing => {}
                // SAFETY: as promised at its removal, and the last use, the release, has come.
                _ => unsafe { self.free(name) },
            }
        }
    }

    fn region(&self, name: u32) -> &Region {
        self.places().get(name as usize).map_or(&NOTHING, Place::region)
    }

    /// Frees the region of a place that has one, and the place.
    ///
    /// # Safety
    /// As for [`Self::remove`], and no release is to come.
    unsafe fn free(&mut self, name: u32) {
        let region = self.places()[name as usize].load();
        self.set(name, Place::nothing());
        // SAFETY: the caller's promise.
        unsafe { Place::free(region) };
        self.free.push(name);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Regions;
    use super::super::pages::POOL_LISTS;
    use super::*;
    use crate::abi::NDK_LOGICAL_ADDRESS;
    use crate::bytes::mapping::tests::mapping;
    use alloc::vec;
    use rocev2::env::{Fault, Memory};
    use std::sync::mpsc;

    impl Names {
        /// Places of the table that have no region.
        fn room(&self) -> usize {
            self.free.len() + self.places().len() - self.next
        }
    }

    fn lists(count: usize) -> Arc<PageLists> {
        Arc::new(PageLists::new(count, 1).unwrap())
    }

    const PAGE: NDK_LOGICAL_ADDRESS = NDK_LOGICAL_ADDRESS { QuadPart: 0 };

    #[test]
    fn a_list_in_use_outlives_its_region_and_its_place_comes_back() {
        let mut names = Names::default();
        let mut regions = Regions::new(&names, Arc::default());
        let (list, pool) = (lists(1), lists(POOL_LISTS));
        let [used, unused] =
            [&list, &lists(1)].map(|own| names.insert_list(Arc::clone(own), &pool));
        let room = [names.free.capacity(), names.orphans.capacity()];
        assert!(room.iter().all(|&room| room >= FIRST), "a place comes back for nothing");
        assert_eq!(list.take(&mut [PAGE].into_iter()), Some(0));
        for name in [used, unused] {
            // SAFETY: nobody uses it, but for the release to come.
            unsafe { names.remove(name) };
        }
        names.sweep();
        assert_eq!((names.room(), Arc::strong_count(&list)), (FIRST - 1, 2));
        regions.release(used);
        names.sweep();
        assert_eq!((names.room(), Arc::strong_count(&list)), (FIRST, 1));
        // A second release, or one of other names, changes nothing.
        for name in [used, unused, crate::bytes::LOGICAL, RegionId(1 << 30)] {
            regions.release(name);
        }
        names.sweep();
        assert_eq!(names.room(), FIRST);
    }

    #[test]
    fn a_sweep_comes_to_every_orphan() {
        let mut names = Names::default();
        let mut regions = Regions::new(&names, Arc::default());
        let (lists, pool) = (vec![(); 3 * SWEPT].into_iter().map(|()| lists(1)), lists(1));
        let orphans: Vec<RegionId> = lists
            .map(|list| {
                list.take(&mut [PAGE].into_iter());
                let name = names.insert_list(list, &pool);
                // SAFETY: as above.
                unsafe { names.remove(name) };
                name
            })
            .collect();
        let last = orphans[orphans.len() - 1];
        regions.release(last);
        (0..3).for_each(|_| names.sweep());
        assert_eq!(names.room(), FIRST - (orphans.len() - 1));
        assert_eq!(names.insert(mapping(&mut [])), last);
    }

    /// A table asks for the memory of its growth before, and for none while places are free.
    #[test]
    fn a_full_table_tells_of_its_growth() {
        let mut names = Names::default();
        assert!(names.growth() >= FIRST * size_of::<Place>());
        for _ in 0..FIRST {
            names.insert(mapping(&mut []));
        }
        assert!(names.growth() >= 2 * FIRST * size_of::<Place>());
        // SAFETY: nobody uses it.
        unsafe { names.remove(RegionId(0)) };
        assert_eq!(names.growth(), 0);
        names.insert(mapping(&mut []));
        names.insert(mapping(&mut []));
        assert_eq!((names.growth(), names.arrays.len()), (0, 2));
    }

    /// A core that has met no new name since the table grew sees what becomes of the names that it knows.
    #[test]
    fn an_older_array_is_kept_up_to_date() {
        let mut names = Names::default();
        let mut regions = Regions::new(&names, Arc::default());
        let mut buffers = [[vec![1]], [vec![2]]];
        let first = names.insert(mapping(&mut buffers[0]));
        let mut read = [0];
        regions.read(first, 0, &mut read).unwrap();
        for _ in 0..FIRST {
            names.insert(mapping(&mut []));
        }
        assert_eq!((names.arrays.len(), read), (2, [1]));
        // SAFETY: nobody uses it.
        unsafe { names.remove(first) };
        assert_eq!(regions.read(first, 0, &mut read), Err(Fault));
        assert_eq!(names.insert(mapping(&mut buffers[1])), first);
        regions.read(first, 0, &mut read).unwrap();
        assert_eq!(read, [2]);
    }

    /// A core goes on with its array while the table grows, and sees every region by the name that it was told.
    #[test]
    fn cores_read_while_the_desk_names() {
        let mut names = Names::default();
        let count = if cfg!(miri) { 2 * FIRST + 1 } else { 40 * FIRST };
        std::thread::scope(|scope| {
            let (tell, told): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
            let done = told.into_iter().map(|told| {
                let mut regions = Regions::new(&names, Arc::default());
                scope.spawn(move || {
                    for (name, number) in told {
                        let mut read = [0; 8];
                        regions.read(name, 0, &mut read).unwrap();
                        assert_eq!(usize::from_le_bytes(read), number);
                    }
                    assert_eq!(regions.read(RegionId(1 << 30), 0, &mut [0]), Err(Fault));
                })
            });
            let done: Vec<_> = done.collect();
            let mut buffers: Vec<_> =
                (0..count).map(|number| [number.to_le_bytes().to_vec()]).collect();
            for (number, buffer) in buffers.iter_mut().enumerate() {
                let name = names.insert(mapping(buffer));
                tell.iter().for_each(|core| core.send((name, number)).unwrap());
            }
            drop(tell);
            done.into_iter().for_each(|core| core.join().unwrap());
        });
    }

    /// A core gives a list back while the desk looks whether it may forget it.
    #[test]
    fn a_core_releases_while_the_desk_sweeps() {
        let mut names = Names::default();
        let pool = lists(1);
        let times = if cfg!(miri) { 20 } else { 2000 };
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let mut regions = Regions::new(&names, Arc::default());
            scope.spawn(move || told.into_iter().for_each(|name| regions.release(name)));
            for _ in 0..times {
                let list = lists(1);
                list.take(&mut [PAGE].into_iter());
                let name = names.insert_list(list, &pool);
                tell.send(name).unwrap();
                // SAFETY: nobody uses it, but for the release.
                unsafe { names.remove(name) };
                while names.room() < FIRST {
                    names.sweep();
                    std::thread::yield_now();
                }
            }
            drop(tell);
        });
    }

    #[test]
    fn regions_go_with_the_last_that_reads_them() {
        let list = lists(1);
        let mut names = Names::default();
        names.insert_list(Arc::clone(&list), &lists(1));
        let regions = Regions::new(&names, Arc::default());
        drop(names);
        assert_eq!(Arc::strong_count(&list), 2);
        drop(regions);
        assert_eq!(Arc::strong_count(&list), 1);
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::super::Regions;
    use super::*;
    use crate::sync::modelled::AtomicUsize;
    use rocev2::env::Memory;

    /// A core that is told a name finds its region, though the table grows with each of them.
    #[test]
    fn a_name_that_is_known_has_its_region() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let mut names = Names::default();
            let mut regions = Regions::new(&names, Arc::default());
            let told = Arc::new(AtomicUsize::new(0));
            let its_told = Arc::clone(&told);
            let core = loom::thread::spawn(move || {
                for name in 0..its_told.load(Ordering::Acquire) {
                    regions.read(RegionId(name as u32), name as u64, &mut [0]).unwrap();
                }
            });
            for name in 0..3 {
                let slots = InlineSlots::new(1, name + 1).unwrap();
                assert_eq!(names.insert_inline(Arc::new(slots)), RegionId(name as u32));
                told.store(name + 1, Ordering::Release);
            }
            core.join().unwrap();
        });
    }
}
