//! SMB 3 over SMB Direct: a client that writes and reads a file by the server's RDMA.

pub(crate) mod client;
pub(crate) mod direct;
pub(crate) mod file;
pub(crate) mod ntlm;
pub(crate) mod session;
pub(crate) mod wire;
