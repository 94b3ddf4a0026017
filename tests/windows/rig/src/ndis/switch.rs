//! The wire: every frame goes to every other port, whose NIC filters.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Deliver = Box<dyn Fn(&[u8]) + Send + Sync>;

static PORTS: Mutex<Vec<(usize, &'static Deliver)>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);
static FRAMES: AtomicUsize = AtomicUsize::new(0);
static TAGGED: AtomicUsize = AtomicUsize::new(0);
/// RoCE frames by the priority of their tag and the DSCP of their IPv4 header.
static CLASSES: Mutex<BTreeMap<(u8, u8), usize>> = Mutex::new(BTreeMap::new());
/// Drops one frame of so many; 0: none.
static LOSS: AtomicUsize = AtomicUsize::new(0);

/// A new port; its number.
pub fn plug(deliver: Deliver) -> usize {
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    PORTS.lock().unwrap().push((port, Box::leak(Box::new(deliver))));
    port
}

pub fn unplug(port: usize) {
    PORTS.lock().unwrap().retain(|(number, _)| *number != port);
}

/// Loses one frame of `every`.
pub fn lose(every: usize) {
    LOSS.store(every, Ordering::Relaxed);
}

pub fn send(from: usize, frame: &[u8]) {
    let count = FRAMES.fetch_add(1, Ordering::Relaxed);
    let loss = LOSS.load(Ordering::Relaxed);
    if loss > 0 && count % loss == loss - 1 {
        return;
    }
    let ports = PORTS.lock().unwrap().clone();
    for (port, deliver) in ports {
        if port != from {
            deliver(frame);
        }
    }
    if frame[12..14] == [0x81, 0] {
        TAGGED.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(class) = class(frame) {
        *CLASSES.lock().unwrap().entry(class).or_insert(0) += 1;
    }
}

/// Of a RoCE frame over IPv4: EtherType 0x0800, protocol 17, destination port 4791.
fn class(frame: &[u8]) -> Option<(u8, u8)> {
    let (priority, rest) = match frame.get(12..)? {
        [0x81, 0, tci, _, rest @ ..] => (tci >> 5, rest),
        rest => (0, rest),
    };
    let [8, 0, ip @ ..] = rest else { return None };
    let is_roce = ip.get(9) == Some(&17) && ip.get(22..24) == Some(&4791_u16.to_be_bytes());
    is_roce.then(|| (priority, ip[1] >> 2))
}

/// The classes of the RoCE frames so far, with their numbers.
pub fn classes() -> BTreeMap<(u8, u8), usize> {
    CLASSES.lock().unwrap().clone()
}

/// Frames that passed.
pub fn frames() -> usize {
    FRAMES.load(Ordering::Relaxed)
}

/// Frames that passed with a VLAN tag.
pub fn tagged_frames() -> usize {
    TAGGED.load(Ordering::Relaxed)
}

/// A port that leads out: every frame is a datagram to and from this UDP port of the machine.
pub fn bridge(port: u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
    socket.connect(("127.0.0.1", port)).expect("an address of this machine");
    // An empty datagram tells the other side where we are.
    socket.send(&[]).expect("the other side listens");
    let out = socket.try_clone().expect("a socket can be shared");
    // A frame that does not get out is lost, as on any wire.
    let number = plug(Box::new(move |frame| drop(out.send(frame))));
    std::thread::spawn(move || {
        let mut frame = [0; 1 << 16];
        while let Ok(len) = socket.recv(&mut frame) {
            if len >= 14 {
                send(number, &frame[..len]);
            }
        }
    });
}
