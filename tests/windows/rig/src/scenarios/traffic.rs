//! Frames, of TCP/IP and of RoCE.

use super::net::Net;
use super::*;

/// TCP/IP's own frames pass in both directions; RoCE does not reach TCP/IP.
pub(super) fn pass_through(host: &dyn Host, _: &[String]) {
    let pair = Net::plug(host, 1500);
    let [a, b] = pair.vnics;
    for len in [60, 61, 590, 1514] {
        let mut frame = vec![0_u8; len];
        frame[..6].copy_from_slice(&b.mac());
        frame[6..12].copy_from_slice(&a.mac());
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        for (place, byte) in frame[14..].iter_mut().enumerate() {
            *byte = (place * 7 + len) as u8;
        }
        a.send(&frame);
        eventually("a frame of TCP/IP", || b.heard.lock().unwrap().contains(&frame));
    }
    if IS_CONSUMER {
        let pair = pair.open_adapters();
        pair.connect().exchange(50, 1000);
        assert_silent(&pair);
        pair.end(host);
    } else {
        pair.end(host);
    }
}

fn assert_silent(pair: &Net) {
    for vnic in pair.vnics {
        let roce = vnic.heard.lock().unwrap().iter().filter(|frame| is_roce(frame)).count();
        assert_eq!(roce, 0, "RoCE frames reached TCP/IP");
    }
}

fn is_roce(frame: &[u8]) -> bool {
    frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0x12, 0xB7]
}

/// Two adapters connect and exchange 10,000 verified messages of each kind: [COUNT SIZE].
pub(super) fn traffic(host: &dyn Host, arguments: &[String]) {
    let net = Net::start(host, 9000);
    let connection = net.connect();
    if let [count, size] = arguments {
        connection.exchange(count.parse().expect("a count"), size.parse().expect("a size"));
    } else {
        connection.exchange(10_000, 700);
        connection.exchange(200, 60_000);
    }
    let mut statistics = [0_u8; 248];
    let answer = oid::ask(net.vnics[0], oid::QUERY, oid::NDK_STATISTICS, &mut statistics, true);
    assert_eq!((answer.status, answer.done), (0, 248));
    let mut endpoints = [0_u8; 4096];
    let answer = oid::ask(net.vnics[0], oid::QUERY, oid::NDK_CONNECTIONS, &mut endpoints, false);
    assert_eq!(answer.status, 0);
    say!("connections: {}", u32::from_le_bytes(endpoints[8..12].try_into().unwrap()));
    drop(connection);
    net.end(host);
}

/// The same on a wire that loses one frame of 50.
pub(super) fn lossy(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    switch::lose(50);
    connection.exchange(300, 5000);
    switch::lose(0);
    drop(connection);
    net.end(host);
}
