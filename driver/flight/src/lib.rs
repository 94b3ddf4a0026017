//! A consumer of NDK that calls each function of the dispatch tables and gives a verdict on each step.
//!
//! ```text
//! fly ─> Flight ─> steps ─> Step ─> tables of the provider
//!                             └───> Machine: memory, time, waiting
//! ```
//! It runs in a kernel, on hardware and drivers that nobody has tried: so nothing here allocates without looking at the
//! answer, no wait is without end, and after a wait in vain nothing is freed that the provider may still use
//! ([`Verdict::Stuck`]). `ndk-consumer` has none of the three: it is for programs, whose process ends.
//!
//! # Glossary
//!
//! | Word | Meaning |
//! | --- | --- |
//! | step | one thing that is tried, in one place: an adapter, or a connection by loopback or between two adapters |
//! | verdict | how a step ended |
//! | call | a request that may pend, from the function of the table to its completion callback |
//! | late | not ended within the patience of the flight |
//! | end | one side of a connection, with its queue pair and its memory |
#![no_std]

mod call;
mod completion;
mod connection;
mod failure;
mod flight;
mod kinds;
mod line;
mod machine;
mod objects;
mod posting;
mod region;
mod step;
mod steps;
mod table;

pub use failure::Failure;
pub use flight::{Config, Side, Verdict, fly};
pub use line::{LINE_LEN, Line};
pub use machine::Machine;
