//! Eight senders, one receiver, one switch port between them: what congestion control is for.
//!
//! Goal: with congestion control the port carries at least 80 % of its rate as data, shared fairly,
//! and drops little; without it, it drops much and carries less. Method: nine devices in a simulated network whose only clock is its own,
//! so that every run gives the same figures. `--svg FILE` draws the data that each sender got through
//! in each millisecond.

mod plot;
mod sim;

use sim::{Outcome, SENDERS, Scenario, Wire};
use std::process::ExitCode;

/// What is compared. Hardware and rxe drop what comes behind a loss; our receiver keeps it.
const SCENARIOS: [(&str, Scenario); 6] = [
    ("no control", Scenario { control: false, wire: Wire::Marks, holds: false }),
    ("CNP", Scenario { control: true, wire: Wire::Marks, holds: false }),
    ("loss as the signal", Scenario { control: true, wire: Wire::OnlyDrops, holds: false }),
    ("no control, receiver keeps", Scenario { control: false, wire: Wire::Marks, holds: true }),
    ("CNP, receiver keeps", Scenario { control: true, wire: Wire::Marks, holds: true }),
    (
        "loss as the signal, receiver keeps",
        Scenario { control: true, wire: Wire::OnlyDrops, holds: true },
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let svg = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--svg", path] => Some(path),
        _ => {
            eprintln!("usage: incast [--svg FILE]");
            return ExitCode::FAILURE;
        }
    };
    let outcomes = SCENARIOS.map(|(name, scenario)| (name, sim::run(scenario)));
    println!("{HEADER}");
    for (name, outcome) in &outcomes {
        println!("{}", row(name, outcome));
    }
    let panels: Vec<_> = outcomes.iter().take(3).map(|(name, outcome)| (*name, outcome)).collect();
    match svg.map(|path| std::fs::write(path, plot::svg(&panels))) {
        None | Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

const HEADER: &str = "\
8 to 1 over 10 Gb/s                 goodput   Jain  least sender*  dropped  in vain  marked   CNPs  queue
* of a fair share                         %                     %        %        %       %            KB";

fn row(name: &str, outcome: &Outcome) -> String {
    let least = outcome.bytes.iter().min().copied().unwrap_or(0);
    let fair = outcome.bytes.iter().sum::<u64>() as f64 / SENDERS as f64;
    let percent = |packets: u64| 100.0 * packets as f64 / outcome.packets as f64;
    format!(
        "{name:35} {:7.1} {:6.3} {:14.0} {:8.2} {:8.2} {:7.2} {:6} {:6.0}",
        100.0 * outcome.utilization(),
        outcome.jain(),
        100.0 * least as f64 / fair,
        percent(outcome.dropped),
        100.0 * outcome.wasted(),
        percent(outcome.marked),
        outcome.cnps,
        outcome.mean_queue / 1000.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(control: bool, wire: Wire, holds: bool) -> Outcome {
        let outcome = sim::run(Scenario { control, wire, holds });
        println!("{HEADER}\n{}", row("", &outcome));
        outcome
    }

    #[test]
    fn with_notifications_it_uses_the_link_and_shares_it() {
        for holds in [false, true] {
            let without = outcome(false, Wire::Marks, holds);
            let with = outcome(true, Wire::Marks, holds);
            assert!(with.utilization() >= 0.8 && with.jain() >= 0.9 && with.cnps > 0);
            assert!(with.utilization() > without.utilization());
            assert!(
                with.dropped * 5 < without.dropped && with.mean_queue * 2.0 < without.mean_queue
            );
            assert_eq!((without.cnps, without.marked), (0, 0));
        }
    }

    #[test]
    fn with_loss_as_the_only_signal_too() {
        for holds in [false, true] {
            let without = outcome(false, Wire::OnlyDrops, holds);
            let with = outcome(true, Wire::OnlyDrops, holds);
            assert!(with.utilization() >= 0.8 && with.jain() >= 0.9);
            assert!(with.utilization() > without.utilization() && with.dropped < without.dropped);
            assert_eq!((with.cnps, with.marked), (0, 0));
        }
    }

    #[test]
    fn the_same_run_gives_the_same_figures() {
        let scenario = Scenario { control: true, wire: Wire::Marks, holds: false };
        assert_eq!(sim::run(scenario).bytes, sim::run(scenario).bytes);
    }
}
