//! Limits on the times and counts that a peer asks for. Every one of them that we would wait for comes
//! here once, when the REQ, REP or MRA that names it is received.
//!
//! | A peer's number | Its effect |
//! | --- | --- |
//! | Local ACK timeout (REQ), target ACK delay (REP) | no shorter than ours, no longer than [`PeerLimits::ack_timeout_max`]; 0, which means no timeout, becomes the longest |
//! | Retry count | no less than ours, 7 at most |
//! | RNR retry count | taken as it is: 7 is without limit, because NDK consumers post receives late. A pause is 655 ms at most, and each needs a new RNR NAK, so a silent peer ends them |
//! | Service timeout (MRA) | [`PeerLimits::service_limit`] is the limit for one MRA, [`PeerLimits::response_limit`] for all of a request |
//! | CM response timeout (REQ) | bounds the pauses between our own REPs, within [`CmConfig::connect_limit`](crate::cm::CmConfig::connect_limit) |
//! | Responder resources, initiator depth | the smaller value of the two sides |
//! | Path MTU | refused above ours |
//! | Traffic class, flow label | set DSCP and source port of our packets; ECN stays ours. The priority is that of the request's tag; a class of ours comes before both |
//! | Max CM retries, remote CM response timeout, packet rate, hop limit, alternate path | ignored |
//!
//! A READ's length and the other numbers in data packets are bounded by the keys and the negotiated depth.

use crate::env::{Duration, code_duration};

/// The largest retry count: it has three bits.
const RETRIES_MAX: u8 = 7;
/// The ACK timeout code of the wire that means no timeout.
const FOR_EVER: u8 = 0;

/// The longest that we wait for a peer, whatever it asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerLimits {
    /// The longest ACK timeout of our queue pairs: 4.096 us * 2^code. A longer setting of our own
    /// prevails.
    pub ack_timeout_max: u8,
    /// The longest wait for one MRA.
    pub service_limit: Duration,
    /// The longest wait for the response to a REQ or REP, with all MRAs for it.
    pub response_limit: Duration,
}

impl Default for PeerLimits {
    /// We give up a silent peer after 69 s, and a connect after five minutes.
    fn default() -> Self {
        Self {
            ack_timeout_max: 21,
            service_limit: Duration::from_secs(70),
            response_limit: Duration::from_secs(300),
        }
    }
}

impl PeerLimits {
    /// The ACK timeout code of our queue pair, where our setting is `own` and the peer wants `wanted`.
    pub fn ack_timeout_code(&self, own: u8, wanted: u8) -> u8 {
        let longest = self.ack_timeout_max.clamp(1, 31);
        let finite = |code: u8| if code == FOR_EVER { longest } else { code.min(31) };
        let own = finite(own);
        finite(wanted).min(longest).max(own)
    }

    /// The transport retries of our queue pair.
    pub fn retry_count(&self, own: u8, wanted: u8) -> u8 {
        own.max(wanted).min(RETRIES_MAX)
    }

    /// The additional wait for a peer that sent MRA.
    pub fn service_time(&self, code: u8) -> Duration {
        code_duration(code).min(self.service_limit)
    }

    /// The longest that a request to a silent peer takes, unless our own setting is longer.
    pub fn silence_limit(&self) -> Duration {
        code_duration(self.ack_timeout_max.clamp(1, 31)) * (u32::from(RETRIES_MAX) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ours is the floor, the limit the ceiling, and 0 no way around it.
    #[test]
    fn an_ack_timeout_stays_between_ours_and_the_limit() {
        let limits = PeerLimits::default();
        for (own, wanted, code) in [
            (19, 0, 21),
            (19, 1, 19),
            (19, 17, 19),
            (19, 20, 20),
            (19, 22, 21),
            (19, 31, 21),
            (8, 10, 10),
            (25, 0, 25),
            (25, 31, 25),
            (0, 31, 21),
            (0, 1, 21),
        ] {
            assert_eq!(limits.ack_timeout_code(own, wanted), code, "{own} and {wanted}");
        }
        assert_eq!((limits.retry_count(7, 0), limits.retry_count(0, 3)), (7, 3));
        assert_eq!(limits.silence_limit().as_secs(), 68);
    }

    /// Ten seconds without a link, whatever the peer named: driver/README.md, Limits.
    #[test]
    fn the_default_survives_ten_seconds() {
        let config = crate::cm::CmConfig::default();
        for wanted in 0..32 {
            let code = config.peer_limits.ack_timeout_code(config.ack_timeout_code, wanted);
            let retries = config.peer_limits.retry_count(config.retry_count, 0);
            let silence = code_duration(code) * (u32::from(retries) + 1);
            assert!(silence > Duration::from_secs(10), "{silence:?}");
            assert!(silence <= config.peer_limits.silence_limit(), "{silence:?}");
        }
    }
}
