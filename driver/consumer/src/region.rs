//! Memory that is registered for one transfer.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use driver::abi::{NDK_LOGICAL_ADDRESS, PAGE_SIZE};

use crate::{Buffer, FastRegister, Frmr, Lam, Pd, Remote, Result, Sge};

/// A region for fast registration, and the pages that it maps while it is registered.
///
/// [`Endpoint::register`](crate::Endpoint::register) maps a range of a buffer and posts the registration;
/// [`Endpoint::invalidate`](crate::Endpoint::invalidate) ends it, or a message of the peer. Addresses are those of the
/// buffer's bytes in this process. The buffer and its pages stay until the region is registered anew or dropped. A
/// region that was registered when its connection ended is of no more use, and is dropped.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use ndk_consumer::{Buffer, EndpointConfig, Region, Rights, pair};
/// use std::sync::Arc;
///
/// let [client, server] = pair()?;
/// let listener = server.listen(7174)?;
/// let at = listener.local_address()?;
/// let config = EndpointConfig::default();
/// let (mut active, mut passive) = std::thread::scope(|scope| {
///     let passive = scope.spawn(|| server.accept(&listener, &config));
///     (client.connect(at, &config).unwrap(), passive.join().unwrap().unwrap())
/// });
///
/// let buffer = Arc::new(Buffer::from(b"no page begins here".as_slice()));
/// let mut region = Region::new(client.pd(), buffer.len())?;
/// let lent = active.register(&mut region, &buffer, 3..12, Rights::REMOTE_READ)?;
/// active.drain()?;
///
/// let target = server.register(&[0; 9][..], Rights::LOCAL_WRITE)?;
/// passive.read(&[target.sge(0..9)], lent)?;
/// assert_eq!(target.buffer().to_vec(0..9), b"page begi");
///
/// // The answer ends the registration.
/// passive.send_and_invalidate(b"done", lent.token)?;
/// assert_eq!(active.receive()?.invalidated, Some(lent.token));
/// assert!(!region.is_registered());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Region {
    // Closed before the pages go.
    frmr: Arc<Frmr>,
    mapping: Option<Mapping>,
    pd: Arc<Pd>,
    live: Arc<AtomicBool>,
}

/// Pages, and how a registration names them.
#[derive(Debug)]
pub(crate) struct Mapping {
    pages: Vec<NDK_LOGICAL_ADDRESS>,
    base: u64,
    len: usize,
    lam: Lam,
}

impl Region {
    /// A region for ranges of up to `len` bytes, wherever they begin.
    ///
    /// # Errors
    /// More pages than the adapter takes (`FRMRPageCount`), no resources.
    pub fn new(pd: &Arc<Pd>, len: usize) -> Result<Self> {
        // One more, as the range begins and ends inside pages.
        let pages = u32::try_from(len.div_ceil(PAGE_SIZE) + 1).unwrap_or(u32::MAX);
        let frmr = pd.create_frmr(pages, true)?;
        Ok(Self { frmr, mapping: None, pd: Arc::clone(pd), live: Arc::default() })
    }

    /// Whether the peer may reach the memory, or might, for all that is known.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// The token, which is the same for each registration.
    #[must_use]
    pub fn token(&self) -> u32 {
        self.frmr.remote_token()
    }

    /// An element over `range` of the bytes that were last registered, for requests of our own.
    ///
    /// # Panics
    /// If nothing was registered, or not as much, or the range is 4 GiB or longer.
    #[must_use]
    pub fn sge(&self, range: Range<usize>) -> Sge<'_> {
        let mapping = self.mapping.as_ref().expect("a range was registered");
        assert!(range.start <= range.end && range.end <= mapping.len, "{range:?}");
        let len = u32::try_from(range.len()).expect("an element is shorter than 4 GiB");
        self.frmr.sge(mapping.base + range.start as u64, len)
    }

    pub(crate) fn frmr(&self) -> &Frmr {
        &self.frmr
    }

    /// The pages of a range, which nothing has registered yet.
    pub(crate) fn map(&self, buffer: &Arc<Buffer>, range: Range<usize>) -> Result<Mapping> {
        let base = buffer.as_ptr().addr() as u64 + range.start as u64;
        let len = range.len();
        let lam = self.pd.adapter().build_lam(Arc::clone(buffer), range)?;
        // A buffer begins at a page, so `base` lies as far from a page's start as the first byte does.
        Ok(Mapping { pages: lam.pages(), base, len, lam })
    }

    /// Takes note of a registration that was posted.
    pub(crate) fn registered(&mut self, mapping: Mapping) -> (Remote, Arc<AtomicBool>) {
        let remote = Remote { address: mapping.base, token: self.token() };
        self.mapping = Some(mapping);
        self.live = Arc::new(AtomicBool::new(true));
        (remote, Arc::clone(&self.live))
    }
}

impl Mapping {
    pub(crate) fn what(&self) -> FastRegister<'_> {
        let Self { pages, base, len, lam } = self;
        FastRegister { pages, fbo: lam.fbo(), len: *len, base: *base }
    }
}

/// Takes note that the registration of this token is no more.
pub(crate) fn end_registration(registered: &mut BTreeMap<u32, Arc<AtomicBool>>, token: u32) {
    if let Some(live) = registered.remove(&token) {
        live.store(false, Ordering::Release);
    }
}
