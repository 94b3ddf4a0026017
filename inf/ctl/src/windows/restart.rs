//! The restart that Windows was asked for, until it has had it.

use anyhow::Result;
use windows_registry::LOCAL_MACHINE;

use crate::machine::SERVICE;

/// A volatile key: Windows has none when it starts.
const KEY: &str = r"SOFTWARE\ndkrocev2";
const VALUE: &str = "RestartAskedBy";
const MARK: &str = "FlightPrepared";

/// Notes that this function of Windows wants a restart before all of it is so.
pub(super) fn ask(function: &str) -> Result<()> {
    let key = LOCAL_MACHINE.options().read().write().create().volatile().open(KEY)?;
    Ok(key.set_string(VALUE, function)?)
}

/// Makes a mark that the restart takes away.
pub(super) fn mark() -> Result<()> {
    let key = LOCAL_MACHINE.options().read().write().create().volatile().open(KEY)?;
    Ok(key.set_u32(MARK, 1)?)
}

/// Whether it is there.
pub(super) fn is_marked() -> bool {
    LOCAL_MACHINE.open(KEY).and_then(|key| key.get_u32(MARK)).is_ok()
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
