//! Installing, confirming, rolling back and uninstalling: the journals' steps forwards and backwards.

use anyhow::{Result, bail, ensure};

use crate::exit::{RestartFirst, with_remedy};
use crate::journal::{Journal, Journals, Progress};
use crate::machine::{Inf, IpSettings, Machine, Mode};
use crate::plan::{Request, plan};
use crate::step::{Site, Step};
use crate::upgrade;

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

/// Installs an adapter, or goes on where an installation for the same was broken off. Where a step fails, all of it is undone.
pub(crate) fn install(
    machine: &mut impl Machine,
    request: &Request,
    say: &mut impl FnMut(String),
) -> Result<Installed> {
    let mut journals = Journals::read(machine)?;
    let known = journals.position(&request.name);
    if let Some(journal) = known.map(|at| &journals.adapters[at]) {
        ensure!(
            journal.request.nic.eq_ignore_ascii_case(&request.nic)
                && journal.request.mode == request.mode,
            "'{}' is installed on '{}' in {:?} mode: for another NIC give another --name, for this one run `ndkrocev2ctl uninstall` first",
            request.name,
            journal.request.nic,
            journal.request.mode
        );
        ensure!(
            journal.request.settings == request.settings,
            "'{}' was installed with {}, and install changes no address: Windows does, as of any adapter \
             (New-NetIPAddress and Remove-NetIPAddress with -InterfaceAlias '{}')",
            request.name,
            journal.request.settings,
            request.name
        );
        if journal.is_complete() {
            return Ok(Installed::Before);
        }
    }
    if let Some(asked_by) = machine.awaits_restart()? {
        bail!(RestartFirst { asked_by });
    }
    let at = match known {
        Some(at) => at,
        None => enter(machine, &mut journals, request, say)?,
    };
    let end = journals.adapters[at].entries.len();
    let Err(error) = forwards(machine, &mut journals, at, end, say) else {
        return Ok(Installed::Now);
    };
    say(format!("Failed: {error:#}"));
    if !journals.adapters[at].touches_nic() && machine.awaits_restart()?.is_some() {
        journals.adapters[at].resumes = true;
        journals.write(machine)?;
        return Ok(Installed::InPart);
    }
    let error = with_remedy(error);
    match backwards(machine, &mut journals, at, say) {
        Ok(()) => Err(error.context("all that was done is undone")),
        Err(left) => Err(error.context(format!("{left:#}"))),
    }
}

/// Plans an adapter, and gives it a journal behind the others. Nothing is on the disk yet.
pub(crate) fn enter(
    machine: &mut impl Machine,
    journals: &mut Journals,
    request: &Request,
    say: &mut impl FnMut(String),
) -> Result<usize> {
    let plan = plan(machine, journals, request)?;
    plan.warnings.into_iter().for_each(|warning| say(format!("Note: {warning}.")));
    journals.adapters.push(Journal::new(request.clone(), plan.device, plan.steps));
    Ok(journals.adapters.len() - 1)
}

/// Makes the steps before `end` that are not done yet.
pub(crate) fn forwards(
    machine: &mut impl Machine,
    journals: &mut Journals,
    at: usize,
    end: usize,
    say: &mut impl FnMut(String),
) -> Result<()> {
    for i in 0..end {
        if journals.adapters[at].entries[i].progress == Progress::Done {
            continue;
        }
        journals.adapters[at].entries[i].progress = Progress::Begun;
        journals.write(machine)?;
        let journal = &journals.adapters[at];
        let step = &journal.entries[i].step;
        say(format!("[{}/{}] {step}", i + 1, journal.entries.len()));
        step.apply(machine, &Site::of(journal))
            .map_err(|error| error.context(format!("could not {step}")))?;
        journals.adapters[at].entries[i].progress = Progress::Done;
        journals.write(machine)?;
    }
    Ok(())
}

/// Undoes all that was begun for the adapter, the last first, but for what others stand on. A step that cannot be undone does not
/// stop the others, but for those that it stands on; the journal then keeps it for the next attempt.
fn backwards(
    machine: &mut impl Machine,
    journals: &mut Journals,
    at: usize,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let mut failed = Vec::new();
    for i in (0..journals.adapters[at].entries.len()).rev() {
        let journal = &journals.adapters[at];
        let step = &journal.entries[i].step;
        if journal.entries[i].progress == Progress::Planned || journals.others_stand_on(at, step) {
            continue;
        }
        say(format!("undo: {step}"));
        if let Err(error) = step.undo(machine, &Site::of(journal)) {
            say(format!("not undone: {error:#}"));
            failed.push(format!("{step}: {error:#}"));
            if step.holds_up() {
                break;
            }
            continue;
        }
        journals.adapters[at].entries[i].progress = Progress::Planned;
        // An undoing may be repeated; so a journal that cannot be written costs nothing but that.
        if let Err(error) = journals.write(machine) {
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
    let mut rest = journals.clone();
    rest.adapters.remove(at);
    rest.write(machine)?;
    *journals = rest;
    Ok(())
}

/// Ends the time in which installations would roll back: that of this adapter, or of all.
pub(crate) fn confirm(machine: &mut impl Machine, name: Option<&str>) -> Result<()> {
    let mut journals = Journals::read(machine)?;
    let chosen = chosen(&journals, name);
    ensure!(!chosen.is_empty(), "nothing is installed{}", by_name(name));
    for at in chosen {
        let journal = &mut journals.adapters[at];
        let name = &journal.request.name;
        ensure!(journal.is_complete(), "the installation of '{name}' is not finished");
        journal.confirmed = true;
    }
    // First the word, then the clock: a rollback that starts in between reads the word.
    journals.write(machine)?;
    upgrade::confirm(machine, &mut journals)?;
    stop_clock(machine, &journals)
}

fn chosen(journals: &Journals, name: Option<&str>) -> Vec<usize> {
    match name {
        Some(name) => journals.position(name).into_iter().collect(),
        None => (0..journals.adapters.len()).collect(),
    }
}

/// The end of a sentence about it.
pub(crate) fn by_name(name: Option<&str>) -> String {
    name.map(|name| format!(" by the name '{name}'")).unwrap_or_default()
}

/// One task rolls back all; it goes when nothing is left that it would roll back.
pub(crate) fn stop_clock(machine: &mut impl Machine, journals: &Journals) -> Result<()> {
    let all_stay = journals.adapters.iter().all(|journal| journal.confirmed);
    if all_stay && journals.upgrade.is_none() {
        return machine.cancel_rollback();
    }
    Ok(())
}

/// Called by the system when the time is over, or at its start: undoes what nobody confirmed, the last adapter first.
pub(crate) fn rollback(machine: &mut impl Machine, say: &mut impl FnMut(String)) -> Result<()> {
    let mut journals = Journals::read(machine)?;
    let mut undone = upgrade::rollback(machine, &mut journals, say);
    for at in (0..journals.adapters.len()).rev() {
        let journal = &journals.adapters[at];
        if journal.confirmed {
            continue;
        }
        let done = if journal.resumes && machine.awaits_restart()?.is_none() {
            resume_later(machine, &mut journals, at)
        } else {
            backwards(machine, &mut journals, at, say)
        };
        undone = undone.and(done);
    }
    undone?;
    stop_clock(machine, &journals)
}

/// Windows has had the restart that the rest of the installation waits for: the time to go on begins.
fn resume_later(machine: &mut impl Machine, journals: &mut Journals, at: usize) -> Result<()> {
    let journal = &mut journals.adapters[at];
    journal.resumes = false;
    let within_s = journal.request.confirm_within_s;
    journals.write(machine)?;
    within_s.map_or(Ok(()), |within_s| machine.schedule_rollback(within_s))
}

/// Undoes all that the journals tell of this adapter, or of all. Without a journal, removes what is certainly ours.
pub(crate) fn uninstall(
    machine: &mut impl Machine,
    name: Option<&str>,
    say: &mut impl FnMut(String),
) -> Result<Uninstalled> {
    let mut journals = Journals::read(machine)?;
    let mut chosen = chosen(&journals, name);
    if journals.adapters.is_empty() {
        journals = leftovers(machine)?;
        chosen = (0..journals.adapters.len()).collect();
    }
    if chosen.is_empty() {
        return Ok(Uninstalled::Before);
    }
    if chosen.len() == journals.adapters.len() {
        upgrade::abandon(&mut journals);
    }
    ensure!(
        journals.upgrade.is_none(),
        "an upgrade is not finished: `ndkrocev2ctl confirm` or `rollback` ends it"
    );
    for at in chosen.into_iter().rev() {
        backwards(machine, &mut journals, at, say)?;
    }
    Ok(Uninstalled::Now)
}

/// Whether there is nothing of ours at all.
pub(crate) fn is_absent(machine: &mut impl Machine) -> Result<bool> {
    Ok(Journals::read(machine)?.adapters.is_empty() && leftovers(machine)?.adapters.is_empty())
}

/// As if each device had been installed, and nothing else but what they stand on.
fn leftovers(machine: &mut impl Machine) -> Result<Journals> {
    let mut shared = Vec::new();
    for inf in Inf::ALL {
        if !machine.staged(inf)?.is_empty() {
            shared.push(Step::Stage(inf));
        }
    }
    if machine.has_protocol()? {
        shared.push(Step::InstallProtocol);
    }
    let mut journals = Journals::default();
    for device in machine.devices()? {
        let steps = [&shared[..], &[Step::CreateDevice]].concat();
        journals.adapters.push(found(device, steps));
    }
    if journals.adapters.is_empty() && !shared.is_empty() {
        journals.adapters.push(found(String::new(), shared));
    }
    Ok(journals)
}

fn found(device: String, steps: Vec<Step>) -> Journal {
    let request = Request {
        nic: String::new(),
        mode: Mode::Own,
        package: Default::default(),
        name: String::new(),
        settings: IpSettings::default(),
        confirm_within_s: None,
    };
    let mut journal = Journal::new(request, device, steps);
    journal.entries.iter_mut().for_each(|entry| entry.progress = Progress::Done);
    journal
}
