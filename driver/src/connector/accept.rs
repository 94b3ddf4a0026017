//! Connectors: how a connection that a peer asked for begins, or does not.

use super::core::{Connectors, claim_qp};
use super::request::{Accept, PrivateData};
use super::state::{Phase, Step};
use crate::abi::*;
use crate::cx::Cx;
use crate::object::done::RequestDone;
use crate::object::id::{ConnectorKey, ObjectId};
use crate::qp::core::Qps;
use crate::status;

impl Connectors {
    pub(crate) fn accept(
        &mut self,
        cx: &mut Cx,
        qps: &mut Qps,
        id: ObjectId,
        what: &Accept,
        done: RequestDone,
    ) {
        let Some(key) = Self::key(cx, id) else {
            return cx.request_done(done, STATUS_INVALID_PARAMETER);
        };
        let accepted = self.try_accept(cx, qps, key, what);
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
                    self.release_qp(cx, qps, key);
                }
            }
        }
    }

    fn try_accept(
        &mut self,
        cx: &mut Cx,
        qps: &mut Qps,
        key: ConnectorKey,
        what: &Accept,
    ) -> Result<(), NTSTATUS> {
        let connector = self.get(key).ok_or(STATUS_INVALID_PARAMETER)?;
        connector.phase.next(Step::Accept)?;
        let conn = connector.conn.ok_or(STATUS_CONNECTION_INVALID)?;
        claim_qp(cx, qps, (key, &mut *connector), what.qp)?;
        let qpn = connector.qp.and_then(|qp| qps.get(qp)).map(|qp| qp.qpn);
        let qpn = qpn.ok_or(STATUS_INVALID_PARAMETER)?;
        let Accept { limits, ref private_data, .. } = *what;
        cx.device.accept(cx.now, conn, qpn, limits, private_data).map_err(status::answer_error)
    }

    /// Both uses: an incoming request, or the terms of an answer.
    pub(crate) fn reject(&mut self, cx: &mut Cx, id: ObjectId, private_data: &PrivateData) {
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
