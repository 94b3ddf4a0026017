//! The machine: small operations, each of which changes one thing or reads one.
//!
//! An operation that changes something may be repeated: what is already so stays so, without an error. Thus
//! a caller that does not know whether a change was made may make it again, or take it back.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The component that NetSetup knows the lower edge by.
pub(crate) const LOWER: &str = "ndkrocev2_lower";
/// The hardware ID of the virtual adapter's device.
pub(crate) const HARDWARE_ID: &str = r"root\ndkrocev2";
/// The service of both INFs.
pub(crate) const SERVICE: &str = "ndkrocev2";
/// The image of both INFs.
pub(crate) const IMAGE: &str = "ndkrocev2.sys";
/// The manifest of the performance counters.
pub(crate) const COUNTERS: &str = "ndkrocev2.man";
/// TCP/IP, as NetSetup names its components.
pub(crate) const TCPIP: [&str; 2] = ["ms_tcpip", "ms_tcpip6"];
/// The keyword that names the NIC by its interface GUID.
pub(crate) const LOWER_ADAPTER: &str = "LowerAdapter";
/// The keyword that says whose MAC address the adapter has.
pub(crate) const LOWER_MODE: &str = "LowerMode";

/// The adapter's place beside its NIC, by the values of `LowerMode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Mode {
    /// The adapter has a MAC address of its own beside the NIC.
    Own,
    /// The adapter takes the NIC's place: its MAC address, and its IP settings.
    Inherit,
    /// The adapter has the NIC's MAC address, and IP addresses of its own, beside the NIC's TCP/IP.
    Share,
}

impl Mode {
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::Inherit => "0",
            Self::Own => "1",
            Self::Share => "2",
        }
    }

    /// As the driver reads it.
    pub(crate) fn of_keyword(keyword: Option<&str>) -> Self {
        let mut known = [Self::Own, Self::Share].into_iter();
        known.find(|mode| keyword == Some(mode.keyword())).unwrap_or(Self::Inherit)
    }
}

/// The two INF files of a package, each with a catalog.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub(crate) enum Inf {
    Adapter,
    Lower,
}

impl Inf {
    pub(crate) const ALL: [Self; 2] = [Self::Adapter, Self::Lower];

    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Adapter => "ndkrocev2.inf",
            Self::Lower => "ndkrocev2-lower.inf",
        }
    }

    pub(crate) fn catalog(self) -> &'static str {
        match self {
            Self::Adapter => "ndkrocev2.cat",
            Self::Lower => "ndkrocev2-lower.cat",
        }
    }
}

/// A store of the machine's certificates.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub(crate) enum Store {
    Root,
    TrustedPublisher,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A certificate that signed a catalog.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// SHA-1 of the encoded certificate, in capital hexadecimal digits, as Windows shows it.
    pub(crate) thumbprint: String,
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) der: Vec<u8>,
}

impl Certificate {
    pub(crate) fn is_self_signed(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether it is the one that Microsoft signs other companies' drivers with: each Windows trusts it, in every mode. A name
    /// proves nothing; whether the signature is right is for Windows to say.
    ///
    /// See [the offerings](https://learn.microsoft.com/windows-hardware/drivers/dashboard/driver-signing-offerings).
    pub(crate) fn is_microsofts(&self) -> bool {
        self.subject.contains("CN=Microsoft Windows Hardware Compatibility Publisher")
            && self.issuer.contains("O=Microsoft Corporation")
    }
}

/// Facts of the machine that no installation changes.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    /// The machine type of its images, as in a PE header.
    pub(crate) machine: u16,
    pub(crate) build: u32,
    pub(crate) elevated: bool,
    pub(crate) test_signing: bool,
    /// Workstation, not Server: SMB Direct depends on the edition.
    pub(crate) workstation: bool,
    /// The manufacturer and the model, by which a hypervisor is known.
    pub(crate) model: String,
}

/// A network adapter, other than those of ours.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Nic {
    /// In braces, in capitals.
    pub(crate) guid: String,
    pub(crate) name: String,
    pub(crate) ethernet: bool,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    pub(crate) speed_bps: u64,
}

/// The virtual adapter, as the network stack sees it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Vnic {
    pub(crate) guid: String,
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    pub(crate) speed_bps: u64,
    pub(crate) mac: [u8; 6],
    pub(crate) traffic: Traffic,
}

/// Packets of an adapter since it started.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    /// Received, for its own MAC address.
    pub(crate) received_own: u64,
    /// Received, for groups of stations: broadcasts and multicasts.
    pub(crate) received_group: u64,
}

/// An address that somebody set.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
}

/// A route that somebody set; the default gateway is one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) destination: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) next_hop: IpAddr,
    pub(crate) metric: u32,
}

/// The settings of an interface that somebody made: not what a DHCP server or a router said.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct IpSettings {
    pub(crate) addresses: Vec<Address>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Vec<IpAddr>,
    /// The DNS suffix of the connection.
    pub(crate) suffix: Option<String>,
    /// The metrics of the interface, where they are not automatic.
    pub(crate) metric_v4: Option<u32>,
    pub(crate) metric_v6: Option<u32>,
}

impl Address {
    /// Whether `other` is in the network of this address.
    pub(crate) fn network_has(&self, other: IpAddr) -> bool {
        fn bits(ip: IpAddr) -> (u32, u128) {
            match ip {
                IpAddr::V4(ip) => (32, ip.to_bits().into()),
                IpAddr::V6(ip) => (128, ip.to_bits()),
            }
        }
        let ((length, own), (others_length, other)) = (bits(self.ip), bits(other));
        let beyond = length.saturating_sub(u32::from(self.prefix));
        length == others_length && (own ^ other).checked_shr(beyond).unwrap_or(0) == 0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// As an administrator would say it.
impl fmt::Display for IpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        said.extend(self.addresses.iter().map(Address::to_string));
        said.extend(self.routes.iter().map(|route| match route.prefix {
            0 => format!("gateway {}", route.next_hop),
            prefix => format!("route {}/{prefix} by {}", route.destination, route.next_hop),
        }));
        said.extend(self.dns.iter().map(|server| format!("DNS {server}")));
        said.extend(self.suffix.iter().map(|suffix| format!("suffix {suffix}")));
        said.extend(self.metric_v4.iter().map(|metric| format!("IPv4 metric {metric}")));
        said.extend(self.metric_v6.iter().map(|metric| format!("IPv6 metric {metric}")));
        if !self.addresses.iter().any(|address| address.ip.is_ipv4()) {
            said.push("IPv4 by DHCP".into());
        }
        f.write_str(&said.join(", "))
    }
}

impl IpSettings {
    /// The settings that are here and not in `there`, to be added.
    pub(crate) fn without(&self, there: &Self) -> Self {
        fn rest<T: Copy + PartialEq>(here: &[T], there: &[T]) -> Vec<T> {
            here.iter().copied().filter(|one| !there.contains(one)).collect()
        }
        Self {
            addresses: rest(&self.addresses, &there.addresses),
            routes: rest(&self.routes, &there.routes),
            dns: if self.dns == there.dns { Vec::new() } else { self.dns.clone() },
            suffix: self.suffix.clone().filter(|_| self.suffix != there.suffix),
            metric_v4: self.metric_v4.filter(|_| self.metric_v4 != there.metric_v4),
            metric_v6: self.metric_v6.filter(|_| self.metric_v6 != there.metric_v6),
        }
    }
}

/// A program's end: its exit code, and all that it said.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) text: String,
}

/// The last stages of the driver that are in the registry, by their names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Stages {
    /// That of this load.
    pub(crate) last: Option<String>,
    /// The one that the load before ended with.
    pub(crate) previous: Option<String>,
}

/// The machine that is installed on. The first block reads, the second changes.
pub(crate) trait Machine {
    fn host(&mut self) -> Result<Host>;
    fn nics(&mut self) -> Result<Vec<Nic>>;
    /// Whether the component is bound to the NIC; `None` where it does not exist.
    fn bound(&mut self, nic: &str, component: &str) -> Result<Option<bool>>;
    fn ip_settings(&mut self, adapter: &str) -> Result<IpSettings>;
    /// The certificate that signed the catalog.
    fn signer(&mut self, catalog: &Path) -> Result<Certificate>;
    fn trusts(&mut self, store: Store, thumbprint: &str) -> Result<bool>;
    /// The published names of our INFs in the driver store, `oemN.inf`.
    fn staged(&mut self, inf: Inf) -> Result<Vec<String>>;
    /// The text of an INF of the driver store, as it came.
    fn published(&mut self, published: &str) -> Result<Vec<u8>>;
    fn has_protocol(&mut self) -> Result<bool>;
    /// The instance IDs of the devices with our hardware ID.
    fn devices(&mut self) -> Result<Vec<String>>;
    /// The adapter of this device, once its driver has started.
    fn vnic(&mut self, device: &str) -> Result<Option<Vnic>>;
    fn keyword(&mut self, device: &str, name: &str) -> Result<Option<String>>;
    /// The answer of the driver's control device; `None` where there is none.
    fn snapshot(&mut self) -> Result<Option<Vec<u8>>>;
    fn stages(&mut self) -> Result<Stages>;
    fn journal(&mut self) -> Result<Option<String>>;
    /// The record of a first flight, which outlives crashes and uninstalling.
    fn flight(&mut self) -> Result<Option<String>>;
    /// Runs a program that changes nothing of an installation.
    fn ask(&mut self, program: &str, arguments: &[&str]) -> Result<Said>;
    /// The code by which the device manager says why a device does not run; 0: it runs.
    fn problem(&mut self, device: &str) -> Result<u32>;
    /// Whether Windows trusts the file, by the signature of this catalog.
    fn verify_signature(&mut self, file: &Path, catalog: &Path) -> Result<()>;
    /// By whom Windows was asked for a restart that it has not had yet; `None` where nothing waits for one.
    fn awaits_restart(&mut self) -> Result<Option<String>>;
    /// Whether [`Self::mark`] was called since Windows started.
    fn is_marked(&mut self) -> Result<bool>;
    fn pause_s(&mut self, seconds: u64);

    fn set_journal(&mut self, text: Option<&str>) -> Result<()>;
    fn set_flight(&mut self, text: Option<&str>) -> Result<()>;
    /// Makes a mark that Windows forgets when it starts.
    fn mark(&mut self) -> Result<()>;
    /// Has the system run `rollback` after this time, and at the next start.
    fn schedule_rollback(&mut self, within_s: u64) -> Result<()>;
    fn cancel_rollback(&mut self) -> Result<()>;
    /// Keeps a copy of this program where only administrators write, for the rollback.
    fn keep_tool(&mut self) -> Result<()>;
    fn remove_tool(&mut self) -> Result<()>;
    fn trust(&mut self, store: Store, certificate: &Certificate) -> Result<()>;
    fn distrust(&mut self, store: Store, thumbprint: &str) -> Result<()>;
    fn stage(&mut self, inf: &Path) -> Result<()>;
    fn unstage(&mut self, published: &str) -> Result<()>;
    /// Bound to this NIC, and to no other: Windows offers it all of them, and pauses the stack of each for that.
    fn install_protocol(&mut self, nic: &str) -> Result<()>;
    fn remove_protocol(&mut self) -> Result<()>;
    /// By an instance ID that nobody has.
    fn create_device(&mut self, device: &str) -> Result<()>;
    fn remove_device(&mut self, device: &str) -> Result<()>;
    /// Gives the devices with our hardware ID that have none yet the driver of this INF.
    fn install_driver(&mut self, inf: &Path) -> Result<()>;
    /// Gives all devices with our hardware ID the driver of this INF of the driver store, be it newer or older, and starts them
    /// anew. They keep their keywords, names and addresses.
    fn exchange_driver(&mut self, published: &str) -> Result<()>;
    /// Keeps a copy of the manifest: the package may be gone when they are to be unregistered.
    fn register_counters(&mut self, manifest: &Path) -> Result<()>;
    fn unregister_counters(&mut self) -> Result<()>;
    fn set_keyword(&mut self, device: &str, name: &str, value: &str) -> Result<()>;
    fn rename(&mut self, device: &str, name: &str) -> Result<()>;
    /// Stops the adapter and starts it again, so that it reads its keywords.
    fn restart(&mut self, device: &str) -> Result<()>;
    fn bind(&mut self, nic: &str, component: &str) -> Result<()>;
    fn unbind(&mut self, nic: &str, component: &str) -> Result<()>;
    /// Adds these settings to the adapter's, for good.
    fn add_ip_settings(&mut self, adapter: &str, settings: &IpSettings) -> Result<()>;
}
