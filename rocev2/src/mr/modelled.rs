//! The atomics of the shared table, in the form that loom can model: `RUSTFLAGS="--cfg loom" cargo test -p rocev2
//! --lib -- loom`.

#[cfg(not(all(loom, test)))]
pub(super) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, fence},
};
#[cfg(all(loom, test))]
pub(super) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, fence},
};
