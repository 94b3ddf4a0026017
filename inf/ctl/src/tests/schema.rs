//! The JSON that is told, judged by the schema of the release.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::flights::{ADDRESS, flight, flyable};
use super::reports::{installed, snapshot};
use super::{PACKAGE, silent};
use crate::flight::fly;
use crate::machine::Stages;
use crate::run::uninstall;
use crate::simulated::{Simulated, State, static_settings};
use crate::status::json;
use crate::verify::{Verify, verify};

/// Judges documents, one behind the other, by a definition of the schema; the words of what is wrong, or why nobody judged.
const JUDGE: &str = r##"
import json, sys
try:
    import jsonschema
except ImportError:
    sys.exit(77)
schema = json.load(open(sys.argv[1]))
schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": "#/$defs/" + sys.argv[2]}
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
text, errors = sys.stdin.read().strip(), []
while text:
    document, end = json.JSONDecoder().raw_decode(text)
    errors += [e.json_path + ": " + e.message for e in validator.iter_errors(document)]
    text = text[end:].strip()
print("\n".join(errors))
sys.exit(1 if errors else 0)
"##;

/// Whether it fits; `None` where this machine has no judge.
fn fits(definition: &str, document: &str) -> Option<bool> {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../ndkrocev2ctl.schema.json");
    let mut python = Command::new("python3");
    python.args(["-c", JUDGE, schema, definition]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut judge) = python.spawn() else { return skipped("no python3") };
    judge.stdin.take().expect("a pipe").write_all(document.as_bytes()).expect("it reads");
    let judged = judge.wait_with_output().expect("it ends");
    match judged.status.code() {
        Some(77) => skipped("python3 has no jsonschema"),
        Some(0) => Some(true),
        _ => {
            println!("{}", String::from_utf8_lossy(&judged.stdout));
            Some(false)
        }
    }
}

pub(super) fn skipped(why: &str) -> Option<bool> {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    None
}

pub(super) fn assert_fits(definition: &str, document: &str) {
    assert_ne!(fits(definition, document), Some(false), "{definition}: {document}");
}

/// A bare machine, a sound one, one on which nothing can be asked, and one with the driver's word.
#[test]
fn the_status_fits() {
    let bare = Simulated::new(State::sample(static_settings()));
    let mut mute = installed();
    mute.answers.clear();
    mute.problem = 28;
    let mut loaded = installed();
    loaded.snapshot = Some(snapshot());
    loaded.stages = Stages { last: Some("NdkOpen".into()), previous: None };
    let machines = [bare, installed(), mute, loaded];
    let texts = machines.map(|mut machine| json(&mut machine).expect("a status"));
    let text = &texts[3];
    assert!(text.contains("FilterRefused") || text.contains("refused the packet filter"), "{text}");
    // Together, as each start of the judge takes a second.
    assert_fits("status", &texts.concat());
    // The judge is one.
    assert_ne!(fits("status", "{\"version\": 1}"), Some(true));
}

/// All is well, something is not, and nothing is installed.
#[test]
fn the_checks_fit() {
    let mut machine = installed();
    let mut document = |spoil: fn(&mut Simulated)| {
        spoil(&mut machine);
        let asked = Verify { package: Some(PACKAGE.clone()), json: true, ..Verify::default() };
        let mut text = String::new();
        verify(&mut machine, &asked, &mut |line| text += &line).expect("is told");
        text
    };
    let mut all = String::new();
    for (spoil, state) in [
        ((|_| {}) as fn(&mut Simulated), "works"),
        (|machine| machine.problem = 28, "fails"),
        (
            |machine| {
                uninstall(machine, None, &mut silent).expect("uninstalls");
            },
            "not-installed",
        ),
    ] {
        let text = document(spoil);
        assert!(text.contains(&format!("\"state\": \"{state}\"")), "{text}");
        all += &text;
    }
    assert_fits("verify", &all);
}

/// The record of a flight that waits for Windows to start, and of one that has landed.
#[test]
fn the_record_fits() {
    let (asked, _) = flight("json.json", &[&ADDRESS[..], &["--json"]].concat());
    let mut machine = flyable(None);
    let mut all = String::new();
    for outcome in ["null", "\"Passed\""] {
        let mut text = String::new();
        fly(&mut machine, &asked, &mut |line| text += &line).expect("flies");
        machine.machine.start_windows();
        assert!(text.contains(&format!("\"outcome\": {outcome}")), "{text}");
        all += &text;
    }
    assert_fits("first-flight", &all);
}
