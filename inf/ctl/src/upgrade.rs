//! The exchange of the driver package below the adapters: they keep their devices, and with these all settings.
//!
//! The journal knows all that its undoing needs before the first change. The old package stays in the driver store until the new one is
//! confirmed, so going back needs no file of the administrator's. Each part of it, forwards and backwards, may be repeated.
//!
//! The lower edge keeps its INF: its service has one image, which the adapter's package brings, and removing the protocol would
//! delete the service under the adapters.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::exit::{RestartFirst, with_remedy};
use crate::inf::{driver_ver, says_the_same};
use crate::journal::{Entry, Journals, Progress};
use crate::machine::{COUNTERS, Inf, Machine};
use crate::plan::{INSTALLATION_S, package_signer, suits, trust};
use crate::step::{Site, Step};

/// An exchange that was begun.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Upgrade {
    /// The folder of the new package.
    package: PathBuf,
    /// The published name of the INF that the adapters have had.
    old: String,
    /// Trust that the new package needs, and that nobody had given before.
    trust: Vec<Step>,
    /// The devices whose adapters had a link, and are to have one again.
    linked: Vec<String>,
    /// The time to confirm it, in seconds.
    confirm_within_s: u64,
    /// The adapters have the new package, and their links; only then may anybody confirm it.
    done: bool,
    /// The administrator has said that it works: it goes on to its end, and not back.
    confirmed: bool,
    /// The rest is for after a restart of Windows, which is not to roll it back.
    resumes: bool,
}

/// Whether an upgrade found something to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Upgraded {
    Now,
    Before,
    /// So far as it goes before Windows is restarted.
    InPart,
}

/// The version of the installed package where that of `package` is another.
pub(crate) fn installed_instead(
    machine: &mut impl Machine,
    package: &Path,
) -> Result<Option<String>> {
    let file = package.join(Inf::Adapter.file());
    let new = driver_ver(&std::fs::read(&file).with_context(|| file.display().to_string())?);
    let old = match &machine.staged(Inf::Adapter)?[..] {
        [old] => driver_ver(&machine.published(old)?),
        _ => return Ok(None),
    };
    Ok(Some(old).filter(|old| *old != new))
}

/// Exchanges the package, or goes on where that was broken off. Where a part fails, the old one comes back.
pub(crate) fn upgrade(
    machine: &mut impl Machine,
    package: &Path,
    confirm_within_s: u64,
    say: &mut impl FnMut(String),
) -> Result<Upgraded> {
    let mut journals = Journals::read(machine)?;
    ensure!(!journals.adapters.is_empty(), "nothing is installed: run `ndkrocev2ctl install`");
    for journal in &journals.adapters {
        let name = &journal.request.name;
        ensure!(journal.is_complete(), "the installation of '{name}' is not finished");
    }
    if let Some(asked_by) = machine.awaits_restart()? {
        bail!(RestartFirst { asked_by });
    }
    match &journals.upgrade {
        Some(begun) => ensure!(
            begun.package == package && !begun.confirmed,
            "the upgrade to {} is not finished: `ndkrocev2ctl confirm` ends it",
            begun.package.display()
        ),
        None => {
            if installed_instead(machine, package)?.is_none() {
                return Ok(Upgraded::Before);
            }
            journals.upgrade = Some(begin(machine, &journals, package, confirm_within_s, say)?);
            journals.write(machine)?;
        }
    }
    let exchanged = match exchange(machine, &journals, say) {
        Ok(()) => is_done(machine, &mut journals),
        failed => failed,
    };
    let Err(error) = exchanged else { return Ok(Upgraded::Now) };
    say(format!("Failed: {error:#}"));
    if machine.awaits_restart()?.is_some() {
        journals.begun()?.resumes = true;
        journals.write(machine)?;
        return Ok(Upgraded::InPart);
    }
    let error = with_remedy(error);
    match back(machine, &mut journals, say) {
        Ok(()) => Err(error.context("the old package is back")),
        Err(left) => {
            Err(error.context(format!("not undone, run `ndkrocev2ctl rollback`: {left:#}")))
        }
    }
}

impl Journals {
    fn begun(&mut self) -> Result<&mut Upgrade> {
        self.upgrade.as_mut().context("no upgrade is under way")
    }
}

fn is_done(machine: &mut impl Machine, journals: &mut Journals) -> Result<()> {
    journals.begun()?.done = true;
    journals.write(machine)
}

/// Refuses what does not suit, and changes nothing.
fn begin(
    machine: &mut impl Machine,
    journals: &Journals,
    package: &Path,
    confirm_within_s: u64,
    say: &mut impl FnMut(String),
) -> Result<Upgrade> {
    suits(machine)?;
    let signer = package_signer(machine, package)?;
    let mut warnings = Vec::new();
    // What is trusted already stays so, whatever becomes of the upgrade.
    let trust = trust(machine, &signer, &mut warnings, |_| false)?;
    warnings.into_iter().for_each(|warning| say(format!("Note: {warning}.")));
    let [old] = &machine.staged(Inf::Adapter)?[..] else {
        bail!("{} is not in the driver store once", Inf::Adapter.file());
    };
    let new_lower = std::fs::read(package.join(Inf::Lower.file()))?;
    for lower in machine.staged(Inf::Lower)? {
        ensure!(
            says_the_same(&machine.published(&lower)?, &new_lower),
            "the new package has another lower edge: `ndkrocev2ctl uninstall`, then install it"
        );
    }
    let mut linked = Vec::new();
    for journal in &journals.adapters {
        if machine.vnic(&journal.device)?.is_some_and(|vnic| vnic.up) {
            linked.push(journal.device.clone());
        }
    }
    let (package, old) = (package.to_path_buf(), old.clone());
    let (done, confirmed, resumes) = (false, false, false);
    Ok(Upgrade { package, old, trust, linked, confirm_within_s, done, confirmed, resumes })
}

fn exchange(
    machine: &mut impl Machine,
    journals: &Journals,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let upgrade = journals.upgrade.as_ref().context("no upgrade is under way")?;
    machine.keep_tool()?;
    machine.schedule_rollback(upgrade.confirm_within_s + INSTALLATION_S)?;
    for step in &upgrade.trust {
        say(step.to_string());
        step.apply(machine, &Site::nowhere())?;
    }
    if upgrade.news(machine)?.is_empty() {
        say(format!("add the new {} to the driver store", Inf::Adapter.file()));
        machine.stage(&upgrade.package.join(Inf::Adapter.file()))?;
    }
    let news = upgrade.news(machine)?;
    let [new] = &news[..] else { bail!("the driver store took {news:?}, not one INF") };
    say(format!("give the adapters the driver of {new} instead of {}", upgrade.old));
    machine.exchange_driver(new)?;
    for device in &upgrade.linked {
        say(format!("see the link of {device} come up"));
        crate::step::see_link(machine, device)?;
    }
    machine.schedule_rollback(upgrade.confirm_within_s)
}

impl Upgrade {
    /// What it has added to the driver store.
    fn news(&self, machine: &mut impl Machine) -> Result<Vec<String>> {
        let mut staged = machine.staged(Inf::Adapter)?;
        staged.retain(|published| *published != self.old);
        Ok(staged)
    }
}

/// Gives the adapters the old package again, whether all of the exchange was done, or a part of it.
fn back(
    machine: &mut impl Machine,
    journals: &mut Journals,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let upgrade = journals.begun()?.clone();
    let news = upgrade.news(machine)?;
    if !news.is_empty() {
        say(format!("undo: give the adapters the driver of {} again", upgrade.old));
        machine.exchange_driver(&upgrade.old)?;
    }
    news.iter().try_for_each(|published| machine.unstage(published))?;
    for step in upgrade.trust.iter().rev() {
        say(format!("undo: {step}"));
        step.undo(machine, &Site::nowhere())?;
    }
    journals.upgrade = None;
    // First the clock: without an upgrade in the journal nobody would stop it.
    crate::run::stop_clock(machine, journals)?;
    journals.write(machine)
}

/// Ends it for good, if one is under way: the old package goes, and the adapters are those of the new one.
pub(crate) fn confirm(machine: &mut impl Machine, journals: &mut Journals) -> Result<()> {
    if journals.upgrade.is_none() {
        return Ok(());
    }
    ensure!(
        journals.begun()?.done,
        "the upgrade is not finished: end it by the same command, or `ndkrocev2ctl rollback`"
    );
    // A rollback that starts in between reads the word.
    journals.begun()?.confirmed = true;
    journals.write(machine)?;
    let upgrade = journals.begun()?.clone();
    machine.register_counters(&upgrade.package.join(COUNTERS))?;
    if !upgrade.news(machine)?.is_empty() {
        machine.unstage(&upgrade.old)?;
    }
    for journal in &mut journals.adapters {
        journal.request.package.clone_from(&upgrade.package);
        let trust = upgrade.trust.iter().cloned();
        let given = trust.map(|step| Entry { step, progress: Progress::Done });
        // Before all that stands on it.
        journal.entries.splice(0..0, given);
    }
    journals.upgrade = None;
    journals.write(machine)
}

/// Called by the system when the time is over, or at its start.
pub(crate) fn rollback(
    machine: &mut impl Machine,
    journals: &mut Journals,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let Some(upgrade) = &mut journals.upgrade else { return Ok(()) };
    if upgrade.confirmed {
        return confirm(machine, journals);
    }
    if upgrade.resumes && machine.awaits_restart()?.is_none() {
        upgrade.resumes = false;
        let within_s = upgrade.confirm_within_s;
        journals.write(machine)?;
        return machine.schedule_rollback(within_s);
    }
    back(machine, journals, say)
}

/// Where all adapters go, both packages go with them: nothing is exchanged any more.
pub(crate) fn abandon(journals: &mut Journals) {
    let Some(upgrade) = journals.upgrade.take() else { return };
    for journal in &mut journals.adapters {
        let given = upgrade.trust.iter().cloned();
        let given = given.map(|step| Entry { step, progress: Progress::Begun });
        journal.entries.splice(0..0, given);
    }
}
