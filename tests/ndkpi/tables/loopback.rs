use super::*;

crate::tests! {
    sys_14_an_adapter_connects_to_itself
    nobody_listens_on_the_own_address_either
    a_busy_loopback_starves_nobody
}

/// Both ends of every operation on one adapter, with nothing else on the wire.
fn sys_14_an_adapter_connects_to_itself() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        let net = Net::with_addresses(addresses);
        let flags = net.adapters[0].info().unwrap().AdapterFlags;
        assert_ne!(flags & NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, 0);
        let (client, server) = (net.side(0), net.side(0));
        let listener = net.adapters[0].listen(net.at(0, PORT)).unwrap();
        let active = net.adapters[0].create_connector().unwrap();
        let request = active.connect(&client.qp, net.at(0, 0), net.at(0, PORT), LIMITS, b"me");
        let passive = listener.next(PATIENCE).unwrap();
        assert_eq!(passive.peer_address().unwrap().ip(), net.addresses[0]);
        assert_eq!(&passive.connection_data().unwrap().private_data[..3], b"me\0");
        let accept = passive.accept(&server.qp, LIMITS, b"");
        request.wait().unwrap();
        active.complete_connect().wait().unwrap();
        accept.wait().unwrap();

        for (from, to) in [(&client, &server), (&server, &client)] {
            from.fill(3);
            to.fill(5);
            to.qp.receive(1, &[to.mr.sge(0..300_000)]).unwrap();
            from.qp.send(1, &[from.mr.sge(1..300_001)], 0).unwrap();
            from.qp.write(2, &[from.mr.sge(0..70_000)], to.mr.remote(400_000), 0).unwrap();
            from.qp.read(3, &[from.mr.sge(600_000..700_000)], to.mr.remote(700_001), 0).unwrap();
            assert_eq!(from.statuses(3), [STATUS_SUCCESS; 3]);
            assert_eq!(to.results(1)[0].BytesTransferred, 300_000);
            assert!(to.bytes(0, 300_000) == from.bytes(1, 300_000), "SEND");
            assert!(to.bytes(400_000, 70_000) == from.bytes(0, 70_000), "WRITE");
            assert!(from.bytes(600_000, 100_000) == to.bytes(700_001, 100_000), "READ");
        }
        active.disconnect().wait().unwrap();
        assert!(passive.wait_disconnected(PATIENCE));
    }
}

fn nobody_listens_on_the_own_address_either() {
    let net = Net::new();
    let side = net.side(0);
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&side.qp, net.at(0, 0), net.at(0, PORT), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
}

/// Two ends that keep each other busy for ever leave room for the rest of the world.
fn a_busy_loopback_starves_nobody() {
    let net = Net::new();
    let (client, server) = (net.side(0), net.side(0));
    let listener = net.adapters[0].listen(net.at(0, PORT)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&client.qp, net.at(0, 0), net.at(0, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    for context in 0..60 {
        let sge = client.mr.sge(0..1 << 20);
        client.qp.write(context, &[sge], server.mr.remote(0), 0).unwrap();
    }
    let connection = net.connect();
    let [near, far] = &connection.sides;
    far.qp.receive(1, &[far.mr.sge(0..10)]).unwrap();
    near.qp.send(1, &[near.mr.sge(0..10)], 0).unwrap();
    assert_eq!(near.statuses(1), [STATUS_SUCCESS]);
    assert_eq!(client.statuses(60), [STATUS_SUCCESS; 60]);
}
