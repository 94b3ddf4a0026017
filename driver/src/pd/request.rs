//! A consumer's request to the poll core for a protection domain.

/// A new PD has no attributes.
pub(crate) struct CreatePd;
