//! The configuration of a provider.

use crate::limits::Limits;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use rocev2::Opening;
use rocev2::cm::CmConfig;
use rocev2::ids::MAX_CORES;
use rocev2::qp::{DcqcnConfig, Window};

/// The configuration of a provider.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Addresses that the adapter owns.
    pub addresses: Vec<IpAddr>,
    /// The zone of its link-local addresses (RFC 4007), as consumers know it by `sin6_scope_id`: on Windows that of the
    /// interface. 0: not known, and what a consumer names is believed.
    pub zone: u32,
    /// The VLAN that connects go out in, and in which neighbours are asked for: tag control information,
    /// whose low 12 bits are the VLAN ID. Where they name one, RoCE packets of another are dropped. `None`: untagged;
    /// a connection that a peer asked for stays in the VLAN of its request. On Windows the adapter's `VlanId` is put on below, and this stays `None`.
    pub vlan: Option<u16>,
    /// Source of all randomness; `None` draws it from the operating system.
    pub seed: Option<[u8; 32]>,
    /// Transport timeout code of our queue pairs, 4.096 us * 2^code; see [`Self::ACK_TIMEOUT_CODES`].
    /// Connects ask it of the peer, up to [`CmConfig::ANNOUNCED_ACK_TIMEOUT`]. A peer that asks for more
    /// patience gets it, within [`CmConfig::peer_limits`].
    pub ack_timeout_code: u8,
    /// Transport retries of our queue pairs, and those that connects ask for; see [`Self::RETRY_COUNTS`]. A
    /// silent peer is given up after (retries + 1) times the timeout: 17 s by default.
    pub retry_count: u8,
    /// The opening values of connections.
    pub opening: Opening,
    /// The send window of each QP.
    pub window: Window,
    /// Congestion control; `None` turns it off. The line rate is that of an edge that does not know
    /// its own.
    pub dcqcn: Option<DcqcnConfig>,
    /// See [`DeviceConfig::short_ways`](rocev2::DeviceConfig::short_ways).
    pub short_ways: bool,
    /// Timers of connection management.
    pub cm: CmConfig,
    /// The limits of the adapter. Windows is told the default ones.
    pub limits: Limits,
}

impl ProviderConfig {
    /// Timeout codes that a setting may choose, 67 ms to 17 s: below, a busy peer looks dead; above, a
    /// dead one holds its requests for minutes. Others are for tests.
    pub const ACK_TIMEOUT_CODES: RangeInclusive<u8> = 14..=22;
    /// Retries that a setting may choose: three bits on the wire.
    pub const RETRY_COUNTS: RangeInclusive<u8> = 0..=7;
    /// Poll cores that a provider may have.
    pub const POLL_CORES: RangeInclusive<u8> = 1..=MAX_CORES as u8;

    /// The defaults for these addresses.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            zone: 0,
            vlan: None,
            seed: None,
            ack_timeout_code: CmConfig::default().ack_timeout_code,
            retry_count: CmConfig::default().retry_count,
            opening: Opening::default(),
            window: Window::default(),
            dcqcn: Some(DcqcnConfig::default()),
            short_ways: true,
            cm: CmConfig::default(),
            limits: Limits::default(),
        }
    }
}
