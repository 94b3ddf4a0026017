//! The receive buffers of a datagram or packet socket, a batch per system call.

use crate::sys::{BATCH, recvmmsg};
use alloc::{boxed::Box, vec};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// [`BATCH`] buffers, used again from the first on in every batch, so that a light load stays in
/// the cache.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffers: Box<[Box<[u8]>]>,
    lens: [usize; BATCH],
    /// Messages longer than a buffer.
    pub(crate) dropped: u64,
}

impl Inbox {
    pub(crate) fn new(frame_len: usize) -> Self {
        let buffers = (0..BATCH).map(|_| vec![0; frame_len].into()).collect();
        Self { buffers, lens: [0; BATCH], dropped: 0 }
    }

    /// Lends up to `budget` messages to `sink`, which returns whether it took one. Returns the number of
    /// those.
    ///
    /// # Errors
    /// The error of `recvmmsg`. The absence of messages is no error.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        budget: usize,
        sink: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<usize, Errno> {
        let (mut arrived, mut taken) = (0, 0);
        while arrived < budget {
            let batch = (budget - arrived).min(BATCH);
            let count = match recvmmsg(fd, &mut self.buffers[..batch], &mut self.lens[..batch]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno),
            };
            for (buffer, &len) in self.buffers.iter_mut().zip(&self.lens[..count]) {
                match buffer.get_mut(..len) {
                    Some(message) => taken += usize::from(sink(message)),
                    None => self.dropped += 1,
                }
            }
            arrived += count;
            if count < batch {
                break;
            }
        }
        Ok(taken)
    }
}
