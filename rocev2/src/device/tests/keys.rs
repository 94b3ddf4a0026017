//! Reserved keys over the life of queue pairs.

use super::*;
use crate::mr::{Bind, Mapping, Reserve};

#[test]
fn a_window_ends_with_the_queue_pair_that_bound_it() {
    let (mut world, [client, server], _) = World::connected(false);
    let device = &mut world.devices[1];
    let window = device.reserve(PD, Reserve::Window).unwrap();
    let region = Lkey::new(world.keys[1].get());
    let access = Access::REMOTE_WRITE;
    let bind = Bind { window, region, va: BASE, len: 64, access };
    let sgl = SgList::new();
    let op = SendOp::Bind(bind);
    let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
    device.post_send(server, wr).unwrap();
    world.run();
    world.post(client, 1, SendOp::Write { va: BASE, rkey: window }, 64);
    world.run();
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
    let device = &mut world.devices[1];
    assert!(device.mrs.remote(PD, server, window, BASE, 1, access).is_ok());
    device.destroy_qp(server);
    assert!(device.mrs.remote(PD, server, window, BASE, 1, access).is_err());
    device.deregister(window).unwrap();
}

/// A key of a fast registration takes room for its last region, and gives it back.
#[test]
fn keys_that_come_and_go_take_no_more_and_more_room() {
    let mut device = Device::new(config(false, 0));
    let mut come_and_go = || {
        let key = device.reserve(PD, Reserve::FastRegister(Access::LOCAL_WRITE)).unwrap();
        device.deregister(key).unwrap();
        device.key_bytes()
    };
    let first = come_and_go();
    assert!((0..1000).all(|_| come_and_go() == first));
}

/// Every list of pages comes back once, whatever becomes of its request, its key and its queue pair.
#[test]
fn regions_come_back_once_in_every_way_that_a_mapping_ends() {
    let (mut world, [client, _], _) = World::connected(false);
    let device = &mut world.devices[0];
    let most = Access::LOCAL_WRITE;
    let keys = [0; 3].map(|_| device.reserve(PD, Reserve::FastRegister(most)).unwrap());
    let post = |world: &mut World, id: u32, op| {
        let sgl = SgList::new();
        let wr =
            SendWr { id: id.into(), op, sgl, solicited: false, read_fence: false, silent: true };
        world.devices[0].post_send(client, wr)
    };
    let map = |key, list| SendOp::FastRegister {
        key,
        mapping: Mapping { region: RegionId(list), offset: 0, base: 0, len: 8, access: most },
    };
    for (list, key) in [(10, keys[0]), (11, keys[1]), (12, keys[2])] {
        post(&mut world, list, map(key, list)).unwrap();
    }
    post(&mut world, 0, SendOp::Invalidate(keys[0])).unwrap();
    world.run();
    let released = |world: &mut World| -> Vec<u32> {
        core::iter::from_fn(|| world.devices[0].poll_released().map(|end| end.region.0)).collect()
    };
    assert_eq!(released(&mut world), [10]);
    world.devices[0].deregister(keys[1]).unwrap();
    assert_eq!(released(&mut world), [11]);
    // Queued and not executed, and then posted to a queue pair that has failed.
    post(&mut world, 13, map(keys[0], 13)).unwrap();
    world.devices[0].flush_qp(client);
    post(&mut world, 14, map(keys[0], 14)).unwrap();
    assert_eq!(released(&mut world), [13, 14]);
    world.devices[0].destroy_qp(client);
    assert_eq!(post(&mut world, 15, map(keys[0], 15)), Err(PostError::UnknownQp));
    assert_eq!(released(&mut world), [], "a request that was not taken is the poster's");
    for key in [keys[0], keys[2]] {
        world.devices[0].deregister(key).unwrap();
    }
    assert_eq!(released(&mut world), [12]);
}

/// Each request that binds or may end a window is heard of once, in order, before it takes effect.
#[test]
fn requests_for_windows_are_heard_of_once() {
    let (mut world, [client, _], _) = World::connected(false);
    let region = Lkey::new(world.keys[0].get());
    let device = &mut world.devices[0];
    let mut poster = device.take_send_poster(client).unwrap();
    assert!(device.take_send_poster(client).is_none());
    let windows = [0; 2].map(|_| device.reserve(PD, Reserve::Window).unwrap());
    let access = Access::REMOTE_READ;
    let [bind, other] =
        windows.map(|window| SendOp::Bind(Bind { window, region, va: BASE, len: 64, access }));
    let end = SendOp::Invalidate(windows[0]);
    let write = SendOp::Write { va: BASE, rkey: world.keys[1] };
    let mut post = |world: &mut World, op| {
        let sgl: [Sge; 0] = [];
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
        poster.post(wr).unwrap();
        assert_eq!(world.devices[0].next_window_request(client), None, "no doorbell rang");
    };
    let heard = |world: &mut World| -> Vec<SendOp> {
        world.devices[0].ring_doorbell(client);
        core::iter::from_fn(|| world.devices[0].next_window_request(client)).collect()
    };
    for op in [bind, write, end, other] {
        post(&mut world, op);
    }
    assert_eq!(heard(&mut world), [bind, end, other]);
    assert_eq!(heard(&mut world), []);
    world.run();
    world.deliver(0);
    assert!(world.statuses(0).iter().all(|(_, status)| *status == WcStatus::Success));
    assert_eq!(world.statuses(0).len(), 4);
    post(&mut world, write);
    assert_eq!(heard(&mut world), []);
    // One that has ended is heard of no more.
    post(&mut world, SendOp::Invalidate(windows[1]));
    world.devices[0].ring_doorbell(client);
    world.run();
    world.deliver(0);
    assert_eq!(heard(&mut world), []);
    let mapped = world.devices[0].reserve(PD, Reserve::FastRegister(access)).unwrap();
    post(&mut world, SendOp::Invalidate(mapped));
    assert_eq!(heard(&mut world), [], "no window");
    let posted = SendWr {
        id: 9,
        op: write,
        sgl: SgList::new(),
        solicited: false,
        read_fence: false,
        silent: false,
    };
    assert_eq!(world.devices[0].post_send(client, posted), Err(PostError::PosterTaken));
}
