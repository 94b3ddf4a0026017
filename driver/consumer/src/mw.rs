//! Memory windows.

use std::sync::Arc;

use driver::abi::NDK_MW;

use crate::object::Handle;
use crate::request::create;
use crate::{Pd, Remote, Result};

/// Rights to a part of a region, given and taken by work requests.
#[derive(Debug)]
pub struct Mw {
    object: Handle<NDK_MW>,
    _pd: Arc<Pd>,
}

impl Mw {
    pub(crate) fn create(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        // SAFETY: the PD is open.
        let object = create(pd.opener(), "NdkCreateMw", |completion, context, out| unsafe {
            (pd.table().NdkCreateMw)(pd.as_ptr(), completion, context, out)
        })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, pd.opener()) };
        Ok(Arc::new(Self { object, _pd: Arc::clone(pd) }))
    }

    /// The token to hand to the peer, once a bind has been posted.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        // SAFETY: the window is open.
        unsafe { (self.object.table().NdkGetRemoteTokenFromMw)(self.as_ptr()) }
    }

    /// How the peer names the byte at `address` of the region.
    #[must_use]
    pub fn remote(&self, address: u64) -> Remote {
        Remote { address, token: self.remote_token() }
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_MW {
        self.object.as_ptr()
    }
}
