//! The checks from the signature to a copy over SMB.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};

use super::Verdict::{self, Passed, Skipped};
use super::{Scope, Verify};
use crate::counters::{read, sum};
use crate::journal::Journals;
use crate::machine::{HARDWARE_ID, IMAGE, Inf, LOWER, LOWER_ADAPTER, Machine, Said, Store, Vnic};
use crate::status::{meaning, path_mtu};

/// Large enough for RDMA to be seen beside SMB's own messages, of which a test has none.
const COPY_LEN: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// A check, and what mends it where it fails.
pub(super) struct Check<M> {
    pub(super) name: &'static str,
    pub(super) run: fn(&mut M, &Scope<'_>) -> Result<Verdict>,
    /// Whether others must answer; then the adapter's own counters may tell what mends it.
    pub(super) crosses_wire: bool,
    pub(super) mends: &'static str,
}

/// What all adapters stand on, in the order in which the checks build on each other.
pub(super) fn of_machine<M: Machine>() -> [Check<M>; 5] {
    [
        Check {
            name: "Windows",
            run: windows,
            crosses_wire: false,
            mends: "Windows Server 2019 or newer; with Secure Boot off: bcdedit /set testsigning on, then restart; \
             or a package that Microsoft signed",
        },
        Check {
            name: "signature",
            run: |machine, scope| signature(machine, scope.asked),
            crosses_wire: false,
            mends: "take image and catalogs of one release, and trust its signer (install does)",
        },
        Check {
            name: "trust",
            run: trust,
            crosses_wire: false,
            mends: "ndkrocev2ctl uninstall, then install; or trust the catalog's signer in Root and TrustedPublisher",
        },
        Check {
            name: "driver store",
            run: staged,
            crosses_wire: false,
            mends: "ndkrocev2ctl uninstall, then install",
        },
        Check {
            name: "protocol",
            run: protocol,
            crosses_wire: false,
            mends: "ndkrocev2ctl uninstall, then install; see C:\\Windows\\inf\\setupapi.dev.log",
        },
    ]
}

/// Those of each adapter, behind them.
pub(super) fn of_adapter<M: Machine>() -> [Check<M>; 7] {
    [
        Check {
            name: "device",
            run: device,
            crosses_wire: false,
            mends: "see the system event log and C:\\Windows\\inf\\setupapi.dev.log",
        },
        Check {
            name: "binding",
            run: binding,
            crosses_wire: false,
            mends: "name the NIC: ndkrocev2ctl uninstall, then install --nic",
        },
        Check {
            name: "link",
            run: link,
            crosses_wire: false,
            mends: "is the NIC up? then Disable-NetAdapterBinding and Enable-NetAdapterBinding -ComponentID ndkrocev2_lower with the NIC's name",
        },
        Check {
            name: "address",
            run: address,
            crosses_wire: true,
            mends: "New-NetIPAddress -InterfaceAlias with the adapter's name, or a DHCP server in its network",
        },
        Check {
            name: "RDMA",
            run: rdma,
            crosses_wire: false,
            mends: "Enable-NetAdapterRdma with the adapter's name, and Set-NetOffloadGlobalSetting -NetworkDirect Enabled",
        },
        Check {
            name: "SMB client",
            run: smb_client,
            crosses_wire: false,
            mends: "an edition with SMB Direct; Enable-WindowsOptionalFeature -Online -FeatureName SmbDirect",
        },
        Check {
            name: "peer",
            run: peer,
            crosses_wire: true,
            mends: "the same network, VLAN and MTU on both sides, and UDP 4791 allowed between them",
        },
    ]
}

/// The last one: SMB chooses the adapter.
pub(super) fn of_smb<M: Machine>() -> [Check<M>; 1] {
    [Check {
        name: "SMB copy",
        run: |machine, scope| smb_copy(machine, scope.asked),
        crosses_wire: false,
        mends: "see the event logs Microsoft-Windows-SMBClient/Connectivity and SMBDirect",
    }]
}

fn package(asked: &Verify) -> Result<PathBuf> {
    asked.package.clone().map_or_else(crate::own_folder, Ok)
}

fn windows(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let host = machine.host()?;
    ensure!(host.build >= 17763, "build {}", host.build);
    if host.test_signing {
        return Ok(Passed(format!("build {}, test signing is on", host.build)));
    }
    let catalog = package(scope.asked)?.join(Inf::Adapter.catalog());
    if !catalog.exists() {
        // The device's problem code tells whether it did.
        return Ok(Passed(format!("build {}, which loads what Microsoft signed", host.build)));
    }
    ensure!(
        machine.signer(&catalog)?.is_microsofts(),
        "build {}, test signing is off, and the package is not signed by Microsoft",
        host.build
    );
    Ok(Passed(format!("build {}, and the package is signed by Microsoft", host.build)))
}

pub(crate) fn signature(machine: &mut impl Machine, asked: &Verify) -> Result<Verdict> {
    let package = package(asked)?;
    let image = package.join(IMAGE);
    if !image.exists() {
        return Ok(Skipped("no package beside this program; --package names one"));
    }
    for inf in Inf::ALL {
        for file in [IMAGE, inf.file()] {
            let catalog = package.join(inf.catalog());
            machine
                .verify_signature(&package.join(file), &catalog)
                .with_context(|| format!("{file} by {}", inf.catalog()))?;
        }
    }
    Ok(Passed("both catalogs vouch for the image and the INFs".into()))
}

fn trust(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let catalog = package(scope.asked)?.join(Inf::Adapter.catalog());
    if !catalog.exists() {
        return Ok(Skipped("no package beside this program; --package names one"));
    }
    let signer = machine.signer(&catalog)?;
    if signer.is_microsofts() {
        return Ok(Passed(format!("{}, whom each Windows trusts", signer.subject)));
    }
    for store in [Store::Root, Store::TrustedPublisher] {
        let own_root = store == Store::TrustedPublisher || signer.is_self_signed();
        let trusts = !own_root || machine.trusts(store, &signer.thumbprint)?;
        ensure!(trusts, "{} {} is not in {store}", signer.subject, signer.thumbprint);
    }
    Ok(Passed(signer.subject))
}

fn staged(machine: &mut impl Machine, _: &Scope<'_>) -> Result<Verdict> {
    // The old package stays until the new one is confirmed.
    let upgrades = Journals::read(machine)?.upgrade.is_some();
    let mut all = Vec::new();
    for inf in Inf::ALL {
        let staged = machine.staged(inf)?;
        let has_both = upgrades && inf == Inf::Adapter && staged.len() == 2;
        ensure!(
            staged.len() == 1 || has_both,
            "{} is there {} times, not once",
            inf.file(),
            staged.len()
        );
        all.extend(staged);
    }
    Ok(Passed(all.join(", ")))
}

fn protocol(machine: &mut impl Machine, _: &Scope<'_>) -> Result<Verdict> {
    ensure!(machine.has_protocol()?, "there is no {LOWER}");
    Ok(Passed(LOWER.into()))
}

fn device(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let device = scope.device;
    let is_there = machine.devices()?.iter().any(|one| one == device);
    ensure!(is_there, "there is no device {device} with the hardware ID {HARDWARE_ID}");
    let problem = machine.problem(device)?;
    ensure!(problem == 0, "problem code {problem}: {}", meaning(problem));
    Ok(Passed(device.into()))
}

fn binding(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let lower =
        machine.keyword(scope.device, LOWER_ADAPTER)?.context("LowerAdapter names no NIC")?;
    let nic = machine.nics()?.into_iter().find(|nic| nic.guid.eq_ignore_ascii_case(&lower));
    let nic = nic.with_context(|| format!("there is no NIC {lower}"))?;
    ensure!(machine.bound(&nic.guid, LOWER)? == Some(true), "{LOWER} is off on '{}'", nic.name);
    ensure!(nic.up, "the NIC '{}' has no link", nic.name);
    Ok(Passed(format!("'{}'", nic.name)))
}

fn vnic(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Vnic> {
    machine.vnic(scope.device)?.context("the adapter does not appear")
}

fn link(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let vnic = vnic(machine, scope)?;
    ensure!(vnic.up, "'{}' has no link", vnic.name);
    let path_mtu = path_mtu(vnic.mtu);
    ensure!(path_mtu >= 1024, "an MTU of {} has no room for a path MTU of 1024", vnic.mtu);
    Ok(Passed(format!("MTU {}, room for a path MTU of {path_mtu}", vnic.mtu)))
}

fn powershell(machine: &mut impl Machine, script: &str) -> Result<String> {
    let arguments = ["-NoProfile", "-NonInteractive", "-Command", script];
    let Said { code, text } = machine.ask("powershell.exe", &arguments)?;
    ensure!(code == 0, "{text}");
    Ok(text)
}

fn address(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let index = vnic(machine, scope)?.index;
    let script = format!(
        "(Get-NetIPAddress -InterfaceIndex {index} -AddressState Preferred).IPAddress -join ' '"
    );
    let found = powershell(machine, &script)?;
    let routed = found.split_whitespace().any(|address| {
        !address.starts_with("169.254.") && !address.to_lowercase().starts_with("fe80:")
    });
    ensure!(routed, "only {found:?}");
    Ok(Passed(found))
}

fn rdma(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let index = vnic(machine, scope)?.index;
    let script = format!(
        "\"$((Get-NetOffloadGlobalSetting).NetworkDirect) \
         $((Get-NetAdapter -InterfaceIndex {index} | Get-NetAdapterRdma).Enabled)\""
    );
    let found = powershell(machine, &script)?;
    ensure!(found == "Enabled True", "NetworkDirect and the adapter's RDMA are {found:?}");
    Ok(Passed("enabled".into()))
}

fn smb_client(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let index = vnic(machine, scope)?.index;
    let script = format!(
        "(Get-SmbClientNetworkInterface | Where-Object InterfaceIndex -eq {index}).RdmaCapable"
    );
    let found = powershell(machine, &script)?;
    ensure!(found.starts_with("True"), "SMB does not take the adapter for RDMA capable: {found:?}");
    Ok(Passed("RDMA capable".into()))
}

fn peer(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Verdict> {
    let Some(peer) = scope.asked.peer else { return Ok(Skipped("--peer names no machine")) };
    let vnic = vnic(machine, scope)?;
    // A RoCE packet of the path MTU, less what ICMP needs: it must pass in one piece.
    let largest = (path_mtu(vnic.mtu) + 40).to_string();
    let address = peer.to_string();
    for len in ["32", &largest] {
        let whole = if peer.is_ipv4() { &["-f"][..] } else { &[] };
        let arguments = [whole, &["-n", "2", "-w", "2000", "-l", len, &address]].concat();
        let said = machine.ask("ping.exe", &arguments)?;
        ensure!(said.code == 0, "{peer} does not answer a ping of {len} bytes");
    }
    Ok(Passed(format!("{peer} answers pings of up to {largest} bytes")))
}

pub(crate) fn smb_copy(machine: &mut impl Machine, asked: &Verify) -> Result<Verdict> {
    let Some(share) = &asked.share else { return Ok(Skipped("--share names no folder")) };
    let name = format!("ndkrocev2-verify-{}.bin", process::id());
    let (local, remote) = (env::temp_dir().join(&name), share.join(&name));
    let copied = copy_both_ways(machine, &local, &remote);
    let _ = (fs::remove_file(local), fs::remove_file(remote));
    copied
}

fn copy_both_ways(machine: &mut impl Machine, local: &Path, remote: &Path) -> Result<Verdict> {
    // No two blocks are alike, and no driver guesses it.
    let words = (0..COPY_LEN as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let sent: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    fs::write(local, &sent).with_context(|| local.display().to_string())?;
    let moved = |machine: &mut _| -> Result<f64> {
        let all = read(machine, "RoCEv2 Adapter")?;
        Ok(sum(&all, "sent_bytes") + sum(&all, "rcvd_bytes"))
    };
    let before = moved(machine)?;
    fs::copy(local, remote).with_context(|| remote.display().to_string())?;
    let received = fs::read(remote)?;
    ensure!(received == sent, "the file came back with other bytes");
    let by_rdma = moved(machine)? - before;
    // The way back may be a cache's.
    ensure!(
        by_rdma >= COPY_LEN as f64,
        "the copy is right, but went over TCP: {by_rdma} bytes of {COPY_LEN} over RDMA"
    );
    Ok(Passed(format!("{} MB and back, over RDMA", COPY_LEN >> 20)))
}
