//! The flight in QEMU (`tests/windows/flight`), with a stand-in for the Windows: its answer file, what it does, and what
//! becomes of what it says.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Output, Stdio};

use clap::{Parser, ValueEnum};

use super::schema::skipped;
use super::stages::{SOUND, SYSTEM, all_lines, sound};
use super::upgrades::NEWER;
use super::{PACKAGE, silent};
use crate::exit::Exit;
use crate::stages::{Flight, Stage, fly};
use crate::{Cli, Command};

const COMMAND: &str = include_str!("../../../../tests/windows/flight/fly.cmd");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/windows/flight")
}

/// Checks an answer file: prints what is wrong.
const JUDGE: &str = "
import sys, xml.etree.ElementTree as tree
space = '{urn:schemas-microsoft-com:unattend}'
root = tree.parse(sys.argv[1]).getroot()
find = lambda path: [e.text for e in root.iterfind('.//' + '/'.join(space + part for part in path.split('/')))]
passes = [e.get('pass') for e in root.iterfind(space + 'settings')]
names = [(e.get('name'), e.get('processorArchitecture'), e.get('publicKeyToken')) for e in root.iter(space + 'component')]
wrong = []
if passes != ['windowsPE', 'oobeSystem']: wrong.append(passes)
if any(name[1:] != ('amd64', '31bf3856ad364e35') for name in names): wrong.append(names)
if find('AdministratorPassword/Value') != find('AutoLogon/Password/Value'): wrong.append('two passwords')
if find('InstallTo/PartitionID') != find('ModifyPartition/PartitionID'): wrong.append('another partition')
if find('AcceptEula') != ['true']: wrong.append('the licence is asked about')
if not any('fly.cmd' in line for line in find('SynchronousCommand/CommandLine')): wrong.append('nobody flies')
print(*wrong)
";

/// Goal: the answer file is well-formed, for one processor, and logs on the account that it makes; the judge finds a mistake.
#[test]
fn the_answer_file_answers() {
    let judge = |file: &Path| -> Option<String> {
        let mut python = Program::new("python3");
        let done = python.args(["-c", JUDGE]).arg(file).stderr(Stdio::piped()).output().ok()?;
        let said = [done.stdout, done.stderr].concat();
        Some(String::from_utf8_lossy(&said).trim().to_string())
    };
    let file = folder().join("autounattend.xml");
    let Some(said) = judge(&file) else {
        skipped("no python3");
        return;
    };
    assert_eq!(said, "");
    let text = std::fs::read_to_string(file).expect("the file");
    let spoilt = PACKAGE.join("spoilt.xml");
    for (right, wrong) in [
        ("<Value>Flight-1</Value>", "<Value>Flight-2</Value>"),
        ("</unattend>", ""),
        ("fly.cmd %d", "walk.cmd %d"),
    ] {
        std::fs::write(
            &spoilt,
            text.replacen(right, wrong, 1).replace("\\fly.cmd\"<", "\\walk.cmd\"<"),
        )
        .expect("a file");
        assert_ne!(judge(&spoilt).expect("python3"), "", "{right}");
    }
}

/// The stages that it flies are the tool's, and the line of each is one that the tool takes, on a machine with two NICs.
#[test]
fn what_it_does_is_understood() {
    let stages =
        COMMAND.lines().find_map(|line| line.strip_prefix("for %%s in (")).expect("a loop");
    let stages: Vec<_> = stages.split(')').next().expect("a list").split(' ').collect();
    assert_eq!(
        stages,
        Stage::value_variants().iter().map(|stage| stage.name()).collect::<Vec<_>>()
    );
    let call =
        COMMAND.lines().find_map(|line| line.strip_prefix("%TOOL% flight ")).expect("a call");
    let path = |path: &Path| path.to_str().expect("one").to_string();
    for stage in
        [Stage::Inherit, Stage::TwoAdapters, Stage::Smb, Stage::Upgrade, Stage::SurpriseRemoval]
    {
        // No path of it has a space, but one NIC's name has.
        let call = call.replace("\"Ethernet 2\"", "Ethernet_2").replace('"', "");
        let words = call.split(' ').map(|word| match word {
            "%1" => stage.name(),
            r"%FLIGHT%\package" => path(&SOUND),
            r"%FLIGHT%\newer" => path(&NEWER),
            r"%FLIGHT%\out" => path(&PACKAGE.join("qemu")),
            r"\\192.168.79.101\share" => path(&PACKAGE),
            "Ethernet_2" => "Ethernet 2".into(),
            word => word.into(),
        });
        let words = ["ctl".to_string(), "flight".into()].into_iter().chain(words);
        let cli = Cli::try_parse_from(words.chain(["--system".into(), path(&SYSTEM)]));
        let Command::Flight(Flight { command }) = cli.expect("is understood").command else {
            panic!("another command")
        };
        let mut machine = sound();
        machine.machine.state.nics[1].nic.name = "Ethernet 2".into();
        let exit = fly(&mut machine, &command, &mut silent).expect("flies");
        // QEMU's NICs stay.
        let expected = if stage == Stage::SurpriseRemoval { Exit::Skipped } else { Exit::Done };
        assert_eq!(exit, expected, "{stage:?}");
    }
}

/// A flight with a Windows that says these lines on its serial port; its page is made here.
fn flown(name: &str, says: &str) -> Option<(Exit, String)> {
    let out = PACKAGE.join(name);
    std::fs::create_dir_all(&*PACKAGE).expect("a folder");
    let (said, machine) = (PACKAGE.join(format!("{name}.txt")), PACKAGE.join(format!("{name}.sh")));
    std::fs::write(&said, says).expect("a file");
    // It sees what a Windows would look for, or says nothing.
    let script = format!(
        "#!/bin/sh\ncd \"$1\" && test -s autounattend.xml -a -s fly.cmd -a -s package/ndkrocev2.inf && exec cat {}\n",
        said.display()
    );
    std::fs::write(&machine, script).expect("a file");
    std::fs::set_permissions(&machine, PermissionsExt::from_mode(0o755)).expect("a program");
    let zip = PACKAGE.join(format!("{name}.zip"));
    let mut python = Program::new("python3");
    python.args(["-c", "import sys, zipfile; zipfile.ZipFile(sys.argv[1], 'w').writestr('release/ndkrocev2.inf', 'inf')"]);
    let Ok(Output { status, .. }) = python.arg(&zip).output() else {
        skipped("no python3");
        return None;
    };
    assert!(status.success());
    let mut flight = Program::new(folder().join("flight"));
    flight.arg("--machine").arg(machine).arg("--package").arg(zip).arg("--out").arg(&out);
    let done = flight.args(["--tool", "true"]).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (lines, page) = (out.join("lines"), out.join("flight.md"));
    let words = ["ctl", "flight", "report", lines.to_str().expect("one"), "--expect", "w/i"];
    let cli = Cli::try_parse_from(words.into_iter().chain(["--page", page.to_str().expect("one")]));
    let Command::Flight(Flight { command }) = cli.expect("is understood").command else {
        panic!("another command")
    };
    let exit = fly(&mut sound(), &command, &mut silent).expect("a page");
    Some((exit, std::fs::read_to_string(page).expect("the page")))
}

/// Goal: what the Windows says becomes the page, whatever else writes to the port: noise, a stage that stopped and is told as far as
/// it went, one that is told twice, a line that lost its end, and a machine that ends before its word.
#[test]
fn what_it_says_becomes_the_page() {
    let told: Vec<_> = all_lines(true, |_| "passed").into_iter().map(|(_, text)| text).collect();
    let all = told.concat().replace('\n', "\r\n");
    let storm = Stage::Storm as usize;
    let stopped = all_lines(true, |stage| if stage == Stage::Storm { "" } else { "passed" });
    let noise =
        format!("SeaBIOS\r\n{{\"a\": 1}}\r\n[]\r\n\u{1b}[2J{all}flight: end\r\nBooting again\r\n");
    let twice = format!("{}{all}flight: end\n", stopped[storm].1);
    let cases: [(&str, String, Exit, &str); 4] = [
        ("all", noise, Exit::Done, "# Flight: passed"),
        ("twice", twice, Exit::Done, "| storm | passed |"),
        (
            "stopped",
            stopped.into_iter().map(|(_, text)| text).collect(),
            Exit::Failed,
            "| storm | **failed** |  | the machine or the program stopped behind",
        ),
        (
            "cut",
            told[..told.len() - 1].concat() + "{\"line\":\"begun\",\"leg\":{\"runner\"",
            Exit::Failed,
            "| uninstall | **failed** |  | not a word",
        ),
    ];
    for (name, says, exit, words) in cases {
        let Some((was, page)) = flown(&format!("serial-{name}"), &says) else { return };
        assert_eq!(was, exit, "{name}: {page}");
        assert!(page.contains(words), "{name}: {page}");
    }
}
