//! The commands that measure: in memory, or against a server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ndk_consumer::{Connector, Host, Listener};
use serde_json::{Value, json};

use crate::cli::{Connect, EdgeArgs, Loopback};
use crate::edge::{self, Side};
use crate::failure::Failure;
use crate::lab::Lab;
use crate::load::Run;
use crate::perf::{self, End, Groups, Outcome, Plan, QUEUE_PAIRS_MAX};
use crate::progress::Progress;
use crate::serve::SLICE;
use crate::{completions, doctor, histogram, report, stop};

/// Two providers joined in memory.
pub(crate) fn loopback(args: &Loopback) -> Result<(), Failure> {
    let sides = |seed| edge::loopback(args, seed);
    between(&args.run, sides, &edge::describe_loopback(args))
}

/// Two ends of a network made for the run.
pub(crate) fn in_lab(args: &Lab) -> Result<(), Failure> {
    between(&args.run, |seed| args.sides(seed), &args.describe())
}

fn between(
    run: &Run,
    sides: impl FnOnce(u64) -> Result<[Side; 2], Failure>,
    edge: &Value,
) -> Result<(), Failure> {
    let seed = run.seed.unwrap_or_else(edge::random_seed);
    let plans = run.plans(seed).map_err(Failure::Arguments)?;
    let log = histogram::Log::create(run.histogram.as_ref())?;
    let [client, server] = sides(seed)?;
    let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0))?;
    let outcomes = run_all(&plans, |plan| both_sides(&client, &server, &listener, plan, !run.json));
    conclude(run, seed, edge, log, outcomes)
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
pub(crate) fn both_sides(
    client: &Side,
    server: &Side,
    listener: &Arc<Listener>,
    plan: &Plan,
    rows: bool,
) -> Outcome {
    let remote = match listener.local_address() {
        Ok(remote) => remote,
        Err(error) => {
            return Outcome { end: End::Failed(error.into()), ..Outcome::new(plan) };
        }
    };
    let given_up = AtomicBool::new(false);
    let (mut outcome, served) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve_all(server, listener, plan, &given_up));
        let local = SocketAddr::new(client.ip, 0);
        let outcome = measure(&client.host, local, remote, plan, rows);
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

/// The server's end of all queue pairs of a run, each on a thread of its own, or with those that it shares its receives
/// with; the first real failure.
fn serve_all(
    server: &Side,
    listener: &Arc<Listener>,
    plan: &Plan,
    given_up: &AtomicBool,
) -> Result<(), Failure> {
    let memory = perf::Memory::default();
    std::thread::scope(|scope| {
        let (mut serving, mut groups) = (Vec::new(), Groups::default());
        for _ in 0..plan.queue_pairs() {
            let Some(connector) = next(listener, given_up) else { break };
            let Some(incoming) = groups.take(connector, QUEUE_PAIRS_MAX) else { continue };
            let memory = &memory;
            serving.push(scope.spawn(move || {
                let adapter = server.host.adapter();
                perf::serve(adapter, &incoming, plan.waits, memory, completions::never)
            }));
        }
        // Nothing comes any more for those that wait.
        drop(groups);
        let served = serving
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(Failure::Protocol("the server panicked"))));
        let mut failures: Vec<Failure> = served.filter_map(Result::err).collect();
        // Some only lost their client, which another one failed.
        let real = failures.iter().position(|failure| !matches!(failure, Failure::Disconnected));
        let first = real.or((!failures.is_empty()).then_some(0));
        first.map_or(Ok(()), |place| Err(failures.swap_remove(place)))
    })
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

/// Against a server elsewhere.
pub(crate) fn connect(args: &Connect) -> Result<(), Failure> {
    let seed = args.run.seed.unwrap_or_else(edge::random_seed);
    let plans = args.run.plans(seed).map_err(Failure::Arguments)?;
    let log = histogram::Log::create(args.run.histogram.as_ref())?;
    let local = local_address(&args.edge, args.peer)?;
    let host = edge::network(&args.edge, args.run.seed)?;
    let remote = SocketAddr::new(args.peer, args.port);
    let mut outcomes = run_all(&plans, |plan| measure(&host, local, remote, plan, !args.run.json));
    outcomes.iter_mut().for_each(|outcome| doctor::refer(outcome, &args.edge, remote));
    let edge = json!({ "kind": args.edge.edge.to_string() });
    conclude(&args.run, seed, &edge, log, outcomes)
}

/// One run, with a progress bar, and rows of its intervals where they are wanted.
fn measure(host: &Host, local: SocketAddr, remote: SocketAddr, plan: &Plan, rows: bool) -> Outcome {
    let mut progress = Progress::new(plan, rows);
    perf::run(host, local, remote, *plan, &mut |sight| progress.show(sight))
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
pub(crate) fn first_failure(outcomes: Vec<Outcome>) -> Option<Failure> {
    let mut failures: Vec<Failure> = outcomes.into_iter().filter_map(failure).collect();
    let last = failures.pop();
    failures.iter().for_each(|failure| say!("ndkperf: {failure}"));
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
pub(crate) fn local_address(edge: &EdgeArgs, peer: IpAddr) -> Result<SocketAddr, Failure> {
    let ip = edge.address_for(peer).map_err(|what| Failure::Arguments(what.into()))?;
    Ok(SocketAddr::new(ip, 0))
}
