//! A connection over which both ends send each other control messages, and data between them.

use std::sync::Arc;

use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
use ndk_consumer::Pd;

use super::budget::DEPTH_MAX;
use super::control::{Control, NoControl, VERSION};
use super::ring::{ControlSender, Ring};
use crate::connection::Connection;
use crate::failure::Failure;

/// A connection with its receives.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    control: ControlSender,
    inbox: Ring,
    receive_len: usize,
}

/// A message of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Heard {
    Control(Control),
    Data,
}

impl Link {
    /// Posts `receives` receives of `receive_len` bytes.
    pub(super) fn new(
        pd: &Arc<Pd>,
        connection: Connection,
        receives: usize,
        receive_len: usize,
    ) -> Result<Self, Failure> {
        let control = ControlSender::new(pd, usize::from(DEPTH_MAX))?;
        let inbox = Ring::new(pd, receives, receive_len, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
        let mut link = Self { connection, control, inbox, receive_len };
        for slot in 0..receives {
            link.post_receive(slot)?;
        }
        Ok(link)
    }

    pub(super) fn send(&mut self, control: Control) -> Result<(), Failure> {
        self.control.send(&mut self.connection, control)
    }

    /// Whether the send that has ended was one of a control message. Tags of data are below its own.
    pub(super) fn is_control(&mut self, tag: usize) -> bool {
        self.control.sent(tag)
    }

    /// The message in a slot, whose receive is to be posted again afterwards.
    pub(super) fn hear(&self, slot: usize, len: usize) -> Result<Heard, Failure> {
        let mut bytes = [0; Control::LEN];
        let Some(bytes) = bytes.get_mut(..len) else { return Ok(Heard::Data) };
        self.inbox.get(slot, bytes);
        match Control::decode(bytes) {
            Ok(Control::Refused) => Err(Failure::Refused),
            Ok(control) => Ok(Heard::Control(control)),
            Err(NoControl::Other) => Ok(Heard::Data),
            Err(NoControl::Version(theirs)) => Err(Failure::Version { theirs, ours: VERSION }),
        }
    }

    pub(super) fn post_receive(&mut self, slot: usize) -> Result<(), Failure> {
        let range = self.inbox.range(slot, self.receive_len);
        self.connection.receive(self.inbox.mr(), range, slot)
    }

    /// Receives.
    pub(super) const fn inbox(&self) -> &Ring {
        &self.inbox
    }
}
