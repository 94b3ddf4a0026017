//! Memory windows.

use driver::abi::*;
use ndk_consumer::{Mw, QpConfig};
use std::sync::Arc;
use tests::call;
use tests::kit::raw::{Object, wait};
use tests::kit::{Connection, Net, Side, status};

crate::tests! {
    a_post_names_a_region_and_a_window
    a_post_needs_a_connection_and_room
}

const READ: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ;

fn windowed(connection: &Connection, side: usize) -> (&Side, Arc<Mw>) {
    let side = &connection.sides[side];
    (side, side.pd.create_mw().unwrap())
}

fn a_post_names_a_region_and_a_window() {
    let net = Net::new();
    let connection = net.connect();
    let (side, mw) = windowed(&connection, 0);
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
