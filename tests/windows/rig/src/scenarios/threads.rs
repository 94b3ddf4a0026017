//! The driver's threads: where they run, and what they wait for.

use std::sync::Arc;

use ndk_consumer::{Connector, Qp, Request};

use super::net::{LIMITS, Net, PORT, Side};
use super::*;
use crate::ntos::dispatcher::Seat;

/// Each poll core has a thread on a processor of its own, ahead of ordinary threads; also where one adapter
/// goes and comes back.
pub(super) fn processors(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nics = [Nic::plug_in(1500), Nic::plug_in(1500)];
    let vnics = [0, 1].map(|number| add(number, nics[number]));
    expect_seats(&[(0, REALTIME), (1, REALTIME)]);
    vnics[0].remove();
    expect_seats(&[(0, REALTIME)]);
    let again = add(0, nics[0]);
    expect_seats(&[(0, REALTIME), (1, REALTIME)]);
    again.remove();
    vnics[1].remove();
    finish(host);
}

/// LOW_REALTIME_PRIORITY.
pub(super) const REALTIME: Option<i32> = Some(16);

/// The processors and priorities of the threads that have some, in order.
pub(super) fn expect_seats(wanted: &[(usize, Option<i32>)]) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|&(processor, priority)| Seat { priority, processor: Some(processor) })
        .collect();
    let seats = || {
        let mut seats = dispatcher::seats();
        seats.sort_by_key(|seat| seat.processor);
        seats
    };
    if !eventually("the threads' processors", || seats() == wanted) {
        breach!("threads run on {:?}, not {wanted:?}", seats());
    }
}

/// Connects to dead peers hold up no other, and no halt; each peer is asked for once.
pub(super) fn dead_peers(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let dead: Vec<IpAddr> = (100..106).map(address).collect();
    netio::stall(&dead);
    let side = net.side(0);
    let calls =
        dead.iter().cycle().take(18).map(|&peer| Call::start(&net, &side, (address(0), peer)));
    let calls: Vec<_> = calls.collect();
    let asked = || netio::stalled() == dead.len();
    if !eventually("the questions for dead peers", asked) {
        breach!("{} questions for {} dead peers", netio::stalled(), dead.len());
    }
    drop(net.connect());
    let ended = calls.iter().filter(|call| call.request.poll().is_some()).count();
    assert_eq!(ended, 0, "calls of dead peers that have ended");
    drop((calls, side));
    let vnics = net.vnics;
    drop(net);
    vnics.into_iter().for_each(Vnic::remove);
    assert_eq!(netio::stalled(), dead.len(), "questions that the halts did not wait for");
    netio::stall(&[]);
    finish(host);
}

/// A connect waits for the end of one question at most, whatever dead peers others look for: 256 of our connects, and the
/// peers of paths that have come into use, of which each may be an invention of a stranger.
pub(super) fn many_dead_peers(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    // TCP/IP knows where the second adapter is, and finds none of those that connect to it.
    netio::believe(address(1), net.vnics[1].mac());
    let callers: Vec<IpAddr> = (50..66).map(address).collect();
    netio::stall(&callers);
    net.vnics[0].addresses.lock().unwrap().extend(&callers);
    netio::announce(net.vnics[0]);
    let adapter = &net.adapters.as_ref().expect("open")[0];
    for &caller in &callers {
        eventually("the new address", || adapter.listen((caller, 0).into()).is_ok());
    }
    let connections = callers.iter().zip(PORT + 1..).map(|(&from, port)| {
        let sides = [net.side(0), net.side(1)];
        net.connect_by(sides, from, (address(1), port).into()).expect("a connection")
    });
    let connections: Vec<_> = connections.collect();
    eventually("the questions for the peers of paths", || netio::stalled() > 0);
    // Over IPv6, where TCP/IP has to ask.
    drop(net.try_connect(address6(0), address6(1)).expect("a connection beside those paths"));

    let dead: Vec<IpAddr> = (1000..1256).map(address6).collect();
    netio::stall(&[&callers[..], &dead[..]].concat());
    let (side, before) = (net.side(0), netio::stalled());
    let calls = dead.iter().map(|&peer| Call::start(&net, &side, (address6(0), peer)));
    let calls: Vec<_> = calls.collect();
    eventually("the questions for dead peers", || netio::stalled() == before + 8);
    // One that TCP/IP knows does not wait at all.
    drop(net.connect());
    let live = net.side(0);
    let call = Call::start(&net, &live, (address6(0), address6(1)));
    netio::give_up();
    let ended = || call.request.poll().is_some();
    if !eventually("the end of a connect behind dead ones", ended) {
        breach!("a connect stands behind {} dead ones", netio::stalled());
    }
    let left = calls.iter().filter(|call| call.request.poll().is_none()).count();
    assert!(left > 200, "{left} connects of dead peers wait");
    netio::stall(&[]);
    drop((call, live, calls, side, connections));
    net.end(host);
}

/// A connect that nobody answers.
struct Call {
    request: Request,
    _connector: Connector,
    _qp: Arc<Qp>,
}

impl Call {
    fn start(net: &Net, side: &Side, (from, to): (IpAddr, IpAddr)) -> Self {
        let qp = side.another_qp();
        let adapter = &net.adapters.as_ref().expect("open")[0];
        let connector = adapter.create_connector().expect("a connector");
        let request = connector.connect(&qp, (from, 0).into(), (to, PORT).into(), LIMITS, b"");
        Self { request, _connector: connector, _qp: qp }
    }
}
