//! What a peer names in REQ, REP and MRA, and how long it makes D wait then: no longer than the README says.

use crate::peer::*;
use proptest::prelude::*;
use rocev2::cm::{CmConfig, CmEvent, Hop, PeerLimits, ReadLimits};
use rocev2::env::{Duration, Instant};
use rocev2::ids::{CommId, Qpn, Rkey};
use rocev2::psn::Psn;
use rocev2::qp::{PostError, SendOp, SendWr, SgList, WcStatus, Window};
use rocev2::wire::Packet;
use rocev2::wire::mad::{CmMessage, Mra, MraMessage, Rep, Req, Rtu, Transport, parse_mad};
use rocev2::{Connect, Device, DeviceConfig, Event, LinkEnd, Opening};
use std::net::SocketAddr;

/// A round trip's worth beside what was agreed on.
const SLACK: Duration = Duration::from_secs(1);

/// D as it is by default, at work on one connection.
struct Waiting {
    d: Device,
    memory: Regions,
    now: Instant,
    qpn: Qpn,
    events: Vec<Event>,
    ended: usize,
}

impl Waiting {
    fn new(world: &World) -> Self {
        let mut d = Device::new(DeviceConfig {
            seed: [7; 32],
            addresses: vec![world.encap.dst],
            link: LinkEnd::default(),
            mtu: 1500,
            socket: false,
            max_qps: 8,
            max_mrs: 8,
            max_queued_mappings: None,
            max_reads: 8,
            retry_count: 7,
            opening: Opening::default(),
            dcqcn: None,
            window: Window::default(),
            reorder_pool: 4 << 20,
            short_ways: true,
            cm: CmConfig { ca_guid: 1, ..CmConfig::default() },
        });
        let qpn = d.create_qp(&qp(1, PD, None)).unwrap();
        let now = Instant::from_nanos(1_000_000);
        Self { d, memory: Regions::default(), now, qpn, events: vec![], ended: 0 }
    }

    fn give(&mut self, world: &World, message: &CmMessage) {
        self.d.handle_frame(self.now, &mad(&world.encap, message), None, &mut self.memory);
        self.collect();
    }

    /// What D sends, of connection management; P says nothing to the rest.
    fn collect(&mut self) -> Vec<CmMessage> {
        let (mut buf, mut messages) = (vec![0; 2000], vec![]);
        while let Some(unit) = self.d.poll_transmit(self.now, &mut buf, 1, &mut self.memory) {
            let packet = Packet::parse(&buf[..unit.len]).expect("a good packet");
            if packet.bth.dest_qpn == Qpn::GSI {
                messages.push(parse_mad(packet.payload).expect("a message").1);
            }
        }
        while let Some(done) = self.d.poll_completion() {
            assert_ne!(done.status, WcStatus::Success);
            self.ended += 1;
        }
        self.events.extend(std::iter::from_fn(|| self.d.poll_event()));
        messages
    }

    /// Lets the next deadline pass; false where there is none.
    fn wait(&mut self) -> bool {
        let Some(next) = self.d.poll_timeout() else { return false };
        self.now = self.now.max(next);
        self.d.handle_timeout(self.now);
        true
    }

    /// Posts one request of each kind to a peer that is silent; how long until all have ended.
    fn requests_end(&mut self) -> Duration {
        let (va, rkey) = (0, Rkey::new(1));
        let ops = [SendOp::Send, SendOp::Write { va, rkey }, SendOp::Read { va, rkey }];
        for (id, op) in ops.into_iter().enumerate() {
            let (id, sgl) = (id as u64, SgList::new());
            let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false };
            match self.d.post_send(self.qpn, wr) {
                Ok(()) => {}
                // The terms left none, and it ended here.
                Err(PostError::NoReads) => self.ended += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        let start = self.now;
        self.collect();
        while self.ended < ops.len() {
            assert!(
                self.wait(),
                "{} of {} ended, and nothing is waited for",
                self.ended,
                ops.len()
            );
            self.collect();
        }
        self.now.saturating_since(start)
    }

    fn event(&mut self) -> Option<CmEvent> {
        match self.events.pop() {
            Some(Event::Cm(event)) => Some(event),
            other => panic!("{other:?}"),
        }
    }
}

/// D accepts a REQ as it is, and P is silent from then on; how long D's requests last. `None`: refused.
fn after_req(world: &World, req: Req) -> Option<Duration> {
    let mut waiting = Waiting::new(world);
    let port = rocev2::wire::mad::service_port(req.service_id).expect("a port");
    let local = SocketAddr::new(world.encap.dst, port);
    waiting.d.listen(local, 8).unwrap();
    let local_comm_id = req.local_comm_id;
    waiting.give(world, &CmMessage::Req(req));
    if waiting.events.is_empty() {
        return None;
    }
    let Some(CmEvent::ConnectRequest { conn, .. }) = waiting.event() else { panic!("no request") };
    let limits = ReadLimits { inbound: 8, outbound: 8 };
    waiting.d.accept(waiting.now, conn, waiting.qpn, limits, b"").unwrap();
    let sent = waiting.collect();
    let [CmMessage::Rep(rep)] = &sent[..] else { panic!("{sent:?}") };
    let rtu = Rtu { local_comm_id, remote_comm_id: rep.local_comm_id, private_data: [0; 224] };
    waiting.give(world, &CmMessage::Rtu(rtu));
    assert!(matches!(waiting.event(), Some(CmEvent::Established { .. })));
    Some(waiting.requests_end())
}

/// Asks P for a connection.
fn asked(world: &World) -> (Waiting, rocev2::cm::ConnId, Req) {
    let mut waiting = Waiting::new(world);
    let request = Connect {
        qpn: waiting.qpn,
        local: SocketAddr::new(world.encap.dst, 50_000),
        remote: SocketAddr::new(world.encap.src, 445),
        hop: Hop { src_mac: world.encap.dst_mac, dst_mac: world.encap.src_mac, vlan: None },
        limits: ReadLimits { inbound: 8, outbound: 8 },
        private_data: b"",
    };
    let conn = waiting.d.connect(waiting.now, &request).unwrap();
    let sent = waiting.collect();
    let [CmMessage::Req(req)] = &sent[..] else { panic!("{sent:?}") };
    (waiting, conn, req.clone())
}

fn bound() -> Duration {
    PeerLimits::default().silence_limit() + SLACK
}

/// 0 stands for ever, and 31 for 2.4 hours, eight times; 1 for nothing.
#[test]
fn an_ack_timeout_for_ever_ends_and_one_of_nothing_lasts() {
    for v6 in [false, true] {
        let world = World::new(v6, TERMS);
        for (ack_timeout, retry_count) in [(0, 7), (31, 7), (0, 0), (31, 0), (1, 0), (1, 7)] {
            let terms = Terms { ack_timeout, retry_count, ..TERMS };
            let took = after_req(&world, req(&world.encap, 0, terms)).expect("accepted");
            let range = Duration::from_secs(10)..bound();
            assert!(range.contains(&took), "code {ack_timeout}, {retry_count} retries: {took:?}");
        }
    }
}

prop_compose! {
    /// All that a REQ names beside who it is from and whom it is for.
    fn terms_of_req()(
        (resources, depth) in any::<(u8, u8)>(),
        (remote_time, local_time, ack_timeout) in (0u8..32, 0u8..32, 0u8..32),
        (retry_count, rnr_retry, max_cm_retries) in (0u8..8, 0u8..8, 0u8..16),
        (psn, qpn, comm_id) in any::<(u32, u32, u32)>(),
        (pkey, qkey, vendor) in any::<(u16, u32, u32)>(),
        path_mtu in prop_oneof![4 => 1u8..=3, 1 => 0u8..16],
        transport in prop_oneof![9 => Just(Transport::Rc), 1 => Just(Transport::Uc)],
        (flow_label, traffic_class, hop_limit, packet_rate) in any::<(u32, u8, u8, u8)>(),
        (flow_control, rdc_exists, srq, subnet_local, sl) in any::<(bool, bool, bool, bool, u8)>(),
        (extended_transport, guid, eecn) in (0u8..8, any::<u64>(), any::<u32>()),
        private in any::<u8>(),
    ) -> Req {
        let world = World::new(false, TERMS);
        let mut req = req(&world.encap, 0, TERMS);
            (req.responder_resources, req.initiator_depth) = (resources, depth);
            (req.remote_response_timeout, req.local_response_timeout) = (remote_time, local_time);
            (req.retry_count, req.rnr_retry, req.max_cm_retries) =
                (retry_count, rnr_retry, max_cm_retries);
            (req.starting_psn, req.local_qpn) = (Psn::new(psn), Qpn::new(qpn));
            (req.local_comm_id, req.ca_guid) = (CommId::new(comm_id), guid);
            (req.pkey, req.local_qkey, req.vendor_id) = (pkey, qkey, vendor & 0xff_ffff);
            (req.path_mtu, req.transport) = (path_mtu, transport);
            (req.flow_control, req.rdc_exists, req.srq) = (flow_control, rdc_exists, srq);
            (req.extended_transport, req.local_eecn, req.remote_eecn) =
                (extended_transport, eecn & 0xff_ffff, eecn >> 8);
            req.primary.ack_timeout = ack_timeout;
            req.primary.flow_label = flow_label & 0xf_ffff;
            (req.primary.traffic_class, req.primary.hop_limit) = (traffic_class, hop_limit);
            (req.primary.packet_rate, req.primary.sl) = (packet_rate & 0x3f, sl & 0xf);
            req.primary.subnet_local = subnet_local;
            req.alternate = req.primary;
            req.private_data[36..].fill(private);
            req
    }
}

prop_compose! {
    /// All that a REP names beside the two IDs.
    fn terms_of_rep()(
        (resources, depth, private) in any::<(u8, u8, u8)>(),
        (target_ack_delay, rnr_retry, failover_accepted) in (0u8..32, 0u8..8, 0u8..4),
        (psn, qpn, qkey, ca_guid) in any::<(u32, u32, u32, u64)>(),
        (flow_control, srq) in any::<(bool, bool)>(),
    ) -> Rep {
        Rep {
            local_comm_id: CommId::new(0x77),
            remote_comm_id: CommId::new(0),
            local_qkey: qkey,
            local_qpn: Qpn::new(qpn),
            vendor_id: qkey >> 8,
            local_eecn: psn >> 8,
            starting_psn: Psn::new(psn),
            responder_resources: resources,
            initiator_depth: depth,
            target_ack_delay,
            failover_accepted,
            flow_control,
            rnr_retry,
            srq,
            ca_guid,
            private_data: [private; 196],
        }
    }
}

fn kind(kind: u8) -> MraMessage {
    [MraMessage::Req, MraMessage::Rep, MraMessage::Lap][usize::from(kind % 3)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// Each request ends within the README's bound, whatever the REQ named; none before ten seconds.
    #[test]
    fn whatever_a_req_names_requests_end_in_time(req in terms_of_req()) {
        let world = World::new(false, TERMS);
        if let Some(took) = after_req(&world, req) {
            prop_assert!(took <= bound(), "{took:?}");
            prop_assert!(took >= Duration::from_secs(10), "{took:?}");
        }
    }

    /// The same for REP.
    #[test]
    fn whatever_a_rep_names_requests_end_in_time(rep in terms_of_rep()) {
        let world = World::new(true, TERMS);
        let (mut waiting, conn, req) = asked(&world);
        waiting.give(&world, &CmMessage::Rep(Rep { remote_comm_id: req.local_comm_id, ..rep }));
        let connected = matches!(waiting.event(), Some(CmEvent::Connected { .. }));
        prop_assert!(connected);
        waiting.d.confirm(waiting.now, conn).unwrap();
        let took = waiting.requests_end();
        prop_assert!(took <= bound(), "{took:?}");
        prop_assert!(took >= Duration::from_secs(10), "{took:?}");
    }

    /// A connect ends in time, however many MRAs come and whatever they name.
    #[test]
    fn whatever_mras_name_a_connect_ends_in_time(
        mras in prop::collection::vec((any::<u8>(), 0u8..32, any::<u32>(), any::<u8>()), 1..20),
    ) {
        let world = World::new(false, TERMS);
        let (mut waiting, _, req) = asked(&world);
        let start = waiting.now;
        let mut turn = 0;
        while waiting.events.is_empty() {
            let (message, service_timeout, local, private) = mras[turn % mras.len()];
            waiting.give(&world, &CmMessage::Mra(Mra {
                local_comm_id: CommId::new(local),
                remote_comm_id: req.local_comm_id,
                message: kind(message),
                service_timeout,
                private_data: [private; 222],
            }));
            prop_assert!(waiting.wait(), "nothing is waited for");
            waiting.collect();
            turn += 1;
            prop_assert!(turn < 1000);
        }
        let timed_out = matches!(waiting.event(), Some(CmEvent::TimedOut { .. }));
        prop_assert!(timed_out);
        prop_assert!(waiting.now.saturating_since(start) <= PeerLimits::default().response_limit);
    }
}
