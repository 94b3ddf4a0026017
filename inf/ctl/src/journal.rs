//! The journals: what was planned for each adapter and how far it got, written before and after each step.
//!
//! Steps about what all adapters share (the driver store, trust, the protocol) stand in the journal of each that was installed
//! on them. So the journals count them: an undoing takes away what no other journal has.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::plan::Request;
use crate::step::Step;
use crate::upgrade::Upgrade;

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

/// That of one adapter.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) request: Request,
    /// The instance ID of its device, chosen before there is one; empty where only what adapters share is left.
    pub(crate) device: String,
    /// The administrator has said that the machine works, or was not to be asked.
    pub(crate) confirmed: bool,
    /// The rest of the steps is for after a restart of Windows, which is not to roll the others back.
    pub(crate) resumes: bool,
    pub(crate) entries: Vec<Entry>,
}

impl Journal {
    pub(crate) fn new(request: Request, device: String, steps: Vec<Step>) -> Self {
        let entries = steps.into_iter().map(|step| Entry { step, progress: Progress::Planned });
        let confirmed = request.confirm_within_s.is_none();
        Self { request, device, confirmed, resumes: false, entries: entries.collect() }
    }

    fn begun(&self) -> impl Iterator<Item = &Step> {
        let begun = self.entries.iter().filter(|entry| entry.progress != Progress::Planned);
        begun.map(|entry| &entry.step)
    }

    /// Whether the NIC's own network was touched: then nothing may wait in the middle.
    pub(crate) fn touches_nic(&self) -> bool {
        self.begun().any(|step| {
            matches!(step, Step::RememberIp { .. } | Step::Unbind { .. } | Step::TakePlace)
        })
    }

    /// The interface GUID of the NIC below, by the plan.
    pub(crate) fn nic(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| {
            if let Step::PointAt { nic, .. } = &entry.step { Some(nic.as_str()) } else { None }
        })
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| entry.progress == Progress::Done)
    }

    fn stands_on(&self, step: &Step) -> bool {
        let is_schedule = |step: &Step| matches!(step, Step::ScheduleRollback { .. });
        if is_schedule(step) {
            // One task for all that may roll back.
            return !self.confirmed && self.begun().any(is_schedule);
        }
        step.is_shared() && self.begun().any(|begun| begun == step)
    }
}

/// Those of all adapters, in the order in which they were installed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journals {
    pub(crate) adapters: Vec<Journal>,
    /// The exchange of the driver package that is under way below all of them.
    pub(crate) upgrade: Option<Upgrade>,
}

impl Journals {
    pub(crate) fn read(machine: &mut impl Machine) -> Result<Self> {
        let Some(text) = machine.journal()? else { return Ok(Self::default()) };
        serde_json::from_str(&text)
            .context("the journal is damaged, or of another version of this program")
    }

    /// The last one takes the file along.
    pub(crate) fn write(&self, machine: &mut impl Machine) -> Result<()> {
        if self.adapters.is_empty() {
            return machine.set_journal(None);
        }
        machine.set_journal(Some(&serde_json::to_string_pretty(self)?))
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.adapters.iter().position(|journal| journal.request.name.eq_ignore_ascii_case(name))
    }

    /// Whether another adapter than this one stands on what the step made, too.
    pub(crate) fn others_stand_on(&self, at: usize, step: &Step) -> bool {
        let mut others = self.adapters.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, journal)| journal.stands_on(step))
    }
}
