//! The types between the threads, in the form that loom can model: `RUSTFLAGS="--cfg loom" cargo test -p
//! driver --lib -- loom`.

#[cfg(all(loom, test))]
pub(crate) use super::loom_queues::{ArrayQueue, rtrb};
#[cfg(not(all(loom, test)))]
pub(crate) use core::hint::spin_loop;
#[cfg(not(all(loom, test)))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(not(all(loom, test)))]
pub(crate) use crossbeam_queue::ArrayQueue;
#[cfg(all(loom, test))]
pub(crate) use loom::hint::spin_loop;
#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(not(all(loom, test)))]
pub(crate) mod rtrb {
    pub(crate) use ::rtrb::{Consumer, Producer, RingBuffer};
}
