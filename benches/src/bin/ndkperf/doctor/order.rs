//! Loss and reordering: a train of pings, and the order of the RoCE packets that were seen.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use ndk_consumer::Host;
use netadapter_glue::neighbour::ask::{Heard, Question};

use super::Path;
use super::findings::Code;
use super::report::Report;
use super::station::{Signs, Station};
use super::tap::Trace;
use crate::decode;
use crate::failure::Failure;

/// The fates of the pings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Pings {
    sent: u32,
    lost: u32,
    /// Replies behind those to later pings.
    late: u32,
}

/// Sends pings in short trains, as many as a small stack can hold.
pub(super) fn ping(
    station: &mut Station,
    path: &Path,
    mac: [u8; 6],
    signs: Signs,
    report: &mut Report,
) -> Result<Pings, Failure> {
    report.begin("pings");
    let Path { own_ip, peer, vlan, .. } = *path;
    if !signs.by_ping {
        report.skip(format!("{peer} answers no pings, which many hosts do not"));
        return Ok(Pings::default());
    }
    let mut series = Series::default();
    let mut sent = 0;
    for train in 0..TRAINS {
        let train = train * TRAIN..(train + 1) * TRAIN;
        series.missing.extend(train.clone());
        let pings =
            train.clone().map(|seq| Question::Ping { own_ip, ip: peer, mac, id: SERIES, seq });
        station.ask(pings.map(|ping| (ping, vlan)))?;
        station.listen(TRAIN_LIMIT, |news| series.take(news, peer) && series.open(&train) == 0)?;
        // A peer that has answered none of them is busy, and one train more may be more than its stack holds.
        if series.open(&train) == usize::from(TRAIN) {
            station.listen(BUSY_LIMIT, |news| series.take(news, peer))?;
        }
        if series.open(&train) == usize::from(TRAIN) {
            // It is gone, which is no loss; the steps behind this one name it.
            series.missing.retain(|seq| !train.contains(seq));
            break;
        }
        sent += u32::from(TRAIN);
    }
    if !series.missing.is_empty() {
        station.listen(STRAGGLERS, |news| series.take(news, peer) && series.missing.is_empty())?;
    }
    let (lost, late) = (series.missing.len() as u32, series.late());
    report.tell(format!("{} of {sent} came back, {late} of them behind later ones", sent - lost));
    Ok(Pings { sent, lost, late })
}

/// The pings without a reply, and the order of the replies.
#[derive(Default)]
struct Series {
    missing: BTreeSet<u16>,
    order: Vec<u16>,
}

impl Series {
    /// Takes a reply; whether it was one that is waited for.
    fn take(&mut self, news: &Heard, peer: IpAddr) -> bool {
        let Heard::Pong { from, id: SERIES, seq } = news else { return false };
        let is_new = *from == peer && self.missing.remove(seq);
        if is_new {
            self.order.push(*seq);
        }
        is_new
    }

    /// Pings of a train that are open.
    fn open(&self, train: &Range<u16>) -> usize {
        self.missing.range(train.clone()).count()
    }

    /// Replies behind those to later pings.
    fn late(&self) -> u32 {
        let mut newest = 0;
        let late = self.order.iter().filter(|seq| {
            newest = newest.max(**seq);
            **seq < newest
        });
        late.count() as u32
    }
}

/// Names loss and reordering, by the pings and by the packets since frame `from`.
pub(super) fn judge(
    host: &Host,
    trace: &Trace,
    path: &Path,
    from: usize,
    pings: Pings,
    report: &mut Report,
) {
    report.begin("order");
    let facts = trace.since(from, |frames| decode::examine(path.own_ip, frames));
    let counters = host.provider().counters();
    let count = |wanted: &str| {
        counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, count)| count)
    };
    // A capture knows no reasons: what it takes for a hole counts where the transport has acted on one, too.
    let acted = count("packet_seq_err") + count("implied_nak_seq_err");
    let holes = if acted > 0 { facts.holes } else { 0 } + facts.missing;
    let Pings { sent, lost, late } = pings;
    let (late, is_reordered) = (u64::from(late) + facts.late, late > 0 || facts.late > 0);
    if is_reordered {
        let text = format!(
            "packets overtake each other: {late} came behind later ones, {} of them replies to {sent} pings",
            pings.late
        );
        report.find(Code::Reordering, text);
    }
    let (units, whole) = (count("units_sent"), count("units_lost"));
    if whole >= UNITS_MIN {
        let text = format!(
            "of {units} units of several packets, which the kernel or the NIC is to divide, at least {whole} were lost whole, \
             and the same packets passed singly: {lost} of {sent} pings are lost"
        );
        report.find(Code::UnitsLost, text);
    }
    if lost > 0 || holes > 0 && !is_reordered && whole < UNITS_MIN {
        let text = format!(
            "packets are lost, there or back: {lost} of {sent} pings, and {holes} RoCE packets were missing"
        );
        report.find(Code::Loss, text);
    }
    let timeouts = facts.timeouts;
    report.tell(match (holes, facts.packets) {
        (_, 0) => "no RoCE packets to judge".into(),
        (0, packets) => format!("{packets} RoCE packets came, and none was missing"),
        (holes, packets) => {
            format!("{packets} RoCE packets came; {holes} were missing, there or back")
        }
    });
    if timeouts > 0 {
        report.tell(format!("{timeouts} RoCE packets were sent again after silence"));
    }
    let decoded = facts.errors.into_iter().take(ERRORS_MAX);
    decoded.for_each(|error| report.tell(format!("decode: {error}")));
}

/// The series of the train's pings.
const SERIES: u16 = 0xd0c2;
/// Pings that are on their way at a time, and how often.
const TRAIN: u16 = 8;
const TRAINS: u16 = 32;
const TRAIN_LIMIT: Duration = Duration::from_millis(60);
const BUSY_LIMIT: Duration = Duration::from_secs(1);
/// Replies that are so late are lost.
const STRAGGLERS: Duration = Duration::from_secs(1);
/// Units that are lost whole, from which on it is no chance.
const UNITS_MIN: u64 = 2;
/// Errors of the transport that are told.
const ERRORS_MAX: usize = 4;
