//! What joins two adapters: memory, or a veth pair with a packet socket for each core.

use super::cable::{Cable, End};
use clap::ValueEnum;
use netadapter_glue::host::{BoxEdge, EdgeKind, EdgeOptions, EdgeSpec};
use netadapter_glue::memory::{MemoryConfig, pair_of_cores};
use rocev2::wire;
use std::io;

/// Bytes of an IP packet, at most: 4096 of a message, and the headers.
const MTU: usize = 4200;

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
                let boxed = |edge| Box::new(edge) as BoxEdge;
                Ok([near, far].map(|edges| edges.into_iter().map(boxed).collect()))
            }
            Self::Veth => {
                let cable = Cable::new(MTU, &[])?;
                let open = |end: End| -> io::Result<Vec<BoxEdge>> {
                    cable.enter(end)?;
                    let kind = EdgeKind::AfPacket(end.interface().into());
                    let options =
                        EdgeOptions { cores: Some(cores as u8), ..EdgeOptions::default() };
                    EdgeSpec { kind, options }.open_cores()
                };
                Ok([open(End::Client)?, open(End::Server)?])
            }
        }
    }
}
