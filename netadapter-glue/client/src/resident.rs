//! The owner of the edge in the driver. A provider's poll core takes this place, or a vendor's own code.

use alloc::boxed::Box;
use core::net::IpAddr;
use netadapter_glue::Edge as _;
use netadapter_glue::Transmit;
use netadapter_glue::neighbour::Neighbours;
use netadapter_glue::netadapter::NetAdapterEdge;

/// The owner of the edge.
pub trait Resident: Send {
    /// Takes its turn, at the end of each advance of the transmit queue. One that has a thread of its own does
    /// nothing here. IRQL <= DISPATCH_LEVEL.
    fn poll(&mut self);
}

/// No owner in the driver: the edge was passed on.
impl Resident for () {
    fn poll(&mut self) {}
}

/// A neighbour that answers for its addresses: ARP, neighbour discovery and pings. With it Windows finds somebody
/// behind the adapter.
#[derive(Debug)]
pub struct Neighbour {
    edge: NetAdapterEdge,
    neighbours: Neighbours,
}

impl Neighbour {
    /// At the edge's Ethernet address.
    #[must_use]
    pub fn new(edge: NetAdapterEdge, addresses: &[IpAddr]) -> Box<Self> {
        let neighbours = Neighbours::new(edge.link().mac, addresses);
        Box::new(Self { edge, neighbours })
    }
}

impl Resident for Neighbour {
    fn poll(&mut self) {
        let Self { edge, neighbours } = self;
        // The edge fails never.
        let _ = edge.receive_each(BUDGET, |unit| handle(neighbours, unit.frame));
        let _ = edge.transmit_each(BUDGET, |buffer| {
            let len = neighbours.poll_transmit(buffer)?;
            Some(Transmit { len, segments: None })
        });
    }
}

/// Not inlined: the edge's run and the answer together would be too large a frame for a kernel's stack.
#[inline(never)]
fn handle(neighbours: &mut Neighbours, frame: &[u8]) {
    // It only answers, so no time passes for it.
    const NOW_NS: u64 = 0;
    neighbours.handle_frame(NOW_NS, frame);
}

/// Frames of a turn.
const BUDGET: usize = 32;
