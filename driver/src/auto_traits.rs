//! The types that threads may share or send, and those that they may not, for the compiler to agree: a raw pointer or
//! an atomic one in a type says nothing of what it leads to. A guard is shared as its value may be; what has a place on
//! one thread's stack, or names a consumer's memory during a call, stays where it is.

use crate::bytes::inline::InlineSlots;
use crate::bytes::mapping::{Mapping, MdlChain};
use crate::bytes::pages::PageLists;
use crate::bytes::{Names, Regions};
use crate::lam::shared::LamRings;
use crate::object::entry::{Buffer, Bytes, Handle, Out, Room, Sgl};
use crate::platform::Mapped;
use crate::qp::shared::QpObject;
use crate::sync::{Borrowed, Entered, Exclusive, Hold, Inbox, Latest, Letter, Loan, Taken};
use crate::{PollCore, Shard};
use core::cell::Cell;

/// States which auto traits a type has, and which it lacks: `Type: (Send, !Sync);`. Anything else does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! auto_traits {
    (@ $T:ty:) => {};
    (@ $T:ty: !$Trait:ident $(, $($rest:tt)+)?) => {
        // Both implementations fit a type that has the trait, and neither is chosen.
        const _: fn() = || {
            trait Lacks<Which> {
                fn it() {}
            }
            struct Has;
            impl<T: ?Sized> Lacks<()> for T {}
            impl<T: ?Sized + $Trait> Lacks<Has> for T {}
            <$T as Lacks<_>>::it();
        };
        $($crate::auto_traits! { @ $T: $($rest)+ })?
    };
    (@ $T:ty: $Trait:ident $(, $($rest:tt)+)?) => {
        const _: fn() = || {
            fn has<T: ?Sized + $Trait>() {}
            has::<$T>();
        };
        $($crate::auto_traits! { @ $T: $($rest)+ })?
    };
    ($($T:ty: ($($traits:tt)+);)+) => {
        $($crate::auto_traits! { @ $T: $($traits)+ })+
    };
}

/// A value that goes from thread to thread, and that two may not use at once.
type Unshared = Cell<u8>;
/// A value that stays on its thread.
type Bound = *mut u8;

auto_traits! {
    // Values of one thread at a time, and their guards.
    Exclusive<Unshared>: (Send, Sync);
    Exclusive<Bound>: (!Send, !Sync);
    Entered<'static, u8>: (Send, Sync);
    Entered<'static, Unshared>: (Send, !Sync);
    Entered<'static, Bound>: (!Send, !Sync);
    Loan<Unshared>: (Send, Sync);
    Loan<Bound>: (!Send, !Sync);
    Hold<&'static Loan<Unshared>, Unshared>: (Send, !Sync);
    Borrowed<u8>: (Send, Sync);
    Borrowed<Unshared>: (Send, !Sync);
    Borrowed<Bound>: (!Send, !Sync);
    // Messages from one thread to another.
    Inbox<Unshared>: (Send, Sync);
    Inbox<Bound>: (!Send, !Sync);
    Letter<Unshared>: (Send, !Sync);
    Letter<Bound>: (!Send, !Sync);
    Taken<Unshared>: (Send, !Sync);
    Taken<Bound>: (!Send, !Sync);
    Latest<u8>: (Send, Sync);
    Latest<Unshared>: (Send, !Sync);
    Latest<Bound>: (!Send, !Sync);
    // Memory of consumers, and the ways to it.
    Mapping: (Send, Sync);
    InlineSlots: (Send, Sync);
    PageLists: (Send, Sync);
    LamRings: (Send, Sync);
    Names: (Send, Sync);
    Regions: (Send, Sync);
    Mapped: (!Send, !Sync);
    // The arguments of a call.
    MdlChain<'static>: (!Send, !Sync);
    Sgl<'static>: (!Send, !Sync);
    Bytes<'static>: (!Send, !Sync);
    Buffer<'static>: (!Send, !Sync);
    Room<'static>: (!Send, !Sync);
    Out<'static, u8>: (!Send, !Sync);
    Handle<'static, QpObject>: (!Send, !Sync);
    // Objects that all threads call, and a core that one runs.
    QpObject: (Send, Sync);
    Shard: (Send, Sync);
    PollCore: (Send, !Sync);
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Bound, Unshared};
    use crate::sync::{Held, Token};
    use crate::{Provider, Stepped};

    auto_traits! {
        Token<Unshared>: (Send, Sync);
        Token<Bound>: (!Send, !Sync);
        Held<'static, u8>: (Send, Sync);
        Held<'static, Unshared>: (Send, !Sync);
        Held<'static, Bound>: (!Send, !Sync);
        Provider: (Send, Sync);
        Stepped: (Send, !Sync);
    }
}
