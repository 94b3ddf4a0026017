//! Functions made at run time: each calls [`Handler`] with a site of its own and the place of its arguments.

use std::arch::naked_asm;
use std::ptr::null_mut;
use std::sync::Mutex;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::boundary::{Site, handle};

/// Arguments that a function of NDK has at most.
pub(crate) const ARGUMENTS: usize = 12;

/// By which convention a function is called.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Convention {
    /// That of Windows, and so of the consumer and the image.
    Windows,
    /// That of this process.
    Linux,
}

/// `mov r11, SITE; mov r10, ENTRY; jmp r10`, with room.
const STUB_LEN: usize = 32;
const PAGE: usize = 4096;

/// The page that stubs are written to, and how much of it is in use.
static PAGES: Mutex<(usize, usize)> = Mutex::new((0, PAGE));

/// A function of this convention, which goes to the site. It lives as long as the process.
pub(crate) fn stub(site: &'static Site, called_by: Convention) -> usize {
    let entry = match called_by {
        Convention::Windows => from_windows as *const () as u64,
        Convention::Linux => from_linux as *const () as u64,
    };
    let site = std::ptr::from_ref(site) as u64;
    let mut code = [0x90; STUB_LEN];
    code[..2].copy_from_slice(&[0x49, 0xBB]);
    code[2..10].copy_from_slice(&site.to_le_bytes());
    code[10..12].copy_from_slice(&[0x49, 0xBA]);
    code[12..20].copy_from_slice(&entry.to_le_bytes());
    code[20..23].copy_from_slice(&[0x41, 0xFF, 0xE2]);
    let mut pages = PAGES.lock().unwrap();
    if pages.1 + STUB_LEN > PAGE {
        let rights = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
        let page = unsafe { mmap_anonymous(null_mut(), PAGE, rights, MapFlags::PRIVATE) };
        *pages = (page.expect("a page for code") as usize, 0);
    }
    let start = pages.0 + pages.1;
    pages.1 += STUB_LEN;
    unsafe { (start as *mut [u8; STUB_LEN]).write(code) };
    start
}

/// The four registers go to the room that the caller has left for them, in front of the other arguments.
#[unsafe(naked)]
unsafe extern "win64" fn from_windows() {
    naked_asm!(
        "mov [rsp + 8], rcx",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], r8",
        "mov [rsp + 32], r9",
        "lea rdx, [rsp + 8]",
        "mov rcx, r11",
        "sub rsp, 40",
        "call {handle}",
        "add rsp, 40",
        "ret",
        handle = sym handle,
    )
}

/// A callback has no more arguments than registers.
#[unsafe(naked)]
unsafe extern "sysv64" fn from_linux() {
    naked_asm!(
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdx, rsp",
        "mov rcx, r11",
        "sub rsp, 40",
        "call {handle}",
        "add rsp, 88",
        "ret",
        handle = sym handle,
    )
}

/// Calls a function of this convention with as many arguments as there may be; it reads those that it has.
///
/// # Safety
/// `function` is one, and the arguments are right for it.
pub(crate) unsafe fn call(function: usize, takes: Convention, arguments: [u64; ARGUMENTS]) -> u64 {
    type Windows =
        unsafe extern "win64" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
    type Linux = unsafe extern "sysv64" fn(
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
    ) -> u64;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = arguments;
    match takes {
        Convention::Windows => {
            let function = std::mem::transmute::<usize, Windows>(function);
            function(a, b, c, d, e, f, g, h, i, j, k, l)
        }
        Convention::Linux => {
            let function = std::mem::transmute::<usize, Linux>(function);
            function(a, b, c, d, e, f, g, h, i, j, k, l)
        }
    }
}
