//! The size and the terms of an endpoint.

use std::time::Duration;

use crate::ReadLimits;

/// The size and the terms of an [`Endpoint`](super::Endpoint).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndpointConfig {
    /// Receives that are posted at any time, one message each.
    pub receives: u32,
    /// Bytes of the longest message of the peer. A longer one ends the connection.
    pub receive_len: usize,
    /// Messages of ours that may be under way.
    pub sends: u32,
    /// Bytes of our longest message. A longer one is a panic of the call.
    pub send_len: usize,
    /// WRITEs, READs, registrations and invalidations that may be under way.
    pub requests: u32,
    /// Elements of a WRITE or READ.
    pub elements: u32,
    /// READs in flight.
    pub limits: ReadLimits,
    /// Goes to the peer with the connect, or with the accept.
    pub private_data: Vec<u8>,
    /// The time for which nothing may happen in the calls of a connection that take none, and in the wait for one. Opening it
    /// ends by the provider's limits.
    pub time_limit: Duration,
}

impl Default for EndpointConfig {
    /// 32 messages of 4096 bytes each way, 64 other requests of one element, 16 READs each way, 30 s.
    fn default() -> Self {
        Self {
            receives: 32,
            receive_len: 4096,
            sends: 32,
            send_len: 4096,
            requests: 64,
            elements: 1,
            limits: ReadLimits { inbound: 16, outbound: 16 },
            private_data: Vec::new(),
            time_limit: Duration::from_secs(30),
        }
    }
}
