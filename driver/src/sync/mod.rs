//! Agreements between threads: small values of atomics, each with its proof. Loom explores every order of
//! their steps (`loom_model`).

mod bells;
mod doorbell;
mod exclusive;
mod inbox;
mod latest;
#[cfg(target_os = "linux")]
mod lease;
mod loan;
pub(crate) mod modelled;
mod places;
mod sleep;
#[cfg(target_os = "linux")]
mod token;

pub(crate) use bells::Bells;
pub(crate) use doorbell::{Doorbell, FLUSH, RECEIVES};
pub(crate) use exclusive::{Entered, Exclusive};
pub(crate) use inbox::{Inbox, Letter, Taken};
pub(crate) use latest::{Latest, Room};
#[cfg(target_os = "linux")]
pub(crate) use lease::{Lease, Watch};
pub(crate) use loan::{Borrowed, Hold, Loan};
pub use places::Full;
pub(crate) use places::take;
pub(crate) use sleep::Sleep;
#[cfg(target_os = "linux")]
pub(crate) use token::{Asked, Held, Token};

#[cfg(all(loom, test))]
mod loom_queues;

#[cfg(all(loom, test))]
pub(crate) mod loom_model;
