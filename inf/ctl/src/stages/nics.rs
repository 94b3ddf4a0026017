//! Two NICs that are joined to each other and to nothing else, made for a stage, unless the caller gives two.
//!
//! Hyper-V's switch comes first: the hosted images have the role and its cmdlets (`actions/runner-images`,
//! `images/windows/toolsets/toolset-2022.json` and `toolset-2025.json`, `windowsFeatures`), and an internal switch needs
//! the service of Hyper-V, not its hypervisor, which a guest of a cloud may lack. Nobody has seen it there. The other is
//! duonic, the pair of NICs of microsoft/corenet-ci, with which microsoft/msquic and microsoft/ebpf-for-windows test on
//! machines of this kind, ARM64 among them.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::machine::{Address, IpSettings, Machine, Nic, Said};

const SWITCH: &str = "ndkrocev2-flight";
/// As the management system's virtual adapters are called.
const OF_SWITCH: [&str; 2] = ["vEthernet (ndkrocev2-flight)", "vEthernet (ndkrocev2-flight-2)"];
const OF_DUONIC: [&str; 2] = ["duo1", "duo2"];
/// Windows names a new NIC, and gives it a link, well within this.
const APPEAR_S: u64 = 30;

/// Who made them.
#[derive(Clone, Debug)]
pub(super) enum Maker {
    Switch,
    /// By the folder of its script.
    Duonic(String),
    /// The caller, by their names.
    Given([String; 2]),
}

impl Maker {
    fn names(&self) -> [&str; 2] {
        match self {
            Self::Switch => OF_SWITCH,
            Self::Duonic(_) => OF_DUONIC,
            Self::Given(names) => names.each_ref().map(String::as_str),
        }
    }

    /// Makes both.
    fn make(&self, machine: &mut impl Machine) -> Result<()> {
        match self {
            // Own mode has a second MAC address behind each, which the switch must let pass.
            Self::Switch => succeed(
                machine,
                "powershell.exe",
                &format!(
                    "$ErrorActionPreference = 'Stop'; \
                     New-VMSwitch -Name {SWITCH} -SwitchType Internal | Out-Null; \
                     Add-VMNetworkAdapter -ManagementOS -SwitchName {SWITCH} -Name {SWITCH}-2; \
                     Get-VMNetworkAdapter -ManagementOS -SwitchName {SWITCH} | \
                     Set-VMNetworkAdapter -MacAddressSpoofing On"
                ),
            ),
            // Its signer lies one folder up, or two.
            Self::Duonic(folder) => succeed(
                machine,
                "pwsh.exe",
                &format!(
                    "$ErrorActionPreference = 'Stop'; Set-Location -LiteralPath '{folder}'; \
                     $signer = Get-Item ../CoreNetSignRoot.cer, ../../CoreNetSignRoot.cer -ErrorAction Ignore; \
                     foreach ($store in 'Root', 'TrustedPublisher') {{ certutil -f -addstore $store $signer[0] }}; \
                     ./duonic.ps1 -Install"
                ),
            ),
            Self::Given(_) => Ok(()),
        }
    }

    /// What is not there is no error.
    pub(super) fn unmake(&self, machine: &mut impl Machine) -> Result<()> {
        match self {
            Self::Switch => succeed(
                machine,
                "powershell.exe",
                &format!("Get-VMSwitch | Where-Object Name -eq {SWITCH} | Remove-VMSwitch -Force"),
            ),
            Self::Duonic(folder) => succeed(
                machine,
                "pwsh.exe",
                &format!("Set-Location -LiteralPath '{folder}'; ./duonic.ps1 -Uninstall"),
            ),
            Self::Given(_) => Ok(()),
        }
    }

    /// Takes the second NIC away, whatever is bound to it.
    pub(super) fn remove_second(&self, machine: &mut impl Machine) -> Result<()> {
        match self {
            Self::Switch => succeed(
                machine,
                "powershell.exe",
                &format!("Remove-VMNetworkAdapter -ManagementOS -Name {SWITCH}-2"),
            ),
            Self::Duonic(folder) => succeed(
                machine,
                "pwsh.exe",
                &format!("Set-Location -LiteralPath '{folder}'; ./dswdevice.exe -u duonic_svc2"),
            ),
            Self::Given(_) => bail!("whoever gave it takes it away"),
        }
    }
}

/// By whichever maker this machine has; why by neither.
pub(super) fn make(
    machine: &mut impl Machine,
    given: &[String],
    duonic: Option<&Path>,
) -> Result<(Maker, Vec<Nic>), String> {
    let makers = match given {
        [first, second] => vec![Maker::Given([first.clone(), second.clone()])],
        _ => {
            let duonic = duonic.map(|folder| Maker::Duonic(folder.display().to_string()));
            [Maker::Switch].into_iter().chain(duonic).collect()
        }
    };
    let mut whys = Vec::new();
    for maker in makers {
        match maker.make(machine).and_then(|()| appear(machine, maker.names())) {
            Ok(nics) => return Ok((maker, nics)),
            Err(error) => whys.push(format!("{error:#}")),
        }
        let _ = maker.unmake(machine);
    }
    if given.is_empty() && duonic.is_none() {
        whys.push("--duonic names no folder".into());
    }
    Err(whys.join("; "))
}

fn appear(machine: &mut impl Machine, names: [&str; 2]) -> Result<Vec<Nic>> {
    for _ in 0..APPEAR_S {
        let nics = machine.nics()?;
        let found = names.map(|name| nics.iter().find(|nic| nic.name == name && nic.up).cloned());
        if let [Some(first), Some(second)] = found {
            for (nic, host) in [&first, &second].into_iter().zip([11, 12]) {
                machine.add_ip_settings(&nic.guid, &address(host))?;
            }
            return Ok(vec![first, second]);
        }
        machine.pause_s(1);
    }
    bail!("{} do not appear within {APPEAR_S} s", names.join(" and "))
}

/// A station of the network that the stage has to itself.
pub(super) fn address(host: u8) -> IpSettings {
    let address = Address { ip: [192, 168, 79, host].into(), prefix: 24 };
    IpSettings { addresses: vec![address], ..IpSettings::default() }
}

/// Disables the NIC, or enables it.
pub(super) fn set_enabled(machine: &mut impl Machine, nic: &Nic, enabled: bool) -> Result<()> {
    let verb = if enabled { "Enable" } else { "Disable" };
    succeed(
        machine,
        "powershell.exe",
        &format!("{verb}-NetAdapter -Name '{}' -Confirm:$false", nic.name),
    )
}

pub(super) fn succeed(machine: &mut impl Machine, shell: &str, script: &str) -> Result<()> {
    let arguments = ["-NoProfile", "-NonInteractive", "-Command", script];
    let Said { code, text } = machine.ask(shell, &arguments).context("PowerShell")?;
    ensure!(code == 0, "{}", text.lines().next().unwrap_or("it says nothing"));
    Ok(())
}
