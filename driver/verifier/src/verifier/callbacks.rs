//! Callbacks of the consumer while they run.

use super::Rule;
use super::state::State;
use crate::layer::{Record, Upcall};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A callback that has not returned.
pub(super) struct Running {
    pub(super) name: &'static str,
    pub(super) object: Option<Arc<Record>>,
    thread: ThreadId,
    since: Instant,
    told: bool,
}

impl State {
    /// A callback begins.
    pub(super) fn begin(&mut self, upcall: &Upcall) -> u64 {
        if upcall.name == "the disconnect event"
            && let Some(connector) = &upcall.object
        {
            self.break_queues_of(connector.id);
        }
        self.last_running += 1;
        let (name, object) = (upcall.name, upcall.object.clone());
        let thread = std::thread::current().id();
        let running = Running { name, object, thread, since: Instant::now(), told: false };
        self.running.insert(self.last_running, running);
        self.last_running
    }

    /// A callback has returned.
    pub(super) fn finish(&mut self, id: u64, bound: Duration) {
        self.look_at_callbacks(bound);
        self.running.remove(&id);
    }

    /// Reports callbacks that run longer than `bound`.
    pub(super) fn look_at_callbacks(&mut self, bound: Duration) {
        let mut late = Vec::new();
        for running in self.running.values_mut() {
            if !running.told && running.since.elapsed() > bound {
                running.told = true;
                late.push((running.name, running.object.clone()));
            }
        }
        for (name, object) in late {
            let object =
                object.map_or_else(|| "an object".to_string(), |object| object.to_string());
            let detail = format!("its callback runs longer than {bound:?}");
            self.report(Rule::CallbackBlocks, name, &object, detail);
        }
    }

    /// A callback of this thread waits.
    pub(super) fn wait(&mut self) {
        let this = std::thread::current().id();
        let own = self.running.values().rfind(|running| running.thread == this);
        let Some(Running { name, object, .. }) = own else { return };
        let (name, object) = (*name, object.as_ref().map(ToString::to_string));
        self.report(Rule::CallbackWaits, name, &object.unwrap_or_default(), "its callback waits");
    }
}
