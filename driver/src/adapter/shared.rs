//! The state of an adapter that the consumer's thread and the poll core share, and its versions.

use crate::abi::*;
use crate::object::shared::Object;

/// An open adapter.
pub(crate) type AdapterObject = Object<NDK_ADAPTER, ()>;

/// The highest interface version that this provider runs at.
pub const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };
/// The highest of those before, whose `NDK_ADAPTER_INFO` is shorter.
const VERSION_1: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 2 };

/// The version to run at for a consumer that names the lowest minor version it can live with: the
/// highest of that major version, as a minor version contains those before it. `None`: we cannot
/// serve it.
pub const fn negotiate(asked: NDK_VERSION) -> Option<NDK_VERSION> {
    let highest = match asked.Major {
        1 => VERSION_1,
        2 => VERSION,
        _ => return None,
    };
    if asked.Minor <= highest.Minor { Some(highest) } else { None }
}
