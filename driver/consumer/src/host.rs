//! A host on a network: an edge, a provider on it, and an adapter.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use driver::{Provider, ProviderConfig};
use netadapter_glue::Edge;
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::host::{BoxEdge, EdgeSpec, SpecError};
use netadapter_glue::memory::{self, MemoryConfig};
use netadapter_glue::neighbour::address_probe::{Conflict, conflicts};
use netadapter_glue::pcap::Capture;

use crate::{
    Adapter, Buffer, Endpoint, EndpointConfig, EndpointError, Listener, Mr, NdkError, Opener, Pd,
    Result, Rights,
};

/// An adapter on a provider of its own, with a protection domain. Linux only.
///
/// ```
/// use ndk_consumer::Host;
///
/// let left = Host::open("memory:doc", ["10.0.0.1".parse()?])?;
/// let right = Host::open("memory:doc", ["10.0.0.2".parse()?])?;
/// let listener = right.listen(7174)?;
/// assert_eq!(listener.local_address()?, "10.0.0.2:7174".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Host {
    pd: Arc<Pd>,
    adapter: Arc<Adapter>,
    provider: Arc<Provider>,
    addresses: Vec<IpAddr>,
}

/// How a [`Host`] is opened.
///
/// ```
/// use ndk_consumer::HostBuilder;
/// use netadapter_glue::fault::Faults;
///
/// let lossy = Faults { loss: 0.01, ..Faults::default() };
/// let host = HostBuilder::new(["fd00::1".parse()?])
///     .faults(lossy)
///     .configure(|config| config.retry_count = 3)
///     .open("memory:builder,mtu=4200")?;
/// assert!(host.ip().is_ipv6());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is open yet"]
pub struct HostBuilder {
    config: ProviderConfig,
    faults: Option<Faults>,
    capture: Option<PathBuf>,
    layer: Option<Layer>,
    address_probe: bool,
}

/// Makes an opener that stands before another one.
type Layer = Box<dyn FnOnce(Arc<dyn Opener>) -> Arc<dyn Opener>>;

/// The reason why a host was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// The string names no edge; the text of the error says what is allowed.
    Spec(SpecError),
    /// The edge cannot be opened.
    Edge {
        /// Its string.
        edge: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Another host has an address of ours.
    Taken {
        /// The string of the edge.
        edge: String,
        /// The address, and the host.
        conflict: Conflict,
    },
    /// The capture file cannot be made.
    Capture {
        /// Its path.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The provider cannot be started.
    Provider(io::Error),
    /// The adapter cannot be opened.
    Ndk(NdkError),
}

impl Host {
    /// Opens the edge that a string names ([`EdgeSpec`]), and a host on it that owns `addresses`.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// If there is no address.
    pub fn open(
        edge: &str,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, OpenError> {
        HostBuilder::new(addresses).open(edge)
    }

    /// The adapter.
    #[must_use]
    pub const fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// The provider behind it, which tells what it counts.
    #[must_use]
    pub const fn provider(&self) -> &Arc<Provider> {
        &self.provider
    }

    /// The domain of the endpoints and registrations that are made here.
    #[must_use]
    pub const fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The first of its addresses.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.addresses[0]
    }

    /// Path MTU in bytes of the connection from `local`, once it is established.
    #[must_use]
    pub fn path_mtu(&self, local: SocketAddr) -> Option<u16> {
        let connections = self.provider.connections();
        connections.iter().find(|connection| connection.local == local).map(|found| found.pmtu)
    }

    /// Registers memory, or a copy of some bytes.
    ///
    /// # Errors
    /// As [`Pd::register`].
    pub fn register(&self, memory: impl Into<Buffer>, rights: Rights) -> Result<Arc<Mr>> {
        self.pd.register(memory.into(), rights)
    }

    /// Listens on the first address; port 0 lets the provider choose.
    ///
    /// # Errors
    /// As [`Adapter::listen`].
    pub fn listen(&self, port: u16) -> Result<Arc<Listener>> {
        self.adapter.listen(SocketAddr::new(self.ip(), port))
    }

    /// Accepts the next connection of one of our listeners.
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`] where none comes within the configured time; as [`Endpoint::accept`].
    pub fn accept(
        &self,
        listener: &Arc<Listener>,
        config: &EndpointConfig,
    ) -> Result<Endpoint, EndpointError> {
        let connector = listener.next(config.time_limit).ok_or(EndpointError::TimedOut)?;
        Endpoint::accept(&self.pd, connector, config)
    }

    /// Connects to `remote` from our first address of the same family.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub fn connect(
        &self,
        remote: SocketAddr,
        config: &EndpointConfig,
    ) -> Result<Endpoint, EndpointError> {
        let mut ips = self.addresses.iter().copied();
        let ip = ips.find(|ip| ip.is_ipv4() == remote.is_ipv4()).unwrap_or_else(|| self.ip());
        Endpoint::connect(&self.pd, SocketAddr::new(ip, 0), remote, config)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Two hosts joined in memory, 10.0.0.1 and 10.0.0.2, with a path MTU of 4096.
///
/// ```
/// let [client, server] = ndk_consumer::pair()?;
/// assert_ne!(client.ip(), server.ip());
/// # Ok::<(), ndk_consumer::OpenError>(())
/// ```
///
/// # Errors
/// See [`OpenError`].
pub fn pair() -> Result<[Host; 2], OpenError> {
    pair_with(|_, builder| builder)
}

/// As [`pair`], each host built as `change` says, which gets its number, 0 or 1.
///
/// ```
/// use ndk_consumer::pair_with;
/// use netadapter_glue::fault::Faults;
///
/// let lossy = |seed| Faults { seed, loss: 0.01, ..Faults::default() };
/// let hosts = pair_with(|number, builder| builder.faults(lossy(number as u64)))?;
/// # Ok::<(), ndk_consumer::OpenError>(())
/// ```
///
/// # Errors
/// See [`OpenError`].
pub fn pair_with(
    change: impl Fn(usize, HostBuilder) -> HostBuilder,
) -> Result<[Host; 2], OpenError> {
    let (first, second) = memory::pair(MemoryConfig { mtu: 4200, ..MemoryConfig::default() });
    let build = |number: usize| {
        let ip = Ipv4Addr::new(10, 0, 0, 1 + number as u8);
        change(number, HostBuilder::new([ip.into()]))
    };
    Ok([build(0).start(first)?, build(1).start(second)?])
}

impl HostBuilder {
    /// A host that owns `addresses`, with the defaults of a provider.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let config = ProviderConfig::new(addresses.into_iter().collect());
        Self { config, faults: None, capture: None, layer: None, address_probe: true }
    }

    /// Lets faults strike what the host transmits, or none.
    pub fn faults(mut self, faults: impl Into<Option<Faults>>) -> Self {
        self.faults = faults.into();
        self
    }

    /// Records the frames, before any fault, in a pcap file; an old one is replaced. The file is whole when the host is
    /// dropped.
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Self {
        self.capture = Some(file.into());
        self
    }

    /// Changes the configuration of the provider.
    pub fn configure(mut self, change: impl FnOnce(&mut ProviderConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Lets the adapter be opened by what `layer` makes of the provider, such as the verifier of `ndk-verifier`.
    pub fn layer(
        mut self,
        layer: impl FnOnce(Arc<dyn Opener>) -> Arc<dyn Opener> + 'static,
    ) -> Self {
        self.layer = Some(Box::new(layer));
        self
    }

    /// Leaves out, or not, the question whether another host has an address of ours, which an edge is asked as it is opened
    /// where its specification says so ([`EdgeSpec::probes`]). It takes a quarter of a second; neither faults nor the capture
    /// see it.
    pub const fn address_probe(mut self, probes: bool) -> Self {
        self.address_probe = probes;
        self
    }

    /// Opens the edge that a string names ([`EdgeSpec`]), and the host on it.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// If there is no address.
    pub fn open(self, edge: &str) -> Result<Host, OpenError> {
        self.open_spec(&edge.parse().map_err(OpenError::Spec)?)
    }

    /// As [`HostBuilder::open`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn open_spec(mut self, spec: &EdgeSpec) -> Result<Host, OpenError> {
        let edges = self.edges(spec)?;
        self.start_cores(edges)
    }

    /// Opens the host on an edge of any origin.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// If there is no address.
    pub fn start(self, edge: impl Edge + Send + 'static) -> Result<Host, OpenError> {
        self.start_cores(vec![Box::new(edge)])
    }

    /// Opens the host on edges of any origin, each with a poll core of its own ([`Provider::start_cores`]). Faults strike the
    /// frames of each; the captures of the second and all further ones have names that end with their numbers.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// If there is no address, or no edge.
    pub fn start_cores(self, edges: Vec<BoxEdge>) -> Result<Host, OpenError> {
        let addresses = self.config.addresses.clone();
        assert!(!addresses.is_empty(), "a host has an address");
        let (provider, opener) = self.provide(edges)?;
        let adapter = Adapter::open(opener)?;
        Ok(Host { pd: adapter.create_pd()?, adapter, provider, addresses })
    }

    /// The provider of the host on the edge that `spec` names, and what opens its adapters, of which none is open.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn provider(
        mut self,
        spec: &EdgeSpec,
    ) -> Result<(Arc<Provider>, Arc<dyn Opener>), OpenError> {
        let edges = self.edges(spec)?;
        self.provide(edges)
    }

    fn edges(&mut self, spec: &EdgeSpec) -> Result<Vec<BoxEdge>, OpenError> {
        let failed = |source| OpenError::Edge { edge: spec.to_string(), source };
        let mut edges = spec.open_cores().map_err(failed)?;
        // A priority that was configured goes into the tag of that VLAN.
        let priority = self.config.vlan.unwrap_or(0) & 0xe000;
        self.config.vlan = spec.options.vlan.map(|id| id | priority).or(self.config.vlan);
        if !(self.address_probe && spec.probes()) {
            return Ok(edges);
        }
        let vlan = self.config.vlan.map(|tci| tci & 0xfff).filter(|id| *id != 0);
        let found = conflicts(&mut edges[0], vlan, &self.config.addresses);
        let found = found.map_err(|error| failed(io::Error::other(error)))?;
        match found.first() {
            Some(&conflict) => Err(OpenError::Taken { edge: spec.to_string(), conflict }),
            None => Ok(edges),
        }
    }

    fn provide(self, edges: Vec<BoxEdge>) -> Result<(Arc<Provider>, Arc<dyn Opener>), OpenError> {
        let edges = edges.into_iter().enumerate().map(|(core, edge)| self.equip(core, edge));
        let edges = edges.collect::<Result<Vec<_>, _>>()?;
        let provider = Provider::start_cores(edges, self.config).map_err(OpenError::Provider)?;
        let provider = Arc::new(provider);
        let opener = Arc::clone(&provider) as Arc<dyn Opener>;
        let opener = match self.layer {
            Some(layer) => layer(opener),
            None => opener,
        };
        Ok((provider, opener))
    }

    /// The edge of a core with the faults and the capture of the host.
    fn equip(&self, core: usize, mut edge: BoxEdge) -> Result<BoxEdge, OpenError> {
        if let Some(faults) = self.faults {
            let seed = faults.seed.wrapping_add((core as u64) << 32);
            edge = Box::new(FaultInjector::new(edge, Faults { seed, ..faults }));
        }
        if let Some(file) = &self.capture {
            let file = of_core(file, core);
            let failed = |source| OpenError::Capture { file: file.clone(), source };
            edge = Box::new(Capture::create(edge, &file).map_err(failed)?);
        }
        Ok(edge)
    }
}

/// The file for a core: `x.pcap` for the first, `x.1.pcap` for the next.
fn of_core(file: &Path, core: usize) -> PathBuf {
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    match core {
        0 => file.into(),
        _ if extension.is_empty() => file.with_extension(core.to_string()),
        _ => file.with_extension(format!("{core}.{extension}")),
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, faults, capture, layer: _, address_probe } = self;
        f.debug_struct("HostBuilder")
            .field("config", config)
            .field("faults", faults)
            .field("capture", capture)
            .field("address_probe", address_probe)
            .finish_non_exhaustive()
    }
}

impl From<NdkError> for OpenError {
    fn from(error: NdkError) -> Self {
        Self::Ndk(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(error) => error.fmt(f),
            Self::Edge { edge, source } => write!(f, "{edge}: {source}"),
            Self::Taken { edge, conflict } => write!(f, "{edge}: {conflict}"),
            Self::Capture { file, source } => write!(f, "{}: {source}", file.display()),
            Self::Provider(source) => write!(f, "the provider did not start: {source}"),
            Self::Ndk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use netadapter_glue::Transmit;
    use netadapter_glue::neighbour::ask::Question;
    use std::fs;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn each_mistake_says_what_is_wrong() {
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let told = |edge: &str| Host::open(edge, [ip]).unwrap_err().to_string();
        assert!(told("eth0").contains("af-packet:IFACE"), "{}", told("eth0"));
        assert!(told("qemu-stream:connect:/no/such").starts_with("qemu-stream:connect:/no/such: "));
        let builder = HostBuilder::new([ip]).capture("/no/such/file");
        let error = builder.open("memory:no-capture").unwrap_err();
        assert!(matches!(error, OpenError::Capture { .. }), "{error}");
    }

    /// An address that the other end of a link has is not taken from it, unless nobody shall ask.
    #[test]
    fn an_address_of_another_host_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let edge = |own: &str, peer: &str, options: &str| {
            let [own, peer] = [own, peer].map(|name| folder.path().join(name));
            format!("qemu-dgram:{}:{}{options}", own.display(), peer.display())
        };
        let ips = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mac = [2, 0, 0, 0, 0, 10];
        // In the VLAN that both ends have.
        let first = edge("a", "b", ",vlan=7,mac=02:00:00:00:00:0a");
        let _first = HostBuilder::new(ips).open(&first).unwrap();
        for ip in ips {
            let refused = Host::open(&edge("b", "a", ",vlan=7"), [ip]).unwrap_err();
            let OpenError::Taken { conflict, .. } = &refused else { panic!("{refused}") };
            assert_eq!(*conflict, Conflict { ip, mac });
            let told = refused.to_string();
            assert!(told.contains(&ip.to_string()) && told.contains("02:00:00:00:00:0a"), "{told}");
        }
        let free = "10.0.0.2".parse().unwrap();
        Host::open(&edge("b", "a", ",vlan=7"), [free]).unwrap();
        Host::open(&edge("b", "a", ",vlan=7,probe=off"), ips).unwrap();
        HostBuilder::new(ips).address_probe(false).open(&edge("b", "a", ",vlan=7")).unwrap();
    }

    /// A host that takes our address while we have it is counted.
    #[test]
    fn another_host_with_our_address_is_counted() {
        let [own_ip, ip] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let host = Host::open("memory:conflict", [own_ip]).unwrap();
        let mut other = "memory:conflict".parse::<EdgeSpec>().unwrap().open().unwrap();
        let mac = other.link().mac;
        let mut frames = [Question::Place { own_ip, ip, at: None }].into_iter();
        let sent = other.transmit_each(1, |buffer| {
            let len = frames.next()?.write(buffer, mac, None);
            Some(Transmit { len, segments: None })
        });
        assert_eq!(sent, Ok(1));
        let counted = || host.provider().counters().address_conflicts == 1;
        assert!((0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            counted()
        }));
    }

    /// Of several addresses, the one of the peer's family is ours.
    #[test]
    fn a_connect_leaves_from_an_address_of_the_same_family() {
        let both = |number: usize, _| {
            let ips = [format!("10.0.0.{}", 1 + number), format!("fd00::{}", 1 + number)];
            HostBuilder::new(ips.iter().map(|ip| ip.parse().unwrap()))
        };
        let [client, server] = pair_with(both).unwrap();
        let config = EndpointConfig::default();
        for ip in ["10.0.0.2", "fd00::2"] {
            let at = SocketAddr::new(ip.parse().unwrap(), 7174);
            let listener = server.adapter().listen(at).unwrap();
            let local = std::thread::scope(|scope| {
                let passive = scope.spawn(|| server.accept(&listener, &config).unwrap());
                let active = client.connect(at, &config).unwrap();
                let local = active.connector().local_address().unwrap();
                assert_eq!(client.path_mtu(local), Some(4096));
                drop(passive.join());
                local
            });
            assert_eq!(local.is_ipv6(), at.is_ipv6());
        }
    }

    /// A layer gets the opener of the provider, and gives the one that opens the adapter.
    #[test]
    fn a_layer_stands_before_the_provider() {
        let (told, heard) = mpsc::channel();
        let builder = HostBuilder::new(["10.0.0.1".parse().unwrap()]).layer(move |provider| {
            told.send(Arc::clone(&provider)).unwrap();
            provider
        });
        let host = builder.open("memory:layer").unwrap();
        let opener = Arc::clone(host.provider()) as Arc<dyn Opener>;
        assert!(Arc::ptr_eq(&heard.recv().unwrap(), &opener));
    }

    /// One call sets everything up: faults strike the frames, the file has those of the host, and the provider is as
    /// it was configured.
    #[test]
    fn a_host_is_built_as_it_was_ordered() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("host.pcap");
        let build = |number: usize, builder: HostBuilder| match number {
            0 => builder.capture(&file).faults(Faults { loss: 1.0, ..Faults::default() }),
            _ => builder,
        };
        let quick = |number: usize, builder: HostBuilder| {
            build(number, builder).configure(|config| {
                config.cm.first_resend = Duration::from_millis(10);
                config.cm.connect_limit = Duration::from_millis(50);
            })
        };
        let [client, server] = pair_with(quick).unwrap();
        let listener = server.listen(0).unwrap();
        let at = listener.local_address().unwrap();
        // Nothing arrives, so nobody answers.
        assert!(client.connect(at, &EndpointConfig::default()).is_err());
        assert!(listener.next(Duration::ZERO).is_none());
        drop(client);
        // A header of 24 bytes, then frames.
        assert!(fs::metadata(&file).unwrap().len() > 24 + 16 + 40);
    }
}
