//! The sleep of a thread that runs the core, and the event that wakes it.

use alloc::sync::Arc;
use rocev2::env::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use std::io;
use std::task::Wake;

/// The events that end a sleep, beside a wake.
pub(super) struct Interest {
    /// The edge's descriptor, and whether it is waited for until it can be written, too.
    pub(super) edge: Option<(RawFd, PollFlags)>,
    pub(super) timeout: Option<Duration>,
}

/// The end of a sleep.
pub(super) struct Woken {
    /// A wake, and not only the edge or the time.
    pub(super) wake: bool,
    pub(super) edge_error: bool,
}

/// Wakes the core's thread.
pub(super) struct Wakeup(OwnedFd);

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A counter that is full wakes as well as one that is not.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Wakeup {
    /// # Errors
    /// The operating system's, for want of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Sleeps until there is a wake, the edge has something, or the time passes.
    #[allow(
        unsafe_code,
        reason = "the edge's descriptor is waited for while a consumer may have the edge"
    )]
    pub(super) fn sleep(&self, interest: &Interest) -> Woken {
        let timeout = interest.timeout.map(to_timespec);
        let own = PollFd::new(&self.0, PollFlags::IN);
        let edge = interest.edge.map(|(fd, flags)| {
            // SAFETY: the edge lives until this thread buries the core, and where consumers may use it meanwhile
            // its descriptor stays the same (`inline`).
            PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(fd) }, flags)
        });
        let mut fds: heapless::Vec<PollFd<'_>, 2> =
            [Some(own), edge].into_iter().flatten().collect();
        // An interrupted or failed wait ends like one that timed out: the loop looks again.
        let ready = poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0);
        let shows = |index: usize, flags| {
            ready && fds.get(index).is_some_and(|fd| fd.revents().intersects(flags))
        };
        let wake = shows(0, PollFlags::IN);
        if wake {
            self.clear();
        }
        Woken { wake, edge_error: shows(1, PollFlags::ERR) }
    }

    fn clear(&self) {
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
