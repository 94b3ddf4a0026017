//! The plan: from the request and the machine to the steps. It changes nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::journal::Journals;
use crate::machine::{
    COUNTERS, Certificate, IMAGE, Inf, IpSettings, Machine, Mode, Nic, Store, TCPIP,
};
use crate::step::Step;
use crate::upgrade::installed_instead;

/// Windows Server 2019.
const OLDEST_BUILD: u32 = 17763;
/// An installation takes less; one that takes longer has stopped for good.
pub(crate) const INSTALLATION_S: u64 = 600;

/// The administrator's wish.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// By the name that the network connections show.
    pub(crate) nic: String,
    pub(crate) mode: Mode,
    pub(crate) package: PathBuf,
    pub(crate) name: String,
    /// In the modes Own and Share.
    pub(crate) settings: IpSettings,
    /// `None`: nothing rolls back by itself.
    pub(crate) confirm_within_s: Option<u64>,
}

/// The steps, in their order, and what the administrator should know before.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The instance ID of the device that will be created.
    pub(crate) device: String,
    pub(crate) nic: Nic,
    pub(crate) steps: Vec<Step>,
    pub(crate) warnings: Vec<String>,
}

/// `journals` are those of the adapters that are there already.
pub(crate) fn plan(
    machine: &mut impl Machine,
    journals: &Journals,
    request: &Request,
) -> Result<Plan> {
    let mut warnings = Vec::new();
    suits(machine)?;
    is_known(machine, journals)?;
    let signer = package_signer(machine, &request.package)?;
    warn_of_host(machine, &signer, &mut warnings)?;
    is_same_build(machine, journals, &request.package)?;
    let nic = find_nic(machine, request)?;
    is_free(journals, &nic)?;
    let own = machine.ip_settings(&nic.guid)?.addresses;
    if let Some(twice) =
        request.settings.addresses.iter().find(|new| own.iter().any(|own| own.ip == new.ip))
    {
        bail!("'{}' itself has {}: name a free address of its network", nic.name, twice.ip);
    }
    if !nic.up {
        bail!("'{}' has no link, and so the adapter would have none", nic.name);
    }
    let mut steps = vec![Step::KeepTool];
    if let Some(within_s) = request.confirm_within_s {
        steps.push(Step::ScheduleRollback { within_s: within_s + INSTALLATION_S });
    }
    steps.extend(trust(machine, &signer, &mut warnings, |step| is_known_to(journals, step))?);
    // The lower edge first: the device starts with its NIC at hand, and goes before the service does.
    steps.extend([
        Step::Stage(Inf::Adapter),
        Step::Stage(Inf::Lower),
        Step::InstallProtocol,
        Step::RegisterCounters,
        Step::BindLower { nic: nic.guid.clone() },
        Step::CreateDevice,
        Step::InstallDriver,
        Step::Rename(request.name.clone()),
        Step::PointAt { nic: nic.guid.clone(), mode: first_mode(request.mode) },
        Step::SeeLink,
    ]);
    match request.mode {
        Mode::Own if request.settings == IpSettings::default() => {}
        Mode::Own => steps.push(Step::SetIp(request.settings.clone())),
        Mode::Share => steps.push(Step::SetIp(own_addresses(request)?)),
        Mode::Inherit => steps.extend(take_place(machine, &nic, request)?),
    }
    steps.extend(request.confirm_within_s.map(|within_s| Step::StartClock { within_s }));
    Ok(Plan { device: free_device(machine)?, nic, steps, warnings })
}

/// The mode in which the link is seen: nothing of the NIC is disturbed before.
fn first_mode(mode: Mode) -> Mode {
    match mode {
        Mode::Own | Mode::Inherit => Mode::Own,
        Mode::Share => Mode::Share,
    }
}

/// A DHCP server knows an interface by its MAC address, which is the NIC's: it would offer what the NIC has.
fn own_addresses(request: &Request) -> Result<IpSettings> {
    ensure!(
        !request.settings.addresses.is_empty(),
        "in Share mode the adapter needs an address: give it one by --address"
    );
    Ok(request.settings.clone())
}

/// Chosen before it is created, so that a device whose creation nobody could note is known again.
fn free_device(machine: &mut impl Machine) -> Result<String> {
    let taken = machine.devices()?;
    let names = (0..).map(|number| format!(r"ROOT\NDKROCEV2\{number:04}"));
    let mut free = names.filter(|name| !taken.iter().any(|one| one.eq_ignore_ascii_case(name)));
    free.next().context("there are too many devices")
}

/// All adapters have one driver.
fn is_same_build(machine: &mut impl Machine, journals: &Journals, package: &Path) -> Result<()> {
    if journals.adapters.is_empty() {
        return Ok(());
    }
    match installed_instead(machine, package)? {
        Some(installed) => bail!(
            "the other adapters are of another build ({installed}): run `ndkrocev2ctl upgrade` first"
        ),
        None => Ok(()),
    }
}

/// A NIC carries one adapter, as the driver binds it.
fn is_free(journals: &Journals, nic: &Nic) -> Result<()> {
    let other = journals.adapters.iter().find(|journal| journal.nic() == Some(&nic.guid));
    if let Some(other) = other {
        bail!("'{}' carries the adapter '{}' already", nic.name, other.request.name);
    }
    Ok(())
}

pub(crate) fn suits(machine: &mut impl Machine) -> Result<()> {
    let host = machine.host()?;
    ensure!(host.elevated, "this needs the rights of an administrator");
    ensure!(
        host.build >= OLDEST_BUILD,
        "Windows Server 2019 (build {OLDEST_BUILD}) or newer is needed, not {}",
        host.build
    );
    Ok(())
}

fn warn_of_host(
    machine: &mut impl Machine,
    signer: &Certificate,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let host = machine.host()?;
    if !host.test_signing && !signer.is_microsofts() {
        warnings.push(
            "test signing is off: Windows will refuse a test-signed driver \
             (bcdedit /set testsigning on, with Secure Boot off, then restart)"
                .into(),
        );
    }
    if host.workstation {
        warnings.push(
            "SMB Direct exists on Server, Enterprise, Education and Pro for Workstations only"
                .into(),
        );
    }
    Ok(())
}

/// Without a journal nobody knows how earlier parts came here.
fn is_known(machine: &mut impl Machine, journals: &Journals) -> Result<()> {
    if let Some(other) = journals.adapters.iter().find(|journal| !journal.is_complete()) {
        bail!(
            "the installation of '{}' is not finished: end it by the same command, or uninstall it first",
            other.request.name
        );
    }
    ensure!(
        journals.upgrade.is_none(),
        "an upgrade is not finished: `ndkrocev2ctl confirm` or `rollback` ends it"
    );
    let mut parts = machine.devices()?;
    parts.retain(|device| journals.adapters.iter().all(|journal| journal.device != *device));
    if journals.adapters.is_empty() {
        for inf in Inf::ALL {
            parts.extend(machine.staged(inf)?);
        }
        if machine.has_protocol()? {
            parts.push(crate::machine::LOWER.into());
        }
    }
    ensure!(
        parts.is_empty(),
        "parts of an earlier installation are there ({}): run `ndkrocev2ctl uninstall` first",
        parts.join(", ")
    );
    Ok(())
}

/// Both catalogs have one signer, or they are not of one build.
pub(crate) fn package_signer(machine: &mut impl Machine, package: &Path) -> Result<Certificate> {
    let files = Inf::ALL.iter().flat_map(|inf| [inf.file(), inf.catalog()]);
    for file in files.chain([IMAGE, COUNTERS]) {
        let file = package.join(file);
        ensure!(file.is_file(), "the package lacks {}", file.display());
    }
    let [adapter, lower] = Inf::ALL.map(|inf| {
        let catalog = package.join(inf.catalog());
        machine.signer(&catalog).with_context(|| format!("{} is not signed", catalog.display()))
    });
    let (adapter, lower) = (adapter?, lower?);
    ensure!(adapter == lower, "the two catalogs have different signers: they are not of one build");
    Ok(adapter)
}

fn find_nic(machine: &mut impl Machine, request: &Request) -> Result<Nic> {
    let nics = machine.nics()?;
    let names = nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
    let taken = nics.iter().any(|nic| nic.name.eq_ignore_ascii_case(&request.name));
    ensure!(!taken, "an adapter has the name '{}': give another --name", request.name);
    let asked = |nic: &Nic| nic.name.eq_ignore_ascii_case(&request.nic) || nic.guid == request.nic;
    let Some(nic) = nics.into_iter().find(asked) else {
        bail!("there is no network adapter '{}'; there are: {names}", request.nic);
    };
    ensure!(nic.ethernet, "'{}' is not Ethernet", nic.name);
    ensure!(
        machine.bound(&nic.guid, "vms_pp")? != Some(true),
        "'{}' belongs to a Hyper-V switch: name its vEthernet adapter or another NIC",
        nic.name
    );
    Ok(nic)
}

/// What another adapter brought stays for this one, too.
fn is_known_to(journals: &Journals, step: &Step) -> bool {
    journals.adapters.iter().flat_map(|journal| &journal.entries).any(|entry| entry.step == *step)
}

/// The steps that trust the signer where nobody has given it that yet, and those that `is_ours` says to be of before.
pub(crate) fn trust(
    machine: &mut impl Machine,
    signer: &Certificate,
    warnings: &mut Vec<String>,
    is_ours: impl Fn(&Step) -> bool,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    if signer.is_microsofts() {
        return Ok(steps);
    }
    for store in [Store::Root, Store::TrustedPublisher] {
        if store == Store::Root && !signer.is_self_signed() {
            warnings.push(format!("trust for '{}' is left to the administrator", signer.issuer));
            continue;
        }
        let step = Step::Trust { store, certificate: signer.clone() };
        if is_ours(&step) || !machine.trusts(store, &signer.thumbprint)? {
            steps.push(step);
        }
    }
    Ok(steps)
}

/// One address cannot have two owners: the NIC's own TCP/IP is silent before the adapter has its address.
fn take_place(machine: &mut impl Machine, nic: &Nic, request: &Request) -> Result<Vec<Step>> {
    ensure!(
        request.settings == IpSettings::default(),
        "in Inherit mode the adapter gets the NIC's settings, and no others"
    );
    let settings = machine.ip_settings(&nic.guid)?;
    let mut steps = vec![Step::RememberIp { nic: nic.guid.clone(), settings: settings.clone() }];
    for component in TCPIP {
        if machine.bound(&nic.guid, component)? == Some(true) {
            steps.push(Step::Unbind { nic: nic.guid.clone(), component: component.into() });
        }
    }
    steps.extend([Step::TakePlace, Step::SeeLink, Step::SetIp(settings)]);
    Ok(steps)
}
