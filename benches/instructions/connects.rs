//! Instructions of a connection's life: queue pairs and connectors are created, connected, disconnected, closed, at
//! both ends, through the tables as they are: a wrapper would wait for another thread.

use driver::abi::*;
use messages::pairs::{PORT, address};
use messages::world::{BATCH, End, Hosts, MESSAGES, Pair, TURN};
use std::net::SocketAddr;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use ndk_consumer::NdkObject;

/// Virtual time for a batch: as long as connection management takes for its messages.
const PAUSE: Duration = Duration::from_millis(10);

/// Calls whose end has not come.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Connectors of requests that came in.
static ARRIVED: [AtomicPtr<NDK_CONNECTOR>; BATCH] = [const { AtomicPtr::new(null_mut()) }; BATCH];
static ARRIVALS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "system" fn created(out: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    assert_eq!(status, STATUS_SUCCESS);
    // SAFETY: the place that waits for the object.
    unsafe { *out.cast() = object };
    PENDING.fetch_sub(1, Relaxed);
}

unsafe extern "system" fn requested(_: PVOID, status: NTSTATUS) {
    assert_eq!(status, STATUS_SUCCESS);
    PENDING.fetch_sub(1, Relaxed);
}

unsafe extern "system" fn ended(_: PVOID) {
    PENDING.fetch_sub(1, Relaxed);
}

unsafe extern "system" fn arrived(_: PVOID, connector: *mut NDK_CONNECTOR) {
    ARRIVED[ARRIVALS.fetch_add(1, Relaxed)].store(connector, Relaxed);
}

fn table<T: NdkObject>(object: *mut T) -> T::Table {
    // SAFETY: every object here is open.
    unsafe { T::table(NonNull::new(object).expect("an object")) }
}

fn adapter_table(adapter: *mut NDK_ADAPTER) -> NDK_ADAPTER_DISPATCH {
    // SAFETY: the adapter is open.
    let cell = unsafe { (*adapter).Dispatch.get() };
    // SAFETY: nobody replaces the table.
    let table = unsafe { cell.read() };
    // SAFETY: tables live for ever.
    unsafe { table.read() }
}

/// A call that pends, and so many callbacks that end it.
fn start(status: NTSTATUS, callbacks: usize) {
    assert_eq!(status, STATUS_PENDING);
    PENDING.fetch_add(callbacks, Relaxed);
}

/// Two hosts whose connections come and go.
pub(crate) struct Lives {
    ends: [End; 2],
    listener: *mut NDK_LISTENER,
    hosts: Hosts,
}

impl Lives {
    pub(crate) fn new() -> Self {
        let hosts = Hosts::new(1);
        let ends = [0, 1].map(|host| End::new(&hosts, host, 0, 0));
        let mut lives = Self { ends, listener: null_mut(), hosts };
        lives.listen();
        lives.hosts.pair().hold();
        // The tables have their size.
        lives.live(4 * MESSAGES);
        lives
    }

    fn listen(&mut self) {
        let adapter = self.ends[1].adapter.as_ptr();
        let out = (&raw mut self.listener).cast();
        // SAFETY: an open adapter; the callbacks live for ever, and the place until it is filled.
        let status = unsafe {
            let create = adapter_table(adapter).NdkCreateListener;
            create(adapter, Some(arrived), null_mut(), Some(created), out, null_mut())
        };
        start(status, 1);
        run(&mut self.hosts.pair());
        let local = SOCKADDR_INET::from(SocketAddr::new(address(1), PORT));
        // SAFETY: an open listener; the address outlives the call.
        let status = unsafe {
            let listen = table(self.listener).NdkListen;
            listen(self.listener, local.as_ptr(), local.len(), Some(requested), null_mut())
        };
        start(status, 1);
        run(&mut self.hosts.pair());
    }

    /// So many connections live. The pair is held all the while: turns that the other thread gave would not be counted.
    pub(crate) fn live(&self, count: usize) {
        let mut pair = self.hosts.pair();
        for _ in 0..count / BATCH {
            self.live_together(&mut pair);
            pair.now = pair.now + PAUSE;
        }
    }

    fn live_together(&self, pair: &mut Pair) {
        let (mut qps, mut active) = ([[null_mut(); BATCH]; 2], [null_mut(); BATCH]);
        for (end, qps) in self.ends.iter().zip(&mut qps) {
            qps.iter_mut().for_each(|qp| create_qp(end, qp));
        }
        active.iter_mut().for_each(|out| create_connector(&self.ends[0], out));
        run(pair);
        let [near, far] = qps;
        active.iter().zip(near).for_each(|(connector, qp)| connect(*connector, qp));
        while ARRIVALS.load(Relaxed) < BATCH {
            pair.turn(TURN);
        }
        ARRIVALS.store(0, Relaxed);
        let passive = ARRIVED.each_ref().map(|arrived| arrived.load(Relaxed));
        passive.iter().zip(far).for_each(|(connector, qp)| accept(*connector, qp));
        // All but the accepts, which end with the confirmations.
        while PENDING.load(Relaxed) > BATCH {
            pair.turn(TURN);
        }
        active.into_iter().for_each(confirm);
        run(pair);
        active.into_iter().for_each(disconnect);
        run(pair);
        active.into_iter().chain(passive).for_each(close);
        qps.into_iter().flatten().for_each(close);
        run(pair);
    }
}

/// Gives turns until every call has ended.
fn run(pair: &mut Pair) {
    while PENDING.load(Relaxed) > 0 {
        pair.turn(TURN);
    }
}

fn create_qp(end: &End, out: &mut *mut NDK_QP) {
    let (pd, cq) = (end.pd.as_ptr(), end.cq.as_ptr());
    let (none, out) = (null_mut(), std::ptr::from_mut(out).cast());
    // SAFETY: open objects; the place of the object lives until it is filled.
    let status = unsafe {
        let create = table(pd).NdkCreateQp;
        create(pd, cq, cq, none, 64, 64, 1, 1, 0, Some(created), out, null_mut())
    };
    start(status, 1);
}

fn create_connector(end: &End, out: &mut *mut NDK_CONNECTOR) {
    let (adapter, out) = (end.adapter.as_ptr(), std::ptr::from_mut(out).cast());
    // SAFETY: an open adapter; the place of the object lives until it is filled.
    let status = unsafe {
        let create = adapter_table(adapter).NdkCreateConnector;
        create(adapter, Some(created), out, null_mut())
    };
    start(status, 1);
}

fn connect(connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP) {
    let [from, to] = [SocketAddr::new(address(0), 0), SocketAddr::new(address(1), PORT)]
        .map(SOCKADDR_INET::from);
    let ((from, from_len), (to, to_len)) = ((from.as_ptr(), from.len()), (to.as_ptr(), to.len()));
    let (done, none) = (Some(requested as _), null_mut());
    // SAFETY: open objects; the addresses outlive the call.
    let status = unsafe {
        let connect = table(connector).NdkConnect;
        connect(connector, qp, from, from_len, to, to_len, 8, 8, null(), 0, done, none)
    };
    start(status, 1);
}

fn accept(connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP) {
    let (done, none) = (Some(requested as _), null_mut());
    // SAFETY: open objects.
    let status = unsafe {
        let accept = table(connector).NdkAccept;
        accept(connector, qp, 8, 8, null(), 0, Some(ended), none, done, none)
    };
    start(status, 1);
}

fn confirm(connector: *mut NDK_CONNECTOR) {
    let (done, none) = (Some(requested as _), null_mut());
    // SAFETY: an open connector.
    let status = unsafe {
        let confirm = table(connector).NdkCompleteConnect;
        confirm(connector, Some(ended), none, done, none)
    };
    start(status, 1);
}

/// Ends with the request, and with the event at the peer.
fn disconnect(connector: *mut NDK_CONNECTOR) {
    // SAFETY: an open connector.
    let status = unsafe {
        let disconnect = table(connector).NdkDisconnect;
        disconnect(connector, Some(requested), null_mut())
    };
    start(status, 2);
}

fn close<T: NdkObject>(object: *mut T) {
    // SAFETY: an open object, which nobody uses any more.
    let status = unsafe { T::close(&table(object))(object.cast(), Some(ended), null_mut()) };
    start(status, 1);
}

impl Drop for Lives {
    fn drop(&mut self) {
        close(self.listener);
        let mut pair = self.hosts.pair();
        run(&mut pair);
        pair.let_go();
    }
}
