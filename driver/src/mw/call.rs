//! A memory window for its consumer.

use super::shared::MwObject;
use crate::abi::*;
use crate::object::call::{ndk_close, ndk_query_extension};
use crate::object::entry::entry;

/// The table of every window.
pub(crate) static DISPATCH: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: ndk_close::<NDK_MW>,
    NdkQueryExtension: ndk_query_extension,
    NdkGetRemoteTokenFromMw: ndk_get_remote_token_from_mw,
};

entry! {
    /// [`NDK_FN_GET_REMOTE_TOKEN_FROM_MW`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_remote_token_from_mw).
    /// IRQL <= DISPATCH_LEVEL. Never 0, and the same for the life of the window; 0 for what is no open
    /// window.
    fn ndk_get_remote_token_from_mw(mw: &MwObject) -> UINT32 {
        Ok(mw.shared.key.get())
    }
}
