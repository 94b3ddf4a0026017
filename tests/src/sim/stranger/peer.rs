//! A stranger that is a peer: it connects, and then holds what it is given.

use super::guest::{GUEST, REMOTE};
use super::requests::asks;
use super::{Strange, Stranger, datagram, own_ip};
use crate::sim::Deed;
use crate::sim::foreign::cm::{Asks, Mad, attribute, req};
use crate::sim::foreign::wire::Packet;
use crate::sim::packet::{Seen, number, opcode};
use crate::sim::world::{PORT, Step, World, require};
use rocev2::counters::Counter;

/// Bytes that a host of such a world keeps behind a gap of a connection, packets of path MTU 256 in them, and packets of
/// full length that all connections of a core may keep: those of two gaps.
const KEPT: u32 = 64 << 10;
const QUOTA: u32 = KEPT / 256;
const SLOTS: usize = 2 * (QUOTA as usize - 1);
/// Connections to a host of one core, and how far early packets reach on those behind the first two: together they hold all where each
/// has its part in packets of full length.
const CONNECTIONS: usize = 9;
const FEW: u32 = 80;
/// So many early packets of a connection are enough to judge by.
const EARLY_MIN: u64 = 20;
/// READs that it asks for, and bytes of each.
const READS: u32 = 4;
const READ_LEN: u32 = 1024;
/// The pause that it asks for before a SEND comes again: 10.24 ms.
const RNR_CODE: u8 = 20;

/// The stranger's side of a connection.
pub(super) struct Conn {
    victim: usize,
    asks: Asks,
    /// How far its early packets reach.
    reach: u32,
    /// The victim's QPN and the PSN that it expects first, once it has accepted.
    peer: Option<[u32; 2]>,
    /// The key to what it may READ.
    key: u32,
    said: u32,
}

impl World {
    /// The gaps of two connections are as much as a core keeps.
    pub(super) fn suit_gaps(&mut self) {
        for host in &mut self.hosts {
            host.mtu = host.mtu.max(1500);
            let config = &mut host.config;
            config.window.bytes = config.window.bytes.min(KEPT);
            config.window.reorder_bytes = KEPT;
            let slot_len = if host.mtu > 4100 { 4096 } else { 1024 };
            config.limits.reorder_pool = SLOTS * slot_len * host.cores.len();
            let (window, msn) = (config.window, config.opening.msn.get());
            for &ip in &host.ips {
                self.watch.host(ip, window.bytes, window.reorder_bytes, msn);
            }
        }
    }

    /// What comes early from honest peers is mostly kept, whatever others hold.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check_early(&mut self) -> Step {
        if !self.has_gaps() {
            return Ok(());
        }
        for host in 0..self.hosts.len() {
            let strange = own_ip(self.hosts[host].ips[0]);
            let Some(provider) = &mut self.hosts[host].provider else { continue };
            for connection in provider.connections() {
                if connection.remote.ip() == strange {
                    continue;
                }
                let count = |counter| connection.counters.get(counter);
                let early = count(Counter::OutOfSeqRequest);
                let kept = count(Counter::OutOfOrderHeld);
                let honest = &mut self.report.honest;
                (honest.early, honest.kept) = (honest.early + early, honest.kept + kept);
                require!(
                    early < EARLY_MIN || 2 * kept >= early,
                    "host {host} keeps {kept} of {early} packets that came early from {}",
                    connection.remote
                );
            }
        }
        Ok(())
    }

    /// It connects at first, and speaks on each connection then.
    pub(super) fn hold(&mut self, strange: &mut Strange) {
        if strange.conns.is_empty() {
            for victim in self.victims() {
                let cores = self.hosts[victim].cores.len();
                for at in 0..if cores == 1 { CONNECTIONS } else { 3 * cores } {
                    let asks = asks(strange, &self.own_route(victim), PORT);
                    let reach = if at < 2 * cores { QUOTA } else { FEW };
                    let (peer, key, said) = (None, 0, 0);
                    strange.conns.push(Conn { victim, asks, reach, peer, key, said });
                }
            }
        }
        for mut conn in std::mem::take(&mut strange.conns) {
            self.hold_one(strange, &mut conn);
            strange.conns.push(conn);
        }
    }

    fn hold_one(&mut self, strange: &mut Strange, conn: &mut Conn) {
        let Some([qpn, first]) = conn.peer else {
            let packet = datagram(req(&conn.asks, &GUEST));
            return self.say_packet(strange, conn.victim, 0, &packet);
        };
        let psn = |at: u32| first.wrapping_add(at) & 0xff_ffff;
        conn.said += 1;
        match strange.kind {
            // All of them, and then one of them again and again: it is not silent.
            Stranger::Gaps => {
                let all = if conn.said == 1 { 1..conn.reach } else { 0..1 };
                for at in all {
                    let at =
                        if conn.said == 1 { at } else { 1 + strange.rng.below(conn.reach - 1) };
                    let packet = Packet { opcode: 0x04, qpn, psn: psn(at), ..Packet::default() };
                    self.say_packet(strange, conn.victim, u64::from(at) * 1000, &packet);
                    self.did(Deed::StrangeGap);
                }
            }
            _ => {
                let packets = READ_LEN / 256;
                let all = if conn.said == 1 { READS } else { 1 };
                for at in 0..all {
                    let at = if conn.said == 1 { at } else { strange.rng.below(READS) };
                    let place = (REMOTE + u64::from(at * READ_LEN)).to_be_bytes();
                    let [key, len] = [conn.key, READ_LEN].map(u32::to_be_bytes);
                    let ext = [&place[..], &key, &len].concat();
                    let code = opcode::READ_REQUEST;
                    let psn = psn(at * packets);
                    let packet = Packet { opcode: code, qpn, psn, ext, ..Packet::default() };
                    self.say_packet(strange, conn.victim, u64::from(at) * 1000, &packet);
                    self.did(Deed::StrangeRead);
                }
            }
        }
    }

    /// A host of ours has told the stranger something.
    pub(super) fn hear_at(&mut self, strange: &mut Strange, host: usize, seen: &Seen<'_>) {
        if seen.opcode == opcode::UD_SEND_ONLY {
            return self.hear_offer(strange, host, seen);
        }
        let theirs = |conn: &&Conn| conn.victim == host && conn.asks.qpn == seen.qpn;
        let Some(conn) = strange.conns.iter().find(theirs) else { return };
        let Some([qpn, _]) = conn.peer else { return };
        // It never has a receive; what comes behind the first is not even looked at.
        let first = conn.asks.psn & 0xff_ffff == seen.psn;
        let goes_on = strange.sent < strange.kind.most();
        if goes_on && strange.kind == Stranger::Unready && opcode::is_send(seen.opcode) && first {
            let ext = vec![0x20 | RNR_CODE, 0, 0, 0];
            let code = opcode::ACKNOWLEDGE;
            let packet = Packet { opcode: code, qpn, psn: seen.psn, ext, ..Packet::default() };
            self.say_packet(strange, host, 10_000, &packet);
            self.did(Deed::StrangeRnr);
        }
    }

    /// A REP is answered by an RTU.
    fn hear_offer(&mut self, strange: &mut Strange, host: usize, seen: &Seen<'_>) {
        let Some(mad) = seen.payload.get(..256) else { return };
        let body = &mad[24..];
        let [local, remote] = [number(body, 0, 4) as u32, number(body, 4, 4) as u32];
        let theirs = |conn: &&mut Conn| conn.victim == host && conn.asks.local == remote;
        let is_rep = number(mad, 16, 2) == u64::from(attribute::REP);
        let Some(conn) = strange.conns.iter_mut().find(theirs).filter(|_| is_rep) else { return };
        let (transaction, local) = (conn.asks.transaction, [conn.asks.local, local]);
        if conn.peer.is_none() {
            conn.peer = Some([number(body, 12, 3) as u32, number(body, 20, 3) as u32]);
            // Its consumer has told it with the answer.
            conn.key = number(body, 36, 4) as u32;
        }
        let rtu = Mad::new(attribute::RTU, transaction, local[0], local[1]).done();
        self.say_packet(strange, host, 10_000, &datagram(rtu));
        self.did(Deed::StrangePeer);
    }
}
