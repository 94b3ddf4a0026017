//! Registered memory, and the elements of work requests that name it.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use driver::abi::{FALSE, NDK_MR, NDK_SGE, ULONG};

use crate::object::Handle;
use crate::request::{Request, create};
use crate::{Buffer, Mdl, Pd, Result, Rights};

/// A buffer that the adapter can reach, until this is dropped.
#[derive(Debug)]
pub struct Mr {
    object: Handle<NDK_MR>,
    buffer: Buffer,
    /// Tokens are those of the registration, and last as long.
    local_token: AtomicU32,
    remote_token: AtomicU32,
    /// Locked and unchanged as long as the registration lasts.
    _mdl: Mdl,
    _pd: Arc<Pd>,
}

// SAFETY: the MDL is only read, and names memory that `buffer` owns.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    pub(crate) fn register(pd: &Arc<Pd>, buffer: Buffer, rights: Rights) -> Result<Arc<Self>> {
        // SAFETY: the PD is open.
        let object = create(pd.opener(), "NdkCreateMr", |completion, context, out| unsafe {
            (pd.table().NdkCreateMr)(pd.as_ptr(), FALSE, completion, context, out)
        })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, pd.opener()) };
        let mut mdl = Mdl::try_new(buffer.as_ptr(), buffer.len())?;
        // SAFETY: the MR is open; the MDL describes `buffer`, and both outlive the registration.
        let request = Request::start(pd.opener(), "NdkRegisterMr", |completion, context| unsafe {
            (object.table().NdkRegisterMr)(
                object.as_ptr(),
                mdl.as_mut_ptr(),
                buffer.len(),
                rights.bits(),
                completion,
                context,
            )
        });
        request.wait()?;
        let [local_token, remote_token] = [(); 2].map(|()| AtomicU32::new(0));
        let pd = Arc::clone(pd);
        let mr = Self { object, buffer, local_token, remote_token, _mdl: mdl, _pd: pd };
        mr.renew_tokens();
        Ok(Arc::new(mr))
    }

    /// Asks for the tokens anew, after the memory was registered again by calls that this wrapper does not make.
    pub fn renew_tokens(&self) {
        let (table, mr) = (self.object.table(), self.object.as_ptr());
        // SAFETY: the MR is open.
        self.local_token.store(unsafe { (table.NdkGetLocalTokenFromMr)(mr) }, Ordering::Relaxed);
        // SAFETY: as above.
        self.remote_token.store(unsafe { (table.NdkGetRemoteTokenFromMr)(mr) }, Ordering::Relaxed);
    }

    /// The memory.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The token that names this region in our own work requests.
    #[must_use]
    pub fn local_token(&self) -> u32 {
        self.local_token.load(Ordering::Relaxed)
    }

    /// The token to hand to the peer.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        self.remote_token.load(Ordering::Relaxed)
    }

    /// An element over `range` of the buffer.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer or is 4 GiB or longer.
    #[must_use]
    pub fn sge(&self, range: Range<usize>) -> Sge<'_> {
        assert!(range.start <= range.end && range.end <= self.buffer.len(), "{range:?}");
        let address = self.buffer.as_ptr().wrapping_add(range.start).cast();
        let length = ULONG::try_from(range.len()).expect("an element is shorter than 4 GiB");
        Sge(NDK_SGE::from_virtual(address, length, self.local_token()), PhantomData)
    }

    /// How the peer names the byte at `offset`.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        let address = self.buffer.as_ptr().addr() as u64 + offset as u64;
        Remote { address, token: self.remote_token() }
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_MR {
        self.object.as_ptr()
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: the MR is open and registered.
        let request =
            Request::start(self.object.opener(), "NdkDeregisterMr", |completion, context| unsafe {
                (self.object.table().NdkDeregisterMr)(self.object.as_ptr(), completion, context)
            });
        // The close that follows ends the registration even if this fails.
        let _ = request.wait();
    }
}

/// One element of a work request.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Sge<'a>(NDK_SGE, PhantomData<&'a [u8]>);

impl Sge<'_> {
    /// An element by its numbers. They are labels that the provider checks, good or not.
    #[must_use]
    pub fn at(address: u64, len: u32, token: u32) -> Self {
        let label = std::ptr::without_provenance_mut(address as usize);
        Self(NDK_SGE::from_virtual(label, len as ULONG, token), PhantomData)
    }

    /// The C array that a slice of elements is.
    pub(crate) const fn as_ptr(elements: &[Self]) -> *const NDK_SGE {
        elements.as_ptr().cast()
    }
}

/// A piece of the data of an inline request: memory of any kind, as it is copied at the post.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InlineData<'a>(Sge<'a>);

impl<'a> From<&'a [u8]> for InlineData<'a> {
    /// # Panics
    /// If the piece is 4 GiB or longer.
    fn from(piece: &'a [u8]) -> Self {
        let length = ULONG::try_from(piece.len()).expect("a piece is shorter than 4 GiB");
        let address = piece.as_ptr().cast_mut().cast();
        Self(Sge(NDK_SGE::from_virtual(address, length, 0), PhantomData))
    }
}

impl<'a> InlineData<'a> {
    /// The elements that a slice of pieces is.
    pub(crate) const fn as_sges<'s>(pieces: &'s [Self]) -> &'s [Sge<'a>] {
        // SAFETY: the type is transparent.
        unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast(), pieces.len()) }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Remote {
    /// Its address there.
    pub address: u64,
    /// The peer's remote token.
    pub token: u32,
}

impl Remote {
    /// The same region, `offset` bytes further.
    #[must_use]
    pub const fn at(self, offset: usize) -> Self {
        Self { address: self.address.wrapping_add(offset as u64), token: self.token }
    }

    /// Address and token, big endian, for a message or private data of one's own. A standard protocol has a form of its
    /// own.
    ///
    /// ```
    /// use ndk_consumer::Remote;
    ///
    /// let remote = Remote { address: 0x1000, token: 7 };
    /// assert_eq!(Remote::from_bytes(&remote.to_bytes()), Some(remote));
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..].copy_from_slice(&self.token.to_be_bytes());
        bytes
    }

    /// Reads [`Remote::to_bytes`]; more bytes may follow. `None` where they are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, bytes) = bytes.split_first_chunk()?;
        let (token, _) = bytes.split_first_chunk()?;
        Some(Self { address: u64::from_be_bytes(*address), token: u32::from_be_bytes(*token) })
    }
}
