//! Time-wait: an ended connection is remembered while its packets may still be in the network.

use super::CmConfig;
use super::api::Layers;
use super::connection::Connection;
use super::message::Mad;
use super::receive::Ignored;
use crate::env::Duration;
use crate::wire::Packet;

impl Connection {
    /// The time for which it is remembered.
    pub(super) fn time_wait(&self, config: &CmConfig) -> Duration {
        // A peer that missed our REJ repeats its message after the negotiated time, not sooner.
        let asks_again = if self.rejected { self.response_timeout } else { Default::default() };
        config.time_wait + asks_again.min(config.connect_limit)
    }

    /// Our REJ that ended it, if any, which is repeated until the peer has received it: the reply to a message
    /// that belongs to it.
    pub(super) fn repeated_rej(
        &self,
        config: &CmConfig,
        packet: &Packet<'_>,
    ) -> Result<(Layers, Mad), Ignored> {
        self.check_addresses(packet)?;
        let rej = self.last_message().filter(|_| self.rejected);
        Ok((self.layers(config), rej.ok_or(Ignored::UnknownId)?))
    }
}
