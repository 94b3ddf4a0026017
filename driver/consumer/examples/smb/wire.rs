//! The header and the shape of all messages of SMB 3 ([MS-SMB2] 2.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The header of each message.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    protocol: [u8; 4],
    size: U16,
    /// Credits that the request takes.
    pub(crate) charge: U16,
    /// Of a response.
    pub(crate) status: U32,
    pub(crate) command: U16,
    /// Credits that a request asks for, or that a response grants.
    pub(crate) credits: U16,
    flags: U32,
    next: U32,
    pub(crate) id: U64,
    reserved: U32,
    pub(crate) tree: U32,
    pub(crate) session: U64,
    signature: [u8; 16],
}

impl Header {
    pub(crate) fn new(command: u16, id: u64, charge: u16, credits: u16) -> Self {
        let mut header = Self::new_zeroed();
        header.protocol = *b"\xfeSMB";
        header.size = of_size::<Self>(0);
        header.charge = charge.into();
        header.command = command.into();
        header.credits = credits.into();
        header.id = id.into();
        header
    }

    pub(crate) fn is_response(&self) -> bool {
        self.protocol == *b"\xfeSMB" && self.flags.get() & RESPONSE != 0
    }
}

const RESPONSE: u32 = 1;

/// Statuses of responses.
pub(crate) mod status {
    pub(crate) const SUCCESS: u32 = 0;
    /// The answer comes later.
    pub(crate) const PENDING: u32 = 0x103;
    pub(crate) const MORE_PROCESSING_REQUIRED: u32 = 0xc000_0016;
}

/// The fixed part of a request's body, [`behind`] which the rest stands.
pub(crate) trait Request: Immutable + IntoBytes {
    const COMMAND: u16;
    /// The fixed part of the answer.
    type Response: FromBytes + Immutable + KnownLayout;
}

/// The offset, from the header on, of what follows a body's fixed part.
pub(crate) const fn behind<Body>() -> u16 {
    (size_of::<Header>() + size_of::<Body>()) as u16
}

/// The size that a structure says of itself: one more where it counts the first byte of what follows.
pub(crate) fn of_size<Body>(follows: u16) -> U16 {
    U16::new(size_of::<Body>() as u16 + follows)
}
