//! The ports of several poll cores over one NIC: each core has frames, buffers and a sleep of its own.

use super::abi::NET_BUFFER_LIST;
use super::units::Offers;
use super::{Counters, Lower, NdisConfig, NdisEdge, PORT_SLOT, Port, open};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter::Sum;

/// The halves of an adapter's edges that NDIS calls, one for each poll core.
pub struct Ports(Box<[Arc<Port>]>);

/// So many edges and their ports, each with the depths of `config`; `None` for lack of lists. `lower` is called once for
/// each. PASSIVE_LEVEL.
///
/// # Panics
/// If a depth is 0.
pub fn open_several(
    cores: usize,
    lower: &dyn Fn() -> Box<dyn Lower>,
    config: NdisConfig,
) -> Option<(Vec<NdisEdge>, Arc<Ports>)> {
    let (mut edges, mut ports) = (Vec::with_capacity(cores), Vec::with_capacity(cores));
    for number in 0..cores {
        let (edge, port) = open(lower(), config, number)?;
        edges.push(edge);
        ports.push(port);
    }
    Some((edges, Arc::new(Ports(ports.into()))))
}

impl Ports {
    /// The port of a core, for a frame that is for it, or a unit whose first packet is: the core passes on what is not.
    ///
    /// # Panics
    /// Where there is no such core.
    pub fn of(&self, core: usize) -> &Port {
        &self.0[core]
    }

    /// The number of cores.
    pub fn cores(&self) -> usize {
        self.0.len()
    }

    /// As [`Port::offer`], to all.
    pub fn offer(&self, offers: Offers) {
        self.0.iter().for_each(|port| port.offer(offers));
    }

    /// As [`Port::sent`], to the port whose edge sent the list.
    ///
    /// # Safety
    /// `nbl` came from [`Lower::allocate`] of one of the edges.
    pub unsafe fn sent(&self, nbl: *mut NET_BUFFER_LIST) -> bool {
        // SAFETY: the caller's promise; the edge wrote its number there.
        let number = unsafe { (*nbl).ProtocolReserved[PORT_SLOT] }.addr();
        // SAFETY: the caller's promise.
        unsafe { self.of(number).sent(nbl) }
    }

    /// The traffic of all so far.
    pub fn counters(&self) -> Counters {
        self.0.iter().map(|port| port.counters()).sum()
    }
}

impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            received_bytes: sum.received_bytes + one.received_bytes,
            dropped: sum.dropped + one.dropped,
            sent: sum.sent + one.sent,
            sent_bytes: sum.sent_bytes + one.sent_bytes,
            failed: sum.failed + one.failed,
            refused: sum.refused + one.refused,
        })
    }
}
