//! UTF-16, as the kernel takes names.

use crate::abi::UNICODE_STRING;

/// The `N` characters of an ASCII text.
pub(crate) const fn utf16<const N: usize>(ascii: &str) -> [u16; N] {
    let (ascii, mut units, mut index) = (ascii.as_bytes(), [0; N], 0);
    assert!(ascii.len() == N, "a text of another length");
    while index < N {
        units[index] = ascii[index] as u16;
        index += 1;
    }
    units
}

/// A counted string over the units, which have to outlive each use of it. They are read and never written.
pub(crate) const fn counted(units: &[u16]) -> UNICODE_STRING {
    let bytes = size_of_val(units) as u16;
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() }
}
