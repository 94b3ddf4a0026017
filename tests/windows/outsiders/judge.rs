//! Whose failure a run is: the consumer's own, by evidence, or the product's.
//!
//! A failure is the consumer's own if it is in [`OWN`] with the address of the code that makes it, and the report shows just that. A breach
//! of the rig's rules is the product's, and so is everything that is not explained.

use std::fmt;

const ACCESS_VIOLATION: u32 = 0xC000_0005;
const CANCELLED: u32 = 0xC000_0120;
const IO_TIMEOUT: u32 = 0xC000_00B5;
const INVALID_DEVICE_STATE: u32 = 0xC000_0184;
const CONNECTION_INVALID: u32 = 0xC000_023A;
const TIMEOUT: u32 = 0x102;

/// The rig's words for a pointer that was in pool which the consumer has freed.
const USES_FREED: &str = "it follows a pointer in pool that it has freed itself";

/// Requests that a test of READs or WRITEs ends well before its time is over, at least.
const MIN_REQUESTS: usize = 100;

/// Behind the waits for a message of the server, in the READ and in the WRITE test of NDKPing: they have no limit.
const MESSAGE_WAITS: &[usize] = &[0x498b, 0x6055];

/// What of a report shows that a failure is the consumer's own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sign {
    /// It stops at this address, and the rig says why.
    Stops { rva: usize, because: &'static str },
    /// It stops at this address, as a WRITE was refused that it posted after the disconnect.
    Refused { rva: usize },
    /// One side returns this status, which nothing of the provider has given, and the other succeeds.
    Makes { status: u32 },
    /// It has polled a CQ for two seconds that it had armed: the notification took what the poll waits for. Then it returns,
    /// waits for ever for the other side, or stops, at these addresses.
    PollsInVain { stops: usize, waits: &'static [usize] },
    /// One side has ended with this status, which nothing of the provider has given, and the other waits for it for ever at this
    /// address.
    LeftAlone { status: u32, waits: &'static [usize] },
}

/// A failure that is a consumer's own.
#[derive(Debug)]
pub(crate) struct Own {
    consumer: &'static str,
    tests: &'static [&'static str],
    sign: Sign,
    /// The code that makes it, and why.
    why: &'static str,
}

/// All that are known; README.md tells more of each.
pub(crate) const OWN: &[Own] = &[
    Own {
        consumer: "NDKPing",
        tests: &["rping"],
        sign: Sign::Makes { status: INVALID_DEVICE_STATE },
        why: "0xc2e0: a post finds the state that the callback of the peer's disconnect has left",
    },
    Own {
        consumer: "NDKPerf",
        tests: &["rping"],
        sign: Sign::Makes { status: INVALID_DEVICE_STATE },
        why: "0x7b67: a post finds the state that the callback of the peer's disconnect has left",
    },
    Own {
        consumer: "NDKPing",
        tests: &["read", "write"],
        sign: Sign::PollsInVain { stops: 0xb9da, waits: MESSAGE_WAITS },
        why: "0x2530: it polls the CQ of which it has armed the notification",
    },
    Own {
        consumer: "NDKPing",
        tests: &["read", "write"],
        sign: Sign::LeftAlone { status: INVALID_DEVICE_STATE, waits: MESSAGE_WAITS },
        why: "0xc2e0: the server's post finds another state than that of a connection, and its client waits for ever",
    },
    Own {
        consumer: "NDKPing",
        tests: &["rping"],
        sign: Sign::Stops { rva: 0x9a65, because: USES_FREED },
        why: "0x9a65: its last SEND ends after 0x4658 has freed the request",
    },
    Own {
        consumer: "NDKPerf",
        tests: &["rping", "rperf"],
        sign: Sign::Stops { rva: 0x6dad, because: USES_FREED },
        why: "0x6dad: it reads the link of a request that it has posted, which has ended",
    },
    Own {
        consumer: "NDKPerf",
        tests: &["rperf"],
        sign: Sign::Refused { rva: 0x189c },
        why: "0x189c: it asserts that a WRITE is taken, though the server has gone",
    },
];

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.consumer, self.why)
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    Own(&'static Own),
    Products(String),
}

/// Judges the report of a run of this consumer and test.
pub(crate) fn judge(consumer: &str, test: &str, report: &str) -> Outcome {
    if let Some(breach) = report.lines().find(|line| line.contains("BREACH")) {
        return Outcome::Products(breach.into());
    }
    let report = Report(report);
    let Some(end) = report.end() else { return Outcome::Products("no end is told".into()) };
    if matches!(end, End::Returned { .. }) && !report.0.contains("\nverdict: pass") {
        return Outcome::Products("no verdict".into());
    }
    if let Some(why) = report.lacks(test, end) {
        return Outcome::Products(why);
    }
    if report.passes(test, end) {
        return Outcome::Passed;
    }
    let known = OWN.iter().find(|own| {
        own.consumer == consumer && own.tests.contains(&test) && report.shows(own.sign, end)
    });
    known.map_or_else(|| Outcome::Products(format!("not explained: {end:x?}")), Outcome::Own)
}

/// The end of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End<'a> {
    Stopped {
        rva: usize,
        because: &'a str,
    },
    Returned {
        client: u32,
        server: u32,
    },
    /// One side waits for ever.
    Waits,
}

struct Report<'a>(&'a str);

impl<'a> Report<'a> {
    fn end(&self) -> Option<End<'a>> {
        let waits = |line: &str| (line == "the consumer does not end").then_some(End::Waits);
        self.0
            .lines()
            .find_map(|line| stop(line).or_else(|| statuses(line)).or_else(|| waits(line)))
    }

    /// What a run may not lack, whoever fails in it: a result for each request, a completion for each notification, and the right
    /// bytes.
    fn lacks(&self, test: &str, end: End<'_>) -> Option<String> {
        let [posted, ended] = self.requests();
        if matches!(end, End::Returned { .. }) && posted != ended {
            return Some(format!("{posted} requests have {ended} results"));
        }
        // Of READ and WRITE tests the consumer polls CQs itself that it has armed.
        let empty = self.number(", ", " of them empty");
        if !matches!(test, "read" | "write") && empty > 0 {
            return Some(format!("{empty} notifications found nothing"));
        }
        if self.crossed("a notification").iter().any(|&(status, _)| status != 0) {
            return Some("a CQ has failed".into());
        }
        let (arrived, compared) = (self.succeeded() / 2, self.number("the bytes of ", " requests"));
        let returned = matches!(end, End::Returned { .. });
        (returned && compared < arrived.min(MIN_REQUESTS))
            .then(|| format!("the bytes of {compared} requests were compared"))
    }

    /// Results of success.
    fn succeeded(&self) -> usize {
        self.crossed("a result").iter().filter(|result| result.0 == 0).map(|result| result.1).sum()
    }

    /// The number between two texts of a line.
    fn number(&self, before: &str, behind: &str) -> usize {
        let of = |line: &str| {
            let (_, rest) = line.strip_prefix("boundary: ")?.split_once(before)?;
            rest.split_once(behind)?.0.parse().ok()
        };
        self.0.lines().find_map(of).unwrap_or(0)
    }

    /// Both sides succeed; of a test that goes on until the server's time is over, the server and all requests before.
    fn passes(&self, test: &str, end: End<'_>) -> bool {
        let End::Returned { client, server: 0 } = end else { return false };
        let function = match test {
            "read" => "NdkRead",
            "write" | "rperf" => "NdkWrite",
            _ => return client == 0,
        };
        // The request under which the server has invalidated its region, or gone away, and those behind it.
        let is_last = |status| matches!(status, ACCESS_VIOLATION | IO_TIMEOUT);
        let results = self.crossed("a result");
        let right = results.iter().all(|&(status, count)| {
            matches!(status, 0 | CANCELLED) || is_last(status) && count == 1
        });
        let posted = self.crossed(function);
        // The one that comes when the server has gone is refused.
        let is_right = |&(status, count)| status == 0 || status == CONNECTION_INVALID && count == 1;
        let enough = posted.iter().all(is_right)
            && posted.iter().map(|(_, count)| count).sum::<usize>() >= MIN_REQUESTS
            && results.contains_at_least(0, MIN_REQUESTS);
        let end = match client {
            0 | ACCESS_VIOLATION | CONNECTION_INVALID => true,
            TIMEOUT | INVALID_DEVICE_STATE => !self.provider_gave(client),
            _ => false,
        };
        right && enough && end && !self.polls_in_vain()
    }

    fn shows(&self, sign: Sign, end: End<'_>) -> bool {
        match (sign, end) {
            (Sign::Stops { rva, because }, End::Stopped { rva: at, because: why }) => {
                rva == at && because == why
            }
            (Sign::Refused { rva }, End::Stopped { rva: at, because: why }) => {
                rva == at
                    && why == "an assertion does not hold"
                    && self.crossed("NdkWrite").contains(&(CONNECTION_INVALID, 1))
                    // Its event may be on its way yet when the server has begun to close.
                    && ["a disconnect event", "NdkCloseConnector"]
                        .iter()
                        .any(|what| !self.crossed(what).is_empty())
            }
            (Sign::Makes { status }, End::Returned { client, server }) => {
                [(status, 0), (0, status)].contains(&(client, server))
                    && !self.provider_gave(status)
            }
            (Sign::PollsInVain { .. }, End::Returned { .. }) => {
                self.polls_in_vain() && self.all_have_ended()
            }
            (Sign::PollsInVain { waits, .. }, End::Waits) => {
                self.polls_in_vain() && self.all_have_ended() && self.waits_at(waits)
            }
            (Sign::PollsInVain { stops, .. }, End::Stopped { rva: at, .. }) => {
                stops == at && self.polls_in_vain() && self.all_have_ended()
            }
            (Sign::LeftAlone { status, waits }, End::Waits) => {
                let trace = format!(": {status:#x}");
                let traced =
                    |line: &str| line.starts_with("the consumer traces") && line.ends_with(&trace);
                self.0.lines().any(traced)
                    && self.0.contains("the server has ended")
                    && !self.provider_gave(status)
                    && self.all_have_ended()
                    && self.waits_at(waits)
            }
            (Sign::Stops { .. } | Sign::Refused { .. }, End::Returned { .. } | End::Waits)
            | (Sign::Makes { .. }, End::Stopped { .. } | End::Waits)
            | (Sign::LeftAlone { .. }, End::Returned { .. } | End::Stopped { .. }) => false,
        }
    }

    /// Whether its code waits at one of these, and nowhere else.
    fn waits_at(&self, rvas: &[usize]) -> bool {
        let place = |line: &'a str| line.strip_prefix("the consumer waits without a limit at ");
        let places: Vec<_> = self.0.lines().filter_map(place).collect();
        let known = |place: &&str| rvas.iter().any(|rva| place.ends_with(&format!(" {rva:#x}")));
        !places.is_empty() && places.iter().all(known)
    }

    /// Whether all requests have ended but receives, and each SEND has arrived: the consumer waits for nothing of the provider.
    fn all_have_ended(&self) -> bool {
        let [posted, ended] = self.requests();
        let receives: usize = self.crossed("NdkReceive").iter().map(|(_, count)| count).sum();
        // What a flush cancels are receives.
        let cancelled = self.crossed("a result").into_iter().filter(|result| result.0 == CANCELLED);
        let cancelled: usize = cancelled.map(|(_, count)| count).sum();
        ended + receives >= posted + cancelled
            && self.number("and ", " SENDs have not arrived") == 0
    }

    /// Requests that were posted, and results.
    fn requests(&self) -> [usize; 2] {
        const POSTS: [&str; 6] =
            ["NdkSend", "NdkReceive", "NdkRead", "NdkWrite", "NdkFastRegister", "NdkInvalidate"];
        let posted = POSTS.iter().flat_map(|function| self.crossed(function));
        let posted = posted.filter(|&(status, _)| status == 0).map(|(_, count)| count).sum();
        [posted, self.crossed("a result").iter().map(|(_, count)| count).sum()]
    }

    /// Whether a function, a completion, a notification or a result of the provider had this status.
    fn provider_gave(&self, status: u32) -> bool {
        let end = format!(" {status:#x}");
        self.0.lines().any(|line| line.starts_with("boundary: ") && line.ends_with(&end))
    }

    /// Its trace 18 is that of a poll that has found nothing for two seconds.
    fn polls_in_vain(&self) -> bool {
        let place = |text: &str| self.0.find(text);
        match (place("the consumer traces error 18: 0x102"), place("the server has ended")) {
            (Some(trace), Some(end)) => trace < end,
            (trace, _) => trace.is_some(),
        }
    }

    /// The statuses of something that has crossed the boundary, with their numbers.
    fn crossed(&self, what: &str) -> Vec<(u32, usize)> {
        let of = |line: &str| {
            let (count, rest) = line.strip_prefix("boundary: ")?.split_once(" times ")?;
            let status = rest.strip_prefix(what)?.strip_prefix(" 0x")?;
            Some((u32::from_str_radix(status, 16).ok()?, count.parse().ok()?))
        };
        self.0.lines().filter_map(of).collect()
    }
}

trait Counts {
    fn contains_at_least(&self, status: u32, count: usize) -> bool;
}

impl Counts for Vec<(u32, usize)> {
    fn contains_at_least(&self, status: u32, count: usize) -> bool {
        self.iter().any(|&(of, number)| of == status && number >= count)
    }
}

/// `the consumer stops at NAME RVA: WHY`
fn stop(line: &str) -> Option<End<'_>> {
    let (place, because) = line.strip_prefix("the consumer stops at ")?.split_once(": ")?;
    let (_, rva) = place.split_once(" 0x")?;
    Some(End::Stopped { rva: usize::from_str_radix(rva, 16).ok()?, because })
}

/// `NAME TEST: client STATUS, server STATUS`
fn statuses(line: &str) -> Option<End<'_>> {
    let (_, statuses) = line.split_once(": client 0x")?;
    let (client, server) = statuses.split_once(", server 0x")?;
    let [client, server] = [client, server].map(|status| u32::from_str_radix(status, 16).ok());
    Some(End::Returned { client: client?, server: server? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: &str = "boundary: 2 times NdkReceive 0x0\nboundary: 2 times a result 0x0\n\
        boundary: the bytes of 1 requests were compared, and 0 SENDs have not arrived\n";

    fn outcome(consumer: &str, test: &str, report: &str) -> &'static str {
        match judge(consumer, test, report) {
            Outcome::Passed => "passed",
            Outcome::Own(own) => own.why,
            Outcome::Products(_) => "the product's",
        }
    }

    fn ended(client: u32, server: u32, more: &str) -> String {
        format!(
            "NDKPing rping: client {client:#x}, server {server:#x}\n{REQUESTS}{more}\nverdict: pass\n"
        )
    }

    #[test]
    fn what_is_not_explained_is_the_products() {
        let cases = [
            (ended(0, 0, ""), "passed"),
            (ended(0, INVALID_DEVICE_STATE, ""), OWN[0].why),
            (ended(INVALID_DEVICE_STATE, 0, ""), OWN[0].why),
            // The provider gave it.
            (
                ended(0, INVALID_DEVICE_STATE, "boundary: 1 times NdkSend 0xc0000184"),
                "the product's",
            ),
            (ended(0, TIMEOUT, ""), "the product's"),
            (ended(INVALID_DEVICE_STATE, INVALID_DEVICE_STATE, ""), "the product's"),
            (ended(0, 0, "BREACH: a rule"), "the product's"),
            (ended(0, INVALID_DEVICE_STATE, "BREACH: a rule"), "the product's"),
            (ended(0, 0, "").replace("verdict: pass", "verdict: fail"), "the product's"),
            // A request has not ended, or has twice.
            (ended(0, 0, "boundary: 1 times NdkSend 0x0"), "the product's"),
            (ended(0, 0, "boundary: 1 times a result 0xc0000120"), "the product's"),
            // A notification of nothing, or of a failure; bytes that nothing has compared.
            (ended(0, 0, "boundary: 9 notifications, 1 of them empty"), "the product's"),
            (ended(0, 0, "boundary: 1 times a notification 0x80000005"), "the product's"),
            (ended(0, 0, "").replace("bytes of 1", "bytes of 0"), "the product's"),
            ("nothing".into(), "the product's"),
            ("the consumer does not end".into(), "the product's"),
        ];
        for (report, wanted) in cases {
            assert_eq!(outcome("NDKPing", "rping", &report), wanted, "{report}");
        }
        assert_eq!(
            outcome("NDKPing", "read", &ended(0, INVALID_DEVICE_STATE, "")),
            "the product's"
        );
    }

    #[test]
    fn a_stop_is_the_consumers_own_at_its_place_alone() {
        let stop = |at: &str, why: &str| format!("the consumer stops at NDKPerf {at}: {why}\n");
        let own = outcome("NDKPerf", "rperf", &stop("0x6dad", USES_FREED));
        assert!(own.starts_with("0x6dad"), "{own}");
        for report in [stop("0x6dae", USES_FREED), stop("0x6dad", "it faults")] {
            assert_eq!(outcome("NDKPerf", "rperf", &report), "the product's");
        }
        assert_eq!(outcome("NDKPing", "rperf", &stop("0x6dad", USES_FREED)), "the product's");
        let refused = stop("0x189c", "an assertion does not hold")
            + "boundary: 1 times NdkWrite 0xc000023a\nboundary: 1 times ";
        for (gone, is_own) in [
            ("a disconnect event 0x0", true),
            ("NdkCloseConnector 0x103", true),
            ("NdkCloseMr 0x103", false),
        ] {
            let judged = outcome("NDKPerf", "rperf", &(refused.clone() + gone));
            assert_eq!(judged != "the product's", is_own, "{gone}");
        }
    }

    #[test]
    fn a_test_of_reads_ends_with_the_servers_time() {
        let report = |reads: usize, last: u32, before: &str, after: &str| {
            format!(
                "{before}the server has ended\n{after}NDKPing read: client {last:#x}, server 0x0\n\
                 boundary: {reads} times NdkRead 0x0\nboundary: {} times a result 0x0\n\
                 boundary: 1 times a result 0xc0000005\n\
                 boundary: the bytes of {reads} requests were compared, and 0 SENDs have not arrived\nverdict: pass\n",
                reads - 1
            )
        };
        let in_vain = "the consumer traces error 18: 0x102\n";
        let own = "0x2530: it polls the CQ of which it has armed the notification";
        for (report, wanted) in [
            (report(900, ACCESS_VIOLATION, "", ""), "passed"),
            (report(900, INVALID_DEVICE_STATE, "", in_vain), "passed"),
            (report(900, CONNECTION_INVALID, "", ""), "passed"),
            (report(900, CANCELLED, "", ""), "the product's"),
            (report(95, ACCESS_VIOLATION, "", ""), "the product's"),
            (report(900, INVALID_DEVICE_STATE, in_vain, ""), own),
        ] {
            assert_eq!(outcome("NDKPing", "read", &report), wanted, "{report}");
        }
    }
}
