//! Objects that can be waited for: events, threads, timers. And the threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::irql::{self, APC, DISPATCH, PASSIVE};
use super::{INSUFFICIENT_RESOURCES, Pointer, SUCCESS, TIMEOUT, dpc, lock, pool, registry};

/// `DISPATCHER_HEADER`.
#[repr(C)]
pub struct Header {
    kind: u8,
    rest: [u8; 3],
    signal: AtomicI32,
    waiters: [usize; 2],
}
const _: () = assert!(size_of::<Header>() == 0x18);

const NOTIFICATION: u8 = 0;
const SYNCHRONIZATION: u8 = 1;
const THREAD: u8 = 6;
pub const NOTIFICATION_TIMER: u8 = 8;
pub const SYNCHRONIZATION_TIMER: u8 = 9;

/// Every change of a signal is made under it and told to all who wait.
static SIGNALS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

impl Header {
    pub fn new(kind: u8, signal: i32) -> Self {
        Self { kind, rest: [0; 3], signal: AtomicI32::new(signal), waiters: [0; 2] }
    }

    pub fn set(&self) -> i32 {
        let _guard = SIGNALS.0.lock().unwrap();
        let before = self.signal.swap(1, Ordering::SeqCst);
        SIGNALS.1.notify_all();
        before
    }

    pub fn clear(&self) -> i32 {
        self.signal.swap(0, Ordering::SeqCst)
    }

    fn take(&self) -> bool {
        match self.kind {
            SYNCHRONIZATION | SYNCHRONIZATION_TIMER => self.signal.swap(0, Ordering::SeqCst) != 0,
            NOTIFICATION | NOTIFICATION_TIMER | THREAD => self.signal.load(Ordering::SeqCst) != 0,
            kind => {
                breach!("a wait for an object of kind {kind}");
                true
            }
        }
    }
}

/// 100 ns units: negative from now, positive since 1601. `None`: forever.
fn deadline(timeout: *const i64) -> Option<Instant> {
    let units = unsafe { *timeout.as_ref()? };
    let units = if units < 0 {
        units.unsigned_abs()
    } else {
        (units as u64).saturating_sub(super::misc::system_time())
    };
    Some(Instant::now() + Duration::from_nanos(units.saturating_mul(100)))
}

fn wait(objects: &[&Header], all: bool, timeout: *const i64, what: &str) -> i32 {
    let polls = unsafe { timeout.as_ref() } == Some(&0);
    irql::at_most(if polls { DISPATCH } else { APC }, what);
    if !polls {
        lock::none_held("a thread that waits");
    }
    let deadline = deadline(timeout);
    if !polls {
        crate::schedule::blocks();
    }
    let mut guard = SIGNALS.0.lock().unwrap();
    loop {
        if all {
            if objects.iter().all(|object| object.signal.load(Ordering::SeqCst) != 0) {
                for object in objects {
                    object.take();
                }
                return SUCCESS;
            }
        } else if let Some(place) = objects.iter().position(|object| object.take()) {
            return place as i32;
        }
        guard = match deadline {
            None => SIGNALS.1.wait(guard).unwrap(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return TIMEOUT;
                }
                SIGNALS.1.wait_timeout(guard, left).unwrap().0
            }
        };
    }
}

// Threads. A handle is a number; an object is a header that lives as long as it is referenced.

struct Thread {
    object: Box<Header>,
    references: usize,
    seat: Seat,
}

/// The priority and the processor that a thread was given.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seat {
    pub priority: Option<i32>,
    pub processor: Option<usize>,
}

/// The seats of all system threads that have one.
pub fn seats() -> Vec<Seat> {
    let threads = THREADS.lock().unwrap();
    threads.values().map(|thread| thread.seat).filter(|seat| *seat != Seat::default()).collect()
}

type Threads = HashMap<usize, Thread>;
static THREADS: LazyLock<Mutex<Threads>> = LazyLock::new(Mutex::default);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

thread_local! {
    static SELF: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// System threads that have not ended.
pub fn running() -> usize {
    RUNNING.load(Ordering::SeqCst)
}

/// Reports thread handles and references that were not given back.
pub fn report_leaks() {
    let threads = std::mem::take(&mut *THREADS.lock().unwrap());
    for (handle, thread) in threads {
        breach!("thread {handle:#x} has {} handles or references left", thread.references);
        Box::leak(thread.object);
    }
    if running() > 0 {
        breach!("{} system threads run on", running());
    }
}

fn release(handle: usize) {
    let mut threads = THREADS.lock().unwrap();
    let Some(thread) = threads.get_mut(&handle) else {
        breach!("thread {handle:#x} is released once too often");
        return;
    };
    thread.references -= 1;
    if thread.references == 0 {
        threads.remove(&handle);
    }
}

fn handle_of(object: Pointer) -> Option<usize> {
    let threads = THREADS.lock().unwrap();
    threads
        .iter()
        .find(|(_, thread)| std::ptr::eq((&raw const *thread.object).cast(), object))
        .map(|(&handle, _)| handle)
}

type Start = unsafe extern "win64" fn(Pointer);
struct Job(Start, usize, usize);
unsafe impl Send for Job {}

/// What a system thread's end unwinds with: there is no other way out of the image's frames.
fn end(handle: usize) {
    lock::none_held("a system thread");
    if irql::current() != PASSIVE {
        breach!("a system thread ends at IRQL {}", irql::current());
    }
    if let Some(thread) = THREADS.lock().unwrap().get(&handle) {
        thread.object.set();
    }
    release(handle);
    // Last: whoever sees it looks for handles that are left.
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// Ends the host thread, which under Wine would keep four files each for as long as it slept.
#[cfg(windows)]
fn leave() -> ! {
    crate::wine::end_thread()
}

/// Leaves the host thread behind, asleep: nothing here ends it without unwinding the image's frames.
#[cfg(not(windows))]
fn leave() -> ! {
    loop {
        std::thread::park();
    }
}

exports! { "ntoskrnl.exe":
    fn KeInitializeEvent(event: *mut Header, kind: i32, signal: u8) {
        event.write(Header::new(kind as u8, signal.into()));
    }
    fn KeSetEvent(event: &Header, _increment: i32, wait: u8) -> i32 {
        irql::at_most(DISPATCH, "KeSetEvent");
        if wait != 0 { breach!("KeSetEvent with Wait"); }
        event.set()
    }
    fn KeClearEvent(event: &Header) { event.clear(); }
    fn KeResetEvent(event: &Header) -> i32 { event.clear() }
    fn KeReadStateEvent(event: &Header) -> i32 { event.signal.load(Ordering::SeqCst) }
    fn KeWaitForSingleObject(object: &Header, _reason: i32, _mode: i8, _alertable: u8, timeout: *const i64) -> i32 {
        wait(&[object], false, timeout, "KeWaitForSingleObject")
    }
    fn KeWaitForMultipleObjects(count: u32, objects: *const &Header, kind: i32, _reason: i32, _mode: i8,
        _alertable: u8, timeout: *const i64, blocks: Pointer) -> i32 {
        if count > 3 && blocks.is_null() { breach!("KeWaitForMultipleObjects without wait blocks for {count}"); }
        let objects = std::slice::from_raw_parts(objects, count as usize);
        wait(objects, kind == 0, timeout, "KeWaitForMultipleObjects")
    }
    fn KeDelayExecutionThread(_mode: i8, _alertable: u8, interval: *const i64) -> i32 {
        irql::at_most(APC, "KeDelayExecutionThread");
        crate::schedule::blocks();
        if let Some(deadline) = deadline(interval) {
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        SUCCESS
    }
    fn PsCreateSystemThread(handle: *mut usize, _access: u32, attributes: Pointer, _process: usize, _client: Pointer,
        start: Start, context: Pointer) -> i32 {
        irql::at_most(PASSIVE, "PsCreateSystemThread");
        // OBJECT_ATTRIBUTES.Attributes: OBJ_KERNEL_HANDLE, or user mode could close it.
        if attributes.is_null() || attributes.add(0x18).cast::<u32>().read() & 0x200 == 0 {
            breach!("a thread's handle is no kernel handle");
        }
        if pool::refuses("thread") { return INSUFFICIENT_RESOURCES; }
        let number = NEXT.fetch_add(4, Ordering::Relaxed);
        // One reference of the handle, one of the thread while it runs.
        let thread = Thread { object: Box::new(Header::new(THREAD, 0)), references: 2, seat: Seat::default() };
        THREADS.lock().unwrap().insert(number, thread);
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let job = Job(start, context as usize, number);
        std::thread::spawn(move || {
            let job = job;
            SELF.set(job.2);
            crate::stack::inside("a system thread", || (job.0)(job.1 as Pointer));
            end(job.2);
        });
        handle.write(number);
        SUCCESS
    }
    fn PsTerminateSystemThread(_status: i32) -> i32 {
        end(SELF.get());
        // Never returns, with the image's frames on the stack.
        leave()
    }
    fn ObReferenceObjectByHandle(handle: usize, _access: u32, _kind: Pointer, _mode: i8, object: *mut Pointer, _info: Pointer) -> i32 {
        irql::at_most(PASSIVE, "ObReferenceObjectByHandle");
        let mut threads = THREADS.lock().unwrap();
        let Some(thread) = threads.get_mut(&handle) else {
            breach!("handle {handle:#x} is unknown");
            return 0xC000_0008_u32.cast_signed();
        };
        thread.references += 1;
        object.write((&raw mut *thread.object).cast());
        SUCCESS
    }
    fn ObfDereferenceObject(object: Pointer) -> isize {
        irql::at_most(DISPATCH, "ObfDereferenceObject");
        match handle_of(object) {
            Some(handle) => release(handle),
            None => breach!("an unknown object is dereferenced"),
        }
        0
    }
    fn ZwClose(handle: usize) -> i32 {
        irql::at_most(PASSIVE, "ZwClose");
        if !registry::close(handle) { release(handle); }
        SUCCESS
    }
    fn KeGetCurrentThread() -> Pointer {
        thread_local! { static HERE: u8 = const { 0 }; }
        HERE.with(|here| &raw const *here as Pointer)
    }
    fn PsGetCurrentThread() -> Pointer { KeGetCurrentThread() }
    fn KeSetPriorityThread(thread: Pointer, priority: i32) -> i32 {
        irql::at_most(DISPATCH, "KeSetPriorityThread");
        match handle_of(thread).and_then(|handle| THREADS.lock().unwrap().get_mut(&handle).map(|thread| thread.seat.priority.replace(priority))) {
            Some(before) => before.unwrap_or(8),
            None => { breach!("the priority of an unknown thread is set"); 8 }
        }
    }
    fn KeSetBasePriorityThread(_thread: Pointer, _increment: i32) -> i32 { 0 }
    /// GROUP_AFFINITY: the mask, and the group behind it.
    fn KeSetSystemGroupAffinityThread(affinity: *const usize, previous: Pointer) {
        irql::at_most(DISPATCH, "KeSetSystemGroupAffinityThread");
        if !previous.is_null() { previous.write_bytes(0, 16); }
        let (mask, group) = (affinity.read(), affinity.add(1).cast::<u16>().read());
        if group != 0 || mask == 0 || mask >> dpc::processors() != 0 {
            breach!("no processor has the affinity {mask:#x} in group {group}");
        }
        if let Some(thread) = THREADS.lock().unwrap().get_mut(&SELF.get()) {
            thread.seat.processor = (mask.count_ones() == 1).then_some(mask.trailing_zeros() as usize);
        }
    }
    fn KeRevertToUserGroupAffinityThread(_previous: Pointer) {}
}
