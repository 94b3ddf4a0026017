//! The events of a connection that wait to be polled: bits of the connection, as their values are in it, too. So
//! no event takes memory, whatever peers send.

/// A kind of event, in the order in which a connection has them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Kind {
    ConnectRequest,
    Connected,
    Established,
    Refused,
    TimedOut,
    PeerDisconnected,
    PathLost,
    DisconnectDone,
    DisconnectTimedOut,
    Closed,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::ConnectRequest,
        Self::Connected,
        Self::Established,
        Self::Refused,
        Self::TimedOut,
        Self::PeerDisconnected,
        Self::PathLost,
        Self::DisconnectDone,
        Self::DisconnectTimedOut,
        Self::Closed,
    ];

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// A set of events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct News(u16);

impl News {
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn add(&mut self, kind: Kind) {
        self.0 |= kind.bit();
    }

    /// Removes the events that are obsolete once the consumer has released the connection.
    pub(super) const fn release(&mut self) {
        self.0 &= Kind::DisconnectDone.bit() | Kind::DisconnectTimedOut.bit() | Kind::Closed.bit();
    }

    /// Takes the first event.
    pub(super) fn pop(&mut self) -> Option<Kind> {
        let kind = *Kind::ALL.get(self.0.trailing_zeros() as usize)?;
        self.0 &= !kind.bit();
        Some(kind)
    }
}
