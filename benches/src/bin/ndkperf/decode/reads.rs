//! READs: their requests, the answers to each, and whether the answers to one agree.
//!
//! A READ that is sent again is executed again. Where its memory has changed since, because the requester went on or the
//! responder's consumer did, the second answer has other bytes than the first: it is *stale* or too new, and the requester
//! cannot tell. A READ that was answered in full may also come again when its key is gone: a responder that is strict refuses
//! it, and the connection is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rocev2::ids::Rkey;
use rocev2::wire::{Ext, Operation, Reth};

use super::findings::{Kind, Sink};
use super::packet::Packet;

/// A READ request.
#[derive(Debug)]
struct Read {
    span: i64,
    reth: Reth,
    frame: u64,
    at_ns: u64,
    times: u32,
    /// The frame in which it was last sent.
    again: u64,
    /// All positions before this one were answered.
    done: i64,
    /// The position at which the answer to the last request goes on, and the end of that answer.
    cursor: i64,
    until: i64,
}

/// The first answer to a position.
#[derive(Clone, Copy, Debug)]
struct Answer {
    digest: Option<u64>,
    len: u64,
    frame: u64,
}

/// A message that a responder executes behind READs.
#[derive(Clone, Copy, Debug)]
struct Executed {
    at: i64,
    reth: Option<Reth>,
    /// The key that it ends.
    invalidated: Option<Rkey>,
    frame: u64,
}

/// The READs of a direction, and their answers.
#[derive(Debug, Default)]
pub(super) struct Reads {
    all: BTreeMap<i64, Read>,
    /// Those that were not answered in full.
    incomplete: BTreeSet<i64>,
    /// Those whose last request was not: a requester that keeps no response behind a hole asks again.
    unfinished: BTreeSet<i64>,
    answers: BTreeMap<i64, Answer>,
    executed: VecDeque<Executed>,
    /// The memory of the message that is under way.
    writing: Option<Reth>,
    /// The hole in the answers that was last told.
    hole: Option<i64>,
    pub(super) response_packets: u64,
    pub(super) response_bytes: u64,
    pub(super) responses_again: u64,
    pub(super) unmatched: u64,
}

/// The news in a response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    /// The position that was left out: an implied NAK.
    pub(super) hole: Option<i64>,
    /// Since the request, if this is the first answer to one that was sent once.
    pub(super) latency_ns: Option<u64>,
    pub(super) is_again: bool,
}

impl Reads {
    /// Takes a READ request at a position; `mtu` is the payload of a full packet.
    pub(super) fn request(
        &mut self,
        at: i64,
        span: i64,
        mtu: u64,
        packet: &Packet,
        sink: &mut Sink<'_>,
    ) {
        let Some(reth) = packet.ext.and_then(|ext| ext.reth()) else { return };
        self.hole = None;
        let known = self.all.range_mut(..=at).next_back();
        if let Some((start, read)) = known.filter(|(start, read)| at < **start + read.span) {
            read.times += 1;
            read.again = packet.number;
            (read.cursor, read.until) = (at, (at + span).min(start + read.span));
            self.unfinished.insert(*start);
            let skipped = mtu.saturating_mul(at.abs_diff(*start));
            let same = read.reth.va.wrapping_add(skipped) == reth.va && read.reth.rkey == reth.rkey;
            if !same {
                let first = read.frame;
                sink.add(Kind::ReadChanged, packet.number, packet.at_ns, || {
                    format!(
                        "READ request of PSN {:#08x} asks for other memory than that of frame {first} \
                         with the same PSN",
                        packet.psn().get()
                    )
                });
            }
            return;
        }
        if self.all.len() >= READS_MAX
            && let Some((oldest, _)) = self.all.pop_first()
        {
            self.incomplete.remove(&oldest);
            self.unfinished.remove(&oldest);
        }
        let (frame, at_ns) = (packet.number, packet.at_ns);
        self.all.insert(
            at,
            Read {
                span,
                reth,
                frame,
                at_ns,
                times: 1,
                again: frame,
                done: at,
                cursor: at,
                until: at + span,
            },
        );
        self.incomplete.insert(at);
        self.unfinished.insert(at);
    }

    /// Takes a packet of a SEND, WRITE or atomic.
    pub(super) fn behind(&mut self, at: i64, packet: &Packet) {
        let Some(place) = packet.place() else { return };
        if place.is_first() {
            self.writing = packet.ext.and_then(|ext| ext.reth());
        }
        if !place.is_last() {
            return;
        }
        if self.executed.len() >= EXECUTED_MAX {
            self.executed.pop_front();
        }
        let invalidated = match packet.ext {
            Some(Ext::Ieth(rkey)) => Some(rkey),
            _ => None,
        };
        let (reth, frame) = (self.writing.take(), packet.number);
        self.executed.push_back(Executed { at, reth, invalidated, frame });
    }

    /// Tells of a READ that was answered in full before it came again, where that copy is refused.
    pub(super) fn refused(&self, at: i64, packet: &Packet, sink: &mut Sink<'_>) {
        let known = self.all.range(..=at).next_back();
        let known = known.filter(|(start, read)| at < **start + read.span);
        let Some((start, read)) = known.filter(|(_, read)| read.times > 1) else { return };
        if read.done < start + read.span {
            return;
        }
        let ends = |message: &&Executed| message.invalidated == Some(read.reth.rkey);
        let ended = self.executed.iter().find(ends).map_or_else(String::new, |message| {
            format!(" behind the message of frame {}, which invalidates its key", message.frame)
        });
        sink.add(Kind::StaleRead, packet.number, packet.at_ns, || {
            format!(
                "stale READ: the READ of frame {} was answered in full, and came again in frame {}{ended}: the \
                 responder refuses the copy, and with it the connection",
                read.frame, read.again,
            )
        });
    }

    /// Takes a response at a position; all before `una` was acknowledged.
    pub(super) fn response(
        &mut self,
        at: i64,
        una: i64,
        packet: &Packet,
        sink: &mut Sink<'_>,
    ) -> Answered {
        self.response_packets += 1;
        let known = self.all.range(..=at).next_back();
        let Some((&start, read)) = known.filter(|(start, read)| at < **start + read.span) else {
            self.unmatched += 1;
            return Answered::default();
        };
        let before = self.answers.get(&at).copied();
        if let Some(first) = before {
            self.responses_again += 1;
            compare(first, read, packet, sink);
        } else {
            self.response_bytes += packet.payload_len;
            if read.times > 1 {
                self.is_late(start, una, packet, sink);
            }
            self.remember(at, packet);
        }
        let read = self.all.get(&start);
        let first_of_all =
            read.is_some_and(|read| at == start && read.times == 1 && before.is_none());
        let since = read.map_or(0, |read| read.at_ns);
        let latency_ns = first_of_all.then(|| packet.at_ns.saturating_sub(since));
        Answered { hole: self.hole_before(start, at), latency_ns, is_again: before.is_some() }
    }

    /// The position that an ACK of a later request leaves out.
    pub(super) fn acknowledged(&mut self, at: i64) -> Option<i64> {
        let start = *self.unfinished.first()?;
        let read = self.all.get(&start)?;
        let hole = read.cursor;
        (start + read.span <= at && self.hole.replace(hole) != Some(hole)).then_some(hole)
    }

    /// The oldest READ that is not answered: its position, how often it was sent, and its last frame.
    pub(super) fn oldest_incomplete(&self) -> Option<(i64, u32, u64)> {
        let start = self.incomplete.first()?;
        self.all.get(start).map(|read| (read.done, read.times, read.again))
    }

    pub(super) fn incomplete(&self) -> usize {
        self.incomplete.len()
    }

    fn remember(&mut self, at: i64, packet: &Packet) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.pop_first();
        }
        let Packet { digest, payload_len, number, .. } = *packet;
        self.answers.insert(at, Answer { digest, len: payload_len, frame: number });
    }

    /// Advances the READ at `start` by its answer at `at`, and tells what was left out before.
    fn hole_before(&mut self, start: i64, at: i64) -> Option<i64> {
        let read = self.all.get_mut(&start)?;
        while read.done < start + read.span && self.answers.contains_key(&read.done) {
            read.done += 1;
        }
        if read.done >= start + read.span {
            self.incomplete.remove(&start);
        }
        if at == read.cursor {
            read.cursor += 1;
        }
        if read.cursor >= read.until {
            read.cursor = read.cursor.max(read.done);
        }
        let mut hole = (at >= read.cursor).then_some(read.cursor);
        if read.cursor >= start + read.span {
            self.unfinished.remove(&start);
        }
        let earlier = self.unfinished.first().filter(|first| **first < start);
        if let Some(earlier) = earlier.and_then(|earlier| self.all.get(earlier)) {
            hole = Some(earlier.cursor);
        }
        hole.filter(|hole| self.hole.replace(*hole) != Some(*hole))
    }

    /// Tells of the first answer to a READ that comes after a message behind the READ was executed.
    fn is_late(&self, start: i64, una: i64, packet: &Packet, sink: &mut Sink<'_>) {
        let Some(read) = self.all.get(&start) else { return };
        let behind = self
            .executed
            .iter()
            .find(|message| message.at >= start + read.span && message.at < una);
        let Some(message) = behind else { return };
        let overlaps = message.reth.is_some_and(|reth| overlap(&reth, &read.reth));
        sink.add(Kind::LateRead, packet.number, packet.at_ns, || {
            format!(
                "READ of frame {} was sent again in frame {} and first answered after the message of frame {} \
                 behind it was executed{}: its data may be newer than the order of requests allows",
                read.frame,
                read.again,
                message.frame,
                if overlaps { ", which wrote to the same bytes" } else { "" },
            )
        });
    }
}

/// Compares an answer with the first one to the same position.
fn compare(first: Answer, read: &Read, packet: &Packet, sink: &mut Sink<'_>) {
    let differs = match (first.digest, packet.digest) {
        (Some(first), Some(second)) => first != second,
        _ => false,
    };
    if !differs && first.len == packet.payload_len {
        return;
    }
    sink.add(Kind::StaleRead, packet.number, packet.at_ns, || {
        format!(
            "stale READ: the READ of frame {} was sent again in frame {} and answered with different data: the {} \
             bytes of PSN {:#08x} differ from those of frame {}",
            read.frame,
            read.again,
            packet.payload_len,
            packet.psn().get(),
            first.frame,
        )
    });
}

fn overlap(one: &Reth, other: &Reth) -> bool {
    let end = |reth: &Reth| reth.va.saturating_add(reth.len.into());
    one.va < end(other) && other.va < end(one)
}

/// Whether the operation changes what a READ may see.
pub(super) fn changes_memory(operation: Operation) -> bool {
    match operation {
        Operation::Send | Operation::Write | Operation::CompareSwap => true,
        Operation::FetchAdd | Operation::AtomicWrite => true,
        Operation::ReadRequest | Operation::ReadResponse | Operation::Acknowledge => false,
        Operation::AtomicAcknowledge | Operation::Flush => false,
        Operation::Cnp | Operation::GapReport => false,
    }
}

/// READs that are remembered.
const READS_MAX: usize = 1 << 10;
/// Packets of answers that are remembered.
const ANSWERS_MAX: usize = 1 << 16;
/// Messages that are remembered.
const EXECUTED_MAX: usize = 256;
