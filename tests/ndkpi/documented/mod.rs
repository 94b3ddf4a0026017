//! What the documentation lets each function of `ndkpi.h` answer, and what a callback or a
//! completion may carry: the rows of the matrix that `cargo test -p tests --test ndkpi` fills.
//!
//! A page that says "inline or asynchronously" leaves it to the provider; such a row is met by
//! either. Rows have one of three sources: the function's own page, the user-mode sister interface
//! (NDSPI v2) where the page is silent, and this provider, which gives each misuse a defined status.

mod connections;
mod objects;
mod results;

use connections::*;
use driver::abi::*;
use objects::*;
use results::*;

/// How a status reaches the consumer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Delivery {
    /// The function returns it.
    Inline,
    /// The completion callback of the request brings it.
    Asynchronous,
    /// One or the other, as the provider likes.
    Either,
    /// There is none: the function or the callback is called, and that is all.
    Called,
    /// A callback is given it.
    Argument,
    /// An entry of a completion queue carries it.
    Entry,
}

/// Where a row comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The page of the function.
    Page,
    /// The user-mode interface with the same object model.
    Sister,
    /// This provider: the pages admit other statuses, and misuse gets this one.
    Provider,
}

/// A row: one status, one way to get it.
#[derive(Clone, Copy, Debug)]
pub struct Documented {
    /// How it comes.
    pub delivery: Delivery,
    /// What comes; [`STATUS_SUCCESS`] where nothing is told.
    pub status: NTSTATUS,
    /// Who says so.
    pub source: Source,
    /// When it comes, where the page does not say so.
    pub when: &'static str,
    /// Why this provider never gives it.
    pub never: Option<&'static str>,
}

impl Documented {
    const fn new(delivery: Delivery, status: NTSTATUS) -> Self {
        Self { delivery, status, source: Source::Page, when: "", never: None }
    }

    const fn sister(self, when: &'static str) -> Self {
        Self { source: Source::Sister, when, ..self }
    }

    const fn ours(self, when: &'static str) -> Self {
        Self { source: Source::Provider, when, ..self }
    }

    const fn never(self, reason: &'static str) -> Self {
        Self { never: Some(reason), ..self }
    }
}

/// A function, a callback or a kind of completion.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its slot, type or operation.
    pub name: &'static str,
    /// The interface version that brought it.
    pub since: NDK_VERSION,
    /// Its page under <https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/>.
    pub page: &'static str,
    /// What it may answer.
    pub rows: &'static [Documented],
    /// What it answers besides to misuse that many functions have in common; where `rows` has the
    /// same status, that row says it.
    pub misuse: &'static [Documented],
}

/// A dispatch table, the callbacks, or the completions.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The name of the table.
    pub name: &'static str,
    /// Its functions, in order.
    pub functions: &'static [Function],
}

/// The group of the callbacks.
pub const CALLBACKS: &str = "callbacks";
/// The group of the completions, by operation.
pub const COMPLETIONS: &str = "completions";

const V1_1: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 1 };
const V1_2: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 2 };
const V2_1: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

const fn function(name: &'static str, page: &'static str, rows: &'static [Documented]) -> Function {
    Function { name, since: V1_1, page, rows, misuse: &[] }
}

impl Function {
    const fn since(self, since: NDK_VERSION) -> Self {
        Self { since, ..self }
    }

    /// It looks at its object before it touches it.
    const fn checked(self) -> Self {
        Self { misuse: CHECKED, ..self }
    }

    /// [`Self::checked`], and missing at 1.x.
    const fn checked_of_2_1(self) -> Self {
        Self { misuse: CHECKED_OF_2_1, ..self }.since(V2_1)
    }

    /// It looks at the type of its object, which only its closer can close.
    const fn typed(self) -> Self {
        Self { misuse: TYPED, ..self }
    }
}

const fn inline(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Inline, status)
}

const fn asynchronous(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Asynchronous, status)
}

const fn either(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Either, status)
}

const fn argument(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Argument, status)
}

const fn entry(status: NTSTATUS, when: &'static str) -> Documented {
    Documented::new(Delivery::Entry, status).sister(when)
}

const CALLED: Documented = Documented::new(Delivery::Called, STATUS_SUCCESS);
const PENDING: Documented = inline(STATUS_PENDING);
const SUCCESS: Documented = either(STATUS_SUCCESS);
const RESOURCES: Documented = either(STATUS_INSUFFICIENT_RESOURCES);
const NO_ROOM: Documented =
    inline(STATUS_INSUFFICIENT_RESOURCES).ours("the adapter's ring of requests is full");
const NOT_CONNECTED: Documented = inline(STATUS_CONNECTION_INVALID);
const QUEUE_FULL: Documented = inline(STATUS_NO_MORE_ENTRIES).sister("the queue is full");
const TOO_MANY_ELEMENTS: Documented = inline(STATUS_DATA_OVERRUN)
    .sister("the list has more elements than the queue was created with");
const TOO_MANY_BYTES: Documented = inline(STATUS_BUFFER_OVERFLOW)
    .sister("the list has more bytes than a message, or inline data, may have");
const CONCURRENT: Documented =
    inline(STATUS_INVALID_DEVICE_REQUEST).ours("another thread posts to the queue");
const BAD_POINTER: Documented =
    inline(STATUS_INVALID_PARAMETER).ours("a pointer that the call needs is NULL");

const NO_OBJECT: Documented = inline(STATUS_INVALID_PARAMETER)
    .ours("the object is NULL or of another type, or a completion callback is missing");
const CLOSED: Documented =
    inline(STATUS_INVALID_DEVICE_STATE).ours("the consumer has closed the object");
const TYPED: &[Documented] = &[NO_OBJECT];
const CHECKED: &[Documented] = &[NO_OBJECT, CLOSED];
const CHECKED_OF_2_1: &[Documented] =
    &[NO_OBJECT, CLOSED, inline(STATUS_NOT_SUPPORTED).ours("the adapter was opened at 1.x")];

/// `NDK_FN_CLOSE_OBJECT` never fails; its completion counts as success. The last rows are for misuse.
const CLOSE: &[Documented] = &[
    SUCCESS,
    PENDING,
    inline(STATUS_INVALID_DEVICE_STATE).ours("the object is closed already"),
    inline(STATUS_INVALID_PARAMETER)
        .ours("the object is NULL or of another type, or there is no completion callback"),
];
const CLOSE_PAGE: &str = "nc-ndkpi-ndk_fn_close_object";
const QUERY: Function = function(
    "NdkQueryExtension",
    "nc-ndkpi-ndk_fn_query_extension_interface",
    &[
        inline(STATUS_SUCCESS).never("no extension is defined for any version of the interface"),
        inline(STATUS_NOT_SUPPORTED),
    ],
);
const CREATE: &[Documented] = &[SUCCESS, PENDING, RESOURCES];
const CREATE_LIMITED: &[Documented] =
    &[SUCCESS, PENDING, either(STATUS_INVALID_PARAMETER), RESOURCES];
const ADDRESS: &[Documented] = &[
    inline(STATUS_SUCCESS),
    inline(STATUS_BUFFER_TOO_SMALL),
    inline(STATUS_CONNECTION_INVALID).sister("there is no such address yet"),
    BAD_POINTER,
];

/// Everything: the dispatch tables, the callbacks and the completions. `NDK_FN_DISCONNECT_EX` and
/// `NDK_FN_QUERY_ADAPTER_INFO_EX` are types of the header without a slot or a page.
pub const GROUPS: &[Group] = &[
    Group { name: "NDK_ADAPTER_DISPATCH", functions: ADAPTER },
    Group { name: "NDK_PD_DISPATCH", functions: PD },
    Group { name: "NDK_MR_DISPATCH", functions: MR },
    Group { name: "NDK_MW_DISPATCH", functions: MW },
    Group { name: "NDK_CQ_DISPATCH", functions: CQ },
    Group { name: "NDK_SRQ_DISPATCH", functions: SRQ },
    Group { name: "NDK_QP_DISPATCH", functions: QP },
    Group { name: "NDK_CONNECTOR_DISPATCH", functions: CONNECTOR },
    Group { name: "NDK_LISTENER_DISPATCH", functions: LISTENER },
    Group { name: "NDK_SHARED_ENDPOINT_DISPATCH", functions: SHARED_ENDPOINT },
    Group { name: CALLBACKS, functions: CALLBACK },
    Group { name: COMPLETIONS, functions: COMPLETION },
];

// A slot that is forgotten here does not compile.
const _: () = {
    assert!(lists(ADAPTER, NDK_ADAPTER_DISPATCH::SLOTS));
    assert!(lists(PD, NDK_PD_DISPATCH::SLOTS));
    assert!(lists(MR, NDK_MR_DISPATCH::SLOTS));
    assert!(lists(MW, NDK_MW_DISPATCH::SLOTS));
    assert!(lists(CQ, NDK_CQ_DISPATCH::SLOTS));
    assert!(lists(SRQ, NDK_SRQ_DISPATCH::SLOTS));
    assert!(lists(QP, NDK_QP_DISPATCH::SLOTS));
    assert!(lists(CONNECTOR, NDK_CONNECTOR_DISPATCH::SLOTS));
    assert!(lists(LISTENER, NDK_LISTENER_DISPATCH::SLOTS));
    assert!(lists(SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH::SLOTS));
};

/// Whether `functions` are the slots of a table, in order.
const fn lists(functions: &[Function], slots: &[&str]) -> bool {
    if functions.len() != slots.len() {
        return false;
    }
    let mut at = 0;
    while at < slots.len() {
        if !same(functions[at].name.as_bytes(), slots[at].as_bytes()) {
            return false;
        }
        at += 1;
    }
    true
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
