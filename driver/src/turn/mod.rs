//! The poll core of a shard: the one loop that owns the device, the edge and every object.
//!
//! It has no thread of its own. A Linux thread, a kernel thread or a test calls [`PollCore::poll`].

mod config;
mod dispatch;
mod home;
mod lives;
mod objects;
mod sink;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub use config::ProviderConfig;

use crate::bytes::pages::POOL_LISTS;
use crate::counters::{AdapterCounters, Connection};
use crate::cx::Cx;
use crate::limits::Limits;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::platform::request::connections;
use crate::shard::Shard;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::Waker;
use netadapter_glue::Edge;
use rocev2::counters::Counters;
use rocev2::env::{Duration, Instant};
use rocev2::qp::MAX_READS;
use rocev2::wire::ROCE_PORT;
use rocev2::{Device, DeviceConfig};
use state::State;

/// Units received, and units sent, in one turn.
const IO_BUDGET: usize = 64;
/// How often the edge is asked for the link's speed, at most.
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

/// A provider on one edge.
pub struct PollCore {
    edge: Box<dyn Edge + Send>,
    edge_failed: bool,
    /// When the edge is asked for its speed next.
    speed_due: Instant,
    /// In a box, so that a home passes a few pointers on a kernel's stack.
    state: Box<State>,
}

impl PollCore {
    /// A core over `edge`, whose randomness comes from `seed`, and not from the one in `config`. `waker`
    /// is called when a sleeping core has to be polled.
    pub fn new(
        mut edge: Box<dyn Edge + Send>,
        platform: Box<dyn Platform>,
        config: ProviderConfig,
        seed: [u8; 32],
        waker: &Waker,
    ) -> Self {
        let limits = config.limits;
        let link = edge.link();
        edge.set_waker(waker);
        edge.claim(&config.addresses, ROCE_PORT);
        let mut cm = config.cm;
        cm.ack_timeout_code = config.ack_timeout_code;
        cm.ca_guid = eui64(link.mac);
        let paths = Paths::new(link.mac, &config.addresses, config.vlan);
        let device = boxed_device(DeviceConfig {
            seed,
            addresses: config.addresses,
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
        });
        let counters = Arc::clone(device.counters());
        let shard = shard(platform, limits, waker, counters);
        let state = boxed_state(Cx::new(shard, device, paths), link.max_segments.max(1));
        Self { edge, edge_failed: false, speed_due: Instant::default(), state }
    }

    /// The way to it, for other threads.
    pub fn shard(&self) -> &Arc<Shard> {
        &self.state.cx.shard
    }

    /// The counters.
    pub fn counters(&self) -> AdapterCounters {
        self.shard().counters.snapshot()
    }

    /// Established connections.
    pub fn connections(&self) -> Vec<Connection> {
        connections(self.state.objects.endpoints(&self.state.cx))
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
        self.shard().announce_sleep(sleeping);
    }

    /// One bounded turn, and the callbacks that are due. Never blocks. IRQL <= DISPATCH_LEVEL, never two at once.
    pub fn poll(&mut self, now: Instant) -> Turn {
        let mut turn = self.turn(now);
        self.call_back(&mut turn);
        turn
    }

    /// Makes the callbacks that are due after `turn`, and notes that there. Whether there was one.
    pub(crate) fn call_back(&mut self, turn: &mut Turn) -> bool {
        let called = self.state.call_back();
        if called {
            turn.busy = true;
            // A callback may be put off.
            turn.next = self.state.next_timeout();
        }
        called
    }

    /// One bounded turn without a callback, as for a thread that is inside a call of the consumer. As [`Self::poll`].
    pub fn turn(&mut self, now: Instant) -> Turn {
        self.state.cx.now = now;
        self.follow_speed(now);
        let received = self.receive_burst();
        let mut busy = received > 0;
        self.state.handle_timeouts();
        if self.state.drain_control() {
            busy = true;
            self.claim_other_addresses();
        }
        busy |= self.state.drain_doorbells();
        self.state.follow_paths();
        let (sent, came_back) = self.transmit_burst();
        busy |= sent > 0 || came_back;
        busy |= self.state.deliver_completions();
        if self.state.handle_events() {
            busy = true;
            // A failed connection may just have flushed a queue.
            self.state.deliver_completions();
        }
        self.state.objects.cqs.release_moderated(now);
        Turn {
            busy: busy || self.shard().has_work(),
            units: received + sent,
            next: self.state.next_timeout(),
            edge_failed: self.edge_failed,
            stopped: self.state.cx.stopped,
        }
    }

    /// Tells the edge which frames are the device's alone, where that has changed.
    fn claim_other_addresses(&mut self) {
        let Cx { device, readdressed, .. } = &mut self.state.cx;
        if core::mem::take(readdressed) {
            self.edge.claim(&device.config().addresses, ROCE_PORT);
        }
    }

    /// Makes the link's speed the upper bound of congestion control. It may change, and a core that
    /// sleeps need not know.
    fn follow_speed(&mut self, now: Instant) {
        if now >= self.speed_due {
            self.speed_due = now + SPEED_INTERVAL;
            if let Some(bits) = self.edge.speed() {
                self.state.cx.device.set_line_rate(bits / 8);
            }
        }
    }

    /// Bytes per second that congestion control takes for the link's; `None` where it is off.
    pub fn line_rate(&self) -> Option<u64> {
        self.state.cx.device.config().dcqcn.map(|dcqcn| dcqcn.line_rate)
    }

    /// Whether callbacks are due, for [`Self::poll`] to make.
    pub fn has_callbacks(&self) -> bool {
        !self.state.cx.upcalls.is_empty() || self.state.objects.cqs.has_dirty()
    }

    /// Returns the number of units.
    fn receive_burst(&mut self) -> usize {
        let Self { edge, state, .. } = self;
        let has_room = state.cx.shard.platform.has_room();
        state.cx.device.admit_messages(has_room);
        let received = edge.receive(IO_BUDGET, &mut |units| {
            // A receive that was posted before a frame arrived must be seen with it: some peers
            // allow no "receiver not ready" at all.
            state.drain_doorbells();
            state.receive(units);
        });
        // An edge that fails is a link that is down: the peer's silence shows in the timers.
        self.edge_failed = received.is_err();
        received.unwrap_or_default()
    }

    /// Returns the number of units, and whether others came back from the own addresses.
    fn transmit_burst(&mut self) -> (usize, bool) {
        let Self { edge, state, .. } = self;
        // An edge prepares the buffers that it lends, for nothing where there is nothing to send.
        let budget = if state.may_transmit() { IO_BUDGET } else { 0 };
        let sent = edge.transmit(budget, &mut |slots| state.fill(slots));
        let came_back = state.loopback.restart();
        let Cx { shard, paths, .. } = &state.cx;
        shard.counters.set_edge(edge.drops());
        shard.counters.set_address_conflicts(paths.neighbours.conflicts());
        (sent.unwrap_or_default(), came_back)
    }
}

// A value that is made in a box passes through the stack of its maker: each has one of its own, which is gone
// before the next begins.

#[inline(never)]
fn boxed_device(config: DeviceConfig) -> Box<Device> {
    Box::new(Device::new(config))
}

#[inline(never)]
fn boxed_state(cx: Cx, max_segments: usize) -> Box<State> {
    Box::new(State::new(cx, max_segments))
}

#[inline(never)]
fn shard(
    platform: Box<dyn Platform>,
    limits: Limits,
    waker: &Waker,
    counters: Arc<Counters>,
) -> Arc<Shard> {
    Arc::new(Shard::new(platform, limits, waker.clone(), counters))
}

/// The node GUID that goes with a MAC address: EUI-64 with the universal bit flipped.
const fn eui64(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
