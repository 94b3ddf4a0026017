//! The processor time that a run takes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A look at the clock of the whole process: of all its threads, in user code and in the kernel.
pub(super) struct Meter {
    cpu: Duration,
}

impl Meter {
    pub(super) fn start() -> Self {
        Self { cpu: process_time() }
    }

    /// Processor time since the start.
    pub(super) fn cpu(&self) -> Duration {
        process_time().saturating_sub(self.cpu)
    }
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // It is never negative, nor has it ever more than a second's nanoseconds.
    Duration::try_from(time).expect("the clock of a process starts at zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock is that of the process, not of the thread that looks.
    #[test]
    fn another_thread_counts() {
        let meter = Meter::start();
        let worked = std::thread::spawn(|| {
            let start = clock_gettime(ClockId::ThreadCPUTime);
            let mut value = 0u64;
            for round in 0..2_000_000 {
                value = std::hint::black_box(value.wrapping_mul(31) + round);
            }
            let end = clock_gettime(ClockId::ThreadCPUTime);
            Duration::try_from(end).unwrap() - Duration::try_from(start).unwrap()
        });
        let worked = worked.join().unwrap();
        assert!(!worked.is_zero() && meter.cpu() >= worked, "{worked:?}");
    }
}
