//! The layer between the consumer and the provider that records what really happens.
//!
//! It does what the layer above a provider may do: it replaces the `Dispatch` of each object by a
//! table of its own before the consumer sees the object, and keeps a note in the header's reserved
//! block: which test the object belongs to. Every slot calls the provider and records the status;
//! every callback is wrapped on its way in, and recorded on its way out.

use crate::matrix::{Matrix, Seen};
use crate::slots;
use driver::Provider;
use driver::abi::*;
use ndk_consumer::Opener;
use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use tests::documented::{CALLBACKS, COMPLETIONS, Delivery};

/// The test that an object belongs to.
#[derive(Debug)]
pub(crate) struct Test {
    name: &'static str,
    matrix: &'static Matrix,
}

thread_local! {
    static CURRENT: Cell<Option<&'static Test>> = const { Cell::new(None) };
}

/// The test `name` begins on this thread.
pub(crate) fn begin(name: &'static str, matrix: &'static Matrix) {
    CURRENT.set(Some(Box::leak(Box::new(Test { name, matrix }))));
}

/// The test of this thread.
fn current() -> &'static Test {
    CURRENT.get().expect("a thread that a test began on")
}

/// A provider whose adapters, and all that comes of them, are recorded.
struct Recorded {
    provider: Arc<Provider>,
    test: &'static Test,
}

/// Opens the adapters of a provider of this thread's test.
pub(crate) fn opener(provider: Arc<Provider>) -> Arc<dyn Opener> {
    Arc::new(Recorded { provider, test: current() })
}

// SAFETY: as the provider's own.
unsafe impl Opener for Recorded {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let adapter = self.provider.open_adapter(version)?;
        slots::wrap(adapter.cast(), self.test);
        Ok(adapter)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller's promise.
        unsafe { self.provider.close_adapter(adapter) };
    }

    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        Opener::keep(&*self.provider, memory);
    }
}

impl Test {
    pub(crate) fn record(
        &self,
        group: &'static str,
        function: &'static str,
        delivery: Delivery,
        status: NTSTATUS,
    ) {
        self.matrix.record(self.name, Seen { group, function, delivery, status });
    }

    fn callback(&self, name: &'static str) {
        self.record(CALLBACKS, name, Delivery::Called, STATUS_SUCCESS);
    }

    /// An entry of a completion queue.
    pub(crate) fn entry(&self, kind: NDK_OPERATION_TYPE, status: NTSTATUS) {
        let name = match kind {
            NdkOperationTypeReceive => "NdkOperationTypeReceive",
            NdkOperationTypeReceiveAndInvalidate => "NdkOperationTypeReceiveAndInvalidate",
            NdkOperationTypeSend => "NdkOperationTypeSend",
            NdkOperationTypeFastRegister => "NdkOperationTypeFastRegister",
            NdkOperationTypeBind => "NdkOperationTypeBind",
            NdkOperationTypeInvalidate => "NdkOperationTypeInvalidate",
            NdkOperationTypeRead => "NdkOperationTypeRead",
            NdkOperationTypeWrite => "NdkOperationTypeWrite",
            _ => "no operation type of the header",
        };
        self.record(COMPLETIONS, name, Delivery::Entry, status);
    }
}

/// The test of an object; of none, the thread's.
///
/// # Safety
/// `object` is null, or not freed and was wrapped.
pub(crate) unsafe fn test_of<T>(object: *mut T) -> &'static Test {
    if object.is_null() {
        return current();
    }
    let header = object.cast::<NDK_OBJECT_HEADER>();
    // SAFETY: the caller's promise.
    let reserved = unsafe { (*header).NdkReserved.get() };
    // SAFETY: written once, before anybody else had the object.
    let note = unsafe { (*reserved).rf[0] };
    assert!(!note.is_null(), "an object that no recorded call has made");
    // SAFETY: the note of `note`, which is leaked.
    unsafe { &*note.cast::<Test>() }
}

/// Puts `table` over the provider's, and the note into the header.
///
/// # Safety
/// `object` is new, of the type of the table, and nobody else has it yet.
pub(crate) unsafe fn replace<T>(
    object: *mut NDK_OBJECT_HEADER,
    dispatch: *mut *const T,
    original: &OnceLock<&'static T>,
    table: &'static T,
    test: &'static Test,
) {
    // SAFETY: the caller's promise.
    let theirs = unsafe { dispatch.read() };
    // SAFETY: tables live for ever.
    let theirs = unsafe { &*theirs };
    let known = original.get_or_init(|| theirs);
    assert!(std::ptr::eq(*known, theirs), "one table for all objects of a type");
    // SAFETY: as above.
    unsafe { dispatch.write(table) };
    // SAFETY: as above; the block is the layer's in between.
    let reserved = unsafe { (*object).NdkReserved.get() };
    // SAFETY: as above.
    unsafe { (*reserved).rf[0] = std::ptr::from_ref(test).cast_mut().cast() };
}

/// A function of a table.
pub(crate) trait Slot {
    const GROUP: &'static str;
    const NAME: &'static str;
    type Function: Copy;

    /// The provider's.
    fn original() -> Self::Function;
}

/// A request on its way. Its callback comes exactly if it is pending, and once. It is leaked: a
/// callback too many must find it.
pub(crate) struct Pending<F> {
    test: &'static Test,
    group: &'static str,
    function: &'static str,
    state: AtomicU8,
    callback: Option<F>,
    context: PVOID,
}

const OPEN: u8 = 0;
const CALLED_BACK: u8 = 1;
const ENDED_INLINE: u8 = 2;

impl<F: Copy> Pending<F> {
    pub(crate) fn new<S: Slot>(
        test: &'static Test,
        callback: Option<F>,
        context: PVOID,
    ) -> &'static Self {
        test.matrix.begin();
        let (group, function, state) = (S::GROUP, S::NAME, AtomicU8::new(OPEN));
        Box::leak(Box::new(Self { test, group, function, state, callback, context }))
    }

    pub(crate) fn as_context(&'static self) -> PVOID {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The call has returned.
    pub(crate) fn returned(&self, status: NTSTATUS) -> NTSTATUS {
        self.test.record(self.group, self.function, Delivery::Inline, status);
        if status != STATUS_PENDING {
            self.end(ENDED_INLINE);
        }
        status
    }

    fn called_back(&self, status: NTSTATUS) {
        self.test.record(self.group, self.function, Delivery::Asynchronous, status);
        self.end(CALLED_BACK);
    }

    fn end(&self, how: u8) {
        let before = self.state.swap(how, Ordering::AcqRel);
        if before == OPEN {
            self.test.matrix.end();
        } else {
            let ends = ["", "by its callback", "inline"];
            let (first, second) = (ends[usize::from(before)], ends[usize::from(how)]);
            self.test.matrix.complain(format!(
                "{}: {} {} ended {first} and again {second}",
                self.test.name, self.group, self.function
            ));
        }
    }
}

pub(crate) unsafe extern "system" fn requested(context: PVOID, status: NTSTATUS) {
    // SAFETY: the context of a request, leaked.
    let pending = unsafe { &*context.cast::<Pending<NDK_FN_REQUEST_COMPLETION>>() };
    pending.test.callback("NDK_FN_REQUEST_COMPLETION");
    pending.called_back(status);
    if let Some(callback) = pending.callback {
        // SAFETY: the consumer's callback and context.
        unsafe { callback(pending.context, status) };
    }
}

pub(crate) unsafe extern "system" fn created(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: the context of a creation, leaked.
    let pending = unsafe { &*context.cast::<Pending<NDK_FN_CREATE_COMPLETION>>() };
    pending.test.callback("NDK_FN_CREATE_COMPLETION");
    pending.called_back(status);
    if status.is_success() {
        slots::wrap(object, pending.test);
    }
    if let Some(callback) = pending.callback {
        // SAFETY: the consumer's callback and context.
        unsafe { callback(pending.context, status, object) };
    }
}

/// A creation has returned.
///
/// # Safety
/// On success `out` holds the new object.
pub(crate) unsafe fn creation_returned<T>(
    pending: &Pending<NDK_FN_CREATE_COMPLETION>,
    status: NTSTATUS,
    out: *mut *mut T,
) -> NTSTATUS {
    if status == STATUS_SUCCESS {
        // SAFETY: the caller's promise.
        slots::wrap(unsafe { out.read() }.cast(), pending.test);
    }
    pending.returned(status)
}

pub(crate) unsafe extern "system" fn closed(context: PVOID) {
    // SAFETY: the context of a close, leaked.
    let pending = unsafe { &*context.cast::<Pending<NDK_FN_CLOSE_COMPLETION>>() };
    pending.test.callback("NDK_FN_CLOSE_COMPLETION");
    pending.called_back(STATUS_SUCCESS);
    if let Some(callback) = pending.callback {
        // SAFETY: the consumer's callback and context.
        unsafe { callback(pending.context) };
    }
}

/// An event callback of the consumer; leaked, as the object may outlive every call.
pub(crate) struct Event<F> {
    test: &'static Test,
    callback: F,
    context: PVOID,
}

/// What goes to the provider in place of a consumer's event callback and its context.
pub(crate) fn event<F>(
    test: &'static Test,
    callback: Option<F>,
    context: PVOID,
    recording: F,
) -> (Option<F>, PVOID) {
    match callback {
        Some(callback) => {
            let event = Box::leak(Box::new(Event { test, callback, context }));
            (Some(recording), std::ptr::from_mut(event).cast())
        }
        None => (None, context),
    }
}

pub(crate) unsafe extern "system" fn cq_notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: the context of a CQ, leaked.
    let event = unsafe { &*context.cast::<Event<NDK_FN_CQ_NOTIFICATION_CALLBACK>>() };
    event.test.record(CALLBACKS, "NDK_FN_CQ_NOTIFICATION_CALLBACK", Delivery::Argument, status);
    // SAFETY: the consumer's callback and context.
    unsafe { (event.callback)(event.context, status) };
}

pub(crate) unsafe extern "system" fn srq_notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: the context of an SRQ, leaked.
    let event = unsafe { &*context.cast::<Event<NDK_FN_SRQ_NOTIFICATION_CALLBACK>>() };
    event.test.record(CALLBACKS, "NDK_FN_SRQ_NOTIFICATION_CALLBACK", Delivery::Argument, status);
    // SAFETY: the consumer's callback and context.
    unsafe { (event.callback)(event.context, status) };
}

pub(crate) unsafe extern "system" fn connecting(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context of a listener, leaked.
    let event = unsafe { &*context.cast::<Event<NDK_FN_CONNECT_EVENT_CALLBACK>>() };
    event.test.callback("NDK_FN_CONNECT_EVENT_CALLBACK");
    slots::wrap(connector.cast(), event.test);
    // SAFETY: the consumer's callback and context.
    unsafe { (event.callback)(event.context, connector) };
}

pub(crate) unsafe extern "system" fn disconnected(context: PVOID) {
    // SAFETY: the context of a connector, leaked.
    let event = unsafe { &*context.cast::<Event<NDK_FN_DISCONNECT_EVENT_CALLBACK>>() };
    event.test.callback("NDK_FN_DISCONNECT_EVENT_CALLBACK");
    // SAFETY: the consumer's callback and context.
    unsafe { (event.callback)(event.context) };
}

pub(crate) unsafe extern "system" fn disconnected_ex(context: PVOID, reason: ULONG) {
    // SAFETY: the context of a connector, leaked.
    let event = unsafe { &*context.cast::<Event<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>>() };
    event.test.callback("NDK_FN_DISCONNECT_EVENT_CALLBACK_EX");
    // SAFETY: the consumer's callback and context.
    unsafe { (event.callback)(event.context, reason) };
}
