//! The state of a connection as its consumer sees it: one table, from which the status of a call and what
//! the consumer may do follow.
//!
//! ```text
//! active    Idle ─Connect─> Resolving ─Send─> Connecting ─Answer─> Offered ─CompleteConnect─┐
//! passive   Idle ─Request─> Requested ─Accept─> Accepting ─Confirm──────────────────────────┴─> Established
//! the end   Established ─Lose─> Over      Established ─Disconnect─> Disconnecting ─Done─> Over
//! ```
//!
//! The messages on the wire have a machine of their own (`rocev2::cm`), whose events are the steps here that
//! are no calls.

use super::shared::Stage;
use crate::abi::*;

/// How far a connector is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Nothing was asked yet.
    Idle,
    /// The peer's link-layer address is being asked for.
    Resolving,
    /// The request is out.
    Connecting,
    /// The peer accepted; the consumer has to complete or reject.
    Offered,
    /// The peer asked; the consumer has to accept or reject.
    Requested,
    /// The answer is out.
    Accepting,
    /// Data may flow.
    Established,
    /// The consumer disconnects.
    Disconnecting,
    /// It was established, and is over: the peer left, the QP failed, or the consumer has disconnected.
    Over,
    /// It is over and never was established, or the connector is closed.
    Ended,
}

/// The events of a connector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// `NdkConnect`.
    Connect,
    /// `NdkCompleteConnect`.
    CompleteConnect,
    /// `NdkAccept`.
    Accept,
    /// `NdkReject`.
    Reject,
    /// `NdkDisconnect`.
    Disconnect,
    /// `NdkCloseConnector`.
    Close,
    /// The way to the peer is known, and the request leaves.
    Send,
    /// A peer's request came in, and the connector was made for it.
    Request,
    /// The peer accepted.
    Answer,
    /// The peer confirmed, or its data came.
    Confirm,
    /// The attempt came to nothing.
    Fail,
    /// An established connection is over without the consumer's doing.
    Lose,
    /// The peer answered our disconnect, or was not waited for any longer.
    Done,
}

impl Phase {
    /// One arm per legal step.
    ///
    /// # Errors
    /// The status of a call that is not legal now. A step that is no call changes nothing then.
    pub(super) const fn next(self, step: Step) -> Result<Self, NTSTATUS> {
        Ok(match (self, step) {
            (Self::Idle, Step::Connect) => Self::Resolving,
            (Self::Resolving, Step::Send) => Self::Connecting,
            (Self::Connecting, Step::Answer) => Self::Offered,
            (Self::Offered, Step::CompleteConnect) => Self::Established,
            (Self::Idle, Step::Request) => Self::Requested,
            (Self::Requested, Step::Accept) => Self::Accepting,
            (Self::Accepting, Step::Confirm) => Self::Established,
            // Another attempt may follow.
            (Self::Resolving | Self::Connecting, Step::Fail) => Self::Idle,
            (Self::Accepting | Self::Offered | Self::Requested, Step::Fail) => Self::Ended,
            (Self::Offered | Self::Requested, Step::Reject) => Self::Ended,
            (Self::Established, Step::Disconnect) => Self::Disconnecting,
            // The peer has said its part already.
            (Self::Over, Step::Disconnect) => Self::Over,
            (Self::Established, Step::Lose) | (Self::Disconnecting, Step::Done) => Self::Over,
            (_, Step::Close) => Self::Ended,
            (_, Step::Connect) => return Err(STATUS_CONNECTION_ACTIVE),
            (Self::Over | Self::Ended, Step::CompleteConnect | Step::Accept) => {
                return Err(STATUS_CONNECTION_ABORTED);
            }
            _ => return Err(STATUS_CONNECTION_INVALID),
        })
    }

    /// The calls that the consumer may make.
    pub(super) const fn stage(self) -> Stage {
        match self {
            Self::Idle => Stage::Idle,
            Self::Offered | Self::Requested => Stage::Rejectable,
            Self::Resolving
            | Self::Connecting
            | Self::Accepting
            | Self::Established
            | Self::Disconnecting => Stage::Busy,
            Self::Over | Self::Ended => Stage::Gone,
        }
    }

    /// Whether there is a connection, if only until it is taken down.
    pub(super) const fn is_connected(self) -> bool {
        matches!(self, Self::Established | Self::Disconnecting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::string::String;

    const PHASES: [Phase; 10] = [
        Phase::Idle,
        Phase::Resolving,
        Phase::Connecting,
        Phase::Offered,
        Phase::Requested,
        Phase::Accepting,
        Phase::Established,
        Phase::Disconnecting,
        Phase::Over,
        Phase::Ended,
    ];

    const STEPS: [Step; 13] = [
        Step::Connect,
        Step::CompleteConnect,
        Step::Accept,
        Step::Reject,
        Step::Disconnect,
        Step::Close,
        Step::Send,
        Step::Request,
        Step::Answer,
        Step::Confirm,
        Step::Fail,
        Step::Lose,
        Step::Done,
    ];

    /// Every pair: the phase that follows, or the status of the call in small letters.
    const TABLE: &str = "\
step \\ phase     Idle          Resolving     Connecting    Offered       Requested     Accepting     Established   Disconnecting Over          Ended
Connect          Resolving     active        active        active        active        active        active        active        active        active
CompleteConnect  invalid       invalid       invalid       Established   invalid       invalid       invalid       invalid       aborted       aborted
Accept           invalid       invalid       invalid       invalid       Accepting     invalid       invalid       invalid       aborted       aborted
Reject           invalid       invalid       invalid       Ended         Ended         invalid       invalid       invalid       invalid       invalid
Disconnect       invalid       invalid       invalid       invalid       invalid       invalid       Disconnecting invalid       Over          invalid
Close            Ended         Ended         Ended         Ended         Ended         Ended         Ended         Ended         Ended         Ended
Send             invalid       Connecting    invalid       invalid       invalid       invalid       invalid       invalid       invalid       invalid
Request          Requested     invalid       invalid       invalid       invalid       invalid       invalid       invalid       invalid       invalid
Answer           invalid       invalid       Offered       invalid       invalid       invalid       invalid       invalid       invalid       invalid
Confirm          invalid       invalid       invalid       invalid       invalid       Established   invalid       invalid       invalid       invalid
Fail             invalid       Idle          Idle          Ended         Ended         Ended         invalid       invalid       invalid       invalid
Lose             invalid       invalid       invalid       invalid       invalid       invalid       Over          invalid       invalid       invalid
Done             invalid       invalid       invalid       invalid       invalid       invalid       invalid       Over          invalid       invalid
";

    fn cell(next: Result<Phase, NTSTATUS>) -> String {
        match next {
            Ok(phase) => std::format!("{phase:?}"),
            Err(STATUS_CONNECTION_ACTIVE) => "active".into(),
            Err(STATUS_CONNECTION_ABORTED) => "aborted".into(),
            Err(STATUS_CONNECTION_INVALID) => "invalid".into(),
            Err(status) => std::format!("{status:?}"),
        }
    }

    #[test]
    fn every_pair_is_as_in_the_table() {
        let mut table = String::from("step \\ phase     ");
        for phase in PHASES {
            write!(table, "{:14}", std::format!("{phase:?}")).unwrap();
        }
        for step in STEPS {
            write!(table, "\n{:17}", std::format!("{step:?}")).unwrap();
            for phase in PHASES {
                write!(table, "{:14}", cell(phase.next(step))).unwrap();
            }
        }
        assert!(table.lines().map(str::trim_end).eq(TABLE.lines()), "now:\n{table}");
    }

    /// A connection that is over stays so, and the consumer is never offered to reject it.
    #[test]
    fn the_end_is_final() {
        for step in STEPS {
            let over = Phase::Over.next(step).unwrap_or(Phase::Over);
            assert_eq!(over.stage(), Stage::Gone, "{step:?}");
            assert_eq!(Phase::Ended.next(step).unwrap_or(Phase::Ended), Phase::Ended, "{step:?}");
        }
    }
}
