//! The machine that the committed counts are of: the compiler and the processor decide them, too.

use std::process::Command;

/// The release of the compiler.
const RUSTC: &str = "1.95";
/// The processor that valgrind shows, by what checksums and the C library choose by.
const PROCESSOR: &str = "x86_64 avx2 pclmulqdq sse4.1 ssse3";

/// How this machine differs, if it does.
pub(crate) fn difference() -> Option<String> {
    let rustc = said("rustc", &["--version"]);
    let processor = said("valgrind", &["-q", "--tool=none", env!("CARGO_BIN_EXE_processor")]);
    if !rustc.starts_with(&format!("rustc {RUSTC}.")) {
        return Some(format!("the counts are of Rust {RUSTC}, and this is {rustc:?}"));
    }
    (processor != PROCESSOR).then(|| {
        format!(
            "the counts are of a processor with {PROCESSOR:?}, and valgrind shows {processor:?}"
        )
    })
}

/// What the command prints; nothing where there is no such program, which is not what was asked for.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let printed = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&printed).trim().to_string()
}
