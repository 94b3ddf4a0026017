//! The peer's connection management, at UDP port 4791: whether it answers, and how.

use std::fmt::Display;

use ndk_consumer::Host;
use rocev2::wire::mad::RejReason;

use super::Path;
use super::attempt::{Load, attempt};
use super::findings::Code;
use super::report::Report;
use super::tap::Trace;
use crate::decode;
use crate::failure::Failure;
use crate::perf::Operation;

/// How far we came with the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Contact {
    /// It speaks our protocol.
    Open { path_mtu: u16 },
    /// It answers, and that is all that can be examined.
    Closed,
    /// It is silent, from the first request or from here on.
    Silent { was_connected: bool },
}

/// Connects, and moves a few small messages.
pub(super) fn examine(
    host: &Host,
    trace: &Trace,
    path: &Path,
    report: &mut Report,
) -> Result<Contact, Failure> {
    report.begin("connection");
    let (from, remote) = (trace.len(), path.remote());
    let load = Load { operation: Operation::Send, size: 64, messages: 4, depth: 1 };
    let first = attempt(host, path, load)?;
    let facts = trace.since(from, |frames| decode::examine(path.own_ip, frames));
    let Some(failure) = &first.failure else {
        let path_mtu = first.path_mtu.or(facts.path_mtu).unwrap_or(PATH_MTU_MIN);
        report.tell(format!("{remote} accepts connections; the path MTU is {path_mtu}"));
        if path_mtu < PATH_MTU_MAX {
            report.tell(format!(
                "the MTU of an end allows no more; with {} bytes at both it would be {PATH_MTU_MAX}",
                PATH_MTU_MAX + HEADERS_MAX
            ));
        }
        return Ok(Contact::Open { path_mtu });
    };
    if let Some((reason, text)) = facts.rejection.filter(|_| !facts.is_accepted) {
        report.find(refused(reason), refusal(&remote, reason, &text));
        return Ok(Contact::Closed);
    }
    // A server whose side has given up first says so, and has not heard what was sent again.
    let ends_unheard = failure.is_disconnection() && facts.timeouts > 0;
    match (facts.is_accepted, facts.is_put_off, first.is_silent() || ends_unheard) {
        (true, _, true) => Ok(Contact::Silent { was_connected: true }),
        (true, _, false) => {
            report.skip(format!(
                "{remote} accepts connections and does not speak our protocol, so that no data were moved \
                 (--rping speaks that of rping): {failure}"
            ));
            Ok(Contact::Closed)
        }
        (false, true, _) => {
            let text = format!(
                "{remote} has heard our request and asks for patience (MRA), but its listener does not accept"
            );
            report.find(Code::NotAccepted, text);
            Ok(Contact::Closed)
        }
        (false, false, true) => Ok(Contact::Silent { was_connected: false }),
        (false, false, false) => {
            report.find(Code::OperationFailed, format!("connecting to {remote} failed: {failure}"));
            Ok(Contact::Closed)
        }
    }
}

/// What a refusal says.
fn refusal(remote: &impl Display, reason: RejReason, text: &impl Display) -> String {
    let again = match reason {
        RejReason::INVALID_MTU => {
            ", and again where the path MTU is the one that it names: its port carries no packets as large as ours"
        }
        _ => "",
    };
    format!("{remote} refuses connections: REJ with {text}{again}")
}

/// The fault that a reason of REJ names (IBTA ch. 12, rejection reasons).
const fn refused(reason: RejReason) -> Code {
    match reason {
        RejReason::INVALID_SERVICE_ID => Code::NoListener,
        RejReason::INVALID_TRANSPORT | RejReason::INVALID_GID | RejReason::INVALID_MTU => {
            Code::IncompatibleTransport
        }
        RejReason::UNSUPPORTED | RejReason::INVALID_RNR_RETRY => Code::IncompatibleTransport,
        _ => Code::Rejected,
    }
}

const PATH_MTU_MIN: u16 = 256;
const PATH_MTU_MAX: u16 = 4096;
/// Bytes of the longest headers around a payload, from IP to ICRC.
const HEADERS_MAX: u16 = 104;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_the_path_mtu_says_that_the_ends_do_not_fit() {
        assert_eq!(refused(RejReason::INVALID_MTU), Code::IncompatibleTransport);
        let told = refusal(&"10.0.0.2", RejReason::INVALID_MTU, &"reason 26, invalid path MTU");
        assert!(told.contains("invalid path MTU, and again where the path MTU"), "{told}");
        let other = refusal(&"10.0.0.2", RejReason::CONSUMER, &"reason 28");
        assert_eq!(other, "10.0.0.2 refuses connections: REJ with reason 28");
    }
}
