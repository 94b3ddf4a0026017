//! A stand-in for the Windows kernel and for NDIS: what the driver's image imports, in ordinary Rust.
//!
//! It keeps the books that Windows' verifiers keep (IRQL of each thread, locks, pool, net buffer
//! lists, the order of calls) and reports each breach. It is written from the documentation, and
//! shares no declaration of NDIS or of the kernel with the driver: an error in one of them shows.
//!
//! Two hosts load the unmodified image and give it these functions: Wine's driver host, and a
//! loader of our own in a Linux process ([`loader`]), which starts faster and is easier to debug.
//! Neither is Windows.
//!
//! ```text
//! scenario ─> host (load, unload) ─> DriverEntry ─> ndis, ntos
//!      └────> ndis: two vNICs, their NICs, a switch; ndk-consumer or an outsider on top
//! ```
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "it is the other side of a C interface")]
#![allow(
    clippy::missing_safety_doc,
    clippy::not_unsafe_ptr_arg_deref,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    unsafe_op_in_unsafe_fn,
    reason = "every function here is called by the image under test, under the contract of the \
              Windows page of its name"
)]
#![allow(missing_docs, non_snake_case, reason = "the names of Windows")]

/// Defines what the image can import from a module, the list of it, and a table with the addresses.
macro_rules! exports {
    ($module:literal: $($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(
            $(#[$meta])*
            #[cfg_attr(windows, unsafe(no_mangle))]
            pub unsafe extern "win64" fn $name($($arg: $ty),*) $(-> $ret)? {
                $crate::stack::outside(|| $(-> $ret)? {
                    let _rest = $crate::jitter::Rest::here();
                    $body
                })
            }
        )*
        #[allow(dead_code, reason = "what a consumer alone imports is in no list")]
        pub(crate) const LIST: &str =
            concat!($("stand-in ", $module, "!", stringify!($name), "\n"),*);
        pub(crate) fn table() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }
    };
}

#[macro_use]
pub mod log;
pub mod cng;
pub mod coverage;
pub mod hal;
#[cfg(unix)]
mod image;
pub mod jitter;
#[cfg(unix)]
pub mod loader;
pub mod ndis;
pub mod netio;
pub mod ntos;
#[cfg(unix)]
pub mod outsider;
pub mod scenarios;
pub mod schedule;
pub mod stack;
pub mod tcpip;
#[cfg(windows)]
mod wine;
pub mod wsk;

// The other side of `rping` is ndkperf's.
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/completions.rs"]
mod completions;
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/connection.rs"]
mod connection;
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/failure.rs"]
mod failure;
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/ledger.rs"]
mod ledger;
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/receives.rs"]
mod receives;
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/rping.rs"]
mod rping;
#[allow(dead_code, reason = "ndkperf uses more of it")]
#[path = "../../../../benches/src/bin/ndkperf/session.rs"]
mod session;

/// The address of what an image imports: a module has no function of another, as in Windows.
pub fn resolve(module: &str, function: &str) -> Option<usize> {
    let mut functions: Box<dyn Iterator<Item = (&'static str, usize)>> =
        match module.to_lowercase().as_str() {
            "ntoskrnl.exe" => Box::new(ntos::exports()),
            "hal.dll" => Box::new(hal::table().into_iter()),
            "cng.sys" => Box::new(cng::table().into_iter()),
            "ndis.sys" => Box::new(ndis::exports()),
            "netio.sys" => Box::new(netio::table().into_iter().chain(wsk::table())),
            _ => return None,
        };
    functions.find(|(name, _)| *name == function).map(|(_, address)| address)
}

/// The functions of each module, which `redirect.py` reads from the DLL: `stand-in MODULE!FUNCTION`, one a line.
pub fn lists() -> impl Iterator<Item = &'static str> {
    [cng::LIST, hal::LIST, netio::LIST, wsk::LIST].into_iter().chain(ndis::LISTS).chain(ntos::LISTS)
}

/// Who can load the image under test and let it go.
pub trait Host: Send + Sync {
    /// Loads the image and calls its entry point.
    ///
    /// # Errors
    /// What the entry point returned.
    fn load(&self) -> Result<(), i32>;

    /// Calls the image's unload routine and lets go of it.
    fn unload(&self);

    /// Loads another driver beside it, by its service or by its file, whichever the host knows it by, and calls its entry point.
    ///
    /// # Errors
    /// What the entry point returned.
    fn load_beside(&self, service: &'static str, file: &str) -> Result<Beside, i32>;
}

/// Unloads a driver that was loaded beside the image.
pub type Beside = Box<dyn FnOnce()>;

#[cfg(test)]
mod tests {
    //! The stand-ins tell right from wrong: each rule is broken once.

    use std::ptr::null_mut;
    use std::sync::Mutex;

    use super::*;
    use crate::log::breaches;
    use crate::ntos::{dispatcher, dpc, irql, lock, mdl, pool};

    const TAG: u32 = u32::from_le_bytes(*b"test");
    const NON_PAGED: u64 = 0x40;

    /// How many breaches `f` makes. One at a time: the books are those of the process.
    fn breaches_of(f: impl FnOnce()) -> usize {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap();
        let before = breaches();
        f();
        breaches() - before
    }

    #[test]
    fn pool() {
        let leak_free = || unsafe {
            let block = pool::ExAllocatePool2(NON_PAGED, 100, TAG);
            assert!(std::slice::from_raw_parts(block, 100).iter().all(|&byte| byte == 0));
            pool::ExFreePoolWithTag(block, TAG);
        };
        assert_eq!(breaches_of(leak_free), 0);
        let leak = || unsafe {
            pool::ExAllocatePool2(NON_PAGED, 100, TAG);
            pool::report_leaks();
        };
        assert_eq!(breaches_of(leak), 1, "a leak");
        let overrun = || unsafe {
            let block = pool::ExAllocatePool2(NON_PAGED, 100, TAG);
            block.add(100).write(0);
            pool::ExFreePoolWithTag(block, TAG);
        };
        assert_eq!(breaches_of(overrun), 1, "a write past the end");
        let twice = || unsafe {
            let block = pool::ExAllocatePool2(NON_PAGED, 100, TAG);
            pool::ExFreePoolWithTag(block, TAG);
            pool::ExFreePoolWithTag(block, TAG);
        };
        assert_eq!(breaches_of(twice), 1, "freed twice");
        let tag = || unsafe {
            let block = pool::ExAllocatePool2(NON_PAGED, 100, TAG);
            pool::ExFreePoolWithTag(block, TAG + 1);
        };
        assert_eq!(breaches_of(tag), 1, "another tag");
        assert_eq!(
            breaches_of(|| unsafe { drop_pool(pool::ExAllocatePool2(0x100, 8, TAG)) }),
            1,
            "paged pool"
        );
        let refused = || unsafe {
            pool::refuse_after(pool::Resource::Pool, Some(1));
            let first = pool::ExAllocatePool2(NON_PAGED, 8, TAG);
            assert!(!first.is_null() && pool::ExAllocatePool2(NON_PAGED, 8, TAG).is_null());
            drop_pool(pool::ExAllocatePool2(NON_PAGED, 8, TAG));
            drop_pool(first);
            assert_eq!(pool::asked(), (3, true));
            pool::refuse_after(pool::Resource::Pool, None);
        };
        assert_eq!(breaches_of(refused), 0);
    }

    unsafe fn drop_pool(block: ntos::Pointer) {
        pool::ExFreePoolWithTag(block, TAG);
    }

    #[test]
    fn a_module_has_its_functions_and_no_others() {
        assert!(resolve("HAL.dll", "KeQueryPerformanceCounter").is_some());
        assert!(resolve("ntoskrnl.exe", "KeQueryPerformanceCounter").is_none(), "Server 2019");
        assert!(resolve("ntoskrnl.exe", "NdisGetVersion").is_none());
        assert!(resolve("other.sys", "NdisGetVersion").is_none());
        for line in lists().flat_map(str::lines) {
            let (module, function) =
                line.strip_prefix("stand-in ").and_then(|line| line.split_once('!')).expect("both");
            assert!(resolve(module, function).is_some(), "{line} is listed, and is not there");
        }
    }

    #[test]
    fn a_stale_slot_is_found() {
        unsafe {
            let list = ndis::nbl::make(&[0; 60], 60, mdl::NON_PAGED, null_mut());
            assert_eq!((*list).leftovers(), [0; 0]);
            (*list).litter();
            for slot in (*list).leftovers() {
                let list = ndis::nbl::make(&[0; 60], 60, mdl::NON_PAGED, null_mut());
                (*list).info[slot] = 0x5A1E;
                assert_eq!((*list).leftovers(), [slot]);
            }
            // Of the 27 the mark of a cancellation is TCP/IP's.
            assert_eq!((*list).leftovers().len(), 26);
        }
    }

    #[test]
    fn irql_and_locks() {
        let word = std::sync::atomic::AtomicUsize::new(0);
        let right = || unsafe {
            let old = lock::KeAcquireSpinLockRaiseToDpc(&word);
            assert_eq!((old, irql::current()), (0, 2));
            lock::KeReleaseSpinLock(&word, old);
            assert_eq!(irql::current(), 0);
        };
        assert_eq!(breaches_of(right), 0);
        let held = || unsafe {
            let old = lock::KeAcquireSpinLockRaiseToDpc(&word);
            lock::none_held("a callback");
            lock::KeReleaseSpinLock(&word, old);
        };
        assert_eq!(breaches_of(held), 1, "a lock held over a return");
        let words = [const { std::sync::atomic::AtomicUsize::new(0) }; 3];
        let nest = |outer: usize, inner: usize| unsafe {
            let old = lock::KeAcquireSpinLockRaiseToDpc(&words[outer]);
            lock::KeAcquireSpinLockAtDpcLevel(&words[inner]);
            lock::KeReleaseSpinLockFromDpcLevel(&words[inner]);
            lock::KeReleaseSpinLock(&words[outer], old);
        };
        let one_way = || [(0, 1), (1, 2), (0, 2), (0, 1)].into_iter().for_each(|(a, b)| nest(a, b));
        assert_eq!(breaches_of(one_way), 0);
        assert_eq!(breaches_of(|| nest(2, 0)), 1, "the other order, over a third lock");
        assert_eq!(breaches_of(|| nest(2, 0)), 0, "told once");
        let start = words.as_ptr().addr();
        lock::forget(start..start + size_of_val(&words));
        assert_eq!(breaches_of(|| nest(1, 0)), 0, "other locks at the same place");
        assert_eq!(
            breaches_of(|| unsafe { lock::KeReleaseSpinLockFromDpcLevel(&word) }),
            2,
            "no lock, no IRQL"
        );
        let shared = std::sync::atomic::AtomicI32::new(0);
        let release = |old| unsafe { lock::ExReleaseSpinLockShared(&shared, old) };
        assert_eq!(breaches_of(|| release(0)), 2, "nobody holds it, no IRQL");
        assert_eq!(
            breaches_of(|| {
                irql::set(0);
            }),
            0
        );
        let high = || {
            irql::run_at(2, "a callback", || unsafe {
                let mut handle = 0;
                extern "win64" fn nothing(_: ntos::Pointer) {}
                dispatcher::PsCreateSystemThread(
                    &raw mut handle,
                    0,
                    null_mut(),
                    0,
                    null_mut(),
                    nothing,
                    null_mut(),
                );
                irql::set(0);
                dispatcher::ZwClose(handle);
            })
        };
        assert_eq!(
            breaches_of(high),
            3,
            "a thread made at DISPATCH_LEVEL, without attributes, and a return at another IRQL"
        );
    }

    #[test]
    fn waits() {
        let mut event = std::mem::MaybeUninit::uninit();
        let event = unsafe {
            dispatcher::KeInitializeEvent(event.as_mut_ptr(), 1, 0);
            event.assume_init_ref()
        };
        let wait =
            |timeout: &i64| unsafe { dispatcher::KeWaitForSingleObject(event, 0, 0, 0, timeout) };
        assert_eq!(wait(&-1000), ntos::TIMEOUT);
        unsafe { dispatcher::KeSetEvent(event, 0, 0) };
        assert_eq!(wait(&-1000), 0);
        assert_eq!(wait(&0), ntos::TIMEOUT, "a synchronization event lets one through");
        let high = || {
            irql::run_at(2, "a callback", || {
                wait(&0);
                wait(&-1);
            })
        };
        assert_eq!(breaches_of(high), 1, "a wait at DISPATCH_LEVEL");
    }

    #[test]
    fn dpcs_run_and_timers_fire() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "win64" fn count(
            _: *mut dpc::Dpc,
            _: ntos::Pointer,
            _: ntos::Pointer,
            _: ntos::Pointer,
        ) {
            assert_eq!(irql::current(), 2);
            RUNS.fetch_add(1, Ordering::SeqCst);
        }
        let run = || unsafe {
            let dpc = Box::into_raw(Box::<std::mem::MaybeUninit<dpc::Dpc>>::new_uninit()).cast();
            let timer =
                Box::into_raw(Box::<std::mem::MaybeUninit<dpc::Timer>>::new_uninit()).cast();
            dpc::KeInitializeDpc(dpc, Some(count), null_mut());
            dpc::KeInitializeTimer(timer);
            assert_eq!(dpc::KeInsertQueueDpc(dpc, null_mut(), null_mut()), 1);
            dpc::KeFlushQueuedDpcs();
            assert_eq!(RUNS.load(Ordering::SeqCst), 1);
            dpc::KeSetTimer(timer, -10_000, dpc.cast());
            assert!(ndis::eventually("the timer", || RUNS.load(Ordering::SeqCst) == 2));
            assert_eq!(dpc::KeCancelTimer(timer), 0, "it has fired");
            dpc::KeSetTimer(timer, -600_000_000, dpc.cast());
            assert_eq!(dpc::KeCancelTimer(timer), 1);
            dpc::report_leaks();
        };
        assert_eq!(breaches_of(run), 0);
    }

    #[test]
    fn mdls() {
        let memory = vec![7_u8; 3 * 4096].leak().as_mut_ptr();
        let partial = || unsafe {
            let source = mdl::IoAllocateMdl(memory, 8192, 0, 0, null_mut());
            mdl::MmProbeAndLockPages(&mut *source, 0, 0);
            let part = mdl::IoAllocateMdl(memory.add(100), 1000, 0, 0, null_mut());
            mdl::IoBuildPartialMdl(&*source, &mut *part, memory.add(100), 1000);
            let mapped =
                mdl::MmMapLockedPagesSpecifyCache(&mut *part, 0, 1, null_mut(), 0, 0x4000_0010);
            assert_eq!(mapped, memory.add(100));
            mdl::IoFreeMdl(part);
            mdl::IoFreeMdl(source);
            mdl::report_leaks();
        };
        assert_eq!(breaches_of(partial), 0);
        let unlocked = || unsafe {
            let source = mdl::IoAllocateMdl(memory, 10, 0, 0, null_mut());
            let mapped =
                mdl::MmMapLockedPagesSpecifyCache(&mut *source, 0, 1, null_mut(), 0, 0x4000_0010);
            mdl::MmUnmapLockedPages(mapped, &mut *source);
            mdl::IoFreeMdl(source);
        };
        assert_eq!(breaches_of(unlocked), 1, "mapped without a lock");
        let leak = || unsafe {
            mdl::IoAllocateMdl(memory, 10, 0, 0, null_mut());
            mdl::report_leaks();
        };
        assert_eq!(breaches_of(leak), 1, "a leak");
    }
}
