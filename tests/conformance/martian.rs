//! Packets that no host may send, and packets that are for another one: dropped before anything else is looked at, and counted.

use crate::peer::*;
use rocev2::ids::Qpn;
use rocev2::psn::Psn;
use rocev2::qp::QpState;
use rocev2::wire::mad::{CmMessage, IpCm, gid};
use rocev2::wire::{Bth, DropReason, Encap, Ext, Mac, Opcode};
use std::net::IpAddr;

const GROUPS: [Mac; 4] =
    [Mac([0; 6]), Mac([0xff; 6]), Mac([0x01, 0, 0x5e, 0, 0, 1]), Mac([0x33, 0x33, 0, 0, 0, 1])];
const TAGGED: Terms = Terms { vlan: Some(5), ..TERMS };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Encapsulations of a packet of P that D must not take, each with the reason.
fn bad(world: &World) -> Vec<(Encap, DropReason)> {
    let (encap, own) = (world.encap, world.d.config().addresses.clone());
    let of_nobody: &[_] = match encap.src {
        IpAddr::V4(_) => {
            &["0.0.0.0", "0.0.0.5", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
        }
        IpAddr::V6(_) => &["::", "::1", "ff02::1"],
    };
    let sources = of_nobody.iter().map(|text| ip(text)).chain(own);
    let sources = sources.map(|src| (Encap { src, ..encap }, DropReason::Martian));
    let macs = GROUPS
        .into_iter()
        .flat_map(|mac| [Encap { src_mac: mac, ..encap }, Encap { dst_mac: mac, ..encap }]);
    let another = Encap { dst_mac: Mac([2, 0, 0, 0, 0, 9]), ..encap };
    let macs = macs.chain([another]).map(|encap| (encap, DropReason::EthernetAddress));
    // Another VLAN, none, and a priority without one.
    let vlans =
        [Some(0x6006), None, Some(0x6000)].map(|vlan| (Encap { vlan, ..encap }, DropReason::Vlan));
    sources.chain(macs).chain(vlans).collect()
}

/// One packet of each kind from P's place with these headers: data, an ACK, a CNP, a REQ.
fn kinds(world: &World, encap: &Encap) -> Vec<Vec<u8>> {
    let ack = Bth::new(Opcode::Acknowledge, world.end.qpn, world.end.first[1]);
    let cnp = Bth::new(Opcode::Cnp, world.end.qpn, Psn::default());
    let mut ask = req(encap, 7, TERMS);
    (ask.primary.local_gid, ask.primary.remote_gid) = (gid(encap.src), gid(encap.dst));
    let ip_cm = IpCm { src_port: 7, src: encap.src, dst: encap.dst };
    ask.private_data[..IpCm::LEN].copy_from_slice(&ip_cm.emit());
    vec![
        frame(encap, &world.bth(0, Opcode::SendOnly), &Ext::None, &[0xee; 8]),
        frame(encap, &ack, &aeth(ACK), &[]),
        frame(encap, &cnp, &Ext::Cnp, &[]),
        mad(encap, &CmMessage::Req(ask)),
    ]
}

/// Goal: no kind of packet is taken, or answered, that no host may send from where it says, or that is for another host, group or
/// VLAN; and the connection lives on. A priority in the tag is no other VLAN.
#[test]
fn pkt_27_packets_that_no_host_may_send_are_dropped() {
    each_with(TAGGED, |mut world| {
        world.receive(1, P);
        world.post(2, rocev2::qp::SendOp::Send, 10);
        assert_eq!(world.sent().len(), 1);
        for (encap, reason) in bad(&world) {
            for frame in kinds(&world, &encap) {
                world.is_dropped(reason, |world| world.give(&frame));
            }
        }
        world.encap.vlan = Some(0xe005);
        world.answer(0, ACK);
        world.send(0, 10);
        assert_eq!(world.statuses(), [(2, OK), (1, OK)]);
        assert_eq!(world.state(), QpState::Rts);
    });
}

/// Goal: the way of packets that equal the last one takes none that differs in an address; so a connection that is in use is as
/// safe as a new one.
#[test]
fn pkt_27_a_connection_in_use_takes_no_packet_of_nobody_either() {
    each_with(TAGGED, |mut world| {
        (0..3).for_each(|at| world.works(at));
        for (encap, reason) in bad(&world) {
            let bth = world.bth(3, Opcode::SendOnly);
            let forged = frame(&encap, &bth, &Ext::None, &[0xee; 10]);
            world.is_dropped(reason, |world| world.give(&forged));
            assert_eq!(world.state(), QpState::Rts);
        }
        world.works(3);
    });
}

/// Goal: what D sends to one who asks has D's own Ethernet address as its source, whatever the REQ was sent to.
#[test]
fn pkt_27_a_request_chooses_no_source_address_of_ours() {
    each(|mut world| {
        for dst_mac in GROUPS.into_iter().chain([Mac([2, 0x66, 0, 0, 0, 6])]) {
            let encap = Encap { dst_mac, vlan: Some(0x29a), ..world.encap };
            let mut nobody = req(&encap, 3, TERMS);
            nobody.service_id ^= 1;
            for ask in [nobody, req(&encap, 4, TERMS)] {
                let frame = mad(&encap, &CmMessage::Req(ask));
                world.is_dropped(DropReason::EthernetAddress, |world| world.give(&frame));
            }
        }
        assert!(world.d.poll_transmit(world.now, &mut [0; 2000], 1, &mut world.memory).is_none());
    });
}

/// Goal: a connection of D with itself is closed to the wire: its packets come by an Ethernet address that nobody else knows.
#[test]
fn pkt_27_a_loopback_is_closed_to_the_wire() {
    each(|mut world| {
        let (d, loopback) = (world.encap.dst, world.d.loopback_mac());
        assert!(loopback.is_host() && loopback != world.encap.dst_mac);
        let outside = world.encap;
        world.encap = Encap { src: d, src_mac: loopback, dst_mac: loopback, ..outside };
        world.end = world.another(4, PD, None);
        world.works(0);
        let inside = world.encap;
        let own = outside.dst_mac;
        for (src_mac, dst_mac) in
            [(outside.src_mac, own), (own, own), (loopback, own), (own, loopback)]
        {
            let encap = Encap { src_mac, dst_mac, ..inside };
            for forged in kinds(&world, &encap) {
                let bth_1 = frame(&encap, &world.bth(1, Opcode::SendOnly), &Ext::None, &[0xee; 10]);
                for forged in [forged, bth_1] {
                    world.is_dropped(DropReason::Martian, |world| world.give(&forged));
                }
            }
        }
        // Another host does not pass by it either.
        let encap = Encap { src: outside.src, ..inside };
        for forged in kinds(&world, &encap) {
            world.is_dropped(DropReason::Martian, |world| world.give(&forged));
        }
        world.works(1);
        let drawn = |seed: u8| {
            let config = rocev2::DeviceConfig::new([seed; 32], vec![d], 1);
            rocev2::Device::new(config).loopback_mac()
        };
        assert_ne!(drawn(1), drawn(2));
        assert_ne!(world.end.qpn, Qpn::GSI);
    });
}
