//! A stand-in for the Windows kernel and for NDIS: what the driver's image imports, in ordinary Rust.
//!
//! It keeps the books that Windows' verifiers keep (IRQL of each thread, locks, pool, net buffer
//! lists, the order of calls) and reports each breach. It is written from the documentation, and
//! shares no declaration of NDIS or of the kernel with the driver: an error in one of them shows.
//!
//! Two hosts load the unmodified image and give it these functions: Wine's driver host, and a
//! loader of our own in a Linux process ([`loader`]), which starts faster and is easier to debug.
//! Neither is Windows.
//!
//! ```text
//! scenario ─> host (load, unload) ─> DriverEntry ─> ndis, ntos
//!      └────> ndis: two vNICs, their NICs, a switch; ndkperf's consumer on top
//! ```
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "it is the other side of a C interface")]
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    unsafe_op_in_unsafe_fn,
    reason = "every function here is called by the image under test, under the contract of the \
              Windows page of its name"
)]
#![allow(missing_docs, non_snake_case, reason = "the names of Windows")]

/// Defines what the image can import, and `TABLE` of it: (name, address).
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(
            $(#[$meta])*
            #[cfg_attr(windows, unsafe(no_mangle))]
            pub unsafe extern "win64" fn $name($($arg: $ty),*) $(-> $ret)? $body
        )*
        pub(crate) fn table() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }
    };
}

#[macro_use]
pub mod log;
#[cfg(unix)]
pub mod loader;
pub mod ndis;
pub mod netio;
pub mod ntos;
pub mod scenarios;
#[cfg(windows)]
mod wine;

/// Everything that an image may import, whatever module it names.
pub fn exports() -> impl Iterator<Item = (&'static str, usize)> {
    ntos::exports().chain(ndis::exports()).chain(netio::table())
}

/// Who can load the image under test and let it go.
pub trait Host: Send + Sync {
    /// Loads the image and calls its entry point.
    ///
    /// # Errors
    /// What the entry point returned.
    fn load(&self) -> Result<(), i32>;

    /// Calls the image's unload routine and lets go of it.
    fn unload(&self);
}
