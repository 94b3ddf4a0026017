//! `ndkperf serve`: several clients at once. Each connection, or group of them, has a thread, buffers and a result of its own.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ndk_consumer::{Adapter, Connector, Host, Listener};

use crate::cli::{EdgeArgs, Serve};
use crate::completions::Waits;
use crate::edge;
use crate::failure::Failure;
use crate::perf::{self, Accepted, Groups, Incoming, Memory, Parameters, QUEUE_PAIRS_MAX};
use crate::report::REFUSED;
use crate::stop;

/// Serves clients until the user ends it, or as many runs as they wanted.
pub(crate) fn serve(args: &Serve) -> Result<(), Failure> {
    let host = edge::network(&args.edge, None)?;
    let listeners = listen(host.adapter(), &args.edge, args.port)?;
    serve_all(&host, &listeners, args.waits.waits(), args.runs)
}

fn serve_all(
    host: &Host,
    listeners: &[Arc<Listener>],
    waits: Waits,
    left: Option<u64>,
) -> Result<(), Failure> {
    let (adapter, memory) = (host.adapter(), Memory::default());
    let (ended, endings) = mpsc::channel();
    thread::scope(|scope| {
        let (mut active, mut runs) = (0, Runs { left, ..Runs::default() });
        let mut groups = Groups::default();
        while runs.left != Some(0) {
            if active == 0 {
                // What is unfinished now has lost its client.
                runs.begun.clear();
                groups.clear();
                if stop::requested() {
                    return Err(Failure::Interrupted);
                }
            }
            let room = QUEUE_PAIRS_MAX - active;
            let connector = next(listeners, active);
            if let Some(incoming) = connector.and_then(|connector| groups.take(connector, room)) {
                active += incoming.connections();
                let (ended, memory) = (ended.clone(), &memory);
                scope.spawn(move || {
                    // The receiver outlives all threads.
                    let _ = ended.send(serve_one(adapter, &incoming, waits, memory));
                });
            }
            let patience = if active > 0 { GLANCE } else { Duration::ZERO };
            if let Ok(ending) = endings.recv_timeout(patience) {
                active -= ending.connections;
                runs.take(ending)?;
            }
            runs.tell_refusals(host);
        }
        Ok(())
    })
}

/// The next connection. Only where nobody is served does it wait for one, as that runs the provider, which others
/// wait for with less delay.
fn next(listeners: &[Arc<Listener>], active: u16) -> Option<Connector> {
    if active == 0 { any(listeners) } else { listeners.iter().find_map(Listener::poll) }
}

/// The end of what one thread served.
struct Ending {
    connections: u16,
    /// Their receives were shared.
    shared: bool,
    peer: Result<SocketAddr, Failure>,
    /// What the client had wanted, where it came to that.
    parameters: Option<Parameters>,
    messages: Result<u64, Failure>,
}

fn serve_one(adapter: &Arc<Adapter>, incoming: &Incoming, waits: Waits, memory: &Memory) -> Ending {
    let (connections, shared) = (incoming.connections(), incoming.is_shared());
    let peer = incoming.peer.map_err(Failure::from);
    let accepted = perf::accept(adapter, incoming, waits, stop::requested);
    let parameters = accepted.as_ref().ok().map(Accepted::parameters);
    let messages = accepted.and_then(|accepted| accepted.serve(memory));
    Ending { connections, shared, peer, parameters, messages }
}

/// Runs, each of one client over one or more connections.
#[derive(Debug, Default)]
struct Runs {
    /// Those that are still to be served, where that is limited.
    left: Option<u64>,
    /// Those of which connections have ended, and how many, and how many messages these had.
    begun: HashMap<(IpAddr, u32), (u16, u64)>,
    /// The user knows that frames are refused.
    refusals_told: bool,
}

impl Runs {
    /// Tells the user, once, that the kernel refuses frames of ours: the clients cannot know.
    fn tell_refusals(&mut self, host: &Host) {
        let drops = host.provider().counters().edge;
        if drops.refused > 0 && !self.refusals_told {
            self.refusals_told = true;
            eprintln!("ndkperf: frames given up: {}, {} {REFUSED}", drops.transmit, drops.refused);
        }
    }

    fn take(&mut self, ending: Ending) -> Result<(), Failure> {
        let Ending { connections, shared, peer, parameters, messages } = ending;
        let peer = peer?;
        let messages = match messages {
            Err(failure) if failure.is_interruption() => {
                return Err(failure.during(peer.to_string()));
            }
            // One client's trouble is not the next one's.
            Err(failure) if self.left.is_none() => {
                eprintln!("ndkperf: {peer}: {failure}");
                return Ok(());
            }
            Err(failure) => return Err(failure.during(peer.to_string())),
            Ok(messages) => messages,
        };
        let Some(Parameters { run, queue_pairs, .. }) = parameters else { return Ok(()) };
        let begun = self.begun.entry((peer.ip(), run)).or_default();
        *begun = (begun.0 + connections, begun.1 + messages);
        let (ended, all) = *begun;
        if ended < queue_pairs {
            return Ok(());
        }
        self.begun.remove(&(peer.ip(), run));
        self.left = self.left.map(|left| left - 1);
        let shared = if shared { ", receives shared" } else { "" };
        match queue_pairs {
            0 | 1 => eprintln!("{peer}: {all} messages{shared}"),
            _ => eprintln!("{}: {all} messages over {queue_pairs} queue pairs{shared}", peer.ip()),
        }
        Ok(())
    }
}

/// One listener for each of our addresses.
fn listen(
    adapter: &Arc<Adapter>,
    edge: &EdgeArgs,
    port: u16,
) -> Result<Vec<Arc<Listener>>, Failure> {
    edge.ips().into_iter().map(|ip| listen_at(adapter, SocketAddr::new(ip, port))).collect()
}

/// Listens on one address and port, and says so.
pub(crate) fn listen_at(
    adapter: &Arc<Adapter>,
    local: SocketAddr,
) -> Result<Arc<Listener>, Failure> {
    let listener =
        adapter.listen(local).map_err(|error| Failure::from(error).during(local.to_string()))?;
    eprintln!("listening on {local}");
    Ok(listener)
}

/// The next connection of any listener; `None` where the user wants to end.
pub(crate) fn any(listeners: &[Arc<Listener>]) -> Option<Connector> {
    while !stop::requested() {
        let connector = listeners.iter().find_map(|listener| listener.next(SLICE));
        if connector.is_some() {
            return connector;
        }
    }
    None
}

/// How long one look for a connection takes.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// How long one look for the end of a connection takes, beside which others may come.
const GLANCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::connection::Depths;
    use crate::perf::End;
    use crate::session::Session;
    use clap::Parser;
    use ndk_consumer::ReadLimits;

    /// Goal: a client that says nothing holds up no other one.
    /// Method: one connects and is silent; a whole run passes beside it; then it goes, which ends its own part alone.
    #[test]
    fn a_client_is_served_beside_another_one() {
        let command = Cli::parse_from(["ndkperf", "--operations", "send", "-n", "50", "-q", "3"]);
        let Command::Loopback(args) = command.into_command() else { panic!() };
        let [client, server] = edge::loopback(&args, 11).unwrap();
        let plan = args.run.plans(0).unwrap()[0];
        let listeners = [server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap()];
        let remote = listeners[0].local_address().unwrap();
        let local = SocketAddr::new(client.ip, 0);
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve_all(&server.host, &listeners, plan.waits, Some(1)));
            let ours = client.host.adapter();
            let (pd, connector) = (ours.create_pd().unwrap(), ours.create_connector().unwrap());
            let depths = Depths { receive: 1, initiator: 1, inline_len: 0 };
            let silent = Session::new(ours, &pd, connector, depths, plan.waits).unwrap();
            silent.connect(local, remote, ReadLimits { inbound: 0, outbound: 0 }).unwrap();
            let outcome = perf::run(&client.host, local, remote, plan, &mut |_| ());
            assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
            assert_eq!((outcome.messages, outcome.mismatches.count), (50, 0));
            assert!(!serving.is_finished(), "the first one is still there");
            drop(silent);
            serving.join().unwrap().unwrap();
        });
    }

    #[test]
    fn what_clients_hold_together_is_bounded() {
        let memory = Memory::default();
        let most = memory.take(1 << 30).unwrap();
        assert!(memory.take(1).is_none());
        drop(most);
        assert!(memory.take(1 << 30).is_some());
    }
}
