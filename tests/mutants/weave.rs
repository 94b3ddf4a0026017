//! All bugs in one copy of the source: a function that has some becomes a choice between its body and
//! theirs, made at run time by a number.

use crate::drawn::{self, Draw};
use crate::judge::{self, Suite};
use crate::source::{Function, WOVEN, bytes, functions, woven};
use crate::tree::{self, Broken};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;

/// A deliberate bug: bytes of a file, and what stands there instead.
#[derive(Clone, Debug)]
pub(crate) struct Bug {
    /// What turns it on.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// File and line, to be read by people.
    pub(crate) place: String,
    /// What it breaks.
    pub(crate) rule: &'static str,
    pub(crate) file: String,
    /// Of those drawn for one function, the first that compiles is the bug.
    pub(crate) turn: usize,
    pub(crate) at: Range<usize>,
    pub(crate) instead: String,
}

impl Bug {
    /// The function of a drawn one.
    pub(crate) fn function(&self) -> &str {
        self.name.split(": ").next().unwrap()
    }

    /// Nobody chose it.
    pub(crate) fn is_drawn(&self) -> bool {
        self.rule == drawn::RULE
    }

    pub(crate) fn is_in_transport(&self) -> bool {
        self.file.starts_with("rocev2/")
    }

    /// One of so many of its kind is judged where a twentieth is: those of the provider and the edges take longer, most of
    /// all one that is missed.
    pub(crate) fn part(&self) -> usize {
        match (self.is_in_transport(), self.is_drawn()) {
            (true, _) => 10,
            (false, false) => 20,
            (false, true) => 25,
        }
    }
}

/// How many bugs of a function are tried before it goes without one.
const TURNS: usize = 4;

/// Begins each copied library: what is bound to fail is a bug like any other.
const LINTS: &str = "#![allow(arithmetic_overflow, unconditional_panic, unconditional_recursion)]";
/// Ends each copied library: the bug that the environment names. It is read without an allocation, as the first call may be in a
/// turn that is held to make none.
const SWITCH: &str = r#"
#[allow(missing_docs)]
pub mod mutation {
    extern crate std;
    use std::io::Read;
    static ACTIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    pub fn active() -> u32 {
        *ACTIVE.get_or_init(|| named().unwrap_or(0))
    }
    fn named() -> Option<u32> {
        let (mut text, mut len) = ([0; 1 << 16], 0);
        let mut file = std::fs::File::open("/proc/self/environ").expect("Linux tells it");
        loop {
            match file.read(&mut text[len..]).expect("it is read") {
                0 => break,
                more => len += more,
            }
        }
        assert!(len < text.len(), "the environment is longer");
        let named = text[..len].split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"ROCEV2_BUG="));
        core::str::from_utf8(named?).ok()?.parse().ok()
    }
}
"#;

/// Weaves all of `listed` and of each of `draws` as many as it wants that compile, with all that `suites` need, into the
/// tree; returns those, numbered.
pub(crate) fn weave(tree: &Path, suites: &[Suite], listed: Vec<Bug>, draws: Vec<Draw>) -> Vec<Bug> {
    let mut weaver = Weaver { const_paths: BTreeSet::new(), listed, draws };
    weaver.draws.iter_mut().for_each(|draw| draw.bugs.retain(|bug| bug.turn < TURNS));
    let drawn = weaver.draws.iter_mut().flat_map(|draw| &mut draw.bugs);
    for (number, bug) in weaver.listed.iter_mut().chain(drawn).enumerate() {
        bug.number = 1 + number as u32;
    }
    let mut check = [vec!["check"], judge::libraries(suites)].concat();
    // Twice as many functions as are needed, with all their turns: most errors show at once.
    weaver.settle(tree, 2, TURNS, &check);
    weaver.settle(tree, 1, 1, &check);
    // Tests have constants of their own.
    check.extend(["--profile", "test"].into_iter().chain(judge::tests(suites)));
    let places = weaver.settle(tree, 1, 1, &check);
    let chosen = weaver.chosen(1, 1);
    let bugs: Vec<_> = weaver.listed.into_iter().chain(chosen).collect();
    for bug in &bugs {
        assert!(places.iter().any(|place| place.number == bug.number), "{} is nowhere", bug.name);
    }
    bugs
}

struct Weaver {
    /// Functions that constants need: they stay `const`, and can hold no bug.
    const_paths: BTreeSet<String>,
    listed: Vec<Bug>,
    draws: Vec<Draw>,
}

impl Weaver {
    /// Writes bugs into the tree until what is left of them compiles; returns where they stand.
    fn settle(&mut self, tree: &Path, times: usize, turns: usize, command: &[&str]) -> Vec<Place> {
        loop {
            let mut bugs = self.listed.clone();
            bugs.extend(self.chosen(times, turns));
            let before = self.drawn();
            let places = self.write(tree, &bugs);
            if self.drawn() != before {
                // A function that stays `const` lost its bugs, and others are chosen for them.
                continue;
            }
            let broken = tree::compile(tree, command);
            if broken.is_empty() {
                return places;
            }
            assert!(self.drop_broken(&broken, &places), "{}", broken[0].message);
        }
    }

    /// How many drawn bugs there are.
    fn drawn(&self) -> usize {
        self.draws.iter().map(|draw| draw.bugs.len()).sum()
    }

    /// The first bugs of each of the first functions of each draw, which are `times` as many as it wants.
    fn chosen(&self, times: usize, turns: usize) -> Vec<Bug> {
        self.draws.iter().flat_map(|draw| first(&draw.bugs, times * draw.count, turns)).collect()
    }

    fn drop_drawn(&mut self, number: u32) {
        self.draws.iter_mut().for_each(|draw| draw.bugs.retain(|bug| bug.number != number));
    }

    /// Drops the bugs that do not compile; whether there were any.
    fn drop_broken(&mut self, broken: &[Broken], places: &[Place]) -> bool {
        let before = (self.drawn(), self.const_paths.len());
        for error in broken {
            let inside =
                |place: &&Place| place.file == error.file && place.lines.contains(&error.line);
            if error.is_const {
                self.const_paths.extend(error.function());
            } else if let Some(place) = places.iter().find(inside) {
                let listed = self.listed.iter().find(|bug| bug.number == place.number);
                assert!(
                    listed.is_none(),
                    "{} does not compile:\n{}",
                    listed.unwrap().name,
                    error.message
                );
                self.drop_drawn(place.number);
            }
        }
        before != (self.drawn(), self.const_paths.len())
    }

    /// Writes every source file; returns where the bugs stand now.
    fn write(&mut self, tree: &Path, bugs: &[Bug]) -> Vec<Place> {
        let root = crate::workspace();
        let mut places = Vec::new();
        for file in woven(&root) {
            let text = std::fs::read_to_string(root.join(&file)).unwrap();
            let inside: Vec<_> = bugs.iter().filter(|bug| bug.file == file).collect();
            let mut woven = self.weave_file(&file, &text, &inside, &mut places);
            if WOVEN.iter().any(|folder| file == format!("{folder}/lib.rs")) {
                woven = format!("{LINTS} {woven}{SWITCH}");
            }
            tree::write(&tree.join(&file), woven.as_bytes());
        }
        places
    }

    fn weave_file(
        &mut self,
        file: &str,
        text: &str,
        bugs: &[&Bug],
        places: &mut Vec<Place>,
    ) -> String {
        let (mut woven, mut from) = (String::with_capacity(2 * text.len()), 0);
        for function in functions(text) {
            if let Some(token) = &function.signature.constness {
                if self.stays_const(&function) {
                    self.drop_inside(&function, bugs);
                    continue;
                }
                let token = bytes(token.span());
                woven.push_str(&text[from..token.start]);
                from = token.end;
            }
            let inside: Vec<_> = bugs.iter().filter(|bug| contains(&function, bug)).collect();
            if inside.is_empty() {
                continue;
            }
            woven.push_str(&text[from..function.body.start]);
            woven.push_str("{ match crate::mutation::active() {\n");
            for bug in inside {
                let first = 1 + woven.matches('\n').count();
                let (before, after) = (
                    &text[function.body.start..bug.at.start],
                    &text[bug.at.end..function.body.end],
                );
                woven.push_str(&format!("{} => {before}{}{after}\n", bug.number, bug.instead));
                let lines = first..1 + woven.matches('\n').count();
                places.push(Place { file: file.into(), lines, number: bug.number });
            }
            woven.push_str(&format!("_ => {} }} }}", &text[function.body.clone()]));
            from = function.body.end;
        }
        woven + &text[from..]
    }

    /// Whether constants need it: most need the function `new` of some type, so of all types that is taken as needed.
    fn stays_const(&self, function: &Function) -> bool {
        let inside = format!("::{}", function.path);
        let is = |path: &String| *path == function.path || path.ends_with(&inside);
        function.signature.ident == "new" || self.const_paths.iter().any(is)
    }

    /// A function that stays `const` cannot ask which bug is on.
    fn drop_inside(&mut self, function: &Function, bugs: &[&Bug]) {
        for bug in bugs.iter().filter(|bug| contains(function, bug)) {
            let listed = self.listed.iter().any(|listed| listed.number == bug.number);
            assert!(!listed, "{}: its function is needed by constants", bug.name);
            self.drop_drawn(bug.number);
        }
    }
}

/// Of the first functions of `bugs`, the first bugs of each.
fn first(bugs: &[Bug], functions: usize, turns: usize) -> Vec<Bug> {
    let (mut chosen, mut owners): (Vec<Bug>, Vec<&str>) = (Vec::new(), Vec::new());
    for bug in bugs {
        let owner = bug.function();
        let taken = owners.iter().filter(|other| **other == owner).count();
        let others = owners.last().is_none_or(|last| *last != owner);
        let all: BTreeSet<_> = owners.iter().collect();
        if taken >= turns || (others && all.len() >= functions) {
            continue;
        }
        owners.push(owner);
        chosen.push(bug.clone());
    }
    chosen
}

pub(crate) fn contains(function: &Function, bug: &Bug) -> bool {
    function.body.start <= bug.at.start && bug.at.end <= function.body.end
}

/// The lines of a bug's body in a woven file.
struct Place {
    file: String,
    lines: Range<usize>,
    number: u32,
}
