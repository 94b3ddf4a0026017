//! Lifetimes: closes in every order and from inside every callback, requests that end exactly once
//! and before the close of their object, and what two messages do that meet in one turn.
//!
//! A provider is held inside a callback ([`Net::hold`]) where a test needs two things to reach it
//! at once; nothing here depends on how long anything takes.

#[path = "lifetime/many.rs"]
mod many;

use driver::abi::*;
use ndk_consumer::Buffer;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use tests::kit::raw::{Memory, Object, QpSize, Then, start, wait};
use tests::kit::{Net, PATIENCE, PORT};

const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

/// What ended, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// A completion that is noted.
    fn end<R>(
        &self,
        what: &'static str,
        tell: impl FnOnce(R) -> String + Send + 'static,
    ) -> Then<R> {
        let log = self.clone();
        Box::new(move |result| log.note(format!("{what}{}", tell(result))))
    }

    fn closed(&self, what: &'static str) -> Then<()> {
        self.end(what, |()| String::new())
    }

    fn requested(&self, what: &'static str) -> Then<NTSTATUS> {
        self.end(what, |status| format!(" {status}"))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn place(&self, what: &str) -> usize {
        let log = self.0.lock().unwrap();
        let found: Vec<_> = log.iter().enumerate().filter(|(_, entry)| *entry == what).collect();
        assert_eq!(found.len(), 1, "{what} in {log:?}");
        found[0].0
    }
}

/// What a notification closes.
type Victims = (Object<NDK_CQ>, Object<NDK_QP>);

/// A consumer's objects on one host.
#[derive(Clone, Copy)]
struct Side {
    cq: Object<NDK_CQ>,
    pd: Object<NDK_PD>,
    qp: Object<NDK_QP>,
}

impl Side {
    fn new(adapter: Object<NDK_ADAPTER>) -> Self {
        let cq = wait(|then| adapter.create_cq(64, Box::new(|_| ()), then)).unwrap();
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let qp = wait(|then| pd.create_qp(cq, 16, then)).unwrap();
        Self { cq, pd, qp }
    }

    fn close(self) {
        wait(|then| self.qp.close(then));
        wait(|then| self.cq.close(then));
        wait(|then| self.pd.close(then));
    }
}

/// Two hosts, and a listener on the second one.
struct Listening {
    hosts: Net,
    listener: Object<NDK_LISTENER>,
    incoming: mpsc::Receiver<Object<NDK_CONNECTOR>>,
}

impl Listening {
    fn new() -> Self {
        let hosts = Net::new();
        let (sender, incoming) = mpsc::channel();
        let listener = listen(&hosts, move |connector| sender.send(connector).unwrap());
        Self { hosts, listener, incoming }
    }

    fn connect(&self, connector: Object<NDK_CONNECTOR>, side: &Side) -> mpsc::Receiver<NTSTATUS> {
        let (local, remote) = (self.hosts.at(0, 0), self.hosts.at(1, PORT));
        start(|then| connector.connect(side.qp, local, remote, then))
    }

    fn connector(&self) -> Object<NDK_CONNECTOR> {
        wait(|then| self.hosts.raw(0).create_connector(then)).unwrap()
    }

    fn next(&self) -> Object<NDK_CONNECTOR> {
        self.incoming.recv_timeout(PATIENCE).expect("a connect event")
    }

    /// Makes the hosts know each other, so that a connect sends its request at once.
    fn acquaint(&self, side: &Side) {
        let connector = self.connector();
        let (local, remote) = (self.hosts.at(0, 0), self.hosts.at(1, 9));
        let refused = wait(|then| connector.connect(side.qp, local, remote, then));
        assert_eq!(refused, STATUS_CONNECTION_REFUSED);
        wait(|then| connector.close(then));
    }

    /// Both ends of an established connection, active first.
    fn establish(
        &self,
        sides: &[Side; 2],
        events: [Box<dyn Fn() + Send + Sync>; 2],
    ) -> [Object<NDK_CONNECTOR>; 2] {
        let [active_event, passive_event] = events;
        let active = self.connector();
        let connected = self.connect(active, &sides[0]);
        let passive = self.next();
        let accepted = start(|then| passive.accept(sides[1].qp, passive_event, then));
        assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
        assert_eq!(wait(|then| active.complete_connect(active_event, then)), STATUS_SUCCESS);
        assert_eq!(accepted.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
        [active, passive]
    }

    fn close(self) {
        wait(|then| self.listener.close(then));
        self.hosts.finish();
    }
}

fn listen(
    hosts: &Net,
    incoming: impl Fn(Object<NDK_CONNECTOR>) + Send + Sync + 'static,
) -> Object<NDK_LISTENER> {
    let listener = wait(|then| hosts.raw(1).create_listener(Box::new(incoming), then)).unwrap();
    assert_eq!(wait(|then| listener.listen(hosts.at(1, PORT), then)), STATUS_SUCCESS);
    listener
}

fn nothing() -> Box<dyn Fn() + Send + Sync> {
    Box::new(|| ())
}

fn sync(adapter: Object<NDK_ADAPTER>) {
    let pd = wait(|then| adapter.create_pd(then)).unwrap();
    wait(|then| pd.close(then));
}

#[test]
fn parents_that_are_closed_first_end_after_their_children() {
    let net = Listening::new();
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    let memory = Memory::new(sides[1].pd, 4096);
    let [active, passive] = net.establish(&sides, [nothing(), nothing()]);
    let log = Log::default();
    net.listener.close(log.closed("listener"));
    sides[1].pd.close(log.closed("pd"));
    sides[1].cq.close(log.closed("cq"));
    sides[1].qp.close(log.closed("qp"));
    // All of them are still waiting, one for the other.
    sync(net.hosts.raw(1));
    assert_eq!(log.take(), [""; 0]);
    memory.mr.close(log.closed("mr"));
    passive.close(log.closed("connector"));
    net_close_side(&sides[0], active);
    net.hosts.finish();
    for (first, second) in
        [("connector", "qp"), ("connector", "listener"), ("qp", "cq"), ("qp", "pd"), ("mr", "pd")]
    {
        assert!(log.place(first) < log.place(second), "{first} before {second}: {:?}", log.take());
    }
}

fn net_close_side(side: &Side, connector: Object<NDK_CONNECTOR>) {
    wait(|then| connector.close(then));
    side.close();
}

#[test]
fn an_antecedent_waits_for_the_close_completion_to_return() {
    let hosts = Net::new();
    let side = Side::new(hosts.raw(0));
    let inside = Arc::new(AtomicBool::new(false));
    let log = Log::default();
    for (what, object) in [("pd", 0), ("cq", 1)] {
        let (inside, log) = (Arc::clone(&inside), log.clone());
        let then = Box::new(move |()| {
            assert!(!inside.load(Ordering::SeqCst), "{what} ended too early");
            log.note(what);
        });
        if object == 0 { side.pd.close(then) } else { side.cq.close(then) }
    }
    wait(|done| {
        side.qp.close(Box::new(move |()| {
            inside.store(true, Ordering::SeqCst);
            std::thread::yield_now();
            inside.store(false, Ordering::SeqCst);
            done(());
        }));
    });
    hosts.finish();
    assert_eq!(log.take().len(), 2);
}

#[test]
fn the_adapter_closes_after_everything_under_it() {
    let hosts = Net::new();
    let instance = hosts.open_raw(0, VERSION).unwrap();
    let side = Side::new(instance.adapter);
    let log = Log::default();
    std::thread::scope(|scope| {
        let closer = log.clone();
        scope.spawn(move || {
            drop(instance);
            closer.note("adapter");
        });
        side.pd.close(log.closed("pd"));
        side.qp.close(log.closed("qp"));
        wait(|then| side.cq.close(then));
        log.note("cq");
    });
    hosts.finish();
    assert!(log.place("qp") < log.place("pd") && log.place("pd") < log.place("adapter"));
}

#[test]
fn a_creation_may_close_the_object_and_its_parent() {
    let hosts = Net::new();
    let adapter = hosts.raw(0);
    for _ in 0..200 {
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let (sender, ended) = mpsc::channel();
        pd.create_mr(Box::new(move |mr| {
            let after = sender.clone();
            pd.close(Box::new(move |()| sender.send("pd").unwrap()));
            mr.unwrap().close(Box::new(move |()| after.send("mr").unwrap()));
        }));
        assert_eq!(ended.recv_timeout(PATIENCE), Ok("mr"));
        assert_eq!(ended.recv_timeout(PATIENCE), Ok("pd"));
    }
    hosts.finish();
}

#[test]
fn a_connect_event_may_close_its_connector_which_refuses() {
    let hosts = Net::new();
    let log = Log::default();
    let closes = log.clone();
    let listener = listen(&hosts, move |connector| connector.close(closes.closed("connector")));
    let net = Listening { hosts, listener, incoming: mpsc::channel().1 };
    let side = Side::new(net.hosts.raw(0));
    let connector = net.connector();
    let connected = net.connect(connector, &side);
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_CONNECTION_REFUSED));
    net_close_side(&side, connector);
    net.close();
    assert_eq!(log.take(), ["connector"]);
}

#[test]
fn a_notification_may_close_the_cq_and_its_qp() {
    let hosts = Net::new();
    let adapter = hosts.raw(0);
    for _ in 0..100 {
        let victims: Arc<Mutex<Option<Victims>>> = Arc::default();
        let log = Log::default();
        let (sender, ended) = mpsc::channel();
        let (taken, closes) = (Arc::clone(&victims), log.clone());
        let notify = Box::new(move |_| {
            let (cq, qp) = taken.lock().unwrap().take().expect("one notification");
            let sender = sender.clone();
            cq.close(Box::new(move |()| sender.send(()).unwrap()));
            qp.close(closes.closed("qp"));
        });
        let cq = wait(|then| adapter.create_cq(8, notify, then)).unwrap();
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let qp = wait(|then| pd.create_qp(cq, 4, then)).unwrap();
        *victims.lock().unwrap() = Some((cq, qp));
        assert_eq!(qp.receive(1, &[]), STATUS_SUCCESS);
        qp.flush();
        // The arm may find the completion and be on its way out while the callback closes the CQ.
        cq.arm();
        ended.recv_timeout(PATIENCE).expect("the CQ closes");
        assert_eq!(log.take(), ["qp"]);
        wait(|then| pd.close(then));
    }
    hosts.finish();
}

#[test]
fn a_disconnect_event_may_close_everything() {
    let net = Listening::new();
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    let passive_end: Arc<Mutex<Option<Object<NDK_CONNECTOR>>>> = Arc::default();
    let (sender, ended) = mpsc::channel();
    let (slot, side) = (Arc::clone(&passive_end), sides[1]);
    let event = Box::new(move || {
        let connector = slot.lock().unwrap().take().expect("one event");
        let sender = sender.clone();
        side.pd.close(Box::new(move |()| sender.send(()).unwrap()));
        side.cq.close(Box::new(|()| ()));
        side.qp.close(Box::new(|()| ()));
        connector.close(Box::new(|()| ()));
    });
    // The event cannot come before the slot is filled: the peer leaves after that.
    let [active, passive] = net.establish(&sides, [nothing(), event]);
    *passive_end.lock().unwrap() = Some(passive);
    assert_eq!(sides[1].qp.receive(1, &[]), STATUS_SUCCESS);
    assert_eq!(wait(|then| active.disconnect(then)), STATUS_SUCCESS);
    ended.recv_timeout(PATIENCE).expect("the domain closes");
    net_close_side(&sides[0], active);
    net.close();
}

#[test]
fn a_connector_closes_in_every_phase_after_its_request_has_ended_once() {
    let net = Listening::new();
    let log = Log::default();
    let side = Side::new(net.hosts.raw(0));
    net.acquaint(&side);
    let (local, remote) = (net.hosts.at(0, 0), net.hosts.at(1, PORT));
    let close_both = |ends: [Object<NDK_CONNECTOR>; 2]| {
        for connector in ends {
            wait(|then| connector.close(then));
        }
    };

    // Idle.
    wait(|then| net.connector().close(then));

    // The peer's address is being asked for.
    let connector = net.connector();
    let nowhere = "10.0.0.77:7".parse().unwrap();
    connector.connect(side.qp, local, nowhere, log.requested("resolving"));
    wait(|then| connector.close(then));
    assert_eq!(log.take(), ["resolving STATUS_CANCELLED"]);
    side.close();

    // The request is out; the peer sees it together with its withdrawal.
    let (connector, side) = (net.connector(), Side::new(net.hosts.raw(0)));
    let gate = net.hosts.hold(1);
    connector.connect(side.qp, local, remote, log.requested("connecting"));
    wait(|then| connector.close(then));
    assert_eq!(log.take(), ["connecting STATUS_CANCELLED"]);
    drop(gate);
    let late = net.next();
    wait(|then| late.close(then));
    side.close();

    // Requested: a close refuses.
    let (connector, side) = (net.connector(), Side::new(net.hosts.raw(0)));
    let connected = net.connect(connector, &side);
    let passive = net.next();
    wait(|then| passive.close(then));
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_CONNECTION_REFUSED));

    // Accepting, and offered.
    let server = Side::new(net.hosts.raw(1));
    let connected = net.connect(connector, &side);
    let passive = net.next();
    passive.accept(server.qp, nothing(), log.requested("accepting"));
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    close_both([passive, connector]);
    assert_eq!(log.take(), ["accepting STATUS_CANCELLED"]);
    [side, server].into_iter().for_each(Side::close);

    // Disconnecting, while the peer does not answer.
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    let [active, passive] = net.establish(&sides, [nothing(), nothing()]);
    let gate = net.hosts.hold(1);
    active.disconnect(log.requested("disconnecting"));
    wait(|then| active.close(then));
    assert_eq!(log.take(), ["disconnecting STATUS_CANCELLED"]);
    drop(gate);

    // Established.
    wait(|then| passive.close(then));
    sides.into_iter().for_each(Side::close);
    net.close();
}

#[test]
fn an_accept_that_meets_the_peers_farewell_is_aborted() {
    let net = Listening::new();
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    let active = net.connector();
    let connected = net.connect(active, &sides[0]);
    let passive = net.next();
    let gate = net.hosts.hold(1);
    wait(|then| active.close(then));
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_CANCELLED));
    // The refusal has left with the turn of the close. The accept is taken in the same turn as it.
    let accepted = start(|then| passive.accept(sides[1].qp, nothing(), then));
    drop(gate);
    assert_eq!(accepted.recv_timeout(PATIENCE), Ok(STATUS_CONNECTION_ABORTED));
    // The queue pair is free for another, while its connector is open.
    let others = [Side::new(net.hosts.raw(0)), sides[1]];
    for connector in net.establish(&others, [nothing(), nothing()]) {
        wait(|then| connector.close(then));
    }
    wait(|then| passive.close(then));
    others[0].close();
    sides.into_iter().for_each(Side::close);
    net.close();
}

#[test]
fn no_disconnect_event_comes_after_an_own_disconnect() {
    let net = Listening::new();
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    let events = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&events);
    let event = Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let [active, passive] = net.establish(&sides, [nothing(), event]);
    let gate = net.hosts.hold(1);
    let left = start(|then| active.disconnect(then));
    sync(net.hosts.raw(0));
    // The peer's notice is there; ours is asked for before it is seen.
    let done = start(|then| passive.disconnect(then));
    drop(gate);
    assert_eq!(done.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    assert_eq!(left.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    wait(|then| passive.close(then));
    wait(|then| active.close(then));
    sides.into_iter().for_each(Side::close);
    net.close();
    assert_eq!(events.load(Ordering::SeqCst), 0);
}

#[test]
fn a_listener_that_closes_refuses_what_it_has_not_handed_out() {
    let net = Listening::new();
    let side = Side::new(net.hosts.raw(0));
    net.acquaint(&side);
    let gate = net.hosts.hold(1);
    let connector = net.connector();
    let connected = net.connect(connector, &side);
    sync(net.hosts.raw(0));
    let closed = start(|then| net.listener.close(then));
    drop(gate);
    closed.recv_timeout(PATIENCE).expect("nothing holds the listener");
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_CONNECTION_REFUSED));
    assert!(net.incoming.try_recv().is_err());
    net_close_side(&side, connector);
    net.hosts.finish();
}

#[test]
fn a_resume_holds_for_requests_that_are_sent_after_it() {
    let net = Listening::new();
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    net.acquaint(&sides[0]);
    net.listener.pause(true);
    let gate = net.hosts.hold(1);
    net.listener.pause(false);
    let connector = net.connector();
    let connected = net.connect(connector, &sides[0]);
    // The request is there before the provider takes its next turn.
    sync(net.hosts.raw(0));
    drop(gate);
    let passive = net.next();
    assert_eq!(passive.reject(), STATUS_SUCCESS);
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_CONNECTION_REFUSED));
    wait(|then| passive.close(then));
    wait(|then| connector.close(then));
    sides.into_iter().for_each(Side::close);
    net.close();
}

#[test]
fn a_listener_that_is_paused_before_it_listens_refuses() {
    let net = Listening::new();
    let side = Side::new(net.hosts.raw(0));
    let listener = wait(|then| net.hosts.raw(1).create_listener(Box::new(|_| ()), then)).unwrap();
    listener.pause(true);
    // The pause has no second effect later.
    sync(net.hosts.raw(1));
    let (local, remote) = (net.hosts.at(0, 0), net.hosts.at(1, PORT + 1));
    assert_eq!(wait(|then| listener.listen(remote, then)), STATUS_SUCCESS);
    let connector = net.connector();
    let connected = start(|then| connector.connect(side.qp, local, remote, then));
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_CONNECTION_REFUSED));
    net_close_side(&side, connector);
    wait(|then| listener.close(then));
    net.close();
}

#[test]
fn an_accepted_connector_keeps_the_port() {
    let net = Listening::new();
    let sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
    let [active, passive] = net.establish(&sides, [nothing(), nothing()]);
    let closed = start(|then| net.listener.close(then));
    let again = wait(|then| net.hosts.raw(1).create_listener(Box::new(|_| ()), then)).unwrap();
    let listen = || wait(|then| again.listen(net.hosts.at(1, PORT), then));
    assert_eq!(listen(), STATUS_SHARING_VIOLATION);
    assert!(closed.try_recv().is_err(), "a connector of it is open");
    wait(|then| passive.close(then));
    closed.recv_timeout(PATIENCE).expect("the listener closes");
    assert_eq!(listen(), STATUS_SUCCESS);
    wait(|then| again.close(then));
    wait(|then| active.close(then));
    sides.into_iter().for_each(Side::close);
    net.hosts.finish();
}

#[test]
fn a_qp_of_another_adapter_instance_may_accept() {
    let net = Listening::new();
    let client = Side::new(net.hosts.raw(0));
    let other = net.hosts.open_raw(1, VERSION).unwrap();
    let cq = wait(|then| other.adapter.create_cq(8, Box::new(|_| ()), then)).unwrap();
    let pd = wait(|then| other.adapter.create_pd(then)).unwrap();
    let qp = wait(|then| pd.create_qp(cq, 4, then)).unwrap();
    let server = Side { cq, pd, qp };
    let [active, passive] = net.establish(&[client, server], [nothing(), nothing()]);
    let log = Log::default();
    qp.close(log.closed("qp"));
    cq.close(log.closed("cq"));
    pd.close(log.closed("pd"));
    passive.close(log.closed("connector"));
    drop(other);
    assert_eq!(log.take()[..2], ["connector", "qp"]);
    net_close_side(&client, active);
    net.close();
}
