//! Public crash reports of other network drivers, as far as no other story has their class: the table is in `tests/windows/README.md`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ndis_driver::problems::Problem;

use super::beside::no_buffer;
use super::frames::{frame, has_heard};
use super::net::Net;
use super::stages::expect_events;
use super::*;
use crate::ndis::nic::odd::Shape;
use crate::ndis::{PATIENCE, within};

/// Everything: `NDIS_PACKET_TYPE_PROMISCUOUS`.
const ALL: u32 = 0x20;

/// Frames that end within their Ethernet header are dropped and counted, whatever the filter and whoever has the address, and the
/// first that has a whole one is shown.
pub(super) fn runts(host: &dyn Host, _: &[String]) {
    for mode in ["0", "1", "2"] {
        let net = Net::plug_with(host, 1500, &[("LowerMode", mode)]);
        let ([_, b], nic) = (net.vnics, net.nics[1]);
        b.set_filter(ALL);
        let before = no_buffer(b);
        let (mut runts, mut wholes) = (Vec::new(), Vec::new());
        // A NIC lends every second list.
        for to in [b.mac(), [0xFF; 6], b.mac(), [0xFF; 6]] {
            let whole = [&to[..], &[2, 7, 7, 7, 7, 7, 0x88, 0xB5]].concat();
            runts.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
            wholes.push(whole);
        }
        runts.iter().chain(&wholes).for_each(|frame| nic.bring(frame));
        let counted = || no_buffer(b) - before == runts.len() as u64;
        eventually("the count of runts", counted);
        for whole in &wholes {
            eventually("a frame without payload", || has_heard(b, whole));
        }
        for runt in runts.iter().filter(|runt| has_heard(b, runt)) {
            breach!("TCP/IP was shown a frame of {} bytes in mode {mode}", runt.len());
        }
        net.end(host);
    }
    say!("runts verified");
}

/// Two adapters want one NIC: the first has it, and keeps it; the second waits without link, an administrator is told whose it is,
/// and it has the NIC when the first goes, even where the NIC sleeps then.
pub(super) fn one_nic(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let ([first, peer], nic) = (net.vnics, net.nics[0]);
    event_log::take();
    let before = nic::asked();
    let second = add(2, nic);
    nic::settle_after(before);
    let expect_taken = |vnic, by: &Vnic| {
        expect_events(vnic, &[(Problem::NicTaken, [&by.index.to_string(), "0"])]);
    };
    expect_taken(second, first);
    let is_up = |vnic: &Vnic| vnic.link.load(Ordering::SeqCst) == 1;
    assert!(!is_up(second), "an adapter has a link by a NIC that serves another");
    exchange_frames([first, peer], 1);
    let net = if IS_CONSUMER {
        let net = net.open_adapters();
        net.connect().exchange(50, 1000);
        net.close_adapters()
    } else {
        net
    };
    // The NIC goes and comes: one of both has it, and the other is told.
    nic.unbind();
    expect_link(first, false);
    nic.bind();
    let [first, second] = if is_up(first) { [first, second] } else { [second, first] };
    expect_ready(first, nic);
    assert!(!is_up(second));
    expect_taken(second, first);
    exchange_frames([first, peer], 2);
    first.remove();
    expect_ready(second, nic);
    exchange_frames([second, peer], 3);

    // The second goes while the NIC sleeps, and the NIC wakes for the one behind it.
    let third = add(0, nic);
    expect_taken(third, second);
    nic.set_power(false);
    second.remove();
    assert!(!is_up(third));
    nic.set_power(true);
    expect_ready(third, nic);
    exchange_frames([third, peer], 4);
    // One that starts while the NIC sleeps has it when it wakes.
    nic.set_power(false);
    third.remove();
    let last = add(0, nic);
    assert!(!is_up(last));
    nic.set_power(true);
    expect_ready(last, nic);
    exchange_frames([last, peer], 5);
    assert_eq!(event_log::take(), []);
    say!("one NIC of two adapters verified");
    [last, peer].into_iter().for_each(Vnic::remove);
    drop(net);
    finish(host);
}

/// A frame of TCP/IP each way.
pub(super) fn exchange_frames([a, b]: [&'static Vnic; 2], mark: u8) {
    for (from, to) in [(a, b), (b, a)] {
        let frame = frame(to.mac(), from.mac(), mark);
        from.send(&frame);
        eventually("a frame of TCP/IP", || has_heard(to, &frame));
    }
}

/// After this an administrator is told of a NIC that keeps frames.
const TOLD: Duration = Duration::from_secs(2);

/// Each wait for a NIC that keeps what it was to send is its own adapter's alone: its pause, its sleep and the end of its adapter
/// wait for it, an administrator is told, and everything of another adapter goes on as ever.
pub(super) fn stuck_nic(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let ([a, b], [stuck, sound]) = (net.vnics, net.nics);
    event_log::take();
    let waits: [(&str, Act<'_>, Act<'_>); 3] = [
        ("the pause of the NIC", &|| stuck.pause(), &|| stuck.restart()),
        ("the sleep of the NIC", &|| stuck.set_power(false), &|| stuck.set_power(true)),
        ("the pause of the adapter", &|| a.pause(), &|| assert_eq!(a.restart(), 0)),
    ];
    for (what, wait, go_on) in waits {
        stuck.hold(true);
        (0..3).for_each(|number| a.post(&frame(b.mac(), a.mac(), number), 0, 0));
        wait_alone(what, a, stuck, wait, &|| live_on(b, sound));
        go_on();
        exchange_frames([a, b], 20);
    }
    if !IS_CONSUMER {
        return net.end(host);
    }
    let net = net.open_adapters();
    let connection = net.connect();
    stuck.hold(true);
    let [here, there] = &connection.sides;
    here.qp.write(3, &[here.mr.sge(0..8)], there.mr.remote(0), 0).expect("a write");
    eventually("a frame of a poll core at the NIC", || stuck.held() > 0);
    drop(connection);
    drop(net);
    wait_alone("the end of the adapter", a, stuck, &|| a.remove(), &|| live_on(b, sound));
    b.remove();
    finish(host);
}

type Act<'a> = &'a (dyn Fn() + Sync);

/// `wait` waits until the NIC gives its frames back, of which an administrator is told, and `others` do not.
fn wait_alone(what: &str, vnic: &Vnic, stuck: &Nic, wait: Act<'_>, others: Act<'_>) {
    std::thread::scope(|scope| {
        let waits = scope.spawn(wait);
        std::thread::sleep(TOLD / 10);
        let others = scope.spawn(others);
        if !within(PATIENCE, || others.is_finished()) {
            breach!("{what} keeps another adapter waiting");
        }
        let mut events = Vec::new();
        eventually("the event", || {
            events.extend(event_log::take());
            !events.is_empty()
        });
        let seconds = TOLD.as_secs().to_string();
        for event in events {
            let [interface, frames, time] = &event.strings[..] else { panic!("{event:?}") };
            assert_eq!(event.id, Problem::FramesKept.message_id());
            assert_eq!((interface, time), (&vnic.index.to_string(), &seconds), "{frames} frames");
        }
        assert!(!waits.is_finished(), "{what} did not wait for its frames");
        stuck.hold(false);
    });
    say!("{what} verified to wait alone");
}

/// The whole life of an adapter, beside that of one with another NIC.
fn live_on(vnic: &'static Vnic, nic: &'static Nic) {
    nic.pause();
    nic.restart();
    nic.set_power(false);
    nic.set_power(true);
    nic.unbind();
    nic.bind();
    expect_ready(vnic, nic);
    vnic.set_filter(ALL);
    eventually("a NIC that takes everything", || {
        nic.filters().last().is_some_and(|filter| filter & ALL as usize != 0)
    });
    vnic.set_filter(0xB);
    vnic.pause();
    assert_eq!(vnic.restart(), 0);
    let other = Nic::plug_in(1500);
    let vnic = add(5, other);
    expect_ready(vnic, other);
    vnic.remove();
    other.unbind();
}

/// Frames in MDLs of odd shapes, of TCP/IP and of RoCE, mapped and not, lent and not: what is whole arrives as it was, what is not is
/// dropped and counted, and the NIC has each list back.
pub(super) fn shapes(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let ([a, b], nic) = (net.vnics, net.nics[1]);
    let roce = roce_frame(b, address(1));
    until_it_is_ours(b, nic, &roce);
    let mut number = 100;
    for shape in Shape::ALL {
        for (is_lent, is_mapped) in [(false, true), (true, true), (false, false), (true, false)] {
            number += 1;
            let ordinary = frame(b.mac(), a.mac(), number);
            let before = discards(b);
            for frame in [&ordinary, &roce] {
                nic.bring_shaped(frame, shape, is_lent, is_mapped);
            }
            if shape.is_whole() {
                eventually("a frame of an odd shape", || has_heard(b, &ordinary));
            }
            let wanted = if shape.is_whole() { 0 } else { 2 };
            let counted = || discards(b) - before;
            eventually("the count of what is not whole", || counted() >= wanted);
            assert_eq!(counted(), wanted, "{shape:?}, lent: {is_lent}, mapped: {is_mapped}");
            assert_eq!(has_heard(b, &ordinary), shape.is_whole(), "{shape:?}");
        }
    }
    say!("odd shapes verified");
    net.end(host);
}

/// A RoCE packet of no connection.
pub(super) fn roce_frame(vnic: &Vnic, to: IpAddr) -> Vec<u8> {
    let IpAddr::V4(to) = to else { panic!("an address of IPv4") };
    let mut frame = [&vnic.mac()[..], &[2, 7, 7, 7, 7, 7, 8, 0, 0x45, 0, 0, 60]].concat();
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
    frame.extend(to.octets());
    frame.extend([0xC0, 0, 0x12, 0xB7, 0, 40, 0, 0]);
    // The opcode of a SEND, flags, P_Key, a queue pair of nobody, a PSN, payload and ICRC.
    frame.extend([4, 0, 0xFF, 0xFF, 0, 0, 0x99, 0x99, 0, 0, 0, 0]);
    frame.resize(74, 0);
    frame
}

/// Waits until RoCE to the adapter's address comes to its poll core, as it learns its address from a worker: until then TCP/IP hears it.
pub(super) fn until_it_is_ours(vnic: &Vnic, nic: &Nic, roce: &[u8]) {
    eventually("the adapter's address", || {
        vnic.heard.lock().unwrap().clear();
        let shown = nic.indicated();
        nic.bring(roce);
        eventually("a call", || nic.indicated() > shown);
        nic.rest();
        !has_heard(vnic, roce)
    });
}

/// `ifInDiscards`.
fn discards(vnic: &Vnic) -> u64 {
    let mut room = [0_u8; 0x98];
    let answer = oid::ask(vnic, oid::QUERY, oid::GEN_STATISTICS, &mut room, false);
    assert_eq!(answer.status, 0);
    u64::from_le_bytes(room[8..16].try_into().expect("eight bytes"))
}

const LINK_STATE: i32 = 0x4001_0017;
const OFFLOAD_CONFIG: i32 = 0x4002_0006;

/// Statuses of the NIC that are too short, longer than known, without a buffer, at an odd address, or unknown: those that are whole
/// are followed, and the others change nothing. What the adapter tells in turn has the header that NDIS knows.
pub(super) fn statuses(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let ([a, b], nic) = (net.vnics, net.nics[0]);
    let link = |up: bool, len: usize| {
        let mut state = vec![0; len.max(40)];
        state[..4].copy_from_slice(&[0x80, 1, 40, 0]);
        state[4..8].copy_from_slice(&if up { 1_u32 } else { 2 }.to_le_bytes());
        state.truncate(len);
        state
    };
    for len in [0, 1, 4, 8, 39] {
        nic.tell(LINK_STATE, &mut link(false, len));
        nic.tell(OFFLOAD_CONFIG, &mut vec![0xA7; len]);
        nic.tell(0x4001_FFFF, &mut vec![0xEE; len]);
    }
    expect_link(a, true);
    exchange_frames([a, b], 1);
    for len in [40, 41, 64, 4096] {
        for up in [false, true] {
            // Not aligned.
            let mut bytes = [&[0][..], &link(up, len)].concat();
            nic.tell(LINK_STATE, &mut bytes[1..]);
            expect_link(a, up);
        }
    }
    exchange_frames([a, b], 2);
    say!("odd statuses verified");
    net.end(host);
}
