//! The bytes of message number n: different for every message and every place in it.
//!
//! A message is a sequence of 64-bit words with a constant step that visits every value; where it
//! starts is drawn from the seed and the number. That is as fast as memory, and no word of one
//! message stands in the same place of another.

/// A seeded pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    seed: u64,
}

impl Pattern {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Writes message `message`.
    pub(crate) fn fill(self, message: u64, bytes: &mut [u8]) {
        let mut word = self.start(message);
        let (words, rest) = bytes.as_chunks_mut();
        for bytes in words {
            *bytes = word.to_le_bytes();
            word = word.wrapping_add(STEP);
        }
        let last: [u8; WORD] = word.to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// The place of the first byte that is not message `message`.
    pub(crate) fn mismatch(self, message: u64, bytes: &[u8]) -> Option<usize> {
        let mut word = self.start(message);
        let (words, rest) = bytes.as_chunks();
        for (place, bytes) in words.iter().enumerate() {
            if u64::from_le_bytes(*bytes) != word {
                return Some(place * WORD + difference(bytes, word)?);
            }
            word = word.wrapping_add(STEP);
        }
        Some(words.len() * WORD + difference(rest, word)?)
    }

    /// Where the sequence of a message starts.
    const fn start(self, message: u64) -> u64 {
        mix(self.seed ^ mix(message.wrapping_add(STEP)))
    }
}

/// The first of `bytes` that is not in its place in `word`.
fn difference(bytes: &[u8], word: u64) -> Option<usize> {
    bytes.iter().zip(word.to_le_bytes()).position(|(a, b)| *a != b)
}

/// Spreads every bit of `x` over the result and loses none (the finalizer of SplitMix64).
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

const WORD: usize = 8;
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seed: u64, message: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Pattern::new(seed).fill(message, &mut bytes);
        bytes
    }

    #[test]
    fn every_wrong_byte_is_found() {
        for len in [1, 7, 8, 9, 100] {
            let good = message(1, 5, len);
            assert_eq!(Pattern::new(1).mismatch(5, &good), None);
            for place in 0..len {
                let mut bad = good.clone();
                bad[place] ^= 0x10;
                assert_eq!(Pattern::new(1).mismatch(5, &bad), Some(place));
            }
        }
    }

    #[test]
    fn messages_seeds_and_places_differ() {
        assert_ne!(message(1, 0, 64), message(1, 1, 64));
        assert_ne!(message(1, 0, 64), message(2, 0, 64));
        let bytes = message(0, 0, 64);
        assert_ne!(bytes[..8], bytes[8..16]);
        assert_ne!(bytes, [0; 64]);
    }
}
