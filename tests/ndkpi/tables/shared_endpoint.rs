use super::*;
use ndk_consumer::Connector;
use tests::kit::raw::start;

crate::tests! {
    several_connections_leave_from_one_port
    an_endpoint_is_in_use_until_the_last_connection_is_closed
    a_refused_attempt_lets_the_endpoint_go
    only_an_own_address_can_be_shared
    ephemeral_ports_come_to_an_end
}

/// Connects from a shared endpoint to a port of the second host.
fn connect(
    net: &Net,
    endpoint: &Arc<ndk_consumer::SharedEndpoint>,
    port: u16,
) -> (Side, [Connector; 2]) {
    let (client, server) = (net.side(0), net.side(1));
    let listener = net.adapters[1].listen(net.at(1, port)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect_shared(&client.qp, endpoint, net.at(1, port), LIMITS, b"shared");
    let passive = listener.next(PATIENCE).unwrap();
    assert_eq!(&passive.connection_data().unwrap().private_data[..7], b"shared\0");
    let accept = passive.accept(&server.qp, LIMITS, b"");
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    server.qp.receive(1, &[server.mr.sge(0..10)]).unwrap();
    client.qp.send(2, &[client.mr.sge(0..10)], 0).unwrap();
    assert_eq!(server.statuses(1), [STATUS_SUCCESS]);
    (client, [active, passive])
}

fn several_connections_leave_from_one_port() {
    let net = Net::new();
    let local = net.at(0, 4000);
    let endpoint = net.adapters[0].share(local).unwrap();
    assert_eq!(endpoint.local_address().unwrap(), local);
    let (_first, [first, first_peer]) = connect(&net, &endpoint, PORT);
    let (_second, [second, second_peer]) = connect(&net, &endpoint, PORT + 1);
    for connector in [&first, &second] {
        assert_eq!(connector.local_address().unwrap(), local);
    }
    for peer in [&first_peer, &second_peer] {
        assert_eq!(peer.peer_address().unwrap(), local);
    }
    // The same four again.
    let side = net.side(0);
    let third = net.adapters[0].create_connector().unwrap();
    let again = |port| {
        status(third.connect_shared(&side.qp, &endpoint, net.at(1, port), LIMITS, b"").wait())
    };
    assert_eq!(again(PORT), STATUS_ADDRESS_ALREADY_EXISTS);
    assert_eq!(again(9), STATUS_CONNECTION_REFUSED);
    drop((first, first_peer));
    // Its listener has gone with it.
    assert_eq!(again(PORT), STATUS_CONNECTION_REFUSED);
}

fn an_endpoint_is_in_use_until_the_last_connection_is_closed() {
    let net = Net::new();
    let local = net.at(0, 4000);
    let taken = || {
        let side = net.side(0);
        let connector = net.adapters[0].create_connector().unwrap();
        let connect = connector.connect(&side.qp, local, net.at(1, PORT), LIMITS, b"").wait();
        let any = std::net::SocketAddr::new([0, 0, 0, 0].into(), local.port());
        [
            status(net.adapters[0].share(local)),
            status(net.adapters[0].listen(local)),
            status(net.adapters[0].listen(any)),
            status(connect),
        ]
    };
    let adapter = Object(net.adapters[0].as_ptr());
    let endpoint = wait(|then| adapter.share(local, then)).unwrap();
    assert_eq!(taken(), [STATUS_SHARING_VIOLATION; 4]);
    let (client, server) = (net.side(0), net.side(1));
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let active = wait(|then| adapter.create_connector(then)).unwrap();
    let (qp, remote) = (Object(client.qp.as_ptr()), net.at(1, PORT));
    let request = start(|then| active.connect_shared(qp, endpoint, remote, then));
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    assert_eq!(request.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    let left = Box::new(|| ());
    assert_eq!(wait(|then| active.complete_connect(left, then)), STATUS_SUCCESS);
    accept.wait().unwrap();
    // Its close waits for the connection, and so does the port.
    let closed = start(|then| endpoint.close(then));
    turn(&net.adapters[0]);
    assert!(closed.try_recv().is_err());
    assert_eq!(taken(), [STATUS_SHARING_VIOLATION; 4]);
    wait(|then| active.close(then));
    closed.recv_timeout(PATIENCE).unwrap();
    drop(net.adapters[0].share(local).unwrap());
}

fn a_refused_attempt_lets_the_endpoint_go() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = Object(net.adapters[0].as_ptr());
    let endpoint = wait(|then| adapter.share(net.at(0, 4000), then)).unwrap();
    let connector = wait(|then| adapter.create_connector(then)).unwrap();
    let qp = Object(side.qp.as_ptr());
    let refused = wait(|then| connector.connect_shared(qp, endpoint, net.at(1, 9), then));
    assert_eq!(refused, STATUS_CONNECTION_REFUSED);
    // With the connector still open.
    wait(|then| endpoint.close(then));
    drop(net.adapters[0].share(net.at(0, 4000)).unwrap());
    wait(|then| connector.close(then));
}

fn only_an_own_address_can_be_shared() {
    let net = Net::new();
    for address in ["10.0.0.2:1", "0.0.0.0:1", "[fd00::1]:1"] {
        let shared = net.adapters[0].share(address.parse().unwrap());
        assert_eq!(status(shared), STATUS_INVALID_ADDRESS, "{address}");
    }
}

fn ephemeral_ports_come_to_an_end() {
    let net = Net::new();
    let mut all: Vec<Arc<ndk_consumer::SharedEndpoint>> = Vec::new();
    let full = loop {
        match net.adapters[0].share(net.at(0, 0)) {
            Ok(endpoint) => all.push(endpoint),
            Err(error) => break error.status,
        }
    };
    assert_eq!((full, all.len()), (STATUS_TOO_MANY_ADDRESSES, 16384));
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let connect = connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"").wait();
    assert_eq!(status(connect), STATUS_TOO_MANY_ADDRESSES);
    assert_eq!(status(net.adapters[0].listen(net.at(0, 0))), STATUS_TOO_MANY_ADDRESSES);
    let last = all.pop().unwrap().local_address().unwrap();
    let listener = net.adapters[0].listen(net.at(0, 0)).unwrap();
    assert_eq!(listener.local_address().unwrap(), last);
}
