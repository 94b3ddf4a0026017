//! The law of strangers: two devices in lockstep, of which one is sent packets from elsewhere than the peer's.

use crate::origin::{half_strangers, stranger};
use crate::peer::*;
use proptest::prelude::*;
use rocev2::env::Duration;
use rocev2::psn::{Msn, Psn};
use rocev2::qp::{SendOp, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::{Aeth, AtomicEth, Bth, Ext, Reth, Syndrome};
use std::collections::BTreeSet;

/// What P and D's consumer do, and what a stranger says.
#[derive(Clone, Debug)]
enum Step {
    /// P's next request, or the one behind it first.
    Send {
        swapped: bool,
    },
    /// D's consumer posts a SEND of so many packets.
    Post(usize),
    /// P acknowledges all that D has sent.
    Ack,
    Pass(u64),
    /// A packet of an origin that differs in one field or all, so far from the expected request or the oldest in flight.
    Stranger {
        origin: usize,
        kind: u8,
        at: i32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<bool>().prop_map(|swapped| Step::Send { swapped }),
        2 => (1..20_usize).prop_map(Step::Post),
        2 => Just(Step::Ack),
        1 => (1..200_u64).prop_map(Step::Pass),
        8 => (0..5_usize, any::<u8>(), 1..520_i32)
            .prop_map(|(origin, kind, at)| Step::Stranger { origin, kind, at }),
    ]
}

/// One of the two worlds, and how far it is.
struct Twin {
    world: World,
    /// P's next request.
    next: i32,
    /// D's oldest packet in flight, and the next one.
    flight: [i32; 2],
    /// Answers of strangers: the second of two that are the same may be one to a probe.
    said: BTreeSet<i32>,
}

impl Twin {
    fn new(v6: bool) -> Self {
        let mut world = World::new(v6, TERMS);
        world.works(0);
        Self { world, next: 1, flight: [0, 0], said: BTreeSet::new() }
    }

    fn act(&mut self, step: &Step) {
        let Self { world, next, flight: [una, end], .. } = self;
        match *step {
            Step::Send { swapped } => {
                (0..2).for_each(|id| world.receive(id, 10));
                let order = if swapped { [1, 0] } else { [0, 1] };
                order.into_iter().for_each(|at| world.send(*next + at, 10));
                *next += 2;
            }
            Step::Post(packets) if end == una => world.post(7, SendOp::Send, packets * 512),
            Step::Ack if end > una => {
                world.answer(*end - 1, ACK);
                *una = *end;
            }
            Step::Post(_) | Step::Ack | Step::Stranger { .. } => {}
            Step::Pass(us) => world.pass(Duration::from_micros(us)),
        }
    }

    /// What came of it.
    fn seen(&mut self) -> (Vec<Sent>, Vec<(u64, WcStatus)>, usize) {
        let sent = self.world.sent();
        let requests = sent.iter().filter(|sent| sent.opcode < 0x0d && !sent.is_probe());
        if let Some(last) = requests.map(|sent| sent.at + 1).max() {
            self.flight[1] = self.flight[1].max(last);
        }
        let seen = (sent, self.world.statuses(), self.world.events.len());
        self.world.done.clear();
        seen
    }

    fn stranger(&mut self, origin: usize, kind: u8, at: i32) {
        let encap = self.world.encap;
        let encap = *half_strangers(&encap).get(origin).unwrap_or(&stranger(&encap));
        let requests =
            [SendOnly, SendFirst, SendLast, WriteOnly, ReadRequest, FetchAdd, SendOnlyInv];
        let syndromes = [ACK, NAK0, NAK1, NAK2, NAK3, RNR];
        let Self { world, next, flight: [una, end], said } = self;
        let key = world.key;
        match kind % 16 {
            n @ 0..7 => {
                let opcode = requests[n as usize];
                let reth = Reth { va: BASE, rkey: key, len: 64 };
                let (ext, len) = match opcode {
                    WriteOnly => (Ext::Reth(reth), 64),
                    ReadRequest => (Ext::Reth(reth), 0),
                    FetchAdd => {
                        let atomic = AtomicEth { va: BASE, rkey: key, swap_or_add: 1, compare: 0 };
                        (Ext::AtomicEth(atomic), 0)
                    }
                    SendOnlyInv => (Ext::Ieth(key), 8),
                    SendFirst => (Ext::None, P),
                    _ => (Ext::None, 8),
                };
                world.ask_from(encap, *next + at, opcode, ext, &vec![0xee; len]);
            }
            n @ 7..13 => {
                // Not the oldest in flight, and not what answers a probe.
                let at = *una + 1 + at % 100;
                if at != *end - 1 && said.insert(at) {
                    world.answer_from(encap, at, syndromes[n as usize - 7]);
                }
            }
            13 => {
                let psn = Psn::new(world.end.first[1].get().wrapping_add_signed(*una + at));
                let bth = Bth::new(ReadResponseOnly, world.end.qpn, psn);
                let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::new(1) };
                world.give_from(encap, &bth, &Ext::Aeth(aeth), &[0xee; 8]);
            }
            _ => {
                let bth = Bth::new(Cnp, world.end.qpn, Psn::new(0));
                world.give_from(encap, &bth, &Ext::Cnp, &[]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// No packet of another origin, but one of the expected number, changes what the consumer or the peer sees.
    #[test]
    fn a_stranger_changes_nothing(v6 in any::<bool>(), steps in proptest::collection::vec(step(), 1..120)) {
        let [mut alone, mut disturbed] = [Twin::new(v6), Twin::new(v6)];
        for step in &steps {
            alone.act(step);
            disturbed.act(step);
            if let Step::Stranger { origin, kind, at } = *step {
                disturbed.stranger(origin, kind, at);
            }
            prop_assert_eq!(alone.seen(), disturbed.seen());
            prop_assert_eq!(alone.world.d.poll_timeout(), disturbed.world.d.poll_timeout());
            let rate = |twin: &mut Twin| twin.world.d.qp_rate(twin.world.end.qpn, twin.world.now);
            prop_assert_eq!(rate(&mut alone), rate(&mut disturbed));
            prop_assert!(alone.world.bytes() == disturbed.world.bytes());
        }
    }
}
