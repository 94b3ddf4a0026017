//! A driver that Wine starts, and that starts the rig: only a driver gets into Wine's driver host.
#![no_std]

type Load = unsafe extern "system" fn(*const core::ffi::c_void) -> i32;

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn ZwLoadDriver(service: *const core::ffi::c_void) -> i32;
    fn ZwUnloadDriver(service: *const core::ffi::c_void) -> i32;
}

#[link(name = "rig.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn RigStart(load: Load, unload: Load) -> i32;
}

#[unsafe(no_mangle)]
extern "system" fn DriverEntry(_: *mut core::ffi::c_void, _: *mut core::ffi::c_void) -> i32 {
    unsafe { RigStart(ZwLoadDriver, ZwUnloadDriver) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
