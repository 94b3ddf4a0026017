//! What the user sees while a run goes on: a progress bar, and a row for each interval.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::perf::{Interval, Limit, Place, Plan, Sight};
use crate::report;

/// A progress bar on stderr, which shows nothing if that is no terminal, or the run is short; rows on stdout.
pub(crate) struct Progress {
    bar: ProgressBar,
    plan: Plan,
    /// Rows are printed.
    rows: bool,
    start: Instant,
    /// When it is drawn next: the first time late, so that a short run shows nothing.
    due: Instant,
}

impl Progress {
    pub(crate) fn new(plan: &Plan, rows: bool) -> Self {
        let len = match plan.limit {
            Limit::Messages(messages) => messages,
            Limit::Time(time) => time.as_millis() as u64,
        };
        let template = "{prefix} {wide_bar} {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is sound");
        let target = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(Some(len), target).with_style(style);
        let start = Instant::now();
        let Place { number, runs } = plan.place;
        // Of many short runs all but the first few are shown.
        let quiet = if number > FEW { REDRAW } else { QUIET };
        let bar = bar.with_prefix(format!("{number}/{runs} {}", plan.name()));
        Self { bar, plan: *plan, rows, start, due: start + quiet }
    }

    /// Shows what is seen.
    pub(crate) fn show(&mut self, sight: Sight<'_>) {
        match sight {
            Sight::Progress(messages) => self.draw(messages),
            Sight::Interval(interval) if self.rows => {
                let row = row(&self.plan, interval);
                // Where nothing can be printed, the table at the end says so.
                self.bar.suspend(|| {
                    let _ = writeln!(io::stdout(), "{row}");
                });
            }
            Sight::Interval(_) => {}
        }
    }

    fn draw(&mut self, messages: u64) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.due = now + REDRAW;
        self.bar.set_message(format!("{messages} messages"));
        self.bar.set_position(match self.plan.limit {
            Limit::Messages(_) => messages,
            Limit::Time(_) => (now - self.start).as_millis() as u64,
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One interval in one line.
fn row(plan: &Plan, interval: &Interval) -> String {
    let flow = &interval.flow;
    let rate = report::per_second(flow.messages, flow.elapsed);
    let gigabits = report::per_second(flow.bytes, flow.elapsed) * 8.0 / 1e9;
    let (name, at) = (plan.name(), interval.at.as_secs_f64());
    let mut row = format!("{name}, {at:.2} s: {rate:.0} messages/s, {gigabits:.3} Gb/s");
    for (count, what) in report::meanwhile(&interval.counters) {
        row.push_str(&format!(", {count} {what}"));
    }
    row
}

/// A run that is over by then shows no progress.
const QUIET: Duration = Duration::from_secs(1);
/// Runs that keep quiet for so long: as many as there are operations.
const FEW: usize = 3;
/// Time between two looks of the bar.
const REDRAW: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::perf::Flow;
    use clap::Parser;

    #[test]
    fn a_row_tells_what_has_changed() {
        let command = Cli::try_parse_from(["ndkperf", "--size", "1000"]).unwrap().into_command();
        let Command::Loopback(args) = command else { panic!() };
        let plan = args.run.plans(0).unwrap()[0];
        let elapsed = Duration::from_millis(500);
        let flow = Flow { messages: 1_000_000, bytes: 1_000_000_000, elapsed };
        let mut interval = Interval { at: Duration::from_secs(2), flow, counters: Vec::new() };
        let calm = "send of 1000 B, 2.00 s: 2000000 messages/s, 16.000 Gb/s";
        assert_eq!(row(&plan, &interval), calm);
        interval.counters =
            vec![("resent_timer_pkts", 2), ("resent_nak_pkts", 3), ("rp_cnp_handled", 4)];
        let told = format!("{calm}, 5 packets sent again, 4 congestion notifications");
        assert_eq!(row(&plan, &interval), told);
    }
}
