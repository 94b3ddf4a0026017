//! Goal: no safe call of a consumer leads to a race or to memory that is gone, in whatever order it drops its objects.
//! Method: two providers on one thread, stepped by the waits of the consumer: small enough for Miri, which looks for
//! both: `cargo +nightly miri test -p ndk-consumer --test soundness`.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "an opener is a promise about raw pointers")]

use driver::abi::{
    NDK_ADAPTER, NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_RESULT, NDK_VERSION, NTSTATUS, STATUS_SUCCESS,
};
use driver::{ProviderConfig, Stepped};
use ndk_consumer::{
    Adapter, Arm, Buffer, Connector, Cq, FastRegister, Listener, Mr, Opener, Pd, Qp, QpConfig,
    ReadLimits, Rights, Waited,
};
use netadapter_glue::memory::{self, MemoryConfig};
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Virtual time of a turn with work, and of one after which nothing is due.
const BUSY: Duration = Duration::from_micros(1);
const IDLE: Duration = Duration::from_millis(1);
/// A wait that takes more turns does not end.
const TURNS: usize = 20_000;

const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
/// A wait is limited by its turns.
const PATIENCE: Duration = Duration::from_secs(3600);
const LEN: usize = 64;

/// Two providers, joined in memory.
struct Pair {
    providers: [Stepped; 2],
    /// Takes a turn of each.
    turn: Turn,
}

type Turn = Box<dyn FnMut(&mut [Stepped; 2]) + Send>;

const fn ip(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host))
}

impl Pair {
    fn new() -> Self {
        let (first, second) = memory::pair(MemoryConfig { depth: 8, ..MemoryConfig::default() });
        let provider = |edge, host| {
            let mut config = ProviderConfig::new(vec![ip(host)]);
            config.limits.reorder_pool = 1 << 16;
            Stepped::new(Box::new(edge), config, [host; 32])
        };
        let providers = [provider(first, 0), provider(second, 1)];
        let mut now = Default::default();
        let turn = move |providers: &mut [Stepped; 2]| {
            let turns = providers.each_mut().map(|provider| provider.poll(now));
            let (soon, later) = (now + BUSY, now + IDLE);
            let next = turns.iter().filter_map(|turn| turn.next).min().unwrap_or(later);
            let busy = turns.iter().any(|turn| turn.busy);
            now = if busy { soon } else { next.max(soon) };
        };
        Self { providers, turn: Box::new(turn) }
    }
}

/// One of the providers, as its consumer sees it.
struct Host {
    pair: Arc<Mutex<Pair>>,
    host: usize,
}

impl Host {
    fn pair(&self) -> MutexGuard<'_, Pair> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns_until(&self, done: &mut dyn FnMut() -> bool) -> bool {
        (0..TURNS).any(|_| {
            let Pair { providers, turn } = &mut *self.pair();
            turn(providers);
            done()
        })
    }
}

// SAFETY: the provider keeps an open adapter valid until it is closed.
unsafe impl Opener for Host {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        self.pair().providers[self.host].open_adapter(version, Default::default())
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let closed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&closed);
        let done = move || told.store(true, Ordering::Release);
        // SAFETY: the caller's promise.
        unsafe { self.pair().providers[self.host].close_adapter(adapter, done) };
        assert!(self.turns_until(&mut || closed.load(Ordering::Acquire)), "the adapter closes");
    }

    fn run_until(&self, _patience: Duration, done: &mut dyn FnMut() -> bool) -> Option<Waited> {
        let ended = done() || self.turns_until(done);
        Some(if ended { Waited::Done } else { Waited::TimedOut })
    }

    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        self.pair().providers[self.host].keep(Box::new(memory));
    }
}

/// One end of a connection.
struct End {
    adapter: Arc<Adapter>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    mr: Arc<Mr>,
    connector: Connector,
}

impl End {
    /// Waits for one completion, which is a success.
    fn complete(&self) {
        let mut results = [NDK_RESULT::EMPTY; 1];
        while self.cq.results(&mut results) == 0 {
            let seen = self.cq.notifications();
            self.cq.arm(Arm::Any);
            if self.cq.results(&mut results) == 1 {
                break;
            }
            assert!(self.cq.wait_notification(seen, PATIENCE).unwrap(), "a completion");
        }
        assert_eq!(results[0].Status, STATUS_SUCCESS);
    }
}

/// Connects two hosts, the active end first.
fn connected() -> ([End; 2], Arc<Listener>) {
    let pair = Arc::new(Mutex::new(Pair::new()));
    let made = [0, 1].map(|host| {
        let adapter = Adapter::open(Arc::new(Host { pair: Arc::clone(&pair), host })).unwrap();
        let (pd, cq) = (adapter.create_pd().unwrap(), adapter.create_cq(8).unwrap());
        let config = QpConfig { receive_depth: 2, initiator_depth: 2, ..QpConfig::default() };
        let qp = pd.create_qp(&cq, &cq, config).unwrap();
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        let mr = pd.register(Buffer::new(LEN), rights).unwrap();
        (adapter, pd, cq, qp, mr)
    });
    let [from, to] = [(0, 0), (1, 7174)].map(|(host, port)| SocketAddr::new(ip(host), port));
    let [near, far] = &made;
    let listener = far.0.listen(to).unwrap();
    let active = near.0.create_connector().unwrap();
    let request = active.connect(&near.3, from, to, LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&far.3, LIMITS, b"");
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    let [near, far] = made;
    let end = |(adapter, pd, cq, qp, mr), connector| End { adapter, pd, cq, qp, mr, connector };
    ([end(near, active), end(far, passive)], listener)
}

#[test]
fn bytes_go_over_and_every_order_of_drops_is_sound() {
    let ([near, far], listener) = connected();
    near.mr.buffer().write(0, &[7; LEN]);
    far.qp.receive(1, &[far.mr.sge(0..LEN)]).unwrap();
    near.qp.send(2, &[near.mr.sge(0..LEN)], 0).unwrap();
    near.complete();
    far.complete();
    assert_eq!(far.mr.buffer().to_vec(0..LEN), [7; LEN]);
    near.mr.buffer().write(0, &[8; 9]);
    near.qp.write(3, &[near.mr.sge(0..9)], far.mr.remote(1), 0).unwrap();
    near.complete();
    assert_eq!(far.mr.buffer().load(9), 8);
    // The memory of a posted receive, and of what the peer may WRITE, goes before its objects do.
    far.qp.receive(4, &[far.mr.sge(0..LEN)]).unwrap();
    near.qp.write(5, &[near.mr.sge(0..LEN)], far.mr.remote(0), 0).unwrap();
    let End { adapter, pd, cq, qp, mr, connector } = far;
    drop((adapter, pd, mr));
    drop(near);
    drop((listener, qp, cq, connector));
}

/// A region that is registered names the pages of a mapping; the mapping and its buffer are dropped, and the peer WRITEs.
#[test]
fn the_memory_of_a_released_mapping_outlives_a_write_of_the_peer() {
    let ([near, far], _listener) = connected();
    let buffer = Arc::new(Buffer::new(LEN));
    let frmr = far.pd.create_frmr(1, true).unwrap();
    let lam = far.adapter.build_lam(Arc::clone(&buffer), 0..LEN).unwrap();
    let base = buffer.as_ptr().addr() as u64;
    let pages = lam.pages();
    let what = FastRegister { pages: &pages, fbo: lam.fbo(), len: LEN, base };
    far.qp.fast_register(1, &frmr, what, NDK_OP_FLAG_ALLOW_REMOTE_WRITE).unwrap();
    far.complete();
    let remote = frmr.remote(base);
    near.qp.write(2, &[near.mr.sge(0..LEN)], remote, 0).unwrap();
    near.complete();
    // On its way while the memory goes.
    near.qp.write(3, &[near.mr.sge(0..LEN)], remote, 0).unwrap();
    drop((lam, buffer));
    // It is refused, or came first; either ends the request.
    let mut results = [NDK_RESULT::EMPTY; 1];
    let seen = near.cq.notifications();
    near.cq.arm(Arm::Any);
    if near.cq.results(&mut results) == 0 {
        let _ = near.cq.wait_notification(seen, PATIENCE);
    }
}
