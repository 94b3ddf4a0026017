//! Rules of a core that show inside it alone: what it traces, reserves, asks the platform for, and tells its edge.
#![allow(unsafe_code, reason = "objects are known by their C pointers")]

use super::desk::Desk;
use super::objects::Objects;
use super::{Bench, PollCore, ProviderConfig};
use crate::abi::*;
use crate::adapter::shared::{AdapterObject, VERSION};
use crate::cq;
use crate::cq::request::CreateCq;
use crate::cq::shared::{CqObject, Cqe, PENDING_ANY};
use crate::cx::Cx;
use crate::lane::Lane;
use crate::object::done::RequestDone;
use crate::object::id::{Context, ObjectId, Place};
use crate::pd::request::CreatePd;
use crate::pd::shared::PdObject;
use crate::platform::{Mapped, Platform, Resolve, Resolver, Trace};
use crate::qp;
use crate::qp::request::CreateQp;
use crate::request::{Creation as _, Request as _};
use crate::srq;
use crate::srq::request::{CreateSrq, ModifySrq};
use crate::srq::shared::SrqObject;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use core::task::Waker;
use netadapter_glue::memory::{self, MemoryConfig, MemoryEdge};
use netadapter_glue::{Edge, EdgeError, Link, Received, Slot};
use rocev2::cm::{Connect, Hop, ReadLimits};
use rocev2::env::{Duration, Instant};
use rocev2::ids::Qpn;
use rocev2::wire::Mac;
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

/// The only core of a provider at these addresses, and the other end of its edge.
fn only_core(platform: impl Platform + 'static, addresses: &[IpAddr]) -> (PollCore, MemoryEdge) {
    let (edge, other) = memory::pair(MemoryConfig::default());
    let config = ProviderConfig::new(addresses.to_vec());
    let core = PollCore::new(Box::new(edge), Box::new(platform), config, [0; 32], Waker::noop());
    (core, other)
}

fn desk(core: &mut PollCore) -> &mut Desk {
    let Bench::Desk(desk) = &mut core.bench else { panic!("the first core has the desk") };
    desk
}

/// An open adapter.
fn open(cx: &mut Cx, objects: &mut Objects) -> ObjectId {
    let opened = Arc::new(Mutex::new(ObjectId::default()));
    let place = Arc::clone(&opened);
    let keep = move |adapter: *mut NDK_ADAPTER| {
        // SAFETY: an adapter that was just opened.
        *place.lock().unwrap() = unsafe { AdapterObject::from_ndk(adapter) }.base.id;
    };
    objects.adapters.open(cx, VERSION, Box::new(keep));
    *opened.lock().unwrap()
}

/// For an object whose consumer does not tell several apart.
fn no_context() -> Context {
    Context::new(null_mut())
}

/// A CQ for two completions, and its name.
fn create_cq(cx: &mut Cx, adapter: ObjectId) -> (*mut NDK_CQ, ObjectId) {
    let what = CreateCq { core: 0, depth: 2, notification: unheard, context: no_context() };
    let cq = cq::core::create(cx, adapter, &what).get().cast();
    // SAFETY: a CQ that was just created.
    (cq, unsafe { CqObject::from_ndk(cq) }.base.id)
}

fn create_pd(cx: &mut Cx, objects: &mut Objects, adapter: ObjectId) -> ObjectId {
    let pd = CreatePd.create(cx, adapter, &mut objects.pds).unwrap();
    // SAFETY: a PD that was just created.
    unsafe { PdObject::from_ndk(pd.get().cast()) }.base.id
}

/// The success of a SEND.
fn completion() -> Cqe {
    Cqe {
        status: STATUS_SUCCESS,
        bytes: 0,
        qp_context: no_context(),
        request_context: no_context(),
        operation: NdkOperationTypeSend,
        token: 0,
        error_code: 0,
    }
}

/// Goal: an overrun of a CQ is reported once, however many completions follow.
#[test]
fn an_overrun_is_told_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (mut core, _other) = only_core(Watch(Arc::clone(&told)), &[]);
    let Desk { cx, objects, .. } = desk(&mut core);
    let adapter = open(cx, objects);
    let (_, cq) = create_cq(cx, adapter);
    let cq = cx.lifetimes.place(cq).and_then(Place::cq).unwrap();
    let cqe = completion();
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

/// Takes a turn when it is woken, before the call returns that wakes it: no core is faster.
#[derive(Default)]
struct AtOnce(Mutex<Option<PollCore>>);

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        if let Ok(mut core) = self.0.try_lock()
            && let Some(core) = core.as_mut()
        {
            core.poll(Instant::from_nanos(1));
        }
    }
}

/// A CQ whose notification takes one result, and how many were there.
#[derive(Default)]
struct Taker {
    cq: AtomicPtr<NDK_CQ>,
    taken: AtomicU32,
}

unsafe extern "system" fn take(taker: PVOID, _: NTSTATUS) {
    // SAFETY: what the CQ was created with.
    let taker = unsafe { &*taker.cast::<Taker>() };
    let (cq, mut result) = (taker.cq.load(Ordering::Relaxed), NDK_RESULT::EMPTY);
    // SAFETY: the CQ of this notification, and room for one result.
    let taken = unsafe { (cq::call::DISPATCH.NdkGetCqResults)(cq, &raw mut result, 1) };
    taker.taken.fetch_add(taken, Ordering::Relaxed);
}

/// Goal: a notification finds the completion that it tells of, even where it comes before the call is over that lets it go: one that
/// arms, or one that ends its moderation.
#[test]
fn a_notification_finds_what_it_tells_of() {
    let (edge, _other) = memory::pair(MemoryConfig::default());
    let (platform, config) = (Box::new(Watch(Arc::default())), ProviderConfig::new(Vec::new()));
    let at_once = Arc::new(AtOnce::default());
    let waker = Waker::from(Arc::clone(&at_once));
    let mut core = PollCore::new(Box::new(edge), platform, config, [0; 32], &waker);
    let Desk { cx, objects, .. } = desk(&mut core);
    let adapter = open(cx, objects);
    let taker = Taker::default();
    let context = Context::new((&raw const taker).cast_mut().cast());
    let what = CreateCq { core: 0, depth: 2, notification: take, context };
    let cq = cq::core::create(cx, adapter, &what).get().cast::<NDK_CQ>();
    taker.cq.store(cq, Ordering::Relaxed);
    // SAFETY: a CQ that was just created.
    let id = unsafe { CqObject::from_ndk(cq) }.base.id;
    let key = cx.lifetimes.place(id).and_then(Place::cq).unwrap().key;
    let calls: [&[unsafe fn(*mut NDK_CQ)]; 2] = [&[arm], &[wait_for_two, arm, wait_for_none]];
    for (round, calls) in (1..).zip(calls) {
        let Lane { now, cqs, .. } = desk(&mut core).cx.lane(0);
        assert!(cqs.push(*now, key, 1, core::iter::once((PENDING_ANY, completion()))));
        cqs.tell();
        for call in calls {
            core.announce_sleep(true);
            *at_once.0.lock().unwrap() = Some(core);
            // SAFETY: the CQ is not closed.
            unsafe { call(cq) };
            core = at_once.0.lock().unwrap().take().unwrap();
        }
        assert_eq!(taker.taken.load(Ordering::Relaxed), round);
    }
}

unsafe fn arm(cq: *mut NDK_CQ) {
    // SAFETY: the caller's promise.
    unsafe { (cq::call::DISPATCH.NdkArmCq)(cq, NDK_CQ_NOTIFY_ANY) };
}

unsafe fn wait_for_two(cq: *mut NDK_CQ) {
    // SAFETY: the caller's promise.
    let status = unsafe { (cq::call::DISPATCH.NdkControlCqInterruptModeration)(cq, MAXULONG, 2) };
    assert_eq!(status, STATUS_SUCCESS);
}

unsafe fn wait_for_none(cq: *mut NDK_CQ) {
    // SAFETY: the caller's promise.
    let status = unsafe { (cq::call::DISPATCH.NdkControlCqInterruptModeration)(cq, 0, 0) };
    assert_eq!(status, STATUS_SUCCESS);
}

/// Goal: the trace has faults, and no request that its consumer cancels.
#[test]
fn a_flush_is_not_traced() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (mut core, _other) = only_core(Watch(Arc::clone(&told)), &[]);
    let Desk { cx, objects, .. } = desk(&mut core);
    let adapter = open(cx, objects);
    let ((results, cq), pd) = (create_cq(cx, adapter), create_pd(cx, objects, adapter));
    let what = CreateQp {
        receive_cq: cq,
        initiator_cq: cq,
        srq: None,
        context: no_context(),
        receive_depth: 1,
        initiator_depth: 1,
        receive_sge: 1,
        initiator_sge: 1,
        inline_len: 0,
    };
    let new = what.create(cx, pd, &objects.pds).unwrap().get().cast();
    // SAFETY: a QP that was just created.
    let posted = unsafe { (qp::call::DISPATCH.NdkReceive)(new, null_mut(), null(), 0) };
    assert_eq!(posted, STATUS_SUCCESS);
    // SAFETY: as above.
    unsafe { (qp::call::DISPATCH.NdkFlush)(new) };
    core.poll(Instant::from_nanos(1));
    let mut result = NDK_RESULT::EMPTY;
    // SAFETY: a CQ that was just created, and room for one result.
    let count = unsafe { (cq::call::DISPATCH.NdkGetCqResults)(results, &raw mut result, 1) };
    assert_eq!((count, result.Status), (1, STATUS_CANCELLED));
    assert!(told.lock().unwrap().is_empty());
}

/// Goal: an SRQ of one of several cores takes the room for completions on other cores that its depth needs, whatever that was
/// before, and leaves none behind.
#[test]
fn an_srq_leaves_no_room_behind() {
    let (first, _other) = memory::pair(MemoryConfig::default());
    let (second, _another) = memory::pair(MemoryConfig::default());
    let edges: Vec<Box<dyn Edge + Send>> = vec![Box::new(first), Box::new(second)];
    let (platform, config) = (Box::new(Watch(Arc::default())), ProviderConfig::new(Vec::new()));
    let wakers = [(); 2].map(|()| Waker::noop().clone());
    let mut cores = PollCore::several(edges, platform, config, [0; 32], &wakers);
    let Desk { cx, objects, .. } = desk(&mut cores[0]);
    let adapter = open(cx, objects);
    let pd = create_pd(cx, objects, adapter);
    let what = CreateSrq {
        core: 1,
        depth: 4,
        max_sge: 1,
        threshold: 0,
        notification: None,
        context: no_context(),
    };
    let srq = what.create(cx, pd, &objects.pds).unwrap();
    // SAFETY: an SRQ that was just created.
    let srq = unsafe { SrqObject::from_ndk(srq.get().cast()) }.base.id;
    let room = |cx: &mut Cx| cx.lane(1).cqs.room_bytes(0);
    let of_four = room(cx);
    for (depth, times) in [(8, 2), (4, 1), (16, 4)] {
        let done = RequestDone::new(Some(unheard), null_mut()).unwrap();
        ModifySrq { srq, depth, threshold: 0, done }.run(cx, ());
        assert_eq!(room(cx), times * of_four);
    }
    let at = cx.lifetimes.place(srq).and_then(Place::srq).unwrap();
    srq::core::remove(cx, at);
    assert!(of_four > 0 && room(cx) == 0);
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

/// Keeps the neighbours that it is asked to look at.
struct Looks(Arc<Mutex<Vec<IpAddr>>>);

impl Platform for Looks {
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn map(&self, _mdl: &MDL) -> Option<Mapped> {
        None
    }

    fn resolve(&self, _local: IpAddr, remote: IpAddr, how: Resolve) -> Resolver {
        if matches!(how, Resolve::Look) {
            self.0.lock().unwrap().push(remote);
        }
        Resolver::Platform
    }
}

/// Goal: however many paths are in use, the operating system is asked for each of them again and again, some in a second.
#[test]
fn each_path_is_looked_at_again_and_again() {
    let looks = Arc::new(Mutex::new(Vec::new()));
    let own = IpAddr::from([10, 0, 0, 1]);
    let (mut core, _other) = only_core(Looks(Arc::clone(&looks)), &[own]);
    let Cx { device, paths, shard, .. } = &mut desk(&mut core).cx;
    let hop = Hop { src_mac: Mac([2; 6]), dst_mac: Mac([4; 6]), vlan: None };
    let remotes: Vec<_> = (0..40).map(|last| IpAddr::from([10, 0, 1, last])).collect();
    for (port, remote) in (1000..).zip(&remotes) {
        let connect = Connect {
            qpn: Qpn::new(u32::from(port)),
            local: SocketAddr::new(own, port),
            remote: SocketAddr::new(*remote, 7),
            hop,
            limits: ReadLimits { inbound: 1, outbound: 1 },
            private_data: &[],
        };
        device.connect(Instant::from_nanos(0), &connect).expect("there is room");
    }
    for halves in 2..14 {
        paths.follow(Instant::from_nanos(0) + Duration::from_millis(500) * halves, device, shard);
    }
    let mut looks = core::mem::take(&mut *looks.lock().unwrap());
    looks.sort();
    let twice: Vec<_> = remotes.iter().flat_map(|remote| [*remote; 2]).collect();
    assert_eq!(looks, twice, "in six seconds");
}
