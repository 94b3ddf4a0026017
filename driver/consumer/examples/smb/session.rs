//! The messages that open and close a session and a tree ([MS-SMB2] 2.2.3 to 2.2.11).

use clap::ValueEnum;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::wire::{Request, behind, of_size};

/// A dialect with SMB Direct.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[repr(u16)]
pub(crate) enum Dialect {
    /// The client ends the tokens that it lends
    #[value(name = "3.0")]
    V300 = 0x0300,
    /// The server ends them
    #[value(name = "3.0.2")]
    V302 = 0x0302,
}

impl Dialect {
    /// How a request with a descriptor says so: SMB2_CHANNEL_RDMA_V1, or SMB2_CHANNEL_RDMA_V1_INVALIDATE.
    pub(crate) const fn channel(self) -> u32 {
        match self {
            Self::V300 => 1,
            Self::V302 => 2,
        }
    }
}

/// NEGOTIATE; the dialects follow.
#[derive(Debug, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct Negotiate {
    size: U16,
    dialects: U16,
    security: U16,
    reserved: U16,
    capabilities: U32,
    client: [u8; 16],
    start_time: U64,
}

impl Negotiate {
    /// Offers one dialect.
    pub(crate) fn new(client: [u8; 16]) -> Self {
        let (dialects, security) = (U16::new(1), SIGNING_ENABLED.into());
        let (reserved, start_time) = (U16::ZERO, U64::ZERO);
        let capabilities = LARGE_MTU.into();
        let size = of_size::<Self>(0);
        Self { size, dialects, security, reserved, capabilities, client, start_time }
    }
}

/// No signature is asked for: a guest has no key.
const SIGNING_ENABLED: u16 = 1;
/// Transfers of more than 64 KiB.
const LARGE_MTU: u32 = 4;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Negotiated {
    size: U16,
    security: U16,
    pub(crate) dialect: U16,
    contexts: U16,
    server: [u8; 16],
    pub(crate) capabilities: U32,
    transact_max: U32,
    pub(crate) read_max: U32,
    pub(crate) write_max: U32,
    times: [U64; 2],
    token: [U16; 2],
    context_offset: U32,
}

impl Request for Negotiate {
    const COMMAND: u16 = 0;
    type Response = Negotiated;
}

/// SESSION_SETUP; a message of the authentication follows.
#[derive(Debug, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct SessionSetup {
    size: U16,
    flags: u8,
    security: u8,
    capabilities: U32,
    channel: U32,
    token_offset: U16,
    token_len: U16,
    previous: U64,
}

impl SessionSetup {
    pub(crate) fn new(token_len: usize) -> Self {
        let [capabilities, channel] = [U32::ZERO; 2];
        let (token_offset, token_len) = (behind::<Self>().into(), U16::new(token_len as u16));
        let (size, security, previous) = (of_size::<Self>(1), SIGNING_ENABLED as u8, U64::ZERO);
        let flags = 0;
        Self { size, flags, security, capabilities, channel, token_offset, token_len, previous }
    }
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct SessionReady {
    size: U16,
    flags: U16,
    token: [U16; 2],
}

impl Request for SessionSetup {
    const COMMAND: u16 = 1;
    type Response = SessionReady;
}

/// TREE_CONNECT; the path of the share follows.
#[derive(Debug, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct TreeConnect {
    size: U16,
    flags: U16,
    path_offset: U16,
    path_len: U16,
}

impl TreeConnect {
    pub(crate) fn new(path_len: usize) -> Self {
        let (path_offset, path_len) = (behind::<Self>().into(), U16::new(path_len as u16));
        Self { size: of_size::<Self>(1), flags: U16::ZERO, path_offset, path_len }
    }
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct TreeConnected {
    size: U16,
    kind: u8,
    reserved: u8,
    flags: U32,
    capabilities: U32,
    access: U32,
}

impl Request for TreeConnect {
    const COMMAND: u16 = 3;
    type Response = TreeConnected;
}

/// The end of a tree (TREE_DISCONNECT, 4) or of a session (LOGOFF, 2), and the answer to it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct End<const COMMAND: u16> {
    size: U16,
    reserved: U16,
}

impl<const COMMAND: u16> End<COMMAND> {
    pub(crate) fn new() -> Self {
        Self { size: of_size::<Self>(0), reserved: U16::ZERO }
    }
}

impl<const COMMAND: u16> Request for End<COMMAND> {
    const COMMAND: u16 = COMMAND;
    type Response = Self;
}

pub(crate) type Logoff = End<2>;
pub(crate) type TreeDisconnect = End<4>;
