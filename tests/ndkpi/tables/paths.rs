//! What becomes of a connection when its way changes: neighbours, VLANs and addresses.

use super::*;
use ndk_consumer::{NdkError, Remote, Sge};
use netadapter_glue::memory::{MemoryConfig, MemoryEdge, pair};
use netadapter_glue::{Edge, EdgeError, Link, Received, Slot, fill_one, forward_edge};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

crate::tests! {
    a_peer_with_a_new_nic_is_found
    a_forged_announcement_leads_nowhere
    a_connection_ends_with_its_address
    a_connect_is_tagged
    ends_of_different_mtus_connect_from_either
}

type Mac = [u8; 6];

const NEW_NIC: Mac = [2, 0x77, 0, 0, 0, 7];
const STRANGER: Mac = [2, 0x99, 0, 0, 0, 9];

/// The cable of a host as a test handles it.
#[derive(Default)]
struct Line {
    /// The address of the NIC that is in place of the host's own.
    nic: Mutex<Option<Mac>>,
    cut: AtomicBool,
    /// Frames that arrive next.
    forged: Mutex<VecDeque<Vec<u8>>>,
    /// How each frame began that the host has sent, and each that it got.
    sent: Mutex<Vec<[u8; 18]>>,
    received: Mutex<Vec<[u8; 18]>>,
}

/// A host's NIC, which may be replaced by another: its address is on the wire, in frames and in ARP.
struct Nic {
    edge: MemoryEdge,
    line: Arc<Line>,
}

impl Nic {
    fn own(&self) -> (Mac, Mac) {
        let own = self.edge.link().mac;
        (own, self.line.nic.lock().unwrap().unwrap_or(own))
    }
}

const ARP_SENDER: usize = 22;
const ARP_TARGET: usize = 32;

/// Replaces one address by another, at `place` and in ARP at `arp`.
fn replace(frame: &mut [u8], place: usize, arp: usize, (from, to): (Mac, Mac)) {
    let arp = (frame[12..14] == [8, 6]).then_some(arp);
    for place in [Some(place), arp].into_iter().flatten() {
        if frame[place..place + 6] == from {
            frame[place..place + 6].copy_from_slice(&to);
        }
    }
}

fn head(frame: &[u8]) -> [u8; 18] {
    *frame.first_chunk().expect("a frame has a header")
}

impl Edge for Nic {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let (own, shown) = self.own();
        let mut forged = self.line.forged.lock().unwrap();
        for frame in forged.drain(..) {
            sink(&[Received { frame: &frame, segments: None }]);
        }
        let line = &self.line;
        self.edge.receive_each(budget, |unit| {
            let mut frame = unit.frame.to_vec();
            if frame[0] & 1 == 0 && !frame.starts_with(&shown) {
                return;
            }
            line.received.lock().unwrap().push(head(&frame));
            replace(&mut frame, 0, ARP_TARGET, (shown, own));
            sink(&[Received { frame: &frame, ..unit }]);
        })
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let (own, shown) = self.own();
        let line = &self.line;
        self.edge.transmit_each(budget, |buffer| {
            let unit = fill_one(fill, buffer)?;
            replace(buffer, 6, ARP_SENDER, (own, shown));
            if line.cut.load(Ordering::Relaxed) {
                // To nobody.
                buffer[..6].copy_from_slice(&[2, 0, 0xee, 0xee, 0xee, 0xee]);
            }
            line.sent.lock().unwrap().push(head(buffer));
            Some(unit)
        })
    }
}

fn net(addresses: [&str; 2], vlan: Option<u16>) -> (Net, [Arc<Line>; 2]) {
    let lines = [Arc::<Line>::default(), Arc::default()];
    let (first, second) = pair(MemoryConfig::default());
    let nic = |edge, line: &Arc<Line>| Box::new(Nic { edge, line: Arc::clone(line) }) as Box<_>;
    let edges: [Box<dyn Edge + Send>; 2] = [nic(first, &lines[0]), nic(second, &lines[1])];
    let first = addresses[0].parse::<std::net::IpAddr>().unwrap();
    let net = Net::over(edges, addresses, |config| {
        if config.addresses.contains(&first) {
            config.vlan = vlan;
        }
    });
    (net, lines)
}

/// Something goes over and arrives, each way.
fn works(connection: &Connection) {
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (&connection.sides[from], &connection.sides[to]);
        from.fill(7);
        from.qp.write(1, &[from.mr.sge(0..50_000)], to.mr.remote(100_000), 0).unwrap();
        assert_eq!(from.statuses(1), [STATUS_SUCCESS]);
        assert!(to.bytes(100_000, 50_000) == from.bytes(0, 50_000));
    }
}

/// The NIC of either end is replaced: what was on its way is lost, and the connection goes on as soon as
/// the neighbour is found at its new address.
fn a_peer_with_a_new_nic_is_found() {
    for moved in [0, 1] {
        let (net, lines) = net(["10.0.0.1", "10.0.0.2"], None);
        let connection = net.connect();
        works(&connection);
        *lines[moved].nic.lock().unwrap() = Some(NEW_NIC);
        works(&connection);
        let to_new = |head: &[u8; 18]| head.starts_with(&NEW_NIC);
        assert!(lines[1 - moved].sent.lock().unwrap().iter().any(to_new));
    }
}

/// An ARP packet that says that `sender` is at the stranger's.
fn arp(operation: u8, sender: [u8; 4], target: [u8; 4], to: Mac) -> Vec<u8> {
    let mut frame = [&to[..], &STRANGER, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend(STRANGER);
    frame.extend(sender);
    frame.extend(if operation == 1 { [0; 6] } else { to });
    frame.extend(target);
    frame
}

/// Somebody on the link says to be the peer, in all ways that ARP has: the peer is asked, and not a single
/// frame of the connection goes astray.
fn a_forged_announcement_leads_nowhere() {
    let (net, [line, _]) = net(["10.0.0.1", "10.0.0.2"], None);
    let connection = net.connect();
    works(&connection);
    let own = *line.received.lock().unwrap().last().unwrap().first_chunk::<6>().unwrap();
    let (us, peer) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    // Longer than a neighbour that was just found is not asked again; a busy machine's silence has it asked, too.
    let (mut begin, mut asked) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_millis(1100) {
        works(&connection);
        let arps = line.sent.lock().unwrap().iter().filter(|head| head[12..14] == [8, 6]).count();
        if arps != asked {
            (begin, asked) = (Instant::now(), arps);
        }
    }
    line.sent.lock().unwrap().clear();
    let begin = Instant::now();
    line.forged.lock().unwrap().extend([
        arp(1, peer, peer, [0xff; 6]),
        arp(2, peer, peer, [0xff; 6]),
        arp(1, peer, us, own),
        arp(2, peer, us, own),
    ]);
    while !line.forged.lock().unwrap().is_empty() {
        works(&connection);
    }
    for _ in 0..20 {
        works(&connection);
    }
    let sent = std::mem::take(&mut *line.sent.lock().unwrap());
    let arps = sent.iter().filter(|head| head[12..14] == [8, 6]);
    let to_peer = arps.filter(|head| !head.starts_with(&STRANGER) && head[0] & 1 == 0).count();
    // On a busy machine the forged ones may come more than a second apart. Who has not answered within a quarter of it is
    // asked again, by a core that had no processor between its clock and its query at once.
    let most = 2 + begin.elapsed().as_millis() as usize / 250;
    assert!(
        (1..=most).contains(&to_peer),
        "the peer is asked once a second, where it was: {to_peer}"
    );
    let astray = sent.iter().filter(|head| head[12..14] != [8, 6] && head.starts_with(&STRANGER));
    assert_eq!(astray.count(), 0);
}

/// A request to the peer, with its memory.
type Post = fn(&Qp, usize, Sge<'_>, Remote) -> Result<(), NdkError>;

fn send(qp: &Qp, context: usize, sge: Sge<'_>, _: Remote) -> Result<(), NdkError> {
    qp.send(context, &[sge], 0)
}

fn read(qp: &Qp, context: usize, sge: Sge<'_>, remote: Remote) -> Result<(), NdkError> {
    qp.read(context, &[sge], remote, 0)
}

fn write(qp: &Qp, context: usize, sge: Sge<'_>, remote: Remote) -> Result<(), NdkError> {
    qp.write(context, &[sge], remote, 0)
}

/// An address that is taken away ends its connections at once, with a status that says it, and nothing is
/// sent from it any more.
fn a_connection_ends_with_its_address() {
    let [v4, v6] = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];
    for (addresses, post) in [(v4, send as Post), (v6, send), (v4, read), (v6, write)] {
        let (net, [line, _]) = net(addresses, None);
        let connection = net.connect();
        works(&connection);
        let [side, peer] = &connection.sides;
        line.cut.store(true, Ordering::Relaxed);
        side.qp.receive(1, &[side.mr.sge(0..10)]).unwrap();
        for context in [2, 3] {
            post(&side.qp, context, side.mr.sge(0..10), peer.mr.remote(0)).unwrap();
        }
        turn(&net.adapters[0]);
        let other = if addresses[0] == "10.0.0.1" { "10.0.0.9" } else { "fd00::9" };
        net.providers[0].set_addresses(vec![other.parse().unwrap()]);
        let mut done: Vec<_> =
            side.results(3).iter().map(|done| (done.RequestContext.addr(), done.Status)).collect();
        done.sort_by_key(|done| done.0);
        let expected =
            [(1, STATUS_CANCELLED), (2, STATUS_NETWORK_UNREACHABLE), (3, STATUS_CANCELLED)];
        assert_eq!(done, expected);
        assert!(connection.connectors[0].wait_disconnected(PATIENCE));
        line.sent.lock().unwrap().clear();
        assert_eq!(status(side.qp.send(4, &[side.mr.sge(0..10)], 0)), STATUS_CONNECTION_INVALID);
        let again = net.adapters[0].create_connector().unwrap();
        let fresh = net.side(0);
        let request = again.connect(&fresh.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
        assert_eq!(status(request.wait()), STATUS_INVALID_ADDRESS);
        assert_eq!(line.sent.lock().unwrap().len(), 0);
    }
}

/// Connects leave in the VLAN of the adapter, as do its questions, and a peer that was asked stays in it.
fn a_connect_is_tagged() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        let (net, [line, _]) = net(addresses, Some(0x6005));
        let connection = net.connect();
        works(&connection);
        for heads in [&line.sent, &line.received] {
            let heads = heads.lock().unwrap();
            let vlans = heads.iter().map(|head| match head[12..14] {
                [0x81, 0] => u16::from_be_bytes([head[14], head[15]]) & 0xfff,
                _ => 0,
            });
            assert!(vlans.clone().all(|vlan| vlan == 5), "{:?}", vlans.collect::<Vec<_>>());
            assert!(heads.len() > 10);
        }
    }
}

/// A port of a longer cable, with an MTU of its own.
struct Port {
    edge: MemoryEdge,
    mtu: usize,
}

impl Edge for Port {
    fn link(&self) -> Link {
        Link { mtu: self.mtu, ..self.edge.link() }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        self.edge.receive(budget, sink)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        self.edge.transmit(budget, fill)
    }

    fn set_waker(&mut self, waker: &std::task::Waker) {
        self.edge.set_waker(waker);
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        self.edge.announce_sleep(sleeping);
    }
}

/// A client with the larger MTU gets the path MTU that the server's port carries.
fn ends_of_different_mtus_connect_from_either() {
    for mtus in [[4200, 1500], [1500, 4200], [9000, 600]] {
        let (first, second) = pair(MemoryConfig { mtu: 9000, ..MemoryConfig::default() });
        let edges: [Box<dyn Edge + Send>; 2] = [
            Box::new(Port { edge: first, mtu: mtus[0] }),
            Box::new(Port { edge: second, mtu: mtus[1] }),
        ];
        let net = Net::over(edges, ["10.0.0.1", "10.0.0.2"], |_| ());
        let connection = net.connect();
        works(&connection);
        let pmtu = if mtus.contains(&600) { 256 } else { 1024 };
        for provider in &net.providers {
            assert_eq!(
                provider.connections().iter().map(|one| one.pmtu).collect::<Vec<_>>(),
                [pmtu]
            );
        }
    }
}
