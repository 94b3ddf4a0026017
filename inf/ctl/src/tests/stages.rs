//! The stages of a flight over the simulated machine: each passes on a sound one, and each finds the mistakes that are
//! planted for it.

mod pe;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::{Parser, ValueEnum};

use super::reports::{said, well};
use super::upgrades::NEWER;
use super::{Broken, PACKAGE, package, silent};
use crate::exit::Exit;
use crate::faulty::{At, Fault, Faulty};
use crate::machine::{IMAGE, Machine, Said};
use crate::simulated::{Mistake, Simulated, State, static_settings};
use crate::stages::{Stage, fly};
use crate::{Cli, Command};

/// A Windows' folder, with what the image of [`image`] imports.
pub(super) static SYSTEM: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PACKAGE.join("system");
    std::fs::create_dir_all(folder.join("drivers")).expect("a folder");
    let files = [
        ("ntoskrnl.exe", &["KeWaitForSingleObject", "ExAllocatePool2"][..]),
        ("drivers/ndis.sys", &["NdisOpenAdapterEx"]),
    ];
    for (file, exports) in files {
        std::fs::write(folder.join(file), pe::build(0x8664, &[], exports)).expect("a file");
    }
    folder
});

/// A package whose image imports these functions of the kernel, and one of NDIS; with a flight consumer beside it.
fn image(name: &str, of_kernel: &[&str]) -> PathBuf {
    let folder = package(name, "ca/ca");
    let imports = [("ntoskrnl.exe", of_kernel), ("NDIS.SYS", &["NdisOpenAdapterEx"][..])];
    std::fs::write(folder.join(IMAGE), pe::build(0x8664, &imports, &[])).expect("a file");
    // The consumer imports of the kernel alone.
    std::fs::write(folder.join("ndkflight.sys"), pe::build(0x8664, &imports[..1], &[]))
        .expect("a file");
    folder
}

pub(super) static SOUND: LazyLock<PathBuf> =
    LazyLock::new(|| image("flies", &["KeWaitForSingleObject"]));

const FLOWN: &str = "    State    REG_SZ    passed\r\n    Steps    REG_SZ    1\r\n    \
                     Step000    REG_SZ    pass write pair ipv4 21 ms";

/// A machine with Hyper-V, and every program that a flight asks.
pub(super) fn sound() -> Broken {
    let mut machine = Simulated::new(State::sample(static_settings()));
    machine.flies = true;
    machine.answers = vec![
        ("sc.exe interrogate", Said { code: 1062, text: String::new() }),
        ("sc.exe", said("")),
        ("reg.exe add", said("")),
        ("reg.exe query", said(FLOWN)),
        ("verifier.exe", said("")),
        ("logman.exe", said("")),
        ("where.exe NdkPerfCmd.exe", said("")),
        ("NdkPerfCmd.exe -C", said("completes")),
    ];
    machine.answers.extend(well());
    machine.answers.push(("powershell.exe", said("")));
    Faulty::new(machine, None, super::die)
}

/// Flies a stage; its exit and what its file says.
fn flown(machine: &mut impl Machine, stage: Stage, more: &[&str]) -> (Exit, String) {
    static FLIGHTS: AtomicU32 = AtomicU32::new(0);
    let out = format!("flight-{}", FLIGHTS.fetch_add(1, Ordering::Relaxed));
    let out = PACKAGE.join(out);
    let path = |path: &Path| path.to_str().expect("one").to_string();
    let (out, own, system) = (path(&out), path(&SOUND), path(&SYSTEM));
    let (share, newer) = (path(&PACKAGE), path(&NEWER));
    let name = stage.name();
    let mut words = vec!["ctl", "flight", "stage", &name, "--out", &out, "--system", &system];
    words.extend(
        ["--share", &share, "--newer", &newer].iter().filter(|_| !more.contains(&"--bare")),
    );
    if !more.contains(&"--package") {
        words.extend(["--package", &own]);
    }
    words.extend(more.iter().filter(|word| **word != "--bare"));
    let cli = Cli::try_parse_from(words).expect("is understood");
    let Command::Flight(crate::stages::Flight { command }) = cli.command else {
        panic!("another command")
    };
    let exit = fly(machine, &command, &mut silent).expect("flies");
    let file = Path::new(&out).join(format!("this-machine-declared-{name}.jsonl"));
    (exit, std::fs::read_to_string(file).expect("its lines"))
}

/// Each stage passes where all is sound, leaves the machine as it was, and its lines fit the schema.
#[test]
fn each_stage_passes_on_a_sound_machine() {
    for &stage in Stage::value_variants() {
        let mut machine = sound();
        let before = machine.machine.state.clone();
        let (exit, text) = flown(&mut machine, stage, &[]);
        assert_eq!(exit, Exit::Done, "{text}");
        assert_eq!(machine.machine.state, before, "{stage:?}");
        assert_eq!(machine.machine.broken, [""; 0], "{stage:?}");
        assert!(text.lines().last().is_some_and(|line| line.contains("\"line\":\"ended\"")));
        if stage == Stage::TwoAdapters {
            super::schema::assert_fits("flight", &text);
        }
    }
}

/// The stages in which bytes go by RDMA say so, and no other one does.
#[test]
fn rdma_is_told() {
    for (stage, moves) in [
        (Stage::Bind, false),
        (Stage::Uninstall, false),
        (Stage::Loopback, true),
        (Stage::Consumer, true),
        (Stage::Smb, true),
    ] {
        let (_, text) = flown(&mut sound(), stage, &[]);
        assert_eq!(text.contains("\"rdma\":true"), moves, "{text}");
    }
}

type Plant = fn(&mut Broken);

fn fails(words: &'static str) -> (&'static str, Said) {
    (words, Said { code: 1, text: "fails".into() })
}

fn ignore(machine: &mut Broken, operation: &str) {
    let sound =
        std::mem::replace(&mut machine.machine, Simulated::new(State::sample(static_settings())));
    *machine = Faulty::new(sound, Some((At::Named(operation.into()), Fault::Ignored)), super::die);
}

/// For each stage a mistake in the driver or the machine, and words of the check that finds it.
fn mistakes() -> Vec<(Stage, Plant, &'static str)> {
    vec![
        (
            Stage::Load,
            |m| m.machine.answers.insert(0, ("sc.exe interrogate", said(""))),
            "still runs",
        ),
        (Stage::Device, |m| m.machine.problem = 39, "problem code 39"),
        (Stage::Device, |m| m.machine.mistakes.push(Mistake::LinkWithoutNic), "without a NIC"),
        (Stage::Bind, |m| m.machine.state.link_comes = false, "no link after"),
        (Stage::Loopback, |m| m.machine.answers.insert(0, fails("NdkPerfCmd.exe -C")), "fails"),
        // Of the two directions the second alone.
        (Stage::TwoAdapters, |m| m.machine.answers.insert(0, fails("-ClientIf 100")), "fails"),
        (Stage::Storm, |m| m.machine.mistakes.push(Mistake::TiresOfStarts), "no link after"),
        (Stage::Storm, |m| m.machine.mistakes.push(Mistake::LinkWithoutNic), "its NIC's end"),
        (
            Stage::SurpriseRemoval,
            |m| m.machine.mistakes.push(Mistake::LinkWithoutNic),
            "its NIC's end",
        ),
        (Stage::Own, |m| ignore(m, "set_keyword"), "no link after"),
        (Stage::Own, |m| m.machine.answers.insert(0, ("Offload", said("Disabled True"))), "RDMA"),
        (Stage::Inherit, |m| ignore(m, "unbind"), "still bound"),
        (Stage::Inherit, |m| ignore(m, "bind"), "as it was"),
        (Stage::Share, |m| m.machine.mistakes.push(Mistake::TakesTcpip), "another than before"),
        (Stage::Rping, |m| m.machine.answers.insert(0, fails("NdkPerfCmd.exe -C")), "fails"),
        (
            Stage::Consumer,
            |m| {
                m.machine.answers.insert(0, ("reg.exe query", said("    State    REG_SZ    stuck")))
            },
            "stuck",
        ),
        (Stage::Smb, |m| m.machine.mistakes.push(Mistake::CopiesOverTcp), "over TCP"),
        (
            Stage::Upgrade,
            |m| m.machine.mistakes.push(Mistake::ForgetsSettings),
            "settings are others",
        ),
        (Stage::Upgrade, |m| m.machine.bad_builds.push("0.2.0.0"), "the old package is back"),
        (Stage::Uninstall, |m| ignore(m, "distrust"), "trusts"),
        (Stage::Uninstall, |m| ignore(m, "unstage"), "driver store"),
    ]
}

/// Each stage finds the mistakes that are planted for it; none but the one of imports is without.
#[test]
fn each_stage_finds_its_mistakes() {
    for (stage, plant, words) in mistakes() {
        let mut machine = sound();
        plant(&mut machine);
        let (exit, text) = flown(&mut machine, stage, &[]);
        assert_eq!(exit, Exit::Failed, "{stage:?}, {words}: {text}");
        assert!(text.contains(words), "{stage:?}: no {words:?} in {text}");
    }
    let with = |stage: &Stage| mistakes().iter().any(|(one, ..)| one == stage);
    let without: Vec<_> = Stage::value_variants().iter().filter(|stage| !with(stage)).collect();
    assert_eq!(without, [&Stage::Imports]);
}

/// A function that this Windows lacks, and an image for another processor.
#[test]
fn a_missing_import_is_named() {
    let lacking = image("lacks", &["KeWaitForSingleObject", "KeRaiseIrqlToDpcLevel"]);
    let other = package("other", "ca/ca");
    std::fs::write(
        other.join(IMAGE),
        pe::build(0xaa64, &[("ntoskrnl.exe", &["ExAllocatePool2"])], &[]),
    )
    .expect("a file");
    let of_consumer = image("consumer", &["KeWaitForSingleObject"]);
    let imports = [("ntoskrnl.exe", &["KeRaiseIrqlToDpcLevel"][..])];
    std::fs::write(of_consumer.join("ndkflight.sys"), pe::build(0x8664, &imports, &[]))
        .expect("a file");
    for (package, words) in [
        (lacking, "this Windows has no ntoskrnl.exe!KeRaiseIrqlToDpcLevel"),
        (of_consumer, "imports of ndkflight.sys: this Windows has no ntoskrnl.exe!KeRaise"),
        (other, "the image is for aarch64, and ntoskrnl.exe for x86_64"),
    ] {
        let package = package.to_str().expect("one");
        let (exit, text) = flown(&mut sound(), Stage::Imports, &["--package", package]);
        assert_eq!(exit, Exit::Failed, "{text}");
        assert!(text.contains(words), "{text}");
    }
}

/// The table has the modules of the image alone, in order.
#[test]
fn the_exports_are_listed() {
    let out = PACKAGE.join("exports");
    let words = ["ctl", "flight", "exports", "--out", out.to_str().expect("one"), "--package"];
    let more = [SOUND.to_str().expect("one"), "--system", SYSTEM.to_str().expect("one")];
    let cli = Cli::try_parse_from(words.into_iter().chain(more)).expect("is understood");
    let Command::Flight(crate::stages::Flight { command }) = cli.command else {
        panic!("another command")
    };
    assert_eq!(fly(&mut sound(), &command, &mut silent).expect("lists"), Exit::Done);
    let text = std::fs::read_to_string(out).expect("the table");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "x86_64 ndis.sys!NdisOpenAdapterEx",
            "x86_64 ntoskrnl.exe!ExAllocatePool2",
            "x86_64 ntoskrnl.exe!KeWaitForSingleObject",
        ]
    );
}

/// What cannot be shown is skipped with its reason, by an exit code that is no pass.
#[test]
fn what_cannot_be_shown_is_no_pass() {
    let bare: Plant = |machine| machine.machine.flies = false;
    let no_tools: Plant = |machine| {
        machine.machine.answers.insert(0, ("where.exe", Said { code: 1, text: String::new() }));
    };
    let no_hyper_v: Plant = |machine| {
        machine.machine.flies = false;
        machine
            .machine
            .answers
            .insert(0, ("New-VMSwitch", Said { code: 1, text: "no role".into() }));
    };
    let without = package("without", "ca/ca");
    let without = ["--package", without.to_str().expect("one")];
    let cases: [(Stage, Plant, &[&str], &str); 6] = [
        (Stage::Bind, no_hyper_v, &[], "no role; --duonic names no folder"),
        (Stage::Bind, bare, &[], "do not appear within 30 s"),
        (Stage::Loopback, no_tools, &without, "no consumer of NDK is here"),
        (Stage::Rping, no_tools, &[], "neither NdkPerfCmd nor NDKPing"),
        (Stage::Consumer, |_| {}, &without, "no ndkflight.sys"),
        (Stage::Upgrade, |_| {}, &["--bare"], "--newer names no other build"),
    ];
    for (stage, plant, more, words) in cases {
        let mut machine = sound();
        plant(&mut machine);
        let before = machine.machine.state.clone();
        let (exit, text) = flown(&mut machine, stage, more);
        assert_eq!((exit, exit.code()), (Exit::Skipped, 77), "{stage:?}: {text}");
        assert!(text.contains(words), "{stage:?}: {text}");
        assert_eq!(machine.machine.state, before, "{stage:?}");
    }
}

/// The NICs of duonic are taken where there is no switch.
#[test]
fn duonic_takes_the_place_of_a_switch() {
    let mut machine = sound();
    machine.machine.flies = false;
    machine.machine.answers.insert(0, fails("New-VMSwitch"));
    machine.machine.answers.insert(0, ("duonic.ps1", said("")));
    for (nic, name) in machine.machine.state.nics.iter_mut().zip(["duo1", "duo2"]) {
        nic.nic.name = name.into();
    }
    let (exit, text) = flown(&mut machine, Stage::Bind, &["--duonic", "corenet"]);
    assert_eq!(exit, Exit::Done, "{text}");
    assert!(text.contains("duo1, duo2"), "{text}");
}

/// A machine on which something is installed is left alone.
#[test]
fn an_installed_adapter_is_left_alone() {
    let mut machine = super::reports::installed();
    let (exit, text) = flown(&mut machine, Stage::Bind, &[]);
    assert_eq!(exit, Exit::Failed, "{text}");
    assert!(text.contains("an adapter is installed"), "{text}");
    assert!(!machine.state.devices.is_empty());
}

/// The page of what stages wrote into folders, and its verdict.
fn paged(name: &str, files: &[(&str, String)]) -> (Exit, String) {
    let folder = PACKAGE.join(name);
    // Of the run before.
    let _ = std::fs::remove_dir_all(&folder);
    for (file, text) in files {
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, text).expect("a file");
    }
    let (folder, page) = (folder.to_str().expect("one"), PACKAGE.join(format!("{name}.md")));
    let words = [
        "ctl",
        "flight",
        "report",
        folder,
        "--expect",
        "w/i",
        "--page",
        page.to_str().expect("one"),
    ];
    let cli = Cli::try_parse_from(words).expect("is understood");
    let Command::Flight(crate::stages::Flight { command }) = cli.command else {
        panic!("another command")
    };
    let exit = fly(&mut sound(), &command, &mut silent).expect("a page");
    (exit, std::fs::read_to_string(page).expect("the page"))
}

/// The lines of all stages as they would be written by `w` for the image `i`; `end` gives each its outcome.
pub(super) fn all_lines(rdma: bool, end: fn(Stage) -> &'static str) -> Vec<(String, String)> {
    let host = serde_json::to_string(&State::sample(static_settings()).host).expect("a host");
    let lines = |stage: &Stage| {
        let leg = format!("{{\"runner\":\"w\",\"image\":\"i\",\"stage\":\"{}\"}}", stage.name());
        let begun =
            format!("{{\"line\":\"begun\",\"leg\":{leg},\"version\":\"1\",\"host\":{host}}}\n");
        let check =
            "{\"line\":\"check\",\"check\":\"c|d\",\"outcome\":\"passed\",\"says\":\"s\"}\n";
        let ended = match end(*stage) {
            "" => String::new(),
            outcome => format!(
                "{{\"line\":\"ended\",\"leg\":{leg},\"outcome\":\"{outcome}\",\"says\":\"a | b\",\"rdma\":{rdma}}}\n"
            ),
        };
        (format!("{0}/{0}.jsonl", stage.name()), begun + check + &ended)
    };
    Stage::value_variants().iter().map(lines).collect()
}

/// All passed, one skipped, none by RDMA, one failed, one that stopped in the middle, one that never told a word.
#[test]
fn the_page_has_the_verdict() {
    type Case = (&'static str, bool, fn(Stage) -> &'static str, Exit, &'static str);
    let cases: [Case; 5] = [
        ("passes", true, |_| "passed", Exit::Done, "# Flight: passed: each stage"),
        (
            "part",
            true,
            |stage| if stage == Stage::Smb { "skipped" } else { "passed" },
            Exit::Skipped,
            "| smb | skipped | yes | a \\| b |",
        ),
        ("no-rdma", false, |_| "passed", Exit::Skipped, "no pass: nothing failed"),
        (
            "fails",
            true,
            |stage| if stage == Stage::Storm { "failed" } else { "passed" },
            Exit::Failed,
            "| storm | **failed** |",
        ),
        (
            "stops",
            true,
            |stage| if stage == Stage::Storm { "" } else { "passed" },
            Exit::Failed,
            "the machine or the program stopped behind: c\\|d",
        ),
    ];
    for (name, rdma, end, exit, words) in cases {
        let files = all_lines(rdma, end);
        let files: Vec<_> =
            files.iter().map(|(file, text)| (file.as_str(), text.clone())).collect();
        let (was, page) = paged(name, &files);
        assert_eq!(was, exit, "{name}: {page}");
        assert!(page.contains(words), "{name}: {page}");
        let (was, page) = paged("one-less", &files[1..]);
        assert_eq!(was, Exit::Failed);
        assert!(page.contains("| imports | **failed** |  | not a word:"), "{page}");
    }
}
