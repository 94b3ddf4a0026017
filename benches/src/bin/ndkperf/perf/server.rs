//! The end that accepts: one connection of it. It holds the ring, checks, and sends where the client asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
use ndk_consumer::{Adapter, Connector, Pd, ReadLimits};

use super::budget::{Budget, DEPTH_MAX, MEMORY_MAX, RECEIVES_MAX};
use super::control::{Control, NoControl, Parameters, VERSION};
use super::holder::Holder;
use super::lanes::{Lane, Lanes};
use super::link::Link;
use super::pingpong::PingPong;
use super::plan::Limit;
use super::ring::{ControlSender, Ring};
use super::sender::Sender;
use crate::completions::{Completions, Waits};
use crate::connection::{Connection, Depths, Event};
use crate::failure::Failure;

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

/// A connection whose client has said what it wants.
pub(crate) struct Accepted {
    pub(crate) parameters: Parameters,
    pd: Arc<Pd>,
    connection: Connection,
    completions: Completions,
    receives_max: u32,
}

/// Accepts and serves one connection; see [`accept`] and [`Accepted::serve`].
pub(crate) fn serve(
    adapter: &Arc<Adapter>,
    connector: Connector,
    waits: Waits,
    memory: &Memory,
    stop: fn() -> bool,
) -> Result<u64, Failure> {
    accept(adapter, connector, waits, stop)?.serve(memory)
}

/// Accepts, and hears what the client wants. `stop` is asked from here on whether to end early.
pub(crate) fn accept(
    adapter: &Arc<Adapter>,
    connector: Connector,
    waits: Waits,
    stop: fn() -> bool,
) -> Result<Accepted, Failure> {
    let info = adapter.info()?;
    let pd = adapter.create_pd()?;
    // The client's depth is not known yet.
    let receives_max = RECEIVES_MAX.min(info.MaxReceiveQueueDepth);
    let initiator = u32::from(DEPTH_MAX) + ControlSender::SLOTS;
    let depths = Depths { receive: receives_max, initiator, inline_len: 0 };
    let mut completions = Completions::new(adapter, depths.receive + depths.initiator, waits)?;
    completions.stop_when(stop);
    let mut connection = Connection::new(&pd, connector, depths, &completions, 0)?;
    let limits =
        ReadLimits { inbound: info.MaxInboundReadLimit, outbound: info.MaxOutboundReadLimit };
    let parameters = greet(&mut connection, &mut completions, &pd, limits)?;
    Ok(Accepted { parameters, pd, connection, completions, receives_max })
}

/// Its one receive is used up by the client's wish, so the ones for data can follow.
fn greet(
    connection: &mut Connection,
    completions: &mut Completions,
    pd: &Arc<Pd>,
    limits: ReadLimits,
) -> Result<Parameters, Failure> {
    let inbox = Ring::new(pd, 1, Control::LEN, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
    connection.receive(inbox.mr(), inbox.range(0, Control::LEN), 0)?;
    connection.accept(limits)?;
    let mut events = Vec::new();
    let heard = completions.wait(std::slice::from_mut(connection), None, &mut events);
    connection.tell_of(heard)?;
    let mut bytes = [0; Control::LEN];
    inbox.get(0, &mut bytes);
    match (Control::decode(&bytes), events.as_slice()) {
        (Ok(Control::Start(parameters)), [(_, Event::Received { len: Control::LEN, .. })]) => {
            Ok(parameters)
        }
        (Err(NoControl::Version(theirs)), _) => {
            refuse(connection, completions, pd)?;
            Err(Failure::Version { theirs, ours: VERSION })
        }
        _ => Err(Failure::Protocol("the client does not speak the ndkperf protocol")),
    }
}

/// Tells the client that nothing comes of it, and waits until it has gone.
fn refuse(
    connection: &mut Connection,
    completions: &mut Completions,
    pd: &Arc<Pd>,
) -> Result<(), Failure> {
    // Its memory is there until the send has ended.
    let mut control = ControlSender::new(pd, 0)?;
    control.send(connection, Control::Refused)?;
    let mut events = Vec::new();
    while !connection.is_idle() {
        completions.wait(std::slice::from_mut(connection), None, &mut events)?;
    }
    connection.disconnect().map(|_| ())
}

impl Accepted {
    /// Serves it to its end; returns how many messages the client had.
    pub(crate) fn serve(mut self, memory: &Memory) -> Result<u64, Failure> {
        let Ok(budget) = Budget::new(&self.parameters, self.receives_max) else {
            refuse(&mut self.connection, &mut self.completions, &self.pd)?;
            return Err(Failure::Protocol("the client asks for more than this server has"));
        };
        let Some(_share) = memory.take(budget.bytes) else {
            refuse(&mut self.connection, &mut self.completions, &self.pd)?;
            return Err(Failure::Protocol("the client asks for more than other clients leave"));
        };
        let Self { parameters, pd, connection, completions, .. } = self;
        let link = Link::new(&pd, connection, budget.receives, budget.receive_len)?;
        if parameters.is_ping_pong() {
            let both = [parameters.of_server(), parameters];
            let mut load = PingPong::new(&pd, link, completions, both, false, budget)?;
            let served = load.greet(false).and_then(|()| load.pong());
            let messages = load.connection().tell_of(served)?;
            load.connection().wait_disconnected()?;
            return Ok(messages);
        }
        let holder = Some(Holder::new(&pd, parameters, budget)?);
        let sends = || Sender::new(&pd, parameters.of_server(), false);
        let sender = parameters.bidirectional.then(sends).transpose()?;
        let mut lanes = Lanes::new(vec![Lane { link, sender, holder }], completions);
        let served = stream(&mut lanes, &parameters);
        // As long as the client may send, there is memory to send to.
        let Some(Lane { link, holder: Some(holder), .. }) = lanes.lanes.first() else {
            return served.map(|()| 0);
        };
        link.connection.tell_of(served)?;
        // The client disconnects when it has the summary; our send may then end either way.
        link.connection.wait_disconnected()?;
        Ok(holder.done())
    }
}

fn stream(lanes: &mut Lanes, parameters: &Parameters) -> Result<(), Failure> {
    lanes.invite()?;
    lanes.wait_ready()?;
    if parameters.bidirectional {
        if parameters.warmup.is_some() {
            lanes.send(|_| parameters.warmup, |_| false)?;
        }
        let limit = Some(parameters.messages).filter(|messages| *messages > 0);
        lanes.send(|_| limit.map(Limit::Messages), |_| false)?;
    }
    lanes.end()
}
