//! Goal: after it is set up, the data path allocates nothing: not in the posting thread, not in the
//! poll threads of either side.
//! Method: an allocator that counts, and one test in the process, so that whatever is counted in the
//! window is the data path's.
#![allow(unsafe_code, reason = "an allocator")]

use driver::abi::*;
use netadapter_glue::memory::{MemoryConfig, pair};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;
use tests::raw::{Host, Memory, Object, PATIENCE, start, wait};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PORT: u16 = 7174;
/// Bytes of each message: several packets.
const LEN: u32 = 10_000;
const DEPTH: u32 = 16;

#[derive(Clone, Copy)]
struct Side {
    cq: Object<NDK_CQ>,
    pd: Object<NDK_PD>,
    qp: Object<NDK_QP>,
    memory: Memory,
}

impl Side {
    fn new(host: &Host) -> Self {
        let cq = wait(|then| host.adapter.create_cq(256, Box::new(|_| ()), then)).unwrap();
        let pd = wait(|then| host.adapter.create_pd(then)).unwrap();
        let qp = wait(|then| pd.create_qp(cq, 2 * DEPTH, then)).unwrap();
        Self { cq, pd, qp, memory: Memory::new(pd, 1 << 20) }
    }

    /// Takes `count` completions, each of which succeeded.
    fn complete(&self, count: usize) {
        let mut results = [NDK_RESULT::EMPTY; 8];
        let mut taken = 0;
        let begin = Instant::now();
        while taken < count {
            self.cq.arm();
            let some = self.cq.results(&mut results);
            for result in &results[..some] {
                assert_eq!(result.Status, STATUS_SUCCESS);
            }
            taken += some;
            assert!(begin.elapsed() < PATIENCE, "{taken} of {count} completions");
        }
    }

    fn close(self) {
        wait(|then| self.qp.close(then));
        wait(|then| self.memory.mr.close(then));
        wait(|then| self.cq.close(then));
        wait(|then| self.pd.close(then));
    }
}

/// One round: SENDs, WRITEs and READs, as many as the queue takes.
fn exchange(from: &Side, to: &Side) {
    // Three kinds of request, within the queue.
    let third = DEPTH / 2;
    let at = |index: u32| u64::from(index) * u64::from(LEN);
    for index in 0..third {
        let sge = [to.memory.sge(at(index), LEN)];
        assert_eq!(to.qp.receive(index as usize, &sge), STATUS_SUCCESS);
    }
    for index in 0..third {
        let sge = [from.memory.sge(at(index), LEN)];
        let (address, token) = (to.memory.address + at(index + third), to.memory.token);
        assert_eq!(from.qp.send(0, &sge), STATUS_SUCCESS);
        assert_eq!(from.qp.write(0, &sge, address, token), STATUS_SUCCESS);
        assert_eq!(from.qp.read(0, &sge, address, token), STATUS_SUCCESS);
    }
    from.complete(3 * third as usize);
    to.complete(third as usize);
}

#[test]
fn the_data_path_does_not_allocate() {
    let (first, second) = pair(MemoryConfig::default());
    let hosts = [Host::new(Box::new(first), "10.0.0.1"), Host::new(Box::new(second), "10.0.0.2")];
    let sides = [Side::new(&hosts[0]), Side::new(&hosts[1])];
    let (sender, incoming) = mpsc::channel();
    let event = Box::new(move |connector| sender.send(connector).unwrap());
    let listener = wait(|then| hosts[1].adapter.create_listener(event, then)).unwrap();
    assert_eq!(wait(|then| listener.listen(hosts[1].at(PORT), then)), STATUS_SUCCESS);
    let active = wait(|then| hosts[0].adapter.create_connector(then)).unwrap();
    let (local, remote) = (hosts[0].at(0), hosts[1].at(PORT));
    let connected = start(|then| active.connect(sides[0].qp, local, remote, then));
    let passive = incoming.recv_timeout(PATIENCE).expect("a connect event");
    let accepted = start(|then| passive.accept(sides[1].qp, Box::new(|| ()), then));
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    assert_eq!(wait(|then| active.complete_connect(Box::new(|| ()), then)), STATUS_SUCCESS);
    assert_eq!(accepted.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));

    for _ in 0..4 {
        exchange(&sides[0], &sides[1]);
        exchange(&sides[1], &sides[0]);
    }
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for _ in 0..100 {
        exchange(&sides[0], &sides[1]);
        exchange(&sides[1], &sides[0]);
    }
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0);

    for connector in [active, passive] {
        wait(|then| connector.close(then));
    }
    wait(|then| listener.close(then));
    sides.into_iter().for_each(Side::close);
    hosts.into_iter().for_each(Host::close);
}
