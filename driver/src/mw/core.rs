//! Memory windows, for the poll core.

use super::call::DISPATCH;
use super::request::CreateMw;
use super::shared::{MwObject, MwShared};
use crate::abi::*;
use crate::cx::{Cx, growth};
use crate::object::id::{Context, MwKey, ObjectId, Place};
use crate::object::shared::Object;
use crate::pd::core::Pds;
use crate::request::Creation;
use alloc::sync::Arc;
use rocev2::ids::Rkey;
use rocev2::mr::{PdId, Reserve};
use rocev2::qp::SendOp;
use slotmap::SlotMap;

/// The memory windows.
#[derive(Default)]
pub(crate) struct Mws {
    table: SlotMap<MwKey, Arc<MwObject>>,
}

impl Mws {
    /// How many there are, and the memory that one more may take.
    pub(crate) fn growth(&self) -> (usize, usize) {
        (self.table.len(), growth(&self.table))
    }

    pub(crate) fn create(
        &mut self,
        cx: &mut Cx,
        (parent, pd): (ObjectId, PdId),
    ) -> Result<Context, NTSTATUS> {
        let key = cx.device.reserve(pd, Reserve::Window).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let mut pointer = core::ptr::null_mut();
        let id = cx.insert(&[parent], |base| {
            let ndk = NDK_MW::new(base.version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: MwShared { pd, key } });
            pointer = object.as_ndk();
            Place::Mw(self.table.insert(object))
        });
        cx.tokens.insert(key, id);
        Ok(Context::new(pointer.cast()))
    }

    pub(crate) fn close(&mut self, cx: &mut Cx, key: MwKey) {
        let Some(mw) = self.table.get(key) else { return };
        let key = mw.shared.key;
        cx.tokens.remove(&key);
        cx.free_key(key);
    }

    /// Forgets a closed window.
    pub(crate) fn remove(&mut self, key: MwKey) {
        self.table.remove(key);
    }
}

impl Creation for CreateMw {
    type Objects<'a> = (&'a Pds, &'a mut Mws);

    fn create(
        self,
        cx: &mut Cx,
        pd: ObjectId,
        (pds, mws): (&Pds, &mut Mws),
    ) -> Result<Context, NTSTATUS> {
        mws.create(cx, pds.member(cx, pd)?)
    }
}

/// A request that concerns a window has been posted: a region becomes the antecedent of the
/// window that is bound to it, and ceases to be when the window is invalidated or bound anew
/// (ndkpi, Object Lifetime Requirements).
pub(crate) fn follow(cx: &mut Cx, op: &SendOp) {
    let (window, region) = match op {
        SendOp::Bind(bind) => (bind.window, Some(Rkey::new(bind.region.get()))),
        SendOp::Invalidate(key) => (*key, None),
        _ => return,
    };
    let Some(&id) = cx.tokens.get(&window) else { return };
    let region = region.and_then(|region| cx.tokens.get(&region)).copied();
    // The token of an invalidation may be a fast-register region's.
    if cx.lifetimes.place(id).and_then(Place::mw).is_some() {
        cx.bind(id, region);
    }
}
