//! As much of TCP/IP as a vNIC needs to be found: ARP and neighbour discovery, by ordinary frames
//! through the image.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use netadapter_glue::neighbour::Neighbours;

use crate::ndis::vnic::Vnic;

/// By the index of the interface.
type Stacks = HashMap<u32, Neighbours>;
static STACKS: LazyLock<Mutex<Stacks>> = LazyLock::new(Mutex::default);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

const PATIENCE: Duration = Duration::from_secs(3);

fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

fn with<T>(vnic: &Vnic, work: impl FnOnce(&mut Neighbours) -> T) -> T {
    let mut stacks: MutexGuard<'_, Stacks> = STACKS.lock().unwrap();
    let addresses = vnic.addresses.lock().unwrap().clone();
    work(stacks.entry(vnic.index).or_insert_with(|| Neighbours::new(vnic.mac(), &addresses)))
}

/// Answers who asks for an address of the vNIC; remembers who answers.
pub fn hear(vnic: &'static Vnic, frame: &[u8]) {
    let answers = with(vnic, |stack| {
        stack.handle_frame(now(), frame);
        frames(stack)
    });
    if !answers.is_empty() {
        // TCP/IP does not send from within an indication.
        std::thread::spawn(move || answers.iter().for_each(|frame| vnic.send_if_up(frame)));
    }
}

/// Asks for the link-layer address of a neighbour.
pub fn resolve(vnic: &Vnic, target: IpAddr) -> Option<[u8; 6]> {
    let addresses = vnic.addresses.lock().unwrap().clone();
    let local = addresses.into_iter().find(|local| local.is_ipv4() == target.is_ipv4())?;
    with(vnic, |stack| stack.resolve(now(), local, target));
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let (known, asks) = with(vnic, |stack| {
            stack.handle_timeout(now());
            (stack.lookup(now(), target), frames(stack))
        });
        // A stale place is returned, and confirmed as well.
        asks.iter().for_each(|frame| vnic.send_if_up(frame));
        if known.is_some() {
            return known.map(|link| link.mac);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// What the stack wants to send.
fn frames(stack: &mut Neighbours) -> Vec<Vec<u8>> {
    let mut buffer = [0; 1600];
    std::iter::from_fn(|| {
        let len = stack.poll_transmit(&mut buffer)?;
        Some(buffer[..len].to_vec())
    })
    .collect()
}

/// The router on the way to an address that is not on the link: the second adapter plays it.
pub fn router(destination: IpAddr) -> Option<IpAddr> {
    match destination {
        IpAddr::V4(address) if address.octets()[..3] != [10, 0, 0] => {
            Some(IpAddr::from([10, 0, 0, 2]))
        }
        _ => None,
    }
}

/// The Ethernet groups by which neighbour discovery asks for these addresses (RFC 4291, 2.7.1).
pub fn multicast_of(addresses: &[IpAddr]) -> Vec<[u8; 6]> {
    let group = |address: &IpAddr| match address {
        IpAddr::V6(address) => {
            let [.., a, b, c] = address.octets();
            Some([0x33, 0x33, 0xFF, a, b, c])
        }
        IpAddr::V4(_) => None,
    };
    addresses.iter().filter_map(group).collect()
}
