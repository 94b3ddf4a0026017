//! What a server tells beside the ends of its runs: what takes service from its clients, or would. Each kind is told with its total, and
//! no more often than once in [`PAUSE`].

use std::time::{Duration, Instant};

use driver::AdapterCounters;

use crate::perf::{QUEUE_PAIRS_MAX, Tally};
use crate::report::{OWN_ADDRESS, REFUSED};

/// The time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// What stands between a server and its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble<'a> {
    /// The edge has failed.
    pub(crate) edge_failed: bool,
    /// There was no place.
    pub(crate) refused: &'a Tally,
    /// The peer did not show that it is there.
    pub(crate) unproven: &'a Tally,
    /// The system had no thread for them.
    pub(crate) threadless: &'a Tally,
}

/// The notices of a server.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Frames that the kernel refuses are told of once: the clients cannot know.
    refused_frames: bool,
    edge_failed: bool,
    conflicts: Notice,
    refused: Notice,
    unproven: Notice,
    threadless: Notice,
}

impl Notices {
    /// The lines that are due.
    pub(crate) fn due(
        &mut self,
        counters: &AdapterCounters,
        trouble: &Trouble<'_>,
        now: Instant,
    ) -> Vec<String> {
        let Trouble { edge_failed, refused, unproven, threadless } = trouble;
        let mut lines = Vec::new();
        if *edge_failed && !self.edge_failed {
            lines.push(EDGE_FAILED.into());
        }
        self.edge_failed = *edge_failed;
        let (drops, conflicts) = (counters.edge, counters.address_conflicts);
        if drops.refused > 0 && !self.refused_frames {
            self.refused_frames = true;
            lines.push(format!("frames given up: {}, {} {REFUSED}", drops.transmit, drops.refused));
        }
        if self.conflicts.is_due(conflicts, now) {
            lines.push(format!("{conflicts} {OWN_ADDRESS}: one of the two has to give it up"));
        }
        if self.refused.is_due(refused.count, now) {
            let Tally { count, last } = refused;
            lines.push(format!(
                "{count} connects refused, the last of {last}: a server has {QUEUE_PAIRS_MAX} connections at once"
            ));
        }
        if self.unproven.is_due(unproven.count, now) {
            let Tally { count, last } = unproven;
            lines.push(format!("{count} connects came to nothing, the last of {last}"));
        }
        if self.threadless.is_due(threadless.count, now) {
            let Tally { count, last } = threadless;
            lines.push(format!("{count} connects without a thread, the last of {last}"));
        }
        lines
    }

    /// At the end: what was not told yet is due at once.
    pub(crate) fn end_pauses(&mut self) {
        let Self { conflicts, refused, unproven, threadless, .. } = self;
        for notice in [conflicts, refused, unproven, threadless] {
            notice.not_before = None;
        }
    }
}

const EDGE_FAILED: &str =
    "the edge has failed: where its interface was deleted, serve anew when there is another";

/// A kind, with what was told of it.
#[derive(Debug, Default)]
struct Notice {
    told: u64,
    not_before: Option<Instant>,
}

impl Notice {
    /// Whether to tell of `count` now.
    fn is_due(&mut self, count: u64, now: Instant) -> bool {
        let due = count > self.told && self.not_before.is_none_or(|at| at <= now);
        if due {
            (self.told, self.not_before) = (count, Some(now + PAUSE));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::edge;
    use clap::Parser;

    #[derive(Default)]
    struct Seen {
        edge_failed: bool,
        tallies: [Tally; 3],
    }

    impl Seen {
        fn trouble(&self) -> Trouble<'_> {
            let [refused, unproven, threadless] = &self.tallies;
            Trouble { edge_failed: self.edge_failed, refused, unproven, threadless }
        }
    }

    /// Goal: each kind is told at once, then with its total after the pause, and what is left at the end.
    #[test]
    fn each_kind_is_told_once_in_a_while() {
        let Command::Loopback(args) = Cli::parse_from(["ndkperf"]).into_command() else { panic!() };
        let [_client, server] = edge::loopback(&args, 17).unwrap();
        let mut counters = server.host.provider().counters();
        let (mut notices, start, mut seen) = (Notices::default(), Instant::now(), Seen::default());
        assert_eq!(notices.due(&counters, &seen.trouble(), start), Vec::<String>::new());
        for (tally, last) in seen.tallies.iter_mut().zip(["10.0.0.7:1", "10.0.0.8:2: why", "x"]) {
            tally.add(last.into());
        }
        seen.edge_failed = true;
        counters.address_conflicts = 3;
        let told = notices.due(&counters, &seen.trouble(), start);
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(told[0].starts_with("the edge has failed"), "{told:?}");
        assert!(told[1].starts_with("3 frames of another host that has our address"), "{told:?}");
        assert!(told[2].starts_with("1 connects refused, the last of 10.0.0.7:1"), "{told:?}");
        assert!(told[3].ends_with("the last of 10.0.0.8:2: why"), "{told:?}");
        assert_eq!(told[4], "1 connects without a thread, the last of x");
        counters.address_conflicts = 5;
        seen.tallies[0].add("10.0.0.9:3".into());
        let soon = start + PAUSE / 2;
        assert!(notices.due(&counters, &seen.trouble(), soon).is_empty());
        let later = notices.due(&counters, &seen.trouble(), start + PAUSE);
        assert!(later.len() == 2 && later[0].starts_with("5 frames"), "{later:?}");
        assert!(later[1].starts_with("2 connects refused, the last of 10.0.0.9:3"), "{later:?}");
        seen.tallies[1].add("10.0.0.8:2: why".into());
        seen.edge_failed = false;
        assert!(notices.due(&counters, &seen.trouble(), soon).is_empty());
        notices.end_pauses();
        seen.edge_failed = true;
        let rest = notices.due(&counters, &seen.trouble(), start);
        assert!(rest.len() == 2 && rest[1].starts_with("2 connects came to nothing"), "{rest:?}");
    }
}
