//! What one run takes of the server, checked before any of it is taken.
//!
//! The client names the numbers, so none of them is used before it has passed here. The client asks
//! the same question of its own command line, and so knows the answer before it connects.

use std::fmt;

use super::control::{Control, Operation, Parameters};

/// Largest queue depth of a client.
pub(crate) const DEPTH_MAX: u16 = 1024;
/// The most messages that an end holds.
const SLOTS_MAX: u32 = 2 * DEPTH_MAX as u32;
/// Longest message in bytes.
pub(crate) const SIZE_MAX: u32 = 1 << 29;
/// The most queue pairs of a run, and the most connections that a server has at once.
pub(crate) const QUEUE_PAIRS_MAX: u16 = 128;
/// Receives for control messages: four turns, four credits, the rest once each, and some to spare.
pub(super) const SPARE: u32 = 16;
/// Receives that the server posts at most.
pub(super) const RECEIVES_MAX: u32 = SLOTS_MAX + SPARE;
/// Receives that an end posts at most on a queue that the queue pairs of a thread share.
pub(super) const SHARED_MAX: u32 = 4096;
/// Bytes of registered memory that a server gives all its connections together.
pub(super) const MEMORY_MAX: u64 = 1 << 30;

/// The rings of an end that holds what the other one sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Budget {
    /// Receives, and bytes of each: between control messages comes the data of a SEND run.
    pub(super) receives: usize,
    pub(super) receive_len: usize,
    /// Messages that the peer writes to or reads from, and bytes of each.
    pub(super) data_slots: usize,
    pub(super) size: usize,
    /// Bytes of all rings, those of an end that sends, too, included.
    pub(super) bytes: u64,
}

/// A run that no server takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TooMuch {
    /// A message has 1 to [`SIZE_MAX`] bytes.
    Size,
    /// A server holds 1 to [`SLOTS_MAX`] messages, and no more than its adapter has receives.
    Slots,
    /// So many queue pairs of a thread would need more receives than the [`SHARED_MAX`] of a shared queue.
    Shared { queue_pairs: u16 },
    /// An end posts 1 to [`DEPTH_MAX`] messages at once, and lists and silences no more than that.
    Depth,
    /// Its rings would take so many bytes.
    Memory { operation: Operation, bytes: u64 },
}

impl Budget {
    /// What a run of `parameters` takes of a server whose queue has `receives_max` receives.
    pub(crate) fn new(parameters: &Parameters, receives_max: u32) -> Result<Self, TooMuch> {
        let Parameters { operation, size, slots, depth, .. } = *parameters;
        if !(1..=SIZE_MAX).contains(&size) {
            return Err(TooMuch::Size);
        }
        if !(1..=SLOTS_MAX).contains(&slots) || slots + SPARE > receives_max {
            return Err(TooMuch::Slots);
        }
        let group = parameters.list.max(parameters.silent);
        if !(1..=DEPTH_MAX).contains(&depth) || !(1..=depth).contains(&group) {
            return Err(TooMuch::Depth);
        }
        let (data_receives, data_slots) = match operation {
            Operation::Send => (slots, 1),
            Operation::Write | Operation::Read => (0, slots),
        };
        let receives = data_receives + SPARE;
        let receive_len =
            if data_receives > 0 { size.max(Control::LEN as u32) } else { Control::LEN as u32 };
        let product = |count: u32, len: u32| u64::from(count) * u64::from(len);
        let sends = parameters.bidirectional || parameters.is_ping_pong();
        let sent = if sends { u32::from(depth).max(2) } else { 0 };
        let bytes = product(receives, receive_len) + product(data_slots + sent, size);
        if bytes > MEMORY_MAX {
            return Err(TooMuch::Memory { operation, bytes });
        }
        Ok(Self {
            receives: receives as usize,
            receive_len: receive_len as usize,
            data_slots: data_slots as usize,
            size: size as usize,
            bytes,
        })
    }
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size => f.write_str("a message has 1 byte to 512 MiB"),
            Self::Slots => write!(f, "a server holds 1 to {SLOTS_MAX} messages"),
            Self::Shared { queue_pairs } => write!(
                f,
                "--srq: {queue_pairs} queue pairs of this depth need more receives than the {SHARED_MAX} of a shared queue (--qps, --depth)"
            ),
            Self::Depth => write!(
                f,
                "an end posts 1 to {DEPTH_MAX} messages at once, and lists of no more (--depth, --post-list, --silent)"
            ),
            Self::Memory { operation, bytes } => write!(
                f,
                "{operation}: size times depth is too large: the server would need {} MiB, and gives all clients 1024 MiB",
                bytes.div_ceil(1 << 20)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The run that once ended a server: ten receives of 512 MiB.
    #[test]
    fn receives_to_spare_count_too() {
        let asked = Parameters::example(Operation::Send, SIZE_MAX, 2);
        let refused = Budget::new(&asked, RECEIVES_MAX).unwrap_err();
        assert_eq!(refused, TooMuch::Memory { operation: Operation::Send, bytes: 19 << 29 });
        assert!(refused.to_string().contains("9728 MiB"), "{refused}");
        let written = Parameters::example(Operation::Write, SIZE_MAX - 1024, 2);
        assert!(Budget::new(&written, RECEIVES_MAX).is_ok());
    }

    proptest! {
        /// Whatever a client asks for, what a server takes is bounded.
        #[test]
        fn no_client_takes_more_than_there_is(
            operation in prop_oneof![Just(Operation::Send), Just(Operation::Write), Just(Operation::Read)],
            size in prop_oneof![any::<u32>(), 0..1u32 << 20],
            slots in prop_oneof![any::<u32>(), 0..3000u32],
            depth in any::<u16>(),
            bidirectional in any::<bool>(),
            receives_max in 0..5000u32,
        ) {
            let asked =
                Parameters { depth, bidirectional, ..Parameters::example(operation, size, slots) };
            if let Ok(budget) = Budget::new(&asked, receives_max) {
                prop_assert!(budget.receives <= receives_max as usize);
                prop_assert!(budget.receive_len >= Control::LEN && budget.size == size as usize);
                let bytes = budget.receives * budget.receive_len + budget.data_slots * budget.size;
                prop_assert!(bytes as u64 <= budget.bytes && budget.bytes <= MEMORY_MAX);
            }
        }
    }
}
