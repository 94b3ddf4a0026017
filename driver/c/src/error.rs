//! Failures in words, as C programs ask for them afterwards.

use driver::abi::NTSTATUS;
use ndk_consumer::OpenError;
use netadapter_glue::host::SpecError;
use std::cell::RefCell;
use std::ffi::{CString, c_char};

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
