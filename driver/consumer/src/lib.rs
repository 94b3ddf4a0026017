//! A safe consumer of the NDK dispatch tables.
//!
//! Everything goes the way a kernel consumer goes: through `(*object).Dispatch`, with
//! `STATUS_PENDING` and completion callbacks, or inline success. The wrappers own what they create:
//! an object keeps its antecedents alive (a QP its CQs and its PD, a connector its QP), and its
//! drop closes it and waits for the close completion. So nothing here may be dropped inside a
//! callback of the provider.
//!
//! ```text
//! Opener ─> Adapter ─> Cq
//!              ├─────> Pd ─> Mr, Qp
//!              ├─────> Listener ─> Connector (incoming)
//!              ├─────> Connector (outgoing)
//!              ├─────> SharedEndpoint
//!              └─────> Lam
//! ```
#![allow(unsafe_code, reason = "every call goes through a C dispatch table")]

mod adapter;
mod bell;
mod buffer;
mod connector;
mod cq;
mod error;
mod frmr;
mod lam;
mod listener;
mod mdl;
mod mr;
mod mw;
mod object;
mod opener;
mod pd;
mod qp;
mod request;
mod shared_endpoint;
mod srq;

pub use adapter::Adapter;
pub use buffer::Buffer;
pub use connector::{ConnectionData, Connector, ReadLimits};
pub use cq::{Arm, Cq};
pub use error::{NdkError, Result};
pub use frmr::{FastRegister, Frmr};
pub use lam::Lam;
pub use listener::Listener;
pub use mdl::Mdl;
pub use mr::{InlineData, Mr, Remote, Sge};
pub use mw::Mw;
pub use object::NdkObject;
pub use opener::{Opener, Waited};
pub use pd::Pd;
pub use qp::{Invalidate, Qp, QpConfig};
pub use request::Request;
pub use shared_endpoint::SharedEndpoint;
pub use srq::{Srq, SrqConfig};
