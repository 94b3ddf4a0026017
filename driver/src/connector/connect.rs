//! Connectors: how a connection of ours begins.

use super::core::{Connectors, claim_qp, owner};
use super::request::{Attempt, CompleteConnect, Connect, DisconnectEvent};
use super::state::{Phase, Step};
use crate::abi::*;
use crate::cx::Cx;
use crate::endpoint::core::Endpoints;
use crate::listener::core::Listeners;
use crate::object::done::RequestDone;
use crate::object::id::{ConnectorKey, ObjectId};
use crate::paths::{retag, update};
use crate::platform::{Resolve, Resolver, Trace};
use crate::request::Request;
use crate::status;
use crate::sync::Room;
use crate::zone;
use alloc::boxed::Box;
use core::net::IpAddr;
use netadapter_glue::neighbour::Resolution;
use rocev2::Connect as DeviceConnect;
use rocev2::cm::{Hop, is_host};
use rocev2::wire::Mac;

impl Connectors {
    fn connect(
        &mut self,
        cx: &mut Cx,
        (endpoints, listeners): (&Endpoints, &Listeners),
        id: ObjectId,
        mut what: Box<Attempt>,
        done: RequestDone,
    ) {
        let prepared = check_zones(cx, listeners, &what)
            .and_then(|zone| self.prepare_connect(cx, endpoints, id, &mut what, zone));
        let key = match prepared {
            Ok(key) => key,
            Err(status) => return cx.request_done(done, status),
        };
        let (local, remote) = (what.local.ip(), what.remote.ip());
        let Some(connector) = self.get(key) else { return };
        connector.pending = Some(done);
        connector.connect = Some(what);
        connector.room = Some(Room::new());
        connector.step(Step::Connect);
        if cx.owns(remote) {
            // Its frames come back in `Lane::fill`.
            let mac = Mac(cx.paths.loopback_mac);
            return self.start_connect(cx, key, Hop { src_mac: mac, dst_mac: mac, vlan: None });
        }
        match cx.paths.neighbours.lookup(cx.now.as_nanos(), remote) {
            Some(link) => {
                let vlan = retag(cx.paths.vlan, link.vlan);
                self.start_connect(cx, key, cx.paths.hop(link.mac, vlan));
            }
            None => {
                self.resolving.push(key);
                match cx.shard.platform.resolve(local, remote, Resolve::Ask) {
                    Resolver::Platform => {}
                    Resolver::Provider => {
                        cx.paths.neighbours.resolve(cx.now.as_nanos(), local, remote);
                    }
                    Resolver::Nobody => {
                        self.resolving.pop();
                        self.fail_attempt(cx, key, STATUS_INSUFFICIENT_RESOURCES);
                    }
                }
            }
        }
    }

    /// Checks a connect, takes its port and ties the QP to the connector.
    fn prepare_connect(
        &mut self,
        cx: &mut Cx,
        endpoints: &Endpoints,
        id: ObjectId,
        what: &mut Attempt,
        zone: u32,
    ) -> Result<ConnectorKey, NTSTATUS> {
        if !cx.owns(what.local.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        if !is_host(what.remote.ip(), what.local.ip()) {
            return Err(STATUS_NETWORK_UNREACHABLE);
        }
        let key = Self::key(cx, id).ok_or(STATUS_INVALID_PARAMETER)?;
        let connector = self.get(key).ok_or(STATUS_INVALID_PARAMETER)?;
        connector.phase.next(Step::Connect)?;
        match what.endpoint {
            Some(endpoint) => what.local = endpoints.share(cx, endpoint)?,
            None => {
                let bound = cx.device.bind_port(what.local.ip(), what.local.port());
                what.local.set_port(bound.map_err(status::cm_error)?);
            }
        }
        if let Err(status) = claim_qp(cx, (key, &mut *connector), what.qp) {
            cx.device.unbind_port(what.local.ip(), what.local.port());
            return Err(status);
        }
        if let Some(endpoint) = what.endpoint {
            cx.lifetimes.add_parent(id, endpoint);
        }
        connector.port = Some(what.local);
        connector.zone = zone;
        (what.local, what.remote) =
            (zone::within(what.local, zone), zone::within(what.remote, zone));
        Ok(key)
    }

    /// Asks for the link-layer addresses that came to be known.
    pub(crate) fn handle_resolutions(&mut self, cx: &mut Cx) {
        while let Some(Resolution { ip, result }) = cx.paths.neighbours.poll_event() {
            let mac = result.ok().map(|link| link.mac);
            let vlan = result.ok().and_then(|link| link.vlan);
            self.finish_resolution(cx, ip, mac, |tci| retag(tci, vlan));
        }
    }

    /// Goes on with a connect: the link-layer address of `remote` is known, or there was no answer. `tag`
    /// makes the tag to be used from the one so far.
    #[inline(never)]
    pub(crate) fn finish_resolution(
        &mut self,
        cx: &mut Cx,
        remote: IpAddr,
        mac: Option<[u8; 6]>,
        tag: impl Fn(Option<u16>) -> Option<u16>,
    ) {
        if let Some(mac) = mac {
            update(&mut cx.device, remote, Mac(mac), &tag);
        }
        let mut index = 0;
        while let Some(&key) = self.resolving.get(index) {
            let waits = self.get(key).is_some_and(|connector| {
                connector.connect.as_ref().is_some_and(|what| what.remote.ip() == remote)
            });
            if !waits {
                index += 1;
                continue;
            }
            self.resolving.swap_remove(index);
            match mac {
                Some(mac) => {
                    let vlan = tag(cx.paths.vlan);
                    self.start_connect(cx, key, cx.paths.hop(mac, vlan));
                }
                None => self.fail_attempt(cx, key, STATUS_HOST_UNREACHABLE),
            }
        }
    }

    /// Attempts from an address that went away, of which the peer is still looked for, end.
    pub(crate) fn fail_without_address(&mut self, cx: &mut Cx, addresses: &[IpAddr]) {
        let mut index = 0;
        while let Some(&key) = self.resolving.get(index) {
            let local = self.get(key).and_then(|connector| connector.connect.as_ref());
            if local.is_some_and(|what| addresses.contains(&what.local.ip())) {
                index += 1;
            } else {
                self.resolving.swap_remove(index);
                self.fail_attempt(cx, key, STATUS_NETWORK_UNREACHABLE);
            }
        }
    }

    fn start_connect(&mut self, cx: &mut Cx, key: ConnectorKey, hop: Hop) {
        let Some(connector) = self.get(key) else { return };
        let Some(what) = &connector.connect else { return };
        let Some(qpn) = connector.qp.and_then(|qp| cx.qp(qp)).map(|qp| qp.qpn) else { return };
        let request = DeviceConnect {
            qpn,
            local: what.local,
            remote: what.remote,
            hop,
            limits: what.limits,
            private_data: &what.private_data,
        };
        match cx.device.connect(cx.now, &request) {
            Ok(conn) => {
                connector.conn = Some(conn);
                connector.step(Step::Send);
                cx.device.set_conn_owner(conn, owner(key));
            }
            Err(error) => self.fail_attempt(cx, key, status::cm_error(error)),
        }
    }

    /// A connect failed: everything that it took is given back.
    pub(super) fn fail_attempt(&mut self, cx: &mut Cx, key: ConnectorKey, status: NTSTATUS) {
        let Some(connector) = self.get(key) else { return };
        connector.step(Step::Fail);
        let id = connector.object.base.id;
        let (pending, connect) = (connector.pending.take(), connector.connect.take());
        let remote = connect.as_ref().map(|connect| connect.remote);
        cx.shard.counters.failures.add();
        cx.trace(&Trace::NotConnected { remote, status });
        // Before the QP is let go, whose close may wait for this.
        if let Some(done) = pending {
            cx.request_done(done, status);
        }
        self.release_conn(cx, key);
        self.release_qp(cx, key);
        if let Some(endpoint) = connect.and_then(|connect| connect.endpoint) {
            cx.remove_parent(id, endpoint);
        }
    }

    fn complete_connect(
        &mut self,
        cx: &mut Cx,
        id: ObjectId,
        event: DisconnectEvent,
        done: RequestDone,
    ) {
        match self.try_complete_connect(cx, id, event) {
            Ok(key) => self.establish(cx, (key, Step::CompleteConnect), Some(done)),
            Err(status) => cx.request_done(done, status),
        }
    }

    fn try_complete_connect(
        &mut self,
        cx: &mut Cx,
        id: ObjectId,
        event: DisconnectEvent,
    ) -> Result<ConnectorKey, NTSTATUS> {
        let key = Self::key(cx, id).ok_or(STATUS_INVALID_PARAMETER)?;
        let connector = self.get(key).ok_or(STATUS_INVALID_PARAMETER)?;
        if connector.phase == Phase::Ended {
            return Err(connector.end);
        }
        connector.phase.next(Step::CompleteConnect)?;
        let conn = connector.conn.ok_or(STATUS_CONNECTION_INVALID)?;
        connector.event = Some(event);
        cx.device.confirm(cx.now, conn).map_err(status::answer_error)?;
        Ok(key)
    }
}

/// The zone of both ends of a connect. To an own address it is that of the listener there, too.
fn check_zones(cx: &Cx, listeners: &Listeners, what: &Attempt) -> Result<u32, NTSTATUS> {
    let zone = zone::of_ends(cx.paths.zone, what.local, what.remote)?;
    if zone == 0 || !cx.owns(what.remote.ip()) {
        return Ok(zone);
    }
    zone::common(zone, listeners.zone_at(what.remote)).ok_or(STATUS_CONNECTION_REFUSED)
}

impl Request for Connect {
    type Objects<'a> = (&'a mut Connectors, &'a Endpoints, &'a Listeners);

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(
        self,
        cx: &mut Cx,
        (connectors, endpoints, listeners): (&mut Connectors, &Endpoints, &Listeners),
    ) {
        connectors.connect(cx, (endpoints, listeners), self.connector, self.what, self.done);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}

impl Request for CompleteConnect {
    type Objects<'a> = &'a mut Connectors;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, connectors: &mut Connectors) {
        connectors.complete_connect(cx, self.connector, self.event, self.done);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
