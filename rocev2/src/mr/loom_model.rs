//! The models that loom explores: every order of the steps of the cores that share the keys, and every value that
//! the memory model lets a load see.

use super::*;
use crate::env::Rng;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use loom::sync::atomic::AtomicU32;
use loom::thread;

const PD: PdId = PdId(1);
const QPN: Qpn = Qpn::new(5);
const ALL: Access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);

/// Explores up to so many preemptions of a thread.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Keys that two cores share, and one for fast registration.
fn shared() -> (Registrar, [MrTable; 2], Rkey) {
    let mut registrar = Registrar::new(Rng::from_seed([5; 32]), 16, 2);
    let tables = [0, 1].map(|core| registrar.table(core));
    let key = registrar.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
    (registrar, tables, key)
}

const fn memory(region: u32) -> Mapping {
    Mapping { region: RegionId(region), offset: region, base: 0, len: 64, access: ALL }
}

/// Looks a key up in a burst and writes to the memory that it names, of which the owner wrote 0 before.
fn write(mrs: &MrTable, key: Rkey, bytes: &[AtomicU32; 3]) {
    mrs.enter();
    if let Ok((RegionId(region), offset)) = mrs.remote_now(PD, QPN, key, 0, 8, Access::REMOTE_WRITE)
    {
        assert_eq!(u64::from(region), offset, "one state of the key");
        bytes[region as usize].store(1, Relaxed);
    }
    mrs.leave();
}

/// When a mapping has ended, nobody writes to its memory: what its owner writes then stays. The second mapping, of the
/// same key, needs the same care as the first.
#[test]
fn loom_memory_is_the_owners_when_its_mapping_has_ended() {
    explore(2, || {
        let (_registrar, [mut owner, user], key) = shared();
        let bytes: Arc<[AtomicU32; 3]> = Arc::default();
        let seen = Arc::clone(&bytes);
        owner.map(PD, key, &memory(1)).unwrap();
        // One that is over: what is remembered of it must not serve the second mapping.
        write(&user, key, &seen);
        let uses = thread::spawn(move || write(&user, key, &seen));
        for region in [1, 2] {
            let released = owner.invalidate(PD, Invalidator::Owner, key).unwrap();
            assert_eq!(released.map(|released| released.region), Some(RegionId(region)));
            bytes[region as usize].store(7, Relaxed);
            if region == 1 {
                owner.map(PD, key, &memory(2)).unwrap();
            }
        }
        uses.join().unwrap();
        assert_eq!([1, 2].map(|region: usize| bytes[region].load(Relaxed)), [7, 7]);
    });
}

/// The same where the registrar ends the key.
#[test]
fn loom_memory_is_the_owners_when_its_key_has_ended() {
    explore(3, || {
        let (mut registrar, [mut owner, user], key) = shared();
        let bytes: Arc<[AtomicU32; 3]> = Arc::default();
        let seen = Arc::clone(&bytes);
        owner.map(PD, key, &memory(1)).unwrap();
        let uses = thread::spawn(move || write(&user, key, &seen));
        assert!(registrar.deregister(key).unwrap().is_some());
        bytes[1].store(7, Relaxed);
        uses.join().unwrap();
        assert_eq!(bytes[1].load(Relaxed), 7);
    });
}

/// Two cores that end, in their bursts, what the other uses in its burst: both get on.
#[test]
fn loom_two_cores_do_not_wait_for_each_other() {
    explore(2, || {
        let (mut registrar, [mut first, mut second], key) = shared();
        let other = registrar.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
        first.map(PD, key, &memory(1)).unwrap();
        second.map(PD, other, &memory(2)).unwrap();
        let end = move |mrs: &mut MrTable, own: Rkey, others: Rkey| {
            mrs.enter();
            let _ = mrs.remote(PD, QPN, others, 0, 8, Access::REMOTE_WRITE);
            mrs.invalidate(PD, Invalidator::Owner, own).unwrap();
            mrs.leave();
        };
        let ends = thread::spawn(move || end(&mut second, other, key));
        end(&mut first, key, other);
        ends.join().unwrap();
    });
}

/// A key is found, and another that has ended is not, while the places double.
#[test]
fn loom_keys_are_found_while_the_table_grows() {
    explore(2, || {
        let (mut registrar, [_, user], first) = shared();
        let registration =
            Registration { pd: PD, region: RegionId(0), base: 0, len: 8, access: ALL };
        let second = registrar.register(registration).unwrap();
        let looks = thread::spawn(move || {
            assert_eq!(user.check_invalidable(PD, first), Ok(()));
            assert_eq!(user.check_invalidable(PD, second), Err(AccessError::Kind));
        });
        let third = registrar.register(registration).unwrap();
        assert!(registrar.is_fast_register(first) && !registrar.is_fast_register(third));
        looks.join().unwrap();
    });
}
