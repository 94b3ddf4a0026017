//! The order of packets at the responder.

use crate::peer::*;
use rocev2::ids::Rkey;
use rocev2::qp::{QpState, RecvWr};
use rocev2::wire::Opcode::*;
use rocev2::wire::{Ext, Opcode, Reth};

#[test]
fn seq_01_a_send_completes_and_is_acknowledged() {
    each(|mut world| {
        world.receive(1, 100);
        world.send(0, 100);
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 100));
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.received(100);
    });
}

/// A SEND of `len` bytes in packets; only the last asks for an acknowledgement.
fn long_send(world: &mut World, at: i32, len: usize) {
    let bytes = pattern(len);
    let packets = bytes.chunks(P);
    let last = packets.len() - 1;
    for (i, payload) in packets.enumerate() {
        let opcode = if i == last { SendLast } else { [SendFirst, SendMiddle][usize::from(i > 0)] };
        let mut bth = world.bth(at + i as i32, opcode);
        bth.ack_req = i == last;
        world.give(&frame(&world.encap, &bth, &Ext::None, payload));
    }
}

#[test]
fn seq_02_a_message_of_three_packets_completes_once() {
    each(|mut world| {
        world.receive(1, 3000);
        long_send(&mut world, 0, 3000);
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 3000));
        assert_eq!(world.acks(), [(ACK, 2, 1)]);
        world.received(3000);
    });
}

#[test]
fn seq_03_a_burst_is_acknowledged_up_to_its_end() {
    each(|mut world| {
        for id in 0..10 {
            world.receive(id, 10);
        }
        for at in 0..10 {
            world.send(at, 10);
        }
        assert_eq!(world.statuses(), Vec::from_iter((0..10).map(|id| (id, OK))));
        assert_eq!(world.acks().last(), Some(&(ACK, 9, 10)));
    });
}

#[test]
fn seq_04_a_send_that_asks_for_no_acknowledgement_completes() {
    each(|mut world| {
        world.receive(1, 10);
        let mut bth = world.bth(0, SendOnly);
        bth.ack_req = false;
        world.give(&frame(&world.encap, &bth, &Ext::None, &pattern(10)));
        assert_eq!(world.statuses(), [(1, OK)]);
        assert!(world.acks().iter().all(|ack| *ack == (ACK, 0, 1)));
    });
}

/// A gap is named once it has lasted longer than reordering does. What comes behind it is kept, and
/// executed in its turn.
#[test]
fn seq_05_06_07_one_nak_names_a_gap_and_each_gap_gets_one() {
    each(|mut world| {
        for id in 0..6 {
            world.receive(id, 10);
        }
        world.send(1, 10);
        assert_eq!(world.acks(), []);
        world.wait();
        assert_eq!(world.acks(), [(NAK0, 0, 0)]);
        assert_eq!((world.done.len(), world.state()), (0, QpState::Rts));
        for (at, kept) in [(2, true), (3, true), (1, false)] {
            let before = world.drops();
            world.send(at, 10);
            assert_eq!(world.drops() == before, kept);
            assert_eq!(world.acks(), []);
        }
        world.send(0, 10);
        assert_eq!(world.acks(), [(ACK, 3, 4)]);
        world.send(5, 10);
        world.wait();
        assert_eq!(world.acks(), [(NAK0, 4, 4)]);
        world.send(4, 10);
        assert_eq!(world.acks(), [(ACK, 5, 6)]);
        assert_eq!(world.statuses(), Vec::from_iter((0..6).map(|id| (id, OK))));
    });
}

#[test]
fn seq_08_psns_turn_around_at_half_of_their_space() {
    each(|mut world| {
        world.receive(1, 10);
        world.send((1 << 23) - 1, 1);
        assert_eq!(world.acks(), [(NAK0, 0, 0)]);
        world.send(1 << 23, 1);
        // A duplicate: what was acknowledged last is acknowledged again.
        assert_eq!(world.acks(), [(ACK, -1, 0)]);
        assert_eq!((world.done.len(), world.state()), (0, QpState::Rts));
    });
}

/// Requests of one packet, each well formed but for its place.
fn requests(world: &World) -> Vec<(Opcode, Ext, usize)> {
    let reth = |len: usize| Reth { va: BASE + SINK as u64, rkey: world.key, len: len as u32 };
    vec![
        (SendFirst, Ext::None, P),
        (SendMiddle, Ext::None, P),
        (SendLast, Ext::None, 8),
        (SendLastImm, Ext::Imm(1), 8),
        (SendLastInv, Ext::Ieth(Rkey::new(1)), 8),
        (SendOnly, Ext::None, 8),
        (SendOnlyImm, Ext::Imm(1), 8),
        (WriteFirst, Ext::Reth(reth(3 * P)), P),
        (WriteMiddle, Ext::None, P),
        (WriteLast, Ext::None, 8),
        (WriteLastImm, Ext::Imm(1), 8),
        (WriteOnly, Ext::Reth(reth(8)), 8),
        (WriteOnlyImm, Ext::RethImm(reth(8), 1), 8),
        (ReadRequest, Ext::Reth(reth(8)), 0),
    ]
}

/// Gives D `second`, behind `first` if there is one; D has to refuse it.
fn out_of_place(first: Option<Opcode>, second: Opcode) {
    each(|mut world| {
        let requests = requests(&world);
        let find = |opcode| *requests.iter().find(|request| request.0 == opcode).unwrap();
        (0..2).for_each(|id| world.receive(id, 3000));
        for (at, opcode) in first.into_iter().chain([second]).enumerate() {
            assert_eq!(world.state(), QpState::Rts);
            world.sent();
            let (opcode, ext, len) = find(opcode);
            world.ask(at as i32, opcode, ext, &pattern(len));
        }
        assert!(world.done.iter().all(|done| done.status != OK), "{first:?} {second:?}");
        world.refused(NAK1, i32::from(first.is_some()), 0, 2);
    });
}

#[test]
fn seq_10_the_middle_of_a_message_that_nobody_began_is_refused() {
    for opcode in
        [SendMiddle, SendLast, SendLastImm, SendLastInv, WriteMiddle, WriteLast, WriteLastImm]
    {
        out_of_place(None, opcode);
    }
}

#[test]
fn seq_11_a_send_is_not_interrupted() {
    for opcode in [
        SendFirst,
        SendOnly,
        SendOnlyImm,
        WriteFirst,
        WriteMiddle,
        WriteLast,
        WriteLastImm,
        WriteOnly,
        WriteOnlyImm,
        ReadRequest,
    ] {
        out_of_place(Some(SendFirst), opcode);
    }
}

#[test]
fn seq_12_a_write_is_not_interrupted() {
    for opcode in [
        WriteFirst,
        WriteOnly,
        WriteOnlyImm,
        SendFirst,
        SendMiddle,
        SendLast,
        SendLastImm,
        SendLastInv,
        SendOnly,
        SendOnlyImm,
        ReadRequest,
    ] {
        out_of_place(Some(WriteFirst), opcode);
    }
}

/// Gives D a packet of a wrong length, behind a SEND_FIRST if it belongs there.
fn wrong_length(opcode: Opcode, len: usize) {
    each(|mut world| {
        (0..2).for_each(|id| world.receive(id, 3 * P));
        let at = i32::from(!opcode.place().is_first());
        if at == 1 {
            world.ask(0, SendFirst, Ext::None, &pattern(P));
            world.sent();
        }
        world.ask(at, opcode, Ext::None, &pattern(len));
        world.refused(NAK1, at, 0, 2);
        world.bytes()[SINK..SINK + P].copy_from_slice(&pattern(SINK + P)[SINK..]);
        world.guarded(0);
    });
}

#[test]
fn seq_13_a_first_packet_is_full() {
    for len in [P - 4, P + 4] {
        wrong_length(SendFirst, len);
    }
}

#[test]
fn seq_14_a_middle_packet_is_full() {
    for len in [P - 4, P + 4] {
        wrong_length(SendMiddle, len);
    }
}

#[test]
fn seq_15_a_last_packet_carries_something_and_fits_the_path() {
    for len in [0, P + 1] {
        wrong_length(SendLast, len);
    }
}

#[test]
fn seq_16_a_message_of_one_packet_may_be_empty_or_full() {
    for len in [0, P] {
        each(|mut world| {
            world.receive(1, P);
            world.send(0, len);
            assert_eq!(world.acks(), [(ACK, 0, 1)]);
            assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], len as u32));
            world.received(len);
        });
    }
    wrong_length(SendOnly, P + 1);
}

#[test]
fn seq_17_a_first_packet_has_no_pad() {
    for len in [P - 1, P - 2, P - 3] {
        wrong_length(SendFirst, len);
    }
}

#[test]
fn seq_18_every_short_length_is_placed_exactly() {
    for len in (0..=8).chain(P - 3..=P) {
        each(|mut world| {
            world.receive(1, P);
            world.send(0, len);
            assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], len as u32));
            world.received(len);
        });
    }
}

#[test]
fn seq_19_a_receive_that_is_too_short_is_not_overrun() {
    for (len, room, at) in [(101, 100, 0), (3000, 2000, 1), (3000, 1000, 0)] {
        each(|mut world| {
            world.receive(1, room);
            world.receive(2, 10);
            if len <= P {
                world.send(0, len);
            } else {
                long_send(&mut world, 0, len);
            }
            let statuses = [(1, rocev2::qp::WcStatus::LocalLength), (2, FLUSHED)];
            assert_eq!(world.statuses(), statuses);
            assert_eq!(world.acks(), [(NAK1, at, 0)]);
            world.guarded(room);
        });
    }
}

#[test]
fn seq_20_a_message_fills_odd_elements_in_order() {
    each(|mut world| {
        let places = [(30, 7), (3, 13), (100, 1981)];
        let addresses = places.map(|(at, len)| (BASE + (SINK + at) as u64, len));
        let sgl = elements(world.key, &addresses);
        world.d.post_recv(world.end.qpn, RecvWr { id: 1, sgl }).unwrap();
        long_send(&mut world, 0, 2001);
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 2001));
        let (mut right, sent) = (pattern(REGION), pattern(2001));
        let mut rest = &sent[..];
        for (at, len) in places {
            right[SINK + at..][..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
        assert!(*world.bytes() == right);
    });
}

/// The immediate itself is dropped: NDK has no place for one in a receive's result.
#[test]
fn seq_21_a_send_with_immediate_completes_as_one_without() {
    each(|mut world| {
        world.receive(1, 100);
        world.ask(0, SendOnlyImm, Ext::Imm(0x0102_0304), &pattern(100));
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 100));
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.received(100);
    });
}

/// Three packets of a SEND; the bit is set in those that `solicited` names. What a queue armed for
/// solicited completions does with it is a matter of the NDK tables.
fn solicits(solicited: [bool; 3]) -> bool {
    let result = std::cell::Cell::new(false);
    each(|mut world| {
        world.receive(1, 3 * P);
        for (at, opcode) in [SendFirst, SendMiddle, SendLast].into_iter().enumerate() {
            let mut bth = world.bth(at as i32, opcode);
            bth.solicited = solicited[at];
            world.give(&frame(&world.encap, &bth, &Ext::None, &pattern(P)));
        }
        assert_eq!(world.statuses(), [(1, OK)]);
        result.set(world.done[0].solicited);
    });
    result.get()
}

#[test]
fn seq_22_the_last_packet_solicits() {
    assert!(solicits([false, false, true]));
    assert!(!solicits([false; 3]));
}

#[test]
fn seq_23_no_other_packet_solicits() {
    assert!(!solicits([true, true, false]));
}
