//! What a program is: the two ends of one kind of work, and how it ends whatever strikes it.

use tests::lab::Side;

use crate::event::Event;
use crate::spread::{Family, Kernel};

/// The two ends of one kind of work.
///
/// In its command lines `{ours}` and `{guest}` are the addresses of the two ends, `{count}` is how much there is to do.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) kernels: &'static [Kernel],
    pub(crate) families: &'static [Family],
    pub(crate) cpus: u8,
    /// The end that listens; it is started first.
    pub(crate) listens: Side,
    pub(crate) guest: GuestEnd,
    pub(crate) ours: OurEnd,
    /// `{count}` where no strike comes, and where one has to meet it at work.
    pub(crate) counts: [u32; 2],
    /// KiB that have passed when both ends are in the middle of their work.
    pub(crate) at_work_kib: u64,
    /// Kinds of packets that have to be in the capture of its work, as `judge.py icrc` calls them.
    pub(crate) packets: &'static [&'static str],
    /// The strikes that it is tried under, each with what it leads to.
    pub(crate) endings: &'static [(Event, Ending)],
}

/// The guest's end.
#[derive(Debug)]
pub(crate) struct GuestEnd {
    /// Scripts around the cell's work.
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
    /// The command line; `None` where `before` has started all that there is, in the kernel.
    pub(crate) command: Option<&'static str>,
    /// The process that "peer killed" ends; without one it ends the guest.
    pub(crate) process: Option<&'static str>,
    /// Its kernel serves SMB by RDMA.
    pub(crate) smb_direct: bool,
}

/// Our end, a program of this workspace.
#[derive(Debug)]
pub(crate) struct OurEnd {
    pub(crate) package: &'static str,
    /// `bin` or `example`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static str,
    /// It says this when it listens.
    pub(crate) ready: &'static str,
    /// It serves for ever, and is ended by the cell.
    pub(crate) stays: bool,
    /// The file of the guest's `/lab` that it reads and prints.
    pub(crate) prints: Option<&'static str>,
}

/// What a strike leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) ours: Fate,
    pub(crate) guest: Fate,
    /// Both fates are known after so many seconds at most. Waiting ends then.
    pub(crate) seconds: u64,
}

/// What becomes of an end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It does all of its work, as if nothing had happened; where it connects, it may have connected anew.
    Finishes,
    /// It ends with another status than 0, and says one of these.
    Fails(&'static [&'static str]),
    /// The strike has ended it.
    Struck,
    /// It waits for an answer that never comes, until the cell ends it.
    Waits,
}

impl Ending {
    /// Nobody notices but by the clock.
    pub(crate) const UNHARMED: Self =
        Self { ours: Fate::Finishes, guest: Fate::Finishes, seconds: 60 };
}

impl Program {
    /// All that it is tried under.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> {
        Event::FAULTS.into_iter().chain(self.endings.iter().map(|(event, _)| *event))
    }

    pub(crate) fn ending(&self, event: Event) -> Ending {
        let found = self.endings.iter().find(|(struck, _)| *struck == event);
        found.map_or(Ending::UNHARMED, |(_, ending)| *ending)
    }
}
