//! The journal: what was planned and how far it got, written before and after each step.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::plan::Request;
use crate::step::Step;

/// How far a step got. A step that was begun may be done, half done or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) enum Progress {
    Planned,
    Begun,
    Done,
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) step: Step,
    pub(crate) progress: Progress,
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) request: Request,
    /// The administrator has said that the machine works, or was not to be asked.
    pub(crate) confirmed: bool,
    /// The rest of the steps is for after a restart of Windows, which is not to roll the others back.
    pub(crate) resumes: bool,
    pub(crate) entries: Vec<Entry>,
}

impl Journal {
    pub(crate) fn new(request: Request, steps: Vec<Step>) -> Self {
        let entries = steps.into_iter().map(|step| Entry { step, progress: Progress::Planned });
        let confirmed = request.confirm_within_s.is_none();
        Self { request, confirmed, resumes: false, entries: entries.collect() }
    }

    pub(crate) fn read(machine: &mut impl Machine) -> Result<Option<Self>> {
        let text = machine.journal()?;
        text.map(|text| serde_json::from_str(&text).context("the journal is damaged")).transpose()
    }

    pub(crate) fn write(&self, machine: &mut impl Machine) -> Result<()> {
        machine.set_journal(Some(&serde_json::to_string_pretty(self)?))
    }

    /// Whether the NIC's own network was touched: then nothing may wait in the middle.
    pub(crate) fn touches_nic(&self) -> bool {
        let begun = self.entries.iter().filter(|entry| entry.progress != Progress::Planned);
        begun.map(|entry| &entry.step).any(|step| {
            matches!(step, Step::RememberIp { .. } | Step::Unbind { .. } | Step::TakePlace)
        })
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| entry.progress == Progress::Done)
    }
}
