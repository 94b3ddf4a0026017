use super::*;
use ndk_consumer::{InlineData, Invalidate};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tests::kit::PORT;
use tests::kit::raw::Object;

crate::tests! {
    inline_data_is_copied_at_the_post
    inline_slots_serve_a_full_queue_again_and_again
    inline_data_is_limited_by_its_sum
    a_list_that_changes_during_the_call_does_no_harm
    silence_is_kept_for_success_of_every_kind
    a_flush_ends_every_kind_of_request_and_gives_back_what_it_held
}

const DEFER: u32 = NDK_OP_FLAG_DEFER;
const INLINE: u32 = 64;

fn inline_pair() -> Pair {
    Pair::with(QpConfig { initiator_depth: 8, inline_len: INLINE, ..QpConfig::default() })
}

fn inline_data_is_copied_at_the_post() {
    let pair = inline_pair();
    let (client, server) = (&pair.client, &pair.server);
    let mut data = *b"inline data of three pieces";
    server.qp.receive(1, &[server.mr.sge(0..100)]).unwrap();
    // More pieces than the queue takes elements; and nothing leaves before it has changed.
    let pieces = [&data[..7], &data[7..9], &[], &data[9..]].map(InlineData::from);
    client.qp.send_inline(1, &pieces, DEFER).unwrap();
    client.qp.write_inline(2, &[data[..].into()], server.mr.remote(1000), DEFER).unwrap();
    data.fill(0);
    client.qp.send(3, &[], NDK_OP_FLAG_SILENT_SUCCESS).unwrap();
    server.qp.receive(3, &[]).unwrap();
    let ended = [NdkOperationTypeSend, NdkOperationTypeWrite];
    assert_eq!(client.ends(2), ended.map(|kind| (kind, STATUS_SUCCESS)));
    assert_eq!(server.results(2)[0].BytesTransferred, 27);
    assert_eq!(server.bytes(0, 27), b"inline data of three pieces");
    assert_eq!(server.bytes(1000, 27), b"inline data of three pieces");
}

fn inline_slots_serve_a_full_queue_again_and_again() {
    let pair = inline_pair();
    let (client, server) = (&pair.client, &pair.server);
    let message = |number: usize| [number as u8; INLINE as usize];
    let mut next = 0;
    for _ in 0..20 {
        let first = next;
        // As many as the queue takes, and among them some that are not inline.
        while next < first + 8 {
            let flags = if next < first + 7 { DEFER } else { 0 };
            let remote = server.mr.remote(next * 64);
            if next % 3 == 0 {
                client.mr.buffer().write(0, &message(next));
                client.qp.write(next, &[client.mr.sge(0..64)], remote, flags).unwrap();
                client.mr.buffer().write(0, &message(next));
            } else {
                client.qp.write_inline(next, &[message(next)[..].into()], remote, flags).unwrap();
            }
            next += 1;
        }
        let full = client.qp.write_inline(0, &[[9][..].into()], server.mr.remote(0), 0);
        // Those before may have ended already.
        let ended = 8 + usize::from(full.is_ok());
        assert!(full.is_ok() || status(full) == STATUS_NO_MORE_ENTRIES);
        assert_eq!(client.statuses(ended), vec![STATUS_SUCCESS; ended]);
        for number in (first..next).filter(|number| number % 3 != 0) {
            assert_eq!(server.bytes(number * 64 + 1, 63), message(number)[1..]);
        }
    }
}

/// A consumer that changes its list while the provider reads it breaks a promise: each post is refused or taken as it was
/// read, and the connection goes on.
fn a_list_that_changes_during_the_call_does_no_harm() {
    const LENGTHS: [u32; 3] = [1, INLINE, 1 << 20];
    let pair = inline_pair();
    let (client, server) = (&pair.client, &pair.server);
    let mut data = [7_u8; INLINE as usize];
    let sge = NDK_SGE::from_virtual(data.as_mut_ptr().cast(), 1, 0);
    // Only ever touched as atomics here.
    let list = Box::into_raw(Box::new([sge; 2]));
    let lengths = [0, 1].map(|at| {
        let element = list.cast::<NDK_SGE>().wrapping_add(at);
        let length = element.wrapping_byte_add(std::mem::offset_of!(NDK_SGE, Length));
        // SAFETY: a field of an element that outlives the threads.
        unsafe { AtomicU32::from_ptr(length.cast()) }
    });
    let over = AtomicBool::new(false);
    let remote = server.mr.remote(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                lengths[round % 2].store(LENGTHS[round % LENGTHS.len()], Ordering::Relaxed);
            }
        });
        let flags = NDK_OP_FLAG_INLINE | NDK_OP_FLAG_SILENT_SUCCESS;
        for _ in 0..20_000 {
            let status = tests::call!(
                Object(client.qp.as_ptr()),
                NdkWrite,
                std::ptr::null_mut(),
                list.cast_const().cast(),
                2,
                remote.address,
                remote.token,
                flags,
            );
            let expected = [STATUS_SUCCESS, STATUS_BUFFER_OVERFLOW, STATUS_NO_MORE_ENTRIES];
            assert!(expected.contains(&status), "{status:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    // SAFETY: nobody uses it any more.
    drop(unsafe { Box::from_raw(list) });
    while client.qp.write(9, &[client.mr.sge(0..64)], remote, 0).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(client.ends(1), [(NdkOperationTypeWrite, STATUS_SUCCESS)]);
}

fn inline_data_is_limited_by_its_sum() {
    let pair = inline_pair();
    let (client, server) = (&pair.client, &pair.server);
    let info = pair.net.adapters[0].info().unwrap();
    assert!(info.MaxInlineDataSize >= INLINE);
    let long = [7; INLINE as usize];
    let refused = client.qp.send_inline(1, &[long[..].into(), [1][..].into()], 0);
    assert_eq!(status(refused), STATUS_BUFFER_OVERFLOW);
    server.qp.receive(1, &[server.mr.sge(0..100)]).unwrap();
    client.qp.send_inline(1, &[long[..].into()], 0).unwrap();
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(server.results(1)[0].BytesTransferred, INLINE);
    // A QP that was made without takes none, but for nothing at all.
    let plain = Pair::new();
    let refused = plain.client.qp.send_inline(1, &[[1][..].into()], 0);
    assert_eq!(status(refused), STATUS_BUFFER_OVERFLOW);
    plain.server.qp.receive(1, &[]).unwrap();
    plain.client.qp.send_inline(1, &[], 0).unwrap();
    assert_eq!(plain.client.statuses(1), [STATUS_SUCCESS]);
}

fn silence_is_kept_for_success_of_every_kind() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(4, true).unwrap());
    let (client, server, mw) = (&pair.client, &pair.server, pair.server.pd.create_mw().unwrap());
    let silent = NDK_OP_FLAG_SILENT_SUCCESS;
    // More rounds than the queue is deep: the slots of silent requests come back as well.
    for _ in 0..40 {
        server.qp.fast_register(1, &frmr, mapped.whole(), REMOTE | silent).unwrap();
        server.qp.invalidate(2, Invalidate::Region(&frmr), silent).unwrap();
        server.qp.bind(3, &server.mr, &mw, 0..10, REMOTE | silent).unwrap();
        server.qp.invalidate(4, Invalidate::Window(&mw), silent).unwrap();
        client.qp.receive(5, &[]).unwrap();
        server.qp.send(5, &[], NDK_OP_FLAG_READ_FENCE).unwrap();
        let [only] = server.results(1)[..] else { panic!("one completion") };
        assert_eq!((only.RequestContext.addr(), only.Status), (5, STATUS_SUCCESS));
        assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    }
    // A failure speaks.
    server.qp.invalidate(6, Invalidate::Window(&mw), silent).unwrap();
    assert_eq!(server.statuses(1), [STATUS_INVALID_DEVICE_REQUEST]);
}

fn a_flush_ends_every_kind_of_request_and_gives_back_what_it_held() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(4, true).unwrap());
    let (server, mw) = (&pair.server, pair.server.pd.create_mw().unwrap());
    let qp = &server.qp;
    for _ in 0..4 {
        qp.fast_register(1, &frmr, mapped.whole(), REMOTE | DEFER).unwrap();
    }
    qp.bind(2, &server.mr, &mw, 0..10, REMOTE | DEFER).unwrap();
    qp.invalidate(3, Invalidate::Window(&mw), DEFER).unwrap();
    let sink = [server.mr.sge(0..10)];
    qp.read(4, &sink, pair.client.mr.remote(0), DEFER).unwrap();
    qp.flush();
    let (registered, cancelled) = (NdkOperationTypeFastRegister, STATUS_CANCELLED);
    let others = [NdkOperationTypeBind, NdkOperationTypeInvalidate, NdkOperationTypeRead];
    let all = [registered; 4].into_iter().chain(others).map(|kind| (kind, cancelled));
    assert_eq!(server.ends(7), Vec::from_iter(all));
    assert_eq!(status(qp.invalidate(5, Invalidate::Window(&mw), 0)), STATUS_CONNECTION_INVALID);
    // All lists are free for another connection.
    let client = pair.net.side(0);
    let qp = server.pd.create_qp(&server.cq, &server.cq, QpConfig::default()).unwrap();
    let _connected = pair.net.connect_qps_at(PORT + 1, &client.qp, &qp);
    for _ in 0..4 {
        qp.fast_register(1, &frmr, mapped.whole(), REMOTE | DEFER).unwrap();
        qp.invalidate(2, Invalidate::Region(&frmr), DEFER).unwrap();
    }
    client.qp.receive(3, &[]).unwrap();
    qp.send(3, &[], 0).unwrap();
    assert_eq!(server.statuses(9), [STATUS_SUCCESS; 9]);
}
