//! Shared receive queues.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use driver::abi::{GROUP_AFFINITY, NDK_SRQ, ULONG};

use crate::cq::{Notice, notified};
use crate::object::Handle;
use crate::request::{Request, create};
use crate::{NdkError, Pd, Result, Sge};

/// The size of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqConfig {
    /// Receives posted at once.
    pub depth: u32,
    /// Elements of a receive.
    pub receive_sge: u32,
    /// Tell once when fewer receives are left; 0 for never.
    pub threshold: u32,
}

/// Receives that any of several queue pairs may take. Posts are serialized here.
#[derive(Debug)]
pub struct Srq {
    object: Handle<NDK_SRQ>,
    serial: Mutex<()>,
    notice: Arc<Notice>,
    _pd: Arc<Pd>,
}

impl Srq {
    pub(crate) fn create(
        pd: &Arc<Pd>,
        config: SrqConfig,
        near: Option<&GROUP_AFFINITY>,
    ) -> Result<Arc<Self>> {
        let notice = Arc::new(Notice::default());
        let context = Arc::as_ptr(&notice).cast_mut().cast();
        // SAFETY: the PD is open; `notice` lives until the SRQ is closed.
        let object =
            create(pd.opener(), "NdkCreateSrq", |completion, completion_context, out| unsafe {
                (pd.table().NdkCreateSrq)(
                    pd.as_ptr(),
                    config.depth,
                    config.receive_sge,
                    config.threshold,
                    Some(notified),
                    context,
                    near.map_or(std::ptr::null(), std::ptr::from_ref),
                    completion,
                    completion_context,
                    out,
                )
            })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, pd.opener()) };
        let serial = Mutex::new(());
        Ok(Arc::new(Self { object, serial, notice, _pd: Arc::clone(pd) }))
    }

    /// Posts a receive; `context` comes back with the completion, on the CQ of the QP that took it.
    ///
    /// # Errors
    /// Queue full, too many elements.
    pub fn receive(&self, context: usize, sges: &[Sge<'_>]) -> Result<()> {
        let _serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the SRQ is open, posts are serialized, and the array has that many elements.
        let status = unsafe {
            (self.object.table().NdkSrqReceive)(
                self.as_ptr(),
                std::ptr::without_provenance_mut(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
            )
        };
        NdkError::check("NdkSrqReceive", status)
    }

    /// Changes depth and threshold; 0 keeps.
    pub fn modify(&self, depth: u32, threshold: u32) -> Request {
        // SAFETY: the SRQ is open.
        Request::start(self.object.opener(), "NdkModifySrq", |completion, context| unsafe {
            (self.object.table().NdkModifySrq)(self.as_ptr(), depth, threshold, completion, context)
        })
    }

    /// How many notifications have come so far.
    #[must_use]
    pub fn notifications(&self) -> u64 {
        self.notice.count()
    }

    /// Waits until more than `seen` notifications have come; false if `timeout` passes first.
    ///
    /// # Errors
    /// As [`Cq::wait_notification`](crate::Cq::wait_notification).
    pub fn wait_notification(&self, seen: u64, timeout: Duration) -> Result<bool> {
        self.notice.wait(&**self.object.opener(), "SrqNotification", seen, timeout)
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_SRQ {
        self.object.as_ptr()
    }
}
