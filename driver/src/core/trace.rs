//! What the core tells of connections to whoever traces the system.

use super::State;
use crate::platform::{EndedBy, Trace};
use core::net::SocketAddr;

/// The two ends of a connection: ours, the peer's.
pub(super) type Ends = (SocketAddr, SocketAddr);

impl State {
    pub(super) fn trace(&self, event: &Trace) {
        self.shard.platform.trace(event);
    }

    pub(super) fn trace_connected(&self, ends: Option<Ends>) {
        if let Some((local, remote)) = ends {
            self.trace(&Trace::Connected { local, remote });
        }
    }

    pub(super) fn trace_disconnected(&self, ends: Option<Ends>, by: EndedBy) {
        if let Some((local, remote)) = ends {
            self.trace(&Trace::Disconnected { local, remote, by });
        }
    }
}
