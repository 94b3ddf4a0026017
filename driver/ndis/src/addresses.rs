//! Sets of addresses that received frames are compared with: who looks takes no lock and writes nothing.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::sync::atomic::Ordering;

// The forms that loom can model.
#[cfg(not(all(loom, test)))]
use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, AtomicUsize, fence},
};
#[cfg(all(loom, test))]
use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, AtomicUsize, fence},
};

/// An address of IP or Ethernet, as a number that is not 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Address(u128);

impl Address {
    /// `None` for the unspecified address of IPv6, which is nobody's.
    pub(crate) fn ip(ip: IpAddr) -> Option<Self> {
        let v6 = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        (!v6.is_unspecified()).then(|| Self(v6.to_bits()))
    }

    pub(crate) const fn ethernet([a, b, c, d, e, f]: [u8; 6]) -> Self {
        // No IP address begins so.
        Self(u128::from_be_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, a, b, c, d, e, f]))
    }

    const fn halves(self) -> [u64; 2] {
        [(self.0 >> 64) as u64, self.0 as u64]
    }
}

/// A set of addresses with many readers and, from time to time, a writer.
///
/// It is a table with open addressing under a sequence number that is odd while the set changes: a reader that meets a change looks
/// again. A change takes about a microsecond.
#[derive(Debug)]
pub(crate) struct AddressSet {
    version: AtomicUsize,
    /// Its length is a power of two. Zero: none.
    slots: Box<[[AtomicU64; 2]]>,
}

impl AddressSet {
    /// An empty set with room for so many.
    pub(crate) fn with_room(addresses: usize) -> Self {
        let slots = (2 * addresses).next_power_of_two();
        Self {
            version: AtomicUsize::new(0),
            slots: (0..slots).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect(),
        }
    }

    /// Addresses that it has room for: half of the slots, so that looks end soon.
    fn room(&self) -> usize {
        self.slots.len() / 2
    }

    /// Whether the address is in the set. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn contains(&self, address: Address) -> bool {
        loop {
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let found = self.find(address).is_ok();
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return found;
                }
            }
            spin_loop();
        }
    }

    /// The address's slot, or the free one at which a search for it ends; none of either where a change is seen half.
    fn find(&self, address: Address) -> Result<usize, Option<usize>> {
        let [high, low] = address.halves();
        let mixed = (high ^ low.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (mixed >> 32) as usize;
        for step in 0..self.slots.len() {
            let at = (first + step) & (self.slots.len() - 1);
            let slot = self.slots[at].each_ref().map(|half| half.load(Ordering::Relaxed));
            if slot == [high, low] {
                return Ok(at);
            }
            if slot == [0, 0] {
                return Err(Some(at));
            }
        }
        Err(None)
    }

    /// Replaces the set. False: some of the addresses have no room. Only one thread does so at a time, at DISPATCH_LEVEL: a reader of
    /// the same processor would wait in vain for one that it keeps from running.
    pub(crate) fn replace(&self, addresses: impl Iterator<Item = Address>) -> bool {
        let before = self.version.load(Ordering::Relaxed);
        debug_assert!(before.is_multiple_of(2), "one writer");
        self.version.store(before + 1, Ordering::Relaxed);
        // A reader that sees a slot of the new set sees the odd number, too.
        fence(Ordering::Release);
        self.slots.iter().flatten().for_each(|half| half.store(0, Ordering::Relaxed));
        let (mut left, mut all) = (self.room(), true);
        for address in addresses {
            if let Err(Some(free)) = self.find(address) {
                all &= left > 0;
                if left > 0 {
                    left -= 1;
                    let [high, low] = address.halves();
                    self.slots[free][0].store(high, Ordering::Relaxed);
                    self.slots[free][1].store(low, Ordering::Relaxed);
                }
            }
        }
        self.version.store(before + 2, Ordering::Release);
        all
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec::Vec;

    fn v4(number: u32) -> Address {
        Address::ip(Ipv4Addr::from_bits(0x0a00_0000 + number).into()).expect("an address")
    }

    #[test]
    fn a_set_has_what_it_was_last_replaced_by() {
        let set = AddressSet::with_room(128);
        assert!(!set.contains(v4(0)));
        for first in [0, 64, 1000] {
            assert!(set.replace((first..first + 128).map(v4)));
            let found: Vec<_> = (0..2000).filter(|&number| set.contains(v4(number))).collect();
            assert_eq!(found, (first..first + 128).collect::<Vec<_>>());
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_told() {
        let set = AddressSet::with_room(4);
        assert!(set.replace([1, 1, 2, 3, 4, 2].into_iter().map(v4)), "each counts once");
        assert!(!set.replace((0..5).map(v4)));
        assert_eq!((0..5).filter(|&number| set.contains(v4(number))).count(), 4);
    }

    #[test]
    fn addresses_of_all_kinds_differ() {
        let v6 = |bits| Address::ip(Ipv6Addr::from_bits(bits).into());
        assert_eq!(v6(0), None);
        assert_eq!(v6(0xffff_0a00_0001), Some(v4(1)), "a mapped address is the IPv4 address");
        let ethernet = Address::ethernet([0, 0, 10, 0, 0, 1]);
        assert!(Some(ethernet) != v6(0x0a00_0001) && ethernet != v4(1));
        assert_ne!(Address::ethernet([0; 6]), Address::ethernet([1, 0, 0, 0, 0, 0]));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Goal: a reader sees one set or the other: what is in both is always found, and nothing that is in neither.
    #[test]
    fn a_change_is_seen_whole_by_loom() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let [a, b, c] = [1, 2, 3].map(|last| Address::ethernet([2, 0, 0, 0, 0, last]));
            let set = Arc::new(AddressSet::with_room(2));
            assert!(set.replace([a, b].into_iter()));
            let writer = Arc::clone(&set);
            let writer = thread::spawn(move || assert!(writer.replace([c, a].into_iter())));
            assert!(set.contains(a), "it is in both");
            let first = set.contains(c);
            assert!(!first || set.contains(c), "a set does not come back");
            writer.join().unwrap();
            assert!(set.contains(c) && !set.contains(b));
        });
    }
}
