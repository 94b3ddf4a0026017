//! Programs of every Windows, judged by their exit codes: their words depend on the language.

use std::process::{Command, Output};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process};

use anyhow::{Context, Result, bail};

use crate::machine::Said;
use crate::task::{NAME, definition};

pub(super) fn run(program: &str, arguments: &[&str]) -> Result<Said> {
    let output = output(Command::new(program).args(arguments));
    let output = output.with_context(|| format!("{program} does not start"))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(Said {
        code: output.status.code().unwrap_or(-1),
        text: String::from_utf8_lossy(&text).trim().into(),
    })
}

/// What a program says at its end. Wine now and then loses one before it begins (`ERROR_INTERNAL_ERROR`): it has done nothing
/// then, and is started anew.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    const INTERNAL_ERROR: i32 = 1359;
    const TRIES: u32 = if cfg!(feature = "stand-in") { 5 } else { 1 };
    let mut again = 1..TRIES;
    loop {
        match command.output() {
            Err(error)
                if error.raw_os_error() == Some(INTERNAL_ERROR) && again.next().is_some() => {}
            output => return output,
        }
    }
}

pub(super) fn succeed(program: &str, arguments: &[&str]) -> Result<()> {
    match run(program, arguments)? {
        Said { code: 0, .. } => Ok(()),
        Said { code, text } => {
            bail!("{program} {}: exit code {code}: {text}", arguments.join(" "))
        }
    }
}

/// The task stays where this program ends, and where Windows starts anew.
pub(super) fn schedule(tool: &std::path::Path, within_s: u64) -> Result<()> {
    let at = SystemTime::now() + Duration::from_secs(within_s);
    let file = env::temp_dir().join(format!("ndkrocev2ctl-{}.xml", process::id()));
    let text = definition(&tool.display().to_string(), at);
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(&file, [&[0xff, 0xfe], &utf16[..]].concat())?;
    let path = file.display().to_string();
    let scheduled = succeed("schtasks.exe", &["/create", "/tn", NAME, "/xml", &path, "/f"]);
    fs::remove_file(file)?;
    scheduled
}

/// A task that does not exist is one that is cancelled.
pub(super) fn cancel() -> Result<()> {
    if run("schtasks.exe", &["/query", "/tn", NAME])?.code != 0 {
        return Ok(());
    }
    succeed("schtasks.exe", &["/delete", "/tn", NAME, "/f"])
}
