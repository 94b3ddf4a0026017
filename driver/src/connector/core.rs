//! Connectors, between the consumer's calls and connection management. How a connection begins is in
//! `connect` and `accept`, how it ends in `end`.

use super::call::DISPATCH;
use super::request::{Attempt, CreateConnector, DisconnectEvent};
use super::shared::{ConnectorObject, ConnectorShared, Info, peer_data};
use super::state::{Phase, Step};
use crate::abi::*;
use crate::counters::Connection;
use crate::cx::Cx;
use crate::lane::Lane;
use crate::object::done::RequestDone;
use crate::object::id::{At, ConnectorKey, Context, ObjectId, Place, QpKey};
use crate::object::shared::Object;
use crate::platform::Trace;
use crate::request::Creation;
use crate::sync::Room;
use crate::zone;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use rocev2::cm::{ConnId, Peer, PrivateData, ReadLimits};
use rocev2::qp::QpState;
use slotmap::{Key as _, KeyData, SlotMap};

pub(crate) struct ConnectorCore {
    pub(super) object: Arc<ConnectorObject>,
    pub(super) phase: Phase,
    pub(super) conn: Option<ConnId>,
    pub(super) qp: Option<At<QpKey>>,
    /// The values of its connect, on the active side.
    pub(super) connect: Option<Box<Attempt>>,
    /// The local port that it holds.
    pub(super) port: Option<SocketAddr>,
    /// The connect, accept or disconnect that is pending.
    pub(super) pending: Option<RequestDone>,
    pub(super) event: Option<DisconnectEvent>,
    /// Where the peer's answer to a connect comes, so that it takes no memory.
    pub(super) room: Option<Room<Info>>,
    /// The status of an accept or reject after the peer has ended the attempt.
    pub(super) end: NTSTATUS,
    /// The zone of both ends, if they are addresses of a link.
    pub(super) zone: u32,
}

impl ConnectorCore {
    /// A connector for an outgoing connection.
    const fn new(object: Arc<ConnectorObject>) -> Self {
        Self {
            object,
            phase: Phase::Idle,
            conn: None,
            qp: None,
            connect: None,
            port: None,
            pending: None,
            event: None,
            room: None,
            end: STATUS_CONNECTION_ABORTED,
            zone: 0,
        }
    }

    /// A connector for a request that came in. It shares the local endpoint `port`, whose zone is that of both ends.
    fn requested(
        object: Arc<ConnectorObject>,
        conn: ConnId,
        (peer, private_data): (&Peer, &PrivateData),
        port: SocketAddr,
    ) -> Self {
        let zone = zone::named(port);
        let mut core = Self { conn: Some(conn), port: Some(port), zone, ..Self::new(object) };
        core.remember(peer, private_data);
        core.step(Step::Request);
        core
    }

    /// Takes a step; false, and nothing has changed, where it is not legal now.
    pub(super) fn step(&mut self, step: Step) -> bool {
        let Ok(phase) = self.phase.next(step) else { return false };
        self.object.shared.set_stage(phase.stage());
        let active = &self.object.base.shard.counters.active;
        match (self.phase.is_connected(), phase.is_connected()) {
            (false, true) => active.add(),
            (true, false) => active.subtract(),
            (false, false) | (true, true) => {}
        }
        self.phase = phase;
        true
    }

    /// Keeps what the peer told, for the connector's life or until another attempt.
    pub(super) fn remember(&mut self, peer: &Peer, private_data: &PrivateData) {
        self.publish(Info {
            local: zone::within(peer.local, self.zone),
            peer: zone::within(peer.remote, self.zone),
            limits: peer.limits,
            private_data: peer_data(private_data),
        });
    }

    /// Our end and the peer's, as far as the peer has told.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.object.shared.info.get().map(|info| (info.local, info.peer))
    }

    /// An accept may lower the limits that the request left.
    pub(super) fn agree(&mut self, limits: ReadLimits) {
        if let Some(info) = self.object.shared.info.get() {
            self.publish(Info { limits: info.limits.min(limits), ..info });
        }
    }

    #[allow(unsafe_code, reason = "the one writer")]
    pub(super) fn publish(&mut self, info: Info) {
        let room = self.room.take().unwrap_or_else(Room::new);
        // SAFETY: only the core's thread comes here.
        unsafe { self.object.shared.info.set(room, info) };
    }
}

/// Calls into the consumer that packets and timers make of one connector in a turn: the end of its request, and
/// the disconnect event.
const UPCALLS: usize = 2;

/// The name of a connector for the device, which keeps it beside the connection.
pub(super) fn owner(key: ConnectorKey) -> u64 {
    key.data().as_ffi()
}

/// The connectors.
#[derive(Default)]
pub(crate) struct Connectors {
    pub(super) table: SlotMap<ConnectorKey, Box<ConnectorCore>>,
    /// Those that wait for the peer's link-layer address.
    pub(super) resolving: Vec<ConnectorKey>,
}

impl Connectors {
    /// A connector for an outgoing connection.
    pub(crate) fn create(&mut self, cx: &mut Cx, adapter: ObjectId) -> Context {
        self.insert(cx, &[adapter], ConnectorCore::new).1
    }

    /// A connector for a request that came in. It shares the local endpoint `port`.
    pub(crate) fn create_requested(
        &mut self,
        cx: &mut Cx,
        parents: &[ObjectId],
        conn: ConnId,
        from: (&Peer, &PrivateData),
        port: SocketAddr,
    ) -> Context {
        let make = |object| ConnectorCore::requested(object, conn, from, port);
        let (key, context) = self.insert(cx, parents, make);
        cx.device.set_conn_owner(conn, owner(key));
        context
    }

    fn insert(
        &mut self,
        cx: &mut Cx,
        parents: &[ObjectId],
        make: impl FnOnce(Arc<ConnectorObject>) -> ConnectorCore,
    ) -> (ConnectorKey, Context) {
        let (mut key, mut pointer) = (ConnectorKey::default(), core::ptr::null_mut());
        cx.make_room(UPCALLS * (self.table.len() + 1));
        cx.insert(parents, |base| {
            let ndk = NDK_CONNECTOR::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: ConnectorShared::default() });
            pointer = object.as_ndk();
            key = self.table.insert(Box::new(make(object)));
            Place::Connector(key)
        });
        (key, Context::new(pointer.cast()))
    }

    /// Forgets a closed connector.
    pub(crate) fn remove(&mut self, key: ConnectorKey) {
        self.table.remove(key);
    }

    pub(super) fn key(cx: &Cx, id: ObjectId) -> Option<ConnectorKey> {
        cx.lifetimes.place(id)?.connector()
    }

    pub(super) fn get(&mut self, key: ConnectorKey) -> Option<&mut ConnectorCore> {
        self.table.get_mut(key).map(|connector| &mut **connector)
    }

    /// The connector of a connection, until it lets the connection go.
    pub(crate) fn of(cx: &Cx, conn: ConnId) -> Option<ConnectorKey> {
        cx.device.conn_owner(conn).map(|owner| KeyData::from_ffi(owner).into())
    }

    /// The connections that are established.
    pub(crate) fn established(&self, cx: &mut Cx) -> impl Iterator<Item = Connection> {
        self.table.values().filter_map(move |connector| {
            if connector.phase != Phase::Established {
                return None;
            }
            let (local, remote) = connector.ends()?;
            let At { core, key } = connector.qp?;
            let Lane { engine, qps, .. } = cx.lane(core);
            let qpn = qps.get(key)?.qpn;
            let counters = Arc::clone(engine.qp_counters(qpn)?);
            let pmtu = engine.qp_pmtu(qpn)?.bytes() as u16;
            Some(Connection { local, remote, qpn, pmtu, counters })
        })
    }

    /// Data may flow: ends the request that waited for it.
    pub(super) fn establish(
        &mut self,
        cx: &mut Cx,
        (key, step): (ConnectorKey, Step),
        done: Option<RequestDone>,
    ) {
        let Some(connector) = self.get(key) else { return };
        connector.step(step);
        let counters = &cx.shard.counters;
        if connector.connect.is_some() { &counters.connects } else { &counters.accepts }.add();
        let qp = connector.qp;
        if let Some((local, remote)) = connector.ends() {
            cx.trace(&Trace::Connected { local, remote });
        }
        if let Some(done) = done {
            cx.request_done(done, STATUS_SUCCESS);
        }
        let Some(at) = qp else { return };
        let Lane { engine, qps, .. } = cx.lane(at.core);
        let Some(qp) = qps.get(at.key) else { return };
        if engine.qp_state(qp.qpn) == Some(QpState::Rts) {
            let reads = engine.outbound_reads(qp.qpn) > 0;
            qp.object.shared.reads.store(reads, Ordering::Relaxed);
            qp.object.shared.connected.store(true, Ordering::Release);
        } else {
            // It failed or was flushed before; that was no news as long as nothing was established.
            self.handle_qp_failure(cx, key);
        }
    }

    /// Gives the connection and the port back.
    pub(super) fn release_conn(&mut self, cx: &mut Cx, key: ConnectorKey) {
        let Some(connector) = self.get(key) else { return };
        let (conn, port) = (connector.conn.take(), connector.port.take());
        if let Some(conn) = conn {
            cx.device.release(cx.now, conn);
        }
        if let Some(port) = port {
            cx.device.unbind_port(port.ip(), port.port());
        }
    }

    /// Undoes [`claim_qp`]: the attempt failed and the QP may be used for another.
    pub(super) fn release_qp(&mut self, cx: &mut Cx, key: ConnectorKey) {
        let Some(connector) = self.get(key) else { return };
        if let Some(qp) = connector.qp.take().and_then(|qp| cx.qp(qp)) {
            qp.connector = None;
            let id = qp.object.base.id;
            cx.remove_parent(connector.object.base.id, id);
        }
    }
}

impl Creation for CreateConnector {
    type Objects<'a> = &'a mut Connectors;

    fn create(
        self,
        cx: &mut Cx,
        adapter: ObjectId,
        connectors: &mut Connectors,
    ) -> Result<Context, NTSTATUS> {
        Ok(connectors.create(cx, adapter))
    }
}

/// Makes the QP an antecedent of the connector; a QP serves one.
pub(super) fn claim_qp(
    cx: &mut Cx,
    (key, connector): (ConnectorKey, &mut ConnectorCore),
    id: ObjectId,
) -> Result<(), NTSTATUS> {
    let at = cx.lifetimes.place(id).and_then(Place::qp).filter(|_| cx.lifetimes.is_open(id));
    let at = at.ok_or(STATUS_INVALID_PARAMETER)?;
    let Lane { engine, qps, .. } = cx.lane(at.core);
    let qp = qps.get_mut(at.key).ok_or(STATUS_INVALID_PARAMETER)?;
    if qp.connector.is_some() {
        return Err(STATUS_CONNECTION_ACTIVE);
    }
    // Flushed, or its CQ overran: it carries nothing any more.
    if engine.qp_state(qp.qpn) != Some(QpState::Init) {
        return Err(STATUS_INVALID_DEVICE_STATE);
    }
    qp.connector = Some(key);
    cx.lifetimes.add_parent(connector.object.base.id, id);
    connector.qp = Some(at);
    Ok(())
}
