//! The driver's control device, and the stages that it left in the registry.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::windows::io::AsRawHandle;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail};
use windows_registry::LOCAL_MACHINE;
use windows_sys::Win32::Foundation::ERROR_MORE_DATA;
use windows_sys::Win32::System::IO::DeviceIoControl;

use crate::driver::snapshot::{DEVICE, Field, Head, READ};
use crate::machine::{SERVICE, Stages};

/// Room for some connections; the driver says where it takes more.
const ROOM: usize = 4096;
/// Connections may come between two questions.
const ATTEMPTS: usize = 8;

/// A snapshot; `None` where there is no device.
pub(super) fn snapshot() -> Result<Option<Vec<u8>>> {
    let device = match File::open(format!(r"\\.\{DEVICE}")) {
        Ok(device) => device,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("the driver's control device"),
    };
    let mut room = vec![0_u8; ROOM];
    for _ in 0..ATTEMPTS {
        let mut len = 0;
        // SAFETY: the handle is open, and the room as long as is said.
        let ok = unsafe {
            DeviceIoControl(
                device.as_raw_handle(),
                READ,
                null(),
                0,
                room.as_mut_ptr().cast(),
                room.len() as u32,
                &mut len,
                null_mut(),
            )
        };
        let error = Error::last_os_error();
        room.truncate(len as usize);
        if ok != 0 {
            return Ok(Some(room));
        }
        if error.raw_os_error() != Some(ERROR_MORE_DATA as i32) {
            return Err(error).context("the driver's control device");
        }
        let head = Head::read(&mut &*room).context("the driver told no length")?;
        room = vec![0; head.len as usize + ROOM];
    }
    bail!("connections come faster than they are told")
}

/// The stages; none where there is no driver.
pub(super) fn stages() -> Stages {
    let path = format!(r"SYSTEM\CurrentControlSet\Services\{SERVICE}\Parameters");
    let read = |name| LOCAL_MACHINE.open(&path).and_then(|key| key.get_string(name)).ok();
    Stages { last: read("LastStage"), previous: read("PreviousStage") }
}
