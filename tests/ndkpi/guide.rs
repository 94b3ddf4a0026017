//! The consumer's guide has the statuses that go beyond the pages, written from the rows of the matrix.
//!
//! `GUIDE=write cargo test -p tests --test ndkpi -- guide` writes them anew.

use driver::abi::STATUS_SUCCESS;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};
use tests::documented::{CALLBACKS, COMPLETIONS, Delivery, Documented, GROUPS, Source};

use crate::matrix::rows;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../driver/consumer/GUIDE.md");
const BEGIN: &str = "<!-- written by `GUIDE=write cargo test -p tests --test ndkpi -- guide` -->\n";
const END: &str = "<!-- end -->\n";

crate::tests! {
    the_guide_has_every_status_beyond_the_pages
    the_statuses_say_when_they_come
}

/// The statuses of one meaning, and the functions that give them.
type Answers = BTreeMap<(String, &'static str, &'static str), Vec<&'static str>>;

fn the_guide_has_every_status_beyond_the_pages() {
    let path = Path::new(GUIDE);
    let guide = fs::read_to_string(path).expect("the guide");
    let (head, rest) = guide.split_once(BEGIN).expect("the beginning of the tables");
    let (tables, tail) = rest.split_once(END).expect("the end of the tables");
    let expected = written();
    if env::var("GUIDE").is_ok_and(|deed| deed == "write") {
        fs::write(path, format!("{head}{BEGIN}{expected}{END}{tail}"))
            .expect("the guide is written");
    } else {
        assert_eq!(tables, expected, "the guide is older than the rows: GUIDE=write mends it");
    }
}

fn the_statuses_say_when_they_come() {
    for (_, function, row) in beyond() {
        assert!(!row.when.is_empty(), "{function}: {} comes when?", row.status);
    }
}

/// The rows that no page has, of what does come.
fn beyond() -> impl Iterator<Item = (&'static str, &'static str, &'static Documented)> {
    all().filter(|(.., row)| row.source != Source::Page && row.never.is_none())
}

fn all() -> impl Iterator<Item = (&'static str, &'static str, &'static Documented)> {
    GROUPS.iter().flat_map(|group| {
        let of = |function| rows(function).map(|row| (group.name, function.name, row));
        group.functions.iter().flat_map(of)
    })
}

/// The tables of the guide.
fn written() -> String {
    let mut calls = Answers::new();
    let mut entries = Answers::new();
    for (group, function, row) in beyond() {
        let answers = if group == COMPLETIONS { &mut entries } else { &mut calls };
        let key = (row.status.to_string(), way(row.delivery), row.when);
        answers.entry(key).or_default().push(function);
    }
    let mut text = String::from("\n### Returned, or given to a request's callback\n\n");
    table(&mut text, "Functions", &calls);
    text += "\n### In an entry of a completion queue\n\n";
    table(&mut text, "Operations", &entries);
    text +=
        "\n### Never\n\n| Status | Of | Why this provider never gives it |\n| --- | --- | --- |\n";
    for (group, function, row) in all() {
        if let Some(reason) = row.never
            && group != CALLBACKS
            && row.status != STATUS_SUCCESS
        {
            let _ = writeln!(text, "| `{}` | `{function}` | {reason} |", row.status);
        }
    }
    text.push('\n');
    text
}

fn table(text: &mut String, functions: &str, answers: &Answers) {
    let _ = writeln!(text, "| Status | Comes | When | {functions} |\n| --- | --- | --- | --- |");
    for ((status, way, when), functions) in answers {
        let mut functions = functions.clone();
        functions.sort_unstable();
        functions.dedup();
        let functions = match functions.as_slice() {
            many if many.len() > 12 => "nearly all".to_owned(),
            few => few.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" "),
        };
        let _ = writeln!(text, "| `{status}` | {way} | {when} | {functions} |");
    }
}

const fn way(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Inline => "returned",
        Delivery::Asynchronous => "by callback",
        Delivery::Either => "returned or by callback",
        Delivery::Called | Delivery::Argument => "to a callback",
        Delivery::Entry => "in a result",
    }
}
