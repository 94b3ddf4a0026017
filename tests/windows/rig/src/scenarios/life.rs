//! Loading, starting, binding, and their ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use driver::abi::*;
use ndk_consumer::Adapter;

use super::net::Net;
use super::*;
use crate::ndis::vnic::Opener;

/// Loads and unloads.
pub(super) fn load(host: &dyn Host, _: &[String]) {
    for _ in 0..3 {
        host.load().expect("DriverEntry succeeds");
        let registered = registration::registered();
        assert!(registered.miniport.is_some() && registered.protocol.is_some());
        finish(host);
    }
}

/// An adapter on a NIC: link state, pause and restart; then all away.
pub(super) fn start(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(9000);
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    nic.set_link(false);
    expect_link(vnic, false);
    nic.set_link(true);
    expect_link(vnic, true);
    vnic.pause();
    assert_eq!(vnic.restart(), 0);
    if IS_CONSUMER {
        let adapter = Adapter::open(Arc::new(Opener(vnic))).expect("an NDK adapter");
        let info = adapter.info().expect("its information");
        assert_eq!(info.RdmaTechnology, NdkRoCEv2);
    }
    vnic.remove();
    finish(host);
}

/// The adapter starts first, its NIC comes later, goes, and comes again.
pub(super) fn bind_late(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let other = Nic::plug_in(1500);
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    nic::settle();
    assert!(!other.is_bound(), "bound to a NIC that LowerAdapter does not name");
    nic.unbind();
    expect_link(vnic, false);
    nic.bind();
    expect_link(vnic, true);
    // And the other way round: the NIC is there before the driver is.
    vnic.remove();
    host.unload();
    host.load().expect("DriverEntry succeeds");
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    vnic.remove();
    finish(host);
}

/// An adapter does not bind to itself, even if it is told to.
pub(super) fn bind_self(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    nic.pose_as(Vnic::next_luid());
    let before = nic::asked();
    let vnic = add(0, nic);
    nic::settle_after(before);
    assert!(!nic.is_bound(), "bound to itself");
    vnic.remove();
    finish(host);
}

/// An adapter halts at any moment of the offer of its NIC, which it has asked for itself: it is bound
/// before, or not at all.
pub(super) fn bind_halt(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let mut bound = 0;
    for number in 0..40 {
        // With calls that end later the halt comes first, mostly.
        nic.ends.store([nic::AT_ONCE, nic::LATER][number % 2], Ordering::SeqCst);
        let vnic = add(0, nic);
        bound += usize::from(vnic.link.load(Ordering::SeqCst) == 1);
        // Its NIC may go at the same time, and has to: it is offered only if it is not bound.
        std::thread::scope(|scope| {
            scope.spawn(|| nic.unbind());
            vnic.remove();
        });
        nic.unbind();
    }
    say!("{bound} of 40 were bound before they halted");
    finish(host);
}

/// NDK is switched off under an open consumer, and on again.
pub(super) fn disable(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    let vnic = net.vnics[0];
    set_ndk(vnic, false);
    eventually("NetEventNDKDisable", || {
        vnic.ndk_disables.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    let refused = vnic.open_ndk(NDK_VERSION { Major: 1, Minor: 2 });
    assert_eq!(refused.err(), Some(NDIS_STATUS_ADAPTER_NOT_READY));
    // The consumers let go; only then is it off.
    drop(connection);
    let net = net.close_adapters();
    set_ndk(vnic, true);
    eventually("NetEventNDKEnable", || {
        vnic.ndk_enables.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    // Off and on again before the driver gets to tell anybody.
    for _ in 0..20 {
        set_ndk(vnic, false);
        set_ndk(vnic, true);
    }
    // It may open between two of the changes, and keeps the others waiting then.
    let net = net.open_adapters();
    let connection = net.connect();
    connection.exchange(50, 1000);
    drop(connection);
    net.end(host);
}

/// The NIC goes away under a connection; the connection breaks, everything closes, it comes back.
pub(super) fn unbind(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    net.nics[0].unbind();
    expect_link(net.vnics[0], false);
    drop(connection);
    net.nics[0].bind();
    expect_ready(net.vnics[0], net.nics[0]);
    let connection = net.connect();
    connection.exchange(50, 1000);
    drop(connection);
    net.end(host);
}

/// An adapter is removed under a consumer, which lets go a while later: `MiniportHaltEx` waits.
pub(super) fn halt_open(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    let vnics = net.vnics;
    let consumer = std::thread::spawn(move || {
        let waits = || match vnics[0].open_ndk(NDK_VERSION { Major: 1, Minor: 2 }) {
            Ok(adapter) => {
                vnics[0].close_ndk(adapter);
                false
            }
            Err(status) => status == NDIS_STATUS_ADAPTER_NOT_READY,
        };
        eventually("the halt", waits);
        drop(connection);
        drop(net);
    });
    // That it did not return before is seen there.
    vnics[0].remove();
    consumer.join().expect("the consumer closes");
    vnics[1].remove();
    finish(host);
}

/// The NIC ends what it is asked at once, later, or before its call has returned; and it may abort
/// what it is asked, and then is not bound.
pub(super) fn pending(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    for ends in [nic::AT_ONCE, nic::LATER, nic::WITHIN] {
        nic.ends.store(ends, Ordering::SeqCst);
        for _ in 0..5 {
            nic.unbind();
            expect_link(vnic, false);
            nic.bind();
            assert!(nic.is_bound(), "not bound, calls end {ends}");
            expect_link(vnic, true);
        }
        nic.unbind();
        nic.aborts.store(nic::ABORTED, Ordering::SeqCst);
        nic.bind();
        assert!(!nic.is_bound(), "bound to a NIC that took no packet filter");
        nic.aborts.store(0, Ordering::SeqCst);
        nic.bind();
        assert!(nic.is_bound(), "not bound after an abort, calls end {ends}");
    }
    vnic.remove();
    finish(host);
}

/// The NIC is offered with parameters of each revision, and with those of one that does not exist yet.
pub(super) fn revisions(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(9000);
    let vnic = add(0, nic);
    for _ in 0..5 {
        expect_ready(vnic, nic);
        nic.unbind();
        expect_link(vnic, false);
        nic.bind();
        assert!(nic.is_bound(), "a revision is refused");
    }
    vnic.remove();
    finish(host);
}
