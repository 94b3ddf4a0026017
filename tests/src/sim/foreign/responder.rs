//! A foreign responder: it keeps nothing that comes early, complains once of a gap, and answers
//! duplicates as its quirks have it (IBTA ch. 9, Responder Side).

use super::keys::Piece;
use super::qp::Context;
use super::requester::read_reth;
use super::wire::{Packet, place, psn};
use crate::sim::Deed;
use crate::sim::packet::{Seen, number, opcode};
use driver::abi::*;
use std::collections::VecDeque;

/// Why a connection ends with a duplicate.
pub(super) const STRICT: &str = "a duplicate READ of a key that has ended";

/// The same, where the consumer itself asked for nothing before.
pub(super) const NO_REGION: &str = "a duplicate READ behind a request for nothing";

/// The message that is being received.
enum Open {
    No,
    /// A SEND: its receive, and how many bytes there are.
    Send(usize, Vec<Piece>, u64),
    /// A WRITE: what is left of its target.
    Write(Piece),
}

/// A READ that was executed.
#[derive(Clone, Copy)]
struct Record {
    psn: u64,
    end: u64,
    what: Piece,
    /// Nothing before it is answered again.
    from: u64,
}

/// An answer that is being sent.
struct Reading {
    /// The PSN of its next packet, and the one behind its last.
    at: u64,
    end: u64,
    what: Piece,
    /// It begins in the middle of a READ, as far as its opcodes tell.
    resumed: bool,
    began: bool,
}

/// What comes of a packet.
pub(crate) enum Outcome {
    /// A receive ended: its number, status, bytes, and the key that was ended.
    Received(usize, NTSTATUS, u64, Option<u32>),
}

/// The responder of a queue pair.
pub(crate) struct Responder {
    first: u32,
    epsn: u64,
    msn: u32,
    nak_sent: bool,
    open: Open,
    records: VecDeque<Record>,
    depth: usize,
    reading: Option<Reading>,
    /// Requests for an ACK that have none yet, and since when.
    asked: u32,
    since: u64,
    /// The PSN behind the last SEND or WRITE.
    done: u64,
    /// What the last request named that named memory.
    named: Option<Piece>,
}

impl Default for Responder {
    fn default() -> Self {
        Self {
            first: 0,
            epsn: 0,
            msn: 0,
            nak_sent: false,
            open: Open::No,
            records: VecDeque::new(),
            depth: 0,
            reading: None,
            asked: 0,
            since: 0,
            done: 0,
            named: None,
        }
    }
}

impl Responder {
    pub(crate) fn open(&mut self, first: u32, depth: usize) {
        (self.first, self.depth) = (first, depth);
    }

    /// The receive that a SEND has begun to fill; nothing more is answered.
    pub(crate) fn close(&mut self) -> Option<usize> {
        (self.reading, self.asked) = (None, 0);
        match std::mem::replace(&mut self.open, Open::No) {
            Open::Send(id, ..) => Some(id),
            Open::No | Open::Write(_) => None,
        }
    }

    /// It answers a READ, and looks at nothing else until it has.
    pub(crate) const fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// When an ACK is due.
    pub(crate) fn due(&self, cx: &super::Quirks) -> Option<u64> {
        (self.asked > 0).then_some(self.since + cx.ack_delay)
    }

    /// The next packet, if one is to leave.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        if self.reading.is_some() {
            return self.read_packet(cx);
        }
        let ripe = self.asked >= cx.quirks.ack_every || self.since + cx.quirks.ack_delay <= cx.now;
        (self.asked > 0 && ripe).then(|| {
            if self.asked > 1 {
                cx.did(Deed::Coalesced);
            }
            self.asked = 0;
            self.aeth(self.epsn.wrapping_sub(1), 0x1f, cx)
        })
    }

    fn aeth(&self, at: u64, mut syndrome: u8, cx: &mut Context<'_>) -> Packet {
        if syndrome == 0x1f && cx.quirks.credits {
            syndrome = cx.rng.below(32) as u8;
        }
        let ext = vec![syndrome, (self.msn >> 16) as u8, (self.msn >> 8) as u8, self.msn as u8];
        let psn = psn(self.first, at);
        Packet { opcode: opcode::ACKNOWLEDGE, psn, ext, ..Packet::default() }
    }

    /// A request of the peer, with the receives that are there; what is refused ends the
    /// connection.
    pub(crate) fn request(
        &mut self,
        seen: &Seen<'_>,
        receives: &mut VecDeque<(usize, Vec<Piece>)>,
        cx: &mut Context<'_>,
    ) {
        let Some(at) = place(self.first, seen.psn, self.epsn) else {
            // Before the first PSN: as late as any duplicate.
            return self.acknowledge_again(cx);
        };
        if at > self.epsn {
            if std::mem::replace(&mut self.nak_sent, true) {
                cx.did(Deed::Dropped);
            } else {
                cx.did(Deed::Gap);
                let nak = self.aeth(self.epsn, 0x60, cx);
                cx.out.push(nak);
            }
            return;
        }
        if at < self.epsn {
            return self.duplicate(at, seen, cx);
        }
        self.nak_sent = false;
        match self.execute(seen, receives, cx) {
            Ok(()) => {}
            Err(syndrome @ 0x20..=0x3f) => {
                let long = syndrome == 0x20;
                cx.did(if long { Deed::LongPause } else { Deed::Pause });
                if cx.quirks.rnr_retry[0] < 7 {
                    cx.excuse = Some("a foreign peer grants few RNR retries");
                }
                let nak = self.aeth(at, syndrome, cx);
                cx.out.push(nak);
            }
            Err(syndrome) => self.refuse(at, syndrome, cx),
        }
    }

    fn refuse(&self, at: u64, syndrome: u8, cx: &mut Context<'_>) {
        let nak = self.aeth(at, syndrome, cx);
        cx.out.push(nak);
        cx.dead = true;
    }

    /// Executes the expected packet.
    fn execute(
        &mut self,
        seen: &Seen<'_>,
        receives: &mut VecDeque<(usize, Vec<Piece>)>,
        cx: &mut Context<'_>,
    ) -> Result<(), u8> {
        if seen.opcode == opcode::READ_REQUEST {
            return self.read(seen, cx);
        }
        let (opens, ends) = (opcode::opens(seen.opcode), opcode::ends(seen.opcode));
        let len = seen.payload.len() as u64;
        if opens != matches!(self.open, Open::No) {
            return Err(0x61);
        }
        if opens {
            self.open = if opcode::is_send(seen.opcode) {
                let Some((id, list)) = receives.pop_front() else {
                    return Err(0x20 | cx.quirks.rnr_code);
                };
                Open::Send(id, list, 0)
            } else {
                let target = read_reth(seen.ext);
                self.named = Some(target);
                if !cx.keys.grants(target, 1) {
                    return Err(0x62);
                }
                Open::Write(target)
            };
        }
        match &mut self.open {
            Open::Send(id, list, got) => {
                let room: u64 = list.iter().map(|piece| piece.len).sum();
                if *got + len > room {
                    cx.received.push(Outcome::Received(*id, STATUS_BUFFER_OVERFLOW, 0, None));
                    self.open = Open::No;
                    return Err(0x61);
                }
                cx.keys.scatter(list, *got, seen.payload).ok_or(0x63)?;
                *got += len;
                if ends {
                    let token =
                        matches!(seen.opcode, 0x16 | 0x17).then(|| number(seen.ext, 0, 4) as u32);
                    if token.is_some_and(|token| !cx.keys.end(token)) {
                        return Err(0x62);
                    }
                    cx.received.push(Outcome::Received(*id, STATUS_SUCCESS, *got, token));
                }
            }
            Open::Write(target) => {
                let now = Piece { len, ..*target };
                if len > target.len || ends != (len == target.len) {
                    return Err(0x61);
                }
                cx.keys.write(now, seen.payload).ok_or(0x62)?;
                target.address = target.address.wrapping_add(len);
                target.len -= len;
            }
            Open::No => return Err(0x61),
        }
        if ends {
            self.open = Open::No;
            self.msn = self.msn.wrapping_add(1) & 0xff_ffff;
        }
        self.epsn += 1;
        self.done = self.epsn;
        if seen.ack_req {
            if self.asked == 0 {
                self.since = cx.now;
            }
            self.asked += 1;
        }
        Ok(())
    }

    fn read(&mut self, seen: &Seen<'_>, cx: &mut Context<'_>) -> Result<(), u8> {
        let what = read_reth(seen.ext);
        self.named = Some(what);
        if !matches!(self.open, Open::No) || self.depth == 0 {
            return Err(0x61);
        }
        if !cx.keys.grants(what, 0) {
            return Err(0x62);
        }
        let (psn, end) = (self.epsn, self.epsn + what.len.div_ceil(cx.pmtu).max(1));
        self.records.push_back(Record { psn, end, what, from: psn });
        while self.records.len() > self.depth {
            self.records.pop_front();
        }
        self.msn = self.msn.wrapping_add(1) & 0xff_ffff;
        self.epsn = end;
        // What it answers with says that all before is executed.
        self.asked = 0;
        self.reading = Some(Reading { at: psn, end, what, resumed: false, began: false });
        Ok(())
    }

    /// Of what came before, the ACK names the PSN before the expected one, or the last SEND or WRITE.
    fn acknowledge_again(&self, cx: &mut Context<'_>) {
        let behind = if cx.quirks.stale_ack { self.done } else { self.epsn };
        let mut ack = self.aeth(behind.wrapping_sub(1), 0x1f, cx);
        if behind == 0 && cx.quirks.stale_ack && self.first < 0xff_0000 {
            // Before the first one it names the PSN before 0. Nearer to that it would acknowledge what it
            // does not have.
            ack.psn = 0xff_ffff;
        }
        cx.out.push(ack);
    }

    /// What came before.
    fn duplicate(&mut self, at: u64, seen: &Seen<'_>, cx: &mut Context<'_>) {
        if seen.opcode != opcode::READ_REQUEST {
            return self.acknowledge_again(cx);
        }
        let what = read_reth(seen.ext);
        let found = self.records.iter_mut().rev().find(|read| (read.from..read.end).contains(&at));
        let Some(read) = found else { return };
        let skipped = (at - read.psn) * cx.pmtu;
        let inside = what.address == read.what.address.wrapping_add(skipped)
            && what.token == read.what.token
            && skipped + what.len <= read.what.len;
        if !inside {
            return;
        }
        let start = read.psn;
        if cx.quirks.narrow {
            read.from = at;
        }
        let resumed = at > read.psn && cx.quirks.middle;
        if !cx.keys.grants(what, 0) {
            if cx.quirks.strict_keys {
                cx.did(Deed::Strict);
                cx.excuse = Some(STRICT);
                self.refuse(at, 0x62, cx);
            }
            return;
        }
        let region = self.named.filter(|named| named.len > 0 || what.len == 0 || at > start);
        if cx.quirks.keeps_length && region.is_none() {
            cx.did(Deed::NoRegion);
            // No consumer names the key 0.
            if self.named.is_some_and(|named| named.token != 0) {
                cx.excuse = Some(NO_REGION);
            }
            return self.refuse(at, 0x62, cx);
        }
        cx.did(if resumed { Deed::Middle } else { Deed::Again });
        let end = at + what.len.div_ceil(cx.pmtu).max(1);
        self.reading = Some(Reading { at, end, what, resumed, began: false });
    }

    /// The next packet of an answer.
    fn read_packet(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let Reading { at, end, what, resumed, began } = *self.reading.as_ref()?;
        let last = at + 1 == end;
        let now = Piece { len: what.len.min(cx.pmtu), ..what };
        let data = if cx.keys.grants(now, 0) { cx.keys.read(now) } else { None };
        let Some(payload) = data else {
            self.reading = None;
            self.refuse(at, 0x62, cx);
            return None;
        };
        let code = match (began || resumed, last) {
            (false, false) => 0x0d,
            (true, false) => 0x0e,
            (true, true) => opcode::READ_LAST,
            (false, true) => opcode::READ_ONLY,
        };
        let left =
            Piece { address: what.address.wrapping_add(now.len), len: what.len - now.len, ..what };
        self.reading =
            (!last).then_some(Reading { at: at + 1, end, what: left, resumed, began: true });
        let aeth = self.aeth(at, 0x1f, cx);
        let ext = if code == 0x0e { Vec::new() } else { aeth.ext };
        Some(Packet { opcode: code, ext, payload, ..aeth })
    }
}
