//! What NICs do to frames, and where they put them.

use std::sync::atomic::Ordering;

use super::net::Net;
use super::*;
use crate::ndis::nic::offload::{Offloads, Uso};

/// The most that a NIC does.
pub(super) const ALL: Offloads = Offloads {
    uso: Some(Uso { max_len: 60_000, min_segments: 2, short_last: true, tagged: true }),
    joins: true,
    checks: true,
    merges: true,
};

/// Units divided by the NICs, and units made by them.
fn units_of(net: &Net) -> [usize; 2] {
    let [a, b] = net.nics.map(|nic| nic.counts.units());
    [a[0] + b[0], a[1] + b[1]]
}

/// A NIC that offers segmentation gets units, as far as it divides them; one that joins datagrams brings units. Every byte
/// is right over both versions of IP, and no more units leave once the offer is withdrawn.
pub(super) fn units(host: &dyn Host, _: &[String]) {
    let net = Net::plug_on(host, 1500, ALL, &[]).open_adapters();
    for (from, to) in [(address(0), address(1)), (address6(0), address6(1))] {
        let before = units_of(&net);
        let connection = net.try_connect(from, to).expect("a connection");
        connection.exchange(150, 60_000);
        let flowed = [0, 1].map(|at: usize| units_of(&net)[at] - before[at]);
        say!("units verified: {} divided, {} joined", flowed[0], flowed[1]);
        assert!(flowed[0] > 300 && flowed[1] > 300, "{flowed:?}");
    }
    for offloads in [Offloads { uso: None, ..ALL }, ALL] {
        net.nics.iter().for_each(|nic| nic.set_offloads(offloads));
        let before = units_of(&net)[0];
        net.connect().exchange(20, 30_000);
        assert_eq!(units_of(&net)[0] > before, offloads.uso.is_some(), "{offloads:?}");
    }
    net.end(host);
}

/// Where the registry forbids units, none leave; where a NIC divides few of them, the rest leave as frames.
pub(super) fn no_units(host: &dyn Host, _: &[String]) {
    let uso = Uso { max_len: 60_000, min_segments: 63, short_last: false, tagged: false };
    let [few, even] =
        [uso, Uso { min_segments: 2, ..uso }].map(|uso| Offloads { uso: Some(uso), ..ALL });
    for (offloads, keyword, flow) in [
        (ALL, ("RoCESegmentation", "0"), false),
        (few, ("RoCESegmentation", "1"), false),
        (even, ("RoCESegmentation", "1"), true),
        // Each frame has a tag, which this NIC takes beside frames only.
        (even, ("RoCEPriority", "5"), false),
    ] {
        let net = Net::plug_on(host, 1500, offloads, &[keyword]).open_adapters();
        net.connect().exchange(50, 30_000);
        let [divided, _] = units_of(&net);
        say!("{keyword:?} verified: {divided} units divided");
        assert_eq!(divided > 0, flow, "{offloads:?}");
        net.end(host);
    }
}

/// What its NIC finds damaged an adapter drops and counts, and no more than that.
pub(super) fn checksums(host: &dyn Host, _: &[String]) {
    let net = Net::plug_on(host, 1500, Offloads { uso: None, joins: false, ..ALL }, &[]);
    let [a, b] = net.vnics;
    let datagram = |damage: fn(&mut Vec<u8>)| {
        // Ethernet, IPv4 and UDP to the port of RoCE, with a right checksum of the header and none of UDP.
        let mut frame =
            [&b.mac()[..], &a.mac(), &[8, 0, 0x45, 0, 0, 48, 0, 1, 0, 0, 64, 17]].concat();
        frame.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xC0, 0, 0x12, 0xB7, 0, 28, 0, 0]);
        frame.resize(62, 0);
        let words =
            frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        let sum = (sum & 0xFFFF) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        damage(&mut frame);
        frame
    };
    let discards = || {
        let mut room = [0_u8; 0x98];
        let answer = oid::ask(b, oid::QUERY, oid::GEN_STATISTICS, &mut room, false);
        assert_eq!(answer.status, 0);
        u64::from_le_bytes(room[8..16].try_into().expect("eight bytes"))
    };
    // RoCE frames are those to an address that the adapter has, which it learns from a worker.
    let mut wanted = discards();
    let of_header = datagram(|frame| frame[24] ^= 1);
    eventually("a damaged header", || {
        switch::send(usize::MAX, &of_header);
        std::thread::sleep(std::time::Duration::from_millis(20));
        discards() > wanted
    });
    wanted = discards();
    // No checksum, a wrong one, and behind them an ordinary frame, which tells that both were seen.
    for frame in [datagram(|_| ()), datagram(|frame| frame[41] = 7)] {
        switch::send(usize::MAX, &frame);
    }
    let last = [&b.mac()[..], &a.mac(), &[0x88, 0xB5], &[9; 60]].concat();
    switch::send(usize::MAX, &last);
    eventually("the frame behind", || b.heard.lock().unwrap().contains(&last));
    assert_eq!(discards(), wanted + 1, "one of both was damaged");
    say!("verdicts verified");
    if !IS_CONSUMER {
        return net.end(host);
    }
    let net = net.open_adapters();
    for (from, to) in [(address(0), address(1)), (address6(0), address6(1))] {
        net.try_connect(from, to).expect("a connection").exchange(50, 5000);
    }
    assert_eq!(discards(), wanted + 1, "a sound frame was dropped");
    net.end(host);
}

/// Frames and joined datagrams in MDLs of a few bytes, behind one that is not theirs, with and without system addresses.
pub(super) fn pieces(host: &dyn Host, _: &[String]) {
    let net = Net::plug_on(host, 1500, ALL, &[]);
    for nic in net.nics {
        nic.crumbles.store(true, Ordering::SeqCst);
    }
    let [a, b] = net.vnics;
    for len in [60, 61, 1514] {
        let mut frame = [&b.mac()[..], &a.mac(), &[0x88, 0xB5]].concat();
        frame.extend((14..len).map(|place| (place * 7 + len) as u8));
        a.send(&frame);
        eventually("a frame in pieces", || b.heard.lock().unwrap().contains(&frame));
    }
    say!("frames in pieces verified");
    if !IS_CONSUMER {
        return net.end(host);
    }
    let net = net.open_adapters();
    let connection = net.connect();
    for unmapped in [false, true] {
        net.nics.iter().for_each(|nic| nic.unmapped.store(unmapped, Ordering::SeqCst));
        connection.exchange(20, 20_000);
    }
    assert!(units_of(&net)[1] > 20, "no datagrams were joined");
    drop(connection);
    net.end(host);
}
