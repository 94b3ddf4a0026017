//! What each stage looks at.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::lines::End;
use super::nics::Maker;
use super::scene::{NAMES, Scene, failed};
use super::{Stage, consumer, exports, nics};
use crate::flight::{device_without_nic, load_and_unload, vnic};
use crate::machine::{IMAGE, IpSettings, LOWER_MODE, Machine, Mode, Nic, TCPIP};
use crate::run::confirm;
use crate::step::{Step, see_link};
use crate::upgrade::{Upgraded, installed_instead, upgrade};
use crate::verify::{Outcome, Verdict, Verify, failures, smb_copy};

type Course = Result<(), End>;

/// How often a storm disables and enables.
const STORM: usize = 20;
/// Windows tells an adapter of its NIC's end well within this.
const GONE_S: u64 = 30;
const SHARE: &str = "ndkrocev2-flight";

pub(super) fn fly<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    match scene.asked.stage {
        Stage::Imports => imports(scene),
        Stage::Load => load(scene),
        Stage::Device => device(scene),
        Stage::Bind => bind(scene),
        Stage::Loopback => loopback(scene),
        Stage::TwoAdapters => two_adapters(scene),
        Stage::Storm => storm(scene),
        Stage::SurpriseRemoval => surprise_removal(scene),
        Stage::Own => mode(scene, Mode::Own),
        Stage::Inherit => mode(scene, Mode::Inherit),
        Stage::Share => mode(scene, Mode::Share),
        Stage::Rping => rping(scene),
        Stage::Consumer => own_consumer(scene),
        Stage::Smb => smb(scene),
        Stage::Upgrade => upgraded(scene),
        Stage::Uninstall => uninstalled(scene),
    }
}

fn imports<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    let asked = scene.asked;
    let system = asked.system.as_deref();
    let image = asked.package().map(|package| package.join(IMAGE));
    scene.check("imports", |_| exports::judge(&image?, system))?;
    let consumer = asked.package().map_err(failed)?.join(consumer::FILE);
    if !consumer.exists() {
        return Ok(());
    }
    scene.check("imports of ndkflight.sys", |_| exports::judge(&consumer, system))
}

fn load<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    scene.install_before(|step| matches!(step, Step::CreateDevice))?;
    scene.check("load and unload", load_and_unload)
}

fn device<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    scene.install_before(|step| matches!(step, Step::PointAt { .. }))?;
    let device = scene.device(0)?;
    scene.check("device", |machine| device_without_nic(machine, &device))
}

/// The link is the last step's.
fn bind<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    scene.install(0, Mode::Own)?;
    let device = scene.device(0)?;
    scene.check("link", |machine| {
        let vnic = vnic(machine, &device)?;
        ensure!(vnic.up, "'{}' has no link", vnic.name);
        Ok(Verdict::Passed(format!("{} Mb/s, MTU {}", vnic.speed_bps / 1_000_000, vnic.mtu)))
    })
}

fn loopback<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    scene.install(0, Mode::Own)?;
    scene.move_bytes(0, 0)
}

fn two_adapters<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    both(scene)?;
    scene.move_bytes(0, 1)?;
    scene.move_bytes(1, 0)
}

fn both<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    scene.install(0, Mode::Own)?;
    scene.install(1, Mode::Own)
}

fn storm<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    scene.install(0, Mode::Own)?;
    let (device, nic) = (scene.device(0)?, scene.nics[0].clone());
    scene.check("the adapter", |machine| {
        for _ in 0..STORM {
            machine.restart(&device)?;
            see_link(machine, &device)?;
        }
        Ok(Verdict::Passed(format!("started {STORM} times")))
    })?;
    scene.check("its NIC", |machine| {
        for _ in 0..STORM {
            nics::set_enabled(machine, &nic, false)?;
            see_no_link(machine, &device)?;
            nics::set_enabled(machine, &nic, true)?;
            see_link(machine, &device)?;
        }
        Ok(Verdict::Passed(format!("enabled {STORM} times")))
    })?;
    // RDMA after it, where a consumer is here.
    scene.fly_consumer(0, 0)?;
    scene.rping(0, 0).map(|_| ())
}

fn see_no_link(machine: &mut impl Machine, device: &str) -> Result<()> {
    for _ in 0..GONE_S {
        if !vnic(machine, device)?.up {
            return Ok(());
        }
        machine.pause_s(1);
    }
    bail!("the adapter has a link {GONE_S} s after its NIC's end")
}

fn surprise_removal<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    if let Some(Maker::Given(_)) = scene.maker {
        return Err(End::Skipped("--nics: nobody can take such a NIC away".into()));
    }
    both(scene)?;
    let (device, maker) = (scene.device(1)?, scene.maker.clone());
    scene.gone.push(scene.nics[1].name.clone());
    scene.check("removal", |machine| {
        maker.context("nobody made the NIC")?.remove_second(machine)?;
        see_no_link(machine, &device)?;
        let problem = machine.problem(&device)?;
        ensure!(problem == 0, "problem code {problem}");
        Ok(Verdict::Passed("the adapter stays, without a link".into()))
    })?;
    let other = scene.device(0)?;
    scene.check("the other adapter", |machine| {
        see_link(machine, &other)?;
        Ok(Verdict::Passed("keeps its link".into()))
    })
}

/// Of the NIC: whether TCP/IP is bound, and what somebody has set.
fn beside(machine: &mut impl Machine, nic: &Nic) -> Result<(bool, IpSettings)> {
    let is_bound = machine.bound(&nic.guid, TCPIP[0])? == Some(true);
    Ok((is_bound, machine.ip_settings(&nic.guid)?))
}

fn mode<M: Machine>(scene: &mut Scene<'_, M>, mode: Mode) -> Course {
    let nic = scene.nics[0].clone();
    let before = beside(scene.machine, &nic).map_err(failed)?;
    scene.install(0, mode)?;
    let device = scene.device(0)?;
    scene.check("mode", |machine| {
        let keyword = machine.keyword(&device, LOWER_MODE)?;
        ensure!(keyword.as_deref() == Some(mode.keyword()), "LowerMode is {keyword:?}");
        Ok(Verdict::Passed(format!("{mode:?}")))
    })?;
    scene.check("the NIC", |machine| match mode {
        Mode::Own | Mode::Share => {
            ensure!(beside(machine, &nic)? == before, "its TCP/IP is another than before");
            Ok(Verdict::Passed("is left alone".into()))
        }
        Mode::Inherit => {
            let (is_bound, _) = beside(machine, &nic)?;
            ensure!(!is_bound, "TCP/IP is still bound to it");
            let guid = vnic(machine, &device)?.guid;
            let moved = machine.ip_settings(&guid)?;
            ensure!(moved == before.1, "its settings have not moved: {moved:?}");
            Ok(Verdict::Passed("its settings are the adapter's".into()))
        }
    })?;
    let package = scene.asked.package();
    scene.check("verify", |machine| {
        let asked = Verify { package: Some(package?), ..Verify::default() };
        let failed = failures(machine, &asked)?;
        ensure!(failed.is_empty(), "{}", failed.join("; "));
        Ok(Verdict::Passed("all checks".into()))
    })?;
    scene.fly_consumer(0, 0)?;
    scene.rping(0, 0).map(|_| ())
}

fn rping<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    both(scene)?;
    match scene.rping(0, 1)? {
        Outcome::Passed => Ok(()),
        Outcome::Skipped | Outcome::Failed => {
            Err(End::Skipped("this Windows has neither NdkPerfCmd nor NDKPing".into()))
        }
    }
}

fn own_consumer<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    both(scene)?;
    for (client, server) in [(0, 0), (0, 1)] {
        if scene.fly_consumer(client, server)? != Outcome::Passed {
            return Err(End::Skipped("the package has no ndkflight.sys".into()));
        }
    }
    Ok(())
}

/// The client is on the first adapter, the share on the second one's address.
fn smb<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    both(scene)?;
    let asked = scene.asked;
    let folder = asked.out.join("share");
    let made = asked.share.is_none();
    if made {
        scene.check("share", |machine| {
            std::fs::create_dir_all(&folder)?;
            let path = std::path::absolute(&folder)?.display().to_string();
            let script = format!(
                "$everyone = (New-Object Security.Principal.SecurityIdentifier 'S-1-1-0').Translate([Security.Principal.NTAccount]).Value; \
                 New-SmbShare -Name {SHARE} -Path '{path}' -FullAccess $everyone -ErrorAction Stop"
            );
            nics::succeed(machine, "powershell.exe", &script)?;
            Ok(Verdict::Passed(SHARE.into()))
        })?;
    }
    let share = asked.share.clone().unwrap_or_else(|| format!(r"\\192.168.79.2\{SHARE}").into());
    let copied = scene.check("copy", |machine| {
        smb_copy(machine, &Verify { share: Some(share), ..Verify::default() })
    });
    if made {
        let script = format!("Remove-SmbShare -Name {SHARE} -Force");
        let _ = nics::succeed(scene.machine, "powershell.exe", &script);
    }
    copied?;
    scene.lines.saw_rdma();
    Ok(())
}

/// Long enough for an exchange of the package.
const CONFIRM_WITHIN: Duration = Duration::from_secs(600);

fn upgraded<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    let Some(newer) = &scene.asked.newer else {
        return Err(End::Skipped("--newer names no other build".into()));
    };
    let newer = crate::package_folder(Some(newer)).map_err(failed)?;
    scene.install(0, Mode::Own)?;
    let device = scene.device(0)?;
    scene.check("upgrade", |machine| {
        let guid = vnic(machine, &device)?.guid;
        let before = machine.ip_settings(&guid)?;
        let done = upgrade(machine, &newer, CONFIRM_WITHIN.as_secs(), &mut |_| {})?;
        ensure!(done == Upgraded::Now, "{done:?}");
        confirm(machine, None)?;
        ensure!(installed_instead(machine, &newer)?.is_none(), "the old build is still installed");
        let after = vnic(machine, &device)?;
        ensure!(after.name == NAMES[0], "it is called '{}' now", after.name);
        ensure!(machine.ip_settings(&after.guid)? == before, "its settings are others");
        Ok(Verdict::Passed("the adapter kept its name and settings".into()))
    })
}

fn uninstalled<M: Machine>(scene: &mut Scene<'_, M>) -> Course {
    for _ in 0..2 {
        scene.install(0, Mode::Own)?;
        scene.uninstall()?;
        scene.as_before()?;
    }
    Ok(())
}
