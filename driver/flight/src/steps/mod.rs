//! The steps of a flight.

mod closes;
mod connects;
mod ends;
mod many;
mod mapped;
mod objects;
mod rights;
mod shared;
mod transfers;

use crate::Failure;
use crate::step::Step;

/// A step: it leaves its objects and memory to the flight, which closes and frees them.
pub(crate) type StepFn = fn(&mut Step<'_>) -> Result<(), Failure>;

/// The steps of one adapter.
pub(crate) const ONE_ADAPTER: &[(&str, StepFn)] = &[
    ("adapter", objects::adapter),
    ("objects", objects::objects),
    ("closes", closes::every_order),
];

/// The steps over a connection.
pub(crate) const ONE_CONNECTION: &[(&str, StepFn)] = &[
    ("connect", connects::connect),
    ("send", transfers::send),
    ("write", transfers::write),
    ("read", transfers::read),
    ("order", transfers::order),
    ("rights", rights::rights),
    ("window", mapped::window),
    ("fast-register", mapped::fast_register),
    ("invalidate", mapped::invalidate),
    ("srq", shared::srq),
    ("flush", ends::flush),
    ("reject", connects::reject),
    ("refuse", connects::refuse),
    ("disconnect", ends::disconnect),
    ("storm", connects::storm),
    ("closes-connected", closes::connected),
    ("connections", many::connections),
];
