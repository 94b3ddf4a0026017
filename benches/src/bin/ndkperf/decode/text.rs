//! A report for people.

use std::io::{self, Write};

use hdrhistogram::Histogram;
use rocev2::wire::DropReason;

use super::Decode;
use super::analysis::Report;
use super::connection::{CmKind, Connection, reason_text};
use super::conversation::{Conversation, End, Evidence};
use super::direction::Direction;
use super::findings::Finding;
use super::packet::{Transport, opcode_name};

/// Writes the report.
///
/// # Errors
/// The operating system's.
pub(super) fn write(out: &mut impl Write, args: &Decode, report: &Report) -> io::Result<()> {
    totals(out, args, report)?;
    findings(out, args, report)?;
    for (number, conversation) in (1..).zip(&report.conversations.all) {
        if args.shows(conversation) {
            writeln!(out)?;
            write_conversation(out, report, number, conversation)?;
        }
    }
    let lone = (0..).zip(&report.survey.connections.all);
    let lone: Vec<&Connection> = lone
        .filter(|(index, _)| report.conversations.of_connection(*index).is_none())
        .map(|(_, connection)| connection)
        .collect();
    if args.qp.is_none() && !lone.is_empty() {
        writeln!(out, "\nConnections without data")?;
        for connection in lone {
            write_connection(out, connection)?;
        }
    }
    Ok(())
}

fn totals(out: &mut impl Write, args: &Decode, report: &Report) -> io::Result<()> {
    let totals = &report.survey.totals;
    let malformed: u64 = totals.malformed.values().sum();
    writeln!(
        out,
        "{}: {} frames in {:.6} s: {} RoCEv2, {} other; {malformed} malformed, {} with a wrong ICRC",
        args.file.display(),
        totals.frames,
        totals.duration_ns as f64 / 1e9,
        totals.roce,
        totals.other,
        totals.icrc,
    )?;
    for (reason, count) in &totals.malformed {
        writeln!(out, "  {count} malformed: {}", DropReason::ALL[*reason])?;
    }
    if totals.cut > 0 {
        writeln!(
            out,
            "  {} were not captured to their end, so that nobody knows their ICRC",
            totals.cut
        )?;
    }
    if totals.not_followed > 0 {
        writeln!(out, "  {} are of more queue pairs than are followed", totals.not_followed)?;
    }
    if let Some(error) = &report.error {
        writeln!(out, "  the rest cannot be read: {error}")?;
    }
    Ok(())
}

fn findings(out: &mut impl Write, args: &Decode, report: &Report) -> io::Result<()> {
    let shown: Vec<&Finding> = shown(args, report).collect();
    if shown.is_empty() {
        return writeln!(out, "no findings");
    }
    writeln!(out, "\nFindings")?;
    for finding in shown {
        let severity = finding.kind.severity().name();
        let place =
            finding.conversation.map_or_else(String::new, |index| format!(" #{}", index + 1));
        let (frame, ms) = (finding.frame, finding.at_ns as f64 / 1e6);
        write!(out, "  {severity:<7}{place} frame {frame}, {ms:.3} ms: {}", finding.text)?;
        match finding.more {
            0 => writeln!(out)?,
            more => writeln!(out, " (and {more} more)")?,
        }
    }
    Ok(())
}

/// The findings about conversations that are shown.
pub(super) fn shown<'a>(args: &'a Decode, report: &'a Report) -> impl Iterator<Item = &'a Finding> {
    report.findings.iter().filter(|finding| {
        let conversation =
            finding.conversation.and_then(|index| report.conversations.all.get(index));
        args.qp.is_none() || conversation.is_some_and(|conversation| args.shows(conversation))
    })
}

fn write_conversation(
    out: &mut impl Write,
    report: &Report,
    number: usize,
    conversation: &Conversation,
) -> io::Result<()> {
    let [one, other] = conversation.ends.map(end);
    let transport = transport_name(conversation.transport);
    let mtu = conversation.path_mtu.map_or_else(String::new, |mtu| format!(", path MTU {mtu}"));
    let evidence = match conversation.evidence {
        Evidence::Connection(_) => "",
        Evidence::Inference => "; paired by PSNs and ports",
        Evidence::Datagram => "",
        Evidence::None => "; the other direction was not captured",
    };
    let packets = conversation.packets;
    writeln!(out, "#{number} {one} <-> {other}: {transport}{mtu}, {packets} packets{evidence}")?;
    if let Evidence::Connection(index) = conversation.evidence
        && let Some(connection) = report.survey.connections.all.get(index)
    {
        write_connection(out, connection)?;
    }
    for (sender, direction) in conversation.directions.iter().enumerate() {
        let (from, to) = (conversation.ends[sender].address, conversation.ends[1 - sender].address);
        if !direction.counts.packets.is_empty() || direction.counts.request_packets > 0 {
            writeln!(out, "  {from} -> {to}")?;
            write_direction(out, direction)?;
        }
    }
    Ok(())
}

fn end(end: End) -> String {
    match end.qpn {
        Some(qpn) => format!("{} QP {qpn:#x}", end.address),
        None => format!("{} QP unknown", end.address),
    }
}

pub(super) const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Rc => "RC",
        Transport::Uc => "UC",
        Transport::Ud => "UD",
        Transport::Other => "unknown transport",
    }
}

fn write_connection(out: &mut impl Write, connection: &Connection) -> io::Result<()> {
    let mut last_ns = None;
    for event in &connection.events {
        let end = connection.ends[event.sender];
        let since = last_ns.replace(event.at_ns);
        let since = since.map_or_else(String::new, |last| {
            format!(", {:.3} ms later", event.at_ns.saturating_sub(last) as f64 / 1e6)
        });
        write!(
            out,
            "  {} of {} in frame {} at {:.3} ms{since}",
            event.kind.name(),
            end.address,
            event.frame,
            event.at_ns as f64 / 1e6
        )?;
        if let CmKind::Rej(reason) = event.kind {
            write!(out, ": {}", reason_text(reason))?;
        }
        if matches!(event.kind, CmKind::Req | CmKind::Rep) {
            if let Some(id) = end.comm_id {
                write!(out, ", comm ID {:#010x}", id.get())?;
            }
            if let Some(qpn) = end.qpn {
                write!(out, ", QP {qpn:#x}")?;
            }
            // A message says where its receiver starts to send.
            if let Some(psn) = connection.ends[1 - event.sender].starting_psn {
                write!(out, ", the other side starts at PSN {:#08x}", psn.get())?;
            }
        }
        if event.kind == CmKind::Req
            && let Some(port) = connection.port
        {
            write!(out, ", port {port}")?;
        }
        writeln!(out, "{}", if event.is_again { ", again" } else { "" })?;
    }
    match connection.events_left_out {
        0 => Ok(()),
        more => writeln!(out, "  {more} more messages"),
    }
}

fn write_direction(out: &mut impl Write, direction: &Direction) -> io::Result<()> {
    let counts = &direction.counts;
    let packets = counts.packets.iter();
    let packets: Vec<String> =
        packets.map(|(opcode, count)| format!("{count} {}", opcode_name(*opcode))).collect();
    writeln!(out, "    packets: {}", packets.join(", "))?;
    for (name, done) in &counts.operations {
        let (messages, bytes, packets) = (done.messages, done.bytes, done.packets);
        writeln!(
            out,
            "    {name}: {messages} messages, {bytes} bytes, {packets} packets without those sent again"
        )?;
    }
    write_order(out, direction)?;
    write_answers(out, direction)?;
    for (count, words) in [
        (counts.bad, "dropped by a receiver"),
        (counts.marked, "with a mark of congestion (ECN CE)"),
        (counts.cnps, "CNPs"),
    ] {
        if count > 0 {
            writeln!(out, "    {count} {words}")?;
        }
    }
    Ok(())
}

/// The order in which its requests came.
fn write_order(out: &mut impl Write, direction: &Direction) -> io::Result<()> {
    let (counts, gaps) = (&direction.counts, &direction.gaps);
    let Some((first, last)) = direction.psns() else { return Ok(()) };
    write!(
        out,
        "    PSN {:#08x} to {:#08x}: {} in order, {} out of order, {} duplicates",
        first.get(),
        last.get(),
        counts.in_order,
        counts.out_of_order,
        counts.duplicates
    )?;
    for (count, words) in [(counts.probes, "probes"), (counts.out_of_window, "out of the window")] {
        if count > 0 {
            write!(out, ", {count} {words}")?;
        }
    }
    writeln!(out)?;
    let again: Vec<String> = direction
        .causes
        .counts()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| format!("{count} {}", cause.words()))
        .collect();
    if !again.is_empty() {
        writeln!(out, "    {} sent again: {}", direction.causes.total(), again.join(", "))?;
    }
    if let Some((least, most)) = direction.causes.silence_ns {
        writeln!(out, "    silence before timeouts: {} to {} us", least / 1000, most / 1000)?;
    }
    if gaps.count > 0 {
        let (count, missing, longest) = (gaps.count, gaps.missing, gaps.longest_ns / 1000);
        writeln!(
            out,
            "    {count} gaps, {missing} PSNs missing, up to {longest} us until they came"
        )?;
    }
    for gap in gaps.filled.iter().take(GAPS_SHOWN) {
        let lasted = gap.lasted_ns / 1000;
        writeln!(out, "      {} missing for {lasted} us", range(direction, gap.start, gap.end))?;
    }
    if gaps.filled.len() > GAPS_SHOWN {
        writeln!(out, "      and {} more", gaps.filled.len() - GAPS_SHOWN)?;
    }
    for (start, end, _) in gaps.still_open().take(GAPS_SHOWN) {
        writeln!(out, "      {} never came", range(direction, start, end))?;
    }
    Ok(())
}

/// PSNs from one position to the one before another.
fn range(direction: &Direction, start: i64, end: i64) -> String {
    let (first, last) = (direction.psn_at(start).get(), direction.psn_at(end - 1).get());
    if end - start <= 1 {
        format!("PSN {first:#08x}")
    } else {
        format!("PSN {first:#08x} to {last:#08x}")
    }
}

/// The other side's responses.
fn write_answers(out: &mut impl Write, direction: &Direction) -> io::Result<()> {
    let (counts, reads) = (&direction.counts, &direction.reads);
    let mut answers = Vec::new();
    if counts.acks > 0 {
        answers.push(format!("{} ACKs", counts.acks));
    }
    if reads.response_packets > 0 {
        let (packets, bytes, again) =
            (reads.response_packets, reads.response_bytes, reads.responses_again);
        answers.push(format!("{packets} READ responses with {bytes} bytes, {again} of them again"));
    }
    answers.extend(counts.naks.iter().map(|(name, count)| format!("{count} NAKs ({name})")));
    for (count, words) in [
        (counts.gap_reports, "gap reports"),
        (counts.acks_unseen, "ACKs of PSNs that were not seen"),
        (reads.unmatched, "responses to requests that were not seen"),
    ] {
        if count > 0 {
            answers.push(format!("{count} {words}"));
        }
    }
    if !answers.is_empty() {
        writeln!(out, "    answered by {}", answers.join(", "))?;
    }
    for nak in direction.naks.iter().take(GAPS_SHOWN) {
        let timer = nak.timer_us.map_or_else(String::new, |us| format!(", wait {us} us"));
        let (name, psn, ms) = (nak.name, nak.psn.get(), nak.at_ns as f64 / 1e6);
        writeln!(out, "      NAK {name}{timer}: PSN {psn:#08x}, frame {}, {ms:.3} ms", nak.frame)?;
    }
    if direction.naks.len() > GAPS_SHOWN {
        writeln!(out, "      and {} more", direction.naks.len() - GAPS_SHOWN)?;
    }
    for (name, histogram) in
        [("ACK latency", &direction.ack_latency_ns), ("READ latency", &direction.read_latency_ns)]
    {
        if let Some(latency) = histogram {
            let [min, median, max] = latencies_us(latency);
            writeln!(out, "    {name}: min {min:.1}, median {median:.1}, max {max:.1} us")?;
        }
    }
    Ok(())
}

/// Minimum, median and maximum.
pub(super) fn latencies_us(latency_ns: &Histogram<u64>) -> [f64; 3] {
    [latency_ns.min(), latency_ns.value_at_quantile(0.5), latency_ns.max()]
        .map(|ns| ns as f64 / 1e3)
}

/// Lines of one kind.
const GAPS_SHOWN: usize = 5;
