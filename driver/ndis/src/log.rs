//! The system's event log and the trace, for problems that an administrator has to solve.
#![allow(unsafe_code, reason = "calls the kernel")]

use crate::abi::imports::{IoAllocateErrorLogEntry, IoWriteErrorLogEntry};
use crate::abi::*;
use crate::os::etw;
use crate::os::sync::SpinLock;
use crate::pairing::DRIVER;
use crate::problems::{Problem, Values};
use core::sync::atomic::Ordering;

/// The digits of the largest value, and the zero behind them.
const DIGITS_MAX: usize = 11;

/// An entry of the log: its head, and the strings that it points to. They stand in the place of the head's raw data.
#[repr(C)]
struct Entry {
    head: IO_ERROR_LOG_PACKET,
    strings: [u16; 3 * DIGITS_MAX],
}

/// The kernel takes entries of this size, and larger ones from some versions on.
const ERROR_LOG_MAXIMUM_SIZE: usize = 224;
const _: () = assert!(size_of::<Entry>() <= ERROR_LOG_MAXIMUM_SIZE);

/// Writes one event into log and trace. `interface` is the adapter's index, or 0. IRQL <= DISPATCH_LEVEL.
pub(crate) fn report(interface: NET_IFINDEX, problem: Problem, first: u32, second: u32) {
    let words = problem.words();
    etw::problem(words.name, interface, first, second);
    *LAST.lock() = Some((problem, [interface, first, second]));
    let radix = match words.values {
        Values::Numbers => 10,
        Values::Status => 16,
    };
    let mut strings = [0; 3 * DIGITS_MAX];
    let mut end = 0;
    for (value, radix) in [(interface, 10), (first, radix), (second, radix)] {
        end += write_number(&mut strings[end..], value, radix) + 1;
    }
    let head = IO_ERROR_LOG_PACKET {
        MajorFunctionCode: 0,
        RetryCount: 0,
        DumpDataSize: 0,
        NumberOfStrings: 3,
        StringOffset: core::mem::offset_of!(Entry, strings) as USHORT,
        EventCategory: 0,
        ErrorCode: NTSTATUS(problem.message_id().cast_signed()),
        UniqueErrorValue: 0,
        FinalStatus: STATUS_SUCCESS,
        SequenceNumber: 0,
        IoControlCode: 0,
        DeviceOffset: 0,
        DumpData: [0],
    };
    write(Entry { head, strings });
}

/// The last problem since the driver was loaded, with the adapter's interface index and the values.
pub(crate) fn last() -> Option<(Problem, [u32; 3])> {
    *LAST.lock()
}

static LAST: SpinLock<Option<(Problem, [u32; 3])>> = SpinLock::new(None);

/// Hands the entry to the kernel; where that has no memory, the trace alone has the event.
fn write(entry: Entry) {
    let driver = DRIVER.object.load(Ordering::Acquire);
    // SAFETY: the driver's object, which lives as long as the image.
    let place = unsafe { IoAllocateErrorLogEntry(driver, size_of::<Entry>() as u8) };
    if place.is_null() {
        return;
    }
    // SAFETY: room for an entry, ours until it is written.
    unsafe { place.cast::<Entry>().write(entry) };
    // SAFETY: allocated above and filled; the kernel frees it.
    unsafe { IoWriteErrorLogEntry(place) };
}

/// Writes the digits of a number to the front, which has room for them. Returns how many there are.
fn write_number(text: &mut [u16], value: u32, radix: u32) -> usize {
    let count = value.checked_ilog(radix).map_or(1, |log| log as usize + 1);
    let mut rest = value;
    for place in text[..count].iter_mut().rev() {
        let digit = rest % radix;
        *place = (if digit < 10 { 0x30 } else { 0x41 - 10 }) + digit as u16;
        rest /= radix;
    }
    count
}
