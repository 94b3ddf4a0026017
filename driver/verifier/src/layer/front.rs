//! An object of the layer's own before each object of the provider.

use super::upcall::Event;
use super::{Layer, lock, tables};
use driver::abi::*;
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// Fronts of closed objects that are kept, so that a call on one is known for what it is.
const REMEMBERED: usize = 4096;

/// The type of an object.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `NDK_ADAPTER`.
    Adapter,
    /// `NDK_QP`.
    Qp,
    /// `NDK_CQ`.
    Cq,
    /// `NDK_MR`.
    Mr,
    /// `NDK_MW`.
    Mw,
    /// `NDK_PD`.
    Pd,
    /// `NDK_SHARED_ENDPOINT`.
    SharedEndpoint,
    /// `NDK_CONNECTOR`.
    Connector,
    /// `NDK_LISTENER`.
    Listener,
    /// `NDK_SRQ`.
    Srq,
}

impl Kind {
    /// The type that a header tells.
    #[allow(non_upper_case_globals, reason = "C names")]
    fn of(kind: NDK_OBJECT_TYPE) -> Self {
        match kind {
            NdkObjectTypeAdapter => Self::Adapter,
            NdkObjectTypeQp => Self::Qp,
            NdkObjectTypeCq => Self::Cq,
            NdkObjectTypeMr => Self::Mr,
            NdkObjectTypeMw => Self::Mw,
            NdkObjectTypePd => Self::Pd,
            NdkObjectTypeSharedEndpoint => Self::SharedEndpoint,
            NdkObjectTypeConnector => Self::Connector,
            NdkObjectTypeListener => Self::Listener,
            NdkObjectTypeSrq => Self::Srq,
            other => panic!("the provider made an object of type {other:?}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Adapter => "adapter",
            Self::Qp => "QP",
            Self::Cq => "CQ",
            Self::Mr => "MR",
            Self::Mw => "MW",
            Self::Pd => "PD",
            Self::SharedEndpoint => "shared endpoint",
            Self::Connector => "connector",
            Self::Listener => "listener",
            Self::Srq => "SRQ",
        };
        f.write_str(name)
    }
}

/// The object that the consumer has.
#[repr(C)]
struct Front {
    header: NDK_OBJECT_HEADER,
    dispatch: UnsafeCell<*const c_void>,
}

const _: () = {
    assert!(size_of::<Front>() == size_of::<NDK_QP>());
    assert!(std::mem::offset_of!(Front, dispatch) == std::mem::offset_of!(NDK_QP, Dispatch));
};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// An object, as the layer knows it.
pub(crate) struct Record {
    front: Front,
    /// Of all objects of the process, in the order in which they came.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Among the objects of its kind and its adapter, of an adapter among those of its opener; from 1.
    pub(crate) number: u64,
    /// The id of the adapter that it belongs to.
    pub(crate) adapter: u64,
    /// The number of that.
    adapter_number: u64,
    pub(super) layer: Weak<dyn Layer>,
    inner: *mut NDK_OBJECT_HEADER,
    /// The provider's table.
    table: *const c_void,
    state: AtomicU8,
    /// Callbacks of the consumer that the provider may call as long as the object lives.
    events: Mutex<Vec<Arc<Event>>>,
    /// How many objects of each kind this adapter has had.
    numbers: Arc<Mutex<BTreeMap<Kind, u64>>>,
}

// SAFETY: the pointers are the provider's object and table, which any thread may use; the consumer alone writes
// what the cells of the front hold, as in any object.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

/// All fronts, by their addresses.
static FRONTS: RwLock<BTreeMap<usize, Arc<Record>>> = RwLock::new(BTreeMap::new());
/// Those of closed objects, the oldest first.
static CLOSED_FRONTS: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// The object behind what the consumer passes; `None` where that is no object of any layer.
pub(crate) fn find<T>(front: *mut T) -> Option<Arc<Record>> {
    FRONTS.read().unwrap_or_else(PoisonError::into_inner).get(&front.addr()).cloned()
}

/// The place of a new object.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// An adapter: its number among those of its opener, and the version that it and its objects tell, if not the
    /// provider's word.
    Opened { number: u64, version: Option<NDK_VERSION> },
    /// Another object of the same adapter made it.
    MadeBy(&'a Record),
}

/// Puts a front before a new object of the provider.
///
/// # Safety
/// `inner` is open, and belongs to the consumer that gets the front.
pub(crate) unsafe fn put_before(
    inner: *mut NDK_OBJECT_HEADER,
    layer: Weak<dyn Layer>,
    origin: Origin<'_>,
) -> Arc<Record> {
    // SAFETY: the caller's promise.
    let header = unsafe { &*inner };
    let kind = Kind::of(header.ObjectType);
    // SAFETY: as above; all objects have their table at this place.
    let dispatch = unsafe { &raw const (*inner.cast::<Front>()).dispatch };
    // SAFETY: nobody writes it before the consumer has the object.
    let table = unsafe { UnsafeCell::raw_get(dispatch).read() };
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    let (numbers, version, adapter, adapter_number) = match origin {
        Origin::Opened { number, version } => (Arc::default(), version, id, number),
        Origin::MadeBy(Record { numbers, adapter, adapter_number, front, .. }) => {
            (Arc::clone(numbers), Some(front.header.Version), *adapter, *adapter_number)
        }
    };
    let number = if adapter == id { adapter_number } else { count(&numbers, kind) };
    let record = Arc::new(Record {
        front: Front {
            header: NDK_OBJECT_HEADER::new(version.unwrap_or(header.Version), header.ObjectType),
            dispatch: UnsafeCell::new(tables::of(kind)),
        },
        id,
        kind,
        number,
        adapter,
        adapter_number,
        layer,
        inner,
        table,
        state: AtomicU8::new(OPEN),
        events: Mutex::default(),
        numbers,
    });
    let mut fronts = FRONTS.write().unwrap_or_else(PoisonError::into_inner);
    fronts.insert(record.as_ptr().addr(), Arc::clone(&record));
    record
}

/// The number of a new object of this kind.
fn count(numbers: &Mutex<BTreeMap<Kind, u64>>, kind: Kind) -> u64 {
    let mut numbers = lock(numbers);
    let last = numbers.entry(kind).or_insert(0);
    *last += 1;
    *last
}

impl Record {
    /// The object that the consumer gets.
    pub(crate) const fn as_ptr(&self) -> *mut NDK_OBJECT_HEADER {
        (&raw const self.front).cast_mut().cast()
    }

    /// The object that the provider gets.
    pub(crate) const fn inner(&self) -> *mut NDK_OBJECT_HEADER {
        self.inner
    }

    /// The version that its header tells.
    pub(crate) const fn version(&self) -> NDK_VERSION {
        self.front.header.Version
    }

    /// The provider's table.
    ///
    /// # Safety
    /// `T` is the table of this kind of object.
    pub(super) const unsafe fn table<T>(&self) -> &'static T {
        // SAFETY: the caller's promise; tables live as long as the provider's code.
        unsafe { &*self.table.cast() }
    }

    /// Keeps what the provider may call from now on.
    pub(super) fn keep(&self, events: impl IntoIterator<Item = Arc<Event>>) {
        lock(&self.events).extend(events);
    }

    /// The consumer has not closed it.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// The provider has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// The consumer closes it; false if it did so before.
    pub(super) fn closing(&self) -> bool {
        self.state.compare_exchange(OPEN, CLOSING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The provider has refused the close.
    pub(super) fn reopen(&self) {
        self.state.store(OPEN, Ordering::Release);
    }

    /// The provider has closed it. The front stays for a while.
    pub(super) fn closed(&self) {
        self.state.store(CLOSED, Ordering::Release);
        let mut closed = lock(&CLOSED_FRONTS);
        closed.push_back(self.as_ptr().addr());
        if closed.len() > REMEMBERED
            && let Some(oldest) = closed.pop_front()
        {
            drop(closed);
            FRONTS.write().unwrap_or_else(PoisonError::into_inner).remove(&oldest);
        }
    }
}

/// Questions of the layers themselves to the provider.
impl Record {
    /// The local and the remote token of a region that is registered or initialized.
    pub(crate) fn region_tokens(&self) -> [u32; 2] {
        assert_eq!(self.kind, Kind::Mr);
        // SAFETY: the table of a region.
        let table = unsafe { self.table::<NDK_MR_DISPATCH>() };
        // SAFETY: the region is open, as the call that asks for it is one on it.
        let local = unsafe { (table.NdkGetLocalTokenFromMr)(self.inner.cast()) };
        // SAFETY: as above.
        [local, unsafe { (table.NdkGetRemoteTokenFromMr)(self.inner.cast()) }]
    }

    /// The privileged token of a domain.
    pub(crate) fn privileged_token(&self) -> u32 {
        assert_eq!(self.kind, Kind::Pd);
        // SAFETY: the table of a domain.
        let table = unsafe { self.table::<NDK_PD_DISPATCH>() };
        let mut token = 0;
        // SAFETY: the domain is new and open.
        unsafe { (table.NdkGetPrivilegedMemoryRegionToken)(self.inner.cast(), &raw mut token) };
        token
    }

    /// The capabilities of an adapter.
    pub(crate) fn info(&self) -> Result<NDK_ADAPTER_INFO, NTSTATUS> {
        assert_eq!(self.kind, Kind::Adapter);
        // SAFETY: the table of an adapter.
        let table = unsafe { self.table::<NDK_ADAPTER_DISPATCH>() };
        let mut info = NDK_ADAPTER_INFO::default();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as ULONG;
        // SAFETY: the adapter is new and open; the room is as large as the size says.
        unsafe { (table.NdkQueryAdapterInfo)(self.inner.cast(), &raw mut info, &raw mut size) }
            .ok()?;
        Ok(info)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.number)?;
        if self.kind != Kind::Adapter {
            write!(f, " of adapter {}", self.adapter_number)?;
        }
        Ok(())
    }
}
