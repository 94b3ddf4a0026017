//! What the user sees at the end: a table or a JSON document.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, TableStyle, presets};
use serde_json::{Value, json};

use crate::load::Run;
use crate::perf::{End, Flow, Interval, Measure, Outcome, QueuePair, counted};

/// Prints the outcomes of a run on stdout: always one document, or a table if there is anything to
/// put into one.
///
/// # Errors
/// The operating system's.
pub(crate) fn print(run: &Run, seed: u64, edge: &Value, outcomes: &[Outcome]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if run.json {
        writeln!(out, "{:#}", document(run, seed, edge, outcomes))?;
    } else if outcomes.iter().any(|outcome| outcome.messages > 0) {
        writeln!(out, "{}", table(outcomes, Medium::of_stdout()))?;
        writeln!(out, "{}; seed {seed}", load(run))?;
        if let Some(path_mtu) = outcomes.iter().find_map(|outcome| outcome.path_mtu) {
            writeln!(out, "path MTU {path_mtu}")?;
        }
        for line in outcomes.iter().filter_map(both_views) {
            writeln!(out, "{line}")?;
        }
        for line in outcomes.iter().filter_map(trouble) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

/// What was measured, in words.
fn load(run: &Run) -> String {
    let mut parts = Vec::new();
    if let Some(size) = run.only_size() {
        parts.push(format!("{size} bytes each"));
    }
    parts.push(match run.measure() {
        Measure::Bandwidth => format!("{} at once", run.depth()),
        Measure::Latency => "half of a round trip, the whole one of read".into(),
    });
    let (qps, threads) = (run.qps, run.threads);
    match (qps, threads) {
        (1, 1) => {}
        (_, 1) => parts.push(format!("{qps} queue pairs")),
        (_, _) => parts.push(format!("{threads} threads with queue pairs: {qps} each")),
    }
    if run.srq {
        parts.push("receives of send shared".into());
    }
    if run.bidirectional {
        parts.push("both ends send".into());
    }
    parts.push(if run.no_verify { "not checked" } else { "every byte checked" }.into());
    parts.join(", ")
}

/// What each end sent, where both did.
fn both_views(outcome: &Outcome) -> Option<String> {
    let [ours, theirs] = outcome.directions();
    outcome.bidirectional.then(|| {
        let [ours, theirs] = [ours, theirs].map(|flow| {
            let (messages, gigabits) =
                (flow.messages, gigabits_per_second(flow.bytes, flow.elapsed));
            format!("{messages} messages at {gigabits:.3} Gb/s")
        });
        format!("{}: the client sent {ours}, the server {theirs}", outcome.name())
    })
}

/// What a row of an interval tells of the counters that moved.
pub(crate) fn meanwhile(counters: &[(&'static str, u64)]) -> Vec<(u64, &'static str)> {
    let resent = RESENT.iter().map(|(name, _)| counted(counters, name)).sum();
    let naks = counted(counters, "packet_seq_err") + counted(counters, "rcvd_rnr_err");
    [
        (resent, "packets sent again"),
        (naks, "NAKs"),
        (counted(counters, "rp_cnp_handled"), "congestion notifications"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .collect()
}

/// What went other than smoothly, if anything did.
fn trouble(outcome: &Outcome) -> Option<String> {
    let count = |name| outcome.counter(name);
    let resent = RESENT.map(|(name, cause)| (count(name), cause));
    let all: u64 = resent.iter().map(|(packets, _)| packets).sum();
    let mut parts = Vec::new();
    if all > 0 {
        let causes: Vec<String> = resent
            .iter()
            .filter(|(packets, _)| *packets > 0)
            .map(|(packets, cause)| format!("{packets} {cause}"))
            .collect();
        let needless = count("needless_resends");
        let (sent, causes) = (count("sent_pkts"), causes.join(", "));
        parts.push(format!("{all} of {sent} packets sent again ({causes}), {needless} needlessly"));
    }
    let paced = Duration::from_nanos(count("paced_ns"));
    if !paced.is_zero() {
        parts.push(format!("paced for {:.1} ms", paced.as_secs_f64() * 1e3));
    }
    for (name, what) in [
        ("rp_cnp_handled", "congestion notifications"),
        ("rx_icrc_encapsulated", "packets with a wrong ICRC"),
        ("edge_transmit_drops", "frames given up on their way out"),
        ("edge_refused", REFUSED),
        ("edge_receive_drops", "frames too long to be received"),
        ("edge_icmp_errors", "reports by ICMP that a packet did not arrive"),
        ("address_conflicts", OWN_ADDRESS),
    ] {
        if count(name) > 0 {
            parts.push(format!("{} {what}", count(name)));
        }
    }
    if outcome.unconfirmed {
        parts.push("the server did not confirm the end".to_owned());
    }
    (!parts.is_empty()).then(|| format!("{}: {}", outcome.name(), parts.join("; ")))
}

/// What a count of address conflicts is told with.
pub(crate) const OWN_ADDRESS: &str = "frames of another host that has our address";

/// What a count of refused frames is told with.
pub(crate) const REFUSED: &str = "of them refused by the kernel each time: the link's other end may have a smaller MTU, or a \
                                  filter forbids them";

/// Counters of packets sent again, and why they were.
const RESENT: [(&str, &str); 4] = [
    ("resent_timer_pkts", "by timer"),
    ("resent_nak_pkts", "by NAK"),
    ("resent_implied_nak_pkts", "by implied NAK"),
    ("resent_rnr_pkts", "by RNR NAK"),
];

/// What a table is printed on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Medium {
    /// A terminal of so many columns.
    Terminal(u16),
    /// A file or a pipe: plain columns, all of them.
    Stream,
}

impl Medium {
    pub(crate) fn of_stdout() -> Self {
        let width = Table::new().width().filter(|_| io::stdout().is_terminal());
        width.map_or(Self::Stream, Self::Terminal)
    }

    /// The lines that a table has on it.
    pub(crate) fn style(self) -> TableStyle {
        match self {
            Self::Terminal(_) => presets::UTF8_BORDERS_ONLY,
            Self::Stream => presets::NOTHING,
        }
    }
}

/// A column: its head, what it shows of an outcome, and how soon it is left out where there is no room.
type Column = (&'static str, fn(&Outcome) -> String, u8);

/// Those without a rank stay.
const COLUMNS: [Column; 10] = [
    OPERATION,
    MESSAGES,
    ("bytes", |outcome| outcome.bytes.to_string(), 5),
    ("messages/s", |outcome| format!("{:.0}", per_second(outcome.messages, outcome.elapsed)), 0),
    ("Gb/s", |outcome| format!("{:.3}", gigabits_per_second(outcome.bytes, outcome.elapsed)), 0),
    ("p50 µs", |outcome| us(at(outcome, 0.5)), 0),
    ("p99 µs", |outcome| us(at(outcome, 0.99)), 0),
    ("p99.9 µs", |outcome| us(at(outcome, 0.999)), 4),
    ("max µs", |outcome| us(at(outcome, 1.0)), 2),
    ("CPU ns/message", cpu_ns, 1),
];

/// Those of a latency, in the order of `perftest`.
const LATENCY_COLUMNS: [Column; 9] = [
    OPERATION,
    MESSAGES,
    ("min µs", |outcome| us(at(outcome, 0.0)), 0),
    ("max µs", |outcome| us(at(outcome, 1.0)), 0),
    ("typical µs", |outcome| us(at(outcome, 0.5)), 0),
    ("average µs", |outcome| us(outcome.latency_ns.mean() / 1e3), 0),
    ("p99 µs", |outcome| us(at(outcome, 0.99)), 0),
    ("p99.9 µs", |outcome| us(at(outcome, 0.999)), 2),
    ("CPU ns/message", cpu_ns, 1),
];

const OPERATION: Column = ("operation", |outcome| outcome.operation.to_string(), 0);
const MESSAGES: Column = ("messages", |outcome| outcome.messages.to_string(), 3);

/// It stands behind the operation, where messages of several sizes ran.
const BYTES_EACH: Column = ("bytes each", |outcome| outcome.size.to_string(), 0);

/// The table in as many columns as fit the medium.
fn table(outcomes: &[Outcome], medium: Medium) -> Table {
    let latency = outcomes.iter().any(|outcome| outcome.measure == Measure::Latency);
    let mut columns = if latency { LATENCY_COLUMNS.to_vec() } else { COLUMNS.to_vec() };
    if outcomes.windows(2).any(|pair| pair[0].size != pair[1].size) {
        columns.insert(1, BYTES_EACH);
    }
    let Medium::Terminal(width) = medium else {
        return table_of(outcomes, &columns, medium.style());
    };
    loop {
        let table = table_of(outcomes, &columns, medium.style());
        let widest = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let dispensable = columns.iter().map(|(.., rank)| *rank).max().filter(|rank| *rank > 0);
        match dispensable {
            Some(rank) if widest > usize::from(width) => columns.retain(|(.., kept)| *kept < rank),
            _ => return table,
        }
    }
}

fn table_of(outcomes: &[Outcome], columns: &[Column], style: TableStyle) -> Table {
    let mut table = Table::new();
    table.load_style(style).set_header(columns.iter().map(|(head, ..)| *head));
    for outcome in outcomes {
        table.add_row(columns.iter().map(|(_, show, _)| show(outcome)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn us(us: f64) -> String {
    format!("{us:.1}")
}

fn cpu_ns(outcome: &Outcome) -> String {
    cpu_ns_per(outcome, outcome.messages).map_or_else(|| "-".into(), |ns| format!("{ns:.0}"))
}

/// The document's name and form. The version grows when a field goes or changes its meaning, not when one
/// is added.
pub(crate) const SCHEMA: &str = "ndkperf-run";
pub(crate) const SCHEMA_VERSION: u32 = 1;

fn document(run: &Run, seed: u64, edge: &Value, outcomes: &[Outcome]) -> Value {
    let operations: Vec<Value> = outcomes.iter().map(entry).collect();
    json!({
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "version": env!("CARGO_PKG_VERSION"),
        "edge": edge,
        "measure": run.measure().to_string(),
        // Null where there are several: each entry has its own.
        "size": run.only_size(),
        "depth": run.depth(),
        "threads": run.threads,
        "qps": run.qps,
        "srq": run.srq,
        "bidirectional": run.bidirectional,
        "verified": !run.no_verify,
        "seed": seed,
        "interrupted": outcomes.iter().any(|outcome| matches!(outcome.end, End::Interrupted)),
        "operations": operations,
    })
}

fn entry(outcome: &Outcome) -> Value {
    let Flow { messages, bytes, elapsed } = total(outcome);
    let error = match &outcome.end {
        End::Failed(failure) => Value::from(failure.to_string()),
        End::Complete | End::Interrupted => Value::Null,
    };
    let latency = &outcome.latency_ns;
    let mut entry = flow(total(outcome));
    let more = json!({
        "operation": outcome.operation.to_string(),
        "size": outcome.size,
        "srq": outcome.srq,
        "gigabytes_per_second": per_second(bytes, elapsed) / 1e9,
        "mebibytes_per_second": per_second(bytes, elapsed) / f64::from(1 << 20),
        "cpu_seconds": outcome.cpu.as_secs_f64(),
        "cpu_ns_per_message": cpu_ns_per(outcome, messages),
        "cpu_ns_per_byte": cpu_ns_per(outcome, bytes),
        "latency_us": {
            "count": latency.len(),
            "min": at(outcome, 0.0),
            "p50": at(outcome, 0.5),
            "mean": latency.mean() / 1e3,
            "p99": at(outcome, 0.99),
            "p99.9": at(outcome, 0.999),
            "max": at(outcome, 1.0),
        },
        "wrong_messages": outcome.mismatches.count,
        "path_mtu": outcome.path_mtu,
        "counters": counters(&outcome.counters),
        "queue_pairs": outcome.queue_pairs.iter().map(queue_pair).collect::<Vec<_>>(),
        "sent_by_client": flow(outcome.directions()[0]),
        "sent_by_server": flow(outcome.directions()[1]),
        "intervals": outcome.intervals.iter().map(interval).collect::<Vec<_>>(),
        "error": error,
    });
    extend(&mut entry, more);
    entry
}

fn total(outcome: &Outcome) -> Flow {
    Flow { messages: outcome.messages, bytes: outcome.bytes, elapsed: outcome.elapsed }
}

fn flow(flow: Flow) -> Value {
    let Flow { messages, bytes, elapsed } = flow;
    json!({
        "messages": messages,
        "bytes": bytes,
        "seconds": elapsed.as_secs_f64(),
        "messages_per_second": per_second(messages, elapsed),
        "gigabits_per_second": gigabits_per_second(bytes, elapsed),
    })
}

fn queue_pair(pair: &QueuePair) -> Value {
    json!({
        "thread": pair.thread,
        "sent_by_client": flow(pair.ours),
        "sent_by_server": flow(pair.theirs),
    })
}

fn interval(interval: &Interval) -> Value {
    let mut entry = flow(interval.flow);
    let more = json!({
        "at_seconds": interval.at.as_secs_f64(),
        "counters": counters(&interval.counters),
    });
    extend(&mut entry, more);
    entry
}

fn counters(counters: &[(&'static str, u64)]) -> Value {
    json!(counters.iter().copied().collect::<BTreeMap<_, _>>())
}

/// Adds the fields of one object to another.
fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// A quantile of the latencies, in microseconds.
fn at(outcome: &Outcome, quantile: f64) -> f64 {
    let latency = &outcome.latency_ns;
    let ns = match quantile {
        0.0 => latency.min(),
        1.0 => latency.max(),
        quantile => latency.value_at_quantile(quantile),
    };
    ns as f64 / 1e3
}

pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

fn gigabits_per_second(bytes: u64, elapsed: Duration) -> f64 {
    per_second(bytes, elapsed) * 8.0 / 1e9
}

/// Processor time over a count, which may be none.
fn cpu_ns_per(outcome: &Outcome, count: u64) -> Option<f64> {
    (count > 0).then(|| outcome.cpu.as_secs_f64() * 1e9 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn run(text: &str) -> Run {
        let command = Cli::try_parse_from(text.split(' ')).unwrap().into_command();
        let Command::Loopback(args) = command else { panic!("{text}") };
        args.run
    }

    fn outcome() -> Outcome {
        let plans = run("ndkperf --operations write --size 4000000").plans(0).unwrap();
        let mut outcome = Outcome::new(&plans[0]);
        outcome.latency_ns.record(2_000).unwrap();
        (outcome.messages, outcome.bytes) = (1000, 4_000_000_000);
        outcome.elapsed = Duration::from_secs(2);
        outcome.cpu = Duration::from_secs(3);
        outcome
    }

    #[test]
    fn an_outcome_is_told_in_the_units_that_it_names() {
        let entry = entry(&outcome());
        assert_eq!(entry["operation"], "write");
        assert_eq!(entry["messages_per_second"], 500.0);
        assert_eq!(entry["gigabytes_per_second"], 2.0);
        assert_eq!(entry["gigabits_per_second"], 16.0);
        assert_eq!(entry["mebibytes_per_second"], 2e9 / 1_048_576.0);
        assert_eq!(entry["cpu_seconds"], 3.0);
        assert_eq!(entry["cpu_ns_per_message"], 3e6);
        assert_eq!(entry["cpu_ns_per_byte"], 0.75);
        assert_eq!(entry["error"], Value::Null);
        let median = entry["latency_us"]["p50"].as_f64().unwrap();
        assert!((median - 2.0).abs() < 0.01, "{median}");
        assert!(table(&[outcome()], Medium::Stream).to_string().contains("500"));
    }

    #[test]
    fn both_ends_are_told_where_both_sent() {
        let mut outcome = outcome();
        let flow = |messages, seconds| Flow {
            messages,
            bytes: messages * 4_000_000,
            elapsed: Duration::from_secs(seconds),
        };
        let pair = QueuePair { thread: 0, ours: flow(500, 2), theirs: Flow::default() };
        outcome.queue_pairs = vec![pair];
        assert_eq!(both_views(&outcome), None);
        outcome.bidirectional = true;
        outcome.queue_pairs = vec![QueuePair { theirs: flow(250, 1), ..pair }; 2];
        let told = "write of 4000000 B: the client sent 1000 messages at 16.000 Gb/s, \
                    the server 500 messages at 16.000 Gb/s";
        assert_eq!(both_views(&outcome).unwrap(), told);
        assert_eq!(entry(&outcome)["sent_by_server"]["messages"], 500);
    }

    #[test]
    fn a_table_is_as_wide_as_its_terminal_at_most() {
        let mut outcome = outcome();
        outcome.messages = 1_234_567_890;
        outcome.latency_ns.record(3_000_000_000).unwrap();
        for (width, columns) in [(200, 10), (80, 6), (60, 5)] {
            let mut table = table(std::slice::from_ref(&outcome), Medium::Terminal(width));
            let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(width), "{width}: {widest}\n{table}");
            assert_eq!(table.column_count(), columns, "{width}\n{table}");
        }
        let plain = table(&[outcome], Medium::Stream).to_string();
        assert!(plain.is_ascii() || !plain.contains('│'), "{plain}");
    }

    #[test]
    fn a_sweep_names_the_size_of_each_run_and_one_size_stands_below() {
        let mut outcomes = [outcome(), outcome()];
        let head = |outcomes: &[Outcome]| table(outcomes, Medium::Stream).lines().next().unwrap();
        assert!(!head(&outcomes).contains("bytes each"));
        outcomes[1].size = 64;
        assert!(head(&outcomes).contains("bytes each"));
        let edge = Value::Null;
        let swept = document(&run("ndkperf --size 4000000,64"), 0, &edge, &outcomes);
        assert_eq!(
            (&swept["schema"], &swept["schema_version"]),
            (&json!("ndkperf-run"), &json!(1))
        );
        assert_eq!(swept["size"], Value::Null);
        assert_eq!(swept["operations"][1]["size"], 64);
        let single = document(&run("ndkperf --size 64"), 0, &edge, &outcomes[1..]);
        assert_eq!(single["size"], 64);
    }

    /// Nothing over nothing is no figure.
    #[test]
    fn a_run_without_messages_has_no_cost_of_one() {
        let outcome = Outcome { messages: 0, bytes: 0, ..outcome() };
        let entry = entry(&outcome);
        assert_eq!(entry["cpu_ns_per_message"], Value::Null);
        assert_eq!(entry["cpu_ns_per_byte"], Value::Null);
        assert!(table(&[outcome], Medium::Stream).to_string().trim_end().ends_with('-'));
    }

    #[test]
    fn trouble_is_told_with_its_cause_and_none_is_not() {
        let mut outcome = outcome();
        outcome.counters = vec![("sent_pkts", 1000), ("resent_timer_pkts", 0)];
        assert_eq!(trouble(&outcome), None);
        outcome.counters = vec![
            ("sent_pkts", 1000),
            ("resent_timer_pkts", 4),
            ("resent_nak_pkts", 8),
            ("needless_resends", 3),
            ("paced_ns", 1_500_000),
        ];
        let told = "write of 4000000 B: 12 of 1000 packets sent again (4 by timer, 8 by NAK), 3 needlessly; \
                    paced for 1.5 ms";
        assert_eq!(trouble(&outcome).unwrap(), told);
        assert_eq!(entry(&outcome)["counters"]["resent_nak_pkts"], 8);
    }

    /// Goal: what the table tells of is counted under that name.
    #[test]
    fn the_counters_that_are_told_exist() {
        let (edge, _) = netadapter_glue::memory::pair(Default::default());
        let config = driver::ProviderConfig::new(vec!["10.0.0.1".parse().unwrap()]);
        let provider = driver::Provider::start(Box::new(edge), config).unwrap();
        let names: Vec<&str> = provider.counters().iter().map(|(name, _)| name).collect();
        let told = RESENT.map(|(name, _)| name);
        let others = [
            "needless_resends",
            "sent_pkts",
            "paced_ns",
            "packet_seq_err",
            "rcvd_rnr_err",
            "rp_cnp_handled",
            "rx_icrc_encapsulated",
            "edge_transmit_drops",
            "edge_refused",
            "edge_receive_drops",
            "edge_icmp_errors",
            "address_conflicts",
        ];
        for name in told.iter().chain(&others) {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn what_failed_in_the_middle_keeps_what_was_measured() {
        let failed = Outcome { end: End::Failed(crate::Failure::Disconnected), ..outcome() };
        let entry = entry(&failed);
        assert_eq!(entry["messages"], 1000);
        assert_eq!(entry["error"], "the peer disconnected before the end");
    }
}
