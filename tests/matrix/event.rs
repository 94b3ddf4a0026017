//! What happens to a cell: a fault of the wire for all of its time, or one strike in the middle of the work.

use std::time::Duration;

use netadapter_glue::fault::Faults;

use crate::wire::Hurt;

/// What happens to a cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    Clean,
    Loss,
    Reorder,
    Duplicate,
    Corrupt,
    Delay,
    PeerKilled,
    OursKilled,
    CableOut3,
    CableOut10,
    GuestPaused,
}

/// What strikes in the middle of the work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Strike {
    /// The guest's program is killed, or the guest where its program is its kernel.
    KillPeer,
    /// Our program is killed, and started anew where it listens.
    KillOurs,
    /// The cable is out for so long.
    PullCable(Duration),
    /// The guest stands still for so long.
    PauseGuest(Duration),
}

impl Event {
    /// Those that hurt the wire; each program meets each of them.
    pub(crate) const FAULTS: [Self; 6] =
        [Self::Clean, Self::Loss, Self::Reorder, Self::Duplicate, Self::Corrupt, Self::Delay];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Loss => "loss-1%",
            Self::Reorder => "reorder-2%",
            Self::Duplicate => "duplicate-1%",
            Self::Corrupt => "corrupt-0.2%",
            Self::Delay => "delay-2ms",
            Self::PeerKilled => "peer-killed",
            Self::OursKilled => "ours-killed",
            Self::CableOut3 => "cable-out-3s",
            Self::CableOut10 => "cable-out-10s",
            Self::GuestPaused => "guest-paused-5s",
        }
    }

    /// Of the wire, both ways.
    pub(crate) fn hurt(self) -> Hurt {
        let faults = Faults { seed: SEED, ..Faults::default() };
        let hurt = Hurt { faults, delay: Duration::ZERO };
        match self {
            Self::Loss => Hurt { faults: Faults { loss: 0.01, ..faults }, ..hurt },
            Self::Reorder => Hurt { faults: Faults { reorder: 0.02, ..faults }, ..hurt },
            Self::Duplicate => Hurt { faults: Faults { duplicate: 0.01, ..faults }, ..hurt },
            Self::Corrupt => Hurt { faults: Faults { corrupt: 0.002, ..faults }, ..hurt },
            Self::Delay => Hurt { delay: Duration::from_millis(2), ..hurt },
            Self::Clean
            | Self::PeerKilled
            | Self::OursKilled
            | Self::CableOut3
            | Self::CableOut10
            | Self::GuestPaused => hurt,
        }
    }

    pub(crate) const fn strike(self) -> Option<Strike> {
        match self {
            Self::PeerKilled => Some(Strike::KillPeer),
            Self::OursKilled => Some(Strike::KillOurs),
            Self::CableOut3 => Some(Strike::PullCable(Duration::from_secs(3))),
            Self::CableOut10 => Some(Strike::PullCable(Duration::from_secs(10))),
            Self::GuestPaused => Some(Strike::PauseGuest(Duration::from_secs(5))),
            Self::Clean
            | Self::Loss
            | Self::Reorder
            | Self::Duplicate
            | Self::Corrupt
            | Self::Delay => None,
        }
    }
}

/// Of every fault.
const SEED: u64 = 14;
