//! The traces that the driver leaves for an administrator: stages in the registry, sentences in the event log.

use ndis_driver::problems::Problem;

use super::*;

/// One adapter's life; true if all of it started.
fn live(host: &dyn Host, nic: &Nic) -> bool {
    if host.load().is_err() {
        return false;
    }
    // The offer that comes with the load would otherwise be taken by an adapter that has not started yet.
    nic::settle();
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    nic::settle();
    set_ndk(vnic, false);
    eventually("NetEventNDKDisable", || {
        vnic.ndk_disabled.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    vnic.remove();
    host.unload();
    true
}

/// The stages of a whole life, in their order.
const LIFE: [&str; 14] = [
    "Loading",
    "Loaded",
    "Starting",
    "NdkOn",
    "Started",
    "Binding",
    "Bound",
    "NdkOff",
    "Halting",
    "Halted",
    "Unloading",
    "Unbinding",
    "Unbound",
    "Unloaded",
];

/// Each stage is on the disk before its work begins; the next load keeps the last of the one before; and a registry that
/// fails changes nothing else.
pub(super) fn stages(host: &dyn Host, _: &[String]) {
    let nic = Nic::plug_in(1500);
    assert!(live(host, nic), "it starts");
    assert_eq!(registry::take_stages(), LIFE);
    let before: [(&str, &[&str]); 5] = [
        ("NdisMRegisterMiniportDriver", &["Loading"]),
        ("NdisMSetMiniportAttributes", &["Starting"; 4]),
        ("NdisOpenAdapterEx", &["Binding"]),
        ("NdisCloseAdapterEx", &["Unbinding"]),
        ("NdisMDeregisterMiniportDriver", &["Unbound"]),
    ];
    let witnessed = registry::take_witnessed();
    for (call, stages) in before {
        let found: Vec<_> = witnessed.iter().filter(|(other, _)| *other == call).collect();
        let found: Vec<_> = found.iter().map(|(_, stage)| stage.as_str()).collect();
        assert_eq!(found, stages, "{call}");
    }
    clean("after a life");

    // A machine that stops here has this on its disk; the next load tells it.
    host.load().expect("DriverEntry succeeds");
    assert_eq!(registry::on_disk("PreviousStage").as_deref(), Some("Unloaded"));
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    nic::settle();
    assert_eq!(registry::on_disk("LastStage").as_deref(), Some("Bound"));
    vnic.remove();
    host.unload();
    registry::take_stages();

    let mut failed = 0;
    for call in 0.. {
        registry::fail_at(Some(call));
        assert!(live(host, nic), "it starts without the registry's call {call}");
        let came = registry::has_failed();
        registry::fail_at(None);
        clean(&format!("with the registry's call {call} failed"));
        let stages = registry::take_stages();
        if !came {
            assert_eq!(stages, LIFE);
            break;
        }
        assert_eq!(stages, without(call), "without the registry's call {call}");
        failed += 1;
    }
    assert_eq!(failed, BEFORE + 2 * LIFE.len());
    say!("{failed} calls of the registry failed, verified to change nothing else");
    nic::remove_all();
    clean("after unload");
}

/// The calls before the first stage: open, read, keep. Two follow for each stage: set and flush.
const BEFORE: usize = 3;

/// The stages that come to the disk in a life with this call failed.
fn without(call: usize) -> Vec<&'static str> {
    let mut stages = LIFE.to_vec();
    match call.checked_sub(BEFORE) {
        None if call == 0 => stages.clear(),
        None => {}
        // What was there before is flushed once more.
        Some(set) if set % 2 == 0 => {
            stages[set / 2] = LIFE[(set / 2 + LIFE.len() - 1) % LIFE.len()]
        }
        Some(flush) => {
            stages.remove(flush / 2);
        }
    }
    stages
}

/// Each problem that an administrator can make is told by its own message, with its values.
pub(super) fn problems(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    event_log::take();
    let vnic = add_with(0, nic, &[("LowerAdapter", "")]);
    expect_events(vnic, &[(Problem::NoLowerAdapter, ["0", "0"])]);
    vnic.remove();

    let vnic = add_with(
        0,
        nic,
        &[("NetworkAddress", "010000000000"), ("*NetworkDirectRoCEFrameSize", "4096")],
    );
    expect_ready(vnic, nic);
    expect_events(
        vnic,
        &[(Problem::BadNetworkAddress, ["0", "0"]), (Problem::FrameSizeReduced, ["4096", "1500"])],
    );
    vnic.remove();

    let vnic = add_with(0, nic, &[("*JumboPacket", "9014")]);
    nic::settle();
    let wanted = (Problem::LowerMtuTooSmall, ["1500", "9000"]);
    eventually("the event", || event_log::take() == [event(vnic, wanted)]);
    vnic.remove();

    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    nic.unbind();
    event_log::take();
    nic.aborts.store(nic::ABORTED, std::sync::atomic::Ordering::SeqCst);
    nic.bind();
    nic.aborts.store(0, std::sync::atomic::Ordering::SeqCst);
    let status = format!("{:X}", nic::ABORTED);
    expect_events(vnic, &[(Problem::FilterRefused, [&status, "0"])]);
    vnic.remove();
    finish(host);
}

fn event(vnic: &Vnic, (problem, values): (Problem, [&str; 2])) -> event_log::Event {
    let strings = [vnic.index.to_string(), values[0].into(), values[1].into()].into();
    event_log::Event { id: problem.message_id(), strings }
}

pub(super) fn expect_events(vnic: &Vnic, wanted: &[(Problem, [&str; 2])]) {
    let wanted: Vec<_> = wanted.iter().map(|&wanted| event(vnic, wanted)).collect();
    assert_eq!(event_log::take(), wanted);
}
