//! Figures of what the programs printed, and their tables.

use crate::lab::{Failure, Printed};
use crate::plan::{
    BURST, Client, DEPTH, ECHOES, LOSSES, Load, Plan, burst_name, echoes_name, loss_name, losses,
    name,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::tests::figures::record;

pub(crate) struct Results {
    /// Messages a second, a figure for each round.
    rates: BTreeMap<(Load, Client), Vec<f64>>,
    /// Bare frames a second, sent and received.
    bursts: Vec<f64>,
    /// Nanoseconds of a bare frame's round trip.
    echoes: Vec<f64>,
    /// Messages a second by operation and percent lost, a figure for each seed.
    losses: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

impl Results {
    /// An error names a measurement that is not there.
    pub(crate) fn of(plan: &Plan, printed: &Printed) -> Result<Self, Failure> {
        let figure = |name: String, read: &dyn Fn(&str) -> Option<f64>| {
            let text = printed.get(&name).map_or("", String::as_str);
            read(text).ok_or_else(|| Failure::Wrong(format!("no figure of {name} in {text:?}")))
        };
        let rounds = |figure: &dyn Fn(u32) -> Result<f64, Failure>| {
            (1..=plan.rounds).map(figure).collect::<Result<Vec<_>, _>>()
        };
        let mut rates = BTreeMap::new();
        for (load, client) in plan.measurements() {
            let rate = |round| {
                figure(name(load, client, round), &|text| messages_per_second(load, client, text))
            };
            rates.insert((load, client), rounds(&rate)?);
        }
        let mut left = BTreeMap::<_, Vec<_>>::new();
        for (operation, loss, seed) in losses() {
            let rate = figure(loss_name(operation, loss, seed), &of_ndkperf)?;
            left.entry((operation, loss)).or_default().push(rate);
        }
        let burst = |text: &str| Some(f64::from(BURST) * 1e9 / nanoseconds(text)?);
        let echo = |text: &str| Some(nanoseconds(text)? / f64::from(ECHOES));
        Ok(Self {
            rates,
            bursts: rounds(&|round| figure(burst_name(round), &burst))?,
            echoes: rounds(&|round| figure(echoes_name(round), &echo))?,
            losses: left,
        })
    }

    fn rate(&self, load: Load, client: Client) -> Option<f64> {
        self.rates.get(&(load, client)).map(|each| mean(each))
    }

    /// Goodput over that without loss.
    fn left(&self, operation: &'static str, loss: &'static str) -> f64 {
        mean(&self.losses[&(operation, loss)]) / mean(&self.losses[&(operation, LOSSES[0])])
    }

    /// For the program that puts all measurements into one table.
    pub(crate) fn record(&self) {
        for ((load, client), each) in &self.rates {
            let Load { mtu, operation, size, depth } = load;
            record(&format!("guest/{mtu}/{operation}/{size}/{depth}/{client}"), mean(each));
        }
        record("guest/raw/frames", mean(&self.bursts));
        record("guest/raw/echo", mean(&self.echoes));
        for (operation, loss) in self.losses.keys() {
            record(&format!("guest/loss/{operation}/{loss}"), self.left(operation, loss));
        }
    }

    /// All of it in Markdown.
    pub(crate) fn tables(&self) -> String {
        [self.streams(), self.round_trips(), self.raw(), self.goodputs(), self.spread()].join("\n")
    }

    fn loads(&self, depth: u32) -> impl Iterator<Item = Load> {
        let loads =
            self.rates.keys().map(|(load, _)| *load).filter(move |load| load.depth == depth);
        // In the map the clients of a load stand beside each other.
        let mut loads: Vec<_> = loads.collect();
        loads.dedup();
        loads.into_iter()
    }

    fn streams(&self) -> String {
        let mut table = String::from(
            "| Messages/s, 128 at once | rxe, perftest | rxe, events | ours | ours, offload | ours over events | offload over events |\n\
             | --- | --: | --: | --: | --: | --: | --: |\n",
        );
        for load in self.loads(DEPTH) {
            let [perftest, events, plain, offload] =
                Client::ALL.map(|client| self.rate(load, client).unwrap_or(f64::NAN));
            let Load { mtu, operation, size, .. } = load;
            let _ = writeln!(
                table,
                "| MTU {mtu}, {operation} {size} | {perftest:.0} | {events:.0} | {plain:.0} | {offload:.0} | {:.2} | {:.2} |",
                plain / events,
                offload / events,
            );
        }
        table
    }

    fn round_trips(&self) -> String {
        let mut table = String::from(
            "| Round trip, one at a time, µs | rxe, events | ours | ours over events |\n\
             | --- | --: | --: | --: |\n",
        );
        for load in self.loads(1) {
            let [events, plain] = [Client::Events, Client::Plain]
                .map(|client| self.rate(load, client).map_or(f64::NAN, |rate| 1e6 / rate));
            let Load { operation, size, .. } = load;
            let _ = writeln!(
                table,
                "| {operation} {size} | {events:.1} | {plain:.1} | {:.2} |",
                plain / events
            );
        }
        table
    }

    fn raw(&self) -> String {
        format!(
            "Bare frames as long as a WRITE of 64 bytes: {:.0} a second, {:.0} instructions each, both ends; \
             a round trip between two sleepers {:.1} µs.\n",
            mean(&self.bursts),
            1e9 / mean(&self.bursts),
            mean(&self.echoes) / 1e3,
        )
    }

    fn goodputs(&self) -> String {
        let mut table = String::from(
            "| Goodput over lossless, 64 KiB, 16 at once | 0.1 % | 1 % | 5 % |\n\
             | --- | --: | --: | --: |\n",
        );
        let operations = self.losses.keys().map(|(operation, _)| *operation);
        let mut operations: Vec<_> = operations.collect();
        operations.dedup();
        for operation in operations {
            let [low, middle, high] = [1, 2, 3].map(|at| self.left(operation, LOSSES[at]));
            let _ = writeln!(table, "| {operation} | {low:.2} | {middle:.2} | {high:.2} |");
        }
        table
    }

    fn spread(&self) -> String {
        // perftest is shown, and compared with nothing: it polls, so that it shares the processor by chance.
        let compared = self.rates.iter().filter(|((_, client), _)| *client != Client::Perftest);
        let widest = compared.max_by(|(_, a), (_, b)| spread(a).total_cmp(&spread(b)));
        widest.map_or_else(String::new, |((load, client), each)| {
            let Load { mtu, operation, size, depth } = load;
            format!(
                "Rounds differ by at most {:.1} % (MTU {mtu}, {operation} {size}, depth {depth}, {client}).\n",
                100.0 * spread(each)
            )
        })
    }
}

fn mean(each: &[f64]) -> f64 {
    each.iter().sum::<f64>() / each.len() as f64
}

/// How far the rounds lie apart, over their mean.
fn spread(each: &[f64]) -> f64 {
    let most = each.iter().copied().fold(f64::MIN, f64::max);
    let least = each.iter().copied().fold(f64::MAX, f64::min);
    (most - least) / mean(each)
}

fn messages_per_second(load: Load, client: Client, printed: &str) -> Option<f64> {
    match client {
        Client::Perftest => of_perftest(load.size, printed),
        Client::Events => Some(f64::from(load.count()) * 1e9 / nanoseconds(printed)?),
        Client::Plain | Client::Offload => of_ndkperf(printed),
    }
}

fn nanoseconds(printed: &str) -> Option<f64> {
    printed.trim().parse().ok()
}

/// Its one row of figures: bytes, iterations, peak and average MiB/s, millions of messages a second. Of short
/// messages the last has more digits, of long ones the average.
pub(crate) fn of_perftest(size: u32, printed: &str) -> Option<f64> {
    let row = |line: &str| {
        let figures: Vec<f64> =
            line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        <[f64; 5]>::try_from(figures).ok()
    };
    let [.., average, millions] = printed.lines().find_map(row)?;
    Some(if size < 4096 { millions * 1e6 } else { average * 1_048_576.0 / f64::from(size) })
}

pub(crate) fn of_ndkperf(printed: &str) -> Option<f64> {
    let document: Value = serde_json::from_str(printed).ok()?;
    document["operations"][0]["messages_per_second"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftests_row_is_found_among_its_words() {
        let printed = " Mtu             : 1024[B]\n #bytes     #iterations    BW peak[MiB/sec]\n \
                       4096         1500             40.56              39.06   \t\t     0.010000\n---\n";
        assert_eq!(of_perftest(4096, printed), Some(9999.36));
        assert_eq!(of_perftest(64, printed), Some(10_000.0));
        assert_eq!(of_perftest(64, "Failed status 5: wr_id 0 syndrom 0x0\n"), None);
    }

    #[test]
    fn a_measurement_that_failed_is_named() {
        let plan = Plan { loads: Load::all(), rounds: 1 };
        let Err(Failure::Wrong(said)) = Results::of(&plan, &Printed::new()) else {
            panic!("nothing was measured");
        };
        assert!(said.contains("1500-write-64-128-perftest-1"), "{said}");
    }
}
