//! Installing, confirming, rolling back and uninstalling: the journal's steps forwards and backwards.

use anyhow::{Result, anyhow, bail, ensure};

use crate::exit::{RestartFirst, with_remedy};
use crate::journal::{Entry, Journal, Progress};
use crate::machine::{Inf, IpSettings, Machine, Mode};
use crate::plan::{Request, plan};
use crate::step::Step;

/// Whether an installation found something to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Installed {
    Now,
    Before,
    /// So far as it goes before Windows is restarted.
    InPart,
}

/// Whether an uninstallation found something to undo.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Uninstalled {
    Now,
    Before,
}

/// Installs, or goes on where an installation for the same was broken off. Where a step fails, all is undone.
pub(crate) fn install(
    machine: &mut impl Machine,
    request: &Request,
    say: &mut impl FnMut(String),
) -> Result<Installed> {
    let known = Journal::read(machine)?;
    if !known.as_ref().is_some_and(Journal::is_complete)
        && let Some(asked_by) = machine.awaits_restart()?
    {
        bail!(RestartFirst { asked_by });
    }
    let mut journal = match known {
        Some(journal) => {
            ensure!(
                journal.request.nic == request.nic && journal.request.mode == request.mode,
                "it is installed on '{}' in {:?} mode: run `ndkrocev2ctl uninstall` first",
                journal.request.nic,
                journal.request.mode
            );
            if journal.is_complete() {
                return Ok(Installed::Before);
            }
            journal
        }
        None => {
            let plan = plan(machine, request)?;
            plan.warnings.into_iter().for_each(|warning| say(format!("Note: {warning}.")));
            Journal::new(request.clone(), plan.steps)
        }
    };
    let end = journal.entries.len();
    let Err(error) = forwards(machine, &mut journal, end, say) else { return Ok(Installed::Now) };
    say(format!("Failed: {error:#}"));
    if !journal.touches_nic() && machine.awaits_restart()?.is_some() {
        journal.resumes = true;
        journal.write(machine)?;
        return Ok(Installed::InPart);
    }
    let error = with_remedy(error);
    match backwards(machine, &mut journal, say) {
        Ok(()) => Err(error.context("all that was done is undone")),
        Err(left) => Err(error.context(format!("{left:#}"))),
    }
}

/// Makes the steps before `end` that are not done yet.
pub(crate) fn forwards(
    machine: &mut impl Machine,
    journal: &mut Journal,
    end: usize,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let package = journal.request.package.clone();
    for i in 0..end {
        if journal.entries[i].progress == Progress::Done {
            continue;
        }
        journal.entries[i].progress = Progress::Begun;
        journal.write(machine)?;
        let step = &journal.entries[i].step;
        say(format!("[{}/{}] {step}", i + 1, journal.entries.len()));
        step.apply(machine, &package)
            .map_err(|error| error.context(format!("could not {step}")))?;
        journal.entries[i].progress = Progress::Done;
        journal.write(machine)?;
    }
    Ok(())
}

/// Undoes all that was begun, the last first. A step that cannot be undone does not stop the others, but for those
/// that it stands on; the journal then keeps it for the next attempt.
fn backwards(
    machine: &mut impl Machine,
    journal: &mut Journal,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let mut failed = Vec::new();
    for i in (0..journal.entries.len()).rev() {
        let Entry { step, progress } = &journal.entries[i];
        if *progress == Progress::Planned {
            continue;
        }
        say(format!("undo: {step}"));
        if let Err(error) = step.undo(machine) {
            say(format!("not undone: {error:#}"));
            failed.push(format!("{step}: {error:#}"));
            if step.holds_up() {
                break;
            }
            continue;
        }
        journal.entries[i].progress = Progress::Planned;
        // An undoing may be repeated; so a journal that cannot be written costs nothing but that.
        if let Err(error) = journal.write(machine) {
            say(format!("the journal is not written: {error:#}"));
        }
    }
    if !failed.is_empty() {
        bail!(
            "{} not undone, run `ndkrocev2ctl uninstall` again: {}",
            failed.len(),
            failed.join("; ")
        );
    }
    machine.set_journal(None)
}

/// Ends the time in which the installation would roll back.
pub(crate) fn confirm(machine: &mut impl Machine) -> Result<()> {
    let mut journal = Journal::read(machine)?.ok_or_else(|| anyhow!("nothing is installed"))?;
    ensure!(journal.is_complete(), "the installation is not finished");
    // First the word, then the clock: a rollback that starts in between reads the word.
    journal.confirmed = true;
    journal.write(machine)?;
    machine.cancel_rollback()
}

/// Called by the system when the time is over, or at its start.
pub(crate) fn rollback(machine: &mut impl Machine, say: &mut impl FnMut(String)) -> Result<()> {
    match Journal::read(machine)? {
        Some(mut journal) if !journal.confirmed => {
            if journal.resumes && machine.awaits_restart()?.is_none() {
                return resume_later(machine, &mut journal);
            }
            backwards(machine, &mut journal, say)
        }
        _ => machine.cancel_rollback(),
    }
}

/// Windows has had the restart that the rest of the installation waits for: the time to go on begins.
fn resume_later(machine: &mut impl Machine, journal: &mut Journal) -> Result<()> {
    journal.resumes = false;
    journal.write(machine)?;
    let within_s = journal.request.confirm_within_s;
    within_s.map_or(Ok(()), |within_s| machine.schedule_rollback(within_s))
}

/// Undoes all that the journal tells. Without a journal, removes what is certainly ours.
pub(crate) fn uninstall(
    machine: &mut impl Machine,
    say: &mut impl FnMut(String),
) -> Result<Uninstalled> {
    let mut journal = match Journal::read(machine)? {
        Some(journal) => journal,
        None => leftovers(machine)?,
    };
    if journal.entries.is_empty() {
        return Ok(Uninstalled::Before);
    }
    backwards(machine, &mut journal, say)?;
    Ok(Uninstalled::Now)
}

/// Whether there is nothing of ours at all.
pub(crate) fn is_absent(machine: &mut impl Machine) -> Result<bool> {
    Ok(Journal::read(machine)?.is_none() && leftovers(machine)?.entries.is_empty())
}

fn leftovers(machine: &mut impl Machine) -> Result<Journal> {
    let mut steps = Vec::new();
    for inf in Inf::ALL {
        if !machine.staged(inf)?.is_empty() {
            steps.push(Step::Stage(inf));
        }
    }
    if machine.has_protocol()? {
        steps.push(Step::InstallProtocol);
    }
    if !machine.devices()?.is_empty() {
        steps.push(Step::CreateDevice);
    }
    let request = Request {
        nic: String::new(),
        mode: Mode::Own,
        package: Default::default(),
        name: String::new(),
        settings: IpSettings::default(),
        confirm_within_s: None,
    };
    let mut journal = Journal::new(request, steps);
    journal.entries.iter_mut().for_each(|entry| entry.progress = Progress::Done);
    Ok(journal)
}
