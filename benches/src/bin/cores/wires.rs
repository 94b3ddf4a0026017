//! What joins two adapters: memory, or a veth pair with a packet socket for each core.

use super::cable::{Cable, End};
use clap::ValueEnum;
use netadapter_glue::af_packet::{AfPacket, CoreField};
use netadapter_glue::host::BoxEdge;
use netadapter_glue::memory::{MemoryConfig, pair_of_cores};
use rocev2::wire;
use std::io;

/// Bytes of an IP packet, at most: 4096 of a message, and the headers.
const MTU: usize = 4200;
/// What the kernel steers by.
const QPN: CoreField = CoreField { udp_port: wire::ROCE_PORT, byte: wire::CORE_BYTE };

/// The kinds.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Wire {
    Memory,
    /// In a user namespace, which needs no root.
    Veth,
}

impl Wire {
    /// The edges of both sides, one for each core. No other thread runs.
    pub(crate) fn edges(self, cores: usize) -> io::Result<[Vec<BoxEdge>; 2]> {
        match self {
            Self::Memory => {
                let config = MemoryConfig { mtu: MTU, ..MemoryConfig::default() };
                let (near, far) = pair_of_cores(config, [cores; 2], wire::core_of);
                Ok([near, far].map(|edges| edges.into_iter().map(boxed).collect()))
            }
            Self::Veth => {
                let cable = Cable::new(MTU, &[])?;
                let open = |end: End| -> io::Result<Vec<BoxEdge>> {
                    cable.enter(end)?;
                    let edges = AfPacket::open_group(end.interface(), false, cores, QPN)?;
                    Ok(edges.into_iter().map(boxed).collect())
                };
                Ok([open(End::Client)?, open(End::Server)?])
            }
        }
    }
}

fn boxed(edge: impl netadapter_glue::Edge + Send + 'static) -> BoxEdge {
    Box::new(edge)
}
