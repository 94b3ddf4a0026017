//! Memory windows.

use driver::abi::*;
use ndk_consumer::{Buffer, Invalidate, Mw, QpConfig};
use std::sync::Arc;
use tests::call;
use tests::kit::raw::{Object, PATIENCE, request, wait};
use tests::kit::{Connection, Net, Side, status};

crate::tests! {
    a_window_is_bound_and_invalidated
    a_window_lies_inside_its_region
    a_window_ends_with_its_region
    a_window_is_bound_once_at_a_time
    a_post_names_a_region_and_a_window
    a_post_needs_a_connection_and_room
    a_flush_cancels_what_has_not_begun
}

const READ: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ;

fn windowed(connection: &Connection, side: usize) -> (&Side, Arc<Mw>) {
    let side = &connection.sides[side];
    (side, side.pd.create_mw().unwrap())
}

fn a_window_is_bound_and_invalidated() {
    let net = Net::new();
    let connection = net.connect();
    let client = &connection.sides[0];
    let (server, mw) = windowed(&connection, 1);
    server.qp.bind(1, &server.mr, &mw, 100..200, READ).unwrap();
    let remote = mw.remote(server.mr.remote(100).address);
    assert_eq!(server.ends(1), [(NdkOperationTypeBind, STATUS_SUCCESS)]);
    client.qp.read(1, &[client.mr.sge(0..100)], remote, 0).unwrap();
    assert_eq!(client.ends(1), [(NdkOperationTypeRead, STATUS_SUCCESS)]);
    server.qp.invalidate(2, Invalidate::Window(&mw), 0).unwrap();
    assert_eq!(server.ends(1), [(NdkOperationTypeInvalidate, STATUS_SUCCESS)]);
    client.qp.read(1, &[client.mr.sge(0..100)], remote, 0).unwrap();
    assert_eq!(client.ends(1), [(NdkOperationTypeRead, STATUS_ACCESS_VIOLATION)]);
}

fn a_window_lies_inside_its_region() {
    let net = Net::new();
    let connection = net.connect();
    let (side, mw) = windowed(&connection, 0);
    let (qp, end) = (Object(side.qp.as_ptr()), side.mr.remote(side.mr.buffer().len()).address);
    let end = std::ptr::without_provenance_mut(end as usize - 10);
    let (mr, mw, none) = (side.mr.as_ptr(), mw.as_ptr(), std::ptr::null_mut());
    assert_eq!(call!(qp, NdkBind, none, mr, mw, end, 11, READ), STATUS_SUCCESS);
    assert_eq!(side.ends(1), [(NdkOperationTypeBind, STATUS_ACCESS_VIOLATION)]);
}

/// What the page of the deregistration, which names no failure, makes of a bound window.
fn a_window_ends_with_its_region() {
    let net = Net::new();
    let connection = net.connect();
    let client = &connection.sides[0];
    let (server, mw) = windowed(&connection, 1);
    server.qp.bind(1, &server.mr, &mw, 0..100, READ).unwrap();
    assert_eq!(server.ends(1), [(NdkOperationTypeBind, STATUS_SUCCESS)]);
    let remote = mw.remote(server.mr.remote(0).address);
    let mr = Object(server.mr.as_ptr());
    let end = request(|done, context| call!(mr, NdkDeregisterMr, done, context));
    assert_eq!(end.recv_timeout(PATIENCE).unwrap(), STATUS_SUCCESS);
    client.qp.read(1, &[client.mr.sge(0..100)], remote, 0).unwrap();
    assert_eq!(client.ends(1), [(NdkOperationTypeRead, STATUS_ACCESS_VIOLATION)]);
}

fn a_window_is_bound_once_at_a_time() {
    let net = Net::new();
    let connection = net.connect();
    let (side, mw) = windowed(&connection, 0);
    for _ in 0..2 {
        side.qp.bind(1, &side.mr, &mw, 0..10, READ).unwrap();
    }
    assert_eq!(
        side.ends(2),
        [(NdkOperationTypeBind, STATUS_SUCCESS), (NdkOperationTypeBind, STATUS_ACCESS_VIOLATION)]
    );
}

fn a_post_names_a_region_and_a_window() {
    let net = Net::new();
    let connection = net.connect();
    let (side, mw) = windowed(&connection, 0);
    let read_only = side.pd.register(Buffer::new(10), 0).unwrap();
    let write = side.qp.bind(1, &read_only, &mw, 0..10, NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
    assert_eq!(status(write), STATUS_ACCESS_VIOLATION);
    let empty = wait(|then| Object(side.pd.as_ptr()).create_mr(then)).unwrap();
    let (qp, none) = (Object(side.qp.as_ptr()), std::ptr::null_mut());
    let bind = |mr, mw| call!(qp, NdkBind, none, mr, mw, none, 0, READ);
    assert_eq!(bind(none.cast(), mw.as_ptr()), STATUS_INVALID_PARAMETER);
    assert_eq!(bind(side.mr.as_ptr(), none.cast()), STATUS_INVALID_PARAMETER);
    assert_eq!(bind(empty.0, mw.as_ptr()), STATUS_INVALID_DEVICE_STATE, "nothing registered");
    wait(|then| empty.close(then));
}

fn a_post_needs_a_connection_and_room() {
    let net = Net::new();
    let idle = net.side(0);
    let mw = idle.pd.create_mw().unwrap();
    let posted = idle.qp.bind(1, &idle.mr, &mw, 0..10, READ);
    assert_eq!(status(posted), STATUS_CONNECTION_INVALID);

    let small = QpConfig { initiator_depth: 1, ..QpConfig::default() };
    let connection = net.connect_sides([net.side_with(0, small), net.side(1)]);
    let (side, mw) = windowed(&connection, 0);
    let gate = net.hold(0);
    side.qp.send(1, &[], 0).unwrap();
    let posted = side.qp.bind(1, &side.mr, &mw, 0..10, READ);
    assert_eq!(status(posted), STATUS_NO_MORE_ENTRIES);
    drop(gate);
}

fn a_flush_cancels_what_has_not_begun() {
    let net = Net::new();
    let connection = net.connect();
    let (side, mw) = windowed(&connection, 0);
    net.wires[1].cut();
    let remote = connection.sides[1].mr.remote(0);
    side.qp.read(1, &[side.mr.sge(0..10)], remote, 0).unwrap();
    side.qp.bind(2, &side.mr, &mw, 0..10, READ | NDK_OP_FLAG_READ_FENCE).unwrap();
    side.qp.flush();
    assert_eq!(
        side.ends(2),
        [(NdkOperationTypeRead, STATUS_CANCELLED), (NdkOperationTypeBind, STATUS_CANCELLED)]
    );
}
