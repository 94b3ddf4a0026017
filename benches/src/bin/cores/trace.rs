//! The program whose memory accesses are traced: the lanes take turns, and tell the trace which of them runs.

use super::rig::{Lane, World};
use super::wires::Wire;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Connections of all cores.
const CONNECTIONS: usize = 64;
/// Rounds in which every connection is heard before the trace counts.
const WARM: usize = 64;

/// Between two turns: many times what a thread takes until it waits.
const SETTLE: Duration = Duration::from_millis(2);

/// Before the address of the marks, in the trace.
pub(crate) const SAID: &str = "marks ";

/// A byte whose stores the trace knows: in a page of its own, one for each lane, and the first for none.
#[repr(align(4096))]
struct Marks([AtomicU8; 64]);

static MARKS: Marks = Marks([const { AtomicU8::new(0) }; 64]);

/// Sets so many cores a side up, says where the marks are, and exchanges so many messages. Each lane has a thread, for a stack of its
/// own; one of them runs at a time.
pub(crate) fn run(cores: usize, messages: usize) {
    let edges = Wire::Memory.edges(cores).expect("memory joins them");
    let mut world = World::new(edges, CONNECTIONS / cores);
    let lanes = world.take_lanes();
    let quiet = world.quiet();
    let rounds = messages.div_ceil(32 * cores);
    let (turns, waits): (Vec<_>, Vec<_>) = (0..cores).map(|_| mpsc::sync_channel(1)).unzip();
    turns[0].send(()).expect("the first lane waits");
    let lanes = thread::scope(|scope| {
        let exchange = |(core, (mut lane, turn)): (usize, (Lane, mpsc::Receiver<()>))| {
            let next = turns[(core + 1) % cores].clone();
            scope.spawn(move || {
                for round in 0..WARM + rounds {
                    turn.recv().expect("the lane before goes on");
                    // Until its thread waits in turn: the trace would take what that still does for this lane's.
                    thread::sleep(SETTLE);
                    if round == WARM - 1 && core == 0 {
                        say();
                    }
                    let counts = round >= WARM;
                    mark(if counts { 1 + core } else { 0 });
                    black_box(lane.exchange());
                    mark(0);
                    // After the last round nobody waits.
                    let _ = next.send(());
                }
                lane
            })
        };
        let threads: Vec<_> = lanes.into_iter().zip(waits).enumerate().map(exchange).collect();
        threads.into_iter().map(|thread| thread.join().expect("no message failed")).collect()
    });
    drop(quiet);
    world.give_back(lanes);
}

/// Says where the marks are, among the accesses, and well before the first of those that count.
fn say() {
    let said = format!("\n{SAID}{:x}\n", MARKS.0.as_ptr().addr());
    // At once: valgrind writes to the same file.
    std::io::stderr().write_all(said.as_bytes()).expect("valgrind listens");
}

fn mark(which: usize) {
    MARKS.0[which].store(1, Ordering::SeqCst);
}
