//! Several adapters on one machine, over the simulated one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::{Broken, any_request, any_state, assert_as_before, broken, request, silent};
use crate::exit::Exit;
use crate::faulty::Fault;
use crate::machine::{LOWER, LOWER_ADAPTER, Machine, Mode, TCPIP};
use crate::plan::Request;
use crate::run::{Uninstalled, confirm, install, rollback, uninstall};
use crate::simulated::{Simulated, State, adapter_settings, static_settings};
use crate::status::status;
use crate::verify::{Verify, verify};

const SECOND: &str = "RoCEv2 second";

/// As the other request, for the other NIC.
fn second(request: &Request) -> Request {
    Request { nic: "Other".into(), name: SECOND.into(), ..request.clone() }
}

fn both(before: &State, first: &Request) -> Simulated {
    let mut machine = Simulated::new(before.clone());
    install(&mut machine, first, &mut silent).expect("the first");
    install(&mut machine, &second(first), &mut silent).expect("the second");
    machine
}

/// The first adapter alone, as if there had never been another.
fn alone(before: &State, request: &Request) -> State {
    let mut machine = Simulated::new(before.clone());
    install(&mut machine, request, &mut silent).expect("installs");
    machine.state
}

/// Each has a device, a NIC, a name and a journal; the protocol is bound to these NICs and to no other.
#[test]
fn two_nics_carry_two_adapters() {
    let mut state = State::sample(static_settings());
    let mut third = state.nics[1].clone();
    (third.nic.guid, third.nic.name) = ("{3}".into(), "Third".into());
    state.nics.push(third);
    let mut machine = both(&state, &request(Mode::Own));
    let names: Vec<_> = machine.state.devices.values().map(|device| &device.name).collect();
    assert_eq!(names, ["RoCEv2", SECOND]);
    let lowers: Vec<_> =
        machine.state.devices.values().map(|device| &device.keywords[LOWER_ADAPTER]).collect();
    assert_eq!(lowers, [&state.nics[0].nic.guid, &state.nics[1].nic.guid]);
    assert!(machine.idle_bindings().is_empty());
    let text = status(&mut machine).expect("a status");
    for words in ["'RoCEv2' on 'Ethernet'", "'RoCEv2 second' on 'Other'", "index 99", "index 100"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

/// What one adapter needs and another has is refused before anything changes.
#[test]
fn what_is_taken_is_refused() {
    let first = request(Mode::Own);
    let state = alone(&State::sample(static_settings()), &first);
    let third = Request { nic: "Ethernet".into(), ..second(&first) };
    for (request, words) in [
        (third, "carries the adapter 'RoCEv2' already"),
        (Request { nic: "Other".into(), ..first.clone() }, "'RoCEv2' is installed on 'Ethernet'"),
        (Request { name: "Other".into(), ..second(&first) }, "an adapter has the name 'Other'"),
        (
            Request { settings: adapter_settings(), ..first.clone() },
            "was installed with IPv4 by DHCP, and install changes no address",
        ),
    ] {
        let mut machine = broken(&state, None);
        let error = install(&mut machine, &request, &mut silent).expect_err(words);
        assert!(format!("{error:#}").contains(words), "{words}: {error:#}");
        assert_eq!(machine.changes, [""; 0], "{words}");
    }
}

/// The task rolls back what nobody confirmed, and nothing else; it stays for as long as there is such an adapter.
#[test]
fn only_what_nobody_confirmed_rolls_back() {
    let (before, first) = (State::sample(static_settings()), request(Mode::Own));
    let mut machine = both(&before, &first);
    confirm(&mut machine, Some("RoCEv2")).expect("confirms");
    assert!(machine.state.task_s.is_some(), "the second may roll back");
    rollback(&mut machine, &mut silent).expect("rolls back");
    let names: Vec<_> = machine.state.devices.values().map(|device| &device.name).collect();
    assert_eq!(names, ["RoCEv2"]);
    assert_eq!(machine.state.task_s, None);
    let mut machine = both(&before, &first);
    rollback(&mut machine, &mut silent).expect("rolls back");
    assert_as_before(&machine, &before);
    let mut machine = both(&before, &first);
    confirm(&mut machine, None).expect("confirms");
    rollback(&mut machine, &mut silent).expect("leaves both");
    assert_eq!((machine.state.devices.len(), machine.state.task_s), (2, None));
}

/// A name that nobody has is no wish to remove all.
#[test]
fn another_name_removes_nothing() {
    let state = alone(&State::sample(static_settings()), &request(Mode::Own));
    let mut machine = broken(&state, None);
    let uninstalled = uninstall(&mut machine, Some(SECOND), &mut silent).expect("looks");
    assert_eq!((uninstalled, machine.changes.len()), (Uninstalled::Before, 0));
}

/// Without a journal both are found; what they share goes with the last one.
#[test]
fn a_lost_journal_loses_no_adapter() {
    let mut machine = both(&State::sample(static_settings()), &request(Mode::Own));
    machine.set_journal(None).expect("is lost");
    uninstall(&mut machine, None, &mut silent).expect("uninstalls");
    assert!(machine.state.devices.is_empty() && !machine.state.protocol);
    assert!(machine.state.staged.is_empty());
    assert_eq!(machine.broken, [""; 0]);
}

/// A NIC that was pulled out holds up nothing.
#[test]
fn a_nic_that_is_gone_does_not_stop_the_removal() {
    let mut machine = both(&State::sample(static_settings()), &request(Mode::Own));
    machine.state.nics.remove(1);
    uninstall(&mut machine, Some(SECOND), &mut silent).expect("uninstalls");
    assert_eq!(machine.state.devices.len(), 1);
}

/// Each adapter is checked, or the one that is named.
#[test]
fn verifying_tells_adapters_apart() {
    let mut machine = both(&State::sample(static_settings()), &request(Mode::Own));
    machine.state.nics[1].bound.remove(LOWER);
    let mut checked = |name: Option<&str>| {
        let package = Some(super::PACKAGE.clone());
        let asked = Verify { name: name.map(Into::into), package, ..Verify::default() };
        let mut lines = Vec::new();
        let exit = verify(&mut machine, &asked, &mut |line| lines.push(line)).expect("is told");
        (exit, lines.join("\n"))
    };
    let (exit, text) = checked(None);
    assert_eq!(exit, Exit::Failed);
    assert!(text.contains("passed   binding of 'RoCEv2': 'Ethernet'"), "{text}");
    assert!(text.contains("FAILED   binding of 'RoCEv2 second'"), "{text}");
    let (_, text) = checked(Some("RoCEv2"));
    assert!(text.contains("passed   binding: 'Ethernet'") && !text.contains("second"), "{text}");
}

/// TCP/IP of the second NIC, too: the first states leave it whole.
fn any_states() -> impl Strategy<Value = State> {
    (any_state(), any::<[bool; 2]>()).prop_map(|(mut state, bits)| {
        state.link_comes = true;
        let bound = TCPIP.iter().zip(bits).filter(|(_, is)| *is);
        state.nics[1].bound = bound.map(|(component, _)| component.to_string()).collect();
        state
    })
}

fn remove(machine: &mut Broken, order: [&str; 2]) -> anyhow::Result<()> {
    order.iter().try_for_each(|name| uninstall(machine, Some(name), &mut silent).map(|_| ()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    /// In either order the first to go leaves the other whole, and the last leaves the machine as it was.
    #[test]
    fn either_may_go_first(before in any_states(), first in any_request(), confirms: bool) {
        let mut machine = both(&before, &first);
        if confirms {
            confirm(&mut machine, None).unwrap();
        }
        let installed = machine.state;
        for order in [["RoCEv2", SECOND], [SECOND, "RoCEv2"]] {
            let mut machine = broken(&installed, None);
            uninstall(&mut machine, Some(order[0]), &mut silent).unwrap();
            let rest = machine.machine.state.devices.keys().next().cloned().unwrap();
            prop_assert!(machine.vnic(&rest).unwrap().is_some_and(|vnic| vnic.up));
            prop_assert!(machine.machine.state.protocol && machine.machine.state.counters);
            prop_assert_eq!(machine.machine.idle_bindings(), [""; 0]);
            uninstall(&mut machine, Some(order[1]), &mut silent).unwrap();
            assert_as_before(&machine.machine, &before);
        }
    }

    /// Whichever change of the second installation fails, the first adapter is as it was.
    #[test]
    fn a_second_that_fails_leaves_the_first(before in any_states(), first in any_request()) {
        let one = alone(&before, &first);
        let mut whole = broken(&one, None);
        install(&mut whole, &second(&first), &mut silent).unwrap();
        for n in 1..=whole.changes.len() {
            for fault in Fault::ALL {
                let mut machine = broken(&one, Some((n, fault)));
                let _ = catch_unwind(AssertUnwindSafe(|| install(&mut machine, &second(&first), &mut silent)));
                uninstall(&mut machine, Some(SECOND), &mut silent).unwrap();
                let mut left = machine.machine.state.clone();
                // Of the task only the time is another.
                if left.task_s.is_some() {
                    left.task_s = one.task_s;
                }
                prop_assert_eq!(&left, &one, "change {} {:?}", n, fault);
                prop_assert_eq!(&machine.machine.broken, &[""; 0]);
                uninstall(&mut machine, None, &mut silent).unwrap();
                assert_as_before(&machine.machine, &before);
            }
        }
    }

    /// Whatever fails while both go, in either order, another uninstallation ends it.
    #[test]
    fn removing_both_may_be_repeated(before in any_states(), first in any_request()) {
        let installed = both(&before, &first).state;
        for order in [["RoCEv2", SECOND], [SECOND, "RoCEv2"]] {
            let mut count = broken(&installed, None);
            remove(&mut count, order).unwrap();
            for n in 1..=count.changes.len() {
                for fault in Fault::ALL {
                    let mut machine = broken(&installed, Some((n, fault)));
                    let _ = catch_unwind(AssertUnwindSafe(|| remove(&mut machine, order)));
                    uninstall(&mut machine, None, &mut silent).unwrap();
                    assert_as_before(&machine.machine, &before);
                }
            }
        }
    }
}
