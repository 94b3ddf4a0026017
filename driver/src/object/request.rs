//! A consumer's request to the poll core for an object of whatever kind.

use super::done::CloseDone;
use super::id::ObjectId;

/// Closes an object, in the place that it holds.
pub(crate) struct Close {
    pub(crate) object: ObjectId,
    pub(crate) done: CloseDone,
}
