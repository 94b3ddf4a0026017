//! NFS 4.0 (RFC 7530) over RPC-over-RDMA version 1 (RFC 8166), as far as a client that reads a file needs it.

use std::fmt;

use ndk_consumer::Remote;

/// An operation of a COMPOUND.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    /// Goes to the root of the server.
    PutRoot,
    /// Goes to this file.
    PutHandle(&'a [u8]),
    /// Goes to an entry of the current folder.
    Lookup(&'a str),
    /// Asks for the handle of the current file.
    GetHandle,
    /// Asks for the size of the current file.
    GetSize,
    /// Reads the current file, into the Write chunk of the call.
    Read { offset: u64, count: u32 },
}

/// The result of an operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// It has no more to say.
    Done,
    Handle(Vec<u8>),
    /// In bytes.
    Size(u64),
    /// The bytes that went into the chunk, and whether they are the last ones.
    Read {
        len: u32,
        eof: bool,
    },
}

/// The reason why an answer is of no use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// It ends too early.
    Short,
    /// It answers another call.
    Xid(u32),
    /// It is no plain answer of RPC-over-RDMA: the message type.
    Transport(u32),
    /// RPC refuses the call: a reply status or an accept status.
    Rpc(u32),
    /// An operation failed with this status of NFS.
    Nfs { operation: u32, status: u32 },
    /// It answers other operations, or a folder has no size.
    Other(u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the answer ends too early"),
            Self::Xid(xid) => write!(f, "an answer to another call, {xid:#x}"),
            Self::Transport(kind) => write!(f, "an RDMA message of type {kind}"),
            Self::Rpc(status) => write!(f, "RPC refuses the call: {status}"),
            Self::Nfs { operation, status } => {
                write!(f, "NFS operation {operation} failed with status {status}")
            }
            Self::Other(word) => write!(f, "an unexpected word, {word}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl Operation<'_> {
    const fn number(self) -> u32 {
        match self {
            Self::PutRoot => 24,
            Self::PutHandle(_) => 22,
            Self::Lookup(_) => 15,
            Self::GetHandle => 10,
            Self::GetSize => 9,
            Self::Read { .. } => 25,
        }
    }

    fn encode(self, to: &mut Encoder) {
        to.u32(self.number());
        match self {
            Self::PutRoot | Self::GetHandle => {}
            Self::PutHandle(handle) => to.opaque(handle),
            Self::Lookup(name) => to.opaque(name.as_bytes()),
            Self::GetSize => to.words(&[1, 1 << SIZE]),
            Self::Read { offset, count } => {
                // The stateid of a client that has opened nothing.
                to.words(&[0; 4]);
                to.u64(offset);
                to.u32(count);
            }
        }
    }

    fn decode(self, from: &mut Decoder<'_>) -> Result<Answer, Refusal> {
        let (operation, status) = (from.u32()?, from.u32()?);
        if operation != self.number() {
            return Err(Refusal::Other(operation));
        }
        if status != 0 {
            return Err(Refusal::Nfs { operation, status });
        }
        Ok(match self {
            Self::PutRoot | Self::PutHandle(_) | Self::Lookup(_) => Answer::Done,
            Self::GetHandle => Answer::Handle(from.opaque()?.to_vec()),
            Self::GetSize => {
                for expected in [1, 1 << SIZE, 8] {
                    from.expect(expected)?;
                }
                Answer::Size(from.u64()?)
            }
            Self::Read { .. } => Answer::Read { eof: from.u32()? != 0, len: from.u32()? },
        })
    }
}

/// The message of a call of `operations`; what a READ reads goes into `chunk`, of so many bytes.
pub(crate) fn call(
    xid: u32,
    chunk: Option<(Remote, u32)>,
    operations: &[Operation<'_>],
) -> Vec<u8> {
    let mut to = Encoder(Vec::new());
    // RPC-over-RDMA: the call, version, wanted credits, RDMA_MSG; no Read chunk.
    to.words(&[xid, 1, CREDITS, RDMA_MSG, 0]);
    if let Some((remote, len)) = chunk {
        // One Write chunk of one segment.
        to.words(&[1, 1, remote.token, len]);
        to.u64(remote.address);
    }
    // No more Write chunks; no Reply chunk.
    to.words(&[0, 0]);
    // RPC: the call, version 2, NFS version 4, COMPOUND.
    to.words(&[xid, CALL, 2, 100_003, 4, 1]);
    // AUTH_SYS: a stamp, the machine, user and group 0, no other group. No verifier.
    to.words(&[1, 4 * 4 + 4 + MACHINE.len() as u32, 0]);
    to.opaque(MACHINE);
    to.words(&[0, 0, 0, 0, 0]);
    // No tag, minor version 0.
    to.words(&[0, 0, operations.len() as u32]);
    operations.iter().for_each(|operation| operation.encode(&mut to));
    to.0
}

/// The answers to the operations of the call `xid`.
///
/// # Errors
/// The first refusal.
pub(crate) fn answers(
    message: &[u8],
    xid: u32,
    operations: &[Operation<'_>],
) -> Result<Vec<Answer>, Refusal> {
    let mut from = Decoder(message);
    match from.u32()? {
        same if same == xid => {}
        other => return Err(Refusal::Xid(other)),
    }
    from.expect(1)?;
    let (_credits, kind) = (from.u32()?, from.u32()?);
    if kind != RDMA_MSG {
        return Err(Refusal::Transport(kind));
    }
    from.expect(0)?;
    // The Write chunks of the call, with the lengths that were written.
    while from.u32()? != 0 {
        for _ in 0..from.u32()? {
            from.bytes(SEGMENT)?;
        }
    }
    for expected in [0, xid, REPLY] {
        from.expect(expected)?;
    }
    let accepted = from.u32()?;
    // A verifier stands before the second status.
    let status =
        if accepted == 0 { from.u32().and(from.opaque()).and(from.u32())? } else { accepted };
    if status != 0 {
        return Err(Refusal::Rpc(status));
    }
    // The status of the first operation that failed is with the operation, too.
    let (_status, _tag, _count) = (from.u32()?, from.opaque()?, from.u32()?);
    operations.iter().map(|operation| operation.decode(&mut from)).collect()
}

/// The attribute of a file's size.
const SIZE: u32 = 4;
const CREDITS: u32 = 8;
const RDMA_MSG: u32 = 0;
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// Bytes of a chunk's segment.
const SEGMENT: usize = 16;
/// Four bytes need no padding.
const MACHINE: &[u8] = b"ndk1";

/// Writes XDR (RFC 4506).
struct Encoder(Vec<u8>);

impl Encoder {
    fn u32(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.u32(*word));
    }

    fn u64(&mut self, word: u64) {
        self.0.extend(word.to_be_bytes());
    }

    /// With its length before it, filled up to whole words.
    fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Reads XDR.
struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Refusal> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Refusal::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Refusal::Short)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn opaque(&mut self) -> Result<&'a [u8], Refusal> {
        let len = self.u32()? as usize;
        let bytes = self.bytes(len.next_multiple_of(4))?;
        Ok(&bytes[..len])
    }

    fn expect(&mut self, expected: u32) -> Result<(), Refusal> {
        match self.u32()? {
            same if same == expected => Ok(()),
            other => Err(Refusal::Other(other)),
        }
    }
}
