//! The ownership of the elements of a NetAdapterCx `NET_RING`: index arithmetic, and no memory.
//!
//! A ring has a power of two of elements. The client driver owns those from `BeginIndex` up to, not
//! including, `EndIndex`; the operating system owns the rest. The system moves `EndIndex`, and the driver
//! moves `BeginIndex` as it finishes. `NextIndex` lies between them and is the driver's own: elements
//! before it were given to the hardware, here to the poll core. All indices stay below the size, so an
//! empty share has `BeginIndex == EndIndex`, and one element is always the system's.
//!
//! Only the arithmetic of NetAdapterCx is here: reading the packets and fragments behind an index takes the
//! class extension's own accessors, in the client driver.

/// The indices of one ring, as a client driver works on them during one call of the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NetRing {
    mask: u32,
    begin: u32,
    next: u32,
    end: u32,
}

/// Indices that no ring can have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadIndices;

impl NetRing {
    /// The ring as it was found.
    ///
    /// # Errors
    /// Where the size is no power of two, an index is outside, or `next` is not in the driver's share.
    pub const fn new(size: u32, begin: u32, next: u32, end: u32) -> Result<Self, BadIndices> {
        if !size.is_power_of_two() || begin >= size || next >= size || end >= size {
            return Err(BadIndices);
        }
        let ring = Self { mask: size - 1, begin, next, end };
        if ring.distance(begin, next) > ring.distance(begin, end) {
            return Err(BadIndices);
        }
        Ok(ring)
    }

    /// First element of the driver's share.
    pub const fn begin(&self) -> u32 {
        self.begin
    }

    /// First element of the driver's share that was not posted.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// First element behind the driver's share.
    pub const fn end(&self) -> u32 {
        self.end
    }

    /// Elements that may be posted.
    pub const fn unposted(&self) -> u32 {
        self.distance(self.next, self.end)
    }

    /// Elements that were posted and not drained.
    pub const fn posted(&self) -> u32 {
        self.distance(self.begin, self.next)
    }

    /// Posts the next element and returns its index.
    pub const fn post(&mut self) -> Option<u32> {
        if self.unposted() == 0 {
            return None;
        }
        let index = self.next;
        self.next = self.after(index);
        Some(index)
    }

    /// Returns the oldest posted element to the system. The result is its index.
    pub const fn drain(&mut self) -> Option<u32> {
        if self.posted() == 0 {
            return None;
        }
        let index = self.begin;
        self.begin = self.after(index);
        Some(index)
    }

    /// Returns all elements to the system, as a cancelled queue has to.
    pub const fn cancel(&mut self) {
        self.next = self.end;
        self.begin = self.end;
    }

    /// Extends the driver's share, as the system has done.
    ///
    /// # Errors
    /// Where the new end would take elements back.
    pub const fn extend(&mut self, end: u32) -> Result<(), BadIndices> {
        if end > self.mask || self.distance(self.begin, end) < self.distance(self.begin, self.end) {
            return Err(BadIndices);
        }
        self.end = end;
        Ok(())
    }

    const fn after(&self, index: u32) -> u32 {
        (index + 1) & self.mask
    }

    const fn distance(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Extend(u32),
        Post,
        Drain,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![(0u32..16).prop_map(Step::Extend), Just(Step::Post), Just(Step::Drain)]
    }

    proptest! {
        /// Elements come back once, in the order in which they were posted, and the shares always
        /// add up to the ring.
        #[test]
        fn elements_are_drained_in_the_order_posted(
            start in 0u32..16,
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let mut ring = NetRing::new(16, start, start, start).unwrap();
            let (mut given, mut posted) = (0, VecDeque::new());
            for step in steps {
                match step {
                    Step::Extend(by) => {
                        let by = by.min(15 - given - posted.len() as u32);
                        ring.extend((ring.end() + by) % 16).unwrap();
                        given += by;
                    }
                    Step::Post => match ring.post() {
                        Some(index) => {
                            given -= 1;
                            posted.push_back(index);
                        }
                        None => prop_assert_eq!(given, 0),
                    },
                    Step::Drain => prop_assert_eq!(ring.drain(), posted.pop_front()),
                }
                prop_assert_eq!((ring.unposted(), ring.posted()), (given, posted.len() as u32));
            }
        }
    }

    #[test]
    fn indices_that_no_ring_has_are_refused() {
        assert_eq!(NetRing::new(12, 0, 0, 0), Err(BadIndices));
        assert_eq!(NetRing::new(0, 0, 0, 0), Err(BadIndices));
        assert_eq!(NetRing::new(8, 8, 0, 0), Err(BadIndices));
        assert_eq!(NetRing::new(8, 2, 6, 5), Err(BadIndices));
        assert!(NetRing::new(8, 6, 1, 3).is_ok());
    }

    #[test]
    fn the_end_never_goes_back() {
        let mut ring = NetRing::new(8, 6, 7, 2).unwrap();
        assert_eq!(ring.extend(1), Err(BadIndices));
        assert_eq!(ring.extend(5), Ok(()));
        assert_eq!(ring.unposted(), 6);
    }

    #[test]
    fn a_cancelled_ring_has_nothing_left() {
        let mut ring = NetRing::new(8, 6, 7, 2).unwrap();
        ring.cancel();
        assert_eq!((ring.begin(), ring.unposted(), ring.posted()), (2, 0, 0));
    }
}
