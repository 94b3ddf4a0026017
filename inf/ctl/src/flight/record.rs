//! The record of a flight: its stages, how each ended, and all that helps to tell why.

use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::driver;
use crate::journal::Journal;
use crate::machine::{Host, Machine};
use crate::step::Step;

/// The stages, each of which stands on those before.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Driver Verifier watches the image from the next restart on.
    Verifier,
    Signature,
    LoadAndUnload,
    DeviceWithoutNic,
    Bind,
    RpingToItself,
    TwoMachines,
    Smb,
}

impl Stage {
    pub(super) const FLOWN: [Self; 7] = [
        Self::Signature,
        Self::LoadAndUnload,
        Self::DeviceWithoutNic,
        Self::Bind,
        Self::RpingToItself,
        Self::TwoMachines,
        Self::Smb,
    ];

    /// How many steps of the installation it needs.
    pub(super) fn end(self, journal: &Journal) -> usize {
        let entries = &journal.entries;
        let find = |is: fn(&Step) -> bool| entries.iter().position(|entry| is(&entry.step));
        let found = match self {
            Self::Verifier | Self::Signature => Some(0),
            Self::LoadAndUnload => find(|step| matches!(step, Step::CreateDevice)),
            Self::DeviceWithoutNic => find(|step| matches!(step, Step::PointAt { .. })),
            Self::Bind => find(|step| matches!(step, Step::SeeLink)).map(|n| n + 1),
            Self::RpingToItself | Self::TwoMachines | Self::Smb => None,
        };
        found.unwrap_or(entries.len())
    }

    /// Whether it passes only if bytes went by RDMA.
    fn is_rdma(self) -> bool {
        match self {
            Self::RpingToItself | Self::TwoMachines | Self::Smb => true,
            Self::Verifier
            | Self::Signature
            | Self::LoadAndUnload
            | Self::DeviceWithoutNic
            | Self::Bind => false,
        }
    }
}

/// How a stage ended. One that has begun and not ended has stopped the machine, or somebody stopped the program.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) enum Ended {
    NotYet,
    Passed(String),
    Skipped(String),
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Flown {
    pub(super) stage: Stage,
    begun: String,
    pub(super) ended: Ended,
}

/// What a flight has shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// Nothing failed, and RDMA ran.
    Passed,
    /// Nothing failed, and no stage moved a byte by RDMA: so the flight shows too little.
    WithoutRdma,
    Failed,
}

/// All that is known, in one file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    version: String,
    host: Host,
    /// When it has ended.
    pub(super) outcome: Option<Outcome>,
    pub(super) stages: Vec<Flown>,
    /// By their names: the state at the end, logs, events.
    pub(super) attached: Vec<(String, String)>,
}

impl Record {
    fn new(machine: &mut impl Machine) -> Result<Self> {
        let (version, host) = (env!("CARGO_PKG_VERSION").into(), machine.host()?);
        Ok(Self { version, host, outcome: None, stages: Vec::new(), attached: Vec::new() })
    }

    /// That of the flight that goes on, or a new one.
    pub(super) fn open(machine: &mut impl Machine) -> Result<Self> {
        match machine.flight()? {
            Some(text) => serde_json::from_str(&text).context("the record is damaged"),
            None => Self::new(machine),
        }
    }

    pub(super) fn begin(&mut self, machine: &mut impl Machine, stage: Stage) -> Result<()> {
        let begun = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        self.stages.push(Flown { stage, begun, ended: Ended::NotYet });
        self.write(machine)
    }

    pub(super) fn end(&mut self, machine: &mut impl Machine, ended: Ended) -> Result<()> {
        self.stages.last_mut().context("no stage has begun")?.ended = ended;
        self.write(machine)
    }

    fn write(&self, machine: &mut impl Machine) -> Result<()> {
        machine.set_flight(Some(&serde_json::to_string_pretty(self)?))
    }

    /// Attaches the stages that the driver left in the registry, if there are any.
    pub(super) fn keep_stages(&mut self, machine: &mut impl Machine) -> Result<()> {
        let stages = driver::stages(&machine.stages()?);
        if !stages.is_empty() {
            self.attached.push(("driver's last stage".into(), stages));
        }
        Ok(())
    }

    pub(super) fn failed(&self) -> bool {
        self.stages.iter().any(|flown| matches!(flown.ended, Ended::Failed(_)))
    }

    /// As far as it went.
    pub(super) fn shows(&self) -> Outcome {
        let passed = |flown: &Flown| matches!(flown.ended, Ended::Passed(_));
        if self.failed() {
            Outcome::Failed
        } else if self.stages.iter().any(|flown| flown.stage.is_rdma() && passed(flown)) {
            Outcome::Passed
        } else {
            Outcome::WithoutRdma
        }
    }
}

/// Keeps the driver's stages in the record of a flight, if there is one: a rollback takes the service's key away, and with it
/// what a bug check left there.
pub(crate) fn keep_stages(machine: &mut impl Machine) -> Result<()> {
    let Some(text) = machine.flight()? else { return Ok(()) };
    let mut record: Record = serde_json::from_str(&text).context("the record is damaged")?;
    record.keep_stages(machine)?;
    record.write(machine)
}
