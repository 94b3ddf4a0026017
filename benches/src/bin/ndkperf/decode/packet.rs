//! A frame, as far as the analysis knows it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use rocev2::psn::Psn;
use rocev2::wire::ack_list::Ack;
use rocev2::wire::mad::{CmMessage, MadHeader};
use rocev2::wire::{Bth, DropReason, Encap, Ext, Mac, Opcode, Operation, Place, dissect};

use super::capture::Record;

/// The kind of a frame.
pub(super) enum Frame {
    /// Another protocol's.
    Other,
    /// UDP to the port of RoCEv2, without a header that can be read.
    Malformed(DropReason),
    /// The rest.
    Roce(Box<Packet>),
}

/// A packet with a Base Transport Header.
pub(super) struct Packet {
    /// The frame's number, from 1.
    pub(super) number: u64,
    /// Since the first frame of the capture.
    pub(super) at_ns: u64,
    pub(super) link: Link,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) src_port: u16,
    /// The mark of congestion in the IP header.
    pub(super) is_marked: bool,
    /// Its sender says that it may be marked, or it is.
    pub(super) is_markable: bool,
    pub(super) bth: Bth<u8>,
    pub(super) transport: Transport,
    /// The opcode; of the Unreliable Connection that of the Reliable one with the same headers.
    pub(super) opcode: Option<Opcode>,
    pub(super) ext: Option<Ext>,
    /// Bytes of payload, whether captured or not.
    pub(super) payload_len: u64,
    /// A digest of the payload, where all of it was captured.
    pub(super) digest: Option<u64>,
    /// A digest of the frame: only a copy that the network made has the same.
    pub(super) frame_digest: u64,
    pub(super) standing: Standing,
    /// The message, in a packet for QP 1.
    pub(super) cm: Option<Result<(MadHeader, CmMessage), DropReason>>,
    /// The payload of a packet of the manufacturer's opcodes.
    pub(super) report: Vec<u8>,
}

/// The stations of a link between which a frame went. An address names one host of a VLAN, or by mistake two, and a capture may have
/// several VLANs; but a host's frames may change their link, and those of the two directions have links of their own behind a router.
/// So a link tells which of several connections of one name is meant, and never that it is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Link {
    src: Mac,
    dst: Mac,
    /// The ID, without the priority.
    pub(super) vlan: Option<u16>,
}

impl Link {
    fn of(encap: &Encap) -> Self {
        let vlan = encap.vlan.map(|tag| tag & VLAN_ID).filter(|id| *id != 0);
        Self { src: encap.src_mac, dst: encap.dst_mac, vlan }
    }

    /// That of the other direction, where both have the same stations.
    pub(super) fn reply(self) -> Self {
        Self { src: self.dst, dst: self.src, vlan: self.vlan }
    }
}

/// The transport of an opcode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Transport {
    Rc,
    Uc,
    Ud,
    /// None of them, or one that is not analysed.
    Other,
}

/// The verdict about a packet with headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// All is right, or at least the ICRC.
    Sound,
    /// The capture has not all of it.
    Cut,
    /// A receiver drops it.
    Bad(DropReason),
}

impl Frame {
    pub(super) fn of(record: &Record<'_>, start_ns: u64) -> Self {
        let dissection = dissect(record.bytes);
        let Some(encap) = dissection.encap else { return Self::Other };
        let missing = record.wire_len.saturating_sub(record.bytes.len());
        let Some(bth) = dissection.bth else {
            return Self::Malformed(dissection.verdict.err().unwrap_or(DropReason::Truncated));
        };
        let (transport, opcode) = transport(bth.opcode);
        let icrc_fits = dissection.icrc.is_some_and(|icrc| icrc.stored == icrc.computed);
        let standing = match dissection.verdict {
            Ok(()) => Standing::Sound,
            // The strict parser takes one VLAN tag, and leaves more to other protocols.
            Err(DropReason::UnknownOpcode | DropReason::NotRoce) if icrc_fits => Standing::Sound,
            Err(_) if missing > 0 => Standing::Cut,
            // Of an opcode that is not known the ICRC can be judged all the same.
            Err(DropReason::UnknownOpcode) if dissection.icrc.is_some() => {
                Standing::Bad(DropReason::Icrc)
            }
            Err(reason) => Standing::Bad(reason),
        };
        let (mut ext, mut payload) = (dissection.ext, dissection.payload);
        if transport == Transport::Uc
            && let Some(Ok((parsed, body))) = opcode.map(|opcode| Ext::parse(opcode, payload))
        {
            ext = Some(parsed);
            payload = &body[..body.len().saturating_sub(bth.pad_count.into())];
        }
        let is_whole = missing == 0 && standing == Standing::Sound;
        Self::Roce(Box::new(Packet {
            number: record.number,
            at_ns: record.at_ns.saturating_sub(start_ns),
            link: Link::of(&encap),
            src: encap.src,
            dst: encap.dst,
            src_port: encap.src_port,
            is_marked: encap.traffic_class & CE == CE,
            is_markable: encap.traffic_class & CE != 0,
            bth,
            transport,
            opcode,
            ext,
            // The headers, pad bytes and ICRC behind the cut are as long as those that were taken off before it.
            payload_len: (payload.len() + missing) as u64,
            digest: is_whole.then(|| digest(payload)),
            frame_digest: digest(record.bytes),
            standing,
            cm: dissection.mad(),
            report: if bth.opcode >= MANUFACTURER { payload.to_vec() } else { Vec::new() },
        }))
    }
}

impl Packet {
    pub(super) fn psn(&self) -> Psn {
        self.bth.psn
    }

    pub(super) fn operation(&self) -> Option<Operation> {
        self.opcode.map(Opcode::operation)
    }

    pub(super) fn place(&self) -> Option<Place> {
        self.opcode.map(Opcode::place)
    }

    /// Whether a requester sent it.
    pub(super) fn is_request(&self) -> bool {
        self.opcode.is_some_and(Opcode::is_request)
    }

    /// Whether a responder sent it.
    pub(super) fn is_response(&self) -> bool {
        self.opcode.is_some_and(Opcode::is_response)
    }

    pub(super) fn is_cnp(&self) -> bool {
        self.opcode == Some(Opcode::Cnp)
    }

    /// Whether it is a datagram for the General Service Interface.
    pub(super) fn is_management(&self) -> bool {
        self.bth.dest_qpn.get() == 1 && self.transport == Transport::Ud
    }

    /// The ACKs behind the first of a list, each as the packet that it stands for.
    pub(super) fn listed(&self) -> impl Iterator<Item = Self> {
        let is_list = self.opcode == Some(Opcode::AckList) && self.standing == Standing::Sound;
        let acks: &[u8] = if is_list { &self.report } else { &[] };
        let opcode = Opcode::Acknowledge;
        Ack::parse(acks).map(move |ack| Self {
            bth: Bth { opcode: opcode as u8, dest_qpn: ack.dest_qpn, psn: ack.psn, ..self.bth },
            opcode: Some(opcode),
            ext: Some(Ext::Aeth(ack.aeth())),
            payload_len: 0,
            digest: None,
            cm: None,
            report: Vec::new(),
            ..*self
        })
    }

    /// Bytes of the whole message, in its first packet.
    pub(super) fn message_len(&self) -> Option<u32> {
        self.ext?.reth().map(|reth| reth.len)
    }
}

fn transport(byte: u8) -> (Transport, Option<Opcode>) {
    let known = Opcode::try_from(byte).ok();
    match byte {
        0x00..0x20 => (Transport::Rc, known),
        // SENDs and WRITEs of the Unreliable Connection.
        0x20..=0x2b => (Transport::Uc, Opcode::try_from(byte & 0x1f).ok()),
        0x60..0x80 => (Transport::Ud, known),
        _ if known.is_some() => (Transport::Rc, known),
        _ => (Transport::Other, None),
    }
}

/// The name of an opcode.
pub(super) fn opcode_name(byte: u8) -> String {
    let (transport, opcode) = transport(byte);
    let Some(opcode) = opcode else { return format!("opcode {byte:#04x}") };
    if opcode == Opcode::AckList {
        return "ACK list".into();
    }
    let operation = match opcode.operation() {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::ReadRequest => return "READ request".into(),
        Operation::ReadResponse => "READ response",
        Operation::Acknowledge => return "ACK".into(),
        Operation::AtomicAcknowledge => return "atomic ACK".into(),
        Operation::CompareSwap => return "COMPARE SWAP".into(),
        Operation::FetchAdd => return "FETCH ADD".into(),
        Operation::Flush => return "FLUSH".into(),
        Operation::AtomicWrite => return "ATOMIC WRITE".into(),
        Operation::Cnp => return "CNP".into(),
        Operation::GapReport => return "gap report".into(),
    };
    let place = match opcode.place() {
        Place::First => "first",
        Place::Middle => "middle",
        Place::Last => "last",
        Place::Only => "only",
    };
    let kind = match opcode {
        Opcode::SendLastInv | Opcode::SendOnlyInv => " with invalidate",
        opcode if opcode.has_imm() => " with immediate",
        _ => "",
    };
    let transport = match transport {
        Transport::Uc => "UC ",
        Transport::Ud => "UD ",
        Transport::Rc | Transport::Other => "",
    };
    format!("{transport}{operation} {place}{kind}")
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The ID in a tag (IEEE 802.1Q).
const VLAN_ID: u16 = 0xfff;
/// ECN: congestion experienced (RFC 3168).
const CE: u8 = 0b11;
/// The first opcode of the manufacturer's range (IBTA ch. 9, OpCode).
const MANUFACTURER: u8 = 0xc0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_has_a_name() {
        assert_eq!(opcode_name(0x17), "SEND only with invalidate");
        assert_eq!(opcode_name(0x2b), "UC WRITE only with immediate");
        assert_eq!(opcode_name(0x64), "UD SEND only");
        assert_eq!(opcode_name(0xc0), "gap report");
        assert_eq!(opcode_name(0xc1), "ACK list");
        for unknown in [0x2c, 0x45, 0x7f, 0xa0, 0xff] {
            assert_eq!(opcode_name(unknown), format!("opcode {unknown:#04x}"));
        }
    }
}
