//! The binding to KMDF and to NetAdapterCx, which a driver in C gets from two libraries of the WDK
//! (`WdfDriverEntry.lib`, `NetAdapterCxStub.lib`). Their steps are public in disassembly, and KMDF's half in its
//! [source](https://github.com/microsoft/Windows-Driver-Frameworks). No Windows has run these.
#![allow(non_camel_case_types, non_snake_case, reason = "C names")]

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use netadapter_client::abi::*;
use netadapter_client::framework::{
    NET_FUNCTION_COUNT, NET_FUNCTIONS, NET_GLOBALS, WDF_FUNCTION_COUNT, WDF_FUNCTIONS, WDF_GLOBALS,
};

/// The system's object of a driver, up to its last member.
#[repr(C)]
pub(crate) struct DRIVER_OBJECT {
    Reserved: [u8; 0x68],
    DriverUnload: Option<DRIVER_UNLOAD>,
    MajorFunction: [PVOID; 28],
}

type DRIVER_UNLOAD = unsafe extern "system" fn(driver: *mut DRIVER_OBJECT);

const _: () = assert!(size_of::<DRIVER_OBJECT>() == 0x150);
const _: () = assert!(offset_of!(DRIVER_OBJECT, DriverUnload) == 0x68);

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UNICODE_STRING {
    Length: u16,
    MaximumLength: u16,
    Buffer: *mut u16,
}

const _: () = assert!(size_of::<UNICODE_STRING>() == 16);

#[link(name = "WDFLDR.SYS", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    /// PASSIVE_LEVEL, as the others.
    fn WdfVersionBind(
        driver: *mut DRIVER_OBJECT,
        registry_path: *mut UNICODE_STRING,
        info: *mut WDF_BIND_INFO,
        globals: *mut *mut WDF_DRIVER_GLOBALS,
    ) -> NTSTATUS;
    fn WdfVersionUnbind(
        registry_path: *mut UNICODE_STRING,
        info: *mut WDF_BIND_INFO,
        globals: *mut WDF_DRIVER_GLOBALS,
    ) -> NTSTATUS;
    fn WdfVersionBindClass(
        info: *mut WDF_BIND_INFO,
        globals: *mut WDF_DRIVER_GLOBALS,
        class: *mut WDF_CLASS_BIND_INFO,
    ) -> NTSTATUS;
    fn WdfVersionUnbindClass(
        info: *mut WDF_BIND_INFO,
        globals: *mut WDF_DRIVER_GLOBALS,
        class: *mut WDF_CLASS_BIND_INFO,
    );
}

/// Memory of the image that the loader of frameworks writes.
struct Lent<T>(UnsafeCell<T>);

// SAFETY: load and unload are the only users, and come one after the other.
unsafe impl<T> Sync for Lent<T> {}

static KMDF: Lent<WDF_BIND_INFO> = Lent(UnsafeCell::new(WDF_BIND_INFO {
    Size: size_of::<WDF_BIND_INFO>() as u32,
    Component: KMDF_NAME.as_ptr(),
    Version: WDF_VERSION { Major: 1, Minor: 15, Build: 0 },
    FuncCount: WDF_FUNCTION_COUNT as u32,
    FuncTable: WDF_FUNCTIONS.as_ptr().cast(),
    Module: null_mut(),
}));

static NET_ADAPTER_CX: Lent<WDF_CLASS_BIND_INFO> = Lent(UnsafeCell::new(WDF_CLASS_BIND_INFO {
    Size: size_of::<WDF_CLASS_BIND_INFO>() as u32,
    ClassName: NET_ADAPTER_CX_NAME.as_ptr(),
    Version: WDF_VERSION { Major: 2, Minor: 0, Build: 0 },
    FunctionTable: (&raw const NET_FUNCTIONS).cast_mut().cast(),
    FunctionTableCount: NET_FUNCTION_COUNT as u32,
    ClassBindInfo: (&raw const NET_GLOBALS).cast_mut().cast(),
    ClientBindClass: null_mut(),
    ClientUnbindClass: null_mut(),
    ClassModule: null_mut(),
}));

static KMDF_NAME: [u16; 12] = utf16("KmdfLibrary");
static NET_ADAPTER_CX_NAME: [u16; 13] = utf16("NetAdapterCx");

const fn utf16<const N: usize>(ascii: &str) -> [u16; N] {
    let (bytes, mut units, mut index) = (ascii.as_bytes(), [0; N], 0);
    assert!(bytes.len() < N, "a zero at the end");
    while index < bytes.len() {
        units[index] = bytes[index] as u16;
        index += 1;
    }
    units
}

/// The most of a registry path that is kept.
const PATH_MAX: usize = 260;
/// The path, which is needed again at unload, and its characters.
static PATH: Lent<UNICODE_STRING> =
    Lent(UnsafeCell::new(UNICODE_STRING { Length: 0, MaximumLength: 0, Buffer: null_mut() }));
static PATH_UNITS: Lent<[u16; PATH_MAX]> = Lent(UnsafeCell::new([0; PATH_MAX]));

/// Binds to KMDF, then to NetAdapterCx. After a failure nothing is bound.
///
/// # Safety
/// The arguments are those of `DriverEntry`.
pub(crate) unsafe fn bind(
    driver: *mut DRIVER_OBJECT,
    registry_path: *mut UNICODE_STRING,
) -> NTSTATUS {
    // SAFETY: the caller's promise.
    unsafe { keep(registry_path) };
    // SAFETY: all of it stays until `unbind`.
    let status =
        unsafe { WdfVersionBind(driver, PATH.0.get(), KMDF.0.get(), WDF_GLOBALS.as_ptr()) };
    if status.ok().is_err() {
        return status;
    }
    let globals = WDF_GLOBALS.load(Ordering::Relaxed);
    // SAFETY: as above, and the driver is bound to KMDF.
    let status = unsafe { WdfVersionBindClass(KMDF.0.get(), globals, NET_ADAPTER_CX.0.get()) };
    if status.ok().is_err() {
        unbind_kmdf();
    }
    status
}

/// Ends both bindings.
pub(crate) fn unbind() {
    let globals = WDF_GLOBALS.load(Ordering::Relaxed);
    // SAFETY: bound, and the driver is not called any more.
    unsafe { WdfVersionUnbindClass(KMDF.0.get(), globals, NET_ADAPTER_CX.0.get()) };
    unbind_kmdf();
}

fn unbind_kmdf() {
    let globals = WDF_GLOBALS.swap(null_mut(), Ordering::Relaxed);
    // SAFETY: bound, and the driver is not called any more.
    let _ = unsafe { WdfVersionUnbind(PATH.0.get(), KMDF.0.get(), globals) };
}

/// Copies the registry path.
///
/// # Safety
/// The path is valid.
unsafe fn keep(path: *const UNICODE_STRING) {
    // SAFETY: the caller's promise.
    let path = unsafe { path.read() };
    let units = (usize::from(path.Length) / 2).min(PATH_MAX);
    let to = PATH_UNITS.0.get().cast::<u16>();
    // SAFETY: so many characters are in both.
    unsafe { to.copy_from_nonoverlapping(path.Buffer, units) };
    let copy = UNICODE_STRING {
        Length: (2 * units) as u16,
        MaximumLength: (2 * PATH_MAX) as u16,
        Buffer: to,
    };
    // SAFETY: only load and unload use it.
    unsafe { PATH.0.get().write(copy) };
}

/// The unload function that KMDF named.
static UNLOAD: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(null_mut());

/// Puts the end of the bindings behind KMDF's unload, where KMDF wants that.
///
/// # Safety
/// The driver is bound and was created.
pub(crate) unsafe fn stay(driver: *mut DRIVER_OBJECT) {
    // SAFETY: KMDF's own globals.
    if unsafe { (*WDF_GLOBALS.load(Ordering::Relaxed)).DisplaceDriverUnload } == 0 {
        return;
    }
    // SAFETY: the system's driver object.
    let place = unsafe { &mut (*driver).DriverUnload };
    let before = place.replace(unload);
    let before = before.map_or(null_mut(), |unload| unload as *mut core::ffi::c_void);
    UNLOAD.store(before, Ordering::Relaxed);
}

/// # Safety
/// Called once by the system, when no device is left.
unsafe extern "system" fn unload(driver: *mut DRIVER_OBJECT) {
    let before = UNLOAD.load(Ordering::Relaxed);
    if !before.is_null() {
        // SAFETY: `stay` took it from a place of this type.
        let before =
            unsafe { core::mem::transmute::<*mut core::ffi::c_void, DRIVER_UNLOAD>(before) };
        // SAFETY: KMDF's function, called in its place.
        unsafe { before(driver) };
    }
    unbind();
}
