//! What is posted on a queue, so that every completion is accounted for: each exactly once, and in order.

use std::collections::VecDeque;

use ndk_consumer::NdkError;

use crate::failure::Failure;

/// What is posted on one queue, oldest first. Its numbers are the request contexts.
#[derive(Debug)]
pub(crate) struct Ledger {
    queue: &'static str,
    next: usize,
    outstanding: VecDeque<Posted>,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    number: usize,
    tag: usize,
    silent: bool,
}

impl Ledger {
    pub(crate) const fn new(queue: &'static str) -> Self {
        Self { queue, next: 0, outstanding: VecDeque::new() }
    }

    pub(crate) fn post(
        &mut self,
        tag: usize,
        silent: bool,
        post: impl FnOnce(usize) -> Result<(), NdkError>,
    ) -> Result<(), NdkError> {
        post(self.next)?;
        self.outstanding.push_back(Posted { number: self.next, tag, silent });
        self.next += 1;
        Ok(())
    }

    /// The tag of the request that `context` numbers, which must be the oldest one but for silent ones: those have
    /// succeeded, as requests end in the order in which they were posted.
    pub(crate) fn complete(
        &mut self,
        context: usize,
        mut silent: impl FnMut(usize),
    ) -> Result<usize, Failure> {
        loop {
            let oldest = self.outstanding.front().copied();
            match oldest {
                Some(Posted { number, tag, .. }) if number == context => {
                    self.outstanding.pop_front();
                    return Ok(tag);
                }
                Some(Posted { tag, silent: true, .. }) => {
                    self.outstanding.pop_front();
                    silent(tag);
                }
                _ => {
                    let expected = oldest.map(|posted| posted.number);
                    return Err(Failure::Order { queue: self.queue, expected, context });
                }
            }
        }
    }

    /// How many requests are open.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }
}

/// What is posted on a shared receive queue. Its queue pairs take the receives in the order of the posts, and each of them
/// completes its own when its message is whole.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    next: usize,
    /// The numbers of those that are open, by tag.
    posted: Vec<Option<usize>>,
}

impl SharedLedger {
    /// Tags are below `depth`.
    pub(crate) fn new(depth: usize) -> Self {
        Self { next: 0, posted: vec![None; depth] }
    }

    /// # Panics
    /// If a receive of this tag is open.
    pub(crate) fn post(
        &mut self,
        tag: usize,
        post: impl FnOnce(usize) -> Result<(), NdkError>,
    ) -> Result<(), NdkError> {
        let place = &mut self.posted[tag];
        assert!(place.is_none(), "the receive {tag} is posted already");
        // No other request has this context, of a later post of the tag neither.
        post(self.next * self.posted.len() + tag)?;
        self.posted[tag] = Some(self.next);
        self.next += 1;
        Ok(())
    }

    /// The tag of the receive of this context, which one queue pair has completed after `last`, if after any.
    pub(crate) fn complete(
        &mut self,
        context: usize,
        last: &mut Option<usize>,
    ) -> Result<usize, Failure> {
        let (number, tag) = (context / self.posted.len(), context % self.posted.len());
        if self.posted[tag] != Some(number) {
            return Err(Failure::Order { queue: SHARED, expected: None, context: number });
        }
        if let Some(last) = last.filter(|last| *last > number) {
            return Err(Failure::Order { queue: SHARED, expected: Some(number), context: last });
        }
        self.posted[tag] = None;
        *last = Some(number);
        Ok(tag)
    }
}

const SHARED: &str = "shared receive";

#[cfg(test)]
mod tests {
    use super::*;
    use driver::abi::STATUS_CONNECTION_INVALID;

    fn none(tag: usize) {
        panic!("{tag} was not silent");
    }

    #[test]
    fn completions_come_in_order_and_once() {
        let mut ledger = Ledger::new("initiator");
        for tag in [7, 8, 9] {
            ledger.post(tag, false, |_| Ok(())).unwrap();
        }
        assert_eq!(ledger.complete(0, none).unwrap(), 7);
        assert!(matches!(
            ledger.complete(2, none),
            Err(Failure::Order { expected: Some(1), context: 2, .. })
        ));
        assert!(ledger.complete(0, none).is_err(), "twice");
        assert_eq!(ledger.complete(1, none).unwrap(), 8);
        assert_eq!(ledger.complete(2, none).unwrap(), 9);
        assert!(matches!(ledger.complete(3, none), Err(Failure::Order { expected: None, .. })));
    }

    #[test]
    fn a_refused_post_is_not_outstanding() {
        let error = NdkError { status: STATUS_CONNECTION_INVALID, call: "NdkSend" };
        let mut ledger = Ledger::new("initiator");
        assert!(ledger.post(1, false, |_| Err(error)).is_err());
        assert!(ledger.complete(0, none).is_err());
        ledger
            .post(2, false, |context| {
                assert_eq!(context, 0);
                Ok(())
            })
            .unwrap();
        assert_eq!(ledger.complete(0, none).unwrap(), 2);
    }

    #[test]
    fn silent_requests_end_with_the_next_one_that_is_told() {
        let mut ledger = Ledger::new("initiator");
        for (tag, silent) in [(7, true), (8, true), (9, false), (10, true)] {
            ledger.post(tag, silent, |_| Ok(())).unwrap();
        }
        let mut passed = Vec::new();
        assert_eq!(ledger.complete(2, |tag| passed.push(tag)).unwrap(), 9);
        assert_eq!(passed, [7, 8]);
        assert!(ledger.complete(4, |_| ()).is_err(), "it was not posted");
    }

    /// Goal: of a shared queue each queue pair has its receives in order, and each receive completes once, whatever
    /// is posted in its place meanwhile.
    #[test]
    fn a_shared_queue_is_in_order_for_each_queue_pair() {
        let mut ledger = SharedLedger::new(4);
        let post = |ledger: &mut SharedLedger, tag| {
            let mut given = None;
            let taken = |context| {
                given = Some(context);
                Ok(())
            };
            ledger.post(tag, taken).unwrap();
            given.unwrap()
        };
        let contexts = [0, 1, 2, 3].map(|tag| post(&mut ledger, tag));
        let (mut a, mut b) = (None, None);
        assert_eq!(ledger.complete(contexts[2], &mut a).unwrap(), 2);
        assert_eq!(ledger.complete(contexts[1], &mut b).unwrap(), 1, "another one took it before");
        let behind = ledger.complete(contexts[0], &mut a);
        assert!(matches!(behind, Err(Failure::Order { expected: Some(0), context: 2, .. })));
        let again = post(&mut ledger, 2);
        for context in [contexts[1], contexts[2], again + 4] {
            let none = ledger.complete(context, &mut b);
            assert!(matches!(none, Err(Failure::Order { expected: None, .. })), "{none:?}");
        }
        assert_eq!(ledger.complete(again, &mut a).unwrap(), 2);
        assert_eq!(ledger.complete(contexts[3], &mut b).unwrap(), 3);
    }
}
