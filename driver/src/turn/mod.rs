//! A poll core: the loop that owns an edge and, in each turn, the lane of its core; the first one has the desk too.
//!
//! It has no thread of its own. A Linux thread, a kernel thread or a test calls [`PollCore::poll`].

mod config;
mod desk;
mod dispatch;
mod home;
mod lives;
mod objects;
#[cfg(test)]
mod tests;

pub use config::ProviderConfig;

use crate::bytes::pages::POOL_LISTS;
use crate::bytes::{Names, Regions};
use crate::counters::{AdapterCounters, Connection};
use crate::cx::Cx;
use crate::lane::{DetachedNotice, Lane, Lanes};
use crate::limits::Limits;
use crate::mw::core::Windows;
use crate::paths::{Paths, vlan};
use crate::platform::Platform;
use crate::shard::Shard;
use crate::sync::Loan;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::task::Waker;
use desk::Desk;
use netadapter_glue::{Edge, Link};
use rocev2::counters::Counters;
use rocev2::env::{Duration, Instant};
use rocev2::ids::MAX_CORES;
use rocev2::qp::MAX_READS;
use rocev2::wire::{Mac, ROCE_PORT};
use rocev2::{DeviceConfig, Engine, Front, LinkEnd};

/// Units received, and units sent, in one turn.
const IO_BUDGET: usize = 64;
/// Notifications that a core other than the first makes after a turn, at most.
const NOTICES_MAX: usize = 64;
/// How often the edge is asked for the link's speed, and the engine for units that are lost, at most.
const SPEED_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of one turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Something happened; another turn may find more at once.
    pub busy: bool,
    /// Units that the edge received and sent.
    pub units: usize,
    /// The next turn is due then at the latest.
    pub next: Option<Instant>,
    /// The edge failed. It is asked again with the next turn, but its descriptor tells nothing.
    pub edge_failed: bool,
    /// The provider was asked to stop.
    pub stopped: bool,
}

/// One of the poll cores of a provider.
pub struct PollCore {
    core: u8,
    shard: Arc<Shard>,
    edge: Box<dyn Edge + Send>,
    edge_failed: bool,
    /// When the edge is asked for its speed next.
    speed_due: Instant,
    bench: Bench,
}

/// The place at which a core works.
enum Bench {
    /// The first one's: the desk, which has its lane. In a box, so that a home passes a few pointers on a kernel's stack.
    Desk(Box<Desk>),
    /// Another one's: its lane, which the desk may have borrowed.
    Lane(Arc<Loan<Box<Lane>>>),
}

impl PollCore {
    /// The only core of a provider over `edge`, whose randomness comes from `seed`, and not from the one in `config`. `waker`
    /// is called when a sleeping core has to be polled.
    pub fn new(
        edge: Box<dyn Edge + Send>,
        platform: Box<dyn Platform>,
        config: ProviderConfig,
        seed: [u8; 32],
        waker: &Waker,
    ) -> Self {
        let mut cores =
            Self::several(vec![edge], platform, config, seed, core::slice::from_ref(waker));
        cores.swap_remove(0)
    }

    /// The cores of a provider, one for each of `edges`, which are those of one interface: a frame should come to the core of
    /// its queue pair ([`rocev2::wire::core_of`]). Each core has its waker. The first one is to be polled as long as another is.
    ///
    /// # Panics
    /// Without an edge, with more than [`MAX_CORES`], or with another number of wakers.
    #[inline(never)]
    pub fn several(
        mut edges: Vec<Box<dyn Edge + Send>>,
        platform: Box<dyn Platform>,
        config: ProviderConfig,
        seed: [u8; 32],
        wakers: &[Waker],
    ) -> Vec<Self> {
        assert!(
            (1..=MAX_CORES).contains(&edges.len()) && edges.len() == wakers.len(),
            "a core each"
        );
        let limits = config.limits;
        let link = edges[0].link();
        for (edge, waker) in edges.iter_mut().zip(wakers) {
            edge.set_waker(waker);
        }
        edges[0].claim(&config.addresses, ROCE_PORT);
        let (tci, zone) = (config.vlan, config.zone);
        let (front, engines) = rocev2::split(device_config(config, &link, seed), edges.len());
        let paths = Paths::new(link.mac, &engines[0], tci).in_zone(zone);
        let transport = engines.iter().map(|engine| Arc::clone(engine.counters())).collect();
        let shard = shard(platform, limits, wakers, transport, link.max_unit_len);
        let (names, order) = (Names::default(), Arc::default());
        let mut lanes = (0..).zip(engines).map(|(core, engine)| {
            let bytes = Regions::new(&names, Arc::clone(shard.lams.of(usize::from(core))));
            let windows = Windows::new(Arc::clone(&order));
            boxed_lane(core, Arc::clone(&shard), engine, bytes, windows, &link)
        });
        let own = lanes.next().expect("there is an edge");
        let others: Vec<_> = lanes.map(|lane| Arc::new(Loan::new(lane))).collect();
        let lanes = Lanes::new(own, &others);
        let desk = Bench::Desk(desk(Arc::clone(&shard), front, lanes, names, paths));
        let benches = core::iter::once(desk).chain(others.into_iter().map(Bench::Lane));
        let core = |(core, (edge, bench))| Self {
            core,
            shard: Arc::clone(&shard),
            edge,
            edge_failed: false,
            speed_due: Instant::default(),
            bench,
        };
        (0..).zip(edges.into_iter().zip(benches)).map(core).collect()
    }

    /// The way to it, for other threads.
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// The counters.
    pub fn counters(&self) -> AdapterCounters {
        self.shard.counters.snapshot()
    }

    /// Established connections, as the first core knows them; none of another one.
    pub fn connections(&mut self) -> Vec<Connection> {
        match &mut self.bench {
            Bench::Desk(desk) => desk.connections(),
            Bench::Lane(_) => Vec::new(),
        }
    }

    /// The edge, for a caller that waits on its descriptor.
    pub fn edge(&self) -> &dyn Edge {
        &*self.edge
    }

    /// The edge, for a caller that found an error at its descriptor.
    pub fn edge_mut(&mut self) -> &mut dyn Edge {
        &mut *self.edge
    }

    /// The core will sleep, or has woken. After announcing sleep it must be polled once more.
    pub fn announce_sleep(&mut self, sleeping: bool) {
        self.edge.announce_sleep(sleeping);
        self.shard.announce_sleep(self.core, sleeping);
    }

    /// One bounded turn, and the callbacks that are due. Never blocks, but for the end of another core's turn. IRQL <=
    /// DISPATCH_LEVEL, never two of a core at once.
    pub fn poll(&mut self, now: Instant) -> Turn {
        let mut turn = self.turn(now);
        self.call_back(&mut turn);
        turn
    }

    /// Makes the callbacks that are due after `turn`, and notes that there. Whether there was one.
    pub(crate) fn call_back(&mut self, turn: &mut Turn) -> bool {
        let (called, next) = match &mut self.bench {
            Bench::Desk(desk) => {
                let called = desk.call_back();
                (called, called.then(|| desk.next_timeout()))
            }
            Bench::Lane(loan) => {
                if !loan.try_hold().is_some_and(|lane| lane.has_callbacks()) {
                    return false;
                }
                // The desk may need the lane, however long the consumer takes: no callback is made with it in hand.
                let next = || loan.try_hold().and_then(|mut lane| lane.next_notice());
                core::iter::from_fn(next).take(NOTICES_MAX).for_each(DetachedNotice::call);
                (true, Some(loan.try_hold().and_then(|mut lane| lane.next_timeout())))
            }
        };
        if let Some(next) = next {
            turn.busy = true;
            // A callback may be put off.
            turn.next = next;
        }
        called
    }

    /// One bounded turn without a callback, as for a thread that is inside a call of the consumer. As [`Self::poll`].
    pub fn turn(&mut self, now: Instant) -> Turn {
        let follows = self.follows_speed(now);
        let Self { edge, edge_failed, bench, .. } = self;
        let loan = match bench {
            Bench::Desk(desk) => {
                if follows {
                    desk.lane().follow(edge.speed());
                }
                return desk.turn(now, (edge, edge_failed));
            }
            Bench::Lane(loan) => loan,
        };
        // The desk has it for a moment.
        let Some(mut lane) = loan.try_hold() else { return Turn::BUSY };
        if follows {
            lane.follow(edge.speed());
        }
        lane.turn(now, (edge, edge_failed))
    }

    /// Whether the edge is to be asked for the link's speed, which is the upper bound of congestion control. It may change,
    /// and a core that sleeps need not know.
    fn follows_speed(&mut self, now: Instant) -> bool {
        let due = now >= self.speed_due;
        if due {
            self.speed_due = now + SPEED_INTERVAL;
        }
        due
    }

    /// Bytes per second that congestion control takes for the link's; `None` where it is off.
    #[cfg(test)]
    pub(crate) fn line_rate(&self) -> Option<u64> {
        let Bench::Desk(desk) = &self.bench else { return None };
        desk.cx.device.engines.own.engine.config().dcqcn.map(|dcqcn| dcqcn.line_rate)
    }

    /// Whether callbacks are due, for [`Self::poll`] to make.
    pub fn has_callbacks(&self) -> bool {
        match &self.bench {
            Bench::Desk(desk) => desk.has_callbacks(),
            // As long as the desk has the lane, it may make some.
            Bench::Lane(loan) => loan.try_hold().is_none_or(|lane| lane.has_callbacks()),
        }
    }
}

impl Turn {
    /// This turn and that of another core, as one.
    #[cfg(target_os = "linux")]
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            busy: self.busy || other.busy,
            units: self.units + other.units,
            next: Instant::earlier(self.next, other.next),
            edge_failed: self.edge_failed || other.edge_failed,
            stopped: self.stopped || other.stopped,
        }
    }

    /// One without the lane, as the desk has it: another may find work at once.
    const BUSY: Self =
        Self { busy: true, units: 0, next: None, edge_failed: false, stopped: false };
}

/// The edge of a core, and whether it failed the last time.
type EdgeOf<'a> = (&'a mut Box<dyn Edge + Send>, &'a mut bool);

impl Desk {
    /// A turn of the first core.
    fn turn(&mut self, now: Instant, (edge, edge_failed): EdgeOf<'_>) -> Turn {
        self.cx.now = now;
        self.lane().now = now;
        let has_room = self.cx.shard.platform.has_room();
        self.cx.device.front.admit_messages(has_room);
        let received = edge.receive(IO_BUDGET, &mut |units| self.receive(units));
        // An edge that fails is a link that is down: the peer's silence shows in the timers.
        *edge_failed = received.is_err();
        let received = received.unwrap_or_default() + self.receive_passed();
        let mut busy = received > 0;
        self.cx.device.probe_peers(now);
        self.handle_timeouts();
        if self.drain_control() {
            busy = true;
            if core::mem::take(&mut self.cx.readdressed) {
                edge.claim(&self.lane().engine.config().addresses, ROCE_PORT);
            }
        }
        busy |= self.lane().drain_doorbells();
        self.follow_paths();
        // An edge prepares the buffers that it lends, for nothing where there is nothing to send.
        let budget = if self.may_transmit() { IO_BUDGET } else { 0 };
        let sent = edge.transmit(budget, &mut |slots| self.fill(slots)).unwrap_or_default();
        busy |= self.lane().restart_loopback() || sent > 0;
        let Cx { shard, paths, .. } = &self.cx;
        shard.counters.set_edge(0, edge.drops());
        shard.counters.set_address_conflicts(paths.neighbours.conflicts());
        busy |= self.lane().deliver_completions();
        if self.handle_news() || self.handle_connections() {
            busy = true;
            // A failed connection may just have flushed a queue.
            self.lane().deliver_completions();
        }
        self.settle();
        self.lane().cqs.release_moderated(now);
        self.cx.names.sweep();
        self.cx.device.engines.give_back();
        let next = self.next_timeout();
        let shard = &self.cx.shard;
        Turn {
            busy: busy || shard.has_letters() || shard.has_work(0),
            units: received + sent,
            next,
            edge_failed: *edge_failed,
            stopped: shard.is_stopped(),
        }
    }
}

impl Lane {
    /// Takes the link's speed in bits per second, where it is known, and tells what it may have lost.
    fn follow(&mut self, speed: Option<u64>) {
        if let Some(bits) = speed {
            self.engine.set_line_rate(bits / 8);
        }
        self.tell_units();
    }

    /// A turn of another core.
    fn turn(&mut self, now: Instant, (edge, edge_failed): EdgeOf<'_>) -> Turn {
        self.now = now;
        let mut busy = self.shard.take_changed(self.core);
        let received = edge.receive(IO_BUDGET, &mut |units| {
            self.drain_doorbells();
            self.receive(units, &mut None);
        });
        *edge_failed = received.is_err();
        let received = received.unwrap_or_default() + self.receive_passed(None);
        busy |= received > 0;
        self.engine.handle_timers(now);
        busy |= self.drain_doorbells();
        let budget = if self.engine.may_transmit() { IO_BUDGET } else { 0 };
        let sent = edge.transmit(budget, &mut |slots| self.fill(slots, None)).unwrap_or_default();
        busy |= self.restart_loopback() || sent > 0;
        self.shard.counters.set_edge(self.core, edge.drops());
        // The desk has to know what the consumer may see next.
        if self.has_news() {
            self.shard.tell_news(self.core);
        }
        busy |= self.deliver_completions();
        if self.cqs.has_news() {
            self.shard.tell_news(self.core);
        }
        self.cqs.release_moderated(now);
        Turn {
            busy: busy || self.shard.has_work(self.core),
            units: received + sent,
            next: self.next_timeout(),
            edge_failed: *edge_failed,
            stopped: self.shard.is_stopped(),
        }
    }
}

/// The configuration of the device of a provider over this link.
fn device_config(config: ProviderConfig, link: &Link, seed: [u8; 32]) -> DeviceConfig {
    let limits = config.limits;
    let mut cm = config.cm;
    cm.ack_timeout_code = config.ack_timeout_code;
    cm.ca_guid = eui64(link.mac);
    DeviceConfig {
        seed,
        addresses: config.addresses,
        link: LinkEnd { mac: Some(Mac(link.mac)), vlan: vlan(config.vlan) },
        mtu: link.mtu,
        socket: link.socket,
        max_qps: limits.qps,
        max_mrs: limits.mrs,
        // Each that is queued holds a list of the pool, or its region's own.
        max_queued_mappings: Some(POOL_LISTS),
        max_reads: MAX_READS as u8,
        retry_count: config.retry_count,
        opening: config.opening,
        window: config.window,
        reorder_pool: limits.reorder_pool,
        dcqcn: config.dcqcn,
        short_ways: config.short_ways,
        cm,
    }
}

// A value that is made in a box passes through the stack of its maker: each has one of its own, which is gone
// before the next begins.

#[inline(never)]
fn boxed_lane(
    core: u8,
    shard: Arc<Shard>,
    engine: Box<Engine>,
    bytes: Regions,
    windows: Windows,
    link: &Link,
) -> Box<Lane> {
    Box::new(Lane::new(core, shard, engine, bytes, windows, link))
}

#[inline(never)]
fn desk(
    shard: Arc<Shard>,
    front: Box<Front>,
    lanes: Lanes,
    names: Names,
    paths: Paths,
) -> Box<Desk> {
    boxed_desk(Cx::new(shard, front, lanes, names, paths))
}

#[inline(never)]
fn boxed_desk(cx: Cx) -> Box<Desk> {
    Box::new(Desk::new(cx))
}

#[inline(never)]
fn shard(
    platform: Box<dyn Platform>,
    limits: Limits,
    wakers: &[Waker],
    transport: Vec<Arc<Counters>>,
    unit_len: usize,
) -> Arc<Shard> {
    Arc::new(Shard::new(platform, limits, wakers, transport, unit_len))
}

/// The node GUID that goes with a MAC address: EUI-64 with the universal bit flipped.
const fn eui64(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
