//! The table of all that the provider is measured by, beside floors and aims.
//!
//! `cargo run --release -p ndkperf --bin table` measures all of it, within half an hour; behind `--` stand the names
//! of parts, where not all are wanted. A part that cannot be measured here says why. The table is Markdown.

mod figures;
mod parts;
mod rows;

use figures::Figures;
use messages::processor;
use parts::Part;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named: Option<Vec<Part>> = args.iter().map(|name| Part::named(name)).collect();
    let parts = match named {
        Some(named) if named.is_empty() => Part::ALL.to_vec(),
        Some(named) => named,
        None => {
            eprintln!("usage: table [PART ...], of {}", Part::ALL.map(Part::name).join(", "));
            return ExitCode::FAILURE;
        }
    };
    let mut figures = Figures::default();
    let mut left_out = BTreeMap::new();
    for part in parts {
        eprintln!("{}", part.name());
        if let Err(reason) = part.measure(&mut figures) {
            left_out.insert(part, reason);
        }
    }
    println!("{}\n\n{}", title(), rows::table(&figures));
    for (part, reason) in left_out {
        println!("{}: skipped: {reason}", part.name());
    }
    ExitCode::SUCCESS
}

/// The code and the machine.
fn title() -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let printed = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&printed).trim().to_string()
    };
    let commit = said("git", &["describe", "--always", "--dirty"]);
    format!("Commit {commit}, {}; {}.", said("rustc", &["--version"]), processor())
}
