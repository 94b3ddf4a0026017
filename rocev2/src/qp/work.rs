//! Work requests and their completions.

use crate::ids::{Lkey, Rkey};
use crate::mr::{Bind, Mapping, Released};
use crate::qp::Failure;
use alloc::collections::VecDeque;
use core::fmt;
use heapless::Vec;

/// Scatter/gather elements in one work request, at most.
pub const MAX_SGE: usize = 16;
/// READ requests in flight per QP and direction, at most. Of short READs over one processor, this many at once move a tenth
/// more than 16.
pub const MAX_READS: usize = 32;
/// Bytes in one message, at most (IBTA ch. 9, Message Length).
pub const MAX_MESSAGE: u64 = 1 << 31;

/// A piece of local memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sge {
    /// Address inside the registration of `lkey`.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The key.
    pub lkey: Lkey,
}

/// The pieces of one message, in order.
pub type SgList = Vec<Sge, MAX_SGE>;

/// Sum of the lengths in bytes.
pub fn sg_len(sgl: &[Sge]) -> u64 {
    sgl.iter().map(|sge| u64::from(sge.len)).sum()
}

/// The operation of an initiator request.
///
/// The last three touch only our own keys: no packet leaves, and their [`SendWr::sgl`] is ignored. They
/// take effect in the order of the queue, so a request posted behind one finds its effect. A failed one
/// fails the QP (IBTA ch. 10, Memory Management Operation Error).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendOp {
    /// SEND into a receive of the peer.
    Send,
    /// SEND, and invalidate a key of the peer.
    SendInvalidate(Rkey),
    /// WRITE into the peer's memory.
    Write {
        /// The peer's address.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// READ from the peer's memory.
    Read {
        /// The peer's address.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// READ, and invalidate the key of the first element of the sink once the data is there. That
    /// key must be one that can be invalidated. A request behind it that maps the key again has to be
    /// fenced.
    ReadInvalidate {
        /// The peer's address.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// Makes a fast-register region name memory, once every earlier request has been sent. The region must
    /// not name any memory yet.
    FastRegister {
        /// The region's key.
        key: Rkey,
        /// The memory.
        mapping: Mapping,
    },
    /// Ends the mapping of a fast-register region or the binding of a window, which must exist. Waits until
    /// every earlier request is complete, fenced or not, as those may use the key (10.6.5.1).
    Invalidate(Rkey),
    /// Binds a window. Takes effect once every earlier request has been sent.
    Bind(Bind),
}

impl SendOp {
    /// Whether the operation is a READ.
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::ReadInvalidate { .. })
    }
}

/// A request on the initiator (send) queue.
///
/// Inline data need no support here: the poster copies the bytes into a registration of its own and names
/// them by an ordinary element. The bytes are the poster's again with the completion.
///
/// `S` are the elements: a list, or anything that yields them.
#[derive(Clone, Debug)]
pub struct SendWr<S = SgList> {
    /// The caller's name for the request, returned in the completion.
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// Source of a SEND or WRITE, sink of a READ.
    pub sgl: S,
    /// Ask the peer for a solicited event.
    pub solicited: bool,
    /// Do not start before earlier READs are complete (10.8.3.3). Any operation may be fenced.
    pub read_fence: bool,
    /// Report only failure.
    pub silent: bool,
}

/// A request on the receive queue; `S` as for [`SendWr`].
#[derive(Clone, Debug)]
pub struct RecvWr<S = SgList> {
    /// The caller's name for the request.
    pub id: u64,
    /// The memory for the message.
    pub sgl: S,
}

/// The outcome of a work request (IBTA ch. 11, Completion Return Status).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WcStatus {
    /// The request succeeded.
    Success,
    /// The receive is shorter than the message.
    LocalLength,
    /// The request itself cannot be executed on this QP.
    LocalQpOperation,
    /// A scatter/gather element failed its key, rights or bounds.
    LocalProtection,
    /// A fast registration or an invalidation that the key's state, kind or rights forbid.
    MemoryManagement,
    /// A window could not be bound.
    MemoryBind,
    /// Cancelled: the QP is in the error state.
    Flushed,
    /// The response does not fit the request.
    BadResponse,
    /// The memory of a WRITE with immediate failed after it had taken its receive (C9-222.1).
    LocalAccess,
    /// The peer found the request invalid, or a peer's request was invalid for this receive.
    RemoteInvalidRequest,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer failed to execute the request.
    RemoteOperation,
    /// The peer did not respond within the negotiated retries.
    TransportRetryExceeded,
    /// The peer had no receive for longer than the negotiated retries.
    RnrRetryExceeded,
    /// The path to the peer is gone for good, as when the local address was removed.
    PathLost,
}

impl WcStatus {
    const ALL: [Self; 15] = [
        Self::Success,
        Self::Flushed,
        Self::LocalLength,
        Self::LocalQpOperation,
        Self::LocalProtection,
        Self::MemoryManagement,
        Self::MemoryBind,
        Self::BadResponse,
        Self::LocalAccess,
        Self::RemoteInvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperation,
        Self::TransportRetryExceeded,
        Self::RnrRetryExceeded,
        Self::PathLost,
    ];

    /// A number below 16.
    pub(super) fn code(self) -> u64 {
        Self::ALL.iter().position(|status| *status == self).unwrap_or_default() as u64
    }

    /// The inverse of [`Self::code`].
    #[inline(always)]
    pub(super) fn from_code(code: u64) -> Self {
        if code == 0 { Self::Success } else { Self::of_error(code) }
    }

    #[cold]
    fn of_error(code: u64) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Flushed)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Success => "success",
            Self::LocalLength => "the receive is shorter than the message",
            Self::LocalQpOperation => "the request cannot be executed on this queue pair",
            Self::LocalProtection => "a scatter/gather element failed its key, rights or bounds",
            Self::MemoryManagement => "the key does not allow the operation",
            Self::MemoryBind => "the window could not be bound",
            Self::Flushed => "the request was flushed",
            Self::BadResponse => "the response does not fit the request",
            Self::LocalAccess => "local memory failed while a receive was held",
            Self::RemoteInvalidRequest => "invalid request",
            Self::RemoteAccess => "the peer refused access to its memory",
            Self::RemoteOperation => "the peer failed to execute the request",
            Self::TransportRetryExceeded => "no answer within the negotiated retries",
            Self::RnrRetryExceeded => "the peer had no receive within the negotiated retries",
            Self::PathLost => "the path to the peer is gone",
        })
    }
}

/// The kind of request that a completion ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WcKind {
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// READ, with or without invalidation of the sink.
    Read,
    /// Fast registration.
    FastRegister,
    /// Local invalidation.
    Invalidate,
    /// Binding of a window.
    Bind,
    /// A receive.
    Receive,
    /// A receive whose message invalidated this key.
    ReceiveInvalidate(Rkey),
}

impl WcKind {
    /// Whether the request was a receive.
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveInvalidate(_))
    }
}

/// The caller's name for a queue pair or a shared receive queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// Of the queue pair.
    Qp(u64),
    /// Of the shared receive queue.
    Srq(u64),
}

/// The end of a work request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The queue pair, or the shared receive queue that was destroyed before a queue pair took the receive.
    pub owner: Owner,
    /// The caller's name of the request.
    pub id: u64,
    /// The kind of request.
    pub kind: WcKind,
    /// The outcome.
    pub status: WcStatus,
    /// Bytes received; 0 for initiator requests.
    pub len: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// Success that the consumer does not want to see: only the queue slot becomes free.
    pub silent: bool,
}

/// A queue with requests that have ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finished {
    /// Of the queue pair.
    pub owner: u64,
    /// Whether its requests are receives.
    pub receives: bool,
    /// The requests that have ended, at most.
    pub count: usize,
    /// Whether all of them have succeeded for sure: the queue pair is not in the error state.
    pub succeeded: bool,
    /// The error that took the queue pair to the error state.
    pub failure: Option<Failure>,
}

/// The receiver of completions; see [`Engine::take_completions`](crate::Engine::take_completions).
pub trait CompletionSink {
    /// Takes the completions of a queue, oldest first. The places of their requests may be posted to again once the last
    /// was taken; the completions that are not taken are lost.
    fn take(&mut self, queue: &Finished, completions: impl Iterator<Item = Completion>);
}

/// The reason why a request was not queued.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such QP.
    #[error("there is no such queue pair")]
    UnknownQp,
    /// The QP is not connected yet.
    #[error("the queue pair is not connected")]
    NotConnected,
    /// The queue holds as many requests as it was created for.
    #[error("the queue is full")]
    QueueFull,
    /// The request has more elements than the queue was created for.
    #[error("the request has too many elements")]
    TooManyElements,
    /// The end where requests are posted was taken.
    #[error("the queue pair's poster was taken")]
    PosterTaken,
    /// No such shared receive queue.
    #[error("there is no such shared receive queue")]
    UnknownSrq,
    /// The QP takes its receives from a shared queue.
    #[error("the queue pair takes its receives from a shared queue")]
    SharedReceives,
    /// The connection was negotiated without READs of ours.
    #[error("the connection was agreed on without READs")]
    NoReads,
}

/// Completions of receives of shared queues on their way to the owner, and regions that fast registrations
/// release. The completions of a queue pair's own queues stay in its rings until the owner takes them.
///
/// There is room for every receive that shared queues hold, and as much again for those posted in place of
/// completed ones since the owner last took all completions; and for every mapping, in force or posted. So
/// completing never allocates.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    queue: VecDeque<Completion>,
    released: VecDeque<Released>,
    shared_receives: usize,
    mappings: usize,
    /// There is room for all mappings that are posted.
    bounded: bool,
}

impl Completions {
    /// A queue without room for requests yet, and with room for `mappings` that are posted, if there are
    /// never more.
    pub(crate) fn new(mappings: Option<usize>) -> Self {
        let (bounded, mappings) = (mappings.is_some(), mappings.unwrap_or_default());
        Self { released: VecDeque::with_capacity(mappings), mappings, bounded, ..Self::default() }
    }

    /// Makes room for so many more receives of a shared queue.
    pub(crate) fn reserve(&mut self, receives: usize) {
        self.shared_receives += receives;
        self.queue.reserve((2 * self.shared_receives).saturating_sub(self.queue.len()));
    }

    /// Returns the room of `receives`.
    pub(crate) fn unreserve(&mut self, receives: usize) {
        self.shared_receives = self.shared_receives.saturating_sub(receives);
    }

    /// Bytes that [`Self::reserve_key`] may allocate.
    pub(crate) fn key_bytes(&self) -> usize {
        let full = self.mappings >= self.released.capacity();
        if full { 2 * (self.mappings + 2) * size_of::<Released>() } else { 0 }
    }

    /// Makes room for the mapping of one more key, which can be mapped without a request outstanding; `None`
    /// where there is no memory.
    pub(crate) fn reserve_key(&mut self) -> Option<()> {
        self.released.try_reserve(self.mappings + 1).ok()?;
        self.mappings += 1;
        Some(())
    }

    /// Makes room for so many more mappings, posted on a queue pair.
    pub(crate) fn reserve_mappings(&mut self, requests: usize) {
        let requests = if self.bounded { 0 } else { requests };
        self.mappings += requests;
        self.released.reserve(self.mappings.saturating_sub(self.released.len()));
    }

    /// Returns the room of the mappings of `requests`.
    pub(crate) fn unreserve_mappings(&mut self, requests: usize) {
        let requests = if self.bounded { 0 } else { requests };
        self.mappings = self.mappings.saturating_sub(requests);
    }

    /// Returns the room of a key.
    pub(crate) fn unreserve_key(&mut self) {
        self.mappings = self.mappings.saturating_sub(1);
    }

    /// Bytes that [`Self::reserve`] and [`Self::reserve_mappings`] may allocate at once: a queue that grows
    /// doubles, and has room for four at least.
    pub(crate) fn room_bytes(&self, receives: usize, requests: usize) -> usize {
        let grown = |room: usize, has: usize| if room > has { room.max(2 * has).max(4) } else { 0 };
        let queue = 2 * (self.shared_receives + receives);
        let queue = if receives > 0 { grown(queue, self.queue.capacity()) } else { 0 };
        let requests = if self.bounded { 0 } else { requests };
        queue * size_of::<Completion>()
            + grown(self.mappings + requests, self.released.capacity()) * size_of::<Released>()
    }

    /// Appends a completion.
    pub(crate) fn push(&mut self, completion: Completion) {
        self.queue.push_back(completion);
    }

    /// Notes that the bytes of a region are no longer in use.
    pub(crate) fn release(&mut self, released: Released) {
        self.released.push_back(released);
    }

    /// Removes the oldest released region.
    pub(crate) fn pop_released(&mut self) -> Option<Released> {
        self.released.pop_front()
    }

    /// The completions and the released regions that fit without allocating.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.queue.capacity(), self.released.capacity())
    }

    /// Removes the oldest completion.
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.queue.pop_front()
    }
}
