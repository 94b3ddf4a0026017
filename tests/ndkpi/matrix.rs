//! The matrix: documented statuses against what the tests have seen.

use driver::abi::{NTSTATUS, STATUS_CONNECTION_INVALID, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tests::documented::{Delivery, Documented, Function, GROUPS, Group, Source};

/// Rows that wait for a part of the provider that does not exist yet: `table.function` with all of
/// its rows, or `table.function/delivery/status`. An entry that covers no open row is an error, so
/// this list can only shrink. It has to be empty for the interface to be complete.
pub(crate) const PENDING: &[&str] = &[];

/// Something that happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) group: &'static str,
    pub(crate) function: &'static str,
    pub(crate) delivery: Delivery,
    pub(crate) status: NTSTATUS,
}

type Key = (&'static str, &'static str, Delivery, i32);

/// What has happened so far, and in which tests.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    seen: Mutex<BTreeMap<Key, BTreeSet<&'static str>>>,
    complaints: Mutex<Vec<String>>,
    /// Requests that have begun and not ended.
    open: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Matrix {
    pub(crate) fn record(&self, test: &'static str, seen: Seen) {
        let key = (seen.group, seen.function, seen.delivery, seen.status.0);
        lock(&self.seen).entry(key).or_default().insert(test);
    }

    /// A request has begun.
    pub(crate) fn begin(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended.
    pub(crate) fn end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// The contract was broken in a way that is no status.
    pub(crate) fn complain(&self, what: String) {
        lock(&self.complaints).push(what);
    }

    fn tests(&self, group: &'static str, function: &'static str, row: &Documented) -> Vec<String> {
        let seen = lock(&self.seen);
        let found = |delivery| seen.get(&(group, function, delivery, row.status.0));
        let ways: &[(Delivery, &str)] = match row.delivery {
            Delivery::Either => {
                &[(Delivery::Inline, " (inline)"), (Delivery::Asynchronous, " (asynchronous)")]
            }
            ref delivery => &[(*delivery, "")],
        };
        let mut tests = Vec::new();
        for (delivery, way) in ways {
            tests.extend(found(*delivery).into_iter().flatten().map(|test| format!("{test}{way}")));
        }
        tests
    }
}

/// The first few names: common statuses come from nearly every test.
fn listed(tests: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = tests.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match tests.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How a run went.
pub(crate) struct Verdict {
    pub(crate) text: String,
    pub(crate) good: bool,
}

/// The whole matrix. A part of the tests cannot produce all rows: then only what was seen is judged.
pub(crate) fn report(matrix: &Matrix, complete: bool) -> Verdict {
    let mut report = Report::new(matrix);
    for group in GROUPS {
        report.group(group);
    }
    report.finish(complete)
}

struct Report<'a> {
    matrix: &'a Matrix,
    text: String,
    rows: usize,
    produced: usize,
    never: usize,
    pending: BTreeSet<&'static str>,
    pending_rows: usize,
    missing: Vec<String>,
    wrong: Vec<String>,
}

impl<'a> Report<'a> {
    fn new(matrix: &'a Matrix) -> Self {
        Self {
            matrix,
            text: String::new(),
            rows: 0,
            produced: 0,
            never: 0,
            pending: BTreeSet::new(),
            pending_rows: 0,
            missing: Vec::new(),
            wrong: Vec::new(),
        }
    }

    fn group(&mut self, group: &Group) {
        let _ = writeln!(self.text, "\n{}", group.name);
        for function in group.functions {
            let since = function.since;
            let _ = writeln!(
                self.text,
                "  {} (since {}.{}, {})",
                function.name, since.Major, since.Minor, function.page
            );
            for row in rows(function) {
                self.row(group, function, row);
            }
        }
    }

    fn row(&mut self, group: &Group, function: &Function, row: &Documented) {
        self.rows += 1;
        let tests = self.matrix.tests(group.name, function.name, row);
        let whole = format!("{}.{}", group.name, function.name);
        let what = match row.delivery {
            Delivery::Called => "called".to_owned(),
            delivery => format!("{}/{}", delivery_name(delivery), row.status),
        };
        let name = format!("{whole}/{what}");
        let pending = PENDING.iter().find(|entry| **entry == whole || **entry == name);
        let source = match row.source {
            Source::Page => "",
            Source::Sister => " [NDSPI]",
            Source::Provider => " [own]",
        };
        let answer = match (row.never, tests.as_slice()) {
            (Some(reason), []) => {
                self.never += 1;
                format!("never: {reason}")
            }
            (Some(_), _) => {
                self.wrong.push(format!("{name} was said never to come"));
                listed(&tests)
            }
            (None, []) if pending.is_some() => {
                self.pending.extend(pending);
                self.pending_rows += 1;
                "PENDING".to_owned()
            }
            (None, []) => {
                self.missing.push(name);
                "NO TEST".to_owned()
            }
            (None, _) => {
                self.produced += 1;
                listed(&tests)
            }
        };
        let _ = writeln!(self.text, "    {:<44} {answer}", format!("{what}{source}"));
    }

    fn finish(mut self, complete: bool) -> Verdict {
        self.find_undocumented();
        self.wrong.append(&mut lock(&self.matrix.complaints));
        let open = self.matrix.open.load(Ordering::Relaxed);
        if open != 0 {
            self.wrong.push(format!("{open} requests have never ended"));
        }
        let Self { ref missing, ref mut wrong, .. } = self;
        if complete {
            wrong.extend(missing.iter().map(|row| format!("no test: {row}")));
            let stale = PENDING.iter().filter(|entry| !self.pending.contains(*entry));
            wrong.extend(stale.map(|entry| format!("not pending any more: {entry}")));
        }
        let (rows, produced, never) = (self.rows, self.produced, self.never);
        let (pending, missing) = (self.pending_rows, self.missing.len());
        let mut text = self.text;
        let _ = writeln!(text);
        for problem in &self.wrong {
            let _ = writeln!(text, "matrix: {problem}");
        }
        let _ = writeln!(
            text,
            "matrix: {rows} rows: {produced} produced, {never} never, {pending} PENDING, {missing} without a test"
        );
        Verdict { text, good: self.wrong.is_empty() }
    }

    /// What came and stands in no row.
    fn find_undocumented(&mut self) {
        for ((group, function, delivery, status), tests) in &*lock(&self.matrix.seen) {
            let status = NTSTATUS(*status);
            let admits = |row: &Documented| {
                let either = row.delivery == Delivery::Either
                    && matches!(delivery, Delivery::Inline | Delivery::Asynchronous);
                row.status == status && (row.delivery == *delivery || either)
            };
            let known = GROUPS.iter().filter(|known| known.name == *group);
            let functions = known.flat_map(|known| known.functions);
            if !functions.filter(|known| known.name == *function).any(|f| rows(f).any(admits)) {
                let way = delivery_name(*delivery);
                self.wrong
                    .push(format!("undocumented: {group}.{function}/{way}/{status} in {tests:?}"));
            }
        }
    }
}

/// The rows of a function, and those of common misuse that it does not have anyway.
pub(crate) fn rows(function: &Function) -> impl Iterator<Item = &Documented> {
    let own = |row: &&Documented| {
        let inline = |own: &Documented| matches!(own.delivery, Delivery::Inline | Delivery::Either);
        !function.rows.iter().any(|own| own.status == row.status && inline(own))
    };
    function.rows.iter().chain(function.misuse.iter().filter(own))
}

const fn delivery_name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Inline => "inline",
        Delivery::Asynchronous => "asynchronous",
        Delivery::Either => "either",
        Delivery::Called => "called",
        Delivery::Argument => "argument",
        Delivery::Entry => "entry",
    }
}

crate::tests! {
    a_row_without_a_test_is_wrong
    a_status_without_a_row_is_wrong
    a_status_that_was_said_never_to_come_is_wrong
    a_request_ends_once
}

const SEEN: Seen = Seen {
    group: "NDK_QP_DISPATCH",
    function: "NdkSend",
    delivery: Delivery::Inline,
    status: STATUS_SUCCESS,
};

/// What a run with just this would say, without the first rows' absence.
fn judged(seen: Seen) -> Verdict {
    let matrix = Matrix::default();
    matrix.record("test", seen);
    report(&matrix, false)
}

fn a_row_without_a_test_is_wrong() {
    let matrix = Matrix::default();
    let every = GROUPS.iter().flat_map(|group| group.functions.iter().map(move |f| (group, f)));
    let every = every.flat_map(|(group, f)| rows(f).map(move |row| (group, f, row)));
    let skipped = Seen { status: STATUS_CONNECTION_INVALID, ..SEEN };
    for (group, function, row) in every.filter(|(.., row)| row.never.is_none()) {
        let delivery = match row.delivery {
            Delivery::Either => Delivery::Asynchronous,
            delivery => delivery,
        };
        let (group, function, status) = (group.name, function.name, row.status);
        let seen = Seen { group, function, delivery, status };
        if seen != skipped {
            matrix.record("test", seen);
        }
    }
    let verdict = report(&matrix, true);
    assert!(!verdict.good);
    assert!(
        verdict.text.contains("no test: NDK_QP_DISPATCH.NdkSend/inline/STATUS_CONNECTION_INVALID")
    );
    assert!(report(&matrix, false).good, "a part of the tests is no failure");
    matrix.record("test", skipped);
    assert!(report(&matrix, true).good, "{}", report(&matrix, true).text);
}

fn a_status_without_a_row_is_wrong() {
    assert!(judged(SEEN).good);
    for seen in [
        Seen { status: STATUS_NOT_SUPPORTED, ..SEEN },
        Seen { delivery: Delivery::Asynchronous, ..SEEN },
        Seen { function: "NdkNothing", ..SEEN },
    ] {
        assert!(!judged(seen).good, "{seen:?}");
    }
}

fn a_status_that_was_said_never_to_come_is_wrong() {
    let seen = Seen { function: "NdkQueryExtension", ..SEEN };
    assert!(!judged(seen).good);
}

fn a_request_ends_once() {
    let matrix = Matrix::default();
    matrix.begin();
    assert!(!report(&matrix, false).good, "it has not ended");
    matrix.end();
    assert!(report(&matrix, false).good);
    matrix.complain("twice".to_owned());
    assert!(!report(&matrix, false).good);
}
