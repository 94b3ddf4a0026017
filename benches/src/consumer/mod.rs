//! Wrappers of the NDK objects.
#![allow(unsafe_code, reason = "every call goes through a C dispatch table")]

mod adapter;
mod connector;
mod cq;
mod lam;
mod listener;
mod mr;
mod object;
mod pd;
mod qp;
mod request;
mod shared_endpoint;

pub use adapter::Adapter;
pub use connector::{ConnectionData, Connector, ReadLimits};
pub use cq::{Arm, Cq};
pub use lam::Lam;
pub use listener::Listener;
pub use mr::{Mr, Remote, Sge};
pub use pd::Pd;
pub use qp::{Qp, QpConfig};
pub use request::Request;
pub use shared_endpoint::SharedEndpoint;
