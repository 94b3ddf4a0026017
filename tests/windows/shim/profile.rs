//! All that an image which counts its lines takes of LLVM's runtime, whose other parts need a C library.
#![no_std]

/// Each object asks for the runtime by this name.
#[unsafe(no_mangle)]
#[used]
pub static __llvm_profile_runtime: i32 = 0;

/// The byte before the names of functions, which `llvm-cov` skips in an image.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".lprfn$A")]
#[used]
pub static NAMES: u8 = 0;
