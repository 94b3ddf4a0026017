//! What most tests of the tables make, by the wrappers of `ndk_consumer`.
#![allow(clippy::missing_panics_doc, reason = "tests panic where something is refused")]

use super::{ALL_ACCESS, PATIENCE};
use driver::abi::*;
use ndk_consumer::{Adapter, Buffer, Connector, Cq, Listener, Mr, NdkError, Pd, Qp, QpConfig};
use std::sync::Arc;
use std::time::Instant;

/// What a consumer makes before it connects.
pub struct Side {
    /// For everything.
    pub cq: Arc<Cq>,
    /// A MiB with every right.
    pub mr: Arc<Mr>,
    /// Of the default size.
    pub qp: Arc<Qp>,
    /// Parent of both.
    pub pd: Arc<Pd>,
}

/// A connection and both of its ends.
pub struct Connection {
    /// Client, server.
    pub sides: [Side; 2],
    /// Active, passive.
    pub connectors: [Connector; 2],
    /// The server's.
    pub listener: Arc<Listener>,
}

/// The objects of a connection that are not a side's.
pub struct Connected {
    /// The client's.
    pub active: Connector,
    /// The server's.
    pub passive: Connector,
    /// The server's.
    pub listener: Arc<Listener>,
}

impl Side {
    /// On an adapter.
    pub fn new(adapter: &Arc<Adapter>) -> Self {
        Self::with_cq(adapter, adapter.create_cq(256).unwrap())
    }

    /// The same on a core of the adapter.
    pub fn near(adapter: &Arc<Adapter>, core: usize) -> Self {
        Self::with_cq(adapter, adapter.create_cq_near(256, 1 << core).unwrap())
    }

    /// The same with this CQ.
    pub fn with_cq(adapter: &Arc<Adapter>, cq: Arc<Cq>) -> Self {
        let pd = adapter.create_pd().unwrap();
        let mr = pd.register(Buffer::new(1 << 20), ALL_ACCESS).unwrap();
        let qp = pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
        Side { cq, mr, qp, pd }
    }

    /// The next completions, which have to come.
    pub fn results(&self, count: usize) -> Vec<NDK_RESULT_EX> {
        let mut all = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} completions came", all.len());
            let mut results = [NDK_RESULT_EX::EMPTY; 16];
            let taken = self.cq.wait_results_ex(&mut results, PATIENCE).unwrap();
            all.extend_from_slice(&results[..taken]);
        }
        all
    }

    /// The types and statuses of the next completions.
    pub fn ends(&self, count: usize) -> Vec<(NDK_OPERATION_TYPE, NTSTATUS)> {
        self.results(count).iter().map(|result| (result.Type, result.Status)).collect()
    }

    /// The statuses of the next completions.
    pub fn statuses(&self, count: usize) -> Vec<NTSTATUS> {
        self.results(count).iter().map(|result| result.Status).collect()
    }

    /// Writes a pattern.
    pub fn fill(&self, seed: u8) {
        let bytes: Vec<u8> = (0..1 << 20)
            .map(|place: u32| (place as u8).wrapping_mul(seed) ^ (place >> 8) as u8)
            .collect();
        self.mr.buffer().write(0, &bytes);
    }

    /// Reads.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.buffer().read(offset, &mut bytes);
        bytes
    }
}

/// The status that a call ended with.
pub fn status<T>(result: Result<T, NdkError>) -> NTSTATUS {
    match result {
        Ok(_) => STATUS_SUCCESS,
        Err(error) => error.status,
    }
}
