//! The simulated machine's operations.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Device, Mistake, Simulated, Staged, number, vnic_guid};
use crate::machine::{
    Certificate, HARDWARE_ID, Host, Inf, IpSettings, LOWER, Machine, Nic, Said, Stages, Store,
    TCPIP, Vnic,
};

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
        Ok(self.settings(adapter)?.clone())
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
        Ok(self.staged_names(inf))
    }

    fn published(&mut self, published: &str) -> Result<Vec<u8>> {
        let staged = self.state.staged.get(published).with_context(|| published.to_string())?;
        Ok(staged.text.clone().into_bytes())
    }

    fn has_protocol(&mut self) -> Result<bool> {
        Ok(self.state.protocol)
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        Ok(self.state.devices.keys().cloned().collect())
    }

    fn vnic(&mut self, device: &str) -> Result<Option<Vnic>> {
        let (id, lower) = (device, self.lower(device).map(|(wired, _)| wired.nic.clone()));
        let (number, traffic) = (number(id), self.traffic);
        let always_up = self.mistakes.contains(&Mistake::LinkWithoutNic);
        let Ok(device) = self.device(id) else { return Ok(None) };
        Ok(Some(Vnic {
            guid: vnic_guid(id),
            index: 99 + u32::from(number),
            name: device.name.clone(),
            up: lower.is_some() || always_up,
            mtu: 1500,
            speed_bps: lower.map_or(0, |nic| nic.speed_bps),
            mac: [2, 0, 0, 0, 0, 1 + number],
            traffic,
        }))
    }

    fn keyword(&mut self, device: &str, name: &str) -> Result<Option<String>> {
        Ok(self.device(device)?.keywords.get(name).cloned())
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
        if let Some(said) = self.run(program, arguments) {
            return Ok(said);
        }
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

    fn is_marked(&mut self) -> Result<bool> {
        Ok(self.marked)
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

    fn mark(&mut self) -> Result<()> {
        self.marked = true;
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
        let text = std::fs::read_to_string(inf)?;
        let inf = Inf::ALL.into_iter().find(|one| inf.ends_with(one.file())).context("no INF")?;
        let free = (0..).map(|n| format!("oem{n}.inf"));
        let name = free.into_iter().find(|name| !self.state.staged.contains_key(name));
        self.state.staged.insert(name.context("no name")?, Staged { inf, text });
        Ok(())
    }

    fn unstage(&mut self, published: &str) -> Result<()> {
        let Some(staged) = self.state.staged.get(published) else { return Ok(()) };
        let used = match staged.inf {
            Inf::Adapter => self.state.devices.values().any(|device| device.inf == published),
            Inf::Lower => self.state.protocol,
        };
        ensure!(!used, "{published} is in use");
        self.state.staged.remove(published);
        Ok(())
    }

    fn install_protocol(&mut self, nic: &str) -> Result<()> {
        ensure!(!self.staged_names(Inf::Lower).is_empty(), "no INF has {LOWER}");
        self.state.protocol = true;
        self.wired(nic)?.bound.insert(LOWER.into());
        self.may_ask_restart("install_protocol");
        Ok(())
    }

    fn remove_protocol(&mut self) -> Result<()> {
        if !self.state.devices.is_empty() {
            self.broken.push("the service goes before its device".into());
        }
        self.state.protocol = false;
        for wired in &mut self.state.nics {
            wired.bound.remove(LOWER);
        }
        self.may_ask_restart("remove_protocol");
        Ok(())
    }

    fn create_device(&mut self, device: &str) -> Result<()> {
        ensure!(!self.state.devices.contains_key(device), "there would be two {device}");
        self.state.devices.insert(device.into(), Device::default());
        Ok(())
    }

    fn remove_device(&mut self, device: &str) -> Result<()> {
        self.state.devices.remove(device);
        Ok(())
    }

    fn install_driver(&mut self, _: &Path) -> Result<()> {
        let staged = self.staged_names(Inf::Adapter);
        let inf = staged.first().with_context(|| format!("no INF has {HARDWARE_ID}"))?;
        ensure!(!self.state.devices.is_empty(), "no device");
        for (id, device) in self.state.devices.iter_mut().filter(|(_, device)| !device.driver) {
            device.driver = true;
            device.inf.clone_from(inf);
            device.name = format!("Ethernet 9{}", number(id));
        }
        self.may_ask_restart("install_driver");
        Ok(())
    }

    fn exchange_driver(&mut self, published: &str) -> Result<()> {
        let staged = self.state.staged.get(published).map(|staged| staged.inf);
        ensure!(staged == Some(Inf::Adapter), "{published} has no {HARDWARE_ID}");
        for device in self.state.devices.values_mut() {
            device.inf = published.into();
            device.running = device.keywords.clone();
            if self.mistakes.contains(&Mistake::ForgetsSettings) {
                device.settings = IpSettings::default();
            }
        }
        self.may_ask_restart("exchange_driver");
        self.check_owners();
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

    fn set_keyword(&mut self, device: &str, name: &str, value: &str) -> Result<()> {
        self.device(device)?.keywords.insert(name.into(), value.into());
        Ok(())
    }

    fn rename(&mut self, device: &str, name: &str) -> Result<()> {
        let mut others = self.state.devices.iter().filter(|(id, _)| *id != device);
        ensure!(others.all(|(_, other)| other.name != name), "there would be two '{name}'");
        self.device(device)?.name = name.into();
        Ok(())
    }

    fn restart(&mut self, device: &str) -> Result<()> {
        let device = self.device(device)?;
        device.running = device.keywords.clone();
        self.starts += 1;
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
        let mut lowers = self.state.devices.keys().filter_map(|id| self.lower(id));
        let has_link = lowers.any(|(wired, _)| wired.nic.guid == nic);
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
        if self.mistakes.contains(&Mistake::TakesTcpip) && self.wired(adapter).is_err() {
            self.state.nics.iter_mut().for_each(|wired| {
                wired.bound.remove(TCPIP[0]);
            });
        }
        let to = self.settings(adapter)?;
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
