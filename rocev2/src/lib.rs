//! The RoCEv2 transport and its connection manager as a sans-IO library.
//!
//! [`Device`] is the whole surface. Frames and posted work go in by `handle_*` and `post_*` with the
//! caller's clock; packets, completions and events come out by `poll_*`. The crate has no clock, no IO,
//! no unsafe code and no randomness but its seed, so the same inputs give the same packets.
//!
//! | module | contents |
//! | --- | --- |
//! | [`wire`] | bytes and nothing else: Ethernet to ICRC, and the connection management datagrams |
//! | [`mr`] | keys: the memory that each names, with which rights: regions, windows, logical addresses |
//! | [`qp`] | a reliable connected queue pair: work requests, completions, shared receives, congestion control |
//! | [`cm`] | connections by communication ID: connect, accept, reject, disconnect |
//! | [`class`] | the priority and the DSCP of a service's packets |
//! | [`path`] | the next hop and VLAN of the packets between two addresses |
//! | [`counters`] | the counters of a device and its queue pairs, by name |
//! | [`env`](mod@env) | the environment that the caller supplies: instants, memory, a seed |
//! | [`psn`], [`ids`] | sequence numbers and identifiers |
//!
//! Inside, `wire` knows only numbers; `qp` and `cm` know `wire` and `mr` and not each other; only the
//! device knows both. The engines of a queue pair and the state machine of a connection are private.
//!
//! # Glossary
//!
//! Words of the InfiniBand Architecture Specification (IBTA) have its meaning here. These are the words
//! that it lacks, or has under another name.
//!
//! | word | meaning | elsewhere |
//! | --- | --- | --- |
//! | requester, completer | the send side of a queue pair: it sends requests; it processes their responses | both are the IBTA's requester; rxe has the same two words |
//! | responder | the receive side: it executes the peer's requests | IBTA |
//! | response | an ACK, a NAK or a READ response | IBTA |
//! | initiator request | a work request of the send queue | NDK's initiator queue |
//! | key | an R_Key or L_Key; a registration has one number for both | NDK's token |
//! | region | memory that a key names | IBTA: memory region; NDK: MR |
//! | window | in [`mr`] a memory window of type 2; in [`qp`] the send window, the limit on bytes in flight | NDK: MW |
//! | unit | one set of Ethernet, IP and UDP headers with one or more segments; each segment is one packet from BTH to ICRC | GSO, USO or URO packet |
//! | trial | one unit that leaves, while packets leave singly, so that its fate shows whether units pass | RFC 8899: probe |
//! | gap | PSNs that are missing before a packet that has come | |
//! | early | out of order: ahead of the expected PSN, behind a gap | |
//! | reorder buffer | early requests that wait at the responder, in slots of a pool that all queue pairs share | |
//! | template | the headers that all packets to a peer share | |
//! | flow | the headers that all packets from a peer share, and the short way to parse them | |
//! | turn | the packets that a queue pair sends before the next one does | |
//! | settle | to look, once after a burst, at what happened to a queue pair | |
//! | reorder window | the time for which a gap may be mere reordering | RFC 8985 |
//! | sequence NAK | the NAK code PSN sequence error | IBTA |
//! | implied NAK | a READ response that is missing before a later response | IBTA |
//! | pause | the wait after an RNR NAK | IBTA: RNR NAK timer |
//! | resend | to send a packet again; the IBTA also says retry | RFCs: retransmit |
//! | scoreboard | the requester's knowledge of what the peer has | RFC 6675 |
//! | copy | a READ request that was resent, while more than one may be in the network | |
//! | probe | a request without effect whose ACK shows what the peer has | RFC 8985: tail loss probe |
//! | unsolicited ACK | an ACK that is repeated without a request | IBTA: unsolicited acknowledge |
//! | token bucket | it paces a queue pair to the rate of congestion control | DCQCN: rate limiter |
//! | owner | the caller's name for a queue pair, a shared receive queue or a connection | verbs: context |
//! | release | the caller's last word on a connection; its ID is gone after `Closed` | `rdma_destroy_id` |
//! | time-wait | the time for which the IDs of an ended connection are remembered | IBTA: TimeWait |
//! | stale | of a connection: the peer has started anew and no longer has it | IBTA: stale connection |
//! | hop, path | the MAC address and VLAN that lead to a peer; the two addresses that use it | |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod class;
pub mod cm;
pub mod counters;
mod device;
pub mod env;
pub mod ids;
mod index;
pub mod mr;
pub mod path;
mod peer_limits;
pub mod psn;
pub mod qp;
mod timer;
mod units;
pub mod wire;

pub use cm::Connect;
pub use device::{Device, DeviceConfig, Engine, Engines, Event, Front, LinkEnd, Opening, split};

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
