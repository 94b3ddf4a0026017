//! Bandwidth and latency of SEND, WRITE and READ, with every byte checked.
//!
//! One connection is one run of one operation with messages of one size. The client tells the server what it is going to do,
//! posts `depth` messages at a time, and takes their latency. Message n has the n-th pattern of the
//! seed and goes to slot n of the server's ring, which has twice the depth: a slot is used again
//! only after the server has checked it (or, for READ, filled it anew) and returned a credit. So no
//! SEND finds an empty receive queue, and no message is checked by less than all of its bytes.
//! Without verification WRITE and READ need no credits.

mod budget;
mod client;
mod control;
mod meter;
mod ring;
mod server;

pub(crate) use budget::{DEPTH_MAX, SIZE_MAX};
pub(crate) use client::{End, Limit, Outcome, Place, Plan, name, run};
pub(crate) use control::Operation;
pub(crate) use server::serve;

/// Wrong messages of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Mismatches {
    pub(crate) count: u64,
    /// Number of the first one, and its first wrong byte.
    pub(crate) message: u64,
    pub(crate) offset: u64,
}

impl Mismatches {
    /// Takes one message into account.
    fn note(&mut self, message: u64, offset: Option<usize>) {
        let Some(offset) = offset else { return };
        if self.count == 0 {
            (self.message, self.offset) = (message, offset as u64);
        }
        self.count += 1;
    }
}
