//! `ndkperf`: measures and checks RDMA through an NDK provider.

mod cli;
mod decode;
mod doctor;
mod edge;
mod failure;
mod histogram;
mod manual;
mod pattern;
mod perf;
mod report;
mod results;
mod rping;
mod session;
mod sizes;
mod stop;
mod waits;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use ndk_consumer::{Adapter, Connector, Host, Listener};
use serde_json::{Value, json};

use cli::{Cli, Command, Connect, EdgeArgs, Loopback, Rping, RpingConnect, RpingServe, Run, Serve};
use doctor::Peer;
use edge::Side;
use failure::Failure;
use perf::{End, Outcome, Plan};
use rping::{Pinged, Served};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = stop::listen() {
        eprintln!("ndkperf: signals cannot be heard: {error}");
        return ExitCode::FAILURE;
    }
    let result = match cli.into_command() {
        Command::Loopback(args) => loopback(&args),
        Command::Serve(args) => serve(&args),
        Command::Connect(args) => connect(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Decode(args) => decode::run(&args),
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
            eprintln!("ndkperf: {failure}");
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
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let problem: Vec<&str> =
        lines.by_ref().take_while(|line| !line.is_empty() && !line.starts_with("Usage")).collect();
    eprintln!("ndkperf: {}", problem.join(" ").trim_start_matches("error: "));
    lines.filter(|line| line.starts_with("tip: ")).for_each(|tip| eprintln!("  {tip}"));
    eprintln!("  `ndkperf --help` lists all arguments");
    ExitCode::from(BAD_ARGUMENTS)
}

fn loopback(args: &Loopback) -> Result<(), Failure> {
    let seed = args.run.seed.unwrap_or_else(edge::random_seed);
    let plans = args.run.plans(seed).map_err(Failure::Arguments)?;
    let log = histogram::Log::create(args.run.histogram.as_ref())?;
    let [client, server] = edge::loopback(args, seed)?;
    let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0))?;
    let outcomes = run_all(&plans, |plan| both_sides(&client, &server, &listener, plan));
    conclude(&args.run, seed, &edge::describe_loopback(args), log, outcomes)
}

/// One run after the other. One that fails in the middle is not the next one's trouble; without a
/// connection, or where the user wants to end, nothing is left to do.
fn run_all(plans: &[Plan], mut run: impl FnMut(&Plan) -> Outcome) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for plan in plans {
        let outcome = run(plan);
        let over =
            stop::requested() || matches!(outcome.end, End::Failed(_)) && outcome.messages == 0;
        outcomes.push(outcome);
        if over {
            break;
        }
    }
    outcomes
}

/// One run, with the server on a thread of its own.
fn both_sides(client: &Side, server: &Side, listener: &Arc<Listener>, plan: &Plan) -> Outcome {
    let remote = match listener.local_address() {
        Ok(remote) => remote,
        Err(error) => {
            return Outcome { end: End::Failed(error.into()), ..Outcome::new(plan) };
        }
    };
    let given_up = AtomicBool::new(false);
    let (mut outcome, served) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| match next(listener, &given_up) {
            Some(connector) => {
                perf::serve(server.host.adapter(), connector, plan.waits, session::never)
            }
            None => Ok(0),
        });
        let local = SocketAddr::new(client.ip, 0);
        let outcome = measure(&client.host, local, remote, plan);
        given_up.store(matches!(outcome.end, End::Failed(_)), Ordering::Relaxed);
        (outcome, serving.join())
    });
    let served = served.unwrap_or(Err(Failure::Protocol("the server panicked")));
    outcome.end = match (outcome.end, served) {
        (end, Ok(_)) => end,
        // One of them only lost the other, whose reason is the real one.
        (End::Failed(client), Err(Failure::Disconnected)) => End::Failed(client),
        (End::Failed(client), Err(server)) => {
            End::Failed(Failure::Both(Box::new(client), Box::new(server)))
        }
        (End::Complete | End::Interrupted, Err(server)) => {
            End::Failed(server.during(format!("{}, server", plan.name())))
        }
    };
    outcome
}

fn serve(args: &Serve) -> Result<(), Failure> {
    let waits = args.waits.waits();
    let host = edge::network(&args.edge, None)?;
    let listeners = listen(host.adapter(), &args.edge, args.port)?;
    let mut runs = 0;
    while args.runs.is_none_or(|limit| runs < limit) {
        let Some(connector) = any(&listeners) else { return Err(Failure::Interrupted) };
        let peer = connector.peer_address()?;
        match perf::serve(host.adapter(), connector, waits, stop::requested) {
            Err(failure) if failure.is_interruption() => {
                return Err(failure.during(peer.to_string()));
            }
            Ok(messages) => eprintln!("{peer}: {messages} messages"),
            // One client's trouble is not the next one's.
            Err(failure) if args.runs.is_none() => eprintln!("ndkperf: {peer}: {failure}"),
            Err(failure) => return Err(failure.during(peer.to_string())),
        }
        runs += 1;
    }
    Ok(())
}

fn connect(args: &Connect) -> Result<(), Failure> {
    let seed = args.run.seed.unwrap_or_else(edge::random_seed);
    let plans = args.run.plans(seed).map_err(Failure::Arguments)?;
    let log = histogram::Log::create(args.run.histogram.as_ref())?;
    let local = local_address(&args.edge, args.peer)?;
    let host = edge::network(&args.edge, args.run.seed)?;
    let remote = SocketAddr::new(args.peer, args.port);
    let mut outcomes = run_all(&plans, |plan| measure(&host, local, remote, plan));
    outcomes.iter_mut().for_each(|outcome| doctor::refer(outcome, &args.edge, remote));
    let edge = json!({ "kind": args.edge.edge.to_string() });
    conclude(&args.run, seed, &edge, log, outcomes)
}

fn rping_serve(args: &RpingServe) -> Result<(), Failure> {
    let host = edge::network(&args.edge, None)?;
    let ip = args.bind.unwrap_or(args.edge.addresses[0].0);
    let listener = listen_at(host.adapter(), SocketAddr::new(ip, args.ping.port))?;
    loop {
        let Some(connector) = any(std::slice::from_ref(&listener)) else {
            return Err(Failure::Interrupted);
        };
        let peer = connector.peer_address()?;
        let result = rping::serve(host.adapter(), connector, args.ping.options());
        match result {
            Ok(Served { pings, disconnected: true }) => {
                eprintln!("{peer}: {pings} pings, then it disconnected");
            }
            Ok(Served { pings, disconnected: false }) => {
                eprintln!("{peer}: {pings} pings, then nothing more: its end was not seen");
            }
            Err(failure) if args.persistent && !failure.is_interruption() => {
                eprintln!("ndkperf: {peer}: {failure}")
            }
            Err(failure) => return Err(failure.during(peer.to_string())),
        }
        if !args.persistent {
            return Ok(());
        }
    }
}

fn rping_connect(args: &RpingConnect) -> Result<(), Failure> {
    let local = local_address(&args.edge, args.server)?;
    let host = edge::network(&args.edge, None)?;
    let remote = SocketAddr::new(args.server, args.ping.port);
    let Pinged { pings, confirmed } =
        rping::connect(host.adapter(), local, remote, args.ping.options())
            .map_err(|failure| doctor::referred(failure, &args.edge, remote, Peer::Rping))?;
    let remark = if confirmed { "" } else { ", which it did not confirm" };
    eprintln!("{remote}: {pings} pings, disconnected{remark}");
    Ok(())
}

/// One run, with a progress bar.
fn measure(host: &Host, local: SocketAddr, remote: SocketAddr, plan: &Plan) -> Outcome {
    let mut progress = report::Progress::new(plan);
    perf::run(host, local, remote, *plan, &mut |messages| progress.update(messages))
}

/// Prints what came of it, and keeps its latencies, whatever failed.
fn conclude(
    run: &Run,
    seed: u64,
    edge: &Value,
    log: Option<histogram::Log>,
    outcomes: Vec<Outcome>,
) -> Result<(), Failure> {
    let printed = report::print(run, seed, edge, &outcomes).map_err(Failure::Output);
    let kept = log.map_or(Ok(()), |log| log.write(&outcomes));
    let failed = first_failure(outcomes).map_or(Ok(()), Err);
    printed.and(kept).and(failed)
}

/// The failure that a run of several operations ends with; wrong data is one of its own. Those before
/// the last are told here.
fn first_failure(outcomes: Vec<Outcome>) -> Option<Failure> {
    let mut failures: Vec<Failure> = outcomes.into_iter().filter_map(failure).collect();
    let last = failures.pop();
    failures.iter().for_each(|failure| eprintln!("ndkperf: {failure}"));
    last
}

fn failure(outcome: Outcome) -> Option<Failure> {
    let perf::Mismatches { count, message, offset } = outcome.mismatches;
    match outcome.end {
        End::Failed(failure) => Some(failure),
        End::Complete | End::Interrupted if count > 0 => {
            let failure = Failure::Mismatch { what: "the data is wrong", count, message, offset };
            Some(failure.during(outcome.name()))
        }
        End::Interrupted => Some(Failure::Interrupted.during(outcome.name())),
        End::Complete => None,
    }
}

/// Our end of a connection to `peer`; the provider chooses the port.
fn local_address(edge: &EdgeArgs, peer: IpAddr) -> Result<SocketAddr, Failure> {
    let ip = edge.address_for(peer).map_err(|what| Failure::Arguments(what.into()))?;
    Ok(SocketAddr::new(ip, 0))
}

/// One listener for each of our addresses.
fn listen(
    adapter: &Arc<Adapter>,
    edge: &EdgeArgs,
    port: u16,
) -> Result<Vec<Arc<Listener>>, Failure> {
    edge.ips().into_iter().map(|ip| listen_at(adapter, SocketAddr::new(ip, port))).collect()
}

fn listen_at(adapter: &Arc<Adapter>, local: SocketAddr) -> Result<Arc<Listener>, Failure> {
    let listener =
        adapter.listen(local).map_err(|error| Failure::from(error).during(local.to_string()))?;
    eprintln!("listening on {local}");
    Ok(listener)
}

/// The next connection of one listener, unless nobody wants it any more.
fn next(listener: &Arc<Listener>, given_up: &AtomicBool) -> Option<Connector> {
    while !given_up.load(Ordering::Relaxed) {
        let connector = listener.next(SLICE);
        if connector.is_some() {
            return connector;
        }
    }
    None
}

/// The next connection of any listener; `None` where the user wants to end.
fn any(listeners: &[Arc<Listener>]) -> Option<Connector> {
    while !stop::requested() {
        let connector = listeners.iter().find_map(|listener| listener.next(SLICE));
        if connector.is_some() {
            return connector;
        }
    }
    None
}

/// Exit code, as that of most programs.
const BAD_ARGUMENTS: u8 = 2;

/// How long one look for a connection takes.
const SLICE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
    use ndk_consumer::{Buffer, ReadLimits};
    use session::{Depths, Session, Waits};

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
            stop: session::never,
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
            stop: session::never,
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
        let refused = both_sides(&client, &server, &listener, &greedy);
        let End::Failed(failure) = refused.end else { panic!("{:?}", refused.end) };
        assert!(failure.to_string().contains("more than this server has"), "{failure}");
        let served = both_sides(&client, &server, &listener, &small);
        assert!(matches!(served.end, End::Complete) && served.messages == 10, "{:?}", served.end);
    }

    /// A post that comes after the peer's disconnect is told as that disconnect, not as a refused call.
    #[test]
    fn a_post_after_the_end_tells_of_the_end() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 10"), 10).unwrap();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let remote = listener.local_address().unwrap();
        let waits = Waits { patience: Duration::from_secs(20), busy_poll: false, cq_mod: 1 };
        let depths = Depths { receive: 1, initiator: 1 };
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
                let connector = any(&[listener]).unwrap();
                perf::serve(server.host.adapter(), connector, waits, || true)
            });
            let adapter = client.host.adapter();
            let (pd, connector) =
                (adapter.create_pd().unwrap(), adapter.create_connector().unwrap());
            let depths = Depths { receive: 1, initiator: 1 };
            let session = Session::new(adapter, &pd, connector, depths, waits).unwrap();
            let limits = ReadLimits { inbound: 0, outbound: 0 };
            session.connect(SocketAddr::new(client.ip, 0), remote, limits).unwrap();
            let ended = serving.join().unwrap();
            assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
            session.wait_disconnected().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
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
