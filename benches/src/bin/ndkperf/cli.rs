//! The command line.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Parser, Subcommand};
use netadapter_glue::fault::Faults;
use netadapter_glue::host::{EdgeKind, EdgeSpec, MacAddress, parse_cores, parse_mtu};

use crate::decode::Decode;
use crate::doctor::Doctor;
use crate::lab::Lab;
use crate::load::Run;
use crate::manual::{Completions, Manual};
use crate::results::{Compare, Plot};
use crate::waits::{Patience, WaitArgs};
use crate::{rping, stop};

/// Measure and check RDMA through an NDK provider.
///
/// Without a command: `loopback`, two providers joined in memory. Bandwidth unless `--latency` is given.
#[derive(Debug, Parser)]
#[command(name = "ndkperf", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    loopback: Loopback,
}

impl Cli {
    /// What to do.
    pub(crate) fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Loopback(self.loopback))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure between two providers joined in memory
    Loopback(Loopback),
    /// Measure between two ends of a network that is made for the run, without root
    Lab(Lab),
    /// Wait for `ndkperf connect`, of several clients at once
    Serve(Serve),
    /// Measure against `ndkperf serve`
    Connect(Connect),
    /// Be one side of rping, the ping-pong of librdmacm
    #[command(subcommand, arg_required_else_help = false)]
    Rping(Rping),
    /// Examine the path to a peer step by step, and say what mends it
    Doctor(Doctor),
    /// Explain a capture as conversations of queue pairs
    Decode(Decode),
    /// Compare the documents of two runs; exit code 1 where the second is worse
    Compare(Compare),
    /// Draw the figures of documents over the size of the messages
    Plot(Plot),
    /// Print a script that completes commands and flags in a shell
    Completions(Completions),
    /// Print a manual page, for `man -l -`
    Man(Manual),
}

#[derive(Args, Debug)]
pub(crate) struct Loopback {
    #[command(flatten)]
    pub(crate) run: Run,
    #[command(flatten)]
    pub(crate) faults: FaultArgs,
    /// Largest IP packet in bytes
    #[arg(long, default_value_t = 4200, value_parser = parse_mtu)]
    pub(crate) mtu: usize,
    /// Packets that the edge takes as one unit (1 = no offload)
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) segments: u8,
    /// Poll cores of either adapter. Each of --threads has its queue pairs on one of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_cores)]
    pub(crate) cores: u8,
    /// Use IPv6
    #[arg(long)]
    pub(crate) ip6: bool,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    /// Record the client's frames
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Port to listen on
    #[arg(short, long, default_value_t = PORT, value_parser = port())]
    pub(crate) port: u16,
    /// Exit after this many runs, of which a client makes one per operation and size (default: no end)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) runs: Option<u64>,
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Connect {
    /// Address of the server
    #[arg(value_parser = host)]
    pub(crate) peer: IpAddr,
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Port of the server
    #[arg(short, long, default_value_t = PORT, value_parser = port())]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rping {
    /// Like `rping -s`
    Serve(RpingServe),
    /// Like `rping -c`
    Connect(RpingConnect),
}

#[derive(Args, Debug)]
pub(crate) struct RpingServe {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Address to listen on (default: the first `--address`)
    #[arg(short = 'a', long = "bind", value_name = "IP", value_parser = host)]
    pub(crate) bind: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) ping: Ping,
    /// Serve one client after the other
    #[arg(short = 'P', long)]
    pub(crate) persistent: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RpingConnect {
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Address of the server
    #[arg(short = 'a', long = "server", value_name = "IP", value_parser = host)]
    pub(crate) server: IpAddr,
    #[command(flatten)]
    pub(crate) ping: Ping,
}

/// The options of rping that both sides have.
#[derive(Args, Clone, Debug)]
pub(crate) struct Ping {
    /// Port of the server
    #[arg(short, long, default_value_t = rping::PORT, value_parser = port())]
    pub(crate) port: u16,
    /// Pings to send, or at least to expect (default: no end)
    #[arg(short = 'C', long)]
    count: Option<u64>,
    /// Bytes of a ping
    #[arg(short = 'S', long, default_value_t = rping::SIZE,
        value_parser = clap::value_parser!(u32).range(i64::from(rping::SIZE_MIN)..=i64::from(rping::SIZE_MAX)))]
    size: u32,
    /// Print each ping
    #[arg(short, long)]
    verbose: bool,
    /// Compare what comes with what was sent
    #[arg(short = 'V', long)]
    validate: bool,
    #[command(flatten)]
    patience: Patience,
}

impl Ping {
    pub(crate) fn options(&self) -> rping::Options {
        rping::Options {
            count: self.count,
            size: self.size,
            verbose: self.verbose,
            validate: self.validate,
            patience: self.patience.duration(),
            stop: stop::requested,
        }
    }
}

/// How often each fault strikes what an edge transmits.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FaultArgs {
    /// Percent of frames that vanish
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub(crate) loss: f64,
    /// Percent of frames that are sent twice
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub(crate) duplicate: f64,
    /// Percent of frames that later ones pass
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub(crate) reorder: f64,
    /// Percent of frames with a flipped bit
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub(crate) corrupt: f64,
}

impl FaultArgs {
    /// The faults, drawn from `seed`; `None` if frames pass untouched.
    pub(crate) fn with_seed(&self, seed: u64) -> Option<Faults> {
        let percents = [self.loss, self.duplicate, self.reorder, self.corrupt];
        let [loss, duplicate, reorder, corrupt] = percents.map(|percent| percent / 100.0);
        let faults = Faults { seed, loss, duplicate, reorder, corrupt, ..Faults::default() };
        (percents != [0.0; 4]).then_some(faults)
    }
}

/// How the transport of our end behaves.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TransportArgs {
    /// Turn congestion control (DCQCN) off: nothing that we send can be marked, and no mark, CNP or
    /// loss slows us down. It is on by default, with the speed of the interface, or 10 Gb/s where
    /// that is not known
    #[arg(long)]
    pub(crate) no_congestion_control: bool,
    /// Local ACK timeout of our connects, 4.096 µs * 2^CODE. It decides, with the retry count, when
    /// a peer that does not answer is given up, not when something is sent again
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) qp_timeout: Option<u8>,
    /// Transport retries of our connects
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) retry_count: Option<u8>,
    /// Traffic class of the connections that we start, in both directions: four times the DSCP. Its
    /// two bits for ECN are the transport's
    #[arg(long, value_name = "CLASS", default_value_t = 0)]
    pub(crate) tclass: u8,
    /// Priority of our frames for switches, in a VLAN tag, whose ID is 0 without --vlan. Not for
    /// af-packet and udp: the interface has a mapping of its own
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) sl: Option<u8>,
}

/// The network that a command uses.
#[derive(Args, Clone, Debug)]
pub(crate) struct EdgeArgs {
    /// udp:ADDRESS, qemu-dgram:LOCAL:REMOTE, qemu-stream:listen:PATH, qemu-stream:connect:PATH,
    /// af-packet:IFACE or tap:NAME
    #[arg(long)]
    pub(crate) edge: EdgeSpec,
    /// Our address on it; may be repeated. Every peer must be on the same link, whatever LEN says.
    /// udp has one, that of its socket
    #[arg(long = "address", value_name = "IP[/LEN]")]
    addresses: Vec<LocalAddress>,
    /// Our Ethernet address (default: a random one); af-packet has that of its interface, and udp none
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<MacAddress>,
    /// VLAN in which we ask for neighbours and connect (default: none); who connects to us is answered
    /// in theirs. Not for af-packet and udp: name the VLAN's own interface, or its address
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub(crate) vlan: Option<u16>,
    /// Largest IP packet in bytes (default: 1500); af-packet and tap have that of their interface,
    /// and udp has it unless told otherwise
    #[arg(long, value_parser = parse_mtu)]
    pub(crate) mtu: Option<usize>,
    /// Let the interface, or the kernel, divide units into packets (af-packet and udp only)
    #[arg(long)]
    pub(crate) offload: bool,
    /// Poll cores of our adapter (default: 1; more on af-packet only). Each of the client's --threads
    /// has its queue pairs on one of them
    #[arg(long, value_name = "N", value_parser = parse_cores)]
    pub(crate) cores: Option<u8>,
    /// Take our address without asking whether another host has it. Nobody is asked over udp, whose
    /// address is the kernel's
    #[arg(long)]
    pub(crate) no_address_probe: bool,
    /// Record the frames
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) faults: FaultArgs,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
}

impl EdgeArgs {
    /// The edge, with the options that our flags name.
    ///
    /// # Errors
    /// An option that the edge has no use for, an edge within one process, or an address that the edge cannot have.
    pub(crate) fn spec(&self) -> Result<EdgeSpec, String> {
        let mut spec = self.edge.clone();
        if matches!(spec.kind, EdgeKind::Memory(_)) {
            return Err("memory joins edges of one process: use `ndkperf loopback`".into());
        }
        let options = &mut spec.options;
        options.mac = self.mac.or(options.mac);
        options.mtu = self.mtu.or(options.mtu);
        options.vlan = self.vlan.or(options.vlan);
        options.offload |= self.offload;
        options.cores = self.cores.or(options.cores);
        options.probe_off |= self.no_address_probe;
        spec.check().map_err(|misfit| format!("--{misfit}"))?;
        let tags = !matches!(spec.kind, EdgeKind::AfPacket(_) | EdgeKind::Udp(_));
        if self.transport.sl.is_some() && !tags {
            return Err(
                "--sl: af-packet and udp see no tags; `ip link set IFACE type vlan egress-qos-map` \
                        has the VLAN's interface put it into them"
                    .into(),
            );
        }
        self.check_addresses(&spec.kind).map(|()| spec)
    }

    fn check_addresses(&self, kind: &EdgeKind) -> Result<(), String> {
        let ips = self.ips();
        match kind {
            EdgeKind::Udp(own) if ips != [*own] => {
                Err(format!("--address: the edge has that of its socket, {own}"))
            }
            EdgeKind::Udp(_) => Ok(()),
            _ if ips.is_empty() => Err("--address: our own on the edge is needed".into()),
            _ => match ips.iter().find(|ip| ip.is_loopback()) {
                Some(ip) => Err(format!("--address: no other host reaches {ip}")),
                None => Ok(()),
            },
        }
    }

    /// Our end of a connection to `peer`.
    pub(crate) fn address_for(&self, peer: IpAddr) -> Result<IpAddr, &'static str> {
        if self.ips().contains(&peer) {
            // It would leave by the edge, and nobody would send it back.
            return Err("the peer's address is our own; `ndkperf loopback` needs no network");
        }
        let mut ips = self.ips().into_iter();
        ips.find(|ip| ip.is_ipv4() == peer.is_ipv4())
            .ok_or("no --address is of the same family as the peer's")
    }

    /// Our addresses.
    pub(crate) fn ips(&self) -> Vec<IpAddr> {
        match self.edge.kind {
            EdgeKind::Udp(own) if self.addresses.is_empty() => vec![own],
            _ => self.addresses.iter().map(|LocalAddress(ip)| *ip).collect(),
        }
    }
}

/// An address of ours. How many of its bits name the network may be said, as for other tools, and
/// means nothing: there are no routers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LocalAddress(pub(crate) IpAddr);

impl FromStr for LocalAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (ip, len) = text.split_once('/').map_or((text, None), |(ip, len)| (ip, Some(len)));
        let ip = host(ip)?;
        let max = if ip.is_ipv4() { 32 } else { 128 };
        match len.map(u8::from_str) {
            None => Ok(Self(ip)),
            Some(Ok(len)) if len <= max => Ok(Self(ip)),
            Some(_) => Err("not a prefix length"),
        }
    }
}

/// An address that one host can have.
pub(crate) fn host(text: &str) -> Result<IpAddr, &'static str> {
    let ip: IpAddr = text.parse().map_err(|_| "not an IP address")?;
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err("not the address of one host on a network");
    }
    Ok(ip)
}

/// Port 0 is none.
pub(crate) fn port() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..)
}

fn percent(text: &str) -> Result<f64, &'static str> {
    let percent: f64 = text.parse().map_err(|_| "not a number")?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("not a percentage") }
}

/// Port of `serve` and `connect`.
pub(crate) const PORT: u16 = 18515;

const EXAMPLES: &str = "\
Examples:
  ndkperf --latency
  ndkperf --all --operations write --bidirectional
  ndkperf --loss 1 --reorder 1 --qps 4 --interval 1
  ndkperf lab --edge udp --offload
  ndkperf serve --edge qemu-dgram:/tmp/a:/tmp/b --address 10.0.0.1
  ndkperf connect 10.0.0.1 --edge qemu-dgram:/tmp/b:/tmp/a --address 10.0.0.2 --latency
  ndkperf connect 127.0.0.1 --edge udp:127.0.0.2 --offload
  ndkperf rping serve --edge tap:rdma0 --address 10.0.0.1 -vV
  ndkperf doctor 10.0.0.1 --edge af-packet:eth0 --address 10.0.0.2
  ndkperf decode capture.pcap --qp 0x11 --timeline
  ndkperf compare before.json after.json --tolerance 10
  ndkperf plot before.json after.json --output sweep.svg";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(text: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(text.split_whitespace()).map(Cli::into_command)
    }

    #[test]
    fn the_definition_is_sound() {
        <Cli as CommandFactory>::command().debug_assert();
    }

    #[test]
    fn nothing_means_loopback() {
        let Command::Loopback(loopback) = parse("ndkperf").unwrap() else { panic!() };
        assert!(loopback.faults.with_seed(0).is_none());
        let plans = loopback.run.plans(0).unwrap();
        assert_eq!(plans.len(), 3);
        assert!(plans.iter().all(|plan| plan.size == 65536 && plan.verify));
        let Command::Loopback(loopback) = parse("ndkperf --loss 1.5 --ip6").unwrap() else {
            panic!()
        };
        assert!(loopback.ip6 && loopback.faults.with_seed(0).is_some());
    }

    #[test]
    fn rping_takes_the_letters_of_rping() {
        let text = "ndkperf rping connect --edge tap:t0 --address 10.0.0.1/24 -a 10.0.0.2 -C 3 -vV";
        let Command::Rping(Rping::Connect(connect)) = parse(text).unwrap() else { panic!() };
        let options = connect.ping.options();
        assert_eq!((options.count, options.size, connect.ping.port), (Some(3), 64, 7174));
        assert!(options.verbose && options.validate);
    }

    #[test]
    fn bad_arguments_are_refused() {
        for text in [
            "ndkperf --loss 101",
            "ndkperf --size 0",
            "ndkperf --size 64kB",
            "ndkperf --depth 0",
            "ndkperf --mtu 100",
            "ndkperf serve --edge tap --address 10.0.0.1",
            "ndkperf serve --edge tap: --address 10.0.0.1",
            "ndkperf serve --edge qemu-stream:x:y --address 10.0.0.1",
            "ndkperf serve --edge tap:t0 --address 10.0.0.1/33",
            "ndkperf serve --edge tap:t0 --address 0.0.0.0",
            "ndkperf serve --edge tap:t0 --address 255.255.255.255",
            "ndkperf serve --edge tap:t0 --address 10.0.0.1 -p 0",
            "ndkperf serve --edge tap:t0 --address 10.0.0.1 --runs 0",
            "ndkperf serve --edge tap:sixteen-byte-name --address 10.0.0.1",
            "ndkperf connect ff02::1 --edge tap:t0 --address fd00::1",
            "ndkperf rping",
            "ndkperf serve --edge tap:t0 --address 10.0.0.1 --mac 01:00:00:00:00:00",
            "ndkperf connect --edge tap:t0 --address 10.0.0.1",
            "ndkperf rping connect --edge tap:t0 --address 10.0.0.1 -a 10.0.0.2 -S 1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn our_end_is_of_the_family_of_the_peer_and_not_the_peer() {
        let text = "ndkperf serve --edge tap:t0 --address 10.0.0.1 --address fd00::1";
        let Command::Serve(serve) = parse(text).unwrap() else { panic!() };
        let end = |peer: &str| serve.edge.address_for(peer.parse().unwrap());
        assert_eq!(end("fd00::2"), Ok("fd00::1".parse().unwrap()));
        assert!(end("10.0.0.1").is_err());
    }

    #[test]
    fn each_edge_has_the_addresses_that_it_can_have() {
        let edge = |text: &str| {
            let text = format!("ndkperf serve {text}");
            let Command::Serve(serve) = parse(&text).unwrap() else { panic!() };
            serve.edge
        };
        let own = edge("--edge udp:127.0.0.2");
        assert!(own.spec().is_ok());
        assert_eq!(own.ips(), ["127.0.0.2".parse::<IpAddr>().unwrap()]);
        assert!(edge("--edge tap:t0").spec().unwrap_err().starts_with("--address: "));
        assert!(edge("--edge tap:t0 --address 127.0.0.2").spec().is_err());
    }

    #[test]
    fn addresses_are_read_with_the_length_of_their_prefix() {
        for text in ["2001:db8::1/64", "2001:db8::1"] {
            assert_eq!(text.parse(), Ok(LocalAddress("2001:db8::1".parse().unwrap())));
        }
    }

    #[test]
    fn flags_are_options_of_the_edge() {
        let spec = |text: &str| {
            let text = format!("ndkperf serve --address 10.0.0.1 {text}");
            let Command::Serve(serve) = parse(&text).unwrap() else { panic!() };
            serve.edge.spec()
        };
        let flags = spec("--edge qemu-dgram:/a:/b --mtu 4200 --vlan 7 --mac 02:00:00:00:00:0a");
        let options = "qemu-dgram:/a:/b,mtu=4200,vlan=7,mac=02:00:00:00:00:0a".parse().unwrap();
        assert_eq!(flags, Ok(options));
        assert_eq!(
            spec("--edge af-packet:e0 --offload"),
            Ok("af-packet:e0,offload".parse().unwrap())
        );
        assert_eq!(
            spec("--edge tap:t0 --no-address-probe"),
            Ok("tap:t0,probe=off".parse().unwrap())
        );
        assert!(spec("--edge tap:t0 --mtu 9000").unwrap_err().starts_with("--mtu: "));
        assert!(spec("--edge memory:a").unwrap_err().contains("loopback"));
        assert!(spec("--edge tap:t0 --sl 7").is_ok());
        assert!(spec("--edge udp:10.0.0.2").unwrap_err().contains("10.0.0.2"));
        assert_eq!(
            spec("--edge udp:10.0.0.1 --offload --mtu 9000"),
            Ok("udp:10.0.0.1,offload,mtu=9000".parse().unwrap())
        );
        assert!(spec("--edge af-packet:e0 --sl 7").unwrap_err().starts_with("--sl: "));
    }
}
