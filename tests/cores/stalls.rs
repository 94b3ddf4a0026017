//! A callback that does not return, and a core that stops in the middle of a turn: what they hold up, and what they do not.

use super::*;
use driver::Connection;
use ndk_consumer::Listener;
use netadapter_glue::memory::{MemoryConfig, pair_of_cores};
use netadapter_glue::{Edge, EdgeError, Received, forward_edge};
use rocev2::counters::Counter;
use std::sync::{Condvar, Mutex, mpsc};
use tests::kit::raw::{Notify, Object, start, wait};

/// A connection between the same cores of two hosts.
fn pair(net: &Net, domains: &[Domain; 2], listener: &Arc<Listener>, cores: [usize; 2]) -> Ends {
    let sides = [0, 1].map(|host| domains[host].side(cores[host]));
    let ends = net.connect_qps_by(listener, PORT, &sides[0].qp, &sides[1].qp);
    (sides, ends)
}

type Ends = ([Side; 2], [Connector; 2]);

/// Something goes over, each way.
fn works((sides, _): &Ends) {
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (&sides[from], &sides[to]);
        to.qp.receive(1, &[to.mr.sge(0..100)]).unwrap();
        from.qp.send(2, &[from.mr.sge(200..300)], 0).unwrap();
        assert_eq!(from.statuses(1), [STATUS_SUCCESS]);
        assert_eq!(to.statuses(1), [STATUS_SUCCESS]);
    }
}

/// A notification that stays inside the consumer until this is dropped.
struct Stay {
    entered: mpsc::Receiver<()>,
    _until: mpsc::Sender<()>,
}

impl Stay {
    fn new() -> (Notify, Self) {
        let (enter, entered) = mpsc::channel();
        let (until, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let notify = move |_| {
            let _ = enter.send(());
            let _ = gate.lock().unwrap().recv();
        };
        (Box::new(notify), Self { entered, _until: until })
    }

    /// Waits for it.
    fn comes(&self) {
        self.entered.recv_timeout(PATIENCE).expect("the notification comes");
    }
}

/// Goal: the notification of a CQ that does not return holds up the connections of its own core alone.
/// Method: a consumer stays inside one on the second core, while others connect, exchange and close, objects of the second
/// core among them.
#[test]
fn a_notification_that_does_not_return_holds_up_its_core_alone() {
    let net = Net::of_cores([3, 3], core_of);
    let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    let listener = net.listen();
    let before = [0, 2].map(|core| pair(&net, &domains, &listener, [core, core]));

    let (notify, stay) = Stay::new();
    let cq = wait(|then| net.raw(1).create_cq_near(1 << 1, 16, notify, then)).unwrap();
    let pd = wait(|then| net.raw(1).create_pd(then)).unwrap();
    let qp = wait(|then| pd.create_qp(cq, 4, then)).unwrap();
    qp.flush();
    cq.arm();
    assert_eq!(qp.receive(1, &[]), STATUS_SUCCESS);
    stay.comes();

    let closed = start(|then| cq.close(then));
    wait(|then| qp.close(then));
    wait(|then| pd.close(then));
    before.iter().for_each(works);
    // A queue pair and a CQ of the core that is held up come and go.
    drop(domains[1].side(1));
    let after = pair(&net, &domains, &listener, [1, 2]);
    works(&after);
    drop(after);
    before.iter().for_each(works);
    assert!(closed.try_recv().is_err(), "the notification is inside");
    drop(stay);
    closed.recv_timeout(PATIENCE).expect("the CQ closes");
    works(&pair(&net, &domains, &listener, [1, 1]));
    drop((before, domains, listener));
    net.finish();
}

/// An SRQ of the second core whose notification is inside the consumer, and which is being closed.
struct Closing {
    pd: Object<NDK_PD>,
    stay: Stay,
    closed: mpsc::Receiver<()>,
}

impl Closing {
    fn new(adapter: Object<NDK_ADAPTER>) -> Self {
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let (notify, stay) = Stay::new();
        let srq = pd.create_srq_near(1 << 1, 4, 0, notify).unwrap();
        // It has less than one receive already.
        assert_eq!(srq.modify(0, 1).recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
        stay.comes();
        Self { pd, stay, closed: start(|then| srq.close(then)) }
    }
}

/// An SRQ of another core than the first stays open until its notification returns.
#[test]
fn an_srq_closes_after_its_notification() {
    let net = Net::of_cores([1, 2], core_of);
    let Closing { pd, stay, closed } = Closing::new(net.raw(1));
    // What was asked for after the close has come and gone.
    let cq = wait(|then| net.raw(1).create_cq_near(1 << 1, 4, Box::new(|_| ()), then)).unwrap();
    wait(|then| cq.close(then));
    assert!(closed.try_recv().is_err(), "the notification is inside");
    drop(stay);
    closed.recv_timeout(PATIENCE).expect("the SRQ closes");
    wait(|then| pd.close(then));
    net.finish();
}

/// A callback of the first core, which looks at the object of another core that is being closed, leaves that core its lane.
#[test]
fn a_callback_while_a_close_waits_leaves_the_data_of_its_core() {
    let net = Net::of_cores([1, 2], core_of);
    let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    let listener = net.listen();
    let pair = pair(&net, &domains, &listener, [0, 1]);
    let Closing { pd, stay, closed } = Closing::new(net.raw(1));
    let gate = net.hold(1);
    drop(stay);
    works(&pair);
    drop(gate);
    closed.recv_timeout(PATIENCE).expect("the SRQ closes");
    wait(|then| pd.close(then));
    drop((pair, domains, listener));
    net.finish();
}

/// A callback on the first core, which makes all but notifications, leaves the data of the other cores alone.
#[test]
fn a_callback_on_the_first_core_leaves_the_data_of_the_others() {
    let net = Net::of_cores([3, 3], core_of);
    let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    let listener = net.listen();
    let pairs = [1, 2].map(|core| pair(&net, &domains, &listener, [core, core]));
    let gate = net.hold(1);
    for _ in 0..100 {
        pairs.iter().for_each(works);
    }
    drop(gate);
    works(&pair(&net, &domains, &listener, [0, 0]));
    drop((pairs, domains, listener));
    net.finish();
}

/// Where a core stops.
#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self, stopped: bool) {
        *self.stopped.lock().unwrap() = stopped;
        self.changed.notify_all();
    }
}

/// An edge that keeps its core in the middle of a turn.
struct Stopping {
    edge: Box<dyn Edge + Send>,
    stop: Arc<Stop>,
    tell: mpsc::Sender<()>,
}

impl Edge for Stopping {
    forward_edge!(self => self.edge, transmit);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let stopped = self.stop.stopped.lock().unwrap();
        if *stopped {
            let _ = self.tell.send(());
            let _on = self.stop.changed.wait_while(stopped, |stopped| *stopped).unwrap();
        } else {
            drop(stopped);
        }
        self.edge.receive(budget, sink)
    }
}

/// Two hosts of so many cores; the edge of the second one's second core keeps it in the middle of a turn, and tells of that.
fn stopping(
    cores: [usize; 2],
    steer: fn(&[u8], usize) -> usize,
) -> (Net, Arc<Stop>, mpsc::Receiver<()>) {
    let (first, second) = pair_of_cores(MemoryConfig::default(), cores, steer);
    let (stop, (tell, told)) = (Arc::<Stop>::default(), mpsc::channel());
    let mut edges = [first, second].map(|edges| {
        let boxed = |edge| Box::new(edge) as Box<dyn Edge + Send>;
        edges.into_iter().map(boxed).collect::<Vec<_>>()
    });
    let edge = edges[1].remove(1);
    edges[1].insert(1, Box::new(Stopping { edge, stop: Arc::clone(&stop), tell }));
    (Net::over_cores(edges, ADDRESSES, |_| ()), stop, told)
}

/// Goal: a core that stops in the middle of a turn holds up no data of other cores, and goes on where it was.
/// Method: the edge of the second core keeps it, as a scheduler may.
#[test]
fn a_core_that_stops_leaves_the_data_of_the_others() {
    let (net, stop, told) = stopping([3, 3], core_of);
    let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    let listener = net.listen();
    let pairs = [0, 1, 2].map(|core| pair(&net, &domains, &listener, [core, core]));
    pairs.iter().for_each(works);

    stop.set(true);
    let [first, stopped, third] = &pairs;
    // The core comes to its edge in its next turn, which this brings about.
    let [near, far] = &stopped.0;
    far.qp.receive(7, &[far.mr.sge(0..10)]).unwrap();
    near.qp.send(8, &[near.mr.sge(0..10)], 0).unwrap();
    told.recv_timeout(PATIENCE).expect("it stops");
    for _ in 0..100 {
        works(first);
        works(third);
    }
    stop.set(false);
    assert_eq!(near.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(far.statuses(1), [STATUS_SUCCESS]);
    pairs.iter().for_each(works);
    drop((pairs, domains, listener));
    net.finish();
}

/// Goal: a receive that was posted before a frame came is there for it, though another core passes the frame on.
/// Method: both come while the edge of their core keeps it in a turn.
#[test]
fn a_receive_is_known_before_the_frame_that_another_core_passes_on() {
    // Everything comes to the first core.
    let (net, stop, told) = stopping([1, 2], |_, _| 0);
    let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    let listener = net.listen();
    let [first, second] = [0, 1].map(|core| pair(&net, &domains, &listener, [0, core]));
    let [near, far] = &second.0;
    stop.set(true);
    let receive = |id| far.qp.receive(id, &[far.mr.sge(0..10)]).unwrap();
    // The first one brings about the turn.
    receive(1);
    told.recv_timeout(PATIENCE).expect("it stops");
    receive(2);
    for id in [1, 2] {
        near.qp.send(id, &[near.mr.sge(0..10)], 0).unwrap();
    }
    // The first core has passed on what came before this.
    works(&first);
    stop.set(false);
    assert_eq!(near.statuses(2), [STATUS_SUCCESS; 2]);
    assert_eq!(far.statuses(2), [STATUS_SUCCESS; 2]);
    let refused = |one: &Connection| one.counters.get(Counter::RcvdRnrErr);
    assert_eq!(net.providers[0].connections().iter().map(refused).sum::<u64>(), 0);
    drop(([first, second], domains, listener));
    net.finish();
}
