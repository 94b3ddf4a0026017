//! Connectors: how a connection ends, and what connection management tells of it.

use super::core::Connectors;
use super::request::Disconnect;
use super::shared::{Info, peer_data};
use super::state::{Phase, Step};
use crate::abi::*;
use crate::cx::Cx;
use crate::lane::Lane;
use crate::object::done::RequestDone;
use crate::object::id::{At, ConnectorKey, ObjectId, QpKey};
use crate::platform::{EndedBy, Trace};
use crate::request::Request;
use crate::status;
use crate::upcall::Upcall;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use rocev2::cm::{CmEvent, Peer, PrivateData, ReadLimits};

/// Tells the system that a connection is over, with what its QP counted.
fn trace_disconnected(
    cx: &mut Cx,
    ends: Option<(SocketAddr, SocketAddr)>,
    by: EndedBy,
    qp: Option<At<QpKey>>,
) {
    let Some((local, remote)) = ends else { return };
    let counters = qp.and_then(|At { core, key }| {
        let Lane { engine, qps, .. } = cx.lane(core);
        engine.qp_counters(qps.get(key)?.qpn).map(Arc::clone)
    });
    cx.trace(&Trace::Disconnected { local, remote, by, totals: counters.as_deref() });
}

impl Connectors {
    fn disconnect(&mut self, cx: &mut Cx, id: ObjectId, done: RequestDone) {
        let key = Self::key(cx, id);
        let found = key.and_then(|key| self.get(key).map(|connector| (key, connector)));
        let Some((key, connector)) = found else {
            return cx.request_done(done, STATUS_INVALID_PARAMETER);
        };
        let (qp, phase) = (connector.qp, connector.phase);
        if !connector.step(Step::Disconnect) {
            return cx.request_done(done, STATUS_CONNECTION_INVALID);
        }
        match connector.conn.filter(|_| phase == Phase::Established) {
            Some(conn) => {
                connector.pending = Some(done);
                if let Some(qp) = qp.and_then(|qp| cx.qp(qp)) {
                    qp.object.shared.connected.store(false, Ordering::Release);
                }
                if cx.device.disconnect(cx.now, conn).is_err() {
                    // The peer's own notice crossed ours.
                    self.finish_disconnect(cx, key, STATUS_SUCCESS);
                }
            }
            // The peer has said its part already.
            None => {
                if let Some(qp) = qp {
                    cx.flush_qp(qp);
                }
                cx.request_done(done, STATUS_SUCCESS);
            }
        }
    }

    fn finish_disconnect(&mut self, cx: &mut Cx, key: ConnectorKey, status: NTSTATUS) {
        let Some(connector) = self.get(key) else { return };
        if !connector.step(Step::Done) {
            return;
        }
        let (pending, qp, ends) = (connector.pending.take(), connector.qp, connector.ends());
        trace_disconnected(cx, ends, EndedBy::Consumer, qp);
        if let Some(qp) = qp {
            cx.flush_qp(qp);
        }
        if let Some(done) = pending {
            cx.request_done(done, status);
        }
    }

    /// Closing a connector ends its connection in whatever state, without waiting for the peer.
    pub(crate) fn close(&mut self, cx: &mut Cx, key: ConnectorKey) {
        let Some(connector) = self.get(key) else { return };
        let (pending, qp) = (connector.pending.take(), connector.qp);
        connector.connect = None;
        connector.event = None;
        let ends = connector.ends().filter(|_| connector.phase.is_connected());
        connector.step(Step::Close);
        trace_disconnected(cx, ends, EndedBy::Consumer, qp);
        self.resolving.retain(|&waiting| waiting != key);
        self.release_conn(cx, key);
        if let Some(qp) = qp {
            cx.flush_qp(qp);
        }
        if let Some(done) = pending {
            cx.request_done(done, STATUS_CANCELLED);
        }
    }

    /// A QP was flushed because it lost its CQ.
    pub(crate) fn handle_dead_qp(&mut self, cx: &mut Cx, qp: At<QpKey>) {
        let connector = cx.qp(qp).and_then(|qp| qp.connector);
        if let Some(key) = connector {
            self.handle_qp_failure(cx, key);
        }
    }

    /// Handles a QP that failed by itself: the peer and the consumer learn of it.
    pub(crate) fn handle_qp_failure(&mut self, cx: &mut Cx, key: ConnectorKey) {
        if self.break_connection(cx, key, EndedBy::Failure)
            && let Some(conn) = self.get(key).and_then(|connector| connector.conn)
        {
            // An attempt that was not established has nothing to end.
            let _ = cx.device.disconnect(cx.now, conn);
        }
    }

    /// [`Self::lose_connection`], and not by the peer's orderly end.
    fn break_connection(&mut self, cx: &mut Cx, key: ConnectorKey, by: EndedBy) -> bool {
        let broke = self.lose_connection(cx, key, by);
        if broke {
            cx.shard.counters.errors.add();
        }
        broke
    }

    /// The connection is over without the consumer's doing. True: it was established.
    fn lose_connection(&mut self, cx: &mut Cx, key: ConnectorKey, by: EndedBy) -> bool {
        let Some(connector) = self.get(key) else { return false };
        if !connector.step(Step::Lose) {
            return false;
        }
        let (event, qp, ends) = (connector.event.take(), connector.qp, connector.ends());
        trace_disconnected(cx, ends, by, qp);
        let mut reason = 0;
        if let Some(At { core, key }) = qp {
            let Lane { engine, qps, .. } = cx.lane(core);
            if let Some(qp) = qps.get(key) {
                qp.object.shared.connected.store(false, Ordering::Release);
                reason = qp.reason(engine);
            }
        }
        if let Some(event) = event {
            cx.upcalls.push_back(Upcall::Disconnected { event, reason });
        }
        true
    }

    /// A connection that was not established failed with `status`.
    fn fail_connecting(&mut self, cx: &mut Cx, key: ConnectorKey, status: NTSTATUS) {
        let Some(connector) = self.get(key) else { return };
        let failures = &cx.shard.counters.failures;
        match connector.phase {
            Phase::Connecting => self.fail_attempt(cx, key, status),
            Phase::Accepting => {
                failures.add();
                connector.step(Step::Fail);
                let (pending, qp) = (connector.pending.take(), connector.qp);
                let remote = connector.ends().map(|(_, remote)| remote);
                cx.trace(&Trace::NotConnected { remote, status });
                if let Some(qp) = qp {
                    cx.flush_qp(qp);
                }
                if let Some(done) = pending {
                    cx.request_done(done, status);
                }
            }
            Phase::Offered => {
                failures.add();
                // The acceptor gave up; if for want of our confirmation, the page has a status.
                if status == STATUS_IO_TIMEOUT {
                    connector.end = status;
                }
                connector.step(Step::Fail);
            }
            Phase::Requested => {
                failures.add();
                connector.step(Step::Fail);
            }
            Phase::Idle
            | Phase::Resolving
            | Phase::Established
            | Phase::Disconnecting
            | Phase::Over
            | Phase::Ended => {}
        }
    }

    pub(crate) fn handle_event(&mut self, cx: &mut Cx, event: CmEvent) {
        let Some(key) = Self::of(cx, event.conn()) else { return };
        match event {
            // The listener handles it, and makes a connector of it.
            CmEvent::ConnectRequest { .. } => {}
            CmEvent::Connected { peer, private_data, .. } => {
                self.handle_connected(cx, key, &peer, &private_data);
            }
            CmEvent::Established { .. } => self.handle_established(cx, key),
            CmEvent::Refused { reason, private_data, .. } => {
                self.keep_refusal(key, &private_data);
                if !self.break_connection(cx, key, EndedBy::Peer) {
                    self.fail_connecting(cx, key, status::refusal(reason));
                }
            }
            CmEvent::TimedOut { .. } => self.fail_connecting(cx, key, STATUS_IO_TIMEOUT),
            CmEvent::PeerDisconnected { .. } => {
                if !self.lose_connection(cx, key, EndedBy::Peer) {
                    self.finish_disconnect(cx, key, STATUS_SUCCESS);
                    self.fail_connecting(cx, key, STATUS_CONNECTION_ABORTED);
                }
            }
            CmEvent::PathLost { .. } => {
                if !self.break_connection(cx, key, EndedBy::Path) {
                    self.fail_connecting(cx, key, STATUS_NETWORK_UNREACHABLE);
                }
            }
            CmEvent::DisconnectDone { timed_out, .. } => {
                let status = if timed_out { STATUS_IO_TIMEOUT } else { STATUS_SUCCESS };
                self.finish_disconnect(cx, key, status);
            }
            // The connector has let it go.
            CmEvent::Closed { .. } => {}
        }
    }

    fn handle_connected(
        &mut self,
        cx: &mut Cx,
        key: ConnectorKey,
        peer: &Peer,
        private_data: &PrivateData,
    ) {
        let Some(connector) = self.get(key) else { return };
        if connector.phase.next(Step::Answer).is_err() {
            return;
        }
        // Before the consumer may look for it.
        connector.remember(peer, private_data);
        connector.step(Step::Answer);
        if let Some(done) = connector.pending.take() {
            cx.request_done(done, STATUS_SUCCESS);
        }
    }

    fn handle_established(&mut self, cx: &mut Cx, key: ConnectorKey) {
        let Some(connector) = self.get(key) else { return };
        if connector.phase.next(Step::Confirm).is_err() {
            return;
        }
        let pending = connector.pending.take();
        self.establish(cx, (key, Step::Confirm), pending);
    }

    /// The private data of a refusal can be read like that of an acceptance.
    fn keep_refusal(&mut self, key: ConnectorKey, private_data: &PrivateData) {
        let Some(connector) = self.get(key) else { return };
        let Some(connect) = connector.connect.as_ref() else { return };
        let (local, peer) = (connect.local, connect.remote);
        if connector.phase == Phase::Connecting {
            connector.publish(Info {
                local,
                peer,
                limits: ReadLimits { inbound: 0, outbound: 0 },
                private_data: peer_data(private_data),
            });
        }
    }
}

impl Request for Disconnect {
    type Objects<'a> = &'a mut Connectors;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, connectors: &mut Connectors) {
        connectors.disconnect(cx, self.connector, self.done);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
