//! Every function and callback of `ndkpi.h`, every status that is documented for it, and the test
//! that produced it: `cargo test -p tests --test ndkpi` runs the tests and prints the matrix.
//!
//! The tests are those of the objects' behaviour (`tables`, `verbs`), and beside them what a status or a completion needs
//! that no behaviour brings about. Their calls go through a layer that records what the provider really returned
//! (`record`, `slots`). The run fails if a row has no test, if a status comes that no row lists, or
//! if a request ends twice or never. The rows are in `tests::documented`, which does not
//! compile if it forgets a slot of a dispatch table.
#![allow(unsafe_code, reason = "stands between the consumer and the dispatch tables")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]

#[path = "ndkpi/adapter.rs"]
mod adapter;
#[path = "ndkpi/answer.rs"]
mod answer;
#[path = "ndkpi/completions.rs"]
mod completions;
#[path = "ndkpi/connector.rs"]
mod connector;
#[path = "ndkpi/cq.rs"]
mod cq;
#[path = "ndkpi/fast_register.rs"]
mod fast_register;
#[path = "ndkpi/guide.rs"]
mod guide;
#[path = "ndkpi/hostile.rs"]
mod hostile;
#[path = "ndkpi/limits.rs"]
mod limits;
#[path = "ndkpi/listener.rs"]
mod listener;
#[path = "ndkpi/matrix.rs"]
mod matrix;
#[path = "ndkpi/misuse.rs"]
mod misuse;
#[path = "ndkpi/mr.rs"]
mod mr;
#[path = "ndkpi/mw.rs"]
mod mw;
#[path = "ndkpi/pd.rs"]
mod pd;
#[path = "ndkpi/qp.rs"]
mod qp;
#[path = "ndkpi/record.rs"]
mod record;
#[path = "ndkpi/shared_endpoint.rs"]
mod shared_endpoint;
#[path = "ndkpi/slots.rs"]
mod slots;
#[path = "ndkpi/srq.rs"]
mod srq;
#[path = "ndkpi/tables/mod.rs"]
mod tables;
#[path = "ndkpi/verbs/mod.rs"]
mod verbs;

use libtest_mimic::{Arguments, Trial};
use matrix::Matrix;
use std::process::ExitCode;

/// A test: its name and what it does.
type Entry = (&'static str, fn());

/// The tests of a file. One that is not listed is dead code.
#[macro_export]
macro_rules! tests {
    ($($name:ident)+) => {
        pub(crate) const TESTS: &[$crate::Entry] =
            &[$((concat!(module_path!(), "::", stringify!($name)), $name),)+];
    };
}

/// By room.
const FILES: &[&[&[Entry]]] = &[STATUSES, tables::FILES, verbs::FILES];

const STATUSES: &[&[Entry]] = &[
    adapter::TESTS,
    pd::TESTS,
    mr::TESTS,
    fast_register::TESTS,
    mw::TESTS,
    cq::TESTS,
    srq::TESTS,
    qp::TESTS,
    connector::TESTS,
    answer::TESTS,
    shared_endpoint::TESTS,
    listener::TESTS,
    completions::TESTS,
    limits::TESTS,
    guide::TESTS,
    misuse::TESTS,
    matrix::TESTS,
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let matrix: &'static Matrix = Box::leak(Box::default());
    tests::kit::open_by(record::opener);
    let trials = FILES.iter().copied().flatten().copied().flatten().map(|&(path, run)| {
        let name = path.strip_prefix("ndkpi::").unwrap_or(path);
        Trial::test(name, move || {
            record::begin(name, matrix);
            run();
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if arguments.list {
        return conclusion.exit_code();
    }
    let complete = conclusion.num_filtered_out == 0 && !conclusion.has_failed();
    let verdict = matrix::report(matrix, complete);
    println!("{}", verdict.text);
    if conclusion.has_failed() || !verdict.good { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
