//! A home's request to the poll core for an adapter.

use crate::abi::*;
use alloc::boxed::Box;

/// Gets an open adapter, or NULL where there are no resources for it. It is called in a turn of the core.
pub type Opened = Box<dyn FnOnce(*mut NDK_ADAPTER) + Send>;
