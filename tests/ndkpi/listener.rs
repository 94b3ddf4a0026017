//! Listeners.

use driver::abi::*;
use std::net::SocketAddr;
use tests::call;
use tests::kit::raw::{Object, PATIENCE, request, wait};
use tests::kit::{LIMITS, Net, PORT, status};

crate::tests! {
    an_address_is_checked_and_taken
    its_address_can_be_asked_for
    a_paused_listener_refuses
}

fn listen(listener: Object<NDK_LISTENER>, at: SocketAddr) -> NTSTATUS {
    wait(|then| listener.listen(at, then))
}

fn an_address_is_checked_and_taken() {
    let net = Net::new();
    let adapter = Object(net.adapters[0].as_ptr());
    let [first, second] =
        [(); 2].map(|()| wait(|then| adapter.create_listener(Box::new(|_| ()), then)).unwrap());
    assert_eq!(listen(first, net.at(1, PORT)), STATUS_INVALID_ADDRESS);
    let nonsense = SOCKADDR_INET::from(net.at(0, PORT));
    let end = request(|done, context| call!(first, NdkListen, nonsense.as_ptr(), 7, done, context));
    assert_eq!(end.recv_timeout(PATIENCE).unwrap(), STATUS_INVALID_ADDRESS);
    assert_eq!(listen(first, net.at(0, PORT)), STATUS_SUCCESS);
    assert_eq!(listen(first, net.at(0, PORT + 1)), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(listen(second, net.at(0, PORT)), STATUS_SHARING_VIOLATION);
    wait(|then| first.close(then));
    assert_eq!(listen(second, net.at(0, PORT)), STATUS_SUCCESS);
    wait(|then| second.close(then));
}

fn its_address_can_be_asked_for() {
    let net = Net::new();
    let adapter = Object(net.adapters[0].as_ptr());
    let listener = wait(|then| adapter.create_listener(Box::new(|_| ()), then)).unwrap();
    let mut address = SOCKADDR_INET::UNSPECIFIED;
    let mut get = |mut len: u32| {
        (call!(listener, NdkGetLocalAddress, (&raw mut address).cast(), &raw mut len), len)
    };
    assert_eq!(get(28).0, STATUS_INVALID_DEVICE_STATE);
    assert_eq!(listen(listener, net.at(0, 0)), STATUS_SUCCESS);
    assert_eq!(get(15), (STATUS_BUFFER_TOO_SMALL, 16));
    assert_eq!(get(16), (STATUS_SUCCESS, 16));
    assert!(address.socket_addr().unwrap().port() >= 49152);
    let none = std::ptr::null_mut();
    assert_eq!(call!(listener, NdkGetLocalAddress, none, none.cast()), STATUS_INVALID_PARAMETER);
    wait(|then| listener.close(then));
}

fn a_paused_listener_refuses() {
    let net = Net::new();
    let side = net.side(0);
    let listener = net.listen();
    let connector = net.adapters[0].create_connector().unwrap();
    let connect = || connector.connect(&side.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    listener.pause(true);
    assert_eq!(status(connect().wait()), STATUS_CONNECTION_REFUSED);
    listener.pause(false);
    let request = connect();
    listener.next(PATIENCE).unwrap().reject(b"").unwrap();
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
}
