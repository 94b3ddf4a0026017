//! Time, the processors, the registry path, debug prints, and what the compiler calls.

use std::ffi::CStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{Pointer, SUCCESS, UnicodeString, dpc, irql};

static BOOT: LazyLock<Instant> = LazyLock::new(Instant::now);

/// 100 ns units since 1601.
pub fn system_time() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() / 100;
    since_1970 as u64 + 116_444_736_000_000_000
}

fn interrupt_time() -> u64 {
    BOOT.elapsed().as_nanos() as u64 / 100 + 10_000_000
}

/// Ten million per second, as Windows has on most machines.
pub(crate) fn counter() -> i64 {
    match STOPPED_AT.load(Ordering::SeqCst) {
        0 => interrupt_time() as i64,
        stopped => stopped,
    }
}

/// Where the performance counter stands still; 0: nowhere.
static STOPPED_AT: AtomicI64 = AtomicI64::new(0);

/// Runs `during` while the performance counter stands still, so that nothing falls due for the image.
pub fn stop_counter(during: impl FnOnce()) {
    STOPPED_AT.store(counter(), Ordering::SeqCst);
    during();
    STOPPED_AT.store(0, Ordering::SeqCst);
}

exports! { "ntoskrnl.exe":
    fn KeQueryInterruptTime() -> u64 { interrupt_time() }
    fn KeQueryInterruptTimePrecise(counter_out: *mut u64) -> u64 {
        if !counter_out.is_null() { counter_out.write(counter() as u64); }
        interrupt_time()
    }
    fn KeQueryUnbiasedInterruptTime() -> u64 { interrupt_time() }
    fn KeQueryUnbiasedInterruptTimePrecise(counter_out: *mut u64) -> u64 { KeQueryInterruptTimePrecise(counter_out) }
    fn KeQuerySystemTimePrecise(time: *mut u64) { time.write(system_time()); }
    fn KeQueryTimeIncrement() -> u32 { 156_250 }
    fn KeStallExecutionProcessor(microseconds: u32) {
        let since = Instant::now();
        while since.elapsed().as_micros() < microseconds.into() { std::hint::spin_loop(); }
    }
    fn KeGetCurrentProcessorNumberEx(number: *mut u16) -> u32 {
        irql::at_least(irql::DISPATCH, "KeGetCurrentProcessorNumberEx");
        let here = dpc::current_number();
        if !number.is_null() { number.cast::<[u16; 2]>().write([0, here as u16]); }
        here as u32
    }
    fn KeGetCurrentProcessorIndex() -> u32 { dpc::current_processor() as u32 }
    fn KeQueryActiveProcessorCountEx(_group: u16) -> u32 { dpc::processors() as u32 }
    fn KeQueryActiveProcessorCount(affinity: *mut usize) -> u32 {
        if !affinity.is_null() { affinity.write((1 << dpc::processors()) - 1); }
        dpc::processors() as u32
    }
    fn KeQueryMaximumProcessorCountEx(_group: u16) -> u32 { dpc::processors() as u32 }
    fn KeGetProcessorNumberFromIndex(index: u32, number: *mut [u16; 2]) -> i32 {
        number.write([0, index as u16]);
        SUCCESS
    }
    fn KeBugCheckEx(code: u32, a: usize, b: usize, c: usize, d: usize) {
        if a != 0 && code == 0xE2 {
            say!("bug check {code:#x}: {a:#x} {b:#x} {c:#x} {d:#x}");
        }
        crate::log::verdict(format_args!("BREACH: bug check {code:#x} ({a:#x}, {b:#x}, {c:#x}, {d:#x})"), false)
    }
    fn DbgPrint(format: *const i8) -> i32 {
        say!("image: {}", CStr::from_ptr(format.cast()).to_string_lossy().trim_end());
        SUCCESS
    }
    fn DbgPrintEx(_component: u32, _level: u32, format: *const i8) -> i32 { DbgPrint(format) }
    fn vDbgPrintEx(_component: u32, _level: u32, format: *const i8, _list: Pointer) -> i32 { DbgPrint(format) }
    fn RtlGetVersion(version: *mut u32) -> i32 {
        // OSVERSIONINFOW: size, major, minor, build. Server 2022.
        version.add(1).cast::<[u32; 3]>().write([10, 0, 20348]);
        SUCCESS
    }
    fn IofCompleteRequest(irp: Pointer, _boost: i8) { crate::ndis::device::complete(irp); }
    fn MmGetSystemRoutineAddress(name: &UnicodeString) -> Pointer {
        irql::at_most(irql::PASSIVE, "MmGetSystemRoutineAddress");
        let name = name.text();
        // It looks into these two and no others.
        let found = ["ntoskrnl.exe", "hal.dll"].iter().find_map(|module| crate::resolve(module, &name));
        found.map_or(std::ptr::null_mut(), |address| address as Pointer)
    }
    fn RtlInitUnicodeString(string: *mut UnicodeString, text: *const u16) {
        let mut length = 0;
        while !text.is_null() && *text.add(length) != 0 { length += 1; }
        string.write(UnicodeString { length: 2 * length as u16, maximum: 2 * length as u16 + 2, buffer: text });
    }
    fn ExUuidCreate(uuid: *mut [u8; 16]) -> i32 {
        irql::at_most(irql::APC, "ExUuidCreate");
        random(&mut *uuid);
        SUCCESS
    }
    fn SystemPrng(buffer: Pointer, len: usize) -> u8 {
        random(std::slice::from_raw_parts_mut(buffer, len));
        1
    }
}

/// Entropy. The quality does not matter here.
pub(crate) fn random(bytes: &mut [u8]) {
    use std::hash::{BuildHasher as _, RandomState};
    for chunk in bytes.chunks_mut(8) {
        let fresh = RandomState::new().hash_one(0).to_le_bytes();
        chunk.copy_from_slice(&fresh[..chunk.len()]);
    }
}

// What the compiler calls. Under these names only in the table: this process has its own.

#[cfg_attr(windows, unsafe(export_name = "RigCopy"))]
pub unsafe extern "win64" fn copy(to: Pointer, from: *const u8, len: usize) -> Pointer {
    std::ptr::copy(from, to, len);
    to
}

#[cfg_attr(windows, unsafe(export_name = "RigSet"))]
pub unsafe extern "win64" fn set(to: Pointer, byte: i32, len: usize) -> Pointer {
    to.write_bytes(byte as u8, len);
    to
}

#[cfg_attr(windows, unsafe(export_name = "RigCompare"))]
pub unsafe extern "win64" fn compare(left: *const u8, right: *const u8, len: usize) -> i32 {
    let (left, right) =
        (std::slice::from_raw_parts(left, len), std::slice::from_raw_parts(right, len));
    left.cmp(right) as i32
}

pub(crate) const RUNTIME: &str = "stand-in ntoskrnl.exe!memcpy\nstand-in ntoskrnl.exe!memmove\n\
    stand-in ntoskrnl.exe!memset\nstand-in ntoskrnl.exe!memcmp\n";

pub(crate) fn runtime() -> Vec<(&'static str, usize)> {
    vec![
        ("memcpy", copy as *const () as usize),
        ("memmove", copy as *const () as usize),
        ("memset", set as *const () as usize),
        ("memcmp", compare as *const () as usize),
    ]
}
