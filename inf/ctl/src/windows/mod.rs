//! Windows, by the functions that each edition has without a WDK.

#![allow(unsafe_code, reason = "functions of Windows")]

mod certificate;
mod control;
mod device;
mod interface;
mod lock;
mod netcfg;
mod program;
mod restart;
mod store;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, ensure};
use windows_registry::LOCAL_MACHINE;

use crate::machine::{
    Certificate, Host, IMAGE, Inf, IpSettings, LOWER, Machine, Nic, Said, Stages, Store, Vnic,
};
use crate::netsh::{Netsh, netsh};
#[cfg(feature = "stand-in")]
pub(crate) use device::driver_key;
pub(crate) use lock::Lock;
#[cfg(feature = "stand-in")]
pub(crate) use program::output;

/// Below each GUID here is the name of a connection.
const CONTROL: &str = r"SYSTEM\CurrentControlSet\Control";

/// The machine that this program runs on.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Only administrators write here: the system's own account runs what lies in it.
    folder: PathBuf,
}

impl Windows {
    pub(crate) fn new() -> Result<Self> {
        let programs = env::var_os("ProgramFiles").context("there is no folder of programs")?;
        Ok(Self { folder: Path::new(&programs).join("ndkrocev2") })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn tool(&self) -> PathBuf {
        self.file("ndkrocev2ctl.exe")
    }

    fn manifest(&self) -> PathBuf {
        self.file(crate::machine::COUNTERS)
    }

    fn set(&self, name: &str, text: Option<&str>) -> Result<()> {
        let file = self.file(name);
        let Some(text) = text else { return self.remove(&file) };
        fs::create_dir_all(&self.folder)?;
        store::replace(&file, text)
    }

    /// The folder goes with the last file.
    fn remove(&self, file: &Path) -> Result<()> {
        if file.exists() && fs::remove_file(file).is_err() {
            // A program that runs can be renamed, and deleted when Windows starts next.
            store::delete_later(file)?;
        }
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// The interface GUID of the device's adapter; `None` where it has no driver yet.
    fn guid(device: &str) -> Option<String> {
        let key = device::software_key(device, device::Access::Read).ok()?;
        key.get_string("NetCfgInstanceId").ok()
    }
}

impl Machine for Windows {
    fn host(&mut self) -> Result<Host> {
        let version = LOCAL_MACHINE.open(r"SOFTWARE\Microsoft\Windows NT\CurrentVersion")?;
        let build = version.get_string("CurrentBuildNumber")?;
        let environment = format!(r"{CONTROL}\Session Manager\Environment");
        // Not the variable, which is the process', and that may be emulated.
        let processor = LOCAL_MACHINE.open(environment)?.get_string("PROCESSOR_ARCHITECTURE")?;
        let control = LOCAL_MACHINE.open(CONTROL)?;
        let options = control.get_string("SystemStartOptions").unwrap_or_default();
        let product = LOCAL_MACHINE.open(format!(r"{CONTROL}\ProductOptions"))?;
        let bios = LOCAL_MACHINE.open(r"HARDWARE\DESCRIPTION\System\BIOS");
        let said = |name| bios.as_ref().ok().and_then(|key| key.get_string(name).ok());
        let model = ["SystemManufacturer", "SystemProductName"].into_iter().filter_map(said);
        Ok(Host {
            machine: match processor.as_str() {
                "AMD64" => 0x8664,
                "ARM64" => 0xaa64,
                other => anyhow::bail!("the driver exists for x64 and ARM64, not for {other}"),
            },
            build: build.parse().with_context(|| format!("no build: {build}"))?,
            elevated: LOCAL_MACHINE.options().read().write().open("SOFTWARE").is_ok(),
            test_signing: options.to_ascii_uppercase().contains("TESTSIGNING"),
            workstation: product.get_string("ProductType")? == "WinNT",
            model: model.collect::<Vec<_>>().join(" "),
        })
    }

    fn nics(&mut self) -> Result<Vec<Nic>> {
        let devices = self.devices()?;
        let ours: Vec<_> = devices.iter().filter_map(|device| Self::guid(device)).collect();
        let is_ours =
            |row: &interface::Row| ours.iter().any(|guid| guid.eq_ignore_ascii_case(&row.guid));
        let others = interface::rows()?.into_iter().filter(|row| !is_ours(row));
        Ok(others.map(interface::Row::into_nic).collect())
    }

    fn bound(&mut self, nic: &str, component: &str) -> Result<Option<bool>> {
        netcfg::bound(nic, component)
    }

    fn ip_settings(&mut self, adapter: &str) -> Result<IpSettings> {
        interface::settings(adapter)
    }

    fn signer(&mut self, catalog: &Path) -> Result<Certificate> {
        certificate::signer(catalog)
    }

    fn trusts(&mut self, store: Store, thumbprint: &str) -> Result<bool> {
        certificate::trusts(store, thumbprint)
    }

    fn staged(&mut self, inf: Inf) -> Result<Vec<String>> {
        store::staged(inf)
    }

    fn published(&mut self, published: &str) -> Result<Vec<u8>> {
        store::published(published)
    }

    fn has_protocol(&mut self) -> Result<bool> {
        netcfg::has(LOWER)
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        device::ours()
    }

    fn vnic(&mut self, device: &str) -> Result<Option<Vnic>> {
        let Some(guid) = Self::guid(device) else { return Ok(None) };
        let mut rows = interface::rows()?.into_iter();
        Ok(rows.find(|row| row.guid.eq_ignore_ascii_case(&guid)).map(interface::Row::into_vnic))
    }

    fn keyword(&mut self, device: &str, name: &str) -> Result<Option<String>> {
        let key = device::software_key(device, device::Access::Read)?;
        Ok(key.get_string(name).ok())
    }

    fn snapshot(&mut self) -> Result<Option<Vec<u8>>> {
        control::snapshot()
    }

    fn stages(&mut self) -> Result<Stages> {
        Ok(control::stages())
    }

    fn journal(&mut self) -> Result<Option<String>> {
        store::read(&self.file("journal.json"))
    }

    fn flight(&mut self) -> Result<Option<String>> {
        store::read(&self.file("flight.json"))
    }

    fn ask(&mut self, name: &str, arguments: &[&str]) -> Result<Said> {
        program::run(name, arguments)
    }

    fn problem(&mut self, device: &str) -> Result<u32> {
        device::problem(device)
    }

    fn verify_signature(&mut self, file: &Path, catalog: &Path) -> Result<()> {
        certificate::verify(file, catalog)
    }

    fn awaits_restart(&mut self) -> Result<Option<String>> {
        restart::asked_by()
    }

    fn is_marked(&mut self) -> Result<bool> {
        Ok(restart::is_marked())
    }

    fn pause_s(&mut self, seconds: u64) {
        thread::sleep(Duration::from_secs(seconds));
    }

    fn set_journal(&mut self, text: Option<&str>) -> Result<()> {
        self.set("journal.json", text)
    }

    fn set_flight(&mut self, text: Option<&str>) -> Result<()> {
        self.set("flight.json", text)
    }

    fn mark(&mut self) -> Result<()> {
        restart::mark()
    }

    fn schedule_rollback(&mut self, within_s: u64) -> Result<()> {
        program::schedule(&self.tool(), within_s)
    }

    fn cancel_rollback(&mut self) -> Result<()> {
        program::cancel()
    }

    fn keep_tool(&mut self) -> Result<()> {
        let tool = self.tool();
        fs::create_dir_all(&self.folder)?;
        let this = env::current_exe()?;
        if this != tool {
            fs::copy(this, tool)?;
        }
        Ok(())
    }

    fn remove_tool(&mut self) -> Result<()> {
        self.remove(&self.tool())
    }

    fn trust(&mut self, store: Store, certificate: &Certificate) -> Result<()> {
        certificate::add(store, certificate)
    }

    fn distrust(&mut self, store: Store, thumbprint: &str) -> Result<()> {
        certificate::remove(store, thumbprint)
    }

    fn stage(&mut self, inf: &Path) -> Result<()> {
        store::stage(inf)
    }

    fn unstage(&mut self, published: &str) -> Result<()> {
        store::unstage(published)?;
        if self.staged(Inf::Adapter)?.is_empty() && self.staged(Inf::Lower)?.is_empty() {
            store::remove_image();
        }
        Ok(())
    }

    fn install_protocol(&mut self, nic: &str) -> Result<()> {
        netcfg::install(LOWER, nic)
    }

    fn remove_protocol(&mut self) -> Result<()> {
        netcfg::remove(LOWER)
    }

    fn create_device(&mut self, device: &str) -> Result<()> {
        device::create(device)
    }

    fn remove_device(&mut self, device: &str) -> Result<()> {
        device::remove(device)
    }

    fn install_driver(&mut self, inf: &Path) -> Result<()> {
        device::install_driver(inf)
    }

    fn exchange_driver(&mut self, published: &str) -> Result<()> {
        device::exchange_driver(&store::published_path(published)?)
    }

    fn register_counters(&mut self, manifest: &Path) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::copy(manifest, self.manifest())?;
        let service = format!(r"SYSTEM\CurrentControlSet\Services\{}", crate::machine::SERVICE);
        let image = LOCAL_MACHINE.open(service)?.get_string("ImagePath")?;
        let image = store::image_path(&image)?;
        ensure!(image.ends_with(IMAGE), "{} is not the driver's image", image.display());
        let folder = image.parent().context("the image lies in no folder")?;
        // Those of another version: there need not be any.
        let manifest = format!("/m:{}", self.manifest().display());
        program::run("unlodctr.exe", &[&manifest])?;
        program::succeed("lodctr.exe", &[&manifest, &folder.display().to_string()])
    }

    fn unregister_counters(&mut self) -> Result<()> {
        let manifest = self.manifest();
        if manifest.exists() {
            // Its exit code is of no use: they may not be registered yet.
            program::run("unlodctr.exe", &[&format!("/m:{}", manifest.display())])?;
        }
        self.remove(&manifest)
    }

    fn set_keyword(&mut self, device: &str, name: &str, value: &str) -> Result<()> {
        let key = device::software_key(device, device::Access::Write)?;
        Ok(key.set_string(name, value)?)
    }

    fn rename(&mut self, device: &str, name: &str) -> Result<()> {
        let vnic = self.vnic(device)?.context("the adapter does not appear")?;
        if vnic.name == name {
            return Ok(());
        }
        let (old, new) = (format!("name={}", vnic.name), format!("newname={name}"));
        program::succeed("netsh.exe", &["interface", "set", "interface", &old, &new])
    }

    fn restart(&mut self, device: &str) -> Result<()> {
        device::restart(device)
    }

    fn bind(&mut self, nic: &str, component: &str) -> Result<()> {
        netcfg::bind(nic, component)
    }

    fn unbind(&mut self, nic: &str, component: &str) -> Result<()> {
        netcfg::unbind(nic, component)
    }

    fn add_ip_settings(&mut self, adapter: &str, settings: &IpSettings) -> Result<()> {
        let index = interface::index(adapter)?;
        let before = interface::settings(adapter)?;
        for Netsh(arguments) in netsh(index, settings, &before) {
            let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
            program::succeed("netsh.exe", &arguments)?;
        }
        settings.suffix.as_deref().map_or(Ok(()), |suffix| interface::set_suffix(adapter, suffix))
    }
}

/// Keeps Wine's desktop for as long as this program runs. Wine starts it for the first program that needs one, with the pipes of
/// that program: one whose output another reads would then never seem to end.
#[cfg(feature = "stand-in")]
pub(crate) fn hold_desktop() {
    #[link(name = "user32")]
    unsafe extern "system" {
        fn GetDesktopWindow() -> isize;
    }
    // SAFETY: it takes nothing, and the window that it returns is nobody's to free.
    unsafe { GetDesktopWindow() };
}

/// As Windows' wide functions take it.
fn wide(text: impl AsRef<std::ffi::OsStr>) -> Vec<u16> {
    std::os::windows::ffi::OsStrExt::encode_wide(text.as_ref()).chain([0]).collect()
}

/// The text up to its NUL.
fn narrow(wide: &[u16]) -> String {
    let end = wide.iter().position(|&unit| unit == 0).unwrap_or(wide.len());
    String::from_utf16_lossy(&wide[..end])
}

/// The error of a function that returned false.
fn check(ok: i32, what: &str) -> Result<()> {
    if ok != 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    let code = error.raw_os_error().unwrap_or_default();
    Err(anyhow!("{what}: {error} ({code:#010X})"))
}
