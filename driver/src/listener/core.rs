//! Listeners, for the poll core.

use super::call::DISPATCH;
use super::request::{CreateListener, Listen};
use super::shared::{ListenerObject, ListenerShared};
use crate::abi::*;
use crate::connector::core::Connectors;
use crate::cx::Cx;
use crate::object::id::{Context, ListenerKey, ObjectId, Place, Ringer};
use crate::object::shared::Object;
use crate::platform::with_memory;
use crate::request::{Creation, Request};
use crate::status;
use crate::sync::Doorbell;
use crate::upcall::Upcall;
use crate::zone;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::{Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};
use once_cell::race::OnceBox;
use rocev2::cm::{ConnId, ListenerId, Peer, PrivateData};
use slotmap::SlotMap;

/// Connection requests that a listener's consumer has not answered, at most.
const BACKLOG: usize = 256;

pub(crate) struct ListenerCore {
    object: Arc<ListenerObject>,
    event: NDK_FN_CONNECT_EVENT_CALLBACK,
    context: Context,
    adapter: ObjectId,
    listening: Option<(ListenerId, SocketAddr)>,
}

impl ListenerCore {
    /// The name and address at which connection management listens.
    fn bind(
        &self,
        cx: &mut Cx,
        mut local: SocketAddr,
    ) -> Result<(ListenerId, SocketAddr), NTSTATUS> {
        if self.listening.is_some() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        let zone = zone::of_local(cx.paths.zone, local)?;
        if !local.ip().is_unspecified() {
            if !cx.owns(local.ip()) {
                return Err(STATUS_INVALID_ADDRESS);
            }
            local = zone::within(local, zone);
        }
        let port = cx.device.bind_port(local.ip(), local.port()).map_err(status::cm_error)?;
        local.set_port(port);
        match cx.device.listen(local, BACKLOG) {
            Ok(id) => Ok((id, local)),
            Err(error) => {
                cx.device.unbind_port(local.ip(), local.port());
                Err(status::cm_error(error))
            }
        }
    }

    /// Does what the consumer last asked for.
    fn pause(&self, cx: &mut Cx) {
        if let Some((id, _)) = self.listening {
            cx.device.pause(id, self.object.shared.paused.load(Ordering::Acquire));
        }
    }
}

/// The listeners.
#[derive(Default)]
pub(crate) struct Listeners {
    table: SlotMap<ListenerKey, ListenerCore>,
    by_id: BTreeMap<ListenerId, ListenerKey>,
}

impl Listeners {
    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        adapter: ObjectId,
        CreateListener { event, context }: CreateListener,
    ) -> Context {
        let mut pointer = core::ptr::null_mut();
        // All ring at the desk's own lane.
        cx.insert_on(0, &[adapter], |base, lane| {
            let bell = lane.new_bell();
            let ringer = bell.key;
            let shared = ListenerShared {
                local: OnceBox::new(),
                paused: AtomicBool::new(false),
                bell,
                doorbell: Doorbell::default(),
            };
            let ndk = NDK_LISTENER::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared });
            pointer = object.as_ndk();
            let core = ListenerCore { object, event, context, adapter, listening: None };
            let key = self.table.insert(core);
            lane.hang(ringer, Ringer::Listener(key));
            // One that rang may be closed before it is looked at.
            lane.rung.reserve(2 * self.table.len());
            Place::Listener(key)
        });
        cx.ringers += 1;
        Context::new(pointer.cast())
    }

    pub(crate) fn listen(&mut self, cx: &mut Cx, id: ObjectId, local: SocketAddr) -> NTSTATUS {
        let key = cx.lifetimes.place(id).and_then(Place::listener);
        let found = key.and_then(|key| self.table.get_mut(key).map(|listener| (key, listener)));
        let Some((key, listener)) = found else { return STATUS_INVALID_PARAMETER };
        let (id, local) = match listener.bind(cx, local) {
            Ok(bound) => bound,
            Err(status) => return status,
        };
        self.by_id.insert(id, key);
        listener.listening = Some((id, local));
        // It listens once in its life.
        let _ = listener.object.shared.local.set(Box::new(local));
        // It may have been paused before it listened.
        listener.pause(cx);
        STATUS_SUCCESS
    }

    /// The consumer has paused a listener, or lets it go on.
    pub(crate) fn service(&mut self, cx: &mut Cx, key: ListenerKey) {
        let Some(listener) = self.table.get(key) else { return };
        listener.object.shared.doorbell.answer();
        listener.pause(cx);
    }

    pub(crate) fn close(&mut self, cx: &mut Cx, key: ListenerKey) {
        let Some(listener) = self.table.get_mut(key) else { return };
        if let Some((id, local)) = listener.listening.take() {
            self.by_id.remove(&id);
            cx.device.unlisten(id);
            cx.device.unbind_port(local.ip(), local.port());
        }
    }

    /// A request has come in: the connector for it, and the connect event.
    pub(crate) fn handle_request(
        &self,
        cx: &mut Cx,
        connectors: &mut Connectors,
        id: ListenerId,
        conn: ConnId,
        (peer, private_data): (&Peer, &PrivateData),
    ) {
        let listener = self.by_id.get(&id).and_then(|&key| self.table.get(key));
        let listener = listener.filter(|listener| cx.lifetimes.is_open(listener.object.base.id));
        let Some(listener) = listener else { return cx.device.release(cx.now, conn) };
        let (callback, context) = (listener.event, listener.context);
        // The place of the close that must not fail.
        if cx.shard.reserve_object().is_err() {
            return cx.device.release(cx.now, conn);
        }
        // The accepted connection shares the listener's port and keeps it.
        let bound = listener.listening.map_or(peer.local, |(_, local)| local);
        let zone = zone::of_local(cx.paths.zone, bound).unwrap_or(zone::named(bound));
        let port = zone::within(bound, zone);
        let parents = [listener.adapter, listener.object.base.id];
        let (shard, bytes) = (Arc::clone(&cx.shard), cx.request_bytes(0));
        let entered = with_memory(&*shard.platform, bytes, || {
            cx.device.retain_port(bound.ip(), bound.port());
            connectors.create_requested(cx, &parents, conn, (peer, private_data), port)
        });
        let Some(connector) = entered else {
            shard.release_object();
            return cx.device.release(cx.now, conn);
        };
        cx.upcalls.push_back(Upcall::ConnectEvent { callback, context, connector });
    }

    /// The addresses that are listened at.
    pub(crate) fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.table.values().filter_map(|listener| listener.listening.map(|(_, local)| local))
    }

    /// The zone of the listener that takes a request for `address`; 0 where there is none, or it has none.
    pub(crate) fn zone_at(&self, address: SocketAddr) -> u32 {
        let at =
            |ip| self.locals().find(|local| (local.ip(), local.port()) == (ip, address.port()));
        let found = at(address.ip()).or_else(|| at(Ipv6Addr::UNSPECIFIED.into()));
        found.map_or(0, zone::named)
    }

    /// Forgets a closed listener.
    pub(crate) fn remove(&mut self, cx: &mut Cx, key: ListenerKey) {
        if let Some(listener) = self.table.remove(key) {
            let lane = cx.lane(0);
            lane.take_down(listener.object.shared.bell.key);
            lane.rung.retain(|rung| *rung != key);
            cx.ringers -= 1;
        }
    }
}

impl Creation for CreateListener {
    type Objects<'a> = &'a mut Listeners;

    fn create(
        self,
        cx: &mut Cx,
        adapter: ObjectId,
        listeners: &mut Listeners,
    ) -> Result<Context, NTSTATUS> {
        Ok(listeners.create(cx, adapter, self))
    }
}

impl Request for Listen {
    type Objects<'a> = &'a mut Listeners;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, listeners: &mut Listeners) {
        let status = listeners.listen(cx, self.listener, self.local);
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
