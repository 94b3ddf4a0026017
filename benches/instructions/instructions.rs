//! Instructions of a message, from the consumer's post to its completion, through the NDK tables: two
//! providers and their link on one thread, both ends counted.
//!
//! `cargo bench -p instructions` counts them under valgrind's callgrind, whose figures are the
//! same on a busy machine. It needs `valgrind`, and `cargo install gungraun-runner` in the version of `Cargo.lock`.
//! A line counts 1024 messages.
#![allow(
    unsafe_code,
    reason = "the life of a connection is counted without wrappers, which wait for other threads"
)]
#![allow(missing_docs, reason = "the macros of gungraun make public items")]

mod baseline;
mod connects;

use connects::Lives;

use ::messages::world::{Kind, MESSAGES, World};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use std::sync::LazyLock;

/// Caches that no machine decides: a level 2 of 2 MiB is the last.
const CACHES: [&str; 1] = ["--LL=2097152,16,64"];

library_benchmark_group!(name = messages; benchmarks = message, life);
main!(library_benchmark_groups = messages);

#[library_benchmark]
#[bench::write_64(args = (Kind::Write, 64), setup = alone, config = at_most(1_155))]
#[bench::write_4096(args = (Kind::Write, 4096), setup = alone, config = at_most(4_667))]
#[bench::write_65536(args = (Kind::Write, 65_536), setup = alone, config = at_most(70_779))]
#[bench::write_64_over_500(args = (500,), setup = over, config = at_most(1_968))]
#[bench::write_64_over_1000(args = (1000,), setup = over, config = at_most(1_990))]
#[bench::write_64_over_10000(args = (10_000,), setup = over, config = at_most(2_049))]
#[bench::send_64(args = (Kind::Send, 64), setup = alone, config = at_most(1_371))]
#[bench::send_4096(args = (Kind::Send, 4096), setup = alone, config = at_most(4_869))]
#[bench::read_64(args = (Kind::Read, 64), setup = alone, config = at_most(2_344))]
#[bench::read_4096(args = (Kind::Read, 4096), setup = alone, config = at_most(5_843))]
fn message(mut world: World) -> World {
    world.exchange(MESSAGES);
    world
}

#[library_benchmark]
#[bench::connects(args = (), setup = Lives::new, config = at_most(91_288))]
fn life(lives: Lives) -> Lives {
    lives.live(MESSAGES);
    lives
}

/// One connection, and packets that travel alone.
fn alone(kind: Kind, size: usize) -> World {
    World::with(kind, size, 1, 1)
}

/// WRITEs of 64 bytes, each over one of so many connections at random.
fn over(connections: usize) -> World {
    World::with(Kind::Write, 64, connections, 1)
}

/// Fails a line that takes over 2 % more than these instructions a message, on the machine of the [`baseline`].
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let limit = instructions * MESSAGES as u64 * 102 / 100;
    let mut callgrind = Callgrind::with_args(CACHES);
    if is_gated() {
        callgrind.hard_limits([(EventKind::Ir, limit)]);
    }
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// Asked once; where the limits mean nothing, it is said.
fn is_gated() -> bool {
    static GATED: LazyLock<bool> = LazyLock::new(|| match baseline::difference() {
        None => true,
        Some(difference) => {
            eprintln!("skipped: the limits of the instructions: {difference}");
            false
        }
    });
    *GATED
}
