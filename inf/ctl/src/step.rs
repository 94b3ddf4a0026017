//! The steps of an installation. Each knows all that its undoing needs before it is done.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine::{
    COUNTERS, Certificate, Inf, IpSettings, LOWER, LOWER_ADAPTER, LOWER_MODE, Machine, Mode, Store,
    Vnic,
};

/// Windows starts a device, and a NIC gets its link, well within this.
const LINK_S: u64 = 30;

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
    CreateDevice,
    InstallDriver,
    RegisterCounters,
    Rename(String),
    /// With an address of its own at first, whatever the mode: nothing of the NIC is disturbed until the link is seen.
    PointAt {
        nic: String,
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
            Self::InstallProtocol => write!(f, "install the protocol {LOWER}"),
            Self::CreateDevice => write!(f, "create the device"),
            Self::InstallDriver => write!(f, "install the device's driver"),
            Self::RegisterCounters => write!(f, "register the performance counters"),
            Self::Rename(name) => write!(f, "name the adapter {name}"),
            Self::PointAt { nic } => write!(f, "bind the adapter to the NIC {nic}"),
            Self::SeeLink => write!(f, "see the link come up"),
            Self::RememberIp { nic, .. } => write!(f, "remember the IP settings of {nic}"),
            Self::Unbind { nic, component } => write!(f, "unbind {component} from {nic}"),
            Self::TakePlace => write!(f, "take the NIC's place"),
            Self::SetIp(_) => write!(f, "give the adapter its IP settings"),
            Self::StartClock { within_s } => write!(f, "wait {within_s} s for the confirmation"),
        }
    }
}

impl Step {
    pub(crate) fn apply(&self, machine: &mut impl Machine, package: &Path) -> Result<()> {
        match self {
            Self::KeepTool => machine.keep_tool(),
            Self::ScheduleRollback { within_s } | Self::StartClock { within_s } => {
                machine.schedule_rollback(*within_s)
            }
            Self::Trust { store, certificate } => machine.trust(*store, certificate),
            Self::Stage(inf) if machine.staged(*inf)?.is_empty() => {
                machine.stage(&package.join(inf.file()))
            }
            Self::CreateDevice if machine.devices()?.is_empty() => machine.create_device(),
            Self::InstallProtocol if !machine.has_protocol()? => machine.install_protocol(),
            // Done by whoever was broken off before it could be noted.
            Self::Stage(_) | Self::CreateDevice | Self::InstallProtocol => Ok(()),
            Self::InstallDriver => machine.install_driver(&package.join(Inf::Adapter.file())),
            Self::RegisterCounters => machine.register_counters(&package.join(COUNTERS)),
            Self::Rename(name) => machine.rename(name),
            Self::PointAt { nic } => point_at(machine, nic),
            Self::SeeLink => see_link(machine),
            Self::RememberIp { .. } => Ok(()),
            Self::Unbind { nic, component } => machine.unbind(nic, component),
            Self::TakePlace => set_mode(machine, Mode::Inherit),
            Self::SetIp(settings) => set_ip(machine, settings),
        }
    }

    pub(crate) fn undo(&self, machine: &mut impl Machine) -> Result<()> {
        match self {
            Self::KeepTool => machine.remove_tool(),
            Self::ScheduleRollback { .. } => machine.cancel_rollback(),
            Self::Trust { store, certificate } => machine.distrust(*store, &certificate.thumbprint),
            Self::Stage(inf) => {
                machine.staged(*inf)?.iter().try_for_each(|published| machine.unstage(published))
            }
            Self::InstallProtocol if machine.has_protocol()? => machine.remove_protocol(),
            Self::CreateDevice => remove_devices(machine),
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
            Self::TakePlace if !machine.devices()?.is_empty() => {
                set_mode(machine, Mode::Own).or_else(|_| remove_devices(machine))
            }
            Self::InstallProtocol | Self::TakePlace => Ok(()),
            // It goes with the device, or changed nothing.
            Self::InstallDriver
            | Self::Rename(_)
            | Self::PointAt { .. }
            | Self::SeeLink
            | Self::SetIp(_)
            | Self::StartClock { .. } => Ok(()),
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

/// The adapter reads its keywords when it starts; then the protocol is offered the NIC afresh.
fn point_at(machine: &mut impl Machine, nic: &str) -> Result<()> {
    machine.set_keyword(LOWER_ADAPTER, nic)?;
    set_mode(machine, Mode::Own)?;
    machine.unbind(nic, LOWER)?;
    machine.bind(nic, LOWER)
}

fn remove_devices(machine: &mut impl Machine) -> Result<()> {
    machine.devices()?.iter().try_for_each(|device| machine.remove_device(device))?;
    let left = machine.devices()?;
    ensure!(
        left.is_empty(),
        "{left:?} stay: a consumer holds the adapter, or Windows waits for a restart"
    );
    Ok(())
}

fn set_mode(machine: &mut impl Machine, mode: Mode) -> Result<()> {
    machine.set_keyword(LOWER_MODE, mode.keyword())?;
    machine.restart()
}

fn see_link(machine: &mut impl Machine) -> Result<()> {
    for _ in 0..LINK_S {
        if machine.vnic()?.is_some_and(|vnic| vnic.up) {
            return Ok(());
        }
        machine.pause_s(1);
    }
    let device = machine.devices()?.into_iter().next();
    let problem = device.map(|device| machine.problem(&device)).transpose()?.unwrap_or_default();
    anyhow::bail!(
        "the adapter has no link after {LINK_S} s (problem code {problem}); \
         see the system event log and `ndkrocev2ctl verify`"
    )
}

fn set_ip(machine: &mut impl Machine, settings: &IpSettings) -> Result<()> {
    let Vnic { guid, .. } = machine.vnic()?.ok_or_else(|| anyhow::anyhow!("no adapter"))?;
    let missing = settings.without(&machine.ip_settings(&guid)?);
    machine.add_ip_settings(&guid, &missing)
}
