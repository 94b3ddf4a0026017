//! The counters of an adapter beside those of its transport: the outcomes of its connections, as
//! `NDIS_NDK_PERFORMANCE_COUNTERS` has them, and the drops of its edge; and the sum of all.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use netadapter_glue::Drops;
use rocev2::counters::{self, Snapshot};
use rocev2::ids::Qpn;

/// Written by the core, read by anybody.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Outbound connections established.
    pub(crate) connects: Counter,
    /// Inbound connections established.
    pub(crate) accepts: Counter,
    /// Attempts of either side that ended without a connection, except those that the consumer gave
    /// up by a close.
    pub(crate) failures: Counter,
    /// Established connections that broke. A peer's orderly end is none.
    pub(crate) errors: Counter,
    /// Connections now.
    pub(crate) active: Counter,
    /// CQs that overran.
    pub(crate) cq_errors: Counter,
    /// The drops of each core's edge.
    edges: Vec<EdgeCounters>,
    /// Received units that found no room on their way to another core.
    pub(crate) unpassed: Counter,
    address_conflicts: Counter,
    /// Those of each core's transport.
    transport: Vec<Arc<counters::Counters>>,
}

impl Counters {
    pub(crate) fn new(transport: Vec<Arc<counters::Counters>>) -> Self {
        Self {
            connects: Counter::default(),
            accepts: Counter::default(),
            failures: Counter::default(),
            errors: Counter::default(),
            active: Counter::default(),
            cq_errors: Counter::default(),
            edges: transport.iter().map(|_| Default::default()).collect(),
            unpassed: Counter::default(),
            address_conflicts: Counter::default(),
            transport,
        }
    }

    /// Sets the drops of a core's edge so far.
    pub(crate) fn set_edge(&self, core: u8, drops: Drops) {
        let EdgeCounters { transmit, refused, receive, reported } = &self.edges[usize::from(core)];
        transmit.set(drops.transmit);
        refused.set(drops.refused);
        receive.set(drops.receive);
        reported.set(drops.reported);
    }

    /// Sets the frames of other hosts with an address of ours so far.
    pub(crate) fn set_address_conflicts(&self, count: u64) {
        self.address_conflicts.set(count);
    }

    pub(crate) fn snapshot(&self) -> AdapterCounters {
        let sum = |number: fn(&EdgeCounters) -> &Counter| -> u64 {
            self.edges.iter().map(|edge| number(edge).get()).sum()
        };
        let mut transport = Snapshot::ZERO;
        self.transport.iter().for_each(|core| core.add_to(&mut transport));
        AdapterCounters {
            transport,
            edge: Drops {
                transmit: sum(|edge| &edge.transmit),
                refused: sum(|edge| &edge.refused),
                receive: sum(|edge| &edge.receive) + self.unpassed.get(),
                reported: sum(|edge| &edge.reported),
            },
            address_conflicts: self.address_conflicts.get(),
            connects: self.connects.get(),
            accepts: self.accepts.get(),
            failures: self.failures.get(),
            errors: self.errors.get(),
            active: self.active.get(),
            cq_errors: self.cq_errors.get(),
        }
    }
}

/// The numbers of a core's edge, which it sets in each turn, in a line of memory of their own, and the one beside, which a processor
/// may fetch with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct EdgeCounters {
    transmit: Counter,
    refused: Counter,
    receive: Counter,
    reported: Counter,
}

/// One number.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// It is told in each turn, and others read what is beside it: an equal value writes nothing.
    fn set(&self, value: u64) {
        if self.get() != value {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All that an adapter counts, at one time. Every number is a total since its start, but for
/// [`Self::active`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AdapterCounters {
    /// Of the transport.
    pub transport: Snapshot,
    /// Units that the edge gave up, as of the cores' last turns, and received ones that found no room on their way to the core
    /// that they were for.
    pub edge: Drops,
    /// Frames in which another host said that an address of ours is its own, as of that turn. Always 0 where the operating
    /// system resolves addresses.
    pub address_conflicts: u64,
    /// Outbound connections established.
    pub connects: u64,
    /// Inbound connections established.
    pub accepts: u64,
    /// Attempts of either side that ended without a connection, except those that the consumer gave
    /// up by a close.
    pub failures: u64,
    /// Established connections that broke. A peer's orderly end is none.
    pub errors: u64,
    /// Connections now.
    pub active: u64,
    /// CQs that overran.
    pub cq_errors: u64,
}

impl AdapterCounters {
    /// Each number with its name: first those of the transport, in the order of its table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let transport = self.transport.iter().map(|(counter, value)| (counter.name(), value));
        transport.chain([
            ("edge_transmit_drops", self.edge.transmit),
            ("edge_refused", self.edge.refused),
            ("edge_receive_drops", self.edge.receive),
            ("edge_icmp_errors", self.edge.reported),
            ("address_conflicts", self.address_conflicts),
            ("ndk_connects", self.connects),
            ("ndk_accepts", self.accepts),
            ("ndk_connect_failures", self.failures),
            ("ndk_connection_errors", self.errors),
            ("ndk_active_connections", self.active),
            ("ndk_cq_errors", self.cq_errors),
        ])
    }
}

/// An established connection and what its QP counts. The counters go on while the QP lives, and can be
/// read for as long as they are held, by any thread, without a lock.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Our QP.
    pub qpn: Qpn,
    /// Path MTU: payload bytes of a full packet, both ways.
    pub pmtu: u16,
    /// The counters.
    pub counters: Arc<counters::QpCounters>,
}
