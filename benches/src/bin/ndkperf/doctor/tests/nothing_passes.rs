//! The law: what a path never carries is a fault of it, whatever it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;

use rocev2::wire::dissect;

use super::*;

/// Frames of the ways to the peer and back.
const WAYS: [&str; 2] = ["to", "from"];

/// What nobody misses: the end of a connection, and the word that a REP has come, for which the first packet stands; pings, which a host
/// need not answer; our ACKs and the peer's probes, as it is the peer that waits for them.
const NOT_MISSED: [(&str, &str); 7] = [
    ("to", "Dreq"),
    ("from", "Drep"),
    ("to", "Rtu"),
    ("to", PING),
    ("from", PING),
    ("to", "Acknowledge"),
    ("from", "WriteOnly"),
];
const PING: &str = "[08, 00] Some(1)";

/// Goal: a path that carries all but frames of one kind is not called healthy.
/// Method: the kinds are those of a healthy path; all examinations at once, as most of them wait.
#[test]
fn what_never_passes_is_a_fault() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let watch = |way: &'static str| {
        let seen = Arc::clone(&seen);
        move |frame: &mut Vec<u8>| seen.lock().unwrap().insert((way, kind(frame))) | true
    };
    let [to, from] = WAYS;
    let report =
        through(&path(), |edge| Box::new(Wire::new(edge).out(watch(to)).back(watch(from))));
    assert_eq!(report.codes(), [""; 0], "{report:#?}");
    let kinds: Vec<_> = seen.lock().unwrap().iter().cloned().collect();
    println!("{kinds:?}");
    assert!(kinds.len() > 16, "{kinds:?}");
    let unnamed = thread::scope(|scope| {
        let tries = kinds.iter().map(|(way, kind)| {
            scope.spawn(move || (*way, kind.as_str(), without(way, kind).codes()))
        });
        let tries: Vec<_> = tries.collect();
        let ended = tries.into_iter().map(|tried| tried.join().unwrap());
        let unnamed = ended
            .filter(|(way, kind, codes)| codes.is_empty() && !NOT_MISSED.contains(&(way, kind)));
        unnamed.collect::<Vec<_>>()
    });
    assert!(unnamed.is_empty(), "no fault without {unnamed:?}");
}

/// A path of which that way carries no frames of `kind`.
fn without(way: &str, kind: &str) -> Report {
    let kind = kind.to_owned();
    let judge = move |frame: &mut Vec<u8>| self::kind(frame) != kind;
    let wire = |edge| {
        let wire = Wire::new(edge);
        if way == WAYS[0] { wire.out(judge) } else { wire.back(judge) }
    };
    through(&path(), |edge| Box::new(wire(edge)))
}

/// What a filter may tell apart: opcodes, messages of connection management, protocols.
fn kind(frame: &[u8]) -> String {
    let dissection = dissect(frame);
    if let Some(Ok((_, message))) = dissection.mad() {
        let message = format!("{message:?}");
        return message.split(|at: char| !at.is_alphanumeric()).next().unwrap_or("").into();
    }
    dissection.opcode().map_or_else(
        || format!("{:02x?} {:?}", &frame[12..14], ip_header(frame).map(|(at, _)| frame[at + 9])),
        |opcode| format!("{opcode:?}"),
    )
}
