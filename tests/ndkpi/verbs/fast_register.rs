use super::*;
use ndk_consumer::Invalidate;

crate::tests! {
    a_peer_reaches_exactly_what_is_registered_while_it_is
    a_byte_outside_is_out_of_reach
    rights_are_those_of_the_request
    the_low_bits_of_the_base_may_stand_for_the_offset
    the_largest_and_the_smallest_region
    chains_are_queued_at_once_as_far_as_the_lists_reach
    a_peer_invalidates_with_its_message
    a_region_that_is_still_valid_is_not_registered_again
    the_numbers_of_a_request_are_checked_inline_and_harm_nothing
    a_region_is_initialized_once_and_within_the_limit
    our_own_requests_use_the_region_and_a_read_may_end_it
    sends_and_receives_go_through_the_region_in_queue_order
    pages_that_were_released_are_out_of_reach
    a_region_is_closed_in_every_state
    the_privileged_token_is_for_our_own_requests_only
    an_address_of_no_mapping_fails_the_request
}

const DEFER: u32 = NDK_OP_FLAG_DEFER;

fn a_peer_reaches_exactly_what_is_registered_while_it_is() {
    for (skip, len) in [(0, 3 * PAGE_SIZE), (0x123, 2 * PAGE_SIZE), (4095, 2), (0, 1)] {
        let pair = Pair::new();
        let (mapped, frmr) = (pair.map(skip, len), pair.server.pd.create_frmr(16, true).unwrap());
        let token = frmr.remote_token();
        assert_ne!(token, 0);
        assert_eq!(token, frmr.local_token());
        pair.fast_register(&frmr, &mapped);
        assert_eq!(frmr.remote_token(), token, "a token is for life");
        pair.client.fill(3);
        assert_eq!(pair.write(frmr.remote(mapped.base()), len), STATUS_SUCCESS);
        assert_eq!(mapped.bytes(0, len), pair.client.bytes(0, len));
        let last = frmr.remote(mapped.base() + len as u64 - 1);
        assert_eq!(pair.read(last, 1), STATUS_SUCCESS);
        assert_eq!(pair.client.bytes(1000, 1), mapped.bytes(len - 1, 1));
        pair.server.qp.invalidate(4, Invalidate::Region(&frmr), 0).unwrap();
        assert_eq!(pair.server.ends(1), [(NdkOperationTypeInvalidate, STATUS_SUCCESS)]);
        pair.client.mr.buffer().write(0, &[0xaa]);
        assert_eq!(pair.write(frmr.remote(mapped.base()), 1), STATUS_ACCESS_VIOLATION);
        assert_eq!(mapped.bytes(0, 1), [0]);
    }
}

fn a_byte_outside_is_out_of_reach() {
    for (before, after) in [(1, 0), (0, 1)] {
        let pair = Pair::new();
        let (mapped, frmr) = (pair.map(8, 100), pair.server.pd.create_frmr(16, true).unwrap());
        pair.fast_register(&frmr, &mapped);
        let len = 100 + before + after;
        assert_eq!(
            pair.write(frmr.remote(mapped.base() - before as u64), len),
            STATUS_ACCESS_VIOLATION
        );
    }
}

fn rights_are_those_of_the_request() {
    for (flags, write, read) in [
        (NDK_OP_FLAG_ALLOW_REMOTE_READ, STATUS_ACCESS_VIOLATION, STATUS_SUCCESS),
        (NDK_OP_FLAG_ALLOW_REMOTE_WRITE, STATUS_SUCCESS, STATUS_ACCESS_VIOLATION),
        (NDK_OP_FLAG_ALLOW_LOCAL_WRITE, STATUS_ACCESS_VIOLATION, STATUS_ACCESS_VIOLATION),
        (0, STATUS_ACCESS_VIOLATION, STATUS_ACCESS_VIOLATION),
    ] {
        for (is_write, expected) in [(true, write), (false, read)] {
            let pair = Pair::new();
            let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(1, true).unwrap());
            // The flag for sinks is taken, though none needs it.
            let flags = flags | NDK_OP_FLAG_RDMA_READ_SINK;
            pair.server.qp.fast_register(1, &frmr, mapped.whole(), flags).unwrap();
            assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
            let remote = frmr.remote(mapped.base());
            let ended = if is_write { pair.write(remote, 100) } else { pair.read(remote, 100) };
            assert_eq!(ended, expected, "{flags:#x}");
        }
    }
}

fn the_low_bits_of_the_base_may_stand_for_the_offset() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0x321, 5000), pair.server.pd.create_frmr(16, true).unwrap());
    let what = FastRegister { fbo: 0, ..mapped.whole() };
    pair.server.qp.fast_register(1, &frmr, what, REMOTE).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    pair.client.fill(7);
    assert_eq!(pair.write(frmr.remote(mapped.base()), 5000), STATUS_SUCCESS);
    assert_eq!(mapped.bytes(0, 5000), pair.client.bytes(0, 5000));
    // From address 0 on too, where the offset is 0.
    let (mapped, zero) = (pair.map(0, 100), pair.server.pd.create_frmr(16, true).unwrap());
    let what = FastRegister { base: 0, ..mapped.whole() };
    pair.server.qp.fast_register(1, &zero, what, REMOTE).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(pair.write(zero.remote(0), 100), STATUS_SUCCESS);
    assert_eq!(mapped.bytes(0, 100), pair.client.bytes(0, 100));
}

fn the_largest_and_the_smallest_region() {
    let pair = Pair::new();
    let pages = pair.net.adapters[1].info().unwrap().FRMRPageCount;
    assert!(pages >= 257, "a MiB that begins anywhere in a page");
    let (mapped, frmr) =
        (pair.map(0, pages as usize * PAGE_SIZE), pair.server.pd.create_frmr(pages, true).unwrap());
    // Up to the last byte of the address space.
    let what = FastRegister { base: 0_u64.wrapping_sub(mapped.len as u64), ..mapped.whole() };
    pair.server.qp.fast_register(1, &frmr, what, REMOTE).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    pair.client.fill(9);
    let len = 300_000;
    assert_eq!(pair.write(frmr.remote(0_u64.wrapping_sub(len as u64)), len), STATUS_SUCCESS);
    assert_eq!(mapped.bytes(mapped.len - len, len), pair.client.bytes(0, len));

    let empty = pair.server.pd.create_frmr(0, true).unwrap();
    let nothing = FastRegister { pages: &[], fbo: 0, len: 0, base: BASE };
    pair.server.qp.fast_register(2, &empty, nothing, REMOTE).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(pair.write(empty.remote(BASE), 0), STATUS_SUCCESS);
    assert_eq!(pair.write(empty.remote(BASE), 1), STATUS_ACCESS_VIOLATION);
}

fn chains_are_queued_at_once_as_far_as_the_lists_reach() {
    let pair = Pair::with(QpConfig { initiator_depth: 256, ..QpConfig::default() });
    let frmr = pair.server.pd.create_frmr(4, true).unwrap();
    let buffers: Vec<Mapped> = (1..=4).map(|len| pair.map(len, len * 1000)).collect();
    let server = &pair.server;
    let queue = |mapped: &Mapped, flags| {
        server.qp.fast_register(1, &frmr, mapped.whole(), REMOTE | flags)?;
        server.qp.invalidate(2, Invalidate::Region(&frmr), flags)
    };
    for _ in 0..3 {
        // The region's own list, and the 64 that all share. The failure lets the others go.
        let gate = pair.net.hold(1);
        for mapped in buffers.iter().cycle().take(61) {
            queue(mapped, DEFER | NDK_OP_FLAG_SILENT_SUCCESS).unwrap();
        }
        buffers.iter().for_each(|mapped| queue(mapped, DEFER).unwrap());
        assert_eq!(status(queue(&buffers[0], 0)), STATUS_INSUFFICIENT_RESOURCES);
        drop(gate);
        let (registered, invalidated) = (NdkOperationTypeFastRegister, NdkOperationTypeInvalidate);
        let both = [(registered, STATUS_SUCCESS), (invalidated, STATUS_SUCCESS)];
        assert_eq!(server.ends(8), [both; 4].concat());
    }
    // The last of a chain stays, and only that.
    for (mapped, last) in [(&buffers[0], false), (&buffers[3], true)] {
        server.qp.fast_register(1, &frmr, mapped.whole(), REMOTE | DEFER).unwrap();
        if !last {
            server.qp.invalidate(2, Invalidate::Region(&frmr), DEFER).unwrap();
        }
    }
    server.qp.send(3, &[], 0).unwrap();
    pair.client.qp.receive(3, &[]).unwrap();
    assert_eq!(server.statuses(4), [STATUS_SUCCESS; 4]);
    assert_eq!(pair.client.statuses(1), [STATUS_SUCCESS]);
    pair.client.fill(3);
    assert_eq!(pair.write(frmr.remote(buffers[3].base()), 4000), STATUS_SUCCESS);
    assert_eq!(buffers[3].bytes(0, 4000), pair.client.bytes(0, 4000));
    assert_eq!(buffers[0].bytes(0, 1000), vec![0; 1000]);
}

fn a_peer_invalidates_with_its_message() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(4, true).unwrap());
    for round in 0..3 {
        pair.fast_register(&frmr, &mapped);
        assert_eq!(pair.write(frmr.remote(mapped.base()), 100), STATUS_SUCCESS);
        pair.server.qp.receive(round, &[pair.server.mr.sge(0..10)]).unwrap();
        let data = [pair.client.mr.sge(0..10)];
        pair.client.qp.send_and_invalidate(round, &data, 0, frmr.remote_token()).unwrap();
        assert_eq!(pair.client.ends(1), [(NdkOperationTypeSend, STATUS_SUCCESS)]);
        let [got] = pair.server.results(1)[..] else { panic!("one completion") };
        assert_eq!(got.Type, NdkOperationTypeReceiveAndInvalidate);
        assert_eq!((got.Status, got.BytesTransferred), (STATUS_SUCCESS, 10));
        assert_eq!(got.TypeSpecificCompletionOutput, frmr.remote_token() as usize);
    }
    // What is invalid already cannot be invalidated, and the QP ends with the attempt.
    pair.server.qp.invalidate(7, Invalidate::Region(&frmr), NDK_OP_FLAG_SILENT_SUCCESS).unwrap();
    let ended = (NdkOperationTypeInvalidate, STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(pair.server.ends(1), [ended]);
}

fn a_region_that_is_still_valid_is_not_registered_again() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(4, true).unwrap());
    pair.fast_register(&frmr, &mapped);
    let server = &pair.server;
    server.qp.receive(1, &[]).unwrap();
    server.qp.fast_register(2, &frmr, mapped.whole(), REMOTE | DEFER).unwrap();
    server.qp.fast_register(3, &frmr, mapped.whole(), REMOTE).unwrap();
    let mut ended: Vec<_> =
        server.results(3).iter().map(|r| (r.RequestContext.addr(), r.Status)).collect();
    ended.sort_by_key(|&(context, _)| context);
    assert_eq!(
        ended,
        [(1, STATUS_CANCELLED), (2, STATUS_INVALID_DEVICE_REQUEST), (3, STATUS_CANCELLED)]
    );
}

fn the_numbers_of_a_request_are_checked_inline_and_harm_nothing() {
    let pair = Pair::new();
    let (mapped, frmr) =
        (pair.map(0x10, 2 * PAGE_SIZE), pair.server.pd.create_frmr(3, true).unwrap());
    let server = &pair.server;
    let whole = mapped.whole();
    let refused = |frmr: &Frmr, what, flags| status(server.qp.fast_register(1, frmr, what, flags));
    let crooked: Vec<_> = mapped
        .pages
        .iter()
        .map(|page| NDK_LOGICAL_ADDRESS { QuadPart: page.QuadPart + 8 })
        .collect();
    let four = [mapped.pages[0]; 4];
    for (what, why) in [
        (FastRegister { fbo: 0x18, ..whole }, "an offset that is not the base's"),
        (FastRegister { len: 3 * PAGE_SIZE - 0xf, ..whole }, "a byte more than the pages hold"),
        (FastRegister { len: usize::MAX, ..whole }, "more than there is"),
        (FastRegister { pages: &crooked, ..whole }, "addresses of no page"),
        (FastRegister { pages: &four, ..whole }, "more pages than initialized"),
        (FastRegister { pages: &[], ..whole }, "no pages"),
        (FastRegister { base: 0_u64.wrapping_sub(PAGE) + 0x10, ..whole }, "addresses that wrap"),
    ] {
        // More often than there are lists.
        for _ in 0..70 {
            assert_eq!(refused(&frmr, what, REMOTE), STATUS_INVALID_PARAMETER, "{why}");
        }
    }
    let local = server.pd.create_frmr(3, false).unwrap();
    for right in [NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE] {
        assert_eq!(refused(&local, whole, right), STATUS_ACCESS_VIOLATION);
    }
    assert_eq!(refused(&local, whole, NDK_OP_FLAG_ALLOW_LOCAL_WRITE), STATUS_SUCCESS);
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    let foreign = pair.net.adapters[1].create_pd().unwrap().create_frmr(3, true).unwrap();
    assert_eq!(refused(&foreign, whole, REMOTE), STATUS_ACCESS_VIOLATION);
    // Another provider's: nothing that this one knows.
    let strange = pair.client.pd.create_frmr(3, true).unwrap();
    assert_eq!(refused(&strange, whole, REMOTE), STATUS_INVALID_PARAMETER);
    let plain = Invalidate::Registered(&server.mr);
    assert_eq!(status(server.qp.invalidate(1, plain, 0)), STATUS_INVALID_DEVICE_REQUEST);
    let idle = server.pd.create_qp(&server.cq, &server.cq, QpConfig::default()).unwrap();
    let early = idle.fast_register(1, &frmr, whole, REMOTE);
    assert_eq!(status(early), STATUS_CONNECTION_INVALID);
    let early = idle.invalidate(1, Invalidate::Region(&frmr), 0);
    assert_eq!(status(early), STATUS_CONNECTION_INVALID);
    // And still it works, with every list at its place.
    for _ in 0..5 {
        pair.fast_register(&frmr, &mapped);
        server.qp.invalidate(1, Invalidate::Region(&frmr), 0).unwrap();
        assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    }
}

fn a_region_is_initialized_once_and_within_the_limit() {
    let net = Net::new();
    let side = net.side(0);
    let most = net.adapters[0].info().unwrap().FRMRPageCount;
    assert_eq!(status(side.pd.create_frmr(most + 1, true)), STATUS_IMPLEMENTATION_LIMIT);
    let frmr = side.pd.create_frmr(most, true).unwrap();
    let token = frmr.local_token();
    assert_eq!(status(frmr.initialize(1, true).wait()), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(frmr.local_token(), token);
    assert_ne!(token, side.pd.create_frmr(1, true).unwrap().local_token());
}

fn our_own_requests_use_the_region_and_a_read_may_end_it() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(100, 9000), pair.server.pd.create_frmr(4, false).unwrap());
    let (server, client) = (&pair.server, &pair.client);
    client.fill(11);
    for round in 0..2 {
        let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE | DEFER | NDK_OP_FLAG_SILENT_SUCCESS;
        server.qp.fast_register(1, &frmr, mapped.whole(), flags).unwrap();
        let sink = [frmr.sge(mapped.base(), 9000)];
        let remote = client.mr.remote(round * 50);
        let flags = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
        server.qp.read(2, &sink, remote, flags).unwrap();
        assert_eq!(server.ends(1), [(NdkOperationTypeRead, STATUS_SUCCESS)]);
        assert_eq!(mapped.bytes(0, 9000), client.bytes(round * 50, 9000));
    }
    // It is invalid now.
    client.qp.receive(1, &[client.mr.sge(0..100)]).unwrap();
    server.qp.send(3, &[frmr.sge(mapped.base(), 10)], 0).unwrap();
    assert_eq!(server.statuses(1), [STATUS_ACCESS_VIOLATION]);
}

fn sends_and_receives_go_through_the_region_in_queue_order() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(7, 9000), pair.server.pd.create_frmr(4, false).unwrap());
    let (server, client) = (&pair.server, &pair.client);
    let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
    server.qp.fast_register(1, &frmr, mapped.whole(), flags).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    server.qp.receive(2, &[frmr.sge(mapped.base(), 9000)]).unwrap();
    client.fill(13);
    client.qp.send(2, &[client.mr.sge(0..9000)], 0).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(mapped.bytes(0, 9000), client.bytes(0, 9000));
    // A send, and the end of its region behind it: the data leaves first.
    client.qp.receive(3, &[client.mr.sge(100_000..109_000)]).unwrap();
    server.qp.send(3, &[frmr.sge(mapped.base(), 9000)], DEFER).unwrap();
    server.qp.invalidate(4, Invalidate::Region(&frmr), 0).unwrap();
    let ended = [NdkOperationTypeSend, NdkOperationTypeInvalidate];
    assert_eq!(server.ends(2), ended.map(|kind| (kind, STATUS_SUCCESS)));
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(client.bytes(100_000, 9000), client.bytes(0, 9000));
}

fn pages_that_were_released_are_out_of_reach() {
    let pair = Pair::new();
    let (mapped, frmr) = (pair.map(0, 100), pair.server.pd.create_frmr(4, true).unwrap());
    pair.fast_register(&frmr, &mapped);
    let base = mapped.base();
    drop(mapped);
    // A round trip, so that the server's core has looked.
    pair.client.qp.receive(1, &[]).unwrap();
    pair.server.qp.send(1, &[], 0).unwrap();
    assert_eq!(pair.server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(pair.client.statuses(1), [STATUS_SUCCESS]);
    assert!(!pair.write(frmr.remote(base), 100).is_success());
}

fn a_region_is_closed_in_every_state() {
    // Mapped: its key ends.
    let pair = Pair::new();
    let mapped = pair.map(0, 100);
    let frmr = pair.server.pd.create_frmr(4, true).unwrap();
    pair.fast_register(&frmr, &mapped);
    let remote = frmr.remote(mapped.base());
    drop(frmr);
    assert_eq!(pair.write(remote, 1), STATUS_ACCESS_VIOLATION);
    // Queued: the request ends with the key.
    let pair = Pair::new();
    let mapped = pair.map(0, 100);
    let server = &pair.server;
    let frmr = server.pd.create_frmr(4, true).unwrap();
    server.qp.fast_register(1, &frmr, mapped.whole(), REMOTE | DEFER).unwrap();
    drop(frmr);
    // A deferred request may start before the next post. It then fails the connection first, which
    // refuses that post.
    match status(server.qp.send(2, &[], 0)) {
        STATUS_SUCCESS => {
            assert_eq!(server.statuses(2), [STATUS_INVALID_DEVICE_REQUEST, STATUS_CANCELLED]);
        }
        refused => {
            assert_eq!(refused, STATUS_CONNECTION_INVALID);
            assert_eq!(server.statuses(1), [STATUS_INVALID_DEVICE_REQUEST]);
        }
    }
    // Not initialized to anything but empty, and never used.
    drop(server.pd.create_frmr(0, false).unwrap());
}

fn the_privileged_token_is_for_our_own_requests_only() {
    let pair = Pair::new();
    let mapped = pair.map(0x800, 9000);
    let (server, client) = (&pair.server, &pair.client);
    let token = server.pd.privileged_token();
    assert_ne!(token, 0);
    assert_eq!(token, server.pd.privileged_token());
    assert_ne!(token, pair.net.adapters[1].create_pd().unwrap().privileged_token());
    client.fill(17);
    server
        .qp
        .receive(1, &[mapped.sge(0, 5000, token), mapped.sge(5000, 4000, token)][..1])
        .unwrap();
    client.qp.send(1, &[client.mr.sge(0..5000)], 0).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(mapped.bytes(0, 5000), client.bytes(0, 5000));
    server.qp.read(2, &[mapped.sge(5000, 4000, token)], client.mr.remote(5000), 0).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(mapped.bytes(0, 9000), client.bytes(0, 9000));
    // It cannot be invalidated by the peer, nor used.
    let address = mapped.pages[0].QuadPart.cast_unsigned() + 0x800;
    assert_eq!(pair.write(Remote { address, token }, 1), STATUS_ACCESS_VIOLATION);
}

fn an_address_of_no_mapping_fails_the_request() {
    for shift in [-1, 1] {
        let pair = Pair::new();
        let mapped = pair.map(0x800, 100);
        let token = pair.server.pd.privileged_token();
        pair.client.qp.receive(1, &[pair.client.mr.sge(0..200)]).unwrap();
        let address = mapped.pages[0].QuadPart.cast_unsigned() + 0x800;
        let outside = Sge::at(address.wrapping_add_signed(shift), 100, token);
        pair.server.qp.send(1, &[outside], 0).unwrap();
        assert_eq!(pair.server.statuses(1), [STATUS_ACCESS_VIOLATION]);
    }
}
