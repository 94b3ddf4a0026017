//! The IPv4 identifications of the packets of one device.

/// The identification of the next packet, and how they go on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ids {
    pub(crate) next: u16,
    /// From one unit to the next: one, or none where the operating system writes the headers.
    step: u16,
}

impl Ids {
    /// From `first` on. The operating system of a `socket` counts from 0 in each unit, as Linux does where packets may not be
    /// fragmented and the socket is not connected.
    pub(crate) const fn new(socket: bool, first: u16) -> Self {
        if socket { Self { next: 0, step: 0 } } else { Self { next: first, step: 1 } }
    }

    /// Goes on behind a unit of one packet.
    #[inline(always)]
    pub(crate) const fn end_single(&mut self) {
        self.next = self.next.wrapping_add(self.step);
    }

    /// Goes on behind a unit whose packets were counted.
    pub(crate) const fn end_unit(&mut self) {
        self.next = self.next.wrapping_mul(self.step);
    }
}
