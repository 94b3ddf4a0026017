//! Fast registration and invalidation: what the calls and posts answer, and how the requests end.

use driver::abi::*;
use ndk_consumer::{Buffer, FastRegister, Frmr, Invalidate, Lam, Qp, QpConfig};
use std::sync::Arc;
use tests::call;
use tests::kit::raw::Object;
use tests::kit::{ALL_ACCESS, Net, Side, status};

crate::tests! {
    regions_run_out
    a_post_names_what_can_be_mapped
    a_post_needs_room
    a_flush_cancels_what_has_not_begun
}

/// A buffer of two pages with logical addresses, and a region for it.
struct Mapped {
    lam: Lam,
    pages: Vec<NDK_LOGICAL_ADDRESS>,
    frmr: Arc<Frmr>,
}

impl Mapped {
    fn new(net: &Net, side: &Side, host: usize, remote: bool) -> Self {
        let buffer = Arc::new(Buffer::new(2 * PAGE_SIZE));
        let lam = net.adapters[host].build_lam(buffer, 0..2 * PAGE_SIZE).unwrap();
        let frmr = side.pd.create_frmr(3, remote).unwrap();
        Self { pages: lam.pages(), lam, frmr }
    }

    fn what(&self) -> FastRegister<'_> {
        let base = 0x7_0000 + u64::from(self.lam.fbo());
        FastRegister { pages: &self.pages, fbo: self.lam.fbo(), len: PAGE_SIZE, base }
    }

    fn post(&self, qp: &Qp, flags: u32) -> NTSTATUS {
        status(qp.fast_register(1, &self.frmr, self.what(), flags))
    }
}

const READ: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ;

fn regions_run_out() {
    let net = Net::scarce();
    let pd = net.adapters[0].create_pd().unwrap();
    let mut regions = Vec::new();
    let full = loop {
        match pd.create_frmr(1, true) {
            Ok(frmr) => regions.push(frmr),
            Err(error) => break error.status,
        }
    };
    assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
    // Windows and registrations are of the same kind.
    assert_eq!(status(pd.create_mw()), full);
    assert_eq!(status(pd.register(Buffer::new(1), ALL_ACCESS)), full);
    drop(regions.pop());
    assert_eq!(status(pd.create_mw()), STATUS_SUCCESS);
}

fn a_post_names_what_can_be_mapped() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let mapped = Mapped::new(&net, side, 0, true);
    let qp = Object(side.qp.as_ptr());
    let none = std::ptr::null_mut();
    let fast_register =
        |mr: *mut NDK_MR| call!(qp, NdkFastRegister, none, mr, 0, none.cast(), 0, 0, none, 0);
    let invalidate = |object| call!(qp, NdkInvalidate, none, object, 0);
    let raw = tests::kit::raw::create::<NDK_MR>(|done, context| {
        let pd = Object(side.pd.as_ptr());
        call!(pd, NdkCreateMr, TRUE, done, context, std::ptr::null_mut())
    });
    let raw = raw.unwrap();
    let foreign = net.side(0);
    let elsewhere = foreign.pd.create_frmr(1, true).unwrap();
    assert_eq!(fast_register(none.cast()), STATUS_INVALID_PARAMETER);
    assert_eq!(fast_register(side.mr.as_ptr()), STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(fast_register(raw.0), STATUS_INVALID_DEVICE_STATE, "not initialised");
    assert_eq!(invalidate(std::ptr::null_mut()), STATUS_INVALID_PARAMETER);
    assert_eq!(invalidate(side.cq.as_ptr().cast()), STATUS_INVALID_PARAMETER);
    assert_eq!(invalidate(raw.0.cast()), STATUS_INVALID_DEVICE_STATE, "not initialised");
    assert_eq!(invalidate(elsewhere.as_ptr().cast()), STATUS_ACCESS_VIOLATION, "another domain's");
    tests::kit::raw::wait(|then| raw.close(then));
    // None of it harmed the queue pair.
    assert_eq!(mapped.post(&side.qp, 0), STATUS_SUCCESS);
    assert_eq!(side.ends(1), [(NdkOperationTypeFastRegister, STATUS_SUCCESS)]);
}

fn a_post_needs_room() {
    let net = Net::new();
    let small = QpConfig { initiator_depth: 1, ..QpConfig::default() };
    let connection = net.connect_sides([net.side_with(0, small), net.side(1)]);
    let side = &connection.sides[0];
    let mapped = Mapped::new(&net, side, 0, true);
    let gate = net.hold(0);
    side.qp.send(1, &[], 0).unwrap();
    assert_eq!(mapped.post(&side.qp, READ), STATUS_NO_MORE_ENTRIES);
    let invalidated = side.qp.invalidate(1, Invalidate::Region(&mapped.frmr), 0);
    assert_eq!(status(invalidated), STATUS_NO_MORE_ENTRIES);
    drop(gate);
}

fn a_flush_cancels_what_has_not_begun() {
    let net = Net::new();
    let connection = net.connect();
    let [side, server] = &connection.sides;
    let mapped = Mapped::new(&net, side, 0, true);
    // A READ that is not answered, and a fence behind it.
    net.wires[1].cut();
    side.qp.read(1, &[side.mr.sge(0..10)], server.mr.remote(0), 0).unwrap();
    assert_eq!(mapped.post(&side.qp, READ | NDK_OP_FLAG_READ_FENCE), STATUS_SUCCESS);
    side.qp.invalidate(2, Invalidate::Region(&mapped.frmr), 0).unwrap();
    let mw = side.pd.create_mw().unwrap();
    side.qp.bind(3, &side.mr, &mw, 0..10, READ).unwrap();
    side.qp.flush();
    assert_eq!(
        side.ends(4),
        [
            (NdkOperationTypeRead, STATUS_CANCELLED),
            (NdkOperationTypeFastRegister, STATUS_CANCELLED),
            (NdkOperationTypeInvalidate, STATUS_CANCELLED),
            (NdkOperationTypeBind, STATUS_CANCELLED)
        ]
    );
}
