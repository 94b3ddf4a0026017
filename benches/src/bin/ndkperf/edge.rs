//! Where this program meets the edges and the provider: builds them from the command line.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use driver::ProviderConfig;
use ndk_consumer::{Host, HostBuilder, OpenError};
use netadapter_glue::host::BoxEdge;
use netadapter_glue::memory::{self, CoreEdge, MemoryConfig};
use rocev2::wire;
use serde_json::{Value, json};

use crate::cli::{EdgeArgs, Loopback, TransportArgs};
use crate::failure::Failure;

/// A host and the address that it was opened for.
pub(crate) struct Side {
    pub(crate) host: Host,
    pub(crate) ip: IpAddr,
}

/// A seed that nobody has given; short, so that it is easily given again.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) & u64::from(u32::MAX)
}

/// The client's address and the server's, on a network that nobody else is on.
pub(crate) fn pair_of_addresses(ip6: bool) -> [IpAddr; 2] {
    if ip6 {
        [1, 2].map(|host| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host)))
    } else {
        [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)))
    }
}

/// Two adapters joined in memory: the client's, and the server's.
pub(crate) fn loopback(args: &Loopback, seed: u64) -> Result<[Side; 2], Failure> {
    let config = MemoryConfig {
        mtu: args.mtu,
        max_segments: usize::from(args.segments),
        ..MemoryConfig::default()
    };
    let ips = pair_of_addresses(args.ip6);
    let edges = |edges: Vec<CoreEdge>| edges.into_iter().map(|edge| Box::new(edge) as BoxEdge);
    let (client, server): (Vec<BoxEdge>, Vec<BoxEdge>) = match usize::from(args.cores) {
        1 => {
            let (client, server) = memory::pair(config);
            (vec![Box::new(client)], vec![Box::new(server)])
        }
        cores => {
            let (client, server) = memory::pair_of_cores(config, [cores; 2], wire::core_of);
            (edges(client).collect(), edges(server).collect())
        }
    };
    let seeds = [args.run.seed, args.run.seed.map(|seed| seed.wrapping_add(1))];
    let side = |edges, place: usize| -> Result<Side, Failure> {
        let faults = args.faults.with_seed(seed.wrapping_add(place as u64));
        let mut builder = builder(&[ips[place]], seeds[place], args.transport).faults(faults);
        if let (0, Some(file)) = (place, &args.pcap) {
            builder = builder.capture(file);
        }
        Ok(Side { host: builder.start_cores(edges)?, ip: ips[place] })
    };
    Ok([side(client, 0)?, side(server, 1)?])
}

/// What joins the two sides of a loopback, for the report.
pub(crate) fn describe_loopback(args: &Loopback) -> Value {
    let faults = &args.faults;
    json!({
        "kind": "memory",
        "mtu": args.mtu,
        "segments": args.segments,
        "cores": args.cores,
        "loss_percent": faults.loss,
        "duplicate_percent": faults.duplicate,
        "reorder_percent": faults.reorder,
        "corrupt_percent": faults.corrupt,
        "congestion_control": !args.transport.no_congestion_control,
    })
}

/// The host on the edge that the command line names.
pub(crate) fn network(args: &EdgeArgs, seed: Option<u64>) -> Result<Host, Failure> {
    let spec = args.spec().map_err(Failure::Arguments)?;
    let faults = args.faults.with_seed(seed.unwrap_or_else(random_seed));
    let mut builder = builder(&args.ips(), seed, args.transport).faults(faults);
    if let Some(file) = &args.pcap {
        builder = builder.capture(file);
    }
    Ok(builder.open_spec(&spec)?)
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Spec(error) => Self::Arguments(error.to_string()),
            OpenError::Edge { edge, source } => Self::Edge { edge, source },
            OpenError::Taken { edge, conflict } => {
                Self::Edge { edge, source: io::Error::new(io::ErrorKind::AddrInUse, conflict) }
            }
            OpenError::Capture { file, source } => {
                Self::Edge { edge: file.display().to_string(), source }
            }
            OpenError::Provider(source) => {
                Self::Edge { edge: "starting the provider".into(), source }
            }
            OpenError::Ndk(error) => error.into(),
        }
    }
}

/// A host with a provider's defaults, but for what the command line says.
pub(crate) fn builder(ips: &[IpAddr], seed: Option<u64>, transport: TransportArgs) -> HostBuilder {
    HostBuilder::new(ips.iter().copied()).configure(|config| configure(config, seed, transport))
}

fn configure(config: &mut ProviderConfig, seed: Option<u64>, transport: TransportArgs) {
    if transport.no_congestion_control {
        config.dcqcn = None;
    }
    config.ack_timeout_code = transport.qp_timeout.unwrap_or(config.ack_timeout_code);
    config.retry_count = transport.retry_count.unwrap_or(config.retry_count);
    config.cm.traffic_class = transport.tclass;
    config.vlan = transport.sl.map(|priority| u16::from(priority) << PRIORITY_SHIFT);
    config.seed = seed.map(|seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes
    });
}

/// Where tag control information has the priority (IEEE 802.1Q).
const PRIORITY_SHIFT: u32 = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::load::Run;
    use crate::measure::both_sides;
    use crate::rping;
    use clap::Parser;
    use netadapter_glue::{Edge, EdgeError, Received, forward_edge};
    use rocev2::wire::mad::{CmMessage, parse_mad};
    use rocev2::wire::{Packet, Template, UnitWriter};
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::time::Duration;

    /// An edge that flips a bit of the third data packet it receives and makes its ICRC fit again,
    /// as a fault inside a NIC would.
    struct Liar<E> {
        edge: E,
        packets: u32,
    }

    impl<E: Edge> Edge for Liar<E> {
        forward_edge!(self => self.edge, transmit);

        fn receive(
            &mut self,
            budget: usize,
            sink: &mut dyn FnMut(&[Received<'_>]),
        ) -> Result<usize, EdgeError> {
            let Self { edge, packets } = self;
            edge.receive_each(budget, |received| {
                let data = Packet::parse(received.frame).ok();
                match data.filter(|packet| packet.payload.len() == SIZE) {
                    Some(packet) => {
                        *packets += 1;
                        let frame = &retold(&packet, *packets == 3);
                        sink(&[Received { frame, segments: None }]);
                    }
                    None => sink(&[received]),
                }
            })
        }
    }

    fn retold(packet: &Packet<'_>, flip: bool) -> Vec<u8> {
        let mut frame = vec![0; 2 * SIZE];
        let template = Template::new(&packet.encap);
        let mut unit = UnitWriter::new(&mut frame, &template, packet.encap.ip_id);
        let Ok(()) = unit.push(&packet.bth, &packet.ext, SIZE, |payload| {
            payload.copy_from_slice(packet.payload);
            payload[FLIPPED] ^= u8::from(flip) << 7;
            Ok::<(), Infallible>(())
        });
        let len = unit.finish().len;
        frame.truncate(len);
        frame
    }

    /// A link that carries short frames only, as one with a smaller MTU does.
    struct Narrow<E>(E);

    impl<E: Edge> Edge for Narrow<E> {
        forward_edge!(self => self.0, transmit);

        fn receive(
            &mut self,
            budget: usize,
            sink: &mut dyn FnMut(&[Received<'_>]),
        ) -> Result<usize, EdgeError> {
            self.0.receive_each(budget, |received| {
                if received.frame.len() <= 1514 {
                    sink(&[received]);
                }
            })
        }
    }

    #[test]
    fn a_path_that_carries_no_large_packets_is_named() {
        let text = "ndkperf --operations write --size 64k --iterations 5 --timeout 20";
        let text = format!("{text} --qp-timeout 12 --retry-count 1 --segments 1");
        let command = Cli::try_parse_from(text.split(' ')).unwrap().into_command();
        let Command::Loopback(args) = command else { panic!() };
        let config = MemoryConfig { mtu: 4200, max_segments: 1, ..MemoryConfig::default() };
        let (client, server) = memory::pair(config);
        let side = |edge, number| side(Box::new(Narrow(edge)), number, args.transport);
        let (client, server) = (side(client, 1), side(server, 2));
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let plan = args.run.plans(1).unwrap()[0];
        let outcome = both_sides(&client, &server, &listener, &plan, false);
        assert_eq!((outcome.path_mtu, outcome.messages), (Some(4096), 0));
        let crate::perf::End::Failed(failure) = outcome.end else { panic!("it moved") };
        let told = failure.to_string();
        let sizes = "308 bytes were answered and none of 4156";
        assert!(told.contains(sizes) && told.contains("path MTU 4096"), "{told}");
    }

    /// A side of a pair that a test joins.
    fn side(edge: BoxEdge, host: u8, transport: TransportArgs) -> Side {
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
        Side { host: builder(&[ip], Some(host.into()), transport).start(edge).unwrap(), ip }
    }

    /// A link that loses each DREP on its way here.
    struct Unconfirmed<E>(E);

    impl<E: Edge> Edge for Unconfirmed<E> {
        forward_edge!(self => self.0, transmit);

        fn receive(
            &mut self,
            budget: usize,
            sink: &mut dyn FnMut(&[Received<'_>]),
        ) -> Result<usize, EdgeError> {
            self.0.receive_each(budget, |received| {
                let packet = Packet::parse(received.frame);
                let cm = packet.ok().filter(|packet| packet.bth.dest_qpn.get() == 1);
                let message = cm.and_then(|packet| parse_mad(packet.payload).ok());
                if !matches!(message, Some((_, CmMessage::Drep(_)))) {
                    sink(&[received]);
                }
            })
        }
    }

    fn unconfirmed_link() -> ([Side; 2], Run) {
        let text = "ndkperf --operations send --iterations 20";
        let command = Cli::try_parse_from(text.split(' ')).unwrap().into_command();
        let Command::Loopback(args) = command else { panic!() };
        let (client, server) = memory::pair(MemoryConfig::default());
        let edges: [BoxEdge; 2] = [Box::new(Unconfirmed(client)), Box::new(server)];
        let mut hosts = 1..;
        let sides = edges.map(|edge| side(edge, hosts.next().unwrap(), args.transport));
        (sides, args.run)
    }

    /// Goal: a server that had everything may be gone before its last answer arrives; the run is whole.
    #[test]
    fn a_run_whose_end_is_not_confirmed_is_complete() {
        let ([client, server], run) = unconfirmed_link();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let plan = run.plans(1).unwrap()[0];
        let outcome = both_sides(&client, &server, &listener, &plan, false);
        assert!(matches!(outcome.end, crate::perf::End::Complete), "{:?}", outcome.end);
        assert!(outcome.unconfirmed && outcome.messages == 20, "{outcome:?}");
    }

    /// The same of rping.
    #[test]
    fn pings_whose_end_is_not_confirmed_are_complete() {
        let ([client, server], _) = unconfirmed_link();
        let remote = SocketAddr::new(server.ip, rping::PORT);
        let listener = server.host.adapter().listen(remote).unwrap();
        let options = rping::Options {
            count: Some(3),
            size: 100,
            verbose: false,
            validate: true,
            patience: Duration::from_secs(20),
            stop: crate::completions::never,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let connector = listener.next(options.patience).unwrap();
                rping::serve(server.host.adapter(), connector, options).unwrap()
            });
            let local = SocketAddr::new(client.ip, 0);
            let pinged = rping::connect(client.host.adapter(), local, remote, options).unwrap();
            assert_eq!(pinged, rping::Pinged { pings: 3, confirmed: false });
        });
    }

    const SIZE: usize = 512;
    const FLIPPED: usize = 500;

    #[test]
    fn the_transport_is_as_the_command_line_says() {
        let config_of = |text: &str| {
            let command = Cli::try_parse_from(text.split(' ')).unwrap().into_command();
            let Command::Loopback(args) = command else { panic!() };
            let mut config = ProviderConfig::new(Vec::new());
            configure(&mut config, args.run.seed, args.transport);
            config
        };
        let default = ProviderConfig::new(Vec::new());
        let same = config_of("ndkperf");
        assert_eq!(
            (same.ack_timeout_code, same.retry_count, same.dcqcn.is_some()),
            (default.ack_timeout_code, default.retry_count, true)
        );
        let other = config_of("ndkperf --qp-timeout 14 --retry-count 0 --no-congestion-control");
        assert_eq!((other.ack_timeout_code, other.retry_count), (14, 0));
        assert!(other.dcqcn.is_none());
        assert!(Cli::try_parse_from(["ndkperf", "--retry-count", "8"]).is_err());
    }

    #[test]
    fn one_wrong_bit_in_a_good_packet_is_found() {
        for operation in ["send", "write", "read"] {
            let text = format!("ndkperf --operations {operation} --size {SIZE} --iterations 20");
            let command = Cli::try_parse_from(text.split(' ')).unwrap().into_command();
            let Command::Loopback(args) = command else { panic!() };
            let (client, server) = memory::pair(MemoryConfig::default());
            let side = |edge, host| side(Box::new(Liar { edge, packets: 0 }), host, args.transport);
            let (client, server) = (side(client, 1), side(server, 2));
            let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
            let plan = args.run.plans(1).unwrap()[0];
            let outcome = both_sides(&client, &server, &listener, &plan, false);
            assert!(matches!(outcome.end, crate::perf::End::Complete), "{:?}", outcome.end);
            let wrong = outcome.mismatches;
            assert_eq!((wrong.count, wrong.message, wrong.offset), (1, 2, FLIPPED as u64));
            let failure = crate::measure::first_failure(vec![outcome]).unwrap();
            assert!(failure.to_string().contains("the data is wrong"), "{failure}");
        }
    }
}
