//! Protection domains, for the poll core.

use super::call::DISPATCH;
use super::request::CreatePd;
use super::shared::{PdObject, PdShared};
use crate::abi::*;
use crate::bytes::LOGICAL;
use crate::cx::Cx;
use crate::object::id::{Context, ObjectId, PdKey, Place};
use crate::object::shared::Object;
use crate::request::Creation;
use alloc::sync::Arc;
use rocev2::mr::{PdId, Reserve};
use slotmap::SlotMap;

pub(crate) struct PdCore {
    object: Arc<PdObject>,
    id: PdId,
}

/// The protection domains.
pub(crate) struct Pds {
    table: SlotMap<PdKey, PdCore>,
    /// The number of the next one.
    next: u32,
}

impl Default for Pds {
    fn default() -> Self {
        Self { table: SlotMap::default(), next: 1 }
    }
}

impl Pds {
    pub(crate) fn create(&mut self, cx: &mut Cx, adapter: ObjectId) -> Result<Context, NTSTATUS> {
        let id = PdId(self.next);
        let privileged = cx
            .device
            .reserve(id, Reserve::Privileged(LOGICAL))
            .ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        self.next = self.next.wrapping_add(1);
        let mut pointer = core::ptr::null_mut();
        cx.insert(&[adapter], |base| {
            let ndk = NDK_PD::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: PdShared { privileged } });
            pointer = object.as_ndk();
            Place::Pd(self.table.insert(PdCore { object, id }))
        });
        Ok(Context::new(pointer.cast()))
    }

    /// A domain that something is to be created in, and what the transport calls it.
    pub(crate) fn member(&self, cx: &Cx, id: ObjectId) -> Result<(ObjectId, PdId), NTSTATUS> {
        let key = cx.lifetimes.place(id).and_then(Place::pd);
        let pd = key.and_then(|key| self.table.get(key)).ok_or(STATUS_INVALID_PARAMETER)?;
        Ok((id, pd.id))
    }

    /// Forgets a closed domain.
    pub(crate) fn remove(&mut self, cx: &mut Cx, key: PdKey) {
        if let Some(pd) = self.table.remove(key) {
            cx.free_key(pd.object.shared.privileged);
        }
    }
}

impl Creation for CreatePd {
    type Objects<'a> = &'a mut Pds;

    fn create(self, cx: &mut Cx, adapter: ObjectId, pds: &mut Pds) -> Result<Context, NTSTATUS> {
        pds.create(cx, adapter)
    }
}
