//! `ndkflight.sys`, a kernel consumer of NDK: how it is started, and its verdicts (`driver/flight/README.md`).

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::machine::{Machine, Said};
use crate::verify::Verdict;

pub(super) const FILE: &str = "ndkflight.sys";
const SERVICE: &str = "ndkflight";
const KEY: &str = r"HKLM\SYSTEM\CurrentControlSet\Services\ndkflight\Parameters";
/// Thrice what all steps take with 64 connections.
const FLIGHT_S: u64 = 900;

/// Flies from the adapter of the first interface index to that of the second, or to itself.
pub(super) fn fly(
    machine: &mut impl Machine,
    package: &Path,
    client: u32,
    server: Option<u32>,
) -> Result<Verdict> {
    let image = package.join(FILE);
    if !image.exists() {
        return Ok(Verdict::Skipped("the package has no ndkflight.sys"));
    }
    let image = image.display().to_string();
    run(
        machine,
        "sc.exe",
        &["create", SERVICE, "type=", "kernel", "start=", "demand", "binPath=", &image],
    )?;
    let flown = start(machine, client, server).and_then(|()| wait(machine));
    // One that is stuck stays loaded until Windows starts: a call of it may come back.
    if !matches!(&flown, Ok(values) if values.state() == "stuck") {
        let _ = machine.ask("sc.exe", &["stop", SERVICE]);
        let _ = machine.ask("sc.exe", &["delete", SERVICE]);
    }
    flown?.judge()
}

fn run(machine: &mut impl Machine, program: &str, arguments: &[&str]) -> Result<String> {
    let Said { code, text } = machine.ask(program, arguments)?;
    ensure!(code == 0, "{program} {}: exit code {code}: {text}", arguments.join(" "));
    Ok(text)
}

fn start(machine: &mut impl Machine, client: u32, server: Option<u32>) -> Result<()> {
    for (name, index) in [("Client", Some(client)), ("Server", server)] {
        if let Some(index) = index {
            run(machine, "reg.exe", &["add", KEY, "/v", name, "/d", &index.to_string(), "/f"])?;
        }
    }
    run(machine, "sc.exe", &["start", SERVICE]).map(|_| ())
}

fn wait(machine: &mut impl Machine) -> Result<Values> {
    for _ in 0..FLIGHT_S {
        let values = Values::read(&run(machine, "reg.exe", &["query", KEY])?);
        if !["", "running"].contains(&values.state()) {
            return Ok(values);
        }
        machine.pause_s(1);
    }
    bail!("it still runs after {FLIGHT_S} s")
}

/// The values of its key, by their names.
#[derive(Debug, Eq, PartialEq)]
struct Values(Vec<(String, String)>);

impl Values {
    /// As `reg query` prints them: name, type and value, four spaces between.
    fn read(text: &str) -> Self {
        let fields = |line: &str| -> Option<(String, String)> {
            let mut fields = line.trim().splitn(3, "    ");
            let (name, kind, value) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "REG_SZ").then(|| (name.into(), value.trim().into()))
        };
        Self(text.lines().filter_map(fields).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    fn state(&self) -> &str {
        self.get("State").unwrap_or_default()
    }

    /// Those that are of this flight.
    fn steps(&self) -> Result<Vec<&str>> {
        let count: usize = self.get("Steps").context("no Steps")?.parse()?;
        let step = |number| {
            let name = format!("Step{number:03}");
            self.get(&name).with_context(|| format!("no {name} of {count}"))
        };
        (0..count).map(step).collect()
    }

    /// `passed` alone is a pass, and only with steps over connections.
    fn judge(&self) -> Result<Verdict> {
        let read = self.steps();
        let known = read.as_deref().unwrap_or_default().iter().copied();
        let failed: Vec<_> = known.filter(|step| step.starts_with("fail ")).collect();
        ensure!(self.state() == "passed", "{}: {}", self.state(), failed.join("; "));
        ensure!(failed.is_empty(), "it says passed, and: {}", failed.join("; "));
        let steps = read?;
        let of = |verdict: &str| steps.iter().filter(|step| step.starts_with(verdict)).count();
        let connected = |step: &&&str| {
            let place = step.split(' ').nth(2).unwrap_or_default();
            step.starts_with("pass ") && ["loopback", "pair"].contains(&place)
        };
        ensure!(steps.iter().any(|step| connected(&step)), "no step ran over a connection");
        Ok(Verdict::Passed(format!("{} steps passed, {} skipped", of("pass "), of("skip "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(state: &str, steps: &[&str]) -> Values {
        let mut text = format!("\r\n{KEY}\r\n    State    REG_SZ    {state}\r\n");
        text +=
            &format!("    Steps    REG_SZ    {}\r\n    Client    REG_SZ    12\r\n", steps.len());
        for (number, step) in steps.iter().enumerate() {
            text += &format!("    Step{number:03}    REG_SZ    {step}\r\n");
        }
        // Of an earlier flight.
        text +=
            &format!("    Step{:03}    REG_SZ    fail read pair ipv4 1 ms: old\r\n", steps.len());
        Values::read(&text)
    }

    /// A pass is one of the whole flight, with a connection in it.
    #[test]
    fn the_verdicts_are_read() {
        let (good, bad) = ("pass write pair ipv4 21 ms", "fail read loopback ipv6 9 ms: why");
        let passed = values("passed", &[good, "skip send pair ipv6 0 ms: none"]).judge();
        let Ok(Verdict::Passed(words)) = passed else { panic!("{passed:?}") };
        assert_eq!(words, "1 steps passed, 1 skipped");
        for (values, words) in [
            (values("failed", &[good, bad]), "why"),
            (values("passed", &[good, bad]), "why"),
            (values("stuck", &[good]), "stuck"),
            (values("refused: no adapter", &[]), "no adapter"),
            (values("passed", &["pass objects client 3 ms"]), "no step ran over a connection"),
        ] {
            let error = values.judge().expect_err(words);
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }
}
