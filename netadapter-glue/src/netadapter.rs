//! An edge over the packet queues of a NetAdapterCx client driver.
//!
//! The driver lends its two rings and their packets by [`Queues`]; the edge decides who owns each element
//! ([`NetRing`]) and moves the bytes. It serves a client driver that has no NDIS miniport of its own, and
//! so no NDK: as another home of the poll core, and as a test vehicle.

use crate::net_ring::NetRing;
use crate::{Edge, EdgeError, Link, Received, Slot, fill_one};

/// The packet queues of a client driver.
pub trait Queues {
    /// The receive ring's indices, with the system's latest end.
    fn receive_ring(&mut self) -> NetRing;
    /// Stores the receive ring's indices.
    fn set_receive_ring(&mut self, ring: NetRing);
    /// The transmit ring's indices, with the system's latest end.
    fn transmit_ring(&mut self) -> NetRing;
    /// Stores the transmit ring's indices.
    fn set_transmit_ring(&mut self, ring: NetRing);
    /// The received frame of an element.
    fn received(&self, index: u32) -> &[u8];
    /// The buffer of a transmit element.
    fn buffer(&mut self, index: u32) -> &mut [u8];
    /// Sets the frame length of a transmit element.
    fn filled(&mut self, index: u32, len: usize);
}

/// The edge over a driver's queues. The driver calls the poll core from its queues' advance callbacks, so
/// the edge waits for no element.
#[derive(Debug)]
pub struct NetAdapterEdge<Q> {
    link: Link,
    queues: Q,
}

impl<Q: Queues> NetAdapterEdge<Q> {
    /// An edge with this address and MTU.
    pub const fn new(link: Link, queues: Q) -> Self {
        Self { link, queues }
    }
}

impl<Q: Queues> Edge for NetAdapterEdge<Q> {
    fn link(&self) -> Link {
        self.link
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut ring = self.queues.receive_ring();
        let mut count = 0;
        while count < budget
            && let Some(index) = ring.post()
        {
            sink(&[Received { frame: self.queues.received(index), segments: None }]);
            // The frame was read: the element is the system's again.
            let drained = ring.drain();
            debug_assert_eq!(drained, Some(index), "every element is drained when it was read");
            count += 1;
        }
        self.queues.set_receive_ring(ring);
        Ok(count)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let mut ring = self.queues.transmit_ring();
        let mut count = 0;
        while count < budget && ring.unposted() > 0 {
            let index = ring.next();
            let Some(unit) = fill_one(fill, self.queues.buffer(index)) else { break };
            self.queues.filled(index, unit.len);
            let posted = ring.post();
            debug_assert_eq!(posted, Some(index), "the element that was filled");
            count += 1;
        }
        self.queues.set_transmit_ring(ring);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transmit;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Rings of four elements; the test plays the system.
    struct Fake {
        receive: NetRing,
        transmit: NetRing,
        frames: Vec<Vec<u8>>,
        buffers: Vec<Vec<u8>>,
        lens: Vec<usize>,
    }

    impl Queues for &mut Fake {
        fn receive_ring(&mut self) -> NetRing {
            self.receive
        }
        fn set_receive_ring(&mut self, ring: NetRing) {
            self.receive = ring;
        }
        fn transmit_ring(&mut self) -> NetRing {
            self.transmit
        }
        fn set_transmit_ring(&mut self, ring: NetRing) {
            self.transmit = ring;
        }
        fn received(&self, index: u32) -> &[u8] {
            &self.frames[index as usize]
        }
        fn buffer(&mut self, index: u32) -> &mut [u8] {
            &mut self.buffers[index as usize]
        }
        fn filled(&mut self, index: u32, len: usize) {
            self.lens[index as usize] = len;
        }
    }

    fn fake() -> Fake {
        Fake {
            receive: NetRing::new(4, 3, 3, 2).unwrap(),
            transmit: NetRing::new(4, 1, 1, 3).unwrap(),
            frames: (0..4).map(|n| vec![n; 60]).collect(),
            buffers: vec![vec![0; 1518]; 4],
            lens: vec![0; 4],
        }
    }

    const LINK: Link = Link { mac: [2; 6], mtu: 1500, max_segments: 1, max_unit_len: 1518 };

    #[test]
    fn frames_come_in_ring_order_within_the_budget() {
        let mut fake = fake();
        let mut first = Vec::new();
        let mut edge = NetAdapterEdge::new(LINK, &mut fake);
        assert_eq!(edge.receive_each(2, |unit| first.push(unit.frame[0])), Ok(2));
        assert_eq!(edge.receive_each(9, |unit| first.push(unit.frame[0])), Ok(1));
        assert_eq!(first, [3, 0, 1]);
        assert_eq!((fake.receive.begin(), fake.receive.posted()), (2, 0));
    }

    #[test]
    fn no_more_is_filled_than_the_system_gave() {
        let mut fake = fake();
        let mut edge = NetAdapterEdge::new(LINK, &mut fake);
        let mut fill = |buffer: &mut [u8]| {
            buffer[0] = 9;
            Some(Transmit { len: 64, segments: None })
        };
        assert_eq!(edge.transmit_each(9, &mut fill), Ok(2));
        assert_eq!(fake.lens, [0, 64, 64, 0]);
        assert_eq!((fake.transmit.posted(), fake.transmit.unposted()), (2, 0));
    }
}
