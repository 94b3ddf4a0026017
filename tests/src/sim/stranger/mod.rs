//! A stranger: a host of the link that is nobody's peer, or a peer that wants nothing but to hold what it
//! is given. It speaks beside the honest peers of a world, which must lose next to nothing by it.
//!
//! | module | holds |
//! | --- | --- |
//! | `neighbours` | invented hosts that ask for ours |
//! | `requests` | connection requests in numbers, and those that are left half open |
//! | `peer`, `guest` | a connection with it: its own side, and what the consumer of ours makes for it |
//! | `packets` | packets of live connections: with what it knows of them, but for where they come from |
//!
//! It has a generator of its own and tells its frames apart, so that the same world can be had without it
//! ([`Strangers::Absent`]): the hosts are the same, and nobody speaks.

mod guest;
mod neighbours;
mod packets;
mod peer;
mod requests;

pub(super) use guest::{GUEST, GUEST_NAME, Guest};

use super::Deed;
use super::foreign::wire::{Packet, Route, frame, resolve};
use super::packet::{look, opcode};
use super::trial::Trial;
use super::watch::Name;
use super::world::{MS, Part, Step, World};
use packets::Forged;
use peer::Conn;
use rocev2::env::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a stranger does, with what it knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stranger {
    /// It knows addresses: invented hosts ask for ours, each from two places, 48 times a second: as often as a query lasts 3 s of 64.
    Asks,
    /// Up to 10,000 of them, 5,000 times a second.
    Throng,
    /// It knows addresses: five times as many connection requests as a host looks at.
    Requests,
    /// It has connection requests accepted, and leaves them so.
    HalfOpen,
    /// It is a peer: connections with path MTUs of 256, each with a gap that is never closed.
    Gaps,
    /// It is a peer that never has a receive, and asks again and again for what it has read.
    Unready,
    /// It is on the link and sees everything: it sends what a peer has not sent yet, copies with other bytes, ACKs, NAKs, gap
    /// reports and lists of ACKs.
    Forges,
    /// It knows QPNs: notifications of congestion.
    Notifies,
}

impl Stranger {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Asks,
        Self::Throng,
        Self::Requests,
        Self::HalfOpen,
        Self::Gaps,
        Self::Unready,
        Self::Forges,
        Self::Notifies,
    ];

    /// How many of 1000 worlds have it.
    const fn share(self) -> u32 {
        match self {
            Self::Asks => 60,
            Self::Throng | Self::Requests => 50,
            Self::HalfOpen | Self::Unready => 55,
            Self::Gaps => 70,
            Self::Notifies => 40,
            Self::Forges => 0,
        }
    }

    /// What is wrong with the world of a stranger beside it.
    pub(super) const fn trial(self) -> Option<Trial> {
        match self {
            // What a gap holds is missed where others have gaps.
            Self::Gaps => Some(Trial::Reordering),
            Self::Asks
            | Self::Throng
            | Self::Requests
            | Self::HalfOpen
            | Self::Unready
            | Self::Forges
            | Self::Notifies => None,
        }
    }

    /// How long it speaks before anybody else does, in ns.
    const fn lead(self) -> u64 {
        match self {
            Self::Asks => 2800 * MS,
            Self::Throng => 100 * MS,
            Self::Requests => 200 * MS,
            Self::HalfOpen | Self::Gaps | Self::Unready => 10 * MS,
            Self::Forges | Self::Notifies => 0,
        }
    }

    /// Between two times that it speaks, in ns.
    const fn pace(self) -> u64 {
        match self {
            Self::Asks => 1000 * MS / 48,
            Self::Throng | Self::Requests => 10 * MS,
            Self::HalfOpen => 50 * MS,
            Self::Gaps | Self::Unready => 5 * MS,
            Self::Forges | Self::Notifies => MS,
        }
    }

    /// Frames, at most.
    const fn most(self) -> u32 {
        match self {
            Self::Asks | Self::Throng => 2000,
            Self::Requests => 6000,
            Self::HalfOpen => 64,
            Self::Gaps => 4000,
            Self::Unready => 1000,
            Self::Forges => 400,
            Self::Notifies => 2000,
        }
    }
}

/// Which worlds have a stranger.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Strangers {
    /// The seed says it.
    #[default]
    Drawn,
    /// It is as if the stranger said nothing.
    Absent,
    /// Each world has this one.
    Only(Stranger),
    /// Each world is one for this stranger, which says nothing.
    Without(Stranger),
}

/// The stranger of a world.
pub(crate) struct Strange {
    pub(crate) kind: Stranger,
    rng: Rng,
    /// It says nothing at all.
    silent: bool,
    act_at: Option<u64>,
    sent: u32,
    /// Hosts that it invents.
    invented: u32,
    conns: Vec<Conn>,
    /// What it sent in the name of others, and no host has taken yet.
    forged: BTreeMap<Vec<u8>, Forged>,
    /// Whom it has answered, and about what.
    answered: BTreeSet<(Name, u64)>,
}

impl Strange {
    /// The stranger of a seed, if there is one.
    pub(crate) fn draw(rng: &mut Rng, strangers: Strangers) -> Option<Self> {
        let mut roll = rng.below(1000);
        let drawn = Stranger::ALL.into_iter().find(|kind| {
            let met = roll < kind.share();
            roll = roll.wrapping_sub(kind.share());
            met
        });
        let (kind, silent) = match strangers {
            Strangers::Drawn => (drawn?, false),
            Strangers::Absent => (drawn?, true),
            Strangers::Only(kind) => (kind, false),
            Strangers::Without(kind) => (kind, true),
        };
        let invented = match kind {
            Stranger::Asks => 96,
            _ => [64, 256, 1024, 10_000][rng.below(4) as usize],
        };
        let (conns, forged, answered) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let (rng, act_at, sent) = (rng.fork(), None, 0);
        Some(Self { kind, rng, silent, act_at, sent, invented, conns, forged, answered })
    }

    /// It says something.
    pub(crate) const fn speaks(&self) -> bool {
        !self.silent
    }

    /// How long it speaks before anybody else does, in ns.
    pub(crate) const fn lead(&self) -> u64 {
        self.kind.lead()
    }
}

/// The link-layer address of a stranger, and of the hosts that it invents.
const MAC: [u8; 6] = [2, 0x99, 0xff, 0xff, 0, 1];

const fn invented_mac(host: u32, place: u8) -> [u8; 6] {
    let [_, _, high, low] = host.to_be_bytes();
    [2, 0x99, high, low, 1, place]
}

/// The address of the stranger, beside those of the hosts, in the family of another.
fn own_ip(family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => Ipv4Addr::new(10, 0, 0, 99).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99).into(),
    }
}

fn invented_ip(family: IpAddr, host: u32) -> IpAddr {
    let [_, _, high, low] = host.to_be_bytes();
    match family {
        IpAddr::V4(_) => Ipv4Addr::new(10, 9, high, low).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 9, host as u16).into(),
    }
}

/// A management datagram.
fn datagram(payload: Vec<u8>) -> Packet {
    let ext = vec![0x80, 1, 0, 0, 0, 0, 0, 1];
    Packet { opcode: opcode::UD_SEND_ONLY, qpn: 1, ext, payload, ..Packet::default() }
}

impl World {
    /// Lets the hosts be such that little is enough to fill what the stranger of this world wants to fill.
    pub(crate) fn suit_stranger(&mut self) {
        let Some(kind) = self.stranger.as_ref().map(|strange| strange.kind) else { return };
        self.note(|_| format!("a stranger: {kind:?}"));
        self.report.stranger = Some(kind);
        match kind {
            Stranger::Gaps => self.suit_gaps(),
            Stranger::Requests => self.suit_requests(),
            Stranger::Asks
            | Stranger::Throng
            | Stranger::HalfOpen
            | Stranger::Unready
            | Stranger::Forges
            | Stranger::Notifies => {}
        }
        let now = self.now + 1;
        if let Some(strange) = self.stranger.as_mut().filter(|strange| !strange.silent) {
            strange.act_at = Some(now);
        }
    }

    /// Hosts do not look at all that they are told when they connect.
    pub(crate) fn is_crowded(&self) -> bool {
        self.stranger.as_ref().is_some_and(|strange| strange.kind == Stranger::Requests)
    }

    /// The stranger of this world is one that has gaps, or would be.
    pub(crate) fn has_gaps(&self) -> bool {
        self.stranger.as_ref().is_some_and(|strange| strange.kind == Stranger::Gaps)
    }

    /// Whether a connection of a host, or its end, may be the stranger's.
    pub(crate) fn has_guests(&self) -> bool {
        !self.guests.is_empty()
    }

    /// When the stranger speaks next.
    pub(crate) fn stranger_at(&self) -> Option<u64> {
        self.stranger.as_ref()?.act_at
    }

    /// The stranger speaks, if it is time for that.
    pub(crate) fn act_strange(&mut self) {
        let now = self.now;
        let Some(mut strange) = self.stranger.take() else { return };
        if strange.act_at.is_some_and(|at| at <= now) {
            strange.act_at = self.goes_on(&strange).then_some(now + strange.kind.pace());
            if strange.act_at.is_some() {
                match strange.kind {
                    Stranger::Asks => self.ask_around(&mut strange, 1),
                    Stranger::Throng => self.ask_around(&mut strange, 50),
                    Stranger::Requests => self.request_often(&mut strange),
                    Stranger::HalfOpen => self.request_half(&mut strange),
                    Stranger::Gaps | Stranger::Unready => self.hold(&mut strange),
                    Stranger::Forges => self.forge_some(&mut strange),
                    Stranger::Notifies => self.notify_some(&mut strange),
                }
            }
        }
        self.stranger = Some(strange);
    }

    /// It goes on as long as somebody works or connects.
    fn goes_on(&self, strange: &Strange) -> bool {
        let busy = self.part == Part::Chaos || self.ends.iter().any(|end| end.phase.connects());
        busy && strange.sent < strange.kind.most()
    }

    /// Hosts of ours that are up.
    fn victims(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|&host| self.hosts[host].provider.is_some()).collect()
    }

    /// A frame of the stranger arrives at a host after so long.
    fn say(&mut self, strange: &mut Strange, to: usize, after: u64, frame: Vec<u8>) {
        strange.sent += 1;
        self.did(Deed::Strange);
        self.net.inject(self.now + 1 + after, to, frame);
    }

    /// A packet from the stranger's own address.
    fn say_packet(&mut self, strange: &mut Strange, to: usize, after: u64, packet: &Packet) {
        let ip = self.hosts[to].ips[0];
        let route = Route { macs: [MAC, self.net.nic(to)], ips: [own_ip(ip), ip] };
        self.say(strange, to, after, frame(&route, packet));
    }

    /// A host has taken a frame; true: it was forged by the stranger, and nobody may learn from it.
    pub(crate) fn was_forged(&mut self, frame: &[u8]) -> bool {
        self.stranger.as_mut().is_some_and(|strange| strange.forged.remove(frame).is_some())
    }

    /// A host has sent a frame; true: a packet of a connection of the stranger.
    ///
    /// # Errors
    /// What it must not be sent.
    pub(crate) fn told_stranger(&mut self, host: usize, frame: &[u8]) -> Step<bool> {
        let heard = frame[..6] == MAC || frame[0] & 1 != 0;
        let Some(mut strange) = self.stranger.take_if(|strange| heard && !strange.silent) else {
            return Ok(false);
        };
        let ip = own_ip(self.hosts[host].ips[0]);
        let mut data = false;
        if let Some(answer) = resolve(frame, MAC, ip) {
            self.say(&mut strange, host, 10_000, answer);
        } else if let Some(seen) = look(frame).filter(|_| frame[..6] == MAC) {
            let seen = seen.map_err(|what| format!("a packet with a bad {what}"))?;
            data = seen.opcode != opcode::UD_SEND_ONLY;
            self.hear_at(&mut strange, host, &seen);
        }
        self.stranger = Some(strange);
        Ok(data)
    }
}
