//! The steps of an installation. Each knows all that its undoing needs before it is done.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::journal::Journal;
use crate::machine::{
    COUNTERS, Certificate, Inf, IpSettings, LOWER, LOWER_ADAPTER, LOWER_MODE, Machine, Mode, Store,
    Vnic,
};

/// Windows starts a device, and a NIC gets its link, well within this.
const LINK_S: u64 = 30;

/// For which adapter a step is made, and from which package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    package: &'a Path,
    /// The instance ID of the adapter's device.
    device: &'a str,
    /// The NIC below, by its interface GUID; empty where nobody knows it.
    nic: &'a str,
}

impl<'a> Site<'a> {
    pub(crate) fn of(journal: &'a Journal) -> Self {
        let Journal { request, device, .. } = journal;
        Self { package: &request.package, device, nic: journal.nic().unwrap_or_default() }
    }

    /// For steps that look at neither.
    pub(crate) fn nowhere() -> Self {
        Self { package: Path::new(""), device: "", nic: "" }
    }
}

/// One step. `undo` may be called whether `apply` was finished, broken off or never begun.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) enum Step {
    KeepTool,
    /// In time for whatever breaks the installation off.
    ScheduleRollback {
        within_s: u64,
    },
    Trust {
        store: Store,
        certificate: Certificate,
    },
    Stage(Inf),
    InstallProtocol,
    RegisterCounters,
    /// The protocol, to the adapter's NIC.
    BindLower {
        nic: String,
    },
    CreateDevice,
    InstallDriver,
    Rename(String),
    /// In a mode in which nothing of the NIC is disturbed until the link is seen.
    PointAt {
        nic: String,
        mode: Mode,
    },
    SeeLink,
    /// Changes nothing. Its undoing gives the NIC back what it has now.
    RememberIp {
        nic: String,
        settings: IpSettings,
    },
    Unbind {
        nic: String,
        component: String,
    },
    TakePlace,
    SetIp(IpSettings),
    /// The time to confirm begins when all is done.
    StartClock {
        within_s: u64,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepTool => write!(f, "keep this program for the rollback"),
            Self::ScheduleRollback { within_s } => write!(f, "schedule a rollback in {within_s} s"),
            Self::Trust { store, certificate } => {
                write!(f, "trust {} {} in {store}", certificate.subject, certificate.thumbprint)
            }
            Self::Stage(inf) => write!(f, "add {} to the driver store", inf.file()),
            Self::InstallProtocol => {
                write!(f, "install the protocol {LOWER}, bound to no other NIC")
            }
            Self::BindLower { nic } => write!(f, "bind {LOWER} to {nic}"),
            Self::CreateDevice => write!(f, "create the device"),
            Self::InstallDriver => write!(f, "install the device's driver"),
            Self::RegisterCounters => write!(f, "register the performance counters"),
            Self::Rename(name) => write!(f, "name the adapter {name}"),
            Self::PointAt { nic, mode } => {
                write!(f, "bind the adapter to the NIC {nic}, in {mode:?} mode")
            }
            Self::SeeLink => write!(f, "see the link come up"),
            Self::RememberIp { nic, .. } => write!(f, "remember the IP settings of {nic}"),
            Self::Unbind { nic, component } => write!(f, "unbind {component} from {nic}"),
            Self::TakePlace => write!(f, "take the NIC's place"),
            Self::SetIp(settings) => write!(f, "give the adapter its IP settings: {settings}"),
            Self::StartClock { within_s } => write!(f, "wait {within_s} s for the confirmation"),
        }
    }
}

impl Step {
    pub(crate) fn apply(&self, machine: &mut impl Machine, site: &Site<'_>) -> Result<()> {
        let Site { package, device, nic } = *site;
        match self {
            Self::KeepTool => machine.keep_tool(),
            Self::ScheduleRollback { within_s } | Self::StartClock { within_s } => {
                machine.schedule_rollback(*within_s)
            }
            Self::Trust { store, certificate } => machine.trust(*store, certificate),
            Self::Stage(inf) if machine.staged(*inf)?.is_empty() => {
                machine.stage(&package.join(inf.file()))
            }
            Self::CreateDevice if !exists(machine, device)? => machine.create_device(device),
            Self::InstallProtocol if !machine.has_protocol()? => machine.install_protocol(nic),
            // Done for another adapter, or by whoever was broken off before it could be noted.
            Self::Stage(_) | Self::CreateDevice | Self::InstallProtocol => Ok(()),
            Self::InstallDriver => machine.install_driver(&package.join(Inf::Adapter.file())),
            Self::RegisterCounters => machine.register_counters(&package.join(COUNTERS)),
            Self::BindLower { nic } => machine.bind(nic, LOWER),
            Self::Rename(name) => machine.rename(device, name),
            Self::PointAt { nic, mode } => point_at(machine, device, nic, *mode),
            Self::SeeLink => see_link(machine, device),
            Self::RememberIp { .. } => Ok(()),
            Self::Unbind { nic, component } => machine.unbind(nic, component),
            Self::TakePlace => set_mode(machine, device, Mode::Inherit),
            Self::SetIp(settings) => set_ip(machine, device, settings),
        }
    }

    pub(crate) fn undo(&self, machine: &mut impl Machine, site: &Site<'_>) -> Result<()> {
        let Site { device, .. } = *site;
        match self {
            Self::KeepTool => machine.remove_tool(),
            Self::ScheduleRollback { .. } => machine.cancel_rollback(),
            Self::Trust { store, certificate } => machine.distrust(*store, &certificate.thumbprint),
            Self::Stage(inf) => {
                machine.staged(*inf)?.iter().try_for_each(|published| machine.unstage(published))
            }
            Self::InstallProtocol if machine.has_protocol()? => machine.remove_protocol(),
            Self::BindLower { nic } if has_lower(machine, nic)? => machine.unbind(nic, LOWER),
            Self::CreateDevice => remove_device(machine, device),
            Self::RegisterCounters => machine.unregister_counters(),
            Self::RememberIp { nic, settings } => {
                let missing = settings.without(&machine.ip_settings(nic)?);
                if missing == IpSettings::default() {
                    return Ok(());
                }
                machine.add_ip_settings(nic, &missing)
            }
            Self::Unbind { nic, component } => machine.bind(nic, component),
            // Two owners of one address would both lose it.
            Self::TakePlace if exists(machine, device)? => {
                set_mode(machine, device, Mode::Own).or_else(|_| remove_device(machine, device))
            }
            Self::InstallProtocol | Self::BindLower { .. } | Self::TakePlace => Ok(()),
            // It goes with the device, or changed nothing.
            Self::InstallDriver
            | Self::Rename(_)
            | Self::PointAt { .. }
            | Self::SeeLink
            | Self::SetIp(_)
            | Self::StartClock { .. } => Ok(()),
        }
    }

    /// Whether it makes what all adapters share, so that the last one of them takes it away.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::KeepTool
            | Self::ScheduleRollback { .. }
            | Self::Trust { .. }
            | Self::Stage(_)
            | Self::InstallProtocol
            | Self::RegisterCounters => true,
            Self::BindLower { .. }
            | Self::CreateDevice
            | Self::InstallDriver
            | Self::Rename(_)
            | Self::PointAt { .. }
            | Self::SeeLink
            | Self::RememberIp { .. }
            | Self::Unbind { .. }
            | Self::TakePlace
            | Self::SetIp(_)
            | Self::StartClock { .. } => false,
        }
    }

    /// Whether the steps before this one stand on it, so that they cannot be undone where this one is not.
    pub(crate) fn holds_up(&self) -> bool {
        match self {
            // With TCP/IP on the NIC again, an adapter that still has its place would be a second owner.
            Self::TakePlace
            // Removing the protocol deletes the service that the device runs on.
            | Self::CreateDevice
            | Self::InstallProtocol
            // The task runs the program that was kept.
            | Self::ScheduleRollback { .. } => true,
            Self::KeepTool
            | Self::Trust { .. }
            | Self::Stage(_)
            | Self::BindLower { .. }
            | Self::InstallDriver
            | Self::RegisterCounters
            | Self::Rename(_)
            | Self::PointAt { .. }
            | Self::SeeLink
            | Self::RememberIp { .. }
            | Self::Unbind { .. }
            | Self::SetIp(_)
            | Self::StartClock { .. } => false,
        }
    }
}

fn exists(machine: &mut impl Machine, device: &str) -> Result<bool> {
    Ok(machine.devices()?.iter().any(|one| one.eq_ignore_ascii_case(device)))
}

/// A NIC that is gone has no binding to undo.
fn has_lower(machine: &mut impl Machine, nic: &str) -> Result<bool> {
    let is_there = machine.nics()?.iter().any(|one| one.guid == nic);
    Ok(is_there && machine.bound(nic, LOWER)? == Some(true))
}

/// The adapter reads its keywords when it starts; then the protocol is offered the NIC afresh.
fn point_at(machine: &mut impl Machine, device: &str, nic: &str, mode: Mode) -> Result<()> {
    machine.set_keyword(device, LOWER_ADAPTER, nic)?;
    set_mode(machine, device, mode)?;
    machine.unbind(nic, LOWER)?;
    machine.bind(nic, LOWER)
}

fn remove_device(machine: &mut impl Machine, device: &str) -> Result<()> {
    if !exists(machine, device)? {
        return Ok(());
    }
    machine.remove_device(device)?;
    ensure!(
        !exists(machine, device)?,
        "{device} stays: a consumer holds the adapter, or Windows waits for a restart"
    );
    Ok(())
}

fn set_mode(machine: &mut impl Machine, device: &str, mode: Mode) -> Result<()> {
    machine.set_keyword(device, LOWER_MODE, mode.keyword())?;
    machine.restart(device)
}

pub(crate) fn see_link(machine: &mut impl Machine, device: &str) -> Result<()> {
    for _ in 0..LINK_S {
        if machine.vnic(device)?.is_some_and(|vnic| vnic.up) {
            return Ok(());
        }
        machine.pause_s(1);
    }
    let problem = if exists(machine, device)? { machine.problem(device)? } else { 0 };
    anyhow::bail!(
        "the adapter has no link after {LINK_S} s (problem code {problem}); \
         see the system event log and `ndkrocev2ctl verify`"
    )
}

fn set_ip(machine: &mut impl Machine, device: &str, settings: &IpSettings) -> Result<()> {
    let Vnic { guid, .. } = machine.vnic(device)?.ok_or_else(|| anyhow::anyhow!("no adapter"))?;
    let missing = settings.without(&machine.ip_settings(&guid)?);
    machine.add_ip_settings(&guid, &missing)
}
