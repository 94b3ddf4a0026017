//! Marks on real frames: what leaves by a host's edges may be marked, and a mark arrives.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, process};

use driver::abi::{NDK_RESULT_EX, STATUS_SUCCESS};
use netadapter_glue::af_packet::AfPacket;
use netadapter_glue::memory::{MemoryConfig, pair};
use netadapter_glue::pcap::Capture;
use netadapter_glue::tap::Tap;
use netadapter_glue::{Edge, EdgeError, Received, Slot, fill_one, forward_edge};
use tests::kit::Net;

use tests::lab::{judge, scratch, skip};

type BoxEdge = Box<dyn Edge + Send>;

const FAMILIES: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];
/// Bytes of a WRITE: many packets.
const LEN: usize = 100_000;

/// What passed a [`Switch`], of RC packets.
#[derive(Default)]
struct Seen {
    /// Sent as capable of being marked, and otherwise.
    capable: AtomicUsize,
    incapable: AtomicUsize,
    /// Received: marked packets, and notifications.
    marked: AtomicUsize,
    cnps: AtomicUsize,
}

/// A full switch in front of an edge: it marks all that leaves and may be marked.
struct Switch {
    edge: BoxEdge,
    seen: Arc<Seen>,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Opcode and ECN bits of a RoCEv2 frame.
fn look(frame: &[u8]) -> Option<(u8, u8)> {
    let (udp, ecn) = match frame.get(12..14)? {
        [0x08, 0x00] => (34, frame[15] & 3),
        [0x86, 0xdd] => (54, frame[15] >> 4 & 3),
        _ => return None,
    };
    (frame.get(udp + 2..udp + 4)? == 4791_u16.to_be_bytes()).then(|| (frame[udp + 8], ecn))
}

/// Marks a packet that is capable of it, and corrects the checksum of an IPv4 header (RFC 1624).
fn mark(frame: &mut [u8]) {
    if frame[12..14] == [0x86, 0xdd] {
        frame[15] |= 0x10;
        return;
    }
    frame[15] |= 1;
    let (sum, carry) = (!u16::from_be_bytes([frame[24], frame[25]])).overflowing_add(1);
    frame[24..26].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
}

impl Edge for Switch {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let Self { edge, seen } = self;
        edge.receive_each(budget, |received| {
            match look(received.frame) {
                Some((0x81, _)) => count(&seen.cnps),
                Some((_, 3)) => count(&seen.marked),
                _ => {}
            }
            sink(&[received]);
        })
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let Self { edge, seen } = self;
        edge.transmit_each(budget, |buffer| {
            let transmit = fill_one(fill, buffer)?;
            match look(&buffer[..transmit.len]) {
                Some((0..0x20, 2)) => {
                    count(&seen.capable);
                    mark(buffer);
                }
                Some((0..0x20, _)) => count(&seen.incapable),
                _ => {}
            }
            Some(transmit)
        })
    }
}

/// An interface, or a pair of them, that goes with this.
struct Interfaces(String);

impl Drop for Interfaces {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(said)) }
}

/// Two packet sockets on a veth pair.
fn veth(
    tag: &str,
    open: fn(&str) -> io::Result<AfPacket>,
) -> io::Result<(Interfaces, [BoxEdge; 2])> {
    let [a, b] = ["a", "b"].map(|end| format!("ecn{tag}{end}{}", process::id()));
    ip(&format!("link add {a} type veth peer name {b}"))?;
    let interfaces = Interfaces(a.clone());
    for end in [&a, &b] {
        ip(&format!("link set {end} addrgenmode none"))?;
        ip(&format!("link set {end} up"))?;
    }
    Ok((interfaces, [Box::new(open(&a)?), Box::new(open(&b)?)]))
}

/// A TAP device, and a packet socket on its other side.
fn tap(tag: &str) -> io::Result<(Interfaces, [BoxEdge; 2])> {
    let name = format!("ecn{tag}{}", process::id());
    let tap = Tap::open(&name, [2, 0, 0, 0, 0, 0x77])?;
    let interfaces = Interfaces(name.clone());
    ip(&format!("link set {name} addrgenmode none"))?;
    ip(&format!("link set {name} up"))?;
    Ok((interfaces, [Box::new(tap), Box::new(AfPacket::open(&name)?)]))
}

fn memory() -> io::Result<(Interfaces, [BoxEdge; 2])> {
    let (a, b) = pair(MemoryConfig { max_segments: 8, ..MemoryConfig::default() });
    Ok((Interfaces("none".into()), [Box::new(a), Box::new(b)]))
}

/// Goal: what leaves by each kind of edge of a host may be marked, a mark reaches the receiver's core, and its
/// notification, which others accept, comes back; switched off, nothing of it.
/// Method: WRITEs both ways through switches that mark all they may.
#[test]
fn ecn_passes_every_edge() {
    let dir = scratch("ecn_passes_every_edge");
    for (family, addresses) in ["ipv4", "ipv6"].into_iter().zip(FAMILIES) {
        let kinds = [
            ("memory", memory()),
            ("packet", veth("p", AfPacket::open)),
            ("offload", veth("o", AfPacket::open_with_offload)),
            ("tap", tap("t")),
        ];
        for (kind, edges) in kinds {
            let (_interfaces, edges) = match edges {
                Ok(edges) => edges,
                Err(error) => {
                    skip(&format!("{kind}: {error}"));
                    continue;
                }
            };
            let file = dir.join(format!("{family}-{kind}.pcap"));
            exchange(edges, addresses, true, &file);
            let counts = judge(&file, &["icrc", "scapy", "tshark"]);
            // The judges may be missing; the switches have counted in any case.
            assert!(counts.is_empty() || counts.contains_key("OPCODE_0x81"), "{kind}: {counts:?}");
        }
        let (_, edges) = memory().unwrap();
        exchange(edges, addresses, false, &dir.join(format!("{family}-off.pcap")));
    }
}

/// A WRITE from each host to the other.
fn exchange(edges: [BoxEdge; 2], addresses: [&str; 2], control: bool, file: &std::path::Path) {
    let seen: [Arc<Seen>; 2] = Default::default();
    let [first, second] = edges;
    let captured: BoxEdge = Box::new(Capture::create(first, file).expect("target/tmp is writable"));
    let switch = |edge, host: usize| Switch { edge, seen: Arc::clone(&seen[host]) };
    let edges: [BoxEdge; 2] = [Box::new(switch(captured, 0)), Box::new(switch(second, 1))];
    let net = Net::over(edges, addresses, |config| {
        if !control {
            config.dcqcn = None;
        }
    });
    let connection = net.connect();
    for (from, to) in [(0, 1), (1, 0)] {
        let [from, to] = [from, to].map(|host: usize| &connection.sides[host]);
        from.fill(7);
        from.qp.write(0, &[from.mr.sge(0..LEN)], to.mr.remote(LEN), 0).unwrap();
        let results: Vec<NDK_RESULT_EX> = from.results(1);
        assert_eq!(results[0].Status, STATUS_SUCCESS);
        assert_eq!(to.bytes(LEN, LEN), from.bytes(0, LEN));
    }
    drop(connection);
    drop(net);
    for seen in seen {
        let [capable, incapable, marked, cnps] =
            [&seen.capable, &seen.incapable, &seen.marked, &seen.cnps]
                .map(|counter| counter.load(Ordering::Relaxed));
        let what = format!("{file:?}: {capable} {incapable} {marked} {cnps}");
        assert_eq!((capable > 0, incapable > 0), (control, !control), "{what}");
        assert_eq!((marked > 0, cnps > 0), (control, control), "{what}");
    }
}
