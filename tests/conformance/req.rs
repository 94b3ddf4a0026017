//! D as requester.

use crate::packet::number;
use crate::peer::*;
use rocev2::env::Duration;
use rocev2::ids::Rkey;
use rocev2::qp::{QpState, SendOp, SendWr, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::{DropReason, Ext, Opcode};

/// P's memory, as P has told D of it: nothing looks at it here.
const THERE: u64 = 0x1234_5000;
const RKEY: Rkey = Rkey::new(0x77aa);
const WRITE: SendOp = SendOp::Write { va: THERE, rkey: RKEY };
const READ: SendOp = SendOp::Read { va: THERE, rkey: RKEY };

const SEND: u8 = SendOnly as u8;

fn request(world: &World, id: u64, op: SendOp, len: usize) -> SendWr {
    let sgl = world.sgl(0, len);
    SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false }
}

/// D with `count` SENDs of one packet out.
fn sends(world: &mut World, count: u64) {
    (0..count).for_each(|id| world.post(id, SendOp::Send, 8));
    assert_eq!(world.sent().len() as u64, count);
}

#[test]
fn req_01_a_message_is_cut_at_the_path_mtu() {
    each(|mut world| {
        world.post(1, SendOp::Send, 3 * P + 5);
        let sent = world.sent();
        let opcodes = [SendFirst, SendMiddle, SendMiddle, SendLast].map(|opcode| opcode as u8);
        assert!(sent.iter().map(|sent| (sent.opcode, sent.at)).eq(opcodes.into_iter().zip(0..)));
        assert!(sent.iter().map(|sent| sent.ack_req).eq([false, false, false, true]));
        let data: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
        assert!(data == pattern(3 * P + 5));
    });
}

#[test]
fn req_02_only_the_last_packet_solicits() {
    each(|mut world| {
        let wr = request(&world, 1, SendOp::Send, 3 * P);
        world.post_wr(SendWr { solicited: true, ..wr });
        assert!(world.sent().iter().map(|sent| sent.solicited).eq([false, false, true]));
        // Nothing completes at the peer of a WRITE.
        let wr = request(&world, 2, WRITE, 3 * P);
        world.post_wr(SendWr { solicited: true, ..wr });
        assert!(world.sent().iter().map(|sent| sent.solicited).eq([false; 3]));
    });
}

#[test]
fn req_03_one_acknowledgement_completes_all_before_it() {
    each(|mut world| {
        sends(&mut world, 3);
        world.answer(2, ACK);
        assert_eq!(world.statuses(), [(0, OK), (1, OK), (2, OK)]);
    });
}

#[test]
fn req_04_an_acknowledgement_inside_a_message_restarts_the_timer() {
    each(|mut world| {
        world.post(1, SendOp::Send, 3 * P);
        world.sent();
        let deadline = world.d.poll_timeout().unwrap();
        world.pass(deadline.saturating_since(world.now) / 2);
        world.answer(0, ACK);
        assert_eq!((world.statuses(), world.sent()), (vec![], vec![]));
        let sent = loop {
            world.wait();
            match &world.places()[..] {
                [] => continue,
                sent => break sent.to_vec(),
            }
        };
        assert!(world.now > deadline, "the timer went on");
        // The peer is asked what it has, and names what it lacks.
        assert_eq!(sent, [(WriteOnly as u8, 0)]);
        world.answer(1, NAK0);
        assert_eq!(world.places()[0], (SendMiddle as u8, 1));
    });
}

/// The timer runs on the measured round trip, so that there are more resends than `retry_count`; when
/// to give up follows from what was agreed on: timeout * (retries + 1).
#[test]
fn req_05_silence_ends_in_bounded_time() {
    each_with(Terms { retry_count: 2, ..TERMS }, |mut world| {
        sends(&mut world, 3);
        let start = world.now;
        let mut resends = 0;
        while world.done.is_empty() {
            world.wait();
            for sent in world.sent() {
                assert!(sent.is_probe() || (sent.opcode, sent.at) == (SEND, 0), "{sent:?}");
                resends += usize::from(!sent.is_probe());
            }
            assert!(resends < 1000, "for ever");
        }
        assert!(resends >= 2, "{resends}");
        let took = world.now.saturating_since(start);
        // The captured REQ asks for code 17, 0.54 s.
        let timeout = Duration::from_nanos(4096 << 17);
        assert!(took >= timeout * 3 && took <= timeout * 4 * 3, "{took:?}");
        let first = (0, WcStatus::TransportRetryExceeded);
        assert_eq!(world.statuses(), [first, (1, FLUSHED), (2, FLUSHED)]);
    });
}

#[test]
fn req_06_a_nak_acknowledges_what_is_before_it() {
    each(|mut world| {
        sends(&mut world, 5);
        world.answer(3, NAK0);
        assert_eq!(world.statuses(), [(0, OK), (1, OK), (2, OK)]);
        assert_eq!(world.places()[0], (SEND, 3));
    });
}

#[test]
fn req_07_a_nak_that_comes_twice_restarts_once() {
    each(|mut world| {
        sends(&mut world, 5);
        world.answer(3, NAK0);
        assert!(!world.sent().is_empty());
        world.answer(3, NAK0);
        assert_eq!(world.sent(), []);
    });
}

#[test]
fn req_08_a_refusal_fails_its_own_request() {
    for (syndrome, status) in [
        (NAK1, WcStatus::RemoteInvalidRequest),
        (NAK2, WcStatus::RemoteAccess),
        (NAK3, WcStatus::RemoteOperation),
    ] {
        each(|mut world| {
            sends(&mut world, 5);
            world.answer(2, syndrome);
            let right = [(0, OK), (1, OK), (2, status), (3, FLUSHED), (4, FLUSHED)];
            assert_eq!((world.statuses(), world.state()), (right.to_vec(), QpState::Err));
        });
    }
}

#[test]
fn req_09_reserved_syndromes_are_silent() {
    each(|mut world| {
        sends(&mut world, 1);
        for syndrome in (0x40..=0x5f).chain(0x64..=0xff) {
            world.is_dropped(DropReason::ReservedSyndrome, |world| world.answer(0, syndrome));
        }
        world.answer(0, ACK);
        assert_eq!(world.statuses(), [(0, OK)]);
    });
}

#[test]
fn req_10_credits_and_msn_are_not_looked_at() {
    each(|mut world| {
        sends(&mut world, 0x1f);
        for credits in 0..0x1f {
            world.answer(credits.into(), credits);
            assert_eq!(world.done.len(), usize::from(credits) + 1);
        }
        assert!(world.done.iter().all(|done| done.status == OK));
    });
}

#[test]
fn req_11_an_old_acknowledgement_is_silent() {
    each(|mut world| {
        sends(&mut world, 2);
        world.answer(0, ACK);
        world.silent(0, DropReason::StaleResponse, |world| world.answer(0, ACK));
    });
}

/// D with a READ of `len` bytes out.
fn reads(world: &mut World, len: usize) {
    world.post(1, READ, len);
    assert_eq!(world.places(), [(ReadRequest as u8, 0)]);
}

/// Address and length in a READ request.
fn asked(sent: &[Sent]) -> (i32, u64, u64) {
    let [sent] = sent else { panic!("one request: {sent:?}") };
    assert_eq!((sent.opcode, number(&sent.ext, 8, 4)), (ReadRequest as u8, RKEY.get().into()));
    (sent.at, number(&sent.ext, 0, 8), number(&sent.ext, 12, 4))
}

#[test]
fn req_12_a_hole_in_an_answer_is_asked_for_again() {
    each(|mut world| {
        let data = pattern(3 * P);
        reads(&mut world, 3 * P);
        world.data(0, ReadResponseFirst, &data[..P]);
        world.data(2, ReadResponseLast, &data[2 * P..]);
        assert_eq!(world.statuses(), []);
        world.wait();
        // The end has come already, so the hole alone is enough.
        assert_eq!(asked(&world.sent()), (1, THERE + P as u64, P as u64));
        world.data(1, ReadResponseOnly, &data[P..2 * P]);
        assert_eq!(world.statuses(), [(1, OK)]);
        world.received(3 * P);
    });
}

#[test]
fn req_13_a_lost_answer_is_asked_for_again() {
    each(|mut world| {
        reads(&mut world, 3 * P);
        let (probes, again) = world.silence();
        assert_eq!(asked(&again), (0, THERE, 3 * P as u64));
        assert!(probes > 0, "without a question");
    });
}

/// An answer that does not fit a READ of `len` bytes ends the connection, and is not placed.
fn bad_answer(len: usize, opcode: Opcode, answer: usize) {
    each(|mut world| {
        reads(&mut world, len);
        world.data(0, opcode, &vec![0xaa; answer]);
        assert_eq!(world.statuses(), [(1, WcStatus::BadResponse)]);
        assert_eq!(world.state(), QpState::Err);
        world.guarded(0);
    });
}

#[test]
fn req_14_an_answer_of_another_length_ends_the_connection() {
    bad_answer(64, ReadResponseOnly, 60);
    bad_answer(64, ReadResponseOnly, 68);
    bad_answer(64, ReadResponseOnly, 0);
    bad_answer(64, ReadResponseFirst, 64);
}

#[test]
fn req_15_a_first_packet_that_is_not_full_ends_the_connection() {
    bad_answer(3 * P, ReadResponseFirst, P - 4);
    bad_answer(3 * P, ReadResponseFirst, P + 4);
}

#[test]
fn req_16_an_answer_of_another_kind_ends_the_connection() {
    each(|mut world| {
        sends(&mut world, 1);
        world.data(0, ReadResponseOnly, &[0xaa; 8]);
        assert_eq!(world.statuses(), [(0, WcStatus::BadResponse)]);
        world.guarded(0);
    });
    each(|mut world| {
        reads(&mut world, 8);
        let Ext::Aeth(aeth) = aeth(ACK) else { unreachable!("made so") };
        world.respond(0, AtomicAcknowledge, Ext::AtomicAck(aeth, 0), &[]);
        assert_eq!(world.statuses(), [(1, WcStatus::BadResponse)]);
        world.guarded(0);
    });
}

#[test]
fn req_17_a_repeated_answer_completes_once() {
    each(|mut world| {
        let data = pattern(3 * P);
        reads(&mut world, 3 * P);
        for (at, opcode) in
            [(0, ReadResponseFirst), (0, ReadResponseFirst), (1, ReadResponseMiddle)]
        {
            world.data(at, opcode, &data[at as usize * P..][..P]);
        }
        world.data(0, ReadResponseFirst, &[0xaa; P]);
        world.data(2, ReadResponseLast, &data[2 * P..]);
        world.data(2, ReadResponseLast, &[0xaa; P]);
        assert_eq!(world.statuses(), [(1, OK)]);
        world.received(3 * P);
    });
}

#[test]
fn req_18_an_answer_to_a_completed_read_is_silent() {
    each(|mut world| {
        reads(&mut world, 64);
        world.data(0, ReadResponseOnly, &pattern(64));
        world.bytes()[SINK..SINK + 64].fill(0xee);
        world.is_dropped(DropReason::StaleResponse, |world| {
            world.data(0, ReadResponseOnly, &pattern(64));
        });
        assert!(world.bytes()[SINK..SINK + 64] == [0xee; 64]);
        world.works(0);
    });
}

#[test]
fn req_19_no_more_reads_are_in_flight_than_agreed_on() {
    each_with(Terms { outbound: 2, ..TERMS }, |mut world| {
        (0..5).for_each(|id| world.post(id, READ, 8));
        assert_eq!(world.sent().len(), 2);
        for at in 0..5 {
            world.data(at, ReadResponseOnly, &pattern(8));
            let next: Vec<_> = (at + 2..5).take(1).map(|at| (ReadRequest as u8, at)).collect();
            assert_eq!(world.places(), next);
        }
        assert_eq!(world.done.len(), 5);
    });
}

#[test]
fn req_20_nothing_overtakes_a_read_that_waits() {
    each_with(Terms { outbound: 1, ..TERMS }, |mut world| {
        (0..2).for_each(|id| world.post(id, READ, 8));
        world.post(2, SendOp::Send, 8);
        assert_eq!(world.places(), [(ReadRequest as u8, 0)]);
        world.data(0, ReadResponseOnly, &pattern(8));
        assert_eq!(world.places(), [(ReadRequest as u8, 1), (SEND, 2)]);
    });
}

#[test]
fn req_21_a_fenced_request_leaves_after_the_reads_before_it() {
    each(|mut world| {
        reads(&mut world, 2 * P);
        let wr = request(&world, 2, SendOp::Send, 8);
        world.post_wr(SendWr { read_fence: true, ..wr });
        assert_eq!(world.sent(), []);
        world.data(0, ReadResponseFirst, &pattern(2 * P)[..P]);
        assert_eq!(world.sent(), []);
        world.data(1, ReadResponseLast, &pattern(2 * P)[P..]);
        assert_eq!(world.places(), [(SEND, 2)]);
    });
}

#[test]
fn req_22_an_invalidation_waits_until_a_write_is_acknowledged() {
    each(|mut world| {
        let key = world.mapped(0x9000, 64);
        let sgl = elements(key, &[(0x9000, 64)]);
        let wr = request(&world, 1, WRITE, 0);
        world.post_wr(SendWr { sgl, ..wr });
        world.post_bare(2, SendOp::Invalidate(key));
        assert_eq!(world.sent()[0].payload, pattern(64));
        world.write(0, key, 0x9000, &pattern(64));
        assert_eq!((world.acks(), world.statuses()), (vec![(ACK, 0, 1)], vec![]));
        world.answer(0, ACK);
        assert_eq!(world.sent(), []);
        assert_eq!(world.statuses(), [(1, OK), (2, OK)]);
        world.write(1, key, 0x9000, &pattern(64));
        world.refused(NAK2, 1, 1, 2);
    });
}

/// A request that wants no completion comes back too, marked, because it frees a place in the queue.
fn unsignalled(syndrome: u8) -> Vec<(u64, WcStatus, bool)> {
    let result = std::cell::RefCell::new(Vec::new());
    each(|mut world| {
        let wr = request(&world, 1, WRITE, 8);
        world.post_wr(SendWr { silent: true, ..wr });
        world.post(2, SendOp::Send, 8);
        assert_eq!(world.sent().len(), 2);
        world.answer(i32::from(syndrome == ACK), syndrome);
        let done = world.done.iter().map(|done| (done.id, done.status, done.silent));
        result.replace(done.collect());
    });
    result.take()
}

#[test]
fn req_23_an_unsignalled_request_is_not_reported() {
    assert_eq!(unsignalled(ACK), [(1, OK, true), (2, OK, false)]);
}

#[test]
fn req_24_the_failure_of_an_unsignalled_request_is_reported() {
    assert_eq!(unsignalled(NAK2), [(1, WcStatus::RemoteAccess, false), (2, FLUSHED, false)]);
}

#[test]
fn req_25_a_sink_that_goes_away_fails_its_read() {
    each(|mut world| {
        reads(&mut world, 2 * P);
        world.data(0, ReadResponseFirst, &pattern(2 * P)[..P]);
        world.d.deregister(world.key).unwrap();
        world.data(1, ReadResponseLast, &[0xaa; P]);
        assert_eq!(world.statuses(), [(1, WcStatus::LocalProtection)]);
        assert_eq!(world.state(), QpState::Err);
        world.received(P);
    });
}

#[test]
fn req_26_a_message_of_nothing_is_one_packet() {
    each(|mut world| {
        for (id, op) in [SendOp::Send, WRITE, READ].into_iter().enumerate() {
            world.post(id as u64, op, 0);
        }
        let opcodes = [SendOnly, WriteOnly, ReadRequest].map(|opcode| opcode as u8);
        let sent = world.sent();
        assert!(sent.iter().map(|sent| (sent.opcode, sent.at)).eq(opcodes.into_iter().zip(0..)));
        assert!(sent.iter().all(|sent| sent.payload.is_empty()));
        world.answer(1, ACK);
        world.data(2, ReadResponseOnly, &[]);
        assert_eq!(world.statuses(), [(0, OK), (1, OK), (2, OK)]);
    });
}

#[test]
fn req_27_a_window_bounds_what_is_in_flight() {
    each_with(Terms { bytes: 1 << 20, ..TERMS }, |mut world| {
        world.post(1, SendOp::Send, 1 << 20);
        let window = world.d.config().window.bytes as usize / P;
        let sent = world.sent();
        assert_eq!(sent.len(), window);
        assert!(sent.last().is_some_and(|sent| sent.ack_req), "else nobody could open it again");
        world.answer(9, ACK);
        assert_eq!(world.sent().len(), 10);
    });
}

#[test]
fn req_28_the_same_stimulus_gives_the_same_packets() {
    let run = |v6| {
        let mut world = World::new(v6, TERMS);
        let mut all = Vec::new();
        (0..5).for_each(|id| world.post(id, if id == 2 { READ } else { WRITE }, 3 * P + 7));
        for at in [3, 5, 9] {
            all.push((world.now, world.end.first, world.sent()));
            world.answer(at, if at == 5 { NAK0 } else { ACK });
            world.read(at, world.key, BASE, 2 * P as u32);
            world.wait();
        }
        all.push((world.now, world.end.first, world.sent()));
        all
    };
    for v6 in [false, true] {
        assert_eq!(run(v6), run(v6));
    }
}

#[test]
fn req_29_the_first_psn_is_the_one_that_the_peer_named() {
    each(|mut world| {
        world.post(0, SendOp::Send, 10);
        assert_eq!(world.end.first[1].get(), 0xff_fff0, "as in P's REQ");
        assert_eq!(world.places(), [(SEND, 0)]);
    });
}

#[test]
fn req_30_a_resend_is_the_same_packet() {
    each(|mut world| {
        world.post(1, WRITE, 100);
        let first = world.sent();
        assert_eq!(first[0].opcode, WriteOnly as u8);
        let reth = [(0, 8), (8, 4), (12, 4)].map(|(at, len)| number(&first[0].ext, at, len));
        assert_eq!(reth, [THERE, RKEY.get().into(), 100]);
        assert_eq!(world.silence().1, first);
    });
}
