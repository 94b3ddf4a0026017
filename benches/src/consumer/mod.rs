//! Wrappers of the NDK objects.
#![allow(unsafe_code, reason = "every call goes through a C dispatch table")]

mod adapter;
mod connector;
mod cq;
mod frmr;
mod lam;
mod listener;
mod mr;
mod mw;
mod object;
mod pd;
mod qp;
mod request;
mod shared_endpoint;
mod srq;

pub use adapter::Adapter;
pub use connector::{ConnectionData, Connector, ReadLimits};
pub use cq::{Arm, Cq};
pub use frmr::{FastRegister, Frmr};
pub use lam::Lam;
pub use listener::Listener;
pub use mr::{InlineData, Mr, Remote, Sge};
pub use mw::Mw;
pub use pd::Pd;
pub use qp::{Invalidate, Qp, QpConfig};
pub use request::Request;
pub use shared_endpoint::SharedEndpoint;
pub use srq::{Srq, SrqConfig};
