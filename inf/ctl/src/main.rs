//! Installs, tries and removes the Windows driver, without a WDK.

mod counters;
mod driver;
mod exit;
#[cfg(any(test, feature = "stand-in"))]
mod faulty;
mod flight;
#[cfg_attr(not(windows), allow(dead_code, reason = "Windows' half reads INFs"))]
mod inf;
mod journal;
mod machine;
#[cfg_attr(not(windows), allow(dead_code, reason = "Windows' half sets addresses"))]
mod netsh;
#[cfg(any(test, feature = "stand-in"))]
mod operations;
mod plan;
mod run;
#[cfg(any(test, feature = "stand-in"))]
mod simulated;
#[cfg(all(windows, feature = "stand-in"))]
mod split;
mod stages;
mod status;
mod step;
#[cfg_attr(not(windows), allow(dead_code, reason = "Windows' half schedules tasks"))]
mod task;
#[cfg(test)]
mod tests;
#[cfg(all(windows, feature = "stand-in"))]
mod trial;
mod upgrade;
mod verify;
#[cfg(windows)]
mod windows;

use std::io::{IsTerminal, Write, stdin, stdout};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::NonEmptyStringValueParser;
use clap::{Parser, Subcommand};

use exit::Exit;
use machine::{Address, IpSettings, Machine, Mode, Route};
use plan::Request;
use run::{Installed, Uninstalled};
use upgrade::Upgraded;

/// Installs, tries and removes the software RoCEv2 adapter
#[derive(Debug, Parser)]
#[command(name = "ndkrocev2ctl", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install the adapter on top of a NIC; whatever fails, all is undone
    Install(Install),
    /// Undo the installation
    Uninstall(Chosen),
    /// Keep the installation, which rolls back otherwise
    Confirm(Chosen),
    /// Exchange the driver package below the adapters, which keep their settings and addresses
    Upgrade(Upgrade),
    /// Undo what nobody confirmed, as the scheduled task does
    Rollback,
    /// Install with each fault at each change, and see that nothing is left of it
    #[cfg(all(windows, feature = "stand-in"))]
    Trial(trial::Trial),
    /// Tell what is installed, and how it fares
    Status {
        /// Tell it as JSON, as ndkrocev2ctl.schema.json describes it
        #[arg(long)]
        json: bool,
    },
    /// Try the driver for the first time, in stages; write one file that tells how each went
    FirstFlight(flight::FirstFlight),
    /// Try the driver on a machine that may be thrown away, a stage at a time, and make a page of all stages
    Flight(stages::Flight),
    /// Check everything from signing to an SMB copy; name what fails and what mends it
    Verify(verify::Verify),
}

#[derive(Debug, clap::Args)]
struct Chosen {
    /// The adapter, by its name among the network connections [default: each]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Install {
    /// The NIC that carries the frames, by the name of its connection
    #[arg(long)]
    nic: String,
    /// Own: a MAC and IP address beside the NIC's. Share: an IP address beside the NIC's. Inherit: in the NIC's place, with its settings
    #[arg(long, value_enum, default_value = "own")]
    mode: Mode,
    /// The folder with the INFs, catalogs and image [default: that of this program]
    #[arg(long)]
    package: Option<PathBuf>,
    /// The adapter's name among the network connections
    #[arg(long, default_value = "RoCEv2", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// An address of the adapter, such as 192.0.2.7/24 [default: by DHCP, which Share cannot]
    #[arg(long, value_parser = address)]
    address: Vec<Address>,
    /// A router in the network of an --address, for all that is in no network of this machine
    #[arg(long)]
    gateway: Vec<IpAddr>,
    /// A DNS server that is asked through the adapter
    #[arg(long)]
    dns: Vec<IpAddr>,
    /// Roll back after this time, and when Windows starts, unless confirmed
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5m")]
    confirm_within: Duration,
    /// Confirm at once, when the link has come up
    #[arg(long)]
    yes: bool,
    /// Show the steps and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct Upgrade {
    /// The folder with the new INFs, catalogs and image [default: that of this program]
    #[arg(long)]
    package: Option<PathBuf>,
    /// Go back after this time, and when Windows starts, unless confirmed
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5m")]
    confirm_within: Duration,
    /// Confirm at once, when each link has come up
    #[arg(long)]
    yes: bool,
}

fn address(text: &str) -> Result<Address, String> {
    let (ip, prefix) =
        text.split_once('/').ok_or("the length of the prefix is missing, as in 192.0.2.7/24")?;
    let ip: IpAddr = ip.parse().map_err(|_| format!("{ip} is no IP address"))?;
    let prefix = prefix.parse().map_err(|_| "the length of the prefix is a number, as in /24")?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    if prefix > longest {
        return Err(format!("a prefix has at most {longest} bits"));
    }
    let is_broadcast = ip == IpAddr::from([255; 4]);
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast {
        return Err(format!("{ip} is no address of an adapter"));
    }
    Ok(Address { ip, prefix })
}

/// One in another network is never reached.
fn has_its_network(gateway: IpAddr, addresses: &[Address]) -> bool {
    let is_link_local = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
    is_link_local || addresses.iter().any(|address| address.network_has(gateway))
}

impl Install {
    fn request(&self) -> Result<Request> {
        let default_route = |&next_hop: &IpAddr| Route {
            destination: if next_hop.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() },
            prefix: 0,
            next_hop,
            metric: 1,
        };
        may_confirm(self.confirm_within)?;
        for &gateway in &self.gateway {
            ensure!(
                has_its_network(gateway, &self.address),
                "--gateway {gateway} is in the network of no --address"
            );
        }
        Ok(Request {
            nic: self.nic.clone(),
            mode: self.mode,
            package: package_folder(self.package.as_ref())?,
            name: self.name.clone(),
            settings: IpSettings {
                addresses: self.address.clone(),
                routes: self.gateway.iter().map(default_route).collect(),
                dns: self.dns.clone(),
                ..IpSettings::default()
            },
            confirm_within_s: Some(self.confirm_within.as_secs()),
        })
    }
}

fn may_confirm(within: Duration) -> Result<()> {
    ensure!(
        within >= Duration::from_secs(60),
        "--confirm-within is a minute or more: in less nobody can confirm"
    );
    Ok(())
}

/// A relative path has no meaning for the rollback.
fn package_folder(asked: Option<&PathBuf>) -> Result<PathBuf> {
    Ok(std::path::absolute(asked.cloned().map_or_else(own_folder, Ok)?)?)
}

fn own_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().context("this program lies in no folder")?.to_path_buf())
}

fn say(line: String) {
    println!("{line}");
}

fn main() {
    let end = match Cli::parse().command {
        // Wherever the stages have flown, their page may be made anywhere.
        Command::Flight(stages::Flight { command: stages::Command::Report(asked) }) => {
            stages::report(&asked, &mut say)
        }
        command => act(command),
    };
    let end = end.unwrap_or_else(|error| {
        eprintln!("ndkrocev2ctl: {error:#}");
        Exit::of(&error)
    });
    // ExitCode has eight bits.
    exit(end.code())
}

#[cfg(not(windows))]
fn act(command: Command) -> Result<Exit> {
    anyhow::bail!("this is not Windows, so there is nothing to do: {command:?}")
}

#[cfg(all(windows, not(feature = "stand-in")))]
fn act(command: Command) -> Result<Exit> {
    on(&mut windows::Windows::new()?, command)
}

/// The file that stands in for the network, and the change that fails, are told by the environment.
#[cfg(all(windows, feature = "stand-in"))]
fn act(command: Command) -> Result<Exit> {
    let file =
        std::env::var_os("NDKROCEV2CTL_STATE").context("NDKROCEV2CTL_STATE names no file")?;
    let fault = std::env::var("NDKROCEV2CTL_FAULT").ok();
    let fault = fault.map(|text| faulty::parse(&text)).transpose()?;
    let split = split::Split::new(windows::Windows::new()?, file.into());
    let mut machine = faulty::Faulty::new(split, fault, || std::process::exit(trial::DIED));
    let done = on(&mut machine, command);
    println!("changes: {}", machine.changes.join(" "));
    done
}

/// One installation or removal at a time.
#[cfg(windows)]
fn lock() -> Result<windows::Lock> {
    windows::Lock::take()
}

#[cfg(not(windows))]
fn lock() -> Result<impl Sized> {
    Ok(())
}

#[cfg_attr(not(windows), allow(dead_code, reason = "there is no machine"))]
fn on(machine: &mut impl Machine, command: Command) -> Result<Exit> {
    match command {
        Command::Install(asked) => return install(machine, &asked),
        Command::Uninstall(Chosen { name }) => {
            let _lock = lock()?;
            return uninstall(machine, name.as_deref());
        }
        Command::Confirm(Chosen { name }) => {
            let _lock = lock()?;
            run::confirm(machine, name.as_deref())?;
            say("Confirmed: nothing rolls back.".into());
        }
        Command::Upgrade(asked) => return upgrade(machine, &asked),
        Command::Rollback => {
            let _lock = lock()?;
            // It takes the service's key away. Without its stages the record of a flight says less, and that is all.
            if let Err(error) = flight::keep_stages(machine) {
                say(format!("the driver's stages are not kept: {error:#}"));
            }
            run::rollback(machine, &mut say)?;
        }
        Command::Status { json: true } => say(status::json(machine)?),
        Command::Status { json: false } => say(status::status(machine)?),
        Command::FirstFlight(asked) => {
            let _lock = lock()?;
            return flight::fly(machine, &asked, &mut say);
        }
        Command::Flight(stages::Flight { command }) => {
            let _lock = lock()?;
            return stages::fly(machine, &command, &mut say);
        }
        Command::Verify(asked) => return verify::verify(machine, &asked, &mut say),
        #[cfg(all(windows, feature = "stand-in"))]
        Command::Trial(asked) => return trial::trial(&asked),
    }
    Ok(Exit::Done)
}

fn uninstall(machine: &mut impl Machine, name: Option<&str>) -> Result<Exit> {
    match run::uninstall(machine, name, &mut say)? {
        Uninstalled::Before => {
            say(format!("Nothing is installed{}.", run::by_name(name)));
            return Ok(Exit::Done);
        }
        Uninstalled::Now => say("Uninstalled. Test signing is left as it is.".into()),
    }
    end(machine)
}

/// All that was asked for is done, but for what Windows does when it starts.
fn end(machine: &mut impl Machine) -> Result<Exit> {
    let Some(asked_by) = machine.awaits_restart()? else { return Ok(Exit::Done) };
    say(format!("Restart Windows: it waits for that ({asked_by})."));
    Ok(Exit::RestartNeeded)
}

fn end_in_part(machine: &mut impl Machine) -> Result<Exit> {
    say("The rest is for after a restart: restart Windows, then give this command again.".into());
    end(machine)
}

fn install(machine: &mut impl Machine, asked: &Install) -> Result<Exit> {
    let request = asked.request()?;
    if asked.dry_run {
        return dry_run(machine, &request);
    }
    // The lock ends here: the rollback must not wait for an answer.
    let installed = {
        let _lock = lock()?;
        run::install(machine, &request, &mut say)?
    };
    match installed {
        Installed::Now => say("Installed.".into()),
        Installed::Before => {
            say("It was installed before; nothing has changed.".into());
            if let Ok(Some(old)) = upgrade::installed_instead(machine, &request.package) {
                say(format!(
                    "It is of another build ({old}): `ndkrocev2ctl upgrade` exchanges it."
                ));
            }
        }
        Installed::InPart => return end_in_part(machine),
    }
    ask_to_keep(machine, Some(&asked.name), asked.confirm_within, asked.yes)?;
    end(machine)
}

fn upgrade(machine: &mut impl Machine, asked: &Upgrade) -> Result<Exit> {
    may_confirm(asked.confirm_within)?;
    let package = package_folder(asked.package.as_ref())?;
    let upgraded = {
        let _lock = lock()?;
        upgrade::upgrade(machine, &package, asked.confirm_within.as_secs(), &mut say)?
    };
    match upgraded {
        Upgraded::Now => say("Upgraded.".into()),
        Upgraded::Before => {
            say("This build is installed already; nothing has changed.".into());
            return end(machine);
        }
        Upgraded::InPart => return end_in_part(machine),
    }
    ask_to_keep(machine, None, asked.confirm_within, asked.yes)?;
    end(machine)
}

fn dry_run(machine: &mut impl Machine, request: &Request) -> Result<Exit> {
    let journals = journal::Journals::read(machine)?;
    let plan = plan::plan(machine, &journals, request)?;
    plan.warnings.iter().for_each(|warning| say(format!("Note: {warning}.")));
    let named = format!("'{}'", plan.nic.name);
    for step in &plan.steps {
        say(format!("would {}", step.to_string().replace(&plan.nic.guid, &named)));
    }
    Ok(Exit::Done)
}

fn ask_to_keep(
    machine: &mut impl Machine,
    name: Option<&str>,
    within: Duration,
    yes: bool,
) -> Result<()> {
    let within = humantime::format_duration(within);
    let keeps = yes
        || stdin().is_terminal() && {
            print!("Is all well? Type yes within {within} to keep it: ");
            stdout().flush()?;
            let mut answer = String::new();
            stdin().read_line(&mut answer)?;
            answer.trim().eq_ignore_ascii_case("yes")
        };
    if keeps {
        let _lock = lock()?;
        run::confirm(machine, name)?;
        say("Confirmed: nothing rolls back.".into());
    } else {
        say(format!("It rolls back in {within}, unless `ndkrocev2ctl confirm` is called."));
    }
    Ok(())
}
