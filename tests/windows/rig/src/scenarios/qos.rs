//! NDIS QoS: a policy of the system sets the priority and the DSCP of connections by their NetworkDirect ports.

use super::frames::frame;
use super::net::{Connection, Net, PORT};
use super::*;
use crate::ndis::qos::{self, HEAD};
use crate::ndis::{INVALID_LENGTH, NOT_SUPPORTED};
use std::net::SocketAddr;

const INVALID_PARAMETER: i32 = 0xC000_000D_u32.cast_signed();

/// Conditions on packets.
const DEFAULT: u16 = 1;
const TCP_PORT: u16 = 2;
const NETWORK_DIRECT_PORT: u16 = 6;
const ENFORCED: u8 = 1;

/// A condition, its field and the priority.
type Element = (u16, u16, u16);

/// `NDIS_QOS_PARAMETERS` as Windows sends them: PFC on priority 3, to which ETS gives half of the bandwidth, and elements.
fn parameters(elements: &[Element]) -> Vec<u8> {
    let head = [&[0xB6, 1, HEAD as u8, 0], &0x3_0303_u32.to_le_bytes()[..], &[2, 0, 0, 0]];
    let tables = [[0, 0, 0, 1, 0, 0, 0, 0], [50, 50, 0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 0, 0, 0]];
    let tail = [1 << 3, elements.len() as u32, 16, HEAD as u32].map(u32::to_le_bytes);
    let mut bytes = [head.concat(), tables.as_flattened().to_vec(), tail.concat()].concat();
    for &(condition, field, priority) in elements {
        bytes.extend([0xB7, 1, 16, 0, 0, 0, 0, 0]);
        bytes.extend([condition, field, 0, priority].map(u16::to_le_bytes).as_flattened());
    }
    bytes
}

/// Sets a policy; `enforced` says of each element whether the adapter is to enforce it. Nothing else of the data changes.
fn set(vnic: &Vnic, elements: &[Element], enforced: &[u8]) {
    let mut data = parameters(elements);
    let mut expected = data.clone();
    for (at, flag) in enforced.iter().enumerate() {
        expected[HEAD + at * 16 + 7] = *flag;
    }
    let answer = qos::set(vnic, &mut data);
    assert_eq!(answer.status, 0, "{answer:x?}");
    assert_eq!(data, expected);
}

/// The operational parameters: their flags, and their elements. All else of them is 0.
fn operational(vnic: &Vnic) -> (u32, Vec<Element>) {
    let answer = vnic.qos.query(oid::QOS_OPERATIONAL_PARAMETERS, 4096).expect("QoS is on");
    assert_eq!(answer[8..40], [0; 32], "neither ETS nor PFC is in force");
    let element = |bytes: &[u8]| {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (number(8), number(10), number(14))
    };
    let elements = answer[HEAD..].chunks(16).map(element).collect();
    (u32::from_le_bytes(answer[4..8].try_into().expect("four bytes")), elements)
}

fn capabilities(vnic: &Vnic) -> [Vec<u8>; 2] {
    [oid::QOS_HARDWARE_CAPABILITIES, oid::QOS_CURRENT_CAPABILITIES]
        .map(|code| vnic.qos.query(code, 20).expect("QoS is there")[4..].to_vec())
}

/// Eight classes, none of which can have ETS or PFC.
const EIGHT: [u8; 16] = [0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Frames of connections to and from the port of a policy have its priority and a DSCP, and others have not; the policy comes
/// in the place of `RoCEPriority`, and established connections follow it.
pub(super) fn qos(host: &dyn Host, _: &[String]) {
    switched_off(host);
    let mut net = Net::plug_with(host, 1500, &[("RoCEPriority", "5")]);
    let [a, b] = net.vnics;
    assert!(a.oids().contains(&oid::QOS_PARAMETERS));
    assert_eq!(capabilities(a), [EIGHT; 2]);
    assert_eq!((operational(a), a.qos.indications()), ((0x1_0000, vec![]), 1));
    if IS_CONSUMER {
        net = net.open_adapters();
        expect_classes(&net.connect(), &[(5, 0)]);
    }
    let policy = [(DEFAULT, 0, 0), (NETWORK_DIRECT_PORT, PORT, 3), (TCP_PORT, 445, 4)];
    for vnic in [a, b] {
        set(vnic, &policy, &[ENFORCED, ENFORCED, 0]);
        assert_eq!(
            (operational(vnic), vnic.qos.indications()),
            ((0x3_0000, policy[..2].to_vec()), 2)
        );
    }
    // The same once more is no change.
    set(a, &policy, &[ENFORCED, ENFORCED, 0]);
    let plain = frame(b.mac(), a.mac(), 1);
    a.send(&plain);
    eventually("a frame of TCP/IP", || b.tags.lock().unwrap().get(&plain) == Some(&0));
    if IS_CONSUMER {
        let connection = net.connect();
        expect_classes(&connection, &[(3, 24)]);
        let sides = [net.side(0), net.side(1)];
        let other = SocketAddr::new(address(1), PORT + 1);
        let other = net.connect_by(sides, address(0), other).expect("the connect succeeds");
        expect_classes(&other, &[(0, 0)]);
        // Both follow, at both ends. One that is in no class any more is as it was asked for: the acceptor does as the connect said.
        for vnic in [a, b] {
            set(vnic, &[(NETWORK_DIRECT_PORT, PORT + 1, 6)], &[ENFORCED]);
        }
        for connection in [&connection, &other] {
            connection.exchange(3, 2000);
        }
        expect_classes(&connection, &[(0, 0), (3, 24)]);
        expect_classes(&other, &[(6, 48)]);
    }
    for vnic in [a, b] {
        set(vnic, &[], &[]);
        assert_eq!(operational(vnic), (0x3_0000, vec![]));
    }
    say!("QoS verified");
    net.end(host);
}

/// All RoCE frames of an exchange have one of these classes, and each of these is there.
fn expect_classes(connection: &Connection, expected: &[(u8, u8)]) {
    let before = switch::classes();
    connection.exchange(20, 5000);
    let mut since = switch::classes();
    since.retain(|class, count| before.get(class) != Some(count));
    say!("classes of frames: {since:?}");
    assert!(since.keys().eq(expected), "{since:?} instead of {expected:?}");
}

/// Without the keyword NDIS hears nothing of QoS; one of 0 leaves the adapter without capabilities.
fn switched_off(host: &dyn Host) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let off = add_with(0, nic, &[("*QOS", "0"), ("*PriorityVLANTag", "0")]);
    expect_ready(off, nic);
    assert_eq!((capabilities(off), off.qos.is_on()), ([EIGHT.to_vec(), vec![0; 16]], false));
    assert_eq!(qos::set(off, &mut parameters(&[])).status, NOT_SUPPORTED);
    assert_eq!((off.mac_options() & 0x40, off.qos.indications()), (0, 0));
    off.remove();
    // An INF of before has none.
    let mut keywords = keywords(nic, &[]);
    keywords.retain(|(name, _)| *name != "*QOS");
    let none = Vnic::add(&keywords, &[address(0)]).expect("the adapter starts");
    assert_eq!(none.qos.query(oid::QOS_HARDWARE_CAPABILITIES, 20), Err(NOT_SUPPORTED));
    assert!(!none.oids().contains(&oid::QOS_PARAMETERS));
    assert_eq!(qos::set(none, &mut parameters(&[])).status, NOT_SUPPORTED);
    none.remove();
    // On, it has priorities whatever the other keyword says.
    let on = add_with(0, nic, &[("*PriorityVLANTag", "0")]);
    assert_eq!(on.mac_options() & 0x40, 0x40);
    on.remove();
    finish(host);
}

/// Data that is wrong at a place, there by these bytes.
const WRONG: &[(&str, usize, &[u8])] = &[
    ("the type", 0, &[0xB5]),
    ("the revision", 1, &[0]),
    ("a size below the structure's", 2, &[51, 0]),
    ("a size beyond the buffer", 2, &[101, 0]),
    ("ETS without PFC", 4, &[0x03, 0x00]),
    ("no class", 8, &[0]),
    ("nine classes", 8, &[9]),
    ("a priority of a class that is none", 19, &[2]),
    ("bandwidths of less than all", 20, &[49]),
    ("bandwidth without ETS", 28, &[0]),
    ("a credit-based shaper", 29, &[1]),
    ("PFC of a priority that is none", 37, &[1]),
    ("elements beyond the buffer", 40, &[4]),
    ("more elements than bytes", 40, &[0xFF; 4]),
    ("elements of another size", 44, &[20]),
    ("elements within the structure", 48, &[48]),
    ("an element at an odd offset", 40, &[1, 0, 0, 0, 16, 0, 0, 0, 54]),
    ("elements that begin nowhere", 48, &[0xFC, 0xFF, 0xFF, 0xFF]),
    ("the type of an element", HEAD, &[0xB6]),
    ("the size of an element", HEAD + 2, &[15]),
    ("a default that is not the first", HEAD + 16 + 8, &[1, 0, 0, 0]),
    ("a default with a port", HEAD + 10, &[1]),
    ("a condition that nobody knows", HEAD + 8, &[7]),
    ("an action that nobody knows", HEAD + 12, &[1]),
    ("a priority of nine", HEAD + 14, &[9]),
];

/// Each incorrect value is refused by its status, and nothing changes.
pub(super) fn qos_malformed(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    let policy = [(DEFAULT, 0, 1), (NETWORK_DIRECT_PORT, 445, 3)];
    set(vnic, &policy, &[ENFORCED; 2]);
    let before = (operational(vnic), vnic.qos.indications());
    let refused = |what: &str, mut data: Vec<u8>, status| {
        let sent = data.clone();
        let answer = qos::set(vnic, &mut data);
        assert_eq!((answer.status, answer.done), (status, 0), "{what}: {answer:x?}");
        assert_eq!(data, sent, "{what}");
        assert_eq!((operational(vnic), vnic.qos.indications()), before, "{what}");
        answer.needed
    };
    let good = || parameters(&[(DEFAULT, 0, 2), (NETWORK_DIRECT_PORT, 445, 4), (TCP_PORT, 9, 1)]);
    for &(what, at, bytes) in WRONG {
        let mut data = good();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        refused(what, data, INVALID_PARAMETER);
    }
    for len in [0, 4, HEAD - 1] {
        let needed = refused("a buffer that is too short", good()[..len].to_vec(), INVALID_LENGTH);
        assert_eq!(needed as usize, HEAD);
    }
    refused("elements behind the buffer", good()[..HEAD + 17].to_vec(), INVALID_PARAMETER);
    // It is a method, and queries are answered by NDIS.
    for kind in [oid::QUERY, oid::SET] {
        let answer = oid::ask(vnic, kind, oid::QOS_PARAMETERS, &mut good(), false);
        assert_eq!(answer.status, NOT_SUPPORTED);
    }
    let answer = oid::ask(vnic, oid::METHOD, oid::NDK_STATISTICS, &mut good(), false);
    assert_eq!(answer.status, NOT_SUPPORTED);
    assert_eq!(vnic.qos.query(oid::QOS_OPERATIONAL_PARAMETERS, HEAD), Err(INVALID_LENGTH));
    // It still takes what is right.
    set(vnic, &[(NETWORK_DIRECT_PORT, 445, 5)], &[ENFORCED]);
    assert_eq!(vnic.qos.indications(), before.1 + 1);
    vnic.remove();
    finish(host);
}
