//! The poll core's table of logical addresses.

use super::shared::{Lam, LamRing, Message};
use crate::abi::*;
use crate::object::id::ObjectId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering;
use rocev2::env::Fault;

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

#[cfg(test)]
#[allow(unsafe_code, reason = "reads the buffers of the test")]
mod tests {
    use super::super::shared::LAMS_MAX;
    use super::*;
    use crate::bytes::mapping::tests::mapping;
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
}
