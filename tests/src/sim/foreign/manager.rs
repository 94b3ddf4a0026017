//! What a foreign connection manager does with each message, and with each wish of a consumer.

use super::cm::{Asks, Conn, Heard, Mad, State, attribute, mra, rej, rep, req};
use super::wire::{Packet, frame};
use super::{Foreign, qp};
use crate::kit::numbered::Event;
use crate::kit::raw::Object;
use crate::sim::Deed;
use crate::sim::packet::{Seen, opcode};
use crate::sim::world::PORT;
use driver::abi::*;
use std::net::IpAddr;

/// How often REQ and REP are sent.
const TRIES: u32 = 16;

impl Foreign {
    // ---- messages ------------------------------------------------------------------------------

    /// A management datagram.
    pub(super) fn hear(&mut self, now: u64, seen: &Seen<'_>) {
        let Some(heard) = Heard::new(seen.payload).filter(|_| seen.qpn == 1) else { return };
        let [_, ours] = heard.ids();
        if heard.kind == attribute::REQ {
            return self.hear_req(now, seen, &heard);
        }
        let by_id = |conn: &Conn| conn.local == ours && conn.peer == seen.src;
        let found = self.conns.iter().find(|(_, conn)| by_id(conn)).map(|(&number, _)| number);
        match (found, heard.kind) {
            (Some(number), attribute::REP) => self.hear_rep(now, number, &heard),
            (Some(number), attribute::RTU) => self.hear_rtu(number, &heard),
            (Some(number), attribute::REJ) => self.hear_rej(number, &heard),
            (Some(number), attribute::MRA) => self.hear_mra(now, number, &heard),
            (Some(number), attribute::DREP) => self.hear_drep(number),
            (number, attribute::DREQ) => self.hear_dreq(number, seen.src, &heard),
            _ => {}
        }
    }

    fn hear_req(&mut self, now: u64, seen: &Seen<'_>, heard: &Heard<'_>) {
        let [theirs, _] = heard.ids();
        let guid = heard.get(16, 8);
        let same = |conn: &Conn| {
            !conn.active && (conn.peer, conn.remote, conn.guid) == (seen.src, theirs, guid)
        };
        if let Some(conn) = self.conns.values().find(|conn| same(conn)) {
            if conn.state == State::ReqReceived {
                let mad = mra(conn, 0, 20);
                self.met.push(Deed::Mra);
                self.say(seen.src, mad);
            }
            return;
        }
        let refuse = |reason, ari: &[u8]| rej(heard.transaction, [0, theirs], 0, reason, ari);
        let code = heard.get(50, 1) >> 4;
        let most = self.mtu_code();
        if heard.get(8, 8) != 0x0106_0000 | u64::from(PORT) {
            return self.say(seen.src, refuse(8, &[]));
        }
        if code == 0 || code > most {
            return self.say(seen.src, refuse(26, &[most as u8]));
        }
        let local = self.new_id();
        let psns = [heard.get(44, 3) as u32, self.new_psn()];
        let conn = Conn {
            remote: theirs,
            guid,
            port: heard.get(142, 2) as u16,
            transaction: heard.transaction,
            peer_qpn: heard.get(32, 3) as u32,
            psns,
            pmtu: 128 << code,
            limits: [heard.get(39, 1) as u32, heard.get(35, 1) as u32],
            data: heard.body[176..232].to_vec(),
            ..Conn::new(State::ReqReceived, local, seen.src)
        };
        let early = self.quirks.eager_mra.then(|| mra(&conn, 0, 20));
        let number = self.insert(conn);
        let pointer = std::ptr::without_provenance_mut(number);
        self.events.push(Event::Connecting(self.host, Object(pointer)));
        if let Some(mad) = early {
            self.met.push(Deed::Mra);
            self.say(seen.src, mad);
        }
        let _ = now;
    }

    fn hear_rep(&mut self, now: u64, number: usize, heard: &Heard<'_>) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let [theirs, _] = heard.ids();
        match conn.state {
            State::ReqSent => {
                (conn.remote, conn.due) = (theirs, None);
                conn.peer_qpn = heard.get(12, 3) as u32;
                conn.psns[0] = heard.get(20, 3) as u32;
                conn.guid = heard.get(28, 8);
                let [inbound, outbound] = conn.limits;
                let theirs = [heard.get(25, 1) as u32, heard.get(24, 1) as u32];
                conn.limits = [inbound.min(theirs[0]), outbound.min(theirs[1])];
                conn.data = heard.body[36..232].to_vec();
                conn.state = State::RepReceived;
                let token = conn.token.take();
                self.tell(token, STATUS_SUCCESS);
            }
            State::RepReceived if self.quirks.eager_mra => {
                let (mad, peer) = (mra(conn, 1, 20), conn.peer);
                self.met.push(Deed::Mra);
                self.say(peer, mad);
            }
            // The RTU was lost.
            State::Up if conn.active => self.repeat(now, number),
            _ => {}
        }
    }

    fn hear_rtu(&mut self, number: usize, heard: &Heard<'_>) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if conn.state == State::RepSent && conn.remote == heard.ids()[0] {
            (conn.state, conn.due, conn.tells) = (State::Up, None, true);
            let token = conn.token.take();
            self.tell(token, STATUS_SUCCESS);
        }
    }

    fn hear_rej(&mut self, number: usize, heard: &Heard<'_>) {
        let Some(conn) = self.conns.get(&number) else { return };
        let right = conn.state == State::ReqSent || conn.remote == heard.ids()[0];
        if right {
            self.lose(number, STATUS_CONNECTION_REFUSED);
        }
    }

    fn hear_mra(&mut self, now: u64, number: usize, heard: &Heard<'_>) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let message = heard.get(8, 1) >> 6;
        if matches!((conn.state, message), (State::ReqSent, 0) | (State::RepSent, 1)) {
            // As long as it says, and no longer than anybody waits.
            let long = (4096 << (heard.get(9, 1) >> 3)).min(20_000_000_000);
            conn.due = Some(now + long);
        }
    }

    fn hear_drep(&mut self, number: usize) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if conn.state == State::DreqSent {
            let token = conn.token.take();
            self.tell(token, STATUS_SUCCESS);
            self.conns.remove(&number);
        }
    }

    fn hear_dreq(&mut self, number: Option<usize>, from: IpAddr, heard: &Heard<'_>) {
        let [theirs, ours] = heard.ids();
        let conn = number.and_then(|number| Some((number, self.conns.get(&number)?)));
        let known = conn.filter(|(_, conn)| conn.remote == theirs).map(|(number, conn)| {
            let qpn = conn.end.and_then(|end| self.qps.iter().find(|(_, qp)| qp.end == end));
            (number, qpn.map(|(&qpn, _)| qpn))
        });
        if let Some((number, qpn)) = known {
            if qpn.is_some_and(|qpn| qpn != heard.get(8, 3) as u32) {
                return;
            }
            self.lose(number, STATUS_CANCELLED);
        } else if self.quirks.is_deaf() {
            // Its process is gone, and nobody answers for it.
            self.met.push(Deed::Deaf);
            return;
        }
        self.say(from, Mad::new(attribute::DREP, heard.transaction, ours, theirs).done());
    }

    /// The peer has ended a connection.
    fn lose(&mut self, number: usize, status: NTSTATUS) {
        let Some(conn) = self.conns.remove(&number) else { return };
        // Whoever disconnects has no more to ask for.
        let gone = conn.state == State::DreqSent;
        self.tell(conn.token, if gone { STATUS_SUCCESS } else { status });
        if let Some(end) = conn.end.filter(|_| conn.tells && !gone) {
            self.events.push(Event::Left(end));
        }
    }

    fn tell(&mut self, token: Option<usize>, status: NTSTATUS) {
        self.events.extend(token.map(|token| Event::Requested(token, status)));
    }

    // ---- sending -------------------------------------------------------------------------------

    fn say(&mut self, to: IpAddr, mad: Vec<u8>) {
        let route = self.route(to);
        let ext = vec![0x80, 1, 0, 0, 0, 0, 0, 1];
        let (opcode, qpn) = (opcode::UD_SEND_ONLY, 1);
        self.out.push_back(frame(
            &route,
            &Packet { opcode, qpn, ext, payload: mad, ..Packet::default() },
        ));
    }

    /// Says once more what was said last.
    fn repeat(&mut self, now: u64, number: usize) {
        let wait = self.quirks.cm_resend;
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let (to, mad) = (conn.peer, conn.mad.clone());
        let waits = matches!(conn.state, State::ReqSent | State::RepSent | State::DreqSent);
        conn.tries += 1;
        conn.due = waits.then_some(now + wait);
        self.say(to, mad);
    }

    /// What nobody has answered is said again, or given up.
    pub(super) fn resend(&mut self, now: u64) {
        let due = |conn: &Conn| conn.due.is_some_and(|due| due <= now);
        let ripe = self.conns.iter().filter(|(_, conn)| due(conn));
        for number in ripe.map(|(&number, _)| number).collect::<Vec<_>>() {
            let Some(conn) = self.conns.get(&number) else { continue };
            let most = if conn.state == State::DreqSent { self.quirks.dreqs } else { TRIES };
            if conn.tries < most {
                self.repeat(now, number);
            } else if let Some(conn) = self.conns.remove(&number) {
                self.tell(conn.token, STATUS_IO_TIMEOUT);
            }
        }
    }

    fn insert(&mut self, conn: Conn) -> usize {
        self.conns_made += 1;
        self.conns.insert(self.conns_made, conn);
        self.conns_made
    }

    const fn new_id(&mut self) -> u32 {
        self.boot = self.boot.wrapping_add(1);
        self.boot
    }

    /// The PSN that a peer starts with: any, or one that is soon over; but not twice for the QPNs
    /// that count from the same start, as a peer of before may still speak to those.
    fn new_psn(&mut self) -> u32 {
        match self.rng.below(2) {
            _ if self.restarts > 0 => self.rng.u32() & 0xff_ffff,
            0 => self.rng.u32() & 0xff_ffff,
            _ => 0xff_ffff - self.rng.below(200),
        }
    }

    fn mtu_code(&self) -> u64 {
        (1..=5).rev().find(|code| (128 << code) + 96 <= self.mtu).unwrap_or(1)
    }

    fn conn_of(&self, end: usize) -> Option<usize> {
        self.conns.iter().find(|(_, conn)| conn.end == Some(end)).map(|(&number, _)| number)
    }

    // ---- what a consumer asks ------------------------------------------------------------------

    pub(super) fn connect(
        &mut self,
        now: u64,
        (end, token): (usize, usize),
        to: IpAddr,
        limits: [u32; 2],
        data: &[u8],
    ) {
        let local = self.new_id();
        let psns = [0, self.new_psn()];
        let code = self.mtu_code();
        let Some(qpn) = self.qp_of(end).map(|(qpn, _)| qpn) else { return };
        let asks = Asks {
            local,
            transaction: u64::from(local),
            guid: self.guid(),
            ips: [self.ip, to],
            ports: [49152 + (local & 0x3fff) as u16, PORT],
            qpn,
            psn: psns[1],
            mtu_code: code,
            limits,
            timeout_code: self.quirks.timeout_code,
            retry_count: self.quirks.retry_count,
            rnr_retry: self.quirks.rnr_retry[0],
        };
        let mad = req(&asks, data);
        let conn = Conn {
            end: Some(end),
            token: Some(token),
            transaction: asks.transaction,
            psns,
            pmtu: 128 << code,
            limits,
            mad,
            ..Conn::new(State::ReqSent, local, to)
        };
        let number = self.insert(conn);
        self.repeat(now, number);
    }

    /// The queue pair of an end is another connection's from here on.
    fn bring_up(&mut self, end: usize, number: usize) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (route, psns, pmtu) = (self.route(conn.peer), conn.psns, conn.pmtu);
        let ([inbound, outbound], peer_qpn) = (conn.limits, conn.peer_qpn);
        let Some((_, qp)) = self.qp_of(end) else { return };
        (qp.route, qp.peer_qpn, qp.pmtu) = (Some(route), peer_qpn, pmtu);
        qp.requester.open(psns[0], outbound as usize);
        qp.responder.open(psns[1], inbound as usize);
        if qp.state == qp::State::Init {
            qp.state = qp::State::Ready;
        }
    }

    /// Confirms what the peer has offered.
    pub(super) fn complete_connect(&mut self, now: u64, end: usize, token: usize) {
        let Some(number) = self.conn_of(end) else {
            return self.tell(Some(token), STATUS_CONNECTION_INVALID);
        };
        self.bring_up(end, number);
        if let Some(conn) = self.conns.get_mut(&number) {
            (conn.state, conn.tells) = (State::Up, true);
            conn.mad = Mad::new(attribute::RTU, conn.transaction, conn.local, conn.remote).done();
        }
        self.repeat(now, number);
        self.tell(Some(token), STATUS_SUCCESS);
    }

    /// Accepts a request.
    pub(super) fn accept(
        &mut self,
        now: u64,
        number: usize,
        (end, token): (usize, usize),
        limits: [u32; 2],
        data: &[u8],
    ) {
        let guid = self.guid();
        let Some(qpn) = self.qp_of(end).map(|(qpn, _)| qpn) else { return };
        let quirks = self.quirks.clone();
        let Some(conn) = self.conns.get_mut(&number) else {
            return self.tell(Some(token), STATUS_CONNECTION_INVALID);
        };
        (conn.end, conn.token, conn.state) = (Some(end), Some(token), State::RepSent);
        conn.limits = [conn.limits[0].min(limits[0]), conn.limits[1].min(limits[1])];
        conn.mad = rep(conn, qpn, guid, &quirks, data);
        self.bring_up(end, number);
        self.repeat(now, number);
    }

    /// Refuses a request, or what the peer has offered.
    pub(super) fn reject(&mut self, number: usize) {
        let Some(conn) = self.conns.remove(&number) else { return };
        let message = u64::from(conn.active);
        let ids = [conn.local, conn.remote];
        self.say(conn.peer, rej(conn.transaction, ids, message, 28, &[]));
        self.tell(conn.token, STATUS_CANCELLED);
    }

    /// Leaves a connection that is there; the peer is told, unless nobody of ours can any more.
    pub(super) fn leave(&mut self, now: u64, end: usize, token: Option<usize>) {
        let number = self.conn_of(end);
        let up = |number: &usize| self.conns[number].state == State::Up;
        let Some(number) = number.filter(up) else {
            return self.tell(token, STATUS_CONNECTION_INVALID);
        };
        if self.quirks.is_deaf() {
            self.conns.remove(&number);
            return self.tell(token, STATUS_IO_TIMEOUT);
        }
        if let Some(conn) = self.conns.get_mut(&number) {
            (conn.state, conn.token, conn.tries) = (State::DreqSent, token, 0);
            conn.mad = Mad::new(attribute::DREQ, conn.transaction + 1, conn.local, conn.remote)
                .put(8, 3, conn.peer_qpn.into())
                .done();
        }
        self.repeat(now, number);
    }

    /// The consumer is gone: what is not established is refused or given up.
    pub(super) fn abandon(&mut self, now: u64, end: usize) {
        let Some(number) = self.conn_of(end) else { return };
        let Some(conn) = self.conns.get_mut(&number) else { return };
        conn.token = None;
        match conn.state {
            State::DreqSent => conn.end = None,
            // Linux gives up a REQ with the reason that tells of a time-out.
            State::ReqSent => {
                let (ids, transaction, to) = ([conn.local, 0], conn.transaction, conn.peer);
                let guid = self.guid().to_be_bytes();
                self.conns.remove(&number);
                self.say(to, rej(transaction, ids, 0, 4, &guid));
            }
            _ => self.reject(number),
        }
        let _ = now;
    }

    /// What a peer has asked with or offered: READs, private data, and from where.
    pub(super) fn connection_data(
        &self,
        number: usize,
    ) -> Option<([u32; 2], Vec<u8>, IpAddr, u16)> {
        let conn = self.conns.get(&number)?;
        Some((conn.limits, conn.data.clone(), conn.peer, conn.port))
    }

    /// The number of an end's connection.
    pub(super) fn number_of(&self, end: usize) -> Option<usize> {
        self.conn_of(end)
    }
}
