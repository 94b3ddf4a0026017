//! The state of a listener that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::shared::Object;
use crate::shard::Bell;
use crate::sync::Doorbell;
use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use once_cell::race::OnceBox;

/// A listener.
pub(crate) type ListenerObject = Object<NDK_LISTENER, ListenerShared>;

/// The shared state of a listener.
pub(crate) struct ListenerShared {
    /// Set once it listens.
    pub(crate) local: OnceBox<SocketAddr>,
    /// Requests are refused as if there were no listener.
    pub(crate) paused: AtomicBool,
    pub(crate) bell: Bell,
    pub(crate) doorbell: Doorbell,
}
