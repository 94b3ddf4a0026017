//! The structures of NVMe over RDMA (NVM Express Base 2.0, and its RDMA transport), as they lie on the wire.

use ndk_consumer::Remote;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a logical block.
pub(crate) const BLOCK: usize = 512;
/// Bytes of data that a capsule may carry behind its command.
pub(crate) const IN_CAPSULE: usize = 4096;

/// Opcodes of commands. The fabrics' own have one opcode, and a type.
pub(crate) mod opcode {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const GET_LOG_PAGE: u8 = 0x02;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const SET_FEATURES: u8 = 0x09;
    pub(crate) const ASYNC_EVENT: u8 = 0x0c;
    pub(crate) const KEEP_ALIVE: u8 = 0x18;
    pub(crate) const FABRICS: u8 = 0x7f;
    pub(crate) const PROPERTY_SET: u32 = 0x00;
    pub(crate) const CONNECT: u32 = 0x01;
    pub(crate) const PROPERTY_GET: u32 = 0x04;
}

/// Properties of a controller, by their offsets.
pub(crate) mod property {
    pub(crate) const CAP: u32 = 0x00;
    pub(crate) const VS: u32 = 0x08;
    pub(crate) const CC: u32 = 0x14;
    pub(crate) const CSTS: u32 = 0x1c;
}

/// The status of a completion, without its phase.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Status(pub(crate) u16);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_OPCODE: Self = Self(NO_RETRY | 0x01);
    pub(crate) const INVALID_FIELD: Self = Self(NO_RETRY | 0x02);
    pub(crate) const INVALID_NAMESPACE: Self = Self(NO_RETRY | 0x0b);
    pub(crate) const SEQUENCE: Self = Self(NO_RETRY | 0x0c);
    pub(crate) const DATA_LENGTH: Self = Self(NO_RETRY | 0x0f);
    pub(crate) const DESCRIPTOR: Self = Self(NO_RETRY | 0x11);
    pub(crate) const OUT_OF_RANGE: Self = Self(NO_RETRY | 0x80);
    pub(crate) const INVALID_LOG_PAGE: Self = Self(NO_RETRY | 0x109);
    pub(crate) const CONNECT_PARAMETERS: Self = Self(NO_RETRY | 0x182);
}

const NO_RETRY: u16 = 0x4000;

/// A submission queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Command {
    pub(crate) opcode: u8,
    /// How the data are described: always by an SGL.
    flags: u8,
    pub(crate) cid: U16,
    /// The namespace; of a command of the fabrics, its type.
    pub(crate) nsid: U32,
    reserved: [u8; 16],
    pub(crate) data: Sgl,
    /// Command dwords 10 to 15.
    pub(crate) dwords: [U32; 6],
}

impl Command {
    fn new(opcode: u8, nsid: u32, data: Sgl, dwords: [u32; 3]) -> Self {
        let [a, b, c] = dwords.map(U32::new);
        let dwords = [a, b, c, U32::ZERO, U32::ZERO, U32::ZERO];
        Self { opcode, flags: BY_SGL, nsid: nsid.into(), data, dwords, ..Self::default() }
    }

    /// Makes queue `qid` of `entries` commands of a connection.
    pub(crate) fn connect(qid: u16, entries: u16, keep_alive_ms: u32, data: Sgl) -> Self {
        let size = u32::from(entries - 1);
        Self::new(
            opcode::FABRICS,
            opcode::CONNECT,
            data,
            [u32::from(qid) << 16, size, keep_alive_ms],
        )
    }

    /// Asks for a property of 4 bytes, or of 8.
    pub(crate) fn property_get(offset: u32, wide: bool) -> Self {
        Self::new(opcode::FABRICS, opcode::PROPERTY_GET, Sgl::NONE, [wide.into(), offset, 0])
    }

    /// Sets a property of 4 bytes.
    pub(crate) fn property_set(offset: u32, value: u32) -> Self {
        Self::new(opcode::FABRICS, opcode::PROPERTY_SET, Sgl::NONE, [0, offset, value])
    }

    /// Asks for the structure `cns`.
    pub(crate) fn identify(nsid: u32, cns: u32, data: Sgl) -> Self {
        Self::new(opcode::IDENTIFY, nsid, data, [cns, 0, 0])
    }

    /// Sets a feature.
    pub(crate) fn set_features(feature: u32, value: u32) -> Self {
        Self::new(opcode::SET_FEATURES, 0, Sgl::NONE, [feature, value, 0])
    }

    /// Moves blocks of namespace 1, by READ or WRITE.
    pub(crate) fn blocks(opcode: u8, first: u64, count: usize, data: Sgl) -> Self {
        let last = count as u32 - 1;
        Self::new(opcode, 1, data, [first as u32, (first >> 32) as u32, last])
    }

    /// Sets the number that its completion has.
    pub(crate) fn with_cid(self, cid: u16) -> Self {
        Self { cid: cid.into(), ..self }
    }

    /// The first block and the number of blocks of a READ or WRITE.
    pub(crate) fn range(&self) -> (u64, usize) {
        let [low, high, count, ..] = self.dwords.map(U32::get);
        (u64::from(high) << 32 | u64::from(low), (count as usize & 0xffff) + 1)
    }
}

/// An SGL descriptor: where the data of a command are.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Sgl {
    address: U64,
    /// Length in 24 bits and a key, or length in 32 bits and nothing.
    rest: [u8; 7],
    kind: u8,
}

/// A descriptor that was understood.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Data {
    /// Memory of the host, whose key the completion shall end if `invalidate`.
    Keyed { remote: Remote, len: usize, invalidate: bool },
    /// Bytes behind the command.
    InCapsule { offset: usize, len: usize },
}

impl Sgl {
    /// No data.
    pub(crate) const NONE: Self = Self { address: U64::ZERO, rest: [0; 7], kind: KEYED };

    /// Memory of the host, whose key the target ends.
    pub(crate) fn keyed(remote: Remote, len: usize) -> Self {
        let [a, b, c, _] = (len as u32).to_le_bytes();
        let [d, e, f, g] = remote.token.to_le_bytes();
        let rest = [a, b, c, d, e, f, g];
        Self { address: remote.address.into(), rest, kind: KEYED_INVALIDATE }
    }

    /// All bytes behind the command.
    pub(crate) fn in_capsule(len: usize) -> Self {
        let [a, b, c, d] = (len as u32).to_le_bytes();
        Self { address: U64::ZERO, rest: [a, b, c, d, 0, 0, 0], kind: OFFSET }
    }

    /// The place of the data.
    pub(crate) fn parse(&self) -> Result<Data, Status> {
        let [a, b, c, d, e, f, g] = self.rest;
        match self.kind {
            KEYED | KEYED_INVALIDATE => Ok(Data::Keyed {
                remote: Remote {
                    address: self.address.get(),
                    token: u32::from_le_bytes([d, e, f, g]),
                },
                len: u32::from_le_bytes([a, b, c, 0]) as usize,
                invalidate: self.kind == KEYED_INVALIDATE,
            }),
            OFFSET => Ok(Data::InCapsule {
                offset: self.address.get() as usize,
                len: u32::from_le_bytes([a, b, c, d]) as usize,
            }),
            _ => Err(Status::DESCRIPTOR),
        }
    }
}

const BY_SGL: u8 = 0x40;
const OFFSET: u8 = 0x01;
const KEYED: u8 = 0x40;
const KEYED_INVALIDATE: u8 = 0x4f;

/// A completion queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Completion {
    pub(crate) result: U64,
    pub(crate) sq_head: U16,
    pub(crate) sq_id: U16,
    pub(crate) cid: U16,
    /// One bit of phase, which means nothing here, below it.
    status: U16,
}

impl Completion {
    pub(crate) fn new(queue: u16, head: u16, cid: U16, result: u64, status: Status) -> Self {
        let [sq_id, sq_head, status] = [queue, head, status.0 << 1].map(U16::new);
        Self { result: result.into(), sq_head, sq_id, cid, status }
    }

    pub(crate) fn status(&self) -> Status {
        Status(self.status.get() >> 1)
    }
}

/// The data of a Connect command.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct ConnectData {
    pub(crate) host_id: [u8; 16],
    pub(crate) controller: U16,
    reserved: [u8; 238],
    /// NVMe qualified names, filled up with zeros.
    pub(crate) subsystem: [u8; 256],
    pub(crate) host: [u8; 256],
    reserved_too: [u8; 256],
}

impl ConnectData {
    pub(crate) fn new(host_id: [u8; 16], controller: u16, subsystem: &str, host: &str) -> Self {
        let [subsystem, host] = [subsystem, host].map(|name| padded(name, 0));
        let (controller, reserved) = (controller.into(), [0; 238]);
        Self { host_id, controller, reserved, subsystem, host, reserved_too: [0; 256] }
    }
}

/// A text in a field of fixed length.
pub(crate) fn padded<const LEN: usize>(text: &str, fill: u8) -> [u8; LEN] {
    let mut field = [fill; LEN];
    field.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    field
}

/// The private data of a connection request.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct CmRequest {
    pub(crate) format: U16,
    pub(crate) qid: U16,
    /// Completions that the host has room for.
    pub(crate) receives: U16,
    /// Commands that the host may send at once, less one.
    pub(crate) sends: U16,
    /// Of an I/O queue.
    controller: U16,
    reserved: [u8; 22],
}

impl CmRequest {
    pub(crate) fn new(qid: u16, entries: u16, controller: u16) -> Self {
        let numbers = [0, qid, entries, entries - 1, controller];
        let [format, qid, receives, sends, controller] = numbers.map(U16::new);
        Self { format, qid, receives, sends, controller, reserved: [0; 22] }
    }
}

/// The private data of an accept.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct CmReply {
    format: U16,
    /// Commands that the target has room for.
    pub(crate) receives: U16,
    reserved: [u8; 28],
}

impl CmReply {
    pub(crate) fn new(receives: u16) -> Self {
        Self { format: U16::ZERO, receives: receives.into(), reserved: [0; 28] }
    }
}
