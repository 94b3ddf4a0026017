//! The upper half: the virtual adapter that TCP/IP and NDK consumers see, and NDIS' miniport calls.
#![expect(non_upper_case_globals, reason = "C names in patterns")]

pub(crate) mod adapter;
pub(crate) mod config;
pub(crate) mod ip;
pub(crate) mod miniport;
pub(crate) mod ndk;
pub(crate) mod oid;
mod qos;
