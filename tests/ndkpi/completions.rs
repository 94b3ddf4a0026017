//! How requests end: every operation with every status that it may end with.

use crate::hostile;
use driver::abi::*;
use ndk_consumer::{NdkError, Remote, Sge};
use rocev2::wire::NakCode;
use tests::call;
use tests::kit::raw::Object;
use tests::kit::{Connection, Fate, Net, Side};

crate::tests! {
    own_memory_is_checked
    remote_memory_is_checked
    a_flush_cancels_everything
    a_silent_peer_times_out
    a_refusal_is_the_peers_resources
    nonsense_from_the_peer_is_an_internal_error
    a_receive_that_is_too_short_overflows
    a_receive_fails_with_its_own_memory
    a_token_that_nobody_has_is_an_internal_error
    a_receive_fails_with_a_message_that_never_ends
}

/// An operation of the initiator queue.
#[derive(Clone, Copy, Debug)]
enum Op {
    Send,
    Read,
    Write,
}

const OPS: [Op; 3] = [Op::Send, Op::Read, Op::Write];

impl Op {
    const fn kind(self) -> NDK_OPERATION_TYPE {
        match self {
            Self::Send => NdkOperationTypeSend,
            Self::Read => NdkOperationTypeRead,
            Self::Write => NdkOperationTypeWrite,
        }
    }

    fn post(self, side: &Side, sgl: &[Sge<'_>], remote: Remote) -> Result<(), NdkError> {
        match self {
            Self::Send => side.qp.send(1, sgl, 0),
            Self::Read => side.qp.read(1, sgl, remote, 0),
            Self::Write => side.qp.write(1, sgl, remote, 0),
        }
    }
}

/// Connects; the server has a receive for what is sent.
fn connected(net: &Net) -> Connection {
    let connection = net.connect();
    let server = &connection.sides[1];
    server.qp.receive(7, &[server.mr.sge(0..10_000)]).unwrap();
    connection
}

/// An operation of 100 bytes ends with `status`, after `spoil` has done its work.
fn ends(net: &Net, op: Op, status: NTSTATUS, spoil: impl FnOnce(&Connection)) {
    let connection = connected(net);
    spoil(&connection);
    let [client, server] = &connection.sides;
    op.post(client, &[client.mr.sge(0..100)], server.mr.remote(0)).unwrap();
    assert_eq!(client.ends(1), [(op.kind(), status)]);
}

/// An element with a token that nobody has.
fn foreign() -> NDK_SGE {
    NDK_SGE::from_virtual(std::ptr::without_provenance_mut(0x1000), 100, 0xdead_beef)
}

fn own_memory_is_checked() {
    for op in OPS {
        let connection = connected(&Net::new());
        let [client, server] = &connection.sides;
        let (qp, none, sge) = (Object(client.qp.as_ptr()), std::ptr::null_mut(), foreign());
        let remote = server.mr.remote(0);
        let (address, token) = (remote.address, remote.token);
        let posted = match op {
            Op::Send => call!(qp, NdkSend, none, &raw const sge, 1, 0),
            Op::Read => call!(qp, NdkRead, none, &raw const sge, 1, address, token, 0),
            Op::Write => call!(qp, NdkWrite, none, &raw const sge, 1, address, token, 0),
        };
        assert_eq!(posted, STATUS_SUCCESS);
        assert_eq!(client.ends(1), [(op.kind(), STATUS_ACCESS_VIOLATION)]);
    }
}

fn remote_memory_is_checked() {
    for op in [Op::Read, Op::Write] {
        let connection = connected(&Net::new());
        let [client, server] = &connection.sides;
        // One byte beyond the region.
        let remote = server.mr.remote(server.mr.buffer().len() - 99);
        op.post(client, &[client.mr.sge(0..100)], remote).unwrap();
        assert_eq!(client.ends(1), [(op.kind(), STATUS_ACCESS_VIOLATION)]);
        assert_eq!(server.ends(1), [(NdkOperationTypeReceive, STATUS_CANCELLED)]);
    }
}

fn a_flush_cancels_everything() {
    for op in OPS {
        let net = Net::new();
        let connection = connected(&net);
        let [client, server] = &connection.sides;
        // No answer comes before the flush.
        net.wires[1].cut();
        client.qp.receive(1, &[]).unwrap();
        op.post(client, &[client.mr.sge(0..100)], server.mr.remote(0)).unwrap();
        client.qp.flush();
        let mut ends = client.ends(2);
        ends.sort_by_key(|(kind, _)| kind.0);
        assert_eq!(
            ends,
            [(NdkOperationTypeReceive, STATUS_CANCELLED), (op.kind(), STATUS_CANCELLED)]
        );
    }
}

fn a_silent_peer_times_out() {
    for op in OPS {
        let net = Net::impatient();
        ends(&net, op, STATUS_IO_TIMEOUT, |_| net.wires[1].cut());
    }
}

fn a_refusal_is_the_peers_resources() {
    for op in OPS {
        for code in [NakCode::InvalidRequest, NakCode::RemoteOperational] {
            let net = Net::new();
            ends(&net, op, STATUS_REMOTE_RESOURCES, |_| net.wires[1].set(hostile::refuse(code)));
        }
    }
}

fn nonsense_from_the_peer_is_an_internal_error() {
    for op in OPS {
        let net = Net::new();
        let nonsense = hostile::answer_nonsense();
        ends(&net, op, STATUS_INTERNAL_ERROR, |_| net.wires[1].set(nonsense));
    }
}

fn a_receive_that_is_too_short_overflows() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    server.qp.receive(1, &[server.mr.sge(0..99)]).unwrap();
    client.qp.send(1, &[client.mr.sge(0..100)], 0).unwrap();
    assert_eq!(client.ends(1), [(NdkOperationTypeSend, STATUS_REMOTE_RESOURCES)]);
    assert_eq!(server.ends(1), [(NdkOperationTypeReceive, STATUS_BUFFER_OVERFLOW)]);
}

fn a_receive_fails_with_its_own_memory() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    let (qp, sge) = (Object(server.qp.as_ptr()), foreign());
    let posted = call!(qp, NdkReceive, std::ptr::null_mut(), &raw const sge, 1);
    assert_eq!(posted, STATUS_SUCCESS);
    client.qp.send(1, &[client.mr.sge(0..100)], 0).unwrap();
    assert_eq!(server.ends(1), [(NdkOperationTypeReceive, STATUS_ACCESS_VIOLATION)]);
    assert_eq!(client.ends(1), [(NdkOperationTypeSend, STATUS_REMOTE_RESOURCES)]);
}

fn a_token_that_nobody_has_is_an_internal_error() {
    let net = Net::new();
    let connection = connected(&net);
    let [client, server] = &connection.sides;
    client.qp.send_and_invalidate(1, &[client.mr.sge(0..100)], 0, 0xdead_beef).unwrap();
    assert_eq!(server.ends(1), [(NdkOperationTypeReceive, STATUS_INTERNAL_ERROR)]);
    assert_eq!(client.ends(1), [(NdkOperationTypeSend, STATUS_REMOTE_RESOURCES)]);
}

fn a_receive_fails_with_a_message_that_never_ends() {
    let net = Net::new();
    let connection = connected(&net);
    let [client, server] = &connection.sides;
    net.wires[0].set(hostile::begin_anew());
    client.qp.send(1, &[client.mr.sge(0..5000)], 0).unwrap();
    assert_eq!(server.ends(1), [(NdkOperationTypeReceive, STATUS_REMOTE_RESOURCES)]);
    assert_eq!(client.ends(1), [(NdkOperationTypeSend, STATUS_REMOTE_RESOURCES)]);
    net.wires[0].set(|_| Fate::Pass);
}
