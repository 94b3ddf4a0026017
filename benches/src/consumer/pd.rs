//! Protection domains.

use std::sync::Arc;

use driver::abi::{NDK_PD, NDK_PD_DISPATCH};

use super::object::Handle;
use super::request::create;
use super::{Adapter, Cq, Mr, Qp, QpConfig};
use crate::{Buffer, Result};

/// A protection domain: what memory regions and queue pairs share.
#[derive(Debug)]
pub struct Pd {
    object: Handle<NDK_PD>,
    _adapter: Arc<Adapter>,
}

impl Pd {
    pub(super) fn create(adapter: &Arc<Adapter>) -> Result<Arc<Self>> {
        // SAFETY: the adapter is open.
        let object = create("NdkCreatePd", |completion, context, out| unsafe {
            (adapter.table().NdkCreatePd)(adapter.as_ptr(), completion, context, out)
        })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object) };
        Ok(Arc::new(Self { object, _adapter: Arc::clone(adapter) }))
    }

    /// Registers `buffer` with the rights `flags` (`NDK_MR_FLAG_*`).
    ///
    /// # Errors
    /// Too large for the adapter, no resources.
    pub fn register(self: &Arc<Self>, buffer: Buffer, flags: u32) -> Result<Arc<Mr>> {
        Mr::register(self, buffer, flags)
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

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_PD {
        self.object.as_ptr()
    }

    pub(super) fn table(&self) -> NDK_PD_DISPATCH {
        self.object.table()
    }
}
