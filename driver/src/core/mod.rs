//! The poll core of a shard: the one loop that owns the device, the edge and every object.
//!
//! It has no thread of its own. A Linux thread, a kernel thread or a test calls [`PollCore::poll`].

mod connections;
mod cqs;
mod endpoints;
mod loopback;
mod memory;
mod objects;
mod paths;
mod queues;
mod reserve;
mod trace;

use crate::abi::*;
use crate::ndk::adapter::Limits;
use crate::ndk::connector::DisconnectEvent;
use crate::ndk::counters::{AdapterCounters, Connection, connections};
use crate::ndk::cq::{Cqe, NEWS_ANY, NEWS_SOLICITED};
use crate::ndk::regions::Regions;
use crate::ndk::{Context, Control, CreateDone, ObjectId, RequestDone, reason, status};
use crate::platform::{Platform, Trace};
use crate::ring::{FLUSH, Shard};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::task::Waker;
use loopback::Loopback;
use netadapter_glue::neighbour::Neighbours;
use netadapter_glue::{Edge, Received, Transmit};
use objects::{Kind, Objects};
use paths::PathChecks;
use rocev2::cm::{CmConfig, ConnId, ListenerId};
use rocev2::device::{Device, DeviceConfig, Event, Opening};
use rocev2::env::{Duration, Instant};
use rocev2::ids::Rkey;
use rocev2::qp::congestion::DcqcnConfig;
use rocev2::qp::requester::Window;
use rocev2::qp::work::{Completion, MAX_READS, WcStatus};
use slotmap::{Key as _, KeyData};

/// Units received, and units sent, in one turn.
const IO_BUDGET: usize = 64;
/// How often the edge is asked for the link's speed, at most.
const SPEED_INTERVAL: Duration = Duration::from_secs(1);
/// Control messages taken in one turn.
const CONTROL_BUDGET: usize = 64;

/// Calls into the consumer for which there is room from the start.
const UPCALLS: usize = 1024;

/// What a provider is started with.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Addresses that the adapter owns.
    pub addresses: Vec<IpAddr>,
    /// The VLAN that connects go out in, and in which neighbours are asked for: tag control information,
    /// whose low 12 bits are the VLAN ID. `None`: untagged. A connection that a peer asked for stays in the
    /// VLAN of its request. On Windows the adapter's `VlanId` is put on below, and this stays `None`.
    pub vlan: Option<u16>,
    /// Source of all randomness; `None` draws it from the operating system.
    pub seed: Option<[u8; 32]>,
    /// Transport timeout code of our queue pairs, 4.096 us * 2^code; see [`Self::ACK_TIMEOUT_CODES`].
    /// Connects ask it of the peer, up to [`CmConfig::ANNOUNCED_ACK_TIMEOUT`]. A peer that asks for more
    /// patience gets it, within [`CmConfig::patience`].
    pub ack_timeout_code: u8,
    /// Transport retries of our queue pairs, and those that connects ask for; see [`Self::RETRY_COUNTS`]. A
    /// silent peer is given up after (retries + 1) times the timeout: 17 s by default.
    pub retry_count: u8,
    /// What connections open with.
    pub opening: Opening,
    /// The send window of each QP.
    pub window: Window,
    /// Congestion control; `None` turns it off. The line rate is that of an edge that does not know
    /// its own.
    pub dcqcn: Option<DcqcnConfig>,
    /// Timers of connection management.
    pub cm: CmConfig,
}

impl ProviderConfig {
    /// Timeout codes that a setting may choose, 67 ms to 17 s: below, a busy peer looks dead; above, a
    /// dead one holds its requests for minutes. Others are for tests.
    pub const ACK_TIMEOUT_CODES: RangeInclusive<u8> = 14..=22;
    /// Retries that a setting may choose: three bits on the wire.
    pub const RETRY_COUNTS: RangeInclusive<u8> = 0..=7;

    /// The defaults for these addresses.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            vlan: None,
            seed: None,
            ack_timeout_code: CmConfig::default().ack_timeout_code,
            retry_count: CmConfig::default().retry_count,
            opening: Opening::default(),
            window: Window::default(),
            dcqcn: Some(DcqcnConfig::default()),
            cm: CmConfig::default(),
        }
    }
}

/// What one turn did.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Something happened; another turn may find more at once.
    pub busy: bool,
    /// The next turn is due then at the latest.
    pub next: Option<Instant>,
    /// The edge failed. It is asked again with the next turn, but its descriptor tells nothing.
    pub edge_failed: bool,
    /// The provider was asked to stop.
    pub stopped: bool,
}

/// A provider on one edge.
pub struct PollCore {
    edge: Box<dyn Edge + Send>,
    edge_failed: bool,
    /// When the edge is asked for its speed next.
    speed_due: Instant,
    state: State,
}

/// Everything but the edge, which lends its buffers while this works on them.
struct State {
    shard: Arc<Shard>,
    device: Device,
    neighbours: Neighbours,
    regions: Regions,
    objects: Objects,
    /// The region or window of every key that a consumer knows.
    tokens: BTreeMap<Rkey, ObjectId>,
    conns: BTreeMap<ConnId, ObjectId>,
    listeners: BTreeMap<ListenerId, ObjectId>,
    /// Connectors that wait for the peer's link-layer address.
    resolving: Vec<ObjectId>,
    upcalls: VecDeque<Upcall>,
    /// CQs whose notification may be due.
    notify: VecDeque<ObjectId>,
    /// CQs whose notification is held back by moderation until then, each once.
    held: Vec<(Instant, ObjectId)>,
    next_pd: u32,
    mac: [u8; 6],
    /// Of connects, as tag control information.
    vlan: Option<u16>,
    path_checks: PathChecks,
    max_segments: usize,
    loopback: Loopback,
    stopped: bool,
}

/// A call into the consumer, made at the end of a turn.
enum Upcall {
    Created { done: CreateDone, status: NTSTATUS, object: Context },
    Requested { done: RequestDone, status: NTSTATUS },
    ConnectEvent { callback: NDK_FN_CONNECT_EVENT_CALLBACK, context: Context, connector: Context },
    Disconnected { event: DisconnectEvent, reason: u32 },
    SrqLow { srq: ObjectId },
    Closed { object: ObjectId },
}

impl PollCore {
    /// A core over `edge`. `waker` is called when a sleeping core has to be polled.
    pub(crate) fn new(
        mut edge: Box<dyn Edge + Send>,
        platform: Box<dyn Platform>,
        config: ProviderConfig,
        seed: [u8; 32],
        waker: &Waker,
    ) -> Self {
        let limits = Limits::default();
        let link = edge.link();
        edge.set_waker(waker);
        let mut cm = config.cm;
        cm.ack_timeout_code = config.ack_timeout_code;
        cm.ca_guid = eui64(link.mac);
        let device = Device::new(DeviceConfig {
            seed,
            addresses: config.addresses.clone(),
            mtu: link.mtu,
            max_qps: limits.qps,
            max_mrs: limits.mrs,
            max_reads: MAX_READS as u8,
            retry_count: config.retry_count,
            opening: config.opening,
            window: config.window,
            dcqcn: config.dcqcn,
            cm,
        });
        let counters = Arc::clone(device.counters());
        let state = State {
            shard: Arc::new(Shard::new(platform, limits, waker.clone(), counters)),
            device,
            neighbours: Neighbours::new(link.mac, &config.addresses)
                .in_vlan(paths::vlan(config.vlan)),
            vlan: config.vlan,
            path_checks: PathChecks::default(),
            regions: Regions::default(),
            objects: Objects::default(),
            tokens: BTreeMap::new(),
            conns: BTreeMap::new(),
            listeners: BTreeMap::new(),
            resolving: Vec::new(),
            // More than a turn usually makes.
            upcalls: VecDeque::with_capacity(UPCALLS),
            notify: VecDeque::new(),
            held: Vec::new(),
            next_pd: 1,
            mac: link.mac,
            max_segments: link.max_segments.max(1),
            loopback: Loopback::default(),
            stopped: false,
        };
        Self { edge, edge_failed: false, speed_due: Instant::default(), state }
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.state.shard
    }

    /// What it counted until now.
    pub fn counters(&self) -> AdapterCounters {
        self.state.shard.counters.snapshot()
    }

    /// Established connections.
    pub fn connections(&self) -> Vec<Connection> {
        connections(self.state.endpoints())
    }

    /// The edge, for a caller that waits on its descriptor.
    pub fn edge(&self) -> &dyn Edge {
        &*self.edge
    }

    /// The core will sleep, or has woken. After announcing sleep it must be polled once more.
    pub fn announce_sleep(&mut self, sleeping: bool) {
        self.edge.announce_sleep(sleeping);
        self.state.shard.announce_sleep(sleeping);
    }

    /// One bounded turn. Never blocks. IRQL <= DISPATCH_LEVEL, never two at once.
    pub fn poll(&mut self, now: Instant) -> Turn {
        self.follow_speed(now);
        let mut busy = self.receive_burst(now);
        self.state.device.handle_timeout(now);
        self.state.neighbours.handle_timeout(now.as_nanos());
        busy |= self.state.drain_control(now);
        busy |= self.state.drain_doorbells();
        self.state.follow_paths(now);
        self.state.handle_resolutions(now);
        busy |= self.transmit_burst(now);
        busy |= self.state.deliver_completions(now);
        busy |= self.state.handle_events(now);
        // A failed connection may just have flushed a queue.
        busy |= self.state.deliver_completions(now);
        self.state.release_held(now);
        busy |= self.state.call_back(now);
        let neighbours = self.state.neighbours.poll_timeout().map(Instant::from_nanos);
        let held = self.state.held.iter().map(|(until, _)| *until).min();
        let next = [self.state.device.poll_timeout(), neighbours, held].into_iter().flatten().min();
        Turn {
            busy: busy || self.state.shard.has_work(),
            next,
            edge_failed: self.edge_failed,
            stopped: self.state.stopped,
        }
    }

    /// Makes the link's speed the upper bound of congestion control. It may change, and a core that
    /// sleeps need not know.
    fn follow_speed(&mut self, now: Instant) {
        if now >= self.speed_due {
            self.speed_due = now + SPEED_INTERVAL;
            if let Some(bits) = self.edge.speed() {
                self.state.device.set_line_rate(bits / 8);
            }
        }
    }

    /// Bytes per second that congestion control takes for the link's; `None` where it is off.
    pub fn line_rate(&self) -> Option<u64> {
        self.state.device.config().dcqcn.map(|dcqcn| dcqcn.line_rate)
    }

    fn receive_burst(&mut self, now: Instant) -> bool {
        let Self { edge, state, .. } = self;
        state.device.admit_messages(state.shard.platform.has_room());
        let received = edge.receive(IO_BUDGET, &mut |unit: Received<'_>| {
            // A receive that was posted before this frame arrived must be seen with it: some
            // peers allow no "receiver not ready" at all.
            state.drain_doorbells();
            if !state.neighbours.handle_frame(now.as_nanos(), unit.frame) {
                let segment_len = unit.segments.map(|segments| segments.segment_len);
                state.device.handle_frame(now, unit.frame, segment_len, &mut state.regions);
            }
        });
        // An edge that fails is a link that is down: the peer's silence shows in the timers.
        self.edge_failed = received.is_err();
        received.is_ok_and(|units| units > 0)
    }

    fn transmit_burst(&mut self, now: Instant) -> bool {
        let Self { edge, state, .. } = self;
        let sent = edge.transmit(IO_BUDGET, &mut |buf| state.fill(now, buf));
        let came_back = state.loopback.restart();
        state.shard.counters.set_edge(edge.drops());
        came_back || sent.is_ok_and(|units| units > 0)
    }
}

impl State {
    fn fill(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if let Some(len) = self.neighbours.poll_transmit(buf) {
            return Some(Transmit { len, segments: None });
        }
        self.fill_from_device(now, buf)
    }

    fn drain_control(&mut self, now: Instant) -> bool {
        let mut taken = 0;
        while taken < CONTROL_BUDGET
            && let Some(message) = self.shard.next_control()
        {
            self.handle_control(now, message);
            taken += 1;
        }
        taken > 0
    }

    /// Answers the doorbells that ring now; bounded, however fast others ring meanwhile.
    fn drain_doorbells(&mut self) -> bool {
        let ringing = self.shard.ringing();
        for _ in 0..ringing {
            if let Some(id) = self.shard.next_doorbell() {
                self.answer(id);
            }
        }
        // After the posts, so that a post never meets a mapping that was built before it and is not
        // known yet.
        self.regions.lams.update(&self.shard.lams);
        ringing > 0
    }

    /// Does what an object rang for: moves its posted work into the device, looks at its arm, and
    /// so on.
    fn answer(&mut self, id: ObjectId) {
        let Some(entry) = self.objects.get_mut(id) else { return };
        match &mut entry.kind {
            Kind::Cq(cq) => {
                cq.object.shared.doorbell.answer();
                self.note(id);
            }
            Kind::Qp(qp) => {
                let reasons = qp.object.shared.doorbell.answer();
                self.drain_qp(id);
                if reasons & FLUSH != 0 {
                    self.flush_qp(id);
                }
            }
            Kind::Srq(srq) => {
                srq.object.shared.doorbell.answer();
                srq.drain(&mut self.device);
            }
            Kind::Listener(listener) => {
                listener.object.shared.doorbell.answer();
                self.pause(id);
            }
            Kind::Adapter(_)
            | Kind::Pd(..)
            | Kind::Mr(_)
            | Kind::Mw(_)
            | Kind::Connector(_)
            | Kind::SharedEndpoint(_) => {}
        }
    }

    fn deliver_completions(&mut self, now: Instant) -> bool {
        // Before the consumer sees the end of what held them, and may want them again.
        while let Some(released) = self.device.poll_released() {
            self.regions.release(released.region);
        }
        let mut any = false;
        while let Some(completion) = self.device.poll_completion() {
            any = true;
            self.deliver(now, &completion);
        }
        any
    }

    fn deliver(&mut self, now: Instant, completion: &Completion) {
        let id = ObjectId::from(KeyData::from_ffi(completion.owner));
        let Some(Kind::Qp(qp)) = self.objects.get(id).map(|entry| &entry.kind) else { return };
        let shared = &qp.object.shared;
        let qpn = qp.qpn;
        let (slots, cq) = if !completion.kind.is_receive() {
            (Some(&shared.initiator_slots), qp.initiator_cq)
        } else if let Some(srq) = qp.srq {
            (self.srq_slots(srq), qp.receive_cq)
        } else {
            (Some(&shared.receive_slots), qp.receive_cq)
        };
        // The slot is free before the consumer can see why.
        if let Some(slots) = slots {
            slots.retire();
        }
        if completion.silent {
            return;
        }
        let failed = completion.status != WcStatus::Success;
        let token = match completion.kind {
            rocev2::qp::work::WcKind::ReceiveInvalidate(key) => key.get(),
            _ => 0,
        };
        let cqe = Cqe {
            status: status::completion(completion.kind, completion.status),
            bytes: completion.len,
            qp_context: qp.context,
            request_context: Context::from_u64(completion.id),
            operation: status::operation(completion.kind),
            token,
            error_code: if failed { self.reason(qp) } else { 0 },
        };
        let urgent = completion.solicited || failed;
        if !matches!(completion.status, WcStatus::Success | WcStatus::Flushed) {
            self.trace(&Trace::RequestFailed { qpn, status: cqe.status });
        }
        self.push_cqe(now, cq, cqe, if urgent { NEWS_ANY | NEWS_SOLICITED } else { NEWS_ANY });
    }

    fn handle_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.device.poll_event() {
            any = true;
            match event {
                Event::Cm(event) => self.handle_cm_event(now, event),
                Event::QpFailed { conn, qpn, failure } => {
                    self.trace(&Trace::QpFailed { qpn, failure, code: reason::code(failure) });
                    self.handle_qp_failure(now, conn);
                }
                Event::SrqLow { owner } => self.handle_low_srq(owner),
            }
        }
        any
    }

    /// Calls into the consumer: last in a turn, with nothing of the device borrowed, because a
    /// callback may post, arm, close or connect.
    fn call_back(&mut self, now: Instant) -> bool {
        let due = self.upcalls.len();
        for _ in 0..due {
            if let Some(upcall) = self.upcalls.pop_front() {
                self.make(upcall);
            }
        }
        let notified = self.notify.len();
        for _ in 0..notified {
            if let Some(id) = self.notify.pop_front() {
                self.notify_cq(now, id);
            }
        }
        due + notified > 0
    }

    #[allow(unsafe_code, reason = "calls the consumer's C callbacks")]
    fn make(&mut self, upcall: Upcall) {
        match upcall {
            Upcall::Created { done: CreateDone { callback, context }, status, object } => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get(), status, object.get().cast()) };
            }
            Upcall::Requested { done: RequestDone { callback, context }, status } => {
                // SAFETY: as above.
                unsafe { callback(context.get(), status) };
            }
            Upcall::ConnectEvent { callback, context, connector } => {
                // SAFETY: as above; the connector is the consumer's from here on.
                unsafe { callback(context.get(), connector.get().cast()) };
            }
            Upcall::Disconnected {
                event: DisconnectEvent::Plain(Some(callback), context), ..
            } => {
                // SAFETY: as above.
                unsafe { callback(context.get()) };
            }
            Upcall::Disconnected {
                event: DisconnectEvent::WithReason(Some(callback), context),
                reason,
            } => {
                // SAFETY: as above.
                unsafe { callback(context.get(), reason) };
            }
            Upcall::SrqLow { srq } => self.notify_srq(srq),
            Upcall::Closed { object } => self.finish_close(object),
            // A callback that the consumer did not give.
            Upcall::Disconnected { .. } => {}
        }
    }

    fn request_done(&mut self, done: RequestDone, status: NTSTATUS) {
        self.upcalls.push_back(Upcall::Requested { done, status });
    }

    fn obey(&mut self, now: Instant, message: Control) {
        match message {
            Control::OpenAdapter { version, opened } => self.open_adapter(version, opened),
            Control::Create { parent, what, done } => self.create(parent, *what, done),
            Control::Close { object, done } => self.close(now, object, done),
            Control::ResizeCq { cq, depth, done } => {
                let status = self.resize_cq(cq, depth);
                self.request_done(done, status);
            }
            Control::RegisterMr { mr, what, done } => {
                let status = self.register_mr(mr, *what);
                self.request_done(done, status);
            }
            Control::InitializeFastRegisterMr { mr, what, done } => {
                let status = self.initialize_mr(mr, *what);
                self.request_done(done, status);
            }
            Control::ModifySrq { srq, depth, threshold, done } => {
                let status = self.modify_srq(srq, depth, threshold);
                self.request_done(done, status);
            }
            Control::DeregisterMr { mr, done } => {
                let status = self.deregister_mr(mr);
                self.request_done(done, status);
            }
            Control::Connect { connector, what, done } => self.connect(now, connector, what, done),
            Control::CompleteConnect { connector, event, done } => {
                self.complete_connect(now, connector, event, done);
            }
            Control::Accept { connector, what, done } => self.accept(now, connector, &what, done),
            Control::Reject { connector, private_data } => {
                self.reject(now, connector, &private_data)
            }
            Control::Disconnect { connector, done } => self.disconnect(now, connector, done),
            Control::Listen { listener, local, done } => {
                let status = self.listen(listener, local);
                self.request_done(done, status);
            }
            Control::SetAddresses { addresses } => {
                self.neighbours.set_addresses(&addresses);
                self.device.set_addresses(now, addresses);
            }
            Control::Resolved { remote, mac } => {
                self.finish_resolution(now, remote, mac, |tci| tci)
            }
            Control::CheckPaths => self.path_checks.restart(),
            Control::List { listed } => listed(Some(self.endpoints())),
            Control::Stop => self.stopped = true,
        }
    }
}

/// The node GUID that goes with a MAC address: EUI-64 with the universal bit flipped.
const fn eui64(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// As a completion names its QP.
fn owner(id: ObjectId) -> u64 {
    id.data().as_ffi()
}
