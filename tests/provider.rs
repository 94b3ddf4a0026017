//! The C contract: what a consumer is promised by the dispatch tables, on two providers joined in
//! memory. Everything goes through the tables.
#![allow(unsafe_code, reason = "looks at the tables themselves")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a table is read through two pointers")]

use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndk_consumer::{Adapter, Arm, Opener, QpConfig, ReadLimits, SrqConfig};
use netadapter_glue::memory::{self, MemoryConfig};
use rocev2::counters::Counter::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::kit::*;

#[test]
fn adapter_info_tells_the_limits_by_every_rule_of_its_size() {
    let net = Net::new();
    let info = net.adapters[0].info().unwrap();
    assert_eq!((info.Version.Major, info.RdmaTechnology), (2, NdkRoCEv2));
    assert_eq!((info.MaxCallerData, info.MaxCalleeData), (56, 148));
    assert!(info.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED != 0);
    assert!(info.MaxTransferLength >= 8 << 20 && info.MaxReceiveQueueDepth >= 512);
    let adapter = net.adapters[0].as_ptr();
    let query = |info: *mut NDK_ADAPTER_INFO, size: &mut u32| {
        // SAFETY: the adapter is open; the buffer is as large as told.
        unsafe { ((*(*adapter).Dispatch.get().read()).NdkQueryAdapterInfo)(adapter, info, size) }
    };
    let mut size = 0;
    assert_eq!((query(std::ptr::null_mut(), &mut size), size), (STATUS_BUFFER_TOO_SMALL, 0x68));
    let mut buffer = NDK_ADAPTER_INFO::default();
    let mut size = 0x60;
    assert_eq!((query(&mut buffer, &mut size), size), (STATUS_BUFFER_TOO_SMALL, 0x68));
    assert_eq!(buffer.MaxCqDepth, 0);
}

#[test]
fn limits_of_creation_are_checked_inline() {
    let net = Net::new();
    let info = net.adapters[0].info().unwrap();
    assert_eq!(status(net.adapters[0].create_cq(info.MaxCqDepth + 1)), STATUS_INVALID_PARAMETER);
    let side = net.side(0);
    let create = |config| status(side.pd.create_qp(&side.cq, &side.cq, config));
    let default = QpConfig::default();
    assert_eq!(
        create(QpConfig { receive_depth: info.MaxReceiveQueueDepth + 1, ..default }),
        STATUS_INVALID_PARAMETER
    );
    assert_eq!(
        create(QpConfig { initiator_sge: info.MaxInitiatorRequestSge + 1, ..default }),
        STATUS_INVALID_PARAMETER
    );
    assert_eq!(
        create(QpConfig { inline_len: info.MaxInlineDataSize + 1, ..default }),
        STATUS_INVALID_PARAMETER
    );
    assert_eq!(create(default), STATUS_SUCCESS);
}

#[test]
fn a_connection_carries_every_operation_both_ways() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"], ["fe80::1", "fe80::2"]] {
        let net = Net::with_addresses(addresses);
        let connection = net.connect();
        for (from, to) in [(0, 1), (1, 0)] {
            let (local, remote) = (&connection.sides[from], &connection.sides[to]);
            local.fill(3);
            remote.fill(5);
            remote.qp.receive(7, &[remote.mr.sge(0..300_000)]).unwrap();
            local.qp.send(1, &[local.mr.sge(10..200_010)], 0).unwrap();
            local.qp.write(2, &[local.mr.sge(5..65_541)], remote.mr.remote(400_000), 0).unwrap();
            local.qp.read(3, &[local.mr.sge(500_000..600_001)], remote.mr.remote(777), 0).unwrap();
            let done: Vec<_> = local
                .results(3)
                .iter()
                .map(|r| (r.Status, r.RequestContext.addr(), r.Type))
                .collect();
            let ok = STATUS_SUCCESS;
            assert_eq!(
                done,
                [
                    (ok, 1, NdkOperationTypeSend),
                    (ok, 2, NdkOperationTypeWrite),
                    (ok, 3, NdkOperationTypeRead)
                ]
            );
            let received = remote.results(1)[0];
            assert_eq!((received.Status, received.BytesTransferred), (ok, 200_000));
            assert_eq!(
                (received.RequestContext.addr(), received.Type),
                (7, NdkOperationTypeReceive)
            );
            assert!(remote.bytes(0, 200_000) == local.bytes(10, 200_000), "SEND");
            assert!(remote.bytes(400_000, 65_536) == local.bytes(5, 65_536), "WRITE");
            assert!(local.bytes(500_000, 100_001) == remote.bytes(777, 100_001), "READ");
        }
    }
}

#[test]
fn both_sides_learn_addresses_limits_and_private_data() {
    let net = Net::new();
    let Connection { connectors: [active, passive], .. } = net.connect();
    let (local, peer) = (active.local_address().unwrap(), active.peer_address().unwrap());
    assert!((49152..=65535).contains(&local.port()));
    assert_eq!((local.ip(), peer), (net.addresses[0], net.at(1, PORT)));
    assert_eq!((passive.local_address().unwrap(), passive.peer_address().unwrap()), (peer, local));
    let (asked, answered) = (passive.connection_data().unwrap(), active.connection_data().unwrap());
    // The smaller of both sides, each way.
    assert_eq!(asked.limits, ReadLimits { inbound: 4, outbound: 4 });
    assert_eq!(answered.limits, ReadLimits { inbound: 4, outbound: 4 });
    assert_eq!((asked.private_data.len(), &asked.private_data[..7]), (56, b"caller\0".as_slice()));
    assert_eq!(&answered.private_data[..7], b"callee\0".as_slice());
}

#[test]
fn nobody_listening_refuses() {
    let net = Net::new();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let connect = |port| {
        status(connector.connect(&side.qp, net.at(0, 0), net.at(1, port), LIMITS, b"").wait())
    };
    assert_eq!(connect(9), STATUS_CONNECTION_REFUSED);
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    listener.pause(true);
    assert_eq!(connect(PORT), STATUS_CONNECTION_REFUSED);
    listener.pause(false);
    // The attempts harmed neither QP nor connector.
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let server = net.side(1);
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    request.wait().unwrap();
    connector.complete_connect().wait().unwrap();
    accept.wait().unwrap();
}

#[test]
fn a_rejection_carries_its_data_in_both_uses() {
    let net = Net::new();
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    assert_eq!(status(passive.reject(&[7; 149])), STATUS_INVALID_BUFFER_SIZE);
    passive.reject(b"no").unwrap();
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    assert_eq!(&connector.connection_data().unwrap().private_data[..3], b"no\0");
    assert_eq!(status(passive.reject(b"")), STATUS_CONNECTION_ABORTED);

    // The active side refuses the terms: the accept ends refused.
    let (client, server) = (net.side(0), net.side(1));
    let connector = net.adapters[0].create_connector().unwrap();
    let request = connector.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    request.wait().unwrap();
    connector.reject(b"").unwrap();
    assert_eq!(status(accept.wait()), STATUS_CONNECTION_REFUSED);
}

#[test]
fn a_host_that_does_not_answer_is_unreachable() {
    let net = Net::new();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let nowhere = "10.0.0.77:7174".parse().unwrap();
    let request = connector.connect(&side.qp, net.at(0, 0), nowhere, LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_HOST_UNREACHABLE);
}

#[test]
fn addresses_and_ports_are_checked() {
    let net = Net::new();
    let side = net.side(0);
    let listener = net.adapters[0].listen(net.at(0, PORT)).unwrap();
    assert_eq!(status(net.adapters[0].listen(net.at(0, PORT))), STATUS_SHARING_VIOLATION);
    assert_eq!(status(net.adapters[0].listen(net.at(1, PORT))), STATUS_INVALID_ADDRESS);
    let connector = net.adapters[0].create_connector().unwrap();
    let connect =
        |local| status(connector.connect(&side.qp, local, net.at(1, PORT), LIMITS, b"").wait());
    assert_eq!(connect(net.at(0, PORT)), STATUS_SHARING_VIOLATION);
    assert_eq!(connect(net.at(1, 0)), STATUS_INVALID_ADDRESS);
    let long = [0; 57];
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, &long);
    assert_eq!(status(request.wait()), STATUS_INVALID_BUFFER_SIZE);
    drop(listener);
    let chosen = net.adapters[0].listen(net.at(0, 0)).unwrap();
    assert!(chosen.local_address().unwrap().port() >= 49152);
    assert_eq!(status(net.adapters[0].listen(net.at(0, PORT))), STATUS_SUCCESS);
}

#[test]
fn a_disconnect_is_seen_once_and_ends_what_is_posted() {
    let net = Net::new();
    let Connection { sides: [client, server], connectors: [active, passive], .. } = net.connect();
    client.qp.receive(1, &[client.mr.sge(0..10)]).unwrap();
    server.qp.receive(2, &[server.mr.sge(0..10)]).unwrap();
    active.disconnect().wait().unwrap();
    assert!(passive.wait_disconnected(PATIENCE));
    assert!(!active.is_disconnected());
    assert_eq!(client.statuses(1), [STATUS_CANCELLED]);
    assert_eq!(status(client.qp.send(3, &[client.mr.sge(0..1)], 0)), STATUS_CONNECTION_INVALID);
    assert_eq!(status(server.qp.send(3, &[server.mr.sge(0..1)], 0)), STATUS_CONNECTION_INVALID);
    // The peer's notice flushes nothing; the own disconnect does.
    let mut none = [NDK_RESULT_EX::EMPTY; 1];
    assert_eq!(server.cq.results_ex(&mut none), 0);
    passive.disconnect().wait().unwrap();
    assert_eq!(server.statuses(1), [STATUS_CANCELLED]);
    assert_eq!(status(passive.disconnect().wait()), STATUS_SUCCESS);
}

#[test]
fn closing_a_connected_connector_disconnects() {
    let net = Net::new();
    let Connection { sides, connectors: [active, passive], .. } = net.connect();
    sides[0].qp.receive(1, &[sides[0].mr.sge(0..10)]).unwrap();
    // The close has ended when this returns, and nobody has done anything at the peer.
    drop(active);
    assert!(passive.wait_disconnected(PATIENCE));
    assert_eq!(sides[0].statuses(1), [STATUS_CANCELLED]);
}

#[test]
fn a_close_mid_connect_ends_the_attempt() {
    let net = Net::new();
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    drop(connector);
    assert_eq!(status(request.wait()), STATUS_CANCELLED);
    let server = net.side(1);
    // The refusal may be on its way still; accepting what is gone ends in an error either way.
    let accepted = status(passive.accept(&server.qp, LIMITS, b"").wait());
    let gone = [STATUS_CONNECTION_ABORTED, STATUS_IO_TIMEOUT, STATUS_CONNECTION_REFUSED];
    assert!(gone.contains(&accepted), "{accepted}");
}

#[test]
fn a_flush_cancels_both_queues_with_one_notification() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    side.qp.receive(1, &[side.mr.sge(0..10)]).unwrap();
    side.qp.receive(2, &[side.mr.sge(0..10)]).unwrap();
    let seen = side.cq.notifications();
    side.cq.arm(Arm::Any);
    side.qp.flush();
    assert!(side.cq.wait_notification(seen, PATIENCE).unwrap());
    let results = side.results(2);
    assert!(results.iter().all(|result| result.Status == STATUS_CANCELLED));
    assert_eq!(
        results.iter().map(|result| result.RequestContext.addr()).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(side.cq.notifications(), seen + 1);
    // A receive that comes later is accepted and cancelled.
    side.qp.receive(3, &[side.mr.sge(0..10)]).unwrap();
    assert_eq!(side.statuses(1), [STATUS_CANCELLED]);
}

#[test]
fn a_solicited_arm_sleeps_through_plain_messages() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    for context in 0..2 {
        server.qp.receive(context, &[server.mr.sge(0..10)]).unwrap();
    }
    let seen = server.cq.notifications();
    server.cq.arm(Arm::Solicited);
    client.qp.send(1, &[client.mr.sge(0..1)], 0).unwrap();
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    assert!(!server.cq.wait_notification(seen, Duration::from_millis(50)).unwrap());
    client.qp.send(2, &[client.mr.sge(0..1)], NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT).unwrap();
    assert!(server.cq.wait_notification(seen, PATIENCE).unwrap());
    assert_eq!(server.statuses(2), [STATUS_SUCCESS; 2]);
}

#[test]
fn queue_limits_are_told_inline_and_harm_nothing() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    for context in 0..64 {
        server.qp.receive(context, &[server.mr.sge(0..10)]).unwrap();
    }
    assert_eq!(status(server.qp.receive(64, &[server.mr.sge(0..10)])), STATUS_NO_MORE_ENTRIES);
    let two = [client.mr.sge(0..1), client.mr.sge(1..2)];
    assert_eq!(status(client.qp.send(1, &two, 0)), STATUS_DATA_OVERRUN);
    client.qp.send(2, &[client.mr.sge(0..1)], NDK_OP_FLAG_SILENT_SUCCESS).unwrap();
    client.qp.send(3, &[], 0).unwrap();
    assert_eq!(client.results(1)[0].RequestContext.addr(), 3);
    assert_eq!(server.statuses(2), [STATUS_SUCCESS; 2]);
    server.qp.receive(65, &[server.mr.sge(0..10)]).unwrap();
}

#[test]
fn refused_memory_fails_the_request_and_the_connection() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    server.qp.receive(1, &[server.mr.sge(0..10)]).unwrap();
    let mut remote = server.mr.remote(0);
    remote.token ^= 1;
    client.qp.write(1, &[client.mr.sge(0..10)], remote, 0).unwrap();
    assert_eq!(client.statuses(1), [STATUS_ACCESS_VIOLATION]);
    assert_eq!(server.statuses(1), [STATUS_CANCELLED]);
    assert!(connection.connectors[0].wait_disconnected(PATIENCE));
    assert!(connection.connectors[1].wait_disconnected(PATIENCE));
}

#[test]
fn a_message_longer_than_its_receive_is_told_to_both() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    server.qp.receive(1, &[server.mr.sge(0..10)]).unwrap();
    client.qp.send(1, &[client.mr.sge(0..11)], 0).unwrap();
    assert_eq!(client.statuses(1), [STATUS_REMOTE_RESOURCES]);
    assert_eq!(server.statuses(1), [STATUS_BUFFER_OVERFLOW]);
}

#[test]
fn a_send_waits_for_a_receive_that_comes_after_accept() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    client.fill(9);
    client.qp.send(1, &[client.mr.sge(0..5000)], 0).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    server.qp.receive(1, &[server.mr.sge(0..5000)]).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    assert!(server.bytes(0, 5000) == client.bytes(0, 5000));
}

#[test]
fn an_overrun_cq_is_dead_and_says_so() {
    let net = Net::new();
    let small = net.adapters[0].create_cq(2).unwrap();
    let side = net.side(0);
    let qp = side.pd.create_qp(&small, &small, QpConfig::default()).unwrap();
    for context in 0..4 {
        qp.receive(context, &[side.mr.sge(0..10)]).unwrap();
    }
    let seen = small.notifications();
    small.arm(Arm::Errors);
    qp.flush();
    let told = small.wait_notification(seen, PATIENCE);
    assert_eq!(status(told), STATUS_BUFFER_OVERFLOW);
    let mut results = [NDK_RESULT_EX::EMPTY; 4];
    assert_eq!(small.results_ex(&mut results), 2);
}

#[test]
fn a_second_use_of_qp_or_connector_is_refused() {
    let net = Net::new();
    let connection = net.connect();
    let other = net.adapters[0].create_connector().unwrap();
    let qp = &connection.sides[0].qp;
    let again = other.connect(qp, net.at(0, 4000), net.at(1, PORT), LIMITS, b"");
    assert_eq!(status(again.wait()), STATUS_CONNECTION_ACTIVE);
    net.adapters[0].listen(net.at(0, 4000)).expect("it has taken no port");
    assert_eq!(
        status(connection.connectors[0].complete_connect().wait()),
        STATUS_CONNECTION_INVALID
    );
    assert_eq!(status(other.disconnect().wait()), STATUS_CONNECTION_INVALID);
    assert_eq!(status(other.local_address()), STATUS_CONNECTION_INVALID);
    drop(connection.listener);
}

#[test]
fn a_retry_on_the_same_connector_forgets_the_refusal() {
    let net = Net::new();
    let (client, server) = (net.side(0), net.side(1));
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let connector = net.adapters[0].create_connector().unwrap();
    for refusal in [b"first", b"other"] {
        let request = connector.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
        listener.next(PATIENCE).unwrap().reject(refusal).unwrap();
        assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
        assert_eq!(&connector.connection_data().unwrap().private_data[..5], refusal);
    }
    let request = connector.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"come");
    request.wait().unwrap();
    connector.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    let data = connector.connection_data().unwrap();
    assert_eq!(data.limits, ReadLimits { inbound: 4, outbound: 4 });
    assert_eq!(&data.private_data[..5], b"come\0");
    assert_eq!(connector.local_address().unwrap(), passive.peer_address().unwrap());
}

#[test]
fn a_qp_that_died_before_the_connection_ends_it() {
    let net = Net::new();
    let (client, server) = (net.side(0), net.side(1));
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    request.wait().unwrap();
    server.qp.receive(1, &[server.mr.sge(0..1)]).unwrap();
    server.qp.flush();
    assert_eq!(server.statuses(1), [STATUS_CANCELLED]);
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    assert!(passive.wait_disconnected(PATIENCE));
    assert!(active.wait_disconnected(PATIENCE));
    assert_eq!(status(server.qp.send(2, &[], 0)), STATUS_CONNECTION_INVALID);
}

#[test]
fn a_flushed_qp_is_not_connected() {
    let net = Net::new();
    let side = net.side(0);
    side.qp.receive(1, &[side.mr.sge(0..1)]).unwrap();
    side.qp.flush();
    assert_eq!(side.statuses(1), [STATUS_CANCELLED]);
    let connector = net.adapters[0].create_connector().unwrap();
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_INVALID_DEVICE_STATE);
}

#[test]
fn an_overrun_ends_the_connections_of_its_qps() {
    let net = Net::new();
    let small = net.adapters[0].create_cq(1).unwrap();
    let (client, server) = (net.side(0), net.side(1));
    let qp = client.pd.create_qp(&small, &client.cq, QpConfig::default()).unwrap();
    let Connected { active, passive, .. } = net.connect_qps(&qp, &server.qp);
    for context in 0..2 {
        qp.receive(context, &[client.mr.sge(0..10)]).unwrap();
        server.qp.send(context, &[], 0).unwrap();
    }
    assert!(active.wait_disconnected(PATIENCE));
    assert!(passive.wait_disconnected(PATIENCE));
    assert_eq!(status(qp.send(2, &[], 0)), STATUS_CONNECTION_INVALID);
}

#[test]
fn a_connection_that_never_was_cannot_be_disconnected() {
    let net = Net::new();
    let side = net.side(0);
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    passive.reject(b"").unwrap();
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    assert_eq!(status(passive.disconnect().wait()), STATUS_CONNECTION_INVALID);
}

#[test]
fn a_provider_full_of_objects_still_flushes_and_serves_what_it_has() {
    let net = Net::new();
    let side = net.side(0);
    let listener = net.adapters[0].listen(net.at(0, PORT)).unwrap();
    let connector = net.adapters[0].create_connector().unwrap();
    let mut domains = Vec::new();
    let full = loop {
        match net.adapters[0].create_pd() {
            Ok(pd) => domains.push(pd),
            Err(error) => break error.status,
        }
    };
    assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, 9), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    side.qp.receive(1, &[side.mr.sge(0..1)]).unwrap();
    side.qp.flush();
    assert_eq!(side.statuses(1), [STATUS_CANCELLED]);
    listener.pause(true);
    drop(domains.pop());
    assert_eq!(status(net.adapters[0].create_pd()), STATUS_SUCCESS);
}

#[test]
fn a_post_that_fails_ends_the_deferral_of_those_before_it() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    let qp = client.qp.as_ptr();
    let invalidate = || {
        // SAFETY: the QP is open; nothing is invalidated.
        unsafe {
            ((*(*qp).Dispatch.get().read()).NdkInvalidate)(
                qp,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                0,
            )
        }
    };
    for context in 0..2 {
        server.qp.receive(context, &[server.mr.sge(0..10)]).unwrap();
        client.qp.send(context, &[], NDK_OP_FLAG_DEFER).unwrap();
        if context == 0 {
            assert_eq!(invalidate(), STATUS_INVALID_PARAMETER);
        } else {
            let long = [client.mr.sge(0..1), client.mr.sge(0..1)];
            assert_eq!(status(client.qp.send(9, &long, 0)), STATUS_DATA_OVERRUN);
        }
        assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    }
}

#[test]
fn no_slot_of_any_table_is_null() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    fn full<T, O>(object: *mut O, dispatch: impl Fn(&O) -> *const T) {
        // SAFETY: the object is open and its table is of plain function pointers.
        let slots = unsafe {
            std::slice::from_raw_parts(
                dispatch(&*object).cast::<usize>(),
                size_of::<T>() / size_of::<usize>(),
            )
        };
        assert!(slots.iter().all(|&slot| slot != 0));
    }
    let mw = side.pd.create_mw().unwrap();
    let srq = SrqConfig { depth: 1, receive_sge: 1, threshold: 0 };
    let srq = side.pd.create_srq(srq).unwrap();
    // SAFETY: each `Dispatch` is read while its object is open.
    unsafe {
        full(mw.as_ptr(), |object| *object.Dispatch.get());
        full(srq.as_ptr(), |object| *object.Dispatch.get());
        full(net.adapters[0].as_ptr(), |object| *object.Dispatch.get());
        full(side.cq.as_ptr(), |object| *object.Dispatch.get());
        full(side.pd.as_ptr(), |object| *object.Dispatch.get());
        full(side.mr.as_ptr(), |object| *object.Dispatch.get());
        full(side.qp.as_ptr(), |object| *object.Dispatch.get());
        full(connection.connectors[0].as_ptr(), |object| *object.Dispatch.get());
        full(connection.listener.as_ptr(), |object| *object.Dispatch.get());
    }
}

/// Goal: what a provider and each of its connections count can be read from outside, and is what went over
/// the wire.
#[test]
fn counters_of_adapter_and_connections_are_read_from_outside() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    client.qp.write(1, &[client.mr.sge(0..100_000)], server.mr.remote(0), 0).unwrap();
    assert_eq!(client.results(1)[0].Status, STATUS_SUCCESS);

    let [ours, theirs] = net.providers.each_ref().map(|provider| {
        let mut connections = provider.connections();
        assert_eq!(connections.len(), 1);
        connections.remove(0)
    });
    assert_eq!((ours.local, ours.remote), (theirs.remote, theirs.local));
    assert_eq!(theirs.local, net.at(1, PORT));
    // A probe that a slow machine sends is answered behind the last result.
    let deadline = Instant::now() + PATIENCE;
    let here = loop {
        let [here, there] = [&ours, &theirs].map(|connection| connection.counters.snapshot());
        let arrived = (here[SentPkts], here[SentBytes]) == (there[RcvdPkts], there[RcvdBytes])
            && (there[SentPkts], there[SentBytes]) == (here[RcvdPkts], here[RcvdBytes]);
        if arrived {
            break here;
        }
        assert!(Instant::now() < deadline, "{here:?} {there:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(here[SentPkts] >= 98 && here[SentBytes] > 100_000, "{here:?}");

    let counted = net.providers.each_ref().map(|provider| provider.counters());
    let [active, passive] = counted;
    assert_eq!((active.connects, active.accepts, active.active), (1, 0, 1));
    assert_eq!((passive.connects, passive.accepts, passive.active), (0, 1, 1));
    assert_eq!((active.edge, passive.edge), Default::default());
    for (counter, value) in here.iter() {
        // Messages of connection management, and the packets of the handshake, are the adapter's alone.
        assert!(active.transport[counter] >= value, "{counter:?}");
    }
    let names: std::collections::BTreeMap<_, _> = active.iter().collect();
    assert_eq!(names.len(), active.iter().count());
    assert_eq!((names["ndk_connects"], names["sent_pkts"]), (1, active.transport[SentPkts]));

    // A key that is not known ends the connection, and each side says why.
    let mut remote = server.mr.remote(0);
    remote.token ^= 0x100;
    client.qp.write(2, &[client.mr.sge(0..8)], remote, 0).unwrap();
    assert!(connection.connectors[0].wait_disconnected(PATIENCE), "no disconnect event");
    let [here, there] = [&ours, &theirs].map(|connection| connection.counters.snapshot());
    assert_eq!((here[ReqRemoteAccessErrors], there[RespRemoteAccessErrors]), (1, 1));
    let active = net.providers[0].counters();
    assert_eq!((active.errors, active.active), (1, 0));
    assert!(net.providers[0].connections().is_empty());
}

/// Goal: what the edge gives up is counted where the adapter's other numbers are.
#[test]
fn what_an_edge_gives_up_is_counted() {
    let (edge, other) = memory::pair(MemoryConfig::default());
    drop(other);
    let config = ProviderConfig::new(vec!["10.0.0.1".parse().unwrap()]);
    let provider = Arc::new(Provider::start(Box::new(edge), config).unwrap());
    let adapter = Adapter::open(Arc::clone(&provider) as Arc<dyn Opener>).unwrap();
    let side = Side::new(&adapter);
    let connector = adapter.create_connector().unwrap();
    let (local, remote) = ("10.0.0.1:0".parse().unwrap(), "10.0.0.2:9".parse().unwrap());
    let connect = connector.connect(&side.qp, local, remote, LIMITS, b"");
    assert_eq!(provider.counters().edge.receive, 0);
    // Nobody answers who has that address.
    assert_eq!(status(connect.wait()), STATUS_HOST_UNREACHABLE);
    let counted = provider.counters();
    assert!(counted.edge.transmit > 0);
    assert_eq!((counted.failures, counted.connects), (1, 0));
    assert_eq!(provider.connections().len(), 0);
}
