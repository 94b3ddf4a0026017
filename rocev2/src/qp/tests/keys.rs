//! Requests that change our own keys, among requests that leave as packets.

use super::*;
use crate::mr::{Bind, Released};

const ALL: Access = Access::LOCAL_WRITE.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE);
const OK: WcStatus = WcStatus::Success;

/// A second name of a node's memory, from `offset` on: region `list` of its own.
fn mapping(list: u32, offset: u32, len: u64) -> Mapping {
    Mapping { region: RegionId(list), offset, base: 0x9000, len, access: ALL }
}

/// A pair whose nodes have 20,000 bytes, three page lists of them each, and a fast-register region. The
/// regions 1 to 3 are separate memory, so that a test sees which one was used.
fn pair_with_frmr() -> (Pair, [Rkey; 2]) {
    pair_of(20_000)
}

fn pair_of(bytes: usize) -> (Pair, [Rkey; 2]) {
    let mut pair = Pair::new(bytes, CLEAN);
    let keys = pair.nodes.each_mut().map(|node| {
        let list = node.memory.0[0].clone();
        node.memory.0.extend([list.clone(), list.clone(), list]);
        node.registrar.reserve(PD, Reserve::FastRegister(ALL)).unwrap()
    });
    (pair, keys)
}

fn local(key: Rkey, len: u32) -> SgList {
    SgList::from_slice(&[Sge { addr: 0x9000, len, lkey: Lkey::new(key.get()) }]).unwrap()
}

impl Node {
    fn released(&mut self) -> Vec<(Rkey, u32)> {
        let mut released = Vec::new();
        while let Some(Released { key, region }) = self.out.pop_released() {
            released.push((key, region.0));
        }
        released
    }

    fn map(&mut self, id: u64, key: Rkey, mapping: Mapping) {
        self.send(id, SendOp::FastRegister { key, mapping }, SgList::new());
    }

    fn invalidate(&mut self, id: u64, key: Rkey) {
        self.send(id, SendOp::Invalidate(key), SgList::new());
    }

    fn is_mapped(&self, key: Rkey) -> bool {
        let lkey = Lkey::new(key.get());
        self.mrs.local(PD, lkey, 0x9000, 1, Access::LOCAL_READ).is_ok()
    }

    fn kinds(&self) -> Vec<(u64, WcKind, WcStatus)> {
        self.done.iter().map(|done| (done.id, done.kind, done.status)).collect()
    }
}

#[test]
fn key_13_registrations_and_their_ends_are_queued_at_once() {
    let (mut pair, [key, _]) = pair_with_frmr();
    let rkey = pair.nodes[1].key;
    let node = &mut pair.nodes[0];
    node.memory.0[1].fill(1);
    node.memory.0[2].fill(2);
    for (step, list) in [(0, 1), (10, 2)] {
        node.map(step, key, mapping(list, 0, 3000));
        let va = BASE + step * 1000;
        node.send(step + 1, SendOp::Write { va, rkey }, local(key, 3000));
        node.invalidate(step + 2, key);
    }
    pair.run_all();
    let kinds = [WcKind::FastRegister, WcKind::Write, WcKind::Invalidate];
    let expected: Vec<_> =
        [0, 1, 2, 10, 11, 12].into_iter().map(|id| (id, kinds[id as usize % 10], OK)).collect();
    assert_eq!(pair.nodes[0].kinds(), expected);
    assert_eq!(pair.nodes[0].released(), [(key, 1), (key, 2)]);
    let far = &pair.nodes[1].memory.0[0];
    assert!(far[..3000].iter().all(|&byte| byte == 1));
    assert!(far[10_000..13_000].iter().all(|&byte| byte == 2));
}

#[test]
fn key_14_what_a_keys_state_forbids_fails_the_qp() {
    for case in 0..4 {
        let (mut pair, [key, _]) = pair_with_frmr();
        let plain = pair.nodes[0].key;
        let node = &mut pair.nodes[0];
        node.map(1, key, mapping(1, 0, 100));
        match case {
            0 => node.map(2, key, mapping(2, 0, 100)),
            1 => node.map(2, plain, mapping(2, 0, 100)),
            2 => node.invalidate(2, plain),
            _ => node.invalidate(2, Rkey::new(key.get() ^ 1)),
        }
        node.map(3, key, mapping(3, 0, 100));
        pair.run_all();
        let node = &mut pair.nodes[0];
        let failed = [(1, OK), (2, WcStatus::MemoryManagement), (3, WcStatus::Flushed)];
        assert_eq!(node.statuses(), failed, "{case}");
        assert_eq!(node.qp.state(), QpState::Err);
        // A region that was not mapped comes back; a mapped one stays until its key ends.
        let released: &[_] = match case {
            0 => &[(key, 2), (key, 3)],
            1 => &[(plain, 2), (key, 3)],
            _ => &[(key, 3)],
        };
        assert_eq!(node.released(), released, "{case}");
        assert!(node.is_mapped(key), "{case}");
    }
}

#[test]
fn key_14_an_end_of_nothing_fails_the_qp() {
    let (mut pair, [key, _]) = pair_with_frmr();
    pair.nodes[0].invalidate(1, key);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::MemoryManagement)]);
}

/// Its failure completes behind the requests before it, each once.
#[test]
fn key_15_a_refused_registration_waits_for_what_came_before() {
    let (mut pair, _) = pair_with_frmr();
    let local_only =
        pair.nodes[0].registrar.reserve(PD, Reserve::FastRegister(Access::LOCAL_WRITE));
    let rkey = pair.nodes[1].key;
    let node = &mut pair.nodes[0];
    let sgl = node.sge(0, 3000);
    node.send(1, SendOp::Write { va: BASE, rkey }, sgl);
    node.map(2, local_only.unwrap(), mapping(1, 0, 100));
    pair.transmit(0);
    assert_eq!(pair.nodes[0].statuses(), []);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, OK), (2, WcStatus::MemoryManagement)]);
}

#[test]
fn key_16_and_17_a_window_that_cannot_be_bound_fails_the_qp() {
    let region = |node: &Node| Lkey::new(node.key.get());
    for case in 0..3 {
        let (mut pair, _) = pair_with_frmr();
        let node = &mut pair.nodes[0];
        let window = node.window();
        let good = Bind { window, region: region(node), va: BASE, len: 8, access: ALL };
        let bad = match case {
            0 => good,
            1 => Bind { len: 0, ..good },
            _ => Bind { va: BASE + 19_999, len: 2, ..good },
        };
        if case == 0 {
            node.send(1, SendOp::Bind(good), SgList::new());
        }
        node.send(2, SendOp::Bind(bad), SgList::new());
        pair.run_all();
        let done = pair.nodes[0].kinds();
        assert_eq!(done.last(), Some(&(2, WcKind::Bind, WcStatus::MemoryBind)), "{case}");
        assert_eq!(pair.nodes[0].qp.state(), QpState::Err);
    }
}

#[test]
fn key_18_and_19_a_peer_writes_through_a_window_until_it_ends() {
    for by_region in [false, true] {
        let (mut pair, [_, key]) = pair_with_frmr();
        let node = &mut pair.nodes[1];
        let window = node.window();
        node.map(1, key, mapping(1, 50, 1000));
        let (region, va) = (Lkey::new(key.get()), 0x9010);
        let bind = Bind { window, region, va, len: 100, access: Access::REMOTE_WRITE };
        node.send(2, SendOp::Bind(bind), SgList::new());
        pair.transmit(1);
        assert_eq!(pair.nodes[1].statuses(), [(1, OK), (2, OK)]);
        let sgl = pair.nodes[0].sge(0, 100);
        let write = SendOp::Write { va, rkey: window };
        pair.nodes[0].send(1, write, sgl.clone());
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), [(1, OK)]);
        let [near, far] = &pair.nodes;
        assert!(far.memory.0[1][66..166] == near.memory.0[0][..100]);
        pair.nodes[1].invalidate(3, if by_region { key } else { window });
        pair.transmit(1);
        pair.nodes[0].send(2, write, sgl);
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), [(1, OK), (2, WcStatus::RemoteAccess)]);
    }
}

#[test]
fn key_18_a_window_of_another_qp_is_refused() {
    let mut pair = ready(1);
    let node = &mut pair.nodes[1];
    let window = node.window();
    let (region, access) = (Lkey::new(node.key.get()), Access::REMOTE_WRITE);
    let bind = Bind { window, region, va: BASE, len: 8, access };
    node.mrs.bind(PD, Qpn::new(4), &bind).unwrap();
    let reth = Ext::Reth(Reth { va: BASE, rkey: window, len: 8 });
    pair.ask(0, Opcode::WriteOnly, reth, 8).unwrap();
    refused(pair, ACCESS, 0, 0, 1, "another QP's window");
}

/// The window cannot be invalidated through another QP, either.
#[test]
fn key_10_a_window_of_another_qp_is_not_ended() {
    let mut pair = ready(1);
    let node = &mut pair.nodes[1];
    let window = node.window();
    let (region, access) = (Lkey::new(node.key.get()), Access::REMOTE_WRITE);
    let bind = Bind { window, region, va: BASE, len: 8, access };
    let owner = Qpn::new(4);
    node.mrs.bind(PD, owner, &bind).unwrap();
    pair.ask(0, Opcode::SendOnlyInv, Ext::Ieth(window), 1).unwrap();
    assert_eq!(pair.nodes[1].statuses(), [(0, WcStatus::LocalQpOperation)]);
    assert!(pair.nodes[1].mrs.remote(PD, owner, window, BASE, 8, access).is_ok());
}

#[test]
fn key_09_a_peer_that_ends_a_mapping_gives_its_pages_back_once() {
    let (mut pair, [_, key]) = pair_with_frmr();
    let node = &mut pair.nodes[1];
    node.map(1, key, mapping(2, 0, 1000));
    node.recv(7, SgList::new());
    pair.transmit(1);
    pair.nodes[0].send(1, SendOp::SendInvalidate(key), SgList::new());
    pair.run_all();
    let node = &mut pair.nodes[1];
    assert_eq!(node.kinds()[1], (7, WcKind::ReceiveInvalidate(key), OK));
    assert_eq!(node.released(), [(key, 2)]);
    assert_eq!(node.registrar.deregister(key), Ok(None));
}

#[test]
fn wrt_12_a_region_that_ends_in_the_middle_of_a_write_takes_no_more() {
    let (mut pair, [_, key]) = pair_with_frmr();
    let node = &mut pair.nodes[1];
    node.map(1, key, mapping(1, 0, 4096));
    pair.transmit(1);
    let before = pair.nodes[1].memory.0[1].clone();
    let reth = Ext::Reth(Reth { va: 0x9000, rkey: key, len: 3 * P as u32 });
    pair.ask(0, Opcode::WriteFirst, reth, P).unwrap();
    // Ended and mapped again at once: the message still holds a place of the old mapping.
    pair.nodes[1].invalidate(2, key);
    pair.nodes[1].map(3, key, mapping(1, 0, 4096));
    pair.taken(1);
    pair.ask(1, Opcode::WriteMiddle, Ext::None, P).unwrap();
    assert!(pair.nodes[1].memory.0[1][..P].iter().all(|&byte| byte == 0x5a));
    assert!(pair.nodes[1].memory.0[1][P..] == before[P..]);
    refused(pair, ACCESS, 1, 0, 3, "ended");
}

#[test]
fn dup_13_a_duplicate_does_not_end_the_mapping_that_followed() {
    let (mut pair, [_, key]) = pair_with_frmr();
    let node = &mut pair.nodes[1];
    node.map(1, key, mapping(1, 0, 100));
    node.recv(2, SgList::new());
    pair.transmit(1);
    pair.ask(0, Opcode::SendOnlyInv, Ext::Ieth(key), 0).unwrap();
    assert!(!pair.nodes[1].is_mapped(key));
    pair.nodes[1].map(3, key, mapping(2, 0, 100));
    pair.transmit(1);
    pair.ask(0, Opcode::SendOnlyInv, Ext::Ieth(key), 0).unwrap();
    assert!(pair.nodes[1].is_mapped(key));
    assert_eq!(pair.nodes[1].released(), [(key, 1)]);
}

/// Node 0 with a READ of 2,000 bytes in flight, and a fast registration posted behind it.
fn behind_a_read(read_fence: bool) -> (Pair, Rkey) {
    let (mut pair, [key, _]) = pair_with_frmr();
    let rkey = pair.nodes[1].key;
    let node = &mut pair.nodes[0];
    let sgl = node.sge(0, 2000);
    node.send(1, SendOp::Read { va: BASE, rkey }, sgl);
    let op = SendOp::FastRegister { key, mapping: mapping(1, 0, 100) };
    let sgl = SgList::new();
    let wr = SendWr { id: 2, op, sgl, solicited: false, read_fence, silent: false };
    node.post(wr).unwrap();
    (pair, key)
}

#[test]
fn req_21_a_fence_holds_a_registration_until_the_read_is_complete() {
    for read_fence in [false, true] {
        let (mut pair, key) = behind_a_read(read_fence);
        pair.transmit(0);
        assert_eq!(pair.nodes[0].is_mapped(key), !read_fence);
        assert_eq!(pair.nodes[0].statuses(), [], "completions keep the order");
        pair.run_all();
        assert!(pair.nodes[0].is_mapped(key));
        assert_eq!(pair.nodes[0].statuses(), [(1, OK), (2, OK)]);
    }
}

#[test]
fn req_22_an_invalidation_waits_until_a_write_is_acknowledged() {
    let (mut pair, [key, _]) = pair_with_frmr();
    let rkey = pair.nodes[1].key;
    let node = &mut pair.nodes[0];
    node.map(1, key, mapping(1, 0, 3000));
    node.send(2, SendOp::Write { va: BASE, rkey }, local(key, 3000));
    node.invalidate(3, key);
    // All packets are lost, and the data have to be read from the mapping once more.
    assert_eq!(pair.taken(0).len(), 3);
    assert!(pair.nodes[0].is_mapped(key));
    assert_eq!(pair.nodes[0].statuses(), [(1, OK)]);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, OK), (2, OK), (3, OK)]);
    assert!(!pair.nodes[0].is_mapped(key));
    let [near, far] = &pair.nodes;
    assert!(far.memory.0[0][..3000] == near.memory.0[1][..3000]);
}

#[test]
fn req_25_a_read_ends_its_sink_with_its_last_byte() {
    let (mut pair, [key, _]) = pair_with_frmr();
    let rkey = pair.nodes[1].key;
    let node = &mut pair.nodes[0];
    node.map(1, key, mapping(1, 0, 3000));
    let sgl = local(key, 3000);
    node.send(2, SendOp::ReadInvalidate { va: BASE, rkey }, sgl);
    // A following request may map the key only behind the READ: it is fenced.
    let op = SendOp::FastRegister { key, mapping: mapping(2, 0, 3000) };
    let sgl = SgList::new();
    let wr = SendWr { id: 3, op, sgl, solicited: false, read_fence: true, silent: true };
    node.post(wr).unwrap();
    pair.run_all();
    let node = &mut pair.nodes[0];
    let kinds =
        [(1, WcKind::FastRegister, OK), (2, WcKind::Read, OK), (3, WcKind::FastRegister, OK)];
    assert_eq!(node.kinds(), kinds);
    assert!(node.done[2].silent && node.is_mapped(key));
    assert_eq!(node.released(), [(key, 1)]);
    let [near, far] = &pair.nodes;
    assert!(near.memory.0[1][..3000] == far.memory.0[0][..3000]);
}

#[test]
fn a_read_cannot_end_a_registered_sink() {
    let (mut pair, _) = pair_with_frmr();
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 100);
    pair.nodes[0].send(1, SendOp::ReadInvalidate { va: BASE, rkey }, sgl);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::MemoryManagement)]);
    assert_eq!(pair.sent[0], [], "nothing was asked of the peer");
}

#[test]
fn err_04_a_flush_gives_the_pages_of_every_registration_not_made_back() {
    let (mut pair, [key, _]) = pair_with_frmr();
    let rkey = pair.nodes[1].key;
    let node = &mut pair.nodes[0];
    node.map(1, key, mapping(1, 0, 100));
    node.send(2, SendOp::Write { va: BASE, rkey }, local(key, 100));
    node.invalidate(3, key);
    node.map(4, key, mapping(2, 0, 100));
    pair.taken(0);
    let node = &mut pair.nodes[0];
    node.qp.flush(&mut node.out);
    node.map(5, key, mapping(3, 0, 100));
    node.collect();
    let flushed = WcStatus::Flushed;
    assert_eq!(node.statuses(), [(1, OK), (2, flushed), (3, flushed), (4, flushed), (5, flushed)]);
    assert_eq!(node.released(), [(key, 2), (key, 3)]);
    // The owner ends a mapping.
    let released = node.registrar.deregister(key).unwrap();
    assert_eq!(released, Some(Released { key, region: RegionId(1) }));
}

#[test]
fn err_07_regions_given_back_have_room_for_a_full_queue() {
    let key = Rkey::new(7);
    let mut out = Completions::default();
    out.reserve_mappings(64);
    (0..10).for_each(|_| out.reserve_key().unwrap());
    let room = out.capacity();
    assert!(room.1 >= 74);
    let (mut poster, mut sq) = SendQueue::new(0, 64, 1);
    for id in 0..64 {
        let op = SendOp::FastRegister { key, mapping: mapping(id as u32, 0, 1) };
        let sgl = SgList::new();
        let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false };
        poster.post(wr).unwrap();
    }
    sq.flush(&mut out);
    for id in 0..10 {
        out.release(Released { key, region: RegionId(id) });
    }
    assert_eq!(out.capacity(), room);
}

/// A caller that bounds them pays for the bound, and for its keys, and not for its queues.
#[test]
fn regions_given_back_have_room_for_as_many_as_there_may_be() {
    let mut out = Completions::new(Some(64));
    let room = out.capacity();
    out.reserve_mappings(10_000);
    assert_eq!((out.room_bytes(0, 10_000), out.capacity()), (0, room));
    let told = out.key_bytes();
    out.reserve_key().unwrap();
    let room = out.capacity();
    assert!(room.1 >= 65 && told >= room.1 * size_of::<Released>());
    for id in 0..65 {
        out.release(Released { key: Rkey::new(7), region: RegionId(id) });
    }
    assert_eq!(out.capacity(), room);
}

/// Goal: over any wire, each mapping serves its own request and ends behind it. Method: chains of
/// registration, WRITE or READ through it, and its end, over a faulty wire.
#[test]
fn req_22_chains_survive_a_faulty_wire() {
    let settings = Settings { faults: [80, 40, 60, 30], segments: 4, ..CLEAN };
    let (mut pair, [key, _]) = pair_of(110_000);
    pair.settings = settings;
    let rkey = pair.nodes[1].key;
    for list in 1..4_u8 {
        pair.nodes[0].memory.0[usize::from(list)].fill(list);
    }
    let chains = 60;
    for chain in 0..chains {
        let list = 1 + chain as u32 % 3;
        let node = &mut pair.nodes[0];
        node.map(chain * 4, key, mapping(list, 0, 5000));
        let (va, sgl) = (BASE, local(key, 5000));
        match chain % 3 {
            0 => {
                let va = va + 10_000 + chain / 3 * 5000;
                node.send(chain * 4 + 1, SendOp::Write { va, rkey }, sgl);
                node.invalidate(chain * 4 + 2, key);
            }
            1 => {
                node.send(chain * 4 + 1, SendOp::Read { va, rkey }, sgl);
                node.invalidate(chain * 4 + 2, key);
            }
            // The next chain's registration has to wait for the end that comes with the data.
            _ => {
                node.send(chain * 4 + 1, SendOp::ReadInvalidate { va, rkey }, sgl);
                pair.run_all();
            }
        }
        if chain % 12 == 11 {
            pair.run_all();
        }
    }
    pair.run_all();
    let node = &mut pair.nodes[0];
    assert!(node.done.iter().all(|done| done.status == OK), "{:?}", node.statuses());
    assert!(node.done.is_sorted_by_key(|done| done.id));
    let ended: Vec<u32> = node.released().into_iter().map(|(_, list)| list).collect();
    assert_eq!(ended, Vec::from_iter((0..chains).map(|chain| 1 + chain as u32 % 3)));
    let [near, far] = &pair.nodes;
    assert!(far.memory.0[0][10_000..].iter().all(|&byte| byte == 1));
    for list in [2, 3] {
        assert!(near.memory.0[list][..5000] == far.memory.0[0][..5000]);
    }
}
