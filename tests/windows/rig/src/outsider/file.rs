//! Files that a driver writes: what is in them goes into the report.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{Pointer, SUCCESS, dispatcher};

static FILES: LazyLock<Mutex<HashMap<usize, String>>> = LazyLock::new(Mutex::default);
/// Numbers that no other handle has.
static NEXT: AtomicUsize = AtomicUsize::new(0x9000_0000);

pub(crate) unsafe extern "win64" fn create(handle: *mut usize, _access: u32) -> i32 {
    crate::stack::outside(|| {
        irql::at_most(PASSIVE, "ZwCreateFile");
        let number = NEXT.fetch_add(4, Ordering::Relaxed);
        FILES.lock().unwrap().insert(number, String::new());
        unsafe { handle.write(number) };
        SUCCESS
    })
}

pub(crate) unsafe extern "win64" fn write(
    handle: usize,
    _event: usize,
    _routine: usize,
    _context: usize,
    _status: Pointer,
    buffer: *const u8,
    len: u32,
) -> i32 {
    crate::stack::outside(|| {
        irql::at_most(PASSIVE, "ZwWriteFile");
        let bytes = unsafe { std::slice::from_raw_parts(buffer, len as usize) };
        if let Some(text) = FILES.lock().unwrap().get_mut(&handle) {
            text.push_str(&String::from_utf8_lossy(bytes));
        }
        SUCCESS
    })
}

pub(crate) unsafe extern "win64" fn close(handle: usize) -> i32 {
    let file = FILES.lock().unwrap().remove(&handle);
    let Some(text) = file else { return dispatcher::ZwClose(handle) };
    crate::stack::outside(|| {
        text.lines()
            .filter(|line| !line.is_empty())
            .for_each(|line| say!("the consumer writes: {line}"));
        SUCCESS
    })
}
