//! What the user sees: a progress bar while it runs, then a table or a JSON document.

use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::Run;
use crate::perf::{Limit, Outcome, Plan};

/// Prints the outcomes of a run on stdout.
pub(crate) fn print(run: &Run, seed: u64, edge: &Value, outcomes: &[Outcome]) {
    if run.json {
        println!("{:#}", document(run, seed, edge, outcomes));
    } else {
        println!("{}", table(outcomes));
        let checked = if run.no_verify { "not checked" } else { "every byte checked" };
        println!("{} bytes each, {} at once, {checked}; seed {seed}", run.size, run.depth);
    }
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header([
        "operation",
        "messages",
        "bytes",
        "messages/s",
        "GB/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
    ]);
    for outcome in outcomes {
        let [p50, p99, p999, max] = latencies_us(outcome);
        table.add_row([
            outcome.operation.to_string(),
            outcome.messages.to_string(),
            outcome.bytes.to_string(),
            format!("{:.0}", per_second(outcome.messages, outcome.elapsed)),
            format!("{:.3}", per_second(outcome.bytes, outcome.elapsed) / 1e9),
            format!("{p50:.1}"),
            format!("{p99:.1}"),
            format!("{p999:.1}"),
            format!("{max:.1}"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn document(run: &Run, seed: u64, edge: &Value, outcomes: &[Outcome]) -> Value {
    let operations: Vec<Value> = outcomes.iter().map(entry).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "edge": edge,
        "size": run.size,
        "depth": run.depth,
        "verified": !run.no_verify,
        "seed": seed,
        "operations": operations,
    })
}

fn entry(outcome: &Outcome) -> Value {
    let [p50, p99, p999, max] = latencies_us(outcome);
    json!({
        "operation": outcome.operation.to_string(),
        "messages": outcome.messages,
        "bytes": outcome.bytes,
        "seconds": outcome.elapsed.as_secs_f64(),
        "messages_per_second": per_second(outcome.messages, outcome.elapsed),
        "gigabytes_per_second": per_second(outcome.bytes, outcome.elapsed) / 1e9,
        "latency_us": { "p50": p50, "p99": p99, "p99.9": p999, "max": max },
        "wrong_messages": outcome.mismatches.count,
    })
}

/// Median, p99, p99.9 and maximum.
fn latencies_us(outcome: &Outcome) -> [f64; 4] {
    let latency = &outcome.latency_ns;
    let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
    [at(0.5), at(0.99), at(0.999), latency.max() as f64 / 1e3]
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

/// A progress bar on stderr; it shows nothing if that is no terminal, or the run is short.
pub(crate) struct Progress {
    bar: ProgressBar,
    limit: Limit,
    start: Instant,
    /// When it is drawn next: the first time late, so that a short run shows nothing.
    due: Instant,
}

impl Progress {
    pub(crate) fn new(plan: &Plan) -> Self {
        let len = match plan.limit {
            Limit::Messages(messages) => messages,
            Limit::Time(time) => time.as_millis() as u64,
        };
        let template = "{prefix:5} {wide_bar} {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is sound");
        let target = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(Some(len), target).with_style(style);
        let start = Instant::now();
        Self {
            bar: bar.with_prefix(plan.operation.to_string()),
            limit: plan.limit,
            start,
            due: start + QUIET,
        }
    }

    /// So many messages are through.
    pub(crate) fn update(&mut self, messages: u64) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.due = now + REDRAW;
        self.bar.set_message(format!("{messages} messages"));
        self.bar.set_position(match self.limit {
            Limit::Messages(_) => messages,
            Limit::Time(_) => (now - self.start).as_millis() as u64,
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A run that is over by then shows no progress.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two looks of the bar.
const REDRAW: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{Mismatches, Operation};
    use hdrhistogram::Histogram;

    #[test]
    fn an_outcome_is_told_in_the_units_that_it_names() {
        let mut latency_ns = Histogram::new(3).unwrap();
        latency_ns.record(2_000).unwrap();
        let outcome = Outcome {
            operation: Operation::Write,
            messages: 1000,
            bytes: 4_000_000_000,
            elapsed: Duration::from_secs(2),
            latency_ns,
            mismatches: Mismatches::default(),
        };
        let entry = entry(&outcome);
        assert_eq!(entry["operation"], "write");
        assert_eq!(entry["messages_per_second"], 500.0);
        assert_eq!(entry["gigabytes_per_second"], 2.0);
        let median = entry["latency_us"]["p50"].as_f64().unwrap();
        assert!((median - 2.0).abs() < 0.01, "{median}");
        assert!(table(&[outcome]).to_string().contains("500"));
    }
}
