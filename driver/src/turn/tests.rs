//! The core's trace events of queues, and what it tells its edge.
#![allow(unsafe_code, reason = "objects are known by their C pointers")]

use super::desk::Desk;
use super::{Bench, PollCore, ProviderConfig};
use crate::abi::*;
use crate::adapter::shared::{AdapterObject, VERSION};
use crate::cq;
use crate::cq::request::CreateCq;
use crate::cq::shared::{CqObject, Cqe, PENDING_ANY};
use crate::lane::Lane;
use crate::object::id::{Context, ObjectId, Place};
use crate::platform::{Mapped, Platform, Trace};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::task::Waker;
use netadapter_glue::memory::{self, MemoryConfig, MemoryEdge};
use netadapter_glue::{Edge, EdgeError, Link, Received, Slot};
use rocev2::env::Instant;
use std::string::String;
use std::sync::Mutex;

/// Keeps the events, as text.
struct Watch(Arc<Mutex<Vec<String>>>);

impl Platform for Watch {
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn map(&self, _mdl: &MDL) -> Option<Mapped> {
        None
    }

    fn trace(&self, event: &Trace<'_>) {
        self.0.lock().unwrap().push(std::format!("{event:?}"));
    }
}

unsafe extern "system" fn unheard(_: PVOID, _: NTSTATUS) {}

/// Goal: an overrun of a CQ is reported once, however many completions follow.
#[test]
fn an_overrun_is_told_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (edge, _other) = memory::pair(MemoryConfig::default());
    let platform = Box::new(Watch(Arc::clone(&told)));
    let config = ProviderConfig::new(Vec::new());
    let mut core = PollCore::new(Box::new(edge), platform, config, [0; 32], Waker::noop());
    let Bench::Desk(desk) = &mut core.bench else { panic!("the only core has the desk") };
    let Desk { cx, objects, .. } = &mut **desk;
    let opened = Arc::new(Mutex::new(ObjectId::default()));
    let place = Arc::clone(&opened);
    let keep = move |adapter: *mut NDK_ADAPTER| {
        // SAFETY: an adapter that was just opened.
        *place.lock().unwrap() = unsafe { AdapterObject::from_ndk(adapter) }.base.id;
    };
    objects.adapters.open(cx, VERSION, Box::new(keep));
    let context = Context::new(core::ptr::null_mut());
    let what = CreateCq { core: 0, depth: 2, notification: unheard, context };
    let cq = cq::core::create(cx, *opened.lock().unwrap(), &what);
    // SAFETY: a CQ that was just created.
    let cq = unsafe { CqObject::from_ndk(cq.get().cast()) }.base.id;
    let cq = cx.lifetimes.place(cq).and_then(Place::cq).unwrap();
    let cqe = Cqe {
        status: STATUS_SUCCESS,
        bytes: 0,
        qp_context: what.context,
        request_context: what.context,
        operation: NdkOperationTypeSend,
        token: 0,
        error_code: 0,
    };
    let Lane { now, shard, cqs, .. } = cx.lane(0);
    let mut push = |most| {
        let mut entries = core::iter::repeat_n((PENDING_ANY, cqe), 2);
        (cqs.push(*now, cq.key, most, entries.by_ref()), entries.len())
    };
    assert_eq!(push(2), (true, 0));
    assert_eq!(push(2), (false, 2));
    assert!(told.lock().unwrap().is_empty());
    cqs.overrun(shard, cq.key);
    assert_eq!((cqs.pop_overrun(), cqs.pop_overrun()), (Some(cq), None));
    let entries = core::iter::repeat_n((PENDING_ANY, cqe), 2);
    assert!(cqs.push(*now, cq.key, 2, entries), "no more than once");
    assert_eq!(*told.lock().unwrap(), ["CqOverrun { depth: 2 }"]);
}

/// Addresses, and the UDP port.
type Claim = (Vec<IpAddr>, u16);

/// Keeps the claims.
struct Claims(MemoryEdge, Arc<Mutex<Vec<Claim>>>);

impl Edge for Claims {
    fn link(&self) -> Link {
        self.0.link()
    }

    fn claim(&mut self, addresses: &[IpAddr], udp_port: u16) {
        self.1.lock().unwrap().push((addresses.to_vec(), udp_port));
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        self.0.receive(budget, sink)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        self.0.transmit(budget, fill)
    }
}

/// Goal: the edge knows which frames are the device's alone, from the start on and after a change, and is not told again.
#[test]
fn the_edge_learns_the_addresses() {
    let claims = Arc::new(Mutex::new(Vec::new()));
    let (edge, _other) = memory::pair(MemoryConfig::default());
    let edge = Box::new(Claims(edge, Arc::clone(&claims)));
    let [first, second] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let config = ProviderConfig::new([first].into());
    let platform = Box::new(Watch(Arc::default()));
    let mut core = PollCore::new(edge, platform, config, [0; 32], Waker::noop());
    core.poll(Instant::from_nanos(1));
    assert!(core.shard().set_addresses([second].into(), 0).is_ok());
    for nanos in 2..5 {
        core.poll(Instant::from_nanos(nanos));
    }
    assert_eq!(*claims.lock().unwrap(), [([first].into(), 4791), ([second].into(), 4791)]);
}
