//! What an end is given to do, and what it keeps of each request until it has ended.

use super::end::LOCAL;
use super::memory::Place;
use crate::kit::raw::Post;
use driver::abi::*;
use ndk_consumer::Remote;
use rocev2::env::Rng;
use std::collections::BTreeMap;

/// How an end works, and how far it is.
pub(crate) struct Flow {
    pub(crate) slot_len: usize,
    /// Slots of its own memory, and of what the peer may reach.
    pub(crate) slots: [usize; 2],
    /// Its messages are of any length up to a slot: few of up to 16 MiB, or a stream of many.
    pub(crate) bulk: bool,
    /// Bytes of inline data, at most.
    pub(crate) inline_len: usize,
    /// Receives and requests.
    pub(crate) depths: [u32; 2],
    pub(crate) cq_depths: [u32; 2],
    /// Its CQs are smaller than what they must hold.
    pub(crate) tiny_cq: bool,
    /// READs.
    pub(crate) inbound: u32,
    pub(crate) outbound: u32,
    /// Between two turns of its consumer, at most, in ns.
    pub(crate) pace: u64,
    /// It looks at its CQs only when it is notified.
    pub(crate) notified: bool,
    pub(crate) silent: u32,
    pub(crate) defer: u32,
    pub(crate) careless: bool,
    /// It is so with keys that are mapped and ended, and with nothing else.
    pub(crate) careless_keys: bool,
    /// Requests that it still posts.
    pub(crate) budget: u32,
    pub(crate) batch: u32,
    /// While it heals: since when nothing has happened.
    pub(crate) patience: u64,
    /// Its last request was posted.
    pub(crate) finished: bool,
    /// It has posted one to find out whether the peer is still there.
    pub(crate) asked: bool,
    pub(crate) deferred: bool,
    /// The payloads of its SENDs, in order.
    pub(crate) sends: Vec<Vec<u8>>,
    /// SENDs that the peer must have received.
    pub(crate) acked: usize,
    /// By the numbers of SENDs: what the peer knows with them to be mapped, and until when; what they
    /// end of the peer.
    pub(crate) announced: BTreeMap<usize, (usize, usize)>,
    pub(crate) ended: BTreeMap<usize, (usize, usize)>,
    /// SENDs of the peer that it has received.
    pub(crate) delivered: usize,
    pub(crate) next_id: usize,
    pub(crate) failed: [bool; 2],
}

impl Flow {
    /// A random one.
    pub(crate) fn new(rng: &mut Rng, misuse: bool) -> Self {
        let careless = rng.below(3);
        let depths = [1 << rng.below(5), 1 << rng.below(6)];
        let tiny_cq = misuse && rng.below(10) == 0;
        Self {
            slot_len: 64 << rng.below(9),
            slots: [6, 4],
            bulk: false,
            inline_len: [0, 1, 64, 256][rng.below(4) as usize],
            depths,
            cq_depths: [0; 2],
            tiny_cq,
            inbound: 1 + rng.below(34),
            outbound: 1 + rng.below(34),
            pace: [5_000, 50_000, 2_000_000][rng.below(3) as usize],
            notified: rng.below(3) > 0,
            silent: [0, 3, 8][rng.below(3) as usize],
            defer: [0, 3, 8][rng.below(3) as usize],
            careless: misuse && careless == 0,
            careless_keys: misuse && careless == 1,
            budget: 1 + rng.below(400),
            batch: 1 + rng.below(8),
            patience: 100_000,
            finished: false,
            asked: false,
            deferred: false,
            sends: Vec::new(),
            acked: 0,
            announced: BTreeMap::new(),
            ended: BTreeMap::new(),
            delivered: 0,
            next_id: 0,
            failed: [false; 2],
        }
    }

    /// It is on a foreign host, whose consumer makes no mistakes and looks without being told.
    pub(crate) const fn be_foreign(&mut self) {
        (self.tiny_cq, self.careless, self.careless_keys) = (false, false, false);
        (self.notified, self.inline_len, self.defer) = (false, 0, 0);
    }

    /// It has much to do.
    pub(crate) const fn hurry(&mut self) {
        (self.pace, self.notified, self.budget) = (20_000, false, 1000);
        if self.depths[1] < 8 {
            self.depths[1] = 8;
        }
        if self.depths[0] < 8 {
            self.depths[0] = 8;
        }
        self.tiny_cq = false;
    }

    /// Now and then much data.
    pub(crate) fn draw_bulk(&mut self, rng: &mut Rng) {
        match rng.below(300) {
            0..2 => {
                (self.bulk, self.slots, self.slot_len) = (true, [2, 2], 256 << (10 + rng.below(7)));
                self.depths = [1 << rng.below(2), 1 << rng.below(3)];
                self.budget = 1 + rng.below(6);
            }
            2..62 => {
                (self.bulk, self.slots, self.slot_len) = (true, [8, 8], 16 << (10 + rng.below(3)));
                self.depths = [8, 8];
                (self.budget, self.pace, self.batch) = (10 + rng.below(60), 5_000, 8);
            }
            _ => {}
        }
    }

    /// As much as the peer moves.
    pub(crate) fn follow(&mut self, peer: &Self) {
        if peer.bulk {
            let Self { slots, slot_len, depths, budget, pace, batch, .. } = *peer;
            (self.bulk, self.slots, self.slot_len) = (true, slots, slot_len);
            (self.depths, self.budget, self.pace, self.batch) = (depths, budget, pace, batch);
        }
    }

    /// Of CQs that hold everything.
    pub(crate) const fn fit_cqs(&mut self) {
        let [receives, requests] = self.depths;
        // A request that has ended makes room for another before its completion is read.
        let spare = if self.tiny_cq { 0 } else { 2 * (receives + requests) };
        self.cq_depths = [1 + spare; 2];
    }

    /// Its receives come from a pool, of which it may be given this many before it reads of any.
    pub(crate) const fn use_pool(&mut self, slots: usize) {
        self.tiny_cq = false;
        self.depths[RECEIVES] = 1;
        self.cq_depths = [1 + slots as u32, 1 + 2 * (1 + self.depths[REQUESTS])];
    }
}

/// Bytes that a trace does not show.
#[derive(Clone)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// The number of the SEND.
    Send(usize),
    /// Region and piece of the peer's memory, and what it will hold.
    Write(usize, Place, Bytes),
    /// Region and piece of the peer's memory, what it holds, and whether a SEND of the same bytes
    /// follows.
    Read(usize, Place, Bytes, bool),
    /// What must be refused.
    Refused(NDK_OPERATION_TYPE),
    /// A grant is mapped or bound, for the time of this number.
    Map(usize, usize),
    /// A grant ends, of this time.
    End(usize, usize),
}

/// An initiator request that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Initiator {
    pub(crate) id: usize,
    pub(crate) kind: Kind,
    pub(crate) silent: bool,
    /// Its data was inline.
    pub(crate) inline: bool,
    /// Its own memory: region and place.
    pub(crate) region: usize,
    pub(crate) place: Place,
    /// The grant that ends with it.
    pub(crate) ends: Option<(usize, usize)>,
}

impl Initiator {
    /// A request without data of its own.
    pub(crate) const fn new(id: usize, kind: Kind, flags: u32) -> Self {
        let (silent, inline) = (is_silent(flags), flags & NDK_OP_FLAG_INLINE != 0);
        Self { id, kind, silent, inline, region: LOCAL, place: NOWHERE, ends: None }
    }
}

/// A request with data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    Send,
    SendInvalidate(u32),
    Write(Remote),
    Read(Remote),
}

impl Data {
    pub(crate) const fn over(self, sgl: &[NDK_SGE]) -> Post<'_> {
        match self {
            Self::Send => Post::Send(sgl),
            Self::SendInvalidate(token) => Post::SendAndInvalidate(sgl, token),
            Self::Write(remote) => Post::Write(sgl, remote),
            Self::Read(remote) => Post::Read(sgl, remote),
        }
    }
}

/// No place of any region.
pub(crate) const NOWHERE: Place = Place { slot: usize::MAX, range: 0..0 };

/// A receive that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) id: usize,
    pub(crate) place: Place,
}

pub(crate) const RECEIVES: usize = 0;
pub(crate) const REQUESTS: usize = 1;

const fn is_silent(flags: u32) -> bool {
    flags & NDK_OP_FLAG_SILENT_SUCCESS != 0
}
