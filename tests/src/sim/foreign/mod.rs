//! A peer that is not ours: its own requester, responder and connection manager, with what Linux'
//! `rdma_rxe` and hardware do otherwise than the provider as flags. It shares no code with the
//! provider.
//!
//! | module | holds |
//! | --- | --- |
//! | `quirks` | how it behaves |
//! | `requester`, `responder`, `qp` | a queue pair |
//! | `keys` | memory that it or its peer may reach |
//! | `cm`, `manager` | connections |
//! | `wire` | frames |
//! | `verbs` | what a consumer of the simulation asks of either kind of host |

pub(super) mod cm;
mod keys;
mod manager;
mod qp;
mod quirks;
mod requester;
mod responder;
mod verbs;
pub(super) mod wire;

pub(super) use quirks::Quirks;

use super::Deed;
use super::packet::{look, opcode};
use crate::kit::numbered::Event;
use cm::Conn;
use driver::abi::*;
use keys::{Keys, Piece};
use qp::{Context, Qp, State};
use requester::Wqe;
use rocev2::env::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use wire::{Packet, Route, frame};

/// Packets of a queue pair in a turn.
const BURST: usize = 64;

/// A host with a foreign adapter.
pub(super) struct Foreign {
    pub(super) quirks: Quirks,
    rng: Rng,
    host: usize,
    ip: IpAddr,
    mac: [u8; 6],
    mtu: usize,
    /// Who has which link-layer address.
    neighbours: BTreeMap<IpAddr, [u8; 6]>,
    keys: Keys,
    /// By their numbers, which count up.
    qps: BTreeMap<u32, Qp>,
    made: u32,
    conns: BTreeMap<usize, Conn>,
    conns_made: usize,
    /// Communication IDs count up from here.
    boot: u32,
    /// How often it was started before.
    restarts: u64,
    pub(super) out: VecDeque<Vec<u8>>,
    pub(super) events: Vec<Event>,
    /// Ends that may fail from here on.
    pub(super) excuses: Vec<(usize, &'static str)>,
    /// What a peer must not have done.
    pub(super) fault: Option<String>,
    pub(super) met: Vec<Deed>,
}

impl Foreign {
    /// A host that has just started.
    pub(super) fn new(
        host: usize,
        ip: IpAddr,
        mtu: usize,
        quirks: Quirks,
        restarts: u64,
        mut rng: Rng,
    ) -> Self {
        Self {
            quirks,
            boot: rng.u32(),
            restarts,
            rng,
            host,
            ip,
            mac: super::net::mac(host),
            mtu,
            neighbours: BTreeMap::new(),
            keys: Keys::default(),
            qps: BTreeMap::new(),
            made: 0,
            conns: BTreeMap::new(),
            conns_made: 0,
            out: VecDeque::new(),
            events: Vec::new(),
            excuses: Vec::new(),
            fault: None,
            met: Vec::new(),
        }
    }

    /// It knows where a neighbour is, without asking or because that one has told everybody: Linux
    /// takes it for what it is.
    pub(super) fn meet(&mut self, ip: IpAddr, mac: [u8; 6]) {
        self.neighbours.insert(ip, mac);
        let routes = self.qps.values_mut().filter_map(|qp| qp.route.as_mut());
        routes.filter(|route| route.ips[1] == ip).for_each(|route| route.macs[1] = mac);
    }

    /// The GUID that its link-layer address makes (EUI-64).
    fn guid(&self) -> u64 {
        guid(self.mac)
    }

    fn route(&self, to: IpAddr) -> Route {
        let mac = self.neighbours.get(&to).copied().unwrap_or([0xff; 6]);
        Route { macs: [self.mac, mac], ips: [self.ip, to] }
    }

    /// It is busy with an answer, and looks at nothing else.
    pub(super) fn is_reading(&self) -> bool {
        self.qps.values().any(|qp| qp.state == State::Ready && qp.responder.is_reading())
    }

    /// A frame has arrived.
    pub(super) fn take(&mut self, now: u64, frame: &[u8]) {
        if let Some(answer) = wire::resolve(frame, self.mac, self.ip) {
            self.out.push_back(answer);
            return;
        }
        let Some(Ok(seen)) = look(frame) else { return };
        if seen.dst != self.ip {
            return;
        }
        if let Some(mac) = frame[6..12].first_chunk() {
            // What a NIC sent before it was replaced may come last.
            self.neighbours.entry(seen.src).or_insert(*mac);
        }
        if seen.opcode == opcode::UD_SEND_ONLY {
            return self.hear(now, &seen);
        }
        self.with_qp(now, seen.qpn, |qp, cx| qp.take(&seen, cx));
    }

    /// Lets a queue pair work, and sends what it has to say.
    fn with_qp(&mut self, now: u64, qpn: u32, work: impl FnOnce(&mut Qp, &mut Context<'_>)) {
        let Some(qp) = self.qps.get_mut(&qpn) else { return };
        let mut cx = Context {
            now,
            pmtu: qp.pmtu,
            keys: &mut self.keys,
            quirks: &self.quirks,
            rng: &mut self.rng,
            met: &mut self.met,
            out: Vec::new(),
            ended: Vec::new(),
            received: Vec::new(),
            excuse: None,
            fault: None,
            dead: false,
        };
        work(qp, &mut cx);
        let Context { out, excuse, fault, .. } = cx;
        self.excuses.extend(excuse.map(|why| (qp.end, why)));
        self.fault = self.fault.take().or(fault);
        let Some(route) = qp.route else { return };
        let qpn = qp.peer_qpn;
        let frames = out.into_iter().map(|packet| frame(&route, &Packet { qpn, ..packet }));
        self.out.extend(frames);
    }

    /// Its turn; true: it has more to send.
    pub(super) fn poll(&mut self, now: u64) -> bool {
        self.resend(now);
        let mut more = false;
        for qpn in self.qps.keys().copied().collect::<Vec<_>>() {
            let before = self.out.len();
            self.with_qp(now, qpn, |qp, cx| qp.send(BURST, cx));
            more |= self.out.len() - before >= BURST;
        }
        more
    }

    /// When it has something to do by itself.
    pub(super) fn next(&self) -> Option<u64> {
        let qps = self.qps.values().filter_map(|qp| qp.due(&self.quirks));
        qps.chain(self.conns.values().filter_map(|conn| conn.due)).min()
    }

    // ---- what a consumer asks ------------------------------------------------------------------

    /// A queue pair of an end.
    pub(super) fn create_qp(&mut self, end: usize, depths: [u32; 2]) {
        // The first number that Linux gives.
        let qpn = 0x11 + self.made;
        self.made += 1;
        self.qps.insert(qpn, Qp::new(end, depths));
    }

    fn qp_of(&mut self, end: usize) -> Option<(u32, &mut Qp)> {
        self.qps.iter_mut().find(|(_, qp)| qp.end == end).map(|(&qpn, qp)| (qpn, qp))
    }

    /// Completions of an end.
    pub(super) fn results(&mut self, end: usize, which: usize) -> Vec<NDK_RESULT_EX> {
        let Some((_, qp)) = self.qp_of(end) else { return Vec::new() };
        qp.results[which].drain(..).collect()
    }

    fn post_receive(&mut self, end: usize, id: usize, list: Vec<Piece>) -> NTSTATUS {
        let Some((_, qp)) = self.qp_of(end) else { return STATUS_CONNECTION_INVALID };
        match qp.state {
            State::Error => {
                qp.flush_receive(id);
                STATUS_SUCCESS
            }
            _ if qp.receives.len() >= qp.depths[0] as usize => STATUS_NO_MORE_ENTRIES,
            _ => {
                qp.receives.push_back((id, list));
                STATUS_SUCCESS
            }
        }
    }

    fn post_request(&mut self, end: usize, wqe: Wqe) -> NTSTATUS {
        let Some((_, qp)) = self.qp_of(end) else { return STATUS_CONNECTION_INVALID };
        match qp.state {
            State::Init | State::Error => STATUS_CONNECTION_INVALID,
            State::Ready if qp.requester.queue.len() >= qp.depths[1] as usize => {
                STATUS_NO_MORE_ENTRIES
            }
            State::Ready => {
                qp.requester.queue.push_back(wqe);
                STATUS_SUCCESS
            }
        }
    }

    /// Everything posted ends; the peer is told.
    pub(super) fn flush(&mut self, now: u64, end: usize) {
        if let Some((_, qp)) = self.qp_of(end) {
            qp.fail(STATUS_CANCELLED);
        }
        self.leave(now, end, None);
    }

    /// Nothing is left of an end but what its peer is still to be told.
    pub(super) fn destroy(&mut self, now: u64, end: usize) {
        self.leave(now, end, None);
        self.abandon(now, end);
        self.qps.retain(|_, qp| qp.end != end);
    }
}

/// The GUID of a link-layer address (EUI-64).
pub(super) fn guid([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
