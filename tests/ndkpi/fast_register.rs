//! Fast registration and invalidation: what the calls and posts answer, and how the requests end.

use driver::abi::*;
use ndk_consumer::{Buffer, FastRegister, Frmr, Invalidate, Lam, Qp, QpConfig};
use std::sync::Arc;
use tests::call;
use tests::kit::raw::{Object, request};
use tests::kit::{ALL_ACCESS, Net, Side, status};

crate::tests! {
    a_region_is_initialised_once_and_within_limits
    regions_run_out
    a_region_is_mapped_and_invalidated
    the_peer_invalidates
    a_region_is_mapped_once_at_a_time
    what_is_not_mapped_is_not_invalidated
    a_post_names_what_can_be_mapped
    a_post_needs_a_connection_and_room
    page_lists_run_out
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

fn a_region_is_initialised_once_and_within_limits() {
    let net = Net::new();
    let side = net.side(0);
    let info = net.adapters[0].info().unwrap();
    assert!(info.FRMRPageCount >= 16);
    assert_eq!(
        status(side.pd.create_frmr(u32::MAX, true)),
        STATUS_IMPLEMENTATION_LIMIT,
        "more pages than any adapter has"
    );
    let frmr = side.pd.create_frmr(info.FRMRPageCount, true).unwrap();
    assert_eq!(status(frmr.initialize(1, true).wait()), STATUS_INVALID_DEVICE_STATE);
    assert_ne!(frmr.local_token(), 0);
    assert_ne!(frmr.remote_token(), 0);
    let registered = Object(side.mr.as_ptr());
    let end = request(|done, context| {
        call!(registered, NdkInitializeFastRegisterMr, 1, TRUE, done, context)
    });
    assert_eq!(end.recv().unwrap(), STATUS_INVALID_DEVICE_REQUEST);
}

fn regions_run_out() {
    let net = Net::new();
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

fn a_region_is_mapped_and_invalidated() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    let mapped = Mapped::new(&net, server, 1, true);
    mapped.lam.buffer().write(0, b"logical");
    assert_eq!(mapped.post(&server.qp, READ), STATUS_SUCCESS);
    assert_eq!(server.ends(1), [(NdkOperationTypeFastRegister, STATUS_SUCCESS)]);
    let remote = mapped.frmr.remote(mapped.what().base);
    client.qp.read(1, &[client.mr.sge(0..7)], remote, 0).unwrap();
    assert_eq!(client.ends(1), [(NdkOperationTypeRead, STATUS_SUCCESS)]);
    let mut bytes = [0; 7];
    client.mr.buffer().read(0, &mut bytes);
    assert_eq!(&bytes, b"logical");
    server.qp.invalidate(2, Invalidate::Region(&mapped.frmr), 0).unwrap();
    assert_eq!(server.ends(1), [(NdkOperationTypeInvalidate, STATUS_SUCCESS)]);
    client.qp.read(1, &[client.mr.sge(0..7)], remote, 0).unwrap();
    assert_eq!(client.ends(1), [(NdkOperationTypeRead, STATUS_ACCESS_VIOLATION)]);
}

fn the_peer_invalidates() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    let mapped = Mapped::new(&net, server, 1, true);
    assert_eq!(mapped.post(&server.qp, READ), STATUS_SUCCESS);
    assert_eq!(server.ends(1), [(NdkOperationTypeFastRegister, STATUS_SUCCESS)]);
    let token = mapped.frmr.remote_token();
    server.qp.receive(1, &[]).unwrap();
    client.qp.send_and_invalidate(1, &[], 0, token).unwrap();
    let result = server.results(1)[0];
    assert_eq!(
        (result.Type, result.Status),
        (NdkOperationTypeReceiveAndInvalidate, STATUS_SUCCESS)
    );
    assert_eq!(result.TypeSpecificCompletionOutput, token as usize);
}

fn a_region_is_mapped_once_at_a_time() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let mapped = Mapped::new(&net, side, 0, true);
    assert_eq!(mapped.post(&side.qp, READ), STATUS_SUCCESS);
    assert_eq!(mapped.post(&side.qp, READ), STATUS_SUCCESS);
    assert_eq!(
        side.ends(2),
        [
            (NdkOperationTypeFastRegister, STATUS_SUCCESS),
            (NdkOperationTypeFastRegister, STATUS_INVALID_DEVICE_REQUEST)
        ]
    );
}

fn what_is_not_mapped_is_not_invalidated() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let frmr = side.pd.create_frmr(1, true).unwrap();
    side.qp.invalidate(1, Invalidate::Region(&frmr), 0).unwrap();
    assert_eq!(side.ends(1), [(NdkOperationTypeInvalidate, STATUS_INVALID_DEVICE_REQUEST)]);
}

fn a_post_names_what_can_be_mapped() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let local = Mapped::new(&net, side, 0, false);
    assert_eq!(local.post(&side.qp, READ), STATUS_ACCESS_VIOLATION, "initialised without");
    let far = FastRegister { len: 3 * PAGE_SIZE, ..local.what() };
    let posted = side.qp.fast_register(1, &local.frmr, far, 0);
    assert_eq!(status(posted), STATUS_INVALID_PARAMETER, "more than the pages hold");

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
    assert_eq!(fast_register(elsewhere.as_ptr()), STATUS_ACCESS_VIOLATION, "another domain's");
    assert_eq!(invalidate(std::ptr::null_mut()), STATUS_INVALID_PARAMETER);
    assert_eq!(invalidate(side.cq.as_ptr().cast()), STATUS_INVALID_PARAMETER);
    assert_eq!(invalidate(side.mr.as_ptr().cast()), STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(invalidate(raw.0.cast()), STATUS_INVALID_DEVICE_STATE, "not initialised");
    assert_eq!(invalidate(elsewhere.as_ptr().cast()), STATUS_ACCESS_VIOLATION);
    tests::kit::raw::wait(|then| raw.close(then));
    // None of it harmed the queue pair.
    assert_eq!(local.post(&side.qp, 0), STATUS_SUCCESS);
    assert_eq!(side.ends(1), [(NdkOperationTypeFastRegister, STATUS_SUCCESS)]);
}

fn a_post_needs_a_connection_and_room() {
    let net = Net::new();
    let idle = net.side(0);
    let mapped = Mapped::new(&net, &idle, 0, true);
    assert_eq!(mapped.post(&idle.qp, READ), STATUS_CONNECTION_INVALID);
    let invalidated = idle.qp.invalidate(1, Invalidate::Region(&mapped.frmr), 0);
    assert_eq!(status(invalidated), STATUS_CONNECTION_INVALID);

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

fn page_lists_run_out() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let mapped = Mapped::new(&net, side, 0, true);
    let gate = net.hold(0);
    let mut posted = 0;
    let full = loop {
        match mapped.post(&side.qp, READ) {
            STATUS_SUCCESS => posted += 1,
            status => break status,
        }
    };
    drop(gate);
    assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
    assert!(posted > 1, "a chain of register, invalidate, register fits");
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
    side.qp.flush();
    assert_eq!(
        side.ends(3),
        [
            (NdkOperationTypeRead, STATUS_CANCELLED),
            (NdkOperationTypeFastRegister, STATUS_CANCELLED),
            (NdkOperationTypeInvalidate, STATUS_CANCELLED)
        ]
    );
}
