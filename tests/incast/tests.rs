//! What the table says, as bounds, over several seeds. The clock is that of the simulation.

use super::*;
use crate::sim::{Wire, run};
use crate::sweep::Seeds;
use std::ops::RangeInclusive;

/// Seeds of a case, and milliseconds of a run: fewer than for the table.
const TEST_SEEDS: RangeInclusive<u8> = 101..=103;
const TEST_MS: usize = 100;

/// The cases with all controls, and what they gave: off, marks, losses.
fn results(cases: &[Scenario]) -> Vec<(Scenario, [Seeds; 3])> {
    let cases = cases.iter().map(|case| Scenario { milliseconds: TEST_MS, ..*case });
    let cases = each_control(cases);
    let seeds = sweep::run(&cases, TEST_SEEDS);
    println!("{}", sweep::HEADER);
    for (case, seeds) in cases.iter().zip(&seeds) {
        println!("{}", sweep::row(case, seeds));
    }
    let groups = cases.chunks(3).zip(seeds.chunks(3));
    groups.map(|(cases, seeds)| (cases[0], seeds.to_vec().try_into().unwrap())).collect()
}

fn streams(holds: bool, buffer: u64) -> Scenario {
    Scenario { holds, buffer, ..Scenario::default() }
}

/// Goal: eight senders share the link and use it, whatever the buffer, the receiver and the signal.
#[test]
fn with_control_the_link_is_used_and_shared() {
    let cases = [32 << 10, 128 << 10, 512 << 10, 1 << 20]
        .map(|buffer| [false, true].map(|holds| streams(holds, buffer)));
    for (case, [off, marks, losses]) in results(cases.as_flattened()) {
        for control in [&marks, &losses] {
            assert!(control.least(|run| run.goodput) >= 0.8, "{case:?}");
            assert!(control.least(|run| run.jain) >= 0.9, "{case:?}");
        }
        assert!(marks.most(|run| run.dropped) * 2.0 < off.least(|run| run.dropped), "{case:?}");
        assert!(marks.most(|run| run.resent) * 2.0 < off.least(|run| run.resent), "{case:?}");
        assert!(marks.least(|run| run.least) > 0.8, "{case:?}");
    }
}

/// Goal: where all wait for the last of a round, a lost tail waits for the timer of one, and the link
/// stands still meanwhile; with control few are lost. Losses alone say too late which round was too much: they
/// spare the link, not the waiting.
#[test]
fn rounds_lose_much_without_control_and_little_with_it() {
    let round = |load, holds| Scenario { load, holds, message: 64 << 10, ..Scenario::default() };
    let cases = [(Load::WriteRounds, false), (Load::WriteRounds, true), (Load::ReadRounds, true)];
    for (case, [off, marks, losses]) in results(&cases.map(|(load, holds)| round(load, holds))) {
        assert!(off.most(|run| run.goodput) < 0.75, "{case:?}");
        assert!(marks.least(|run| run.goodput) >= 0.75, "{case:?}");
        for control in [marks, losses] {
            let most = control.most(|run| run.dropped);
            assert!(most * 4.0 < off.least(|run| run.dropped), "{case:?}");
        }
    }
}

/// Goal: chance takes a packet now and then, and costs little more than the packet. Nothing is congested.
fn random_losses_leave(load: Load, least: [f64; 3]) {
    for control in [false, true] {
        let case = Scenario { milliseconds: TEST_MS, ..loss::path(load, control) };
        let left = loss::left(case, TEST_SEEDS);
        assert!(left.iter().zip(least).all(|(left, least)| *left >= least), "{control} {left:?}");
    }
}

#[test]
fn random_losses_leave_the_goodput_of_writes() {
    random_losses_leave(Load::Streams, [0.95, 0.9, 0.5]);
}

#[test]
fn random_losses_leave_the_goodput_of_reads() {
    random_losses_leave(Load::ReadStreams, [0.95, 0.85, 0.35]);
}

/// Goal: the same where packets wait, but for the processor that both ends share. Control takes such a loss for a full
/// queue, which costs goodput, and must not come to cost more.
#[test]
fn random_losses_leave_less_where_both_ends_share_a_processor() {
    let cases = [
        (Load::Streams, false, [0.95, 0.6, 0.05]),
        (Load::Streams, true, [0.65, 0.4, 0.1]),
        (Load::ReadStreams, false, [0.95, 0.7, 0.35]),
        (Load::ReadStreams, true, [0.8, 0.35, 0.1]),
    ];
    for (load, control, least) in cases {
        let case = Scenario { milliseconds: TEST_MS, ..loss::host(load, control) };
        let left = loss::left(case, TEST_SEEDS);
        let held = left.iter().zip(least).all(|(left, least)| *left >= least);
        assert!(held, "{load:?} {control} {left:?}");
    }
}

#[test]
fn without_control_nothing_is_marked_and_without_marks_nothing_notified() {
    let base = Scenario { milliseconds: 20, ..Scenario::default() };
    let off = run(base);
    assert_eq!((off.marked, off.cnps), (0, 0));
    let marks = run(Scenario { control: true, ..base });
    assert!(marks.marked > 0 && marks.cnps > 0);
    let losses = run(Scenario { control: true, wire: Wire::OnlyDrops, ..base });
    assert_eq!((losses.marked, losses.cnps), (0, 0));
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_others() {
    let run = |seed| run(Scenario { control: true, milliseconds: 20, seed, ..Scenario::default() });
    assert_eq!(run(1).took, run(1).took);
    assert_ne!(run(1).took, run(2).took);
}
