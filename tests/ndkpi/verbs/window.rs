use super::*;
use ndk_consumer::{Invalidate, Mr, Mw};
use std::ops::Range;
use tests::kit::raw::{Object, start};

crate::tests! {
    a_window_gives_its_rights_to_its_part_until_it_is_invalidated
    bounds_and_rights_of_a_window_hold
    a_window_gives_what_its_region_does_not_give_to_peers
    what_cannot_be_bound_is_told_inline_or_ends_the_connection
    a_window_on_a_fast_registered_region_ends_with_the_mapping
    a_window_ends_with_its_region
    a_region_is_closed_after_the_window_that_is_bound_to_it
}

impl Pair {
    /// Binds a window to a part of the server's region, and waits until it is done.
    fn bind(&self, mr: &Mr, mw: &Mw, range: Range<usize>, flags: u32) -> NTSTATUS {
        self.server.qp.bind(1, mr, mw, range, flags).unwrap();
        let [(kind, status)] = self.server.ends(1)[..] else { panic!("one completion") };
        assert_eq!(kind, NdkOperationTypeBind);
        status
    }

    fn bound(&self, range: Range<usize>, flags: u32) -> (Arc<Mw>, Remote) {
        let mw = self.server.pd.create_mw().unwrap();
        let remote = mw.remote(self.server.mr.remote(range.start).address);
        assert_eq!(self.bind(&self.server.mr, &mw, range, flags), STATUS_SUCCESS);
        (mw, remote)
    }
}

fn a_window_gives_its_rights_to_its_part_until_it_is_invalidated() {
    let pair = Pair::new();
    pair.client.fill(3);
    let mw = pair.server.pd.create_mw().unwrap();
    let token = mw.remote_token();
    assert_ne!(token, 0);
    for round in 0..3 {
        let at = 5000 * (round + 1);
        assert_eq!(pair.bind(&pair.server.mr, &mw, at..at + 300, REMOTE), STATUS_SUCCESS);
        assert_eq!(mw.remote_token(), token);
        let remote = mw.remote(pair.server.mr.remote(at).address);
        assert_eq!(pair.write(remote, 300), STATUS_SUCCESS);
        assert_eq!(pair.server.bytes(at, 300), pair.client.bytes(0, 300));
        assert_eq!(pair.read(remote.at(299), 1), STATUS_SUCCESS);
        if round == 1 {
            // The peer may end it as well.
            pair.server.qp.receive(2, &[]).unwrap();
            pair.client.qp.send_and_invalidate(2, &[], 0, token).unwrap();
            assert_eq!(pair.client.statuses(1), [STATUS_SUCCESS]);
            let [got] = pair.server.results(1)[..] else { panic!("one completion") };
            assert_eq!(got.Type, NdkOperationTypeReceiveAndInvalidate);
            assert_eq!(got.TypeSpecificCompletionOutput, token as usize);
        } else {
            pair.server.qp.invalidate(2, Invalidate::Window(&mw), 0).unwrap();
            assert_eq!(pair.server.ends(1), [(NdkOperationTypeInvalidate, STATUS_SUCCESS)]);
        }
    }
    assert_eq!(
        pair.write(mw.remote(pair.server.mr.remote(15_000).address), 1),
        STATUS_ACCESS_VIOLATION
    );
}

fn bounds_and_rights_of_a_window_hold() {
    let (read, write) = (NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
    for (flags, shift, len, is_write) in [
        (REMOTE, -1_i64, 10, true),
        (REMOTE, 0, 101, true),
        (read, 0, 1, true),
        (write, 0, 1, false),
    ] {
        let pair = Pair::new();
        let (_mw, remote) = pair.bound(4096..4196, flags);
        let remote = Remote { address: remote.address.wrapping_add_signed(shift), ..remote };
        let ended = if is_write { pair.write(remote, len) } else { pair.read(remote, len) };
        assert_eq!(ended, STATUS_ACCESS_VIOLATION);
    }
}

fn a_window_gives_what_its_region_does_not_give_to_peers() {
    let pair = Pair::new();
    let local = pair.server.pd.register(Buffer::new(100), NDK_MR_FLAG_ALLOW_LOCAL_WRITE).unwrap();
    let mw = pair.server.pd.create_mw().unwrap();
    assert_eq!(pair.bind(&local, &mw, 0..100, REMOTE), STATUS_SUCCESS);
    assert_eq!(pair.write(mw.remote(local.remote(0).address), 100), STATUS_SUCCESS);
    // But nobody writes through it what may not be written at all.
    let fixed = pair.server.pd.register(Buffer::new(100), NDK_MR_FLAG_ALLOW_REMOTE_READ).unwrap();
    let other = pair.server.pd.create_mw().unwrap();
    let refused = pair.server.qp.bind(1, &fixed, &other, 0..100, NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
    assert_eq!(status(refused), STATUS_ACCESS_VIOLATION);
    let readable = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    assert_eq!(pair.bind(&fixed, &other, 0..100, readable), STATUS_SUCCESS);
    assert_eq!(pair.read(other.remote(fixed.remote(0).address), 100), STATUS_SUCCESS);
}

fn what_cannot_be_bound_is_told_inline_or_ends_the_connection() {
    let pair = Pair::new();
    let (server, qp) = (&pair.server, &pair.server.qp);
    let mw = server.pd.create_mw().unwrap();
    let foreign = pair.net.adapters[1].create_pd().unwrap();
    let window = foreign.create_mw().unwrap();
    assert_eq!(status(qp.bind(1, &server.mr, &window, 0..1, REMOTE)), STATUS_ACCESS_VIOLATION);
    let region = foreign.register(Buffer::new(10), NDK_MR_FLAG_ALLOW_REMOTE_WRITE).unwrap();
    assert_eq!(status(qp.bind(1, &region, &mw, 0..1, REMOTE)), STATUS_ACCESS_VIOLATION);
    let strange = pair.client.pd.create_mw().unwrap();
    assert_eq!(status(qp.bind(1, &server.mr, &strange, 0..1, REMOTE)), STATUS_INVALID_PARAMETER);
    assert_eq!(pair.bind(&server.mr, &mw, 0..10, REMOTE), STATUS_SUCCESS);
    // Bound already.
    assert_eq!(pair.bind(&server.mr, &mw, 0..10, REMOTE), STATUS_ACCESS_VIOLATION);

    for range in [0..0, (1 << 20) - 1..(1 << 20) + 1] {
        let pair = Pair::new();
        let mw = pair.server.pd.create_mw().unwrap();
        assert_eq!(pair.bind(&pair.server.mr, &mw, range, REMOTE), STATUS_ACCESS_VIOLATION);
    }
    let pair = Pair::new();
    let mw = pair.server.pd.create_mw().unwrap();
    pair.server.qp.invalidate(1, Invalidate::Window(&mw), 0).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_INVALID_DEVICE_REQUEST]);
}

#[allow(unsafe_code, reason = "the wrapper binds to registered regions only")]
fn a_window_on_a_fast_registered_region_ends_with_the_mapping() {
    for remap in [false, true] {
        let pair = Pair::new();
        let (mapped, frmr) = (pair.map(50, 5000), pair.server.pd.create_frmr(4, false).unwrap());
        let (qp, mw) = (&pair.server.qp, pair.server.pd.create_mw().unwrap());
        let bind = || {
            let qp = qp.as_ptr();
            let base = std::ptr::without_provenance_mut(mapped.base() as usize);
            // SAFETY: the QP is open.
            let table = unsafe { (*qp).Dispatch.get() };
            // SAFETY: nobody replaces the table.
            let table = unsafe { table.read() };
            // SAFETY: a table lives for ever.
            let bind = unsafe { (*table).NdkBind };
            let (context, len) = (std::ptr::null_mut(), mapped.len);
            // SAFETY: the objects are open, and nobody else posts.
            unsafe { bind(qp, context, frmr.as_ptr(), mw.as_ptr(), base, len, REMOTE) }
        };
        assert_eq!(bind(), STATUS_ACCESS_VIOLATION, "nothing that may be written");
        let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE | NDK_OP_FLAG_DEFER;
        qp.fast_register(1, &frmr, mapped.whole(), flags).unwrap();
        assert_eq!(bind(), STATUS_SUCCESS);
        assert_eq!(pair.server.statuses(2), [STATUS_SUCCESS; 2]);
        pair.client.fill(3);
        let remote = mw.remote(mapped.base());
        assert_eq!(pair.write(remote, 5000), STATUS_SUCCESS);
        assert_eq!(mapped.bytes(0, 5000), pair.client.bytes(0, 5000));
        qp.invalidate(2, Invalidate::Region(&frmr), 0).unwrap();
        assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
        if remap {
            // The same addresses again, but another mapping.
            qp.fast_register(1, &frmr, mapped.whole(), NDK_OP_FLAG_ALLOW_LOCAL_WRITE).unwrap();
            assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
        }
        assert_eq!(pair.write(remote, 1), STATUS_ACCESS_VIOLATION);
    }
}

fn a_window_ends_with_its_region() {
    let pair = Pair::new();
    let region = pair.server.pd.register(Buffer::new(100), NDK_MR_FLAG_ALLOW_REMOTE_WRITE).unwrap();
    let mw = pair.server.pd.create_mw().unwrap();
    assert_eq!(pair.bind(&region, &mw, 0..100, REMOTE), STATUS_SUCCESS);
    let remote = mw.remote(region.remote(0).address);
    assert_eq!(pair.write(remote, 100), STATUS_SUCCESS);
    // Deregistered, then closed; the window has to go for the close to end.
    let dropped = std::thread::spawn(move || drop(region));
    drop(mw);
    dropped.join().unwrap();
    assert_eq!(pair.write(remote, 100), STATUS_ACCESS_VIOLATION);
}

fn a_region_is_closed_after_the_window_that_is_bound_to_it() {
    let pair = Pair::new();
    let deregister = |mr: Object<NDK_MR>| start(|then| mr.deregister(then)).recv_timeout(PATIENCE);
    let register = || {
        let flags = NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        // Closed through the tables below, behind the wrapper's back.
        let region = pair.server.pd.register(Buffer::new(100), flags).unwrap();
        let raw = Object(region.as_ptr());
        (std::mem::ManuallyDrop::new(region), raw)
    };
    let (region, raw) = register();
    let mw = pair.server.pd.create_mw().unwrap();
    assert_eq!(pair.bind(&region, &mw, 0..100, REMOTE), STATUS_SUCCESS);
    let remote = mw.remote(region.remote(0).address);
    assert_eq!(deregister(raw), Ok(STATUS_SUCCESS));
    let closed = start(|then| raw.close(then));
    // What the server answers after the close has been looked at.
    pair.client.qp.receive(1, &[]).unwrap();
    pair.server.qp.send(1, &[], 0).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(pair.client.statuses(1), [STATUS_SUCCESS]);
    assert!(closed.try_recv().is_err(), "its successor is open");
    drop(mw);
    closed.recv_timeout(PATIENCE).unwrap();
    // One that was invalidated holds nothing.
    let (region, raw) = register();
    let mw = pair.server.pd.create_mw().unwrap();
    assert_eq!(pair.bind(&region, &mw, 0..100, REMOTE), STATUS_SUCCESS);
    pair.server.qp.invalidate(1, Invalidate::Window(&mw), 0).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(deregister(raw), Ok(STATUS_SUCCESS));
    start(|then| raw.close(then)).recv_timeout(PATIENCE).unwrap();
    assert_eq!(pair.write(remote, 1), STATUS_ACCESS_VIOLATION);
}
