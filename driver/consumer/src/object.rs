//! An NDK object: its table, and its close.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use driver::abi::*;

use crate::Opener;
use crate::request::Outcome;

/// A C object with a dispatch table, as the declarations of `driver::abi` name it.
///
/// # Safety
/// The type begins with an `NDK_OBJECT_HEADER`.
pub unsafe trait NdkObject {
    /// Its dispatch table.
    type Table: Copy;

    /// The table, read anew for each call: any layer in between may have replaced it.
    ///
    /// # Safety
    /// `this` is an open object.
    unsafe fn table(this: NonNull<Self>) -> Self::Table;

    /// The table's close.
    fn close(table: &Self::Table) -> NDK_FN_CLOSE_OBJECT;
}

macro_rules! objects {
    ($($object:ident, $table:ident, $close:ident;)+) => {$(
        // SAFETY: the layout of the object is asserted where it is declared.
        unsafe impl NdkObject for $object {
            type Table = $table;

            unsafe fn table(this: NonNull<Self>) -> $table {
                // SAFETY: the caller passes an open object.
                let cell = unsafe { &raw const (*this.as_ptr()).Dispatch };
                // SAFETY: nobody replaces the table while a call is made.
                let table = unsafe { std::cell::UnsafeCell::raw_get(cell).read() };
                // SAFETY: a table lives as long as its objects.
                unsafe { table.read() }
            }

            fn close(table: &$table) -> NDK_FN_CLOSE_OBJECT {
                table.$close
            }
        }
    )+};
}

objects! {
    NDK_CQ, NDK_CQ_DISPATCH, NdkCloseCq;
    NDK_PD, NDK_PD_DISPATCH, NdkClosePd;
    NDK_MR, NDK_MR_DISPATCH, NdkCloseMr;
    NDK_MW, NDK_MW_DISPATCH, NdkCloseMw;
    NDK_SRQ, NDK_SRQ_DISPATCH, NdkCloseSrq;
    NDK_QP, NDK_QP_DISPATCH, NdkCloseQp;
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NdkCloseConnector;
    NDK_LISTENER, NDK_LISTENER_DISPATCH, NdkCloseListener;
    NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NdkCloseSharedEndpoint;
}

/// An open object. Its drop closes it and waits until the provider is silent about it.
pub(crate) struct Handle<T: NdkObject> {
    object: NonNull<T>,
    /// Where its adapter comes from.
    opener: Arc<dyn Opener>,
}

// SAFETY: NDK objects may be used from any thread; the wrappers serialize what must be.
unsafe impl<T: NdkObject> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: NdkObject> Sync for Handle<T> {}

impl<T: NdkObject> Handle<T> {
    /// # Safety
    /// `object` is open, and no other code closes it.
    pub(crate) unsafe fn new(object: NonNull<T>, opener: &Arc<dyn Opener>) -> Self {
        Self { object, opener: Arc::clone(opener) }
    }

    pub(crate) const fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    pub(crate) const fn opener(&self) -> &Arc<dyn Opener> {
        &self.opener
    }

    pub(crate) fn table(&self) -> T::Table {
        // SAFETY: open until the drop.
        unsafe { T::table(self.object) }
    }
}

impl<T: NdkObject> Drop for Handle<T> {
    fn drop(&mut self) {
        let outcome = Outcome::<()>::new();
        let context = outcome.context();
        let close = T::close(&self.table());
        // SAFETY: the object is open, and this is its only close.
        let status = unsafe { close(self.as_ptr().cast(), Some(closed), context) };
        if status == STATUS_PENDING {
            // A provider that has ended is silent.
            let _ = outcome.wait(&*self.opener);
        } else {
            // SAFETY: without PENDING the callback never runs, so its reference is ours again.
            drop(unsafe { Outcome::<()>::from_context(context) });
        }
    }
}

impl<T: NdkObject> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.object).finish()
    }
}

/// Closes an object from inside a callback, where waiting is not allowed.
///
/// # Safety
/// `object` is open and not used afterwards.
pub(crate) unsafe fn close_in_callback<T: NdkObject>(object: NonNull<T>) {
    // SAFETY: the caller passes an open object.
    let close = T::close(&unsafe { T::table(object) });
    // SAFETY: as above; the callback ignores its context.
    let _closing = unsafe { close(object.as_ptr().cast(), Some(ignored), std::ptr::null_mut()) };
}

/// # Safety
/// `context` is the reference that the drop of a [`Handle`] gave away; called once.
unsafe extern "system" fn closed(context: PVOID) {
    // SAFETY: as this function.
    unsafe { Outcome::from_context(context) }.set(());
}

/// # Safety
/// Safe with any context: it is not touched.
unsafe extern "system" fn ignored(_context: PVOID) {}
