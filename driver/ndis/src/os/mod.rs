//! The provider in the Windows kernel: pool, time, entropy, mappings, threads, and the runner of the poll
//! core.
//!
//! Each submodule wraps one kind of kernel object, so that the rest of the driver calls methods.

mod auto_traits;
pub(crate) mod breadcrumb;
pub(crate) mod etw;
pub(crate) mod mdl;
pub(crate) mod pool;
pub(crate) mod processor;
pub(crate) mod reserve;
pub(crate) mod runner;
pub(crate) mod sync;
pub(crate) mod text;
pub(crate) mod thread;
pub(crate) mod timer;

use crate::abi::imports::{BCryptGenRandom, KeQueryPerformanceCounter};
use crate::abi::*;
use crate::log;
use crate::problems::Problem;
use alloc::sync::Arc;
use core::net::IpAddr;
use driver::platform::{Mapped, Platform, Resolve, Resolver, Trace};
use processor::Seating;
use rocev2::env::Instant;

/// The Windows side of [`Platform`]. The adapter supplies the resolver of neighbours.
pub(crate) struct Windows<R> {
    clock: Clock,
    seating: Arc<Seating>,
    resolver: R,
    /// The adapter's index.
    interface: NET_IFINDEX,
}

/// Asks for a neighbour's address without waiting. IRQL <= DISPATCH_LEVEL.
pub(crate) trait Neighbours: Send + Sync {
    fn resolve(&self, local: IpAddr, remote: IpAddr, how: Resolve) -> Resolver;
}

impl<R> Windows<R> {
    pub(crate) fn new(seating: Arc<Seating>, resolver: R, interface: NET_IFINDEX) -> Self {
        Self { clock: Clock::new(), seating, resolver, interface }
    }
}

impl<R: Neighbours> Platform for Windows<R> {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn map(&self, mdl: &MDL) -> Option<Mapped> {
        mdl::map(mdl)
    }

    fn with_memory(&self, bytes: usize, work: &mut dyn FnMut()) -> bool {
        reserve::with(bytes, work)
    }

    fn has_room(&self) -> bool {
        !reserve::is_short()
    }

    /// The poll core may run in a DPC of this processor: no thread below DISPATCH_LEVEL delays it.
    fn undisturbed(&self, step: &mut dyn FnMut()) {
        sync::at_dispatch(step);
    }

    fn resolve(&self, local: IpAddr, remote: IpAddr, how: Resolve) -> Resolver {
        self.resolver.resolve(local, remote, how)
    }

    fn core_near(&self, group: u16, mask: u64, _cores: usize) -> Option<usize> {
        self.seating.core_near(group, mask)
    }

    fn trace(&self, event: &Trace<'_>) {
        if let Trace::UnitsLost { lost, sent } = *event {
            let [lost, sent] = [lost, sent].map(|count| count.try_into().unwrap_or(u32::MAX));
            log::report(self.interface, Problem::UnitsLost, lost, sent);
        }
        etw::core(event);
    }
}

/// The performance counter in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    ticks_per_second: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { ticks_per_second: ticks().1 }
    }

    /// Any IRQL.
    pub(crate) fn now(&self) -> Instant {
        let nanos = u128::from(ticks().0) * 1_000_000_000 / u128::from(self.ticks_per_second);
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The counter and its frequency.
#[allow(unsafe_code, reason = "calls the kernel")]
fn ticks() -> (u64, u64) {
    let mut frequency = 0;
    // SAFETY: the frequency is a place of ours.
    let count = unsafe { KeQueryPerformanceCounter(&mut frequency) };
    (count.cast_unsigned(), frequency.cast_unsigned().max(1))
}

/// Fills `bytes` from the system's generator. PASSIVE_LEVEL.
#[allow(unsafe_code, reason = "calls the kernel")]
pub(crate) fn entropy(bytes: &mut [u8]) -> Result<(), NTSTATUS> {
    let algorithm = core::ptr::null_mut();
    let len = bytes.len() as ULONG;
    let flags = BCRYPT_USE_SYSTEM_PREFERRED_RNG;
    // SAFETY: the buffer is ours, for `len` bytes.
    unsafe { BCryptGenRandom(algorithm, bytes.as_mut_ptr(), len, flags) }.ok()
}

/// Stops the system: a broken invariant in the kernel must not go on.
#[cfg(not(test))]
#[panic_handler]
#[allow(unsafe_code, reason = "calls the kernel")]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // The debugger shows the reason in words. Any IRQL at which this driver runs.
    #[cfg(feature = "wdk")]
    wdk::println!("ndkrocev2: {info}");
    let (line, file) = info
        .location()
        .map_or((0, 0), |at| (at.line(), at.file().as_ptr().expose_provenance() as u64));
    // SAFETY: never returns. The line and the file's name tell a debugger where it was.
    unsafe {
        crate::abi::imports::KeBugCheckEx(
            MANUALLY_INITIATED_CRASH1,
            PANIC_SIGN,
            line.into(),
            file,
            0,
        )
    }
}

/// "NDKR": this driver's bug checks.
#[cfg(not(test))]
const PANIC_SIGN: u64 = u32::from_be_bytes(*b"NDKR") as u64;
