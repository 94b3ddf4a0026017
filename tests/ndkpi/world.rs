//! Two providers joined in memory, and what a consumer makes on them. Every call is recorded.

use crate::record::Test;
use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndkperf::{Adapter, Listener, Opener, QpConfig};
use netadapter_glue::memory::{MemoryConfig, MemoryEdge, pair};
use netadapter_glue::{Edge, EdgeError, Received, Transmit, forward_edge};
use rocev2::env::Duration as Nanos;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
pub(crate) use tests::net::{ALL_ACCESS, Connection, LIMITS, PORT, Side, status};
use tests::raw::{Object, PATIENCE, wait};

/// A provider whose adapters are recorded.
struct Recorded {
    provider: Provider,
    test: Test,
}

// SAFETY: as the provider's own.
unsafe impl Opener for Recorded {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let adapter = self.provider.open_adapter(version)?;
        self.test.adopt(adapter);
        Ok(adapter)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller's promise.
        unsafe { self.provider.close_adapter(adapter) };
    }
}

/// What becomes of a frame.
pub(crate) enum Fate {
    Pass,
    Drop,
    Replace(Vec<u8>),
}

type Rule = Box<dyn FnMut(&[u8]) -> Fate + Send>;

/// Decides the fate of what a host sends; may be changed at any time.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Option<Rule>>>);

impl Wire {
    pub(crate) fn set(&self, rule: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(rule));
    }

    /// Nothing gets through any more.
    pub(crate) fn cut(&self) {
        self.set(|_| Fate::Drop);
    }
}

/// An edge whose frames go by a [`Wire`].
struct Judged {
    edge: MemoryEdge,
    wire: Wire,
}

impl Edge for Judged {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, EdgeError> {
        self.edge.receive(budget, sink)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError> {
        let mut rule = self.wire.0.lock().unwrap();
        self.edge.transmit(budget, &mut |buf| {
            loop {
                let unit = fill(buf)?;
                match rule.as_mut().map_or(Fate::Pass, |rule| rule(&buf[..unit.len])) {
                    Fate::Pass => return Some(unit),
                    Fate::Drop => {}
                    Fate::Replace(frame) => {
                        buf[..frame.len()].copy_from_slice(&frame);
                        return Some(Transmit { len: frame.len(), segments: None });
                    }
                }
            }
        })
    }
}

/// Two hosts, each with an open adapter.
pub(crate) struct Net {
    pub(crate) adapters: [Arc<Adapter>; 2],
    pub(crate) wires: [Wire; 2],
    openers: [Arc<dyn Opener>; 2],
    addresses: [IpAddr; 2],
}

impl Net {
    pub(crate) fn new(test: Test) -> Self {
        Self::with(test, |_| ())
    }

    /// Hosts that give up within a fraction of a second.
    pub(crate) fn impatient(test: Test) -> Self {
        Self::with(test, |config| {
            config.cm.first_resend = Nanos::from_millis(20);
            config.cm.connect_limit = Nanos::from_millis(200);
            config.cm.disconnect_limit = Nanos::from_millis(200);
            config.ack_timeout_code = 8;
            config.retry_count = 1;
        })
    }

    pub(crate) fn with(test: Test, configure: impl Fn(&mut ProviderConfig)) -> Self {
        let addresses = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let (first, second) = pair(MemoryConfig::default());
        let wires = [Wire::default(), Wire::default()];
        let start = |edge, host: usize| -> Arc<dyn Opener> {
            let edge = Judged { edge, wire: wires[host].clone() };
            let mut config = ProviderConfig::new(vec![addresses[host]]);
            configure(&mut config);
            let provider = Provider::start(Box::new(edge), config).unwrap();
            Arc::new(Recorded { provider, test })
        };
        let openers = [start(first, 0), start(second, 1)];
        let adapters = openers.each_ref().map(|opener| Adapter::open(opener.clone()).unwrap());
        Self { adapters, wires, openers, addresses }
    }

    /// Opens another adapter instance, of any version.
    pub(crate) fn open(&self, host: usize, version: NDK_VERSION) -> Result<Raw, NTSTATUS> {
        let opener = self.openers[host].clone();
        opener.open(version).map(|adapter| Raw { adapter: Object(adapter), opener })
    }

    pub(crate) fn at(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses[host], port)
    }

    pub(crate) fn side(&self, host: usize) -> Side {
        Side::new(&self.adapters[host])
    }

    /// With another queue pair than the usual.
    pub(crate) fn side_with(&self, host: usize, config: QpConfig) -> Side {
        let side = self.side(host);
        let qp = side.pd.create_qp(&side.cq, &side.cq, config).unwrap();
        Side { qp, ..side }
    }

    pub(crate) fn listen(&self) -> Arc<Listener> {
        self.adapters[1].listen(self.at(1, PORT)).unwrap()
    }

    pub(crate) fn connect(&self) -> Connection {
        self.connect_sides([self.side(0), self.side(1)])
    }

    pub(crate) fn connect_sides(&self, sides: [Side; 2]) -> Connection {
        let listener = self.listen();
        let active = self.adapters[0].create_connector().unwrap();
        let request = active.connect(&sides[0].qp, self.at(0, 0), self.at(1, PORT), LIMITS, b"");
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accept = passive.accept(&sides[1].qp, LIMITS, b"");
        request.wait().unwrap();
        active.complete_connect().wait().unwrap();
        accept.wait().unwrap();
        Connection { sides, connectors: [active, passive], listener }
    }

    /// Keeps a provider inside a callback until the gate is dropped.
    pub(crate) fn hold(&self, host: usize) -> Gate {
        let (gate, opened) = std::sync::mpsc::channel::<()>();
        let (sender, held) = std::sync::mpsc::channel();
        Object(self.adapters[host].as_ptr()).create_pd(Box::new(move |pd| {
            sender.send(pd).unwrap();
            // Ends when the gate is dropped.
            let _ = opened.recv();
        }));
        let pd = held.recv_timeout(PATIENCE).expect("the callback comes").unwrap();
        Gate { pd, gate: Some(gate) }
    }
}

/// An adapter that was opened without the wrapper.
pub(crate) struct Raw {
    pub(crate) adapter: Object<NDK_ADAPTER>,
    opener: Arc<dyn Opener>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: opened by it, and closed once.
        unsafe { self.opener.close(self.adapter.0) };
    }
}

/// Keeps a provider inside a callback.
pub(crate) struct Gate {
    pd: Object<NDK_PD>,
    gate: Option<std::sync::mpsc::Sender<()>>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        drop(self.gate.take());
        wait(|then| self.pd.close(then));
    }
}

/// How requests of a side end.
pub(crate) trait Ends {
    /// The types and statuses of the next completions, which have to come.
    fn ends(&self, count: usize) -> Vec<(NDK_OPERATION_TYPE, NTSTATUS)>;
}

impl Ends for Side {
    fn ends(&self, count: usize) -> Vec<(NDK_OPERATION_TYPE, NTSTATUS)> {
        self.results(count).iter().map(|result| (result.Type, result.Status)).collect()
    }
}
