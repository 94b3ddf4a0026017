//! Goal: consumers shaped like the real ones work over a link that loses, repeats, reorders and
//! damages frames: every byte is right, none beside it is touched, every request ends exactly once,
//! and nothing is left.
//! Method: a model of Microsoft's kernel sample, also with what its tools NDKPing and NDKPerf ask for, and a model of
//! SMB Direct, each for 10,000 transfers of random kind, length and place. Each transfer has memory of its own among guard bytes.
//! `MODELS_SEED` chooses them and the fates of the frames.
#![allow(unsafe_code, reason = "calls through the tables")]

mod profile;
mod sample;
mod smb;

use driver::abi::*;
use ndk_consumer::{Adapter, Buffer, Lam};
use netadapter_glue::Edge;
use netadapter_glue::fault::{FaultCounters, FaultInjector, Faults};
use netadapter_glue::memory::{MemoryConfig, MemoryEdge, pair};
use rocev2::wire::{Aeth, Ext, Packet, Syndrome};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use tests::kit::raw::{Created, Notify, Object, QpSize, wait};
use tests::kit::{ADDRESSES, Net, PATIENCE};
use tests::rng::Rng;

const PORT: u16 = 445;
/// Transfers of one test.
const TRANSFERS: usize = 10_000;
/// Connections that share them.
const SOCKETS: usize = 2;
/// What memory holds where no transfer may write.
const GUARD: u8 = 0xa5;
/// Bytes of it on either side, at least.
const GUARD_LEN: usize = 32;

fn seed() -> u64 {
    let seed = std::env::var("MODELS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    eprintln!("MODELS_SEED={seed}");
    seed
}

/// The length of a transfer: mostly short; one of `long_of` has up to `long_len` bytes.
fn length(rng: &mut Rng, long_of: usize, long_len: usize) -> usize {
    1 + if rng.one_in(long_of) { rng.below(long_len) } else { rng.below(8 << 10) }
}

/// What transfer `id` carries.
fn pattern(id: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(id);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// A number that somebody may wait for.
#[derive(Default)]
struct Counter(Mutex<u64>, Condvar);

impl Counter {
    fn add_one(&self) {
        *self.0.lock().unwrap() += 1;
        self.1.notify_all();
    }

    fn count(&self) -> u64 {
        *self.0.lock().unwrap()
    }

    fn wait_for_one(&self) {
        let count = self.0.lock().unwrap();
        let (_count, late) =
            self.1.wait_timeout_while(count, PATIENCE, |count| *count == 0).unwrap();
        assert!(!late.timed_out(), "nobody was refused for want of receives");
    }
}

/// Two hosts on a bad link.
struct Faulty {
    net: Net,
    faults: [Arc<FaultCounters>; 2],
    /// RNR NAKs that each has sent.
    rnr_naks: [Arc<Counter>; 2],
}

impl Faulty {
    fn new(seed: u64) -> Self {
        let (first, second) = pair(MemoryConfig::default());
        let (a, b) = (Self::link(first, seed), Self::link(second, seed + 1));
        let net = Net::over([a.0, b.0], ADDRESSES, |_| ());
        Self { net, faults: [a.1, b.1], rnr_naks: [a.2, b.2] }
    }

    fn link(
        edge: MemoryEdge,
        seed: u64,
    ) -> (Box<dyn Edge + Send>, Arc<FaultCounters>, Arc<Counter>) {
        let faults = Faults {
            seed,
            loss: 0.01,
            duplicate: 0.01,
            corrupt: 0.01,
            reorder: 0.02,
            ..Faults::default()
        };
        let rnr_naks = Arc::<Counter>::default();
        let count = Arc::clone(&rnr_naks);
        let edge = FaultInjector::new(edge, faults).with_filter(move |frame| {
            let ext = Packet::parse(frame).map(|packet| packet.ext);
            if matches!(ext, Ok(Ext::Aeth(Aeth { syndrome: Syndrome::RnrNak(_), .. }))) {
                count.add_one();
            }
            true
        });
        let counters = edge.counters();
        (Box::new(edge), counters, rnr_naks)
    }

    fn open(&self, host: usize) -> Arc<Adapter> {
        self.net.open(host)
    }

    /// Nothing is left, and the link was bad indeed.
    fn finish(self) {
        self.net.finish();
        for faults in &self.faults {
            eprintln!(
                "{} frames: {} lost, {} duplicated, {} corrupted, {} reordered",
                faults.frames(),
                faults.lost(),
                faults.duplicated(),
                faults.corrupted(),
                faults.reordered()
            );
            for struck in
                [faults.lost(), faults.duplicated(), faults.corrupted(), faults.reordered()]
            {
                assert!(struck > 20, "every fault strikes often");
            }
        }
    }
}

/// Runs clients and servers, whose listener has an adapter instance of its own.
fn connections(
    client: fn(&Faulty, Range<u64>, u64),
    server: fn(&Faulty, Object<NDK_CONNECTOR>, u64),
) -> Faulty {
    let seed = seed();
    let net = Faulty::new(seed);
    let adapter = net.open(1);
    let (sender, incoming) = channel();
    let event = Box::new(move |connector| sender.send(connector).expect("somebody accepts"));
    let listener = wait(|then| Object(adapter.as_ptr()).create_listener(event, then)).unwrap();
    assert_eq!(wait(|then| listener.listen(at(1, PORT), then)), STATUS_SUCCESS);
    std::thread::scope(|scope| {
        let net = &net;
        let count = (TRANSFERS / SOCKETS) as u64;
        for number in 0..SOCKETS as u64 {
            let ids = number * count..(number + 1) * count;
            scope.spawn(move || client(net, ids, seed ^ (number + 1) << 8));
        }
        for number in 0..SOCKETS as u64 {
            let connector = incoming.recv_timeout(PATIENCE).expect("a connect event");
            scope.spawn(move || server(net, connector, seed ^ (number + 1) << 16));
        }
    });
    wait(|then| listener.close(then));
    drop(adapter);
    net
}

fn at(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ADDRESSES[host].parse().unwrap(), port)
}

/// Memory of one transfer, `len` bytes among guards, named by logical addresses.
struct Area {
    lam: Lam,
    start: usize,
    len: usize,
}

impl Area {
    /// From some place in a page on.
    fn new(adapter: &Arc<Adapter>, rng: &mut Rng, len: usize) -> Self {
        let start = GUARD_LEN + rng.below(PAGE_SIZE);
        let buffer = Arc::new(Buffer::new(start + len + GUARD_LEN));
        buffer.write(0, &vec![GUARD; buffer.len()]);
        let lam = adapter.build_lam(buffer, start..start + len).unwrap();
        Self { lam, start, len }
    }

    fn with(adapter: &Arc<Adapter>, rng: &mut Rng, bytes: &[u8]) -> Self {
        let area = Self::new(adapter, rng, bytes.len());
        area.lam.buffer().write(area.start, bytes);
        area
    }

    fn bytes(&self, part: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; part.len()];
        self.lam.buffer().read(self.start + part.start, &mut bytes);
        bytes
    }

    /// Nothing around it was touched, and it holds `expected`.
    fn check(&self, what: &str, expected: &[u8]) {
        let mut all = vec![0; self.lam.buffer().len()];
        self.lam.buffer().read(0, &mut all);
        let (before, rest) = all.split_at(self.start);
        let (inside, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "{what}: a guard byte");
        assert!(inside == expected, "{what}: wrong bytes");
    }

    /// Elements over a part of it. Neighbouring pages are merged.
    fn sgl(&self, token: u32, part: Range<usize>) -> Vec<NDK_SGE> {
        const MOST: u64 = 2 << 20;
        let fbo = self.lam.fbo() as usize;
        let (first, last) = (fbo + part.start, fbo + part.end);
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (index, page) in self.lam.pages().iter().enumerate() {
            let from = first.clamp(index * PAGE_SIZE, (index + 1) * PAGE_SIZE);
            let to = last.clamp(index * PAGE_SIZE, (index + 1) * PAGE_SIZE);
            let address = page.QuadPart.cast_unsigned() + (from - index * PAGE_SIZE) as u64;
            let len = (to - from) as u64;
            match merged.last_mut() {
                _ if len == 0 => {}
                Some(last) if last.0 + last.1 == address && last.1 + len <= MOST => last.1 += len,
                _ => merged.push((address, len)),
            }
        }
        let sge = |&(address, len): &(u64, u64)| {
            let address = NDK_LOGICAL_ADDRESS { QuadPart: address.cast_signed() };
            NDK_SGE::from_logical(address, len as u32, token)
        };
        merged.iter().map(sge).collect()
    }

    fn whole(&self, token: u32) -> Vec<NDK_SGE> {
        self.sgl(token, 0..self.len)
    }
}

/// A completion.
#[derive(Clone, Copy, Debug)]
struct Done {
    id: usize,
    status: NTSTATUS,
    bytes: usize,
    invalidated: Option<u32>,
}

impl From<&NDK_RESULT> for Done {
    fn from(result: &NDK_RESULT) -> Self {
        Self {
            id: result.RequestContext.addr(),
            status: result.Status,
            bytes: result.BytesTransferred as usize,
            invalidated: None,
        }
    }
}

impl From<&NDK_RESULT_EX> for Done {
    fn from(result: &NDK_RESULT_EX) -> Self {
        let invalidated = (result.Type == NdkOperationTypeReceiveAndInvalidate)
            .then_some(result.TypeSpecificCompletionOutput as u32);
        Self {
            id: result.RequestContext.addr(),
            status: result.Status,
            bytes: result.BytesTransferred as usize,
            invalidated,
        }
    }
}

/// What a consumer makes for one connection, in an adapter instance of its own.
struct Socket {
    qp: Object<NDK_QP>,
    /// For receives, for initiator requests.
    cqs: [Object<NDK_CQ>; 2],
    pd: Object<NDK_PD>,
    /// For local buffers.
    token: u32,
    adapter: Arc<Adapter>,
}

impl Socket {
    fn new(
        adapter: Arc<Adapter>,
        size: QpSize,
        notify: [&dyn Fn(Object<NDK_CQ>) -> Notify; 2],
    ) -> Self {
        let object = Object(adapter.as_ptr());
        let pd = wait(|then| object.create_pd(then)).unwrap();
        let cqs = [0, 1].map(|which| create_cq(object, size.depths[which], notify[which]).unwrap());
        for cq in cqs {
            // Every notification at once, or after 20 us.
            assert_eq!(cq.moderate(20, u32::MAX), STATUS_SUCCESS);
            cq.arm();
        }
        let qp = pd.create_qp_of(cqs, size).unwrap();
        Self { qp, cqs, pd, token: pd.privileged_token(), adapter }
    }

    fn close(self, connector: Object<NDK_CONNECTOR>, regions: &[Object<NDK_MR>]) {
        wait(|then| connector.close(then));
        wait(|then| self.qp.close(then));
        for cq in self.cqs {
            wait(|then| cq.close(then));
        }
        for region in regions {
            wait(|then| region.close(then));
        }
        wait(|then| self.pd.close(then));
    }
}

/// A CQ whose notification knows it. It is not armed yet.
fn create_cq(
    adapter: Object<NDK_ADAPTER>,
    depth: u32,
    notify: &dyn Fn(Object<NDK_CQ>) -> Notify,
) -> Created<NDK_CQ> {
    let own: Arc<OnceLock<Notify>> = Arc::default();
    let seen = Arc::clone(&own);
    let callback = Box::new(move |status| (seen.get().expect("armed later"))(status));
    let cq = wait(|then| adapter.create_cq(depth, callback, then))?;
    assert!(own.set(notify(cq)).is_ok());
    Ok(cq)
}
