//! Why a run ended early: one line for the user.

use std::fmt;
use std::io;
use std::time::Duration;

use driver::abi::*;
use ndk_consumer::NdkError;

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call failed.
    Ndk(NdkError),
    /// A work request failed.
    Completion { operation: &'static str, status: NTSTATUS },
    /// The peer went away before the end.
    Disconnected,
    /// The user did not want to wait any longer.
    Interrupted,
    /// Nothing happened for too long.
    Stalled(Duration),
    /// A completion that does not belong to the oldest request of its queue.
    Order { queue: &'static str, expected: Option<usize>, context: usize },
    /// The peer did not say what it had to.
    Protocol(&'static str),
    /// The peer speaks another version of our protocol.
    Version { theirs: u8, ours: u8 },
    /// The server does not take what the client asks for.
    Refused,
    /// The peer that asked for a connection has not shown that it is there.
    Unproven(Box<Failure>),
    /// Others that came after it have the place of a connection.
    Displaced,
    /// Data that is not what was sent.
    Mismatch { what: &'static str, count: u64, message: u64, offset: u64 },
    /// The network edge cannot be set up.
    Edge { edge: String, source: io::Error },
    /// Arguments that do not go together.
    Arguments(String),
    /// A document of results is none, or cannot be used, and why.
    Document(String),
    /// Results are worse than those that they are compared with, and which.
    Worse(String),
    /// A capture cannot be read to its end, and why.
    Capture(String),
    /// The results cannot be printed.
    Output(io::Error),
    /// The peer's port carries no packets as large as ours, and took no smaller ones.
    PathMtu(Box<Failure>),
    /// No packet of full size was answered, and smaller ones were; sizes of IP packets.
    Hole { source: Box<Failure>, answered: u32, unanswered: u32, path_mtu: u16 },
    /// A path has these faults.
    Faulty(String),
    /// A path could not be examined.
    Unexamined(Box<Failure>),
    /// The peer was silent; the command that examines the path.
    Silent { source: Box<Failure>, examine: String },
    /// Both sides failed: the client, and the server.
    Both(Box<Failure>, Box<Failure>),
    /// While doing what.
    During { what: String, source: Box<Failure> },
}

impl Failure {
    /// Names what was being done.
    pub(crate) fn during(self, what: impl Into<String>) -> Self {
        Self::During { what: what.into(), source: Box::new(self) }
    }

    /// Whether nobody answered, as far as we can tell.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            Self::Ndk(NdkError { status, .. }) | Self::Completion { status, .. } => {
                matches!(*status, STATUS_IO_TIMEOUT | STATUS_HOST_UNREACHABLE)
            }
            Self::Stalled(_) | Self::Hole { .. } | Self::Silent { .. } => true,
            Self::During { source, .. } => source.is_silence(),
            Self::Both(client, _) => client.is_silence(),
            _ => false,
        }
    }

    /// Whether the peer ended the connection.
    pub(crate) fn is_disconnection(&self) -> bool {
        match self {
            Self::Disconnected => true,
            Self::During { source, .. } => source.is_disconnection(),
            _ => false,
        }
    }

    /// Whether data were wrong.
    pub(crate) fn is_mismatch(&self) -> bool {
        match self {
            Self::Mismatch { .. } => true,
            Self::During { source, .. } => source.is_mismatch(),
            _ => false,
        }
    }

    /// Whether it was the user who ended it.
    pub(crate) fn is_interruption(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::During { source, .. } | Self::Silent { source, .. } => source.is_interruption(),
            Self::Unexamined(source) => source.is_interruption(),
            Self::Both(client, server) => client.is_interruption() || server.is_interruption(),
            _ => false,
        }
    }
}

impl From<NdkError> for Failure {
    fn from(error: NdkError) -> Self {
        Self::Ndk(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ndk(error) => write!(f, "{error}{}", Meaning(error.status)),
            Self::Completion { operation, status } => {
                write!(f, "{operation} completed with {status}{}", Meaning(*status))
            }
            Self::Disconnected => f.write_str("the peer disconnected before the end"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Stalled(time) => write!(f, "no progress for {} s", time.as_secs()),
            Self::Order { queue, expected: Some(expected), context } => {
                write!(f, "{queue} queue: request {context} completed before {expected}")
            }
            Self::Order { queue, expected: None, context } => {
                write!(f, "{queue} queue: request {context} completed, but none is posted")
            }
            Self::Protocol(what) => f.write_str(what),
            Self::Version { theirs, ours } => write!(
                f,
                "the peer speaks version {theirs} of the ndkperf protocol, and this end version {ours}: run the same ndkperf at both"
            ),
            Self::Refused => f.write_str(
                "the server refuses: it has no room for so much beside what it serves already, or \
                 runs another version of ndkperf",
            ),
            Self::Unproven(source) => write!(f, "the peer did not confirm its connect: {source}"),
            Self::Displaced => f.write_str("it was the oldest of too many"),
            Self::Mismatch { what, count, message, offset } => write!(
                f,
                "{what}: {count} messages arrived wrong, the first is {message} at byte {offset}"
            ),
            Self::Edge { edge, source } => write!(f, "{edge}: {source}"),
            Self::Arguments(what)
            | Self::Document(what)
            | Self::Worse(what)
            | Self::Capture(what)
            | Self::Faulty(what) => f.write_str(what),
            Self::Unexamined(source) => write!(f, "the path could not be examined: {source}"),
            Self::Silent { source, examine } => {
                write!(f, "{source}; `{examine}` examines the path")
            }
            Self::Output(source) => write!(f, "the results cannot be printed: {source}"),
            Self::PathMtu(source) => write!(
                f,
                "{source}: the path MTUs of the two ends do not fit, and the peer refused the one that it named, too; \
                 give both ends the same MTU (`ip link set IFACE mtu`)"
            ),
            Self::Hole { source, answered, unanswered, path_mtu } => write!(
                f,
                "{source}; IP packets of {answered} bytes were answered and none of {unanswered}: \
                 perhaps a link on the way carries less than its ends' MTU (path MTU {path_mtu})"
            ),
            Self::Both(client, server) => write!(f, "{client}; server: {server}"),
            Self::During { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for Failure {}

/// What a status means to somebody who ran a command.
struct Meaning(NTSTATUS);

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            STATUS_HOST_UNREACHABLE => "no host answers at that address",
            STATUS_NETWORK_UNREACHABLE => "no local network holds that address",
            STATUS_CONNECTION_REFUSED => "nobody listens on that port, or the peer rejected",
            STATUS_IO_TIMEOUT => "the peer does not answer",
            STATUS_SHARING_VIOLATION => "the port is in use",
            STATUS_INVALID_ADDRESS => "not an address of this adapter",
            STATUS_CANCELLED => "the connection is gone",
            STATUS_INVALID_BUFFER_SIZE => "a registration is shorter than 4 GiB",
            STATUS_INSUFFICIENT_RESOURCES => "no memory, or no more of that object",
            _ => return Ok(()),
        };
        write!(f, " ({text})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_the_name_of_its_status() {
        let error = NdkError { status: STATUS_CONNECTION_REFUSED, call: "NdkConnect" };
        let text = Failure::from(error).during("connecting to 10.0.0.2:7").to_string();
        assert!(
            text.starts_with("connecting to 10.0.0.2:7: NdkConnect: STATUS_CONNECTION_REFUSED")
        );
        assert!(!text.contains('\n'));
    }

    #[test]
    fn path_mtus_that_do_not_fit_are_named_with_the_remedy() {
        let error = NdkError { status: STATUS_CONNECTION_REFUSED, call: "NdkConnect" };
        let text = Failure::PathMtu(Box::new(error.into())).to_string();
        for part in
            ["STATUS_CONNECTION_REFUSED", "path MTUs of the two ends do not fit", "ip link set"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
