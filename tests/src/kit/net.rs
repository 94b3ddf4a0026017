//! Two hosts, and the ways to get hold of their adapters.
#![allow(clippy::missing_panics_doc, reason = "tests panic where something is refused")]

use super::raw::{Gate, Instance, Object};
use super::safe::{Connected, Connection, Side};
use super::wire::Wire;
use super::{LIMITS, PATIENCE, PORT};
use driver::abi::{NDK_ADAPTER, NDK_VERSION, NTSTATUS};
use driver::{Provider, ProviderConfig};
use ndk_consumer::{Adapter, Connector, Listener, Opener, Qp, QpConfig};
use ndk_verifier::{Report, Verifier, Verify};
use netadapter_glue::Edge;
use netadapter_glue::memory::{CoreEdge, MemoryConfig, Steer, pair, pair_of_cores};
use rocev2::env::Duration;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// Opens a provider's adapters.
pub type OpenedBy = fn(Arc<Provider>) -> Arc<dyn Opener>;

static OPENED_BY: OnceLock<OpenedBy> = OnceLock::new();

/// From here on `opener` opens the adapters of every [`Net`] of this process: a suite may stand between its tests and
/// the tables.
pub fn open_by(opener: OpenedBy) {
    assert!(OPENED_BY.set(opener).is_ok(), "one suite in a process");
}

/// Whether the consumers of this process are watched, and whether a mistake of theirs fails the test:
/// `NDK_VERIFY=report` and `NDK_VERIFY=1`.
fn verify() -> Option<bool> {
    Some(std::env::var("NDK_VERIFY").ok()? == "1")
}

/// An opener whose consumers are watched.
fn watched(opener: Arc<dyn Opener>) -> Arc<Verifier> {
    let name = std::thread::current().name().unwrap_or_default().to_string();
    let sink = Arc::new(|test: &str, report: &Report| eprintln!("{test}: {report}"));
    Verifier::new(opener, Verify { name, sink: Some(sink), ..Verify::default() })
}

/// Where the hosts are, unless a test wants them elsewhere.
pub const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// Two hosts, each with an open adapter.
pub struct Net {
    /// An open adapter of each.
    pub adapters: [Arc<Adapter>; 2],
    /// What they were opened on.
    pub providers: [Arc<Provider>; 2],
    /// Their addresses.
    pub addresses: [IpAddr; 2],
    /// By which each sends.
    pub wires: [Wire; 2],
    openers: [Arc<dyn Opener>; 2],
    verifiers: Vec<Arc<Verifier>>,
}

impl Default for Net {
    fn default() -> Self {
        Self::with_addresses(ADDRESSES)
    }
}

impl Net {
    /// On IPv4.
    pub fn new() -> Self {
        Self::default()
    }

    /// With these addresses.
    pub fn with_addresses(addresses: [&str; 2]) -> Self {
        Self::with_config(addresses, |_| ())
    }

    /// With these addresses, and configurations changed by `change`.
    pub fn with_config(addresses: [&str; 2], change: impl Fn(&mut ProviderConfig)) -> Self {
        Self::over(joined(), addresses, change)
    }

    /// On IPv4, with hosts that give up within a fraction of a second.
    pub fn impatient() -> Self {
        Self::with_config(ADDRESSES, |config| {
            config.cm.first_resend = Duration::from_millis(20);
            config.cm.connect_limit = Duration::from_millis(200);
            config.cm.disconnect_limit = Duration::from_millis(200);
            config.ack_timeout_code = 8;
            config.retry_count = 1;
        })
    }

    /// On IPv4, with adapters of few objects, queue pairs and keys.
    pub fn scarce() -> Self {
        Self::with_config(ADDRESSES, |config| {
            (config.limits.qps, config.limits.mrs, config.limits.objects) = (64, 256, 1000);
        })
    }

    /// On edges that reach each other.
    pub fn over(
        edges: [Box<dyn Edge + Send>; 2],
        addresses: [&str; 2],
        change: impl Fn(&mut ProviderConfig),
    ) -> Self {
        Self::over_cores(edges.map(|edge| vec![edge]), addresses, change)
    }

    /// On IPv4, with hosts of so many cores, between which each frame comes to the core that `steer` says.
    pub fn of_cores(cores: [usize; 2], steer: Steer) -> Self {
        let (first, second) = pair_of_cores(MemoryConfig::default(), cores, steer);
        let edges = [first, second].map(|edges| edges.into_iter().map(boxed).collect());
        Self::over_cores(edges, ADDRESSES, |_| ())
    }

    /// On an edge for each core, all of which reach those of the other host.
    pub fn over_cores(
        edges: [Vec<Box<dyn Edge + Send>>; 2],
        addresses: [&str; 2],
        change: impl Fn(&mut ProviderConfig),
    ) -> Self {
        let addresses = addresses.map(|address| address.parse::<IpAddr>().unwrap());
        let wires = [Wire::default(), Wire::default()];
        let start = |edges: Vec<_>, host: usize| {
            let mut config = ProviderConfig::new(vec![addresses[host]]);
            change(&mut config);
            let edges = edges.into_iter().map(|edge| wires[host].behind(edge)).collect();
            Arc::new(Provider::start_cores(edges, config).unwrap())
        };
        let [first, second] = edges;
        let providers = [start(first, 0), start(second, 1)];
        let opener = OPENED_BY.get().copied().unwrap_or(|provider| provider);
        let mut openers = providers.each_ref().map(|provider| opener(Arc::clone(provider)));
        let mut verifiers = Vec::new();
        if verify().is_some() {
            verifiers.extend(openers.each_ref().map(|opener| watched(Arc::clone(opener))));
            openers = [0, 1].map(|host| -> Arc<dyn Opener> { verifiers[host].clone() });
        }
        let adapters = openers.each_ref().map(|opener| Adapter::open(Arc::clone(opener)).unwrap());
        Self { adapters, providers, addresses, wires, openers, verifiers }
    }

    /// A port of a host.
    pub fn at(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses[host], port)
    }

    /// Another instance of a host's adapter.
    pub fn open(&self, host: usize) -> Arc<Adapter> {
        Adapter::open(Arc::clone(&self.openers[host])).unwrap()
    }

    /// Another instance of any version, without a wrapper.
    ///
    /// # Errors
    /// The provider's.
    pub fn open_raw(&self, host: usize, version: NDK_VERSION) -> Result<Instance, NTSTATUS> {
        Instance::open(Arc::clone(&self.openers[host]), version)
    }

    /// A host's open adapter, without its wrapper.
    pub fn raw(&self, host: usize) -> Object<NDK_ADAPTER> {
        Object(self.adapters[host].as_ptr())
    }

    /// Keeps a host inside a callback until the gate is dropped.
    pub fn hold(&self, host: usize) -> Gate {
        self.raw(host).hold()
    }

    /// Closes the adapters and checks that nothing is left.
    pub fn finish(self) {
        let (providers, verifiers) = (self.providers.clone(), self.verifiers.clone());
        drop(self);
        for provider in providers {
            assert_eq!(provider.open_objects(), 0);
        }
        let reports = verifiers.iter().flat_map(|verifier| verifier.reports());
        let mistakes: Vec<_> = reports.filter(|report| report.rule.is_mistake()).collect();
        assert!(mistakes.is_empty() || verify() != Some(true), "{mistakes:?}");
    }

    /// What a consumer makes on a host.
    pub fn side(&self, host: usize) -> Side {
        Side::new(&self.adapters[host])
    }

    /// What a consumer makes on a host for one of its cores.
    pub fn side_on(&self, host: usize, core: usize) -> Side {
        Side::near(&self.adapters[host], core)
    }

    /// With another queue pair than the usual.
    pub fn side_with(&self, host: usize, config: QpConfig) -> Side {
        let side = self.side(host);
        let qp = side.pd.create_qp(&side.cq, &side.cq, config).unwrap();
        Side { qp, ..side }
    }

    /// The second host listens.
    pub fn listen(&self) -> Arc<Listener> {
        self.adapters[1].listen(self.at(1, PORT)).unwrap()
    }

    /// Connects the first host to the second.
    pub fn connect(&self) -> Connection {
        self.connect_sides([self.side(0), self.side(1)])
    }

    /// Connects what the two hosts made.
    pub fn connect_sides(&self, sides: [Side; 2]) -> Connection {
        let Connected { active, passive, listener } = self.connect_qps(&sides[0].qp, &sides[1].qp);
        Connection { sides, connectors: [active, passive], listener }
    }

    /// Connects two QPs.
    pub fn connect_qps(&self, client: &Arc<Qp>, server: &Arc<Qp>) -> Connected {
        self.connect_qps_at(PORT, client, server)
    }

    /// Connects two QPs by a port of their own.
    pub fn connect_qps_at(&self, port: u16, client: &Arc<Qp>, server: &Arc<Qp>) -> Connected {
        let listener = self.adapters[1].listen(self.at(1, port)).unwrap();
        let [active, passive] = self.connect_qps_by(&listener, port, client, server);
        Connected { active, passive, listener }
    }

    /// Connects two QPs by a listener on this port.
    pub fn connect_qps_by(
        &self,
        listener: &Arc<Listener>,
        port: u16,
        client: &Arc<Qp>,
        server: &Arc<Qp>,
    ) -> [Connector; 2] {
        let active = self.adapters[0].create_connector().unwrap();
        let request = active.connect(client, self.at(0, 0), self.at(1, port), LIMITS, b"caller");
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accept = passive.accept(server, LIMITS, b"callee");
        request.wait().unwrap();
        active.complete_connect().wait().unwrap();
        accept.wait().unwrap();
        [active, passive]
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // A test that failed may have left raw objects open, for whose close an adapter's would wait for ever.
        if std::thread::panicking() {
            self.adapters.iter().map(Arc::clone).for_each(std::mem::forget);
        }
    }
}

fn boxed(edge: CoreEdge) -> Box<dyn Edge + Send> {
    Box::new(edge)
}

/// Edges that reach each other.
pub fn joined() -> [Box<dyn Edge + Send>; 2] {
    let (first, second) = pair(MemoryConfig::default());
    [Box::new(first), Box::new(second)]
}
