//! Connections: a listener, two ends, and the exchange between them.
#![allow(unsafe_code, reason = "a callback of a C interface, and memory that it shares")]

use core::net::SocketAddr;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use ndk_abi::*;

use crate::call::{Call, Events, disconnected};
use crate::completion::Queue;
use crate::kinds::{Object, call};
use crate::region::Region;
use crate::step::Step;
use crate::{Failure, Machine};

/// Connections that have come, for which there is room.
const BACKLOG: usize = 512;

/// The connections of a listener, which its callback brings.
pub(crate) struct Backlog {
    came: AtomicUsize,
    connectors: [AtomicPtr<NDK_CONNECTOR>; BACKLOG],
    machine: &'static dyn Machine,
}

/// A listener.
#[derive(Clone, Copy)]
pub(crate) struct Listener<'f> {
    pub(crate) listener: Object<NDK_LISTENER>,
    pub(crate) address: SocketAddr,
    backlog: &'f Backlog,
}

/// One side of a connection.
#[derive(Clone, Copy)]
pub(crate) struct End<'f> {
    pub(crate) pd: Object<NDK_PD>,
    pub(crate) queue: Queue<'f>,
    pub(crate) qp: Object<NDK_QP>,
    pub(crate) region: Region,
    pub(crate) events: &'f Events,
}

/// A connection.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'f> {
    pub(crate) client: End<'f>,
    pub(crate) server: End<'f>,
    pub(crate) connectors: [Object<NDK_CONNECTOR>; 2],
    pub(crate) listener: Listener<'f>,
}

/// Bytes of each end's memory: several packets of the largest path MTU, and no multiple of it.
pub(crate) const MEMORY_LEN: usize = 5 * PAGE_SIZE;
/// Requests of each queue.
pub(crate) const DEPTH: u32 = 16;
/// READs in each direction at once.
const READS: u32 = 4;
/// The private data of the connects and of their answers.
pub(crate) const CALLER_DATA: &[u8] = b"flight: connect";
pub(crate) const CALLEE_DATA: &[u8] = b"flight: accept";

/// [`NDK_FN_CONNECT_EVENT_CALLBACK`]. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `context` is the backlog of an open listener; the connector is the consumer's from here on.
unsafe extern "system" fn connection_came(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the backlog lives until the listener is closed.
    let backlog = unsafe { &*context.cast_const().cast::<Backlog>() };
    let place = backlog.came.fetch_add(1, Ordering::Relaxed) % BACKLOG;
    let place = backlog.connectors.get(place);
    let is_kept = place.is_some_and(|place| {
        let (kept, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        place.compare_exchange(null_mut(), connector, kept, failed).is_ok()
    });
    if !is_kept {
        refuse(connector);
    }
    backlog.machine.ring();
}

/// Closes a connector for which there is no place. IRQL <= DISPATCH_LEVEL.
fn refuse(connector: *mut NDK_CONNECTOR) {
    let Some(connector) = NonNull::new(connector) else { return };
    let connector = Object::new(connector, usize::MAX);
    let close = connector.close();
    // SAFETY: the connector is open, and nobody else's.
    let _ = unsafe { close(connector.header(), Some(nobody_waits), null_mut()) };
}

/// # Safety
/// None: a completion that nobody waits for.
unsafe extern "system" fn nobody_waits(_context: PVOID) {}

impl Backlog {
    /// The connection that has waited for longest, as far as they are in order.
    pub(crate) fn take(&self) -> Option<*mut NDK_CONNECTOR> {
        self.connectors.iter().find_map(|place| {
            let connector = place.swap(null_mut(), Ordering::AcqRel);
            (!connector.is_null()).then_some(connector)
        })
    }
}

impl<'f> Step<'f> {
    /// Listens at the server's address, at a port that the provider chooses.
    pub(crate) fn listen(&mut self) -> Result<Listener<'f>, Failure> {
        let place = self.allocate(size_of::<Backlog>())?.cast::<Backlog>();
        let backlog = Backlog {
            came: AtomicUsize::new(0),
            connectors: [const { AtomicPtr::new(null_mut()) }; BACKLOG],
            machine: self.flight.machine,
        };
        // SAFETY: the memory has room for it, and is aligned.
        unsafe { place.write(backlog) };
        // SAFETY: just written; freed when each object of the step is closed.
        let backlog = unsafe { &*place };
        let (adapter, context) = (self.adapter(1), place.cast());
        let came = Some(connection_came as NDK_FN_CONNECT_EVENT_CALLBACK);
        let listener = self.create("NdkCreateListener", |completion, ending, out| {
            call!(adapter, NdkCreateListener(came, context, completion, ending, out))
        })?;
        let address = SOCKADDR_INET::from(self.address(1).unwrap_or(NOWHERE));
        let call = self.begin("NdkListen", |completion, context| {
            call!(listener, NdkListen(address.as_ptr(), address.len(), completion, context))
        })?;
        self.succeed(call)?;
        let address = address_of("NdkGetLocalAddress", |address, len| {
            call!(listener, NdkGetLocalAddress(address, len))
        })?;
        self.backlog = Some(backlog);
        Ok(Listener { listener, address, backlog })
    }

    /// A side with objects and memory of its own.
    pub(crate) fn end(&mut self, end: usize) -> Result<End<'f>, Failure> {
        let events = self.events()?;
        let pd = self.pd(end)?;
        let cq = self.cq(end, 4 * DEPTH as usize, events)?;
        let qp = self.qp(pd, cq, DEPTH)?;
        let memory = self.memory(MEMORY_LEN)?;
        let region = self.register(pd, memory)?;
        Ok(End { pd, queue: Queue { cq, events }, qp, region, events })
    }

    /// Begins to connect the client's queue pair to a listener.
    pub(crate) fn begin_connect(
        &mut self,
        connector: Object<NDK_CONNECTOR>,
        qp: Object<NDK_QP>,
        to: SocketAddr,
    ) -> Result<Call, Failure> {
        let from = SOCKADDR_INET::from(self.address(0).unwrap_or(NOWHERE));
        let to = SOCKADDR_INET::from(to);
        let data = CALLER_DATA.as_ptr().cast();
        self.begin("NdkConnect", |completion, context| {
            call!(
                connector,
                NdkConnect(
                    qp.as_ptr(),
                    from.as_ptr(),
                    from.len(),
                    to.as_ptr(),
                    to.len(),
                    READS,
                    READS,
                    data,
                    CALLER_DATA.len() as u32,
                    completion,
                    context,
                )
            )
        })
    }

    /// Waits for a connection at the listener; also ends where the connect does.
    pub(crate) fn incoming(
        &mut self,
        listener: Listener<'_>,
        connect: Call,
    ) -> Result<Object<NDK_CONNECTOR>, Failure> {
        let mut came = None;
        let slots = &self.flight.slots;
        self.wait("a connect event", || {
            came = came.or_else(|| listener.backlog.take());
            came.is_some() || slots.has_ended(connect)
        })?;
        match came.or_else(|| listener.backlog.take()) {
            Some(connector) => self.adopt(connector),
            None => {
                self.succeed(connect)?;
                Err(Failure::Wrong { what: "connect events", found: 0, expected: 1 })
            }
        }
    }

    /// Begins to accept.
    pub(crate) fn begin_accept(
        &mut self,
        connector: Object<NDK_CONNECTOR>,
        qp: Object<NDK_QP>,
        events: &Events,
    ) -> Result<Call, Failure> {
        let gone = Some(disconnected as NDK_FN_DISCONNECT_EVENT_CALLBACK);
        let (data, events) = (CALLEE_DATA.as_ptr().cast(), events.context());
        self.begin("NdkAccept", |completion, context| {
            call!(
                connector,
                NdkAccept(
                    qp.as_ptr(),
                    READS,
                    READS,
                    data,
                    CALLEE_DATA.len() as u32,
                    gone,
                    events,
                    completion,
                    context,
                )
            )
        })
    }

    /// Completes a connect that the peer has accepted.
    pub(crate) fn complete_connect(
        &mut self,
        connector: Object<NDK_CONNECTOR>,
        events: &Events,
    ) -> Result<(), Failure> {
        let gone = Some(disconnected as NDK_FN_DISCONNECT_EVENT_CALLBACK);
        let events = events.context();
        let call = self.begin("NdkCompleteConnect", |completion, context| {
            call!(connector, NdkCompleteConnect(gone, events, completion, context))
        })?;
        self.succeed(call)
    }

    /// Connects two queue pairs; the connectors of the client and of the server.
    pub(crate) fn join(
        &mut self,
        listener: Listener<'f>,
        client: (Object<NDK_QP>, &Events),
        server: (Object<NDK_QP>, &Events),
    ) -> Result<[Object<NDK_CONNECTOR>; 2], Failure> {
        let connector = self.connector(0)?;
        let connect = self.begin_connect(connector, client.0, listener.address)?;
        let incoming = self.incoming(listener, connect)?;
        let accept = self.begin_accept(incoming, server.0, server.1)?;
        self.succeed(connect)?;
        self.complete_connect(connector, client.1)?;
        self.succeed(accept)?;
        Ok([connector, incoming])
    }

    /// A connection with memory at both ends.
    pub(crate) fn pair(&mut self) -> Result<Pair<'f>, Failure> {
        let listener = self.listen()?;
        let (client, server) = (self.end(0)?, self.end(1)?);
        let connectors =
            self.join(listener, (client.qp, client.events), (server.qp, server.events))?;
        Ok(Pair { client, server, connectors, listener })
    }

    /// Ends a connection from one side, and waits for both.
    pub(crate) fn begin_disconnect(
        &mut self,
        connector: Object<NDK_CONNECTOR>,
    ) -> Result<Call, Failure> {
        self.begin("NdkDisconnect", |completion, context| {
            call!(connector, NdkDisconnect(completion, context))
        })
    }
}

/// Never used: a step over a connection has addresses.
const NOWHERE: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0);

/// Asks one of the address queries.
pub(crate) fn address_of(
    call: &'static str,
    query: impl FnOnce(*mut SOCKADDR, *mut ULONG) -> NTSTATUS,
) -> Result<SocketAddr, Failure> {
    let mut address = SOCKADDR_INET::UNSPECIFIED;
    let mut len = size_of::<SOCKADDR_INET>() as ULONG;
    let status = query((&raw mut address).cast(), &raw mut len);
    Failure::unless_status(call, status, STATUS_SUCCESS)?;
    address.socket_addr().ok_or(Failure::Wrong { what: "an address family", found: 0, expected: 2 })
}
