//! The messages of a connection, made from its state.

use super::api::QpSide;
use super::connection::Connection;
use super::state::State;
use super::{CmConfig, CmError, REJ_PRIVATE_DATA, ReadLimits};
use crate::class::ClassBits;
use crate::wire::Bth;
use crate::wire::mad::{
    CmMessage, Dreq, IpCm, MAD_LEN, MadHeader, Mra, MraMessage, Path, Rej, RejMessage, RejReason,
    Rep, Req, Rtu, Transport, emit_mad, gid, private_data, service_id,
};
use core::net::Ipv6Addr;

/// One MAD, all of it.
pub(super) type Mad = [u8; MAD_LEN];

impl Connection {
    pub(super) fn req(&self, config: &CmConfig, private_data: &[u8]) -> Result<Mad, CmError> {
        let message = CmMessage::Req(Req {
            local_comm_id: self.local_id,
            vendor_id: 0,
            service_id: service_id(self.peer.remote.port()),
            ca_guid: config.ca_guid,
            local_qkey: 0,
            local_qpn: self.qp.qpn,
            responder_resources: self.peer.limits.inbound,
            local_eecn: 0,
            initiator_depth: self.peer.limits.outbound,
            remote_eecn: 0,
            remote_response_timeout: config.response_timeout_code,
            transport: Transport::Rc,
            flow_control: false,
            starting_psn: self.qp.starting_psn,
            local_response_timeout: config.response_timeout_code,
            retry_count: self.peer.retry_count,
            pkey: Bth::DEFAULT_PKEY,
            path_mtu: self.peer.pmtu.code(),
            rdc_exists: false,
            rnr_retry: config.rnr_retry,
            max_cm_retries: config.max_retries,
            srq: false,
            extended_transport: 0,
            primary: self.primary_path(config),
            alternate: NO_PATH,
            private_data: self.req_private_data(private_data)?,
        });
        Ok(self.marked_mad(config, &message))
    }

    /// The primary path of a layer 2 that is not InfiniBand's: permissive LIDs, addresses as GIDs (annex
    /// A17).
    fn primary_path(&self, config: &CmConfig) -> Path {
        let ClassBits { traffic_class, priority } = self.class_bits(config);
        Path {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(self.peer.local.ip()),
            remote_gid: gid(self.peer.remote.ip()),
            flow_label: self.peer.flow_label,
            traffic_class,
            // The service level of a link without such: the peer may put it into its tags.
            sl: priority.unwrap_or_default(),
            hop_limit: config.hop_limit,
            ack_timeout: config.ack_timeout_code.min(CmConfig::ANNOUNCED_ACK_TIMEOUT),
            ..NO_PATH
        }
    }

    /// The private data of a REQ: the IP CM header, then the consumer's data (annex A11).
    fn req_private_data(&self, data: &[u8]) -> Result<[u8; 92], CmError> {
        let header = IpCm {
            src_port: self.peer.local.port(),
            src: self.peer.local.ip(),
            dst: self.peer.remote.ip(),
        };
        let mut field = [0; 92];
        let (head, tail) = field.split_at_mut(IpCm::LEN);
        head.copy_from_slice(&header.emit());
        tail.get_mut(..data.len()).ok_or(CmError::PrivateData)?.copy_from_slice(data);
        Ok(field)
    }

    pub(super) fn rep(
        &self,
        config: &CmConfig,
        qp: QpSide,
        limits: ReadLimits,
        data: &[u8],
    ) -> Result<Mad, CmError> {
        let limits = self.peer.limits.min(limits);
        let message = CmMessage::Rep(Rep {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id(),
            local_qkey: 0,
            local_qpn: qp.qpn,
            vendor_id: 0,
            local_eecn: 0,
            starting_psn: qp.starting_psn,
            responder_resources: limits.inbound,
            initiator_depth: limits.outbound,
            target_ack_delay: config.target_ack_delay_code,
            failover_accepted: 0,
            flow_control: false,
            rnr_retry: config.rnr_retry,
            srq: false,
            ca_guid: config.ca_guid,
            private_data: private_data(data).ok_or(CmError::PrivateData)?,
        });
        Ok(self.marked_mad(config, &message))
    }

    pub(super) fn rtu(&self) -> Mad {
        self.mad(&CmMessage::Rtu(Rtu {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id(),
            private_data: [0; 224],
        }))
    }

    pub(super) fn mra(&self, config: &CmConfig, message: MraMessage) -> Mad {
        self.mad(&CmMessage::Mra(Mra {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id(),
            message,
            service_timeout: config.service_timeout_code,
            private_data: [0; 222],
        }))
    }

    /// REJ of the peer's last message: the consumer rejects it, or the listener is gone.
    pub(super) fn rej(&self, reason: RejReason, private_data: [u8; REJ_PRIVATE_DATA]) -> Mad {
        let message = match self.state {
            State::ReqReceived => RejMessage::Req,
            _ => RejMessage::Rep,
        };
        self.mad(&CmMessage::Rej(Rej {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id(),
            message,
            reason,
            ari_len: 0,
            ari: [0; 72],
            private_data,
        }))
    }

    /// REJ that gives the attempt up. The GUID lets a peer that may not know our ID find its side.
    pub(super) fn rej_timeout(&self, config: &CmConfig) -> Mad {
        let mut ari = [0; 72];
        ari[..8].copy_from_slice(&config.ca_guid.to_be_bytes());
        self.mad(&CmMessage::Rej(Rej {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id(),
            message: RejMessage::Other,
            reason: RejReason::TIMEOUT,
            ari_len: 8,
            ari,
            private_data: [0; 148],
        }))
    }

    pub(super) fn dreq(&self) -> Mad {
        self.mad(&CmMessage::Dreq(Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id(),
            remote_qpn: self.peer.qpn,
            private_data: [0; 220],
        }))
    }

    fn mad(&self, message: &CmMessage) -> Mad {
        mad(self.transaction_id, message)
    }

    /// The bytes of a message that shows our make.
    fn marked_mad(&self, config: &CmConfig, message: &CmMessage) -> Mad {
        let header = MadHeader {
            transaction_id: self.transaction_id,
            make: config.make,
            core_bits: config.core_bits,
            ..MadHeader::default()
        };
        with_header(&header, message)
    }
}

/// The bytes of a message.
pub(super) fn mad(transaction_id: u64, message: &CmMessage) -> Mad {
    with_header(&MadHeader { transaction_id, ..MadHeader::default() }, message)
}

pub(super) fn with_header(header: &MadHeader, message: &CmMessage) -> Mad {
    let mut bytes = [0; MAD_LEN];
    emit_mad(header, message, &mut bytes);
    bytes
}

const NO_PATH: Path = Path {
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
