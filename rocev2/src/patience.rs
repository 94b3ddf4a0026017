//! How far the numbers of a peer are trusted: every time and count that a REQ, REP or MRA names and
//! that we would wait for goes through here once, where the message is taken in.
//!
//! | A peer's number | What we make of it |
//! | --- | --- |
//! | Local ACK timeout (REQ), target ACK delay (REP) | no shorter than ours, no longer than [`Patience::ack_timeout_max`]; 0, which stands for ever, is the longest |
//! | Retry count | no less than ours, 7 at most |
//! | RNR retry count | as it is: 7 is without limit, because NDK consumers post receives late; but a pause is 655 ms at most, and each is the peer's own answer, so that a silent peer ends it |
//! | Service timeout (MRA) | [`Patience::service_limit`] for one, [`Patience::answer_limit`] for all together |
//! | CM response timeout (REQ) | only how far the pauses between our own REPs grow, within [`CmConfig::connect_limit`](crate::cm::CmConfig::connect_limit) |
//! | Responder resources, initiator depth | the smaller of both sides |
//! | Path MTU | refused above ours |
//! | Traffic class, flow label | DSCP and source port of our packets; ECN stays ours |
//! | Max CM retries, remote CM response timeout, packet rate, hop limit, alternate path | not looked at |
//!
//! A READ's length, and what else data packets name, is bound by the keys, and by the depth agreed on.

use crate::env::{Duration, code_duration};

/// The most retries that three bits can ask for.
const RETRIES_MAX: u8 = 7;
/// What the wire has for an ACK timeout without end.
const FOR_EVER: u8 = 0;

/// How long we wait for a peer, at most, whatever it asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Patience {
    /// The longest ACK timeout of our queue pairs: 4.096 us * 2^code. Our own setting counts where it is
    /// longer.
    pub ack_timeout_max: u8,
    /// The longest wait for one MRA.
    pub service_limit: Duration,
    /// The longest wait for the answer to a REQ or REP, with all MRAs for it.
    pub answer_limit: Duration,
}

impl Default for Patience {
    /// A silent peer is given up after 69 s, a connect after five minutes.
    fn default() -> Self {
        Self {
            ack_timeout_max: 21,
            service_limit: Duration::from_secs(70),
            answer_limit: Duration::from_secs(300),
        }
    }
}

impl Patience {
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

    /// How much longer a peer that sent MRA is waited for.
    pub fn service_time(&self, code: u8) -> Duration {
        code_duration(code).min(self.service_limit)
    }

    /// The longest that a request to a peer that says nothing takes, unless our own setting is longer.
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
        let patience = Patience::default();
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
            assert_eq!(patience.ack_timeout_code(own, wanted), code, "{own} and {wanted}");
        }
        assert_eq!((patience.retry_count(7, 0), patience.retry_count(0, 3)), (7, 3));
        assert_eq!(patience.silence_limit().as_secs(), 68);
    }

    /// Ten seconds without a link, whatever the peer named: README, Limits.
    #[test]
    fn the_default_survives_ten_seconds() {
        let config = crate::cm::CmConfig::default();
        for wanted in 0..32 {
            let code = config.patience.ack_timeout_code(config.ack_timeout_code, wanted);
            let retries = config.patience.retry_count(config.retry_count, 0);
            let silence = code_duration(code) * (u32::from(retries) + 1);
            assert!(silence > Duration::from_secs(10), "{silence:?}");
            assert!(silence <= config.patience.silence_limit(), "{silence:?}");
        }
    }
}
