//! The edges and what they lend, for the compiler to agree: an edge goes to the thread of its core, and no two threads use
//! it at once.

/// States which auto traits a type has, and which it lacks: `Type: (Send, !Sync);`. Anything else does not compile.
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
        $($crate::auto_traits::auto_traits! { @ $T: $($rest)+ })?
    };
    (@ $T:ty: $Trait:ident $(, $($rest:tt)+)?) => {
        const _: fn() = || {
            fn has<T: ?Sized + $Trait>() {}
            has::<$T>();
        };
        $($crate::auto_traits::auto_traits! { @ $T: $($rest)+ })?
    };
    ($($T:ty: ($($traits:tt)+);)+) => {
        $($crate::auto_traits::auto_traits! { @ $T: $($traits)+ })+
    };
}
pub(crate) use auto_traits;
