//! The calls of connection management, and their effect on a connection's queue pair.

use super::{Device, QpSlot};
use crate::cm::{CmError, ConnId, Connect, ListenerId, QpSide, ReadLimits};
use crate::env::Instant;
use crate::ids::Qpn;
use crate::path::Path;
use core::net::{IpAddr, SocketAddr};

impl Device {
    /// Takes a local port for one user; 0 takes any of 49152 to 65535. Returns the port.
    ///
    /// # Errors
    /// [`CmError::AddressInUse`]; [`CmError::NoPorts`] for port 0.
    pub fn bind_port(&mut self, local: IpAddr, port: u16) -> Result<u16, CmError> {
        self.cm.bind_port(local, port)
    }

    /// Adds a user to a bound port.
    pub fn retain_port(&mut self, local: IpAddr, port: u16) {
        self.cm.retain_port(local, port);
    }

    /// Removes a user from a bound port. The last one frees it.
    pub fn unbind_port(&mut self, local: IpAddr, port: u16) {
        self.cm.unbind_port(local, port);
    }

    /// Listens on a bound port; an unspecified address stands for all. At most `backlog` requests, and at
    /// least one, wait for [`Self::accept`] or [`Self::reject`] at a time.
    ///
    /// # Errors
    /// [`CmError::AddressInUse`]: another listener has the endpoint.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, CmError> {
        self.cm.listen(local, backlog)
    }

    /// Pauses or resumes a listener: while it is paused, requests are refused as if there were no listener.
    pub fn pause(&mut self, listener: ListenerId, pause: bool) {
        self.cm.pause(listener, pause);
    }

    /// Ends a listener; requests that the caller has not seen are refused.
    pub fn unlisten(&mut self, listener: ListenerId) {
        self.cm.unlisten(listener);
    }

    /// Asks the peer for a connection. [`CmEvent::Connected`](crate::cm::CmEvent::Connected) or a failure follows.
    ///
    /// # Errors
    /// [`CmError::PrivateData`] above 56 bytes; [`CmError::Connected`]; [`CmError::Full`];
    /// [`CmError::Address`], also for a local address that is not the device's: it may have been removed
    /// while the path was resolved.
    pub fn connect(&mut self, now: Instant, connect: &Connect<'_>) -> Result<ConnId, CmError> {
        if !self.config.addresses.contains(&connect.local.ip()) {
            return Err(CmError::Address);
        }
        let path = Path { local: connect.local.ip(), remote: connect.remote.ip() };
        let path = self.paths.acquire(path, connect.hop).ok_or(CmError::Full)?;
        let starting_psn = self.config.opening.psn(&mut self.rng);
        let conn = self.cm.connect(now, connect, starting_psn);
        let conn = conn.inspect_err(|_| self.paths.release(path))?;
        self.enter_path(conn, path);
        self.attach(now, connect.qpn, conn, false);
        Ok(conn)
    }

    /// Gives a connection the caller's name for it, by which [`Self::conn_owner`] finds what an event is for.
    pub fn set_conn_owner(&mut self, conn: ConnId, owner: u64) {
        if let Some(Some(tie)) = self.cm.tie_mut(conn) {
            tie.owner = Some(owner);
        }
    }

    /// The caller's name for a connection; `None` where it has none, or was released.
    pub fn conn_owner(&self, conn: ConnId) -> Option<u64> {
        self.cm.tie(conn)?.owner
    }

    /// Confirms a connection that [`CmEvent::Connected`](crate::cm::CmEvent::Connected) offered.
    ///
    /// # Errors
    /// [`CmError`]: the connection is no longer there.
    pub fn confirm(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        self.cm.confirm(now, conn)
    }

    /// Accepts a request: the QP receives from here on, and the reply leaves.
    ///
    /// # Errors
    /// The connection is no longer there, or the private data is too long.
    pub fn accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        qpn: Qpn,
        limits: ReadLimits,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let qp = QpSide { qpn, starting_psn: self.config.opening.psn(&mut self.rng) };
        self.cm.accept(now, conn, qp, limits, private_data)?;
        self.attach(now, qpn, conn, true);
        self.bring_up(conn);
        Ok(())
    }

    /// Refuses a request, or the terms that [`CmEvent::Connected`](crate::cm::CmEvent::Connected) offered.
    ///
    /// # Errors
    /// The connection is no longer there, or the private data is too long.
    pub fn reject(
        &mut self,
        now: Instant,
        conn: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        self.cm.reject(now, conn, private_data)
    }

    /// Sends DREQ; [`CmEvent::DisconnectDone`](crate::cm::CmEvent::DisconnectDone) follows.
    ///
    /// # Errors
    /// The connection is not established.
    pub fn disconnect(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        self.cm.disconnect(now, conn)
    }

    /// Probes the queue pairs of the connections that may be stale.
    pub(super) fn probe_peers(&mut self, now: Instant) {
        while let Some(conn) = self.cm.poll_probe() {
            let probes = |(slot, entry): (usize, &mut QpSlot)| entry.qp.probe().then_some(slot);
            match self.slot_of(conn).and_then(probes) {
                Some(slot) => self.schedule(slot),
                None => self.cm.peer_gone(now, conn),
            }
        }
    }

    /// Releases a connection in any state; the peer gets the message that the state requires.
    pub fn release(&mut self, now: Instant, conn: ConnId) {
        if let Some((_, entry)) = self.slot_of(conn) {
            (entry.conn, entry.awaits_rtu) = (None, false);
        }
        self.leave_path(conn);
        self.cm.release(now, conn);
    }
}
