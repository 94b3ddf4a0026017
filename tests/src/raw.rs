//! The dispatch tables with as little as possible around them, for tests that close objects when
//! and where no wrapper would.
//!
//! An [`Object`] is a pointer and a promise: nothing here knows whether it is still open. A context
//! that a callback is given more than once is leaked.
#![allow(unsafe_code, reason = "calls through the tables")]

mod verbs;

pub use verbs::{Memory, Post, QpSize};

use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndkperf::Mdl;
use netadapter_glue::Edge;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Long enough for a busy machine; every wait ends by an event.
pub const PATIENCE: Duration = Duration::from_secs(60);

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

macro_rules! closes {
    ($($object:ident: $slot:ident;)+) => {$(
        impl Object<$object> {
            /// Closes it.
            pub fn close(self, then: Then<()>) {
                let context = context(then);
                let object = self.0;
                // SAFETY: the object is open, and so is its table.
                let close = unsafe { (*(*object).Dispatch.get().read()).$slot };
                // SAFETY: as above; the context is for this close.
                let status = unsafe { close(object.cast(), Some(closed), context) };
                if status != STATUS_PENDING {
                    assert_eq!(status, STATUS_SUCCESS, "a close never fails");
                    // SAFETY: not pending: the callback does not come.
                    unsafe { finish(context, ()) };
                }
            }
        }
    )+};
}

closes! {
    NDK_CQ: NdkCloseCq;
    NDK_PD: NdkClosePd;
    NDK_MR: NdkCloseMr;
    NDK_MW: NdkCloseMw;
    NDK_SRQ: NdkCloseSrq;
    NDK_QP: NdkCloseQp;
    NDK_CONNECTOR: NdkCloseConnector;
    NDK_LISTENER: NdkCloseListener;
    NDK_SHARED_ENDPOINT: NdkCloseSharedEndpoint;
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
        let (out, context) = (std::ptr::null_mut(), context(then));
        let status = call!(
            self,
            NdkCreateCq,
            depth,
            Some(notified),
            leak(notify),
            std::ptr::null(),
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
        Gate { pd, _gate: gate }
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

impl Object<NDK_CONNECTOR> {
    /// `NdkConnect`.
    pub fn connect(
        self,
        qp: Object<NDK_QP>,
        local: SocketAddr,
        remote: SocketAddr,
        then: Then<NTSTATUS>,
    ) {
        let context = context(then);
        let (local, remote) = (SOCKADDR_INET::from(local), SOCKADDR_INET::from(remote));
        let status = call!(
            self,
            NdkConnect,
            qp.0,
            local.as_ptr(),
            local.len(),
            remote.as_ptr(),
            remote.len(),
            8,
            8,
            std::ptr::null(),
            0,
            Some(requested),
            context,
        );
        end_request(status, context);
    }

    /// `NdkConnectWithSharedEndpoint`.
    pub fn connect_shared(
        self,
        qp: Object<NDK_QP>,
        endpoint: Object<NDK_SHARED_ENDPOINT>,
        remote: SocketAddr,
        then: Then<NTSTATUS>,
    ) {
        let context = context(then);
        let remote = SOCKADDR_INET::from(remote);
        let status = call!(
            self,
            NdkConnectWithSharedEndpoint,
            qp.0,
            endpoint.0,
            remote.as_ptr(),
            remote.len(),
            8,
            8,
            std::ptr::null(),
            0,
            Some(requested),
            context,
        );
        end_request(status, context);
    }

    /// `NdkCompleteConnect`.
    pub fn complete_connect(self, event: Left, then: Then<NTSTATUS>) {
        let context = context(then);
        let status =
            call!(self, NdkCompleteConnect, Some(left), leak(event), Some(requested), context);
        end_request(status, context);
    }

    /// `NdkAccept`.
    pub fn accept(self, qp: Object<NDK_QP>, event: Left, then: Then<NTSTATUS>) {
        let context = context(then);
        let status = call!(
            self,
            NdkAccept,
            qp.0,
            8,
            8,
            std::ptr::null(),
            0,
            Some(left),
            leak(event),
            Some(requested),
            context,
        );
        end_request(status, context);
    }

    /// `NdkReject`.
    pub fn reject(self) -> NTSTATUS {
        call!(self, NdkReject, std::ptr::null(), 0)
    }

    /// `NdkDisconnect`.
    pub fn disconnect(self, then: Then<NTSTATUS>) {
        let context = context(then);
        let status = call!(self, NdkDisconnect, Some(requested), context);
        end_request(status, context);
    }
}

impl Object<NDK_LISTENER> {
    /// `NdkListen`.
    pub fn listen(self, local: SocketAddr, then: Then<NTSTATUS>) {
        let context = context(then);
        let local = SOCKADDR_INET::from(local);
        let status = call!(self, NdkListen, local.as_ptr(), local.len(), Some(requested), context);
        end_request(status, context);
    }

    /// `NdkControlConnectEvents`.
    pub fn pause(self, pause: bool) {
        call!(self, NdkControlConnectEvents, pause.into());
    }
}

/// A provider with one open adapter.
pub struct Host {
    /// The provider.
    pub provider: Arc<Provider>,
    /// The adapter.
    pub adapter: Object<NDK_ADAPTER>,
    /// Its address.
    pub ip: IpAddr,
}

impl Host {
    /// A provider on `edge`.
    ///
    /// # Panics
    /// For want of threads or descriptors.
    pub fn new(edge: Box<dyn Edge + Send>, ip: &str) -> Self {
        let ip = ip.parse().unwrap();
        let provider = Arc::new(Provider::start(edge, ProviderConfig::new(vec![ip])).unwrap());
        let adapter = Object(provider.open_adapter(NDK_VERSION { Major: 2, Minor: 1 }).unwrap());
        Self { provider, adapter, ip }
    }

    /// A port of it.
    pub const fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// Closes the adapter and checks that nothing is left.
    ///
    /// # Panics
    /// If an object is left.
    pub fn close(self) {
        // SAFETY: opened here, and closed once.
        unsafe { self.provider.close_adapter(self.adapter.0) };
        assert_eq!(self.provider.open_objects(), 0);
    }

    /// Stops the provider in a callback until the gate is dropped.
    pub fn hold(&self) -> Gate {
        self.adapter.hold()
    }
}

/// Keeps a provider inside a callback.
#[derive(Debug)]
pub struct Gate {
    /// What was created for it.
    pub pd: Object<NDK_PD>,
    _gate: mpsc::Sender<()>,
}
