//! A call of the consumer: the function, the object, and what the rules want to know of the arguments.

use super::Layer;
use super::front::{Kind, Record, find};
use driver::abi::*;
use std::sync::Arc;

/// A function of a table that the consumer has called.
pub(crate) struct Call {
    pub(crate) function: &'static str,
    pub(crate) object: Arc<Record>,
    pub(crate) layer: Arc<dyn Layer>,
    /// The function needs a completion callback, and has none.
    pub(crate) uncompleted: bool,
}

/// How a call has ended.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) status: NTSTATUS,
    /// The new object of a creation that has succeeded.
    pub(crate) made: Option<Arc<Record>>,
}

/// A layer's part in the end of a call, whether that comes inline or later.
pub(crate) type Then = Option<Box<dyn FnOnce(&End) + Send>>;

/// Arguments that rules are about.
pub(crate) enum Ask<'a> {
    /// No rule asks for more than the object.
    Plain,
    Info {
        info: *mut NDK_ADAPTER_INFO,
        size: *mut ULONG,
    },
    /// A creation without numbers.
    Create,
    CreateCq {
        depth: ULONG,
    },
    CreateMr {
        fast: bool,
    },
    CreateSrq {
        depth: ULONG,
        sge: ULONG,
    },
    CreateQp(CreateQp),
    BuildLam {
        mdl: *mut MDL,
        len: SIZE_T,
        lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    },
    ReleaseLam {
        lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    },
    Register {
        mdl: *mut MDL,
        len: SIZE_T,
        flags: ULONG,
    },
    Deregister,
    Initialize {
        pages: ULONG,
    },
    Resize {
        depth: ULONG,
    },
    Modify {
        depth: ULONG,
    },
    Moderate,
    /// Of a CQ: taking completions, and arming.
    Poll {
        null: bool,
    },
    Connect {
        qp: *mut NDK_QP,
        endpoint: *mut NDK_SHARED_ENDPOINT,
        limits: [&'a mut ULONG; 2],
        data: ULONG,
    },
    Accept {
        qp: *mut NDK_QP,
        limits: [&'a mut ULONG; 2],
        data: ULONG,
    },
    Reject {
        data: ULONG,
    },
    /// Any other request.
    Request,
    Post(Post<'a>),
    Flush,
    Close,
}

/// Arguments of a queue pair's creation.
#[derive(Clone, Copy)]
pub(crate) struct CreateQp {
    /// For receives, for initiator requests.
    pub(crate) cqs: [*mut NDK_CQ; 2],
    pub(crate) srq: *mut NDK_SRQ,
    /// Receives, initiator requests.
    pub(crate) depths: [ULONG; 2],
    pub(crate) sges: [ULONG; 2],
    pub(crate) inline: ULONG,
}

/// A work request.
pub(crate) struct Post<'a> {
    /// It comes back with the completion, and a layer may put its own in its place.
    pub(crate) context: &'a mut PVOID,
    pub(crate) operation: Operation<'a>,
    pub(crate) sgl: &'a [NDK_SGE],
    pub(crate) flags: ULONG,
}

/// The kind of a work request.
#[derive(Clone, Copy)]
pub(crate) enum Operation<'a> {
    Receive,
    Send,
    Read,
    Write,
    Bind { mr: *mut NDK_MR, mw: *mut NDK_MW, address: u64, len: SIZE_T },
    FastRegister { mr: *mut NDK_MR, pages: &'a [NDK_LOGICAL_ADDRESS], len: SIZE_T, base: u64 },
    Invalidate { object: *mut NDK_OBJECT_HEADER },
}

impl Call {
    /// Finds the object of a call.
    ///
    /// # Errors
    /// As the provider's own: `STATUS_INVALID_PARAMETER` for no object and for one of another kind,
    /// `STATUS_INVALID_DEVICE_STATE` for one that the consumer has closed.
    pub(super) fn enter<O>(
        object: *mut O,
        kind: Kind,
        function: &'static str,
    ) -> Result<Self, NTSTATUS> {
        let object = find(object).ok_or(STATUS_INVALID_PARAMETER)?;
        let layer = object.layer.upgrade().ok_or(STATUS_INVALID_DEVICE_STATE)?;
        let call = Self { function, object, layer, uncompleted: false };
        if call.object.kind != kind {
            call.layer.mistaken(&call);
            return Err(STATUS_INVALID_PARAMETER);
        }
        if !call.object.is_open() {
            call.layer.stale(&call);
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        Ok(call)
    }

    pub(super) fn ask(&self, mut ask: Ask<'_>) -> Result<Then, NTSTATUS> {
        self.layer.asked(self, &mut ask)
    }
}

/// An argument on its way down: objects become those of the provider.
pub(super) trait Lower {
    fn lower(self) -> Self;
}

macro_rules! as_they_are {
    ($($Type:ty)+) => {$(
        impl Lower for $Type {
            fn lower(self) -> Self {
                self
            }
        }
    )+};
}

as_they_are! {
    u8 u32 u64 usize PVOID *const std::ffi::c_void NDK_VERSION *const GUID *mut NDK_EXTENSION_INTERFACE
    *const SOCKADDR *mut SOCKADDR *mut ULONG *const GROUP_AFFINITY *mut MDL *mut NDK_ADAPTER_INFO
    *mut NDK_LOGICAL_ADDRESS_MAPPING *const NDK_LOGICAL_ADDRESS *const NDK_SGE
    Option<NDK_FN_CQ_NOTIFICATION_CALLBACK> Option<NDK_FN_CONNECT_EVENT_CALLBACK>
    Option<NDK_FN_DISCONNECT_EVENT_CALLBACK> Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>
}

macro_rules! objects {
    ($($Type:ty)+) => {$(
        impl Lower for *mut $Type {
            fn lower(self) -> Self {
                match find(self) {
                    // The provider has freed it.
                    Some(record) if record.is_closed() => std::ptr::null_mut(),
                    Some(record) => record.inner().cast(),
                    None => self,
                }
            }
        }
    )+};
}

objects! { NDK_CQ NDK_QP NDK_SRQ NDK_MR NDK_MW NDK_SHARED_ENDPOINT NDK_OBJECT_HEADER }

/// The value that the consumer gets of a call that is refused, and the status in a value.
pub(super) trait Answer {
    fn refused(status: NTSTATUS) -> Self;
    fn status(&self) -> NTSTATUS;
}

impl Answer for NTSTATUS {
    fn refused(status: NTSTATUS) -> Self {
        status
    }

    fn status(&self) -> NTSTATUS {
        *self
    }
}

/// A count or a token: there is none.
impl Answer for ULONG {
    fn refused(_: NTSTATUS) -> Self {
        0
    }

    fn status(&self) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

/// The function has no way to fail.
impl Answer for () {
    fn refused(_: NTSTATUS) -> Self {}

    fn status(&self) -> NTSTATUS {
        STATUS_SUCCESS
    }
}
