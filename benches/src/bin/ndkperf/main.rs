//! `ndkperf`: measures and checks RDMA through an NDK provider.

/// Tells the user a line. Where it cannot be written, as to a disk that is full, nothing else ends for that.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

mod cli;
mod completions;
mod connection;
mod decode;
mod doctor;
mod edge;
mod failure;
mod histogram;
mod lab;
mod ledger;
mod load;
mod manual;
mod measure;
mod notices;
mod pattern;
mod perf;
mod progress;
mod receives;
mod report;
mod results;
mod rping;
mod serve;
mod session;
mod sizes;
mod stop;
mod waits;

use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Command, Rping, RpingConnect, RpingServe};
use decode::{Decode, DecodeError};
use doctor::Peer;
use failure::Failure;
use rping::{Pinged, Served};
use serve::{any, listen_at};

/// An adapter may have several poll cores.
#[global_allocator]
static ALLOCATOR: driver::OwnLines = driver::OwnLines;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = stop::listen() {
        say!("ndkperf: signals cannot be heard: {error}");
        return ExitCode::FAILURE;
    }
    let result = match cli.into_command() {
        Command::Loopback(args) => measure::loopback(&args),
        Command::Lab(args) => measure::in_lab(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Connect(args) => measure::connect(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Decode(args) => explain(&args),
        Command::Compare(args) => results::compare(&args),
        Command::Plot(args) => results::plot(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::manual(&args),
        Command::Rping(Rping::Serve(args)) => rping_serve(&args),
        Command::Rping(Rping::Connect(args)) => rping_connect(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say!("ndkperf: {failure}");
            match failure {
                _ if failure.is_interruption() => ExitCode::from(stop::EXIT_CODE),
                Failure::Arguments(_) | Failure::Document(_) => ExitCode::from(BAD_ARGUMENTS),
                Failure::Unexamined(_) => ExitCode::from(doctor::UNEXAMINED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Help and version as they are; a wrong argument in one line, and what mends it in another.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let problem: Vec<&str> =
        lines.by_ref().take_while(|line| !line.is_empty() && !line.starts_with("Usage")).collect();
    say!("ndkperf: {}", problem.join(" ").trim_start_matches("error: "));
    lines.filter(|line| line.starts_with("tip: ")).for_each(|tip| say!("  {tip}"));
    say!("  `ndkperf --help` lists all arguments");
    ExitCode::from(BAD_ARGUMENTS)
}

fn explain(args: &Decode) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    decode::run(args, &mut out).map_err(|error| match error {
        DecodeError::Capture(what) => Failure::Capture(what),
        DecodeError::Output(source) => Failure::Output(source),
    })
}

fn rping_serve(args: &RpingServe) -> Result<(), Failure> {
    let host = edge::network(&args.edge, None)?;
    let ip = args.bind.unwrap_or(args.edge.ips()[0]);
    let listener = listen_at(host.adapter(), SocketAddr::new(ip, args.ping.port))?;
    loop {
        let Some(connector) = any(std::slice::from_ref(&listener)) else {
            return Err(Failure::Interrupted);
        };
        let peer = connector.peer_address()?;
        let result = rping::serve(host.adapter(), connector, args.ping.options());
        match result {
            Ok(Served { pings, disconnected: true }) => {
                say!("{peer}: {pings} pings, then it disconnected");
            }
            Ok(Served { pings, disconnected: false }) => {
                say!("{peer}: {pings} pings, then nothing more: its end was not seen");
            }
            Err(failure) if args.persistent && !failure.is_interruption() => {
                say!("ndkperf: {peer}: {failure}")
            }
            Err(failure) => return Err(failure.during(peer.to_string())),
        }
        if !args.persistent {
            return Ok(());
        }
    }
}

fn rping_connect(args: &RpingConnect) -> Result<(), Failure> {
    let local = measure::local_address(&args.edge, args.server)?;
    let host = edge::network(&args.edge, None)?;
    let remote = SocketAddr::new(args.server, args.ping.port);
    let Pinged { pings, confirmed } =
        rping::connect(host.adapter(), local, remote, args.ping.options())
            .map_err(|failure| doctor::referred(failure, &args.edge, remote, Peer::Rping))?;
    let remark = if confirmed { "" } else { ", which it did not confirm" };
    say!("{remote}: {pings} pings, disconnected{remark}");
    Ok(())
}

/// Exit code, as that of most programs.
const BAD_ARGUMENTS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use cli::Loopback;
    use completions::Waits;
    use connection::{Depths, Event};
    use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
    use measure::{both_sides, loopback};
    use ndk_consumer::{Buffer, ReadLimits};
    use perf::{End, Groups, Plan};
    use session::Session;

    fn arguments(text: &str) -> Loopback {
        match Cli::try_parse_from(text.split_whitespace()).unwrap().into_command() {
            Command::Loopback(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_operation_runs_between_two_providers() {
        for text in [
            "ndkperf --iterations 40 --seed 1",
            "ndkperf --iterations 40 --seed 2 --ip6 --size 1 --depth 1",
            "ndkperf --iterations 40 --seed 3 --size 64 --depth 3 --mtu 1500 --segments 1",
            "ndkperf --iterations 40 --seed 4 --size 300k --no-verify --json",
            "ndkperf --iterations 4000 --seed 5 --size 64 --depth 1 --busy-poll",
        ] {
            loopback(&arguments(text)).unwrap_or_else(|failure| panic!("{text}: {failure}"));
        }
    }

    #[test]
    fn every_operation_survives_a_bad_network() {
        let text = "ndkperf --iterations 60 --size 8k --seed 7 --mtu 1500 --segments 1 \
                    --loss 2 --duplicate 2 --reorder 2 --corrupt 2";
        loopback(&arguments(text)).unwrap_or_else(|failure| panic!("{text}: {failure}"));
    }

    #[test]
    fn both_roles_of_rping_understand_each_other() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 5"), 5).unwrap();
        let listener =
            server.host.adapter().listen(SocketAddr::new(server.ip, rping::PORT)).unwrap();
        let options = rping::Options {
            count: Some(70),
            size: 100,
            verbose: false,
            validate: true,
            patience: Duration::from_secs(20),
            stop: completions::never,
        };
        let serving = std::thread::spawn(move || {
            rping::serve(server.host.adapter(), any(&[listener]).unwrap(), options)
        });
        let remote = SocketAddr::new(server.ip, rping::PORT);
        let pings =
            rping::connect(client.host.adapter(), SocketAddr::new(client.ip, 0), remote, options);
        assert_eq!(pings.unwrap(), Pinged { pings: 70, confirmed: true });
        let served = serving.join().unwrap().unwrap();
        assert_eq!(served, Served { pings: 70, disconnected: true });
    }

    /// Goal: a client that has had its pings and whose end is not seen has been served; one that owes pings has not.
    #[test]
    fn rping_serves_a_client_whose_end_is_lost() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 8"), 8).unwrap();
        let options = rping::Options {
            count: Some(3),
            size: 100,
            verbose: false,
            validate: true,
            patience: Duration::from_secs(3),
            stop: completions::never,
        };
        for (sent, served) in [(3, Some(Served { pings: 3, disconnected: false })), (2, None)] {
            let remote = SocketAddr::new(server.ip, rping::PORT);
            let listener = server.host.adapter().listen(remote).unwrap();
            let adapter = Arc::clone(server.host.adapter());
            let serving = std::thread::spawn(move || {
                rping::serve(&adapter, any(&[listener]).unwrap(), options)
            });
            let local = SocketAddr::new(client.ip, 0);
            let pings =
                rping::Options { count: Some(sent), patience: Duration::from_secs(20), ..options };
            let silent =
                rping::connect_and_ping(client.host.adapter(), local, remote, pings).unwrap();
            assert_eq!(serving.join().unwrap().ok(), served);
            drop(silent);
        }
    }

    /// Goal: what a client asks for never ends a server, however much it is.
    /// Method: the run that once did, past the check of the command line; then one that is served.
    #[test]
    fn a_client_that_asks_for_too_much_is_refused_and_the_next_is_served() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 9"), 9).unwrap();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let small = arguments("ndkperf --operations send --iterations 10").run.plans(0).unwrap()[0];
        let greedy = Plan { size: 512 << 20, depth: 1, ..small };
        let refused = both_sides(&client, &server, &listener, &greedy, false);
        let End::Failed(failure) = refused.end else { panic!("{:?}", refused.end) };
        assert!(failure.to_string().contains("more than this server has"), "{failure}");
        let served = both_sides(&client, &server, &listener, &small, false);
        assert!(matches!(served.end, End::Complete) && served.messages == 10, "{:?}", served.end);
    }

    /// A post that comes after the peer's disconnect is told as that disconnect, not as a refused call.
    #[test]
    fn a_post_after_the_end_tells_of_the_end() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 10"), 10).unwrap();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let remote = listener.local_address().unwrap();
        let waits = Waits { patience: Duration::from_secs(20), busy_poll: false, cq_mod: 1 };
        let depths = Depths { receive: 1, initiator: 1, inline_len: 0 };
        let limits = ReadLimits { inbound: 0, outbound: 0 };
        let serving = std::thread::spawn(move || {
            let connector = any(&[listener]).unwrap();
            let adapter = server.host.adapter();
            let pd = adapter.create_pd().unwrap();
            let session = Session::new(adapter, &pd, connector, depths, waits).unwrap();
            session.accept(limits).unwrap();
            session.disconnect().unwrap()
        });
        let adapter = client.host.adapter();
        let (pd, connector) = (adapter.create_pd().unwrap(), adapter.create_connector().unwrap());
        let mut session = Session::new(adapter, &pd, connector, depths, waits).unwrap();
        let mr = pd.register(Buffer::try_new(1).unwrap(), NDK_MR_FLAG_ALLOW_LOCAL_WRITE).unwrap();
        session.connect(SocketAddr::new(client.ip, 0), remote, limits).unwrap();
        session.wait_disconnected().unwrap();
        assert!(serving.join().unwrap());
        session.send(&mr, 0..1, 0).unwrap();
        let ended = session.wait(&mut Vec::new());
        assert!(matches!(ended, Err(Failure::Disconnected)), "{ended:?}");
    }

    /// Goal: an interrupted server ends when its client knows, as nobody repeats a DREQ after the process.
    /// Method: so many ends over a link with losses that the first DREQ of some is lost.
    #[test]
    fn an_interrupted_server_ends_when_its_client_knows() {
        let waits = Waits { patience: Duration::from_secs(20), busy_poll: false, cq_mod: 1 };
        for seed in 0..6 {
            let [client, server] = edge::loopback(&arguments("ndkperf --loss 20"), seed).unwrap();
            let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
            let remote = listener.local_address().unwrap();
            let serving = std::thread::spawn(move || {
                let incoming = Groups::default().take(any(&[listener]).unwrap(), 1).unwrap();
                let memory = perf::Memory::default();
                perf::serve(server.host.adapter(), &incoming, waits, &memory, || true)
            });
            let adapter = client.host.adapter();
            let (pd, connector) =
                (adapter.create_pd().unwrap(), adapter.create_connector().unwrap());
            let depths = Depths { receive: 1, initiator: 1, inline_len: 0 };
            let session = Session::new(adapter, &pd, connector, depths, waits).unwrap();
            let limits = ReadLimits { inbound: 0, outbound: 0 };
            session.connect(SocketAddr::new(client.ip, 0), remote, limits).unwrap();
            let ended = serving.join().unwrap();
            assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
            session.wait_disconnected().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
    }

    /// Goal: an end with another version is told so in a sentence, at both ends.
    #[test]
    fn another_version_of_the_protocol_is_refused_in_a_sentence() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 12"), 12).unwrap();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let remote = listener.local_address().unwrap();
        let waits = Waits { patience: Duration::from_secs(20), busy_poll: false, cq_mod: 1 };
        let serving = std::thread::spawn(move || {
            let incoming = Groups::default().take(any(&[listener]).unwrap(), 1).unwrap();
            let memory = perf::Memory::default();
            perf::serve(server.host.adapter(), &incoming, waits, &memory, completions::never)
        });
        let adapter = client.host.adapter();
        let (pd, connector) = (adapter.create_pd().unwrap(), adapter.create_connector().unwrap());
        let depths = Depths { receive: 1, initiator: 1, inline_len: 0 };
        let mut session = Session::new(adapter, &pd, connector, depths, waits).unwrap();
        let mut hello = [0; 64];
        hello[..8].copy_from_slice(b"ndkperf\x01");
        hello[15] = 1;
        let mr = pd.register(Buffer::from(&hello[..]), NDK_MR_FLAG_ALLOW_LOCAL_WRITE).unwrap();
        session.receive(&mr, 0..64, 0).unwrap();
        session
            .connect(SocketAddr::new(client.ip, 0), remote, ReadLimits { inbound: 0, outbound: 0 })
            .unwrap();
        session.send(&mr, 0..64, 0).unwrap();
        let mut events = Vec::new();
        while !events.iter().any(|event| matches!(event, Event::Received { len: 64, .. })) {
            session.wait(&mut events).unwrap();
        }
        assert_eq!(mr.buffer().to_vec(0..8), b"ndkperf\x03");
        let refused = serving.join().unwrap().unwrap_err().to_string();
        assert!(refused.contains("speaks version 1 of the ndkperf protocol"), "{refused}");
    }

    #[test]
    fn a_port_without_listener_refuses() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 6"), 6).unwrap();
        let plan = arguments("ndkperf").run.plans(0).unwrap()[0];
        let remote = SocketAddr::new(server.ip, 9);
        let local = SocketAddr::new(client.ip, 0);
        let outcome = perf::run(&client.host, local, remote, plan, &mut |_| ());
        let End::Failed(failure) = outcome.end else { panic!("{:?}", outcome.end) };
        assert!(failure.to_string().contains("STATUS_CONNECTION_REFUSED"), "{failure}");
    }
}
