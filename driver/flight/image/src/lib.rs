//! `ndkflight.sys`: the flight as a driver. the README of `ndkflight` tells how it is asked, and how it answers.
//!
//! Elsewhere than on Windows this is empty.
#![cfg(all(windows, target_env = "msvc"))]
#![no_std]
#![allow(unsafe_code, reason = "calls the kernel, which calls back")]
#![allow(unexpected_cfgs, reason = "the provider's driver has features")]

#[path = "../../../image/src/runtime.rs"]
mod runtime;
#[path = "../../../ndis/src/os/text.rs"]
mod text;

#[path = "../../../ndis/src/abi/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the provider's driver needs more of it"
)]
mod abi;
mod addresses;
mod kernel;
mod registry;
mod winsock;
mod wsk;

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use abi::imports::*;
use abi::*;
use addresses::addresses;
use kernel::KERNEL;
use ndkflight::{Config, Line, Machine as _, Side, Verdict, fly};
use wsk::Wsk;

/// `DriverUnload` of a `DRIVER_OBJECT`, in bytes from its start on 64-bit processors. NULL keeps the driver loaded.
const DRIVER_UNLOAD: usize = 0x68;
type UnloadRoutine = unsafe extern "system" fn(driver: *mut DRIVER_OBJECT);

/// The driver's object, from load to unload.
static DRIVER: AtomicPtr<DRIVER_OBJECT> = AtomicPtr::new(null_mut());
/// The flight's thread, which `unload` waits for.
static THREAD: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(null_mut());

/// The entry of the image: the flight begins, on a thread of its own. PASSIVE_LEVEL.
///
/// # Safety
/// Called once by the system, with its driver object and the path of the service's key.
#[unsafe(export_name = "DriverEntry")]
unsafe extern "system" fn driver_entry(
    driver: *mut DRIVER_OBJECT,
    registry_path: *mut UNICODE_STRING,
) -> NTSTATUS {
    // SAFETY: the system's path.
    let UNICODE_STRING { Length, Buffer, .. } = unsafe { *registry_path };
    // SAFETY: as above.
    let path = unsafe { slice(Buffer.cast_const(), u32::from(Length) / 2) };
    if let Err(status) = registry::open(path) {
        return status;
    }
    DRIVER.store(driver, Ordering::Release);
    KERNEL.init();
    set_unload(Some(unload));
    let started = start();
    if started.is_err() {
        registry::close();
    }
    started.into()
}

/// Lets the driver be unloaded, or not.
fn set_unload(routine: Option<UnloadRoutine>) {
    let driver = DRIVER.load(Ordering::Acquire).cast::<u8>();
    let place = driver.wrapping_add(DRIVER_UNLOAD).cast::<Option<UnloadRoutine>>();
    // SAFETY: the driver's object lives as long as the image, and the member is the driver's to write.
    unsafe { place.write_volatile(routine) };
}

fn start() -> Result<(), NTSTATUS> {
    let (mut handle, none) = (null_mut(), null_mut());
    // Otherwise the handle would be one of the process that this thread happens to run in.
    let mut attributes = OBJECT_ATTRIBUTES::kernel(null_mut());
    let attributes = (&raw mut attributes).cast();
    let access = THREAD_ALL_ACCESS;
    // SAFETY: the thread's routine needs no context.
    unsafe { PsCreateSystemThread(&mut handle, access, attributes, none, none, thread, none) }
        .ok()?;
    let mut object = null_mut();
    // SAFETY: the handle was just made; a reference to its thread cannot fail.
    let referenced = unsafe {
        ObReferenceObjectByHandle(handle, access, null_mut(), KernelMode, &mut object, null_mut())
    };
    if referenced.ok().is_err() {
        // Nobody could wait for its end.
        set_unload(None);
    }
    THREAD.store(object, Ordering::Release);
    // SAFETY: the handle is ours and no longer needed.
    let _ = unsafe { ZwClose(handle) };
    Ok(())
}

/// Waits for the flight, which ends before its next step. PASSIVE_LEVEL.
///
/// # Safety
/// Called once by the system.
unsafe extern "system" fn unload(_driver: *mut DRIVER_OBJECT) {
    KERNEL.end();
    let thread = THREAD.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the reference that `start` took.
    let _ = unsafe { KeWaitForSingleObject(thread, Executive, KernelMode, FALSE, null_mut()) };
    // SAFETY: as above.
    unsafe { ObfDereferenceObject(thread) };
}

/// # Safety
/// Called once by the system.
unsafe extern "system" fn thread(_context: PVOID) {
    registry::set("State", "running");
    registry::set("Steps", "0");
    let state = match flight() {
        Ok(Verdict::Stuck) => stay(),
        Ok(verdict) => Line::of(verdict),
        Err(reason) => Line::of(format_args!("refused: {}", reason.as_str())),
    };
    registry::set("State", state.as_str());
    registry::close();
    end_thread();
}

/// Ends this thread.
fn end_thread() -> ! {
    // SAFETY: nothing of ours is left on this stack.
    let _ = unsafe { PsTerminateSystemThread(STATUS_SUCCESS) };
    // It does not return on a system thread.
    loop {
        KERNEL.wait(u64::MAX);
    }
}

/// Keeps the image, its memory and this thread for ever: a call may still come back.
fn stay() -> ! {
    set_unload(None);
    registry::set("State", "stuck");
    loop {
        KERNEL.wait(u64::MAX);
    }
}

/// A broken invariant of ours is no reason to stop a machine. It can be met on the flight's thread alone: callbacks have
/// none.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let line = info.location().map_or(0, |at| at.line());
    registry::set("Panic", Line::of(format_args!("line {line}")).as_str());
    stay()
}

/// The flight that the registry asks for.
struct Settings {
    client: u32,
    server: Option<u32>,
    config: Config,
}

impl Settings {
    fn read() -> Result<Self, Line> {
        let number = |name: &str| {
            registry::number(name).map_err(|()| Line::of(format_args!("{name} is no number")))
        };
        let client = number("Client")?.ok_or_else(|| Line::of("Client is missing"))?;
        let server = number("Server")?.filter(|server| *server != client);
        let Config { connections, patience_s } = Config::default();
        let config = Config {
            connections: number("Connections")?.map_or(connections, |count| count as usize),
            patience_s: number("WaitSeconds")?.map_or(patience_s, u64::from),
        };
        Ok(Self { client, server, config })
    }
}

/// Opens the adapters and flies. They stay open where it is stuck.
fn flight() -> Result<Verdict, Line> {
    let settings = Settings::read()?;
    let told = |what: &'static str| move |status| Line::of(format_args!("{what} gave {status}"));
    let wsk = Wsk::register().map_err(told("Winsock Kernel"))?;
    let flown = fly_over(&wsk, &settings);
    if flown.as_ref().is_ok_and(|verdict| *verdict == Verdict::Stuck) {
        core::mem::forget(wsk);
    } else {
        wsk.deregister();
    }
    flown
}

fn fly_over(wsk: &Wsk, settings: &Settings) -> Result<Verdict, Line> {
    let client = open(wsk, settings.client)?;
    let server = match settings.server.map(|index| open(wsk, index)).transpose() {
        Ok(server) => server,
        Err(line) => {
            wsk.close(client.adapter);
            return Err(line);
        }
    };
    let flown = fly(&KERNEL, client, server, settings.config);
    if flown != Ok(Verdict::Stuck) {
        wsk.close(client.adapter);
        server.into_iter().for_each(|server| wsk.close(server.adapter));
    }
    flown.map_err(Line::of)
}

/// An adapter, which may still be starting.
fn open(wsk: &Wsk, index: u32) -> Result<Side, Line> {
    const TRIES: usize = 50;
    const PAUSE_NS: u64 = 100_000_000;
    let mut opened = wsk.open(index);
    for _ in 0..TRIES {
        if opened.is_ok() || KERNEL.is_ending() {
            break;
        }
        KERNEL.wait(PAUSE_NS);
        opened = wsk.open(index);
    }
    let failed = |status| Line::of(format_args!("the adapter of interface {index} gave {status}"));
    let adapter = opened.map_err(failed)?;
    let (v4, v6) = addresses(index);
    Ok(Side { adapter, v4, v6 })
}
