//! A completion queue that the connections of a thread share.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use driver::abi::NDK_RESULT_EX;
use ndk_consumer::{Adapter, Cq};

use crate::connection::{Connection, Event};
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

/// A completion queue, and how its thread waits for it.
#[derive(Debug)]
pub(crate) struct Completions {
    cq: Arc<Cq>,
    results: Vec<NDK_RESULT_EX>,
    waits: Waits,
    /// Asked while waiting: whether the user wants to end.
    stop: fn() -> bool,
    /// There is one processor, which the peer may want.
    alone: bool,
}

impl Completions {
    /// Room for `depth` completions; waits give up after their patience without progress.
    pub(crate) fn new(adapter: &Arc<Adapter>, depth: u32, waits: Waits) -> Result<Self, Failure> {
        let cq = adapter.create_cq(depth)?;
        if waits.cq_mod > 1 {
            cq.moderate(MODERATION_US, waits.cq_mod)?;
        }
        Ok(Self {
            cq,
            results: vec![NDK_RESULT_EX::EMPTY; 64],
            waits,
            stop: never,
            alone: thread::available_parallelism().is_ok_and(|processors| processors.get() == 1),
        })
    }

    /// From here on a wait ends with [`Failure::Interrupted`] once `stop` says so.
    pub(crate) const fn stop_when(&mut self, stop: fn() -> bool) {
        self.stop = stop;
    }

    /// The queue itself.
    pub(crate) const fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// How long nothing may happen.
    pub(crate) const fn patience(&self) -> Duration {
        self.waits.patience
    }

    /// # Errors
    /// The user wants to end.
    pub(crate) fn check_stop(&self) -> Result<(), Failure> {
        if (self.stop)() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Waits for at least one event of `connections`, or until a time, and appends what has come, each with the place
    /// of its connection.
    pub(crate) fn wait<C: AsMut<Connection>>(
        &mut self,
        connections: &mut [C],
        until: Option<Instant>,
        events: &mut Vec<(usize, Event)>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.waits.patience;
        loop {
            self.check_stop()?;
            // Asked before the queue is: what was completed before the end is still there after.
            let disconnected = any_disconnected(connections);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slice = if disconnected { Duration::ZERO } else { SLICE };
            let taken = self.take(left.map_or(slice, |left| left.min(slice)))?;
            if taken > 0 {
                return self.account(taken, connections, events);
            }
            if disconnected {
                return Err(Failure::Disconnected);
            }
            // The end is told a moment after it has come.
            let mut connections = connections.iter_mut().map(AsMut::as_mut);
            if let Some(late) = connections.find_map(|connection| connection.end_untold()) {
                return Err(late.into());
            }
            if left.is_some_and(|left| left <= slice) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Failure::Stalled(self.waits.patience));
            }
        }
    }

    /// Appends what has come, and never waits; whether anything has.
    pub(crate) fn poll<C: AsMut<Connection>>(
        &mut self,
        connections: &mut [C],
        events: &mut Vec<(usize, Event)>,
    ) -> Result<bool, Failure> {
        let taken = self.cq.results_ex(&mut self.results);
        self.account(taken, connections, events)?;
        Ok(taken > 0)
    }

    /// For one that polls since `since`: whether there is still anything to poll for.
    pub(crate) fn check<C: AsMut<Connection>>(
        &self,
        connections: &mut [C],
        since: Instant,
    ) -> Result<(), Failure> {
        self.check_stop()?;
        // One that polls may keep the processor from the peer, which it waits for.
        if self.alone || !self.waits.busy_poll {
            thread::yield_now();
        }
        if any_disconnected(connections) {
            return Err(Failure::Disconnected);
        }
        let stalled = since.elapsed() >= self.waits.patience;
        if stalled { Err(Failure::Stalled(self.waits.patience)) } else { Ok(()) }
    }

    /// Takes completions, and waits for the first one for as long as `slice`.
    fn take(&mut self, slice: Duration) -> Result<usize, Failure> {
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

    fn account<C: AsMut<Connection>>(
        &self,
        taken: usize,
        connections: &mut [C],
        events: &mut Vec<(usize, Event)>,
    ) -> Result<(), Failure> {
        for result in &self.results[..taken] {
            let place = result.QPContext.addr();
            let connection = connections.get_mut(place).map(AsMut::as_mut);
            let connection =
                connection.ok_or(Failure::Protocol("a completion is of no queue pair of ours"))?;
            connection.account(result, |event| events.push((place, event)))?;
        }
        Ok(())
    }
}

fn any_disconnected<C: AsMut<Connection>>(connections: &mut [C]) -> bool {
    connections.iter_mut().any(|connection| connection.as_mut().is_disconnected())
}

/// For [`Completions::stop_when`]: only what the session waits for ends a wait.
pub(crate) fn never() -> bool {
    false
}

/// Polls between two looks at the clock.
const POLLS: usize = 32;

/// How often a wait looks whether the peer is still there.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
