//! The checks of the Markdown files: links, paths, commands, sentences.

use crate::source::Tree;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The packages' targets, and the names that a test filter can meet.
pub(crate) struct Names {
    targets: BTreeSet<(String, String, String)>,
    tests: String,
}

impl Names {
    pub(crate) fn new(metadata: &Value, tree: &Tree) -> Self {
        let text = |value: &Value| value.as_str().expect("a string").to_string();
        let mut targets = BTreeSet::new();
        for package in metadata["packages"].as_array().expect("packages") {
            for target in package["targets"].as_array().expect("targets") {
                let kind = text(&target["kind"][0]);
                targets.insert((text(&package["name"]), kind, text(&target["name"])));
            }
        }
        for (_, manifest) in
            tree.files("toml").iter().filter(|(path, _)| path.ends_with("Cargo.toml"))
        {
            targets.extend(named_targets(manifest));
        }
        let tests = tree.files("rs").into_iter().flat_map(|(path, text)| {
            let names = text.lines().map(str::trim_start);
            let names = names.filter(|line| line.contains("fn ") || line.contains("mod "));
            names.map(str::to_string).chain([path]).collect::<Vec<_>>()
        });
        Self { targets, tests: tests.collect::<Vec<_>>().join("\n") }
    }

    /// Whether one of `packages`, or any if there is none, has this target.
    fn has(&self, packages: &[&str], kind: &str, name: &str) -> bool {
        self.targets.iter().any(|(package, of, target)| {
            (packages.is_empty() || packages.contains(&package.as_str()))
                && of == kind
                && target == name
        })
    }

    fn has_package(&self, name: &str) -> bool {
        self.targets.iter().any(|(package, ..)| package == name)
    }
}

/// The targets that a manifest names, and its library: a package that is no member of the workspace, as the Windows
/// crates where somebody has no use for them, can be named in documents all the same.
fn named_targets(manifest: &str) -> Vec<(String, String, String)> {
    let (mut targets, mut section, mut package) = (Vec::new(), "", "");
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if let Some(name) = line.strip_prefix("name = ") {
            let name = name.trim_matches('"');
            let kind = if section == "package" { "lib" } else { section };
            package = if section == "package" { name } else { package };
            targets.push((package.to_string(), kind.to_string(), name.to_string()));
        }
    }
    targets
}

/// Folders of the top level without a README that are no exceptions, and exceptions that have one.
pub(crate) fn rooms(tree: &Tree, exceptions: &[&str]) -> Vec<String> {
    let rooms: BTreeSet<_> =
        tree.paths().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    let rooms = rooms.into_iter().filter(|room| !room.starts_with('.'));
    rooms
        .filter_map(|room| {
            match (tree.has(&format!("{room}/README.md")), exceptions.contains(&room)) {
                (false, false) => Some(format!("{room}/ has no README.md")),
                (true, true) => Some(format!("{room}/ is no longer an exception")),
                _ => None,
            }
        })
        .collect()
}

/// Relative links whose file or heading does not exist.
pub(crate) fn links(path: &str, text: &str, tree: &Tree) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let relative = targets.filter(|target| !target.contains("://"));
    let dead = relative.filter(|target| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { path.to_string() } else { join(folder(path), file) };
        let read = if file == path { Some(text) } else { tree.text(&file) };
        !(file == path || tree.has(&file))
            || !heading.is_empty() && !read.is_some_and(|text| headings(text).contains(heading))
    });
    dead.map(|target| format!("{path}: no {target}")).collect()
}

/// Anchors of the headings, as GitHub makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_').collect()
    };
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// Names of files in code that do not exist, and functions that their file does not have (`file.rs:function`).
pub(crate) fn paths(path: &str, text: &str, tree: &Tree) -> Vec<String> {
    let code = code(text);
    let words = code.iter().flat_map(|code| code.split_whitespace());
    let words = words.map(|word| word.trim_matches(|c: char| ",;:'\"()".contains(c)));
    let missing = words.filter(|word| {
        let (file, function) = word.split_once(':').unwrap_or((word, ""));
        let places = [join(folder(path), file), file.to_string()];
        looks_like_path(file, folder(path), tree)
            && !places.iter().any(|place| {
                tree.has(place)
                    && (function.is_empty()
                        || tree
                            .text(place)
                            .is_some_and(|text| text.contains(&format!("fn {function}"))))
            })
    });
    missing.map(|word| format!("{path}: no {word}")).collect()
}

/// A word with a slash that begins like a path of this repository or ends like a file of it.
fn looks_like_path(word: &str, folder: &str, tree: &Tree) -> bool {
    let Some((first, _)) = word.split_once('/') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let ends = [".rs", ".md", ".toml", ".py", ".ps1", ".txt"];
    let outside = ["", "target", "~"].contains(&first);
    let here = first == "." || first == ".." || tree.has(&join(folder, first)) || tree.has(first);
    !outside && word.chars().all(plain) && (here || ends.iter().any(|end| word.ends_with(end)))
}

/// Commands of cargo, and options like `--test X` on their own, that name no package, target or test.
pub(crate) fn commands(path: &str, text: &str, names: &Names) -> Vec<String> {
    let code = code(text);
    let commands = code.iter().flat_map(|code| code.lines()).filter_map(|line| {
        let line = line.split(" #").next().unwrap_or(line);
        let begin = line.find("cargo ").or_else(|| line.starts_with("--test ").then_some(0))?;
        Some(line[begin..].split_whitespace().collect::<Vec<_>>())
    });
    let wrong = commands.flat_map(|words| wrong_names(&words, names));
    wrong.map(|name| format!("{path}: no {name}")).collect()
}

fn wrong_names<'a>(words: &[&'a str], names: &Names) -> Vec<&'a str> {
    let mut options = BTreeMap::<_, Vec<&str>>::new();
    let is_test = words[0] != "cargo" || words.contains(&"test");
    let mut filters = Vec::new();
    let mut rest =
        words.iter().skip_while(|word| !word.starts_with("--") && **word != "-p").peekable();
    let mut program = false;
    while let Some(&word) = rest.next() {
        match word {
            "--" => program = true,
            "-p" | "--package" if !program => options.entry("-p").or_default().extend(rest.next()),
            "--test" | "--bench" | "--example" | "--bin" if !program => {
                options.entry(word.trim_start_matches('-')).or_default().extend(rest.next());
            }
            "--target" | "--target-dir" | "--profile" | "--features" => drop(rest.next()),
            _ if is_test && !word.starts_with('-') => filters.push(word.trim_end_matches("::")),
            _ => {}
        }
    }
    let packages = options.remove("-p").unwrap_or_default();
    let missing = packages.iter().filter(|package| !names.has_package(package));
    let targets =
        options.iter().flat_map(|(kind, targets)| targets.iter().map(move |name| (kind, name)));
    let targets = targets.filter(|(kind, name)| !names.has(&packages, kind, name));
    let filters = filters.iter().filter(|filter| !names.tests.contains(**filter));
    missing.chain(targets.map(|(_, name)| name)).chain(filters).copied().collect()
}

/// Sentences and table cells that begin with a question word and ask nothing.
pub(crate) fn prose(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for sentence in text.split_inclusive(['.', '?', '|', '\n', ':']).map(str::trim_start) {
        let noun = ["What ", "Who ", "Whoever ", "Whom ", "Whose "];
        let asks = text[offset(text, sentence)..]
            .split(['.', '|', '#'])
            .next()
            .unwrap_or("")
            .contains('?');
        if noun.iter().any(|word| sentence.starts_with(word)) && !asks {
            complaints.push(format!("{path}: {}", sentence.trim_end()));
        }
    }
    complaints
}

/// The comments of a source, a line each.
pub(crate) fn comments(text: &str) -> String {
    let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
    let lines: Vec<_> = comments.map(|line| line.trim_start_matches(['/', '!']).trim()).collect();
    lines.join("\n")
}

fn offset(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Inline code, and blocks of shell commands.
fn code(text: &str) -> Vec<String> {
    let mut code = Vec::new();
    for (index, block) in text.split("```").enumerate() {
        if index % 2 == 0 {
            code.extend(block.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
        } else if let Some(shell) = block.strip_prefix("sh\n").or(block.strip_prefix("console\n")) {
            let lines = shell.replace("\\\n", " ");
            code.extend(
                lines.lines().map(|line| line.split(" #").next().unwrap_or(line).to_string()),
            );
        }
    }
    code
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `path` seen from `folder`, without `.` and `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
