//! Honest peers connect while requests are forged: each has its chance, and a handshake that has begun goes through.

use crate::flood::forged;
use crate::packet::opcode;
use crate::peer::*;
use rocev2::cm::{CmConfig, CmEvent, ConnId, ReadLimits};
use rocev2::counters::Counter;
use rocev2::env::{Duration, Instant};
use rocev2::ids::{CommId, Qpn};
use rocev2::wire::mad::{CmMessage, Req, Rtu, parse_mad};
use rocev2::wire::{Encap, Packet};
use rocev2::{Device, DeviceConfig, Event};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// When a peer sends its REQ, in milliseconds after the first: this crate, and Linux.
const OURS: &[u64] = &[0, 500, 1500, 3500, 7500, 12_331, 17_163];
const LINUX: &[u64] = &[0, 4300, 8600, 12_900, 17_200, 21_500, 25_800, 30_100];
/// Honest peers of each kind.
const HONEST: u32 = 20;
/// From the peer's REP to its RTU.
const ROUND_TRIP_MS: u64 = 20;
/// Accepts of the consumer in a millisecond.
const ACCEPTS: usize = 2;
/// What the unproven connections may hold, their queue pairs included, and the memory of what was refused.
const MEMORY: isize = 32 << 20;

/// The addresses of forged requests.
#[derive(Clone, Copy)]
enum Sources {
    One,
    /// That of an honest peer.
    Honest,
    Any,
}

struct Peer {
    encap: Encap,
    req: Req,
    schedule: &'static [u64],
    began_ms: u64,
    tries: usize,
    /// When the RTU is to leave, and for which ID of D.
    rtu: Option<(u64, CommId)>,
    established: bool,
}

impl Peer {
    fn new(base: &Encap, number: u32) -> Self {
        let src = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0100 + number));
        let encap = Encap { src, ..*base };
        let mut req = req(&encap, number, TERMS);
        req.local_comm_id = CommId::new(0x7700_0000 + number);
        req.ca_guid = u64::from(number) + 1;
        let schedule = if number.is_multiple_of(2) { OURS } else { LINUX };
        let began_ms = 500 + u64::from(number) * 97;
        Self { encap, req, schedule, began_ms, tries: 0, rtu: None, established: false }
    }

    /// What it sends in this millisecond.
    fn send(&mut self, ms: u64) -> Option<Vec<u8>> {
        if let Some((due, remote_comm_id)) = self.rtu
            && ms >= due
        {
            self.rtu = None;
            let local_comm_id = self.req.local_comm_id;
            let rtu = Rtu { local_comm_id, remote_comm_id, private_data: [0; 224] };
            return Some(mad(&self.encap, &CmMessage::Rtu(rtu)));
        }
        let due = self.schedule.get(self.tries).map(|after| self.began_ms + after);
        if self.established || due.is_none_or(|due| ms < due) {
            return None;
        }
        self.tries += 1;
        Some(mad(&self.encap, &CmMessage::Req(self.req.clone())))
    }
}

struct Flood {
    d: Device,
    memory: Regions,
    now: Instant,
    encap: Encap,
    template: Req,
    forged: u32,
    asked: VecDeque<ConnId>,
    held: BTreeMap<ConnId, Qpn>,
    most_held: usize,
    forged_seen: u32,
}

impl Flood {
    fn new() -> Self {
        let World { encap, .. } = World::new(false, TERMS);
        let mut config = DeviceConfig::new([9; 32], vec![encap.dst], 1);
        config.max_qps = 4096;
        let mut d = Device::new(config);
        let template = req(&encap, 1000, TERMS);
        let port = rocev2::wire::mad::service_port(template.service_id).unwrap();
        d.bind_port(encap.dst, port).unwrap();
        d.listen(SocketAddr::new(encap.dst, port), 256).unwrap();
        let (memory, now) = (Regions::default(), Instant::from_nanos(1_000_000_000));
        let (asked, held) = Default::default();
        Self {
            d,
            memory,
            now,
            encap,
            template,
            forged: 0,
            asked,
            held,
            most_held: 0,
            forged_seen: 0,
        }
    }

    fn give(&mut self, frame: &[u8]) {
        self.d.handle_frame(self.now, frame, None, &mut self.memory);
    }

    fn forge(&mut self, sources: Sources) -> Vec<u8> {
        self.forged += 1;
        let n = self.forged;
        let src = IpAddr::V4(match sources {
            Sources::One => Ipv4Addr::new(10, 9, 9, 9),
            Sources::Honest => Ipv4Addr::from_bits(0x0a00_0100 + 1),
            Sources::Any => Ipv4Addr::from_bits(0x0b00_0000 + n),
        });
        forged(&self.encap, self.template.clone(), src, n)
    }

    /// The consumer's turn, and what leaves: the REPs to honest peers reach them.
    fn turn(&mut self, ms: u64, peers: &mut [Peer]) {
        self.d.handle_timeout(self.now);
        while let Some(event) = self.d.poll_event() {
            match event {
                Event::Cm(CmEvent::ConnectRequest { conn, peer, .. }) => {
                    self.forged_seen +=
                        u32::from(peers.iter().all(|one| one.encap.src != peer.remote.ip()));
                    self.asked.push_back(conn);
                }
                Event::Cm(CmEvent::Established { conn }) => {
                    let qpn = self.held.remove(&conn).expect("it was accepted");
                    self.d.release(self.now, conn);
                    self.d.destroy_qp(qpn);
                }
                Event::Cm(CmEvent::TimedOut { conn } | CmEvent::Refused { conn, .. }) => {
                    self.asked.retain(|other| *other != conn);
                    self.d.release(self.now, conn);
                    if let Some(qpn) = self.held.remove(&conn) {
                        self.d.destroy_qp(qpn);
                    }
                }
                Event::Cm(CmEvent::Closed { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        for _ in 0..ACCEPTS {
            let Some(conn) = self.asked.pop_front() else { break };
            let qpn = self.d.create_qp(&qp(9, PD, None)).expect("the unproven are bounded");
            let limits = ReadLimits { inbound: 4, outbound: 4 };
            self.d.accept(self.now, conn, qpn, limits, b"").unwrap();
            self.held.insert(conn, qpn);
        }
        self.most_held = self.most_held.max(self.held.len());
        self.transmit(ms, peers);
    }

    fn transmit(&mut self, ms: u64, peers: &mut [Peer]) {
        let mut buf = [0; 2000];
        while let Some(unit) = self.d.poll_transmit(self.now, &mut buf, 1, &mut self.memory) {
            let packet = Packet::parse(&buf[..unit.len]).expect("a good packet");
            assert_eq!(packet.bth.opcode as u8, opcode::UD_SEND_ONLY);
            if let Ok((_, CmMessage::Rep(rep))) = parse_mad(packet.payload)
                && let Some(peer) = peers.iter_mut().find(|peer| {
                    (peer.encap.src, peer.req.local_comm_id)
                        == (packet.encap.dst, rep.remote_comm_id)
                })
            {
                peer.established = true;
                peer.rtu = Some((ms + ROUND_TRIP_MS, rep.local_comm_id));
            }
        }
    }
}

/// The honest peers that were established, forged requests that the consumer saw, and the most half-open connections.
fn flooded(per_ms: u32, sources: Sources, seconds: u64) -> (usize, u32, usize) {
    let mut flood = Flood::new();
    let base = flood.encap;
    let mut peers: Vec<_> = (0..2 * HONEST).map(|number| Peer::new(&base, number)).collect();
    let (empty, mut most) = (tests::alloc::held(), 0);
    for ms in 0..seconds * 1000 {
        for n in 0..per_ms {
            let forged = flood.forge(sources);
            flood.give(&forged);
            if n == per_ms / 2 {
                for frame in peers.iter_mut().filter_map(|peer| peer.send(ms)) {
                    flood.give(&frame);
                }
            }
            flood.now = flood.now + Duration::from_nanos(1_000_000 / u64::from(per_ms));
        }
        flood.turn(ms, &mut peers);
        most = most.max(tests::alloc::held() - empty);
    }
    assert!(most < MEMORY, "{most} bytes");
    let lost = flood.d.counters().get(Counter::CmRtuDropped);
    assert_eq!(lost, 0, "an RTU was lost");
    let CmConfig { max_unproven, .. } = flood.d.config().cm;
    assert!(flood.most_held <= max_unproven, "{}", flood.most_held);
    let through = peers.iter().filter(|peer| peer.established && peer.rtu.is_none()).count();
    eprintln!(
        "{per_ms} forged a ms: {through} of {} honest, {} forged seen by the consumer, {} half open, {most} bytes",
        peers.len(),
        flood.forged_seen,
        flood.most_held
    );
    (through, flood.forged_seen, flood.most_held)
}

/// Goal: 10^5 forged requests a second, from one address, from that of an honest peer, or from as many as there are, leave each of 40
/// honest connects its chance within its own retries: 95 % at least; and no REP or RTU of theirs is lost.
#[test]
fn cm_37_a_flood_of_requests_shuts_no_honest_peer_out() {
    for sources in [Sources::One, Sources::Honest, Sources::Any] {
        let (through, seen, _) = flooded(100, sources, 22);
        assert!(through >= 38, "{through} of 40");
        // What the consumer is bothered with is a small part.
        assert!(seen < 22 * 300 + 1024, "{seen}");
    }
}
