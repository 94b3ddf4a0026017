//! Deliberate bugs: do the suites notice a rule that is broken? See README.md beside this.
//!
//! ```text
//! cargo test -p mutants                               the list fits, two bugs are judged
//! MUTANTS=all cargo test -p mutants -- --nocapture    every bug: the table and the figure
//! MUTANTS=twentieth MUTANTS_SEED=5 ...                a tenth of one half of them, chosen by the seed
//! MUTANTS=FenceIsIgnored,driver/src ...               those with one of these in their name or file
//! ```
#![cfg(test)]

mod drawn;
mod judge;
mod list;
mod operators;
mod source;
mod tree;
mod weave;

use drawn::Draw;
use judge::{Suites, Verdict};
use list::Void;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weave::Bug;

/// Decides which bugs the operators make, unless `MUTANTS_DRAW` does.
const DRAW: u64 = 20_261_122;

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().into()
}

/// Goal: each entry of the list is a bug of the code as it is.
/// Method: its text stands exactly once in its file, inside one function, and differs from what
/// replaces it; no two entries have one name.
#[test]
fn the_list_fits() {
    let bugs = list::bugs(&workspace());
    let mut names: Vec<_> = bugs.iter().map(|bug| &bug.name).collect();
    names.sort();
    names.dedup();
    assert!(names.len() == bugs.len() && bugs.len() >= 40, "{} names", names.len());
    let rooms =
        ["wire", "mr", "qp", "cm", "device", "timer"].map(|room| format!("rocev2/src/{room}"));
    for room in rooms.iter().map(String::as_str).chain(source::WOVEN) {
        assert!(bugs.iter().any(|bug| bug.file.starts_with(room)), "no bug in {room}");
    }
}

/// Goal: the suites catch at least 97 % of the drawn bugs, and all others.
/// Method: those that were asked for in one copy of the workspace, switched on one at a time.
#[test]
fn deliberate_bugs_are_caught() {
    let mode = std::env::var("MUTANTS").unwrap_or_default();
    let draw = environment("MUTANTS_DRAW").unwrap_or(DRAW);
    println!("drawn with MUTANTS_DRAW={draw}");
    let tree = tree::copy(&workspace());
    let (mut listed, mut draws) = (list::bugs(&workspace()), drawn::draws(&workspace(), draw));
    choose(&mode, &mut listed, &mut draws);
    let wanted = listed.len() + draws.iter().map(|draw| draw.count).sum::<usize>();
    let is_quick = mode.is_empty();
    let bugs = || listed.iter().chain(draws.iter().flat_map(|draw| &draw.bugs));
    let suites = if is_quick { judge::SUITES[..1].to_vec() } else { judge::suites_for(bugs()) };
    let bugs = weave::weave(&tree, &suites, listed, draws);
    assert!(!bugs.is_empty(), "nothing is named {mode:?}");
    assert!(mode != "all" || bugs.len() >= wanted, "{} bugs", bugs.len());
    let suites = Suites::build(&tree, &suites);
    suites.check_unharmed();
    let table = judge_all(&bugs, &suites);
    report(&table);
}

/// Keeps the bugs that were asked for: the fewer, the sooner the copy compiles.
fn choose(mode: &str, listed: &mut Vec<Bug>, draws: &mut Vec<Draw>) {
    match mode {
        "all" => {}
        "" => {
            listed.retain(|bug| list::QUICK.contains(&bug.name.as_str()));
            draws.clear();
        }
        "twentieth" => {
            let seed = environment("MUTANTS_SEED").unwrap_or(0);
            println!("chosen with MUTANTS_SEED={seed}");
            // The suites of one half judge nothing of the other, and take as long to build as to run.
            let is_half = |bug: &Bug| bug.is_in_transport() == seed.is_multiple_of(2);
            listed.retain(is_half);
            draws.retain(|draw| draw.bugs.first().is_some_and(is_half));
            listed.sort_by_cached_key(|bug| drawn::hash(seed, &bug.name));
            // Of each part, as they take different time.
            let mut parts = BTreeMap::<_, Vec<_>>::new();
            for bug in listed.drain(..) {
                parts.entry(bug.part()).or_default().push(bug);
            }
            for (part, mut bugs) in parts {
                bugs.truncate(bugs.len().div_ceil(part));
                listed.append(&mut bugs);
            }
            draws.iter_mut().for_each(|draw| draw.keep_part(seed));
        }
        words => {
            let has = |bug: &Bug, word| bug.name.contains(word) || bug.file.contains(word);
            let named = |bug: &Bug| words.split(',').any(|word| has(bug, word));
            listed.retain(named);
            draws.iter_mut().for_each(|draw| draw.keep_named(named));
        }
    }
}

/// Judges each, as many at a time as there are processors.
fn judge_all<'a>(bugs: &'a [Bug], suites: &Suites) -> Vec<(&'a Bug, Verdict)> {
    let (left, table) = (Mutex::new(bugs.iter()), Mutex::new(Vec::new()));
    let jobs = environment("MUTANTS_JOBS").map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        |jobs| jobs as usize,
    );
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let Some(bug) = left.lock().unwrap().next() else { return };
                    let verdict = suites.judge(bug);
                    println!("{:4} {} | {} | {verdict}", bug.number, bug.name, bug.place);
                    table.lock().unwrap().push((bug, verdict));
                }
            });
        }
    });
    let mut table = table.into_inner().unwrap();
    table.sort_by_key(|(bug, _)| bug.number);
    table
}

/// Prints the figure and what was missed, and holds them to the goal.
fn report(table: &[(&Bug, Verdict)]) {
    let void = |bug: &Bug| list::VOID.iter().find(|Void { name, .. }| bug.name == *name);
    let missed: Vec<_> = table.iter().filter(|(_, verdict)| *verdict == Verdict::Missed).collect();
    for (bug, _) in &missed {
        let why = void(bug).map_or("MISSED", |void| void.why);
        println!("missed: {} | {} | {} | {why}", bug.name, bug.place, bug.rule);
    }
    for (suite, _) in judge::SUITES {
        let caught = table.iter().filter(|(_, verdict)| verdict.suite() == Some(suite)).count();
        println!("{caught} caught by the {suite} tests");
    }
    let voided = missed.iter().filter(|(bug, _)| void(bug).is_some()).count();
    let (judged, caught) = (table.len() - voided, table.len() - missed.len());
    println!("{caught} of {judged} deliberate bugs caught; {voided} more change nothing");
    let unexplained = |drawn| {
        let missed =
            missed.iter().filter(|(bug, _)| bug.is_drawn() == drawn && void(bug).is_none());
        missed.count()
    };
    assert_eq!(unexplained(false), 0, "a bug by hand is not noticed, and nothing says why");
    // A change to a function may draw another bug in it: see README, The demand.
    let drawn = table.iter().filter(|(bug, _)| bug.is_drawn()).count();
    let room = (drawn * 3 / 100).max(2);
    assert!(unexplained(true) <= room, "more than {room} of {drawn} drawn bugs are not noticed");
}
