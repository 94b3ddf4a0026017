//! The device of the adapter, by SetupAPI.

use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail, ensure};
use windows_registry::{Key, LOCAL_MACHINE};
use windows_sys::Win32::Devices::DeviceAndDriverInstallation::{
    CM_Get_DevNode_Status, CM_Locate_DevNodeW, CR_SUCCESS, DI_NEEDREBOOT, DI_NEEDRESTART,
    DICS_FLAG_GLOBAL, DICS_PROPCHANGE, DIF_PROPERTYCHANGE, DIF_REGISTERDEVICE, DIF_REMOVE,
    DN_HAS_PROBLEM, GUID_DEVCLASS_NET, HDEVINFO, INSTALLFLAG_FORCE, SP_CLASSINSTALL_HEADER,
    SP_DEVINFO_DATA, SP_DEVINSTALL_PARAMS_W, SP_PROPCHANGE_PARAMS, SPDRP_DRIVER, SPDRP_HARDWAREID,
    SetupDiCallClassInstaller, SetupDiCreateDeviceInfoList, SetupDiCreateDeviceInfoW,
    SetupDiDestroyDeviceInfoList, SetupDiEnumDeviceInfo, SetupDiGetClassDevsW,
    SetupDiGetDeviceInstallParamsW, SetupDiGetDeviceInstanceIdW, SetupDiGetDeviceRegistryPropertyW,
    SetupDiOpenDeviceInfoW, SetupDiSetClassInstallParamsW, SetupDiSetDeviceRegistryPropertyW,
    UPDATEDRIVERFORPLUGANDPLAYDEVICES_FLAGS, UpdateDriverForPlugAndPlayDevicesW,
};
use windows_sys::Win32::Foundation::{ERROR_NO_MORE_ITEMS, GetLastError};

use super::{check, narrow, restart, wide};
use crate::machine::HARDWARE_ID;

/// A set of devices.
struct Set(HDEVINFO);

impl Drop for Set {
    fn drop(&mut self) {
        // SAFETY: the set is open.
        unsafe { SetupDiDestroyDeviceInfoList(self.0) };
    }
}

impl Set {
    fn empty() -> Result<Self> {
        // SAFETY: the class lives on.
        let set = unsafe { SetupDiCreateDeviceInfoList(&GUID_DEVCLASS_NET, null_mut()) };
        check(i32::from(set != -1), "SetupDiCreateDeviceInfoList")?;
        Ok(Self(set))
    }

    /// All network devices, those without a driver and those that are not present among them.
    fn network() -> Result<Self> {
        // SAFETY: the class lives on.
        let set = unsafe { SetupDiGetClassDevsW(&GUID_DEVCLASS_NET, null(), null_mut(), 0) };
        check(i32::from(set != -1), "SetupDiGetClassDevs")?;
        Ok(Self(set))
    }

    fn get(&self, index: u32) -> Option<SP_DEVINFO_DATA> {
        let mut data = device_data();
        // SAFETY: the set is open, and the structure says its size.
        let ok = unsafe { SetupDiEnumDeviceInfo(self.0, index, &raw mut data) };
        (ok != 0).then_some(data)
    }

    fn open(&self, device: &str) -> Result<SP_DEVINFO_DATA> {
        let (id, mut data) = (wide(device), device_data());
        // SAFETY: the set is open, and the name ends with a NUL.
        let ok =
            unsafe { SetupDiOpenDeviceInfoW(self.0, id.as_ptr(), null_mut(), 0, &raw mut data) };
        check(ok, "SetupDiOpenDeviceInfo")?;
        Ok(data)
    }

    /// The first text of a property.
    fn property(&self, data: &SP_DEVINFO_DATA, property: u32) -> Option<String> {
        let mut text = [0_u16; 512];
        // SAFETY: there is room for 1,024 bytes.
        let ok = unsafe {
            SetupDiGetDeviceRegistryPropertyW(
                self.0,
                data,
                property,
                null_mut(),
                text.as_mut_ptr().cast(),
                1024,
                null_mut(),
            )
        };
        (ok != 0).then(|| narrow(&text))
    }

    fn id(&self, data: &SP_DEVINFO_DATA) -> Result<String> {
        let mut id = [0_u16; 256];
        // SAFETY: there is room for 256 units.
        let ok =
            unsafe { SetupDiGetDeviceInstanceIdW(self.0, data, id.as_mut_ptr(), 256, null_mut()) };
        check(ok, "SetupDiGetDeviceInstanceId")?;
        Ok(narrow(&id))
    }

    fn call(&self, function: u32, data: &SP_DEVINFO_DATA, what: &str) -> Result<()> {
        // SAFETY: the device is of this set.
        check(unsafe { SetupDiCallClassInstaller(function, self.0, data) }, what)?;
        if self.wants_restart(data) { restart::ask(what) } else { Ok(()) }
    }

    /// Whether the class installer left that word. A device that is gone has none.
    fn wants_restart(&self, data: &SP_DEVINFO_DATA) -> bool {
        let mut params = SP_DEVINSTALL_PARAMS_W {
            cbSize: size_of::<SP_DEVINSTALL_PARAMS_W>() as u32,
            ..Default::default()
        };
        // SAFETY: the set is open, and the structure says its size.
        let ok = unsafe { SetupDiGetDeviceInstallParamsW(self.0, data, &raw mut params) };
        ok != 0 && params.Flags & (DI_NEEDREBOOT | DI_NEEDRESTART) != 0
    }
}

fn device_data() -> SP_DEVINFO_DATA {
    SP_DEVINFO_DATA { cbSize: size_of::<SP_DEVINFO_DATA>() as u32, ..Default::default() }
}

pub(super) fn ours() -> Result<Vec<String>> {
    let set = Set::network()?;
    let devices = (0..).map_while(|index| set.get(index));
    let ours = devices.filter(|data| {
        let id = set.property(data, SPDRP_HARDWAREID);
        id.is_some_and(|id| id.eq_ignore_ascii_case(HARDWARE_ID))
    });
    ours.map(|data| set.id(&data)).collect()
}

/// The device outlives a restart, since it lies under ROOT. Windows makes up no ID: an undoing knows this one.
pub(super) fn create(device: &str) -> Result<()> {
    let set = Set::empty()?;
    let (name, mut data) = (wide(device), device_data());
    // SAFETY: the set is open, the name ends with a NUL, and there is no description.
    let ok = unsafe {
        SetupDiCreateDeviceInfoW(
            set.0,
            name.as_ptr(),
            &GUID_DEVCLASS_NET,
            null(),
            null_mut(),
            0,
            &raw mut data,
        )
    };
    check(ok, "SetupDiCreateDeviceInfo")?;
    // A list of texts, with a NUL behind the last.
    let ids: Vec<u16> = wide(HARDWARE_ID).into_iter().chain([0]).collect();
    // SAFETY: the list has this many bytes.
    let ok = unsafe {
        SetupDiSetDeviceRegistryPropertyW(
            set.0,
            &raw mut data,
            SPDRP_HARDWAREID,
            ids.as_ptr().cast(),
            u32::try_from(size_of_val(&ids[..]))?,
        )
    };
    check(ok, "SetupDiSetDeviceRegistryProperty")?;
    set.call(DIF_REGISTERDEVICE, &data, "DIF_REGISTERDEVICE")
}

/// A device that has a driver already is left alone, and its adapter does not stop.
pub(super) fn install_driver(inf: &Path) -> Result<()> {
    update(inf, 0)
}

/// All devices, whatever driver they have.
pub(super) fn exchange_driver(inf: &Path) -> Result<()> {
    update(inf, INSTALLFLAG_FORCE)
}

fn update(inf: &Path, flags: UPDATEDRIVERFORPLUGANDPLAYDEVICES_FLAGS) -> Result<()> {
    let (id, inf, mut wants_restart) = (wide(HARDWARE_ID), wide(inf), 0);
    // SAFETY: both texts end with a NUL.
    let ok = unsafe {
        UpdateDriverForPlugAndPlayDevicesW(
            null_mut(),
            id.as_ptr(),
            inf.as_ptr(),
            flags,
            &raw mut wants_restart,
        )
    };
    // SAFETY: it reads a number of this thread.
    if ok == 0 && unsafe { GetLastError() } == ERROR_NO_MORE_ITEMS {
        // No device lacks it.
        return Ok(());
    }
    check(ok, "UpdateDriverForPlugAndPlayDevices")?;
    if wants_restart == 0 { Ok(()) } else { restart::ask("UpdateDriverForPlugAndPlayDevices") }
}

pub(super) fn remove(device: &str) -> Result<()> {
    let set = Set::empty()?;
    let data = set.open(device)?;
    set.call(DIF_REMOVE, &data, "DIF_REMOVE")
}

pub(super) fn restart(device: &str) -> Result<()> {
    let set = Set::empty()?;
    let data = set.open(device)?;
    let change = SP_PROPCHANGE_PARAMS {
        ClassInstallHeader: SP_CLASSINSTALL_HEADER {
            cbSize: size_of::<SP_CLASSINSTALL_HEADER>() as u32,
            InstallFunction: DIF_PROPERTYCHANGE,
        },
        StateChange: DICS_PROPCHANGE,
        Scope: DICS_FLAG_GLOBAL,
        HwProfile: 0,
    };
    // SAFETY: the structure begins with its header and has this size.
    let ok = unsafe {
        SetupDiSetClassInstallParamsW(
            set.0,
            &data,
            (&raw const change).cast(),
            size_of::<SP_PROPCHANGE_PARAMS>() as u32,
        )
    };
    check(ok, "SetupDiSetClassInstallParams")?;
    set.call(DIF_PROPERTYCHANGE, &data, "DIF_PROPERTYCHANGE")
}

pub(super) fn problem(device: &str) -> Result<u32> {
    let (id, mut node, mut status, mut problem) = (wide(device), 0, 0, 0);
    // SAFETY: the name ends with a NUL.
    if unsafe { CM_Locate_DevNodeW(&raw mut node, id.as_ptr(), 0) } != CR_SUCCESS {
        bail!("{device} is not present");
    }
    // SAFETY: the node was found.
    let found = unsafe { CM_Get_DevNode_Status(&raw mut status, &raw mut problem, node, 0) };
    ensure!(found == CR_SUCCESS, "{device} has no status: {found}");
    Ok(if status & DN_HAS_PROBLEM == 0 { 0 } else { problem })
}

/// Whether a key is to be written.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Read,
    Write,
}

/// The key of the device's driver, in which a network adapter has its keywords.
pub(super) fn software_key(device: &str, access: Access) -> Result<Key> {
    let mut options = LOCAL_MACHINE.options();
    options.read();
    if matches!(access, Access::Write) {
        options.write();
    }
    Ok(options.open(driver_key(device)?)?)
}

/// The path of that key below `HKEY_LOCAL_MACHINE`.
pub(crate) fn driver_key(device: &str) -> Result<String> {
    let set = Set::empty()?;
    let data = set.open(device)?;
    let key = set.property(&data, SPDRP_DRIVER).context("the device has no driver")?;
    Ok(format!(r"SYSTEM\CurrentControlSet\Control\Class\{key}"))
}
