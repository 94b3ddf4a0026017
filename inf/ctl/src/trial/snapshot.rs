//! All that an installation could leave behind.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use windows_registry::{Key, LOCAL_MACHINE};

/// All below these keys is compared.
const KEYS: [&str; 5] = [
    r"SYSTEM\CurrentControlSet\Enum\ROOT",
    r"SYSTEM\CurrentControlSet\Control\Class",
    r"SYSTEM\CurrentControlSet\Services",
    r"SOFTWARE\Microsoft\SystemCertificates",
    r"SOFTWARE\Microsoft\Windows NT\CurrentVersion\Schedule",
];
/// The names and sizes of all files below these folders are compared.
const FOLDERS: [&str; 5] = [
    r"windows\inf",
    r"windows\system32\catroot",
    r"windows\system32\drivers",
    r"windows\system32\tasks",
    r"Program Files\ndkrocev2",
];

/// A line for each key, value and file, and those of the file that stands in for the network.
#[derive(Eq, PartialEq)]
pub(super) struct Snapshot(String);

impl Snapshot {
    pub(super) fn take() -> Result<Self> {
        let mut text = String::new();
        for key in KEYS {
            if let Ok(opened) = LOCAL_MACHINE.open(key) {
                list_key(key, &opened, &mut text)?;
            }
        }
        for folder in FOLDERS {
            list_folder(&Path::new(r"C:\").join(folder), &mut text)?;
        }
        let file = PathBuf::from(env::var_os("NDKROCEV2CTL_STATE").context("no file")?);
        text += &fs::read_to_string(file).unwrap_or_default();
        Ok(Self(text))
    }

    /// Or tells each line that is not as before.
    pub(super) fn ensure_same(&self, what: &str) -> Result<()> {
        let after = Self::take()?;
        if after == *self {
            return Ok(());
        }
        let (old, new): (Vec<_>, Vec<_>) = (self.0.lines().collect(), after.0.lines().collect());
        let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
        let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
        let lines = gone.chain(come).collect::<Vec<_>>().join("\n");
        bail!("{what}: the machine is another:\n{lines}")
    }

    pub(super) fn ensure_differs(&self) -> Result<()> {
        ensure!(Self::take()? != *self, "an installation that nobody can see");
        Ok(())
    }
}

fn list_key(path: &str, key: &Key, text: &mut String) -> Result<()> {
    writeln!(text, "{path}")?;
    for (name, value) in key.values()? {
        writeln!(text, "{path} {name} = {value:?}")?;
    }
    for name in key.keys()? {
        list_key(&format!(r"{path}\{name}"), &key.open(&name)?, text)?;
    }
    Ok(())
}

fn list_folder(folder: &Path, text: &mut String) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            list_folder(&path, text)?;
        } else {
            writeln!(text, "{} {}", path.display(), fs::metadata(&path)?.len())?;
        }
    }
    Ok(())
}
