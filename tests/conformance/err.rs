//! The error state and flushes.

use crate::peer::*;
use rocev2::env::Duration;
use rocev2::ids::{Qpn, Rkey};
use rocev2::qp::{Completion, Owner, QpState, RecvWr, SendOp, SrqConfig, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::mad::GSI_QKEY;
use rocev2::wire::{Bth, Deth, DropReason, Ext};

const WRITE: SendOp = SendOp::Write { va: 0x1234, rkey: Rkey::new(0x77aa) };

#[test]
fn err_01_a_refusal_completes_everything_once() {
    each(|mut world| {
        for id in 0..8 {
            world.post(id, WRITE, 8);
            world.receive(100 + id, 8);
        }
        world.sent();
        world.answer(2, NAK2);
        let (receives, sends): (Vec<&Completion>, Vec<&Completion>) =
            world.done.iter().partition(|done| done.kind.is_receive());
        let statuses: Vec<_> = sends.iter().map(|done| done.status).collect();
        assert_eq!(statuses[..3], [OK, OK, WcStatus::RemoteAccess]);
        assert_eq!(statuses[3..], [FLUSHED; 5]);
        assert!(sends.iter().map(|done| done.id).eq(0..8));
        assert!(receives.iter().map(|done| done.id).eq(100..108));
        assert!(receives.iter().all(|done| done.status == FLUSHED));
    });
}

#[test]
fn err_02_a_message_that_is_cut_off_ends_one_receive() {
    each(|mut world| {
        (0..4).for_each(|id| world.receive(id, 3 * P));
        world.ask(0, SendFirst, Ext::None, &pattern(P));
        world.post(9, WRITE, 8);
        world.sent();
        world.answer(0, NAK2);
        let receives = world.statuses().into_iter().filter(|done| done.0 != 9);
        assert!(receives.eq((0..4).map(|id| (id, FLUSHED))));
        world.is_dropped(DropReason::QpState, |world| {
            world.ask(1, SendLast, Ext::None, &pattern(P));
        });
        assert_eq!(world.done.len(), 5);
    });
}

#[test]
fn err_03_what_is_posted_later_comes_back() {
    each(|mut world| {
        world.post(1, WRITE, 8);
        world.sent();
        world.answer(0, NAK1);
        world.done.clear();
        world.post(2, WRITE, 8);
        world.receive(3, 8);
        assert_eq!(world.sent(), []);
        assert_eq!(world.statuses(), [(2, FLUSHED), (3, FLUSHED)]);
    });
}

#[test]
fn err_04_a_flush_ends_everything_and_nothing_is_touched_later() {
    for (packets, posted) in [(0, false), (0, true), (2, true)] {
        each(|mut world| {
            if posted {
                world.post(1, WRITE, 3 * P);
                world.post(2, SendOp::Read { va: 0x1234, rkey: Rkey::new(1) }, 64);
                world.receive(3, 3 * P);
            }
            let mut buf = [0; 2000];
            for _ in 0..packets {
                world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).unwrap();
            }
            world.d.flush_qp(world.end.qpn);
            assert_eq!(world.sent(), []);
            let all = [(1, FLUSHED), (2, FLUSHED), (3, FLUSHED)];
            assert_eq!(world.statuses(), all[..if posted { 3 } else { 0 }]);
            assert_eq!(world.state(), QpState::Err);
            world.is_dropped(DropReason::QpState, |world| {
                world.data(3, ReadResponseOnly, &[0xaa; 64]);
            });
            world.is_dropped(DropReason::QpState, |world| world.send(0, 10));
            world.guarded(0);
        });
    }
}

/// What is owed to the peer is not sent any more: the answer to a READ, whole or in part, and an ACK.
#[test]
fn err_04_a_flush_silences_what_is_owed() {
    for packets in [0, 1] {
        each(|mut world| {
            let key = world.key;
            world.receive(1, 8);
            world.send(0, 8);
            world.read(1, key, BASE, 3 * P as u32);
            let mut buf = [0; 2000];
            for _ in 0..packets {
                world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).unwrap();
            }
            world.d.flush_qp(world.end.qpn);
            assert_eq!(world.sent(), []);
        });
    }
}

#[test]
fn err_05_a_packet_for_a_failed_queue_pair_is_silent() {
    each(|mut world| {
        world.d.flush_qp(world.end.qpn);
        let key = world.key;
        world.is_dropped(DropReason::QpState, |world| world.send(0, 10));
        world.is_dropped(DropReason::QpState, |world| world.write(0, key, BASE, &[0xaa; 8]));
        world.is_dropped(DropReason::QpState, |world| world.read(0, key, BASE, 8));
        world.is_dropped(DropReason::QpState, |world| world.answer(0, ACK));
        world.guarded(0);
    });
}

#[test]
fn err_06_nothing_is_left_of_a_destroyed_queue_pair() {
    each(|mut world| {
        world.post(1, WRITE, 3 * P);
        world.receive(2, 8);
        let mut buf = [0; 2000];
        assert!(world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).is_some());
        assert!(world.d.poll_timeout().is_some());
        let qpn = world.end.qpn;
        world.d.destroy_qp(qpn);
        assert_eq!(world.sent(), []);
        assert_eq!(world.statuses(), [(1, FLUSHED), (2, FLUSHED)]);
        for _ in 0..10 {
            world.pass(Duration::from_secs(1));
            assert_eq!(world.sent(), []);
        }
        assert_eq!((world.d.qp_state(qpn), world.done.len()), (None, 2));
    });
}

#[test]
fn err_08_a_failed_queue_pair_leaves_the_shared_receives() {
    each(|mut world| {
        let srq =
            world.d.create_srq(SrqConfig { owner: 9, pd: PD, depth: 4, max_sge: 16, threshold: 0 });
        let ends = [2, 3].map(|owner| world.another(owner, PD, Some(srq)));
        for id in 0..3 {
            let sgl = world.sgl(SINK, 3 * P);
            world.d.post_srq_recv(srq, RecvWr { id, sgl }).unwrap();
        }
        world.end = ends[0];
        // It has taken a receive for the message that is cut off.
        world.ask(0, SendFirst, Ext::None, &pattern(P));
        world.ask(1, SendOnly, Ext::None, &pattern(P));
        assert_eq!((world.done.len(), world.state()), (1, QpState::Err));
        world.sent();
        world.end = ends[1];
        for at in 0..2 {
            world.send(at, 10);
        }
        assert_eq!(world.acks().last(), Some(&(ACK, 1, 2)));
        assert_eq!(world.statuses()[1..], [(1, OK), (2, OK)]);
    });
}

#[test]
fn err_09_what_is_flushed_is_named() {
    each(|mut world| {
        world.post(0x1234_5678_9abc_def0, WRITE, 8);
        world.receive(0xfedc_ba98_7654_3210, 8);
        world.d.flush_qp(world.end.qpn);
        world.sent();
        let right = [(0x1234_5678_9abc_def0, FLUSHED), (0xfedc_ba98_7654_3210, FLUSHED)];
        assert_eq!(world.statuses(), right);
        assert!(world.done.iter().all(|done| done.owner == Owner::Qp(1) && !done.silent));
    });
}

#[test]
fn err_10_a_datagram_of_another_size_leaves_connection_management_alive() {
    each(|mut world| {
        for len in [0, 255, 257, 1024, 4096] {
            let bth = Bth { dest_qpn: Qpn::GSI, ..world.bth(0, UdSendOnly) };
            let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
            world.give(&frame(&world.encap, &bth, &ext, &vec![1; len]));
            assert_eq!((world.sent(), world.events.len()), (vec![], 0));
        }
        world.end = world.another(2, PD, None);
        world.works(0);
    });
}
