//! The driver's threads: where they run, and what they wait for.

use ndk_consumer::{Connector, Request};

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
    let calls: Vec<_> = dead.iter().cycle().take(18).map(|&peer| Call::start(&net, peer)).collect();
    let asked = || netio::stalled() == dead.len();
    if !eventually("the questions for dead peers", asked) {
        breach!("{} questions for {} dead peers", netio::stalled(), dead.len());
    }
    drop(net.connect());
    let ended = calls.iter().filter(|call| call.request.poll().is_some()).count();
    assert_eq!(ended, 0, "calls of dead peers that have ended");
    drop(calls);
    let vnics = net.vnics;
    drop(net);
    vnics.into_iter().for_each(Vnic::remove);
    assert_eq!(netio::stalled(), dead.len(), "questions that the halts did not wait for");
    netio::stall(&[]);
    finish(host);
}

/// A connect that nobody answers.
struct Call {
    request: Request,
    _connector: Connector,
    _side: Side,
}

impl Call {
    fn start(net: &Net, peer: IpAddr) -> Self {
        let side = net.side(0);
        let adapter = &net.adapters.as_ref().expect("open")[0];
        let connector = adapter.create_connector().expect("a connector");
        let (from, to) = ((address(0), 0).into(), (peer, PORT).into());
        let request = connector.connect(&side.qp, from, to, LIMITS, b"");
        Self { request, _connector: connector, _side: side }
    }
}
