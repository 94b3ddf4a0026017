//! The restart that Windows was asked for, until it has had it.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use windows_registry::LOCAL_MACHINE;
use windows_sys::Win32::System::SystemInformation::GetTickCount64;

use crate::machine::SERVICE;

/// A volatile key: Windows has none when it starts.
const KEY: &str = r"SOFTWARE\ndkrocev2";
const VALUE: &str = "RestartAskedBy";

/// Notes that this function of Windows wants a restart before all of it is so.
pub(super) fn ask(function: &str) -> Result<()> {
    let key = LOCAL_MACHINE.options().read().write().create().volatile().open(KEY)?;
    Ok(key.set_string(VALUE, function)?)
}

/// Who asked for it; `None` where nothing of ours waits.
pub(super) fn asked_by() -> Result<Option<String>> {
    let noted = LOCAL_MACHINE.open(KEY).and_then(|key| key.get_string(VALUE));
    if let Ok(function) = noted {
        return Ok(Some(function));
    }
    // The service manager's own mark: it refuses to create the service again.
    let service = LOCAL_MACHINE.open(format!(r"SYSTEM\CurrentControlSet\Services\{SERVICE}"));
    let is_marked = service.and_then(|key| key.get_u32("DeleteFlag")).is_ok_and(|flag| flag != 0);
    Ok(is_marked.then(|| format!("the service {SERVICE} is marked for deletion")))
}

/// When Windows had it last.
pub(super) fn last() -> Result<SystemTime> {
    // SAFETY: it has no conditions.
    let since = Duration::from_millis(unsafe { GetTickCount64() });
    SystemTime::now().checked_sub(since).context("the clock is not set")
}
