//! Goal: no flood of ARP or neighbour discovery refuses a connect to a neighbour that lives.
//! Method: two providers over the ends of a veth pair, each end in a network namespace of its own, and a raw socket beside one of
//! them, whose frames invent 64 and 10,000 hosts, each at two places, 43 and 5,000 a second. Each connect looks for another address
//! of the server. The floods in virtual time are in `netadapter-glue/src/neighbour/tests/flood.rs`.

use ndk_consumer::{EndpointConfig, Host, HostBuilder};
use netadapter_glue::af_packet::AfPacket;
use netadapter_glue::neighbour::FRAME_MAX_LEN;
use netadapter_glue::neighbour::ask::Question;
use netadapter_glue::{Edge, Transmit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{File, read_link};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The variable by which the test knows that it runs in its namespace.
const INSIDE: &str = "NEIGHBOURS_INSIDE";
const PORT: u16 = 7174;
/// Connects beside each flood.
const CONNECTS: u32 = 10;

#[test]
fn a_flood_of_claims_refuses_no_connect() {
    if std::env::var_os(INSIDE).is_some() {
        return beside_floods();
    }
    let test = std::env::current_exe().expect("the test's own file");
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--kill-child", "--fork"])
        .arg(test)
        .args(["--exact", "a_flood_of_claims_refuses_no_connect", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    match status {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

fn beside_floods() {
    let peer = match Peer::new() {
        Ok(peer) => peer,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let (server, mut stranger) = peer.run(|| {
        let addresses = (0..8 * CONNECTS).flat_map(|number| [v4(1, number), v6(1, number)]);
        (host("rdma1", addresses.collect()), AfPacket::open("rdma1").expect("a raw socket"))
    });
    let client = host("rdma0", vec![v4(0, 0), v6(0, 0)]);
    let mut number = 0..8 * CONNECTS;
    for (per_second, hosts) in [(43, 64), (43, 10_000), (5_000, 64), (5_000, 10_000)] {
        for own in [v4(0, 0), v6(0, 0)] {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| flood(&mut stranger, own, (per_second, hosts), &over));
                for number in number.by_ref().take(CONNECTS as usize) {
                    thread::sleep(Duration::from_millis(100));
                    let to = if own.is_ipv4() { v4(1, number) } else { v6(1, number) };
                    connect(&client, &server, to);
                }
                over.store(true, Ordering::Relaxed);
            });
        }
    }
}

fn host(interface: &str, addresses: Vec<IpAddr>) -> Host {
    let builder = HostBuilder::new(addresses).address_probe(false);
    builder.open(&format!("af-packet:{interface}")).expect("a host")
}

fn connect(client: &Host, server: &Host, to: IpAddr) {
    let config = EndpointConfig::default();
    let listener = server.adapter().listen((to, PORT).into()).expect("a listener");
    thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(&listener, &config));
        let connected = client.connect((to, PORT).into(), &config);
        assert!(connected.is_ok(), "{to}: {:?}", connected.err());
        accepted.join().expect("the server goes on").expect("its end of the connection");
    });
}

/// Sends claims for `own` to hear, in bursts, until it is over.
fn flood(stranger: &mut AfPacket, own: IpAddr, (per_second, hosts): (u32, u32), over: &AtomicBool) {
    const BURST: u32 = 128;
    let pause = Duration::from_secs(1) * BURST / per_second;
    let mut next = Instant::now();
    for first in (0..).step_by(BURST as usize) {
        let frames = (first..first + BURST).map(|count| claim(own, count / 2 % hosts, count % 2));
        for frame in frames {
            send(stranger, &frame);
        }
        next += pause;
        while Instant::now() < next {
            if over.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(5).min(next - Instant::now().min(next)));
        }
    }
}

/// A query for `own` by the host of that number, at one of its two places.
fn claim(own: IpAddr, host: u32, place: u32) -> Vec<u8> {
    let from = if own.is_ipv4() { v4(2, host) } else { v6(2, host) };
    let mut frame = [0; FRAME_MAX_LEN];
    let question = Question::Place { own_ip: from, ip: own, at: None };
    let len = question.write(&mut frame, [2, 0, 0, 0, 9, place as u8], None);
    frame[..len].to_vec()
}

fn send(edge: &mut AfPacket, frame: &[u8]) {
    let mut frame = Some(frame);
    // What finds no room is one frame less of a flood.
    let _ = edge.transmit_each(1, |buffer| {
        let frame = frame.take()?;
        buffer[..frame.len()].copy_from_slice(frame);
        Some(Transmit { len: frame.len(), segments: None })
    });
}

/// The address of a host of the client's, the server's and the stranger's network.
fn v4(network: u8, number: u32) -> IpAddr {
    IpAddr::from((0x0a00_0001 + (u32::from(network) << 16) + number).to_be_bytes())
}

fn v6(network: u8, number: u32) -> IpAddr {
    let bits = (0xfd00 << 112) | (u128::from(network) << 32) | (1 + u128::from(number));
    IpAddr::from(u128::to_be_bytes(bits))
}

/// The namespace of the server's end, which lives as long as a process in it.
struct Peer {
    process: Child,
    namespace: File,
}

impl Peer {
    fn new() -> Result<Self, String> {
        let spawned = Command::new("unshare").args(["--net", "sleep", "600"]).spawn();
        let process = spawned.map_err(|error| format!("unshare: {error}"))?;
        let path = format!("/proc/{}/ns/net", process.id());
        let own = read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
        let since = Instant::now();
        while read_link(&path).is_ok_and(|theirs| theirs == own) {
            if since.elapsed() > Duration::from_secs(10) {
                return Err("no second namespace".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        let namespace = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        let peer = Self { process, namespace };
        let id = peer.process.id();
        ip(&format!("link add rdma0 type veth peer name rdma1 netns {id}"))?;
        ip("link set rdma0 up")?;
        peer.run(|| ip("link set rdma1 up"))?;
        Ok(peer)
    }

    /// Runs `work` in the namespace, in which stays what it opens.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.namespace.as_fd(), network).expect("our namespace");
                work()
            });
            inside.join().expect("the work in the namespace")
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split_whitespace()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    let reason = || format!("ip {args}: {}", String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(()).ok_or_else(reason)
}
