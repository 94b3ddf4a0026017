//! Connection management datagrams: the MAD header and the CM messages (IBTA ch. 12, Message
//! Formats).
//!
//! Field offsets count from the first byte after the MAD header. In every message "local" is the
//! sender. Bytes without a name are sent as 0 and ignored.

use super::DropReason;
use crate::ids::{CommId, MAX_CORES, Qpn, core_bits};
use crate::psn::Psn;
use core::net::Ipv6Addr;

pub use super::ip_cm::{IpCm, gid, gid_address, service_id, service_port};

/// Bytes of a management datagram, the whole payload of the packet.
pub const MAD_LEN: usize = 256;

/// The Q_Key of QP 1.
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The fields of the MAD header that differ among CM messages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MadHeader {
    /// The transaction ID: the same in all messages of one exchange.
    pub transaction_id: u64,
    /// Linux keeps option bits here; 0 otherwise.
    pub attribute_modifier: u32,
    /// The make of the sender, in the reserved bytes 18 and 19.
    pub make: Make,
    /// The upper bits of a QPN that name the sender's core ([`core_bits`]), of a
    /// [`Make::Keeper`]; 0 otherwise.
    pub core_bits: u8,
}

/// The make of an adapter, as far as it shows itself: a REQ and a REP of this crate do, as what both sides then know of
/// each other makes the repair of losses quick. Others send zeros there, and read nothing.
///
/// The vendor ID would not do: Linux's `librdmacm` returns the one that it received.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Make {
    /// This crate with a reorder buffer: it keeps the packets behind a gap, and no copy of a READ does harm, however
    /// late it comes.
    Keeper,
    /// Any other one.
    #[default]
    Other,
}

/// A connection management message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CmMessage {
    /// Request for communication.
    Req(Req),
    /// Reply to a request.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Reject.
    Rej(Rej),
    /// Message receipt acknowledgement: the response takes longer.
    Mra(Mra),
    /// Request for communication release.
    Dreq(Dreq),
    /// Reply to a release.
    Drep(Drep),
    /// Service ID resolution request.
    SidrReq(SidrReq),
    /// Service ID resolution response.
    SidrRep(SidrRep),
}

/// Request for communication.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Req {
    /// The sender's communication ID.
    pub local_comm_id: CommId,
    /// Vendor ID, 24 bits.
    pub vendor_id: u32,
    /// The service asked for; see [`service_port`].
    pub service_id: u64,
    /// The sender's channel adapter GUID.
    pub ca_guid: u64,
    /// 0 for RC.
    pub local_qkey: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// READs and atomics that the sender can serve at once.
    pub responder_resources: u8,
    /// 24 bits; 0 for RC.
    pub local_eecn: u32,
    /// READs and atomics that the sender wants to issue at once.
    pub initiator_depth: u8,
    /// 24 bits; 0 for RC.
    pub remote_eecn: u32,
    /// The response time of the receiver: 4.096 us * 2^n, 5 bits.
    pub remote_response_timeout: u8,
    /// The transport service.
    pub transport: Transport,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The PSN at which the *receiver* of this message starts to send.
    pub starting_psn: Psn,
    /// The response time of the sender: 4.096 us * 2^n, 5 bits.
    pub local_response_timeout: u8,
    /// Transport retries for the receiver's queue pair, 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// The path MTU's code as it came, 4 bits: a bad one is to be rejected, not dropped.
    pub path_mtu: u8,
    /// RDC exists; RD only.
    pub rdc_exists: bool,
    /// RNR retries for the receiver's queue pair, 3 bits; 7 is without limit.
    pub rnr_retry: u8,
    /// Resends of a CM message, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair takes its receives from a shared receive queue.
    pub srq: bool,
    /// 3 bits, with [`Transport::Extended`]: 1 is XRC.
    pub extended_transport: u8,
    /// The path to use.
    pub primary: Path,
    /// The path to fall back to; all zero where there is none.
    pub alternate: Path,
    /// The consumer's data, after the header of [`IpCm`] in that service.
    pub private_data: [u8; 92],
}

/// A path between two ports, as [`Req`] describes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Path {
    /// 0xffff on RoCE.
    pub local_lid: u16,
    /// 0xffff on RoCE.
    pub remote_lid: u16,
    /// The sender's GID; see [`gid`].
    pub local_gid: Ipv6Addr,
    /// The receiver's GID.
    pub remote_gid: Ipv6Addr,
    /// The flow label, 20 bits. It also determines the connection's UDP source port.
    pub flow_label: u32,
    /// 6 bits.
    pub packet_rate: u8,
    /// Traffic class of the connection's packets.
    pub traffic_class: u8,
    /// Hop limit of the connection's packets.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Whether both ports are in one subnet.
    pub subnet_local: bool,
    /// The receiver's ACK timeout: 4.096 us * 2^n, 5 bits.
    pub ack_timeout: u8,
}

/// The transport service that a [`Req`] asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum Transport {
    Rc = 0,
    Uc = 1,
    Rd = 2,
    Extended = 3,
}

/// Reply to a [`Req`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rep {
    /// The sender's communication ID.
    pub local_comm_id: CommId,
    /// The receiver's communication ID.
    pub remote_comm_id: CommId,
    /// 0 for RC.
    pub local_qkey: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// Vendor ID, 24 bits.
    pub vendor_id: u32,
    /// 24 bits; 0 for RC.
    pub local_eecn: u32,
    /// The PSN at which the *receiver* of this message starts to send.
    pub starting_psn: Psn,
    /// READs and atomics that the sender can serve at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will issue at once.
    pub initiator_depth: u8,
    /// The time in which the sender acknowledges a packet: 4.096 us * 2^n, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path was accepted, 2 bits.
    pub failover_accepted: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retries for the receiver's queue pair, 3 bits; 7 is without limit.
    pub rnr_retry: u8,
    /// The sender's queue pair takes its receives from a shared receive queue.
    pub srq: bool,
    /// The sender's channel adapter GUID.
    pub ca_guid: u64,
    /// The consumer's data.
    pub private_data: [u8; 196],
}

/// Ready to use: the active side has received the [`Rep`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rtu {
    /// The sender's communication ID.
    pub local_comm_id: CommId,
    /// The receiver's communication ID.
    pub remote_comm_id: CommId,
    /// The consumer's data.
    pub private_data: [u8; 224],
}

/// A refusal, or the end of a connection attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rej {
    /// The sender's communication ID; 0 where it has none.
    pub local_comm_id: CommId,
    /// The receiver's communication ID; 0 where the sender knows none.
    pub remote_comm_id: CommId,
    /// The message that is rejected.
    pub message: RejMessage,
    /// The reason.
    pub reason: RejReason,
    /// Bytes of `ari` that count, 7 bits.
    pub ari_len: u8,
    /// Additional reject information, whose meaning depends on the reason.
    pub ari: [u8; 72],
    /// The consumer's data.
    pub private_data: [u8; 148],
}

/// The message that a [`Rej`] rejects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum RejMessage {
    Req = 0,
    Rep = 1,
    /// None, or another one.
    Other = 2,
}

/// The reason of a [`Rej`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RejReason(pub u16);

/// The response to a [`Req`], [`Rep`] or LAP will take longer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mra {
    /// The sender's communication ID.
    pub local_comm_id: CommId,
    /// The receiver's communication ID.
    pub remote_comm_id: CommId,
    /// The message that has arrived.
    pub message: MraMessage,
    /// The additional time: 4.096 us * 2^n, 5 bits.
    pub service_timeout: u8,
    /// The consumer's data.
    pub private_data: [u8; 222],
}

/// The message that an [`Mra`] acknowledges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum MraMessage {
    Req = 0,
    Rep = 1,
    Lap = 2,
}

/// Request for communication release.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dreq {
    /// The sender's communication ID.
    pub local_comm_id: CommId,
    /// The receiver's communication ID.
    pub remote_comm_id: CommId,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// The consumer's data.
    pub private_data: [u8; 220],
}

/// Reply to a [`Dreq`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Drep {
    /// The sender's communication ID.
    pub local_comm_id: CommId,
    /// The receiver's communication ID.
    pub remote_comm_id: CommId,
    /// The consumer's data.
    pub private_data: [u8; 224],
}

/// Service ID resolution request: asks for a datagram queue pair.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SidrReq {
    /// Pairs the response with the request.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// The service asked for; see [`service_port`].
    pub service_id: u64,
    /// The consumer's data, after the header of [`IpCm`] in that service.
    pub private_data: [u8; 216],
}

/// Service ID resolution response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SidrRep {
    /// That of the [`SidrReq`].
    pub request_id: u32,
    /// 0, or the reason of a refusal: see [`SidrRep::UNSUPPORTED`].
    pub status: u8,
    /// Bytes of `info` that count.
    pub info_len: u8,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// The service asked for.
    pub service_id: u64,
    /// The Q_Key of `qpn`.
    pub qkey: u32,
    /// Additional information, whose meaning depends on the status.
    pub info: [u8; 72],
    /// The consumer's data.
    pub private_data: [u8; 136],
}

/// Reads a management datagram.
///
/// # Errors
/// [`DropReason::Mad`] where it is no CM datagram, has a reserved value or is not 256 bytes;
/// [`DropReason::MadAttribute`] where it is a CM message without meaning here, such as LAP and APR.
pub fn parse_mad(mad: &[u8]) -> Result<(MadHeader, CmMessage), DropReason> {
    let mad: &[u8; MAD_LEN] = mad.try_into().map_err(|_| DropReason::Mad)?;
    // Base version 1, communication management, class version 2, Send.
    if get::<0, 4, _>(mad) != PREAMBLE {
        return Err(DropReason::Mad);
    }
    let (make, core_bits) = match get::<18, 2, _>(mad) {
        [KEEPER, mark @ ONE_CORE..=MOST_CORES] => (Make::Keeper, mark - ONE_CORE),
        _ => (Make::Other, 0),
    };
    let header = MadHeader {
        transaction_id: u64::from_be_bytes(get::<8, _, _>(mad)),
        attribute_modifier: u32::from_be_bytes(get::<20, _, _>(mad)),
        make,
        core_bits,
    };
    let Some(body) = mad.last_chunk::<BODY_LEN>() else { return Err(DropReason::Mad) };
    let message = match u16::from_be_bytes(get::<16, _, _>(mad)) {
        REQ => CmMessage::Req(Req::parse(body)),
        MRA => CmMessage::Mra(Mra::parse(body)?),
        REJ => CmMessage::Rej(Rej::parse(body)?),
        REP => CmMessage::Rep(Rep::parse(body)),
        RTU => CmMessage::Rtu(Rtu::parse(body)),
        DREQ => CmMessage::Dreq(Dreq::parse(body)),
        DREP => CmMessage::Drep(Drep::parse(body)),
        SIDR_REQ => CmMessage::SidrReq(SidrReq::parse(body)),
        SIDR_REP => CmMessage::SidrRep(SidrRep::parse(body)),
        _ => return Err(DropReason::MadAttribute),
    };
    Ok((header, message))
}

/// Writes a management datagram, all 256 bytes of it.
pub fn emit_mad(header: &MadHeader, message: &CmMessage, mad: &mut [u8; MAD_LEN]) {
    let mut body = [0; BODY_LEN];
    let attribute = message.emit(&mut body);
    *mad = [0; MAD_LEN];
    set::<0, _, _>(mad, PREAMBLE);
    set::<8, _, _>(mad, header.transaction_id.to_be_bytes());
    set::<16, _, _>(mad, attribute.to_be_bytes());
    if header.make == Make::Keeper {
        debug_assert!(header.core_bits <= CORE_BITS_MAX);
        set::<18, _, _>(mad, [KEEPER, ONE_CORE + header.core_bits]);
    }
    set::<20, _, _>(mad, header.attribute_modifier.to_be_bytes());
    set::<24, _, _>(mad, body);
}

/// A private data field: `data`, then zeros. `None` where `data` is longer than the field.
pub fn private_data<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut field = [0; N];
    field.get_mut(..data.len())?.copy_from_slice(data);
    Some(field)
}

impl CmMessage {
    /// Its name in the specification (IBTA ch. 12).
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Rej(_) => "REJ",
            Self::Mra(_) => "MRA",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }

    /// Writes the message over zeros and returns its attribute ID.
    fn emit(&self, body: &mut Body) -> u16 {
        match self {
            Self::Req(req) => {
                req.emit(body);
                REQ
            }
            Self::Rep(rep) => {
                rep.emit(body);
                REP
            }
            Self::Rtu(rtu) => {
                emit_ids(rtu.local_comm_id, rtu.remote_comm_id, body);
                set::<8, _, _>(body, rtu.private_data);
                RTU
            }
            Self::Rej(rej) => {
                rej.emit(body);
                REJ
            }
            Self::Mra(mra) => {
                mra.emit(body);
                MRA
            }
            Self::Dreq(dreq) => {
                emit_ids(dreq.local_comm_id, dreq.remote_comm_id, body);
                set::<8, _, _>(body, to_u24(dreq.remote_qpn.get()));
                set::<12, _, _>(body, dreq.private_data);
                DREQ
            }
            Self::Drep(drep) => {
                emit_ids(drep.local_comm_id, drep.remote_comm_id, body);
                set::<8, _, _>(body, drep.private_data);
                DREP
            }
            Self::SidrReq(sidr_req) => {
                sidr_req.emit(body);
                SIDR_REQ
            }
            Self::SidrRep(sidr_rep) => {
                sidr_rep.emit(body);
                SIDR_REP
            }
        }
    }
}

impl Req {
    fn parse(body: &Body) -> Self {
        let [timeout_transport_flow] = get::<43, _, _>(body);
        let [timeout_retry] = get::<47, _, _>(body);
        let [mtu_rdc_rnr] = get::<50, _, _>(body);
        let [retries_srq_extended] = get::<51, _, _>(body);
        Self {
            local_comm_id: CommId::new(u32::from_be_bytes(get::<0, _, _>(body))),
            vendor_id: u24(get::<5, _, _>(body)),
            service_id: u64::from_be_bytes(get::<8, _, _>(body)),
            ca_guid: u64::from_be_bytes(get::<16, _, _>(body)),
            local_qkey: u32::from_be_bytes(get::<28, _, _>(body)),
            local_qpn: Qpn::new(u24(get::<32, _, _>(body))),
            responder_resources: u8::from_be_bytes(get::<35, _, _>(body)),
            local_eecn: u24(get::<36, _, _>(body)),
            initiator_depth: u8::from_be_bytes(get::<39, _, _>(body)),
            remote_eecn: u24(get::<40, _, _>(body)),
            remote_response_timeout: timeout_transport_flow >> 3,
            transport: Transport::from_bits(timeout_transport_flow >> 1),
            flow_control: timeout_transport_flow & 0x01 != 0,
            starting_psn: Psn::new(u24(get::<44, _, _>(body))),
            local_response_timeout: timeout_retry >> 3,
            retry_count: timeout_retry & 0x07,
            pkey: u16::from_be_bytes(get::<48, _, _>(body)),
            path_mtu: mtu_rdc_rnr >> 4,
            rdc_exists: mtu_rdc_rnr & 0x08 != 0,
            rnr_retry: mtu_rdc_rnr & 0x07,
            max_cm_retries: retries_srq_extended >> 4,
            srq: retries_srq_extended & 0x08 != 0,
            extended_transport: retries_srq_extended & 0x07,
            primary: Path::parse(&get::<52, _, _>(body)),
            alternate: Path::parse(&get::<96, _, _>(body)),
            private_data: get::<140, _, _>(body),
        }
    }

    fn emit(&self, body: &mut Body) {
        set::<0, _, _>(body, self.local_comm_id.get().to_be_bytes());
        set::<5, _, _>(body, to_u24(self.vendor_id));
        set::<8, _, _>(body, self.service_id.to_be_bytes());
        set::<16, _, _>(body, self.ca_guid.to_be_bytes());
        set::<28, _, _>(body, self.local_qkey.to_be_bytes());
        set::<32, _, _>(body, to_u24(self.local_qpn.get()));
        set::<35, _, _>(body, [self.responder_resources]);
        set::<36, _, _>(body, to_u24(self.local_eecn));
        set::<39, _, _>(body, [self.initiator_depth]);
        set::<40, _, _>(body, to_u24(self.remote_eecn));
        let transport_flow = (self.transport as u8) << 1 | u8::from(self.flow_control);
        set::<43, _, _>(body, [self.remote_response_timeout << 3 | transport_flow]);
        set::<44, _, _>(body, to_u24(self.starting_psn.get()));
        set::<47, _, _>(body, [self.local_response_timeout << 3 | self.retry_count & 0x07]);
        set::<48, _, _>(body, self.pkey.to_be_bytes());
        let rdc_rnr = u8::from(self.rdc_exists) << 3 | self.rnr_retry & 0x07;
        set::<50, _, _>(body, [self.path_mtu << 4 | rdc_rnr]);
        let srq_extended = u8::from(self.srq) << 3 | self.extended_transport & 0x07;
        set::<51, _, _>(body, [self.max_cm_retries << 4 | srq_extended]);
        set::<52, _, _>(body, self.primary.emit());
        set::<96, _, _>(body, self.alternate.emit());
        set::<140, _, _>(body, self.private_data);
    }
}

impl Path {
    /// No path.
    pub const NONE: Self = Self {
        local_lid: 0,
        remote_lid: 0,
        local_gid: Ipv6Addr::UNSPECIFIED,
        remote_gid: Ipv6Addr::UNSPECIFIED,
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 0,
        sl: 0,
        subnet_local: false,
        ack_timeout: 0,
    };

    fn parse(path: &[u8; PATH_LEN]) -> Self {
        let flow_label_rate = u32::from_be_bytes(get::<36, _, _>(path));
        let [traffic_class, hop_limit, sl_local, ack_timeout] = get::<40, _, _>(path);
        Self {
            local_lid: u16::from_be_bytes(get::<0, _, _>(path)),
            remote_lid: u16::from_be_bytes(get::<2, _, _>(path)),
            local_gid: Ipv6Addr::from_octets(get::<4, _, _>(path)),
            remote_gid: Ipv6Addr::from_octets(get::<20, _, _>(path)),
            flow_label: flow_label_rate >> 12,
            packet_rate: (flow_label_rate & 0x3f) as u8,
            traffic_class,
            hop_limit,
            sl: sl_local >> 4,
            subnet_local: sl_local & 0x08 != 0,
            ack_timeout: ack_timeout >> 3,
        }
    }

    fn emit(&self) -> [u8; PATH_LEN] {
        let mut path = [0; PATH_LEN];
        set::<0, _, _>(&mut path, self.local_lid.to_be_bytes());
        set::<2, _, _>(&mut path, self.remote_lid.to_be_bytes());
        set::<4, _, _>(&mut path, self.local_gid.octets());
        set::<20, _, _>(&mut path, self.remote_gid.octets());
        let flow_label_rate = self.flow_label << 12 | u32::from(self.packet_rate & 0x3f);
        set::<36, _, _>(&mut path, flow_label_rate.to_be_bytes());
        let sl_local = self.sl << 4 | u8::from(self.subnet_local) << 3;
        let tail = [self.traffic_class, self.hop_limit, sl_local, self.ack_timeout << 3];
        set::<40, _, _>(&mut path, tail);
        path
    }
}

impl Transport {
    /// From the low two bits.
    const fn from_bits(bits: u8) -> Self {
        match bits & 0x03 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }
}

impl Rep {
    fn parse(body: &Body) -> Self {
        let [delay_failover_flow, rnr_srq] = get::<26, _, _>(body);
        let ([v0], [v1], [v2]) =
            (get::<15, _, _>(body), get::<19, _, _>(body), get::<23, _, _>(body));
        Self {
            local_comm_id: local_comm_id(body),
            remote_comm_id: remote_comm_id(body),
            local_qkey: u32::from_be_bytes(get::<8, _, _>(body)),
            local_qpn: Qpn::new(u24(get::<12, _, _>(body))),
            vendor_id: u24([v0, v1, v2]),
            local_eecn: u24(get::<16, _, _>(body)),
            starting_psn: Psn::new(u24(get::<20, _, _>(body))),
            responder_resources: u8::from_be_bytes(get::<24, _, _>(body)),
            initiator_depth: u8::from_be_bytes(get::<25, _, _>(body)),
            target_ack_delay: delay_failover_flow >> 3,
            failover_accepted: delay_failover_flow >> 1 & 0x03,
            flow_control: delay_failover_flow & 0x01 != 0,
            rnr_retry: rnr_srq >> 5,
            srq: rnr_srq & 0x10 != 0,
            ca_guid: u64::from_be_bytes(get::<28, _, _>(body)),
            private_data: get::<36, _, _>(body),
        }
    }

    fn emit(&self, body: &mut Body) {
        emit_ids(self.local_comm_id, self.remote_comm_id, body);
        set::<8, _, _>(body, self.local_qkey.to_be_bytes());
        set::<12, _, _>(body, to_u24(self.local_qpn.get()));
        // One byte each in the gaps that three 24-bit fields leave.
        let [v0, v1, v2] = to_u24(self.vendor_id);
        set::<15, _, _>(body, [v0]);
        set::<16, _, _>(body, to_u24(self.local_eecn));
        set::<19, _, _>(body, [v1]);
        set::<20, _, _>(body, to_u24(self.starting_psn.get()));
        set::<23, _, _>(body, [v2]);
        set::<24, _, _>(body, [self.responder_resources, self.initiator_depth]);
        let failover_flow = (self.failover_accepted & 0x03) << 1 | u8::from(self.flow_control);
        let rnr_srq = self.rnr_retry << 5 | u8::from(self.srq) << 4;
        set::<26, _, _>(body, [self.target_ack_delay << 3 | failover_flow, rnr_srq]);
        set::<28, _, _>(body, self.ca_guid.to_be_bytes());
        set::<36, _, _>(body, self.private_data);
    }
}

impl Rtu {
    fn parse(body: &Body) -> Self {
        Self {
            local_comm_id: local_comm_id(body),
            remote_comm_id: remote_comm_id(body),
            private_data: get::<8, _, _>(body),
        }
    }
}

impl Rej {
    /// The additional reject information; never longer than its field, whatever the peer claims.
    pub fn ari(&self) -> &[u8] {
        self.ari.get(..usize::from(self.ari_len)).unwrap_or(&self.ari)
    }

    fn parse(body: &Body) -> Result<Self, DropReason> {
        let [message, ari_len] = get::<8, _, _>(body);
        Ok(Self {
            local_comm_id: local_comm_id(body),
            remote_comm_id: remote_comm_id(body),
            message: match message >> 6 {
                0 => RejMessage::Req,
                1 => RejMessage::Rep,
                2 => RejMessage::Other,
                _ => return Err(DropReason::Mad),
            },
            reason: RejReason(u16::from_be_bytes(get::<10, _, _>(body))),
            ari_len: ari_len >> 1,
            ari: get::<12, _, _>(body),
            private_data: get::<84, _, _>(body),
        })
    }

    fn emit(&self, body: &mut Body) {
        emit_ids(self.local_comm_id, self.remote_comm_id, body);
        set::<8, _, _>(body, [(self.message as u8) << 6, self.ari_len << 1]);
        set::<10, _, _>(body, self.reason.0.to_be_bytes());
        set::<12, _, _>(body, self.ari);
        set::<84, _, _>(body, self.private_data);
    }
}

#[expect(missing_docs, reason = "the specification's names")]
impl RejReason {
    pub const NO_QP: Self = Self(1);
    pub const NO_EEC: Self = Self(2);
    pub const NO_RESOURCES: Self = Self(3);
    pub const TIMEOUT: Self = Self(4);
    pub const UNSUPPORTED: Self = Self(5);
    pub const INVALID_COMM_ID: Self = Self(6);
    pub const INVALID_COMM_INSTANCE: Self = Self(7);
    /// No listener.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    pub const INVALID_TRANSPORT: Self = Self(9);
    pub const STALE_CONNECTION: Self = Self(10);
    pub const RDC_DOES_NOT_EXIST: Self = Self(11);
    pub const INVALID_GID: Self = Self(12);
    pub const INVALID_LID: Self = Self(13);
    pub const INVALID_SL: Self = Self(14);
    pub const INVALID_TRAFFIC_CLASS: Self = Self(15);
    pub const INVALID_HOP_LIMIT: Self = Self(16);
    pub const INVALID_PACKET_RATE: Self = Self(17);
    pub const INVALID_ALT_GID: Self = Self(18);
    pub const INVALID_ALT_LID: Self = Self(19);
    pub const INVALID_ALT_SL: Self = Self(20);
    pub const INVALID_ALT_TRAFFIC_CLASS: Self = Self(21);
    pub const INVALID_ALT_HOP_LIMIT: Self = Self(22);
    pub const INVALID_ALT_PACKET_RATE: Self = Self(23);
    pub const PORT_CM_REDIRECT: Self = Self(24);
    pub const PORT_REDIRECT: Self = Self(25);
    pub const INVALID_MTU: Self = Self(26);
    pub const INSUFFICIENT_RESPONDER_RESOURCES: Self = Self(27);
    /// The consumer rejected.
    pub const CONSUMER: Self = Self(28);
    pub const INVALID_RNR_RETRY: Self = Self(29);
    pub const DUPLICATE_LOCAL_COMM_ID: Self = Self(30);
    pub const INVALID_CLASS_VERSION: Self = Self(31);
    pub const INVALID_FLOW_LABEL: Self = Self(32);
    pub const INVALID_ALT_FLOW_LABEL: Self = Self(33);
    pub const VENDOR_OPTION: Self = Self(35);
}

impl Mra {
    fn parse(body: &Body) -> Result<Self, DropReason> {
        let [message, service_timeout] = get::<8, _, _>(body);
        Ok(Self {
            local_comm_id: local_comm_id(body),
            remote_comm_id: remote_comm_id(body),
            message: match message >> 6 {
                0 => MraMessage::Req,
                1 => MraMessage::Rep,
                2 => MraMessage::Lap,
                _ => return Err(DropReason::Mad),
            },
            service_timeout: service_timeout >> 3,
            private_data: get::<10, _, _>(body),
        })
    }

    fn emit(&self, body: &mut Body) {
        emit_ids(self.local_comm_id, self.remote_comm_id, body);
        set::<8, _, _>(body, [(self.message as u8) << 6, self.service_timeout << 3]);
        set::<10, _, _>(body, self.private_data);
    }
}

impl Dreq {
    fn parse(body: &Body) -> Self {
        Self {
            local_comm_id: local_comm_id(body),
            remote_comm_id: remote_comm_id(body),
            remote_qpn: Qpn::new(u24(get::<8, _, _>(body))),
            private_data: get::<12, _, _>(body),
        }
    }
}

impl Drep {
    fn parse(body: &Body) -> Self {
        Self {
            local_comm_id: local_comm_id(body),
            remote_comm_id: remote_comm_id(body),
            private_data: get::<8, _, _>(body),
        }
    }
}

impl SidrReq {
    fn parse(body: &Body) -> Self {
        Self {
            request_id: u32::from_be_bytes(get::<0, _, _>(body)),
            pkey: u16::from_be_bytes(get::<4, _, _>(body)),
            service_id: u64::from_be_bytes(get::<8, _, _>(body)),
            private_data: get::<16, _, _>(body),
        }
    }

    fn emit(&self, body: &mut Body) {
        set::<0, _, _>(body, self.request_id.to_be_bytes());
        set::<4, _, _>(body, self.pkey.to_be_bytes());
        set::<8, _, _>(body, self.service_id.to_be_bytes());
        set::<16, _, _>(body, self.private_data);
    }
}

impl SidrRep {
    /// The status of a responder without datagram services.
    pub const UNSUPPORTED: u8 = 1;

    fn parse(body: &Body) -> Self {
        let [status, info_len] = get::<4, _, _>(body);
        Self {
            request_id: u32::from_be_bytes(get::<0, _, _>(body)),
            status,
            info_len,
            qpn: Qpn::new(u24(get::<8, _, _>(body))),
            service_id: u64::from_be_bytes(get::<12, _, _>(body)),
            qkey: u32::from_be_bytes(get::<20, _, _>(body)),
            info: get::<24, _, _>(body),
            private_data: get::<96, _, _>(body),
        }
    }

    fn emit(&self, body: &mut Body) {
        set::<0, _, _>(body, self.request_id.to_be_bytes());
        set::<4, _, _>(body, [self.status, self.info_len]);
        set::<8, _, _>(body, to_u24(self.qpn.get()));
        set::<12, _, _>(body, self.service_id.to_be_bytes());
        set::<20, _, _>(body, self.qkey.to_be_bytes());
        set::<24, _, _>(body, self.info);
        set::<96, _, _>(body, self.private_data);
    }
}

fn local_comm_id(body: &Body) -> CommId {
    CommId::new(u32::from_be_bytes(get::<0, _, _>(body)))
}

fn remote_comm_id(body: &Body) -> CommId {
    CommId::new(u32::from_be_bytes(get::<4, _, _>(body)))
}

fn emit_ids(local: CommId, remote: CommId, body: &mut Body) {
    set::<0, _, _>(body, local.get().to_be_bytes());
    set::<4, _, _>(body, remote.get().to_be_bytes());
}

/// The `N` bytes at offset `AT`. The compiler checks that they are inside.
pub(super) fn get<const AT: usize, const N: usize, const M: usize>(bytes: &[u8; M]) -> [u8; N] {
    const { assert!(AT + N <= M) };
    let mut field = [0; N];
    field.copy_from_slice(&bytes[AT..AT + N]);
    field
}

/// Stores `field` at offset `AT`. The compiler checks that it ends inside.
pub(super) fn set<const AT: usize, const N: usize, const M: usize>(
    bytes: &mut [u8; M],
    field: [u8; N],
) {
    const { assert!(AT + N <= M) };
    bytes[AT..AT + N].copy_from_slice(&field);
}

fn u24([b0, b1, b2]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, b0, b1, b2])
}

fn to_u24(value: u32) -> [u8; 3] {
    let [_, b0, b1, b2] = value.to_be_bytes();
    [b0, b1, b2]
}

/// The bytes after the MAD header.
type Body = [u8; BODY_LEN];

const BODY_LEN: usize = 232;

const PATH_LEN: usize = 44;

const PREAMBLE: [u8; 4] = [1, 7, 2, 3];

/// The mark of [`Make::Keeper`] is two letters. The second one counts on from [`ONE_CORE`] by the sender's core bits.
const KEEPER: u8 = b'N';
const ONE_CORE: u8 = b'D';
const MOST_CORES: u8 = ONE_CORE + CORE_BITS_MAX;
const CORE_BITS_MAX: u8 = core_bits(MAX_CORES) as u8;

pub(super) const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
pub(super) const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const ATTRIBUTES: [u16; 9] = [REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP];

    fn mad(attribute: u16, body: &[u8]) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&PREAMBLE);
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[24..].copy_from_slice(body);
        mad
    }

    proptest! {
        /// An emitted message parses to the same values, whatever else was in the bytes.
        #[test]
        fn parse_inverts_emit(
            attribute in prop::sample::select(&ATTRIBUTES),
            transaction_id: u64,
            attribute_modifier: u32,
            (make, core_bits) in prop_oneof![
                (0..=6_u8).prop_map(|bits| (Make::Keeper, bits)),
                Just((Make::Other, 0)),
            ],
            body in prop::collection::vec(any::<u8>(), BODY_LEN),
        ) {
            let Ok((_, message)) = parse_mad(&mad(attribute, &body)) else {
                // Only REJ and MRA have a reserved value.
                prop_assert!([REJ, MRA].contains(&attribute) && body[8] >= 0xc0);
                return Ok(());
            };
            let header = MadHeader { transaction_id, attribute_modifier, make, core_bits };
            let mut bytes = [0xaa; MAD_LEN];
            emit_mad(&header, &message, &mut bytes);
            prop_assert_eq!(parse_mad(&bytes), Ok((header, message)));
        }

        /// Neither direction panics or reads past the end.
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mad(&bytes);
        }

    }

    /// CM-25 and CM-26: other versions, methods, attributes and lengths.
    #[test]
    fn no_cm_datagram() {
        let good = mad(RTU, &[0; BODY_LEN]);
        assert!(parse_mad(&good).is_ok());
        for (at, value) in [(0, 2), (1, 3), (2, 1), (3, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(parse_mad(&bad), Err(DropReason::Mad), "byte {at}");
        }
        for attribute in [0x0f, 0x19, 0x1a, 0x99] {
            let bad = mad(attribute, &[0; BODY_LEN]);
            assert_eq!(parse_mad(&bad), Err(DropReason::MadAttribute), "attribute {attribute:#x}");
        }
        let longer: Vec<u8> = good.iter().copied().chain([0]).collect();
        assert_eq!(parse_mad(&longer), Err(DropReason::Mad));
        assert_eq!(parse_mad(&good[..255]), Err(DropReason::Mad));
    }

    /// A peer of one core shows what it did before there were several, and one of several is another one to those before.
    #[test]
    fn a_mark_shows_make_and_cores() {
        let seen = |mark: [u8; 2]| {
            let mut mad = mad(RTU, &[0; BODY_LEN]);
            mad[18..20].copy_from_slice(&mark);
            let (header, _) = parse_mad(&mad).unwrap();
            (header.make, header.core_bits)
        };
        for (bits, mark) in (0..).zip([b"ND", b"NE", b"NF", b"NG", b"NH", b"NI", b"NJ"]) {
            assert_eq!(seen(*mark), (Make::Keeper, bits));
        }
        for other in [b"NC", b"NK", b"MD", b"\0\0", b"\0D"] {
            assert_eq!(seen(*other), (Make::Other, 0));
        }
    }

    #[test]
    fn ari_ends_with_its_field() {
        let mut body = [7; BODY_LEN];
        body[8] = 0;
        body[9] = 0xff;
        let Ok((_, CmMessage::Rej(rej))) = parse_mad(&mad(REJ, &body)) else {
            panic!("not a REJ");
        };
        assert_eq!((rej.ari_len, rej.ari()), (127, [7; 72].as_slice()));
    }
}
