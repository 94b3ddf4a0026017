//! `ndkperf`: measures and checks RDMA through an NDK provider.

mod cli;
mod edge;
mod failure;
mod pattern;
mod perf;
mod report;
mod rping;
mod session;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use ndkperf::{Adapter, Connector, Listener};
use serde_json::{Value, json};

use cli::{Cli, Command, Connect, EdgeArgs, Loopback, Rping, RpingConnect, RpingServe, Run, Serve};
use edge::Side;
use failure::Failure;
use perf::{Outcome, Plan};
use rping::Served;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.into_command() {
        Command::Loopback(args) => loopback(&args),
        Command::Serve(args) => serve(&args),
        Command::Connect(args) => connect(&args),
        Command::Rping(Rping::Serve(args)) => rping_serve(&args),
        Command::Rping(Rping::Connect(args)) => rping_connect(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ndkperf: {failure}");
            match failure {
                Failure::Arguments(_) => ExitCode::from(BAD_ARGUMENTS),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Help and version as they are; a wrong argument in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with("Usage"))
        .collect();
    eprintln!("ndkperf: {}", lines.join(" ").trim_start_matches("error: "));
    ExitCode::from(BAD_ARGUMENTS)
}

fn loopback(args: &Loopback) -> Result<(), Failure> {
    let seed = args.run.seed.unwrap_or_else(edge::random_seed);
    let plans = args.run.plans(seed).map_err(Failure::Arguments)?;
    let [client, server] = edge::loopback(args, seed)?;
    let listener = server.adapter.listen(SocketAddr::new(server.ip, 0))?;
    let outcomes: Result<Vec<Outcome>, Failure> =
        plans.iter().map(|plan| both_sides(&client, &server, &listener, plan)).collect();
    conclude(&args.run, seed, &edge::describe_loopback(args), &outcomes?)
}

/// One run, with the server on a thread of its own.
fn both_sides(
    client: &Side,
    server: &Side,
    listener: &Arc<Listener>,
    plan: &Plan,
) -> Result<Outcome, Failure> {
    let remote = listener.local_address()?;
    let given_up = AtomicBool::new(false);
    let (measured, served) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| match next(listener, &given_up) {
            Some(connector) => perf::serve(&server.adapter, connector, plan.patience),
            None => Ok(0),
        });
        let local = SocketAddr::new(client.ip, 0);
        let measured = measure(&client.adapter, local, remote, plan);
        given_up.store(measured.is_err(), Ordering::Relaxed);
        (measured, serving.join())
    });
    let served = served.map_err(|_| Failure::Protocol("the server panicked"))?;
    match (measured, served) {
        (Ok(outcome), Ok(_)) => Ok(outcome),
        (Err(failure), Ok(_)) => Err(failure),
        (Ok(_), Err(failure)) => Err(failure.during(format!("{}, server", plan.operation))),
        // One of them only lost the other, whose reason is the real one.
        (Err(client), Err(Failure::Disconnected)) => Err(client),
        (Err(client), Err(server)) => Err(Failure::Both(Box::new(client), Box::new(server))),
    }
}

fn serve(args: &Serve) -> Result<(), Failure> {
    let patience = args.patience.duration();
    let adapter = edge::network(&args.edge, None)?;
    let listeners = listen(&adapter, &args.edge, args.port)?;
    let mut runs = 0;
    while args.runs.is_none_or(|limit| runs < limit) {
        let connector = any(&listeners);
        let peer = connector.peer_address()?;
        match perf::serve(&adapter, connector, patience) {
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
    let local = local_address(&args.edge, args.peer)?;
    let adapter = edge::network(&args.edge, args.run.seed)?;
    let remote = SocketAddr::new(args.peer, args.port);
    let outcomes: Result<Vec<Outcome>, Failure> =
        plans.iter().map(|plan| measure(&adapter, local, remote, plan)).collect();
    conclude(&args.run, seed, &json!({ "kind": args.edge.edge.to_string() }), &outcomes?)
}

fn rping_serve(args: &RpingServe) -> Result<(), Failure> {
    let adapter = edge::network(&args.edge, None)?;
    let ip = args.bind.unwrap_or(args.edge.addresses[0].0);
    let listener = listen_at(&adapter, SocketAddr::new(ip, args.ping.port))?;
    loop {
        let connector = any(std::slice::from_ref(&listener));
        let peer = connector.peer_address()?;
        let result = rping::serve(&adapter, connector, args.ping.options());
        match result {
            Ok(Served { pings, disconnected: true }) => {
                eprintln!("{peer}: {pings} pings, then it disconnected");
            }
            Ok(Served { pings, disconnected: false }) => {
                eprintln!("{peer}: {pings} pings, then nothing more: its end was not seen");
            }
            Err(failure) if args.persistent => eprintln!("ndkperf: {peer}: {failure}"),
            Err(failure) => return Err(failure.during(peer.to_string())),
        }
        if !args.persistent {
            return Ok(());
        }
    }
}

fn rping_connect(args: &RpingConnect) -> Result<(), Failure> {
    let local = local_address(&args.edge, args.server)?;
    let adapter = edge::network(&args.edge, None)?;
    let remote = SocketAddr::new(args.server, args.ping.port);
    let pings = rping::connect(&adapter, local, remote, args.ping.options())?;
    eprintln!("{remote}: {pings} pings, disconnected");
    Ok(())
}

/// One run, with a progress bar.
fn measure(
    adapter: &Arc<Adapter>,
    local: SocketAddr,
    remote: SocketAddr,
    plan: &Plan,
) -> Result<Outcome, Failure> {
    let mut progress = report::Progress::new(plan);
    perf::run(adapter, local, remote, *plan, &mut |messages| progress.update(messages))
}

/// Prints what came of it; wrong data is a failure of its own.
fn conclude(run: &Run, seed: u64, edge: &Value, outcomes: &[Outcome]) -> Result<(), Failure> {
    report::print(run, seed, edge, outcomes);
    match outcomes.iter().find(|outcome| outcome.mismatches.count > 0) {
        None => Ok(()),
        Some(outcome) => {
            let perf::Mismatches { count, message, offset } = outcome.mismatches;
            let failure = Failure::Mismatch { what: "the data is wrong", count, message, offset };
            Err(failure.during(outcome.operation.to_string()))
        }
    }
}

/// Our end of a connection to `peer`; the provider chooses the port.
fn local_address(edge: &EdgeArgs, peer: IpAddr) -> Result<SocketAddr, Failure> {
    let ip = edge.address_for(peer).map_err(Failure::Arguments)?;
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

/// The next connection of any listener.
fn any(listeners: &[Arc<Listener>]) -> Connector {
    loop {
        if let Some(connector) = listeners.iter().find_map(|listener| listener.next(SLICE)) {
            return connector;
        }
    }
}

/// Exit code, as that of most programs.
const BAD_ARGUMENTS: u8 = 2;

/// How long one look for a connection takes.
const SLICE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

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
        let listener = server.adapter.listen(SocketAddr::new(server.ip, rping::PORT)).unwrap();
        let options = rping::Options {
            count: Some(70),
            size: 100,
            verbose: false,
            validate: true,
            patience: Duration::from_secs(20),
        };
        let serving =
            std::thread::spawn(move || rping::serve(&server.adapter, any(&[listener]), options));
        let remote = SocketAddr::new(server.ip, rping::PORT);
        let pings = rping::connect(&client.adapter, SocketAddr::new(client.ip, 0), remote, options);
        assert_eq!(pings.unwrap(), 70);
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
        };
        for (sent, served) in [(3, Some(Served { pings: 3, disconnected: false })), (2, None)] {
            let remote = SocketAddr::new(server.ip, rping::PORT);
            let listener = server.adapter.listen(remote).unwrap();
            let adapter = Arc::clone(&server.adapter);
            let serving =
                std::thread::spawn(move || rping::serve(&adapter, any(&[listener]), options));
            let local = SocketAddr::new(client.ip, 0);
            let pings =
                rping::Options { count: Some(sent), patience: Duration::from_secs(20), ..options };
            let silent = rping::connect_and_ping(&client.adapter, local, remote, pings).unwrap();
            assert_eq!(serving.join().unwrap().ok(), served);
            drop(silent);
        }
    }

    #[test]
    fn a_port_without_listener_refuses() {
        let [client, server] = edge::loopback(&arguments("ndkperf --seed 6"), 6).unwrap();
        let plan = arguments("ndkperf").run.plans(0).unwrap()[0];
        let remote = SocketAddr::new(server.ip, 9);
        let local = SocketAddr::new(client.ip, 0);
        let failure = perf::run(&client.adapter, local, remote, plan, &mut |_| ()).unwrap_err();
        assert!(failure.to_string().contains("STATUS_CONNECTION_REFUSED"), "{failure}");
    }
}
