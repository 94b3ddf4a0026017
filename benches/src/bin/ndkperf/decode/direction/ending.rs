//! The end of a capture: what was left open in a direction.

use super::super::findings::{Kind, Sink};
use super::Direction;

impl Direction {
    /// Tells what was left open at the end of the capture.
    /// Where the other side's packets are not in it, silence tells nothing, but requests that are repeated do.
    pub(in super::super) fn finish(&self, end_ns: u64, is_answered: bool, sink: &mut Sink<'_>) {
        if let Some((first, frame, at_ns)) = self.gaps.first_open() {
            let (psn, open) = (self.psn_at(first), self.gaps.open_psns());
            sink.add(Kind::Missing, frame, at_ns, || {
                format!("{open} PSNs from {:#08x} on never came, when later ones had", psn.get())
            });
        }
        if self.is_over {
            return;
        }
        if let Some(refusal) = self.refusal {
            let sent_since =
                self.sent_at(refusal.at).is_some_and(|sent| sent.last_ns > refusal.last_ns);
            let waited_us = end_ns.saturating_sub(refusal.last_ns) / 1000;
            if !sent_since && (refusal.times > 1 || waited_us > refusal.timer_us) {
                let psn = self.psn_at(refusal.at);
                sink.add(Kind::RetriesExhausted, refusal.frame, refusal.last_ns, || {
                    format!(
                        "PSN {:#08x} was refused {} times by RNR NAK and not sent again: \
                         the RNR retries are used up, or the capture ends",
                        psn.get(),
                        refusal.times
                    )
                });
            }
            return;
        }
        self.silence_at_end(end_ns, is_answered, sink);
    }

    fn silence_at_end(&self, end_ns: u64, is_answered: bool, sink: &mut Sink<'_>) {
        let read = self.reads.oldest_incomplete();
        let oldest = read.map_or(self.una, |(at, ..)| at.min(self.una));
        let is_read = read.is_some_and(|(at, ..)| at == oldest);
        if oldest >= self.next && !is_read {
            return;
        }
        let Some((number, at_ns)) = self.last_request else { return };
        let Some((_, sent)) = self.sent.range(..=oldest).next_back() else { return };
        let (psn, pending) = (self.psn_at(oldest), (self.next - self.una).max(0));
        let waited_ms =
            end_ns.saturating_sub(self.last_response_ns.max(sent.first_ns)) as f64 / 1e6;
        if sent.times >= RETRIES && sent.last_ns > self.last_response_ns {
            let times = sent.times;
            let spread_ms = sent.last_ns.saturating_sub(sent.first_ns) as f64 / 1e6;
            sink.add(Kind::RetriesExhausted, sent.frame, sent.last_ns, || {
                format!(
                    "PSN {:#08x} was sent {times} times in {spread_ms:.3} ms and never answered: \
                     the retries are used up, or the capture ends",
                    psn.get()
                )
            });
        } else if is_answered {
            let reads = self.reads.incomplete();
            sink.add(Kind::Unanswered, number, at_ns, || {
                format!(
                    "{pending} PSNs and {reads} READs from PSN {:#08x} on were not answered until the capture \
                     ended, {waited_ms:.3} ms later",
                    psn.get()
                )
            });
        }
    }
}

/// So often a packet is sent before the retries may be used up.
const RETRIES: u32 = 3;
