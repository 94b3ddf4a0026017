//! The NDK provider for C programs on Linux.
//!
//! The headers in `include` are the documentation for C: `ndkrocev2.h` is written from `api`, and `ndkpi.h` from the
//! ABI room of the provider. This crate has no wrappers: a consumer calls the dispatch tables.

mod api;
mod error;
mod host;

pub use api::*;

/// A host may have several poll cores.
#[global_allocator]
static ALLOCATOR: driver::OwnLines = driver::OwnLines;
