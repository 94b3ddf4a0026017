//! Wine's driver host as the host: it loads and unloads the image, in the process we are in.

use crate::Host;
use crate::ntos::UnicodeString;
use crate::ntos::irql::{self, PASSIVE};

type Load = unsafe extern "win64" fn(*const UnicodeString) -> i32;

struct Wine {
    load: Load,
    unload: Load,
}

const SERVICE: &str = r"\Registry\Machine\System\CurrentControlSet\Services\ndkrocev2";
const REPORT: &str = r"C:\rig-report.txt";
const SCENARIO: &str = r"C:\rig-scenario.txt";

impl Host for Wine {
    fn load(&self) -> Result<(), i32> {
        let name = UnicodeString::leak(SERVICE);
        let load = || unsafe { (self.load)(&raw const name) };
        match irql::run_at(PASSIVE, "DriverEntry", load) {
            0 => Ok(()),
            status => Err(status),
        }
    }

    fn unload(&self) {
        let name = UnicodeString::leak(SERVICE);
        let unload = || unsafe { (self.unload)(&raw const name) };
        let status = irql::run_at(PASSIVE, "DriverUnload", unload);
        if status != 0 {
            breach!("Wine does not unload the image: {status:#x}");
        }
    }
}

/// What the driver that Wine starts calls.
#[unsafe(no_mangle)]
pub(crate) extern "win64" fn RigStart(load: Load, unload: Load) -> i32 {
    std::thread::spawn(move || {
        crate::log::to_file(REPORT);
        let scenario = std::fs::read_to_string(SCENARIO).unwrap_or_default();
        let scenario: Vec<String> = scenario.split_whitespace().map(str::to_owned).collect();
        crate::scenarios::run(&scenario, &Wine { load, unload });
    });
    0
}
