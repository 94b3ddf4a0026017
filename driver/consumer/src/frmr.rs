//! Fast-register regions.

use std::sync::Arc;

use driver::abi::{BOOLEAN, NDK_LOGICAL_ADDRESS, NDK_MR, TRUE};

use crate::object::Handle;
use crate::request::{Request, create};
use crate::{Pd, Remote, Result, Sge};

/// A region that work requests map and invalidate.
#[derive(Debug)]
pub struct Frmr {
    object: Handle<NDK_MR>,
    _pd: Arc<Pd>,
}

/// The memory that [`crate::Qp::fast_register`] maps.
#[derive(Clone, Copy, Debug)]
pub struct FastRegister<'a> {
    /// Logical addresses of the pages.
    pub pages: &'a [NDK_LOGICAL_ADDRESS],
    /// Offset of the first byte in the first page.
    pub fbo: u32,
    /// Length in bytes.
    pub len: usize,
    /// The address of the first byte, as elements and the peer name it.
    pub base: u64,
}

impl Frmr {
    pub(crate) fn create(pd: &Arc<Pd>, pages: u32, remote: bool) -> Result<Arc<Self>> {
        // SAFETY: the PD is open.
        let object = create(pd.opener(), "NdkCreateMr", |completion, context, out| unsafe {
            (pd.table().NdkCreateMr)(pd.as_ptr(), TRUE, completion, context, out)
        })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, pd.opener()) };
        let frmr = Self { object, _pd: Arc::clone(pd) };
        frmr.initialize(pages, remote).wait()?;
        Ok(Arc::new(frmr))
    }

    /// Initializes the region for `pages` pages at most.
    pub fn initialize(&self, pages: u32, remote: bool) -> Request {
        // SAFETY: the region is open.
        Request::start(
            self.object.opener(),
            "NdkInitializeFastRegisterMr",
            |completion, context| unsafe {
                (self.object.table().NdkInitializeFastRegisterMr)(
                    self.as_ptr(),
                    pages,
                    BOOLEAN::from(remote),
                    completion,
                    context,
                )
            },
        )
    }

    /// The token that names this region in our own work requests.
    #[must_use]
    pub fn local_token(&self) -> u32 {
        // SAFETY: the region is open and initialized.
        unsafe { (self.object.table().NdkGetLocalTokenFromMr)(self.as_ptr()) }
    }

    /// The token to hand to the peer.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        // SAFETY: the region is open and initialized.
        unsafe { (self.object.table().NdkGetRemoteTokenFromMr)(self.as_ptr()) }
    }

    /// An element over what is mapped at `address`.
    #[must_use]
    pub fn sge(&self, address: u64, len: u32) -> Sge<'_> {
        Sge::at(address, len, self.local_token())
    }

    /// How the peer names the byte at `address`.
    #[must_use]
    pub fn remote(&self, address: u64) -> Remote {
        Remote { address, token: self.remote_token() }
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_MR {
        self.object.as_ptr()
    }
}
