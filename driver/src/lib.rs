//! The NDK provider: the C dispatch tables of `ndkpi.h` over the RoCEv2 transport.
//!
//! A consumer's call checks its arguments, puts a message or a work request into a ring and
//! returns. The poll cores own everything else: each takes from its rings, drives its part of the transport and
//! its edge, and calls the consumer back at the end of its turn.
//!
//! Each object of NDK has a room: `adapter`, `pd`, `cq`, `srq`, `qp`, `mr`, `mw`, `lam`, `connector`, `listener`,
//! `endpoint`. In each, `call` runs on the consumer's thread, `core` on the poll core, `shared` is what lies between
//! them, and `request` what a call asks of the first core. The other rooms:
//!
//! | Room | Holds |
//! | --- | --- |
//! | `abi` | the types of `ndkpi.h`: a crate, for consumers without a provider |
//! | `object` | what all objects have in common: the handle, the ids, the life |
//! | `message`, `shard`, `queue` | what a call gives to the poll core, and the rings that carry it |
//! | `request` | what the poll core does with a message, of whatever kind |
//! | `sync` | how threads agree: small values, each with its proof |
//! | `turn` | the poll cores: the order of a turn; the desk, which does what is not of a single core |
//! | `lane` | one core's part: its engine, its queue pairs and CQs, the steps of its turn |
//! | `cx`, `upcall`, `paths`, `zone` | what the core of every object works with |
//! | `bytes` | the memory behind every key |
//! | `passage` | frames on their way from the core that received them to their own |
//! | `limits`, `counters`, `status` | what the adapter accepts, counts and answers |
//! | `auto_traits` | which types threads may share |
//! | `platform` | the operating system |
//!
//! A room imports those of the objects that it builds on and what they share; `turn` imports the objects, and
//! nobody imports `turn` but the homes that run it.
//!
//! # Glossary
//!
//! Words of NDK and of [`rocev2`] have their meaning there. These are the provider's own.
//!
//! | Word | Meaning | Elsewhere |
//! | --- | --- | --- |
//! | consumer | the kernel driver, or the program, that calls the tables | NDK |
//! | initiator queue, token | the send queue; an L_Key or R_Key | NDK; the IBTA's words stand behind the tables |
//! | poll core | a thread of control that owns an edge of an adapter and, in its turns, a lane | a poll-mode driver |
//! | lane | the queue pairs of one core, and all that their work needs | |
//! | desk | what is not of a single core, done on the first one: messages, lives of objects, connections | |
//! | turn | one bounded pass of the poll core: receive, serve, send, complete, call back | |
//! | shard | the rings between the consumer's threads and the poll cores of an adapter | |
//! | home | the code that runs poll cores: a Linux thread, the Windows driver, a simulator | |
//! | doorbell | an object's entry in the ring of those that have work | a doorbell of hardware |
//! | message | a control request of a consumer or a home in the control ring | |
//! | place | the right to put one message into the control ring | a permit |
//! | arm | a consumer's request for one notification of a CQ | NDK: `NdkArmCq` |
//! | moderation | the delay of notifications by count and time | NDK: `NdkControlCqInterruptModeration` |
//! | page list | the pages of a fast registration, owned by the region or by the pool | |
//! | LAM | a mapping of logical addresses for DMA | NDK: `NdkBuildLam` |
//! | reserve | memory that is set aside before work that may not fail | |
#![no_std]

extern crate alloc;
#[cfg(any(test, target_os = "linux"))]
extern crate std;

mod adapter;
mod auto_traits;
mod bytes;
mod connector;
mod counters;
mod cq;
mod cx;
mod endpoint;
mod lam;
mod lane;
mod limits;
mod listener;
mod message;
mod mr;
mod mw;
mod object;
mod passage;
mod paths;
mod pd;
pub mod platform;
mod qp;
mod queue;
mod request;
mod shard;
mod srq;
mod status;
mod sync;
mod turn;
mod upcall;
mod zone;

pub use crate::adapter::request::Opened;
pub use crate::adapter::shared::{VERSION, negotiate};
pub use crate::counters::{AdapterCounters, Connection};
pub use crate::limits::Limits;
pub use crate::object::done::Closed;
pub use crate::platform::request::{Endpoint, Listed};
pub use crate::shard::Shard;
pub use crate::sync::Full;
pub use crate::turn::{PollCore, ProviderConfig, Turn};
pub use ndk_abi as abi;
#[cfg(target_os = "linux")]
pub use platform::{
    linux::{OwnLines, Provider, Waited},
    stepped::Stepped,
};
