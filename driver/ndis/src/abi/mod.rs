//! The declarations of NDIS 6, the kernel and IP Helper, as far as this driver uses them, together with the
//! C side of NDK (`ndk_abi`).
//!
//! Names, order and layout are those of the headers; every size and offset is asserted at compile time.
//! Each structure has one declaration: MDLs and net buffers are in the edge (`netadapter_glue::ndis::abi`),
//! which walks them.
#![allow(unsafe_code, reason = "raw pointers of a C interface")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(missing_docs, reason = "members are documented by the pages of the C headers")]

#[cfg(all(windows, target_env = "msvc"))]
pub(crate) mod imports;
mod io;
#[cfg(all(windows, target_env = "msvc"))]
mod kernel;
mod ndis;
mod ndk;
mod netio;
mod ntos;
mod offload;
mod pcw;
mod qos;
mod rss;

pub use io::*;
pub use ndis::*;
pub use ndk::*;
pub use ndk_abi::*;
pub use netadapter_glue::ndis::abi::{NET_BUFFER, NET_BUFFER_LIST};
pub use netio::*;
pub use ntos::*;
pub use offload::*;
pub use pcw::*;
pub use qos::*;
pub use rss::*;
