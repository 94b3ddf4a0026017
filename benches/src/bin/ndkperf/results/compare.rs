//! `ndkperf compare`: the figures of two documents side by side, and whether the second is worse.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use super::document::{Document, Figures};
use crate::failure::Failure;
use crate::report::Medium;

#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Document of `--json` to compare with
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// Document of `--json` that is judged
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Percent by which B may fall behind A in messages/s or in p50
    #[arg(long, default_value_t = 5.0, value_parser = tolerance, value_name = "PERCENT")]
    tolerance: f64,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Prints both documents side by side.
///
/// # Errors
/// [`Failure::Worse`] where B is, [`Failure::Document`] for files that cannot be compared,
/// [`Failure::Output`] where nothing can be printed.
pub(crate) fn run(args: &Compare) -> Result<(), Failure> {
    let [a, b] = [Document::read(&args.a)?, Document::read(&args.b)?];
    let comparison = Comparison::new(&a, &b, args.tolerance);
    if comparison.pairs.is_empty() {
        let [a, b] = [&args.a, &args.b].map(|file| file.display());
        let text = format!("{a} and {b} have no run of the same operation and size");
        return Err(Failure::Document(text));
    }
    comparison.print(args).map_err(Failure::Output)?;
    comparison.verdict().map_or(Ok(()), |worse| Err(Failure::Worse(worse)))
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Figure {
    MessagesPerSecond,
    Median,
    P99,
    Cpu,
}

impl Figure {
    const ALL: [Self; 4] = [Self::MessagesPerSecond, Self::Median, Self::P99, Self::Cpu];

    /// Head and key: for people, and for programs.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::MessagesPerSecond => ("messages/s", "messages_per_second"),
            Self::Median => ("p50 µs", "p50_us"),
            Self::P99 => ("p99 µs", "p99_us"),
            Self::Cpu => ("CPU ns/message", "cpu_ns_per_message"),
        }
    }

    /// `None` where no message arrived.
    fn of(self, run: &Figures) -> Option<f64> {
        let figure = match self {
            Self::MessagesPerSecond => Some(run.messages_per_second),
            Self::Median => Some(run.latency_us.p50),
            Self::P99 => Some(run.latency_us.p99),
            Self::Cpu => run.cpu_ns_per_message,
        };
        figure.filter(|_| run.messages > 0)
    }

    fn text(self, figure: f64) -> String {
        match self {
            Self::MessagesPerSecond | Self::Cpu => format!("{figure:.0}"),
            Self::Median | Self::P99 => format!("{figure:.1}"),
        }
    }

    /// Whether B, over A, is worse by more than `percent`. The tail and the processor time are shown
    /// and not judged: one is of few messages, the other of whatever else the process does.
    fn is_worse(self, b_over_a: f64, percent: f64) -> bool {
        match self {
            Self::MessagesPerSecond => b_over_a < 1.0 - percent / 100.0,
            Self::Median => b_over_a > 1.0 + percent / 100.0,
            Self::P99 | Self::Cpu => false,
        }
    }
}

/// The same run in both documents.
struct Pair<'a> {
    a: &'a Figures,
    b: &'a Figures,
    percent: f64,
}

impl Pair<'_> {
    fn both(&self, figure: Figure) -> [Option<f64>; 2] {
        [self.a, self.b].map(|run| figure.of(run))
    }

    fn b_over_a(&self, figure: Figure) -> Option<f64> {
        let [Some(a), Some(b)] = self.both(figure) else { return None };
        (a > 0.0).then(|| b / a)
    }

    fn is_worse_in(&self, figure: Figure) -> bool {
        self.b_over_a(figure).is_some_and(|b_over_a| figure.is_worse(b_over_a, self.percent))
    }

    /// The reason, where B did not end well and A did.
    fn failure(&self) -> Option<String> {
        self.b.trouble().filter(|_| self.a.trouble().is_none())
    }

    fn is_worse(&self) -> bool {
        self.failure().is_some() || Figure::ALL.into_iter().any(|figure| self.is_worse_in(figure))
    }
}

/// Two documents.
struct Comparison<'a> {
    pairs: Vec<Pair<'a>>,
    /// What B may fall behind by.
    percent: f64,
    only_a: Vec<&'a Figures>,
    only_b: Vec<&'a Figures>,
    /// Parts of the load that are not the same.
    loads: Vec<&'static str>,
}

impl<'a> Comparison<'a> {
    /// A run that a document has several times has as many partners as the other one has.
    fn new(a: &'a Document, b: &'a Document, percent: f64) -> Self {
        let mut only_b: Vec<&Figures> = b.runs.iter().collect();
        let (mut pairs, mut only_a) = (Vec::new(), Vec::new());
        for run in &a.runs {
            let same = |b: &&Figures| (&b.operation, b.size) == (&run.operation, run.size);
            match only_b.iter().position(same) {
                Some(place) => pairs.push(Pair { a: run, b: only_b.remove(place), percent }),
                None => only_a.push(run),
            }
        }
        let loads = [
            ("edge", a.edge != b.edge),
            ("measure", a.load.measure != b.load.measure),
            ("depth", a.depth != b.depth),
            ("qps", a.load.qps != b.load.qps),
            ("srq", a.load.srq != b.load.srq),
            ("threads", a.load.threads != b.load.threads),
            ("bidirectional", a.load.bidirectional != b.load.bidirectional),
            ("verified", a.verified != b.verified),
        ];
        let loads = loads.into_iter().filter(|(_, differ)| *differ).map(|(name, _)| name).collect();
        Self { pairs, percent, only_a, only_b, loads }
    }

    fn worse(&self) -> impl Iterator<Item = &Pair<'a>> {
        self.pairs.iter().filter(|pair| pair.is_worse())
    }

    /// Names of the runs that are worse, in a sentence, where any is.
    fn verdict(&self) -> Option<String> {
        let worse: Vec<String> = self.worse().map(|pair| pair.a.name()).collect();
        let failed = self.pairs.iter().any(|pair| pair.failure().is_some());
        let failed = if failed { ", or has failed," } else { "" };
        let (runs, all, names) = (worse.len(), self.pairs.len(), worse.join(", "));
        (runs > 0).then(|| {
            let percent = self.percent;
            format!("B is worse than A by more than {percent} %{failed} in {runs} of {all} runs: {names}")
        })
    }

    fn print(&self, args: &Compare) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if args.json {
            writeln!(out, "{:#}", self.document(args))?;
            return out.flush();
        }
        writeln!(out, "{}", self.table(Medium::of_stdout()))?;
        writeln!(out, "A is {}, B is {}", args.a.display(), args.b.display())?;
        if !self.loads.is_empty() {
            writeln!(out, "the loads differ in {}", self.loads.join(", "))?;
        }
        for (document, runs) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !runs.is_empty() {
                writeln!(out, "in {document} alone: {}", names(runs).join(", "))?;
            }
        }
        for pair in &self.pairs {
            if let Some(failure) = pair.failure() {
                writeln!(out, "B failed: {}: {failure}", pair.b.name())?;
            }
        }
        out.flush()
    }

    /// A line for each figure of each run.
    fn table(&self, medium: Medium) -> Table {
        let mut table = Table::new();
        let head = ["operation", "bytes each", "figure", "A", "B", "B/A", "verdict"];
        table.load_style(medium.style()).set_header(head);
        for pair in &self.pairs {
            for figure in Figure::ALL {
                let text = |figure: Figure, value: Option<f64>| {
                    value.map_or_else(|| "-".to_string(), |value| figure.text(value))
                };
                let [a, b] = pair.both(figure).map(|value| text(figure, value));
                let quotient = pair.b_over_a(figure);
                let failed = figure == Figure::MessagesPerSecond && pair.failure().is_some();
                table.add_row([
                    pair.a.operation.clone(),
                    pair.a.size.to_string(),
                    figure.names().0.to_string(),
                    a,
                    b,
                    quotient.map_or_else(|| "-".to_string(), |quotient| format!("{quotient:.3}")),
                    match (failed, pair.is_worse_in(figure)) {
                        (true, _) => "failed".into(),
                        (false, true) => "worse".into(),
                        (false, false) => String::new(),
                    },
                ]);
            }
        }
        for column in [1, 3, 4, 5] {
            let column = table.column_mut(column).expect("the head has it");
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn document(&self, args: &Compare) -> Value {
        json!({
            "schema": "ndkperf-compare",
            "schema_version": SCHEMA_VERSION,
            "version": env!("CARGO_PKG_VERSION"),
            "a": args.a.display().to_string(),
            "b": args.b.display().to_string(),
            "tolerance_percent": args.tolerance,
            "loads_differ_in": self.loads,
            "only_in_a": names(&self.only_a),
            "only_in_b": names(&self.only_b),
            "worse": self.worse().count(),
            "runs": self.pairs.iter().map(entry).collect::<Vec<_>>(),
        })
    }
}

/// The form of the comparison's own document. It grows when a field goes or changes its meaning.
const SCHEMA_VERSION: u32 = 1;

fn entry(pair: &Pair<'_>) -> Value {
    let figures = Figure::ALL.into_iter().map(|figure| {
        let ([a, b], b_over_a) = (pair.both(figure), pair.b_over_a(figure));
        let worse = pair.is_worse_in(figure);
        let value = json!({ "a": a, "b": b, "b_over_a": b_over_a, "worse": worse });
        (figure.names().1.to_string(), value)
    });
    json!({
        "operation": pair.a.operation,
        "size": pair.a.size,
        "figures": figures.collect::<Map<_, _>>(),
        "failure": pair.failure(),
        "worse": pair.is_worse(),
    })
}

fn names(runs: &[&Figures]) -> Vec<String> {
    runs.iter().map(|run| run.name()).collect()
}

fn tolerance(text: &str) -> Result<f64, &'static str> {
    let percent: f64 = text.parse().map_err(|_| "not a number")?;
    if (0.0..=1000.0).contains(&percent) { Ok(percent) } else { Err("not 0 to 1000 percent") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::document::{Latency, Load};

    fn run(operation: &str, size: u32, messages_per_second: f64, p50: f64) -> Figures {
        let latency_us = Latency { p50, p99: 9.0 };
        Figures { messages_per_second, latency_us, ..Figures::example(operation, size) }
    }

    fn document(runs: Vec<Figures>) -> Document {
        let load = Load::default();
        Document { edge: Value::Null, load, depth: 16, verified: true, runs }
    }

    /// Whether B is worse, where A moves 1000 messages a second in 10 µs each.
    fn worse(b: Figures, percent: f64) -> bool {
        let (a, b) = (document(vec![run("send", 64, 1000.0, 10.0)]), document(vec![b]));
        Comparison::new(&a, &b, percent).worse().count() == 1
    }

    #[test]
    fn only_what_passes_the_tolerance_is_worse() {
        assert!(!worse(run("send", 64, 951.0, 10.4), 5.0));
        assert!(worse(run("send", 64, 949.0, 10.0), 5.0));
        assert!(worse(run("send", 64, 1000.0, 10.6), 5.0));
        assert!(!worse(run("send", 64, 2000.0, 5.0), 0.0), "better is not worse");
        assert!(worse(run("send", 64, 999.0, 10.0), 0.0));
        let tail = Figures {
            latency_us: Latency { p50: 10.0, p99: 90.0 },
            ..run("send", 64, 1000.0, 10.0)
        };
        assert!(!worse(tail, 5.0), "the tail is shown, not judged");
    }

    #[test]
    fn a_run_that_failed_or_moved_wrong_data_is_worse_however_quick() {
        let quick = run("send", 64, 5000.0, 1.0);
        assert!(!worse(quick.clone(), 5.0));
        assert!(worse(Figures { error: Some("it ended".into()), ..quick.clone() }, 5.0));
        assert!(worse(Figures { wrong_messages: 1, ..quick.clone() }, 5.0));
        let none =
            Figures { messages: 0, messages_per_second: 0.0, error: Some("x".into()), ..quick };
        let (a, b) = (document(vec![run("send", 64, 1.0, 1.0)]), document(vec![none]));
        let comparison = Comparison::new(&a, &b, 5.0);
        assert_eq!(comparison.pairs[0].b_over_a(Figure::MessagesPerSecond), None);
        assert!(comparison.table(Medium::Stream).to_string().contains("failed"));
        let told =
            "B is worse than A by more than 5 %, or has failed, in 1 of 1 runs: send of 64 B";
        assert_eq!(comparison.verdict().unwrap(), told);
    }

    #[test]
    fn runs_are_paired_by_operation_and_size_in_their_order() {
        let a = [run("send", 64, 1.0, 1.0), run("send", 64, 2.0, 1.0), run("read", 64, 3.0, 1.0)];
        let b = [run("send", 4096, 4.0, 1.0), run("send", 64, 5.0, 1.0), run("send", 64, 6.0, 1.0)];
        let (a, mut b) = (document(a.to_vec()), document(b.to_vec()));
        b.depth = 1;
        let comparison = Comparison::new(&a, &b, 5.0);
        let pairs = comparison.pairs.iter();
        let pairs: Vec<_> =
            pairs.map(|pair| [pair.a, pair.b].map(|run| run.messages_per_second)).collect();
        assert_eq!(pairs, [[1.0, 5.0], [2.0, 6.0]]);
        assert_eq!(names(&comparison.only_a), ["read of 64 B"]);
        assert_eq!(names(&comparison.only_b), ["send of 4096 B"]);
        assert_eq!(comparison.loads, ["depth"]);
    }
}
