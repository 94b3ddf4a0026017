//! Connectors: accepting, completing, rejecting, disconnecting. What exists in two forms is tested
//! in both.

use driver::abi::*;
use ndk_consumer::{Connector, Listener, Request};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tests::call;
use tests::kit::raw::{Object, PATIENCE, request};
use tests::kit::{Connection, Fate, LIMITS, Net, PORT, Side, status};

crate::tests! {
    a_connection_is_made_and_its_end_is_told
    a_completion_needs_an_offer
    a_completion_comes_after_the_acceptor_has_gone
    a_completion_comes_after_the_acceptor_has_given_up
    an_accept_needs_sound_arguments
    an_accept_fails_with_the_initiator
    a_close_ends_an_accept
    a_rejection_needs_something_to_reject
    a_disconnect_needs_a_connection
    a_disconnect_times_out
    a_close_ends_a_disconnect
}

/// The forms of the functions that take a disconnect event.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Ex,
}

const FORMS: [Form; 2] = [Form::Plain, Form::Ex];

unsafe extern "system" fn left(context: PVOID) {
    // SAFETY: the leaked sender of a test.
    let sender = unsafe { &*context.cast::<Sender<()>>() };
    let _ = sender.send(());
}

unsafe extern "system" fn left_ex(context: PVOID, reason: ULONG) {
    assert_eq!(reason, 0, "this provider gives no reason");
    // SAFETY: as above.
    unsafe { left(context) };
}

impl Form {
    /// `NdkCompleteConnect`: its end, and the disconnect event.
    fn complete(self, connector: &Connector) -> (NTSTATUS, Receiver<()>) {
        let (sender, event) = channel::<()>();
        let sender: PVOID = std::ptr::from_mut(Box::leak(Box::new(sender))).cast();
        let connector = Object(connector.as_ptr());
        let end = request(|done, context| match self {
            Self::Plain => {
                call!(connector, NdkCompleteConnect, Some(left), sender, done, context)
            }
            Self::Ex => {
                call!(connector, NdkCompleteConnectEx, Some(left_ex), sender, done, context)
            }
        });
        (end.recv_timeout(PATIENCE).expect("it ends"), event)
    }

    /// `NdkAccept` with `data_len` bytes of private data: its end, and the disconnect event.
    fn accept(
        self,
        connector: &Connector,
        qp: *mut NDK_QP,
        data_len: u32,
    ) -> (Receiver<NTSTATUS>, Receiver<()>) {
        let (sender, event) = channel::<()>();
        let sender: PVOID = std::ptr::from_mut(Box::leak(Box::new(sender))).cast();
        let connector = Object(connector.as_ptr());
        let data = [7_u8; 256];
        let data = data.as_ptr().cast();
        let end = request(|done, context| match self {
            Self::Plain => call!(
                connector,
                NdkAccept,
                qp,
                8,
                8,
                data,
                data_len,
                Some(left),
                sender,
                done,
                context
            ),
            Self::Ex => call!(
                connector,
                NdkAcceptEx,
                qp,
                8,
                8,
                data,
                data_len,
                Some(left_ex),
                sender,
                done,
                context
            ),
        });
        (end, event)
    }
}

/// A connect that waits for its answer. The connectors go before the queue pairs.
struct Asked {
    active: Connector,
    passive: Connector,
    connect: Request,
    listener: Arc<Listener>,
    sides: [Side; 2],
}

fn ask(net: &Net) -> Asked {
    let sides = [net.side(0), net.side(1)];
    let listener = net.listen();
    let active = net.adapters[0].create_connector().unwrap();
    let connect = active.connect(&sides[0].qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    Asked { sides, active, passive, connect, listener }
}

fn end(end: &Receiver<NTSTATUS>) -> NTSTATUS {
    end.recv_timeout(PATIENCE).expect("it ends")
}

/// Whatever was sent before has arrived: a connect from `host` to a port without a listener went to
/// and fro behind it.
fn settle(net: &Net, host: usize) {
    let side = net.side(host);
    let connector = net.adapters[host].create_connector().unwrap();
    let connect = connector.connect(&side.qp, net.at(host, 0), net.at(1 - host, 9), LIMITS, b"");
    assert_eq!(status(connect.wait()), STATUS_CONNECTION_REFUSED);
    // The answer leaves before its turn tells connectors what came.
    drop(net.adapters[1 - host].create_pd().unwrap());
}

fn a_connection_is_made_and_its_end_is_told() {
    for form in FORMS {
        for ender in [0, 1] {
            let net = Net::new();
            let asked = ask(&net);
            let (accept, passive_left) = form.accept(&asked.passive, asked.sides[1].qp.as_ptr(), 8);
            asked.connect.wait().unwrap();
            let (completed, active_left) = form.complete(&asked.active);
            assert_eq!((completed, end(&accept)), (STATUS_SUCCESS, STATUS_SUCCESS));
            let connectors = [&asked.active, &asked.passive];
            let events = [&active_left, &passive_left];
            assert_eq!(status(connectors[ender].disconnect().wait()), STATUS_SUCCESS);
            events[1 - ender].recv_timeout(PATIENCE).expect("the other side hears of it");
            assert!(events[ender].try_recv().is_err(), "who disconnects is not told");
        }
    }
}

fn a_completion_needs_an_offer() {
    for form in FORMS {
        let net = Net::new();
        let idle = net.adapters[0].create_connector().unwrap();
        assert_eq!(form.complete(&idle).0, STATUS_CONNECTION_INVALID);
        let connection = net.connect();
        assert_eq!(form.complete(&connection.connectors[0]).0, STATUS_CONNECTION_INVALID);
    }
}

fn a_completion_comes_after_the_acceptor_has_gone() {
    for form in FORMS {
        let net = Net::new();
        let asked = ask(&net);
        let (accept, _) = form.accept(&asked.passive, asked.sides[1].qp.as_ptr(), 0);
        asked.connect.wait().unwrap();
        drop(asked.passive);
        assert_eq!(end(&accept), STATUS_CANCELLED);
        settle(&net, 0);
        assert_eq!(form.complete(&asked.active).0, STATUS_CONNECTION_ABORTED);
    }
}

fn a_completion_comes_after_the_acceptor_has_given_up() {
    for form in FORMS {
        let net = Net::impatient();
        let asked = ask(&net);
        let (accept, _) = form.accept(&asked.passive, asked.sides[1].qp.as_ptr(), 0);
        asked.connect.wait().unwrap();
        // Nothing that asks the acceptor for more time gets through.
        net.wires[0].cut();
        assert_eq!(end(&accept), STATUS_IO_TIMEOUT);
        net.wires[0].set(|_| Fate::Pass);
        settle(&net, 0);
        assert_eq!(form.complete(&asked.active).0, STATUS_IO_TIMEOUT);
    }
}

fn an_accept_needs_sound_arguments() {
    for form in FORMS {
        let net = Net::new();
        let used = net.connect();
        let idle = net.adapters[1].create_connector().unwrap();
        let flushed = net.side(1);
        flushed.qp.receive(1, &[]).unwrap();
        flushed.qp.flush();
        assert_eq!(flushed.ends(1), [(NdkOperationTypeReceive, STATUS_CANCELLED)]);
        let sides = [net.side(0), net.side(1)];
        let active = net.adapters[0].create_connector().unwrap();
        let connect = active.connect(&sides[0].qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
        let passive = used.listener.next(PATIENCE).unwrap();
        let info = net.adapters[1].info().unwrap();
        let sound = sides[1].qp.as_ptr();
        for (status, connector, qp, data_len) in [
            (STATUS_CONNECTION_INVALID, &idle, sound, 0),
            (STATUS_INVALID_PARAMETER, &passive, std::ptr::null_mut(), 0),
            (STATUS_INVALID_PARAMETER, &passive, sides[0].qp.as_ptr(), 0),
            (STATUS_INVALID_BUFFER_SIZE, &passive, sound, info.MaxCalleeData + 1),
            (STATUS_CONNECTION_ACTIVE, &passive, used.sides[1].qp.as_ptr(), 0),
            (STATUS_INVALID_DEVICE_STATE, &passive, flushed.qp.as_ptr(), 0),
        ] {
            assert_eq!(end(&form.accept(connector, qp, data_len).0), status);
        }
        // None of it harmed the connector.
        let (accept, _) = form.accept(&passive, sound, info.MaxCalleeData);
        connect.wait().unwrap();
        assert_eq!(form.complete(&active).0, STATUS_SUCCESS);
        assert_eq!(end(&accept), STATUS_SUCCESS);
        drop((active, passive));
    }
}

fn an_accept_fails_with_the_initiator() {
    for form in FORMS {
        // It has gone before.
        let net = Net::new();
        let Asked { sides, active, passive, connect, listener } = ask(&net);
        drop(active);
        assert_eq!(status(connect.wait()), STATUS_CANCELLED);
        settle(&net, 0);
        let (accept, _) = form.accept(&passive, sides[1].qp.as_ptr(), 0);
        assert_eq!(end(&accept), STATUS_CONNECTION_ABORTED);
        drop((passive, listener));

        // It rejects the terms.
        let asked = ask(&net);
        let (accept, _) = form.accept(&asked.passive, asked.sides[1].qp.as_ptr(), 0);
        asked.connect.wait().unwrap();
        asked.active.reject(b"no").unwrap();
        assert_eq!(end(&accept), STATUS_CONNECTION_REFUSED);

        // It never completes.
        let net = Net::impatient();
        let asked = ask(&net);
        net.wires[0].cut();
        let (accept, _) = form.accept(&asked.passive, asked.sides[1].qp.as_ptr(), 0);
        assert_eq!(end(&accept), STATUS_IO_TIMEOUT);
    }
}

fn a_close_ends_an_accept() {
    for form in FORMS {
        let net = Net::new();
        let asked = ask(&net);
        net.wires[0].cut();
        let (accept, _) = form.accept(&asked.passive, asked.sides[1].qp.as_ptr(), 0);
        drop(asked.passive);
        assert_eq!(end(&accept), STATUS_CANCELLED);
    }
}

fn a_rejection_needs_something_to_reject() {
    let net = Net::new();
    let idle = net.adapters[0].create_connector().unwrap();
    assert_eq!(status(idle.reject(b"")), STATUS_CONNECTION_INVALID);
    let asked = ask(&net);
    let long = vec![7; net.adapters[0].info().unwrap().MaxCalleeData as usize + 1];
    assert_eq!(status(asked.passive.reject(&long)), STATUS_INVALID_BUFFER_SIZE);
    assert_eq!(status(asked.passive.reject(b"no")), STATUS_SUCCESS);
    assert_eq!(status(asked.connect.wait()), STATUS_CONNECTION_REFUSED);

    let net = Net::new();
    let Asked { active, passive, connect, .. } = ask(&net);
    drop(active);
    assert_eq!(status(connect.wait()), STATUS_CANCELLED);
    settle(&net, 0);
    assert_eq!(status(passive.reject(b"")), STATUS_CONNECTION_ABORTED);
}

fn a_disconnect_needs_a_connection() {
    let net = Net::new();
    let idle = net.adapters[0].create_connector().unwrap();
    assert_eq!(status(idle.disconnect().wait()), STATUS_CONNECTION_INVALID);
}

fn a_disconnect_times_out() {
    let net = Net::impatient();
    let connection = net.connect();
    net.wires[1].cut();
    assert_eq!(status(connection.connectors[0].disconnect().wait()), STATUS_IO_TIMEOUT);
}

fn a_close_ends_a_disconnect() {
    let net = Net::new();
    let Connection { connectors: [active, passive], sides, listener } = net.connect();
    net.wires[1].cut();
    let disconnect = active.disconnect();
    drop(active);
    assert_eq!(status(disconnect.wait()), STATUS_CANCELLED);
    drop((passive, listener, sides));
}
