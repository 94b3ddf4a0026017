//! The stand-in for ndis.sys: what NDIS would call, in its order, and what it would refuse.
//!
//! [`driver`]: registration. [`vnic`]: the image as a miniport. [`nic`]: the image as a protocol on
//! a NIC. [`nbl`]: net buffer lists and their owners. [`qos`]: classes of traffic. [`config`]: the registry's keywords. [`device`]: a
//! device of the driver's own.

pub mod config;
pub mod device;
pub mod driver;
pub mod nbl;
pub mod nic;
pub mod oid;
pub mod qos;
pub mod switch;
pub mod vnic;
pub mod work;

use crate::ntos::Pointer;

pub(crate) fn exports() -> impl Iterator<Item = (&'static str, usize)> {
    [
        config::table(),
        device::table(),
        driver::table(),
        nbl::table(),
        nic::calls::table(),
        oid::table(),
        vnic::table(),
    ]
    .into_iter()
    .chain([work::table()])
    .flatten()
}

pub(crate) const LISTS: [&str; 8] = [
    config::LIST,
    device::LIST,
    driver::LIST,
    nbl::LIST,
    nic::calls::LIST,
    oid::LIST,
    vnic::LIST,
    work::LIST,
];

pub const SUCCESS: i32 = 0;
pub const PENDING: i32 = 0x103;
pub const FAILURE: i32 = 0xC000_0001_u32.cast_signed();
pub const RESOURCES: i32 = 0xC000_009A_u32.cast_signed();
pub const NOT_SUPPORTED: i32 = 0xC000_00BB_u32.cast_signed();
pub const INVALID_LENGTH: i32 = 0xC001_0014_u32.cast_signed();
pub const BUFFER_TOO_SHORT: i32 = 0xC001_0016_u32.cast_signed();
pub const ADAPTER_NOT_FOUND: i32 = 0xC001_0006_u32.cast_signed();

/// `NDIS_OBJECT_HEADER`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Header {
    pub kind: u8,
    pub revision: u8,
    pub size: u16,
}

impl Header {
    pub const fn new(kind: u8, revision: u8, size: usize) -> Self {
        Self { kind, revision, size: size as u16 }
    }

    /// Reports a structure of another type, or whose size is not that of its revision.
    pub fn check(self, what: &str, kind: u8, revisions: &[(u8, u16)]) {
        let known = revisions.contains(&(self.revision, self.size));
        if self.kind != kind || !known {
            breach!("{what}: {self:x?} is none of type {kind:#x}, revision and size {revisions:?}");
        }
    }
}

/// Reads a member of a structure that the image passed.
///
/// # Safety
/// The structure has it.
pub unsafe fn member<T: Copy>(start: Pointer, offset: usize) -> T {
    start.add(offset).cast::<T>().read_unaligned()
}

/// # Safety
/// The structure has it.
pub unsafe fn set_member<T>(start: Pointer, offset: usize, value: T) {
    start.add(offset).cast::<T>().write_unaligned(value);
}

/// A call that may end later: who waits for it, and how it ended.
#[derive(Debug, Default)]
pub struct Completion {
    status: std::sync::Mutex<Option<i32>>,
    done: std::sync::Condvar,
}

impl Completion {
    pub const fn new() -> Self {
        Self { status: std::sync::Mutex::new(None), done: std::sync::Condvar::new() }
    }

    pub fn begin(&self) {
        *self.status.lock().unwrap() = None;
    }

    pub fn complete(&self, what: &str, status: i32) {
        let before = self.status.lock().unwrap().replace(status);
        if before.is_some() {
            breach!("{what} was completed twice");
        }
        self.done.notify_all();
    }

    /// The status, at once or when the image completes it.
    pub fn wait(&self, what: &str, returned: i32) -> i32 {
        if returned != PENDING {
            if self.status.lock().unwrap().is_some() {
                breach!("{what} returned {returned:#x} and was completed as well");
            }
            return returned;
        }
        let status = self.status.lock().unwrap();
        let (status, late) =
            self.done.wait_timeout_while(status, PATIENCE, |status| status.is_none()).unwrap();
        if late.timed_out() {
            drop(status);
            crate::log::verdict(format_args!("BREACH: {what} pends forever"), false);
        }
        status.unwrap()
    }
}

pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Waits for what has to come; reports it if it does not.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) -> bool {
    let came = within(PATIENCE, holds);
    if !came {
        breach!("{what}: not within {PATIENCE:?}");
    }
    came
}

/// Waits for what may come; false if it does not.
pub fn within(limit: std::time::Duration, mut holds: impl FnMut() -> bool) -> bool {
    let since = std::time::Instant::now();
    while !holds() {
        if since.elapsed() > limit {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    true
}
