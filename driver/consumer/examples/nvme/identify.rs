//! The pages in which a controller and a namespace describe themselves.

use super::wire::{IN_CAPSULE, padded};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Structures that Identify asks for.
pub(crate) mod cns {
    pub(crate) const NAMESPACE: u32 = 0;
    pub(crate) const CONTROLLER: u32 = 1;
    pub(crate) const ACTIVE_NAMESPACES: u32 = 2;
    pub(crate) const DESCRIPTORS: u32 = 3;
}

/// The controller (CNS 1). Fields without a name here are 0.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct IdentifyController {
    vendor: [u8; 4],
    /// Filled up with spaces, as the two behind it.
    pub(crate) serial: [u8; 20],
    pub(crate) model: [u8; 40],
    firmware: [u8; 8],
    unnamed_72: [u8; 5],
    /// Most pages of 4 KiB in one transfer, as a power of two.
    mdts: u8,
    pub(crate) controller: U16,
    pub(crate) version: U32,
    unnamed_84: [u8; 27],
    /// 1: an I/O controller.
    kind: u8,
    unnamed_112: [u8; 147],
    /// Requests for asynchronous events at once, less one.
    async_events: u8,
    unnamed_260: [u8; 60],
    /// Steps of the keep-alive timer in 100 ms.
    keep_alive: U16,
    unnamed_322: [u8; 190],
    /// Lengths of queue entries as powers of two: the least, and the most.
    entries: [u8; 2],
    pub(crate) commands: U16,
    pub(crate) namespaces: U32,
    unnamed_520: [u8; 16],
    pub(crate) sgls: U32,
    unnamed_540: [u8; 228],
    pub(crate) subsystem: [u8; 256],
    unnamed_1024: [u8; 768],
    /// Lengths of command and completion capsules in 16 bytes.
    pub(crate) command_capsule: U32,
    pub(crate) completion_capsule: U32,
    unnamed_1800: [u8; 3],
    /// Data descriptors of a command.
    descriptors: u8,
    unnamed_1804: [u8; 2292],
}

impl IdentifyController {
    pub(crate) fn new(controller: u16, subsystem: &str, commands: u16) -> Self {
        let mut identity = Self::new_zeroed();
        identity.serial = padded("1", b' ');
        identity.model = padded("ndk-consumer RAM disk", b' ');
        identity.firmware = padded(env!("CARGO_PKG_VERSION"), b' ');
        identity.mdts = 8;
        identity.controller = controller.into();
        identity.version = VERSION.into();
        identity.kind = 1;
        identity.async_events = 3;
        identity.keep_alive = U16::new(10);
        identity.entries = [0x66, 0x44];
        identity.commands = commands.into();
        identity.namespaces = U32::new(1);
        identity.sgls = U32::new(SGL | SGL_KEYED | SGL_OFFSET);
        identity.subsystem = padded(subsystem, 0);
        identity.command_capsule = U32::new((64 + IN_CAPSULE as u32) / 16);
        identity.completion_capsule = U32::new(1);
        identity.descriptors = 1;
        identity
    }
}

/// NVMe 1.3.0, the oldest with namespace descriptors.
pub(crate) const VERSION: u32 = 0x0001_0300;

const SGL: u32 = 1;
const SGL_KEYED: u32 = 1 << 2;
const SGL_OFFSET: u32 = 1 << 20;

/// A namespace (CNS 0). Fields without a name here are 0.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct IdentifyNamespace {
    /// Blocks: the size, those that can be written, those in use.
    pub(crate) blocks: [U64; 3],
    unnamed_24: [u8; 80],
    guid: [u8; 16],
    unnamed_120: [u8; 10],
    /// Length of a block as a power of two, of the first format.
    pub(crate) block_shift: u8,
    unnamed_131: [u8; 3965],
}

impl IdentifyNamespace {
    pub(crate) fn new(blocks: u64, guid: [u8; 16]) -> Self {
        let mut identity = Self::new_zeroed();
        identity.blocks = [blocks.into(); 3];
        identity.guid = guid;
        identity.block_shift = 9;
        identity
    }
}

/// The identifiers of a namespace (CNS 3): its GUID alone.
pub(crate) fn descriptors(guid: [u8; 16]) -> [u8; 4096] {
    let mut page = [0; 4096];
    page[..2].copy_from_slice(&[2, 16]);
    page[4..20].copy_from_slice(&guid);
    page
}

const _: () = assert!(size_of::<IdentifyController>() == 4096);
const _: () = assert!(size_of::<IdentifyNamespace>() == 4096);
