//! The slots that are not implemented yet. This file is the one list of them: a slot that gets its
//! function loses its line here, and the file goes with the last line.

#![allow(unused_variables, reason = "the arguments are part of the type")]

use crate::abi::*;

macro_rules! not_supported {
    (
        $($name:ident: fn($($argument:ident: $type:ty),* $(,)?);)*
        => posts: $($post:ident: fn($qp:ident: *mut NDK_QP, $($post_argument:ident: $post_type:ty),*);)*
    ) => {
        $(
            pub(crate) unsafe extern "system" fn $name($($argument: $type),*) -> NTSTATUS {
                STATUS_NOT_SUPPORTED
            }
        )*

        $(
            pub(crate) unsafe extern "system" fn $post(
                $qp: *mut NDK_QP,
                $($post_argument: $post_type),*
            ) -> NTSTATUS {
                // SAFETY: the consumer keeps the QP open until this call returns.
                unsafe { super::qp::refuse($qp) }
            }
        )*

        /// The names of the slots, for those who report on them.
        pub const NAMES: &[&str] =
            &[$(stringify!($name),)* $(stringify!($post),)* "get_privileged_memory_region_token"];
    };
}

type Create = Option<NDK_FN_CREATE_COMPLETION>;
type Request = Option<NDK_FN_REQUEST_COMPLETION>;

not_supported! {
    create_mw: fn(pd: *mut NDK_PD, done: Create, context: PVOID, out: *mut *mut NDK_MW);
    create_srq: fn(
        pd: *mut NDK_PD, depth: ULONG, max_sge: ULONG, threshold: ULONG,
        notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>, notification_context: PVOID,
        affinity: *const GROUP_AFFINITY, done: Create, context: PVOID, out: *mut *mut NDK_SRQ,
    );
    create_qp_with_srq: fn(
        pd: *mut NDK_PD, receive_cq: *mut NDK_CQ, initiator_cq: *mut NDK_CQ, srq: *mut NDK_SRQ,
        qp_context: PVOID, depth: ULONG, max_sge: ULONG, inline_size: ULONG, done: Create,
        context: PVOID, out: *mut *mut NDK_QP,
    );
    initialize_fast_register_mr: fn(
        mr: *mut NDK_MR, pages: ULONG, remote: BOOLEAN, done: Request, context: PVOID,
    );

    => posts:
    bind: fn(
        qp: *mut NDK_QP, context: PVOID, mr: *mut NDK_MR, mw: *mut NDK_MW, va: PVOID,
        length: SIZE_T, flags: ULONG
    );
    fast_register: fn(
        qp: *mut NDK_QP, context: PVOID, mr: *mut NDK_MR, pages: ULONG,
        page_array: *const NDK_LOGICAL_ADDRESS, fbo: ULONG, length: SIZE_T, va: PVOID, flags: ULONG
    );
    invalidate: fn(qp: *mut NDK_QP, context: PVOID, object: *mut NDK_OBJECT_HEADER, flags: ULONG);
}

/// Gives the token 0, which no region has.
///
/// # Safety
/// `token` is null or writable.
pub(crate) unsafe extern "system" fn get_privileged_memory_region_token(
    pd: *mut NDK_PD,
    token: *mut UINT32,
) {
    // SAFETY: the consumer's promise.
    unsafe { super::store(token, 0) };
}
