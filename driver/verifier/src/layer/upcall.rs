//! Callbacks of the consumer.

use super::front::{Origin, Record, put_before};
use super::{Call, Layer};
use driver::abi::*;
use std::cell::Cell;
use std::sync::{Arc, OnceLock, Weak};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread runs a callback of a consumer.
pub(crate) fn in_callback() -> bool {
    DEPTH.get() > 0
}

/// A callback that is due.
pub(crate) struct Upcall {
    /// Its type, or the function that it ends.
    pub(crate) name: &'static str,
    pub(crate) object: Option<Arc<Record>>,
    run: Box<dyn FnOnce() + Send>,
}

/// A pointer that goes from one thread to another with what it belongs to.
pub(crate) struct Carried<T>(pub(crate) *mut T);

// SAFETY: the consumer's contexts and the objects that go with them may be used from any thread.
unsafe impl<T> Send for Carried<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Carried<T> {}

impl<T> Carried<T> {
    pub(crate) const fn get(&self) -> *mut T {
        self.0
    }
}

impl Upcall {
    pub(super) fn new(
        name: &'static str,
        object: Option<Arc<Record>>,
        run: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self { name, object, run: Box::new(run) }
    }

    /// Calls the consumer back, on this thread.
    pub(crate) fn run(self) {
        DEPTH.set(DEPTH.get() + 1);
        (self.run)();
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// A callback that the provider may call as long as an object lives.
pub(crate) struct Event {
    layer: Weak<dyn Layer>,
    /// The object that it is about; it comes with the end of the creation.
    pub(super) owner: OnceLock<Weak<Record>>,
    callback: Callback,
    context: Carried<std::ffi::c_void>,
}

#[derive(Clone, Copy)]
enum Callback {
    Cq(NDK_FN_CQ_NOTIFICATION_CALLBACK),
    Connect(NDK_FN_CONNECT_EVENT_CALLBACK),
    Disconnect(NDK_FN_DISCONNECT_EVENT_CALLBACK),
    DisconnectEx(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX),
}

impl Event {
    fn new(call: &Call, callback: Callback, context: PVOID) -> Arc<Self> {
        let layer = Arc::downgrade(&call.layer);
        Arc::new(Self { layer, owner: OnceLock::new(), callback, context: Carried(context) })
    }

    fn owner(&self) -> Option<Arc<Record>> {
        self.owner.get().and_then(Weak::upgrade)
    }

    /// Calls the consumer back, as the layer will have it.
    fn deliver(&self, name: &'static str, run: impl FnOnce(PVOID) + Send + 'static) {
        let context = Carried(self.context.get());
        let upcall = Upcall::new(name, self.owner(), move || run(context.get()));
        match self.layer.upgrade() {
            Some(layer) => layer.deliver(upcall),
            None => upcall.run(),
        }
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident: $Callback:ident as $Variant:ident by $called:ident;)+) => {$(
        $(#[$doc])*
        pub(super) fn $name(call: &Call, callback: &mut Option<$Callback>, context: &mut PVOID) -> Option<Arc<Event>> {
            let event = Event::new(call, Callback::$Variant((*callback)?), *context);
            *callback = Some($called);
            *context = Arc::as_ptr(&event).cast_mut().cast();
            Some(event)
        }
    )+};
}

events! {
    /// Puts a callback of the layer before the notification of a CQ or SRQ.
    notification: NDK_FN_CQ_NOTIFICATION_CALLBACK as Cq by notified;
    /// The same before a connect event.
    connect: NDK_FN_CONNECT_EVENT_CALLBACK as Connect by connecting;
    /// The same before a disconnect event.
    disconnect: NDK_FN_DISCONNECT_EVENT_CALLBACK as Disconnect by disconnected;
    /// The same before a disconnect event of 2.1.
    disconnect_ex: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX as DisconnectEx by disconnected_ex;
}

/// # Safety
/// `context` is an event that its object keeps.
unsafe fn event<'a>(context: PVOID) -> &'a Event {
    // SAFETY: the caller's promise.
    unsafe { &*context.cast_const().cast() }
}

/// # Safety
/// As [`event`].
unsafe extern "system" fn notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: as this function.
    let event = unsafe { event(context) };
    if let Callback::Cq(callback) = event.callback {
        // SAFETY: the consumer's callback with its context.
        event.deliver("the notification", move |context| unsafe { callback(context, status) });
    }
}

/// # Safety
/// As [`event`]; `connector` is new, and the consumer's.
unsafe extern "system" fn connecting(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: as this function.
    let event = unsafe { event(context) };
    let (Callback::Connect(callback), Some(owner)) = (event.callback, event.owner()) else {
        return;
    };
    let layer = Weak::clone(&event.layer);
    // SAFETY: as this function.
    let record = unsafe { put_before(connector.cast(), layer, Origin::MadeBy(&owner)) };
    if let Some(layer) = event.layer.upgrade() {
        layer.incoming(&owner, &record);
    }
    let connector = Carried(record.as_ptr());
    event.deliver("the connect event", move |context| {
        // SAFETY: the consumer's callback with its context and a connector that is its own.
        unsafe { callback(context, connector.get().cast()) }
    });
}

/// # Safety
/// As [`event`].
unsafe extern "system" fn disconnected(context: PVOID) {
    // SAFETY: as this function.
    let event = unsafe { event(context) };
    if let Callback::Disconnect(callback) = event.callback {
        // SAFETY: the consumer's callback with its context.
        event.deliver("the disconnect event", move |context| unsafe { callback(context) });
    }
}

/// # Safety
/// As [`event`].
unsafe extern "system" fn disconnected_ex(context: PVOID, reason: ULONG) {
    // SAFETY: as this function.
    let event = unsafe { event(context) };
    if let Callback::DisconnectEx(callback) = event.callback {
        // SAFETY: the consumer's callback with its context.
        event.deliver("the disconnect event", move |context| unsafe { callback(context, reason) });
    }
}
