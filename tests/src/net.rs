//! Two hosts, joined in memory, and what most tests of the tables make on them.
#![allow(unsafe_code, reason = "an adapter is a raw pointer of the C interface")]
#![allow(clippy::missing_panics_doc, reason = "tests panic where something is refused")]

use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndkperf::{
    Adapter, Buffer, Connector, Cq, Listener, Mr, NdkError, Opener, Pd, Qp, QpConfig, ReadLimits,
};
use netadapter_glue::Edge;
use netadapter_glue::memory::{MemoryConfig, pair};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the second host listens.
pub const PORT: u16 = 7174;
/// What both sides ask for.
pub const LIMITS: ReadLimits = ReadLimits { inbound: 8, outbound: 4 };
/// Every right.
pub const ALL_ACCESS: u32 = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
/// Long enough for a busy machine; every wait here ends by an event.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Two hosts, each with an open adapter.
pub struct Net {
    /// An open adapter of each.
    pub adapters: [Arc<Adapter>; 2],
    /// What they were opened on.
    pub providers: [Arc<Provider>; 2],
    /// Their addresses.
    pub addresses: [IpAddr; 2],
}

/// What a consumer makes before it connects.
pub struct Side {
    /// For everything.
    pub cq: Arc<Cq>,
    /// A MiB with every right.
    pub mr: Arc<Mr>,
    /// Of the default size.
    pub qp: Arc<Qp>,
    /// Parent of both.
    pub pd: Arc<Pd>,
}

/// A connection and both of its ends.
pub struct Connection {
    /// Client, server.
    pub sides: [Side; 2],
    /// Active, passive.
    pub connectors: [Connector; 2],
    /// The server's.
    pub listener: Arc<Listener>,
}

/// The objects of a connection that are not a side's.
pub struct Connected {
    /// The client's.
    pub active: Connector,
    /// The server's.
    pub passive: Connector,
    /// The server's.
    pub listener: Arc<Listener>,
}

impl Default for Net {
    fn default() -> Self {
        Self::with_addresses(["10.0.0.1", "10.0.0.2"])
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
        let (first, second) = pair(MemoryConfig::default());
        Self::over([Box::new(first), Box::new(second)], addresses, change)
    }

    /// On edges that reach each other.
    pub fn over(
        edges: [Box<dyn Edge + Send>; 2],
        addresses: [&str; 2],
        change: impl Fn(&mut ProviderConfig),
    ) -> Self {
        let addresses = addresses.map(|address| address.parse::<IpAddr>().unwrap());
        let start = |edge, address| {
            let mut config = ProviderConfig::new(vec![address]);
            change(&mut config);
            Arc::new(Provider::start(edge, config).unwrap())
        };
        let [first, second] = edges;
        let providers = [start(first, addresses[0]), start(second, addresses[1])];
        let adapters = [0, 1].map(|host| Adapter::open(opener(&providers[host])).unwrap());
        Self { adapters, providers, addresses }
    }

    /// Another instance of a host's adapter.
    pub fn open(&self, host: usize) -> Arc<Adapter> {
        Adapter::open(opener(&self.providers[host])).unwrap()
    }

    /// What a consumer makes on a host.
    pub fn side(&self, host: usize) -> Side {
        Side::new(&self.adapters[host])
    }

    /// A port of a host.
    pub fn at(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses[host], port)
    }

    /// Connects the first host to the second.
    pub fn connect(&self) -> Connection {
        let sides = [self.side(0), self.side(1)];
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
        let active = self.adapters[0].create_connector().unwrap();
        let request = active.connect(client, self.at(0, 0), self.at(1, port), LIMITS, b"caller");
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accept = passive.accept(server, LIMITS, b"callee");
        request.wait().unwrap();
        active.complete_connect().wait().unwrap();
        accept.wait().unwrap();
        Connected { active, passive, listener }
    }
}

impl Side {
    /// On an adapter.
    pub fn new(adapter: &Arc<Adapter>) -> Self {
        let cq = adapter.create_cq(256).unwrap();
        let pd = adapter.create_pd().unwrap();
        let mr = pd.register(Buffer::new(1 << 20), ALL_ACCESS).unwrap();
        let qp = pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
        Side { cq, mr, qp, pd }
    }

    /// The next completions, which have to come.
    pub fn results(&self, count: usize) -> Vec<NDK_RESULT_EX> {
        let mut all = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} completions came", all.len());
            let mut results = [NDK_RESULT_EX::EMPTY; 16];
            let taken = self.cq.wait_results_ex(&mut results, PATIENCE).unwrap();
            all.extend_from_slice(&results[..taken]);
        }
        all
    }

    /// The statuses of the next completions.
    pub fn statuses(&self, count: usize) -> Vec<NTSTATUS> {
        self.results(count).iter().map(|result| result.Status).collect()
    }

    /// Writes a pattern.
    pub fn fill(&self, seed: u8) {
        let bytes: Vec<u8> = (0..1 << 20)
            .map(|place: u32| (place as u8).wrapping_mul(seed) ^ (place >> 8) as u8)
            .collect();
        self.mr.buffer().write(0, &bytes);
    }

    /// Reads.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.buffer().read(offset, &mut bytes);
        bytes
    }
}

/// The status that a call ended with.
pub fn status<T>(result: Result<T, NdkError>) -> NTSTATUS {
    match result {
        Ok(_) => STATUS_SUCCESS,
        Err(error) => error.status,
    }
}

/// Opens adapter instances of a provider.
pub fn opener(provider: &Arc<Provider>) -> Arc<dyn Opener> {
    struct Shared(Arc<Provider>);

    // SAFETY: the provider keeps an open adapter valid until it is closed.
    unsafe impl Opener for Shared {
        fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
            self.0.open_adapter(version)
        }

        unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
            // SAFETY: the caller passes an open adapter and lets go of it.
            unsafe { self.0.close_adapter(adapter) }
        }
    }

    Arc::new(Shared(Arc::clone(provider)))
}
