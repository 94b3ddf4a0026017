//! `--histogram`: the latencies of every run, as a log that tools of HdrHistogram read.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use crate::failure::Failure;
use crate::perf::Outcome;

/// A log that nothing is written to yet.
pub(crate) struct Log {
    file: File,
    path: PathBuf,
    start: SystemTime,
}

impl Log {
    /// Before the runs, so that none of them is for nothing where the file cannot be written.
    pub(crate) fn create(path: Option<&PathBuf>) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let named = |error| Failure::Output(error).during(path.display().to_string());
        let file = File::create(path).map_err(named)?;
        Ok(Some(Self { file, path: path.clone(), start: SystemTime::now() }))
    }

    /// One interval for each run that moved a message.
    pub(crate) fn write(self, outcomes: &[Outcome]) -> Result<(), Failure> {
        let path = self.path.display().to_string();
        let mut out = BufWriter::new(self.file);
        let written = write(&mut out, self.start, outcomes).and_then(|()| out.flush());
        written.map_err(|error| Failure::Output(error).during(path))
    }
}

fn write(out: &mut impl io::Write, start: SystemTime, outcomes: &[Outcome]) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[ndkperf: from post to completion, or half of a round trip with --latency, in nanoseconds]");
    builder.with_start_time(start).with_base_time(start).with_max_value_divisor(NS_PER_MS);
    let mut log = builder.begin_log_with(out, &mut serializer)?;
    for outcome in outcomes.iter().filter(|outcome| outcome.messages > 0) {
        let name = format!("{}-{}", outcome.operation, outcome.size);
        let since = outcome.began.and_then(|began| began.duration_since(start).ok());
        let since = since.unwrap_or(Duration::ZERO);
        log.write_histogram(&outcome.latency_ns, since, outcome.elapsed, Tag::new(&name)).map_err(
            |error| match error {
                IntervalLogWriterError::IoError(error) => error,
                IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
            },
        )?;
    }
    Ok(())
}

/// The log names the maximum of each interval in milliseconds, as other writers of such logs do.
const NS_PER_MS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    /// Goal: an interval tells when its run began, and a run that moved nothing has none.
    #[test]
    fn an_interval_begins_with_its_run() {
        let command = Cli::parse_from(["ndkperf", "--operations", "write,read"]).into_command();
        let Command::Loopback(args) = command else { panic!() };
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let outcome = |place: usize, messages, after_ms| {
            let mut outcome = Outcome::new(&args.run.plans(0).unwrap()[place]);
            outcome.began = Some(start + Duration::from_millis(after_ms));
            outcome.elapsed = Duration::from_millis(500);
            outcome.latency_ns.record(3_000_000).unwrap();
            Outcome { messages, ..outcome }
        };
        let mut log = Vec::new();
        write(&mut log, start, &[outcome(0, 1, 250), outcome(1, 0, 750)]).unwrap();
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains("#[BaseTime: 1000.000 (seconds since epoch)]"), "{log}");
        let intervals: Vec<&str> = log.lines().filter(|line| !line.starts_with('#')).collect();
        let [interval] = intervals[..] else { panic!("{log}") };
        assert!(interval.starts_with("Tag=write-65536,0.250,0.500,3.00"), "{interval}");
    }
}
