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
