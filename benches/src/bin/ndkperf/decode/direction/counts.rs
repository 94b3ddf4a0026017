//! Counts of a direction, and the names of what is counted.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rocev2::psn::Psn;
use rocev2::wire::{NakCode, Operation, Syndrome};

/// Counts of a direction.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Counts {
    /// By operation: messages, bytes and packets, each once.
    pub(in super::super) operations: BTreeMap<&'static str, Done>,
    /// Packets by opcode, all of them, responses to the other side too.
    pub(in super::super) packets: BTreeMap<u8, u64>,
    pub(in super::super) request_packets: u64,
    pub(in super::super) in_order: u64,
    pub(in super::super) out_of_order: u64,
    pub(in super::super) duplicates: u64,
    pub(in super::super) probes: u64,
    pub(in super::super) out_of_window: u64,
    pub(in super::super) acks: u64,
    pub(in super::super) acks_unseen: u64,
    pub(in super::super) naks: BTreeMap<&'static str, u64>,
    pub(in super::super) gap_reports: u64,
    pub(in super::super) bad: u64,
    pub(in super::super) marked: u64,
    /// Packets that may be marked, or are.
    pub(in super::super) markable: u64,
    pub(in super::super) cnps: u64,
}

/// Messages of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Done {
    pub(in super::super) messages: u64,
    pub(in super::super) packets: u64,
    /// Of a READ those that it asked for.
    pub(in super::super) bytes: u64,
}

/// A NAK.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Nak {
    pub(in super::super) name: &'static str,
    pub(in super::super) psn: Psn,
    pub(in super::super) frame: u64,
    pub(in super::super) at_ns: u64,
    pub(in super::super) timer_us: Option<u64>,
}

/// Adds a latency to those that were measured.
pub(super) fn record(histogram: &mut Option<Histogram<u64>>, latency_ns: u64) {
    if histogram.is_none() {
        *histogram = Histogram::new(2).ok();
    }
    if let Some(histogram) = histogram {
        // It grows as it has to, and a time that it cannot hold is none that anybody waited.
        let _ = histogram.record(latency_ns.max(1));
    }
}

/// The name of an operation of a requester.
pub(super) const fn operation_name(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::ReadRequest => "READ",
        Operation::CompareSwap => "COMPARE SWAP",
        Operation::FetchAdd => "FETCH ADD",
        Operation::Flush => "FLUSH",
        Operation::AtomicWrite => "ATOMIC WRITE",
        Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge => {
            return None;
        }
        Operation::Cnp | Operation::GapReport => return None,
    })
}

/// The name of a refusal.
pub(in super::super) const fn nak_name(syndrome: Syndrome) -> Option<&'static str> {
    Some(match syndrome {
        Syndrome::Ack { .. } | Syndrome::Reserved(_) => return None,
        Syndrome::RnrNak(_) => "RNR",
        Syndrome::Nak(NakCode::PsnSequence) => "PSN sequence error",
        Syndrome::Nak(NakCode::InvalidRequest) => "invalid request",
        Syndrome::Nak(NakCode::RemoteAccess) => "remote access error",
        Syndrome::Nak(NakCode::RemoteOperational) => "remote operational error",
        Syndrome::Nak(NakCode::InvalidRd) => "invalid RD request",
    })
}
