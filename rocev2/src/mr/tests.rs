//! Keys on their own: what each names, when, and for whom.

mod cores;

use super::*;
use crate::env::Rng;
use core::ops::{Deref, DerefMut};
use std::collections::{BTreeSet, VecDeque};
use std::vec;
use std::vec::Vec;

const PD: PdId = PdId(1);
const OTHER: PdId = PdId(2);
const QPN: Qpn = Qpn::new(5);
const ALL: Access = Access::LOCAL_WRITE.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE);
const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;

/// The keys of a device of one core: the registrar's side, and the core's.
struct Keys {
    registrar: Registrar,
    mrs: MrTable,
}

impl Keys {
    fn new(seed: u8, limit: usize) -> Self {
        let registrar = Registrar::new(Rng::from_seed([seed; 32]), limit, 1);
        Self { mrs: registrar.table(0), registrar }
    }

    fn reserve(&mut self, pd: PdId, what: Reserve) -> Option<Rkey> {
        self.mrs.make_room(self.registrar.windows() + 1)?;
        self.registrar.reserve(pd, what)
    }

    fn deregister(&mut self, key: Rkey) -> Result<Option<Released>, AccessError> {
        self.registrar.deregister(key)
    }
}

impl Deref for Keys {
    type Target = MrTable;

    fn deref(&self) -> &MrTable {
        &self.mrs
    }
}

impl DerefMut for Keys {
    fn deref_mut(&mut self) -> &mut MrTable {
        &mut self.mrs
    }
}

fn table() -> Keys {
    Keys::new(7, 1 << 14)
}

fn registered(mrs: &mut Keys, base: u64, len: u64, access: Access) -> Rkey {
    mrs.registrar.register(Registration { pd: PD, region: RegionId(3), base, len, access }).unwrap()
}

fn mapping(base: u64, len: u64, access: Access) -> Mapping {
    Mapping { region: RegionId(4), offset: 0, base, len, access }
}

/// A fast-register region that is mapped.
fn mapped(mrs: &mut Keys, base: u64, len: u64) -> Rkey {
    let key = mrs.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
    mrs.map(PD, key, &mapping(base, len, ALL)).unwrap();
    key
}

const fn window_on(window: Rkey, region: Rkey, va: u64, len: u64, access: Access) -> Bind {
    Bind { window, region: Lkey::new(region.get()), va, len, access }
}

/// A window that is bound.
fn bound(mrs: &mut Keys, region: Rkey, va: u64, len: u64, access: Access) -> Rkey {
    let window = mrs.reserve(PD, Reserve::Window).unwrap();
    mrs.bind(PD, QPN, &window_on(window, region, va, len, access)).unwrap();
    window
}

fn write(mrs: &MrTable, key: Rkey, va: u64, len: u64) -> Result<u64, AccessError> {
    mrs.remote(PD, QPN, key, va, len, WRITE).map(|target| target.offset)
}

#[test]
fn key_01_to_04_bounds_hold_at_every_edge() {
    let mut mrs = table();
    let region = registered(&mut mrs, 0, 1 << 20, ALL);
    for key in [
        registered(&mut mrs, 0x1000, 0x100, ALL),
        mapped(&mut mrs, 0x1000, 0x100),
        bound(&mut mrs, region, 0x1000, 0x100, WRITE),
    ] {
        let start = write(&mrs, key, 0x1000, 0x100).unwrap();
        assert_eq!(write(&mrs, key, 0x10ff, 1), Ok(start + 0xff));
        for (va, len) in [
            (0xfff, 1),
            (0x1100, 1),
            (0x1000, 0x101),
            (u64::MAX - 7, 8),
            (u64::MAX, 2),
            (0x1080, u64::MAX),
        ] {
            assert_eq!(write(&mrs, key, va, len), Err(AccessError::Bounds), "{va:#x}+{len:#x}");
        }
    }
    let top = mapped(&mut mrs, 0xffff_ffff_ffff_f000, 4096);
    assert_eq!(write(&mrs, top, u64::MAX, 1), Ok(4095));
}

#[test]
fn key_05_to_08_key_domain_and_rights_are_checked() {
    let mut mrs = table();
    let key = registered(&mut mrs, 0, 64, Access::LOCAL_WRITE);
    let fails = |pd, key, needed| mrs.remote(pd, QPN, key, 0, 1, needed).unwrap_err();
    for unknown in [key.get() ^ 1, key.get() ^ 0x8000_0000, 0] {
        assert_eq!(fails(PD, Rkey::new(unknown), Access::LOCAL_READ), AccessError::UnknownKey);
    }
    assert_eq!(fails(OTHER, key, Access::LOCAL_WRITE), AccessError::Domain);
    assert_eq!(fails(PD, key, WRITE), AccessError::Rights);
    assert_eq!(fails(PD, key, READ), AccessError::Rights);
}

#[test]
fn key_09_to_11_only_what_was_mapped_in_the_domain_is_invalidated() {
    let mut mrs = table();
    let frmr = mapped(&mut mrs, 0, 64);
    let plain = registered(&mut mrs, 0, 64, Access::LOCAL_WRITE);
    let privileged = mrs.reserve(PD, Reserve::Privileged(RegionId(9))).unwrap();
    let target = mrs.remote(PD, QPN, frmr, 0, 64, WRITE).unwrap();
    for by in [Invalidator::Owner, Invalidator::Peer(QPN)] {
        assert_eq!(mrs.invalidate(OTHER, by, frmr), Err(AccessError::Domain));
        assert_eq!(mrs.invalidate(PD, by, plain), Err(AccessError::Kind));
        assert_eq!(mrs.invalidate(PD, by, privileged), Err(AccessError::Kind));
    }
    // Asked before a READ that will end its key.
    assert_eq!(mrs.check_invalidable(PD, frmr), Ok(()));
    assert_eq!(mrs.check_invalidable(OTHER, frmr), Err(AccessError::Domain));
    assert_eq!(mrs.check_invalidable(PD, plain), Err(AccessError::Kind));
    let released = Released { key: frmr, region: RegionId(4) };
    assert_eq!(mrs.invalidate(PD, Invalidator::Peer(QPN), frmr), Ok(Some(released)));
    assert_eq!(mrs.region(&target), None);
    assert_eq!(mrs.invalidate(PD, Invalidator::Owner, frmr), Err(AccessError::UnknownKey));
    assert!(mrs.local(PD, Lkey::new(plain.get()), 0, 64, Access::LOCAL_WRITE).is_ok());
}

/// NDK's tokens are constant, so the new key of the case is the old number; in between it is dead.
#[test]
fn key_13_and_14_one_key_serves_mapping_after_mapping() {
    let mut mrs = table();
    let key = mrs.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
    assert_eq!(write(&mrs, key, 0x1000, 1), Err(AccessError::UnknownKey));
    let old = mrs.map(PD, key, &mapping(0x1000, 64, ALL));
    assert_eq!(old, Ok(()));
    let target = mrs.remote(PD, QPN, key, 0x1000, 1, WRITE).unwrap();
    assert_eq!(mrs.map(PD, key, &mapping(0x2000, 64, ALL)), Err(AccessError::Valid));
    assert_eq!(write(&mrs, key, 0x1000, 1), Ok(0), "a refused mapping changes nothing");
    mrs.invalidate(PD, Invalidator::Owner, key).unwrap();
    assert_eq!(write(&mrs, key, 0x1000, 1), Err(AccessError::UnknownKey));
    mrs.map(PD, key, &Mapping { offset: 100, ..mapping(0x2000, 64, ALL) }).unwrap();
    assert_eq!(write(&mrs, key, 0x2001, 1), Ok(101));
    assert_eq!(mrs.region(&target), None, "a target of the mapping before stays dead");
}

#[test]
fn key_15_a_mapping_needs_its_own_key_rights_and_bounds() {
    let mut mrs = table();
    let local = mrs.reserve(PD, Reserve::FastRegister(Access::LOCAL_WRITE)).unwrap();
    let full = mrs.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
    let plain = registered(&mut mrs, 0, 64, ALL);
    let window = mrs.reserve(PD, Reserve::Window).unwrap();
    let good = mapping(0, 64, ALL);
    for (pd, key, mapping, error) in [
        (PD, Rkey::new(full.get() ^ 1), good, AccessError::UnknownKey),
        (PD, plain, good, AccessError::Kind),
        (PD, window, good, AccessError::Kind),
        (OTHER, full, good, AccessError::Domain),
        (PD, local, good, AccessError::Rights),
        (PD, full, mapping(0, 64, WRITE), AccessError::Rights),
        (PD, full, mapping(u64::MAX - 62, 64, ALL), AccessError::Bounds),
        (PD, full, Mapping { offset: 1, ..mapping(0, u64::MAX, ALL) }, AccessError::Bounds),
    ] {
        assert_eq!(mrs.map(pd, key, &mapping), Err(error), "{mapping:?}");
    }
    assert_eq!(mrs.map(PD, full, &mapping(u64::MAX - 63, 64, ALL)), Ok(()));
}

#[test]
fn key_16_a_window_is_bound_within_domain_rights_and_bounds() {
    let mut mrs = table();
    let region = registered(&mut mrs, 0x1000, 0x100, Access::LOCAL_WRITE);
    let read_only = registered(&mut mrs, 0x1000, 0x100, READ);
    let unmapped = mrs.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
    let privileged = mrs.reserve(PD, Reserve::Privileged(RegionId(9))).unwrap();
    let registration = Registration {
        pd: OTHER,
        region: RegionId(3),
        base: 0x1000,
        len: 0x100,
        access: Access::LOCAL_WRITE,
    };
    let foreign = mrs.registrar.register(registration).unwrap();
    let window = mrs.reserve(PD, Reserve::Window).unwrap();
    let other = bound(&mut mrs, region, 0x1000, 8, READ);
    let on = |region, va, len, access| window_on(window, region, va, len, access);
    for (bind, error) in [
        (on(foreign, 0x1000, 1, READ), AccessError::Domain),
        (on(privileged, 0x1000, 1, READ), AccessError::Kind),
        (on(other, 0x1000, 1, READ), AccessError::Kind),
        (on(unmapped, 0x1000, 1, READ), AccessError::UnknownKey),
        (on(read_only, 0x1000, 1, WRITE), AccessError::Rights),
        (on(region, 0xfff, 1, READ), AccessError::Bounds),
        (on(region, 0x1000, 0x101, READ), AccessError::Bounds),
        (on(region, u64::MAX, 2, READ), AccessError::Bounds),
        (window_on(region, region, 0x1000, 1, READ), AccessError::Kind),
    ] {
        assert_eq!(mrs.bind(PD, QPN, &bind), Err(error), "{bind:?}");
    }
    assert_eq!(
        mrs.bind(OTHER, QPN, &on(foreign, 0x1000, 1, READ)),
        Err(AccessError::Domain),
        "the window is of another domain than the QP"
    );
    // The region itself grants no remote right: that is what a window is for.
    mrs.bind(PD, QPN, &on(region, 0x1010, 0x10, WRITE)).unwrap();
    assert_eq!(write(&mrs, window, 0x1011, 0xf), Ok(0x11));
    assert_eq!(write(&mrs, window, 0x100f, 1), Err(AccessError::Bounds));
    assert_eq!(write(&mrs, window, 0x1020, 1), Err(AccessError::Bounds));
    assert_eq!(mrs.remote(PD, QPN, window, 0x1010, 1, READ), Err(AccessError::Rights));
}

#[test]
fn key_17_a_window_is_bound_once_and_to_something() {
    let mut mrs = table();
    let region = registered(&mut mrs, 0, 64, ALL);
    let window = mrs.reserve(PD, Reserve::Window).unwrap();
    let bind = window_on(window, region, 0, 8, READ);
    assert_eq!(mrs.bind(PD, QPN, &Bind { len: 0, ..bind }), Err(AccessError::Bounds));
    mrs.bind(PD, QPN, &bind).unwrap();
    assert_eq!(mrs.bind(PD, QPN, &bind), Err(AccessError::Valid));
    assert_eq!(mrs.invalidate(PD, Invalidator::Owner, window), Ok(None));
    assert_eq!(mrs.invalidate(PD, Invalidator::Owner, window), Err(AccessError::UnknownKey));
    mrs.bind(PD, QPN, &bind).unwrap();
}

#[test]
fn key_18_a_window_is_of_one_qp_and_for_peers_only() {
    let mut mrs = table();
    let region = registered(&mut mrs, 0, 64, ALL);
    let window = bound(&mut mrs, region, 0, 64, READ);
    let other = Qpn::new(6);
    assert_eq!(mrs.remote(PD, other, window, 0, 1, READ), Err(AccessError::Domain));
    let lkey = Lkey::new(window.get());
    assert_eq!(mrs.local(PD, lkey, 0, 1, Access::LOCAL_READ), Err(AccessError::Kind));
    assert_eq!(mrs.invalidate(PD, Invalidator::Peer(other), window), Err(AccessError::Domain));
    mrs.unbind_qp(other);
    assert!(mrs.remote(PD, QPN, window, 0, 1, READ).is_ok());
    mrs.unbind_qp(QPN);
    assert_eq!(mrs.remote(PD, QPN, window, 0, 1, READ), Err(AccessError::UnknownKey));
}

#[test]
fn key_19_a_window_dies_with_its_region() {
    let mut mrs = table();
    let plain = registered(&mut mrs, 0, 64, ALL);
    let frmr = mapped(&mut mrs, 0, 64);
    let windows = [plain, frmr].map(|region| bound(&mut mrs, region, 0, 64, WRITE));
    let targets = windows.map(|key| mrs.remote(PD, QPN, key, 0, 64, WRITE).unwrap());
    assert!(targets.iter().all(|target| mrs.region(target).is_some()));
    mrs.deregister(plain).unwrap();
    mrs.invalidate(PD, Invalidator::Owner, frmr).unwrap();
    // Neither the region's slot used again nor its key mapped again revives them.
    registered(&mut mrs, 0, 64, ALL);
    mrs.map(PD, frmr, &mapping(0, 64, ALL)).unwrap();
    for (window, target) in windows.iter().zip(&targets) {
        assert_eq!(write(&mrs, *window, 0, 1), Err(AccessError::UnknownKey));
        assert_eq!(mrs.region(target), None);
        assert_eq!(mrs.invalidate(PD, Invalidator::Owner, *window), Ok(None));
    }
}

#[test]
fn the_privileged_key_names_every_address_for_its_own_domain_only() {
    let mut mrs = table();
    let key = mrs.reserve(PD, Reserve::Privileged(RegionId(9))).unwrap();
    let lkey = Lkey::new(key.get());
    for (addr, len) in [(0, 1), (0x1234_5678_9abc, 1 << 31), (u64::MAX - 1, 1)] {
        let place = mrs.local(PD, lkey, addr, len, Access::LOCAL_WRITE).unwrap();
        assert_eq!(place, (RegionId(9), addr));
    }
    assert_eq!(mrs.local(OTHER, lkey, 0, 1, Access::LOCAL_READ), Err(AccessError::Domain));
    for needed in [READ, WRITE] {
        assert_eq!(mrs.remote(PD, QPN, key, 0, 1, needed), Err(AccessError::Rights));
    }
}

#[test]
fn a_slot_used_again_does_not_revive_a_target() {
    let mut mrs = table();
    let first = mapped(&mut mrs, 0, 64);
    let target = mrs.remote(PD, QPN, first, 0, 64, WRITE).unwrap();
    let released = Released { key: first, region: RegionId(4) };
    assert_eq!(mrs.deregister(first), Ok(Some(released)));
    mapped(&mut mrs, 0, 64);
    assert_eq!(mrs.region(&target), None);
}

/// Keys of a million registrations, most of them short-lived, as consumers make them.
#[test]
fn key_20_keys_do_not_repeat_and_their_bits_are_even() {
    const DRAWN: usize = 1_000_000;
    let mut mrs = table();
    let mut recent = BTreeSet::new();
    let mut order = VecDeque::new();
    let mut live = VecDeque::new();
    let mut low = vec![0_u32; 256];
    let mut high = vec![0_u32; 256];
    let mut steps = vec![0_u32; 256];
    let mut last = 0_u32;
    for _ in 0..DRAWN {
        let key = registered(&mut mrs, 0, 1, Access::LOCAL_READ);
        assert!(key.get() != 0 && recent.insert(key), "{key:?} came back too soon");
        order.push_back(key);
        if order.len() > keys::QUARANTINE {
            recent.remove(&order.pop_front().unwrap());
        }
        low[key.get() as usize & 0xff] += 1;
        high[key.get() as usize >> 24] += 1;
        steps[key.get().wrapping_sub(last) as usize & 0xff] += 1;
        last = key.get();
        live.push_back(key);
        if live.len() > 64 {
            mrs.deregister(live.pop_front().unwrap()).unwrap();
        }
    }
    // 255 degrees of freedom: mean 255, deviation 22.6. The seed is fixed.
    let expected = DRAWN as f64 / 256.0;
    for (name, counts) in [("low", low), ("high", high), ("step", steps)] {
        let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
        let chi: f64 = counts.iter().map(square).sum();
        assert!((150.0..360.0).contains(&chi), "{name}: {chi}");
    }
}

#[test]
fn key_21_a_key_given_up_does_not_name_the_same_memory_registered_again() {
    let mut mrs = table();
    let old = registered(&mut mrs, 0, 64, ALL);
    mrs.deregister(old).unwrap();
    let new = registered(&mut mrs, 0, 64, ALL);
    assert_ne!(old, new);
    assert_eq!(write(&mrs, old, 0, 1), Err(AccessError::UnknownKey));
    assert_eq!(mrs.deregister(old), Err(AccessError::UnknownKey));
    assert_eq!(write(&mrs, new, 0, 1), Ok(0));
}

#[test]
fn a_table_fills_up_refuses_and_serves_again() {
    let mut mrs = Keys::new(0, 100);
    for _ in 0..3 {
        let keys: Vec<Rkey> = (0..100).map(|_| mapped(&mut mrs, 0, 1)).collect();
        assert!(mrs.reserve(PD, Reserve::Window).is_none());
        assert_eq!(mrs.registrar.len(), 100);
        for key in keys {
            assert_eq!(write(&mrs, key, 0, 1), Ok(0));
            mrs.deregister(key).unwrap();
        }
        assert_eq!(mrs.registrar.len(), 0);
    }
}

/// Its parts grow again and again meanwhile, and it tells before by how much.
#[test]
fn every_key_stays_while_the_table_grows() {
    const KEYS: usize = if cfg!(miri) { 1 << 8 } else { 1 << 15 };
    let mut mrs = Keys::new(3, KEYS);
    let mut keys = Vec::new();
    for at in 0..KEYS {
        let before = mrs.registrar.bytes();
        let told = mrs.registrar.growth_bytes();
        let base = at as u64 * 64;
        keys.push((base, registered(&mut mrs, base, 64, ALL)));
        let after = mrs.registrar.bytes();
        // Blocks are added; what is in one piece is allocated anew.
        let added = after[0] - before[0] + after[1] - before[1];
        let anew: usize = (2..5).filter(|at| before[*at] != after[*at]).map(|at| after[at]).sum();
        assert!(added + anew <= told, "{told} bytes at {at}");
        // Some end, so that there are keys in quarantine.
        if at % 3 == 0 {
            let (base, key) = keys.swap_remove(at / 2 % keys.len());
            mrs.deregister(key).unwrap();
            assert_eq!(write(&mrs, key, base, 1), Err(AccessError::UnknownKey));
        }
    }
    // Many share a hint, and each takes it from the one before.
    for _ in 0..2 {
        assert!(keys.iter().all(|(base, key)| write(&mrs, *key, *base, 64) == Ok(0)));
    }
    assert_eq!(keys.len(), mrs.registrar.len());
}

/// The model's knowledge of a key.
#[derive(Clone, Copy)]
struct Known {
    key: Rkey,
    window: bool,
    /// The step at which it was mapped or bound, and the list of pages that it names since.
    names: Option<(u32, u32)>,
}

/// Goal: in any order of events, a key and a checked target reach memory exactly as long as the
/// mapping that they are of lasts, and each list of pages comes back exactly once.
/// Method: random steps on 8 regions and 8 windows, compared with a model after each.
#[test]
fn keys_and_targets_live_exactly_as_long_as_their_mapping() {
    let mut mrs = Keys::new(1, 16);
    let mut rng = Rng::from_seed([2; 32]);
    let reserve = |mrs: &mut Keys, window| {
        let what = if window { Reserve::Window } else { Reserve::FastRegister(ALL) };
        Known { key: mrs.reserve(PD, what).unwrap(), window, names: None }
    };
    let mut known: Vec<Known> = (0..16).map(|at| reserve(&mut mrs, at >= 8)).collect();
    let mut targets: Vec<(usize, (u32, u32), Target)> = Vec::new();
    let (mut lists, mut released) = (0, 0);
    for step in 0..20_000 {
        let at = rng.below(16) as usize;
        let Known { key, window, names } = known[at];
        let ended = match rng.below(4) {
            0 if window => {
                let region = rng.below(8) as usize;
                let bind = window_on(key, known[region].key, 16, 16, READ);
                let expected = match (names, known[region].names) {
                    (Some(_), _) => Err(AccessError::Valid),
                    (None, None) => Err(AccessError::UnknownKey),
                    (None, Some(_)) => Ok(()),
                };
                assert_eq!(mrs.bind(PD, QPN, &bind), expected);
                if expected.is_ok() {
                    known[at].names = known[region].names.map(|(_, list)| (step, list));
                }
                None
            }
            0 => {
                let fresh = Mapping { region: RegionId(lists), ..mapping(0, 64, ALL) };
                let expected = if names.is_some() { Err(AccessError::Valid) } else { Ok(()) };
                assert_eq!(mrs.map(PD, key, &fresh), expected);
                if expected.is_ok() {
                    known[at].names = Some((step, lists));
                    lists += 1;
                }
                None
            }
            1 => {
                let result = mrs.invalidate(PD, Invalidator::Owner, key);
                assert_eq!(result.is_ok(), names.is_some());
                known[at].names = None;
                result.ok().flatten()
            }
            2 if rng.below(4) == 0 => {
                let result = mrs.deregister(key).unwrap();
                known[at] = reserve(&mut mrs, window);
                result
            }
            _ => {
                if let Ok(target) = mrs.remote(PD, QPN, key, 16, 16, READ) {
                    targets.push((at, names.unwrap(), target));
                }
                None
            }
        };
        if let Some(Released { region, .. }) = ended {
            assert!(!window && names.is_some_and(|(_, list)| list == region.0));
            released += 1;
        }
        // A list of pages lives while its own region names it.
        let lives = |list: u32| {
            known[..8].iter().any(|known| known.names.is_some_and(|names| names.1 == list))
        };
        for Known { key, names, .. } in &known {
            let reached = mrs.remote(PD, QPN, *key, 16, 16, READ).is_ok();
            assert_eq!(reached, names.is_some_and(|(_, list)| lives(list)));
        }
        // A key that names the same pages once more does so by another mapping.
        targets.retain(|(at, names, target)| {
            let lasts = known[*at].names == Some(*names) && lives(names.1);
            assert_eq!(mrs.region(target), lasts.then_some(RegionId(names.1)));
            lasts
        });
    }
    let mapped = known[..8].iter().filter(|known| known.names.is_some()).count();
    assert_eq!(released + mapped, lists as usize);
}

/// The remembered key changes nothing: each element is judged as alone.
#[test]
fn elements_one_after_the_other_are_judged_each_by_its_own_key() {
    let mut mrs = table();
    let first = registered(&mut mrs, 0, 64, ALL);
    let second = registered(&mut mrs, 32, 64, Access::LOCAL_READ);
    let window = bound(&mut mrs, first, 0, 64, WRITE);
    let unmapped = mrs.reserve(PD, Reserve::FastRegister(ALL)).unwrap();
    let keys = [first, first, second, window, second, unmapped, first, Rkey::new(0), first];
    for pd in [PD, OTHER] {
        let mut elements = LocalKeys::new(&mrs, pd);
        for key in keys.into_iter().map(|key| Lkey::new(key.get())) {
            for (addr, len) in [(0, 32), (32, 32), (64, 32), (64, 33), (u64::MAX, 1)] {
                for needed in [Access::LOCAL_READ, Access::LOCAL_WRITE] {
                    let alone = mrs.local(pd, key, addr, len, needed);
                    assert_eq!(elements.local(key, addr, len, needed), alone);
                }
            }
        }
    }
}
