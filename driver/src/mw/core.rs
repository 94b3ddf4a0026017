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
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
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
        cx.for_each_lane(|lane| lane.windows.make_room(windows));
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

/// Requests of a core that concern windows, for the desk to [`follow`]; of each window the last.
pub(crate) struct Windows {
    /// In their order, each with its place in that of all cores: a consumer may bind a window by a queue pair of one core once
    /// its invalidation by one of another has completed.
    noted: VecDeque<(u64, SendOp)>,
    order: Arc<AtomicU64>,
}

impl Windows {
    /// None so far; all cores of an adapter have the same `order`.
    pub(crate) const fn new(order: Arc<AtomicU64>) -> Self {
        Self { noted: VecDeque::new(), order }
    }

    /// Makes room for a request of each of so many windows.
    fn make_room(&mut self, windows: usize) {
        self.noted.reserve(windows.saturating_sub(self.noted.len()));
    }

    /// Notes a request that is seen now.
    pub(crate) fn note(&mut self, op: SendOp) {
        let window = window_of(&op);
        if let Some(before) = self.noted.iter().position(|(_, op)| window_of(op) == window) {
            self.noted.remove(before);
        }
        self.noted.push_back((self.order.fetch_add(1, Ordering::Relaxed), op));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// The place of the first request in the order of all cores.
    pub(crate) fn place(&self) -> Option<u64> {
        self.noted.front().map(|&(place, _)| place)
    }

    /// Takes the first request.
    pub(crate) fn take(&mut self) -> Option<SendOp> {
        self.noted.pop_front().map(|(_, op)| op)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what concerns a window is followed in the order in which a consumer can have asked for it, by whatever cores.
    #[test]
    fn requests_are_taken_in_the_order_of_all_cores() {
        let order = Arc::default();
        let mut cores = [0, 1].map(|_| Windows::new(Arc::clone(&order)));
        let keys = [1, 2, 3].map(Rkey::new);
        // The first core saw the first window twice, of which the last request counts; both saw requests in turn.
        for (core, key) in [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (0, 0)] {
            cores[core].note(SendOp::Invalidate(keys[key]));
        }
        let expected = [(0, 1), (1, 0), (0, 2), (1, 1), (0, 0)];
        for (core, key) in expected {
            let first = (0..2).filter_map(|core| Some((cores[core].place()?, core))).min();
            assert_eq!(first.map(|(_, core)| core), Some(core));
            assert_eq!(cores[core].take().and_then(|op| window_of(&op)), Some(keys[key]));
        }
        assert!(cores.iter().all(Windows::is_empty));
    }
}
