//! A foreign connection manager: both sides of the exchange as `rdma_cm` goes through it (IBTA
//! ch. 12, Communication Management; Annex A11 for the private data).

use super::quirks::Quirks;
use super::wire::octets;
use crate::sim::packet::number;
use std::net::IpAddr;

/// Attribute IDs.
pub(crate) mod attribute {
    pub(crate) const REQ: u16 = 0x10;
    pub(crate) const MRA: u16 = 0x11;
    pub(crate) const REJ: u16 = 0x12;
    pub(crate) const REP: u16 = 0x13;
    pub(crate) const RTU: u16 = 0x14;
    pub(crate) const DREQ: u16 = 0x15;
    pub(crate) const DREP: u16 = 0x16;
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    ReqSent,
    RepReceived,
    ReqReceived,
    RepSent,
    Up,
    DreqSent,
}

/// A connection.
pub(super) struct Conn {
    pub(super) state: State,
    pub(super) active: bool,
    pub(super) end: Option<usize>,
    /// The request of its consumer that waits.
    pub(super) token: Option<usize>,
    /// Its consumer is told when the peer leaves.
    pub(super) tells: bool,
    pub(super) local: u32,
    pub(super) remote: u32,
    pub(super) guid: u64,
    pub(super) peer: IpAddr,
    /// The peer's port, on the passive side.
    pub(super) port: u16,
    pub(super) transaction: u64,
    pub(super) peer_qpn: u32,
    /// The PSN that its own requests start with, and the peer's.
    pub(super) psns: [u32; 2],
    pub(super) pmtu: u64,
    /// READs, inbound and outbound.
    pub(super) limits: [u32; 2],
    pub(super) data: Vec<u8>,
    /// What was said last, and when it is said again.
    pub(super) mad: Vec<u8>,
    pub(super) due: Option<u64>,
    pub(super) tries: u32,
}

impl Conn {
    pub(super) fn new(state: State, local: u32, peer: IpAddr) -> Self {
        Self {
            state,
            active: state == State::ReqSent,
            end: None,
            token: None,
            tells: false,
            local,
            remote: 0,
            guid: 0,
            peer,
            port: 0,
            transaction: 0,
            peer_qpn: 0,
            psns: [0; 2],
            pmtu: 256,
            limits: [0; 2],
            data: Vec::new(),
            mad: Vec::new(),
            due: None,
            tries: 0,
        }
    }
}

/// A message under construction: 24 bytes of header, then the body.
pub(crate) struct Mad(Vec<u8>);

impl Mad {
    pub(crate) fn new(kind: u16, transaction: u64, local: u32, remote: u32) -> Self {
        let mut mad = Self(vec![0; 256]);
        mad.0[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad.0[8..16].copy_from_slice(&transaction.to_be_bytes());
        mad.0[16..18].copy_from_slice(&kind.to_be_bytes());
        mad.put(0, 4, local.into()).put(4, 4, remote.into())
    }

    /// The last `len` bytes of a number, at `at` of the body.
    pub(crate) fn put(mut self, at: usize, len: usize, value: u64) -> Self {
        self.0[24 + at..24 + at + len].copy_from_slice(&value.to_be_bytes()[8 - len..]);
        self
    }

    pub(crate) fn bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[24 + at..24 + at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// What a REQ says of its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) local: u32,
    pub(crate) transaction: u64,
    pub(crate) guid: u64,
    pub(crate) ips: [IpAddr; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) qpn: u32,
    /// Where the receiver of the message starts to send.
    pub(crate) psn: u32,
    pub(crate) mtu_code: u64,
    pub(crate) limits: [u32; 2],
    pub(crate) timeout_code: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
}

/// A GID: an IPv6 address, or an IPv4 one in it.
fn gid(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(_) => [&[0; 10][..], &[0xff; 2], &octets(ip)].concat(),
        IpAddr::V6(_) => octets(ip),
    }
}

/// A REQ with the private data of the IP service.
pub(crate) fn req(asks: &Asks, data: &[u8]) -> Vec<u8> {
    let [local, remote] = asks.ips;
    let [source, port] = asks.ports;
    let retries = u64::from(asks.retry_count & 7);
    let padded = |ip: IpAddr| [vec![0; 16 - octets(ip).len()], octets(ip)].concat();
    let version = if local.is_ipv4() { 0x40 } else { 0x60 };
    Mad::new(attribute::REQ, asks.transaction, asks.local, 0)
        .put(8, 8, 0x0106_0000 | u64::from(port))
        .put(16, 8, asks.guid)
        .put(32, 3, asks.qpn.into())
        .put(35, 1, asks.limits[0].into())
        .put(39, 1, asks.limits[1].into())
        .put(43, 1, 20 << 3)
        .put(44, 3, asks.psn.into())
        .put(47, 1, 20 << 3 | retries)
        .put(48, 2, 0xffff)
        .put(50, 1, asks.mtu_code << 4 | u64::from(asks.rnr_retry & 7))
        .put(51, 1, 0xf0)
        .put(52, 4, 0xffff_ffff)
        .bytes(56, &gid(local))
        .bytes(72, &gid(remote))
        .put(88, 4, u64::from((u32::from(source) * 31 + u32::from(port)) & 0xf_ffff) << 12)
        .put(93, 1, 64)
        .put(95, 1, u64::from(asks.timeout_code) << 3)
        .put(141, 1, version)
        .put(142, 2, source.into())
        .bytes(144, &padded(local))
        .bytes(160, &padded(remote))
        .bytes(176, data)
        .done()
}

/// The answer of a REQ.
pub(super) fn rep(conn: &Conn, qpn: u32, guid: u64, quirks: &Quirks, data: &[u8]) -> Vec<u8> {
    Mad::new(attribute::REP, conn.transaction, conn.local, conn.remote)
        .put(12, 3, qpn.into())
        .put(20, 3, conn.psns[1].into())
        .put(24, 1, conn.limits[0].into())
        .put(25, 1, conn.limits[1].into())
        .put(26, 1, 15 << 3)
        .put(27, 1, u64::from(quirks.rnr_retry[0]) << 5)
        .put(28, 8, guid)
        .bytes(36, data)
        .done()
}

/// A refusal of what `remote` sent: 0 a REQ, 1 a REP.
pub(crate) fn rej(
    transaction: u64,
    ids: [u32; 2],
    message: u64,
    reason: u64,
    ari: &[u8],
) -> Vec<u8> {
    Mad::new(attribute::REJ, transaction, ids[0], ids[1])
        .put(8, 1, message << 6)
        .put(9, 1, (ari.len() as u64) << 1)
        .put(10, 2, reason)
        .bytes(12, ari)
        .done()
}

/// More time for what `remote` sent: 0 a REQ, 1 a REP.
pub(super) fn mra(conn: &Conn, message: u64, code: u64) -> Vec<u8> {
    Mad::new(attribute::MRA, conn.transaction, conn.local, conn.remote)
        .put(8, 1, message << 6)
        .put(9, 1, code << 3)
        .done()
}

/// A message that was received.
#[derive(Clone, Copy)]
pub(super) struct Heard<'a> {
    pub(super) kind: u16,
    pub(super) transaction: u64,
    pub(super) body: &'a [u8],
}

impl<'a> Heard<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Option<Self> {
        let right = payload.len() == 256 && payload[..4] == [1, 7, 2, 3];
        right.then(|| Self {
            kind: number(payload, 16, 2) as u16,
            transaction: number(payload, 8, 8),
            body: &payload[24..],
        })
    }

    pub(super) fn get(&self, at: usize, len: usize) -> u64 {
        number(self.body, at, len)
    }

    /// The sender's ID, and ours.
    pub(super) fn ids(&self) -> [u32; 2] {
        [self.get(0, 4) as u32, self.get(4, 4) as u32]
    }
}
