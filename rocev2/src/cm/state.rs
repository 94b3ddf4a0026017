//! The connection's states and every legal move between them (IBTA ch. 12, Communication
//! Establishment; the CM chapters' state diagrams).

/// The state of a connection. MRA leaves it as it is: it only moves a timer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Nothing sent, nothing received.
    Idle,
    /// Active: REQ sent, waits for REP.
    ReqSent,
    /// Active: REP received, waits for our consumer.
    RepReceived,
    /// Passive: REQ received, waits for our consumer.
    ReqReceived,
    /// Passive: REP sent, waits for RTU or the first data packet.
    RepSent,
    /// Both sides may send.
    Established,
    /// DREQ sent, waits for DREP.
    DreqSent,
    /// The protocol has ended: the IDs are in time-wait, and only the consumer may still have the
    /// connection.
    Closed,
}

/// The events that move a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// The consumer connects.
    SendReq,
    /// The consumer accepts.
    SendRep,
    /// The consumer confirms.
    SendRtu,
    /// The consumer rejects, or closes before the connection is established.
    SendRej,
    /// The consumer disconnects, or closes an established connection.
    SendDreq,
    /// REQ; in all states but `Idle` a duplicate.
    RecvReq,
    /// REP.
    RecvRep,
    /// RTU.
    RecvRtu,
    /// A valid packet on the passive side's queue pair ("communication established").
    RecvData,
    /// REJ.
    RecvRej,
    /// MRA.
    RecvMra,
    /// DREQ.
    RecvDreq,
    /// DREP.
    RecvDrep,
    /// The peer no longer has this connection: it did not respond to probes, or uses its queue pair in
    /// another.
    PeerLost,
    /// The last resend had no response.
    GiveUp,
    /// The path to the peer is gone.
    PathLost,
}

impl State {
    /// The state after `event`, one arm per legal move; `None` leaves the state untouched and the event
    /// counted.
    pub(super) const fn next(self, event: Event) -> Option<Self> {
        use Event::*;
        Some(match (self, event) {
            // Active side.
            (Self::Idle, SendReq) => Self::ReqSent,
            (Self::ReqSent, RecvMra) => Self::ReqSent,
            (Self::ReqSent, RecvRep) => Self::RepReceived,
            (Self::ReqSent, SendRej | RecvRej | GiveUp) => Self::Closed,
            // REP again: the peer has not received a reply. MRA tells it to wait.
            (Self::RepReceived, RecvRep) => Self::RepReceived,
            (Self::RepReceived, SendRtu) => Self::Established,
            // DREQ: Linux ignores it here; taking it tells our consumer sooner.
            (Self::RepReceived, SendRej | RecvRej | RecvDreq) => Self::Closed,

            // Passive side.
            (Self::Idle, RecvReq) => Self::ReqReceived,
            (Self::ReqReceived, RecvReq) => Self::ReqReceived,
            (Self::ReqReceived, SendRep) => Self::RepSent,
            (Self::ReqReceived, SendRej | RecvRej) => Self::Closed,
            (Self::RepSent, RecvMra) => Self::RepSent,
            (Self::RepSent, RecvRtu | RecvData) => Self::Established,
            // DREQ: the RTU was lost, and the peer is already done.
            (Self::RepSent, SendRej | RecvRej | RecvDreq | GiveUp) => Self::Closed,

            // Both sides. REP again: our RTU was lost.
            (Self::Established, RecvRep) => Self::Established,
            (Self::Established, SendDreq) => Self::DreqSent,
            (Self::Established, RecvDreq | RecvRej | PeerLost) => Self::Closed,
            // DREQ: both sides disconnect at once.
            (Self::DreqSent, RecvDrep | RecvDreq | RecvRej | PeerLost | GiveUp) => Self::Closed,
            // No message reaches the peer, and none of the peer's comes here.
            (
                Self::ReqSent
                | Self::RepReceived
                | Self::ReqReceived
                | Self::RepSent
                | Self::Established
                | Self::DreqSent,
                PathLost,
            ) => Self::Closed,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::string::String;

    const STATES: [State; 8] = [
        State::Idle,
        State::ReqSent,
        State::RepReceived,
        State::ReqReceived,
        State::RepSent,
        State::Established,
        State::DreqSent,
        State::Closed,
    ];

    const EVENTS: [Event; 16] = [
        Event::SendReq,
        Event::SendRep,
        Event::SendRtu,
        Event::SendRej,
        Event::SendDreq,
        Event::RecvReq,
        Event::RecvRep,
        Event::RecvRtu,
        Event::RecvData,
        Event::RecvRej,
        Event::RecvMra,
        Event::RecvDreq,
        Event::RecvDrep,
        Event::PeerLost,
        Event::GiveUp,
        Event::PathLost,
    ];

    /// Every (state, event) pair; a dot is a move that is not legal.
    const TABLE: &str = "\
event \\ state   Idle        ReqSent     RepReceived ReqReceived RepSent     Established DreqSent    Closed
SendReq         ReqSent     .           .           .           .           .           .           .
SendRep         .           .           .           RepSent     .           .           .           .
SendRtu         .           .           Established .           .           .           .           .
SendRej         .           Closed      Closed      Closed      Closed      .           .           .
SendDreq        .           .           .           .           .           DreqSent    .           .
RecvReq         ReqReceived .           .           ReqReceived .           .           .           .
RecvRep         .           RepReceived RepReceived .           .           Established .           .
RecvRtu         .           .           .           .           Established .           .           .
RecvData        .           .           .           .           Established .           .           .
RecvRej         .           Closed      Closed      Closed      Closed      Closed      Closed      .
RecvMra         .           ReqSent     .           .           RepSent     .           .           .
RecvDreq        .           .           Closed      .           Closed      Closed      Closed      .
RecvDrep        .           .           .           .           .           .           Closed      .
PeerLost        .           .           .           .           .           Closed      Closed      .
GiveUp          .           Closed      .           .           Closed      .           Closed      .
PathLost        .           Closed      Closed      Closed      Closed      Closed      Closed      .
";

    #[test]
    fn every_pair_is_as_in_the_table() {
        let mut table = String::from("event \\ state   ");
        for state in STATES {
            write!(table, "{:12}", std::format!("{state:?}")).unwrap();
        }
        for event in EVENTS {
            write!(table, "\n{:16}", std::format!("{event:?}")).unwrap();
            for state in STATES {
                let next = state.next(event).map(|next| std::format!("{next:?}"));
                write!(table, "{:12}", next.as_deref().unwrap_or(".")).unwrap();
            }
        }
        assert!(table.lines().map(str::trim_end).eq(TABLE.lines()), "now:\n{table}");
    }

    /// No event leads out of `Closed`, so that each connection ends once.
    #[test]
    fn closed_is_final() {
        assert!(EVENTS.iter().all(|event| State::Closed.next(*event).is_none()));
    }
}
