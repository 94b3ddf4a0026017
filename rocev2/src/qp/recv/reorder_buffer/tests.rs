use super::*;
use crate::env::Rng;
use crate::ids::Qpn;
use crate::index::Secret;
use crate::wire::{Bth, Ext, Opcode, example_encap};
use core::net::Ipv4Addr;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const PMTU: Pmtu = Pmtu::B256;

/// A pool of so many slots.
fn pool(slots: usize) -> ReorderPool {
    ReorderPool::new(slots * PMTU.bytes(), PMTU, Secret::new(&mut Rng::from_seed([7; 32])))
}

/// A buffer that expects PSN 0xff_fff0, and the packets behind it, which come from host `from`.
struct Queue {
    buffer: ReorderBuffer,
    from: u8,
}

impl Queue {
    fn new(from: u8) -> Self {
        Self::of(from, PMTU.bytes() as u32)
    }

    fn of(from: u8, bytes: u32) -> Self {
        let mut buffer = ReorderBuffer::new(bytes);
        buffer.open(PMTU);
        Self { buffer, from }
    }

    fn psn(ahead: u32) -> Psn {
        Psn::new(0xff_fff0).add(ahead)
    }

    fn insert(&mut self, ahead: u32, pool: &mut ReorderPool) -> Insertion {
        let bth = Bth::new(Opcode::SendOnly, Qpn::new(7), Self::psn(ahead));
        let payload = [self.from ^ ahead as u8; 9];
        let encap = example_encap(false, None);
        let packet = Packet { encap, bth, ext: Ext::None, payload: &payload };
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.from));
        self.buffer.insert(ahead, (&packet, from), pool)
    }

    /// Inserts packets until one finds no room. Returns how many did.
    fn fill(&mut self, pool: &mut ReorderPool) -> usize {
        let held = self.len(pool) as u32;
        (held + 1..).take_while(|ahead| self.insert(*ahead, pool) == Insertion::Inserted).count()
    }

    fn len(&self, pool: &ReorderPool) -> usize {
        self.buffer.len(pool)
    }

    /// The buffered packets, in order.
    fn held(&self, pool: &ReorderPool) -> Vec<u32> {
        let spans = self.buffer.spans(pool, 256);
        spans.map(|(psn, _)| psn.since(Self::psn(0)).cast_unsigned()).collect()
    }

    fn take(&mut self, ahead: u32, pool: &mut ReorderPool) -> Option<Vec<u8>> {
        let slot = self.buffer.take(Self::psn(ahead), pool)?;
        let packet = pool.packet(slot, example_encap(false, None));
        assert_eq!(packet.bth.psn, Self::psn(ahead));
        let payload = packet.payload.to_vec();
        pool.give_back(slot);
        Some(payload)
    }
}

#[test]
fn packets_come_out_in_order_however_they_came() {
    let mut pool = pool(16);
    for order in [[1, 2, 3, 40], [40, 3, 2, 1], [2, 40, 1, 3], [3, 1, 40, 2], [1, 40, 20, 22]] {
        let mut queue = Queue::new(0);
        for ahead in order {
            assert_eq!(queue.insert(ahead, &mut pool), Insertion::Inserted);
            assert_eq!(queue.insert(ahead, &mut pool), Insertion::Duplicate);
        }
        assert_eq!(queue.insert(64, &mut pool), Insertion::NoRoom, "too far");
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!((queue.held(&pool), queue.take(sorted[1], &mut pool)), (sorted.to_vec(), None));
        for ahead in &sorted[..2] {
            assert_eq!(queue.take(*ahead, &mut pool), Some(vec![*ahead as u8; 9]));
        }
        queue.buffer.forget_before(Queue::psn(sorted[3]), &mut pool);
        assert_eq!(queue.take(sorted[3], &mut pool), Some(vec![sorted[3] as u8; 9]));
        assert!(queue.buffer.is_empty());
        assert_eq!(queue.insert(5, &mut pool), Insertion::Inserted);
        queue.buffer.close(&mut pool);
        assert!(queue.buffer.is_empty());
        assert_eq!((queue.len(&pool), queue.insert(5, &mut pool)), (0, Insertion::NoRoom));
    }
    assert!(pool.used() <= 5, "slots come back");
}

/// A slot has room for the device's path MTU, whatever the connection's is.
#[test]
fn a_quota_counts_slots() {
    let big = Pmtu::B4096;
    let secret = Secret::new(&mut Rng::from_seed([7; 32]));
    let mut pool = ReorderPool::new(256 * big.bytes(), big, secret);
    let mut queue = Queue::of(1, 512 << 10);
    assert_eq!(queue.fill(&mut pool), 128, "512 KiB of 4,096");
    assert_eq!(queue.insert(2047, &mut pool), Insertion::NoRoom);
    assert_eq!(queue.insert(1, &mut pool), Insertion::Duplicate);
    assert!(queue.take(1, &mut pool).is_some());
    assert_eq!(queue.insert(2047, &mut pool), Insertion::Inserted, "as far as 512 KiB of packets");
    assert_eq!(queue.insert(2048, &mut pool), Insertion::NoRoom, "too far");
}

#[test]
fn a_connection_has_half_of_the_pool_at_most() {
    for (slots, most) in [(1, 1), (5, 3), (100, 50), (200, 63)] {
        let mut pool = pool(slots);
        assert_eq!(Queue::new(1).fill(&mut pool), most, "of {slots}");
    }
}

/// Goal: the largest holder gives, at once and without being asked, until all hold as much.
#[test]
fn the_pool_is_divided_by_peers_and_then_by_connections() {
    let mut pool = pool(60);
    let mut hostile = [Queue::new(1), Queue::new(1)];
    assert_eq!(hostile.each_mut().map(|queue| queue.fill(&mut pool)), [30, 30]);
    // Another connection of the same peer: a third.
    let mut third = Queue::new(1);
    assert_eq!(third.fill(&mut pool), 20);
    assert_eq!(hostile.each_ref().map(|queue| queue.len(&pool)), [20, 20]);
    // One of another peer: half, however many the first one has.
    let mut honest = Queue::new(2);
    assert_eq!(honest.fill(&mut pool), 30);
    assert_eq!(hostile.each_ref().map(|queue| queue.len(&pool)), [10, 10]);
    // A third peer: a third of all.
    assert_eq!(Queue::new(3).fill(&mut pool), 20);
    assert_eq!((honest.len(&pool), third.len(&pool)), (20, 7));
    // None of those that hold as much as others takes anything back.
    assert_eq!(hostile.each_mut().map(|queue| queue.fill(&mut pool)), [0, 0]);
    assert_eq!(honest.fill(&mut pool), 0);
    assert_eq!(honest.held(&pool), Vec::from_iter(1..=20), "the newest ones went");
}

/// The one that gave its last slot to another is empty, and what it does then is its own business.
#[test]
fn a_buffer_whose_slots_are_all_gone_is_empty() {
    let mut pool = pool(2);
    let [mut first, mut second, mut other] = [1, 1, 2].map(Queue::new);
    assert_eq!((first.fill(&mut pool), second.fill(&mut pool)), (1, 1));
    assert_eq!(other.fill(&mut pool), 1);
    let [gone, left] =
        if first.len(&pool) == 0 { [&mut first, &mut second] } else { [&mut second, &mut first] };
    assert_eq!((gone.len(&pool), left.len(&pool)), (0, 1));
    assert!(!gone.buffer.is_empty(), "it was not told");
    assert_eq!((gone.held(&pool), gone.take(1, &mut pool)), (vec![], None));
    gone.buffer.update(&pool);
    left.buffer.update(&pool);
    assert!(gone.buffer.is_empty() && !left.buffer.is_empty());
    assert_eq!(left.take(1, &mut pool), Some(vec![1 ^ 1; 9]));
    assert_eq!(gone.insert(3, &mut pool), Insertion::Inserted);
    assert_eq!(gone.held(&pool), [3]);
}

/// The cost of a packet does not depend on what is buffered: one that is far from all its neighbours, and not among the
/// newest ones, is dropped.
#[test]
fn no_packet_costs_a_long_walk() {
    let mut pool = pool(4096);
    let mut queue = Queue::of(1, 2048 * 256);
    for ahead in (100..2000).step_by(10) {
        assert_eq!(queue.insert(ahead, &mut pool), Insertion::Inserted);
    }
    assert_eq!(queue.insert(1985, &mut pool), Insertion::Inserted);
    assert_eq!(queue.insert(1365, &mut pool), Insertion::NoRoom, "behind the 65th from the end");
    assert_eq!(queue.insert(1375, &mut pool), Insertion::Inserted, "behind the 64th");
    assert_eq!(queue.insert(205, &mut pool), Insertion::NoRoom, "between two, far from the end");
    assert_eq!(queue.insert(204, &mut pool), Insertion::Inserted, "near 200");
    assert_eq!(queue.insert(206, &mut pool), Insertion::Inserted, "near 204");
    assert_eq!(queue.insert(50, &mut pool), Insertion::Inserted, "the oldest");
    assert_eq!(queue.insert(50, &mut pool), Insertion::Duplicate);
    assert!(queue.held(&pool).is_sorted());
}

#[test]
fn a_pool_without_memory_takes_nothing() {
    // Miri ends where memory is refused.
    let refused = if cfg!(miri) { 0 } else { usize::MAX / 2 };
    for bytes in [0, refused] {
        let mut pool = ReorderPool::new(bytes, PMTU, Secret::new(&mut Rng::from_seed([7; 32])));
        assert_eq!(Queue::new(1).insert(1, &mut pool), Insertion::NoRoom);
    }
}

proptest! {
    /// However packets of several peers come, go and are taken from each other: each buffer has what it was given and not
    /// lost, in order; the pool has as many slots as they; and none that holds two fewer than another is refused.
    #[test]
    fn shares_are_right_whatever_happens(
        steps in prop::collection::vec(
            (0_usize..6, 0_u32..40, 0_u8..10),
            0..if cfg!(miri) { 60 } else { 300 },
        ),
    ) {
        let mut pool = pool(24);
        let mut queues: [Queue; 6] = core::array::from_fn(|n| Queue::new(n as u8 / 2));
        for (n, ahead, action) in steps {
            queues[n].buffer.update(&pool);
            let before = queues.each_ref().map(|queue| queue.len(&pool));
            match action {
                0 => queues[n].buffer.forget_before(Queue::psn(ahead), &mut pool),
                1 => queues[n].buffer.forget(&mut pool),
                _ => {
                    let insertion = queues[n].insert(ahead, &mut pool);
                    let of = |peer: usize| before[2 * peer] + before[2 * peer + 1];
                    let own = of(n / 2);
                    let unfair = (0..3).any(|peer| of(peer) > own + 1)
                        || before[n ^ 1] > before[n] + 1;
                    if insertion == Insertion::NoRoom {
                        prop_assert!(!unfair && before.iter().sum::<usize>() == 24 || before[n] == 12);
                    }
                }
            }
            let all: usize = queues.iter().map(|queue| queue.len(&pool)).sum();
            prop_assert_eq!(all, pool.taken());
            for queue in &queues {
                let held = queue.held(&pool);
                prop_assert!(held.is_sorted_by(|a, b| a < b) && held.len() == queue.len(&pool));
            }
        }
        queues.iter_mut().for_each(|queue| queue.buffer.close(&mut pool));
        prop_assert_eq!(pool.taken(), 0);
    }
}
