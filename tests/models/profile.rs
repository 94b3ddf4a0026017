//! What consumers of one shape ask of a provider, each in its way.

use super::sample::HEADER;

/// What a consumer asks for.
#[derive(Debug)]
pub(super) struct Profile {
    /// Entries of a queue, elements of a request, pages of a region, at most.
    pub(super) depth: u32,
    pub(super) sges: u32,
    pub(super) pages: u32,
    /// Bytes of data of a message, at most.
    pub(super) data_len: usize,
    /// Bytes of a long transfer, at most, and of how many one is long.
    pub(super) long_len: usize,
    pub(super) long_of: usize,
    /// The address of every region; `None`: each has one of its own.
    pub(super) base: Option<u64>,
}

pub(super) const SAMPLE: Profile = Profile {
    depth: 65_535,
    sges: 128,
    pages: u32::MAX,
    data_len: 8 << 10,
    long_len: 128 << 10,
    long_of: 32,
    base: None,
};

/// Messages of 32 KiB, regions at 0x3000, all at once.
pub(super) const NDKPING: Profile = Profile {
    depth: 512,
    sges: 16,
    pages: 512,
    data_len: (32 << 10) - HEADER,
    base: Some(0x3000),
    ..SAMPLE
};

/// Messages of 64 KiB, and transfers of 1,750,000 bytes.
pub(super) const NDKPERF: Profile =
    Profile { data_len: (64 << 10) - HEADER, long_len: 1_750_000, long_of: 256, ..NDKPING };
