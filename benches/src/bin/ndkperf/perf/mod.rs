//! Bandwidth and latency of SEND, WRITE and READ, with every byte checked.
//!
//! A run has one operation with messages of one size, over one or more queue pairs, each of which is a connection of
//! its own. The client tells the server what it is going to do. Then the sender of an end posts `depth` messages at a
//! time, and takes their latency. Message n has the n-th pattern of the
//! seed and goes to slot n of the other end's ring, which has twice the depth: a slot is used again
//! only after its holder has checked it (or, for READ, filled it anew) and returned a credit. So no
//! SEND finds an empty receive queue, and no message is checked by less than all of its bytes.
//! Without verification WRITE and READ need no credits. Where both ends send, each has both roles, on the same queue
//! pairs. For the latency alone one message at a time is sent and answered. Where the queue pairs of a thread share a
//! receive queue, it has as many receives as theirs would have together, so that this is still so; a message is in the
//! receive of any of them.
//!
//! ```text
//! run ─> client (a thread) ─> lanes (queue pairs) ─> sender, holder ─> link (connection)
//!        server (a connection, ─^  └─> pingpong, instead of lanes
//!          or a group of them)
//! ```

mod budget;
mod client;
mod control;
mod gate;
mod group;
mod holder;
mod lanes;
mod link;
mod meter;
mod outcome;
mod pingpong;
mod places;
mod plan;
mod ring;
mod run;
mod sender;
mod server;

pub(crate) use budget::{DEPTH_MAX, QUEUE_PAIRS_MAX, SIZE_MAX};
pub(crate) use control::{Operation, Parameters};
pub(crate) use group::{Groups, Incoming, Tally};
pub(crate) use outcome::{End, Flow, Interval, Outcome, QueuePair, counted};
pub(crate) use places::UNPROVEN_MAX;
pub(crate) use plan::{Limit, Measure, Place, Plan, Posting, name};
pub(crate) use run::{Sight, run};
pub(crate) use server::{Accepted, Memory, accept, serve};

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

    /// Those of others as well.
    fn with(self, others: Self) -> Self {
        let first = if self.count > 0 { self } else { others };
        Self { count: self.count + others.count, ..first }
    }
}
