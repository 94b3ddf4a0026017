//! A receiver that is not ready.

use crate::peer::*;
use rocev2::env::Duration;
use rocev2::qp::{Owner, QpState, RecvWr, SendOp, SrqConfig, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::{DropReason, Ext, Reth};

#[test]
fn rnr_01_02_a_send_without_a_receive_is_put_off_until_there_is_one() {
    each(|mut world| {
        world.send(0, 10);
        assert_eq!(world.acks(), [(RNR, 0, 0)]);
        assert_eq!((world.done.len(), world.state()), (0, QpState::Rts));
        world.receive(1, 10);
        world.send(0, 10);
        assert_eq!((world.acks(), world.statuses()), (vec![(ACK, 0, 1)], vec![(1, OK)]));
        world.received(10);
    });
}

#[test]
fn rnr_03_what_follows_a_refusal_is_no_gap() {
    each(|mut world| {
        world.send(0, 10);
        world.acks();
        world.send(1, 10);
        world.send(2, 10);
        world.pass(Duration::from_millis(50));
        assert_eq!((world.acks(), world.done.len()), (vec![], 0));
    });
}

#[test]
fn rnr_04_the_rest_of_a_message_that_was_put_off_is_silent() {
    each(|mut world| {
        world.ask(0, SendFirst, Ext::None, &pattern(P));
        assert_eq!(world.acks(), [(RNR, 0, 0)]);
        world.ask(1, SendMiddle, Ext::None, &pattern(3 * P)[P..2 * P]);
        assert_eq!((world.acks(), world.state()), (vec![], QpState::Rts));
        world.receive(1, 3 * P);
        let packets = [SendFirst, SendMiddle, SendLast];
        for (at, opcode) in packets.into_iter().enumerate() {
            world.ask(at as i32, opcode, Ext::None, &pattern(3 * P)[at * P..][..P]);
        }
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 3 * P as u32));
    });
}

#[test]
fn rnr_05_an_immediate_waits_and_its_data_does_not() {
    each(|mut world| {
        let reth = Reth { va: BASE + SINK as u64, rkey: world.key, len: P as u32 + 8 };
        world.ask(0, WriteFirst, Ext::Reth(reth), &[0xaa; P]);
        world.ask(1, WriteLastImm, Ext::Imm(7), &[0xaa; 8]);
        assert_eq!(world.acks(), [(RNR, 1, 0)]);
        assert!(world.bytes()[SINK..SINK + P] == [0xaa; P]);
        world.receive(1, 0);
        world.ask(1, WriteLastImm, Ext::Imm(7), &[0xaa; 8]);
        assert_eq!((world.acks(), world.statuses()), (vec![(ACK, 1, 1)], vec![(1, OK)]));
        assert!(world.bytes()[SINK..SINK + P + 8] == [0xaa; P + 8]);
        world.guarded(P + 8);
    });
}

#[test]
fn rnr_06_one_shared_receive_serves_one_message() {
    each(|mut world| {
        let srq =
            world.d.create_srq(SrqConfig { owner: 9, pd: PD, depth: 4, max_sge: 16, threshold: 0 });
        let ends = [2, 3].map(|owner| world.another(owner, PD, Some(srq)));
        for end in ends {
            world.end = end;
            world.send(0, 10);
            assert_eq!(world.acks(), [(RNR, 0, 0)]);
        }
        let sgl = world.sgl(SINK, 10);
        world.d.post_srq_recv(srq, RecvWr { id: 1, sgl }).unwrap();
        for (end, answer) in ends.into_iter().zip([(ACK, 0, 1), (RNR, 0, 0)]) {
            world.end = end;
            world.send(0, 10);
            assert_eq!(world.acks(), [answer]);
        }
        assert_eq!((world.statuses(), world.done[0].owner), (vec![(1, OK)], Owner::Qp(2)));
    });
}

/// D's requests are put off with this code, and it waits.
fn pause(code: u8, micros: u64) {
    each(|mut world| {
        (0..2).for_each(|id| world.post(id, SendOp::Send, 8));
        assert_eq!(world.sent().len(), 2);
        world.answer(0, 0x20 + code);
        world.pass(Duration::from_micros(micros) - Duration::from_nanos(1));
        assert_eq!(world.sent(), []);
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.places(), [(SendOnly as u8, 0), (SendOnly as u8, 1)]);
    });
}

#[test]
fn rnr_07_a_pause_lasts_what_its_code_says() {
    pause(14, 1280);
    pause(1, 10);
    pause(31, 491_520);
}

#[test]
fn rnr_08_a_finite_number_of_refusals_ends_the_request() {
    each_with(Terms { rnr_retry: 2, ..TERMS }, |mut world| {
        (1..=3).for_each(|id| world.post(id, SendOp::Send, 8));
        for _ in 0..2 {
            world.sent();
            world.answer(0, 0x2e);
            assert_eq!(world.statuses(), []);
            world.wait();
        }
        world.sent();
        world.answer(0, 0x2e);
        let first = (1, WcStatus::RnrRetryExceeded);
        assert_eq!(world.statuses(), [first, (2, FLUSHED), (3, FLUSHED)]);
        assert_eq!(world.state(), QpState::Err);
    });
}

#[test]
fn rnr_09_seven_is_without_end() {
    each(|mut world| {
        world.post(1, SendOp::Send, 8);
        for _ in 0..200 {
            assert_eq!(world.places(), [(SendOnly as u8, 0)]);
            world.answer(0, 0x2e);
            world.wait();
        }
        world.sent();
        world.answer(0, ACK);
        assert_eq!(world.statuses(), [(1, OK)]);
    });
}

#[test]
fn rnr_10_code_0_is_the_longest_pause() {
    pause(0, 655_360);
}

#[test]
fn rnr_11_a_refusal_of_what_was_acknowledged_is_silent() {
    each(|mut world| {
        (1..=2).for_each(|id| world.post(id, SendOp::Send, 8));
        world.sent();
        world.answer(0, ACK);
        world.silent(0, DropReason::StaleResponse, |world| world.answer(0, 0x2e));
    });
}

#[test]
fn rnr_12_a_receive_counts_from_its_posting_on() {
    each(|mut world| {
        for at in 0..20 {
            world.receive(at as u64, 10);
            world.send(at, 10);
            assert_eq!(world.acks(), [(ACK, at, at as u32 + 1)]);
        }
    });
}
