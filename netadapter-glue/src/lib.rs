//! Ethernet edges that know nothing of RDMA.
//!
//! An [`Edge`] is where frames enter and leave: two edges joined in memory ([`memory`]), a Linux
//! packet socket, a TAP device, a QEMU netdev, or a Windows adapter. [`fault`] and [`pcap`] wrap
//! any other edge. [`neighbour`] answers and asks for Ethernet addresses where no operating system
//! does. One thread owns an edge; nothing here starts a thread, and nothing allocates,
//! locks or waits once an edge is built.
//!
//! The core of the crate is `no_std` with `alloc`. Edges over a host's devices exist on Linux only.
#![no_std]

extern crate alloc;
#[cfg(any(test, unix))]
extern crate std;

#[cfg(target_os = "linux")]
pub mod af_packet;
pub mod fault;
#[cfg(target_os = "linux")]
mod inbox;
pub mod memory;
pub mod ndis;
pub mod neighbour;
pub mod net_ring;
pub mod netadapter;
#[cfg(target_os = "linux")]
pub mod pcap;
#[cfg(target_os = "linux")]
pub mod qemu;
#[cfg(target_os = "linux")]
mod queue;
pub mod segment;
mod sleeper;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
pub mod tap;

pub use segment::Segments;

use alloc::boxed::Box;
use core::task::Waker;

/// What an edge can carry. Constant for the life of the edge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// The edge's own Ethernet address: the source of what it sends.
    pub mac: [u8; 6],
    /// Largest layer-3 packet in bytes: IP header and all that follows it.
    pub mtu: usize,
    /// How many equal segments one unit may carry; 1 where the edge takes single frames only.
    pub max_segments: usize,
    /// Length in bytes of each buffer lent to `fill` in [`Edge::transmit`].
    pub max_unit_len: usize,
}

/// What `fill` wrote into the buffer that it was lent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transmit {
    /// Bytes written, from the start of the buffer; at most its length.
    pub len: usize,
    /// How the unit divides into packets; `None` for one plain frame.
    pub segments: Option<Segments>,
}

/// One received unit, lent for the length of a call.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The Ethernet frame from the destination address on, without FCS.
    pub frame: &'a [u8],
    /// How the unit divides into packets; `None` for one plain frame.
    pub segments: Option<Segments>,
}

/// Why an edge no longer works, told to the thread that polls it.
///
/// A missing peer, a full queue or a refused frame is not an error: a NIC without link behaves the
/// same way, and the transport above recovers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EdgeError {
    /// The other end is gone and cannot return.
    Closed,
    /// The operating system failed a call with this error number.
    Os(i32),
}

impl core::fmt::Display for EdgeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Closed => f.write_str("the edge is closed"),
            Self::Os(errno) => write!(f, "the operating system failed the edge: error {errno}"),
        }
    }
}

impl core::error::Error for EdgeError {}

/// Units that an edge gave up, as a NIC does. What the operating system drops before the edge sees it
/// is not among them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drops {
    /// Taken by [`Edge::transmit`] while nobody was at the other end, or refused by it as too long.
    pub transmit: u64,
    /// Arrived longer than this edge can receive, or while it had no room.
    pub receive: u64,
}

/// An Ethernet interface, owned and polled by one thread.
///
/// # Going to sleep
/// A poller that found nothing to do sleeps in this order, and no frame is then missed:
/// 1. once, at start: [`set_waker`](Self::set_waker);
/// 2. [`announce_sleep(true)`](Self::announce_sleep);
/// 3. [`receive`](Self::receive) once more; if it yields a unit, skip to 5;
/// 4. wait, for the waker and for [`fd`](Self::fd) if there is one: readable, and also writable
///    where [`wants_writable`](Self::wants_writable) says so;
/// 5. [`announce_sleep(false)`](Self::announce_sleep).
///
/// The waker must remember a wake that comes before the wait, as `Thread::unpark` and an eventfd do.
pub trait Edge {
    /// What this edge can carry.
    fn link(&self) -> Link;

    /// Bits per second that the link sends at now; it may change at any time. `None` where nobody
    /// knows: over a TAP device, a QEMU netdev or memory there is none, and a NIC may have no link.
    ///
    /// It may take a system call: to be asked now and then, not for each packet.
    fn speed(&mut self) -> Option<u64> {
        None
    }

    /// Lends up to `budget` received units to `sink`, oldest first; returns how many. Never waits.
    ///
    /// # Errors
    /// [`EdgeError`] where the edge no longer works. Units lent before the error stay received.
    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, EdgeError>;

    /// Lends up to `budget` buffers to `fill` until it returns `None` or no buffer is free, then
    /// sends all that is queued, in one system call where the OS allows; returns how many units
    /// were taken. Never waits.
    ///
    /// `fill` is called only where its unit will be kept: a unit that the other side cannot take
    /// yet stays queued here, and a later call sends it. A call with a budget of 0 only does that.
    ///
    /// # Errors
    /// [`EdgeError`] where the edge no longer works. Units taken before the error may be lost.
    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError>;

    /// Units taken by [`transmit`](Self::transmit) that have not left yet.
    fn backlog(&self) -> usize {
        0
    }

    /// Units given up so far. An edge that gives none up leaves this as it is.
    fn drops(&self) -> Drops {
        Drops::default()
    }

    /// Tells an edge without a descriptor whom to wake. Called once, before the first sleep.
    fn set_waker(&mut self, _waker: &Waker) {}

    /// The poller is about to sleep, or is awake again.
    ///
    /// From `true` until `false`, an edge without a descriptor wakes the waker when a unit arrives
    /// or when buffers come back that the last [`transmit`](Self::transmit) lacked; at once if
    /// either has happened already. An edge may wake once too often, never once too seldom. An edge
    /// with a descriptor may make it ready for more than received units meanwhile.
    fn announce_sleep(&mut self, _sleeping: bool) {}

    /// The descriptor that becomes readable when a unit may have arrived.
    #[cfg(unix)]
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Whether queued units wait for [`fd`](Self::fd) to become writable.
    #[cfg(unix)]
    fn wants_writable(&self) -> bool {
        false
    }
}

/// In an `impl Edge` around another edge: all that such an edge seldom changes is left to that one, so
/// that nothing it knows gets lost. What remains is to receive and to transmit.
#[macro_export]
macro_rules! forward_edge {
    ($self:ident => $edge:expr) => {
        fn link(&$self) -> $crate::Link {
            $edge.link()
        }

        fn speed(&mut $self) -> Option<u64> {
            $edge.speed()
        }

        fn backlog(&$self) -> usize {
            $edge.backlog()
        }

        fn drops(&$self) -> $crate::Drops {
            $edge.drops()
        }

        fn set_waker(&mut $self, waker: &::core::task::Waker) {
            $edge.set_waker(waker);
        }

        fn announce_sleep(&mut $self, sleeping: bool) {
            $edge.announce_sleep(sleeping);
        }

        #[cfg(unix)]
        fn fd(&$self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            $edge.fd()
        }

        #[cfg(unix)]
        fn wants_writable(&$self) -> bool {
            $edge.wants_writable()
        }
    };
}

impl<E: Edge + ?Sized> Edge for Box<E> {
    forward_edge!(self => (**self));

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, EdgeError> {
        (**self).receive(budget, sink)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError> {
        (**self).transmit(budget, fill)
    }
}
