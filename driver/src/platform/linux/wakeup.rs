//! The sleep of a thread that runs the core, and the event that wakes it.

use alloc::sync::Arc;
use rocev2::env::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};
use std::io;
use std::task::Wake;

/// How often a failed edge is asked again.
pub(super) const EDGE_RETRY: Duration = Duration::from_millis(100);

/// The events that end a sleep, beside a wake.
pub(super) struct Interest {
    /// The edge's descriptor, and whether it is waited for until it can be written, too.
    pub(super) edge: Option<(RawFd, PollFlags)>,
    pub(super) timeout: Option<Duration>,
}

/// How long to sleep. A failed edge's descriptor would wake us at once and for ever, so it is not
/// waited on, and the edge is asked now and then instead.
pub(super) fn patience(due: Option<Duration>, edge_failed: bool) -> Option<Duration> {
    if !edge_failed {
        return due;
    }
    Some(due.map_or(EDGE_RETRY, |due| due.min(EDGE_RETRY)))
}

/// The end of a sleep.
#[derive(Default)]
pub(super) struct Woken {
    /// A wake, and not only the edge or the time. It lasts until it is cleared.
    pub(super) wake: bool,
    /// The same of the other wakeup that was slept on.
    pub(super) called: bool,
    pub(super) edge_error: bool,
}

/// Wakes a thread that sleeps on it.
pub(super) struct Wakeup(OwnedFd);

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Self::wake(self);
    }
}

impl Wakeup {
    /// # Errors
    /// The operating system's, for want of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(super) fn wake(&self) {
        // A counter that is full wakes as well as one that is not.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Sleeps until there is a wake, of this or of `call`, the edge has something, or the time passes.
    #[allow(
        unsafe_code,
        reason = "the edge's descriptor is waited for while a consumer may have the edge"
    )]
    pub(super) fn sleep(&self, call: Option<&Self>, interest: &Interest) -> Woken {
        let timeout = interest.timeout.map(to_timespec);
        let edge = interest.edge.map(|(fd, flags)| {
            // SAFETY: the edge lives until the core is buried. This thread has the core, or its descriptor stays the
            // same (`inline`); or a consumer that has it since has called this thread before, so that the wait ends at
            // once, whatever else the number stands for by then.
            PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(fd) }, flags)
        });
        let first = usize::from(call.is_some());
        let mut fds: heapless::Vec<PollFd<'_>, 3> =
            [call.map(Self::pollable), Some(self.pollable()), edge].into_iter().flatten().collect();
        // An interrupted or failed wait ends like one that timed out: the loop looks again.
        let ready = poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0);
        let shows = |index: usize, flags| {
            ready && fds.get(index).is_some_and(|fd| fd.revents().intersects(flags))
        };
        Woken {
            wake: shows(first, PollFlags::IN),
            called: call.is_some() && shows(0, PollFlags::IN),
            edge_error: shows(first + 1, PollFlags::ERR),
        }
    }

    fn pollable(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)
    }

    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        // Nothing to read: there was no wake.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

fn to_timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
