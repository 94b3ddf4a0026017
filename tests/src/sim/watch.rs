//! A watcher on the network that knows the protocol and nothing of the provider: it sees what each
//! host sends and takes, learns connections from their management datagrams, and objects.
//!
//! A flow is the requests that go to one QP. PSNs count from the flow's first one.

use super::judge::Judge;
use super::packet::{LISTED_LEN, Seen, look, number, opcode, rnr_pause};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

/// A QP on the network.
pub(crate) type Name = (IpAddr, u32);

/// How often a packet is sent again to somebody who does not answer, with 7 retries and the timeout that
/// the provider asks for; each wait is twice the one before, and the first 0.3 ms.
const UNANSWERED: u64 = 32;

/// The least that a requester has in flight towards a peer that drops what comes early, in packets.
const WINDOW_MIN: u64 = 2;

/// How often an ACK is repeated into the silence of a peer that has sent packets twice, or early.
const UNSOLICITED: u64 = 5;

/// A request packet, as it left for the first time.
struct Record {
    opcode: u8,
    hash: u64,
    ext: Vec<u8>,
    /// PSN after it.
    end: u64,
    /// Messages that ended with it or before.
    msn: u64,
    /// READ: PSNs answered, in order.
    answered: u64,
    /// READ: where the requests for it, or for a part of it, end that have arrived.
    ends: BTreeSet<u64>,
    /// READ: it was asked for again.
    again: bool,
}

impl Record {
    const fn is_read(&self) -> bool {
        self.opcode == opcode::READ_REQUEST
    }
}

/// The message that is being sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Open {
    No,
    Send,
    Write(u64),
}

struct Flow {
    /// The requester.
    from: Name,
    first: u32,
    /// MSN of the responder before the first message.
    first_msn: u64,
    pmtu: u64,
    window: u64,
    depth: usize,
    records: BTreeMap<u64, Record>,
    /// READs whose answer has not left completely.
    owed: BTreeSet<u64>,
    open: Open,
    sent: u64,
    /// All before it is done: the requester has been told, and has the data of READs.
    acked: u64,
    /// Where it began before an ACK that may have been no more than the answer to a probe.
    doubtful_from: Option<u64>,
    /// Where it began before the first packet of either side that its host may have lost between two cores, and the first answer
    /// that may not have been believed: from there on nobody knows what the requester knows.
    unsure_from: Option<u64>,
    /// A probe was sent, and nothing has come back since.
    probed: bool,
    /// Probes that were sent.
    probes: u64,
    /// The requester was told that all before it is executed, and has this data of READs beyond
    /// `acked`.
    executed: u64,
    early: BTreeSet<u64>,
    /// The requester was asked to wait until then, by its own clock.
    paused: u64,
    /// What was refused last, if nothing was sent since.
    refused: Option<u64>,
    /// All before it have reached the responder; those behind a hole, which it may keep if they are
    /// less than `reorder_packets` behind.
    arrived: u64,
    ahead: BTreeSet<u64>,
    reorder_packets: u64,
    /// The last packet that has reached it.
    farthest: u64,
    /// Holes that the responder complained of.
    naks: BTreeSet<u64>,
    /// Packets, the first time and in all, before one end told the other that it leaves.
    requests: [u64; 2],
    parted: bool,
    /// Neither side is foreign.
    ours: bool,
    /// How often the responder had no receive.
    refusals: u64,
    /// READ responses that have left, and those that came.
    responses: [u64; 2],
    /// Messages of which an ACK has told.
    told: u64,
    /// All before it were told of by an ACK, or by the answer of a READ.
    told_to: u64,
    /// Packets that came too early for the reorder window of a responder that has one.
    beyond: u64,
    /// ACKs that told of nothing new.
    idle_acks: u64,
    /// Request packets that have reached the responder, and those of them that were not the next one.
    reached: [u64; 2],
    /// ACKs of the responder.
    acks: u64,
}

/// Half a connection, from REQ.
struct Asked {
    qpn: u32,
    psn: u32,
    pmtu: u64,
}

/// Sees all packets.
#[derive(Default)]
pub(crate) struct Watch {
    asked: BTreeMap<Name, Asked>,
    flows: BTreeMap<Name, Flow>,
    peers: BTreeMap<Name, Name>,
    /// Flows to QPs of hosts that have restarted since, and count them from the same start: their
    /// requester may not know.
    before: BTreeMap<Name, Vec<Flow>>,
    /// QPs that such a number was connected with before.
    partners: BTreeMap<Name, Vec<Name>>,
    /// Bytes in flight; bytes kept behind a hole; the MSN of a new connection.
    windows: BTreeMap<IpAddr, [u64; 3]>,
    /// Bits of a host's QPNs that name its core.
    bits: BTreeMap<IpAddr, u8>,
    /// Hosts that are not ours: what they do is learnt from, and not judged.
    foreign: BTreeSet<IpAddr>,
    /// How many packets of a peer that were marked under way a host has taken, which damage does, too, and how often it has told of
    /// that.
    marked: BTreeMap<(IpAddr, IpAddr), [u64; 2]>,
    /// Request packets seen; the first time and in all.
    pub(crate) requests: [u64; 2],
    /// Notifications, and flows whose PSNs or MSN have wrapped.
    pub(crate) cnps: u64,
    pub(crate) psn_wraps: u64,
    pub(crate) msn_wraps: u64,
    /// Of management datagrams.
    pub(crate) judge: Judge,
}

/// What is wrong with a packet.
pub(crate) type Objection = Result<(), String>;

macro_rules! require {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

impl Watch {
    /// A host and the bytes that it may have in flight on a connection, and keep of its peer's behind
    /// a hole, and the MSN that it starts with.
    pub(crate) fn host(&mut self, ip: IpAddr, window: u32, reorder_bytes: u32, msn: u32) {
        self.windows.insert(ip, [window, reorder_bytes, msn].map(u64::from));
    }

    /// A host has so many cores.
    pub(crate) fn cores(&mut self, ip: IpAddr, cores: usize) {
        self.bits.insert(ip, (0..7).find(|bits| 1 << bits >= cores).unwrap_or(7));
    }

    /// QPs that are connected, each with its peer's.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Name, Name)> {
        let lives = |to: &Name| self.flows.get(to).is_some_and(|flow| !flow.parted);
        self.peers.iter().filter(move |(from, to)| lives(from) && lives(to)).map(|(&a, &b)| (a, b))
    }

    /// The first PSN of the requests that go to a QP from another, and how many are acknowledged, have arrived, and are sent.
    pub(crate) fn between(&self, to: Name, from: Name) -> Option<(u32, [u64; 3])> {
        let flow = self.flows.get(&to).filter(|flow| flow.from == from && !flow.parted)?;
        Some((flow.first, [flow.acked, flow.arrived, flow.sent]))
    }

    /// A host has taken a frame that a third party forged: it may be answered as one that comes again.
    pub(crate) fn taken_forged(&mut self, frame: &[u8]) {
        let Some(Ok(seen)) = look(frame) else { return };
        if let Some(flow) = self.flows.get_mut(&(seen.dst, seen.qpn)) {
            flow.reached.iter_mut().for_each(|count| *count += 1);
        }
    }

    /// Whether a QP is, or was, connected.
    pub(crate) fn has(&self, host: IpAddr, qpn: u32) -> bool {
        self.flows.contains_key(&(host, qpn))
    }

    /// A host is not ours.
    pub(crate) fn foreign(&mut self, ip: IpAddr) {
        self.foreign.insert(ip);
    }

    /// A host has sent a frame at `now`, its own clock.
    ///
    /// # Errors
    /// What it must not do.
    pub(crate) fn sent(&mut self, now: u64, frame: &[u8]) -> Objection {
        let Some(seen) = look(frame) else { return Ok(()) };
        let seen = seen.map_err(|what| format!("a packet with a bad {what}"))?;
        if seen.opcode == opcode::CNP {
            let [marked, told] = self.marked.entry((seen.src, seen.dst)).or_default();
            *told += 1;
            let why = told <= marked;
            let plain = seen.ext.iter().all(|&byte| byte == 0) && seen.payload.is_empty();
            require!(why && plain && seen.marks == 0x40, "a notification of no congestion");
            self.cnps += 1;
            return Ok(());
        }
        // A READ that is sent again may report congestion to a host that shows that it keeps what comes early.
        let reports = seen.opcode == opcode::READ_REQUEST && self.keeps(seen.dst);
        require!(seen.marks & !(u8::from(reports) << 6) == 0, "a packet with marks of congestion");
        if seen.opcode == opcode::UD_SEND_ONLY {
            self.learn(&seen);
            let ours = !self.foreign.contains(&seen.src);
            let bits = self.bits.get(&seen.src).copied().unwrap_or(0);
            let shows = self.keeps(seen.src).then_some(bits);
            return if ours { self.judge.sent(now, &seen, shows) } else { Ok(()) };
        }
        if self.foreign.contains(&seen.src) {
            self.learn_request(&seen);
            return Ok(());
        }
        let result = if opcode::is_response(seen.opcode) {
            self.responses_sent(&seen)
        } else {
            self.request_sent(now, &seen)
        };
        result.map_err(|what| {
            let Seen { src, dst, opcode, qpn, psn, .. } = seen;
            format!("{what} ({src} to {dst} QP {qpn:#x}: opcode {opcode:#04x} PSN {psn:#x})")
        })
    }

    /// Whether a host of ours keeps what comes early, and shows it.
    pub(crate) fn keeps(&self, host: IpAddr) -> bool {
        let keeps = self.windows.get(&host).is_some_and(|[_, reorder_bytes, _]| *reorder_bytes > 0);
        keeps && !self.foreign.contains(&host)
    }

    /// A host may have lost a frame that it has taken, on the way to the frame's core. [`Self::taken`] follows.
    pub(crate) fn maybe_lost(&mut self, frame: &[u8]) {
        let Some(Ok(seen)) = look(frame) else { return };
        if opcode::is_response(seen.opcode) {
            self.doubt_answer(&seen);
        } else if seen.opcode == opcode::UD_SEND_ONLY {
            self.judge.maybe_lost = true;
        } else {
            self.flows.get_mut(&(seen.dst, seen.qpn)).map(Flow::doubt);
        }
    }

    /// A host may not believe an answer, as it came by another path than the one before. [`Self::taken`] follows.
    pub(crate) fn maybe_disbelieved(&mut self, seen: &Seen<'_>) {
        if opcode::is_response(seen.opcode) {
            self.doubt_answer(seen);
        }
    }

    fn doubt_answer(&mut self, seen: &Seen<'_>) {
        seen.parts().for_each(|seen| _ = self.asked_by(&seen).map(Flow::doubt));
    }

    /// A host has taken a frame from its edge at `now`, its own clock.
    ///
    /// One that was damaged where nothing checks it is as good as any other.
    pub(crate) fn taken(&mut self, now: u64, frame: &[u8]) {
        let Some(Ok(seen)) = look(frame) else { return };
        if seen.congested {
            self.marked.entry((seen.dst, seen.src)).or_default()[0] += 1;
        }
        if seen.opcode == opcode::CNP {
            return;
        }
        if seen.opcode == opcode::UD_SEND_ONLY {
            return self.judge.taken(now, &seen);
        }
        if !opcode::is_response(seen.opcode) {
            if let Some(flow) = self.flows.get_mut(&(seen.dst, seen.qpn)) {
                let before = flow.arrived;
                flow.arrive(&seen);
                let first = before == 0 && flow.arrived > 0;
                if flow.arrived == 0 || first {
                    self.judge.data(now, seen.dst, seen.qpn, first);
                }
            }
        } else {
            for seen in seen.parts() {
                if let Some(flow) = self.asked_by(&seen) {
                    flow.answer(now, &seen);
                }
            }
        }
    }

    /// The flow that an answer belongs to: a peer that started anew uses the number again, while its old
    /// connection still ends.
    fn asked_by(&mut self, seen: &Seen<'_>) -> Option<&mut Flow> {
        let from = (seen.dst, seen.qpn);
        let to = self.peers.get(&from).filter(|to| to.0 == seen.src)?;
        let before = self.before.get_mut(to).into_iter().flatten().rev();
        let mut flows = self.flows.get_mut(to).into_iter().chain(before);
        let sent = |flow: &Flow| flow.place(seen.psn, flow.acked).is_some_and(|at| at < flow.sent);
        flows.find(|flow| flow.from == from && sent(flow))
    }

    /// What is sent again is bounded, for each connection between hosts of ours: `share` is of its packets, in hundredths;
    /// `outages` are those of the world. A packet that finds no receive may be sent again with all
    /// behind it, and so may a READ that is missing while the requester cannot know what its peer keeps.
    /// Each response that is lost may need a request of its own.
    /// A host that keeps nothing behind a hole, or less than came, has to be sent that again, where packets are merely late,
    /// too. Who has flushed its queue pair answers no more. What a host loses between its cores nobody counts here.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check_resends(&self, share: u64, outages: u64) -> Objection {
        let judged = |flow: &Flow| flow.ours && flow.unsure_from.is_none();
        for ((host, qpn), flow) in self.flows.iter().filter(|(_, flow)| judged(flow)) {
            let [first, all] = flow.requests;
            let windows = flow.refusals * flow.window + flow.unsure() * flow.window.min(first);
            let lost = flow.responses[0].saturating_sub(flow.responses[1]);
            let dropped = flow.dropped() + flow.beyond;
            let most = first * share / 100 + UNANSWERED * outages + windows + dropped + lost;
            require!(all <= most, "{all} packets to {host} QP {qpn:#x} for {first}, not {most}");
        }
        Ok(())
    }

    /// Nothing was sent twice, and each ACK has told of something or answered a probe, but for those that a host without a
    /// receive has asked to send again.
    ///
    /// # Errors
    /// What was.
    pub(crate) fn check_once(&self) -> Objection {
        for ((host, qpn), flow) in self.flows.iter().filter(|(_, flow)| flow.ours) {
            let ([first, all], idle) = (flow.requests, flow.idle_acks);
            let once = flow.refusals > 0 || first == all && idle <= flow.probes;
            require!(once, "{all} packets to {host} QP {qpn:#x} for {first}, {idle} idle ACKs");
        }
        Ok(())
    }

    /// REQ and REP tell who is connected with whom, and DREQ who leaves (IBTA ch. 12, Message Formats).
    fn learn(&mut self, seen: &Seen<'_>) {
        let Some(mad) = seen.payload.get(..256) else { return };
        let body = &mad[24..];
        match number(mad, 16, 2) {
            0x10 => {
                let asked = Asked {
                    qpn: number(body, 32, 3) as u32,
                    psn: number(body, 44, 3) as u32,
                    pmtu: 128 << (body[50] >> 4),
                };
                self.asked.insert((seen.src, number(body, 0, 4) as u32), asked);
            }
            0x13 => {
                let active = (seen.dst, number(body, 4, 4) as u32);
                let Some(asked) = self.asked.get(&active) else { return };
                let passive = (seen.src, number(body, 12, 3) as u32);
                let active = (seen.dst, asked.qpn);
                let (pmtu, psn) = (asked.pmtu, asked.psn);
                let reads = [usize::from(body[24]), usize::from(body[25])];
                self.connect(passive, active, number(body, 20, 3) as u32, pmtu, reads[0]);
                self.connect(active, passive, psn, pmtu, reads[1]);
            }
            // DREQ. Whoever has left answers no more, and NDK wants nothing flushed for that.
            0x15 => {
                let stays = (seen.dst, number(body, 8, 3) as u32);
                let leaves = self.peers.get(&stays).copied();
                for name in leaves.into_iter().chain([stays]) {
                    if let Some(flow) = self.flows.get_mut(&name) {
                        flow.parted = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// `from` may send to `to`, from this PSN on.
    fn connect(&mut self, to: Name, from: Name, first: u32, pmtu: u64, depth: usize) {
        // A repeated REP.
        if self.peers.get(&from) == Some(&to) && self.flows.contains_key(&to) {
            return;
        }
        let bytes = |host| self.windows.get(&host).copied().unwrap_or_default();
        let window = (bytes(from.0)[0] / pmtu).max(1);
        // Not less than 64.
        let reorder_bytes = bytes(to.0)[1];
        let reorder_packets = if reorder_bytes == 0 { 0 } else { (reorder_bytes / pmtu).max(64) };
        let flow = Flow {
            from,
            first,
            first_msn: bytes(to.0)[2],
            pmtu,
            window,
            depth,
            records: BTreeMap::new(),
            owed: BTreeSet::new(),
            open: Open::No,
            sent: 0,
            acked: 0,
            doubtful_from: None,
            unsure_from: None,
            probed: false,
            probes: 0,
            executed: 0,
            early: BTreeSet::new(),
            paused: 0,
            refused: None,
            arrived: 0,
            ahead: BTreeSet::new(),
            reorder_packets,
            farthest: 0,
            naks: BTreeSet::new(),
            requests: [0; 2],
            parted: false,
            ours: ![from.0, to.0].iter().any(|host| self.foreign.contains(host)),
            refusals: 0,
            responses: [0; 2],
            told: 0,
            told_to: 0,
            beyond: 0,
            idle_acks: 0,
            reached: [0; 2],
            acks: 0,
        };
        if let Some(old) = self.flows.insert(to, flow) {
            self.before.entry(to).or_default().push(old);
        }
        if let Some(old) = self.peers.insert(from, to).filter(|old| *old != to) {
            self.partners.entry(from).or_default().push(old);
        }
    }

    /// What a foreign requester has sent for the first time.
    fn learn_request(&mut self, seen: &Seen<'_>) {
        let Some(flow) = self.flows.get_mut(&(seen.dst, seen.qpn)) else { return };
        let at = flow.place(seen.psn, flow.sent);
        if at == Some(flow.sent) && !opcode::is_response(seen.opcode) {
            flow.record(flow.sent, seen);
        }
    }

    fn request_sent(&mut self, now: u64, seen: &Seen<'_>) -> Objection {
        let mut flow = self.flows.get_mut(&(seen.dst, seen.qpn)).ok_or("a request to no QP")?;
        let is_of = |flow: &Flow| {
            let known = flow.place(seen.psn, flow.sent).is_some_and(|at| at <= flow.sent);
            known || flow.is_probe(seen)
        };
        if !is_of(flow)
            && let Some(before) = self.before.get_mut(&(seen.dst, seen.qpn))
            && let Some(old) = before.iter_mut().find(|old| is_of(old))
        {
            flow = old;
        }
        let to = (seen.dst, seen.qpn);
        let known = self.peers.iter().any(|(from, peer)| *peer == to && from.0 == seen.src)
            // A peer that left before it was heard answers a repeated REQ with another QP; either REP may come.
            || self.partners.iter().any(|(from, old)| from.0 == seen.src && old.contains(&to));
        require!(known, "a request to somebody else's QP");
        if flow.is_probe(seen) {
            flow.probed = true;
            flow.probes += 1;
            return Ok(());
        }
        require!(now >= flow.paused, "a request in the pause that RNR NAK asked for");
        let at = flow.place(seen.psn, flow.sent).ok_or("a request before the first PSN")?;
        flow.refused = None;
        let counts = u64::from(!flow.parted);
        self.requests[1] += counts;
        flow.requests[1] += counts;
        if at == flow.sent {
            self.requests[0] += counts;
            flow.requests[0] += counts;
            let wraps = |flow: &Flow| (u64::from(flow.first) + flow.sent) >> 24;
            let before = wraps(flow);
            flow.first_time(at, seen)?;
            self.psn_wraps += wraps(flow) - before;
            return Ok(());
        }
        require!(at < flow.sent, "a hole of {} before a new request", at - flow.sent);
        flow.again(at, seen)
    }

    /// A list says what its ACKs would say, of several queue pairs.
    fn responses_sent(&mut self, seen: &Seen<'_>) -> Objection {
        if seen.opcode == opcode::ACK_LIST {
            let told = self.keeps(seen.src) && self.keeps(seen.dst);
            require!(told, "a list of ACKs between hosts that do not show that they are ours");
            let (others, rest) = seen.payload.as_chunks::<LISTED_LEN>();
            require!(rest.is_empty(), "{} bytes of ACKs", seen.payload.len());
            require!((1..=31).contains(&others.len()), "{} more ACKs", others.len());
        }
        let lists = seen.opcode == opcode::ACK_LIST;
        seen.parts().try_for_each(|seen| {
            require!(!lists || seen.ext[0] == 0x1f, "a list of more than ACKs");
            self.response_sent(&seen)
        })
    }

    fn response_sent(&mut self, seen: &Seen<'_>) -> Objection {
        let name = (seen.dst, seen.qpn);
        let told = seen.opcode != opcode::GAP_REPORT || self.keeps(seen.dst);
        require!(told, "a gap report to a host that does not show that it keeps what comes early");
        let mut to = self.peers.get(&name).ok_or("an answer to no QP")?;
        // A peer that started anew uses the number again, while its old connection is being asked.
        let fits =
            |flow: &Flow| flow.place(seen.psn, flow.arrived).is_some_and(|at| at <= flow.arrived);
        let is_of = |to: &&Name| to.0 == seen.src && self.flows.get(*to).is_some_and(fits);
        if !is_of(&to)
            && let Some(old) = self.partners.get(&name).and_then(|old| old.iter().rev().find(is_of))
        {
            to = old;
        }
        require!(to.0 == seen.src, "an answer from somebody else");
        let flow = self.flows.get_mut(to).ok_or("an answer from nowhere")?;
        let Some(at) = flow.place(seen.psn, flow.arrived) else {
            // Of a probe, before there was anything but READs.
            let nothing = [0x1f << 24 | flow.first_msn & 0xff_ffff, number(seen.ext, 0, 4)];
            let probed = seen.opcode == opcode::ACKNOWLEDGE && nothing[0] == nothing[1];
            let data = flow.records.range(..flow.arrived).any(|(_, record)| !record.is_read());
            require!(probed && !data, "an answer before the first PSN");
            return Ok(());
        };
        if seen.opcode == opcode::GAP_REPORT {
            flow.gap_report(at, seen)
        } else if seen.opcode == opcode::ACKNOWLEDGE {
            let before = flow.told;
            flow.ack(at, seen)?;
            let wraps = |told| (flow.first_msn + told) >> 24;
            self.msn_wraps += wraps(flow.told) - wraps(before);
            Ok(())
        } else {
            flow.read_answer(at, seen)
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Flow {
    /// Nobody knows what the requester knows from here on.
    fn doubt(&mut self) {
        self.unsure_from.get_or_insert(self.acked);
    }

    /// The place of a PSN, next to a known one.
    fn place(&self, psn: u32, near: u64) -> Option<u64> {
        let expected = self.first.wrapping_add(near as u32) & 0xff_ffff;
        let distance = (psn.wrapping_sub(expected) << 8).cast_signed() >> 8;
        near.checked_add_signed(i64::from(distance))
    }

    /// A zero-length WRITE under the PSN before all that is unacknowledged, which asks for an ACK: it asks the
    /// peer whether it is there, where somebody has sent a REQ in its name.
    fn is_probe(&self, seen: &Seen<'_>) -> bool {
        let next = self.place(seen.psn.wrapping_add(1) & 0xff_ffff, self.acked);
        let is_unsure = |at| self.unsure_from.is_some_and(|from| (from..self.acked).contains(&at));
        let is_open = |at| at == self.acked || self.doubtful_from == Some(at) || is_unsure(at);
        let empty = seen.payload.is_empty() && seen.ext.iter().all(|&byte| byte == 0);
        let whole = opcode::is_write(seen.opcode) && opcode::opens(seen.opcode);
        next.is_some_and(is_open) && whole && opcode::ends(seen.opcode) && empty && seen.ack_req
    }

    fn first_time(&mut self, at: u64, seen: &Seen<'_>) -> Objection {
        self.check_order(seen)?;
        let len = seen.payload.len() as u64;
        let mut end = at + 1;
        if seen.opcode == opcode::READ_REQUEST {
            end = at + number(seen.ext, 12, 4).div_ceil(self.pmtu).max(1);
            let from = self.records.range(..=self.acked).next_back().map_or(0, |(&at, _)| at);
            let reads = self.records.range(from..).filter(|(_, record)| record.is_read());
            let open = reads.filter(|(_, record)| record.end > self.acked).count();
            require!(open < self.depth, "more than {} READs in flight", self.depth);
            require!(len == 0, "a READ request with payload");
        } else {
            let full = !opcode::ends(seen.opcode);
            require!(!full || len == self.pmtu, "{len} bytes where {} belong", self.pmtu);
            require!(len <= self.pmtu, "{len} bytes, more than {}", self.pmtu);
            require!(len > 0 || opcode::opens(seen.opcode), "a last packet without payload");
        }
        let inside = end - self.acked <= self.window;
        require!(inside || at == self.acked, "beyond the window of {} packets", self.window);
        require!(seen.ack_req || !opcode::ends(seen.opcode), "a last packet that asks for no ACK");
        let allowed = opcode::is_send(seen.opcode) && opcode::ends(seen.opcode);
        require!(!seen.solicited || allowed, "a solicited event inside a message");
        self.record(at, seen);
        Ok(())
    }

    /// Keeps what was sent for the first time.
    fn record(&mut self, at: u64, seen: &Seen<'_>) {
        let reads = seen.opcode == opcode::READ_REQUEST;
        let count = if reads { number(seen.ext, 12, 4).div_ceil(self.pmtu).max(1) } else { 1 };
        let end = at + count;
        let msn = self.msn_before(at) + u64::from(opcode::ends(seen.opcode));
        let (hash, ext) = (hash(seen.payload), seen.ext.to_vec());
        let ends = BTreeSet::new();
        let (opcode, answered, again) = (seen.opcode, at, false);
        let record = Record { opcode, hash, ext, end, msn, answered, ends, again };
        if record.is_read() {
            self.owed.insert(at);
        }
        self.records.insert(at, record);
        self.sent = end;
    }

    /// Opcodes follow each other, and a WRITE carries what it announced.
    fn check_order(&mut self, seen: &Seen<'_>) -> Objection {
        let len = seen.payload.len() as u64;
        let opens = opcode::opens(seen.opcode);
        self.open = match self.open {
            Open::No => {
                require!(opens, "the middle of a message that nobody began");
                match seen.opcode {
                    0x06 | 0x0a | 0x0b => Open::Write(number(seen.ext, 12, 4)),
                    opcode::READ_REQUEST => Open::No,
                    _ => Open::Send,
                }
            }
            open => {
                let same = opcode::is_send(seen.opcode) == (open == Open::Send)
                    && (opcode::is_send(seen.opcode) || opcode::is_write(seen.opcode));
                require!(!opens && same, "a message inside another");
                open
            }
        };
        if let Open::Write(left) = self.open {
            let last = opcode::ends(seen.opcode);
            require!(if last { len == left } else { len < left }, "{len} bytes of {left}");
            self.open = Open::Write(left - len);
        }
        if opcode::ends(seen.opcode) {
            self.open = Open::No;
        }
        Ok(())
    }

    /// What is sent again is what was sent, and was not acknowledged.
    fn again(&mut self, at: u64, seen: &Seen<'_>) -> Objection {
        let doubtful = self.doubtful_from.into_iter().chain(self.unsure_from).min();
        let (acked, executed) = doubtful.map_or((self.acked, self.executed), |from| (from, from));
        require!(at >= acked, "sent again after it was acknowledged");
        let (&start, record) = self.records.range_mut(..=at).next_back().ok_or("never sent")?;
        require!(record.opcode == seen.opcode && at < record.end, "another opcode than before");
        if record.is_read() {
            record.again = true;
            let skipped = (at - start) * self.pmtu;
            let field = |ext: &[u8], from, len| number(ext, from, len);
            let (len, total) = (field(seen.ext, 12, 4), field(&record.ext, 12, 4));
            let place = field(seen.ext, 0, 8) == field(&record.ext, 0, 8).wrapping_add(skipped)
                && field(seen.ext, 8, 4) == field(&record.ext, 8, 4);
            let rest = len + skipped == total;
            let part = len > 0 && len.is_multiple_of(self.pmtu) && len + skipped < total;
            let began = at - start;
            require!(
                place && (rest || part),
                "not a part of the READ begun {began} packets before"
            );
            // A responder that has not seen the whole would take the part for it.
            let seen_whole = start < self.executed || self.early.range(start..).next().is_some();
            require!(
                rest && at == start || seen_whole,
                "a part of a READ that may not have arrived"
            );
        } else {
            require!(at >= executed, "sent again after it was acknowledged behind a READ");
            let same = record.ext == seen.ext && record.hash == hash(seen.payload);
            require!(same, "other bytes than before");
        }
        Ok(())
    }

    /// READs that were named as missing, and asked for again, before any other packet was named. What
    /// follows the resend of another packet shows whether the peer keeps what is behind a hole. What
    /// follows a READ's does not, as its answers come in between: all behind it is sent again.
    fn unsure(&self) -> u64 {
        let named = self.naks.iter().map_while(|at| self.records.get(at));
        named.take_while(|record| record.is_read()).filter(|read| read.again).count() as u64
    }

    /// What a responder that keeps nothing may drop behind the holes it named. What was in flight at the
    /// first is sent twice, which the share allows. Each time the requester goes back, which it does once
    /// for each hole, it halves its window (`rocev2/TRANSPORT.md`, Loss).
    fn dropped(&self) -> u64 {
        let holes =
            if self.reorder_packets == 0 { self.naks.len() as u64 - self.unsure() } else { 0 };
        let window = self.window.min(self.requests[0]);
        (1..=holes).map(|halvings| (window >> halvings.min(63)).max(WINDOW_MIN)).sum()
    }

    fn msn_before(&self, at: u64) -> u64 {
        self.records.range(..at).next_back().map_or(0, |(_, record)| record.msn)
    }

    /// The responder has seen a packet.
    fn arrive(&mut self, seen: &Seen<'_>) {
        let at = self.place(seen.psn, self.arrived);
        self.reached[0] += 1;
        self.reached[1] += u64::from(at != Some(self.arrived));
        let Some(at) = at else { return };
        if seen.opcode == opcode::READ_REQUEST
            && let Some((_, read)) = self.records.range_mut(..=at).next_back()
        {
            read.ends.insert(at + number(seen.ext, 12, 4).div_ceil(self.pmtu).max(1));
        }
        if at >= self.arrived && at < self.sent {
            self.farthest = self.farthest.max(at);
            if at == self.arrived || at - self.arrived < self.reorder_packets {
                self.ahead.insert(at);
            } else {
                self.beyond += u64::from(self.reorder_packets > 0);
            }
        }
        while self.ahead.remove(&self.arrived) {
            self.arrived = self.records.get(&self.arrived).map_or(self.arrived + 1, |r| r.end);
        }
        self.ahead = self.ahead.split_off(&self.arrived);
    }

    /// The requester has seen an answer.
    fn answer(&mut self, now: u64, seen: &Seen<'_>) {
        self.responses[1] += u64::from(opcode::is_read_response(seen.opcode));
        let Some(at) = self.place(seen.psn, self.acked) else { return };
        if at < self.acked || at >= self.sent {
            return;
        }
        if seen.opcode == opcode::GAP_REPORT {
            return self.acknowledge(at);
        }
        if seen.opcode != opcode::ACKNOWLEDGE {
            if self.is_read(at) {
                self.early.insert(at);
            }
            self.acknowledge(at);
            return;
        }
        let probed = std::mem::take(&mut self.probed);
        match seen.ext[0] >> 5 {
            // An rxe that has executed no SEND or WRITE answers a probe by this PSN. A flow that begins close
            // before it has a packet of that PSN, so the requester may take the answer for either.
            0 => {
                let doubtful = probed && self.executed == 0 && seen.psn == 0xff_ffff;
                self.doubtful_from = doubtful.then_some(self.acked);
                self.acknowledge(at + 1);
            }
            1 => {
                // Where nothing was sent since, it is the refusal that made the pause, once more, or an
                // older one.
                let is_new = self.refused.is_none_or(|refused| at > refused);
                if at >= self.executed && is_new {
                    self.paused = now + rnr_pause(seen.ext[0] & 31);
                    self.refused = Some(at);
                }
                self.acknowledge(at);
            }
            _ => self.acknowledge(at),
        }
    }

    /// Whether a PSN belongs to a READ.
    fn is_read(&self, at: u64) -> bool {
        self.records.range(..=at).next_back().is_some_and(|(_, record)| record.is_read())
    }

    /// All requests before `to` are executed; of READs only those are done whose data came.
    fn acknowledge(&mut self, to: u64) {
        self.executed = self.executed.max(to);
        while if self.is_read(self.acked) {
            self.early.remove(&self.acked)
        } else {
            self.acked < self.executed
        } {
            self.acked += 1;
        }
        self.executed = self.executed.max(self.acked);
    }

    fn ack(&mut self, at: u64, seen: &Seen<'_>) -> Objection {
        let syndrome = seen.ext[0];
        let (done, what) = match syndrome >> 5 {
            0 => (at + 1, "an ACK"),
            1 => (at, "an RNR NAK"),
            3 => (at, "a NAK"),
            _ => return Err(format!("a reserved syndrome {syndrome:#04x}")),
        };
        require!(done <= self.arrived, "{what} for what has not arrived");
        if syndrome < 0x20 {
            self.acks += 1;
            let [all, odd] = self.reached;
            let caused = self.acks <= all + UNSOLICITED * odd;
            require!(caused, "ACK {} for {all} packets, {odd} of them again or early", self.acks);
        }
        self.idle_acks += u64::from(done <= self.told_to && syndrome < 0x20);
        self.told_to = self.told_to.max(done);
        // A READ that lost its key ends in the middle.
        if syndrome <= 0x60 {
            let msn = number(seen.ext, 1, 3);
            let messages = self.msn_before(done);
            let right = (self.first_msn + messages) & 0xff_ffff;
            self.told = self.told.max(messages);
            require!(msn == right, "{what} with MSN {msn} instead of {right}");
            let overtakes = self.owed.range(..done).next().is_some();
            require!(!overtakes, "{what} that overtakes the answer of a READ");
        }
        if syndrome < 0x20 {
            let named = self.records.range(..=at).next_back();
            let read = named.is_some_and(|(_, record)| record.is_read());
            require!(!read, "{what} with a PSN of the answer of a READ");
        }
        match syndrome {
            0x20..=0x3f => {
                require!(at < self.arrived, "an RNR NAK for what has not arrived");
                self.refusals += 1;
                // Refused; what is behind it is kept, and has come early.
                let behind = self.records.range(at + 1..self.arrived).map(|(&behind, _)| behind);
                self.reached[1] += behind.clone().count() as u64;
                self.ahead.extend(behind);
                self.arrived = at;
            }
            0x60 => {
                require!(self.naks.insert(at), "a second NAK for the same gap");
                require!(at < self.farthest, "a NAK without a gap");
            }
            _ => {}
        }
        Ok(())
    }

    /// From the expected packet on: so many are missing, so many behind them have come, and so on.
    fn gap_report(&self, at: u64, seen: &Seen<'_>) -> Objection {
        // A packet for which there was no room has arrived, and is missing.
        require!(at <= self.arrived, "a gap report of what has not arrived");
        let (gaps, rest) = seen.payload.as_chunks::<4>();
        require!(rest.is_empty() && !gaps.is_empty(), "{} bytes of gaps", seen.payload.len());
        let overtakes = self.owed.range(..at).next().is_some();
        require!(!overtakes, "a gap report that overtakes the answer of a READ");
        let mut at = at;
        for gap in gaps {
            let [missing, came] = [number(gap, 0, 2), number(gap, 2, 2)];
            require!(missing > 0 && came > 0, "a gap of {missing} before {came}");
            at += missing;
            let end = at + came;
            while at < end {
                let early = at < self.arrived || self.ahead.contains(&at);
                require!(early, "a report of {at}, which has not come early");
                at = self.records.get(&at).map_or(at + 1, |record| record.end);
            }
            require!(at == end, "a report of a part of a READ");
        }
        Ok(())
    }

    fn read_answer(&mut self, at: u64, seen: &Seen<'_>) -> Objection {
        self.responses[0] += 1;
        self.told_to = self.told_to.max(at + 1);
        let msn = (seen.ext.len() == 4).then(|| number(seen.ext, 1, 3));
        let read = self.records.range_mut(..=at).next_back();
        let read = read.filter(|(_, record)| record.is_read() && at < record.end);
        let (&start, record) = read.ok_or("READ data that nobody asked for")?;
        require!(start < self.arrived, "READ data before the request has arrived");
        let last = at + 1 == record.end;
        let ends = matches!(seen.opcode, opcode::READ_LAST | opcode::READ_ONLY);
        let right = if last { ends } else { !ends || record.ends.contains(&(at + 1)) };
        require!(right, "READ data that ends in the wrong place");
        let total = number(&record.ext, 12, 4);
        let right = (total - (at - start) * self.pmtu).min(self.pmtu);
        require!(seen.payload.len() as u64 == right, "{} bytes for {right}", seen.payload.len());
        let right = (self.first_msn + record.msn) & 0xff_ffff;
        require!(msn.is_none_or(|msn| msn == right), "READ data with MSN {msn:?}, not {right}");
        if record.answered == at {
            record.answered = at + 1;
            if last {
                self.owed.remove(&start);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const FROM: Name = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 3);
    const TO: Name = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5);
    /// Packets.
    const WINDOW: u32 = 100;

    const fn seen(src: IpAddr, (dst, qpn): Name, opcode: u8, psn: u32) -> Seen<'static> {
        let ext = if opcode == opcode::READ_REQUEST { &[0; 16] } else { &[] as &[u8] };
        let (solicited, ack_req, marks, congested) = (false, true, 0, false);
        let payload = &[];
        Seen { src, dst, opcode, solicited, qpn, ack_req, psn, marks, congested, ext, payload }
    }

    fn send(watch: &mut Watch, opcode: u8, psn: u32) {
        watch.request_sent(0, &seen(FROM.0, TO, opcode, psn)).unwrap();
    }

    /// Goal: a requester may ask again about what it was told by an answer that it may not have believed.
    #[test]
    fn an_answer_that_may_not_be_believed_may_be_asked_for_again() {
        for doubted in [false, true] {
            let mut watch = Watch::default();
            watch.host(FROM.0, WINDOW * 256, 0, 0);
            watch.connect(TO, FROM, 5, 256, 1);
            (5..8).for_each(|psn| send(&mut watch, 0x04, psn));
            let mut answer = seen(TO.0, FROM, opcode::ACKNOWLEDGE, 7);
            answer.ext = &[0x1f, 0, 0, 3];
            if doubted {
                watch.doubt_answer(&answer);
            }
            watch.asked_by(&answer).unwrap().answer(0, &answer);
            let mut probe = seen(FROM.0, TO, 0x0a, 4);
            probe.ext = &[0; 16];
            assert_eq!(watch.request_sent(0, &probe).is_ok(), doubted);
        }
    }

    /// Goal: an answer is one to whom it goes to, where two have asked the same QP under PSNs that are close.
    #[test]
    fn an_answer_belongs_to_the_requester_that_it_names() {
        let mut watch = Watch::default();
        let other = (FROM.0, FROM.1 + 1);
        watch.host(FROM.0, WINDOW * 256, 0, 0);
        watch.connect(TO, FROM, 0, 256, 1);
        (0..8).for_each(|psn| send(&mut watch, 0x04, psn));
        // The peer has started anew, and its QP has the same number.
        watch.connect(TO, other, 0x80_0000, 256, 1);
        let answers = |watch: &mut Watch, to| {
            watch.asked_by(&seen(TO.0, to, opcode::ACKNOWLEDGE, 5)).map(|flow| flow.first)
        };
        assert_eq!(answers(&mut watch, FROM), Some(0));
        assert_eq!(answers(&mut watch, other), None);
    }

    /// A window of SENDs around a READ was sent twice, while the responder named these as missing.
    fn sent_twice(read: u32, named: &[u64]) -> Watch {
        let mut watch = Watch::default();
        watch.host(FROM.0, WINDOW * 256, 0, 0);
        watch.connect(TO, FROM, 0, 256, 1);
        for psn in (0..WINDOW).chain(0..WINDOW) {
            send(&mut watch, if psn == read { opcode::READ_REQUEST } else { 0x04 }, psn);
        }
        watch.flows.get_mut(&TO).unwrap().naks.extend(named);
        watch
    }

    /// Goal: a window is sent again for each READ that is named before any other packet, and for
    /// nothing else.
    #[test]
    fn a_missing_read_explains_a_window_while_nothing_else_was_named() {
        let check = |watch: &Watch| watch.check_resends(100, 0);
        assert!(check(&sent_twice(0, &[])).is_err());
        assert!(check(&sent_twice(1, &[0, 1])).is_err());
        let mut watch = sent_twice(0, &[0]);
        check(&watch).unwrap();
        send(&mut watch, 0x04, 1);
        assert!(check(&watch).is_err());
        // Two responses have left, and one has come.
        watch.flows.get_mut(&TO).unwrap().responses = [2, 1];
        check(&watch).unwrap();
    }

    /// Goal: where nothing is kept, each hole explains half of what the one before did; where early
    /// packets are kept, none explains anything.
    #[test]
    fn holes_explain_a_window_where_nothing_is_kept() {
        let check = |watch: &Watch| watch.check_resends(100, 0);
        // 50, 25, 12, 6, 3, 2 and 2 packets.
        let named: Vec<u64> = (0..7).collect();
        assert!(check(&sent_twice(WINDOW, &named[..6])).is_err());
        let mut watch = sent_twice(WINDOW, &named);
        check(&watch).unwrap();
        watch.flows.get_mut(&TO).unwrap().reorder_packets = 64;
        assert!(check(&watch).is_err());
    }
}
