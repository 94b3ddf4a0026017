//! Ends that do not ask: a device that is gone, consumers that take their time, a system that goes down.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use driver::abi::*;

use super::net::{Net, PATIENCE};
use super::*;

/// How long a consumer takes to let go.
const SLOW: Duration = Duration::from_secs(10);

/// The adapter's device is gone under a consumer with a connection: the consumer is told, lets go, and the halt waits
/// for that. The peer's connection ends, its adapter lives on, and a new adapter works.
pub(super) fn surprise(host: &dyn Host, _: &[String]) {
    let mut net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    let [gone, _] = net.vnics;
    let [adapter, peer] = net.adapters.take().expect("open");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("NetEventNDKDisable", || gone.ndk_disables.load(Ordering::SeqCst) == 1);
            assert!(is_off(gone), "NDK can be opened on a device that is gone");
            // The connection still works: nothing ends under a consumer that has not let go.
            connection.exchange(20, 1000);
            let [here, there] = connection.connectors;
            here.disconnect().wait().expect("a disconnect");
            assert!(there.wait_disconnected(PATIENCE), "the peer hears nothing");
            drop((here, there, connection.sides, connection.listener, adapter));
        });
        gone.remove_by_surprise();
    });
    let vnic = add(0, net.nics[0]);
    expect_ready(vnic, net.nics[0]);
    drop(peer);
    let net = Net { vnics: [vnic, net.vnics[1]], ..net }.open_adapters();
    let connection = net.connect();
    connection.exchange(50, 1000);
    drop(connection);
    net.end(host);
}

/// A device that nobody uses, with and without a NIC.
pub(super) fn surprise_alone(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    for bound in [true, false] {
        let vnic = add(0, nic);
        expect_ready(vnic, nic);
        if !bound {
            nic.unbind();
            expect_link(vnic, false);
        }
        vnic.remove_by_surprise();
    }
    finish(host);
}

/// NDK goes off under a consumer that takes ten seconds to let go. Meanwhile its connection works, requests are
/// answered, nobody else opens; and it comes on again only after that, though it was told to before.
pub(super) fn disable_slow(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    let vnic = net.vnics[0];
    let counts = || {
        [&vnic.ndk_disables, &vnic.ndk_disabled, &vnic.ndk_enables]
            .map(|count| count.load(Ordering::SeqCst))
    };
    set_ndk(vnic, false);
    eventually("NetEventNDKDisable", || counts() == [1, 0, 0]);
    let since = Instant::now();
    while since.elapsed() < SLOW {
        connection.exchange(20, 1000);
        let mut statistics = [0_u8; 248];
        let answer = oid::ask(vnic, oid::QUERY, oid::NDK_STATISTICS, &mut statistics, true);
        assert_eq!((answer.status, answer.done), (0, 248));
        assert!(is_off(vnic), "NDK can be opened while it goes off");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(counts(), [1, 0, 0], "off before the consumer has let go");
    set_ndk(vnic, true);
    drop(connection);
    let net = net.close_adapters();
    eventually("NDK to be off, and on again", || counts() == [1, 1, 1]);
    let net = net.open_adapters();
    net.connect().exchange(50, 1000);
    net.end(host);
}

/// The system goes down under traffic, in order and by a bug check: each adapter is told at the IRQL of that, and returns
/// without a wait. Whatever runs on until the end does so as before.
pub(super) fn shutdown(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange_during(1000, || {
        for by_bug_check in [false, true] {
            net.vnics.iter().for_each(|vnic| vnic.shut_down(by_bug_check));
        }
    });
    drop(connection);
    net.end(host);
}

fn is_off(vnic: &Vnic) -> bool {
    vnic.open_ndk(NDK_VERSION { Major: 1, Minor: 2 }).err() == Some(NDIS_STATUS_ADAPTER_NOT_READY)
}
