//! The cases, each in a line; and where a test is, found by its name.
//!
//! A test carries the numbers of its cases in front of its name: `seq_01_…`, `cm_06_07_…`,
//! `wrt_05_to_10_…`, `rd_02_to_06_and_dup_11_…`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Number and meaning. "Here" says where the adapter differs from what others do.
const CASES: &str = "
PKT-01 captured packets and vectors parse, and their ICRC is right
PKT-02 a packet taken apart and written again is the same
PKT-03 a flipped bit that the ICRC covers is noticed
PKT-04 what routers change on the way is not covered
PKT-05 IPv4 identification and fragment flags are covered
PKT-06 an ICRC in the other byte order is wrong
PKT-07 a UDP checksum is absent or right
PKT-08 any UDP source port will do
PKT-09 another UDP port is none of ours, and counted nowhere
PKT-10 a packet cut anywhere is dropped, and not read beyond its end
PKT-11 a UDP length that contradicts the others is dropped
PKT-12 more pad than bytes is dropped
PKT-13 pad that is not zero is neither refused nor delivered
PKT-14 every one of the 256 opcodes has its reaction
PKT-15 a reserved opcode to the multicast queue pair is dropped
PKT-16 another transport version is dropped
PKT-17 queue pair 0, unknown or destroyed: dropped
PKT-18 an opcode of another transport is dropped
PKT-19 between other addresses than the connection's: dropped
PKT-20 another partition is dropped
PKT-21 what the queue pair's state does not admit is dropped. Here RTR and RTS are one
PKT-22 IP options and fragments are dropped
PKT-23 a VLAN tag is accepted
PKT-24 M, SE and reserved bits are free
PKT-25 a datagram with another Q_Key is dropped
PKT-26 a multicast address does not reach a connection
PKT-27 what no host may send, or is for another one, is dropped
SEQ-01 a SEND of one packet completes and is acknowledged
SEQ-02 a SEND of three packets completes once
SEQ-03 one acknowledgement may serve a burst
SEQ-04 a SEND that asks for no acknowledgement completes
SEQ-05 a gap is named by one NAK. Here after it has outlasted reordering; what follows is kept
SEQ-06 no second NAK for one gap
SEQ-07 a closed gap is over; the next gets its own NAK
SEQ-08 half of the PSN space is ahead, half behind
SEQ-09 PSNs go from 2^24 - 1 to 0
SEQ-10 the middle or end of a message that nobody began is refused
SEQ-11 nothing else comes inside a SEND
SEQ-12 nothing else comes inside a WRITE
SEQ-13 a first packet of a SEND is full
SEQ-14 a middle packet is full
SEQ-15 a last packet carries 1 byte to a path MTU
SEQ-16 an only packet carries 0 bytes to a path MTU
SEQ-17 a first packet has no pad
SEQ-18 every short length arrives exactly
SEQ-19 a SEND longer than its receive is refused; nothing is overrun
SEQ-20 a receive of odd pieces is filled in order
SEQ-21 a SEND with immediate completes. Here without the immediate, for which NDK has no place
SEQ-22 the SE bit of a last packet makes a solicited completion
SEQ-23 that of another packet does not
WRT-01 a WRITE changes memory and takes no receive
WRT-02 a MiB is one message
WRT-03 a WRITE with immediate takes a receive, not its buffer
WRT-04 in one packet the immediate follows the RETH
WRT-05 fewer bytes than announced are refused
WRT-06 more bytes than announced are refused
WRT-07 one packet carries what it announces
WRT-08 no bytes need no key
WRT-09 a first packet announces more than itself
WRT-10 more than 2^31 bytes are refused
WRT-11 without the right a WRITE is refused. Here the region's right: NDK gives a queue pair none
WRT-12 a region that goes away takes no more
DUP-01 a duplicate SEND is acknowledged and not executed
DUP-02 a duplicate WRITE does not change memory
DUP-03 an old packet does not disturb the order of messages
DUP-04 a duplicate is not judged
DUP-05 a duplicate does not close a gap
DUP-06 a duplicate needs no receive
DUP-07 a duplicate READ is answered again
DUP-08 a duplicate READ of something else is dropped
DUP-09 a READ older than the depth is dropped
DUP-10 a duplicate READ of a region that is gone is silent, and refused where it goes on; the connection stays
DUP-11 no acknowledgement overtakes the answer of a READ
DUP-12 a thousand duplicates are bounded work
DUP-13 a duplicate does not invalidate again
RD-01 a short READ is answered by one packet
RD-02 a long READ is cut at the path MTU
RD-03 a READ takes as many PSNs as its answer
RD-04 a READ of nothing needs no key
RD-05 no empty packet follows a full one
RD-06 the answer comes before a later acknowledgement
RD-07 READs are answered in order
RD-08 a READ beyond the depth mixes nothing up. Here it is served, and the oldest forgotten
RD-09 without responder resources a READ is refused
RD-10 without the right a READ is refused. Here the region's right: NDK gives a queue pair none
RD-11 a region that goes away ends the answer
RD-12 a READ request carries no payload
RD-13 a duplicate during its own answer gets the right data
RD-14 no acknowledgement has a PSN of an answer
ATM-01 fetch-and-add. Here refused, as NDK has no atomics
ATM-02 compare-and-swap. Here refused
ATM-03 a duplicate atomic. Here refused or dropped
ATM-04 an address that is not aligned is refused
ATM-05 a word that does not lie in its region is refused
ATM-06 exactly once under loss. Here not once, and other connections do not notice
ATM-07 without the right an atomic is refused
RNR-01 a SEND without a receive is put off
RNR-02 with a receive the same packet is taken
RNR-03 what follows a refusal is no gap
RNR-04 the rest of a message that was put off is silent
RNR-05 a WRITE with immediate places its data and waits for a receive
RNR-06 one shared receive serves one of two queue pairs
RNR-07 a pause lasts what its code says, also one that begins during another
RNR-08 a finite number of refusals ends the request
RNR-09 7 means without end
RNR-10 code 0 is the longest pause
RNR-11 a refusal of what was acknowledged is dropped
RNR-12 a receive that was posted is there for the next packet
KEY-01 before the first byte: refused, and an event
KEY-02 behind the last byte: refused
KEY-03 addresses do not wrap around
KEY-04 the last page of the address space is usable
KEY-05 unknown keys are refused
KEY-06 keys of another domain are refused
KEY-07 a region without remote rights is refused
KEY-08 the other right is not this one
KEY-09 a SEND with invalidate ends a key and reports it
KEY-10 the end of an unknown key ends the connection. Here by a remote operational error
KEY-11 a registered region cannot be ended by a peer
KEY-12 data is placed before its key ends
KEY-13 an ended key names nothing until it is mapped again. Here the key stays the same: NDK reads a token once
KEY-14 what is mapped cannot be mapped again
KEY-15 no other key can be mapped. Here no part of one can be changed
KEY-16 a window stays within region, rights and domain. NDK has no right to bind
KEY-17 a window is bound once, and to something
KEY-18 a window serves the queue pair that bound it
KEY-19 a window dies with its region
KEY-20 keys are random, and do not repeat soon
KEY-21 a key that was given up does not come back with its memory
REQ-01 a message is cut at the path MTU; its last packet asks for an acknowledgement
REQ-02 only the last packet solicits
REQ-03 one acknowledgement completes all before it
REQ-04 one inside a message completes nothing, and nothing before it is sent again
REQ-05 silence ends the oldest request in bounded time. Here resends follow the measured round trip
REQ-06 a NAK acknowledges what is before it and is answered from there. Here by what is missing alone
REQ-07 a NAK that comes twice restarts once
REQ-08 a refusal fails its own request
REQ-09 reserved syndromes are dropped
REQ-10 credits and MSN are not looked at
REQ-11 an old acknowledgement is dropped
REQ-12 a hole in READ data is asked for again
REQ-13 a lost answer is asked for again
REQ-14 an answer of another length ends the connection
REQ-15 a first packet of an answer is full
REQ-16 an answer of another kind ends the connection
REQ-17 repeated READ data completes once
REQ-18 late READ data touches nothing
REQ-19 no more READs in flight than agreed on
REQ-20 nothing overtakes a READ that waits
REQ-21 a fenced request waits for earlier READs
REQ-22 an invalidation waits for earlier requests
REQ-23 success that nobody wants to hear of is not told
REQ-24 its failure is
REQ-25 a sink that goes away fails its READ
REQ-26 a message of nothing is one packet
REQ-27 a window bounds what is in flight
REQ-28 the same stimulus gives the same packets
REQ-29 the first PSN is the one that the peer named
REQ-30 a resend is the same packet
ERR-01 a refusal completes everything once
ERR-02 a message that is cut off ends one receive
ERR-03 what is posted to a failed queue pair comes back
ERR-04 a flush ends everything, and nothing is touched later
ERR-05 a failed queue pair drops its packets
ERR-06 nothing is left of a destroyed queue pair
ERR-07 completions have room
ERR-08 shared receives stay for the others
ERR-09 what is flushed is named
ERR-10 a datagram of another size leaves connection management alive
CM-01 a Linux REQ is a connect event
CM-02 accept sends REP, and the queue pair receives
CM-03 RTU completes accept once
CM-04 without a listener: REJ 8
CM-05 reject carries 148 bytes
CM-06 a duplicate REQ is no second event
CM-07 it is answered by MRA
CM-08 a duplicate REQ after REP is silent
CM-09 a lost REQ is sent again
CM-10 a REQ that nobody answers is given up
CM-11 a lost REP is sent again
CM-12 a duplicate REP is answered by RTU
CM-13 MRA makes us wait
CM-14 a second MRA does not
CM-15 accept has no deadline
CM-16 REJ refuses, and its data is there
CM-17 REJ for unknown IDs is silent
CM-18 REP for unknown IDs is silent
CM-19 DREQ is answered, and told once
CM-20 DREQ in time-wait is answered again
CM-21 DREQ for unknown IDs is answered
CM-22 a lost DREQ is sent again, and given up in bounded time
CM-23 a peer that seems to have started anew is refused, and its old connection ends by silence
CM-24 REQ in time-wait is not ignored. Here REJ 10
CM-25 other management datagrams are silent
CM-26 so are those of another size
CM-27 other transports: REJ 9
CM-28 other path MTUs: REJ 26
CM-29 read limits are capped both ways
CM-30 a flood is bounded
CM-31 a REQ replayed after time-wait is a new one
CM-32 messages from another address are silent
CM-33 SIDR is answered, LAP and APR are not
CM-34 an alternate path is ignored
CM-35 reject after REP
CM-36 REJ 26 with a smaller path MTU is answered by one more REQ
CM-37 a flood of requests shuts no honest peer out
IPC-01 our header
IPC-02 other versions are rejected
IPC-03 other addresses than the packet's are rejected
IPC-04 only TCP's port space is listened to
IPC-05 the caller's data is delivered
IPC-06 longer data is refused before anything is sent
IPC-07 link-local and global IPv6 addresses connect
IPC-08 addresses of no host are rejected
SYS-01 a mixed workload survives loss, duplication, reordering and corruption
SYS-02 a partition for ever ends everything in bounded time
SYS-03 lost acknowledgements deliver nothing twice
SYS-04 reordering alone costs next to nothing
SYS-05 a peer that restarts
SYS-06 rping against rxe, both ways. Not perftest: its two ends settle what to do in a protocol of its own
SYS-07 loss and reordering cost little
SYS-08 SMB Direct against ksmbd
SYS-09 many queue pairs come and go, and nothing is left
SYS-10 a long READ under loss costs at most half as much again
SYS-11 congestion notifications lower the rate, and silence raises it
SYS-12 path MTUs of different ports
SYS-13 a link that is down for a second
SYS-14 an adapter's connection with itself
";

/// Cases without a test of their number, and why.
const OUTSIDE: &[(&str, &str)] =
    &[("SYS-08", "needs a Windows host: nothing of ours has run on one")];

const FAMILIES: [&str; 13] =
    ["pkt", "seq", "wrt", "dup", "rd", "atm", "rnr", "key", "req", "err", "cm", "ipc", "sys"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names of the tests in a source file: marked, or in the list of a suite that has a harness of its own.
pub(crate) fn tests(source: &str) -> impl Iterator<Item = &str> {
    let (mut marked, mut listed) = (false, false);
    source.lines().map(str::trim).filter_map(move |line| {
        if listed {
            listed = line != "}";
            return Some(line).filter(|_| listed);
        }
        listed = line.ends_with("tests! {");
        marked |= line == "#[test]";
        let name = line.strip_prefix("fn ").filter(|_| marked)?;
        marked = false;
        name.split('(').next()
    })
}

/// The cases whose numbers a name begins with.
fn cases(name: &str) -> Vec<String> {
    let mut cases = Vec::new();
    let (mut family, mut last, mut range) = (None, 0, false);
    for word in name.split('_') {
        let number = word.parse::<u8>().ok().filter(|_| word.len() == 2);
        match (family, number) {
            _ if FAMILIES.contains(&word) => (family, range) = (Some(word), false),
            (Some(family), Some(number)) => {
                let first = if range { last + 1 } else { number };
                let numbers = (first..=number).map(|n| format!("{}-{n:02}", family.to_uppercase()));
                cases.extend(numbers);
                (last, range) = (number, false);
            }
            (Some(_), None) if word == "to" => range = true,
            (Some(_), None) if word == "and" => {}
            _ => break,
        }
    }
    cases
}

/// Source files that may have tests, from the root of the repository.
fn all_sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for package in ["rocev2", "driver", "netadapter-glue", "tests"] {
        sources(&root.join(package), &mut files);
    }
    files.sort();
    let read = |path: PathBuf| {
        let source = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(root).unwrap().to_path_buf(), source)
    };
    files.into_iter().map(read).collect()
}

/// Goal: each row of "What frames can take" in `driver/README.md` names tests that there are: of a stranger, and of a peer.
#[test]
fn every_resource_has_its_tests() {
    let sources = all_sources();
    let names: BTreeSet<&str> = sources.iter().flat_map(|(_, source)| tests(source)).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = std::fs::read_to_string(root.join("driver/README.md")).unwrap();
    let (_, section) = readme.split_once("## What frames can take").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    let mut wrong = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, _, _, _, stranger, peer] = cells[..] else { panic!("{row}") };
        for cell in [stranger, peer] {
            let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            // A scenario under Wine stands in a list of names.
            let is_scenario = |name: &str| {
                let entry = format!(" {name}: \"");
                sources.iter().any(|(_, source)| source.contains(&entry))
            };
            let strange = named.iter().filter(|name| !names.contains(*name) && !is_scenario(name));
            wrong.extend(strange.map(|name| format!("{what}: {name} is no test")));
            if named.is_empty() {
                wrong.push(format!("{what} has no test"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_case_has_its_test() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, source) in &all_sources() {
        let place = path.display();
        for name in tests(source) {
            for case in cases(name) {
                found.entry(case).or_default().push(format!("{place}: {name}"));
            }
        }
    }
    let outside: BTreeMap<_, _> = OUTSIDE.iter().copied().collect();
    let (mut known, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in CASES.lines().filter(|line| !line.is_empty()) {
        let (id, meaning) = line.split_once(' ').unwrap();
        assert!(known.insert(id), "{id} is there twice");
        println!("{id}: {meaning}");
        match (found.get(id), outside.get(id)) {
            (Some(tests), None) => tests.iter().for_each(|test| println!("    {test}")),
            (None, Some(why)) => println!("    no test: {why}"),
            (None, None) => wrong.push(format!("{id} has no test")),
            (Some(_), Some(_)) => wrong.push(format!("{id} has a test after all")),
        }
    }
    let strange = found.keys().map(String::as_str).chain(outside.into_keys());
    wrong.extend(strange.filter(|id| !known.contains(id)).map(|id| format!("{id} is no case")));
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{} cases, {} of them without a test", known.len(), OUTSIDE.len());
}

/// That the check above finds what it looks for.
#[test]
fn a_name_tells_its_cases() {
    assert_eq!(cases("rd_02_to_04_and_dup_11_answers"), ["RD-02", "RD-03", "RD-04", "DUP-11"]);
    assert_eq!(cases("cm_06_07_a_duplicate_req_01"), ["CM-06", "CM-07"]);
    assert_eq!(cases("a_name_of_req_01"), [""; 0]);
    let source = "#[test]\n/// Why.\nfn seq_01_a() {\n    #[test]\n    fn b(\n}\nfn seq_02_c() {}";
    assert!(tests(source).eq(["seq_01_a", "b"]));
    assert!(
        tests("crate::tests! {\n    sys_14_a\n    b\n}\nfn sys_14_a() {}").eq(["sys_14_a", "b"])
    );
}
