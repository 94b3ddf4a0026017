//! How a step fails.

use core::fmt;
use ndk_abi::NTSTATUS;

/// The reason for which a step failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// A function of a table, or a completion, had a status that it should not have.
    Status {
        /// The function.
        call: &'static str,
        /// Its status.
        status: NTSTATUS,
    },
    /// Something should have come within the patience of the flight, and has not.
    Late {
        /// A call, or an event.
        call: &'static str,
        /// The patience, in seconds.
        after_s: u64,
    },
    /// A number is wrong.
    Wrong {
        /// The name of the number.
        what: &'static str,
        /// The number.
        found: u64,
        /// The right one.
        expected: u64,
    },
    /// The machine has no memory for the flight itself.
    Memory {
        /// How much was asked for.
        bytes: usize,
    },
}

impl Failure {
    /// Compares two numbers.
    ///
    /// # Errors
    /// [`Failure::Wrong`] unless they are the same.
    pub(crate) const fn unless_same(
        what: &'static str,
        found: u64,
        expected: u64,
    ) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self::Wrong { what, found, expected }) }
    }

    /// Judges a status.
    ///
    /// # Errors
    /// [`Failure::Status`] unless it is this one.
    pub(crate) fn unless_status(
        call: &'static str,
        status: NTSTATUS,
        expected: NTSTATUS,
    ) -> Result<(), Self> {
        if status == expected { Ok(()) } else { Err(Self::Status { call, status }) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status { call, status } => write!(f, "{call} gave {status}"),
            Self::Late { call, after_s } => {
                write!(f, "{call} did not complete within {after_s} s")
            }
            Self::Wrong { what, found, expected } => {
                write!(f, "{what} is {found:#x}, not {expected:#x}")
            }
            Self::Memory { bytes } => write!(f, "no memory for {bytes} bytes"),
        }
    }
}
