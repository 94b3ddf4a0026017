//! An edge of this host, opened from one string.
//!
//! The string is a kind and a place, and options behind commas:
//!
//! | String | Edge |
//! | --- | --- |
//! | `memory:NAME` | one of the two edges that this process opens under a name, joined with the other |
//! | `af-packet:IFACE` | [`AfPacket`] on an interface |
//! | `tap:NAME` | [`Tap`] |
//! | `udp:ADDRESS` | [`Udp`] on port 4791 of an address of this host |
//! | `qemu-dgram:OWN:PEER` | [`QemuDgram`], by the paths of two sockets |
//! | `qemu-stream:listen:PATH`, `qemu-stream:connect:PATH` | the two ends of a [`QemuStream`] |
//!
//! | Option | Meaning | Edges |
//! | --- | --- | --- |
//! | `mtu=BYTES` | largest IP packet; where nothing is said, that of the address's interface, else 1500 | all but `af-packet` and `tap` |
//! | `mac=MAC` | our Ethernet address, a random one where nothing is said | `tap`, `qemu-dgram`, `qemu-stream` |
//! | `vlan=ID` | the VLAN that the user of the edge shall tag its frames with | all but `af-packet` and `udp` |
//! | `offload` | the interface, or the kernel, divides units into packets | `af-packet`, `udp` |
//! | `cores=N` | an edge for each of so many poll cores ([`EdgeSpec::open_cores`]) | `af-packet` |
//! | `probe=off` | nobody is asked whether an address is taken before its provider starts | all; `memory` and `udp` never ask |
//!
//! ```
//! use netadapter_glue::{Edge, host::EdgeSpec};
//!
//! let spec: EdgeSpec = "memory:example,mtu=4200".parse()?;
//! assert_eq!(spec.open()?.link().mtu, 4200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::af_packet::{AfPacket, CoreField};
use crate::memory::{self, MemoryConfig, MemoryEdge};
use crate::qemu::{QemuDgram, QemuStream};
use crate::tap::Tap;
use crate::udp::{Udp, UdpConfig};
use crate::{Edge, forward_edge};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// An edge of any kind.
pub type BoxEdge = Box<dyn Edge + Send>;

/// An edge that can be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EdgeSpec {
    /// The kind, and the place on this host.
    pub kind: EdgeKind,
    /// The wishes of its user.
    pub options: EdgeOptions,
}

/// The kind of an edge, and its place on this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EdgeKind {
    /// One of two edges of this process, joined by this name.
    Memory(String),
    /// A packet socket on the interface of this name.
    AfPacket(String),
    /// The TAP device of this name.
    Tap(String),
    /// A UDP socket on this address of the host.
    Udp(IpAddr),
    /// Datagrams between two sockets.
    QemuDgram {
        /// Path of our socket.
        own: PathBuf,
        /// Path of the peer's.
        peer: PathBuf,
    },
    /// A stream whose peer connects to this path.
    QemuStreamListen(PathBuf),
    /// A stream to the peer that listens at this path.
    QemuStreamConnect(PathBuf),
}

/// The wishes of an edge's user; each edge has a default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EdgeOptions {
    /// Our Ethernet address.
    pub mac: Option<MacAddress>,
    /// Largest IP packet in bytes.
    pub mtu: Option<usize>,
    /// The VLAN ID that frames shall carry. An edge puts no tags on; its user does.
    pub vlan: Option<u16>,
    /// The interface divides units into packets. Where it only passes them on, as a veth does, the peer needs this, too.
    pub offload: bool,
    /// Poll cores of the user, each with an edge of its own; one, where nothing is said.
    pub cores: Option<u8>,
    /// Nobody is asked whether an address is taken ([`EdgeSpec::probes`]).
    pub probe_off: bool,
}

/// An Ethernet address that may be a source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MacAddress(pub [u8; 6]);

/// The reason why a string, or a set of options, names no edge. Its text says what is allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpecError {
    /// No kind of edge, or not the parts that it has.
    Kind,
    /// A name or a path without a letter.
    EmptyName,
    /// An interface's name of more than 15 bytes.
    LongName,
    /// No address of one host.
    Address,
    /// No option.
    Option,
    /// No number of bytes that a link carries.
    Mtu,
    /// No Ethernet address.
    Mac,
    /// An Ethernet address that no source has.
    NoHostMac,
    /// No VLAN.
    Vlan,
    /// An Ethernet address for an edge that has one already.
    FixedMac,
    /// An MTU for an edge that has its interface's.
    FixedMtu,
    /// A VLAN for an edge that sees no tags.
    NoTags,
    /// Offload for an edge without.
    NoOffload,
    /// No number of poll cores.
    Cores,
    /// Several poll cores for an edge that cannot tell whom a frame is for.
    OneCore,
}

impl EdgeSpec {
    /// Refuses options that the edge has no use for.
    ///
    /// # Errors
    /// [`SpecError::FixedMac`] and those behind it.
    pub fn check(&self) -> Result<(), SpecError> {
        let EdgeOptions { mac, mtu, vlan, offload, cores, probe_off: _ } = self.options;
        let steers = matches!(self.kind, EdgeKind::AfPacket(_));
        let (fixed_mac, no_tags, fixed_mtu, offloads) = match self.kind {
            EdgeKind::Memory(_) => (true, false, false, false),
            EdgeKind::AfPacket(_) => (true, true, true, true),
            EdgeKind::Tap(_) => (false, false, true, false),
            EdgeKind::Udp(_) => (true, true, false, true),
            EdgeKind::QemuDgram { .. }
            | EdgeKind::QemuStreamListen(_)
            | EdgeKind::QemuStreamConnect(_) => (false, false, false, false),
        };
        let misfits = [
            (fixed_mac && mac.is_some(), SpecError::FixedMac),
            (no_tags && vlan.is_some(), SpecError::NoTags),
            (fixed_mtu && mtu.is_some(), SpecError::FixedMtu),
            (!offloads && offload, SpecError::NoOffload),
            (!steers && self.cores() > 1, SpecError::OneCore),
            (cores.is_some_and(|cores| !CORES.contains(&cores)), SpecError::Cores),
        ];
        misfits.into_iter().find(|(is, _)| *is).map_or(Ok(()), |(_, misfit)| Err(misfit))
    }

    /// Whether the user of the edge shall ask if another host has its addresses already, before it takes them
    /// ([`address_probe`](crate::neighbour::address_probe)). The kernel owns the address of a UDP socket, and both ends of a
    /// pair in memory are of this process.
    #[must_use]
    pub const fn probes(&self) -> bool {
        !self.options.probe_off && !matches!(self.kind, EdgeKind::Memory(_) | EdgeKind::Udp(_))
    }

    /// The poll cores of its user.
    pub fn cores(&self) -> usize {
        self.options.cores.map_or(1, usize::from)
    }

    /// Opens it for one poll core, whatever number the options say.
    ///
    /// # Errors
    /// `InvalidInput` with a [`SpecError`] where the options do not fit, else the operating system's.
    pub fn open(&self) -> io::Result<BoxEdge> {
        self.check().map_err(invalid)?;
        self.build().map_err(explain)
    }

    /// Opens an edge for each poll core. A RoCEv2 frame comes to the core that its destination QPN names, and all else to the first.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_cores(&self) -> io::Result<Vec<BoxEdge>> {
        self.check().map_err(invalid)?;
        match &self.kind {
            EdgeKind::AfPacket(interface) if self.cores() > 1 => {
                let group =
                    AfPacket::open_group(interface, self.options.offload, self.cores(), QPN);
                let boxed = |edge| Box::new(edge) as BoxEdge;
                Ok(group.map_err(explain)?.into_iter().map(boxed).collect())
            }
            _ => Ok(Vec::from([self.open()?])),
        }
    }

    fn build(&self) -> io::Result<BoxEdge> {
        let mac = || self.options.mac.unwrap_or_else(MacAddress::random).0;
        let mtu = self.options.mtu.unwrap_or(ETHERNET_MTU);
        Ok(match &self.kind {
            EdgeKind::Memory(name) => join(name, self.options.mtu)?,
            EdgeKind::AfPacket(interface) if self.options.offload => {
                Box::new(AfPacket::open_with_offload(interface)?)
            }
            EdgeKind::AfPacket(interface) => Box::new(AfPacket::open(interface)?),
            EdgeKind::Tap(name) => Box::new(Tap::open(name, mac())?),
            EdgeKind::Udp(address) => {
                let EdgeOptions { mtu, offload, .. } = self.options;
                Box::new(Udp::bind(*address, UdpConfig { mtu, offload })?)
            }
            EdgeKind::QemuDgram { own, peer } => Box::new(QemuDgram::bind(own, peer, mac(), mtu)?),
            EdgeKind::QemuStreamListen(path) => Box::new(QemuStream::listen(path, mac(), mtu)?),
            EdgeKind::QemuStreamConnect(path) => Box::new(QemuStream::connect(path, mac(), mtu)?),
        })
    }
}

impl FromStr for EdgeSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default().parse()?;
        let options = parts.try_fold(EdgeOptions::default(), EdgeOptions::with)?;
        let spec = Self { kind, options };
        spec.check().map(|()| spec)
    }
}

impl FromStr for EdgeKind {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if let Some(address) = text.strip_prefix("udp:").filter(|address| !address.is_empty()) {
            return parse_address(address).map(Self::Udp);
        }
        let mut parts = text.split(':');
        let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
        if parts.contains(&Some("")) {
            return Err(SpecError::EmptyName);
        }
        Ok(match parts {
            [Some("af-packet" | "tap"), Some(name), None, None]
                if name.len() > INTERFACE_LEN_MAX =>
            {
                return Err(SpecError::LongName);
            }
            [Some("memory"), Some(name), None, None] => Self::Memory(name.into()),
            [Some("af-packet"), Some(interface), None, None] => Self::AfPacket(interface.into()),
            [Some("tap"), Some(name), None, None] => Self::Tap(name.into()),
            [Some("qemu-dgram"), Some(own), Some(peer), None] => {
                Self::QemuDgram { own: own.into(), peer: peer.into() }
            }
            [Some("qemu-stream"), Some("listen"), Some(path), None] => {
                Self::QemuStreamListen(path.into())
            }
            [Some("qemu-stream"), Some("connect"), Some(path), None] => {
                Self::QemuStreamConnect(path.into())
            }
            _ => return Err(SpecError::Kind),
        })
    }
}

impl EdgeOptions {
    /// These, and one more.
    fn with(mut self, option: &str) -> Result<Self, SpecError> {
        match option.split_once('=') {
            Some(("mtu", value)) => self.mtu = Some(parse_mtu(value)?),
            Some(("mac", value)) => self.mac = Some(value.parse()?),
            Some(("vlan", value)) => self.vlan = Some(parse_vlan(value)?),
            Some(("cores", value)) => self.cores = Some(parse_cores(value)?),
            Some(("probe", "off")) => self.probe_off = true,
            None if option == "offload" => self.offload = true,
            _ => return Err(SpecError::Option),
        }
        Ok(self)
    }
}

/// An MTU in bytes, of a link that carries IP.
///
/// # Errors
/// [`SpecError::Mtu`].
pub fn parse_mtu(text: &str) -> Result<usize, SpecError> {
    text.parse().ok().filter(|mtu| (576..=65535).contains(mtu)).ok_or(SpecError::Mtu)
}

/// A number of poll cores.
///
/// # Errors
/// [`SpecError::Cores`].
pub fn parse_cores(text: &str) -> Result<u8, SpecError> {
    text.parse().ok().filter(|cores| CORES.contains(cores)).ok_or(SpecError::Cores)
}

/// An address that one socket can have.
fn parse_address(text: &str) -> Result<IpAddr, SpecError> {
    let is_of_one = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast();
    text.parse().ok().filter(is_of_one).ok_or(SpecError::Address)
}

fn parse_vlan(text: &str) -> Result<u16, SpecError> {
    text.parse().ok().filter(|vlan| (1..=4094).contains(vlan)).ok_or(SpecError::Vlan)
}

impl MacAddress {
    /// A locally administered address that nobody has given.
    #[must_use]
    pub fn random() -> Self {
        let [a, b, c, d, ..] = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        Self([0x02, 0, a, b, c, d])
    }
}

impl FromStr for MacAddress {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            // Two digits: as a number, it could have a sign.
            let is_byte = |part: &&str| part.len() == 2 && !part.starts_with('+');
            let part = parts.next().filter(is_byte).ok_or(SpecError::Mac)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| SpecError::Mac)?;
        }
        if parts.next().is_some() {
            return Err(SpecError::Mac);
        }
        let is_host = bytes[0] & 1 == 0 && bytes != [0; 6];
        is_host.then_some(Self(bytes)).ok_or(SpecError::NoHostMac)
    }
}

impl fmt::Display for EdgeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        let EdgeOptions { mac, mtu, vlan, offload, cores, probe_off } = self.options;
        mtu.map_or(Ok(()), |mtu| write!(f, ",mtu={mtu}"))?;
        mac.map_or(Ok(()), |mac| write!(f, ",mac={mac}"))?;
        vlan.map_or(Ok(()), |vlan| write!(f, ",vlan={vlan}"))?;
        if offload {
            f.write_str(",offload")?;
        }
        cores.map_or(Ok(()), |cores| write!(f, ",cores={cores}"))?;
        if probe_off { f.write_str(",probe=off") } else { Ok(()) }
    }
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(f, "memory:{name}"),
            Self::AfPacket(interface) => write!(f, "af-packet:{interface}"),
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::QemuDgram { own, peer } => {
                write!(f, "qemu-dgram:{}:{}", own.display(), peer.display())
            }
            Self::QemuStreamListen(path) => write!(f, "qemu-stream:listen:{}", path.display()),
            Self::QemuStreamConnect(path) => write!(f, "qemu-stream:connect:{}", path.display()),
        }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => {
                "not one of memory:NAME, af-packet:IFACE, tap:NAME, udp:ADDRESS, \
                 qemu-dgram:OWN:PEER, qemu-stream:listen:PATH and qemu-stream:connect:PATH"
            }
            Self::EmptyName => "an empty name",
            Self::LongName => "an interface's name has at most 15 bytes",
            Self::Address => "not the IP address of one host, as 192.168.7.1 or 2001:db8::1 is",
            Self::Option => {
                "not one of mtu=BYTES, mac=MAC, vlan=ID, offload, cores=N and probe=off"
            }
            Self::Mtu => "an MTU is 576 to 65535",
            Self::Mac => "not a MAC address, as 02:00:00:00:00:01 is",
            Self::NoHostMac => "neither a group address nor one of zeros can be our own",
            Self::Vlan => "a VLAN ID is 1 to 4094",
            Self::FixedMac => "mac: the edge has its own",
            Self::FixedMtu => "mtu: the edge has its interface's",
            Self::NoTags => {
                "vlan: af-packet and udp see no tags; name the VLAN's own interface, or its address"
            }
            Self::NoOffload => "offload: only af-packet and udp can",
            Self::Cores => "an adapter has 1 to 64 poll cores",
            Self::OneCore => "cores: only af-packet has an edge for each",
        })
    }
}

impl core::error::Error for SpecError {}

/// The first edge of a pair in memory. While it lives, the second may be taken.
struct First {
    edge: MemoryEdge,
    _alive: Arc<()>,
}

impl Edge for First {
    forward_edge!(self => self.edge, receive, transmit);
}

/// Second edges, each with the life of its first, until they are taken.
static SECONDS: Mutex<BTreeMap<String, (MemoryEdge, Weak<()>)>> = Mutex::new(BTreeMap::new());

/// The second edge of the pair of this name, or the first of a new one.
fn join(name: &str, mtu: Option<usize>) -> io::Result<BoxEdge> {
    let mut seconds = SECONDS.lock().unwrap_or_else(PoisonError::into_inner);
    // An edge whose peer is gone would reach nobody.
    if let Some((edge, first)) = seconds.remove(name)
        && first.strong_count() > 0
    {
        let theirs = edge.link().mtu;
        if mtu.is_none_or(|mtu| mtu == theirs) {
            return Ok(Box::new(edge));
        }
        seconds.insert(name.to_owned(), (edge, first));
        return Err(invalid(format!("the other edge of memory:{name} has an MTU of {theirs}")));
    }
    let config = MemoryConfig { mtu: mtu.unwrap_or(ETHERNET_MTU), ..MemoryConfig::default() };
    let (edge, second) = memory::pair(config);
    let alive = Arc::new(());
    seconds.insert(name.to_owned(), (second, Arc::downgrade(&alive)));
    Ok(Box::new(First { edge, _alive: alive }))
}

/// Says what is missing where the system only says no.
fn explain(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let hint = "packet sockets need CAP_NET_RAW and TAP devices CAP_NET_ADMIN; udp:ADDRESS needs \
                no right";
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

fn invalid(why: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Poll cores, as many as a QPN may name.
const CORES: core::ops::RangeInclusive<u8> = 1..=64;
/// The first byte of the destination QPN in a RoCEv2 packet (IBTA ch. 9, BTH).
const QPN: CoreField = CoreField { udp_port: 4791, byte: 5 };
/// MTU where neither the user nor an interface says another.
const ETHERNET_MTU: usize = 1500;
/// Bytes of an interface's name on Linux, less the zero at its end.
const INTERFACE_LEN_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn open(text: &str) -> BoxEdge {
        text.parse::<EdgeSpec>().unwrap().open().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Sends one frame by an edge.
    fn send(edge: &mut BoxEdge, frame: &[u8]) {
        let mut frames = [frame].into_iter();
        let sent = edge.transmit_each(1, |buffer| {
            let frame = frames.next()?;
            buffer[..frame.len()].copy_from_slice(frame);
            Some(crate::Transmit { len: frame.len(), segments: None })
        });
        assert_eq!(sent, Ok(1));
    }

    fn received(edge: &mut BoxEdge) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        edge.receive_each(8, |unit| frames.push(unit.frame.to_vec())).unwrap();
        frames
    }

    #[test]
    fn every_kind_is_read_and_written() {
        for text in [
            "memory:a",
            "memory:a,mtu=9000,vlan=7",
            "af-packet:eth0",
            "af-packet:eth0.7,offload,probe=off",
            "af-packet:eth0,offload,cores=64,probe=off",
            "tap:t0,cores=1",
            "tap:t0,mac=02:00:00:00:00:0a,vlan=4094",
            "udp:10.0.0.1",
            "udp:2001:db8::1,mtu=9000,offload",
            "qemu-dgram:/a:/b",
            "qemu-dgram:/a:/b,mtu=4200,mac=02:00:00:00:00:0a",
            "qemu-stream:listen:/a",
            "qemu-stream:connect:/a",
        ] {
            assert_eq!(text.parse::<EdgeSpec>().unwrap().to_string(), text);
        }
        assert_eq!("02-00-00-00-00-0A".parse(), Ok(MacAddress([2, 0, 0, 0, 0, 10])));
    }

    #[test]
    fn an_edge_whose_addresses_others_may_have_asks_for_them() {
        let probes = |text: &str| text.parse::<EdgeSpec>().unwrap().probes();
        for text in ["af-packet:eth0", "tap:t0", "qemu-dgram:/a:/b", "qemu-stream:listen:/a"] {
            assert!(probes(text) && !probes(&format!("{text},probe=off")), "{text}");
        }
        assert!(!probes("memory:a") && !probes("udp:10.0.0.1"));
    }

    #[test]
    fn each_mistake_is_told_apart() {
        for (text, error) in [
            ("", SpecError::EmptyName),
            ("eth0", SpecError::Kind),
            ("tap", SpecError::Kind),
            ("tap:", SpecError::EmptyName),
            ("tap:a:b", SpecError::Kind),
            ("qemu-dgram:/a", SpecError::Kind),
            ("qemu-dgram:/a:/b:/c", SpecError::Kind),
            ("qemu-stream:bind:/a", SpecError::Kind),
            ("tap:sixteen-byte-name", SpecError::LongName),
            ("af-packet:sixteen-byte-nam", SpecError::LongName),
            ("tap:t0,speed=1", SpecError::Option),
            ("tap:t0,", SpecError::Option),
            ("tap:t0,offload=1", SpecError::Option),
            ("tap:t0,probe=on", SpecError::Option),
            ("memory:a,mtu=575", SpecError::Mtu),
            ("memory:a,mtu=65536", SpecError::Mtu),
            ("tap:t0,mac=2:0:0:0:0:1", SpecError::Mac),
            ("tap:t0,mac=+2:00:00:00:00:01", SpecError::Mac),
            ("tap:t0,mac=02:00:00:00:00:01:02", SpecError::Mac),
            ("tap:t0,mac=01:00:00:00:00:01", SpecError::NoHostMac),
            ("tap:t0,mac=00:00:00:00:00:00", SpecError::NoHostMac),
            ("tap:t0,vlan=0", SpecError::Vlan),
            ("tap:t0,vlan=4095", SpecError::Vlan),
            ("memory:a,mac=02:00:00:00:00:01", SpecError::FixedMac),
            ("af-packet:e0,mac=02:00:00:00:00:01", SpecError::FixedMac),
            ("af-packet:e0,mtu=1500", SpecError::FixedMtu),
            ("tap:t0,mtu=1500", SpecError::FixedMtu),
            ("af-packet:e0,vlan=7", SpecError::NoTags),
            ("tap:t0,offload", SpecError::NoOffload),
            ("af-packet:e0,cores=0", SpecError::Cores),
            ("af-packet:e0,cores=65", SpecError::Cores),
            ("tap:t0,cores=2", SpecError::OneCore),
            ("udp:10.0.0.1,cores=2", SpecError::OneCore),
            ("udp:", SpecError::EmptyName),
            ("udp:eth0", SpecError::Address),
            ("udp:0.0.0.0", SpecError::Address),
            ("udp:10.0.0.1,mac=02:00:00:00:00:01", SpecError::FixedMac),
            ("udp:10.0.0.1,vlan=7", SpecError::NoTags),
        ] {
            assert_eq!(text.parse::<EdgeSpec>(), Err(error), "{text}");
        }
        let told = SpecError::Kind.to_string();
        for kind in ["memory:", "af-packet:", "tap:", "udp:", "qemu-dgram:", "qemu-stream:"] {
            assert!(told.contains(kind), "{told}");
        }
    }

    #[test]
    fn a_name_joins_two_edges_in_memory() {
        let (mut first, mut second) = (open("memory:joined,mtu=4200"), open("memory:joined"));
        assert_eq!(second.link().mtu, 4200);
        assert_ne!(first.link().mac, second.link().mac);
        send(&mut first, &[1; 60]);
        send(&mut second, &[2; 60]);
        assert_eq!(received(&mut second), [[1; 60]]);
        assert_eq!(received(&mut first), [[2; 60]]);
    }

    #[test]
    fn a_pair_has_one_mtu() {
        let first = open("memory:one-mtu,mtu=4200");
        let other: EdgeSpec = "memory:one-mtu,mtu=1500".parse().unwrap();
        let error = other.open().err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("4200"), "{error}");
        assert_eq!(open("memory:one-mtu,mtu=4200").link().mac[5], first.link().mac[5] + 1);
    }

    /// An edge whose peer went before they were two reaches nobody, so none is given.
    #[test]
    fn an_edge_without_a_peer_is_not_handed_out() {
        drop(open("memory:alone"));
        let (mut first, mut second) = (open("memory:alone"), open("memory:alone"));
        send(&mut second, &[3; 60]);
        assert_eq!(received(&mut first), [[3; 60]]);
    }

    #[test]
    fn sockets_join_two_edges() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (a, b) = (path("a"), path("b"));
        let mut first = open(&format!("qemu-dgram:{a}:{b},mac=02:00:00:00:00:07"));
        let mut second = open(&format!("qemu-dgram:{b}:{a},mtu=4200"));
        assert_eq!((first.link().mac, first.link().mtu), ([2, 0, 0, 0, 0, 7], 1500));
        assert_eq!((second.link().mac[0], second.link().mtu), (2, 4200));
        send(&mut first, &[4; 60]);
        assert_eq!(received(&mut second), [[4; 60]]);
    }

    /// Options that were changed after the parse are checked again.
    #[test]
    fn an_edge_that_cannot_be_says_why() {
        let mut spec: EdgeSpec = "tap:t0".parse().unwrap();
        spec.options.mtu = Some(9000);
        let error = spec.open().err().unwrap();
        assert_eq!(error.to_string(), SpecError::FixedMtu.to_string());
        let absent: EdgeSpec = "qemu-stream:connect:/no/such/socket".parse().unwrap();
        assert!(absent.open().is_err());
    }
}
