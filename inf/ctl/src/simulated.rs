//! A machine in memory, which knows what depends on what and notes each rule that is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::machine::{
    Address, Certificate, HARDWARE_ID, Host, Inf, IpSettings, LOWER, LOWER_ADAPTER, LOWER_MODE,
    Machine, Mode, Nic, Route, Said, Stages, Store, TCPIP, Vnic,
};

/// The adapter's interface GUID.
const VNIC: &str = "{00000000-0000-0000-0000-0000000000FF}";
/// The adapter's device.
const DEVICE: &str = r"ROOT\NET\0000";

/// A NIC with all that is bound to it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wired {
    pub(crate) nic: Nic,
    pub(crate) bound: BTreeSet<String>,
    pub(crate) settings: IpSettings,
}

/// The device of the adapter.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) driver: bool,
    pub(crate) keywords: BTreeMap<String, String>,
    /// The keywords as they were when it last started.
    pub(crate) running: BTreeMap<String, String>,
    pub(crate) name: String,
    pub(crate) settings: IpSettings,
}

/// All that an installation changes, and what it depends on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) host: Host,
    pub(crate) nics: Vec<Wired>,
    /// Whether the adapter gets a link on its NIC at all.
    pub(crate) link_comes: bool,
    pub(crate) trust: BTreeSet<(Store, String)>,
    pub(crate) staged: BTreeMap<String, Inf>,
    pub(crate) protocol: bool,
    pub(crate) device: Option<Device>,
    pub(crate) counters: bool,
    pub(crate) tool: bool,
    pub(crate) journal: Option<String>,
    pub(crate) flight: Option<String>,
    pub(crate) task_s: Option<u64>,
    /// The operation by which Windows was asked for a restart.
    pub(crate) awaits_restart: Option<String>,
}

/// The settings of somebody who has made each kind.
pub(crate) fn static_settings() -> IpSettings {
    let ip = |text: &str| text.parse().expect("an address");
    let address = |text, prefix| Address { ip: ip(text), prefix };
    IpSettings {
        addresses: vec![
            address("192.0.2.7", 24),
            address("192.0.2.8", 24),
            address("2001:db8::7", 64),
        ],
        routes: vec![Route {
            destination: ip("0.0.0.0"),
            prefix: 0,
            next_hop: ip("192.0.2.1"),
            metric: 5,
        }],
        dns: vec![ip("192.0.2.53"), ip("2001:db8::53")],
        suffix: Some("example.org".into()),
        metric_v4: Some(20),
        metric_v6: None,
    }
}

impl State {
    /// A server with two NICs, `Ethernet` with these settings and `Other`.
    pub(crate) fn sample(settings: IpSettings) -> Self {
        let wired = |number: u8, name: &str, settings| Wired {
            nic: Nic {
                guid: format!("{{00000000-0000-0000-0000-0000000000{number:02X}}}"),
                name: name.into(),
                ethernet: true,
                up: true,
                mtu: 1500,
                speed_bps: 10_000_000_000,
            },
            bound: TCPIP.iter().map(|component| component.to_string()).collect(),
            settings,
        };
        Self {
            host: Host {
                machine: 0x8664,
                build: 20348,
                elevated: true,
                test_signing: true,
                workstation: false,
            },
            nics: vec![wired(1, "Ethernet", settings), wired(2, "Other", IpSettings::default())],
            link_comes: true,
            trust: BTreeSet::new(),
            staged: BTreeMap::new(),
            protocol: false,
            device: None,
            counters: false,
            tool: false,
            journal: None,
            flight: None,
            task_s: None,
            awaits_restart: None,
        }
    }
}

/// The machine, and the rules that were broken on it.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) state: State,
    pub(crate) broken: Vec<String>,
    /// Answers of programs, by words of their command; the first that fits.
    pub(crate) answers: Vec<(&'static str, Said)>,
    pub(crate) problem: u32,
    /// The answer of the control device.
    pub(crate) snapshot: Option<Vec<u8>>,
    pub(crate) stages: Stages,
    /// Operations by which Windows is asked for a restart; no link comes before that.
    pub(crate) asks_restart: Vec<&'static str>,
}

impl Simulated {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state,
            broken: Vec::new(),
            answers: Vec::new(),
            problem: 0,
            snapshot: None,
            stages: Stages::default(),
            asks_restart: Vec::new(),
        }
    }

    /// Whatever waited for it is so then. The scheduled task runs the program's `rollback`: that is the caller's.
    #[cfg(test)]
    pub(crate) fn start_windows(&mut self) {
        self.state.awaits_restart = None;
        self.asks_restart.clear();
        if let Some(device) = &mut self.state.device {
            device.running = device.keywords.clone();
        }
    }

    fn may_ask_restart(&mut self, operation: &'static str) {
        if self.asks_restart.contains(&operation) {
            self.state.awaits_restart = Some(operation.into());
        }
    }

    fn wired(&mut self, guid: &str) -> Result<&mut Wired> {
        let mut nics = self.state.nics.iter_mut();
        nics.find(|wired| wired.nic.guid == guid).with_context(|| format!("no NIC {guid}"))
    }

    fn device(&mut self) -> Result<&mut Device> {
        self.state.device.as_mut().filter(|device| device.driver).context("no adapter")
    }

    /// The NIC that the adapter runs on, where its link is up, and the mode that it runs in.
    fn lower(&self) -> Option<(&Wired, Mode)> {
        let running = &self.state.device.as_ref()?.running;
        let guid = running.get(LOWER_ADAPTER)?;
        let wired = self.state.nics.iter().find(|wired| wired.nic.guid == *guid)?;
        let has_link = self.state.link_comes
            && self.state.awaits_restart.is_none()
            && self.state.protocol
            && wired.bound.contains(LOWER);
        let inherits = running.get(LOWER_MODE).map(String::as_str) == Some(Mode::Inherit.keyword());
        has_link.then_some((wired, if inherits { Mode::Inherit } else { Mode::Own }))
    }

    fn check_owners(&mut self) {
        let two = self.lower().is_some_and(|(wired, mode)| {
            mode == Mode::Inherit && TCPIP.iter().any(|tcpip| wired.bound.contains(*tcpip))
        });
        if two {
            self.broken.push("an address has two owners".into());
        }
    }

    fn published(&self, inf: Inf) -> Vec<String> {
        let staged = self.state.staged.iter().filter(|(_, staged)| **staged == inf);
        staged.map(|(published, _)| published.clone()).collect()
    }
}

impl Machine for Simulated {
    fn host(&mut self) -> Result<Host> {
        Ok(self.state.host.clone())
    }

    fn nics(&mut self) -> Result<Vec<Nic>> {
        Ok(self.state.nics.iter().map(|wired| wired.nic.clone()).collect())
    }

    fn bound(&mut self, nic: &str, component: &str) -> Result<Option<bool>> {
        if component == LOWER && !self.state.protocol {
            return Ok(None);
        }
        Ok(Some(self.wired(nic)?.bound.contains(component)))
    }

    fn ip_settings(&mut self, adapter: &str) -> Result<IpSettings> {
        if adapter == VNIC {
            return Ok(self.device()?.settings.clone());
        }
        Ok(self.wired(adapter)?.settings.clone())
    }

    fn signer(&mut self, catalog: &Path) -> Result<Certificate> {
        let text = std::fs::read_to_string(catalog)?;
        let (subject, issuer) = text.split_once('/').context("no signature")?;
        let thumbprint = format!("{:0>40}", subject.to_uppercase());
        Ok(Certificate {
            thumbprint,
            subject: subject.into(),
            issuer: issuer.into(),
            der: Vec::new(),
        })
    }

    fn trusts(&mut self, store: Store, thumbprint: &str) -> Result<bool> {
        Ok(self.state.trust.contains(&(store, thumbprint.into())))
    }

    fn staged(&mut self, inf: Inf) -> Result<Vec<String>> {
        Ok(self.published(inf))
    }

    fn has_protocol(&mut self) -> Result<bool> {
        Ok(self.state.protocol)
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        Ok(self.state.device.iter().map(|_| DEVICE.into()).collect())
    }

    fn vnic(&mut self) -> Result<Option<Vnic>> {
        let lower = self.lower().map(|(wired, _)| wired.nic.clone());
        let Ok(device) = self.device() else { return Ok(None) };
        Ok(Some(Vnic {
            guid: VNIC.into(),
            index: 99,
            name: device.name.clone(),
            up: lower.is_some(),
            mtu: 1500,
            speed_bps: lower.map_or(0, |nic| nic.speed_bps),
            mac: [2, 0, 0, 0, 0, 1],
        }))
    }

    fn keyword(&mut self, name: &str) -> Result<Option<String>> {
        Ok(self.device()?.keywords.get(name).cloned())
    }

    fn snapshot(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.snapshot.clone())
    }

    fn stages(&mut self) -> Result<Stages> {
        Ok(self.stages.clone())
    }

    fn journal(&mut self) -> Result<Option<String>> {
        Ok(self.state.journal.clone())
    }

    fn flight(&mut self) -> Result<Option<String>> {
        Ok(self.state.flight.clone())
    }

    fn ask(&mut self, program: &str, arguments: &[&str]) -> Result<Said> {
        let command = format!("{program} {}", arguments.join(" "));
        let fits = |(words, _): &&(&str, Said)| command.contains(words);
        let answer = self.answers.iter().find(fits).map(|(_, said)| said.clone());
        answer.with_context(|| format!("{program} does not start"))
    }

    fn problem(&mut self, _: &str) -> Result<u32> {
        Ok(self.problem)
    }

    fn verify_signature(&mut self, _: &Path, catalog: &Path) -> Result<()> {
        let signer = self.signer(catalog)?;
        let trusts = signer.is_microsofts() || self.trusts(Store::Root, &signer.thumbprint)?;
        ensure!(trusts, "the signer is not trusted");
        Ok(())
    }

    fn awaits_restart(&mut self) -> Result<Option<String>> {
        Ok(self.state.awaits_restart.clone())
    }

    fn pause_s(&mut self, _: u64) {}

    fn set_journal(&mut self, text: Option<&str>) -> Result<()> {
        self.state.journal = text.map(Into::into);
        Ok(())
    }

    fn set_flight(&mut self, text: Option<&str>) -> Result<()> {
        self.state.flight = text.map(Into::into);
        Ok(())
    }

    fn schedule_rollback(&mut self, within_s: u64) -> Result<()> {
        ensure!(self.state.tool, "there is no program to run");
        self.state.task_s = Some(within_s);
        Ok(())
    }

    fn cancel_rollback(&mut self) -> Result<()> {
        self.state.task_s = None;
        Ok(())
    }

    fn keep_tool(&mut self) -> Result<()> {
        self.state.tool = true;
        Ok(())
    }

    fn remove_tool(&mut self) -> Result<()> {
        if self.state.task_s.is_some() {
            self.broken.push("the rollback has no program".into());
        }
        self.state.tool = false;
        Ok(())
    }

    fn trust(&mut self, store: Store, certificate: &Certificate) -> Result<()> {
        self.state.trust.insert((store, certificate.thumbprint.clone()));
        Ok(())
    }

    fn distrust(&mut self, store: Store, thumbprint: &str) -> Result<()> {
        self.state.trust.remove(&(store, thumbprint.into()));
        Ok(())
    }

    fn stage(&mut self, inf: &Path) -> Result<()> {
        let mut trust = self.state.trust.iter();
        let trusts = trust.any(|(store, _)| *store == Store::TrustedPublisher)
            || self.signer(&inf.with_extension("cat"))?.is_microsofts();
        ensure!(trusts, "0x800B0109");
        let inf = Inf::ALL.into_iter().find(|one| inf.ends_with(one.file())).context("no INF")?;
        let free = (0..).map(|n| format!("oem{n}.inf"));
        let name = free.into_iter().find(|name| !self.state.staged.contains_key(name));
        self.state.staged.insert(name.context("no name")?, inf);
        Ok(())
    }

    fn unstage(&mut self, published: &str) -> Result<()> {
        let Some(inf) = self.state.staged.get(published) else { return Ok(()) };
        let used = match inf {
            Inf::Adapter => self.state.device.as_ref().is_some_and(|device| device.driver),
            Inf::Lower => self.state.protocol,
        };
        ensure!(!used, "{published} is in use");
        self.state.staged.remove(published);
        Ok(())
    }

    fn install_protocol(&mut self) -> Result<()> {
        ensure!(!self.published(Inf::Lower).is_empty(), "no INF has {LOWER}");
        self.state.protocol = true;
        for wired in &mut self.state.nics {
            wired.bound.insert(LOWER.into());
        }
        self.may_ask_restart("install_protocol");
        Ok(())
    }

    fn remove_protocol(&mut self) -> Result<()> {
        if self.state.device.is_some() {
            self.broken.push("the service goes before its device".into());
        }
        self.state.protocol = false;
        for wired in &mut self.state.nics {
            wired.bound.remove(LOWER);
        }
        self.may_ask_restart("remove_protocol");
        Ok(())
    }

    fn create_device(&mut self) -> Result<()> {
        ensure!(self.state.device.is_none(), "there would be two {HARDWARE_ID}");
        self.state.device = Some(Device::default());
        Ok(())
    }

    fn remove_device(&mut self, _: &str) -> Result<()> {
        self.state.device = None;
        Ok(())
    }

    fn install_driver(&mut self, _: &Path) -> Result<()> {
        ensure!(!self.published(Inf::Adapter).is_empty(), "no INF has {HARDWARE_ID}");
        let device = self.state.device.as_mut().context("no device")?;
        device.driver = true;
        device.name = "Ethernet 9".into();
        self.may_ask_restart("install_driver");
        Ok(())
    }

    fn register_counters(&mut self, _: &Path) -> Result<()> {
        self.state.counters = true;
        Ok(())
    }

    fn unregister_counters(&mut self) -> Result<()> {
        self.state.counters = false;
        Ok(())
    }

    fn set_keyword(&mut self, name: &str, value: &str) -> Result<()> {
        self.device()?.keywords.insert(name.into(), value.into());
        Ok(())
    }

    fn rename(&mut self, name: &str) -> Result<()> {
        self.device()?.name = name.into();
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        let device = self.device()?;
        device.running = device.keywords.clone();
        self.check_owners();
        Ok(())
    }

    fn bind(&mut self, nic: &str, component: &str) -> Result<()> {
        if component == LOWER && !self.state.protocol {
            bail!("there is no {LOWER}");
        }
        self.wired(nic)?.bound.insert(component.into());
        self.check_owners();
        self.may_ask_restart("bind");
        Ok(())
    }

    fn unbind(&mut self, nic: &str, component: &str) -> Result<()> {
        let has_link = self.lower().is_some_and(|(wired, _)| wired.nic.guid == nic);
        if self.wired(nic)?.bound.remove(component) && component != LOWER {
            // Windows may keep them; whoever counts on it may lose them.
            self.wired(nic)?.settings = IpSettings::default();
            if !has_link {
                self.broken.push("TCP/IP is unbound before a link is seen".into());
            }
        }
        Ok(())
    }

    fn add_ip_settings(&mut self, adapter: &str, settings: &IpSettings) -> Result<()> {
        let to = if adapter == VNIC {
            &mut self.device()?.settings
        } else {
            &mut self.wired(adapter)?.settings
        };
        let IpSettings { addresses, routes, dns, suffix, metric_v4, metric_v6 } = settings.clone();
        to.addresses.extend(addresses);
        to.routes.extend(routes);
        to.dns.extend(dns);
        to.suffix = suffix.or(to.suffix.take());
        to.metric_v4 = metric_v4.or(to.metric_v4);
        to.metric_v6 = metric_v6.or(to.metric_v6);
        Ok(())
    }
}
