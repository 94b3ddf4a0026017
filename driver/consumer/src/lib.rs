//! A safe consumer of the NDK dispatch tables.
//!
//! Everything goes the way a kernel consumer goes: through `(*object).Dispatch`, with
//! `STATUS_PENDING` and completion callbacks, or inline success. The wrappers own what they create:
//! an object keeps its antecedents alive (a QP its CQs and its PD, a connector its QP), and its
//! drop closes it and waits for the close completion. So nothing here may be dropped inside a
//! callback of the provider.
//!
//! [`Host`] opens an edge, a provider and an adapter at once, and an [`Endpoint`] is a connection that is ready for
//! use. Below them is one type for each object of NDK:
//!
//! ```text
//! Host ─> Endpoint, Region
//!
//! Opener ─> Adapter ─> Cq
//!              ├─────> Pd ─> Mr, Frmr, Mw, Srq, Qp
//!              ├─────> Listener ─> Connector (incoming)
//!              ├─────> Connector (outgoing)
//!              ├─────> SharedEndpoint
//!              └─────> Lam
//! ```
//!
//! A first program: the server lends memory and says where it is, by [`Remote::to_bytes`]; the client WRITEs.
//! [`Endpoint::read`] goes the other way. Each end waits until the connection stands, and so has a thread here; after that
//! one thread may have both. Values are dropped in any order; [`Endpoint::disconnect`] comes before that where posted
//! requests are still to end well. The sizes and numbers of messages and requests are in [`EndpointConfig`].
//!
//! ```
#![cfg_attr(target_os = "linux", doc = include_str!("../examples/write.rs"))]
//! ```
#![allow(unsafe_code, reason = "every call goes through a C dispatch table")]

mod adapter;
mod auto_traits;
mod bell;
mod buffer;
mod connector;
mod cq;
mod endpoint;
mod error;
mod flags;
mod frmr;
#[cfg(target_os = "linux")]
mod host;
mod lam;
mod listener;
mod mdl;
mod mr;
mod mw;
mod object;
mod opener;
mod pd;
mod qp;
mod region;
mod request;
mod shared_endpoint;
mod srq;

pub use adapter::Adapter;
pub use buffer::Buffer;
pub use connector::{ConnectionData, Connector, ReadLimits};
pub use cq::{Arm, Cq};
pub use endpoint::{Endpoint, EndpointConfig, EndpointError, Event, Message, Operation};
pub use error::{NdkError, Result};
pub use flags::{Flags, Rights};
pub use frmr::{FastRegister, Frmr};
#[cfg(target_os = "linux")]
pub use host::{Host, HostBuilder, OpenError, pair, pair_with};
pub use lam::Lam;
pub use listener::Listener;
pub use mdl::Mdl;
pub use mr::{InlineData, Mr, Remote, Sge};
pub use mw::Mw;
pub use object::NdkObject;
pub use opener::{Opener, Waited};
pub use pd::Pd;
pub use qp::{Invalidate, Qp, QpConfig};
pub use region::Region;
pub use request::Request;
pub use shared_endpoint::SharedEndpoint;
pub use srq::{Srq, SrqConfig};

/// The programs of the README.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
