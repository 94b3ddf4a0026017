//! As much of TCP/IP as a vNIC needs to be found: ARP, by ordinary frames through the image.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use crate::ndis::vnic::Vnic;

type Neighbours = HashMap<(u32, IpAddr), [u8; 6]>;
static NEIGHBOURS: LazyLock<Mutex<Neighbours>> = LazyLock::new(Mutex::default);

const ARP: [u8; 2] = [0x08, 0x06];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const BROADCAST: [u8; 6] = [0xFF; 6];

/// Answers a request for an address of the vNIC; remembers who asks and who answers.
pub fn hear(vnic: &'static Vnic, frame: &[u8]) {
    if frame.len() < 42 || frame[12..14] != ARP {
        return;
    }
    let mac: [u8; 6] = frame[22..28].try_into().unwrap();
    let sender = ip(&frame[28..32]);
    NEIGHBOURS.lock().unwrap().insert((vnic.index, sender), mac);
    let target = ip(&frame[38..42]);
    if frame[21] == REQUEST && vnic.addresses.lock().unwrap().contains(&target) {
        let reply = arp(vnic, REPLY, mac, mac, target, sender);
        // TCP/IP does not send from within an indication.
        std::thread::spawn(move || vnic.send(&reply));
    }
}

/// Asks for the link-layer address of a neighbour, three times a second apart.
pub fn resolve(vnic: &Vnic, target: IpAddr) -> Option<[u8; 6]> {
    let source = *vnic.addresses.lock().unwrap().iter().find(|address| address.is_ipv4())?;
    for _ in 0..3 {
        vnic.send(&arp(vnic, REQUEST, BROADCAST, [0; 6], source, target));
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            if let Some(mac) = NEIGHBOURS.lock().unwrap().get(&(vnic.index, target)) {
                return Some(*mac);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    None
}

fn arp(
    vnic: &Vnic,
    operation: u8,
    to: [u8; 6],
    mac: [u8; 6],
    from: IpAddr,
    target: IpAddr,
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60);
    frame.extend(to);
    frame.extend(vnic.mac());
    frame.extend(ARP);
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(vnic.mac());
    frame.extend(octets(from));
    frame.extend(mac);
    frame.extend(octets(target));
    frame.resize(60, 0);
    frame
}

fn ip(bytes: &[u8]) -> IpAddr {
    IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap())
}

fn octets(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => [0; 4],
    }
}
