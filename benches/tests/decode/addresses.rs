//! Captures of several VLANs, and of two hosts with one address.

use pcap_file::pcap::PcapReader;
use rocev2::ids::{CommId, Qpn};
use rocev2::wire::mad::{CmMessage, emit_mad, parse_mad};
use rocev2::wire::{Mac, Packet};

use super::*;
use kit::frame;

const CONNECTION: &str = "k612_rping_v4.pcap";

/// Goal: the same queue pairs and IDs in two VLANs are two connections, in two conversations.
#[test]
fn a_connection_of_another_vlan_is_another_one() {
    expect_two(|bytes| [&bytes[..12], &[0x81, 0, 0, 7], &bytes[12..]].concat());
}

/// Goal: so is one with another server of the same address, which has chosen the same ID and queue pair.
#[test]
fn a_second_server_of_one_address_has_connections_of_its_own() {
    let client = req_of(&frames());
    expect_two(|bytes| with_another_server(bytes, &client));
}

#[test]
fn tags_of_vlans_change_nothing() {
    let frames = [(0, read(0, 8)), (7, response(Opcode::ReadResponseOnly, 0, 8, 1))];
    let tagged = |tags: &[u8]| {
        let tag = |frame: &Vec<u8>| [&frame[..12], tags, &frame[12..]].concat();
        let file = made(&frames.each_ref().map(|(at_us, frame)| (*at_us, tag(frame))));
        let report = json(&file.path);
        assert_eq!((&report["roce"], &report["malformed"]), (&2.into(), &serde_json::json!({})));
        report["conversations"].clone()
    };
    let plain = tagged(&[]);
    assert_eq!(plain[0]["directions"][0]["operations"]["READ"]["bytes"], 8);
    assert_eq!(tagged(&[0x81, 0, 0x60, 5]), plain);
    assert_eq!(tagged(&[0x88, 0xa8, 0, 6, 0x81, 0, 0x60, 5]), plain);
}

/// Each frame of a capture is followed by a copy that `other` has changed.
fn expect_two(other: impl Fn(&[u8]) -> Vec<u8>) {
    let alone = json(&captured(CONNECTION));
    let both = frames().into_iter().flat_map(|(at_us, bytes)| {
        let copy = other(&bytes);
        [(at_us, bytes), (at_us, copy)]
    });
    let report = json(&made(&both.collect::<Vec<_>>()).path);
    assert_eq!(list(&report["findings"]), [] as [Value; 0], "{report:#}");
    let messages = |connection: &Value| list(&connection["events"]).len();
    let [one, other] = list(&report["connections"]) else { panic!("{report:#}") };
    assert_eq!((messages(one), messages(other)), (5, 5), "{report:#}");
    let [one, other] = list(&report["conversations"]) else { panic!("{report:#}") };
    let expected = &alone["conversations"][0];
    for found in [one, other] {
        assert_eq!(found["packets"], expected["packets"]);
        assert_eq!(found["path_mtu"], expected["path_mtu"]);
        for (found, expected) in
            list(&found["directions"]).iter().zip(list(&expected["directions"]))
        {
            for what in ["request_packets", "in_order", "operations", "gaps"] {
                assert_eq!(found[what], expected[what], "{what}");
            }
        }
    }
}

fn frames() -> Vec<(u64, Vec<u8>)> {
    let file = fs::File::open(captured(CONNECTION)).unwrap();
    let (mut reader, mut found) = (PcapReader::new(file).unwrap(), Vec::new());
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        found.push((packet.timestamp.as_micros() as u64, packet.data.into_owned()));
    }
    let first = found[0].0;
    found.into_iter().map(|(at_us, bytes)| (at_us - first, bytes)).collect()
}

/// The names of the active side.
struct Client {
    address: std::net::IpAddr,
    comm_id: CommId,
    qpn: Qpn,
}

fn req_of(frames: &[(u64, Vec<u8>)]) -> Client {
    let packet = Packet::parse(&frames[0].1).unwrap();
    let Ok((_, CmMessage::Req(req))) = parse_mad(packet.payload) else { panic!("no REQ") };
    Client { address: packet.encap.src, comm_id: req.local_comm_id, qpn: req.local_qpn }
}

/// The same between the client's next queue pair, with the next ID, and a server of another MAC.
fn with_another_server(bytes: &[u8], client: &Client) -> Vec<u8> {
    let packet = Packet::parse(bytes).unwrap();
    let (mut encap, mut bth) = (packet.encap, packet.bth);
    let is_theirs = encap.src == client.address;
    *(if is_theirs { &mut encap.dst_mac } else { &mut encap.src_mac }) = Mac([2, 0, 0, 0, 0, 9]);
    let (qpn, comm_id) =
        (Qpn::new(client.qpn.get() + 1), CommId::new(client.comm_id.get().wrapping_add(1)));
    if bth.dest_qpn == client.qpn && !is_theirs {
        bth.dest_qpn = qpn;
    }
    if bth.dest_qpn.get() != 1 {
        return frame(&encap, &bth, &packet.ext, packet.payload);
    }
    let (header, mut message) = parse_mad(packet.payload).unwrap();
    let (local, remote) = match &mut message {
        CmMessage::Req(req) => {
            req.local_qpn = qpn;
            (&mut req.local_comm_id, None)
        }
        CmMessage::Rep(rep) => (&mut rep.local_comm_id, Some(&mut rep.remote_comm_id)),
        CmMessage::Rtu(rtu) => (&mut rtu.local_comm_id, Some(&mut rtu.remote_comm_id)),
        CmMessage::Dreq(dreq) => {
            if !is_theirs {
                dreq.remote_qpn = qpn;
            }
            (&mut dreq.local_comm_id, Some(&mut dreq.remote_comm_id))
        }
        CmMessage::Drep(drep) => (&mut drep.local_comm_id, Some(&mut drep.remote_comm_id)),
        _ => panic!("the capture has no {}", message.name()),
    };
    let named = if is_theirs { Some(local) } else { remote };
    named.into_iter().for_each(|id| *id = comm_id);
    let mut mad = [0; 256];
    emit_mad(&header, &message, &mut mad);
    frame(&encap, &bth, &packet.ext, &mad)
}
