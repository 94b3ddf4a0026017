//! The way in from Windows: converts the pointers of a handler before safe code runs.
#![allow(unsafe_code, reason = "the one place that believes a context")]

use crate::abi::PVOID;
use alloc::sync::Arc;

/// Makes a function that Windows calls out of a safe one.
///
/// An argument `a: T = make(b: B, c: C)` stands for the C parameters `b` and `c`, of which `make` makes a safe value; every
/// other argument is a C parameter as it is.
macro_rules! handler {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($argument:tt)+) $(-> $Answer:ty)? $body:block) => {
        $crate::handler::handler! { @ { $(#[$doc])* $vis $name [$(-> $Answer)?] $body } [] [] [] $($argument)+ }
    };
    // Each argument in turn: its C parameters, its safe parameter, and what makes this of those.
    (
        @ $head:tt [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
        $name:ident: $Type:ty = $($make:ident)::+($($from:ident: $From:ty),+ $(,)?) $(, $($rest:tt)*)?
    ) => {
        $crate::handler::handler! {
            @ $head
            [$($c)* $($from: $From,)+]
            [$($safe)* $name: $Type,]
            [
                $($made)*
                // SAFETY: valid while this runs, by the contract of the handler.
                unsafe { $($make)::+($($from),+) },
            ]
            $($($rest)*)?
        }
    };
    (
        @ $head:tt [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
        $name:ident: $Type:ty $(, $($rest:tt)*)?
    ) => {
        $crate::handler::handler! {
            @ $head [$($c)* $name: $Type,] [$($safe)* $name: $Type,] [$($made)* $name,] $($($rest)*)?
        }
    };
    (
        @ { $(#[$doc:meta])* $vis:vis $name:ident [$($answer:tt)*] $body:block }
        [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Called by Windows: the context is that of a living object of ours, and every other pointer is valid for the call.
        #[allow(unsafe_code, reason = "the way in from Windows")]
        $vis unsafe extern "system" fn $name($($c)*) $($answer)* {
            #[deny(unsafe_code)]
            #[inline]
            fn safe($($safe)*) $($answer)* $body

            safe($($made)*)
        }
    };
}
pub(crate) use handler;

/// The object behind a context.
///
/// # Safety
/// `context` points to a `T` that lives for `'a`.
pub(crate) unsafe fn object<'a, T>(context: PVOID) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*context.cast::<T>() }
}

/// The same, with a count of its own: the object outlives a context that ends meanwhile.
///
/// # Safety
/// `context` came from `Arc::<T>::into_raw`, and has not ended.
pub(crate) unsafe fn counted<T>(context: PVOID) -> Arc<T> {
    let pointer = context.cast::<T>().cast_const();
    // SAFETY: the caller's promise.
    unsafe { Arc::increment_strong_count(pointer) };
    // SAFETY: the count taken above.
    unsafe { Arc::from_raw(pointer) }
}

/// The same, with the context's own count, which ends with it.
///
/// # Safety
/// As for [`counted`], and the context is not used any more.
pub(crate) unsafe fn ended<T>(context: PVOID) -> Arc<T> {
    // SAFETY: the caller's promise.
    unsafe { Arc::from_raw(context.cast()) }
}

/// A structure that Windows lends for a call, to be read.
///
/// # Safety
/// `pointer` is valid for `'a`, and begins with a `T`.
pub(crate) unsafe fn lent<'a, T, P>(pointer: *mut P) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*pointer.cast() }
}

/// A structure that Windows lends for a call, to be changed.
///
/// # Safety
/// `pointer` is valid for `'a` and nobody else's, and begins with a `T`.
pub(crate) unsafe fn lent_mut<'a, T, P>(pointer: *mut P) -> &'a mut T {
    // SAFETY: the caller's promise.
    unsafe { &mut *pointer.cast() }
}
