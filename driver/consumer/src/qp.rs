//! Queue pairs.

use std::ops::Range;
use std::ptr::{NonNull, without_provenance_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::abi::{NDK_OBJECT_HEADER, NDK_QP, NTSTATUS, PVOID, ULONG};

use crate::object::Handle;
use crate::request::create;
use crate::{
    Cq, FastRegister, Flags, Frmr, InlineData, Mr, Mw, NdkError, Pd, Remote, Result, Sge, Srq,
};

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
/// Every post takes a `context` that comes back as `RequestContext`, and [`Flags`].
/// An `Err` means that nothing was posted and no completion follows.
#[derive(Debug)]
pub struct Qp {
    object: Handle<NDK_QP>,
    initiator: Mutex<()>,
    receive: Mutex<()>,
    _srq: Option<Arc<Srq>>,
    _cqs: [Arc<Cq>; 2],
    _pd: Arc<Pd>,
}

impl Qp {
    pub(crate) fn create(
        pd: &Arc<Pd>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        config: QpConfig,
    ) -> Result<Arc<Self>> {
        // SAFETY: the PD and both CQs are open, and this QP keeps them so.
        let object = create(pd.opener(), "NdkCreateQp", |completion, context, out| unsafe {
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
        // SAFETY: just created for us.
        Ok(unsafe { Self::new(object, pd, [receive_cq, initiator_cq], None) })
    }

    pub(crate) fn create_with_srq(
        pd: &Arc<Pd>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        srq: &Arc<Srq>,
        config: QpConfig,
    ) -> Result<Arc<Self>> {
        // SAFETY: the PD, both CQs and the SRQ are open, and this QP keeps them so.
        let object =
            create(pd.opener(), "NdkCreateQpWithSrq", |completion, context, out| unsafe {
                (pd.table().NdkCreateQpWithSrq)(
                    pd.as_ptr(),
                    receive_cq.as_ptr(),
                    initiator_cq.as_ptr(),
                    srq.as_ptr(),
                    without_provenance_mut(config.context),
                    config.initiator_depth,
                    config.initiator_sge,
                    config.inline_len,
                    completion,
                    context,
                    out,
                )
            })?;
        // SAFETY: just created for us.
        Ok(unsafe { Self::new(object, pd, [receive_cq, initiator_cq], Some(srq)) })
    }

    /// # Safety
    /// `object` is open, and no other code closes it.
    unsafe fn new(
        object: NonNull<NDK_QP>,
        pd: &Arc<Pd>,
        cqs: [&Arc<Cq>; 2],
        srq: Option<&Arc<Srq>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            // SAFETY: the caller's promise.
            object: unsafe { Handle::new(object, pd.opener()) },
            initiator: Mutex::new(()),
            receive: Mutex::new(()),
            _srq: srq.cloned(),
            _cqs: cqs.map(Arc::clone),
            _pd: Arc::clone(pd),
        })
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
    ///
    /// # Panics
    /// If the flags say inline, for which there is [`Qp::send_inline`].
    pub fn send(&self, context: usize, sges: &[Sge<'_>], flags: impl Into<Flags>) -> Result<()> {
        let flags = not_inline(flags);
        self.post_send(context, sges, flags)
    }

    fn post_send(&self, context: usize, sges: &[Sge<'_>], flags: Flags) -> Result<()> {
        // SAFETY: as `post` provides.
        self.post("NdkSend", || unsafe {
            (self.object.table().NdkSend)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                flags.bits(),
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
        flags: impl Into<Flags>,
        remote_token: u32,
    ) -> Result<()> {
        let flags = not_inline(flags);
        // SAFETY: as `post` provides.
        self.post("NdkSendAndInvalidate", || unsafe {
            (self.object.table().NdkSendAndInvalidate)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                flags.bits(),
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
        flags: impl Into<Flags>,
    ) -> Result<()> {
        let flags = not_inline(flags);
        self.post_write(context, sges, remote, flags)
    }

    fn post_write(
        &self,
        context: usize,
        sges: &[Sge<'_>],
        remote: Remote,
        flags: Flags,
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
                flags.bits(),
            )
        })
    }

    /// Posts an RDMA READ of `remote` into `sges`.
    ///
    /// # Errors
    /// Not connected, queue full, too many elements.
    pub fn read(
        &self,
        context: usize,
        sges: &[Sge<'_>],
        remote: Remote,
        flags: impl Into<Flags>,
    ) -> Result<()> {
        let flags = flags.into();
        // SAFETY: as `post` provides.
        self.post("NdkRead", || unsafe {
            (self.object.table().NdkRead)(
                self.as_ptr(),
                request(context),
                Sge::as_ptr(sges),
                sges.len() as ULONG,
                remote.address,
                remote.token,
                flags.bits(),
            )
        })
    }

    /// Posts a send of `data`, which is copied meanwhile.
    ///
    /// # Errors
    /// Not connected, queue full, more data than the queue pair takes inline.
    pub fn send_inline(
        &self,
        context: usize,
        data: &[InlineData<'_>],
        flags: impl Into<Flags>,
    ) -> Result<()> {
        self.post_send(context, InlineData::as_sges(data), flags.into() | Flags::INLINE)
    }

    /// Posts an RDMA WRITE of `data`, which is copied meanwhile, to `remote`.
    ///
    /// # Errors
    /// As [`Qp::send_inline`].
    pub fn write_inline(
        &self,
        context: usize,
        data: &[InlineData<'_>],
        remote: Remote,
        flags: impl Into<Flags>,
    ) -> Result<()> {
        self.post_write(context, InlineData::as_sges(data), remote, flags.into() | Flags::INLINE)
    }

    /// Posts a fast registration: later requests may use the region at once.
    ///
    /// # Errors
    /// Not connected, queue full, numbers that do not fit each other, rights that the region was not
    /// initialized for, too many registrations of this region outstanding.
    pub fn fast_register(
        &self,
        context: usize,
        frmr: &Frmr,
        what: FastRegister<'_>,
        flags: impl Into<Flags>,
    ) -> Result<()> {
        let flags = flags.into();
        // SAFETY: as `post` provides; the array has that many elements.
        self.post("NdkFastRegister", || unsafe {
            (self.object.table().NdkFastRegister)(
                self.as_ptr(),
                request(context),
                frmr.as_ptr(),
                what.pages.len() as ULONG,
                what.pages.as_ptr(),
                what.fbo,
                what.len,
                without_provenance_mut(what.base as usize),
                flags.bits(),
            )
        })
    }

    /// Posts the binding of a window to `range` of a region of our own.
    ///
    /// # Errors
    /// Not connected, queue full, rights that the region does not grant.
    pub fn bind(
        &self,
        context: usize,
        mr: &Mr,
        mw: &Mw,
        range: Range<usize>,
        flags: impl Into<Flags>,
    ) -> Result<()> {
        let address = mr.remote(range.start).address;
        let flags = flags.into();
        // SAFETY: as `post` provides; region and window are open.
        self.post("NdkBind", || unsafe {
            (self.object.table().NdkBind)(
                self.as_ptr(),
                request(context),
                mr.as_ptr(),
                mw.as_ptr(),
                without_provenance_mut(address as usize),
                range.len(),
                flags.bits(),
            )
        })
    }

    /// Posts an invalidation.
    ///
    /// # Errors
    /// Not connected, queue full, not an object that can be invalidated.
    pub fn invalidate(
        &self,
        context: usize,
        what: Invalidate<'_>,
        flags: impl Into<Flags>,
    ) -> Result<()> {
        let object: *mut NDK_OBJECT_HEADER = match what {
            Invalidate::Region(frmr) => frmr.as_ptr().cast(),
            Invalidate::Registered(mr) => mr.as_ptr().cast(),
            Invalidate::Window(mw) => mw.as_ptr().cast(),
        };
        let flags = flags.into();
        // SAFETY: as `post` provides; the object is open.
        self.post("NdkInvalidate", || unsafe {
            (self.object.table().NdkInvalidate)(
                self.as_ptr(),
                request(context),
                object,
                flags.bits(),
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

/// The object that [`Qp::invalidate`] ends.
#[derive(Clone, Copy, Debug)]
pub enum Invalidate<'a> {
    /// A fast-register region.
    Region(&'a Frmr),
    /// A registered region, which cannot be invalidated.
    Registered(&'a Mr),
    /// A window.
    Window(&'a Mw),
}

/// The elements of other requests are labels, which are never followed as pointers.
fn not_inline(flags: impl Into<Flags>) -> Flags {
    let flags = flags.into();
    assert!(!flags.contains(Flags::INLINE), "inline data goes by other functions");
    flags
}

/// A request context is a number to us.
const fn request(context: usize) -> PVOID {
    without_provenance_mut(context)
}

/// The mutex guards no data, so a poisoned one is as good as any.
fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
