//! The dispatch tables with as little as possible around them, for tests that close objects when
//! and where no wrapper would.
//!
//! An [`Object`] is a pointer and a promise: nothing here knows whether it is still open. A context
//! that a callback is given more than once is leaked.
#![allow(unsafe_code, reason = "calls through the tables")]

mod connections;
mod verbs;

pub use super::PATIENCE;
pub use verbs::{Memory, Post, QpSize};

use driver::abi::*;
use ndk_consumer::{Mdl, NdkObject, Opener};
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::{Arc, mpsc};

/// An object of the provider, open as far as the test knows.
#[derive(Debug)]
pub struct Object<T>(pub *mut T);

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Object<T> {}

// SAFETY: NDK objects may be used from any thread.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

/// What is called once, when a request ends.
pub type Then<R> = Box<dyn FnOnce(R) + Send>;

/// What a creation ends with.
pub type Created<T> = Result<Object<T>, NTSTATUS>;

/// Makes a request and waits for its end.
///
/// # Panics
/// If it does not end within [`PATIENCE`].
pub fn wait<R: Send + 'static>(request: impl FnOnce(Then<R>)) -> R {
    let pending = start(request);
    pending.recv_timeout(PATIENCE).expect("the request ends")
}

/// Makes a request; its end comes by the channel.
pub fn start<R: Send + 'static>(request: impl FnOnce(Then<R>)) -> mpsc::Receiver<R> {
    let (sender, receiver) = mpsc::channel();
    request(Box::new(move |result| {
        // A test that does not wait has dropped the receiver.
        let _ = sender.send(result);
    }));
    receiver
}

fn context<R>(then: Then<R>) -> PVOID {
    Box::into_raw(Box::new(then)).cast()
}

/// # Safety
/// `context` came from [`context`] with the same type, and is passed here once.
unsafe fn finish<R>(context: PVOID, result: R) {
    // SAFETY: the caller's promise.
    let then = unsafe { Box::from_raw(context.cast::<Then<R>>()) };
    then(result);
}

unsafe extern "system" fn created<T>(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    let result = if status.is_success() { Ok(Object(object.cast())) } else { Err(status) };
    // SAFETY: the context of one creation of this type.
    unsafe { finish::<Created<T>>(context, result) };
}

unsafe extern "system" fn requested(context: PVOID, status: NTSTATUS) {
    // SAFETY: the context of one request.
    unsafe { finish(context, status) };
}

unsafe extern "system" fn closed(context: PVOID) {
    // SAFETY: the context of one close.
    unsafe { finish(context, ()) };
}

/// Called at every notification of a CQ.
pub type Notify = Box<dyn Fn(NTSTATUS) + Send + Sync>;
/// Called at every connect event of a listener.
pub type Incoming = Box<dyn Fn(Object<NDK_CONNECTOR>) + Send + Sync>;
/// Called at the disconnect event of a connector.
pub type Left = Box<dyn Fn() + Send + Sync>;

fn leak<T>(callback: T) -> PVOID {
    std::ptr::from_ref(Box::leak(Box::new(callback))).cast_mut().cast()
}

unsafe extern "system" fn notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: the leaked context of a CQ.
    let callback = unsafe { &*context.cast::<Notify>() };
    callback(status);
}

unsafe extern "system" fn connecting(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the leaked context of a listener.
    let callback = unsafe { &*context.cast::<Incoming>() };
    callback(Object(connector));
}

unsafe extern "system" fn left(context: PVOID) {
    // SAFETY: the leaked context of a connector.
    let callback = unsafe { &*context.cast::<Left>() };
    callback();
}

/// Calls a slot of an object's table: `call!(object, NdkSlot, arguments)`.
#[macro_export]
macro_rules! call {
    ($object:expr, $slot:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        $crate::call_on!(object, object.0, $slot $(, $argument)*)
    }};
}

/// Calls a slot of the table of `$table` on `$on`, which may be something else.
#[macro_export]
macro_rules! call_on {
    ($table:expr, $on:expr, $slot:ident $(, $argument:expr)* $(,)?) => {{
        // SAFETY: the object is open.
        let dispatch = unsafe { (*$table.0).Dispatch.get() };
        // SAFETY: nobody replaces the table meanwhile.
        let table = unsafe { dispatch.read() };
        // SAFETY: tables live for ever.
        let slot = unsafe { (*table).$slot };
        // SAFETY: the arguments are as the contract wants them, or as a test wants them.
        unsafe { slot($on $(, $argument)*) }
    }};
}

pub(crate) use call;

impl<T: NdkObject> Object<T> {
    /// Closes it by its own table; the completion is `done`, called with `context` where the close pends.
    pub(crate) fn close_by(self, done: NDK_FN_CLOSE_COMPLETION, context: PVOID) -> NTSTATUS {
        let object = NonNull::new(self.0).expect("an object");
        // SAFETY: the object is open, and so is its table.
        let table = unsafe { T::table(object) };
        // SAFETY: as above; the context is for this close.
        unsafe { T::close(&table)(self.0.cast(), Some(done), context) }
    }

    /// Closes it.
    pub fn close(self, then: Then<()>) {
        let context = context(then);
        let status = self.close_by(closed, context);
        if status != STATUS_PENDING {
            assert_eq!(status, STATUS_SUCCESS, "a close never fails");
            // SAFETY: not pending: the callback does not come.
            unsafe { finish(context, ()) };
        }
    }
}

fn end_creation<T>(status: NTSTATUS, context: PVOID) {
    if status != STATUS_PENDING {
        assert!(!status.is_success(), "this provider creates later");
        // SAFETY: not pending: the callback does not come.
        unsafe { finish::<Created<T>>(context, Err(status)) };
    }
}

fn end_request(status: NTSTATUS, context: PVOID) {
    if status != STATUS_PENDING {
        // SAFETY: not pending: the callback does not come.
        unsafe { finish(context, status) };
    }
}

/// Makes a request by a call that takes a completion and its context; its end comes by the channel.
pub fn request(
    call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS,
) -> mpsc::Receiver<NTSTATUS> {
    start(|then| {
        let context = context(then);
        end_request(call(Some(requested), context), context);
    })
}

/// Creates by a call that takes a completion and its context, and waits for the object.
///
/// # Panics
/// If none comes within [`PATIENCE`].
pub fn create<T: 'static>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, PVOID) -> NTSTATUS,
) -> Created<T> {
    wait(|then| {
        let context = context(then);
        end_creation::<T>(call(Some(created::<T>), context), context);
    })
}

impl Object<NDK_ADAPTER> {
    /// `NdkCreateCq`.
    pub fn create_cq(self, depth: u32, notify: Notify, then: Then<Created<NDK_CQ>>) {
        self.create_cq_near(0, depth, notify, then);
    }

    /// The same near these processors of the first group.
    pub fn create_cq_near(
        self,
        processors: usize,
        depth: u32,
        notify: Notify,
        then: Then<Created<NDK_CQ>>,
    ) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let near = GROUP_AFFINITY { Mask: processors, ..GROUP_AFFINITY::default() };
        let status = call!(
            self,
            NdkCreateCq,
            depth,
            Some(notified),
            leak(notify),
            &raw const near,
            Some(created::<NDK_CQ>),
            context,
            out,
        );
        end_creation::<NDK_CQ>(status, context);
    }

    /// `NdkCreatePd`.
    pub fn create_pd(self, then: Then<Created<NDK_PD>>) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let status = call!(self, NdkCreatePd, Some(created::<NDK_PD>), context, out);
        end_creation::<NDK_PD>(status, context);
    }

    /// `NdkCreateConnector`.
    pub fn create_connector(self, then: Then<Created<NDK_CONNECTOR>>) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let done = Some(created::<NDK_CONNECTOR> as _);
        let status = call!(self, NdkCreateConnector, done, context, out);
        end_creation::<NDK_CONNECTOR>(status, context);
    }

    /// `NdkCreateSharedEndpoint`.
    pub fn share(self, local: SocketAddr, then: Then<Created<NDK_SHARED_ENDPOINT>>) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let local = SOCKADDR_INET::from(local);
        let done = Some(created::<NDK_SHARED_ENDPOINT> as _);
        let (address, len) = (local.as_ptr(), local.len());
        let status = call!(self, NdkCreateSharedEndpoint, address, len, done, context, out);
        end_creation::<NDK_SHARED_ENDPOINT>(status, context);
    }

    /// Stops the provider in a callback until the gate is dropped.
    ///
    /// # Panics
    /// If the callback does not come.
    pub fn hold(self) -> Gate {
        let (gate, opened) = mpsc::channel::<()>();
        let (sender, held) = mpsc::channel();
        self.create_pd(Box::new(move |pd| {
            sender.send(pd).unwrap();
            // Ends when the gate is dropped.
            let _ = opened.recv();
        }));
        let pd = held.recv_timeout(PATIENCE).expect("the callback comes").unwrap();
        Gate { pd, gate: Some(gate) }
    }

    /// `NdkCreateListener`.
    pub fn create_listener(self, incoming: Incoming, then: Then<Created<NDK_LISTENER>>) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let status = call!(
            self,
            NdkCreateListener,
            Some(connecting),
            leak(incoming),
            Some(created::<NDK_LISTENER>),
            context,
            out,
        );
        end_creation::<NDK_LISTENER>(status, context);
    }
}

impl Object<NDK_PD> {
    /// `NdkCreateMr`, for `NdkRegisterMr`.
    pub fn create_mr(self, then: Then<Created<NDK_MR>>) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let status = call!(self, NdkCreateMr, FALSE, Some(created::<NDK_MR>), context, out);
        end_creation::<NDK_MR>(status, context);
    }

    /// `NdkCreateQp` with `depth` requests and one element each way.
    pub fn create_qp(self, cq: Object<NDK_CQ>, depth: u32, then: Then<Created<NDK_QP>>) {
        let (out, context) = (std::ptr::null_mut(), context(then));
        let status = call!(
            self,
            NdkCreateQp,
            cq.0,
            cq.0,
            std::ptr::null_mut(),
            depth,
            depth,
            1,
            1,
            0,
            Some(created::<NDK_QP>),
            context,
            out,
        );
        end_creation::<NDK_QP>(status, context);
    }
}

impl Object<NDK_MR> {
    /// `NdkRegisterMr` of a whole buffer for everything.
    pub fn register(self, mdl: &mut Mdl, len: usize, then: Then<NTSTATUS>) {
        let context = context(then);
        let flags = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        let mdl = mdl.as_mut_ptr();
        let status = call!(self, NdkRegisterMr, mdl, len, flags, Some(requested), context);
        end_request(status, context);
    }

    /// `NdkDeregisterMr`.
    pub fn deregister(self, then: Then<NTSTATUS>) {
        let context = context(then);
        let status = call!(self, NdkDeregisterMr, Some(requested), context);
        end_request(status, context);
    }

    /// `NdkGetLocalTokenFromMr`; the remote one is the same.
    pub fn token(self) -> u32 {
        call!(self, NdkGetLocalTokenFromMr)
    }
}

impl Object<NDK_CQ> {
    /// `NdkArmCq` for any completion.
    pub fn arm(self) {
        call!(self, NdkArmCq, NDK_CQ_NOTIFY_ANY);
    }

    /// `NdkResizeCq`.
    pub fn resize(self, depth: u32, then: Then<NTSTATUS>) {
        let context = context(then);
        let status = call!(self, NdkResizeCq, depth, Some(requested), context);
        end_request(status, context);
    }

    /// `NdkControlCqInterruptModeration`.
    pub fn moderate(self, interval_us: u32, count: u32) -> NTSTATUS {
        call!(self, NdkControlCqInterruptModeration, interval_us, count)
    }

    /// `NdkGetCqResults`.
    pub fn results(self, results: &mut [NDK_RESULT]) -> usize {
        call!(self, NdkGetCqResults, results.as_mut_ptr(), results.len() as u32) as usize
    }
}

impl Object<NDK_QP> {
    /// `NdkReceive`.
    pub fn receive(self, id: usize, sgl: &[NDK_SGE]) -> NTSTATUS {
        let (id, count) = (std::ptr::without_provenance_mut(id), sgl.len() as u32);
        call!(self, NdkReceive, id, sgl.as_ptr(), count)
    }

    /// `NdkSend`.
    pub fn send(self, id: usize, sgl: &[NDK_SGE]) -> NTSTATUS {
        let (id, count) = (std::ptr::without_provenance_mut(id), sgl.len() as u32);
        call!(self, NdkSend, id, sgl.as_ptr(), count, 0)
    }

    /// `NdkWrite`.
    pub fn write(self, id: usize, sgl: &[NDK_SGE], address: u64, token: u32) -> NTSTATUS {
        let (id, count) = (std::ptr::without_provenance_mut(id), sgl.len() as u32);
        call!(self, NdkWrite, id, sgl.as_ptr(), count, address, token, 0)
    }

    /// `NdkRead`.
    pub fn read(self, id: usize, sgl: &[NDK_SGE], address: u64, token: u32) -> NTSTATUS {
        let (id, count) = (std::ptr::without_provenance_mut(id), sgl.len() as u32);
        call!(self, NdkRead, id, sgl.as_ptr(), count, address, token, 0)
    }

    /// `NdkFlush`.
    pub fn flush(self) {
        call!(self, NdkFlush);
    }
}

/// An adapter instance that its drop closes.
pub struct Instance {
    /// The adapter.
    pub adapter: Object<NDK_ADAPTER>,
    opener: Arc<dyn Opener>,
}

impl Instance {
    /// Opens one.
    pub(super) fn open(opener: Arc<dyn Opener>, version: NDK_VERSION) -> Result<Self, NTSTATUS> {
        Ok(Self { adapter: Object(opener.open(version)?), opener })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A test that failed may have left objects open, for which this would wait for ever.
        if !std::thread::panicking() {
            // SAFETY: opened by it, and closed once.
            unsafe { self.opener.close(self.adapter.0) };
        }
    }
}

/// Keeps a provider inside a callback until the drop.
#[derive(Debug)]
pub struct Gate {
    /// What was created for it.
    pd: Object<NDK_PD>,
    gate: Option<mpsc::Sender<()>>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        drop(self.gate.take());
        if !std::thread::panicking() {
            wait(|then| self.pd.close(then));
        }
    }
}
