//! An open adapter: the parent of all objects.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use driver::abi::{
    GROUP_AFFINITY, NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO, NDK_VERSION,
    STATUS_INTERNAL_ERROR, ULONG,
};

use crate::{Buffer, Connector, Cq, Lam, Listener, NdkError, Opener, Pd, Result, SharedEndpoint};

/// An open adapter.
pub struct Adapter {
    adapter: NonNull<NDK_ADAPTER>,
    opener: Arc<dyn Opener>,
}

// SAFETY: an NDK adapter may be used from any thread.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

impl Adapter {
    /// The newest interface version that this consumer knows.
    pub const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

    /// Opens an adapter of `opener` at [`Adapter::VERSION`].
    ///
    /// # Errors
    /// Version not supported, adapter not ready, no resources.
    pub fn open(opener: Arc<dyn Opener>) -> Result<Arc<Self>> {
        let call = "OpenNDKAdapter";
        let adapter = opener.open(Self::VERSION).map_err(|status| NdkError { status, call })?;
        let adapter =
            NonNull::new(adapter).ok_or(NdkError { status: STATUS_INTERNAL_ERROR, call })?;
        Ok(Arc::new(Self { adapter, opener }))
    }

    /// The capabilities of the adapter.
    ///
    /// # Errors
    /// The status of the query.
    pub fn info(&self) -> Result<NDK_ADAPTER_INFO> {
        let mut info = NDK_ADAPTER_INFO::default();
        let mut len = size_of::<NDK_ADAPTER_INFO>() as ULONG;
        // SAFETY: the adapter is open; `len` is the size of `info`.
        let status = unsafe {
            (self.table().NdkQueryAdapterInfo)(self.as_ptr(), &raw mut info, &raw mut len)
        };
        NdkError::check("NdkQueryAdapterInfo", status).map(|()| info)
    }

    /// Creates a completion queue of `depth` entries.
    ///
    /// # Errors
    /// Depth above the adapter's limit, no resources.
    pub fn create_cq(self: &Arc<Self>, depth: u32) -> Result<Arc<Cq>> {
        Cq::create(self, depth, None)
    }

    /// Creates a completion queue that is near these processors of the first group, a bit each: where the adapter has
    /// several cores, that of the lowest serves it, and the queue pairs whose requests complete on it.
    ///
    /// # Errors
    /// As [`Self::create_cq`].
    pub fn create_cq_near(self: &Arc<Self>, depth: u32, processors: usize) -> Result<Arc<Cq>> {
        let near = GROUP_AFFINITY { Mask: processors, ..GROUP_AFFINITY::default() };
        Cq::create(self, depth, Some(&near))
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    /// No resources.
    pub fn create_pd(self: &Arc<Self>) -> Result<Arc<Pd>> {
        Pd::create(self)
    }

    /// Creates a connector for one outgoing connection.
    ///
    /// # Errors
    /// No resources.
    pub fn create_connector(self: &Arc<Self>) -> Result<Connector> {
        Connector::create(self)
    }

    /// Listens on `local`; port 0 lets the provider choose.
    ///
    /// # Errors
    /// Address not of this adapter, port in use, no resources.
    pub fn listen(self: &Arc<Self>, local: SocketAddr) -> Result<Arc<Listener>> {
        Listener::create(self, local)
    }

    /// Takes `local` for several outgoing connections; port 0 lets the provider choose.
    ///
    /// # Errors
    /// Address not of this adapter, port in use, no resources.
    pub fn share(self: &Arc<Self>, local: SocketAddr) -> Result<Arc<SharedEndpoint>> {
        SharedEndpoint::create(self, local)
    }

    /// Gives logical addresses to a part of `buffer`.
    ///
    /// # Errors
    /// An empty part, no resources.
    ///
    /// # Panics
    /// If the part is not inside the buffer.
    pub fn build_lam(self: &Arc<Self>, buffer: Arc<Buffer>, part: Range<usize>) -> Result<Lam> {
        Lam::build(self, buffer, part)
    }

    /// The object itself, for calls that have no wrapper.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut NDK_ADAPTER {
        self.adapter.as_ptr()
    }

    pub(crate) const fn opener(&self) -> &Arc<dyn Opener> {
        &self.opener
    }

    pub(crate) fn table(&self) -> NDK_ADAPTER_DISPATCH {
        // SAFETY: the adapter is open.
        let cell = unsafe { &raw const (*self.as_ptr()).Dispatch };
        // SAFETY: nobody replaces the table while a call is made.
        let table = unsafe { std::cell::UnsafeCell::raw_get(cell).read() };
        // SAFETY: a table lives as long as its objects.
        unsafe { table.read() }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: opened by the same opener; every object under it holds a reference to this.
        unsafe { self.opener.close(self.as_ptr()) }
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Adapter").field(&self.adapter).finish()
    }
}
