//! Goal: whatever a consumer does within the contract, and misuse that has a status, from several
//! threads and from inside its callbacks, over a link that loses and damages frames: every request
//! ends exactly once, every close ends, and nothing is left.
//! Method: two threads call the tables of two hosts at random: every kind of object in several adapter
//! instances, posts of every kind with any flags. They close things in any order, for each other too.
//! `STRESS_SECONDS` makes it longer, `STRESS_SEED` chooses the calls (not how the threads meet).
//!
//! Under AddressSanitizer, with the contexts of callbacks leaked on purpose:
//! ```sh
//! STRESS_SECONDS=600 ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address \
//!     cargo +nightly test -p tests --test stress \
//!     --target x86_64-unknown-linux-gnu --target-dir target/asan -- --nocapture
//! ```
#![allow(unsafe_code, reason = "calls through the tables")]

mod actor;
mod connections;
mod posts;

use actor::{Actor, Named, pick_pd};
use connections::{Form, ask};
use driver::abi::*;
use ndk_consumer::{Adapter, Buffer, Lam, Remote};
use netadapter_glue::Edge;
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::memory::{MemoryConfig, MemoryEdge, pair};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tests::call;
use tests::kit::raw::{Left, Memory, Object, Post, QpSize, Then, request, start, wait};
use tests::kit::{ADDRESSES, Net, PATIENCE, PORT};
use tests::rng::Rng;

/// Objects of one kind that a thread has open, at most.
const MOST: usize = 12;
/// Calls of a thread for every kind of request to succeed, and more until [`PATIENCE`] is over.
const CALLS_MAX: u64 = 500_000;
/// Buffers, which every registration and mapping uses a part of.
const BUFFERS: usize = 4;
const BUFFER: usize = 32_768;

/// For what ends a connection, so that there is time for something else too.
fn seldom(rng: &mut Rng) -> bool {
    rng.one_in(2048)
}

/// A connector that a thread or a callback closes: whoever takes it.
type Slot = Arc<Mutex<Option<Object<NDK_CONNECTOR>>>>;

/// A connector and the QP that it may be using.
struct Pair {
    /// Where it is, and where its peer is.
    hosts: [usize; 2],
    connector: Slot,
    qp: Object<NDK_QP>,
    since: Instant,
}

/// What the callbacks of a host and the threads share.
struct Shared {
    /// QPs for accepts.
    pool: Mutex<Vec<Object<NDK_QP>>>,
    /// What the callbacks leave to the threads.
    left: Mutex<Vec<Pair>>,
    /// Closes and requests whose end is awaited.
    closes: Mutex<Vec<Receiver<()>>>,
    requests: Mutex<Vec<Receiver<NTSTATUS>>>,
    /// Closes, requests, and requests that succeeded, among those that have ended.
    settled: [AtomicU64; 3],
    /// Closes that either thread may do.
    handed: Mutex<Vec<Close>>,
    ended: Ended,
    buffers: Vec<Arc<Buffer>>,
    /// A domain on each host that both threads use.
    pds: [Object<NDK_PD>; 2],
    /// The address of the second host, where the listeners are.
    ip: IpAddr,
}

/// Starts a close.
type Close = Box<dyn FnOnce() -> Receiver<()> + Send>;

/// How many requests of each kind ended with which status.
#[derive(Default)]
struct Ended {
    counts: Mutex<BTreeMap<(i32, i32), u64>>,
    /// The kinds that have succeeded: their bits.
    succeeded: AtomicI32,
}

impl Ended {
    fn count(&self, result: &NDK_RESULT_EX) {
        let kind = (result.Type.0, result.Status.0);
        *self.counts.lock().unwrap().entry(kind).or_default() += 1;
        if result.Status.is_success() {
            self.succeeded.fetch_or(result.Type.0, Ordering::Relaxed);
        }
    }

    /// Every kind has succeeded: the calls mean something.
    fn covers_all(&self) -> bool {
        let all = [
            NdkOperationTypeReceiveAndInvalidate,
            NdkOperationTypeSend,
            NdkOperationTypeFastRegister,
            NdkOperationTypeBind,
            NdkOperationTypeInvalidate,
            NdkOperationTypeRead,
            NdkOperationTypeWrite,
        ];
        let all = all.iter().fold(0, |bits, kind| bits | kind.0);
        self.succeeded.load(Ordering::Relaxed) == all
    }

    fn report(&self) {
        for ((kind, status), count) in &*self.counts.lock().unwrap() {
            eprintln!("{count:10} of {kind:#x}: {:?}", NTSTATUS(*status));
        }
    }
}

impl Shared {
    fn new(buffers: Vec<Arc<Buffer>>, pds: [Object<NDK_PD>; 2], ip: IpAddr) -> Self {
        Self {
            pool: Mutex::default(),
            left: Mutex::default(),
            closes: Mutex::default(),
            requests: Mutex::default(),
            settled: Default::default(),
            handed: Mutex::default(),
            ended: Ended::default(),
            buffers,
            pds,
            ip,
        }
    }

    fn close_connector(&self, slot: &Slot) {
        // The guard is not kept: a close takes no lock, but its completion may come at once.
        let connector = slot.lock().unwrap().take();
        if let Some(connector) = connector {
            self.await_close(start(|then| connector.close(then)));
        }
    }

    fn await_close(&self, close: Receiver<()>) {
        self.closes.lock().unwrap().push(close);
    }

    fn await_request(&self, request: Receiver<NTSTATUS>) {
        self.requests.lock().unwrap().push(request);
    }

    /// Forgets what has ended, which it does once.
    fn settle(&self) {
        self.closes.lock().unwrap().retain(|close| {
            let pends = close.try_recv() == Err(TryRecvError::Empty);
            if !pends {
                self.settled[0].fetch_add(1, Ordering::Relaxed);
            }
            pends
        });
        self.requests.lock().unwrap().retain(|request| {
            let status = match request.try_recv() {
                Err(TryRecvError::Empty) => return true,
                ended => ended.expect("a request ends"),
            };
            assert!(request.try_recv().is_err(), "and once");
            self.settled[1].fetch_add(1, Ordering::Relaxed);
            self.settled[2].fetch_add(status.is_success().into(), Ordering::Relaxed);
            false
        });
    }

    /// Does one of the closes that were left to whom it may concern.
    fn close_handed(&self, rng: &mut Rng) {
        let close = rng.take(&mut self.handed.lock().unwrap());
        if let Some(close) = close {
            self.await_close(close());
        }
    }

    /// A disconnect event that closes its connector, or does nothing.
    fn event(self: &Arc<Self>, slot: &Slot, closes: bool) -> Box<dyn Fn() + Send + Sync> {
        let (shared, slot) = (Arc::clone(self), Arc::clone(slot));
        Box::new(move || {
            if closes {
                shared.close_connector(&slot);
            }
        })
    }

    /// An incoming connection, inside the connect event.
    fn incoming(self: &Arc<Self>, host: usize, connector: Object<NDK_CONNECTOR>, rng: &mut Rng) {
        let slot: Slot = Arc::new(Mutex::new(Some(connector)));
        let qp = self.pool.lock().unwrap().pop();
        match (rng.below(8), qp) {
            (0, qp) => {
                self.pool.lock().unwrap().extend(qp);
                self.close_connector(&slot);
            }
            (1, qp) => {
                self.pool.lock().unwrap().extend(qp);
                let _rejected = connector.reject();
                self.close_connector(&slot);
            }
            (_, None) => self.close_connector(&slot),
            (_, Some(qp)) => {
                let event = self.event(&slot, rng.one_in(2));
                let peer = usize::from(ask(connector).is_some_and(|peer| peer.ip() == self.ip));
                self.await_request(Form::any(rng).accept(connector, qp, event));
                let hosts = [host, peer];
                self.left.lock().unwrap().push(Pair {
                    hosts,
                    connector: slot,
                    qp,
                    since: Instant::now(),
                });
            }
        }
    }
}

/// Closes what the callbacks left, until nothing more comes.
fn close_rest(shared: &Shared) {
    for pair in std::mem::take(&mut *shared.left.lock().unwrap()) {
        shared.close_connector(&pair.connector);
        shared.await_close(start(|then| pair.qp.close(then)));
    }
    for qp in std::mem::take(&mut *shared.pool.lock().unwrap()) {
        shared.await_close(start(|then| qp.close(then)));
    }
    for close in std::mem::take(&mut *shared.handed.lock().unwrap()) {
        shared.await_close(close());
    }
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn faulty(edge: MemoryEdge, seed: u64) -> Box<FaultInjector<MemoryEdge>> {
    let faults = Faults {
        seed,
        loss: 0.01,
        duplicate: 0.01,
        corrupt: 0.01,
        reorder: 0.02,
        ..Faults::default()
    };
    Box::new(FaultInjector::new(edge, faults))
}

#[test]
fn anything_within_the_contract_ends() {
    let seed = environment("STRESS_SEED", 1);
    let seconds = environment("STRESS_SECONDS", 3);
    eprintln!("STRESS_SEED={seed} STRESS_SECONDS={seconds}");
    let (first, second) = pair(MemoryConfig::default());
    let edges: [Box<dyn Edge + Send>; 2] = [faulty(first, seed), faulty(second, seed + 1)];
    let net = Net::over(edges, ADDRESSES, |_| ());
    let buffers = (0..BUFFERS).map(|_| Arc::new(Buffer::new(BUFFER))).collect();
    let pds = [0, 1].map(|host| wait(|then| net.raw(host).create_pd(then)).unwrap());
    let shared = Arc::new(Shared::new(buffers, pds, net.addresses[1]));
    let end = Instant::now() + Duration::from_secs(seconds);
    let instances = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let (net, shared) = (&net, &shared);
            scope.spawn(move || {
                let mut actor = Actor::new(net, shared, seed ^ (thread << 32));
                let mut calls = 0_u64;
                // A busy machine has had few calls when the time is over, and an idle one has had many before
                // the providers have come to them.
                let late = end + PATIENCE;
                let goes_on = |calls| {
                    let now = Instant::now();
                    let may_wait = now < late || calls < CALLS_MAX;
                    now < end || (may_wait && !shared.ended.covers_all())
                };
                while goes_on(calls) {
                    actor.act();
                    // On a small machine the providers have to come to it, too.
                    std::thread::yield_now();
                    calls += 1;
                    if calls.is_multiple_of(1000) {
                        shared.settle();
                    }
                }
                eprintln!("{calls} calls");
                actor.close_all()
            })
        });
        threads.map(|thread| thread.join().expect("the thread ends"))
    });
    // No connect event comes from here on, but one may be running.
    for host in [0, 1] {
        let pd = wait(|then| net.raw(host).create_pd(then)).unwrap();
        wait(|then| pd.close(then));
    }
    close_rest(&shared);
    for pd in shared.pds {
        shared.await_close(start(|then| pd.close(then)));
    }
    for close in &*shared.closes.lock().unwrap() {
        close.recv_timeout(PATIENCE).expect("every close ends");
        shared.settled[0].fetch_add(1, Ordering::Relaxed);
    }
    shared.closes.lock().unwrap().clear();
    drop(instances);
    net.finish();
    shared.settle();
    assert!(shared.requests.lock().unwrap().is_empty(), "every request ends");
    let [closes, requests, successful] = &shared.settled;
    eprintln!("{closes:?} closes, {requests:?} requests, {successful:?} successful");
    shared.ended.report();
    assert!(shared.ended.covers_all(), "every kind of request succeeds at times");
}
