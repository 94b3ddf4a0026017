//! A scheduler that preempts, decided by a seed: the image's code runs on one thread at a time, and each call of a
//! stand-in is a place where another one may go on.
//!
//! What only works because two threads never meet there fails for some seed; nothing that is right can fail. The seed
//! decides at each place; when a timer fires and a wait ends is the machine's, so a seed replays most of a run, not all.
//! Consumers of NDK call the image without the turn.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// At one place of so many the seed says who goes on; at the others whoever comes first, which is mostly the same thread.
const ODDS: u64 = 3;
/// A thread that was chosen and does not come for so long is blocked in a stand-in.
const PATIENCE: Duration = Duration::from_millis(2);
/// So often the turn is awaited; then its holder waits for another thread's code, and it is taken away.
const LOOKS: u32 = 50;

static IS_ON: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);
static TURN: Mutex<Turn> = Mutex::new(Turn { holder: None, next: None, ready: Vec::new() });
static NEWS: Condvar = Condvar::new();

/// The one right to run code of the image.
struct Turn {
    holder: Option<u64>,
    /// The thread that goes on; any, if it is `None`.
    next: Option<u64>,
    /// The threads that run code of the image, but for those that are blocked in a stand-in.
    ready: Vec<u64>,
}

thread_local! {
    /// The thread's number, and the state of its own numbers at random.
    static SELF: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Begins, with a seed.
pub fn start(seed: u64) {
    SEED.store(seed, Ordering::SeqCst);
    IS_ON.store(true, Ordering::SeqCst);
}

/// Runs code of the image, in turn.
pub fn inside<R>(f: impl FnOnce() -> R) -> R {
    if !IS_ON.load(Ordering::Relaxed) || IS_INSIDE.get() {
        return f();
    }
    take();
    let result = f();
    give(false);
    result
}

/// Runs a stand-in that the image has called: a place where another thread may go on.
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    if !IS_INSIDE.get() {
        return f();
    }
    give(true);
    let result = f();
    take();
    result
}

fn turn() -> MutexGuard<'static, Turn> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take() {
    let (own, _) = draw();
    let mut turn = turn();
    turn.is_ready(own, true);
    for _ in 0..LOOKS {
        if turn.holder.is_none() && turn.next.is_none_or(|next| next == own) {
            break;
        }
        let (after, wait) =
            NEWS.wait_timeout(turn, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        turn = after;
        if let (true, None, Some(next)) = (wait.timed_out(), turn.holder, turn.next) {
            turn.is_ready(next, next == own);
        }
    }
    (turn.holder, turn.next) = (Some(own), None);
    IS_INSIDE.set(true);
}

/// Gives the turn away, for a call of a stand-in or for good.
fn give(is_call: bool) {
    IS_INSIDE.set(false);
    let (own, random) = draw();
    let mut turn = turn();
    turn.is_ready(own, is_call);
    // It may have been taken from us.
    if turn.holder == Some(own) {
        let chosen = (random >> 32) as usize % turn.ready.len().max(1);
        let is_place = random.is_multiple_of(ODDS);
        turn.holder = None;
        turn.next = turn.ready.get(chosen).filter(|_| is_place).copied();
    }
    NEWS.notify_all();
}

/// The thread is about to wait, in a stand-in.
pub fn blocks() {
    if let (true, Some((own, _))) = (IS_ON.load(Ordering::Relaxed), SELF.get()) {
        turn().is_ready(own, false);
        NEWS.notify_all();
    }
}

impl Turn {
    fn is_ready(&mut self, thread: u64, is_ready: bool) {
        self.ready.retain(|other| *other != thread);
        if is_ready {
            self.ready.push(thread);
            self.ready.sort_unstable();
        } else if self.next == Some(thread) {
            self.next = None;
        }
    }
}

/// The thread's number and its next number at random, which depends on the seed and the thread alone (splitmix64).
fn draw() -> (u64, u64) {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    let (own, state) = SELF.get().unwrap_or_else(|| {
        let own = THREADS.fetch_add(1, Ordering::SeqCst);
        (own, SEED.load(Ordering::SeqCst) ^ own << 40)
    });
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    SELF.set(Some((own, state)));
    let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (own, mixed ^ mixed >> 31)
}
