//! Hosts, virtual time, and what goes wrong when.

use super::cores::Core;
use super::edge::{Port, SimEdge};
use super::end::{End, What};
use super::foreign::{Foreign, Quirks};
use super::net::{self, Faults, Net, mac};
use super::pool::Pool;
use super::script::{Act, faults, links};
use super::stranger::{Guest, Strange};
use super::trial::Trial;
use super::watch::Watch;
use super::{Options, Report};
use crate::kit::numbered::{self, Event};
use crate::kit::raw::Object;
use driver::abi::*;
use driver::{ProviderConfig, Stepped};
use netadapter_glue::pcap::Capture;
use netadapter_glue::{Edge, Link};
use rocev2::env::{Instant, Rng};
use std::collections::{BTreeMap, VecDeque};
use std::hash::DefaultHasher;
use std::io::{Write, stderr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a step ends with.
pub(crate) type Step<T = ()> = Result<T, String>;

pub(crate) const MS: u64 = 1_000_000;
/// The port of every listener.
pub(crate) const PORT: u16 = 5445;
/// A part of a run ends within this, whatever each of its waits may take (`liveness`): the longest is a
/// request to a peer that asked for more time (`PeerLimits::service_limit`), and a connect after it.
pub(crate) const LIVENESS: u64 = 200_000 * MS;

macro_rules! require {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}
pub(crate) use require;

/// A host, and its provider unless it is down.
pub(crate) struct Host {
    /// Every host of ours has as many, of the same families in the same order.
    pub(crate) ips: Vec<IpAddr>,
    /// Those of them that it does not have now.
    pub(crate) lost: Vec<IpAddr>,
    pub(crate) mtu: usize,
    pub(crate) provider: Option<Stepped>,
    /// How it behaves, if it is not ours, and its adapter unless it is down.
    pub(crate) quirks: Option<Quirks>,
    pub(crate) foreign: Option<Foreign>,
    pub(crate) adapter: Object<NDK_ADAPTER>,
    /// One for each address.
    pub(crate) listeners: Vec<Object<NDK_LISTENER>>,
    /// What connections leave from, and its port.
    pub(crate) endpoint: Option<(Object<NDK_SHARED_ENDPOINT>, u16)>,
    pub(crate) pool: Option<Pool>,
    pub(crate) config: ProviderConfig,
    pub(crate) segments: usize,
    /// A foreign host has one.
    pub(crate) cores: Vec<Core>,
    /// Its NIC chooses the core of a frame by addresses and ports, not by the queue pair.
    pub(crate) hashes: bool,
    pub(crate) room: usize,
    /// There is no room at all before.
    pub(crate) full: u64,
    /// Frames of a received unit, at most.
    pub(crate) coalesces: usize,
    /// Its edge tells how fast its link is.
    pub(crate) knows_speed: bool,
    pub(crate) inbox_max: usize,
    pub(crate) incarnation: u64,
    pub(crate) clock: Clock,
    /// It runs nothing before.
    pub(crate) stalled: u64,
}

/// A host's clock, which never goes back: ahead of the others by this, and it gains so many millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) ahead: u64,
    pub(crate) gains: i64,
}

impl Clock {
    /// What it says.
    pub(crate) const fn read(self, now: u64) -> u64 {
        (now as u128 * self.pace() / MILLION) as u64 + self.ahead
    }

    /// When it says that, at the earliest.
    pub(crate) const fn when(self, clock: u64) -> u64 {
        let own = clock.saturating_sub(self.ahead) as u128;
        (own * MILLION).div_ceil(self.pace()) as u64
    }

    const fn pace(self) -> u128 {
        (MILLION as i64 + self.gains) as u128
    }
}

/// Parts of a second, and of others.
const MILLION: u128 = 1_000_000;

/// Which part of a run it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Chaos,
    Healing,
    Teardown,
}

/// The whole simulation.
pub(crate) struct World {
    pub(crate) rng: Rng,
    /// Of the cores.
    pub(crate) core_rng: Rng,
    pub(crate) now: u64,
    pub(crate) part: Part,
    pub(crate) hosts: Vec<Host>,
    pub(crate) ends: Vec<End>,
    pub(crate) tokens: BTreeMap<usize, (usize, What)>,
    pub(crate) report: Report,
    /// Nothing may fail that no consumer made fail.
    pub(crate) calm: bool,
    /// So little is lost that a connect that is sent again gets through.
    pub(crate) reliable: bool,
    /// Nothing may fail that was established once, but by a consumer.
    pub(crate) patient: bool,
    /// What goes wrong at a chosen moment, and how many requests have succeeded before.
    pub(crate) trial: Option<Trial>,
    pub(crate) trial_after: u64,
    /// What our ends do with a foreign host is mostly to READ by keys that end thereafter.
    pub(crate) storage: bool,
    /// A NIC is replaced.
    pub(crate) moves: bool,
    /// The network makes copies of frames.
    pub(crate) copies: bool,
    /// Consumers make mistakes.
    pub(crate) misuse: bool,
    pub(crate) stranger: Option<Strange>,
    /// What consumers have made for it.
    pub(crate) guests: Vec<Guest>,
    /// How long it speaks before anybody else does, in ns.
    pub(crate) lead: u64,
    /// The network delivers everything once and in order, and hosts are never late.
    pub(crate) lossless: bool,
    /// Why it is not to be held to that.
    pub(crate) explained: Option<&'static str>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) created: BTreeMap<usize, Result<*mut NDK_OBJECT_HEADER, NTSTATUS>>,
    pub(crate) ended: BTreeMap<usize, NTSTATUS>,
    next_token: usize,
    /// A turn is made for something that is created or closed.
    pub(crate) asking: bool,
    pub(crate) net: Net,
    pub(crate) watch: Watch,
    pub(crate) script: BTreeMap<(u64, usize), Act>,
    pub(crate) acts: usize,
    pub(crate) chaos_ends: u64,
    /// What went wrong before it healed.
    pub(crate) chaos: Faults,
    pub(crate) hasher: DefaultHasher,
    trace: bool,
    pub(crate) pcap: Option<(PathBuf, Arc<AtomicU64>)>,
}

impl World {
    /// The world of a seed.
    pub(crate) fn new(seed: u64, options: &Options) -> Step<Self> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = Rng::from_seed(bytes);
        let count = 2 + usize::from(rng.below(3) == 0);
        let mut faults = faults(&mut rng);
        bytes[8] = 3;
        let mut own = Rng::from_seed(bytes);
        bytes[8] = 0;
        let stranger = Strange::draw(&mut own, options.strangers);
        let stranger = stranger.filter(|_| options.trial.is_none());
        let lossless = own.below(8) == 0 && options.trial.is_none() && stranger.is_none();
        let peace = lossless || stranger.is_some();
        let upheaval = rng.below(3) == 0 && options.trial.is_none() && !peace;
        let reordering =
            (rng.below(12) == 0 && !upheaval && !lossless).then_some(Trial::Reordering);
        let beside = stranger.as_ref().and_then(|strange| strange.kind.trial());
        let trial = options.trial.or(beside).or(reordering);
        if peace {
            faults = if lossless { faults.healed() } else { faults.mild() };
        }
        if let Some(trial) = trial {
            faults = trial.faults(&faults);
        }
        let breaks = trial.is_some_and(Trial::breaks);
        let links = links(&mut rng, if trial.is_none() && !lossless { count } else { 0 });
        let mishaps = rng.below(4) == 0 && trial.is_none() && !lossless;
        let patient = !upheaval && !breaks && faults.lossy() <= 120;
        let calm = patient && !faults.any() && links.is_empty() && !mishaps;
        let reliable = patient && faults.lossy() <= 40;
        let copies = faults.duplicate + faults.ghost > 0;
        let net = Net::new(count, faults, &links, rng.fork());
        let lead = stranger.as_ref().map_or(0, Strange::lead);
        let chaos_ends = lead + MS * (5 + u64::from(rng.below(300)));
        let clock = options.pcap.clone().map(|path| (path, Arc::default()));
        let mut world = Self {
            core_rng: Rng::from_seed(bytes),
            now: MS,
            part: Part::Chaos,
            hosts: Vec::new(),
            ends: Vec::new(),
            tokens: BTreeMap::new(),
            report: Report::default(),
            calm,
            reliable,
            patient,
            trial,
            trial_after: u64::from(rng.below(20)),
            misuse: rng.below(3) == 0 && trial.is_none() && !lossless,
            storage: false,
            moves: false,
            copies,
            stranger,
            guests: Vec::new(),
            lead,
            lossless,
            explained: None,
            events: VecDeque::new(),
            created: BTreeMap::new(),
            ended: BTreeMap::new(),
            next_token: 1 << 32,
            asking: false,
            net,
            watch: Watch::default(),
            script: BTreeMap::new(),
            acts: 0,
            chaos_ends,
            chaos: Faults::default(),
            hasher: DefaultHasher::new(),
            trace: options.trace,
            pcap: clock,
            rng,
        };
        world.note(|world| {
            format!("{:?} {links:?} calm {calm} patient {patient}", world.net.faults)
        });
        world.add_hosts(count);
        world.choose_foreign(count);
        bytes[8] = 1;
        world.plan_ways(&mut Rng::from_seed(bytes));
        bytes[8] = 2;
        world.plan_cores(Rng::from_seed(bytes));
        world.suit_stranger();
        // An edge that fails or is full holds back what was said, as a host does that stalls.
        // So does what a NIC has taken before, on a slow link.
        let link = world.net.slowest().map_or(0, |rate| 64 * (64 << 10) * 1_000_000_000 / rate);
        world.watch.judge.queued = MS * if mishaps { 500 } else { 30 } + link;
        world.watch.judge.crowded = world.is_crowded();
        (0..count).try_for_each(|host| world.start(host))?;
        world.plan(count, upheaval, mishaps);
        Ok(world)
    }

    fn add_hosts(&mut self, count: usize) {
        let v6 = self.rng.below(2) == 0;
        // More addresses, of both families.
        let (second, other) = (self.rng.below(3) == 0, self.rng.below(4) == 0);
        let drifts = self.rng.below(3);
        let mtus = [400, 576, 1500, 1500, 4200, 9000];
        let common = mtus[self.rng.below(6) as usize];
        let uneven = self.rng.below(8) == 0;
        for host in 0..count {
            let mtu = if uneven { mtus[self.rng.below(6) as usize] } else { common };
            // No IPv6 link carries less than 1280 bytes.
            let mtu = if v6 || other { mtu.max(1280) } else { mtu };
            let mut ips = vec![address(v6, 0, host)];
            ips.extend(second.then(|| address(v6, 1, host)));
            ips.extend(other.then(|| address(!v6, 0, host)));
            let patient = self.patient || self.trial.is_some();
            let mut config = net::config(ips.clone(), &mut self.rng, patient);
            if self.trial == Some(Trial::Reordering) {
                config.window.reorder_bytes = config.window.reorder_bytes.max(config.window.bytes);
            }
            for &ip in &ips {
                let msn = config.opening.msn.get();
                self.watch.host(ip, config.window.bytes, config.window.reorder_bytes, msn);
            }
            // Quartz, and a virtual machine's clock that is being set right.
            let gains = match drifts {
                0 => 0,
                1 => i64::from(self.rng.below(1001)) - 500,
                _ => i64::from(self.rng.below(20_001)) - 10_000,
            };
            let none = Object(std::ptr::null_mut());
            self.hosts.push(Host {
                ips,
                lost: Vec::new(),
                mtu,
                provider: None,
                quirks: None,
                foreign: None,
                adapter: none,
                listeners: Vec::new(),
                endpoint: None,
                pool: None,
                config,
                segments: [1, 1, 2, 8][self.rng.below(4) as usize],
                cores: vec![Core::default()],
                hashes: false,
                room: [1, 4, 64][self.rng.below(3) as usize],
                full: 0,
                coalesces: [1, 1, 4, 64][self.rng.below(4) as usize],
                knows_speed: self.rng.below(2) == 0,
                inbox_max: if self.patient { 4096 } else { 16 << self.rng.below(6) },
                incarnation: 0,
                clock: Clock { ahead: 0, gains },
                stalled: 0,
            });
        }
    }

    /// Now and then one of the hosts is not ours.
    fn choose_foreign(&mut self, count: usize) {
        if self.trial.is_some() || self.rng.below(20) < 9 || self.lossless {
            return;
        }
        let mut quirks = Quirks::draw(&mut self.rng, self.patient);
        if let Some(rate) = self.net.slowest() {
            quirks.suit(rate);
            // It has no control of its own, and a READ of it has any length.
            for host in &mut self.hosts {
                host.config.dcqcn.get_or_insert_default();
            }
        }
        self.note(|_| format!("host {} is foreign: {quirks:?}", count - 1));
        self.storage = self.patient && self.rng.below(3) > 0;
        if self.storage {
            quirks.be_quick();
            // Where the network makes no copies, those that arrive are the provider's.
            let faults = &mut self.net.faults;
            (faults.duplicate, faults.ghost, faults.spike) = (0, 0, 0);
            (faults.loss, faults.corrupt, faults.truncate) = (faults.loss.min(10), 0, 0);
            faults.reorder = 20 + self.rng.below(80);
            faults.window = MS * u64::from(1 + self.rng.below(5));
            (self.calm, self.copies, self.misuse) = (false, false, false);
            self.chaos_ends = self.chaos_ends.min(self.lead + 60 * MS) + 20 * MS;
        }
        // It has one address, and counts messages from 0.
        let host = &mut self.hosts[count - 1];
        host.ips.truncate(1);
        let (ip, window) = (host.ips[0], host.config.window);
        self.watch.host(ip, window.bytes, window.reorder_bytes, 0);
        self.watch.foreign(ip);
        host.quirks = Some(quirks);
    }

    /// Starts a host that is down.
    pub(crate) fn start(&mut self, host: usize) -> Step {
        let this = &mut self.hosts[host];
        this.incarnation += 1;
        let speed = self.net.rate(host).filter(|_| this.knows_speed).map(|rate| rate * 8);
        for core in &mut this.cores {
            let port = Port { coalesces: this.coalesces, speed, ..Port::default() };
            *core = Core { port: Arc::new(Mutex::new(port)), ..Core::default() };
        }
        if let Some(quirks) = this.quirks.clone() {
            self.start_foreign(host, quirks);
            return Ok(());
        }
        let link = Link {
            mac: mac(host),
            mtu: this.mtu,
            max_segments: this.segments,
            max_unit_len: (this.mtu + 14) * this.segments.max(1) + 64,
            socket: false,
        };
        let mut edges = Vec::new();
        for (core, Core { port, .. }) in this.cores.iter().enumerate() {
            let edge = SimEdge::new(link, Arc::clone(port));
            let edge: Box<dyn Edge + Send> = match &self.pcap {
                Some((path, clock)) => {
                    let clock = Arc::clone(clock);
                    let file = path.join(format!("host-{host}-{}-{core}.pcap", this.incarnation));
                    let capture = Capture::create(edge, file).map_err(|error| error.to_string())?;
                    let time = move || Duration::from_nanos(clock.load(Ordering::Relaxed));
                    Box::new(capture.with_clock(time))
                }
                None => Box::new(edge),
            };
            edges.push(edge);
        }
        let mut seed = [0; 32];
        super::memory::fill(&mut seed, &mut self.rng);
        let mut provider = Stepped::with_cores(edges, this.config.clone(), seed);
        let now = Instant::from_nanos(this.clock.read(self.now));
        let version = NDK_VERSION { Major: 2, Minor: 1 };
        let adapter = provider.open_adapter(version, now).map_err(|status| status.to_string())?;
        this.adapter = Object(adapter);
        this.provider = Some(provider);
        this.call(self.now);
        let adapter = this.adapter;
        for ip in self.hosts[host].ips.clone() {
            let listener =
                self.create(host, |token| numbered::create_listener(adapter, host, token))?;
            let local = SocketAddr::new(ip, PORT);
            let status = self.request(host, |token| numbered::listen(listener, local, token))?;
            require!(status == STATUS_SUCCESS, "a listen ended with {status}");
            self.hosts[host].listeners.push(listener);
        }
        self.share(host)
    }

    pub(crate) fn note(&self, what: impl FnOnce(&Self) -> String) {
        if self.trace {
            // Past the test's capture, which would keep it and count as left behind.
            let _ = writeln!(stderr(), "{:>12.3} us  {}", self.now as f64 / 1e3, what(self));
        }
    }

    // ---- requests ------------------------------------------------------------------------------

    pub(crate) fn new_token(&mut self) -> usize {
        self.next_token += 1;
        self.next_token
    }

    /// Creates an object and waits for it.
    pub(crate) fn create<T>(
        &mut self,
        host: usize,
        make: impl FnOnce(usize) -> NTSTATUS,
    ) -> Step<Object<T>> {
        let token = self.new_token();
        let status = make(token);
        require!(status == STATUS_PENDING, "a creation gives {status}");
        for _ in 0..4 {
            self.turn_asking(host)?;
            if let Some(created) = self.created.remove(&token) {
                let created = created.map_err(|status| format!("a creation ends with {status}"));
                return created.map(|object| Object(object.cast()));
            }
        }
        Err("a creation does not end".into())
    }

    /// Makes a request and waits for its end.
    pub(crate) fn request(
        &mut self,
        host: usize,
        make: impl FnOnce(usize) -> NTSTATUS,
    ) -> Step<NTSTATUS> {
        let token = self.new_token();
        self.tokens.insert(token, (host, What::Awaited));
        let status = make(token);
        require!(status == STATUS_PENDING, "a request gives {status}");
        for _ in 0..4 {
            self.turn_asking(host)?;
            if let Some(status) = self.ended.remove(&token) {
                return Ok(status);
            }
        }
        Err("a request does not end".into())
    }

    pub(crate) fn turn_asking(&mut self, host: usize) -> Step {
        self.asking = true;
        let mut cores = 0..self.hosts[host].cores.len();
        let result = cores.try_for_each(|core| self.turn(host, core));
        self.asking = false;
        result
    }
}

/// An address of a host on a subnet.
fn address(v6: bool, subnet: u8, host: usize) -> IpAddr {
    if v6 {
        let parts = [0xfd00, 0, 0, u16::from(subnet), 0, 0, 0, host as u16 + 1];
        return Ipv6Addr::from(parts).into();
    }
    Ipv4Addr::new(10, 0, subnet, host as u8 + 1).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_is_read_when_it_says_so() {
        for gains in [-10_000, -1, 0, 333, 10_000] {
            let clock = Clock { ahead: 77, gains };
            for says in (100..1_000_000_000).step_by(9_999_991) {
                let at = clock.when(says);
                assert!(clock.read(at) >= says && clock.read(at - 1) < says, "{gains}: {says}");
            }
        }
        let (fast, slow) = (Clock { ahead: 0, gains: 500 }, Clock { ahead: 0, gains: -500 });
        assert_eq!((fast.read(MS), slow.read(MS)), (1_000_500, 999_500));
    }
}
