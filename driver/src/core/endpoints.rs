//! Local endpoints that consumers hold: listeners and shared endpoints.

use super::connections::ConnectorCore;
use super::objects::{Entry, Kind};
use super::{State, Upcall};
use crate::abi::*;
use crate::ndk::listener::{self, ListenerObject};
use crate::ndk::shared_endpoint::{self, SharedEndpointObject};
use crate::ndk::{Context, Object, ObjectId, status};
use crate::platform::with_memory;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use rocev2::cm::{ConnId, ListenerId, Peer};
use rocev2::env::Instant;

/// Connection requests that a listener's consumer has not answered, at most.
const BACKLOG: usize = 256;

pub(super) struct ListenerCore {
    pub(super) object: Arc<ListenerObject>,
    pub(super) event: NDK_FN_CONNECT_EVENT_CALLBACK,
    pub(super) context: Context,
    pub(super) adapter: ObjectId,
    pub(super) listening: Option<(ListenerId, SocketAddr)>,
}

pub(super) struct SharedEndpointCore {
    #[expect(dead_code, reason = "keeps it alive")]
    object: Arc<SharedEndpointObject>,
    /// What it has until it is closed; a connection that uses it has it beside.
    pub(super) local: Option<SocketAddr>,
}

impl State {
    pub(super) fn create_listener(
        &mut self,
        adapter: ObjectId,
        event: NDK_FN_CONNECT_EVENT_CALLBACK,
        context: Context,
    ) -> Context {
        let mut pointer = core::ptr::null_mut();
        self.insert(&[adapter], |base| {
            let ndk = NDK_LISTENER::new(base.version, &listener::DISPATCH);
            let object =
                Arc::new(Object { ndk, base, shared: listener::ListenerShared::default() });
            pointer = object.as_ndk();
            Kind::Listener(ListenerCore { object, event, context, adapter, listening: None })
        });
        Context::new(pointer.cast())
    }

    pub(super) fn listen(&mut self, id: ObjectId, local: SocketAddr) -> NTSTATUS {
        let Some(Kind::Listener(listener)) = self.objects.get(id).map(|entry| &entry.kind) else {
            return STATUS_INVALID_PARAMETER;
        };
        if listener.listening.is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        if !local.ip().is_unspecified() && !self.owns(local.ip()) {
            return STATUS_INVALID_ADDRESS;
        }
        let mut local = local;
        match self.device.bind_port(local.ip(), local.port()) {
            Ok(port) => local.set_port(port),
            Err(error) => return status::cm_error(error),
        }
        let listener_id = match self.device.listen(local, BACKLOG) {
            Ok(listener_id) => listener_id,
            Err(error) => {
                self.device.unbind_port(local.ip(), local.port());
                return status::cm_error(error);
            }
        };
        self.listeners.insert(listener_id, id);
        if let Some(Kind::Listener(listener)) =
            self.objects.get_mut(id).map(|entry| &mut entry.kind)
        {
            listener.listening = Some((listener_id, local));
            // It listens once in its life.
            let _ = listener.object.shared.local.set(Box::new(local));
        }
        // It may have been paused before it listened.
        self.pause(id);
        STATUS_SUCCESS
    }

    /// Does what the consumer last asked for.
    pub(super) fn pause(&mut self, id: ObjectId) {
        if let Some(Kind::Listener(ListenerCore {
            object, listening: Some((listener, _)), ..
        })) = self.objects.get(id).map(|entry| &entry.kind)
        {
            self.device.pause(*listener, object.shared.paused.load(Ordering::Acquire));
        }
    }

    pub(super) fn close_listener(&mut self, id: ObjectId) {
        let Some(Kind::Listener(listener)) = self.objects.get_mut(id).map(|entry| &mut entry.kind)
        else {
            return;
        };
        if let Some((listener_id, local)) = listener.listening.take() {
            self.listeners.remove(&listener_id);
            self.device.unlisten(listener_id);
            self.device.unbind_port(local.ip(), local.port());
        }
    }

    /// A request has come in: the connector for it, and the connect event.
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        listener_id: ListenerId,
        conn: ConnId,
        peer: &Peer,
    ) {
        let Some(&listener) = self.listeners.get(&listener_id) else {
            return self.device.release(now, conn);
        };
        let Some(Entry { kind: Kind::Listener(core), closing: None, .. }) =
            self.objects.get(listener)
        else {
            return self.device.release(now, conn);
        };
        let (callback, context, adapter) = (core.event, core.context, core.adapter);
        // The place of the close that must not fail.
        if self.shard.reserve_object().is_err() {
            return self.device.release(now, conn);
        }
        // The accepted connection shares the listener's port and keeps it.
        let bound = core.listening.map_or(peer.local, |(_, local)| local);
        let (shard, bytes) = (Arc::clone(&self.shard), self.request_bytes());
        let entered = with_memory(&*shard.platform, bytes, || {
            self.device.retain_port(bound.ip(), bound.port());
            let (id, connector) = self.create_connector(&[adapter, listener], |object| {
                ConnectorCore::requested(object, conn, peer, bound)
            });
            self.conns.insert(conn, id);
            connector
        });
        let Some(connector) = entered else {
            shard.release_object();
            return self.device.release(now, conn);
        };
        self.upcalls.push_back(Upcall::ConnectEvent { callback, context, connector });
    }

    // ---- shared endpoints ---------------------------------------------------------------------

    /// Takes the address and port that `local` names, or any port of the address.
    pub(super) fn create_shared_endpoint(
        &mut self,
        adapter: ObjectId,
        mut local: SocketAddr,
    ) -> Result<Context, NTSTATUS> {
        if !self.owns(local.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        let port = self.device.bind_port(local.ip(), local.port()).map_err(status::cm_error)?;
        local.set_port(port);
        let mut pointer = core::ptr::null_mut();
        self.insert(&[adapter], |base| {
            let ndk = NDK_SHARED_ENDPOINT::new(base.version, &shared_endpoint::DISPATCH);
            let shared = shared_endpoint::SharedEndpointShared { local };
            let object = Arc::new(Object { ndk, base, shared });
            pointer = object.as_ndk();
            Kind::SharedEndpoint(SharedEndpointCore { object, local: Some(local) })
        });
        Ok(Context::new(pointer.cast()))
    }

    pub(super) fn close_shared_endpoint(&mut self, id: ObjectId) {
        if let Some(Kind::SharedEndpoint(endpoint)) =
            self.objects.get_mut(id).map(|entry| &mut entry.kind)
            && let Some(local) = endpoint.local.take()
        {
            self.device.unbind_port(local.ip(), local.port());
        }
    }

    /// Takes the address of a shared endpoint for a connection too.
    pub(super) fn share_endpoint(&mut self, id: ObjectId) -> Result<SocketAddr, NTSTATUS> {
        let Some(Kind::SharedEndpoint(SharedEndpointCore { local: Some(local), .. })) =
            self.objects.get(id).map(|entry| &entry.kind)
        else {
            return Err(STATUS_INVALID_PARAMETER);
        };
        let local = *local;
        self.device.retain_port(local.ip(), local.port());
        Ok(local)
    }
}
