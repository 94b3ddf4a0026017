//! The flight over providers in this process.
//!
//! Goal: each step passes over the real tables, on one adapter and on two, with a lossy wire and without; and each can fail.
//! Method: a machine of this process, and two providers joined in memory.
#![allow(unsafe_code, reason = "opens adapters, and hands out raw memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndkflight::{Config, Machine, Side, Verdict, fly};
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::memory::{MemoryConfig, pair};

/// A process as a machine. It counts what it has handed out.
struct Process {
    began: Instant,
    rung: (Mutex<bool>, Condvar),
    held: AtomicUsize,
    /// Allocations until the machine has no memory.
    left: AtomicUsize,
    verdicts: Mutex<Vec<String>>,
    ends_after: usize,
    is_ending: AtomicBool,
}

impl Process {
    /// As long as the test.
    fn new(allocations: usize, ends_after: usize) -> &'static Self {
        Box::leak(Box::new(Self {
            began: Instant::now(),
            rung: (Mutex::new(false), Condvar::new()),
            held: AtomicUsize::new(0),
            left: AtomicUsize::new(allocations),
            verdicts: Mutex::new(Vec::new()),
            ends_after,
            is_ending: AtomicBool::new(false),
        }))
    }

    fn layout(bytes: usize) -> Layout {
        let align = if bytes < PAGE_SIZE { 16 } else { PAGE_SIZE };
        Layout::from_size_align(bytes.max(1), align).expect("a layout")
    }

    fn may_allocate(&self) -> bool {
        let left = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok()
    }

    fn verdicts(&self) -> Vec<String> {
        self.verdicts.lock().unwrap().clone()
    }
}

// SAFETY: memory of the allocator, and boxes, valid until they are freed.
unsafe impl Machine for Process {
    fn allocate(&self, bytes: usize) -> *mut u8 {
        if !self.may_allocate() {
            return std::ptr::null_mut();
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        // SAFETY: at least one byte.
        unsafe { alloc_zeroed(Self::layout(bytes)) }
    }

    unsafe fn free(&self, start: *mut u8, bytes: usize) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: from `allocate`, with this layout.
        unsafe { dealloc(start, Self::layout(bytes)) };
    }

    fn describe(&self, start: *mut u8, len: u32) -> *mut MDL {
        if !self.may_allocate() {
            return std::ptr::null_mut();
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        let offset = start.addr() % PAGE_SIZE;
        Box::into_raw(Box::new(MDL {
            Next: std::ptr::null_mut(),
            Size: size_of::<MDL>() as i16,
            MdlFlags: MDL_MAPPED_TO_SYSTEM_VA | MDL_PAGES_LOCKED,
            Process: std::ptr::null_mut(),
            MappedSystemVa: start.cast(),
            StartVa: start.wrapping_sub(offset).cast(),
            ByteCount: len,
            ByteOffset: offset as u32,
        }))
    }

    unsafe fn forget(&self, mdl: *mut MDL) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: from `describe`.
        drop(unsafe { Box::from_raw(mdl) });
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn ring(&self) {
        *self.rung.0.lock().unwrap() = true;
        self.rung.1.notify_all();
    }

    fn wait(&self, limit_ns: u64) {
        let rung = self.rung.0.lock().unwrap();
        let limit = Duration::from_nanos(limit_ns);
        let (mut rung, _) = self.rung.1.wait_timeout_while(rung, limit, |rung| !*rung).unwrap();
        *rung = false;
    }

    fn tell(&self, step: usize, verdict: &str) {
        let mut verdicts = self.verdicts.lock().unwrap();
        assert_eq!(step, verdicts.len(), "each step has its number");
        println!("{verdict}");
        verdicts.push(verdict.to_owned());
        self.is_ending.store(verdicts.len() == self.ends_after, Ordering::SeqCst);
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }
}

/// Two providers, and an adapter of each.
struct Net {
    providers: [Provider; 2],
    sides: [Side; 2],
}

impl Net {
    fn new(loss: f64) -> Self {
        let (first, second) = pair(MemoryConfig::default());
        let addresses = |number: u8| {
            let v4 = Ipv4Addr::new(10, 0, 0, number);
            (v4, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()))
        };
        let mut number = 0;
        let providers = [first, second].map(|edge| {
            number += 1;
            let (v4, v6) = addresses(number);
            let seed = number.into();
            let edge = FaultInjector::new(edge, Faults { seed, loss, ..Faults::default() });
            let config = ProviderConfig::new(vec![v4.into(), v6.into()]);
            Provider::start(Box::new(edge), config).expect("a provider starts")
        });
        let version = NDK_VERSION { Major: 2, Minor: 0 };
        let open = |number: usize| {
            let adapter = providers[number].open_adapter(version).expect("an adapter");
            let (v4, v6) = addresses(number as u8 + 1);
            Side { adapter, v4: Some(v4), v6: Some(v6) }
        };
        let sides = [open(0), open(1)];
        Self { providers, sides }
    }

    /// Every object of the flight is closed.
    fn end(self) {
        for (provider, side) in self.providers.iter().zip(self.sides) {
            // SAFETY: opened above, and nothing uses it any more.
            unsafe { provider.close_adapter(side.adapter) };
            assert_eq!(provider.open_objects(), 0);
        }
    }
}

const ALL: usize = usize::MAX;
const CONFIG: Config = Config { connections: 64, patience_s: 10 };

/// Flies over both adapters, where each step has to pass.
fn passes(loss: f64) -> Vec<String> {
    let (net, process) = (Net::new(loss), Process::new(ALL, ALL));
    let flown = fly(process, net.sides[0], Some(net.sides[1]), CONFIG);
    let verdicts = process.verdicts();
    assert_eq!(flown, Ok(Verdict::Passed), "{verdicts:#?}");
    assert_eq!(process.held.load(Ordering::SeqCst), 0, "memory is given back");
    net.end();
    verdicts
}

#[test]
fn each_step_passes_in_each_place() {
    let verdicts = passes(0.0);
    let count = |word: &str| verdicts.iter().filter(|line| line.contains(word)).count();
    assert_eq!(count("pass "), verdicts.len());
    assert_eq!(count(" client "), count(" server "));
    let places = [" loopback ipv4 ", " loopback ipv6 ", " pair ipv4 ", " pair ipv6 "].map(count);
    assert!(places.iter().all(|&steps| steps == places[0] && steps > 10), "{places:?}");
}

/// Connects that meet no answer, and requests whose answers are lost, take a second or several.
#[test]
fn a_wire_that_loses_frames_changes_no_verdict() {
    passes(0.003);
}

#[test]
fn a_dead_wire_is_told_as_what_did_not_complete() {
    let net = Net::new(1.0);
    // The steps of each adapter and by loopback, and the first one between the two.
    let alone = Process::new(ALL, ALL);
    fly(alone, net.sides[0], None, CONFIG).expect("memory");
    let [own, loopback] = [" client ", " loopback "]
        .map(|place| alone.verdicts().iter().filter(|line| line.contains(place)).count());
    let process = Process::new(ALL, 2 * own + loopback + 1);
    let config = Config { patience_s: 1, ..CONFIG };
    let flown = fly(process, net.sides[0], Some(net.sides[1]), config);
    assert_eq!(flown, Ok(Verdict::Failed));
    let verdicts = process.verdicts();
    let (last, others) = verdicts.split_last().expect("verdicts");
    assert!(others.iter().all(|line| line.starts_with("pass ")), "{others:#?}");
    assert!(last.starts_with("fail connect pair ipv4 "), "{last}");
    assert!(last.ends_with("a connect event did not complete within 1 s"), "{last}");
    assert_eq!(process.held.load(Ordering::SeqCst), 0, "memory is given back all the same");
    net.end();
}

/// `NdkCreatePd` of a provider that never answers.
unsafe extern "system" fn never(
    _: *mut NDK_ADAPTER,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: PVOID,
    _: *mut *mut NDK_PD,
) -> NTSTATUS {
    STATUS_PENDING
}

#[test]
fn a_call_that_never_ends_keeps_the_memory_and_ends_the_flight() {
    let (net, process) = (Net::new(0.0), Process::new(ALL, ALL));
    // SAFETY: an open adapter, which nobody else calls.
    let place = unsafe { (*net.sides[0].adapter).Dispatch.get() };
    // SAFETY: as above; the table of a provider.
    let theirs = unsafe { place.read() };
    // SAFETY: as above.
    let table = NDK_ADAPTER_DISPATCH { NdkCreatePd: never, ..unsafe { *theirs } };
    // SAFETY: a consumer may replace the table; this one lives as long as the process.
    unsafe { place.write(Box::leak(Box::new(table))) };
    let config = Config { patience_s: 1, ..CONFIG };
    assert_eq!(fly(process, net.sides[0], None, config), Ok(Verdict::Stuck));
    let verdicts = process.verdicts();
    let late = "NdkCreatePd did not complete within 1 s";
    assert!(verdicts.last().is_some_and(|last| last.ends_with(late)), "{verdicts:#?}");
    assert_eq!(verdicts.len(), 2, "no step begins behind it");
    assert!(process.held.load(Ordering::SeqCst) > 0, "a callback may still use it");
    net.end();
}

#[test]
fn memory_that_is_refused_is_told_and_the_rest_given_back() {
    let net = Net::new(0.0);
    let (mut refused, mut failed) = (0, 0);
    for allocations in 0..40 {
        // Of the steps those up to the first that takes several regions.
        let process = Process::new(allocations, 6);
        match fly(process, net.sides[0], None, CONFIG) {
            Err(_) => refused += 1,
            Ok(Verdict::Failed) => {
                let verdicts = process.verdicts();
                assert!(
                    verdicts.iter().any(|line| line.contains("no memory for ")),
                    "{verdicts:?}"
                );
                failed += 1;
            }
            Ok(verdict) => assert_eq!(verdict, Verdict::Stopped),
        }
        assert_eq!(process.held.load(Ordering::SeqCst), 0, "{allocations}");
    }
    assert!(refused > 2 && failed > 5, "{refused} {failed}");
    net.end();
}

#[test]
fn one_adapter_without_ipv6_is_tried_as_far_as_it_goes() {
    let (net, process) = (Net::new(0.0), Process::new(ALL, ALL));
    let side = Side { v6: None, ..net.sides[0] };
    assert_eq!(fly(process, side, None, CONFIG), Ok(Verdict::Passed));
    let verdicts = process.verdicts();
    assert!(verdicts.iter().all(|line| !line.contains("pair") && !line.contains("server")));
    let skipped = verdicts.iter().filter(|line| line.starts_with("skip "));
    assert!(skipped.clone().all(|line| line.contains(" loopback ipv6 ")) && skipped.count() > 10);
    net.end();
}

#[test]
fn a_flight_ends_where_the_machine_wants_it() {
    let (net, process) = (Net::new(0.0), Process::new(ALL, 2));
    assert_eq!(fly(process, net.sides[0], None, CONFIG), Ok(Verdict::Stopped));
    assert_eq!(process.verdicts().len(), 2);
    assert_eq!(process.held.load(Ordering::SeqCst), 0);
    net.end();
}
