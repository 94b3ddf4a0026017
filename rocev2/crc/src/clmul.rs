//! By carry-less multiplication: 16 bytes a step, or four such steps side by side.
//!
//! A CRC is the remainder of a polynomial. A block that stands before others can be folded into them: it is
//! multiplied by the power of x that is its distance, modulo the polynomial, and added (Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). The rest is divided by
//! multiplications, too (Barrett).

use super::POLYNOMIAL;
use core::arch::x86_64::*;

/// Fewer bytes are not for this way.
pub(super) const LEN_MIN: usize = BLOCK;

/// Bytes of a register.
const BLOCK: usize = 16;
/// From here on four blocks side by side pay.
const WIDE_MIN: usize = 8 * BLOCK;

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

/// As [`super::extend`], for [`LEN_MIN`] bytes or more; fewer count as none.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
pub(super) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    let Some((first, mut rest)) = bytes.split_first_chunk() else { return crc };
    let mut sum = _mm_xor_si128(load(first), _mm_cvtsi32_si128((!crc).cast_signed()));
    if rest.len() >= WIDE_MIN {
        (sum, rest) = fold_wide(sum, rest);
    }
    while let Some((block, more)) = rest.split_first_chunk() {
        sum = fold(sum, load(block), BY_1);
        rest = more;
    }
    if let Some(last) = bytes.last_chunk().filter(|_| !rest.is_empty()) {
        sum = fold_tail(sum, load(last), rest.len());
    }
    !remainder(sum)
}

/// Folds four lanes at a time, then the lanes into one. Returns what is left.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn fold_wide(sum: __m128i, bytes: &[u8]) -> (__m128i, &[u8]) {
    let Some((three, mut rest)) = bytes.split_first_chunk::<{ 3 * BLOCK }>() else {
        return (sum, bytes);
    };
    let [a, b, c] = three.as_chunks().0 else { return (sum, bytes) };
    let mut lanes = [sum, load(a), load(b), load(c)];
    while let Some((four, more)) = rest.split_first_chunk::<{ 4 * BLOCK }>() {
        for (lane, block) in lanes.iter_mut().zip(four.as_chunks().0) {
            *lane = fold(*lane, load(block), BY_4);
        }
        rest = more;
    }
    let [a, b, c, d] = lanes;
    (fold(fold(fold(a, b, BY_1), c, BY_1), d, BY_1), rest)
}

/// The sum of `block` and what stands before it by the distance of `powers`.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn fold(before: __m128i, block: __m128i, powers: [u64; 2]) -> __m128i {
    let powers = pair(powers);
    let low = _mm_clmulepi64_si128(before, powers, 0x00);
    let high = _mm_clmulepi64_si128(before, powers, 0x11);
    _mm_xor_si128(_mm_xor_si128(low, high), block)
}

/// Adds `len` bytes, 1 to 15, which are the end of `last`.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn fold_tail(sum: __m128i, last: __m128i, len: usize) -> __m128i {
    // The first `len` bytes of the sum stand before a block of its other bytes and the tail.
    let before = _mm_shuffle_epi8(sum, shift(len));
    let rest = shift(BLOCK + len);
    // A shift leaves the highest bit of an index set where nothing is shifted in.
    let block = _mm_blendv_epi8(_mm_shuffle_epi8(sum, rest), last, rest);
    fold(before, block, BY_1)
}

/// The indices that shift a register: its first `n` bytes to its end, or for `n` over 16 all but its first
/// `n` - 16 to its beginning.
#[inline]
#[target_feature(enable = "ssse3")]
fn shift(n: usize) -> __m128i {
    const INDICES: [u8; 3 * BLOCK] = {
        let (mut indices, mut n) = ([0x80; 3 * BLOCK], 0);
        while n < BLOCK {
            indices[BLOCK + n] = n as u8;
            n += 1;
        }
        indices
    };
    load(INDICES[n..].first_chunk().expect("a shift is by 31 bytes at most"))
}

/// The remainder of 128 bits, with the 32 zeros behind them that a CRC has.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1")]
fn remainder(sum: __m128i) -> u32 {
    let low = _mm_set_epi32(0, 0, 0, -1);
    let by_1 = pair(BY_1);
    let sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by_1, 0x10), _mm_srli_si128(sum, 8));
    let half = _mm_clmulepi64_si128(_mm_and_si128(sum, low), pair([power(64), 0]), 0x00);
    let sum = _mm_xor_si128(half, _mm_srli_si128(sum, 4));
    let barrett = pair([DIVISOR, QUOTIENT]);
    let quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low), barrett, 0x10);
    let product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), barrett, 0x00);
    _mm_extract_epi32(_mm_xor_si128(sum, product), 1).cast_unsigned()
}

#[inline]
#[target_feature(enable = "sse2")]
fn pair([low, high]: [u64; 2]) -> __m128i {
    _mm_set_epi64x(high.cast_signed(), low.cast_signed())
}

#[inline]
#[target_feature(enable = "sse2")]
#[allow(unsafe_code, reason = "vectors are loaded by pointers")]
fn load(block: &[u8; BLOCK]) -> __m128i {
    // SAFETY: 16 bytes are read, at any alignment.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// The powers of x by which the halves of a register are folded over one register, or over four.
const BY_1: [u64; 2] = [power(128 + 32), power(128 - 32)];
const BY_4: [u64; 2] = [power(4 * 128 + 32), power(4 * 128 - 32)];

/// The polynomial with its highest power, and the quotient of x^64 by it, bits reversed.
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
    let (mut rest, mut quotient, mut place) = (1_u128 << 64, 0_u64, 32);
    loop {
        if rest >> (place + 32) & 1 == 1 {
            quotient |= 1 << place;
            rest ^= divisor << place;
        }
        if place == 0 {
            return quotient.reverse_bits() >> 31;
        }
        place -= 1;
    }
}
