//! The end that accepts: one thread of it, with a connection or a group. It holds the ring, checks, and sends where the
//! client asks for that.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
use ndk_consumer::{Adapter, Pd, ReadLimits};

use super::budget::{Budget, DEPTH_MAX, MEMORY_MAX, RECEIVES_MAX, SHARED_MAX};
use super::control::{Control, NoControl, Parameters, VERSION};
use super::group::Incoming;
use super::holder::Holder;
use super::lanes::{Lane, Lanes};
use super::link::{Inbox, Link};
use super::pingpong::PingPong;
use super::plan::Limit;
use super::ring::{ControlSender, Ring};
use super::sender::Sender;
use crate::completions::{Completions, Waits};
use crate::connection::{Connection, Depths, Event};
use crate::failure::Failure;
use crate::receives::SharedReceives;

/// The registered memory that all connections of a server share.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    taken: AtomicU64,
}

/// What one connection has of it, until it is dropped.
pub(crate) struct Share<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    /// `None` where there is not as much.
    pub(crate) fn take(&self, bytes: u64) -> Option<Share<'_>> {
        let share = Share { memory: self, bytes };
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= MEMORY_MAX).then_some(share)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Connections whose client has said what it wants.
pub(crate) struct Accepted {
    connections: Vec<Connection>,
    /// What goes over each of them.
    parameters: Vec<Parameters>,
    shared: Option<Rc<SharedReceives>>,
    pd: Arc<Pd>,
    completions: Completions,
    depths: Depths,
}

/// Accepts and serves; see [`accept`] and [`Accepted::serve`].
pub(crate) fn serve(
    adapter: &Arc<Adapter>,
    incoming: &Incoming,
    waits: Waits,
    memory: &Memory,
    stop: fn() -> bool,
) -> Result<u64, Failure> {
    accept(adapter, incoming, waits, stop)?.serve(memory)
}

/// Accepts, and hears what the client wants. `stop` is asked from here on whether to end early.
pub(crate) fn accept(
    adapter: &Arc<Adapter>,
    incoming: &Incoming,
    waits: Waits,
    stop: fn() -> bool,
) -> Result<Accepted, Failure> {
    let info = adapter.info()?;
    let pd = adapter.create_pd()?;
    let (receive, depth) = match incoming.group {
        // The client's depth is not known yet.
        None => (RECEIVES_MAX.min(info.MaxReceiveQueueDepth), DEPTH_MAX),
        Some(group) => (SHARED_MAX.min(info.MaxSrqDepth), group.depth),
    };
    let initiator = u32::from(depth) + ControlSender::SLOTS;
    let depths = Depths { receive, initiator, inline_len: 0 };
    // As much as the first connection takes: no more before its peer is proved.
    let mut completions = Completions::new(adapter, receive + initiator, waits)?;
    completions.stop_when(stop);
    let shared = incoming.group.map(|_| SharedReceives::new(&pd, receive)).transpose()?;
    let (connections, parameters) = (Vec::new(), Vec::new());
    let mut accepted = Accepted { connections, parameters, shared, pd, completions, depths };
    let limits =
        ReadLimits { inbound: info.MaxInboundReadLimit, outbound: info.MaxOutboundReadLimit };
    for _ in 0..incoming.connections() {
        let greeted = accepted.admit(incoming, limits).and_then(|inbox| accepted.greet(&inbox));
        tell_all(&accepted.connections, greeted)?;
    }
    Ok(accepted)
}

/// As [`Connection::tell_of`], of all of them.
fn tell_all<'a, T>(
    connections: impl IntoIterator<Item = &'a Connection>,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    connections.into_iter().fold(result, |result, connection| connection.tell_of(result))
}

impl Accepted {
    /// What the client wants of the first connection; that of the others is the same but for their shares.
    pub(crate) fn parameters(&self) -> Parameters {
        self.parameters[0]
    }

    /// Accepts the next connection; the first one takes the places of all. Its one receive, of which this is the memory, is
    /// used up by the client's wish, so the ones for data can follow.
    fn admit(&mut self, incoming: &Incoming, limits: ReadLimits) -> Result<Ring, Failure> {
        let Self { connections, shared, pd, completions, depths, .. } = self;
        let connector = incoming.next(connections, completions)?;
        let place = connections.len();
        let mut new = Connection::new(pd, connector, *depths, completions, place, shared.as_ref())?;
        let inbox = Ring::new(pd, 1, Control::LEN, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
        new.receive(inbox.mr(), inbox.whole(0), 0)?;
        let is_first = place == 0;
        match new.accept_unless(limits, || is_first && incoming.place.is_lost()) {
            Err(failure) if is_first => return Err(Failure::Unproven(Box::new(failure))),
            accepted => accepted?,
        }
        connections.push(new);
        if is_first {
            self.take_places(incoming)?;
        }
        Ok(inbox)
    }

    /// The peer is there.
    fn take_places(&mut self, incoming: &Incoming) -> Result<(), Failure> {
        if !incoming.place.prove() {
            self.refuse()?;
            return Err(Failure::Protocol("the client asks for more than other clients leave"));
        }
        if incoming.is_shared() {
            let Depths { receive, initiator, .. } = self.depths;
            let initiators = u32::from(incoming.connections()) * initiator;
            self.completions.cq().resize(receive + initiators)?;
        }
        Ok(())
    }

    /// Hears what the client wants of the newest connection.
    fn greet(&mut self, inbox: &Ring) -> Result<(), Failure> {
        let Self { connections, parameters, completions, .. } = self;
        let place = connections.len() - 1;
        let mut events = Vec::new();
        completions.wait(connections, None, &mut events)?;
        let mut bytes = [0; Control::LEN];
        inbox.get(0, &mut bytes);
        match (Control::decode(&bytes), events.as_slice()) {
            (Ok(Control::Start(wish)), [(from, Event::Received { len: Control::LEN, .. })])
                if *from == place && parameters.iter().all(|other| other.is_beside(&wish)) =>
            {
                parameters.push(wish);
                Ok(())
            }
            (Err(NoControl::Version(theirs)), _) => {
                self.refuse()?;
                Err(Failure::Version { theirs, ours: VERSION })
            }
            _ => Err(Failure::Protocol("the client does not speak the ndkperf protocol")),
        }
    }

    /// Tells the client, over the newest connection, that nothing comes of it, and waits until it has gone.
    fn refuse(&mut self) -> Result<(), Failure> {
        let Self { connections, completions, pd, .. } = self;
        // Its memory is there until the send has ended.
        let mut control = ControlSender::new(pd, 0)?;
        if let Some(newest) = connections.last_mut() {
            control.send(newest, Control::Refused)?;
        }
        let mut events = Vec::new();
        while !connections.iter().all(Connection::is_idle) {
            completions.wait(connections, None, &mut events)?;
        }
        connections.last().map_or(Ok(()), |newest| newest.disconnect().map(|_| ()))
    }

    /// What each connection takes.
    fn budget(&self) -> Option<Budget> {
        let Depths { receive, initiator, .. } = self.depths;
        let each = receive / self.connections.len() as u32;
        let wish = self.parameters();
        let posts = u32::from(wish.depth) + ControlSender::SLOTS;
        Budget::new(&wish, each.min(RECEIVES_MAX)).ok().filter(|_| posts <= initiator)
    }

    /// Serves them to their end; returns how many messages the client had.
    pub(crate) fn serve(mut self, memory: &Memory) -> Result<u64, Failure> {
        let Some(budget) = self.budget() else {
            self.refuse()?;
            return Err(Failure::Protocol("the client asks for more than this server has"));
        };
        let Some(_share) = memory.take(budget.bytes * self.connections.len() as u64) else {
            self.refuse()?;
            return Err(Failure::Protocol("the client asks for more than other clients leave"));
        };
        let first = self.parameters();
        let Self { connections, parameters, shared, pd, completions, .. } = self;
        let room = (budget.receives, budget.receive_len);
        let inboxes = Inbox::each(&pd, connections.len(), room, shared.is_some())?;
        let links = connections.into_iter().zip(inboxes);
        let mut links = links.map(|(connection, inbox)| Link::new(&pd, connection, inbox));
        if first.is_ping_pong() {
            let (Some(link), None) = (links.next().transpose()?, links.next()) else {
                return Err(Failure::Protocol("the client does not speak the ndkperf protocol"));
            };
            let both = [first.of_server(), first];
            let mut load = PingPong::new(&pd, link, completions, both, false, budget)?;
            let served = load.greet(false).and_then(|()| load.pong());
            let messages = load.connection().tell_of(served)?;
            load.connection().wait_disconnected()?;
            return Ok(messages);
        }
        let lanes = links.zip(&parameters).map(|(link, wish)| lane(&pd, link?, *wish, budget));
        let mut lanes = Lanes::new(lanes.collect::<Result<_, _>>()?, completions);
        let served = stream(&mut lanes, &parameters);
        // As long as the client may send, there is memory to send to.
        let connections = || lanes.lanes.iter().map(|lane| &lane.link.connection);
        tell_all(connections(), served)?;
        // The client disconnects when it has the summary; our send may then end either way.
        connections().try_for_each(Connection::wait_disconnected)?;
        Ok(lanes.lanes.iter().filter_map(|lane| lane.holder.as_ref()).map(Holder::done).sum())
    }
}

fn lane(pd: &Arc<Pd>, link: Link, wish: Parameters, budget: Budget) -> Result<Lane, Failure> {
    let sends = || Sender::new(pd, wish.of_server(), false);
    let sender = wish.bidirectional.then(sends).transpose()?;
    Ok(Lane { link, sender, holder: Some(Holder::new(pd, wish, budget)?) })
}

fn stream(lanes: &mut Lanes, parameters: &[Parameters]) -> Result<(), Failure> {
    lanes.invite()?;
    lanes.wait_ready()?;
    let first = parameters[0];
    if first.bidirectional {
        if first.warmup.is_some() {
            lanes.send(|place| parameters[place].warmup, |_| false)?;
        }
        let messages = |place: usize| Some(parameters[place].messages).filter(|count| *count > 0);
        lanes.send(|place| messages(place).map(Limit::Messages), |_| false)?;
    }
    lanes.end()
}
