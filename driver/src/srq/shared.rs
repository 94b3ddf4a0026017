//! The state of a shared receive queue that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::entry::Sgl;
use crate::object::shared::{Context, Object};
use crate::queue::{Slots, elements};
use crate::shard::Bell;
use crate::sync::modelled::rtrb;
use crate::sync::{Doorbell, Exclusive};
use crate::upcall::Calling;
use rocev2::qp::{RecvPoster, RecvWr};

/// A shared receive queue.
pub(crate) type SrqObject = Object<NDK_SRQ, SrqShared>;

/// The shared state of an SRQ.
pub(crate) struct SrqShared {
    pub(crate) receive: Exclusive<Receives>,
    pub(crate) slots: Slots,
    pub(crate) calling: Calling,
    pub(crate) bell: Bell,
    pub(crate) doorbell: Doorbell,
}

/// Rings that may wait to take the place of the one before: each is deeper than that, and as deep as a power of two,
/// from 1 to the 2^15 that no limit exceeds.
pub(crate) const SUCCESSORS: usize = 16;

/// The consumer's end of an SRQ: a ring, and the deeper ones that a change of depth has put behind it.
pub(crate) struct Receives {
    ring: RecvPoster,
    successors: rtrb::Consumer<RecvPoster>,
    max_sge: usize,
    /// Receives ever posted, modulo 2^32.
    posted: u32,
}

impl Receives {
    pub(super) fn new(
        ring: RecvPoster,
        successors: rtrb::Consumer<RecvPoster>,
        max_sge: u32,
    ) -> Self {
        Self { ring, successors, max_sge: max_sge as usize, posted: 0 }
    }

    /// Posts a receive.
    pub(super) fn post(
        &mut self,
        context: PVOID,
        sgl: Sgl<'_>,
        slots: &Slots,
    ) -> Result<(), NTSTATUS> {
        while let Ok(deeper) = self.successors.pop() {
            self.ring = deeper;
        }
        slots.check_room(self.posted)?;
        let sgl = elements(sgl, self.max_sge)?;
        let posted = self.ring.post(RecvWr { id: Context::new(context).as_u64(), sgl });
        posted.map_err(|_| STATUS_NO_MORE_ENTRIES)?;
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }
}
