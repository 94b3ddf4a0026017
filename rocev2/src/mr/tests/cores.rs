//! Several cores that share the keys.

use super::*;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const STEPS: u32 = if cfg!(miri) { 40 } else { 20_000 };

fn shared<const N: usize>() -> (Registrar, [MrTable; N]) {
    let registrar = Registrar::new(Rng::from_seed([5; 32]), 1 << 16, N);
    let mut tables = core::array::from_fn(|core| registrar.table(core));
    tables.iter_mut().for_each(|mrs| mrs.make_room(8).unwrap());
    (registrar, tables)
}

fn fast_register(registrar: &mut Registrar) -> Rkey {
    registrar.reserve(PD, Reserve::FastRegister(ALL)).unwrap()
}

/// A burst of a core, in which it does this.
fn burst<T>(mrs: &MrTable, work: impl FnOnce(&MrTable) -> T) -> T {
    mrs.enter();
    let done = work(mrs);
    mrs.leave();
    done
}

fn reaches(mrs: &MrTable, key: Rkey) -> Result<Target, AccessError> {
    mrs.remote(PD, QPN, key, 0, 8, WRITE)
}

/// Whether `end`, on a thread of its own, is done before this core leaves the burst; it is soon after.
fn ends_within_the_burst(mrs: &MrTable, end: impl FnOnce() + Send) -> bool {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            end();
            ended.store(true, Relaxed);
        });
        let until = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < until && !ended.load(Relaxed) {
            thread::yield_now();
        }
        let early = ended.load(Relaxed);
        mrs.leave();
        early
    })
}

#[test]
fn what_one_core_ends_names_nothing_to_the_others() {
    let (mut registrar, [mut first, second]) = shared();
    let key = fast_register(&mut registrar);
    assert_eq!(burst(&second, |mrs| reaches(mrs, key)), Err(AccessError::UnknownKey));
    first.map(PD, key, &mapping(0, 64, ALL)).unwrap();
    let target = burst(&second, |mrs| reaches(mrs, key)).unwrap();
    assert_eq!(burst(&second, |mrs| mrs.region(&target)), Some(RegionId(4)));
    let released = first.invalidate(PD, Invalidator::Peer(QPN), key).unwrap();
    assert_eq!(released, Some(Released { key, region: RegionId(4) }));
    first.map(PD, key, &mapping(0, 64, ALL)).unwrap();
    assert_eq!(burst(&second, |mrs| mrs.region(&target)), None);
    assert!(burst(&second, |mrs| reaches(mrs, key)).is_ok());
    registrar.deregister(key).unwrap();
    assert_eq!(burst(&second, |mrs| reaches(mrs, key)), Err(AccessError::UnknownKey));
}

#[test]
fn an_end_waits_for_the_burst_of_a_core_that_uses_the_memory() {
    let (mut registrar, [mut first, second]) = shared();
    let [plain, local, mapped, other] = [0; 4].map(|_| {
        let registration =
            Registration { pd: PD, region: RegionId(3), base: 0, len: 64, access: ALL };
        registrar.register(registration).unwrap()
    });
    let frmr = fast_register(&mut registrar);
    first.map(PD, frmr, &mapping(0, 64, ALL)).unwrap();
    let window = registrar.reserve(PD, Reserve::Window).unwrap();
    first.bind(PD, QPN, &window_on(window, mapped, 0, 64, WRITE)).unwrap();

    second.enter();
    assert!(reaches(&second, plain).is_ok());
    assert!(!ends_within_the_burst(&second, || {
        let _ = registrar.deregister(plain);
    }));

    second.enter();
    let lkey = Lkey::new(local.get());
    assert!(LocalKeys::new(&second, PD).local(lkey, 0, 8, Access::LOCAL_READ).is_ok());
    assert!(!ends_within_the_burst(&second, || {
        let _ = registrar.deregister(local);
    }));

    second.enter();
    assert!(reaches(&second, frmr).is_ok());
    let end = || {
        let _ = first.invalidate(PD, Invalidator::Owner, frmr);
    };
    assert!(!ends_within_the_burst(&second, end));

    // Through a window it is the region's memory that is used.
    second.enter();
    assert!(reaches(&second, window).is_ok());
    assert!(!ends_within_the_burst(&second, || {
        let _ = registrar.deregister(mapped);
    }));

    // It does not wait for one that does not: this would not return.
    second.enter();
    registrar.deregister(other).unwrap();
    second.leave();
}

#[test]
fn the_end_of_a_queue_pair_waits_for_the_users_of_its_windows() {
    let (mut registrar, [mut first, second]) = shared();
    let registration = Registration { pd: PD, region: RegionId(3), base: 0, len: 64, access: ALL };
    let region = registrar.register(registration).unwrap();
    let window = registrar.reserve(PD, Reserve::Window).unwrap();
    first.bind(PD, QPN, &window_on(window, region, 0, 64, WRITE)).unwrap();
    second.enter();
    assert!(reaches(&second, window).is_ok());
    assert!(!ends_within_the_burst(&second, || first.unbind_qp(QPN)));
    assert_eq!(burst(&second, |mrs| reaches(mrs, window)), Err(AccessError::UnknownKey));
}

/// Each uses, in one burst, what the other ends in one.
#[test]
fn two_cores_that_wait_for_each_other_do_not_wait_for_ever() {
    let (mut registrar, mut tables) = shared::<2>();
    let keys = [0; 2].map(|_| fast_register(&mut registrar));
    thread::scope(|scope| {
        for (core, mrs) in tables.iter_mut().enumerate() {
            scope.spawn(move || {
                for _ in 0..STEPS {
                    mrs.map(PD, keys[core], &mapping(0, 64, ALL)).unwrap();
                    mrs.enter();
                    let _ = keys.map(|key| reaches(mrs, key));
                    mrs.invalidate(PD, Invalidator::Owner, keys[core]).unwrap();
                    let _ = keys.map(|key| reaches(mrs, key));
                    mrs.leave();
                }
            });
        }
    });
}

/// One core maps memory after memory. Others find only such as is theirs until their burst ends, and never the
/// address of one with the bytes of another.
#[test]
fn a_core_uses_memory_that_no_one_has_back_yet() {
    let (mut registrar, [mut maps, reads, reads_too]) = shared();
    let key = fast_register(&mut registrar);
    let (owned, done) = (AtomicU32::new(u32::MAX), AtomicBool::new(false));
    thread::scope(|scope| {
        for mrs in [reads, reads_too] {
            let (owned, done) = (&owned, &done);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    burst(&mrs, |mrs| {
                        let base = u64::from(owned.load(Relaxed));
                        let found = mrs.remote_now(PD, QPN, key, base.wrapping_mul(16), 16, WRITE);
                        let Ok((RegionId(region), offset)) = found else { return };
                        assert_eq!((u64::from(region), offset), (base, base));
                        thread::yield_now();
                        assert_eq!(owned.load(Relaxed), region, "the owner has it back");
                    });
                }
            });
        }
        for step in 0..STEPS {
            owned.store(step, Relaxed);
            let base = u64::from(step) * 16;
            let region = RegionId(step);
            let mapping = Mapping { region, offset: step, base, len: 16, access: ALL };
            maps.map(PD, key, &mapping).unwrap();
            let released = maps.invalidate(PD, Invalidator::Owner, key).unwrap();
            assert_eq!(released.map(|released| released.region), Some(region));
            owned.store(u32::MAX, Relaxed);
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn keys_are_found_while_the_table_grows() {
    const KEYS: usize = if cfg!(miri) { 1 << 4 } else { 1 << 15 };
    let (mut registrar, [_, mrs]) = shared();
    let (made, known) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut keys = Vec::new();
            for (base, key) in known {
                keys.push((base, key));
                burst(&mrs, |mrs| {
                    for (base, key) in keys.iter().rev().step_by(1 + keys.len() / 16) {
                        assert!(mrs.remote(PD, QPN, *key, *base, 64, WRITE).is_ok());
                    }
                });
            }
            assert_eq!(keys.len(), KEYS);
        });
        for at in 0..KEYS {
            let (base, region) = (at as u64 * 64, RegionId(3));
            let registration = Registration { pd: PD, region, base, len: 64, access: ALL };
            made.send((base, registrar.register(registration).unwrap())).unwrap();
        }
        drop(made);
    });
}

/// A core remembers the windows of its queue pairs, in the room that was made once, although others end them.
#[test]
fn windows_that_others_end_take_no_more_and_more_room() {
    const WINDOWS: usize = 8;
    let (mut registrar, [mut first, mut second]) = shared();
    let registration = Registration { pd: PD, region: RegionId(3), base: 0, len: 64, access: ALL };
    let region = registrar.register(registration).unwrap();
    let reserve = |registrar: &mut Registrar| registrar.reserve(PD, Reserve::Window).unwrap();
    let mut windows: [Rkey; WINDOWS] = core::array::from_fn(|_| reserve(&mut registrar));
    let full = first.growth_bytes(WINDOWS);
    assert_eq!(full, 0, "there is room");
    for step in 0..if cfg!(miri) { 60 } else { 1000 } {
        let at = step as usize % WINDOWS;
        let qpn = Qpn::new(step);
        first.bind(PD, qpn, &window_on(windows[at], region, 0, 8, WRITE)).unwrap();
        match step % 3 {
            0 => assert_eq!(second.invalidate(PD, Invalidator::Peer(qpn), windows[at]), Ok(None)),
            1 => assert_eq!(first.invalidate(PD, Invalidator::Owner, windows[at]), Ok(None)),
            _ => {
                registrar.deregister(windows[at]).unwrap();
                windows[at] = reserve(&mut registrar);
            }
        }
    }
    // Another core binds what this one remembers, and the end of the first queue pair is not that of the second.
    let (here, there) = (Qpn::new(2000), Qpn::new(2001));
    first.bind(PD, here, &window_on(windows[0], region, 0, 8, WRITE)).unwrap();
    second.invalidate(PD, Invalidator::Owner, windows[0]).unwrap();
    second.bind(PD, there, &window_on(windows[0], region, 0, 8, WRITE)).unwrap();
    first.unbind_qp(here);
    let reached = burst(&first, |mrs| mrs.remote(PD, there, windows[0], 0, 8, WRITE));
    assert!(reached.is_ok());
    second.unbind_qp(there);
    let reached = burst(&first, |mrs| mrs.remote(PD, there, windows[0], 0, 8, WRITE));
    assert_eq!(reached, Err(AccessError::UnknownKey));
}

/// Two cores that name each other's windows as regions to bind to are refused, and neither waits for ever.
#[test]
fn windows_bound_to_windows_are_refused_on_both_sides() {
    let (mut registrar, mut tables) = shared::<2>();
    let windows = [0; 2].map(|_| registrar.reserve(PD, Reserve::Window).unwrap());
    thread::scope(|scope| {
        for (core, mrs) in tables.iter_mut().enumerate() {
            let bind = window_on(windows[core], windows[1 - core], 0, 8, WRITE);
            scope.spawn(move || {
                for _ in 0..STEPS {
                    assert_eq!(mrs.bind(PD, QPN, &bind), Err(AccessError::Kind));
                }
            });
        }
    });
}
