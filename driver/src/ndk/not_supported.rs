//! The slots that are not implemented yet. This file is the one list of them: a slot that gets its
//! function loses its line here, and the file goes with the last line.

#![allow(unused_variables, reason = "the arguments are part of the type")]

use crate::abi::*;

macro_rules! not_supported {
    ($($name:ident: fn($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            pub(crate) unsafe extern "system" fn $name($($argument: $type),*) -> NTSTATUS {
                STATUS_NOT_SUPPORTED
            }
        )*

        /// The names of the slots, for those who report on them.
        pub const NAMES: &[&str] = &[$(stringify!($name),)*];
    };
}

type Create = Option<NDK_FN_CREATE_COMPLETION>;
type Request = Option<NDK_FN_REQUEST_COMPLETION>;

not_supported! {
    create_shared_endpoint: fn(
        adapter: *mut NDK_ADAPTER, address: *const SOCKADDR, len: ULONG, done: Create, context: PVOID,
        out: *mut *mut NDK_SHARED_ENDPOINT,
    );
    connect_with_shared_endpoint: fn(
        connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP, endpoint: *mut NDK_SHARED_ENDPOINT,
        address: *const SOCKADDR, len: ULONG, inbound: ULONG, outbound: ULONG,
        data: *const core::ffi::c_void, data_len: ULONG, done: Request, context: PVOID,
    );
}
