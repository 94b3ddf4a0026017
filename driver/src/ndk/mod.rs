//! The NDK objects: what the consumer holds, and what becomes of its calls.
//!
//! The functions of the dispatch tables check arguments and send a message; they never touch the
//! poll core. The core (`crate::core`) owns every object's life: it creates, counts antecedents and
//! successors, and frees after the close completion has returned.
#![allow(unsafe_code, reason = "C functions that are given the consumer's pointers")]

/// The value, or an early end of the C function with the status: its `?`. Each function passes its
/// object through it ([`Object::check`]), and a completion that it requires ([`RequestDone::new`]).
macro_rules! or_return {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(status) => return status,
        }
    };
}

pub(crate) mod adapter;
pub(crate) mod connector;
pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod lam;
pub(crate) mod listener;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod queue;
pub(crate) mod reason;
pub(crate) mod regions;
pub(crate) mod shared_endpoint;
pub(crate) mod srq;
pub(crate) mod status;

use crate::abi::*;
use crate::ring::Shard;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use counters::Connection;

slotmap::new_key_type! {
    /// Names an object; never another one after it was freed.
    pub(crate) struct ObjectId;
}

/// An object as the consumer holds it: the C part first, the provider's after it.
#[repr(C)]
pub(crate) struct Object<N, S> {
    pub(crate) ndk: N,
    pub(crate) base: Base,
    pub(crate) shared: S,
}

/// What every object knows of itself.
pub(crate) struct Base {
    pub(crate) id: ObjectId,
    pub(crate) shard: Arc<Shard>,
    /// What its adapter was opened at.
    pub(crate) version: NDK_VERSION,
    /// The consumer has closed it, and what it asks of it now is a mistake.
    closing: AtomicBool,
}

impl Base {
    pub(crate) const fn new(id: ObjectId, version: NDK_VERSION, shard: Arc<Shard>) -> Self {
        Self { id, shard, version, closing: AtomicBool::new(false) }
    }

    /// Whether the consumer has closed the object.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// # Errors
    /// `STATUS_NOT_SUPPORTED`: the adapter was opened at 1.x, which lacks what 2.1 brought.
    pub(crate) const fn check_2_1(&self) -> Result<(), NTSTATUS> {
        if self.version.Major < 2 { Err(STATUS_NOT_SUPPORTED) } else { Ok(()) }
    }

    /// The shard, to use beyond the object's life.
    pub(crate) fn shard(&self) -> Arc<Shard> {
        Arc::clone(&self.shard)
    }
}

/// The beginning of every [`Object`].
type Prefix = Object<NDK_ADAPTER, ()>;

const _: () = {
    assert!(core::mem::offset_of!(Prefix, base) == 0x30);
    assert!(core::mem::offset_of!(qp::QpObject, base) == 0x30);
    assert!(core::mem::offset_of!(connector::ConnectorObject, base) == 0x30);
};

impl Prefix {
    /// What an object of any type begins with, if it is one of `kind`.
    ///
    /// # Safety
    /// As for [`Object::check`].
    unsafe fn find<'a>(pointer: *mut Self, kind: NDK_OBJECT_TYPE) -> Result<&'a Self, NTSTATUS> {
        // SAFETY: the caller's promise; every object begins with the prefix.
        let prefix = unsafe { pointer.as_ref() }.ok_or(STATUS_INVALID_PARAMETER)?;
        let fits = prefix.ndk.Header.ObjectType == kind;
        if fits { Ok(prefix) } else { Err(STATUS_INVALID_PARAMETER) }
    }
}

impl<N, S> Object<N, S> {
    /// The object behind a consumer's pointer.
    ///
    /// # Safety
    /// `pointer` is an open object of this provider and of this type, and it stays open for `'a`.
    pub(crate) unsafe fn from_ndk<'a>(pointer: *mut N) -> &'a Self {
        // SAFETY: the caller's promise; the C part is the first field.
        unsafe { &*pointer.cast::<Self>() }
    }

    /// The object behind a pointer that a consumer passes, as far as a mistake can be seen.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: a null pointer, or an object of another type.
    /// `STATUS_INVALID_DEVICE_STATE`: the consumer has closed it.
    ///
    /// # Safety
    /// `pointer` is null or an object of this provider, of whatever type, that lives for `'a`.
    pub(crate) unsafe fn check<'a>(pointer: *mut N) -> Result<&'a Self, NTSTATUS>
    where
        N: NdkObject,
    {
        // SAFETY: the caller's promise.
        let prefix = unsafe { Prefix::find(pointer.cast(), N::TYPE) }?;
        if prefix.base.is_closing() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        // SAFETY: of this type, by its header.
        Ok(unsafe { Self::from_ndk(pointer) })
    }

    /// The consumer's pointer to the object.
    pub(crate) fn as_ndk(self: &Arc<Self>) -> *mut N {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// Whether both belong to one provider.
    pub(crate) fn same_provider<O, T>(&self, other: &Object<O, T>) -> bool {
        Arc::ptr_eq(&self.base.shard, &other.base.shard)
    }
}

/// A pointer of the consumer that is only ever handed back to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Context(usize);

impl Context {
    pub(crate) fn new(pointer: PVOID) -> Self {
        Self(pointer.expose_provenance())
    }

    pub(crate) fn get(self) -> PVOID {
        with_exposed_provenance_mut(self.0)
    }

    /// As a work request carries it.
    pub(crate) const fn as_u64(self) -> u64 {
        self.0 as u64
    }

    pub(crate) const fn from_u64(value: u64) -> Self {
        Self(value as usize)
    }
}

/// How a request that returned `STATUS_PENDING` ends.
#[derive(Clone, Copy)]
pub(crate) struct RequestDone {
    pub(crate) callback: NDK_FN_REQUEST_COMPLETION,
    pub(crate) context: Context,
}

impl RequestDone {
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: no callback, and the request would end unheard.
    pub(crate) fn new(
        callback: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> Result<Self, NTSTATUS> {
        let callback = callback.ok_or(STATUS_INVALID_PARAMETER)?;
        Ok(Self { callback, context: Context::new(context) })
    }
}

/// How a creation that returned `STATUS_PENDING` ends.
#[derive(Clone, Copy)]
pub(crate) struct CreateDone {
    pub(crate) callback: NDK_FN_CREATE_COMPLETION,
    pub(crate) context: Context,
}

impl CreateDone {
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: no callback, and nobody would ever have the object, to close it.
    pub(crate) fn new(
        callback: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
    ) -> Result<Self, NTSTATUS> {
        let callback = callback.ok_or(STATUS_INVALID_PARAMETER)?;
        Ok(Self { callback, context: Context::new(context) })
    }
}

/// How a close ends.
pub(crate) enum CloseDone {
    /// By the consumer's callback.
    Callback(NDK_FN_CLOSE_COMPLETION, Context),
    /// By a signal to the thread that waits in the close of the adapter.
    Signal(Box<dyn FnOnce() + Send>),
}

/// A message to the poll core.
#[cfg_attr(
    not(all(windows, target_env = "msvc")),
    allow(dead_code, reason = "some are sent by one home only")
)]
pub(crate) enum Control {
    OpenAdapter {
        version: NDK_VERSION,
        opened: Box<dyn FnOnce(*mut NDK_ADAPTER) + Send>,
    },
    Create {
        parent: ObjectId,
        what: Box<Create>,
        done: CreateDone,
    },
    Close {
        object: ObjectId,
        done: CloseDone,
    },
    ResizeCq {
        cq: ObjectId,
        depth: u32,
        done: RequestDone,
    },
    RegisterMr {
        mr: ObjectId,
        what: Box<mr::Register>,
        done: RequestDone,
    },
    InitializeFastRegisterMr {
        mr: ObjectId,
        what: Box<mr::Initialize>,
        done: RequestDone,
    },
    /// 0 keeps depth or threshold.
    ModifySrq {
        srq: ObjectId,
        depth: u32,
        threshold: u32,
        done: RequestDone,
    },
    DeregisterMr {
        mr: ObjectId,
        done: RequestDone,
    },
    Connect {
        connector: ObjectId,
        what: Box<connector::Connect>,
        done: RequestDone,
    },
    CompleteConnect {
        connector: ObjectId,
        event: connector::DisconnectEvent,
        done: RequestDone,
    },
    Accept {
        connector: ObjectId,
        what: Box<connector::Accept>,
        done: RequestDone,
    },
    Reject {
        connector: ObjectId,
        private_data: Box<connector::PrivateData>,
    },
    Disconnect {
        connector: ObjectId,
        done: RequestDone,
    },
    Listen {
        listener: ObjectId,
        local: SocketAddr,
        done: RequestDone,
    },
    /// The adapter owns these addresses from now on.
    SetAddresses {
        addresses: Vec<IpAddr>,
    },
    /// [`crate::platform::Platform::resolve`] has ended; `None`: nobody answers for the address.
    #[cfg_attr(not(windows), expect(dead_code, reason = "only Windows resolves by itself"))]
    Resolved {
        remote: IpAddr,
        mac: Option<[u8; 6]>,
    },
    /// The operating system's routes or interfaces have changed: neighbours may be elsewhere.
    CheckPaths,
    /// Who listens and who is connected.
    List {
        /// Gets nothing where there is no memory for them.
        listed: Box<dyn FnOnce(Option<Vec<Endpoint>>) + Send>,
    },
    Stop,
}

/// What has a local address.
pub(crate) enum Endpoint {
    Connection(Connection),
    /// It takes requests.
    #[cfg_attr(not(windows), expect(dead_code, reason = "only NDIS asks"))]
    Listener(SocketAddr),
    /// Outgoing connections share it.
    #[cfg_attr(not(windows), expect(dead_code, reason = "only NDIS asks"))]
    Shared(SocketAddr),
}

/// What to create.
pub(crate) enum Create {
    Pd,
    Cq(cq::CreateCq),
    Mr { fast_register: bool },
    Mw,
    Srq(srq::CreateSrq),
    Qp(qp::CreateQp),
    Connector,
    Listener { event: NDK_FN_CONNECT_EVENT_CALLBACK, context: Context },
    SharedEndpoint { local: SocketAddr },
}

/// Sends a creation: `STATUS_PENDING`, or why not. See [`request`].
pub(crate) fn create(
    shard: Arc<Shard>,
    parent: ObjectId,
    what: Create,
    done: CreateDone,
) -> NTSTATUS {
    let what = or_return!(shard.boxed(what));
    // The place of the close that must not fail.
    if shard.reserve_object().is_err() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    match shard.request(Control::Create { parent, what, done }) {
        Ok(()) => STATUS_PENDING,
        Err(_) => {
            shard.release_object();
            STATUS_INSUFFICIENT_RESOURCES
        }
    }
}

/// Sends a request: `STATUS_PENDING`, or why not.
///
/// It borrows nothing of the object and holds the shard by itself: once the message is sent, the
/// core may finish the request, and the consumer close the object and the whole provider, before
/// this returns.
pub(crate) fn request(shard: Arc<Shard>, message: Control) -> NTSTATUS {
    match shard.request(message) {
        Ok(()) => STATUS_PENDING,
        Err(_) => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// [`NDK_FN_CLOSE_OBJECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_close_object):
/// closes an object of the table's type. Never fails. IRQL <= DISPATCH_LEVEL.
///
/// What is no such object, and a close without a completion, is a mistake of the consumer, and nothing
/// is closed: `STATUS_INVALID_PARAMETER`. So is a second close of an object that still closes: it is
/// told `STATUS_INVALID_DEVICE_STATE`, and the completion comes once, to the first.
///
/// # Safety
/// `object` is null or an object of this provider that was not freed.
pub(crate) unsafe extern "system" fn ndk_close<N: NdkObject>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let callback = or_return!(completion.ok_or(STATUS_INVALID_PARAMETER));
    // SAFETY: null or not freed, by the consumer's promise.
    let prefix = or_return!(unsafe { Prefix::find(object.cast(), N::TYPE) });
    if prefix.base.closing.swap(true, Ordering::AcqRel) {
        return STATUS_INVALID_DEVICE_STATE;
    }
    let shard = prefix.base.shard();
    let done = CloseDone::Callback(callback, Context::new(context));
    shard.close(prefix.base.id, done);
    STATUS_PENDING
}

/// [`NDK_FN_QUERY_EXTENSION_INTERFACE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_query_extension_interface):
/// no extension is defined, so none is offered. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// None: nothing is touched.
pub(crate) unsafe extern "system" fn ndk_query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *const GUID,
    _version: NDK_VERSION,
    _extension: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

/// The elements of a C array; empty for a null pointer.
///
/// # Safety
/// `pointer` is null or readable for `count` elements during `'a`.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: ULONG) -> &'a [T] {
    if pointer.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(pointer, count as usize) }
}

/// Stores an out parameter that may be null.
///
/// # Safety
/// `pointer` is null or writable.
pub(crate) unsafe fn store<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) };
    }
}
