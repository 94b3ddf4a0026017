//! Shared endpoints, for the poll core.

use super::call::DISPATCH;
use super::request::CreateSharedEndpoint;
use super::shared::{SharedEndpointObject, SharedEndpointShared};
use crate::abi::*;
use crate::cx::Cx;
use crate::object::id::{Context, EndpointKey, ObjectId, Place};
use crate::object::shared::Object;
use crate::request::Creation;
use crate::status;
use crate::zone;
use alloc::sync::Arc;
use core::net::SocketAddr;
use slotmap::SlotMap;

pub(crate) struct EndpointCore {
    #[expect(dead_code, reason = "keeps it alive")]
    object: Arc<SharedEndpointObject>,
    /// Its address until it is closed; a connection that uses it has it beside.
    local: Option<SocketAddr>,
}

/// The shared endpoints.
#[derive(Default)]
pub(crate) struct Endpoints {
    table: SlotMap<EndpointKey, EndpointCore>,
}

impl Endpoints {
    /// Takes the address and port that `local` names, or any port of the address.
    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        adapter: ObjectId,
        mut local: SocketAddr,
    ) -> Result<Context, NTSTATUS> {
        if !cx.owns(local.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        local = zone::within(local, zone::of_local(cx.paths.zone, local)?);
        let port = cx.device.bind_port(local.ip(), local.port()).map_err(status::cm_error)?;
        local.set_port(port);
        let mut pointer = core::ptr::null_mut();
        cx.insert(&[adapter], |base| {
            let ndk = NDK_SHARED_ENDPOINT::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: SharedEndpointShared { local } });
            pointer = object.as_ndk();
            Place::Endpoint(self.table.insert(EndpointCore { object, local: Some(local) }))
        });
        Ok(Context::new(pointer.cast()))
    }

    pub(crate) fn close(&mut self, cx: &mut Cx, key: EndpointKey) {
        if let Some(local) = self.table.get_mut(key).and_then(|endpoint| endpoint.local.take()) {
            cx.device.unbind_port(local.ip(), local.port());
        }
    }

    /// Takes the address of a shared endpoint for a connection too.
    pub(crate) fn share(&self, cx: &mut Cx, id: ObjectId) -> Result<SocketAddr, NTSTATUS> {
        let key = cx.lifetimes.place(id).and_then(Place::endpoint);
        let endpoint = key.and_then(|key| self.table.get(key));
        let local = endpoint.and_then(|endpoint| endpoint.local).ok_or(STATUS_INVALID_PARAMETER)?;
        cx.device.retain_port(local.ip(), local.port());
        Ok(local)
    }

    /// The addresses that are shared.
    pub(crate) fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.table.values().filter_map(|endpoint| endpoint.local)
    }

    /// Forgets a closed endpoint.
    pub(crate) fn remove(&mut self, key: EndpointKey) {
        self.table.remove(key);
    }
}

impl Creation for CreateSharedEndpoint {
    type Objects<'a> = &'a mut Endpoints;

    fn create(
        self,
        cx: &mut Cx,
        adapter: ObjectId,
        endpoints: &mut Endpoints,
    ) -> Result<Context, NTSTATUS> {
        endpoints.create(cx, adapter, self.local)
    }
}
