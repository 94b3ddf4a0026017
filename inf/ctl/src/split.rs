//! Wine for a machine: Windows' own functions as far as Wine has them, and a file for what it lacks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::machine::{
    Certificate, Host, Inf, IpSettings, Kept, LOWER_ADAPTER, LOWER_MODE, Machine, Nic, Said,
    Stages, Store, Vnic,
};
use crate::simulated::{Simulated, State, static_settings};
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

    /// A machine of before any installation, where there is no file yet.
    fn load(&self) -> Result<State> {
        if !self.file.exists() {
            return Ok(State::sample(static_settings()));
        }
        Ok(serde_json::from_str(&fs::read_to_string(&self.file)?)?)
    }

    /// Acts on the machine of the file, and writes it again: a program that dies in between has changed nothing.
    fn simulate<T>(&mut self, act: impl FnOnce(&mut Simulated) -> Result<T>) -> Result<T> {
        let mut simulated = Simulated::new(self.load()?);
        let done = act(&mut simulated)?;
        anyhow::ensure!(simulated.broken.is_empty(), "broken: {:?}", simulated.broken);
        fs::write(&self.file, serde_json::to_string_pretty(&simulated.state)?)?;
        Ok(done)
    }
}

macro_rules! split {
    (windows { $(fn $real:ident($($real_name:ident: $real_type:ty),*) -> $real_result:ty;)* }
     file { $(fn $file:ident($($name:ident: $type:ty),*) -> $result:ty;)* }
     $($own:item)*) => {
        impl Machine for Split {
            $(fn $real(&mut self, $($real_name: $real_type),*) -> $real_result {
                self.windows.$real($($real_name),*)
            })*
            $(fn $file(&mut self, $($name: $type),*) -> Result<$result> {
                self.simulate(|machine| machine.$file($($name),*))
            })*
            $($own)*
        }
    };
}

split! {
    windows {
        fn host() -> Result<Host>;
        fn signer(catalog: &Path) -> Result<Certificate>;
        fn trusts(store: Store, thumbprint: &str) -> Result<bool>;
        fn staged(inf: Inf) -> Result<Vec<String>>;
        fn devices() -> Result<Vec<String>>;
        fn keyword(name: &str) -> Result<Option<String>>;
        fn snapshot() -> Result<Option<Vec<u8>>>;
        fn stages() -> Result<Stages>;
        fn journal() -> Result<Option<String>>;
        fn flight() -> Result<Option<String>>;
        fn ask(program: &str, arguments: &[&str]) -> Result<Said>;
        fn problem(device: &str) -> Result<u32>;
        fn verify_signature(file: &Path, catalog: &Path) -> Result<()>;
        fn set_journal(text: Option<&str>) -> Result<()>;
        fn set_flight(text: Option<&str>) -> Result<()>;
        fn keep_tool(kept: Kept) -> Result<()>;
        fn schedule_rollback(within_s: u64) -> Result<()>;
        fn cancel_rollback() -> Result<()>;
        fn set_trust(store: Store, certificate: &Certificate, kept: Kept) -> Result<()>;
        fn set_keyword(name: &str, value: &str) -> Result<()>;
    }
    file {
        fn nics() -> Vec<Nic>;
        fn bound(nic: &str, component: &str) -> Option<bool>;
        fn ip_settings(adapter: &str) -> IpSettings;
        fn has_protocol() -> bool;
        fn vnic() -> Option<Vnic>;
        fn install_protocol() -> ();
        fn remove_protocol() -> ();
        fn rename(name: &str) -> ();
        fn bind(nic: &str, component: &str, kept: Kept) -> ();
        fn add_ip_settings(adapter: &str, settings: &IpSettings) -> ();
        fn register_counters(manifest: &Path) -> ();
        fn unregister_counters() -> ();
    }

    fn pause_s(&mut self, _: u64) {}

    // The file is told of what the real ones did, so that it knows what depends on it.
    fn stage(&mut self, inf: &Path) -> Result<()> {
        self.windows.stage(inf)?;
        self.simulate(|machine| {
            // The real stage has judged the signer.
            let judged = (Store::TrustedPublisher, String::new());
            machine.state.trust.insert(judged.clone());
            let staged = machine.stage(inf);
            machine.state.trust.remove(&judged);
            staged
        })
    }

    fn unstage(&mut self, published: &str) -> Result<()> {
        let inf = Inf::ALL.into_iter().find(|inf| {
            self.windows.staged(*inf).is_ok_and(|staged| staged.iter().any(|one| one == published))
        });
        let inf = inf.context("no INF of ours")?;
        self.simulate(|machine| {
            machine.staged(inf)?.iter().try_for_each(|simulated| machine.unstage(simulated))
        })?;
        self.windows.unstage(published)
    }

    fn create_device(&mut self) -> Result<()> {
        self.windows.create_device()?;
        self.simulate(|machine| machine.create_device())
    }

    fn remove_device(&mut self, device: &str) -> Result<()> {
        self.windows.remove_device(device)?;
        self.simulate(|machine| machine.remove_device(device))
    }

    fn install_driver(&mut self, inf: &Path) -> Result<()> {
        self.windows.install_driver(inf)?;
        self.simulate(|machine| machine.install_driver(inf))
    }

    fn restart(&mut self) -> Result<()> {
        for name in [LOWER_ADAPTER, LOWER_MODE] {
            let value = self.windows.keyword(name)?.with_context(|| format!("no {name}"))?;
            self.simulate(|machine| machine.set_keyword(name, &value))?;
        }
        self.simulate(|machine| machine.restart())
    }
}
