//! What a consumer's driver imports from the kernel and the image does not, or in another way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{file, text, waits};
use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{Pointer, SUCCESS, UnicodeString, misc, pool};

/// What pool that the consumer has freed is filled with, if it is: a pointer of these bytes is a use after its own free.
pub const FREED: u8 = 0xEE;
static FILLS: AtomicBool = AtomicBool::new(false);

/// Fills what the consumer frees from now on. Else it stays as it is for a while, as in Windows in most cases.
pub fn fill_freed() {
    FILLS.store(true, Ordering::SeqCst);
}

const NOT_SUPPORTED: i32 = 0xC000_00BB_u32.cast_signed();
const BUFFER_TOO_SMALL: i32 = 0xC000_0023_u32.cast_signed();
/// `NonPagedPoolNx`.
const NON_PAGED_NX: u32 = 512;

/// The consumer's only device.
static DEVICE: [AtomicUsize; 0x150 / 8] = [const { AtomicUsize::new(0) }; 0x150 / 8];

/// Imports that are there and not called: the library behind `IoCreateDeviceSecure`, which Windows has itself.
const UNCALLED: [&str; 24] = [
    "_snwprintf",
    "_wcsnicmp",
    "wcschr",
    "IoCreateDevice",
    "IoDeviceObjectType",
    "IoIsWdmVersionAvailable",
    "ObOpenObjectByPointer",
    "RtlAbsoluteToSelfRelativeSD",
    "RtlAddAccessAllowedAce",
    "RtlCreateSecurityDescriptor",
    "RtlFreeUnicodeString",
    "RtlGetDaclSecurityDescriptor",
    "RtlGetGroupSecurityDescriptor",
    "RtlGetOwnerSecurityDescriptor",
    "RtlGetSaclSecurityDescriptor",
    "RtlLengthSecurityDescriptor",
    "RtlLengthSid",
    "RtlSetDaclSecurityDescriptor",
    "SeCaptureSecurityDescriptor",
    "SeExports",
    "ZwCreateKey",
    "ZwOpenKey",
    "ZwQueryValueKey",
    "ZwSetSecurityObject",
];

/// `DeviceObject` of the consumer's device.
pub(crate) fn device() -> Pointer {
    DEVICE.as_ptr().cast_mut().cast()
}

pub(crate) fn find(function: &str) -> Option<usize> {
    let own = [
        ("_vsnprintf", text::vsnprintf as *const () as usize),
        ("qsort", text::sort as *const () as usize),
        ("ZwCreateFile", file::create as *const () as usize),
        ("ZwWriteFile", file::write as *const () as usize),
        ("ZwClose", file::close as *const () as usize),
        ("KeWaitForSingleObject", waits::wait as *const () as usize),
    ];
    if UNCALLED.contains(&function) || function == "ZwSetValueKey" {
        return Some(uncalled as *const () as usize);
    }
    let found = own.into_iter().chain(table()).find(|(name, _)| *name == function);
    found.map(|(_, address)| address)
}

unsafe extern "win64" fn uncalled() -> i32 {
    crate::stack::outside(|| {
        breach!("the consumer calls what the stand-in has no code for");
        NOT_SUPPORTED
    })
}

/// Fresh pool has whatever bytes; those of a message differ at each place, so that a byte in a wrong place shows.
unsafe fn fill_message(start: Pointer, len: usize) {
    const SHORTEST: usize = 4096;
    if start.is_null() || len < SHORTEST {
        return;
    }
    let mut word = start as u64 | 1;
    for place in 0..len / 8 {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        start.cast::<u64>().add(place).write_unaligned(word);
    }
}

exports! { "ntoskrnl.exe":
    fn IoCreateDeviceSecure(_driver: Pointer, _extension: u32, _name: Pointer, _kind: u32, _characteristics: u32,
        _exclusive: u8, _readers: Pointer, _class: Pointer, device_out: *mut Pointer) -> i32 {
        irql::at_most(PASSIVE, "IoCreateDeviceSecure");
        device_out.write(device());
        SUCCESS
    }
    fn IoDeleteDevice(_device: Pointer) { irql::at_most(irql::APC, "IoDeleteDevice"); }
    fn IoCreateSymbolicLink(_link: Pointer, _name: Pointer) -> i32 { SUCCESS }
    fn IoDeleteSymbolicLink(_link: Pointer) -> i32 { SUCCESS }
    fn IoWMIRegistrationControl(_device: Pointer, _action: u32) -> i32 { SUCCESS }
    fn MmGetSystemRoutineAddress(name: &UnicodeString) -> Pointer {
        match find(&name.text()) {
            Some(address) => address as Pointer,
            None => misc::MmGetSystemRoutineAddress(name),
        }
    }
    fn RtlAppendUnicodeToString(string: &mut UnicodeString, text: *const u16) -> i32 {
        let mut text = text;
        while *text != 0 {
            if string.length + 2 > string.maximum { return BUFFER_TOO_SMALL; }
            string.buffer.add(usize::from(string.length) / 2).cast_mut().write(*text);
            string.length += 2;
            text = text.add(1);
        }
        SUCCESS
    }
    fn ExAllocatePoolWithTagPriority(kind: u32, len: usize, tag: u32, _priority: i32) -> Pointer {
        if kind != NON_PAGED_NX { breach!("pool type {kind}, not NonPagedPoolNx"); }
        let start = pool::take(len, tag, false, false);
        fill_message(start, len);
        pool::give_to_consumer(start);
        start
    }
    /// The tag is not judged: NDKPerf frees by another than it allocates by.
    fn ExFreePoolWithTag(start: Pointer, _tag: u32) { pool::retire(start, FILLS.load(Ordering::SeqCst).then_some(FREED)) }
}
