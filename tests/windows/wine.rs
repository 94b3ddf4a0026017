//! The Windows image, executed: its own code, unmodified, on the stand-ins of `rig`.
//!
//! Goal: what NDIS, the kernel and NDK consumers do with the driver works, and no rule that the stand-ins know is broken: IRQL, locks,
//! pool, net buffer lists, structures, the order of calls. Method: each scenario runs in Wine's driver host and, as far as it needs
//! no NDK consumer, by a loader of our own in a Linux process. Each run is a process of its own, and its report ends with a verdict.
//! Of the refusals of the 1,536 frames' parts a run makes a sample, which differs from run to run; `REFUSE_ALL=1` makes all.
//!
//! A pass means "built and executed under Wine". It says nothing of Windows.

mod rxe;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::SystemTime;

use tests::lab::skip;
use windows_tests::CANNOT;

macro_rules! scenarios {
    ($run:ident: $($(#[$goal:meta])* $name:ident: $scenario:literal;)*) => {
        $($(#[$goal])* #[test] fn $name() { super::$run($scenario); })*
    };
}

/// With NDK consumers, whose tables have the calling convention of Windows.
mod in_wine {
    scenarios! { wine:
        /// Goal: two adapters connect and exchange 10,000 verified SENDs, WRITEs and READs.
        two_adapters_exchange_data: "traffic";
        /// Goal: what SMB Direct uses works: FRMR over built pages, inline SEND, SEND with invalidate.
        smb_direct_gets_what_it_uses: "traffic-smb";
        /// Goal: the same on a wire that loses frames.
        lost_frames_are_sent_again: "lossy";
        /// Goal: the same over IPv6.
        two_adapters_exchange_data_over_ipv6: "traffic-v6";
        /// Goal: a peer behind a router is reached only where `*NetworkDirectGlobalFlags` allows it.
        remote_subnets_are_allowed_or_not: "subnets";
        /// Goal: a connection follows what TCP/IP knows of its neighbour, has it asked again when nothing
        /// comes back, and ends at once with its address.
        connections_follow_their_paths: "paths";
        /// Goal: the NDK counters tell connections, refusals, breaks and CQ errors.
        ndk_counters_count: "counters";
        /// Goal: the performance counter sets tell, per adapter and connection, what went over the wire.
        performance_counters_are_collected: "performance";
        /// Goal: switches can tell RoCE by its priority and its DSCP.
        roce_has_its_class: "class";
        /// Goal: a NIC that divides units gets them and one that joins datagrams is understood; an offer may come and go.
        units_flow_where_the_nic_takes_them: "units";
        /// Goal: no unit leaves where the registry or the NIC wants none, or only as far as the NIC divides it.
        no_units_flow_where_nobody_takes_them: "no-units";
        /// Goal: where a NIC loses units, all data arrives, and packets leave singly.
        a_nic_may_lose_units: "loses-units";
        /// Goal: the NIC sleeps and wakes under traffic, which stops and goes on.
        the_nic_may_sleep: "sleep-below";
        /// Goal: the same where threads rest at random, as on a machine under load.
        the_nic_may_sleep_on_a_busy_machine: "sleep-below jitter=200";
        /// Goal: so does the adapter.
        the_adapter_may_sleep: "sleep";
        /// Goal: a sleep that is too long for a connection ends it by an event and flushed requests.
        a_long_sleep_ends_connections: "sleep-long";
        /// Goal: NDK goes off under an open consumer once it has let go, and comes on again.
        ndk_goes_off_and_on: "disable";
        /// Goal: a NIC that goes away under a connection breaks it, and no more.
        the_nic_may_go_under_a_connection: "unbind";
        /// Goal: an adapter that is removed under a consumer waits until it has let go.
        a_halt_waits_for_consumers: "halt-open";
        /// Goal: a device that is gone under a consumer ends once that has let go, and its peer hears of it.
        a_device_may_be_gone_under_a_consumer: "surprise";
        /// Goal: consumers that take ten seconds to let go have them, while everything else goes on.
        a_disable_waits_for_slow_consumers: "disable-slow";
        /// Goal: a system that goes down in order, or by a bug check, waits for nothing.
        the_system_may_go_down: "shutdown";
        /// Goal: neighbours that TCP/IP knows are taken from its table, the others are asked for.
        neighbours_are_known_or_asked_for: "neighbours";
        /// Goal: so do they of connections and of the last problem.
        administrators_read_connections: "control-connections";
        /// Goal: whatever a consumer makes while the pool is exhausted fails with a status, or works.
        an_exhausted_pool_is_a_status: "exhausted";
        /// Goal: thousands of connections end at once while the pool is exhausted, and nothing of it is needed.
        connections_end_without_pool: "ends";
        /// Goal: ten thousand connects, one after the other, each with a verified WRITE.
        connections_come_and_go: "connects";
        /// Goal: two cores of each adapter exchange data over connections of their own, one of which ends meanwhile.
        several_poll_cores_exchange_data: "cores";
        /// Goal: cores move to the processors that are nearest to the NIC, and work there.
        several_poll_cores_move_near_their_nic: "cores-near";
        /// Goal: peers that do not answer hold up no connect to another, and no halt, nor do hundreds, nor those of strangers' paths.
        dead_peers_hold_up_nobody: "dead-peers";
        many_dead_peers_hold_up_nobody: "many-dead-peers";
        /// Goal: the flight consumer passes each step over two adapters.
        the_flight_consumer_passes: "flight ndkflight.sys passed Client=0 Server=1 Connections=8";
        /// Goal: traffic, and NDK that goes off, where a seed says at each call of a stand-in which thread goes on.
        two_adapters_exchange_data_preempted: "traffic seed=1";
        several_poll_cores_exchange_data_preempted: "cores 30 3000 seed=1";
        several_poll_cores_start_and_end_preempted: "cores-start seed=2";
        several_poll_cores_move_near_their_nic_preempted: "cores-near seed=3";
        ndk_goes_off_and_on_preempted: "disable seed=1";
        ndk_goes_off_and_on_preempted_otherwise: "disable seed=2";
        a_nic_may_refuse_frames_preempted: "refuses-frames seed=1";
        a_nic_may_lose_units_preempted: "loses-units seed=1";
    }
}

/// What a Linux process runs as well.
mod in_wine_too {
    scenarios! { wine:
        /// Goal: `DriverEntry` registers a miniport, an NDK provider and a protocol; unloading undoes it.
        loads_and_unloads: "load";
        /// Goal: an adapter starts on its NIC, answers requests, follows the link, pauses and halts.
        an_adapter_starts_and_halts: "start";
        /// Goal: everything that Windows' pages make mandatory is answered, and each room that is too small refused.
        mandatory_requests_are_answered: "requests";
        /// Goal: NDK that was off at the start comes on when the registry allows it, and not before.
        the_registry_says_whether_ndk_comes_on: "enable-late";
        /// Goal: the adapter may start before its NIC is bound, and outlives it.
        the_nic_may_come_late: "bind-late";
        /// Goal: an adapter that is told to use itself as its NIC does not.
        an_adapter_does_not_bind_to_itself: "bind-self";
        /// Goal: an adapter that halts while its NIC is being bound is bound before, or not at all.
        an_adapter_may_halt_while_its_nic_is_bound: "bind-halt";
        /// Goal: TCP/IP's frames pass in both directions, RoCE's do not reach it.
        ordinary_frames_pass: "pass-through";
        /// Goal: an adapter with an address of its own takes its own frames and no others.
        an_adapter_has_its_own_address: "own-address";
        /// Goal: TCP/IP sees what its packet filter says, RoCE waits for no filter, and NDIS is asked to bring nothing of this host back.
        tcpip_sees_what_its_filter_says: "filters";
        /// Goal: frames of the host that are not for the adapter take no lock.
        the_hosts_traffic_takes_no_lock: "host-traffic";
        /// Goal: TCP/IP that keeps its frames delays no NIC.
        kept_frames_delay_no_nic: "kept-frames";
        /// Goal: an adapter that has its NIC's address has it at a start at which nobody tells it, too.
        a_nic_may_start_after_its_adapter: "late-nic";
        /// Goal: where the NIC's TCP/IP is unbound, its frames come to several processors all the same.
        frames_come_to_several_processors: "scaling";
        /// Goal: an adapter shares the Ethernet address of its NIC with the host's own TCP/IP, and each hears what is for it.
        an_adapter_shares_its_nics_address: "share";
        /// Goal: tags pass beside frames in both directions, as `*PriorityVLANTag` says.
        tags_pass_beside_frames: "tags";
        /// Goal: an adapter lives in its VLAN, with RoCE and all.
        an_adapter_lives_in_a_vlan: "vlan";
        /// Goal: a policy for a NetworkDirect port sets priority and DSCP of its connections' frames, and of no others; NDIS knows what is in force.
        a_policy_gives_ports_their_class: "qos";
        /// Goal: incorrect QoS parameters are refused by their statuses, and change nothing.
        incorrect_qos_parameters_are_refused: "qos-malformed";
        /// Goal: frames and regions without system addresses are mapped, and unmapped again.
        what_is_not_mapped_gets_mapped: "unmapped";
        /// Goal: frames that the NIC found damaged are dropped and counted, and no others.
        the_verdicts_of_the_nic_are_heeded: "checksums";
        /// Goal: a NIC that refuses frames ends the connection whose frames they are, and no other; both are told of.
        a_nic_may_refuse_frames: "refuses-frames";
        /// Goal: frames that end within their header are nobody's, and counted.
        runts_are_nobodys: "runts";
        /// Goal: a NIC serves one adapter, and the next one when that goes.
        one_nic_serves_one_adapter: "one-nic";
        /// Goal: a NIC that keeps its frames holds up its own adapter, is told of, and holds up no other.
        a_stuck_nic_holds_up_no_other: "stuck-nic";
        /// Goal: frames in MDLs of odd shapes arrive whole, or are dropped and counted.
        frames_may_lie_in_odd_shapes: "shapes";
        /// Goal: statuses of odd sizes are followed where they are whole.
        statuses_may_have_odd_sizes: "statuses";
        /// Goal: a flood of frames takes no more of a turn than others do.
        floods_take_turns: "floods";
        /// Goal: under traffic NICs and adapters may stop and go on at any time and at once.
        ends_may_come_at_once: "ends-at-once";
        /// Goal: frames in MDLs of a few bytes arrive whole.
        frames_may_lie_in_pieces: "pieces";
        /// Goal: cancelled sends end aborted, the others sent, and all come back.
        sends_may_be_cancelled: "cancel";
        /// Goal: opens, closes and requests of the NIC may end whenever they like, or be aborted.
        calls_to_the_nic_may_pend: "pending";
        /// Goal: so does one that nobody uses, with a NIC and without.
        a_device_may_be_gone: "surprise-alone";
        /// Goal: a NIC is bound by parameters of any revision.
        parameters_of_a_bind_may_be_newer: "revisions";
        /// Goal: each object that starting asks for may be refused, and all is undone.
        every_refusal_is_undone: "refused";
        /// Goal: the same for each allocation of pool.
        every_refusal_of_pool_is_undone: "refused-pool";
        /// Goal: the last stage that the driver reached is on the disk before its work begins, whatever the registry does.
        stages_are_left_behind: "stages";
        /// Goal: each problem is in the event log under its own message, with its values.
        problems_are_told: "problems";
        /// Goal: administrators read what the driver does; rooms that are too short, adapters that halt, a device that goes.
        administrators_read_the_driver: "control";
        /// Goal: poll cores share no processor, and wait for no ordinary thread.
        poll_cores_have_processors_of_their_own: "processors";
        /// Goal: adapters of several cores start and end, whatever is there and gone, each core on its processor.
        several_poll_cores_start_and_end: "cores-start";
        /// Goal: where a core is refused something, those before it are undone.
        several_poll_cores_are_undone: "refused-cores";
    }
}

/// Without an NDK consumer: the calling convention of its tables is this host's.
mod in_a_process {
    scenarios! { process:
        loads_and_unloads: "load";
        an_adapter_starts_and_halts: "start";
        mandatory_requests_are_answered: "requests";
        the_registry_says_whether_ndk_comes_on: "enable-late";
        the_nic_may_come_late: "bind-late";
        an_adapter_does_not_bind_to_itself: "bind-self";
        an_adapter_may_halt_while_its_nic_is_bound: "bind-halt";
        poll_cores_have_processors_of_their_own: "processors";
        several_poll_cores_start_and_end: "cores-start";
        several_poll_cores_are_undone: "refused-cores";
        ordinary_frames_pass: "pass-through";
        tags_pass_on_a_busy_machine: "tags jitter=200";
        an_adapter_has_its_own_address: "own-address";
        tcpip_sees_what_its_filter_says: "filters";
        the_hosts_traffic_takes_no_lock: "host-traffic";
        kept_frames_delay_no_nic: "kept-frames";
        a_nic_may_start_after_its_adapter: "late-nic";
        frames_come_to_several_processors: "scaling";
        an_adapter_shares_its_nics_address: "share";
        tags_pass_beside_frames: "tags";
        an_adapter_lives_in_a_vlan: "vlan";
        a_policy_gives_ports_their_class: "qos";
        incorrect_qos_parameters_are_refused: "qos-malformed";
        what_is_not_mapped_gets_mapped: "unmapped";
        the_verdicts_of_the_nic_are_heeded: "checksums";
        a_nic_may_refuse_frames: "refuses-frames";
        runts_are_nobodys: "runts";
        one_nic_serves_one_adapter: "one-nic";
        a_stuck_nic_holds_up_no_other: "stuck-nic";
        frames_may_lie_in_odd_shapes: "shapes";
        statuses_may_have_odd_sizes: "statuses";
        floods_take_turns: "floods";
        ends_may_come_at_once: "ends-at-once";
        ends_may_come_at_once_preempted: "ends-at-once seed=3";
        frames_may_lie_in_pieces: "pieces";
        sends_may_be_cancelled: "cancel";
        calls_to_the_nic_may_pend: "pending";
        a_device_may_be_gone: "surprise-alone";
        parameters_of_a_bind_may_be_newer: "revisions";
        every_refusal_is_undone: "refused";
        every_refusal_of_pool_is_undone: "refused-pool";
        ordinary_frames_pass_preempted: "pass-through seed=1";
        tags_pass_preempted: "tags seed=2";
        calls_to_the_nic_may_pend_preempted: "pending seed=3";
        an_adapter_may_halt_while_its_nic_is_bound_preempted: "bind-halt seed=4";
        a_nic_may_refuse_frames_preempted: "refuses-frames seed=7";
        a_device_may_be_gone_preempted: "surprise-alone seed=5";
        several_poll_cores_start_and_end_preempted: "cores-start seed=6";
        stages_are_left_behind: "stages";
        problems_are_told: "problems";
        administrators_read_the_driver: "control";
    }
}

/// As above, with the kernel's declarations of `wdk-sys` in the image.
mod with_wdk_in_a_process {
    scenarios! { process_with_wdk:
        an_adapter_starts_and_halts: "start";
        ordinary_frames_pass: "pass-through";
        every_refusal_is_undone: "refused";
    }
}

/// Runs scenarios in Wine's driver host; the first argument is the scenario's name.
fn in_wine() -> Command {
    Command::new(root().join("tests/windows/wine"))
}

/// Runs scenarios in a Linux process.
fn in_process() -> Option<Command> {
    static IMAGE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let counts = env::var_os("IMAGE_PROFILES").is_some();
        image(if counts { &["x86_64", "coverage"] } else { &[] })
    });
    rig_with(IMAGE.as_ref()?)
}

/// The same with the declarations of `wdk-sys` in the image.
fn in_process_with_wdk() -> Option<Command> {
    static IMAGE: LazyLock<Option<PathBuf>> = LazyLock::new(|| image(&["x86_64", "wdk"]));
    rig_with(IMAGE.as_ref()?)
}

fn rig_with(image: &Path) -> Option<Command> {
    static RIG: LazyLock<PathBuf> = LazyLock::new(rig);
    let mut command = Command::new(&*RIG);
    command.arg(image);
    Some(command)
}

fn wine(scenario: &str) {
    judge("Wine", scenario, &mut in_wine());
}

fn process(scenario: &str) {
    if let Some(mut command) = in_process() {
        judge("a process", scenario, &mut command);
    }
}

fn process_with_wdk(scenario: &str) {
    if let Some(mut command) = in_process_with_wdk() {
        judge("a process, built with wdk-sys", scenario, &mut command);
    }
}

/// Runs a scenario, named with its arguments.
fn judge(host: &str, scenario: &str, command: &mut Command) {
    command.args(scenario.split(' '));
    if scenario.starts_with("refused") && env::var_os("REFUSE_ALL").is_some() {
        command.arg("all");
    }
    let done = command.output().expect("it starts");
    let report = String::from_utf8_lossy(&done.stdout);
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(CANNOT) {
        skip(&format!("the Windows driver in {host}: {}", said.trim()));
        return;
    }
    let name = format!("{scenario} in {host}");
    let sound = report.trim_end().ends_with("verdict: pass") && done.status.success();
    assert!(sound, "{name}: {}\n{}\n{}", done.status, digest(&report), digest(&said));
    for event in events_of(scenario) {
        let traced = report.lines().any(|line| line == format!("trace ndkrocev2: {event}"));
        assert!(traced, "{name}: {event} is not in the trace\n{}", digest(&report));
    }
    let wanted = |line: &&str| line.contains("verified") || line.contains(" breaches, ");
    for line in report.lines().filter(wanted) {
        println!("{name}: {line}");
    }
}

/// What a failure is read from: the end of a report, and before it the first breaches.
fn digest(report: &str) -> String {
    const END: usize = 60;
    const BREACHES: usize = 20;
    let lines: Vec<_> = report.lines().collect();
    let (before, end) = lines.split_at(lines.len().saturating_sub(END));
    let breaches = before.iter().filter(|line| line.starts_with("BREACH")).take(BREACHES);
    let left_out = format!("[{} lines, of them these breaches:]", before.len());
    let head: Vec<_> = std::iter::once(&*left_out).chain(breaches.copied()).collect();
    if before.is_empty() {
        end.join("\n")
    } else {
        [&head[..], &["[the end:]"], end].concat().join("\n")
    }
}

#[test]
fn a_digest_has_the_end_and_the_breaches() {
    assert_eq!(digest("a\nb"), "a\nb");
    let long = format!("first\nBREACH: one\n{}verdict: fail", "more\n".repeat(100));
    let digest = digest(&long);
    assert!(
        digest.starts_with("[43 lines, of them these breaches:]\nBREACH: one\n[the end:]\nmore")
    );
    assert!(digest.ends_with("more\nverdict: fail") && digest.lines().count() == 63);
}

/// What a scenario must leave in a trace, whatever else it does.
fn events_of(scenario: &str) -> &'static [&'static str] {
    match scenario {
        "load" => &["DriverLoaded", "DriverUnloaded"],
        "start" => &["DriverLoaded", "Bound", "Unbound", "DriverUnloaded"],
        "disable" => &["NdkChanged"],
        "traffic" => &["Connected", "Disconnected"],
        _ => &[],
    }
}

/// Goal: whoever collects a trace by the GUID that the instructions name gets this provider's.
#[test]
fn the_instructions_name_the_traces_provider() {
    let Some(mut command) = in_process() else { return };
    let done = command.arg("load").output().expect("it starts");
    let report = String::from_utf8_lossy(&done.stdout);
    let said = report.lines().find_map(|line| line.strip_prefix("trace provider ndkrocev2 is "));
    let guid = said.expect("a provider registers");
    let instructions = include_str!("../../inf/README.md");
    assert!(instructions.contains(guid), "inf/README.md does not name {guid}");
}

/// Goal: an import that names another module than that of its function is refused before anything runs, under Wine as in
/// Windows and in a process.
#[test]
fn a_wrong_module_is_refused() {
    let Some(image) = image(&[]) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("target/tmp is writable");
    let lines = include_str!("imports").lines().filter(|line| !line.starts_with('#'));
    let list: String = lines.map(|line| format!("stand-in {line}\n")).collect();
    let redirect = |list: &str| {
        let rig = folder.path().join("rig");
        fs::write(&rig, list).expect("target/tmp is writable");
        let mut python = Command::new("python3");
        python.arg(root().join("tests/windows/redirect.py")).arg(&image);
        let out = folder.path().join("image");
        python.arg(out).arg(rig).arg(folder.path()).output()
    };
    let Ok(right) = redirect(&list) else { return skip("redirect.py: no python3") };
    assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    let moved = list.replace("hal.dll!KeQuery", "ntoskrnl.exe!KeQuery");
    assert_ne!(moved, list);
    let wrong = redirect(&moved).expect("it started before");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success());
    assert_eq!(said.trim(), "no stand-in has hal.dll!KeQueryPerformanceCounter");
}

/// Goal: a build that has to wait for another one leaves alone what that one may be reading.
#[test]
fn a_build_writes_nothing_before_its_turn() {
    if image(&[]).is_none() {
        return;
    }
    let target = root().join("target/windows");
    let lock = fs::File::create(target.join("build.lock")).expect("target is writable");
    lock.lock().expect("the other builds end");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("target/tmp is writable");
    // A turn that does not come.
    std::os::unix::fs::symlink("/bin/false", folder.path().join("flock")).expect("a link");
    let path =
        format!("{}:{}", folder.path().display(), env::var("PATH").expect("bash has a PATH"));
    let before = written_in(&target.join("lib"));
    let status = Command::new(root().join("tests/windows/build")).env("PATH", path).status();
    assert_eq!(status.expect("bash").code(), Some(1));
    assert_eq!(written_in(&target.join("lib")), before);
}

/// Each file of a folder with the time at which it was last written.
fn written_in(folder: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    files
        .map(|file| {
            let written = fs::metadata(&file).and_then(|metadata| metadata.modified());
            (file, written.expect("a time"))
        })
        .collect()
}

/// The image; `None` where this machine cannot build it, which is said.
fn image(build: &[&str]) -> Option<PathBuf> {
    let built = windows_tests::image(build, Path::new(env!("CARGO_TARGET_TMPDIR")));
    built.inspect_err(|lack| skip(&format!("the Windows driver in a process: {lack}"))).ok()
}

/// The program that loads the image, built as this test is.
fn rig() -> PathBuf {
    windows_tests::rig(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn root() -> &'static Path {
    Path::new(tests::ROOT)
}
