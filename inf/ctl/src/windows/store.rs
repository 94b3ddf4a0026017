//! The driver store and files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::{env, process};

use anyhow::{Context, Result};
use windows_sys::Win32::Devices::DeviceAndDriverInstallation::{
    SPOST_PATH, SUOI_FORCEDELETE, SetupCopyOEMInfW, SetupUninstallOEMInfW,
};
use windows_sys::Win32::Storage::FileSystem::{
    MOVEFILE_DELAY_UNTIL_REBOOT, MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH, MoveFileExW,
};

use super::{check, wide};
use crate::machine::{IMAGE, Inf};

/// Windows keeps each INF as it came; so ours are known by the catalog that they name.
pub(super) fn staged(inf: Inf) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(windows()?.join("INF"))? {
        let name = entry?.file_name().to_string_lossy().to_lowercase();
        if !(name.starts_with("oem") && name.ends_with(".inf")) {
            continue;
        }
        if crate::inf::catalog(&published(&name)?)
            .is_some_and(|file| file.eq_ignore_ascii_case(inf.catalog()))
        {
            found.push(name);
        }
    }
    Ok(found)
}

pub(super) fn published(name: &str) -> Result<Vec<u8>> {
    Ok(fs::read(published_path(name)?)?)
}

/// Windows takes the rest of the package from the driver store.
pub(super) fn published_path(name: &str) -> Result<PathBuf> {
    Ok(windows()?.join("INF").join(name))
}

pub(super) fn stage(inf: &Path) -> Result<()> {
    let (file, folder) = (wide(inf), wide(inf.parent().context("no folder")?));
    // SAFETY: both texts end with a NUL; no result is asked for.
    let ok = unsafe {
        SetupCopyOEMInfW(
            file.as_ptr(),
            folder.as_ptr(),
            SPOST_PATH,
            0,
            null_mut(),
            0,
            null_mut(),
            null_mut(),
        )
    };
    check(ok, "SetupCopyOEMInf")
}

pub(super) fn unstage(published: &str) -> Result<()> {
    let name = wide(published);
    // SAFETY: the name ends with a NUL; the last argument is reserved.
    let ok = unsafe { SetupUninstallOEMInfW(name.as_ptr(), SUOI_FORCEDELETE, null()) };
    check(ok, "SetupUninstallOEMInf")
}

/// Before build 25341 the INFs copy the image out of the driver store, where no removal of theirs looks for it. One that is
/// still loaded may stay: nothing names it any more, and the next installation replaces it.
pub(super) fn remove_image() {
    if let Ok(windows) = windows() {
        let _ = fs::remove_file(windows.join(r"System32\drivers").join(IMAGE));
    }
}

/// Where the image of a service lies: the registry has it as the kernel or the service manager names it.
pub(super) fn image_path(registered: &str) -> Result<PathBuf> {
    let lower = registered.to_lowercase();
    if let Some(rest) = lower.strip_prefix(r"\systemroot\") {
        return Ok(windows()?.join(rest));
    }
    let rest = lower.strip_prefix(r"\??\").unwrap_or(&lower);
    let path = PathBuf::from(rest);
    Ok(if path.is_absolute() { path } else { windows()?.join(path) })
}

fn windows() -> Result<PathBuf> {
    Ok(PathBuf::from(env::var_os("SystemRoot").context("there is no folder of Windows")?))
}

/// `None` where there is no file.
pub(super) fn read(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        text => Ok(Some(text?)),
    }
}

/// A reader sees the old text or the new one, whatever happens in between; the new one is on the disk at the end.
pub(super) fn replace(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    let mut written = File::create(&new)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    let (new, file) = (wide(new), wide(file));
    // SAFETY: both names end with a NUL.
    let ok = unsafe {
        MoveFileExW(new.as_ptr(), file.as_ptr(), MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)
    };
    check(ok, "MoveFileEx")
}

pub(super) fn delete_later(file: &Path) -> Result<()> {
    let aside = env::temp_dir().join(format!("ndkrocev2ctl-{}.old", process::id()));
    fs::rename(file, &aside)?;
    let aside = wide(aside);
    // SAFETY: the name ends with a NUL; without a new name the file is deleted.
    let ok = unsafe { MoveFileExW(aside.as_ptr(), null(), MOVEFILE_DELAY_UNTIL_REBOOT) };
    check(ok, "MoveFileEx")
}
