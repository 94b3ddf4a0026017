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
        let [one, two @ ..] = worlds.as_mut_slice() else { unreachable!("there are three") };
        let together = messages(one.take_lanes(), time, |lanes| one.give_back(lanes));
        let lanes = two.iter_mut().flat_map(World::take_lanes).collect();
        let apart = messages(lanes, time, |lanes| {
            two.iter_mut().zip(lanes).for_each(|(world, lane)| world.give_back(vec![lane]));
        });
        let alone = messages(two[0].take_lanes(), time, |lanes| two[0].give_back(lanes));
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
fn messages(lanes: Vec<Lane>, time: Duration, back: impl FnOnce(Vec<Lane>)) -> f64 {
    let begin = Barrier::new(lanes.len());
    let exchange = |(processor, mut lane): (usize, Lane)| {
        pin(processor);
        begin.wait();
        let (until, mut count) = (Instant::now() + time, 0);
        while Instant::now() < until {
            count += lane.exchange();
        }
        (lane, count)
    };
    let (lanes, counts): (Vec<_>, Vec<usize>) = thread::scope(|scope| {
        let threads: Vec<_> =
            lanes.into_iter().enumerate().map(|lane| scope.spawn(|| exchange(lane))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no message failed")).unzip()
    });
    back(lanes);
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
