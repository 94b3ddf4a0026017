//! Sleep: of the NIC below, and of the adapter.

use std::time::Duration;

use driver::abi::*;

use super::net::{Net, PATIENCE};
use super::*;

/// Shorter than a connection endures.
const NAP: Duration = Duration::from_millis(300);

fn set_power(vnic: &Vnic, awake: bool) {
    let mut state = if awake { 1_i32 } else { 4 }.to_le_bytes();
    for (kind, code) in [(oid::QUERY, oid::PNP_QUERY_POWER), (oid::SET, oid::PNP_SET_POWER)] {
        let answer = oid::ask(vnic, kind, code, &mut state, false);
        assert_eq!(answer.status, 0, "OID {code:#x}");
    }
}

/// The NIC below is put to sleep and wakes, with and without the pause that NDIS makes before.
pub(super) fn sleep_below(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    let nic = net.nics[0];
    for pauses in [false, true] {
        connection.exchange_during(3000, || {
            if pauses {
                nic.pause();
            }
            nic.set_power(false);
            let before = nic.sent();
            std::thread::sleep(NAP);
            assert_eq!(nic.sent(), before, "frames left a NIC without power");
            if pauses {
                // In this order nothing may be sent before both have happened.
                nic.restart();
                std::thread::sleep(NAP);
                assert_eq!(nic.sent(), before, "frames left a NIC without power");
            }
            nic.set_power(true);
        });
    }
    drop(connection);
    // It also may go while it sleeps.
    nic.set_power(false);
    nic.unbind();
    expect_link(net.vnics[0], false);
    nic.set_power(true);
    nic.bind();
    expect_ready(net.vnics[0], nic);
    drop(net.connect());
    net.end(host);
}

/// The adapter itself is put to sleep, as the system sleeps, and wakes; its connections survive.
pub(super) fn sleep(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    let [vnic, _] = net.vnics;
    connection.exchange_during(3000, || {
        vnic.pause();
        set_power(vnic, false);
        let before = net.nics[0].sent();
        std::thread::sleep(NAP);
        // What was under way when the power went may have left after that.
        assert!(net.nics[0].sent() <= before + 64, "frames leave an adapter that sleeps");
        set_power(vnic, true);
        assert_eq!(vnic.restart(), 0);
    });
    // Removed while it sleeps.
    drop(connection);
    let net = net.close_adapters();
    vnic.pause();
    set_power(vnic, false);
    vnic.remove_paused();
    net.vnics[1].remove();
    finish(host);
}

/// A sleep that outlasts the retries ends connections, by an event and by flushed requests.
pub(super) fn sleep_long(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    net.nics[0].set_power(false);
    let [here, there] = &connection.sides;
    here.qp.write(3, &[here.mr.sge(0..8)], there.mr.remote(0), 0).expect("a write");
    here.qp.write(4, &[here.mr.sge(0..8)], there.mr.remote(0), 0).expect("a write");
    assert!(connection.connectors[0].wait_disconnected(PATIENCE), "no disconnect event");
    let mut results = [NDK_RESULT_EX::EMPTY; 8];
    let mut statuses = Vec::new();
    while statuses.len() < 2 {
        let taken = here.cq.wait_results_ex(&mut results, PATIENCE).expect("the CQ works");
        assert!(taken > 0, "no completion");
        statuses.extend(results[..taken].iter().map(|result| result.Status));
    }
    assert_eq!(statuses, [STATUS_IO_TIMEOUT, STATUS_CANCELLED]);
    net.nics[0].set_power(true);
    drop(connection);
    let connection = net.connect();
    connection.exchange(50, 1000);
    drop(connection);
    net.end(host);
}
