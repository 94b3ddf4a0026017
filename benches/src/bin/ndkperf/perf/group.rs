//! Connections that a server serves with one thread: one alone, or those of a client's thread, whose queue pairs share
//! a receive queue.
//!
//! A queue pair has its receive queue from its creation, and so before the client has said anything. A client that
//! wants a shared one says so as it connects, in the private data.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::Instant;

use ndk_consumer::{Connector, NdkError};

use super::budget::QUEUE_PAIRS_MAX;
use super::control::{MAGIC, pack, unpack};
use super::places::{Place, Places};
use super::plan::Plan;
use crate::completions::{Completions, SLICE};
use crate::connection::Connection;
use crate::edge;
use crate::failure::Failure;

/// What a client says of the queue pairs of one thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Group {
    /// No other thread of the client's address has it.
    pub(super) id: u64,
    pub(super) queue_pairs: u16,
    /// Messages that each of them posts at once.
    pub(super) depth: u16,
}

impl Group {
    /// That of a thread; `None` where each queue pair has receives of its own.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let Plan { srq, qps, depth, .. } = *plan;
        srq.then(|| Self { id: edge::random_seed(), queue_pairs: qps, depth })
    }

    pub(super) fn encode(&self) -> [u8; 24] {
        let words = [MAGIC, self.id, pack([0, 0, self.queue_pairs, self.depth])];
        let mut bytes = [0; 24];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        bytes
    }

    /// `None` where the peer says nothing of the kind, in this version of the protocol. Zeros may follow.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let words: &[[u8; 8]; 3] = bytes.as_chunks().0.first_chunk()?;
        let [MAGIC, id, counts] = words.map(u64::from_be_bytes) else { return None };
        let [0, 0, queue_pairs, depth] = unpack(counts) else { return None };
        (1..=QUEUE_PAIRS_MAX).contains(&queue_pairs).then_some(Self { id, queue_pairs, depth })
    }
}

/// The connections for one thread, of which the first has come.
pub(crate) struct Incoming {
    pub(crate) peer: Result<SocketAddr, NdkError>,
    pub(super) group: Option<Group>,
    pub(super) place: Place,
    connectors: Receiver<Connector>,
}

impl Incoming {
    /// How many there are, with those that are still to come.
    pub(crate) fn connections(&self) -> u16 {
        self.group.map_or(1, |group| group.queue_pairs)
    }

    /// Whether their queue pairs share a receive queue.
    pub(crate) fn is_shared(&self) -> bool {
        self.group.is_some()
    }

    /// The next one of a client whose `others` are there already.
    pub(super) fn next(
        &self,
        others: &[Connection],
        completions: &Completions,
    ) -> Result<Connector, Failure> {
        let since = Instant::now();
        loop {
            match self.connectors.recv_timeout(SLICE) {
                Ok(connector) => return Ok(connector),
                Err(RecvTimeoutError::Timeout) => completions.check_stop()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Disconnected),
            }
            if others.iter().any(Connection::is_disconnected) {
                return Err(Failure::Disconnected);
            }
            if since.elapsed() >= completions.patience() {
                return Err(Failure::Stalled(completions.patience()));
            }
        }
    }
}

/// The connections of a server as they come: groups of which some have come, and more are to come, and the places of all.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    open: HashMap<(IpAddr, u64), Open>,
    places: Arc<Places>,
    refused: Tally,
}

/// A group that is not whole.
#[derive(Debug)]
struct Open {
    left: u16,
    thread: Sender<Connector>,
    /// Held by that thread.
    place: Weak<AtomicBool>,
}

/// How often something has happened, and to whom the last time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) last: String,
}

impl Tally {
    pub(crate) fn add(&mut self, last: String) {
        self.count += 1;
        self.last = last;
    }
}

impl Groups {
    /// Connections that may be served beside those that are.
    pub(crate) fn room(&self) -> u16 {
        self.places.room()
    }

    /// Those that were refused, as there was no room for them.
    pub(crate) const fn refused(&self) -> &Tally {
        &self.refused
    }

    /// Ends what waits for a proof of its peer.
    pub(crate) fn displace_all(&self) {
        self.places.displace_all();
    }

    /// What a new thread is to serve, of no more than `room` connections; `None` where the connection goes to a thread
    /// that waits for it, or is refused.
    pub(crate) fn take(&mut self, connector: Connector, room: u16) -> Option<Incoming> {
        let peer = connector.peer_address();
        let data = connector.connection_data().ok();
        let group = data.and_then(|data| Group::decode(&data.private_data));
        let key = peer.ok().zip(group).map(|(peer, group)| (peer.ip(), group.id));
        if let Some(key) = key
            && let Some(open) = self.open.get_mut(&key)
        {
            open.left -= 1;
            // A thread that is over takes none: the connection ends with its connector.
            let over = open.thread.send(connector).is_err() || open.left == 0;
            if over {
                self.open.remove(&key);
            }
            return None;
        }
        let connections = group.map_or(1, |group| group.queue_pairs);
        if connections > room {
            self.refused.add(peer.map_or_else(|error| error.to_string(), |peer| peer.to_string()));
            // The client is told that it is refused, unless it has gone.
            let _ = connector.reject(&[]);
            return None;
        }
        let place = self.places.enter(connections);
        let held = place.observe();
        let (thread, connectors) = mpsc::channel();
        let incoming = Incoming { peer, group, place, connectors };
        // The receiver is here.
        let _ = thread.send(connector);
        if let Some(key) = key
            && connections > 1
        {
            // What has ended has lost its client.
            self.open.retain(|_, open| open.place.strong_count() > 0);
            self.open.insert(key, Open { left: connections - 1, thread, place: held });
        }
        Some(incoming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::completions::{Waits, never};
    use crate::connection::Depths;
    use crate::edge::Side;
    use crate::perf::accept;
    use crate::perf::control::{Control, Operation, Parameters};
    use crate::perf::ring::ControlSender;
    use crate::serve::any;
    use clap::Parser;
    use ndk_consumer::{Listener, QpConfig, ReadLimits};
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    const GROUP: Group = Group { id: 7, queue_pairs: 2, depth: 3 };
    const LIMITS: ReadLimits = ReadLimits { inbound: 0, outbound: 0 };

    fn hosts(seed: u64) -> ([Side; 2], Arc<Listener>) {
        let Command::Loopback(args) = Cli::parse_from(["ndkperf"]).into_command() else { panic!() };
        let [client, server] = edge::loopback(&args, seed).unwrap();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        ([client, server], listener)
    }

    #[test]
    fn a_group_survives_the_padding_of_private_data() {
        let group = Group { id: u64::MAX, queue_pairs: QUEUE_PAIRS_MAX, depth: 1024 };
        let mut data = [0; 56];
        data[..24].copy_from_slice(&group.encode());
        assert_eq!(Group::decode(&data), Some(group));
        assert_eq!(Group::decode(&data[..24]), Some(group));
    }

    #[test]
    fn other_private_data_make_no_group() {
        let group = Group { id: 1, queue_pairs: 2, depth: 3 };
        for wrong in [
            Group { queue_pairs: 0, ..group }.encode().to_vec(),
            Group { queue_pairs: QUEUE_PAIRS_MAX + 1, ..group }.encode().to_vec(),
            group.encode()[..23].to_vec(),
            vec![0; 56],
            Vec::new(),
        ] {
            assert_eq!(Group::decode(&wrong), None, "{wrong:?}");
        }
        let mut other_version = group.encode();
        other_version[7] += 1;
        assert_eq!(Group::decode(&other_version), None);
    }

    /// Goal: the connections of a group come to one thread, others to one each, and a group comes whole or not at all.
    #[test]
    fn the_connections_of_a_group_come_to_one_thread() {
        let ([client, _server], listener) = hosts(15);
        let (local, remote) = (SocketAddr::new(client.ip, 0), listener.local_address().unwrap());
        let adapter = client.host.adapter();
        let (pd, cq) = (adapter.create_pd().unwrap(), adapter.create_cq(64).unwrap());
        let mut requests = Vec::new();
        let mut arrive = |private_data: &[u8]| {
            let qp = pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
            let connector = adapter.create_connector().unwrap();
            let request = connector.connect(&qp, local, remote, LIMITS, private_data);
            requests.push((connector, request));
            any(std::slice::from_ref(&listener)).unwrap()
        };
        let mut groups = Groups::default();
        assert!(groups.take(arrive(&GROUP.encode()), 1).is_none(), "there is room for one");
        let incoming = groups.take(arrive(&GROUP.encode()), 2).unwrap();
        assert_eq!((incoming.group, incoming.connections()), (Some(GROUP), 2));
        let other = groups.take(arrive(&Group { id: 8, ..GROUP }.encode()), 2).unwrap();
        let alone = groups.take(arrive(b"hello"), 1).unwrap();
        assert_eq!((alone.group, alone.connections()), (None, 1));
        assert!(groups.take(arrive(&GROUP.encode()), 0).is_none(), "it goes to its thread");
        assert!(groups.take(arrive(&GROUP.encode()), 2).is_some(), "that one was whole");
        let came = [&incoming, &other, &alone].map(|thread| thread.connectors.try_iter().count());
        assert_eq!(came, [2, 1, 1]);
        let (_, refused) = &requests[0];
        assert!(refused.wait_timeout(Duration::from_secs(20)).unwrap().is_err());
    }

    /// Method: a client connects, says what it wants, and goes, before its second connection.
    #[test]
    fn a_group_ends_with_its_client() {
        let ([client, server], listener) = hosts(16);
        let (local, remote) = (SocketAddr::new(client.ip, 0), listener.local_address().unwrap());
        let waits = Waits { patience: Duration::from_secs(60), busy_poll: false, cq_mod: 1 };
        let serving = thread::spawn(move || {
            let connector = any(&[listener]).unwrap();
            let mut groups = Groups::default();
            let incoming = groups.take(connector, 2).unwrap();
            let start = Instant::now();
            let accepted = accept(server.host.adapter(), &incoming, waits, never);
            (accepted.err(), start.elapsed())
        });
        let adapter = client.host.adapter();
        let pd = adapter.create_pd().unwrap();
        let mut completions = Completions::new(adapter, 8, waits).unwrap();
        let depths = Depths { receive: 1, initiator: 1, inline_len: 0 };
        let connector = adapter.create_connector().unwrap();
        let mut connections =
            [Connection::new(&pd, connector, depths, &completions, 0, None).unwrap()];
        connections[0].connect(local, remote, LIMITS, &GROUP.encode(), &completions).unwrap();
        let mut control = ControlSender::new(&pd, 0).unwrap();
        let wish = Control::Start(Parameters::example(Operation::Send, 1, 1));
        control.send(&mut connections[0], wish).unwrap();
        completions.wait(&mut connections, None, &mut Vec::new()).unwrap();
        drop(connections);
        let (failure, elapsed) = serving.join().unwrap();
        assert!(matches!(failure, Some(Failure::Disconnected)), "{failure:?}");
        assert!(elapsed < waits.patience, "{elapsed:?}");
    }
}
