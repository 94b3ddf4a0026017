//! A home's request to the poll core for an adapter.

use crate::abi::*;
use alloc::boxed::Box;

/// Opens an adapter instance at a version.
pub(crate) struct OpenAdapter {
    pub(crate) version: NDK_VERSION,
    pub(crate) opened: Opened,
}

/// Gets an open adapter, or NULL where there are no resources for it. It is called in a turn of the core.
pub type Opened = Box<dyn FnOnce(*mut NDK_ADAPTER) + Send>;
