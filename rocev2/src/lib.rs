//! The RoCEv2 transport and its connection manager as a sans-IO library.
//!
//! [`device::Device`] is the whole surface. Frames and posted work go in by `handle_*` and `post_*`
//! with the caller's clock; packets, completions and events come out by `poll_*`. The crate has no
//! clock, no IO, no unsafe code and no randomness but its seed, so the same inputs give the same
//! packets.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | bytes and nothing else: Ethernet to ICRC, and the connection management datagrams |
//! | [`mr`] | which key names which memory, with which rights: regions, windows, logical addresses |
//! | [`qp`] | a reliable connected queue pair: requester, completer, responder, READ responder; shared receives; congestion control |
//! | [`cm`] | connections by communication ID: connect, accept, reject, disconnect, resend |
//! | [`path`] | how the packets between two addresses get onto the link: next hop, VLAN |
//! | [`device`] | demultiplexes by QPN and joins the others |
//! | [`counters`] | what a device and its queue pairs count, by name |
//! | [`timer`] | deadlines of all queue pairs |
//! | [`env`](mod@env) | what the outside supplies: instants, memory, a seed |
//! | [`patience`] | how far a peer's times and counts are trusted |
//! | [`psn`], [`ids`] | sequence numbers and names |
//!
//! `wire` knows only numbers; `qp` and `cm` know `wire` and `mr` and not each other; only `device`
//! knows both.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cm;
pub mod counters;
pub mod device;
pub mod env;
pub mod ids;
pub mod mr;
pub mod path;
pub mod patience;
pub mod psn;
pub mod qp;
pub mod timer;
pub mod wire;
