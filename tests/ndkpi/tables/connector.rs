use super::*;
use ndk_consumer::{Connector, Listener, ReadLimits, Request};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use tests::kit::raw::start;

crate::tests! {
    where_no_host_is_the_network_is_unreachable
    a_wildcard_has_its_port_on_every_address
    the_passive_side_sees_what_was_agreed
    limits_beyond_the_adapters_are_capped
    a_qp_of_another_instance_accepts
    a_listener_listens_once
    a_port_is_in_use_until_the_connections_of_its_listener_are_closed
    addresses_and_data_obey_the_length_rules
    private_data_is_bounded_and_not_null
}

/// A connect that has reached the second host.
struct Asked {
    client: Side,
    active: Connector,
    request: Request,
    passive: Connector,
    _listener: Arc<Listener>,
}

fn ask(net: &Net) -> Asked {
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let client = net.side(0);
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    Asked { client, active, request, passive, _listener: listener }
}

fn where_no_host_is_the_network_is_unreachable() {
    let net = Net::new();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let connect = |remote: &str| {
        let remote = remote.parse().unwrap();
        status(connector.connect(&side.qp, net.at(0, 0), remote, LIMITS, b"").wait())
    };
    for remote in ["224.0.0.1:1", "0.0.0.0:1", "255.255.255.255:1", "127.0.0.1:1", "[fd00::1]:1"] {
        assert_eq!(connect(remote), STATUS_NETWORK_UNREACHABLE, "{remote}");
    }
    assert_eq!(connect("10.0.0.2:0"), STATUS_CONNECTION_REFUSED);
    assert_eq!(connect("10.0.0.99:1"), STATUS_HOST_UNREACHABLE);
}

fn a_wildcard_has_its_port_on_every_address() {
    let net = Net::new();
    let any = SocketAddr::new([0, 0, 0, 0].into(), PORT);
    let listener = net.adapters[1].listen(any).unwrap();
    for local in [any, net.at(1, PORT)] {
        assert_eq!(status(net.adapters[1].listen(local)), STATUS_SHARING_VIOLATION);
    }
    let (client, server) = (net.side(0), net.side(1));
    let connector = net.adapters[1].create_connector().unwrap();
    let request = connector.connect(&server.qp, net.at(1, PORT), net.at(0, 1), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_SHARING_VIOLATION);
    // What comes in has the address that was asked for.
    let active = net.adapters[0].create_connector().unwrap();
    let _request = active.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    assert_eq!(passive.local_address().unwrap(), net.at(1, PORT));
    drop((passive, listener));
    drop(net.adapters[1].listen(net.at(1, PORT)).unwrap());
}

fn the_passive_side_sees_what_was_agreed() {
    let net = Net::new();
    let asked = ask(&net);
    // The initiator's limits, from here.
    let offered = asked.passive.connection_data().unwrap().limits;
    assert_eq!(offered, ReadLimits { inbound: 4, outbound: 8 });
    let server = net.side(1);
    let lower = ReadLimits { inbound: 1, outbound: 400 };
    let accept = asked.passive.accept(&server.qp, lower, b"");
    asked.request.wait().unwrap();
    asked.active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    let agreed = asked.passive.connection_data().unwrap().limits;
    assert_eq!(agreed, ReadLimits { inbound: 1, outbound: 8 });
    let mirrored = asked.active.connection_data().unwrap().limits;
    assert_eq!(mirrored, ReadLimits { inbound: 8, outbound: 1 });
    drop(asked.client);
}

fn limits_beyond_the_adapters_are_capped() {
    let net = Net::new();
    let info = net.adapters[0].info().unwrap();
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let side = net.side(0);
    let active = net.adapters[0].create_connector().unwrap();
    let huge = ReadLimits { inbound: u32::MAX, outbound: 256 };
    let _request = active.connect(&side.qp, net.at(0, 0), net.at(1, PORT), huge, b"");
    let seen = listener.next(PATIENCE).unwrap().connection_data().unwrap().limits;
    assert_eq!(
        seen,
        ReadLimits { inbound: info.MaxOutboundReadLimit, outbound: info.MaxInboundReadLimit }
    );
}

/// As Microsoft's sample has it: the connector is of the listener's adapter instance, the QP of the
/// socket's.
fn a_qp_of_another_instance_accepts() {
    let net = Net::new();
    let (listening, socket) = (net.open(1), net.open(1));
    let listener = listening.listen(net.at(1, PORT)).unwrap();
    let (client, server) = (net.side(0), Side::new(&socket));
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    server.qp.receive(1, &[server.mr.sge(0..10)]).unwrap();
    client.qp.send(1, &[client.mr.sge(0..10)], 0).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    // The socket's objects end first, then its instance, then the rest.
    drop((active, passive, server, socket));
    drop((listener, listening));
    assert_eq!(status(net.adapters[1].listen(net.at(1, PORT))), STATUS_SUCCESS);
}

fn a_listener_listens_once() {
    let net = Net::new();
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let raw = Object(listener.as_ptr());
    let again = wait(|then| raw.listen(net.at(1, PORT + 1), then));
    assert_eq!(again, STATUS_INVALID_DEVICE_STATE);
    let idle = Object(net.adapters[1].as_ptr());
    let idle = wait(|then| idle.create_listener(Box::new(|_| ()), then)).unwrap();
    let mut len = 28;
    assert_eq!(
        call!(idle.0, NdkGetLocalAddress, null_mut(), &mut len),
        STATUS_INVALID_DEVICE_STATE
    );
    // Paused before it listens.
    idle.pause(true);
    assert_eq!(wait(|then| idle.listen(net.at(1, 99), then)), STATUS_SUCCESS);
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let request = connector.connect(&side.qp, net.at(0, 0), net.at(1, 99), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    wait(|then| idle.close(then));
}

fn a_port_is_in_use_until_the_connections_of_its_listener_are_closed() {
    let net = Net::new();
    let (client, server) = (net.side(0), net.side(1));
    let (sender, incoming) = std::sync::mpsc::channel();
    let adapter = Object(net.adapters[1].as_ptr());
    let event = Box::new(move |connector| sender.send(connector).unwrap());
    let listener = wait(|then| adapter.create_listener(event, then)).unwrap();
    assert_eq!(wait(|then| listener.listen(net.at(1, PORT), then)), STATUS_SUCCESS);
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&client.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = incoming.recv_timeout(PATIENCE).unwrap();
    let qp = Object(server.qp.as_ptr());
    let accept = start(|then| passive.accept(qp, Box::new(|| ()), then));
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    assert_eq!(accept.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    // It refuses at once, and keeps its port for the connection.
    let closed = start(|then| listener.close(then));
    turn(&net.adapters[1]);
    let again = || status(net.adapters[1].listen(net.at(1, PORT)));
    assert_eq!(again(), STATUS_SHARING_VIOLATION);
    let other = net.adapters[0].create_connector().unwrap();
    let side = net.side(0);
    let refused = other.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    assert_eq!(status(refused.wait()), STATUS_CONNECTION_REFUSED);
    assert!(closed.try_recv().is_err());
    wait(|then| passive.close(then));
    closed.recv_timeout(PATIENCE).unwrap();
    assert_eq!(again(), STATUS_SUCCESS);
}

fn addresses_and_data_obey_the_length_rules() {
    let net = Net::new();
    let connection = net.connect();
    let [active, _passive] = &connection.connectors;
    let raw = active.as_ptr();
    for room in [0, 15] {
        let (mut address, mut len) = (SOCKADDR_INET::UNSPECIFIED, room);
        let pointer = (&raw mut address).cast();
        let status = call!(raw, NdkGetPeerAddress, pointer, &mut len);
        assert_eq!((status, len), (STATUS_BUFFER_TOO_SMALL, 16));
        assert!(address.is_empty());
        let mut len = room;
        let status = call!(raw, NdkGetLocalAddress, pointer, &mut len);
        assert_eq!((status, len), (STATUS_BUFFER_TOO_SMALL, 16));
        let mut len = room;
        let listener = connection.listener.as_ptr();
        let status = call!(listener, NdkGetLocalAddress, pointer, &mut len);
        assert_eq!((status, len), (STATUS_BUFFER_TOO_SMALL, 16));
    }
    let mut data = [9_u8; 148];
    let pointer = data.as_mut_ptr().cast();
    let mut len = 7;
    let status = call!(raw, NdkGetConnectionData, null_mut(), null_mut(), pointer, &mut len);
    assert_eq!(
        (status, len, &data[..8]),
        (STATUS_BUFFER_TOO_SMALL, 148, b"callee\0\x09".as_slice())
    );
    let status = call!(raw, NdkGetConnectionData, null_mut(), null_mut(), pointer, &mut len);
    assert_eq!((status, len, data[147]), (STATUS_SUCCESS, 148, 0));
    let mut len = 0;
    let status = call!(raw, NdkGetConnectionData, null_mut(), null_mut(), null_mut(), &mut len);
    assert_eq!((status, len), (STATUS_SUCCESS, 148));
    let status = call!(raw, NdkGetConnectionData, null_mut(), null_mut(), null_mut(), &mut len);
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    let status = call!(raw, NdkGetConnectionData, null_mut(), null_mut(), pointer, null_mut());
    assert_eq!(status, STATUS_INVALID_PARAMETER);
}

fn private_data_is_bounded_and_not_null() {
    let net = Net::new();
    let asked = ask(&net);
    let server = net.side(1);
    assert_eq!(
        status(asked.passive.accept(&server.qp, LIMITS, &[0; 149]).wait()),
        STATUS_INVALID_BUFFER_SIZE
    );
    assert_eq!(call!(asked.passive.as_ptr(), NdkReject, null(), 1), STATUS_INVALID_PARAMETER);
    asked.passive.reject(&[7; 148]).unwrap();
    assert_eq!(status(asked.request.wait()), STATUS_CONNECTION_REFUSED);
    assert_eq!(asked.active.connection_data().unwrap().private_data, [7; 148]);
    drop(asked.client);
}
