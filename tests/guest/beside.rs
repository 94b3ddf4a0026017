//! Stock perftest over `rdma_rxe`, and `ndkperf`: the same table of both, and a picture.
//!
//! Both move the same messages over veth pairs of the same guest (see the program's head), one tool after the other for
//! each line. Bandwidth with 128 requests at once, as perftest does; half a round trip, a READ's whole, as both programs
//! print it. perftest sleeps for its latencies of SEND and READ (`-e`); for those of WRITE it can but poll, as
//! the memory shows their end, and two that poll one processor wait for the scheduler.

use crate::lab::{Failure, Printed};
use crate::plan::{DEPTH, OPERATIONS};
use crate::report::{of_ndkperf, of_perftest};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const SIZES: [u32; 5] = [64, 512, 4096, 16_384, 65_536];
const MTU: u16 = 9000;
const PATH_MTU: u32 = 4096;

/// The tools, by the names of their documents.
const TOOLS: [Tool; 3] = [
    Tool { name: "perftest", flag: None },
    Tool { name: "ndkperf", flag: Some("") },
    Tool { name: "ndkperf-offload", flag: Some("--offload") },
];

struct Tool {
    name: &'static str,
    /// What `ndkperf` is told; `None` is perftest.
    flag: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Measure {
    Bandwidth,
    Latency,
}

impl Measure {
    const fn count(self, size: u32) -> u32 {
        match (self, size) {
            (Self::Bandwidth, ..=512) => 3000,
            (Self::Bandwidth, ..=4096) => 1500,
            (Self::Bandwidth, ..=16_384) => 600,
            (Self::Bandwidth, _) => 200,
            (Self::Latency, ..=4096) => 300,
            (Self::Latency, _) => 100,
        }
    }
}

fn name(measure: Measure, tool: &Tool, operation: &str, size: u32) -> String {
    format!("{measure:?}-{}-{operation}-{size}", tool.name)
}

fn points() -> impl Iterator<Item = (&'static str, u32)> {
    OPERATIONS.into_iter().flat_map(|operation| SIZES.map(|size| (operation, size)))
}

/// The lines behind `guest.sh`.
pub(crate) fn script() -> String {
    let mut lines = format!("mtu {MTU}\n");
    for (operation, size) in points() {
        for measure in [Measure::Bandwidth, Measure::Latency] {
            for tool in &TOOLS {
                let name = name(measure, tool, operation, size);
                let load = format!("{name} {operation} {size} {}", measure.count(size));
                let _ = match (measure, tool.flag) {
                    (Measure::Bandwidth, None) => {
                        writeln!(lines, "perftest {load} {DEPTH} {PATH_MTU}")
                    }
                    (Measure::Latency, None) => writeln!(lines, "perftest_lat {load} {PATH_MTU}"),
                    (Measure::Bandwidth, Some(flag)) => {
                        writeln!(lines, "ours {load} {DEPTH} {flag}")
                    }
                    (Measure::Latency, Some(flag)) => writeln!(lines, "ours_lat {load} {flag}"),
                };
            }
        }
    }
    lines
}

/// One tool with messages of one operation and size.
struct Figures {
    messages_per_second: f64,
    /// The median, and the 99th percentile.
    latency_us: [f64; 2],
}

struct Row {
    operation: &'static str,
    size: u32,
    /// As [`TOOLS`].
    tools: [Figures; 3],
}

pub(crate) struct Beside {
    rows: Vec<Row>,
    /// The schema of `ndkperf`'s documents, and its version.
    schema: [Value; 2],
}

impl Beside {
    /// # Errors
    /// A measurement that is not there.
    pub(crate) fn of(printed: &Printed) -> Result<Self, Failure> {
        let text = |name: &str| printed.get(name).map_or("", String::as_str);
        let missing =
            |name: &str| Failure::Wrong(format!("no figure of {name} in {:?}", text(name)));
        let mut rows = Vec::new();
        for (operation, size) in points() {
            let of = |tool: &Tool| {
                let names = [Measure::Bandwidth, Measure::Latency]
                    .map(|what| name(what, tool, operation, size));
                let [bandwidth, latency] = [0, 1].map(|at| text(&names[at]));
                let (rate, latency_us) = match tool.flag {
                    None => (of_perftest(size, bandwidth), latency_of_perftest(latency)),
                    Some(_) => (of_ndkperf(bandwidth), latency_of_ndkperf(latency)),
                };
                Ok(Figures {
                    messages_per_second: rate.ok_or_else(|| missing(&names[0]))?,
                    latency_us: latency_us.ok_or_else(|| missing(&names[1]))?,
                })
            };
            let [a, b, c] = &TOOLS;
            rows.push(Row { operation, size, tools: [of(a)?, of(b)?, of(c)?] });
        }
        let first = name(Measure::Bandwidth, &TOOLS[1], OPERATIONS[0], SIZES[0]);
        let document: Value = serde_json::from_str(text(&first)).unwrap_or(Value::Null);
        let schema = ["schema", "schema_version"].map(|field| document[field].clone());
        Ok(Self { rows, schema })
    }

    /// In Markdown.
    pub(crate) fn table(&self) -> String {
        let mut table = String::from(
            "| | perftest over rxe: MiB/s | ndkperf | with `--offload` | over perftest | perftest: median µs | ndkperf | with `--offload` |\n\
             | --- | --: | --: | --: | --: | --: | --: | --: |\n",
        );
        for Row { operation, size, tools } in &self.rows {
            let [theirs, ours, offload] = tools
                .each_ref()
                .map(|tool| tool.messages_per_second * f64::from(*size) / 1_048_576.0);
            let [their_us, our_us, offload_us] = tools.each_ref().map(|tool| tool.latency_us[0]);
            let _ = writeln!(
                table,
                "| {operation} {size} | {theirs:.1} | {ours:.1} | {offload:.1} | {:.2}; {:.2} | {their_us:.1} | {our_us:.1} | {offload_us:.1} |",
                ours / theirs,
                offload / theirs,
            );
        }
        table
    }

    /// Writes a document of each tool, as `ndkperf plot` reads it. Returns the files.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn write_documents(&self, dir: &Path) -> Result<Vec<String>, Failure> {
        let write = |(number, tool): (usize, &Tool)| {
            let file = dir.join(format!("{}.json", tool.name));
            let text = self.document(number).to_string();
            fs::write(&file, text)
                .map_err(|error| Failure::Wrong(format!("{}: {error}", file.display())))?;
            Ok(file.display().to_string())
        };
        TOOLS.iter().enumerate().map(write).collect()
    }

    fn document(&self, tool: usize) -> Value {
        let run = |row: &Row| {
            let Figures { messages_per_second, latency_us: [p50, p99] } = row.tools[tool];
            json!({
                "operation": row.operation,
                "size": row.size,
                "messages": Measure::Bandwidth.count(row.size),
                "messages_per_second": messages_per_second,
                "gigabits_per_second": messages_per_second * f64::from(row.size) * 8.0 / 1e9,
                "latency_us": { "p50": p50, "p99": p99 },
                "wrong_messages": 0,
            })
        };
        let [schema, version] = &self.schema;
        json!({
            "schema": schema,
            "schema_version": version,
            "edge": { "kind": TOOLS[tool].name },
            "depth": DEPTH,
            "verified": false,
            "operations": self.rows.iter().map(run).collect::<Vec<_>>(),
        })
    }
}

/// Of the one row of figures: bytes, iterations, least, most, typical, average, deviation, two percentiles.
fn latency_of_perftest(printed: &str) -> Option<[f64; 2]> {
    let row = |line: &str| {
        let figures: Vec<f64> =
            line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        <[f64; 9]>::try_from(figures).ok()
    };
    printed.lines().find_map(row).map(|[_, _, _, _, typical, _, _, p99, _]| [typical, p99])
}

fn latency_of_ndkperf(printed: &str) -> Option<[f64; 2]> {
    let document: Value = serde_json::from_str(printed).ok()?;
    let latency = &document["operations"][0]["latency_us"];
    Some([latency["p50"].as_f64()?, latency["p99"].as_f64()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftests_latencies_are_found_among_its_words() {
        let printed = " Mtu             : 4096[B]\n #bytes #iterations    t_min[usec]    t_max[usec]\n \
                       64      200          40.81          60.38        50.13    \t       50.21       \t1.71   \t\t57.78   \t\t60.38  \n---\n";
        assert_eq!(latency_of_perftest(printed), Some([50.13, 57.78]));
        assert_eq!(latency_of_perftest(" 4096 1500 40.56 39.06 0.010000"), None);
    }

    #[test]
    fn each_measurement_stands_in_the_script_once() {
        let script = script();
        for (operation, size) in points() {
            for (measure, tool) in [Measure::Bandwidth, Measure::Latency]
                .iter()
                .flat_map(|m| TOOLS.iter().map(move |t| (*m, t)))
            {
                let name = format!(" {} ", name(measure, tool, operation, size));
                assert_eq!(script.matches(&name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn a_measurement_that_failed_is_named() {
        let Err(Failure::Wrong(said)) = Beside::of(&Printed::new()) else {
            panic!("nothing was measured");
        };
        assert!(said.contains("Bandwidth-perftest-write-64"), "{said}");
    }
}
