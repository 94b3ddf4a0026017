//! The messages about a file ([MS-SMB2] 2.2.13 to 2.2.22), with descriptors of SMB Direct in place of data.

use ndk_consumer::{Remote, Rights};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::session::Dialect;
use super::wire::{Request, behind, of_size};

/// A file that is open.
pub(crate) type FileId = [u8; 16];

/// CREATE; the name of the file follows.
#[derive(Debug, FromZeros, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct Create {
    size: U16,
    security: u8,
    oplock: u8,
    impersonation: U32,
    reserved: [U64; 2],
    access: U32,
    attributes: U32,
    share: U32,
    disposition: U32,
    options: U32,
    name_offset: U16,
    name_len: U16,
    contexts: [U32; 2],
}

impl Create {
    /// A file that is made, or made empty, and that is no more when it is closed.
    pub(crate) fn new(name_len: usize) -> Self {
        let mut create = Self::new_zeroed();
        create.size = of_size::<Self>(1);
        create.impersonation = U32::new(2);
        create.access = U32::new(READ_DATA | WRITE_DATA | DELETE);
        create.disposition = U32::new(5);
        create.options = U32::new(NO_DIRECTORY | DELETE_ON_CLOSE);
        create.name_offset = behind::<Self>().into();
        create.name_len = U16::new(name_len as u16);
        create
    }
}

const READ_DATA: u32 = 1;
const WRITE_DATA: u32 = 1 << 1;
const DELETE: u32 = 1 << 16;
const NO_DIRECTORY: u32 = 0x40;
const DELETE_ON_CLOSE: u32 = 0x1000;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Created {
    size: U16,
    oplock: u8,
    flags: u8,
    action: U32,
    times: [U64; 4],
    sizes: [U64; 2],
    attributes: U32,
    reserved: U32,
    pub(crate) file: FileId,
    contexts: [U32; 2],
}

impl Request for Create {
    const COMMAND: u16 = 5;
    type Response = Created;
}

/// CLOSE.
#[derive(Debug, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct Close {
    size: U16,
    flags: U16,
    reserved: U32,
    file: FileId,
}

impl Close {
    pub(crate) fn new(file: FileId) -> Self {
        Self { size: of_size::<Self>(0), flags: U16::ZERO, reserved: U32::ZERO, file }
    }
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Closed {
    size: U16,
    flags: U16,
    reserved: U32,
    times: [U64; 4],
    sizes: [U64; 2],
    attributes: U32,
}

impl Request for Close {
    const COMMAND: u16 = 6;
    type Response = Closed;
}

/// A request whose data the server moves, by the descriptor that follows.
pub(crate) trait Transfer: Request {
    /// The server's rights to the memory.
    const RIGHTS: Rights;

    fn new(dialect: Dialect, file: FileId, offset: u64, len: u32) -> Self;

    /// The bytes that were moved.
    fn moved(response: &Self::Response) -> u32;
}

/// WRITE.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Write {
    size: U16,
    data_offset: U16,
    data_len: U32,
    pub(crate) offset: U64,
    file: FileId,
    channel: U32,
    remaining: U32,
    descriptor_offset: U16,
    descriptor_len: U16,
    flags: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Written {
    size: U16,
    reserved: U16,
    pub(crate) count: U32,
    remaining: U32,
    channel: [U16; 2],
}

impl Request for Write {
    const COMMAND: u16 = 9;
    type Response = Written;
}

impl Transfer for Write {
    const RIGHTS: Rights = Rights::REMOTE_READ;

    fn new(dialect: Dialect, file: FileId, offset: u64, len: u32) -> Self {
        Self {
            size: of_size::<Self>(1),
            // No bytes follow: the descriptor has them all.
            data_offset: U16::ZERO,
            data_len: U32::ZERO,
            offset: offset.into(),
            file,
            channel: dialect.channel().into(),
            remaining: len.into(),
            descriptor_offset: behind::<Self>().into(),
            descriptor_len: U16::new(size_of::<Descriptor>() as u16),
            flags: U32::ZERO,
        }
    }

    fn moved(response: &Written) -> u32 {
        response.count.get()
    }
}

/// READ.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Read {
    size: U16,
    padding: u8,
    flags: u8,
    len: U32,
    pub(crate) offset: U64,
    file: FileId,
    least: U32,
    channel: U32,
    remaining: U32,
    descriptor_offset: U16,
    descriptor_len: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct ReadDone {
    size: U16,
    data_offset: u8,
    reserved: u8,
    data_len: U32,
    /// Bytes that went another way: into our memory.
    pub(crate) remaining: U32,
    flags: U32,
}

impl Request for Read {
    const COMMAND: u16 = 8;
    type Response = ReadDone;
}

impl Transfer for Read {
    const RIGHTS: Rights = Rights::REMOTE_WRITE;

    fn new(dialect: Dialect, file: FileId, offset: u64, len: u32) -> Self {
        Self {
            size: of_size::<Self>(1),
            padding: 0,
            flags: 0,
            len: len.into(),
            offset: offset.into(),
            file,
            least: U32::ZERO,
            channel: dialect.channel().into(),
            remaining: U32::ZERO,
            descriptor_offset: behind::<Self>().into(),
            descriptor_len: U16::new(size_of::<Descriptor>() as u16),
        }
    }

    fn moved(response: &ReadDone) -> u32 {
        response.remaining.get()
    }
}

/// Memory of ours that the server may reach ([MS-SMBD] 2.2.3.1).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) address: U64,
    pub(crate) token: U32,
    pub(crate) len: U32,
}

impl Descriptor {
    pub(crate) fn new(remote: Remote, len: u32) -> Self {
        Self { address: remote.address.into(), token: remote.token.into(), len: len.into() }
    }
}
