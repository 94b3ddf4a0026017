//! The keywords of an adapter: the meaning of what the registry has. An administrator may have written anything there.
//!
//! This file calls nothing of Windows: a fuzz target compiles it, too (`tests/fuzz/src/keywords.rs`).

extern crate alloc;

use self::alloc::vec::Vec;
use super::abi::NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET;
use super::frame::{ETHERNET_HEADER_LEN, Tagging};
use core::ops::RangeInclusive;
use driver::ProviderConfig;

/// The registry's values of an adapter, as NDIS reads them.
pub(crate) trait Keywords {
    /// `None`: there is none, or it is no number.
    fn integer(&self, keyword: &str) -> Option<u32>;

    /// Empty: there is none.
    fn string(&self, keyword: &str) -> Vec<u16>;

    /// The address that an administrator has given, whatever it is.
    fn network_address(&self) -> Option<[u8; 6]>;
}

/// The source of the adapter's Ethernet address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// The NIC's address; the NIC's own TCP/IP is unbound.
    Inherit,
    /// An address of its own; the NIC keeps its TCP/IP.
    Own,
    /// The NIC's address beside the NIC's own TCP/IP: frames are told apart by their addresses of IP.
    Share,
}

/// The registry's values for an adapter.
#[derive(Debug)]
pub(crate) struct Config {
    /// The interface GUID of the NIC below, as text; empty: none is named.
    pub(crate) lower: Vec<u16>,
    pub(crate) mode: Mode,
    /// Largest layer-3 packet.
    pub(crate) mtu: usize,
    /// RoCE payload of a full packet.
    pub(crate) frame_size: usize,
    pub(crate) network_direct: bool,
    /// No more than there are processors.
    pub(crate) poll_cores: usize,
    /// Peers may be behind a router.
    pub(crate) remote_subnets: bool,
    pub(crate) tagging: Tagging,
    /// NDIS QoS is on or off; `None`: there is none.
    pub(crate) qos: Option<bool>,
    /// DSCP of CM packets and of the connections that we start.
    pub(crate) dscp: u8,
    pub(crate) congestion_control: bool,
    /// A NIC that offers segmentation gets units of several packets.
    pub(crate) segmentation: bool,
    /// `None`: the provider's own.
    pub(crate) ack_timeout_code: Option<u8>,
    /// `None`: the provider's own.
    pub(crate) retry_count: Option<u8>,
    pub(crate) network_address: Option<[u8; 6]>,
    /// The NIC's own address when it was last bound, where the mode has it.
    pub(crate) lower_address: Option<[u8; 6]>,
}

impl Config {
    /// The values of an adapter on a machine with so many processors; a missing keyword has its default, and a number beyond its range
    /// that of the nearest end.
    pub(crate) fn of(keywords: &impl Keywords, processors: usize) -> Self {
        let qos = keywords.integer("*QOS").map(|on| on != 0);
        let jumbo = keywords.integer("*JumboPacket").unwrap_or(1514) as usize;
        Self {
            lower: keywords.string("LowerAdapter"),
            mode: match keywords.integer("LowerMode") {
                Some(1) => Mode::Own,
                Some(2) => Mode::Share,
                _ => Mode::Inherit,
            },
            mtu: jumbo.clamp(ETHERNET_HEADER_LEN + 576, 9014) - ETHERNET_HEADER_LEN,
            frame_size: keywords.integer("*NetworkDirectRoCEFrameSize").unwrap_or(1024) as usize,
            network_direct: network_direct(keywords),
            poll_cores: usize::from(
                within(keywords.integer("PollCores"), ProviderConfig::POLL_CORES).unwrap_or(1),
            )
            .min(processors),
            remote_subnets: keywords.integer("*NetworkDirectGlobalFlags").is_none_or(|flags| {
                flags & NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET != 0
            }),
            qos,
            tagging: Tagging::new(
                // QoS needs priorities, whatever the other keyword says of them:
                // https://learn.microsoft.com/windows-hardware/drivers/network/standardized-inf-keywords-for-ndis-qos
                keywords.integer("*PriorityVLANTag").unwrap_or(3) | u32::from(qos == Some(true)),
                keywords.integer("VlanId").unwrap_or(0).min(VLAN_MAX),
                within(keywords.integer("RoCEPriority"), PRIORITIES).unwrap_or(0),
            ),
            dscp: within(keywords.integer("RoCEDscp"), DSCPS).unwrap_or(0),
            congestion_control: keywords.integer("CongestionControl").unwrap_or(1) != 0,
            segmentation: keywords.integer("RoCESegmentation").unwrap_or(1) != 0,
            ack_timeout_code: within(
                keywords.integer("AckTimeout"),
                ProviderConfig::ACK_TIMEOUT_CODES,
            ),
            retry_count: within(keywords.integer("RetryCount"), ProviderConfig::RETRY_COUNTS),
            network_address: keywords.network_address().filter(|&address| is_station(address)),
            lower_address: address_of(&keywords.string(LOWER_ADDRESS)),
        }
    }

    /// The provider's MTU, from which it chooses the configured frame size or the largest below it that
    /// fits.
    pub(crate) fn roce_mtu(&self) -> usize {
        self.mtu.min(self.frame_size.clamp(256, 4096) + ROCE_HEADER_ROOM)
    }

    /// Units of several packets that may be on their way out from each core.
    pub(crate) const fn units(&self) -> usize {
        if self.segmentation { UNITS } else { 0 }
    }

    /// Whether `name`, a device name like `\DEVICE\{GUID}`, is that of the NIC below.
    pub(crate) fn names(&self, name: &[u16]) -> bool {
        let wanted = trim(&self.lower);
        let tail = trim(name);
        !wanted.is_empty()
            && tail.len() == wanted.len()
            && tail.iter().zip(wanted).all(|(&a, &b)| upper(a) == upper(b))
    }
}

/// Whether `*NetworkDirect` allows NDK.
pub(crate) fn network_direct(keywords: &impl Keywords) -> bool {
    keywords.integer("*NetworkDirect").unwrap_or(1) != 0
}

/// A number, limited to its range.
fn within(number: Option<u32>, range: RangeInclusive<u8>) -> Option<u8> {
    let (least, most) = (u32::from(*range.start()), u32::from(*range.end()));
    // The result is within the range, which is of bytes.
    number.map(|number| number.clamp(least, most) as u8)
}

/// The text between the braces, or all of it.
fn trim(name: &[u16]) -> &[u16] {
    let from = name.iter().rposition(|&unit| unit == u16::from(b'{')).map_or(0, |at| at + 1);
    let tail = &name[from..];
    let to = tail.iter().position(|&unit| unit == u16::from(b'}')).unwrap_or(tail.len());
    &tail[..to]
}

const fn upper(unit: u16) -> u16 {
    if unit >= 0x61 && unit <= 0x7a { unit - 0x20 } else { unit }
}

/// The address as text: twelve hexadecimal digits.
pub(crate) fn hex_of(address: [u8; 6]) -> [u16; 12] {
    let digits = address.map(|byte| [byte >> 4, byte & 0xf].map(usize::from));
    let mut text = [0; 12];
    for (unit, digit) in text.iter_mut().zip(digits.as_flattened()) {
        *unit = u16::from(b"0123456789ABCDEF"[*digit]);
    }
    text
}

/// The address that a text tells.
fn address_of(text: &[u16]) -> Option<[u8; 6]> {
    let digit = |unit: u16| char::from_u32(unit.into())?.to_digit(16);
    let digits: &[u16; 12] = text.try_into().ok()?;
    let mut address = [0; 6];
    for (byte, pair) in address.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(address).filter(|&address| is_station(address))
}

/// The value in which the driver keeps an address that it has found.
pub(crate) const LOWER_ADDRESS: &str = "LowerAddress";

/// Whether an adapter may have this address.
pub(crate) fn is_station(address: [u8; 6]) -> bool {
    address[0] & 1 == 0 && address != [0; 6]
}

/// Priorities of a tag (IEEE 802.1Q).
pub(crate) const PRIORITIES: RangeInclusive<u8> = 0..=7;
/// Differentiated services code points (RFC 2474).
pub(crate) const DSCPS: RangeInclusive<u8> = 0..=63;
/// The last VLAN: 4095 is reserved (IEEE 802.1Q).
const VLAN_MAX: u32 = 4094;
const UNITS: usize = 64;
/// The room for headers when RoCEv2 chooses a frame size.
const ROCE_HEADER_ROOM: usize = 96;
