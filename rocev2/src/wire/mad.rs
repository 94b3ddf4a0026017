//! Connection management datagrams.
