//! The control device: what administrators read there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ndis_driver::control::snapshot::{Field, Head, READ, Snapshot, VERSION, link, ndk};
use ndis_driver::stage::Stage;

use super::net::Net;
use super::*;
use crate::ndis::device::Handle;

const BUFFER_TOO_SMALL: i32 = 0xC000_0023_u32.cast_signed();
const BUFFER_OVERFLOW: i32 = 0x8000_0005_u32.cast_signed();
const INVALID_DEVICE_REQUEST: i32 = 0xC000_0010_u32.cast_signed();
const INVALID_PARAMETER: i32 = 0xC000_000D_u32.cast_signed();
const NOT_FOUND: i32 = 0xC000_0034_u32.cast_signed();
const ROOM: usize = 1 << 16;

fn snapshot(handle: &Handle) -> Snapshot {
    let answer = handle.control(READ, 0, ROOM);
    assert_eq!(answer.status, 0);
    Snapshot::read(&answer.bytes).expect("a snapshot of this version")
}

/// Two adapters, which all is told of; rooms that are too short, and requests that are none; adapters that halt and a driver
/// that unloads while somebody reads.
pub(super) fn control(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    assert!(!device::is_registered(), "a device would keep the driver loaded");
    let nics = [Nic::plug_in(1500), Nic::plug_in(9000)];
    let vnics = [0, 1].map(|number| add(number, nics[number]));
    vnics.iter().zip(nics).for_each(|(vnic, nic)| expect_ready(vnic, nic));
    nic::settle();
    assert_eq!(Handle::open("\\other").err(), Some(NOT_FOUND), "a name behind the device's");
    let handle = Handle::open("").expect("a handle");
    check_adapters(&snapshot(&handle), vnics, nics);
    check_rooms(&handle);
    for (code, input, status) in [
        (READ, 4, INVALID_PARAMETER),
        (READ + 4, 0, INVALID_DEVICE_REQUEST),
        (0, 8, INVALID_DEVICE_REQUEST),
    ] {
        let answer = handle.control(code, input, ROOM);
        assert_eq!((answer.status, answer.bytes.len()), (status, 0), "{code:#x}");
    }
    set_ndk(vnics[0], false);
    eventually("NDK that is off", || snapshot(&handle).adapters[0].0.ndk == ndk::OFF);
    nics[1].set_link(false);
    eventually("a link that is down", || snapshot(&handle).adapters[1].0.link == link::DOWN);
    halt_under_readers(vnics, &handle);
    assert_eq!(Handle::open("").err(), Some(NOT_FOUND), "the device goes with the last adapter");
    assert_eq!(snapshot(&handle).adapters, []);
    // Another device of the same name, while the first is still open.
    let vnic = add(0, nics[0]);
    let other = Handle::open("").expect("a handle");
    assert_eq!(snapshot(&other).adapters.len(), 1);
    vnic.remove();
    [handle, other].into_iter().for_each(Handle::close);
    finish(host);
}

fn check_adapters(snapshot: &Snapshot, vnics: [&Vnic; 2], nics: [&Nic; 2]) {
    let head = snapshot.head;
    assert_eq!((head.version, head.adapters, head.problem), (VERSION, 2, 0));
    assert_eq!(Stage::from_number(head.stage), Some(Stage::Bound));
    for (((adapter, connections), vnic), nic) in snapshot.adapters.iter().zip(vnics).zip(nics) {
        let name = String::from_utf16_lossy(&adapter.nic);
        assert_eq!(name.trim_end_matches('\0'), nic.guid);
        assert_eq!((adapter.interface, adapter.mac), (vnic.index, vnic.mac()));
        // RoCE frames of 1024 bytes are configured.
        assert_eq!((adapter.mtu, adapter.path_mtu), (nic.mtu, 1024));
        assert_eq!((adapter.link, adapter.ndk), (link::UP, ndk::ON));
        assert!(adapter.speed_bps > 0 && connections.is_empty());
    }
}

/// Every room up to the whole has as much as fits.
fn check_rooms(handle: &Handle) {
    let whole = handle.control(READ, 0, ROOM).bytes;
    for room in 0..whole.len() {
        let answer = handle.control(READ, 0, room);
        if room < Head::LEN {
            assert_eq!((answer.status, answer.bytes.len()), (BUFFER_TOO_SMALL, 0), "{room}");
            continue;
        }
        assert_eq!(answer.status, BUFFER_OVERFLOW, "{room}");
        let head = Head::read(&mut &*answer.bytes).expect("a head");
        assert_eq!(head.len as usize, whole.len(), "{room}");
    }
    assert_eq!(handle.control(READ, 0, whole.len()).status, 0);
}

/// Two threads read all the time while the adapters halt.
fn halt_under_readers(vnics: [&Vnic; 2], handle: &Handle) {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut seen = [0; 3];
                while !ends.load(Ordering::SeqCst) {
                    seen[snapshot(handle).adapters.len()] += 1;
                }
                seen
            })
        });
        vnics.iter().for_each(|vnic| vnic.remove());
        ends.store(true, Ordering::SeqCst);
        for reader in readers {
            let seen = reader.join().expect("it reads");
            say!("read with no, one and two adapters: {seen:?}");
        }
    });
}

/// Connections, their traffic, the last problem, and a consumer that has not let go.
pub(super) fn control_connections(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    let handle = Handle::open("").expect("a handle");
    let Snapshot { head, adapters } = snapshot(&handle);
    assert_eq!(Stage::from_number(head.stage), Some(Stage::NdkOpen));
    let all: Vec<_> = adapters.iter().flat_map(|(_, connections)| connections).collect();
    let [one, other] = all[..] else { panic!("{all:?}") };
    assert_eq!((one.local, one.local_port), (other.remote, other.remote_port));
    assert_eq!((one.remote, one.remote_port), (other.local, other.local_port));
    for end in [one, other] {
        assert!(
            end.sent_bytes > 1000 && end.received_bytes > 1000 && end.path_mtu == 1024,
            "{end:?}"
        );
    }
    for (adapter, _) in &adapters {
        assert_eq!((adapter.connects + adapter.accepts, adapter.connection_errors), (1, 0));
        assert!(adapter.in_frames > 50 && adapter.out_bytes > 1000, "{adapter:?}");
    }
    let vnic = net.vnics[0];
    set_ndk(vnic, false);
    let state =
        |wanted| snapshot(&handle).adapters.iter().any(|(adapter, _)| adapter.ndk == wanted);
    eventually("NDK that waits for its consumer", || state(ndk::CLOSING));
    drop(connection);
    let net = net.close_adapters();
    eventually("NDK that is off", || state(ndk::OFF));
    event_log::take();
    net.nics[0].unbind();
    net.nics[0].aborts.store(nic::ABORTED, Ordering::SeqCst);
    net.nics[0].bind();
    net.nics[0].aborts.store(0, Ordering::SeqCst);
    let head = snapshot(&handle).head;
    let [event] = &event_log::take()[..] else { panic!("one event") };
    assert_eq!(head.problem, event.id & 0xffff);
    assert_eq!(head.problem_values[..2], [vnic.index, nic::ABORTED.cast_unsigned()]);
    say!("the snapshot is verified");
    handle.close();
    for vnic in net.vnics {
        vnic.remove();
    }
    finish(host);
}
