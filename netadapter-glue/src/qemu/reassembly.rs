//! The frames of a stream, each behind its length.

use super::{ETHERNET_MAX_LEN, LENGTH_LEN};
use crate::Received;
use alloc::{boxed::Box, vec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::BorrowedFd;

/// Turns a stream of bytes into frames again.
#[derive(Debug)]
pub(super) struct Reassembly {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes still to come of a frame that is too long to keep.
    skip: usize,
    pub(super) dropped: u64,
}

impl Reassembly {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; STREAM_BUFFER_LEN].into(), start: 0, end: 0, skip: 0, dropped: 0 }
    }

    pub(super) fn reset(&mut self) {
        (self.start, self.end, self.skip) = (0, 0, 0);
    }

    /// Reads the available bytes into the free room. Returns false at the end of the stream.
    pub(super) fn read(&mut self, stream: BorrowedFd<'_>) -> Result<bool, Errno> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = &mut self.bytes[self.end..];
        assert!(!room.is_empty(), "a frame that does not fit is skipped");
        let (_, len) = recv(stream, room, RecvFlags::DONTWAIT)?;
        self.end += len;
        Ok(len > 0)
    }

    /// Lends up to `budget` complete frames to `sink`. Returns their number.
    pub(super) fn deliver(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> usize {
        let mut count = 0;
        while count < budget {
            self.skip_some();
            let bytes = &self.bytes[self.start..self.end];
            let Some((len, rest)) = bytes.split_first_chunk::<LENGTH_LEN>() else { break };
            let len = u32::from_be_bytes(*len) as usize;
            if len > FRAME_MAX_LEN {
                self.dropped += 1;
                self.start += LENGTH_LEN;
                self.skip = len;
                continue;
            }
            let Some(frame) = rest.get(..len) else { break };
            sink(&[Received { frame, segments: None }]);
            self.start += LENGTH_LEN + len;
            count += 1;
        }
        count
    }

    fn skip_some(&mut self) {
        let skip = self.skip.min(self.end - self.start);
        self.start += skip;
        self.skip -= skip;
    }
}

/// Longest frame that a stream may carry.
const FRAME_MAX_LEN: usize = ETHERNET_MAX_LEN + 65_535;
/// Room for the longest frame, and for a good many of usual length in one system call.
const STREAM_BUFFER_LEN: usize = 4 * (LENGTH_LEN + FRAME_MAX_LEN);
