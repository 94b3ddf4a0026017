//! `first-flight` over the simulated machine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use clap::Parser;

use super::reports::said;
use super::{Broken, MICROSOFTS, PACKAGE, broken, silent};
use crate::exit::Exit;
use crate::faulty::Fault;
use crate::flight::{FirstFlight, fly, keep_stages};
use crate::machine::{Machine, Said, Stages};
use crate::simulated::{Simulated, State, static_settings};
use crate::{Cli, Command};

pub(super) fn flight(name: &str, more: &[&str]) -> (FirstFlight, PathBuf) {
    let result = PACKAGE.join(name);
    let words = ["ctl", "first-flight"].into_iter();
    let nic = ["--nic", "Ethernet"].into_iter().filter(|_| !more.contains(&"--nic"));
    let own = ["--package", PACKAGE.to_str().expect("one")];
    let own = own.into_iter().filter(|_| !more.contains(&"--package"));
    let file = ["--result", result.to_str().expect("one")];
    let cli =
        Cli::try_parse_from(words.chain(nic).chain(own).chain(file).chain(more.iter().copied()));
    let Command::FirstFlight(asked) = cli.expect("is understood").command else {
        panic!("another command")
    };
    (asked, result)
}

pub(super) fn flyable(at: Option<(usize, Fault)>) -> Broken {
    let mut machine = broken(&State::sample(static_settings()), at);
    machine.machine.answers = vec![
        ("sc.exe start", said("")),
        ("sc.exe stop", said("")),
        ("sc.exe interrogate", Said { code: 1062, text: String::new() }),
        ("verifier", said("")),
        ("where.exe NdkPerfCmd.exe", said("")),
        ("powershell.exe", said("")),
        (
            "NdkPerfCmd.exe -C -ServerAddr 192.0.2.27:9000 -ClientAddr 192.0.2.27 -ClientIf 99 \
          -TestType rping",
            said("completes"),
        ),
    ];
    machine
}

/// With an address of its own: rping to itself is the stage with RDMA.
pub(super) const ADDRESS: [&str; 2] = ["--address", "192.0.2.27/24"];

/// Flies without a verifier; what the file says.
fn flown(name: &str, machine: &mut Broken, more: &[&str]) -> (Exit, String) {
    let (asked, result) = flight(name, &[&["--without-verifier"], more].concat());
    let exit = fly(machine, &asked, &mut silent).expect("flies");
    (exit, std::fs::read_to_string(result).expect("the file"))
}

/// All stages that need no other machine pass, the adapter goes, and the file tells it.
#[test]
fn a_flight_lands() {
    let (asked, result) = flight("lands.json", &ADDRESS);
    let mut machine = flyable(None);
    let before = machine.machine.state.clone();
    assert_eq!(fly(&mut machine, &asked, &mut silent).expect("prepares"), Exit::RestartNeeded);
    assert!(machine.flight().expect("a record").is_some_and(|text| text.contains("Verifier")));
    let error = fly(&mut machine, &asked, &mut silent).expect_err("Windows has not started since");
    assert_eq!(Exit::of(&error), Exit::RestartFirst, "{error:#}");
    machine.machine.start_windows();
    assert_eq!(fly(&mut machine, &asked, &mut silent).expect("flies"), Exit::Done);
    assert_eq!(machine.machine.state, before);
    let text = std::fs::read_to_string(result).expect("the file");
    for words in [
        "\"outcome\": \"Passed\"",
        "loaded and unloaded",
        "\"Bind\"",
        "10000 Mb/s",
        "NdkPerfCmd.exe: completes",
        "--peer is missing",
        "\"attached\"",
    ] {
        assert!(text.contains(words), "no {words} in {text}");
    }
}

/// What cannot be installed is said before anything changes, and before Windows is restarted for it.
#[test]
fn what_cannot_fly_is_refused_at_once() {
    for (more, words) in [
        (&["--package", "no-such-folder"][..], "the package lacks"),
        (&["--nic", "Ethernett"], "there is no network adapter 'Ethernett'"),
        (&["--mode", "share"], "in Share mode the adapter needs an address"),
        (&["--address", "192.0.2.7/24"], "itself has 192.0.2.7"),
        (&["--name", "Ethernet"], "an adapter has the name"),
    ] {
        let (asked, _) = flight("refused.json", more);
        let mut machine = flyable(None);
        let error = fly(&mut machine, &asked, &mut silent).expect_err(words);
        assert!(format!("{error:#}").contains(words), "{words}: {error:#}");
        assert_eq!(machine.changes, [""; 0], "{words}");
    }
}

/// Beside the NIC, with its MAC address; and in its place, with the address that somebody gave it.
#[test]
fn other_modes_fly_too() {
    for (mode, address, words) in [
        ("share", &ADDRESS[..], "NdkPerfCmd.exe: completes"),
        ("inherit", &[][..], "NdkPerfCmd.exe: at the NIC's"),
    ] {
        let mut machine = flyable(None);
        machine.machine.answers.push((
            "NdkPerfCmd.exe -C -ServerAddr 192.0.2.7:9000 -ClientAddr 192.0.2.7 -ClientIf 99 \
             -TestType rping",
            said("at the NIC's"),
        ));
        let before = machine.machine.state.clone();
        let (exit, text) =
            flown("modes.json", &mut machine, &[&["--mode", mode], address].concat());
        assert_eq!(exit, Exit::Done, "{mode}: {text}");
        assert!(text.contains(words), "{mode}: {text}");
        assert_eq!(machine.machine.state, before, "{mode}");
    }
}

/// A flight in which nothing failed, but no byte went by RDMA, is no pass, and is not kept.
#[test]
fn without_rdma_there_is_no_pass() {
    type Spoil = fn(&mut Simulated);
    let missing: Spoil = |machine| {
        machine.answers.insert(0, ("where.exe", Said { code: 1, text: String::new() }));
    };
    let six = ["--address", "fd00::1/64"];
    let cases: [(&str, &[&str], Spoil, &str); 3] = [
        ("none.json", &[], |_| {}, "--address is missing"),
        ("tools.json", &ADDRESS, missing, "neither NdkPerfCmd nor NDKPing"),
        ("six.json", &six, |_| {}, "IPv4 addresses alone"),
    ];
    for (name, address, spoil, words) in cases {
        let mut machine = flyable(None);
        spoil(&mut machine.machine);
        let before = machine.machine.state.clone();
        let (exit, text) = flown(name, &mut machine, &[address, &["--keep"]].concat());
        assert_eq!(exit, Exit::Failed, "{name}: {text}");
        assert_eq!(machine.machine.state, before, "{name}");
        assert!(text.contains("\"outcome\": \"WithoutRdma\"") && text.contains(words), "{text}");
    }
}

/// NDKPing is asked where NdkPerfCmd is not there.
#[test]
fn the_other_program_pings_too() {
    let mut machine = flyable(None);
    machine.machine.answers.retain(|(words, _)| !words.contains("NdkPerfCmd"));
    machine.machine.answers.extend([
        ("where.exe NdkPerfCmd.exe", Said { code: 1, text: String::new() }),
        ("where.exe NDKPing.exe", said("")),
        ("NDKPing.exe -C", said("sent")),
    ]);
    let (exit, text) = flown("other.json", &mut machine, &ADDRESS);
    assert_eq!(exit, Exit::Done, "{text}");
    assert!(text.contains("NDKPing.exe: sent"), "{text}");
}

/// The driver must go when it is told to; one that Windows itself does not stop by its service is no failure.
#[test]
fn the_unloading_is_believed() {
    for (stop, interrogate, words, passes) in [
        (0, 1062, "loaded and unloaded", true),
        (0, 0, "the service still runs", false),
        (1052, 0, "with its last device alone", true),
        (5, 0, "stop: 5", false),
    ] {
        let mut machine = flyable(None);
        let code = |code| Said { code, text: String::new() };
        machine.machine.answers.insert(0, ("sc.exe stop", code(stop)));
        machine.machine.answers.insert(0, ("sc.exe interrogate", code(interrogate)));
        let (exit, text) = flown("unloads.json", &mut machine, &ADDRESS);
        assert_eq!(exit, if passes { Exit::Done } else { Exit::Failed }, "{words}: {text}");
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Microsoft's signature is a pass without test signing, also of the first stage.
#[test]
fn a_signed_package_flies_without_test_mode() {
    let mut machine = flyable(None);
    machine.machine.state.host.test_signing = false;
    let package = ["--package", MICROSOFTS.to_str().expect("one")];
    let (exit, text) = flown("signed.json", &mut machine, &[&ADDRESS[..], &package].concat());
    assert_eq!(exit, Exit::Done, "{text}");
    let mut machine = flyable(None);
    machine.machine.state.host.test_signing = false;
    let (asked, _) = flight("unsigned.json", &ADDRESS);
    let error = fly(&mut machine, &asked, &mut silent).expect_err("is refused");
    assert!(format!("{error:#}").contains("not signed by Microsoft"), "{error:#}");
    assert_eq!(machine.changes, [""; 0]);
}

/// A machine that stopped rolls back when it starts: the stage that the driver left behind is in the file all the same.
#[test]
fn a_rollback_keeps_the_drivers_stage() {
    let (asked, result) = flight("stage.json", &["--without-verifier"]);
    let mut machine = flyable(Some((8, Fault::DiesAfter)));
    let _ = catch_unwind(AssertUnwindSafe(|| fly(&mut machine, &asked, &mut silent)));
    let left = Stages { last: Some("Loaded".into()), previous: Some("Binding".into()) };
    machine.machine.stages = left;
    keep_stages(&mut machine).expect("is kept");
    // The key goes with the service.
    machine.machine.stages = Stages::default();
    fly(&mut machine, &asked, &mut silent).expect("lands");
    let text = std::fs::read_to_string(result).expect("the file");
    assert!(text.contains("Loaded; the load before ended with Binding"), "{text}");
    let mut machine = flyable(None);
    keep_stages(&mut machine).expect("there is no flight");
    assert_eq!(machine.flight().expect("none"), None);
}

/// A stage that fails is the last, and all is undone.
#[test]
fn a_stage_that_fails_ends_the_flight() {
    let (asked, result) = flight("fails.json", &["--without-verifier"]);
    let mut machine = flyable(None);
    machine.machine.problem = 39;
    let before = machine.machine.state.clone();
    assert_eq!(fly(&mut machine, &asked, &mut silent).expect("flies"), Exit::Failed);
    assert_eq!(machine.machine.state, before);
    let text = std::fs::read_to_string(result).expect("the file");
    assert!(text.contains("problem code 39") && !text.contains("\"Bind\""), "{text}");
}

/// Wherever the machine stops, the next call tells the stage, and leaves nothing behind.
#[test]
fn a_stopped_machine_is_told() {
    let (asked, result) = flight("stops.json", &["--without-verifier"]);
    let mut whole = flyable(None);
    let before = whole.machine.state.clone();
    fly(&mut whole, &asked, &mut silent).expect("flies");
    let mut told = 0;
    // The first change writes the record of the first stage.
    for n in 2..whole.changes.len() {
        let mut machine = flyable(Some((n, Fault::DiesAfter)));
        let _ = catch_unwind(AssertUnwindSafe(|| fly(&mut machine, &asked, &mut silent)));
        if machine.flight().expect("a record").is_none() {
            continue;
        }
        fly(&mut machine, &asked, &mut silent).expect("lands");
        assert_eq!(machine.machine.state, before, "change {n}");
        let text = std::fs::read_to_string(&result).expect("the file");
        told += u32::from(text.contains("stopped in this stage"));
    }
    assert!(told > 20, "{told} of {}", whole.changes.len());
}
