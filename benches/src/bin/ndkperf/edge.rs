//! Where this program meets the edges and the provider: builds them from the command line.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use driver::{Provider, ProviderConfig};
use ndkperf::Adapter;
use netadapter_glue::Edge;
use netadapter_glue::af_packet::AfPacket;
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::memory::{self, MemoryConfig};
use netadapter_glue::pcap::Capture;
use netadapter_glue::qemu::{QemuDgram, QemuStream};
use netadapter_glue::tap::Tap;
use serde_json::{Value, json};

use crate::cli::{EdgeArgs, EdgeSpec, FaultArgs, Loopback};
use crate::failure::Failure;

type BoxEdge = Box<dyn Edge + Send>;

/// An adapter and the address that it was opened for.
pub(crate) struct Side {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) ip: IpAddr,
}

/// A seed that nobody has given; short, so that it is easily given again.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) & u64::from(u32::MAX)
}

/// Two adapters joined in memory: the client's, and the server's.
pub(crate) fn loopback(args: &Loopback, seed: u64) -> Result<[Side; 2], Failure> {
    let config = MemoryConfig {
        mtu: args.mtu,
        max_segments: usize::from(args.segments),
        ..MemoryConfig::default()
    };
    let ips = if args.ip6 {
        [1, 2].map(|host| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host)))
    } else {
        [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)))
    };
    let (client, server) = memory::pair(config);
    let client = captured(faulty(client, &args.faults, seed), args.pcap.as_deref())?;
    let server = faulty(server, &args.faults, seed.wrapping_add(1));
    let provider_seed = args.run.seed;
    Ok([
        Side { adapter: open(client, &ips[..1], provider_seed)?, ip: ips[0] },
        Side {
            adapter: open(server, &ips[1..], provider_seed.map(|seed| seed.wrapping_add(1)))?,
            ip: ips[1],
        },
    ])
}

/// What joins the two sides of a loopback, for the report.
pub(crate) fn describe_loopback(args: &Loopback) -> Value {
    let faults = &args.faults;
    json!({
        "kind": "memory",
        "mtu": args.mtu,
        "segments": args.segments,
        "loss_percent": faults.loss,
        "duplicate_percent": faults.duplicate,
        "reorder_percent": faults.reorder,
        "corrupt_percent": faults.corrupt,
    })
}

/// The adapter on the edge that the command line names.
pub(crate) fn network(args: &EdgeArgs, seed: Option<u64>) -> Result<Arc<Adapter>, Failure> {
    args.check().map_err(Failure::Arguments)?;
    let failed = |source| Failure::Edge { edge: args.edge.to_string(), source };
    let edge = build(args).map_err(failed)?;
    let edge = faulty(edge, &args.faults, seed.unwrap_or_else(random_seed));
    open(captured(edge, args.pcap.as_deref())?, &args.ips(), seed)
}

fn open(edge: BoxEdge, ips: &[IpAddr], seed: Option<u64>) -> Result<Arc<Adapter>, Failure> {
    let mut config = ProviderConfig::new(ips.to_vec());
    config.seed = seed.map(|seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes
    });
    let provider = Provider::start(edge, config)
        .map_err(|source| Failure::Edge { edge: "starting the provider".into(), source })?;
    Ok(Adapter::open(Arc::new(provider))?)
}

fn faulty(edge: impl Edge + Send + 'static, args: &FaultArgs, seed: u64) -> BoxEdge {
    if args.is_none() {
        return Box::new(edge);
    }
    let faults = Faults {
        seed,
        loss: args.loss / 100.0,
        duplicate: args.duplicate / 100.0,
        reorder: args.reorder / 100.0,
        corrupt: args.corrupt / 100.0,
        ..Faults::default()
    };
    Box::new(FaultInjector::new(edge, faults))
}

fn captured(edge: BoxEdge, file: Option<&Path>) -> Result<BoxEdge, Failure> {
    let Some(file) = file else { return Ok(edge) };
    match Capture::create(edge, file) {
        Ok(edge) => Ok(Box::new(edge)),
        Err(source) => Err(Failure::Edge { edge: file.display().to_string(), source }),
    }
}

fn build(args: &EdgeArgs) -> io::Result<BoxEdge> {
    let mac = || args.mac.map_or_else(random_mac, |mac| mac.0);
    let mtu = args.mtu.unwrap_or(ETHERNET_MTU);
    Ok(match &args.edge {
        EdgeSpec::QemuDgram { local, remote } => {
            Box::new(QemuDgram::bind(local, remote, mac(), mtu)?)
        }
        EdgeSpec::QemuStreamListen(path) => Box::new(QemuStream::listen(path, mac(), mtu)?),
        EdgeSpec::QemuStreamConnect(path) => Box::new(QemuStream::connect(path, mac(), mtu)?),
        EdgeSpec::AfPacket(interface) if args.offload => {
            Box::new(AfPacket::open_with_offload(interface)?)
        }
        EdgeSpec::AfPacket(interface) => Box::new(AfPacket::open(interface)?),
        EdgeSpec::Tap(name) => Box::new(Tap::open(name, mac())?),
    })
}

/// A locally administered address that nobody has given.
fn random_mac() -> [u8; 6] {
    let [a, b, c, d, ..] = random_seed().to_le_bytes();
    [0x02, 0, a, b, c, d]
}

/// MTU where neither the command line nor an interface says another.
const ETHERNET_MTU: usize = 1500;
