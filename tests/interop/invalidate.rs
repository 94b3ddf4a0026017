//! SEND with Invalidate, both ways, between this provider and Linux's verbs (`lab/verbs.c`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use driver::abi::*;
use ndk_consumer::{Adapter, Buffer, Connector, FastRegister, Listener, Remote};
use tests::kit::{LIMITS, PATIENCE, Side};

use crate::{FAMILIES, LISTENING};
use tests::lab::{Job, Lab, judge};

const PORT: u16 = 7174;
/// Bytes of a region and of a window: several packets of the lab's MTU.
const LEN: usize = 5000;
/// What the region begins with is not the first byte of a page, and its addresses are labels.
const SKIP: usize = 0x123;
const BASE: u64 = 0x5000_0000_0000 + SKIP as u64;

/// Where in a side's registered memory messages, what is written, and what is read back lie.
const SENT: usize = 64;
const DATA: usize = 8192;
const COPY: usize = 16384;

/// Contexts: receives first, so that sorting puts them in front.
const FIRST: usize = 1;
const SECOND: usize = 2;
const SEND: usize = 3;
const WRITE: usize = 4;
const READ: usize = 5;

/// Goal: rxe WRITEs and READs a region that was fast-registered through NDK, and ends it with its SEND; we do the
/// same with a type 2 window of rxe. Each receive names the key, which is dead from then on. Whoever connects.
#[test]
fn send_with_invalidate_goes_both_ways() {
    let Some(mut lab) = Lab::start("send_with_invalidate") else { return };
    if !lab.compile("verbs") {
        return;
    }
    let capture = lab.path("ours.pcap");
    let adapter = lab.adapter(&capture);
    for (_, theirs, ours) in FAMILIES {
        for guest_connects in [true, false] {
            for scenario in [region, window] {
                scenario(&mut lab, &adapter, Ends { theirs, ours, guest_connects });
            }
        }
    }
    drop(adapter);
    let kinds = judge(&capture, &["icrc", "scapy", "tshark"]);
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    // One of each in each of eight connections. NAK 2 is a remote access error, and no other may be there.
    for kind in ["SEND_ONLY_INVALIDATE", "NAK_2", "WRITE_LAST", "READ_RESPONSE_LAST"] {
        assert!(count(kind) >= 8, "too few {kind} in {kinds:?}");
    }
    for kind in ["NAK_1", "NAK_3", "NAK_4"] {
        assert_eq!(count(kind), 0, "{kind} in {kinds:?}");
    }
    lab.finish();
}

/// We tell of a region; rxe uses it and ends it.
fn region(lab: &mut Lab, adapter: &Arc<Adapter>, ends: Ends) {
    let side = Side::new(adapter);
    let frmr = side.pd.create_frmr(4, true).unwrap();
    let buffer = Arc::new(Buffer::new(SKIP + LEN + 1));
    let lam = adapter.build_lam(Arc::clone(&buffer), SKIP..SKIP + LEN).unwrap();
    let link = Link::new(lab, adapter, &side, ends, "region");
    let what = FastRegister { pages: &lam.pages(), fbo: lam.fbo(), len: LEN, base: BASE };
    let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
    side.qp.fast_register(WRITE, &frmr, what, rights).unwrap();
    assert_eq!(side.statuses(1), [STATUS_SUCCESS]);

    let remote = frmr.remote(BASE);
    tell(&side, remote);
    let ended = results(&side, 2);
    assert_eq!(ended[0].Type, NdkOperationTypeReceiveAndInvalidate);
    assert_eq!((ended[0].Status, ended[0].BytesTransferred), (STATUS_SUCCESS, 16));
    assert_eq!(ended[0].TypeSpecificCompletionOutput, remote.token as usize);
    assert_eq!((ended[1].Type, ended[1].Status), (NdkOperationTypeSend, STATUS_SUCCESS));
    let mut there = vec![0; SKIP + LEN + 1];
    buffer.read(0, &mut there);
    let expected = [vec![0; SKIP], pattern(), vec![0]].concat();
    assert!(there == expected, "what rxe wrote is not what it meant to");

    // Now rxe tries the dead key, which ends the connection; our message may end with it.
    tell(&side, remote);
    let ended = results(&side, 2);
    assert_eq!(ended[0].RequestContext.addr(), SECOND);
    assert_eq!(ended[0].Status, STATUS_CANCELLED);
    buffer.read(0, &mut there);
    assert!(there == expected, "rxe wrote through a dead key");
    link.end(&format!("invalidated {:#x}, then remote access error", remote.token));
}

/// rxe tells of a window; we use it and end it.
fn window(lab: &mut Lab, adapter: &Arc<Adapter>, ends: Ends) {
    let side = Side::new(adapter);
    let link = Link::new(lab, adapter, &side, ends, "window");
    let [told] = results(&side, 1)[..] else { unreachable!("one was asked for") };
    assert_eq!((told.Type, told.Status), (NdkOperationTypeReceive, STATUS_SUCCESS));
    let remote = heard(&side);

    side.mr.buffer().write(DATA, &pattern());
    side.qp.write(WRITE, &[side.mr.sge(DATA..DATA + LEN)], remote, 0).unwrap();
    side.qp.read(READ, &[side.mr.sge(COPY..COPY + LEN)], remote, 0).unwrap();
    let ended = results(&side, 2);
    assert_eq!([ended[0].Status, ended[1].Status], [STATUS_SUCCESS; 2]);
    assert!(side.bytes(COPY, LEN) == pattern(), "what we read is not what we wrote");
    let message = [side.mr.sge(SENT..SENT + 16)];
    side.qp.send_and_invalidate(SEND, &message, 0, remote.token).unwrap();
    let ended = results(&side, 2);
    assert_eq!((ended[0].Type, ended[0].Status), (NdkOperationTypeReceive, STATUS_SUCCESS));
    assert_eq!((ended[1].Type, ended[1].Status), (NdkOperationTypeSend, STATUS_SUCCESS));

    side.mr.buffer().write(DATA, &[!pattern()[0]]);
    side.qp.write(WRITE, &[side.mr.sge(DATA..DATA + 1)], remote, 0).unwrap();
    assert_eq!(results(&side, 1)[0].Status, STATUS_ACCESS_VIOLATION);
    link.end(&format!(
        "received with invalidated key {:#x}, then the connection broke",
        remote.token
    ));
}

/// Tells rxe of a region of `LEN` bytes: its address, key and length, big endian.
fn tell(side: &Side, remote: Remote) {
    let word = u128::from(remote.token) << 32 | LEN as u128;
    let message = u128::from(remote.address) << 64 | word;
    side.mr.buffer().write(SENT, &message.to_be_bytes());
    side.qp.send(SEND, &[side.mr.sge(SENT..SENT + 16)], 0).unwrap();
}

/// What rxe told in its first message.
fn heard(side: &Side) -> Remote {
    let message = u128::from_be_bytes(side.bytes(0, 16).try_into().unwrap());
    assert_eq!(message as u32 as usize, LEN);
    Remote { address: (message >> 64) as u64, token: (message >> 32) as u32 }
}

/// As in `lab/verbs.c`.
fn pattern() -> Vec<u8> {
    (0..LEN).map(|place| (place * 7 + place / 256 + 3) as u8).collect()
}

/// The next completions, in the order of their contexts.
fn results(side: &Side, count: usize) -> Vec<NDK_RESULT_EX> {
    let mut ended = side.results(count);
    ended.sort_by_key(|result| result.RequestContext.addr());
    ended
}

#[derive(Clone, Copy)]
struct Ends {
    theirs: &'static str,
    ours: &'static str,
    guest_connects: bool,
}

/// A connection between a side and the program in the guest.
struct Link {
    connector: Connector,
    _listener: Option<Arc<Listener>>,
    job: Job,
}

impl Link {
    /// Connects, with two receives posted.
    fn new(lab: &mut Lab, adapter: &Arc<Adapter>, side: &Side, ends: Ends, scenario: &str) -> Self {
        for (context, place) in [(FIRST, 0), (SECOND, 16)] {
            side.qp.receive(context, &[side.mr.sge(place..place + 16)]).unwrap();
        }
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        let mut run =
            |role, host| lab.guest.start(&format!("/lab/verbs {role} {host} {PORT} {scenario}"));
        if ends.guest_connects {
            let listener = adapter.listen(at(ends.ours, PORT)).unwrap();
            let job = run("connect", ends.ours);
            let Some(connector) = listener.next(PATIENCE) else {
                panic!("nobody connects; the guest says {:?}", job.wait())
            };
            connector.accept(&side.qp, LIMITS, b"").wait().unwrap();
            return Self { connector, _listener: Some(listener), job };
        }
        let job = run("listen", ends.theirs);
        lab.guest.run(LISTENING);
        let connector = adapter.create_connector().unwrap();
        let (local, remote) = (at(ends.ours, 0), at(ends.theirs, PORT));
        connector.connect(&side.qp, local, remote, LIMITS, b"").wait().unwrap();
        connector.complete_connect().wait().unwrap();
        Self { connector, _listener: None, job }
    }

    /// The program's work is done, and both sides know that the connection is over.
    fn end(self, said: &str) {
        let (status, log) = self.job.wait();
        assert_eq!(status, 0, "verbs has failed");
        assert!(log.contains(said), "no {said:?}");
        assert!(self.connector.wait_disconnected(PATIENCE));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the guest's program says:\n{}", self.job.output());
        }
    }
}
