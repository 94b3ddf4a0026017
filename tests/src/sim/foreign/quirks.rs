//! What a foreign peer does that ours does not, and that a peer may do.

use super::super::world::MS;
use rocev2::env::Rng;

/// How a foreign peer behaves. The first ones are those of Linux' `rdma_rxe`, the others are of
/// hardware, or merely allowed.
#[derive(Clone, Debug)]
pub(crate) struct Quirks {
    /// A duplicate READ is checked anew: if its key has ended meanwhile, the connection ends with
    /// it.
    pub(super) strict_keys: bool,
    /// It keeps the length of the last request that named memory. Where that was none, it finds no region
    /// for a READ that is asked for again from its start, and the connection ends with it.
    pub(super) keeps_length: bool,
    /// The part of a READ that is asked for again is answered with MIDDLE and LAST.
    pub(super) middle: bool,
    /// Of a READ that was asked for again from a place on, nothing before that place is answered.
    pub(super) narrow: bool,
    /// The ACK of a duplicate names the last SEND or WRITE, whatever READs came after it.
    pub(super) stale_ack: bool,
    /// Timer code of RNR NAK; 0 is 655 ms.
    pub(super) rnr_code: u8,
    /// RNR retries that it grants its peer, and those that it has itself; 7: without end.
    pub(super) rnr_retry: [u8; 2],
    /// Transport retries that it has, and grants its peer; 7: it never gives up itself.
    pub(super) retry_count: u8,
    /// Local ACK timeout code, for its peer.
    pub(super) timeout_code: u8,
    /// PSNs that it has outstanding.
    pub(super) window: u64,
    /// What it waits before it goes back, in ns.
    pub(super) resend: u64,
    /// An ACK is sent for so many requests for one, or after so long, in ns.
    pub(super) ack_every: u32,
    pub(super) ack_delay: u64,
    /// The longest that it takes for what it has received, in ns.
    pub(in crate::sim) slow: u64,
    /// It asks for an ACK only where it has nothing more to send.
    pub(super) rare_ack_req: bool,
    /// Its SENDs carry an immediate.
    pub(super) immediate: bool,
    /// Credits in its ACKs are anything.
    pub(super) credits: bool,
    /// It asks for time before anybody has waited for it.
    pub(super) eager_mra: bool,
    /// Between two sendings of a management datagram, in ns.
    pub(super) cm_resend: u64,
    /// How often it sends DREQ; 0: it leaves without a word, and is deaf to its peer's.
    pub(super) dreqs: u32,
}

impl Quirks {
    /// It answers no DREQ of a connection that it has left.
    pub(crate) const fn is_deaf(&self) -> bool {
        self.dreqs == 0
    }

    /// It goes on connecting for 8 s at least.
    pub(crate) fn be_persistent(&mut self) {
        self.cm_resend = self.cm_resend.max(500 * MS);
    }

    /// A window of its packets leaves before it goes back: who goes back sooner only adds to what waits.
    pub(crate) fn suit(&mut self, rate: u64) {
        let window = self.window * 4500;
        self.resend = self.resend.max(2 * window * 1_000_000_000 / rate);
    }

    /// It serves storage, and has what it needs for that.
    pub(crate) const fn be_quick(&mut self) {
        (self.slow, self.resend, self.rnr_code, self.rnr_retry) = (0, 20 * MS, 12, [7; 2]);
    }

    /// Those of a seed. Where nothing may fail that no consumer made fail, they make nothing fail
    /// but what the peer is told of.
    pub(crate) fn draw(rng: &mut Rng, patient: bool) -> Self {
        let mut one_in = |n: u32| rng.below(n) == 0;
        let rxe = one_in(2);
        let or = |other: bool| rxe || other;
        let [a, b, c, d] = [0; 4].map(|_: u32| one_in(2));
        let (strict_keys, middle) = (or(a), or(b));
        let (narrow, stale_ack) = (or(c), or(d));
        let finite = rng.below(4) == 0;
        let tries = [rng.below(7) as u8, rng.below(7) as u8];
        let lazy = rng.below(3);
        let drawn = Self {
            strict_keys,
            keeps_length: rxe,
            middle,
            narrow,
            stale_ack,
            rnr_code: if rng.below(4) == 0 { 0 } else { 8 + rng.below(10) as u8 },
            rnr_retry: if finite { tries } else { [7; 2] },
            retry_count: if patient { 7 } else { rng.below(8) as u8 },
            timeout_code: if patient { 17 } else { 10 + rng.below(5) as u8 },
            window: if rxe { 128 } else { 1 << (2 + rng.below(8)) },
            resend: MS * [1, 20, 537][rng.below(3) as usize],
            ack_every: if lazy == 0 { 1 + rng.below(16) } else { 1 },
            ack_delay: if lazy == 0 { u64::from(rng.below(2000)) * 1000 } else { 0 },
            slow: [0, 0, 100_000, 5 * MS][rng.below(4) as usize],
            rare_ack_req: rng.below(3) == 0,
            immediate: rng.below(3) == 0,
            credits: rng.below(3) == 0,
            eager_mra: rng.below(4) == 0,
            cm_resend: MS * [50, 500, 4608][rng.below(3) as usize],
            dreqs: [0, 1, 15, 15][rng.below(4) as usize],
        };
        // It waits longer than it takes to look at an answer, behind all frames that it has room for: 4,096, by 32
        // at a time, between which it stands still for half of `slow` on average.
        Self { resend: drawn.resend.max(64 * drawn.slow), ..drawn }
    }
}
