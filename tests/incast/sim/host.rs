//! Both ends on one processor, and no network between them: what waits, waits for the processor.

use super::{IP_DESTINATION_END, Net, Nothing};
use rocev2::env::Instant;
use std::collections::VecDeque;

/// The processor's time for a packet, at either end.
const PACKET_NS: u64 = 3_600;
/// Its time to go from one end to the other.
const SWITCH_NS: u64 = 5_000;
/// Packets that an end takes, and sends, in one turn.
const TURN_PACKETS: usize = 64;
/// Packets on their way to an end, at most; none is dropped for lack of room.
const RING_PACKETS: usize = 256;

/// The processor.
pub(super) struct Host {
    /// The node that had the last turn.
    node: usize,
    /// What has arrived at each node, and waits.
    inboxes: Vec<VecDeque<Vec<u8>>>,
}

impl Host {
    pub(super) fn new(nodes: usize) -> Self {
        Self { node: 0, inboxes: vec![VecDeque::new(); nodes] }
    }
}

impl Net {
    /// The next node that has work takes a turn; without any the clock goes to the next timeout. False where there is
    /// none before `end`.
    pub(super) fn take_turn(&mut self, end: u64) -> bool {
        let nodes = self.nodes.len();
        let last = self.host.node;
        let next = (1..=nodes).map(|n| (last + n) % nodes).find(|node| self.has_work(*node));
        let Some(node) = next else {
            let timeouts = self.nodes.iter_mut().filter_map(|node| node.device.poll_timeout());
            let Some(at) = timeouts.min().map(Instant::as_nanos) else { return false };
            self.now = self.now.max(at);
            return self.now < end;
        };
        self.now += if node == self.host.node { 0 } else { SWITCH_NS };
        self.host.node = node;
        if self.now >= end {
            return false;
        }
        // As the core does, for which all of a turn happens at once.
        let now = Instant::from_nanos(self.now);
        let taken = self.take_frames(now, node);
        self.nodes[node].device.handle_timeout(now);
        let sent = self.send_frames(now, node);
        self.nodes[node].idle = sent == 0;
        self.now += (taken + sent) as u64 * PACKET_NS;
        true
    }

    fn has_work(&mut self, node: usize) -> bool {
        let due =
            self.nodes[node].device.poll_timeout().is_some_and(|at| at.as_nanos() <= self.now);
        due || !self.nodes[node].idle || !self.host.inboxes[node].is_empty()
    }

    fn take_frames(&mut self, now: Instant, node: usize) -> usize {
        let count = self.host.inboxes[node].len().min(TURN_PACKETS);
        for _ in 0..count {
            if let Some(frame) = self.host.inboxes[node].pop_front() {
                self.deliver_at(now, node, &frame);
            }
        }
        count
    }

    fn send_frames(&mut self, now: Instant, from: usize) -> usize {
        let mut sent = 0;
        while sent < TURN_PACKETS
            && self.host.inboxes.iter().all(|inbox| inbox.len() < RING_PACKETS)
        {
            let Some(unit) =
                self.nodes[from].device.poll_transmit(now, &mut self.buf, 1, &mut Nothing)
            else {
                break;
            };
            sent += 1;
            if !self.is_lost() {
                let frame = self.buf[..unit.len].to_vec();
                self.host.inboxes[usize::from(frame[IP_DESTINATION_END])].push_back(frame);
            }
        }
        sent
    }
}
