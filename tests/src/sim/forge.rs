//! A third party: it knows both addresses of a connection, the GUIDs and the peer's QPN, and neither
//! the other QPN nor an ID or a PSN. It says whatever it likes in the peer's name.

use super::Deed;
use super::foreign::cm::{Asks, Mad, rej, req};
use super::foreign::guid;
use super::foreign::wire::claim;
use super::foreign::wire::{Packet, Route, frame};
use super::judge::Kind;
use super::net::mac;
use super::packet::opcode;
use super::world::{PORT, World};
use std::net::IpAddr;

/// The private data of a request that nobody made.
pub(crate) const FORGED: [u8; 4] = [0xff; 4];

/// The Ethernet address of a host that nobody knows.
const STRANGER: [u8; 6] = [2, 0x99, 0, 0, 0, 9];

/// What a forger knows of a connection.
#[derive(Clone, Copy)]
struct Known {
    victim: usize,
    /// Addresses of the peer and the victim.
    route: Route,
    peer_qpn: u32,
    guid: u64,
}

impl World {
    /// Somebody says something in the name of a peer of a live connection, some times over.
    pub(crate) fn forge(&mut self, many: u32) {
        let Some(known) = self.eavesdrop() else { return };
        let kind = self.rng.below(3);
        for _ in 0..1 + self.rng.below(many) {
            let packet = match kind {
                0 => self.forge_packet(known),
                _ => self.forge_message(known),
            };
            let frame = frame(&known.route, &packet);
            let at = self.now + 1 + u64::from(self.rng.below(100_000));
            self.net.inject(at, known.victim, frame);
        }
    }

    /// Another host has the address of a peer, and tells so: the peer's host, or everybody.
    pub(crate) fn claim_address(&mut self) {
        let Some(Known { victim, route, .. }) = self.eavesdrop() else { return };
        for _ in 0..1 + self.rng.below(4) {
            let all = self.rng.below(2) == 0;
            let frame =
                claim(STRANGER, route.ips[0], (!all).then_some((route.macs[1], route.ips[1])));
            let at = self.now + 1 + u64::from(self.rng.below(100_000));
            self.net.inject(at, victim, frame);
            self.did(Deed::Claimed);
        }
    }

    /// A connection of a host of ours that lives.
    fn eavesdrop(&mut self) -> Option<Known> {
        let pairs: Vec<_> = self.watch.pairs().collect();
        let (victim_name, peer) = *pairs.get(self.rng.below(pairs.len().max(1) as u32) as usize)?;
        let host_of = |ip: IpAddr| self.hosts.iter().position(|host| host.ips.contains(&ip));
        let (victim, at) = (host_of(victim_name.0)?, host_of(peer.0)?);
        if self.is_foreign(victim) || self.hosts[victim].provider.is_none() {
            return None;
        }
        let macs = [self.net.nic(at), self.net.nic(victim)];
        let route = Route { macs, ips: [peer.0, victim_name.0] };
        Some(Known { victim, route, peer_qpn: peer.1, guid: guid(mac(at)) })
    }

    /// An ID of a connection: nothing, or a guess.
    fn guess(&mut self) -> u32 {
        if self.rng.below(3) == 0 { 0 } else { self.rng.u32() }
    }

    /// A packet of a connection to a QPN that is a guess, or the only one that is known.
    fn forge_packet(&mut self, known: Known) -> Packet {
        let code = self.rng.below(0x18) as u8;
        let code = match self.rng.below(8) {
            0 => opcode::CNP,
            1 => opcode::GAP_REPORT,
            2 => opcode::ACK_LIST,
            _ => code,
        };
        let mut ext = vec![0; super::packet::ext_len(code).unwrap_or(28)];
        ext.iter_mut().for_each(|byte| *byte = self.rng.below(256) as u8);
        let len = self.rng.below(64) as usize;
        let bare = matches!(code, 0x0c | 0x11 | opcode::CNP);
        let guess = 2 + (self.rng.u32() & 0xff_fff0);
        let qpn = if self.rng.below(2) == 0 { known.peer_qpn } else { guess };
        self.did(Deed::ForgedPacket);
        Packet {
            opcode: code,
            solicited: false,
            ack_req: self.rng.below(2) == 0,
            qpn: if self.watch.has(known.route.ips[1], qpn) { 2 } else { qpn },
            psn: self.rng.u32() & 0xff_ffff,
            ext,
            payload: vec![7; if bare { 0 } else { len }],
        }
    }

    /// A management datagram of any kind.
    fn forge_message(&mut self, known: Known) -> Packet {
        let [local, remote] = [self.guess(), self.guess()];
        let transaction = self.rng.u64();
        let kind = Kind::ALL[self.rng.below(Kind::ALL.len() as u32) as usize];
        let body = || Mad::new(0x10 + kind as u16, transaction, local, remote);
        let payload = match kind {
            Kind::Req => self.forge_req(known, local),
            Kind::Mra => {
                body().put(8, 1, u64::from(self.rng.below(3)) << 6).put(9, 1, 31 << 3).done()
            }
            Kind::Rej => {
                let reason = u64::from(1 + self.rng.below(35));
                let of = u64::from(self.rng.below(3));
                // The GUID of whom it pretends to be leads to a request of his.
                rej(transaction, [local, remote], of, reason, &known.guid.to_be_bytes())
            }
            Kind::Rep => body()
                .put(12, 3, known.peer_qpn.into())
                .put(28, 8, known.guid)
                .put(26, 2, 0x78e0)
                .done(),
            Kind::Dreq => body().put(8, 3, known.peer_qpn.into()).done(),
            Kind::Rtu | Kind::Drep | Kind::SidrReq | Kind::SidrRep | Kind::Lap | Kind::Apr => {
                body().done()
            }
        };
        self.did(Deed::ForgedMessage);
        let ext = vec![0x80, 1, 0, 0, 0, 0, 0, 1];
        Packet { opcode: opcode::UD_SEND_ONLY, qpn: 1, ext, payload, ..Packet::default() }
    }

    /// A REQ for the QP of the live connection, or for another one.
    fn forge_req(&mut self, known: Known, local: u32) -> Vec<u8> {
        // To one that cannot be asked just then it would mean its peer's end (README, limits).
        let same = self.rng.below(2) == 0 && !self.moves;
        self.did(if same { Deed::ForgedRestart } else { Deed::ForgedReq });
        let port = if self.rng.below(2) == 0 { PORT } else { 7 };
        let asks = Asks {
            local,
            transaction: u64::from(local),
            guid: known.guid,
            ips: known.route.ips,
            ports: [40_000, port],
            qpn: if same { known.peer_qpn } else { 2 + self.rng.below(1 << 20) },
            psn: self.rng.below(1 << 24),
            mtu_code: 1,
            limits: [1, 1],
            timeout_code: self.rng.below(32) as u8,
            retry_count: 7,
            rnr_retry: 7,
        };
        req(&asks, &FORGED)
    }
}
