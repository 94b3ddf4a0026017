//! The terms of a connection: each field of a REQ, and of the REP that answers ours, with other values. It
//! says nothing, or shows in what our consumer and the peer are told, or the request is refused. Offsets
//! are those of the message tables (IBTA ch. 12), counted from the start of the datagram.

use super::neighbours::neighbours;
use super::*;
use std::ops::Range;
use std::vec;

/// The effect of another value of a field.
#[derive(Clone, Copy)]
enum Does {
    /// Nothing: it is reserved, or not looked at (see `peer_limits`).
    Nothing,
    /// The message is dropped, and counted.
    Drops,
    /// The request is refused for this reason.
    Refuses(RejReason),
    /// The terms differ in this, by the bytes of the message.
    Shows(fn(&mut Terms, &[u8; MAD_LEN])),
    /// It is the peer's QPN, from this byte on. One that cannot be connected does this instead.
    Names(usize, &'static Does),
}

/// Bytes of a datagram, the bits of each that are the field, and what they do.
type Part = (Range<usize>, u8, Does);

/// The events of both sides.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Terms {
    /// Our consumer: how the peer is reached.
    peer: Peer,
    private_data: PrivateData,
    /// The peer: our REP or RTU.
    answer: CmMessage,
    /// Milliseconds from our answer to each time that it is sent again.
    again: Vec<u128>,
}

use Does::{Drops, Names, Nothing, Refuses, Shows};

const HEADER: [Part; 9] = [
    (0..1, 0xff, Drops),     // base version
    (1..2, 0xff, Drops),     // class
    (2..3, 0xff, Drops),     // class version
    (3..4, 0xff, Drops),     // method
    (4..6, 0xff, Nothing),   // status
    (6..8, 0xff, Nothing),   // reserved
    (8..16, 0xff, Nothing),  // transaction ID
    (18..20, 0xff, Nothing), // reserved, but for our own mark (`make`)
    (20..24, 0xff, Nothing), // attribute modifier
];

const REQ: [Part; 41] = [
    (24..28, 0xff, Shows(|terms, mad| terms.name(be(mad, 24..28)))),
    (28..32, 0xff, Nothing), // reserved, vendor
    (32..40, 0xff, Refuses(RejReason::INVALID_SERVICE_ID)),
    (40..48, 0xff, Nothing), // GUID
    (48..56, 0xff, Nothing), // reserved, Q_Key
    (56..59, 0xff, Names(56, &Refuses(RejReason::UNSUPPORTED))),
    (59..60, 0xff, Shows(|terms, mad| terms.outbound(mad[59]))),
    (60..63, 0xff, Nothing), // EECN
    (63..64, 0xff, Shows(|terms, mad| terms.inbound(mad[63]))),
    (64..67, 0xff, Nothing), // EECN
    (67..68, 0xf8, Nothing), // remote response timeout
    (67..68, 0x06, Refuses(RejReason::INVALID_TRANSPORT)),
    (67..68, 0x01, Nothing), // end-to-end flow control
    (68..71, 0xff, Shows(|terms, mad| terms.peer.starting_psn = Psn::new(be(mad, 68..71)))),
    (71..72, 0xf8, Shows(|terms, mad| terms.again = resends(mad[71] >> 3))),
    (71..72, 0x07, Shows(|terms, mad| terms.peer.retry_count = RETRIES.max(mad[71] & 7))),
    (72..74, 0xff, Nothing), // partition: QP 1 saw to that
    (74..75, 0x10, Shows(|terms, _| terms.peer.pmtu = Pmtu::B512)),
    (74..75, 0x20, Shows(|terms, _| terms.peer.pmtu = Pmtu::B256)),
    (74..75, 0xc0, Refuses(RejReason::INVALID_MTU)),
    (74..75, 0x08, Nothing), // RDC
    (74..75, 0x07, Shows(|terms, mad| terms.peer.rnr_retry = mad[74] & 7)),
    (75..76, 0xff, Nothing), // CM retries, shared receives, extended transport
    (76..80, 0xff, Nothing), // LIDs
    (80..96, 0xff, Refuses(RejReason::INVALID_GID)),
    (96..112, 0xff, Refuses(RejReason::INVALID_GID)),
    (112..114, 0xff, Shows(|terms, mad| terms.peer.flow_label = be(mad, 112..115) >> 4)),
    (114..115, 0xf0, Shows(|terms, mad| terms.peer.flow_label = be(mad, 112..115) >> 4)),
    (114..115, 0x0f, Nothing), // reserved
    (115..116, 0xff, Nothing), // packet rate
    (116..117, 0xff, Shows(|terms, mad| terms.peer.traffic_class = mad[116])),
    (117..119, 0xff, Nothing), // hop limit, service level, subnet local
    (119..120, 0xf8, Shows(|terms, mad| terms.peer.ack_timeout_code = ack_timeout(mad[119] >> 3))),
    (119..120, 0x07, Nothing),                         // reserved
    (120..164, 0xff, Nothing),                         // alternate path
    (164..165, 0xff, Refuses(RejReason::CONSUMER)),    // version of the IP CM service
    (165..166, 0xd0, Refuses(RejReason::CONSUMER)),    // IP version: neither
    (165..166, 0x20, Refuses(RejReason::INVALID_GID)), // the other
    (165..166, 0x0f, Nothing),                         // reserved
    (166..168, 0xff, Shows(|terms, mad| terms.peer.remote.set_port(be(mad, 166..168) as u16))),
    (200..256, 0xff, Shows(|terms, mad| terms.tells(&mad[200..]))),
];

/// The addresses in the header of the IP CM service, by family.
const ADDRESSES: [[Part; 4]; 2] = [
    [
        (168..180, 0xff, Nothing),
        (180..184, 0xff, Refuses(RejReason::INVALID_GID)),
        (184..196, 0xff, Nothing),
        (196..200, 0xff, Refuses(RejReason::INVALID_GID)),
    ],
    [
        (168..176, 0xff, Refuses(RejReason::INVALID_GID)),
        (176..184, 0xff, Refuses(RejReason::INVALID_GID)),
        (184..192, 0xff, Refuses(RejReason::INVALID_GID)),
        (192..200, 0xff, Refuses(RejReason::INVALID_GID)),
    ],
];

const REP: [Part; 15] = [
    (24..28, 0xff, Shows(|terms, mad| terms.name(be(mad, 24..28)))),
    (28..32, 0xff, Drops),   // our ID
    (32..36, 0xff, Nothing), // Q_Key
    (36..39, 0xff, Names(36, &Drops)),
    (39..44, 0xff, Nothing), // vendor, EECN
    (44..47, 0xff, Shows(|terms, mad| terms.peer.starting_psn = Psn::new(be(mad, 44..47)))),
    (47..48, 0xff, Nothing), // vendor
    (48..49, 0xff, Shows(|terms, mad| terms.outbound(mad[48]))),
    (49..50, 0xff, Shows(|terms, mad| terms.inbound(mad[49]))),
    (50..51, 0xf8, Shows(|terms, mad| terms.peer.ack_timeout_code = with_delay(mad[50] >> 3))),
    (50..51, 0x07, Nothing), // failover, end-to-end flow control
    (51..52, 0xe0, Shows(|terms, mad| terms.peer.rnr_retry = mad[51] >> 5)),
    (51..52, 0x1f, Nothing), // shared receives, reserved
    (52..60, 0xff, Nothing), // GUID
    (60..256, 0xff, Shows(|terms, mad| terms.tells(&mad[60..]))),
];

/// Our own settings, below what P asks for.
const ACK_TIMEOUT: u8 = 8;
const RETRIES: u8 = 3;

fn settings() -> CmConfig {
    CmConfig { ack_timeout_code: ACK_TIMEOUT, retry_count: RETRIES, ..config() }
}

fn be(mad: &[u8; MAD_LEN], bytes: Range<usize>) -> u32 {
    mad[bytes].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// No shorter than ours, no longer than the limit; 0 is for ever, and so the limit.
fn ack_timeout(code: u8) -> u8 {
    let longest = settings().peer_limits.ack_timeout_max;
    if code == 0 { longest } else { code.clamp(ACK_TIMEOUT, longest) }
}

/// The sum of our timeout and the peer's delay, as a power of two.
fn with_delay(code: u8) -> u8 {
    ack_timeout(code.max(ACK_TIMEOUT) + u8::from(code.abs_diff(ACK_TIMEOUT) <= 1))
}

/// When a REP is sent again: the pauses double from half a second up to what the REQ said.
fn resends(code: u8) -> Vec<u128> {
    let config = settings();
    let longest = crate::env::code_duration(code).min(config.connect_limit);
    let pauses = (0..config.max_retries).scan(config.first_resend, |pause, _| {
        let now = *pause;
        *pause = (now * 2).min(longest).max(config.first_resend);
        Some(now)
    });
    let times = pauses.scan(Duration::ZERO, |at, pause| {
        *at += pause;
        (*at < config.connect_limit).then_some(at.as_millis())
    });
    times.collect()
}

impl Terms {
    /// The peer's communication ID.
    fn name(&mut self, id: u32) {
        match &mut self.answer {
            CmMessage::Rep(rep) => rep.remote_comm_id = CommId::new(id),
            CmMessage::Rtu(rtu) => rtu.remote_comm_id = CommId::new(id),
            other => panic!("{other:?}"),
        }
    }

    /// The READs that the peer serves.
    fn outbound(&mut self, resources: u8) {
        let CmConfig { limits: port, .. } = settings();
        // Connecting, our consumer has said what it wants.
        let own = if matches!(self.answer, CmMessage::Rtu(_)) { LIMITS } else { port };
        self.peer.limits.outbound = resources.min(own.outbound);
        if let CmMessage::Rep(rep) = &mut self.answer {
            rep.initiator_depth = resources.min(LIMITS.outbound);
        }
    }

    /// The READs that the peer asks for.
    fn inbound(&mut self, depth: u8) {
        let CmConfig { limits: port, .. } = settings();
        let own = if matches!(self.answer, CmMessage::Rtu(_)) { LIMITS } else { port };
        self.peer.limits.inbound = depth.min(own.inbound);
        if let CmMessage::Rep(rep) = &mut self.answer {
            rep.responder_resources = depth.min(LIMITS.inbound);
        }
    }

    fn tells(&mut self, data: &[u8]) {
        self.private_data = data.iter().copied().collect();
    }
}

fn bytes_of(message: &CmMessage) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    let header = MadHeader { transaction_id: P_TRANSACTION, ..MadHeader::default() };
    emit_mad(&header, message, &mut mad);
    mad
}

/// D listens, gets the datagram, and accepts what it says; or what D sends instead.
fn accept(bench: &mut Bench, mad: &[u8; MAD_LEN]) -> Result<Terms, Vec<CmMessage>> {
    bench.deliver_mad(bench.p, mad);
    let events = bench.events();
    let [CmEvent::ConnectRequest { conn, peer, private_data, .. }] = &events[..] else {
        assert_eq!(events, []);
        return Err(bench.sent());
    };
    yes(&mut bench.cm, bench.now, *conn).unwrap();
    let (answer, start) = (bench.sent_one(), bench.now);
    // The REJ with which D gives up comes a second later.
    bench.advance(settings().connect_limit - secs(1));
    let again = bench.log.iter().map(|(at, _)| at.saturating_since(start).as_millis()).collect();
    assert!(bench.log.iter().all(|(_, message)| *message == answer));
    Ok(Terms { peer: peer.clone(), private_data: private_data.clone(), answer, again })
}

/// D's REQ is answered by the datagram, and confirms it; or what D sends instead.
fn confirm(bench: &mut Bench, mad: &[u8; MAD_LEN]) -> Result<Terms, Vec<CmMessage>> {
    bench.deliver_mad(bench.p, mad);
    let events = bench.events();
    let [CmEvent::Connected { conn, peer, private_data }] = &events[..] else {
        assert_eq!(events, []);
        return Err(bench.sent());
    };
    bench.cm.confirm(bench.now, *conn).unwrap();
    let (peer, private_data) = (peer.clone(), private_data.clone());
    Ok(Terms { peer, private_data, answer: bench.sent_one(), again: vec![] })
}

/// A side before the datagram comes, the legal datagram, and what the side does with one.
struct Side {
    open: fn(&mut Bench) -> CmMessage,
    take: fn(&mut Bench, &[u8; MAD_LEN]) -> Result<Terms, Vec<CmMessage>>,
}

const PASSIVE: Side = Side {
    open: |bench| {
        bench.listen();
        CmMessage::Req(bench.req())
    },
    take: accept,
};

const ACTIVE: Side = Side {
    open: |bench| {
        let id = bench.connect().1.local_comm_id;
        CmMessage::Rep(bench.rep(id))
    },
    take: confirm,
};

/// Tries all other values of all fields.
fn each_field(side: &Side, parts: impl Fn(&Bench) -> Vec<Part>) {
    for (d, p) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let open = || {
            let mut bench = Bench::new(settings(), d, p);
            let mad = bytes_of(&(side.open)(&mut bench));
            (bench, mad)
        };
        let (mut bench, mad) = open();
        let right = (side.take)(&mut bench, &mad).expect("it is legal");
        for (bytes, mask, does) in parts(&bench) {
            for other in neighbours(&mad, &bytes, mask) {
                let what = std::format!("{bytes:?} {mask:#x}: {:x?}", &other[bytes.clone()]);
                meets(side, open().0, (does, &right, &mad), &other, &what);
            }
        }
    }
}

/// Another value does what its field says.
fn meets(
    side: &Side,
    mut bench: Bench,
    (does, right, mad): (Does, &Terms, &[u8; MAD_LEN]),
    other: &[u8; MAD_LEN],
    what: &str,
) {
    let before = counted(&bench.cm);
    let outcome = (side.take)(&mut bench, other);
    let does = match does {
        Names(at, otherwise) if !Qpn::new(be(other, at..at + 3)).is_connectable() => *otherwise,
        does => does,
    };
    match does {
        Nothing => assert_eq!(outcome.as_ref(), Ok(right), "{what}"),
        Shows(change) => {
            let mut terms = right.clone();
            change(&mut terms, other);
            assert_eq!(outcome, Ok(terms), "{what}");
        }
        Names(at, _) => {
            let mut terms = right.clone();
            terms.peer.qpn = Qpn::new(be(other, at..at + 3));
            assert_eq!(outcome, Ok(terms), "{what}");
        }
        Drops => {
            assert_eq!((outcome, counted(&bench.cm)), (Err(vec![]), before + 1), "{what}");
            assert_eq!((side.take)(&mut bench, mad).as_ref(), Ok(right), "after {what}");
        }
        Refuses(reason) => {
            let sent = outcome.expect_err(what);
            let [CmMessage::Rej(rej)] = &sent[..] else { panic!("{what}: {sent:?}") };
            let ids = (rej.local_comm_id, rej.remote_comm_id);
            assert_eq!((rej.message, rej.reason), (RejMessage::Req, reason), "{what}");
            assert_eq!(ids, (CommId::default(), P_ID), "{what}");
            assert_eq!((side.take)(&mut bench, mad).as_ref(), Ok(right), "after {what}");
        }
    }
}

/// CM-01, CM-27, CM-28, CM-29.
#[test]
fn each_field_of_a_req_means_what_it_says() {
    each_field(&PASSIVE, |bench| {
        let addresses = &ADDRESSES[usize::from(bench.d.is_ipv6())];
        HEADER.iter().chain(&REQ).chain(addresses).cloned().collect()
    });
}

#[test]
fn each_field_of_a_rep_means_what_it_says() {
    each_field(&ACTIVE, |_| HEADER.iter().chain(&REP).cloned().collect());
}
