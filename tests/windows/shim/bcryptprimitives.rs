//! The one function of Windows' bcryptprimitives.dll that Rust's standard library imports: Wine 8
//! has no such DLL.
#![no_std]

#[link(name = "advapi32.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn SystemFunction036(buffer: *mut u8, len: u32) -> u8;
}

#[unsafe(no_mangle)]
extern "system" fn ProcessPrng(buffer: *mut u8, len: usize) -> i32 {
    unsafe { SystemFunction036(buffer, len as u32) }.into()
}

#[unsafe(no_mangle)]
extern "system" fn DllMain(_: *mut u8, _: u32, _: *mut u8) -> i32 {
    1
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
