//! The keys of a foreign peer, and the memory that they name.

use super::super::memory::Shared;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a key names.
#[derive(Clone)]
struct Key {
    memory: Shared,
    /// The address of the buffer's first byte.
    label: u64,
    /// Bytes of the buffer.
    span: Range<u64>,
    /// For peers: READ, WRITE.
    rights: [bool; 2],
    live: bool,
    /// It may be ended and come back.
    passing: bool,
}

/// What a key is to name from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// The key.
    pub(crate) token: u32,
    /// The region under a window; a fast-register region's own.
    pub(crate) region: u32,
    /// The address of its first byte.
    pub(crate) base: u64,
    /// That byte in the buffer; `None`: where the region has it.
    pub(crate) start: Option<u64>,
    pub(crate) len: u64,
    pub(crate) rights: [bool; 2],
}

/// An element of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) token: u32,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

/// All keys. They count up, as those of Linux do.
#[derive(Default)]
pub(crate) struct Keys {
    all: BTreeMap<u32, Key>,
    made: u32,
}

impl Keys {
    /// A key for a buffer, dead at first if it is to be mapped.
    pub(crate) fn make(&mut self, memory: Shared, rights: [bool; 2], passing: bool) -> u32 {
        self.made += 1;
        let token = self.made << 8 | 0x5c;
        let (label, span) = (memory.label, memory.span.clone());
        self.all.insert(token, Key { memory, label, span, rights, live: !passing, passing });
        token
    }

    /// Nothing is reached by it any more.
    pub(crate) fn forget(&mut self, token: u32) {
        self.all.remove(&token);
    }

    pub(super) fn map(&mut self, mapping: &Mapping) {
        let Some(region) = self.all.get(&mapping.region) else { return };
        let (memory, label) = (region.memory.clone(), region.label);
        let start = mapping.start.unwrap_or_else(|| mapping.base.wrapping_sub(label));
        let Some(key) = self.all.get_mut(&mapping.token) else { return };
        let label = mapping.base.wrapping_sub(start);
        let (span, rights) = (start..start + mapping.len, mapping.rights);
        *key = Key { memory, label, span, rights, live: true, passing: true };
    }

    /// Ends a key; false: it is none that can be ended.
    pub(super) fn end(&mut self, token: u32) -> bool {
        match self.all.get_mut(&token) {
            Some(key) if key.passing && key.live => {
                key.live = false;
                true
            }
            _ => false,
        }
    }

    fn find(&self, piece: Piece) -> Option<(&Key, usize)> {
        let key = self.all.get(&piece.token).filter(|key| key.live)?;
        let at = piece.address.wrapping_sub(key.label);
        let inside = at >= key.span.start && at <= key.span.end && piece.len <= key.span.end - at;
        inside.then_some((key, at as usize))
    }

    /// Whether a peer may.
    pub(super) fn grants(&self, piece: Piece, right: usize) -> bool {
        piece.len == 0 || self.find(piece).is_some_and(|(key, _)| key.rights[right])
    }

    /// Copies out of memory.
    pub(super) fn read(&self, piece: Piece) -> Option<Vec<u8>> {
        let mut bytes = vec![0; piece.len as usize];
        if piece.len > 0 {
            let (key, at) = self.find(piece)?;
            key.memory.buffer.read(at, &mut bytes);
        }
        Some(bytes)
    }

    /// Copies into memory.
    pub(super) fn write(&self, piece: Piece, bytes: &[u8]) -> Option<()> {
        if piece.len > 0 {
            let (key, at) = self.find(piece)?;
            key.memory.buffer.write(at, bytes);
        }
        Some(())
    }

    /// What a list of elements holds.
    pub(super) fn gather(&self, list: &[Piece]) -> Option<Vec<u8>> {
        let parts: Option<Vec<_>> = list.iter().map(|&piece| self.read(piece)).collect();
        parts.map(|parts| parts.concat())
    }

    /// Copies into a list of elements, from a byte on.
    pub(super) fn scatter(&self, list: &[Piece], mut from: u64, mut bytes: &[u8]) -> Option<()> {
        for piece in list {
            if from >= piece.len {
                from -= piece.len;
                continue;
            }
            let now = (piece.len - from).min(bytes.len() as u64);
            let (head, rest) = bytes.split_at(now as usize);
            self.write(Piece { address: piece.address + from, len: now, ..*piece }, head)?;
            (from, bytes) = (0, rest);
        }
        bytes.is_empty().then_some(())
    }
}
