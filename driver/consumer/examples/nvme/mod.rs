//! NVMe over RDMA: a target that serves a RAM disk, and a host.

pub(crate) mod host;
pub(crate) mod identify;
mod queue;
pub(crate) mod target;
pub(crate) mod wire;
