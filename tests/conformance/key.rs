//! Keys, bounds, windows and invalidation, as a peer meets them. What it cannot see of them is in
//! `rocev2/src/mr/tests.rs`.

use crate::peer::*;
use rocev2::ids::{Lkey, Rkey};
use rocev2::mr::{Access, Bind, PdId, Reserve};
use rocev2::qp::{QpState, SendOp, WcKind, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::{Ext, Reth};

const OTHER: PdId = PdId(2);

/// A WRITE of `len` bytes to a key and address is refused, and changes nothing.
fn refused(place: impl Fn(&mut World) -> (Rkey, u64), len: usize) {
    each(|mut world| {
        let (key, va) = place(&mut world);
        world.write(0, key, va, &vec![0xaa; len]);
        world.refused(NAK2, 0, 0, 0);
        assert!(world.memory.0.values().all(|bytes| *bytes == pattern(bytes.len())));
    });
}

#[test]
fn key_01_before_the_first_byte() {
    refused(|world| (world.key, BASE - 1), 1);
}

#[test]
fn key_02_behind_the_last_byte() {
    refused(|world| (world.key, BASE + REGION as u64), 1);
    // The whole region and one byte more, which its first packet announces.
    each(|mut world| {
        let reth = Reth { va: BASE, rkey: world.key, len: REGION as u32 + 1 };
        world.ask(0, WriteFirst, Ext::Reth(reth), &[0xaa; P]);
        world.refused(NAK2, 0, 0, 0);
        world.guarded(0);
    });
}

#[test]
fn key_03_addresses_do_not_wrap() {
    refused(|world| (world.key, u64::MAX - 7), 8);
    refused(|world| (world.key, u64::MAX), 2);
}

#[test]
fn key_04_the_last_page_of_the_address_space_is_usable() {
    each(|mut world| {
        let key = world.mapped(u64::MAX - 4095, 4096);
        world.write(0, key, u64::MAX, &[0xaa]);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        assert_eq!(world.bytes()[4095..4097], [0xaa, pattern(4097)[4096]]);
    });
}

#[test]
fn key_05_unknown_keys() {
    for bits in [1, 0x80, 0x8000_0000, 0x1_0000] {
        refused(|world| (Rkey::new(world.key.get() ^ bits), BASE), 8);
    }
}

#[test]
fn key_06_a_key_of_another_domain() {
    refused(|world| (world.region(OTHER, 64, ALL), base(1)), 8);
}

#[test]
fn key_07_a_key_without_remote_rights() {
    refused(|world| (world.region(PD, 64, Access::LOCAL_WRITE), base(1)), 8);
}

#[test]
fn key_08_the_other_right() {
    refused(|world| (world.region(PD, 64, Access::LOCAL_WRITE | Access::REMOTE_READ), base(1)), 8);
    each(|mut world| {
        let key = world.region(PD, 64, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        world.read(0, key, base(1), 8);
        world.refused(NAK2, 0, 0, 0);
    });
}

#[test]
fn key_09_a_send_that_ends_a_key_reports_it() {
    each(|mut world| {
        let key = world.mapped(0x9000, 64);
        world.receive(1, 10);
        world.ask(0, SendOnlyInv, Ext::Ieth(key), &pattern(10));
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        assert_eq!(
            (world.done[0].kind, world.done[0].status),
            (WcKind::ReceiveInvalidate(key), OK)
        );
        world.received(10);
        world.write(1, key, 0x9000, &[1]);
        world.refused(NAK2, 1, 1, 1);
    });
}

/// A SEND that asks for the end of this key ends the connection instead.
fn not_ended(key: impl Fn(&mut World) -> Rkey) {
    each(|mut world| {
        (1..=2).for_each(|id| world.receive(id, 10));
        let key = key(&mut world);
        world.ask(0, SendOnlyInv, Ext::Ieth(key), &pattern(10));
        world.refused(NAK3, 0, 0, 2);
        assert_eq!(world.statuses(), [(1, WcStatus::LocalQpOperation), (2, FLUSHED)]);
        // The region goes on to serve other connections.
        world.end = world.another(2, PD, None);
        let key = world.key;
        world.write(0, key, BASE + SINK as u64, &pattern(10));
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
    });
}

#[test]
fn key_10_the_end_of_an_unknown_key_ends_the_connection() {
    not_ended(|world| Rkey::new(world.key.get() ^ 1));
    not_ended(|world| world.d.reserve(PD, Reserve::FastRegister(ALL)).unwrap());
}

#[test]
fn key_11_a_registered_region_is_not_ended_by_a_peer() {
    not_ended(|world| world.key);
}

#[test]
fn key_12_data_is_placed_before_its_key_ends() {
    each(|mut world| {
        let key = world.mapped(0x9000, 3 * P as u64);
        // The receive's own buffer is named by the key that the message ends.
        let sgl = elements(key, &[(0x9000, 3 * P)]);
        let wr = rocev2::qp::RecvWr { id: 1, sgl };
        world.d.post_recv(world.end.qpn, wr).unwrap();
        world.bytes()[..3 * P].fill(0);
        let data = pattern(3 * P);
        for (at, ext) in [Ext::None, Ext::None, Ext::Ieth(key)].into_iter().enumerate() {
            let opcode = [SendFirst, SendMiddle, SendLastInv][at];
            world.ask(at as i32, opcode, ext, &data[at * P..][..P]);
        }
        assert_eq!((world.acks(), world.done[0].status), (vec![(ACK, 2, 1)], OK));
        world.guarded(0);
        world.write(3, key, 0x9000, &[1]);
        world.refused(NAK2, 3, 1, 1);
    });
}

/// NDK reads a token once, so a key stays the same for the life of its object and no part of it is the
/// consumer's to change: after its end it names nothing, and after another mapping what that says.
#[test]
fn key_13_a_key_names_nothing_between_two_mappings() {
    for again in [false, true] {
        each(|mut world| {
            let key = world.mapped(0x9000, 64);
            world.post_bare(1, SendOp::Invalidate(key));
            if again {
                world.map(key, 0x5000, 64);
            }
            assert_eq!(world.sent(), []);
            world.write(0, key, if again { 0x5000 } else { 0x9000 }, &[0xaa]);
            if again {
                assert_eq!((world.acks(), world.bytes()[0]), (vec![(ACK, 0, 1)], 0xaa));
                world.write(1, key, 0x9000, &[0xaa]);
                world.refused(NAK2, 1, 1, 2);
            } else {
                world.refused(NAK2, 0, 0, 1);
                world.guarded(0);
            }
        });
    }
}

/// A request of ours that touches only keys fails, and the queue pair with it.
fn fails(status: WcStatus, post: impl Fn(&mut World)) {
    each(|mut world| {
        post(&mut world);
        assert_eq!(world.sent(), []);
        assert_eq!(world.done.last().map(|done| done.status), Some(status));
        assert_eq!(world.state(), QpState::Err);
    });
}

#[test]
fn key_14_what_is_mapped_is_not_mapped_again() {
    fails(WcStatus::MemoryManagement, |world| {
        let key = world.mapped(0x9000, 64);
        world.map(key, 0x9000, 64);
    });
}

#[test]
fn key_15_no_part_of_a_key_can_be_changed() {
    for bits in [1, 0x100, 0x8000_0000] {
        fails(WcStatus::MemoryManagement, |world| {
            let key = world.d.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
            world.map(Rkey::new(key.get() ^ bits), 0x9000, 64);
        });
    }
}

/// A window over the first 64 bytes of region 1, which has these rights; `change` makes it wrong.
fn bind(world: &mut World, pd: PdId, rights: Access, change: impl FnOnce(&mut Bind)) -> Rkey {
    let region = Lkey::new(world.region(pd, 100, rights).get());
    let window = world.d.reserve(PD, Reserve::Window).unwrap();
    let mut bind = Bind { window, region, va: base(1), len: 64, access: Access::REMOTE_WRITE };
    change(&mut bind);
    world.post_bare(60, SendOp::Bind(bind));
    assert_eq!(world.sent(), []);
    window
}

/// NDK has no right to bind, so no region is without it.
#[test]
fn key_16_a_window_stays_within_its_region_and_its_domain() {
    fails(WcStatus::MemoryBind, |world| {
        bind(world, OTHER, ALL, |_| ());
    });
    fails(WcStatus::MemoryBind, |world| {
        bind(world, PD, Access::REMOTE_READ, |_| ());
    });
    fails(WcStatus::MemoryBind, |world| {
        bind(world, PD, ALL, |bind| bind.len = 101);
    });
    fails(WcStatus::MemoryBind, |world| {
        bind(world, PD, ALL, |bind| bind.va -= 1);
    });
    fails(WcStatus::MemoryBind, |world| {
        bind(world, PD, ALL, |bind| bind.va = u64::MAX);
    });
}

#[test]
fn key_17_a_window_is_bound_once_and_to_something() {
    fails(WcStatus::MemoryBind, |world| {
        bind(world, PD, ALL, |bind| bind.len = 0);
    });
    fails(WcStatus::MemoryBind, |world| {
        let window = bind(world, PD, ALL, |_| ());
        assert_eq!(world.done.last().map(|done| done.status), Some(OK));
        let region = Lkey::new(world.key.get());
        let access = Access::REMOTE_WRITE;
        let again = Bind { window, region, va: BASE, len: 64, access };
        world.post_bare(61, SendOp::Bind(again));
    });
}

#[test]
fn key_18_a_window_serves_the_queue_pair_that_bound_it() {
    each(|mut world| {
        let window = bind(&mut world, PD, ALL, |_| ());
        world.write(0, window, base(1) + 63, &[0xaa]);
        assert_eq!((world.acks(), world.memory.0[&1][63]), (vec![(ACK, 0, 1)], 0xaa));
        world.end = world.another(2, PD, None);
        world.write(0, window, base(1), &[0xbb]);
        world.refused(NAK2, 0, 0, 1);
        assert_eq!(world.memory.0[&1][0], pattern(1)[0]);
    });
}

#[test]
fn key_19_a_window_dies_with_its_region() {
    each(|mut world| {
        let window = world.d.reserve(PD, Reserve::Window).unwrap();
        let (region, access) = (Lkey::new(world.key.get()), Access::REMOTE_WRITE);
        world.post_bare(60, SendOp::Bind(Bind { window, region, va: BASE, len: 64, access }));
        assert_eq!(world.sent(), []);
        assert_eq!(world.statuses(), [(60, OK)]);
        world.d.deregister(world.key).unwrap();
        world.write(0, window, BASE, &[0xaa]);
        world.refused(NAK2, 0, 0, 1);
        world.guarded(0);
    });
}

#[test]
fn key_21_a_key_given_up_does_not_come_back_with_its_memory() {
    each(|mut world| {
        let old = world.region(PD, 64, ALL);
        world.d.deregister(old).unwrap();
        world.memory.0.remove(&1);
        let new = world.region(PD, 64, ALL);
        world.write(0, new, base(1), &[0xaa]);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.write(1, old, base(1), &[0xbb]);
        world.refused(NAK2, 1, 1, 0);
        assert_eq!(world.memory.0[&1][0], 0xaa);
    });
}
