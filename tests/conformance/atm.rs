//! Atomics. NDK has none, so the adapter offers none: every case is a request that this queue pair
//! does not execute, and ends in "invalid request" (IBTA ch. 9, Responder, unsupported opcode).

use crate::peer::*;
use rocev2::mr::Access;
use rocev2::wire::{AtomicEth, Ext, Opcode};
use tests::rng::Rng;

/// An atomic on the word at `offset` of a region of 64 bytes with these rights.
fn refused(opcode: Opcode, offset: u64, access: Access) {
    each(|mut world| {
        world.receive(1, 100);
        let rkey = world.region(PD, 64, access);
        let (va, compare) =
            (base(1) + offset, u64::from_be_bytes(*pattern(64).first_chunk().unwrap()));
        let ext = Ext::AtomicEth(AtomicEth { va, rkey, swap_or_add: 1, compare });
        world.ask(0, opcode, ext, &[]);
        world.refused(NAK1, 0, 0, 1);
        assert!(world.memory.0[&1] == pattern(64));
    });
}

#[test]
fn atm_01_fetch_and_add_is_refused() {
    refused(Opcode::FetchAdd, 0, ALL);
}

#[test]
fn atm_02_compare_and_swap_is_refused() {
    refused(Opcode::CompareSwap, 0, ALL);
}

/// The word was never changed, so there is no old value to give again: once refused, silent.
#[test]
fn atm_03_a_duplicate_of_a_refused_atomic_is_silent() {
    refused(Opcode::FetchAdd, 8, ALL);
    each(|mut world| {
        world.works(0);
        let atomic = AtomicEth { va: BASE, rkey: world.key, swap_or_add: 1, compare: 0 };
        world.silent(1, rocev2::wire::DropReason::Duplicate, |world| {
            world.ask(0, Opcode::FetchAdd, Ext::AtomicEth(atomic), &[]);
        });
    });
}

#[test]
fn atm_04_a_word_that_is_not_aligned_is_refused() {
    refused(Opcode::FetchAdd, 4, ALL);
}

#[test]
fn atm_05_a_word_beyond_the_region_is_refused() {
    refused(Opcode::FetchAdd, 60, ALL);
}

/// Goal: none of many atomics is executed, whatever is lost and sent again; each ends its own connection, and
/// a connection beside them loses nothing.
/// Method: a fifth of the atomics and of D's answers is lost; the peer sends until it has an answer, or has
/// had none five times.
#[test]
fn atm_06_no_atomic_is_executed_under_loss_and_no_other_connection_notices() {
    each(|mut world| {
        let (mut rng, first) = (Rng(6), world.end);
        let atomic = AtomicEth { va: BASE, rkey: world.key, swap_or_add: 1, compare: 0 };
        let (mut refusals, mut silent) = (0, 0);
        for n in 0..200 {
            world.end = world.another(2 + n, PD, None);
            let opcode = [Opcode::FetchAdd, Opcode::CompareSwap][rng.below(2)];
            let mut answer = None;
            for _ in 0..5 {
                if answer.is_none() && !rng.one_in(5) {
                    world.ask(0, opcode, Ext::AtomicEth(atomic), &[]);
                    let acks = world.acks();
                    answer = acks.first().copied().filter(|_| !rng.one_in(5));
                    silent += usize::from(acks.is_empty());
                }
            }
            if let Some(answer) = answer {
                assert_eq!(answer, (NAK1, 0, 0));
                refusals += 1;
            }
            world.d.destroy_qp(world.end.qpn);
            world.end = first;
            world.works(n as i32);
            world.received(10);
        }
        // Where the one answer was lost, nothing more is said: the connection is no longer there.
        assert!(refusals > 100 && silent > 0, "{refusals} {silent}");
    });
}

#[test]
fn atm_07_an_atomic_without_the_right_is_refused() {
    for opcode in [Opcode::FetchAdd, Opcode::CompareSwap] {
        refused(opcode, 0, Access::LOCAL_WRITE);
    }
}
