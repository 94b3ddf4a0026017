//! The requests that are posted and have not ended.

use super::{EndpointError, Operation};
use crate::Result;

/// A posted request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pending {
    /// A receive into this slot.
    Receive { slot: usize },
    /// A SEND from this slot.
    Send { slot: usize },
    /// Any other request. The tag is its user's, or a token.
    Request { operation: Operation, tag: u64 },
}

/// Posted requests by their contexts, which are places in a table.
#[derive(Debug)]
pub(super) struct Ledger {
    places: Vec<Option<Pending>>,
    free: Vec<usize>,
}

impl Pending {
    /// The kind of the request.
    pub(super) const fn operation(self) -> Operation {
        match self {
            Self::Receive { .. } => Operation::Receive,
            Self::Send { .. } => Operation::Send,
            Self::Request { operation, .. } => operation,
        }
    }
}

impl Ledger {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Posts a request with a context of its own. One that is refused leaves nothing.
    pub(super) fn post(
        &mut self,
        pending: Pending,
        post: impl FnOnce(usize) -> Result<()>,
    ) -> Result<()> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let posted = post(place);
        match posted {
            Ok(()) => self.places[place] = Some(pending),
            Err(_) => self.free.push(place),
        }
        posted
    }

    /// The request of this context, which has ended.
    pub(super) fn end(&mut self, context: usize) -> std::result::Result<Pending, EndpointError> {
        let place = self.places.get_mut(context).and_then(Option::take);
        let pending = place.ok_or(EndpointError::Stray(context))?;
        self.free.push(context);
        Ok(pending)
    }

    /// Requests that have not ended, receives included.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Requests that have not ended, but for messages.
    pub(super) fn requests(&self) -> usize {
        let is_request = |pending: &&Pending| matches!(pending, Pending::Request { .. });
        self.places.iter().flatten().filter(is_request).count()
    }

    /// Whether all but receives have ended.
    pub(super) fn is_sent(&self) -> bool {
        self.places.iter().flatten().all(|pending| pending.operation() == Operation::Receive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NdkError;
    use driver::abi::STATUS_CONNECTION_INVALID;

    const REFUSED: NdkError = NdkError { status: STATUS_CONNECTION_INVALID, call: "NdkSend" };

    #[test]
    fn a_context_is_one_request_until_it_has_ended() {
        let mut ledger = Ledger::new();
        let mut contexts = Vec::new();
        for slot in 0..3 {
            let post = |context| {
                contexts.push(context);
                Ok(())
            };
            ledger.post(Pending::Send { slot }, post).unwrap();
        }
        assert_eq!((ledger.len(), ledger.is_sent()), (3, false));
        assert_eq!(ledger.end(contexts[1]), Ok(Pending::Send { slot: 1 }));
        assert_eq!(ledger.end(contexts[1]), Err(EndpointError::Stray(contexts[1])), "twice");
        assert_eq!(ledger.end(99), Err(EndpointError::Stray(99)));
        let again = |context| {
            assert_eq!(context, contexts[1]);
            Ok(())
        };
        ledger.post(Pending::Receive { slot: 7 }, again).unwrap();
        assert_eq!(ledger.end(contexts[1]), Ok(Pending::Receive { slot: 7 }));
    }

    #[test]
    fn a_refused_post_is_not_outstanding() {
        let mut ledger = Ledger::new();
        let receive = Pending::Receive { slot: 0 };
        assert_eq!(ledger.post(receive, |_| Err(REFUSED)), Err(REFUSED));
        assert_eq!((ledger.len(), ledger.end(0)), (0, Err(EndpointError::Stray(0))));
        ledger.post(receive, |_| Ok(())).unwrap();
        assert_eq!((ledger.len(), ledger.is_sent()), (1, true));
    }
}
