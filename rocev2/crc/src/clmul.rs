//! By carry-less multiplication: 16 bytes a step, or four such steps side by side.
//!
//! A CRC is the remainder of a polynomial. A block that stands before others can be folded into them: it is
//! multiplied by the power of x that is its distance, modulo the polynomial, and added (Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). The rest is divided by
//! multiplications, too (Barrett).

use super::{POLYNOMIAL, by_library};
use core::arch::x86_64::*;

/// Bytes of a register.
const BLOCK: usize = 16;
type Block = [u8; BLOCK];
/// From so many blocks behind the first on, four side by side pay.
const WIDE_MIN: usize = 8;
/// Bytes of a CRC.
const WORD: usize = 4;

/// Whether the processor has the instructions of [`extend`].
pub(super) fn is_available() -> bool {
    const PCLMULQDQ: u32 = 1 << 1;
    const SSSE3: u32 = 1 << 9;
    const SSE4_1: u32 = 1 << 19;
    const ALL: u32 = PCLMULQDQ | SSSE3 | SSE4_1;
    // Every x86-64 has that leaf.
    __cpuid(1).ecx & ALL == ALL
}

/// Whether the processor has AVX, and the operating system saves its registers.
#[cfg(unix)]
pub(super) fn is_vex_available() -> bool {
    std::is_x86_feature_detected!("avx")
}

/// Whether there are carry-less multiplications of 256 bits or more, which `crc32fast` uses.
#[cfg(unix)]
pub(super) fn are_wide_available() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("vpclmulqdq")
}

/// As [`extend`], in the encoding of AVX.
#[cfg(unix)]
#[target_feature(enable = "avx,pclmulqdq,ssse3,sse4.1")]
pub(super) fn extend_vex(crc: u32, bytes: &[u8]) -> u32 {
    // Inlined, as is all below, and so encoded anew.
    extend(crc, bytes)
}

/// Has each of these lengths, those of packets without data or with little, code of its own without a branch.
macro_rules! by_length {
    ($crc:ident, $bytes:ident, $($len:literal)*) => {
        match $bytes.len() {
            $($len => {
                // SAFETY: it has that length.
                let bytes: &[u8; $len] = unsafe { &*$bytes.as_ptr().cast() };
                extend_words($crc, bytes, load(bytes.first_chunk().expect("a block is no longer")))
            })*
            _ => extend_any($crc, $bytes),
        }
    };
}

/// As [`super::extend`].
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
#[allow(unsafe_code, reason = "behind a table of jumps the compiler has forgotten the length")]
pub(super) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    by_length!(crc, bytes, 16 20 24 28 32 36 40 44 48 52 56 60 64 68 72 76 80 84 88 92)
}

/// Bytes of any other length.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn extend_any(crc: u32, bytes: &[u8]) -> u32 {
    match bytes.first_chunk() {
        Some(first) if bytes.len().is_multiple_of(WORD) => extend_words(crc, bytes, load(first)),
        _ => extend_odd(crc, bytes),
    }
}

/// The ICRC covers whole words, so few bytes come here.
#[cold]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn extend_odd(crc: u32, bytes: &[u8]) -> u32 {
    let (odd, words) = bytes.split_at(bytes.len() % WORD);
    let crc = by_library(crc, odd);
    match words.first_chunk() {
        Some(first) => extend_words(crc, words, load(first)),
        None => by_library(crc, words),
    }
}

/// Goes on over whole words, which begin with the block `first`.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn extend_words(crc: u32, bytes: &[u8], first: __m128i) -> u32 {
    // The bytes beyond whole blocks come first, behind zeros, which change no remainder.
    let head = (bytes.len() - 1) % BLOCK + 1;
    let first = _mm_xor_si128(first, _mm_cvtsi32_si128((!crc).cast_signed()));
    let (mut sum, mut blocks) = (to_end(first, head), bytes[head..].as_chunks().0);
    if blocks.len() >= WIDE_MIN {
        (sum, blocks) = fold_wide(sum, blocks);
    }
    // At most seven are left.
    if let Some(([a, b, c, d], more)) = blocks.split_first_chunk() {
        sum = fold(fold(fold(fold(sum, a, BY_1), b, BY_1), c, BY_1), d, BY_1);
        blocks = more;
    }
    if let Some(([a, b], more)) = blocks.split_first_chunk() {
        sum = fold(fold(sum, a, BY_1), b, BY_1);
        blocks = more;
    }
    if let [block] = blocks {
        sum = fold(sum, block, BY_1);
    }
    !remainder(sum)
}

/// Folds four lanes at a time, then the lanes into one. Returns what is left.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn fold_wide(sum: __m128i, blocks: &[Block]) -> (__m128i, &[Block]) {
    let Some(([a, b, c], mut rest)) = blocks.split_first_chunk() else { return (sum, blocks) };
    let mut lanes = [sum, load(a), load(b), load(c)];
    while let Some((four, more)) = rest.split_first_chunk::<4>() {
        for (lane, block) in lanes.iter_mut().zip(four) {
            *lane = fold(*lane, block, BY_4);
        }
        rest = more;
    }
    let [a, b, c, d] = lanes;
    (add(add(add(a, b, BY_1), c, BY_1), d, BY_1), rest)
}

/// The sum of `block` and what stands before it by the distance of `powers`.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn fold(before: __m128i, block: &Block, powers: [u64; 2]) -> __m128i {
    add(before, load(block), powers)
}

#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn add(before: __m128i, block: __m128i, [low, high]: [u64; 2]) -> __m128i {
    let low = _mm_clmulepi64_si128(before, factor(low), 0x10);
    let high = _mm_clmulepi64_si128(before, factor(high), 0x11);
    _mm_xor_si128(_mm_xor_si128(low, block), high)
}

/// The first `n` bytes, 1 to 16, at the end of a register of zeros.
#[inline]
#[target_feature(enable = "ssse3")]
fn to_end(block: __m128i, n: usize) -> __m128i {
    const INDICES: [u8; 2 * BLOCK] = {
        // The highest bit of an index makes a zero.
        let (mut indices, mut n) = ([0x80; 2 * BLOCK], 0);
        while n < BLOCK {
            indices[BLOCK + n] = n as u8;
            n += 1;
        }
        indices
    };
    _mm_shuffle_epi8(block, load(INDICES[n..].first_chunk().expect("a block has 16 bytes")))
}

/// The remainder of 128 bits, with the 32 zeros behind them that a CRC has.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn remainder(sum: __m128i) -> u32 {
    // 96 bits, zeros included.
    let first = _mm_clmulepi64_si128(sum, factor(BY_1[1]), 0x10);
    let sum = _mm_xor_si128(first, _mm_srli_si128(sum, 8));
    // Of bits that are reversed, a product's lower half is the quotient.
    let quotient = _mm_clmulepi64_si128(sum, factor(QUOTIENT), 0x10);
    let product = _mm_clmulepi64_si128(quotient, factor(DIVISOR), 0x10);
    _mm_extract_epi32(_mm_xor_si128(sum, product), 2).cast_unsigned()
}

/// A factor in the upper half of a register, which is an operand in memory; one in the lower half is moved twice.
#[inline]
#[target_feature(enable = "sse2")]
fn factor(factor: u64) -> __m128i {
    _mm_set_epi64x(factor.cast_signed(), 0)
}

#[inline]
#[target_feature(enable = "sse2")]
#[allow(unsafe_code, reason = "vectors are loaded by pointers")]
fn load(block: &Block) -> __m128i {
    // SAFETY: 16 bytes are read, at any alignment.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// The powers of x by which the halves of a register are folded over one register, or over four.
const BY_1: [u64; 2] = [power(128 + 32), power(128 - 32)];
const BY_4: [u64; 2] = [power(4 * 128 + 32), power(4 * 128 - 32)];

/// The polynomial with its highest power, and the quotient of x^96 by it without its lowest, which no quotient of 64 bits
/// needs; bits reversed.
const DIVISOR: u64 = (POLYNOMIAL as u64) << 1 | 1;
const QUOTIENT: u64 = quotient();

/// x to the power of `n`, modulo the polynomial, bits reversed; a place higher, because the product of reversed
/// operands comes out a place lower.
const fn power(n: u32) -> u64 {
    let (mut value, mut done) = (1 << 31, 0);
    while done < n {
        value = (value >> 1) ^ if value & 1 == 0 { 0 } else { POLYNOMIAL };
        done += 1;
    }
    (value as u64) << 1
}

const fn quotient() -> u64 {
    let divisor = 1 << 32 | POLYNOMIAL.reverse_bits() as u128;
    let (mut rest, mut quotient, mut place) = (1_u128 << 96, 0_u128, 64);
    loop {
        if rest >> (place + 32) & 1 == 1 {
            quotient |= 1 << place;
            rest ^= divisor << place;
        }
        if place == 0 {
            return (quotient.reverse_bits() >> 63) as u64;
        }
        place -= 1;
    }
}
