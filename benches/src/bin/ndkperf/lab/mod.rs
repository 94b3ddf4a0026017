//! `ndkperf lab`: both ends on a network that exists for the run alone, made without any right.

mod cable;
mod netlink;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use netadapter_glue::host::{EdgeKind, EdgeOptions, EdgeSpec, parse_cores, parse_mtu};
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
    /// The edges of both ends: packet sockets on the cable, UDP sockets over the kernel's own stack, or TAPs in a bridge
    #[arg(long, value_enum, default_value_t = Kind::AfPacket)]
    edge: Kind,
    /// Largest IP packet in bytes
    #[arg(long, default_value_t = 4200, value_parser = parse_mtu)]
    mtu: usize,
    /// Let the kernel carry units of many packets
    #[arg(long)]
    offload: bool,
    /// Poll cores of either adapter; more than one on packet sockets only. Each of --threads has its queue pairs on one of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_cores)]
    cores: u8,
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
    Tap,
}

impl Lab {
    /// The client's adapter and the server's, each at its end of a new cable. No other thread may run yet.
    pub(crate) fn sides(&self, seed: u64) -> Result<[Side; 2], Failure> {
        let ips = pair_of_addresses(self.ip6);
        let spec = |end| self.spec(end, ips);
        spec(End::Client).check().map_err(|misfit| Failure::Arguments(format!("--{misfit}")))?;
        let network = |source| Failure::Edge { edge: "a network for the run".into(), source };
        let cable = match self.edge {
            // A packet socket's addresses are the provider's alone.
            Kind::AfPacket => Cable::new(self.mtu, &[]),
            Kind::Udp => Cable::new(self.mtu, &ips),
            Kind::Tap => Cable::bridged(self.mtu),
        };
        let cable = cable.map_err(network)?;
        let side = |end: End| -> Result<Side, Failure> {
            cable.enter(end).map_err(network)?;
            let place = end as usize;
            let provider_seed = self.run.seed.map(|seed| seed.wrapping_add(place as u64));
            let faults = self.faults.with_seed(seed.wrapping_add(place as u64));
            let builder = edge::builder(&[ips[place]], provider_seed, self.transport);
            // Nobody else is on the cable.
            let mut builder = builder.faults(faults).address_probe(false);
            if let (End::Client, Some(file)) = (end, &self.pcap) {
                builder = builder.capture(file);
            }
            let host = builder.open_spec(&spec(end))?;
            Ok(Side { host, ip: ips[place] })
        };
        let server = side(End::Server)?;
        Ok([side(End::Client)?, server])
    }

    /// The edge of an end.
    fn spec(&self, end: End, ips: [IpAddr; 2]) -> EdgeSpec {
        let kind = match self.edge {
            Kind::AfPacket => EdgeKind::AfPacket(end.interface().into()),
            Kind::Udp => EdgeKind::Udp(ips[end as usize]),
            Kind::Tap => EdgeKind::Tap(end.interface().into()),
        };
        let options = EdgeOptions {
            offload: self.offload,
            cores: Some(self.cores),
            ..EdgeOptions::default()
        };
        EdgeSpec { kind, options }
    }

    /// The network between the two sides, for the report.
    pub(crate) fn describe(&self) -> Value {
        json!({
            "kind": match self.edge {
                Kind::AfPacket => "lab:af-packet",
                Kind::Udp => "lab:udp",
                Kind::Tap => "lab:tap",
            },
            "mtu": self.mtu,
            "offload": self.offload,
            "cores": self.cores,
            "loss_percent": self.faults.loss,
            "duplicate_percent": self.faults.duplicate,
            "reorder_percent": self.faults.reorder,
            "corrupt_percent": self.faults.corrupt,
            "congestion_control": !self.transport.no_congestion_control,
        })
    }
}
