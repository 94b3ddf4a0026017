//! One installation or removal at a time.

use std::ptr::null;

use anyhow::{Result, ensure};
use windows_sys::Win32::Foundation::{CloseHandle, HANDLE, WAIT_ABANDONED, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{CreateMutexW, ReleaseMutex, WaitForSingleObject};

use super::{check, wide};

/// Held until it is dropped, or the program ends.
#[derive(Debug)]
pub(crate) struct Lock(HANDLE);

impl Lock {
    /// Waits for as long as an installation may take.
    pub(crate) fn take() -> Result<Self> {
        let name = wide(r"Global\ndkrocev2ctl");
        // SAFETY: the name ends with a NUL.
        let mutex = unsafe { CreateMutexW(null(), 0, name.as_ptr()) };
        check(i32::from(!mutex.is_null()), "CreateMutex")?;
        // SAFETY: the handle is open.
        let waited = unsafe { WaitForSingleObject(mutex, 15 * 60 * 1000) };
        // A program that abandoned it has left its journal.
        ensure!(
            waited == WAIT_OBJECT_0 || waited == WAIT_ABANDONED,
            "another ndkrocev2ctl is still at work"
        );
        Ok(Self(mutex))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the mutex is this thread's.
        unsafe { ReleaseMutex(self.0) };
        // SAFETY: nobody else has the handle.
        unsafe { CloseHandle(self.0) };
    }
}
