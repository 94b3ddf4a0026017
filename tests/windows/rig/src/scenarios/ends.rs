//! Many connections: one after the other, and their end at once, while the pool has nothing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use driver::abi::*;
use ndk_consumer::{Buffer, Connector, Cq, Listener, Pd, Qp, QpConfig};

use super::net::{ALL_ACCESS, LIMITS, Net, PATIENCE, PORT};
use super::*;
use crate::ntos::pool::Resource;

const CONNECTIONS: usize = 2000;
const CONNECTS: usize = 10_000;
/// Connections that are open at a time.
const OPEN: usize = 200;

/// The second adapter's consumer closes all its connections while the pool is exhausted: the first one's
/// hears of each. Then its address is taken away from those that are left, and they end by that.
pub(super) fn ends(host: &dyn Host, arguments: &[String]) {
    let count = arguments.first().map_or(CONNECTIONS, |count| count.parse().expect("a count"));
    let net = Net::start(host, 1500);
    let (listener, rooms) = listen(&net);
    let mut ends: [Vec<_>; 2] = (0..count).map(|_| connect(&net, &listener, &rooms)).unzip().into();
    say!("{count} connections made");
    let peers = ends[1].split_off(count / 2);
    let mine = ends[0].split_off(count / 2);

    without_pool(|| {
        drop(peers);
        assert!(mine.iter().all(|end| end.wait_disconnected(PATIENCE)), "a connection is left");
    });
    say!("{} connections ended by their peer", mine.len());
    let vnic = net.vnics[0];
    vnic.addresses.lock().unwrap().retain(|known| *known != address(0));
    netio::announce(vnic);
    assert!(ends[0].iter().all(|end| end.wait_disconnected(PATIENCE)), "a connection is left");
    say!("{} connections ended with their address", ends[0].len());
    drop((ends, mine, rooms, listener));
    net.end(host);
}

/// As many connects, one after the other, each with a WRITE whose bytes are verified; some hundred are open at a time.
pub(super) fn connects(host: &dyn Host, arguments: &[String]) {
    let count = arguments.first().map_or(CONNECTS, |count| count.parse().expect("a count"));
    let net = Net::start(host, 1500);
    let (listener, rooms) = listen(&net);
    let [from, to] =
        rooms.each_ref().map(|(pd, _)| pd.register(Buffer::new(4096), ALL_ACCESS).expect("an MR"));
    let mut open = VecDeque::new();
    let since = Instant::now();
    for number in 0..count {
        let [here, there] = qps(&rooms);
        let ends = connect_qps(&net, &listener, [&here, &there]);
        let bytes = (number as u64).to_le_bytes();
        from.buffer().write(0, &bytes);
        here.write(number, &[from.sge(0..8)], to.remote(8 * (number % 512)), 0).expect("a WRITE");
        let mut results = [NDK_RESULT_EX::EMPTY; 1];
        assert_eq!(rooms[0].1.wait_results_ex(&mut results, PATIENCE).expect("the CQ works"), 1);
        assert_eq!(
            (results[0].Status, results[0].RequestContext as usize),
            (STATUS_SUCCESS, number)
        );
        let mut arrived = [0; 8];
        to.buffer().read(8 * (number % 512), &mut arrived);
        assert!(arrived == bytes, "connection {number}: the WRITE arrived changed");
        open.push_back((ends, here, there));
        if open.len() > OPEN {
            open.pop_front();
        }
    }
    say!("{count} connects verified, {} us each", since.elapsed().as_micros() / count as u128);
    drop((open, from, to, rooms, listener));
    net.end(host);
}

/// Of each adapter.
type Rooms = [(Arc<Pd>, Arc<Cq>); 2];

/// A listener of the second adapter, and what the queue pairs of each are made of.
fn listen(net: &Net) -> (Arc<Listener>, Rooms) {
    let adapters = net.adapters.as_ref().expect("open");
    let listener = adapters[1].listen(SocketAddr::new(address(1), PORT)).expect("a listener");
    let rooms = adapters
        .each_ref()
        .map(|adapter| (adapter.create_pd().expect("a PD"), adapter.create_cq(16).expect("a CQ")));
    (listener, rooms)
}

fn without_pool(work: impl FnOnce()) {
    pool::exhaust_after(0);
    work();
    let (asked, _) = pool::asked();
    pool::refuse_after(Resource::Pool, None);
    say!("{asked} allocations refused meanwhile");
}

fn connect(net: &Net, listener: &Arc<Listener>, rooms: &Rooms) -> (Connector, Connector) {
    let qps = qps(rooms);
    connect_qps(net, listener, qps.each_ref())
}

fn qps(rooms: &Rooms) -> [Arc<Qp>; 2] {
    let config = QpConfig { receive_depth: 1, initiator_depth: 1, ..QpConfig::default() };
    rooms.each_ref().map(|(pd, cq)| pd.create_qp(cq, cq, config).expect("a QP"))
}

fn connect_qps(net: &Net, listener: &Arc<Listener>, qps: [&Arc<Qp>; 2]) -> (Connector, Connector) {
    let active = net.adapters.as_ref().expect("open")[0].create_connector().expect("a connector");
    let (from, to) = (SocketAddr::new(address(0), 0), SocketAddr::new(address(1), PORT));
    let request = active.connect(qps[0], from, to, LIMITS, b"");
    let passive = listener.next(PATIENCE).expect("a connect event");
    let accept = passive.accept(qps[1], LIMITS, b"");
    request.wait().expect("a connection");
    active.complete_connect().wait().expect("a connection");
    accept.wait().expect("a connection");
    (active, passive)
}
