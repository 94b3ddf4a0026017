use super::*;
use ndk_consumer::Mr;
use tests::kit::raw::{Object, request, start};

crate::tests! {
    a_registration_grants_what_its_flags_say
    a_region_of_no_bytes_is_a_region
    a_region_may_be_deregistered_under_its_requests
    each_kind_of_region_has_its_own_calls
}

impl Pair {
    /// A region of the server with these rights.
    fn region(&self, len: usize, flags: u32) -> Arc<Mr> {
        self.server.pd.register(Buffer::new(len), flags).unwrap()
    }
}

fn a_registration_grants_what_its_flags_say() {
    let (read, write) = (NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let (ok, no) = (STATUS_SUCCESS, STATUS_ACCESS_VIOLATION);
    for (flags, written, was_read, received) in [
        (0, no, no, no),
        (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, no, no, ok),
        (read, no, ok, no),
        (write, ok, no, ok),
        (read | write | NDK_MR_FLAG_RDMA_READ_SINK, ok, ok, ok),
    ] {
        let pair = Pair::new();
        let region = pair.region(100, flags);
        assert_eq!(pair.write(region.remote(0), 100), written, "{flags:#x}");
        let pair = Pair::new();
        let region = pair.region(100, flags);
        assert_eq!(pair.read(region.remote(0), 100), was_read, "{flags:#x}");
        let pair = Pair::new();
        let region = pair.region(100, flags);
        pair.server.qp.receive(1, &[region.sge(0..100)]).unwrap();
        pair.client.qp.send(1, &[pair.client.mr.sge(0..100)], 0).unwrap();
        assert_eq!(pair.server.statuses(1), [received], "{flags:#x}");
        // Reading by our own requests is always granted.
        let pair = Pair::new();
        let region = pair.region(100, flags);
        pair.client.qp.receive(1, &[pair.client.mr.sge(0..100)]).unwrap();
        pair.server.qp.send(1, &[region.sge(0..100)], 0).unwrap();
        assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    }
}

fn a_region_of_no_bytes_is_a_region() {
    let pair = Pair::new();
    let region = pair.region(0, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    assert_ne!(region.remote_token(), 0);
    assert_eq!(pair.write(region.remote(0), 0), STATUS_SUCCESS);
    assert_eq!(pair.write(region.remote(0), 1), STATUS_ACCESS_VIOLATION);
}

fn a_region_may_be_deregistered_under_its_requests() {
    let pair = Pair::new();
    let region = pair.region(100, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let token = region.remote_token();
    pair.server.qp.receive(1, &[region.sge(0..100)]).unwrap();
    let raw = Object(region.as_ptr());
    let deregister = || start(|then| raw.deregister(then)).recv_timeout(PATIENCE).unwrap();
    assert_eq!(deregister(), STATUS_SUCCESS);
    assert_eq!(deregister(), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(raw.token(), 0, "nothing has this token any more");
    pair.client.qp.send(1, &[pair.client.mr.sge(0..100)], 0).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_ACCESS_VIOLATION]);
    assert!(!pair.client.statuses(1)[0].is_success());
    let again = pair.region(100, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    assert_ne!(again.remote_token(), token);
}

fn each_kind_of_region_has_its_own_calls() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(1, true).unwrap());
    let raw = Object(frmr.as_ptr());
    let mut mdl = ndk_consumer::Mdl::new(mapped.lam.buffer().as_ptr(), 100);
    let registered = start(|then| raw.register(&mut mdl, 100, then)).recv_timeout(PATIENCE);
    assert_eq!(registered, Ok(STATUS_INVALID_DEVICE_REQUEST));
    let ended = start(|then| raw.deregister(then)).recv_timeout(PATIENCE);
    assert_eq!(ended, Ok(STATUS_INVALID_DEVICE_REQUEST));
    pair.fast_register(&frmr, &mapped);
    let plain = Object(pair.server.mr.as_ptr());
    let ended = request(|done, context| {
        tests::call!(plain, NdkInitializeFastRegisterMr, 1, TRUE, done, context)
    });
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(STATUS_INVALID_DEVICE_REQUEST));
}
