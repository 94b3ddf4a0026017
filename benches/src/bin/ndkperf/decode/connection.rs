//! Connection management: which messages made, refused and ended each connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use rocev2::ids::CommId;
use rocev2::psn::Psn;
use rocev2::wire::Pmtu;
use rocev2::wire::mad::{CmMessage, RejReason, Transport, service_port};

use super::packet::{Link, Packet};

/// A connection, or the attempt at one.
#[derive(Debug)]
pub(super) struct Connection {
    /// The side that sent the REQ, and the side that received it.
    pub(super) ends: [CmEnd; 2],
    /// The port asked for, in the service of RDMA over IP.
    pub(super) port: Option<u16>,
    pub(super) path_mtu: Option<u64>,
    pub(super) is_rc: bool,
    /// The messages, the first [`EVENTS_MAX`] of them.
    pub(super) events: Vec<CmEvent>,
    pub(super) events_left_out: u64,
}

/// A side of a connection, as far as its messages were captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmEnd {
    pub(super) address: IpAddr,
    /// Of its first message.
    pub(super) link: Option<Link>,
    pub(super) comm_id: Option<CommId>,
    pub(super) qpn: Option<u32>,
    /// The PSN at which it starts to send.
    pub(super) starting_psn: Option<Psn>,
}

/// A message.
#[derive(Clone, Debug)]
pub(super) struct CmEvent {
    pub(super) frame: u64,
    pub(super) at_ns: u64,
    /// Index of the side that sent it.
    pub(super) sender: usize,
    pub(super) kind: CmKind,
    /// Whether that side had sent one of its kind before.
    pub(super) is_again: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CmKind {
    Req,
    Rep,
    Rtu,
    Rej(RejReason),
    Mra,
    Dreq,
    Drep,
}

impl CmKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Rtu => "RTU",
            Self::Rej(_) => "REJ",
            Self::Mra => "MRA",
            Self::Dreq => "DREQ",
            Self::Drep => "DREP",
        }
    }
}

impl Connection {
    /// The first message of a kind.
    pub(super) fn first(&self, fits: impl Fn(CmKind) -> bool) -> Option<&CmEvent> {
        self.events.iter().find(|event| fits(event.kind))
    }

    pub(super) fn is_refused(&self) -> bool {
        self.first(|kind| matches!(kind, CmKind::Rej(_))).is_some()
    }

    /// Whether a packet went over the link of one of its ends, to it or from it.
    fn is_over_link_of(&self, packet: &Packet) -> bool {
        let (there, back) = (Some(packet.link), Some(packet.link.reply()));
        let [one, other] = &self.ends;
        let is_of = |from: &CmEnd, to: &CmEnd| {
            (from.address, to.address) == (packet.src, packet.dst)
                && (from.link == there || to.link == back)
        };
        is_of(one, other) || is_of(other, one)
    }

    fn record(&mut self, packet: &Packet, sender: usize, kind: CmKind) {
        self.ends[sender].link.get_or_insert(packet.link);
        if self.events.len() >= EVENTS_MAX {
            self.events_left_out += 1;
            return;
        }
        let same = |event: &CmEvent| event.sender == sender && event.kind == kind;
        let is_again = self.events.iter().any(same);
        let (frame, at_ns) = (packet.number, packet.at_ns);
        self.events.push(CmEvent { frame, at_ns, sender, kind, is_again });
    }
}

/// The connections of a capture.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) all: Vec<Connection>,
    /// Messages by name, also those of no connection.
    pub(super) messages: BTreeMap<&'static str, u64>,
    pub(super) malformed: u64,
    /// By the side that chose an ID, the ID, and the other side: all of that name.
    by_id: HashMap<(IpAddr, CommId, IpAddr), Vec<usize>>,
    /// The connection and the message of a frame.
    by_frame: HashMap<u64, (usize, usize)>,
}

impl Connections {
    /// Takes a datagram for QP 1.
    pub(super) fn take(&mut self, packet: &Packet) {
        let Some(Ok((_, message))) = &packet.cm else {
            self.malformed += u64::from(packet.cm.is_some());
            return;
        };
        *self.messages.entry(message.name()).or_default() += 1;
        let (index, sender, kind) = match message {
            CmMessage::Req(_) | CmMessage::Rep(_) => {
                let Some(found) = self.join(packet, message) else { return };
                found
            }
            CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => return,
            CmMessage::Rtu(rtu) => {
                self.find(packet, rtu.local_comm_id, rtu.remote_comm_id, CmKind::Rtu)
            }
            CmMessage::Rej(rej) => {
                self.find(packet, rej.local_comm_id, rej.remote_comm_id, CmKind::Rej(rej.reason))
            }
            CmMessage::Mra(mra) => {
                self.find(packet, mra.local_comm_id, mra.remote_comm_id, CmKind::Mra)
            }
            CmMessage::Dreq(dreq) => {
                let found =
                    self.find(packet, dreq.local_comm_id, dreq.remote_comm_id, CmKind::Dreq);
                self.all[found.0].ends[1 - found.1].qpn.get_or_insert(dreq.remote_qpn.get());
                found
            }
            CmMessage::Drep(drep) => {
                self.find(packet, drep.local_comm_id, drep.remote_comm_id, CmKind::Drep)
            }
        };
        let connection = &mut self.all[index];
        let event = connection.events.len();
        connection.record(packet, sender, kind);
        if connection.events.len() > event {
            self.by_frame.insert(packet.number, (index, event));
        }
    }

    /// The connection of the message in a frame.
    pub(super) fn index_of(&self, frame: u64) -> Option<usize> {
        self.by_frame.get(&frame).map(|(connection, _)| *connection)
    }

    /// The message in a frame.
    pub(super) fn in_frame(&self, frame: u64) -> Option<(&Connection, &CmEvent)> {
        let (connection, event) = self.by_frame.get(&frame)?;
        let connection = self.all.get(*connection)?;
        Some((connection, connection.events.get(*event)?))
    }

    /// The connection of a REQ, which is a new one or sent again, or of a REP; its sender; its kind.
    fn join(&mut self, packet: &Packet, message: &CmMessage) -> Option<(usize, usize, CmKind)> {
        let (src, dst) = (packet.src, packet.dst);
        match message {
            CmMessage::Req(req) => {
                let key = (src, req.local_comm_id, dst);
                let qpn = req.local_qpn.get();
                let known = self.named(&key, packet).filter(|index| {
                    let Connection { ends: [active, _], .. } = &self.all[*index];
                    active.qpn == Some(qpn)
                        && active.link.is_none_or(|link| link.vlan == packet.link.vlan)
                        && self.all[*index].first(|kind| kind == CmKind::Dreq).is_none()
                });
                let index = match known {
                    Some(index) => index,
                    None => self.open(key, 0),
                };
                let connection = &mut self.all[index];
                connection.ends[0].qpn = Some(qpn);
                connection.ends[1].starting_psn = Some(req.starting_psn);
                connection.port = service_port(req.service_id);
                connection.path_mtu = Pmtu::from_code(req.path_mtu).map(|mtu| mtu.bytes() as u64);
                connection.is_rc = req.transport == Transport::Rc;
                Some((index, 0, CmKind::Req))
            }
            CmMessage::Rep(rep) => {
                let (index, ..) =
                    self.find(packet, rep.local_comm_id, rep.remote_comm_id, CmKind::Rep);
                let [active, passive] = &mut self.all[index].ends;
                passive.qpn = Some(rep.local_qpn.get());
                passive.comm_id = Some(rep.local_comm_id);
                active.starting_psn = Some(rep.starting_psn);
                self.name((src, rep.local_comm_id, dst), index);
                Some((index, 1, CmKind::Rep))
            }
            _ => None,
        }
    }

    /// The connection with these IDs, and who of it sends; a new one where its beginning was not captured.
    fn find(
        &mut self,
        packet: &Packet,
        local: CommId,
        remote: CommId,
        kind: CmKind,
    ) -> (usize, usize, CmKind) {
        let (src, dst) = (packet.src, packet.dst);
        let names = [(dst, remote, src), (src, local, dst)];
        if let Some(index) = names.iter().find_map(|name| self.named(name, packet)) {
            let ends = &mut self.all[index].ends;
            let sender = match (ends[0].comm_id == Some(remote), ends[0].address == src) {
                // Of two sides with one address the ID tells.
                (_, is_active) if ends[0].address != ends[1].address => usize::from(!is_active),
                (is_to_active, _) => usize::from(is_to_active),
            };
            ends[sender].comm_id.get_or_insert(local);
            return (index, sender, kind);
        }
        let sender = usize::from(kind == CmKind::Rep);
        let index = self.open((src, local, dst), sender);
        self.all[index].ends[1 - sender].comm_id = Some(remote);
        self.name((dst, remote, src), index);
        (index, sender, kind)
    }

    /// The latest connection of a name over the packet's link, or else the latest one.
    fn named(&self, name: &(IpAddr, CommId, IpAddr), packet: &Packet) -> Option<usize> {
        let known = self.by_id.get(name)?;
        let here = known.iter().rev().find(|index| self.all[**index].is_over_link_of(packet));
        here.or(known.last()).copied()
    }

    fn name(&mut self, name: (IpAddr, CommId, IpAddr), index: usize) {
        let known = self.by_id.entry(name).or_default();
        if known.last() != Some(&index) {
            known.push(index);
        }
    }

    fn open(&mut self, key: (IpAddr, CommId, IpAddr), sender: usize) -> usize {
        let (src, local, dst) = key;
        let end =
            |address| CmEnd { address, link: None, comm_id: None, qpn: None, starting_psn: None };
        let mut ends = if sender == 0 { [end(src), end(dst)] } else { [end(dst), end(src)] };
        ends[sender].comm_id = Some(local);
        let index = self.all.len();
        self.name(key, index);
        self.all.push(Connection {
            ends,
            port: None,
            path_mtu: None,
            is_rc: true,
            events: Vec::new(),
            events_left_out: 0,
        });
        index
    }
}

/// The sentence that a reason stands for.
pub(super) fn reason_text(reason: RejReason) -> String {
    let text = match reason {
        RejReason::NO_QP => "no queue pair",
        RejReason::NO_RESOURCES => "no resources",
        RejReason::TIMEOUT => "timeout",
        RejReason::UNSUPPORTED => "unsupported request",
        RejReason::INVALID_COMM_ID => "invalid communication ID",
        RejReason::INVALID_SERVICE_ID => "invalid service ID: nobody listens",
        RejReason::INVALID_TRANSPORT => "invalid transport",
        RejReason::STALE_CONNECTION => "stale connection",
        RejReason::INVALID_GID => "invalid GID",
        RejReason::INVALID_MTU => "invalid path MTU",
        RejReason::INSUFFICIENT_RESPONDER_RESOURCES => "insufficient responder resources",
        RejReason::CONSUMER => "the consumer rejects",
        RejReason::INVALID_RNR_RETRY => "invalid RNR retry count",
        RejReason::DUPLICATE_LOCAL_COMM_ID => "duplicate local communication ID",
        _ => return format!("reason {}", reason.0),
    };
    format!("reason {}, {text}", reason.0)
}

/// Messages of a connection that are listed.
const EVENTS_MAX: usize = 64;
