//! The messages of the consumers' threads and the home to the poll core: the list of all kinds.
//!
//! A kind's work on the core is an `impl` beside the object's code (`crate::request`).

use crate::adapter::request::OpenAdapter;
use crate::connector::request::{
    Accept, CompleteConnect, Connect, CreateConnector, Disconnect, Reject,
};
use crate::cq::request::{CreateCq, ResizeCq};
use crate::endpoint::request::CreateSharedEndpoint;
use crate::listener::request::{CreateListener, Listen};
use crate::mr::request::{CreateMr, DeregisterMr, InitializeFastRegisterMr, RegisterMr};
use crate::mw::request::CreateMw;
use crate::object::done::CreateDone;
use crate::object::id::ObjectId;
use crate::object::request::Close;
use crate::pd::request::CreatePd;
use crate::platform::request::{CheckPaths, List, Resolved, SetAddresses, SetTrafficClasses, Stop};
use crate::qp::request::CreateQp;
use crate::srq::request::{CreateSrq, ModifySrq};
use alloc::boxed::Box;

/// An enum with a variant for each kind, and a macro of the same list: `$each!(message, request => value)` is `value` for
/// the request in `message`, whatever its kind. The `$` in front is for that macro.
macro_rules! kinds {
    ($dollar:tt $(#[$attribute:meta])* $Message:ident, $each:ident: $($Kind:ident)+) => {
        $(#[$attribute])*
        pub(crate) enum $Message {
            $($Kind($Kind),)+
        }

        $(impl From<$Kind> for $Message {
            fn from(request: $Kind) -> Self {
                Self::$Kind(request)
            }
        })+

        macro_rules! $each {
            ($dollar message:expr, $dollar request:pat => $dollar value:expr) => {
                match $dollar message {
                    $($crate::message::$Message::$Kind($dollar request) => $dollar value,)+
                }
            };
        }
        pub(crate) use $each;
    };
}

kinds! {
    $
    /// A message to the poll core.
    Control, each_control:
    OpenAdapter SetAddresses SetTrafficClasses Resolved CheckPaths List Stop
    Create Close
    ResizeCq
    ModifySrq
    RegisterMr DeregisterMr InitializeFastRegisterMr
    Connect CompleteConnect Accept Reject Disconnect
    Listen
}

kinds! {
    $
    /// The object to create.
    #[expect(clippy::enum_variant_names, reason = "a variant is called as its kind")]
    New, each_new:
    CreatePd CreateCq CreateSrq CreateQp CreateMr CreateMw CreateConnector CreateListener CreateSharedEndpoint
}

// The control ring has a slot for each of some ten thousand messages: a kind boxes what is larger.
const _: () = assert!(size_of::<Control>() <= 56);

/// Creates an object under its antecedent.
pub(crate) struct Create {
    pub(crate) parent: ObjectId,
    pub(crate) what: Box<New>,
    pub(crate) done: CreateDone,
}
