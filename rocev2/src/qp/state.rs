//! The states of a queue pair (IBTA ch. 10, Queue Pair States).

/// The state of a QP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QpState {
    /// Created; receives may be posted.
    Init,
    /// Ready to receive and, once the consumer posts, to send.
    ///
    /// RTR and RTS are one state here: connection management always moves a QP through both before a packet
    /// can leave, so they cannot be told apart.
    Rts,
    /// Failed or flushed: every posted request completes flushed, and no packet is sent or executed.
    Err,
}

impl QpState {
    /// Whether inbound packets are processed.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rts)
    }
}
