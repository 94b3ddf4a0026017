//! A consumer's request to the poll core for a memory window.

/// A new window has no attributes.
pub(crate) struct CreateMw;
