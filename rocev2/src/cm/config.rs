//! The configuration of a connection manager: identity, limits and times.

use super::ReadLimits;
use crate::class::TrafficClasses;
use crate::env::{Duration, code_duration};
use crate::peer_limits::PeerLimits;
use crate::wire::Pmtu;
use crate::wire::mad::Make;

/// Settings of connection management. Times that end in `code` are the wire's, 4.096 us * 2^code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmConfig {
    /// The node GUID. No two hosts may share one: peers take it for the identity of ours.
    pub ca_guid: u64,
    /// The make that REQ and REP show to the peer. A device shows what it is.
    pub make: Make,
    /// The upper bits of a QPN that name the core, which [`Make::Keeper`] shows with the make ([`crate::ids::core_bits`]).
    pub core_bits: u8,
    /// The response time of either side, as announced in REQ; 5 bits.
    pub response_timeout_code: u8,
    /// The longest time of a packet in the network; 5 bits.
    pub packet_lifetime_code: u8,
    /// The shortest transport timer of our queue pairs; 5 bits. A silent peer is given up after this time,
    /// `retry_count + 1` times. REQ announces it for the peer's queue pair, up to
    /// [`Self::ANNOUNCED_ACK_TIMEOUT`].
    pub ack_timeout_code: u8,
    /// Transport retries of our queue pairs, at least, 0..=7.
    pub retry_count: u8,
    /// RNR retries that the peer's queue pair is asked to make, 0..=7. The default is 7, without limit,
    /// because NDK consumers post their receives after accept has returned.
    pub rnr_retry: u8,
    /// Target ACK delay announced in REP; 5 bits.
    pub target_ack_delay_code: u8,
    /// Service timeout announced in MRA, while our consumer takes its time; 5 bits.
    pub service_timeout_code: u8,
    /// Resends of REQ, REP and DREQ, also announced in REQ; 4 bits.
    pub max_retries: u8,
    /// The wait before the first resend. It doubles up to the negotiated time: a resend too many costs one
    /// packet that the peer ignores.
    pub first_resend: Duration,
    /// The time after which REQ and REP are given up, unless the peer needs more (MRA).
    pub connect_limit: Duration,
    /// The time after which DREQ is given up.
    pub disconnect_limit: Duration,
    /// Limits on the times and counts that a peer asks for.
    pub peer_limits: PeerLimits,
    /// The time for which the IDs of an ended connection are remembered (time-wait).
    pub time_wait: Duration,
    /// The adapter's read limits, which cap those of every connection.
    pub limits: ReadLimits,
    /// The largest path MTU that our port carries.
    pub max_pmtu: Pmtu,
    /// Traffic class of CM packets and, through REQ, of the connections that we start.
    pub traffic_class: u8,
    /// Classes that take its place, and that of a peer; see [`Device::set_traffic_classes`](crate::Device::set_traffic_classes).
    pub classes: TrafficClasses,
    /// TTL or hop limit of the same packets.
    pub hop_limit: u8,
    /// Connections of consumers. Up to twice as many more may linger, until DREP arrives or DREQ is given
    /// up.
    pub max_connections: usize,
    /// Connections whose peer has proved nothing yet: from the REQ, accepted or not, to the RTU or the first packet. A REQ beyond
    /// them is put off, and one that comes again takes the place of one that came for the first time.
    pub max_unproven: usize,
    /// Ended connections that are remembered; the eldest is forgotten first.
    pub max_time_wait: usize,
    /// Messages that wait for [`Device::poll_transmit`](crate::Device::poll_transmit). A message that finds
    /// no room is lost, as on the wire, and resent later.
    pub max_transmits: usize,
    /// Received messages that are processed per second, at most: of those that name a connection, and as many of those that do
    /// not. A quarter of them may come from one address. Those beyond are dropped unread
    /// ([`DropReason::CmShare`](crate::wire::DropReason::CmShare)), so that a flood of them does not take
    /// the time that connections need. One message and its reply cost a few microseconds.
    pub max_rate: u32,
    /// The burst: messages that may come together after silence. A quarter more is for requests that come again.
    pub max_burst: u32,
}

impl Default for CmConfig {
    /// The values that Linux announces, except for a shorter first resend and shorter limits. A silent peer
    /// is given up after 17 s, as a link may be down for ten.
    fn default() -> Self {
        Self {
            ca_guid: 0,
            make: Make::Other,
            core_bits: 0,
            response_timeout_code: 20,
            packet_lifetime_code: 16,
            ack_timeout_code: 19,
            retry_count: 7,
            rnr_retry: 7,
            target_ack_delay_code: 15,
            service_timeout_code: 22,
            max_retries: 15,
            first_resend: Duration::from_millis(500),
            connect_limit: Duration::from_secs(20),
            disconnect_limit: Duration::from_secs(8),
            peer_limits: PeerLimits::default(),
            time_wait: Duration::from_millis(512),
            limits: ReadLimits { inbound: 16, outbound: 16 },
            max_pmtu: Pmtu::B1024,
            traffic_class: 0,
            classes: TrafficClasses::default(),
            hop_limit: 64,
            max_connections: 1 << 16,
            max_unproven: 1024,
            max_time_wait: 4096,
            max_transmits: 1024,
            max_rate: 20_000,
            max_burst: 2048,
        }
    }
}

impl CmConfig {
    /// The longest local ACK timeout that our REQ announces, as Linux announces it for an ordinary path.
    /// Some peers resend by this timer alone, and a longer one would slow them down.
    pub const ANNOUNCED_ACK_TIMEOUT: u8 = 17;

    /// The time that the response to our REQ may take: there, at the peer, and back.
    pub(super) fn request_timeout(&self) -> Duration {
        self.packet_lifetime() * 2 + code_duration(self.response_timeout_code)
    }

    pub(super) fn packet_lifetime(&self) -> Duration {
        code_duration(self.packet_lifetime_code)
    }
}

/// The transport timer of the active side's queue pair: its own path's, with the acceptor's ACK
/// delay folded in (Linux `cm_ack_timeout`).
pub(super) fn fold_ack_delay(own_code: u8, delay_code: u8) -> u8 {
    let (longer, shorter) = (own_code.max(delay_code), own_code.min(delay_code));
    // A sum of powers of two, rounded up where the smaller one is at least half the larger.
    (longer + u8::from(shorter + 1 >= longer)).min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_powers_of_two() {
        assert_eq!(code_duration(0), Duration::from_nanos(4096));
        assert_eq!(code_duration(20).as_millis(), 4294);
        assert_eq!(code_duration(31).as_secs(), 8796);
        // Linux, which rounds down to powers of two of a millisecond, has 4608 ms.
        assert_eq!(CmConfig::default().request_timeout().as_millis(), 4831);
    }

    #[test]
    fn the_ack_delay_is_folded_in() {
        for (own, delay, folded) in
            [(17, 15, 17), (17, 16, 18), (17, 17, 18), (14, 15, 16), (14, 16, 16), (31, 31, 31)]
        {
            assert_eq!(fold_ack_delay(own, delay), folded, "{own} and {delay}");
        }
    }
}
