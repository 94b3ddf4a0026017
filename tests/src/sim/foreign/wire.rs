//! What a foreign peer puts on the wire: frames from nothing but bytes, and its answers to those who
//! ask where it is.

use super::super::packet::{icrc_of, number, sum};
use std::net::IpAddr;

/// What a packet of a connection says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) opcode: u8,
    pub(crate) solicited: bool,
    pub(crate) ack_req: bool,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) ext: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Who speaks to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) macs: [[u8; 6]; 2],
    pub(crate) ips: [IpAddr; 2],
}

/// The IPv4 or IPv6 bytes of an address.
pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The frame of a packet.
pub(crate) fn frame(route: &Route, packet: &Packet) -> Vec<u8> {
    let pad = packet.payload.len().wrapping_neg() & 3;
    let mut udp = vec![0xd8, 0x72, 0x12, 0xb7];
    let len = 8 + 12 + packet.ext.len() + packet.payload.len() + pad + 4;
    udp.extend((len as u16).to_be_bytes());
    udp.extend([0, 0]);
    let flags = u8::from(packet.solicited) << 7 | (pad as u8) << 4;
    udp.extend([packet.opcode, flags, 0xff, 0xff, 0]);
    udp.extend(&packet.qpn.to_be_bytes()[1..]);
    udp.push(u8::from(packet.ack_req) << 7);
    udp.extend(&packet.psn.to_be_bytes()[1..]);
    udp.extend(&packet.ext);
    udp.extend(&packet.payload);
    udp.resize(udp.len() + pad, 0);
    let ip = ip_header(route, 17, len);
    let icrc = icrc_of(&ip, ip.len(), &udp);
    udp.extend(icrc);
    ethernet(route, &[ip, udp].concat())
}

fn ethernet(route: &Route, packet: &[u8]) -> Vec<u8> {
    let kind = if route.ips[0].is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&route.macs[1], &route.macs[0], &kind[..], packet].concat()
}

fn ip_header(route: &Route, protocol: u8, len: usize) -> Vec<u8> {
    let [src, dst] = route.ips.map(octets);
    if route.ips[0].is_ipv6() {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((len as u16).to_be_bytes());
        // Neighbour discovery wants 255, and nobody else minds.
        ip.extend([protocol, 255]);
        return [ip, src, dst].concat();
    }
    let total = (20 + len) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
    ip = [ip, src, dst].concat();
    let checksum = !(sum(&ip) as u16);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip
}

/// The answer to somebody who asks for the link-layer address of ours (RFC 826; RFC 4861,
/// Neighbor Discovery).
pub(crate) fn resolve(frame: &[u8], mac: [u8; 6], ip: IpAddr) -> Option<Vec<u8>> {
    match number(frame.get(..14)?, 12, 2) {
        0x0806 => resolve_v4(frame.get(14..42)?, mac, ip),
        0x86dd => resolve_v6(frame, mac, ip),
        _ => None,
    }
}

fn resolve_v4(arp: &[u8], mac: [u8; 6], ip: IpAddr) -> Option<Vec<u8>> {
    let asks = number(arp, 6, 2) == 1 && arp[24..28] == octets(ip)[..];
    let (to, asker) = (*arp[8..].first_chunk()?, *arp[14..].first_chunk::<4>()?);
    asks.then(|| is_at(mac, ip, to, &asker))
}

/// An ARP answer.
fn is_at(mac: [u8; 6], ip: IpAddr, to: [u8; 6], asker: &[u8]) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 2];
    let kind = [8, 6];
    [&to, &mac, &kind[..], &head, &mac, &octets(ip), &to, asker, &[0; 18]].concat()
}

/// What somebody with that link-layer address says who has, or claims to have, an address: to one, or to
/// all, of its own accord.
pub(crate) fn claim(mac: [u8; 6], ip: IpAddr, to: Option<([u8; 6], IpAddr)>) -> Vec<u8> {
    let all_nodes = ([0x33, 0x33, 0, 0, 0, 1], IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 1]));
    match (ip, to) {
        (IpAddr::V4(_), Some((to, asker))) => is_at(mac, ip, to, &octets(asker)),
        (IpAddr::V4(_), None) => is_at(mac, ip, [0xff; 6], &octets(ip)),
        (IpAddr::V6(_), Some(to)) => advertise(mac, ip, to, 0x60),
        (IpAddr::V6(_), None) => advertise(mac, ip, all_nodes, 0x20),
    }
}

/// Somebody with that link-layer address asks a host for the place of one of its addresses.
pub(crate) fn ask(mac: [u8; 6], ip: IpAddr, to: [u8; 6], target: IpAddr) -> Vec<u8> {
    if ip.is_ipv4() {
        let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        let [own, other] = [ip, target].map(octets);
        return [&to, &mac, &head[..], &mac, &own, &[0; 6], &other, &[0; 18]].concat();
    }
    discover(mac, ip, (to, target), [135, 0], [1, 1], target)
}

fn resolve_v6(frame: &[u8], mac: [u8; 6], ip: IpAddr) -> Option<Vec<u8>> {
    let asked = frame.get(62..78)?;
    if frame[20] != 58 || frame[54] != 135 || asked != octets(ip) {
        return None;
    }
    let src: [u8; 16] = frame[22..38].try_into().ok()?;
    let from: [u8; 6] = frame[6..12].try_into().ok()?;
    Some(advertise(mac, ip, (from, IpAddr::from(src)), 0x60))
}

/// A neighbour advertisement with these flags.
fn advertise(mac: [u8; 6], ip: IpAddr, (to, asker): ([u8; 6], IpAddr), flags: u8) -> Vec<u8> {
    discover(mac, ip, (to, asker), [136, flags], [2, 1], ip)
}

/// A message of neighbour discovery about a target: its type and flags, and the option that tells the link-layer address.
fn discover(
    mac: [u8; 6],
    ip: IpAddr,
    (to, other): ([u8; 6], IpAddr),
    [kind, flags]: [u8; 2],
    option: [u8; 2],
    target: IpAddr,
) -> Vec<u8> {
    let route = Route { macs: [mac, to], ips: [ip, other] };
    let mut body = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    body.extend(octets(target));
    body.extend(option);
    body.extend(mac);
    let mut header = octets(ip);
    header.extend(octets(other));
    header.extend([0, 0, 0, body.len() as u8, 0, 0, 0, 58]);
    let checksum = !(sum(&[header, body.clone()].concat()) as u16);
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    ethernet(&route, &[ip_header(&route, 58, body.len()), body].concat())
}

/// The place of a PSN, next to a known one, where they count from a first one.
pub(crate) fn place(first: u32, psn: u32, near: u64) -> Option<u64> {
    let expected = first.wrapping_add(near as u32) & 0xff_ffff;
    let distance = (psn.wrapping_sub(expected) << 8).cast_signed() >> 8;
    near.checked_add_signed(i64::from(distance))
}

/// The PSN of a place.
pub(crate) const fn psn(first: u32, at: u64) -> u32 {
    first.wrapping_add(at as u32) & 0xff_ffff
}
