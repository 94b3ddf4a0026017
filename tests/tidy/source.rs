//! The checks of the sources: imports, sizes, words.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The repository's files by their paths from its root; the text is empty where a file is none.
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// All files but those of `.git` and of target folders.
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self(BTreeMap::new());
        tree.walk(root, "");
        tree
    }

    /// These files, empty.
    pub(crate) fn of(paths: &[&str]) -> Self {
        Self(paths.iter().map(|path| ((*path).to_string(), String::new())).collect())
    }

    pub(crate) fn set(&mut self, path: &str, text: &str) {
        self.0.insert(path.to_string(), text.to_string());
    }

    fn walk(&mut self, dir: &Path, prefix: &str) {
        for entry in fs::read_dir(dir).expect("a folder of the repository") {
            let entry = entry.expect("an entry of the folder");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.path().is_dir() {
                if ![".git", "target"].contains(&name.as_str()) {
                    self.walk(&entry.path(), &format!("{path}/"));
                }
            } else if name != ".git" {
                self.0.insert(path, fs::read_to_string(entry.path()).unwrap_or_default());
            }
        }
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether this is a file or a folder.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.0.contains_key(path)
            || self.paths().any(|file| file.starts_with(&folder))
    }

    /// The files with this extension.
    pub(crate) fn files(&self, extension: &str) -> Vec<(String, String)> {
        let is = |path: &str| path.rsplit_once('.').is_some_and(|(_, end)| end == extension);
        self.all().into_iter().filter(|(path, _)| is(path)).collect()
    }

    pub(crate) fn all(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(path, text)| (path.clone(), text.clone())).collect()
    }
}

/// Dependencies between the repository's packages that `rules` does not allow.
pub(crate) fn imports(metadata: &Value, rules: &[(&str, &[&str])]) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let Some((_, allowed)) = rules.iter().find(|(ruled, _)| *ruled == name) else {
            complaints.push(format!("{name} has no import rule"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let own = dependencies.iter().filter(|dependency| dependency["path"].is_string());
        for imported in own.map(|dependency| dependency["name"].as_str().expect("a name")) {
            if !allowed.contains(&imported) {
                complaints.push(format!("{name} imports {imported}"));
            }
        }
    }
    complaints
}

/// Lines of code, not of comments, that name what their room does not know.
pub(crate) fn strangers(files: &[(String, String)], rules: &[(&str, &[&str])]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (room, strangers) in rules {
        for (path, text) in files.iter().filter(|(path, _)| path.starts_with(room)) {
            let lines = (1..).zip(text.lines());
            for (number, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
                let named = strangers.iter().filter(|stranger| line.contains(**stranger));
                complaints.extend(named.map(|stranger| format!("{path}:{number}: {stranger}")));
            }
        }
    }
    complaints
}

/// Files over `max` lines that are no exceptions, and exceptions that are none.
pub(crate) fn sizes(files: &[(String, String)], max: usize, exceptions: &[&str]) -> Vec<String> {
    let is_test =
        |path: &str| path.split_once("/src/").is_some_and(|(_, rest)| rest.contains("tests"));
    let long = |text: &str| lines_without_tests(text) > max;
    let excepted = |path: &str| is_test(path) || exceptions.contains(&path);
    let new = files.iter().filter(|(path, text)| long(text) && !excepted(path));
    let new = new
        .map(|(path, text)| format!("{path}: {} lines without tests", lines_without_tests(text)));
    let still = |exception: &str| files.iter().any(|(path, text)| path == exception && long(text));
    let gone = exceptions.iter().filter(|exception| !still(exception));
    new.chain(gone.map(|path| format!("{path}: no longer an exception"))).collect()
}

/// Inline tests stand at the foot of a file.
fn lines_without_tests(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.lines().count()
}

/// Whether `line` has `word`, and not as the end of a longer one.
fn stands_in(line: &str, word: &str) -> bool {
    let longer =
        |at: usize| line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
    line.match_indices(word).any(|(at, _)| !longer(at))
}

/// Names that the code of these rooms once had, and its comments: each with the term that replaced it.
pub(crate) fn dialect(files: &[(String, String)], rooms: &[&str]) -> Vec<String> {
    // In two parts, as this is a file of the repository too.
    const RETIRED: [(&str, &str); 13] = [
        (concat!("Ke", "pt"), "Insertion"),
        (concat!("To", "ld"), "NakState"),
        (concat!("name", "_gap"), "nak_sequence"),
        (concat!("held", "_bytes"), "reorder_bytes"),
        (concat!("Pati", "ence"), "ReorderWindow or PeerLimits"),
        (concat!("Lear", "nt"), "DecayingMax"),
        (concat!("hand", "shake_at"), "seed_since"),
        (concat!("blind", "_at"), "rto_at"),
        (concat!("answers", "_missing"), "responses_missing"),
        (concat!("late", "ness"), "burst, or reordering"),
        (concat!("freed", "_at"), "unblocked_at"),
        (concat!("whe", "nce"), "the origin"),
        (concat!("who", "ever"), "the thread, host or caller that ..."),
    ];
    let mut complaints = Vec::new();
    for (path, text) in
        files.iter().filter(|(path, _)| rooms.iter().any(|room| path.starts_with(room)))
    {
        for (number, line) in (1..).zip(text.lines()) {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for (word, term) in
                words.flat_map(|word| RETIRED.iter().filter(move |(old, _)| *old == word))
            {
                complaints.push(format!("{path}:{number}: {word} is called {term}"));
            }
        }
    }
    complaints
}

/// Words that no file of the repository may hold, and paths of somebody's machine.
pub(crate) fn words(files: &[(String, String)]) -> Vec<String> {
    // In two parts, as this is a file of the repository too.
    const FORBIDDEN: [&str; 6] = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("db", "g!("),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
    ];
    let mut complaints = Vec::new();
    for (path, text) in files {
        for (number, line) in (1..).zip(text.lines()) {
            for word in FORBIDDEN.iter().filter(|word| stands_in(line, word)) {
                complaints.push(format!("{path}:{number}: {word}"));
            }
        }
    }
    complaints
}
