//! The events and errors of an endpoint.

use std::fmt;

use driver::abi::NTSTATUS;

use crate::NdkError;

/// A message of the peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Its bytes, copied out of the receive, which waits for the next message already.
    pub bytes: Vec<u8>,
    /// The token of ours that it has ended.
    pub invalidated: Option<u32>,
}

/// Something that has ended well.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A message has come.
    Message(Message),
    /// A posted WRITE or READ has ended.
    Ended {
        /// The kind of the request.
        operation: Operation,
        /// The tag of its post.
        tag: u32,
    },
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// A receive.
    Receive,
    /// A SEND, with or without invalidation.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// A fast registration.
    Register,
    /// An invalidation of our own.
    Invalidate,
}

/// The reason why an endpoint cannot go on, or why one of its calls could not be made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EndpointError {
    /// A call failed.
    Ndk(NdkError),
    /// The peer refuses the connection, and says so.
    Refused {
        /// The status of the connect.
        status: NTSTATUS,
        /// The peer's reason, padded with zeros by the transport; empty where none came.
        private_data: Vec<u8>,
    },
    /// A request ended with an error, and the connection with it.
    Failed {
        /// The kind of the request.
        operation: Operation,
        /// The status of its completion.
        status: NTSTATUS,
    },
    /// The peer has ended the connection, or it has broken. Both look alike: a peer that has to know says goodbye by a
    /// message.
    Disconnected,
    /// Nothing has happened for too long; the connection may go on.
    TimedOut,
    /// The region is registered, and has to be invalidated first.
    Registered,
    /// A completion of a request that nobody has posted.
    Stray(usize),
}

impl EndpointError {
    /// The status that the provider gave, if it was one.
    #[must_use]
    pub const fn status(&self) -> Option<NTSTATUS> {
        match self {
            Self::Ndk(NdkError { status, .. })
            | Self::Refused { status, .. }
            | Self::Failed { status, .. } => Some(*status),
            Self::Disconnected | Self::TimedOut | Self::Registered | Self::Stray(_) => None,
        }
    }
}

impl From<NdkError> for EndpointError {
    fn from(error: NdkError) -> Self {
        Self::Ndk(error)
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ndk(error) => error.fmt(f),
            Self::Refused { status, .. } => write!(f, "the peer refused the connection: {status}"),
            Self::Failed { operation, status } => write!(f, "{operation:?} ended with {status}"),
            Self::Disconnected => f.write_str("the peer has disconnected"),
            Self::TimedOut => f.write_str("nothing happened for too long"),
            Self::Registered => f.write_str("the region is registered already"),
            Self::Stray(context) => write!(f, "a completion of no request, context {context:#x}"),
        }
    }
}

impl std::error::Error for EndpointError {}
