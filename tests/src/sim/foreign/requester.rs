//! A foreign requester: go-back-N over a window of PSNs, and what the answers do to it (IBTA ch. 9,
//! Requester Side; the quirks are those of `Quirks`).

use super::keys::{Mapping, Piece};
use super::qp::Context;
use super::wire::{Packet, place, psn};
use crate::sim::Deed;
use crate::sim::packet::{Seen, number, opcode};
use driver::abi::*;
use std::collections::VecDeque;

/// What a request does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// SEND, and the peer's key that it ends.
    Send(Option<u32>),
    /// WRITE to an address with a key.
    Write(u64, u32),
    /// READ from an address with a key, and the own key that ends with it.
    Read(u64, u32, Option<u32>),
    Map(Mapping),
    Invalidate(u32),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) id: usize,
    pub(crate) kind: NDK_OPERATION_TYPE,
    pub(crate) flags: u32,
    pub(crate) op: Op,
    pub(crate) list: Vec<Piece>,
    /// Its PSNs and its data, once it was started.
    psn: u64,
    packets: u64,
    data: Vec<u8>,
    done: bool,
}

impl Wqe {
    pub(crate) const fn new(
        id: usize,
        kind: NDK_OPERATION_TYPE,
        flags: u32,
        op: Op,
        list: Vec<Piece>,
    ) -> Self {
        Self { id, kind, flags, op, list, psn: 0, packets: 0, data: Vec::new(), done: false }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.flags & NDK_OP_FLAG_SILENT_SUCCESS != 0
    }

    const fn is_read(&self) -> bool {
        matches!(self.op, Op::Read(..))
    }

    fn len(&self) -> u64 {
        self.list.iter().map(|piece| piece.len).sum()
    }
}

/// How requests end.
pub(crate) enum Ended {
    Success(Wqe),
    /// The connection ends with it.
    Failure(NTSTATUS),
}

/// The requester of a queue pair.
#[derive(Default)]
pub(crate) struct Requester {
    pub(crate) queue: VecDeque<Wqe>,
    /// Of those in the queue, how many were started.
    started: usize,
    first: u32,
    /// READs that the peer serves.
    depth: usize,
    /// All before it is done.
    una: u64,
    /// What is sent next.
    cursor: u64,
    /// What was never sent.
    next: u64,
    /// It went back, and has seen no progress since.
    went_back: bool,
    /// When it goes back by itself.
    due: Option<u64>,
    tries: u32,
    /// The peer asked for a pause until then: nothing leaves before, and whatever is answered meanwhile,
    /// something may leave after.
    paused: Option<u64>,
    rnr_tries: u32,
    /// Requests that asked for no ACK, one after the other.
    unasked: u32,
}

impl Requester {
    pub(crate) fn open(&mut self, first: u32, depth: usize) {
        (self.first, self.depth) = (first, depth);
    }

    /// When something is to be done without anybody's answer.
    pub(crate) fn due(&self) -> Option<u64> {
        self.paused.or(self.due)
    }

    // ---- sending -------------------------------------------------------------------------------

    /// The next packet, if one may leave.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        if self.paused.is_some_and(|until| cx.now < until) {
            return None;
        }
        self.paused = None;
        if self.due.is_some_and(|due| due <= cx.now) {
            self.time_out(cx)?;
        }
        if self.cursor == self.next {
            self.start(cx)?;
        }
        if self.cursor - self.una >= cx.quirks.window {
            return None;
        }
        let packet = self.emit(cx);
        self.due.get_or_insert(cx.now + cx.quirks.resend);
        packet
    }

    /// Nobody has answered for long.
    fn time_out(&mut self, cx: &mut Context<'_>) -> Option<()> {
        self.due = None;
        if self.una == self.next {
            return Some(());
        }
        self.tries += 1;
        if cx.quirks.retry_count < 7 && self.tries > u32::from(cx.quirks.retry_count) {
            cx.excuse = Some("a foreign peer gave up");
            cx.ended.push(Ended::Failure(STATUS_IO_TIMEOUT));
            return None;
        }
        self.go_back(cx);
        Some(())
    }

    fn go_back(&mut self, cx: &mut Context<'_>) {
        if self.cursor != self.una {
            cx.did(Deed::WentBack);
        }
        self.cursor = self.una;
    }

    /// Starts requests until one has a packet.
    fn start(&mut self, cx: &mut Context<'_>) -> Option<()> {
        loop {
            let open = self.queue.iter().take(self.started);
            let reads = open.filter(|wqe| wqe.is_read() && !wqe.done).count();
            let started = self.started;
            let wqe = self.queue.get_mut(started)?;
            let fenced = wqe.flags & NDK_OP_FLAG_READ_FENCE != 0 && reads > 0;
            let full = wqe.is_read() && reads >= self.depth;
            if fenced || full || self.next - self.una >= cx.quirks.window {
                return None;
            }
            match &wqe.op {
                Op::Map(mapping) => cx.keys.map(mapping),
                Op::Invalidate(_) if started > 0 => return None,
                Op::Invalidate(token) => {
                    cx.keys.end(*token);
                }
                Op::Send(_) | Op::Write(..) | Op::Read(..) => {
                    if !wqe.is_read() {
                        wqe.data = cx.keys.gather(&wqe.list)?;
                    }
                    (wqe.psn, wqe.packets) = (self.next, wqe.len().div_ceil(cx.pmtu).max(1));
                    self.next += wqe.packets;
                    self.started += 1;
                    return Some(());
                }
            }
            wqe.done = true;
            self.started += 1;
            self.finish(cx);
        }
    }

    /// The packet at the cursor.
    fn emit(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let (cursor, una) = (self.cursor, self.una);
        let more = self.queue.len() > self.started;
        let again = self.tries > 0 || self.went_back;
        let holds = |wqe: &&Wqe| !wqe.done && (wqe.psn..wqe.psn + wqe.packets).contains(&cursor);
        let wqe = self.queue.iter().take(self.started).find(holds)?;
        let at = cursor - wqe.psn;
        let mut packet = Packet { psn: psn(self.first, cursor), ..Packet::default() };
        if let &Op::Read(address, token, _) = &wqe.op {
            let skipped = at * cx.pmtu;
            packet.opcode = opcode::READ_REQUEST;
            packet.ext = reth(address.wrapping_add(skipped), token, wqe.len() - skipped);
            packet.ack_req = true;
            self.cursor = wqe.psn + wqe.packets;
            return Some(packet);
        }
        let (first, last) = (at == 0, at + 1 == wqe.packets);
        let from = (at * cx.pmtu) as usize;
        let until = wqe.data.len().min(from + cx.pmtu as usize);
        packet.payload = wqe.data[from..until].to_vec();
        let immediate = cx.quirks.immediate && wqe.id.is_multiple_of(3);
        (packet.opcode, packet.ext) = match wqe.op {
            Op::Send(None) if last && immediate => {
                cx.did(Deed::Immediate);
                (if first { 0x05 } else { 0x03 }, vec![1, 2, 3, 4])
            }
            Op::Send(Some(token)) if last => {
                (if first { 0x17 } else { 0x16 }, token.to_be_bytes().to_vec())
            }
            Op::Write(address, token) => {
                let reth = if first { reth(address, token, wqe.len()) } else { Vec::new() };
                (0x06 + position(first, last), reth)
            }
            _ => (position(first, last), Vec::new()),
        };
        let edge = cursor + 1 - una >= cx.quirks.window;
        let rare = cx.quirks.rare_ack_req && more && self.unasked < 8;
        packet.ack_req = again || edge || last && !rare;
        packet.solicited = last
            && matches!(wqe.op, Op::Send(_))
            && wqe.flags & NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT != 0;
        self.unasked = if packet.ack_req { 0 } else { self.unasked + u32::from(last) };
        self.cursor += 1;
        Some(packet)
    }

    // ---- answers -------------------------------------------------------------------------------

    /// An answer of the peer.
    pub(crate) fn answer(&mut self, seen: &Seen<'_>, cx: &mut Context<'_>) {
        let Some(at) = place(self.first, seen.psn, self.una) else { return };
        if at < self.una || at >= self.next {
            return;
        }
        if seen.opcode != opcode::ACKNOWLEDGE {
            return self.read_data(at, seen, cx);
        }
        match seen.ext[0] {
            0..=0x1f => {
                self.acknowledge(at + 1, cx);
                // The answer of a READ was lost on the way.
                if self.una <= at {
                    self.go_back_once(cx);
                }
            }
            code @ 0x20..=0x3f => {
                self.acknowledge(at, cx);
                self.go_back(cx);
                self.rnr_tries += 1;
                let most = u32::from(cx.quirks.rnr_retry[1]);
                if most < 7 && self.rnr_tries > most {
                    cx.did(Deed::RnrSpent);
                    cx.excuse = Some("a foreign peer has no RNR retries left");
                    cx.ended.push(Ended::Failure(STATUS_REMOTE_RESOURCES));
                }
                self.paused = Some(cx.now + crate::sim::packet::rnr_pause(code & 31));
                self.due = self.paused;
            }
            0x60 => {
                self.acknowledge(at, cx);
                self.go_back_once(cx);
            }
            code @ 0x61..=0x63 => {
                self.acknowledge(at, cx);
                if self.una < at {
                    return self.go_back_once(cx);
                }
                cx.ended.push(Ended::Failure(match code {
                    0x61 => STATUS_INVALID_DEVICE_REQUEST,
                    0x62 => STATUS_ACCESS_VIOLATION,
                    _ => STATUS_INTERNAL_ERROR,
                }));
            }
            _ => {}
        }
    }

    /// Asks again for all that is not done; a second time only after some progress.
    fn go_back_once(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.went_back, true) {
            self.go_back(cx);
        }
    }

    fn read_data(&mut self, at: u64, seen: &Seen<'_>, cx: &mut Context<'_>) {
        self.acknowledge(at, cx);
        if at != self.una {
            return self.go_back_once(cx);
        }
        let holds = |wqe: &&mut Wqe| {
            wqe.is_read() && !wqe.done && (wqe.psn..wqe.psn + wqe.packets).contains(&at)
        };
        let Some(wqe) = self.queue.iter_mut().take(self.started).find(holds) else {
            cx.fault = Some(format!("READ data for what is no READ, at PSN {:#x}", seen.psn));
            return;
        };
        let from = (at - wqe.psn) * cx.pmtu;
        let right = (wqe.len() - from).min(cx.pmtu);
        if seen.payload.len() as u64 != right {
            cx.fault = Some(format!("{} bytes of READ data for {right}", seen.payload.len()));
            return;
        }
        if cx.keys.scatter(&wqe.list, from, seen.payload).is_none() {
            cx.fault = Some("READ data for memory that is not there".into());
            return;
        }
        self.advance(at + 1, cx);
    }

    /// All before `to` is executed, but for the data of READs.
    fn acknowledge(&mut self, to: u64, cx: &mut Context<'_>) {
        let open = self.queue.iter().take(self.started);
        let read = open.filter(|wqe| wqe.is_read() && !wqe.done).map(|wqe| wqe.psn).min();
        let to = read.map_or(to, |read| to.min(read.max(self.una)));
        if to > self.una {
            self.advance(to, cx);
        }
    }

    fn advance(&mut self, to: u64, cx: &mut Context<'_>) {
        self.una = to;
        self.cursor = self.cursor.max(to);
        (self.tries, self.rnr_tries, self.went_back) = (0, 0, false);
        self.due = (self.una < self.next).then(|| cx.now + cx.quirks.resend);
        for wqe in self.queue.iter_mut().take(self.started) {
            if !wqe.done && wqe.psn + wqe.packets <= to {
                wqe.done = true;
                if let Op::Read(_, _, Some(token)) = wqe.op {
                    cx.keys.end(token);
                }
            }
        }
        self.finish(cx);
    }

    /// Requests end in the order of their posts.
    fn finish(&mut self, cx: &mut Context<'_>) {
        while self.started > 0
            && let Some(wqe) = self.queue.pop_front_if(|wqe| wqe.done)
        {
            self.started -= 1;
            cx.ended.push(Ended::Success(wqe));
        }
    }
}

/// SEND and WRITE: FIRST, MIDDLE, LAST, ONLY. The two with an immediate lie between.
const fn position(first: bool, last: bool) -> u8 {
    match (first, last) {
        (true, false) => 0,
        (false, false) => 1,
        (false, true) => 2,
        (true, true) => 4,
    }
}

fn reth(address: u64, token: u32, len: u64) -> Vec<u8> {
    [&address.to_be_bytes()[..], &token.to_be_bytes(), &(len as u32).to_be_bytes()].concat()
}

/// Bytes of a READ request's header: address, key, length.
pub(super) fn read_reth(ext: &[u8]) -> Piece {
    Piece { address: number(ext, 0, 8), token: number(ext, 8, 4) as u32, len: number(ext, 12, 4) }
}

#[cfg(test)]
mod tests {
    use super::super::Quirks;
    use super::super::keys::Keys;
    use super::*;
    use rocev2::env::Rng;
    use std::net::{IpAddr, Ipv4Addr};

    fn answer(syndrome: &[u8; 4]) -> Seen<'_> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Seen {
            src: ip,
            dst: ip,
            opcode: opcode::ACKNOWLEDGE,
            solicited: false,
            qpn: 0x11,
            ack_req: false,
            psn: 0,
            marks: 0,
            congested: false,
            ext: syndrome,
            payload: &[],
        }
    }

    /// The peer refuses a SEND and takes a late copy of it in the pause. Nothing is in flight then, and
    /// what is posted next leaves when the pause is over.
    #[test]
    fn a_pause_ends_though_all_was_answered_in_it() {
        let mut rng = Rng::from_seed([1; 32]);
        let quirks = Quirks::draw(&mut rng, true);
        let (mut keys, mut met) = (Keys::default(), Vec::new());
        let mut cx = Context {
            now: 0,
            pmtu: 256,
            keys: &mut keys,
            quirks: &quirks,
            rng: &mut rng,
            met: &mut met,
            out: Vec::new(),
            ended: Vec::new(),
            received: Vec::new(),
            excuse: None,
            fault: None,
            dead: false,
        };
        let send = |id| Wqe::new(id, NdkOperationTypeSend, 0, Op::Send(None), Vec::new());
        let mut requester = Requester::default();
        requester.open(0, 1);
        requester.queue.push_back(send(1));
        assert!(requester.send(&mut cx).is_some());
        // RNR NAK of 0.64 ms, and the ACK.
        requester.answer(&answer(&[0x2c, 0, 0, 0]), &mut cx);
        requester.answer(&answer(&[0x1f, 0, 0, 1]), &mut cx);
        requester.queue.push_back(send(2));
        assert!(requester.send(&mut cx).is_none());
        assert_eq!(requester.due(), Some(640_000));
        cx.now = 640_000;
        assert!(requester.send(&mut cx).is_some());
    }
}
