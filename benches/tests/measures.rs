//! What `ndkperf` measures, and how: latency, several queue pairs, both directions, intervals, ways of posting.

mod kit;

use kit::{Network, json, operations, run, text};
use serde_json::Value;

// ---- latency -----------------------------------------------------------------------------------

/// Goal: every message is answered, and each answer has its latency, on a bad network, too.
#[test]
fn a_latency_is_of_every_message() {
    for more in ["", "--size 5000 --loss 2 --corrupt 1", "--size 1 --no-verify --ip6 --inline 64"] {
        let report = json(&format!("--latency --iterations 300 --seed 3 {more}"));
        assert_eq!((&report["measure"], &report["depth"]), (&"lat".into(), &1.into()));
        let runs = operations(&report);
        assert_eq!(names(runs), ["send", "write", "read"]);
        for run in runs {
            assert_eq!((number(run, "messages"), number(run, "wrong_messages")), (300, 0));
            let latency = &run["latency_us"];
            assert_eq!(latency["count"], 300);
            let quantiles =
                ["min", "p50", "p99", "p99.9", "max"].map(|name| latency[name].as_f64().unwrap());
            assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{latency}");
        }
    }
}

#[test]
fn a_latency_has_the_columns_of_perftest() {
    let output = run("--latency --iterations 50 --operations write");
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    let head = table.lines().next().unwrap();
    for column in ["min µs", "max µs", "typical µs", "average µs", "p99 µs", "p99.9 µs"] {
        assert!(head.contains(column), "{head}");
    }
    assert!(!head.contains("Gb/s") && table.contains("2 bytes each"), "{table}");
}

/// Method: the server counts the pings that it has answered.
#[test]
fn two_processes_answer_each_other() {
    let network = Network::new();
    let mut server = network.start("server", &format!("serve --runs 3 {}", network.dgram(1)));
    let load = "--latency --iterations 200 --warmup 50 --size 3000";
    let report = json(&format!("connect 10.0.0.1 {load} {}", network.dgram(2)));
    for run in operations(&report) {
        assert_eq!((number(run, "messages"), number(run, "wrong_messages")), (200, 0));
    }
    assert!(server.wait().success(), "{}", server.log());
    assert_eq!(server.log().matches(": 250 messages").count(), 3, "{}", server.log());
}

// ---- queue pairs and threads -------------------------------------------------------------------

/// Goal: the messages are spread over all queue pairs, and the server has a connection for each.
#[test]
fn messages_are_spread_over_queue_pairs_and_threads() {
    let network = Network::new();
    let mut server = network.start("server", &format!("serve --runs 3 {}", network.dgram(1)));
    let load = "--qps 3 --threads 2 --iterations 100 --size 2000";
    let report = json(&format!("connect 10.0.0.1 {load} {}", network.dgram(2)));
    for run in operations(&report) {
        let each = |name: &str| -> Vec<u64> {
            list(&run["queue_pairs"]).iter().map(|pair| number(pair, name)).collect()
        };
        assert_eq!(each("thread"), [0, 0, 0, 1, 1, 1]);
        let sent: Vec<u64> = list(&run["queue_pairs"])
            .iter()
            .map(|pair| number(&pair["sent_by_client"], "messages"))
            .collect();
        assert_eq!(sent, [17, 17, 17, 17, 16, 16]);
        assert_eq!((number(run, "messages"), number(run, "bytes")), (100, 200_000));
        assert_eq!(number(run, "wrong_messages"), 0);
    }
    assert!(server.wait().success(), "{}", server.log());
    let told = "10.0.0.2: 100 messages over 6 queue pairs";
    assert_eq!(server.log().matches(told).count(), 3, "{}", server.log());
}

// ---- shared receives ---------------------------------------------------------------------------

/// Goal: the queue pairs of a thread share their receives at both ends, on a bad network, too: every message is the one
/// that was sent on its queue pair, and a document says which runs shared.
#[test]
fn queue_pairs_share_their_receives() {
    let faults = "--loss 2 --duplicate 1 --reorder 2 --corrupt 0.5 --seed 8";
    let load = "--srq --qps 4 --threads 2 --bidirectional --iterations 400 --size 9000";
    let report = json(&format!("{load} {faults}"));
    assert_eq!(report["srq"], true);
    for (run, shared) in operations(&report).iter().zip([true, false, false]) {
        assert_eq!(run["srq"], shared, "{run}");
        assert_eq!((number(run, "messages"), number(run, "wrong_messages")), (800, 0));
        let resent = ["resent_nak_pkts", "resent_implied_nak_pkts", "resent_timer_pkts"];
        assert!(resent.iter().any(|name| number(&run["counters"], name) > 0), "{run}");
        for end in ["sent_by_client", "sent_by_server"] {
            let each = list(&run["queue_pairs"]).iter().map(|pair| number(&pair[end], "messages"));
            assert_eq!(each.collect::<Vec<_>>(), [50; 8], "{run}");
        }
    }
    assert_eq!(json("--iterations 10")["srq"], false);
}

/// Goal: no SEND finds the queue empty, at any depth and size; a warm-up and a latency pass, too.
#[test]
fn a_shared_queue_is_never_empty() {
    for more in [
        "--qps 128 --depth 8 --size 64 --iterations 4000",
        "--qps 2 --depth 256 --size 1000 --iterations 4000 --silent 64 --post-list 8",
        "--qps 3 --depth 1 --size 5000 --iterations 300 --warmup 30 -b --no-verify",
        "--latency --size 3000 --iterations 300 --warmup 30",
    ] {
        let report = json(&format!("--use-srq --operations send --seed 9 {more}"));
        let [run] = operations(&report) else { panic!("{report}") };
        assert_eq!((&run["srq"], number(run, "wrong_messages")), (&true.into(), 0), "{more}");
        assert_eq!(number(&run["counters"], "resent_rnr_pkts"), 0, "{more}");
    }
}

/// Method: the server serves the queue pairs of each client thread together, and goes on after them.
#[test]
fn two_processes_share_their_receives() {
    let network = Network::new();
    let mut server = network.start("server", &format!("serve --runs 4 {}", network.dgram(1)));
    for load in ["--srq --qps 3 --threads 2", "--srq", "--srq --bidirectional --qps 2", "--qps 2"] {
        let load = format!("{load} --operations send --iterations 100 --size 2000");
        let report = json(&format!("connect 10.0.0.1 {load} {}", network.dgram(2)));
        let [run] = operations(&report) else { panic!("{report}") };
        assert_eq!(number(&run["sent_by_client"], "messages"), 100, "{run}");
        assert_eq!(number(run, "wrong_messages"), 0, "{run}");
    }
    assert!(server.wait().success(), "{}", server.log());
    let log = server.log();
    let told: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(" messages")).map(|(_, told)| told).collect();
    assert_eq!(
        told,
        [
            " over 6 queue pairs, receives shared",
            ", receives shared",
            " over 2 queue pairs, receives shared",
            " over 2 queue pairs",
        ],
        "{log}"
    );
}

// ---- both directions ---------------------------------------------------------------------------

/// Goal: both ends send, each as much as it should, over the same queue pairs; the row is the sum.
#[test]
fn both_ends_send_and_both_are_told() {
    let network = Network::new();
    let mut server = network.start("server", &format!("serve --runs 3 {}", network.dgram(1)));
    let load = "--bidirectional --qps 2 --iterations 101 --size 3000";
    let report = json(&format!("connect 10.0.0.1 {load} {}", network.dgram(2)));
    for run in operations(&report) {
        for end in ["sent_by_client", "sent_by_server"] {
            assert_eq!(number(&run[end], "messages"), 101, "{run}");
            assert_eq!(number(&run[end], "bytes"), 303_000, "{run}");
            let each = list(&run["queue_pairs"]).iter().map(|pair| number(&pair[end], "messages"));
            assert_eq!(each.collect::<Vec<_>>(), [51, 50], "{run}");
        }
        assert_eq!((number(run, "messages"), number(run, "bytes")), (202, 606_000));
        assert_eq!(number(run, "wrong_messages"), 0);
    }
    assert!(server.wait().success(), "{}", server.log());
}

/// Goal: a limit of time ends the server's messages with the client's, and the table tells of both.
#[test]
fn both_directions_end_with_the_time() {
    for more in ["", "--no-verify", "--warmup 20 --loss 1"] {
        let output = run(&format!("-b --seconds 0.2 --size 4k --seed 4 {more}"));
        assert!(output.status.success(), "{output:?}");
        let table = text(&output.stdout);
        assert_eq!(table.matches(" B: the client sent ").count(), 3, "{table}");
        assert!(table.contains("both ends send"), "{table}");
    }
}

// ---- intervals ---------------------------------------------------------------------------------

/// Goal: the intervals make the run, with what its counters moved by.
#[test]
fn the_intervals_make_the_run() {
    let load = "--operations write --seconds 1 --interval 0.1 --size 16k --loss 3 --seed 5";
    let report = json(load);
    let [run] = operations(&report) else { panic!("{report}") };
    let intervals = list(&run["intervals"]);
    assert!(intervals.len() >= 2, "{run}");
    for name in ["messages", "bytes"] {
        let sum: u64 = intervals.iter().map(|interval| number(interval, name)).sum();
        assert_eq!(sum, number(run, name), "{run}");
    }
    let counted = |entry: &Value| entry["counters"]["resent_nak_pkts"].as_u64().unwrap_or(0);
    let resent: u64 = intervals.iter().map(counted).sum();
    assert!(resent > 0 && resent <= counted(run), "{resent}: {run}");
    let output = run_rows(load);
    let rows: Vec<&str> = output.lines().filter(|line| line.contains(" messages/s, ")).collect();
    assert!(rows.len() >= 2, "{output}");
    assert!(rows.iter().all(|row| row.starts_with("write of 16384 B, ")), "{rows:?}");
    assert!(rows.iter().any(|row| row.contains(" packets sent again")), "{rows:?}");
}

fn run_rows(load: &str) -> String {
    let output = run(load);
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).to_string()
}

// ---- posting -----------------------------------------------------------------------------------

/// Goal: a warm-up moves messages that nobody counts.
#[test]
fn a_warm_up_counts_for_nothing() {
    let network = Network::new();
    let mut server = network.start("server", &format!("serve --runs 6 {}", network.dgram(1)));
    for warmup in ["30", "0.05s"] {
        let load = format!("--warmup {warmup} --iterations 100 --size 1000");
        let report = json(&format!("connect 10.0.0.1 {load} {}", network.dgram(2)));
        for run in operations(&report) {
            assert_eq!((number(run, "messages"), number(run, "bytes")), (100, 100_000));
            assert_eq!(
                (&run["latency_us"]["count"], &run["wrong_messages"]),
                (&100.into(), &0.into())
            );
        }
    }
    assert!(server.wait().success(), "{}", server.log());
    assert_eq!(server.log().matches(": 130 messages").count(), 3, "{}", server.log());
    assert_eq!(server.log().matches(": 100 messages").count(), 0, "{}", server.log());
}

/// Goal: silent requests have no completion, and so no latency, and are all there.
#[test]
fn silent_requests_complete_with_the_next_one_that_does_not() {
    for (more, loud) in
        [("--silent 4", 26), ("--silent 5 --post-list 3", 21), ("--post-list 7", 101)]
    {
        let report = json(&format!("--iterations 101 --size 3000 --seed 6 --loss 1 {more}"));
        for run in operations(&report) {
            assert_eq!(
                (number(run, "messages"), number(run, "wrong_messages")),
                (101, 0),
                "{more}"
            );
            assert_eq!(run["latency_us"]["count"], loud, "{more}: {run}");
        }
    }
}

/// Goal: inline data is that of the post, checked byte by byte; READs and longer messages are as ever.
#[test]
fn short_messages_go_inline() {
    for size in [1, 64, 65] {
        let report = json(&format!("--iterations 100 --size {size} --inline 64 --post-list 4"));
        for run in operations(&report) {
            assert_eq!((number(run, "messages"), number(run, "wrong_messages")), (100, 0));
        }
    }
}

/// Method: the last message is not posted before the limit allows it, on any machine.
#[test]
fn a_rate_is_not_exceeded() {
    let report = json("--operations write --iterations 51 --size 10000 --qps 2 --rate-limit 0.02");
    let [run] = operations(&report) else { panic!("{report}") };
    // 25 of 26 messages of 80,000 bits at half the rate.
    assert!(run["seconds"].as_f64().unwrap() >= 0.2, "{run}");
    assert_eq!(number(run, "messages"), 51);
}

/// Method: each of these messages may come due between the last look at the limit and the wait for it.
#[test]
fn a_rate_is_kept_up() {
    let report = json("--operations write --iterations 5000 --size 64 --rate-limit 0.01");
    let [run] = operations(&report) else { panic!("{report}") };
    assert_eq!(number(run, "messages"), 5000);
}

// ---- help --------------------------------------------------------------------------------------

fn names(runs: &[Value]) -> Vec<&str> {
    runs.iter().filter_map(|run| run["operation"].as_str()).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(entry: &Value, name: &str) -> u64 {
    entry[name].as_u64().unwrap_or_else(|| panic!("{name}: {entry}"))
}
