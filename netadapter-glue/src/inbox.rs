//! The receive buffers of a datagram or packet socket, a batch per system call.

use crate::sys::{BATCH, recvmmsg};
use crate::{RUN, Received};
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

    /// Lends up to `budget` messages to `sink`. Returns their number.
    ///
    /// # Errors
    /// The error of `recvmmsg`. The absence of messages is no error.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, Errno> {
        let (mut arrived, mut taken) = (0, 0);
        while arrived < budget {
            let batch = (budget - arrived).min(BATCH);
            let count = match recvmmsg(fd, &mut self.buffers[..batch], &mut self.lens[..batch]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno),
            };
            let messages = self.buffers.iter_mut().zip(&self.lens[..count]);
            let units: heapless::Vec<Received<'_>, BATCH> =
                messages.filter_map(|(buffer, &len)| plain(buffer.get_mut(..len)?)).collect();
            if !units.is_empty() {
                sink(&units);
            }
            self.dropped += (count - units.len()) as u64;
            taken += units.len();
            arrived += count;
            if count < batch {
                break;
            }
        }
        Ok(taken)
    }
}

/// The unit of a message that is a plain frame.
fn plain(frame: &mut [u8]) -> Option<Received<'_>> {
    Some(Received { frame, segments: None })
}

const _: () = assert!(BATCH <= RUN, "a batch is a run");
