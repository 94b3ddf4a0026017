//! The connection manager against a peer made by hand. A test named after a case proves that case
//! of the conformance catalogue; "D" is the device under test, "P" its peer.

mod active;
mod limits;
mod make;
mod neighbours;
mod passive;
mod path_mtu;
mod private_data;
mod simulation;
mod teardown;
mod terms;

use super::*;
use crate::counters::Counter;
use crate::env::Duration;
use crate::ids::{CommId, Qpn};
use crate::psn::Psn;
use crate::wire::mad::{
    CmMessage, Drep, Dreq, GSI_QKEY, IpCm, MAD_LEN, MadHeader, Make, Mra, MraMessage, Path, Rej,
    RejMessage, RejReason, Rep, Req, Rtu, Transport, emit_mad, gid, parse_mad, service_id,
};
use crate::wire::{Bth, Deth, Encap, Ext, GSI_SOURCE_PORT, Mac, Opcode, Origin, Packet, Pmtu};
use std::vec::Vec;

const PORT: u16 = 7174;
const P_PORT: u16 = 0xc261;
const P_ID: CommId = CommId::new(0x8491_ed44);
const P_GUID: u64 = 0x5054_00ff_fe00_0002;
const P_QPN: Qpn = Qpn::new(0x77);
const NOT_CONNECTABLE: [Qpn; 3] = [Qpn::new(0), Qpn::new(1), Qpn::new(0xff_ffff)];
const P_PSN: Psn = Psn::new(0x60_0964);
const P_TRANSACTION: u64 = 0x2_44ed_9184;
const D_GUID: u64 = 0x5054_00ff_fe00_0001;
const D_QP: QpSide = QpSide { qpn: Qpn::new(0x11), starting_psn: Psn::new(0xe7_6ecc) };
const D_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const P_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const LIMITS: ReadLimits = ReadLimits { inbound: 8, outbound: 4 };

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn config() -> CmConfig {
    CmConfig { ca_guid: D_GUID, ..CmConfig::default() }
}

/// D's connection manager, a clock, and the addresses of D and P.
struct Bench {
    cm: Cm,
    now: Instant,
    d: IpAddr,
    p: IpAddr,
    /// P's messages come again, some time after they found no room.
    repeated: bool,
    /// All that D has sent since last asked, and when.
    log: Vec<(Instant, CmMessage)>,
}

/// Runs a case for each address family.
fn each_family(case: impl Fn(Bench)) {
    for (d, p) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2"), ("fe80::1", "fe80::2")] {
        case(Bench::new(config(), d, p));
    }
}

impl Bench {
    fn new(config: CmConfig, d: &str, p: &str) -> Self {
        Self {
            cm: *Cm::boxed(config, Rng::from_seed([7; 32]), Arc::default()),
            now: Instant::default() + secs(1000),
            d: d.parse().unwrap(),
            p: p.parse().unwrap(),
            repeated: false,
            log: Vec::new(),
        }
    }

    fn v4(config: CmConfig) -> Self {
        Self::new(config, "10.0.0.1", "10.0.0.2")
    }

    fn listen(&mut self) -> ListenerId {
        self.cm.listen(SocketAddr::new(self.d, PORT), 128).unwrap()
    }

    /// Moves the clock, firing each timer when it is due.
    fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.collect();
        while let Some(due) = self.cm.poll_timeout().filter(|due| *due <= end) {
            assert!(due >= self.now, "a timer in the past");
            self.now = due;
            self.cm.handle_timeout(due, |_| ());
            self.collect();
        }
        self.now = end;
    }

    fn collect(&mut self) {
        while let Some(CmTransmit { layers: Layers { encap, .. }, payload }) =
            self.cm.poll_transmit()
        {
            let expected = Encap {
                src_mac: D_MAC,
                dst_mac: P_MAC,
                vlan: Some(5),
                src: self.d,
                dst: encap.dst,
                traffic_class: 0,
                hop_limit: 64,
                ip_id: 0,
                flow_label: 0,
                src_port: GSI_SOURCE_PORT,
            };
            assert_eq!(encap, expected);
            let (_, message) = parse_mad(&payload).unwrap();
            self.log.push((self.now, message));
        }
    }

    /// The messages that D has sent since the last call.
    fn sent(&mut self) -> Vec<CmMessage> {
        self.collect();
        self.log.drain(..).map(|(_, message)| message).collect()
    }

    fn sent_one(&mut self) -> CmMessage {
        let sent = self.sent();
        let [message] = sent.as_slice() else { panic!("{sent:?}") };
        message.clone()
    }

    fn sent_rej(&mut self) -> Rej {
        let CmMessage::Rej(rej) = self.sent_one() else { panic!("no REJ") };
        rej
    }

    fn events(&mut self) -> Vec<CmEvent> {
        core::iter::from_fn(|| self.cm.poll_event()).collect()
    }

    fn event(&mut self) -> CmEvent {
        let events = self.events();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        event.clone()
    }

    fn deliver(&mut self, message: &CmMessage) {
        self.deliver_from(self.p, message);
    }

    fn deliver_from(&mut self, src: IpAddr, message: &CmMessage) {
        let mut mad = [0; MAD_LEN];
        let header = MadHeader { transaction_id: P_TRANSACTION, ..MadHeader::default() };
        emit_mad(&header, message, &mut mad);
        self.deliver_mad(src, &mad);
    }

    fn deliver_mad(&mut self, src: IpAddr, mad: &[u8]) {
        let encap = Encap {
            src_mac: P_MAC,
            dst_mac: D_MAC,
            vlan: Some(5),
            src,
            dst: self.d,
            // Congestion was experienced; nothing of it may be echoed.
            traffic_class: 3,
            hop_limit: 61,
            ip_id: 77,
            flow_label: 0,
            src_port: 0xc000,
        };
        let deth = Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI };
        let bth = Bth::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0));
        let packet = Packet { encap, bth, ext: Ext::Deth(deth), payload: mad };
        self.cm.handle_packet(self.now, &packet, self.repeated);
    }

    /// No packet, no event, exactly one counter moves.
    fn assert_silent(&mut self, deliver: impl FnOnce(&mut Self)) {
        assert_eq!((self.sent(), self.events()), Default::default(), "left from before");
        let before = counted(&self.cm);
        deliver(self);
        assert_eq!((self.sent(), self.events()), Default::default());
        assert_eq!(counted(&self.cm), before + 1);
    }

    fn silent(&mut self, message: &CmMessage) {
        self.assert_silent(|bench| bench.deliver(message));
    }

    // The messages of P.

    fn req(&self) -> Req {
        let ip_cm = IpCm { src_port: P_PORT, src: self.p, dst: self.d };
        let mut private_data = [0; 92];
        private_data[..IpCm::LEN].copy_from_slice(&ip_cm.emit());
        Req {
            local_comm_id: P_ID,
            vendor_id: 0,
            service_id: service_id(PORT),
            ca_guid: P_GUID,
            local_qkey: 0,
            local_qpn: P_QPN,
            responder_resources: 1,
            local_eecn: 0,
            initiator_depth: 1,
            remote_eecn: 0,
            remote_response_timeout: 20,
            transport: Transport::Rc,
            flow_control: false,
            starting_psn: P_PSN,
            local_response_timeout: 20,
            retry_count: 7,
            pkey: 0xffff,
            path_mtu: 3,
            rdc_exists: false,
            rnr_retry: 7,
            max_cm_retries: 15,
            srq: false,
            extended_transport: 0,
            primary: Path {
                local_lid: 0xffff,
                remote_lid: 0xffff,
                local_gid: gid(self.p),
                remote_gid: gid(self.d),
                flow_label: 0x7a5c5,
                packet_rate: 0,
                traffic_class: 0,
                hop_limit: 64,
                sl: 0,
                subnet_local: false,
                ack_timeout: 17,
            },
            alternate: NO_PATH,
            private_data,
        }
    }

    fn rep(&self, remote_comm_id: CommId) -> Rep {
        Rep {
            local_comm_id: P_ID,
            remote_comm_id,
            local_qkey: 0,
            local_qpn: P_QPN,
            vendor_id: 0,
            local_eecn: 0,
            starting_psn: P_PSN,
            responder_resources: 1,
            initiator_depth: 1,
            target_ack_delay: 15,
            failover_accepted: 0,
            flow_control: false,
            rnr_retry: 7,
            srq: false,
            ca_guid: P_GUID,
            private_data: [3; 196],
        }
    }

    // D's consumer.

    fn connect_values(&self) -> Connect<'static> {
        Connect {
            local: SocketAddr::new(self.d, 50_000),
            remote: SocketAddr::new(self.p, PORT),
            hop: Hop { src_mac: D_MAC, dst_mac: P_MAC, vlan: Some(5) },
            qpn: D_QP.qpn,
            limits: LIMITS,
            private_data: &[],
        }
    }

    fn connect(&mut self) -> (ConnId, Req) {
        let params = self.connect_values();
        let conn = self.cm.connect(self.now, &params, D_QP.starting_psn).unwrap();
        let CmMessage::Req(req) = self.sent_one() else { panic!("no REQ") };
        (conn, req)
    }

    /// Active side up to Connected.
    fn connected(&mut self) -> (ConnId, CommId) {
        let (conn, req) = self.connect();
        self.deliver(&CmMessage::Rep(self.rep(req.local_comm_id)));
        assert!(matches!(self.event(), CmEvent::Connected { conn: c, .. } if c == conn));
        (conn, req.local_comm_id)
    }

    /// Active side, established.
    fn active(&mut self) -> (ConnId, CommId) {
        let (conn, d_id) = self.connected();
        self.cm.confirm(self.now, conn).unwrap();
        assert!(matches!(self.sent_one(), CmMessage::Rtu(_)));
        (conn, d_id)
    }

    /// Passive side up to ConnectRequest.
    fn requested(&mut self) -> ConnId {
        self.listen();
        self.deliver(&CmMessage::Req(self.req()));
        let CmEvent::ConnectRequest { conn, .. } = self.event() else { panic!("no request") };
        conn
    }

    /// Passive side up to REP.
    fn replied(&mut self) -> (ConnId, Rep) {
        let conn = self.requested();
        yes(&mut self.cm, self.now, conn).unwrap();
        let CmMessage::Rep(rep) = self.sent_one() else { panic!("no REP") };
        (conn, rep)
    }

    /// Passive side, established.
    fn passive(&mut self) -> (ConnId, CommId) {
        let (conn, rep) = self.replied();
        self.deliver(&rtu(rep.local_comm_id));
        assert_eq!(self.event(), CmEvent::Established { conn });
        (conn, rep.local_comm_id)
    }

    /// Established, on either side.
    fn each_side(self, case: impl Fn(Bench, ConnId, CommId)) {
        let (d, p) = (std::format!("{}", self.d), std::format!("{}", self.p));
        for open in [Bench::active, Bench::passive] {
            let mut bench = Bench::new(config(), &d, &p);
            let (conn, d_id) = open(&mut bench);
            case(bench, conn, d_id);
        }
    }
}

/// An ID of ours names a connection for its peer alone: what others say of it has no share in the limits of connections.
#[test]
fn a_connection_is_known_to_its_peer_alone() {
    each_family(|bench| {
        bench.each_side(|bench, _, id| {
            assert!(bench.cm.knows(id, bench.p) && !bench.cm.knows(id, bench.d));
        });
    });
}

const NO_PATH: Path = Path {
    local_lid: 0,
    remote_lid: 0,
    local_gid: core::net::Ipv6Addr::UNSPECIFIED,
    remote_gid: core::net::Ipv6Addr::UNSPECIFIED,
    flow_label: 0,
    packet_rate: 0,
    traffic_class: 0,
    hop_limit: 0,
    sl: 0,
    subnet_local: false,
    ack_timeout: 0,
};

fn yes(cm: &mut Cm, now: Instant, conn: ConnId) -> Result<(), CmError> {
    cm.accept(now, conn, D_QP, LIMITS, b"yes")
}

fn rtu(remote_comm_id: CommId) -> CmMessage {
    CmMessage::Rtu(Rtu { local_comm_id: P_ID, remote_comm_id, private_data: [0; 224] })
}

fn rej(remote_comm_id: CommId, message: RejMessage, reason: RejReason) -> CmMessage {
    CmMessage::Rej(Rej {
        local_comm_id: P_ID,
        remote_comm_id,
        message,
        reason,
        ari_len: 0,
        ari: [0; 72],
        private_data: [9; 148],
    })
}

fn mra(remote_comm_id: CommId, message: MraMessage, service_timeout: u8) -> CmMessage {
    let private_data = [0; 222];
    CmMessage::Mra(Mra {
        local_comm_id: P_ID,
        remote_comm_id,
        message,
        service_timeout,
        private_data,
    })
}

fn dreq(remote_comm_id: CommId) -> CmMessage {
    let private_data = [0; 220];
    CmMessage::Dreq(Dreq {
        local_comm_id: P_ID,
        remote_comm_id,
        remote_qpn: D_QP.qpn,
        private_data,
    })
}

fn drep(remote_comm_id: CommId) -> CmMessage {
    CmMessage::Drep(Drep { local_comm_id: P_ID, remote_comm_id, private_data: [0; 224] })
}

fn counted(cm: &Cm) -> u64 {
    let counted = cm.counters.snapshot();
    let by_state = [Counter::CmUnknownId, Counter::CmUnexpected, Counter::CmPutOff];
    counted.dropped() + by_state.iter().map(|counter| counted[*counter]).sum::<u64>()
}
