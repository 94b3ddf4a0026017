//! Memory regions: registration of MDL chains, and fast registration of logical pages.
//!
//! A region has one token, local and remote alike, never 0. That of an `NdkRegisterMr` is drawn with
//! each registration; that of a fast-register region once, when it is initialised, and it stays for
//! the life of the region: consumers read it once and hand it out again and again.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
