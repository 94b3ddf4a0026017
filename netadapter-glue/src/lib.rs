//! Ethernet edges that know nothing of RDMA.
//!
//! An [`Edge`] is where frames enter and leave: two edges joined in memory ([`memory`]), a Linux packet
//! socket, a TAP device, a QEMU netdev, or a Windows adapter. [`fault`] and [`pcap`] wrap any other edge.
//! [`neighbour`] resolves Ethernet addresses, ours and others', where no operating system does. One thread
//! owns an edge. The crate starts no thread, and allocates, locks or waits nowhere once an edge is built, but for the address
//! probes before its use.
//!
//! The core of the crate is `no_std` with `alloc`. Edges over a host's devices exist on Linux only; `host` opens any of
//! them from one string.
//!
//! # Glossary
//!
//! | word | meaning | elsewhere |
//! | --- | --- | --- |
//! | edge | the lower end of the provider, through which frames enter and leave | a NIC, a device |
//! | unit | one frame, or one set of headers with equal segments that offload divides or has joined | GSO, USO or URO packet |
//! | segment | the part of a unit that becomes one packet | |
//! | backlog | units that were taken and have not left | |
//! | to give up | to drop a unit, counted, as a NIC does | |
//! | to refuse | not to take a unit that no wait helps: the operating system or the NIC does | |
//! | to lend | to pass a buffer for the length of a call | |
//! | waker | it ends the sleep of the thread that polls the edge | `core::task::Waker` |
//! | query, answer | the two messages of address resolution | ARP request and reply; neighbour solicitation and advertisement |
//! | probe | a unicast query to a known neighbour | RFC 4861: unreachability detection |
//! | address probe | a query for an address that its sender is about to take | RFC 5227: ARP probe; RFC 4862: duplicate address detection |
#![no_std]

extern crate alloc;
#[cfg(any(test, unix))]
extern crate std;

#[cfg(target_os = "linux")]
pub mod af_packet;
mod auto_traits;
#[cfg(target_os = "linux")]
mod claim;
pub mod fault;
#[cfg(target_os = "linux")]
pub mod host;
#[cfg(target_os = "linux")]
mod inbox;
pub mod memory;
pub mod ndis;
pub mod neighbour;
pub mod netadapter;
#[cfg(target_os = "linux")]
pub mod pcap;
#[cfg(target_os = "linux")]
pub mod qemu;
#[cfg(target_os = "linux")]
mod queue;
#[cfg(target_os = "linux")]
mod refusal;
pub mod segment;
mod sleeper;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
pub mod tap;
#[cfg(target_os = "linux")]
pub mod udp;

pub use segment::Segments;

use alloc::boxed::Box;
use core::net::IpAddr;
use core::task::Waker;
use core::time::Duration;

/// The capabilities of an edge, constant for its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// The edge's own Ethernet address, the source of the frames that it sends.
    pub mac: [u8; 6],
    /// Largest layer-3 packet in bytes, IP header included.
    pub mtu: usize,
    /// The equal segments that one unit may carry; 1 where the edge takes single frames only.
    pub max_segments: usize,
    /// Greatest length in bytes of a buffer lent to `fill` in [`Edge::transmit`].
    pub max_unit_len: usize,
    /// The frames stand for datagrams of a UDP socket, whose operating system writes the headers: the source port of
    /// what is sent is the socket's, and IPv4 identifications count from 0 in each unit. Those of what is received
    /// were not seen, and read as 0.
    pub socket: bool,
}

/// The unit that `fill` wrote into its buffer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Transmit {
    /// Bytes written, from the start of the buffer; at most its length.
    pub len: usize,
    /// The division of the unit into packets; `None` for one plain frame.
    pub segments: Option<Segments>,
}

/// A buffer that an edge lends for one unit.
#[derive(Debug)]
pub struct Slot<'a> {
    /// At most [`Link::max_unit_len`] bytes, and room for the longest frame: an edge may take units at some times only.
    pub buffer: &'a mut [u8],
    /// To be set once the unit is written.
    pub unit: &'a mut Transmit,
}

impl Slot<'_> {
    /// The unit's bytes.
    ///
    /// # Panics
    /// Where it is longer than the buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.unit.len]
    }
}

/// Units, or buffers, that an edge lends with one call, at most.
pub const RUN: usize = 32;

/// Units of a run of the edges in a kernel, fewer than [`RUN`]: its stack is short.
const SHORT_RUN: usize = 8;

/// One received unit, lent for the length of a call.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The Ethernet frame from the destination address on, without FCS.
    pub frame: &'a [u8],
    /// The division of the unit into packets; `None` for one plain frame.
    pub segments: Option<Segments>,
}

/// The reason why an edge no longer works, for the thread that polls it.
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

/// Units that an edge gave up, as a NIC does; those that the operating system drops before the edge sees
/// them are not counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drops {
    /// Units that [`Edge::transmit`] took while there was no peer or no room, or that were refused.
    pub transmit: u64,
    /// Of those, the ones that the operating system or the NIC refused: they are longer than the next hop takes, or a filter
    /// forbids them.
    pub refused: u64,
    /// Units that arrived longer than this edge can receive, or while it had no room, and damaged ones.
    pub receive: u64,
    /// No units, but reports of routers and hosts (ICMP) that a datagram of ours did not arrive. Anybody can forge them: they
    /// change nothing but this number.
    pub reported: u64,
}

/// An Ethernet interface, owned and polled by one thread.
///
/// # Going to sleep
/// A poller that found nothing to do sleeps in this order, and no frame is then missed:
/// 1. once, at start: [`set_waker`](Self::set_waker);
/// 2. [`announce_sleep(true)`](Self::announce_sleep);
/// 3. [`receive`](Self::receive) once more; if it yields a unit, skip to 5;
/// 4. wait, for the waker and for [`fd`](Self::fd) if there is one: readable, and also writable
///    where [`wants_writable`](Self::wants_writable) says so; at most for [`retry_after`](Self::retry_after);
/// 5. [`announce_sleep(false)`](Self::announce_sleep).
///
/// The waker must remember a wake that comes before the wait, as `Thread::unpark` and an eventfd do.
pub trait Edge {
    /// The edge's capabilities.
    fn link(&self) -> Link;

    /// The link's current rate in bits per second; it may change at any time. `None` where it is unknown: a
    /// TAP device, a QEMU netdev and memory have none, and a NIC may have no link.
    ///
    /// The call may take a system call: make it now and then, not for each packet.
    fn speed(&mut self) -> Option<u64> {
        None
    }

    /// Frames to `udp_port` of `addresses` are for the user of this edge alone. An edge on an interface that others
    /// share keeps them from the others, as far as it can. A later claim takes the place of an earlier one.
    fn claim(&mut self, _addresses: &[IpAddr], _udp_port: u16) {}

    /// Lends up to `budget` received units to `sink`, oldest first, in runs of at most [`RUN`], and returns
    /// their number. Never waits.
    ///
    /// # Errors
    /// [`EdgeError`] where the edge no longer works. Units lent before the error stay received.
    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError>;

    /// Lends up to `budget` buffers to `fill`, in runs of at most [`RUN`]. `fill` returns how many it has
    /// written, from the first on; it is called until it writes fewer than it was lent, or no buffer is free. Then sends
    /// all queued units, in one system call where the OS allows. Returns the number of units taken. Never
    /// waits.
    ///
    /// A unit that `fill` has written is kept: where the other side cannot take it yet it stays queued here,
    /// and a later call sends it. A call with a budget of 0 sends queued units only. A unit that is refused again and again
    /// while none leaves is given up after 100 ms, and others as long at their first refusal; waits in vain take less than 200 ms
    /// of 10 s.
    ///
    /// # Errors
    /// [`EdgeError`] where the edge no longer works. Units taken before the error may be lost.
    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError>;

    /// [`receive`](Self::receive), unit by unit.
    ///
    /// # Errors
    /// As there.
    fn receive_each(
        &mut self,
        budget: usize,
        mut sink: impl FnMut(Received<'_>),
    ) -> Result<usize, EdgeError>
    where
        Self: Sized,
    {
        self.receive(budget, &mut |units| units.iter().for_each(|unit| sink(*unit)))
    }

    /// [`transmit`](Self::transmit), unit by unit: `fill` writes one into the buffer, or returns `None`.
    ///
    /// # Errors
    /// As there.
    fn transmit_each(
        &mut self,
        budget: usize,
        mut fill: impl FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError>
    where
        Self: Sized,
    {
        self.transmit(budget, &mut |slots| fill_each(slots, &mut fill))
    }

    /// Units taken by [`transmit`](Self::transmit) that have not left yet.
    fn backlog(&self) -> usize {
        0
    }

    /// The time after which [`transmit`](Self::transmit) is to be called again, for queued units that the operating system
    /// refused: no descriptor tells when it takes them. `None`: none waits for time to pass.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Units given up so far. An edge that gives none up leaves this as it is.
    fn drops(&self) -> Drops {
        Drops::default()
    }

    /// Gives an edge without a descriptor the waker of its poller. Called once, before the first sleep.
    fn set_waker(&mut self, _waker: &Waker) {}

    /// Announces that the poller is about to sleep, or is awake again.
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

    /// Takes the error that [`fd`](Self::fd) is ready with, or it stays ready. An error that lasts shows in the next
    /// [`receive`](Self::receive) or [`transmit`](Self::transmit).
    #[cfg(unix)]
    fn take_error(&mut self) {}

    /// Whether a [`receive`](Self::receive) that finds nothing is a system call. Its poller then sleeps rather than
    /// look again and again. Otherwise [`fd`](Self::fd) is the same for the life of the edge.
    fn asks_the_system(&self) -> bool {
        false
    }
}

/// In an `impl Edge` around another edge, forwards the methods that such an edge seldom changes, so that no
/// capability gets lost. Only receive and transmit remain; either is forwarded, too, where it is named behind the edge.
#[macro_export]
macro_rules! forward_edge {
    (@receive $self:ident => $edge:expr) => {
        fn receive(
            &mut $self,
            budget: usize,
            sink: &mut dyn FnMut(&[$crate::Received<'_>]),
        ) -> Result<usize, $crate::EdgeError> {
            $edge.receive(budget, sink)
        }
    };
    (@transmit $self:ident => $edge:expr) => {
        fn transmit(
            &mut $self,
            budget: usize,
            fill: &mut dyn FnMut(&mut [$crate::Slot<'_>]) -> usize,
        ) -> Result<usize, $crate::EdgeError> {
            $edge.transmit(budget, fill)
        }
    };
    ($self:ident => $edge:expr, receive $($more:tt)*) => {
        $crate::forward_edge!(@receive $self => $edge);
        $crate::forward_edge!($self => $edge $($more)*);
    };
    ($self:ident => $edge:expr, transmit) => {
        $crate::forward_edge!(@transmit $self => $edge);
        $crate::forward_edge!($self => $edge);
    };
    ($self:ident => $edge:expr) => {
        fn link(&$self) -> $crate::Link {
            $edge.link()
        }

        fn speed(&mut $self) -> Option<u64> {
            $edge.speed()
        }

        fn claim(&mut $self, addresses: &[::core::net::IpAddr], udp_port: u16) {
            $edge.claim(addresses, udp_port);
        }

        fn backlog(&$self) -> usize {
            $edge.backlog()
        }

        fn retry_after(&$self) -> Option<::core::time::Duration> {
            $edge.retry_after()
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

        #[cfg(unix)]
        fn take_error(&mut $self) {
            $edge.take_error();
        }

        fn asks_the_system(&$self) -> bool {
            $edge.asks_the_system()
        }
    };
}

/// Has `fill` write one unit into `buffer`, for an edge that looks at each.
pub fn fill_one(
    fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    buffer: &mut [u8],
) -> Option<Transmit> {
    let mut unit = Transmit::default();
    let filled = fill(&mut [Slot { buffer, unit: &mut unit }]);
    (filled > 0).then_some(unit)
}

/// Writes units into `slots`, from the first on, until `fill` has none. Returns their number.
fn fill_each(slots: &mut [Slot<'_>], fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
    for (written, slot) in slots.iter_mut().enumerate() {
        let Some(unit) = fill(slot.buffer) else { return written };
        *slot.unit = unit;
    }
    slots.len()
}

impl<E: Edge + ?Sized> Edge for Box<E> {
    forward_edge!(self => (**self), receive, transmit);
}
