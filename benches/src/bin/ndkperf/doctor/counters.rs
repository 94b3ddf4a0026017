//! The counters of our adapter.

use ndk_consumer::Host;

use super::findings::Code;
use super::report::Report;

/// Tells what our adapter has counted, and names damage.
pub(super) fn examine(host: &Host, report: &mut Report) {
    report.begin("counters");
    let counters: Vec<(&'static str, u64)> =
        host.provider().counters().iter().filter(|(_, count)| *count > 0).collect();
    let count = |wanted: &str| {
        counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, count)| *count)
    };
    let (sent, received) = (count("sent_pkts"), count("rcvd_pkts"));
    let resent: u64 = RESENT.iter().map(|name| count(name)).sum();
    report.tell(format!("{sent} packets sent, {resent} of them again; {received} received"));
    let damaged: u64 = DAMAGED.iter().map(|name| count(name)).sum();
    if damaged > 0 {
        let text = format!("{damaged} packets came damaged: checksum or ICRC was wrong");
        report.find(Code::Damage, text);
    }
    report.count(counters);
}

const RESENT: [&str; 4] =
    ["resent_timer_pkts", "resent_nak_pkts", "resent_implied_nak_pkts", "resent_rnr_pkts"];
const DAMAGED: [&str; 3] = ["rx_icrc_encapsulated", "drop_udp_checksum", "drop_ip_header"];
