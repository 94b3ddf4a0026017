//! Nothing grows with what peers send.

use super::*;
use proptest::prelude::*;
use std::vec;

/// A request like P's from another queue pair.
fn nth_req(bench: &Bench, n: u32) -> CmMessage {
    let (local_comm_id, local_qpn) = (CommId::new(n + 1), Qpn::new(n + 0x100));
    CmMessage::Req(Req { local_comm_id, local_qpn, ..bench.req() })
}

#[test]
fn the_backlog_is_silent_then_refuses() {
    let mut bench = Bench::v4(config());
    bench.cm.listen(SocketAddr::new(bench.d, PORT), 4).unwrap();
    for n in 0..4 {
        bench.deliver(&nth_req(&bench, n));
    }
    let events = bench.events();
    assert_eq!(events.len(), 4);
    for n in 4..8 {
        let req = nth_req(&bench, n);
        bench.silent(&req);
    }
    // Those that come again take the places of others, then they are counted, and then refused.
    bench.repeated = true;
    for n in 4..8 {
        bench.deliver(&nth_req(&bench, n));
    }
    let ended = bench.events();
    let (ended, events): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|event| matches!(event, CmEvent::TimedOut { .. }));
    assert_eq!((ended.len(), events.len()), (4, 4));
    for n in 8..12 {
        let req = nth_req(&bench, n);
        bench.silent(&req);
    }
    bench.deliver(&nth_req(&bench, 12));
    assert_eq!(bench.sent_rej().reason, RejReason::NO_RESOURCES);
    bench.repeated = false;
    bench.cm.release(bench.now, events[0].conn());
    bench.sent();
    bench.events();
    bench.deliver(&nth_req(&bench, 19));
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    // A request that was refused waits no longer, though its consumer has not let it go.
    bench.silent(&nth_req(&bench, 20));
    bench.cm.reject(bench.now, events[1].conn(), &[]).unwrap();
    bench.sent();
    bench.deliver(&nth_req(&bench, 21));
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
}

#[test]
fn connections_are_limited() {
    let mut bench = Bench::v4(CmConfig { max_connections: 2, ..config() });
    bench.listen();
    let (first, _) = bench.connect();
    bench.deliver(&nth_req(&bench, 0));
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    bench.deliver(&nth_req(&bench, 1));
    assert_eq!(bench.sent_rej().reason, RejReason::NO_RESOURCES);
    let local = SocketAddr::new(bench.d, 50_001);
    let params = Connect { local, ..bench.connect_values() };
    assert_eq!(bench.cm.connect(bench.now, &params, D_QP.starting_psn), Err(CmError::Full));
    bench.cm.release(bench.now, first);
    assert_eq!(bench.event(), CmEvent::Closed { conn: first });
    bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
}

/// However many are accepted: those whose peer has proved nothing are bounded, and one that asks again takes the place of another.
#[test]
fn connections_without_a_proof_are_limited() {
    let mut bench = Bench::v4(CmConfig { max_unproven: 4, ..config() });
    bench.listen();
    let accept = |bench: &mut Bench, n: u32| {
        bench.deliver(&nth_req(bench, n));
        let asked = bench.events().into_iter().find_map(|event| match event {
            CmEvent::ConnectRequest { conn, .. } => Some(conn),
            _ => None,
        });
        if let Some(conn) = asked {
            yes(&mut bench.cm, bench.now, conn).unwrap();
        }
        bench.sent();
        asked
    };
    let first: Vec<_> = (0..4).map(|n| accept(&mut bench, n).unwrap()).collect();
    assert_eq!(accept(&mut bench, 4), None);
    // A peer that is proved has left the list.
    bench.cm.established_by_data(bench.now, first[0]);
    bench.events();
    assert!(accept(&mut bench, 5).is_some());
    assert_eq!(accept(&mut bench, 6), None);
    bench.repeated = true;
    for n in 7..11 {
        assert!(accept(&mut bench, n).is_some(), "{n}");
        assert_eq!(bench.cm.conns.unproven.len(), 4);
    }
    // All have asked twice now, and are young.
    assert_eq!(accept(&mut bench, 11), None);
    bench.now = bench.now + secs(2);
    assert!(accept(&mut bench, 12).is_some());
    assert_eq!(bench.cm.conns.held(), 1 + 4 + 5, "their consumer has them still");
}

/// Only so many DREQs are resent for consumers that are gone.
#[test]
fn lingering_connections_are_limited() {
    let mut bench = Bench::v4(CmConfig { max_connections: 2, ..config() });
    bench.listen();
    for n in 0..50 {
        bench.deliver(&nth_req(&bench, n));
        let CmEvent::ConnectRequest { conn, .. } = bench.event() else { panic!("no request") };
        yes(&mut bench.cm, bench.now, conn).unwrap();
        bench.cm.established_by_data(bench.now, conn);
        bench.cm.release(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
        assert!(bench.cm.conns.lingering() <= 2 && bench.cm.conns.held() == 0);
    }
    assert_eq!(bench.cm.conns.lingering(), 2, "the others were given up");
    let dreqs = bench.sent().iter().filter(|m| matches!(m, CmMessage::Dreq(_))).count();
    assert_eq!(dreqs, 50, "each has said it once");
}

#[test]
fn messages_to_send_are_limited_and_made_up_for() {
    let mut bench = Bench::v4(CmConfig { max_transmits: 1, ..config() });
    let other = Connect { local: SocketAddr::new(bench.d, 50_001), ..bench.connect_values() };
    let params = bench.connect_values();
    bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
    bench.cm.connect(bench.now, &other, D_QP.starting_psn).unwrap();
    assert_eq!(bench.cm.counters.get(Counter::CmTransmitFull), 1);
    let CmMessage::Req(first) = bench.sent_one() else { panic!("no REQ") };
    bench.deliver(&CmMessage::Rep(bench.rep(first.local_comm_id)));
    bench.advance(ms(500));
    let CmMessage::Req(second) = bench.sent_one() else { panic!("no REQ") };
    assert_ne!(first.local_comm_id, second.local_comm_id);
}

/// A request that the consumer has not seen ends with its listener; one that it has seen stays.
#[test]
fn unlisten_refuses_what_was_not_seen() {
    let mut bench = Bench::v4(config());
    let listener = bench.listen();
    bench.deliver(&nth_req(&bench, 0));
    let seen = bench.event().conn();
    bench.deliver(&nth_req(&bench, 1));
    bench.cm.unlisten(listener);
    let rej = bench.sent_rej();
    assert_eq!((rej.reason, rej.remote_comm_id.get()), (RejReason::INVALID_SERVICE_ID, 2));
    assert_eq!(bench.events(), []);
    assert_eq!(bench.cm.conns.held(), 1);
    yes(&mut bench.cm, bench.now, seen).unwrap();
    assert!(matches!(bench.sent_one(), CmMessage::Rep(_)));
    bench.deliver(&nth_req(&bench, 1));
    assert_eq!(bench.sent_rej().reason, RejReason::INVALID_SERVICE_ID);
    bench.cm.unlisten(listener);
    assert_ne!(bench.listen(), listener);
}

/// Goal: a flood of requests, from one source and from many, costs memory within the backlog, and
/// the listener works again at once.
/// Method: 10^5 requests, no answer taken; then the consumer drops what it was given.
#[test]
fn cm_30_a_flood_is_bounded() {
    let mut bench = Bench::v4(config());
    bench.listen();
    let mut mad = [0; MAD_LEN];
    for n in 0..100_000_u32 {
        if n % 2 == 0 {
            bench.p = IpAddr::V4((0x0a00_0100 + n).into());
        }
        emit_mad(&MadHeader::default(), &nth_req(&bench, n), &mut mad);
        bench.deliver_mad(bench.p, &mad);
    }
    assert_eq!(bench.cm.conns.held(), 128);
    assert_eq!(bench.cm.conns.events(), 128);
    assert!(bench.cm.transmits.len() <= 1024);
    while bench.cm.poll_transmit().is_some() {}
    for event in bench.events() {
        bench.cm.release(bench.now, event.conn());
    }
    assert_eq!(bench.events().len(), 128);
    while bench.cm.poll_transmit().is_some() {}
    bench.deliver(&CmMessage::Req(bench.req()));
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    bench.advance(secs(10));
    assert_eq!(bench.cm.poll_timeout(), None);
}

#[test]
fn ended_connections_are_limited() {
    let mut bench = Bench::v4(CmConfig { max_time_wait: 3, ..config() });
    bench.listen();
    for n in 0..10 {
        bench.deliver(&nth_req(&bench, n));
        let conn = bench.event().conn();
        bench.cm.release(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
        bench.now = bench.now + ms(1);
    }
    bench.sent();
    // The last three are remembered, those before are new.
    for (n, new) in [(9, false), (7, false), (6, true), (0, true)] {
        bench.deliver(&nth_req(&bench, n));
        assert_eq!(bench.events().len(), usize::from(new), "request {n}");
    }
}

/// The next step of a consumer or a peer.
#[derive(Clone, Debug)]
enum Op {
    Connect,
    Confirm,
    Accept,
    Reject,
    Disconnect,
    Release,
    Data,
    Unlisten,
    Advance(u16),
    /// A message whose remote ID is that of a connection, if there is one.
    Message(u8, [u8; 3]),
    Raw(u16, Vec<u8>),
    Poll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Connect),
        2 => Just(Op::Confirm),
        3 => Just(Op::Accept),
        1 => Just(Op::Reject),
        2 => Just(Op::Disconnect),
        2 => Just(Op::Release),
        1 => Just(Op::Data),
        1 => Just(Op::Unlisten),
        3 => any::<u16>().prop_map(Op::Advance),
        12 => any::<(u8, [u8; 3])>().prop_map(|(kind, bytes)| Op::Message(kind, bytes)),
        1 => (0x0f_u16..0x1c, prop::collection::vec(any::<u8>(), 232))
            .prop_map(|(attribute, body)| Op::Raw(attribute, body)),
        4 => Just(Op::Poll),
    ]
}

/// A consumer and a peer that do anything, and what the consumer was told.
struct Chaos {
    bench: Bench,
    listener: Option<ListenerId>,
    conns: Vec<ConnId>,
    told: Vec<(ConnId, core::mem::Discriminant<CmEvent>)>,
    closed: Vec<ConnId>,
    turn: u32,
}

impl Chaos {
    fn new() -> Self {
        let config =
            CmConfig { max_connections: 6, max_time_wait: 3, max_transmits: 5, ..config() };
        let bench = Bench::v4(config);
        let (conns, told, closed) = Default::default();
        Self { bench, listener: None, conns, told, closed, turn: 0 }
    }

    fn run(&mut self, op: &Op) {
        self.turn += 1;
        let now = self.bench.now;
        let conn = self.conns.get(self.turn as usize % self.conns.len().max(1)).copied();
        let cm = &mut self.bench.cm;
        match (op, conn) {
            (Op::Connect, _) => self.connect(),
            (Op::Unlisten, _) => self.unlisten(),
            (Op::Poll, _) => self.poll(),
            (Op::Advance(millis), _) => self.bench.advance(ms(u64::from(*millis))),
            (Op::Message(kind, bytes), _) => self.message(conn, *kind, *bytes),
            (Op::Raw(attribute, body), _) => {
                let mut mad = [0; MAD_LEN];
                emit_mad(&MadHeader::default(), &rtu(P_ID), &mut mad);
                mad[16..18].copy_from_slice(&attribute.to_be_bytes());
                mad[24..].copy_from_slice(body);
                self.bench.deliver_mad(self.bench.p, &mad);
            }
            (_, None) => {}
            (Op::Confirm, Some(conn)) => drop(cm.confirm(now, conn)),
            (Op::Accept, Some(conn)) => drop(yes(cm, now, conn)),
            (Op::Reject, Some(conn)) => drop(cm.reject(now, conn, &[1])),
            (Op::Disconnect, Some(conn)) => drop(cm.disconnect(now, conn)),
            (Op::Data, Some(conn)) => cm.established_by_data(now, conn),
            (Op::Release, Some(conn)) => cm.release(now, conn),
        }
    }

    fn connect(&mut self) {
        let local = SocketAddr::new(self.bench.d, 50_000 + (self.turn % 8) as u16);
        let params = Connect { local, ..self.bench.connect_values() };
        self.conns.extend(self.bench.cm.connect(self.bench.now, &params, D_QP.starting_psn));
    }

    fn unlisten(&mut self) {
        match self.listener.take() {
            Some(listener) => self.bench.cm.unlisten(listener),
            None => self.listener = Some(self.bench.listen()),
        }
    }

    /// Each kind of event comes once for a connection, and `Closed` last.
    fn poll(&mut self) {
        while let Some(event) = self.bench.cm.poll_event() {
            let told = (event.conn(), core::mem::discriminant(&event));
            assert!(!self.told.contains(&told), "twice: {event:?}");
            assert!(!self.closed.contains(&event.conn()), "after Closed: {event:?}");
            self.told.push(told);
            match event {
                CmEvent::ConnectRequest { conn, .. } => self.conns.push(conn),
                CmEvent::Closed { conn } => {
                    self.closed.push(conn);
                    self.conns.retain(|held| *held != conn);
                }
                _ => {}
            }
        }
    }

    fn message(&mut self, conn: Option<ConnId>, kind: u8, [a, b, c]: [u8; 3]) {
        let known = conn.and_then(|conn| self.bench.cm.conns.get(conn));
        let d_id = known.map_or(CommId::new(u32::from(a)), |conn| conn.local_id);
        let p_id = known.and_then(|conn| conn.remote_id).unwrap_or(CommId::new(u32::from(b) + 1));
        let rej_message = [RejMessage::Req, RejMessage::Rep, RejMessage::Other][usize::from(a % 3)];
        let mut message = match kind % 8 {
            0 => nth_req(&self.bench, u32::from(a % 4)),
            1 => CmMessage::Rep(Rep { local_qpn: Qpn::new(u32::from(c)), ..self.bench.rep(d_id) }),
            2 => rtu(d_id),
            3 => rej(d_id, rej_message, RejReason(u16::from(c % 32))),
            4 => mra(d_id, if a < 128 { MraMessage::Req } else { MraMessage::Rep }, c & 0x1f),
            5 => dreq(d_id),
            6 => drep(d_id),
            _ => {
                let req = nth_req(&self.bench, u32::from(a % 4));
                let CmMessage::Req(req) = req else { unreachable!() };
                CmMessage::Req(Req { starting_psn: Psn::new(u32::from(c)), ..req })
            }
        };
        match &mut message {
            CmMessage::Rep(Rep { local_comm_id, .. })
            | CmMessage::Rtu(Rtu { local_comm_id, .. })
            | CmMessage::Rej(Rej { local_comm_id, .. })
            | CmMessage::Mra(Mra { local_comm_id, .. })
            | CmMessage::Dreq(Dreq { local_comm_id, .. })
            | CmMessage::Drep(Drep { local_comm_id, .. }) => *local_comm_id = p_id,
            CmMessage::Req(_) | CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => {}
        }
        self.bench.deliver(&message);
    }

    fn check_limits(&self) {
        let Cm { conns, transmits, .. } = &self.bench.cm;
        assert!(conns.held() <= 6 && conns.lingering() <= 12, "{conns:?}");
        assert!(conns.events() <= 18, "{conns:?}");
        assert!(transmits.len() <= 5);
    }

    /// The consumer lets everything go; nothing of it may be left.
    fn end(mut self) {
        self.poll();
        for conn in self.conns.clone() {
            self.bench.cm.release(self.bench.now, conn);
        }
        self.poll();
        assert!(self.conns.is_empty(), "not closed: {:?}", self.conns);
        self.bench.advance(secs(30));
        assert!(self.bench.cm.conns.is_empty(), "{:?}", self.bench.cm.conns);
        assert_eq!(self.bench.cm.poll_event(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 400 },
        failure_persistence: None,
        ..Default::default()
    })]

    /// For any steps of consumer and peer: nothing panics, all limits hold, each kind of event comes once
    /// for a connection, and released connections leave nothing behind.
    #[test]
    fn anything_goes(ops in prop::collection::vec(op(), 0..120)) {
        let mut chaos = Chaos::new();
        chaos.unlisten();
        for op in &ops {
            chaos.run(op);
            chaos.check_limits();
            if let Some(due) = chaos.bench.cm.poll_timeout() {
                prop_assert!(due > chaos.bench.now || matches!(op, Op::Advance(_)));
            }
        }
        chaos.end();
    }

    /// Any bytes at all are survived.
    #[test]
    fn any_mad_is_survived(mad in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bench = Bench::v4(config());
        bench.passive();
        bench.deliver_mad(bench.p, &mad);
    }
}
