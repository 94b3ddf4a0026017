//! The arguments of programs over a network: the same words as `ndkperf`'s.

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use ndk_consumer::{Host, HostBuilder};
use netadapter_glue::fault::Faults;
use netadapter_glue::host::{EdgeSpec, parse_mtu};

/// The network, and our place on it.
#[derive(clap::Args, Debug)]
pub(crate) struct HostArgs {
    /// qemu-dgram:OWN:PEER, qemu-stream:listen:PATH, qemu-stream:connect:PATH, af-packet:IFACE, tap:NAME or udp:ADDRESS; options
    /// follow behind commas (mac=MAC, vlan=ID, offload, probe=off)
    #[arg(long)]
    edge: EdgeSpec,
    /// Our address on it; may be repeated. A prefix length means nothing: every peer is on the link
    #[arg(long = "address", required = true, value_parser = address, value_name = "IP[/LEN]")]
    addresses: Vec<IpAddr>,
    /// Largest IP packet in bytes (default: 1500); af-packet and tap have that of their interface
    #[arg(long, value_parser = parse_mtu)]
    mtu: Option<usize>,
    /// Record the frames
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Percent of our frames that vanish
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    loss: f64,
    /// Percent of our frames that are sent twice
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    duplicate: f64,
    /// Percent of our frames that later ones pass
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    reorder: f64,
    /// Percent of our frames with a flipped bit
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    corrupt: f64,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Layers over the provider: `verify` reports mistakes of this program, for example (see ndk-verifier)
    #[arg(long, value_name = "WORDS")]
    layers: Option<ndk_verifier::Config>,
}

impl HostArgs {
    /// Opens the host.
    pub(crate) fn open(&self) -> Result<Host, Box<dyn Error>> {
        let mut spec = self.edge.clone();
        spec.options.mtu = self.mtu.or(spec.options.mtu);
        let percents = [self.loss, self.duplicate, self.reorder, self.corrupt];
        let [loss, duplicate, reorder, corrupt] = percents.map(|percent| percent / 100.0);
        let seed = self.seed;
        let faults = Faults { seed, loss, duplicate, reorder, corrupt, ..Faults::default() };
        let mut builder = HostBuilder::new(self.addresses.iter().copied())
            .faults((percents != [0.0; 4]).then_some(faults));
        if let Some(file) = &self.pcap {
            builder = builder.capture(file);
        }
        if let Some(layers) = self.layers.clone() {
            let layers = layers.named(self.addresses[0].to_string());
            builder = builder.layer(|provider| ndk_verifier::wrap(provider, layers).0);
        }
        Ok(builder.open_spec(&spec)?)
    }
}

/// The end of a program; its error goes to the user in one line.
pub(crate) fn end(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn address(text: &str) -> Result<IpAddr, std::net::AddrParseError> {
    text.split_once('/').map_or(text, |(ip, _)| ip).parse()
}
