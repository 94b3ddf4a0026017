//! One connection that carries messages, WRITEs and READs.

mod completions;
mod config;
mod event;
mod ledger;
mod slots;

pub use config::EndpointConfig;
pub use event::{EndpointError, Event, Message, Operation};

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use completions::LOOK;
use driver::abi::*;
use ledger::{Ledger, Pending};
use slots::Slots;

use crate::region::end_registration;
use crate::{
    Buffer, Connector, Cq, Flags, Invalidate, NdkError, Pd, Qp, QpConfig, Region, Remote, Rights,
    Sge,
};

type Result<T, E = EndpointError> = std::result::Result<T, E>;

/// One end of a connection, with the memory of its messages.
///
/// A message goes out from a slot of registered memory, and comes into another, which is posted again at once. The
/// endpoint numbers its requests, accounts for their completions, and tells of those that its user waits for as
/// [`Event`]s. Its drop disconnects.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use ndk_consumer::{EndpointConfig, Rights, pair};
///
/// let [client, server] = pair()?;
/// let listener = server.listen(7174)?;
/// let at = listener.local_address()?;
/// let config = EndpointConfig::default();
/// let (mut active, mut passive) = std::thread::scope(|scope| {
///     let passive = scope.spawn(|| server.accept(&listener, &config));
///     (client.connect(at, &config).unwrap(), passive.join().unwrap().unwrap())
/// });
///
/// active.send(b"a question")?;
/// assert_eq!(passive.receive()?.bytes, b"a question");
///
/// let source = client.register(b"one WRITE".as_slice(), Rights::empty())?;
/// let target = server.register(&[0; 9][..], Rights::REMOTE_WRITE)?;
/// active.write(&[source.sge(0..9)], target.remote(0))?;
/// assert_eq!(target.buffer().to_vec(0..9), b"one WRITE");
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    connector: Connector,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    receives: Slots,
    sends: Slots,
    ledger: Ledger,
    /// The registrations that requests of this connection may end, by their tokens.
    registered: BTreeMap<u32, Arc<AtomicBool>>,
    events: VecDeque<Event>,
    /// The latest of the requests that calls of this endpoint wait for, and the latest that has ended.
    waited: [u64; 2],
    /// A request was cancelled: the reason comes a moment later.
    cancelled: Option<Operation>,
    ended: Option<EndpointError>,
    /// See [`EndpointConfig::requests`].
    request_max: usize,
    time_limit: Duration,
}

impl Endpoint {
    /// Connects from `local` (port 0 lets the provider choose) to `remote`.
    ///
    /// # Errors
    /// [`EndpointError::Refused`], or the status of a call: `STATUS_IO_TIMEOUT` where nobody accepts for as long as the
    /// provider waits, which is minutes. [`EndpointConfig::time_limit`] is of the calls after that.
    pub fn connect(
        pd: &Arc<Pd>,
        local: SocketAddr,
        remote: SocketAddr,
        config: &EndpointConfig,
    ) -> Result<Self> {
        let endpoint = Self::new(pd, pd.adapter().create_connector()?, config)?;
        let Self { connector, qp, .. } = &endpoint;
        let request = connector.connect(qp, local, remote, config.limits, &config.private_data);
        request.wait().map_err(|error| refused(connector, error))?;
        connector.complete_connect().wait()?;
        Ok(endpoint)
    }

    /// Accepts a connection that a [`Listener`](crate::Listener) of the same adapter has given; ends when it is
    /// established.
    ///
    /// # Errors
    /// The status of a call.
    pub fn accept(pd: &Arc<Pd>, connector: Connector, config: &EndpointConfig) -> Result<Self> {
        let endpoint = Self::new(pd, connector, config)?;
        let Self { connector, qp, .. } = &endpoint;
        connector.accept(qp, config.limits, &config.private_data).wait()?;
        Ok(endpoint)
    }

    /// With all receives posted, before there is a peer: else its first message would find none.
    fn new(pd: &Arc<Pd>, connector: Connector, config: &EndpointConfig) -> Result<Self> {
        let initiator_depth = config.sends + config.requests;
        let cq = pd.adapter().create_cq(config.receives + initiator_depth)?;
        let size = QpConfig {
            receive_depth: config.receives,
            initiator_depth,
            initiator_sge: config.elements,
            ..QpConfig::default()
        };
        let qp = pd.create_qp(&cq, &cq, size)?;
        let (receives, len) = (config.receives, config.receive_len);
        let mut endpoint = Self {
            connector,
            qp,
            cq,
            receives: Slots::new(pd, receives, len, Rights::LOCAL_WRITE)?,
            sends: Slots::new(pd, config.sends, config.send_len, Rights::empty())?,
            ledger: Ledger::new(),
            registered: BTreeMap::new(),
            events: VecDeque::new(),
            waited: [0; 2],
            cancelled: None,
            ended: None,
            request_max: config.requests as usize,
            time_limit: config.time_limit,
        };
        while let Some(slot) = endpoint.receives.take() {
            endpoint.post_receive(slot)?;
        }
        Ok(endpoint)
    }

    /// Sends a message; waits where as many as may be are under way.
    ///
    /// # Errors
    /// The end of the connection, or [`EndpointError::TimedOut`].
    ///
    /// # Panics
    /// If the message is longer than the configuration says.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_from_slot(message, |qp, context, sge| qp.send(context, &[sge], Flags::empty()))
    }

    /// Sends a message that ends a token of the peer.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    ///
    /// # Panics
    /// As [`Endpoint::send`].
    pub fn send_and_invalidate(&mut self, message: &[u8], token: u32) -> Result<()> {
        self.send_from_slot(message, |qp, context, sge| {
            qp.send_and_invalidate(context, &[sge], Flags::empty(), token)
        })
    }

    fn send_from_slot(
        &mut self,
        message: &[u8],
        post: impl FnOnce(&Qp, usize, Sge<'_>) -> crate::Result<()>,
    ) -> Result<()> {
        assert!(message.len() <= self.sends.slot_len(), "a message of {} bytes", message.len());
        self.pump_until(|endpoint| !endpoint.sends.is_exhausted())?;
        let slot = self.sends.take().expect("one is free");
        let Self { qp, sends, ledger, .. } = self;
        let sge = sends.fill(slot, message);
        let posted = ledger.post(Pending::Send { slot }, |context| post(qp, context, sge));
        if posted.is_err() {
            self.sends.give_back(slot);
        }
        posted.map_err(|error| self.late(error))
    }

    /// Waits for the next message. Other events stay for [`Endpoint::next`].
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn receive(&mut self) -> Result<Message> {
        let message = |event: &Event| matches!(event, Event::Message(_));
        match self.take(self.time_limit, message)? {
            Some(Event::Message(message)) => Ok(message),
            Some(Event::Ended { .. }) | None => Err(EndpointError::TimedOut),
        }
    }

    /// The next event; `None` where nothing happens for `timeout`.
    ///
    /// # Errors
    /// The end of the connection, after all events that came before it.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Event>> {
        self.take(timeout, |_| true)
    }

    /// Posts an RDMA WRITE, whose end is an event with this tag; waits where as many requests as may be are under way.
    ///
    /// # Errors
    /// As [`Endpoint::send`]; more elements than the configuration says.
    pub fn post_write(&mut self, tag: u32, from: &[Sge<'_>], to: Remote) -> Result<()> {
        self.post(Operation::Write, tag.into(), |qp, context| {
            qp.write(context, from, to, Flags::empty())
        })
    }

    /// As [`Endpoint::post_write`], for an RDMA READ.
    ///
    /// # Errors
    /// As [`Endpoint::post_write`].
    pub fn post_read(&mut self, tag: u32, to: &[Sge<'_>], from: Remote) -> Result<()> {
        self.post(Operation::Read, tag.into(), |qp, context| {
            qp.read(context, to, from, Flags::empty())
        })
    }

    /// WRITEs, and waits for the end. The peer's memory has [`Rights::REMOTE_WRITE`]; ours needs no right.
    ///
    /// # Errors
    /// As [`Endpoint::post_write`].
    pub fn write(&mut self, from: &[Sge<'_>], to: Remote) -> Result<()> {
        self.post_and_wait(Operation::Write, |qp, context| {
            qp.write(context, from, to, Flags::empty())
        })
    }

    /// READs, and waits for the end. The peer's memory has [`Rights::REMOTE_READ`], ours [`Rights::LOCAL_WRITE`].
    ///
    /// # Errors
    /// As [`Endpoint::write`].
    pub fn read(&mut self, to: &[Sge<'_>], from: Remote) -> Result<()> {
        self.post_and_wait(Operation::Read, |qp, context| {
            qp.read(context, to, from, Flags::empty())
        })
    }

    /// Registers `range` of a buffer with these rights. Requests that are posted after this may name it, so the
    /// result may be sent to the peer at once.
    ///
    /// # Errors
    /// [`EndpointError::Registered`]; a range that is empty or too long for the region; as [`Endpoint::post_write`].
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    pub fn register(
        &mut self,
        region: &mut Region,
        buffer: &Arc<Buffer>,
        range: std::ops::Range<usize>,
        rights: Rights,
    ) -> Result<Remote> {
        if region.is_registered() {
            return Err(EndpointError::Registered);
        }
        let mapping = region.map(buffer, range)?;
        self.post(Operation::Register, OWN, |qp, context| {
            qp.fast_register(context, region.frmr(), mapping.what(), rights)
        })?;
        let (remote, live) = region.registered(mapping);
        self.registered.insert(remote.token, live);
        Ok(remote)
    }

    /// Ends the registration of a region, and waits for that: the peer reaches the memory no more. Nothing is left to
    /// do where the peer has ended it.
    ///
    /// # Errors
    /// As [`Endpoint::write`].
    pub fn invalidate(&mut self, region: &Region) -> Result<()> {
        if !region.is_registered() {
            return Ok(());
        }
        let frmr = region.frmr();
        self.post_and_wait(Operation::Invalidate, |qp, context| {
            qp.invalidate(context, Invalidate::Region(frmr), Flags::empty())
        })?;
        end_registration(&mut self.registered, frmr.remote_token());
        Ok(())
    }

    /// Waits until all messages and requests of ours have ended well.
    ///
    /// # Errors
    /// As [`Endpoint::send`]; a request that has failed or was cancelled is one.
    pub fn drain(&mut self) -> Result<()> {
        self.pump_until(|endpoint| endpoint.ledger.is_sent())?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Cancels all that is posted, and waits until it has ended; the connection is of no use after that. Returns the
    /// tags of WRITEs and READs that were cancelled; the data of these are undefined.
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`].
    pub fn flush(&mut self) -> Result<Vec<u32>> {
        self.qp.flush();
        let (deadline, mut tags) = (Instant::now() + self.time_limit, Vec::new());
        let mut results = [NDK_RESULT_EX::EMPTY; LOOK];
        while self.ledger.len() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let taken = self.cq.wait_results_ex(&mut results, left)?;
            if taken == 0 {
                return Err(EndpointError::TimedOut);
            }
            for result in &results[..taken] {
                match self.ledger.end(result.RequestContext.addr())? {
                    Pending::Request { tag, .. } if !result.Status.is_success() => {
                        tags.extend(u32::try_from(tag));
                    }
                    Pending::Request { .. } | Pending::Receive { .. } | Pending::Send { .. } => {}
                }
            }
        }
        self.ended.get_or_insert(EndpointError::Disconnected);
        Ok(tags)
    }

    /// Ends the connection when all requests have ended well; whether the peer has confirmed that. A peer that has all it
    /// wanted may be gone before its answer arrives: that is no failure.
    ///
    /// # Errors
    /// As [`Endpoint::drain`].
    pub fn disconnect(mut self) -> Result<bool> {
        self.drain()?;
        match self.connector.disconnect().wait_timeout(self.time_limit) {
            Some(Ok(())) => Ok(true),
            Some(Err(NdkError { status: STATUS_IO_TIMEOUT, .. })) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => Err(EndpointError::TimedOut),
        }
    }

    /// The connection itself: its addresses, the data of the peer.
    #[must_use]
    pub const fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Requests that are posted and have not ended, receives included.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.ledger.len()
    }

    fn post(
        &mut self,
        operation: Operation,
        tag: u64,
        post: impl FnOnce(&Qp, usize) -> crate::Result<()>,
    ) -> Result<()> {
        self.pump_until(|endpoint| endpoint.ledger.requests() < endpoint.request_max)?;
        let Self { qp, ledger, .. } = self;
        let posted = ledger.post(Pending::Request { operation, tag }, |context| post(qp, context));
        posted.map_err(|error| self.late(error))
    }

    fn post_and_wait(
        &mut self,
        operation: Operation,
        post: impl FnOnce(&Qp, usize) -> crate::Result<()>,
    ) -> Result<()> {
        let number = self.waited[0] + 1;
        self.post(operation, OWN + number, post)?;
        self.waited[0] = number;
        self.pump_until(|endpoint| endpoint.waited[1] == number)
    }

    fn post_receive(&mut self, slot: usize) -> Result<()> {
        let Self { qp, receives, ledger, .. } = self;
        let posted = ledger.post(Pending::Receive { slot }, |context| {
            qp.receive(context, &[receives.whole(slot)])
        });
        Ok(posted?)
    }
}

fn refused(connector: &Connector, error: NdkError) -> EndpointError {
    if error.status != STATUS_CONNECTION_REFUSED {
        return error.into();
    }
    let private_data = connector.connection_data().map_or_else(|_| Vec::new(), |d| d.private_data);
    EndpointError::Refused { status: error.status, private_data }
}

/// Above the tags of users: a registration, of whose success nobody is told. Above it the numbers of requests that a
/// call waits for.
const OWN: u64 = 1 << 32;

#[cfg(all(test, target_os = "linux"))]
mod tests;
