//! Damaged NICs: one refuses frames, one loses units.

use driver::abi::*;
use ndis_driver::counter_sets::{CounterSet, SETS};
use ndis_driver::problems::{Problem, REFUSALS_TOLD};

use super::cores::connect;
use super::net::{Connection, Net, PATIENCE};
use super::offloads::ALL as OFFLOADS;
use super::stages::expect_events;
use super::*;

/// Bytes of the longest frame that a NIC takes: full packets are longer.
const LONGEST: usize = 700;
/// Bytes of messages whose packets it takes.
const SHORT: usize = 500;
/// Bytes of a WRITE of many full packets, and their number.
const LONG: usize = 60_000;
const PACKETS: u64 = (LONG as u64).div_ceil(1024);

/// A NIC refuses the long frames. TCP/IP gets its own back with the status, one connection ends by its retries, and another
/// one goes on; an administrator is told once, and no frame is offered again but by the transport. Where a NIC takes frames
/// again before that, a connection goes on.
pub(super) fn refuses_frames(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let nic = net.nics[0];
    event_log::take();
    nic.faults.refuse_above(LONGEST);
    refuse_ordinary_frames(net.vnics);
    assert_eq!(event_log::take(), [], "frames of TCP/IP are TCP/IP's to tell of");
    if !IS_CONSUMER {
        return net.end(host);
    }
    nic.faults.refuse_above(usize::MAX);
    let (net, before) = (net.open_adapters(), nic.faults.refused());
    let refused_frames = || (nic.faults.refused() - before) as u64;
    let counted = || count(net.vnics[0], "edge_refused");
    let [long, short] = [0, 1].map(|number| connect(&net, number));
    nic.faults.refuse_above(LONGEST);
    short.exchange_during(SHORT, || {
        write_long(&long);
        assert_eq!(completion(&long), STATUS_IO_TIMEOUT);
        assert!(long.connectors[0].wait_disconnected(PATIENCE), "no disconnect event");
    });
    eventually("the counter of refusals", || counted() == refused_frames());
    let refusals = counted();
    say!("{refusals} frames refused, verified to be those of one connection");
    assert!(refusals >= REFUSALS_TOLD.into(), "{refusals}");
    // Each of eight tries sends every packet once at most.
    assert!(refusals <= 8 * PACKETS, "{refusals} frames of {PACKETS} packets were refused");

    nic.faults.refuse_above(usize::MAX);
    let next = connect(&net, 2);
    nic.faults.refuse_above(0);
    write_long(&next);
    eventually("a refusal", || refused_frames() > refusals);
    nic.faults.refuse_above(usize::MAX);
    assert_eq!(completion(&next), STATUS_SUCCESS);
    expect_long(&next);
    for connection in [&next, &short] {
        connection.exchange(20, 5000);
    }
    let status = format!("{:X}", crate::ndis::INVALID_LENGTH);
    expect_events(net.vnics[0], &[(Problem::FramesRefused, [&status, "0"])]);
    drop((long, short, next));
    net.end(host);
}

/// The first adapter's TCP/IP sends more long frames than a problem needs, and a short one.
fn refuse_ordinary_frames([a, b]: [&'static Vnic; 2]) {
    let frame = |len| {
        let mut frame = [&b.mac()[..], &a.mac(), &[0x88, 0xB5]].concat();
        frame.resize(len, 7);
        frame
    };
    let (long, short) = (frame(LONGEST + 1), frame(LONGEST));
    let sends = REFUSALS_TOLD as usize + 1;
    (0..sends).for_each(|_| a.post(&long, 0, 1));
    a.post(&short, 0, 2);
    eventually("the end of all sends", || a.ended.lock().unwrap().len() == sends + 1);
    for &(mark, status) in a.ended.lock().unwrap().iter() {
        let wanted = if mark == 1 { crate::ndis::INVALID_LENGTH } else { 0 };
        assert_eq!(status, wanted, "the status of a send with mark {mark}");
    }
    eventually("the short frame", || b.heard.lock().unwrap().contains(&short));
    assert!(!b.heard.lock().unwrap().contains(&long), "a refused frame is heard");
    say!("refused frames of TCP/IP verified");
}

fn long_bytes() -> Vec<u8> {
    (0..LONG).map(|place| (place * 31) as u8).collect()
}

fn write_long(connection: &Connection) {
    let [here, there] = &connection.sides;
    here.mr.buffer().write(0, &long_bytes());
    here.qp.write(9, &[here.mr.sge(0..LONG)], there.mr.remote(0), 0).expect("a write");
}

fn expect_long(connection: &Connection) {
    let mut arrived = vec![0; LONG];
    connection.sides[1].mr.buffer().read(0, &mut arrived);
    assert!(arrived == long_bytes(), "the WRITE arrived changed");
}

/// The status of the next request that ends.
fn completion(connection: &Connection) -> NTSTATUS {
    let mut results = [NDK_RESULT_EX::EMPTY; 1];
    let taken = connection.sides[0].cq.wait_results_ex(&mut results, PATIENCE);
    assert_eq!(taken.expect("the CQ works"), 1, "no completion in {PATIENCE:?}");
    results[0].Status
}

/// A counter of an adapter, by its name in the performance counter sets.
fn count(vnic: &Vnic, name: &str) -> u64 {
    let value = |set: &CounterSet| {
        let members = set.members();
        let id = (0..members.count()).find(|&id| members.get(id).name == name)?;
        let adapters = pcw::collect(set.name);
        Some(adapters.iter().find(|adapter| adapter.id == vnic.index)?.values[id])
    };
    SETS[..2].iter().find_map(value).expect("a counter of an adapter")
}

/// A NIC takes the units of the first adapter and loses each, while single packets pass. All data arrives, packets leave singly
/// soon, and an administrator is told once; the units of the second adapter go on.
pub(super) fn loses_units(host: &dyn Host, _: &[String]) {
    let net = Net::plug_on(host, 1500, OFFLOADS, &[]).open_adapters();
    let units = || net.nics.map(|nic| nic.counts.units()[0]);
    let connections = [(address(0), address(1)), (address6(0), address6(1))]
        .map(|(from, to)| net.try_connect(from, to).expect("a connection"));
    let exchange = |connection: &Connection| {
        let before = units();
        connection.exchange(100, 60_000);
        let flowed = [0, 1].map(|at: usize| units()[at] - before[at]);
        say!("units of either adapter: {flowed:?}");
        flowed
    };
    let sound = exchange(&connections[0]);
    assert!(sound.iter().all(|units| *units > 100), "{sound:?}");
    event_log::take();
    net.nics[0].faults.lose_units();
    // A path gives units up, and after two more of another path the link does.
    for (connection, name) in connections.iter().zip(["units_off_path", "units_off_link"]) {
        exchange_until(connection, name, || count(net.vnics[0], name) > 0);
    }
    let mut events = Vec::new();
    exchange_until(&connections[0], "an event", || {
        events.extend(event_log::take());
        !events.is_empty()
    });
    expect_units_lost(net.vnics[0], &events);
    for connection in &connections {
        let flowed = exchange(connection);
        // Of the first adapter leave those by which it tries the link, seconds apart.
        assert!(flowed[0] < 20 && flowed[1] > 100, "{flowed:?}");
    }
    assert_eq!(event_log::take(), [], "told twice");
    assert_eq!(count(net.vnics[1], "units_lost"), 0, "the other NIC loses none");
    drop(connections);
    net.end(host);
}

/// Exchanges until this holds.
fn exchange_until(connection: &Connection, what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        connection.exchange(2, 60_000);
    }
}

/// One event, with the units that the adapter has lost for sure, and those that it has sent, by then.
fn expect_units_lost(vnic: &Vnic, events: &[event_log::Event]) {
    let [event] = events else { panic!("{events:?}") };
    let values = event.strings.iter().map(|string| string.parse::<u32>().expect("a number"));
    let [interface, lost, sent] = values.collect::<Vec<_>>()[..] else { panic!("{event:?}") };
    assert_eq!((event.id, interface), (Problem::UnitsLost.message_id(), vnic.index));
    // Four of a path, and two of another one.
    assert!(lost >= 6 && sent >= lost, "{lost} of {sent} units");
    assert!(count(vnic, "units_lost") >= lost.into());
}
