//! The parts of a C runtime that a linker of Windows images expects. A kernel image has to bring them itself.
//!
//! Control Flow Guard: Windows' own callers check every indirect call target against the table that
//! the load configuration names, so an image without one cannot offer callbacks to them.
//!
//! The image of `netadapter-glue/client` takes this file, too.
#![allow(unexpected_cfgs, reason = "not every image has the feature")]

use core::arch::global_asm;

// The compiler calls these by name; the kernel exports them.
#[expect(dead_code, reason = "no call is written in Rust")]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn memcmp(left: *const u8, right: *const u8, len: usize) -> i32;
    fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8;
}

// The two slots through which guarded calls go. The loader replaces their contents if the kernel
// runs with Control Flow Guard; these stand-ins check nothing. In assembly, because the compiler
// would see through a constant of its own.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".section .text,\"xr\"",
    "ndkrocev2_guard_check: ret",
    "ndkrocev2_guard_dispatch: jmp rax",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".section .text,\"xr\"",
    ".balign 4",
    "ndkrocev2_guard_check: ret",
    "ndkrocev2_guard_dispatch: br x9",
);
global_asm!(
    ".section .00cfg,\"dr\"",
    ".balign 8",
    ".globl __guard_check_icall_fptr",
    "__guard_check_icall_fptr: .quad ndkrocev2_guard_check",
    ".globl __guard_dispatch_icall_fptr",
    "__guard_dispatch_icall_fptr: .quad ndkrocev2_guard_dispatch",
);

// Symbols that `wdk-sys` has, too. They are in assembly, because Rust also exports the names that it makes
// known.
#[cfg(not(feature = "wdk"))]
global_asm!(
    // The compiler refers to it from code that uses floating point.
    ".section .rdata,\"dr\"",
    ".globl _fltused",
    "_fltused: .long 0",
    // The exception handler of frames of the precompiled `core`. Nothing unwinds here: 1 is
    // ExceptionContinueSearch.
    ".section .text,\"xr\"",
    ".balign 4",
    ".globl __CxxFrameHandler3",
    "__CxxFrameHandler3:",
    #[cfg(target_arch = "x86_64")]
    "mov eax, 1",
    #[cfg(target_arch = "aarch64")]
    "mov w0, #1",
    "ret",
);

// `IMAGE_LOAD_CONFIG_DIRECTORY64`, up to the last member that the linker below knows of. It finds
// the symbol by its name and fills in the tables.
global_asm!(
    ".section .rdata,\"dr\"",
    ".balign 16",
    ".globl _load_config_used",
    "_load_config_used:",
    ".long 0x118",                       // 0x00 Size
    ".zero 0x6C",                        // 0x04
    ".quad __guard_check_icall_fptr",    // 0x70 GuardCFCheckFunctionPointer
    ".quad __guard_dispatch_icall_fptr", // 0x78 GuardCFDispatchFunctionPointer
    ".quad __guard_fids_table",          // 0x80 GuardCFFunctionTable
    ".quad __guard_fids_count",          // 0x88 GuardCFFunctionCount
    ".long __guard_flags",               // 0x90 GuardFlags
    ".zero 0x0C",                        // 0x94 CodeIntegrity
    ".quad __guard_iat_table",           // 0xA0 GuardAddressTakenIatEntryTable
    ".quad __guard_iat_count",           // 0xA8 GuardAddressTakenIatEntryCount
    ".quad __guard_longjmp_table",       // 0xB0 GuardLongJumpTargetTable
    ".quad __guard_longjmp_count",       // 0xB8 GuardLongJumpTargetCount
    ".zero 0x58",                        // 0xC0
);
