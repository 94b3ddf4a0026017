//! DPCs and timers. Each processor of the stand-in is a thread that runs DPCs one by one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use super::dispatcher::{Header, NOTIFICATION_TIMER, SYNCHRONIZATION_TIMER};
use super::irql::{self, DISPATCH};
use super::{Pointer, lock, pool};

/// As the stand-in tells the image, unless a scenario has more.
static PROCESSORS: AtomicUsize = AtomicUsize::new(2);
const MOST_PROCESSORS: usize = 4;

/// `KDPC`.
#[repr(C)]
pub struct Dpc {
    kind: u8,
    importance: u8,
    number: u16,
    entry: [usize; 2],
    routine: Option<unsafe extern "win64" fn(*mut Dpc, Pointer, Pointer, Pointer)>,
    context: Pointer,
    arguments: [Pointer; 2],
    /// Not NULL while it is queued.
    data: usize,
}
const _: () = assert!(size_of::<Dpc>() == 0x40 && std::mem::offset_of!(Dpc, routine) == 0x18);
const KIND: u8 = 0x13;
const TARGETED: u16 = 0x500;

/// `KTIMER`.
#[repr(C)]
pub struct Timer {
    header: Header,
    due: u64,
    entry: [usize; 2],
    dpc: usize,
    processor: u32,
    period: u32,
}
const _: () = assert!(size_of::<Timer>() == 0x40);

#[derive(Default)]
struct Processor {
    queue: VecDeque<usize>,
    runs: Option<usize>,
}

struct Queues {
    processors: [Processor; MOST_PROCESSORS],
    timers: Vec<(Instant, usize)>,
}

static QUEUES: Mutex<Queues> = Mutex::new(Queues {
    processors: [const { Processor { queue: VecDeque::new(), runs: None } }; MOST_PROCESSORS],
    timers: Vec::new(),
});
static NEWS: Condvar = Condvar::new();
static START: Once = Once::new();
/// A DPC that takes longer is told: Windows' watchdog is more patient, but counts them all.
const LONG: Duration = Duration::from_millis(20);

/// Targeted DPCs that have run, by their processors.
static TARGETED_RUNS: [AtomicUsize; MOST_PROCESSORS] =
    [const { AtomicUsize::new(0) }; MOST_PROCESSORS];

/// Before the image is loaded.
pub fn set_processors(count: usize) {
    assert!(count <= MOST_PROCESSORS);
    PROCESSORS.store(count, Ordering::SeqCst);
}

pub fn processors() -> usize {
    PROCESSORS.load(Ordering::SeqCst)
}

/// The processors on which DPCs have run that were for one, since the last call.
pub fn take_targets() -> Vec<usize> {
    let ran = |processor: &usize| TARGETED_RUNS[*processor].swap(0, Ordering::SeqCst) > 0;
    (0..MOST_PROCESSORS).filter(ran).collect()
}

thread_local! {
    static PROCESSOR: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

pub fn current_processor() -> usize {
    PROCESSOR.get().unwrap_or(0)
}

/// A number that no other thread has at the same time: a thread of this process at DISPATCH_LEVEL
/// keeps no other from running, so that each has to pass for a processor of its own.
pub fn current_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(MOST_PROCESSORS);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    PROCESSOR.get().unwrap_or_else(|| OWN.with(|&own| own))
}

fn start() {
    START.call_once(|| {
        for processor in 0..processors() {
            std::thread::spawn(move || run(processor));
        }
        std::thread::spawn(expire);
    });
}

fn run(processor: usize) {
    PROCESSOR.set(Some(processor));
    let mut queues = QUEUES.lock().unwrap();
    loop {
        let Some(dpc) = queues.processors[processor].queue.pop_front() else {
            queues = NEWS.wait(queues).unwrap();
            continue;
        };
        let object = dpc as *mut Dpc;
        // After this the image may queue it again, or free it.
        let (routine, context, [a, b]) = unsafe {
            if (*object).number >= TARGETED {
                TARGETED_RUNS[processor].fetch_add(1, Ordering::SeqCst);
            }
            (*object).data = 0;
            ((*object).routine, (*object).context, (*object).arguments)
        };
        queues.processors[processor].runs = Some(dpc);
        drop(queues);
        let since = Instant::now();
        irql::run_at(DISPATCH, "a DPC", || unsafe {
            routine.expect("KeInitializeDpc wants a routine")(object, context, a, b);
        });
        lock::none_held("a DPC");
        if since.elapsed() > LONG {
            say!("note: a DPC took {} ms", since.elapsed().as_millis());
        }
        queues = QUEUES.lock().unwrap();
        queues.processors[processor].runs = None;
        NEWS.notify_all();
    }
}

fn insert(queues: &mut Queues, dpc: *mut Dpc, arguments: [Pointer; 2]) -> u8 {
    let object = unsafe { &mut *dpc };
    if object.kind != KIND || object.routine.is_none() {
        breach!("a DPC is queued that was not initialized");
        return 0;
    }
    if object.data != 0 {
        return 0;
    }
    object.arguments = arguments;
    object.data = 1;
    let target = match object.number.checked_sub(TARGETED) {
        Some(number) => number as usize % processors(),
        None => current_processor(),
    };
    queues.processors[target].queue.push_back(dpc as usize);
    NEWS.notify_all();
    1
}

/// Fires timers.
fn expire() {
    let mut queues = QUEUES.lock().unwrap();
    loop {
        let now = Instant::now();
        while let Some(place) = queues.timers.iter().position(|(due, _)| *due <= now) {
            let (due, address) = queues.timers.swap_remove(place);
            let timer = unsafe { &*(address as *const Timer) };
            timer.header.set();
            if timer.period > 0 {
                queues.timers.push((due + Duration::from_millis(timer.period.into()), address));
            }
            if timer.dpc != 0 {
                insert(&mut queues, timer.dpc as *mut Dpc, [std::ptr::null_mut(); 2]);
            }
        }
        let next = queues.timers.iter().map(|(due, _)| *due).min();
        let left =
            next.map_or(Duration::from_secs(3600), |next| next.saturating_duration_since(now));
        queues = NEWS.wait_timeout(queues, left.max(Duration::from_micros(50))).unwrap().0;
    }
}

fn set_timer(timer: *mut Timer, due: i64, period: u32, dpc: usize) -> u8 {
    irql::at_most(DISPATCH, "KeSetTimer");
    start();
    let units = if due < 0 {
        due.unsigned_abs()
    } else {
        (due as u64).saturating_sub(super::misc::system_time())
    };
    let mut queues = QUEUES.lock().unwrap();
    let was = cancel(&mut queues, timer);
    unsafe {
        (*timer).header.clear();
        (*timer).dpc = dpc;
        (*timer).period = period;
    }
    queues
        .timers
        .push((Instant::now() + Duration::from_nanos(units.saturating_mul(100)), timer as usize));
    NEWS.notify_all();
    was
}

fn cancel(queues: &mut Queues, timer: *mut Timer) -> u8 {
    let before = queues.timers.len();
    queues.timers.retain(|(_, address)| *address != timer as usize);
    u8::from(queues.timers.len() < before)
}

/// The kernel's own timer, which calls its routine in a DPC of its own.
#[repr(C)]
pub struct ExTimer {
    timer: Timer,
    dpc: Dpc,
    routine: unsafe extern "win64" fn(*mut ExTimer, Pointer),
    context: Pointer,
}
/// `EX_TIMER_HIGH_RESOLUTION`.
const HIGH_RESOLUTION: u32 = 4;
static EX_TIMERS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "win64" fn expired(_dpc: *mut Dpc, timer: Pointer, _a: Pointer, _b: Pointer) {
    let timer = timer.cast::<ExTimer>();
    let (routine, context) = unsafe { ((*timer).routine, (*timer).context) };
    unsafe { routine(timer, context) };
}

/// Waits until a DPC is neither queued nor runs.
fn wait_for(dpc: *const Dpc) {
    let is_busy = |queues: &Queues| {
        let is_of =
            |p: &Processor| p.queue.contains(&(dpc as usize)) || p.runs == Some(dpc as usize);
        queues.processors.iter().any(is_of)
    };
    crate::schedule::blocks();
    let mut queues = QUEUES.lock().unwrap();
    while is_busy(&queues) {
        queues = NEWS.wait(queues).unwrap();
    }
}

/// Reports what would run code of an image that is gone.
pub fn report_leaks() {
    let timers = EX_TIMERS.swap(0, Ordering::SeqCst);
    if timers > 0 {
        breach!("{timers} timers are not deleted");
    }
    let mut queues = QUEUES.lock().unwrap();
    if !queues.timers.is_empty() {
        breach!("{} timers are still set", queues.timers.len());
        queues.timers.clear();
    }
    for processor in &mut queues.processors {
        if !processor.queue.is_empty() || processor.runs.is_some() {
            breach!("a DPC is still queued or runs");
            processor.queue.clear();
        }
    }
}

exports! { "ntoskrnl.exe":
    fn KeInitializeDpc(dpc: *mut Dpc, routine: Option<unsafe extern "win64" fn(*mut Dpc, Pointer, Pointer, Pointer)>, context: Pointer) {
        dpc.write(Dpc { kind: KIND, importance: 1, number: 0, entry: [0; 2], routine, context,
            arguments: [std::ptr::null_mut(); 2], data: 0 });
    }
    fn KeSetImportanceDpc(dpc: &mut Dpc, importance: i32) { dpc.importance = importance as u8; }
    fn KeSetTargetProcessorDpc(dpc: &mut Dpc, number: i8) { dpc.number = TARGETED + number as u16; }
    // PROCESSOR_NUMBER: group, number.
    fn KeSetTargetProcessorDpcEx(dpc: &mut Dpc, number: *const u16) -> i32 {
        let (group, target) = (*number, *number.add(1) & 0xff);
        if group != 0 || target as usize >= processors() {
            breach!("a DPC is for processor {target} of group {group}, which is none");
        }
        dpc.number = TARGETED + target;
        0
    }
    fn KeInsertQueueDpc(dpc: *mut Dpc, a: Pointer, b: Pointer) -> u8 {
        start();
        insert(&mut QUEUES.lock().unwrap(), dpc, [a, b])
    }
    fn KeRemoveQueueDpc(dpc: *mut Dpc) -> u8 {
        let mut queues = QUEUES.lock().unwrap();
        for processor in &mut queues.processors {
            if let Some(place) = processor.queue.iter().position(|&queued| queued == dpc as usize) {
                processor.queue.remove(place);
                (*dpc).data = 0;
                return 1;
            }
        }
        0
    }
    fn KeFlushQueuedDpcs() {
        irql::at_most(irql::PASSIVE, "KeFlushQueuedDpcs");
        crate::schedule::blocks();
        let mut queues = QUEUES.lock().unwrap();
        let busy = |queues: &Queues| queues.processors.iter().any(|p| !p.queue.is_empty() || p.runs.is_some());
        while busy(&queues) {
            queues = NEWS.wait(queues).unwrap();
        }
    }
    fn KeInitializeTimer(timer: *mut Timer) { KeInitializeTimerEx(timer, 0) }
    fn KeInitializeTimerEx(timer: *mut Timer, kind: i32) {
        let kind = if kind == 0 { NOTIFICATION_TIMER } else { SYNCHRONIZATION_TIMER };
        timer.write(Timer { header: Header::new(kind, 0), due: 0, entry: [0; 2], dpc: 0, processor: 0, period: 0 });
    }
    fn KeSetTimer(timer: *mut Timer, due: i64, dpc: Pointer) -> u8 { set_timer(timer, due, 0, dpc as usize) }
    fn KeSetTimerEx(timer: *mut Timer, due: i64, period: i32, dpc: Pointer) -> u8 {
        set_timer(timer, due, period as u32, dpc as usize)
    }
    fn KeSetCoalescableTimer(timer: *mut Timer, due: i64, period: u32, _tolerance: u32, dpc: Pointer) -> u8 {
        set_timer(timer, due, period, dpc as usize)
    }
    fn KeCancelTimer(timer: *mut Timer) -> u8 {
        irql::at_most(DISPATCH, "KeCancelTimer");
        cancel(&mut QUEUES.lock().unwrap(), timer)
    }
    fn ExAllocateTimer(routine: unsafe extern "win64" fn(*mut ExTimer, Pointer), context: Pointer, attributes: u32) -> Pointer {
        irql::at_most(DISPATCH, "ExAllocateTimer");
        if attributes != HIGH_RESOLUTION { breach!("ExAllocateTimer with attributes {attributes:#x}"); }
        if pool::refuses("timer") { return std::ptr::null_mut(); }
        let object = Box::into_raw(Box::<ExTimer>::new_uninit()).cast::<ExTimer>();
        KeInitializeTimer(&raw mut (*object).timer);
        KeInitializeDpc(&raw mut (*object).dpc, Some(expired), object.cast());
        (&raw mut (*object).routine).write(routine);
        (&raw mut (*object).context).write(context);
        EX_TIMERS.fetch_add(1, Ordering::SeqCst);
        object.cast()
    }
    fn ExSetTimer(timer: *mut ExTimer, due: i64, period: i64, _parameters: Pointer) -> u8 {
        if due >= 0 { breach!("a high-resolution timer is set to an absolute time: bug check"); }
        set_timer(&raw mut (*timer).timer, due, period as u32 / 10_000, &raw mut (*timer).dpc as usize)
    }
    fn ExCancelTimer(timer: *mut ExTimer, _parameters: Pointer) -> u8 { KeCancelTimer(&raw mut (*timer).timer) }
    fn ExDeleteTimer(timer: *mut ExTimer, cancels: u8, waits: u8, _parameters: Pointer) -> u8 {
        irql::at_most(if waits != 0 { irql::APC } else { DISPATCH }, "ExDeleteTimer");
        if waits != 0 && cancels == 0 { breach!("ExDeleteTimer waits and does not cancel"); }
        let was = KeCancelTimer(&raw mut (*timer).timer);
        wait_for(&raw const (*timer).dpc);
        drop(Box::from_raw(timer));
        EX_TIMERS.fetch_sub(1, Ordering::SeqCst);
        was
    }
    fn KeShouldYieldProcessor() -> u8 { 0 }
    fn KeQueryDpcWatchdogInformation(information: *mut u32) -> i32 {
        // DpcTimeLimit, DpcTimeCount, DpcWatchdogLimit, DpcWatchdogCount, Reserved.
        information.cast::<[u32; 5]>().write([0, 0, 0, 0, 0]);
        0
    }
}
