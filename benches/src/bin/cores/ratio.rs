//! Two cores of one adapter over two adapters with one core, on the same processors in turns.

use super::rig::{Lane, World};
use super::wires::Wire;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Connections of a core.
const CONNECTIONS: usize = 8;

/// Prints the ratio, of `rounds` the middle one.
pub(crate) fn run(over: Wire, rounds: usize, millis: u64) -> Result<(), String> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err("there is one processor only".into());
    }
    let time = Duration::from_millis(millis);
    // All before a world has threads.
    let wires = |_| [2, 1, 1].into_iter().map(|cores| over.edges(cores)).collect();
    let wires: Vec<io::Result<Vec<_>>> = (0..rounds).map(wires).collect();
    let (mut ratios, mut gains) = (Vec::new(), Vec::new());
    for (round, wires) in wires.into_iter().enumerate() {
        // Where things lie in memory counts, and is drawn anew.
        let wires = wires.map_err(|error| error.to_string())?.into_iter();
        let mut worlds: Vec<_> = wires.map(|edges| World::new(edges, CONNECTIONS)).collect();
        let [mut one, two @ ..] = [0, 1, 2].map(|world: usize| worlds[world].take_lanes());
        let mut two = two.into_iter().flatten().collect::<Vec<_>>();
        // Else the threads of those that wait share the processors.
        let quiet: Vec<_> = worlds.iter().map(World::quiet).collect();
        let together = messages(&mut one, time);
        let apart = messages(&mut two, time);
        let alone = messages(&mut two[..1], time);
        drop(quiet);
        let lanes = [one].into_iter().chain(two.into_iter().map(|lane| vec![lane]));
        worlds.iter_mut().zip(lanes).for_each(|(world, lanes)| world.give_back(lanes));
        ratios.push(together / apart);
        gains.push(together / alone);
        println!(
            "round {}: {together:.0} messages together, {apart:.0} apart, {alone:.0} of one core",
            round + 1
        );
    }
    println!("an adapter of two cores over two adapters of one: {:.3}", middle(&mut ratios));
    println!("an adapter of two cores over one core: {:.3}", middle(&mut gains));
    Ok(())
}

/// The messages that the lanes exchange in this time, each on a processor of its own.
fn messages(lanes: &mut [Lane], time: Duration) -> f64 {
    let begin = Barrier::new(lanes.len());
    let exchange = |(processor, lane): (usize, &mut Lane)| {
        pin(processor);
        begin.wait();
        let (until, mut count) = (Instant::now() + time, 0);
        while Instant::now() < until {
            count += lane.exchange();
        }
        count
    };
    let counts: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> =
            lanes.iter_mut().enumerate().map(|lane| scope.spawn(|| exchange(lane))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no message failed")).collect()
    });
    counts.into_iter().sum::<usize>() as f64
}

/// Keeps this thread on one processor, where the system allows it.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // A container may have others, and then the scheduler decides.
    let _ = sched_setaffinity(None, &set);
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
