//! Connectors: connecting.

use driver::abi::*;
use ndk_consumer::Connector;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use tests::call;
use tests::kit::raw::{Object, PATIENCE, request};
use tests::kit::{LIMITS, Net, PORT, status};

crate::tests! {
    a_connect_needs_sound_arguments
    a_connect_needs_a_free_queue_pair
    a_connect_needs_somebody_who_answers
    the_peer_is_known_from_its_first_message
    the_advertised_room_holds_what_a_peer_tells
    addresses_fit_or_tell_their_size
}

/// The arguments of `NdkConnect` that a test varies.
#[derive(Clone, Copy)]
struct Connect {
    qp: *mut NDK_QP,
    from: SocketAddr,
    to: SocketAddr,
    to_len: u32,
    data_len: u32,
}

impl Connect {
    fn start(self, connector: &Connector) -> Receiver<NTSTATUS> {
        let (from, to) = (SOCKADDR_INET::from(self.from), SOCKADDR_INET::from(self.to));
        let data = [7_u8; 256];
        request(|done, context| {
            call!(
                Object(connector.as_ptr()),
                NdkConnect,
                self.qp,
                from.as_ptr(),
                from.len(),
                to.as_ptr(),
                self.to_len,
                LIMITS.inbound,
                LIMITS.outbound,
                data.as_ptr().cast(),
                self.data_len,
                done,
                context,
            )
        })
    }

    fn end(self, connector: &Connector) -> NTSTATUS {
        self.start(connector).recv_timeout(PATIENCE).expect("the connect ends")
    }
}

fn a_connect_needs_sound_arguments() {
    let net = Net::new();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let (from, to) = (net.at(0, 0), net.at(1, PORT));
    let sound = Connect { qp: side.qp.as_ptr(), from, to, to_len: 16, data_len: 0 };
    let info = net.adapters[0].info().unwrap();
    for (status, connect) in [
        (STATUS_INVALID_ADDRESS, Connect { from: to, ..sound }),
        (STATUS_INVALID_BUFFER_SIZE, Connect { data_len: info.MaxCallerData + 1, ..sound }),
    ] {
        assert_eq!(connect.end(&connector), status);
    }
    // None of it harmed the connector or the queue pair.
    assert_eq!(sound.end(&connector), STATUS_CONNECTION_REFUSED);
}

fn a_connect_needs_a_free_queue_pair() {
    let net = Net::new();
    let connection = net.connect();
    let connector = net.adapters[0].create_connector().unwrap();
    let connect = |qp| {
        let connect = connector.connect(qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
        status(connect.wait())
    };
    assert_eq!(connect(&connection.sides[0].qp), STATUS_CONNECTION_ACTIVE);
    let side = net.side(0);
    side.qp.receive(1, &[]).unwrap();
    side.qp.flush();
    assert_eq!(side.ends(1), [(NdkOperationTypeReceive, STATUS_CANCELLED)]);
    assert_eq!(connect(&side.qp), STATUS_INVALID_DEVICE_STATE);
}

fn a_connect_needs_somebody_who_answers() {
    let net = Net::impatient();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let connect = |to| status(connector.connect(&side.qp, net.at(0, 0), to, LIMITS, b"").wait());
    assert_eq!(connect("10.0.0.77:7174".parse().unwrap()), STATUS_HOST_UNREACHABLE);
    assert_eq!(connect(net.at(1, PORT)), STATUS_CONNECTION_REFUSED);
    // Its link-layer address is known now, and that is all it says.
    net.wires[1].cut();
    assert_eq!(connect(net.at(1, PORT)), STATUS_IO_TIMEOUT);
}

fn the_peer_is_known_from_its_first_message() {
    let net = Net::new();
    let side = net.side(0);
    let listener = net.listen();
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"caller");
    let passive = listener.next(PATIENCE).unwrap();

    let mut data = [0_u8; 64];
    let mut get = |connector: &Connector, room: Option<u32>, len: Option<u32>| {
        let (mut inbound, mut outbound, mut length) = (u32::MAX, u32::MAX, len.unwrap_or(0));
        let buffer = room.map_or(std::ptr::null_mut(), |_| data.as_mut_ptr().cast());
        let out = len.map_or(std::ptr::null_mut(), |_| &raw mut length);
        let status = call!(
            Object(connector.as_ptr()),
            NdkGetConnectionData,
            &raw mut inbound,
            &raw mut outbound,
            buffer,
            out
        );
        (status, length, inbound, outbound)
    };
    assert_eq!(get(&active, None, Some(0)).0, STATUS_CONNECTION_INVALID);
    let (status, needed, inbound, outbound) = get(&passive, None, Some(0));
    assert_eq!((status, needed), (STATUS_SUCCESS, 56));
    assert_eq!((inbound, outbound), (LIMITS.outbound, LIMITS.inbound));
    assert_eq!(get(&passive, Some(64), Some(10)).0, STATUS_BUFFER_TOO_SMALL);
    assert_eq!(get(&passive, Some(64), Some(64)).0, STATUS_SUCCESS);
    assert_eq!(get(&passive, None, Some(1)).0, STATUS_INVALID_PARAMETER);
    assert_eq!(get(&passive, None, None).0, STATUS_INVALID_PARAMETER);
    assert_eq!(&data[..8], b"caller\0\0");
    passive.reject(b"").unwrap();
    assert_eq!(tests::kit::status(request.wait()), STATUS_CONNECTION_REFUSED);
}

/// A consumer that never asks for the size, but trusts the adapter's word, loses nothing.
fn the_advertised_room_holds_what_a_peer_tells() {
    let net = Net::new();
    let sides = [net.side(0), net.side(1)];
    let info = net.adapters[0].info().unwrap();
    let (caller, callee) = (info.MaxCallerData as usize, info.MaxCalleeData as usize);
    let get = |connector: &Connector, room: usize| {
        let (mut data, mut len) = (vec![0_u8; room], room as u32);
        let none = std::ptr::null_mut();
        let (buffer, len) = (data.as_mut_ptr().cast(), &raw mut len);
        let connector = Object(connector.as_ptr());
        let status = call!(connector, NdkGetConnectionData, none, none, buffer, len);
        (status, data)
    };
    let listener = net.listen();
    let connect = |qp, data: &[u8]| {
        let active = net.adapters[0].create_connector().unwrap();
        let request = active.connect(qp, net.at(0, 0), net.at(1, PORT), LIMITS, data);
        (active, request, listener.next(PATIENCE).unwrap())
    };
    // A refusal, then an acceptance, each with as much as it may carry.
    let (asked, answered) = (vec![1; caller], vec![2; callee]);
    let (active, request, passive) = connect(&sides[0].qp, &asked);
    passive.reject(&answered).unwrap();
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    assert_eq!(get(&active, callee), (STATUS_SUCCESS, answered.clone()));
    let (active, request, passive) = connect(&sides[0].qp, &asked);
    assert_eq!(get(&passive, caller), (STATUS_SUCCESS, asked));
    let accept = passive.accept(&sides[1].qp, LIMITS, &answered);
    request.wait().unwrap();
    assert_eq!(get(&active, callee), (STATUS_SUCCESS, answered));
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
}

fn addresses_fit_or_tell_their_size() {
    let net = Net::new();
    let idle = net.adapters[0].create_connector().unwrap();
    let connection = net.connect();
    let mut address = SOCKADDR_INET::UNSPECIFIED;
    macro_rules! check {
        ($slot:ident) => {
            let mut get = |connector: &Connector, mut len: u32| {
                let connector = Object(connector.as_ptr());
                (call!(connector, $slot, (&raw mut address).cast(), &raw mut len), len)
            };
            assert_eq!(get(&idle, 28).0, STATUS_CONNECTION_INVALID);
            for connector in &connection.connectors {
                assert_eq!(get(connector, 28), (STATUS_SUCCESS, 16));
                assert_eq!(get(connector, 15), (STATUS_BUFFER_TOO_SMALL, 16));
                let (connector, none) = (Object(connector.as_ptr()), std::ptr::null_mut());
                assert_eq!(call!(connector, $slot, none, none.cast()), STATUS_INVALID_PARAMETER);
            }
        };
    }
    check!(NdkGetLocalAddress);
    check!(NdkGetPeerAddress);
}
