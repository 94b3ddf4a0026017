//! A machine in memory, which knows what depends on what and notes each rule that is broken.

mod machine;
mod programs;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::{
    Address, Host, Inf, IpSettings, LOWER, LOWER_ADAPTER, LOWER_MODE, Mode, Nic, Route, Said,
    Stages, Store, TCPIP, Traffic,
};

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
    /// The published name of the INF that it has its driver of.
    pub(crate) inf: String,
    pub(crate) keywords: BTreeMap<String, String>,
    /// The keywords as they were when it last started.
    pub(crate) running: BTreeMap<String, String>,
    pub(crate) name: String,
    pub(crate) settings: IpSettings,
}

/// An INF of the driver store.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Staged {
    pub(crate) inf: Inf,
    pub(crate) text: String,
}

/// All that an installation changes, and what it depends on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) host: Host,
    pub(crate) nics: Vec<Wired>,
    /// Whether the adapter gets a link on its NIC at all.
    pub(crate) link_comes: bool,
    pub(crate) trust: BTreeSet<(Store, String)>,
    pub(crate) staged: BTreeMap<String, Staged>,
    pub(crate) protocol: bool,
    /// By their instance IDs.
    pub(crate) devices: BTreeMap<String, Device>,
    pub(crate) counters: bool,
    pub(crate) tool: bool,
    pub(crate) journal: Option<String>,
    pub(crate) flight: Option<String>,
    pub(crate) task_s: Option<u64>,
    /// The operation by which Windows was asked for a restart.
    pub(crate) awaits_restart: Option<String>,
}

/// The last digits of an instance ID.
fn number(device: &str) -> u8 {
    device.rsplit('\\').next().and_then(|digits| digits.parse().ok()).unwrap_or(0xff)
}

/// The interface GUID of the device's adapter.
fn vnic_guid(device: &str) -> String {
    format!("{{00000000-0000-0000-0000-0000000001{:02X}}}", number(device))
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

/// Those of an adapter beside that NIC.
#[cfg(test)]
pub(crate) fn adapter_settings() -> IpSettings {
    let mut settings = static_settings();
    for (address, free) in
        settings.addresses.iter_mut().zip(["192.0.2.27", "192.0.2.28", "2001:db8::27"])
    {
        address.ip = free.parse().expect("an address");
    }
    settings
}

impl Wired {
    fn new(number: u8, name: &str, settings: IpSettings) -> Self {
        Self {
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
        }
    }
}

impl State {
    /// A server with two NICs, `Ethernet` with these settings and `Other`.
    pub(crate) fn sample(settings: IpSettings) -> Self {
        let wired = Wired::new;
        Self {
            host: Host {
                machine: 0x8664,
                build: 20348,
                elevated: true,
                test_signing: true,
                workstation: false,
                model: "Example Server 1".into(),
            },
            nics: vec![wired(1, "Ethernet", settings), wired(2, "Other", IpSettings::default())],
            link_comes: true,
            trust: BTreeSet::new(),
            staged: BTreeMap::new(),
            protocol: false,
            devices: BTreeMap::new(),
            counters: false,
            tool: false,
            journal: None,
            flight: None,
            task_s: None,
            awaits_restart: None,
        }
    }
}

/// A driver's mistake, or a machine's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mistake {
    /// The adapter's link is up whatever its NIC does.
    LinkWithoutNic,
    /// After the seventh start its link does not come.
    TiresOfStarts,
    /// The bytes of a copy go over TCP.
    CopiesOverTcp,
    /// An adapter that gets an address takes TCP/IP from its NIC.
    TakesTcpip,
    /// Its settings are lost when it starts with another driver.
    ForgetsSettings,
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
    /// That of each adapter.
    pub(crate) traffic: Traffic,
    /// Words of INFs whose driver gets no link.
    pub(crate) bad_builds: Vec<&'static str>,
    /// Whether it has a virtual switch, and the programs of a flight.
    pub(crate) flies: bool,
    /// Mistakes of a driver, for a flight to find.
    pub(crate) mistakes: Vec<Mistake>,
    /// Bytes by the driver's counters.
    pub(crate) moved_bytes: u64,
    /// How often an adapter was started.
    pub(crate) starts: usize,
    /// Until Windows starts.
    marked: bool,
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
            traffic: Traffic::default(),
            bad_builds: Vec::new(),
            flies: false,
            mistakes: Vec::new(),
            moved_bytes: 0,
            starts: 0,
            marked: false,
        }
    }

    /// Whatever waited for it is so then. The scheduled task runs the program's `rollback`: that is the caller's.
    #[cfg(test)]
    pub(crate) fn start_windows(&mut self) {
        self.state.awaits_restart = None;
        self.marked = false;
        self.asks_restart.clear();
        for device in self.state.devices.values_mut() {
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

    fn device(&mut self, id: &str) -> Result<&mut Device> {
        let device = self.state.devices.get_mut(id).filter(|device| device.driver);
        device.with_context(|| format!("no adapter {id}"))
    }

    /// The settings of a NIC or an adapter.
    fn settings(&mut self, guid: &str) -> Result<&mut IpSettings> {
        let mut devices = self.state.devices.iter();
        let ours = devices.find(|(id, device)| device.driver && vnic_guid(id) == guid);
        if let Some(id) = ours.map(|(id, _)| id.clone()) {
            return Ok(&mut self.device(&id)?.settings);
        }
        Ok(&mut self.wired(guid)?.settings)
    }

    /// The NIC that the adapter runs on, where its link is up, and the mode that it runs in.
    fn lower(&self, id: &str) -> Option<(&Wired, Mode)> {
        let Device { running, inf, .. } = self.state.devices.get(id)?;
        let is_bad = |staged: &Staged| self.bad_builds.iter().any(|bad| staged.text.contains(bad));
        if self.state.staged.get(inf).is_some_and(is_bad) {
            return None;
        }
        let guid = running.get(LOWER_ADAPTER)?;
        let wired = self.state.nics.iter().find(|wired| wired.nic.guid == *guid)?;
        let has_link = self.state.link_comes
            && self.state.awaits_restart.is_none()
            && self.state.protocol
            && wired.nic.up
            && !(self.mistakes.contains(&Mistake::TiresOfStarts) && self.starts > 7)
            && wired.bound.contains(LOWER);
        let mode = Mode::of_keyword(running.get(LOWER_MODE).map(String::as_str));
        has_link.then_some((wired, mode))
    }

    fn check_owners(&mut self) {
        let lowers: Vec<_> = self.state.devices.keys().filter_map(|id| self.lower(id)).collect();
        let two = lowers.iter().any(|(wired, mode)| {
            *mode == Mode::Inherit && TCPIP.iter().any(|tcpip| wired.bound.contains(*tcpip))
        });
        let mut nics: Vec<_> = lowers.iter().map(|(wired, _)| wired.nic.guid.clone()).collect();
        let adapters = nics.len();
        nics.sort();
        nics.dedup();
        if two {
            self.broken.push("an address has two owners".into());
        }
        if nics.len() < adapters {
            self.broken.push("a NIC carries two adapters".into());
        }
    }

    /// NICs that the protocol is bound to, and no adapter is on: each start of Windows would pause them for it.
    #[cfg(test)]
    pub(crate) fn idle_bindings(&self) -> Vec<&str> {
        let used = |guid: &String| {
            let mut devices = self.state.devices.values();
            devices.any(|device| device.keywords.get(LOWER_ADAPTER) == Some(guid))
        };
        let bound = self.state.nics.iter().filter(|wired| wired.bound.contains(LOWER));
        bound.map(|wired| &wired.nic.guid).filter(|guid| !used(guid)).map(String::as_str).collect()
    }

    fn staged_names(&self, inf: Inf) -> Vec<String> {
        let staged = self.state.staged.iter().filter(|(_, staged)| staged.inf == inf);
        staged.map(|(published, _)| published.clone()).collect()
    }
}
