//! What has gone wrong in Linux's `rdma_rxe`, so that it does not go wrong here: every class of error that
//! its public records name and that a provider can have, as a peer or a consumer meets it.
//!
//! | Record | Class | Test |
//! | --- | --- | --- |
//! | CVE-2016-8636, CVE-2026-98365 | a range check whose sum wraps | `cve_2016_8636_and_2026_98365_…` |
//! | CVE-2026-46043 | pad and ICRC longer than the packet | `cve_2026_46043_…` |
//! | commit 4c6f86d (2026) | the header length of an opcode that does not exist | `rxe_4c6f86d_…` |
//! | commit 1114c87 (2026) | ATOMIC_WRITE without its eight bytes | `rxe_1114c87_…` |
//! | CVE-2024-40992 | a datagram that is too long fails the queue pair | `cve_2024_40992_…` |
//! | CVE-2026-93107 | a packet is executed again after its queue pair failed | `cve_2026_93107_…` |
//! | CVE-2024-53229 | completions of a flush that say something else | `cve_2024_53229_…` |
//! | CVE-2021-47076 | no completion for a local key that is wrong | `cve_2021_47076_…` |
//! | CVE-2024-38544 | a packet is used after it was handed on | `cve_2024_38544_…` |
//! | CVE-2026-45910 | a timer after its queue pair | `cve_2026_45910_…` |
//! | CVE-2025-21829 | a queue pair that is not let go while much is under way | `cve_2025_21829_…` |
//! | CVE-2023-53539 | what was sent is wrong after a send had to be put off | `cve_2023_53539_…` |
//! | CVE-2022-49929 | a region that is kept for ever after RNR | `cve_2022_49929_…` |
//! | CVE-2022-50543 | a region that is released twice | `cve_2022_50543_…` |
//! | CVE-2021-47078, CVE-2022-50671, CVE-2022-50885, CVE-2023-53528, CVE-2023-54028, CVE-2025-38024 | what is left of an object that could not be created | `cve_2021_47078_…` |
//! | CVE-2025-68379 | a shared receive queue after a change of size that failed | `cve_2025_68379_…` |
//! | CVE-2026-46325 | an address in a mapping that names another byte | `cve_2026_46325_…`; of pages: `tests/ndkpi/verbs/fast_register.rs` |
//! | CVE-2026-64268 (of `siw`) | an answer that goes on beyond the end of its sink | `cve_2026_64268_…` |
//! | CVE-2024-57795 | an interface that goes away under the adapter | `cve_2024_57795_…` |
//! | commit de32953 (2026) | READ resources by another depth than they were made with | `rxe_de32953_…` |
//! | commit fbbe1d5 (2026) | a window across protection domains | `rxe_fbbe1d5_…` |
//! | CVE-2026-74377, CVE-2026-74378 | a receive that its poster changes while it is used | `cve_2026_74377_…` of `tests/lifetime.rs` |
//!
//! Two kinds have no counterpart: what the kernel shares with a process through `mmap` (commit 35744ab),
//! and the teardown of its own tasks.

use crate::frames::{l4, seal};
use crate::peer::*;
use rocev2::counters::Counter;
use rocev2::env::{Duration, RegionId};
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, Bind, Mapping, PdId, Registration, Reserve};
use rocev2::qp::{Owner, QpState, RecvWr, SendOp, SendWr, SrqConfig, SrqError, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::mad::GSI_QKEY;
use rocev2::wire::{Bth, Deth, DropReason, Ext, Opcode, Reth};

/// The table above names tests that there are, and all of them.
#[test]
fn every_record_has_its_test() {
    let sources = [include_str!("cve.rs"), include_str!("../lifetime/many.rs")];
    let tests = || sources.into_iter().flat_map(crate::catalogue::tests);
    let rows = sources[0].lines().filter_map(|line| line.strip_prefix("//! | "));
    let named: Vec<_> =
        rows.filter_map(|row| row.split('`').find_map(|part| part.strip_suffix('…'))).collect();
    for name in &named {
        assert!(tests().any(|test| test.starts_with(name)), "{name}");
    }
    for test in tests().filter(|test| test.starts_with("cve_") || test.starts_with("rxe_")) {
        assert_eq!(named.iter().filter(|name| test.starts_with(**name)).count(), 1, "{test}");
    }
}

/// Ranges that end beyond 2^64, or just at it: refused, whether written or read, whatever the region.
#[test]
fn cve_2016_8636_and_2026_98365_a_range_does_not_wrap() {
    for top in [false, true] {
        for (va, len) in [
            (u64::MAX - 7, 8),
            (u64::MAX - 7, 16),
            (u64::MAX, 2),
            (0_u64.wrapping_sub(REGION as u64), 2 * REGION as u32),
            (BASE, u32::MAX >> 1),
            (1, 1 << 31),
        ] {
            for write in [false, true] {
                each(|mut world| {
                    // Also on a region that ends with the address space, 8 bytes before the range does.
                    let key = if top { world.mapped(u64::MAX - 15, 8) } else { world.key };
                    let ext = Ext::Reth(Reth { va, rkey: key, len });
                    match (write, len as usize > P) {
                        (true, true) => world.ask(0, WriteFirst, ext, &[0xaa; P]),
                        (true, false) => world.ask(0, WriteOnly, ext, &vec![0xaa; len as usize]),
                        (false, _) => world.ask(0, ReadRequest, ext, &[]),
                    }
                    world.refused(NAK2, 0, 0, 0);
                    world.guarded(0);
                });
            }
        }
    }
}

/// A packet whose UDP length leaves less than headers, pad and ICRC need: silent, at every length and
/// with every pad, and nothing behind its end is read.
#[test]
fn cve_2026_46043_pad_and_icrc_have_to_be_there() {
    each(|mut world| {
        world.receive(1, 100);
        let reth = Ext::Reth(Reth { va: BASE, rkey: world.key, len: 0 });
        let ieth = Ext::Ieth(world.key);
        let headers = [
            (SendOnly, Ext::None),
            (SendOnlyInv, ieth),
            (WriteOnly, reth),
            (ReadRequest, reth),
            (Acknowledge, aeth(ACK)),
            (ReadResponseOnly, aeth(ACK)),
        ];
        for (opcode, ext) in headers {
            let whole = frame(&world.encap, &world.bth(0, opcode), &ext, &[]);
            for pad in 0..4_u8 {
                // From nothing behind the UDP header on; all of the headers, and not all of the pad.
                for len in l4(&whole) + 8..whole.len() + usize::from(pad) {
                    let mut frame = whole.clone();
                    frame.resize(len, 0);
                    let bth = l4(&frame) + 8;
                    if let Some(flags) = frame.get_mut(bth + 1) {
                        *flags = *flags & !0x30 | pad << 4;
                    }
                    if len >= bth + 16 {
                        seal(&mut frame);
                    }
                    let dropped = world.counted_drops().iter().sum::<u64>();
                    world.give(&frame);
                    assert_eq!(world.sent(), []);
                    assert_eq!(world.counted_drops().iter().sum::<u64>(), dropped + 1);
                    assert_eq!((world.done.len(), world.state()), (0, QpState::Rts));
                }
            }
        }
        world.send(0, 10);
        assert_eq!(world.statuses(), [(1, OK)]);
    });
}

/// Opcodes that nobody defined, in the shortest packets there are, to a queue pair and to the number that
/// stands for multicast: one counted drop each.
#[test]
fn rxe_4c6f86d_an_unknown_opcode_has_no_headers() {
    each(|mut world| {
        for opcode in (0..=u8::MAX).filter(|opcode| Opcode::try_from(*opcode).is_err()) {
            for qpn in [world.end.qpn, Qpn::new(0xff_ffff), Qpn::GSI] {
                for len in [0, 4, 48] {
                    let bth = Bth { dest_qpn: qpn, ..world.bth(0, SendOnly) };
                    let mut frame = frame(&world.encap, &bth, &Ext::None, &vec![0; len]);
                    let bth = l4(&frame) + 8;
                    frame[bth] = opcode;
                    seal(&mut frame);
                    world.is_dropped(DropReason::UnknownOpcode, |world| world.give(&frame));
                }
            }
        }
        world.works(0);
    });
}

/// ATOMIC_WRITE is not offered, with whatever is or is not behind its header: refused, and nothing is
/// written.
#[test]
fn rxe_1114c87_an_atomic_write_without_its_bytes_writes_nothing() {
    for (announced, there) in [(0, 0), (0, 8), (8, 0), (8, 4), (8, 8), (8, 12)] {
        each(|mut world| {
            let reth = Reth { va: BASE, rkey: world.key, len: announced };
            world.ask(0, AtomicWrite, Ext::Reth(reth), &vec![0xaa; there]);
            world.guarded(0);
            world.refused(NAK1, 0, 0, 0);
        });
    }
}

/// Datagrams longer and shorter than a management datagram: dropped, and connections come about as
/// before.
#[test]
fn cve_2024_40992_a_datagram_of_a_wrong_length_fails_nothing() {
    each(|mut world| {
        for len in [0, 1, 24, 255, 257, 1024, 4096] {
            let bth = Bth { dest_qpn: Qpn::GSI, ..world.bth(0, UdSendOnly) };
            let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
            world.give(&frame(&world.encap, &bth, &ext, &vec![1; len]));
            assert_eq!((world.sent(), world.events.len()), (vec![], 0));
        }
        world.works(0);
        world.end = world.another(2, PD, None);
        world.works(0);
    });
}

/// A packet fails its queue pair at its very end, its data placed: one receive ends in error, the others
/// flushed, each once; the same packet again does nothing.
#[test]
fn cve_2026_93107_a_packet_that_fails_its_queue_pair_is_executed_once() {
    each(|mut world| {
        (0..8).for_each(|id| world.receive(id, 100));
        let unknown = Ext::Ieth(Rkey::new(world.key.get() ^ 0x100));
        world.ask(0, SendOnlyInv, unknown, &pattern(64));
        let statuses: Vec<_> = world.done.iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(statuses[0], (0, WcStatus::LocalQpOperation));
        assert!(statuses[1..].iter().copied().eq((1..8).map(|id| (id, FLUSHED))));
        world.sent();
        for _ in 0..3 {
            world.is_dropped(DropReason::QpState, |world| {
                world.ask(0, SendOnlyInv, unknown, &[0xaa; 64]);
            });
        }
        world.received(64);
    });
}

/// Requests of every kind are flushed: each completion is its own, of its kind, and says "flushed", also
/// where success was not to be told.
#[test]
fn cve_2024_53229_a_flush_says_what_it_is() {
    each(|mut world| {
        let rkey = Rkey::new(5);
        let window = world.d.reserve(PD, Reserve::Window).unwrap();
        let ops = [
            SendOp::Read { va: 0, rkey },
            SendOp::Send,
            SendOp::SendInvalidate(rkey),
            SendOp::Write { va: 0, rkey },
            SendOp::Invalidate(window),
        ];
        for (id, op) in ops.into_iter().enumerate() {
            let bare = matches!(op, SendOp::Invalidate(_));
            let sgl = world.sgl(SINK, if bare { 0 } else { 64 });
            let sgl = if bare { Default::default() } else { sgl };
            let id = 0xdead_0000_0000 + id as u64;
            let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: true };
            world.post_wr(wr);
        }
        world.receive(0xbeef_0000_0000, 10);
        world.d.flush_qp(world.end.qpn);
        world.sent();
        let ids = (0..5).map(|id| 0xdead_0000_0000 + id).chain([0xbeef_0000_0000]);
        assert!(world.statuses().into_iter().eq(ids.map(|id| (id, FLUSHED))));
        assert!(
            world
                .done
                .iter()
                .all(|done| done.owner == Owner::Qp(1) && done.len == 0 && !done.silent)
        );
        let receives: Vec<_> = world.done.iter().map(|done| done.kind.is_receive()).collect();
        assert_eq!(receives, [false, false, false, false, false, true]);
    });
}

/// A local key that is wrong, in a SEND, a READ's sink and a receive: an error completion, and the rest
/// comes back; nothing waits for ever.
#[test]
fn cve_2021_47076_a_wrong_local_key_has_its_completion() {
    let wrong = |world: &World| elements(Rkey::new(world.key.get() ^ 0x100), &[(BASE, 64)]);
    for op in [SendOp::Send, SendOp::Write { va: 0, rkey: Rkey::new(5) }] {
        each(|mut world| {
            let sgl = wrong(&world);
            let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: true };
            world.post_wr(wr);
            world.post(2, SendOp::Send, 8);
            assert_eq!(world.sent(), []);
            assert_eq!(world.statuses(), [(1, WcStatus::LocalProtection), (2, FLUSHED)]);
            assert_eq!(world.state(), QpState::Err);
        });
    }
    each(|mut world| {
        let sgl = wrong(&world);
        world.d.post_recv(world.end.qpn, RecvWr { id: 1, sgl }).unwrap();
        world.send(0, 64);
        assert_eq!(world.statuses(), [(1, WcStatus::LocalProtection)]);
        world.guarded(0);
        world.refused(NAK3, 0, 0, 1);
    });
    each(|mut world| {
        let (sgl, op) = (wrong(&world), SendOp::Read { va: 0, rkey: Rkey::new(5) });
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
        world.post_wr(wr);
        world.sent();
        world.data(0, ReadResponseOnly, &[0xaa; 64]);
        assert_eq!(world.statuses(), [(1, WcStatus::LocalProtection)]);
        world.guarded(0);
    });
}

/// The answer that ends the last request, again and again, then to the queue pair that is gone: nothing of
/// the first is left to use.
#[test]
fn cve_2024_38544_an_answer_is_over_when_it_was_taken() {
    each(|mut world| {
        world.post(1, SendOp::Read { va: 0, rkey: Rkey::new(5) }, 64);
        world.sent();
        world.data(0, ReadResponseOnly, &pattern(64));
        assert_eq!(world.statuses(), [(1, OK)]);
        for _ in 0..3 {
            world.is_dropped(DropReason::StaleResponse, |world| {
                world.data(0, ReadResponseOnly, &[0xaa; 64]);
            });
        }
        world.d.destroy_qp(world.end.qpn);
        let before = world.d.counters().get(Counter::DropUnknownQpn);
        world.data(0, ReadResponseOnly, &[0xaa; 64]);
        assert_eq!(world.d.counters().get(Counter::DropUnknownQpn), before + 1);
        assert_eq!((world.sent(), world.done.len()), (vec![], 1));
        world.received(64);
    });
}

/// Every timer that a queue pair can have is armed when it is destroyed; another takes its place at once. No
/// timer fires, neither for the old one nor for the new one.
#[test]
fn cve_2026_45910_no_timer_outlives_its_queue_pair() {
    each(|mut world| {
        // All places but the one of the connection are taken, so that the next queue pair gets that.
        while world.d.create_qp(&qp(7, PD, None)).is_some() {}
        world.post(1, SendOp::Send, 8);
        world.sent();
        world.answer(0, RNR);
        // A gap: the second request comes first.
        world.send(1, 8);
        assert!(world.d.poll_timeout().is_some());
        world.d.destroy_qp(world.end.qpn);
        // Its place is free once its completions are taken.
        world.sent();
        let next = world.d.create_qp(&qp(8, PD, None)).unwrap();
        assert_eq!((next.get() ^ world.end.qpn.get()) & 7, 0, "the same place");
        world.sent();
        let done = world.done.len();
        for _ in 0..20 {
            world.pass(Duration::from_secs(1));
            assert_eq!(world.sent(), []);
        }
        assert_eq!((world.done.len(), world.d.qp_state(next)), (done, Some(QpState::Init)));
        assert_eq!(world.d.poll_timeout(), None);
    });
}

/// A queue pair with everything under way ends in one call: each request once, and no more of it.
#[test]
fn cve_2025_21829_a_busy_queue_pair_ends_at_once() {
    each(|mut world| {
        let key = world.key;
        for id in 0..32 {
            world.post(id, SendOp::Send, 8);
            world.receive(100 + id, 100);
        }
        let mut buf = [0; 2000];
        world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).unwrap();
        world.read(0, key, BASE, 16 * P as u32);
        world.send(17, 8);
        world.d.destroy_qp(world.end.qpn);
        assert_eq!((world.sent(), world.d.qp_state(world.end.qpn)), (vec![], None));
        let ids = (0..32).chain(100..132).map(|id| (id, FLUSHED));
        assert!(world.statuses().into_iter().eq(ids), "{:?}", world.statuses());
        world.d.deregister(key).unwrap();
    });
}

/// A send has to be put off again and again, as there is no room for it: what leaves in the end is what
/// would have left at once.
#[test]
fn cve_2023_53539_a_send_that_is_put_off_is_the_same_later() {
    each(|mut world| {
        let places = [(BASE + 3, 1000), (BASE + 5000, 7), (BASE + 9000, 2 * P + 11)];
        let sgl = elements(world.key, &places);
        let (id, op) = (1, SendOp::Send);
        world.post_wr(SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false });
        let (mut data, mut small) = (Vec::new(), [0; 64]);
        loop {
            // Too small for any packet of it.
            let (now, memory) = (world.now, &mut world.memory);
            assert!(world.d.poll_transmit(now, &mut small, 1, memory).is_none());
            let mut buf = [0; 2000];
            let unit = world.d.poll_transmit(now, &mut buf, 1, &mut world.memory);
            let Some(unit) = unit else { break };
            let seen = crate::packet::look(&buf[..unit.len]).unwrap().unwrap();
            data.extend_from_slice(seen.payload);
        }
        let whole = pattern(REGION);
        let right: Vec<u8> = places
            .iter()
            .flat_map(|&(at, len)| whole[(at - BASE) as usize..][..len].to_vec())
            .collect();
        assert!(data == right);
        world.answer(2, ACK);
        assert_eq!(world.statuses(), [(1, OK)]);
    });
}

/// A WRITE whose immediate finds no receive, a thousand times: the region that it wrote to is released
/// when its owner says so, once, and can be used again.
#[test]
fn cve_2022_49929_a_receiver_that_is_not_ready_keeps_no_region() {
    each(|mut world| {
        let key = world.mapped(0x9000, 64);
        let reth = Reth { va: 0x9000, rkey: key, len: 8 };
        for _ in 0..1000 {
            world.ask(0, WriteOnlyImm, Ext::RethImm(reth, 7), &pattern(8));
            assert_eq!(world.acks(), [(RNR, 0, 0)]);
        }
        assert_eq!(world.d.poll_released(), None);
        world.post_bare(1, SendOp::Invalidate(key));
        world.sent();
        assert_eq!(world.d.poll_released().map(|released| released.key), Some(key));
        assert_eq!(world.d.poll_released(), None);
        world.map(key, 0x9000, 64);
        assert_eq!(world.sent(), []);
        world.receive(2, 0);
        world.ask(0, WriteOnlyImm, Ext::RethImm(reth, 7), &pattern(8));
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
    });
}

/// A mapping that cannot be made, and one that is ended from two sides: its region comes back once each.
#[test]
fn cve_2022_50543_a_region_is_released_once() {
    each(|mut world| {
        let key = world.mapped(0x9000, 64);
        // Mapped already: this one fails, and with it the connection.
        world.map(key, 0x9000, 64);
        world.sent();
        assert_eq!(world.statuses(), [(50, WcStatus::MemoryManagement)]);
        let released: Vec<_> = std::iter::from_fn(|| world.d.poll_released()).collect();
        assert_eq!(released.len(), 1, "of the mapping that failed");
        world.d.deregister(key).unwrap();
        let released: Vec<_> = std::iter::from_fn(|| world.d.poll_released()).collect();
        assert_eq!(released.len(), 1, "of the other");
        assert!(world.d.deregister(key).is_err());
        assert_eq!(world.d.poll_released(), None);
    });
}

/// Creations that cannot be done, many times: each is refused, and takes nothing with it. As many objects
/// fit afterwards as before.
#[test]
fn cve_2021_47078_2022_50671_50885_2023_53528_54028_2025_38024_a_failed_creation_leaves_nothing() {
    each(|mut world| {
        let room = |world: &mut World| {
            let create = || world.d.create_qp(&qp(3, PD, None));
            let qps: Vec<_> = std::iter::from_fn(create).collect();
            let registration =
                Registration { pd: PD, region: RegionId(0), base: BASE, len: 8, access: ALL };
            let create = || world.d.register(registration);
            let keys: Vec<_> = std::iter::from_fn(create).collect();
            for _ in 0..100 {
                assert_eq!(world.d.create_qp(&qp(3, PD, None)), None);
                assert_eq!(world.d.reserve(PD, Reserve::Window), None);
            }
            let room = (qps.len(), keys.len());
            qps.into_iter().for_each(|qpn| world.d.destroy_qp(qpn));
            keys.into_iter().for_each(|key| world.d.deregister(key).unwrap());
            room
        };
        let before = room(&mut world);
        assert_eq!(before, (7, 63));
        // A shared queue that is gone.
        let srq =
            world.d.create_srq(SrqConfig { owner: 9, pd: PD, depth: 4, max_sge: 16, threshold: 0 });
        world.d.destroy_srq(srq).unwrap();
        let held = tests::alloc::held();
        for _ in 0..100 {
            assert_eq!(world.d.create_qp(&qp(3, PD, Some(srq))), None);
        }
        assert_eq!(tests::alloc::held(), held);
        assert_eq!(room(&mut world), before);
        world.works(0);
    });
}

/// A change of size that cannot be, twice: refused both times, and the queue serves what is in it.
#[test]
fn cve_2025_68379_a_shared_queue_survives_a_change_that_failed() {
    each(|mut world| {
        let srq =
            world.d.create_srq(SrqConfig { owner: 9, pd: PD, depth: 4, max_sge: 16, threshold: 0 });
        world.end = world.another(2, PD, Some(srq));
        for id in 0..4 {
            let sgl = world.sgl(SINK, 100);
            world.d.post_srq_recv(srq, RecvWr { id, sgl }).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(world.d.modify_srq(srq, Some(3), None), Err(SrqError::Outstanding));
        }
        (0..4).for_each(|at| world.send(at, 10));
        assert!(world.statuses().into_iter().eq((0..4).map(|id| (id, OK))));
        world.d.modify_srq(srq, Some(2), None).unwrap();
        let sgl = world.sgl(SINK, 100);
        world.d.post_srq_recv(srq, RecvWr { id: 4, sgl }).unwrap();
        world.send(4, 10);
        assert_eq!(world.acks(), [(ACK, 4, 5)]);
    });
}

/// A mapping that begins anywhere in its region, under addresses that begin anywhere in a page: each byte
/// has its place, and the first and last have no neighbours.
#[test]
fn cve_2026_46325_an_address_in_a_mapping_names_its_byte() {
    const PLACE: usize = 0x123;
    const LEN: usize = 0x2345;
    each(|mut world| {
        let start = 0x18_1800;
        let key = world.d.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
        let (region, offset, len) = (RegionId(0), PLACE as u32, LEN as u64);
        let mapping = Mapping { region, offset, base: start, len, access: ALL };
        world.post_bare(1, SendOp::FastRegister { key, mapping });
        assert_eq!((world.sent(), world.statuses()), (vec![], vec![(1, OK)]));
        let mut right = pattern(REGION);
        let places = [0, 1, 0x7ff, 0x800, 0x801, 0xfff, 0x1000, 0x17ff, 0x1800, LEN - 1];
        for (at, place) in places.into_iter().enumerate() {
            right[PLACE + place] ^= 0xff;
            world.write(at as i32, key, start + place as u64, &[right[PLACE + place]]);
            assert_eq!(world.acks().len(), 1);
            assert!(*world.bytes() == right, "{place:#x}");
        }
        world.read(places.len() as i32, key, start + 0x7f0, 0x20);
        assert!(world.sent()[0].payload == right[PLACE + 0x7f0..][..0x20]);
        world.write(places.len() as i32 + 1, key, start + LEN as u64, &[1]);
        assert_eq!(world.acks()[0].0, NAK2);
        assert!(*world.bytes() == right);
    });
}

/// The answer to a READ of two packets that does not end: its second packet is not a last one, or is longer
/// than what is left; what follows is of no READ. Nothing is placed behind the sink.
#[test]
fn cve_2026_64268_an_answer_ends_with_its_sink() {
    for (second, len) in [(ReadResponseMiddle, P), (ReadResponseLast, P), (ReadResponseLast, 60)] {
        each(|mut world| {
            world.post(1, SendOp::Read { va: 0, rkey: Rkey::new(5) }, P + 56);
            world.sent();
            world.data(0, ReadResponseFirst, &pattern(P));
            for at in 2..5 {
                world.is_dropped(DropReason::StaleResponse, |world| {
                    world.data(at, ReadResponseMiddle, &[0xaa; P]);
                });
            }
            world.data(1, second, &vec![0xaa; len]);
            assert_eq!(world.statuses(), [(1, WcStatus::BadResponse)]);
            assert_eq!(world.state(), QpState::Err);
            world.received(P);
        });
    }
}

/// The adapter's addresses go away while a connection is in use, and come back: the connection ends at
/// once, without a word, and what arrives meanwhile or later is dropped.
#[test]
fn cve_2024_57795_an_interface_may_go_and_come_back() {
    each(|mut world| {
        world.post(1, SendOp::Send, 8);
        world.post(2, SendOp::Send, 8);
        world.sent();
        let addresses = world.d.config().addresses.clone();
        world.d.set_addresses(world.now, vec![]);
        world.collect();
        assert_eq!(world.statuses(), [(1, WcStatus::PathLost), (2, FLUSHED)]);
        assert_eq!((world.state(), world.sent()), (QpState::Err, vec![]));
        world.is_dropped(DropReason::AddressMismatch, |world| world.send(0, 10));
        world.is_dropped(DropReason::AddressMismatch, |world| world.answer(0, ACK));
        world.pass(Duration::from_millis(1));
        world.d.set_addresses(world.now, addresses);
        world.is_dropped(DropReason::QpState, |world| world.answer(0, ACK));
    });
}

/// A peer asks for more READs at once than D serves, up to all that the field holds, and then sends still
/// more: never more records than D has.
#[test]
fn rxe_de32953_read_resources_follow_the_depth_that_was_agreed_on() {
    for inbound in [1, 8, 9, 16, 17, 255] {
        each_with(Terms { inbound, outbound: 255, ..TERMS }, |mut world| {
            let key = world.key;
            for at in 0..300 {
                world.read(at, key, BASE + 8 * at as u64, 8);
            }
            let sent = world.sent();
            let depth = usize::from(inbound.min(8));
            assert!((depth..=16).contains(&sent.len()), "{}", sent.len());
            for packet in sent {
                let place = 8 * packet.at as usize;
                assert!(packet.payload == pattern(REGION)[place..place + 8]);
            }
            world.works(300);
        });
    }
}

/// A window, its region and its queue pair are of one domain, or nothing is bound.
#[test]
fn rxe_fbbe1d5_a_window_does_not_reach_into_another_domain() {
    const OTHER: PdId = PdId(2);
    for (window_pd, region_pd) in [(OTHER, PD), (PD, OTHER), (OTHER, OTHER)] {
        each(|mut world| {
            let region = Lkey::new(world.region(region_pd, 100, ALL).get());
            let window = world.d.reserve(window_pd, Reserve::Window).unwrap();
            let access = Access::REMOTE_WRITE;
            let bind = Bind { window, region, va: base(1), len: 64, access };
            world.post_bare(60, SendOp::Bind(bind));
            assert_eq!(world.sent(), []);
            assert_eq!(world.statuses(), [(60, WcStatus::MemoryBind)]);
            world.end = world.another(2, PD, None);
            world.write(0, window, base(1), &[0xaa]);
            assert_eq!(world.acks(), [(NAK2, 0, 0)]);
            assert!(world.memory.0[&1] == pattern(100));
        });
    }
}
