//! What travels beside frames, where they lie, and whose they are.

use std::sync::atomic::Ordering;

use super::net::{Net, register_again};
use super::*;

/// An ordinary frame of TCP/IP; `mark` makes it one of a kind.
pub(super) fn frame(to: [u8; 6], from: [u8; 6], mark: u8) -> Vec<u8> {
    let mut frame = [&to[..], &from[..], &[0x88, 0xB5]].concat();
    frame.resize(90, mark);
    frame
}

pub(super) fn has_heard(vnic: &Vnic, frame: &[u8]) -> bool {
    vnic.heard.lock().unwrap().iter().any(|heard| heard == frame)
}

/// `LowerMode` 1: the adapter has an address of its own beside that of the NIC, which keeps its TCP/IP.
pub(super) fn own_address(host: &dyn Host, _: &[String]) {
    let net = Net::plug_with(host, 1500, &[("LowerMode", "1")]);
    let [a, b] = net.vnics;
    for (vnic, nic) in net.vnics.into_iter().zip(net.nics) {
        assert!(vnic.mac() != nic.mac, "the adapter has its NIC's address");
        assert_eq!(vnic.mac()[0] & 3, 2, "not a locally administered station: {:x?}", vnic.mac());
    }
    assert!(a.mac() != b.mac(), "two adapters with one address");
    // What is for the NIC's own TCP/IP, or for anybody else, is not for the adapter.
    for to in [net.nics[1].mac, [2, 9, 9, 9, 9, 9]] {
        a.send(&frame(to, a.mac(), 1));
    }
    let ours = frame(b.mac(), a.mac(), 2);
    a.send(&ours);
    eventually("a frame to the adapter's own address", || has_heard(b, &ours));
    assert!(!b.heard.lock().unwrap().iter().any(|heard| heard[14] == 1), "heard another's frames");
    if IS_CONSUMER {
        let net = net.open_adapters();
        let connection = net.connect();
        connection.exchange(100, 5000);
        drop(connection);
        net.end(host);
    } else {
        net.end(host);
    }
}

/// Tags travel beside frames, as far as `*PriorityVLANTag` says, where no QoS asks for priorities; it is also what NDIS is told.
pub(super) fn tags(host: &dyn Host, _: &[String]) {
    const PRIORITY: u32 = 0x40;
    const VLAN: u32 = 0x200;
    /// Priority 5 in VLAN 42.
    const BOTH: usize = 5 | 42 << 4;
    for (keyword, options, sent) in
        [("0", 0, 0), ("1", PRIORITY, 5), ("2", VLAN, 42 << 4), ("3", PRIORITY | VLAN, BOTH)]
    {
        host.load().expect("DriverEntry succeeds");
        let nics = [Nic::plug_in(1500), Nic::plug_in(1500)];
        let a = add_with(0, nics[0], &[("*PriorityVLANTag", keyword), ("*QOS", "0")]);
        let b = add_with(1, nics[1], &[]);
        [a, b].into_iter().zip(nics).for_each(|(vnic, nic)| expect_ready(vnic, nic));
        assert_eq!(a.mac_options() & (PRIORITY | VLAN), options, "keyword {keyword}");
        // From the one with the keyword: `sent` of the tag is on the wire.
        let out = frame(b.mac(), a.mac(), 1);
        a.post(&out, BOTH, 0);
        eventually("a frame with its tag", || b.tags.lock().unwrap().get(&out) == Some(&sent));
        // To it: without VLANs it takes no frame of one.
        for (mark, tag) in [(2, BOTH), (3, 5)] {
            b.post(&frame(a.mac(), b.mac(), mark), tag, 0);
        }
        let last = frame(a.mac(), b.mac(), 3);
        eventually("an untagged frame", || has_heard(a, &last));
        let tag_of = |mark| a.tags.lock().unwrap().get(&frame(a.mac(), b.mac(), mark)).copied();
        assert_eq!(tag_of(3), Some(5 & sent), "keyword {keyword}");
        assert_eq!(tag_of(2), (options & VLAN != 0).then_some(sent), "keyword {keyword}");
        a.remove();
        b.remove();
        finish(host);
    }
    say!("tags verified");
}

/// `VlanId`, or `OID_GEN_VLAN_ID`, puts an adapter into a VLAN, RoCE and TCP/IP alike.
pub(super) fn vlan(host: &dyn Host, _: &[String]) {
    let net = Net::plug_with(host, 1500, &[("VlanId", "42")]);
    let [a, b] = net.vnics;
    let mut id = [0_u8; 4];
    let answer = oid::ask(a, oid::QUERY, oid::GEN_VLAN_ID, &mut id, false);
    assert_eq!((answer.status, u32::from_le_bytes(id)), (0, 42));
    let plain = frame(b.mac(), a.mac(), 1);
    a.send(&plain);
    eventually("a frame of the VLAN", || b.tags.lock().unwrap().get(&plain) == Some(&0));
    // Another VLAN, also on purpose.
    a.post(&frame(b.mac(), a.mac(), 2), 43 << 4, 0);
    let last = frame(b.mac(), a.mac(), 3);
    a.send(&last);
    eventually("a frame of the VLAN", || has_heard(b, &last));
    assert!(!has_heard(b, &frame(b.mac(), a.mac(), 2)), "a frame of another VLAN is heard");
    if !IS_CONSUMER {
        return net.end(host);
    }
    let net = net.open_adapters();
    let before = switch::tagged_frames();
    let connection = net.connect();
    connection.exchange(100, 5000);
    assert!(switch::tagged_frames() > before + 500, "RoCE is not tagged");
    drop(connection);
    // One moves to another VLAN: they do not find each other until the other follows.
    let move_to = |vnic, vlan: u32| {
        let answer = oid::ask(vnic, oid::SET, oid::GEN_VLAN_ID, &mut vlan.to_le_bytes(), false);
        assert_eq!(answer.status, 0);
    };
    move_to(a, 7);
    let (lost, before) = (frame(b.mac(), a.mac(), 4), switch::tagged_frames());
    a.send(&lost);
    // It has passed when one that left behind it is heard.
    eventually("a frame of the other VLAN", || switch::tagged_frames() > before);
    let behind = frame(b.mac(), a.mac(), 6);
    switch::send(usize::MAX, &[&behind[..12], &[0x81, 0, 0, 42], &behind[12..]].concat());
    eventually("a frame of the old VLAN", || has_heard(b, &behind));
    move_to(b, 7);
    let found = frame(b.mac(), a.mac(), 5);
    a.send(&found);
    eventually("a frame of the new VLAN", || has_heard(b, &found));
    assert!(!has_heard(b, &lost), "a frame of the other VLAN is heard");
    let connection = net.connect();
    connection.exchange(50, 3000);
    drop(connection);
    net.end(host);
}

/// Each RoCE packet has the priority and the DSCP of the keywords, and other frames have not.
pub(super) fn class(host: &dyn Host, _: &[String]) {
    let others = [("RoCEPriority", "5"), ("RoCEDscp", "26")];
    let net = Net::plug_with(host, 1500, &others).open_adapters();
    let [a, b] = net.vnics;
    let plain = frame(b.mac(), a.mac(), 1);
    a.send(&plain);
    eventually("a frame of TCP/IP", || b.tags.lock().unwrap().get(&plain) == Some(&0));
    let connection = net.connect();
    connection.exchange(100, 5000);
    connection.connectors[0].disconnect().wait().expect("a disconnect");
    drop(connection);
    let classes = switch::classes();
    say!("classes of frames: {classes:?}");
    assert!(classes.keys().eq([&(5, 26)]) && classes[&(5, 26)] > 500, "{classes:?}");
    net.end(host);
}

/// Frames of NICs that lie in MDLs without system addresses, whole and in pieces, kept and not; and
/// memory of consumers that does: the image maps them, and every mapping goes again.
pub(super) fn unmapped(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    for nic in net.nics {
        nic.unmapped.store(true, Ordering::SeqCst);
    }
    let [a, b] = net.vnics;
    let before = mdl::mappings_made();
    let ours = frame(b.mac(), a.mac(), 1);
    a.send(&ours);
    eventually("a frame that is not mapped", || has_heard(b, &ours));
    assert!(mdl::mappings_made() > before, "nothing was mapped");
    if !IS_CONSUMER {
        return net.end(host);
    }
    let net = net.open_adapters();
    let connection = net.connect();
    let before = mdl::mappings_made();
    connection.exchange(200, 9000);
    let frames = mdl::mappings_made() - before;
    // A mapping that the consumer has may end before the region does: it is none for us.
    for flags in [mdl::LOCKED, mdl::LOCKED | mdl::MAPPED] {
        let before = mdl::mappings_made();
        for side in &connection.sides {
            register_again(&side.mr, 10_000, flags).expect("a registration of pieces");
        }
        let regions = mdl::mappings_made() - before;
        say!("{frames} mappings of frames, {regions} of regions with flags {flags}");
        assert!(frames > 1000 && regions == 2 * (1_usize << 20).div_ceil(10_000));
        connection.exchange(200, 9000);
    }
    for nic in net.nics {
        let [kept, lent] = [0, 1].map(|at: usize| nic.indications[at].load(Ordering::Relaxed));
        say!("indications: {kept} to keep, {lent} not to keep");
        assert!(kept > 100 && lent > 100, "one kind of indication is missing");
    }
    drop(connection);
    net.end(host);
}

/// Sends that wait in the NIC's queue are cancelled by their mark: these are aborted, the others sent,
/// all returned. Requests that nobody made may be cancelled too, also while others run.
pub(super) fn cancel(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let [a, b] = net.vnics;
    let nic = net.nics[0];
    nic.hold(true);
    for number in 0..12_u8 {
        a.post(&frame(b.mac(), a.mac(), 100 + number), 0, 1 + usize::from(number % 3));
    }
    eventually("the sends at the NIC", || nic.held() == 12);
    a.cancel_sends(2);
    a.cancel_sends(99);
    eventually("the end of cancelled sends", || a.ended.lock().unwrap().len() == 4);
    assert_eq!(nic.held(), 8, "sends that nobody cancelled are gone");
    let requests = std::thread::spawn(move || {
        for _ in 0..200 {
            let mut room = [0_u8; 4096];
            for code in [oid::NDK_CONNECTIONS, oid::GEN_STATISTICS] {
                let answer = oid::ask(a, oid::QUERY, code, &mut room, false);
                assert_eq!(answer.status, 0, "OID {code:#x}");
            }
        }
    });
    while !requests.is_finished() {
        a.cancel_requests(0);
        a.cancel_requests(7);
    }
    requests.join().expect("every request is answered");
    nic.hold(false);
    eventually("the end of all sends", || a.ended.lock().unwrap().len() == 12);
    for &(mark, status) in a.ended.lock().unwrap().iter() {
        let wanted = if mark == 2 { nic::ABORTED } else { 0 };
        assert_eq!(status, wanted, "the status of a send with mark {mark}");
    }
    let last = frame(b.mac(), a.mac(), 111);
    eventually("the sends that were not cancelled", || has_heard(b, &last));
    for number in 0..12 {
        let heard = has_heard(b, &frame(b.mac(), a.mac(), 100 + number));
        assert_eq!(heard, number % 3 != 1, "send {number}");
    }
    say!("cancelled sends verified");
    net.end(host);
}
