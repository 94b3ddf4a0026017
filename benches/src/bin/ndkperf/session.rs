//! One connection whose completions are accounted for: in order, each exactly once.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use driver::abi::*;
use ndk_consumer::{
    Adapter, Connector, Cq, Mr, NdkError, Pd, Qp, QpConfig, ReadLimits, Remote, Request,
};

use crate::failure::Failure;

/// How a session waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// How long nothing may happen.
    pub(crate) patience: Duration,
    /// Polls the completion queue again and again, instead of waiting for its notification.
    pub(crate) busy_poll: bool,
    /// Completions that a notification waits for, if they come in time.
    pub(crate) cq_mod: u32,
}

/// The time that a notification waits for more completions, in microseconds.
pub(crate) const MODERATION_US: u32 = 500;
/// The most that it waits for.
pub(crate) const MODERATION_MAX: u32 = 64;

/// How many requests each queue takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    pub(crate) receive: u32,
    pub(crate) initiator: u32,
}

/// A request that has ended well. The tag is that of its post.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    Initiated { tag: usize },
    Received { tag: usize, len: usize },
}

/// A connection with one QP and one CQ.
#[derive(Debug)]
pub(crate) struct Session {
    connector: Connector,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    initiator: Ledger,
    receive: Ledger,
    results: Vec<NDK_RESULT_EX>,
    /// The first post that came after the end of the connection.
    late: Option<NdkError>,
    waits: Waits,
    /// Asked while waiting: whether the user wants to end.
    stop: fn() -> bool,
    /// There is one processor, which the peer may want.
    alone: bool,
}

impl Session {
    /// An endpoint that is not connected yet; waits give up after their patience without progress.
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        pd: &Arc<Pd>,
        connector: Connector,
        depths: Depths,
        waits: Waits,
    ) -> Result<Self, Failure> {
        let cq = adapter.create_cq(depths.receive + depths.initiator)?;
        if waits.cq_mod > 1 {
            cq.moderate(MODERATION_US, waits.cq_mod)?;
        }
        let config = QpConfig {
            receive_depth: depths.receive,
            initiator_depth: depths.initiator,
            ..QpConfig::default()
        };
        Ok(Self {
            connector,
            qp: pd.create_qp(&cq, &cq, config)?,
            cq,
            initiator: Ledger::new("initiator"),
            receive: Ledger::new("receive"),
            results: vec![NDK_RESULT_EX::EMPTY; 64],
            late: None,
            waits,
            stop: never,
            alone: thread::available_parallelism().is_ok_and(|processors| processors.get() == 1),
        })
    }

    /// From here on a wait ends with [`Failure::Interrupted`] once `stop` says so.
    pub(crate) const fn stop_when(&mut self, stop: fn() -> bool) {
        self.stop = stop;
    }

    /// Connects; receives may be posted before.
    pub(crate) fn connect(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        limits: ReadLimits,
    ) -> Result<(), Failure> {
        let request = self.connector.connect(&self.qp, local, remote, limits, &[]);
        // The provider's own time limit ends this one, or the user.
        loop {
            if let Some(result) = request.wait_timeout(SLICE) {
                result?;
                break;
            }
            self.check_stop()?;
        }
        self.finish(&self.connector.complete_connect())
    }

    /// Accepts; receives must be posted before, or the peer's first message finds none.
    pub(crate) fn accept(&self, limits: ReadLimits) -> Result<(), Failure> {
        self.finish(&self.connector.accept(&self.qp, limits, &[]))
    }

    /// Our end of the connection.
    pub(crate) fn local_address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.connector.local_address()?)
    }

    fn finish(&self, request: &Request) -> Result<(), Failure> {
        match request.wait_timeout(self.waits.patience) {
            Some(result) => Ok(result?),
            None => Err(Failure::Stalled(self.waits.patience)),
        }
    }

    /// Ends the connection from this side; whether the peer has confirmed it. A peer that has all it wanted
    /// may be gone before its answer arrives, and nobody repeats a lost one then: that is no failure.
    pub(crate) fn disconnect(&self) -> Result<bool, Failure> {
        match self.finish(&self.connector.disconnect()) {
            Ok(()) => Ok(true),
            Err(Failure::Ndk(NdkError { status: STATUS_IO_TIMEOUT, .. })) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Passes `result` on; where the user ended it, the peer is told before. A process that ends repeats nothing, so that
    /// a DREQ that is lost would leave the peer to its retries.
    pub(crate) fn tell_of<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.as_ref().is_err_and(Failure::is_interruption) {
            // The peer may have gone itself, and the user wants to end in any case.
            let _ = self.disconnect();
        }
        result
    }

    /// Waits until the peer has ended the connection, which all that was posted must precede.
    pub(crate) fn wait_disconnected(&self) -> Result<(), Failure> {
        if let Some(late) = self.late {
            return Err(late.into());
        }
        if self.connector.wait_disconnected(self.waits.patience) {
            return Ok(());
        }
        Err(Failure::Stalled(self.waits.patience))
    }

    pub(crate) fn receive(
        &mut self,
        mr: &Mr,
        range: Range<usize>,
        tag: usize,
    ) -> Result<(), Failure> {
        let qp = &self.qp;
        let posted = self.receive.post(tag, |context| qp.receive(context, &[mr.sge(range)]));
        self.in_time(posted)
    }

    pub(crate) fn send(&mut self, mr: &Mr, range: Range<usize>, tag: usize) -> Result<(), Failure> {
        let qp = &self.qp;
        let posted = self.initiator.post(tag, |context| qp.send(context, &[mr.sge(range)], 0));
        self.in_time(posted)
    }

    pub(crate) fn write(
        &mut self,
        mr: &Mr,
        range: Range<usize>,
        remote: Remote,
        tag: usize,
    ) -> Result<(), Failure> {
        let qp = &self.qp;
        let post = |context| qp.write(context, &[mr.sge(range)], remote, 0);
        let posted = self.initiator.post(tag, post);
        self.in_time(posted)
    }

    pub(crate) fn read(
        &mut self,
        mr: &Mr,
        range: Range<usize>,
        remote: Remote,
        tag: usize,
    ) -> Result<(), Failure> {
        let qp = &self.qp;
        let post = |context| qp.read(context, &[mr.sge(range)], remote, 0);
        let posted = self.initiator.post(tag, post);
        self.in_time(posted)
    }

    /// A post that the end of the connection has overtaken says no more than that: [`wait`](Self::wait) has
    /// what was completed before, and why it ended.
    fn in_time(&mut self, posted: Result<(), NdkError>) -> Result<(), Failure> {
        match posted {
            Err(late) if late.status == STATUS_CONNECTION_INVALID => {
                self.late.get_or_insert(late);
                Ok(())
            }
            posted => Ok(posted?),
        }
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if (self.stop)() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Waits for at least one event and appends what has come.
    pub(crate) fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        let deadline = Instant::now() + self.waits.patience;
        loop {
            self.check_stop()?;
            // Asked before the queue is: what was completed before the end is still there after.
            let disconnected = self.connector.is_disconnected();
            let slice = if disconnected { Duration::ZERO } else { SLICE };
            let taken = self.wait_results(slice)?;
            if taken > 0 {
                return self.account(taken, events);
            }
            if disconnected {
                return Err(Failure::Disconnected);
            }
            // The end is told a moment after it has come.
            if let Some(late) = self.late
                && !self.connector.wait_disconnected(self.waits.patience)
            {
                return Err(late.into());
            }
            if Instant::now() >= deadline {
                return Err(Failure::Stalled(self.waits.patience));
            }
        }
    }

    /// Takes completions, and waits for the first one for as long as `slice`.
    fn wait_results(&mut self, slice: Duration) -> Result<usize, Failure> {
        if !self.waits.busy_poll {
            return Ok(self.cq.wait_results_ex(&mut self.results, slice)?);
        }
        let until = Instant::now() + slice;
        loop {
            for _ in 0..POLLS {
                let taken = self.cq.results_ex(&mut self.results);
                if taken > 0 {
                    return Ok(taken);
                }
            }
            if Instant::now() >= until {
                return Ok(0);
            }
            if self.alone {
                thread::yield_now();
            }
        }
    }

    /// True if nothing that was posted is still open.
    pub(crate) fn is_idle(&self) -> bool {
        self.initiator.outstanding.is_empty()
    }

    fn account(&mut self, taken: usize, events: &mut Vec<Event>) -> Result<(), Failure> {
        for result in &self.results[..taken] {
            let context = result.RequestContext.addr();
            let received = result.Type.is_receive();
            let ledger = if received { &mut self.receive } else { &mut self.initiator };
            let tag = ledger.complete(context)?;
            if !result.Status.is_success() {
                return Err(self.failed(result));
            }
            events.push(if received {
                Event::Received { tag, len: result.BytesTransferred as usize }
            } else {
                Event::Initiated { tag }
            });
        }
        Ok(())
    }

    #[allow(non_upper_case_globals, reason = "C names in patterns")]
    fn failed(&self, result: &NDK_RESULT_EX) -> Failure {
        // What was posted is cancelled a moment before the consumer is told why.
        if result.Status == STATUS_CANCELLED && self.connector.wait_disconnected(SLICE) {
            return Failure::Disconnected;
        }
        let operation = match result.Type {
            NdkOperationTypeSend => "a send",
            NdkOperationTypeWrite => "a write",
            NdkOperationTypeRead => "a read",
            operation if operation.is_receive() => "a receive",
            _ => "a request",
        };
        Failure::Completion { operation, status: result.Status }
    }
}

/// For [`Session::stop_when`]: only what the session waits for ends a wait.
pub(crate) fn never() -> bool {
    false
}

/// What is posted on one queue, oldest first. Its numbers are the request contexts.
#[derive(Debug)]
struct Ledger {
    queue: &'static str,
    next: usize,
    outstanding: VecDeque<(usize, usize)>,
}

impl Ledger {
    const fn new(queue: &'static str) -> Self {
        Self { queue, next: 0, outstanding: VecDeque::new() }
    }

    fn post(
        &mut self,
        tag: usize,
        post: impl FnOnce(usize) -> Result<(), NdkError>,
    ) -> Result<(), NdkError> {
        post(self.next)?;
        self.outstanding.push_back((self.next, tag));
        self.next += 1;
        Ok(())
    }

    /// The tag of the request that `context` numbers, which must be the oldest one.
    fn complete(&mut self, context: usize) -> Result<usize, Failure> {
        let oldest = self.outstanding.front().copied();
        match oldest {
            Some((number, tag)) if number == context => {
                self.outstanding.pop_front();
                Ok(tag)
            }
            _ => Err(Failure::Order {
                queue: self.queue,
                expected: oldest.map(|(number, _)| number),
                context,
            }),
        }
    }
}

/// Polls between two looks at the clock.
const POLLS: usize = 32;

/// How often a wait looks whether the peer is still there.
const SLICE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_come_in_order_and_once() {
        let mut ledger = Ledger::new("initiator");
        for tag in [7, 8, 9] {
            ledger.post(tag, |_| Ok(())).unwrap();
        }
        assert_eq!(ledger.complete(0).unwrap(), 7);
        assert!(matches!(
            ledger.complete(2),
            Err(Failure::Order { expected: Some(1), context: 2, .. })
        ));
        assert!(ledger.complete(0).is_err(), "twice");
        assert_eq!(ledger.complete(1).unwrap(), 8);
        assert_eq!(ledger.complete(2).unwrap(), 9);
        assert!(matches!(ledger.complete(3), Err(Failure::Order { expected: None, .. })));
    }

    #[test]
    fn a_refused_post_is_not_outstanding() {
        let error = NdkError { status: STATUS_CONNECTION_INVALID, call: "NdkSend" };
        let mut ledger = Ledger::new("initiator");
        assert!(ledger.post(1, |_| Err(error)).is_err());
        assert!(ledger.complete(0).is_err());
        ledger
            .post(2, |context| {
                assert_eq!(context, 0);
                Ok(())
            })
            .unwrap();
        assert_eq!(ledger.complete(0).unwrap(), 2);
    }
}
