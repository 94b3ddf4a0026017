//! The adapter beside the host's own traffic: whose frames it gets, what it costs the others, and that it leaves the NIC as it was.

use std::sync::atomic::Ordering;

use super::frames::{frame, has_heard};
use super::net::Net;
use super::*;
use crate::ndis::nic::host::{NO_LOCAL, PROMISCUOUS};
use crate::tcpip;

const OWN: (&str, &str) = ("LowerMode", "1");
const SHARE: (&str, &str) = ("LowerMode", "2");

const DIRECTED: u32 = 0x1;
const USUAL: u32 = 0xB;
const ALL: u32 = PROMISCUOUS as u32;

/// TCP/IP sees what its filter says, and no more; RoCE waits for no filter. What it asks for beyond its address the NIC is asked for,
/// without what this host sends itself.
pub(super) fn filters(host: &dyn Host, _: &[String]) {
    for mode in [("LowerMode", "0"), OWN] {
        let net = Net::plug_with(host, 1500, &[mode]);
        let ([a, b], nic) = (net.vnics, net.nics[1]);
        let mark = |to, mark| frame(to, a.mac(), mark);
        let others = [2, 9, 9, 9, 9, 9];
        b.set_filter(0);
        let shown = nic.indicated();
        a.send(&mark(b.mac(), 1));
        eventually("an indication", || nic.indicated() > shown);
        nic.rest();
        b.set_filter(DIRECTED);
        // The frames of a wire come in order.
        a.send(&mark(b.mac(), 2));
        eventually("a frame that the filter lets in", || has_heard(b, &mark(b.mac(), 2)));
        assert!(!has_heard(b, &mark(b.mac(), 1)), "a frame came through the filter 0");
        for (to, number) in [([0xFF; 6], 3), (others, 4), (b.mac(), 62)] {
            a.send(&mark(to, number));
        }
        eventually("the frame behind", || has_heard(b, &mark(b.mac(), 62)));
        assert!(!has_heard(b, &mark([0xFF; 6], 3)) && !has_heard(b, &mark(others, 4)));
        b.set_filter(ALL);
        eventually("a NIC that takes everything", || nic.filters().last().is_some_and(is_all));
        for number in 5..50 {
            a.send(&mark(others, number));
        }
        eventually("another's frame", || has_heard(b, &mark(others, 49)));
        b.set_filter(USUAL);
        if mode != OWN {
            eventually("a NIC as before", || {
                nic.filters().last().is_some_and(|last| !is_all(last))
            });
        }
        let all = nic.filters();
        say!("filters of the NIC: {all:x?}");
        assert!(all.iter().all(|filter| filter & PROMISCUOUS == 0 || filter & NO_LOCAL != 0));
        assert_eq!(net.nics.map(Nic::looped), [0; 2], "frames of this host came back");
        // One that comes back all the same, as its sender asks for that, is for nobody here.
        let back = mark(b.mac(), 60);
        nic.bring_back(&back);
        a.send(&mark(b.mac(), 61));
        eventually("the frame behind", || has_heard(b, &mark(b.mac(), 61)));
        assert!(!has_heard(b, &back), "a frame of this host was taken for one of the network");
        b.set_filter(0);
        if IS_CONSUMER {
            let net = net.open_adapters();
            // Its neighbours need the filter, RoCE does not.
            [a, b].iter().for_each(|vnic| vnic.set_filter(USUAL));
            let connection = net.connect();
            [a, b].iter().for_each(|vnic| vnic.set_filter(0));
            connection.exchange(20, 3000);
            drop(connection);
            net.end(host);
        } else {
            net.end(host);
        }
    }
    say!("filters verified");
}

fn is_all(filter: &usize) -> bool {
    filter & PROMISCUOUS != 0
}

/// What is not for the adapter costs the host no lock, and none of it is kept, in any mode.
pub(super) fn host_traffic(host: &dyn Host, _: &[String]) {
    for mode in [OWN, SHARE] {
        let net = Net::plug_with(host, 1500, &[mode]);
        let nic = net.nics[0];
        let hosts_own = IpAddr::from([10, 0, 0, 11]);
        nic.give_host(&[hosts_own]);
        let locks = || *nic.above.locks.lock().unwrap();
        eventually("the end of what came before", || quiet_for(&locks));
        let (before, shown) = (locks(), nic.indicated());
        for number in 0..2000_u32 {
            switch::send(usize::MAX, &packet(nic.mac, hosts_own, number));
        }
        let heard = || nic.host_heard(&packet(nic.mac, hosts_own, 1999));
        eventually("the host's frames", || heard() == 1 && nic.indicated() > shown + 200);
        eventually("the end of indications", || quiet_for(&|| nic.indicated()));
        assert_eq!(locks() - before, 0, "spin locks that the host's frames took");
        net.end(host);
    }
    say!("the host's traffic verified");
}

/// Where the NIC's TCP/IP is unbound its frames still come to several processors, and where it is not, its scaling is left to it.
pub(super) fn scaling(host: &dyn Host, _: &[String]) {
    for (mode, sets) in [(("LowerMode", "0"), true), (OWN, false), (SHARE, false)] {
        let net = Net::plug_with(host, 1500, &[mode]);
        let nic = net.nics[0];
        // The last two are as near as each other; the first is farthest.
        let table = || nic.scaling.lock().unwrap().clone();
        assert_eq!(table().len(), if sets { 4 } else { 0 }, "{mode:?}: {:?}", table());
        if sets {
            *nic.processors.lock().unwrap() =
                Some(vec![(0, 9), (1, 4), (2, 1), (3, 1), (4, 2), (5, 7)]);
            nic.unbind();
            nic.bind();
            let near: Vec<_> = table().into_keys().collect();
            assert_eq!(
                near,
                [(0, 1), (0, 2), (0, 3), (0, 4)],
                "the nearest of six, as it has four queues"
            );
            *nic.processors.lock().unwrap() = None;
            nic.unbind();
            nic.bind();
            assert!(table().is_empty(), "no processor is known");
        }
        net.end(host);
    }
    say!("the scaling of NICs verified");
}

/// Whether a count stays as it is for a while.
fn quiet_for(count: &dyn Fn() -> usize) -> bool {
    let before = count();
    std::thread::sleep(std::time::Duration::from_millis(100));
    count() == before
}

/// TCP/IP that keeps all that it is shown delays no pause, no sleep and no end of any NIC; it hears no more than there is room for.
pub(super) fn kept_frames(host: &dyn Host, _: &[String]) {
    /// As many as the adapter has, and more.
    const FRAMES: u32 = 1500;
    let net = Net::plug_with(host, 1500, &[OWN]);
    let ([a, b], nic) = (net.vnics, net.nics[1]);
    let to = address(1);
    b.keeps.store(true, Ordering::SeqCst);
    for number in 0..FRAMES {
        switch::send(usize::MAX, &packet(b.mac(), to, number));
    }
    eventually("all that there is room for", || {
        b.kept() == 512 && no_buffer(b) >= u64::from(FRAMES) - 512
    });
    // The rig demands that a NIC has all its lists back after each of these.
    nic.set_power(false);
    nic.set_power(true);
    nic.unbind();
    nic.bind();
    eventually("the NIC is bound again", || nic.is_bound());
    assert_eq!(b.kept(), 512, "TCP/IP still has them");
    b.let_go();
    let last = frame(b.mac(), a.mac(), 7);
    a.send(&last);
    eventually("a frame after those", || has_heard(b, &last));
    say!("kept frames verified");
    net.end(host);
}

/// `OID_GEN_RCV_NO_BUFFER`.
pub(super) fn no_buffer(vnic: &Vnic) -> u64 {
    let mut count = [0; 8];
    let answer = oid::ask(vnic, oid::QUERY, 0x0002_0105, &mut count, false);
    assert_eq!(answer.status, 0);
    u64::from_le_bytes(count)
}

/// An adapter that starts before its NIC has the address that the NIC had; the first time there is none to have.
pub(super) fn late_nic(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    for mode in ["0", "2"] {
        let nic = Nic::plug_in(1500);
        let known = |known| netio::NICS_ARE_KNOWN.store(known, Ordering::SeqCst);
        let add = |others: &[(&'static str, &str)]| {
            let others = [&[("LowerMode", mode)], others].concat();
            add_with(0, nic, &others)
        };
        // Nobody has told it the address: it is warned of, and, where it may not be another one, it stays without link.
        known(false);
        let before = nic::asked();
        let vnic = add(&[]);
        nic::settle_after(before);
        assert!(vnic.mac() != nic.mac);
        assert_eq!(nic.is_bound(), mode == "0", "mode {mode}");
        known(true);
        let kept = vnic.keywords.lock().unwrap().get("LowerAddress").cloned();
        vnic.remove();
        nic.unbind();
        let kept = kept.expect("the address is kept");
        known(false);
        let vnic = add(&[("LowerAddress", &kept)]);
        expect_ready(vnic, nic);
        known(true);
        assert_eq!(vnic.mac(), nic.mac, "the address that was kept");
        assert!(nic.filters().last().is_some_and(|last| !is_all(last)));
        vnic.remove();
        nic.unbind();
    }
    say!("late NICs verified");
    finish(host);
}

/// A UDP packet of IPv4 or IPv6 to this address, one of a kind.
fn packet(mac: [u8; 6], to: IpAddr, number: u32) -> Vec<u8> {
    datagram(mac, to, 17, number)
}

fn datagram(mac: [u8; 6], to: IpAddr, protocol: u8, number: u32) -> Vec<u8> {
    let mut frame = [&mac[..], &[2, 7, 7, 7, 7, 7]].concat();
    match to {
        IpAddr::V4(to) => {
            frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 2]);
            frame.extend(to.octets());
        }
        IpAddr::V6(to) => {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 40, protocol, 64]);
            frame.extend([0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            frame.extend(to.octets());
        }
    }
    frame.extend([0, 80, 0, 80]);
    frame.extend(number.to_be_bytes());
    frame.resize(100, 0x5A);
    frame
}

/// ICMP of either version, TCP, UDP.
const PROTOCOLS: [u8; 4] = [1, 58, 6, 17];

/// `LowerMode` 2: the adapter has addresses of IP of its own, and the Ethernet address of the NIC, whose TCP/IP stays. Everything comes
/// to whom it is for, once, and to nobody else; the NIC is asked for nothing that it may refuse.
pub(super) fn share(host: &dyn Host, _: &[String]) {
    let net = Net::plug_with(host, 1500, &[SHARE]);
    let ([a, third], nic) = (net.vnics, net.nics[0]);
    assert_eq!(a.mac(), nic.mac, "the adapter has its NIC's address");
    let hosts = [IpAddr::from([10, 0, 0, 11]), IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, 11])];
    let ours = [address(0), address6(0)];
    nic.give_host(&hosts);
    // ARP and neighbour discovery find both behind one Ethernet address.
    for (to, whose) in
        ours.iter().map(|to| (to, "the adapter")).chain(hosts.iter().map(|to| (to, "the host")))
    {
        assert_eq!(tcpip::resolve(third, *to), Some(nic.mac), "{whose} is found at {to}");
    }
    let heard =
        |frame: &Vec<u8>| a.heard.lock().unwrap().iter().filter(|heard| *heard == frame).count();
    // 802.1X is the NIC's.
    let mut eapol = frame(nic.mac, third.mac(), 10);
    eapol[12..14].copy_from_slice(&[0x88, 0x8E]);
    switch::send(usize::MAX, &eapol);
    let mut sent = 0;
    for round in 0..50 {
        for protocol in PROTOCOLS {
            for to in ours.iter().chain(&hosts) {
                let frame = datagram(nic.mac, *to, protocol, sent);
                switch::send(usize::MAX, &frame);
                sent += 1;
                if round % 10 == 9 {
                    eventually("a frame", || heard(&frame) + nic.host_heard(&frame) > 0);
                }
            }
        }
    }
    let all = (0..sent).map(|number| {
        let protocol = PROTOCOLS[number as usize / 4 % 4];
        let to = ours.iter().chain(&hosts).nth(number as usize % 4).expect("one of four");
        (datagram(nic.mac, *to, protocol, number), ours.contains(to))
    });
    for (frame, is_ours) in all {
        let wanted = if is_ours { [1, 0] } else { [0, 1] };
        eventually("each frame once", || [heard(&frame), nic.host_heard(&frame)] == wanted);
    }
    assert!(!has_heard(a, &eapol), "EAPOL came to the adapter");
    // What either sends the third host hears, and neither the other nor itself.
    let [of_host, of_adapter] =
        [1, 2].map(|number| packet(third.mac(), address(1), u32::MAX - number));
    nic.send_as_host(&of_host);
    a.send(&of_adapter);
    eventually("frames of both", || has_heard(third, &of_host) && has_heard(third, &of_adapter));
    assert_eq!([&of_host, &of_adapter].map(|frame| heard(frame) + nic.host_heard(frame)), [0; 2]);
    a.set_filter(ALL);
    a.set_filter(USUAL);
    let net = if IS_CONSUMER {
        let net = net.open_adapters();
        for (from, to) in [(address(0), address(1)), (address6(0), address6(1))] {
            net.try_connect(from, to).expect("a connection").exchange(100, 5000);
        }
        net
    } else {
        net
    };
    say!("filters of the NIC: {:x?}", nic.filters());
    assert!(!nic.filters().iter().any(is_all), "the NIC was to take everything");
    assert_eq!(nic.looped(), 0);
    say!("the shared address verified");
    net.end(host);
}
