//! How a run waits: for how long, and in which way.

use std::time::Duration;

use clap::Args;

use crate::completions::{MODERATION_MAX, Waits};

/// How to wait for completions.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    patience: Patience,
    /// Poll for completions again and again, which also runs the provider, instead of waiting for
    /// notifications: quicker, and keeps a processor busy
    #[arg(long)]
    busy_poll: bool,
    /// Completions of which one notification tells, if they come within 500 µs: fewer wake-ups of a deep queue
    #[arg(short = 'Q', long, default_value_t = 1, value_name = "N", conflicts_with = "busy_poll",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MODERATION_MAX)))]
    cq_mod: u32,
}

impl WaitArgs {
    pub(crate) fn waits(self) -> Waits {
        let Self { patience, busy_poll, cq_mod } = self;
        Waits { patience: patience.duration(), busy_poll, cq_mod }
    }
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Seconds without any progress after which to give up
    #[arg(long = "timeout", default_value_t = 30, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

impl Patience {
    pub(crate) fn duration(self) -> Duration {
        Duration::from_secs(u64::from(self.timeout))
    }
}
