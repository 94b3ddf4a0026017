//! Bugs that nobody chose: drawn among all that the operators make.

use crate::operators::{Edit, edits};
use crate::source::{files, functions};
use crate::weave::Bug;
use std::path::Path;

/// What stands in the place of the rule that a bug breaks.
pub(crate) const RULE: &str = "drawn";

/// How many bugs the operators make in what.
const DRAWN: [(&[&str], usize); 2] =
    [(&["rocev2/src"], 90), (&["driver/src", "netadapter-glue/src"], 50)];

/// The bugs that the operators make in some folders, and how many of those are wanted.
pub(crate) struct Draw {
    pub(crate) bugs: Vec<Bug>,
    pub(crate) count: usize,
}

impl Draw {
    /// Keeps one in so many of the functions that are drawn, chosen by `seed`; as many again may take the place of those in which
    /// no bug compiles.
    pub(crate) fn keep_part(&mut self, seed: u64) {
        let part = self.bugs.first().map_or(1, Bug::part);
        let mut functions = self.functions();
        functions.sort_by_cached_key(|function| hash(seed, function));
        let count = self.count.div_ceil(part);
        functions.truncate(2 * count);
        self.bugs.retain(|bug| functions.iter().any(|function| function == bug.function()));
        self.count = count;
    }

    /// Keeps, of the functions that are drawn, the bugs that `named` chooses.
    pub(crate) fn keep_named(&mut self, named: impl Fn(&Bug) -> bool) {
        let functions = self.functions();
        let is_drawn = |bug: &Bug| functions.iter().any(|function| function == bug.function());
        self.bugs.retain(|bug| is_drawn(bug) && named(bug));
    }

    /// The functions that are drawn, if a bug compiles in each.
    fn functions(&self) -> Vec<String> {
        let mut functions: Vec<_> = self.bugs.iter().map(|bug| bug.function().to_owned()).collect();
        functions.dedup();
        functions.truncate(self.count);
        functions
    }
}

/// What is drawn by `seed`.
pub(crate) fn draws(root: &Path, seed: u64) -> Vec<Draw> {
    let draw =
        |&(folders, count): &(&[_], _)| Draw { bugs: candidates(root, folders, seed), count };
    DRAWN.iter().map(draw).collect()
}

/// Bugs of each function of some folders, in the order in which they are drawn. A function's place and
/// its bug depend on the seed and its own text alone, so a change elsewhere draws no others; nor does a
/// file that moves inside its room.
fn candidates(root: &Path, folders: &[&str], seed: u64) -> Vec<Bug> {
    let mut drawn = Vec::new();
    for file in folders.iter().flat_map(|folder| files(root, folder)) {
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        for function in functions(&text) {
            let name = format!("{}:{}", home(&file), function.path);
            let mut edits = edits(&function, &text);
            edits.sort_by_cached_key(|edit| hash(seed, &format!("{name} {}", edit.what)));
            // Some do not compile: then the next one is tried.
            let bugs = edits
                .into_iter()
                .enumerate()
                .map(|(turn, edit)| bug(&file, &text, &name, turn, edit));
            drawn.push((hash(seed, &name), bugs.collect::<Vec<_>>()));
        }
    }
    drawn.sort_by_key(|(order, _)| *order);
    drawn.into_iter().flat_map(|(_, bugs)| bugs).collect()
}

/// The crate, the room and the name of a file, without the folders between. The crate is `rocev2` where none is named.
fn home(file: &str) -> String {
    let (package, inside) = file.split_once("/src/").unwrap_or(("", file));
    let package = if package == "rocev2" { String::new() } else { format!("{package}/") };
    match inside.split_once('/') {
        Some((room, path)) => {
            format!("{package}{room}/{}", path.rsplit('/').next().unwrap_or(path))
        }
        None => format!("{package}{inside}"),
    }
}

fn bug(file: &str, text: &str, function: &str, turn: usize, edit: Edit) -> Bug {
    let line = 1 + text[..edit.at.start].matches('\n').count();
    Bug {
        number: 0,
        name: format!("{function}: {}", edit.what),
        place: format!("{file}:{line}"),
        rule: RULE,
        file: file.into(),
        turn,
        at: edit.at,
        instead: edit.instead,
    }
}

/// A number that depends on every byte of `text` (FNV-1a, mixed as SplitMix64 does).
pub(crate) fn hash(seed: u64, text: &str) -> u64 {
    let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, fold);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}
