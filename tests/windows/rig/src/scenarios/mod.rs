//! What is done with the image, one story each. A story begins and ends with nothing loaded.

mod beside;
mod control;
mod cores;
mod damaged;
mod ends;
mod ends_of_life;
mod flight;
mod floods;
mod frames;
mod life;
mod neighbours;
mod net;
mod offloads;
mod outside;
#[cfg(unix)]
mod outsiders;
mod overflow;
mod power;
mod qos;
mod race;
mod refuse;
mod reports;
mod requests;
mod stages;
mod threads;
mod traffic;

use std::net::IpAddr;
use std::time::Instant;

use crate::Host;
use crate::jitter;
use crate::log::breaches;
use crate::ndis::nic::{self, Nic};
use crate::ndis::oid;
use crate::ndis::vnic::{self, Vnic};
use crate::ndis::{config, device, driver as registration, eventually, nbl, switch, work};
use crate::netio;
use crate::ntos::{dispatcher, dpc, etw, event_log, lock, mdl, pcw, pool, registry};
use crate::schedule;
use crate::wsk;

type Scenario = fn(&dyn Host, &[String]);

/// By name.
pub const ALL: &[(&str, Scenario)] = &[
    ("load", life::load),
    ("start", life::start),
    ("requests", requests::requests),
    ("enable-late", requests::enable_late),
    ("bind-late", life::bind_late),
    ("bind-self", life::bind_self),
    ("bind-halt", life::bind_halt),
    ("disable", life::disable),
    ("unbind", life::unbind),
    ("halt-open", life::halt_open),
    ("surprise", ends_of_life::surprise),
    ("surprise-alone", ends_of_life::surprise_alone),
    ("disable-slow", ends_of_life::disable_slow),
    ("shutdown", ends_of_life::shutdown),
    ("neighbours", neighbours::neighbours),
    ("revisions", life::revisions),
    ("connects", ends::connects),
    ("pass-through", traffic::pass_through),
    ("traffic", traffic::traffic),
    ("traffic-smb", traffic::traffic_smb),
    ("traffic-v6", traffic::traffic_v6),
    ("lossy", traffic::lossy),
    ("subnets", traffic::subnets),
    ("paths", traffic::paths),
    ("counters", traffic::counters),
    ("performance", traffic::performance),
    ("own-address", frames::own_address),
    ("filters", beside::filters),
    ("host-traffic", beside::host_traffic),
    ("kept-frames", beside::kept_frames),
    ("late-nic", beside::late_nic),
    ("scaling", beside::scaling),
    ("share", beside::share),
    ("tags", frames::tags),
    ("vlan", frames::vlan),
    ("class", frames::class),
    ("qos", qos::qos),
    ("qos-malformed", qos::qos_malformed),
    ("unmapped", frames::unmapped),
    ("pieces", offloads::pieces),
    ("units", offloads::units),
    ("no-units", offloads::no_units),
    ("checksums", offloads::checksums),
    ("runts", reports::runts),
    ("one-nic", reports::one_nic),
    ("stuck-nic", reports::stuck_nic),
    ("shapes", reports::shapes),
    ("statuses", reports::statuses),
    ("floods", floods::floods),
    ("ends-at-once", floods::ends_at_once),
    ("refuses-frames", damaged::refuses_frames),
    ("loses-units", damaged::loses_units),
    ("cancel", frames::cancel),
    ("pending", life::pending),
    ("sleep-below", power::sleep_below),
    ("sleep", power::sleep),
    ("sleep-long", power::sleep_long),
    ("refused", refuse::refused),
    ("refused-pool", refuse::refused_pool),
    ("refused-cores", refuse::refused_cores),
    ("exhausted", refuse::exhausted),
    ("stages", stages::stages),
    ("control", control::control),
    ("control-connections", control::control_connections),
    ("problems", stages::problems),
    ("ends", ends::ends),
    ("processors", threads::processors),
    ("cores", cores::cores),
    ("cores-near", cores::cores_near),
    ("cores-start", cores::cores_start),
    ("dead-peers", threads::dead_peers),
    ("many-dead-peers", threads::many_dead_peers),
    ("rping-connect", outside::rping_connect),
    ("rping-serve", outside::rping_serve),
    ("flight", flight::flight),
    #[cfg(unix)]
    ("outsiders", outsiders::outsiders),
    #[cfg(unix)]
    ("outsiders-process", outsiders::outsiders_process),
    ("overflow", overflow::overflow),
    ("race", race::race),
];

/// With the odds behind it, the last argument of a story whose threads shall rest at random.
const JITTER: &str = "jitter=";
/// With the seed behind it, the same for a story whose threads shall be preempted.
const SEED: &str = "seed=";

/// Runs a story by its name, with its arguments, and ends the process with the verdict.
pub fn run(arguments: &[String], host: &dyn Host) -> ! {
    std::panic::set_hook(Box::new(|panic| {
        crate::log::verdict(format_args!("panic: {panic}"), false);
    }));
    let (name, arguments) = disturb(arguments).split_first().expect("the name of a scenario");
    let Some((_, scenario)) = ALL.iter().find(|(known, _)| known == name) else {
        crate::log::verdict(format_args!("no such scenario: {name}"), false);
    };
    let since = Instant::now();
    scenario(host, arguments);
    let sound = breaches() == 0;
    crate::log::verdict(
        format_args!(
            "{name}: {} breaches, {} frames, {} nestings of locks, {} ms",
            breaches(),
            switch::frames(),
            lock::nestings(),
            since.elapsed().as_millis()
        ),
        sound,
    )
}

/// Begins what the last argument asks for, and returns the others.
fn disturb(arguments: &[String]) -> &[String] {
    let Some((last, others)) = arguments.split_last() else { return arguments };
    if let Some(odds) = last.strip_prefix(JITTER) {
        jitter::set(odds.parse().expect("jitter=ODDS"));
    } else if let Some(seed) = last.strip_prefix(SEED) {
        schedule::start(seed.parse().expect("seed=SEED"));
        say!("preempted by {SEED}{seed}");
    } else {
        return arguments;
    }
    others
}

/// Whether `ndk-consumer` can call the image: elsewhere the tables that it knows have the calling
/// convention of the host, which is not the image's.
const IS_CONSUMER: bool = cfg!(windows);

fn address(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + number as u8])
}

fn address6(number: usize) -> IpAddr {
    IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, 1 + number as u16])
}

/// The keywords of a vNIC on this NIC, as the INF would write them, but for these.
fn keywords(nic: &Nic, others: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let jumbo = (nic.mtu + 14).to_string();
    let mut keywords = vec![
        ("*NetworkDirect", "1".into()),
        ("*NetworkDirectTechnology", "4".into()),
        ("*NetworkDirectRoCEFrameSize", "1024".into()),
        ("*JumboPacket", jumbo),
        ("CongestionControl", "1".into()),
        ("AckTimeout", "17".into()),
        ("RetryCount", "7".into()),
        ("RoCESegmentation", "1".into()),
        ("PollCores", "1".into()),
        ("RoCEPriority", "0".into()),
        ("RoCEDscp", "0".into()),
        ("*PriorityVLANTag", "3".into()),
        ("*QOS", "1".into()),
        ("LowerAdapter", nic.guid.clone()),
        ("LowerMode", "0".into()),
    ];
    keywords.retain(|(known, _)| others.iter().all(|(name, _)| name != known));
    keywords.extend(others.iter().map(|&(name, value)| (name, value.to_owned())));
    keywords
}

fn add(number: usize, nic: &Nic) -> &'static Vnic {
    add_with(number, nic, &[])
}

fn add_with(number: usize, nic: &Nic, others: &[(&'static str, &str)]) -> &'static Vnic {
    let vnic = Vnic::add(&keywords(nic, others), &[address(number), address6(number)]);
    let vnic = vnic.expect("the adapter starts");
    netio::announce(vnic);
    vnic
}

/// The adapter has its NIC, and frames may pass. Its link alone comes up before the offer of the NIC is
/// answered.
fn expect_ready(vnic: &Vnic, nic: &Nic) {
    expect_link(vnic, true);
    eventually("the NIC is bound", || nic.is_bound());
}

fn expect_link(vnic: &Vnic, up: bool) {
    let wanted = if up { 1 } else { 2 };
    eventually("the link state", || vnic.link.load(std::sync::atomic::Ordering::SeqCst) == wanted);
}

fn set_ndk(vnic: &Vnic, enable: bool) {
    let answer = oid::ask(vnic, oid::SET, oid::NDK_SET_STATE, &mut [u8::from(enable)], false);
    assert_eq!(answer.status, 0, "OID_NDK_SET_STATE");
}

/// Unloads, unplugs every NIC, and looks at what is left.
fn finish(host: &dyn Host) {
    if vnic::count() > 0 {
        vnic::halt_all();
    }
    host.unload();
    nic::remove_all();
    clean("after unload");
}

fn clean(when: &str) {
    eventually("the end of work items", || work::busy() == 0);
    eventually("the end of system threads", || dispatcher::running() == 0);
    let before = breaches();
    let (blocks, bytes) = pool::held();
    if blocks > 0 {
        breach!("{blocks} blocks of pool, {bytes} bytes, are held {when}");
    }
    pool::report_leaks();
    mdl::report_leaks();
    nbl::report_leaks();
    dispatcher::report_leaks();
    dpc::report_leaks();
    work::report_leaks();
    config::report_leaks();
    netio::report_leaks();
    wsk::report_leaks();
    registration::report_leaks();
    etw::report_leaks();
    pcw::report_leaks();
    registry::report_leaks();
    device::report_leaks();
    event_log::report_leaks();
    if breaches() == before {
        say!("nothing leaks {when}");
    }
}
