//! Shared endpoints: one local address and port for several outgoing connections.

use std::net::SocketAddr;
use std::sync::Arc;

use driver::abi::{NDK_SHARED_ENDPOINT, SOCKADDR_INET};

use crate::connector::address;
use crate::object::Handle;
use crate::request::create;
use crate::{Adapter, Result};

/// A local address and port, in use until it and all connectors that connected from it are dropped.
#[derive(Debug)]
pub struct SharedEndpoint {
    object: Handle<NDK_SHARED_ENDPOINT>,
    _adapter: Arc<Adapter>,
}

impl SharedEndpoint {
    pub(crate) fn create(adapter: &Arc<Adapter>, local: SocketAddr) -> Result<Arc<Self>> {
        let local = SOCKADDR_INET::from(local);
        // SAFETY: the adapter is open; the address outlives the call.
        let object = create(
            adapter.opener(),
            "NdkCreateSharedEndpoint",
            |completion, context, out| unsafe {
                (adapter.table().NdkCreateSharedEndpoint)(
                    adapter.as_ptr(),
                    local.as_ptr(),
                    local.len(),
                    completion,
                    context,
                    out,
                )
            },
        )?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, adapter.opener()) };
        Ok(Arc::new(Self { object, _adapter: Arc::clone(adapter) }))
    }

    /// Its address and port.
    ///
    /// # Errors
    /// The status of the query.
    pub fn local_address(&self) -> Result<SocketAddr> {
        address("NdkGetLocalAddress", |address, len| {
            // SAFETY: the endpoint is open; `address` has room for `*len` bytes.
            unsafe { (self.object.table().NdkGetLocalAddress)(self.as_ptr(), address, len) }
        })
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_SHARED_ENDPOINT {
        self.object.as_ptr()
    }
}
