//! The places of received datagrams, a batch per system call.

use super::control::{Control, Name};
use super::headers::{Headers, header_len};
use super::sys::{self, Place};
use crate::queue::FEW;
use crate::{RUN, Received};
use alloc::{boxed::Box, vec};
use core::net::IpAddr;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// [`RUN`] places, used again from the first on in every batch, so that a light load stays in the cache.
#[derive(Debug)]
pub(super) struct Inbox {
    places: Box<[Place]>,
    headers: Headers,
    /// Datagrams longer than a place, and those without a byte.
    pub(super) dropped: u64,
}

impl Inbox {
    /// Room for datagrams to `own` of up to `datagram_len` bytes.
    pub(super) fn new(own: IpAddr, datagram_len: usize) -> Self {
        let begin = header_len(own);
        let place = || Place {
            buffer: vec![0; begin + datagram_len].into(),
            begin,
            from: Name::blank(),
            control: Control::blank(),
            len: 0,
        };
        let places = (0..RUN).map(|_| place()).collect();
        Self { places, headers: Headers::new(own), dropped: 0 }
    }

    /// Lends up to `budget` datagrams as frames to `sink`. Returns their number.
    ///
    /// # Errors
    /// The error of `recvmmsg`. The absence of datagrams is no error.
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, Errno> {
        let Self { places, headers, dropped } = self;
        let (mut arrived, mut taken, mut most) = (0, 0, FEW);
        while arrived < budget {
            let batch = (budget - arrived).min(most);
            let count = match sys::receive(fd, &mut places[..batch]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                // One that lasts shows in the next call.
                Err(_) if arrived > 0 => break,
                Err(errno) => return Err(errno),
            };
            let units: heapless::Vec<Received<'_>, RUN> =
                places[..count].iter_mut().filter_map(|place| unit(place, headers)).collect();
            if !units.is_empty() {
                sink(&units);
            }
            *dropped += (count - units.len()) as u64;
            taken += units.len();
            arrived += count;
            if count < batch {
                break;
            }
            most = RUN;
        }
        Ok(taken)
    }
}

/// The datagram in a place, with headers in front of it.
fn unit<'a>(place: &'a mut Place, headers: &mut Headers) -> Option<Received<'a>> {
    let Place { buffer, begin, from, control, len } = place;
    let frame = buffer.get_mut(..*begin + *len)?;
    let segments = headers.put(from, &control.traits(), frame)?;
    Some(Received { frame, segments })
}
