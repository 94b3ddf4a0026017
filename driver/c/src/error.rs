//! Failures in words, as C programs ask for them afterwards.

use driver::abi::NTSTATUS;
use ndk_consumer::OpenError;
use netadapter_glue::host::SpecError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// The reason why a provider does not start, or a call is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the configuration is NULL, or its size is not that of this library's version")]
    Config,
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    #[error("{0} is not the address of a host")]
    Address(String),
    #[error("{0} is not an address with a port, such as 10.0.0.1:7174")]
    SocketAddress(String),
    #[error("{0} is not a percentage")]
    Percent(&'static str),
    #[error("edge {edge}: {source}")]
    Edge { edge: String, source: SpecError },
    #[error("layers: {0}")]
    Layers(#[from] ndk_verifier::ConfigError),
    #[error(transparent)]
    Host(#[from] OpenError),
    #[error("opening the adapter: {0}")]
    Open(NTSTATUS),
    #[error("open adapter instances: {0}")]
    Busy(usize),
}

/// The names of statuses that programs have asked for, with the zero of C at their ends.
static NAMES: Mutex<BTreeMap<i32, CString>> = Mutex::new(BTreeMap::new());

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps an error for the thread.
pub(crate) fn note(error: &Error) {
    let text = error.to_string().replace('\0', " ");
    let text = CString::new(text).expect("zeros are gone");
    LAST.with(|last| last.replace(text));
}

/// The value, or none and the error is kept for the thread.
pub(crate) fn noted<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(note).ok()
}

/// The text of the thread's last error.
pub(crate) fn last() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// The name of a status, for as long as the process lives; null where it has none.
pub(crate) fn name(status: NTSTATUS) -> *const c_char {
    let Some(name) = status.name() else { return ptr::null() };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let name = names.entry(status.0).or_insert_with(|| CString::new(name).expect("no zeros"));
    // The map keeps it, and moves no more than the pointer to it.
    name.as_ptr()
}
