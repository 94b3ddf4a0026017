//! One run to the peer, short, of the program that it runs.

use std::time::Duration;

use ndk_consumer::Host;

use super::{Path, Peer};
use crate::completions::Waits;
use crate::failure::Failure;
use crate::perf::{self, End, Limit, Measure, Operation, Place, Plan, Posting};
use crate::rping;
use crate::stop;

/// The messages of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) operation: Operation,
    pub(super) size: u32,
    pub(super) messages: u64,
    pub(super) depth: u16,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) failure: Option<Failure>,
    pub(super) path_mtu: Option<u16>,
    /// The median time of a message.
    pub(super) median_us: Option<f64>,
    /// Messages whose data were wrong.
    pub(super) wrong: u64,
}

impl Attempt {
    pub(super) fn is_silent(&self) -> bool {
        self.failure.as_ref().is_some_and(Failure::is_silence)
    }

    /// The failure for the reader.
    pub(super) fn why(&self) -> String {
        self.failure.as_ref().map_or_else(String::new, ToString::to_string)
    }
}

/// Runs it.
///
/// # Errors
/// [`Failure::Interrupted`] alone: what else fails is the outcome.
pub(super) fn attempt(host: &Host, path: &Path, load: Load) -> Result<Attempt, Failure> {
    let attempt = match path.program {
        Peer::Ndkperf => perform(host, path, load),
        Peer::Rping => ping(host, path, load),
    };
    match attempt.failure {
        Some(failure) if failure.is_interruption() => Err(failure),
        failure => Ok(Attempt { failure, ..attempt }),
    }
}

fn perform(host: &Host, path: &Path, load: Load) -> Attempt {
    let Load { operation, size, messages, depth } = load;
    let plan = Plan {
        operation,
        measure: Measure::Bandwidth,
        size,
        depth,
        threads: 1,
        qps: 1,
        srq: false,
        bidirectional: false,
        limit: Limit::Messages(messages),
        warmup: None,
        posting: Posting { list: 1, silent: 1, inline: 0 },
        rate: None,
        interval: None,
        verify: true,
        seed: SEED,
        waits: Waits { patience: PATIENCE, busy_poll: false, cq_mod: 1 },
        place: Place { number: 1, runs: 1 },
    };
    let outcome = perf::run(host, path.local(), path.remote(), plan, &mut |_| ());
    let median_ns = outcome.latency_ns.value_at_quantile(0.5);
    Attempt {
        failure: match outcome.end {
            End::Failed(failure) => Some(failure),
            End::Interrupted => Some(Failure::Interrupted),
            End::Complete => None,
        },
        path_mtu: outcome.path_mtu,
        median_us: (outcome.messages > 0).then_some(median_ns as f64 / 1e3),
        wrong: outcome.mismatches.count,
    }
}

/// A ping of rping has a READ and a WRITE of the peer, each of `size` bytes, and small messages.
fn ping(host: &Host, path: &Path, load: Load) -> Attempt {
    let options = rping::Options {
        count: Some(load.messages),
        size: load.size.clamp(rping::SIZE_MIN, rping::SIZE_MAX),
        verbose: false,
        validate: true,
        patience: PATIENCE,
        stop: stop::requested,
    };
    let pinged = rping::connect(host.adapter(), path.local(), path.remote(), options);
    let wrong = u64::from(matches!(&pinged, Err(failure) if failure.is_mismatch()));
    Attempt { failure: pinged.err(), path_mtu: None, median_us: None, wrong }
}

const SEED: u64 = 1;
/// The time without progress after which a peer is silent.
const PATIENCE: Duration = Duration::from_secs(3);
