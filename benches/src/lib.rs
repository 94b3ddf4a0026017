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

mod buffer;
pub mod consumer;
mod error;
mod mdl;
mod provider;

pub use buffer::Buffer;
pub use consumer::{
    Adapter, Arm, ConnectionData, Connector, Cq, Lam, Listener, Mr, Pd, Qp, QpConfig, ReadLimits,
    Remote, Request, Sge, SharedEndpoint,
};
pub use error::{NdkError, Result};
pub use mdl::Mdl;
pub use provider::Opener;
