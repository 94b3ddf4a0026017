//! The conformance catalogue: each case is a test that carries its number, against a peer whose packets
//! are made by hand, over IPv4 and over IPv6, on a virtual clock.
//!
//! Cases that this crate's other tests or another crate's own prove are not written again:
//! `every_case_has_its_test` finds each by its name, and prints where it is
//! (`cargo test -p tests --test conformance every_case -- --nocapture`).
//!
//! Each call into the device that a case makes on the data path is counted: none may allocate.

#[path = "conformance/atm.rs"]
mod atm;
#[path = "conformance/catalogue.rs"]
mod catalogue;
#[path = "conformance/count.rs"]
mod count;
#[path = "conformance/cve.rs"]
mod cve;
#[path = "conformance/dup.rs"]
mod dup;
#[path = "conformance/err.rs"]
mod err;
#[path = "conformance/flood.rs"]
mod flood;
#[path = "conformance/forged.rs"]
mod forged;
#[path = "wire/frames.rs"]
#[allow(dead_code, reason = "the tests of the codecs need more of it")]
mod frames;
#[path = "wire/golden.rs"]
#[allow(dead_code, reason = "only the captured REQ is needed here")]
mod golden;
#[path = "conformance/guesses.rs"]
mod guesses;
#[path = "conformance/holding.rs"]
mod holding;
#[path = "conformance/honest.rs"]
mod honest;
#[path = "conformance/hostile.rs"]
mod hostile;
#[path = "conformance/key.rs"]
mod key;
#[path = "conformance/lockstep.rs"]
mod lockstep;
#[path = "conformance/martian.rs"]
mod martian;
#[path = "conformance/neighbour.rs"]
mod neighbour;
#[path = "conformance/origin.rs"]
mod origin;
#[path = "src/sim/packet.rs"]
#[allow(dead_code, reason = "the simulator needs more of it")]
mod packet;
#[path = "conformance/peer.rs"]
mod peer;
#[path = "conformance/pkt.rs"]
mod pkt;
#[path = "conformance/rd.rs"]
mod rd;
#[path = "conformance/req.rs"]
mod req;
#[path = "conformance/rnr.rs"]
mod rnr;
#[path = "conformance/seq.rs"]
mod seq;
#[path = "conformance/sys.rs"]
mod sys;
#[path = "conformance/timeouts.rs"]
mod timeouts;
#[path = "conformance/wrt.rs"]
mod wrt;

#[global_allocator]
static ALLOCATOR: tests::alloc::Counting = tests::alloc::Counting;
