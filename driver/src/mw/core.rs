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
use alloc::vec::Vec;
use rocev2::env::Instant;
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
        let windows = self.table.len();
        cx.for_each_lane(|lane| lane.windows.reserve(windows.saturating_sub(lane.windows.len())));
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

/// Requests that concern windows, with the times at which they were seen; of each window the last of a core.
pub(crate) type Windows = Vec<(Instant, SendOp)>;

/// Keeps a request for the desk to [`follow`]. There is room for one of each window.
pub(crate) fn note(windows: &mut Windows, now: Instant, op: SendOp) {
    let window = window_of(&op);
    match windows.iter_mut().find(|(_, before)| window_of(before) == window) {
        Some(before) => *before = (now, op),
        None => windows.push((now, op)),
    }
}

fn window_of(op: &SendOp) -> Option<Rkey> {
    match op {
        SendOp::Bind(bind) => Some(bind.window),
        SendOp::Invalidate(key) => Some(*key),
        _ => None,
    }
}

/// A request that concerns a window has been posted: a region becomes the antecedent of the
/// window that is bound to it, and ceases to be when the window is invalidated or bound anew
/// (ndkpi, Object Lifetime Requirements).
pub(crate) fn follow(cx: &mut Cx, op: &SendOp) {
    let Some(&id) = window_of(op).and_then(|window| cx.tokens.get(&window)) else { return };
    let region = match op {
        SendOp::Bind(bind) => cx.tokens.get(&Rkey::new(bind.region.get())).copied(),
        _ => None,
    };
    // The key may have gone to another object meanwhile.
    if cx.lifetimes.place(id).and_then(Place::mw).is_some() {
        cx.bind(id, region);
    }
}
