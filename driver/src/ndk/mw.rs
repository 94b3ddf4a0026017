//! Memory windows: rights to a part of a memory region, given and taken by work requests.
//!
//! A window of ours is of type 2 in IBTA's words: it is bound by a request on a queue pair, and ends
//! by an invalidation, ours or the peer's. Its token is drawn once and stays, so that it is known as
//! soon as `NdkBind` has returned.

use super::{Object, ndk_close, ndk_query_extension};
use crate::abi::*;
use rocev2::ids::Rkey;
use rocev2::mr::PdId;

/// A memory window.
pub(crate) type MwObject = Object<NDK_MW, MwShared>;

/// What both sides see of a window.
pub(crate) struct MwShared {
    pub(crate) pd: PdId,
    pub(crate) key: Rkey,
}

/// The table of every window.
pub(crate) static DISPATCH: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: ndk_close::<NDK_MW>,
    NdkQueryExtension: ndk_query_extension,
    NdkGetRemoteTokenFromMw: ndk_get_remote_token_from_mw,
};

/// [`NDK_FN_GET_REMOTE_TOKEN_FROM_MW`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_remote_token_from_mw).
/// IRQL <= DISPATCH_LEVEL. Never 0, and the same for the life of the window; 0 for what is no open
/// window.
///
/// # Safety
/// `mw` is open.
unsafe extern "system" fn ndk_get_remote_token_from_mw(mw: *mut NDK_MW) -> UINT32 {
    // SAFETY: the consumer keeps the window open until this call returns.
    let Ok(mw) = (unsafe { MwObject::check(mw) }) else { return 0 };
    mw.shared.key.get()
}
