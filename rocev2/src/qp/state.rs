//! The states of a queue pair (IBTA ch. 10, Queue Pair States).

/// Where a QP stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QpState {
    /// Created; receives may be posted.
    Init,
    /// Ready to receive and, once the consumer posts, to send.
    ///
    /// RTR and RTS are one state here: connection management always moves a QP through both before
    /// a packet can leave, so nothing can tell them apart.
    Rts,
    /// Failed or flushed: everything posted completes flushed, nothing is sent or executed.
    Err,
}

impl QpState {
    /// Whether inbound packets are processed.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rts)
    }
}
