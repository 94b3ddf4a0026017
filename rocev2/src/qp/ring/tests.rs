use super::*;
use std::vec::Vec;

fn sge(n: u32) -> Sge {
    Sge { addr: u64::MAX - u64::from(n), len: n, lkey: Lkey::new(!n) }
}

#[test]
fn a_ring_goes_round_and_is_as_deep_as_it_says() {
    let (mut poster, mut ring) = WorkRing::<Whole>::new(3, 1, 5);
    for n in 0..10 {
        for place in 0..3 {
            assert_eq!(poster.slot().unwrap().place(), (3 * n + place) % 3);
            poster.post(|entry| entry.set(0, (3 * n + place) as u64)).unwrap();
        }
        assert_eq!(poster.post(|_| unreachable!()), Err(PostError::QueueFull));
        assert!(ring.get(0).is_none(), "not heard of");
        assert!(ring.update() && !ring.update());
        let words: Vec<u64> = (0..3).map(|index| ring.get(index).unwrap().word(0)).collect();
        assert_eq!(words, [3 * n as u64, 3 * n as u64 + 1, 3 * n as u64 + 2]);
        assert!(ring.get(3).is_none());
        ring.pop(3);
        assert_eq!(ring.ended(), 3 * n as u32 + 3);
    }
}

/// A poster has room again with the last of the entries, or where the rest of them is not wanted, and no sooner.
#[test]
fn entries_that_are_taken_go_back_together() {
    let (mut poster, mut ring) = WorkRing::<Whole>::new(3, 1, 5);
    for n in 0..10 {
        for word in 3 * n..3 * n + 3 {
            poster.post(|entry| entry.set(0, word)).unwrap();
        }
        ring.update();
        let mut taken = ring.drain(2, |entry| entry.word(0));
        assert_eq!(taken.next(), Some(3 * n));
        assert!(poster.slot().is_none());
        if n % 2 == 0 {
            assert_eq!((taken.next(), taken.next()), (Some(3 * n + 1), None));
            assert!(poster.slot().is_some());
        }
        drop(taken);
        assert!(poster.slot().is_some());
        assert_eq!((ring.len(), ring.get(0).unwrap().word(0)), (1, 3 * n + 2));
        assert!(ring.drain(1, |entry| entry.word(0)).eq([3 * n + 2]));
    }
}

#[test]
fn elements_take_as_many_lines_as_they_need() {
    take::<Whole>(4, &[(0, 1), (2, 1), (3, 2), (16, 5)]);
    take::<Half>(2, &[(0, 1), (1, 1), (2, 2), (3, 2), (16, 9)]);
    assert_eq!(stride::<Whole>(4, 1000), 5, "no request has more than 16");
}

fn take<L: Line>(at: usize, lines: &[(usize, usize)]) {
    for &(max_sge, lines) in lines {
        assert_eq!(stride::<L>(at, max_sge), lines, "{at} {max_sge}");
        let (mut poster, mut ring) = WorkRing::<L>::new(2, at, max_sge);
        let sgl = |count: usize| (0..count as u32).map(sge);
        for count in 0..=max_sge {
            let posted = poster.post(|entry| {
                let len = (0..count as u64).sum();
                assert_eq!(entry.set_elements(at, sgl(count))?, (count as u64, len));
                Ok(())
            });
            assert_eq!(posted, Ok(()));
            ring.update();
            assert!(ring.get(0).unwrap().elements(at, count).eq(sgl(count)));
            ring.pop(1);
        }
        let too_many = poster.post(|entry| entry.set_elements(at, sgl(4 * lines)).map(drop));
        assert_eq!(too_many, Err(PostError::TooManyElements));
        assert!(!ring.update(), "nothing was queued");
    }
}

#[test]
fn a_queue_says_what_it_takes() {
    use crate::qp::{RecvPoster, SendPoster};
    let send = |depth| SendPoster::queue_bytes(depth, 3);
    let recv = |depth| RecvPoster::queue_bytes(depth, 3);
    assert_eq!((send(7) - send(0), recv(7) - recv(0)), (7 * 128, 7 * 64));
    assert!((256..1024).contains(&send(0)) && send(0) == recv(0), "two counts and the rest");
}
