//! A report for programs.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rocev2::wire::DropReason;
use serde_json::{Value, json};

use super::Decode;
use super::analysis::Report;
use super::connection::{CmKind, Connection, reason_text};
use super::conversation::{Conversation, Evidence};
use super::direction::Direction;
use super::packet::opcode_name;
use super::text::{latencies_us, shown, transport_name};

/// The document's form. It grows when a field goes or changes its meaning, not when one is added.
const SCHEMA_VERSION: u32 = 1;

/// One document.
pub(super) fn document(args: &Decode, report: &Report) -> Value {
    let totals = &report.survey.totals;
    let malformed: BTreeMap<String, u64> = totals
        .malformed
        .iter()
        .map(|(reason, count)| (format!("{:?}", DropReason::ALL[*reason]), *count))
        .collect();
    let findings: Vec<Value> = shown(args, report)
        .map(|finding| {
            json!({
                "severity": finding.kind.severity().name(),
                "kind": finding.kind.name(),
                "conversation": finding.conversation.map(|index| index + 1),
                "frame": finding.frame,
                "at_us": us(finding.at_ns),
                "text": finding.text,
                "more": finding.more,
            })
        })
        .collect();
    let conversations: Vec<Value> = (1..)
        .zip(&report.conversations.all)
        .filter(|(_, conversation)| args.shows(conversation))
        .map(|(number, conversation)| entry(number, conversation))
        .collect();
    let connections: Vec<Value> = (0..)
        .zip(&report.survey.connections.all)
        .map(|(index, connection)| (report.conversations.of_connection(index), connection))
        .filter(|(of, _)| {
            let conversation = of.and_then(|index| report.conversations.all.get(index));
            args.qp.is_none() || conversation.is_some_and(|conversation| args.shows(conversation))
        })
        .map(|(of, connection)| connection_entry(of, connection))
        .collect();
    json!({
        "schema": "ndkperf-decode",
        "schema_version": SCHEMA_VERSION,
        "version": env!("CARGO_PKG_VERSION"),
        "file": args.file.display().to_string(),
        "start_ns": report.start_ns,
        "duration_us": us(totals.duration_ns),
        "error": report.error,
        "frames": totals.frames,
        "roce": totals.roce,
        "other": totals.other,
        "cut": totals.cut,
        "wrong_icrc": totals.icrc,
        "malformed": malformed,
        "not_followed": totals.not_followed,
        "opcodes": opcodes(&totals.opcodes),
        "cm_messages": report.survey.connections.messages,
        "cm_malformed": report.survey.connections.malformed,
        "findings": findings,
        "connections": connections,
        "conversations": conversations,
    })
}

fn opcodes(packets: &BTreeMap<u8, u64>) -> Vec<Value> {
    packets
        .iter()
        .map(|(opcode, packets)| {
            json!({ "opcode": opcode, "name": opcode_name(*opcode), "packets": packets })
        })
        .collect()
}

fn entry(number: usize, conversation: &Conversation) -> Value {
    let ends = conversation.ends.map(|end| json!({ "address": end.address, "qpn": end.qpn }));
    let paired_by = match conversation.evidence {
        Evidence::Connection(_) => Value::from("connection_management"),
        Evidence::Inference => Value::from("inference"),
        Evidence::Datagram => Value::from("datagram"),
        Evidence::None => Value::Null,
    };
    json!({
        "number": number,
        "ends": ends,
        "transport": transport_name(conversation.transport),
        "path_mtu": conversation.path_mtu,
        "paired_by": paired_by,
        "from_frame": conversation.from_frame,
        "packets": conversation.packets,
        // The first one is of the requests of the first end, with the responses to them.
        "directions": [direction(&conversation.directions[0]), direction(&conversation.directions[1])],
    })
}

fn connection_entry(conversation: Option<usize>, connection: &Connection) -> Value {
    let ends = connection.ends.map(|end| {
        json!({
            "address": end.address,
            "comm_id": end.comm_id.map(|id| id.get()),
            "qpn": end.qpn,
            "starting_psn": end.starting_psn.map(|psn| psn.get()),
        })
    });
    let events: Vec<Value> = connection
        .events
        .iter()
        .map(|event| {
            let (reason, reason_text) = match event.kind {
                CmKind::Rej(reason) => (Some(reason.0), Some(reason_text(reason))),
                _ => (None, None),
            };
            json!({
                "frame": event.frame,
                "at_us": us(event.at_ns),
                "sender": event.sender,
                "message": event.kind.name(),
                "again": event.is_again,
                "reason": reason,
                "reason_text": reason_text,
            })
        })
        .collect();
    json!({
        "conversation": conversation.map(|index| index + 1),
        "rc": connection.is_rc,
        "port": connection.port,
        "path_mtu": connection.path_mtu,
        "ends": ends,
        "events": events,
        "events_left_out": connection.events_left_out,
    })
}

fn direction(direction: &Direction) -> Value {
    let (counts, reads) = (&direction.counts, &direction.reads);
    let operations: BTreeMap<&str, Value> = counts
        .operations
        .iter()
        .map(|(name, done)| {
            let (messages, packets, bytes) = (done.messages, done.packets, done.bytes);
            (*name, json!({ "messages": messages, "packets": packets, "bytes": bytes }))
        })
        .collect();
    let sent_again: BTreeMap<&str, u64> =
        direction.causes.counts().map(|(cause, count)| (cause.name(), count)).collect();
    let silence = direction.causes.silence_ns;
    json!({
        "packets": opcodes(&counts.packets),
        "operations": operations,
        "first_psn": direction.psns().map(|(first, _)| first.get()),
        "last_psn": direction.psns().map(|(_, last)| last.get()),
        "request_packets": counts.request_packets,
        "in_order": counts.in_order,
        "out_of_order": counts.out_of_order,
        "duplicates": counts.duplicates,
        "probes": counts.probes,
        "out_of_window": counts.out_of_window,
        "sent_again": sent_again,
        "timeout_silence_us": silence.map(|(least, most)| json!({ "min": us(least), "max": us(most) })),
        "gaps": gaps(direction),
        "acks": counts.acks,
        "acks_of_unseen": counts.acks_unseen,
        "read_responses": {
            "packets": reads.response_packets,
            "bytes": reads.response_bytes,
            "again": reads.responses_again,
            "unmatched": reads.unmatched,
        },
        "naks": counts.naks,
        "nak_list": naks(direction),
        "gap_reports": counts.gap_reports,
        "dropped": counts.bad,
        "ce_marks": counts.marked,
        "ect": counts.markable,
        "cnps": counts.cnps,
        "ack_latency_us": latency(direction.ack_latency_ns.as_ref()),
        "read_latency_us": latency(direction.read_latency_ns.as_ref()),
    })
}

fn gaps(direction: &Direction) -> Value {
    let gaps = &direction.gaps;
    let psn = |at| direction.psn_at(at).get();
    let filled: Vec<Value> = gaps
        .filled
        .iter()
        .map(|gap| {
            json!({
                "first_psn": psn(gap.start),
                "last_psn": psn(gap.end - 1),
                "lasted_us": us(gap.lasted_ns),
            })
        })
        .collect();
    let open: Vec<Value> = gaps
        .still_open()
        .map(|(start, end, since_ns)| {
            json!({ "first_psn": psn(start), "last_psn": psn(end - 1), "since_us": us(since_ns) })
        })
        .collect();
    json!({
        "count": gaps.count,
        "missing_psns": gaps.missing,
        "longest_us": us(gaps.longest_ns),
        "filled": filled,
        "open": open,
    })
}

fn naks(direction: &Direction) -> Vec<Value> {
    direction
        .naks
        .iter()
        .map(|nak| {
            json!({
                "name": nak.name,
                "psn": nak.psn.get(),
                "frame": nak.frame,
                "at_us": us(nak.at_ns),
                "rnr_timer_us": nak.timer_us,
            })
        })
        .collect()
}

fn latency(histogram: Option<&Histogram<u64>>) -> Value {
    let Some(histogram) = histogram else { return Value::Null };
    let [min, median, max] = latencies_us(histogram);
    json!({ "count": histogram.len(), "min": min, "median": median, "max": max })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
