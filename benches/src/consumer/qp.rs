//! Queue pairs.

use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::abi::{NDK_QP, NTSTATUS, PVOID, ULONG};

use super::object::Handle;
use super::request::create;
use super::{Cq, Pd, Remote, Sge};
use crate::{NdkError, Result};

/// The size of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Receives posted at once.
    pub receive_depth: u32,
    /// Initiator requests posted at once.
    pub initiator_depth: u32,
    /// Elements of a receive.
    pub receive_sge: u32,
    /// Elements of an initiator request.
    pub initiator_sge: u32,
    /// Bytes that an inline request may carry.
    pub inline_len: u32,
    /// Comes back as `QPContext` of every completion.
    pub context: usize,
}

impl Default for QpConfig {
    /// 64 requests of one element on each queue, nothing inline.
    fn default() -> Self {
        Self {
            receive_depth: 64,
            initiator_depth: 64,
            receive_sge: 1,
            initiator_sge: 1,
            inline_len: 0,
            context: 0,
        }
    }
}

/// A queue pair. Posts of one queue are serialized here, as NDK demands of the consumer.
///
/// Every post takes a `context` that comes back as `RequestContext`, and flags (`NDK_OP_FLAG_*`).
/// An `Err` means that nothing was posted and no completion follows.
#[derive(Debug)]
pub struct Qp {
    object: Handle<NDK_QP>,
    initiator: Mutex<()>,
    receive: Mutex<()>,
    _cqs: [Arc<Cq>; 2],
    _pd: Arc<Pd>,
}

impl Qp {
    pub(super) fn create(
        pd: &Arc<Pd>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        config: QpConfig,
    ) -> Result<Arc<Self>> {
        // SAFETY: the PD and both CQs are open, and this QP keeps them so.
        let object = create("NdkCreateQp", |completion, context, out| unsafe {
            (pd.table().NdkCreateQp)(
                pd.as_ptr(),
                receive_cq.as_ptr(),
                initiator_cq.as_ptr(),
                without_provenance_mut(config.context),
                config.receive_depth,
                config.initiator_depth,
                config.receive_sge,
                config.initiator_sge,
                config.inline_len,
                completion,
                context,
                out,
            )
        })?;
        Ok(Arc::new(Self {
            // SAFETY: just created for us.
            object: unsafe { Handle::new(object) },
            initiator: Mutex::new(()),
            receive: Mutex::new(()),
            _cqs: [Arc::clone(receive_cq), Arc::clone(initiator_cq)],
            _pd: Arc::clone(pd),
        }))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// Queue full, too many elements.
    pub fn receive(&self, context: usize, sges: &[Sge<'_>]) -> Result<()> {
        let _serial = lock(&self.receive);
        // SAFETY: the QP is open, receives are serialized, and the array has that many elements.
        let status = unsafe {
            (self.object.table().NdkReceive)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
            )
        };
        NdkError::check("NdkReceive", status)
    }

    /// Posts a send.
    ///
    /// # Errors
    /// Not connected, queue full, too many elements.
    pub fn send(&self, context: usize, sges: &[Sge<'_>], flags: u32) -> Result<()> {
        // SAFETY: as `post` provides.
        self.post("NdkSend", || unsafe {
            (self.object.table().NdkSend)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                flags,
            )
        })
    }

    /// Posts a send that invalidates a token of the peer when it arrives.
    ///
    /// # Errors
    /// Not connected, queue full, too many elements.
    pub fn send_and_invalidate(
        &self,
        context: usize,
        sges: &[Sge<'_>],
        flags: u32,
        remote_token: u32,
    ) -> Result<()> {
        // SAFETY: as `post` provides.
        self.post("NdkSendAndInvalidate", || unsafe {
            (self.object.table().NdkSendAndInvalidate)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                flags,
                remote_token,
            )
        })
    }

    /// Posts an RDMA WRITE from `sges` to `remote`.
    ///
    /// # Errors
    /// Not connected, queue full, too many elements.
    pub fn write(
        &self,
        context: usize,
        sges: &[Sge<'_>],
        remote: Remote,
        flags: u32,
    ) -> Result<()> {
        // SAFETY: as `post` provides.
        self.post("NdkWrite", || unsafe {
            (self.object.table().NdkWrite)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                remote.address,
                remote.token,
                flags,
            )
        })
    }

    /// Posts an RDMA READ of `remote` into `sges`.
    ///
    /// # Errors
    /// Not connected, queue full, too many elements.
    pub fn read(&self, context: usize, sges: &[Sge<'_>], remote: Remote, flags: u32) -> Result<()> {
        // SAFETY: as `post` provides.
        self.post("NdkRead", || unsafe {
            (self.object.table().NdkRead)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                remote.address,
                remote.token,
                flags,
            )
        })
    }

    /// Starts to cancel everything that is posted; the completions tell when it is done.
    pub fn flush(&self) {
        // SAFETY: the QP is open; a flush may run beside anything.
        unsafe { (self.object.table().NdkFlush)(self.as_ptr()) }
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_QP {
        self.object.as_ptr()
    }

    /// Runs one initiator post: the QP is open, and no other runs beside it.
    fn post(&self, call: &'static str, post: impl FnOnce() -> NTSTATUS) -> Result<()> {
        let _serial = lock(&self.initiator);
        NdkError::check(call, post())
    }
}

/// A request context is a number to us.
const fn request(context: usize) -> PVOID {
    without_provenance_mut(context)
}

/// The mutex guards no data, so a poisoned one is as good as any.
fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
