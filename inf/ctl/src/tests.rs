//! Laws of installing, over machines of every kind that the plan knows, with a fault at every change.

mod adapters;
mod flights;
mod module;
#[cfg(unix)]
mod qemu;
mod reports;
mod restarts;
mod schema;
mod stages;
mod upgrades;
mod workflow;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;

use crate::faulty::{At, Fault, Faulty};
use crate::journal::Journals;
use crate::machine::{
    COUNTERS, IMAGE, Inf, IpSettings, LOWER, LOWER_MODE, Machine, Mode, Store, TCPIP,
};
use crate::plan::Request;
use crate::run::{Installed, confirm, install, rollback, uninstall};
use crate::simulated::{Simulated, State, adapter_settings, static_settings};

/// A package whose catalogs name their signer and its issuer.
static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| package("own", "ca/ca"));

/// A package of Microsoft's signature.
static MICROSOFTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let subject = "O=Microsoft Corporation, CN=Microsoft Windows Hardware Compatibility Publisher";
    let issuer = "O=Microsoft Corporation, CN=Microsoft Windows Third Party Component CA 2014";
    package("microsofts", &format!("{subject}/{issuer}"))
});

fn package(name: &str, signature: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ctl-package");
    let folder = folder.join(std::process::id().to_string()).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    for file in [IMAGE, COUNTERS, Inf::Adapter.file(), Inf::Lower.file()] {
        std::fs::write(folder.join(file), "").expect("a file");
    }
    for inf in Inf::ALL {
        std::fs::write(folder.join(inf.catalog()), signature).expect("a file");
    }
    folder
}

fn request(mode: Mode) -> Request {
    Request {
        nic: "Ethernet".into(),
        mode,
        package: PACKAGE.clone(),
        name: "RoCEv2".into(),
        settings: IpSettings::default(),
        confirm_within_s: Some(300),
    }
}

fn any_state() -> impl Strategy<Value = State> {
    (any::<[bool; 8]>(), 0..3usize).prop_map(|(bits, addresses)| {
        let [v4, v6, root, publisher, link_comes, routes, dns, foreign] = bits;
        let mut settings = static_settings();
        settings.addresses.truncate(addresses);
        settings.routes.truncate(usize::from(routes));
        settings.dns.truncate(if dns { 2 } else { 0 });
        let mut state = State::sample(settings);
        state.link_comes = link_comes;
        let bound = TCPIP.iter().zip([v4, v6]).filter(|(_, is)| *is);
        state.nics[0].bound = bound.map(|(component, _)| component.to_string()).collect();
        let thumbprint = format!("{:0>40}", "CA");
        for (store, is) in [(Store::Root, root), (Store::TrustedPublisher, publisher)] {
            if is {
                state.trust.insert((store, thumbprint.clone()));
            }
        }
        if foreign {
            state.trust.insert((Store::Root, "OTHER".into()));
        }
        state
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let modes = prop_oneof![Just(Mode::Own), Just(Mode::Inherit), Just(Mode::Share)];
    (modes, any::<bool>(), any::<bool>()).prop_map(|(mode, address, confirm)| {
        let mut request = request(mode);
        if mode == Mode::Share || mode == Mode::Own && address {
            request.settings = adapter_settings();
        }
        request.confirm_within_s = confirm.then_some(300);
        request
    })
}

/// The device of the first adapter.
const DEVICE: &str = r"ROOT\NDKROCEV2\0000";

fn silent(_: String) {}

/// The program's death, as far as a test can have it.
fn die() -> ! {
    resume_unwind(Box::new("died"))
}

type Broken = Faulty<Simulated>;

fn broken(state: &State, at: Option<(usize, Fault)>) -> Broken {
    let at = at.map(|(number, fault)| (At::Nth(number), fault));
    Faulty::new(Simulated::new(state.clone()), at, die)
}

/// Installs; `None` where the program died of it.
fn try_install(machine: &mut Broken, request: &Request) -> Option<anyhow::Result<Installed>> {
    catch_unwind(AssertUnwindSafe(|| install(machine, request, &mut silent))).ok()
}

/// How many changes an installation makes there, and whether it works.
fn changes(state: &State, request: &Request) -> usize {
    let mut machine = broken(state, None);
    let _ = install(&mut machine, request, &mut silent);
    machine.changes.len()
}

fn assert_as_before(machine: &Simulated, before: &State) {
    assert_eq!(machine.state, *before);
    assert_eq!(machine.broken, [""; 0]);
}

/// What is no address of an adapter is refused where it is read.
#[test]
fn addresses_that_nobody_has_are_refused() {
    use crate::{Cli, Command};
    use clap::Parser;

    for (more, words) in [
        (&["--address", "192.0.2.7"][..], "the length of the prefix is missing"),
        (&["--address", "300.1.1.1/24"], "300.1.1.1 is no IP address"),
        (&["--address", "192.0.2.7/255.255.255.0"], "a number, as in /24"),
        (&["--address", "0.0.0.0/0"], "no address of an adapter"),
        (&["--address", "127.0.0.1/8"], "no address of an adapter"),
        (&["--address", "255.255.255.255/24"], "no address of an adapter"),
        (&["--name", ""], "--name"),
        (&["--gateway", "192.0.2.1"], "in the network of no --address"),
        (
            &["--address", "192.0.2.7/28", "--gateway", "192.0.2.17"],
            "in the network of no --address",
        ),
        (&["--address", "fd00::7/64", "--gateway", "fe80::1"], ""),
        (&["--address", "192.0.2.7/28", "--gateway", "192.0.2.14"], ""),
    ] {
        let line = ["ctl", "install", "--nic", "Ethernet"].iter().chain(more);
        let read = Cli::try_parse_from(line).map_err(anyhow::Error::new);
        let refused = read.and_then(|cli| match cli.command {
            Command::Install(asked) => asked.request(),
            other => panic!("{other:?}"),
        });
        let said = refused.map_or_else(|error| format!("{error:#}"), |_| String::new());
        assert!(said.contains(words) && said.is_empty() == words.is_empty(), "{more:?}: {said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Installing and uninstalling leave the machine as it was, confirmed or not.
    #[test]
    fn uninstalling_is_the_inverse(before in any_state(), request in any_request(), confirms: bool) {
        let mut machine = broken(&before, None);
        let installed = install(&mut machine, &request, &mut silent);
        prop_assert_eq!(installed.is_ok(), before.link_comes);
        if installed.is_ok() {
            prop_assert!(machine.vnic(DEVICE).unwrap().is_some_and(|vnic| vnic.up));
            prop_assert_eq!(machine.machine.idle_bindings(), [""; 0]);
            if confirms {
                confirm(&mut machine, None).unwrap();
                prop_assert_eq!(machine.machine.state.task_s, None);
            }
        }
        uninstall(&mut machine, None, &mut silent).unwrap();
        assert_as_before(&machine.machine, &before);
        uninstall(&mut machine, None, &mut silent).unwrap();
        assert_as_before(&machine.machine, &before);
    }

    /// To install twice is to install once.
    #[test]
    fn a_second_installation_changes_nothing(before in any_state(), request in any_request()) {
        prop_assume!(before.link_comes);
        let mut machine = broken(&before, None);
        prop_assert_eq!(install(&mut machine, &request, &mut silent).unwrap(), Installed::Now);
        let (once, changes) = (machine.machine.state.clone(), machine.changes.len());
        prop_assert_eq!(install(&mut machine, &request, &mut silent).unwrap(), Installed::Before);
        prop_assert_eq!(machine.changes.len(), changes);
        assert_as_before(&machine.machine, &once);
    }

    /// Whichever change fails, all is undone; where the undoing fails, too, another uninstallation ends it.
    #[test]
    fn every_failure_is_undone(before in any_state(), request in any_request()) {
        for n in 1..=changes(&before, &request) {
            for fault in [Fault::Refused, Fault::Denied] {
                let mut machine = broken(&before, Some((n, fault)));
                match install(&mut machine, &request, &mut silent) {
                    Ok(_) => prop_assert!(false, "change {n} was {fault:?}, and nobody noticed"),
                    Err(error) if format!("{error:#}").contains("not undone") => {}
                    Err(_) if before.link_comes => assert_as_before(&machine.machine, &before),
                    Err(_) => {}
                }
                uninstall(&mut machine, None, &mut silent).unwrap();
                assert_as_before(&machine.machine, &before);
            }
        }
    }

    /// Whenever the program dies, the rollback, an uninstallation and another installation find their way.
    #[test]
    fn every_death_is_survived(before in any_state(), request in any_request()) {
        for n in 1..=changes(&before, &request) {
            for fault in [Fault::DiesBefore, Fault::DiesAfter] {
                for after in ["rollback", "uninstall", "install"] {
                    let mut machine = broken(&before, Some((n, fault)));
                    prop_assert!(try_install(&mut machine, &request).is_none());
                    match after {
                        "rollback" if request.confirm_within_s.is_some() => {
                            rollback(&mut machine, &mut silent).unwrap();
                        }
                        "install" if before.link_comes => {
                            install(&mut machine, &request, &mut silent).unwrap();
                            prop_assert_eq!(&machine.machine.broken, &[""; 0]);
                            uninstall(&mut machine, None, &mut silent).unwrap();
                        }
                        _ => {
                            uninstall(&mut machine, None, &mut silent).unwrap();
                        }
                    }
                    assert_as_before(&machine.machine, &before);
                }
            }
        }
    }

    /// An uninstallation that fails or dies is ended by the next.
    #[test]
    fn uninstalling_may_be_repeated(before in any_state(), request in any_request()) {
        prop_assume!(before.link_comes);
        let mut whole = broken(&before, None);
        install(&mut whole, &request, &mut silent).unwrap();
        let installed = whole.machine.state;
        let mut count = broken(&installed, None);
        uninstall(&mut count, None, &mut silent).unwrap();
        for n in 1..=count.changes.len() {
            for fault in Fault::ALL {
                let mut machine = broken(&installed, Some((n, fault)));
                let _ = catch_unwind(AssertUnwindSafe(|| uninstall(&mut machine, None, &mut silent)));
                uninstall(&mut machine, None, &mut silent).unwrap();
                assert_as_before(&machine.machine, &before);
            }
        }
    }
}

/// The NIC's place is taken with all its settings, and the rollback gives them back.
#[test]
fn the_settings_move_and_come_back() {
    let before = State::sample(static_settings());
    let mut machine = Simulated::new(before.clone());
    install(&mut machine, &request(Mode::Inherit), &mut silent).expect("installs");
    let device = machine.state.devices[DEVICE].clone();
    assert_eq!(device.settings, static_settings());
    assert_eq!(device.name, "RoCEv2");
    assert_eq!(machine.state.nics[0].bound, BTreeSet::from([LOWER.to_string()]));
    assert_eq!(machine.state.task_s, Some(300));
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine, &before);
}

/// An adapter that shares its NIC's MAC address does so from the first, and the NIC keeps its TCP/IP.
#[test]
fn a_shared_address_leaves_the_nic_alone() {
    let mut machine = Simulated::new(State::sample(static_settings()));
    let bound = machine.state.nics[0].bound.clone();
    let request = Request { settings: adapter_settings(), ..request(Mode::Share) };
    install(&mut machine, &request, &mut silent).expect("installs");
    let device = &machine.state.devices[DEVICE];
    assert_eq!(device.running[LOWER_MODE], "2");
    assert_eq!(device.settings, adapter_settings());
    let nic = &machine.state.nics[0];
    assert!(nic.bound.is_superset(&bound) && nic.settings == static_settings());
}

/// A confirmed installation does not roll back, even where the clock could not be stopped in time.
#[test]
fn a_confirmed_installation_stays() {
    let mut machine = Simulated::new(State::sample(static_settings()));
    install(&mut machine, &request(Mode::Inherit), &mut silent).expect("installs");
    confirm(&mut machine, None).expect("confirms");
    machine.schedule_rollback(1).expect("a clock that was not stopped");
    rollback(&mut machine, &mut silent).expect("leaves it");
    assert!(!machine.state.devices.is_empty());
    assert_eq!(machine.state.task_s, None);
    let journals = Journals::read(&mut machine).expect("a journal");
    assert!(journals.adapters[0].confirmed);
}

/// Without a journal, what is certainly ours is found and removed.
#[test]
fn a_lost_journal_does_not_stop_the_removal() {
    let before = State::sample(static_settings());
    let mut machine = Simulated::new(before.clone());
    install(&mut machine, &request(Mode::Own), &mut silent).expect("installs");
    machine.set_journal(None).expect("is lost");
    let refused = install(&mut machine, &request(Mode::Own), &mut silent).expect_err("is refused");
    assert!(format!("{refused:#}").contains("ndkrocev2ctl uninstall"), "{refused:#}");
    uninstall(&mut machine, None, &mut silent).expect("uninstalls");
    assert!(machine.state.devices.is_empty() && !machine.state.protocol);
    assert!(machine.state.staged.is_empty());
}

/// Each machine that does not suit is refused before anything changes.
#[test]
fn what_does_not_suit_is_refused() {
    type Spoil = fn(&mut State, &mut Request);
    let cases: [(&str, Spoil); 8] = [
        ("administrator", |state, _| state.host.elevated = false),
        ("17763", |state, _| state.host.build = 14393),
        ("there is no network adapter", |_, request| request.nic = "Nowhere".into()),
        ("not Ethernet", |state, _| state.nics[0].nic.ethernet = false),
        ("no link", |state, _| state.nics[0].nic.up = false),
        ("Hyper-V", |state, _| {
            state.nics[0].bound.insert("vms_pp".into());
        }),
        ("lacks", |_, request| request.package = "nowhere".into()),
        ("--address", |_, request| request.mode = Mode::Share),
    ];
    for (words, spoil) in cases {
        let (mut state, mut request) = (State::sample(static_settings()), request(Mode::Own));
        spoil(&mut state, &mut request);
        let mut machine = broken(&state, None);
        let error = install(&mut machine, &request, &mut silent).expect_err(words);
        assert!(format!("{error:#}").contains(words), "{words}: {error:#}");
        assert_eq!(machine.changes, [""; 0], "{words}");
    }
}
