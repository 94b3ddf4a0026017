//! The fuzz targets over their kept corpora, over the captures, and over random bytes.
//!
//! What a fuzzer finds is put into the corpus, so that it stays found. To look for more:
//! `cd tests && cargo fuzz run -s none cm`; see `fuzz/src/lib.rs`.

#[allow(unreachable_pub, reason = "a library, where the fuzzer links it")]
#[path = "fuzz/src/lib.rs"]
mod fuzz;
#[allow(dead_code, reason = "the codecs' tests use all of it")]
#[path = "wire/golden.rs"]
mod golden;

use fuzz::{TARGETS, Target};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

/// Runs a target over all files of its corpus, and returns how many there are.
fn replay((name, target): Target) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let entries = corpus.read_dir().unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let result = std::panic::catch_unwind(|| target(&data));
        assert!(result.is_ok(), "{}", path.display());
        count += 1;
    }
    count
}

/// Runs a target over bytes of any kind, as proptest makes them.
fn wander(target: Target, cases: u32, len: usize) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(data in vec(any::<u8>(), 0..len))| target.1(&data));
}

macro_rules! tests {
    ($($name:ident at $index:literal: $cases:literal of $len:literal,)*) => {
        $(
            #[test]
            fn $name() {
                let target = TARGETS[$index];
                assert_eq!(target.0, stringify!($name));
                assert!(replay(target) >= 10, "no corpus");
                wander(target, $cases, $len);
            }
        )*
    };
}

tests! {
    packet at 0: 2000 of 200,
    packet_icrc at 1: 2000 of 200,
    mad at 2: 2000 of 260,
    responder at 3: 200 of 800,
    completer at 4: 200 of 800,
    cm at 5: 200 of 400,
    neighbour at 6: 200 of 200,
    decode at 7: 200 of 400,
    snapshot at 8: 2000 of 400,
    edge at 9: 2000 of 60,
    tables at 10: 200 of 800,
    cores at 11: 200 of 800,
    keywords at 12: 2000 of 200,
}

/// Every captured frame, good or damaged, as each of the codecs' targets takes it.
#[test]
fn captures_keep_the_promises_of_the_codecs() {
    let mut captures = golden::captures();
    captures.push(golden::capture("corrupt_write.pcap"));
    for frame in captures.iter().flat_map(|capture| &capture.frames) {
        fuzz::packet(&[&[0, 0], frame.as_slice()].concat());
        fuzz::packet_icrc(frame);
        // From the datagram on, where there is one.
        if let Some(at) = frame.len().checked_sub(4 + 256) {
            fuzz::mad(&frame[at + 4..frame.len() - 4]);
        }
    }
}
