//! Memory regions, for the poll core.

use super::call::DISPATCH;
use super::request::{
    CreateMr, DeregisterMr, Initialize, InitializeFastRegisterMr, Register, RegisterMr,
};
use super::shared::{MrObject, MrShared, Pages};
use crate::abi::*;
use crate::cx::{Cx, growth};
use crate::object::id::{Context, MrKey, ObjectId, Place};
use crate::object::shared::Object;
use crate::pd::core::Pds;
use crate::request::{Creation, Request};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use rocev2::env::RegionId;
use rocev2::ids::Rkey;
use rocev2::mr::{Access, PdId, Registration, Reserve};
use slotmap::SlotMap;

pub(crate) struct MrCore {
    object: Arc<MrObject>,
    pd: PdId,
    registered: Option<(Rkey, RegionId)>,
}

impl MrCore {
    fn register(&mut self, cx: &mut Cx, what: Register) -> NTSTATUS {
        if self.registered.is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let Register { mapping, base, access } = what;
        let len = mapping.len();
        let region = cx.names.insert(mapping);
        let registration = Registration { pd: self.pd, region, base, len, access };
        let Some(key) = cx.register(registration) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        cx.tokens.insert(key, self.object.base.id);
        self.registered = Some((key, region));
        self.object.shared.set_token(key, access.contains(Access::LOCAL_WRITE));
        STATUS_SUCCESS
    }

    /// Ends a registration. Windows that are bound to it end with it: refusing instead would leave
    /// the peer its access to memory that the consumer is about to reuse.
    fn deregister(&mut self, cx: &mut Cx) -> NTSTATUS {
        let Some((key, region)) = self.registered.take() else {
            return STATUS_INVALID_DEVICE_STATE;
        };
        self.object.shared.token.store(0, Ordering::Release);
        cx.tokens.remove(&key);
        cx.deregister(key, region);
        STATUS_SUCCESS
    }

    fn initialize(&mut self, cx: &mut Cx, what: Initialize) -> NTSTATUS {
        let shared = &self.object.shared;
        if shared.pages.get().is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let Initialize { list, pool, most } = what;
        let Some(key) = cx.device.reserve(self.pd, Reserve::FastRegister(most)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        cx.tokens.insert(key, self.object.base.id);
        let region = cx.names.insert_list(Arc::clone(&list), &pool);
        let set = shared.pages.set(Box::new(Pages { key, list, region, pool, most }));
        debug_assert!(set.is_ok());
        shared.set_token(key, false);
        STATUS_SUCCESS
    }

    /// Ends whatever the region names. Page lists that are queued or in force come back later.
    fn close(&mut self, cx: &mut Cx) {
        if let Some(&Pages { key, region, .. }) = self.object.shared.pages.get() {
            cx.tokens.remove(&key);
            cx.deregister(key, region);
        } else {
            // An unregistered region has nothing to end.
            let _ = self.deregister(cx);
        }
    }
}

/// The memory regions.
#[derive(Default)]
pub(crate) struct Mrs {
    table: SlotMap<MrKey, MrCore>,
}

impl Mrs {
    /// How many there are, and the memory that one more may take.
    pub(crate) fn growth(&self) -> (usize, usize) {
        (self.table.len(), growth(&self.table))
    }

    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        (parent, pd): (ObjectId, PdId),
        fast_register: bool,
    ) -> Context {
        let mut pointer = core::ptr::null_mut();
        cx.insert(&[parent], |base| {
            let ndk = NDK_MR::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: MrShared::new(pd, fast_register) });
            pointer = object.as_ndk();
            Place::Mr(self.table.insert(MrCore { object, pd, registered: None }))
        });
        Context::new(pointer.cast())
    }

    fn get(&mut self, cx: &Cx, id: ObjectId) -> Option<&mut MrCore> {
        self.table.get_mut(cx.lifetimes.place(id)?.mr()?)
    }

    pub(crate) fn register(&mut self, cx: &mut Cx, id: ObjectId, what: Register) -> NTSTATUS {
        self.get(cx, id).map_or(STATUS_INVALID_PARAMETER, |mr| mr.register(cx, what))
    }

    pub(crate) fn deregister(&mut self, cx: &mut Cx, id: ObjectId) -> NTSTATUS {
        self.get(cx, id).map_or(STATUS_INVALID_PARAMETER, |mr| mr.deregister(cx))
    }

    pub(crate) fn initialize(&mut self, cx: &mut Cx, id: ObjectId, what: Initialize) -> NTSTATUS {
        self.get(cx, id).map_or(STATUS_INVALID_PARAMETER, |mr| mr.initialize(cx, what))
    }

    pub(crate) fn close(&mut self, cx: &mut Cx, key: MrKey) {
        if let Some(mr) = self.table.get_mut(key) {
            mr.close(cx);
        }
    }

    /// Forgets a closed region.
    pub(crate) fn remove(&mut self, key: MrKey) {
        self.table.remove(key);
    }
}

impl Creation for CreateMr {
    type Objects<'a> = (&'a Pds, &'a mut Mrs);

    fn create(
        self,
        cx: &mut Cx,
        pd: ObjectId,
        (pds, mrs): (&Pds, &mut Mrs),
    ) -> Result<Context, NTSTATUS> {
        Ok(mrs.create(cx, pds.member(cx, pd)?, self.fast_register))
    }
}

impl Request for RegisterMr {
    type Objects<'a> = &'a mut Mrs;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, mrs: &mut Mrs) {
        let status = mrs.register(cx, self.mr, *self.what);
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}

impl Request for DeregisterMr {
    type Objects<'a> = &'a mut Mrs;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, mrs: &mut Mrs) {
        let status = mrs.deregister(cx, self.mr);
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}

impl Request for InitializeFastRegisterMr {
    type Objects<'a> = &'a mut Mrs;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, mrs: &mut Mrs) {
        let status = mrs.initialize(cx, self.mr, *self.what);
        cx.request_done(self.done, status);
    }

    fn refuse(self, cx: &mut Cx) {
        cx.refuse(self.done);
    }
}
