//! A NetAdapterCx client driver: an adapter of Windows whose other end is the poll core.
//!
//! ```text
//!   driver     creates the driver, its device and its adapter as Windows finds them
//!   queue      creates the packet queues, and takes the calls that advance them
//!   framework  the calls of KMDF and NetAdapterCx, by their function tables
//!   abi        their structures
//!   resident   the owner of the edge: here a neighbour that answers ARP and pings
//!   system     on a host, the other side: a ring owner that checks each call, and a stand-in for the frameworks
//! ```
//! The rings and their queues are in [`netadapter_glue::netadapter`]. The image, `image/main.rs`, adds the entry point
//! and binds the tables.
//!
//! # Glossary
//!
//! | Word | Meaning | Elsewhere |
//! | --- | --- | --- |
//! | system | NetAdapterCx, from the rings' point of view | operating system, framework |
//! | share | the elements of a ring that the driver owns | |
//! | to post | to pass elements to the hardware; here, to the wire | |
//! | to drain | to give elements back to the system | |
//! | breach | a rule of the rings that a call broke | Driver Verifier: a violation |
//! | resident | the owner of the edge in the driver | |
#![no_std]

extern crate alloc;
#[cfg(unix)]
extern crate std;

pub mod abi;
mod driver;
pub mod framework;
mod queue;
pub mod resident;
#[cfg(unix)]
pub mod system;

pub use driver::{Client, create};
