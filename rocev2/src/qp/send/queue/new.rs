//! New packets, which leave in the order of the queue.

use super::{SendQueue, Wqe, read_sent};
use crate::psn::Psn;

/// A packet that was never sent and may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPacket<'a> {
    /// Its request.
    pub wqe: Wqe<'a>,
    /// Packets of the request before it.
    pub packet: u32,
    pub psn: Psn,
    /// Packets that may leave, itself included.
    pub room: u32,
    /// READ requests in flight.
    pub reads: usize,
}

/// Such a packet that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The last of its request.
    pub last: bool,
    /// A READ, with one response.
    pub read: bool,
}

impl SendQueue {
    /// Has `write` write the only packet of the only request that waits, if one may leave; it returns the bytes, and whether
    /// that is a READ. Moves the cursor over it, and returns these and its PSN; `None` where another request waits, or `write`
    /// returns that.
    #[inline(always)]
    pub(crate) fn send_one(
        &mut self,
        room: u32,
        write: impl FnOnce(Wqe<'_>, Psn) -> Option<(usize, bool)>,
    ) -> Option<(usize, Psn, bool)> {
        let (at, psn) = (self.done + self.parked + self.cursor.wqe, self.next);
        if room == 0 || self.cursor.packet > 0 || self.ring.len() != at + 1 {
            return None;
        }
        let (len, read) = write(Wqe(self.ring.get(at)?), psn)?;
        let end = psn.add(1);
        (self.next, self.highest) = (end, end);
        self.cursor.wqe += 1;
        if read {
            read_sent(&mut self.read_ends, &mut self.reads, end);
        }
        Some((len, psn, read))
    }

    /// Whether no packet in flight has requested a response: all are of one message, of which one of `interval` packets requests
    /// an ACK.
    pub(crate) fn asks_nothing(&self, interval: u32) -> bool {
        let since = self.cursor.packet % interval;
        self.reads == 0 && (1..=since).contains(&self.in_flight())
    }

    /// Has `write` write new packets, `room` at most, up to the first for which it returns `None`, and moves the cursor
    /// over them.
    #[inline(always)]
    pub(crate) fn send_new(
        &mut self,
        room: u32,
        mut write: impl FnMut(&NewPacket<'_>) -> Option<Sent>,
    ) {
        let mut entries = self.ring.entries(self.done + self.parked + self.cursor.wqe);
        let Some(entry) = entries.next() else { return };
        let (packet, psn, reads) = (self.cursor.packet, self.next, self.reads as usize);
        let mut new = NewPacket { wqe: Wqe(entry), packet, psn, room, reads };
        while new.room > 0
            && let Some(Sent { last, read }) = write(&new)
        {
            new.psn = new.psn.add(1);
            new.room -= 1;
            if read {
                read_sent(&mut self.read_ends, &mut self.reads, new.psn);
                new.reads += 1;
            }
            if !last {
                new.packet += 1;
                continue;
            }
            new.packet = 0;
            self.cursor.wqe += 1;
            let Some(entry) = entries.next() else { break };
            new.wqe = Wqe(entry);
        }
        if new.psn != self.next {
            self.cursor.packet = new.packet;
            (self.next, self.highest) = (new.psn, new.psn);
        }
    }
}
