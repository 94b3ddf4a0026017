//! Protection domains.

use std::sync::Arc;

use driver::abi::{GROUP_AFFINITY, NDK_PD, NDK_PD_DISPATCH};

use crate::object::Handle;
use crate::request::create;
use crate::{
    Adapter, Buffer, Cq, Frmr, Mr, Mw, Opener, Qp, QpConfig, Result, Rights, Srq, SrqConfig,
};

/// A protection domain: what memory regions and queue pairs share.
#[derive(Debug)]
pub struct Pd {
    object: Handle<NDK_PD>,
    adapter: Arc<Adapter>,
}

impl Pd {
    pub(crate) fn create(adapter: &Arc<Adapter>) -> Result<Arc<Self>> {
        // SAFETY: the adapter is open.
        let object = create(adapter.opener(), "NdkCreatePd", |completion, context, out| unsafe {
            (adapter.table().NdkCreatePd)(adapter.as_ptr(), completion, context, out)
        })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, adapter.opener()) };
        Ok(Arc::new(Self { object, adapter: Arc::clone(adapter) }))
    }

    /// Registers `buffer` with these [`Rights`](crate::Rights).
    ///
    /// # Errors
    /// Too large for the adapter or for one MDL (4 GiB), no resources.
    pub fn register(
        self: &Arc<Self>,
        buffer: Buffer,
        rights: impl Into<Rights>,
    ) -> Result<Arc<Mr>> {
        Mr::register(self, buffer, rights.into())
    }

    /// Creates a queue pair that completes into `receive_cq` and `initiator_cq`, which may be one.
    ///
    /// # Errors
    /// A number above the adapter's limit, no resources.
    pub fn create_qp(
        self: &Arc<Self>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        config: QpConfig,
    ) -> Result<Arc<Qp>> {
        Qp::create(self, receive_cq, initiator_cq, config)
    }

    /// Creates a queue pair that takes its receives from `srq`; the receive queue of `config` means
    /// nothing.
    ///
    /// # Errors
    /// As [`Pd::create_qp`].
    pub fn create_qp_with_srq(
        self: &Arc<Self>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        srq: &Arc<Srq>,
        config: QpConfig,
    ) -> Result<Arc<Qp>> {
        Qp::create_with_srq(self, receive_cq, initiator_cq, srq, config)
    }

    /// Creates a fast-register region for `pages` pages at most; `remote`: peers may get access.
    ///
    /// # Errors
    /// Too many pages for the adapter, no resources.
    pub fn create_frmr(self: &Arc<Self>, pages: u32, remote: bool) -> Result<Arc<Frmr>> {
        Frmr::create(self, pages, remote)
    }

    /// Creates a memory window.
    ///
    /// # Errors
    /// No resources.
    pub fn create_mw(self: &Arc<Self>) -> Result<Arc<Mw>> {
        Mw::create(self)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// A number above the adapter's limit, no resources.
    pub fn create_srq(self: &Arc<Self>, config: SrqConfig) -> Result<Arc<Srq>> {
        Srq::create(self, config, None)
    }

    /// Creates a shared receive queue that is near these processors, as
    /// [`create_cq_near`](crate::Adapter::create_cq_near) has it. The queue pairs that receive from it are there, too.
    ///
    /// # Errors
    /// As [`Self::create_srq`].
    pub fn create_srq_near(
        self: &Arc<Self>,
        config: SrqConfig,
        processors: usize,
    ) -> Result<Arc<Srq>> {
        let near = GROUP_AFFINITY { Mask: processors, ..GROUP_AFFINITY::default() };
        Srq::create(self, config, Some(&near))
    }

    /// The token that names all logical addresses in our own work requests.
    #[must_use]
    pub fn privileged_token(&self) -> u32 {
        let mut token = 0;
        // SAFETY: the PD is open.
        unsafe { (self.table().NdkGetPrivilegedMemoryRegionToken)(self.as_ptr(), &raw mut token) };
        token
    }

    /// The adapter that it belongs to.
    #[must_use]
    pub const fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_PD {
        self.object.as_ptr()
    }

    pub(crate) const fn opener(&self) -> &Arc<dyn Opener> {
        self.object.opener()
    }

    pub(crate) fn table(&self) -> NDK_PD_DISPATCH {
        self.object.table()
    }
}
