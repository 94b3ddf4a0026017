//! Waits of a consumer that have no limit, with the places of its code that wait: where a run does not end, they say for what.

use std::arch::naked_asm;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::image;
use crate::ntos::dispatcher::{self, Header};

/// The places that wait now, by thread.
static WAITS: LazyLock<Mutex<HashMap<ThreadId, usize>>> = LazyLock::new(Mutex::default);

fn with<R>(f: impl FnOnce(&mut HashMap<ThreadId, usize>) -> R) -> R {
    f(&mut WAITS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// `KeWaitForSingleObject`, with the place behind its call as one more argument.
#[unsafe(naked)]
pub(crate) unsafe extern "win64" fn wait() {
    naked_asm!(
        "sub rsp, 56",
        "mov rax, [rsp + 56]",
        "mov [rsp + 40], rax",
        "mov rax, [rsp + 96]",
        "mov [rsp + 32], rax",
        "call {wait_from}",
        "add rsp, 56",
        "ret",
        wait_from = sym wait_from,
    )
}

unsafe extern "win64" fn wait_from(
    object: &Header,
    reason: i32,
    mode: i8,
    alertable: u8,
    timeout: *const i64,
    from: usize,
) -> i32 {
    if timeout.is_null() {
        crate::stack::outside(|| with(|waits| waits.insert(thread::current().id(), from)));
    }
    let status = dispatcher::KeWaitForSingleObject(object, reason, mode, alertable, timeout);
    crate::stack::outside(|| with(|waits| waits.remove(&thread::current().id())));
    status
}

/// Tells where threads wait.
pub(crate) fn tell() {
    let places: Vec<_> = with(|waits| waits.values().copied().collect());
    for place in places {
        say!("the consumer waits without a limit at {}", image::place(place));
    }
}
