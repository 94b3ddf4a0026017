//! Protocols and their bindings, by the network configuration's own interface.
//!
//! See [INetCfg](https://learn.microsoft.com/previous-versions/windows/hardware/network/ff547694(v=vs.85)).

use std::ptr::null_mut;

use anyhow::{Context, Result, bail, ensure};
use windows::Win32::NetworkManagement::NetManagement::{
    INetCfg, INetCfgClassSetup, INetCfgComponent, INetCfgComponentBindings, INetCfgLock,
    NETCFG_S_REBOOT, OBO_TOKEN, OBO_USER,
};
use windows::Win32::System::Com::{
    CLSCTX_INPROC_SERVER, COINIT_MULTITHREADED, CoCreateInstance, CoInitializeEx, CoTaskMemFree,
};
use windows::core::{GUID, HRESULT, Interface, PCWSTR, PWSTR, w};

use super::{restart, wide};

/// CNetCfg of netcfgx.h.
const NETCFG: GUID = GUID::from_u128(0x5b035261_40f9_11d1_aaec_00805fc1270e);
/// The classes of adapters and of protocols.
const NET: GUID = GUID::from_u128(0x4d36e972_e325_11ce_bfc1_08002be10318);
const TRANS: GUID = GUID::from_u128(0x4d36e975_e325_11ce_bfc1_08002be10318);
/// One configuration at a time may be changed on a machine; whoever has it is waited for.
const LOCK_MS: u32 = 30_000;

/// Whether the configuration is to be changed.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Access {
    Read,
    Write,
}

/// The configuration, open.
struct NetCfg {
    netcfg: INetCfg,
    lock: Option<INetCfgLock>,
}

impl NetCfg {
    fn open(access: Access) -> Result<Self> {
        // SAFETY: a thread may do this again.
        let _ = unsafe { CoInitializeEx(None, COINIT_MULTITHREADED) };
        // SAFETY: the class is that of this interface.
        let netcfg: INetCfg = unsafe { CoCreateInstance(&NETCFG, None, CLSCTX_INPROC_SERVER) }
            .context("the network configuration (INetCfg)")?;
        let lock = if access == Access::Write { Some(take_lock(&netcfg)?) } else { None };
        let opened = Self { netcfg, lock };
        // SAFETY: the argument is reserved.
        unsafe { opened.netcfg.Initialize(None) }.context("INetCfg::Initialize")?;
        Ok(opened)
    }

    fn find(&self, component: &str) -> Option<INetCfgComponent> {
        let (id, mut found) = (wide(component), None);
        // SAFETY: the name ends with a NUL. Where it does not exist, nothing is found.
        let _ = unsafe { self.netcfg.FindComponent(PCWSTR(id.as_ptr()), Some(&raw mut found)) };
        found
    }

    /// All network adapters, with their interface GUIDs.
    fn nics(&self) -> Result<Vec<(String, INetCfgComponent)>> {
        let mut list = None;
        // SAFETY: the class lives on.
        unsafe { self.netcfg.EnumComponents(&NET, Some(&raw mut list)) }?;
        let list = list.context("there are no network adapters")?;
        let mut nics = Vec::new();
        loop {
            let (mut next, mut fetched) = ([None], 0);
            // SAFETY: there is room for one.
            unsafe { list.Next(&mut next, Some(&raw mut fetched)) }?;
            let [Some(nic)] = next else { return Ok(nics) };
            // One that is half removed has no name.
            if let Ok(name) = bind_name(&nic) {
                nics.push((name, nic));
            }
        }
    }

    /// The NIC of this interface GUID.
    fn nic(&self, guid: &str) -> Result<INetCfgComponent> {
        let mut nics = self.nics()?.into_iter();
        let found = nics.find(|(name, _)| name.eq_ignore_ascii_case(guid));
        Ok(found.with_context(|| format!("there is no network adapter {guid}"))?.1)
    }

    fn setup(&self) -> Result<INetCfgClassSetup> {
        let mut setup = null_mut();
        // SAFETY: the result is of the interface that is asked for.
        unsafe {
            self.netcfg.QueryNetCfgClass(&TRANS, &INetCfgClassSetup::IID, Some(&raw mut setup))
        }?;
        ensure!(!setup.is_null(), "the configuration has no protocols");
        // SAFETY: as above, with a reference of ours.
        Ok(unsafe { INetCfgClassSetup::from_raw(setup) })
    }

    fn apply(&self) -> Result<()> {
        let apply = Interface::vtable(&self.netcfg).Apply;
        // SAFETY: the configuration is open, and locked.
        succeeded(unsafe { apply(self.netcfg.as_raw()) }, "INetCfg::Apply")
    }
}

/// The wrappers take each success for the same, also the one that wants a restart.
fn succeeded(result: HRESULT, function: &str) -> Result<()> {
    if result == NETCFG_S_REBOOT {
        return restart::ask(function);
    }
    result.ok().with_context(|| function.to_string())
}

impl Drop for NetCfg {
    fn drop(&mut self) {
        // SAFETY: what was not applied is forgotten.
        let _ = unsafe { self.netcfg.Uninitialize() };
        if let Some(lock) = &self.lock {
            // SAFETY: the lock is ours.
            let _ = unsafe { lock.ReleaseWriteLock() };
        }
    }
}

fn take_lock(netcfg: &INetCfg) -> Result<INetCfgLock> {
    let lock: INetCfgLock = netcfg.cast()?;
    let (name, mut holder) = (w!("ndkrocev2ctl"), PWSTR::null());
    let acquire = Interface::vtable(&lock).AcquireWriteLock;
    // The wrapper takes S_FALSE, by which somebody else has it, for success.
    // SAFETY: the name ends with a NUL.
    let taken = unsafe { acquire(lock.as_raw(), LOCK_MS, name, &raw mut holder) };
    if taken != HRESULT(0) {
        bail!("the network configuration is held by {} ({:#010X})", text(holder), taken.0);
    }
    Ok(lock)
}

/// Takes a text of COM's.
fn text(text: PWSTR) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it ends with a NUL.
    let copy = unsafe { text.to_string() }.unwrap_or_default();
    // SAFETY: whoever is given it frees it.
    unsafe { CoTaskMemFree(Some(text.0.cast())) };
    copy
}

fn bind_name(component: &INetCfgComponent) -> Result<String> {
    let mut name = PWSTR::null();
    // SAFETY: the name is ours to free.
    unsafe { component.GetBindName(Some(&raw mut name)) }?;
    Ok(text(name))
}

/// By nobody but the administrator.
fn token() -> OBO_TOKEN {
    OBO_TOKEN { Type: OBO_USER, ..Default::default() }
}

pub(super) fn has(component: &str) -> Result<bool> {
    Ok(NetCfg::open(Access::Read)?.find(component).is_some())
}

pub(super) fn bound(nic: &str, component: &str) -> Result<Option<bool>> {
    let netcfg = NetCfg::open(Access::Read)?;
    let Some(found) = netcfg.find(component) else { return Ok(None) };
    Binding::of(netcfg, found, nic)?.exists().map(Some)
}

/// A component and a NIC that it may be bound to.
struct Binding {
    component: INetCfgComponentBindings,
    nic: INetCfgComponent,
    /// Last: the others are released before it is closed.
    netcfg: NetCfg,
}

impl Binding {
    /// To be changed.
    fn open(nic: &str, component: &str) -> Result<Self> {
        let netcfg = NetCfg::open(Access::Write)?;
        let found = netcfg.find(component).with_context(|| format!("there is no {component}"))?;
        Self::of(netcfg, found, nic)
    }

    /// The component ends here, before its configuration does.
    fn of(netcfg: NetCfg, component: INetCfgComponent, nic: &str) -> Result<Self> {
        Ok(Self { component: component.cast()?, nic: netcfg.nic(nic)?, netcfg })
    }

    fn exists(&self) -> Result<bool> {
        is_bound(&self.component, &self.nic)
    }
}

fn is_bound(component: &INetCfgComponentBindings, nic: &INetCfgComponent) -> Result<bool> {
    let is_bound = Interface::vtable(component).IsBoundTo;
    // The wrapper takes S_FALSE for success.
    // SAFETY: both objects are alive.
    let bound = unsafe { is_bound(component.as_raw(), nic.as_raw()) };
    bound.ok()?;
    Ok(bound == HRESULT(0))
}

/// Bound to this NIC alone: the other bindings end before they are made, in the same transaction.
pub(super) fn install(component: &str, nic: &str) -> Result<()> {
    let netcfg = NetCfg::open(Access::Write)?;
    let (id, token, setup) = (wide(component), token(), netcfg.setup()?);
    let mut installed: Option<INetCfgComponent> = None;
    let install = Interface::vtable(&setup).Install;
    // SAFETY: the name ends with a NUL; there is no answer file; the component is released at the end.
    let result = unsafe {
        install(
            setup.as_raw(),
            PCWSTR(id.as_ptr()),
            &raw const token,
            0,
            0,
            PCWSTR::null(),
            PCWSTR::null(),
            (&raw mut installed).cast(),
        )
    };
    succeeded(result, "INetCfgClassSetup::Install")?;
    let installed = installed.with_context(|| format!("{component} was not installed"))?;
    let bindings: INetCfgComponentBindings = installed.cast()?;
    for (name, other) in netcfg.nics()? {
        if !name.eq_ignore_ascii_case(nic) && is_bound(&bindings, &other)? {
            // SAFETY: both components are of this configuration.
            unsafe { bindings.UnbindFrom(&other) }.context("UnbindFrom")?;
        }
    }
    netcfg.apply()
}

pub(super) fn remove(component: &str) -> Result<()> {
    let netcfg = NetCfg::open(Access::Write)?;
    let Some(found) = netcfg.find(component) else { return Ok(()) };
    let (token, setup) = (token(), netcfg.setup()?);
    let deinstall = Interface::vtable(&setup).DeInstall;
    // SAFETY: the component is of this configuration.
    let result = unsafe { deinstall(setup.as_raw(), found.as_raw(), &raw const token, null_mut()) };
    succeeded(result, "INetCfgClassSetup::DeInstall")?;
    netcfg.apply()
}

pub(super) fn bind(nic: &str, component: &str) -> Result<()> {
    let binding = Binding::open(nic, component)?;
    if binding.exists()? {
        return Ok(());
    }
    // SAFETY: both components are of this configuration.
    unsafe { binding.component.BindTo(&binding.nic) }.context("BindTo")?;
    binding.netcfg.apply()
}

pub(super) fn unbind(nic: &str, component: &str) -> Result<()> {
    let binding = Binding::open(nic, component)?;
    if !binding.exists()? {
        return Ok(());
    }
    // SAFETY: both components are of this configuration.
    unsafe { binding.component.UnbindFrom(&binding.nic) }.context("UnbindFrom")?;
    binding.netcfg.apply()
}
