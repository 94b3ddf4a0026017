//! Goal: the rules of `CONTRIBUTING.md` that a program can check hold, and the READMEs tell the truth about names.
//! Method: each check is a function from text to complaints. One test runs it over the repository, another over bad
//! examples, which it has to refuse.

#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/source.rs"]
mod source;

use docs::{Names, commands, links, paths, prose};
use serde_json::Value;
use source::{Tree, dialect, imports, sizes, strangers, words};
use std::path::Path;
use std::process::Command;

/// Who may import whom: each package with the packages of this repository that it may name.
const RULES: &[(&str, &[&str])] = &[
    ("rocev2-crc", &[]),
    ("rocev2", &["rocev2-crc"]),
    ("netadapter-glue", &[]),
    ("netadapter-client", &["netadapter-glue"]),
    // MDLs are the edges'.
    ("ndk-abi", &["netadapter-glue"]),
    ("driver", &["ndk-abi", "rocev2", "netadapter-glue"]),
    ("ndis-driver", &["driver", "ndk-abi", "rocev2", "netadapter-glue"]),
    // Its build script asks for the names of the counters.
    ("ndkrocev2", &["ndis-driver", "rocev2"]),
    // Its tests join providers.
    ("ndkflight", &["driver", "ndk-abi", "netadapter-glue"]),
    ("ndkflight-image", &["ndk-abi", "ndkflight", "netadapter-glue"]),
    // Its `Host` opens an edge, on Linux; its examples alone put layers on.
    ("ndk-consumer", &["driver", "ndk-verifier", "netadapter-glue"]),
    ("ndk-c", &["driver", "ndk-consumer", "ndk-verifier", "netadapter-glue"]),
    // It steps providers on a virtual clock.
    ("ndk-verifier", &["driver", "ndk-consumer", "rocev2", "netadapter-glue"]),
    ("messages", &["driver", "ndk-consumer", "rocev2", "netadapter-glue"]),
    ("instructions", &["driver", "messages", "ndk-consumer"]),
    ("ndkperf", &["driver", "messages", "ndk-consumer", "rocev2", "netadapter-glue"]),
    // Consumers of others run under the verifier, too.
    (
        "rig",
        &["driver", "ndis-driver", "ndk-consumer", "ndk-verifier", "rocev2", "netadapter-glue"],
    ),
    // One suite joins two of its adapters.
    (
        "tests",
        &[
            "driver",
            "ndk-consumer",
            "ndk-verifier",
            "rocev2",
            "netadapter-glue",
            "netadapter-client",
        ],
    ),
    ("release", &[]),
    (
        "windows-tests",
        &["driver", "ndis-driver", "ndk-consumer", "rocev2", "netadapter-glue", "release", "tests"],
    ),
    ("mutants", &[]),
    ("ndkrocev2ctl", &[]),
];

/// Words that the code of a room does not name.
const STRANGERS: &[(&str, &[&str])] = &[
    ("rocev2/src/wire/", &["crate::cm", "crate::device", "crate::mr", "crate::qp"]),
    ("rocev2/src/mr/", &["crate::cm", "crate::device", "crate::qp"]),
    ("rocev2/src/qp/", &["crate::cm", "crate::device"]),
    ("rocev2/src/cm/", &["crate::device", "crate::qp"]),
    ("driver/src/", &["cfg(windows", "target_env"]),
];

/// Lines of a file without its inline tests.
const MAX_LINES: usize = 500;
/// The files that are longer still. The list only shrinks.
const LONG: &[&str] = &[
    "driver/ndis/src/abi/ndis.rs",
    "driver/abi/src/dispatch.rs",
    "rocev2/src/qp/mod.rs",
    "rocev2/src/qp/recv/responder.rs",
    "rocev2/src/qp/send/completer.rs",
    "rocev2/src/wire/mad.rs",
    "tests/conformance/count.rs",
    "tests/conformance/cve.rs",
    "tests/conformance/peer.rs",
    "tests/lifetime.rs",
    "tests/mutants/list.rs",
    "tests/ndkpi/tables/misuse.rs",
    "tests/provider.rs",
    "tests/src/sim/judge.rs",
    "tests/src/sim/watch.rs",
    "tests/windows/rig/src/ndis/nic.rs",
    "tests/windows/rig/src/ndis/vnic.rs",
    "tests/wire.rs",
];

/// The rooms whose comments are plain sentences, in the terms of their glossaries. The list only grows.
const PLAIN: &[&str] = &["driver/", "netadapter-glue/", "rocev2/"];

/// The root README is a door, not a report.
const MAX_DOOR_BYTES: usize = 8 * 1024;
/// Folders of the top level without a README.
const WITHOUT_README: &[&str] = &[];

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn metadata() -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = cargo.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository")
}

#[test]
fn crates_import_downwards() {
    complain(&imports(&metadata(), RULES));
}

#[test]
fn an_import_upwards_is_refused() {
    let metadata = serde_json::json!({ "packages": [
        { "name": "low", "dependencies": [{ "name": "high", "path": "/high" }, { "name": "libc" }] },
        { "name": "high", "dependencies": [{ "name": "low", "path": "/low" }] },
        { "name": "new", "dependencies": [] },
    ]});
    let rules: &[(&str, &[&str])] = &[("low", &[]), ("high", &["low"])];
    assert_eq!(imports(&metadata, rules), ["low imports high", "new has no import rule"]);
}

#[test]
fn rooms_know_their_neighbours_alone() {
    let files = Tree::read(root()).files("rs");
    complain(&strangers(&files, STRANGERS));
    for (room, _) in STRANGERS {
        assert!(files.iter().any(|(path, _)| path.starts_with(room)), "{room} is gone");
    }
}

#[test]
fn a_room_that_names_a_stranger_is_refused() {
    let text = "use crate::high::X;\n    //! [`crate::high`]\nuse crate::low;\n".to_string();
    let files = [("low/a.rs".to_string(), text.clone()), ("mid/a.rs".to_string(), text)];
    assert_eq!(strangers(&files, &[("low/", &["crate::high"])]), ["low/a.rs:1: crate::high"]);
}

#[test]
fn files_are_short() {
    complain(&sizes(&Tree::read(root()).files("rs"), MAX_LINES, LONG));
}

#[test]
fn a_long_file_and_an_exception_that_is_none_are_refused() {
    let tests = "#[cfg(test)]\nmod tests {\n}\n";
    let files = [
        ("a.rs", "x\n".repeat(4)),
        ("b.rs", "x\n".repeat(3) + tests),
        ("c.rs", "x\n".repeat(4)),
        ("x/src/tests/a.rs", "x\n".repeat(4)),
        ("d.rs", "x\n".repeat(3) + "#[cfg(test)]\nuse x;\n"),
    ];
    let files = files.map(|(path, text)| (path.to_string(), text));
    let complaints = sizes(&files, 3, &["b.rs", "c.rs", "gone.rs"]);
    assert_eq!(
        complaints,
        [
            "a.rs: 4 lines without tests",
            "d.rs: 5 lines without tests",
            "b.rs: no longer an exception",
            "gone.rs: no longer an exception"
        ]
    );
}

#[test]
fn no_word_is_forbidden() {
    complain(&words(&Tree::read(root()).all()));
}

#[test]
fn forbidden_words_are_refused() {
    let line = |text: &str| [("a.rs".to_string(), format!("fine\n{text}\n"))];
    for text in [concat!("// TO", "DO: later"), concat!("db", "g!(x)"), concat!("cd /wo", "rk/x")] {
        assert_eq!(words(&line(text)).len(), 1, "{text}");
    }
    assert_eq!(words(&line(concat!("a todo list, qp/wo", "rk/scoreboard.rs"))), [""; 0]);
}

#[test]
fn comments_start_with_their_subject() {
    let mut complaints = Vec::new();
    for (path, text) in Tree::read(root()).files("rs") {
        if PLAIN.iter().any(|room| path.starts_with(room)) {
            complaints.extend(prose(&path, &docs::comments(&text)));
        }
    }
    complain(&complaints);
}

#[test]
fn a_retired_word_does_not_come_back() {
    complain(&dialect(&Tree::read(root()).files("rs"), PLAIN));
    let files = [
        ("rocev2/a.rs".to_string(), concat!("let x = Pati", "ence::new();\n").to_string()),
        ("rocev2/b.rs".to_string(), "let impatience = 1;\n".to_string()),
        ("tests/a.rs".to_string(), concat!("let x = Pati", "ence::new();\n").to_string()),
    ];
    let complaint = concat!("rocev2/a.rs:1: Pati", "ence is called ReorderWindow or PeerLimits");
    assert_eq!(dialect(&files, PLAIN), [complaint]);
}

#[test]
fn every_room_has_a_readme() {
    complain(&docs::rooms(&Tree::read(root()), WITHOUT_README));
    let door = std::fs::read_to_string(root().join("README.md")).expect("the door exists");
    assert!(door.len() <= MAX_DOOR_BYTES, "README.md has {} bytes", door.len());
}

#[test]
fn a_room_without_a_readme_is_refused() {
    let tree = Tree::of(&["a/README.md", "a/src/lib.rs", "b/Cargo.toml", ".ci/run", "README.md"]);
    assert_eq!(docs::rooms(&tree, &[]), ["b/ has no README.md"]);
    assert_eq!(docs::rooms(&tree, &["a", "b"]), ["a/ is no longer an exception"]);
}

#[test]
fn documents_name_what_exists() {
    let tree = Tree::read(root());
    let names = Names::new(&metadata(), &tree);
    let mut complaints = Vec::new();
    for (path, text) in tree.files("md") {
        complaints.extend(links(&path, &text, &tree));
        complaints.extend(paths(&path, &text, &tree));
        complaints.extend(commands(&path, &text, &names));
        complaints.extend(prose(&path, &text));
    }
    complain(&complaints);
}

#[test]
fn a_dead_link_or_path_is_refused() {
    let mut tree = Tree::of(&["a/README.md", "a/src/lib.rs", "b/x.rs"]);
    tree.set("b/README.md", "# Two words, `and` code\n");
    tree.set("b/x.rs", "pub fn present() {}\n");
    let links = |text| links("a/README.md", text, &tree).len();
    assert_eq!(
        links("[a](src/lib.rs) [b](../b/README.md#two-words-and-code) [c](https://x.y/z)"),
        0
    );
    assert_eq!(links("[a](src/gone.rs)"), 1);
    assert_eq!(links("[a](../b/README.md#three-words)"), 1);
    assert_eq!(links("[a](#here)"), 1);
    let paths = |text| paths("a/README.md", text, &tree).len();
    assert_eq!(
        paths("`src/lib.rs` `b/x.rs:present` `b/` `message/plain` `target/x.rs` `/dev/x`"),
        0
    );
    assert_eq!(paths("`src/gone.rs`"), 1);
    assert_eq!(paths("`b/gone`"), 1);
    assert_eq!(paths("`b/x.rs:absent`"), 1);
    assert_eq!(paths("```sh\nb/run now   # comment\n```"), 1);
    assert_eq!(paths("```powershell\nb/run now\n```"), 0);
}

#[test]
fn a_command_without_its_target_is_refused() {
    let metadata = serde_json::json!({ "packages": [{ "name": "a", "targets": [
        { "name": "t", "kind": ["test"] }, { "name": "b", "kind": ["bench"] } ] }] });
    let mut tree = Tree::of(&[]);
    tree.set("a/t.rs", "mod room;\nfn a_case() {}\n");
    tree.set("w/Cargo.toml", "[package]\nname = \"w\"\n\n[[test]]\nname = \"wine\"\n");
    let names = Names::new(&metadata, &tree);
    let commands = |text| commands("README.md", text, &names).len();
    assert_eq!(
        commands("`X=1 cargo test -p a --test t room:: a_case -- --nocapture` `--test t`"),
        0
    );
    assert_eq!(commands("```sh\ncargo bench -p a --bench b   # fast, --test x\n```"), 0);
    assert_eq!(commands("`cargo test -p w --test wine`"), 0, "no member of the workspace");
    assert_eq!(commands("`cargo test -p w --test gone`"), 1);
    assert_eq!(commands("`cargo test -p gone`"), 1);
    assert_eq!(commands("`cargo test -p a --test b`"), 1);
    assert_eq!(commands("`cargo bench -p a --bench t`"), 1);
    assert_eq!(commands("`cargo run -p a --example t`"), 1);
    assert_eq!(commands("`cargo test -p a -- no_case`"), 1);
    assert_eq!(commands("`--test gone`"), 1);
}

#[test]
fn a_question_word_as_a_noun_is_refused() {
    assert_eq!(prose("a.md", "What is lost? It says what was lost.\n## What works\n"), [""; 0]);
    assert_eq!(prose("a.md", "It ends. What was lost is sent again.\n").len(), 1);
    assert_eq!(prose("a.md", "| Who asks | gets |\n").len(), 1);
    let source = "/// What is lost.\nlet what = 1;\n    // It came. Who sent it?\n";
    assert_eq!(prose("a.rs", &docs::comments(source)).len(), 1);
}
