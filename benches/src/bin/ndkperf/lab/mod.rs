//! `ndkperf lab`: both ends on a network that exists for the run alone, made without any right.

mod cable;
mod netlink;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use netadapter_glue::host::{EdgeKind, EdgeOptions, EdgeSpec, parse_mtu};
use serde_json::{Value, json};

use crate::cli::{FaultArgs, TransportArgs};
use crate::edge::{self, Side, pair_of_addresses};
use crate::failure::Failure;
use crate::load::Run;
use cable::{Cable, End};

/// The load, and the edges.
#[derive(Args, Debug)]
pub(crate) struct Lab {
    #[command(flatten)]
    pub(crate) run: Run,
    /// The edges of both ends: packet sockets on the cable, or UDP sockets over the kernel's own stack
    #[arg(long, value_enum, default_value_t = Kind::AfPacket)]
    edge: Kind,
    /// Largest IP packet in bytes
    #[arg(long, default_value_t = 4200, value_parser = parse_mtu)]
    mtu: usize,
    /// Let the kernel carry units of many packets
    #[arg(long)]
    offload: bool,
    /// Use IPv6
    #[arg(long)]
    ip6: bool,
    #[command(flatten)]
    faults: FaultArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Record the client's frames
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

/// The edges of a lab.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Kind {
    AfPacket,
    Udp,
}

impl Lab {
    /// The client's adapter and the server's, each at its end of a new cable. No other thread may run yet.
    pub(crate) fn sides(&self, seed: u64) -> Result<[Side; 2], Failure> {
        let ips = pair_of_addresses(self.ip6);
        // A packet socket's addresses are the provider's alone.
        let owned = if self.edge == Kind::Udp { &ips[..] } else { &[] };
        let network = |source| Failure::Edge { edge: "a network for the run".into(), source };
        let cable = Cable::new(self.mtu, owned).map_err(network)?;
        let side = |end: End| -> Result<Side, Failure> {
            cable.enter(end).map_err(network)?;
            let place = end as usize;
            let kind = match self.edge {
                Kind::AfPacket => EdgeKind::AfPacket(end.interface().into()),
                Kind::Udp => EdgeKind::Udp(ips[place]),
            };
            let options = EdgeOptions { offload: self.offload, ..EdgeOptions::default() };
            let provider_seed = self.run.seed.map(|seed| seed.wrapping_add(place as u64));
            let faults = self.faults.with_seed(seed.wrapping_add(place as u64));
            let builder = edge::builder(&[ips[place]], provider_seed, self.transport);
            // Nobody else is on the cable.
            let mut builder = builder.faults(faults).address_probe(false);
            if let (End::Client, Some(file)) = (end, &self.pcap) {
                builder = builder.capture(file);
            }
            let host = builder.open_spec(&EdgeSpec { kind, options })?;
            Ok(Side { host, ip: ips[place] })
        };
        let server = side(End::Server)?;
        Ok([side(End::Client)?, server])
    }

    /// The network between the two sides, for the report.
    pub(crate) fn describe(&self) -> Value {
        json!({
            "kind": match self.edge {
                Kind::AfPacket => "lab:af-packet",
                Kind::Udp => "lab:udp",
            },
            "mtu": self.mtu,
            "offload": self.offload,
            "loss_percent": self.faults.loss,
            "duplicate_percent": self.faults.duplicate,
            "reorder_percent": self.faults.reorder,
            "corrupt_percent": self.faults.corrupt,
            "congestion_control": !self.transport.no_congestion_control,
        })
    }
}
