//! The messages of NTLM ([MS-NLMP] 2.2.1) for a user whom the server does not know, and takes for a guest: such a user
//! has nothing to answer a challenge with.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

/// Opens the exchange.
pub(crate) fn negotiate() -> Vec<u8> {
    let message = Negotiate {
        signature: SIGNATURE,
        kind: U32::new(1),
        flags: FLAGS.into(),
        domain: Field::default(),
        workstation: Field::default(),
    };
    message.as_bytes().to_vec()
}

/// Answers a challenge with a name alone.
pub(crate) fn authenticate(user: &str) -> Vec<u8> {
    let name = utf16(user);
    let empty = Field::at(size_of::<Authenticate>(), 0);
    let message = Authenticate {
        signature: SIGNATURE,
        kind: U32::new(3),
        responses: [empty; 2],
        domain: empty,
        user: Field::at(size_of::<Authenticate>(), name.len()),
        workstation: empty,
        session_key: empty,
        flags: FLAGS.into(),
    };
    [message.as_bytes(), &name].concat()
}

/// A text as Windows encodes it.
pub(crate) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Negotiate {
    signature: [u8; 8],
    kind: U32,
    flags: U32,
    domain: Field,
    workstation: Field,
}

#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Authenticate {
    signature: [u8; 8],
    kind: U32,
    /// LM and NT.
    responses: [Field; 2],
    domain: Field,
    user: Field,
    workstation: Field,
    session_key: Field,
    flags: U32,
}

/// A place behind the fixed part.
#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
#[repr(C)]
struct Field {
    len: U16,
    max_len: U16,
    offset: U32,
}

impl Field {
    fn at(offset: usize, len: usize) -> Self {
        let length = U16::new(len as u16);
        Self { len: length, max_len: length, offset: U32::new(offset as u32) }
    }
}

const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";
/// Unicode, the target's name, NTLM, extended session security.
const FLAGS: u32 = 0x0008_0205;
