//! Wine for a machine: Windows' own functions as far as Wine has them, and a file for what it lacks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::machine::{
    Certificate, Host, Inf, IpSettings, LOWER_ADAPTER, LOWER_MODE, Machine, Nic, Said, Stages,
    Store, Vnic,
};
use crate::simulated::{Simulated, Staged, State, static_settings};
use crate::windows::Windows;

/// `windows` but for the network, which is in the file.
pub(crate) struct Split {
    windows: Windows,
    file: PathBuf,
}

impl Split {
    pub(crate) fn new(windows: Windows, file: PathBuf) -> Self {
        Self { windows, file }
    }

    /// Acts on the machine of the file, and writes it again: a program that dies in between has changed nothing.
    fn simulate<T>(&mut self, act: impl FnOnce(&mut Simulated) -> Result<T>) -> Result<T> {
        let mut simulated = Simulated::new(self.load()?);
        simulated.flies = true;
        let done = act(&mut simulated)?;
        ensure!(simulated.broken.is_empty(), "broken: {:?}", simulated.broken);
        // Wine's own is read anew each time.
        simulated.state.staged.clear();
        fs::write(&self.file, serde_json::to_string_pretty(&simulated.state)?)?;
        Ok(done)
    }

    /// The file's machine, of before any installation where there is no file yet, with the driver store and the device
    /// that Wine has: the rules of the simulated machine look at them.
    fn load(&mut self) -> Result<State> {
        let mut state = if self.file.exists() {
            serde_json::from_str(&fs::read_to_string(&self.file)?)?
        } else {
            State::sample(static_settings())
        };
        for inf in Inf::ALL {
            for published in self.windows.staged(inf)? {
                let text = self.windows.published(&published)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                state.staged.insert(published, Staged { inf, text });
            }
        }
        let present = self.windows.devices()?;
        state.devices.retain(|id, _| present.contains(id));
        for id in present {
            let device = state.devices.entry(id.clone()).or_default();
            device.keywords.clear();
            for name in [LOWER_ADAPTER, LOWER_MODE] {
                // A device without a driver has no key for them.
                let keyword = self.windows.keyword(&id, name);
                device.driver = keyword.is_ok();
                device.keywords.extend(keyword.ok().flatten().map(|value| (name.into(), value)));
            }
        }
        Ok(state)
    }
}

/// An operation, done by its owner.
macro_rules! done_by {
    (windows, $split:ident, $name:ident($($argument:ident),*)) => {
        $split.windows.$name($($argument),*)
    };
    (file, $split:ident, $name:ident($($argument:ident),*)) => {
        $split.simulate(|machine| machine.$name($($argument),*))
    };
    (wine, $split:ident, $name:ident($($argument:ident),*)) => {
        wine::$name($split, $($argument),*)
    };
}

macro_rules! split {
    (reads { $($by:ident fn $read:ident($($read_name:ident: $read_type:ty),*) -> $result:ty;)* }
     changes { $($of:ident fn $change:ident($($name:ident: $type:ty),*);)* }) => {
        impl Machine for Split {
            $(fn $read(&mut self, $($read_name: $read_type),*) -> $result {
                done_by!($by, self, $read($($read_name),*))
            })*
            $(fn $change(&mut self, $($name: $type),*) -> Result<()> {
                done_by!($of, self, $change($($name),*))
            })*
        }
    };
}

crate::operations::operations!(split);

/// Operations in which Wine 8 differs from Windows.
mod wine {
    use std::path::Path;

    use anyhow::{Context, Result, ensure};
    use windows_registry::LOCAL_MACHINE;

    use super::Split;
    use crate::machine::{Inf, Machine, SERVICE, Said, Store};
    use crate::{task, windows};

    /// PowerShell is a stub that says nothing. What a flight does to NICs by it, the file's machine does.
    pub(super) fn ask(split: &mut Split, program: &str, arguments: &[&str]) -> Result<Said> {
        let is_shell = program == "powershell.exe";
        let known = is_shell.then(|| split.simulate(|machine| Ok(machine.run(program, arguments))));
        match known.transpose()?.flatten() {
            Some(said) => Ok(said),
            None => split.windows.ask(program, arguments),
        }
    }

    /// Nothing here takes time.
    pub(super) fn pause_s(_: &mut Split, _: u64) {}

    /// `schtasks /query` finds any task.
    pub(super) fn cancel_rollback(split: &mut Split) -> Result<()> {
        if !Path::new(r"C:\windows\system32\tasks").join(task::NAME).exists() {
            return Ok(());
        }
        split.windows.cancel_rollback()
    }

    /// An INF is published by its own name, whoever signed it.
    pub(super) fn stage(split: &mut Split, inf: &Path) -> Result<()> {
        let signer = split.windows.signer(&inf.with_extension("cat"))?;
        ensure!(split.windows.trusts(Store::TrustedPublisher, &signer.thumbprint)?, "0x800B0109");
        let number = Inf::ALL.iter().position(|one| inf.ends_with(one.file())).context("no INF")?;
        let published = inf.with_file_name(format!("oem{number}.inf"));
        std::fs::copy(inf, &published)?;
        split.windows.stage(&published)
    }

    /// The INF goes without its catalog and the file that was made of it.
    pub(super) fn unstage(split: &mut Split, published: &str) -> Result<()> {
        let number = published.trim_start_matches("oem").trim_end_matches(".inf").parse::<usize>();
        let inf = number.ok().and_then(|number| Inf::ALL.get(number)).context("no INF of ours")?;
        split.windows.unstage(published)?;
        let windows = Path::new(r"C:\windows");
        let catalogs = windows.join(r"system32\catroot\{f750e6c3-38ee-11d1-85e5-00c04fc295ee}");
        let made = windows.join("inf").join(published).with_extension("pnf");
        for file in [made, catalogs.join(inf.catalog())] {
            if file.exists() {
                std::fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    /// The protocol's removal takes the service of its INF along.
    pub(super) fn remove_protocol(split: &mut Split) -> Result<()> {
        split.simulate(|machine| machine.remove_protocol())?;
        let service = format!(r"SYSTEM\CurrentControlSet\Services\{SERVICE}");
        if LOCAL_MACHINE.open(service).is_err() {
            // The device never had a driver.
            return Ok(());
        }
        let said = split.windows.ask("sc.exe", &["delete", SERVICE])?;
        ensure!(said.code == 0, "sc.exe: {}", said.text);
        Ok(())
    }

    /// The key of the driver stays.
    pub(super) fn remove_device(split: &mut Split, device: &str) -> Result<()> {
        let key = windows::driver_key(device);
        split.windows.remove_device(device)?;
        key.map_or(Ok(()), |key| Ok(LOCAL_MACHINE.remove_tree(key)?))
    }
}
