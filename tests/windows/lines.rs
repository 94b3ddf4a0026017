//! The judge of the coverage of the Windows-only code, `lines.py`.
//!
//! Goal: it names a line that neither runs nor is listed, an entry that has no such line, and a share that is too small.
//! Method: a source of ten lines, hits as `llvm-cov` writes them, and lists that are right and wrong.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

const FILE: &str = "driver/ndis/src/a.rs";
const SOURCE: &str = "fn first() {
    one();
    two();
    three();
    four();
    five();
    six();
}
fn second() {
    // A comment.
    seven();
}
";
/// All lines of code.
const LINES: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 9, 11];

/// What the judge says of the lines that did not run, by a list; `None` where python3 is missing.
fn judge(missed: &[usize], list: &str, forgiven: &str) -> Option<(bool, String)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("target/tmp is writable");
    let source = folder.path().join(FILE);
    fs::create_dir_all(source.parent().expect("a folder")).expect("target/tmp is writable");
    fs::write(source, SOURCE).expect("target/tmp is writable");
    fs::write(folder.path().join("list"), list).expect("target/tmp is writable");
    let hit = |line: &usize| format!("DA:{line},{}\n", u8::from(!missed.contains(line)));
    let hits: String = LINES.iter().chain(&[8, 10, 12]).map(hit).collect();
    // Another room's file does not count.
    let lcov = format!("SF:./driver/src/b.rs\nDA:1,0\nend_of_record\nSF:./{FILE}\n{hits}");
    let mut python = Command::new("python3")
        .arg(format!("{}/tests/windows/lines.py", tests::ROOT))
        .args(["list", forgiven])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    python.stdin.take().expect("piped").write_all(lcov.as_bytes()).expect("it reads");
    let done = python.wait_with_output().expect("it ends");
    Some((done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned()))
}

#[test]
fn each_line_runs_or_is_listed() {
    let Some((passes, said)) = judge(&[8, 10], "", "0") else {
        return eprintln!("skipped: lines.py: no python3");
    };
    assert!(passes && said.contains("100.00 % of    9"), "braces and comments: {said}");
    let judged = |missed: &[usize], list: &str| judge(missed, list, "0").expect("as before");
    let (passes, said) = judged(&[11], "");
    assert!(!passes && said.contains(&format!("not listed: {FILE} second: seven();")), "{said}");
    for list in ["second: seven();", "second"] {
        let (passes, said) = judged(&[11], &format!("# A reason.\n{FILE} {list}\n"));
        assert!(passes, "{list}: {said}");
        let (passes, said) = judged(&[], &format!("{FILE} {list}\n"));
        assert!(!passes && said.contains(&format!("runs or is gone: {FILE} {list}")), "{said}");
        assert!(judged(&[], &format!("? {FILE} {list}\n")).0, "it may run");
    }
    let (passes, said) = judged(&[], &format!("? {FILE} second: eight();\n"));
    assert!(!passes && said.contains("runs or is gone"), "{said}");
    for (forgiven, passes) in [("0", false), ("1", true)] {
        let (passed, said) = judge(&[11], "", forgiven).expect("as before");
        assert!(passed == passes && said.contains("not listed"), "{forgiven}: {said}");
    }
    let (passes, said) = judge(&[2, 3], "", "9").expect("as before");
    assert!(!passes && said.contains("less than 85 %"), "{said}");
    let (passes, said) = judged(&[2, 3], &format!("{FILE} first\n"));
    assert!(!passes && said.contains("less than 85 %"), "{said}");
}
