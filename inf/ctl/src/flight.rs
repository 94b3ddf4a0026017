//! The first flight: the driver in stages, each of which a machine may not survive.
//!
//! The record is on the disk before a stage begins. A machine that stopped comes up without the adapter, since the
//! scheduled task rolls back at the start; another `first-flight` then says in which stage it stopped.

mod record;
pub(crate) mod rping;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::NonEmptyStringValueParser;

use crate::exit::{Exit, RestartFirst};
use crate::journal::Journals;
use crate::machine::{Certificate, IMAGE, Inf, Machine, Mode, SERVICE, Vnic};
use crate::plan::{Request, plan};
use crate::run::{enter, forwards, uninstall};
use crate::status::status;
use crate::verify::{Verdict, Verify, signature, smb_copy};
pub(crate) use record::keep_stages;
use record::{Ended, Flown, Outcome, Record, Stage};

/// The rules of Driver Verifier: the standard ones, and those of NDIS.
const VERIFIER_FLAGS: &str = "0x2209BB";
/// The driver's events, by the provider's GUID, which follows from its name.
pub(crate) const EVENTS: &str = "{D3672438-BEDD-5BC3-1F33-58F3D06A6FCB}";
const TRACE: &str = "ndkrocev2-flight";
/// Long enough for all stages.
const FLIGHT_S: u64 = 3600;
/// Installation's own log, from its end.
const LOG_LEN: usize = 200_000;

#[derive(Debug, clap::Args)]
pub(crate) struct FirstFlight {
    /// The NIC that carries the frames
    #[arg(long)]
    nic: String,
    /// As of install. Share needs nothing of a hypervisor or a cloud, and an address
    #[arg(long, value_enum, default_value = "own")]
    mode: Mode,
    /// The folder with the INFs, catalogs and image [default: that of this program]
    #[arg(long)]
    package: Option<PathBuf>,
    /// The adapter's name among the network connections
    #[arg(long, default_value = "RoCEv2", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The adapter's address, such as 192.0.2.7/24, for the stages with traffic; Inherit has the NIC's
    #[arg(long, value_parser = crate::address)]
    address: Option<crate::machine::Address>,
    /// The other machine, where an adapter is installed and `NdkPerfCmd -S -ServerAddr PEER:9000 -ServerIf INDEX -TestType rping
    /// -W 600` waits
    #[arg(long)]
    peer: Option<IpAddr>,
    /// A folder of the other machine that may be written, such as \\server\share
    #[arg(long)]
    share: Option<PathBuf>,
    /// Fly without Driver Verifier, which takes a restart
    #[arg(long)]
    without_verifier: bool,
    /// Keep the adapter if all stages pass
    #[arg(long)]
    keep: bool,
    /// The file that tells how it went
    #[arg(long, default_value = "ndkrocev2-first-flight.json")]
    result: PathBuf,
    /// Print what that file tells, too, and nothing else: ndkrocev2ctl.schema.json describes it
    #[arg(long)]
    json: bool,
}

pub(crate) fn fly(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    say: &mut impl FnMut(String),
) -> Result<Exit> {
    if !asked.json {
        return Ok(go_on(machine, asked, say)?.0);
    }
    let (exit, record) = go_on(machine, asked, &mut |_| {})?;
    say(serde_json::to_string_pretty(&record)?);
    Ok(exit)
}

/// From where the last call ended.
fn go_on(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    say: &mut impl FnMut(String),
) -> Result<(Exit, Record)> {
    let mut record = Record::open(machine)?;
    if record.stages.iter().all(|flown| flown.stage == Stage::Verifier) {
        may_begin(machine, asked)?;
    }
    if record.stages.is_empty() && !asked.without_verifier {
        watch(machine, &mut record, say)?;
        return Ok((Exit::RestartNeeded, record));
    }
    match record.stages.last_mut() {
        Some(Flown { stage: Stage::Verifier, ended, .. }) => {
            if machine.is_marked()? {
                bail!(RestartFirst { asked_by: "Driver Verifier".into() });
            }
            *ended = Ended::Passed("Windows has started since".into());
        }
        Some(Flown { ended: Ended::Failed(_), .. }) | None => {}
        // Or after it, before the next had begun.
        Some(Flown { stage, ended, .. }) => {
            say(format!("The machine or the program stopped in the stage {stage:?}."));
            *ended = Ended::Failed("the machine or the program stopped in this stage".into());
        }
    }
    if !record.failed() {
        let trace =
            ["start", TRACE, "-ets", "-o", &trace_file(), "-p", EVENTS, "0xffffffffffffffff", "5"];
        // The flight goes on without a trace.
        let _ = machine.ask("logman.exe", &trace);
        stages(machine, asked, &mut record, say)?;
        let _ = machine.ask("logman.exe", &["stop", TRACE, "-ets"]);
    }
    land(machine, asked, record, say)
}

/// At its end a flight takes away what it has installed, and nothing else. What cannot be installed is refused before anything is
/// changed, and before anybody restarts for it.
fn may_begin(machine: &mut impl Machine, asked: &FirstFlight) -> Result<()> {
    let (name, journals) = (&asked.name, Journals::read(machine)?);
    ensure!(
        journals.position(name).is_none(),
        "'{name}' is installed: give another --name, or run `ndkrocev2ctl uninstall` first"
    );
    if let Some(asked_by) = machine.awaits_restart()? {
        bail!(RestartFirst { asked_by });
    }
    let request = request(asked)?;
    plan(machine, &journals, &request)?;
    may_load(machine, &request).map(drop)
}

/// Driver Verifier looks at drivers that are loaded after the next start.
fn watch(
    machine: &mut impl Machine,
    record: &mut Record,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let said = machine.ask("verifier.exe", &["/flags", VERIFIER_FLAGS, "/driver", IMAGE])?;
    // 2: it takes effect after a restart.
    ensure!([0, 2].contains(&said.code), "verifier: exit code {}: {}", said.code, said.text);
    machine.mark()?;
    record.begin(machine, Stage::Verifier)?;
    say("Driver Verifier will watch the driver: restart Windows, and give the same command again."
        .into());
    Ok(())
}

fn request(asked: &FirstFlight) -> Result<Request> {
    let package = asked.package.clone().map_or_else(crate::own_folder, Ok)?;
    Ok(Request {
        nic: asked.nic.clone(),
        mode: asked.mode,
        package: std::path::absolute(package)?,
        name: asked.name.clone(),
        settings: crate::machine::IpSettings {
            addresses: asked.address.into_iter().collect(),
            ..Default::default()
        },
        confirm_within_s: Some(FLIGHT_S),
    })
}

fn stages(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    record: &mut Record,
    say: &mut impl FnMut(String),
) -> Result<()> {
    let request = request(asked)?;
    let mut journals = Journals::read(machine)?;
    for stage in Stage::FLOWN {
        if record.failed() {
            break;
        }
        say(format!("stage: {stage:?}"));
        record.begin(machine, stage)?;
        let ended = match go(machine, asked, &request, stage, &mut journals, say) {
            Ok(Verdict::Passed(found)) => Ended::Passed(found),
            Ok(Verdict::Skipped(why)) => Ended::Skipped(why.into()),
            Err(error) => Ended::Failed(format!("{error:#}")),
        };
        say(format!("{ended:?}"));
        record.end(machine, ended)?;
    }
    Ok(())
}

/// The stage's steps of the installation, and then what it looks at.
fn go(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    request: &Request,
    stage: Stage,
    journals: &mut Journals,
    say: &mut impl FnMut(String),
) -> Result<Verdict> {
    if stage == Stage::Signature {
        return signed(machine, request);
    }
    let at = match journals.position(&request.name) {
        Some(at) => at,
        None => enter(machine, journals, request, say)?,
    };
    let end = stage.end(&journals.adapters[at]);
    forwards(machine, journals, at, end, say)?;
    let device = &journals.adapters[at].device;
    match stage {
        Stage::Verifier | Stage::Signature => bail!("flown before"),
        Stage::LoadAndUnload => load_and_unload(machine),
        Stage::DeviceWithoutNic => device_without_nic(machine, device),
        Stage::Bind => {
            let vnic = vnic(machine, device)?;
            Ok(Verdict::Passed(format!("{} Mb/s, MTU {}", vnic.speed_bps / 1_000_000, vnic.mtu)))
        }
        Stage::RpingToItself => ping(machine, asked, device, None),
        Stage::TwoMachines => match asked.peer {
            Some(peer) => ping(machine, asked, device, Some(peer)),
            None => Ok(Verdict::Skipped("--peer is missing")),
        },
        Stage::Smb => {
            smb_copy(machine, &Verify { share: asked.share.clone(), ..Verify::default() })
        }
    }
}

/// To the peer, or to the adapter's own address.
fn ping(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    device: &str,
    peer: Option<IpAddr>,
) -> Result<Verdict> {
    let vnic = vnic(machine, device)?;
    let Some(own) = own_address(machine, asked, &vnic)? else {
        return Ok(Verdict::Skipped(match asked.mode {
            Mode::Inherit => "nobody had given the NIC an IPv4 address",
            Mode::Own | Mode::Share => "--address is missing",
        }));
    };
    let ip = peer.unwrap_or(own);
    let index = vnic.index;
    rping::run(machine, own, index, rping::End { ip, index: (ip == own).then_some(index) })
}

/// The one that was asked for. In Inherit mode it is one that somebody had given the NIC.
fn own_address(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    vnic: &Vnic,
) -> Result<Option<IpAddr>> {
    if asked.mode != Mode::Inherit {
        return Ok(asked.address.map(|address| address.ip));
    }
    let inherited = machine.ip_settings(&vnic.guid)?.addresses;
    Ok(inherited.into_iter().map(|address| address.ip).find(IpAddr::is_ipv4))
}

/// Before it is trusted, the image's hash is looked for in the catalogs; whether Windows would load it shows later.
fn signed(machine: &mut impl Machine, request: &Request) -> Result<Verdict> {
    let signer = may_load(machine, request)?;
    let verify = Verify { package: Some(request.package.clone()), ..Verify::default() };
    match signature(machine, &verify) {
        // Trust is a step of the next stage, but for a signer whom Windows knows.
        Err(error) if !signer.is_microsofts() => {
            Ok(Verdict::Passed(format!("signed by {}; not trusted yet: {error:#}", signer.subject)))
        }
        passed => passed,
    }
}

/// The signer of a package that Windows may load.
fn may_load(machine: &mut impl Machine, request: &Request) -> Result<Certificate> {
    let signer = machine.signer(&request.package.join(Inf::Adapter.catalog()))?;
    let loads = signer.is_microsofts() || machine.host()?.test_signing;
    ensure!(loads, "test signing is off, and the package is not signed by Microsoft");
    Ok(signer)
}

/// Windows may take so long to unload a driver.
const UNLOAD_S: u64 = 10;

/// A service's end is told by exit codes of `sc`, which are errors of Windows.
pub(crate) fn load_and_unload(machine: &mut impl Machine) -> Result<Verdict> {
    let start = machine.ask("sc.exe", &["start", SERVICE])?;
    // 1056: binding the protocol has started it already.
    ensure!([0, 1056].contains(&start.code), "start: {}: {}", start.code, start.text);
    let stop = machine.ask("sc.exe", &["stop", SERVICE])?;
    match stop.code {
        0 => unloaded(machine),
        // Of a driver of PnP devices, as miniports are, which goes with the last device.
        1052 => Ok(Verdict::Passed("loaded; Windows unloads it with its last device alone".into())),
        code => bail!("stop: {code}: {}", stop.text),
    }
}

/// `sc stop` only begins it.
fn unloaded(machine: &mut impl Machine) -> Result<Verdict> {
    for _ in 0..UNLOAD_S {
        // 1062: it does not run.
        if machine.ask("sc.exe", &["interrogate", SERVICE])?.code == 1062 {
            return Ok(Verdict::Passed("loaded and unloaded".into()));
        }
        machine.pause_s(1);
    }
    bail!("the service still runs {UNLOAD_S} s after it was stopped")
}

pub(crate) fn device_without_nic(machine: &mut impl Machine, device: &str) -> Result<Verdict> {
    let problem = machine.problem(device)?;
    ensure!(problem == 0, "problem code {problem}: {}", crate::status::meaning(problem));
    let vnic = vnic(machine, device)?;
    ensure!(!vnic.up, "the link is up without a NIC");
    Ok(Verdict::Passed("the adapter is there, without a link".into()))
}

pub(crate) fn vnic(machine: &mut impl Machine, device: &str) -> Result<Vnic> {
    machine.vnic(device)?.context("the adapter does not appear")
}

fn trace_file() -> String {
    std::env::temp_dir().join("ndkrocev2-flight.etl").display().to_string()
}

/// Takes the adapter away, and writes the one file.
fn land(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    mut record: Record,
    say: &mut impl FnMut(String),
) -> Result<(Exit, Record)> {
    let outcome = record.shows();
    record.outcome = Some(outcome);
    attach(machine, &mut record);
    let undone = if asked.keep && outcome == Outcome::Passed {
        crate::run::confirm(machine, Some(&asked.name))
    } else {
        uninstall(machine, Some(&asked.name), say).map(|_| ())
    };
    if let Err(error) = undone {
        record.attached.push(("rollback".into(), format!("{error:#}")));
    }
    if record.stages.first().is_some_and(|flown| flown.stage == Stage::Verifier) {
        let _ = machine.ask("verifier.exe", &["/reset"]);
        say("Driver Verifier ends with the next restart.".into());
    }
    std::fs::write(&asked.result, serde_json::to_string_pretty(&record)?)
        .with_context(|| asked.result.display().to_string())?;
    machine.set_flight(None)?;
    say(format!("Please send {}.", asked.result.display()));
    if outcome == Outcome::WithoutRdma {
        say("No pass: no stage moved a byte by RDMA. See why each was skipped.".into());
    }
    Ok((if outcome == Outcome::Passed { Exit::Done } else { Exit::Failed }, record))
}

fn attach(machine: &mut impl Machine, record: &mut Record) {
    let state = status(machine).unwrap_or_else(|error| format!("{error:#}"));
    record.attached.push(("status".into(), state));
    // Without them the record says less.
    let _ = record.keep_stages(machine);
    let xml = trace_file().replace(".etl", ".xml");
    let _ = machine.ask("tracerpt.exe", &[&trace_file(), "-o", &xml, "-of", "XML", "-y"]);
    let query = format!(
        "/q:*[System[Provider[@Name='{SERVICE}' or @Name='Microsoft-Windows-WER-SystemErrorReporting']]]"
    );
    for (name, program, arguments) in [
        (
            "system log",
            "wevtutil.exe",
            &["qe", "System", &query, "/c:50", "/rd:true", "/f:text"][..],
        ),
        ("verifier", "verifier.exe", &["/query"]),
        ("service", "sc.exe", &["qc", SERVICE]),
        ("dumps", "cmd.exe", &["/c", "dir", r"C:\Windows\Minidump", r"C:\Windows\MEMORY.DMP"]),
    ] {
        let text = match machine.ask(program, arguments) {
            Ok(said) => format!("exit code {}\n{}", said.code, said.text),
            Err(error) => format!("{error:#}"),
        };
        record.attached.push((name.into(), text));
    }
    for (name, file) in [("events", xml.as_str()), ("setupapi", r"C:\Windows\INF\setupapi.dev.log")]
    {
        if let Some(text) = tail(Path::new(file)) {
            record.attached.push((name.into(), text));
        }
    }
}

fn tail(file: &Path) -> Option<String> {
    let bytes = std::fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_LEN)..]).into_owned())
}
