//! One connection with a CQ of its own.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ndk_consumer::{Adapter, Connector, Pd, ReadLimits};

use crate::completions::{Completions, Waits};
use crate::connection::{Connection, Depths, Event};
use crate::failure::Failure;

/// A connection with a CQ of its own.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    completions: Completions,
    /// Room for what a wait brings.
    events: Vec<(usize, Event)>,
}

impl Session {
    /// An endpoint that is not connected yet.
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        pd: &Arc<Pd>,
        connector: Connector,
        depths: Depths,
        waits: Waits,
    ) -> Result<Self, Failure> {
        let completions = Completions::new(adapter, depths.receive + depths.initiator, waits)?;
        let connection = Connection::new(pd, connector, depths, &completions, 0, None)?;
        Ok(Self { connection, completions, events: Vec::new() })
    }

    /// See [`Completions::stop_when`].
    pub(crate) const fn stop_when(&mut self, stop: fn() -> bool) {
        self.completions.stop_when(stop);
    }

    /// See [`Connection::connect`].
    pub(crate) fn connect(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        limits: ReadLimits,
    ) -> Result<(), Failure> {
        self.connection.connect(local, remote, limits, &[], &self.completions)
    }

    /// Waits for at least one event and appends what has come.
    pub(crate) fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        let connection = std::slice::from_mut(&mut self.connection);
        let waited = self.completions.wait(connection, None, &mut self.events);
        events.extend(self.events.drain(..).map(|(_, event)| event));
        waited
    }
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
