//! Connectors: how a connection that a peer asked for begins, or does not.

use super::core::{Connectors, claim_qp};
use super::request::{Accept, Acceptance, CalleeData, Reject};
use super::state::{Phase, Step};
use crate::abi::*;
use crate::cx::Cx;
use crate::object::done::RequestDone;
use crate::object::id::{ConnectorKey, ObjectId};
use crate::request::Request;
use crate::status;

impl Connectors {
    fn accept(&mut self, cx: &mut Cx, id: ObjectId, what: &Acceptance, done: RequestDone) {
        let Some(key) = Self::key(cx, id) else {
            return cx.request_done(done, STATUS_INVALID_PARAMETER);
        };
        let accepted = self.try_accept(cx, key, what);
        let Some(connector) = self.get(key) else { return };
        match accepted {
            Ok(()) => {
                connector.pending = Some(done);
                connector.event = Some(what.event);
                connector.step(Step::Accept);
                connector.agree(what.limits);
            }
            Err(status) => {
                cx.request_done(done, status);
                // Only now, as the QP's close may wait for this.
                if connector.phase == Phase::Requested {
                    self.release_qp(cx, key);
                }
            }
        }
    }

    fn try_accept(
        &mut self,
        cx: &mut Cx,
        key: ConnectorKey,
        what: &Acceptance,
    ) -> Result<(), NTSTATUS> {
        let connector = self.get(key).ok_or(STATUS_INVALID_PARAMETER)?;
        connector.phase.next(Step::Accept)?;
        let conn = connector.conn.ok_or(STATUS_CONNECTION_INVALID)?;
        claim_qp(cx, (key, &mut *connector), what.qp)?;
        let qpn = connector.qp.and_then(|qp| cx.qp(qp)).map(|qp| qp.qpn);
        let qpn = qpn.ok_or(STATUS_INVALID_PARAMETER)?;
        let Acceptance { limits, ref private_data, .. } = *what;
        cx.device.accept(cx.now, conn, qpn, limits, private_data).map_err(status::answer_error)
    }

    /// Both uses: an incoming request, or the terms of an answer.
    fn reject(&mut self, cx: &mut Cx, id: ObjectId, private_data: &CalleeData) {
        let Some(connector) = Self::key(cx, id).and_then(|key| self.get(key)) else { return };
        if !connector.step(Step::Reject) {
            return;
        }
        let conn = connector.conn;
        cx.shard.counters.failures.add();
        if let Some(conn) = conn {
            // A peer that has gone meanwhile needs no refusal.
            let _ = cx.device.reject(cx.now, conn, private_data);
        }
    }
}

impl Request for Accept {
    type Objects<'a> = &'a mut Connectors;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, connectors: &mut Connectors) {
        connectors.accept(cx, self.connector, &self.what, self.done);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}

impl Request for Reject {
    type Objects<'a> = &'a mut Connectors;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, connectors: &mut Connectors) {
        connectors.reject(cx, self.connector, &self.private_data);
    }

    fn refuse(self, _: &mut Cx) {}
}
