//! A consumer of NDK that others wrote: its driver, unmodified, loaded beside the image.
//!
//! It is a second image of the same process. Both have Windows' calling convention, so it calls the tables of the image, and the image
//! its callbacks, as in Windows. [`crate::wsk`] opens the adapters.
//!
//! [`kernel`]: what such a driver imports that the image does not. `trap`: the instructions that a kernel alone may
//! execute. `text`, `file`, `trace`: how it tells what it does. `boundary` notes each call between consumer and
//! provider, by the functions of `thunk`, and `bytes` compares what has arrived with what was sent.

pub(crate) mod boundary;
mod bytes;
mod file;
pub mod kernel;
pub mod late;
mod text;
pub(crate) mod thunk;
mod trace;
pub(crate) mod trap;
pub(crate) mod waits;

use std::ffi::c_void;
use std::path::Path;

use crate::image::Image;
use crate::ndis::device::{CLEANUP, CLOSE, CONTROL, CREATE, Dispatch, Irp};
use crate::ntos::{lock, pool};

/// `DRIVER_OBJECT.MajorFunction`, in words of eight bytes.
const FUNCTIONS: usize = 0x70 / 8;

/// The driver, loaded, with a handle of its device open.
#[derive(Debug)]
pub struct Consumer {
    image: Image,
}

impl Consumer {
    /// Loads the driver of this file, and opens its device.
    ///
    /// # Errors
    /// What its entry point or the open returned.
    pub fn load(file: &Path) -> Result<Self, i32> {
        let name = file.file_stem().expect("the name of a driver").to_string_lossy().into_owned();
        let mut image = Image::map(file, resolve);
        image.start(&name)?;
        let consumer = Self { image };
        match consumer.request(CREATE, 0, &mut []) {
            0 => Ok(consumer),
            status => Err(status),
        }
    }

    /// `DeviceIoControl` with a buffer for both directions; the status.
    pub fn control(&self, code: u32, buffer: &mut [u8]) -> i32 {
        self.request(CONTROL, code, buffer)
    }

    /// Closes the device and unloads the driver.
    pub fn unload(mut self) {
        for function in [CLEANUP, CLOSE] {
            let status = self.request(function, 0, &mut []);
            if status != 0 {
                say!("the consumer's device cannot be closed: {status:#x}");
            }
        }
        self.image.stop();
        self.image.unmap();
        say!("the consumer leaks {} blocks of pool", pool::forget_consumers());
    }

    fn request(&self, function: usize, code: u32, buffer: &mut [u8]) -> i32 {
        let routine = self.image.driver_object[FUNCTIONS + function] as *const c_void;
        assert!(!routine.is_null(), "the consumer has no routine for function {function}");
        let dispatch = unsafe { std::mem::transmute::<*const c_void, Dispatch>(routine) };
        let mut irp = Irp::new(function, "", code, [buffer.len(), 0], buffer.as_mut_ptr());
        let status = irp.run(dispatch, kernel::device());
        lock::none_held("a dispatch routine of the consumer");
        status
    }
}

/// What a consumer imports: first its own, then what the image has too.
fn resolve(module: &str, function: &str) -> Option<usize> {
    let own = match module.to_lowercase().as_str() {
        "ntoskrnl.exe" => kernel::find(function),
        "wpprecorder.sys" => trace::find(function),
        _ => None,
    };
    own.or_else(|| crate::resolve(module, function))
}
