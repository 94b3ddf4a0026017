//! The keywords of an adapter.
#![allow(unsafe_code, reason = "calls NDIS, which lends its memory")]

use crate::abi::imports::{
    NdisCloseConfiguration, NdisOpenConfigurationEx, NdisReadConfiguration, NdisReadNetworkAddress,
};
use crate::abi::*;
use crate::frame::Tagging;
use crate::log::report;
use crate::os::processor;
use crate::problems::Problem;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::ptr::null_mut;
use driver::ProviderConfig;

/// The source of the adapter's Ethernet address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// The NIC's address; the NIC's own TCP/IP is unbound.
    Inherit,
    /// An address of its own; the NIC keeps its TCP/IP.
    Own,
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
}

impl Config {
    /// Reads the values of the adapter with this interface; a missing keyword has its default. PASSIVE_LEVEL.
    pub(crate) fn read(adapter: NDIS_HANDLE, interface: NET_IFINDEX) -> Result<Self, NDIS_STATUS> {
        let open = Open::new(adapter)?;
        let jumbo = open.integer("*JumboPacket").unwrap_or(1514) as usize;
        let network_address = open.network_address();
        if network_address.is_some_and(|address| !is_station(address)) {
            report(interface, Problem::BadNetworkAddress, 0, 0);
        }
        Ok(Self {
            lower: open.string("LowerAdapter"),
            mode: if open.integer("LowerMode") == Some(1) { Mode::Own } else { Mode::Inherit },
            mtu: jumbo.clamp(ETHERNET_HEADER_LEN + 576, 9014) - ETHERNET_HEADER_LEN,
            frame_size: open.integer("*NetworkDirectRoCEFrameSize").unwrap_or(1024) as usize,
            network_direct: open.network_direct(),
            poll_cores: usize::from(
                within(open.integer("PollCores"), ProviderConfig::POLL_CORES).unwrap_or(1),
            )
            .min(processor::count() as usize),
            remote_subnets: open.integer("*NetworkDirectGlobalFlags").is_none_or(|flags| {
                flags & NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET != 0
            }),
            tagging: Tagging::new(
                open.integer("*PriorityVLANTag").unwrap_or(3),
                open.integer("VlanId").unwrap_or(0),
                within(open.integer("RoCEPriority"), PRIORITIES).unwrap_or(0),
            ),
            dscp: within(open.integer("RoCEDscp"), DSCPS).unwrap_or(0),
            congestion_control: open.integer("CongestionControl").unwrap_or(1) != 0,
            segmentation: open.integer("RoCESegmentation").unwrap_or(1) != 0,
            ack_timeout_code: within(open.integer("AckTimeout"), ProviderConfig::ACK_TIMEOUT_CODES),
            retry_count: within(open.integer("RetryCount"), ProviderConfig::RETRY_COUNTS),
            network_address: network_address.filter(|&address| is_station(address)),
        })
    }

    /// Whether `*NetworkDirect` allows NDK now. PASSIVE_LEVEL.
    pub(crate) fn network_direct(adapter: NDIS_HANDLE) -> Result<bool, NDIS_STATUS> {
        Ok(Open::new(adapter)?.network_direct())
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

/// Whether an adapter may have this address.
fn is_station(address: [u8; 6]) -> bool {
    address[0] & 1 == 0 && address != [0; 6]
}

/// An open configuration.
struct Open(NDIS_HANDLE);

impl Open {
    fn new(adapter: NDIS_HANDLE) -> Result<Self, NDIS_STATUS> {
        let size = NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1;
        let mut object = NDIS_CONFIGURATION_OBJECT {
            Header: header(NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, 1, size),
            NdisHandle: adapter,
            Flags: 0,
        };
        let mut handle = null_mut();
        // SAFETY: both live during the call.
        unsafe { NdisOpenConfigurationEx(&mut object, &mut handle) }.ok()?;
        Ok(Self(handle))
    }

    /// The parameter stays valid until the configuration is closed.
    fn parameter(&self, keyword: &str, kind: i32) -> Option<&NDIS_CONFIGURATION_PARAMETER> {
        let mut name: Vec<u16> = keyword.encode_utf16().collect();
        let mut name = UNICODE_STRING {
            Length: (name.len() * 2) as u16,
            MaximumLength: (name.len() * 2) as u16,
            Buffer: name.as_mut_ptr(),
        };
        let (mut status, mut parameter) = (NDIS_STATUS_FAILURE, null_mut());
        // SAFETY: the places and the name live during the call.
        unsafe { NdisReadConfiguration(&mut status, &mut parameter, self.0, &mut name, kind) };
        if !status.is_success() {
            return None;
        }
        // SAFETY: NDIS keeps it until the configuration is closed.
        unsafe { parameter.as_ref() }.filter(|parameter| parameter.ParameterType == kind)
    }

    fn integer(&self, keyword: &str) -> Option<u32> {
        let parameter = self.parameter(keyword, NdisParameterInteger)?;
        // SAFETY: the type says that it is an integer.
        Some(unsafe { parameter.ParameterData.IntegerData })
    }

    fn network_direct(&self) -> bool {
        self.integer("*NetworkDirect").unwrap_or(1) != 0
    }

    fn string(&self, keyword: &str) -> Vec<u16> {
        let Some(parameter) = self.parameter(keyword, NdisParameterString) else {
            return Vec::new();
        };
        // SAFETY: the type says that it is a string.
        let text = unsafe { parameter.ParameterData.StringData };
        // SAFETY: the string lives as long as the parameter.
        unsafe { text_of(&text) }.to_vec()
    }

    fn network_address(&self) -> Option<[u8; 6]> {
        let (mut status, mut address, mut len) = (NDIS_STATUS_FAILURE, null_mut(), 0);
        // SAFETY: the places live during the call.
        unsafe { NdisReadNetworkAddress(&mut status, &mut address, &mut len, self.0) };
        if !status.is_success() || address.is_null() || len != 6 {
            return None;
        }
        // SAFETY: six bytes, valid until the configuration is closed.
        Some(unsafe { address.cast::<[u8; 6]>().read() })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: opened by `new`; nothing lent outlives it.
        unsafe { NdisCloseConfiguration(self.0) };
    }
}

/// The characters of a counted string.
///
/// # Safety
/// The string's buffer is valid for `'a`.
pub(crate) unsafe fn text_of<'a>(string: &UNICODE_STRING) -> &'a [u16] {
    // SAFETY: the caller's promise.
    unsafe { slice(string.Buffer.cast_const(), ULONG::from(string.Length / 2)) }
}

/// Priorities of a tag (IEEE 802.1Q).
pub(crate) const PRIORITIES: RangeInclusive<u8> = 0..=7;
/// Differentiated services code points (RFC 2474).
pub(crate) const DSCPS: RangeInclusive<u8> = 0..=63;
const UNITS: usize = 64;
const ETHERNET_HEADER_LEN: usize = 14;
/// The room for headers when RoCEv2 chooses a frame size.
const ROCE_HEADER_ROOM: usize = 96;
