//! The neighbours of each legal message: the same with one field wrong, in each state that admits it. A
//! neighbour that is not the peer's changes nothing, and the legal message then has its usual effect. The
//! values that REQ and REP negotiate are in `terms`.

use super::*;
use std::format;
use std::ops::Range;
use std::string::String;
use std::vec;

/// The meaning of another value of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    /// The message is for nobody: it changes nothing, is counted, and is not answered.
    Names,
    /// The message is as good.
    Free,
    /// The peer gets DREP, as for a connection that is long gone; nothing else happens.
    Unknown,
}

/// Bytes of a datagram, the bits of them that are the field, and what they mean.
type Part = (Range<usize>, u8, Field);

const HEADER: [Part; 7] = [
    (0..1, 0xff, Field::Names),  // base version
    (1..2, 0xff, Field::Names),  // class
    (2..3, 0xff, Field::Names),  // class version
    (3..4, 0xff, Field::Names),  // method
    (4..6, 0xff, Field::Free),   // status
    (8..16, 0xff, Field::Free),  // transaction ID: the comm IDs say all
    (20..24, 0xff, Field::Free), // attribute modifier
];
const LOCAL_ID: Range<usize> = 24..28;
const REMOTE_ID: Range<usize> = 28..32;
const AFTER_IDS: usize = 32;

/// A side of a connection in some state, and what P may say then.
struct Stage {
    name: &'static str,
    open: fn(&mut Bench) -> Vec<CmMessage>,
    /// P's ID is not known yet.
    first_answer: bool,
}

const STAGES: [Stage; 6] = [
    Stage {
        name: "REQ sent",
        open: |bench| {
            let id = bench.connect().1.local_comm_id;
            let refusal = rej(id, RejMessage::Req, RejReason::CONSUMER);
            vec![CmMessage::Rep(bench.rep(id)), mra(id, MraMessage::Req, 20), refusal]
        },
        first_answer: true,
    },
    Stage {
        name: "REP received",
        open: |bench| {
            let id = bench.connected().1;
            vec![CmMessage::Rep(bench.rep(id)), rej(id, RejMessage::Other, RejReason::TIMEOUT)]
        },
        first_answer: false,
    },
    Stage {
        name: "REP sent",
        open: |bench| {
            let id = bench.replied().1.local_comm_id;
            let refusal = rej(id, RejMessage::Rep, RejReason::CONSUMER);
            vec![rtu(id), mra(id, MraMessage::Rep, 20), refusal, dreq(id)]
        },
        first_answer: false,
    },
    Stage {
        name: "established, active",
        open: |bench| {
            let id = bench.active().1;
            let refusal = rej(id, RejMessage::Other, RejReason::CONSUMER);
            vec![CmMessage::Rep(bench.rep(id)), dreq(id), refusal]
        },
        first_answer: false,
    },
    Stage {
        name: "established, passive",
        open: |bench| {
            let id = bench.passive().1;
            vec![dreq(id), rej(id, RejMessage::Other, RejReason::CONSUMER)]
        },
        first_answer: false,
    },
    Stage {
        name: "DREQ sent",
        open: |bench| {
            let (conn, id) = bench.active();
            bench.cm.disconnect(bench.now, conn).unwrap();
            bench.sent_one();
            vec![drep(id), dreq(id), rej(id, RejMessage::Other, RejReason::CONSUMER)]
        },
        first_answer: false,
    },
];

/// The fields of a message behind the MAD header.
fn body(message: &CmMessage, first_answer: bool) -> Vec<Part> {
    let mut parts = vec![
        (REMOTE_ID, 0xff, Field::Names),
        // P chooses its ID itself, and tells it by its first answer.
        (LOCAL_ID, 0xff, if first_answer { Field::Free } else { Field::Names }),
    ];
    match message {
        CmMessage::Mra(_) => parts.push((AFTER_IDS..AFTER_IDS + 1, 0xc0, Field::Names)),
        CmMessage::Dreq(_) => {
            parts = vec![(REMOTE_ID, 0xff, Field::Unknown), (LOCAL_ID, 0xff, Field::Unknown)];
            parts.push((AFTER_IDS..AFTER_IDS + 3, 0xff, Field::Names));
            parts.push((36..256, 0xff, Field::Free));
        }
        CmMessage::Rtu(_) | CmMessage::Drep(_) => parts.push((AFTER_IDS..256, 0xff, Field::Free)),
        // Said again, it says nothing new.
        CmMessage::Rep(_) if !first_answer => parts.push((AFTER_IDS..256, 0xff, Field::Free)),
        _ => {}
    }
    parts
}

/// The message with other values in a field: its bits turned over one at a time, all of them, and none.
pub(super) fn neighbours(
    mad: &[u8; MAD_LEN],
    bytes: &Range<usize>,
    mask: u8,
) -> Vec<[u8; MAD_LEN]> {
    let mut all = Vec::new();
    // Of private data, the ends.
    let ends = |bit: &usize| bytes.len() <= 16 || *bit < 8 || *bit >= 8 * (bytes.len() - 1);
    let bits = (0..8 * bytes.len()).filter(|bit| mask >> (bit % 8) & 1 == 1);
    for bit in bits.filter(ends) {
        let mut other = *mad;
        other[bytes.start + bit / 8] ^= 1 << (bit % 8);
        all.push(other);
    }
    for value in [0, 0xff] {
        let mut other = *mad;
        other[bytes.clone()].iter_mut().for_each(|byte| *byte = *byte & !mask | value & mask);
        all.push(other);
    }
    all.retain(|other| other != mad);
    all
}

fn bytes_of(message: &CmMessage) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    let header = MadHeader { transaction_id: P_TRANSACTION, ..MadHeader::default() };
    emit_mad(&header, message, &mut mad);
    mad
}

/// A bench at a stage.
fn at(stage: &Stage) -> (Bench, Vec<CmMessage>) {
    let mut bench = Bench::v4(config());
    let legal = (stage.open)(&mut bench);
    bench.events();
    (bench, legal)
}

/// All that a datagram of P does, in words: what D sends and tells, and when it comes back to it.
fn effect(bench: &mut Bench, mad: &[u8; MAD_LEN]) -> String {
    bench.deliver_mad(bench.p, mad);
    format!("{:?} {:?} {:?}", bench.sent(), bench.events(), bench.cm.poll_timeout())
}

/// Goal: no message has the effect of another (CM-17, CM-18, CM-19).
/// Method: every field of every message that a state admits, one at a time; the clock stands still.
#[test]
fn a_message_with_one_wrong_field_changes_nothing() {
    let mut tried = 0;
    for stage in &STAGES {
        for n in 0..at(stage).1.len() {
            let (mut bench, legal) = at(stage);
            let (name, message) = (stage.name, &legal[n]);
            let mad = bytes_of(message);
            let right = effect(&mut bench, &mad);
            let free = stage.first_answer;
            for part in HEADER.into_iter().chain(body(message, free)) {
                for other in neighbours(&mad, &part.0, part.1) {
                    let what = (name, message, &part, &other);
                    meets(at(stage).0, part.2, &right, &what);
                    if part.2 != Field::Free {
                        let (mut bench, _) = at(stage);
                        effect(&mut bench, &other);
                        assert_eq!(effect(&mut bench, &mad), right, "after {what:?}");
                    }
                    tried += 1;
                }
            }
        }
    }
    std::println!("{tried} neighbours");
    assert!(tried > 3000);
}

/// A stage, a message, the field that is wrong in it, and the outcome.
type Neighbour<'a> = (&'a str, &'a CmMessage, &'a Part, &'a [u8; MAD_LEN]);

/// A neighbour has the effect that its field's meaning requires.
fn meets(mut bench: Bench, field: Field, right: &str, what: &Neighbour<'_>) {
    let (before, timer) = (counted(&bench.cm), bench.cm.poll_timeout());
    match field {
        Field::Free => assert_eq!(effect(&mut bench, what.3), right, "{what:?}"),
        Field::Names => {
            assert_eq!(effect(&mut bench, what.3), format!("[] [] {timer:?}"), "{what:?}");
            assert_eq!(counted(&bench.cm), before + 1, "{what:?}");
        }
        Field::Unknown => {
            bench.deliver_mad(bench.p, what.3);
            assert!(matches!(bench.sent()[..], [CmMessage::Drep(_)]), "{what:?}");
            assert_eq!((bench.events(), bench.cm.poll_timeout()), (vec![], timer), "{what:?}");
        }
    }
}
