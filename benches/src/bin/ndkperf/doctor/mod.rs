//! `ndkperf doctor`: examines the path to a peer step by step, and says in sentences what is wrong and what mends it.
//!
//! The first steps need no provider: a [`station`] on the bare edge asks for addresses and pings. Then a provider takes the
//! edge, connects, and moves messages as `ndkperf connect` does. Each frame of both is kept by the [`tap`], and
//! `ndkperf decode` explains them; where the peer fell silent, the station has the edge again and asks for signs of life.
//! A step is a file; it tells its part of the [`report`].

mod address;
mod attempt;
mod connection;
mod counters;
mod findings;
mod marks;
mod mtu;
mod neighbour;
mod order;
mod report;
mod silence;
mod station;
mod tap;
#[cfg(test)]
mod tests;
mod transfer;

use std::io::{self, BufWriter, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ndk_consumer::{Host, HostBuilder};
use netadapter_glue::fault::FaultInjector;
use netadapter_glue::host::{BoxEdge, EdgeKind};
use netadapter_glue::pcap::Capture;

use crate::cli::{EdgeArgs, PORT, TransportArgs, host, port};
use crate::failure::Failure;
use crate::perf::{End, Outcome};
use crate::{edge, rping};
use connection::Contact;
use report::Report;
use station::Station;
use tap::Trace;

/// Exit code where the path could not be examined.
pub(crate) const UNEXAMINED: u8 = 2;

#[derive(Args, Debug)]
#[command(after_help = "\
Exit code: 0 where no fault was found, 1 where one is named, 2 where the path could not be examined.

The peer runs `ndkperf serve`, or with --rping `rping -s -P`; with another listener the examination ends behind the
connection. A healthy path takes a second, one with a fault up to ten.")]
pub(crate) struct Doctor {
    /// Address of the peer
    #[arg(value_parser = host)]
    peer: IpAddr,
    #[command(flatten)]
    edge: EdgeArgs,
    /// Port of the peer's listener (default: 18515, and 7174 with --rping)
    #[arg(short, long, value_parser = port())]
    port: Option<u16>,
    /// The peer runs rping as a server, for one client after the other (-P)
    #[arg(long)]
    rping: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The program that the peer runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Peer {
    Ndkperf,
    Rping,
}

/// The path that is examined.
struct Path {
    own_ip: IpAddr,
    peer: IpAddr,
    port: u16,
    program: Peer,
    vlan: Option<u16>,
    /// Frames may be asked for in other VLANs: the edge sees tags.
    sees_tags: bool,
    /// Nobody is asked whether our address is taken.
    probe_off: bool,
    transport: TransportArgs,
}

impl Path {
    fn local(&self) -> SocketAddr {
        SocketAddr::new(self.own_ip, 0)
    }

    fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.peer, self.port)
    }

    /// A host that gives up soon: a healthy peer answers within milliseconds.
    fn builder(&self) -> HostBuilder {
        let Self { own_ip, vlan, transport, .. } = *self;
        edge::builder(&[own_ip], None, transport).configure(|config| {
            config.ack_timeout_code = transport.qp_timeout.unwrap_or(ACK_TIMEOUT_CODE);
            config.retry_count = transport.retry_count.unwrap_or(RETRY_COUNT);
            let priority = config.vlan.unwrap_or(0);
            config.vlan = vlan.map(|id| id | priority).or(config.vlan);
            config.cm.first_resend = Duration::from_millis(100);
            config.cm.connect_limit = Duration::from_secs(2);
            config.cm.disconnect_limit = Duration::from_millis(500);
            // A peer that asks for more gets little.
            config.cm.peer_limits.ack_timeout_max = config.ack_timeout_code;
            config.cm.peer_limits.service_limit = Duration::from_secs(2);
            config.cm.peer_limits.response_limit = Duration::from_secs(3);
        })
    }
}

/// Examines a path, and prints what was found.
///
/// # Errors
/// [`Failure::Faulty`] where a fault is named, [`Failure::Unexamined`] where none could be looked for.
pub(crate) fn run(args: &Doctor) -> Result<(), Failure> {
    let unexamined = |failure| Failure::Unexamined(Box::new(failure));
    let (path, edge) = open(args).map_err(unexamined)?;
    let report = examine(edge, &path).map_err(unexamined)?;
    print(args, &path, &report).map_err(Failure::Output)?;
    let codes = report.codes();
    if codes.is_empty() { Ok(()) } else { Err(Failure::Faulty(codes.join(", "))) }
}

/// The path, and the edge with the faults and the capture that the user wants.
fn open(args: &Doctor) -> Result<(Path, BoxEdge), Failure> {
    let spec = args.edge.spec().map_err(Failure::Arguments)?;
    let own_ip = args.edge.address_for(args.peer);
    let program = if args.rping { Peer::Rping } else { Peer::Ndkperf };
    let default = if args.rping { rping::PORT } else { PORT };
    let path = Path {
        own_ip: own_ip.map_err(|what| Failure::Arguments(what.into()))?,
        peer: args.peer,
        port: args.port.unwrap_or(default),
        program,
        vlan: spec.options.vlan,
        sees_tags: !matches!(spec.kind, EdgeKind::AfPacket(_)),
        probe_off: spec.options.probe_off,
        transport: args.edge.transport,
    };
    let mut edge =
        spec.open().map_err(|source| Failure::Edge { edge: args.edge.edge.to_string(), source })?;
    if let Some(faults) = args.edge.faults.with_seed(edge::random_seed()) {
        edge = Box::new(FaultInjector::new(edge, faults));
    }
    if let Some(file) = &args.edge.pcap {
        let failed = |source| Failure::Edge { edge: file.display().to_string(), source };
        edge = Box::new(Capture::create(edge, file).map_err(failed)?);
    }
    Ok((path, edge))
}

fn print(args: &Doctor, path: &Path, report: &Report) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let (remote, local, edge) = (path.remote(), path.own_ip, args.edge.edge.to_string());
    if args.json {
        let document = report.document(&remote.to_string(), &local.to_string(), &edge);
        writeln!(out, "{document:#}")?;
    } else {
        report.write(&mut out, &format!("The path from {local} to {remote} over {edge}"))?;
    }
    out.flush()
}

/// Goes through the steps, as far as the faults let it.
fn examine(edge: BoxEdge, path: &Path) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut station = Station::new(edge, path);
    if !address::examine(&mut station, path, &mut report)? {
        return Ok(report);
    }
    let Some((mac, signs)) = neighbour::examine(&mut station, path, &mut report)? else {
        return Ok(report);
    };
    let pings = order::ping(&mut station, path, mac, signs, &mut report)?;
    let from = station.trace.len();
    let with_provider = |host: &Host, trace: &Arc<Trace>| {
        let contact = converse(host, trace, path, &mut report)?;
        order::judge(host, trace, path, from, pings, &mut report);
        counters::examine(host, &mut report);
        Ok(contact)
    };
    let (mut station, contact) = station.with_host(path, with_provider)?;
    if let Contact::Silent { was_connected } = contact {
        silence::explain(&mut station, path, mac, signs, (from, was_connected), &mut report)?;
    }
    Ok(report)
}

/// The steps that need a provider.
fn converse(
    host: &Host,
    trace: &Trace,
    path: &Path,
    report: &mut Report,
) -> Result<Contact, Failure> {
    let path_mtu = match connection::examine(host, trace, path, report)? {
        Contact::Open { path_mtu } => path_mtu,
        other => return Ok(other),
    };
    let Some(limits) = mtu::examine(host, trace, path, path_mtu, report)? else {
        return Ok(Contact::Silent { was_connected: true });
    };
    if !transfer::examine(host, path, limits, report)? {
        return Ok(Contact::Silent { was_connected: true });
    }
    marks::examine(host, trace, path, limits, report)?;
    Ok(Contact::Open { path_mtu })
}

/// Tells the failure of a run to a silent peer with the command that examines the path.
pub(crate) fn refer(outcome: &mut Outcome, edge: &EdgeArgs, remote: SocketAddr) {
    let end = std::mem::replace(&mut outcome.end, End::Complete);
    outcome.end = match end {
        End::Failed(failure) => End::Failed(referred(failure, edge, remote, Peer::Ndkperf)),
        end => end,
    };
}

/// The same of one failure.
pub(crate) fn referred(
    failure: Failure,
    edge: &EdgeArgs,
    remote: SocketAddr,
    peer: Peer,
) -> Failure {
    if !failure.is_silence() {
        return failure;
    }
    let mut command = format!("ndkperf doctor {} --edge {}", remote.ip(), edge.edge);
    edge.ips().iter().for_each(|ip| command += &format!(" --address {ip}"));
    if let Some(vlan) = edge.vlan {
        command += &format!(" --vlan {vlan}");
    }
    let (flag, default) = match peer {
        Peer::Ndkperf => ("", PORT),
        Peer::Rping => (" --rping", rping::PORT),
    };
    command += flag;
    if remote.port() != default {
        command += &format!(" --port {}", remote.port());
    }
    Failure::Silent { source: Box::new(failure), examine: command }
}

/// A packet is given up after 5 times 134 ms, or somewhat later.
const ACK_TIMEOUT_CODE: u8 = 15;
const RETRY_COUNT: u8 = 4;
