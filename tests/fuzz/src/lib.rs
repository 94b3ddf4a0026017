//! The bodies of the fuzz targets. Each takes any bytes, and panics where a promise is broken.
//!
//! | target | takes the bytes for | promises |
//! | --- | --- | --- |
//! | [`packet`] | a received unit | it parses or is dropped; what parses is written again as the same packet |
//! | [`packet_icrc`] | a frame whose lengths, checksums and ICRC are then made right | the same, behind the ICRC; its ICRC is the one computed here |
//! | [`mad`] | a CM datagram | the same |
//! | [`responder`] | calls, time, and altered and forged requests, on two connected devices | every work request completes once; memory is touched inside live regions and rights only; no storm; nothing is left at the end |
//! | [`completer`] | the same, and forged responses | the same |
//! | [`cm`] | calls of two consumers, time, and altered and repeated CM datagrams | every kind of event comes once for a connection, none after the last; no storm; nothing is left at the end |
//! | [`neighbour`] | connects, doubts, true and forged ARP and neighbour discovery, time | no frame has another source than ours; queries and answers are bounded whatever comes; a connect finds the host that lives in time, and each has a result |
//! | [`decode`] | a file that `ndkperf decode` explains | it is explained as far as it can be read, twice in the same words, and in no more than its length allows |
//! | [`snapshot`] | a snapshot of the control device, and a room for one | it is read or refused; what is read is written again as the same bytes, in any room as far as that goes |
//! | [`keywords`] | the values that the registry has for an adapter of the Windows driver | its sizes, cores, tags and names are such as it can have |
//! | [`edge`] | the string of an edge | it names one or is refused in words; what is named is written as a string that names the same |
//! | [`tables`] | calls of the dispatch tables of two providers, time, and lost frames | misuse gets a status; each request ends once, a close always; nothing is left at the end |
//! | [`cores`] | posts on connections between the cores of two devices, turns, and frames that come to any core, late, altered or twice | each request completes once; where nothing was altered, well and with the right bytes; nothing is left at the end |
//!
//! The bytes of `responder`, `completer`, `cm`, `neighbour`, `tables` and `cores` are a sequence of structured operations. `../corpus` keeps inputs that
//! reach all that has been reached; `../fuzz_corpus.rs` runs them, and random ones, in every test run.

mod captures;
mod cores;
mod datagrams;
#[allow(dead_code, reason = "shared with the tests of the codecs, which use all of it")]
#[path = "../../wire/frames.rs"]
mod frames;
mod hosts;
mod keywords;
mod neighbour;
mod packets;
mod settings;
mod tables;
mod transport;
mod world;

pub use captures::decode;
pub use cores::cores;
pub use datagrams::cm;
pub use keywords::keywords;
pub use neighbour::neighbour;
pub use packets::{mad, packet, packet_icrc};
pub use settings::{edge, snapshot};
pub use tables::tables;
pub use transport::{completer, responder};

/// A target's name, which is that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 13] = [
    ("packet", packet),
    ("packet_icrc", packet_icrc),
    ("mad", mad),
    ("responder", responder),
    ("completer", completer),
    ("cm", cm),
    ("neighbour", neighbour),
    ("decode", decode),
    ("snapshot", snapshot),
    ("edge", edge),
    ("tables", tables),
    ("cores", cores),
    ("keywords", keywords),
];
