//! Why a connection ended, as `ProviderErrorCode` and `ProviderDisconnectReason` tell it
//! (`driver::ndk::reason`), at both of its ends.

use super::*;
use ndk_consumer::{ReadLimits, Remote};
use std::sync::mpsc::{Sender, channel};
use tests::kit::raw::request;

crate::tests! {
    a_nak_is_named_at_both_ends
    an_orderly_end_has_no_reason
    a_lost_cq_is_a_reason
    a_read_without_depth_is_refused_at_once
}

/// What happened, and of a NAK its code: remote access error.
const RECEIVED_ACCESS: u32 = 0x12;
const SENT_ACCESS: u32 = 0x22;
const OVERRUN: u32 = 7 << 28;

unsafe extern "system" fn left(context: PVOID, reason: ULONG) {
    // SAFETY: the leaked sender of the test.
    unsafe { &*context.cast::<Sender<u32>>() }.send(reason).unwrap();
}

/// A connection whose ends tell the reasons of their disconnect events.
fn connect(net: &Net, sides: &[Side; 2]) -> (Connected, [std::sync::mpsc::Receiver<u32>; 2]) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::<u32>()).unzip();
    let context = |end: usize| -> PVOID {
        std::ptr::from_ref(Box::leak(Box::new(senders[end].clone()))).cast_mut().cast()
    };
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let asked = active.connect(&sides[0].qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    let passive = listener.next(PATIENCE).expect("a connect event");
    let (qp, none) = (sides[1].qp.as_ptr(), std::ptr::null());
    let (event, ends) = (Some(left as _), [context(0), context(1)]);
    let accepted = request(|done, at| {
        call!(passive.as_ptr(), NdkAcceptEx, qp, 8, 8, none, 0, event, ends[1], done, at)
    });
    asked.wait().unwrap();
    let completed =
        request(|done, at| call!(active.as_ptr(), NdkCompleteConnectEx, event, ends[0], done, at));
    assert_eq!(completed.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    assert_eq!(accepted.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    (Connected { active, passive, listener }, receivers.try_into().unwrap())
}

fn codes(side: &Side, count: usize) -> Vec<(NTSTATUS, u32)> {
    side.results(count).iter().map(|result| (result.Status, result.ProviderErrorCode)).collect()
}

/// Goal: each end of a connection that a NAK ended can tell whose NAK it was, and of which packet.
fn a_nak_is_named_at_both_ends() {
    for client in [0, 1] {
        let net = Net::new();
        let sides = [net.side(0), net.side(1)];
        let (_connected, reasons) = connect(&net, &sides);
        for side in &sides {
            side.qp.receive(1, &[]).unwrap();
        }
        let (asks, answers) = (&sides[client], &sides[1 - client]);
        asks.qp.send(2, &[], 0).unwrap();
        assert_eq!(codes(answers, 1), [(STATUS_SUCCESS, 0)]);
        assert_eq!(codes(asks, 1), [(STATUS_SUCCESS, 0)]);
        answers.qp.receive(3, &[]).unwrap();
        let nowhere = Remote { address: 0, token: 0x1234_5678 };
        asks.qp.read(4, &[asks.mr.sge(0..1)], nowhere, 0).unwrap();
        let (asked, answered) = (codes(asks, 2), codes(answers, 1));
        let (code, psn) = (asked[0].1, asked[0].1 & 0xff_ffff);
        assert_eq!(code >> 24, RECEIVED_ACCESS);
        assert_eq!(asked, [(STATUS_ACCESS_VIOLATION, code), (STATUS_CANCELLED, code)]);
        assert_eq!(answered, [(STATUS_CANCELLED, SENT_ACCESS << 24 | psn)]);
        assert_eq!(reasons[client].recv_timeout(PATIENCE), Ok(code));
        assert_eq!(reasons[1 - client].recv_timeout(PATIENCE), Ok(answered[0].1));
    }
}

/// An end that a consumer wanted needs no reason, for it or its peer.
fn an_orderly_end_has_no_reason() {
    let net = Net::new();
    let sides = [net.side(0), net.side(1)];
    let (connected, reasons) = connect(&net, &sides);
    for side in &sides {
        side.qp.receive(1, &[]).unwrap();
    }
    connected.active.disconnect().wait().unwrap();
    assert_eq!(codes(&sides[0], 1), [(STATUS_CANCELLED, 0)]);
    assert_eq!(reasons[1].recv_timeout(PATIENCE), Ok(0));
    sides[1].qp.flush();
    assert_eq!(codes(&sides[1], 1), [(STATUS_CANCELLED, 0)]);
}

/// What a queue pair loses with its CQ is told by its other CQ.
fn a_lost_cq_is_a_reason() {
    let net = Net::new();
    let side = net.side(0);
    let small = net.adapters[0].create_cq(1).unwrap();
    let qp = side.pd.create_qp(&side.cq, &small, QpConfig::default()).unwrap();
    let sides = [Side { qp, ..side }, net.side(1)];
    let (_connected, reasons) = connect(&net, &sides);
    sides[0].qp.receive(1, &[]).unwrap();
    let nowhere = Remote { address: 0, token: 0 };
    // The first fills it.
    while status(sides[0].qp.write(2, &[], nowhere, 0)) != STATUS_CONNECTION_INVALID {
        std::thread::yield_now();
    }
    assert_eq!(codes(&sides[0], 1), [(STATUS_CANCELLED, OVERRUN)]);
    assert_eq!(reasons[0].recv_timeout(PATIENCE), Ok(OVERRUN));
    assert_eq!(reasons[1].recv_timeout(PATIENCE), Ok(0));
}

/// A connection that was agreed on without READs of one side takes none from it, and goes on.
fn a_read_without_depth_is_refused_at_once() {
    let net = Net::new();
    let sides = [net.side(0), net.side(1)];
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let no_reads = ReadLimits { inbound: 8, outbound: 0 };
    let to = net.at(1, PORT);
    let asked = active.connect(&sides[0].qp, net.at(0, 0), to, no_reads, b"");
    let passive = listener.next(PATIENCE).expect("a connect event");
    let accepted = passive.accept(&sides[1].qp, LIMITS, b"");
    asked.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accepted.wait().unwrap();
    let (sink, remote) = (sides[0].mr.sge(0..1), sides[1].mr.remote(0));
    let refused = sides[0].qp.read(1, &[sink], remote, 0);
    assert_eq!(status(refused), STATUS_INVALID_DEVICE_REQUEST);
    // Nothing was queued, nothing is harmed, and the peer's READs are agreed on.
    sides[0].qp.write(2, &[sink], remote, 0).unwrap();
    assert_eq!(sides[0].statuses(1), [STATUS_SUCCESS]);
    sides[1].qp.read(3, &[sides[1].mr.sge(0..1)], sides[0].mr.remote(0), 0).unwrap();
    assert_eq!(sides[1].statuses(1), [STATUS_SUCCESS]);
}
