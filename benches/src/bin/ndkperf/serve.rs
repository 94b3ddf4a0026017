//! `ndkperf serve`: several clients at once. Each connection, or group of them, has a thread, buffers and a result of its own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use ndk_consumer::{Adapter, Connector, Host, Listener};

use crate::cli::{EdgeArgs, Serve};
use crate::completions::Waits;
use crate::edge;
use crate::failure::Failure;
use crate::notices::{Notices, Trouble};
use crate::perf::{
    self, Accepted, Groups, Incoming, Memory, Parameters, QUEUE_PAIRS_MAX, Tally, UNPROVEN_MAX,
};
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
    let (memory, runs) = (Memory::default(), Runs { left, ..Runs::default() });
    let (ended, endings) = mpsc::channel();
    let (groups, notices) = (Groups::default(), Notices::default());
    let mut server =
        Server { host, runs, groups, notices, threads: 0, threadless: Tally::default() };
    let served = thread::scope(|scope| {
        let served = server.hand_out(listeners, &endings, &|incoming| {
            let (ended, memory) = (ended.clone(), &memory);
            let serving = move || {
                // The receiver outlives all threads.
                let _ = ended.send(serve_one(host.adapter(), incoming, waits, memory));
            };
            thread::Builder::new().spawn_scoped(scope, serving).map(drop)
        });
        // Nobody waits for peers that may never have been there.
        server.groups.displace_all();
        served
    });
    server.notices.end_pauses();
    server.tell();
    served
}

/// The next connection. Only where there is no thread does it wait for one, as that runs the provider, which others
/// wait for with less delay. Where there are too many threads it stays in its listener's backlog, whose rules are those of the provider.
fn next(listeners: &[Arc<Listener>], threads: usize) -> Option<Connector> {
    match threads {
        0 => listeners.iter().find_map(|listener| listener.next(SLICE)),
        1..THREADS_MAX => listeners.iter().find_map(Listener::poll),
        _ => None,
    }
}

/// A server, for the thread that hands its connections out.
struct Server<'a> {
    host: &'a Host,
    runs: Runs,
    groups: Groups,
    notices: Notices,
    /// Those that have not ended.
    threads: usize,
    /// Connections for which the system had none.
    threadless: Tally,
}

impl Server<'_> {
    /// Gives connections to threads that `spawn` begins, until as many runs have ended as the user wanted.
    fn hand_out(
        &mut self,
        listeners: &[Arc<Listener>],
        endings: &Receiver<Ending>,
        spawn: &dyn Fn(Incoming) -> io::Result<()>,
    ) -> Result<(), Failure> {
        while self.runs.left != Some(0) {
            self.check_stop()?;
            let connector = next(listeners, self.threads);
            let came = connector.is_some();
            if let Some(incoming) = connector.and_then(|connector| self.take(connector)) {
                self.begin(incoming, spawn);
            }
            let patience = if came || self.threads == 0 { Duration::ZERO } else { GLANCE };
            if let Ok(ending) = endings.recv_timeout(patience) {
                self.threads -= 1;
                self.runs.take(ending)?;
            }
            self.tell();
        }
        Ok(())
    }

    /// # Errors
    /// The user wants to end, and no thread is left that would tell so.
    fn check_stop(&mut self) -> Result<(), Failure> {
        let stop = stop::requested();
        if stop {
            self.groups.displace_all();
        }
        if self.threads > 0 {
            return Ok(());
        }
        // What is unfinished now has lost its client.
        self.runs.begun.clear();
        if stop { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// What a new thread is to serve, if the connection is for one.
    fn take(&mut self, connector: Connector) -> Option<Incoming> {
        let room = self.groups.room();
        self.groups.take(connector, room)
    }

    /// Has a thread serve it. Where the system has none, as under a limit, this connection ends, and no other.
    fn begin(&mut self, incoming: Incoming, spawn: &dyn Fn(Incoming) -> io::Result<()>) {
        let peer = incoming.peer.map_or_else(|_| "somebody".into(), |peer| peer.to_string());
        match spawn(incoming) {
            Ok(()) => self.threads += 1,
            Err(error) => self.threadless.add(format!("{peer}: {error}")),
        }
    }

    /// Tells what is due.
    fn tell(&mut self) {
        let Self { host, runs, groups, notices, threadless, .. } = self;
        let (counters, now) = (host.provider().counters(), Instant::now());
        let trouble = Trouble {
            edge_failed: host.provider().edge_failed(),
            refused: groups.refused(),
            unproven: &runs.unproven,
            threadless,
        };
        for line in notices.due(&counters, &trouble, now) {
            say!("ndkperf: {line}");
        }
    }
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

/// It has given its places back when its end is told.
fn serve_one(adapter: &Arc<Adapter>, incoming: Incoming, waits: Waits, memory: &Memory) -> Ending {
    let (connections, shared) = (incoming.connections(), incoming.is_shared());
    let peer = incoming.peer.map_err(Failure::from);
    let accepted = perf::accept(adapter, &incoming, waits, stop::requested);
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
    /// Connects of peers that did not show that they are there, which are none of a run.
    unproven: Tally,
}

impl Runs {
    fn take(&mut self, ending: Ending) -> Result<(), Failure> {
        let Ending { connections, shared, peer, parameters, messages } = ending;
        let peer = peer?;
        let messages = match messages {
            Err(failure) if failure.is_interruption() => {
                return Err(failure.during(peer.to_string()));
            }
            Err(failure @ Failure::Unproven(_)) => {
                self.unproven.add(format!("{peer}: {failure}"));
                return Ok(());
            }
            // One client's trouble is not the next one's.
            Err(failure) if self.left.is_none() => {
                say!("ndkperf: {peer}: {failure}");
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
            0 | 1 => say!("{peer}: {all} messages{shared}"),
            _ => say!("{}: {all} messages over {queue_pairs} queue pairs{shared}", peer.ip()),
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
    say!("listening on {local}");
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
/// Threads at once: those that serve, those that wait for a proof, and as many again that have lost their place and end.
const THREADS_MAX: usize = QUEUE_PAIRS_MAX as usize + 2 * UNPROVEN_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::connection::Depths;
    use crate::perf::End;
    use crate::session::Session;
    use clap::Parser;
    use ndk_consumer::ReadLimits;
    use netadapter_glue::host::BoxEdge;
    use netadapter_glue::memory::{self, MemoryConfig};
    use netadapter_glue::{Edge, EdgeError, Received, forward_edge};
    use rocev2::ids::{CommId, Qpn};
    use rocev2::wire::mad::{CmMessage, IpCm, MadHeader, Req, emit_mad, gid, parse_mad};
    use rocev2::wire::{Packet, Template, UnitWriter};
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::net::Ipv4Addr;

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

    /// A link on which forged REQs come before each true one, each from an address, a queue pair and an ID of its own.
    struct Flooded {
        edge: BoxEdge,
        forged: u32,
    }

    impl Edge for Flooded {
        forward_edge!(self => self.edge, transmit);

        fn receive(
            &mut self,
            budget: usize,
            sink: &mut dyn FnMut(&[Received<'_>]),
        ) -> Result<usize, EdgeError> {
            let Self { edge, forged } = self;
            edge.receive_each(budget, |received| {
                let packet = Packet::parse(received.frame).ok();
                let message = packet.as_ref().and_then(|packet| parse_mad(packet.payload).ok());
                if let (Some(packet), Some((header, CmMessage::Req(req)))) = (packet, message) {
                    for _ in 0..FLOOD {
                        *forged += 1;
                        let frame = &forge(&packet, &header, &req, *forged);
                        sink(&[Received { frame, segments: None }]);
                    }
                }
                sink(&[received]);
            })
        }
    }

    /// More than a server serves, and fewer than a listener's backlog holds.
    const FLOOD: u32 = QUEUE_PAIRS_MAX as u32 + 32;

    fn forge(packet: &Packet<'_>, header: &MadHeader, req: &Req, number: u32) -> Vec<u8> {
        let src = IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + number));
        let (mut req, mut encap) = (req.clone(), packet.encap);
        encap.src = src;
        req.local_comm_id = CommId::new(req.local_comm_id.get().wrapping_add(number));
        req.local_qpn = Qpn::new(req.local_qpn.get() + number);
        req.ca_guid ^= u64::from(number);
        req.primary.local_gid = gid(src);
        let ip_cm = IpCm { src_port: 50_000, src, dst: encap.dst };
        req.private_data[..IpCm::LEN].copy_from_slice(&ip_cm.emit());
        let mut mad = [0; 256];
        emit_mad(header, &CmMessage::Req(req), &mut mad);
        let mut frame = vec![0; 512];
        let template = Template::new(&encap);
        let mut unit = UnitWriter::new(&mut frame, &template, encap.ip_id);
        let Ok(()) = unit.push(&packet.bth, &packet.ext, mad.len(), |payload| {
            payload.copy_from_slice(&mad);
            Ok::<(), Infallible>(())
        });
        let len = unit.finish().len;
        frame.truncate(len);
        frame
    }

    /// Goal: forged REQs take no place from clients, and end no server that serves so many runs.
    #[test]
    fn connects_without_a_proof_take_no_place() {
        let command = Cli::parse_from(["ndkperf", "--operations", "send", "-n", "50", "--srq"]);
        let Command::Loopback(args) = command.into_command() else { panic!() };
        let (client, server) = memory::pair(MemoryConfig::default());
        let [client_ip, server_ip] = edge::pair_of_addresses(false);
        let start =
            |ip, edge: BoxEdge| edge::builder(&[ip], Some(18), args.transport).start(edge).unwrap();
        let client = start(client_ip, Box::new(client));
        let server = start(server_ip, Box::new(Flooded { edge: Box::new(server), forged: 0 }));
        let plan = args.run.plans(0).unwrap()[0];
        let listeners = [server.adapter().listen(SocketAddr::new(server_ip, 0)).unwrap()];
        let remote = listeners[0].local_address().unwrap();
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve_all(&server, &listeners, plan.waits, Some(3)));
            for _ in 0..3 {
                let local = SocketAddr::new(client_ip, 0);
                let outcome = perf::run(&client, local, remote, plan, &mut |_| ());
                assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
                assert_eq!(outcome.messages, 50);
            }
            serving.join().unwrap().unwrap();
        });
    }

    /// Goal: a system without another thread costs a connection, which is refused, and neither the server nor the next client.
    #[test]
    fn a_connection_without_a_thread_is_told() {
        let command = Cli::parse_from(["ndkperf", "--operations", "send", "-n", "50"]);
        let Command::Loopback(args) = command.into_command() else { panic!() };
        let [client, server] = edge::loopback(&args, 19).unwrap();
        let plan = args.run.plans(0).unwrap()[0];
        let listeners = [server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap()];
        let remote = listeners[0].local_address().unwrap();
        let (ended, endings) = mpsc::channel();
        let (memory, refused) = (Memory::default(), Cell::new(false));
        let runs = Runs { left: Some(1), ..Runs::default() };
        let (groups, notices) = (Groups::default(), Notices::default());
        let threadless = Tally::default();
        let host = &server.host;
        thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                let local = SocketAddr::new(client.ip, 0);
                [0, 1].map(|_| perf::run(&client.host, local, remote, plan, &mut |_| ()).end)
            });
            let mut server = Server { host, runs, groups, notices, threads: 0, threadless };
            let served = server.hand_out(&listeners, &endings, &|incoming| {
                if !refused.replace(true) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let (ended, memory) = (ended.clone(), &memory);
                scope.spawn(move || {
                    ended.send(serve_one(host.adapter(), incoming, plan.waits, memory)).unwrap();
                });
                Ok(())
            });
            served.unwrap();
            assert_eq!((server.threads, server.threadless.count), (0, 1));
            assert_eq!(server.groups.room(), QUEUE_PAIRS_MAX, "the place is free");
            let [first, second] = connecting.join().unwrap();
            let End::Failed(failure) = first else { panic!("{first:?}") };
            assert!(failure.to_string().contains("STATUS_CONNECTION_REFUSED"), "{failure}");
            assert!(matches!(second, End::Complete), "{second:?}");
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
