//! Wine's driver host as the host: it loads and unloads the image, in the process we are in.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ntos::UnicodeString;
use crate::ntos::irql::{self, PASSIVE};
use crate::{Beside, Host};

type Load = unsafe extern "win64" fn(*const UnicodeString) -> i32;

struct Wine {
    load: Load,
    unload: Load,
}

const SERVICE: &str = "ndkrocev2";
const SERVICES: &str = r"\Registry\Machine\System\CurrentControlSet\Services";
const REPORT: &str = r"C:\rig-report.txt";
const PROFILE: &str = r"C:\rig-coverage.profraw";
const SCENARIO: &str = r"C:\rig-scenario.txt";

impl Host for Wine {
    fn load(&self) -> Result<(), i32> {
        load(self.load, SERVICE)?;
        hold_image();
        Ok(())
    }

    fn unload(&self) {
        unload(self.unload, SERVICE);
        let_image_go();
    }

    fn load_beside(&self, service: &'static str, _: &str) -> Result<Beside, i32> {
        load(self.load, service)?;
        let gate = self.unload;
        Ok(Box::new(move || unload(gate, service)))
    }
}

fn load(gate: Load, service: &str) -> Result<(), i32> {
    let name = UnicodeString::leak(&format!(r"{SERVICES}\{service}"));
    match irql::run_at(PASSIVE, "DriverEntry", || unsafe { gate(&raw const name) }) {
        0 => Ok(()),
        status => Err(status),
    }
}

fn unload(gate: Load, service: &str) {
    let name = UnicodeString::leak(&format!(r"{SERVICES}\{service}"));
    let status = irql::run_at(PASSIVE, "DriverUnload", || unsafe { gate(&raw const name) });
    if status != 0 {
        breach!("Wine does not unload {service}: {status:#x}");
    }
}

/// `EXCEPTION_RECORD`, as far as it is read.
#[repr(C)]
struct Exception {
    code: u32,
    flags: u32,
    next: usize,
    address: usize,
    count: u32,
    information: [usize; 2],
}

#[link(name = "kernel32")]
unsafe extern "system" {
    fn SetUnhandledExceptionFilter(filter: extern "system" fn(&&Exception) -> i32) -> usize;
    fn GetModuleHandleExA(flags: u32, name: *const u8, module: &mut usize) -> i32;
    fn FreeLibrary(module: usize) -> i32;
    fn ExitThread(code: u32) -> !;
}

/// Ends this thread, whatever is on its stack.
pub(crate) fn end_thread() -> ! {
    unsafe { ExitThread(0) }
}

/// The image that is held for its counters; 0: none.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Keeps the image in memory until its counters are read.
fn hold_image() {
    let mut module = 0;
    if unsafe { GetModuleHandleExA(0, c"ndkrocev2.sys".as_ptr().cast(), &mut module) } != 0 {
        crate::coverage::begin(module);
        HELD.store(module, Ordering::SeqCst);
    }
}

fn let_image_go() {
    crate::coverage::collect();
    if HELD.load(Ordering::SeqCst) != 0 {
        unsafe { FreeLibrary(HELD.swap(0, Ordering::SeqCst)) };
    }
}

/// Tells a fault, after which there would be no verdict.
extern "system" fn fault(exception: &&Exception) -> i32 {
    let Exception { code, address, information, .. } = **exception;
    crate::log::verdict(
        format_args!("BREACH: fault {code:#x} at {address:#x}, {information:x?}"),
        false,
    )
}

/// What the driver that Wine starts calls.
#[unsafe(no_mangle)]
pub(crate) extern "win64" fn RigStart(load: Load, unload: Load) -> i32 {
    // So that they are in the DLL.
    crate::lists().for_each(|list| {
        std::hint::black_box(list);
    });
    std::thread::spawn(move || {
        crate::log::to_file(REPORT);
        crate::coverage::to_file(PROFILE.into());
        unsafe { SetUnhandledExceptionFilter(fault) };
        let scenario = std::fs::read_to_string(SCENARIO).unwrap_or_default();
        let scenario: Vec<String> = scenario.split_whitespace().map(str::to_owned).collect();
        crate::scenarios::run(&scenario, &Wine { load, unload });
    });
    0
}
