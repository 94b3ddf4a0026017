//! A path that loses nothing and keeps the order, between hosts that stand still for as long as they like.

use super::*;
use crate::env::Rng;

/// Counters of evidence for a loss, and of packets that are sent again on it.
const EVIDENCE: [Counter; 5] = [
    Counter::ResentNakPkts,
    Counter::ResentImpliedNakPkts,
    Counter::PacketSeqErr,
    Counter::ImpliedNakSeqErr,
    Counter::OutOfSeqRequest,
];

/// Two hosts that process nothing while they stand still.
struct Halting {
    pair: Pair,
    rng: Rng,
    /// When each node goes on.
    awake: [Instant; 2],
}

impl Halting {
    fn new(seed: u8, make: Make) -> Self {
        let settings = Settings { make, reads: 16, ..CLEAN };
        let rng = Rng::from_seed([seed; 32]);
        Self { pair: Pair::new(60_000, settings), rng, awake: [Instant::from_nanos(1); 2] }
    }

    /// Once in a while `node` stands still, for up to an eighth of a second.
    fn pause(&mut self, node: usize) {
        let us = 10 + (1_u64 << self.rng.below(18)) * u64::from(self.rng.below(8) == 0);
        self.awake[node] = self.pair.now + Duration::from_micros(us);
    }

    /// Posts a message of up to ten packets, most of them READs, as a storage target does.
    fn post(&mut self, id: u64) {
        let rkey = self.pair.nodes[1].key;
        let len = self.rng.below(10 * 1024) as usize;
        let op = match self.rng.below(4) {
            0 => SendOp::Write { va: BASE, rkey },
            1 => SendOp::Send,
            _ => SendOp::Read { va: BASE, rkey },
        };
        if matches!(op, SendOp::Send) {
            let sgl = self.pair.nodes[1].sge(20_000, 11 * 1024);
            self.pair.nodes[1].recv(id, sgl);
        }
        let sgl = self.pair.nodes[0].sge(20_000, len);
        self.pair.nodes[0].send(id, op, sgl);
    }

    /// Lets `node` do what it can now, if it has anything to do, and returns when it has more.
    fn turn(&mut self, node: usize) -> Option<Instant> {
        // Unsolicited ACKs are no answers to probes, and pass for such: a copy too many, towards a peer that serves it.
        let due = self.pair.nodes[node].qp.deadline().filter(|_| node == 0);
        let waits = !self.pair.wires[node].is_empty();
        let next =
            if waits { Some(self.awake[node]) } else { due.map(|due| due.max(self.awake[node])) };
        if next.is_none_or(|next| next > self.pair.now) {
            return next;
        }
        if let Some(frame) = self.pair.wires[node].pop_front() {
            self.pair.give(node, &frame);
        }
        if due.is_some_and(|due| due <= self.pair.now) {
            let Node { qp, reorder_pool, out, .. } = &mut self.pair.nodes[node];
            qp.handle_timeout(self.pair.now, reorder_pool, out);
            self.pair.nodes[node].collect();
        }
        self.pair.transmit(node);
        self.pause(node);
        Some(self.awake[node])
    }

    fn run(&mut self) {
        for id in 0..60 {
            self.post(id);
            self.pair.transmit(0);
            // Up to so many are under way.
            let done = usize::try_from(id).unwrap().saturating_sub(self.rng.below(8) as usize);
            while self.pair.nodes[0].done.len() < done {
                let next = [0, 1].into_iter().filter_map(|node| self.turn(node)).min();
                let next = next.expect("a request is under way");
                self.pair.now = self.pair.now.max(next);
            }
        }
    }
}

/// C9-105, and the rule of recovery: silence is no evidence. Whatever the pauses, a requester takes nothing that comes
/// late for a word on what it has sent since.
#[test]
fn where_nothing_is_lost_nothing_shows_a_loss() {
    for make in [Make::Other, Make::Keeper] {
        for seed in 0..if cfg!(miri) { 1 } else { 60 } {
            let mut halting = Halting::new(seed, make);
            halting.run();
            let failed =
                halting.pair.nodes[0].done.iter().find(|done| done.status != WcStatus::Success);
            assert_eq!(failed.map(|done| done.id), None, "{make:?}, seed {seed}");
            for node in &halting.pair.nodes {
                for counter in EVIDENCE {
                    let count = node.qp.counters().get(counter);
                    assert_eq!(count, 0, "{make:?}, seed {seed}: {}", counter.name());
                }
            }
        }
    }
}
