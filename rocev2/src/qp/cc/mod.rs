//! Congestion control of a queue pair: marks and losses, and the rate that they leave.

pub(super) mod congestion;
pub(super) mod loss_sum;
mod rate;
