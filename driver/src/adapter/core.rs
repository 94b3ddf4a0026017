//! Adapters, for the poll core.

use super::call::DISPATCH;
use super::request::{OpenAdapter, Opened};
use super::shared::AdapterObject;
use crate::abi::*;
use crate::cx::Cx;
use crate::object::id::{AdapterKey, Place};
use crate::object::shared::Object;
use crate::request::Request;
use alloc::sync::Arc;
use slotmap::SlotMap;

/// The adapters that are open, which are nothing but alive.
#[derive(Default)]
pub(crate) struct Adapters {
    table: SlotMap<AdapterKey, Arc<AdapterObject>>,
}

impl Adapters {
    /// Opens an adapter; null where there is no room for it.
    pub(crate) fn open(&mut self, cx: &mut Cx, version: NDK_VERSION, opened: Opened) {
        if cx.shard.reserve_object().is_err() {
            return opened(core::ptr::null_mut());
        }
        let mut pointer = core::ptr::null_mut();
        cx.insert_at(version, |base| {
            let ndk = NDK_ADAPTER::new(version, &DISPATCH);
            let object = Arc::new(Object { ndk, base, shared: () });
            pointer = object.as_ndk();
            Place::Adapter(self.table.insert(object))
        });
        opened(pointer);
    }

    /// Forgets a closed adapter, and the logical addresses that its consumer has not released.
    pub(crate) fn remove(&mut self, cx: &mut Cx, key: AdapterKey) {
        if let Some(adapter) = self.table.remove(key) {
            cx.for_each_lane(|lane| lane.bytes.lams.forget(adapter.base.id));
        }
    }
}

impl Request for OpenAdapter {
    type Objects<'a> = &'a mut Adapters;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, adapters: &mut Adapters) {
        adapters.open(cx, self.version, self.opened);
    }

    fn refuse(self, _: &mut Cx) {
        (self.opened)(core::ptr::null_mut());
    }
}
