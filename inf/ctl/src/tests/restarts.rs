//! Restarts that Windows asks for, over the simulated machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{DEVICE, any_request, any_state, assert_as_before, broken, request, silent};
use crate::exit::{Exit, RestartFirst};
use crate::faulty::Fault;
use crate::machine::{Machine, Mode};
use crate::run::{Installed, Uninstalled, install, rollback, uninstall};
use crate::simulated::{Simulated, State, static_settings};
use crate::status::status;

use proptest::prelude::*;

/// Operations after which Windows has asked for a restart.
const ASKING: [&str; 3] = ["install_protocol", "install_driver", "bind"];

fn machine(before: &State, asking: &'static str) -> Simulated {
    let mut machine = Simulated::new(before.clone());
    machine.asks_restart.push(asking);
    machine
}

/// The parts before the restart stay, also when Windows starts; the same command then ends the installation.
#[test]
fn an_installation_goes_on_after_the_restart() {
    let before = State::sample(static_settings());
    for asking in ASKING {
        for mode in [Mode::Own, Mode::Inherit] {
            let (mut machine, request) = (machine(&before, asking), request(mode));
            let installed = install(&mut machine, &request, &mut silent).expect("in part");
            assert_eq!(installed, Installed::InPart, "{asking}");
            assert_eq!(crate::end(&mut machine).expect("an end"), Exit::RestartNeeded);
            let text = status(&mut machine).expect("a status");
            assert!(text.contains(&format!("Windows waits for one: {asking}")), "{text}");
            machine.start_windows();
            rollback(&mut machine, &mut silent).expect("waits for the rest");
            assert_eq!(machine.state.task_s, Some(300), "{asking}");
            let installed = install(&mut machine, &request, &mut silent).expect("the rest");
            assert_eq!(installed, Installed::Now, "{asking}");
            assert!(machine.vnic(DEVICE).expect("an adapter").is_some_and(|vnic| vnic.up));
            uninstall(&mut machine, None, &mut silent).expect("uninstalls");
            assert_as_before(&machine, &before);
        }
    }
}

/// Windows starts once without rolling back; when the time is over, or it starts again, all is undone.
#[test]
fn an_installation_that_nobody_ends_is_undone() {
    let before = State::sample(static_settings());
    let mut machine = machine(&before, "install_driver");
    install(&mut machine, &request(Mode::Own), &mut silent).expect("in part");
    machine.start_windows();
    rollback(&mut machine, &mut silent).expect("waits for the rest");
    assert!(!machine.state.devices.is_empty());
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine, &before);
}

/// The time may be over before anybody has restarted Windows.
#[test]
fn a_restart_that_does_not_come_is_a_rollback() {
    let before = State::sample(static_settings());
    let mut machine = machine(&before, "install_driver");
    install(&mut machine, &request(Mode::Own), &mut silent).expect("in part");
    rollback(&mut machine, &mut silent).expect("rolls back");
    machine.start_windows();
    assert_as_before(&machine, &before);
}

/// What is half removed would be met again: nothing changes before the restart, and the end says which it is.
#[test]
fn no_installation_begins_before_a_restart() {
    let before = State::sample(static_settings());
    let mut machine = Simulated::new(before.clone());
    install(&mut machine, &request(Mode::Own), &mut silent).expect("installs");
    machine.asks_restart.push("remove_protocol");
    let uninstalled = uninstall(&mut machine, None, &mut silent).expect("uninstalls");
    assert_eq!(uninstalled, Uninstalled::Now);
    assert_eq!(crate::end(&mut machine).expect("an end").code(), 3010);
    let mut machine = broken(&machine.state, None);
    let error = install(&mut machine, &request(Mode::Own), &mut silent).expect_err("is refused");
    assert!(error.is::<RestartFirst>(), "{error:#}");
    assert_eq!(Exit::of(&error).code(), 350);
    assert_eq!(machine.changes, [""; 0]);
    machine.machine.start_windows();
    install(&mut machine, &request(Mode::Own), &mut silent).expect("installs");
    assert_eq!(crate::end(&mut machine).expect("an end"), Exit::Done);
}

/// An uninstallation that finds nothing says so.
#[test]
fn a_bare_machine_is_not_uninstalled() {
    let mut machine = broken(&State::sample(static_settings()), None);
    let uninstalled = uninstall(&mut machine, None, &mut silent).expect("looks");
    assert_eq!((uninstalled, machine.changes.len()), (Uninstalled::Before, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whichever operation asks, and whatever fails then, an uninstallation after the restart leaves the machine as it was.
    #[test]
    fn a_restart_in_between_is_undone(before in any_state(), request in any_request()) {
        for asking in ASKING {
            let mut whole = broken(&before, None);
            whole.machine.asks_restart.push(asking);
            let _ = install(&mut whole, &request, &mut silent);
            for n in 1..=whole.changes.len() {
                for fault in Fault::ALL {
                    let mut machine = broken(&before, Some((n, fault)));
                    machine.machine.asks_restart.push(asking);
                    let _ = catch_unwind(AssertUnwindSafe(|| install(&mut machine, &request, &mut silent)));
                    machine.machine.start_windows();
                    uninstall(&mut machine, None, &mut silent).unwrap();
                    assert_as_before(&machine.machine, &before);
                }
            }
        }
    }
}
