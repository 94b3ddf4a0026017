//! The services of an operating system: a clock, mappings of MDLs, and resolution of neighbours.

pub(crate) mod home;
#[cfg(target_os = "linux")]
pub mod linux;
pub(crate) mod request;
#[cfg(target_os = "linux")]
pub mod stepped;

use crate::abi::{MDL, NTSTATUS, PVOID};
use core::net::{IpAddr, SocketAddr};
use core::ptr::NonNull;
use rocev2::counters::QpCounters;
use rocev2::env::Instant;
use rocev2::ids::Qpn;
use rocev2::qp::Failure;

/// The operating system, as the provider sees it. Every method is callable at IRQL <=
/// DISPATCH_LEVEL.
pub trait Platform: Send + Sync {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// A system address for the bytes that one MDL (not a chain) describes, valid while its
    /// owner keeps it locked. `None`: no mapping could be made.
    fn map(&self, mdl: &MDL) -> Option<Mapped>;

    /// Runs `work` with `bytes` of memory set aside for what it allocates; false where they cannot be
    /// had, and nothing was run. Where a refused allocation ends the process anyway, it just runs.
    fn with_memory(&self, _bytes: usize, work: &mut dyn FnMut()) -> bool {
        work();
        true
    }

    /// Whether there is memory for the growth that a burst of received packets may cause. Asked before each
    /// burst: where there is none, no new connection begins, and existing ones go on.
    fn has_room(&self) -> bool {
        true
    }

    /// Runs a short `step` that the poll core must not come between on the same processor: it would wait
    /// for the step's end. Where threads take turns whatever their work is, it just runs.
    fn undisturbed(&self, step: &mut dyn FnMut()) {
        step();
    }

    /// Whether threads take turns whatever their work is, so that [`Self::undisturbed`] need not be called.
    fn takes_turns(&self) -> bool {
        false
    }

    /// Asks for the link-layer address of the next hop to `remote`, and returns who does. The platform's answer comes as a
    /// control message ([`Shard::resolved`](crate::Shard::resolved)).
    fn resolve(&self, _local: IpAddr, _remote: IpAddr, _how: Resolve) -> Resolver {
        Resolver::Provider
    }

    /// A consumer polls, inside this call, and finds nothing: the home may take a turn of that core on its thread, but
    /// makes no callback. Whether it has.
    fn poll_core(&self, _core: u8) -> bool {
        false
    }

    /// A consumer that polled that core so will wait for a notification, and takes no more turns.
    fn stop_polling(&self, _core: u8) {}

    /// The core, of so many, that is nearest to the processors of a group that `mask` names; `None` where none is near.
    fn core_near(&self, group: u16, mask: u64, _cores: usize) -> Option<usize> {
        let processor = mask.trailing_zeros() as usize;
        (mask != 0).then_some(usize::from(group) * u64::BITS as usize + processor)
    }

    /// Traces an event. It must cost nothing where no session listens.
    fn trace(&self, _event: &Trace<'_>) {}
}

/// How much a platform does to find a neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resolve {
    /// It looks at what it knows. Nothing known is no answer.
    Look,
    /// It asks the network for what it does not know: a connect waits for the answer.
    Ask,
    /// The same for a path that came into use, maybe by a frame that lies. Nobody waits for the answer.
    Confirm,
    /// It asks the network, whatever it knows.
    Renew,
}

/// The party that finds a neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resolver {
    /// The operating system.
    Platform,
    /// The provider, by queries of its own: the operating system resolves nothing.
    Provider,
    /// Nobody: the operating system would, and as many questions wait as may.
    Nobody,
}

/// Something worth a line in a trace: once in a connection's life, or a failure. Never per packet.
#[derive(Clone, Copy, Debug)]
pub enum Trace<'a> {
    /// Data may flow.
    Connected {
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// A connection that was established is over.
    Disconnected {
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
        /// The side that ended it.
        by: EndedBy,
        /// The counters of its QP until then; `None` where the consumer has closed that.
        totals: Option<&'a QpCounters>,
    },
    /// A connect or an accept failed.
    NotConnected {
        /// The peer of a connect.
        remote: Option<SocketAddr>,
        /// The status that the consumer gets.
        status: NTSTATUS,
    },
    /// A request failed, and with it its QP.
    RequestFailed {
        /// The QP.
        qpn: Qpn,
        /// As in its completion.
        status: NTSTATUS,
    },
    /// A QP went to the error state by itself, be it for the peer's doing.
    QpFailed {
        /// The QP.
        qpn: Qpn,
        /// The error that ended it.
        failure: Failure,
        /// The same, as its completions have it in `ProviderErrorCode`.
        code: u32,
    },
    /// A CQ had no room for a completion.
    CqOverrun {
        /// Its room.
        depth: u32,
    },
    /// Units of several packets were lost over all paths of a core, and packets leave singly: the device that divides them loses
    /// them. It comes once for each core.
    UnitsLost {
        /// Units that were lost, of those that were watched.
        lost: u64,
        /// Units that were sent.
        sent: u64,
    },
}

/// The side that ended a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndedBy {
    /// Our consumer.
    Consumer,
    /// The peer.
    Peer,
    /// A QP that failed.
    Failure,
    /// The way to the peer is gone: our address was taken away.
    Path,
}

impl EndedBy {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Peer => "peer",
            Self::Failure => "failure",
            Self::Path => "path",
        }
    }
}

/// The result of `work`, run by [`Platform::with_memory`]; `None` where there is no memory.
pub(crate) fn with_memory<T>(
    platform: &dyn Platform,
    bytes: usize,
    work: impl FnOnce() -> T,
) -> Option<T> {
    let (mut work, mut value) = (Some(work), None);
    platform.with_memory(bytes, &mut || value = work.take().map(|work| work()));
    value
}

/// A way to the bytes of an MDL, undone when it is dropped.
#[derive(Debug)]
pub struct Mapped {
    address: NonNull<u8>,
    undo: Option<(PVOID, Undo)>,
}

/// Undoes a mapping, given what it was made with.
pub type Undo = fn(PVOID);

impl Mapped {
    /// A mapping that others keep alive.
    pub const fn borrowed(address: NonNull<u8>) -> Self {
        Self { address, undo: None }
    }

    /// A mapping of our own; `undo(owner)` ends it, at IRQL <= DISPATCH_LEVEL.
    pub const fn owned(address: NonNull<u8>, owner: PVOID, undo: Undo) -> Self {
        Self { address, undo: Some((owner, undo)) }
    }

    /// The first byte.
    pub const fn address(&self) -> NonNull<u8> {
        self.address
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some((owner, undo)) = self.undo {
            undo(owner);
        }
    }
}
