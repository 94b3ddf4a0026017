//! A deliberate overflow of a kernel's stack, in code of our own. Nothing is loaded.

use std::hint::black_box;
use std::ptr::null_mut;

use super::*;
use crate::ntos::Pointer;

/// `thread` or `dpc`, and how much it takes, in KiB.
pub(super) fn overflow(_: &dyn Host, arguments: &[String]) {
    let [context, kib] = arguments else { panic!("overflow thread|dpc KIB") };
    let kib: usize = kib.parse().expect("a number");
    match &**context {
        "thread" => thread(in_thread, kib),
        _ => unsafe {
            let dpc = Box::into_raw(Box::<dpc::Dpc>::new_uninit()).cast();
            dpc::KeInitializeDpc(dpc, Some(in_dpc), null_mut());
            dpc::KeInsertQueueDpc(dpc, null_mut::<u8>().wrapping_add(kib), null_mut());
            dpc::KeFlushQueuedDpcs();
        },
    }
    eventually("the end of the thread", || dispatcher::running() == 0);
}

/// Starts a system thread with a number.
pub(super) fn thread(start: unsafe extern "win64" fn(Pointer), number: usize) {
    let (mut handle, null) = (0, null_mut::<u8>());
    let context = null.wrapping_add(number);
    // OBJECT_ATTRIBUTES: its length, and OBJ_KERNEL_HANDLE.
    let mut attributes = [0x30_u64, 0, 0, 0x200, 0, 0];
    let attributes = attributes.as_mut_ptr().cast();
    let made = unsafe {
        dispatcher::PsCreateSystemThread(&raw mut handle, 0, attributes, 0, null, start, context)
    };
    assert_eq!(made, 0);
    unsafe { dispatcher::ZwClose(handle) };
}

unsafe extern "win64" fn in_thread(kib: Pointer) {
    take(place(), kib as usize);
}

unsafe extern "win64" fn in_dpc(_: *mut dpc::Dpc, _: Pointer, kib: Pointer, _: Pointer) {
    take(place(), kib as usize);
}

/// Takes so many KiB of the stack below a place, in small steps.
#[inline(never)]
fn take(top: usize, kib: usize) {
    let frame = black_box([0_u8; 128]);
    if top - place() < kib << 10 {
        take(top, kib);
    }
    black_box(frame);
}

/// Where the stack is at present.
#[inline(always)]
fn place() -> usize {
    let here = 0_u8;
    black_box(&raw const here).addr()
}
