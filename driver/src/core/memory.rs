//! Protection domains, memory regions and windows: what has a key.

use super::State;
use super::objects::Kind;
use crate::abi::*;
use crate::ndk::mr::{self, Initialize, MrObject, MrShared, Pages, Register};
use crate::ndk::mw::{self, MwObject, MwShared};
use crate::ndk::pd::{self, PdShared};
use crate::ndk::regions::LOGICAL;
use crate::ndk::{Context, Object, ObjectId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use rocev2::env::RegionId;
use rocev2::ids::Rkey;
use rocev2::mr::{Access, PdId, Registration, Reserve};
use rocev2::qp::work::SendOp;

pub(super) struct MrCore {
    object: Arc<MrObject>,
    pd: PdId,
    registered: Option<(Rkey, RegionId)>,
}

pub(super) struct MwCore {
    object: Arc<MwObject>,
    /// The region that it was bound to last, its antecedent until it is invalidated or closed.
    mr: Option<ObjectId>,
}

impl State {
    pub(super) fn create_pd(&mut self, parent: ObjectId) -> Result<Context, NTSTATUS> {
        let pd = PdId(self.next_pd);
        let privileged = self
            .device
            .reserve(pd, Reserve::Privileged(LOGICAL))
            .ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        self.next_pd = self.next_pd.wrapping_add(1);
        let mut pointer = core::ptr::null_mut();
        self.insert(&[parent], |base| {
            let ndk = NDK_PD::new(base.version, &pd::DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: PdShared { privileged } });
            pointer = object.as_ndk();
            Kind::Pd(object, pd)
        });
        Ok(Context::new(pointer.cast()))
    }

    pub(super) fn pd(&self, id: ObjectId) -> Result<PdId, NTSTATUS> {
        match self.objects.get(id).map(|entry| &entry.kind) {
            Some(Kind::Pd(_, pd)) => Ok(*pd),
            _ => Err(STATUS_INVALID_PARAMETER),
        }
    }

    /// Gives a key up that this core holds.
    pub(super) fn free_key(&mut self, key: Rkey) {
        let freed = self.device.deregister(key);
        debug_assert!(freed.is_ok());
    }

    // ---- regions ------------------------------------------------------------------------------

    pub(super) fn create_mr(
        &mut self,
        parent: ObjectId,
        fast_register: bool,
    ) -> Result<Context, NTSTATUS> {
        let pd = self.pd(parent)?;
        let mut pointer = core::ptr::null_mut();
        self.insert(&[parent], |base| {
            let ndk = NDK_MR::new(base.version, &mr::DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: MrShared::new(pd, fast_register) });
            pointer = object.as_ndk();
            Kind::Mr(MrCore { object, pd, registered: None })
        });
        Ok(Context::new(pointer.cast()))
    }

    fn mr(&mut self, id: ObjectId) -> Option<&mut MrCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Mr(mr)) => Some(mr),
            _ => None,
        }
    }

    pub(super) fn register_mr(&mut self, id: ObjectId, what: Register) -> NTSTATUS {
        let Some(mr) = self.mr(id) else { return STATUS_INVALID_PARAMETER };
        if mr.registered.is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let pd = mr.pd;
        let Register { mapping, base, access } = what;
        let len = mapping.len();
        let region = self.regions.insert(mapping);
        let registration = Registration { pd, region, base, len, access };
        let Some(key) = self.device.register(registration) else {
            self.regions.remove(region);
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        self.tokens.insert(key, id);
        if let Some(mr) = self.mr(id) {
            mr.registered = Some((key, region));
            mr.object.shared.set_token(key, access.contains(Access::LOCAL_WRITE));
        }
        STATUS_SUCCESS
    }

    /// Ends a registration. Windows that are bound to it end with it: refusing instead would leave
    /// the peer its access to memory that the consumer is about to reuse.
    pub(super) fn deregister_mr(&mut self, id: ObjectId) -> NTSTATUS {
        let Some(mr) = self.mr(id) else { return STATUS_INVALID_PARAMETER };
        let Some((key, region)) = mr.registered.take() else { return STATUS_INVALID_DEVICE_STATE };
        mr.object.shared.token.store(0, Ordering::Release);
        self.tokens.remove(&key);
        self.free_key(key);
        self.regions.remove(region);
        STATUS_SUCCESS
    }

    pub(super) fn initialize_mr(&mut self, id: ObjectId, what: Initialize) -> NTSTATUS {
        let Some(mr) = self.mr(id) else { return STATUS_INVALID_PARAMETER };
        let (pd, object) = (mr.pd, Arc::clone(&mr.object));
        if object.shared.pages.get().is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let Initialize { lists, most } = what;
        let Some(key) = self.device.reserve(pd, Reserve::FastRegister(most)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        self.tokens.insert(key, id);
        let regions = self.regions.insert_lists(&lists);
        let set = object.shared.pages.set(Box::new(Pages { key, lists, regions, most }));
        debug_assert!(set.is_ok());
        object.shared.set_token(key, false);
        STATUS_SUCCESS
    }

    /// Ends whatever the region names. Page lists that are queued or in force come back later.
    pub(super) fn close_mr(&mut self, id: ObjectId) {
        let Some(mr) = self.mr(id) else { return };
        let object = Arc::clone(&mr.object);
        if let Some(Pages { key, regions, .. }) = object.shared.pages.get() {
            self.tokens.remove(key);
            self.free_key(*key);
            for &region in regions {
                self.regions.remove(region);
            }
        } else {
            // Not registered is as good.
            let _ = self.deregister_mr(id);
        }
    }

    // ---- windows ------------------------------------------------------------------------------

    pub(super) fn create_mw(&mut self, parent: ObjectId) -> Result<Context, NTSTATUS> {
        let pd = self.pd(parent)?;
        let key = self.device.reserve(pd, Reserve::Window).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let mut pointer = core::ptr::null_mut();
        let id = self.insert(&[parent], |base| {
            let ndk = NDK_MW::new(base.version, &mw::DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: MwShared { pd, key } });
            pointer = object.as_ndk();
            Kind::Mw(MwCore { object, mr: None })
        });
        self.tokens.insert(key, id);
        Ok(Context::new(pointer.cast()))
    }

    pub(super) fn close_mw(&mut self, id: ObjectId) {
        let Some(Kind::Mw(mw)) = self.objects.get(id).map(|entry| &entry.kind) else { return };
        let key = mw.object.shared.key;
        self.tokens.remove(&key);
        self.free_key(key);
    }

    /// A request that concerns a window has been posted: a region becomes the antecedent of the
    /// window that is bound to it, and ceases to be when the window is invalidated or bound anew
    /// (ndkpi, Object Lifetime Requirements).
    pub(super) fn follow_window(&mut self, op: &SendOp) {
        let (window, region) = match op {
            SendOp::Bind(bind) => (bind.window, Some(Rkey::new(bind.region.get()))),
            SendOp::Invalidate(key) => (*key, None),
            _ => return,
        };
        let Some(&id) = self.tokens.get(&window) else { return };
        let new = region.and_then(|region| self.tokens.get(&region)).copied();
        let Some(Kind::Mw(mw)) = self.objects.get_mut(id).map(|entry| &mut entry.kind) else {
            return;
        };
        let old = core::mem::replace(&mut mw.mr, new);
        if old != new {
            if let Some(old) = old {
                self.remove_parent(id, old);
            }
            if let Some(new) = new {
                self.add_parent(id, new);
            }
        }
    }
}
