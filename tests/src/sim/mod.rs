//! The deterministic simulator: providers stepped by hand, a network that fails, consumers that
//! know what must come of it. Everything follows from one seed.
//!
//! | module | holds |
//! | --- | --- |
//! | `world` | hosts, and how they start |
//! | `run` | the parts of a run, virtual time |
//! | `script` | what goes wrong, and when |
//! | `end` | one end of a connection: its objects, made and closed |
//! | `cores` | turns of the cores of a host, and which of them gets a frame |
//! | `trial` | one thing that goes wrong at a chosen moment |
//! | `consumer` | what it asks for to be connected, and what it is told |
//! | `flow`, `workload` | what an established end posts |
//! | `grant` | memory that a peer may reach for a while: fast registration, windows |
//! | `pool` | what the ends of a host share: a receive queue, an endpoint |
//! | `outcome` | how each request must end |
//! | `liveness` | how long anything may take |
//! | `lossless` | what never happens where nothing is lost |
//! | `meter` | what the provider allocates |
//! | `memory` | registered buffers and what they must hold |
//! | `foreign` | a peer that is not ours |
//! | `forge` | a third party that speaks in the name of others |
//! | `stranger` | a host of the link that holds and floods |
//! | `ways` | addresses that go away, NICs that are replaced |
//! | `net` | the network: what it loses, repeats, delays, damages; its links and ports |
//! | `edge` | how frames get in and out of a provider, several at once, or not at all |
//! | `watch`, `judge`, `packet` | the wire rules, by an observer that shares no code with the provider |
//!
//! The dispatch tables are reached by the numbered grip, `kit::numbered`.
//!
//! A run goes through chaos, healing (no faults: all that is outstanding must end in bounded
//! virtual time), teardown (everything is closed in random order) and silence (no object and no
//! timer is left). The first thing that is wrong ends it.

mod consumer;
mod cores;
mod edge;
mod end;
mod flow;
mod foreign;
mod forge;
mod grant;
mod judge;
mod liveness;
mod lossless;
mod memory;
pub(crate) mod meter;
mod net;
mod outcome;
mod packet;
mod pool;
mod run;
mod script;
mod stranger;
mod trial;
mod watch;
mod ways;
mod workload;
mod world;

pub use stranger::{Stranger, Strangers};
pub use trial::{Moment, Outcome, Trial, Work};

use crate::kit::numbered;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// What to keep of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Print what happens.
    pub trace: bool,
    /// Capture each host's frames into this directory.
    pub pcap: Option<PathBuf>,
    /// What goes wrong, in place of what the seed says.
    pub trial: Option<Trial>,
    /// Which worlds have a stranger.
    pub strangers: Strangers,
}

/// What a seed may do, beyond what every seed does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "one comment for those that belong together")]
pub enum Deed {
    /// A SEND or WRITE with inline data has succeeded.
    Inline,
    /// A shared receive has succeeded.
    SharedReceive,
    /// Shared receives ran low.
    Low,
    /// A connection from a shared endpoint was established.
    SharedEndpoint,
    /// A connection of a host with itself was established.
    Loopback,
    /// An access to what may not be accessed was refused.
    Refused,
    /// A fast-register region was mapped.
    FastRegister,
    /// A window was bound.
    Bind,
    /// Either was invalidated by its owner.
    Invalidate,
    /// By a SEND of the peer.
    PeerInvalidates,
    /// By a READ into it.
    ReadInvalidates,
    /// By its owner, under a request of the peer.
    EndUnderWay,
    /// A connection with a foreign peer that we asked for was established.
    ForeignPassive,
    /// One that it asked for.
    ForeignActive,
    /// A foreign peer refused a gap, once.
    Gap,
    /// It dropped what came early.
    Dropped,
    /// It went back.
    WentBack,
    /// It answered a duplicate READ, with FIRST or ONLY.
    Again,
    /// With MIDDLE or LAST.
    Middle,
    /// It ended the connection over a duplicate READ of a dead key.
    Strict,
    /// Over a duplicate READ behind a request for nothing.
    NoRegion,
    /// It had no receive, and asked for 655 ms.
    LongPause,
    /// For another time.
    Pause,
    /// Its RNR retries ran out.
    RnrSpent,
    /// It sent one ACK for several requests for one.
    Coalesced,
    /// It sent an immediate.
    Immediate,
    /// It asked for time while it connected.
    Mra,
    /// It answered no DREQ.
    Deaf,
    /// The PSNs, or the MSN, of a flow have wrapped.
    PsnWrap,
    MsnWrap,
    /// A packet was marked by a port that fills up; a sender was notified; a full port has dropped one.
    Marked,
    Notified,
    FullPort,
    /// A frame was lost in a burst.
    BurstLoss,
    /// Several frames were received as one unit.
    Joined,
    /// An edge has failed, or was full for long.
    ReceiveFails,
    SendFails,
    NoRoom,
    /// A link has changed its speed.
    NewSpeed,
    /// A connection was established between clocks of which one gains, from or to another address than
    /// the first, from or to one of the other family.
    Drift,
    OtherAddress,
    OtherFamily,
    /// A connection with a path MTU of 256.
    SmallMtu,
    /// A message of a MiB and more has arrived.
    Long,
    /// Management datagrams of ours that were judged, by kind, and those that were sent again.
    JudgedReq,
    JudgedMra,
    JudgedRej,
    JudgedRep,
    JudgedRtu,
    JudgedDreq,
    JudgedDrep,
    JudgedSidrRep,
    JudgedAgain,
    /// What a third party forged: packets of a connection, management datagrams, among them REQs for
    /// a new connection and for the QP of a live one.
    ForgedPacket,
    ForgedMessage,
    ForgedReq,
    ForgedRestart,
    /// A seed in which a connection with a foreign peer was established.
    ForeignSeed,
    /// The way of a connection has changed: a host got another NIC, lost an address with connections
    /// and has it again; an announcement of another host that has a peer's address.
    NewNic,
    AddressLost,
    AddressBack,
    Claimed,
    /// A connection was established from or to another core than the first, from or to a host whose NIC does not know the
    /// cores of queue pairs, and with a CQ on another core than its queue pair.
    OtherCore,
    Hashed,
    Abroad,
    /// A frame found no room on its way to its core.
    Unpassed,
    /// A world with a stranger; frames of strangers, connections with them, early packets of a gap that stays, READs that are
    /// asked for again and again, SENDs that find no receive, packets in the name of a peer, notifications.
    StrangeSeed,
    Strange,
    StrangePeer,
    StrangeGap,
    StrangeRead,
    StrangeRnr,
    StrangePacket,
    StrangeCnp,
    /// A world in which nothing is lost or late, and nothing was sent twice.
    Lossless,
}

impl Deed {
    /// All of them.
    pub const ALL: [Self; 75] = [
        Self::Inline,
        Self::SharedReceive,
        Self::Low,
        Self::SharedEndpoint,
        Self::Loopback,
        Self::Refused,
        Self::FastRegister,
        Self::Bind,
        Self::Invalidate,
        Self::PeerInvalidates,
        Self::ReadInvalidates,
        Self::EndUnderWay,
        Self::ForeignPassive,
        Self::ForeignActive,
        Self::Gap,
        Self::Dropped,
        Self::WentBack,
        Self::Again,
        Self::Middle,
        Self::Strict,
        Self::NoRegion,
        Self::LongPause,
        Self::Pause,
        Self::RnrSpent,
        Self::Coalesced,
        Self::Immediate,
        Self::Mra,
        Self::Deaf,
        Self::PsnWrap,
        Self::MsnWrap,
        Self::Marked,
        Self::Notified,
        Self::FullPort,
        Self::BurstLoss,
        Self::Joined,
        Self::ReceiveFails,
        Self::SendFails,
        Self::NoRoom,
        Self::NewSpeed,
        Self::Drift,
        Self::OtherAddress,
        Self::OtherFamily,
        Self::SmallMtu,
        Self::Long,
        Self::JudgedReq,
        Self::JudgedMra,
        Self::JudgedRej,
        Self::JudgedRep,
        Self::JudgedRtu,
        Self::JudgedDreq,
        Self::JudgedDrep,
        Self::JudgedSidrRep,
        Self::JudgedAgain,
        Self::ForgedPacket,
        Self::ForgedMessage,
        Self::ForgedReq,
        Self::ForgedRestart,
        Self::ForeignSeed,
        Self::NewNic,
        Self::AddressLost,
        Self::AddressBack,
        Self::Claimed,
        Self::OtherCore,
        Self::Hashed,
        Self::Abroad,
        Self::Unpassed,
        Self::StrangeSeed,
        Self::Strange,
        Self::StrangePeer,
        Self::StrangeGap,
        Self::StrangeRead,
        Self::StrangeRnr,
        Self::StrangePacket,
        Self::StrangeCnp,
        Self::Lossless,
    ];
}

/// A number for each [`Deed`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deeds([u64; Deed::ALL.len()]);

impl Default for Deeds {
    fn default() -> Self {
        Self([0; Deed::ALL.len()])
    }
}

impl Deref for Deeds {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Deeds {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

/// What honest peers came to, by which a stranger is measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Honest {
    /// Connects that have ended, but for those that a consumer ended.
    pub asked: u64,
    /// Those of them that were answered.
    pub answered: u64,
    /// Those that were answered before a REQ is sent again.
    pub quick: u64,
    /// Requests that had succeeded when the network healed.
    pub done: u64,
    /// Packets that came early until then, where a stranger has gaps.
    pub early: u64,
    /// Those of them that were kept.
    pub kept: u64,
}

/// What a run was.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Of every frame and completion, with their times.
    pub hash: u64,
    /// Turns of all providers.
    pub turns: u64,
    /// Frames sent.
    pub frames: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Completions read.
    pub completions: u64,
    /// Those of them that were successful.
    pub successes: u64,
    /// How often each [`Deed`] was done.
    pub deeds: Deeds,
    /// Turns with nothing but data, in which the provider allocates nothing.
    pub quiet: u64,
    /// Request packets: sent for the first time, and in all.
    pub requests: [u64; 2],
    /// The longest that anybody waited once nothing failed any more, in thousandths of what policy
    /// allows.
    pub waited: u64,
    /// The stranger of the world, whether it speaks or not.
    pub stranger: Option<Stranger>,
    /// What honest peers came to.
    pub honest: Honest,
    /// What came of [`Options::trial`].
    pub trial: Outcome,
    /// Virtual time, in ns.
    pub elapsed: u64,
}

/// Simulates a seed.
///
/// # Errors
/// The first violation.
pub fn run(seed: u64, options: &Options) -> Result<Report, String> {
    let run = AssertUnwindSafe(|| {
        numbered::clear_events();
        let result = world::World::new(seed, options).and_then(world::World::run);
        numbered::clear_events();
        result
    });
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of a panic");
        Err(format!("panic: {text}"))
    })
}
