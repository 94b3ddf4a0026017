//! `status` and `verify` over the simulated machine.

use std::path::Path;

use super::{DEVICE, MICROSOFTS, PACKAGE, request, silent};
use crate::driver::problems::Problem;
use crate::driver::snapshot::{Adapter, Connection, Head, VERSION, Writer, link, ndk};
use crate::driver::stage::Stage;
use crate::exit::Exit;
use crate::machine::{LOWER, LOWER_MODE, Machine, Mode, Said, Stages, Traffic};
use crate::plan::Request;
use crate::run::install;
use crate::simulated::{Simulated, State, static_settings};
use crate::status::status;
use crate::verify::{Verify, verify};

pub(super) fn said(text: &str) -> Said {
    Said { code: 0, text: text.into() }
}

/// A machine with the adapter, on which all is well.
pub(super) fn installed() -> Simulated {
    let mut machine = Simulated::new(State::sample(static_settings()));
    install(&mut machine, &request(Mode::Own), &mut silent).expect("installs");
    machine.answers = well();
    machine
}

pub(super) fn well() -> Vec<(&'static str, Said)> {
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
        r"ROOT\NDKROCEV2\0000, runs",
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
pub(super) fn snapshot() -> Vec<u8> {
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

fn verified(machine: &mut Simulated) -> (Exit, Vec<String>) {
    verified_by(machine, &PACKAGE)
}

fn verified_by(machine: &mut Simulated, package: &Path) -> (Exit, Vec<String>) {
    let mut lines = Vec::new();
    let (package, peer) = (Some(package.into()), Some([192, 0, 2, 9].into()));
    let asked = Verify { package, peer, ..Verify::default() };
    let code = verify(machine, &asked, &mut |line| lines.push(line)).expect("is told");
    (code, lines)
}

/// Where all is well, nothing fails; each thing that is not is the first to be named.
#[test]
fn verifying_names_what_fails() {
    let (code, lines) = verified(&mut installed());
    assert_eq!(code, Exit::Done, "{lines:#?}");
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
        assert_eq!(code, Exit::Failed, "{name}");
        let last = lines.last().expect("a line");
        assert_eq!(*last, format!("First look at: {name}"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("mends it: ")));
    }
}

/// A machine on which nothing is installed has one thing said of it, and no part of it fails for itself.
#[test]
fn a_bare_machine_is_told_in_one_word() {
    let mut machine = Simulated::new(State::sample(static_settings()));
    let (code, lines) = verified(&mut machine);
    assert_eq!(code, Exit::Failed);
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("not installed"), "{line}");
}

/// Microsoft's signature needs neither test signing nor anybody's trust.
#[test]
fn what_microsoft_signed_needs_no_test_mode() {
    let mut state = State::sample(static_settings());
    state.host.test_signing = false;
    let mut machine = Simulated::new(state);
    let request = Request { package: MICROSOFTS.clone(), ..request(Mode::Own) };
    let mut said = Vec::new();
    install(&mut machine, &request, &mut |line| said.push(line)).expect("installs");
    assert!(!said.iter().any(|line| line.contains("test signing")), "{said:#?}");
    assert!(machine.state.trust.is_empty(), "{:?}", machine.state.trust);
    machine.answers = well();
    let (code, lines) = verified_by(&mut machine, &MICROSOFTS);
    assert_eq!(code, Exit::Done, "{lines:#?}");
    // The other package has a signer of its own.
    let (code, lines) = verified(&mut machine);
    assert_eq!(
        (code, lines.last().expect("a line").as_str()),
        (Exit::Failed, "First look at: Windows")
    );
}

/// The name of an adapter may have letters that PowerShell takes for a pattern.
#[test]
fn the_status_asks_by_the_index() {
    let mut machine = installed();
    machine.rename(DEVICE, "RoCEv2 [1]").expect("is renamed");
    machine.answers = vec![("-InterfaceIndex 99 |", said("True True"))];
    let text = status(&mut machine).expect("a status");
    assert!(text.contains("on, operational"), "{text}");
}

/// Each code that an administrator may meet has what mends it, not a hint to look elsewhere.
#[test]
fn problem_codes_have_remedies() {
    for (code, words) in [(14, "restart it"), (18, "then install"), (28, "then install")] {
        let mut machine = installed();
        machine.problem = code;
        let text = status(&mut machine).expect("a status");
        let line = text.lines().find(|line| line.contains(&format!("problem code {code}")));
        assert!(line.is_some_and(|line| line.contains(words)), "{text}");
    }
}

/// Where the adapter sends and nothing for its own MAC address comes, that is told, with the word of the host; where nothing
/// comes at all, it is the VLAN; where something came, neither.
#[test]
fn silence_has_its_cause() {
    let traffic = |received_own, received_group| Traffic { sent: 9, received_own, received_group };
    for (model, traffic, words) in [
        ("VMware, Inc. VMware20,1", traffic(0, 5), "forged transmits"),
        ("innotek GmbH VirtualBox", traffic(0, 5), "Promiscuous Mode to Allow All"),
        ("QEMU Standard PC (Q35 + ICH9, 2009)", traffic(0, 5), "trustGuestRxFilters"),
        ("Microsoft Corporation Virtual Machine", traffic(0, 5), "MacAddressSpoofing"),
        ("Amazon EC2 m5.large", traffic(0, 5), "a cloud"),
        ("Dell Inc. PowerEdge R750", traffic(0, 5), "802.1X"),
        ("Dell Inc. PowerEdge R750", traffic(0, 0), "VLAN of its network"),
        ("VMware, Inc. VMware20,1", traffic(1, 5), "a DHCP server in its network"),
        ("VMware, Inc. VMware20,1", Traffic::default(), "a DHCP server in its network"),
    ] {
        let mut machine = installed();
        machine.state.host.model = model.into();
        machine.traffic = traffic;
        machine.answers.insert(0, ("IPAddress", said("169.254.1.1")));
        let (_, lines) = verified(&mut machine);
        let line = lines.iter().find(|line| line.contains("FAILED   address")).expect("it failed");
        assert!(line.contains(words), "{model}: {line}");
    }
}

/// In Inherit mode the adapter has the NIC's address: no host keeps its frames for that.
#[test]
fn an_inherited_address_is_not_blamed() {
    let mut machine = installed();
    machine.set_keyword(DEVICE, LOWER_MODE, Mode::Inherit.keyword()).expect("is set");
    machine.traffic = Traffic { sent: 9, received_own: 0, received_group: 5 };
    machine.answers.insert(0, ("-l 32", Said { code: 1, text: String::new() }));
    let (_, lines) = verified(&mut machine);
    let line = lines.iter().find(|line| line.contains("FAILED   peer")).expect("it failed");
    assert!(line.contains("the same network, VLAN and MTU"), "{line}");
}
