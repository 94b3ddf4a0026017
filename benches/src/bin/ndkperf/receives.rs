//! The receives of a connection: on its queue pair's own queue, or on one that all queue pairs of a thread share.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ndk_consumer::{NdkError, Pd, Qp, Sge, Srq, SrqConfig};

use crate::failure::Failure;
use crate::ledger::{Ledger, SharedLedger};

/// A shared receive queue of one thread.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    srq: Arc<Srq>,
    ledger: RefCell<SharedLedger>,
}

impl SharedReceives {
    /// A queue for `depth` receives of one element, whose tags are below that.
    pub(crate) fn new(pd: &Arc<Pd>, depth: u32) -> Result<Rc<Self>, Failure> {
        let srq = pd.create_srq(SrqConfig { depth, receive_sge: 1, threshold: 0 })?;
        Ok(Rc::new(Self { srq, ledger: RefCell::new(SharedLedger::new(depth as usize)) }))
    }

    /// The queue itself.
    pub(crate) const fn srq(&self) -> &Arc<Srq> {
        &self.srq
    }
}

/// The queue that a connection's receives are posted on.
#[derive(Debug)]
pub(crate) enum Receives {
    Own(Ledger),
    Shared {
        queue: Rc<SharedReceives>,
        /// The number of the last receive that this connection took.
        last: Option<usize>,
    },
}

impl Receives {
    pub(crate) fn new(shared: Option<&Rc<SharedReceives>>) -> Self {
        match shared {
            None => Self::Own(Ledger::new("receive")),
            Some(queue) => Self::Shared { queue: Rc::clone(queue), last: None },
        }
    }

    /// Posts one; `qp` is the connection's.
    pub(crate) fn post(&mut self, qp: &Qp, tag: usize, sge: Sge<'_>) -> Result<(), NdkError> {
        match self {
            Self::Own(ledger) => ledger.post(tag, false, |context| qp.receive(context, &[sge])),
            Self::Shared { queue, .. } => {
                let post = |context| queue.srq.receive(context, &[sge]);
                queue.ledger.borrow_mut().post(tag, post)
            }
        }
    }

    /// The tag of one that the connection has completed.
    pub(crate) fn complete(&mut self, context: usize) -> Result<usize, Failure> {
        match self {
            Self::Own(ledger) => ledger.complete(context, |_| ()),
            Self::Shared { queue, last } => queue.ledger.borrow_mut().complete(context, last),
        }
    }
}
