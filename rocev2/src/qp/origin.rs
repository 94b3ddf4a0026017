//! The headers by which a queue pair tells the packets of its peer from those that others forge.
//!
//! Most packets have many numbers that the queue pair would act upon: early requests those of the reorder window, answers those
//! of all that is in flight. A forger of addresses and QPN alone hits one of them soon. So such a packet has to come as the
//! peer's last good packets came: its [`Origin`], which nobody knows who is not on the path, has to be theirs. The idea is RFC
//! 5961's (TCP): what is exactly expected is believed, and for the rest the peer is asked.
//!
//! A packet of another origin is believed, and shows the peer's new one, only where its number is the one that can
//! come next:
//!
//! * the expected request, unless it would end the connection;
//! * the READ response at the oldest PSN in flight, and the ACK of just that packet;
//! * while a probe has no answer, and so the origin known was silent: the ACK of everything that was sent, of nothing, or
//!   one that says the same as another to an earlier probe.
//!
//! A duplicate request that comes again from elsewhere after a while without others is answered, but teaches nothing: the peer's path may
//! have changed with the answer under way.
//!
//! All else is dropped and counted. The cost to a peer whose path changes is a probe's time: it answers the probe. A peer
//! that was known and still sends answers the probe, too, and no forger sees one.
//!
//! Paths that change again and again and NICs that take another port for each packet teach that a field varies: it is
//! not asked for any more.
//!
//! Before the first packet of a connection the origin is that of the peer's REQ or REP, which has another UDP port; the port of a peer of
//! our make is known.
//!
//! The short ways need not ask: their [`Flow`](crate::wire::Flow) is made of a packet of this origin, and forgotten when that
//! changes.

use super::recv::queue::Srq;
use super::send::proof;
use super::{PeerQp, Qp, Shared};
use crate::env::{Duration, Instant, Memory};
use crate::psn::Psn;
use crate::wire::mad::Make;
use crate::wire::origin::Fields;
use crate::wire::{DropReason, Encap, Hop, Opcode, Origin, Packet, ROCE_PORT};

/// A field varies that was another one so often in the last eight packets that took the general way and were believed. A value
/// between two of them that was not believed is one more.
const CHANGES: u32 = 3;

/// A request that was executed, and that comes again from elsewhere so long after it came so before, is answered: so long
/// the peer's own requests did not come.
const REPEATED_AFTER: Duration = Duration::from_millis(1);

/// An answer that was not believed.
#[derive(Clone, Copy, Debug)]
struct Disbelieved {
    origin: Origin,
    psn: Psn,
    opcode: Opcode,
    /// Probes before it that had no answer.
    tries: u32,
}

/// The origin of the packets of the peer, as far as the queue pair knows it.
#[derive(Clone, Debug)]
pub(crate) struct PeerOrigin {
    last: Origin,
    /// The fields that are not asked for.
    varies: Fields,
    /// A packet with a UDP port has come.
    port_known: bool,
    /// Of the last believed packets, the newest in the lowest bit: whether each field was another one than before.
    changed: [u8; Fields::EACH.len()],
    disbelieved: Option<Disbelieved>,
    /// When a request that was executed came again from elsewhere, and what was expected then.
    repeated: Option<(Instant, Psn)>,
}

impl PeerOrigin {
    /// That of a peer whose REQ or REP came so.
    pub(crate) const fn new(last: Origin) -> Self {
        Self {
            last,
            varies: Fields::NONE,
            port_known: false,
            changed: [0; _],
            disbelieved: None,
            repeated: None,
        }
    }

    /// That of a peer before its first packet. One of our make sends from the port that we send from, but to a socket, which sees
    /// that of another socket.
    pub(crate) const fn of(peer: &PeerQp) -> Self {
        let mut origin = Self::new(peer.origin);
        let PeerQp { make, encap: Encap { src_port, .. }, .. } = *peer;
        if matches!(make, Make::Keeper) && src_port != ROCE_PORT {
            (origin.last.src_port, origin.port_known) = (src_port, true);
        }
        origin
    }

    /// The fields in which a packet differs from the peer's.
    fn differs(&self, origin: &Origin) -> Fields {
        let unknown = if self.port_known { Fields::NONE } else { Fields::SRC_PORT };
        origin.differs(&self.last).without(self.varies.or(unknown))
    }

    /// Whether a packet comes as the peer's do.
    pub(crate) fn knows(&self, origin: &Origin) -> bool {
        self.differs(origin).is_empty()
    }

    /// Whether the peer's UDP port is known, or varies.
    pub(crate) const fn knows_port(&self) -> bool {
        self.port_known
    }

    /// Notes that a packet of the peer has come that is new, and not a duplicate of what came before.
    fn came(&mut self, origin: &Origin) {
        if !self.port_known {
            (self.last.src_port, self.port_known) = (origin.src_port, true);
        }
        self.changed = self.changed.map(|changes| changes << 1);
        (self.disbelieved, self.repeated) = (None, None);
    }

    /// Notes that a packet of another origin is the peer's.
    fn proven(&mut self, origin: Origin) {
        let differs = self.differs(&origin);
        // Another value of it, which was not believed. One alone may be forged.
        let third =
            self.disbelieved.map_or(Fields::NONE, |Disbelieved { origin: third, .. }| {
                third.differs(&self.last).and(third.differs(&origin))
            });
        for (changes, field) in self.changed.iter_mut().zip(Fields::EACH) {
            let changed = !differs.and(field).is_empty();
            *changes = *changes << 1 | u8::from(changed);
            let another = u32::from(changed && !third.and(field).is_empty());
            if changes.count_ones() + another >= CHANGES {
                self.varies = self.varies.or(field);
            }
        }
        (self.last, self.port_known) = (origin, true);
        (self.disbelieved, self.repeated) = (None, None);
    }

    /// Notes an answer of another origin behind so many probes without an answer. Returns whether it says the same as one
    /// to an earlier probe.
    fn says_again(&mut self, origin: Origin, (psn, opcode): (Psn, Opcode), tries: u32) -> bool {
        let same = |before: &Disbelieved| before.psn == psn && before.opcode == opcode;
        let before = self.disbelieved.filter(|before| same(before) && before.tries > 0);
        let Some(before) = before else {
            self.disbelieved = Some(Disbelieved { origin, psn, opcode, tries });
            return false;
        };
        tries > before.tries
    }

    /// Notes that a request that was executed has come again from elsewhere, while `epsn` is expected. Returns whether it
    /// is answered.
    fn asks_again(&mut self, now: Instant, epsn: Psn) -> bool {
        let since = self.repeated.filter(|(_, expected)| *expected == epsn).map(|(at, _)| at);
        let long = since.is_some_and(|at| now.saturating_since(at) >= REPEATED_AFTER);
        if long || since.is_none() {
            self.repeated = Some((now, epsn));
        }
        long
    }

    /// Follows a neighbour that was found elsewhere, if the packets came from it and not from a router on the way back.
    pub(crate) fn follow(&mut self, before: Hop, hop: Hop) {
        let of = |hop: Hop| [hop.dst_mac, hop.src_mac];
        if self.last.macs == of(before) {
            self.last.macs = of(hop);
        }
    }
}

impl Qp {
    /// Acts on a packet of the peer's origin. A new one may tell its UDP port.
    pub(super) fn handle_known<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
    ) -> Result<(), DropReason> {
        let new = if packet.bth.opcode.is_response() {
            self.sq.expects(packet.bth.psn)
        } else {
            packet.bth.opcode != Opcode::Cnp && self.ahead(packet) >= 0
        };
        self.act(now, packet, srq, shared, true)?;
        if new {
            self.origin.came(&Origin::of(&packet.encap));
        }
        Ok(())
    }

    /// Acts on a packet of another origin, if its number shows that it is the peer's.
    #[inline(never)]
    pub(super) fn handle_unknown<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
    ) -> Result<(), DropReason> {
        let origin = Origin::of(&packet.encap);
        let proves = if packet.bth.opcode.is_response() {
            self.answer_proves(packet, origin)
        } else {
            packet.bth.opcode != Opcode::Cnp && self.ahead(packet) == 0
        };
        if proves {
            self.act(now, packet, srq, shared, false)?;
            self.origin.proven(origin);
            return Ok(());
        }
        if self.is_asked_again(now, packet) {
            return self.act(now, packet, srq, shared, false);
        }
        Err(DropReason::FlowMismatch)
    }

    /// The PSNs from the expected request to this one.
    const fn ahead(&self, packet: &Packet<'_>) -> i32 {
        packet.bth.psn.since(self.responder.epsn())
    }

    fn answer_proves(&mut self, packet: &Packet<'_>, origin: Origin) -> bool {
        let Self { completer, sq, origin: known, probe, peer: Some(peer), .. } = self else {
            return false;
        };
        let tries = completer.tries();
        if completer.proves(packet, tries > 0 || probe.waits(), sq, peer) {
            return true;
        }
        let psn = packet.bth.psn;
        let telling = sq.expects(psn) && !proof::is_fatal(packet);
        telling && known.says_again(origin, (psn, packet.bth.opcode), tries)
    }

    /// Whether a request of another origin is one that was executed, and is answered once more. A READ names memory that
    /// no forger knows.
    fn is_asked_again(&mut self, now: Instant, packet: &Packet<'_>) -> bool {
        let opcode = packet.bth.opcode;
        if opcode.is_response() || opcode == Opcode::Cnp || self.ahead(packet) >= 0 {
            return false;
        }
        let Some(peer) = self.peer.as_ref() else { return false };
        self.responder.remembers(packet, peer.pmtu.bytes() as u64)
            || self.origin.asks_again(now, self.responder.epsn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Mac;

    const FIRST: Origin =
        Origin { macs: [Mac([2; 6]), Mac([1; 6])], vlan: 5, hop_limit: 64, src_port: 7 };

    fn others() -> [Origin; 4] {
        [
            Origin { macs: [Mac([3; 6]), Mac([1; 6])], ..FIRST },
            Origin { vlan: 6, ..FIRST },
            Origin { hop_limit: 63, ..FIRST },
            Origin { src_port: 8, ..FIRST },
        ]
    }

    fn met() -> PeerOrigin {
        let mut known = PeerOrigin::new(FIRST);
        known.came(&FIRST);
        known
    }

    #[test]
    fn only_the_port_is_unknown_before_the_first_packet() {
        let known = PeerOrigin::new(FIRST);
        let knows = others().map(|origin| known.knows(&origin));
        assert_eq!((known.knows(&FIRST), knows), (true, [false, false, false, true]));
        assert!(others().iter().all(|origin| !met().knows(origin)));
    }

    #[test]
    fn a_field_that_changes_three_times_in_eight_packets_varies() {
        for (at, other) in others().into_iter().enumerate() {
            let mut known = met();
            known.proven(other);
            assert!(known.knows(&other) && !known.knows(&FIRST), "{other:?}");
            known.proven(FIRST);
            known.proven(other);
            assert!(known.knows(&other) && known.knows(&FIRST), "{other:?}");
            let knows = others().map(|origin| known.knows(&origin));
            assert!(knows.into_iter().enumerate().all(|(n, knows)| knows == (n == at)), "{at}");
        }
    }

    #[test]
    fn a_field_that_changes_seldom_does_not_vary() {
        let [other, ..] = others();
        let mut known = met();
        for _ in 0..10 {
            known.proven(other);
            (0..7).for_each(|_| known.came(&other));
            known.proven(FIRST);
            (0..7).for_each(|_| known.came(&FIRST));
        }
        assert!(!known.knows(&other));
    }

    /// One value that was not believed may be forged, whatever path the peer takes next.
    #[test]
    fn values_between_two_proofs_show_that_a_field_varies() {
        let [_, _, _, second] = others();
        let [third, fourth] = [9, 10].map(|src_port| Origin { src_port, ..FIRST });
        let ack = (Psn::new(3), Opcode::Acknowledge);
        let mut known = met();
        assert!(!known.says_again(second, ack, 0));
        known.proven(third);
        assert!(!known.knows(&FIRST));
        assert!(!known.says_again(second, ack, 0));
        known.proven(fourth);
        assert!(known.knows(&FIRST));
        // The same value twice is another path.
        let mut known = met();
        for other in [second, FIRST] {
            assert!(!known.says_again(other, ack, 0));
            known.proven(other);
        }
        assert!(!known.knows(&second));
    }

    #[test]
    fn an_answer_counts_that_comes_again_to_another_probe() {
        let [other, ..] = others();
        let ack = (Psn::new(3), Opcode::Acknowledge);
        let mut known = met();
        assert!(!known.says_again(other, ack, 0));
        assert!(!known.says_again(other, ack, 1), "none was asked for before");
        assert!(!known.says_again(other, ack, 1), "the probe is the same");
        assert!(!known.says_again(other, (Psn::new(4), ack.1), 2), "it says something else");
        assert!(!known.says_again(other, ack, 2));
        assert!(known.says_again(other, ack, 3));
        known.came(&FIRST);
        assert!(!known.says_again(other, ack, 4), "the peer has spoken meanwhile");
    }

    #[test]
    fn a_duplicate_is_answered_that_comes_again_a_millisecond_later() {
        let (mut known, psn) = (met(), Psn::new(9));
        let at = |us: u64| Instant::from_nanos(us * 1000);
        assert!(!known.asks_again(at(0), psn) && !known.asks_again(at(999), psn));
        assert!(known.asks_again(at(1000), psn));
        assert!(!known.asks_again(at(1001), psn), "once in a millisecond");
        assert!(!known.asks_again(at(2001), psn.add(1)), "the peer has sent another request");
        assert!(known.asks_again(at(3001), psn.add(1)));
    }

    #[test]
    fn a_neighbour_that_was_found_elsewhere_is_followed_and_no_router_is() {
        let hop = |last: u8| Hop { src_mac: Mac([1; 6]), dst_mac: Mac([last; 6]), vlan: None };
        let moved = Origin { macs: [Mac([4; 6]), Mac([1; 6])], ..FIRST };
        let mut known = met();
        known.follow(hop(7), hop(4));
        assert!(known.knows(&FIRST));
        known.follow(hop(2), hop(4));
        assert!(known.knows(&moved) && !known.knows(&FIRST));
    }
}
