//! What the core tells of connections to whoever traces the system.

use super::State;
use crate::ndk::ObjectId;
use crate::platform::{EndedBy, Trace};
use core::net::SocketAddr;
use rocev2::counters::Snapshot;

/// The two ends of a connection: ours, the peer's.
pub(super) type Ends = (SocketAddr, SocketAddr);

impl State {
    pub(super) fn trace(&self, event: &Trace) {
        self.shard.platform.trace(event);
    }

    pub(super) fn trace_connected(&self, ends: Option<Ends>) {
        if let Some((local, remote)) = ends {
            self.trace(&Trace::Connected { local, remote });
        }
    }

    /// With what the QP of the connection counted.
    pub(super) fn trace_disconnected(&self, ends: Option<Ends>, by: EndedBy, qp: Option<ObjectId>) {
        let counted = qp.and_then(|qp| self.qp_counters(qp));
        let totals = counted.map_or(Snapshot::ZERO, |(_, counters)| counters.snapshot());
        if let Some((local, remote)) = ends {
            self.trace(&Trace::Disconnected { local, remote, by, totals });
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "objects are known by their C pointers")]
mod tests {
    use super::*;
    use crate::abi::*;
    use crate::core::{PollCore, ProviderConfig};
    use crate::ndk::Context;
    use crate::ndk::adapter::{AdapterObject, VERSION};
    use crate::ndk::cq::{CqObject, Cqe, CreateCq, NEWS_ANY};
    use crate::platform::{Mapped, Platform};
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use core::task::Waker;
    use netadapter_glue::memory::{self, MemoryConfig};
    use rocev2::env::Instant;
    use std::sync::Mutex;

    /// Keeps what it is told.
    struct Watch(Arc<Mutex<Vec<Trace>>>);

    impl Platform for Watch {
        fn now(&self) -> Instant {
            Instant::from_nanos(0)
        }

        fn map(&self, _mdl: &MDL) -> Option<Mapped> {
            None
        }

        fn trace(&self, event: &Trace) {
            self.0.lock().unwrap().push(*event);
        }
    }

    unsafe extern "system" fn unheard(_: PVOID, _: NTSTATUS) {}

    /// Goal: a CQ that overruns is told of once, however much more comes for it.
    #[test]
    fn an_overrun_is_told_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (edge, _other) = memory::pair(MemoryConfig::default());
        let platform = Box::new(Watch(Arc::clone(&told)));
        let config = ProviderConfig::new(Vec::new());
        let mut core = PollCore::new(Box::new(edge), platform, config, [0; 32], Waker::noop());
        let state = &mut core.state;
        let opened = Arc::new(Mutex::new(ObjectId::default()));
        let place = Arc::clone(&opened);
        let keep = move |adapter: *mut NDK_ADAPTER| {
            // SAFETY: an adapter that was just opened.
            *place.lock().unwrap() = unsafe { AdapterObject::from_ndk(adapter) }.base.id;
        };
        state.open_adapter(VERSION, Box::new(keep));
        let what = CreateCq {
            depth: 2,
            notification: unheard,
            context: Context::new(core::ptr::null_mut()),
        };
        let cq = state.create_cq(*opened.lock().unwrap(), &what);
        // SAFETY: a CQ that was just created.
        let cq = unsafe { CqObject::from_ndk(cq.get().cast()) }.base.id;
        let cqe = Cqe {
            status: STATUS_SUCCESS,
            bytes: 0,
            qp_context: what.context,
            request_context: what.context,
            operation: NdkOperationTypeSend,
            token: 0,
            error_code: 0,
        };
        for _ in 0..2 {
            state.push_cqe(Instant::from_nanos(0), cq, cqe, NEWS_ANY);
        }
        assert_eq!(*told.lock().unwrap(), []);
        for _ in 0..2 {
            state.push_cqe(Instant::from_nanos(0), cq, cqe, NEWS_ANY);
        }
        assert_eq!(*told.lock().unwrap(), [Trace::CqOverrun { depth: 2 }]);
    }
}
