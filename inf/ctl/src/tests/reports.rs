//! `status`, `verify` and `first-flight` over the simulated machine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use super::{Broken, PACKAGE, broken, request, silent};
use crate::driver::problems::Problem;
use crate::driver::snapshot::{Adapter, Connection, Head, VERSION, Writer, link, ndk};
use crate::driver::stage::Stage;
use crate::faulty::Fault;
use crate::flight::{FirstFlight, fly, keep_stages};
use crate::machine::{LOWER, Machine, Mode, Said, Stages};
use crate::run::install;
use crate::simulated::{Simulated, State, static_settings};
use crate::status::status;
use crate::verify::{Verify, verify};
use crate::{Cli, Command};

fn said(text: &str) -> Said {
    Said { code: 0, text: text.into() }
}

/// A machine with the adapter, on which all is well.
fn installed() -> Simulated {
    let mut machine = Simulated::new(State::sample(static_settings()));
    install(&mut machine, &request(Mode::Own), &mut silent).expect("installs");
    machine.answers = well();
    machine
}

fn well() -> Vec<(&'static str, Said)> {
    let row = "\"(PDH-CSV 4.0)\",\"\\\\H\\RoCEv2 Adapter(9)\\sent_pkts\"\n\"now\",\"7\"";
    vec![
        ("NetworkDirect)", said("Enabled True")),
        ("OperationalState", said("True True")),
        ("Get-NetIPAddress", said("192.0.2.7 fe80::1")),
        ("SmbClientNetworkInterface", said("True")),
        ("RoCEv2 Adapter(*)", said(row)),
        ("typeperf", Said { code: 1, text: String::new() }),
        ("wevtutil", said("")),
        ("ping.exe", said("")),
    ]
}

/// Each part is told; one that cannot be known does not hide the rest.
#[test]
fn the_status_tells_each_part() {
    let text = status(&mut installed()).expect("a status");
    for words in [
        "on 'Ethernet', Own mode, rolls back unless confirmed",
        r"ROOT\NET\0000, runs",
        "'RoCEv2', index 99, 02-00-00-00-00-01",
        "up, 10000 Mb/s",
        "'Ethernet', up, 10000 Mb/s, Own mode",
        "room for a path MTU of 1024",
        "on, operational",
        "sent_pkts 7",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let mut mute = installed();
    mute.answers.clear();
    mute.problem = 52;
    let text = status(&mut mute).expect("a status");
    assert!(text.contains("problem code 52: the image's signature"), "{text}");
    assert!(text.contains("unknown: powershell.exe does not start"), "{text}");
    let none = status(&mut Simulated::new(State::sample(static_settings()))).expect("a status");
    assert!(none.contains("none"), "{none}");
}

/// As the driver answers: an adapter with a connection, and a problem before.
fn snapshot() -> Vec<u8> {
    let mut nic = [0; 48];
    nic.iter_mut().zip("{NIC}".encode_utf16()).for_each(|(to, from)| *to = from);
    let adapter = Adapter {
        interface: 99,
        mac: [2, 0, 0, 0, 0, 1],
        nic,
        link: link::UP,
        speed_bps: 10_000_000_000,
        mtu: 1500,
        path_mtu: 1024,
        ndk: ndk::CLOSING,
        endpoints: 3,
        connections: 1,
        connects: 1,
        accepts: 2,
        connect_failures: 0,
        connection_errors: 4,
        cq_errors: 0,
        in_bytes: 5,
        out_bytes: 6,
        in_frames: 7,
        out_frames: 8,
    };
    let connection = Connection {
        qpn: 17,
        path_mtu: 1024,
        local: std::net::Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets(),
        local_port: 445,
        remote: "2001:db8::9".parse::<std::net::Ipv6Addr>().expect("an address").octets(),
        remote_port: 40_000,
        sent_bytes: 1234,
        received_bytes: 5678,
        resent_packets: 9,
    };
    let head = Head {
        version: VERSION,
        len: 0,
        adapters: 1,
        stage: Stage::NdkOpen as u32,
        problem: Problem::FilterRefused as u32,
        problem_values: [99, 0xC001_000C, 0],
    };
    let mut room = vec![0; 2000];
    let mut writer = Writer::new(&mut room).expect("there is room");
    writer.add(&adapter);
    writer.add(&connection);
    let (written, _) = writer.finish(head);
    room.truncate(written);
    room
}

/// The driver's own word stands beside that of Windows, also where there is no adapter; where it cannot be read, the rest is
/// told all the same.
#[test]
fn the_status_has_the_drivers_word() {
    let mut machine = installed();
    machine.snapshot = Some(snapshot());
    machine.stages = Stages { last: Some("NdkOpen".into()), previous: Some("Binding".into()) };
    let text = status(&mut machine).expect("a status");
    for words in [
        "1 adapters, last stage NdkOpen",
        "index 99 on NIC {NIC}: link up, 10000 Mb/s, MTU 1500, path MTU 1024, NDK going off",
        "connects 1, accepts 2, failures 0, broken 4",
        "192.0.2.7:445 to [2001:db8::9]:40000, path MTU 1024: 1234 bytes sent, 5678 received",
        "index 99 refused the packet filter with status 0xC001000C.",
        "NdkOpen; the load before ended with Binding",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let mut other = snapshot();
    other[0] += 1;
    machine.snapshot = Some(other);
    let text = status(&mut machine).expect("a status");
    assert!(text.contains("unknown: the driver is of another version"), "{text}");
    machine.snapshot = None;
    let text = status(&mut machine).expect("a status");
    assert!(text.contains("has no adapter, or is not loaded"), "{text}");
}

fn verified(machine: &mut Simulated) -> (ExitCode, Vec<String>) {
    let mut lines = Vec::new();
    let asked =
        Verify { package: Some(PACKAGE.clone()), peer: Some([192, 0, 2, 9].into()), share: None };
    let code = verify(machine, &asked, &mut |line| lines.push(line));
    (code, lines)
}

/// Where all is well, nothing fails; each thing that is not is the first to be named.
#[test]
fn verifying_names_what_fails() {
    let (code, lines) = verified(&mut installed());
    assert_eq!(code, ExitCode::SUCCESS, "{lines:#?}");
    type Spoil = fn(&mut Simulated);
    let cases: [(&str, Spoil); 11] = [
        ("Windows", |machine| machine.state.host.test_signing = false),
        ("signature", |machine| machine.state.trust.clear()),
        ("driver store", |machine| machine.state.staged.clear()),
        ("protocol", |machine| machine.state.protocol = false),
        ("device", |machine| machine.problem = 10),
        ("binding", |machine| {
            machine.state.nics[0].bound.remove(LOWER);
        }),
        ("link", |machine| machine.state.link_comes = false),
        ("address", |machine| machine.answers.insert(0, ("IPAddress", said("169.254.1.1")))),
        ("RDMA", |machine| machine.answers.insert(0, ("Offload", said("Disabled True")))),
        ("SMB client", |machine| machine.answers.insert(0, ("Smb", said("False")))),
        ("peer", |machine| {
            machine.answers.insert(0, ("-l 1064", Said { code: 1, text: String::new() }));
        }),
    ];
    for (name, spoil) in cases {
        let mut machine = installed();
        spoil(&mut machine);
        let (code, lines) = verified(&mut machine);
        assert_eq!(code, ExitCode::FAILURE, "{name}");
        let last = lines.last().expect("a line");
        assert_eq!(*last, format!("First look at: {name}"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("mends it: ")));
    }
}

fn flight(name: &str, more: &[&str]) -> (FirstFlight, PathBuf) {
    let result = PACKAGE.join(name);
    let words = ["ctl", "first-flight", "--nic", "Ethernet", "--package"].into_iter();
    let paths = [PACKAGE.to_str().expect("one"), "--result", result.to_str().expect("one")];
    let cli = Cli::try_parse_from(words.chain(paths).chain(more.iter().copied()));
    let Command::FirstFlight(asked) = cli.expect("is understood").command else {
        panic!("another command")
    };
    (asked, result)
}

fn flyable(at: Option<(usize, Fault)>) -> Broken {
    let mut machine = broken(&State::sample(static_settings()), at);
    machine.machine.answers = [("sc.exe", said("")), ("verifier", said(""))].into();
    machine
}

/// All stages that need no other machine pass, the adapter goes, and the file tells it.
#[test]
fn a_flight_lands() {
    let (asked, result) = flight("lands.json", &[]);
    let mut machine = flyable(None);
    let before = machine.machine.state.clone();
    assert_eq!(fly(&mut machine, &asked, &mut silent).expect("prepares"), ExitCode::SUCCESS);
    assert!(machine.flight().expect("a record").is_some_and(|text| text.contains("Verifier")));
    assert_eq!(fly(&mut machine, &asked, &mut silent).expect("flies"), ExitCode::SUCCESS);
    assert_eq!(machine.machine.state, before);
    let text = std::fs::read_to_string(result).expect("the file");
    for words in ["BindInOwnMode", "10000 Mb/s", "--address is missing", "\"attached\""] {
        assert!(text.contains(words), "no {words} in {text}");
    }
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
    assert_eq!(fly(&mut machine, &asked, &mut silent).expect("flies"), ExitCode::FAILURE);
    assert_eq!(machine.machine.state, before);
    let text = std::fs::read_to_string(result).expect("the file");
    assert!(text.contains("problem code 39") && !text.contains("BindInOwnMode"), "{text}");
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
