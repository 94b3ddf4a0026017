//! Trials: runs in which one thing goes wrong, at a moment that is chosen and not drawn.

use super::end::{End, Phase};
use super::net::Faults;
use super::script::Act;
use super::world::{MS, Part, Step, World, require};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trial {
    /// From the middle of the work on nothing gets through, for ever.
    Partition,
    /// A host goes down and comes back when a connection of it is so far.
    Restart(Moment),
    /// The link of a host is down for a second, in the middle of this work.
    LinkDown(Work),
    /// Frames are late, and none is lost.
    Reordering,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names of the states")]
pub enum Moment {
    Connecting,
    Requested,
    Offered,
    Accepting,
    Completing,
    Idle,
    Busy,
    Disconnecting,
    Closing,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Connecting,
        Self::Requested,
        Self::Offered,
        Self::Accepting,
        Self::Completing,
        Self::Idle,
        Self::Busy,
        Self::Disconnecting,
        Self::Closing,
    ];
}

/// What is posted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names of the requests")]
pub enum Work {
    Send,
    Write,
    Read,
    /// What maps, binds and ends keys, and uses them.
    Keys,
    All,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Send, Self::Write, Self::Read, Self::Keys, Self::All];

    /// Which requests, of the twelfths that [`World::post_one`] knows.
    pub(crate) const fn rolls(self) -> std::ops::Range<u32> {
        match self {
            Self::Send => 0..4,
            Self::Write => 4..7,
            Self::Read => 7..10,
            Self::Keys => 4..12,
            Self::All => 0..12,
        }
    }
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// It went wrong at this time, in ns.
    pub began: Option<u64>,
    /// Requests were under way then.
    pub outstanding: u64,
    /// What was under way had ended after this, in ns.
    pub took: u64,
    /// Ends of connections that were established on the host that came back.
    pub connections: u64,
}

impl Trial {
    /// The network: nothing else goes wrong.
    pub(crate) fn faults(self, faults: &Faults) -> Faults {
        match self {
            Self::Reordering => Faults { reorder: 300, ..faults.healed() }.within(faults.window),
            Self::Partition | Self::Restart(_) | Self::LinkDown(_) => faults.healed(),
        }
    }

    /// Connections fail.
    pub(crate) const fn breaks(self) -> bool {
        matches!(self, Self::Partition | Self::Restart(_))
    }
}

impl World {
    /// Makes the trial's mishap happen, if it is time for it.
    pub(crate) fn try_trial(&mut self) -> Step {
        let Some(trial) = self.trial.filter(|_| self.part == Part::Chaos) else { return Ok(()) };
        if self.report.trial.began.is_some() {
            return Ok(());
        }
        let now = self.now;
        match trial {
            Trial::Reordering => return Ok(()),
            Trial::Partition if self.is_at_work() => {
                self.net.part_for_ever();
                self.chaos_ends = now + 50 * MS;
            }
            Trial::LinkDown(_) if self.is_at_work() => {
                let host = self.rng.below(self.hosts.len() as u32) as usize;
                self.schedule(now, Act::Link(host, true));
                self.schedule(now + 1000 * MS, Act::Link(host, false));
                self.chaos_ends = now + 1100 * MS;
            }
            Trial::Restart(moment) => {
                let Some(end) = (0..self.ends.len()).find(|&end| self.is_at(end, moment)) else {
                    return Ok(());
                };
                match moment {
                    Moment::Disconnecting => self.disconnect(end)?,
                    Moment::Closing => self.begin_close(end)?,
                    _ => {}
                }
                let far = self.ends[end].peer.map(|peer| self.ends[peer].host);
                let far = far.or(self.ends[end].to).unwrap_or(self.ends[end].host);
                let host = if self.rng.below(2) == 0 { far } else { self.ends[end].host };
                let back = now + MS * u64::from(1 + self.rng.below(500));
                self.schedule(now, Act::Crash(host));
                self.schedule(back, Act::Restart(host));
                let other = (host + 1) % self.hosts.len();
                (1..4)
                    .for_each(|after| self.schedule(back + after * MS, Act::Connect(other, host)));
                self.chaos_ends = back + 100 * MS;
            }
            Trial::Partition | Trial::LinkDown(_) => return Ok(()),
        }
        let posted = self.ends.iter().map(|end| end.initiator.len() as u64).sum();
        self.report.trial.began = Some(now);
        self.report.trial.outstanding = posted;
        Ok(())
    }

    /// Requests of several connections have ended, and more are under way on the network.
    fn is_at_work(&self) -> bool {
        let busy = |end: &End| {
            end.phase == Phase::Up && !end.initiator.is_empty() && !self.is_loopback(end)
        };
        self.report.successes > self.trial_after && self.ends.iter().any(busy)
    }

    fn is_loopback(&self, end: &End) -> bool {
        end.peer.is_some_and(|peer| self.ends[peer].host == end.host)
    }

    fn is_at(&self, end: usize, moment: Moment) -> bool {
        let this = &self.ends[end];
        let served = this.flow.acked > 0;
        match moment {
            Moment::Connecting => this.phase == Phase::Connecting,
            Moment::Requested => this.phase == Phase::Requested,
            Moment::Offered => this.phase == Phase::Offered,
            Moment::Accepting => this.phase == Phase::Accepting,
            Moment::Completing => this.phase == Phase::Completing,
            Moment::Idle => this.phase == Phase::Up && this.initiator.is_empty() && served,
            Moment::Busy => this.phase == Phase::Up && !this.initiator.is_empty() && served,
            Moment::Disconnecting | Moment::Closing => this.phase == Phase::Up && served,
        }
    }

    /// Everything has settled: who is still connected has a reason.
    pub(crate) fn check_trial(&mut self) -> Step {
        let Some(began) = self.report.trial.began else { return Ok(()) };
        let outcome = &mut self.report.trial;
        outcome.took = self.now - began;
        if !self.trial.is_some_and(Trial::breaks) {
            return Ok(());
        }
        for (at, end) in self.ends.iter().enumerate() {
            let told = end.phase != Phase::Up || end.flow.failed.contains(&true);
            let gone = end.peer.is_some_and(|peer| match self.trial {
                Some(Trial::Partition) => self.ends[peer].host != end.host,
                _ => self.ends[peer].phase == Phase::Crashed,
            });
            require!(told || !gone, "end {at} does not know that its peer is gone");
        }
        Ok(())
    }
}
