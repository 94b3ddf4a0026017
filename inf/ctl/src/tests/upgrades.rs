//! The exchange of the driver package, over the simulated machine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::{Broken, DEVICE, PACKAGE, assert_as_before, broken, package, request, silent};
use crate::exit::RestartFirst;
use crate::faulty::Fault;
use crate::journal::Journals;
use crate::machine::{Inf, Machine, Mode};
use crate::plan::Request;
use crate::run::{confirm, install, rollback, uninstall};
use crate::simulated::{Simulated, State, adapter_settings, static_settings};
use crate::upgrade::{Upgraded, upgrade};
use crate::verify::{Verify, verify};

/// Another build, by a signer of its own.
pub(super) static NEWER: LazyLock<PathBuf> =
    LazyLock::new(|| build("newer", "DriverVer = 11/29/2026,0.2.0.0"));

fn build(name: &str, ver: &str) -> PathBuf {
    let folder = package(name, &format!("{name}/{name}"));
    for inf in Inf::ALL {
        std::fs::write(folder.join(inf.file()), format!("{ver}\n")).expect("a file");
    }
    folder
}

fn before() -> State {
    State::sample(static_settings())
}

/// Two adapters, confirmed, with settings of their own.
fn installed() -> State {
    let mut machine = Simulated::new(before());
    let first = Request { settings: adapter_settings(), ..request(Mode::Own) };
    let second = Request { nic: "Other".into(), name: "Second".into(), ..request(Mode::Own) };
    for request in [&first, &second] {
        install(&mut machine, request, &mut silent).expect("installs");
    }
    machine.set_keyword(DEVICE, "AckTimeout", "20").expect("somebody's setting");
    machine.restart(DEVICE).expect("takes it");
    confirm(&mut machine, None).expect("confirms");
    machine.state
}

fn exchange(machine: &mut impl Machine, package: &Path) -> anyhow::Result<Upgraded> {
    upgrade(machine, package, 300, &mut silent)
}

/// The devices are the same, with names, keywords and addresses; the driver store has the new package alone.
#[test]
fn settings_and_addresses_stay() {
    let old = installed();
    let mut machine = Simulated::new(old.clone());
    assert_eq!(exchange(&mut machine, &NEWER).expect("upgrades"), Upgraded::Now);
    assert_eq!(machine.state.task_s, Some(300));
    confirm(&mut machine, None).expect("confirms");
    assert_eq!(machine.state.task_s, None);
    for (id, device) in &machine.state.devices {
        let old = &old.devices[id];
        assert_eq!((&device.name, &device.keywords), (&old.name, &old.keywords));
        assert_eq!((&device.settings, device.inf != old.inf), (&old.settings, true));
    }
    let staged = machine.staged(Inf::Adapter).expect("a store");
    let [new] = &staged[..] else { panic!("{staged:?}") };
    assert!(machine.state.staged[new].text.contains("0.2.0.0"));
    assert_eq!(exchange(&mut machine, &NEWER).expect("looks"), Upgraded::Before);
    uninstall(&mut machine, None, &mut silent).expect("uninstalls");
    assert_as_before(&machine, &before());
}

/// A driver that gets no link, and one that nobody confirms: the old one is back, and nothing else is different.
#[test]
fn the_old_package_comes_back() {
    let old = installed();
    let mut machine = Simulated::new(old.clone());
    machine.bad_builds.push("0.2.0.0");
    let error = exchange(&mut machine, &NEWER).expect_err("has no link");
    assert!(format!("{error:#}").contains("the old package is back"), "{error:#}");
    assert_as_before(&machine, &old);
    let mut machine = Simulated::new(old.clone());
    exchange(&mut machine, &NEWER).expect("upgrades");
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine, &old);
}

/// A rebuild by the signer of before: going back leaves it trusted, as the installation has it.
#[test]
fn trust_of_before_stays() {
    let (old, signature) = (installed(), std::fs::read(PACKAGE.join(Inf::Adapter.catalog())));
    let rebuild = build("rebuild", "DriverVer = 11/29/2026,0.1.0.9");
    for inf in Inf::ALL {
        std::fs::write(rebuild.join(inf.catalog()), signature.as_ref().expect("a catalog"))
            .expect("a file");
    }
    let mut machine = Simulated::new(old.clone());
    exchange(&mut machine, &rebuild).expect("upgrades");
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine, &old);
    exchange(&mut machine, &rebuild).expect("upgrades");
    confirm(&mut machine, None).expect("confirms");
    assert_eq!(machine.state.trust, old.trust);
    uninstall(&mut machine, None, &mut silent).expect("uninstalls");
    assert_as_before(&machine, &before());
}

/// Half an upgrade is none to confirm: the old INF must not go below a device that has its driver.
#[test]
fn half_an_upgrade_is_not_confirmed() {
    let old = installed();
    let mut count = broken(&old, None);
    exchange(&mut count, &NEWER).expect("upgrades");
    let steps = count.changes.iter().position(|name| *name == "exchange_driver").expect("there");
    let mut machine = broken(&old, Some((steps + 1, Fault::DiesBefore)));
    assert!(catch_unwind(AssertUnwindSafe(|| exchange(&mut machine, &NEWER))).is_err());
    let state = machine.machine.state.clone();
    let error = confirm(&mut machine, None).expect_err("is refused");
    assert!(format!("{error:#}").contains("the upgrade is not finished"), "{error:#}");
    assert_eq!(machine.machine.state.staged, state.staged);
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine.machine, &old);
}

/// Before the confirmation both packages are in the driver store, and nothing is wrong with that.
#[test]
fn an_unconfirmed_upgrade_verifies() {
    let mut machine = Simulated::new(installed());
    exchange(&mut machine, &NEWER).expect("upgrades");
    let asked = Verify { package: Some(NEWER.clone()), ..Verify::default() };
    let mut lines = Vec::new();
    verify(&mut machine, &asked, &mut |line| lines.push(line)).expect("is told");
    let line = lines.iter().find(|line| line.contains("driver store")).expect("a check");
    assert!(line.starts_with("passed"), "{line}");
}

/// A NIC whose cable is out stops no upgrade of the others.
#[test]
fn a_link_that_was_down_may_stay_down() {
    let mut old = installed();
    old.nics[1].bound.remove(crate::machine::LOWER);
    let mut machine = Simulated::new(old);
    assert_eq!(exchange(&mut machine, &NEWER).expect("upgrades"), Upgraded::Now);
}

/// What does not suit is refused before anything changes.
#[test]
fn what_cannot_be_exchanged_is_refused() {
    let other = build("other-lower", "DriverVer = 11/30/2026,0.3.0.0");
    std::fs::write(other.join(Inf::Lower.file()), "another\n").expect("a file");
    let mut waits = installed();
    waits.awaits_restart = Some("INetCfg::Apply".into());
    for (state, package, words) in [
        (before(), &*NEWER, "nothing is installed"),
        (installed(), &other, "another lower edge"),
        (waits, &*NEWER, "Windows waits for a restart"),
    ] {
        let mut machine = broken(&state, None);
        let error = exchange(&mut machine, package).expect_err(words);
        assert!(format!("{error:#}").contains(words), "{words}: {error:#}");
        assert_eq!(machine.changes, [""; 0], "{words}");
    }
}

/// Adapters have one driver: another package is for an upgrade, and no adapter comes or goes during one.
#[test]
fn packages_are_not_mixed() {
    let mut state = before();
    let mut machine = Simulated::new(state.clone());
    install(&mut machine, &request(Mode::Own), &mut silent).expect("installs");
    let second = Request { nic: "Other".into(), name: "Second".into(), ..request(Mode::Own) };
    let newer = Request { package: NEWER.clone(), ..second.clone() };
    state = machine.state;
    let mut machine = broken(&state, None);
    let error = install(&mut machine, &newer, &mut silent).expect_err("is another build");
    assert!(format!("{error:#}").contains("ndkrocev2ctl upgrade"), "{error:#}");
    assert_eq!(machine.changes, [""; 0]);
    confirm(&mut machine, None).expect("confirms");
    exchange(&mut machine, &NEWER).expect("upgrades");
    let error = install(&mut machine, &newer, &mut silent).expect_err("not now");
    assert!(format!("{error:#}").contains("an upgrade is not finished"), "{error:#}");
    confirm(&mut machine, None).expect("confirms");
    install(&mut machine, &newer, &mut silent).expect("installs");
    let error = install(&mut machine, &Request { name: "Third".into(), ..second }, &mut silent);
    assert!(error.is_err(), "the old package is another build now");
}

/// Windows may want a restart between the packages: nothing goes back at its start, and the same command ends it.
#[test]
fn an_upgrade_goes_on_after_the_restart() {
    let old = installed();
    let mut machine = Simulated::new(old.clone());
    machine.asks_restart.push("exchange_driver");
    assert_eq!(exchange(&mut machine, &NEWER).expect("in part"), Upgraded::InPart);
    assert!(exchange(&mut machine, &NEWER).expect_err("not yet").is::<RestartFirst>());
    machine.start_windows();
    rollback(&mut machine, &mut silent).expect("waits for the rest");
    assert_eq!(exchange(&mut machine, &NEWER).expect("the rest"), Upgraded::Now);
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine, &old);
}

/// Whatever fails or dies at whichever change: the rollback gives the old package back, an uninstallation leaves nothing, and the same
/// command again ends the upgrade.
#[test]
fn every_failure_of_an_upgrade_is_undone() {
    let old = installed();
    let whole = {
        let mut machine = broken(&old, None);
        exchange(&mut machine, &NEWER).expect("upgrades");
        confirm(&mut machine, None).expect("confirms");
        machine
    };
    let go = |machine: &mut Broken| {
        exchange(machine, &NEWER)?;
        confirm(machine, None)
    };
    for n in 1..=whole.changes.len() {
        for fault in Fault::ALL {
            for after in ["rollback", "uninstall", "upgrade"] {
                let mut machine = broken(&old, Some((n, fault)));
                let _ = catch_unwind(AssertUnwindSafe(|| go(&mut machine)));
                let is_confirmed = Journals::read(&mut machine).expect("journals");
                let is_confirmed = is_confirmed.adapters[0].request.package == *NEWER;
                match after {
                    "rollback" => {
                        rollback(&mut machine, &mut silent).expect("rolls back");
                        // The word was on the disk: then the rollback ends it.
                        let staged = machine.staged(Inf::Adapter).expect("a store");
                        assert_eq!(staged.len(), 1, "{n} {fault:?}");
                        if !is_confirmed && machine.machine.state.devices[DEVICE].inf == "oem0.inf"
                        {
                            assert_as_before(&machine.machine, &old);
                        }
                    }
                    "uninstall" => {
                        uninstall(&mut machine, None, &mut silent).expect("uninstalls");
                        assert_as_before(&machine.machine, &before());
                    }
                    _ if is_confirmed => {}
                    _ => {
                        // An upgrade whose word was given is ended by that alone.
                        let _ = exchange(&mut machine, &NEWER);
                        confirm(&mut machine, None).expect("confirms");
                        assert_eq!(machine.machine.state, whole.machine.state, "{n} {fault:?}");
                    }
                }
            }
        }
    }
    assert!(PACKAGE.exists());
}
