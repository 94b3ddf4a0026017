//! Shared endpoints, and connecting from them.

use driver::abi::*;
use ndk_consumer::{Connector, SharedEndpoint};
use std::net::SocketAddr;
use std::sync::Arc;
use tests::call;
use tests::kit::raw::{Object, PATIENCE, request};
use tests::kit::{LIMITS, Net, PORT, Side, status};

crate::tests! {
    its_address_can_be_asked_for
    a_connect_needs_sound_arguments
    a_connect_needs_a_free_queue_pair
    a_connect_needs_somebody_who_answers
    a_close_ends_a_connect
}

/// Host 0 with an endpoint.
struct Shared {
    side: Side,
    endpoint: Arc<SharedEndpoint>,
    connector: Connector,
}

fn shared(net: &Net) -> Shared {
    let endpoint = net.adapters[0].share(net.at(0, PORT)).unwrap();
    Shared { side: net.side(0), endpoint, connector: net.adapters[0].create_connector().unwrap() }
}

impl Shared {
    fn connect(&self, to: SocketAddr) -> NTSTATUS {
        let Self { side, endpoint, connector } = self;
        status(connector.connect_shared(&side.qp, endpoint, to, LIMITS, b"").wait())
    }
}

fn its_address_can_be_asked_for() {
    let net = Net::new();
    let endpoint = net.adapters[0].share(net.at(0, 0)).unwrap();
    let raw = Object(endpoint.as_ptr());
    let mut address = SOCKADDR_INET::UNSPECIFIED;
    let mut get = |mut len: u32| {
        (call!(raw, NdkGetLocalAddress, (&raw mut address).cast(), &raw mut len), len)
    };
    assert_eq!(get(15), (STATUS_BUFFER_TOO_SMALL, 16));
    assert_eq!(get(16), (STATUS_SUCCESS, 16));
    assert!(address.socket_addr().unwrap().port() >= 49152);
    let none = std::ptr::null_mut();
    assert_eq!(call!(raw, NdkGetLocalAddress, none, none.cast()), STATUS_INVALID_PARAMETER);
}

fn a_connect_needs_sound_arguments() {
    let net = Net::new();
    let shared = shared(&net);
    let (qp, endpoint) = (shared.side.qp.as_ptr(), shared.endpoint.as_ptr());
    let to = SOCKADDR_INET::from(net.at(1, PORT));
    let connect = |qp: *mut NDK_QP, endpoint: *mut NDK_SHARED_ENDPOINT, to_len, data_len| {
        let data = [7_u8; 256];
        let end = request(|done, context| {
            let connector = Object(shared.connector.as_ptr());
            let data = data.as_ptr().cast();
            call!(
                connector,
                NdkConnectWithSharedEndpoint,
                qp,
                endpoint,
                to.as_ptr(),
                to_len,
                1,
                1,
                data,
                data_len,
                done,
                context
            )
        });
        end.recv_timeout(PATIENCE).expect("the connect ends")
    };
    let most = net.adapters[0].info().unwrap().MaxCallerData;
    assert_eq!(connect(std::ptr::null_mut(), endpoint, 16, 0), STATUS_INVALID_PARAMETER);
    assert_eq!(connect(qp, std::ptr::null_mut(), 16, 0), STATUS_INVALID_PARAMETER);
    assert_eq!(connect(qp, endpoint, 15, 0), STATUS_INVALID_ADDRESS);
    assert_eq!(connect(qp, endpoint, 16, most + 1), STATUS_INVALID_BUFFER_SIZE);
    assert_eq!(connect(qp, endpoint, 16, most), STATUS_CONNECTION_REFUSED, "nobody listens");
}

fn a_connect_needs_a_free_queue_pair() {
    let net = Net::new();
    let Shared { side: idle, endpoint, connector } = shared(&net);
    let connection = net.connect();
    let connect = |side: &Side| {
        let to = net.at(1, PORT);
        status(connector.connect_shared(&side.qp, &endpoint, to, LIMITS, b"").wait())
    };
    assert_eq!(connect(&connection.sides[0]), STATUS_CONNECTION_ACTIVE);
    idle.qp.receive(1, &[]).unwrap();
    idle.qp.flush();
    assert_eq!(idle.ends(1), [(NdkOperationTypeReceive, STATUS_CANCELLED)]);
    assert_eq!(connect(&idle), STATUS_INVALID_DEVICE_STATE);
}

fn a_connect_needs_somebody_who_answers() {
    let net = Net::impatient();
    let shared = shared(&net);
    assert_eq!(shared.connect("[fd00::2]:7174".parse().unwrap()), STATUS_NETWORK_UNREACHABLE);
    assert_eq!(shared.connect("10.0.0.77:7174".parse().unwrap()), STATUS_HOST_UNREACHABLE);
    assert_eq!(shared.connect(net.at(1, PORT)), STATUS_CONNECTION_REFUSED);
    net.wires[1].cut();
    assert_eq!(shared.connect(net.at(1, PORT)), STATUS_IO_TIMEOUT);
}

fn a_close_ends_a_connect() {
    let net = Net::new();
    let Shared { side, endpoint, connector } = shared(&net);
    let listener = net.listen();
    let connect = connector.connect_shared(&side.qp, &endpoint, net.at(1, PORT), LIMITS, b"");
    let _passive = listener.next(PATIENCE).unwrap();
    drop(connector);
    assert_eq!(status(connect.wait()), STATUS_CANCELLED);
}
