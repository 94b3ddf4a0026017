//! A home's requests to the poll core that it runs.

use crate::counters::Connection;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use rocev2::class::TrafficClasses;

/// The adapter owns these addresses from now on.
pub(crate) struct SetAddresses {
    pub(crate) addresses: Vec<IpAddr>,
    /// Of those of the link; 0: as before.
    pub(crate) zone: u32,
}

/// [`crate::platform::Platform::resolve`] has ended; `None` where there was no answer.
pub(crate) struct Resolved {
    pub(crate) remote: IpAddr,
    pub(crate) mac: Option<[u8; 6]>,
}

/// The operating system's routes or interfaces have changed: neighbours may be elsewhere.
pub(crate) struct CheckPaths;

/// Services have these classes from now on.
pub(crate) struct SetTrafficClasses {
    pub(crate) classes: TrafficClasses,
}

/// A query for the listeners and connections.
pub(crate) struct List {
    /// Gets nothing where there is no memory for them.
    pub(crate) listed: Listed,
}

/// Ends the core.
pub(crate) struct Stop;

/// Gets the endpoints of an adapter, or `None` where there is no memory for the list. It is called in a
/// turn of the core.
pub type Listed = Box<dyn FnOnce(Option<Vec<Endpoint>>) + Send>;

/// An object with a local address.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// Established.
    Connection(Connection),
    /// It takes requests.
    Listener(SocketAddr),
    /// Outgoing connections share it.
    Shared(SocketAddr),
}

/// Those of endpoints that have a peer.
pub(crate) fn connections(endpoints: Vec<Endpoint>) -> Vec<Connection> {
    let connected = |endpoint| match endpoint {
        Endpoint::Connection(connection) => Some(connection),
        Endpoint::Listener(_) | Endpoint::Shared(_) => None,
    };
    endpoints.into_iter().filter_map(connected).collect()
}
