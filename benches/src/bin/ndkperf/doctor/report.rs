//! The report, for people and for programs.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::findings::{Code, Finding};

/// The document's form. It grows when a field goes or changes its meaning, not when one is added.
const SCHEMA_VERSION: u32 = 1;

/// All that an examination has found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    findings: Vec<Finding>,
    counters: Vec<(&'static str, u64)>,
}

/// A step, and what it tells.
#[derive(Debug)]
struct Step {
    name: &'static str,
    state: State,
    told: Vec<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Healthy,
    Faulty,
    Skipped,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "ok",
            Self::Faulty => "fault",
            Self::Skipped => "skipped",
        }
    }
}

impl Report {
    /// Starts a step.
    pub(super) fn begin(&mut self, name: &'static str) {
        self.steps.push(Step { name, state: State::Healthy, told: Vec::new() });
    }

    /// Tells something of the step.
    pub(super) fn tell(&mut self, text: impl Into<String>) {
        if let Some(step) = self.steps.last_mut() {
            step.told.push(text.into());
        }
    }

    /// Tells why the step, or the rest of it, was left out.
    pub(super) fn skip(&mut self, why: impl Into<String>) {
        self.tell(why);
        if let Some(step) = self.steps.last_mut()
            && step.state == State::Healthy
        {
            step.state = State::Skipped;
        }
    }

    /// Names a fault that the step has found.
    pub(super) fn find(&mut self, code: Code, text: impl Into<String>) {
        let text = text.into();
        if let Some(step) = self.steps.last_mut() {
            step.state = State::Faulty;
            step.told.push(format!("{}, see below", code.name()));
        }
        self.findings.push(Finding { code, text });
    }

    pub(super) fn count(&mut self, counters: Vec<(&'static str, u64)>) {
        self.counters = counters;
    }

    /// The faults.
    pub(crate) fn codes(&self) -> Vec<&'static str> {
        self.findings.iter().map(|finding| finding.code.name()).collect()
    }

    /// Writes it for people.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn write(&self, out: &mut impl Write, title: &str) -> io::Result<()> {
        writeln!(out, "{title}\n")?;
        for Step { name, state, told } in &self.steps {
            let mut place = (state.name(), *name);
            for line in told {
                writeln!(out, "  {:<7} {:<10} {line}", place.0, place.1)?;
                place = ("", "");
            }
        }
        if self.findings.is_empty() {
            return writeln!(out, "\nno fault was found");
        }
        writeln!(out, "\nFindings")?;
        for Finding { code, text } in &self.findings {
            writeln!(out, "  {}: {text}", code.name())?;
            writeln!(out, "    to mend it: {}", code.mend())?;
        }
        Ok(())
    }

    /// One document.
    pub(super) fn document(&self, peer: &str, local: &str, edge: &str) -> Value {
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|step| json!({ "step": step.name, "state": step.state.name(), "told": step.told }))
            .collect();
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|Finding { code, text }| {
                json!({ "code": code.name(), "text": text, "mend": code.mend() })
            })
            .collect();
        let counters: serde_json::Map<String, Value> =
            self.counters.iter().map(|(name, count)| ((*name).into(), (*count).into())).collect();
        json!({
            "schema": "ndkperf-doctor",
            "schema_version": SCHEMA_VERSION,
            "version": env!("CARGO_PKG_VERSION"),
            "peer": peer,
            "local": local,
            "edge": edge,
            "healthy": self.findings.is_empty(),
            "findings": findings,
            "steps": steps,
            "counters": counters,
        })
    }
}
