//! A device under test, "D", and its peer "P", whose packets are made by hand.
//!
//! What D sends is taken apart by an observer that shares no code with it ([`look`]).

use crate::golden::vectors;
use crate::packet::{look, number, opcode};
use rocev2::cm::{CmConfig, CmEvent, ReadLimits};
use rocev2::counters::Counter;
use rocev2::env::{Duration, Fault, Instant, Memory, RegionId};
use rocev2::ids::{CommId, Lkey, Qpn, Rkey};
use rocev2::mr::{Access, Mapping, PdId, Registration, Reserve};
use rocev2::psn::{Msn, Psn};
use rocev2::qp::{
    Completion, DcqcnConfig, QpConfig, QpState, RecvWr, SendOp, SendWr, SgList, Sge, SrqId,
    WcStatus, Window,
};
use rocev2::wire::mad::{CmMessage, GSI_QKEY, IpCm, MadHeader, Req, Rtu, emit_mad, gid, parse_mad};
use rocev2::wire::{
    Aeth, Bth, Deth, DropReason, Encap, Ext, Mac, Opcode, Packet, Reth, Syndrome, Template,
    UnitWriter,
};
use rocev2::{Device, DeviceConfig, Event, LinkEnd, Opening};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The path MTU.
pub(crate) const P: usize = 1024;
/// The first byte of D's first region, as P names it.
pub(crate) const BASE: u64 = 0x7000_0000;
/// Its length; more where a case says so.
pub(crate) const REGION: usize = 32 << 10;
/// Where receives and READ sinks are; all else of the region has to survive.
pub(crate) const SINK: usize = 16 << 10;
/// D's own domain.
pub(crate) const PD: PdId = PdId(1);
/// Every right.
pub(crate) const ALL: Access =
    Access::LOCAL_WRITE.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE);
/// P's queue pair.
const P_QPN: u32 = 0x77;
/// Where D listens: the port in the captured REQ that P sends.
const PORT: u16 = 7174;

pub(crate) const ACK: u8 = 0x1f;
/// PSN sequence error.
pub(crate) const NAK0: u8 = 0x60;
/// Invalid request.
pub(crate) const NAK1: u8 = 0x61;
/// Remote access error.
pub(crate) const NAK2: u8 = 0x62;
/// Remote operational error.
pub(crate) const NAK3: u8 = 0x63;
/// Receiver not ready, with D's code: 0.64 ms.
pub(crate) const RNR: u8 = 0x2c;

pub(crate) const OK: WcStatus = WcStatus::Success;
pub(crate) const FLUSHED: WcStatus = WcStatus::Flushed;

/// Regions by number.
#[derive(Default)]
pub(crate) struct Regions(pub(crate) BTreeMap<u32, Vec<u8>>);

impl Regions {
    fn range(&mut self, region: RegionId, offset: u64, len: usize) -> Result<&mut [u8], Fault> {
        let start = usize::try_from(offset).map_err(|_| Fault)?;
        let end = start.checked_add(len).ok_or(Fault)?;
        self.0.get_mut(&region.0).and_then(|bytes| bytes.get_mut(start..end)).ok_or(Fault)
    }
}

impl Memory for Regions {
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        out.copy_from_slice(self.range(region, offset, out.len())?);
        Ok(())
    }

    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.range(region, offset, data.len())?.copy_from_slice(data);
        Ok(())
    }
}

/// What P asks for in its REQ.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// READs that P issues at once.
    pub(crate) inbound: u8,
    /// READs that P serves at once.
    pub(crate) outbound: u8,
    pub(crate) retry_count: u8,
    /// The ACK timeout's code.
    pub(crate) ack_timeout: u8,
    /// That of D itself, which also has `retry_count` as its own.
    pub(crate) own_timeout: u8,
    pub(crate) rnr_retry: u8,
    /// The path MTU's code.
    pub(crate) path_mtu: u8,
    /// Bytes of an IP packet that D's port carries.
    pub(crate) mtu: usize,
    /// Of D's first region.
    pub(crate) bytes: usize,
    /// D marks its data, and heeds congestion notifications.
    pub(crate) dcqcn: bool,
    /// Bytes of D's reorder pool.
    pub(crate) pool: usize,
    /// The VLAN of both.
    pub(crate) vlan: Option<u16>,
}

pub(crate) const TERMS: Terms = Terms {
    inbound: 4,
    outbound: 4,
    retry_count: 7,
    ack_timeout: 17,
    own_timeout: 17,
    rnr_retry: 7,
    path_mtu: 3,
    mtu: 1500,
    bytes: REGION,
    dcqcn: false,
    pool: 1 << 20,
    vlan: None,
};

/// A packet of D.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Sent {
    pub(crate) opcode: u8,
    /// Distance from the first PSN of the direction that it is about.
    pub(crate) at: i32,
    pub(crate) ack_req: bool,
    pub(crate) solicited: bool,
    pub(crate) ext: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Sent {
    /// It asks what P has: a WRITE of nothing.
    pub(crate) fn is_probe(&self) -> bool {
        self.opcode == Opcode::WriteOnly as u8 && self.payload.is_empty()
    }
}

/// A connection, as P sees it.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// D's queue pair.
    pub(crate) qpn: Qpn,
    /// The first PSN of P, and of D.
    pub(crate) first: [Psn; 2],
}

/// D, and what P knows of it.
pub(crate) struct World {
    pub(crate) d: Device,
    pub(crate) memory: Regions,
    pub(crate) now: Instant,
    /// The connection that the calls below are about.
    pub(crate) end: End,
    /// Of the first region.
    pub(crate) key: Rkey,
    /// All completions so far.
    pub(crate) done: Vec<Completion>,
    pub(crate) events: Vec<Event>,
    /// From P to D.
    pub(crate) encap: Encap,
}

/// Runs a case over IPv4 and over IPv6.
pub(crate) fn each(case: impl Fn(World)) {
    each_with(TERMS, case);
}

/// The same on other terms.
pub(crate) fn each_with(terms: Terms, case: impl Fn(World)) {
    for v6 in [false, true] {
        case(World::new(v6, terms));
    }
}

/// Bytes that differ from their neighbours.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + 5) as u8).collect()
}

/// A frame as an edge sends it.
pub(crate) fn frame(encap: &Encap, bth: &Bth, ext: &Ext, payload: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; 200 + payload.len()];
    let template = Template::new(encap);
    let mut unit = UnitWriter::new(&mut buf, &template, encap.ip_id);
    let fill = |out: &mut [u8]| {
        out.copy_from_slice(payload);
        Ok::<(), std::convert::Infallible>(())
    };
    let Ok(()) = unit.push(bth, ext, payload.len(), fill);
    let len = unit.finish().len;
    buf.truncate(len);
    buf
}

fn addresses(v6: bool) -> [IpAddr; 3] {
    let text =
        if v6 { ["fd00::1", "fd00::2", "fd00::3"] } else { ["10.0.0.1", "10.0.0.2", "10.0.0.3"] };
    text.map(|text| text.parse().unwrap())
}

/// P's REQ: a captured one, with other addresses and terms.
pub(crate) fn req(encap: &Encap, number: u32, terms: Terms) -> Req {
    let captured = vectors().into_iter().find(|(name, _)| *name == "W8").unwrap().1;
    let Ok((_, CmMessage::Req(mut req))) = parse_mad(Packet::parse(&captured).unwrap().payload)
    else {
        panic!("W8 is a REQ")
    };
    req.local_comm_id = CommId::new(0x100 + number);
    req.local_qpn = Qpn::new(P_QPN + number);
    req.starting_psn = Psn::new(0xff_fff0);
    (req.initiator_depth, req.responder_resources) = (terms.inbound, terms.outbound);
    req.path_mtu = terms.path_mtu;
    (req.retry_count, req.rnr_retry) = (terms.retry_count, terms.rnr_retry);
    req.primary.ack_timeout = terms.ack_timeout;
    (req.primary.local_gid, req.primary.remote_gid) = (gid(encap.src), gid(encap.dst));
    let ip_cm = IpCm { src_port: 50_000 + number as u16, src: encap.src, dst: encap.dst };
    req.private_data[..IpCm::LEN].copy_from_slice(&ip_cm.emit());
    req
}

/// A connection management datagram of P.
pub(crate) fn mad(encap: &Encap, message: &CmMessage) -> Vec<u8> {
    let mut mad = [0; 256];
    emit_mad(&MadHeader { transaction_id: 9, ..MadHeader::default() }, message, &mut mad);
    let bth = Bth::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0));
    frame(encap, &bth, &Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI }), &mad)
}

impl World {
    /// D with one region, and one connection for which P asked.
    pub(crate) fn new(v6: bool, terms: Terms) -> Self {
        let [d_ip, p_ip, other] = addresses(v6);
        let mut d = Device::new(DeviceConfig {
            seed: [7; 32],
            addresses: vec![d_ip, other],
            link: LinkEnd { mac: Some(Mac([2, 0, 0, 0, 0, 1])), vlan: terms.vlan },
            mtu: terms.mtu,
            socket: false,
            max_qps: 8,
            max_mrs: 64,
            max_queued_mappings: None,
            max_reads: 8,
            retry_count: terms.retry_count,
            opening: Opening::default(),
            dcqcn: terms.dcqcn.then(DcqcnConfig::default),
            window: Window { bytes: 64 << 10, ..Window::default() },
            reorder_pool: terms.pool,
            short_ways: true,
            cm: CmConfig { ca_guid: 1, ack_timeout_code: terms.own_timeout, ..CmConfig::default() },
        });
        let qpn = d.create_qp(&qp(1, PD, None)).unwrap();
        d.bind_port(d_ip, PORT).unwrap();
        d.listen(SocketAddr::new(d_ip, PORT), 8).unwrap();
        let encap = Encap {
            src_mac: Mac([2, 0, 0, 0, 0, 2]),
            dst_mac: Mac([2, 0, 0, 0, 0, 1]),
            vlan: terms.vlan,
            src: p_ip,
            dst: d_ip,
            traffic_class: 0,
            hop_limit: 64,
            ip_id: 0,
            flow_label: 0,
            src_port: 0xc123,
        };
        let (mut memory, now) = (Regions::default(), Instant::from_nanos(1_000_000));
        let end = connect(&mut d, now, &encap, 0, qpn, terms);
        // The handshake took its time, as from afar: before a round trip is measured, that is what the
        // first timeout goes by, and here each pause is to be seen apart from it.
        let now = now + Duration::from_millis(100);
        let key = region(&mut d, &mut memory, PD, terms.bytes, ALL);
        let (done, events) = Default::default();
        Self { d, memory, now, end, key, done, events, encap }
    }

    /// One more connection, whose completions have this owner.
    pub(crate) fn another(&mut self, owner: u64, pd: PdId, srq: Option<SrqId>) -> End {
        let qpn = self.d.create_qp(&qp(owner, pd, srq)).unwrap();
        connect(&mut self.d, self.now, &self.encap, owner as u32, qpn, TERMS)
    }

    /// The same in D's own domain, on other terms.
    pub(crate) fn another_with(&mut self, owner: u64, terms: Terms) -> End {
        let qpn = self.d.create_qp(&qp(owner, PD, None)).unwrap();
        connect(&mut self.d, self.now, &self.encap, owner as u32, qpn, terms)
    }

    /// One more region of `len` bytes; see [`base`].
    pub(crate) fn region(&mut self, pd: PdId, len: usize, access: Access) -> Rkey {
        region(&mut self.d, &mut self.memory, pd, len, access)
    }

    /// The first region's bytes.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.memory.0.get_mut(&0).unwrap()
    }

    // ---- what P does --------------------------------------------------------------------------

    /// Gives D a frame.
    pub(crate) fn give(&mut self, frame: &[u8]) {
        let manages = Packet::parse(frame).is_ok_and(|packet| packet.bth.dest_qpn == Qpn::GSI);
        self.counted(manages, |world| {
            world.d.handle_frame(world.now, frame, None, &mut world.memory);
        });
    }

    /// Makes a call that is the data path's, which allocates nothing; but connection management does,
    /// and an event may, as there is one where a connection fails.
    fn counted<R>(&mut self, may_allocate: bool, call: impl FnOnce(&mut Self) -> R) -> R {
        let (events, before) = (self.events.len(), tests::alloc::made());
        let result = call(self);
        let allocations = tests::alloc::made() - before;
        self.collect();
        if !may_allocate && self.events.len() == events {
            assert_eq!(allocations, 0, "allocations on the data path");
        }
        result
    }

    /// Takes what D has to tell.
    pub(crate) fn collect(&mut self) {
        while let Some(done) = self.d.poll_completion() {
            self.done.push(done);
        }
        self.events.extend(std::iter::from_fn(|| self.d.poll_event()));
    }

    /// The header of P's request `at`, which asks for an acknowledgement.
    pub(crate) fn bth(&self, at: i32, opcode: Opcode) -> Bth {
        let psn = Psn::new(self.end.first[0].get().wrapping_add_signed(at));
        Bth { ack_req: true, ..Bth::new(opcode, self.end.qpn, psn) }
    }

    /// P's request `at`.
    pub(crate) fn ask(&mut self, at: i32, opcode: Opcode, ext: Ext, payload: &[u8]) {
        self.give(&frame(&self.encap, &self.bth(at, opcode), &ext, payload));
    }

    /// SEND_ONLY of a pattern.
    pub(crate) fn send(&mut self, at: i32, len: usize) {
        self.ask(at, Opcode::SendOnly, Ext::None, &pattern(len));
    }

    /// WRITE_ONLY of `payload` to any place.
    pub(crate) fn write(&mut self, at: i32, key: Rkey, va: u64, payload: &[u8]) {
        let reth = Reth { va, rkey: key, len: payload.len() as u32 };
        self.ask(at, Opcode::WriteOnly, Ext::Reth(reth), payload);
    }

    /// A READ request.
    pub(crate) fn read(&mut self, at: i32, key: Rkey, va: u64, len: u32) {
        self.ask(at, Opcode::ReadRequest, Ext::Reth(Reth { va, rkey: key, len }), &[]);
    }

    /// P's answer about D's packet `at`.
    pub(crate) fn respond(&mut self, at: i32, opcode: Opcode, ext: Ext, payload: &[u8]) {
        let psn = Psn::new(self.end.first[1].get().wrapping_add_signed(at));
        let bth = Bth::new(opcode, self.end.qpn, psn);
        self.give(&frame(&self.encap, &bth, &ext, payload));
    }

    /// ACK, NAK or RNR NAK.
    pub(crate) fn answer(&mut self, at: i32, syndrome: u8) {
        self.respond(at, Opcode::Acknowledge, aeth(syndrome), &[]);
    }

    /// Data for D's READ.
    pub(crate) fn data(&mut self, at: i32, opcode: Opcode, payload: &[u8]) {
        let ext = if opcode == Opcode::ReadResponseMiddle { Ext::None } else { aeth(ACK) };
        self.respond(at, opcode, ext, payload);
    }

    /// Everything that D sends now, each packet by itself. None of it is wrong in itself.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut buf = vec![0; 10_000];
        let mut sent = Vec::new();
        let marks = if self.d.config().dcqcn.is_some() { 2 } else { 0 };
        while let Some(unit) = self.counted(false, |world| {
            world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory)
        }) {
            let seen = look(&buf[..unit.len]).expect("RoCE").expect("a good packet");
            assert_eq!((seen.src, seen.dst), (self.encap.dst, self.encap.src));
            assert_eq!(seen.marks, marks);
            let first = self.end.first[usize::from(!opcode::is_response(seen.opcode))];
            sent.push(Sent {
                opcode: seen.opcode,
                at: Psn::new(seen.psn).since(first),
                ack_req: seen.ack_req,
                solicited: seen.solicited,
                ext: seen.ext.to_vec(),
                payload: seen.payload.to_vec(),
            });
        }
        sent
    }

    /// Opcodes and places of what D sends now.
    pub(crate) fn places(&mut self) -> Vec<(u8, i32)> {
        self.sent().iter().map(|sent| (sent.opcode, sent.at)).collect()
    }

    /// Syndrome, place and MSN of the acknowledgements that D sends now, and nothing else.
    pub(crate) fn acks(&mut self) -> Vec<(u8, i32, u32)> {
        let acks = self.sent();
        assert!(acks.iter().all(|ack| ack.opcode == opcode::ACKNOWLEDGE), "{acks:?}");
        acks.iter().map(|ack| (ack.ext[0], ack.at, number(&ack.ext, 1, 3) as u32)).collect()
    }

    // ---- what D's consumer does ---------------------------------------------------------------

    pub(crate) fn sgl(&self, offset: usize, len: usize) -> SgList {
        elements(self.key, &[(BASE + offset as u64, len)])
    }

    /// Posts a receive of `len` bytes at [`SINK`].
    pub(crate) fn receive(&mut self, id: u64, len: usize) {
        let sgl = self.sgl(SINK, len);
        self.counted(false, |world| {
            world.d.post_recv(world.end.qpn, RecvWr { id, sgl }).unwrap();
        });
    }

    /// Posts a request of the region's first `len` bytes, a READ into [`SINK`].
    pub(crate) fn post(&mut self, id: u64, op: SendOp, len: usize) {
        let offset = if matches!(op, SendOp::Read { .. }) { SINK } else { 0 };
        let sgl = self.sgl(offset, len);
        self.post_wr(SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false });
    }

    /// Posts a request that touches no memory of its own.
    pub(crate) fn post_bare(&mut self, id: u64, op: SendOp) {
        let sgl = SgList::new();
        self.post_wr(SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false });
    }

    /// A fast-register region, mapped to the first `len` bytes of the first region.
    pub(crate) fn mapped(&mut self, base: u64, len: u64) -> Rkey {
        let key = self.d.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
        self.map(key, base, len);
        assert_eq!(self.sent(), []);
        assert_eq!(self.done.pop().map(|done| done.status), Some(OK));
        key
    }

    /// Posts such a mapping, as request 50.
    pub(crate) fn map(&mut self, key: Rkey, base: u64, len: u64) {
        let mapping = Mapping { region: RegionId(0), offset: 0, base, len, access: ALL };
        self.post_bare(50, SendOp::FastRegister { key, mapping });
    }

    pub(crate) fn post_wr(&mut self, wr: SendWr) {
        self.counted(false, |world| world.d.post_send(world.end.qpn, wr).unwrap());
    }

    // ---- what comes of it ---------------------------------------------------------------------

    /// Lets D's next deadline pass.
    pub(crate) fn wait(&mut self) {
        self.now = self.d.poll_timeout().expect("a deadline");
        self.counted(false, |world| world.d.handle_timeout(world.now));
    }

    /// Says nothing, to probes either: how many came before what D then sends again, and that.
    pub(crate) fn silence(&mut self) -> (u64, Vec<Sent>) {
        let mut probes = 0;
        loop {
            self.wait();
            let (asked, again): (Vec<_>, Vec<_>) =
                self.sent().into_iter().partition(Sent::is_probe);
            probes += asked.len() as u64;
            if !again.is_empty() {
                return (probes, again);
            }
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.counted(false, |world| world.d.handle_timeout(world.now));
    }

    pub(crate) fn state(&self) -> QpState {
        self.d.qp_state(self.end.qpn).unwrap()
    }

    pub(crate) fn statuses(&self) -> Vec<(u64, WcStatus)> {
        self.done.iter().map(|done| (done.id, done.status)).collect()
    }

    /// That D's region, but for [`SINK`] and what follows, is as it was, and so is all behind the
    /// first `len` bytes of that.
    pub(crate) fn guarded(&mut self, len: usize) {
        let right = pattern(self.bytes().len());
        let bytes = self.bytes();
        assert!(bytes[..SINK] == right[..SINK] && bytes[SINK + len..] == right[SINK + len..]);
    }

    /// That `len` bytes of the pattern stand at [`SINK`], and nothing else has changed.
    pub(crate) fn received(&mut self, len: usize) {
        assert!(self.bytes()[SINK..SINK + len] == pattern(len));
        self.guarded(len);
    }

    pub(crate) fn drops(&self) -> BTreeMap<&'static str, u64> {
        let counters = self.d.counters();
        let name = |reason: DropReason| -> &'static str { format!("{reason:?}").leak() };
        let counted =
            DropReason::ALL.map(|reason| (name(reason), counters.get(Counter::dropped(reason))));
        counted.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Packets dropped, by [`DropReason::index`].
    pub(crate) fn counted_drops(&self) -> [u64; DropReason::COUNT] {
        DropReason::ALL.map(|reason| self.d.counters().get(Counter::dropped(reason)))
    }

    /// That what `stimulus` does is silent: no packet, no completion, no event; exactly one counter
    /// of drops moves; and P's next request, `at`, is served.
    pub(crate) fn silent(&mut self, at: i32, reason: DropReason, stimulus: impl FnOnce(&mut Self)) {
        self.is_dropped(reason, stimulus);
        self.works(at);
    }

    /// The first half of [`Self::silent`].
    pub(crate) fn is_dropped(&mut self, reason: DropReason, stimulus: impl FnOnce(&mut Self)) {
        let before = (self.done.len(), self.events.len(), self.state());
        let before_drops = self.counted_drops();
        stimulus(self);
        assert_eq!(self.sent(), []);
        assert_eq!((self.done.len(), self.events.len(), self.state()), before);
        let moved = DropReason::ALL.map(|any| u64::from(any == reason));
        let drops = self.counted_drops();
        let since = core::array::from_fn(|index| drops[index] - before_drops[index]);
        assert_eq!(moved, since, "{:?}", self.drops());
    }

    /// That P's request `at` is served.
    pub(crate) fn works(&mut self, at: i32) {
        let before = self.done.len();
        self.receive(99, 100);
        self.send(at, 10);
        assert_eq!(self.statuses()[before..], [(99, OK)]);
        assert_eq!(self.acks().last().map(|ack| (ack.0, ack.1)), Some((ACK, at)));
    }

    /// That D has refused request `at` and with it the connection, of which `posted` requests end.
    pub(crate) fn refused(&mut self, syndrome: u8, at: i32, msn: u32, posted: usize) {
        assert_eq!(self.acks(), [(syndrome, at, msn)]);
        assert_eq!(self.state(), QpState::Err);
        assert_eq!(self.done.len(), posted, "{:?}", self.done);
        let failed = |event: &Event| matches!(event, Event::QpFailed { .. });
        assert_eq!(self.events.iter().filter(|event| failed(event)).count(), 1);
        self.is_dropped(DropReason::QpState, |world| world.send(at, 1));
    }
}

/// The first byte of region `number`.
pub(crate) const fn base(number: u32) -> u64 {
    BASE + ((number as u64) << 32)
}

fn region(d: &mut Device, memory: &mut Regions, pd: PdId, len: usize, access: Access) -> Rkey {
    let number = memory.0.len() as u32;
    memory.0.insert(number, pattern(len));
    let (region, base, len) = (RegionId(number), base(number), len as u64);
    d.register(Registration { pd, region, base, len, access }).unwrap()
}

pub(crate) fn elements(key: Rkey, places: &[(u64, usize)]) -> SgList {
    let lkey = Lkey::new(key.get());
    places.iter().map(|&(addr, len)| Sge { addr, len: len as u32, lkey }).collect()
}

pub(crate) fn aeth(syndrome: u8) -> Ext {
    Ext::Aeth(Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(0x12_3456) })
}

pub(crate) const fn qp(owner: u64, pd: PdId, srq: Option<SrqId>) -> QpConfig {
    QpConfig { owner, pd, send_depth: 32, send_sge: 16, recv_depth: 32, recv_sge: 16, srq }
}

/// Connection `number` of P to `qpn`: REQ, REP, RTU.
fn connect(
    d: &mut Device,
    now: Instant,
    encap: &Encap,
    number: u32,
    qpn: Qpn,
    terms: Terms,
) -> End {
    let mut memory = Regions::default();
    let req = req(encap, number, terms);
    let (local_comm_id, first_of_d) = (req.local_comm_id, req.starting_psn);
    d.handle_frame(now, &mad(encap, &CmMessage::Req(req)), None, &mut memory);
    let Some(Event::Cm(CmEvent::ConnectRequest { conn, .. })) = d.poll_event() else {
        panic!("no request")
    };
    let limits = ReadLimits { inbound: 8, outbound: 8 };
    d.accept(now, conn, qpn, limits, b"yes").unwrap();
    let mut buf = [0; 1000];
    let unit = d.poll_transmit(now, &mut buf, 1, &mut memory).expect("REP");
    let rep = look(&buf[..unit.len]).unwrap().unwrap().payload;
    let body = &rep[24..];
    assert_eq!((number_of(rep, 16, 2), number_of(body, 12, 3)), (0x13, qpn.get()));
    let remote_comm_id = CommId::new(number_of(body, 0, 4));
    let first_of_p = Psn::new(number_of(body, 20, 3));
    let rtu = Rtu { local_comm_id, remote_comm_id, private_data: [0; 224] };
    d.handle_frame(now, &mad(encap, &CmMessage::Rtu(rtu)), None, &mut memory);
    assert!(matches!(d.poll_event(), Some(Event::Cm(CmEvent::Established { .. }))));
    End { qpn, first: [first_of_p, first_of_d] }
}

fn number_of(bytes: &[u8], at: usize, len: usize) -> u32 {
    number(bytes, at, len) as u32
}
