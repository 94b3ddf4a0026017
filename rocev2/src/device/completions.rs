//! Taking completions.

use super::engine::Engine;
use crate::qp::{Completion, CompletionSink};

impl Engine {
    /// The next completion, in order per queue.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.settle();
        while let Some(&slot) = self.lists.finished.last() {
            let entry = self.qps[slot].as_deref_mut();
            if let Some(completion) = entry.and_then(|entry| entry.qp.pop_completion()) {
                return Some(completion);
            }
            self.finish(slot);
        }
        self.completions.pop()
    }

    /// Hands all completions over to `sink`, those of a queue of a queue pair together; but for receives of shared queues,
    /// for which [`Self::poll_completion`] is to be asked after this.
    pub fn take_completions(&mut self, sink: &mut impl CompletionSink) {
        self.settle();
        let mut finished = core::mem::take(&mut self.lists.finished);
        for &slot in &finished {
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            entry.finished = false;
            entry.qp.take_completions(sink);
            if entry.dead {
                self.bury(slot);
            }
        }
        finished.clear();
        self.lists.finished = finished;
    }

    /// All completions of the last queue pair that has some were taken.
    fn finish(&mut self, slot: usize) {
        if let Some(entry) = self.qps[slot].as_deref_mut() {
            entry.finished = false;
        }
        self.lists.finished.pop();
        self.bury(slot);
    }
}
