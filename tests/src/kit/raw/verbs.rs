//! Memory, fast-register regions, windows, shared receive queues, queue pairs of any size, and every kind
//! of post.

use super::*;
use ndk_consumer::{Buffer, Remote};

/// Registered memory that outlives every use of it.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The region.
    pub mr: Object<NDK_MR>,
    /// Its first byte.
    pub address: u64,
    /// Its token.
    pub token: u32,
}

impl Memory {
    /// Registers `len` bytes.
    ///
    /// # Panics
    /// If the provider refuses.
    pub fn new(pd: Object<NDK_PD>, len: usize) -> Self {
        Self::over(pd, Box::leak(Box::new(Buffer::new(len))))
    }

    /// Registers a buffer, which has to outlive the region.
    ///
    /// # Panics
    /// If the provider refuses.
    pub fn over(pd: Object<NDK_PD>, buffer: &Buffer) -> Self {
        Self::register(wait(|then| pd.create_mr(then)).unwrap(), buffer)
    }

    /// Registers a buffer by a region, which it has to outlive.
    ///
    /// # Panics
    /// If the provider refuses.
    pub fn register(mr: Object<NDK_MR>, buffer: &Buffer) -> Self {
        let (at, len) = (buffer.as_ptr(), buffer.len());
        let mdl = Box::leak(Box::new(Mdl::new(at, len)));
        assert_eq!(wait(|then| mr.register(mdl, len, then)), STATUS_SUCCESS);
        Self { mr, address: at.addr() as u64, token: mr.token() }
    }

    /// An element over a part of it.
    pub fn sge(&self, offset: u64, len: u32) -> NDK_SGE {
        let address = std::ptr::without_provenance_mut((self.address + offset) as usize);
        NDK_SGE::from_virtual(address, len, self.token)
    }
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub enum Post<'a> {
    /// `NdkReceive`.
    Receive(&'a [NDK_SGE]),
    /// `NdkSend`.
    Send(&'a [NDK_SGE]),
    /// `NdkSendAndInvalidate` of a token of the peer.
    SendAndInvalidate(&'a [NDK_SGE], u32),
    /// `NdkRead`.
    Read(&'a [NDK_SGE], Remote),
    /// `NdkWrite`.
    Write(&'a [NDK_SGE], Remote),
    /// `NdkFastRegister`.
    FastRegister {
        /// The region.
        mr: Object<NDK_MR>,
        /// Its pages.
        pages: &'a [NDK_LOGICAL_ADDRESS],
        /// Offset of the first byte in the first page.
        fbo: u32,
        /// Bytes.
        len: usize,
        /// What the peer calls the first byte.
        base: u64,
    },
    /// `NdkBind`.
    Bind {
        /// The region.
        mr: Object<NDK_MR>,
        /// The window.
        mw: Object<NDK_MW>,
        /// Its first byte.
        address: u64,
        /// Its bytes.
        len: usize,
    },
    /// `NdkInvalidate` of a region.
    InvalidateMr(Object<NDK_MR>),
    /// `NdkInvalidate` of a window.
    InvalidateMw(Object<NDK_MW>),
}

/// The size of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpSize {
    /// Receives, initiator requests.
    pub depths: [u32; 2],
    /// Elements of each.
    pub sges: [u32; 2],
    /// Bytes of inline data.
    pub inline: u32,
}

impl Object<NDK_PD> {
    /// `NdkCreateQp`, with a CQ for receives and one for initiator requests.
    ///
    /// # Errors
    /// The provider's.
    pub fn create_qp_of(self, cqs: [Object<NDK_CQ>; 2], size: QpSize) -> Created<NDK_QP> {
        let QpSize { depths, sges, inline } = size;
        create(|done, context| {
            call!(
                self,
                NdkCreateQp,
                cqs[0].0,
                cqs[1].0,
                std::ptr::null_mut(),
                depths[0],
                depths[1],
                sges[0],
                sges[1],
                inline,
                done,
                context,
                std::ptr::null_mut(),
            )
        })
    }

    /// `NdkCreateQpWithSrq`.
    ///
    /// # Errors
    /// The provider's.
    pub fn create_qp_on(
        self,
        cqs: [Object<NDK_CQ>; 2],
        srq: Object<NDK_SRQ>,
        size: QpSize,
    ) -> Created<NDK_QP> {
        create(|done, context| {
            call!(
                self,
                NdkCreateQpWithSrq,
                cqs[0].0,
                cqs[1].0,
                srq.0,
                std::ptr::null_mut(),
                size.depths[1],
                size.sges[1],
                size.inline,
                done,
                context,
                std::ptr::null_mut(),
            )
        })
    }

    /// `NdkCreateSrq` of one element per receive.
    ///
    /// # Errors
    /// The provider's.
    pub fn create_srq(self, depth: u32, threshold: u32, notify: Notify) -> Created<NDK_SRQ> {
        self.create_srq_by(std::ptr::null(), depth, threshold, notify)
    }

    /// The same near these processors of the first group.
    ///
    /// # Errors
    /// The provider's.
    pub fn create_srq_near(
        self,
        processors: usize,
        depth: u32,
        threshold: u32,
        notify: Notify,
    ) -> Created<NDK_SRQ> {
        let near = GROUP_AFFINITY { Mask: processors, ..GROUP_AFFINITY::default() };
        self.create_srq_by(&raw const near, depth, threshold, notify)
    }

    fn create_srq_by(
        self,
        near: *const GROUP_AFFINITY,
        depth: u32,
        threshold: u32,
        notify: Notify,
    ) -> Created<NDK_SRQ> {
        let event = leak(notify);
        create(|done, context| {
            call!(
                self,
                NdkCreateSrq,
                depth,
                1,
                threshold,
                Some(notified),
                event,
                near,
                done,
                context,
                std::ptr::null_mut(),
            )
        })
    }

    /// `NdkCreateMr`, for fast registration, and its initialization.
    ///
    /// # Errors
    /// The provider's, of the creation.
    ///
    /// # Panics
    /// If the initialization fails.
    pub fn create_frmr(self, pages: u32, remote: bool) -> Created<NDK_MR> {
        let mr: Object<NDK_MR> = create(|done, context| {
            call!(self, NdkCreateMr, TRUE, done, context, std::ptr::null_mut())
        })?;
        let ready = request(|done, context| {
            call!(mr, NdkInitializeFastRegisterMr, pages, remote.into(), done, context)
        });
        assert_eq!(ready.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS), "it is initialized");
        Ok(mr)
    }

    /// `NdkCreateMw`.
    ///
    /// # Errors
    /// The provider's.
    pub fn create_mw(self) -> Created<NDK_MW> {
        create(|done, context| call!(self, NdkCreateMw, done, context, std::ptr::null_mut()))
    }

    /// `NdkGetPrivilegedMemoryRegionToken`.
    pub fn privileged_token(self) -> u32 {
        let mut token = 0;
        call!(self, NdkGetPrivilegedMemoryRegionToken, &raw mut token);
        token
    }
}

impl Object<NDK_CQ> {
    /// `NdkGetCqResultsEx`.
    pub fn results_ex(self, results: &mut [NDK_RESULT_EX]) -> usize {
        call!(self, NdkGetCqResultsEx, results.as_mut_ptr(), results.len() as u32) as usize
    }
}

impl Object<NDK_MW> {
    /// `NdkGetRemoteTokenFromMw`.
    pub fn token(self) -> u32 {
        call!(self, NdkGetRemoteTokenFromMw)
    }
}

impl Object<NDK_SRQ> {
    /// `NdkSrqReceive`.
    pub fn receive(self, id: usize, sgl: &[NDK_SGE]) -> NTSTATUS {
        let (id, count) = (std::ptr::without_provenance_mut(id), sgl.len() as u32);
        call!(self, NdkSrqReceive, id, sgl.as_ptr(), count)
    }

    /// `NdkModifySrq`.
    pub fn modify(self, depth: u32, threshold: u32) -> mpsc::Receiver<NTSTATUS> {
        request(|done, context| call!(self, NdkModifySrq, depth, threshold, done, context))
    }
}

impl Object<NDK_QP> {
    /// Posts anything. The elements of an inline request name readable memory of this process.
    pub fn post(self, id: usize, post: Post<'_>, flags: u32) -> NTSTATUS {
        let id = std::ptr::without_provenance_mut(id);
        let list = |sgl: &[NDK_SGE]| (sgl.as_ptr(), sgl.len() as u32);
        match post {
            Post::Receive(sgl) => {
                let (sgl, count) = list(sgl);
                call!(self, NdkReceive, id, sgl, count)
            }
            Post::Send(sgl) => {
                let (sgl, count) = list(sgl);
                call!(self, NdkSend, id, sgl, count, flags)
            }
            Post::SendAndInvalidate(sgl, token) => {
                let (sgl, count) = list(sgl);
                call!(self, NdkSendAndInvalidate, id, sgl, count, flags, token)
            }
            Post::Read(sgl, Remote { address, token }) => {
                let (sgl, count) = list(sgl);
                call!(self, NdkRead, id, sgl, count, address, token, flags)
            }
            Post::Write(sgl, Remote { address, token }) => {
                let (sgl, count) = list(sgl);
                call!(self, NdkWrite, id, sgl, count, address, token, flags)
            }
            Post::FastRegister { mr, pages, fbo, len, base } => {
                let (count, base) = (pages.len() as u32, label(base));
                call!(self, NdkFastRegister, id, mr.0, count, pages.as_ptr(), fbo, len, base, flags)
            }
            Post::Bind { mr, mw, address, len } => {
                call!(self, NdkBind, id, mr.0, mw.0, label(address), len, flags)
            }
            Post::InvalidateMr(mr) => call!(self, NdkInvalidate, id, mr.0.cast(), flags),
            Post::InvalidateMw(mw) => call!(self, NdkInvalidate, id, mw.0.cast(), flags),
        }
    }
}

/// An address that nobody follows.
fn label(address: u64) -> PVOID {
    std::ptr::without_provenance_mut(address as usize)
}
