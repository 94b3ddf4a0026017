//! A connection over which both ends send each other control messages, and data between them.

use std::ops::Range;
use std::sync::Arc;

use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
use ndk_consumer::Pd;

use super::budget::DEPTH_MAX;
use super::control::{Control, NoControl, VERSION};
use super::ring::{ControlSender, Ring};
use crate::connection::Connection;
use crate::failure::Failure;

/// A connection with its receives.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    control: ControlSender,
    inbox: Inbox,
}

/// The receives that a connection brings.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Theirs is a part of the slots, and a message may come into any of those that share the queue.
    ring: Arc<Ring>,
    slots: Range<usize>,
}

impl Inbox {
    /// Those of `count` connections, each with `receives` of `len` bytes, in memory of its own unless they share a
    /// queue.
    pub(super) fn each(
        pd: &Arc<Pd>,
        count: usize,
        (receives, len): (usize, usize),
        shared: bool,
    ) -> Result<Vec<Self>, Failure> {
        let (rings, parts) = if shared { (1, count) } else { (count, 1) };
        let mut inboxes = Vec::new();
        for _ in 0..rings {
            let ring = Ring::new(pd, parts * receives, len, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
            let ring = Arc::new(ring);
            inboxes.extend((0..parts).map(|part| Self {
                ring: Arc::clone(&ring),
                slots: part * receives..(part + 1) * receives,
            }));
        }
        Ok(inboxes)
    }
}

/// A message of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Heard {
    Control(Control),
    Data,
}

impl Link {
    /// Posts the receives of `inbox`.
    pub(super) fn new(pd: &Arc<Pd>, connection: Connection, inbox: Inbox) -> Result<Self, Failure> {
        let control = ControlSender::new(pd, usize::from(DEPTH_MAX))?;
        let slots = inbox.slots.clone();
        let mut link = Self { connection, control, inbox };
        for slot in slots {
            link.post_receive(slot)?;
        }
        Ok(link)
    }

    pub(super) fn send(&mut self, control: Control) -> Result<(), Failure> {
        self.control.send(&mut self.connection, control)
    }

    /// Whether the send that has ended was one of a control message. Tags of data are below its own.
    pub(super) fn is_control(&mut self, tag: usize) -> bool {
        self.control.sent(tag)
    }

    /// The message in a slot, whose receive is to be posted again afterwards.
    pub(super) fn hear(&self, slot: usize, len: usize) -> Result<Heard, Failure> {
        let mut bytes = [0; Control::LEN];
        let Some(bytes) = bytes.get_mut(..len) else { return Ok(Heard::Data) };
        self.inbox.ring.get(slot, bytes);
        match Control::decode(bytes) {
            Ok(Control::Refused) => Err(Failure::Refused),
            Ok(control) => Ok(Heard::Control(control)),
            Err(NoControl::Other) => Ok(Heard::Data),
            Err(NoControl::Version(theirs)) => Err(Failure::Version { theirs, ours: VERSION }),
        }
    }

    pub(super) fn post_receive(&mut self, slot: usize) -> Result<(), Failure> {
        let ring = &self.inbox.ring;
        self.connection.receive(ring.mr(), ring.whole(slot), slot)
    }

    /// Receives.
    pub(super) fn inbox(&self) -> &Ring {
        &self.inbox.ring
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::completions::{Completions, Waits};
    use crate::connection::{Depths, Event};
    use crate::edge;
    use crate::perf::lanes::Lane;
    use crate::receives::SharedReceives;
    use crate::serve::any;
    use crate::session::Session;
    use clap::Parser;
    use ndk_consumer::{Buffer, ReadLimits};
    use std::net::SocketAddr;
    use std::thread;
    use std::time::Duration;

    const WAITS: Waits = Waits { patience: Duration::from_secs(20), busy_poll: false, cq_mod: 1 };
    const LIMITS: ReadLimits = ReadLimits { inbound: 0, outbound: 0 };
    const DEPTHS: Depths = Depths { receive: 4, initiator: 4, inline_len: 0 };

    /// Goal: where receives are shared, those of one connection take the messages of another.
    /// Method: each brings two, and one of them has four messages.
    #[test]
    fn shared_receives_are_of_all_connections() {
        let Command::Loopback(args) = Cli::parse_from(["ndkperf"]).into_command() else { panic!() };
        let [client, server] = edge::loopback(&args, 17).unwrap();
        let listener = server.host.adapter().listen(SocketAddr::new(server.ip, 0)).unwrap();
        let (local, remote) = (SocketAddr::new(client.ip, 0), listener.local_address().unwrap());
        let receiving = thread::spawn(move || {
            let adapter = server.host.adapter();
            let pd = adapter.create_pd().unwrap();
            let mut completions = Completions::new(adapter, 16, WAITS).unwrap();
            let shared = SharedReceives::new(&pd, 4).unwrap();
            let inboxes = Inbox::each(&pd, 2, (2, Control::LEN), true).unwrap();
            let mut lanes = Vec::new();
            for (place, inbox) in inboxes.into_iter().enumerate() {
                let connector = any(std::slice::from_ref(&listener)).unwrap();
                let shared = Some(&shared);
                let connection =
                    Connection::new(&pd, connector, DEPTHS, &completions, place, shared).unwrap();
                let link = Link::new(&pd, connection, inbox).unwrap();
                link.connection.accept(LIMITS).unwrap();
                lanes.push(Lane { link, sender: None, holder: None });
            }
            let mut events = Vec::new();
            while events.len() < 4 {
                completions.wait(&mut lanes, None, &mut events).unwrap();
            }
            let heard = events.iter().map(|(place, event)| match *event {
                Event::Received { tag, len } => (*place, lanes[1].link.hear(tag, len).unwrap()),
                other => panic!("{other:?}"),
            });
            heard.collect::<Vec<_>>()
        });
        let adapter = client.host.adapter();
        let pd = adapter.create_pd().unwrap();
        let mut sessions = [(); 2].map(|()| {
            let connector = adapter.create_connector().unwrap();
            let session = Session::new(adapter, &pd, connector, DEPTHS, WAITS).unwrap();
            session.connect(local, remote, LIMITS).unwrap();
            session
        });
        let said = [1, 2, 3, 4].map(|count| Control::Turn { count });
        let bytes = said.map(|control| control.encode()).concat();
        let mr = pd.register(Buffer::from(&bytes[..]), NDK_MR_FLAG_ALLOW_LOCAL_WRITE).unwrap();
        for place in 0..4 {
            let range = place * Control::LEN..(place + 1) * Control::LEN;
            sessions[0].send(&mr, range, place).unwrap();
        }
        let heard = receiving.join().unwrap();
        assert_eq!(heard, said.map(|control| (0, Heard::Control(control))));
    }
}
