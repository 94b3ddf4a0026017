//! Hosts, virtual time, and what goes wrong when.

use super::end::{End, Phase, What};
use super::meter::counted;
use super::ndk::{self, Event};
use super::net::{self, Crossing, Net, Port, SimEdge, lock, mac};
use super::pool::Pool;
use super::script::{Act, faults};
use super::watch::Watch;
use super::{Deed, Options, Report};
use crate::raw::Object;
use driver::abi::*;
use driver::{ProviderConfig, Stepped};
use netadapter_glue::pcap::Capture;
use netadapter_glue::{Edge, Link};
use rocev2::env::{Instant, Rng};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a step ends with.
pub(crate) type Step<T = ()> = Result<T, String>;

pub(crate) const MS: u64 = 1_000_000;
/// The port of every listener.
pub(crate) const PORT: u16 = 5445;
/// Everything outstanding ends within this, once nothing fails any more: the longest is a request
/// to a peer that asked for more time (`CmConfig::service_limit`), and a connect after it.
const LIVENESS: u64 = 200_000 * MS;
/// Turns of a run, at most.
const TURNS_MAX: u64 = 2_000_000;

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
    pub(crate) ip: IpAddr,
    pub(crate) mtu: usize,
    pub(crate) provider: Option<Stepped>,
    pub(crate) adapter: Object<NDK_ADAPTER>,
    pub(crate) listener: Option<Object<NDK_LISTENER>>,
    /// What connections leave from, and its port.
    pub(crate) endpoint: Option<(Object<NDK_SHARED_ENDPOINT>, u16)>,
    pub(crate) pool: Option<Pool>,
    config: ProviderConfig,
    segments: usize,
    port: Arc<Mutex<Port>>,
    room: usize,
    inbox_max: usize,
    incarnation: u64,
    /// Its clock is ahead by this.
    pub(crate) ahead: u64,
    sleeping: bool,
    /// When it has its next turn.
    pub(crate) turn_at: Option<u64>,
    /// It runs nothing before.
    pub(crate) stalled: u64,
}

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
    /// Consumers make mistakes.
    pub(crate) misuse: bool,
    events: VecDeque<Event>,
    created: BTreeMap<usize, Result<*mut NDK_OBJECT_HEADER, NTSTATUS>>,
    ended: BTreeMap<usize, NTSTATUS>,
    next_token: usize,
    /// A turn is made for something that is created or closed.
    asking: bool,
    pub(crate) net: Net,
    watch: Watch,
    pub(crate) script: BTreeMap<(u64, usize), Act>,
    pub(crate) chaos_ends: u64,
    hasher: DefaultHasher,
    trace: bool,
    pcap: Option<(PathBuf, Arc<AtomicU64>)>,
}

impl World {
    /// The world of a seed.
    pub(crate) fn new(seed: u64, options: &Options) -> Step<Self> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = Rng::from_seed(bytes);
        let count = 2 + usize::from(rng.below(3) == 0);
        let faults = faults(&mut rng);
        let upheaval = rng.below(3) == 0;
        let patient = !upheaval && faults.lossy() <= 120;
        let calm = patient && !faults.any();
        let reliable = patient && faults.lossy() <= 40;
        let net = Net::new(count, faults, rng.fork());
        let chaos_ends = MS * (5 + u64::from(rng.below(300)));
        let clock = options.pcap.clone().map(|path| (path, Arc::default()));
        let mut world = Self {
            now: MS,
            part: Part::Chaos,
            hosts: Vec::new(),
            ends: Vec::new(),
            tokens: BTreeMap::new(),
            report: Report::default(),
            calm,
            reliable,
            patient,
            misuse: rng.below(4) == 0,
            events: VecDeque::new(),
            created: BTreeMap::new(),
            ended: BTreeMap::new(),
            next_token: 1 << 32,
            asking: false,
            net,
            watch: Watch::default(),
            script: BTreeMap::new(),
            chaos_ends,
            hasher: DefaultHasher::new(),
            trace: options.trace,
            pcap: clock,
            rng,
        };
        world.note(|world| format!("{:?} calm {} patient {}", world.net.faults, calm, patient));
        world.add_hosts(count);
        (0..count).try_for_each(|host| world.start(host))?;
        world.plan(count, upheaval);
        Ok(world)
    }

    fn add_hosts(&mut self, count: usize) {
        let v6 = self.rng.below(2) == 0;
        let mtus = [576, 1500, 1500, 4200, 9000];
        let common = mtus[self.rng.below(5) as usize];
        let uneven = self.rng.below(8) == 0;
        for host in 0..count {
            let mtu = if uneven { mtus[self.rng.below(5) as usize] } else { common };
            // No IPv6 link carries less than 1280 bytes.
            let mtu = if v6 { mtu.max(1280) } else { mtu };
            let ip = if v6 {
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host as u16 + 1))
            } else {
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1))
            };
            let config = net::config(ip, &mut self.rng, self.patient);
            self.watch.host(ip, config.window.bytes, config.window.held);
            let none = Object(std::ptr::null_mut());
            self.hosts.push(Host {
                ip,
                mtu,
                provider: None,
                adapter: none,
                listener: None,
                endpoint: None,
                pool: None,
                config,
                segments: [1, 1, 2, 8][self.rng.below(4) as usize],
                port: Arc::default(),
                room: [1, 4, 64][self.rng.below(3) as usize],
                inbox_max: if self.patient { 4096 } else { 16 << self.rng.below(6) },
                incarnation: 0,
                ahead: 0,
                sleeping: false,
                turn_at: None,
                stalled: 0,
            });
        }
    }

    /// Starts a host that is down.
    pub(crate) fn start(&mut self, host: usize) -> Step {
        let this = &mut self.hosts[host];
        this.incarnation += 1;
        this.port = Arc::default();
        let link = Link {
            mac: mac(host),
            mtu: this.mtu,
            max_segments: this.segments,
            max_unit_len: (this.mtu + 14) * this.segments.max(1) + 64,
        };
        let edge = SimEdge::new(link, Arc::clone(&this.port));
        let edge: Box<dyn Edge + Send> = match &self.pcap {
            Some((path, clock)) => {
                let clock = Arc::clone(clock);
                let file = path.join(format!("host-{host}-{}.pcap", this.incarnation));
                let capture = Capture::create(edge, file).map_err(|error| error.to_string())?;
                let time = move || Duration::from_nanos(clock.load(Ordering::Relaxed));
                Box::new(capture.with_clock(time))
            }
            None => Box::new(edge),
        };
        let mut seed = [0; 32];
        super::memory::fill(&mut seed, &mut self.rng);
        let mut provider = Stepped::new(edge, this.config.clone(), seed);
        let now = Instant::from_nanos(self.now + this.ahead);
        let version = NDK_VERSION { Major: 2, Minor: 1 };
        let adapter = provider.open_adapter(version, now).map_err(|status| status.to_string())?;
        this.adapter = Object(adapter);
        this.provider = Some(provider);
        (this.sleeping, this.turn_at) = (false, Some(self.now));
        let adapter = this.adapter;
        let listener = self.create(host, |token| ndk::create_listener(adapter, host, token))?;
        let local = SocketAddr::new(self.hosts[host].ip, PORT);
        let status = self.request(host, |token| ndk::listen(listener, local, token))?;
        require!(status == STATUS_SUCCESS, "a listen ended with {status}");
        self.hosts[host].listener = Some(listener);
        self.share(host)
    }

    pub(crate) fn note(&self, what: impl FnOnce(&Self) -> String) {
        if self.trace {
            eprintln!("{:>12.3} us  {}", self.now as f64 / 1e3, what(self));
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

    fn turn_asking(&mut self, host: usize) -> Step {
        self.asking = true;
        let result = self.turn(host);
        self.asking = false;
        result
    }

    // ---- time ----------------------------------------------------------------------------------

    /// Runs the seed to its end.
    pub(crate) fn run(mut self) -> Step<Report> {
        let result = self.run_parts();
        self.note(|world| format!("{result:?}; requests {:?}", world.watch.requests));
        result.map_err(|what| format!("{what} (at {} us, {:?})", self.now / 1000, self.part))?;
        self.report.hash = self.hasher.finish();
        self.report.elapsed = self.now;
        Ok(self.report)
    }

    fn run_parts(&mut self) -> Step {
        while self.now < self.chaos_ends {
            self.advance(self.chaos_ends)?;
        }
        self.part = Part::Healing;
        self.note(|_| "healing".into());
        self.net.heal();
        for (_, act) in std::mem::take(&mut self.script) {
            if matches!(act, Act::Restart(_)) {
                self.act(act)?;
            }
        }
        self.settle_down("a request", |world| world.ends.iter().all(End::is_settled))?;
        self.check_memory()?;
        self.check_deliveries()?;
        self.check_pools()?;
        self.teardown()?;
        self.silence()
    }

    /// Advances until `done`.
    fn settle_down(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Step {
        let limit = self.now + LIVENESS;
        self.ends.iter_mut().for_each(|end| end.act_at = Some(self.now));
        while !done(self) {
            let waits = self.ends.iter().position(|end| !end.is_settled());
            require!(
                self.now < limit && self.advance(limit)?,
                "{what} never ends: {:?}",
                waits.map(|end| (end, self.ends[end].describe()))
            );
        }
        Ok(())
    }

    fn teardown(&mut self) -> Step {
        self.part = Part::Teardown;
        self.note(|_| "teardown".into());
        for end in 0..self.ends.len() {
            self.begin_close(end)?;
        }
        for host in 0..self.hosts.len() {
            if let Some(listener) = self.hosts[host].listener.take() {
                self.close(host, What::CloseStray, listener)?;
            }
            self.unshare(host)?;
        }
        self.settle_down("a close", |world| world.tokens.is_empty() && world.all_closed())?;
        for host in 0..self.hosts.len() {
            self.close_adapter(host)?;
        }
        Ok(())
    }

    fn all_closed(&self) -> bool {
        self.ends.iter().all(|end| matches!(end.phase, Phase::Closed | Phase::Crashed))
    }

    #[allow(unsafe_code, reason = "the adapter is closed")]
    fn close_adapter(&mut self, host: usize) -> Step {
        let this = &self.hosts[host];
        let Some(provider) = &this.provider else { return Ok(()) };
        let closed = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&closed);
        // SAFETY: closed once, after everything under it.
        unsafe {
            provider.close_adapter(this.adapter.0, move || tell.store(true, Ordering::Relaxed))
        };
        (0..4).try_for_each(|_| self.turn_asking(host))?;
        require!(closed.load(Ordering::Relaxed), "the adapter of host {host} does not close");
        let left = self.hosts[host].provider.as_ref().map_or(0, Stepped::open_objects);
        require!(left == 0, "host {host} has {left} objects left");
        Ok(())
    }

    /// Nothing is open: connection management may linger, and then no timer may be left.
    fn silence(&mut self) -> Step {
        let limit = self.now + LIVENESS;
        while self.advance(limit)? {
            require!(self.now < limit, "a timer runs for ever");
        }
        self.check_memory()
    }

    /// Goes to the next thing that happens, at most until `limit`. False: nothing will happen.
    fn advance(&mut self, limit: u64) -> Step<bool> {
        let turns =
            self.hosts.iter().filter_map(|host| host.turn_at.map(|at| at.max(host.stalled)));
        let acts = self.ends.iter().filter_map(|end| end.act_at);
        let refills = self.hosts.iter().filter_map(|host| host.pool.as_ref()?.act_at);
        let script = self.script.first_key_value().map(|(&(at, _), _)| at);
        let next = turns.chain(acts).chain(refills).chain(script).chain(self.net.next()).min();
        let Some(next) = next else {
            self.now = limit;
            return Ok(false);
        };
        self.now = self.now.max(next.min(limit));
        if let Some((_, clock)) = &self.pcap {
            clock.store(self.now, Ordering::Relaxed);
        }
        while let Some((host, frame)) = self.net.arrive(self.now) {
            self.deliver(host, frame);
        }
        while let Some(entry) = self.script.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let act = entry.remove();
            self.act(act)?;
            // While it waited for objects others were called back, and must hear of it before they act.
            self.handle_events()?;
        }
        for host in 0..self.hosts.len() {
            let this = &self.hosts[host];
            if this.turn_at.is_some_and(|at| at.max(this.stalled) <= self.now) {
                self.turn(host)?;
                self.handle_events()?;
            }
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].pool.as_ref().is_some_and(|pool| pool.is_due(self.now)) {
                self.refill(host)?;
                self.handle_events()?;
            }
        }
        for end in 0..self.ends.len() {
            if self.ends[end].act_at.is_some_and(|at| at <= self.now) {
                self.ends[end].act_at = None;
                self.act_as(end)?;
                self.handle_events()?;
            }
        }
        self.wake_hosts();
        require!(self.report.turns < TURNS_MAX, "no end after {TURNS_MAX} turns");
        Ok(true)
    }

    fn deliver(&mut self, host: usize, frame: Vec<u8>) {
        let this = &mut self.hosts[host];
        if this.provider.is_none() {
            return;
        }
        let mut port = lock(&this.port);
        if port.inbox.len() < this.inbox_max {
            port.inbox.push_back(frame);
            drop(port);
            this.turn_at = Some(this.turn_at.unwrap_or(self.now).min(self.now));
        }
    }

    /// A consumer's call may have woken a core that sleeps.
    fn wake_hosts(&mut self) {
        for host in &mut self.hosts {
            if host.provider.as_ref().is_some_and(|provider| host.sleeping && provider.is_woken()) {
                host.turn_at = Some(host.turn_at.unwrap_or(self.now).min(self.now));
            }
        }
    }

    /// One turn of a host's provider, and what came of it.
    pub(crate) fn turn(&mut self, host: usize) -> Step {
        let this = &mut self.hosts[host];
        let Some(provider) = &mut this.provider else {
            this.turn_at = None;
            return Ok(());
        };
        self.report.turns += 1;
        let clock = self.now + this.ahead;
        let has_mail = {
            let mut port = lock(&this.port);
            port.room = this.room;
            !port.inbox.is_empty()
        };
        if this.sleeping && (provider.is_woken() || has_mail) {
            provider.announce_sleep(false);
            this.sleeping = false;
        }
        let (turn, allocations) = counted(|| provider.poll(Instant::from_nanos(clock)));
        let (crossed, lacked) = {
            let mut port = lock(&this.port);
            (std::mem::take(&mut port.crossed), port.lacked)
        };
        this.turn_at = if turn.busy || lacked {
            Some(self.now + 1000 + u64::from(self.rng.below(2000)))
        } else if this.sleeping {
            let next = turn.next.map(|next| next.as_nanos().saturating_sub(this.ahead));
            next.map(|next| next.max(self.now + 1))
        } else {
            this.sleeping = true;
            provider.announce_sleep(true);
            Some(self.now)
        };
        if this.sleeping && (turn.busy || lacked) {
            this.sleeping = false;
            provider.announce_sleep(false);
        }
        let only_data = crossed.iter().all(Crossing::is_data);
        self.cross(host, clock, crossed)?;
        self.sort_events()?;
        let quiet = only_data && !self.asking && self.is_quiet(host);
        require!(
            !quiet || allocations == 0,
            "host {host}: {allocations} allocations in a turn with nothing but data"
        );
        self.report.quiet += u64::from(quiet);
        Ok(())
    }

    /// Nothing is being created, connected or closed on a host, as far as can be seen: what it does
    /// with itself cannot. A CQ that overruns takes others with it, and is not data.
    fn is_quiet(&self, host: usize) -> bool {
        let steady = |end: &End| end.host != host || end.to != Some(host) && !end.flow.tiny_cq;
        let of_host = |&(owner, what): &(usize, What)| match what.is_of_host() {
            true => owner == host,
            false => self.ends[owner].host == host,
        };
        let told = |event: &Event| matches!(event, Event::Notified(..) | Event::Low(..));
        !self.tokens.values().any(of_host)
            && self.events.iter().all(told)
            && self.ends.iter().all(steady)
    }

    fn cross(&mut self, host: usize, clock: u64, crossed: Vec<Crossing>) -> Step {
        let mtu = self.hosts[host].mtu;
        for crossing in crossed {
            match crossing {
                Crossing::Taken(frame) => self.watch.taken(clock, &frame),
                Crossing::Sent(frame) => {
                    require!(frame.len() <= mtu + 14, "host {host} exceeds its MTU");
                    self.watch.sent(clock, &frame)?;
                    self.report.frames += 1;
                    (self.now, host, &frame).hash(&mut self.hasher);
                    self.net.send(self.now, host, &frame);
                }
            }
        }
        Ok(())
    }

    /// Keeps what somebody waits for apart from what consumers will look at.
    fn sort_events(&mut self) -> Step {
        while let Some(event) = ndk::next_event() {
            match event {
                Event::Created(token, result) => {
                    require!(self.created.insert(token, result).is_none(), "created twice");
                }
                Event::Requested(token, status)
                    if matches!(self.tokens.get(&token), Some((_, What::Awaited))) =>
                {
                    self.tokens.remove(&token);
                    self.ended.insert(token, status);
                }
                event => self.events.push_back(event),
            }
        }
        Ok(())
    }

    pub(crate) fn handle_events(&mut self) -> Step {
        while let Some(event) = self.events.pop_front() {
            self.note(|_| format!("{event:x?}"));
            self.handle_event(event)?;
        }
        Ok(())
    }

    pub(crate) const fn did(&mut self, deed: Deed) {
        self.report.deeds[deed as usize] += 1;
    }

    /// Mixes something into the trace.
    pub(crate) fn mark(&mut self, what: &impl Hash) {
        (self.now, what).hash(&mut self.hasher);
    }
}
