//! The kinds of objects that a flight creates.
#![allow(unsafe_code, reason = "reads the dispatch tables of C objects")]

use core::ptr::NonNull;
use ndk_abi::*;

/// An object of a provider, whose handle may be copied: it is open for as long as its step has not closed it.
#[derive(Debug)]
pub(crate) struct Object<T> {
    object: NonNull<T>,
    /// Its number among the objects of the step.
    pub(crate) place: usize,
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Object<T> {}

impl<T: Kind> Object<T> {
    /// The handle of an open object.
    pub(crate) const fn new(object: NonNull<T>, place: usize) -> Self {
        Self { object, place }
    }

    pub(crate) const fn as_ptr(self) -> *mut T {
        self.object.as_ptr()
    }

    pub(crate) const fn header(self) -> *mut NDK_OBJECT_HEADER {
        self.object.as_ptr().cast()
    }

    pub(crate) fn table(self) -> &'static T::Table {
        // SAFETY: the object is open.
        let object = unsafe { self.object.as_ref() };
        // SAFETY: nobody writes the place while a call is made.
        let table = unsafe { object.table().read() };
        // SAFETY: the table of an open object is valid.
        unsafe { &*table }
    }

    /// The function that closes it.
    pub(crate) fn close(self) -> NDK_FN_CLOSE_OBJECT {
        T::close(self.table())
    }
}

/// An object that a step creates and closes.
pub(crate) trait Kind {
    type Table: 'static;
    /// The name of the function that closes it.
    const CLOSE: &str;

    fn table(&self) -> *const *const Self::Table;
    fn close(table: &Self::Table) -> NDK_FN_CLOSE_OBJECT;
}

macro_rules! kinds {
    ($($object:ident $table:ident $close:ident;)*) => {$(
        impl Kind for $object {
            type Table = $table;
            const CLOSE: &str = stringify!($close);

            fn table(&self) -> *const *const $table {
                self.Dispatch.get()
            }

            fn close(table: &$table) -> NDK_FN_CLOSE_OBJECT {
                table.$close
            }
        }
    )*};
}

kinds! {
    NDK_QP NDK_QP_DISPATCH NdkCloseQp;
    NDK_CQ NDK_CQ_DISPATCH NdkCloseCq;
    NDK_MR NDK_MR_DISPATCH NdkCloseMr;
    NDK_MW NDK_MW_DISPATCH NdkCloseMw;
    NDK_PD NDK_PD_DISPATCH NdkClosePd;
    NDK_SHARED_ENDPOINT NDK_SHARED_ENDPOINT_DISPATCH NdkCloseSharedEndpoint;
    NDK_CONNECTOR NDK_CONNECTOR_DISPATCH NdkCloseConnector;
    NDK_LISTENER NDK_LISTENER_DISPATCH NdkCloseListener;
    NDK_SRQ NDK_SRQ_DISPATCH NdkCloseSrq;
}

/// Calls a function of an open object's table: its arguments follow the object.
macro_rules! call {
    ($object:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let object = $object;
        let function = object.table().$function;
        // SAFETY: the object is open, and so is each that the arguments name; memory that they name lives until the step
        // has ended, and the flight's one thread serializes its calls.
        unsafe { function(object.as_ptr(), $($argument),*) }
    }};
}
pub(crate) use call;
